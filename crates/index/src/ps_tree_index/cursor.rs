//! Reads the candidates of one query from a PS-Tree, and skips entries that are obsolete by the version table.

use bolide_base::{Result, SequenceNumber};

use super::backend::PsTreeBackend;
use super::costs::PsCosts;
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::ps_tree::{PsBounds, PsCursor, PsFlag};
use crate::query::Order;
use crate::source::ReadSource;
use crate::validation::Verdict;

/// The candidates of one query.
pub(super) struct PsCandidates<'v, S> {
    backend: &'v PsTreeBackend,
    view: &'v S,
    access: &'v Access,
    order: Order,
    cursor: PsCursor<'v>,
    /// Removals from the version table before the first entry was read.
    removals: u64,
    costs: PsCosts,
    /// The parts of the last returned candidate.
    primary_key: Vec<u8>,
    value: Vec<u8>,
    order_value: Vec<u8>,
}

impl<'v, S: ReadSource> PsCandidates<'v, S> {
    pub(super) fn new(
        backend: &'v PsTreeBackend,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Self> {
        let order = match order {
            // Keys arrive in this order only if the last attribute is the order attribute.
            Order::Value | Order::ValueDescending
                if access.order_attribute.is_none_or(|at| at + 1 != backend.attributes()) =>
            {
                Order::Newest
            }
            order => order,
        };
        let bounds = match access.point {
            true => PsBounds::One(&access.low),
            false => PsBounds::Range { low: &access.low, end: Some(&access.end) },
        };
        let resumed = access.resume.filter(|_| access.point && order == Order::Newest);
        let snapshot = resumed.unwrap_or(view.sequence()).min(view.sequence());
        let removals = backend.versions().removals();
        let cursor = backend.tree().cursor(bounds, order, snapshot)?;
        let (costs, primary_key, value, order_value) = Default::default();
        Ok(Self { backend, view, access, order, cursor, removals, costs, primary_key, value, order_value })
    }
}

impl<S: ReadSource> CandidateCursor for PsCandidates<'_, S> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            let Some(entry) = self.cursor.next_entry()? else { return Ok(None) };
            let (sequence, place) = (entry.sequence, entry.place);
            self.primary_key.clear();
            self.primary_key.extend_from_slice(entry.primary_key);
            self.value.clear();
            self.value.extend_from_slice(entry.covering);
            self.order_value.clear();
            self.order_value.extend_from_slice(self.access.order_value(entry.secondary_key));
            let mut verdict =
                self.backend.versions().verdict(&self.primary_key, sequence, self.view.sequence())?;
            if verdict == Verdict::Current && self.backend.versions().removals() != self.removals {
                verdict = match self.cursor.is_present(place)? {
                    Some(true) => Verdict::Current,
                    Some(false) => continue,
                    None => Verdict::Unknown,
                };
            }
            if verdict == Verdict::Obsolete {
                self.costs.obsolete += 1;
                let oldest = self.view.oldest_in_use();
                // Obsolete for all readers: the next reader needs no verdict.
                if self.backend.versions().verdict(&self.primary_key, sequence, oldest)? == Verdict::Obsolete
                    && self.cursor.flag_obsolete(place)? == PsFlag::Flagged
                {
                    self.costs.flagged += 1;
                    self.backend.note_flagged(&self.primary_key)?;
                }
                continue;
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
            Order::Newest => self.cursor.sequence_bound(),
            _ => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        (self.order != Order::Nearest).then_some(self.order)
    }

    fn report(&self, explain: &mut Explain) {
        let read = self.cursor.read_stats();
        let costs = PsCosts {
            keys: read.keys,
            groups: read.groups,
            pages: read.pages,
            entries: read.entries,
            ..self.costs
        };
        explain.add_costs(IndexCosts::of(&costs));
    }
}
