//! The sorted views of the levels of one version of a tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::predictor::Predictor;
use crate::remix::{ViewedLevel, ViewedPartition};
use crate::version::{LEVELS, StoredView, Version};

thread_local! {
    /// Predicts whether the keys that this thread reads are in sstables: neither in memtables nor in the row cache.
    static GET_PREDICTOR: Predictor = const { Predictor::new() };
}

/// Records whether a single key was in sstables: neither in memtables nor in the row cache.
#[inline]
pub(in crate::store) fn note_get(is_in_tables: bool) {
    GET_PREDICTOR.with(|predictor| predictor.record(is_in_tables));
}

/// The sorted views of the levels of one version.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct TreeViews {
    /// The first level with views; `None` without views.
    pub(in crate::store) first_level: Option<usize>,
    /// Levels with more than one run, the first on disk first.
    levels: Vec<Arc<ViewedLevel>>,
    /// True once a reader has used sstables since the last rebuild. Shared with earlier and later states.
    demanded: Arc<AtomicBool>,
}

impl TreeViews {
    /// The views among `known` that match `version`, from `first_level` on.
    pub(in crate::store) fn of(
        version: &Version,
        first_level: Option<usize>,
        known: &[Arc<StoredView>],
        before: &Self,
    ) -> Self {
        let levels = first_level.map_or(LEVELS, |level| level)..LEVELS;
        let of_level = |level| ViewedLevel::of(version, level, known, before.level(level));
        let levels: Vec<_> = levels.filter_map(of_level).collect();
        Self { first_level, levels, demanded: Arc::clone(&before.demanded) }
    }

    /// The views that match `version`.
    pub(in crate::store) fn of_version(&self, version: &Version) -> Self {
        match self.first_level {
            Some(_) => Self::of(version, self.first_level, &self.known(), self),
            None => Self { demanded: Arc::clone(&self.demanded), ..Self::default() },
        }
    }

    /// Records a read of sstables. Costs one load if a read is already recorded.
    #[inline]
    pub(in crate::store) fn note_read(&self) {
        if !self.demanded.load(Ordering::Relaxed) {
            self.demand();
        }
    }

    /// Has outdated views rebuilt without waiting for idle writes.
    pub(in crate::store) fn demand(&self) {
        self.demanded.store(true, Ordering::Relaxed);
    }

    /// True if sstables were read since [`begin_rebuild`](Self::begin_rebuild).
    pub(in crate::store) fn are_demanded(&self) -> bool {
        self.demanded.load(Ordering::Relaxed)
    }

    /// Clears the recorded reads.
    pub(in crate::store) fn begin_rebuild(&self) {
        self.demanded.store(false, Ordering::Relaxed);
    }

    fn level(&self, level: usize) -> Option<&ViewedLevel> {
        self.levels.iter().find(|viewed| viewed.level() == level).map(|viewed| &**viewed)
    }

    pub(in crate::store) fn partitions(&self) -> impl Iterator<Item = &Arc<ViewedPartition>> {
        self.levels.iter().flat_map(|level| level.partitions())
    }

    /// All views, and those that only serve as the base of a rebuild.
    fn known(&self) -> Vec<Arc<StoredView>> {
        self.partitions().filter_map(|partition| partition.base().cloned()).collect()
    }

    /// The level whose first run is number `run` of the version.
    #[inline]
    pub(in crate::store) fn starting_at(&self, run: usize) -> Option<&Arc<ViewedLevel>> {
        self.levels.iter().find(|level| level.runs().start == run)
    }

    /// Prefetches the first memory that a point read of `key` through views needs, if the predictor expects the key in
    /// sstables. A hint.
    #[inline]
    pub(in crate::store) fn prefetch_if_expected(&self, key: &[u8]) {
        if !GET_PREDICTOR.with(Predictor::predicts) {
            return;
        }
        for level in self.levels.iter().filter(|level| level.serves_reads()) {
            if let Some(partition) = level.serving(key) {
                partition.prefetch(key);
            }
        }
    }

    /// True if some point reads use views.
    #[inline]
    pub(in crate::store) fn serve_reads(&self) -> bool {
        self.levels.iter().any(|level| level.serves_reads())
    }

    /// Bytes of the views in memory.
    pub(in crate::store) fn memory_bytes(&self) -> usize {
        let views = self.partitions().filter_map(|partition| partition.stored_view()?.loaded());
        views.map(|view| view.memory_bytes()).sum()
    }

    /// Bytes of the files of the views.
    pub(in crate::store) fn file_bytes(&self) -> u64 {
        let views = self.partitions().filter_map(|partition| partition.stored_view());
        views.map(|view| view.meta().file_bytes).sum()
    }

    /// True if readers merge runs that a rebuilt view would contain.
    pub(in crate::store) fn are_behind(&self) -> bool {
        self.partitions().any(|partition| partition.is_behind())
    }
}
