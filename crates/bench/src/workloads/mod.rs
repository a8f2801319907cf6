//! The workloads: the rows of the plain-store workload, of the index workloads and of sorted views.
//!
//! Every row checks its answers, so that a store that loses records, skips rows or returns torn values fails instead of
//! appearing fast. The checks cost every engine the same few nanoseconds. The checksum of all answers must agree between
//! engines, since the sequence of operations depends on the seed alone.

pub mod advisor;
pub mod beyond;
pub mod index;
pub mod kinds;
pub mod meter;
pub mod next;
pub mod next_windows;
pub mod opening;
pub mod rows;
pub mod sorted_view;
pub mod store;
pub mod transactions;
pub mod view_bed;
pub mod worker;
