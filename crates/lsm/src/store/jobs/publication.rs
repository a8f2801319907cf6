//! Publication of a flush: the state of a tree without the flushed memtables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::options::StoreOptions;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::{Tree, TreeState};
use crate::version::VersionSet;

/// The changes of a flush to the state of a tree, apart from the version.
#[derive(Clone, Copy)]
pub(in crate::store) struct FlushedMemtables<'a> {
    /// The memtables whose entries are in sstables now, or in `retained`.
    pub(in crate::store) memtables: &'a [Arc<LoggedMemtable>],
    /// Replaces them.
    pub(in crate::store) retained: Option<&'a Arc<LoggedMemtable>>,
}

/// The state `now` with the memtables of `flushed` replaced by the version in the manifest. Without `flushed`, `now`
/// itself.
pub(in crate::store) fn next_state(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<FlushedMemtables<'_>>,
    now: &TreeState,
) -> TreeState {
    match flushed.zip(versions.current(tree.id)) {
        Some((flushed, version)) => now.installed(version, flushed.memtables, flushed.retained.cloned()),
        None => now.clone(),
    }
}

/// Replaces the state of `tree` by the result of `change` for the [`next_state`].
pub(in crate::store) fn publish_state(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<FlushedMemtables<'_>>,
    change: impl FnOnce(TreeState) -> TreeState,
) {
    tree.replace_state(|now| change(next_state(tree, versions, flushed, now)));
    if flushed.is_some() {
        tree.publication_pending.store(false, Ordering::Release);
    }
}

/// True if writers wait once one more memtable of `tree` is full.
pub(in crate::store) fn writers_need_room(options: &StoreOptions, tree: &Tree) -> bool {
    tree.state_guard().pending_flushes() >= options.max_immutable_memtables
}
