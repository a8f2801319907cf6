//! The write-ahead log: segments that hold every write since the oldest unflushed memtable.
//!
//! A segment is a [record log](crate::record_log) whose payloads are write batches. Segments form a
//! chain: the header of each names the one before it and where that one ends. So recovery notices a
//! segment that is missing or cut short, and knows that only the last one may have a torn tail.
//!
//! * [`WalWriter`] appends to the newest segment.
//! * [`replay`](replay::replay) reads the chain back and judges its end.
//!
//! # Rules
//! 1. A segment is synced whole before the next one is created; [`WalWriter::create`] takes the end of
//!    the one before as an argument, so this cannot be forgotten silently.
//! 2. No record is added to a segment after a reopen. Its end is *sealed* in the manifest before the next
//!    segment is created: after a clean close, and after recovery has cut a torn tail. Before that seal
//!    the segment is written anew: what recovery read may have been in the page cache alone.
//! 3. A segment is removed once the manifest's WAL floor is past it, never recycled.

mod describe;
pub mod replay;
mod writer;

pub use describe::describe_wal;
pub use replay::{LogEnd, WalTail};
pub use writer::WalWriter;

#[cfg(test)]
mod tests;
