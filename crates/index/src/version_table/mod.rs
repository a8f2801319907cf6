//! The version table of a PS-Tree: which entries are current (Perseid §4.3, made exact).
//!
//! Writes to an index are blind: an entry stays when its record is replaced or deleted. The version table knows the
//! primary keys that may have such obsolete entries, and their newest write, so that a candidate is validated by
//! one look into memory. It knows nothing of all other keys: every entry of theirs is current.
//!
//! ```text
//! write of a key   in the table        its newest write and its counts change
//!                  not, but not new    it comes into the table: its older entries are obsolete now
//!                  not, and new        nothing: the filter of novelty remembers it
//! question         in the table        current if it is the newest write; obsolete, or too new to tell, else
//!                  not                 current
//! entry flagged    the count of obsolete entries falls; at none the key leaves the table
//! ```
//!
//! # What differs from the paper, and why
//! * The paper keeps a durable table of every key and a volatile one of the keys with obsolete entries. Here the second
//!   one is durable, in the region of the index and in the same cut as its entries, and whether a key is new is told
//!   by a filter of a few bytes a key. So nothing is rebuilt after a restart, and an insert
//!   touches one cache line for each layer of the filter. [`VersionTableOptions::every_key`] keeps every key, as the paper
//!   does; `docs/PERFORMANCE.md` compares them.
//! * Counts are of entries that are not flagged, so only the one who flags an entry lowers them, once. (The paper lowers
//!   a count at each validation of the same obsolete entry.)
//! * A delete, and a write without the attribute, are writes with no entries: the entries of the write before become
//!   obsolete.
//! * Where a count is not known (a key of an index over arrays that was not in the table) it is *inexact*: the key stays
//!   until a [sweep](VersionTable::forget_through) has looked at all entries. Errors are upward only.
//! * Most keys that are not there are known not to be from a word of memory for each bucket, which is not durable: see
//!   the module `presence`.
//! * Keys are told apart by 128 bits of a hash with a seed of the index's own: see [`hash_key_wide`].
//!
//! # The table of cases
//! | write of key k at S, before it | k is unknown and new | k is unknown, not new | k has (latest L, n entries, o obsolete) |
//! |---|---|---|---|
//! | put with m ≥ 1 entries | filter knows k | (S, m, 1 or inexact) | (S, m, o + n) |
//! | put without the attribute, delete | nothing | (S, 0, 1 or inexact) | (S, 0, o + n) |
//! | further entry of the same write | nothing | entries + 1 | entries + 1 |
//! | same value again | as a put | as a put | as a put: the old entry is obsolete |
//! | obsolete entry flagged, or removed without a flag | — | — | o − 1; at o = 0 and exact k is forgotten |
//!
//! # Concurrency
//! One thread at a time notes writes, in the order of the log. Any thread asks, without locks, and any thread tells
//! of flagged entries. Buckets are split and merged one at a time (linear hashing), so no write waits for a table
//! to be rebuilt. Who asks or writes has the region pinned: a bucket that goes meanwhile is not in other hands.

mod bucket;
mod judge;
mod known;
mod novelty;
mod place_list;
mod presence;
mod recover;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;

use std::sync::Arc;

use bolide_base::checksum::hash_key_wide;
use bolide_base::{Error, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use crate::sync::{self, AtomicBool, AtomicU64, Mutex, Ordering};
use bucket::{BUCKET_BYTES, LockedChain, Record, SLOTS};
pub use judge::{ExpectedKey, TableMoment};
use novelty::PIECE_BYTES;
use place_list::PlaceList;
use presence::Presence;

/// Root slots of the region that the table uses, from this one on.
const FORMAT_SLOT: usize = 16;
const SEED_SLOT: usize = 17;
const BUCKETS_SLOT: usize = 18;
const KEYS_SLOT: usize = 19;
const KNOWN_SLOT: usize = 20;
const SEGMENTS_SLOT: usize = 21;
const PIECES_SLOT: usize = 23;

/// "VerTab" in the format word, above version (1 byte) and options (1 byte).
const MAGIC: u64 = u64::from_le_bytes(*b"\0\0VerTab");
const FORMAT_VERSION: u64 = 1;
const EVERY_KEY: u64 = 1;
const MANY_ENTRIES: u64 = 2;

/// Buckets of a segment, which is one allocation.
const SEGMENT_BUCKETS: usize = 32;
const SEGMENT_BYTES: usize = SEGMENT_BUCKETS * BUCKET_BYTES;
/// A table is split above this many keys a bucket, and merged below a third of them.
const FULL: u64 = SLOTS as u64 * 3 / 4;

/// Bits of a table's shape that are the number of its buckets.
const BUCKET_BITS: u32 = 40;

/// How a table is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionTableOptions {
    /// Keeps every key, as the paper's durable table does, and has no filter of novelty.
    pub every_key: bool,
    /// Whether there are writes with several entries: it is set by the first one.
    pub many_entries: bool,
    /// The seed of the hash of keys.
    pub seed: u64,
}

