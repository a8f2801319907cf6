//! The version table of a PS-Tree: which index entries are current (Perseid §4.3, made exact).
//!
//! Index writes are blind: an entry stays when its record is replaced or deleted. The version table holds the primary keys
//! that may have such obsolete entries, with their newest write. Validating a candidate takes one lookup in memory.
//! All entries of a key that is not in the table are current.
//!
//! ```text
//! write of a key   in the table           its newest write and its counts change
//!                  absent, written before the key is inserted: its older entries are obsolete now
//!                  absent, new            nothing; the novelty filter records the key
//! query            in the table           current if it is the newest write, else obsolete or too new for the view
//!                  absent                 current
//! entry flagged    the count of obsolete entries falls; at zero the key is removed
//! ```
//!
//! # Differences from the paper
//! * The paper has a durable table of every key and a volatile table of the keys with obsolete entries. Here the second
//!   table is durable: it lies in the region of the index and is part of the same checkpoint as its entries. A filter of a
//!   few bytes a key records which keys were written before. So a restart rebuilds nothing, and an insert touches one cache
//!   line per filter layer. With [`VersionTableOptions::every_key`] the table stores every key, as in the paper;
//!   `docs/performance/results.md` compares them.
//! * Counts cover entries that are not flagged. Only the thread that flags an entry lowers the count, once. (The paper
//!   lowers a count at each validation of the same obsolete entry.)
//! * A delete, and a write without the attribute, are writes with no entries: the entries of the previous write become
//!   obsolete.
//! * A count that is unknown is *inexact*: a key of an index over arrays that was not in the table. The key then stays
//!   until a [sweep](VersionTable::remove_through) has read all entries. Counts are never too low.
//! * One word of memory per bucket excludes most absent keys. It is volatile: see the module `presence`.
//! * Keys are identified by 128 bits of a hash with a seed per index: see [`hash_key_wide`].
//!
//! # The table of cases
//! | write of key k at S, before it | k is absent and new | k is absent, not new | k has (latest L, n entries, o obsolete) |
//! |---|---|---|---|
//! | put with m ≥ 1 entries | filter records k | (S, m, 1 or inexact) | (S, m, o + n) |
//! | put without the attribute, delete | nothing | (S, 0, 1 or inexact) | (S, 0, o + n) |
//! | further entry of the same write | nothing | entries + 1 | entries + 1 |
//! | same value again | as a put | as a put | as a put: the old entry is obsolete |
//! | obsolete entry flagged, or removed without a flag | — | — | o − 1; at o = 0 and exact k is removed |
//!
//! # Concurrency
//! One thread at a time notes writes, in the order of the log. Any thread reads verdicts, without locks, and any thread
//! notes flagged entries. Buckets are split and merged one at a time (linear hashing), so no write waits until a table is
//! rebuilt. Readers and writers pin the region: a bucket that is freed meanwhile is not reused.

mod bucket;
mod known_keys;
mod novelty_filter;
mod place_list;
mod presence;
mod recover;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
mod verdicts;

use std::sync::Arc;

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Error, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use crate::sync::{self, AtomicBool, AtomicU64, Mutex, Ordering};
use bucket::{BUCKET_BYTES, KeyState, LockedChain, SLOTS};
use known_keys::KnownKeys;
use place_list::PlaceList;
use presence::Presence;
pub use verdicts::{LocatedKey, TableStamp};

/// First root slot of the region that the table uses.
const FORMAT_SLOT: usize = 16;
const SEED_SLOT: usize = 17;
const BUCKETS_SLOT: usize = 18;
const KEYS_SLOT: usize = 19;
const SEGMENTS_SLOT: usize = 21;

/// "VerTab" in the format word, above version (1 byte) and options (1 byte).
const MAGIC: u64 = u64::from_le_bytes(*b"\0\0VerTab");
const FORMAT_VERSION: u64 = 1;
const EVERY_KEY: u64 = 1;
const MANY_ENTRIES: u64 = 2;
/// The novelty filter has two generations.
const GENERATIONS: u64 = 4;

/// Buckets of a segment; a segment is one allocation.
const SEGMENT_BUCKETS: usize = 32;
const SEGMENT_BYTES: usize = SEGMENT_BUCKETS * BUCKET_BYTES;
/// A table is split above this many keys per bucket, and merged below a third of it.
const FULL: u64 = SLOTS as u64 * 3 / 4;

