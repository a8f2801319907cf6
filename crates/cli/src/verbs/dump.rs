//! `dump`: the content of one file of a database.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use bolide_index::kinds;
use bolide_index::ps_tree_index::describe_in_place;
use bolide_lsm::file_name::FileName;
use bolide_lsm::page_log::describe_segment;
use bolide_lsm::remix::describe_remix;
use bolide_lsm::version::{describe_current, describe_manifest, owner_of_table};
use bolide_lsm::wal::describe_wal;
use bolide_lsm::{BatchReader, Operation};
use bolide_storage::{DiskVfs, Vfs};
use bolide_table::{BlockCache, FileSource, TableDetail, TableReader, read_identity};

use crate::arguments::Dump;
use crate::failure::Failure;

/// The maximum number of printed bytes of a key or value.
const MAX_PRINTED_BYTES: usize = 64;

/// Describes the file by the type in its name.
pub(super) fn run(arguments: &Dump) -> Result<(), Failure> {
    let path = arguments.file.as_path();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let vfs = DiskVfs::new();
    let mut gate = Gate::new(&mut out);
    let described = match FileName::parse(name) {
        Some(FileName::Table(_)) => describe_table(&vfs, path, &mut gate),
        Some(FileName::Wal(_)) => describe_wal(&vfs, path, &mut gate, &mut describe_batch),
        Some(FileName::Region(_)) => describe_segment(&vfs, path, &mut gate),
        Some(FileName::View(_)) => describe_remix(&vfs, path, &mut gate),
        Some(FileName::Manifest(_)) => describe_manifest(&vfs, path, &mut gate),
        Some(FileName::Current) => describe_current(&vfs, path, &mut gate),
        None if name.ends_with(".pmem") => describe_in_place(&vfs, path, &mut gate),
        other => return Err(no_content(path, other)),
    };
    gate.finish(described)?;
    out.flush()?;
    Ok(())
}

fn describe_table(vfs: &DiskVfs, path: &Path, gate: &mut Gate<'_>) -> bolide::Result<()> {
    let source = FileSource::direct(path.display().to_string(), vfs.open(path)?);
    let identity = read_identity(&source)?;
    let reader = Arc::new(TableReader::open(source, identity, BlockCache::new(0))?);
    let describe = kinds::describe_meta_block;
    let Some(spec) = spec_of_table(vfs, path) else {
        return reader.describe_with(TableDetail::Entries, &describe, &|_, _, _| None, gate);
    };
    // An error of the output is retained by the gate, and reported at its end.
    let _ = writeln!(gate as &mut dyn std::io::Write, "of index         {spec}");
    let explain = |key: &[u8], trailer, value: &[u8]| kinds::describe_entry(&spec, key, trailer, value);
    reader.describe_with(TableDetail::Entries, &describe, &explain, gate)
}

/// The specification of the sstable's index, from the manifest in its directory; `None` without a manifest, or if the
/// sstable is not of an index.
fn spec_of_table(vfs: &DiskVfs, path: &Path) -> Option<bolide::IndexSpec> {
    let Some(FileName::Table(number)) = path.file_name()?.to_str().and_then(FileName::parse) else {
        return None;
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (_, descriptor) = owner_of_table(vfs, directory, number).ok()??;
    bolide::index_spec_of_descriptor(&descriptor).ok()?
}

fn no_content(path: &Path, name: Option<FileName>) -> Failure {
    let what = match name {
        Some(FileName::Lock) => "exists only to be locked and has no content",
        Some(FileName::Reserve) => "only reserves space for a full disk, and has no content",
        Some(FileName::Temp(_)) => "was being written when the program ended; the next open removes it",
        _ => "is not named like a file of Bolide",
    };
    Failure::operation(
        format!("{} {what}", path.display()),
        "name an sstable (000012.sst), a WAL (000013.wal), a page segment (000014.region), a sorted view (000015.remix), a \
         region in persistent memory (*.pmem), a manifest (MANIFEST-000003) or CURRENT",
    )
}

/// One line for each operation of a batch.
fn describe_batch(payload: &[u8], out: &mut dyn std::fmt::Write) -> std::fmt::Result {
    let batch = match BatchReader::new(payload) {
        Ok(batch) => batch,
        Err(error) => return write!(out, "no batch: {error}"),
    };
    for operation in batch {
        let placed = match operation {
            Ok(placed) => placed,
            Err(error) => return write!(out, "\n    damaged: {error}"),
        };
        write!(out, "\n    #{} tree {} ", placed.sequence, placed.tree)?;
        match placed.operation {
            Operation::Entry { kind, key, value } => {
                write!(out, "{} {}", format!("{kind:?}").to_lowercase(), printable(key))?;
                if !value.is_empty() {
                    write!(out, " = {}", printable(value))?;
                }
            }
            Operation::RangeDelete { start, end } => {
                write!(out, "delete range {} to {}", printable(start), printable(end))?;
            }
        }
    }
    Ok(())
}

fn printable(bytes: &[u8]) -> String {
    let mut text = format!("\"{}\"", bytes[..bytes.len().min(MAX_PRINTED_BYTES)].escape_ascii());
    if bytes.len() > MAX_PRINTED_BYTES {
        // Writing to a string cannot fail.
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

/// Passes text and bytes to an output and retains its first error, which a description could only report as an error of
/// its own.
struct Gate<'w> {
    out: &'w mut dyn std::io::Write,
    failed: Option<std::io::Error>,
}

impl<'w> Gate<'w> {
    fn new(out: &'w mut dyn std::io::Write) -> Self {
        Self { out, failed: None }
    }

    /// The error of the output if there was one, otherwise that of the description.
    fn finish(self, described: bolide::Result<()>) -> Result<(), Failure> {
        match self.failed {
            Some(error) => Err(error.into()),
            None => Ok(described?),
        }
    }
}

impl std::fmt::Write for Gate<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        std::io::Write::write_all(self, text.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

impl std::io::Write for Gate<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.out.write(bytes).inspect_err(|error| self.failed = Some(error.kind().into()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
