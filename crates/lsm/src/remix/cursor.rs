//! A cursor over all versions of a sorted view, in both directions, without key comparisons.
//!
//! For each run it has visited, the cursor holds the first entry at or after the current position; for the other
//! runs it computes that from the segment. A step forward advances the run of the current entry by one and switches
//! to the run of the next selector; a step back reverses that. Blocks are read when the cursor loads an entry of
//! them. A scan pins cached blocks of the next entries ahead of time.

use std::fmt;
use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use bolide_table::{BufferedEntry, EntryHead, InternalCursor, PinnedBlock, ValueRef};

use super::contradiction;
use super::read_ahead::ScanReadAhead;
use super::run_position::{CursorProbe, RunCursorState};
use super::run_prefetch::{self, runs_from, runs_of};
use super::search::ViewPosition;
use super::segments::MAX_WIDTH;
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};
use super::staged_seek::Preparation;
use super::view::SortedView;

/// A cursor over all entries of a [`SortedView`], old versions and tombstones included.
///
/// It yields the same entries in the same order as a [`MergingCursor`](crate::cursor::MergingCursor) over the runs.
/// The first seek reads only the blocks that it compares with.
pub struct SortedViewCursor {
    view: Arc<SortedView>,
    runs: Box<[RunCursorState]>,
    /// A bit for each run whose `position` is valid.
    known: u64,
    position: ViewPosition,
    /// The selectors of the current segment.
    selectors: [u8; MAX_WIDTH],
    /// The number of entries of the current segment.
    entries: usize,
    /// Steps to entries of the segment before this index have nothing to prefetch.
    quiet_until: usize,
    /// The run that holds the current entry; `None` while the cursor is invalid.
    current: Option<usize>,
    /// The current entry, in the pinned block of that run.
    entry: BufferedEntry,
    /// The cursor skips entries with one of these bits in their selectors: [`OLD`] or 0.
    hidden: u8,
    fill_cache: bool,
    /// Steps forward since the last seek, saturating.
    steps: u8,
    /// All runs that occur in segments before this one, from the current position on, are in `known` or on their way.
    discovered: usize,
    /// A segment and those of its runs that are not in `known` yet: their cache hints are prefetched.
    hinted: (usize, u64),
    /// A bit for each run whose next block is prefetched.
    prefetched: u64,
    /// The prepared seek and its stage.
    prepared: Preparation,
    /// The blocks that were read ahead since the last seek.
    read_ahead: ScanReadAhead,
    /// Whether the outcome of the last seek is still to be recorded in the predictor.
    seek_unrecorded: bool,
}

/// The number of entries whose runs the first step after a seek prefetches.
const FIRST_PREFETCH_ENTRIES: usize = 9;
/// The first step pins blocks at once, without waiting for a later stage, if one of this many next steps needs them.
const IMMINENT_STEPS: usize = 2;
/// After this many steps, the cursor expects a longer scan.
const MIN_SCAN_STEPS: u8 = 2;
/// The distance from the end of a segment, in entries, at which the runs of the next one are prefetched.
const LOOKAHEAD_ENTRIES: usize = 8;

/// Steps between two prefetch stages: about the latency of memory.
const STEPS_PER_STAGE: usize = 2;

/// The selector bits of the entries that a step to the next key skips.
#[inline]
pub(super) fn skipped_bits(skip_deleted: bool) -> u8 {
    if skip_deleted && Technique::VersionSkips.is_on() { OLD | TOMBSTONE } else { OLD }
}

