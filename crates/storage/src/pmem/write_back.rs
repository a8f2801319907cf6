//! Write-back of cache lines to memory.
#![allow(unsafe_code, reason = "instructions that have no safe wrapper")]

use std::io;

use super::layout::LINE_BYTES;
use super::word::Word;

/// The instruction for write-backs, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// `clwb`: the line stays in the cache.
    Clwb,
    /// `clflushopt`: the line leaves the cache.
    ClflushOpt,
    /// `clflush`: the line leaves the cache; the instructions are serialized.
    Clflush,
    /// No instruction on this processor: the system writes pages (`msync`).
    Msync,
}

impl WriteBack {
    /// The best way of this processor.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(super) fn of_this_machine() -> Self {
        // Leaf 7 reports both instructions; every x86-64 has `clflush`.
        let features = match std::arch::x86_64::__cpuid(0).eax {
            0..7 => 0,
            _ => std::arch::x86_64::__cpuid_count(7, 0).ebx,
        };
        match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Self::Clwb,
            (_, 1) => Self::ClflushOpt,
            _ => Self::Clflush,
        }
    }

    /// The best way of this processor.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    pub(super) fn of_this_machine() -> Self {
        Self::Msync
    }

    /// Writes back the lines of `words`, which begin at a line. Durable after [`fence`]. Only `msync` may fail.
    pub(super) fn lines(self, words: &[Word]) -> io::Result<()> {
        let start = words.as_ptr().cast::<u8>();
        let bytes = size_of_val(words);
        if self == Self::Msync {
            return msync(start, bytes);
        }
        for offset in (0..bytes).step_by(LINE_BYTES) {
            self.line(start.wrapping_add(offset));
        }
        Ok(())
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn line(self, at: *const u8) {
        use std::arch::asm;
        // SAFETY: the line is mapped, as the words are borrowed; a write-back has no visible effect. The instruction is among the
        // features of the processor.
        unsafe {
            match self {
                Self::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                Self::ClflushOpt => asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags)),
                Self::Clflush | Self::Msync => {
                    asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags))
                }
            }
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn line(self, _: *const u8) {}
}

/// Waits for the write-backs of this thread.
pub(super) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a store fence has no conditions; every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Makes the system write the pages of a range.
fn msync(start: *const u8, bytes: usize) -> io::Result<()> {
    let before = start.addr() % super::layout::PAGE_BYTES;
    let page = start.wrapping_sub(before).cast_mut().cast();
    // SAFETY: the pages hold words that were borrowed, so they are mapped.
    unsafe { rustix::mm::msync(page, bytes + before, rustix::mm::MsyncFlags::SYNC) }.map_err(io::Error::from)
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_failed_msync_is_an_error() {
        // The last page of the user address space is never mapped.
        assert!(msync(std::ptr::without_provenance(0x7fff_ffff_f000), 64).is_err());
        let words: Vec<Word> = (0..64).map(|_| Word(std::sync::atomic::AtomicU64::new(0))).collect();
        WriteBack::Msync.lines(&words).unwrap();
    }
}
