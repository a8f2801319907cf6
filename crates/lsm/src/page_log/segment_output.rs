//! Appends the records of a checkpoint to segments.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, PageRecord, RECORD_HEADER_BYTES, SegmentHeader};
use crate::file_name::FileName;

/// The size of one append to a file in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// The segment for appends.
#[derive(Debug, Clone)]
pub(super) struct OpenSegment {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn File>,
    /// Bytes appended.
    pub(super) len: u64,
}

/// The location of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordLocation {
    pub(super) file: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// The options of new segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentOptions {
    /// The region of the segments.
    pub(super) region: u64,
    /// The size in bytes from which on a segment is followed by a new one.
    pub(super) limit_bytes: u64,
}

/// The output of a checkpoint.
pub(super) struct SegmentOutput<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    options: SegmentOptions,
    new_file: &'a mut dyn FnMut() -> Result<FileIdentity>,
    segment: Option<OpenSegment>,
    /// Records that are not appended to the file yet.
    buffer: Vec<u8>,
    /// The numbers of the segments that this checkpoint created.
    created: Vec<u64>,
    /// The segments that this checkpoint appended to and closed.
    finished: Vec<OpenSegment>,
    written_bytes: u64,
}

impl<'a> SegmentOutput<'a> {
    /// Appends to `segment`, or creates a segment for the first record if it is `None`.
    pub(super) fn new(
        vfs: &'a dyn Vfs,
        dir: &'a Path,
        options: SegmentOptions,
        segment: Option<OpenSegment>,
        new_file: &'a mut dyn FnMut() -> Result<FileIdentity>,
    ) -> Self {
        Self {
            vfs,
            dir,
            options,
            new_file,
            segment,
            buffer: Vec::new(),
            created: Vec::new(),
            finished: Vec::new(),
            written_bytes: 0,
        }
    }

    /// Appends a record.
    pub(super) fn put(&mut self, record: &PageRecord<'_>) -> Result<RecordLocation> {
        let end = |segment: &OpenSegment, buffer: &[u8]| segment.len + buffer.len() as u64;
        if self.segment.as_ref().is_none_or(|segment| end(segment, &self.buffer) >= self.options.limit_bytes)
        {
            self.begin_segment()?;
        }
        let Some(segment) = &self.segment else {
            return Err(Error::internal("a checkpoint without a segment"));
        };
        let (identity, offset) = (segment.header.identity, end(segment, &self.buffer));
        record.put(&mut self.buffer, offset, identity);
        let len = RECORD_HEADER_BYTES + record.body.len();
        self.written_bytes += len as u64;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(RecordLocation { file: identity.file_number, offset, len: len as u32 })
    }

    /// The bytes of all records so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The segment and the offset of the next record, so that a root can contain its own location.
    pub(super) fn next_location(&mut self) -> Result<(FileIdentity, u64)> {
        if self.segment.is_none() {
            self.begin_segment()?;
        }
        let Some(segment) = &self.segment else {
            return Err(Error::internal("a checkpoint without a segment"));
        };
        Ok((segment.header.identity, segment.len + self.buffer.len() as u64))
    }

    /// The segments that this checkpoint closed.
    pub(super) fn finished(&self) -> &[OpenSegment] {
        &self.finished
    }

    /// Appends the root, at the location from `next_location`, and makes everything durable.
    pub(super) fn finish(&mut self, root: &PageRecord<'_>) -> Result<(FileIdentity, RecordLocation)> {
        let Some(segment) = &self.segment else { return Err(Error::internal("a root without a segment")) };
        let (identity, offset) = (segment.header.identity, segment.len + self.buffer.len() as u64);
        root.put(&mut self.buffer, offset, identity);
        self.flush()?;
        if let Some(segment) = &self.segment {
            segment.file.sync()?;
        }
        let len = (RECORD_HEADER_BYTES + root.body.len()) as u32;
        Ok((identity, RecordLocation { file: identity.file_number, offset, len }))
    }

    /// The open segment for the next checkpoint.
    pub(super) fn into_segment(self) -> Option<OpenSegment> {
        self.segment
    }

    /// Removes the segments that a failed checkpoint created: no root refers to them.
    pub(super) fn remove_created(self) {
        drop(self.segment);
        for number in self.created {
            // A remaining file is removed as an unknown file when the database is opened.
            let _ = self.vfs.remove(&FileName::Region(number).path(self.dir));
        }
    }

    fn flush(&mut self) -> Result<()> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        if !self.buffer.is_empty() {
            segment.file.append(&self.buffer)?;
            segment.len += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Makes the open segment durable and creates the next one.
    fn begin_segment(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(segment) = self.segment.take() {
            segment.file.sync()?;
            self.finished.push(segment);
        }
        let identity = (self.new_file)()?;
        let header = SegmentHeader { identity, region: self.options.region };
        let number = identity.file_number;
        let path = FileName::Region(number).path(self.dir);
        let file = self.vfs.create(&path)?;
        self.created.push(number);
        file.append(&header.encode())?;
        self.vfs.sync_dir(self.dir)?;
        self.segment = Some(OpenSegment { header, file, len: HEADER_BYTES as u64 });
        Ok(())
    }
}
