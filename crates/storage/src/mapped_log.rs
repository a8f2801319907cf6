//! A log file that is appended to through a mapping of its end.
//!
//! An append copies its bytes into the page cache without a system call, and they survive the end of the
//! process like written ones. (A system call for each small record costs more than everything else that
//! a write does.)
//!
//! # Layout
//! The file grows by whole extents, whose space is reserved before they are mapped, so that a full disk is an
//! error of [`append`](File::append) and never a fault of the mapping. What lies behind the appended bytes
//! is zeros: a reader that finds the file after a crash takes them for the end of the log. When the file
//! is dropped it is cut to its length.
//!
//! # Large pages
//! The system hands out the mapping by pages of 4 KiB: one fault for each 25 records of 160 bytes, which cost more than copying the
//! records. In pages of 2 MiB that is next to nothing; but a page is written whole when it is synced. So an extent is
//! mapped in large pages only where nobody synced while the one before it was filled; the first sync within such an extent cuts
//! the file to what was appended, and the extent goes on in small ones.
//!
//! # Invariants
//! * `len <= reserved`; the mapped window holds `len`, or ends there, or is stale.
//! * Bytes below `len` are never written again.
#![allow(unsafe_code, reason = "mapping a file")]

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bolide_base::{Error, ErrorKind, Result};
use memmap2::{MmapMut, MmapOptions};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};

use crate::failure::describe;
use crate::vfs::File;

/// How much is reserved and mapped at a time.
const EXTENT_BYTES: u64 = 4 << 20;

/// A new file of this process that only it writes.
pub(crate) struct MappedLog {
    file: fs::File,
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// The window of the file that is mapped, and where it starts.
    window: MmapMut,
    window_start: u64,
    /// Bytes appended.
    len: u64,
    /// Bytes of the file whose space is reserved.
    reserved: u64,
    /// Whether the window is mapped in large pages.
    large: bool,
    /// A sync was asked for since the window was mapped.
    synced: bool,
    /// The window is to be mapped anew before the next append.
    stale: bool,
    /// Set by a failed sync or mapping: the end of the file is in doubt.
    poisoned: bool,
}

impl MappedLog {
    /// Takes over an empty file; `Err` hands it back where the file system cannot reserve or map space.
    pub(crate) fn new(file: fs::File, path: &Path) -> std::result::Result<Self, fs::File> {
        let Ok(()) = fallocate(&file, FallocateFlags::empty(), 0, EXTENT_BYTES) else {
            let _ = file.set_len(0);
            return Err(file);
        };
        match map(&file, 0, false) {
            Ok(window) => {
                let state = State {
                    window,
                    window_start: 0,
                    len: 0,
                    reserved: EXTENT_BYTES,
                    large: false,
                    synced: false,
                    stale: false,
                    poisoned: false,
                };
                Ok(Self { file, path: path.into(), state: Mutex::new(state) })
            }
            Err(_) => {
                let _ = file.set_len(0);
                Err(file)
            }
        }
    }

    /// Reserves space for `end` bytes. On an error nothing has changed.
    fn reserve(&self, state: &mut State, end: u64) -> Result<()> {
        if end <= state.reserved {
            return Ok(());
        }
        let reserved = end.next_multiple_of(EXTENT_BYTES);
        if let Err(errno) =
            fallocate(&self.file, FallocateFlags::empty(), state.reserved, reserved - state.reserved)
        {
            // Part of the space may have been reserved: give it back.
            let _ = self.file.set_len(state.reserved);
            return Err(describe("append to", &self.path, io::Error::from(errno)));
        }
        state.reserved = reserved;
        Ok(())
    }

    /// Maps the window that holds the end of the log.
    fn advance(&self, state: &mut State) -> Result<()> {
        let start = state.len / EXTENT_BYTES * EXTENT_BYTES;
        let large = !state.synced;
        match map(&self.file, start, large) {
            Ok(window) => {
                state.window = window;
                state.window_start = start;
                state.large = large;
                state.synced = false;
                state.stale = false;
                Ok(())
            }
            Err(error) => {
                state.poisoned = true;
                Err(describe("map", &self.path, error))
            }
        }
    }

    /// Notes a sync, before which large pages are given up: they would be written whole.
    fn note_sync(&self, state: &mut State) -> io::Result<()> {
        state.synced = true;
        if !state.large || state.len == state.window_start + EXTENT_BYTES {
            return Ok(());
        }
        self.file.set_len(state.len)?;
        state.reserved = state.len;
        state.large = false;
        state.stale = true;
        Ok(())
    }

    fn poisoned(&self) -> Error {
        let message = format!("{}: an earlier write of this file failed", self.path.display());
        Error::new(ErrorKind::Poisoned, message)
    }
}

