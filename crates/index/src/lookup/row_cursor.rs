//! The pull cursor of a lookup: a state machine that reads candidates until the next row is known.
//!
//! ```text
//! Stream ───────────────────────────────┐ a full window, or the end: resolve, emit
//! Collect ──> Drain ──> Collect         ├──> rows
//!    ^          └─────> next pass ──┐   │
//!    └──────────────────────────────┘   │ limit reached, or no more candidates: End
//! ```
//!
//! * **Stream**: candidates come in the order of the query and are offered one by one.
//! * **Collect**: candidates are collected, and leave in a **drain**: at the end of a pass, or earlier as soon as no newer
//!   candidate can follow. If memory was exceeded, another pass over the index follows.
//!
//! Between two rows the cursor holds the candidate cursor, the collected candidates, and at most one window of resolved
//! candidates: memory does not depend on the number of rows, except for the writes that an index may return several times
//! and the counts of a limit per value.

use std::ops::ControlFlow;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber};

use crate::candidate::{Candidate, CandidateCursor};
use crate::explain::Explain;
use crate::query::Order;
use crate::source::{ReadSource, TreeSource};
use crate::top_k::TopK;

use super::execution::{CandidateChecks, Execution};
use super::planned::PlannedLookup;
use super::resolve::Offered;
use super::window::CandidateWindow;
use super::{RecordRef, Row, RowSource};

/// The rows of a query, in its order; made by [`PlannedLookup::rows`].
///
/// It may be dropped at any time. After an error it returns no further rows.
pub struct RowCursor<'p, S: ReadSource> {
    planned: &'p PlannedLookup<'p, S>,
    execution: Execution<'p, S>,
    /// Candidates that are resolved together.
    window: CandidateWindow<RecordRef<S>>,
    /// The candidates of this pass.
    candidates: Option<Box<dyn CandidateCursor + 'p>>,
    /// Whether the locations of the candidates are valid in the table of this lookup. A flush or a compaction between the
    /// two reads of the current version moves records.
    in_place: bool,
    /// The collected candidates, if their order is not that of the query.
    top: Option<TopK<'p>>,
    stage: RowStage,
    steps: InterruptionSteps,
}

#[derive(Debug, Clone, Copy)]
enum RowStage {
    Stream,
    /// `bound`: no newer candidate follows.
    Collect {
        bound: SequenceNumber,
    },
    Drain(Drain),
    /// The candidates are read; a last window may be left to emit.
    End,
}

/// A drain of collected candidates.
#[derive(Debug, Clone, Copy)]
struct Drain {
    /// The bound of the pass, which goes on after the drain; `None` at its end.
    bound: Option<SequenceNumber>,
    position: usize,
    /// The number of candidates that leave.
    count: usize,
    /// All of them were offered.
    offered: bool,
    checks: CandidateChecks,
}

/// A counting query has no rows; its count is [`Explain::answers`].
impl<S: ReadSource> RowSource for RowCursor<'_, S> {
    type Record = RecordRef<S>;

    #[inline]
    fn until<R>(
        &mut self,
        mut each: impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let next = self.advance(&mut each);
        if next.is_err() {
            self.end();
        }
        next
    }
}

impl<S: ReadSource> PlannedLookup<'_, S> {
    /// Starts the execution. Opens the index, and reads nothing of it yet.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; `NotFound` if an index was dropped.
    #[inline]
    pub fn rows(&self) -> Result<RowCursor<'_, S>> {
        let mut rows = RowCursor {
            planned: self,
            execution: self.execution(),
            window: CandidateWindow::new(),
            candidates: None,
            in_place: false,
            top: None,
            stage: RowStage::End,
            steps: InterruptionSteps::default(),
        };
        if self.has_candidates() {
            let order = rows.open_candidates()?;
            rows.execution.explain.candidate_order = order;
            if rows.execution.streams(order) {
                rows.execution.explain.streamed = true;
                rows.stage = RowStage::Stream;
            } else {
                rows.top = Some(rows.execution.new_top());
                rows.stage = RowStage::Collect { bound: SequenceNumber::MAX };
            }
        }
        Ok(rows)
    }
}

