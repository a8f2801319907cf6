//! The page log: the pages of a region on disk, in append-only segments with roots.
//!
//! A region in memory is persisted by checkpoints. A region checkpoint appends the changed pages to the open segment and
//! then a *root*, which lists the segments with their valid lengths. A root, which the manifest refers to, defines a
//! whole state of the region: the newest record of each page in the listed parts. Nothing is overwritten, so the
//! previous root stays valid, and segments can be hard-linked into a copy of the database.
//!
//! | file | concept |
//! |---|---|
//! | `format` | the bytes of headers, page records and roots |
//! | `scan` | sequential reads of a segment |
//! | `segment_output` | appending a checkpoint to segments |
//! | `log` | the segments of a region: checkpoints, installation, garbage collection |
//! | `load` | loading and verifying a region from a root |
//! | `read_segments` | reading all segments of a root with several threads |
//! | `describe` | a text description of a segment |

mod describe;
mod format;
mod fuzzing;
mod load;
mod log;
mod read_segments;
mod scan;
mod segment_output;

#[cfg(test)]
mod tests;

pub use describe::describe_segment;
pub use format::{RootPointer, SEGMENT_BYTES};
#[doc(hidden)]
pub use fuzzing::fuzz_segment;
pub use load::{LoadedRegion, RootSummary};
pub use log::{PageLog, PageLogStats, PendingCheckpoint};
