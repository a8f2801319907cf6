//! The memory of extents, and the table that resolves offsets.
//!
//! Extents are added in order, never move and live as long as the table. So a pointer in the table is valid while the table is
//! borrowed, and resolving an offset takes one load.
#![allow(unsafe_code, reason = "words in memory that the program maps")]

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;
use std::sync::atomic::AtomicPtr;

use bolide_base::Result;
use bolide_memory::prefetch_line;

use super::layout::{EXTENT_BYTES, PAGES_PER_EXTENT, Place, extent_of, within_extent};
use super::sync::{AtomicU64, Mutex};
use super::word::Word;

/// Words of a cache line.
const LINE_WORDS: usize = super::layout::LINE_BYTES / 8;
/// Words of an extent.
const EXTENT_WORDS: usize = EXTENT_BYTES / 8;

/// The memory of one extent: zeros at first, aligned to 64 bytes at least.
pub(super) trait ExtentMemory: Send + Sync + std::fmt::Debug {
    /// The first of the extent's words. They do not move until `self` is dropped.
    fn words(&self) -> *const Word;
}

/// The words of an extent, and the epoch of the last write to each of its pages.
#[derive(Debug)]
struct ExtentEntry {
    words: AtomicPtr<Word>,
    epochs: AtomicPtr<AtomicU64>,
}

/// The extents of a region by number.
#[derive(Debug)]
pub(super) struct ExtentTable {
    entries: Box<[ExtentEntry]>,
    owned: Mutex<Vec<OwnedExtent>>,
}

/// Owns the memory of an entry.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
struct OwnedExtent {
    memory: Box<dyn ExtentMemory>,
    epochs: EpochMemory,
}

/// The epochs of an extent's pages.
#[derive(Debug)]
struct EpochMemory(ptr::NonNull<[AtomicU64]>);

// SAFETY: it owns atomics.
unsafe impl Send for EpochMemory {}
// SAFETY: it owns atomics.
unsafe impl Sync for EpochMemory {}

impl EpochMemory {
    fn new() -> Self {
        let epochs: Box<[AtomicU64]> = (0..PAGES_PER_EXTENT).map(|_| AtomicU64::new(0)).collect();
        Self(ptr::NonNull::from(Box::leak(epochs)))
    }
}

