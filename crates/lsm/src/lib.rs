//! Log-structured trees over one write-ahead log and one manifest.
//!
//! A [`Store`] has any number of trees. They share one log, so that a batch over several trees is atomic, and one manifest,
//! so that their files change together. The layers above give the trees their meaning (records, indexes).

pub mod attachments;
mod batch;
pub mod collectors;
pub mod compaction;
pub mod cursor;
pub mod drop_listener;
pub mod external_tree;
pub mod file_name;
mod key_heads;
pub mod layout;
pub mod memtable;
pub mod options;
pub mod page_log;
mod predictor;
pub mod range_tombstones;
pub mod record_log;
pub mod remix;
mod row_cache;
pub mod salvage;
pub mod store;
pub mod sync_marker;
mod tree_list;
pub mod version;
pub mod wal;

pub use attachments::Attachments;
pub use batch::{BatchMark, BatchReader, Operation, PlacedOperation, StoreBatch};
pub use collectors::CollectorFactory;
pub use compaction::MergeOperator;
pub use cursor::{Bounds, BudgetedCursor, StepBudget, VersionsCursor, VisibleCursor};
pub use drop_listener::{DropCollector, DropListener};
pub use external_tree::ExternalTree;
pub use layout::Layout;
pub use options::{ResetTree, SortedViews, StoreOptions, SyncMode, TreeOptions};
pub use row_cache::RowCacheStats;
pub use store::{
    CommitStage, CommitState, RangeEstimate, ReadView, RecentCommit, RecentCommits, RecentWrite, Store,
    StoreComponents, TransactionView, TreeInfo, TreeView,
};
