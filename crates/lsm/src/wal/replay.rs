//! Reading of the WAL segments.
//!
//! # Algorithm
//! 1. The manifest names every segment at or above the WAL floor, with its tag. Each must exist with its tag. An unnamed
//!    segment never had a record, since a segment is written after the edit that names it: its creation was interrupted, and it
//!    is ignored; with records it is damage.
//! 2. The segments are read in order. The manifest has the ends of all but the last, and of the last after a clean close. In
//!    these segments, anything that is not a whole record is damage.
//! 3. The last segment, if it has no end, may have a torn tail, behind everything that is known to have been synced: by the
//!    [marker](crate::sync_marker), and by the records themselves. Below that an invalid record is damage; see
//!    [`LogReader::classify_end`]. The tail is cut off and reported; its bytes stay in the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bolide_base::{Error, ErrorKind, FileIdentity, Result};
use bolide_storage::Vfs;

use crate::file_name::FileName;
use crate::record_log::format::HEADER_BYTES;
use crate::record_log::{Boot, LogReader, LogRecord, LogRole, LogStop, TailEnd, only_zeros_from};
use crate::sync_marker::Marks;
use crate::version::{CutTail, WalSegment, WriterEnd};

/// The end of the records of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The number of the log.
    pub number: u64,
    /// The end of the last record, in bytes.
    pub len: u64,
}

/// The input of a replay.
#[derive(Debug)]
pub struct WalSegments<'a> {
    /// The file system.
    pub vfs: &'a dyn Vfs,
    /// The directory of the database.
    pub dir: &'a Path,
    /// Segments below this number are not needed and not read.
    pub floor: u64,
    /// The segments that the manifest names.
    pub segments: &'a BTreeMap<u64, WalSegment>,
    /// The lengths to which logs are known to have been synced.
    pub marks: Marks,
    /// Whether the marker names the manifest in force.
    pub is_manifest_marked: bool,
    /// The present boot and mount.
    pub boot: Boot,
}

/// The end of the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalTail {
    /// The last segment and the end of its records; `None` if there is no segment.
    pub last: Option<LogEnd>,
    /// True if the manifest has that end already.
    pub sealed: bool,
    /// All bytes before this offset of the last segment are durable.
    pub synced: u64,
    /// The tail that was cut off behind that end.
    pub cut_tail: Option<CutTail>,
    /// The last segment, if machine and mount are the same since it was written, but the marker names another segment or
    /// manifest: synced records at its end may be missing undetectably.
    pub unmarked: Option<u64>,
    /// The number of records read.
    pub records: u64,
}

impl WalTail {
    /// Makes the last segment durable through its end, so that the manifest may seal it. No effect if it is sealed.
    ///
    /// A sync of the file is not sufficient: if an earlier one failed, the operating system may have dropped dirty pages
    /// that reads still return, and would report success now. So the bytes that are not known to be durable are rewritten in
    /// place, which takes no space.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_durable(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        match self.last {
            Some(end) if !self.sealed => {
                vfs.rewrite(&FileName::Wal(end.number).path(dir), self.synced.min(end.len), end.len)
            }
            _ => Ok(()),
        }
    }
}

/// Passes every record at or above the WAL floor to `apply`, in the order of writing, with the number and the name of its
/// segment. Writes nothing. Memory: the buffer of one [`LogReader`].
///
/// # Errors
/// Corruption with file and offset for missing or damaged data; Unsupported for other formats;
/// those of the file system and of `apply`.
pub fn replay(
    wal: &WalSegments<'_>,
    mut apply: impl FnMut(u64, &str, LogRecord<'_>) -> Result<()>,
) -> Result<WalTail> {
    wal.require_nothing_unnamed()?;
    let mut tail =
        WalTail { last: None, sealed: true, synced: 0, cut_tail: None, unmarked: None, records: 0 };
    for (&number, segment) in wal.segments.range(wal.floor..) {
        let mut reader = wal.open(number, segment)?;
        let file_len = reader.limit();
        if let Some(end) = segment.end {
            reader.seal_at(end)?;
        }
        let name = reader.name().to_owned();
        tail.synced = HEADER_BYTES as u64;
        while let Some(record) = reader.next_record()? {
            tail.synced = tail.synced.max(record.synced_through);
            apply(number, &name, record)?;
            tail.records += 1;
        }
        tail.last = Some(LogEnd { number, len: reader.position() });
        tail.sealed = segment.end.is_some();
        if tail.sealed {
            reader.require_clean_end()?;
        } else {
            let marked = wal.require_synced(&reader)?;
            tail.synced = tail.synced.max(marked);
            let same_boot = reader.header().boot.is_same(&wal.boot);
            // The marker names a segment before its first record is written, and the manifest from its snapshot on.
            let is_marked = wal.is_manifest_marked && marked > 0;
            tail.unmarked = (same_boot && !is_marked).then_some(number);
            if reader.classify_end()? == TailEnd::Torn {
                let ended_by = if same_boot { WriterEnd::Process } else { WriterEnd::Machine };
                let start = reader.position();
                tail.cut_tail = Some(CutTail { segment: number, start, end: file_len, ended_by });
            }
        }
    }
    Ok(tail)
}

impl WalSegments<'_> {
    fn open(&self, number: u64, segment: &WalSegment) -> Result<LogReader> {
        let path = self.path(number);
        let file = self.vfs.open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::corruption(path.display(), 0, "the segment is missing; the manifest names it")
            }
            _ => error,
        })?;
        let identity = FileIdentity { file_number: number, tag: segment.tag };
        LogReader::open(file, path.display().to_string(), LogRole::Wal, Some(identity))
    }

    /// Fails if the records of the last segment end below its known synced length. Returns that length.
    fn require_synced(&self, reader: &LogReader) -> Result<u64> {
        let synced = self.marks.synced_through(LogRole::Wal, reader.header().identity);
        if reader.position() >= synced {
            return Ok(synced);
        }
        let what = match reader.stop() {
            Some(LogStop::Invalid(what)) => what,
            _ => "the segment ends here",
        };
        let what = format!("{what}, although the log was synced through byte {synced}");
        Err(Error::corruption(reader.name(), reader.position(), what))
    }

    /// A segment that the manifest does not name must have no record.
    fn require_nothing_unnamed(&self) -> Result<()> {
        for name in self.vfs.list(self.dir)? {
            match FileName::parse(&name) {
                Some(FileName::Wal(number))
                    if number >= self.floor && !self.segments.contains_key(&number) =>
                {
                    self.require_unused(number)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn require_unused(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        let file = self.vfs.open(&path)?;
        // The header may be torn or missing.
        if only_zeros_from(&*file, HEADER_BYTES as u64, file.len()?)? {
            return Ok(());
        }
        let what = "the segment holds bytes, but the manifest does not name it";
        Err(Error::corruption(path.display(), HEADER_BYTES as u64, what))
    }

    fn path(&self, number: u64) -> PathBuf {
        FileName::Wal(number).path(self.dir)
    }
}

#[cfg(test)]
mod tests;
