//! Fetching the records of candidates: the parts that know nothing of lookups.
//!
//! ```text
//! lookup ─> options      what is turned on
//!        ─> manner       a few records, by key or by sequence number
//!        ─> task_queue   many records, by several threads ─> pool: the threads
//!        ─> costs        what it took
//! ```

mod costs;
mod manner;
mod options;
mod pool;
pub(crate) mod task_queue;

pub use costs::FetchCosts;
pub(crate) use manner::{Manner, held_bytes};
pub use options::FetchOptions;
pub use pool::{FetchPool, FetchPoolStats, MAX_FETCH_THREADS};
