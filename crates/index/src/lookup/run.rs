//! The stream of one lookup: candidates are passed on as they come, or collected and passed on in order.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use crate::attribute::Value as Selected;
use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor};
use crate::cursor_token::CursorToken;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Order, Projection, Query};
use crate::source::{ReadSource, TreeSource};
use crate::space::nearness::DistanceBytes;
use crate::top_k::TopK;
use crate::validation::Validator;

use super::covered::{Covered, EntrySays};
use super::per_value::PerValue;
use super::plan::Leg;
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
    /// The tree that the validator asks: the table, or a key index.
    pub(super) asked: &'r S::Tree,
    pub(super) options: LookupOptions<'r>,
    pub(super) emit: F,
    /// The table is read for each candidate.
    pub(super) fetch: bool,
    /// Predicates are checked on what was read.
    pub(super) check: bool,
    /// What is to be checked of a record is what the index settles.
    pub(super) trusts_checked: bool,
    /// The value of a value order comes from the record.
    pub(super) order_by_record: bool,
    /// Candidates are known to be current and to match: their records are fetched at most.
    pub(super) settled: bool,
    /// Writes answered already that may be proposed again.
    pub(super) answered: HashSet<SequenceNumber>,
    pub(super) values: AttributeValues,
    /// Room for the distance of the record at hand.
    pub(super) distance: DistanceBytes,
    /// Candidates that are settled together.
    pub(super) window: Window<Value<S>>,
    /// What is taken from the entries of the index.
    pub(super) covered: Covered<'r>,
    /// The cursor knows the value of each candidate that orders and limits go by.
    pub(super) knows_value: bool,
    pub(super) per_value: Option<PerValue>,
    /// The value of the candidate at hand, where it matters.
    pub(super) value: Vec<u8>,
    /// The selected values of the answer at hand.
    pub(super) selected: Vec<Vec<Selected>>,
    /// The rank of the last answer.
    pub(super) last: Option<(Vec<u8>, SequenceNumber)>,
    /// Answers may follow that were not given.
    pub(super) stopped: bool,
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
            asked: table,
            options: lookup.options,
            emit,
            fetch: false,
            check: false,
            trusts_checked: false,
            order_by_record: false,
            settled: false,
            answered: HashSet::new(),
            values: AttributeValues::new(),
            distance: DistanceBytes::default(),
            window: Window::new(),
            covered: Covered::default(),
            knows_value: true,
            per_value: query.needs_order_values().then(|| {
                // Counting takes candidates as they come.
                let grouped = query.by_value() && query.projection != Projection::Count;
                PerValue::new(query.limit_per_value, grouped)
            }),
            value: Vec::new(),
            selected: Vec::new(),
            last: None,
            stopped: false,
            explain: Explain::default(),
        }
    }

    /// Prepares for the candidates of `lead`, which `others` filter.
    pub(super) fn read_through(&mut self, lead: &Leg<'_, S>, others: &[Leg<'_, S>], recheck: bool) {
        let query = self.query;
        let spec = lead.index.spec();
        self.covered = Covered::new(query, &lead.access, spec);
        self.knows_value = query.order_predicate.is_none() || lead.access.has_order_value();
        self.order_by_record = query.by_value() && !self.knows_value;
        let by_key = |number: usize| {
            lead.access.covered.contains(&number)
                || others.iter().any(|leg| leg.access.covered.contains(&number))
        };
        let all = 0..query.predicates.len();
        let unsettled = all.clone().any(|number| !by_key(number) && !lead.access.covers_predicate(number));
        self.fetch = unsettled
            || !self.knows_value
            || match query.projection {
                Projection::Records => true,
                Projection::Values => !self.covered.selects(),
                Projection::Keys | Projection::Count => false,
            };
        self.check = recheck
            || !all.clone().all(by_key)
            || query.order_predicate.is_some()
            || query.projection == Projection::Values;
        self.trusts_checked = query.projection != Projection::Values
            && all.clone().all(|number| lead.access.covered.contains(&number));
        self.explain.index = Some(spec.name().to_owned());
        self.explain.intersected = others.iter().map(|leg| leg.index.spec().name().to_owned()).collect();
        self.explain.access = spec.kind().name();
    }

    /// Prepares for a scan, whose candidates are current and match.
    pub(super) fn read_table(&mut self) {
        self.fetch = matches!(self.query.projection, Projection::Records | Projection::Values);
        self.check = self.query.projection == Projection::Values;
        self.settled = true;
    }

    /// What it did, with a token to go on with.
    pub(super) fn finish(self, query: &Query, lookup: &Lookup<'_, S>) -> Explain {
        let mut explain = self.explain;
        if let (true, Some((value, sequence))) = (self.stopped, self.last) {
            let snapshot = lookup.options.held.then(|| lookup.view.sequence());
            explain.next = Some(CursorToken { query: query.fingerprint(), snapshot, sequence, value });
        }
        explain
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

    /// Whether the places of the candidates are those of the table as it is read here. A flush or a compaction between
    /// the two moves them.
    fn is_in_place(&self, cursor: &(dyn CandidateCursor + '_)) -> bool {
        cursor.components_id() == Some(self.table.components_id())
    }

    /// Passes candidates on as they come.
    fn stream(&mut self, mut cursor: Box<dyn CandidateCursor + '_>) -> Result<()> {
        let in_place = self.is_in_place(&*cursor);
        loop {
            let start = self.now();
            let candidate = cursor.next()?;
            self.explain.candidates_nanos += self.now() - start;
            let Some(candidate) = candidate else {
                self.answer_window()?;
                break;
            };
            self.explain.candidates += 1;
            let order_value = match self.covered.order_value(candidate.included) {
                Some(value) => value,
                None => candidate.order_value,
            };
            let origin = if in_place { candidate.origin } else { candidate.origin.moved() };
            if !self.offer(&Candidate { order_value, origin, ..candidate })? {
                break;
            }
        }
        cursor.report(&mut self.explain);
        Ok(())
    }

    /// Collects candidates and passes them on in order.
    fn collect<'c>(
        &mut self,
        mut cursor: Box<dyn CandidateCursor + 'c>,
        open: impl Fn() -> Result<Box<dyn CandidateCursor + 'c>>,
    ) -> Result<()> {
        let capacity = self.query.limit.saturating_mul(2).max(FIRST_CAPACITY);
        let mut top = TopK::new(self.query.order, capacity, self.options.collect_bytes);
        // Where values are counted, those before the token count too.
        if let (Some(token), None) = (self.query.after, &self.per_value) {
            top.start_after(&token.value, token.sequence);
        }
        loop {
            self.explain.passes += 1;
            let more = self.collect_pass(&mut *cursor, &mut top)?;
            cursor.report(&mut self.explain);
            if !more || !top.dropped() {
                return Ok(());
            }
            top.restart();
            cursor = open()?;
        }
    }

    /// Reads all candidates once and answers those that fit. False when the query is answered.
    fn collect_pass(&mut self, cursor: &mut dyn CandidateCursor, top: &mut TopK) -> Result<bool> {
        let mut bound = SequenceNumber::MAX;
        let in_place = self.is_in_place(cursor);
        loop {
            let start = self.now();
            let candidate = cursor.next()?;
            self.explain.candidates_nanos += self.now() - start;
            let Some(mut candidate) = candidate else {
                break;
            };
            if !in_place {
                candidate.origin = candidate.origin.moved();
            }
            self.explain.candidates += 1;
            self.collect_one(&candidate, top)?;
            if self.query.order == Order::Newest && cursor.sequence_bound() < bound {
                bound = cursor.sequence_bound();
                let wanted = (self.query.limit as u64).saturating_sub(self.explain.answers);
                let wanted = wanted.try_into().unwrap_or(usize::MAX);
                if top.is_worth_draining(bound, wanted) && !self.drain(top, bound)? {
                    return Ok(false);
                }
            }
        }
        if self.window.waits() {
            self.collect_window(top)?;
        }
        self.drain(top, 0)
    }

    /// Collects a candidate under its value.
    fn collect_one(&mut self, candidate: &Candidate<'_>, top: &mut TopK) -> Result<()> {
        let says = self.covered.check(candidate.included);
        if says == EntrySays::Fails {
            self.explain.mismatched += 1;
            return Ok(());
        }
        if self.order_by_record || (says == EntrySays::Nothing && self.query.by_value()) {
            return self.offer_by_record(candidate, top);
        }
        let order_value = self.covered.order_value(candidate.included).unwrap_or(candidate.order_value);
        let included = if self.covered.is_used() { candidate.included } else { &[] };
        let mut origin = candidate.origin;
        if !self.fetch && self.query.order_predicate.is_none() {
            origin.record = None;
        }
        top.push(&Candidate { order_value, included, origin, ..*candidate });
        Ok(())
    }

    fn drain(&mut self, top: &mut TopK, bound: SequenceNumber) -> Result<bool> {
        let before = (self.settled, self.check, self.fetch);
        if self.order_by_record {
            // What was collected was settled for its value: only records are still to be fetched.
            let values = self.query.projection == Projection::Values;
            let records = self.query.projection == Projection::Records;
            (self.settled, self.check, self.fetch) = (true, values, records || values);
        }
        let more = top.drain(bound, |candidate| self.offer(candidate));
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
