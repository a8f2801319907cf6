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
//! the file to what was appended, and the extent goes on in small ones. The first extent goes on in large pages from its middle, if only its head was
//! synced by then.
//!
//! # Extents made ahead
//! A large page that is touched first has to be found and cleared by the system, while the writer waits. A log that goes on in large pages therefore
//! asks a [maker](crate::LargePagePreallocator) for its next extent as soon as it begins one, and finds it reserved, mapped and in memory when it
//! gets there. Nobody waits for a maker: where there is none, or it is late, an append maps the extent itself.
//!
//! ```text
//!             asked                    made                    next extent
//! nothing  ---------->  wanted  ------------------>  next  ------------------>  window
//!    ^                    |                           |
//!    +--------------------+---------------------------+   sync, full disk, drop; wanted: next extent, too
//! ```
//!
//! # Invariants
//! * `len <= reserved`; the mapped window holds `len`, or ends there, or is stale.
//! * Bytes below `len` are never written again.
//! * The file has `reserved` bytes; more only while somebody holds `making`.
//! * `next` starts where the window ends, ends at `reserved`, and is there only while the window is in large pages and nobody
//!   synced it.
//! * Each extent is wanted once at most, so that what was wanted before a cut is never taken for what is wanted after it.
//! * Locks are taken in the order of `making`, `state`.

use std::fmt;
use std::fs;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use bolide_base::{Error, ErrorKind, Result};
use parking_lot::{Mutex, MutexGuard};

use crate::io_error::describe;
use crate::file_space::reserve_space;
use crate::large_pages::MadeAhead;
use crate::log_window::{EXTENT_BYTES, Window};
use crate::page_maker::ask;
use crate::vfs::File;

/// A sync of no more than so many bytes is one of the head of the file, which each log has.
const HEAD_BYTES: u64 = 4096;

/// Never reached.
const NEVER: u64 = u64::MAX;

/// A new file of this process that only it writes.
pub(crate) struct MappedLog {
    shared: Arc<Shared>,
}

/// What the log and a maker know.
struct Shared {
    file: fs::File,
    path: PathBuf,
    /// Held while an extent is made ahead, and by whoever cuts the file.
    making: Mutex<()>,
    state: Mutex<State>,
    #[cfg(test)]
    disk: tests::Disk,
}

struct State {
    /// The window of the file that is appended to.
    window: Window,
    /// The one before it, if a maker is to unmap it.
    left: Option<Window>,
    /// The one behind it, made ahead.
    next: Option<Window>,
    /// Where the extent starts that a maker is to make.
    wanted: Option<u64>,
    /// The next extent is asked for when the log has so many bytes.
    prefetch_at: u64,
    /// Bytes appended.
    len: u64,
    /// Bytes of the file whose space is reserved.
    reserved: u64,
    /// A sync was asked for since the window was mapped.
    synced: bool,
    /// The window is to be mapped anew before the next append.
    stale: bool,
    /// Set by a failed sync or mapping: the end of the file is in doubt.
    poisoned: bool,
}

impl State {
    /// Wants nothing made ahead. Answers what was, to be unmapped.
    fn give_up_next(&mut self) -> Option<Window> {
        self.wanted = None;
        self.prefetch_at = NEVER;
        self.next.take()
    }
}

