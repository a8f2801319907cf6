//! A part of the row cache: buckets that lead to the rows of a ring.

use bolide_base::SequenceNumber;

use bolide_storage::LargeArray;

use super::ring::{Ring, Row, RowKey, UNIT_BYTES, row_bytes};

/// Rows that a bucket leads to.
const SLOTS: usize = 8;
/// Keys that a bucket remembers as asked for.
const NOTES: usize = 6;
/// Most rows that are turned over to make room for one.
const MAX_TURNED_OVER: usize = 8;

/// A cache line that leads to rows.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Bucket {
    marks: [u16; SLOTS],
    /// Where the row lies, in units, and one more; 0 for none.
    at: [u32; SLOTS],
    /// Marks of keys that were asked for and have no row here.
    notes: [u16; NOTES],
    /// Which note is the oldest.
    oldest_note: u8,
    /// Bit i: the row of slot i was asked for since it came or was turned over.
    used: u8,
}
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn has_note(&self, mark: u16) -> bool {
        self.notes.contains(&mark)
    }

    fn note(&mut self, mark: u16) {
        if !self.has_note(mark) {
            self.notes[usize::from(self.oldest_note) % NOTES] = mark;
            self.oldest_note = (self.oldest_note + 1) % NOTES as u8;
        }
    }

    fn forget_note(&mut self, mark: u16) {
        self.notes.iter_mut().filter(|note| **note == mark).for_each(|note| *note = 0);
    }

    /// The slot that leads to `at`.
    fn slot_of(&self, at: usize) -> Option<usize> {
        self.at.iter().position(|&unit| unit == unit_of(at))
    }

    /// A slot that leads nowhere, or else one whose row was not asked for, or else any.
    fn slot_for_another(&mut self) -> usize {
        let free = self.at.iter().position(|&unit| unit == 0);
        free.or_else(|| (0..SLOTS).find(|slot| self.used >> slot & 1 == 0)).unwrap_or_else(|| {
            self.used = 0;
            0
        })
    }

    fn lead_to(&mut self, slot: usize, mark: u16, at: usize) {
        self.marks[slot] = mark;
        self.at[slot] = unit_of(at);
        self.used &= !(1 << slot);
    }

    fn clear(&mut self, slot: usize) {
        self.at[slot] = 0;
        self.used &= !(1 << slot);
    }
}

/// How a slot says `at`.
fn unit_of(at: usize) -> u32 {
    (at / UNIT_BYTES) as u32 + 1
}

/// What a shard says about a key.
#[derive(Debug)]
pub(super) enum Found<'s> {
    Row(Row<'s>),
    /// There is no row. Whether the key is noted as asked for.
    No {
        is_noted: bool,
    },
}

/// Some of the rows, under one lock.
pub(super) struct Shard {
    buckets: LargeArray<Bucket>,
    ring: Option<Ring>,
    ring_bytes: usize,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) inserts: u64,
}

impl Shard {
    /// One that may take `ring_bytes` for rows, and leads to them by `buckets` buckets once it is [prepared](Self::prepare).
    pub(super) fn new(ring_bytes: usize) -> Self {
        Self { buckets: LargeArray::default(), ring: None, ring_bytes, hits: 0, misses: 0, inserts: 0 }
    }

    /// Makes the buckets. The first of them.
    pub(super) fn prepare(&mut self, buckets: usize) -> *mut Bucket {
        if self.buckets.is_empty() {
            self.buckets = LargeArray::from_fn(buckets, |_| Bucket::default());
        }
        self.buckets.as_mut_ptr()
    }

