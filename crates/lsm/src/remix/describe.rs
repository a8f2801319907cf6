//! A text description of a REMIX file.

use std::fmt::Write;
use std::path::Path;

use bolide_base::coding::Decoder;
use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::Vfs;

use super::Remix;
use super::format::HEADER_BYTES;
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};

/// The maximum length of a printed key in bytes.
const MAX_KEY_BYTES: usize = 48;

/// Writes a description of the REMIX file at `path` to `out`: its runs, then one line for each segment. Reads the
/// identity from the file itself, so that it describes a file without its database.
///
/// # Errors
/// Those of reading the file, before anything is written to `out`. `Internal` if `out` fails.
pub fn describe_remix(vfs: &dyn Vfs, path: &Path, out: &mut dyn Write) -> Result<()> {
    let file = vfs.open(path)?;
    let mut header = [0; HEADER_BYTES];
    let known = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(HEADER_BYTES);
    file.read_exact_at(0, header.get_mut(..known).unwrap_or_default())?;
    let mut input = Decoder::new(header.get(24..).unwrap_or_default());
    let (tag, file_number) = (input.u64().unwrap_or(0), input.u64().unwrap_or(0));
    let remix = Remix::read(&*file, &path.display().to_string(), FileIdentity { file_number, tag })?;
    let text = |_| Error::internal("the description could not be written");
    writeln!(out, "sorted view {file_number}, tag {tag:016x}").map_err(text)?;
    remix.describe(out).map_err(text)
}

impl Remix {
    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        let tags = if self.has_tags() { ", tags" } else { "" };
        let forks = if self.has_forks() { ", forks" } else { "" };
        writeln!(
            out,
            "{} entries of {} runs in {} segments of at most {}, offsets of {} bytes{forks}{tags}",
            self.entries(),
            self.runs(),
            self.segments(),
            self.segments.layout.width,
            self.segments.layout.offset_bytes
        )?;
        for (run, tables) in self.tables.iter().enumerate() {
            write!(out, "run {run}:")?;
            for table in tables {
                write!(
                    out,
                    " sstable {} ({} blocks, {} entries)",
                    table.file_number, table.blocks, table.entries
                )?;
            }
            writeln!(out)?;
        }
        for number in 0..self.segments() {
            let segment = self.segments.get(number);
            let key = self.anchors.key(number);
            let printed = key.get(..MAX_KEY_BYTES).unwrap_or(&key);
            let more = if printed.len() < key.len() { "…" } else { "" };
            write!(out, "segment {number} from \"{}{more}\"", printed.escape_ascii())?;
            if let Some(sequence) = self.anchors.sequence(number) {
                write!(out, " at {sequence}")?;
            }
            write!(out, ":")?;
            for selector in segment.selectors().iter().take(segment.entries()) {
                let old = if selector & OLD != 0 { "'" } else { "" };
                let deleted = if selector & TOMBSTONE != 0 { "-" } else { "" };
                write!(out, " {}{deleted}{old}", selector & RUN_BITS)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
