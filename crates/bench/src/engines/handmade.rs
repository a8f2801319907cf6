//! The index of an application on a store without secondary indexes, identical for every such store.
//!
//! ```text
//! index key   secondary key, 8 bytes big-endian | inverted version, 8 bytes | primary key
//! index value empty
//! ```
//!
//! Inverting the version puts the newest records of a secondary key first.

use crate::data::indexed_record::{secondary_of, version_of};
use crate::data::keys::KEY_BYTES;

/// Length of an index key in bytes.
pub const ENTRY_BYTES: usize = 16 + KEY_BYTES;

/// The removal of the index entry of an overwritten record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// A write reads the old record and deletes its entry.
    Read,
    /// A write reads nothing; a lookup compares each entry with its record and skips stale ones.
    Blind,
}

/// The index key of `record`.
#[inline]
pub fn entry(primary: &[u8], record: &[u8]) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice(&secondary_of(record).to_be_bytes());
    entry[8..16].copy_from_slice(&(!version_of(record)).to_be_bytes());
    entry[16..].copy_from_slice(primary);
    entry
}

/// Whether `entry` (an index key) belongs to `record`, the present record of its primary key.
#[inline]
pub fn is_current(entry: &[u8], record: &[u8]) -> bool {
    entry[..8] == secondary_of(record).to_be_bytes() && entry[8..16] == (!version_of(record)).to_be_bytes()
}

/// The primary key in an index key.
#[inline]
pub fn primary_of(entry: &[u8]) -> &[u8] {
    &entry[16..]
}
