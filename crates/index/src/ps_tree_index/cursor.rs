//! Reads the candidates of one query from a PS-Tree, and passes over what the version table knows to be obsolete.

use bolide_base::{Result, SequenceNumber};

use super::costs::PsCosts;
use super::backend::PsTreeBackend;
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::explain::Explain;
use crate::ps_tree::{PsBounds, PsCursor, PsFlag};
use crate::query::Order;
use crate::source::ReadSource;
use crate::standalone::secondary_key;
use crate::validation::Verdict;

/// The candidates of one query.
pub(super) struct PsCandidates<'v, S> {
    kept: &'v PsTreeBackend,
    view: &'v S,
    access: &'v Access,
    order: Order,
    cursor: PsCursor<'v>,
    /// How many keys the version table had forgotten before the first entry was read.
    departures: u64,
    costs: PsCosts,
    /// What the candidate given last is.
    primary_key: Vec<u8>,
    value: Vec<u8>,
    order_value: Vec<u8>,
}

impl<'v, S: ReadSource> PsCandidates<'v, S> {
    pub(super) fn new(kept: &'v PsTreeBackend, access: &'v Access, order: Order, view: &'v S) -> Result<Self> {
        let order = match order {
            // Only where the last attribute is the one that the order goes by do keys come in it.
            Order::Value | Order::ValueDescending
                if access.order_attribute.is_none_or(|at| at + 1 != kept.attributes()) =>
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
        let departures = kept.versions().departures();
        let cursor = kept.tree().cursor(bounds, order, snapshot)?;
        let (costs, primary_key, value, order_value) = Default::default();
        Ok(Self { kept, view, access, order, cursor, departures, costs, primary_key, value, order_value })
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
            if let Some(position) = self.access.order_attribute {
                self.order_value.extend_from_slice(secondary_key::component(entry.secondary_key, position));
            }
            let mut verdict =
                self.kept.versions().verdict(&self.primary_key, sequence, self.view.sequence())?;
            if verdict == Verdict::Current && self.kept.versions().departures() != self.departures {
                verdict = match self.cursor.stands(place)? {
                    Some(true) => Verdict::Current,
                    Some(false) => continue,
                    None => Verdict::Unknown,
                };
            }
            if verdict == Verdict::Obsolete {
                self.costs.obsolete += 1;
                let oldest = self.view.oldest_in_use();
                // Nobody sees it any more: the next reader need not ask.
                if self.kept.versions().verdict(&self.primary_key, sequence, oldest)? == Verdict::Obsolete
                    && self.cursor.flag_obsolete(place)? == PsFlag::Won
                {
                    self.costs.flagged += 1;
                    self.kept.note_flagged(&self.primary_key)?;
                }
                continue;
            }
            let is_current = verdict == Verdict::Current;
            self.costs.unknown += u64::from(!is_current);
            return Ok(Some(Candidate {
                order_value: &self.order_value,
                // Within one secondary key a write has one entry.
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
        let touched = self.cursor.touched();
        let costs = &mut explain.ps_tree;
        costs.keys += touched.keys;
        costs.groups += touched.groups;
        costs.pages += touched.pages;
        costs.entries += touched.entries;
        costs.obsolete += self.costs.obsolete;
        costs.unknown += self.costs.unknown;
        costs.flagged += self.costs.flagged;
    }
}