/// What a table takes and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionTableStats {
    /// Keys in the table.
    pub keys: u64,
    /// Buckets, chained ones not counted.
    pub buckets: u64,
    /// Bytes of buckets.
    pub table_bytes: u64,
    /// Keys that the filter of novelty was told of.
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
    /// Whether a write had several entries.
    many_entries: AtomicBool,
    segments: PlaceList,
    pieces: PlaceList,
    /// Buckets in use, below how often that number changed; see [`buckets_of`].
    shape: AtomicU64,
    keys: AtomicU64,
    /// Keys that the filter was told of.
    known: AtomicU64,
    /// Which buckets may have a key.
    presence: Presence,
    /// Held while the number of buckets changes.
    resizing: Mutex<()>,
    /// How often a key was forgotten.
    departures: AtomicU64,
    /// The hash and the write of the entry noted last, if its key was new.
    newest: Mutex<Option<(u128, SequenceNumber)>>,
}

impl VersionTable {
    /// An empty table in `region`, which has none.
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

    /// The table that `region` has.
    ///
    /// # Errors
    /// `Corruption` if there is none; `Unsupported` for one of a newer version.
    pub fn open(region: &Arc<Region>) -> Result<Self> {
        let format = region.root(FORMAT_SLOT)?;
        if format & !0xffff != MAGIC {
            return Err(Error::corruption(region.name(), 0, "the region holds no version table"));
        }
        if format >> 8 & 0xff != FORMAT_VERSION || format & 0xff & !(EVERY_KEY | MANY_ENTRIES) != 0 {
            return Err(Error::unsupported(region.name(), "a version table of a newer version"));
        }
        let options = VersionTableOptions {
            every_key: format & EVERY_KEY != 0,
            many_entries: format & MANY_ENTRIES != 0,
            seed: region.root(SEED_SLOT)?,
        };
        let segments = PlaceList::open(region, SEGMENTS_SLOT)?;
        let pieces = PlaceList::open(region, PIECES_SLOT)?;
        let buckets = region.root(BUCKETS_SLOT)?;
        if ((segments.len() * SEGMENT_BUCKETS) as u64) < buckets {
            return Err(Error::corruption(region.name(), 0, "the version table lacks buckets"));
        }
        let table = Self {
            many_entries: AtomicBool::new(options.many_entries),
            options,
            segments,
            pieces,
            shape: AtomicU64::new(buckets),
            keys: AtomicU64::new(region.root(KEYS_SLOT)?),
            known: AtomicU64::new(region.root(KNOWN_SLOT)?),
            resizing: Mutex::new(()),
            departures: AtomicU64::new(0),
            newest: Mutex::new(None),
            presence: Presence::new(),
            region: region.clone(),
        };
        for bucket in 0..buckets {
            let bits = bucket::presence_of(region, table.bucket_place(bucket));
            table.presence.word(bucket)?.store(bits, Ordering::Release);
        }
        Ok(table)
    }

    /// How it was made, and what it has met since.
    pub fn options(&self) -> VersionTableOptions {
        VersionTableOptions { many_entries: self.many_entries.load(Ordering::Acquire), ..self.options }
    }

