//! The newest records of one secondary key, without a cursor and without the driver.
//!
//! Entries are read in windows. A presence word in memory excludes most keys from the version table. For the other keys
//! the table's memory is prefetched while the window is read, and verdicts follow when it is complete, so that their cache
//! misses overlap. Changes of the table are detected once per window; then each entry of the window is validated again.
//! Obsolete entries are flagged after all windows.

use bolide_base::{Result, SequenceNumber};

use super::backend::PsTreeBackend;
use super::costs::PsCosts;
use super::spill_flaw::{SpillFlaw, is_planted};
use crate::costs::IndexCosts;
use crate::newest_keys::{FoundKey, KindScratch, NewestKeys};
use crate::ps_tree::{EntryPlace, NewestEntries, PsFlag};
use crate::validation::Verdict;
use crate::version_table::{LocatedKey, TableStamp};

/// Maximum number of entries of a window.
const WINDOW_ENTRIES: usize = 32;

/// Reused memory of one query.
#[derive(Debug, Default)]
struct NewestScratch {
    /// Found records without a verdict.
    unverified: Vec<UnverifiedKey>,
    /// Obsolete entries found by the query.
    obsolete_entries: Vec<ObsoleteEntry>,
    costs: PsCosts,
}

/// A record that may be obsolete: its position among the found records, and the expected key for its validation.
#[derive(Debug, Clone, Copy)]
struct UnverifiedKey {
    at: usize,
    expected: LocatedKey,
}

/// An obsolete entry: its location, its write, the expected key, and the newer write that made it obsolete.
#[derive(Debug, Clone, Copy)]
struct ObsoleteEntry {
    place: EntryPlace,
    sequence: SequenceNumber,
    expected: LocatedKey,
    newer: SequenceNumber,
}

impl KindScratch for NewestScratch {
    fn memory_bytes(&self) -> usize {
        self.unverified.capacity() * size_of::<UnverifiedKey>()
            + self.obsolete_entries.capacity() * size_of::<ObsoleteEntry>()
    }
}

