//! The execution of one lookup: streams candidates in index order, or collects and sorts them.

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

use super::covered::{CoveredAttributes, EntryCheck};
use super::per_value::PerValue;
use super::plan::AccessPath;
use super::window::CandidateWindow;
use super::{Lookup, LookupOptions, RecordRef, Row};

/// Minimum capacity for candidates that are collected.
const MIN_CAPACITY: usize = 128;

/// The state of one lookup.
pub(super) struct Execution<'r, S: ReadSource, F> {
    pub(super) query: &'r CompiledQuery<'r>,
    pub(super) table: &'r S::Tree,
    pub(super) extractor: Option<&'r dyn AttributeExtractor>,
    pub(super) validator: Option<&'r dyn Validator<S::Tree>>,
    /// The tree that the validator reads: the table, or a key index.
    pub(super) validation_tree: &'r S::Tree,
    pub(super) options: LookupOptions<'r>,
    pub(super) emit: F,
    /// The record of each candidate is fetched.
    pub(super) fetch: bool,
    /// Predicates are checked on fetched records.
    pub(super) check: bool,
    /// A record that the index has checked needs no further check.
    pub(super) trusts_checked: bool,
    /// The order value is that of the record.
    pub(super) order_by_record: bool,
    /// Candidates are known to be current and to match: at most their records are fetched.
    pub(super) verified: bool,
    /// Writes that were answered and that the cursor may return again.
    pub(super) answered: HashSet<SequenceNumber>,
    pub(super) values: AttributeValues,
    /// Buffer for the distance of the current record.
    pub(super) distance: DistanceBytes,
    /// Candidates that are resolved together.
    pub(super) window: CandidateWindow<RecordRef<S>>,
    /// The attributes that are read from index entries.
    pub(super) covered: CoveredAttributes<'r>,
    /// The cursor returns the order value of each candidate.
    pub(super) has_order_value: bool,
    pub(super) per_value: Option<PerValue>,
    /// The order value of the current candidate, if needed.
    pub(super) value: Vec<u8>,
    /// The selected values of the current answer.
    pub(super) selected: Vec<Vec<Selected>>,
    /// The rank of the last answer.
    pub(super) last: Option<(Vec<u8>, SequenceNumber)>,
    /// The lookup stopped before the end of the candidates.
    pub(super) stopped: bool,
    pub(super) explain: Explain,
}

