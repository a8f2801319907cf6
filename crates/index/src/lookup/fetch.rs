//! Fetching the records of a window.
//!
//! * **By sequence number** (Perseid §4.4.1). The sequence number of each candidate is known, so components that can contain
//!   neither its write nor a newer one are skipped. If the index knows that the candidate is current, the record is
//!   searched only in the components that can contain this write. If it is not found there, it is searched by key: the
//!   table decides, not the index.
//! * **By several threads** (Perseid §4.4.2) with a shared [`task_queue`](crate::fetch::task_queue). The handover costs some
//!   microseconds, and threads contend for the cache. So it is used from
//!   [`shared_from`](crate::fetch::FetchOptions::shared_from) records on, or from a small fraction of that if the first records
//!   were read from files.
//!
//! Both can be turned off, and neither changes an answer. A fetch validates too, so several threads also share the
//! validation.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::store::KnownWrite;
use bolide_memory::MemoryBudget;
use bolide_table::ReadCounters;

use super::RecordRef;
use super::execution::Execution;
use super::window::{CandidateState, CandidateWindow};
use crate::fetch::{FetchMode, FetchPool, pinned_bytes, task_queue};
use crate::source::{ReadSource, TreeSource};
use crate::validation::Verdict;

/// Records that one thread fetches at once.
const FETCH_CHUNK: usize = 64;
/// Maximum bytes of buffered records, with the blocks that they pin.
#[cfg(not(test))]
const MAX_PINNED_BYTES: usize = 16 << 20;
/// Small enough to be reached in tests.
#[cfg(test)]
const MAX_PINNED_BYTES: usize = 1 << 20;
/// A query buffers at most this part (1/`BUDGET_DIVISOR`) of the memory budget.
const BUDGET_DIVISOR: u64 = 16;
/// Approximate bytes of an answered write that may be found again.
const ANSWERED_BYTES: usize = size_of::<SequenceNumber>() + 1;
/// If records are read from files, the threshold for several threads is divided by this.
const IO_FACTOR: usize = 128;

