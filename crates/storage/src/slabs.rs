//! Memory of any length, in large pages that are shared: *slabs* of 2 MiB, divided into granules of 256 bytes.
//!
//! ```text
//! slab     8192 granules of 256 bytes
//! piece      neighbouring granules of one slab
//! ```
//!
//! A slab is taken only while those there are full enough, and given back once it is empty; one empty slab is kept.

// Memory that is divided, as addresses.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::granule_bitmap::{GRANULES, GranuleBitmap};
use crate::large_pages::{LARGE_PAGE_BYTES, LargePages};

/// Bytes of a granule.
const GRANULE_BYTES: usize = 256;
const _: () = assert!(GRANULE_BYTES * GRANULES == LARGE_PAGE_BYTES);

/// Slabs, and which pieces of them are in use.
#[derive(Debug)]
pub struct Slabs {
    /// So many eighths of all granules are taken before a slab more is.
    full_eighths: usize,
    /// By number; `None` for one that was given back.
    slabs: Vec<Option<Slab>>,
    /// Numbers of the slabs that may have room.
    open: Vec<u32>,
    /// Numbers that no slab has.
    unused: Vec<u32>,
    /// Slabs that there are.
    count: usize,
    /// Slabs without any piece; no more than one is kept.
    empty: usize,
    /// Granules that pieces take.
    taken: usize,
}

/// One slab.
#[derive(Debug)]
pub struct Slab {
    /// With any content. No piece of it is in use when it is dropped: one that is keeps all slabs.
    memory: LargePages,
    granules: Granules,
    is_open: bool,
}

/// A piece of a slab, its memory with any content.
#[derive(Debug, Clone, Copy)]
pub struct SlabPiece {
    /// The number of the slab.
    pub slab: u32,
    /// Its first byte, at a multiple of 256.
    pub memory: NonNull<u8>,
}

impl Slabs {
    /// None yet. There will be two, and more of them only while so many eighths of those there are in use: `full_eighths`.
    pub const fn new(full_eighths: usize) -> Self {
        Self {
            full_eighths,
            slabs: Vec::new(),
            open: Vec::new(),
            unused: Vec::new(),
            count: 0,
            empty: 0,
            taken: 0,
        }
    }

    /// The bytes that a piece of `bytes` bytes takes.
    #[inline]
    pub const fn piece_bytes(bytes: usize) -> usize {
        bytes.div_ceil(GRANULE_BYTES) * GRANULE_BYTES
    }

    /// The bytes of all slabs.
    pub fn bytes(&self) -> usize {
        self.count * LARGE_PAGE_BYTES
    }

    /// True if one slab more would still leave the others as full as they are to be, or there are few.
    fn may_grow(&self) -> bool {
        self.count < 2 || self.taken >= self.count * GRANULES / 8 * self.full_eighths
    }

    /// A piece of at least `bytes` bytes, which are more than none; `None` where there is no room for it. Looks at a bit for each
    /// granule of each slab that turns out to be full.
    ///
    /// ```
    /// let mut slabs = bolide_storage::Slabs::new(7);
    /// let piece = slabs.take(1000).expect("two megabytes");
    /// assert_eq!(slabs.bytes(), 2 << 20);
    /// // SAFETY: taken just now with this length, and nothing uses it.
    /// drop(unsafe { slabs.give_back(piece, 1000) });
    /// ```
    pub fn take(&mut self, bytes: usize) -> Option<SlabPiece> {
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
            if let Some(start) = slab.granules.take(count) {
                self.empty -= usize::from(was_empty);
                self.taken += count;
                // SAFETY: the granules lie in the slab.
                let memory = unsafe { slab.memory.base().add(start * GRANULE_BYTES) };
                return Some(SlabPiece { slab: number, memory });
            }
            // It is asked again once it has got something back.
            slab.is_open = false;
            self.open.pop();
        }
    }

    fn grow(&mut self) -> Option<()> {
        if !self.may_grow() {
            return None;
        }
        // Who gives slabs back gives many back: too much to keep for others.
        let memory = LargePages::new(LARGE_PAGE_BYTES)?.released_when_dropped();
        let slab = Slab { memory, granules: Granules::new(), is_open: true };
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

    /// Takes a piece back; answers its slab if that is empty now and not kept, to be dropped where no lock is held.
    ///
    /// # Safety
    /// [`take`](Self::take) of these slabs answered the piece when it was asked for `bytes`; it was not given back since,
    /// and nothing uses its memory any more.
    pub unsafe fn give_back(&mut self, piece: SlabPiece, bytes: usize) -> Option<Slab> {
        let count = bytes.div_ceil(GRANULE_BYTES);
        let slab = self.slabs.get_mut(piece.slab as usize)?.as_mut()?;
        let offset = piece.memory.addr().get() - slab.memory.base().addr().get();
        slab.granules.give_back(offset / GRANULE_BYTES, count);
        self.taken -= count;
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

    /// Gives up the empty slab that is kept, if there is one.
    #[cfg(test)]
    pub(crate) fn give_up_empty(&mut self) {
        let is_empty = |slab: &Option<Slab>| slab.as_ref().is_some_and(|slab| slab.granules.is_empty());
        let empty = (0..).zip(&self.slabs).find_map(|(number, slab)| is_empty(slab).then_some(number));
        self.empty -= empty.and_then(|number| self.remove(number)).into_iter().count();
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
