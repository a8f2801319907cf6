//! Standard output of a verb that may be run again: what fits one buffer is held until the verb has succeeded.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes that are held before they are written.
const HELD_BYTES: usize = 64 << 10;

/// Whether an answer, or a part of one, is on standard output.
static HAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// What a verb that failed had not written.
static UNWRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Whether an answer, or a part of one, is on standard output: the verb cannot be run again.
pub(crate) fn has_written() -> bool {
    HAS_WRITTEN.load(Ordering::Relaxed)
}

/// Forgets what a verb that failed had not written.
pub(crate) fn discard_unwritten() {
    UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Writes what a verb that failed had not written: the part of the answer before its error.
pub(crate) fn write_unwritten() {
    let unwritten = std::mem::take(&mut *UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner));
    // The error of the verb is reported in any case.
    let _ = io::stdout().lock().write_all(&unwritten);
}

/// Writes to standard output, in pieces of [`HELD_BYTES`].
#[derive(Default)]
pub(super) struct Held {
    waiting: Vec<u8>,
}

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= HELD_BYTES {
            self.write_waiting()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_waiting()?;
        io::stdout().lock().flush()
    }
}

impl Held {
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

impl Drop for Held {
    /// Only what an error left is here.
    fn drop(&mut self) {
        UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.waiting);
    }
}
