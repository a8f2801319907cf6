//! The search for a position in the sorted view.
//!
//! A binary search over the anchors finds the segment; a second one finds the entry in it (REMIX §3.2). The second
//! search reads keys of several runs. It picks the middle entry of the remaining range, and then compares with all
//! entries of the same run and block within the range before it switches to another run. So it reads a block at most
//! once, and where neighbouring entries are in one run, the first block decides.
//!
//! With blocks scattered in memory, each comparison waits for two dependent memory accesses. So the search prefetches
//! all candidate entries of the next three steps together, and picks middle entries among them.

use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_table::{KeyDifference, PinnedBlock};

use super::forks::{FAR, ForkBound, KeyWindow, NO_FORK, fork_bound, subtree_end, subtree_start};
use super::run::{BlockPosition, ViewRun};
use super::segments::Segment;
use super::selectors::{RUN_BITS, below, mask_of_run, nth_bit};
use super::{Remix, contradiction};

/// A position in the view: an entry of a segment. After the last entry: the number of segments, and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ViewPosition {
    pub(super) segment: usize,
    pub(super) index: usize,
}

/// The entry at which the descent in the forks of a segment ends, and its location.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    pub(super) position: ViewPosition,
    pub(super) run: usize,
    pub(super) at: BlockPosition,
}

/// The relation of a key to the entries at its position, as far as the forks determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRelation {
    /// It equals the key of the entry at the position, which has this sequence number.
    Same(SequenceNumber),
    /// It differs from the key of the entry at the position, first in this bit.
    Before(u32),
    /// It differs from both neighbours; from the key of the previous entry first in this bit.
    After(u32),
    /// The forks do not determine it.
    Unknown,
}

