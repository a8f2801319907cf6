//! The search for a place in the sorted view.
//!
//! One binary search over the anchors finds the segment, a second one the entry in it (REMIX §3.2). The second
//! reads keys of several runs. It takes the middle entry of what is left; but then, before it goes to another run,
//! it compares with all that the block in hand can tell: with the entries of the same run that the segment has in
//! this block too. So a block is entered at most once, and where neighbours lie in one run the first block decides.
//!
//! Where blocks lie all over memory, each comparison waits for two trips there, one after the other. So the entries
//! of the next three steps are asked for together, whichever of them will be taken, and the search goes to those.

use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_table::{Difference, PinnedBlock};

use super::forks::{FAR, NO_FORK, Side, Window, behind, front, side};
use super::run::{Position, ViewRun};
use super::segments::Segment;
use super::selectors::{RUN_BITS, below, mask_of_run, nth_bit};
use super::{Remix, contradiction};

/// A place in the view: an entry of a segment. Behind the last entry: the number of segments, and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) segment: usize,
    pub(super) index: usize,
}

/// The entry that the forks of a segment lead to, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) place: Place,
    pub(super) run: usize,
    pub(super) at: Position,
}

/// How a key lies beside the entries at the place that was found for it, where forks tell that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// It is the key of the entry there, which has this sequence number.
    Same(SequenceNumber),
    /// It is not, and parts from the key of the entry there in this bit first.
    Before(u32),
    /// It is not, and parts from the key of the entry in front of the place in this bit first.
    After(u32),
    /// They do not tell.
    Unknown,
}

