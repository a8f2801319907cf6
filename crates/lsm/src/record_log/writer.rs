//! Appends to a record log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use bolide_memory::PagePool;
use bolide_storage::{File, Vfs};
use parking_lot::Mutex;

use super::format::{HEADER_BYTES, LogHeader, LogRole, MAX_PAYLOAD_BYTES};
use super::predecessor::Predecessor;
use super::single_operation::SingleOperation;
use crate::sync_marker::SyncMarker;

/// The size to which the buffer of an append shrinks if it has grown larger.
const RETAINED_BUFFER_BYTES: usize = 1 << 20;

/// Appends records to a new log.
///
/// # Threads
/// All methods take `&self`. Appends exclude each other, and so do syncs, but an append may run during a sync. A sync
/// covers all appends before its call, and advances [`synced_through`].
///
/// # After a failure
/// A failed append or sync poisons the writer permanently: the content of the file is in doubt, so every later append and
/// sync fails with [`ErrorKind::Poisoned`]. The exception is an append that fails because the disk is full: nothing was
/// appended then, and the writer stays usable.
///
/// [`synced_through`]: LogWriter::synced_through
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn File>,
    header: LogHeader,
    name: String,
    tail: Mutex<WriterState>,
    /// Receives the length after each sync, for recovery.
    marker: Option<Arc<SyncMarker>>,
    /// Serialises syncs: a sync concurrent with a failing one could consider its dropped pages clean.
    syncing: Mutex<()>,
    /// The end of the last whole record in the file. Written under the lock of `tail`.
    appended: AtomicU64,
    /// Everything before this offset is durable.
    synced: AtomicU64,
    poisoned: AtomicBool,
}

/// The state of appends.
#[derive(Debug, Default)]
struct WriterState {
    /// The records of one append; reused.
    buffer: Vec<u8>,
    /// The assembled payload of a single operation; reused.
    payload: Vec<u8>,
    /// The last appended record.
    predecessor: Predecessor,
}

impl LogWriter {
    /// Creates the file at `path`, writes its header, and makes both durable (two syncs: the file and the directory), so that
    /// an invalid header of a longer file is damage and never a torn write. `marker` receives the length after each later
    /// sync.
    ///
    /// # Errors
    /// `Conflict` if the file exists; those of the file system.
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        header: LogHeader,
        marker: Option<Arc<SyncMarker>>,
    ) -> Result<Self> {
        let file = match header.role {
            LogRole::Wal => vfs.create_log(path)?,
            LogRole::Manifest => vfs.create(path)?,
        };
        file.append(&header.encode())?;
        file.sync()?;
        if let Some(dir) = path.parent() {
            vfs.sync_dir(dir)?;
        }
        Ok(Self {
            file,
            header,
            name: path.display().to_string(),
            tail: Mutex::default(),
            marker,
            syncing: Mutex::new(()),
            appended: AtomicU64::new(HEADER_BYTES as u64),
            synced: AtomicU64::new(HEADER_BYTES as u64),
            poisoned: AtomicBool::new(false),
        })
    }

    /// Lets the preallocator of `pool` prepare the space of later appends.
    pub fn preallocate_with(&self, pool: &Arc<PagePool>) {
        self.file.preallocate_with(pool);
    }

    /// Appends one record for each payload, with one append to the file. They are not durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// `LimitExceeded` if a payload is longer than [`MAX_PAYLOAD_BYTES`], and `NoSpace`: nothing was appended. Any other error
    /// poisons the writer.
    pub fn append<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        self.append_with(|tail, start, synced| {
            for payload in payloads {
                if payload.len() > MAX_PAYLOAD_BYTES {
                    let len = payload.len() as u64;
                    return Err(Error::limit_exceeded("a log record", len, MAX_PAYLOAD_BYTES as u64));
                }
                let offset = start + tail.buffer.len() as u64;
                tail.predecessor.put_next(&self.header, &mut tail.buffer, offset, synced, payload);
            }
            Ok(())
        })
    }

    /// As [`append`](Self::append), for a single operation.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) fn append_single(&self, operation: &SingleOperation<'_>) -> Result<()> {
        self.append_with(|tail, start, synced| {
            let WriterState { buffer, payload, predecessor } = tail;
            predecessor.put_next_single(&self.header, buffer, start, synced, operation, payload);
            Ok(())
        })
    }

    /// Appends the records that `fill` writes to the buffer. The arguments of `fill` are the state, the file offset of the
    /// buffer, and the offset up to which the file is synced.
    #[inline(always)]
    fn append_with(&self, fill: impl FnOnce(&mut WriterState, u64, u64) -> Result<()>) -> Result<()> {
        let mut tail = self.tail.lock();
        self.check_poisoned()?;
        let last = tail.predecessor;
        let start = self.appended.load(Ordering::Relaxed);
        let synced = self.synced.load(Ordering::Acquire);
        tail.buffer.clear();
        let filled = fill(&mut tail, start, synced).and_then(|()| self.append_buffer(&mut tail, start));
        // On a failure, the next record is encoded against the last appended one.
        filled.inspect_err(|_| tail.predecessor = last)
    }

    fn append_buffer(&self, tail: &mut WriterState, start: u64) -> Result<()> {
        let buffer = &mut tail.buffer;
        if let Err(error) = self.file.append(buffer) {
            if error.kind() != ErrorKind::NoSpace {
                self.poisoned.store(true, Ordering::Release);
            }
            return Err(error);
        }
        self.appended.store(start + buffer.len() as u64, Ordering::Release);
        if buffer.capacity() > RETAINED_BUFFER_BYTES {
            buffer.clear();
            buffer.shrink_to(RETAINED_BUFFER_BYTES);
        }
        Ok(())
    }

    /// Makes every record appended before this call durable. Costs no system call if they are already.
    ///
    /// # Errors
    /// Those of the file system; any of them poisons the writer.
    pub fn sync(&self) -> Result<()> {
        let target = self.len();
        let _one_at_a_time = self.syncing.lock();
        self.check_poisoned()?;
        if self.synced_through() >= target {
            return Ok(());
        }
        // The sync also covers appends during the wait.
        let target = self.len();
        if let Err(error) = self.file.sync() {
            self.poisoned.store(true, Ordering::Release);
            return Err(in_doubt(error));
        }
        self.synced.store(target, Ordering::Release);
        self.store_synced_length();
        Ok(())
    }

    /// Stores the durable length of the log in the marker, as [`sync`](Self::sync) does.
    pub fn store_synced_length(&self) {
        if let Some(marker) = &self.marker {
            marker.note(self.header.role, self.header.identity, self.synced_through());
        }
    }

    /// The end offset of the last whole record in bytes: the length of the log.
    pub fn len(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Whether the log has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == HEADER_BYTES as u64
    }

    /// The offset up to which the log is durable.
    pub fn synced_through(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// The header of the log.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The path of the log, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an append or a sync has failed.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn check_poisoned(&self) -> Result<()> {
        if self.is_poisoned() {
            let message = format!("{}: an earlier write failed, so its end is in doubt", self.name);
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        Ok(())
    }
}

/// The error for a failed sync, whose data may or may not be durable. Maps `NoSpace` to `Io`, since `NoSpace` guarantees
/// that nothing was written.
pub(crate) fn in_doubt(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NoSpace => Error::new(ErrorKind::Io, error.message()),
        _ => error,
    }
}
