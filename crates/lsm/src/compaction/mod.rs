//! Compaction: the choice of entries (retention, filter), and the merge of operands (merge). The choice of inputs is that of
//! the [layout](crate::layout).

pub mod filter;
pub mod merge;
pub mod retention;

pub use crate::layout::policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PartitionShape, PlanInput, RunShape, TableShape,
    VersionShape,
};
pub use filter::{CompactionFilter, FilteredEntry, FilteredOutput};
pub use merge::{EntrySink, MergeContext, MergeOperator, MergedOperands, MergingRetention, Operand};
pub use retention::Retention;
