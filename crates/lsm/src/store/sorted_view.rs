//! The sorted views of trees (REMIX): which there are, and when they are renewed.
//!
//! # Order
//! 1. A flush or compaction installs its sstables. Readers merge what the views lack with them; those of a flush into partitions
//!    they see with the views of 5 first (see `shown`).
//! 2. The views that are behind are renewed at once where somebody has read since they were renewed last, or nobody
//!    would look again; else when the first reader comes, or the tree is not written to for a moment. So a load alone
//!    builds them once (the delayed rebuild of §4.3).
//! 3. For each partition that is behind, a view is built from the one before and the runs that are new (§4.3), and written to a
//!    REMIX file. Which layouts have views is for [`StoreOptions::sorted_views`] to say; a tiered level is one partition.
//! 4. One edit names the files, as far as all their sstables are still there, and takes out those that they replace.
//! 5. The tree's state gets the views.
//!
//! A crash before 4 leaves files that nobody names; the next opening removes them, and renews the views that are behind. A file
//! that cannot be written is done without: the view is in memory. One that cannot be read is built again.
//!
//! Where it would not pay (a single run, more than a REMIX can have) there is no view. Point reads keep asking Bloom filters, which
//! for a few runs cost less than a search in the view (REMIX §5.1); where there are none they go through the view.
//!
//! [`StoreOptions::sorted_views`]: crate::StoreOptions::sorted_views

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, FileIdentity, Result};

use super::StoreInner;
use super::scheduler::WorkState;
use super::deferred_publication::{FlushedMemtables, next_state, publish_state};
use super::tree::{Tree, TreeState};
use super::tree_views::TreeViews;
use crate::file_name::FileName;
use crate::remix::{Remix, RemixOptions, SortedView, ViewRun, ViewedPartition};
use crate::version::{EditOperation, StoredView, SortedRun, VersionEdit};

/// Loose runs of a partition with which a rebuild is put off no longer.
const MAX_LOOSE_RUNS: usize = 4;

impl StoreInner {
    /// The first level of `tree` that has views.
    fn first_level(&self, tree: &Tree) -> Option<usize> {
        self.options.sorted_views.first_level(tree.options().layout)
    }

    /// Whether sstables of `tree` are to be read through views.
    pub(super) fn has_views(&self, tree: &Tree) -> bool {
        self.first_level(tree).is_some()
    }

    /// Takes up the views that the manifest names.
    pub(super) fn open_views(&self) {
        for tree in self.trees.load().values() {
            let Some(level) = self.first_level(tree) else { continue };
            let known = self.versions.lock().views(tree.id);
            tree.replace_state(|now| {
                let views = TreeViews::of(&now.version, Some(level), &known, &TreeViews::default());
                TreeState { views, ..now.clone() }
            });
        }
    }

    /// Has the views renewed that a crash left behind, and those let go that nothing uses.
    pub(super) fn add_outdated_views(&self) {
        let mut due = Vec::new();
        for tree in self.trees.load().values() {
            let state = tree.state();
            let is_used = |view: &Arc<StoredView>| {
                let mut used = state.views.partitions().filter_map(|partition| partition.stored_view());
                used.any(|used| Arc::ptr_eq(used, view))
            };
            if state.views.are_behind() || !self.versions.lock().views(tree.id).iter().all(is_used) {
                due.push(tree.id);
            }
        }
        self.work.lock().add_views_due(due);
    }

    /// Has the views of `tree` brought up to its runs, which have changed: now, or when they are wanted.
    ///
    /// # Errors
    /// As [`rebuild_views`](Self::rebuild_views).
    pub(super) fn refresh_views(&self, tree: &Arc<Tree>) -> Result<()> {
        let may_wait = self.can_defer_views(tree, &tree.state_guard());
        if may_wait {
            self.work.lock().add_views_due([tree.id]);
            return Ok(());
        }
        self.rebuild_views(tree)
    }

    /// Whether the views of `tree` in `state` are behind and nobody wants them now.
    pub(super) fn can_defer_views(&self, tree: &Tree, state: &TreeState) -> bool {
        // Views that are not behind are renewed all the same: those of sstables that are gone are to be let go.
        let is_behind = state.views.are_behind() || state.views.first_level != self.first_level(tree);
        self.options.background_threads > 0 && !state.views.are_demanded() && is_behind
    }

