//! The byte layout of page segments.
//!
//! ```text
//! file    := header record*
//!
//! header (64 bytes)
//!   offset size
//!        0    8  magic "BolidPAG"
//!        8    4  format version (2)
//!       12    4  zero
//!       16    8  feature bits; a file with an unknown bit is not opened
//!       24    8  tag of this file: a random number
//!       32    8  number of this file
//!       40    8  region id
//!       48    8  zero
//!       56    8  checksum of bytes 0..56 at offset 0
//!
//! record (32 bytes + body), without gaps
//!        0    8  checksum of the record from byte 8 to its end, at the offset of that byte
//!        8    1  kind: 1 = page, 2 = root
//!        9    3  zero
//!       12    4  length of the body
//!       16    8  number of the checkpoint that wrote it
//!       24    8  page: its number; root: zero
//!       32    …  page: the page without trailing zeros, in whole words; root: below
//!
//! root body (varints): region id, sequence number, pages, segments,
//!                      for each segment: its number minus the previous number, valid length, tag (8 bytes)
//! ```
//!
//! Integers are little-endian. Checksums are those of [`FileIdentity::checksum`]: a whole record at another offset or in
//! another file is invalid. The pointer to a root has the tag of its file, and the root has the tags of all its segments,
//! so that a segment of equal number in a copy of the database is invalid. A file belongs to one region, so that a page of
//! another region is invalid too.
//!
//! Invariants: checkpoint numbers do not decrease within a file; segments of a root ascend, and the last one is the file of
//! the root itself, which is valid up to the root.

use bolide_base::checksum::check_tag;
use bolide_base::coding::{Decoder, put_u32, put_u64, put_varint};
use bolide_base::{Error, FileIdentity, MAX_SEQUENCE, Result, SequenceNumber};
use bolide_storage::pmem::PAGE_BYTES;

/// The size in bytes from which on a segment is followed by a new one.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// The format version that this code writes, and the only one that it reads.
const FORMAT_VERSION: u32 = 2;
/// The supported feature bits.
const KNOWN_FEATURES: u64 = 0;
const MAGIC: [u8; 8] = *b"BolidPAG";
/// Length of the file header in bytes: the offset of the first record.
pub(super) const HEADER_BYTES: usize = 64;
/// Length of a record without its body, in bytes.
pub(super) const RECORD_HEADER_BYTES: usize = 32;
/// The longest body of a root, in bytes.
const MAX_ROOT_BYTES: usize = 16 << 20;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageRecordKind {
    Page,
    Root,
}

impl PageRecordKind {
    fn byte(self) -> u8 {
        match self {
            Self::Page => 1,
            Self::Root => 2,
        }
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) identity: FileIdentity,
    pub(super) region: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, 0);
        put_u64(&mut out, KNOWN_FEATURES);
        put_u64(&mut out, self.identity.tag);
        put_u64(&mut out, self.identity.file_number);
        put_u64(&mut out, self.region);
        put_u64(&mut out, 0);
        let checksum = self.identity.checksum(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// Decodes the header of a file; errors name it `name`. Without `expected`, any identity is accepted.
    pub(super) fn decode(bytes: &[u8], name: &str, expected: Option<Self>) -> Result<Self> {
        let damaged = |offset, what| Error::corruption(name, offset, what);
        let truncated = || damaged(0, "the file header is truncated");
        let covered = bytes.get(..HEADER_BYTES - 8).ok_or_else(truncated)?;
        // The manifest refers to the file, so other bytes are damage and not a foreign file.
        if !bytes.starts_with(&MAGIC) {
            return Err(damaged(0, "the first bytes are not the magic number of a page segment"));
        }
        let mut decoder = Decoder::new(bytes.get(8..).unwrap_or_default());
        let mut number = || decoder.u64().ok_or_else(truncated);
        let version = number()? as u32;
        let (features, tag, file_number, region) = (number()?, number()?, number()?, number()?);
        let (_zero, checksum) = (number()?, number()?);
        let header = Self { identity: FileIdentity { file_number, tag }, region };
        if header.identity.checksum(0, covered) != checksum {
            return Err(damaged(0, "the checksum of the file header does not match"));
        }
        if version != FORMAT_VERSION {
            let what =
                format!("format version {version} of the page segment; this program reads {FORMAT_VERSION}");
            return Err(Error::unsupported(name, what));
        }
        if features & !KNOWN_FEATURES != 0 {
            return Err(Error::unsupported(name, format!("unknown feature bits {features:#x}")));
        }
        if let Some(expected) = expected {
            check_tag(name, 24, header.identity.tag, expected.identity.tag)?;
            if header.identity != expected.identity {
                return Err(damaged(32, "the file number is not that of the file name"));
            }
            if header.region != expected.region {
                return Err(damaged(40, "the file belongs to another region"));
            }
        }
        Ok(header)
    }
}

/// A record of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRecord<'a> {
    pub(super) kind: PageRecordKind,
    pub(super) checkpoint: u64,
    pub(super) page: u64,
    pub(super) body: &'a [u8],
}

