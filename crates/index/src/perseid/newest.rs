//! The newest records of one secondary key, without a cursor and without the driver.
//!
//! Entries are read in windows. Of most keys a word of memory says that the version table does not know them; for the
//! others it is asked for its memory while the window is read, and for verdicts when it is complete, so that their cache
//! lines come from memory together. Whether the table changed meanwhile is looked at once a window: if so, each entry of
//! it is judged again.

use bolide_base::{Result, SequenceNumber};

use super::kept::Kept;
use crate::newest_keys::{FoundKey, NewestKeys, Suspect};
use crate::ps_tree::{NewestEntries, PsFlag};
use crate::validation::Verdict;
use crate::version_table::TableMoment;

/// Entries whose verdicts wait for memory together.
const AT_ONCE: usize = 32;

impl Kept {
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
            let is_settled = out.suspects.is_empty() && self.versions().stands(&moment);
            if !is_settled && !self.judge_window(first, at, &moment, &entries, oldest_in_use, out)? {
                return Ok(false);
            }
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
        let NewestKeys { bytes, found, suspects, .. } = out;
        suspects.clear();
        let first = found.len();
        let wanted = (limit - first).min(AT_ONCE);
        found.reserve(wanted);
        while found.len() - first < wanted {
            let start = bytes.len();
            let Some((sequence, place)) = entries.next_entry(bytes)? else { break };
            let end = bytes.len();
            let key = bytes.get(start..end).unwrap_or_default();
            if let Some(expected) = self.versions().suspect(moment, key) {
                suspects.push(Suspect { at: found.len(), expected });
            }
            found.push(FoundKey { sequence, place, start, end });
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
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        if out.suspects.len() > 1 {
            out.suspects.iter().for_each(|suspect| self.versions().look_closer(&suspect.expected));
        }
        let mut obsolete = 0;
        for suspect in 0..out.suspects.len() {
            let Some(&Suspect { at: place, expected }) = out.suspects.get(suspect) else { break };
            let Some(&found) = out.found.get(place) else { break };
            match self.versions().verdict_of(&expected, found.sequence, at)? {
                Verdict::Current => {}
                Verdict::Unknown => return Ok(false),
                Verdict::Obsolete => obsolete += self.pass_over(place, oldest_in_use, entries, out)?,
            }
        }
        // What those that were passed over did to the table is no reason to ask again, but not told apart.
        if !self.versions().stands(moment) {
            for place in first..out.found.len() {
                match self.judge_again(place, at, moment, entries, out)? {
                    Verdict::Current => {}
                    Verdict::Unknown => return Ok(false),
                    Verdict::Obsolete => obsolete += self.pass_over(place, oldest_in_use, entries, out)?,
                }
            }
        }
        if obsolete > 0 {
            out.found.retain(|found| found.sequence != 0);
        }
        Ok(true)
    }

    /// What an entry is, whatever happened to the table since `moment`.
    #[cold]
    fn judge_again(
        &self,
        place: usize,
        at: SequenceNumber,
        moment: &TableMoment,
        entries: &NewestEntries<'_>,
        out: &NewestKeys,
    ) -> Result<Verdict> {
        let Some(found) = out.found.get(place).filter(|found| found.sequence != 0) else {
            return Ok(Verdict::Current);
        };
        let key = out.bytes.get(found.start..found.end).unwrap_or_default();
        let verdict = self.versions().verdict(key, found.sequence, at)?;
        if verdict != Verdict::Current || !self.versions().has_forgotten(moment) {
            return Ok(verdict);
        }
        Ok(match entries.stands(found.place)? {
            Some(true) => Verdict::Current,
            Some(false) => Verdict::Obsolete,
            None => Verdict::Unknown,
        })
    }

    /// Marks an obsolete entry, and flags it if nobody sees it any more: the next reader need not ask. Returns how many
    /// were marked.
    #[cold]
    fn pass_over(
        &self,
        place: usize,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        entries: &NewestEntries<'_>,
        out: &mut NewestKeys,
    ) -> Result<usize> {
        let NewestKeys { bytes, found, costs, .. } = out;
        let Some(found) = found.get_mut(place) else { return Ok(0) };
        costs.obsolete += 1;
        let sequence = std::mem::take(&mut found.sequence);
        let key = bytes.get(found.start..found.end).unwrap_or_default();
        let is_obsolete = self.versions().verdict(key, sequence, oldest_in_use())? == Verdict::Obsolete;
        if is_obsolete && entries.flag_obsolete(found.place)? == PsFlag::Won {
            costs.flagged += 1;
            self.note_flagged(key)?;
        }
        Ok(1)
    }
}