    /// Brings the views of `tree` up to its runs, unless somebody is at it, who then does this too. Reads the sstables
    /// that are new to them.
    ///
    /// # Errors
    /// Those of the manifest. A view is a help: an error to read sstables leaves a partition without one, and is told to whoever
    /// reads them next.
    pub(super) fn rebuild_views(&self, tree: &Arc<Tree>) -> Result<()> {
        tree.rebuild_requested.store(true, Ordering::SeqCst);
        // Looked at again after the lock is free: who could not take it has left it to the one who had it.
        while tree.rebuild_requested.load(Ordering::SeqCst) {
            let Some(_renewing) = tree.view_rebuild_lock.try_lock() else { return Ok(()) };
            tree.rebuild_requested.store(false, Ordering::SeqCst);
            self.rebuild_views_locked(tree, None)?;
        }
        Ok(())
    }

    /// The same once, by who holds `tree.view_rebuild_lock`. Readers see what `flushed` says with the views, or earlier if writers would have to
    /// wait: then some may still be behind. They see it also where this fails.
    pub(super) fn rebuild_views_locked(&self, tree: &Arc<Tree>, flushed: Option<FlushedMemtables<'_>>) -> Result<()> {
        let first_level = self.first_level(tree);
        if first_level != tree.state_guard().views.first_level {
            // The layout was changed: nothing of the old one is to be held.
            tree.replace_state(|now| {
                let views = TreeViews::of(&now.version, first_level, &[], &TreeViews::default());
                TreeState { views, ..now.clone() }
            });
        }
        let state = next_state(tree, &self.versions.lock(), flushed, &tree.state_guard());
        state.views.begin_rebuild();
        let due = |partition: &&Arc<ViewedPartition>| partition.is_behind() && !self.may_wait(partition);
        let options = RemixOptions::default().tags(tree.options().view_tags);
        let (mut built, mut tried) = (Vec::new(), Vec::new());
        for partition in state.views.partitions().filter(due) {
            if self.is_abandoned(tree) || flushed.is_some() && self.writers_need_room(tree) {
                break;
            }
            tried.extend(partition.base());
            if let Ok(view) = view_of(partition, &options) {
                built.push(self.write_view(view));
            }
        }
        let _renewing = flushed.and_then(|flushed| self.update_rows(tree, flushed.memtables));
        let installed = self.install_views(tree, flushed, &built, &tried);
        if installed.is_err() && flushed.is_some() {
            publish_state(tree, &self.versions.lock(), flushed, |now| now);
        }
        installed
    }

    /// Whether the view of `partition` is good enough for now: a rebuild is put off until there is enough for it (§4.3).
    fn may_wait(&self, partition: &ViewedPartition) -> bool {
        let (loose, viewed) = partition.entries();
        let is_whole = partition.stored_view().is_some_and(|view| !view.has_failed());
        is_whole
            && partition.loose().len() <= MAX_LOOSE_RUNS
            && loose.saturating_mul(100) < viewed.saturating_mul(self.options.view_delay_percent.into())
    }

    /// Writes the file of `view`; where that fails it is kept in memory alone.
    fn write_view(&self, view: Arc<SortedView>) -> Arc<StoredView> {
        let files = Arc::clone(&self.table_files);
        let number = self.versions.lock().new_file_number();
        let path = FileName::View(number).path(&self.options.dir);
        let identity = self.new_identity(number);
        let written = self.vfs.create(&path).and_then(|file| view.remix().write(&*file, identity));
        Arc::new(match written {
            Ok(bytes) => StoredView::in_memory(view, identity, bytes, files),
            Err(_) => {
                self.table_files.obsolete.push(FileName::View(number));
                StoredView::in_memory(view, FileIdentity { file_number: 0, tag: 0 }, 0, files)
            }
        })
    }

