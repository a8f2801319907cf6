//! The write-ahead log: segments that hold every write since the oldest unflushed memtable.
//!
//! A segment is a [record log](crate::record_log) whose payloads are write batches. The manifest names every
//! segment that may be needed, with its tag, and where each but the last one ends. So recovery notices a
//! segment that is missing, foreign or cut short, and knows that only the last one may have a torn tail.
//!
//! * [`WalWriter`] appends to the newest segment.
//! * [`replay`](replay::replay) reads the segments back and judges their end.
//!
//! # Rules
//! 1. A segment is synced whole and the next one is created, durably; then one manifest edit stores the end of the
//!    first and names the second; then the second takes records.
//! 2. No record is added to a segment after a reopen: recovery, or a clean close, stores its end. What recovery read
//!    may have been in the page cache alone, so it is written again in place first.
//! 3. Each sync is noted in the [marker](crate::sync_marker).
//! 4. A segment is removed once the manifest's WAL floor is past it, never recycled. If recovery cut off its tail, it
//!    is renamed to `NNNNNN.tail` instead and stays until it is removed by hand.

mod describe;
pub mod replay;
mod writer;

pub use describe::describe_wal;
pub use replay::{LogEnd, WalTail};
pub use writer::WalWriter;

#[cfg(test)]
mod tests;
