//! The REMIX file.
//!
//! ```text
//! header, 48 bytes
//!    0  magic          8 bytes   "BOLIDRMX"
//!    8  version        u32       3
//!   12  zero           u32
//!   16  features       u64       bits that a reader must support; none are defined
//!   24  tag            u64
//!   32  file number    u64
//!   40  checksum       u64       of bytes 0..40
//!
//! three parts: tables, segments, anchors, each split into pieces of 256 KiB, the last one shorter
//! piece    bytes, then the checksum of these bytes, u64
//!
//! tables   for each run { number bits u8, sstables varint, for each { file number, data blocks, entries varints } }
//! segments segments.rs
//! anchors  anchors.rs
//!
//! footer, the last 112 bytes
//!    0  D              u32       selectors of a segment: 16, 32 or 64
//!    4  flags          u32       bit 0: tags, bit 1: forks
//!    8  S              u32       bytes of a cursor offset, 1 to 4
//!   12  H              u32       runs, at most 63 and at most D
//!   16  entries        u64
//!   24  segments       u64
//!   32  tables bytes   u64       of the part, without checksums
//!   40  segment bytes  u64
//!   48  anchor bytes   u64
//!   56  file bytes     u64       the length of the file, this footer included
//!   64  version        u32
//!   68  zero           u32
//!   72  features       u64
//!   80  tag            u64
//!   88  file number    u64
//!   96  checksum       u64       of bytes 0..96
//!  104  magic          8 bytes   "XMRDILOB"
//! ```
//!
//! Every byte of the file is covered by a checksum, which depends on the tag of the file and on the offset, or is
//! part of one. A reader checks all of them when it opens the file. It allocates memory for a part only after it has
//! checked the lengths in the footer against the length of the file.

use bolide_base::checksum::check_tag;
use bolide_base::coding::{Decoder, put_u32, put_u64, put_varint};
use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::File;

use super::anchors::Anchors;
use super::segments::{SegmentLayout, Segments};
use super::selectors::MAX_RUNS;
use super::{Remix, TableName};

/// The version of the REMIX format that this code writes, and the only one that it reads. A REMIX of another
/// version is rebuilt.
pub const REMIX_FORMAT_VERSION: u32 = 3;
const KNOWN_FEATURES: u64 = 0;
const HEADER_MAGIC: &[u8; 8] = b"BOLIDRMX";
const FOOTER_MAGIC: &[u8; 8] = b"XMRDILOB";
pub(super) const HEADER_BYTES: usize = 48;
const FOOTER_BYTES: usize = 112;
/// Bytes of a piece, without its checksum.
const PIECE_BYTES: usize = 256 << 10;
const CHECKSUM_BYTES: usize = 8;
const TAGS: u32 = 1;
const FORKS: u32 = 2;

/// The fields of the footer without the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RemixFooter {
    pub(super) width: u32,
    pub(super) flags: u32,
    pub(super) offset_bytes: u32,
    pub(super) runs: u32,
    pub(super) entries: u64,
    pub(super) segments: u64,
    /// Bytes of tables, segments and anchors.
    pub(super) parts: [u64; 3],
}

fn put_identification(out: &mut Vec<u8>, identity: &FileIdentity) {
    put_u32(out, REMIX_FORMAT_VERSION);
    put_u32(out, 0);
    put_u64(out, KNOWN_FEATURES);
    put_u64(out, identity.tag);
    put_u64(out, identity.file_number);
}

/// The bytes of a part in the file, including checksums.
fn stored_bytes(part: u64) -> Option<u64> {
    part.checked_add(part.div_ceil(PIECE_BYTES as u64) * CHECKSUM_BYTES as u64)
}

