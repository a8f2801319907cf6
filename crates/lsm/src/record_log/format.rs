//! The byte layout of a record log.
//!
//! ```text
//! file    := header record*
//!
//! header (64 bytes)
//!   offset size
//!        0    8  magic: "BolidWAL" or "BolidMAN"
//!        8    4  format version: 2 for a manifest, 4 for a WAL segment
//!       12    4  feature bits; a file with an unknown bit is not opened
//!       16    8  tag of this file: a random number
//!       24    8  number of this file
//!       32   16  boot id of the machine at the creation of the file; 0 if unknown, and in a manifest
//!       48    8  mount id of the file system at that moment; 0 if unknown, and in a manifest
//!       56    8  checksum of bytes 0..56 at offset 0
//!
//! record, at any offset
//!        0    4  low half of the checksum of all other bytes at this record's offset; without the payload in a long
//!                record; linked with the omitted fields in a delta-encoded record
//!        4    1  kind: 1 = long; 2 = short; 3 = short with a packed payload; 4 and 5 = delta-encoded; 0 is never written
//!  long  5    8  checksum of the payload at the payload's offset
//!       13    4  payload length
//!       17    8  synced through
//!       25    …  payload
//!  short 5    v  length of what follows the next field, at most 4096
//!        …    v  synced through
//!        …    …  payload
//! packed …    v  first 8 bytes of the payload
//!        …    v  next 4 bytes of it
//!        …    …  the rest
//! delta-encoded
//!        5    v  only kind 5: length of the key
//!        …    v  only kind 5, if the previous record has a value: length of the value
//!        …    …  key, value
//! ```
//!
//! `v` is a varint. A batch of one put of 136 bytes takes 17 bytes more in a short record, and 5 bytes more in a
//! delta-encoded record. Nearly all records of a load are delta-encoded.
//!
//! The omitted fields of a delta-encoded record equal those of the previous record; its sequence number is one more. See
//! [`Predecessor`](super::Predecessor).
//!
//! Integers are little-endian. Checksums are those of [`FileIdentity::checksum`]: they cover the file's tag and the
//! offset, so that a whole record at another offset or in another file is invalid.
//!
//! The header of a long record has its own checksum: the search for a valid record after an invalid one tries every
//! offset, and this checksum makes a try constant in time, whatever payload length the header claims. A valid header
//! proves that its offset "synced through" was durable. A short record has one checksum over at most 4 KiB: it is a proof
//! only as a whole. A delta-encoded record is no proof.
//!
//! Invariants: `synced through` is at most the record's own offset and never decreases from one record to the next;
//! payloads have at most [`MAX_PAYLOAD_BYTES`].

use bolide_base::checksum::check_tag;
use bolide_base::coding::{Decoder, put_u32, put_u64, put_varint, varint_len};
use bolide_base::limits::MAX_BATCH_BYTES;
use bolide_base::{Error, FileIdentity, Result};

/// The supported feature bits.
pub const KNOWN_FEATURES: u32 = 0;
/// Length of the file header in bytes: the offset of the first record.
pub const HEADER_BYTES: usize = 64;
/// Length of a record's header in bytes.
pub const RECORD_HEADER_BYTES: usize = 25;
/// The longest payload of a record, in bytes: a write batch at its limit and its framing.
pub const MAX_PAYLOAD_BYTES: usize = MAX_BATCH_BYTES + (1 << 20);
/// The kind of a long record.
pub const KIND_DATA: u8 = 1;
/// The kind of a short record.
const KIND_SHORT: u8 = 2;
/// The kind of a short record whose payload begins with two varints for 8 and 4 bytes.
const KIND_PACKED: u8 = 3;
/// The kind of a delta-encoded record with the lengths of the previous record.
pub(super) const KIND_DELTA: u8 = 4;
/// The kind of a delta-encoded record with its own lengths.
pub(super) const KIND_DELTA_LENGTHS: u8 = 5;
/// The maximum length of the stored payload of a short record in bytes.
const SHORT_PAYLOAD_BYTES: usize = 4096;
/// The minimum length of a record in bytes.
pub const MIN_RECORD_BYTES: usize = 5;
/// The maximum length of a short or delta-encoded record in bytes. So many bytes from its start are sufficient to decode
/// the header of any record.
pub const SHORT_RECORD_BYTES: usize = 5 + 3 + 10 + SHORT_PAYLOAD_BYTES;
/// The bytes at the start of a payload that are packed: a u64 and a u32.
const PACKED_BYTES: usize = 12;