impl SortedView {
    /// A cursor over all entries, not positioned yet. With `fill_cache`, blocks that it reads stay in the cache.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> SortedViewCursor {
        self.cursor_skipping(0, fill_cache)
    }

    /// As [`cursor`](Self::cursor), for a reader at `sequence`. If no entry of the view is newer than `sequence`, the
    /// cursor yields only the newest version of each key, tombstones included, and skips old versions by their selector
    /// bits. Otherwise it yields all versions.
    pub fn cursor_at(self: &Arc<Self>, sequence: SequenceNumber, fill_cache: bool) -> SortedViewCursor {
        let hidden = if self.largest_sequence() <= sequence { OLD } else { 0 };
        self.cursor_skipping(hidden, fill_cache)
    }

    fn cursor_skipping(self: &Arc<Self>, hidden: u8, fill_cache: bool) -> SortedViewCursor {
        SortedViewCursor {
            view: Arc::clone(self),
            runs: self.runs().iter().map(|_| RunCursorState::default()).collect(),
            known: 0,
            position: ViewPosition { segment: 0, index: 0 },
            selectors: [0; MAX_WIDTH],
            entries: 0,
            quiet_until: 0,
            current: None,
            entry: BufferedEntry::default(),
            hidden,
            fill_cache,
            steps: 0,
            discovered: 0,
            hinted: (0, 0),
            prefetched: 0,
            prepared: Preparation::default(),
            read_ahead: ScanReadAhead::default(),
            seek_unrecorded: false,
        }
    }
}

impl SortedViewCursor {
    /// The view of the cursor.
    pub fn view(&self) -> &Arc<SortedView> {
        &self.view
    }

    /// The value of the current entry, pinned: it outlives the cursor's next step without a copy.
    pub fn value_ref(&self) -> ValueRef {
        self.block().map_or_else(|| ValueRef::from(Vec::new()), |block| self.entry.value_ref(block))
    }

    /// The block of the current entry.
    #[inline]
    fn block(&self) -> Option<&PinnedBlock> {
        self.runs.get(self.current?)?.block.as_ref()
    }

    #[inline]
    fn selector(&self) -> u8 {
        self.selectors.get(self.position.index).copied().unwrap_or(0)
    }

    /// Whether the entry at the position is an older version of the key of the previous entry.
    #[inline]
    pub(super) fn is_old(&self) -> bool {
        self.selector() & OLD != 0
    }

    /// Whether there is a next entry and it is an older version of this key.
    #[inline]
    pub(super) fn next_is_old(&self) -> bool {
        let segments = &self.view.remix().segments;
        if self.position.index + 1 < self.entries {
            return self.selectors.get(self.position.index + 1).is_some_and(|selector| selector & OLD != 0);
        }
        self.position.segment + 1 < segments.count() && segments.get(self.position.segment + 1).starts_old()
    }

    /// Whether there is an entry at the position.
    #[inline]
    pub(super) fn has_position(&self) -> bool {
        self.position.segment < self.view.remix().segments.count()
    }

    pub(super) fn set_position(&mut self, position: ViewPosition) {
        (self.steps, self.discovered, self.known) = (0, 0, 0);
        (self.hinted, self.prefetched) = ((0, 0), 0);
        self.current = None;
        self.enter_segment(position.segment);
        self.position.index = position.index;
    }

    /// Moves to the first entry of a segment.
    #[inline]
    fn enter_segment(&mut self, number: usize) {
        self.position = ViewPosition { segment: number, index: 0 };
        self.quiet_until = 0;
        let segment = self.view.remix().segments.get(number);
        self.entries = segment.entries();
        let selectors = segment.selectors();
        if let Some(start) = self.selectors.get_mut(..selectors.len()) {
            start.copy_from_slice(selectors);
        }
    }

    fn end(&mut self) {
        self.set_position(ViewPosition { segment: self.view.remix().segments.count(), index: 0 });
    }

    /// Moves to the next position without reading. After the last entry there is none.
    #[inline]
    pub(super) fn advance(&mut self) {
        if !self.has_position() {
            return;
        }
        let run = usize::from(self.selector() & RUN_BITS);
        if self.known >> run & 1 == 1
            && let (Some(state), Some(source)) = (self.runs.get_mut(run), self.view.runs().get(run))
        {
            state.set_position(source.advance(state.position, 1));
        }
        self.current = None;
        self.position.index += 1;
        if self.position.index >= self.entries {
            self.enter_segment(self.position.segment + 1);
        }
    }