/// Low bits of [`VersionTable::resize_state`] that hold the number of buckets.
const BUCKET_BITS: u32 = 40;

/// Options of a new table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionTableOptions {
    /// Stores every key, as the paper's durable table does, and has no novelty filter.
    pub every_key: bool,
    /// Whether there are writes with several entries; the first such write sets it.
    pub many_entries: bool,
    /// The seed of the hash of keys.
    pub seed: u64,
}

/// Size and content of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionTableStats {
    /// Keys in the table.
    pub keys: u64,
    /// Buckets, chained ones not counted.
    pub buckets: u64,
    /// Bytes of buckets.
    pub table_bytes: u64,
    /// Keys that were added to the novelty filter.
    pub known_keys: u64,
    /// Bytes of the filter.
    pub filter_bytes: u64,
}

/// See the [module](self).
///
/// ```
/// use std::sync::Arc;
/// use bolide_index::version_table::{VersionTable, VersionTableOptions};
/// use bolide_index::Verdict;
/// use bolide_storage::pmem::{Region, RegionOptions};
/// let region = Arc::new(Region::in_memory(RegionOptions::new())?);
/// let table = VersionTable::create(&region, VersionTableOptions::default())?;
/// let writer = region.writer();
/// table.note_entry(&writer, b"k", 5)?;
/// assert_eq!(table.verdict(b"k", 5, 9)?, Verdict::Current);
/// table.note_entry(&writer, b"k", 8)?;
/// assert_eq!(table.verdict(b"k", 5, 9)?, Verdict::Obsolete);
/// // A reader at 6 does not see the write at 8, and the table no longer knows what was before it.
/// assert_eq!(table.verdict(b"k", 5, 6)?, Verdict::Unknown);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct VersionTable {
    region: Arc<Region>,
    options: VersionTableOptions,
    /// Whether any write had several entries.
    many_entries: AtomicBool,
    segments: PlaceList,
    /// The novelty filter.
    known: KnownKeys,
    /// Number of buckets in the low bits, number of resizes above; see [`buckets_of`].
    resize_state: AtomicU64,
    keys: AtomicU64,
    /// Which buckets may contain a key.
    presence: Presence,
    /// Locked while the number of buckets changes.
    resizing: Mutex<()>,
    /// Number of keys removed since the table was opened.
    removals: AtomicU64,
    /// The hash and the write of the last noted entry, if its key was new.
    newest: Mutex<Option<(u128, SequenceNumber)>>,
    /// The last noted entry.
    noted_through: AtomicU64,
}

impl VersionTable {
    /// Creates an empty table in `region`, which has none.
    ///
    /// # Errors
    /// `NoSpace` at the limit of the region.
    pub fn create(region: &Arc<Region>, options: VersionTableOptions) -> Result<Self> {
        let writer = region.writer();
        let mut format = MAGIC | FORMAT_VERSION << 8;
        format |= if options.every_key { EVERY_KEY } else { 0 };
        format |= if options.many_entries { MANY_ENTRIES } else { 0 };
        writer.set_root(SEED_SLOT, options.seed)?;
        writer.set_root(BUCKETS_SLOT, 0)?;
        writer.set_root(FORMAT_SLOT, format)?;
        drop(writer);
        Self::open(region)
    }

    /// Opens the table in `region`.
    ///
    /// # Errors
    /// `Corruption` if there is none; `Unsupported` for one of another format.
    pub fn open(region: &Arc<Region>) -> Result<Self> {
        let format = region.root(FORMAT_SLOT)?;
        if format & !0xffff != MAGIC {
            return Err(Error::corruption(region.name(), 0, "the region holds no version table"));
        }
        let (version, unknown) =
            (format >> 8 & 0xff, format & 0xff & !(EVERY_KEY | MANY_ENTRIES | GENERATIONS));
        if version != FORMAT_VERSION {
            let what =
                format!("format version {version} of the version table; this program reads {FORMAT_VERSION}");
            return Err(Error::unsupported(region.name(), what));
        }
        if unknown != 0 {
            let what =
                format!("the version table needs options {unknown:#x}, which this program does not support");
            return Err(Error::unsupported(region.name(), what));
        }
        let options = VersionTableOptions {
            every_key: format & EVERY_KEY != 0,
            many_entries: format & MANY_ENTRIES != 0,
            seed: region.root(SEED_SLOT)?,
        };
        let segments = PlaceList::open(region, SEGMENTS_SLOT)?;
        let buckets = region.root(BUCKETS_SLOT)?;
        if ((segments.len() * SEGMENT_BUCKETS) as u64) < buckets {
            return Err(Error::corruption(region.name(), 0, "the version table lacks buckets"));
        }
        let table = Self {
            many_entries: AtomicBool::new(options.many_entries),
            options,
            segments,
            known: KnownKeys::open(region)?,
            resize_state: AtomicU64::new(buckets),
            keys: AtomicU64::new(region.root(KEYS_SLOT)?),
            resizing: Mutex::new(()),
            removals: AtomicU64::new(0),
            newest: Mutex::new(None),
            noted_through: AtomicU64::new(0),
            presence: Presence::new(),
            region: region.clone(),
        };
        for bucket in 0..buckets {
            let bits = bucket::presence_of(region, table.bucket_place(bucket));
            table.presence.word(bucket)?.store(bits, Ordering::Release);
        }
        Ok(table)
    }