/// The use of a record log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRole {
    /// A segment of the write-ahead log.
    Wal,
    /// A log of version edits.
    Manifest,
}

impl LogRole {
    /// The first eight bytes of a file of this role.
    pub fn magic(self) -> [u8; 8] {
        match self {
            Self::Wal => *b"BolidWAL",
            Self::Manifest => *b"BolidMAN",
        }
    }

    /// The format version of files of this role: the one that is written, and the only one that is read.
    pub fn version(self) -> u32 {
        match self {
            Self::Wal => 4,
            Self::Manifest => 2,
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
    /// The use of the file.
    pub role: LogRole,
    /// The number and the tag of the file.
    pub identity: FileIdentity,
    /// The boot during which it was created.
    pub boot: Boot,
}

/// The boot of the machine and the mount of the file system during which a file was created.
///
/// If both are equal at a later opening, a process has ended in between; otherwise a power cut or a shutdown is presumed.
/// Only the wording of reports depends on this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boot {
    /// The boot id; 0 if unknown.
    pub id: u128,
    /// The mount id; 0 if unknown.
    pub mount: u64,
}

impl Boot {
    /// Whether both ids are known and equal to those of `other`.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other && self.id != 0 && self.mount != 0
    }
}

impl LogHeader {
    /// Encodes the header.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&self.role.magic());
        put_u32(&mut out, self.role.version());
        put_u32(&mut out, KNOWN_FEATURES);
        put_u64(&mut out, self.identity.tag);
        put_u64(&mut out, self.identity.file_number);
        out.extend_from_slice(&self.boot.id.to_le_bytes());
        put_u64(&mut out, self.boot.mount);
        let checksum = self.identity.checksum(0, &out);
        put_u64(&mut out, checksum);
        out
    }

    /// Decodes a header from the first bytes of a file. Errors name the file `name`.
    ///
    /// `expected` is the identity that the header must have; without it, any identity is accepted (to describe a single
    /// file).
    ///
    /// # Errors
    /// `Unsupported` for another format version, an unknown feature bit and, without `expected`, another kind of file;
    /// `Corruption` for damage and for a log with another tag or number.
    pub fn decode(bytes: &[u8], name: &str, role: LogRole, expected: Option<FileIdentity>) -> Result<Self> {
        let damaged = |offset, what| Error::corruption(name, offset, what);
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged(0, "the file header is truncated"))?;
        let fields =
            LogHeaderFields::read(bytes).ok_or_else(|| damaged(0, "the file header is truncated"))?;
        let identity = FileIdentity { file_number: fields.file_number, tag: fields.tag };
        let mut covered = [0; HEADER_BYTES - 8];
        covered.copy_from_slice(bytes.get(..HEADER_BYTES - 8).unwrap_or(&[0; HEADER_BYTES - 8]));
        covered[..8].copy_from_slice(&role.magic());
        let intact = identity.checksum(0, &covered) == fields.checksum;
        if fields.magic != role.magic() {
            // A file that the manifest names is damaged. So is a Bolide header with damaged first bytes, and a Bolide file
            // of another kind. Any other file is foreign.
            if expected.is_some() || intact || fields.magic.starts_with(b"Bolid") {
                return Err(damaged(0, "the first bytes are not the magic number of this kind of file"));
            }
            return Err(Error::unsupported(name, format!("not a Bolide {}", role.noun())));
        }
        if !intact {
            return Err(damaged(0, "the checksum of the file header does not match"));
        }
        if fields.version != role.version() {
            let (found, known) = (fields.version, role.version());
            let what = format!("format version {found} of the {}; this program reads {known}", role.noun());
            return Err(Error::unsupported(name, what));
        }
        let unknown = fields.features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(Error::unsupported(name, format!("unknown feature bits {unknown:#x}")));
        }
        if let Some(expected) = expected {
            check_tag(name, TAG_OFFSET, identity.tag, expected.tag)?;
            check_number(name, identity.file_number, expected.file_number)?;
        }
        Ok(Self { role, identity, boot: fields.boot })
    }
}