fn map(file: &fs::File, start: u64, large: bool) -> io::Result<MmapMut> {
    // SAFETY: the file was created by this process, is held open, and only appended to through this one
    // mapping; it is cut only when the mapping goes or is stale, and a stale one is not touched again. Its space is reserved, so touching a page cannot run
    // out of disk. Another process that cuts the file meanwhile would end this one with a bus error, as
    // for any mapping; the lock file of the database keeps other instances of Bolide away.
    let window = unsafe { MmapOptions::new().offset(start).len(EXTENT_BYTES as usize).map_mut(file) }?;
    #[cfg(target_os = "linux")]
    if large {
        // Advice: without it everything is as right, and slower.
        let _ = window.advise(memmap2::Advice::HugePage);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = large;
    Ok(window)
}

impl File for MappedLog {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.state.lock().len;
        let count = len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let Some(buf) = buf.get_mut(..count) else { return Ok(0) };
        self.file.read_at(buf, offset).map_err(|error| describe("read", &self.path, error))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if state.poisoned {
            return Err(self.poisoned());
        }
        let end = state.len + bytes.len() as u64;
        self.reserve(&mut state, end)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            if state.stale || state.len - state.window_start == EXTENT_BYTES {
                self.advance(&mut state)?;
            }
            let from = (state.len - state.window_start) as usize;
            let count = rest.len().min(EXTENT_BYTES as usize - from);
            let (head, tail) = rest.split_at(count);
            state.window[from..from + count].copy_from_slice(head);
            state.len += count as u64;
            rest = tail;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        // Dirty pages of the mapping are pages of the file: a sync of the file writes them. Appends go on.
        let mut state = self.state.lock();
        if state.poisoned {
            return Err(self.poisoned());
        }
        if let Err(error) = self.note_sync(&mut state) {
            state.poisoned = true;
            return Err(describe("sync", &self.path, error));
        }
        drop(state);
        self.file.sync_data().map_err(|error| {
            self.state.lock().poisoned = true;
            describe("sync", &self.path, error)
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().len)
    }
}

impl Drop for MappedLog {
    fn drop(&mut self) {
        // A tail of zeros would do no harm, but it would take space.
        let _ = self.file.set_len(self.state.get_mut().len);
    }
}

impl fmt::Debug for MappedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &Path) -> MappedLog {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        MappedLog::new(file, path).unwrap()
    }

    #[test]
    fn appends_cross_extents_and_are_there_for_other_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = create(&path);
        let mut expected = Vec::new();
        for round in 0..40_u8 {
            let piece = vec![round + 1; 300_000];
            log.append(&piece).unwrap();
            expected.extend_from_slice(&piece);
        }
        // One append over several extents.
        let piece = vec![77; 3 * EXTENT_BYTES as usize];
        log.append(&piece).unwrap();
        expected.extend_from_slice(&piece);
        log.sync().unwrap();
        assert_eq!(log.len().unwrap(), expected.len() as u64);
        let seen = fs::read(&path).unwrap();
        assert!(seen[..expected.len()] == expected[..]);
        assert!(seen[expected.len()..].iter().all(|&byte| byte == 0));
        let mut back = vec![0; expected.len()];
        log.read_exact_at(0, &mut back).unwrap();
        assert!(back == expected);
        assert_eq!(log.read_at(expected.len() as u64, &mut [0; 8]).unwrap(), 0);
        drop(log);
        assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
    }

    #[test]
    fn syncs_within_large_pages_cut_the_file_and_appends_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = create(&path);
        let mut expected = Vec::new();
        let mut append = |bytes: &[u8]| {
            log.append(bytes).unwrap();
            expected.extend_from_slice(bytes);
            expected.len() as u64
        };
        append(&vec![1; EXTENT_BYTES as usize - 3]);
        // Nobody synced in the first extent: the second one is in large pages.
        let end = append(b"across the border");
        assert!(log.state.lock().large);
        log.sync().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), end);
        for byte in 2..90_u8 {
            append(&[byte; 100_000]);
            if byte % 16 == 5 {
                log.sync().unwrap();
                assert!(!log.state.lock().large);
            }
        }
        // Exactly at a border.
        let rest = (EXTENT_BYTES - log.len().unwrap() % EXTENT_BYTES) as usize;
        append(&vec![91; rest]);
        log.sync().unwrap();
        append(b"end");
        let mut read = vec![0; expected.len()];
        assert_eq!(log.read_at(0, &mut read).unwrap(), expected.len());
        assert!(read == expected);
        drop(log);
        assert!(fs::read(&path).unwrap() == expected);
    }
}
