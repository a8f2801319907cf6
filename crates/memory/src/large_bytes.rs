//! Bytes with random accesses, in large pages if they fill some.

// Large pages as a slice of bytes.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

use crate::large_pages::LargePages;
use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::page_pool::PagePool;

/// A fixed number of bytes, in large pages if they fill whole ones. Their content is arbitrary at first, and the system
/// allocates a page at its first access.
///
/// ```
/// use bolide_memory::{LARGE_PAGE_BYTES, LargeBytes, PagePool};
/// let mut bytes = LargeBytes::new(LARGE_PAGE_BYTES, &PagePool::new());
/// bytes[7] = 3;
/// assert_eq!((bytes.len(), bytes[7]), (LARGE_PAGE_BYTES, 3));
/// ```
pub struct LargeBytes(ByteMemory);

enum ByteMemory {
    Large(LargePages),
    Heap(Box<[u8]>),
}

impl LargeBytes {
    /// `bytes` bytes. A single large page is one of `pages`.
    pub fn new(bytes: usize, pages: &Arc<PagePool>) -> Self {
        let large = if bytes.is_multiple_of(LARGE_PAGE_BYTES) { LargePages::new(pages, bytes) } else { None };
        Self(match large.filter(|pages| pages.len() == bytes) {
            Some(pages) => ByteMemory::Large(pages),
            None => ByteMemory::Heap(vec![0; bytes].into()),
        })
    }
}

impl Deref for LargeBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: that many initialized bytes are mapped as long as the pages exist; they are accessed only through this
            // value, so they do not change while it is borrowed.
            ByteMemory::Large(pages) => unsafe {
                slice::from_raw_parts(pages.base().as_ptr().cast_const(), pages.len())
            },
            ByteMemory::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for LargeBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: as above; this is the only borrow.
            ByteMemory::Large(pages) => unsafe {
                slice::from_raw_parts_mut(pages.base().as_ptr(), pages.len())
            },
            ByteMemory::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for LargeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