    /// True before there are buckets.
    pub(super) fn is_unprepared(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The bytes that rows take, and what leads to them.
    pub(super) fn used_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + self.ring.as_ref().map_or(0, Ring::used_bytes)
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.at.iter().filter(|&&unit| unit != 0).count()).sum()
    }

    #[inline]
    fn bucket(&self, place: u32) -> Option<&Bucket> {
        self.buckets.get(bucket_number(place, self.buckets.len()))
    }

    #[inline]
    fn bucket_mut(&mut self, place: u32) -> Option<&mut Bucket> {
        let number = bucket_number(place, self.buckets.len());
        self.buckets.get_mut(number)
    }

    /// The slot of a row in its bucket, and where the row lies.
    #[inline]
    fn slot(&self, wanted: RowKey<'_>) -> Option<(usize, usize)> {
        let bucket = self.bucket(wanted.place)?;
        let ring = self.ring.as_ref()?;
        for slot in 0..SLOTS {
            if bucket.marks[slot] != wanted.mark || bucket.at[slot] == 0 {
                continue;
            }
            let at = (bucket.at[slot] as usize - 1) * UNIT_BYTES;
            let row = ring.row(at);
            if row.is_some_and(|row| row.found_by.owner == wanted.owner && row.found_by.key == wanted.key) {
                return Some((slot, at));
            }
        }
        None
    }

    /// The row of a key. Asking is noted.
    #[inline]
    pub(super) fn ask(&mut self, wanted: RowKey<'_>) -> Found<'_> {
        let slot = self.slot(wanted);
        self.hits += u64::from(slot.is_some());
        self.misses += u64::from(slot.is_none());
        let Some(bucket) = self.bucket_mut(wanted.place) else { return Found::No { is_noted: false } };
        let Some((slot, at)) = slot else {
            let is_noted = bucket.has_note(wanted.mark);
            bucket.note(wanted.mark);
            return Found::No { is_noted };
        };
        bucket.used |= 1 << slot;
        let row = self.ring.as_ref().and_then(|ring| ring.row(at));
        row.map_or(Found::No { is_noted: false }, Found::Row)
    }

    /// Notes that a key was asked for.
    #[inline]
    pub(super) fn note(&mut self, place: u32, mark: u16) {
        if let Some(bucket) = self.bucket_mut(place) {
            bucket.note(mark);
        }
    }

    /// Adds a row, or puts it in the place of an older one. The oldest rows leave for it, but for those that were asked for
    /// meanwhile.
    pub(super) fn put(&mut self, row: Row<'_>) {
        if let Some((slot, at)) = self.slot(row.found_by) {
            let before = self.ring.as_ref().and_then(|ring| ring.row(at));
            let Some(before) = before.filter(|before| before.sequence < row.sequence) else { return };
            let fits = before.value.len() == row.value.len();
            match &mut self.ring {
                Some(ring) if fits => return ring.overwrite(at, row.sequence, row.value),
                _ => self.clear(row.found_by.place, slot),
            }
        }
        let bytes = row_bytes(row.found_by.key.len(), row.value.len());
        if bytes > self.ring_bytes / 8 || self.buckets.is_empty() {
            return;
        }
        self.make_room(bytes);
        let Some(at) = self.ring.as_mut().and_then(|ring| ring.push(row)) else { return };
        self.inserts += 1;
        let RowKey { place, mark, .. } = row.found_by;
        if let Some(bucket) = self.bucket_mut(place) {
            let slot = bucket.slot_for_another();
            bucket.lead_to(slot, mark, at);
            bucket.forget_note(mark);
        }
    }

    /// What a flush brings: it takes the place of the row of its key, and becomes one where the key was asked for. `None`
    /// for a value: the key has none any more.
    pub(super) fn renew(&mut self, found_by: RowKey<'_>, sequence: SequenceNumber, value: Option<&[u8]>) {
        let RowKey { place, mark, .. } = found_by;
        let slot = self.slot(found_by);
        match value {
            Some(value) => {
                if slot.is_some() || self.bucket(place).is_some_and(|bucket| bucket.has_note(mark)) {
                    self.put(Row { found_by, sequence, value });
                }
            }
            None => {
                if let Some((slot, at)) = slot
                    && let Some(row) = self.ring.as_ref().and_then(|ring| ring.row(at))
                    && row.sequence < sequence
                {
                    self.clear(place, slot);
                }
            }
        }
    }

    fn clear(&mut self, place: u32, slot: usize) {
        if let Some(bucket) = self.bucket_mut(place) {
            bucket.clear(slot);
        }
    }

    fn make_room(&mut self, bytes: usize) {
        let buckets = self.buckets.len();
        let ring = self.ring.get_or_insert_with(|| Ring::new(self.ring_bytes));
        let mut turned_over = 0;
        while !ring.has_room(bytes) {
            let Some(oldest) = ring.oldest() else { return };
            let place = ring.row(oldest).map_or(0, |row| row.found_by.place);
            let bucket = self.buckets.get_mut(bucket_number(place, buckets));
            // A row that nothing leads to was replaced, or gave way to another of its bucket.
            let found = bucket.and_then(|bucket| Some((bucket.slot_of(oldest)?, bucket)));
            let Some((slot, bucket)) = found else {
                ring.pop();
                continue;
            };
            if bucket.used >> slot & 1 == 1 && turned_over < MAX_TURNED_OVER {
                turned_over += 1;
                match ring.turn_over() {
                    Some(at) => bucket.lead_to(slot, bucket.marks[slot], at),
                    None => bucket.clear(slot),
                }
            } else {
                bucket.clear(slot);
                ring.pop();
            }
        }
    }
}

/// Which of `buckets` a place is in.
#[inline]
pub(super) fn bucket_number(place: u32, buckets: usize) -> usize {
    ((u64::from(place) * buckets as u64) >> 32) as usize
}
