//! One tree of a store: its settings and its current state.
//!
//! A [`TreeState`] is immutable and swapped as a whole, so a reader works on one consistent set of
//! memtables and sstables for as long as it likes. Its components are ordered by age: the writable
//! memtable, the full memtables (newest first), the runs of the version (newest first). For one key,
//! every version in an earlier component is newer than every version in a later one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bolide_base::checksum::hash_key;
use bolide_base::limits::MAX_RANGE_TOMBSTONES;
use bolide_base::{Error, Result, SequenceNumber, Trailer, TreeId};
use bolide_table::ValueRef;
use parking_lot::{Mutex, RwLock};

use super::logged_memtable::LoggedMemtable;
use super::row_gate::RowGate;
use super::tree_views::{TreeViews, note_get};
use crate::collectors::CollectorFactory;
use crate::compaction::{CompactionFilter, MergeOperator};
use crate::cursor::{Bounds, RunCursor, Source};
use crate::drop_listener::DropListener;
use crate::external_tree::ExternalTree;
use crate::memtable::Visibility;
use crate::options::TreeOptions;
use crate::range_tombstones::RangeTombstones;
use crate::remix::{PartitionRun, ViewedLevel};
use crate::version::{SortedRun, TableHandle, Version};

/// A tree while its store is open.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) id: TreeId,
    options: ArcSwap<TreeOptions>,
    /// What the layer above keeps with the tree.
    pub(super) descriptor: RwLock<Arc<[u8]>>,
    state: ArcSwap<TreeState>,
    /// Serialises those who replace the state.
    replacing: Mutex<()>,
    /// Odd while the state is replaced, and greater after it.
    replacements: AtomicU64,
    /// Drops entries that compactions meet and the layer above has no use for.
    pub(super) filter: RwLock<Option<Arc<dyn CompactionFilter>>>,
    /// Merges operands that flushes and compactions meet.
    pub(super) merge_operator: RwLock<Option<Arc<dyn MergeOperator>>>,
    /// Keeps the writes instead of memtables and sstables.
    pub(super) external_tree: OnceLock<Arc<dyn ExternalTree>>,
    /// Makes what watches the entries of new sstables.
    pub(super) collectors: RwLock<Option<Arc<dyn CollectorFactory>>>,
    /// Is told of versions that flushes and compactions leave out.
    pub(super) drop_listener: RwLock<Option<Arc<dyn DropListener>>>,
    /// Trees with entries about this tree's records, and whether their compactions drop those of deleted ones.
    pub(super) dependents: RwLock<BTreeSet<TreeId>>,
    /// Set when the tree was dropped: background work on it ends.
    pub(super) dropped: AtomicBool,
    /// The error with which background work of a derived tree met a damaged file: its sstables are not merged any more.
    pub(super) unreadable: OnceLock<Error>,
    /// Bytes of sstables that flushes and compactions wrote for it since it was made.
    pub(super) written_bytes: AtomicU64,
    /// Set while all full memtables are to be flushed, also those of entries that were kept back: nothing is kept back then.
    pub(super) writes_all: AtomicBool,
    /// Bytes of the log with entries that were kept back, as replay finds them.
    pub(super) replayed_retained: AtomicU64,
    /// Held by the one who renews the sorted views.
    pub(super) renewing: Mutex<()>,
    /// Set while the one who renews them is to look once more.
    pub(super) views_wait: AtomicBool,
    /// Set while the manifest has what a flush brought and readers do not see it yet; see `shown`. Changed by who has the versions.
    pub(super) unshown: AtomicBool,
    /// Which cached rows are right.
    pub(super) row_gate: RowGate,
}