/// Compares with entries of a block.
pub(super) trait Probe {
    /// The result of `read` for the block of the entry at `at` of run number `run`; `Corruption` if it is `None`.
    fn with_block<T>(
        &mut self,
        run: usize,
        at: BlockPosition,
        read: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T>;

    /// Compares the key of the entry at `at` of run number `run` with `key`.
    #[inline]
    fn difference(&mut self, run: usize, at: BlockPosition, key: &[u8]) -> Result<KeyDifference> {
        self.with_block(run, at, |block| block.difference(at.entry as usize, key))
    }

    /// The first entry at or after `(key, sequence)` in `range` of block number `block` of run number `run`; the end of
    /// the range if there is none.
    #[inline]
    fn lower_bound(
        &mut self,
        run: usize,
        block: u32,
        range: std::ops::Range<usize>,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<usize> {
        let at = BlockPosition { block, entry: range.start as u32 };
        self.with_block(run, at, |block| block.lower_bound_between(range.start, range.end, key, sequence))
    }
}

impl Segment<'_> {
    /// The run of entry number `index`; 63 if there is no entry.
    #[inline]
    pub(super) fn run(&self, index: usize) -> usize {
        self.selectors().get(index).map_or(RUN_BITS.into(), |selector| usize::from(selector & RUN_BITS))
    }

    /// The position of the first entry of run number `run` at or after entry number `index`.
    #[inline]
    pub(super) fn position(&self, runs: &ViewRun, run: usize, index: usize) -> BlockPosition {
        let before = (mask_of_run(self.selectors(), run as u8) & below(index)).count_ones();
        let (first, count) = self.offset(run);
        runs.advance(first, count + before)
    }
}

impl Remix {
    /// The first entry at or after `(key, sequence)`, and the leaf if there are forks. `runs` are the runs of this REMIX.
    #[inline]
    pub(super) fn locate(
        &self,
        runs: &[Arc<ViewRun>],
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(ViewPosition, Option<Leaf>)> {
        let through = self.anchors.count_through(key, sequence);
        let Some(number) = through.checked_sub(1) else {
            return Ok((ViewPosition { segment: 0, index: 0 }, None));
        };
        self.segments.prefetch(number);
        let segment = self.segments.get(number);
        match segment.forks() {
            Some((forks, base)) => {
                let index = KeyWindow::new(key, base).candidate(forks, segment.entries());
                let run = segment.run(index);
                let source = runs.get(run).ok_or_else(contradiction)?;
                // `position` reads the count; the cache lookup reads the hint.
                let near = segment.offset(run).0.block;
                source.prefetch_count(near);
                source.prefetch_hint(near);
                let at = segment.position(source, run, index);
                let leaf = Leaf { position: ViewPosition { segment: number, index }, run, at };
                Ok((self.locate_from_leaf(leaf, runs, key, sequence, probe)?.0, Some(leaf)))
            }
            None => {
                let index = segment.search(runs, 0..segment.entries(), key, sequence, probe)?;
                Ok((self.position_at(number, index), None))
            }
        }
    }

    /// The second half of [`locate`](Self::locate), from `leaf` on, with the relation of the key to the result.
    #[inline]
    pub(super) fn locate_from_leaf(
        &self,
        leaf: Leaf,
        runs: &[Arc<ViewRun>],
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(ViewPosition, KeyRelation)> {
        let number = leaf.position.segment;
        let (index, relation) = self.segments.get(number).search_forks(runs, leaf, key, sequence, probe)?;
        Ok((self.position_at(number, index), relation))
    }

    /// The position of entry number `index` of a segment; the start of the next segment if `index` is after its last entry.
    #[inline]
    fn position_at(&self, segment: usize, index: usize) -> ViewPosition {
        if index < self.segments.get(segment).entries() {
            ViewPosition { segment, index }
        } else {
            ViewPosition { segment: segment + 1, index: 0 }
        }
    }
}

impl Segment<'_> {
    /// As [`search`](Self::search) among all entries, by the forks, from `leaf` on, with the relation of the key to the
    /// result.
    #[inline]
    fn search_forks(
        self,
        runs: &[Arc<ViewRun>],
        Leaf { position, run, at }: Leaf,
        key: &[u8],
        sequence: SequenceNumber,
        probe: &mut impl Probe,
    ) -> Result<(usize, KeyRelation)> {
        let (forks, base) = self.forks().ok_or_else(contradiction)?;
        let (entries, leaf) = (self.entries(), position.index);
        let difference = probe.difference(run, at, key)?;
        let bit = difference.bit.unwrap_or(NO_FORK);
        match fork_bound(base, difference.bit) {
            ForkBound::At(bound) if difference.order.is_lt() => {
                Ok((subtree_end(forks, entries, leaf, bound), KeyRelation::After(bit)))
            }
            ForkBound::At(bound) => Ok((subtree_start(forks, leaf, bound), KeyRelation::Before(bit))),
            ForkBound::Far => {
                if let Some(trailer) = difference.trailer
                    && trailer.sequence() <= sequence
                {
                    return Ok((leaf, KeyRelation::Same(trailer.sequence())));
                }
                if difference.order.is_gt() {
                    return Ok((leaf, KeyRelation::Unknown));
                }
                let range = leaf + 1..subtree_end(forks, entries, leaf, FAR);
                Ok((self.search(runs, range, key, sequence, probe)?, KeyRelation::Unknown))
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
        let mut prefetched = 0;
        while low < high {
            if prefetched & below(high) & !below(low) == 0 {
                prefetched = self.prefetch_probes(runs, low, high);
            }
            let middle = nearest(prefetched & below(high) & !below(low), low.midpoint(high));
            let number = self.run(middle);
            let run = runs.get(number).ok_or_else(contradiction)?;
            let mask = mask_of_run(selectors, number as u8);
            let rank = |index: usize| (mask & below(index)).count_ones();
            // Ranks count the entries of the run from its first in the segment.
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
            // Entry `found - 1` of the run is before the result, entry `found` is not.
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
    /// Prefetches the entries from `low` to before `high` that the next three steps of a binary search may compare with.
    /// Returns a bit for each.
    #[inline]
    fn prefetch_probes(&self, runs: &[Arc<ViewRun>], low: usize, high: usize) -> u64 {
        let step = (high - low).div_ceil(PREFETCH_WIDTH + 1).max(1);
        let first = if high - low <= PREFETCH_WIDTH { low } else { low + step };
        let mut prefetched = 0;
        let mut last = None;
        for index in (first..high).step_by(step).take(PREFETCH_WIDTH) {
            prefetched |= 1 << index;
            let number = self.run(index);
            if let Some(run) = runs.get(number) {
                let at = self.position(run, number, index);
                // Neighbours in one block are prefetched once.
                if last != Some((number, at.block)) {
                    last = Some((number, at.block));
                    run.prefetch_listed(at);
                }
            }
        }
        prefetched
    }
}

/// The number of entries prefetched at once: those of three steps of a binary search.
const PREFETCH_WIDTH: usize = 7;

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

/// A probe for point reads, which pins the last block.
pub(super) struct LastBlock<'v> {
    runs: &'v [Arc<ViewRun>],
    pinned: Option<(usize, u32, PinnedBlock)>,
}

impl<'v> LastBlock<'v> {
    pub(super) fn new(runs: &'v [Arc<ViewRun>]) -> Self {
        Self { runs, pinned: None }
    }

    /// The block of this entry.
    #[inline]
    pub(super) fn block(&mut self, run: usize, at: BlockPosition) -> Result<&PinnedBlock> {
        let is_pinned = self.pinned.as_ref().is_some_and(|pinned| (pinned.0, pinned.1) == (run, at.block));
        if !is_pinned {
            let source = self.runs.get(run).ok_or_else(contradiction)?;
            self.pinned = Some((run, at.block, source.block_of(at)?));
        }
        self.pinned.as_ref().map(|pinned| &pinned.2).ok_or_else(contradiction)
    }
}

impl Probe for LastBlock<'_> {
    #[inline]
    fn with_block<T>(
        &mut self,
        run: usize,
        at: BlockPosition,
        read: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let found = read(self.block(run, at)?);
        found.ok_or_else(|| damaged(self.runs, run, at.block))
    }
}

/// A probe for forward searches through the view, which pins the last block of each run.
pub(super) struct LastBlocks<'v> {
    runs: &'v [Arc<ViewRun>],
    pinned: Vec<Option<(u32, PinnedBlock)>>,
}

impl<'v> LastBlocks<'v> {
    pub(super) fn new(runs: &'v [Arc<ViewRun>]) -> Self {
        Self { runs, pinned: runs.iter().map(|_| None).collect() }
    }

    /// The block. Does not fill the cache.
    pub(super) fn block(&mut self, run: usize, block: u32) -> Result<&PinnedBlock> {
        let (Some(source), Some(pinned)) = (self.runs.get(run), self.pinned.get_mut(run)) else {
            return Err(contradiction());
        };
        if pinned.as_ref().is_none_or(|pinned| pinned.0 != block) {
            *pinned = Some((block, source.pinned_block(block, false)?));
        }
        pinned.as_ref().map(|pinned| &pinned.1).ok_or_else(contradiction)
    }
}

impl Probe for LastBlocks<'_> {
    #[inline]
    fn with_block<T>(
        &mut self,
        run: usize,
        at: BlockPosition,
        read: impl FnOnce(&PinnedBlock) -> Option<T>,
    ) -> Result<T> {
        let found = read(self.block(run, at.block)?);
        found.ok_or_else(|| damaged(self.runs, run, at.block))
    }
}
