//! The components of a tree at one moment.

use std::collections::BTreeSet;
use std::sync::Arc;

use bolide_base::limits::MAX_RANGE_TOMBSTONES;
use bolide_base::{Error, Result, SequenceNumber, Trailer};

use super::logged_memtable::LoggedMemtable;
use super::tree_views::TreeViews;
use crate::cursor::{Bounds, ComponentCursor, RunCursor};
use crate::memtable::Visibility;
use crate::range_tombstones::RangeTombstones;
use crate::remix::{PartitionRun, ViewedLevel};
use crate::version::{SortedRun, TableHandle, Version};

/// Initial capacity for sources other than full memtables; usually enough.
const EXPECTED_OTHER_SOURCES: usize = 4;

/// The components of a tree at one moment.
#[derive(Debug, Clone)]
pub(in crate::store) struct TreeState {
    pub(in crate::store) active: Arc<LoggedMemtable>,
    /// Full memtables, newest first.
    pub(in crate::store) immutables: Vec<Arc<LoggedMemtable>>,
    pub(in crate::store) version: Arc<Version>,
    /// The sorted views of the version's levels.
    pub(in crate::store) views: TreeViews,
}

impl TreeState {
    /// All memtables, newest first.
    pub(in crate::store) fn memtables(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<LoggedMemtable>> + Clone {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// The state with the writable memtable moved to the full ones. The next one has a budget of `budget_bytes`.
    pub(in crate::store) fn rotated(&self, budget_bytes: usize) -> Self {
        let mut immutables = Vec::with_capacity(1 + self.immutables.len());
        immutables.push(self.active.clone());
        immutables.extend_from_slice(&self.immutables);
        let active = LoggedMemtable::sized_like(&self.active.memtable, budget_bytes);
        Self { active: Arc::new(active), immutables, ..self.clone() }
    }

    /// The state without entries, after their transfer to an external tree. Their log segments are still needed.
    pub(in crate::store) fn without_entries(&self) -> Self {
        let active = LoggedMemtable::requiring_logs_of(self.memtables());
        Self { active: Arc::new(active), immutables: Vec::new(), ..self.clone() }
    }

    /// The state with another version, and with `retained` in the place of the oldest full memtables, `flushed`.
    pub(in crate::store) fn installed(
        &self,
        version: Arc<Version>,
        flushed: &[Arc<LoggedMemtable>],
        retained: Option<Arc<LoggedMemtable>>,
    ) -> Self {
        let stays = |memtable: &&Arc<LoggedMemtable>| !flushed.iter().any(|done| Arc::ptr_eq(done, memtable));
        Self {
            active: self.active.clone(),
            immutables: self.immutables.iter().filter(stays).cloned().chain(retained).collect(),
            views: self.views.of_version(&version),
            version,
        }
    }

    /// The state with `compacted` in the place of the full memtables `inputs`; `None` if they are not there any more.
    pub(in crate::store) fn compacted_in_memory(
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

    /// Whether recovery needs the log for a memtable.
    pub(in crate::store) fn needs_log(&self) -> bool {
        self.memtables().any(|logged| logged.first_log().is_some())
    }

    /// Number of full memtables that wait for a flush. Those of retained entries and of compactions in memory do not.
    pub(in crate::store) fn pending_flushes(&self) -> usize {
        self.immutables.iter().filter(|logged| logged.is_from_writers()).count()
    }

    /// Bytes of the log with retained entries.
    pub(in crate::store) fn retained_bytes(&self) -> u64 {
        self.immutables.iter().map(|logged| logged.retained_bytes()).sum()
    }

    /// True if a range tombstone may cover a key.
    #[inline]
    pub(in crate::store) fn has_range_tombstones(&self) -> bool {
        !self.version.range_tombstones().is_empty()
            || self.memtables().any(|logged| logged.memtable.has_range_tombstones())
    }

    /// The sequence number of the newest range tombstone over `key` at or below `max_sequence`; 0 if there is none.
    pub(in crate::store) fn newest_range_tombstone(
        &self,
        key: &[u8],
        max_sequence: SequenceNumber,
    ) -> SequenceNumber {
        let in_memtables = self
            .memtables()
            .map(|logged| logged.memtable.newest_range_tombstone(key, max_sequence))
            .max()
            .unwrap_or(0);
        in_memtables.max(self.version.range_tombstones().newest_covering(key, max_sequence))
    }

    /// Fails if `new` more range tombstones exceed the limit.
    pub(in crate::store) fn check_range_tombstones(&self, new: usize) -> Result<()> {
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

    /// Cursors over all components with entries within `bounds`, newest first; in memtables, the versions of `visibility`.
    pub(in crate::store) fn sources(&self, visibility: Visibility, bounds: &Bounds) -> Vec<ComponentCursor> {
        self.views.note_read();
        let memtables = self.memtables().filter(|logged| !logged.memtable.is_empty());
        let mut sources = Vec::with_capacity(self.immutables.len() + EXPECTED_OTHER_SOURCES);
        sources.extend(memtables.map(|logged| ComponentCursor::from(logged.memtable.cursor(visibility))));
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
                    (Some(run), None) => {
                        sources.push(ComponentCursor::from(RunCursor::new(run.clone(), true)))
                    }
                    (Some(_), Some(_)) => level_sources(level, seen_at, bounds, &mut sources),
                    (None, _) => {}
                }
                runs = below;
                continue;
            }
            if touches(&run) {
                sources.push(ComponentCursor::from(RunCursor::new(run.clone(), true)));
            }
            runs = rest;
        }
        sources
    }

    /// Cursors over all components that may have a version above `sequence`, newest component first, with all versions.
    pub(in crate::store) fn sources_above(&self, sequence: SequenceNumber) -> Vec<ComponentCursor> {
        let memtables = self.memtables().filter(|logged| !logged.memtable.is_empty());
        let mut sources: Vec<ComponentCursor> =
            memtables.map(|logged| ComponentCursor::from(logged.memtable.cursor(Visibility::All))).collect();
        let is_new =
            |run: &&Arc<SortedRun>| run.tables().iter().any(|table| table.meta().largest_sequence > sequence);
        let runs = self.version.runs().iter().filter(is_new);
        sources.extend(runs.map(|run| ComponentCursor::from(RunCursor::new(run.clone(), false))));
        sources
    }

    /// Cursors over the components with an entry at or above `since`: memtables, and of each sorted run the sstables that may
    /// have one.
    pub(in crate::store) fn sources_since(
        &self,
        since: SequenceNumber,
        seen_at: SequenceNumber,
    ) -> Result<Vec<ComponentCursor>> {
        self.views.note_read();
        let is_recent = |largest: SequenceNumber| largest >= since;
        let memtables =
            self.memtables().filter(|logged| logged.memtable.largest_sequence().is_some_and(is_recent));
        let visibility = Visibility::At(seen_at);
        let mut sources: Vec<ComponentCursor> =
            memtables.map(|logged| ComponentCursor::from(logged.memtable.cursor(visibility))).collect();
        for run in self.version.runs().iter().filter(|run| is_recent(run.largest_sequence())) {
            let recent = run.tables().iter().filter(|table| is_recent(table.meta().largest_sequence));
            let tables: Vec<_> = recent.cloned().collect();
            let run = match tables.len() == run.tables().len() {
                true => run.clone(),
                false => Arc::new(SortedRun::new(run.level(), run.id(), tables).map_err(Error::internal)?),
            };
            sources.push(ComponentCursor::from(RunCursor::new(run, true)));
        }
        Ok(sources)
    }

    /// Cursors over the sstables `file_numbers`, the inputs of a compaction, and the number of bytes that they read. Blocks
    /// bypass the cache: each is read once.
    pub(in crate::store) fn input_sources(
        &self,
        file_numbers: &BTreeSet<u64>,
    ) -> Result<(Vec<ComponentCursor>, u64)> {
        let (mut sources, mut bytes, mut found) = (Vec::new(), 0, 0);
        for run in self.version.runs() {
            let is_input = |table: &&Arc<TableHandle>| file_numbers.contains(&table.meta().number);
            let tables: Vec<_> = run.tables().iter().filter(is_input).cloned().collect();
            if tables.is_empty() {
                continue;
            }
            found += tables.len();
            bytes += tables.iter().map(|table| table.meta().file_bytes).sum::<u64>();
            let inputs = SortedRun::new(run.level(), run.id(), tables).map_err(Error::internal)?;
            sources.push(ComponentCursor::from(RunCursor::new(Arc::new(inputs), false)));
        }
        if found != file_numbers.len() {
            return Err(Error::internal("an input of a compaction is missing"));
        }
        Ok((sources, bytes))
    }

    /// The range tombstones of all components, merged.
    pub(in crate::store) fn merged_range_tombstones(&self) -> Result<Arc<RangeTombstones>> {
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

    /// True if a version found at `sequence` is neither a delete nor covered by a range tombstone.
    pub(in crate::store) fn is_visible(
        &self,
        key: &[u8],
        trailer: Trailer,
        sequence: SequenceNumber,
    ) -> bool {
        !trailer.is_delete() && self.is_put_visible(key, trailer.sequence(), sequence)
    }

    /// True if no range tombstone that a reader at `at` sees covers a put at `written`.
    pub(in crate::store) fn is_put_visible(
        &self,
        key: &[u8],
        written: SequenceNumber,
        at: SequenceNumber,
    ) -> bool {
        !self.has_range_tombstones() || self.newest_range_tombstone(key, at) <= written
    }
}

/// Adds cursors over the entries of `level` within `bounds`, through the views of its partitions.
fn level_sources(
    level: &Arc<ViewedLevel>,
    seen_at: Option<SequenceNumber>,
    bounds: &Bounds,
    sources: &mut Vec<ComponentCursor>,
) {
    let first = bounds.lower().map_or(0, |lower| level.position(lower));
    let last = bounds.upper().map_or(usize::MAX, |upper| level.position(upper));
    match level.partitions().get(first) {
        Some(partition) if first == last || level.partitions().len() == 1 => {
            sources.extend(partition.sources(seen_at, true).map(ComponentCursor::from));
        }
        _ => {
            let run = PartitionRun { level: level.clone(), seen_at };
            sources.push(ComponentCursor::from(RunCursor::new(run, true)));
        }
    }
}
