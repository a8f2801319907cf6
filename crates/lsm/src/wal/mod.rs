//! The write-ahead log: segments with all writes since the oldest unflushed memtable.
//!
//! A segment is a [record log](crate::record_log) whose payloads are write batches. The manifest names every
//! segment that may be needed, with its tag, and the ends of all but the last. So recovery detects a missing, foreign or
//! truncated segment, and only the last one may have a torn tail.
//!
//! * [`WalWriter`] appends to the newest segment.
//! * [`replay`](replay::replay) reads the segments and classifies their ends.
//!
//! # Rules
//! 1. A segment is synced whole and the next one is created, durably; then one manifest edit stores the end of the
//!    first and names the second; then the second takes records.
//! 2. No record is added to a segment after a reopen: recovery, or a clean close, stores its end. The bytes that recovery
//!    read may have been in the page cache only, so they are rewritten in place first.
//! 3. Each sync is recorded in the [marker](crate::sync_marker).
//! 4. A segment is removed once the manifest's WAL floor is past it, never recycled. If recovery cut off its tail, it is
//!    renamed to `NNNNNN.tail` instead and stays until a person removes it.

mod describe;
pub mod replay;
mod writer;

pub use describe::describe_wal;
pub use replay::{LogEnd, WalTail};
pub use writer::WalWriter;

#[cfg(test)]
mod tests;
