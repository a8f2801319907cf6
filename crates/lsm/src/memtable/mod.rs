//! The memtable: the newest writes of a tree, in memory and in order.
//!
//! Any number of threads insert and read at once. Reads take no lock and write nothing; writers lock one
//! or two nodes for a few dozen instructions. See `tree` for how.
//!
//! ```text
//! Memtable --> Tree --> Node (inner) --> Node (leaf) --> Entry: key, versions newest first
//!   |            |                                         |
//!   |            +-- Arena of nodes                        +-- Arena of entries
//!   +-- PointIndex: hash of a key --> Entry, where single keys are asked for
//!   +-- range tombstones
//! ```
//!
//! * **One entry per key.** All versions of a key hang on its entry. A scan at a sequence number takes
//!   one version of each key and never steps over dead ones, however often a key was overwritten.
//! * **Nothing moves or goes away** before the memtable as a whole. So keys and values are lent, not
//!   copied, and readers need no epochs or reference counts.
//! * **Visibility** is up to the reader: a version that was inserted before the reader's sequence number
//!   was published is always found.
//! * **Memory** is counted as what was taken from the allocator, see [`Memtable::memory_bytes`].

// The arena hands out raw memory; `arena` states the one rule that makes it sound.
#![allow(unsafe_code)]

mod arena;
mod cursor;
mod descent;
mod entry;
mod journal;
mod node;
mod point_index;
mod range_list;
mod sync;
mod tree;

use std::fmt;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{EntryKind, SequenceNumber, Trailer};
use bolide_storage::LARGE_PAGE_BYTES;

pub use crate::range_tombstones::RangeTombstone;
pub use cursor::{MemtableCursor, Visibility};

use entry::EntryRef;
use journal::Journal;
use point_index::{Known, PointIndex};
use range_list::RangeList;
pub(crate) use sync::prefetch;
use sync::{AtomicU32, AtomicU64, AtomicUsize, LANES, Ordering, fence, lane};
use tree::{TOGETHER, Tree};

/// Single keys are found by their hash once nodes take so much: with fewer, nodes are in the processor's cache.
const MIN_INDEXED_BYTES: usize = 64 << 10;
/// Most bytes of one piece of memory, but for a value that needs more: a large page.
const LARGEST_CHUNK_BYTES: usize = LARGE_PAGE_BYTES;

/// The newest writes of a tree, in order. It may be shared by any number of readers and writers.
///
/// ```
/// use bolide_base::{EntryKind, Trailer};
/// use bolide_lsm::memtable::Memtable;
///
/// let memtable = Memtable::new();
/// memtable.insert(b"comet", Trailer::new(1, EntryKind::Put), b"ice");
/// memtable.insert(b"comet", Trailer::new(2, EntryKind::Put), b"dust");
/// let (trailer, value) = memtable.get(b"comet", 1).unwrap();
/// assert_eq!((trailer.sequence(), value), (1, &b"ice"[..]));
/// assert_eq!(memtable.get(b"comet", 9).unwrap().1, b"dust");
/// assert!(memtable.get(b"star", 9).is_none());
/// ```
pub struct Memtable {
    tree: Tree,
    ranges: RangeList,
    journal: Journal,
    points: PointIndex,
    /// What [`memory_bytes`](Self::memory_bytes) is to come to, where that is known.
    budget_bytes: Option<usize>,
    /// How many entries it is to have in the end, where that is known.
    expected_entries: Option<usize>,
    counts: [Counts; LANES],
    /// 1 once a merge was inserted.
    has_operands: AtomicU32,
}

/// What one lane of writers has inserted. Alone on its cache lines: readers, who need the lines beside it,
/// are not disturbed by every write.
#[repr(align(128))]
struct Counts {
    entries: AtomicUsize,
    keys: AtomicUsize,
    smallest: AtomicU64,
    largest: AtomicU64,
}

impl Counts {
    fn note_sequence(&self, sequence: SequenceNumber) {
        if sequence < self.smallest.load(Ordering::Relaxed) {
            self.smallest.fetch_min(sequence, Ordering::Relaxed);
        }
        if sequence > self.largest.load(Ordering::Relaxed) {
            self.largest.fetch_max(sequence, Ordering::Relaxed);
        }
    }
}

impl Memtable {
    /// An empty memtable. It takes about 4 KiB.
    pub fn new() -> Self {
        Self::for_budget(None)
    }

