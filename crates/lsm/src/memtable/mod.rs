//! The memtable: the newest writes of a tree, sorted, in memory.
//!
//! Any number of threads insert and read concurrently. Reads take no lock and write no shared memory; writers lock
//! one or two nodes for a few dozen instructions. `tree` describes the algorithm.
//!
//! ```text
//! Memtable --> MemtableTree --> TreeNode (inner) --> TreeNode (leaf) --> KeyEntry: key, versions newest first
//!   |            |                                                         |
//!   |            +-- Arena of nodes                                        +-- Arena of entries
//!   +-- PointIndex: hash of a key --> KeyEntry, once the memtable serves point reads
//!   +-- range tombstones
//! ```
//!
//! * **One entry per key.** The entry of a key links all its versions. A scan at a sequence number reads one version
//!   of each key and never steps over older ones, however often a key was overwritten.
//! * **No relocation or removal** before the memtable is dropped. So reads borrow keys and values instead of copying
//!   them, and need no epochs or reference counts.
//! * **Visibility.** A read finds every version that was inserted before the reader's sequence number was published.
//! * **Memory** is counted as allocated bytes, see [`Memtable::memory_bytes`].

// The arena returns raw memory; `arena_ref` states the rule that makes it sound.
#![allow(unsafe_code)]

mod arena_ref;
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
use bolide_memory::{LARGE_PAGE_BYTES, PagePool};

pub use crate::range_tombstones::RangeTombstone;
pub use cursor::{MemtableCursor, Visibility};

use entry::EntryRef;
use journal::Journal;
use point_index::{IndexLookup, PointIndex};
use range_list::RangeList;
use sync::{AtomicU32, AtomicU64, AtomicUsize, LANES, Ordering, fence, lane};
use tree::{BATCH_KEYS, MemtableTree};

/// The node memory from which on point reads use the hash index. Smaller trees are in the processor's cache.
const MIN_INDEXED_BYTES: usize = 64 << 10;
/// The maximum size of a chunk in bytes, except for a chunk with one large value: a large page.
const LARGEST_CHUNK_BYTES: usize = LARGE_PAGE_BYTES;

/// The newest writes of a tree, sorted. Any number of readers and writers may share it.
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
    tree: MemtableTree,
    ranges: RangeList,
    journal: Journal,
    points: PointIndex,
    /// The expected final [`memory_bytes`](Self::memory_bytes), if known.
    budget_bytes: Option<usize>,
    /// The expected final number of entries, if known.
    expected_entries: Option<usize>,
    counts: [LaneCounts; LANES],
    /// 1 once a merge operand was inserted.
    has_operands: AtomicU32,
}

/// The counts of the insertions of one lane of writers. On cache lines of its own, so that insertions do not
/// invalidate lines that readers need.
#[repr(align(128))]
struct LaneCounts {
    entries: AtomicUsize,
    keys: AtomicUsize,
    smallest: AtomicU64,
    largest: AtomicU64,
}

impl LaneCounts {
    fn record_sequence(&self, sequence: SequenceNumber) {
        if sequence < self.smallest.load(Ordering::Relaxed) {
            self.smallest.fetch_min(sequence, Ordering::Relaxed);
        }
        if sequence > self.largest.load(Ordering::Relaxed) {
            self.largest.fetch_max(sequence, Ordering::Relaxed);
        }
    }
}

impl Memtable {
    /// An empty memtable, of about 4 KiB, with large pages of its own.
    pub fn new() -> Self {
        Self::new_in(&PagePool::new())
    }

    /// As [`new`](Self::new), with large pages from `pages`.
    pub fn new_in(pages: &Arc<PagePool>) -> Self {
        Self::for_budget(None, pages)
    }

    /// As [`new`](Self::new), with an expected final size of `budget_bytes`. Point reads use the hash index once nodes
    /// take 64 KiB, or a sixteenth of the budget if that is less.
    pub fn with_budget(budget_bytes: usize) -> Self {
        Self::with_budget_in(budget_bytes, &PagePool::new())
    }