impl PsTreeBackend {
    /// The newest `limit` current records of `secondary_key`, for a reader at `at`. False if the index alone cannot decide;
    /// `out` is invalid then. `oldest_in_use` returns the smallest sequence number at which readers may read.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub(super) fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        out.clear();
        // Checked first: once no range tombstone is left, the entries below it are removed already.
        if self.has_deleted_ranges() {
            return Ok(false);
        }
        let mut scratch = out.take_scratch::<NewestScratch>();
        let mut answers = self.read_newest(secondary_key, limit, at, oldest_in_use, out, &mut scratch);
        if self.spills() && matches!(answers, Ok(true)) && !is_planted(SpillFlaw::EndsInMemory) {
            // After the verdicts.
            let cut = self.cut();
            let oldest = out.found.last().map_or(0, |found| found.sequence);
            answers = Ok(cut == 0 || (out.found.len() >= limit && oldest > cut));
        }
        out.set_costs(IndexCosts::of(&scratch.costs));
        out.leave_scratch(scratch);
        answers
    }

    #[inline]
    fn read_newest(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
        scratch: &mut NewestScratch,
    ) -> Result<bool> {
        scratch.obsolete_entries.clear();
        scratch.costs = PsCosts::default();
        let stamp = self.versions().stamp();
        let mut entries = self.tree().newest_entries(secondary_key, at)?;
        while out.found.len() < limit {
            let first = out.found.len();
            if !self.read_window(limit, &stamp, &mut entries, out, scratch)? {
                break;
            }
            // Usually no entry, or few, need a verdict.
            let is_complete = scratch.unverified.is_empty() && self.versions().is_unchanged_since(&stamp);
            if !is_complete && !self.validate_window(first, at, &stamp, &entries, out, scratch)? {
                return Ok(false);
            }
        }
        if !scratch.obsolete_entries.is_empty() {
            self.flag_obsolete_entries(&entries, oldest_in_use, scratch)?;
        }
        let touched = entries.read_stats();
        let costs = &mut scratch.costs;
        (costs.keys, costs.groups) = (touched.keys, touched.groups);
        (costs.pages, costs.entries) = (touched.pages, touched.entries);
        Ok(true)
    }

    /// Reads up to [`WINDOW_ENTRIES`] of the entries that are still missing. False if there are none.
    #[inline]
    fn read_window(
        &self,
        limit: usize,
        stamp: &TableStamp,
        entries: &mut NewestEntries<'_>,
        out: &mut NewestKeys,
        scratch: &mut NewestScratch,
    ) -> Result<bool> {
        let NewestKeys { bytes, found, .. } = out;
        let unverified = &mut scratch.unverified;
        let versions = self.versions();
        unverified.clear();
        let first = found.len();
        let wanted = (limit - first).min(WINDOW_ENTRIES);
        found.reserve(wanted);
        while found.len() - first < wanted {
            let Some((sequence, place, key)) = entries.next_entry(bytes)? else { break };
            if let Some(expected) = versions.probe(stamp, key.of(bytes)) {
                unverified.push(UnverifiedKey { at: found.len(), expected });
            }
            found.push(FoundKey { sequence, place: place.number(), key });
        }
        Ok(found.len() > first)
    }

    /// Removes the obsolete entries from `first` on. False if the index alone cannot decide.
    #[inline(never)]
    fn validate_window(
        &self,
        first: usize,
        at: SequenceNumber,
        stamp: &TableStamp,
        entries: &NewestEntries<'_>,
        out: &mut NewestKeys,
        scratch: &mut NewestScratch,
    ) -> Result<bool> {
        let versions = self.versions();
        let obsolete_before = scratch.obsolete_entries.len();
        let NewestScratch { unverified, obsolete_entries, .. } = scratch;
        let found = &mut out.found;
        if unverified.len() > 1 {
            unverified.iter().for_each(|key| versions.prefetch_slot_of(&key.expected));
        }
        for &UnverifiedKey { at: place, expected } in unverified.iter() {
            let Some(found) = found.get_mut(place) else { break };
            match versions.verdict_and_latest(&expected, found.sequence, at)? {
                (Verdict::Current, _) => {}
                (Verdict::Unknown, _) => return Ok(false),
                (Verdict::Obsolete, newer) => {
                    let sequence = std::mem::take(&mut found.sequence);
                    let place = EntryPlace::from_number(found.place);
                    obsolete_entries.push(ObsoleteEntry { place, sequence, expected, newer });
                }
            }
        }
        if !versions.is_unchanged_since(stamp)
            && !self.revalidate_window(first, at, stamp, entries, out, scratch)?
        {
            return Ok(false);
        }
        if scratch.obsolete_entries.len() > obsolete_before {
            out.found.retain(|found| found.sequence != 0);
        }
        Ok(true)
    }

    /// Validates the entries from `first` on, independent of changes of the table since `stamp`. False if the index alone
    /// cannot decide.
    #[cold]
    fn revalidate_window(
        &self,
        first: usize,
        at: SequenceNumber,
        stamp: &TableStamp,
        entries: &NewestEntries<'_>,
        out: &mut NewestKeys,
        scratch: &mut NewestScratch,
    ) -> Result<bool> {
        let NewestKeys { bytes, found, .. } = out;
        let obsolete_entries = &mut scratch.obsolete_entries;
        for found in found.iter_mut().skip(first).filter(|found| found.sequence != 0) {
            let expected = self.versions().locate_key(found.key.of(bytes));
            let (verdict, newer) = self.versions().verdict_and_latest(&expected, found.sequence, at)?;
            let place = EntryPlace::from_number(found.place);
            match verdict {
                Verdict::Unknown => return Ok(false),
                Verdict::Obsolete => {
                    let sequence = found.sequence;
                    obsolete_entries.push(ObsoleteEntry { place, sequence, expected, newer });
                }
                Verdict::Current if !self.versions().has_removals_since(stamp) => continue,
                Verdict::Current => match entries.is_present(place)? {
                    Some(true) => continue,
                    // Another reader flagged it.
                    Some(false) => {}
                    None => return Ok(false),
                },
            }
            found.sequence = 0;
        }
        found.retain(|found| found.sequence != 0);
        Ok(true)
    }

    /// Flags obsolete entries that no reader sees any more: the next reader does not need a verdict.
    #[cold]
    fn flag_obsolete_entries(
        &self,
        entries: &NewestEntries<'_>,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        scratch: &mut NewestScratch,
    ) -> Result<()> {
        let NewestScratch { obsolete_entries, costs, .. } = scratch;
        costs.obsolete += obsolete_entries.len() as u64;
        let oldest = oldest_in_use();
        obsolete_entries.retain(|one| one.newer <= oldest);
        // While a checkpoint begins, a later reader flags them.
        let Some(writer) = self.region().try_writer() else { return Ok(()) };
        // Spilled ones are not counted by the version table.
        let cut = self.cut();
        obsolete_entries.retain(|one| one.sequence > cut);
        let mut failed = None;
        obsolete_entries.retain(|one| match entries.flag_obsolete(&writer, one.place) {
            Ok(flag) => flag == PsFlag::Flagged,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        costs.flagged += obsolete_entries.len() as u64;
        // The flags are durable first.
        writer.fence();
        self.versions().note_flagged_of(&writer, obsolete_entries.iter().map(|one| &one.expected))
    }
}
