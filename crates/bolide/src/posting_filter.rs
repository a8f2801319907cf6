//! Which postings of a lazy or eager index flushes and compactions may leave out.

use bolide_base::{Result, SequenceNumber};
use bolide_index::standalone::composite::{EntryLayout, NewestWrites, StaleEntryFilter};
use bolide_index::standalone::lazy::PostingFilter;
use bolide_index::{IndexSpec, Maintenance, Repair};
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

/// Which postings are left out.
#[derive(Debug)]
pub(crate) enum LeftOut {
    /// None, with `repair=primary-compaction`: compactions of the records tell which have become stale.
    None,
    /// With `maintenance=validation`: stale ones, as far as it is worth while to look for them.
    Stale(StaleEntryFilter<TableWrites>),
    /// With `maintenance=synchronous`: all of records in deleted ranges. They are told by the range
    /// tombstones alone, which are kept until compactions left them out everywhere. Since all that writes
    /// fragments or pieces leaves them out of what it writes, what is in one that is newer than a range
    /// tombstone is not covered by it.
    InDeletedRanges(TreeReader),
}

impl LeftOut {
    /// For the index that `spec` declares, over the records in `table`.
    pub(crate) fn of(spec: &IndexSpec, table: TreeReader) -> Self {
        match (spec.maintenance(), spec.repair()) {
            (Maintenance::Synchronous, _) => Self::InDeletedRanges(table),
            (_, Repair::PrimaryCompaction) => Self::None,
            _ => Self::Stale(StaleEntryFilter::new(EntryLayout::of(spec), TableWrites { table })),
        }
    }
}

impl PostingFilter for LeftOut {
    fn are_dead(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        read_from: SequenceNumber,
        flush: bool,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        match self {
            // Looking reads the table, and a flush should be done soon.
            Self::Stale(filter) if !flush => return filter.are_stale_writes(writes, read_from, out),
            Self::None | Self::Stale(_) => out.resize(out.len() + writes.len(), false),
            Self::InDeletedRanges(table) => out.extend(writes.iter().map(|(primary_key, sequence)| {
                table.newest_range_tombstone_at(primary_key, read_from) > *sequence
            })),
        }
        Ok(())
    }
}
