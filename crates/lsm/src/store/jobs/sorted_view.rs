//! The sorted views of trees (REMIX): their rebuilds.
//!
//! # Order
//! 1. A flush or compaction installs its sstables. Readers merge the views with the runs that the views lack. The
//!    sstables of a flush into partitions are published with the rebuilt views of step 5 (see `deferred_publication`).
//! 2. Outdated views are rebuilt at once if sstables were read since the last rebuild, or if there are no background
//!    threads. Otherwise they are rebuilt when the first reader arrives, or when writes to the tree are idle. So a bulk
//!    load builds them once (the delayed rebuild of §4.3).
//! 3. For each outdated partition, a view is built from the old one and the new runs (§4.3), and written to a REMIX
//!    file. [`StoreOptions::sorted_views`] defines which layouts have views; a tiered level is one partition.
//! 4. One edit names the files whose sstables still exist, and removes the files that they replace.
//! 5. The views become part of the state of the tree.
//!
//! A crash before step 4 leaves unnamed files; the next opening removes them, and rebuilds the outdated views. If a
//! file cannot be written, the view stays in memory only. If it cannot be read, it is rebuilt.
//!
//! There is no view over a single run, or over more runs than a REMIX supports. Point reads use Bloom filters, which
//! for a few runs cost less than a search in the view (REMIX §5.1); without filters they use the view.
//!
//! [`StoreOptions::sorted_views`]: crate::StoreOptions::sorted_views

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::technique::Technique;
use bolide_base::{Error, ErrorKind, FileIdentity, Result};

use crate::file_name::FileName;
use crate::options::StoreOptions;
use crate::remix::{Remix, RemixOptions, SortedView, ViewRun, ViewedPartition};
use crate::store::files::StoreFiles;
use crate::store::files::apply_edit;
use crate::store::jobs::environment::ViewEnvironment;
use crate::store::jobs::publication::{FlushedMemtables, next_state, publish_state, writers_need_room};
use crate::store::jobs::work::{WorkQueue, WorkState};
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::tree_views::TreeViews;
use crate::store::tree::{Tree, TreeState};
use crate::version::{EditOperation, SortedRun, StoredView, VersionEdit};

/// Number of runs outside of the view of a partition up to which a rebuild may be deferred.
const MAX_LOOSE_RUNS: usize = 4;

/// The first level of `tree` that has views.
fn first_level(options: &StoreOptions, tree: &Tree) -> Option<usize> {
    options.sorted_views.first_level(tree.options().layout)
}

/// True if sstables of `tree` are read through views.
pub(in crate::store) fn has_views(options: &StoreOptions, tree: &Tree) -> bool {
    first_level(options, tree).is_some()
}

/// Loads the views that the manifest names.
pub(in crate::store) fn open_views(files: &StoreFiles, options: &StoreOptions, trees: &TreeDirectory) {
    for tree in trees.load().values() {
        let Some(level) = first_level(options, tree) else { continue };
        let known = files.versions.lock().views(tree.id);
        tree.replace_state(|now| {
            let views = TreeViews::of(&now.version, Some(level), &known, &TreeViews::default());
            TreeState { views, ..now.clone() }
        });
    }
}

/// Schedules rebuilds for views that are outdated after a crash, and the removal of unused ones.
pub(in crate::store) fn add_outdated_views(files: &StoreFiles, trees: &TreeDirectory, work: &WorkQueue) {
    let mut due = Vec::new();
    for tree in trees.load().values() {
        let state = tree.state();
        let has_user = |view: &Arc<StoredView>| {
            let mut used = state.views.partitions().filter_map(|partition| partition.stored_view());
            used.any(|used| Arc::ptr_eq(used, view))
        };
        if state.views.are_behind() || !files.versions.lock().views(tree.id).iter().all(has_user) {
            due.push(tree.id);
        }
    }
    work.lock().add_views_due(due);
}

/// Rebuilds the views of `tree` after a change of its runs: now, or when they are demanded.
///
/// # Errors
/// As [`rebuild_views`](rebuild_views).
pub(in crate::store) fn refresh_views(env: ViewEnvironment<'_>, tree: &Arc<Tree>) -> Result<()> {
    if can_defer_views(env.options, tree, &tree.state_guard()) {
        env.stop.work.lock().add_views_due([tree.id]);
        return Ok(());
    }
    rebuild_views(env, tree)
}

