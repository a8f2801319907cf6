//! Trees whose writes an [`ExternalTree`] stores.
//!
//! Such a tree has memtables, but once its external tree is set they stay empty: they only record the log segments that
//! the external tree has not made durable yet. So segments, their floors and the order of flushes need no special
//! rules. A flush of such a tree is a checkpoint of the external tree.
//!
//! # Before the external tree is set
//! Writes go into memtables, and from there into sstables if they grow: during replay, and during an index build.
//! [`Store::set_external_tree`] transfers all of them, or as many as [fit](super::hand_over); the next checkpoint removes the
//! sstables with transferred entries alone.
//!
//! # Spills
//! The sstables of the tree have the entries at or below the cut of a [`SpillingTree`]. Only
//! [those above it](contained_tables) are transferred and removed.
//!
//! [`SpillingTree`]: crate::external_tree::SpillingTree

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, FileIdentity, Result, SequenceNumber, TreeId};
use parking_lot::Mutex;

use crate::external_tree::{ExternalFiles, ExternalRoot, ExternalTree};
use crate::file_name::FileName;
use crate::store::backend::contained_tables;
use crate::store::backend::hand_over::{hand_over, leave_oldest};
use crate::store::commit::log::Rotate;
use crate::store::commit::segments::rotate;
use crate::store::files::StoreFiles;
use crate::store::files::apply_edit;
use crate::store::jobs::environment::{
    CheckpointEnvironment, FlushEnvironment, GarbageEnvironment, InstallEnvironment,
};
use crate::store::jobs::flush_install::{FlushOutput, WrittenFlush, install_flushes};
use crate::store::jobs::install::{install, was_not_written};
use crate::store::jobs::obsolete_files::remove_obsolete_files;
use crate::store::read::read_view::ReadView;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::{Tree, TreeState};
use crate::store::{Store, StoreInner};
use crate::version::VersionEdit;

/// The checkpoints that a close installs together at most.
const MAX_CLOSING_CHECKPOINTS: usize = 256;

/// Writes a checkpoint of the external tree of `tree`, which releases the log that was retained for it; `None` if it retains none.
pub(in crate::store) fn write_external_flush<'t>(
    env: CheckpointEnvironment<'_>,
    tree: &'t Arc<Tree>,
    external_tree: &'t Arc<dyn ExternalTree>,
) -> Result<Option<WrittenFlush<'t>>> {
    let flushed = tree.state().immutables.clone();
    if flushed.is_empty() {
        return Ok(None);
    }
    env.install.health.check()?;
    external_tree.collect_garbage(&|| env.install.snapshots.oldest())?;
    write_checkpoint(env, tree, external_tree, flushed).map(Some)
}

/// Has the external tree of `tree` collect garbage while writes are idle, until a flush is due or the store closes.
pub(in crate::store) fn collect_external_garbage(
    env: GarbageEnvironment<'_>,
    tree: &Arc<Tree>,
) -> Result<()> {
    let Some(external_tree) = tree.backend().external() else { return Ok(()) };
    env.stop.health.check()?;
    let may_continue = || !env.stop.is_stopping() && tree.flushes_due(env.options) == 0;
    match external_tree.collect_garbage_when_idle(&|| env.snapshots.oldest(), &may_continue) {
        // Not urgent: the next checkpoint tries again.
        Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) => Ok(()),
        collected => collected,
    }
}

