//! Compaction: what to merge (policies), and what to keep (retention).

pub mod leveled;
pub mod policy;
pub mod retention;
pub mod tiered;

pub use policy::{
    CompactionPlan, CompactionPolicy, PlanInput, RunShape, TableShape, VersionShape, policy_for,
};
pub use retention::{CompactionFilter, Retention};
