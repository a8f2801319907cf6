//! All versions of a sorted view, in both directions, without key comparisons.
//!
//! The cursor keeps, for each run it has met, the first entry at or behind the current place; of the others the
//! segment tells where they are. A step forward moves the run of the current entry on by one and takes the run that
//! the next selector names; a step back undoes that. Blocks are read when an entry of them is
//! shown; those in the cache are taken in hand before, while a scan looks around.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, HeldEntry, InternalCursor, PinnedBlock, ValueRef};

use super::run_prefetch::{self, runs_from, runs_of};
use super::contradiction;
use super::staged_seek::Preparation;
use super::run_position::{CursorProbe, RunPlace};
use super::search::Place;
use super::segments::MAX_WIDTH;
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};
use super::view::SortedView;

/// A cursor over all entries of a [`SortedView`], old versions and tombstones included.
///
/// It shows the same entries in the same order as a [`MergingCursor`](crate::cursor::MergingCursor) over the runs.
/// The first seek opens nothing but the blocks that it compares with.
pub struct SortedViewCursor {
    view: Arc<SortedView>,
    runs: Box<[RunPlace]>,
    /// A bit for each run whose `position` is right.
    known: u64,
    place: Place,
    /// The selectors of the current segment; how many entries it has.
    selectors: [u8; MAX_WIDTH],
    entries: usize,
    /// Steps to places of the segment before this one find nothing to be met or asked for.
    quiet_until: usize,
    /// The run that holds the current entry; `None` while the cursor is invalid.
    current: Option<usize>,
    /// The current entry, in the block in hand of that run.
    held: HeldEntry,
    /// Of an entry with one of these bits in its selector the cursor knows nothing: [`OLD`] or 0.
    hidden: u8,
    fill_cache: bool,
    /// Steps forward since the last seek, as far as that can count.
    steps: u8,
    /// All runs that are met in segments before this one are known.
    met: usize,
    /// Runs that come up in a segment, which are not known yet: their hints are asked for.
    hinted: (usize, u64),
    /// Runs whose next blocks are asked for.
    asked: u64,
    /// How far a seek is prepared.
    prepared: Preparation,
    /// It is not known yet whether steps follow the last seek.
    is_sought: bool,
}

/// The entries whose runs the first step after a seek asks for.
const FIRST_ASKED: usize = 9;
/// What is asked for is waited for where it is that of one of so many steps.
const SOON: usize = 2;
/// Who takes as many steps will take more.
const FIRST_STEPS: u8 = 2;
/// As many entries before the end of a segment the runs of the next one are asked for.
const AHEAD: usize = 8;

/// Steps from one stage to the next: about as long as memory takes.
const STEPS_OF_STAGE: usize = 2;

/// The bits of selectors whose entries a step to the next key passes over.
#[inline]
pub(super) fn passed(pass_deleted: bool) -> u8 {
    if pass_deleted { OLD | TOMBSTONE } else { OLD }
}

impl SortedView {
    /// A cursor over all entries, not positioned yet. With `fill_cache`, blocks that it reads stay in the cache.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> SortedViewCursor {
        self.cursor_without(0, fill_cache)
    }

    /// As [`cursor`](Self::cursor), for a reader who sees what was written up to `sequence` and no other versions. What such
    /// a reader has no use for need not be shown: where nothing in the view is newer, of each key only the newest version
    /// is, tombstones included, and those behind it are passed over by their bits; else all of them are.
    pub fn cursor_at(self: &Arc<Self>, sequence: SequenceNumber, fill_cache: bool) -> SortedViewCursor {
        let hidden = if self.largest_sequence() <= sequence { OLD } else { 0 };
        self.cursor_without(hidden, fill_cache)
    }

    fn cursor_without(self: &Arc<Self>, hidden: u8, fill_cache: bool) -> SortedViewCursor {
        SortedViewCursor {
            view: Arc::clone(self),
            runs: self.runs().iter().map(|_| RunPlace::default()).collect(),
            known: 0,
            place: Place { segment: 0, index: 0 },
            selectors: [0; MAX_WIDTH],
            entries: 0,
            quiet_until: 0,
            current: None,
            held: HeldEntry::default(),
            hidden,
            fill_cache,
            steps: 0,
            met: 0,
            hinted: (0, 0),
            asked: 0,
            prepared: Preparation::default(),
            is_sought: false,
        }
    }
}

impl SortedViewCursor {
    /// The view that the cursor goes through.
    pub fn view(&self) -> &Arc<SortedView> {
        &self.view
    }

