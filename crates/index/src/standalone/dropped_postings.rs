//! Postings of a lazy or eager index that flushes and compactions drop.

use std::fmt;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::store::TreeReader;

use super::entry_key::EntryLayout;
use super::stale_filter::{StaleEntryFilter, TableWrites};
use crate::spec::{IndexSpec, Maintenance, RepairStrategy};

/// Decides which postings no reader needs any more.
pub trait PostingFilter: Send + Sync + fmt::Debug {
    /// Appends to `out`, for the posting of each of `writes`, a primary key and a sequence number, true if no view that
    /// reads at `read_from` or above needs it. `flush`: the filter should decide without I/O, or retain the posting.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; the flush or compaction is then aborted and repeated later.
    fn are_dead(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        read_from: SequenceNumber,
        flush: bool,
        out: &mut Vec<bool>,
    ) -> Result<()>;
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