impl RemixFooter {
    fn encode(&self, identity: &FileIdentity, at: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for number in [self.width, self.flags, self.offset_bytes, self.runs] {
            put_u32(&mut out, number);
        }
        put_u64(&mut out, self.entries);
        put_u64(&mut out, self.segments);
        self.parts.iter().for_each(|&bytes| put_u64(&mut out, bytes));
        put_u64(&mut out, at + FOOTER_BYTES as u64);
        put_identification(&mut out, identity);
        let checksum = identity.checksum(at, &out);
        put_u64(&mut out, checksum);
        out.extend_from_slice(FOOTER_MAGIC);
        out
    }

    /// Decodes the fields before the identification, and the length of the file that follows them.
    fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let mut input = Decoder::new(bytes);
        let [width, flags, offset_bytes, runs] = [input.u32()?, input.u32()?, input.u32()?, input.u32()?];
        let (entries, segments) = (input.u64()?, input.u64()?);
        let parts = [input.u64()?, input.u64()?, input.u64()?];
        Some((Self { width, flags, offset_bytes, runs, entries, segments, parts }, input.u64()?))
    }

    /// The length of a file with these parts; `None` on overflow.
    fn file_bytes(&self) -> Option<u64> {
        let mut bytes = (HEADER_BYTES + FOOTER_BYTES) as u64;
        for part in self.parts {
            bytes = bytes.checked_add(stored_bytes(part)?)?;
        }
        Some(bytes)
    }

    /// Decodes the REMIX from its parts. The error describes the defect.
    pub(super) fn remix(
        &self,
        tables: &[u8],
        segments: Vec<u8>,
        anchors: &[u8],
    ) -> std::result::Result<Remix, &'static str> {
        let sizes = (self.width as usize, self.offset_bytes as usize, self.runs as usize);
        let (width, offset_bytes, runs) = sizes;
        if !matches!(width, 16 | 32 | 64)
            || self.flags & !(TAGS | FORKS) != 0
            || !(1..=4).contains(&offset_bytes)
            || runs > MAX_RUNS.min(width)
        {
            return Err("the footer has impossible fields");
        }
        let (tables, number_bits) =
            decode_tables(tables, runs).ok_or("the list of sstables does not decode")?;
        let (tags, forks) = (self.flags & TAGS != 0, self.flags & FORKS != 0);
        let layout = SegmentLayout { width, offset_bytes, tags, forks, number_bits };
        let segments = Segments::new(layout, segments).ok_or("the segments have different lengths")?;
        if segments.count() as u64 != self.segments || !segments.are_sound() {
            return Err("the segments are inconsistent");
        }
        let entries: u64 = (0..segments.count()).map(|index| segments.get(index).entries() as u64).sum();
        let listed = tables.iter().flatten().try_fold(0_u64, |sum, table| sum.checked_add(table.entries));
        if entries != self.entries || listed != Some(entries) {
            return Err("the segments and the sstables have different numbers of entries");
        }
        let anchors = Anchors::decode(anchors, segments.count(), |index| segments.get(index).starts_old())
            .ok_or("the anchor keys do not decode")?;
        Ok(Remix { tables, segments, anchors, entries })
    }
}

pub(super) fn encode_tables(remix: &Remix) -> Vec<u8> {
    let mut out = Vec::new();
    for (tables, &bits) in remix.tables.iter().zip(&remix.segments.layout.number_bits) {
        out.push(bits);
        put_varint(&mut out, tables.len() as u64);
        for table in tables {
            put_varint(&mut out, table.file_number);
            put_varint(&mut out, table.blocks);
            put_varint(&mut out, table.entries);
        }
    }
    out
}

/// The sstables of each run.
type Tables = Vec<Vec<TableName>>;

fn decode_tables(payload: &[u8], runs: usize) -> Option<(Tables, Box<[u8]>)> {
    let mut input = Decoder::new(payload);
    let mut number_bits = Vec::with_capacity(runs);
    let mut all = Vec::with_capacity(runs);
    for _ in 0..runs {
        number_bits.push(input.u8().filter(|&bits| bits < 32)?);
        // Each has at least three bytes.
        let count = input.length(payload.len() / 3)?;
        let mut tables = Vec::with_capacity(count);
        for _ in 0..count {
            let [file_number, blocks, entries] = [input.varint()?, input.varint()?, input.varint()?];
            tables.push(TableName { file_number, blocks, entries });
        }
        all.push(tables);
    }
    input.is_empty().then_some((all, number_bits.into()))
}

