//! Reads: of single keys, of lists of keys, of components, of known locations.
//!
//! | file | concept |
//! |---|---|
//! | `snapshots`, `read_view` | the versions that readers need, and consistent reads |
//! | `point_lookup` | the newest version of one key, for all readers |
//! | `newest_reads` | reads of the newest version through the row cache |
//! | `cached_reads` | reads of the newest version from memory alone |
//! | `batch_read` | many point reads at once |
//! | `known_writes`, `versions_at` | reads of writes with a known sequence number; reads at known locations |
//! | `get_lite`, `newer_versions` | visibility checks in memory; checks for newer versions |
//! | `components` | the memtables and sstables of a view one by one |
//! | `estimate` | the number of entries in a range |
//! | `tree_reader` | reads of a tree outside of any view, for compaction filters |

pub(super) mod batch_read;
pub(super) mod cached_reads;
pub(super) mod components;
pub(super) mod estimate;
pub(super) mod get_lite;
pub(super) mod known_writes;
pub(super) mod newer_versions;
pub(super) mod newest_reads;
pub(super) mod point_lookup;
pub(super) mod read_view;
pub(super) mod snapshots;
pub(super) mod tree_reader;
pub(super) mod versions_at;
