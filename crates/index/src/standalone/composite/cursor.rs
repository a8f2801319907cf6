//! The candidate cursor of a composite index.

use bolide_base::{Result, SequenceNumber};

use super::walk::{CompositeScanOrder, EntryWalk};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;
use crate::source::EntryCursor;
use crate::spec::IndexSpec;
use crate::standalone::covering;

/// The candidates of one query; see [`CompositeScanOrder`].
pub(super) struct CompositeCursor<'v, C> {
    entries: EntryWalk<'v, C>,
    access: &'v Access,
    spec: &'v IndexSpec,
    /// Sequence number of the last candidate, or of the view.
    last_sequence: SequenceNumber,
    /// The covering of the candidate with the attributes of its key, if these are needed.
    with_key: Vec<u8>,
}

impl<'v, C: EntryCursor> CompositeCursor<'v, C> {
    pub(super) fn new(
        entries: C,
        scan_order: CompositeScanOrder,
        access: &'v Access,
        spec: &'v IndexSpec,
        view_sequence: SequenceNumber,
    ) -> Self {
        let entries = EntryWalk::new(entries, scan_order, spec);
        Self { entries, access, spec, last_sequence: view_sequence, with_key: Vec::new() }
    }
}

impl<C: EntryCursor + Send> CandidateCursor for CompositeCursor<'_, C> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        self.entries.advance()?;
        if !self.entries.valid() {
            self.last_sequence = 0;
            return Ok(None);
        }
        let entry = self.entries.key(self.access.point.then_some(self.access.low.len()))?;
        self.last_sequence = entry.sequence;
        let value = self.entries.value();
        let order_value = self.access.order_value(entry.secondary_key);
        let is_only_key = value.first() != Some(&1);
        let mut included = value.get(1..).unwrap_or_default();
        if self.access.includes_key_attributes {
            self.with_key.clear();
            covering::put_key(self.spec, entry.secondary_key, is_only_key, &mut self.with_key);
            self.with_key.extend_from_slice(included);
            included = &self.with_key;
        }
        Ok(Some(Candidate {
            primary_key: entry.primary_key,
            sequence: entry.sequence,
            order_value,
            // A write has one entry under a secondary key.
            repeated: !self.access.point && !is_only_key,
            included,
            origin: CandidateOrigin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.access.point
            && self.entries.scan_order() == CompositeScanOrder::Forward
            && self.entries.layout().is_newest_first()
        {
            self.last_sequence.saturating_sub(u64::from(self.entries.is_started()))
        } else {
            SequenceNumber::MAX
        }
    }

    fn order(&self) -> Option<Order> {
        let by_value = self.access.order_attribute.is_some_and(|at| at + 1 == self.spec.attributes().len());
        match self.entries.scan_order() {
            _ if !self.entries.layout().is_newest_first() => None,
            CompositeScanOrder::Forward if self.access.point => Some(Order::Newest),
            CompositeScanOrder::Forward if by_value => Some(Order::Value),
            CompositeScanOrder::Forward => None,
            CompositeScanOrder::Backward => Some(Order::Oldest),
            CompositeScanOrder::GroupsDescending => Some(Order::ValueDescending),
        }
    }
}
