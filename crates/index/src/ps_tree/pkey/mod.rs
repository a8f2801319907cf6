//! The PKey layer: the primary keys of the secondary keys with several entries, in pages of each key (Perseid §4.2).

pub(crate) mod chain;
pub(crate) mod content;
pub(crate) mod entry;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod locks;
pub(crate) mod page;
pub(crate) mod pointer;

use bolide_base::Error;
use bolide_storage::pmem::Place;

/// The error for bytes that no writer writes.
#[cold]
pub(crate) fn damage(at: Place, what: &str) -> Error {
    Error::corruption("index region", at, what)
}
