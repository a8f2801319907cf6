//! Compaction: the choice of inputs (policies), of entries (retention, filter), and the merge of operands (merge).

pub mod filter;
pub mod fragmented;
pub mod leveled;
pub mod merge;
pub mod partitioned;
pub mod policy;
pub mod retention;
pub mod tiered;

pub use filter::{CompactionFilter, FilteredEntry, FilteredOutput};
pub use merge::{EntrySink, MergeContext, MergeOperator, MergedOperands, MergingRetention, Operand};
pub use policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PartitionShape, PlanInput, RunShape, TableShape,
    VersionShape,
};
pub use retention::Retention;

use crate::options::{Layout, TreeOptions};
use fragmented::Fragmented;
use leveled::Leveled;
use partitioned::Partitioned;
use tiered::Tiered;

/// The policy for a tree with these options; `partition_tables` is the maximum of sorted runs of a partition.
pub fn policy_for(options: &TreeOptions, partition_tables: usize) -> Box<dyn CompactionPolicy> {
    match options.layout {
        Layout::Leveled => Box::new(Leveled::new(options.target_file_bytes)),
        Layout::Tiered => Box::new(Tiered::new(options.target_file_bytes)),
        Layout::Fragmented => Box::new(Fragmented::new(options.target_file_bytes)),
        Layout::Partitioned => Box::new(Partitioned::new(options.target_file_bytes, partition_tables)),
    }
}