impl Remix {
    fn footer(&self, parts: [u64; 3]) -> RemixFooter {
        let layout = &self.segments.layout;
        RemixFooter {
            width: layout.width as u32,
            flags: if layout.tags { TAGS } else { 0 } | if layout.forks { FORKS } else { 0 },
            offset_bytes: layout.offset_bytes as u32,
            runs: layout.runs() as u32,
            entries: self.entries,
            segments: self.segments.count() as u64,
            parts,
        }
    }

    /// Writes the REMIX to `file`, which must be empty, and syncs it. The caller syncs the directory.
    /// Returns the length of the file.
    ///
    /// # Errors
    /// Those of writing. The caller removes the file then.
    pub fn write(&self, file: &dyn File, identity: FileIdentity) -> Result<u64> {
        let (tables, anchors) = (encode_tables(self), self.anchors.encode());
        let parts: [&[u8]; 3] = [&tables, self.segments.bytes(), &anchors];
        let mut pending = Vec::with_capacity(PIECE_BYTES + 2 * HEADER_BYTES);
        pending.extend_from_slice(HEADER_MAGIC);
        put_identification(&mut pending, &identity);
        let checksum = identity.checksum(0, &pending);
        put_u64(&mut pending, checksum);
        let mut offset = 0;
        for piece in parts.iter().flat_map(|part| part.chunks(PIECE_BYTES)) {
            let checksum = identity.checksum(offset + pending.len() as u64, piece);
            pending.extend_from_slice(piece);
            put_u64(&mut pending, checksum);
            file.append(&pending)?;
            offset += pending.len() as u64;
            pending.clear();
        }
        let at = offset + pending.len() as u64;
        let footer = self.footer(parts.map(|part| part.len() as u64));
        pending.extend_from_slice(&footer.encode(&identity, at));
        file.append(&pending)?;
        file.sync()?;
        Ok(at + FOOTER_BYTES as u64)
    }

    /// Reads the REMIX in `file` and checks the whole file. Errors name it `name`.
    ///
    /// # Errors
    /// `Unsupported` for another format version; `Corruption` for a damaged file, a file of another kind, or one with
    /// another database tag or file number; those of reading.
    pub fn read(file: &dyn File, name: &str, identity: FileIdentity) -> Result<Self> {
        let file_bytes = file.len()?;
        check_header(file, name, &identity, file_bytes)?;
        let footer = read_footer(file, name, &identity, file_bytes)?;
        let mut offset = HEADER_BYTES as u64;
        let mut parts = footer.parts.iter().map(|&bytes| {
            let part = read_part(file, name, &identity, offset, bytes);
            offset += stored_bytes(bytes).unwrap_or(0);
            part
        });
        let mut next = || parts.next().unwrap_or_else(|| Ok(Vec::new()));
        let (tables, segments, anchors) = (next()?, next()?, next()?);
        footer
            .remix(&tables, segments, &anchors)
            .map_err(|what| Error::corruption(name, file_bytes - FOOTER_BYTES as u64, what))
    }
}

fn check_version(name: &str, mut input: Decoder<'_>) -> Result<()> {
    let (version, zero, features) =
        (input.u32().unwrap_or(0), input.u32().unwrap_or(1), input.u64().unwrap_or(0));
    if version != REMIX_FORMAT_VERSION || zero != 0 {
        let what =
            format!("format version {version}; this program supports only version {REMIX_FORMAT_VERSION}");
        return Err(Error::unsupported(name, what));
    }
    if features & !KNOWN_FEATURES != 0 {
        let what = format!("the file needs features {features:#x}, which this program does not support");
        return Err(Error::unsupported(name, what));
    }
    Ok(())
}

