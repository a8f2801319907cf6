//! The row cache: records of keys that were read more than once.
//!
//! A get that reads sstables waits for about seven dependent memory accesses, even if all blocks are cached. With skewed
//! access, as in YCSB's workloads, most gets hit the row cache, with two waits. Rows also take less memory than their
//! blocks if hot keys are scattered over the key space.
//!
//! ```text
//! RowCache ──hash──▶ shard: a lock, buckets, a ring of rows
//!                      bucket   a cache line: fingerprints and positions of 8 rows, which of them were read again,
//!                               and ghosts: fingerprints of 6 keys that were read and have no row
//!                      ring     rows in insertion order
//! ```
//!
//! # Admission and eviction
//! A key is admitted when it is read a second time while its bucket still has a ghost of it. A key that is read once
//! takes only two bytes of a cache line. If there is no room, the oldest row is evicted, unless it was read since its
//! insertion: then it is reinserted as the newest (the clock of S3-FIFO).
//!
//! # Validity of rows
//! The cache is independent of trees. Its user guarantees that a row is never older than the version of its key in the
//! sstables of its tree: see `store::newest_reads`.
//!
//! # Limits
//! Rows of more than an eighth of a shard and keys of more than 65,535 bytes are not cached.

mod ring;
mod shard;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use bolide_base::SequenceNumber;
use bolide_memory::{LARGE_PAGE_BYTES, MemoryPool, prefetch_line};
use parking_lot::Mutex;

use ring::{CachedRow, RowKey};
use shard::{Bucket, RowShard, SlotLookup, bucket_number};

/// The bytes of rows for each bucket.
const BYTES_PER_BUCKET: usize = 768;
/// The maximum number of shards.
const MAX_SHARDS: usize = 64;
/// A cache with fewer bytes is off.
const MIN_BYTES: usize = 4 << 10;

/// A key with its owner and its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashedKey<'k> {
    /// The [owner](RowCache::new_owner).
    pub(crate) owner: u32,
    /// The key.
    pub(crate) key: &'k [u8],
    /// The [`hash_key`](bolide_base::checksum::hash_key) of the key.
    pub(crate) hash: u64,
}

impl<'k> HashedKey<'k> {
    fn row_key(self) -> RowKey<'k> {
        RowKey {
            bucket_hash: bucket_hash(self.hash),
            fingerprint: fingerprint(self.hash),
            owner: self.owner,
            user_key: self.key,
        }
    }
}

/// The bits of a hash that select the bucket, as a fraction of 2³².
fn bucket_hash(hash: u64) -> u32 {
    hash as u32
}

/// The fingerprint of a hash. Never 0, which means no key.
fn fingerprint(hash: u64) -> u16 {
    ((hash >> 32) as u16).max(1)
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowLookup {
    /// The sequence number and the value of its row.
    Hit(SequenceNumber, Vec<u8>),
    /// No row that the reader can use.
    Miss {
        /// Whether the key was read before, so that the caller should insert a row.
        is_ghost: bool,
    },
}

/// Statistics of a row cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowCacheStats {
    /// Lookups with a row.
    pub hits: u64,
    /// Lookups without a row. Reads served by memtables are not lookups.
    pub misses: u64,
    /// Inserted rows.
    pub inserts: u64,
    /// Current rows.
    pub rows: u64,
    /// Bytes of rows and buckets.
    pub used_bytes: u64,
    /// The maximum bytes of rows and buckets.
    pub capacity_bytes: u64,
}

/// A cache of records by key, within a budget of bytes. Safe to share between threads.
pub(crate) struct RowCache {
    shards: Box<[LockedShard]>,
    buckets_each: usize,
    capacity_bytes: usize,
    owners: AtomicU32,
}

#[repr(align(64))]
struct LockedShard {
    shard: Mutex<RowShard>,
    /// The buckets of the shard, once allocated. Used only for prefetches.
    buckets: AtomicPtr<Bucket>,
}

impl RowCache {
    /// A cache of at most `bytes` bytes in the memory of `pool`; off with less than 4 KiB. Allocates memory on first use.
    pub(crate) fn new(bytes: usize, pool: Arc<MemoryPool>) -> Self {
        let buckets_all = bytes / (BYTES_PER_BUCKET + size_of::<Bucket>());
        let (shards, ring_bytes) = match buckets_all * BYTES_PER_BUCKET {
            _ if bytes < MIN_BYTES => (0, 0),
            rows if rows >= LARGE_PAGE_BYTES => {
                let shards = (rows / LARGE_PAGE_BYTES).min(MAX_SHARDS);
                (shards, rows / shards / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES)
            }
            rows => {
                let shards = (rows / (64 << 10)).clamp(1, 8);
                (shards, rows / shards)
            }
        };
        // Positions in a ring have 32 bits and count from 1.
        let ring_bytes = ring_bytes.min(1 << 31);
        let shard = || LockedShard {
            shard: Mutex::new(RowShard::new(ring_bytes, Arc::clone(&pool))),
            buckets: AtomicPtr::new(ptr::null_mut()),
        };
        let shards: Box<[LockedShard]> = (0..shards).map(|_| shard()).collect();
        let buckets_each = ring_bytes.div_ceil(BYTES_PER_BUCKET);
        Self { shards, buckets_each, capacity_bytes: bytes, owners: AtomicU32::new(1) }
    }

