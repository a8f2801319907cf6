//! The framing that the WAL and the manifest share: a file header, then checksummed records.
//!
//! * [`mod@format`] has the byte layout and its constants.
//! * [`Predecessor`] encodes a record as the difference to the previous one.
//! * [`LogWriter`] appends many records with one file append and tracks what is durable.
//! * [`LogReader`] yields the records and classifies the end of the log: clean, torn, or damaged.
//!
//! To distinguish a torn tail from damage, each record contains the offset up to which the log was known to be durable
//! when the record was written. See [`LogReader::classify_end`].

mod describe;
pub mod format;
mod predecessor;
mod reader;
mod single_operation;
mod writer;

pub(crate) use describe::describe_end;
pub use format::{Boot, LogHeader, LogRole};
pub use predecessor::Predecessor;
pub(crate) use reader::only_zeros_from;
pub use reader::{LogReader, LogRecord, LogStop, TailEnd};
pub(crate) use single_operation::SingleOperation;
pub use writer::LogWriter;
pub(crate) use writer::in_doubt;
