//! Which pages were written since the last cut, and the pages that a running cut still needs.
//!
//! Each page carries the epoch in which it was last written. A cut begins a new epoch while nobody writes.
//! From then on the first write to a page in the new epoch comes here: if the cut has not taken the page
//! yet, its content is copied aside first. So a cut sees every page as it was when the cut began, and its
//! writers wait for one copy of one page at most.
//!
//! Invariants: a page whose epoch is the current one is in `dirty`; a page in the cut's `pending` has not been
//! written since the cut began.

use std::collections::BTreeMap;

use super::extent::ExtentTable;
use super::layout::{PAGE_BYTES, Place};
use super::sync::{AtomicU64, Mutex, Ordering};
use super::word::Word;

/// Words of a page.
const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The dirty pages of a region.
#[derive(Debug)]
pub(super) struct DirtyPages {
    /// 0 for backings that take no cuts: as the epochs of pages are 0 then too, no write ever comes here.
    epoch: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Pages written in this epoch, and those of cuts that were given up.
    dirty: PageSet,
    cut: Option<RunningCheckpoint>,
}

/// A cut that is being taken.
#[derive(Debug)]
struct RunningCheckpoint {
    all: PageSet,
    /// Pages that were neither handed out nor written since: still in place, unchanged.
    pending: PageSet,
    /// Pages that were written since and not handed out, as they were.
    aside: BTreeMap<u64, Box<[u64]>>,
    /// No page below it is left.
    next: u64,
}

/// A set of pages, one bit each.
#[derive(Debug, Default, Clone)]
struct PageSet {
    bits: Vec<u64>,
    len: usize,
}

impl PageSet {
    fn insert(&mut self, page: u64) {
        let (index, bit) = (page as usize / 64, 1 << (page % 64));
        if self.bits.len() <= index {
            self.bits.resize(index + 1, 0);
        }
        if let Some(word) = self.bits.get_mut(index) {
            self.len += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Takes the page out and says whether it was in.
    fn remove(&mut self, page: u64) -> bool {
        let bit = 1 << (page % 64);
        let Some(word) = self.bits.get_mut(page as usize / 64).filter(|word| **word & bit != 0) else {
            return false;
        };
        *word &= !bit;
        self.len -= 1;
        true
    }

    /// The first page at `from` or above it.
    fn first_from(&self, from: u64) -> Option<u64> {
        let first = from as usize / 64;
        let words = self.bits.iter().enumerate().skip(first);
        words
            .map(|(index, &word)| {
                (index, if index == first { word & (u64::MAX << (from % 64)) } else { word })
            })
            .find(|&(_, word)| word != 0)
            .map(|(index, word)| index as u64 * 64 + u64::from(word.trailing_zeros()))
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        std::iter::successors(self.first_from(0), |&page| self.first_from(page + 1))
    }
}

impl DirtyPages {
    /// For a backing that takes cuts, or not.
    pub(super) fn new(supports_checkpoints: bool) -> Self {
        Self { epoch: AtomicU64::new(u64::from(supports_checkpoints)), state: Mutex::new(State::default()) }
    }

    /// Whether cuts are taken at all.
    pub(super) fn supports_checkpoints(&self) -> bool {
        self.epoch() != 0
    }

    /// The current epoch. It does not change under a writer's gate.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How many pages the next cut would hold.
    pub(super) fn len(&self) -> usize {
        self.state.lock().dirty.len
    }

    /// Prepares the page of `at` for its first write of this epoch. The caller holds the writers' gate.
    #[cold]
    #[inline(never)]
    pub(super) fn first_write(&self, table: &ExtentTable, at: Place) {
        let mut state = self.state.lock();
        let (page, epoch) = (at / PAGE_BYTES as Place, self.epoch());
        let Some(written) = table.epoch(at) else { return };
        if written.load(Ordering::Relaxed) == epoch {
            return;
        }
        if let Some(cut) = &mut state.cut {
            cut.copy_before_write(table, page);
        }
        state.dirty.insert(page);
        // Last: other writers go past without the lock once they see it.
        written.store(epoch, Ordering::Release);
    }

    /// Begins a cut. The caller keeps all writers out. `None` if one is running.
    pub(super) fn begin_checkpoint(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.cut.is_some() {
            return None;
        }
        let all = std::mem::take(&mut state.dirty);
        let count = all.len;
        state.cut = Some(RunningCheckpoint { pending: all.clone(), all, aside: BTreeMap::new(), next: 0 });
        self.epoch.store(self.epoch() + 1, Ordering::Relaxed);
        Some(count)
    }

    /// Hands out the next page of the cut by writing it to `out`, [`PAGE_BYTES`] long.
    pub(super) fn next_page(&self, table: &ExtentTable, out: &mut [u8]) -> Option<u64> {
        let mut state = self.state.lock();
        let cut = state.cut.as_mut()?;
        let in_place = cut.pending.first_from(cut.next);
        let aside = cut.aside.first_key_value().map(|(&page, _)| page);
        let page = in_place.into_iter().chain(aside).min()?;
        match cut.aside.remove(&page) {
            Some(words) => put_words(words.iter().copied(), out),
            // The lock keeps the first writer of this page away.
            None => copy_page(table, page, out),
        }
        cut.pending.remove(page);
        cut.next = page + 1;
        Some(page)
    }

    /// Ends the cut. Unless it was `kept` with all of its pages, they are dirty again. Says whether it was.
    pub(super) fn end_checkpoint(&self, table: &ExtentTable, kept: bool) -> bool {
        let mut state = self.state.lock();
        let Some(cut) = state.cut.take() else { return false };
        if kept && cut.pending.len == 0 && cut.aside.is_empty() {
            return true;
        }
        let epoch = self.epoch();
        for page in cut.all.iter() {
            // A page that was written since is listed already.
            let Some(written) = table.epoch(page * PAGE_BYTES as Place) else { continue };
            if written.load(Ordering::Relaxed) != epoch {
                state.dirty.insert(page);
                written.store(epoch, Ordering::Release);
            }
        }
        false
    }
}

impl RunningCheckpoint {
    /// Copies `page` if this cut still needs it.
    fn copy_before_write(&mut self, table: &ExtentTable, page: u64) {
        if self.pending.remove(page) {
            let words = table.words(page * PAGE_BYTES as Place, PAGE_WORDS).unwrap_or_default();
            self.aside.insert(page, words.iter().map(Word::get).collect());
        }
    }
}

/// Writes the content of `page` to `out`, whose length is that of a page.
fn copy_page(table: &ExtentTable, page: u64, out: &mut [u8]) {
    let Some(words) = table.words(page * PAGE_BYTES as Place, PAGE_WORDS) else { return };
    put_words(words.iter().map(Word::get), out);
}

fn put_words(words: impl Iterator<Item = u64>, out: &mut [u8]) {
    for (word, bytes) in words.zip(out.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}