/// Compares with entries of a block.
pub(super) trait Probe {
    /// What `ask` answers of the block of the entry at `at` of run number `run`; `Corruption` where it answers nothing.
    fn of_block<T>(
        &mut self,
        run: usize,
        at: Position,
        ask: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T>;

    /// How the key of the entry at `at` of run number `run` compares with `key`.
    #[inline]
    fn difference(&mut self, run: usize, at: Position, key: &[u8]) -> Result<Difference> {
        self.of_block(run, at, |block| block.difference(at.entry as usize, key))
    }

    /// Of the entries from number `low` to before `high` of block number `block` of run number `run`, the first at
    /// or after `(key, sequence)`; `high` if there is none.
    #[inline]
    fn lower_bound(
        &mut self,
        run: usize,
        block: u32,
        range: std::ops::Range<usize>,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<usize> {
        let at = Position { block, entry: range.start as u32 };
        self.of_block(run, at, |block| block.lower_bound_between(range.start, range.end, key, sequence))
    }
}

impl Segment<'_> {
    /// The run that entry number `index` is in; 63 where there is no entry.
    #[inline]
    pub(super) fn run(&self, index: usize) -> usize {
        self.selectors().get(index).map_or(RUN_BITS.into(), |selector| usize::from(selector & RUN_BITS))
    }

    /// Where the first entry of run number `run` at or behind entry number `index` is.
    #[inline]
    pub(super) fn position(&self, runs: &ViewRun, run: usize, index: usize) -> Position {
        let before = (mask_of_run(self.selectors(), run as u8) & below(index)).count_ones();
        let (first, count) = self.offset(run);
        runs.advance(first, count + before)
    }
}

impl Remix {
    /// The first entry of `runs`, which this is the REMIX of, at or after `(key, sequence)`, and the entry that the forks have
    /// led to, if there are any.
    #[inline]
    pub(super) fn locate(
        &self,
        runs: &[Arc<ViewRun>],
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(Place, Option<Leaf>)> {
        let through = self.anchors.count_through(key, sequence);
        let Some(number) = through.checked_sub(1) else {
            return Ok((Place { segment: 0, index: 0 }, None));
        };
        self.segments.prefetch(number);
        let segment = self.segments.get(number);
        match segment.forks() {
            Some((forks, base)) => {
                let index = Window::new(key, base).candidate(forks, segment.entries());
                let run = segment.run(index);
                let source = runs.get(run).ok_or_else(contradiction)?;
                // Both are read soon, the second for what the first says.
                let near = segment.offset(run).0.block;
                source.prefetch_count(near);
                source.prefetch_hint(near);
                let at = segment.position(source, run, index);
                let leaf = Leaf { place: Place { segment: number, index }, run, at };
                Ok((self.locate_beside(leaf, runs, key, sequence, probe)?.0, Some(leaf)))
            }
            None => {
                let index = segment.search(runs, 0..segment.entries(), key, sequence, probe)?;
                Ok((self.place(number, index), None))
            }
        }
    }

    /// The second half of [`locate`](Self::locate), where the forks of a segment have led to `leaf`; and how the key lies beside what is
    /// there.
    #[inline]
    pub(super) fn locate_beside(
        &self,
        leaf: Leaf,
        runs: &[Arc<ViewRun>],
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(Place, Beside)> {
        let number = leaf.place.segment;
        let (index, beside) = self.segments.get(number).search_forks(runs, leaf, key, sequence, probe)?;
        Ok((self.place(number, index), beside))
    }

    /// Entry number `index` of a segment; the first of the next one where that is behind its last.
    #[inline]
    fn place(&self, segment: usize, index: usize) -> Place {
        if index < self.segments.get(segment).entries() {
            Place { segment, index }
        } else {
            Place { segment: segment + 1, index: 0 }
        }
    }
}

impl Segment<'_> {
    /// As [`search`](Self::search) among all entries, by their forks, which have led to `leaf`; and how the key lies beside what is
    /// found.
    #[inline]
    fn search_forks(
        self,
        runs: &[Arc<ViewRun>],
        Leaf { place, run, at }: Leaf,
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(usize, Beside)> {
        let (forks, base) = self.forks().ok_or_else(contradiction)?;
        let (entries, leaf) = (self.entries(), place.index);
        let difference = probe.difference(run, at, key)?;
        let bit = difference.bit.unwrap_or(NO_FORK);
        match side(base, difference.bit) {
            Side::At(side) if difference.order.is_lt() => {
                Ok((behind(forks, entries, leaf, side), Beside::After(bit)))
            }
            Side::At(side) => Ok((front(forks, leaf, side), Beside::Before(bit))),
            Side::Far => {
                if let Some(trailer) = difference.trailer
                    && trailer.sequence() <= sequence
                {
                    return Ok((leaf, Beside::Same(trailer.sequence())));
                }
                if difference.order.is_gt() {
                    return Ok((leaf, Beside::Unknown));
                }
                let range = leaf + 1..behind(forks, entries, leaf, FAR);
                Ok((self.search(runs, range, key, sequence, probe)?, Beside::Unknown))
            }
        }
    }

    /// The first entry of a range at or after `(key, sequence)`; the end of the range if there is none.
    pub(super) fn search(
        self,
        runs: &[Arc<ViewRun>],
        range: std::ops::Range<usize>,
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<usize> {
        let selectors = self.selectors();
        let (mut low, mut high) = (range.start, range.end);
        let mut asked_for = 0;
        while low < high {
            if asked_for & below(high) & !below(low) == 0 {
                asked_for = self.prefetch_for(runs, low, high);
            }
            let middle = nearest(asked_for & below(high) & !below(low), low.midpoint(high));
            let number = self.run(middle);
            let run = runs.get(number).ok_or_else(contradiction)?;
            let mask = mask_of_run(selectors, number as u8);
            let rank = |index: usize| (mask & below(index)).count_ones();
            // Entries of the run are counted from its first in the segment.
            let middle_rank = rank(middle);
            let (offset, counted) = self.offset(number);
            let at = run.advance(offset, counted + middle_rank);
            let count = run.count(at.block);
            if at.entry >= count {
                return Err(run.damaged(at.block));
            }
            let first = rank(low).max(middle_rank.saturating_sub(at.entry));
            let end = rank(high).min(middle_rank + (count - at.entry));
            let in_block = |rank: u32| (at.entry + rank - middle_rank) as usize;
            let start = in_block(first);
            let found = probe.lower_bound(number, at.block, start..in_block(end), key, sequence)?;
            let found = first + (found - start) as u32;
            // An entry of the run is in front of the place, the next one is not.
            if found > first {
                low = nth_bit(mask, found - 1) + 1;
            }
            if found < end {
                high = nth_bit(mask, found);
            }
        }
        Ok(low)
    }
}

impl Segment<'_> {
    /// Asks the processor for the entries, from `low` to before `high`, that the next three steps of a binary search
    /// may compare with; answers a bit for each.
    #[inline]
    fn prefetch_for(&self, runs: &[Arc<ViewRun>], low: usize, high: usize) -> u64 {
        let step = (high - low).div_ceil(ASKED_AT_ONCE + 1).max(1);
        let first = if high - low <= ASKED_AT_ONCE { low } else { low + step };
        let mut asked_for = 0;
        let mut last = None;
        for index in (first..high).step_by(step).take(ASKED_AT_ONCE) {
            asked_for |= 1 << index;
            let number = self.run(index);
            if let Some(run) = runs.get(number) {
                let at = self.position(run, number, index);
                // Neighbours in one block are asked for once.
                if last != Some((number, at.block)) {
                    last = Some((number, at.block));
                    run.prefetch_listed(at);
                }
            }
        }
        asked_for
    }
}

/// Entries that are asked for at once: those of three steps of a binary search.
const ASKED_AT_ONCE: usize = 7;

/// The number of the bit set in `mask` that is nearest to `middle`; `middle` if none is.
#[inline]
fn nearest(mask: u64, middle: usize) -> usize {
    let (above, under) = (mask & !below(middle), mask & below(middle));
    match (above, under) {
        (0, 0) => middle,
        (_, 0) => above.trailing_zeros() as usize,
        (0, _) => under.ilog2() as usize,
        (_, _) => {
            let (next, before) = (above.trailing_zeros() as usize, under.ilog2() as usize);
            if next - middle < middle - before { next } else { before }
        }
    }
}

#[cold]
fn damaged(runs: &[Arc<ViewRun>], run: usize, block: u32) -> Error {
    runs.get(run).map_or_else(contradiction, |run| run.damaged(block))
}

/// One block in hand, the last one: enough for a point read.
pub(super) struct LastBlock<'v> {
    runs: &'v [Arc<ViewRun>],
    in_hand: Option<(usize, u32, PinnedBlock)>,
}

impl<'v> LastBlock<'v> {
    pub(super) fn new(runs: &'v [Arc<ViewRun>]) -> Self {
        Self { runs, in_hand: None }
    }