    /// The value of the current entry, pinned: it outlives the cursor's next step without a copy.
    pub fn value_ref(&self) -> ValueRef {
        self.block().map_or_else(|| ValueRef::from(Vec::new()), |block| self.held.value_ref(block))
    }

    /// The block of the current entry.
    #[inline]
    fn block(&self) -> Option<&PinnedBlock> {
        self.runs.get(self.current?)?.block.as_ref()
    }

    #[inline]
    fn selector(&self) -> u8 {
        self.selectors.get(self.place.index).copied().unwrap_or(0)
    }

    /// True if the place is that of an older version of the same key as the entry before.
    #[inline]
    pub(super) fn is_old(&self) -> bool {
        self.selector() & OLD != 0
    }

    /// True if there is a place behind this one, and it is that of an older version of this key.
    #[inline]
    pub(super) fn next_is_old(&self) -> bool {
        let segments = &self.view.remix().segments;
        if self.place.index + 1 < self.entries {
            return self.selectors.get(self.place.index + 1).is_some_and(|selector| selector & OLD != 0);
        }
        self.place.segment + 1 < segments.count() && segments.get(self.place.segment + 1).starts_old()
    }

    /// True while the place is that of an entry.
    #[inline]
    pub(super) fn has_place(&self) -> bool {
        self.place.segment < self.view.remix().segments.count()
    }

    pub(super) fn set_place(&mut self, place: Place) {
        (self.steps, self.met, self.known) = (0, 0, 0);
        (self.hinted, self.asked) = ((0, 0), 0);
        self.current = None;
        self.enter_segment(place.segment);
        self.place.index = place.index;
    }

    /// Goes to the first entry of a segment.
    #[inline]
    fn enter_segment(&mut self, number: usize) {
        self.place = Place { segment: number, index: 0 };
        self.quiet_until = 0;
        let segment = self.view.remix().segments.get(number);
        self.entries = segment.entries();
        let selectors = segment.selectors();
        if let Some(start) = self.selectors.get_mut(..selectors.len()) {
            start.copy_from_slice(selectors);
        }
    }

    fn end(&mut self) {
        self.set_place(Place { segment: self.view.remix().segments.count(), index: 0 });
    }

    /// Goes one place on, without reading. Behind the last entry there is none.
    #[inline]
    pub(super) fn advance(&mut self) {
        if !self.has_place() {
            return;
        }
        let run = usize::from(self.selector() & RUN_BITS);
        if self.known >> run & 1 == 1
            && let (Some(place), Some(source)) = (self.runs.get_mut(run), self.view.runs().get(run))
        {
            place.lead_to(source.advance(place.position, 1));
        }
        self.current = None;
        self.place.index += 1;
        if self.place.index >= self.entries {
            self.enter_segment(self.place.segment + 1);
        }
    }

    /// Goes one place back, without reading. Before the first entry there is none.
    #[inline]
    pub(super) fn retreat(&mut self) {
        self.current = None;
        if self.place.index == 0 {
            let Some(segment) = self.place.segment.checked_sub(1) else { return self.end() };
            self.enter_segment(segment);
            self.place.index = self.entries;
        }
        self.place.index = self.place.index.saturating_sub(1);
        // The runs of entries behind are known up to here alone, and those that come up may be met before.
        (self.met, self.quiet_until, self.hinted) = (0, 0, (0, 0));
        let run = usize::from(self.selector() & RUN_BITS);
        if self.known >> run & 1 == 1
            && let (Some(place), Some(source)) = (self.runs.get_mut(run), self.view.runs().get(run))
        {
            place.lead_to(source.retreat(place.position));
        }
    }

    /// Goes back to the place before that has an entry to be shown.
    #[inline]
    fn step_back(&mut self) {
        self.retreat();
        while self.has_place() && self.selector() & self.hidden != 0 {
            self.retreat();
        }
    }

    /// Reads the entry at the place, if there is one.
    #[inline]
    pub(super) fn show(&mut self) -> Result<()> {
        self.current = None;
        if !self.has_place() {
            return Ok(());
        }
        let number = usize::from(self.selector() & RUN_BITS);
        let (Some(run), Some(source)) = (self.runs.get_mut(number), self.view.runs().get(number)) else {
            return Err(contradiction());
        };
        if self.known >> number & 1 == 0 {
            let segment = self.view.remix().segments.get(self.place.segment);
            run.lead_to(segment.position(source, number, self.place.index));
            self.known |= 1 << number;
        }
        run.settle(source);
        let at = run.position;
        let block = run.enter(source, at, self.fill_cache)?;
        if !self.held.go_to(block, at.entry as usize) {
            return Err(source.damaged(at.block));
        }
        if self.steps > 0 {
            self.held.prefetch_next(block);
        }
        run.lead_to(at);
        self.current = Some(number);
        Ok(())
    }

