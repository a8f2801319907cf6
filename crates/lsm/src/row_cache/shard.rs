//! A shard of the row cache: buckets that refer to the rows of a ring.

use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_memory::{LargeArray, MemoryPool};

use super::ring::{CachedRow, Ring, RowKey, UNIT_BYTES, row_bytes};

/// The rows of a bucket.
const SLOTS: usize = 8;
/// The ghosts of a bucket.
const GHOSTS: usize = 6;
/// The maximum number of rows reinserted to make room for one.
const MAX_REINSERTIONS: usize = 8;

/// A cache line that refers to rows.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Bucket {
    fingerprints: [u16; SLOTS],
    /// The position of the row in units, plus one; 0 for none.
    at: [u32; SLOTS],
    /// Fingerprints of keys that were read and have no row.
    ghosts: [u16; GHOSTS],
    /// The index of the oldest ghost.
    oldest_ghost: u8,
    /// Bit i: the row of slot i was read since its insertion or reinsertion.
    used: u8,
}
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn has_ghost(&self, fingerprint: u16) -> bool {
        self.ghosts.contains(&fingerprint)
    }

    fn add_ghost(&mut self, fingerprint: u16) {
        if !self.has_ghost(fingerprint) {
            self.ghosts[usize::from(self.oldest_ghost) % GHOSTS] = fingerprint;
            self.oldest_ghost = (self.oldest_ghost + 1) % GHOSTS as u8;
        }
    }

    fn remove_ghost(&mut self, fingerprint: u16) {
        self.ghosts.iter_mut().filter(|ghost| **ghost == fingerprint).for_each(|ghost| *ghost = 0);
    }

    /// The slot that refers to `at`.
    fn slot_of(&self, at: usize) -> Option<usize> {
        self.at.iter().position(|&unit| unit == unit_of(at))
    }

    /// The slot for a new row: a free one, else one whose row was not read, else any.
    fn victim_slot(&mut self) -> usize {
        let free = self.at.iter().position(|&unit| unit == 0);
        free.or_else(|| (0..SLOTS).find(|slot| self.used >> slot & 1 == 0)).unwrap_or_else(|| {
            self.used = 0;
            0
        })
    }

    fn set(&mut self, slot: usize, fingerprint: u16, at: usize) {
        self.fingerprints[slot] = fingerprint;
        self.at[slot] = unit_of(at);
        self.used &= !(1 << slot);
    }

    fn clear(&mut self, slot: usize) {
        self.at[slot] = 0;
        self.used &= !(1 << slot);
    }
}

/// The encoding of `at` in a slot.
fn unit_of(at: usize) -> u32 {
    (at / UNIT_BYTES) as u32 + 1
}

/// The result of a lookup in a shard.
#[derive(Debug)]
pub(super) enum SlotLookup<'s> {
    Hit(CachedRow<'s>),
    /// There is no row; whether the key is a ghost.
    Miss {
        is_ghost: bool,
    },
}

/// The rows under one lock.
pub(super) struct RowShard {
    buckets: LargeArray<Bucket>,
    ring: Option<Ring>,
    ring_bytes: usize,
    pool: Arc<MemoryPool>,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) inserts: u64,
}

impl RowShard {
    /// A shard with up to `ring_bytes` bytes of rows. It has no buckets until [`allocate_buckets`](Self::allocate_buckets).
    pub(super) fn new(ring_bytes: usize, pool: Arc<MemoryPool>) -> Self {
        let buckets = LargeArray::default();
        Self { buckets, ring: None, ring_bytes, pool, hits: 0, misses: 0, inserts: 0 }
    }

    /// Allocates the buckets, unless there are some, and returns the address of the first.
    pub(super) fn allocate_buckets(&mut self, buckets: usize) -> *mut Bucket {
        if self.buckets.is_empty() {
            self.buckets = LargeArray::from_fn(&self.pool, buckets, |_| Bucket::default());
        }
        self.buckets.as_mut_ptr()
    }

