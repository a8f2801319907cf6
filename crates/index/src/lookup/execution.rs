//! The state of one lookup between two candidates: how candidates are resolved, and what was answered.

use std::collections::HashSet;

use bolide_base::{Result, SequenceNumber};

use crate::attribute::Value as Selected;
use crate::attribute_plan::AttributeValues;
use crate::candidate::Candidate;
use crate::compiled_query::{CompiledQuery, OrderValueBuffer};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::{Order, Projection};
use crate::query_memory::QueryMemory;
use crate::source::ReadSource;
use crate::top_k::TopK;
use crate::validation::Validator;

use super::access_path::AccessPath;
use super::covered::{CoveredAttributes, EntryCheck};
use super::per_value::PerValue;
use super::progress::AnswerProgress;
use super::window::CandidateWindow;
use super::{Lookup, LookupOptions, RecordRef};

/// Minimum capacity for candidates that are collected.
const MIN_CAPACITY: usize = 128;

/// How candidates are resolved, in the fields of the same names of [`Execution`].
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateChecks {
    verified: bool,
    check: bool,
    fetch: bool,
}

/// The state of one lookup.
pub(super) struct Execution<'r, S: ReadSource> {
    pub(super) query: &'r CompiledQuery<'r>,
    pub(super) table: &'r S::Tree,
    pub(super) extractor: Option<&'r dyn AttributeExtractor>,
    pub(super) validator: Option<&'r dyn Validator<S::Tree>>,
    /// The tree that the validator reads: the table, or a key index.
    pub(super) validation_tree: &'r S::Tree,
    pub(super) options: LookupOptions<'r>,
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
    /// Buffer for the order value of the current record.
    pub(super) order_value: OrderValueBuffer,
    /// The attributes that are read from index entries.
    pub(super) covered: CoveredAttributes<'r>,
    /// The cursor returns the order value of each candidate.
    pub(super) has_order_value: bool,
    pub(super) per_value: Option<PerValue>,
    /// The order value of the current candidate, if needed.
    pub(super) value: Vec<u8>,
    /// The selected values of the current answer.
    pub(super) selected: Vec<Vec<Selected>>,
    /// The parts of the record of the current answer.
    pub(super) parts: Vec<u8>,
    pub(super) progress: AnswerProgress,
    pub(super) explain: Explain,
    /// The memory of the window, with its records, and of the answered writes.
    pub(super) memory: QueryMemory<'r>,
}

