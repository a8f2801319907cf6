//! A cache of rows: records that were asked for by their key more than once.
//!
//! A get that goes to sstables waits for memory some seven times, one after the other, although each block is cached. Where
//! some keys are asked for far more often than others, as in YCSB's workloads, most of them are found here, with two waits.
//! Rows also take less memory than their blocks, where hot keys lie all over the key space.
//!
//! ```text
//! RowCache ──hash──▶ shard: a lock, buckets, a ring of rows
//!                      bucket   a cache line: marks of 8 rows and where they lie, which of them were asked for again,
//!                               and marks of 6 keys that were asked for and have no row
//!                      ring     rows in the order in which they came
//! ```
//!
//! # What comes in, and what leaves
//! A key becomes a row when it is asked for a second time while its bucket still has a note of the first: what is asked for
//! once, of millions of keys, takes two bytes of a cache line and nothing else. The oldest row leaves when
//! there is no room, unless it was asked for since it came: then it goes to the end once more (the clock of S3-FIFO and of
//! others).
//!
//! # What a row says
//! The cache knows nothing of trees. Who uses it sees to it that a row is never older than what the sstables of its tree have
//! for its key: see `store::newest_reads`.
//!
//! # Limits
//! Rows of more than an eighth of a shard, or keys of more than 65,535 bytes, are not kept.

mod ring;
mod shard;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use bolide_base::SequenceNumber;
use bolide_storage::LARGE_PAGE_BYTES;
use parking_lot::Mutex;

use crate::memtable::prefetch;
use ring::{Row, RowKey};
use shard::{Bucket, Found, Shard, bucket_number};

/// Bytes of rows for which there is a bucket.
const BYTES_PER_BUCKET: usize = 768;
/// Most shards.
const MAX_SHARDS: usize = 64;
/// Caches of fewer bytes keep nothing.
const MIN_BYTES: usize = 4 << 10;

/// A key, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyOf<'k> {
    /// The [owner](RowCache::new_owner).
    pub(crate) owner: u32,
    /// The key.
    pub(crate) key: &'k [u8],
    /// [`hash_key`](bolide_base::checksum::hash_key) of it.
    pub(crate) hash: u64,
}

impl<'k> KeyOf<'k> {
    fn found_by(self) -> RowKey<'k> {
        RowKey { place: place_of(self.hash), mark: mark_of(self.hash), owner: self.owner, key: self.key }
    }
}

/// Which bucket, as a part of 2³².
fn place_of(hash: u64) -> u32 {
    hash as u32
}

/// Never 0, which stands for no key.
fn mark_of(hash: u64) -> u16 {
    ((hash >> 32) as u16).max(1)
}

/// What the cache says about a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The sequence number and the value of its row.
    Row(SequenceNumber, Vec<u8>),
    /// It has none.
    No {
        /// It was asked for before, so it is worth a row.
        is_noted: bool,
    },
}

/// How a row cache is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowCacheStats {
    /// Questions for a row that was there.
    pub hits: u64,
    /// Questions for a row that was not there; answers out of memtables are no questions.
    pub misses: u64,
    /// Rows that came in.
    pub inserts: u64,
    /// Rows that are in.
    pub rows: u64,
    /// Bytes that they take.
    pub used_bytes: u64,
    /// Most bytes that rows, and what leads to them, may take.
    pub capacity_bytes: u64,
}

/// Records that were asked for by their key more than once, within a budget of bytes. Safe to share between threads.
pub(crate) struct RowCache {
    shards: Box<[Guarded]>,
    buckets_each: usize,
    capacity_bytes: usize,
    owners: AtomicU32,
}

#[repr(align(64))]
struct Guarded {
    shard: Mutex<Shard>,
    /// The buckets of the shard once there are any, to be asked for ahead, and for nothing else.
    buckets: AtomicPtr<Bucket>,
}