    /// Moves to the previous position without reading. Before the first entry there is none.
    #[inline]
    pub(super) fn retreat(&mut self) {
        self.current = None;
        if self.position.index == 0 {
            let Some(segment) = self.position.segment.checked_sub(1) else { return self.end() };
            self.enter_segment(segment);
            self.position.index = self.entries;
        }
        self.position.index = self.position.index.saturating_sub(1);
        // Runs that were discovered for later entries may now occur earlier: discovery restarts.
        (self.discovered, self.quiet_until, self.hinted) = (0, 0, (0, 0));
        let run = usize::from(self.selector() & RUN_BITS);
        if self.known >> run & 1 == 1
            && let (Some(state), Some(source)) = (self.runs.get_mut(run), self.view.runs().get(run))
        {
            state.set_position(source.retreat(state.position));
        }
    }

    /// Moves back to the previous entry that is not hidden.
    #[inline]
    fn step_back(&mut self) {
        self.retreat();
        while self.has_position() && self.selector() & self.hidden != 0 {
            self.retreat();
        }
    }

    /// Reads the entry at the position, if there is one.
    #[inline]
    pub(super) fn load_entry(&mut self) -> Result<()> {
        self.current = None;
        if !self.has_position() {
            return Ok(());
        }
        let number = usize::from(self.selector() & RUN_BITS);
        let (Some(run), Some(source)) = (self.runs.get_mut(number), self.view.runs().get(number)) else {
            return Err(contradiction());
        };
        if self.known >> number & 1 == 0 {
            let segment = self.view.remix().segments.get(self.position.segment);
            run.set_position(segment.position(source, number, self.position.index));
            self.known |= 1 << number;
        }
        run.normalize(source);
        let at = run.position;
        let (view, ahead, position) = (&self.view, &mut self.read_ahead, self.position);
        let is_scan = self.steps > 0;
        let block = run.pin_block(source, at, self.fill_cache, || {
            if is_scan {
                ahead.start(view, position);
            }
        })?;
        if !self.entry.go_to(block, at.entry as usize) {
            return Err(source.damaged(at.block));
        }
        if self.steps > 0 {
            self.entry.prefetch_next(block);
        }
        run.set_position(at);
        self.current = Some(number);
        Ok(())
    }

    /// Moves to the next entry and loads it, as a step of a scan, if its block is pinned. Returns false without moving if
    /// it is not, or if the selector of the next entry has a bit of `skipped`: the caller then calls
    /// [`step`](Self::step).
    #[inline(never)]
    pub(super) fn step_in_block(&mut self, skipped: u8) -> bool {
        let index = self.position.index + 1;
        let Some(left) = self.current.filter(|_| Technique::PinnedSteps.is_on()) else { return false };
        if index >= self.quiet_until {
            self.prefetch_for_scan();
        }
        let Some(&selector) = self.selectors.get(index) else { return false };
        let number = usize::from(selector & RUN_BITS);
        if index >= self.entries || selector & skipped != 0 || self.known >> number & 1 == 0 {
            return false;
        }
        let Some(next) = self.runs.get(number) else { return false };
        let entry = next.position.entry + u32::from(number == left);
        let Some(block) = next.block.as_ref().filter(|_| entry < next.entries) else { return false };
        if !self.entry.step_to(block, entry as usize) {
            return false;
        }
        self.entry.prefetch_next(block);
        (self.position.index, self.current) = (index, Some(number));
        if let Some(run) = self.runs.get_mut(left) {
            run.position.entry += 1;
            if run.position.entry >= run.entries {
                self.prefetch_next_block_of(left);
            }
        }
        true
    }

    /// Prefetches the next block of a run after a step past the last entry of its pinned block.
    #[cold]
    fn prefetch_next_block_of(&mut self, number: usize) {
        let (Some(run), Some(source)) = (self.runs.get(number), self.view.runs().get(number)) else { return };
        source.prefetch_listed(source.advance(run.position, 0));
        self.prefetched |= 1 << number;
        self.quiet_until = 0;
    }

