//! Entries of both tiers: those of the region, and those that spills moved to sstables.
//!
//! Both tiers have the same order, so they are merged entry by entry. The cut divides them: an entry above it is taken from the
//! region, one at or below it from a view of the sstables. Each step reads the region first, and the cut after it. If a spill has
//! raised the cut since the view was pinned, another view is pinned, and read from behind the last entry on. So an entry that a
//! spill moves during the read is found once.
//!
//! The newest entries of one key are read from sstables only after those in memory.

use std::cmp::{Ordering, Reverse};

use bolide_base::{Result, SequenceNumber, TreeId};

use super::backend::PsTreeBackend;
use super::spill_flaw::{SpillFlaw, is_planted};
use crate::access::Access;
use crate::attribute;
use crate::ps_tree::{EntryPlace, PsBounds, PsCursor};
use crate::query::Order;
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::standalone::composite::{CompositeScanOrder, EntryWalk};
use crate::standalone::entry_key;

/// No encoded value begins with a smaller byte; the marks of deletes do.
const FIRST_ENTRY: &[u8] = &[1];

/// An entry of either tier.
#[derive(Debug, Default)]
pub(super) struct TieredEntry {
    pub(super) secondary_key: Vec<u8>,
    pub(super) primary_key: Vec<u8>,
    pub(super) sequence: SequenceNumber,
    pub(super) covering: Vec<u8>,
    /// Its place in the region; `None` for a spilled one.
    pub(super) place: Option<EntryPlace>,
}

impl TieredEntry {
    fn set(&mut self, secondary_key: &[u8], primary_key: &[u8], sequence: SequenceNumber, covering: &[u8]) {
        let parts = [
            (&mut self.secondary_key, secondary_key),
            (&mut self.primary_key, primary_key),
            (&mut self.covering, covering),
        ];
        for (buffer, bytes) in parts {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        }
        self.sequence = sequence;
    }
}

/// What a [`TieredCursor`] reads.
#[derive(Debug)]
pub(super) struct TieredBounds {
    low: Vec<u8>,
    /// `None` for no end.
    end: Option<Vec<u8>>,
    is_point: bool,
    scan_order: CompositeScanOrder,
    snapshot: SequenceNumber,
}

impl TieredBounds {
    /// All entries at or below `snapshot`, by value.
    pub(super) fn all(snapshot: SequenceNumber) -> Self {
        let (low, scan_order) = (FIRST_ENTRY.to_vec(), CompositeScanOrder::Forward);
        Self { low, end: None, is_point: false, scan_order, snapshot }
    }

    /// The entries within `access` at or below `snapshot`, in `order` if the keys allow it.
    pub(super) fn of(access: &Access, order: Order, spec: &IndexSpec, snapshot: SequenceNumber) -> Self {
        let scan_order = CompositeScanOrder::choose(access, order, spec);
        let (low, end) = (access.low.clone(), Some(access.end.clone()));
        Self { low, end, is_point: access.point, scan_order, snapshot }
    }

    /// The order of the entries, if a query may rely on one; `by_value` if keys in order are in the order of the values.
    pub(super) fn order(&self, by_value: bool) -> Option<Order> {
        match self.scan_order {
            CompositeScanOrder::Forward if self.is_point => Some(Order::Newest),
            CompositeScanOrder::Forward if by_value => Some(Order::Value),
            CompositeScanOrder::Forward => None,
            CompositeScanOrder::Backward => Some(Order::Oldest),
            CompositeScanOrder::GroupsDescending => Some(Order::ValueDescending),
        }
    }

    /// The cursor over the region.
    fn in_memory<'v>(&self, backend: &'v PsTreeBackend) -> Result<PsCursor<'v>> {
        let bounds = match self.is_point {
            true => PsBounds::One(&self.low),
            false => PsBounds::Range { low: &self.low, end: self.end.as_deref() },
        };
        let order = match self.scan_order {
            CompositeScanOrder::Forward if self.is_point => Order::Newest,
            CompositeScanOrder::Forward => Order::Value,
            CompositeScanOrder::Backward => Order::Oldest,
            CompositeScanOrder::GroupsDescending => Order::ValueDescending,
        };
        backend.tree().cursor(bounds, order, self.snapshot)
    }

    /// The order of two entries.
    fn compare(&self, one: (&[u8], SequenceNumber), other: (&[u8], SequenceNumber)) -> Ordering {
        let by_age = || Reverse(one.1).cmp(&Reverse(other.1));
        match self.scan_order {
            CompositeScanOrder::Forward => one.0.cmp(other.0).then_with(by_age),
            CompositeScanOrder::Backward => one.1.cmp(&other.1),
            CompositeScanOrder::GroupsDescending => other.0.cmp(one.0).then_with(by_age),
        }
    }

    /// The keys of sstables that may have an entry behind `last`.
    fn behind(&self, last: Option<&TieredEntry>) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut low, mut end) = (self.low.clone(), self.end.clone());
        let Some(last) = last else { return (low, end) };
        let mut key = last.secondary_key.clone();
        match self.scan_order {
            CompositeScanOrder::Forward | CompositeScanOrder::Backward => {
                entry_key::put_sequence(&mut key, last.sequence);
                match self.scan_order {
                    CompositeScanOrder::Forward => low = key,
                    _ => {
                        attribute::make_successor(&mut key);
                        end = Some(key);
                    }
                }
            }
            CompositeScanOrder::GroupsDescending => {
                attribute::make_successor(&mut key);
                end = Some(key);
            }
        }
        (low, end)
    }
}

/// A view of the sstables.
struct PinnedRuns<'v, S: ReadSource> {
    /// The cut when it was pinned.
    cut: SequenceNumber,
    entries: EntryWalk<'v, <S::Tree as TreeSource>::Cursor>,
}

