//! Structures that a PS-Tree is compared with (Perseid §3, §5.1), all of them exact.
//!
//! ```text
//! structure           what maps secondary keys to entries    SKey layer: B+-tree, or trie
//!   ps_tree           groups in pages, regrouped at splits   key → newest group
//!   composite         a key for every entry                  key ++ inverted sequence ++ primary key → flag
//!   value_log         entries in one log, linked             key → newest entry
//! pm_index            a structure, validated by a version table
//! lsm                 an index of a database: composite keys in an LSM tree, validated by one of primary keys
//! by_driver           a pm_index behind the lookup driver of a database, which fetches records
//! ```
//!
//! Structures flag entries that are found to be obsolete, as a PS-Tree does. Only the PS-Tree removes them: the paper
//! too leaves garbage collection of the others off.

mod by_driver;
mod composite;
mod keys;
mod lsm;
mod pm_index;
mod ps_tree;
#[cfg(test)]
mod tests;
mod value_log;

use bolide_base::SequenceNumber;
use bolide_index::ps_tree::{Obsolescence, PsBounds};
use bolide_storage::pmem::RegionWriter;

pub use by_driver::{Stand, queried_by_driver};
pub use composite::CompositeKeys;
pub use keys::{primary_key, secondary_key};
pub use lsm::{LsmIndex, LsmKind};
pub use pm_index::{Candidates, PmIndex, PmKind, PmSettings, Put, Stages};
pub use ps_tree::PsStructure;
pub use value_log::ValueLog;

use crate::error::Result;

/// One entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'e> {
    /// The secondary key. Of two keys of one index, none begins with the other.
    pub secondary_key: &'e [u8],
    /// The primary key.
    pub primary_key: &'e [u8],
    /// The write that it stems from, from 1 on.
    pub sequence: SequenceNumber,
}

/// What a walk does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Goes to the next entry.
    Next,
    /// Goes to the newest entry of the next secondary key.
    NextKey,
    /// Flags the entry, so that it is not met again, and goes to the next.
    Flag,
    /// Ends.
    Stop,
}

/// Receives the entries of a walk.
pub trait Visitor {
    /// An entry that is not flagged.
    ///
    /// # Errors
    /// Whatever ends the walk.
    fn entry(&mut self, entry: Entry<'_>) -> Result<Step>;

    /// The entry for which `entry` returned [`Step::Flag`] was flagged by this walk, and by no other one before.
    ///
    /// # Errors
    /// Whatever ends the walk.
    fn flagged(&mut self) -> Result<()>;
}

/// A multi-map from secondary keys to entries, in a region.
pub trait Structure: Send + Sync {
    /// Adds an entry. One that is added later to the same secondary key is newer, except from several threads at once.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    fn insert(&self, writer: &RegionWriter<'_>, entry: Entry<'_>, garbage: &dyn Obsolescence) -> Result<()>;

    /// Shows the entries within `bounds`: key after key, those of a key newest first.
    ///
    /// # Errors
    /// Those of `visitor`, and `Corruption` from the region.
    fn walk(&self, bounds: PsBounds<'_>, visitor: &mut dyn Visitor) -> Result<()>;
}
