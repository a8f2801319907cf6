//! Reads of a file of the operating system, with a record of whether they wait for the device.
//!
//! A read first reads from the page cache alone, and waits for the device only if the bytes are not there. So the file knows
//! whether reads wait at present: only then does reading ahead pay for its system call.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{Advice, fadvise};

/// Reads without a wait after which no further wait is expected.
const MEMORY: u8 = 16;

/// The state of [`FileReads::waits`] on a system without reads that never wait.
const UNKNOWN: u8 = u8::MAX;

/// The reads of one file.
#[derive(Debug, Default)]
pub(crate) struct FileReads {
    /// [`MEMORY`] after a read that waited for the device, one less after each that did not; [`UNKNOWN`].
    waits: AtomicU8,
}

impl FileReads {
    /// Reads up to `buf.len()` bytes of `file` from `offset` on, as [`FileExt::read_at`].
    pub(crate) fn read_at(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let waits = self.waits.load(Ordering::Relaxed);
        if waits == UNKNOWN {
            return file.read_at(buf, offset);
        }
        match read_cached(file, buf, offset) {
            Ok(read) => {
                if waits > 0 {
                    self.waits.store(waits - 1, Ordering::Relaxed);
                }
                return Ok(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if waits < MEMORY {
                    self.waits.store(MEMORY, Ordering::Relaxed);
                }
            }
            // The file system does not support it, or the error occurs again below.
            Err(_) => self.waits.store(UNKNOWN, Ordering::Relaxed),
        }
        file.read_at(buf, offset)
    }

    /// Starts reading `bytes` bytes from `offset` on in the background, if the last reads waited for the device.
    pub(crate) fn read_ahead(&self, file: &fs::File, offset: u64, bytes: u64) {
        if self.waits.load(Ordering::Relaxed) > 0 {
            // Only advice: a file system without readahead refuses it, and the read itself reports errors of the device.
            let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
        }
    }
}

/// Reads from the page cache alone; `WouldBlock` if the bytes at `offset` are not there. May return fewer bytes than are in
/// the file.
#[cfg(target_os = "linux")]
fn read_cached(file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    use rustix::io::{ReadWriteFlags, preadv2};
    Ok(preadv2(file, &mut [io::IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT)?)
}

#[cfg(not(target_os = "linux"))]
fn read_cached(_: &fs::File, _: &mut [u8], _: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reads_return_the_bytes_of_the_file_whether_cached_or_not() -> io::Result<()> {
        let mut file = tempfile::tempfile()?;
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        file.write_all(&bytes)?;
        file.sync_all()?;
        let reads = FileReads::default();
        for cold in [false, true] {
            if cold {
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
            reads.read_ahead(&file, 40_000, 20_000);
            for (offset, len) in [(0, 10), (4_090, 20), (50_000, 9_000), (99_990, 10)] {
                let mut read = vec![0; len];
                let mut filled = 0;
                while filled < len {
                    let count = reads.read_at(&file, &mut read[filled..], (offset + filled) as u64)?;
                    assert_ne!(count, 0, "the file has these bytes");
                    filled += count;
                }
                assert_eq!(read, bytes[offset..offset + len]);
            }
            assert_eq!(reads.read_at(&file, &mut [0; 8], 100_000)?, 0, "the end of the file");
            // Past the end there is nothing to read ahead, which is no error.
            reads.read_ahead(&file, 1 << 40, 4_096);
            reads.read_ahead(&file, 0, 0);
        }
        Ok(())
    }

    #[test]
    fn waits_are_expected_after_a_wait_until_reads_have_not_waited_for_a_while() -> io::Result<()> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&[7; 4_096])?;
        let reads = FileReads { waits: AtomicU8::new(MEMORY) };
        for _ in 0..MEMORY {
            assert!(reads.waits.load(Ordering::Relaxed) > 0);
            reads.read_at(&file, &mut [0; 16], 0)?;
        }
        // On a file system without such reads waits are always expected.
        assert!([0, UNKNOWN].contains(&reads.waits.load(Ordering::Relaxed)));
        Ok(())
    }
}