/// Iterates over the entries of both tiers.
pub(super) struct TieredCursor<'v, S: ReadSource> {
    backend: &'v PsTreeBackend,
    view: &'v S,
    spec: &'v IndexSpec,
    tree: TreeId,
    bounds: TieredBounds,
    memory: PsCursor<'v>,
    /// The next entry in memory, if `has_head`.
    head: TieredEntry,
    has_head: bool,
    is_memory_finished: bool,
    runs: Option<PinnedRuns<'v, S>>,
    /// The last entry, if `has_last`.
    last: TieredEntry,
    has_last: bool,
    /// Entries read from sstables.
    spilled: u64,
}

impl<'v, S: ReadSource> TieredCursor<'v, S> {
    pub(super) fn new(
        backend: &'v PsTreeBackend,
        view: &'v S,
        spec: &'v IndexSpec,
        tree: TreeId,
        bounds: TieredBounds,
    ) -> Result<Self> {
        Ok(Self {
            backend,
            view,
            spec,
            tree,
            memory: bounds.in_memory(backend)?,
            bounds,
            head: TieredEntry::default(),
            has_head: false,
            is_memory_finished: false,
            runs: None,
            last: TieredEntry::default(),
            has_last: false,
            spilled: 0,
        })
    }

    /// The cursor over the region.
    pub(super) fn memory(&self) -> &PsCursor<'v> {
        &self.memory
    }

    /// The number of entries read from sstables.
    pub(super) fn spilled(&self) -> u64 {
        self.spilled
    }

    /// Upper bound of the sequence numbers of further entries of one key, newest first.
    pub(super) fn sequence_bound(&self) -> SequenceNumber {
        if self.has_last { self.last.sequence } else { self.bounds.snapshot }
    }

    /// The entry that [`next_entry`](Self::next_entry) returned last.
    pub(super) fn last_entry(&self) -> &TieredEntry {
        &self.last
    }

    /// The next entry.
    ///
    /// # Errors
    /// `Corruption` or `Io` from region and sstables.
    pub(super) fn next_entry(&mut self) -> Result<Option<&TieredEntry>> {
        loop {
            self.read_head()?;
            // After the region was read.
            let cut = self.backend.cut();
            if self.has_head && self.head.sequence <= cut {
                self.has_head = false;
                continue;
            }
            let is_memory_first =
                self.bounds.is_point && self.bounds.scan_order == CompositeScanOrder::Forward;
            let needs_runs =
                cut > 0 && (!(self.has_head && is_memory_first) || is_planted(SpillFlaw::KeepsView));
            let has_spilled = needs_runs && self.find_spilled(cut)?;
            if !self.has_head && !has_spilled {
                return Ok(None);
            }
            if has_spilled && self.take_spilled()? {
                self.spilled += 1;
            } else {
                std::mem::swap(&mut self.last, &mut self.head);
                self.has_head = false;
            }
            self.has_last = true;
            return Ok(Some(&self.last));
        }
    }

    /// Reads the next entry of the region into `head`.
    fn read_head(&mut self) -> Result<()> {
        if self.has_head || self.is_memory_finished {
            return Ok(());
        }
        match self.memory.next_entry()? {
            Some(entry) => {
                self.head.set(entry.secondary_key, entry.primary_key, entry.sequence, entry.covering);
                self.head.place = Some(entry.place);
                self.has_head = true;
            }
            None => self.is_memory_finished = true,
        }
        Ok(())
    }

    /// Moves to the next entry of the sstables behind the last entry, at or below `cut`. False if there is none.
    fn find_spilled(&mut self, cut: SequenceNumber) -> Result<bool> {
        let last = self.has_last.then_some(&self.last);
        let is_outdated = |runs: &PinnedRuns<'_, S>| runs.cut != cut && !is_planted(SpillFlaw::KeepsView);
        if self.runs.as_ref().is_none_or(is_outdated) {
            let (low, end) = self.bounds.behind(last);
            let entries = self.view.tree(self.tree)?.cursor(&low, end.as_deref())?;
            let mut entries = EntryWalk::new(entries, self.bounds.scan_order, self.spec);
            entries.advance()?;
            self.runs = Some(PinnedRuns { cut, entries });
        }
        let Some(PinnedRuns { entries, .. }) = &mut self.runs else { return Ok(false) };
        let secondary_len = self.bounds.is_point.then_some(self.bounds.low.len());
        while entries.valid() {
            // Others are in the region, or too new for the reader.
            if entries.sequence() <= cut.min(self.bounds.snapshot) {
                let found = entries.key(secondary_len)?;
                let found = (found.secondary_key, found.sequence);
                let is_behind = |last: &TieredEntry| {
                    self.bounds.compare((&last.secondary_key, last.sequence), found) == Ordering::Less
                };
                if last.is_none_or(is_behind) {
                    return Ok(true);
                }
            }
            entries.advance()?;
        }
        Ok(false)
    }

    /// Sets `last` to the entry of [`find_spilled`](Self::find_spilled), unless `head` comes before it.
    fn take_spilled(&mut self) -> Result<bool> {
        let Some(PinnedRuns { entries, .. }) = &self.runs else { return Ok(false) };
        let found = entries.key(self.bounds.is_point.then_some(self.bounds.low.len()))?;
        let head = (&self.head.secondary_key[..], self.head.sequence);
        if self.has_head && self.bounds.compare(head, (found.secondary_key, found.sequence)) == Ordering::Less
        {
            return Ok(false);
        }
        self.last.set(found.secondary_key, found.primary_key, found.sequence, entries.value());
        self.last.place = None;
        Ok(true)
    }
}
