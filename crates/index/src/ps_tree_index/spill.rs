//! Spills: tiering by age. The region has the entries above a sequence number, the *cut*, and the sstables of the tree of the index
//! those at or below it, with keys as in a composite index.
//!
//! # Rules
//! * The cut is stored in the region, so each root has it. It is raised after the sstables are installed, and before anything
//!   is removed from the region.
//! * An entry at or below the cut is not read from the region. A reader reads the region, then the cut, then a view of the
//!   sstables: what a spill has removed meanwhile is in that view.
//! * Absence from the version table proves nothing for an entry at or below the cut. A reader compares an entry with the cut after
//!   it got its verdict; keys leave the version table after the cut was raised. The novelty filter forgets keys without entries above
//!   the cut, by generations.
//! * Before the first spill, cursors may read the region alone. The first spill waits until the pins of those that may be left are
//!   gone, or moves nothing yet.
//! * Spilled entries are validated at the records, which find deleted ranges too.
//! * Moved entries are removed without a flag, and no count of the version table changes: its counts may only be too high. Counts
//!   cover the entries above the cut: an entry at or below it that is flagged, or removed as obsolete, lowers none. Its key may have
//!   left the table, and be in it again for later entries. The cut rises while no writer of the region is active, so a writer
//!   compares an entry with it once.

