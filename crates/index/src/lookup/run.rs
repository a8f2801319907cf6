//! The stream of one lookup: candidates are passed on as they come, or collected and passed on in order.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::AttributeValues;
use crate::candidate::CandidateCursor;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Order, Projection};
use crate::source::ReadSource;
use crate::top_k::TopK;
use crate::validation::Validator;

use super::window::Window;
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
    /// Candidates that are settled together.
    pub(super) window: Window<Value<S>>,
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
            window: Window::new(),
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
                return self.answer_window().map(drop);
            };
            self.explain.candidates += 1;
            if !self.offer(candidate.primary_key, candidate.sequence, candidate.repeated)? {
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
                self.offer_by_record(&candidate, top)?;
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
        if self.order_by_record {
            self.collect_window(top)?;
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
            top.drain(bound, |candidate, _, key| self.offer(key, candidate.sequence, candidate.repeated));
        let more = match more {
            Ok(true) => self.answer_window(),
            other => other,
        };
        (self.settled, self.check, self.fetch) = before;
        more
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.options.clock.map_or(0, |clock| clock())
    }
}
