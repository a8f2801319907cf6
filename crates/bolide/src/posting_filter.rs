//! Postings of a lazy or eager index that flushes and compactions drop.

use bolide_base::{Result, SequenceNumber};
use bolide_index::standalone::composite::{EntryLayout, NewestWrites, StaleEntryFilter};
use bolide_index::standalone::lazy::PostingFilter;
use bolide_index::{IndexSpec, Maintenance, RepairStrategy};
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

/// The postings that are dropped.
#[derive(Debug)]
pub(crate) enum DroppedPostings {
    /// None, with `repair=primary-compaction`: compactions of the records report the stale ones.
    None,
    /// With `maintenance=validation`: stale ones, as far as a lookup is worthwhile.
    Stale(StaleEntryFilter<TableWrites>),
    /// With `maintenance=synchronous`: all of records in deleted ranges. Only the range tombstones identify them, and
    /// these are retained until compactions dropped the postings everywhere. Every writer of fragments or pieces drops
    /// such postings, so a range tombstone does not cover postings in a fragment or piece that is newer.
    InDeletedRanges(TreeReader),
}

impl DroppedPostings {
    /// For the index that `spec` declares, over the records in `table`.
    pub(crate) fn of(spec: &IndexSpec, table: TreeReader) -> Self {
        match (spec.maintenance(), spec.repair()) {
            (Maintenance::Synchronous, _) => Self::InDeletedRanges(table),
            (_, RepairStrategy::PrimaryCompaction) => Self::None,
            _ => Self::Stale(StaleEntryFilter::new(EntryLayout::of(spec), TableWrites { table })),
        }
    }
}

impl PostingFilter for DroppedPostings {
    fn are_dead(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        read_from: SequenceNumber,
        flush: bool,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        match self {
            // The check reads the table, and a flush should complete soon.
            Self::Stale(filter) if !flush => return filter.are_stale_writes(writes, read_from, out),
            Self::None | Self::Stale(_) => out.resize(out.len() + writes.len(), false),
            Self::InDeletedRanges(table) => out.extend(writes.iter().map(|(primary_key, sequence)| {
                table.newest_range_tombstone_at(primary_key, read_from) > *sequence
            })),
        }
        Ok(())
    }
}
