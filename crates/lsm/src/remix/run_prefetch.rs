//! The runs that come up behind a place, and how they come into the processor.
//!
//! The first step to an entry of a run would wait for three trips to memory, each of which needs what the one before has
//! brought: how many entries the blocks around have, and the hint where the cache has its block; the block, and what that
//! says of the entry; the entry. So the runs of the next entries are asked for together, one stage after the other, with
//! something else to be done in between.

use super::run_position::RunPlace;
use super::search::Place;
use super::selectors::RUN_BITS;
use super::view::SortedView;

/// A bit for each run that an entry with one of these selectors is in.
#[inline]
pub(super) fn runs_of(selectors: &[u8]) -> u64 {
    selectors.iter().fold(0, |runs, selector| runs | 1 << (selector & RUN_BITS))
}

/// A bit for each run of the next `entries` entries of a segment, from `place` on.
#[inline]
pub(super) fn runs_from(view: &SortedView, place: Place, entries: usize) -> u64 {
    let segment = view.remix().segments.get(place.segment);
    let end = place.index.saturating_add(entries).min(segment.entries());
    runs_of(segment.selectors().get(place.index..end).unwrap_or_default())
}

/// The first stage, for the runs whose bits are set.
#[inline]
pub(super) fn prefetch_hints(view: &SortedView, segment: usize, runs: u64) {
    let segment = view.remix().segments.get(segment);
    for number in Ones(runs) {
        if let Some(source) = view.runs().get(number) {
            let near = segment.offset(number).0.block;
            source.prefetch_count(near);
            source.prefetch_hint(near);
        }
    }
}

/// The second stage for one who is not there yet: asks for the blocks of their first entries at or behind `place`, and for the
/// entries where they likely lie. Leads nobody anywhere.
#[inline]
pub(super) fn prefetch_entries(view: &SortedView, place: Place, runs: u64) {
    let segment = view.remix().segments.get(place.segment);
    for number in Ones(runs) {
        if let Some(source) = view.runs().get(number) {
            source.prefetch_likely(segment.position(source, number, place.index));
        }
    }
}

/// The second stage: leads them to their first entries at or behind `place`, and asks for the blocks there.
#[inline]
pub(super) fn lead_to(view: &SortedView, places: &mut [RunPlace], place: Place, runs: u64) {
    let segment = view.remix().segments.get(place.segment);
    for number in Ones(runs) {
        if let (Some(run), Some(source)) = (places.get_mut(number), view.runs().get(number)) {
            run.lead_to(segment.position(source, number, place.index));
            source.prefetch_listed(run.position);
        }
    }
}

/// The third stage: takes the blocks of their entries in hand, those that are in the cache, and asks for the entries.
#[inline]
pub(super) fn come_to(view: &SortedView, places: &mut [RunPlace], runs: u64, fill_cache: bool) {
    for number in Ones(runs) {
        if let (Some(run), Some(source)) = (places.get_mut(number), view.runs().get(number)) {
            run.come_to(source, fill_cache);
        }
    }
}

/// The numbers of the bits that are set.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (number < 64).then_some(number)
    }
}
