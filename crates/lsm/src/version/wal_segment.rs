//! The facts about WAL segments in the manifest.

use std::fmt;

use bolide_base::coding::{Decoder, put_varint};

use crate::file_name::FileName;
use crate::record_log::format::HEADER_BYTES;

/// A segment of the log that may be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalSegment {
    /// The tag of the file.
    pub tag: u64,
    /// The end of the records in bytes, all of them durable; `None` for the segment in use.
    pub end: Option<u64>,
}

impl WalSegment {
    /// True if the segment ended without a record: it is not needed, and the manifest drops it unless it has a cut tail.
    pub fn is_empty(&self) -> bool {
        self.end.is_some_and(|end| end <= HEADER_BYTES as u64)
    }
}

/// Bytes at the end of a WAL segment that recovery did not accept as records. They follow all bytes that are known to be
/// synced. The file with them stays until a person removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutTail {
    /// The number of the segment.
    pub segment: u64,
    /// The end of the last record: the first byte that was cut off.
    pub start: u64,
    /// The length of the file.
    pub end: u64,
    /// The presumed end of the writer.
    pub ended_by: WriterEnd,
}

/// The presumed end of the process that wrote a segment. It only affects the wording of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterEnd {
    /// The process ended without closing the database: machine and mount are unchanged.
    Process,
    /// The machine lost its power, was restarted, or the file system was mounted again.
    Machine,
}

impl CutTail {
    /// The number of bytes cut off.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// The possible names of the file with the bytes: the segment while it is needed, later a cut tail.
    pub fn file_names(&self) -> [FileName; 2] {
        [FileName::Wal(self.segment), FileName::Tail(self.segment)]
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.segment, self.start, self.end] {
            put_varint(out, number);
        }
        out.push(match self.ended_by {
            WriterEnd::Process => 0,
            WriterEnd::Machine => 1,
        });
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let (segment, start, end) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let ended_by = match decoder.u8()? {
            0 => WriterEnd::Process,
            1 => WriterEnd::Machine,
            _ => return None,
        };
        (start < end).then_some(Self { segment, start, end, ended_by })
    }
}

impl fmt::Display for CutTail {
    /// A message: what was cut off, why, and where it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [segment, tail] = self.file_names();
        let ended = match self.ended_by {
            WriterEnd::Process => "the process that wrote them ended without closing the database",
            WriterEnd::Machine => "the machine lost power or was restarted while they were written",
        };
        write!(
            f,
            "recovery cut {} bytes off the log at byte {} of {segment}: {ended}. What is known to have been \
             synced lies before them. They are in {segment}, renamed to {tail} once the segment is not needed; remove \
             that file to remove this note",
            self.bytes(),
            self.start,
        )
    }
}