/// The offset of the file's tag in the header.
const TAG_OFFSET: u64 = 16;
/// The offset of the file's number in the header.
const NUMBER_OFFSET: u64 = 24;

/// Fails if the number in the header of the file `name` differs from the expected one.
pub(crate) fn check_number(name: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("the file number is {found}, not {expected}");
    Err(Error::corruption(name, NUMBER_OFFSET, what))
}

/// The raw fields of a file header.
struct LogHeaderFields {
    magic: [u8; 8],
    version: u32,
    features: u32,
    tag: u64,
    file_number: u64,
    boot: Boot,
    checksum: u64,
}

impl LogHeaderFields {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8)?.try_into().ok()?;
        Some(Self {
            magic,
            version: decoder.u32()?,
            features: decoder.u32()?,
            tag: decoder.u64()?,
            file_number: decoder.u64()?,
            boot: Boot { id: u128::from_le_bytes(decoder.take(16)?.try_into().ok()?), mount: decoder.u64()? },
            checksum: decoder.u64()?,
        })
    }
}

/// The encoding of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadEncoding {
    /// Unchanged.
    Plain,
    /// The first bytes are packed; see [`unpack`].
    Packed,
    /// Only the differences to the previous record; see [`Predecessor`](super::Predecessor).
    Delta {
        /// The length of the key in bytes; the rest is the value.
        key_len: u16,
    },
}

/// The decoded header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The checksum of the payload at its offset; `None` if it was verified with the header.
    pub payload_checksum: Option<u64>,
    /// The offset of the payload from the start of the record, in bytes.
    pub header_bytes: usize,
    /// The length of the stored payload in bytes.
    pub payload_len: u32,
    /// The encoding of the payload.
    pub encoding: PayloadEncoding,
    /// The kind of the record.
    pub kind: u8,
    /// The offset up to which the log was known to be durable when the record was written.
    pub synced_through: u64,
}

impl RecordHeader {
    /// Decodes the header of a full record at `offset` of the file `identity` from the first [`SHORT_RECORD_BYTES`] there, or
    /// as many as the file has.
    ///
    /// `None` if its checksum or its bounds are invalid. Time: constant, or that of a checksum of 4 KiB.
    pub fn decode(bytes: &[u8], offset: u64, identity: FileIdentity) -> Option<Self> {
        Self::decode_past(bytes, offset, identity, 0)
    }

    /// As [`decode`](Self::decode); also `None` if the header's `synced_through` is less than `durable`.
    pub fn decode_past(bytes: &[u8], offset: u64, identity: FileIdentity, durable: u64) -> Option<Self> {
        // The cheap checks come first: they reject nearly all offsets of a search.
        let plausible = |header: &Self| {
            (durable..=offset).contains(&header.synced_through)
                && header.kind != 0
                && header.payload_len as usize <= MAX_PAYLOAD_BYTES
        };
        let kind = *bytes.get(4)?;
        if matches!(kind, KIND_SHORT | KIND_PACKED) {
            let header = Self::read_short(bytes, kind).filter(plausible)?;
            let covered = bytes.get(4..header.header_bytes + header.payload_len as usize)?;
            return is_sum(bytes, identity.checksum(offset, covered)).then_some(header);
        }
        if is_delta(kind) {
            return None;
        }
        let header = Self::read_long(bytes).filter(plausible)?;
        let covered = bytes.get(4..RECORD_HEADER_BYTES)?;
        is_sum(bytes, identity.checksum(offset, covered)).then_some(header)
    }

    fn read_long(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes.get(4..RECORD_HEADER_BYTES)?);
        let kind = decoder.u8()?;
        let payload_checksum = decoder.u64()?;
        let payload_len = decoder.u32()?;
        let synced_through = decoder.u64()?;
        Some(Self {
            payload_checksum: Some(payload_checksum),
            header_bytes: RECORD_HEADER_BYTES,
            payload_len,
            encoding: PayloadEncoding::Plain,
            kind,
            synced_through,
        })
    }

    fn read_short(bytes: &[u8], kind: u8) -> Option<Self> {
        let mut decoder = Decoder::new(bytes.get(5..)?);
        let before = decoder.rest().len();
        let payload_len = u32::try_from(decoder.varint()?).ok()?;
        let synced_through = decoder.varint()?;
        let header_bytes = 5 + before - decoder.rest().len();
        (payload_len as usize <= SHORT_PAYLOAD_BYTES).then_some(Self {
            payload_checksum: None,
            header_bytes,
            payload_len,
            encoding: if kind == KIND_PACKED { PayloadEncoding::Packed } else { PayloadEncoding::Plain },
            kind: KIND_DATA,
            synced_through,
        })
    }
}

