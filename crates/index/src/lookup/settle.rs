//! Settling candidates: a window of them is validated, or fetched, at once, and answered in order.
//!
//! A candidate that is settled alone waits for memory a dozen times, one after the other. So candidates are
//! collected in a window and the table is asked for all of them together. The window never is larger than the number
//! of answers that are still wanted: whatever it holds, a lookup without it would have settled as well.
//! Without a limit it grows up to 4,096 candidates; its keys are then sorted before they are looked
//! up, so that neighbours share blocks, and the answers are put back in order (Luo & Carey, Efficient Data
//! Ingestion and Query Processing for LSM-Based Storage Systems, §4.1).
//!
//! Where the index read the records themselves, nothing is fetched: what is newer than the place of the record decides
//! (see [`TreeSource::are_current`]), and the record is the one that came with the candidate.
//!
//! Memory: fetched records of at most about 16 MiB wait for their turn. Where that is not enough for the window,
//! the rest are fetched one by one when their turn comes. How records are fetched is told in [`fetch`](super::fetch).

use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use bolide_lsm::store::FoundInRun;

use crate::candidate::{Candidate, CandidateOrigin};
use crate::source::{ReadSource, TreeSource};
use crate::top_k::TopK;
use crate::validation::Verdict;

use super::covered::EntrySays;
use super::run::Run;
use super::window::{Fate, Turn, Window};
use super::{Row, RowRecord, Value};

