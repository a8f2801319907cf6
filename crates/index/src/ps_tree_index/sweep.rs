//! How obsolete entries are collected from all pages of a tree, not only from those that split.
//!
//! A sweep goes over all pages, and then over all entries that were left where they are: afterwards no entry is left
//! unflagged that everybody sees as obsolete, so tombstones of ranges and keys of the version table may be forgotten.
//! Readers that find the version table empty ask it nothing.

use std::sync::OnceLock;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Region, RegionWriter};
use parking_lot::Mutex;

use super::deleted_ranges::DeletedRanges;
use crate::ps_tree::{Obsolescence, PsBounds, PsFlag, PsTree};
use crate::query::Order;
use crate::validation::Verdict;
use crate::version_table::VersionTable;

/// Pages that a sweep looks at before it lets cuts in.
const SWEPT_AT_ONCE: usize = 64;
/// Entries that are looked at between two looks whether to go on.
const FLAGGED_AT_ONCE: usize = 1024;

/// What a sweep came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swept {
    /// Nothing obsolete is left, as of the number it was made at.
    Everything,
    /// Something could not be flagged just now.
    NotAll,
    /// It was told to end.
    CutShort,
}

/// A sweep of what nobody who reads at `oldest_in_use` or later needs.
pub(super) struct Sweep<'k> {
    pub(super) region: &'k Region,
    pub(super) tree: &'k PsTree,
    pub(super) versions: &'k VersionTable,
    pub(super) deleted: &'k dyn DeletedRanges,
    pub(super) oldest_in_use: SequenceNumber,
    /// Asked again and again; false ends the sweep.
    pub(super) goes_on: &'k dyn Fn() -> bool,
}

impl Sweep<'_> {
    /// Does it, beside readers and writers.
    ///
    /// # Errors
    /// `Corruption`; `NoSpace` or `LimitExceeded`: what was not collected stays then.
    pub(super) fn run(&self) -> Result<Swept> {
        let adviser = Adviser::new(self.versions, self.deleted);
        let mut position = Vec::new();
        loop {
            if !(self.goes_on)() {
                return Ok(Swept::CutShort);
            }
            let writer = self.region.writer();
            self.tree.sweep(&writer, &mut position, SWEPT_AT_ONCE, &adviser, self.oldest_in_use)?;
            adviser.settle(&writer)?;
            if position.is_empty() {
                self.tree.compact_keys(&writer)?;
                break;
            }
        }
        let swept = self.flag_all(&adviser)?;
        if swept == Swept::Everything {
            self.versions.forget_through(&self.region.writer(), self.oldest_in_use)?;
        }
        Ok(swept)
    }

    /// Flags what is obsolete and was left where it is, because it takes too little room.
    fn flag_all(&self, adviser: &Adviser<'_>) -> Result<Swept> {
        let all = PsBounds::Range { low: &[], end: None };
        let mut cursor = self.tree.cursor(all, Order::Value, self.oldest_in_use)?;
        let (mut swept, mut primary_key) = (Swept::Everything, Vec::new());
        let mut looked_at = 0_usize;
        while let Some(entry) = cursor.next_entry()? {
            looked_at += 1;
            if looked_at.is_multiple_of(FLAGGED_AT_ONCE) && !(self.goes_on)() {
                return Ok(Swept::CutShort);
            }
            if adviser.verdict(entry.primary_key, entry.sequence, self.oldest_in_use) != Verdict::Obsolete {
                continue;
            }
            let place = entry.place;
            primary_key.clear();
            primary_key.extend_from_slice(entry.primary_key);
            match cursor.flag_obsolete(place)? {
                PsFlag::Won => {
                    let writer = self.region.writer();
                    writer.fence();
                    self.versions.note_flagged(&writer, &primary_key)?;
                }
                PsFlag::Already => {}
                PsFlag::Refused => swept = Swept::NotAll,
            }
        }
        Ok(swept)
    }
}

/// Says which entries may be removed, and takes note of those that were.
pub(super) struct Adviser<'k> {
    versions: &'k VersionTable,
    deleted: &'k dyn DeletedRanges,
    /// Primary keys of removed entries that were not flagged.
    removed: Mutex<Vec<Vec<u8>>>,
    /// Whether ranges of records were deleted when it was first asked: entries of what is deleted later stay.
    has_deleted_ranges: OnceLock<bool>,
}

impl<'k> Adviser<'k> {
    pub(super) fn new(versions: &'k VersionTable, deleted: &'k dyn DeletedRanges) -> Self {
        Self { versions, deleted, removed: Mutex::default(), has_deleted_ranges: OnceLock::new() }
    }

    fn has_deleted_ranges(&self) -> bool {
        *self.has_deleted_ranges.get_or_init(|| self.deleted.are_there())
    }

    /// Tells the version table of what was removed.
    pub(super) fn settle(&self, writer: &RegionWriter<'_>) -> Result<()> {
        let removed = std::mem::take(&mut *self.removed.lock());
        if !removed.is_empty() {
            writer.fence();
        }
        removed.iter().try_for_each(|primary_key| self.versions.note_flagged(writer, primary_key))
    }
}

impl Obsolescence for Adviser<'_> {
    fn verdict(
        &self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        oldest_in_use: SequenceNumber,
    ) -> Verdict {
        if self.has_deleted_ranges() && self.deleted.newest(primary_key, oldest_in_use) > sequence {
            return Verdict::Obsolete;
        }
        // What cannot be read stays.
        self.versions.verdict(primary_key, sequence, oldest_in_use).unwrap_or(Verdict::Unknown)
    }

    fn expect(&self, primary_key: &[u8]) {
        self.versions.expect(primary_key);
    }

    fn expects_obsolete(&self) -> bool {
        self.versions.stats().keys > 0 || self.has_deleted_ranges()
    }

    fn removed(&self, primary_key: &[u8], _sequence: SequenceNumber, flagged: bool) {
        if !flagged {
            self.removed.lock().push(primary_key.to_vec());
        }
    }
}
