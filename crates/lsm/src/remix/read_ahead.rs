//! Reading ahead of scans whose blocks are not in the cache.
//!
//! A view knows the run of each of the next entries, and so the blocks that a scan will read (REMIX §3.3). A scan that meets
//! a block that is not cached starts reading the blocks of the next entries of all runs: their reads overlap, so a scan waits
//! for the device about once instead of once a run.

use super::run_prefetch::runs_of;
use super::search::ViewPosition;
use super::selectors::{below, mask_of_run};
use super::view::SortedView;

/// Maximum number of segments behind the current one that are read ahead.
const MAX_SEGMENTS: usize = 8;
/// Segments entered by a scan before the number of segments read ahead doubles.
const SEGMENTS_PER_STEP: usize = 2;

/// The blocks of one scan that were read ahead.
#[derive(Debug, Default)]
pub(super) struct ScanReadAhead {
    /// The segment after the last one that was read ahead; 0 before the first.
    end: usize,
    /// The segment of the last call.
    segment: usize,
    /// Segments that the scan has entered since its start.
    entered: usize,
    /// By run, the number after the last block that was read ahead.
    blocks: Vec<u32>,
}

impl ScanReadAhead {
    /// Forgets the scan: the next call starts another one.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.end = 0;
    }

    /// Starts reading the blocks of the entries from `position` on that are not cached: those of its segment and of some
    /// segments after it, more in a longer scan.
    #[cold]
    pub(super) fn start(&mut self, view: &SortedView, position: ViewPosition) {
        if self.end == 0 {
            (self.entered, self.segment) = (0, position.segment);
            self.blocks.clear();
            self.blocks.resize(view.runs().len(), 0);
        } else if self.segment == position.segment {
            return;
        } else {
            self.entered += position.segment.saturating_sub(self.segment);
            self.segment = position.segment;
        }
        let further = 1 << (self.entered / SEGMENTS_PER_STEP).min(MAX_SEGMENTS.ilog2() as usize);
        let end = (position.segment + further + 1).min(view.remix().segments.count());
        for segment in self.end.max(position.segment)..end {
            let index = if segment == position.segment { position.index } else { 0 };
            self.read_segment(view, ViewPosition { segment, index });
        }
        self.end = self.end.max(end).max(1);
    }

    /// Starts reading the blocks of the entries from `position` to the end of its segment.
    fn read_segment(&mut self, view: &SortedView, position: ViewPosition) {
        let segment = view.remix().segments.get(position.segment);
        let selectors = segment.selectors();
        let rest = selectors.get(position.index..segment.entries()).unwrap_or_default();
        let runs = runs_of(rest);
        for (number, (source, through)) in view.runs().iter().zip(&mut self.blocks).enumerate() {
            if runs >> number & 1 == 0 {
                continue;
            }
            let entries = mask_of_run(selectors, number as u8) & !below(position.index);
            let first = segment.position(source, number, position.index);
            let last = source.advance(first, entries.count_ones().saturating_sub(1));
            for block in first.block.max(*through)..=last.block {
                source.read_ahead(block);
            }
            *through = (last.block + 1).max(*through);
        }
    }
}
