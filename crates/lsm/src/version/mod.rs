//! Versions: the sstables of each tree, in memory and durably.
//!
//! | file | concept |
//! |---|---|
//! | `table_meta` | the facts about an sstable that are known without opening it |
//! | `table_handle` | an sstable shared by versions: opened by the first read, deleted with the last reference |
//! | `sorted_run` | sstables with disjoint key ranges, searched as one |
//! | `version` | the immutable runs of one tree |
//! | `boundaries`, `partitions` | the boundaries of levels, and the partitions between them |
//! | `stored_view`, `view_meta` | a sorted view in memory or in a REMIX file, and the facts about the file |
//! | `retained_log` | the log position of the entries that a flush retained |
//! | `wal_segment` | the WAL segments, and the tails that recovery cut off |
//! | `version_edit` | a change of this state, and its codec |
//! | `catalogue` | the state that results from the edits |
//! | `manifest`, `current_file` | the log of edits on disk, and the file that names it |
//! | `version_set` | the owner: applies edits durably, recovers, replaces manifests |
//! | `version_set_copy` | its state at one moment, for a checkpoint |

mod boundaries;
mod catalogue;
mod current_file;
mod describe;
mod manifest;
mod partitions;
mod retained_log;
mod sorted_run;
mod stored_view;
mod table_handle;
mod table_meta;
#[expect(clippy::module_inception, reason = "one noun per file, and this one is the noun")]
mod version;
mod version_edit;
mod version_set;
mod version_set_copy;
mod view_meta;
mod wal_segment;

pub use crate::range_tombstones::{RangeTombstone, RangeTombstones};
pub use boundaries::{Boundaries, boundaries_between};
pub(crate) use current_file::CurrentFile;
pub use describe::{describe_current, describe_manifest, owner_of_table};
pub use partitions::Partition;
pub use retained_log::RetainedLog;
pub use sorted_run::SortedRun;
pub use stored_view::StoredView;
pub use table_handle::{ObsoleteFiles, TableFiles, TableHandle, ViewFailures};
pub use table_meta::{MAX_ATTACHMENT_BYTES, TableMeta};
pub use version::Version;
pub use version_edit::{EditOperation, VersionEdit};
pub use version_set::{CatalogueTree, OpenMode, VersionSet, VersionSetOptions, no_database};
pub use version_set_copy::VersionSetCopy;
pub use view_meta::ViewMeta;
pub use wal_segment::{CutTail, WalSegment, WriterEnd};

/// How many levels a version may have. Level 0 takes the flushes.
pub const LEVELS: usize = 7;
/// The last level: it holds the oldest data.
pub const LAST_LEVEL: usize = LEVELS - 1;

#[cfg(test)]
mod tests;
