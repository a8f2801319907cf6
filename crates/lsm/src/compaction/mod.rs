//! Compaction: what to merge (policies), and what to keep (retention).

pub mod retention;

pub use retention::{CompactionFilter, Retention};