/// True if the views of `tree` in `state` are outdated and not demanded now.
pub(in crate::store) fn can_defer_views(options: &StoreOptions, tree: &Tree, state: &TreeState) -> bool {
    // Views that are not outdated are rebuilt nevertheless, to release those of removed sstables.
    let is_behind = state.views.are_behind() || state.views.first_level != first_level(options, tree);
    options.background_threads > 0
        && !state.views.are_demanded()
        && is_behind
        && Technique::DelayedViews.is_on()
}

/// Rebuilds the views of `tree`. If another thread is rebuilding them, that thread does this too. Reads the
/// sstables that are new to the views.
///
/// # Errors
/// Those of the manifest. Views are optional: after an error from reading sstables, a partition has no view, and
/// the next reader of the sstables receives the error.
pub(in crate::store) fn rebuild_views(env: ViewEnvironment<'_>, tree: &Arc<Tree>) -> Result<()> {
    tree.rebuild_requested.store(true, Ordering::SeqCst);
    // Checked again after the lock is released: a thread that could not take it has left its request to the owner.
    while tree.rebuild_requested.load(Ordering::SeqCst) {
        let Some(_locked) = tree.view_rebuild_lock.try_lock() else { return Ok(()) };
        tree.rebuild_requested.store(false, Ordering::SeqCst);
        rebuild_views_locked(env, tree, None)?;
    }
    Ok(())
}

/// Rebuilds the views once; the caller holds `view_rebuild_lock`. Publishes `flushed` with the views, or earlier if
/// writers would have to wait: then some views may remain outdated. It is published even if the rebuild fails.
pub(in crate::store) fn rebuild_views_locked(
    env: ViewEnvironment<'_>,
    tree: &Arc<Tree>,
    flushed: Option<FlushedMemtables<'_>>,
) -> Result<()> {
    let first_level = first_level(env.options, tree);
    if first_level != tree.state_guard().views.first_level {
        // The layout was changed: views of the old one are released.
        tree.replace_state(|now| {
            let views = TreeViews::of(&now.version, first_level, &[], &TreeViews::default());
            TreeState { views, ..now.clone() }
        });
    }
    let state = next_state(tree, &env.files.versions.lock(), flushed, &tree.state_guard());
    state.views.begin_rebuild();
    let due = |partition: &&Arc<ViewedPartition>| {
        partition.is_behind() && !can_defer_rebuild(env.options, partition)
    };
    let options = RemixOptions::default().tags(tree.options().view_tags);
    let (mut built, mut tried) = (Vec::new(), Vec::new());
    for partition in state.views.partitions().filter(due) {
        if env.stop.is_abandoned(tree) || flushed.is_some() && writers_need_room(env.options, tree) {
            break;
        }
        tried.extend(partition.base());
        if let Ok(view) = view_of(partition, &options) {
            built.push(write_view(env.files, view));
        }
    }
    let _row_update = flushed.and_then(|flushed| update_rows(env.rows, tree, flushed.memtables));
    let installed = install_views(env, tree, flushed, &built, &tried);
    if installed.is_err() && flushed.is_some() {
        publish_state(tree, &env.files.versions.lock(), flushed, |now| now);
    }
    installed
}

/// True if the rebuild of the view of `partition` may be deferred until there are enough new entries (§4.3).
fn can_defer_rebuild(options: &StoreOptions, partition: &ViewedPartition) -> bool {
    let (loose, viewed) = partition.entries();
    let is_whole = partition.stored_view().is_some_and(|view| !view.has_failed());
    is_whole
        && partition.loose().len() <= MAX_LOOSE_RUNS
        && loose.saturating_mul(100) < viewed.saturating_mul(options.view_delay_percent.into())
}

/// Writes the file of `view`; if that fails, the view stays in memory only.
fn write_view(files: &StoreFiles, view: Arc<SortedView>) -> Arc<StoredView> {
    let tables = Arc::clone(&files.tables);
    let number = files.new_number();
    let path = files.path(FileName::View(number));
    let identity = files.new_identity(number);
    let written = files.vfs.create(&path).and_then(|file| view.remix().write(&*file, identity));
    Arc::new(match written {
        Ok(bytes) => StoredView::in_memory(view, identity, bytes, tables),
        Err(_) => {
            files.discard(FileName::View(number));
            StoredView::in_memory(view, FileIdentity { file_number: 0, tag: 0 }, 0, tables)
        }
    })
}

