//! Installation of new sstables: an edit of the manifest, then a new state of the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result};

use crate::file_name::FileName;
use crate::store::files::apply_edit;
use crate::store::jobs::environment::InstallEnvironment;
use crate::store::jobs::publication::{FlushedMemtables, publish_state};
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::{Version, VersionEdit, VersionSet};

/// Installs the new sstables `written` by `install`. If their edit was certainly not written, the files are
/// removed.
///
/// A version may have been dropped because of a write that is only in the log (a range delete, or a newer record
/// that an index filter read). So the log is synced first: a power cut must not lose that write after the version
/// is gone.
pub(in crate::store) fn install_outputs(
    env: InstallEnvironment<'_>,
    written: &[u64],
    install: impl FnOnce() -> Result<()>,
) -> Result<()> {
    env.log.sync(env.health).and_then(|()| install()).inspect_err(|error| {
        if was_not_written(error) {
            for number in written {
                env.files.discard(FileName::Table(*number));
            }
        }
    })
}

/// Whether an edit that failed with `error` is certainly not in the manifest.
pub(in crate::store) fn was_not_written(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded | ErrorKind::Closed)
}

/// Makes an edit durable and replaces the version of the tree, without the memtables in `flushed`.
pub(in crate::store) fn install(
    env: InstallEnvironment<'_>,
    tree: &Tree,
    edit: VersionEdit,
    flushed: &[Arc<LoggedMemtable>],
) -> Result<()> {
    install_with(env, tree, edit, flushed, &|_, _| {})
}

/// Makes an edit durable and replaces the version of the tree. `place` adds the operations that depend on the
/// version to which the edit is applied.
pub(in crate::store) fn install_placed(
    env: InstallEnvironment<'_>,
    tree: &Tree,
    edit: VersionEdit,
    place: &dyn Fn(&Version, &mut VersionEdit),
) -> Result<()> {
    install_with(env, tree, edit, &[], place)
}

fn install_with(
    env: InstallEnvironment<'_>,
    tree: &Tree,
    edit: VersionEdit,
    flushed: &[Arc<LoggedMemtable>],
    place: &dyn Fn(&Version, &mut VersionEdit),
) -> Result<()> {
    let _row_update = update_rows(env.rows, tree, flushed);
    let mut versions = env.files.versions.lock();
    apply_placed(env, &mut versions, tree, edit, place)?;
    // A pending flush into partitions publishes its version itself, together with the removal of its memtables.
    if !tree.publication_pending.load(Ordering::Acquire) {
        publish_state(
            tree,
            &versions,
            Some(FlushedMemtables { memtables: flushed, retained: None }),
            |next| next,
        );
    }
    Ok(())
}

/// Makes an edit durable; `place` adds the operations that depend on the version to which it is applied. Readers
/// continue with the old state.
pub(in crate::store) fn apply_placed(
    env: InstallEnvironment<'_>,
    versions: &mut VersionSet,
    tree: &Tree,
    mut edit: VersionEdit,
    place: &dyn Fn(&Version, &mut VersionEdit),
) -> Result<()> {
    let dropped = || Error::new(ErrorKind::Closed, format!("tree {} was dropped", tree.id));
    let before = versions.current(tree.id).ok_or_else(dropped)?;
    place(&before, &mut edit);
    edit.set_last_sequence(env.snapshots.published());
    apply_edit(versions, edit, env.health, env.reserve)
}
