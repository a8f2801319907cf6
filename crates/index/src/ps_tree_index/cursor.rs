//! Reads the candidates of one query from a PS-Tree and its spilled entries, and skips entries that are obsolete by the version table.

use bolide_base::{Result, SequenceNumber, TreeId};

use super::backend::PsTreeBackend;
use super::costs::PsCosts;
use super::spill_flaw::{SpillFlaw, is_planted};
use super::tiered_cursor::{TieredBounds, TieredCursor};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::ps_tree::{EntryPlace, PsBounds, PsCursor, PsFlag};
use crate::query::Order;
use crate::source::ReadSource;
use crate::spec::IndexSpec;
use crate::validation::Verdict;

/// The entries of one tier or of both.
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the common one, and a box would cost an allocation a query"
)]
enum EntrySource<'v, S: ReadSource> {
    Memory(PsCursor<'v>),
    Tiered(Box<TieredCursor<'v, S>>),
}

impl<'v, S: ReadSource> EntrySource<'v, S> {
    fn memory(&self) -> &PsCursor<'v> {
        match self {
            Self::Memory(cursor) => cursor,
            Self::Tiered(cursor) => cursor.memory(),
        }
    }

    /// As [`PsCursor::sequence_bound`].
    fn sequence_bound(&self) -> SequenceNumber {
        match self {
            Self::Memory(cursor) => cursor.sequence_bound(),
            Self::Tiered(cursor) => cursor.sequence_bound(),
        }
    }
}

/// The candidates of one query.
pub(super) struct PsCandidates<'v, S: ReadSource> {
    backend: &'v PsTreeBackend,
    view: &'v S,
    access: &'v Access,
    order: Option<Order>,
    entries: EntrySource<'v, S>,
    /// Removals from the version table before the first entry was read.
    removals: u64,
    costs: PsCosts,
    /// The parts of the last returned candidate.
    primary_key: Vec<u8>,
    value: Vec<u8>,
    order_value: Vec<u8>,
}

