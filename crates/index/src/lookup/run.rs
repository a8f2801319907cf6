//! The stream of one lookup: candidates are passed on as they come, or collected and passed on in order.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Order, Projection};
use crate::source::ReadSource;
use crate::top_k::TopK;
use crate::validation::Validator;

use super::{Lookup, LookupOptions, Row, Value};

/// Candidates collected in the first pass, at least.
const FIRST_CAPACITY: usize = 128;

/// The state of one lookup.
pub(super) struct Run<'r, S: ReadSource, F> {
    pub(super) query: &'r CompiledQuery<'r>,
    pub(super) table: &'r S::Tree,
    pub(super) extractor: Option<&'r dyn AttributeExtractor>,
    pub(super) validator: Option<&'r dyn Validator<S::Tree>>,
    pub(super) options: LookupOptions<'r>,
    pub(super) emit: F,
    /// The table is read for each candidate.
    pub(super) fetch: bool,
    /// Predicates are checked on what was read.
    pub(super) check: bool,
    /// The value of a value order comes from the record.
    pub(super) order_by_record: bool,
    /// Candidates are known to be current and to match: their records are fetched at most.
    pub(super) settled: bool,
    /// Writes answered already that may be proposed again.
    pub(super) answered: HashSet<SequenceNumber>,
    pub(super) values: AttributeValues,
    pub(super) explain: Explain,
}

impl<'r, S, F> Run<'r, S, F>
where
    S: ReadSource,
    F: FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
{
    pub(super) fn new(
        lookup: &'r Lookup<'_, S>,
        query: &'r CompiledQuery<'r>,
        table: &'r S::Tree,
        validator: Option<&'r dyn Validator<S::Tree>>,
        emit: F,
    ) -> Self {
        Self {
            query,
            table,
            extractor: lookup.extractor,
            validator,
            options: lookup.options,
            emit,
            fetch: false,
            check: false,
            order_by_record: false,
            settled: false,
            answered: HashSet::new(),
            values: AttributeValues::new(),
            explain: Explain::default(),
        }
    }

    pub(super) fn drive<'c>(
        &mut self,
        open: impl Fn() -> Result<Box<dyn CandidateCursor + 'c>>,
    ) -> Result<()> {
        let cursor = open()?;
        let in_order = cursor.order() == Some(self.query.order) && !self.order_by_record;
        // Counting needs no order.
        if in_order || self.query.projection == Projection::Count {
            self.explain.streamed = true;
            self.explain.passes = 1;
            self.stream(cursor)
        } else {
            self.collect(cursor, open)
        }
    }

    /// Passes candidates on as they come.
    fn stream(&mut self, mut cursor: Box<dyn CandidateCursor + '_>) -> Result<()> {
        loop {
            let start = self.now();
            let candidate = cursor.next()?;
            self.explain.candidates_nanos += self.now() - start;
            let Some(candidate) = candidate else {
                return Ok(());
            };
            self.explain.candidates += 1;
            if !self.answer(candidate.primary_key, candidate.sequence, candidate.repeated)? {
                return Ok(());
            }
        }
    }

    /// Collects candidates and passes them on in order.
    fn collect<'c>(
        &mut self,
        mut cursor: Box<dyn CandidateCursor + 'c>,
        open: impl Fn() -> Result<Box<dyn CandidateCursor + 'c>>,
    ) -> Result<()> {
        let capacity = self.query.limit.saturating_mul(2).max(FIRST_CAPACITY);
        let mut top = TopK::new(self.query.order, capacity, self.options.collect_bytes);
        loop {
            self.explain.passes += 1;
            if !self.collect_pass(&mut *cursor, &mut top)? || !top.dropped() {
                return Ok(());
            }
            top.restart();
            cursor = open()?;
        }
    }

    /// Reads all candidates once and answers those that fit. False when the query is answered.
    fn collect_pass(&mut self, cursor: &mut dyn CandidateCursor, top: &mut TopK) -> Result<bool> {
        let mut bound = SequenceNumber::MAX;
        loop {
            let start = self.now();
            let candidate = cursor.next()?;
            self.explain.candidates_nanos += self.now() - start;
            let Some(candidate) = candidate else {
                break;
            };
            self.explain.candidates += 1;
            if self.order_by_record {
                self.collect_by_record(&candidate, top)?;
            } else {
                top.push(&candidate);
            }
            if self.query.order == Order::Newest && cursor.sequence_bound() < bound {
                bound = cursor.sequence_bound();
                if top.any_final(bound) && !self.drain(top, bound)? {
                    return Ok(false);
                }
            }
        }
        self.drain(top, 0)
    }

    fn drain(&mut self, top: &mut TopK, bound: SequenceNumber) -> Result<bool> {
        let before = (self.settled, self.check, self.fetch);
        if self.order_by_record {
            // What was collected was settled for its value: only records are still to be fetched.
            (self.settled, self.check, self.fetch) =
                (true, false, self.query.projection == Projection::Records);
        }
        let more =
            top.drain(bound, |candidate, _, key| self.answer(key, candidate.sequence, candidate.repeated));
        (self.settled, self.check, self.fetch) = before;
        more
    }

    /// Settles a candidate before it is collected, to learn its value.
    fn collect_by_record(&mut self, candidate: &Candidate<'_>, top: &mut TopK) -> Result<()> {
        if self.fetch_current(candidate.primary_key, candidate.sequence)?.is_some() {
            // Several candidates of one write have one rank, so they count once.
            top.push(&Candidate {
                order_value: self.query.order_value(&self.values),
                repeated: false,
                ..*candidate
            });
        }
        Ok(())
    }

    /// Settles a candidate and emits it if it is an answer. False when no more answers are wanted.
    fn answer(&mut self, primary_key: &[u8], sequence: SequenceNumber, repeated: bool) -> Result<bool> {
        if repeated && self.answered.contains(&sequence) {
            return Ok(true);
        }
        let record = if !self.fetch {
            if !self.settled && !self.is_current(primary_key, sequence)? {
                return Ok(true);
            }
            None
        } else {
            match self.fetch_current(primary_key, sequence)? {
                Some(record) => Some(record),
                None => return Ok(true),
            }
        };
        if repeated {
            self.answered.insert(sequence);
        }
        self.explain.answers += 1;
        let record = record.filter(|_| self.query.projection == Projection::Records);
        let flow = match self.query.projection {
            Projection::Count => ControlFlow::Continue(()),
            _ => (self.emit)(Row { primary_key, sequence, record })?,
        };
        Ok(flow.is_continue() && self.explain.answers < self.query.limit as u64)
    }
}