/// Checks the identification and the checksum of `bytes`, which start at offset `at` and end with their checksum.
/// The identification is the 32 bytes before the checksum.
fn check_signed(name: &str, identity: &FileIdentity, at: u64, bytes: &[u8]) -> Result<()> {
    let short = || Error::corruption(name, at, "the file is too short for a REMIX");
    let (covered, checksum) = bytes.split_last_chunk::<8>().ok_or_else(short)?;
    let start = covered.len().checked_sub(32).ok_or_else(short)?;
    let mut claimed = Decoder::new(covered.get(start + 16..).unwrap_or_default());
    let claimed = FileIdentity { tag: claimed.u64().unwrap_or(0), file_number: claimed.u64().unwrap_or(0) };
    if claimed.checksum(at, covered) != u64::from_le_bytes(*checksum) {
        return Err(Error::corruption(name, at, "the checksum of the header or the footer does not match"));
    }
    check_version(name, Decoder::new(covered.get(start..).unwrap_or_default()))?;
    check_tag(name, at, claimed.tag, identity.tag)?;
    if claimed.file_number == identity.file_number {
        return Ok(());
    }
    let (is, wanted) = (claimed.file_number, identity.file_number);
    let what = format!("the file number is {is}, not {wanted}");
    Err(Error::corruption(name, at, what))
}

fn check_header(file: &dyn File, name: &str, identity: &FileIdentity, file_bytes: u64) -> Result<()> {
    if file_bytes < HEADER_BYTES as u64 {
        return Err(Error::corruption(name, file_bytes, "the file is too short for a REMIX"));
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(0, &mut header)?;
    if !header.starts_with(HEADER_MAGIC) {
        return Err(Error::corruption(name, 0, "the file is not a Bolide REMIX"));
    }
    check_signed(name, identity, 0, &header)
}

fn read_footer(file: &dyn File, name: &str, identity: &FileIdentity, file_bytes: u64) -> Result<RemixFooter> {
    if file_bytes < (HEADER_BYTES + FOOTER_BYTES) as u64 {
        return Err(Error::corruption(name, file_bytes, "the file is truncated: it has no footer"));
    }
    let at = file_bytes - FOOTER_BYTES as u64;
    let mut bytes = [0; FOOTER_BYTES];
    file.read_exact_at(at, &mut bytes)?;
    let Some(signed) = bytes.strip_suffix(FOOTER_MAGIC) else {
        return Err(Error::corruption(
            name,
            at,
            "the file is truncated or its end is damaged: it has no footer",
        ));
    };
    check_signed(name, identity, at, signed)?;
    match RemixFooter::decode(signed) {
        Some((footer, claimed)) if claimed == file_bytes && footer.file_bytes() == Some(file_bytes) => {
            Ok(footer)
        }
        _ => Err(Error::corruption(name, at, "the length of the file differs from the length in its footer")),
    }
}

/// Reads a part of `bytes` bytes that starts at `offset`. The caller has checked both against the length of the file.
fn read_part(
    file: &dyn File,
    name: &str,
    identity: &FileIdentity,
    mut offset: u64,
    bytes: u64,
) -> Result<Vec<u8>> {
    let limit = || Error::limit_exceeded("a part of a REMIX", bytes, usize::MAX as u64);
    let len = usize::try_from(bytes).ok().filter(|&len| len < isize::MAX as usize - 64).ok_or_else(limit)?;
    // Reserves the padding of segments, so that they are not copied.
    let mut part = Vec::with_capacity(len + super::segments::PADDING);
    part.resize(len, 0);
    for piece in part.chunks_mut(PIECE_BYTES) {
        file.read_exact_at(offset, piece)?;
        let mut checksum = [0; CHECKSUM_BYTES];
        file.read_exact_at(offset + piece.len() as u64, &mut checksum)?;
        if identity.checksum(offset, piece) != u64::from_le_bytes(checksum) {
            return Err(Error::corruption(name, offset, "the checksum of a piece does not match"));
        }
        offset += (piece.len() + CHECKSUM_BYTES) as u64;
    }
    Ok(part)
}
