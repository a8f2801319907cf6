//! One mapped extent of a log file.
#![allow(unsafe_code, reason = "mapping a file")]

use std::fs;
use std::io;

use bolide_memory::LARGE_PAGE_BYTES;
use memmap2::{MmapMut, MmapOptions};

/// The unit of reservation and mapping of a log, in bytes.
pub(crate) const EXTENT_BYTES: u64 = 4 << 20;

/// One extent of a log file, mapped for writing.
pub(crate) struct LogWindow {
    memory: MmapMut,
    start: u64,
    is_large: bool,
}

impl LogWindow {
    /// Maps the extent that starts at `start`; with `large`, advises the system to use large pages.
    pub(crate) fn map(file: &fs::File, start: u64, large: bool) -> io::Result<Self> {
        // SAFETY: this process created the file and holds it open. Appends go through one window at a time; the others are not
        // written. The file is truncated only behind that window, or when the window is dropped or stale; a stale window is not
        // accessed again. The space is reserved, so an access cannot run out of disk space. Another process that truncates the
        // file would end this one with a bus error, as for any mapping; the lock file of the database excludes other instances.
        let memory = unsafe { MmapOptions::new().offset(start).len(EXTENT_BYTES as usize).map_mut(file) }?;
        let mut window = Self { memory, start, is_large: false };
        if large {
            window.use_large_pages();
        }
        Ok(window)
    }

    /// The start of the extent in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The end of the extent in the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + EXTENT_BYTES
    }

    /// Whether the window is in large pages.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Advises the system to use large pages for the part without pages.
    pub(crate) fn use_large_pages(&mut self) {
        // The advice affects only the speed.
        #[cfg(target_os = "linux")]
        let _ = self.memory.advise(memmap2::Advice::HugePage);
        self.is_large = true;
    }

    /// The address of the window in memory.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    /// Copies as many of `bytes` as fit at offset `at` of the file; returns their number.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> usize {
        let from = (at - self.start) as usize;
        let count = bytes.len().min(EXTENT_BYTES as usize - from);
        self.memory[from..from + count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Makes the system allocate the pages now, one large page at a time while `goes_on` returns true. The content of the pages
    /// is unchanged. About a millisecond per page, the first time.
    ///
    /// If the system cannot do this, or the file was truncated meanwhile, each page is allocated at its first access.
    pub(crate) fn prefault(&self, mut goes_on: impl FnMut() -> bool) {
        for offset in (0..EXTENT_BYTES as usize).step_by(LARGE_PAGE_BYTES) {
            if !goes_on() {
                return;
            }
            // Linux from 5.14 on.
            #[cfg(target_os = "linux")]
            let _ = self.memory.advise_range(memmap2::Advice::PopulateWrite, offset, LARGE_PAGE_BYTES);
            #[cfg(not(target_os = "linux"))]
            let _ = offset;
        }
    }
}
