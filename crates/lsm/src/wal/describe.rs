//! Descriptions of a WAL segment as text.

use std::fmt::Write;
use std::path::Path;

use bolide_base::{Error, Result};
use bolide_storage::Vfs;

use crate::record_log::{LogReader, LogRole, describe_end};

/// Writes a description of the WAL segment at `path` to `out`, one line per record; `payload` adds the meaning of a record.
/// The identity is read from the file itself, so any single file can be described.
///
/// Damage ends the description with a line that states the position; it is not an error.
///
/// # Errors
/// Those of opening the file and reading its header; Internal if `out` fails.
pub fn describe_wal(
    vfs: &dyn Vfs,
    path: &Path,
    out: &mut dyn Write,
    payload: &mut dyn FnMut(&[u8], &mut dyn Write) -> std::fmt::Result,
) -> Result<()> {
    let mut reader = LogReader::open(vfs.open(path)?, path.display().to_string(), LogRole::Wal, None)?;
    let text = |_| Error::internal("the description could not be written");
    let header = *reader.header();
    writeln!(
        out,
        "WAL segment {}, tag {:016x}, of boot {:032x}, mount {}",
        header.identity.file_number, header.identity.tag, header.boot.id, header.boot.mount
    )
    .map_err(text)?;
    while let Some(record) = reader.next_record()? {
        let len = record.payload.len();
        write!(out, "@{} {len} bytes, synced through {}: ", record.offset, record.synced_through)
            .map_err(text)?;
        payload(record.payload, out).map_err(text)?;
        writeln!(out).map_err(text)?;
    }
    describe_end(&mut reader, out)
}
