//! The byte layout of a record log.
//!
//! ```text
//! file    := header record*
//!
//! header (64 bytes)
//!   offset size
//!        0    8  magic: "BolidWAL" or "BolidMAN"
//!        8    4  format version: 2 for a manifest, 4 for a WAL segment
//!       12    4  feature bits; an unknown bit refuses to open
//!       16    8  tag of this file: a random number
//!       24    8  number of this file
//!       32   16  the boot of the machine during which the file was created; 0 if not known, and in a manifest
//!       48    8  the mount of the file system at that moment; 0 if not known, and in a manifest
//!       56    8  checksum of bytes 0..56 at offset 0
//!
//! record, at any offset
//!        0    4  low half of the checksum of all other bytes at this record's offset; of a long one without its payload;
//!                of a follower linked with what it does not say
//!        4    1  kind: 1 = long; 2 = short; 3 = short, its payload packed; 4 and 5 = a follower; 0 is never written
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
//! follower
//!        5    v  kind 5 alone: length of the key
//!        …    v  kind 5 alone, and where the record before has a value: length of the value
//!        …    …  key, value
//! ```
//!
//! `v` is a varint. A batch of one put of 136 bytes takes 17 bytes more in a short record and 5 in a follower, as nearly all
//! of a load are.
//!
//! What a follower does not say is as in the record before it, and its number is one more: [`Predecessor`](super::Predecessor).
//!
//! Integers are little-endian. Checksums are those of [`FileIdentity::checksum`]: they cover the file's tag
//! and the offset, so a record that is whole but lies elsewhere fails.
//!
//! The record's header has a checksum of its own for one reason: after an invalid record, the search
//! for a later one must try every offset, and a header is checked in constant time however long its
//! payload claims to be. A valid header is proof enough that its offset "synced through" was durable. A short record is checked
//! whole, which takes no longer than its 4 KiB do: it is proof where all of it landed. A follower is none.
//!
//! Invariants: `synced through` is at most the record's own offset and never falls from one record to
//! the next; payloads are at most [`MAX_PAYLOAD_BYTES`].

use bolide_base::checksum::check_tag;
use bolide_base::coding::{Decoder, put_u32, put_u64, put_varint, varint_len};
use bolide_base::limits::MAX_BATCH_BYTES;
use bolide_base::{Error, FileIdentity, Result};

/// The feature bits that this code understands.
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
/// The kind of a follower with the lengths of the record before.
pub(super) const KIND_DELTA: u8 = 4;
/// The kind of a follower with lengths of its own.
pub(super) const KIND_DELTA_LENGTHS: u8 = 5;
/// Most bytes of the payload of a short record as it is written.
const SHORT_PAYLOAD_BYTES: usize = 4096;
/// Fewest bytes of a record.
pub const MIN_RECORD_BYTES: usize = 5;
/// So many bytes from its start are enough to decode the header of any record: most bytes of a short record or a follower.
pub const SHORT_RECORD_BYTES: usize = 5 + 3 + 10 + SHORT_PAYLOAD_BYTES;
/// Bytes that are packed at the beginning of a payload: a u64 and a u32.
const PACKED_BYTES: usize = 12;

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

    /// The format version of such files: the one that is written, and the only one that is read.
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
    /// What the file is for.
    pub role: LogRole,
    /// The number and the tag of the file.
    pub identity: FileIdentity,
    /// When it was created.
    pub boot: Boot,
}

/// The boot of the machine and the mount of the file system during which a file was created.
///
/// A later opening under the same two follows the end of a process; under others, a power cut or a shutdown must be
/// presumed. The presumption only words reports: no decision depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boot {
    /// The boot; 0 if it is not known.
    pub id: u128,
    /// The mount; 0 if it is not known.
    pub mount: u64,
}

impl Boot {
    /// True if both are known, and both are those of `other`.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other && self.id != 0 && self.mount != 0
    }
}

impl LogHeader {
    /// The header as it is written.
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

