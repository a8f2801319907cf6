//! A log file with appends through a mapping of its end.
//!
//! An append copies its bytes into the page cache without a system call; they survive the end of the process like written ones.
//! (A system call per small record costs more than the rest of a write.)
//!
//! # Layout
//! The file grows by whole extents. Their space is reserved before they are mapped, so a full disk is an error of
//! [`append`](File::append), never a fault of the mapping. Zeros follow the appended bytes: after a crash a reader takes them for
//! the end of the log. Dropping the log truncates the file to its length.
//!
//! # Large pages
//! Small pages cost one page fault per 4 KiB, about 25 records of 160 bytes; the fault costs more than copying the records. With
//! pages of 2 MiB the faults cost almost nothing, but a sync writes a whole page. So an extent uses large pages only if no sync
//! happened while the previous extent was filled. The first sync within such an extent truncates the file to the appended bytes,
//! and the extent continues in small pages. The first extent switches to large pages in its middle, if only its head was synced.
//!
//! # Preallocated extents
//! At the first access to a large page the writer waits while the system finds and clears it. A log in large pages therefore
//! requests its next extent from a [preallocator](bolide_memory::LargePagePreallocator) when it begins one; the preallocator reserves,
//! maps and prefaults it. An append never waits for the preallocator: if the extent is not ready, it maps the extent itself.
//!
//! ```text
//!          request                 preallocation            end of window
//! none  ------------>  requested  --------------->  next  ---------------->  window
//!   ^                      |                         |
//!   +----------------------+-------------------------+   sync, full disk, drop; from requested also: end of window
//! ```
//!
//! # Invariants
//! * `len <= reserved`; the mapped window contains `len`, or ends there, or is stale.
//! * Bytes below `len` are never written again.
//! * The file has `reserved` bytes; it has more only while `preallocating` is held.
//! * `next` starts at the end of the window and ends at `reserved`. It exists only while the window is in large pages and not
//!   synced.
//! * Each extent is requested at most once, so a request from before a truncation is never confused with a later one.
//! * Lock order: `preallocating`, `state`.

use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use bolide_base::{Error, ErrorKind, Result};
use bolide_memory::{PagePool, Preallocate};
use parking_lot::{Mutex, MutexGuard};

use crate::file_space::reserve_space;
use crate::io_error::describe;
use crate::log_window::{EXTENT_BYTES, LogWindow};
use crate::vfs::File;

/// A sync of at most this many bytes is a sync of the file's head, which every log has.
const HEAD_BYTES: u64 = 4096;

/// An offset that no file reaches.
const NEVER: u64 = u64::MAX;

/// A new log file; this process is its only writer.
pub(crate) struct MappedLog {
    shared: Arc<SharedLog>,
    /// The pool whose preallocator prepares extents.
    pool: OnceLock<Arc<PagePool>>,
}

/// The state that the log shares with the preallocator.
struct SharedLog {
    file: fs::File,
    path: PathBuf,
    /// Held while an extent is preallocated, and while the file is truncated.
    preallocating: Mutex<()>,
    state: Mutex<LogState>,
    #[cfg(test)]
    disk: tests::Disk,
}

struct LogState {
    /// The window for appends.
    window: LogWindow,
    /// The previous window, if the preallocator has to unmap it.
    retired: Option<LogWindow>,
    /// The preallocated next window.
    next: Option<LogWindow>,
    /// The start of the requested extent.
    requested: Option<u64>,
    /// The length of the log at which it requests the next extent.
    request_at: u64,
    /// Bytes appended.
    len: u64,
    /// Bytes of the file whose space is reserved.
    reserved: u64,
    /// True after a sync since the window was mapped.
    synced: bool,
    /// The next append has to map the window again.
    stale: bool,
    /// Set by a failed sync or mapping: the end of the file is unknown.
    poisoned: bool,
}

