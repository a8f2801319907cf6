//! Sequential reads of a segment.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, PageRecord, RECORD_HEADER_BYTES, SegmentHeader};
use crate::file_name::FileName;

/// The bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Reads a segment record by record. All records up to `limit` must be valid.
#[derive(Debug)]
pub(super) struct SegmentScan {
    file: Arc<dyn File>,
    name: String,
    header: SegmentHeader,
    /// The end of the records in bytes.
    limit: u64,
    /// The start of the next record.
    position: u64,
    /// The bytes of the file from `start` on, valid up to `filled`.
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
}

/// A record with its location.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScannedRecord<'a> {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) record: PageRecord<'a>,
}

impl SegmentScan {
    /// Opens the segment of `expected` in `dir`, of which `limit` bytes are valid.
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, expected: SegmentHeader, limit: u64) -> Result<Self> {
        let path = FileName::Region(expected.identity.file_number).path(dir);
        let file = vfs.open(&path)?;
        let name = path.display().to_string();
        let len = file.len()?;
        // The header first: a wrong tag is a more precise error than a wrong length.
        let scan = Self::new(file, name, Some(expected), limit.min(len))?;
        if len < limit {
            let what = format!("the file has {len} bytes, but its valid length is {limit}");
            return Err(Error::corruption(scan.name, len, what));
        }
        Ok(scan)
    }

    /// Reads `limit` bytes of `file`, which must have as many.
    pub(super) fn new(
        file: Arc<dyn File>,
        name: String,
        expected: Option<SegmentHeader>,
        limit: u64,
    ) -> Result<Self> {
        let mut bytes = vec![0; limit.min(HEADER_BYTES as u64) as usize];
        file.read_exact_at(0, &mut bytes)?;
        let header = SegmentHeader::decode(&bytes, &name, expected)?;
        let position = HEADER_BYTES as u64;
        Ok(Self { file, name, header, limit, position, buffer: Vec::new(), filled: 0, start: position })
    }

    pub(super) fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The file.
    pub(super) fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    /// The start of the next record, or the end.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Those of the file system; `Corruption` with file and offset for anything that is not a record.
    pub(super) fn next_record(&mut self) -> Result<Option<ScannedRecord<'_>>> {
        let offset = self.position;
        if offset == self.limit {
            return Ok(None);
        }
        self.fill(RECORD_HEADER_BYTES)?;
        let len = PageRecord::len_of(self.buffered())
            .ok_or_else(|| self.damaged("the header of a record is not valid"))?;
        self.fill(len)?;
        self.position += len as u64;
        let from = (offset - self.start) as usize;
        let bytes = self.buffer.get(from..from + len).unwrap_or_default();
        match PageRecord::decode(bytes, offset, self.header.identity) {
            Ok(record) => Ok(Some(ScannedRecord { offset, len, record })),
            Err(what) => Err(Error::corruption(&self.name, offset, what)),
        }
    }

    /// The error for damage at the position.
    pub(super) fn damaged(&self, what: &str) -> Error {
        Error::corruption(&self.name, self.position, what)
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get((self.position - self.start) as usize..self.filled).unwrap_or_default()
    }

    /// Reads `len` bytes from the position on into the buffer.
    fn fill(&mut self, len: usize) -> Result<()> {
        if self.buffered().len() >= len {
            return Ok(());
        }
        if self.limit - self.position < len as u64 {
            return Err(self.damaged("a record reaches past the valid length"));
        }
        let consumed = (self.position - self.start) as usize;
        self.buffer.copy_within(consumed..self.filled, 0);
        self.filled -= consumed;
        self.start = self.position;
        let end = (self.limit - self.start).min(len.max(READ_BYTES) as u64) as usize;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let more = self.buffer.get_mut(self.filled..end).unwrap_or_default();
        self.file.read_exact_at(self.start + self.filled as u64, more)?;
        self.filled = end;
        Ok(())
    }
}