    /// Goes one place on and shows the entry there, as a step of a scan, where its block is in hand. False where that is
    /// not so, or the entry is one of those that a bit of `passed` in its selector says are passed over; then the place
    /// stays what it is, and [`step`](Self::step) goes on.
    #[inline(never)]
    pub(super) fn step_in_hand(&mut self, passed: u8) -> bool {
        let index = self.place.index + 1;
        let Some(left) = self.current else { return false };
        if index >= self.quiet_until {
            self.look_around();
        }
        let Some(&selector) = self.selectors.get(index) else { return false };
        let number = usize::from(selector & RUN_BITS);
        if index >= self.entries || selector & passed != 0 || self.known >> number & 1 == 0 {
            return false;
        }
        let Some(next) = self.runs.get(number) else { return false };
        let entry = next.position.entry + u32::from(number == left);
        let Some(block) = next.block.as_ref().filter(|_| entry < next.entries) else { return false };
        if !self.held.step_to(block, entry as usize) {
            return false;
        }
        self.held.prefetch_next(block);
        (self.place.index, self.current) = (index, Some(number));
        if let Some(run) = self.runs.get_mut(left) {
            run.position.entry += 1;
            if run.position.entry >= run.entries {
                self.prefetch_next_block_of(left);
            }
        }
        true
    }

    /// Asks the processor for the block behind that in hand, of a run whose last entry there was left.
    #[cold]
    fn prefetch_next_block_of(&mut self, number: usize) {
        let (Some(run), Some(source)) = (self.runs.get(number), self.view.runs().get(number)) else { return };
        source.prefetch_listed(source.advance(run.position, 0));
        self.asked |= 1 << number;
        self.quiet_until = 0;
    }

    /// Finds the runs that the cursor has not met yet, of the entries from `place` on, so many or those of its segment,
    /// and asks the processor for their hints. No I/O.
    fn meet(&mut self, place: Place, entries: usize) {
        let unmet = runs_from(&self.view, place, entries) & !self.known;
        run_prefetch::prefetch_hints(&self.view, place.segment, unmet);
        self.hinted = (place.segment, unmet);
    }

    /// True until all that is met is in the processor.
    #[inline]
    fn is_asking(&self) -> bool {
        self.asked | self.hinted.1 != 0
    }

    /// Asks for what the stage before led to.
    #[inline]
    fn prefetch_on(&mut self) {
        run_prefetch::come_to(&self.view, &mut self.runs, std::mem::take(&mut self.asked), self.fill_cache);
        let (segment, hinted) = std::mem::take(&mut self.hinted);
        let place = if segment == self.place.segment { self.place } else { Place { segment, index: 0 } };
        if hinted != 0 && place >= self.place {
            // Some may have been shown since.
            self.asked = hinted & !self.known;
            self.known |= hinted;
            run_prefetch::lead_to(&self.view, &mut self.runs, place, self.asked);
        }
    }

    /// What the steps of a scan do for those behind them: they find out which runs come up next, and ask the processor
    /// for the entries there, a stage each step.
    #[inline(never)]
    fn look_around(&mut self) {
        if self.steps == 0 {
            self.note_seek(true);
            if let Some(block) = self.block() {
                self.held.prefetch_next(block);
            }
            self.meet(self.place, FIRST_ASKED);
            self.prefetch_on();
            let index = self.place.index + 1;
            let soon = self.selectors.get(index..(index + SOON).min(self.entries)).unwrap_or_default();
            if self.asked & runs_of(soon) != 0 {
                self.prefetch_on();
            }
        } else if self.is_asking() {
            self.prefetch_on();
        } else if self.steps >= FIRST_STEPS {
            self.look_ahead();
        }
        self.steps = self.steps.saturating_add(1);
        self.quiet_until = self.quiet_until();
    }

    /// Goes on to the next place whose selector has no bit of `passed`. What is passed over is not read.
    #[inline]
    pub(super) fn step(&mut self, passed: u8) {
        self.advance();
        while self.has_place() && self.selector() & passed != 0 {
            self.advance();
        }
    }