/// Whether a record of this kind is delta-encoded: readable only after the previous record.
pub(super) fn is_delta(kind: u8) -> bool {
    matches!(kind, KIND_DELTA | KIND_DELTA_LENGTHS)
}

/// Whether `bytes` start with the low half of `checksum`.
pub(super) fn is_sum(bytes: &[u8], checksum: u64) -> bool {
    bytes.first_chunk::<4>().is_some_and(|sum| u32::from_le_bytes(*sum) == checksum as u32)
}

/// Unpacks `bytes` to `out`; `None` if they are not a packed payload.
pub fn unpack(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut decoder = Decoder::new(bytes);
    let (first, second) = (decoder.varint()?, decoder.varint()?);
    out.clear();
    put_u64(out, first);
    put_u32(out, u32::try_from(second).ok()?);
    out.extend_from_slice(decoder.rest());
    Some(())
}

/// Appends a full record for `offset` of the file `identity`. The payload must have at most [`MAX_PAYLOAD_BYTES`].
pub fn put_record(
    out: &mut Vec<u8>,
    offset: u64,
    identity: FileIdentity,
    synced_through: u64,
    payload: &[u8],
) {
    debug_assert!(payload.len() <= MAX_PAYLOAD_BYTES && synced_through <= offset);
    if payload.len() > SHORT_PAYLOAD_BYTES - 8 {
        return put_long(out, offset, identity, synced_through, payload);
    }
    let start = out.len();
    out.reserve(SHORT_RECORD_BYTES - SHORT_PAYLOAD_BYTES + PACKED_BYTES + payload.len());
    out.extend_from_slice(&[0; 4]);
    let packed = payload.split_first_chunk::<8>().and_then(|(first, rest)| {
        let (second, rest) = rest.split_first_chunk::<4>()?;
        Some((u64::from_le_bytes(*first), u32::from_le_bytes(*second).into(), rest))
    });
    match packed {
        Some((first, second, rest)) => {
            let len = varint_len(first) + varint_len(second) + rest.len();
            out.push(KIND_PACKED);
            put_varint(out, len as u64);
            put_varint(out, synced_through);
            put_varint(out, first);
            put_varint(out, second);
            out.extend_from_slice(rest);
        }
        None => {
            out.push(KIND_SHORT);
            put_varint(out, payload.len() as u64);
            put_varint(out, synced_through);
            out.extend_from_slice(payload);
        }
    }
    put_sum(out, start, offset, identity);
}

fn put_long(out: &mut Vec<u8>, offset: u64, identity: FileIdentity, synced_through: u64, payload: &[u8]) {
    let start = out.len();
    let payload_checksum = identity.checksum(offset + RECORD_HEADER_BYTES as u64, payload);
    out.reserve(RECORD_HEADER_BYTES + payload.len());
    out.extend_from_slice(&[0; 4]);
    out.push(KIND_DATA);
    put_u64(out, payload_checksum);
    put_u32(out, payload.len() as u32);
    put_u64(out, synced_through);
    put_sum(out, start, offset, identity);
    out.extend_from_slice(payload);
}