    /// Finds the runs not in `known` among the next `entries` entries from `position` on, within its segment, and
    /// prefetches their cache hints. No I/O.
    fn discover_runs(&mut self, position: ViewPosition, entries: usize) {
        let unknown = runs_from(&self.view, position, entries) & !self.known;
        run_prefetch::prefetch_hints(&self.view, position.segment, unknown);
        self.hinted = (position.segment, unknown);
    }

    /// Whether a prefetch stage is pending.
    #[inline]
    fn is_prefetching(&self) -> bool {
        self.prefetched | self.hinted.1 != 0
    }

    /// Runs the next prefetch stage.
    #[inline]
    fn prefetch_stage(&mut self) {
        run_prefetch::pin_blocks(
            &self.view,
            &mut self.runs,
            std::mem::take(&mut self.prefetched),
            self.fill_cache,
        );
        let (segment, hinted) = std::mem::take(&mut self.hinted);
        let position =
            if segment == self.position.segment { self.position } else { ViewPosition { segment, index: 0 } };
        if hinted != 0 && position >= self.position {
            // The cursor may have loaded entries of some of them since.
            self.prefetched = hinted & !self.known;
            self.known |= hinted;
            run_prefetch::prefetch_blocks(&self.view, &mut self.runs, position, self.prefetched);
        }
    }

    /// Prefetches for the next steps of a scan: finds the runs of the next entries and prefetches them, one stage at a
    /// time.
    #[inline(never)]
    fn prefetch_for_scan(&mut self) {
        if self.steps == 0 {
            self.record_seek(true);
            if let Some(block) = self.block() {
                self.entry.prefetch_next(block);
            }
            self.discover_runs(self.position, FIRST_PREFETCH_ENTRIES);
            self.prefetch_stage();
            let index = self.position.index + 1;
            let imminent =
                self.selectors.get(index..(index + IMMINENT_STEPS).min(self.entries)).unwrap_or_default();
            if self.prefetched & runs_of(imminent) != 0 {
                self.prefetch_stage();
            }
        } else if self.is_prefetching() {
            self.prefetch_stage();
        } else if self.steps >= MIN_SCAN_STEPS {
            self.discover_ahead();
        }
        self.steps = self.steps.saturating_add(1);
        self.quiet_until = self.quiet_until();
    }

    /// Moves to the next position whose selector has no bit of `skipped`. Does not read the skipped entries.
    #[inline]
    pub(super) fn step(&mut self, skipped: u8) {
        self.advance();
        while self.has_position() && self.selector() & skipped != 0 {
            self.advance();
        }
    }

    /// The value of the field for the current state.
    #[inline]
    fn quiet_until(&self) -> usize {
        if self.is_prefetching() {
            self.position.index + 1 + STEPS_PER_STAGE
        } else if self.steps < MIN_SCAN_STEPS || self.discovered <= self.position.segment {
            0
        } else if self.discovered == self.position.segment + 1 {
            self.entries.saturating_sub(LOOKAHEAD_ENTRIES)
        } else {
            self.entries
        }
    }

    /// Discovers the runs of the rest of the segment, and near its end those of the next one.
    #[inline]
    fn discover_ahead(&mut self) {
        let (segment, ends) =
            (self.position.segment, self.position.index + LOOKAHEAD_ENTRIES >= self.entries);
        if self.discovered <= segment {
            self.discover_runs(self.position, MAX_WIDTH);
            self.discovered = segment + 1;
        } else if ends && self.discovered == segment + 1 {
            self.discover_runs(ViewPosition { segment: segment + 1, index: 0 }, MAX_WIDTH);
            self.discovered = segment + 2;
        }
    }

    /// Records in the predictor whether a step forward followed the last seek, unless already recorded.
    #[inline]
    fn record_seek(&mut self, stepped: bool) {
        if std::mem::replace(&mut self.seek_unrecorded, false) {
            self.view.predictor().record(stepped);
        }
    }

