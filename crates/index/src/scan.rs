//! The fallback where no index serves: every record of the table, checked.

use std::cell::Cell;

use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor, Origin};
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Order};
use crate::source::EntryCursor;
use crate::space::nearness::DistanceBytes;

/// Proposes the records that satisfy all predicates; they need no validation and no further check.
pub(crate) struct ScanCursor<'q, C> {
    records: C,
    query: &'q CompiledQuery<'q>,
    /// `None` where there are no predicates to check.
    extractor: Option<&'q dyn AttributeExtractor>,
    values: AttributeValues,
    distance: DistanceBytes,
    started: bool,
    /// Records that did not match.
    mismatched: &'q Cell<u64>,
}

impl<'q, C: EntryCursor> ScanCursor<'q, C> {
    pub(crate) fn new(
        records: C,
        query: &'q CompiledQuery<'q>,
        extractor: Option<&'q dyn AttributeExtractor>,
        mismatched: &'q Cell<u64>,
    ) -> Self {
        let (values, distance) = Default::default();
        Self { records, query, extractor, values, distance, started: false, mismatched }
    }

    fn matches(&mut self) -> Result<bool> {
        let Some(extractor) = self.extractor else {
            return Ok(true);
        };
        extractor.extract(self.records.value(), self.query.plan(), &mut self.values)?;
        Ok(self.query.matches(&self.values))
    }
}

impl<C: EntryCursor> CandidateCursor for ScanCursor<'_, C> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            if std::mem::replace(&mut self.started, true) {
                self.records.next()?;
            } else {
                self.records.seek_to_first()?;
            }
            if !self.records.valid() {
                return Ok(None);
            }
            if self.matches()? {
                break;
            }
            self.mismatched.set(self.mismatched.get() + 1);
        }
        Ok(Some(Candidate {
            primary_key: self.records.key(),
            sequence: self.records.sequence(),
            order_value: self.query.order_value(&self.values, &mut self.distance),
            repeated: false,
            included: &[],
            origin: Origin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        SequenceNumber::MAX
    }

    fn order(&self) -> Option<Order> {
        None
    }
}