    /// Whether the cache is off: it never has rows.
    pub(crate) fn is_off(&self) -> bool {
        self.shards.is_empty()
    }

    /// A new owner number for a set of rows. Rows of an unused owner are evicted in time. `None` if all numbers are used.
    pub(crate) fn new_owner(&self) -> Option<u32> {
        self.owners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1)).ok()
    }

    #[inline]
    fn locked_shard(&self, hash: u64) -> Option<&LockedShard> {
        self.shards.get((((hash >> 48) * self.shards.len() as u64) >> 16) as usize)
    }

    /// Prefetches the bucket for this hash. No effect on results.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(locked_shard) = self.locked_shard(hash) {
            let buckets = locked_shard.buckets.load(Ordering::Relaxed);
            if !buckets.is_null() {
                prefetch_line(buckets.wrapping_add(bucket_number(bucket_hash(hash), self.buckets_each)));
            }
        }
    }

    /// The row of a key, if its sequence number is at most `max_sequence`. Records the request.
    #[inline]
    pub(crate) fn get(&self, key: HashedKey<'_>, max_sequence: SequenceNumber) -> RowLookup {
        let Some(locked_shard) = self.locked_shard(key.hash) else {
            return RowLookup::Miss { is_ghost: false };
        };
        let mut shard = locked_shard.shard.lock();
        if shard.is_unallocated() {
            locked_shard.buckets.store(shard.allocate_buckets(self.buckets_each), Ordering::Relaxed);
        }
        match shard.get(key.row_key()) {
            SlotLookup::Hit(row) if row.sequence <= max_sequence => {
                RowLookup::Hit(row.sequence, row.value.to_vec())
            }
            SlotLookup::Hit(_) => RowLookup::Miss { is_ghost: false },
            SlotLookup::Miss { is_ghost } => RowLookup::Miss { is_ghost },
        }
    }

    /// Records a request for the key of this hash that a memtable has served.
    #[inline]
    pub(crate) fn record_request(&self, hash: u64) {
        if let Some(locked_shard) = self.locked_shard(hash) {
            locked_shard.shard.lock().record_request(bucket_hash(hash), fingerprint(hash));
        }
    }

    /// Inserts a row if `is_current`, called under the lock of the shard, returns true. Replaces an older row of the key, but
    /// not a newer one.
    pub(crate) fn put(
        &self,
        key: HashedKey<'_>,
        sequence: SequenceNumber,
        value: &[u8],
        is_current: impl FnOnce() -> bool,
    ) {
        let Some(locked_shard) = self.locked_shard(key.hash) else { return };
        let mut shard = locked_shard.shard.lock();
        if is_current() {
            shard.put(CachedRow { key: key.row_key(), sequence, value });
        }
    }

    /// Updates the row of a key to a flushed version, or inserts one if the key was read recently. A `value` of `None` means
    /// a deleted key: removes the row. No effect if the version is older than the row.
    pub(crate) fn renew(&self, key: HashedKey<'_>, sequence: SequenceNumber, value: Option<&[u8]>) {
        if let Some(locked_shard) = self.locked_shard(key.hash) {
            locked_shard.shard.lock().renew(key.row_key(), sequence, value);
        }
    }

    /// Whether there was no lookup yet: there are no rows and no ghosts.
    pub(crate) fn is_untouched(&self) -> bool {
        self.shards.iter().all(|locked_shard| locked_shard.shard.lock().is_unallocated())
    }

    /// Statistics. Reads all buckets.
    pub(crate) fn stats(&self) -> RowCacheStats {
        let mut stats =
            RowCacheStats { capacity_bytes: self.capacity_bytes as u64, ..RowCacheStats::default() };
        for locked_shard in &self.shards {
            let shard = locked_shard.shard.lock();
            stats.hits += shard.hits;
            stats.misses += shard.misses;
            stats.inserts += shard.inserts;
            stats.rows += shard.rows() as u64;
            stats.used_bytes += shard.used_bytes() as u64;
        }
        stats
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowCache").field("stats", &self.stats()).finish()
    }
}