impl Tree {
    /// A tree without writes that are not in `version` yet. Its memtable may take `budget_bytes`.
    pub(super) fn new(
        id: TreeId,
        options: TreeOptions,
        descriptor: Arc<[u8]>,
        version: Arc<Version>,
        budget_bytes: usize,
    ) -> Self {
        let (active, views) = (Arc::new(LoggedMemtable::with_budget(budget_bytes)), TreeViews::default());
        let state = TreeState { active, immutables: Vec::new(), version, views };
        Self {
            id,
            options: ArcSwap::from_pointee(options),
            descriptor: RwLock::new(descriptor),
            state: ArcSwap::from_pointee(state),
            replacing: Mutex::new(()),
            replacements: AtomicU64::new(0),
            filter: RwLock::new(None),
            merge_operator: RwLock::new(None),
            external_tree: OnceLock::new(),
            collectors: RwLock::new(None),
            drop_listener: RwLock::new(None),
            dependents: RwLock::default(),
            dropped: AtomicBool::new(false),
            unreadable: OnceLock::new(),
            written_bytes: AtomicU64::new(0),
            writes_all: AtomicBool::new(false),
            replayed_retained: AtomicU64::new(0),
            renewing: Mutex::new(()),
            views_wait: AtomicBool::new(false),
            unshown: AtomicBool::new(false),
            row_gate: RowGate::default(),
        }
    }

    /// Its settings.
    pub(super) fn options(&self) -> arc_swap::Guard<Arc<TreeOptions>> {
        self.options.load()
    }

    /// Goes on with other settings.
    pub(super) fn set_options(&self, options: TreeOptions) {
        self.options.store(Arc::new(options));
    }

    /// The current state, to keep.
    #[inline]
    pub(super) fn state(&self) -> Arc<TreeState> {
        self.state.load_full()
    }

    /// The current state, for a moment.
    #[inline]
    pub(super) fn state_guard(&self) -> arc_swap::Guard<Arc<TreeState>> {
        self.state.load()
    }

    /// A state and the newest sequence number as `published` tells it: everything up to that number went into that state, and
    /// nothing that a reader at that number needs was compacted away. So it is where the state was still the same after the number was told: who
    /// sees a number that was published after a replacement sees that there was one.
    #[inline]
    pub(super) fn newest_state(
        &self,
        published: impl Fn() -> SequenceNumber,
    ) -> (arc_swap::Guard<Arc<TreeState>>, SequenceNumber) {
        loop {
            let before = self.replacements.load(Ordering::Acquire);
            let state = self.state_guard();
            let sequence = published();
            let is_counted_same =
                before.is_multiple_of(2) && before == self.replacements.load(Ordering::Acquire);
            // A replacement that takes its time is not waited for.
            if is_counted_same || Arc::ptr_eq(&state, &self.state_guard()) {
                return (state, sequence);
            }
        }
    }

    /// The oldest segment of the log that its full memtables hold back; `None` where they have no entries.
    pub(super) fn oldest_full_log(&self) -> Option<u64> {
        self.state_guard().immutables.iter().filter_map(|logged| logged.first_log()).min()
    }

    /// Replaces the state by what `change` makes of it.
    pub(super) fn replace_state(&self, change: impl FnOnce(&TreeState) -> TreeState) {
        let _replacing = self.replacing.lock();
        let next = change(&self.state.load());
        self.swap_state(next);
    }

    /// Swaps the state. The caller has `replacing`.
    fn swap_state(&self, next: TreeState) {
        let next = Arc::new(next);
        self.replacements.fetch_add(1, Ordering::AcqRel);
        let last = self.state.swap(next);
        self.replacements.fetch_add(1, Ordering::AcqRel);
        drop(last);
    }

    /// Which versions of `memtables` a flush has to look at, given the sequence numbers in use: of each key one, where all who
    /// read from now on see the same. The others are hidden then, unless they are operands of merges, or somebody is to be told of
    /// them.
    pub(super) fn shown(&self, memtables: &[Arc<LoggedMemtable>], in_use: &[SequenceNumber]) -> Visibility {
        let needs_all = || {
            self.drop_listener.read().is_some()
                || memtables.iter().any(|logged| logged.memtable.has_operands())
        };
        let newest = memtables.iter().filter_map(|logged| logged.memtable.largest_sequence()).max();
        match in_use {
            [only] if newest.is_none_or(|newest| newest <= *only) && !needs_all() => Visibility::At(*only),
            _ => Visibility::All,
        }
    }