impl LogState {
    /// Cancels the request and removes the preallocated window; returns the window, to be unmapped.
    fn discard_next(&mut self) -> Option<LogWindow> {
        self.requested = None;
        self.request_at = NEVER;
        self.next.take()
    }
}

impl MappedLog {
    /// A log in an empty file. `Err` returns the file if the file system cannot reserve or map space.
    pub(crate) fn new(file: fs::File, path: &Path) -> std::result::Result<Self, fs::File> {
        let Ok(()) = reserve_space(&file, path, 0, EXTENT_BYTES) else {
            let _ = file.set_len(0);
            return Err(file);
        };
        let Ok(window) = LogWindow::map(&file, 0, false) else {
            let _ = file.set_len(0);
            return Err(file);
        };
        let state = LogState {
            window,
            retired: None,
            next: None,
            requested: None,
            request_at: EXTENT_BYTES / 2,
            len: 0,
            reserved: EXTENT_BYTES,
            synced: false,
            stale: false,
            poisoned: false,
        };
        let shared = SharedLog {
            file,
            path: path.into(),
            preallocating: Mutex::new(()),
            state: Mutex::new(state),
            #[cfg(test)]
            disk: tests::Disk::default(),
        };
        Ok(Self { shared: Arc::new(shared), pool: OnceLock::new() })
    }

    /// Requests the next extent from the preallocator.
    fn request_next(&self, state: &mut LogState) {
        state.request_at = NEVER;
        if !state.window.is_large() {
            state.window.use_large_pages();
        }
        // This replaces an earlier request that was not served in time.
        state.requested = Some(state.window.end());
        let requester: Weak<SharedLog> = Arc::downgrade(&self.shared);
        if !self.pool.get().is_some_and(|pool| pool.request_preallocation(requester)) {
            state.requested = None;
            state.retired = None;
        }
    }
}

impl SharedLog {
    /// Reserves space for `end` bytes. An error changes nothing.
    fn reserve(&self, state: &mut LogState, end: u64) -> Result<()> {
        if end <= state.reserved {
            return Ok(());
        }
        let reserved = end.next_multiple_of(EXTENT_BYTES);
        if let Err(error) = self.allocate(state.reserved, reserved) {
            // Frees space that this call, or the preallocation of an extent, has reserved.
            state.requested = None;
            let _ = self.file.set_len(state.reserved);
            return Err(error);
        }
        state.reserved = reserved;
        Ok(())
    }

    /// Allocates space in the file system. After an error a part of it may be allocated.
    fn allocate(&self, start: u64, end: u64) -> Result<()> {
        #[cfg(test)]
        self.disk
            .allocate(&self.file, start, end)
            .map_err(|error| describe("append to", &self.path, error))?;
        reserve_space(&self.file, &self.path, start, end)
    }

    /// Replaces the window by the one that contains the end of the log.
    fn advance(&self, state: &mut LogState) -> Result<()> {
        let start = state.len / EXTENT_BYTES * EXTENT_BYTES;
        let large = !state.synced;
        let window = match state.next.take() {
            Some(next) => next,
            None => LogWindow::map(&self.file, start, large)
                .map_err(|error| describe("map", &self.path, error))?,
        };
        debug_assert_eq!((window.start(), window.is_large()), (start, large), "the next window");
        let retired = mem::replace(&mut state.window, window);
        // Unmapping takes time: the preallocator does it.
        state.retired = large.then_some(retired);
        state.request_at = if large { state.len } else { NEVER };
        state.synced = false;
        state.stale = false;
        Ok(())
    }

