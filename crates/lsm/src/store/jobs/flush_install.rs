//! Installation of flushes: the files of one flush, or of several, enter the manifest together.
//!
//! ```text
//! each tree     write_memtables, checkpoint   files written and synced
//! together      the log is synced             one sync
//!               one edit                      one record of the manifest, one sync: all trees or none
//! each tree     new state, notices
//! ```
//!
//! # Failures
//! An edit that a single tree makes impossible (it was dropped, or reached a limit) is installed tree by tree. Any other failure
//! concerns all trees: their memtables remain and are due again, and the files are removed if the edit was certainly not written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result};

use crate::drop_listener::DropCollector;
use crate::external_tree::ExternalCheckpoint;
use crate::file_name::FileName;
use crate::store::files::{StoreFiles, apply_edit};
use crate::store::jobs::environment::{FlushEnvironment, InstallEnvironment};
use crate::store::jobs::install::was_not_written;
use crate::store::jobs::obsolete_files::log_floor_without;
use crate::store::jobs::publication::{FlushedMemtables, publish_state};
use crate::store::jobs::sorted_view::refresh_views;
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::VersionEdit;

/// A flush of one tree whose files are durable and not in the manifest yet.
pub(in crate::store) struct WrittenFlush<'t> {
    pub(in crate::store) tree: &'t Arc<Tree>,
    /// The memtables whose entries are in the files.
    pub(in crate::store) flushed: Vec<Arc<LoggedMemtable>>,
    /// The changes of the tree. The log floor of the store is added by the installation.
    pub(in crate::store) edit: VersionEdit,
    pub(in crate::store) files: Vec<FileName>,
    pub(in crate::store) written_bytes: u64,
    pub(in crate::store) output: FlushOutput<'t>,
}

/// The output of a flush, which is notified of its installation.
pub(in crate::store) enum FlushOutput<'t> {
    /// Sstables, with the versions that they dropped.
    Tables(Option<Box<dyn DropCollector>>),
    /// A checkpoint of an external tree.
    Checkpoint(Box<dyn ExternalCheckpoint + 't>),
}

impl WrittenFlush<'_> {
    /// Notifies the output and the counters of the installation.
    fn finish(self, env: &FlushEnvironment<'_>) -> Result<()> {
        self.tree.written_bytes.fetch_add(self.written_bytes, Ordering::Relaxed);
        match self.output {
            FlushOutput::Checkpoint(checkpoint) => {
                checkpoint.installed();
                Ok(())
            }
            FlushOutput::Tables(drops) => {
                if let Some(drops) = drops {
                    drops.installed();
                }
                env.tables.counters.flushed(self.written_bytes);
                refresh_views(env.tables.views(), self.tree)
            }
        }
    }
}

/// Installs `flushes`, of different trees.
///
/// A version may have been dropped because of a write that is only in the log, so the log is synced first; see
/// [`install_outputs`](crate::store::jobs::install::install_outputs).
///
/// # Errors
/// Those of the log and the manifest; `Closed` if trees were dropped and nothing else failed. The first of several failures. Flushes that did not
/// fail are installed.
pub(in crate::store) fn install_flushes(
    env: &FlushEnvironment<'_>,
    flushes: Vec<WrittenFlush<'_>>,
) -> Result<()> {
    if flushes.is_empty() {
        return Ok(());
    }
    let InstallEnvironment { log, health, files, .. } = env.tables.install;
    log.sync(health).inspect_err(|error| discard_files(files, &flushes, error))?;
    let groups = match install_edit(env, &flushes) {
        Ok(()) => return finish_all(env, flushes),
        Err(error) if flushes.len() > 1 && is_of_one_tree(&error) => flushes,
        Err(error) => {
            discard_files(files, &flushes, &error);
            return Err(error);
        }
    };
    let mut failed = None;
    for flush in groups {
        let alone = std::slice::from_ref(&flush);
        let installed = install_edit(env, alone).inspect_err(|error| discard_files(files, alone, error));
        if let Err(error) = installed.and_then(|()| flush.finish(env)) {
            // The drop of one tree must not hide a failure of another one.
            match &failed {
                Some(first) if Error::kind(first) != ErrorKind::Closed => {}
                _ => failed = Some(error),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Whether the failure of an edit of several trees may be that of one of them.
fn is_of_one_tree(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::LimitExceeded | ErrorKind::Closed)
}

fn discard_files(files: &StoreFiles, flushes: &[WrittenFlush<'_>], error: &Error) {
    if was_not_written(error) {
        let names = flushes.iter().flat_map(|flush| &flush.files);
        names.for_each(|name| files.discard(*name));
    }
}

fn finish_all(env: &FlushEnvironment<'_>, flushes: Vec<WrittenFlush<'_>>) -> Result<()> {
    let mut failed = None;
    for flush in flushes {
        if let Err(error) = flush.finish(env) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Makes the edits of `flushes` durable as one, and replaces the states of the trees.
fn install_edit(env: &FlushEnvironment<'_>, flushes: &[WrittenFlush<'_>]) -> Result<()> {
    let InstallEnvironment { files, log, health, reserve, snapshots, rows } = env.tables.install;
    // Held until the states are replaced.
    let _row_updates: Vec<_> =
        flushes.iter().map(|flush| update_rows(rows, flush.tree, &flush.flushed)).collect();
    let mut edit = VersionEdit::new();
    flushes.iter().for_each(|flush| edit.append(flush.edit.clone()));
    let flushed: BTreeMap<_, _> =
        flushes.iter().map(|flush| (flush.tree.id, flush.flushed.as_slice())).collect();
    edit.set_wal_floor(log_floor_without(log, env.backlog.trees, &flushed));
    let mut versions = files.versions.lock();
    if let Some(flush) = flushes.iter().find(|flush| versions.current(flush.tree.id).is_none()) {
        return Err(Error::new(ErrorKind::Closed, format!("tree {} was dropped", flush.tree.id)));
    }
    edit.set_last_sequence(snapshots.published());
    apply_edit(&mut versions, edit, health, reserve)?;
    for WrittenFlush { tree, flushed, .. } in flushes {
        // A pending flush into partitions publishes its version itself, together with the removal of its memtables.
        if !tree.publication_pending.load(Ordering::Acquire) {
            let flushed = FlushedMemtables { memtables: flushed, retained: None };
            publish_state(tree, &versions, Some(flushed), |next| next);
        }
    }
    Ok(())
}
