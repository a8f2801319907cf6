//! The memory of one extent, and the table through which places are resolved.
//!
//! Extents come in order, are never moved and live as long as the table. So a pointer once seen in the table
//! stays good for as long as the table is borrowed, and resolving a place takes one load.
#![allow(unsafe_code, reason = "words in memory that the program maps")]

use std::ptr;
use std::sync::atomic::AtomicPtr;

use bolide_base::Result;

use super::layout::{EXTENT_BYTES, PAGES_PER_EXTENT, Place, extent_of, within_extent};
use super::sync::{AtomicU64, Mutex};
use super::word::Word;

/// Words of a cache line.
const LINE_WORDS: usize = super::layout::LINE_BYTES / 8;
/// Words of an extent.
const EXTENT_WORDS: usize = EXTENT_BYTES / 8;

/// The memory of one extent: zeros at first, aligned to 64 bytes at least.
pub(super) trait ExtentMemory: Send + Sync + std::fmt::Debug {
    /// The first of the extent's words. They stay where they are until `self` is dropped.
    fn words(&self) -> *const Word;
}

/// Per extent: its words, and the epoch in which each of its pages was last written.
#[derive(Debug)]
struct Slot {
    words: AtomicPtr<Word>,
    epochs: AtomicPtr<AtomicU64>,
}

/// The extents of a region by number.
#[derive(Debug)]
pub(super) struct ExtentTable {
    slots: Box<[Slot]>,
    owned: Mutex<Vec<Owned>>,
}

/// Keeps alive what a slot points to.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its drop")]
struct Owned {
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
        // SAFETY: made by `new` from a box, and dropped once, with the table that hands references out.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl ExtentTable {
    /// A table for at most `extents` extents.
    pub(super) fn new(extents: usize) -> Self {
        let empty =
            |_| Slot { words: AtomicPtr::new(ptr::null_mut()), epochs: AtomicPtr::new(ptr::null_mut()) };
        Self { slots: (0..extents).map(empty).collect(), owned: Mutex::new(Vec::new()) }
    }

    /// How many extents there are.
    pub(super) fn len(&self) -> usize {
        self.owned.lock().len()
    }

    /// How many there may be.
    pub(super) fn limit(&self) -> usize {
        self.slots.len()
    }

    /// Adds the extent after the last one, made by `memory`. `None` at the limit.
    pub(super) fn grow(&self, memory: impl FnOnce(usize) -> Result<Box<dyn ExtentMemory>>) -> Result<bool> {
        use std::sync::atomic::Ordering::Release;
        let mut owned = self.owned.lock();
        let Some(slot) = self.slots.get(owned.len()) else { return Ok(false) };
        let memory = memory(owned.len())?;
        let epochs = EpochMemory::new();
        slot.epochs.store(epochs.0.as_ptr().cast::<AtomicU64>(), Release);
        // Last: whoever sees the words sees the epochs.
        slot.words.store(memory.words().cast_mut(), Release);
        owned.push(Owned { memory, epochs });
        Ok(true)
    }

    /// The `count` words from the place `at`; `None` unless `at` is a multiple of 8 and all of them are in
    /// one extent that exists.
    #[inline]
    pub(super) fn words(&self, at: Place, count: usize) -> Option<&[Word]> {
        let first = within_extent(at) / 8;
        let slot = self.slots.get(extent_of(at))?;
        let words = slot.words.load(std::sync::atomic::Ordering::Acquire);
        if words.is_null() || !at.is_multiple_of(8) || count > EXTENT_WORDS - first {
            return None;
        }
        // SAFETY: a pointer in the table is that of `EXTENT_WORDS` words which live as long as the table,
        // and `first + count` is at most that. Words are atomics: sharing them is fine.
        Some(unsafe { std::slice::from_raw_parts(words.add(first), count) })
    }

