//! The vocabulary of the Bolide store. No input or output happens here.
//!
//! Every other crate speaks in these words: [`SequenceNumber`], [`Trailer`], [`Error`], the
//! bounded [`coding`] of integers and byte strings, keys as [bits](key_bits), and the [`checksum`] that binds a block to its
//! place in its file.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod coding;
pub mod error;
pub mod internal_key;
pub mod key_bits;
pub mod limits;

pub use checksum::FileIdentity;
pub use error::{Error, ErrorKind, Result};
pub use internal_key::{EntryKind, MAX_SEQUENCE, SequenceNumber, Trailer, TreeId};
