//! Descriptions of a manifest and of `CURRENT` as text.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::path::Path;

use bolide_base::{Error, Result, TreeId};
use bolide_storage::Vfs;

use super::current_file::CurrentFile;
use super::table_meta::TableMeta;
use super::version_edit::{EditOperation, VersionEdit};
use super::view_meta::ViewMeta;
use crate::external_tree::ExternalRoot;
use crate::file_name::FileName;
use crate::record_log::{LogReader, LogRole, describe_end};

/// Longer keys are truncated to this length, in bytes.
const MAX_PRINTED_KEY_BYTES: usize = 48;

/// Writes a description of the manifest at `path` to `out`, one line per operation. The identity is read from the file
/// itself, so any single file can be described.
///
/// Damage ends the description with a line that states the position; it is not an error.
///
/// # Errors
/// Those of opening the file and reading its header; Internal if `out` fails.
pub fn describe_manifest(vfs: &dyn Vfs, path: &Path, out: &mut dyn Write) -> Result<()> {
    let mut reader = LogReader::open(vfs.open(path)?, path.display().to_string(), LogRole::Manifest, None)?;
    let identity = reader.header().identity;
    let text = |_| Error::internal("the description could not be written");
    writeln!(out, "manifest {}, tag {:016x}", identity.file_number, identity.tag).map_err(text)?;
    while let Some(record) = reader.next_record()? {
        writeln!(out, "@{} edit of {} bytes", record.offset, record.payload.len()).map_err(text)?;
        match VersionEdit::decode(record.payload) {
            Some(edit) => {
                for operation in edit.operations() {
                    writeln!(out, "  {}", OperationText(operation)).map_err(text)?;
                }
            }
            None => writeln!(out, "  damaged: cannot be decoded").map_err(text)?,
        }
    }
    describe_end(&mut reader, out)
}

/// The tree that contains or contained the sstable with this number, by the manifest in use in `directory`, with the
/// newest descriptor of the tree; `None` if the manifest does not name the file.
///
/// # Errors
/// Those of reading `CURRENT` and the manifest.
pub fn owner_of_table(vfs: &dyn Vfs, directory: &Path, number: u64) -> Result<Option<(TreeId, Vec<u8>)>> {
    let current = CurrentFile::read_file(vfs, &directory.join(FileName::Current.to_string()))?;
    let path = directory.join(FileName::Manifest(current.manifest.file_number).to_string());
    let mut reader = LogReader::open(
        vfs.open(&path)?,
        path.display().to_string(),
        LogRole::Manifest,
        Some(current.manifest),
    )?;
    let mut descriptors: HashMap<TreeId, Vec<u8>> = HashMap::new();
    let mut owner = None;
    while let Some(record) = reader.next_record()? {
        let edit = VersionEdit::decode(record.payload);
        for operation in edit.iter().flat_map(VersionEdit::operations) {
            match operation {
                EditOperation::CreateTree { tree, descriptor, .. }
                | EditOperation::SetDescriptor { tree, descriptor } => {
                    descriptors.insert(*tree, descriptor.clone());
                }
                EditOperation::AddTable { tree, meta, .. } if meta.number == number => owner = Some(*tree),
                _ => {}
            }
        }
    }
    Ok(owner.and_then(|tree| Some((tree, descriptors.remove(&tree)?))))
}

/// Writes a description of the file `CURRENT` at `path` to `out`.
///
/// # Errors
/// Those of reading it; Internal if `out` fails.
pub fn describe_current(vfs: &dyn Vfs, path: &Path, out: &mut dyn Write) -> Result<()> {
    let current = CurrentFile::read_file(vfs, path)?;
    let state = if current.closed { "closed cleanly" } else { "not closed cleanly" };
    writeln!(
        out,
        "manifest {} with tag {:016x} of database {:016x}, durable through byte {}, {state}",
        current.manifest.file_number, current.manifest.tag, current.database_id, current.len
    )
    .map_err(|_| Error::internal("the description could not be written"))
}

/// An operation as text.
struct OperationText<'a>(&'a EditOperation);