    /// Whether there are no buckets yet.
    pub(super) fn is_unallocated(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The bytes of rows and buckets.
    pub(super) fn used_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + self.ring.as_ref().map_or(0, Ring::used_bytes)
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.at.iter().filter(|&&unit| unit != 0).count()).sum()
    }

    #[inline]
    fn bucket(&self, bucket_hash: u32) -> Option<&Bucket> {
        self.buckets.get(bucket_number(bucket_hash, self.buckets.len()))
    }

    #[inline]
    fn bucket_mut(&mut self, bucket_hash: u32) -> Option<&mut Bucket> {
        let number = bucket_number(bucket_hash, self.buckets.len());
        self.buckets.get_mut(number)
    }

    /// The slot of a row in its bucket, and the position of the row.
    #[inline]
    fn slot(&self, key: RowKey<'_>) -> Option<(usize, usize)> {
        let bucket = self.bucket(key.bucket_hash)?;
        let ring = self.ring.as_ref()?;
        for slot in 0..SLOTS {
            if bucket.fingerprints[slot] != key.fingerprint || bucket.at[slot] == 0 {
                continue;
            }
            let at = (bucket.at[slot] as usize - 1) * UNIT_BYTES;
            let row = ring.row(at);
            if row.is_some_and(|row| row.key.owner == key.owner && row.key.user_key == key.user_key) {
                return Some((slot, at));
            }
        }
        None
    }

    /// The row of a key. Records the request.
    #[inline]
    pub(super) fn get(&mut self, key: RowKey<'_>) -> SlotLookup<'_> {
        let slot = self.slot(key);
        self.hits += u64::from(slot.is_some());
        self.misses += u64::from(slot.is_none());
        let Some(bucket) = self.bucket_mut(key.bucket_hash) else {
            return SlotLookup::Miss { is_ghost: false };
        };
        let Some((slot, at)) = slot else {
            let is_ghost = bucket.has_ghost(key.fingerprint);
            bucket.add_ghost(key.fingerprint);
            return SlotLookup::Miss { is_ghost };
        };
        bucket.used |= 1 << slot;
        let row = self.ring.as_ref().and_then(|ring| ring.row(at));
        row.map_or(SlotLookup::Miss { is_ghost: false }, SlotLookup::Hit)
    }

    /// Records a request for a key.
    #[inline]
    pub(super) fn record_request(&mut self, bucket_hash: u32, fingerprint: u16) {
        if let Some(bucket) = self.bucket_mut(bucket_hash) {
            bucket.add_ghost(fingerprint);
        }
    }

    /// Inserts a row or replaces an older one. Evicts the oldest rows to make room; reinserts rows that were read meanwhile.
    pub(super) fn put(&mut self, row: CachedRow<'_>) {
        if let Some((slot, at)) = self.slot(row.key) {
            let before = self.ring.as_ref().and_then(|ring| ring.row(at));
            let Some(before) = before.filter(|before| before.sequence < row.sequence) else { return };
            let fits = before.value.len() == row.value.len();
            match &mut self.ring {
                Some(ring) if fits => return ring.overwrite(at, row.sequence, row.value),
                _ => self.clear(row.key.bucket_hash, slot),
            }
        }
        let bytes = row_bytes(row.key.user_key.len(), row.value.len());
        if bytes > self.ring_bytes / 8 || self.buckets.is_empty() {
            return;
        }
        self.make_room(bytes);
        let Some(at) = self.ring.as_mut().and_then(|ring| ring.push(row)) else { return };
        self.inserts += 1;
        let RowKey { bucket_hash, fingerprint, .. } = row.key;
        if let Some(bucket) = self.bucket_mut(bucket_hash) {
            let slot = bucket.victim_slot();
            bucket.set(slot, fingerprint, at);
            bucket.remove_ghost(fingerprint);
        }
    }

    /// Updates the row of a key to a flushed version, or inserts one if the key is a ghost. A `value` of `None` means a
    /// deleted key: removes the row.
    pub(super) fn renew(&mut self, key: RowKey<'_>, sequence: SequenceNumber, value: Option<&[u8]>) {
        let RowKey { bucket_hash, fingerprint, .. } = key;
        let slot = self.slot(key);
        match value {
            Some(value) => {
                if slot.is_some()
                    || self.bucket(bucket_hash).is_some_and(|bucket| bucket.has_ghost(fingerprint))
                {
                    self.put(CachedRow { key, sequence, value });
                }
            }
            None => {
                if let Some((slot, at)) = slot
                    && let Some(row) = self.ring.as_ref().and_then(|ring| ring.row(at))
                    && row.sequence < sequence
                {
                    self.clear(bucket_hash, slot);
                }
            }
        }
    }

    fn clear(&mut self, bucket_hash: u32, slot: usize) {
        if let Some(bucket) = self.bucket_mut(bucket_hash) {
            bucket.clear(slot);
        }
    }

    fn make_room(&mut self, bytes: usize) {
        let buckets = self.buckets.len();
        let ring = self.ring.get_or_insert_with(|| Ring::new(self.ring_bytes, self.pool.pages()));
        let mut reinserted = 0;
        while !ring.has_room(bytes) {
            let Some(oldest) = ring.oldest() else { return };
            let bucket_hash = ring.row(oldest).map_or(0, |row| row.key.bucket_hash);
            let bucket = self.buckets.get_mut(bucket_number(bucket_hash, buckets));
            // A row without a slot was replaced, or lost its slot to another row of its bucket.
            let found = bucket.and_then(|bucket| Some((bucket.slot_of(oldest)?, bucket)));
            let Some((slot, bucket)) = found else {
                ring.pop();
                continue;
            };
            if bucket.used >> slot & 1 == 1 && reinserted < MAX_REINSERTIONS {
                reinserted += 1;
                match ring.reinsert_oldest() {
                    Some(at) => bucket.set(slot, bucket.fingerprints[slot], at),
                    None => bucket.clear(slot),
                }
            } else {
                bucket.clear(slot);
                ring.pop();
            }
        }
    }
}

/// The index of the bucket of a `bucket_hash` among `buckets`.
#[inline]
pub(super) fn bucket_number(bucket_hash: u32, buckets: usize) -> usize {
    ((u64::from(bucket_hash) * buckets as u64) >> 32) as usize
}
