//! The newest records of one secondary key, without a cursor and without the driver.
//!
//! Entries are read in windows. Of most keys a word of memory says that the version table does not know them; for the
//! others it is asked for its memory while the window is read, and for verdicts when it is complete, so that their cache
//! lines come from memory together. Whether the table changed meanwhile is looked at once a window: if so, each entry of
//! it is judged again. Obsolete entries are flagged when all windows have been judged, so a question is not in its own way.

use bolide_base::{Result, SequenceNumber};

use super::backend::PsTreeBackend;
use crate::newest_keys::{FoundKey, NewestKeys, ObsoleteEntry, UnverifiedKey};
use crate::ps_tree::{NewestEntries, PsFlag};
use crate::validation::Verdict;
use crate::version_table::TableMoment;

/// Entries whose verdicts wait for memory together.
const AT_ONCE: usize = 32;

impl PsTreeBackend {
    /// The newest `limit` current records of `secondary_key`, as a reader at `at` sees them. False where the index alone
    /// cannot say: `out` is of no use then. `oldest_in_use` tells what nobody looks behind any more.
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
        // First of all: where no tombstone of a range is left, the entries below it are gone already.
        if self.has_deleted_ranges() {
            return Ok(false);
        }
        let moment = self.versions().moment();
        let mut entries = self.tree().newest_entries(secondary_key, at)?;
        while out.found.len() < limit {
            let first = out.found.len();
            if !self.read_some(limit, &moment, &mut entries, out)? {
                break;
            }
            // As a rule nothing is suspect, or little.
            let is_settled = out.unverified.is_empty() && self.versions().stands(&moment);
            if !is_settled && !self.judge_window(first, at, &moment, &entries, out)? {
                return Ok(false);
            }
        }
        if !out.obsolete_entries.is_empty() {
            self.flag_passed(&entries, oldest_in_use, out)?;
        }
        let touched = entries.touched();
        let costs = &mut out.costs;
        (costs.keys, costs.groups) = (touched.keys, touched.groups);
        (costs.pages, costs.entries) = (touched.pages, touched.entries);
        Ok(true)
    }

    /// Reads as many entries as are still wanted, and no more than [`AT_ONCE`]. False if there are none.
    #[inline]
    fn read_some(
        &self,
        limit: usize,
        moment: &TableMoment,
        entries: &mut NewestEntries<'_>,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        let NewestKeys { bytes, found, unverified, .. } = out;
        let versions = self.versions();
        unverified.clear();
        let first = found.len();
        let wanted = (limit - first).min(AT_ONCE);
        found.reserve(wanted);
        while found.len() - first < wanted {
            let Some((sequence, place, key)) = entries.next_entry(bytes)? else { break };
            if let Some(expected) = versions.suspect(moment, key.of(bytes)) {
                unverified.push(UnverifiedKey { at: found.len(), expected });
            }
            found.push(FoundKey { sequence, place, key });
        }
        Ok(found.len() > first)
    }

    /// Takes the obsolete ones among the entries from `first` on away. False where the index alone cannot say.
    #[inline(never)]
    fn judge_window(
        &self,
        first: usize,
        at: SequenceNumber,
        moment: &TableMoment,
        entries: &NewestEntries<'_>,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        let versions = self.versions();
        let obsolete_before = out.obsolete_entries.len();
        let NewestKeys { found, unverified, obsolete_entries, .. } = out;
        if unverified.len() > 1 {
            unverified.iter().for_each(|suspect| versions.look_closer(&suspect.expected));
        }
        for &UnverifiedKey { at: place, expected } in unverified.iter() {
            let Some(found) = found.get_mut(place) else { break };
            match versions.judge(&expected, found.sequence, at)? {
                (Verdict::Current, _) => {}
                (Verdict::Unknown, _) => return Ok(false),
                (Verdict::Obsolete, newer) => {
                    found.sequence = 0;
                    obsolete_entries.push(ObsoleteEntry { place: found.place, expected, newer });
                }
            }
        }
        if !versions.stands(moment) && !self.judge_again(first, at, moment, entries, out)? {
            return Ok(false);
        }
        if out.obsolete_entries.len() > obsolete_before {
            out.found.retain(|found| found.sequence != 0);
        }
        Ok(true)
    }

    /// Judges the entries from `first` on, whatever happened to the table since `moment`. False where the index alone
    /// cannot say.
    #[cold]
    fn judge_again(
        &self,
        first: usize,
        at: SequenceNumber,
        moment: &TableMoment,
        entries: &NewestEntries<'_>,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        let NewestKeys { bytes, found, obsolete_entries, .. } = out;
        for found in found.iter_mut().skip(first).filter(|found| found.sequence != 0) {
            let expected = self.versions().look_up(found.key.of(bytes));
            let (verdict, newer) = self.versions().judge(&expected, found.sequence, at)?;
            match verdict {
                Verdict::Unknown => return Ok(false),
                Verdict::Obsolete => obsolete_entries.push(ObsoleteEntry { place: found.place, expected, newer }),
                Verdict::Current if !self.versions().has_forgotten(moment) => continue,
                Verdict::Current => match entries.stands(found.place)? {
                    Some(true) => continue,
                    // Somebody flagged it.
                    Some(false) => {}
                    None => return Ok(false),
                },
            }
            found.sequence = 0;
        }
        found.retain(|found| found.sequence != 0);
        Ok(true)
    }

    /// Flags the entries that were found obsolete, as far as nobody sees them any more: the next reader need not ask.
    #[cold]
    fn flag_passed(
        &self,
        entries: &NewestEntries<'_>,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<()> {
        let NewestKeys { obsolete_entries, costs, .. } = out;
        costs.obsolete += obsolete_entries.len() as u64;
        let oldest = oldest_in_use();
        obsolete_entries.retain(|one| one.newer <= oldest);
        // If a cut is about to be fixed, a later reader will do it.
        let Some(writer) = self.region().try_writer() else { return Ok(()) };
        let mut failed = None;
        obsolete_entries.retain(|one| match entries.flag_obsolete(&writer, one.place) {
            Ok(flag) => flag == PsFlag::Won,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        costs.flagged += obsolete_entries.len() as u64;
        // The flags go first.
        writer.fence();
        self.versions().note_flagged_of(&writer, obsolete_entries.iter().map(|one| &one.expected))
    }
}