    /// The block of this entry.
    #[inline]
    pub(super) fn block(&mut self, run: usize, at: Position) -> Result<&PinnedBlock> {
        let held = self.in_hand.as_ref().is_some_and(|held| (held.0, held.1) == (run, at.block));
        if !held {
            let source = self.runs.get(run).ok_or_else(contradiction)?;
            self.in_hand = Some((run, at.block, source.block_of(at)?));
        }
        self.in_hand.as_ref().map(|held| &held.2).ok_or_else(contradiction)
    }
}

impl Probe for LastBlock<'_> {
    #[inline]
    fn of_block<T>(
        &mut self,
        run: usize,
        at: Position,
        ask: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let found = ask(self.block(run, at)?);
        found.ok_or_else(|| damaged(self.runs, run, at.block))
    }
}

/// The last block of each run in hand: for searches that go forward through the view.
pub(super) struct LastBlocks<'v> {
    runs: &'v [Arc<ViewRun>],
    in_hand: Vec<Option<(u32, PinnedBlock)>>,
}

impl<'v> LastBlocks<'v> {
    pub(super) fn new(runs: &'v [Arc<ViewRun>]) -> Self {
        Self { runs, in_hand: runs.iter().map(|_| None).collect() }
    }

    /// This block; the cache does not keep it.
    pub(super) fn block(&mut self, run: usize, block: u32) -> Result<&PinnedBlock> {
        let (Some(source), Some(held)) = (self.runs.get(run), self.in_hand.get_mut(run)) else {
            return Err(contradiction());
        };
        if held.as_ref().is_none_or(|held| held.0 != block) {
            *held = Some((block, source.pinned_block(block, false)?));
        }
        held.as_ref().map(|held| &held.1).ok_or_else(contradiction)
    }
}

impl Probe for LastBlocks<'_> {
    #[inline]
    fn of_block<T>(
        &mut self,
        run: usize,
        at: Position,
        ask: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let found = ask(self.block(run, at.block)?);
        found.ok_or_else(|| damaged(self.runs, run, at.block))
    }
}
