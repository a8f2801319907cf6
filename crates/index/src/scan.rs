//! The scan of a table without an index: every record is evaluated.

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::compiled_query::{CompiledQuery, OrderValueBuffer};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::Order;
use crate::record_check::{RecordCheck, check_record};
use crate::source::EntryCursor;

/// Proposes the records that satisfy all predicates. They need no validation and no further evaluation.
pub(crate) struct ScanCursor<'q, C> {
    records: C,
    query: &'q CompiledQuery<'q>,
    /// `None` without predicates.
    extractor: Option<&'q dyn AttributeExtractor>,
    values: AttributeValues,
    order_value: OrderValueBuffer,
    started: bool,
    steps: InterruptionSteps,
    proposed: u64,
    mismatched: u64,
    malformed: u64,
}

impl<'q, C: EntryCursor> ScanCursor<'q, C> {
    pub(crate) fn new(
        records: C,
        query: &'q CompiledQuery<'q>,
        extractor: Option<&'q dyn AttributeExtractor>,
    ) -> Self {
        let (values, order_value) = Default::default();
        let (started, proposed, mismatched, malformed) = Default::default();
        let steps = InterruptionSteps::default();
        Self {
            records,
            query,
            extractor,
            values,
            order_value,
            started,
            steps,
            proposed,
            mismatched,
            malformed,
        }
    }

    fn matches(&mut self) -> Result<bool> {
        let Some(extractor) = self.extractor else {
            return Ok(true);
        };
        let (query, record) = (self.query, self.records.value());
        let check =
            check_record(extractor, record, query.plan(), &mut self.values, |values| query.matches(values))?;
        self.mismatched += u64::from(check == RecordCheck::Mismatch);
        self.malformed += u64::from(check == RecordCheck::Malformed);
        Ok(check == RecordCheck::Match)
    }
}

impl<C: EntryCursor + Send> CandidateCursor for ScanCursor<'_, C> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            self.steps.step()?;
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
        self.proposed += 1;
        Ok(Some(Candidate {
            primary_key: self.records.key(),
            sequence: self.records.sequence(),
            order_value: self.query.order_value(&self.values, &mut self.order_value),
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

    fn report(&self, explain: &mut Explain) {
        explain.candidates += self.mismatched + self.malformed;
        explain.current += self.proposed;
        explain.mismatched += self.mismatched;
        explain.malformed += self.malformed;
    }
}