/// Sets the checksum of the record from `start` to the end of `out`.
fn put_sum(out: &mut [u8], start: usize, offset: u64, identity: FileIdentity) {
    if let Some(record) = out.get_mut(start..)
        && let Some((sum, covered)) = record.split_first_chunk_mut::<4>()
    {
        *sum = (identity.checksum(offset, covered) as u32).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    const IDENTITY: FileIdentity = FileIdentity { file_number: 5, tag: 77 };

    fn header() -> LogHeader {
        LogHeader { role: LogRole::Wal, identity: IDENTITY, boot: Boot { id: 1 << 100, mount: 999 } }
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
    fn foreign_and_newer_files_are_rejected_with_their_reason() {
        let rewrite = |version: u32, features: u32| {
            let mut bytes = header().encode();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            bytes[12..16].copy_from_slice(&features.to_le_bytes());
            let sum = IDENTITY.checksum(0, &bytes[..56]);
            bytes[56..].copy_from_slice(&sum.to_le_bytes());
            LogHeader::decode(&bytes, "x", LogRole::Wal, Some(IDENTITY)).unwrap_err()
        };
        for other in [3, 5] {
            let error = rewrite(other, 0);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(&format!("version {other}")), "{error}");
        }
        let feature = rewrite(4, 4);
        assert_eq!(feature.kind(), ErrorKind::Unsupported);
        assert!(feature.message().contains("0x4"));
        let foreign = LogHeader::decode(&[b'x'; 64], "x", LogRole::Wal, None).unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::Unsupported);
        // With an expected identity, it is damage.
        for bytes in [[b'x'; 64], [0; 64]] {
            assert!(
                LogHeader::decode(&bytes, "x", LogRole::Wal, Some(IDENTITY)).unwrap_err().is_corruption()
            );
        }
        let role = LogHeader::decode(&header().encode(), "x", LogRole::Manifest, None).unwrap_err();
        assert_eq!(role.kind(), ErrorKind::Corruption);
        let decode = |expected| LogHeader::decode(&header().encode(), "x", LogRole::Wal, Some(expected));
        let error = decode(FileIdentity { tag: 78, ..IDENTITY }).unwrap_err();
        assert!(error.is_corruption());
        assert!(error.message().contains("tag is 000000000000004d, not 000000000000004e"), "{error}");
        let error = decode(FileIdentity { file_number: 6, ..IDENTITY }).unwrap_err();
        assert!(error.is_corruption() && error.message().contains("file number is 5, not 6"), "{error}");
    }

    #[test]
    fn a_record_is_bound_to_its_offset() {
        let long = vec![7; SHORT_PAYLOAD_BYTES];
        for (payload, is_packed) in [
            (&b"payload"[..], false),
            (b"", false),
            (b"first u64 u32 and more", true),
            (&long[..SHORT_PAYLOAD_BYTES - 8], true),
            (&long, false),
        ] {
            let mut out = Vec::new();
            put_record(&mut out, 64, IDENTITY, 64, payload);
            let header = RecordHeader::decode(&out, 64, IDENTITY).unwrap();
            assert_eq!((header.kind, header.synced_through), (KIND_DATA, 64));
            assert_eq!(header.encoding == PayloadEncoding::Packed, is_packed);
            assert_eq!(header.header_bytes + header.payload_len as usize, out.len());
            let mut unpacked = out[header.header_bytes..].to_vec();
            if is_packed {
                unpack(&out[header.header_bytes..], &mut unpacked).unwrap();
            }
            assert!(unpacked == payload);
            assert_eq!(RecordHeader::decode(&out, 65, IDENTITY), None);
            assert_eq!(RecordHeader::decode_past(&out, 64, IDENTITY, 65), None);
            assert_eq!(RecordHeader::decode(&vec![0; out.len()], 64, IDENTITY), None);
        }
    }

    #[test]
    fn a_full_record_of_a_put_has_seventeen_bytes_besides_key_and_value() {
        let mut batch = crate::batch::StoreBatch::new();
        batch.put(1, &[b'k'; 16], &[b'v'; 120]).unwrap();
        batch.assign(5_000_000);
        let mut out = Vec::new();
        put_record(&mut out, 64, IDENTITY, 64, batch.seal());
        assert_eq!(out.len(), 136 + 17);
    }

    #[test]
    fn truncated_packed_bytes_are_rejected() {
        let mut out = Vec::new();
        assert_eq!(unpack(&[], &mut out), None);
        assert_eq!(unpack(&[5], &mut out), None);
        assert_eq!(unpack(&[5, 0xff, 0xff, 0xff, 0xff, 0x7f], &mut out), None);
        assert_eq!(unpack(&[5, 6], &mut out), Some(()));
        assert_eq!(out, [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0]);
    }
}
