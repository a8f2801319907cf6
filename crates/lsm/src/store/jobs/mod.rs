//! Background work: the jobs, and the threads that run them.
//!
//! | file | concept |
//! |---|---|
//! | `job`, `scheduler` | a unit of work; the order and the outcome of jobs, whatever they do |
//! | `environment`, `shared_tasks` | the parts of a store that jobs use; tasks of a job that idle threads share |
//! | `work`, `workers` | the state of the work, and the threads |
//! | `manual` | work that a caller requests and waits for |
//! | `flush`, `compact`, `rewrite` | memtables to sstables, sstables to sstables, rewrites of single sstables |
//! | `partition_flush`, `retained` | flushes into partitions, and the entries that they retain |
//! | `memory_compaction` | compaction of full memtables in memory |
//! | `table_output`, `install`, `flush_install` | the sstables that a job writes, and their installation; that of several flushes |
//! | `publication`, `deferred_publication` | when readers see a flush |
//! | `sorted_view`, `view_rebuild` | rebuilds of the sorted views of a tree |
//! | `attach`, `spill` | opening of deferred external trees; their spills |
//! | `garbage`, `idle` | garbage collection of external trees; idle detection |
//! | `layout_change` | change of the layout of a tree in use |
//! | `obsolete_files`, `spent_tombstones` | removal of files and range tombstones |
//!
//! A kind of job is a file with a [`BackgroundJob`](job::BackgroundJob), which holds the parts of the store that it uses, and a
//! function that picks it, registered in [`PICKERS`].

mod attach;
pub(super) mod compact;
pub(super) mod deferred_publication;
pub(super) mod environment;
pub(super) mod flush;
pub(super) mod flush_install;
pub(super) mod garbage;
pub(super) mod idle;
pub(super) mod install;
pub(super) mod job;
pub(super) mod layout_change;
mod manual;
pub(super) mod memory_compaction;
pub(super) mod obsolete_files;
pub(super) mod partition_flush;
pub(super) mod publication;
pub(super) mod retained;
pub(super) mod rewrite;
pub(super) mod scheduler;
pub(super) mod shared_tasks;
pub(super) mod sorted_view;
pub(super) mod spent_tombstones;
pub(super) mod spill;
pub(super) mod table_output;
pub(super) mod view_rebuild;
pub(super) mod work;
pub(super) mod workers;

use self::attach::pick_attachment;
use self::compact::pick_compaction;
use self::flush::pick_flush;
use self::garbage::pick_garbage_collection;
use self::job::{Picker, pick_shared_tasks};
use self::memory_compaction::pick_memory_compaction;
use self::obsolete_files::remove_obsolete_files;
use self::spent_tombstones::remove_spent_tombstones;
use self::spill::pick_spill;
use self::view_rebuild::pick_view_rebuild;
use super::StoreInner;

/// Removes range tombstones and files that became obsolete. Called after background work.
pub(super) fn clean_up(store: &StoreInner) {
    remove_spent_tombstones(&store.tombstone_removal, &store.trees, store.install_environment());
    remove_obsolete_files(&store.files, &store.health, &store.log);
}

/// The kinds of jobs, the most urgent first. Flushes free memory and log; a compaction in memory may spare a flush.
const PICKERS: [Picker; 8] = [
    |store, work| pick_shared_tasks(store.merge_environment(), work),
    |store, work| pick_attachment(store, &store.trees, work),
    |store, work| pick_memory_compaction(store.table_environment(), &store.trees, work),
    |store, work| pick_flush(store.flush_environment(), work),
    |store, work| pick_spill(store.table_environment(), &*store.runtime, &store.trees, work),
    |store, work| pick_compaction(store.table_environment(), &store.trees, work),
    |store, work| {
        let env = store.table_environment().views();
        pick_view_rebuild(env, &store.trees, store.runtime.now_micros(), work)
    },
    |store, work| {
        let env = store.garbage_environment();
        pick_garbage_collection(env, &store.trees, store.runtime.now_micros(), work)
    },
];
