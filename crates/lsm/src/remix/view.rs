//! A REMIX with its runs; point reads.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_table::ValueRef;

use super::forks::{FAR, KeyWindow, subtree_end};
use super::run::{BlockPosition, ViewRun};
use super::search::{LastBlock, ViewPosition};
use super::segments::{SegmentLayout, tag_of};
use super::selectors::{below, mask_of_old, mask_where};
use super::{Remix, contradiction, tables_of};
use crate::predictor::Predictor;

/// The number of blocks that [`SortedView::is_cached`] samples.
const SAMPLED_BLOCKS: usize = 64;

/// Sorted runs with their REMIX, read as one sorted sequence.
///
/// Immutable and safe to share between threads. Keeps its files from being removed.
pub struct SortedView {
    remix: Remix,
    runs: Vec<Arc<ViewRun>>,
    largest_sequence: SequenceNumber,
    has_filters: bool,
    predictor: Predictor,
}

impl SortedView {
    /// The view of `runs` by `remix`, which was built from these runs in this order.
    ///
    /// # Errors
    /// `Corruption` if it was built from other runs.
    pub fn new(remix: Remix, runs: Vec<Arc<ViewRun>>) -> Result<Arc<Self>> {
        let layout = &remix.segments.layout;
        let expected =
            SegmentLayout::of_runs(layout.width, layout.tags, layout.forks, runs.iter().map(|run| &**run));
        let same = remix.tables.len() == runs.len()
            && remix.tables.iter().zip(&runs).all(|(tables, run)| *tables == tables_of(run))
            && expected.as_ref() == Some(layout);
        if !same {
            return Err(Error::new(ErrorKind::Corruption, "a REMIX does not belong to these sorted runs"));
        }
        let sequences = runs.iter().flat_map(|run| run.readers());
        let largest_sequence =
            sequences.map(|reader| reader.properties().largest_sequence).max().unwrap_or(0);
        let filter_bits = runs.iter().flat_map(|run| run.readers()).map(|reader| reader.properties());
        let has_filters = filter_bits.map(|properties| properties.bloom_bits_per_key).max().unwrap_or(0) > 0;
        let pool =
            runs.iter().flat_map(|run| run.readers()).next().map(|reader| reader.cache().memory_pool());
        let remix = match pool {
            Some(pool) => remix.moved_to(pool),
            None => remix,
        };
        Ok(Arc::new(Self { remix, runs, largest_sequence, has_filters, predictor: Predictor::new() }))
    }

    /// Builds a REMIX of `runs`, newest first, and returns its view. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Remix::build`].
    pub fn build(runs: Vec<Arc<ViewRun>>, options: &super::RemixOptions) -> Result<Arc<Self>> {
        Self::new(Remix::build(&runs, options)?, runs)
    }

    /// Whether the stored order equals the merge order of the runs. Reads all runs and bypasses the cache.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables.
    pub fn agrees_with_its_runs(&self) -> Result<bool> {
        let layout = &self.remix.segments.layout;
        let options = super::RemixOptions::default().segment_entries(layout.width);
        let options = options.tags(layout.tags).forks(layout.forks);
        let built = Remix::build(&self.runs, &options)?;
        let same_tables = built.tables == self.remix.tables && built.entries == self.remix.entries;
        let same_anchors = || built.anchors.encode() == self.remix.anchors.encode();
        Ok(same_tables && built.segments == self.remix.segments && same_anchors())
    }

    /// The predictor for "steps forward follow a seek".
    #[inline]
    pub(super) fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// The REMIX.
    #[inline]
    pub fn remix(&self) -> &Remix {
        &self.remix
    }

    /// The runs, in the order of their numbers.
    #[inline]
    pub fn runs(&self) -> &[Arc<ViewRun>] {
        &self.runs
    }

    /// Whether some of the sstables have Bloom filters.
    #[inline]
    pub fn has_filters(&self) -> bool {
        self.has_filters
    }

    /// The largest sequence number of the entries.
    pub fn largest_sequence(&self) -> SequenceNumber {
        self.largest_sequence
    }

    /// The memory use in bytes without the open sstables: the REMIX and the key counts.
    pub fn memory_bytes(&self) -> usize {
        self.remix.memory_bytes() + self.runs.iter().map(|run| run.memory_bytes()).sum::<usize>()
    }

    /// Whether most blocks of the view are in the cache, estimated from a sample.
    pub(super) fn is_cached(&self) -> bool {
        let blocks = || self.runs.iter().flat_map(|run| (0..run.blocks()).map(move |block| (run, block)));
        let all: usize = self.runs.iter().map(|run| run.blocks() as usize).sum();
        let sample = blocks().step_by((all / SAMPLED_BLOCKS).max(1));
        let is_cached = |&(run, block): &(&Arc<ViewRun>, u32)| {
            run.block_in_cache(BlockPosition { block, entry: 0 }, false).is_some()
        };
        sample.clone().filter(is_cached).count() * 2 > sample.count()
    }