/// Writes checkpoints of the external trees that changed, at the end of a clean close, so that the next opening
/// replays nothing for them. After a failure the log is retained instead. Returns the first failure other than a
/// full disk.
pub(in crate::store) fn checkpoint_before_close(env: &FlushEnvironment<'_>) -> Result<()> {
    let InstallEnvironment { files, health, log, .. } = env.tables.install;
    let mut result = Ok(());
    let trees: Vec<_> = env.backlog.trees.load().values().cloned().collect();
    let mut written = Vec::new();
    for tree in &trees {
        let Some(external_tree) = tree.backend().external() else { continue };
        let memtables: Vec<_> = tree.state_guard().memtables().cloned().collect();
        let has_changed = memtables.iter().any(|logged| logged.first_log().is_some());
        if has_changed && external_tree.is_closing_checkpoint_due() && health.check().is_ok() {
            match write_checkpoint(env.checkpoints(), tree, external_tree, memtables) {
                Ok(checkpoint) => written.push(checkpoint),
                Err(error) if has_no_space(&error) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        if written.len() >= MAX_CLOSING_CHECKPOINTS {
            result = result.and(install_closing(env, std::mem::take(&mut written)));
        }
    }
    result = result.and(install_closing(env, written));
    remove_obsolete_files(files, health, log);
    result
}

fn has_no_space(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded)
}

fn install_closing(env: &FlushEnvironment<'_>, written: Vec<WrittenFlush<'_>>) -> Result<()> {
    match install_flushes(env, written) {
        Err(error) if has_no_space(&error) => Ok(()),
        installed => installed,
    }
}

/// Writes a checkpoint that contains all of `flushed`.
fn write_checkpoint<'t>(
    env: CheckpointEnvironment<'_>,
    tree: &'t Arc<Tree>,
    external_tree: &'t Arc<dyn ExternalTree>,
    flushed: Vec<Arc<LoggedMemtable>>,
) -> Result<WrittenFlush<'t>> {
    let mut checkpoint = {
        // No write is applied meanwhile, so the state is that of one sequence number.
        let log = env.install.log.lock();
        external_tree.checkpoint(log.applied)?
    };
    let created = Mutex::new(Vec::new());
    let name = || new_external_file(env.install.files, &created);
    let files = external_files(env.install.files, env.dir, &name);
    let root = checkpoint.write(&files).inspect_err(|error| {
        if was_not_written(error) || env.install.health.check().is_ok() {
            created.lock().drain(..).for_each(|name| env.install.files.discard(name));
        }
    })?;
    let written_bytes = checkpoint.written_bytes();
    let edit = checkpoint_edit(tree, &**external_tree, &flushed, root, written_bytes);
    let (files, output) = (created.into_inner(), FlushOutput::Checkpoint(checkpoint));
    Ok(WrittenFlush { tree, flushed, edit, files, written_bytes, output })
}

pub(in crate::store) fn external_files<'s>(
    files: &'s StoreFiles,
    dir: &'s Path,
    name: &'s dyn Fn() -> (FileIdentity, PathBuf),
) -> ExternalFiles<'s> {
    ExternalFiles { vfs: &files.vfs, dir, name }
}

fn new_external_file(files: &StoreFiles, created: &Mutex<Vec<FileName>>) -> (FileIdentity, PathBuf) {
    let number = files.new_number();
    let name = FileName::Region(number);
    created.lock().push(name);
    (files.new_identity(number), files.path(name))
}

/// The edit that names the root of a checkpoint. The checkpoint contains all writes applied before it: the log is synced before
/// the edit is written.
fn checkpoint_edit(
    tree: &Tree,
    external_tree: &dyn ExternalTree,
    flushed: &[Arc<LoggedMemtable>],
    root: ExternalRoot,
    written_bytes: u64,
) -> VersionEdit {
    let mut edit = VersionEdit::new();
    edit.set_external_root(tree.id, root);
    edit.note_written(tree.id, written_bytes);
    // No spill runs meanwhile, and no compaction has them as inputs.
    for number in contained_tables(external_tree, &tree.state().version) {
        edit.remove_table(tree.id, number);
    }
    let last_log = flushed.iter().map(|logged| logged.last_log()).max().unwrap_or(0);
    edit.set_tree_log_floor(tree.id, last_log + 1);
    edit
}

impl Store {
    /// The durable root of the external tree of `tree`, at the opening or at its last checkpoint; `None` if it never
    /// had one.
    pub fn external_root(&self, tree: TreeId) -> Option<Arc<ExternalRoot>> {
        self.inner.files.versions.lock().external_root(tree)
    }