    /// As [`with_budget`](Self::with_budget), with large pages from `pages`.
    pub fn with_budget_in(budget_bytes: usize, pages: &Arc<PagePool>) -> Self {
        Self::for_budget(Some(budget_bytes), pages)
    }

    /// The pool of its large pages.
    pub fn pages(&self) -> &Arc<PagePool> {
        self.tree.pages()
    }

    /// Sets the expected final number of entries, such as that of the previous memtable. It determines the size of the
    /// hash index.
    #[must_use]
    pub fn expecting(self, entries: usize) -> Self {
        Self { expected_entries: Some(entries), ..self }
    }

    fn for_budget(budget_bytes: Option<usize>, pages: &Arc<PagePool>) -> Self {
        Self {
            tree: MemtableTree::new(LARGEST_CHUNK_BYTES, pages),
            ranges: RangeList::default(),
            journal: Journal::default(),
            points: PointIndex::new(LARGEST_CHUNK_BYTES, Arc::clone(pages)),
            budget_bytes,
            expected_entries: None,
            has_operands: AtomicU32::new(0),
            counts: std::array::from_fn(|_| LaneCounts {
                entries: AtomicUsize::new(0),
                keys: AtomicUsize::new(0),
                smallest: AtomicU64::new(u64::MAX),
                largest: AtomicU64::new(0),
            }),
        }
    }

