//! The byte layout of a record log.
//!
//! ```text
//! file    := header record*
//!
//! header (64 bytes; this layout is the same in every format version)
//!   offset size
//!        0    8  magic: "BolidWAL" or "BolidMAN"
//!        8    4  format version (1)
//!       12    4  zero
//!       16    8  feature bits; an unknown bit refuses to open
//!       24    8  database id
//!       32    8  number of this file
//!       40    8  number of the log before this one, 0 if none
//!       48    8  length of the log before this one, in bytes: its records end there
//!       56    8  checksum of bytes 0..56 at offset 0
//!
//! record (25 bytes + payload), at any offset
//!        0    4  low half of the checksum of bytes 4..25 at this record's offset
//!        4    8  checksum of the payload at the payload's offset
//!       12    4  payload length
//!       16    1  kind: 1 = data; 0 is never written
//!       17    8  synced through: the log was known to be durable up to this offset
//!       25    …  payload
//! ```
//!
//! Integers are little-endian. Checksums are those of [`FileIdentity::checksum`]: they cover database
//! id, file number and offset, so a record that is whole but lies elsewhere fails.
//!
//! The record's header has a checksum of its own for one reason: after an invalid record, the search
//! for a later one must try every offset, and a header is checked in constant time however long its
//! payload claims to be. A valid header is proof enough that its offset "synced through" was durable.
//!
//! Invariants: `synced through` is at most the record's own offset and never falls from one record to
//! the next; payloads are at most [`MAX_PAYLOAD_BYTES`].

use bolide_base::coding::{Decoder, put_u32, put_u64};
use bolide_base::limits::MAX_BATCH_BYTES;
use bolide_base::{Error, FileIdentity, Result};

/// The format version that this code writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The feature bits that this code understands.
pub const KNOWN_FEATURES: u64 = 0;
/// Length of the file header in bytes: the offset of the first record.
pub const HEADER_BYTES: usize = 64;
/// Length of a record's header in bytes.
pub const RECORD_HEADER_BYTES: usize = 25;
/// The longest payload of a record, in bytes: a write batch at its limit and its framing.
pub const MAX_PAYLOAD_BYTES: usize = MAX_BATCH_BYTES + (1 << 20);
/// The kind of every record of version 1.
pub const KIND_DATA: u8 = 1;

/// What a record log is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRole {
    /// A segment of the write-ahead log.
    Wal,
    /// A log of version edits.
    Manifest,
}

impl LogRole {
    /// The first eight bytes of such a file.
    pub fn magic(self) -> [u8; 8] {
        match self {
            Self::Wal => *b"BolidWAL",
            Self::Manifest => *b"BolidMAN",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Wal => "WAL segment",
            Self::Manifest => "manifest",
        }
    }
}

/// The header of a record log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeader {
    /// What the file is for.
    pub role: LogRole,
    /// The database and the number of the file.
    pub identity: FileIdentity,
    /// Number of the log before this one; 0 if there was none.
    pub previous_number: u64,
    /// Where the records of the log before this one end, in bytes.
    pub previous_len: u64,
}

impl LogHeader {
    /// The header as it is written.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&self.role.magic());
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, 0);
        put_u64(&mut out, KNOWN_FEATURES);
        put_u64(&mut out, self.identity.database_id);
        put_u64(&mut out, self.identity.file_number);
        put_u64(&mut out, self.previous_number);
        put_u64(&mut out, self.previous_len);
        let checksum = self.identity.checksum(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// Reads a header from the first bytes of the file called `name`.
    ///
    /// `expected` is the identity that the caller knows from elsewhere; without it the header's own is
    /// taken (for showing a file to people).
    ///
    /// # Errors
    /// Unsupported for another kind of file, a newer format version or an unknown feature bit;
    /// Corruption for damage and for a log of another database or number.
    pub fn decode(bytes: &[u8], name: &str, role: LogRole, expected: Option<FileIdentity>) -> Result<Self> {
        let damaged = |offset, what| Error::corruption(name, offset, what);
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged(0, "the file header is cut short"))?;
        let fields = Fields::read(bytes).ok_or_else(|| damaged(0, "the file header is cut short"))?;
        let identity = FileIdentity { database_id: fields.database_id, file_number: fields.file_number };
        let mut covered = [0; HEADER_BYTES - 8];
        covered.copy_from_slice(bytes.get(..HEADER_BYTES - 8).unwrap_or(&[0; HEADER_BYTES - 8]));
        covered[..8].copy_from_slice(&role.magic());
        let intact = identity.checksum(0, &covered) == fields.checksum;
        if fields.magic != role.magic() {
            // Our own header with damaged first bytes, or our own file of another kind, is told apart
            // from a foreign file.
            if intact || fields.magic.starts_with(b"Bolid") {
                return Err(damaged(0, "the first bytes are not those of this kind of file"));
            }
            return Err(Error::unsupported(name, format!("not a Bolide {}", role.noun())));
        }
        if !intact {
            return Err(damaged(0, "the checksum of the file header does not match"));
        }
        if fields.version != FORMAT_VERSION {
            let version = fields.version;
            let what = format!("format version {version} of the {}; this program knows 1", role.noun());
            return Err(Error::unsupported(name, what));
        }
        let unknown = fields.features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(Error::unsupported(name, format!("unknown feature bits {unknown:#x}")));
        }
        if let Some(expected) = expected {
            if identity.database_id != expected.database_id {
                return Err(damaged(24, "the file belongs to another database"));
            }
            if identity.file_number != expected.file_number {
                return Err(damaged(32, "the file is another one under this name"));
            }
        }
        let (previous_number, previous_len) = (fields.previous_number, fields.previous_len);
        Ok(Self { role, identity, previous_number, previous_len })
    }
}

