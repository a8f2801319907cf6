//! A window of a log file: one extent of it, mapped.
#![allow(unsafe_code, reason = "mapping a file")]

use std::fs;
use std::io;

use memmap2::{MmapMut, MmapOptions};

use crate::large_pages::LARGE_PAGE_BYTES;

/// How much of a log is reserved and mapped at a time.
pub(crate) const EXTENT_BYTES: u64 = 4 << 20;

/// One extent of a log file, mapped to be written.
pub(crate) struct Window {
    memory: MmapMut,
    start: u64,
    is_large: bool,
}

impl Window {
    /// Maps the extent that starts at `start`, in large pages if the system is to be asked for them.
    pub(crate) fn map(file: &fs::File, start: u64, large: bool) -> io::Result<Self> {
        // SAFETY: the file was created by this process, is held open, and only appended to through one window at a time; others are
        // not written. It is cut only behind that one, or when it goes or is stale, and a stale one is not touched again. Its space is
        // reserved, so touching a page cannot run out of disk. Another process that cuts the file meanwhile would end this one with a bus error, as
        // for any mapping; the lock file of the database keeps other instances of Bolide away.
        let memory = unsafe { MmapOptions::new().offset(start).len(EXTENT_BYTES as usize).map_mut(file) }?;
        let mut window = Self { memory, start, is_large: false };
        if large {
            window.go_on_in_large_pages();
        }
        Ok(window)
    }

    /// Where the extent starts in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Where the extent ends in the file.
    pub(crate) fn end(&self) -> u64 {
        self.start + EXTENT_BYTES
    }

    /// Whether the system was asked for large pages.
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Asks the system for large pages where the file has none yet.
    pub(crate) fn go_on_in_large_pages(&mut self) {
        // Advice: without it everything is as right, and slower.
        #[cfg(target_os = "linux")]
        let _ = self.memory.advise(memmap2::Advice::HugePage);
        self.is_large = true;
    }

    /// Where the window lies in memory.
    #[cfg(test)]
    pub(crate) fn address(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    /// Copies as many of `bytes` as fit behind offset `at` of the file; answers how many.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> usize {
        let from = (at - self.start) as usize;
        let count = bytes.len().min(EXTENT_BYTES as usize - from);
        self.memory[from..from + count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Has the system find and clear the pages now, one large page at a time as long as `goes_on` says so. What the pages hold
    /// stays. About a millisecond a page, the first time.
    ///
    /// Where the system cannot do that, or the file was cut meanwhile, the pages come when they are touched.
    pub(crate) fn touch(&self, mut goes_on: impl FnMut() -> bool) {
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
