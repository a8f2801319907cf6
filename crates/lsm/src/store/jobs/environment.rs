//! The parts of a store that jobs use.
//!
//! A job holds references to the parts that it touches, and to no other. Only the pickers in
//! [`PICKERS`](super::PICKERS) and callers outside of this folder take them from a store.
//!
//! | environment | used for |
//! |---|---|
//! | [`StopSignal`] | long work that ends when the store closes |
//! | [`MergeEnvironment`] | merges to sstables or memtables |
//! | [`InstallEnvironment`] | edits of the manifest, and the new states of trees |
//! | [`ViewEnvironment`] | rebuilds of sorted views |
//! | [`TableEnvironment`] | compactions, rewrites, spills: merges, installation, and sorted views after it |
//! | [`FlushEnvironment`] | flushes: as compactions, with the floors of the log and the writers that wait |
//! | [`CheckpointEnvironment`] | checkpoints of external trees |
//! | [`GarbageEnvironment`] | garbage collections of external trees |
//! | [`Backlog`] | the delay of writers, and the signal to worker threads |

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::options::StoreOptions;
use crate::row_cache::RowCache;
use crate::store::StoreInner;
use crate::store::commit::log::Log;
use crate::store::commit::pressure::Pressure;
use crate::store::files::StoreFiles;
use crate::store::health::Health;
use crate::store::jobs::work::WorkQueue;
use crate::store::memory::MemtableBudget;
use crate::store::read::snapshots::Snapshots;
use crate::store::reserve::Reserve;
use crate::store::stats::Counters;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;

/// Whether long work should end early.
#[derive(Clone, Copy)]
pub(in crate::store) struct StopSignal<'s> {
    pub(in crate::store) health: &'s Health,
    pub(in crate::store) work: &'s WorkQueue,
}

impl StopSignal<'_> {
    /// True once the store is closing.
    pub(in crate::store) fn is_stopping(self) -> bool {
        self.work.lock().stopping || self.health.is_poisoned()
    }

    /// True if `tree` was dropped or the store is closing: work on it should end.
    pub(in crate::store) fn is_abandoned(self, tree: &Tree) -> bool {
        tree.dropped.load(Ordering::Acquire) || self.is_stopping()
    }
}

/// The parts that a merge of entries uses.
#[derive(Clone, Copy)]
pub(in crate::store) struct MergeEnvironment<'s> {
    /// New files.
    pub(in crate::store) files: &'s StoreFiles,
    pub(in crate::store) options: &'s StoreOptions,
    /// The sequence numbers whose versions remain.
    pub(in crate::store) snapshots: &'s Snapshots,
    pub(in crate::store) stop: StopSignal<'s>,
}

/// The parts that an installation uses.
#[derive(Clone, Copy)]
pub(in crate::store) struct InstallEnvironment<'s> {
    /// The manifest, and the files to be removed.
    pub(in crate::store) files: &'s StoreFiles,
    /// Synced before an edit.
    pub(in crate::store) log: &'s Log,
    pub(in crate::store) health: &'s Health,
    /// Released for an edit on a full disk.
    pub(in crate::store) reserve: &'s Reserve,
    /// The published sequence number, which an edit stores.
    pub(in crate::store) snapshots: &'s Snapshots,
    /// Receives flushed records.
    pub(in crate::store) rows: &'s RowCache,
}

/// The parts that rebuilds of sorted views use.
#[derive(Clone, Copy)]
pub(in crate::store) struct ViewEnvironment<'s> {
    pub(in crate::store) files: &'s StoreFiles,
    pub(in crate::store) options: &'s StoreOptions,
    pub(in crate::store) reserve: &'s Reserve,
    /// Receives the records of a flush that is published with its views.
    pub(in crate::store) rows: &'s RowCache,
    pub(in crate::store) counters: &'s Counters,
    /// Its queue has the trees with outdated views.
    pub(in crate::store) stop: StopSignal<'s>,
}