impl<'r, S, F> Execution<'r, S, F>
where
    S: ReadSource,
    F: FnMut(Row<'_, RecordRef<S>>) -> Result<ControlFlow<()>>,
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
            validation_tree: table,
            options: lookup.options,
            emit,
            fetch: false,
            check: false,
            trusts_checked: false,
            order_by_record: false,
            verified: false,
            answered: HashSet::new(),
            values: AttributeValues::new(),
            distance: DistanceBytes::default(),
            window: CandidateWindow::new(),
            covered: CoveredAttributes::default(),
            has_order_value: true,
            per_value: query.needs_order_values().then(|| {
                // A counting query reads candidates in index order.
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

    /// Prepares for the candidates of `driving`, filtered by those of `filtering`.
    pub(super) fn use_index(
        &mut self,
        driving: &AccessPath<'_, S>,
        filtering: &[AccessPath<'_, S>],
        recheck: bool,
    ) {
        let query = self.query;
        let spec = driving.index.spec();
        self.covered = CoveredAttributes::new(query, &driving.access, spec);
        self.has_order_value = query.order_predicate.is_none() || driving.access.has_order_value();
        self.order_by_record = query.by_value() && !self.has_order_value;
        let by_key = |number: usize| {
            driving.access.covered.contains(&number)
                || filtering.iter().any(|path| path.access.covered.contains(&number))
        };
        let all = 0..query.predicates.len();
        let uncovered = all.clone().any(|number| !by_key(number) && !driving.access.covers_predicate(number));
        self.fetch = uncovered
            || !self.has_order_value
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
            && all.clone().all(|number| driving.access.covered.contains(&number));
        self.explain.index = Some(spec.name().to_owned());
        self.explain.intersected = filtering.iter().map(|path| path.index.spec().name().to_owned()).collect();
        self.explain.access = spec.kind().name();
    }

    /// Prepares for a scan, whose candidates are current and match.
    pub(super) fn use_scan(&mut self) {
        self.fetch = matches!(self.query.projection, Projection::Records | Projection::Values);
        self.check = self.query.projection == Projection::Values;
        self.verified = true;
    }

    /// Returns the explanation, with a token to continue after the last answer.
    pub(super) fn finish(self, query: &Query, lookup: &Lookup<'_, S>) -> Explain {
        let mut explain = self.explain;
        if let (true, Some((value, sequence))) = (self.stopped, self.last) {
            let snapshot = lookup.options.is_snapshot.then(|| lookup.view.sequence());
            explain.next = Some(CursorToken { query: query.fingerprint(), snapshot, sequence, value });
        }
        explain
    }

    /// Runs the lookup on the cursor that `open` returns; opens it again for each further pass.
    pub(super) fn run<'c>(&mut self, open: impl Fn() -> Result<Box<dyn CandidateCursor + 'c>>) -> Result<()> {
        let cursor = open()?;
        let in_order = cursor.order() == Some(self.query.order) && !self.order_by_record;
        // A counting query needs no order.
        if in_order || self.query.projection == Projection::Count {
            self.explain.streamed = true;
            self.explain.passes = 1;
            self.stream(cursor)
        } else {
            self.collect(cursor, open)
        }
    }

    /// Whether the locations of the candidates are valid in the table of this lookup. A flush or a compaction between the
    /// two reads of the current version moves records.
    fn is_in_place(&self, cursor: &(dyn CandidateCursor + '_)) -> bool {
        cursor.components_id() == Some(self.table.components_id())
    }

    /// Passes candidates on in cursor order.
    fn stream(&mut self, mut cursor: Box<dyn CandidateCursor + '_>) -> Result<()> {
        let in_place = self.is_in_place(&*cursor);
        loop {
            let start = self.now();
            let candidate = cursor.next()?;
            self.explain.candidates_nanos += self.now() - start;
            let Some(candidate) = candidate else {
                self.resolve_window()?;
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
        let capacity = self.query.limit.saturating_mul(2).max(MIN_CAPACITY);
        let mut top = TopK::new(self.query.order, capacity, self.options.collect_bytes);
        // A limit per value includes the answers before the token.
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

    /// Reads all candidates once and resolves those that fit into memory. False if the query is complete.
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
        if !self.window.is_empty() {
            self.collect_window(top)?;
        }
        self.drain(top, 0)
    }

    /// Collects a candidate under its value.
    fn collect_one(&mut self, candidate: &Candidate<'_>, top: &mut TopK) -> Result<()> {
        let entry_check = self.covered.check(candidate.included);
        if entry_check == EntryCheck::Mismatch {
            self.explain.mismatched += 1;
            return Ok(());
        }
        if self.order_by_record || (entry_check == EntryCheck::Unknown && self.query.by_value()) {
            return self.collect_by_record(candidate, top);
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
        let before = (self.verified, self.check, self.fetch);
        if self.order_by_record {
            // The collected candidates were validated to read their order values; at most records remain to be fetched.
            let values = self.query.projection == Projection::Values;
            let records = self.query.projection == Projection::Records;
            (self.verified, self.check, self.fetch) = (true, values, records || values);
        }
        let more = top.drain(bound, |candidate| self.offer(candidate));
        let more = match more {
            Ok(true) => self.resolve_window(),
            other => other,
        };
        (self.verified, self.check, self.fetch) = before;
        more
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.options.clock.map_or(0, |clock| clock())
    }
}
