//! The sorted views of the levels of one version of a tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::predictor::Predictor;
use crate::remix::{ViewedLevel, ViewedPartition};
use crate::version::{StoredView, LEVELS, Version};

thread_local! {
    /// Whether the keys that this thread asks for are neither in memtables nor rows.
    static GETS: Predictor = const { Predictor::new() };
}

/// Notes whether a single key was neither in memtables nor rows.
#[inline]
pub(super) fn note_get(in_tables: bool) {
    GETS.with(|gets| gets.note(in_tables));
}

/// The views of the levels of one version.
#[derive(Debug, Clone, Default)]
pub(super) struct TreeViews {
    /// The first level that has views; `None` for no level.
    pub(super) first_level: Option<usize>,
    /// Levels with more than one run, the first on disk first.
    levels: Vec<Arc<ViewedLevel>>,
    /// A reader came by since they were renewed. Shared with those before and after.
    wanted: Arc<AtomicBool>,
}

impl TreeViews {
    /// Those among `known` that fit `version`, from `first_level` on.
    pub(super) fn of(
        version: &Version,
        first_level: Option<usize>,
        known: &[Arc<StoredView>],
        before: &Self,
    ) -> Self {
        let levels = first_level.map_or(LEVELS, |level| level)..LEVELS;
        let of_level = |level| ViewedLevel::of(version, level, known, before.level(level));
        let levels: Vec<_> = levels.filter_map(of_level).collect();
        Self { first_level, levels, wanted: Arc::clone(&before.wanted) }
    }

    /// Those that fit `version`.
    pub(super) fn of_version(&self, version: &Version) -> Self {
        match self.first_level {
            Some(_) => Self::of(version, self.first_level, &self.known(), self),
            None => Self { wanted: Arc::clone(&self.wanted), ..Self::default() },
        }
    }

    /// Notes that somebody reads sstables. A load where that is known.
    #[inline]
    pub(super) fn note_reader(&self) {
        if !self.wanted.load(Ordering::Relaxed) {
            self.want();
        }
    }

    /// Has views that are behind renewed without waiting for a quiet moment.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether somebody read since [`begin_renewal`](Self::begin_renewal).
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Forgets who read so far.
    pub(super) fn begin_renewal(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    fn level(&self, level: usize) -> Option<&ViewedLevel> {
        self.levels.iter().find(|viewed| viewed.level() == level).map(|viewed| &**viewed)
    }

    pub(super) fn partitions(&self) -> impl Iterator<Item = &Arc<ViewedPartition>> {
        self.levels.iter().flat_map(|level| level.partitions())
    }

    /// All views, and those that no longer count but that others can be made from.
    fn known(&self) -> Vec<Arc<StoredView>> {
        self.partitions().filter_map(|partition| partition.base().cloned()).collect()
    }

    /// The level whose first run is number `run` of the version.
    #[inline]
    pub(super) fn starting_at(&self, run: usize) -> Option<&Arc<ViewedLevel>> {
        self.levels.iter().find(|level| level.runs().start == run)
    }

    /// Asks the processor for what a point read of `key` through views begins with, where the last keys that this thread asked
    /// for were neither in memtables nor rows. Purely a hint.
    #[inline]
    pub(super) fn prefetch_if_expected(&self, key: &[u8]) {
        if !GETS.with(Predictor::holds) {
            return;
        }
        for level in self.levels.iter().filter(|level| level.serves_reads()) {
            if let Some(partition) = level.serving(key) {
                partition.prefetch(key);
            }
        }
    }

    /// Whether some point reads go through views.
    #[inline]
    pub(super) fn serve_reads(&self) -> bool {
        self.levels.iter().any(|level| level.serves_reads())
    }

    /// The bytes that they take in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let views = self.partitions().filter_map(|partition| partition.stored_view()?.in_hand());
        views.map(|view| view.memory_bytes()).sum()
    }

    /// The bytes of their files.
    pub(super) fn file_bytes(&self) -> u64 {
        let views = self.partitions().filter_map(|partition| partition.stored_view());
        views.map(|view| view.meta().file_bytes).sum()
    }

    /// Whether readers merge somewhere although a view could spare them that.
    pub(super) fn are_behind(&self) -> bool {
        self.partitions().any(|partition| partition.is_behind())
    }
}
