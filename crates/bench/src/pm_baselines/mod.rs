//! The baselines of the PS-Tree (Perseid §3, §5.1), all of them exact.
//!
//! ```text
//! structure           storage of entries                     SKey layer: B+-tree, or trie
//!   ps_tree           groups in pages, regrouped at splits   key → newest group
//!   composite         a key for every entry                  key ++ inverted sequence ++ primary key → flag
//!   value_log         entries in one log, linked             key → newest entry
//! pm_index            a structure, validated by a version table
//! lsm                 an index of a database: composite keys in an LSM tree, validated by a tree of primary keys
//! substitute_index    a pm_index behind the lookup driver of a database, which fetches records
//! ```
//!
//! Structures flag obsolete entries that a walk finds, as a PS-Tree does. Only the PS-Tree removes them: garbage collection of
//! the others is off, as in the paper.

mod composite;
mod keys;
mod lsm;
mod pm_index;
mod ps_tree;
mod substitute_index;
#[cfg(test)]
mod tests;
mod value_log;

use bolide_base::SequenceNumber;
use bolide_index::ps_tree::{Obsolescence, PsBounds};
use bolide_storage::pmem::RegionWriter;

pub use composite::CompositeKeys;
pub use keys::{primary_key, secondary_key};
pub use lsm::{LsmIndex, LsmKind};
pub use pm_index::{Candidates, PmIndex, PmKind, PmSettings, StageTimes, StagedPut};
pub use ps_tree::PsTreeEntries;
pub use substitute_index::{EntrySource, with_substitute_index};
pub use value_log::ValueLog;

use crate::error::Result;

/// One entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'e> {
    /// The secondary key. No key of an index is a prefix of another.
    pub secondary_key: &'e [u8],
    /// The primary key.
    pub primary_key: &'e [u8],
    /// The sequence number of its write, from 1 on.
    pub sequence: SequenceNumber,
}

/// The next step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkStep {
    /// Continues with the next entry.
    Next,
    /// Continues with the newest entry of the next secondary key.
    NextKey,
    /// Flags the entry, so that later walks skip it, and continues with the next.
    Flag,
    /// Ends the walk.
    Stop,
}

/// Receives the entries of a walk.
pub trait Visitor {
    /// Receives an entry that is not flagged.
    ///
    /// # Errors
    /// An error ends the walk.
    fn entry(&mut self, entry: Entry<'_>) -> Result<WalkStep>;

    /// Called after this walk flagged the entry for which `entry` returned [`WalkStep::Flag`], unless another walk did before.
    ///
    /// # Errors
    /// An error ends the walk.
    fn flagged(&mut self) -> Result<()>;
}

/// A multi-map from secondary keys to entries, in a region.
pub trait EntryStructure: Send + Sync {
    /// Adds an entry. Entries of a secondary key arrive in the order of their sequence numbers, except from concurrent threads.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    fn insert(&self, writer: &RegionWriter<'_>, entry: Entry<'_>, garbage: &dyn Obsolescence) -> Result<()>;

    /// Visits the entries within `bounds` in key order, those of a key newest first.
    ///
    /// # Errors
    /// Those of `visitor`, and `Corruption` from the region.
    fn walk(&self, bounds: PsBounds<'_>, visitor: &mut dyn Visitor) -> Result<()>;
}
