//! The basic types of the Bolide store. This crate does no input or output.
//!
//! All other crates use these types: [`SequenceNumber`], [`Trailer`], [`Error`], the bounded [`coding`] of integers and byte
//! strings, keys as [bits](key_bits), and the [`checksum`] that binds a block to its location in its file.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod coding;
pub mod error;
pub mod internal_key;
pub mod interruption;
pub mod key_bits;
pub mod limits;
pub mod position_text;
pub mod technique;

pub use checksum::FileIdentity;
pub use error::{Error, ErrorKind, Result};
pub use internal_key::{EntryKind, MAX_SEQUENCE, SequenceNumber, Trailer, TreeId};