    /// See the field.
    #[inline]
    fn quiet_until(&self) -> usize {
        if self.is_asking() {
            self.place.index + 1 + STEPS_OF_STAGE
        } else if self.steps < FIRST_STEPS || self.met <= self.place.segment {
            0
        } else if self.met == self.place.segment + 1 {
            self.entries.saturating_sub(AHEAD)
        } else {
            self.entries
        }
    }

    /// Meets the runs of the rest of the segment, and towards its end those of the next one.
    #[inline]
    fn look_ahead(&mut self) {
        let (segment, ends) = (self.place.segment, self.place.index + AHEAD >= self.entries);
        if self.met <= segment {
            self.meet(self.place, MAX_WIDTH);
            self.met = segment + 1;
        } else if ends && self.met == segment + 1 {
            self.meet(Place { segment: segment + 1, index: 0 }, MAX_WIDTH);
            self.met = segment + 2;
        }
    }

    /// Notes whether steps forward follow the last seek, if that is not noted.
    #[inline]
    fn note_seek(&mut self, stepped: bool) {
        if std::mem::replace(&mut self.is_sought, false) {
            self.view.predictor().note(stepped);
        }
    }

    /// Asks for what a scan behind a seek reads, where scans are the habit.
    #[inline]
    fn begin_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.note_seek(false);
        self.is_sought = true;
        if self.view.predictor().holds() && !self.prepared.is_begun() && self.view.remix().has_forks() {
            self.prepare_seek(key, sequence);
            while self.prepare_further() {}
        }
    }

    fn locate(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.current = None;
        let leaf = self.prepared.take_leaf(key, sequence);
        let mut probe = CursorProbe { view: &self.view, runs: &mut self.runs, fill_cache: self.fill_cache };
        let (remix, runs) = (self.view.remix(), self.view.runs());
        let located = match leaf {
            Some(leaf) => remix
                .locate_beside(leaf, runs, key, sequence, &mut probe)
                .map(|(place, _)| (place, Some(leaf))),
            None => remix.locate(runs, key, sequence, &mut probe),
        };
        match located {
            Ok((place, leaf)) => {
                self.set_place(place);
                // As a rule that is the place, so that its run is known.
                if let Some(leaf) = leaf.filter(|leaf| leaf.place == place)
                    && let Some(run) = self.runs.get_mut(leaf.run)
                {
                    run.lead_to(leaf.at);
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

    /// [`show`](Self::show); after an error the cursor has no place.
    #[inline]
    pub(super) fn shown(&mut self) -> Result<()> {
        self.show().map_err(|error| self.fail(error))
    }
}

impl InternalCursor for SortedViewCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.current.is_some() { self.held.key() } else { &[] }
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        if self.current.is_some() { self.held.trailer() } else { Trailer::from_bits(0) }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block().map_or(&[], |block| self.held.value(block))
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.set_place(Place { segment: 0, index: 0 });
        self.shown()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.end();
        self.step_back();
        self.shown()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.begin_seek(key, sequence);
        self.locate(key, sequence)?;
        // Where all versions that are shown of the key are too new.
        while self.has_place() && self.selector() & self.hidden != 0 {
            self.advance();
        }
        self.shown()
    }

    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.prepared.begin(&self.view, key, sequence);
    }

    #[inline]
    fn prepare_further(&mut self) -> bool {
        self.prepared.go_on(&self.view, &mut self.runs, self.fill_cache)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        // What follows goes back, and tells nothing of scans.
        self.note_seek(false);
        self.locate(key, MAX_SEQUENCE)?;
        self.step_back();
        self.shown()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.current.is_none() || self.step_in_hand(self.hidden) {
            return Ok(());
        }
        self.step(self.hidden);
        self.shown()
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        self.next()?;
        let head = || EntryHead { key_head: self.held.key_head(), trailer: self.held.trailer() };
        Ok(self.current.is_some().then(head))
    }

    #[inline]
    fn next_in_hand(&mut self) -> Option<EntryHead> {
        (self.hidden == OLD && self.step_in_hand(OLD))
            .then(|| EntryHead { key_head: self.held.key_head(), trailer: self.held.trailer() })
    }

    #[inline]
    fn can_have_next_in_hand(&self) -> bool {
        self.hidden == OLD
    }

    #[inline]
    fn shows_keys_once(&self) -> bool {
        self.hidden == OLD
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.current.is_none() {
            return Ok(());
        }
        self.step_back();
        self.shown()
    }
}

impl Drop for SortedViewCursor {
    fn drop(&mut self) {
        self.note_seek(false);
    }
}

impl fmt::Debug for SortedViewCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedViewCursor")
            .field("view", &self.view)
            .field("place", &self.place)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
