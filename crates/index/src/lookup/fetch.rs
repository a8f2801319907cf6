//! Fetching the records of a window: by what is known of each, and by how many threads.
//!
//! * **By sequence number** (Perseid §4.4.1). Of each candidate the sequence number is known, so components that can hold
//!   neither its write nor a newer one are left out. Where the index knows the candidate to be current, and not
//!   only that it was written once, the record is looked for where that one write can lie and nowhere else.
//!   One that is not there is looked for as ever: whatever an index knows, the table has the last word.
//! * **By several threads** (Perseid §4.4.2), from a shared queue, as [`task_queue`](crate::fetch::task_queue) tells. Handing
//!   over costs some microseconds, and threads that look into one cache are in each other's way; so it takes
//!   [`shared_from`](crate::fetch::FetchOptions::shared_from) records, or a small part of that where the first of them had to be
//!   read from files.
//!
//! Either can be turned off; neither changes an answer. Fetching validates in the same step, so with several threads
//! validation is spread over them too.

use std::ops::ControlFlow;

use bolide_base::Result;
use bolide_lsm::store::KnownWrite;
use bolide_table::ReadCounters;

use super::run::Run;
use super::window::{Fate, Window};
use super::{Row, Value};
use crate::fetch::{FetchPool, Manner, held_bytes, task_queue};
use crate::source::{ReadSource, TreeSource};
use crate::validation::Verdict;

/// Records that one thread fetches at once.
const FETCHED_AT_ONCE: usize = 64;
/// Bytes of fetched records, with the blocks that they pin, that wait for their turn.
#[cfg(not(test))]
const HELD_BYTES: usize = 16 << 20;
/// So little that tests get there.
#[cfg(test)]
const HELD_BYTES: usize = 1 << 20;
/// Where records are read from files, so many times fewer are worth sharing.
const READING_FACTOR: usize = 128;

