//! Resolving candidates: validates, or fetches, a window of candidates at once, and emits them in order.
//!
//! A single lookup in the table causes a dozen consecutive cache misses. So candidates are collected in a window, and the
//! table is read for all of them together. A window is never larger than the number of answers still wanted, so it reads
//! nothing that a lookup without it would not read. Without a limit it grows up to 4,096 candidates. Its keys are sorted
//! before the lookup, so that neighbours share blocks, and the answers are emitted in the original order (Luo & Carey,
//! Efficient Data Ingestion and Query Processing for LSM-Based Storage Systems, §4.1).
//!
//! If the index returns records, nothing is fetched: the candidate is current if no newer run has its key (see
//! [`TreeSource::are_current`]).
//!
//! Memory: up to about 16 MiB of fetched records are buffered. If the window has more, the rest are fetched one by one as
//! they are emitted. [`fetch`](super::fetch) describes how records are fetched.

use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use bolide_lsm::store::FoundInRun;

use crate::candidate::{Candidate, CandidateOrigin};
use crate::record_check::{RecordCheck, check_record};
use crate::source::{ReadSource, TreeSource};
use crate::top_k::TopK;
use crate::validation::Verdict;

use super::covered::EntryCheck;
use super::execution::Execution;
use super::window::{CandidateFlags, CandidateState, CandidateWindow};
use super::{RecordRef, Row, RowRecord};

/// The outcome of offering a candidate.
pub(super) enum Offered<R> {
    /// It is an answer, and the receiver broke.
    Break(R),
    /// The window is full: it has to be resolved and emitted.
    Full,
    /// The next candidate may follow.
    Continue,
}

impl<R> From<Option<R>> for Offered<R> {
    #[inline]
    fn from(broken: Option<R>) -> Self {
        broken.map_or(Self::Continue, Self::Break)
    }
}

