//! The operations on a store: the rows of the plain-store workload and of the index workload.
//!
//! Every row checks the answers it gets, so that a store that loses records, skips rows or hands
//! out torn values fails instead of looking fast. The checks cost every engine the same few
//! nanoseconds; the checksum of all answers must also agree between engines, because the sequence
//! of operations depends on the seed alone.

pub mod index;
pub mod kinds;
pub mod meter;
pub mod next;
pub mod next_windows;
pub mod rows;
pub mod sorted_view;
pub mod store;
pub mod view_bed;
pub mod worker;