impl Drop for EpochMemory {
    fn drop(&mut self) {
        // SAFETY: created by `new` from a box, and dropped once, with the table that lends references.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Entries without extents. They are zeros from the system, so that the table of a small region takes little memory.
fn empty_entries(extents: usize) -> Box<[ExtentEntry]> {
    let layout = Layout::array::<ExtentEntry>(extents).ok().filter(|layout| layout.size() > 0);
    let Some(layout) = layout else { return Box::default() };
    // SAFETY: the layout is not of size zero.
    let Some(entries) = ptr::NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    let entries = ptr::slice_from_raw_parts_mut(entries.as_ptr().cast::<ExtentEntry>(), extents);
    // SAFETY: the global allocator returned the memory for the layout of this slice, and zeros are valid entries: atomic null
    // pointers.
    unsafe { Box::from_raw(entries) }
}

impl ExtentTable {
    /// A table for at most `extents` extents.
    pub(super) fn new(extents: usize) -> Self {
        Self { entries: empty_entries(extents), owned: Mutex::new(Vec::new()) }
    }

    /// The number of extents.
    pub(super) fn len(&self) -> usize {
        self.owned.lock().len()
    }

    /// The maximum number of extents.
    pub(super) fn limit(&self) -> usize {
        self.entries.len()
    }

    /// Adds the next extent, created by `memory`. False at the limit.
    pub(super) fn grow(&self, memory: impl FnOnce(usize) -> Result<Box<dyn ExtentMemory>>) -> Result<bool> {
        use std::sync::atomic::Ordering::Release;
        let mut owned = self.owned.lock();
        let Some(entry) = self.entries.get(owned.len()) else { return Ok(false) };
        let memory = memory(owned.len())?;
        let epochs = EpochMemory::new();
        entry.epochs.store(epochs.0.as_ptr().cast::<AtomicU64>(), Release);
        // Last: a thread that sees the words sees the epochs.
        entry.words.store(memory.words().cast_mut(), Release);
        owned.push(OwnedExtent { memory, epochs });
        Ok(true)
    }

    /// The `count` words from `at` on; `None` unless `at` is a multiple of 8 and all of them are in one existing extent.
    #[inline]
    pub(super) fn words(&self, at: Place, count: usize) -> Option<&[Word]> {
        let first = within_extent(at) / 8;
        let entry = self.entries.get(extent_of(at))?;
        let words = entry.words.load(std::sync::atomic::Ordering::Acquire);
        if words.is_null() || !at.is_multiple_of(8) || count > EXTENT_WORDS - first {
            return None;
        }
        // SAFETY: a pointer in the table points to `EXTENT_WORDS` words that live as long as the table, and `first + count` is at
        // most that. Words are atomics and may be shared.
        Some(unsafe { std::slice::from_raw_parts(words.add(first), count) })
    }

    /// The word at `at`; `None` as for [`words`](Self::words).
    #[inline]
    pub(super) fn word(&self, at: Place) -> Option<&Word> {
        let entry = self.entries.get(extent_of(at))?;
        let words = entry.words.load(std::sync::atomic::Ordering::Acquire);
        if words.is_null() || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: as in `words`; the index is below `EXTENT_WORDS` because it is within the extent.
        Some(unsafe { &*words.add(within_extent(at) / 8) })
    }

    /// Prefetches the cache lines of `words`.
    #[inline(always)]
    pub(super) fn prefetch(words: &[Word]) {
        let (lines, rest) = words.as_chunks::<LINE_WORDS>();
        lines.iter().for_each(|line| prefetch_line(&line[0]));
        if let Some(word) = rest.last() {
            prefetch_line(word);
        }
    }

    /// As [`prefetch`](Self::prefetch), the last line first.
    #[inline(always)]
    pub(super) fn prefetch_backward(words: &[Word]) {
        let (rest, lines) = words.as_rchunks::<LINE_WORDS>();
        lines.iter().rev().for_each(|line| prefetch_line(&line[LINE_WORDS - 1]));
        if let Some(word) = rest.first() {
            prefetch_line(word);
        }
    }

    /// The epoch of the last write to the page of `at`; `None` if there is no such page.
    #[inline]
    pub(super) fn epoch(&self, at: Place) -> Option<&AtomicU64> {
        let entry = self.entries.get(extent_of(at))?;
        let epochs = entry.epochs.load(std::sync::atomic::Ordering::Acquire);
        if epochs.is_null() {
            return None;
        }
        // SAFETY: a pointer in the table points to `PAGES_PER_EXTENT` epochs that live as long as the table; the index is below
        // that because the byte is within the extent.
        Some(unsafe { &*epochs.add(within_extent(at) / super::layout::PAGE_BYTES) })
    }
}

/// An extent in ordinary memory.
#[derive(Debug)]
pub(super) struct HeapExtent(heap::Memory);

impl HeapExtent {
    /// Allocates memory. `Err` contains the system's error.
    pub(super) fn new() -> Result<Self> {
        heap::Memory::new().map(Self)
    }

    /// As [`new`](Self::new), prefaulted and in huge pages if the system has them: for background threads.
    pub(super) fn prefaulted() -> Result<Self> {
        heap::Memory::prefaulted().map(Self)
    }
}

impl ExtentMemory for HeapExtent {
    fn words(&self) -> *const Word {
        self.0.words()
    }
}

/// Anonymous mappings: zeros without memory until their first access, aligned to pages.
///
/// Memory that a writer waits for is not in huge pages: the first access to one may take milliseconds. Only
/// [preallocated](super::Region::prepare_growth) memory is: lookups of random keys in an index of 45 MB take a fifth less time.
#[cfg(not(any(miri, bolide_shuttle)))]
mod heap {
    use bolide_base::{Error, ErrorKind, Result};
    use bolide_memory::LargePages;
    use memmap2::MmapMut;

    use super::super::layout::EXTENT_BYTES;
    use super::super::word::Word;

    #[derive(Debug)]
    pub(super) enum Memory {
        Small(MmapMut),
        Large(LargePages),
    }

    impl Memory {
        pub(super) fn new() -> Result<Self> {
            MmapMut::map_anon(EXTENT_BYTES).map(Self::Small).map_err(|error| none(&error))
        }

        pub(super) fn prefaulted() -> Result<Self> {
            LargePages::prefaulted(EXTENT_BYTES).map(Self::Large).ok_or_else(|| none(&"the system has none"))
        }

        pub(super) fn words(&self) -> *const Word {
            match self {
                Self::Small(map) => map.as_ptr().cast(),
                Self::Large(pages) => pages.base().as_ptr().cast_const().cast(),
            }
        }
    }

    fn none(why: &dyn std::fmt::Display) -> Error {
        let message = format!("no memory for another {EXTENT_BYTES} bytes of a region: {why}");
        Error::new(ErrorKind::NoSpace, message)
    }
}

/// Words of the allocator, for interpreters and model checkers.
#[cfg(any(miri, bolide_shuttle))]
mod heap {
    use std::ptr::NonNull;

    use bolide_base::Result;

    use super::super::sync::AtomicU64;
    use super::super::word::Word;
    use super::EXTENT_WORDS;

    #[derive(Debug)]
    pub(super) struct Memory(NonNull<[Word]>);

    // SAFETY: it owns atomics.
    unsafe impl Send for Memory {}
    // SAFETY: it owns atomics.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn new() -> Result<Self> {
            let words: Box<[Word]> = (0..EXTENT_WORDS).map(|_| Word(AtomicU64::new(0))).collect();
            Ok(Self(NonNull::from(Box::leak(words))))
        }

        pub(super) fn prefaulted() -> Result<Self> {
            Self::new()
        }

        pub(super) fn words(&self) -> *const Word {
            self.0.as_ptr().cast()
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: created by `new` from a box, and dropped once, with the table that refers to it.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
