//! Appending the records of a cut to segments.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::{File, Vfs};

use super::format::{HEADER_BYTES, RECORD_HEADER_BYTES, Record, SegmentHeader};
use crate::file_name::FileName;

/// Bytes that are given to the file system at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// The segment that cuts are appended to.
#[derive(Debug, Clone)]
pub(super) struct OpenSegment {
    pub(super) header: SegmentHeader,
    pub(super) file: Arc<dyn File>,
    /// Bytes appended.
    pub(super) len: u64,
}

/// Where a record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) file: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// What new segments are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentShape {
    /// The region that they belong to.
    pub(super) region: u64,
    /// A segment is followed by a new one when it has grown over this, in bytes.
    pub(super) limit_bytes: u64,
}

/// A cut on its way to disk.
pub(super) struct SegmentOutput<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    shape: SegmentShape,
    new_file: &'a mut dyn FnMut() -> Result<FileIdentity>,
    segment: Option<OpenSegment>,
    /// Records that follow the segment's bytes and were not given to the file yet.
    buffer: Vec<u8>,
    /// Segments that this cut began.
    created: Vec<u64>,
    /// Segments that this cut appended to and left behind, with their lengths.
    finished: Vec<OpenSegment>,
    written_bytes: u64,
}

impl<'a> SegmentOutput<'a> {
    /// Goes on with `segment`, or begins one when there is something to write.
    pub(super) fn new(
        vfs: &'a dyn Vfs,
        dir: &'a Path,
        shape: SegmentShape,
        segment: Option<OpenSegment>,
        new_file: &'a mut dyn FnMut() -> Result<FileIdentity>,
    ) -> Self {
        Self {
            vfs,
            dir,
            shape,
            new_file,
            segment,
            buffer: Vec::new(),
            created: Vec::new(),
            finished: Vec::new(),
            written_bytes: 0,
        }
    }

    /// Adds a record.
    pub(super) fn put(&mut self, record: &Record<'_>) -> Result<Placed> {
        let end = |segment: &OpenSegment, buffer: &[u8]| segment.len + buffer.len() as u64;
        if self.segment.as_ref().is_none_or(|segment| end(segment, &self.buffer) >= self.shape.limit_bytes) {
            self.begin_segment()?;
        }
        let Some(segment) = &self.segment else { return Err(Error::internal("a cut without a segment")) };
        let (identity, offset) = (segment.header.identity, end(segment, &self.buffer));
        record.put(&mut self.buffer, offset, identity);
        let len = RECORD_HEADER_BYTES + record.body.len();
        self.written_bytes += len as u64;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(Placed { file: identity.file_number, offset, len: len as u32 })
    }

    /// Bytes of records so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The segment that the next record goes to, and where it will lie there, so that a root can name its
    /// own place.
    pub(super) fn next_place(&mut self) -> Result<(FileIdentity, u64)> {
        if self.segment.is_none() {
            self.begin_segment()?;
        }
        let Some(segment) = &self.segment else { return Err(Error::internal("a cut without a segment")) };
        Ok((segment.header.identity, segment.len + self.buffer.len() as u64))
    }

    /// The segments that this cut left behind, and their lengths.
    pub(super) fn finished(&self) -> &[OpenSegment] {
        &self.finished
    }

    /// Puts the root, at the place that `next_place` named, and makes everything durable.
    pub(super) fn finish(&mut self, root: &Record<'_>) -> Result<(FileIdentity, Placed)> {
        let Some(segment) = &self.segment else { return Err(Error::internal("a root without a segment")) };
        let (identity, offset) = (segment.header.identity, segment.len + self.buffer.len() as u64);
        root.put(&mut self.buffer, offset, identity);
        self.flush()?;
        if let Some(segment) = &self.segment {
            segment.file.sync()?;
        }
        let len = (RECORD_HEADER_BYTES + root.body.len()) as u32;
        Ok((identity, Placed { file: identity.file_number, offset, len }))
    }

    /// The segment that the next cut goes on with.
    pub(super) fn into_segment(self) -> Option<OpenSegment> {
        self.segment
    }

    /// Removes what a failed cut began: no root names it.
    pub(super) fn remove_created(self) {
        drop(self.segment);
        for number in self.created {
            // What stays is removed as an unknown file when the database is opened.
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

    /// Makes the segment in use durable and begins the next.
    fn begin_segment(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(segment) = self.segment.take() {
            segment.file.sync()?;
            self.finished.push(segment);
        }
        let identity = (self.new_file)()?;
        let header = SegmentHeader { identity, region: self.shape.region };
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