    /// The options, with what later writes set.
    pub fn options(&self) -> VersionTableOptions {
        VersionTableOptions { many_entries: self.many_entries.load(Ordering::Acquire), ..self.options }
    }

    /// Notes an entry of the write of `key` at `sequence`. Writes arrive in the order of the log, the entries of one write
    /// consecutively.
    ///
    /// # Errors
    /// `NoSpace` at the limit of the region; `Corruption`.
    pub fn note_entry(&self, writer: &RegionWriter<'_>, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let _pin = self.region.pin();
        let hash = hash_key_wide(self.options.seed, key);
        let mut is_same_write = false;
        let note = |state: &mut KeyState| {
            is_same_write = state.latest == sequence && state.entries > 0;
            state.note_write(sequence, 1);
        };
        self.noted_through.store(sequence, Ordering::Relaxed);
        if self.change(writer, hash, note)? {
            if is_same_write {
                self.note_many_entries(writer)?;
            }
            if self.known.is_divided() {
                self.known.add(writer, hash)?;
            }
        } else {
            if *self.newest.lock() == Some((hash, sequence)) {
                return self.note_many_entries(writer);
            }
            if self.options.every_key || self.known.add(writer, hash)? {
                *self.newest.lock() = Some((hash, sequence));
                if !self.options.every_key {
                    return Ok(());
                }
            }
            self.insert(writer, hash, sequence, 1)?;
        }
        Ok(())
    }

    /// Notes a write of `key` at `sequence` that has no entries: a delete, or a record without the attribute.
    ///
    /// # Errors
    /// As [`note_entry`](Self::note_entry).
    pub fn note_absence(
        &self,
        writer: &RegionWriter<'_>,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let _pin = self.region.pin();
        let hash = hash_key_wide(self.options.seed, key);
        if !self.change(writer, hash, |state| state.note_write(sequence, 0))?
            && !self.options.every_key
            && self.known.contains(&self.region, hash)?
        {
            self.insert(writer, hash, sequence, 0)?;
        }
        Ok(())
    }