/// The raw fields of a file header.
struct Fields {
    magic: [u8; 8],
    version: u32,
    features: u64,
    database_id: u64,
    file_number: u64,
    previous_number: u64,
    previous_len: u64,
    checksum: u64,
}

impl Fields {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8)?.try_into().ok()?;
        let version = decoder.u32()?;
        let _zero = decoder.u32()?;
        Some(Self {
            magic,
            version,
            features: decoder.u64()?,
            database_id: decoder.u64()?,
            file_number: decoder.u64()?,
            previous_number: decoder.u64()?,
            previous_len: decoder.u64()?,
            checksum: decoder.u64()?,
        })
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Checksum of the payload at its offset.
    pub payload_checksum: u64,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// What the payload is.
    pub kind: u8,
    /// The log was known to be durable up to this offset when the record was written.
    pub synced_through: u64,
}

impl RecordHeader {
    /// Reads the header at the front of `bytes`, which lie at `offset` of the file `identity`.
    /// `None` unless its checksum and its bounds hold. Constant time.
    pub fn decode(bytes: &[u8], offset: u64, identity: FileIdentity) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        let mut decoder = Decoder::new(bytes);
        let checksum = decoder.u32()?;
        let covered = decoder.rest();
        let payload_checksum = decoder.u64()?;
        let payload_len = decoder.u32()?;
        let kind = decoder.u8()?;
        let synced_through = decoder.u64()?;
        // The cheap bounds come first: they reject nearly all offsets of a search.
        let plausible = kind != 0 && synced_through <= offset && payload_len as usize <= MAX_PAYLOAD_BYTES;
        if !plausible || identity.checksum(offset, covered) as u32 != checksum {
            return None;
        }
        Some(Self { payload_checksum, payload_len, kind, synced_through })
    }
}

/// Appends a record that will lie at `offset` of the file `identity`. The payload must be at most
/// [`MAX_PAYLOAD_BYTES`] long.
pub fn put_record(
    out: &mut Vec<u8>,
    offset: u64,
    identity: FileIdentity,
    synced_through: u64,
    payload: &[u8],
) {
    debug_assert!(payload.len() <= MAX_PAYLOAD_BYTES && synced_through <= offset);
    let mut covered = [0; RECORD_HEADER_BYTES - 4];
    let payload_checksum = identity.checksum(offset + RECORD_HEADER_BYTES as u64, payload);
    covered[..8].copy_from_slice(&payload_checksum.to_le_bytes());
    covered[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    covered[12] = KIND_DATA;
    covered[13..].copy_from_slice(&synced_through.to_le_bytes());
    out.reserve(RECORD_HEADER_BYTES + payload.len());
    put_u32(out, identity.checksum(offset, &covered) as u32);
    out.extend_from_slice(&covered);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    const IDENTITY: FileIdentity = FileIdentity { database_id: 77, file_number: 5 };

    fn header() -> LogHeader {
        LogHeader { role: LogRole::Wal, identity: IDENTITY, previous_number: 4, previous_len: 999 }
    }

    #[test]
    fn the_file_header_round_trips_and_every_flip_is_found() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(LogHeader::decode(&bytes, "x", LogRole::Wal, Some(IDENTITY)).unwrap(), header());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = LogHeader::decode(&damaged, "000005.wal", LogRole::Wal, None).unwrap_err();
            assert!(error.message().contains("000005.wal"), "{error}");
        }
        for len in 0..bytes.len() {
            let error = LogHeader::decode(&bytes[..len], "x", LogRole::Wal, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn foreign_and_newer_files_are_refused_with_their_reason() {
        let rewrite = |version: u32, features: u64| {
            let mut bytes = header().encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            bytes[16..24].copy_from_slice(&features.to_le_bytes());
            let sum = IDENTITY.checksum(0, &bytes[..56]);
            bytes[56..].copy_from_slice(&sum.to_le_bytes());
            LogHeader::decode(&bytes, "x", LogRole::Wal, Some(IDENTITY)).unwrap_err()
        };
        let newer = rewrite(2, 0);
        assert_eq!(newer.kind(), ErrorKind::Unsupported);
        assert!(newer.message().contains("version 2"));
        let feature = rewrite(1, 4);
        assert_eq!(feature.kind(), ErrorKind::Unsupported);
        assert!(feature.message().contains("0x4"));
        let foreign = LogHeader::decode(&[b'x'; 64], "x", LogRole::Wal, None).unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::Unsupported);
        let role = LogHeader::decode(&header().encode(), "x", LogRole::Manifest, None).unwrap_err();
        assert_eq!(role.kind(), ErrorKind::Corruption);
        let other = FileIdentity { database_id: 78, file_number: 5 };
        let error = LogHeader::decode(&header().encode(), "x", LogRole::Wal, Some(other)).unwrap_err();
        assert!(error.message().contains("another database"));
    }

    #[test]
    fn a_record_header_is_bound_to_its_offset() {
        let mut out = Vec::new();
        put_record(&mut out, 64, IDENTITY, 64, b"payload");
        let header = RecordHeader::decode(&out, 64, IDENTITY).unwrap();
        assert_eq!((header.payload_len, header.kind, header.synced_through), (7, KIND_DATA, 64));
        assert_eq!(RecordHeader::decode(&out, 65, IDENTITY), None);
        assert_eq!(RecordHeader::decode(&[0; 25], 64, IDENTITY), None);
    }
}
