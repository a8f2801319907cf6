//! The writer of a WAL segment.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{FileIdentity, Result};
use bolide_memory::PagePool;
use bolide_storage::Vfs;

use super::replay::LogEnd;
use crate::file_name::FileName;
use crate::record_log::{Boot, LogHeader, LogRole, LogWriter, SingleOperation};
use crate::sync_marker::SyncMarker;

/// Appends write batches to one WAL segment. See [`LogWriter`] for threads and failures.
#[derive(Debug)]
pub struct WalWriter {
    log: LogWriter,
}

impl WalWriter {
    /// Creates the segment `identity.file_number` in `dir`, durably. The first record may follow once the manifest names it.
    /// `boot` is stored in its header; its length is stored in `marker` after each sync.
    ///
    /// Costs two syncs: the file and the directory.
    ///
    /// # Errors
    /// Conflict if the file exists; those of the file system. A failed creation may leave a file
    /// without a whole header: recovery ignores it.
    pub fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        identity: FileIdentity,
        boot: Boot,
        marker: Option<Arc<SyncMarker>>,
    ) -> Result<Self> {
        let header = LogHeader { role: LogRole::Wal, identity, boot };
        let path = FileName::Wal(identity.file_number).path(dir);
        Ok(Self { log: LogWriter::create(vfs, &path, header, marker)? })
    }

    /// Appends one record for each payload, all with one append to the file. Nothing is durable before
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// LimitExceeded if a payload is too long, and NoSpace: nothing was appended, the segment remains usable. Any other error
    /// poisons the writer.
    pub fn append<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        self.log.append(payloads)
    }

    /// As [`append`](Self::append), for one payload in parts.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) fn append_single(&self, operation: &SingleOperation<'_>) -> Result<()> {
        self.log.append_single(operation)
    }

    /// Makes every record appended before this call durable.
    ///
    /// # Errors
    /// Those of the file system; any of them poisons the writer.
    pub fn sync(&self) -> Result<()> {
        self.log.sync()
    }

    /// Records in the marker that this segment is in use, before its first record. From then on the marker names this segment,
    /// unless it is lost.
    pub fn note_in_use(&self) {
        self.log.store_synced_length();
    }

    /// Lets the preallocator of `pool` prepare the space of later appends; see [`bolide_storage::File::preallocate_with`].
    pub fn preallocate_with(&self, pool: &Arc<PagePool>) {
        self.log.preallocate_with(pool);
    }

    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.log.header().identity.file_number
    }

    /// The end of the last record, in bytes.
    pub fn len(&self) -> u64 {
        self.log.len()
    }

    /// True while the segment has no record.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// All bytes before this offset are durable.
    pub fn synced_through(&self) -> u64 {
        self.log.synced_through()
    }

    /// The present end of the segment: its end for the manifest after a [`sync`](Self::sync).
    pub fn end(&self) -> LogEnd {
        LogEnd { number: self.number(), len: self.len() }
    }
}
