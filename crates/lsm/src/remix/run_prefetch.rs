//! Prefetching for the runs of the next entries.
//!
//! The first step to an entry of a run waits for three dependent memory accesses: the entry counts of its blocks and the
//! cache hint of its block; the block with the entry's offset; the entry. So the runs of the next entries are
//! prefetched together in three stages, with other work in between.

use bolide_base::technique::Technique;

use super::run_position::RunCursorState;
use super::search::ViewPosition;
use super::selectors::RUN_BITS;
use super::view::SortedView;

/// A bit for each run that an entry with one of these selectors is in.
#[inline]
pub(super) fn runs_of(selectors: &[u8]) -> u64 {
    selectors.iter().fold(0, |runs, selector| runs | 1 << (selector & RUN_BITS))
}

/// A bit for each run of the next `entries` entries of a segment, from `position` on.
#[inline]
pub(super) fn runs_from(view: &SortedView, position: ViewPosition, entries: usize) -> u64 {
    let segment = view.remix().segments.get(position.segment);
    let end = position.index.saturating_add(entries).min(segment.entries());
    runs_of(segment.selectors().get(position.index..end).unwrap_or_default())
}

/// The first stage: prefetches the entry counts and cache hints of the runs whose bits are set.
#[inline]
pub(super) fn prefetch_hints(view: &SortedView, segment: usize, runs: u64) {
    let segment = view.remix().segments.get(segment);
    for number in SetBits(runs) {
        if let Some(source) = view.runs().get(number) {
            let near = segment.offset(number).0.block;
            source.prefetch_count(near);
            source.prefetch_hint(near);
        }
    }
}

/// The second stage without cursor states: prefetches the blocks of the runs' first entries at or after `position`, and
/// the likely locations of the entries.
#[inline]
pub(super) fn prefetch_entries(view: &SortedView, position: ViewPosition, runs: u64) {
    let segment = view.remix().segments.get(position.segment);
    for number in SetBits(runs) {
        if let Some(source) = view.runs().get(number) {
            source.prefetch_likely(segment.position(source, number, position.index));
        }
    }
}

/// The second stage: sets the cursor states to the runs' first entries at or after `position`, and prefetches their
/// blocks.
#[inline]
pub(super) fn prefetch_blocks(
    view: &SortedView,
    states: &mut [RunCursorState],
    position: ViewPosition,
    runs: u64,
) {
    let segment = view.remix().segments.get(position.segment);
    for number in SetBits(runs) {
        if let (Some(run), Some(source)) = (states.get_mut(number), view.runs().get(number)) {
            run.set_position(segment.position(source, number, position.index));
            source.prefetch_listed(run.position);
        }
    }
}

/// The third stage: pins the blocks of these entries that are cached, and prefetches the entries.
#[inline]
pub(super) fn pin_blocks(view: &SortedView, states: &mut [RunCursorState], runs: u64, fill_cache: bool) {
    let runs = if Technique::BlocksPinnedAhead.is_on() { runs } else { 0 };
    for number in SetBits(runs) {
        if let (Some(run), Some(source)) = (states.get_mut(number), view.runs().get(number)) {
            run.pin_next_block(source, fill_cache);
        }
    }
}

/// Iterates over the numbers of the set bits.
struct SetBits(u64);

impl Iterator for SetBits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (number < 64).then_some(number)
    }
}