    /// Cancels the request and keeps the preallocator away from the file until the guard is dropped. Waits for the large page in
    /// progress, if there is one; for more if a concurrent append makes a new request.
    fn stop_preallocation(&self) -> MutexGuard<'_, ()> {
        self.state.lock().requested = None;
        self.preallocating.lock()
    }

    /// Records a sync, and discards large pages before it: the sync would write them whole. The caller holds `preallocating`.
    fn note_sync(&self, state: &mut LogState) -> io::Result<()> {
        if state.len <= HEAD_BYTES {
            return Ok(());
        }
        state.synced = true;
        let next = state.discard_next();
        let has_rest = state.window.is_large() && !state.stale && state.len < state.window.end();
        if next.is_some() || has_rest {
            self.file.set_len(state.len)?;
            state.reserved = state.len;
            state.stale = true;
        }
        Ok(())
    }

    fn poisoned(&self) -> Error {
        let message = format!("{}: an earlier write of this file failed", self.path.display());
        Error::new(ErrorKind::Poisoned, message)
    }
}

impl Preallocate for SharedLog {
    fn preallocate(&self) {
        let _preallocating = self.preallocating.lock();
        let mut state = self.state.lock();
        let (retired, requested) = (state.retired.take(), state.requested);
        drop(state);
        drop(retired);
        let Some(start) = requested else { return };
        let window = self
            .allocate(start, start + EXTENT_BYTES)
            .ok()
            .and_then(|()| LogWindow::map(&self.file, start, true).ok());
        if let Some(window) = &window {
            window.prefault(|| self.state.lock().requested == Some(start));
        }
        let mut state = self.state.lock();
        if state.requested == Some(start) {
            state.requested = None;
            if let Some(window) = window {
                state.reserved = state.reserved.max(window.end());
                state.next = Some(window);
                return;
            }
        }
        // The request was cancelled, or there is no space: restores the length of the file. If an append has reached this extent
        // meanwhile, this truncates nothing.
        let _ = self.file.set_len(state.reserved);
    }
}

impl File for MappedLog {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = self.len()?;
        let count = len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let Some(buf) = buf.get_mut(..count) else { return Ok(0) };
        loop {
            match self.shared.file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(|error| describe("read", &self.shared.path, error)),
            }
        }
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        if state.poisoned {
            return Err(shared.poisoned());
        }
        let end = state.len + bytes.len() as u64;
        shared.reserve(&mut state, end)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            if state.stale || state.len == state.window.end() {
                // A failure before the first byte (a lack of memory) changes nothing.
                shared.advance(&mut state).inspect_err(|_| state.poisoned = rest.len() < bytes.len())?;
            }
            let at = state.len;
            let count = state.window.write(at, rest);
            state.len += count as u64;
            rest = &rest[count..];
        }
        if state.len >= state.request_at {
            self.request_next(&mut state);
        }
        Ok(())
    }

    fn preallocate_with(&self, pool: &Arc<PagePool>) {
        // The first one stays.
        let _ = self.pool.set(Arc::clone(pool));
    }

    fn sync(&self) -> Result<()> {
        // Dirty pages of the mapping belong to the file: a sync of the file writes them. Appends continue meanwhile.
        let shared = &*self.shared;
        let preallocating = shared.stop_preallocation();
        let mut state = shared.state.lock();
        if state.poisoned {
            return Err(shared.poisoned());
        }
        if let Err(error) = shared.note_sync(&mut state) {
            state.poisoned = true;
            return Err(describe("sync", &shared.path, error));
        }
        drop(state);
        drop(preallocating);
        shared.file.sync_data().map_err(|error| {
            shared.state.lock().poisoned = true;
            describe("sync", &shared.path, error)
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(self.shared.state.lock().len)
    }
}

impl Drop for MappedLog {
    fn drop(&mut self) {
        // No append is possible any more, so no new request either: the file does not change after this.
        let _preallocating = self.shared.stop_preallocation();
        let mut state = self.shared.state.lock();
        drop(state.discard_next());
        // A tail of zeros would be harmless, but would use space.
        let _ = self.shared.file.set_len(state.len);
    }
}

impl fmt::Debug for MappedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.shared.path.display())
    }
}

#[cfg(test)]
#[path = "mapped_log_tests.rs"]
mod tests;
