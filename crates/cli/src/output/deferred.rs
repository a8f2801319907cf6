//! Standard output of a verb that may be run again: output up to the buffer size is deferred until the verb has
//! succeeded.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of bytes that are deferred before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Whether an answer, or a part of one, is on standard output.
static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// The unwritten output of a failed verb.
static UNWRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Whether an answer, or a part of one, is on standard output: the verb cannot be run again.
pub(crate) fn has_written() -> bool {
    HAS_WRITTEN.load(Ordering::Relaxed)
}

/// Discards the unwritten output of a failed verb.
pub(crate) fn discard_unwritten() {
    UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Writes the unwritten output of a failed verb: the part of the answer before its error.
pub(crate) fn write_unwritten() {
    let unwritten = std::mem::take(&mut *UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    // The error of the verb is reported in any case.
    let _ = io::stdout().lock().write_all(&unwritten);
}

/// Writes to standard output, in pieces of [`BUFFER_BYTES`].
#[derive(Default)]
pub(super) struct DeferredOutput {
    waiting: Vec<u8>,
}

impl Write for DeferredOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= BUFFER_BYTES {
            self.write_waiting()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_waiting()?;
        io::stdout().lock().flush()
    }
}

impl DeferredOutput {
    fn write_waiting(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        HAS_WRITTEN.store(true, Ordering::Relaxed);
        let waiting = std::mem::take(&mut self.waiting);
        let written = io::stdout().lock().write_all(&waiting);
        self.waiting = waiting;
        self.waiting.clear();
        written
    }
}

impl Drop for DeferredOutput {
    /// Only an error leaves pending output here.
    fn drop(&mut self) {
        UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.waiting);
    }
}