/// Names the files of `built` in the manifest, if the tree still uses them, and publishes the views and `flushed`.
/// The views of `tried` do not serve as bases any more.
fn install_views(
    env: ViewEnvironment<'_>,
    tree: &Arc<Tree>,
    flushed: Option<FlushedMemtables<'_>>,
    built: &[Arc<StoredView>],
    tried: &[&Arc<StoredView>],
) -> Result<()> {
    if built.iter().any(|view| view.meta().number > 0) {
        env.files.sync_dir()?;
    }
    let is_tried = |view: &Arc<StoredView>| tried.iter().any(|tried| Arc::ptr_eq(tried, view));
    let mut versions = env.files.versions.lock();
    // The views may be of sstables that a pending flush has removed from the manifest; its publication rebuilds
    // them.
    if flushed.is_none() && tree.publication_pending.load(Ordering::Acquire) {
        discard_views(env.files, built);
        return Ok(());
    }
    let named = versions.views(tree.id);
    let state = next_state(tree, &versions, flushed, &tree.state_guard());
    let is_current = |partition: &&Arc<ViewedPartition>| {
        partition.stored_view().is_some() || partition.base().is_some_and(|base| !is_tried(base))
    };
    let bases = state.views.partitions().filter(is_current).filter_map(|partition| partition.base());
    let known: Vec<_> = built.iter().chain(bases).cloned().collect();
    let next = TreeViews::of(&state.version, state.views.first_level, &known, &state.views);
    let uses = |number: u64| {
        let mut views = next.partitions().filter_map(|partition| partition.stored_view());
        views.any(|view| view.meta().number == number)
    };
    let mut edit = VersionEdit::new();
    for view in built.iter().filter(|view| view.meta().number > 0) {
        match uses(view.meta().number) {
            true => edit.push(EditOperation::AddView { tree: tree.id, view: view.meta().clone() }),
            false => env.files.discard(FileName::View(view.meta().number)),
        }
    }
    for view in named.iter().filter(|view| !uses(view.meta().number)) {
        edit.push(EditOperation::RemoveView { tree: tree.id, number: view.meta().number });
    }
    if !edit.is_empty() {
        if versions.current(tree.id).is_none() {
            discard_views(env.files, built);
            return Err(Error::new(ErrorKind::Closed, format!("tree {} was dropped", tree.id)));
        }
        apply_edit(&mut versions, edit, env.stop.health, env.reserve).inspect_err(|error| {
            if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) {
                discard_views(env.files, built);
            }
        })?;
        let bytes: u64 = built.iter().map(|view| view.meta().file_bytes).sum();
        env.counters.view_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    // The same views, but as the objects of the version set, which tracks when a file may be removed.
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

/// Schedules the files of `built`, which no edit names, for removal.
fn discard_views(files: &StoreFiles, built: &[Arc<StoredView>]) {
    for view in built.iter().filter(|view| view.meta().number > 0) {
        files.discard(FileName::View(view.meta().number));
    }
}

/// Schedules the trees with outdated views, if files were found damaged or missing since the last call.
pub(in crate::store) fn add_failed_views(files: &StoreFiles, trees: &TreeDirectory, work: &mut WorkState) {
    let failures = files.tables.view_failures.count();
    if std::mem::replace(&mut work.view_failures_seen, failures) != failures {
        let trees = trees.load();
        let behind = trees.values().filter(|tree| tree.state_guard().views.are_behind());
        work.add_views_due(behind.map(|tree| tree.id));
    }
}

/// Has all outdated views rebuilt without waiting for idle writes.
pub(in crate::store) fn demand_outdated_views(
    files: &StoreFiles,
    trees: &TreeDirectory,
    work: &mut WorkState,
) {
    add_failed_views(files, trees, work);
    for tree in work.views_due.keys().filter_map(|tree| trees.get(*tree).ok()) {
        tree.state_guard().views.demand();
    }
}

/// The view of all runs of `partition`, built from its current one.
fn view_of(partition: &ViewedPartition, options: &RemixOptions) -> Result<Arc<SortedView>> {
    // A file with a wrong order is set aside while its view is in memory.
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
        Some(old) if Technique::ViewRebuilds.is_on() => Remix::rebuild(old, &runs, options)?.0,
        _ => Remix::build(&runs, options)?,
    };
    SortedView::new(remix, runs)
}
