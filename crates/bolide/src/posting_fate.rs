//! Which postings of a lazy index flushes and compactions may leave out.

use bolide_base::{Result, SequenceNumber};
use bolide_index::IndexSpec;
use bolide_index::standalone::composite::{EntryLayout, NewestWrites, StaleEntryFilter};
use bolide_index::standalone::lazy::PostingFate;
use bolide_lsm::store::TreeReader;

/// The newest writes of a collection's keys.
#[derive(Debug)]
pub(crate) struct TableWrites {
    pub(crate) table: TreeReader,
}

impl NewestWrites for TableWrites {
    fn newest_write(&self, primary_key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>> {
        self.table.newest_sequence_at(primary_key, at)
    }

    fn newest_writes(
        &self,
        primary_keys: &[&[u8]],
        at: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        self.table.newest_sequences_at(primary_keys, at, out)
    }
}

/// With `maintenance=validation`: stale postings, as far as it is worth while to look for them.
#[derive(Debug)]
pub(crate) struct StalePostings(StaleEntryFilter<TableWrites>);

impl StalePostings {
    /// For the index that `spec` declares, over the records in `table`.
    pub(crate) fn new(spec: &IndexSpec, table: TreeReader) -> Self {
        Self(StaleEntryFilter::new(EntryLayout::of(spec), TableWrites { table }))
    }
}

impl PostingFate for StalePostings {
    fn is_dead(
        &self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        read_from: SequenceNumber,
        flush: bool,
    ) -> Result<bool> {
        // Looking reads the table, and a flush should be done soon.
        Ok(!flush && self.0.is_stale_write(primary_key, sequence, read_from)?)
    }
}

/// With `maintenance=synchronous`: all postings of records in deleted ranges. They are told by the range
/// tombstones alone, which are kept until compactions left them out everywhere. Since flushes and
/// compactions leave them out of all that they merge, what is in a fragment that is newer than a range
/// tombstone is not covered by it.
#[derive(Debug)]
pub(crate) struct PostingsOfDeletedRanges {
    pub(crate) table: TreeReader,
}

impl PostingFate for PostingsOfDeletedRanges {
    fn is_dead(
        &self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        read_from: SequenceNumber,
        _flush: bool,
    ) -> Result<bool> {
        Ok(self.table.newest_range_tombstone_at(primary_key, read_from) > sequence)
    }
}