impl<'v, S: ReadSource> PsCandidates<'v, S> {
    /// The candidates of the index that `spec` declares, with its tree `tree`.
    pub(super) fn new(
        backend: &'v PsTreeBackend,
        (spec, tree): (&'v IndexSpec, TreeId),
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Self> {
        let by_value = access.order_attribute.is_some_and(|at| at + 1 == backend.attributes());
        let resumed = access.resume.filter(|_| access.point && order == Order::Newest);
        let snapshot = resumed.unwrap_or(view.sequence()).min(view.sequence());
        let removals = backend.versions().removals();
        let is_tiered = || backend.spill_state().is_tiered();
        let mut in_memory = None;
        if !is_tiered() {
            let cursor = Self::in_memory(backend, (access, order, by_value), snapshot)?;
            // The cursor pins the region now: entries stay in it if there was no spill before.
            in_memory = (!is_tiered()).then_some(cursor);
        }
        let (entries, order) = if let Some((cursor, order)) = in_memory {
            (EntrySource::Memory(cursor), order)
        } else {
            let bounds = TieredBounds::of(access, order, spec, snapshot);
            let order = bounds.order(by_value);
            let cursor = TieredCursor::new(backend, view, spec, tree, bounds)?;
            (EntrySource::Tiered(Box::new(cursor)), order)
        };
        let (costs, primary_key, value, order_value) = Default::default();
        Ok(Self { backend, view, access, order, entries, removals, costs, primary_key, value, order_value })
    }

    /// A cursor over the region alone, and its order.
    fn in_memory(
        backend: &'v PsTreeBackend,
        (access, order, by_value): (&'v Access, Order, bool),
        snapshot: SequenceNumber,
    ) -> Result<(PsCursor<'v>, Option<Order>)> {
        let order = match order {
            // Keys arrive in this order only if the last attribute is the order attribute.
            Order::Value | Order::ValueDescending if !by_value => Order::Newest,
            order => order,
        };
        let bounds = match access.point {
            true => PsBounds::One(&access.low),
            false => PsBounds::Range { low: &access.low, end: Some(&access.end) },
        };
        let cursor = backend.tree().cursor(bounds, order, snapshot)?;
        Ok((cursor, (order != Order::Nearest).then_some(order)))
    }

    /// Reads the next entry into `primary_key`, `value` and `order_value`. Returns its sequence number and its place in the region.
    #[inline]
    fn read_entry(&mut self) -> Result<Option<(SequenceNumber, Option<EntryPlace>)>> {
        let (secondary_key, primary_key, covering, found) = match &mut self.entries {
            EntrySource::Memory(cursor) => {
                let Some(entry) = cursor.next_entry()? else { return Ok(None) };
                (entry.secondary_key, entry.primary_key, entry.covering, (entry.sequence, Some(entry.place)))
            }
            EntrySource::Tiered(cursor) => {
                let Some(entry) = cursor.next_entry()? else { return Ok(None) };
                let found = (entry.sequence, entry.place);
                (&entry.secondary_key[..], &entry.primary_key[..], &entry.covering[..], found)
            }
        };
        self.primary_key.clear();
        self.primary_key.extend_from_slice(primary_key);
        self.value.clear();
        self.value.extend_from_slice(covering);
        self.order_value.clear();
        self.order_value.extend_from_slice(self.access.order_value(secondary_key));
        Ok(Some(found))
    }
}

impl<S: ReadSource> CandidateCursor for PsCandidates<'_, S> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            let Some((sequence, place)) = self.read_entry()? else { return Ok(None) };
            let mut verdict = Verdict::Unknown;
            if is_planted(SpillFlaw::TrustsSpilled) {
                verdict =
                    self.backend.versions().verdict(&self.primary_key, sequence, self.view.sequence())?;
            }
            if let Some(place) = place {
                let versions = self.backend.versions();
                verdict = versions.verdict(&self.primary_key, sequence, self.view.sequence())?;
                if verdict == Verdict::Current && versions.removals() != self.removals {
                    verdict = match self.entries.memory().is_present(place)? {
                        Some(true) => Verdict::Current,
                        Some(false) => continue,
                        None => Verdict::Unknown,
                    };
                }
                if verdict == Verdict::Obsolete {
                    self.costs.obsolete += 1;
                    let oldest = self.view.oldest_in_use();
                    // Obsolete for all readers: the next reader needs no verdict.
                    if versions.verdict(&self.primary_key, sequence, oldest)? == Verdict::Obsolete
                        && self.entries.memory().flag_obsolete(place)? == PsFlag::Flagged
                    {
                        self.costs.flagged += 1;
                        self.backend.note_flagged(&self.primary_key, sequence)?;
                    }
                    continue;
                }
                // After the verdict: a spill removes keys from the version table.
                if self.backend.spills() && sequence <= self.backend.cut() {
                    verdict = Verdict::Unknown;
                }
            }
            let is_current = verdict == Verdict::Current;
            self.costs.unknown += u64::from(!is_current);
            return Ok(Some(Candidate {
                order_value: &self.order_value,
                // Within one secondary key, a write has one entry.
                repeated: !self.access.point && self.value.first() == Some(&1),
                included: self.value.get(1..).unwrap_or_default(),
                origin: CandidateOrigin { validated: is_current, ..CandidateOrigin::default() },
                ..Candidate::new(&self.primary_key, sequence)
            }));
        }
    }

    fn sequence_bound(&self) -> SequenceNumber {
        match self.order {
            Some(Order::Newest) => self.entries.sequence_bound(),
            _ => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        self.order
    }

    fn report(&self, explain: &mut Explain) {
        let read = self.entries.memory().read_stats();
        let spilled = match &self.entries {
            EntrySource::Memory(_) => 0,
            EntrySource::Tiered(cursor) => cursor.spilled(),
        };
        let costs = PsCosts {
            keys: read.keys,
            groups: read.groups,
            pages: read.pages,
            entries: read.entries,
            spilled,
            ..self.costs
        };
        explain.add_costs(IndexCosts::of(&costs));
    }
}
