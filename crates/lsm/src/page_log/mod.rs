//! The pages of a region on disk: append-only segments, and roots that say what counts.
//!
//! A region in memory is written down by cuts. A cut appends the pages that changed to the segment in use
//! and then a *root*, which lists the segments and how far each of them counts. Whoever names a root, the
//! manifest, names a whole state of the region: the newest record of each page in the listed parts. Nothing
//! is ever overwritten, so the root before stays whole, and segments can be linked into a checkpoint.
//!
//! | file | concept |
//! |---|---|
//! | `format` | the bytes of headers, page records and roots |
//! | `scan` | reading a segment from its beginning |
//! | `segment_output` | appending a cut to segments |
//! | `log` | one region's segments: cuts, installing, emptying old segments |
//! | `load` | a region from a root; checking one |
//! | `gather` | reading all segments of a root, by several threads |
//! | `describe` | a segment for people |

mod describe;
mod format;
mod fuzzing;
mod read_segments;
mod load;
mod log;
mod scan;
mod segment_output;

#[cfg(test)]
mod tests;

pub use describe::describe_segment;
pub use format::{RootPointer, SEGMENT_BYTES};
#[doc(hidden)]
pub use fuzzing::fuzz_segment;
pub use load::{LoadedRegion, RootSummary};
pub use log::{PageLog, PageLogStats, PendingCut};
