//! The scan of a table without an index: every record is evaluated.

use std::cell::Cell;

use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Order};
use crate::source::EntryCursor;
use crate::space::nearness::DistanceBytes;

/// Proposes the records that satisfy all predicates. They need no validation and no further evaluation.
pub(crate) struct ScanCursor<'q, C> {
    records: C,
    query: &'q CompiledQuery<'q>,
    /// `None` without predicates.
    extractor: Option<&'q dyn AttributeExtractor>,
    values: AttributeValues,
    distance: DistanceBytes,
    started: bool,
    skipped: &'q ScanSkips,
}

/// Counts of the records that a scan did not propose.
#[derive(Default)]
pub(crate) struct ScanSkips {
    /// Records that did not match.
    pub(crate) mismatched: Cell<u64>,
    /// Malformed records.
    pub(crate) malformed: Cell<u64>,
}

impl<'q, C: EntryCursor> ScanCursor<'q, C> {
    pub(crate) fn new(
        records: C,
        query: &'q CompiledQuery<'q>,
        extractor: Option<&'q dyn AttributeExtractor>,
        skipped: &'q ScanSkips,
    ) -> Self {
        let (values, distance) = Default::default();
        Self { records, query, extractor, values, distance, started: false, skipped }
    }

    fn matches(&mut self) -> Result<bool> {
        let Some(extractor) = self.extractor else {
            return Ok(true);
        };
        if !extractor.extract_stored(self.records.value(), self.query.plan(), &mut self.values)? {
            add_one(&self.skipped.malformed);
            return Ok(false);
        }
        let matches = self.query.matches(&self.values);
        if !matches {
            add_one(&self.skipped.mismatched);
        }
        Ok(matches)
    }
}

fn add_one(count: &Cell<u64>) {
    count.set(count.get() + 1);
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
        }
        Ok(Some(Candidate {
            primary_key: self.records.key(),
            sequence: self.records.sequence(),
            order_value: self.query.order_value(&self.values, &mut self.distance),
            repeated: false,
            included: &[],
            origin: CandidateOrigin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        SequenceNumber::MAX
    }

    fn order(&self) -> Option<Order> {
        None
    }
}