impl<'r, S: ReadSource> Execution<'r, S> {
    #[inline]
    pub(super) fn new(
        lookup: &'r Lookup<'_, S>,
        query: &'r CompiledQuery<'r>,
        table: &'r S::Tree,
        validator: Option<&'r dyn Validator<S::Tree>>,
    ) -> Self {
        Self {
            query,
            table,
            extractor: lookup.extractor,
            validator,
            validation_tree: table,
            options: lookup.options,
            fetch: false,
            check: false,
            trusts_checked: false,
            order_by_record: false,
            verified: false,
            answered: HashSet::new(),
            values: AttributeValues::new(),
            order_value: OrderValueBuffer::default(),
            covered: CoveredAttributes::default(),
            has_order_value: true,
            per_value: query.needs_order_values().then(|| {
                // A counting query reads candidates in index order.
                let grouped = query.by_value() && query.projection != Projection::Count;
                PerValue::new(query.limit_per_value, grouped)
            }),
            value: Vec::new(),
            selected: Vec::new(),
            parts: Vec::new(),
            progress: AnswerProgress::new(query.limit),
            explain: Explain::default(),
            memory: QueryMemory::new(lookup.options.memory),
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
        if !driving.is_union() {
            self.covered = CoveredAttributes::new(query, &driving.access, spec);
        }
        self.has_order_value = !query.has_order_values() || driving.has_order_value();
        self.order_by_record = query.by_value() && !self.has_order_value;
        let by_key = |number: usize| {
            driving.access.covered.contains(&number)
                || filtering.iter().any(|path| path.access.covered.contains(&number))
        };
        let all = 0..query.parts();
        let uncovered = all.clone().any(|number| !by_key(number) && !driving.access.covers_predicate(number));
        self.fetch = uncovered
            || !self.has_order_value
            || match query.projection {
                Projection::Records => true,
                Projection::Values => !self.covered.selects(),
                Projection::Keys | Projection::Count | Projection::Parts => false,
            };
        self.check = recheck
            || !all.clone().all(by_key)
            || query.has_order_values()
            || query.projection == Projection::Values;
        self.trusts_checked = query.projection != Projection::Values
            && !driving.is_union()
            && all.clone().all(|number| driving.access.covered.contains(&number));
        self.explain.index = Some(spec.name().to_owned());
        self.explain.united = driving.united_indexes();
        self.explain.streams = driving.members() as u64;
        self.explain.intersected = filtering.iter().map(|path| path.index.spec().name().to_owned()).collect();
        self.explain.access = spec.kind().name();
    }

    /// Prepares for a scan, whose candidates are current and match.
    pub(super) fn use_scan(&mut self) {
        self.fetch = matches!(self.query.projection, Projection::Records | Projection::Values);
        self.check = self.query.projection == Projection::Values;
        self.verified = true;
    }

    /// Whether the answers are those of the candidates in the order of a cursor that returns them in `order`.
    pub(super) fn streams(&self, order: Option<Order>) -> bool {
        let in_order = order == Some(self.query.order) && !self.order_by_record;
        // A counting query needs no order.
        in_order || self.query.projection == Projection::Count
    }

    /// A collection of candidates for an order that the cursor does not return.
    pub(super) fn new_top(&self) -> TopK<'r> {
        let capacity = self.query.limit.saturating_mul(2).max(MIN_CAPACITY);
        let mut top = TopK::new(self.query.order, capacity, self.options.collect_bytes, self.new_memory());
        // A limit per value includes the answers before the token.
        if let (Some(token), None) = (self.query.after, &self.per_value) {
            top.start_after(&token.value, token.sequence);
        }
        top
    }

    fn new_memory(&self) -> QueryMemory<'r> {
        QueryMemory::new(self.options.memory)
    }

    /// Collects a candidate under its value.
    pub(super) fn collect_one(
        &mut self,
        candidate: &Candidate<'_>,
        window: &mut CandidateWindow<RecordRef<S>>,
        top: &mut TopK<'_>,
    ) -> Result<()> {
        let entry_check = self.covered.check(candidate.included);
        if entry_check == EntryCheck::Mismatch {
            self.explain.mismatched += 1;
            return Ok(());
        }
        if self.order_by_record || (entry_check == EntryCheck::Unknown && self.query.by_value()) {
            return self.collect_by_record(candidate, window, top);
        }
        let order_value = self.covered.order_value(candidate.included).unwrap_or(candidate.order_value);
        let included = if self.covered.is_used() { candidate.included } else { &[] };
        let mut origin = candidate.origin;
        if !self.fetch && !self.query.has_order_values() {
            origin.record = None;
        }
        top.push(&Candidate { order_value, included, origin, ..*candidate });
        Ok(())
    }

    /// Prepares for offering the collected candidates. Returns the settings for [`end_drain`](Self::end_drain).
    pub(super) fn begin_drain(&mut self) -> CandidateChecks {
        let before = CandidateChecks { verified: self.verified, check: self.check, fetch: self.fetch };
        if self.order_by_record {
            // The collected candidates were validated to read their order values; at most records remain to be fetched.
            let values = self.query.projection == Projection::Values;
            let records = self.query.projection == Projection::Records;
            (self.verified, self.check, self.fetch) = (true, values, records || values);
        }
        before
    }

    /// Restores the settings for candidates of the cursor.
    pub(super) fn end_drain(&mut self, before: CandidateChecks) {
        (self.verified, self.check, self.fetch) = (before.verified, before.check, before.fetch);
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.options.clock.map_or(0, |clock| clock())
    }
}