    /// Notes that an obsolete entry of `key` was flagged, or removed without a flag. Called once, by the thread that did it.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn note_flagged(&self, writer: &RegionWriter<'_>, key: &[u8]) -> Result<()> {
        let _pin = self.region.pin();
        let hash = hash_key_wide(self.options.seed, key);
        self.change(writer, hash, KeyState::decrement_obsolete)?;
        self.shrink_once(writer).map(drop)
    }

    /// Removes all keys whose newest write is at or below `floor`, with their counts. Precondition: every obsolete entry of a
    /// write at or below it is flagged or removed, by a sweep over all entries after the last write of the keys.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn remove_through(&self, writer: &RegionWriter<'_>, floor: SequenceNumber) -> Result<()> {
        if self.options.every_key {
            return Ok(());
        }
        let _pin = self.region.pin();
        let mut bucket = 0;
        while bucket < self.bucket_count() {
            let chain = self.lock(writer, bucket)?;
            for (place, _, state) in chain.all()? {
                if state.latest <= floor {
                    // Before the key is removed: see `removals`.
                    self.removals.fetch_add(1, Ordering::AcqRel);
                    chain.remove(place)?;
                    self.count_keys(writer, -1)?;
                }
            }
            drop(chain);
            bucket += 1;
        }
        while self.shrink_once(writer)? {}
        Ok(())
    }

    /// Forgets keys without entries above `cut` in the novelty filter, by generations: entries at or below it are not
    /// validated by this table. All noted writes are at or below `through`, or were noted since the table was opened. `writer` is the
    /// only one of the region.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn forget_known_keys(
        &self,
        writer: &RegionWriter<'_>,
        cut: SequenceNumber,
        through: SequenceNumber,
    ) -> Result<()> {
        if self.options.every_key {
            return Ok(());
        }
        writer.set_root(FORMAT_SLOT, self.region.root(FORMAT_SLOT)? | GENERATIONS)?;
        let through = through.max(self.noted_through.load(Ordering::Acquire));
        self.known.divide(writer, cut, through)
    }

    /// Returns size and content.
    pub fn stats(&self) -> VersionTableStats {
        VersionTableStats {
            keys: self.keys.load(Ordering::Acquire),
            buckets: self.bucket_count(),
            table_bytes: (self.segments.len() * SEGMENT_BYTES) as u64,
            known_keys: self.known.keys(),
            filter_bytes: self.known.bytes(),
        }
    }

    /// Calls `visit` with place and size in bytes of every allocation of the table.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn visit_allocations(&self, visit: &mut dyn FnMut(Place, usize)) -> Result<()> {
        self.segments.visit_allocations(visit);
        self.known.visit_allocations(visit);
        (0..self.segments.len()).for_each(|index| visit(self.segments.get(index), SEGMENT_BYTES));
        for bucket in 0..self.bucket_count() {
            bucket::each_chained(&self.region, self.bucket_place(bucket), |place| {
                visit(place, BUCKET_BYTES)
            })?;
        }
        Ok(())
    }
}

/// The number of buckets in a [`VersionTable::resize_state`]: a power of two, plus those of it that were split. The bits
/// above count the resizes, which distinguishes an unchanged number from one that changed and changed back.
#[inline]
fn buckets_of(resize_state: u64) -> u64 {
    resize_state & ((1 << BUCKET_BITS) - 1)
}

/// Buckets.
impl VersionTable {
    #[inline]
    fn bucket_count(&self) -> u64 {
        buckets_of(self.resize_state.load(Ordering::Acquire))
    }

    #[inline]
    fn bucket_place(&self, bucket: u64) -> Place {
        let segment = self.segments.get(bucket as usize / SEGMENT_BUCKETS);
        segment + (bucket as usize % SEGMENT_BUCKETS * BUCKET_BYTES) as Place
    }

    /// The bucket of a key in a table of `buckets` buckets.
    fn bucket_of(hash: u128, buckets: u64) -> u64 {
        let mask = u64::MAX >> buckets.leading_zeros();
        let bucket = hash as u64 & mask;
        if bucket < buckets { bucket } else { bucket & mask >> 1 }
    }

    /// Locks an existing bucket.
    fn lock<'w, 'r>(&'w self, writer: &'w RegionWriter<'r>, bucket: u64) -> Result<LockedChain<'w, 'r>> {
        let (first, presence) = (self.bucket_place(bucket), self.presence.word(bucket)?);
        let mut spins = 0;
        loop {
            if let Some(chain) = LockedChain::lock(writer, first, presence)? {
                return Ok(chain);
            }
            sync::wait(&mut spins);
        }
    }

    /// Locks the bucket of a key; `None` while there is no bucket.
    fn lock_of<'w, 'r>(
        &'w self,
        writer: &'w RegionWriter<'r>,
        hash: u128,
    ) -> Result<Option<LockedChain<'w, 'r>>> {
        loop {
            let buckets = self.bucket_count();
            if buckets == 0 {
                return Ok(None);
            }
            let chain = self.lock(writer, Self::bucket_of(hash, buckets))?;
            if self.bucket_count() == buckets {
                return Ok(Some(chain));
            }
        }
    }

    /// Changes the state of a key, and removes the key if all its entries are current. False if the key is absent.
    fn change(
        &self,
        writer: &RegionWriter<'_>,
        hash: u128,
        change: impl FnOnce(&mut KeyState),
    ) -> Result<bool> {
        let Some(chain) = self.lock_of(writer, hash)? else { return Ok(false) };
        let Some((place, mut state)) = chain.find(hash)? else { return Ok(false) };
        change(&mut state);
        if state.is_clean() && !self.options.every_key {
            // Before the key is removed: see `removals`.
            self.removals.fetch_add(1, Ordering::AcqRel);
            chain.remove(place)?;
            self.count_keys(writer, -1)?;
        } else {
            chain.set(place, state)?;
        }
        Ok(true)
    }

