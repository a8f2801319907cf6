//! The scan of a table for its newest records, without conditions.
//!
//! # Bands
//! The components of the table (memtables and sstables) have a largest sequence number each. A band is a range of sequence
//! numbers whose records are all in the first components in that order. The scan returns the records of one band after the
//! other, the newest band first; within a band they come in the order of keys. Each band reads at least four times the entries
//! of the one before, except the last band, which reads all components. So a query that needs every band reads at most 2.33 times
//! the entries of a plain scan, namely if the band before the last one has most of them.
//!
//! A query for the newest K ends after the first band with K records: older sstables and their blocks are not read. Data
//! blocks have no sequence bounds of their own, so an sstable is read whole.

use bolide_base::{Result, SequenceNumber};

use crate::candidate::{Candidate, CandidateCursor};
use crate::compiled_query::CompiledQuery;
use crate::explain::Explain;
use crate::query::{Order, Projection};
use crate::source::{ForwardCursor, TreeSource};

/// The factor by which the entries that a band reads grow.
const GROWTH: u64 = 4;

/// Returns all records, those of newer bands first. They are current.
pub(crate) struct RecentScan<'t, T: TreeSource> {
    table: &'t T,
    /// The lower ends of the bands that were not opened yet, the next one last.
    ends: Vec<SequenceNumber>,
    /// The open band: the records in `low..high`. The cursor is at the next one of them.
    records: Option<T::Cursor>,
    low: SequenceNumber,
    high: SequenceNumber,
    /// The record that was returned last.
    key: Vec<u8>,
    returned: u64,
}

impl<'t, T: TreeSource> RecentScan<'t, T> {
    /// The scan for `query` at the view with this sequence number; `None` if it would not save anything against a plain
    /// scan.
    pub(crate) fn new(table: &'t T, query: &CompiledQuery<'_>, view: SequenceNumber) -> Option<Self> {
        let is_newest = query.order() == Order::Newest && query.limit < usize::MAX;
        if !is_newest || query.parts() > 0 || query.projection == Projection::Count {
            return None;
        }
        // Answers before the token were returned before, and records after the view are not visible.
        let high =
            query.after.map_or(SequenceNumber::MAX, |token| token.position().1).min(view.saturating_add(1));
        let mut ends = band_ends(&table.recency(), query.limit as u64, high);
        if ends.len() < 2 {
            return None;
        }
        ends.reverse();
        Some(Self { table, ends, records: None, low: high, high, key: Vec::new(), returned: 0 })
    }

    /// Moves to the first record of the open band at or after the position of the cursor, or to none if there is none.
    fn settle(&mut self) -> Result<()> {
        while let Some(records) = self.records.as_mut().filter(|records| records.valid()) {
            if (self.low..self.high).contains(&records.sequence()) {
                return Ok(());
            }
            records.next()?;
        }
        self.records = None;
        Ok(())
    }

    /// Opens the next band. False if there is none.
    fn open_band(&mut self) -> Result<bool> {
        let Some(low) = self.ends.pop() else { return Ok(false) };
        (self.low, self.high) = (low, self.low);
        let mut records = self.table.cursor_since(low)?;
        records.seek_to_first()?;
        self.records = Some(records);
        self.settle()?;
        Ok(true)
    }
}

/// The lower ends of the bands below `high`, descending, the last one 0. `components` has the largest sequence number and the
/// entries of each component, the newest first. Those components of the first band that need not lie above `high` have at
/// least `wanted` entries.
fn band_ends(components: &[(SequenceNumber, u64)], wanted: u64, high: SequenceNumber) -> Vec<SequenceNumber> {
    let (mut ends, mut entries, mut below_high, mut needed) = (Vec::new(), 0_u64, 0_u64, 0_u64);
    let next_largest = components.iter().skip(1).map(|(largest, _)| *largest);
    for ((_, own), next) in components.iter().zip(next_largest) {
        entries = entries.saturating_add(*own);
        // What is not read has smaller numbers than the end.
        let end = next + 1;
        if end >= high {
            continue;
        }
        below_high = below_high.saturating_add(*own);
        let has_wanted = below_high >= wanted.max(1) && entries >= needed;
        if has_wanted && ends.last().is_none_or(|last| end < *last) {
            ends.push(end);
            needed = entries.saturating_mul(GROWTH);
        }
    }
    ends.push(0);
    ends
}

impl<T: TreeSource + Sync> CandidateCursor for RecentScan<'_, T> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        while self.records.is_none() {
            if !self.open_band()? {
                return Ok(None);
            }
        }
        let Some(records) = &mut self.records else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(records.key());
        let sequence = records.sequence();
        // The bound falls with the last record of a band, before the next band is read.
        records.next()?;
        self.settle()?;
        self.returned += 1;
        Ok(Some(Candidate::new(&self.key, sequence)))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        let end = if self.records.is_some() { self.high } else { self.low };
        end.saturating_sub(1)
    }

    fn order(&self) -> Option<Order> {
        None
    }

    fn report(&self, explain: &mut Explain) {
        explain.current += self.returned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_grow_and_end_above_what_they_do_not_read() {
        let components = [(100, 10), (90, 10), (80, 10), (80, 50), (20, 1_000)];
        assert_eq!(band_ends(&components, 1, SequenceNumber::MAX), [91, 21, 0]);
        assert_eq!(band_ends(&components, 11, SequenceNumber::MAX), [81, 21, 0]);
        assert_eq!(band_ends(&components, 100, SequenceNumber::MAX), [0]);
        // The third and the fourth have numbers up to 80: both are read below 81.
        assert_eq!(band_ends(&components, 30, SequenceNumber::MAX), [81, 0]);
        assert_eq!(band_ends(&[(5, 10)], 1, SequenceNumber::MAX), [0]);
        assert_eq!(band_ends(&[], 1, SequenceNumber::MAX), [0]);
        // What lies above a view does not count for the first band.
        assert_eq!(band_ends(&components, 1, 91), [81, 21, 0]);
        assert_eq!(band_ends(&components, 1, 21), [0]);
    }
}