    /// As [`new`](Self::new), for one that is to take about `budget_bytes` in the end. Single keys are found by
    /// a hash of them once nodes take 64 KiB, or a sixteenth of the budget if that is less.
    pub fn with_budget(budget_bytes: usize) -> Self {
        Self::for_budget(Some(budget_bytes))
    }

    /// The same memtable, which will have about as many entries in the end, as the one before it: then the hashes
    /// get as much room as they need.
    #[must_use]
    pub fn expecting(self, entries: usize) -> Self {
        Self { expected_entries: Some(entries), ..self }
    }

    fn for_budget(budget_bytes: Option<usize>) -> Self {
        Self {
            tree: Tree::new(LARGEST_CHUNK_BYTES),
            ranges: RangeList::default(),
            journal: Journal::default(),
            points: PointIndex::new(LARGEST_CHUNK_BYTES),
            budget_bytes,
            expected_entries: None,
            has_operands: AtomicU32::new(0),
            counts: std::array::from_fn(|_| Counts {
                entries: AtomicUsize::new(0),
                keys: AtomicUsize::new(0),
                smallest: AtomicU64::new(u64::MAX),
                largest: AtomicU64::new(0),
            }),
        }
    }

    /// Adds a version of `key`. Versions may come in any order of their sequence numbers. Where the key has
    /// one with this sequence number, the new one takes its place, so redoing a log changes nothing.
    ///
    /// Costs 200 to 350 ns among half a million entries, 75 ns where keys ascend. `key` and `value` are copied.
    ///
    /// # Panics
    /// If the key or the value has 2 GiB or more, far over the limits of the store.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let lane = lane();
        let counts = &self.counts[lane % LANES];
        counts.note_sequence(trailer.sequence());
        if trailer.kind() == Some(EntryKind::Merge) {
            self.has_operands.store(1, Ordering::Relaxed);
        }
        let known = self.points.find(key, || hash_key(key));
        let inserted = match known {
            Known::Here(entry) => self.tree.add_version(lane, entry, trailer, value),
            Known::Absent | Known::Unknown => self.tree.insert(lane, key, trailer, value),
        };
        if inserted.is_new {
            counts.entries.fetch_add(1, Ordering::Relaxed);
        }
        if inserted.is_new_key {
            counts.keys.fetch_add(1, Ordering::Relaxed);
        }
        // Who wants to know of it said so before, or looks at the tree behind this.
        fence(Ordering::SeqCst);
        self.journal.note(&inserted);
        if !matches!(known, Known::Here(_)) {
            self.points.note(inserted.entry);
        }
    }

    /// From now on, notes what is inserted, for [`take_journal`](Self::take_journal). Everything whose
    /// insertion this call does not see noted is found by a cursor that is positioned afterwards; some
    /// may be both. Noting costs a writer some nanoseconds and 16 bytes an entry.
    pub fn start_journal(&self) {
        self.journal.start();
    }

    /// Hands what was inserted since the last call, or since [`start_journal`](Self::start_journal), to
    /// `visit`, in no particular order.
    ///
    /// Every entry that was published before the call is among what was handed out by then.
    pub fn take_journal(&self, mut visit: impl FnMut(&[u8], Trailer, &[u8])) {
        for (entry, version) in self.journal.take(&self.tree) {
            visit(entry.key(), version.trailer(), version.value());
        }
    }

    /// Adds a range tombstone: versions of the keys from `start` to before `end` that are older than
    /// `sequence` are deleted. The memtable itself shows them all the same; readers ask
    /// [`newest_range_tombstone`](Self::newest_range_tombstone).
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        self.counts[lane() % LANES].note_sequence(sequence);
        self.ranges.add(start, end, sequence);
    }

    /// The newest version of `key` with a sequence number of at most `at_most`: its trailer, which may be
    /// a tombstone's, and its value. Range tombstones are not considered.
    ///
    /// Costs two or three trips to memory, 200 to 350 ns among half a million entries, once as many were asked for; before that
    /// four or five, and a leaf's hashes are added. For a key with n newer versions O(log n) more.
    #[inline]
    pub fn get(&self, key: &[u8], at_most: SequenceNumber) -> Option<(Trailer, &[u8])> {
        self.get_hashed(key, hash_key(key), at_most)
    }

    /// As [`get`](Self::get) for a key whose [`hash_key`] is `hash`.
    #[inline]
    pub fn get_hashed(&self, key: &[u8], hash: u64, at_most: SequenceNumber) -> Option<(Trailer, &[u8])> {
        let version = self.entry(key, hash)?.newest(at_most)?;
        Some((version.trailer(), version.value()))
    }

    /// Asks the processor for the memory that [`get_hashed`](Self::get_hashed) begins with. Purely a hint.
    #[inline]
    pub fn prefetch_hashed(&self, hash: u64) {
        self.points.prefetch(hash);
    }

    /// As [`prefetch_hashed`](Self::prefetch_hashed), for an [`insert`](Self::insert) of `key`.
    #[inline]
    pub(crate) fn prefetch_key(&self, key: &[u8]) {
        if self.points.is_in_use() {
            self.points.prefetch(hash_key(key));
        }
    }

    #[inline]
    fn entry(&self, key: &[u8], hash: u64) -> Option<EntryRef<'_>> {
        match self.points.find(key, || hash) {
            Known::Here(entry) => Some(entry),
            Known::Absent => None,
            Known::Unknown => self.entry_in_tree(key),
        }
    }

    /// Looks into the tree, and then brings the hashes of keys on by a leaf.
    fn entry_in_tree(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.tree.get(key);
        self.fill_points();
        entry
    }

    /// Has single keys found by their hashes, as [`get`](Self::get) would bring about in time, if that has begun in any of
    /// `others`. For a memtable that is complete; costs some 20 ns a key.
    pub(crate) fn index_points_as<'m>(&self, mut others: impl Iterator<Item = &'m Self>) {
        if others.any(|other| !other.points.is_off()) {
            self.points.begin(self.keys(), self.keys());
            while self.points.is_filling() {
                self.points.fill(&self.tree);
            }
        }
    }

    fn fill_points(&self) {
        if self.points.is_off() {
            let least = self.budget_bytes.map_or(usize::MAX, |budget| budget / 16);
            if self.tree.node_bytes() < MIN_INDEXED_BYTES.min(least) {
                return;
            }
            let (keys, bytes) = (self.entries(), self.memory_bytes().max(1));
            let when_full = || {
                let full = self.budget_bytes.unwrap_or(bytes) as f64 / bytes as f64;
                (keys as f64 * full) as usize
            };
            self.points.begin(keys, self.expected_entries.unwrap_or_else(when_full));
        }
        self.points.fill(&self.tree);
    }

    /// Answers [`get`](Self::get) for each of `keys` into the same place of `found`, but for places that hold
    /// an answer already.
    ///
    /// The searches of up to 32 keys wait for memory together: about a third of the time of as many single ones.
    pub fn get_many<'m>(
        &'m self,
        keys: &[&[u8]],
        at_most: SequenceNumber,
        found: &mut [Option<(Trailer, &'m [u8])>],
    ) {
        self.get_many_at(keys, |_| Some(at_most), found);
    }

    /// As [`get_many`](Self::get_many), each key with an upper bound of its own, which `at_most` tells by its place;
    /// `None` for one that is not to be looked for.
    pub fn get_many_at<'m>(
        &'m self,
        keys: &[&[u8]],
        at_most: impl Fn(usize) -> Option<SequenceNumber>,
        found: &mut [Option<(Trailer, &'m [u8])>],
    ) {
        let chunks = keys.chunks(TOGETHER).zip(found.chunks_mut(TOGETHER));
        for (first, (keys, found)) in (0..).step_by(TOGETHER).zip(chunks) {
            let mut wanted: [&[u8]; TOGETHER] = [&[]; TOGETHER];
            let mut places = [(0, 0); TOGETHER];
            let mut count = 0;
            for (place, (key, _)) in
                keys.iter().zip(&*found).enumerate().filter(|(_, (_, found))| found.is_none())
            {
                let Some(at_most) = at_most(first + place) else { continue };
                wanted[count] = key;
                places[count] = (place, at_most);
                count += 1;
            }
            let mut entries = [None; TOGETHER];
            self.entries_of(&wanted[..count], &mut entries[..count]);
            for ((place, at_most), entry) in places.into_iter().zip(&entries[..count]) {
                found[place] = entry
                    .and_then(|entry| entry.newest(at_most))
                    .map(|version| (version.trailer(), version.value()));
            }
        }
    }

    /// Answers [`entry`](Self::entry) for each of up to [`TOGETHER`] keys.
    fn entries_of<'m>(&'m self, keys: &[&[u8]], found: &mut [Option<EntryRef<'m>>]) {
        if !self.points.is_complete() {
            self.tree.get_many(keys, found);
            return self.fill_points();
        }
        let mut hashes = [0; TOGETHER];
        for (key, hash) in keys.iter().zip(&mut hashes) {
            *hash = hash_key(key);
            self.points.prefetch(*hash);
        }
        for ((key, hash), found) in keys.iter().zip(hashes).zip(found) {
            *found = self.entry(key, hash);
        }
    }

    /// The trailer that [`get`](Self::get) would answer. It touches no value.
    #[inline]
    pub fn newest(&self, key: &[u8], at_most: SequenceNumber) -> Option<Trailer> {
        self.get(key, at_most).map(|(trailer, _)| trailer)
    }

    /// A cursor over the entries. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>, visibility: Visibility) -> MemtableCursor {
        MemtableCursor::new(self.clone(), visibility)
    }

    /// About which share of all keys lies below `key`, from 0 to 1: told by the places that a descent takes
    /// in the nodes. Nodes are half full to full, so it is off by a factor of two at most, and mostly by far
    /// less. Costs about what [`get`](Self::get) costs.
    pub fn share_below(&self, key: &[u8]) -> f64 {
        self.tree.share_below(key)
    }

    /// Bytes of memory taken from the allocator, used or not: the exact size of all chunks, and an estimate
    /// for the range tombstones.
    ///
    /// Chunks are a quarter of what is there already, and 8 KiB at least; after 2 MiB they are 2 MiB each, in large
    /// pages. So this is at most a quarter above what is in use, or 2 MiB for nodes and for each of up to four lanes of
    /// threads that insert. An entry of 16 + 100 bytes takes 152, and 20 to 30 in
    /// nodes; where single keys were asked for, 12 more by its hash.
    pub fn memory_bytes(&self) -> usize {
        let derived = self.journal.memory_bytes() + self.points.memory_bytes();
        self.tree.reserved_bytes() + self.ranges.memory_bytes() + derived
    }

    /// Versions, tombstones included, range tombstones not.
    pub fn entries(&self) -> usize {
        self.counts.iter().map(|counts| counts.entries.load(Ordering::Relaxed)).sum()
    }

    /// Different keys, those with tombstones alone included. So [`entries`](Self::entries) less this many are versions that
    /// newer ones of their key stand before.
    pub fn keys(&self) -> usize {
        self.counts.iter().map(|counts| counts.keys.load(Ordering::Relaxed)).sum()
    }

    /// True where some entry is an operand of a merge, which no newer version of its key hides.
    pub fn has_operands(&self) -> bool {
        self.has_operands.load(Ordering::Relaxed) == 1
    }

    /// True where nothing was ever inserted, not even a range tombstone.
    pub fn is_empty(&self) -> bool {
        self.largest_sequence().is_none()
    }

    /// The smallest sequence number inserted, range tombstones included.
    pub fn smallest_sequence(&self) -> Option<SequenceNumber> {
        let smallest = self.counts.iter().map(|counts| counts.smallest.load(Ordering::Relaxed)).min();
        smallest.filter(|&sequence| sequence != u64::MAX)
    }

    /// The largest sequence number inserted, range tombstones included.
    pub fn largest_sequence(&self) -> Option<SequenceNumber> {
        let largest = self.counts.iter().map(|counts| counts.largest.load(Ordering::Relaxed)).max();
        self.smallest_sequence().and(largest)
    }

    /// True where there are range tombstones. One load.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.ranges.len() > 0
    }

    /// How many range tombstones there are.
    pub fn range_tombstone_count(&self) -> usize {
        self.ranges.len()
    }

    /// A copy of the range tombstones, in no particular order.
    pub fn range_tombstones(&self) -> Vec<RangeTombstone> {
        self.ranges.all()
    }

    /// The largest sequence number, of at most `at_most`, of the range tombstones over `key`; 0 where there
    /// is none. One load where there are no range tombstones.
    #[inline]
    pub fn newest_range_tombstone(&self, key: &[u8], at_most: SequenceNumber) -> SequenceNumber {
        if self.has_range_tombstones() { self.ranges.newest_covering(key, at_most) } else { 0 }
    }
}

impl Default for Memtable {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.entries())
            .field("range_tombstones", &self.range_tombstone_count())
            .field("memory_bytes", &self.memory_bytes())
            .finish()
    }
}
