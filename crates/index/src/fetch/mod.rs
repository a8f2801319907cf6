//! Fetching the records of candidates: the parts without a dependency on lookups.
//!
//! ```text
//! lookup ─> options      settings
//!        ─> fetch_mode   a few records, by key or by sequence number
//!        ─> task_queue   many records, by several threads ─> pool: the threads
//!        ─> costs        counters
//! ```

mod costs;
mod fetch_mode;
mod options;
mod pool;
pub(crate) mod task_queue;

pub use costs::FetchCosts;
pub(crate) use fetch_mode::{FetchMode, pinned_bytes};
pub use options::FetchOptions;
pub use pool::{FetchPool, FetchPoolStats, MAX_FETCH_THREADS};