    /// Inserts a key that was written before, with its write at `sequence` of `entries` entries.
    fn insert(
        &self,
        writer: &RegionWriter<'_>,
        hash: u128,
        sequence: SequenceNumber,
        entries: u32,
    ) -> Result<()> {
        let is_new = self.options.every_key;
        let state = KeyState {
            latest: sequence,
            entries,
            // All entries of an absent key are current; with one entry per write there is at most one.
            obsolete: u32::from(!is_new),
            inexact: self.many_entries.load(Ordering::Acquire) && !is_new,
        };
        self.grow(writer)?;
        let chain = self.lock_of(writer, hash)?;
        let chain = chain.ok_or_else(|| Error::internal("a version table without buckets"))?;
        chain.insert(hash, state)?;
        drop(chain);
        self.count_keys(writer, 1)
    }

    /// Notes that a write may have several entries.
    fn note_many_entries(&self, writer: &RegionWriter<'_>) -> Result<()> {
        if self.many_entries.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        writer.set_root(FORMAT_SLOT, self.region.root(FORMAT_SLOT)? | MANY_ENTRIES)
    }

    fn count_keys(&self, writer: &RegionWriter<'_>, change: i64) -> Result<()> {
        let before = self.keys.fetch_add(change as u64, Ordering::AcqRel);
        writer.set_root(KEYS_SLOT, before.wrapping_add(change as u64))
    }

    fn set_bucket_count(&self, writer: &RegionWriter<'_>, buckets: u64) -> Result<()> {
        // Moved keys are durable before the number of buckets, and that number before the keys leave their old bucket.
        writer.fence();
        writer.set_root(BUCKETS_SLOT, buckets)?;
        writer.fence();
        let resizes = (self.resize_state.load(Ordering::Relaxed) >> BUCKET_BITS).wrapping_add(1);
        self.resize_state.store(resizes << BUCKET_BITS | buckets, Ordering::Release);
        Ok(())
    }

    /// Adds a bucket if the others are full. It takes its keys from the bucket that it splits.
    fn grow(&self, writer: &RegionWriter<'_>) -> Result<()> {
        if self.keys.load(Ordering::Acquire) < FULL * self.bucket_count() {
            return Ok(());
        }
        let _resizing = self.resizing.lock();
        let buckets = self.bucket_count();
        if buckets as usize == self.segments.len() * SEGMENT_BUCKETS {
            self.segments.push(writer, writer.allocate(SEGMENT_BYTES)?)?;
        }
        if buckets == 0 {
            return self.set_bucket_count(writer, 1);
        }
        let from = buckets ^ 1 << buckets.ilog2();
        let source = self.lock(writer, from)?;
        let target = self.lock(writer, buckets)?;
        // A power cut may have left keys there.
        target.clear()?;
        let moving = |(_, hash, _): &(_, u128, _)| Self::bucket_of(*hash, buckets + 1) == buckets;
        let moving: Vec<_> = source.all()?.into_iter().filter(moving).collect();
        for (_, hash, state) in &moving {
            target.insert(*hash, *state)?;
        }
        self.set_bucket_count(writer, buckets + 1)?;
        moving.iter().try_for_each(|(place, ..)| source.remove(*place))?;
        source.compact()
    }

    /// Removes the last bucket if the others have room for its keys.
    fn shrink_once(&self, writer: &RegionWriter<'_>) -> Result<bool> {
        let is_sparse = |buckets: u64| {
            buckets > SEGMENT_BUCKETS as u64 && self.keys.load(Ordering::Acquire) < FULL * buckets / 3
        };
        if !is_sparse(self.bucket_count()) {
            return Ok(false);
        }
        let Some(_resizing) = self.resizing.try_lock() else { return Ok(false) };
        let buckets = self.bucket_count();
        if !is_sparse(buckets) {
            return Ok(false);
        }
        let last = buckets - 1;
        let target = self.lock(writer, last ^ 1 << last.ilog2())?;
        let source = self.lock(writer, last)?;
        for (_, hash, state) in source.all()? {
            if target.find(hash)?.is_none() {
                target.insert(hash, state)?;
            }
        }
        self.set_bucket_count(writer, last)?;
        source.clear()?;
        drop(source);
        if (last as usize).is_multiple_of(SEGMENT_BUCKETS)
            && let Some(place) = self.segments.pop(writer)?
        {
            writer.free(place, SEGMENT_BYTES);
        }
        Ok(true)
    }
}