impl MappedLog {
    /// Takes over an empty file; `Err` hands it back where the file system cannot reserve or map space.
    pub(crate) fn new(file: fs::File, path: &Path) -> std::result::Result<Self, fs::File> {
        let Ok(()) = reserve_space(&file, path, 0, EXTENT_BYTES) else {
            let _ = file.set_len(0);
            return Err(file);
        };
        let Ok(window) = Window::map(&file, 0, false) else {
            let _ = file.set_len(0);
            return Err(file);
        };
        let state = State {
            window,
            left: None,
            next: None,
            wanted: None,
            prefetch_at: EXTENT_BYTES / 2,
            len: 0,
            reserved: EXTENT_BYTES,
            synced: false,
            stale: false,
            poisoned: false,
        };
        let shared = Shared {
            file,
            path: path.into(),
            making: Mutex::new(()),
            state: Mutex::new(state),
            #[cfg(test)]
            disk: tests::Disk::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Has a maker make the next extent.
    fn prefetch_next(&self, state: &mut State) {
        state.prefetch_at = NEVER;
        if !state.window.is_large() {
            state.window.go_on_in_large_pages();
        }
        // Should the extent that was wanted before not be there yet, it is late.
        state.wanted = Some(state.window.end());
        let whom: Weak<Shared> = Arc::downgrade(&self.shared);
        if !ask(whom) {
            state.wanted = None;
            state.left = None;
        }
    }
}

impl Shared {
    /// Reserves space for `end` bytes. On an error nothing has changed.
    fn reserve(&self, state: &mut State, end: u64) -> Result<()> {
        if end <= state.reserved {
            return Ok(());
        }
        let reserved = end.next_multiple_of(EXTENT_BYTES);
        if let Err(error) = self.allocate(state.reserved, reserved) {
            // Part of the space may have been reserved, here or for an extent that is being made: give it back.
            state.wanted = None;
            let _ = self.file.set_len(state.reserved);
            return Err(error);
        }
        state.reserved = reserved;
        Ok(())
    }

    /// Has the file system find space. On an error it may have found some of it.
    fn allocate(&self, start: u64, end: u64) -> Result<()> {
        #[cfg(test)]
        self.disk
            .allocate(&self.file, start, end)
            .map_err(|error| describe("append to", &self.path, error))?;
        reserve_space(&self.file, &self.path, start, end)
    }

    /// Goes on to the window that holds the end of the log.
    fn advance(&self, state: &mut State) -> Result<()> {
        let start = state.len / EXTENT_BYTES * EXTENT_BYTES;
        let large = !state.synced;
        let window = match state.next.take() {
            Some(next) => next,
            None => {
                Window::map(&self.file, start, large).map_err(|error| describe("map", &self.path, error))?
            }
        };
        debug_assert_eq!((window.start(), window.is_large()), (start, large), "the window that goes on");
        let left = mem::replace(&mut state.window, window);
        // Unmapping takes a while: a maker has the time.
        state.left = large.then_some(left);
        state.prefetch_at = if large { state.len } else { NEVER };
        state.synced = false;
        state.stale = false;
        Ok(())
    }

    /// Has no maker work on the file as long as the guard is there. Waits for the large page in hand, if there is one; for more where an append asks just
    /// now.
    fn stop_making(&self) -> MutexGuard<'_, ()> {
        self.state.lock().wanted = None;
        self.making.lock()
    }

    /// Notes a sync, before which large pages are given up: they would be written whole. The caller holds `making`.
    fn note_sync(&self, state: &mut State) -> io::Result<()> {
        if state.len <= HEAD_BYTES {
            return Ok(());
        }
        state.synced = true;
        let next = state.give_up_next();
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

impl MadeAhead for Shared {
    fn make_ahead(&self) {
        let _making = self.making.lock();
        let mut state = self.state.lock();
        let (left, wanted) = (state.left.take(), state.wanted);
        drop(state);
        drop(left);
        let Some(start) = wanted else { return };
        let made = self
            .allocate(start, start + EXTENT_BYTES)
            .ok()
            .and_then(|()| Window::map(&self.file, start, true).ok());
        if let Some(window) = &made {
            window.touch(|| self.state.lock().wanted == Some(start));
        }
        let mut state = self.state.lock();
        if state.wanted == Some(start) {
            state.wanted = None;
            if let Some(window) = made {
                state.reserved = state.reserved.max(window.end());
                state.next = Some(window);
                return;
            }
        }
        // Nobody wants it, or there is no space: the file is as long as the log knows. Where an append went on there itself this cuts nothing.
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
                // Before the first byte a failure (a lack of memory) leaves everything as it was.
                shared.advance(&mut state).inspect_err(|_| state.poisoned = rest.len() < bytes.len())?;
            }
            let at = state.len;
            let count = state.window.write(at, rest);
            state.len += count as u64;
            rest = &rest[count..];
        }
        if state.len >= state.prefetch_at {
            self.prefetch_next(&mut state);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        // Dirty pages of the mapping are pages of the file: a sync of the file writes them. Appends go on.
        let shared = &*self.shared;
        let making = shared.stop_making();
        let mut state = shared.state.lock();
        if state.poisoned {
            return Err(shared.poisoned());
        }
        if let Err(error) = shared.note_sync(&mut state) {
            state.poisoned = true;
            return Err(describe("sync", &shared.path, error));
        }
        drop(state);
        drop(making);
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
        // Nobody else appends, so nothing is wanted any more: the file stays as it is from here on.
        let _making = self.shared.stop_making();
        let mut state = self.shared.state.lock();
        drop(state.give_up_next());
        // A tail of zeros would do no harm, but it would take space.
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
