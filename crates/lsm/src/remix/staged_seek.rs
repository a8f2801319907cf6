//! A seek one stage at a time, each of which asks for what the next one reads, so that it waits for memory together with
//! the seeks of the sources that the view is merged with.
//!
//! Only views with forks go all the way: without, what a search reads depends on what it has read.

use bolide_base::SequenceNumber;

use super::run_prefetch::{self, runs_from};
use super::forks::Window;
use super::run_position::RunPlace;
use super::search::{Leaf, Place};
use super::view::SortedView;
use crate::cursor::PreparedKey;
use crate::key_heads::Near;

/// What was asked for last.
#[derive(Debug, Clone, Copy, Default)]
enum Asked {
    /// Nothing.
    #[default]
    Nothing,
    /// The anchors around the key.
    Anchors(Near),
    /// A segment.
    Segment(usize),
    /// How many entries the block has that the forks lead to, and what says where the cache has it; the same of the runs whose
    /// bits are set.
    Block(Place, u64),
    /// Where the cache has the block, and what the block says of the entry.
    Listed(Leaf),
    /// The entry; nothing is left to ask for.
    Entry(Leaf),
}

/// A seek that is prepared: which, and how far.
#[derive(Debug, Default)]
pub(super) struct Preparation {
    asked: Asked,
    place: PreparedKey,
    /// The runs of the next entries are asked for as well.
    is_scan: bool,
}

/// The entries whose runs are asked for with the first one of a scan.
const ENTRIES_OF_SCAN: usize = 12;

impl Preparation {
    /// The first stage of a seek of `(key, sequence)`.
    #[inline]
    pub(super) fn begin(&mut self, view: &SortedView, key: &[u8], sequence: SequenceNumber) {
        self.place.set(key, sequence);
        self.is_scan = view.predictor().holds();
        self.asked = Asked::Anchors(view.remix().anchors.near(key));
    }

    /// The next stage; true if another one follows. Takes the block that the forks lead to in hand, if it is in the cache.
    pub(super) fn go_on(&mut self, view: &SortedView, runs: &mut [RunPlace], fill_cache: bool) -> bool {
        let next = match self.asked {
            Asked::Nothing | Asked::Entry(_) => return false,
            Asked::Anchors(near) => {
                prefetch_segment_near(view, near, self.place.key(), self.place.sequence()).map(Asked::Segment)
            }
            Asked::Segment(number) => prefetch_block(view, number, self.place.key()).map(|place| {
                let next_runs = if self.is_scan { runs_from(view, place, ENTRIES_OF_SCAN) } else { 0 };
                run_prefetch::prefetch_hints(view, place.segment, next_runs);
                Asked::Block(place, next_runs)
            }),
            Asked::Block(place, next_runs) => {
                let leaf = ask_for_listed(view, place);
                run_prefetch::prefetch_entries(view, place, next_runs);
                leaf.map(Asked::Listed)
            }
            Asked::Listed(leaf) => take_in_hand(view, runs, leaf, fill_cache),
        };
        self.asked = next.unwrap_or_default();
        !matches!(self.asked, Asked::Nothing | Asked::Entry(_))
    }

    /// True if it has begun and is not ended.
    #[inline]
    pub(super) fn is_begun(&self) -> bool {
        !matches!(self.asked, Asked::Nothing)
    }

    /// Ends it with a seek of `(key, sequence)`: the entry that the forks lead to, if that is the seek that was prepared
    /// and it is known.
    #[inline]
    pub(super) fn take_leaf(&mut self, key: &[u8], sequence: SequenceNumber) -> Option<Leaf> {
        match std::mem::take(&mut self.asked) {
            Asked::Listed(leaf) | Asked::Entry(leaf) => self.place.is(key, sequence).then_some(leaf),
            Asked::Nothing | Asked::Anchors(_) | Asked::Segment(_) | Asked::Block(..) => None,
        }
    }
}

/// The segment for `(key, sequence)`, which is asked for; `None` if the key is before all. `from`, which is no later than it, says
/// where to look first.
#[inline]
pub(super) fn prefetch_segment(
    view: &SortedView,
    from: Option<usize>,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<usize> {
    let remix = view.remix();
    let from = from.map_or(0, |segment| segment + 1);
    let number = remix.anchors.count_through_from(from, key, sequence).checked_sub(1)?;
    remix.segments.prefetch(number);
    Some(number)
}

#[inline]
fn prefetch_segment_near(
    view: &SortedView,
    near: Near,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<usize> {
    let remix = view.remix();
    let number = remix.anchors.count_through_near(near, key, sequence).checked_sub(1)?;
    remix.segments.prefetch(number);
    Some(number)
}

/// The entry of a segment that the forks lead to with `key`. How many entries its block has is asked for, and what says where the
/// cache has the block.
#[inline]
pub(super) fn prefetch_block(view: &SortedView, number: usize, key: &[u8]) -> Option<Place> {
    let segment = view.remix().segments.get(number);
    let (forks, base) = segment.forks()?;
    let index = Window::new(key, base).candidate(forks, segment.entries());
    let run = segment.run(index);
    let near = segment.offset(run).0.block;
    let source = view.runs().get(run)?;
    source.prefetch_count(near);
    source.prefetch_hint(near);
    Some(Place { segment: number, index })
}

/// Where the entry at `place` is. Its place in the cache is asked for, and what its block says of it.
#[inline]
pub(super) fn ask_for_listed(view: &SortedView, place: Place) -> Option<Leaf> {
    let segment = view.remix().segments.get(place.segment);
    let run = segment.run(place.index);
    let source = view.runs().get(run)?;
    let at = segment.position(source, run, place.index);
    source.prefetch_listed(at);
    Some(Leaf { place, run, at })
}

/// Asks for an entry, if the cache has its block.
#[inline]
pub(super) fn ask_for_entry(view: &SortedView, Leaf { run, at, .. }: Leaf) {
    if let Some(source) = view.runs().get(run) {
        source.prefetch_entry(at);
    }
}

fn take_in_hand(view: &SortedView, runs: &mut [RunPlace], leaf: Leaf, fill_cache: bool) -> Option<Asked> {
    let (run, source) = (runs.get_mut(leaf.run)?, view.runs().get(leaf.run)?);
    run.enter_cached(source, leaf.at, fill_cache)?;
    run.block.as_ref()?.prefetch_entry(leaf.at.entry as usize, true);
    Some(Asked::Entry(leaf))
}