    /// The newest version of `key` with a sequence number of at most `sequence`, with its value. Returns tombstones too.
    ///
    /// One search for any number of runs, without Bloom filters. With forks or tags it usually reads one entry; with
    /// tags it reads none for most absent keys.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables.
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        if self.remix.has_forks() {
            return self.get_by_forks(key, sequence);
        }
        if self.remix.has_tags() {
            return self.get_by_tag(key, sequence);
        }
        let mut block = LastBlock::new(&self.runs);
        let (position, _) = self.remix.locate(&self.runs, key, sequence, &mut block)?;
        Ok(self
            .entry_of_key(position, key, &mut block)?
            .filter(|(trailer, _)| trailer.sequence() <= sequence))
    }

    /// Prefetches the anchors that a search for `key` reads. No effect on results.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8]) {
        self.remix.anchors.near(key);
    }

    fn get_by_forks(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        let through = self.remix.anchors.count_through(key, sequence);
        let Some(number) = through.checked_sub(1) else { return Ok(None) };
        self.remix.segments.prefetch(number);
        let segment = self.remix.segments.get(number);
        let (forks, base) = segment.forks().ok_or_else(contradiction)?;
        let entries = segment.entries();
        let leaf = KeyWindow::new(key, base).candidate(forks, entries);
        // Only these entries share the tested bits of the key.
        let end = subtree_end(forks, entries, leaf, FAR);
        let candidates = || mask_where(segment.tags(), u8::MAX, tag_of(key)) & below(end) & !below(leaf);
        let mut block = LastBlock::new(&self.runs);
        if !self.remix.has_tags() || candidates() != 0 {
            let index = match end - leaf {
                1 => leaf,
                _ => segment.search(&self.runs, leaf..end, key, sequence, &mut block)?,
            };
            let position = ViewPosition { segment: number, index };
            if index < entries
                && let Some(found) = self.entry_of_key(position, key, &mut block)?
                && found.0.sequence() <= sequence
            {
                return Ok(Some(found));
            }
        }
        self.continued_version(through, key, &mut block)
    }

    /// The first entry of segment number `through` if it is an older version of `key`. By the anchors it is then the
    /// first version that the reader sees.
    #[inline]
    fn continued_version(
        &self,
        through: usize,
        key: &[u8],
        blocks: &mut LastBlock<'_>,
    ) -> Result<Option<(Trailer, ValueRef)>> {
        if !self.remix.anchors.continues(through, key) {
            return Ok(None);
        }
        self.entry_of_key(ViewPosition { segment: through, index: 0 }, key, blocks)
    }

    fn get_by_tag(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        let through = self.remix.anchors.count_through(key, sequence);
        let Some(number) = through.checked_sub(1) else { return Ok(None) };
        let segment = self.remix.segments.get(number);
        let mut block = LastBlock::new(&self.runs);
        let old = mask_of_old(segment.selectors());
        let mut candidates = mask_where(segment.tags(), u8::MAX, tag_of(key)) & below(segment.entries());
        while candidates != 0 {
            let index = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            match self.entry_of_key(ViewPosition { segment: number, index }, key, &mut block)? {
                Some((trailer, value)) if trailer.sequence() <= sequence => {
                    return Ok(Some((trailer, value)));
                }
                Some(_) => {}
                None => {
                    // Its older versions belong to another key too.
                    let versions = (old >> index >> 1).trailing_ones() as usize;
                    candidates &= !below(index + 1 + versions);
                }
            }
        }
        self.continued_version(through, key, &mut block)
    }

    /// The entry at `position` if it is one of `key`.
    #[inline]
    fn entry_of_key(
        &self,
        position: ViewPosition,
        key: &[u8],
        blocks: &mut LastBlock<'_>,
    ) -> Result<Option<(Trailer, ValueRef)>> {
        if position.segment >= self.remix.segments() {
            return Ok(None);
        }
        let segment = self.remix.segments.get(position.segment);
        let number = segment.run(position.index);
        let run = self.runs.get(number).ok_or_else(contradiction)?;
        let at = segment.position(run, number, position.index);
        let entry = blocks.block(number, at)?.entry_of_key(at.entry as usize, key);
        entry.ok_or_else(|| run.damaged(at.block))
    }
}

impl fmt::Debug for SortedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedView")
            .field("remix", &self.remix)
            .field("runs", &self.runs)
            .finish_non_exhaustive()
    }
}
