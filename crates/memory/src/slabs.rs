//! A slab allocator: *slabs* of 2 MiB in large pages, divided into granules of 256 bytes.
//!
//! ```text
//! slab     8192 granules of 256 bytes
//! piece    adjacent granules of one slab
//! ```
//!
//! A new slab is allocated only while the existing ones are full enough. An empty slab is freed; one empty slab is retained.

// Addresses of divided memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use crate::granule_bitmap::{GRANULES, GranuleBitmap};
use crate::large_pages::LargePages;
use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::page_pool::PagePool;

/// Bytes of a granule.
const GRANULE_BYTES: usize = 256;
const _: () = assert!(GRANULE_BYTES * GRANULES == LARGE_PAGE_BYTES);

/// Slabs and the bitmaps of their used granules.
#[derive(Debug)]
pub(crate) struct Slabs {
    /// The pool whose free pages become slabs.
    pages: Arc<PagePool>,
    /// A slab is added when this many eighths of all granules are used.
    full_eighths: usize,
    /// By number; `None` for a freed slab.
    slabs: Vec<Option<Slab>>,
    /// Numbers of the slabs that may have free granules.
    open: Vec<u32>,
    /// Numbers of freed slabs.
    unused: Vec<u32>,
    /// Allocated slabs.
    count: usize,
    /// Slabs without used granules; at most one is retained.
    empty: usize,
    /// Granules of all pieces.
    used: usize,
}

/// One slab.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Undefined content. No piece of it is in use when it is dropped, since a piece keeps all slabs alive.
    memory: LargePages,
    granules: GranuleBitmap,
    is_open: bool,
}

/// An allocation in a slab, with undefined content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabPiece {
    /// The number of the slab.
    pub(crate) slab: u32,
    /// Its first byte, at a multiple of 256.
    pub(crate) memory: NonNull<u8>,
}

impl Slabs {
    /// An allocator without slabs. It adds a third slab, and later ones, only while `full_eighths` eighths of all granules are
    /// used. Slabs come from `pages` if that has a free page, and are returned to the system.
    pub(crate) fn new(full_eighths: usize, pages: Arc<PagePool>) -> Self {
        Self {
            pages,
            full_eighths,
            slabs: Vec::new(),
            open: Vec::new(),
            unused: Vec::new(),
            count: 0,
            empty: 0,
            used: 0,
        }
    }

    /// The size of a piece of `bytes` bytes, rounded up to whole granules.
    #[inline]
    pub(crate) const fn piece_bytes(bytes: usize) -> usize {
        bytes.div_ceil(GRANULE_BYTES) * GRANULE_BYTES
    }

    /// The size of all slabs, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count * LARGE_PAGE_BYTES
    }

    /// The number and the used bytes of each slab.
    pub(crate) fn used_bytes(&self) -> impl Iterator<Item = (u32, usize)> {
        let used = |slab: &Slab| slab.granules.used() * GRANULE_BYTES;
        (0..).zip(&self.slabs).filter_map(move |(number, slab)| Some((number, used(slab.as_ref()?))))
    }

    /// Bytes of slabs that no piece takes.
    pub(crate) fn free_bytes(&self) -> usize {
        (self.count * GRANULES - self.used) * GRANULE_BYTES
    }

    /// Removes the retained empty slab; the caller drops it outside of its locks.
    pub(crate) fn take_empty(&mut self) -> Option<Slab> {
        let is_empty = |slab: &Option<Slab>| slab.as_ref().is_some_and(|slab| slab.granules.is_empty());
        let number = self.slabs.iter().position(is_empty)?;
        self.empty -= 1;
        self.remove(number as u32)
    }

    /// True if there are fewer than two slabs, or the existing ones are full enough.
    fn may_grow(&self) -> bool {
        self.count < 2 || self.used >= self.count * GRANULES / 8 * self.full_eighths
    }

    /// Allocates a piece of at least `bytes` bytes, more than zero; `None` without space. Reads the bitmap of each slab that
    /// proves to be full.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Option<SlabPiece> {
        let count = bytes.div_ceil(GRANULE_BYTES);
        if count > GRANULES {
            return None;
        }
        loop {
            let Some(&number) = self.open.last() else {
                self.grow()?;
                continue;
            };
            let Some(Some(slab)) = self.slabs.get_mut(number as usize) else {
                self.open.pop();
                continue;
            };
            let was_empty = slab.granules.is_empty();
            if let Some(start) = slab.granules.allocate(count) {
                self.empty -= usize::from(was_empty);
                self.used += count;
                // SAFETY: the granules lie in the slab.
                let memory = unsafe { slab.memory.base().add(start * GRANULE_BYTES) };
                return Some(SlabPiece { slab: number, memory });
            }
            // It is open again after its next free.
            slab.is_open = false;
            self.open.pop();
        }
    }

    fn grow(&mut self) -> Option<()> {
        if !self.may_grow() {
            return None;
        }
        // Slabs are freed in large numbers: too many for the pool.
        let memory = LargePages::new(&self.pages, LARGE_PAGE_BYTES)?.released_on_drop();
        let slab = Slab { memory, granules: GranuleBitmap::new(), is_open: true };
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                self.slabs.push(None);
                self.slabs.len() as u32 - 1
            }
        };
        *self.slabs.get_mut(number as usize)? = Some(slab);
        self.open.push(number);
        (self.count, self.empty) = (self.count + 1, self.empty + 1);
        Some(())
    }

    /// Frees a piece. Returns its slab if that is empty now and not retained; the caller drops it outside of its locks.
    ///
    /// # Safety
    /// [`allocate`](Self::allocate) of these slabs returned the piece for `bytes`; it was not freed since, and no reference to
    /// its memory is left.
    pub(crate) unsafe fn free(&mut self, piece: SlabPiece, bytes: usize) -> Option<Slab> {
        let count = bytes.div_ceil(GRANULE_BYTES);
        let slab = self.slabs.get_mut(piece.slab as usize)?.as_mut()?;
        let offset = piece.memory.addr().get() - slab.memory.base().addr().get();
        slab.granules.free(offset / GRANULE_BYTES, count);
        self.used -= count;
        if slab.granules.is_empty() {
            if self.empty > 0 {
                return self.remove(piece.slab);
            }
            self.empty += 1;
        }
        if !slab.is_open {
            slab.is_open = true;
            self.open.push(piece.slab);
        }
        None
    }

    fn remove(&mut self, number: u32) -> Option<Slab> {
        let slab = self.slabs.get_mut(number as usize)?.take()?;
        if slab.is_open {
            self.open.retain(|&open| open != number);
        }
        self.unused.push(number);
        self.count -= 1;
        Some(slab)
    }
}