impl<S: ReadSource> RowCursor<'_, S> {
    /// The plan and its cost so far, with a token to continue after the last row, unless no further one exists.
    pub fn explain(&self) -> Explain {
        let mut explain = self.execution.explain.clone();
        self.complete_explain(&mut explain);
        explain
    }

    /// As [`explain`](Self::explain), at the end.
    pub fn finish(mut self) -> Explain {
        let mut explain = std::mem::take(&mut self.execution.explain);
        self.complete_explain(&mut explain);
        explain
    }

    fn complete_explain(&self, explain: &mut Explain) {
        if let Some(candidates) = &self.candidates {
            candidates.report(explain);
        }
        explain.answers = self.execution.progress.answers();
        explain.next = self.planned.token(&self.execution.progress);
    }

    fn advance<R>(
        &mut self,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        loop {
            if self.window.is_emitting()
                && let Some(result) = self.emit_window(each)?
            {
                return Ok(Some(result));
            }
            let result = match self.stage {
                RowStage::Stream => self.stream(each)?,
                RowStage::Collect { bound } => {
                    self.collect(bound)?;
                    None
                }
                RowStage::Drain(drain) if drain.offered => {
                    self.end_drain(drain)?;
                    None
                }
                RowStage::Drain(drain) => self.drain(drain, each)?,
                RowStage::End => {
                    if self.candidates.is_some() {
                        self.execution.progress.set_exhausted();
                        self.close_candidates();
                    }
                    return Ok(None);
                }
            };
            if result.is_some() {
                return Ok(result);
            }
        }
    }

    /// Emits the resolved window up to the row at which `each` breaks.
    #[inline]
    fn emit_window<R>(
        &mut self,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        while let Some((position, state)) = self.window.take_next() {
            let flags = self.window.candidates[position].flags;
            let candidate = self.window.candidate(position);
            let result = self.execution.emit_resolved(&candidate, flags, state, each)?;
            if self.execution.progress.is_complete() {
                self.end();
                return Ok(result);
            }
            if result.is_some() {
                return Ok(result);
            }
        }
        self.window.restart();
        Ok(None)
    }

    /// Offers candidates in the order of the cursor, up to the row at which `each` breaks or a full window.
    fn stream<R>(
        &mut self,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let Self { execution, candidates: Some(candidates), window, steps, .. } = self else {
            self.stage = RowStage::End;
            return Ok(None);
        };
        loop {
            steps.step()?;
            let start = execution.now();
            let candidate = candidates.next()?;
            execution.explain.candidates_nanos += execution.now() - start;
            let Some(candidate) = candidate else {
                self.stage = RowStage::End;
                if !window.is_empty() {
                    execution.resolve(window)?;
                }
                return Ok(None);
            };
            execution.explain.candidates += 1;
            let order_value = match execution.covered.order_value(candidate.included) {
                Some(value) => value,
                None => candidate.order_value,
            };
            let origin = if self.in_place { candidate.origin } else { candidate.origin.moved() };
            let candidate = Candidate { order_value, origin, ..candidate };
            let result = match execution.offer(&candidate, window, each)? {
                Offered::Break(result) => Some(result),
                Offered::Full => {
                    execution.resolve(window)?;
                    return Ok(None);
                }
                Offered::Continue => None,
            };
            if execution.progress.is_complete() {
                self.end();
                return Ok(result);
            }
            if result.is_some() {
                return Ok(result);
            }
        }
    }

    /// Collects candidates until enough of them cannot be preceded by others.
    fn collect(&mut self, mut bound: SequenceNumber) -> Result<()> {
        let Self { execution, candidates: Some(candidates), window, top: Some(top), steps, .. } = self else {
            self.stage = RowStage::End;
            return Ok(());
        };
        let order = execution.query.order;
        loop {
            steps.step()?;
            let start = execution.now();
            let candidate = candidates.next()?;
            execution.explain.candidates_nanos += execution.now() - start;
            let Some(mut candidate) = candidate else {
                break;
            };
            if !self.in_place {
                candidate.origin = candidate.origin.moved();
            }
            execution.explain.candidates += 1;
            execution.collect_one(&candidate, window, top)?;
            if order == Order::Newest && candidates.sequence_bound() < bound {
                bound = candidates.sequence_bound();
                if top.is_worth_draining(bound, execution.progress.wanted()) {
                    self.begin_drain(Some(bound));
                    return Ok(());
                }
            }
        }
        if !window.is_empty() {
            execution.collect_window(window, top)?;
        }
        self.begin_drain(None);
        Ok(())
    }

    /// Starts a drain of the candidates at or above `bound`, or of all.
    fn begin_drain(&mut self, bound: Option<SequenceNumber>) {
        let count = self.top.as_mut().map_or(0, |top| top.begin_drain(bound.unwrap_or(0)));
        let checks = self.execution.begin_drain();
        self.stage = RowStage::Drain(Drain { bound, position: 0, count, offered: false, checks });
    }

    /// Offers collected candidates in order, up to the row at which `each` breaks or a full window.
    fn drain<R>(
        &mut self,
        mut drain: Drain,
        each: &mut impl FnMut(Row<'_, RecordRef<S>>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let Self { execution, window, top: Some(top), steps, .. } = self else {
            self.stage = RowStage::End;
            return Ok(None);
        };
        while let Some(candidate) = top.candidate(drain.position).filter(|_| drain.position < drain.count) {
            drain.position += 1;
            steps.step()?;
            let result = match execution.offer(&candidate, window, each)? {
                Offered::Break(result) => Some(result),
                Offered::Full => {
                    self.stage = RowStage::Drain(drain);
                    execution.resolve(window)?;
                    return Ok(None);
                }
                Offered::Continue => None,
            };
            if execution.progress.is_complete() {
                self.end();
                return Ok(result);
            }
            if result.is_some() {
                self.stage = RowStage::Drain(drain);
                return Ok(result);
            }
        }
        top.end_drain(drain.count);
        if !window.is_empty() {
            execution.resolve(window)?;
        }
        self.stage = RowStage::Drain(Drain { offered: true, ..drain });
        Ok(None)
    }

    /// Continues after the last row of a drain: with the rest of the pass, or with another pass if candidates were dropped.
    fn end_drain(&mut self, drain: Drain) -> Result<()> {
        self.execution.end_drain(drain.checks);
        if let Some(bound) = drain.bound {
            self.stage = RowStage::Collect { bound };
            return Ok(());
        }
        match &mut self.top {
            Some(top) if top.dropped() => {
                top.restart();
                self.open_candidates()?;
                self.stage = RowStage::Collect { bound: SequenceNumber::MAX };
            }
            _ => self.stage = RowStage::End,
        }
        Ok(())
    }

    /// Starts a pass over the candidates; returns their order.
    fn open_candidates(&mut self) -> Result<Option<Order>> {
        self.close_candidates();
        let candidates = self.planned.candidates()?;
        let order = candidates.order();
        self.in_place = candidates.components_id() == Some(self.execution.table.components_id());
        self.candidates = Some(candidates);
        self.execution.explain.passes += 1;
        Ok(order)
    }

    /// Ends a pass: adds its costs to the explanation.
    fn close_candidates(&mut self) {
        if let Some(candidates) = self.candidates.take() {
            candidates.report(&mut self.execution.explain);
        }
    }

    /// Ends the rows before the candidates end, and frees memory.
    fn end(&mut self) {
        self.close_candidates();
        self.stage = RowStage::End;
        self.window = CandidateWindow::new();
        self.top = None;
    }
}