impl fmt::Display for OperationText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            EditOperation::NextFileNumber(number) => write!(f, "next file number {number}"),
            EditOperation::NextTreeId(tree) => write!(f, "next tree id {tree}"),
            EditOperation::LastSequence(sequence) => write!(f, "last sequence {sequence}"),
            EditOperation::WalFloor(number) => write!(f, "WAL floor {number}"),
            EditOperation::StartWal { number, tag } => write!(f, "WAL {number} starts, tag {tag:016x}"),
            EditOperation::NoteCutTail(tail) => {
                write!(f, "WAL {}: bytes {}..{} were cut off", tail.segment, tail.start, tail.end)
            }
            EditOperation::ForgetCutTail(number) => write!(f, "WAL {number}: the cut tail is gone"),
            EditOperation::SealWal { number, len } => write!(f, "WAL {number} ends at byte {len}"),
            EditOperation::CreateTree { tree, options, descriptor } => {
                let (options, descriptor) = (KeyText(options), KeyText(descriptor));
                write!(f, "create tree {tree}, options {options}, descriptor {descriptor}")
            }
            EditOperation::DropTree { tree } => write!(f, "drop tree {tree}"),
            EditOperation::SetDescriptor { tree, descriptor } => {
                write!(f, "tree {tree}: descriptor {}", KeyText(descriptor))
            }
            EditOperation::SetOptions { tree, options } => {
                write!(f, "tree {tree}: options {}", KeyText(options))
            }
            EditOperation::TreeLogFloor { tree, number } => write!(f, "tree {tree}: log floor {number}"),
            EditOperation::AddTable { tree, level, run, meta } => {
                write!(f, "tree {tree}: add to level {level} run {run} {}", MetaText(meta))
            }
            EditOperation::SetExternalRoot { tree, external_root } => {
                let ExternalRoot { files, root } = external_root;
                write!(f, "tree {tree}: external root in files {files:?}, root {}", KeyText(root))
            }
            EditOperation::NoteWritten { tree, bytes } => write!(f, "tree {tree}: {bytes} bytes written"),
            EditOperation::RemoveTable { tree, number } => {
                write!(f, "tree {tree}: remove sstable {number}")
            }
            EditOperation::AddRangeTombstone { tree, tombstone } => {
                let (start, end) = (KeyText(&tombstone.start), KeyText(&tombstone.end));
                write!(f, "tree {tree}: delete {start}..{end} at {}", tombstone.sequence)
            }
            EditOperation::RemoveRangeTombstone { tree, tombstone } => {
                let (start, end) = (KeyText(&tombstone.start), KeyText(&tombstone.end));
                write!(f, "tree {tree}: forget the deletion of {start}..{end} at {}", tombstone.sequence)
            }
            EditOperation::AddBoundary { tree, level, key } => {
                write!(f, "tree {tree}: boundary of level {level} at {}", KeyText(key))
            }
            EditOperation::RemoveBoundary { tree, level, key } => {
                write!(f, "tree {tree}: no boundary of level {level} at {} any more", KeyText(key))
            }
            EditOperation::AddView { tree, view } => {
                let ViewMeta { number, file_bytes, tables, .. } = view;
                write!(f, "tree {tree}: add view {number}: {file_bytes} bytes, over sstables {tables:?}")?;
                if view.serves_reads { f.write_str(", serves point reads") } else { Ok(()) }
            }
            EditOperation::RemoveView { tree, number } => write!(f, "tree {tree}: remove view {number}"),
            EditOperation::SetRetained { tree, retained: Some(log) } => {
                let (segment, start, end) = (log.segment, log.start, log.end);
                write!(f, "tree {tree}: retained in WAL {segment}, bytes {start}..{end}")
            }
            EditOperation::SetRetained { tree, retained: None } => {
                write!(f, "tree {tree}: nothing retained")
            }
        }
    }
}

/// A meta as text.
struct MetaText<'a>(&'a TableMeta);

impl fmt::Display for MetaText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = self.0;
        let (smallest, largest) = (KeyText(&meta.smallest_key), KeyText(&meta.largest_key));
        write!(f, "sstable {}: {} bytes, {smallest}..={largest}, ", meta.number, meta.file_bytes)?;
        write!(f, "sequences {}..={}, ", meta.smallest_sequence, meta.largest_sequence)?;
        write!(f, "{} entries, {} tombstones, ", meta.entries, meta.tombstones)?;
        write!(f, "filtered through {}", meta.filtered_through)?;
        match meta.attachment.len() {
            0 => Ok(()),
            len => write!(f, ", attachment of {len} bytes"),
        }
    }
}

/// Escaped and truncated bytes.
struct KeyText<'a>(&'a [u8]);

impl fmt::Display for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printed = self.0.get(..MAX_PRINTED_KEY_BYTES).unwrap_or(self.0);
        write!(f, "\"{}\"", printed.escape_ascii())?;
        if printed.len() < self.0.len() { write!(f, "… of {} bytes", self.0.len()) } else { Ok(()) }
    }
}
