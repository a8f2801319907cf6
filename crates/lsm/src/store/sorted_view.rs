//! The sorted views of trees (REMIX): which there are, and when they are renewed.
//!
//! A flush or compaction ends with views of the runs it leaves: for each partition that is behind, one is built from the
//! view before and the runs that are new (§4.3). Which layouts have views is for [`StoreOptions::sorted_views`] to say; a tiered level
//! is one partition. Views are a part of the tree's state. Until a view is there, and where it would not pay (a single
//! run, more than a REMIX can have) or cannot be built, readers merge as ever.
//!
//! Point reads keep asking Bloom filters, which for a few runs cost less than a search in the view (REMIX §5.1); where
//! there are none they go through the view.
//!
//! [`StoreOptions::sorted_views`]: crate::StoreOptions::sorted_views

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::Result;

use super::StoreInner;
use super::tree::{Tree, TreeState};
use crate::remix::{Remix, RemixOptions, SortedView, ViewRun, ViewedLevel, ViewedPartition};
use crate::version::{LEVELS, SortedRun, Version};

/// The views of the levels of one version.
#[derive(Debug, Clone, Default)]
pub(super) struct TreeViews {
    /// The first level that has views; `None` for no level.
    first_level: Option<usize>,
    /// Levels with more than one run, the first on disk first.
    levels: Vec<Arc<ViewedLevel>>,
}

impl TreeViews {
    /// Those among `known` that fit `version`, from `first_level` on.
    fn of(version: &Version, first_level: Option<usize>, known: &[Arc<SortedView>], before: &Self) -> Self {
        let levels = first_level.map_or(LEVELS, |level| level)..LEVELS;
        let of_level = |level| ViewedLevel::of(version, level, known, before.level(level));
        Self { first_level, levels: levels.filter_map(of_level).collect() }
    }

    /// Those that fit `version`.
    pub(super) fn of_version(&self, version: &Version) -> Self {
        match self.first_level {
            Some(_) => Self::of(version, self.first_level, &self.known(), self),
            None => Self::default(),
        }
    }

    fn level(&self, level: usize) -> Option<&ViewedLevel> {
        self.levels.iter().find(|viewed| viewed.level() == level).map(|viewed| &**viewed)
    }

    fn partitions(&self) -> impl Iterator<Item = &Arc<ViewedPartition>> {
        self.levels.iter().flat_map(|level| level.partitions())
    }

    /// All views, and those that no longer count but that others can be made from.
    fn known(&self) -> Vec<Arc<SortedView>> {
        self.partitions().filter_map(|partition| partition.base().cloned()).collect()
    }

    /// The level whose first run is number `run` of the version.
    #[inline]
    pub(super) fn starting_at(&self, run: usize) -> Option<&Arc<ViewedLevel>> {
        self.levels.iter().find(|level| level.runs().start == run)
    }

    /// Whether some point reads go through views.
    #[inline]
    pub(super) fn serve_reads(&self) -> bool {
        self.levels.iter().any(|level| level.serves_reads())
    }

    /// The bytes that they take in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let views = self.partitions().filter_map(|partition| partition.view());
        views.map(|view| view.memory_bytes()).sum()
    }
}

impl StoreInner {
    /// Whether sstables of `tree` are to be read through views.
    pub(super) fn has_views(&self, tree: &Tree) -> bool {
        self.options.sorted_views.first_level(tree.options().layout).is_some()
    }

    /// Brings the views of `tree` up to its runs, unless somebody is at it, who then does this too. Reads the sstables
    /// that are new to them.
    ///
    /// A view is a help: an error to read sstables leaves a partition without one, and is told to whoever reads them next.
    pub(super) fn renew_views(&self, tree: &Arc<Tree>) {
        tree.views_wait.store(true, Ordering::SeqCst);
        // Looked at again after the lock is free: who could not take it has left it to the one who had it.
        while tree.views_wait.load(Ordering::SeqCst) {
            let Some(_renewing) = tree.renewing.try_lock() else { return };
            tree.views_wait.store(false, Ordering::SeqCst);
            self.renew_now(tree);
        }
    }

    fn renew_now(&self, tree: &Arc<Tree>) {
        let first_level = self.options.sorted_views.first_level(tree.options().layout);
        let state = tree.state();
        if first_level != state.views.first_level {
            // The layout was changed: nothing of the old one is to be held.
            tree.replace_state(|now| {
                let views = TreeViews::of(&now.version, first_level, &[], &TreeViews::default());
                TreeState { views, ..now.clone() }
            });
        }
        let state = tree.state();
        let behind = state.views.partitions().filter(|partition| partition.is_behind());
        let options = RemixOptions::default();
        let (mut built, mut tried) = (Vec::new(), Vec::new());
        for partition in behind {
            if self.is_abandoned(tree) {
                return;
            }
            tried.extend(partition.base());
            built.extend(view_of(partition, &options));
        }
        if built.is_empty() && tried.is_empty() {
            return;
        }
        let is_tried = |view: &Arc<SortedView>| tried.iter().any(|tried| Arc::ptr_eq(tried, view));
        tree.replace_state(|now| {
            // Views that were tried but could not be followed go, and with them the files that they hold.
            let counts = |partition: &&Arc<ViewedPartition>| {
                partition.view().is_some() || partition.base().is_some_and(|base| !is_tried(base))
            };
            let held = now.views.partitions().filter(counts).filter_map(|partition| partition.base());
            let known: Vec<_> = built.iter().chain(held).cloned().collect();
            let views = TreeViews::of(&now.version, now.views.first_level, &known, &now.views);
            TreeState { views, ..now.clone() }
        });
    }
}

/// The view of all runs of `partition`, made from the one it has.
fn view_of(partition: &ViewedPartition, options: &RemixOptions) -> Result<Arc<SortedView>> {
    let old = partition.base();
    let known = |run: &Arc<SortedRun>| {
        let same = |view: &&Arc<ViewRun>| view.sorted_run().is_some_and(|known| known.has_tables_of(run));
        old.and_then(|old| old.runs().iter().find(same).cloned())
    };
    let runs = partition.runs().iter();
    let runs: Result<Vec<_>> = runs.map(|run| known(run).map_or_else(|| ViewRun::of(run), Ok)).collect();
    let runs = runs?;
    let remix = match old {
        Some(old) => Remix::rebuild(old, &runs, options)?.0,
        None => Remix::build(&runs, options)?,
    };
    SortedView::new(remix, runs)
}