/// The parts that compactions, rewrites and spills use.
#[derive(Clone, Copy)]
pub(in crate::store) struct TableEnvironment<'s> {
    pub(in crate::store) merge: MergeEnvironment<'s>,
    pub(in crate::store) install: InstallEnvironment<'s>,
    pub(in crate::store) counters: &'s Counters,
}

impl<'s> TableEnvironment<'s> {
    /// The parts that rebuilds of the sorted views over new sstables use.
    pub(in crate::store) fn views(&self) -> ViewEnvironment<'s> {
        ViewEnvironment {
            files: self.merge.files,
            options: self.merge.options,
            reserve: self.install.reserve,
            rows: self.install.rows,
            counters: self.counters,
            stop: self.merge.stop,
        }
    }
}

/// The parts that flushes use.
#[derive(Clone, Copy)]
pub(in crate::store) struct FlushEnvironment<'s> {
    pub(in crate::store) tables: TableEnvironment<'s>,
    /// The trees whose memtables need the log, and the writers that wait for a flush.
    pub(in crate::store) backlog: Backlog<'s>,
}

impl<'s> FlushEnvironment<'s> {
    /// The parts that a checkpoint of an external tree uses.
    pub(in crate::store) fn checkpoints(&self) -> CheckpointEnvironment<'s> {
        CheckpointEnvironment { install: self.tables.install, dir: &self.tables.merge.options.dir }
    }
}

/// The parts that checkpoints of external trees use.
#[derive(Clone, Copy)]
pub(in crate::store) struct CheckpointEnvironment<'s> {
    pub(in crate::store) install: InstallEnvironment<'s>,
    /// The directory of new files.
    pub(in crate::store) dir: &'s Path,
}

/// The parts that garbage collections use.
#[derive(Clone, Copy)]
pub(in crate::store) struct GarbageEnvironment<'s> {
    pub(in crate::store) options: &'s StoreOptions,
    /// The sequence numbers whose versions remain.
    pub(in crate::store) snapshots: &'s Snapshots,
    pub(in crate::store) stop: StopSignal<'s>,
}

/// The backlog of background work, which slows writers down.
#[derive(Clone, Copy)]
pub(in crate::store) struct Backlog<'s> {
    pub(in crate::store) trees: &'s TreeDirectory,
    memtables: &'s MemtableBudget,
    pressure: &'s Pressure,
    work: &'s WorkQueue,
}

impl Backlog<'_> {
    /// Updates the delay of writers, and wakes them and the worker threads: the backlog has changed.
    pub(in crate::store) fn changed(self) {
        self.memtables.update();
        self.pressure.update(self.trees, self.memtables.is_exceeded());
        self.work.wake();
    }
}

impl StoreInner {
    pub(in crate::store) fn stop_signal(&self) -> StopSignal<'_> {
        StopSignal { health: &self.health, work: &self.work }
    }

    pub(in crate::store) fn merge_environment(&self) -> MergeEnvironment<'_> {
        MergeEnvironment {
            files: &self.files,
            options: &self.options,
            snapshots: &self.snapshots,
            stop: self.stop_signal(),
        }
    }

    pub(in crate::store) fn install_environment(&self) -> InstallEnvironment<'_> {
        InstallEnvironment {
            files: &self.files,
            log: &self.log,
            health: &self.health,
            reserve: &self.reserve,
            snapshots: &self.snapshots,
            rows: &self.rows,
        }
    }

    pub(in crate::store) fn table_environment(&self) -> TableEnvironment<'_> {
        TableEnvironment {
            merge: self.merge_environment(),
            install: self.install_environment(),
            counters: &self.counters,
        }
    }

    pub(in crate::store) fn flush_environment(&self) -> FlushEnvironment<'_> {
        FlushEnvironment { tables: self.table_environment(), backlog: self.backlog() }
    }

    pub(in crate::store) fn garbage_environment(&self) -> GarbageEnvironment<'_> {
        GarbageEnvironment { options: &self.options, snapshots: &self.snapshots, stop: self.stop_signal() }
    }

    pub(in crate::store) fn backlog(&self) -> Backlog<'_> {
        Backlog { trees: &self.trees, memtables: &self.memtables, pressure: &self.pressure, work: &self.work }
    }
}