impl<S: ReadSource> Execution<'_, S> {
    /// Fetches the records of the candidates at `order`, which validates them.
    pub(super) fn fetch_window(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        order: Vec<usize>,
    ) -> Result<()> {
        let start = self.now();
        let mut pinned = 0;
        if self.options.fetch.by_sequence {
            self.explain.fetch.by_sequence = true;
            let (current, mut rest) = self.validate_in_memory(window, order)?;
            let missed = self.fetch_at(window, &current, FetchMode::Exact, &mut pinned)?;
            if !missed.is_empty() {
                self.explain.fetch.missed += missed.len() as u64;
                rest.extend(missed);
            }
            self.fetch_at(window, &rest, FetchMode::NotOlder, &mut pinned)?;
        } else {
            self.fetch_at(window, &order, FetchMode::ByKey, &mut pinned)?;
        }
        self.memory.set(pinned + window.memory_bytes() + self.answered.capacity() * ANSWERED_BYTES);
        self.explain.fetch_nanos += self.now() - start;
        Ok(())
    }

    /// The bytes of records that are buffered at most: a small part of a small budget.
    fn max_pinned_bytes(&self) -> usize {
        let share = |budget: &Arc<MemoryBudget>| budget.limit_bytes() / BUDGET_DIVISOR;
        let share = self.options.memory.map_or(u64::MAX, share);
        usize::try_from(share).unwrap_or(usize::MAX).min(MAX_PINNED_BYTES)
    }

    /// Validates candidates as far as that needs no I/O, and sets the state of the obsolete ones. Returns the positions of
    /// the current and of the undecided ones.
    fn validate_in_memory(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        order: Vec<usize>,
    ) -> Result<(Vec<usize>, Vec<usize>)> {
        let validator = self.validator.filter(|validator| validator.is_immediate());
        if validator.is_none() && !self.verified {
            return Ok((Vec::new(), order));
        }
        let (mut current, mut rest) = (Vec::with_capacity(order.len()), Vec::new());
        for position in order {
            let candidate = window.candidate(position);
            let (key, sequence) = (candidate.primary_key, candidate.sequence);
            let verdict = match validator {
                _ if self.verified => Verdict::Current,
                _ if candidate.origin.validated => match self.table.covered_by_range_tombstone(key, sequence)
                {
                    true => Verdict::Obsolete,
                    false => Verdict::Current,
                },
                Some(validator) => validator.verdict(self.validation_tree, key, sequence)?,
                None => Verdict::Unknown,
            };
            match verdict {
                Verdict::Current => current.push(position),
                Verdict::Unknown => rest.push(position),
                Verdict::Obsolete => {
                    self.explain.fetch.spared += 1;
                    window.set_state(position, CandidateState::Obsolete);
                }
            }
        }
        Ok((current, rest))
    }

    /// Fetches the records of the candidates at `positions` until the memory bound is reached; the rest stay pending.
    /// Returns the positions of those that [`FetchMode::Exact`] did not find, which are still undecided.
    fn fetch_at(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        positions: &[usize],
        mode: FetchMode,
        pinned: &mut usize,
    ) -> Result<Vec<usize>> {
        let mut missed = Vec::new();
        let mut done = 0;
        let may_share = self.options.fetch.pool.is_some() && self.options.fetch.threads > 1;
        let from = self.options.fetch.shared_from.max(2);
        let mut is_reading = false;
        let max_pinned = self.max_pinned_bytes();
        while done < positions.len() && *pinned <= max_pinned {
            let rest = positions.get(done..).unwrap_or_default();
            let threshold = if is_reading { from.div_ceil(IO_FACTOR).max(2) } else { from };
            if let Some(pool) = self.options.fetch.pool.filter(|_| may_share && rest.len() >= threshold) {
                self.fetch_shared(pool, window, rest, mode, pinned, &mut missed)?;
                break;
            }
            // A first fetch of a few records detects whether files are read.
            let probe = from.div_ceil(2 * IO_FACTOR);
            let probes = may_share && done == 0 && rest.len() >= probe + from.div_ceil(IO_FACTOR);
            let count = if probes { probe } else { FETCH_CHUNK };
            let chunk = rest.get(..count.min(rest.len())).unwrap_or_default();
            let before = ReadCounters::of_this_thread();
            let writes: Vec<KnownWrite<'_>> = chunk.iter().map(|&position| window.write(position)).collect();
            let mut found = Vec::with_capacity(writes.len());
            mode.fetch(self.table, &writes, &mut found)?;
            *pinned += pinned_bytes(&found);
            self.apply_fetched(window, chunk, mode, found, &mut missed);
            let blocks_read = (ReadCounters::of_this_thread() - before).blocks_read;
            is_reading = 2 * blocks_read >= chunk.len() as u64;
            done += chunk.len();
        }
        Ok(missed)
    }

    /// Fetches the records of the candidates at `positions` by several threads.
    fn fetch_shared(
        &mut self,
        pool: &FetchPool,
        window: &mut CandidateWindow<RecordRef<S>>,
        positions: &[usize],
        mode: FetchMode,
        pinned: &mut usize,
        missed: &mut Vec<usize>,
    ) -> Result<()> {
        let writes: Vec<KnownWrite<'_>> = positions.iter().map(|&position| window.write(position)).collect();
        let threads = self.options.fetch.threads;
        let max_pinned = self.max_pinned_bytes().saturating_sub(*pinned);
        let outcome = task_queue::fetch(pool, threads, self.table, mode, &writes, max_pinned)?;
        *pinned += outcome.pinned_bytes;
        let costs = &mut self.explain.fetch;
        costs.threads = costs.threads.max(1 + outcome.helpers);
        costs.by_helpers += outcome.rows_by_helpers;
        for (first, found) in outcome.done {
            self.explain.fetch.shared += found.len() as u64;
            let positions = positions.get(first..).unwrap_or_default();
            self.apply_fetched(window, positions, mode, found, missed);
        }
        Ok(())
    }

    /// Sets the states of the candidates at `positions` by their fetched records.
    fn apply_fetched(
        &mut self,
        window: &mut CandidateWindow<RecordRef<S>>,
        positions: &[usize],
        mode: FetchMode,
        found: Vec<Option<RecordRef<S>>>,
        missed: &mut Vec<usize>,
    ) {
        for (&position, found) in positions.iter().zip(found) {
            self.explain.fetch.exact += u64::from(mode == FetchMode::Exact && found.is_some());
            match found {
                Some(record) => window.set_state(position, CandidateState::Current(Some(record))),
                None if mode == FetchMode::Exact => missed.push(position),
                None => window.set_state(position, CandidateState::Obsolete),
            }
        }
    }
}
