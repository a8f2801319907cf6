//! The immutable sstable of Bolide: blocks, filters, builder, reader, cursor, block cache
#![forbid(unsafe_code)]

mod internal_cursor;

pub use internal_cursor::InternalCursor;