    /// Lets the manifest name the files of `built`, as far as the tree has use for them, and the tree's state have the views and what
    /// `flushed` says. Those of `tried` are of no more use to make others from.
    fn install_views(
        &self,
        tree: &Arc<Tree>,
        flushed: Option<FlushedMemtables<'_>>,
        built: &[Arc<StoredView>],
        tried: &[&Arc<StoredView>],
    ) -> Result<()> {
        if built.iter().any(|view| view.meta().number > 0) {
            self.vfs.sync_dir(&self.options.dir)?;
        }
        let is_tried = |view: &Arc<StoredView>| tried.iter().any(|tried| Arc::ptr_eq(tried, view));
        let mut versions = self.versions.lock();
        // Of sstables that a flush may have taken out of the manifest; it has the views renewed once readers see that.
        if flushed.is_none() && tree.publication_pending.load(Ordering::Acquire) {
            self.give_up_views(built);
            return Ok(());
        }
        let named = versions.views(tree.id);
        let state = next_state(tree, &versions, flushed, &tree.state_guard());
        let counts = |partition: &&Arc<ViewedPartition>| {
            partition.stored_view().is_some() || partition.base().is_some_and(|base| !is_tried(base))
        };
        let held = state.views.partitions().filter(counts).filter_map(|partition| partition.base());
        let known: Vec<_> = built.iter().chain(held).cloned().collect();
        let next = TreeViews::of(&state.version, state.views.first_level, &known, &state.views);
        let uses = |number: u64| {
            let mut views = next.partitions().filter_map(|partition| partition.stored_view());
            views.any(|view| view.meta().number == number)
        };
        let mut edit = VersionEdit::new();
        for view in built.iter().filter(|view| view.meta().number > 0) {
            match uses(view.meta().number) {
                true => edit.push(EditOperation::AddView { tree: tree.id, view: view.meta().clone() }),
                false => self.table_files.obsolete.push(FileName::View(view.meta().number)),
            }
        }
        for view in named.iter().filter(|view| !uses(view.meta().number)) {
            edit.push(EditOperation::RemoveView { tree: tree.id, number: view.meta().number });
        }
        if !edit.is_empty() {
            if versions.current(tree.id).is_none() {
                self.give_up_views(built);
                return Err(Error::new(ErrorKind::Closed, format!("tree {} was dropped", tree.id)));
            }
            self.apply_edit(&mut versions, edit).inspect_err(|error| {
                if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) {
                    self.give_up_views(built);
                }
            })?;
            let bytes: u64 = built.iter().map(|view| view.meta().file_bytes).sum();
            self.counters.view_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        // The same views, as those know them who say when a file may go.
        let named = versions.views(tree.id);
        let known: Vec<_> = known
            .iter()
            .map(|view| {
                let number = view.meta().number;
                let same = named.iter().find(|named| number > 0 && named.meta().number == number);
                if let (Some(named), Some(view)) = (same, view.loaded()) {
                    named.fill(Arc::clone(view));
                }
                Arc::clone(same.unwrap_or(view))
            })
            .collect();
        publish_state(tree, &versions, flushed, |now| {
            let views = TreeViews::of(&now.version, now.views.first_level, &known, &now.views);
            TreeState { views, ..now }
        });
        Ok(())
    }

    /// Lets the files of `built` go, which no edit names.
    fn give_up_views(&self, built: &[Arc<StoredView>]) {
        for view in built.iter().filter(|view| view.meta().number > 0) {
            self.table_files.obsolete.push(FileName::View(view.meta().number));
        }
    }

    /// Takes up the trees with views that are behind, if files turned out damaged or missing since that was asked last.
    pub(super) fn add_failed_views(&self, work: &mut WorkState) {
        let failures = self.table_files.view_failures.count();
        if std::mem::replace(&mut work.view_failures_seen, failures) != failures {
            let trees = self.trees.load();
            let behind = trees.values().filter(|tree| tree.state_guard().views.are_behind());
            work.add_views_due(behind.map(|tree| tree.id));
        }
    }
}

/// The view of all runs of `partition`, made from the one it has.
fn view_of(partition: &ViewedPartition, options: &RemixOptions) -> Result<Arc<SortedView>> {
    // Who finds a file of another order sets it aside while the view is in memory.
    let base = partition.base().filter(|base| !base.has_failed());
    let old = base.and_then(|base| base.view(partition.runs()));
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
