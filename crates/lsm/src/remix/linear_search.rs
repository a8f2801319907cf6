//! Seeks by a linear search in the segment, from its anchor on.
//!
//! This is the "partial binary search" of REMIX §5.1, without random access to the entries of a segment. It compares
//! with half the entries of a segment on average; the binary search compares with the logarithm of their number.
//! It is the baseline for measurements of the search in the segment; readers do not use it. Feature `paper`.

use std::cmp::Ordering;

use bolide_base::internal_key::compare_entries;
use bolide_base::{Result, SequenceNumber};
use bolide_table::InternalCursor;

use super::cursor::SortedViewCursor;
use super::search::ViewPosition;

impl SortedViewCursor {
    /// Moves to the same entry as [`seek`](InternalCursor::seek), by a binary search of the anchors and then by steps.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables; the cursor is invalid then.
    pub fn seek_by_steps(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let through = self.view().remix().anchors.count_through(key, sequence);
        self.set_position(ViewPosition { segment: through.saturating_sub(1), index: 0 });
        self.load_entry_or_end()?;
        while self.valid()
            && compare_entries(self.key(), self.trailer().sequence(), key, sequence) == Ordering::Less
        {
            self.advance();
            self.load_entry_or_end()?;
        }
        Ok(())
    }
}