    /// Prefetches what a scan after the seek reads, if the predictor expects a scan.
    #[inline]
    fn begin_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.record_seek(false);
        self.seek_unrecorded = true;
        if self.prepared.is_begun() {
            return;
        }
        self.read_ahead.reset();
        if self.view.predictor().predicts() && self.view.remix().has_forks() {
            self.prepare_seek(key, sequence);
            while self.prepare_next_stage() {}
        }
    }

    fn locate(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.current = None;
        let leaf = self.prepared.take_leaf(key, sequence);
        let mut probe = CursorProbe { view: &self.view, runs: &mut self.runs, fill_cache: self.fill_cache };
        let (remix, runs) = (self.view.remix(), self.view.runs());
        let located = match leaf {
            Some(leaf) => remix
                .locate_from_leaf(leaf, runs, key, sequence, &mut probe)
                .map(|(position, _)| (position, Some(leaf))),
            None => remix.locate(runs, key, sequence, &mut probe),
        };
        match located {
            Ok((position, leaf)) => {
                self.set_position(position);
                // The leaf is usually the result: then the position in its run is known.
                if let Some(leaf) = leaf.filter(|leaf| leaf.position == position)
                    && let Some(run) = self.runs.get_mut(leaf.run)
                {
                    run.set_position(leaf.at);
                    self.known = 1 << leaf.run;
                }
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.end();
        error
    }

    /// [`load_entry`](Self::load_entry); after an error the cursor is at the end.
    #[inline]
    pub(super) fn load_entry_or_end(&mut self) -> Result<()> {
        self.load_entry().map_err(|error| self.fail(error))
    }
}

impl InternalCursor for SortedViewCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.current.is_some() { self.entry.key() } else { &[] }
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        if self.current.is_some() { self.entry.trailer() } else { Trailer::from_bits(0) }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block().map_or(&[], |block| self.entry.value(block))
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.read_ahead.reset();
        self.set_position(ViewPosition { segment: 0, index: 0 });
        self.load_entry_or_end()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.end();
        self.step_back();
        self.load_entry_or_end()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.begin_seek(key, sequence);
        self.locate(key, sequence)?;
        // Skips the key if all of its versions that are not hidden are too new.
        while self.has_position() && self.selector() & self.hidden != 0 {
            self.advance();
        }
        self.load_entry_or_end()
    }

    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.read_ahead.reset();
        self.prepared.begin(&self.view, key, sequence);
    }

    #[inline]
    fn prepare_next_stage(&mut self) -> bool {
        self.prepared.advance(&self.view, &mut self.runs, &mut self.read_ahead, self.fill_cache)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        // A backward scan follows, which is no evidence of forward scans.
        self.record_seek(false);
        self.read_ahead.reset();
        self.locate(key, MAX_SEQUENCE)?;
        self.step_back();
        self.load_entry_or_end()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.current.is_none() || self.step_in_block(self.hidden) {
            return Ok(());
        }
        self.step(self.hidden);
        self.load_entry_or_end()
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        self.next()?;
        let head = || EntryHead { key_head: self.entry.key_head(), trailer: self.entry.trailer() };
        Ok(self.current.is_some().then(head))
    }

    #[inline]
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        (self.hidden == OLD && self.step_in_block(OLD))
            .then(|| EntryHead { key_head: self.entry.key_head(), trailer: self.entry.trailer() })
    }

    #[inline]
    fn supports_try_next_distinct(&self) -> bool {
        self.hidden == OLD
    }

    #[inline]
    fn yields_keys_once(&self) -> bool {
        self.hidden == OLD
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        self.step_back();
        self.load_entry_or_end()
    }
}

impl Drop for SortedViewCursor {
    fn drop(&mut self) {
        self.record_seek(false);
    }
}

impl fmt::Debug for SortedViewCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedViewCursor")
            .field("view", &self.view)
            .field("position", &self.position)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
