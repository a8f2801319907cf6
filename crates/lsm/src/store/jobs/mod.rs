//! Background work: the jobs, and the threads that run them.
//!
//! | file | concept |
//! |---|---|
//! | `scheduler`, `work`, `workers` | the order of jobs, the state of the work, and the threads |
//! | `flush`, `compact`, `rewrite` | memtables to sstables, sstables to sstables, rewrites of single sstables |
//! | `partition_flush`, `retained` | flushes into partitions, and the entries that they retain |
//! | `deferred_publication` | when readers see a flush into partitions |
//! | `memory_compaction` | compaction of full memtables in memory |
//! | `table_output` | the sstables that a flush or a compaction writes |
//! | `sorted_view` | rebuilds of the sorted views of a tree |
//! | `layout_change` | change of the layout of a tree in use |
//! | `idle`, `idle_work` | idle detection, and work that waits for idle writes |
//! | `obsolete_files`, `spent_tombstones` | removal of files and range tombstones |

pub(super) mod compact;
pub(super) mod deferred_publication;
pub(super) mod flush;
pub(super) mod idle;
pub(super) mod idle_work;
pub(super) mod layout_change;
pub(super) mod memory_compaction;
pub(super) mod obsolete_files;
pub(super) mod partition_flush;
pub(super) mod retained;
pub(super) mod rewrite;
pub(super) mod scheduler;
pub(super) mod sorted_view;
pub(super) mod spent_tombstones;
pub(super) mod table_output;
pub(super) mod work;
pub(super) mod workers;
