//! Sweeps: collection of obsolete entries from all pages of a tree, not only from those that split.
//!
//! A sweep visits all pages, and then all entries that are left. Afterwards no unflagged entry is obsolete for all
//! readers, so range tombstones and keys of the version table may be removed. Readers skip the lookup in an empty version
//! table.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Region, RegionWriter};
use parking_lot::Mutex;

use super::deleted_ranges::DeletedRanges;
use crate::ps_tree::{Obsolescence, PsBounds, PsFlag, PsTree};
use crate::query::Order;
use crate::validation::Verdict;
use crate::version_table::VersionTable;

/// Secondary keys that a sweep visits before checkpoints may begin.
const KEYS_PER_STEP: usize = 512;
/// Entries visited between two calls of `may_continue`.
const ENTRIES_PER_STEP: usize = 1024;

/// The outcome of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SweepOutcome {
    /// No unflagged entry is obsolete at `oldest_in_use`.
    Complete,
    /// Some entries could not be flagged.
    Incomplete,
    /// `may_continue` returned false.
    Interrupted,
}

/// A sweep of entries that no reader at `oldest_in_use` or later needs.
pub(super) struct Sweep<'k> {
    pub(super) region: &'k Region,
    pub(super) tree: &'k PsTree,
    pub(super) versions: &'k VersionTable,
    pub(super) deleted: &'k dyn DeletedRanges,
    /// Entries at or below it are not counted by the version table.
    pub(super) cut: &'k AtomicU64,
    pub(super) oldest_in_use: SequenceNumber,
    /// Called repeatedly; false ends the sweep.
    pub(super) may_continue: &'k dyn Fn() -> bool,
}

impl Sweep<'_> {
    /// Runs the sweep, concurrently with readers and writers.
    ///
    /// # Errors
    /// `Corruption`; `NoSpace` or `LimitExceeded`: the remaining garbage stays.
    pub(super) fn run(&self) -> Result<SweepOutcome> {
        let tracker = ObsolescenceTracker::new(self.versions, self.deleted, self.cut);
        let mut position = Vec::new();
        loop {
            if !(self.may_continue)() {
                return Ok(SweepOutcome::Interrupted);
            }
            let writer = self.region.writer();
            self.tree.sweep(&writer, &mut position, KEYS_PER_STEP, &tracker, self.oldest_in_use)?;
            tracker.note_removed(&writer)?;
            if position.is_empty() {
                self.tree.compact_keys(&writer)?;
                break;
            }
        }
        let outcome = self.flag_all(&tracker)?;
        if outcome == SweepOutcome::Complete {
            self.versions.remove_through(&self.region.writer(), self.oldest_in_use)?;
        }
        Ok(outcome)
    }

    /// Flags obsolete entries that were left in their pages because they take too little space.
    fn flag_all(&self, tracker: &ObsolescenceTracker<'_>) -> Result<SweepOutcome> {
        let all = PsBounds::Range { low: &[], end: None };
        let mut cursor = self.tree.cursor(all, Order::Value, self.oldest_in_use)?;
        let (mut outcome, mut primary_key) = (SweepOutcome::Complete, Vec::new());
        let mut visited = 0_usize;
        while let Some(entry) = cursor.next_entry()? {
            visited += 1;
            if visited.is_multiple_of(ENTRIES_PER_STEP) && !(self.may_continue)() {
                return Ok(SweepOutcome::Interrupted);
            }
            if tracker.verdict(entry.primary_key, entry.sequence, self.oldest_in_use) != Verdict::Obsolete {
                continue;
            }
            let (place, sequence) = (entry.place, entry.sequence);
            primary_key.clear();
            primary_key.extend_from_slice(entry.primary_key);
            match cursor.flag_obsolete(place)? {
                PsFlag::Flagged => {
                    let writer = self.region.writer();
                    writer.fence();
                    if sequence > self.cut.load(Ordering::Acquire) {
                        self.versions.note_flagged(&writer, &primary_key)?;
                    }
                }
                PsFlag::AlreadyFlagged => {}
                PsFlag::Busy => outcome = SweepOutcome::Incomplete,
            }
        }
        Ok(outcome)
    }
}

/// Determines which entries may be removed, and records the removed ones.
pub(super) struct ObsolescenceTracker<'k> {
    versions: &'k VersionTable,
    deleted: &'k dyn DeletedRanges,
    /// Entries at or below it are not counted by the version table.
    cut: &'k AtomicU64,
    /// Primary keys of removed entries that were not flagged.
    removed: Mutex<Vec<Vec<u8>>>,
    /// Whether ranges of records were deleted at the first call; entries in later ranges stay.
    has_deleted_ranges: OnceLock<bool>,
}

impl<'k> ObsolescenceTracker<'k> {
    pub(super) fn new(
        versions: &'k VersionTable,
        deleted: &'k dyn DeletedRanges,
        cut: &'k AtomicU64,
    ) -> Self {
        Self { versions, deleted, cut, removed: Mutex::default(), has_deleted_ranges: OnceLock::new() }
    }

    fn has_deleted_ranges(&self) -> bool {
        *self.has_deleted_ranges.get_or_init(|| self.deleted.are_there())
    }

    /// Notes the removed entries in the version table.
    pub(super) fn note_removed(&self, writer: &RegionWriter<'_>) -> Result<()> {
        let removed = std::mem::take(&mut *self.removed.lock());
        if !removed.is_empty() {
            writer.fence();
        }
        removed.iter().try_for_each(|primary_key| self.versions.note_flagged(writer, primary_key))
    }
}

impl Obsolescence for ObsolescenceTracker<'_> {
    fn verdict(
        &self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        oldest_in_use: SequenceNumber,
    ) -> Verdict {
        if self.has_deleted_ranges() && self.deleted.newest(primary_key, oldest_in_use) > sequence {
            return Verdict::Obsolete;
        }
        // An entry that cannot be validated stays.
        self.versions.verdict(primary_key, sequence, oldest_in_use).unwrap_or(Verdict::Unknown)
    }

    fn prefetch(&self, primary_key: &[u8]) {
        self.versions.prefetch(primary_key);
    }

    fn may_have_obsolete(&self) -> bool {
        self.versions.stats().keys > 0 || self.has_deleted_ranges()
    }

    fn removed(&self, primary_key: &[u8], sequence: SequenceNumber, flagged: bool) {
        if !flagged && sequence > self.cut.load(Ordering::Acquire) {
            self.removed.lock().push(primary_key.to_vec());
        }
    }
}