    /// Sets the root of an external tree before it is set itself: for external trees with a file that a root does not
    /// list. The log of the tree is retained.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn name_external_root(&self, tree: TreeId, root: ExternalRoot) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        // In this order: the tree is not dropped in between.
        let mut versions = inner.files.versions.lock();
        inner.trees.get(tree)?;
        let mut edit = VersionEdit::new();
        edit.set_external_root(tree, root);
        apply_edit(&mut versions, edit, &inner.health, &inner.reserve)
    }

    /// Removes the sstables of `tree` and the root of its external tree, and sets the descriptor of the tree, in one
    /// edit. Memtables remain: the tree then contains the replayed writes and later ones. Only between an opening with
    /// [`start_paused`](crate::StoreOptions::start_paused) and [`start`](Self::start); the external tree must not be
    /// set.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn empty_tree(&self, tree: TreeId, descriptor: &[u8]) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        let tree = inner.trees.get(tree)?;
        inner.with_reserved(tree.id, || {
            let mut edit = VersionEdit::new();
            for table in tree.state().version.tables() {
                edit.remove_table(tree.id, table.meta().number);
            }
            edit.set_external_root(tree.id, ExternalRoot::default());
            edit.set_descriptor(tree.id, descriptor.to_vec());
            install(inner.install_environment(), &tree, edit, &[])?;
            *tree.descriptor.write() = descriptor.into();
            Ok(())
        })
    }

    /// The path of a file of an external tree.
    pub fn external_file_path(&self, number: u64) -> PathBuf {
        self.inner.files.path(FileName::Region(number))
    }

    /// Sets the external tree of `tree` and transfers all existing writes to it: before, it must be in the state of
    /// [`external_root`](Self::external_root). Writers wait only for the transfer of writes since the call began.
    /// Writes with explicit sequence numbers that are already in use must have ended.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if the tree has one already; `Corruption` or `Io` from reading the tree; errors of the
    /// external tree. The tree then continues without it. A failure at the end that leaves the handle usable, such as a full disk, is no error:
    /// the first checkpoint is written later.
    pub fn set_external_tree(&self, tree: TreeId, external_tree: Arc<dyn ExternalTree>) -> Result<()> {
        self.inner.set_external_tree(&self.inner.trees.get(tree)?, &external_tree)
    }
}

impl StoreInner {
    /// As [`Store::set_external_tree`].
    pub(in crate::store) fn set_external_tree(
        &self,
        tree: &Arc<Tree>,
        external_tree: &Arc<dyn ExternalTree>,
    ) -> Result<()> {
        let inner = self;
        // Excludes compactions of the tree meanwhile.
        inner.with_reserved(tree.id, || {
            let contained = external_tree.contains_through();
            // Most of the transfer is concurrent with writers.
            let view = ReadView::latest(inner.shared());
            if external_tree.is_durable_at_once() {
                inner.log.sync(&inner.health)?;
            }
            let above = leave_oldest(&inner.table_environment(), tree, &**external_tree, view.sequence())?;
            let mut handed_over = hand_over(
                &inner.options,
                &inner.snapshots,
                &tree.state(),
                &**external_tree,
                above,
                view.sequence(),
            )?;
            // From here on commits are excluded.
            let mut log = inner.log.lock();
            if external_tree.is_durable_at_once() && log.is_open() {
                inner.log.sync_now(&mut log).inspect_err(|error| inner.health.poison(error))?;
            }
            let state = tree.state();
            handed_over += hand_over(
                &inner.options,
                &inner.snapshots,
                &state,
                &**external_tree,
                contained.max(view.sequence()),
                SequenceNumber::MAX,
            )?;
            tree.row_gate.disable();
            if !tree.backend.set_external(external_tree.clone()) {
                let message = format!("tree {} has an external tree already", tree.id);
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            tree.replace_state(TreeState::without_entries);
            log.targets.clear();
            inner.active_bytes.set(inner.trees.active_bytes());
            let is_due = handed_over > 0 && external_tree.is_checkpoint_due(handed_over);
            let has_cut = above > contained;
            let is_due =
                is_due || has_cut || contained_tables(&**external_tree, &state.version).next().is_some();
            if !is_due || !log.is_open() {
                return Ok(());
            }
            // The first checkpoint removes the sstables, and releases the replayed log.
            tree.state_guard().active.note_log(log.number(), 0);
            match rotate(inner, &mut log, Rotate::Tree(tree.id)) {
                // The external tree is set, and has every write: the next segment begins the checkpoint.
                Err(_) if inner.health.check().is_ok() => Ok(()),
                rotated => rotated,
            }
        })
    }
}