impl<S, F> Run<'_, S, F>
where
    S: ReadSource,
    F: FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
{
    /// Fetches the records of the candidates at `order`, which validates them.
    pub(super) fn fetch_window(&mut self, window: &mut Window<Value<S>>, order: Vec<usize>) -> Result<()> {
        let start = self.now();
        let mut held = 0;
        if self.options.fetch.by_sequence {
            self.explain.fetch.by_sequence = true;
            let (known, mut rest) = self.known_to_be_current(window, order)?;
            let missed = self.fetch_at(window, &known, Manner::Exact, &mut held)?;
            if !missed.is_empty() {
                self.explain.fetch.missed += missed.len() as u64;
                rest.extend(missed);
            }
            self.fetch_at(window, &rest, Manner::NotOlder, &mut held)?;
        } else {
            self.fetch_at(window, &order, Manner::ByKey, &mut held)?;
        }
        self.explain.fetch_nanos += self.now() - start;
        Ok(())
    }

    /// Tells the candidates that are known to be current from the others, and settles those that are known not to
    /// be: as far as that costs no I/O.
    fn known_to_be_current(
        &mut self,
        window: &mut Window<Value<S>>,
        order: Vec<usize>,
    ) -> Result<(Vec<usize>, Vec<usize>)> {
        let validator = self.validator.filter(|validator| validator.is_immediate());
        if validator.is_none() && !self.settled {
            return Ok((Vec::new(), order));
        }
        let (mut known, mut rest) = (Vec::with_capacity(order.len()), Vec::new());
        for position in order {
            let candidate = window.candidate(position);
            let (key, sequence) = (candidate.primary_key, candidate.sequence);
            let verdict = match validator {
                _ if self.settled => Verdict::Current,
                _ if candidate.origin.validated => match self.table.covered_by_range_tombstone(key, sequence)
                {
                    true => Verdict::Obsolete,
                    false => Verdict::Current,
                },
                Some(validator) => validator.verdict(self.asked, key, sequence)?,
                None => Verdict::Unknown,
            };
            match verdict {
                Verdict::Current => known.push(position),
                Verdict::Unknown => rest.push(position),
                Verdict::Obsolete => {
                    self.explain.fetch.spared += 1;
                    window.set_fate(position, Fate::Obsolete);
                }
            }
        }
        Ok((known, rest))
    }

    /// Fetches the records of the candidates at `positions` as far as they fit into memory; the others are left for
    /// their turn. Returns the positions of those that were not found, where that does not settle them.
    fn fetch_at(
        &mut self,
        window: &mut Window<Value<S>>,
        positions: &[usize],
        manner: Manner,
        held: &mut usize,
    ) -> Result<Vec<usize>> {
        let mut missed = Vec::new();
        let mut done = 0;
        let may_share = self.options.fetch.pool.is_some() && self.options.fetch.threads > 1;
        let from = self.options.fetch.shared_from.max(2);
        let mut is_reading = false;
        while done < positions.len() && *held <= HELD_BYTES {
            let left = positions.get(done..).unwrap_or_default();
            let enough = if is_reading { from.div_ceil(READING_FACTOR).max(2) } else { from };
            if let Some(pool) = self.options.fetch.pool.filter(|_| may_share && left.len() >= enough) {
                self.fetch_shared(pool, window, left, manner, held, &mut missed)?;
                break;
            }
            // Whether files are read, a few records tell.
            let probe = from.div_ceil(2 * READING_FACTOR);
            let may_turn_out = may_share && done == 0 && left.len() >= probe + from.div_ceil(READING_FACTOR);
            let count = if may_turn_out { probe } else { FETCHED_AT_ONCE };
            let some = left.get(..count.min(left.len())).unwrap_or_default();
            let before = ReadCounters::of_this_thread();
            let writes: Vec<KnownWrite<'_>> = some.iter().map(|&position| window.write(position)).collect();
            let mut found = Vec::with_capacity(writes.len());
            manner.fetch(self.table, &writes, &mut found)?;
            *held += held_bytes(&found);
            self.take_records(window, some, manner, found, &mut missed);
            let blocks_read = (ReadCounters::of_this_thread() - before).blocks_read;
            is_reading = 2 * blocks_read >= some.len() as u64;
            done += some.len();
        }
        Ok(missed)
    }

    /// Fetches the records at `positions` together with other threads.
    fn fetch_shared(
        &mut self,
        pool: &FetchPool,
        window: &mut Window<Value<S>>,
        positions: &[usize],
        manner: Manner,
        held: &mut usize,
        missed: &mut Vec<usize>,
    ) -> Result<()> {
        let writes: Vec<KnownWrite<'_>> = positions.iter().map(|&position| window.write(position)).collect();
        let threads = self.options.fetch.threads;
        let outcome =
            task_queue::fetch(pool, threads, self.table, manner, &writes, HELD_BYTES.saturating_sub(*held))?;
        *held += outcome.held;
        let costs = &mut self.explain.fetch;
        costs.threads = costs.threads.max(1 + outcome.helpers);
        costs.by_helpers += outcome.rows_by_helpers;
        for (first, found) in outcome.done {
            self.explain.fetch.shared += found.len() as u64;
            let of = positions.get(first..).unwrap_or_default();
            self.take_records(window, of, manner, found, missed);
        }
        Ok(())
    }

    /// Settles the candidates at `positions` by the records that were found for them.
    fn take_records(
        &mut self,
        window: &mut Window<Value<S>>,
        positions: &[usize],
        manner: Manner,
        found: Vec<Option<Value<S>>>,
        missed: &mut Vec<usize>,
    ) {
        for (&position, found) in positions.iter().zip(found) {
            self.explain.fetch.exact += u64::from(manner == Manner::Exact && found.is_some());
            match found {
                Some(record) => window.set_fate(position, Fate::Current(Some(record))),
                None if manner == Manner::Exact => missed.push(position),
                None => window.set_fate(position, Fate::Obsolete),
            }
        }
    }
}