    /// The word at `at`; `None` as above.
    #[inline]
    pub(super) fn word(&self, at: Place) -> Option<&Word> {
        let slot = self.slots.get(extent_of(at))?;
        let words = slot.words.load(std::sync::atomic::Ordering::Acquire);
        if words.is_null() || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: as in `words`; the index is below `EXTENT_WORDS` because it is within the extent.
        Some(unsafe { &*words.add(within_extent(at) / 8) })
    }

    /// Asks the processor for the cache lines of `words`.
    #[inline(always)]
    pub(super) fn prefetch(words: &[Word]) {
        let (lines, rest) = words.as_chunks::<LINE_WORDS>();
        lines.iter().for_each(|line| Self::prefetch_line(&line[0]));
        if let Some(word) = rest.last() {
            Self::prefetch_line(word);
        }
    }

    /// As [`prefetch`](Self::prefetch), the last line first.
    #[inline(always)]
    pub(super) fn prefetch_back(words: &[Word]) {
        let (rest, lines) = words.as_rchunks::<LINE_WORDS>();
        lines.iter().rev().for_each(|line| Self::prefetch_line(&line[LINE_WORDS - 1]));
        if let Some(word) = rest.first() {
            Self::prefetch_line(word);
        }
    }

    /// Asks the processor for the cache line of `word`.
    #[inline(always)]
    fn prefetch_line(word: &Word) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(bolide_shuttle)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(bolide_shuttle))))]
        let _ = word;
    }

    /// The epoch in which the page of `at` was last written; `None` if there is no such page.
    #[inline]
    pub(super) fn epoch(&self, at: Place) -> Option<&AtomicU64> {
        let slot = self.slots.get(extent_of(at))?;
        let epochs = slot.epochs.load(std::sync::atomic::Ordering::Acquire);
        if epochs.is_null() {
            return None;
        }
        // SAFETY: a pointer in the table is that of `PAGES_PER_EXTENT` epochs which live as long as the
        // table, and the index is below that because the byte is within the extent.
        Some(unsafe { &*epochs.add(within_extent(at) / super::layout::PAGE_BYTES) })
    }
}

/// An extent in ordinary memory.
#[derive(Debug)]
pub(super) struct HeapExtent(heap::Memory);

impl HeapExtent {
    /// New memory. `Err` names the system's refusal.
    pub(super) fn new() -> Result<Self> {
        heap::Memory::new().map(Self)
    }

    /// The same in huge pages, as far as the system has them, and all touched already: for who has time.
    pub(super) fn touched() -> Result<Self> {
        heap::Memory::touched().map(Self)
    }
}

impl ExtentMemory for HeapExtent {
    fn words(&self) -> *const Word {
        self.0.words()
    }
}

/// Anonymous mappings: zeros that take no memory until they are touched, aligned to pages.
///
/// Huge pages are not asked for where somebody waits: where the system has to make them first, the writer that touches one
/// waits for milliseconds. Who makes memory [ahead of its use](super::Region::prepare_growth) asks for them: looking up
/// random keys of an index of 45 MB took a fifth less time in them.
#[cfg(not(any(miri, bolide_shuttle)))]
mod heap {
    use bolide_base::{Error, ErrorKind, Result};
    use memmap2::MmapMut;

    use super::super::layout::EXTENT_BYTES;
    use super::super::word::Word;
    use crate::large_pages::LargePages;

    #[derive(Debug)]
    pub(super) enum Memory {
        Small(MmapMut),
        Large(LargePages),
    }

    impl Memory {
        pub(super) fn new() -> Result<Self> {
            MmapMut::map_anon(EXTENT_BYTES).map(Self::Small).map_err(|error| none(&error))
        }

        pub(super) fn touched() -> Result<Self> {
            LargePages::touched(EXTENT_BYTES).map(Self::Large).ok_or_else(|| none(&"the system has none"))
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

/// Plain words, for interpreters and model checkers.
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

        pub(super) fn touched() -> Result<Self> {
            Self::new()
        }

        pub(super) fn words(&self) -> *const Word {
            self.0.as_ptr().cast()
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: made by `new` from a box, and dropped once, with the table that refers to it.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