use bolide_base::{EntryKind, Error, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::external_tree::{ExternalWrite, SpillMemory, SpillingTree};
use bolide_storage::pmem::RegionWriter;

use super::backend::PsTreeBackend;
use super::spill_flaw::{SpillFlaw, is_planted};
use super::spill_state::CUT_SLOT;
use super::sweep::ObsolescenceTracker;
use super::tiered_cursor::{TieredBounds, TieredCursor, TieredEntry};
use crate::ps_tree::{Obsolescence, PsBounds};
use crate::query::Order;
use crate::source::ReadSource;
use crate::spec::IndexSpec;
use crate::standalone::entry_key;
use crate::validation::Verdict;

/// Secondary keys whose entries are removed before checkpoints may begin.
const KEYS_PER_STEP: usize = 512;
/// Parts of the sequence numbers in memory that a new cut is one of.
const CUT_STEPS: usize = 64;
/// A spill frees at least this part (1/`SPILLED_DIVISOR`) of the memory.
const SPILLED_DIVISOR: u64 = 4;
/// Memory that an entry is likely to take beside its key and value: that of a key with one entry, and a key of the version table.
const ENTRY_OVERHEAD_BYTES: u64 = 96;

impl PsTreeBackend {
    /// The smallest cut above the present one that frees enough memory, at or below `through`.
    fn cut_through(&self, through: SequenceNumber) -> Result<SequenceNumber> {
        let before = self.cut();
        let span = through - before;
        let mut counts = [0_u64; CUT_STEPS];
        let all = PsBounds::Range { low: &[], end: None };
        let mut cursor = self.tree().cursor(all, Order::Value, through)?;
        while let Some(entry) = cursor.next_entry()? {
            let Some(above) = entry.sequence.checked_sub(before + 1) else { continue };
            let step = u128::from(above) * CUT_STEPS as u128 / u128::from(span);
            if let Some(count) = counts.get_mut(step as usize) {
                *count += 1;
            }
        }
        self.spill_state().measure(self.region());
        let SpillMemory { used_bytes, limit_bytes } = self.spill_state().memory();
        let used = used_bytes.max(1);
        let freed = used.saturating_sub(limit_bytes / 2).max(used / SPILLED_DIVISOR);
        let total: u64 = counts.iter().sum();
        let wanted = (u128::from(total) * u128::from(freed)).div_ceil(u128::from(used));
        let mut moved = 0_u128;
        for (step, count) in counts.iter().enumerate() {
            moved += u128::from(*count);
            if moved >= wanted {
                let steps = (u128::from(span) * (step as u128 + 1)).div_ceil(CUT_STEPS as u128);
                return Ok(through.min(before + steps as u64));
            }
        }
        Ok(through)
    }

    /// Passes the entries above the cut and at or below `cut` to `out`, without those that are obsolete for all readers.
    fn write_entries(
        &self,
        cut: SequenceNumber,
        oldest_in_use: SequenceNumber,
        out: &mut dyn FnMut(ExternalWrite<'_>) -> Result<()>,
    ) -> Result<()> {
        let before = self.cut();
        let tracker =
            ObsolescenceTracker::new(self.versions(), self.deleted_ranges(), self.spill_state().cut());
        let mut cursor = self.tree().cursor(PsBounds::Range { low: &[], end: None }, Order::Value, cut)?;
        let mut key = Vec::new();
        while let Some(entry) = cursor.next_entry()? {
            let is_obsolete =
                || tracker.verdict(entry.primary_key, entry.sequence, oldest_in_use) == Verdict::Obsolete;
            if entry.sequence <= before || is_obsolete() {
                continue;
            }
            key.clear();
            key.extend_from_slice(entry.secondary_key);
            entry_key::put_sequence(&mut key, entry.sequence);
            key.extend_from_slice(entry.primary_key);
            let trailer = Trailer::new(entry.sequence, EntryKind::Put);
            out(ExternalWrite { key: &key, trailer, value: entry.covering })?;
        }
        Ok(())
    }

    /// The novelty filter needs no keys but those of entries above `cut`.
    fn forget_known_keys(&self, writer: &RegionWriter<'_>, cut: SequenceNumber) -> Result<()> {
        let cut = if is_planted(SpillFlaw::ForgetsKnown) { SequenceNumber::MAX } else { cut };
        self.versions().forget_known_keys(writer, cut, self.applied_through())
    }

    /// Removes the entries at or below `cut` from the region, and the keys that have no other from the version table.
    fn remove_moved(&self, cut: SequenceNumber) -> Result<()> {
        if is_planted(SpillFlaw::CountsMoved) {
            self.count_moved(cut)?;
        }
        let forgotten = if is_planted(SpillFlaw::ForgetsKeys) { self.applied_through() } else { cut };
        let mut position = Vec::new();
        loop {
            let writer = self.region().writer();
            if self.tree().remove_through(&writer, &mut position, KEYS_PER_STEP, cut)? {
                self.tree().compact_keys(&writer)?;
                return self.versions().remove_through(&writer, forgotten);
            }
        }
    }

    /// For [`SpillFlaw::CountsMoved`].
    fn count_moved(&self, cut: SequenceNumber) -> Result<()> {
        let mut cursor = self.tree().cursor(PsBounds::Range { low: &[], end: None }, Order::Value, cut)?;
        while let Some(entry) = cursor.next_entry()? {
            self.versions().note_flagged(&self.region().writer(), entry.primary_key)?;
        }
        Ok(())
    }

    /// Calls `visit` with every entry that `view` may see, and its verdict by the version table. `spec` declares the index, and
    /// `tree` is its tree.
    pub(super) fn each_entry<S: ReadSource>(
        &self,
        view: &S,
        spec: &IndexSpec,
        tree: TreeId,
        visit: &mut dyn FnMut(&TieredEntry, Verdict) -> Result<()>,
    ) -> Result<()> {
        let removals = self.versions().removals();
        let bounds = TieredBounds::all(view.sequence());
        let mut cursor = TieredCursor::new(self, view, spec, tree, bounds)?;
        while let Some(entry) = cursor.next_entry()? {
            let (sequence, place) = (entry.sequence, entry.place);
            let mut verdict = match place {
                Some(_) => self.versions().verdict(&entry.primary_key, sequence, view.sequence())?,
                None => Verdict::Unknown,
            };
            // The version table may have removed the key since, with the obsolete entry.
            if let Some(place) = place
                && verdict == Verdict::Current
                && self.versions().removals() != removals
            {
                verdict = match cursor.memory().is_present(place)? {
                    Some(true) => Verdict::Current,
                    Some(false) => continue,
                    None => Verdict::Unknown,
                };
            }
            if verdict == Verdict::Current && sequence <= self.cut() {
                verdict = Verdict::Unknown;
            }
            visit(cursor.last_entry(), verdict)?;
        }
        Ok(())
    }
}

impl SpillingTree for PsTreeBackend {
    fn spilled_through(&self) -> SequenceNumber {
        self.cut()
    }

    fn memory(&self) -> SpillMemory {
        self.spill_state().memory()
    }

    fn is_spill_due(&self) -> bool {
        self.spill_state().is_spill_due(self.tree().counts().1)
    }

    fn expected_bytes(&self, writes: u64, bytes: u64) -> u64 {
        writes.saturating_mul(ENTRY_OVERHEAD_BYTES).saturating_add(bytes)
    }

    fn choose_cut(&self, published: SequenceNumber) -> Result<SequenceNumber> {
        // Further entries of the last applied write may follow.
        let through = match is_planted(SpillFlaw::SplitsWrites) {
            true => self.applied_through(),
            false => self.applied_through().saturating_sub(1).min(published),
        };
        if through <= self.cut() || !self.spill_state().begin_tiering(self.region()) {
            self.spill_state().note_entries_left(self.tree().counts().1);
            return Ok(self.cut());
        }
        self.cut_through(through)
    }

    fn write_spill(
        &self,
        cut: SequenceNumber,
        oldest_in_use: SequenceNumber,
        out: &mut dyn FnMut(ExternalWrite<'_>) -> Result<()>,
    ) -> Result<()> {
        if cut <= self.cut() {
            return Err(Error::internal("a spill that moves nothing"));
        }
        self.write_entries(cut, oldest_in_use, out)
    }

    fn finish_spill(&self, cut: SequenceNumber) -> Result<()> {
        self.region().with_only_writer(|writer| {
            writer.set_root(CUT_SLOT, cut)?;
            writer.fence();
            self.spill_state().raise_cut(cut);
            self.forget_known_keys(writer, cut)
        })?;
        let removed = self.remove_moved(cut);
        self.spill_state().note_entries_left(self.tree().counts().1);
        self.spill_state().measure(self.region());
        removed
    }
}