impl<'a> PageRecord<'a> {
    /// Appends the record for `offset` of the file `identity`.
    pub(super) fn put(&self, out: &mut Vec<u8>, offset: u64, identity: FileIdentity) {
        let start = out.len();
        put_u64(out, 0);
        put_u32(out, u32::from(self.kind.byte()));
        put_u32(out, self.body.len() as u32);
        put_u64(out, self.checkpoint);
        put_u64(out, self.page);
        out.extend_from_slice(self.body);
        let checksum = identity.checksum(offset + 8, out.get(start + 8..).unwrap_or_default());
        if let Some(target) = out.get_mut(start..start + 8) {
            target.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// The length of the record whose header is at the start of `bytes`; `None` if the header is invalid.
    pub(super) fn len_of(bytes: &[u8]) -> Option<usize> {
        let mut decoder = Decoder::new(bytes.get(8..RECORD_HEADER_BYTES)?);
        let limit = match decoder.u32()? {
            1 => PAGE_BYTES,
            2 => MAX_ROOT_BYTES,
            _ => return None,
        };
        let body = decoder.u32()? as usize;
        (body <= limit).then_some(RECORD_HEADER_BYTES + body)
    }

    /// Decodes the whole record `bytes` at `offset` of the file `identity`. The error describes the defect.
    pub(super) fn decode(
        bytes: &'a [u8],
        offset: u64,
        identity: FileIdentity,
    ) -> std::result::Result<Self, &'static str> {
        const SHORT: &str = "a record is truncated";
        if Self::len_of(bytes) != Some(bytes.len()) {
            return Err("the header of a record is not valid");
        }
        let mut decoder = Decoder::new(bytes);
        let checksum = decoder.u64().ok_or(SHORT)?;
        if identity.checksum(offset + 8, decoder.rest()) != checksum {
            return Err("the checksum of a record does not match");
        }
        let kind = if decoder.u32().ok_or(SHORT)? == 1 { PageRecordKind::Page } else { PageRecordKind::Root };
        let _len = decoder.u32().ok_or(SHORT)?;
        let (checkpoint, page) = (decoder.u64().ok_or(SHORT)?, decoder.u64().ok_or(SHORT)?);
        Ok(Self { kind, checkpoint, page, body: decoder.rest() })
    }
}

/// The location of a root, as stored in the manifest.
///
/// ```
/// use bolide_base::FileIdentity;
/// use bolide_lsm::page_log::RootPointer;
/// let root = RootPointer { file: FileIdentity { file_number: 7, tag: 0x5eed }, offset: 4160, len: 48 };
/// assert_eq!(RootPointer::decode(&root.encode()), Some(root));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootPointer {
    /// The segment.
    pub file: FileIdentity,
    /// The offset of the root's record in the segment, in bytes.
    pub offset: u64,
    /// The length of the record, in bytes.
    pub len: u64,
}

impl RootPointer {
    /// Encodes the pointer as three varints and the tag of the segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let numbers = [self.file.file_number, self.offset, self.len];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        put_u64(&mut out, self.file.tag);
        out
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let [file_number, offset, len] = [decoder.varint()?, decoder.varint()?, decoder.varint()?];
        let root = Self { file: FileIdentity { file_number, tag: decoder.u64()? }, offset, len };
        (decoder.is_empty() && root.is_plausible()).then_some(root)
    }

    /// Whether a root of this length at this offset is possible.
    pub(super) fn is_plausible(&self) -> bool {
        let lens = RECORD_HEADER_BYTES as u64..=(RECORD_HEADER_BYTES + MAX_ROOT_BYTES) as u64;
        self.offset >= HEADER_BYTES as u64 && lens.contains(&self.len) && self.offset < 1 << 62
    }
}

/// The content of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) region: u64,
    /// The checkpoint has every change up to this sequence number and none above.
    pub(super) sequence: SequenceNumber,
    /// The number of pages with a record.
    pub(super) pages: u64,
    /// The segments by number, with their valid lengths.
    pub(super) segments: Vec<(FileIdentity, u64)>,
}

impl Root {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = [self.region, self.sequence, self.pages, self.segments.len() as u64];
        head.into_iter().for_each(|number| put_varint(&mut out, number));
        let mut before = 0;
        for &(FileIdentity { file_number, tag }, len) in &self.segments {
            put_varint(&mut out, file_number - before);
            put_varint(&mut out, len);
            put_u64(&mut out, tag);
            before = file_number;
        }
        out
    }

    /// Decodes the body of a root; `None` if it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let region = decoder.varint()?;
        let sequence = decoder.varint().filter(|&sequence| sequence <= MAX_SEQUENCE)?;
        let pages = decoder.varint()?;
        // At least ten bytes each.
        let count = decoder.varint().filter(|&count| count <= decoder.rest().len() as u64 / 10)?;
        let mut segments = Vec::with_capacity(count as usize);
        let mut before = 0_u64;
        for _ in 0..count {
            let file_number = before.checked_add(decoder.varint().filter(|&step| step > 0)?)?;
            let len = decoder.varint().filter(|&len| len >= HEADER_BYTES as u64)?;
            segments.push((FileIdentity { file_number, tag: decoder.u64()? }, len));
            before = file_number;
        }
        decoder.is_empty().then_some(Self { region, sequence, pages, segments })
    }
}

/// A page without trailing zeros, in whole words.
pub(super) fn trimmed(page: &[u8]) -> &[u8] {
    let end = page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    page.get(..end.next_multiple_of(8)).unwrap_or(page)
}