    /// Adds a version of `key`. Versions may be inserted in any order of their sequence numbers. A version with an
    /// existing sequence number of the key replaces the existing one, so that a repeated log replay has no effect.
    ///
    /// Costs 200 to 350 ns among half a million entries, 75 ns where keys ascend. `key` and `value` are copied.
    ///
    /// # Panics
    /// If the key or the value has 2 GiB or more, far over the limits of the store.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let lane = lane();
        let counts = &self.counts[lane % LANES];
        counts.record_sequence(trailer.sequence());
        if trailer.kind() == Some(EntryKind::Merge) {
            self.has_operands.store(1, Ordering::Relaxed);
        }
        let known = self.points.find(key, || hash_key(key));
        let inserted = match known {
            IndexLookup::Found(entry) => self.tree.add_version(lane, entry, trailer, value),
            IndexLookup::Absent | IndexLookup::Unknown => self.tree.insert(lane, key, trailer, value),
        };
        if inserted.is_new {
            counts.entries.fetch_add(1, Ordering::Relaxed);
        }
        if inserted.is_new_key {
            counts.keys.fetch_add(1, Ordering::Relaxed);
        }
        // A reader that starts the journal or the index either does so before this fence, or walks the tree after it.
        fence(Ordering::SeqCst);
        self.journal.record(&inserted);
        if !matches!(known, IndexLookup::Found(_)) {
            self.points.record(inserted.entry);
        }
    }

    /// Starts the journal for [`take_journal`](Self::take_journal): from now on, insertions are recorded. A cursor that is
    /// positioned after this call yields every insertion that is not recorded; it may yield recorded ones too. Recording
    /// costs a writer a few nanoseconds, and 16 bytes for each entry.
    pub fn start_journal(&self) {
        self.journal.start();
    }

    /// Passes the insertions since the last call, or since [`start_journal`](Self::start_journal), to `visit`, in
    /// unspecified order.
    ///
    /// Every entry that was published before the call has been passed to `visit` when it returns.
    pub fn take_journal(&self, mut visit: impl FnMut(&[u8], Trailer, &[u8])) {
        for (entry, version) in self.journal.take(&self.tree) {
            visit(entry.key(), version.trailer(), version.value());
        }
    }

    /// Adds a range tombstone: it deletes versions older than `sequence` of the keys from `start` to before `end`. Reads of
    /// the memtable do not apply it; the caller does, with
    /// [`newest_range_tombstone`](Self::newest_range_tombstone).
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        self.counts[lane() % LANES].record_sequence(sequence);
        self.ranges.add(start, end, sequence);
    }

    /// The newest version of `key` with a sequence number of at most `max_sequence`: its trailer, which may be that of a
    /// tombstone, and its value. Ignores range tombstones.
    ///
    /// Costs two or three dependent memory accesses with a complete hash index, 200 to 350 ns among half a million entries.
    /// Before that, four or five, and the hashes of one leaf are added. O(log n) more for a key with n newer versions.
    #[inline]
    pub fn get(&self, key: &[u8], max_sequence: SequenceNumber) -> Option<(Trailer, &[u8])> {
        self.get_hashed(key, hash_key(key), max_sequence)
    }

    /// As [`get`](Self::get), where `hash` is the [`hash_key`] of `key`.
    #[inline]
    pub fn get_hashed(
        &self,
        key: &[u8],
        hash: u64,
        max_sequence: SequenceNumber,
    ) -> Option<(Trailer, &[u8])> {
        let version = self.entry(key, hash)?.newest(max_sequence)?;
        Some((version.trailer(), version.value()))
    }

    /// Prefetches the memory that [`get_hashed`](Self::get_hashed) reads first. No effect on results.
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
            IndexLookup::Found(entry) => Some(entry),
            IndexLookup::Absent => None,
            IndexLookup::Unknown => self.entry_in_tree(key),
        }
    }

    /// Searches the tree, and then adds the hashes of one leaf to the index.
    fn entry_in_tree(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.tree.get(key);
        self.fill_points();
        entry
    }

    /// Builds the hash index as a whole, if any of `others` has started to build one. For a memtable that receives no more
    /// writes; costs about 20 ns for each key.
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
            let min_bytes = self.budget_bytes.map_or(usize::MAX, |budget| budget / 16);
            if self.tree.node_bytes() < MIN_INDEXED_BYTES.min(min_bytes) {
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

    /// Writes the result of [`get`](Self::get) for each of `keys` to the same index of `found`. Skips keys whose `found` is
    /// set already.
    ///
    /// The searches of up to 32 keys overlap their memory latencies: about a third of the time of single searches.
    pub fn get_many<'m>(
        &'m self,
        keys: &[&[u8]],
        max_sequence: SequenceNumber,
        found: &mut [Option<(Trailer, &'m [u8])>],
    ) {
        self.get_many_at(keys, |_| Some(max_sequence), found);
    }

    /// As [`get_many`](Self::get_many) with an upper bound for each key, which `max_sequence` returns by its index; `None`
    /// skips the key.
    pub fn get_many_at<'m>(
        &'m self,
        keys: &[&[u8]],
        max_sequence: impl Fn(usize) -> Option<SequenceNumber>,
        found: &mut [Option<(Trailer, &'m [u8])>],
    ) {
        let chunks = keys.chunks(BATCH_KEYS).zip(found.chunks_mut(BATCH_KEYS));
        for (first, (keys, found)) in (0..).step_by(BATCH_KEYS).zip(chunks) {
            let mut batch: [&[u8]; BATCH_KEYS] = [&[]; BATCH_KEYS];
            let mut indices = [(0, 0); BATCH_KEYS];
            let mut count = 0;
            for (index, (key, _)) in
                keys.iter().zip(&*found).enumerate().filter(|(_, (_, found))| found.is_none())
            {
                let Some(max_sequence) = max_sequence(first + index) else { continue };
                batch[count] = key;
                indices[count] = (index, max_sequence);
                count += 1;
            }
            let mut entries = [None; BATCH_KEYS];
            self.entries_of(&batch[..count], &mut entries[..count]);
            for ((index, max_sequence), entry) in indices.into_iter().zip(&entries[..count]) {
                found[index] = entry
                    .and_then(|entry| entry.newest(max_sequence))
                    .map(|version| (version.trailer(), version.value()));
            }
        }
    }

    /// Writes the result of [`entry`](Self::entry) for each of up to [`BATCH_KEYS`] keys to `found`.
    fn entries_of<'m>(&'m self, keys: &[&[u8]], found: &mut [Option<EntryRef<'m>>]) {
        if !self.points.is_complete() {
            self.tree.get_many(keys, found);
            return self.fill_points();
        }
        let mut hashes = [0; BATCH_KEYS];
        for (key, hash) in keys.iter().zip(&mut hashes) {
            *hash = hash_key(key);
            self.points.prefetch(*hash);
        }
        for ((key, hash), found) in keys.iter().zip(hashes).zip(found) {
            *found = self.entry(key, hash);
        }
    }

    /// The trailer of the version that [`get`](Self::get) returns. Reads no value.
    #[inline]
    pub fn newest(&self, key: &[u8], max_sequence: SequenceNumber) -> Option<Trailer> {
        self.get(key, max_sequence).map(|(trailer, _)| trailer)
    }

    /// A cursor over the entries. It pins the memtable.
    pub fn cursor(self: &Arc<Self>, visibility: Visibility) -> MemtableCursor {
        MemtableCursor::new(self.clone(), visibility)
    }

    /// The approximate share of the keys below `key`, from 0 to 1, estimated from the positions of one descent in its
    /// nodes. Nodes are at least half full, so the error is at most a factor of two, and usually far less. Costs about as
    /// much as [`get`](Self::get).
    pub fn share_below(&self, key: &[u8]) -> f64 {
        self.tree.share_below(key)
    }

    /// The allocated bytes, used or not: the exact size of all chunks, and an estimate for the range tombstones.
    ///
    /// A chunk has a quarter of the size of all previous ones, and at least 8 KiB; after 2 MiB, chunks have 2 MiB, in large
    /// pages. So the unused memory is at most a quarter of the used memory, or 2 MiB for nodes and for each of up to four
    /// lanes of inserting threads. An entry of 16 + 100 bytes takes 152 bytes, 20 to 30 in nodes, and 12 in the hash index.
    pub fn memory_bytes(&self) -> usize {
        let derived = self.journal.memory_bytes() + self.points.memory_bytes();
        self.tree.reserved_bytes() + self.ranges.memory_bytes() + derived
    }

    /// The number of versions, including tombstones, without range tombstones.
    pub fn entries(&self) -> usize {
        self.counts.iter().map(|counts| counts.entries.load(Ordering::Relaxed)).sum()
    }

    /// The number of distinct keys, including keys with only tombstones. [`entries`](Self::entries) minus this is the
    /// number of versions that have newer versions.
    pub fn keys(&self) -> usize {
        self.counts.iter().map(|counts| counts.keys.load(Ordering::Relaxed)).sum()
    }

    /// Whether some entry is a merge operand, which newer versions of its key do not hide.
    pub fn has_operands(&self) -> bool {
        self.has_operands.load(Ordering::Relaxed) == 1
    }

    /// Whether nothing was inserted, including range tombstones.
    pub fn is_empty(&self) -> bool {
        self.largest_sequence().is_none()
    }

    /// The smallest sequence number inserted, including range tombstones.
    pub fn smallest_sequence(&self) -> Option<SequenceNumber> {
        let smallest = self.counts.iter().map(|counts| counts.smallest.load(Ordering::Relaxed)).min();
        smallest.filter(|&sequence| sequence != u64::MAX)
    }

    /// The largest sequence number inserted, including range tombstones.
    pub fn largest_sequence(&self) -> Option<SequenceNumber> {
        let largest = self.counts.iter().map(|counts| counts.largest.load(Ordering::Relaxed)).max();
        self.smallest_sequence().and(largest)
    }

    /// Whether there are range tombstones. One load.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.ranges.len() > 0
    }

    /// The number of range tombstones.
    pub fn range_tombstone_count(&self) -> usize {
        self.ranges.len()
    }

    /// A copy of the range tombstones, in unspecified order.
    pub fn range_tombstones(&self) -> Vec<RangeTombstone> {
        self.ranges.all()
    }

    /// The largest sequence number, of at most `max_sequence`, of the range tombstones that cover `key`; 0 if there is none.
    /// One load if there are no range tombstones.
    #[inline]
    pub fn newest_range_tombstone(&self, key: &[u8], max_sequence: SequenceNumber) -> SequenceNumber {
        if self.has_range_tombstones() { self.ranges.newest_covering(key, max_sequence) } else { 0 }
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
