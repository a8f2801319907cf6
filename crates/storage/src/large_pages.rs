//! Memory for structures that are read all over: in pages of 2 MiB where the system has them.
//!
//! A walk through a tree of 64 MiB misses the translation of nearly every page of 4 KiB that it comes to; with large pages
//! it hardly misses one.
//!
//! Pages that are given back are kept for the next who asks, up to 128 MiB in the process: the system would have to clear them
//! again, which costs as much as filling them.

use std::ptr::NonNull;

use memmap2::MmapMut;
use parking_lot::Mutex;

/// The size of a large page, in bytes.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Most bytes that are kept for the next who asks, in the whole process.
const MOST_SPARE_BYTES: usize = 128 << 20;

/// Single pages that were given back, the last one last.
static SPARE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// Memory of whole large pages with any content. It does not move, and is given back when dropped.
///
/// Where the system has no large pages, or none to spare, it consists of ordinary ones.
#[derive(Debug)]
pub struct LargePages {
    /// There until it is dropped.
    mapping: Option<MmapMut>,
}

impl LargePages {
    /// Memory of at least `bytes` bytes, rounded up to whole large pages; `None` where the system has none. Two system
    /// calls, and a fault for each page when it is touched first, unless a single page is asked for and one is kept.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::new(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_storage::LARGE_PAGE_BYTES);
    /// ```
    pub fn new(bytes: usize) -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        if bytes == LARGE_PAGE_BYTES
            && let Some(mapping) = SPARE.lock().pop()
        {
            return Some(Self { mapping: Some(mapping) });
        }
        // Linux places mappings of such lengths at a multiple of a large page by itself.
        let mapping = MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        // Advice: without it everything is as right, and slower.
        let _ = mapping.advise(memmap2::Advice::HugePage);
        Some(Self { mapping: Some(mapping) })
    }

    /// The first byte. Aligned to 4 KiB at least.
    pub fn base(&mut self) -> NonNull<u8> {
        let address = self.mapping.as_mut().map_or(std::ptr::null_mut(), |mapping| mapping.as_mut_ptr());
        NonNull::new(address).unwrap_or(NonNull::dangling())
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.len())
    }

    /// False: it has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        let Some(mapping) = self.mapping.take().filter(|mapping| mapping.len() == LARGE_PAGE_BYTES) else {
            return;
        };
        let mut spare = SPARE.lock();
        if spare.len() < MOST_SPARE_BYTES / LARGE_PAGE_BYTES {
            spare.push(mapping);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "writes to what it was given")]
    fn memory_can_be_written_to_its_end() {
        let mut memory = LargePages::new(LARGE_PAGE_BYTES + 1).unwrap();
        assert_eq!(memory.len(), 2 * LARGE_PAGE_BYTES);
        let (base, len) = (memory.base(), memory.len());
        for at in [0, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, len - 1] {
            // SAFETY: within the mapping, which nobody else uses.
            unsafe {
                base.add(at).write(7);
                assert_eq!(base.add(at).read(), 7);
            }
        }
    }
}
