//! The manifest on disk: a record log whose payloads are version edits.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::Vfs;

use super::catalogue::Catalogue;
use super::current_file::CurrentFile;
use super::table_handle::TableFiles;
use super::version_edit::VersionEdit;
use crate::file_name::FileName;
use crate::record_log::{Boot, LogHeader, LogReader, LogRole, LogWriter};
use crate::sync_marker::{Marks, SyncMarker};

/// The approximate length of an edit of a snapshot in bytes.
const SNAPSHOT_EDIT_BYTES: usize = 1 << 20;

/// The manifest in force, open for appending.
#[derive(Debug)]
pub(super) struct Manifest {
    log: LogWriter,
    database_id: u64,
}

impl Manifest {
    /// Writes a new manifest with `catalogue` and syncs it. It is not in force yet.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn create(
        vfs: &dyn Vfs,
        dir: &Path,
        identity: FileIdentity,
        database_id: u64,
        catalogue: &Catalogue,
        marker: Option<Arc<SyncMarker>>,
    ) -> Result<Self> {
        let role = LogRole::Manifest;
        let header = LogHeader { role, identity, boot: Boot::default() };
        let path = FileName::Manifest(identity.file_number).path(dir);
        let log = LogWriter::create(vfs, &path, header, marker)?;
        for edit in catalogue.snapshot(SNAPSHOT_EDIT_BYTES) {
            log.append([edit.encode().as_slice()])?;
        }
        log.sync()?;
        Ok(Self { log, database_id })
    }

    /// Puts the manifest in force with its present durable length. `temp` is a file number that was never used; `closed`
    /// states that no file of the database may be torn.
    ///
    /// # Errors
    /// NoSpace: the old manifest is in force. Other errors of the file system: either is.
    pub(super) fn put_in_force(&self, vfs: &dyn Vfs, dir: &Path, temp: u64, closed: bool) -> Result<()> {
        let (manifest, database_id) = (self.log.header().identity, self.database_id);
        let len = self.log.synced_through();
        CurrentFile { manifest, database_id, len, closed }.write(vfs, dir, temp)
    }

    /// Appends an edit and makes it durable.
    ///
    /// # Errors
    /// Those of [`LogWriter::append`] and [`LogWriter::sync`].
    pub(super) fn append(&self, edit: &VersionEdit) -> Result<()> {
        self.log.append([edit.encode().as_slice()])?;
        self.log.sync()
    }

    pub(super) fn len(&self) -> u64 {
        self.log.len()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.log.is_poisoned()
    }
}

/// Reads the manifest that `current` names.
///
/// # Errors
/// Corruption with file and offset for damage, for edits that do not fit together, and for a missing
/// file; Unsupported for newer formats; those of the file system.
pub(super) fn read(
    vfs: &dyn Vfs,
    dir: &Path,
    current: &CurrentFile,
    marks: &Marks,
    files: &Arc<TableFiles>,
) -> Result<Catalogue> {
    let path = FileName::Manifest(current.manifest.file_number).path(dir);
    let name = path.display().to_string();
    if !vfs.exists(&path)? {
        return Err(Error::corruption(&name, 0, "the manifest that CURRENT names is missing"));
    }
    let expected = Some(current.manifest);
    let mut reader = LogReader::open(vfs.open(&path)?, &name, LogRole::Manifest, expected)?;
    if current.closed {
        reader.seal_at(current.len)?;
    }
    let mut catalogue = Catalogue::new();
    while let Some(record) = reader.next_record()? {
        let offset = record.offset;
        let edit = VersionEdit::decode(record.payload)
            .ok_or_else(|| Error::corruption(&name, offset, "a version edit cannot be decoded"))?;
        catalogue.apply(&edit, files).map_err(|what| Error::corruption(&name, offset, what))?;
    }
    let durable = current.len.max(marks.synced_through(LogRole::Manifest, current.manifest));
    if reader.position() < durable {
        reader.require_clean_end()?;
        let what = format!("the manifest ends here, but was durable through byte {durable}");
        return Err(Error::corruption(&name, reader.position(), what));
    }
    if current.closed {
        reader.require_clean_end()?;
    } else {
        // A torn last edit was never acknowledged: nothing depends on it.
        reader.classify_end()?;
    }
    Ok(catalogue)
}
