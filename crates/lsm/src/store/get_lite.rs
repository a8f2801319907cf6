//! What memory alone says about a write: memtables, deleted ranges, metas and filters.
//!
//! # What is provable
//! A write of `key` at `sequence` is current at a view if the newest version that the view sees is that one. A
//! memtable that has the key settles it, since all that follows is older. Else the version lies in an
//! sstable whose range of sequence numbers holds `sequence` and whose filter knows the key: filters never miss a key
//! that was added. Where no sstable of any run is such, the version is gone, and so replaced or deleted.
//! Where one is, nothing is proved: the filter may be wrong, and the same sstable may hold a newer version.
//! Then the answer is [`Lite::Unknown`], and the caller reads.
//!
//! The idea is LevelDB++'s `GetLite` (§3.2), which asks the filters of all levels above the one where the
//! record was found. Runs of one level and memtables count as levels of their own here, and no bit of a
//! filter ever drops a row.

use bolide_base::SequenceNumber;
use bolide_base::checksum::hash_key;

use super::read_view::TreeView;
use super::tree::TreeState;

/// What is known of a write without reading a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lite {
    /// It is the newest version of its key that the view sees.
    Current,
    /// It was replaced, deleted, or covered by a deleted range.
    Obsolete,
    /// Memory does not say.
    Unknown,
}

impl TreeState {
    /// What memory says about the write of `key` at `written`, at the view `sequence`.
    fn get_lite(&self, key: &[u8], written: SequenceNumber, sequence: SequenceNumber) -> Lite {
        for logged in self.memtables() {
            if let Some(trailer) = logged.memtable.newest(key, sequence) {
                let current = trailer.sequence() == written && self.is_visible(key, trailer, sequence);
                return if current { Lite::Current } else { Lite::Obsolete };
            }
        }
        if self.has_range_tombstones() && self.newest_range_tombstone(key, sequence) > written {
            return Lite::Obsolete;
        }
        let hash = hash_key(key);
        let may_hold = self.version.runs().iter().filter_map(|run| run.find(key)).any(|table| {
            let meta = table.meta();
            (meta.smallest_sequence..=meta.largest_sequence).contains(&written)
                && table.opened_reader().is_none_or(|reader| reader.may_contain_hash(hash))
        });
        if may_hold { Lite::Unknown } else { Lite::Obsolete }
    }
}

impl TreeView {
    /// Whether the write of `key` at `written` is the newest one that this view sees, as far as memory says: no
    /// I/O, no block. Costs a filter's cache line a run, and the memtables' searches.
    pub fn get_lite(&self, key: &[u8], written: SequenceNumber) -> Lite {
        if written > self.sequence() {
            return Lite::Unknown;
        }
        self.state().get_lite(key, written, self.sequence())
    }
}
