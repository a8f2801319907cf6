//! Checks of a write in memory: memtables, range tombstones, metadata and filters.
//!
//! # Decidable cases
//! A write of `key` at `sequence` is current at a view if it is the newest version that the view sees. A memtable with
//! the key decides, since all later components are older. Otherwise the version is in an sstable whose range of
//! sequence numbers contains `sequence` and whose filter contains the key: filters have no false negatives. If there is
//! no such sstable in any run, the version is gone, and thus replaced or deleted. If there is one, nothing is proved:
//! the filter may have a false positive, and the same sstable may have a newer version. Then the result is
//! [`LiteVerdict::Unknown`], and the caller reads.
//!
//! This is LevelDB++'s `GetLite` (§3.2), which checks the filters of all levels above the level of the record. Here
//! each run of a level and each memtable counts as a level, and a false positive never drops a row.

use bolide_base::SequenceNumber;

use crate::store::read::point_lookup::{Containing, PointLookup};
use crate::store::read::read_view::TreeView;
use crate::store::tree::TreeState;

/// The state of a write, as far as it can be decided without reading a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LiteVerdict {
    /// It is the newest version of its key that the view sees.
    Current,
    /// It was replaced, deleted, or covered by a range tombstone.
    Obsolete,
    /// Undecided.
    Unknown,
}

/// The state of the write at `written` of the key of `lookup`, for the view that `lookup` reads at.
fn state_of(state: &TreeState, lookup: &PointLookup<'_>, written: SequenceNumber) -> LiteVerdict {
    if let Some((trailer, _)) = lookup.in_memtables_only(state) {
        let current = trailer.sequence() == written && lookup.is_visible(state, trailer);
        return if current { LiteVerdict::Current } else { LiteVerdict::Obsolete };
    }
    if !state.is_put_visible(lookup.key, written, lookup.at) {
        return LiteVerdict::Obsolete;
    }
    let may_hold = lookup
        .tables(state, Containing { write: written, view: lookup.at })
        .any(|table| table.opened_reader().is_none_or(|reader| reader.may_contain_hash(lookup.hash)));
    if may_hold { LiteVerdict::Unknown } else { LiteVerdict::Obsolete }
}

impl TreeView {
    /// Checks in memory whether the write of `key` at `written` is the newest one that this view sees: no I/O, no
    /// block. Cost: a cache line of a filter for each run, and a search in each memtable.
    pub fn get_lite(&self, key: &[u8], written: SequenceNumber) -> LiteVerdict {
        if written > self.sequence() {
            return LiteVerdict::Unknown;
        }
        state_of(self.state(), &PointLookup::new(key, self.sequence()), written)
    }
}