    /// Has `compacted` take the place of the full memtables `inputs`. False where these are not there any more.
    pub(super) fn compact_immutables(
        &self,
        inputs: &[Arc<LoggedMemtable>],
        compacted: LoggedMemtable,
    ) -> bool {
        let _replacing = self.replacing.lock();
        let next = self.state.load().compacted_in_memory(inputs, Arc::new(compacted));
        next.map(|next| self.swap_state(next)).is_some()
    }
}

/// Room for as many sources besides full memtables, as a rule enough.
const MAX_SOURCES_BELOW: usize = 4;

/// What a tree consists of at one moment.
#[derive(Debug, Clone)]
pub(super) struct TreeState {
    pub(super) active: Arc<LoggedMemtable>,
    /// Full memtables, newest first.
    pub(super) immutables: Vec<Arc<LoggedMemtable>>,
    pub(super) version: Arc<Version>,
    /// The sorted views of the version's levels.
    pub(super) views: TreeViews,
}

impl TreeState {
    /// All memtables, newest first.
    pub(super) fn memtables(&self) -> impl DoubleEndedIterator<Item = &Arc<LoggedMemtable>> + Clone {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// The same with the writable memtable moved to the full ones. The next one may take `budget_bytes`.
    pub(super) fn rotated(&self, budget_bytes: usize) -> Self {
        let mut immutables = Vec::with_capacity(1 + self.immutables.len());
        immutables.push(self.active.clone());
        immutables.extend_from_slice(&self.immutables);
        let active = LoggedMemtable::following(&self.active.memtable, budget_bytes);
        Self { active: Arc::new(active), immutables, ..self.clone() }
    }

    /// The same after a keeper took everything: no entries, but the segments that they are in are still needed.
    pub(super) fn handed_over(&self) -> Self {
        let active = LoggedMemtable::needing_logs_of(self.memtables());
        Self { active: Arc::new(active), immutables: Vec::new(), ..self.clone() }
    }

    /// The same with another version and without the full memtables in `flushed`, which are the oldest; `retained` takes
    /// their place.
    pub(super) fn installed(
        &self,
        version: Arc<Version>,
        flushed: &[Arc<LoggedMemtable>],
        retained: Option<Arc<LoggedMemtable>>,
    ) -> Self {
        let waits = |memtable: &&Arc<LoggedMemtable>| !flushed.iter().any(|done| Arc::ptr_eq(done, memtable));
        Self {
            active: self.active.clone(),
            immutables: self.immutables.iter().filter(waits).cloned().chain(retained).collect(),
            views: self.views.of_version(&version),
            version,
        }
    }

    /// The same with `compacted` instead of the full memtables `inputs`; `None` where these are not there any more.
    pub(super) fn compacted_in_memory(
        &self,
        inputs: &[Arc<LoggedMemtable>],
        compacted: Arc<LoggedMemtable>,
    ) -> Option<Self> {
        let (first, last) = inputs.first().zip(inputs.last())?;
        let position = |one| self.immutables.iter().position(|logged| Arc::ptr_eq(logged, one));
        let range = position(first)?..=position(last)?;
        if range.clone().count() != inputs.len() {
            return None;
        }
        let mut immutables = self.immutables.clone();
        immutables.splice(range, [compacted]);
        Some(Self { immutables, ..self.clone() })
    }

    /// Full memtables that wait to be flushed; one of entries that were kept back, or compacted in memory, does not wait.
    pub(super) fn waiting(&self) -> usize {
        self.immutables.iter().filter(|logged| logged.is_of_writers()).count()
    }

    /// Bytes of log with entries that were kept back.
    pub(super) fn retained_bytes(&self) -> u64 {
        self.immutables.iter().map(|logged| logged.retained_bytes()).sum()
    }

    /// True where a range tombstone may cover something.
    #[inline]
    pub(super) fn has_range_tombstones(&self) -> bool {
        !self.version.range_tombstones().is_empty()
            || self.memtables().any(|logged| logged.memtable.has_range_tombstones())
    }

    /// The newest range tombstone over `key` at or below `at_most`; 0 if there is none.
    pub(super) fn newest_range_tombstone(&self, key: &[u8], at_most: SequenceNumber) -> SequenceNumber {
        let in_memtables = self
            .memtables()
            .map(|logged| logged.memtable.newest_range_tombstone(key, at_most))
            .max()
            .unwrap_or(0);
        in_memtables.max(self.version.range_tombstones().newest_covering(key, at_most))
    }

    /// The newest version of `key` at or below `sequence` that is visible: not deleted by a tombstone
    /// or a range tombstone. `read` takes what it needs from the component where it was found.
    pub(super) fn get(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(SequenceNumber, ValueRef)>> {
        let found = self.find(key, sequence)?;
        Ok(found.and_then(|(trailer, value)| {
            self.shows(key, trailer, sequence).then(|| (trailer.sequence(), value))
        }))
    }

    /// The sequence number of what [`get`](Self::get) would answer, without reading its value.
    pub(super) fn newest_sequence(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<SequenceNumber>> {
        let found = self.find_trailer(key, sequence)?;
        Ok(found.filter(|&trailer| self.shows(key, trailer, sequence)).map(Trailer::sequence))
    }

    /// Fails if `new` further range tombstones were too many.
    pub(super) fn check_range_tombstones(&self, new: usize) -> Result<()> {
        if new == 0 {
            return Ok(());
        }
        let in_memtables: usize =
            self.memtables().map(|logged| logged.memtable.range_tombstone_count()).sum();
        let all = self.version.range_tombstones().len() + in_memtables + new;
        if all > MAX_RANGE_TOMBSTONES {
            let what =
                "the number of deleted ranges that are not compacted away yet (compact the collection)";
            return Err(Error::limit_exceeded(what, all as u64, MAX_RANGE_TOMBSTONES as u64));
        }
        Ok(())
    }

    /// Cursors over everything that may hold an entry within `bounds`, newest component first; of the
    /// memtables with the versions that `visibility` says.
    pub(super) fn sources(&self, visibility: Visibility, bounds: &Bounds) -> Vec<Source> {
        self.views.note_reader();
        let memtables = self.memtables().filter(|logged| !logged.memtable.is_empty());
        let mut sources = Vec::with_capacity(self.immutables.len() + MAX_SOURCES_BELOW);
        sources.extend(memtables.map(|logged| Source::from(logged.memtable.cursor(visibility))));
        let touches = |run: &&Arc<SortedRun>| {
            bounds.lower().is_none_or(|lower| run.largest_key() >= lower)
                && bounds.upper().is_none_or(|upper| run.smallest_key() < upper)
        };
        let seen_at = match visibility {
            Visibility::At(sequence) => Some(sequence),
            Visibility::All => None,
        };
        let mut runs = self.version.runs();
        while let Some((run, rest)) = runs.split_first() {
            let at = self.version.runs().len() - runs.len();
            let viewed = self
                .views
                .starting_at(at)
                .and_then(|level| Some((level, runs.split_at_checked(level.runs().len())?)));
            if let Some((level, (of_level, below))) = viewed {
                let mut touched = of_level.iter().filter(touches);
                match (touched.next(), touched.next()) {
                    (Some(run), None) => sources.push(Source::from(RunCursor::new(run.clone(), true))),
                    (Some(_), Some(_)) => level_sources(level, seen_at, bounds, &mut sources),
                    (None, _) => {}
                }
                runs = below;
                continue;
            }
            if touches(&run) {
                sources.push(Source::from(RunCursor::new(run.clone(), true)));
            }
            runs = rest;
        }
        sources
    }

    /// Cursors over everything that may hold a version above `sequence`, newest component first, with all versions.
    pub(super) fn sources_behind(&self, sequence: SequenceNumber) -> Vec<Source> {
        let memtables = self.memtables().filter(|logged| !logged.memtable.is_empty());
        let mut sources: Vec<Source> =
            memtables.map(|logged| Source::from(logged.memtable.cursor(Visibility::All))).collect();
        let is_new =
            |run: &&Arc<SortedRun>| run.tables().iter().any(|table| table.meta().largest_sequence > sequence);
        let runs = self.version.runs().iter().filter(is_new);
        sources.extend(runs.map(|run| Source::from(RunCursor::new(run.clone(), false))));
        sources
    }

    /// Cursors over the sstables `wanted`, the inputs of a compaction, and how many bytes they will read. Blocks are not put
    /// into the cache: each is read once.
    pub(super) fn input_sources(&self, wanted: &BTreeSet<u64>) -> Result<(Vec<Source>, u64)> {
        let (mut sources, mut bytes, mut found) = (Vec::new(), 0, 0);
        for run in self.version.runs() {
            let is_input = |table: &&Arc<TableHandle>| wanted.contains(&table.meta().number);
            let tables: Vec<_> = run.tables().iter().filter(is_input).cloned().collect();
            if tables.is_empty() {
                continue;
            }
            found += tables.len();
            bytes += tables.iter().map(|table| table.meta().file_bytes).sum::<u64>();
            let inputs = SortedRun::new(run.level(), run.id(), tables).map_err(Error::internal)?;
            sources.push(Source::from(RunCursor::new(Arc::new(inputs), false)));
        }
        if found != wanted.len() {
            return Err(Error::internal("an input of a compaction is not there"));
        }
        Ok((sources, bytes))
    }

    /// The range tombstones of all components together.
    pub(super) fn merged_range_tombstones(&self) -> Result<Arc<RangeTombstones>> {
        let of_version = self.version.range_tombstones();
        let mut merged: Option<RangeTombstones> = None;
        for logged in self.memtables().filter(|logged| logged.memtable.has_range_tombstones()) {
            let all = merged.get_or_insert_with(|| (**of_version).clone());
            for tombstone in logged.memtable.range_tombstones() {
                all.add(tombstone)?;
            }
        }
        Ok(merged.map_or_else(|| of_version.clone(), Arc::new))
    }

    /// True where a version that was found at `sequence` is neither deleted nor in a deleted range.
    pub(super) fn shows(&self, key: &[u8], trailer: Trailer, sequence: SequenceNumber) -> bool {
        !trailer.is_delete() && self.shows_put(key, trailer.sequence(), sequence)
    }

    /// True where what was put at `written` is not in a range that was deleted since, for a reader at `sequence`.
    pub(super) fn shows_put(&self, key: &[u8], written: SequenceNumber, sequence: SequenceNumber) -> bool {
        !self.has_range_tombstones() || self.newest_range_tombstone(key, sequence) <= written
    }

    fn find(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        let hash = hash_key(key);
        if let Some((trailer, value)) = self.newest_in_memtables(key, hash, sequence) {
            return Ok(Some((trailer, ValueRef::from(value))));
        }
        self.newest_in_tables(key, hash, sequence)
    }

    /// The newest version of `key`, with this hash, in sstables.
    pub(super) fn newest_in_tables(
        &self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Result<Option<(Trailer, ValueRef)>> {
        note_get(true);
        self.views.note_reader();
        if self.views.serve_reads() {
            return self.find_through_views(key, sequence);
        }
        self.prepare_tables(key, hash);
        for run in self.version.runs() {
            if let Some(table) = run.find(key)
                && let Some(found) = table.reader()?.get_hashed(key, hash, sequence)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_trailer(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<Trailer>> {
        let hash = hash_key(key);
        if let Some((trailer, _)) = self.newest_in_memtables(key, hash, sequence) {
            return Ok(Some(trailer));
        }
        note_get(true);
        self.views.note_reader();
        if self.views.serve_reads() {
            return Ok(self.find_through_views(key, sequence)?.map(|(trailer, _)| trailer));
        }
        self.prepare_tables(key, hash);
        for run in self.version.runs() {
            if let Some(table) = run.find(key)
                && let Some(trailer) = table.reader()?.newest_hashed(key, hash, sequence)?
            {
                return Ok(Some(trailer));
            }
        }
        Ok(None)
    }

    /// The newest version of `key` in sstables at or below `sequence`: through the views of partitions that answer point reads,
    /// and run by run elsewhere.
    pub(super) fn find_through_views(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(Trailer, ValueRef)>> {
        let mut at = 0;
        while let Some(run) = self.version.runs().get(at) {
            let level = self.views.starting_at(at);
            let found = match level.and_then(|level| Some((level, level.serving(key)?))) {
                Some((level, partition)) => {
                    at += level.runs().len();
                    partition.get(key, sequence)?
                }
                None => {
                    at += 1;
                    run.find(key).map_or(Ok(None), |table| table.reader()?.get(key, sequence))?
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The newest version of `key`, with this hash, in memtables.
    #[inline]
    pub(super) fn newest_in_memtables(
        &self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<(Trailer, &[u8])> {
        // So that several wait for memory together.
        if !self.immutables.is_empty() {
            self.memtables().for_each(|logged| logged.memtable.prefetch_hashed(hash));
        }
        self.views.prefetch_if_expected(key);
        let found = self.memtables().find_map(|logged| logged.memtable.get_hashed(key, hash, sequence))?;
        note_get(false);
        Some(found)
    }

    /// Asks the processor for the place of the key in each filter, so that the runs, which are looked at one by one,
    /// wait for memory together.
    #[inline]
    fn prepare_tables(&self, key: &[u8], hash: u64) {
        for run in self.version.runs() {
            if let Some(reader) = run.find(key).and_then(|table| table.opened_reader()) {
                reader.prefetch_filter(hash);
            }
        }
    }
}

/// Adds cursors over what `level` may have within `bounds`, through the views of its partitions.
fn level_sources(
    level: &Arc<ViewedLevel>,
    seen_at: Option<SequenceNumber>,
    bounds: &Bounds,
    sources: &mut Vec<Source>,
) {
    let first = bounds.lower().map_or(0, |lower| level.position(lower));
    let last = bounds.upper().map_or(usize::MAX, |upper| level.position(upper));
    match level.partitions().get(first) {
        Some(partition) if first == last || level.partitions().len() == 1 => {
            sources.extend(partition.sources(seen_at, true).map(Source::from));
        }
        _ => {
            let run = PartitionRun { level: level.clone(), seen_at };
            sources.push(Source::from(RunCursor::new(run, true)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_number_from_behind_a_replacement_goes_with_the_state_from_behind_it() {
        let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
        let tree = Tree::new(1, TreeOptions::default(), Arc::from(*b""), version, 1 << 20);
        // Told while the state is replaced, the number is one that the old state does not have.
        for half_way in [false, true] {
            tree.replacements.fetch_or(u64::from(half_way), Ordering::Relaxed);
            let (before, asked) = (tree.state(), Cell::new(0));
            let (state, sequence) = tree.newest_state(|| {
                if asked.replace(asked.get() + 1) == 0 {
                    match half_way {
                        false => tree.replace_state(|state| state.rotated(1 << 20)),
                        // It has begun before the reader came, and does not end before that has gone.
                        true => tree.state.store(Arc::new(tree.state().rotated(1 << 20))),
                    }
                }
                asked.get()
            });
            assert_eq!((sequence, asked.get()), (2, 2));
            assert!(!Arc::ptr_eq(&state, &before) && Arc::ptr_eq(&state, &tree.state()));
        }
        // One that takes its time keeps nobody waiting.
        let asked = Cell::new(0);
        tree.newest_state(|| asked.replace(asked.get() + 1));
        assert_eq!(asked.get(), 1);
    }
}
