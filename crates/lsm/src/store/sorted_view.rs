//! Sorted views over the runs of tiered trees (REMIX), where [`StoreOptions::sorted_views`] asks for them.
//!
//! A flush or compaction of such a tree ends with the view of the runs it leaves: rebuilt from the view before and the
//! runs that are new. Cursors of readers then go through one view instead of merging the runs; memtables are merged
//! with it as with any run. A view is a part of the tree's state and lives in memory alone. Until it is there, and
//! where it would not pay (a single run, more than a REMIX can have) or cannot be built, readers merge as ever.
//!
//! Point reads keep asking Bloom filters, which for a few runs cost less than a search in the view (REMIX §5.1);
//! in a tree without filters they go through the view.
//!
//! [`StoreOptions::sorted_views`]: crate::StoreOptions::sorted_views

use std::sync::Arc;

use bolide_base::Result;

use super::StoreInner;
use super::tree::{Tree, TreeState};
use crate::options::Layout;
use crate::remix::{MAX_RUNS, Remix, RemixOptions, SortedView, ViewRun};
use crate::version::SortedRun;

/// Fewest runs that a view pays for.
const MIN_RUNS: usize = 2;

impl StoreInner {
    /// Brings the view of `tree` up to its runs. Reads the sstables that are new to it.
    ///
    /// A view is a help: an error to read them leaves the tree without one, and is told to whoever reads them next.
    pub(super) fn renew_view(&self, tree: &Arc<Tree>) {
        if !self.options.sorted_views {
            return;
        }
        let state = tree.state();
        if state.sorted_view().is_some() {
            return;
        }
        if tree.options().layout != Layout::Tiered {
            // The layout may have been changed: nothing of the old one is to be held.
            if state.view.is_some() {
                tree.replace_state(|now| TreeState { view: None, ..now.clone() });
            }
            return;
        }
        let runs = state.version.runs();
        let view = match runs.len() {
            MIN_RUNS..=MAX_RUNS => view_of(runs, state.view.as_deref()).ok(),
            _ => None,
        };
        tree.replace_state(|now| {
            let next = TreeState { view, ..now.clone() };
            // Somebody else may have installed other runs meanwhile, and their view.
            if next.sorted_view().is_none() && now.sorted_view().is_some() { now.clone() } else { next }
        });
    }
}

/// The view of `runs`, with the help of an older one.
fn view_of(runs: &[Arc<SortedRun>], old: Option<&SortedView>) -> Result<Arc<SortedView>> {
    let known = |run: &Arc<SortedRun>| {
        let same = |view: &&Arc<ViewRun>| view.sorted_run().is_some_and(|known| Arc::ptr_eq(known, run));
        old.and_then(|old| old.runs().iter().find(same).cloned())
    };
    let runs: Result<Vec<_>> =
        runs.iter().map(|run| known(run).map_or_else(|| ViewRun::of(run), Ok)).collect();
    let (runs, options) = (runs?, RemixOptions::default());
    let remix = match old {
        Some(old) => Remix::rebuild(old, &runs, &options)?.0,
        None => Remix::build(&runs, &options)?,
    };
    SortedView::new(remix, runs)
}

impl TreeState {
    /// The view of all runs of the version, if there is one.
    #[inline]
    pub(super) fn sorted_view(&self) -> Option<&Arc<SortedView>> {
        let view = self.view.as_ref()?;
        let runs = self.version.runs();
        // A view may be that of runs before; it is kept to make the next one from.
        let same = |(known, run): (&Arc<ViewRun>, &Arc<SortedRun>)| {
            known.sorted_run().is_some_and(|known| Arc::ptr_eq(known, run))
        };
        (view.runs().len() == runs.len() && view.runs().iter().zip(runs).all(same)).then_some(view)
    }

    /// The view, where point reads do better through it than through filters.
    #[inline]
    pub(super) fn view_without_filters(&self) -> Option<&Arc<SortedView>> {
        self.view.as_ref()?;
        self.sorted_view().filter(|view| !view.has_filters())
    }
}
