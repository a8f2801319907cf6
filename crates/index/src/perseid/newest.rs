//! The newest records of one secondary key, without a cursor and without the driver.
//!
//! Entries are read in groups, and the version table is asked for all of a group before the first verdict, so
//! that their cache lines come from memory together.

use bolide_base::{Result, SequenceNumber};

use super::costs::PsCosts;
use super::kept::Kept;
use crate::newest_keys::{FoundKey, NewestKeys, WaitingKey};
use crate::ps_tree::{NewestEntries, PsFlag};
use crate::validation::Verdict;

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
        let departures = self.versions().departures();
        let mut entries = self.tree().newest_entries(secondary_key, at)?;
        while out.found.len() < limit && self.read_some(limit, &mut entries, out)? {
            let NewestKeys { bytes, found, waiting, costs } = &mut *out;
            for waiting in waiting.iter() {
                let verdict = self.judge(waiting, at, departures, &entries)?;
                match verdict {
                    Verdict::Current => found.push(waiting.key),
                    Verdict::Unknown => return Ok(false),
                    Verdict::Obsolete => self.pass_over(waiting, oldest_in_use, &entries, bytes, costs)?,
                }
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
    fn read_some(&self, limit: usize, entries: &mut NewestEntries<'_>, out: &mut NewestKeys) -> Result<bool> {
        let wanted = (limit - out.found.len()).min(AT_ONCE);
        out.waiting.clear();
        while out.waiting.len() < wanted {
            let start = out.bytes.len();
            let Some((sequence, place)) = entries.next_entry(&mut out.bytes)? else { break };
            let expected = self.versions().expect(out.bytes.get(start..).unwrap_or_default());
            let key = FoundKey { sequence, start, end: out.bytes.len() };
            out.waiting.push(WaitingKey { key, place, expected });
        }
        Ok(!out.waiting.is_empty())
    }

    /// What an entry is, that was read when the version table had forgotten `departures` keys.
    #[inline]
    fn judge(
        &self,
        waiting: &WaitingKey,
        at: SequenceNumber,
        departures: u64,
        entries: &NewestEntries<'_>,
    ) -> Result<Verdict> {
        let verdict = self.versions().verdict_of(&waiting.expected, waiting.key.sequence, at)?;
        if verdict != Verdict::Current || self.versions().departures() == departures {
            return Ok(verdict);
        }
        Ok(match entries.stands(waiting.place)? {
            Some(true) => Verdict::Current,
            Some(false) => Verdict::Obsolete,
            None => Verdict::Unknown,
        })
    }

    /// Flags an obsolete entry if nobody sees it any more: the next reader need not ask.
    #[cold]
    fn pass_over(
        &self,
        waiting: &WaitingKey,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        entries: &NewestEntries<'_>,
        bytes: &[u8],
        costs: &mut PsCosts,
    ) -> Result<()> {
        costs.obsolete += 1;
        let WaitingKey { key, place, expected } = waiting;
        let is_obsolete =
            self.versions().verdict_of(expected, key.sequence, oldest_in_use())? == Verdict::Obsolete;
        if is_obsolete && entries.flag_obsolete(*place)? == PsFlag::Won {
            costs.flagged += 1;
            self.note_flagged(bytes.get(key.start..key.end).unwrap_or_default())?;
        }
        Ok(())
    }
}
