//! Dirty pages: those written since the last checkpoint, and those that a running checkpoint still needs.
//!
//! Each page has the epoch of its last write. A checkpoint begins a new epoch without active writers. The first write to a page
//! in the new epoch comes here: if the checkpoint has not read the page yet, its content is copied first. So a checkpoint reads
//! every page in its state at the start, and a writer waits for the copy of at most one page.
//!
//! Invariants: a page with the current epoch is in `dirty`; a page in `pending` was not written since the start of the
//! checkpoint.

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
    /// 0 for backings without checkpoints: the epochs of their pages are 0 too, so no write comes here.
    epoch: AtomicU64,
    state: Mutex<DirtyState>,
}

#[derive(Debug, Default)]
struct DirtyState {
    /// Pages written in this epoch, and those of cancelled checkpoints.
    dirty: PageSet,
    checkpoint: Option<RunningCheckpoint>,
}

/// An open checkpoint.
#[derive(Debug)]
struct RunningCheckpoint {
    all: PageSet,
    /// Pages neither read nor written since the start: unchanged.
    pending: PageSet,
    /// Copies of the pages written since the start and not read yet.
    copies: BTreeMap<u64, Box<[u64]>>,
    /// All pages below it were read.
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

    /// Removes the page; returns whether the set contained it.
    fn remove(&mut self, page: u64) -> bool {
        let bit = 1 << (page % 64);
        let Some(word) = self.bits.get_mut(page as usize / 64).filter(|word| **word & bit != 0) else {
            return false;
        };
        *word &= !bit;
        self.len -= 1;
        true
    }

    /// The first page at or above `from`.
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
    /// The dirty pages of a backing with or without checkpoints.
    pub(super) fn new(supports_checkpoints: bool) -> Self {
        Self {
            epoch: AtomicU64::new(u64::from(supports_checkpoints)),
            state: Mutex::new(DirtyState::default()),
        }
    }

    /// Whether the backing has checkpoints.
    pub(super) fn supports_checkpoints(&self) -> bool {
        self.epoch() != 0
    }

    /// The current epoch, constant under a writer's gate.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// The number of pages of the next checkpoint.
    pub(super) fn len(&self) -> usize {
        self.state.lock().dirty.len
    }

    /// Prepares the page of `at` for its first write in this epoch. The caller holds the writers' gate.
    #[cold]
    #[inline(never)]
    pub(super) fn first_write(&self, table: &ExtentTable, at: Place) {
        let mut state = self.state.lock();
        let (page, epoch) = (at / PAGE_BYTES as Place, self.epoch());
        let Some(written) = table.epoch(at) else { return };
        if written.load(Ordering::Relaxed) == epoch {
            return;
        }
        if let Some(checkpoint) = &mut state.checkpoint {
            checkpoint.copy_before_write(table, page);
        }
        state.dirty.insert(page);
        // Last: other writers skip the lock once they see it.
        written.store(epoch, Ordering::Release);
    }

    /// Begins a checkpoint; returns its number of pages, or `None` if one is open. The caller blocks all writers.
    pub(super) fn begin_checkpoint(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.checkpoint.is_some() {
            return None;
        }
        let all = std::mem::take(&mut state.dirty);
        let count = all.len;
        state.checkpoint =
            Some(RunningCheckpoint { pending: all.clone(), all, copies: BTreeMap::new(), next: 0 });
        self.epoch.store(self.epoch() + 1, Ordering::Relaxed);
        Some(count)
    }

    /// Reads the next page of the checkpoint into `out`, [`PAGE_BYTES`] long.
    pub(super) fn next_page(&self, table: &ExtentTable, out: &mut [u8]) -> Option<u64> {
        let mut state = self.state.lock();
        let checkpoint = state.checkpoint.as_mut()?;
        let unchanged = checkpoint.pending.first_from(checkpoint.next);
        let copied = checkpoint.copies.first_key_value().map(|(&page, _)| page);
        let page = unchanged.into_iter().chain(copied).min()?;
        match checkpoint.copies.remove(&page) {
            Some(words) => put_words(words.iter().copied(), out),
            // The lock blocks the first writer of this page.
            None => copy_page(table, page, out),
        }
        checkpoint.pending.remove(page);
        checkpoint.next = page + 1;
        Some(page)
    }

    /// Ends the checkpoint. Its pages are dirty again unless it is `durable` and all of them were read; returns whether it is.
    pub(super) fn end_checkpoint(&self, table: &ExtentTable, durable: bool) -> bool {
        let mut state = self.state.lock();
        let Some(checkpoint) = state.checkpoint.take() else { return false };
        if durable && checkpoint.pending.len == 0 && checkpoint.copies.is_empty() {
            return true;
        }
        let epoch = self.epoch();
        for page in checkpoint.all.iter() {
            // A page that was written since the start is in the set already.
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
    /// Copies `page` if the checkpoint still needs it.
    fn copy_before_write(&mut self, table: &ExtentTable, page: u64) {
        if self.pending.remove(page) {
            let words = table.words(page * PAGE_BYTES as Place, PAGE_WORDS).unwrap_or_default();
            self.copies.insert(page, words.iter().map(Word::get).collect());
        }
    }
}

/// Copies the content of `page` to `out`, one page long.
fn copy_page(table: &ExtentTable, page: u64, out: &mut [u8]) {
    let Some(words) = table.words(page * PAGE_BYTES as Place, PAGE_WORDS) else { return };
    put_words(words.iter().map(Word::get), out);
}

fn put_words(words: impl Iterator<Item = u64>, out: &mut [u8]) {
    for (word, bytes) in words.zip(out.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}
