//! Which pages were written since the last cut, and the pages that a running cut still needs.
//!
//! Each page carries the epoch in which it was last written. A cut begins a new epoch while nobody writes.
//! From then on the first write to a page in the new epoch comes here: if the cut has not taken the page
//! yet, its content is copied aside first. So a cut sees every page as it was when the cut began, and its
//! writers wait for one copy of one page at most.
//!
//! Invariants: a page whose epoch is the current one is listed in `dirty`; a page of the running cut whose
//! state is `Pending` has not been written since the cut began.

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
    dirty: Vec<u64>,
    cut: Option<Running>,
}

/// A cut that is being taken.
#[derive(Debug)]
struct Running {
    /// Its pages, ascending, and how far each is.
    pages: Vec<(u64, PageState)>,
    /// The first that was not handed out.
    next: usize,
}

#[derive(Debug)]
enum PageState {
    /// Still in place, unchanged.
    Pending,
    /// Written since; this is what it was.
    Aside(Box<[u64]>),
    /// Handed out.
    Done,
}

impl DirtyPages {
    /// For a backing that takes cuts, or not.
    pub(super) fn new(takes_cuts: bool) -> Self {
        Self { epoch: AtomicU64::new(u64::from(takes_cuts)), state: Mutex::new(State::default()) }
    }

    /// Whether cuts are taken at all.
    pub(super) fn takes_cuts(&self) -> bool {
        self.epoch() != 0
    }

    /// The current epoch. It does not change under a writer's gate.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// How many pages the next cut would hold.
    pub(super) fn len(&self) -> usize {
        self.state.lock().dirty.len()
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
            cut.put_aside(table, page);
        }
        state.dirty.push(page);
        // Last: other writers go past without the lock once they see it.
        written.store(epoch, Ordering::Release);
    }

    /// Begins a cut. The caller keeps all writers out. `None` if one is running.
    pub(super) fn begin_cut(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.cut.is_some() {
            return None;
        }
        let mut pages = std::mem::take(&mut state.dirty);
        pages.sort_unstable();
        let count = pages.len();
        let pages = pages.into_iter().map(|page| (page, PageState::Pending)).collect();
        state.cut = Some(Running { pages, next: 0 });
        self.epoch.store(self.epoch() + 1, Ordering::Relaxed);
        Some(count)
    }

    /// Hands out the next page of the cut by writing it to `out`, [`PAGE_BYTES`] long.
    pub(super) fn next_page(&self, table: &ExtentTable, out: &mut [u8]) -> Option<u64> {
        let mut state = self.state.lock();
        let cut = state.cut.as_mut()?;
        let (page, state) = cut.pages.get_mut(cut.next)?;
        match std::mem::replace(state, PageState::Done) {
            PageState::Aside(words) => put_words(words.iter().copied(), out),
            // The lock keeps the first writer of this page away.
            PageState::Pending | PageState::Done => copy_page(table, *page, out),
        }
        cut.next += 1;
        Some(*page)
    }

    /// Ends the cut. Unless it was `kept` with all of its pages, they are dirty again. Says whether it was.
    pub(super) fn end_cut(&self, table: &ExtentTable, kept: bool) -> bool {
        let mut state = self.state.lock();
        let Some(cut) = state.cut.take() else { return false };
        if kept && cut.next == cut.pages.len() {
            return true;
        }
        let epoch = self.epoch();
        for (page, _) in cut.pages {
            // A page that was written since is listed already.
            let Some(written) = table.epoch(page * PAGE_BYTES as Place) else { continue };
            if written.load(Ordering::Relaxed) != epoch {
                state.dirty.push(page);
                written.store(epoch, Ordering::Release);
            }
        }
        false
    }
}

impl Running {
    /// Copies `page` if this cut still needs it.
    fn put_aside(&mut self, table: &ExtentTable, page: u64) {
        let Ok(index) = self.pages.binary_search_by_key(&page, |&(page, _)| page) else { return };
        if let Some((_, state @ PageState::Pending)) = self.pages.get_mut(index) {
            let words = table.words(page * PAGE_BYTES as Place, PAGE_WORDS).unwrap_or_default();
            *state = PageState::Aside(words.iter().map(Word::get).collect());
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