    /// Notes an entry of the write of `key` at `sequence`. Writes come in the order of the log, the entries of one
    /// write one after the other.
    ///
    /// # Errors
    /// `NoSpace` at the limit of the region; `Corruption`.
    pub fn note_entry(&self, writer: &RegionWriter<'_>, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let _pin = self.region.pin();
        let hash = hash_key_wide(self.options.seed, key);
        let mut is_further = false;
        let note = |record: &mut Record| {
            is_further = record.latest == sequence && record.entries > 0;
            record.note(sequence, 1);
        };
        if self.change(writer, hash, note)? {
            if is_further {
                self.note_many(writer)?;
            }
        } else {
            if *self.newest.lock() == Some((hash, sequence)) {
                return self.note_many(writer);
            }
            if self.learn(writer, hash)? {
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
        if !self.change(writer, hash, |record| record.note(sequence, 0))? && self.is_known(hash)? {
            self.insert(writer, hash, sequence, 0)?;
        }
        Ok(())
    }

    /// Takes note that an obsolete entry of `key` was flagged, or was removed without a flag: by the one who did it.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn note_flagged(&self, writer: &RegionWriter<'_>, key: &[u8]) -> Result<()> {
        let _pin = self.region.pin();
        let hash = hash_key_wide(self.options.seed, key);
        self.change(writer, hash, Record::lower)?;
        self.shrink_once(writer).map(drop)
    }

    /// Forgets all keys whose newest write is at or below `floor`, with their counts: every obsolete entry of a write at
    /// or below it has been flagged or removed, by somebody who looked at all entries after the last write of the
    /// keys.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn forget_through(&self, writer: &RegionWriter<'_>, floor: SequenceNumber) -> Result<()> {
        if self.options.every_key {
            return Ok(());
        }
        let _pin = self.region.pin();
        let mut bucket = 0;
        while bucket < self.bucket_count() {
            let chain = self.lock(writer, bucket)?;
            for (place, _, record) in chain.all()? {
                if record.latest <= floor {
                    // Before the key goes: see `departures`.
                    self.departures.fetch_add(1, Ordering::AcqRel);
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

    /// What it takes and holds.
    pub fn stats(&self) -> VersionTableStats {
        VersionTableStats {
            keys: self.keys.load(Ordering::Acquire),
            buckets: self.bucket_count(),
            table_bytes: (self.segments.len() * SEGMENT_BYTES) as u64,
            known_keys: self.known.load(Ordering::Acquire),
            filter_bytes: (self.pieces.len() * PIECE_BYTES) as u64,
        }
    }

    /// Calls `visit` with the place and the size of every allocation of the table.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn reach(&self, visit: &mut dyn FnMut(Place, usize)) -> Result<()> {
        self.segments.reach(visit);
        self.pieces.reach(visit);
        (0..self.segments.len()).for_each(|index| visit(self.segments.get(index), SEGMENT_BYTES));
        (0..self.pieces.len()).for_each(|index| visit(self.pieces.get(index), PIECE_BYTES));
        for bucket in 0..self.bucket_count() {
            bucket::each_chained(&self.region, self.bucket_place(bucket), |place| {
                visit(place, BUCKET_BYTES)
            })?;
        }
        Ok(())
    }
}

/// The number of buckets in a word of a table's shape: a power of two, and those of it that were split already. The bits
/// above count the changes, so a number that came back is told from one that stayed.
#[inline]
fn buckets_of(shape: u64) -> u64 {
    shape & ((1 << BUCKET_BITS) - 1)
}

/// Buckets.
impl VersionTable {
    #[inline]
    fn bucket_count(&self) -> u64 {
        buckets_of(self.shape.load(Ordering::Acquire))
    }

    #[inline]
    fn bucket_place(&self, bucket: u64) -> Place {
        let segment = self.segments.get(bucket as usize / SEGMENT_BUCKETS);
        segment + (bucket as usize % SEGMENT_BUCKETS * BUCKET_BYTES) as Place
    }

    /// The bucket of a key among `buckets`.
    fn bucket_of(hash: u128, buckets: u64) -> u64 {
        let mask = u64::MAX >> buckets.leading_zeros();
        let bucket = hash as u64 & mask;
        if bucket < buckets { bucket } else { bucket & mask >> 1 }
    }

    /// Locks a bucket that exists.
    fn lock<'w, 'r>(&'w self, writer: &'w RegionWriter<'r>, bucket: u64) -> Result<LockedChain<'w, 'r>> {
        let (first, presence) = (self.bucket_place(bucket), self.presence.word(bucket)?);
        let mut turns = 0;
        loop {
            if let Some(chain) = LockedChain::lock(writer, first, presence)? {
                return Ok(chain);
            }
            sync::wait(&mut turns);
        }
    }

    /// Locks the bucket of a key; `None` while there is no bucket at all.
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

    /// Changes what is known of a key, and forgets it if nothing need be known; false if it is not there.
    fn change(
        &self,
        writer: &RegionWriter<'_>,
        hash: u128,
        change: impl FnOnce(&mut Record),
    ) -> Result<bool> {
        let Some(chain) = self.lock_of(writer, hash)? else { return Ok(false) };
        let Some((place, mut record)) = chain.find(hash)? else { return Ok(false) };
        change(&mut record);
        if record.is_settled() && !self.options.every_key {
            // Before the key goes: see `departures`.
            self.departures.fetch_add(1, Ordering::AcqRel);
            chain.remove(place)?;
            self.count_keys(writer, -1)?;
        } else {
            chain.set(place, record)?;
        }
        Ok(true)
    }

    /// Adds a key that was written before, at `sequence` with `entries`.
    fn insert(
        &self,
        writer: &RegionWriter<'_>,
        hash: u128,
        sequence: SequenceNumber,
        entries: u32,
    ) -> Result<()> {
        let is_new = self.options.every_key;
        let record = Record {
            latest: sequence,
            entries,
            // Of a key that was not here all entries are current, and with one entry a write there is at most one.
            obsolete: u32::from(!is_new),
            inexact: self.many_entries.load(Ordering::Acquire) && !is_new,
        };
        self.grow(writer)?;
        let chain = self.lock_of(writer, hash)?;
        let chain = chain.ok_or_else(|| Error::internal("a version table without buckets"))?;
        chain.insert(hash, record)?;
        drop(chain);
        self.count_keys(writer, 1)
    }

    /// Takes note that a write may have several entries.
    fn note_many(&self, writer: &RegionWriter<'_>) -> Result<()> {
        if self.many_entries.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        writer.set_root(FORMAT_SLOT, self.region.root(FORMAT_SLOT)? | MANY_ENTRIES)
    }

    fn count_keys(&self, writer: &RegionWriter<'_>, change: i64) -> Result<()> {
        let before = self.keys.fetch_add(change as u64, Ordering::AcqRel);
        writer.set_root(KEYS_SLOT, before.wrapping_add(change as u64))
    }

    fn set_buckets(&self, writer: &RegionWriter<'_>, buckets: u64) -> Result<()> {
        // What was moved is durable before the number says where it is, and that before it goes from where it was.
        writer.fence();
        writer.set_root(BUCKETS_SLOT, buckets)?;
        writer.fence();
        let turn = (self.shape.load(Ordering::Relaxed) >> BUCKET_BITS).wrapping_add(1);
        self.shape.store(turn << BUCKET_BITS | buckets, Ordering::Release);
        Ok(())
    }

    /// Adds a bucket if the others are full: it takes over its keys of the one that they were in so far.
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
            return self.set_buckets(writer, 1);
        }
        let from = buckets ^ 1 << buckets.ilog2();
        let source = self.lock(writer, from)?;
        let target = self.lock(writer, buckets)?;
        // What a power cut may have left there.
        target.clear()?;
        let moving = |(_, hash, _): &(_, u128, _)| Self::bucket_of(*hash, buckets + 1) == buckets;
        let moving: Vec<_> = source.all()?.into_iter().filter(moving).collect();
        for (_, hash, record) in &moving {
            target.insert(*hash, *record)?;
        }
        self.set_buckets(writer, buckets + 1)?;
        moving.iter().try_for_each(|(place, ..)| source.remove(*place))?;
        source.tighten()
    }

    /// Takes the last bucket away if the others have room for its keys.
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
        for (_, hash, record) in source.all()? {
            if target.find(hash)?.is_none() {
                target.insert(hash, record)?;
            }
        }
        self.set_buckets(writer, last)?;
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
