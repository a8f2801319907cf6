//! Seeks without a search in the segment: from its anchor entry by entry.
//!
//! This is what a REMIX is without random access to the entries of a segment, "partial binary search" of REMIX §5.1. On average it
//! compares with half the entries of a segment where the search compares with the logarithm of their number, so readers
//! have no use for it; what the search in the segment gains is measured against it.

use std::cmp::Ordering;

use bolide_base::internal_key::compare_entries;
use bolide_base::{Result, SequenceNumber};
use bolide_table::InternalCursor;

use super::cursor::SortedViewCursor;
use super::search::Place;

impl SortedViewCursor {
    /// Moves to where [`seek`](InternalCursor::seek) does, by a binary search of the anchors and then step by step.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables; the cursor is on no entry then.
    pub fn seek_by_steps(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let through = self.view().remix().anchors.count_through(key, sequence);
        self.set_place(Place { segment: through.saturating_sub(1), index: 0 });
        self.shown()?;
        while self.valid()
            && compare_entries(self.key(), self.trailer().sequence(), key, sequence) == Ordering::Less
        {
            self.advance();
            self.shown()?;
        }
        Ok(())
    }
}