impl RowCache {
    /// A cache of at most `bytes` bytes. With less than 4 KiB it keeps nothing. Memory is taken as rows come in.
    pub(crate) fn new(bytes: usize) -> Self {
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
        // Places in a ring have 32 bits, and count from 1.
        let ring_bytes = ring_bytes.min(1 << 31);
        let shard = || Guarded {
            shard: Mutex::new(Shard::new(ring_bytes)),
            buckets: AtomicPtr::new(ptr::null_mut()),
        };
        let shards: Box<[Guarded]> = (0..shards).map(|_| shard()).collect();
        let buckets_each = ring_bytes.div_ceil(BYTES_PER_BUCKET);
        Self { shards, buckets_each, capacity_bytes: bytes, owners: AtomicU32::new(1) }
    }

    /// True if it keeps nothing, ever.
    pub(crate) fn is_off(&self) -> bool {
        self.shards.is_empty()
    }

    /// A number for rows that belong together. Rows of a number that nobody uses any more leave in time. `None` where there
    /// are no more numbers.
    pub(crate) fn new_owner(&self) -> Option<u32> {
        self.owners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1)).ok()
    }

    #[inline]
    fn guarded(&self, hash: u64) -> Option<&Guarded> {
        self.shards.get((((hash >> 48) * self.shards.len() as u64) >> 16) as usize)
    }

    /// Asks the processor for what a question for the key of this hash begins with. Purely a hint.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(guarded) = self.guarded(hash) {
            let buckets = guarded.buckets.load(Ordering::Relaxed);
            if !buckets.is_null() {
                prefetch(buckets.wrapping_add(bucket_number(place_of(hash), self.buckets_each)), 1);
            }
        }
    }

    /// The row of a key if it has a sequence number of at most `at_most`. That it was asked for is noted.
    #[inline]
    pub(crate) fn ask(&self, key: KeyOf<'_>, at_most: SequenceNumber) -> Answer {
        let Some(guarded) = self.guarded(key.hash) else { return Answer::No { is_noted: false } };
        let mut shard = guarded.shard.lock();
        if shard.is_unprepared() {
            guarded.buckets.store(shard.prepare(self.buckets_each), Ordering::Relaxed);
        }
        match shard.ask(key.found_by()) {
            Found::Row(row) if row.sequence <= at_most => Answer::Row(row.sequence, row.value.to_vec()),
            Found::Row(_) => Answer::No { is_noted: false },
            Found::No { is_noted } => Answer::No { is_noted },
        }
    }

    /// Notes that the key of this hash was asked for, where something else answered.
    #[inline]
    pub(crate) fn note(&self, hash: u64) {
        if let Some(guarded) = self.guarded(hash) {
            guarded.shard.lock().note(place_of(hash), mark_of(hash));
        }
    }

    /// Adds a row, unless `is_current` says, under the lock of the key's rows, that it is no longer right. An older row of
    /// the key gives way, a newer one stays.
    pub(crate) fn put(
        &self,
        key: KeyOf<'_>,
        sequence: SequenceNumber,
        value: &[u8],
        is_current: impl FnOnce() -> bool,
    ) {
        let Some(guarded) = self.guarded(key.hash) else { return };
        let mut shard = guarded.shard.lock();
        if is_current() {
            shard.put(Row { found_by: key.found_by(), sequence, value });
        }
    }

    /// Puts a newer version into the row of its key, or makes a row of it if the key was asked for lately; `None` for a value:
    /// the key is deleted. Older than the row it changes nothing.
    pub(crate) fn renew(&self, key: KeyOf<'_>, sequence: SequenceNumber, value: Option<&[u8]>) {
        if let Some(guarded) = self.guarded(key.hash) {
            guarded.shard.lock().renew(key.found_by(), sequence, value);
        }
    }

    /// True before the first question: no key has a row, and none is noted.
    pub(crate) fn is_untouched(&self) -> bool {
        self.shards.iter().all(|guarded| guarded.shard.lock().is_unprepared())
    }

    /// How it is doing. Looks at each bucket.
    pub(crate) fn stats(&self) -> RowCacheStats {
        let mut stats =
            RowCacheStats { capacity_bytes: self.capacity_bytes as u64, ..RowCacheStats::default() };
        for guarded in &self.shards {
            let shard = guarded.shard.lock();
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