impl<S, F> Run<'_, S, F>
where
    S: ReadSource,
    F: FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
{
    /// Takes a candidate, whose turn is after all before it, and emits what is settled. False when no more
    /// answers are wanted.
    pub(super) fn offer(&mut self, candidate: &Candidate<'_>) -> Result<bool> {
        if candidate.repeated && self.answered.contains(&candidate.sequence) {
            return Ok(true);
        }
        // What the table settled has nothing more to say.
        let says = if self.settled { EntrySays::Holds } else { self.covered.check(candidate.included) };
        if says == EntrySays::Fails {
            self.explain.mismatched += 1;
            return Ok(true);
        }
        // Whether the record has to say at which of its values the write stands.
        let several = self.query.order_predicate.is_some()
            && self.counts_or_resumes()
            && !self.settled
            && (candidate.repeated || candidate.order_value.is_empty());
        let turn = Turn {
            needs_record: self.fetch || says == EntrySays::Nothing || several,
            knows_value: self.settled || self.knows_value && !several && says == EntrySays::Holds,
            several,
        };
        if turn.knows_value && self.is_left_out(candidate.order_value, candidate.sequence) {
            return Ok(true);
        }
        if !self.asks_table() {
            return self.answer_alone(candidate, turn);
        }
        if candidate.origin.validated && is_whole(candidate, turn) && !self.window.waits() {
            return self.answer_validated(candidate, turn);
        }
        self.window.push(candidate, turn);
        let wanted = (self.query.limit as u64).saturating_sub(self.explain.answers);
        let full =
            self.window.candidates.len() >= self.window.size.min(wanted.try_into().unwrap_or(usize::MAX));
        if full { self.answer_window() } else { Ok(true) }
    }

    /// Settles and answers a candidate for which no other has to wait.
    fn answer_alone(&mut self, candidate: &Candidate<'_>, turn: Turn) -> Result<bool> {
        if turn.needs_record {
            return match self.accept(candidate, turn, Fate::Later)? {
                Some(record) => self.answer(candidate, turn, record),
                None => Ok(true),
            };
        }
        let current = self.settled || self.is_current(candidate)?;
        if current { self.answer(candidate, turn, None) } else { Ok(true) }
    }

    /// Answers a candidate that is known to be current but for deleted ranges, and of which nothing is wanted that did
    /// not come with it: no other has to wait for it.
    fn answer_validated(&mut self, candidate: &Candidate<'_>, turn: Turn) -> Result<bool> {
        let fate = match self.table.covered_by_range_tombstone(candidate.primary_key, candidate.sequence) {
            true => Fate::Obsolete,
            false if turn.needs_record => Fate::InHand,
            false => Fate::Current(None),
        };
        match self.accept(candidate, turn, fate)? {
            Some(record) => self.answer(candidate, turn, record),
            None => Ok(true),
        }
    }

    /// Whether candidates are worth waiting for each other.
    fn asks_table(&self) -> bool {
        self.fetch || !self.settled && self.validator.is_none_or(|validator| !validator.is_immediate())
    }

    /// Settles and answers the candidates that wait. False when no more answers are wanted.
    pub(super) fn answer_window(&mut self) -> Result<bool> {
        let mut window = std::mem::replace(&mut self.window, Window::new());
        self.settle(&mut window)?;
        let fates = std::mem::take(&mut window.fates);
        for (position, fate) in fates.into_iter().enumerate() {
            let turn = window.candidates[position].turn;
            let candidate = window.candidate(position);
            // It may have been answered from this very window, or its value had all its answers there.
            if candidate.repeated && self.answered.contains(&candidate.sequence)
                || turn.knows_value && self.is_left_out(candidate.order_value, candidate.sequence)
            {
                continue;
            }
            if let Some(record) = self.accept(&candidate, turn, fate)?
                && !self.answer(&candidate, turn, record)?
            {
                return Ok(false);
            }
        }
        window.restart();
        self.window = window;
        Ok(true)
    }

    /// Takes a candidate whose value for the order is in its record.
    pub(super) fn offer_by_record(&mut self, candidate: &Candidate<'_>, top: &mut TopK) -> Result<()> {
        let turn = Turn { needs_record: true, knows_value: false, several: false };
        self.window.push(candidate, turn);
        if self.window.candidates.len() >= self.window.size { self.collect_window(top) } else { Ok(()) }
    }

    /// Settles the candidates that wait, and collects those that match, each with its value.
    pub(super) fn collect_window(&mut self, top: &mut TopK) -> Result<()> {
        let mut window = std::mem::replace(&mut self.window, Window::new());
        self.settle(&mut window)?;
        let fates = std::mem::take(&mut window.fates);
        for (position, fate) in fates.into_iter().enumerate() {
            let candidate = window.candidate(position);
            if let Some(record) = self.accept(&candidate, window.candidates[position].turn, fate)? {
                // Several candidates of one write have one rank, so they count once.
                top.push(&Candidate {
                    order_value: self.query.order_value(&self.values, &mut self.distance),
                    repeated: false,
                    included: &[],
                    origin: CandidateOrigin { record: record.as_deref(), ..CandidateOrigin::default() },
                    ..candidate
                });
            }
        }
        window.restart();
        self.window = window;
        Ok(())
    }

    /// Asks the table for all candidates of `window`.
    fn settle(&mut self, window: &mut Window<Value<S>>) -> Result<()> {
        let mut order = window.lookup_order();
        window.fates.resize_with(order.len(), || Fate::Later);
        self.settle_in_place(window, &mut order)?;
        if self.fetch { self.fetch_window(window, order) } else { self.validate_window(window, &order) }
    }

    /// Settles the candidates that the index found in the table itself, as far as that is enough, and takes
    /// them out of `order`.
    fn settle_in_place(&mut self, window: &mut Window<Value<S>>, order: &mut Vec<usize>) -> Result<()> {
        let is_enough = |position: usize| {
            let waiting = &window.candidates[position];
            (self.settled || waiting.validated || waiting.newer_runs.is_some())
                && (waiting.has_record || !waiting.turn.needs_record)
        };
        if !order.iter().any(|&position| is_enough(position)) {
            return Ok(());
        }
        let (mut in_place, rest): (Vec<usize>, Vec<usize>) =
            order.drain(..).partition(|&position| is_enough(position));
        *order = rest;
        if !self.settled {
            // What is newer than these was looked at already.
            in_place.retain(|&position| {
                let is_known = window.candidates[position].validated;
                if is_known {
                    let (key, sequence) = (window.key(position), window.candidates[position].sequence);
                    let is_deleted = self.table.covered_by_range_tombstone(key, sequence);
                    window.settle_in_hand(position, !is_deleted);
                }
                !is_known
            });
        }
        let mut current = Vec::with_capacity(in_place.len());
        if self.settled {
            current.resize(in_place.len(), true);
        } else {
            let start = self.now();
            let found = in_place.iter().map(|&position| FoundInRun {
                key: window.key(position),
                sequence: window.candidates[position].sequence,
                newer_runs: window.candidates[position].newer_runs.unwrap_or(u32::MAX),
            });
            let found: Vec<FoundInRun<'_>> = found.collect();
            self.explain.unknown += self.table.are_current(&found, &mut current)?;
            self.explain.validate_nanos += self.now() - start;
        }
        for (&position, current) in in_place.iter().zip(current) {
            window.settle_in_hand(position, current);
        }
        Ok(())
    }

    fn validate_window(&mut self, window: &mut Window<Value<S>>, order: &[usize]) -> Result<()> {
        let start = self.now();
        // Those whose records are needed are settled by these, when their turn comes.
        let order: Vec<usize> =
            order.iter().copied().filter(|&position| !window.candidates[position].turn.needs_record).collect();
        let keys: Vec<&[u8]> = order.iter().map(|&position| window.key(position)).collect();
        let sequences: Vec<_> = order.iter().map(|&position| window.candidates[position].sequence).collect();
        let mut verdicts = Vec::with_capacity(order.len());
        match self.validator {
            Some(validator) => validator.verdicts(self.asked, &keys, &sequences, &mut verdicts)?,
            None => verdicts.resize(order.len(), Verdict::Unknown),
        }
        self.validate_unknown(&keys, &sequences, &mut verdicts)?;
        for (&position, verdict) in order.iter().zip(verdicts) {
            let current = verdict == Verdict::Current;
            window.set_fate(position, if current { Fate::Current(None) } else { Fate::Obsolete });
        }
        self.explain.validate_nanos += self.now() - start;
        Ok(())
    }

    /// Has the table decide where the validator could not.
    fn validate_unknown(
        &mut self,
        keys: &[&[u8]],
        sequences: &[SequenceNumber],
        verdicts: &mut [Verdict],
    ) -> Result<()> {
        let unknown = || verdicts.iter().zip(keys).filter(|(verdict, _)| **verdict == Verdict::Unknown);
        let asked: Vec<&[u8]> = unknown().map(|(_, key)| *key).collect();
        if asked.is_empty() {
            return Ok(());
        }
        self.explain.unknown += asked.len() as u64;
        let mut newest = Vec::with_capacity(asked.len());
        self.table.newest_sequences(&asked, &mut newest)?;
        let places = verdicts.iter_mut().zip(sequences).filter(|(verdict, _)| **verdict == Verdict::Unknown);
        for ((verdict, &sequence), newest) in places.zip(newest) {
            *verdict = if newest == Some(sequence) { Verdict::Current } else { Verdict::Obsolete };
        }
        Ok(())
    }

    /// Counts a settled candidate and checks its record. `None` where it is no answer; else its record, if
    /// records are fetched.
    fn accept<'c>(
        &mut self,
        candidate: &Candidate<'c>,
        turn: Turn,
        fate: Fate<Value<S>>,
    ) -> Result<Option<Option<RowRecord<'c, Value<S>>>>> {
        let record = match fate {
            Fate::InHand => return self.accept_in_hand(candidate, turn),
            Fate::Current(record) => record,
            Fate::Obsolete => {
                self.count(false);
                return Ok(None);
            }
            Fate::Later => {
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
            if self.check && !self.is_checked(candidate, turn) && !self.matches(record)? {
                self.explain.mismatched += 1;
                return Ok(None);
            }
        }
        Ok(Some(record.map(RowRecord::Fetched)))
    }

    /// As [`accept`](Self::accept), for a current candidate that came with its record.
    fn accept_in_hand<'c>(
        &mut self,
        candidate: &Candidate<'c>,
        turn: Turn,
    ) -> Result<Option<Option<RowRecord<'c, Value<S>>>>> {
        self.count(true);
        let record = candidate.origin.record.unwrap_or_default();
        self.explain.records_in_hand += 1;
        if self.check && !self.is_checked(candidate, turn) && !self.matches(record)? {
            self.explain.mismatched += 1;
            return Ok(None);
        }
        Ok(Some(Some(RowRecord::Lent(record))))
    }

    /// Whether nothing is left to be seen in the record of a candidate, since the index looked into it.
    fn is_checked(&self, candidate: &Candidate<'_>, turn: Turn) -> bool {
        candidate.origin.checked
            && self.trusts_checked
            && (turn.knows_value || self.query.order_predicate.is_none())
    }

    /// Gives a settled candidate under its value. False when no more answers are wanted.
    fn answer(
        &mut self,
        candidate: &Candidate<'_>,
        turn: Turn,
        record: Option<RowRecord<'_, Value<S>>>,
    ) -> Result<bool> {
        self.value.clear();
        if self.query.order_predicate.is_some() {
            let from_record = turn.needs_record && !turn.knows_value;
            let value = if from_record {
                self.query.order_value(&self.values, &mut self.distance)
            } else {
                candidate.order_value
            };
            self.value.extend_from_slice(value);
            // A write stands at one of its values; under the others it is passed over.
            // A candidate without a value is told apart by its number alone.
            let elsewhere = turn.several && self.query.by_value() && !candidate.order_value.is_empty();
            if elsewhere && self.value != candidate.order_value {
                return Ok(true);
            }
        }
        if candidate.repeated {
            self.answered.insert(candidate.sequence);
        }
        self.give(candidate, record)
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
            Some(validator) => validator.verdict(self.asked, primary_key, sequence)?,
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
        let is_read = extractor.extract_stored(record, self.query.plan(), &mut self.values)?;
        self.explain.malformed += u64::from(!is_read);
        let matches = is_read && self.query.matches(&self.values);
        self.explain.check_nanos += self.now() - start;
        Ok(matches)
    }

    fn count(&mut self, current: bool) {
        // What was settled before is not counted again.
        if !self.settled {
            *(if current { &mut self.explain.current } else { &mut self.explain.obsolete }) += 1;
        }
    }
}

/// Whether a candidate came with its record, if that is wanted.
fn is_whole(candidate: &Candidate<'_>, turn: Turn) -> bool {
    candidate.origin.record.is_some() || !turn.needs_record
}
