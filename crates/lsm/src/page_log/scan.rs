//! Reading a segment from its beginning.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, RECORD_HEADER_BYTES, Record, SegmentHeader};
use crate::file_name::FileName;

/// How many bytes are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A segment that is read record by record. All of it up to `limit` must be whole.
#[derive(Debug)]
pub(super) struct SegmentScan {
    file: Arc<dyn File>,
    name: String,
    header: SegmentHeader,
    /// The end of what is read, in bytes.
    limit: u64,
    /// Where the next record begins.
    position: u64,
    /// Bytes of the file from `start` on; what was read of them ends at `filled`.
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
}

/// A record and where it lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) record: Record<'a>,
}

impl SegmentScan {
    /// Opens the segment of `expected` in `dir`, of which `limit` bytes count.
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, expected: SegmentHeader, limit: u64) -> Result<Self> {
        let path = FileName::Region(expected.identity.file_number).path(dir);
        let file = vfs.open(&path)?;
        let name = path.display().to_string();
        let len = file.len()?;
        // The header first: the tag of a foreign file says more than its length.
        let scan = Self::new(file, name, Some(expected), limit.min(len))?;
        if len < limit {
            let what = format!("the file has {len} bytes, but {limit} of them count");
            return Err(Error::corruption(scan.name, len, what));
        }
        Ok(scan)
    }

    /// Reads `limit` bytes of `file`, which has as many.
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

    /// The file, to be read further.
    pub(super) fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    /// Where the next record begins, or the end.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Those of the file system; `Corruption` with file and offset for anything that is not a record.
    pub(super) fn next_record(&mut self) -> Result<Option<Found<'_>>> {
        let offset = self.position;
        if offset == self.limit {
            return Ok(None);
        }
        self.fill(RECORD_HEADER_BYTES)?;
        let len = Record::len_of(self.ahead())
            .ok_or_else(|| self.damaged("the header of a record is not valid"))?;
        self.fill(len)?;
        self.position += len as u64;
        let from = (offset - self.start) as usize;
        let bytes = self.buffer.get(from..from + len).unwrap_or_default();
        match Record::decode(bytes, offset, self.header.identity) {
            Ok(record) => Ok(Some(Found { offset, len, record })),
            Err(what) => Err(Error::corruption(&self.name, offset, what)),
        }
    }

    /// Error for what lies at the position.
    pub(super) fn damaged(&self, what: &str) -> Error {
        Error::corruption(&self.name, self.position, what)
    }

    fn ahead(&self) -> &[u8] {
        self.buffer.get((self.position - self.start) as usize..self.filled).unwrap_or_default()
    }

    /// Makes `len` bytes from the position on be in the buffer.
    fn fill(&mut self, len: usize) -> Result<()> {
        if self.ahead().len() >= len {
            return Ok(());
        }
        if self.limit - self.position < len as u64 {
            return Err(self.damaged("a record reaches past the end of what counts"));
        }
        let consumed = (self.position - self.start) as usize;
        self.buffer.copy_within(consumed..self.filled, 0);
        self.filled -= consumed;
        self.start = self.position;
        let wanted = (self.limit - self.start).min(len.max(READ_BYTES) as u64) as usize;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let more = self.buffer.get_mut(self.filled..wanted).unwrap_or_default();
        self.file.read_exact_at(self.start + self.filled as u64, more)?;
        self.filled = wanted;
        Ok(())
    }
}