    /// Reads a header from the first bytes of the file called `name`.
    ///
    /// `expected` is the identity that the caller knows from elsewhere; without it the header's own is
    /// taken (for showing a file to people).
    ///
    /// # Errors
    /// Unsupported for another format version, an unknown feature bit and, without `expected`, another kind of file;
    /// Corruption for damage and for a log with another tag or number.
    pub fn decode(bytes: &[u8], name: &str, role: LogRole, expected: Option<FileIdentity>) -> Result<Self> {
        let damaged = |offset, what| Error::corruption(name, offset, what);
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged(0, "the file header is cut short"))?;
        let fields = LogHeaderFields::read(bytes).ok_or_else(|| damaged(0, "the file header is cut short"))?;
        let identity = FileIdentity { file_number: fields.file_number, tag: fields.tag };
        let mut covered = [0; HEADER_BYTES - 8];
        covered.copy_from_slice(bytes.get(..HEADER_BYTES - 8).unwrap_or(&[0; HEADER_BYTES - 8]));
        covered[..8].copy_from_slice(&role.magic());
        let intact = identity.checksum(0, &covered) == fields.checksum;
        if fields.magic != role.magic() {
            // A file that the manifest names is damaged, and so is our own header with damaged first bytes, or our own
            // file of another kind; anything else is a foreign file.
            if expected.is_some() || intact || fields.magic.starts_with(b"Bolid") {
                return Err(damaged(0, "the first bytes are not those of this kind of file"));
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

/// Where the header has the file's tag.
const TAG_OFFSET: u64 = 16;
/// Where the header has the file's number.
const NUMBER_OFFSET: u64 = 24;

/// Fails if the file called `name` has another number in its header than in its name.
pub(crate) fn check_number(name: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("the file is another one under this name: its number is {found}, not {expected}");
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

/// How a payload is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadEncoding {
    /// As it is.
    Plain,
    /// With its first bytes packed; see [`unpack`].
    Packed,
    /// Without what it shares with the record before; see [`Predecessor`](super::Predecessor).
    Delta {
        /// So many bytes are the key, the rest is the value.
        key_len: u16,
    },
}

/// What is known of a record before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Checksum of the payload at its offset; `None` where the payload was checked with the header.
    pub payload_checksum: Option<u64>,
    /// Where the payload starts, in bytes from the start of the record.
    pub header_bytes: usize,
    /// Length of the payload in the file, in bytes.
    pub payload_len: u32,
    /// How the payload is written.
    pub form: PayloadEncoding,
    /// What the payload is.
    pub kind: u8,
    /// The log was known to be durable up to this offset when the record was written.
    pub synced_through: u64,
}

impl RecordHeader {
    /// Reads the header of a full record at `offset` of the file `identity` from the first [`SHORT_RECORD_BYTES`] there, or as
    /// many as the file has.
    ///
    /// `None` unless its checksum and its bounds hold. Time: constant, or that of a checksum of 4 KiB.
    pub fn decode(bytes: &[u8], offset: u64, identity: FileIdentity) -> Option<Self> {
        Self::decode_past(bytes, offset, identity, 0)
    }

    /// The same; `None` also for a header that was written when nothing past `durable` was known to be durable.
    pub fn decode_past(bytes: &[u8], offset: u64, identity: FileIdentity, durable: u64) -> Option<Self> {
        // The cheap bounds come first: they reject nearly all offsets of a search.
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
            form: PayloadEncoding::Plain,
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
            form: if kind == KIND_PACKED { PayloadEncoding::Packed } else { PayloadEncoding::Plain },
            kind: KIND_DATA,
            synced_through,
        })
    }
}

/// Whether a record of this kind can be read only behind the one before it.
pub(super) fn is_delta(kind: u8) -> bool {
    matches!(kind, KIND_DELTA | KIND_DELTA_LENGTHS)
}

/// Whether `bytes` begin with the low half of `checksum`.
pub(super) fn is_sum(bytes: &[u8], checksum: u64) -> bool {
    bytes.first_chunk::<4>().is_some_and(|sum| u32::from_le_bytes(*sum) == checksum as u32)
}

/// Puts into `out` the payload that was packed to `bytes`; `None` for bytes that no payload is packed to.
pub fn unpack(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut decoder = Decoder::new(bytes);
    let (first, second) = (decoder.varint()?, decoder.varint()?);
    out.clear();
    put_u64(out, first);
    put_u32(out, u32::try_from(second).ok()?);
    out.extend_from_slice(decoder.rest());
    Some(())
}

/// Appends a full record that will lie at `offset` of the file `identity`. The payload must be at most
/// [`MAX_PAYLOAD_BYTES`] long.
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

/// Fills in the checksum of the record that starts at `start` of `out` and ends there.
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
    fn foreign_and_newer_files_are_refused_with_their_reason() {
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
        // The manifest names it: then it is damage.
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
        assert!(error.is_corruption() && error.message().contains("another one"), "{error}");
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
            assert_eq!(header.form == PayloadEncoding::Packed, is_packed);
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
    fn a_put_in_a_full_record_takes_seventeen_bytes_more_than_key_and_value() {
        let mut batch = crate::batch::StoreBatch::new();
        batch.put(1, &[b'k'; 16], &[b'v'; 120]).unwrap();
        batch.assign(5_000_000);
        let mut out = Vec::new();
        put_record(&mut out, 64, IDENTITY, 64, batch.seal());
        assert_eq!(out.len(), 136 + 17);
    }

    #[test]
    fn packed_bytes_that_are_cut_short_are_refused() {
        let mut out = Vec::new();
        assert_eq!(unpack(&[], &mut out), None);
        assert_eq!(unpack(&[5], &mut out), None);
        assert_eq!(unpack(&[5, 0xff, 0xff, 0xff, 0xff, 0x7f], &mut out), None);
        assert_eq!(unpack(&[5, 6], &mut out), Some(()));
        assert_eq!(out, [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0]);
    }
}