impl<S: ReadSource> Execution<'_, S> {
    /// Adds a candidate, in emission order, to the window; or resolves it at once if it needs none, and calls `each` if it is
    /// an answer.
    #[inline]
    pub(super) fn offer<R>(
        &mut self,
        candidate: &Candidate<'_>,
        window: &mut CandidateWindow<RecordRef<S>>,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Offered<R>> {
        if candidate.repeated && self.answered.contains(&candidate.sequence) {
            return Ok(Offered::Continue);
        }
        // Verified candidates need no check.
        let entry_check =
            if self.verified { EntryCheck::Match } else { self.covered.check(candidate.included) };
        if entry_check == EntryCheck::Mismatch {
            self.explain.mismatched += 1;
            return Ok(Offered::Continue);
        }
        let is_multi_valued = self.query.has_order_values()
            && self.counts_or_resumes()
            && !self.verified
            && (candidate.repeated || candidate.order_value.is_empty());
        let from_index = self.has_order_value && !is_multi_valued && entry_check == EntryCheck::Match;
        let flags = CandidateFlags {
            needs_record: self.fetch || entry_check == EntryCheck::Unknown || is_multi_valued,
            has_order_value: self.verified || from_index,
            is_multi_valued,
        };
        if flags.has_order_value && self.is_excluded(candidate.order_value, candidate.sequence) {
            return Ok(Offered::Continue);
        }
        if !self.uses_window() {
            return self.resolve_alone(candidate, flags, each).map(Offered::from);
        }
        if candidate.origin.validated && has_needed_record(candidate, flags) && window.is_empty() {
            return self.resolve_validated(candidate, flags, each).map(Offered::from);
        }
        window.push(candidate, flags);
        let is_full = window.candidates.len() >= window.size.min(self.progress.wanted());
        Ok(if is_full { Offered::Full } else { Offered::Continue })
    }

    /// Resolves a candidate outside of a window, and calls `each` if it is an answer.
    #[inline]
    fn resolve_alone<R>(
        &mut self,
        candidate: &Candidate<'_>,
        flags: CandidateFlags,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        if flags.needs_record {
            return self.emit_accepted(candidate, flags, CandidateState::Pending, each);
        }
        let current = self.verified || self.is_current(candidate)?;
        Ok(if current { self.emit_candidate(candidate, flags, None, each) } else { None })
    }

    /// Resolves a candidate that the index has validated except for range tombstones, and that needs no fetch. It does not
    /// have to wait for a window.
    fn resolve_validated<R>(
        &mut self,
        candidate: &Candidate<'_>,
        flags: CandidateFlags,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let state = match self.table.covered_by_range_tombstone(candidate.primary_key, candidate.sequence) {
            true => CandidateState::Obsolete,
            false if flags.needs_record => CandidateState::CurrentWithRecord,
            false => CandidateState::Current(None),
        };
        self.emit_accepted(candidate, flags, state, each)
    }

    /// Whether candidates need reads of the table, which a window combines.
    fn uses_window(&self) -> bool {
        self.fetch || !self.verified && self.validator.is_none_or(|validator| !validator.is_immediate())
    }

    /// Calls `each` with a candidate of a resolved window if it is an answer.
    #[inline]
    pub(super) fn emit_resolved<R>(
        &mut self,
        candidate: &Candidate<'_>,
        flags: CandidateFlags,
        state: CandidateState<RecordRef<S>>,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        // An earlier candidate of this window may have the same write, or reach the limit of its value.
        if candidate.repeated && self.answered.contains(&candidate.sequence)
            || flags.has_order_value && self.is_excluded(candidate.order_value, candidate.sequence)
        {
            return Ok(None);
        }
        self.emit_accepted(candidate, flags, state, each)
    }

    #[inline]
    fn emit_accepted<R>(
        &mut self,
        candidate: &Candidate<'_>,
        flags: CandidateFlags,
        state: CandidateState<RecordRef<S>>,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        match self.accept(candidate, flags, state)? {
            Some(record) => Ok(self.emit_candidate(candidate, flags, record, each)),
            None => Ok(None),
        }
    }

    /// Collects a candidate whose order value is in its record.
    pub(super) fn collect_by_record(
        &mut self,
        candidate: &Candidate<'_>,
        window: &mut CandidateWindow<RecordRef<S>>,
        top: &mut TopK<'_>,
    ) -> Result<()> {
        let flags = CandidateFlags { needs_record: true, has_order_value: false, is_multi_valued: false };
        window.push(candidate, flags);
        if window.candidates.len() >= window.size { self.collect_window(window, top) } else { Ok(()) }
    }

    /// Resolves the candidates of the window, and collects the matches with their order values.
    pub(super) fn collect_window(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        top: &mut TopK<'_>,
    ) -> Result<()> {
        self.resolve(window)?;
        while let Some((position, state)) = window.take_next() {
            let candidate = window.candidate(position);
            if let Some(record) = self.accept(&candidate, window.candidates[position].flags, state)? {
                // Several candidates of one write have the same rank and are collected once.
                top.push(&Candidate {
                    order_value: self.query.order_value(&self.values, &mut self.order_value),
                    repeated: false,
                    included: &[],
                    origin: CandidateOrigin { record: record.as_deref(), ..CandidateOrigin::default() },
                    ..candidate
                });
            }
        }
        window.restart();
        Ok(())
    }

    /// Validates or fetches all candidates of `window` together, and starts its emission.
    pub(super) fn resolve(&mut self, window: &mut CandidateWindow<RecordRef<S>>) -> Result<()> {
        let mut order = window.lookup_order();
        window.states.resize_with(order.len(), || CandidateState::Pending);
        self.resolve_located(window, &mut order)?;
        if self.fetch {
            self.fetch_window(window, order)?
        } else {
            self.validate_window(window, &order)?
        }
        window.start_emission();
        Ok(())
    }

    /// Validates the candidates that have a location in the table and need no fetch, and removes them from `order`.
    fn resolve_located(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        order: &mut Vec<usize>,
    ) -> Result<()> {
        let is_located = |position: usize| {
            let candidate = &window.candidates[position];
            (self.verified || candidate.validated || candidate.newer_runs.is_some())
                && (candidate.has_record || !candidate.flags.needs_record)
        };
        if !order.iter().any(|&position| is_located(position)) {
            return Ok(());
        }
        let (mut located, rest): (Vec<usize>, Vec<usize>) =
            order.drain(..).partition(|&position| is_located(position));
        *order = rest;
        if !self.verified {
            // The index has validated some of them except for range tombstones.
            located.retain(|&position| {
                let is_validated = window.candidates[position].validated;
                if is_validated {
                    let (key, sequence) = (window.key(position), window.candidates[position].sequence);
                    let is_deleted = self.table.covered_by_range_tombstone(key, sequence);
                    window.set_validated(position, !is_deleted);
                }
                !is_validated
            });
        }
        let mut current = Vec::with_capacity(located.len());
        if self.verified {
            current.resize(located.len(), true);
        } else {
            let start = self.now();
            let found = located.iter().map(|&position| FoundInRun {
                key: window.key(position),
                sequence: window.candidates[position].sequence,
                newer_runs: window.candidates[position].newer_runs.unwrap_or(u32::MAX),
            });
            let found: Vec<FoundInRun<'_>> = found.collect();
            self.explain.unknown += self.table.are_current(&found, &mut current)?;
            self.explain.validate_nanos += self.now() - start;
        }
        for (&position, current) in located.iter().zip(current) {
            window.set_validated(position, current);
        }
        Ok(())
    }

    fn validate_window(&mut self, window: &mut CandidateWindow<RecordRef<S>>, order: &[usize]) -> Result<()> {
        let start = self.now();
        // Candidates whose records are needed are validated by the fetch.
        let order: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&position| !window.candidates[position].flags.needs_record)
            .collect();
        let keys: Vec<&[u8]> = order.iter().map(|&position| window.key(position)).collect();
        let sequences: Vec<_> = order.iter().map(|&position| window.candidates[position].sequence).collect();
        let mut verdicts = Vec::with_capacity(order.len());
        match self.validator {
            Some(validator) => validator.verdicts(self.validation_tree, &keys, &sequences, &mut verdicts)?,
            None => verdicts.resize(order.len(), Verdict::Unknown),
        }
        self.validate_unknown(&keys, &sequences, &mut verdicts)?;
        for (&position, verdict) in order.iter().zip(verdicts) {
            let current = verdict == Verdict::Current;
            let state = if current { CandidateState::Current(None) } else { CandidateState::Obsolete };
            window.set_state(position, state);
        }
        self.explain.validate_nanos += self.now() - start;
        Ok(())
    }

    /// Validates by the table the candidates that the validator could not decide.
    fn validate_unknown(
        &mut self,
        keys: &[&[u8]],
        sequences: &[SequenceNumber],
        verdicts: &mut [Verdict],
    ) -> Result<()> {
        let unknown = || verdicts.iter().zip(keys).filter(|(verdict, _)| **verdict == Verdict::Unknown);
        let unknown_keys: Vec<&[u8]> = unknown().map(|(_, key)| *key).collect();
        if unknown_keys.is_empty() {
            return Ok(());
        }
        self.explain.unknown += unknown_keys.len() as u64;
        let mut newest = Vec::with_capacity(unknown_keys.len());
        self.table.newest_sequences(&unknown_keys, &mut newest)?;
        let unknown = verdicts.iter_mut().zip(sequences).filter(|(verdict, _)| **verdict == Verdict::Unknown);
        for ((verdict, &sequence), newest) in unknown.zip(newest) {
            *verdict = if newest == Some(sequence) { Verdict::Current } else { Verdict::Obsolete };
        }
        Ok(())
    }

    /// Counts a resolved candidate and checks its record. `None` if it is not an answer; else its record, if records are
    /// fetched.
    fn accept<'c>(
        &mut self,
        candidate: &Candidate<'c>,
        flags: CandidateFlags,
        state: CandidateState<RecordRef<S>>,
    ) -> Result<Option<Option<RowRecord<'c, RecordRef<S>>>>> {
        let record = match state {
            CandidateState::CurrentWithRecord => return self.accept_with_record(candidate, flags),
            CandidateState::Current(record) => record,
            CandidateState::Obsolete => {
                self.count(false);
                return Ok(None);
            }
            CandidateState::Pending => {
                let start = self.now();
                let found = self.table.get(candidate.primary_key)?;
                self.explain.fetch_nanos += self.now() - start;
                let Some((_, record)) = found.filter(|(newest, _)| *newest == candidate.sequence) else {
                    self.count(false);
                    return Ok(None);
                };
                Some(record)
            }
        };
        self.count(true);
        if let Some(record) = &record {
            self.explain.records_fetched += 1;
            self.explain.record_bytes += record.len() as u64;
            if self.check && !self.is_checked(candidate, flags) && !self.matches(record)? {
                self.explain.mismatched += 1;
                return Ok(None);
            }
        }
        Ok(Some(record.map(RowRecord::Fetched)))
    }

    /// As [`accept`](Self::accept), for a current candidate whose record the index returned.
    fn accept_with_record<'c>(
        &mut self,
        candidate: &Candidate<'c>,
        flags: CandidateFlags,
    ) -> Result<Option<Option<RowRecord<'c, RecordRef<S>>>>> {
        self.count(true);
        let record = candidate.origin.record.unwrap_or_default();
        self.explain.records_in_hand += 1;
        if self.check && !self.is_checked(candidate, flags) && !self.matches(record)? {
            self.explain.mismatched += 1;
            return Ok(None);
        }
        Ok(Some(Some(RowRecord::Borrowed(record))))
    }

    /// Whether the index has checked the record of a candidate, so that it needs no further check.
    fn is_checked(&self, candidate: &Candidate<'_>, flags: CandidateFlags) -> bool {
        candidate.origin.checked
            && self.trusts_checked
            && (flags.has_order_value || !self.query.has_order_values())
    }

    /// Emits a resolved candidate under its order value.
    #[inline]
    fn emit_candidate<R>(
        &mut self,
        candidate: &Candidate<'_>,
        flags: CandidateFlags,
        record: Option<RowRecord<'_, RecordRef<S>>>,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Option<R> {
        self.value.clear();
        if self.query.has_order_values() {
            let from_record = flags.needs_record && !flags.has_order_value;
            let value = if from_record {
                self.query.order_value(&self.values, &mut self.order_value)
            } else {
                candidate.order_value
            };
            self.value.extend_from_slice(value);
            // A write is emitted under one of its values; its candidates with other values are skipped.
            // Candidates without an order value are distinguished by sequence number alone.
            let may_differ =
                flags.is_multi_valued && self.query.by_value() && !candidate.order_value.is_empty();
            if may_differ && self.value != candidate.order_value {
                return None;
            }
        }
        if candidate.repeated {
            self.answered.insert(candidate.sequence);
        }
        self.emit_answer(candidate, record, each)
    }

    /// Validates a candidate alone, without its record.
    fn is_current(&mut self, candidate: &Candidate<'_>) -> Result<bool> {
        let (primary_key, sequence) = (candidate.primary_key, candidate.sequence);
        if candidate.origin.validated {
            let current = !self.table.covered_by_range_tombstone(primary_key, sequence);
            self.count(current);
            return Ok(current);
        }
        let start = self.now();
        let verdict = match self.validator {
            Some(validator) => validator.verdict(self.validation_tree, primary_key, sequence)?,
            None => Verdict::Unknown,
        };
        let current = match verdict {
            Verdict::Current => true,
            Verdict::Obsolete => false,
            Verdict::Unknown => {
                self.explain.unknown += 1;
                self.table.newest_sequence(primary_key)? == Some(sequence)
            }
        };
        self.count(current);
        self.explain.validate_nanos += self.now() - start;
        Ok(current)
    }

    /// Extracts the attributes of `record` and checks all predicates on them.
    fn matches(&mut self, record: &[u8]) -> Result<bool> {
        let Some(extractor) = self.extractor else {
            return Ok(true);
        };
        let start = self.now();
        let (query, values) = (self.query, &mut self.values);
        let check = check_record(extractor, record, query.plan(), values, |values| query.matches(values))?;
        self.explain.malformed += u64::from(check == RecordCheck::Malformed);
        self.explain.check_nanos += self.now() - start;
        Ok(check == RecordCheck::Match)
    }

    fn count(&mut self, current: bool) {
        // Verified candidates were counted before.
        if !self.verified {
            *(if current { &mut self.explain.current } else { &mut self.explain.obsolete }) += 1;
        }
    }
}

/// Whether the index returned the record of a candidate, if it is needed.
fn has_needed_record(candidate: &Candidate<'_>, flags: CandidateFlags) -> bool {
    candidate.origin.record.is_some() || !flags.needs_record
}
