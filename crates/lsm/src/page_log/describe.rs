//! Showing a page segment to people.

use std::fmt::Write;
use std::path::Path;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::Vfs;

use super::format::{RecordKind, Root};
use super::scan::SegmentScan;

/// Writes a description of the page segment at `path` to `out`, one line a record. The identity is taken
/// from the file itself, so any single file can be shown.
///
/// What follows the last root may be the beginning of a cut that was not finished. Damage ends the
/// description with a line that says where; it is not an error.
///
/// # Errors
/// Those of opening the file and reading its header; Internal if `out` fails.
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
                let (offset, cut, bytes) = (found.offset, found.record.cut, found.record.body.len());
                match found.record.kind {
                    RecordKind::Page => {
                        format!("@{offset} cut {cut} page {} of {bytes} bytes", found.record.page)
                    }
                    RecordKind::Root => match Root::decode(found.record.body) {
                        Some(root) => format!(
                            "@{offset} cut {cut} root: sequence {}, {} pages in segments {}",
                            root.sequence,
                            root.pages,
                            root.segments
                                .iter()
                                .map(|(file, len)| format!("{} ({len} bytes)", file.file_number))
                                .collect::<Vec<_>>()
                                .join(", ")
                        ),
                        None => format!("@{offset} cut {cut} root that cannot be decoded"),
                    },
                }
            }
            Err(error) if error.is_corruption() => {
                writeln!(out, "damaged, unless no root names what follows: {error}").map_err(text)?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        writeln!(out, "{line}").map_err(text)?;
    }
    writeln!(out, "@{} end", scan.position()).map_err(text)
}
