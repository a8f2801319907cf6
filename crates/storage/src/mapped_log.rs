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
//! # Invariants
//! * `len <= reserved`; the mapped window holds `len`, or ends there.
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
        match map(&file, 0) {
            Ok(window) => {
                let state =
                    State { window, window_start: 0, len: 0, reserved: EXTENT_BYTES, poisoned: false };
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
        match map(&self.file, start) {
            Ok(window) => {
                state.window = window;
                state.window_start = start;
                Ok(())
            }
            Err(error) => {
                state.poisoned = true;
                Err(describe("map", &self.path, error))
            }
        }
    }

    fn poisoned(&self) -> Error {
        let message = format!("{}: an earlier write of this file failed", self.path.display());
        Error::new(ErrorKind::Poisoned, message)
    }
}

fn map(file: &fs::File, start: u64) -> io::Result<MmapMut> {
    // SAFETY: the file was created by this process, is held open, and only appended to through this one
    // mapping; it is cut only when the mapping goes. Its space is reserved, so touching a page cannot run
    // out of disk. Another process that cuts the file meanwhile would end this one with a bus error, as
    // for any mapping; the lock file of the database keeps other instances of Bolide away.
    unsafe { MmapOptions::new().offset(start).len(EXTENT_BYTES as usize).map_mut(file) }
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
            if state.len - state.window_start == EXTENT_BYTES {
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
        if self.state.lock().poisoned {
            return Err(self.poisoned());
        }
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
}
