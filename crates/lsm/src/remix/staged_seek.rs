//! A seek in stages, each of which prefetches what the next one reads. A merge interleaves the stages of all its
//! sources, so that their memory latencies overlap.
//!
//! Only views with forks support all stages: without forks, each read of a search depends on the previous one.

use bolide_base::SequenceNumber;
use bolide_base::technique::Technique;

use super::forks::KeyWindow;
use super::read_ahead::ScanReadAhead;
use super::run_position::RunCursorState;
use super::run_prefetch::{self, runs_from};
use super::search::{Leaf, ViewPosition};
use super::view::SortedView;
use crate::cursor::PreparedKey;
use crate::key_heads::SampleRank;

/// The last completed stage: what it prefetched.
#[derive(Debug, Clone, Copy, Default)]
enum SeekStage {
    /// No stage.
    #[default]
    Nothing,
    /// The anchors around the key.
    Anchors(SampleRank),
    /// A segment.
    Segment(usize),
    /// The entry count and the cache hint of the leaf's block; the same for the runs whose bits are set.
    Block(ViewPosition, u64),
    /// The cache slot of the leaf's block, and the entry's offset in the block.
    Listed(Leaf),
    /// The entry, if its block is cached. This is the last stage.
    Entry(Leaf),
}

/// A prepared seek and its stage.
#[derive(Debug, Default)]
pub(super) struct Preparation {
    stage: SeekStage,
    target: PreparedKey,
    /// Whether the runs of the next entries are prefetched too.
    is_scan: bool,
}

/// The number of entries whose runs are prefetched for a scan.
const SCAN_PREFETCH_ENTRIES: usize = 12;

impl Preparation {
    /// Starts the first stage of a seek of `(key, sequence)`.
    #[inline]
    pub(super) fn begin(&mut self, view: &SortedView, key: &[u8], sequence: SequenceNumber) {
        self.target.set(key, sequence);
        self.is_scan = Technique::ScanPrediction.is_on() && view.predictor().predicts();
        self.stage = SeekStage::Anchors(view.remix().anchors.near(key));
    }

    /// Runs the next stage. Returns whether another one follows. The last stage pins the leaf's block; if it is not cached, and
    /// a scan is expected, it starts reading the scan's blocks.
    pub(super) fn advance(
        &mut self,
        view: &SortedView,
        runs: &mut [RunCursorState],
        read_ahead: &mut ScanReadAhead,
        fill_cache: bool,
    ) -> bool {
        let next = match self.stage {
            SeekStage::Nothing | SeekStage::Entry(_) => return false,
            SeekStage::Anchors(near) => {
                prefetch_segment_near(view, near, self.target.key(), self.target.sequence())
                    .map(SeekStage::Segment)
            }
            SeekStage::Segment(number) => prefetch_block(view, number, self.target.key()).map(|position| {
                let next_runs =
                    if self.is_scan { runs_from(view, position, SCAN_PREFETCH_ENTRIES) } else { 0 };
                run_prefetch::prefetch_hints(view, position.segment, next_runs);
                SeekStage::Block(position, next_runs)
            }),
            SeekStage::Block(position, next_runs) => {
                let leaf = prefetch_listed(view, position);
                run_prefetch::prefetch_entries(view, position, next_runs);
                leaf.map(SeekStage::Listed)
            }
            SeekStage::Listed(leaf) => {
                if pin_leaf_block(view, runs, leaf, fill_cache).is_none() && self.is_scan {
                    read_ahead.start(view, leaf.position);
                }
                Some(SeekStage::Entry(leaf))
            }
        };
        self.stage = next.unwrap_or_default();
        !matches!(self.stage, SeekStage::Nothing | SeekStage::Entry(_))
    }

    /// Whether a seek is prepared.
    #[inline]
    pub(super) fn is_begun(&self) -> bool {
        !matches!(self.stage, SeekStage::Nothing)
    }

    /// Ends the preparation with a seek of `(key, sequence)`. Returns the leaf if this is the prepared seek and the leaf is
    /// known.
    #[inline]
    pub(super) fn take_leaf(&mut self, key: &[u8], sequence: SequenceNumber) -> Option<Leaf> {
        match std::mem::take(&mut self.stage) {
            SeekStage::Listed(leaf) | SeekStage::Entry(leaf) => self.target.is(key, sequence).then_some(leaf),
            SeekStage::Nothing | SeekStage::Anchors(_) | SeekStage::Segment(_) | SeekStage::Block(..) => None,
        }
    }
}

/// The segment for `(key, sequence)`, which it prefetches; `None` if the key is before all segments. The search starts
/// at segment `from`, which must not be after the result.
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
    near: SampleRank,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<usize> {
    let remix = view.remix();
    let number = remix.anchors.count_through_near(near, key, sequence).checked_sub(1)?;
    remix.segments.prefetch(number);
    Some(number)
}

/// The position of the leaf for `key` in a segment. Prefetches the entry count and the cache hint of its block.
#[inline]
pub(super) fn prefetch_block(view: &SortedView, number: usize, key: &[u8]) -> Option<ViewPosition> {
    let segment = view.remix().segments.get(number);
    let (forks, base) = segment.forks()?;
    let index = KeyWindow::new(key, base).candidate(forks, segment.entries());
    let run = segment.run(index);
    let near = segment.offset(run).0.block;
    let source = view.runs().get(run)?;
    source.prefetch_count(near);
    source.prefetch_hint(near);
    Some(ViewPosition { segment: number, index })
}

/// The leaf at `position`. Prefetches the cache slot of its block, and the entry's offset in the block.
#[inline]
pub(super) fn prefetch_listed(view: &SortedView, position: ViewPosition) -> Option<Leaf> {
    let segment = view.remix().segments.get(position.segment);
    let run = segment.run(position.index);
    let source = view.runs().get(run)?;
    let at = segment.position(source, run, position.index);
    source.prefetch_listed(at);
    Some(Leaf { position, run, at })
}

/// Prefetches an entry, if its block is in the cache.
#[inline]
pub(super) fn prefetch_entry(view: &SortedView, Leaf { run, at, .. }: Leaf) {
    if let Some(source) = view.runs().get(run) {
        source.prefetch_entry(at);
    }
}

fn pin_leaf_block(
    view: &SortedView,
    runs: &mut [RunCursorState],
    leaf: Leaf,
    fill_cache: bool,
) -> Option<()> {
    let (run, source) = (runs.get_mut(leaf.run)?, view.runs().get(leaf.run)?);
    run.pin_cached_block(source, leaf.at, fill_cache)?;
    run.block.as_ref()?.prefetch_entry(leaf.at.entry as usize, true);
    Some(())
}
