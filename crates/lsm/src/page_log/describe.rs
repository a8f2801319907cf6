//! A text description of a page segment.

use std::fmt::Write;
use std::path::Path;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::Vfs;

use super::format::{PageRecordKind, Root};
use super::scan::SegmentScan;

/// Writes a description of the page segment at `path` to `out`, one line for each record. Reads the identity from the
/// file itself, so that it describes a file without its database.
///
/// The records after the last root may be the start of an unfinished checkpoint. Damage ends the description with a line
/// that contains the position; it is not an error.
///
/// # Errors
/// Those of opening the file and reading its header; `Internal` if `out` fails.
pub fn describe_segment(vfs: &dyn Vfs, path: &Path, out: &mut dyn Write) -> Result<()> {
    let text = |_| Error::internal("the description could not be written");
    let file = vfs.open(path)?;
    let len = file.len()?;
    let mut scan = SegmentScan::new(file, path.display().to_string(), None, len)?;
    let header = *scan.header();
    let FileIdentity { file_number: number, tag } = header.identity;
    writeln!(out, "page segment {number} of region {}, tag {tag:016x}", header.region).map_err(text)?;
    loop {
        let line = match scan.next_record() {
            Ok(None) => break,
            Ok(Some(found)) => {
                let (offset, checkpoint, bytes) =
                    (found.offset, found.record.checkpoint, found.record.body.len());
                match found.record.kind {
                    PageRecordKind::Page => {
                        format!(
                            "@{offset} checkpoint {checkpoint} page {} of {bytes} bytes",
                            found.record.page
                        )
                    }
                    PageRecordKind::Root => match Root::decode(found.record.body) {
                        Some(root) => format!(
                            "@{offset} checkpoint {checkpoint} root: sequence {}, {} pages in segments {}",
                            root.sequence,
                            root.pages,
                            root.segments
                                .iter()
                                .map(|(file, len)| format!("{} ({len} bytes)", file.file_number))
                                .collect::<Vec<_>>()
                                .join(", ")
                        ),
                        None => format!("@{offset} checkpoint {checkpoint} root that cannot be decoded"),
                    },
                }
            }
            Err(error) if error.is_corruption() => {
                writeln!(out, "damaged, unless no root refers to the rest: {error}").map_err(text)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        writeln!(out, "{line}").map_err(text)?;
    }
    writeln!(out, "@{} end", scan.position()).map_err(text)
}
