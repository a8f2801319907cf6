//! The header and the footer of an sstable: identity, version, and the locations of the parts.
//!
//! ```text
//! header, at offset 0, 48 bytes
//!    0  magic         8 bytes   "BOLIDSST"
//!    8  version       u32       2
//!   12  zero          u32
//!   16  features      u64       bits that a reader must support; bit 0: short entries, see `block_shape`
//!   24  tag           u64       a random number, drawn when the file was created
//!   32  file number   u64
//!   40  checksum      u64       of bytes 0..40, seeded with the tag
//!
//! footer, in the last 128 bytes
//!    0  properties    handle    offset u64, stored bytes u32
//!   12  meta index    handle
//!   24  filter        handle    all zero if there is none
//!   36  index         handle    all zero if the table is empty
//!   48  index levels  u32       0 (empty), 1 or 2
//!   52  zero          u32
//!   56  data end      u64       offset after the last data block
//!   64  zero          u64
//!   72  file bytes    u64       the length of the file, this footer included
//!   80  version       u32
//!   84  zero          u32
//!   88  features      u64
//!   96  tag           u64
//!  104  file number   u64
//!  112  checksum      u64       of bytes 0..112, as in the header, at its offset in the file
//!  120  magic         8 bytes   "TSSDILOB"
//! ```
//!
//! Header and footer keep the layout of these fields in all versions, so that every version can distinguish files that are
//! too new, foreign or damaged.

use bolide_base::checksum::check_tag;
use bolide_base::coding::{put_u32, put_u64};
use bolide_base::{Error, FileIdentity, Result};

use crate::block_shape::SHORT_ENTRIES;
use crate::file_pool::FileSource;
use crate::index_block::IndexLevel;
use crate::stored_block::BlockHandle;

/// The version of the sstable format that this code writes, and the only one that it reads.
pub const TABLE_FORMAT_VERSION: u32 = 2;
/// The feature bits that this code supports.
const KNOWN_FEATURES: u64 = SHORT_ENTRIES;
const HEADER_MAGIC: &[u8; 8] = b"BOLIDSST";
const FOOTER_MAGIC: &[u8; 8] = b"TSSDILOB";
/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 48;
/// Length of the footer.
pub(crate) const FOOTER_BYTES: usize = 128;

/// The locations of the parts of an sstable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Footer {
    pub(crate) properties: BlockHandle,
    pub(crate) meta_index: BlockHandle,
    pub(crate) filter: Option<BlockHandle>,
    /// The topmost index block, and the number of levels.
    pub(crate) index: Option<(BlockHandle, IndexLevelCount)>,
    pub(crate) data_end: u64,
    pub(crate) file_bytes: u64,
}

/// The number of levels of the index, one or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexLevelCount {
    /// The index is one block.
    One = 1,
    /// A top block refers to partitions.
    Two = 2,
}

impl IndexLevelCount {
    /// The level of the topmost index block.
    pub(crate) fn highest(self) -> IndexLevel {
        match self {
            Self::One => IndexLevel::Leaf,
            Self::Two => IndexLevel::Top,
        }
    }
}

/// The header of a file.
pub(crate) fn encode_header(identity: &FileIdentity) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(HEADER_MAGIC);
    put_identification(&mut out, identity);
    let checksum = identity.checksum(0, &out);
    put_u64(&mut out, checksum);
    out
}

fn put_identification(out: &mut Vec<u8>, identity: &FileIdentity) {
    put_u32(out, TABLE_FORMAT_VERSION);
    put_u32(out, 0);
    put_u64(out, KNOWN_FEATURES);
    put_u64(out, identity.tag);
    put_u64(out, identity.file_number);
}

fn put_handle(out: &mut Vec<u8>, handle: BlockHandle) {
    put_u64(out, handle.offset);
    put_u32(out, handle.bytes);
}

impl Footer {
    /// The bytes of the footer, which is the end of the file.
    pub(crate) fn encode(&self, identity: &FileIdentity) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        put_handle(&mut out, self.properties);
        put_handle(&mut out, self.meta_index);
        put_handle(&mut out, self.filter.unwrap_or_default());
        put_handle(&mut out, self.index.map(|(handle, _)| handle).unwrap_or_default());
        put_u32(&mut out, self.index.map_or(0, |(_, levels)| levels as u32));
        put_u32(&mut out, 0);
        put_u64(&mut out, self.data_end);
        put_u64(&mut out, 0);
        put_u64(&mut out, self.file_bytes);
        put_identification(&mut out, identity);
        let checksum = identity.checksum(self.file_bytes - FOOTER_BYTES as u64, &out);
        put_u64(&mut out, checksum);
        out.extend_from_slice(FOOTER_MAGIC);
        out
    }
}

/// Little-endian fields at fixed positions; a position past the end reads as zero.
struct FooterFields<'a>(&'a [u8]);

impl FooterFields<'_> {
    fn u32(&self, at: usize) -> u32 {
        let chunk = self.0.get(at..).and_then(|rest| rest.first_chunk());
        chunk.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        let chunk = self.0.get(at..).and_then(|rest| rest.first_chunk());
        chunk.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn handle(&self, at: usize) -> BlockHandle {
        BlockHandle { offset: self.u64(at), bytes: self.u32(at + 8) }
    }
}

/// Reads the identity of a file after verification of its header. For tools that read a file without its database.
///
/// # Errors
/// `Unsupported` for another kind of file and another format version; `Corruption`; those of the file system.
pub fn read_identity(source: &FileSource) -> Result<FileIdentity> {
    identity_of(source, |what| Error::unsupported(source.name(), what))
}

/// As [`read_identity`]; `other_kind` constructs the error for a file that is not an sstable.
fn identity_of(source: &FileSource, other_kind: impl Fn(&str) -> Error) -> Result<FileIdentity> {
    let file_bytes = source.len()?;
    let mut header = [0; HEADER_BYTES];
    let available = usize::try_from(file_bytes).unwrap_or(usize::MAX).min(HEADER_BYTES);
    source.read_exact_at(0, header.get_mut(..available).unwrap_or_default())?;
    if !header.starts_with(HEADER_MAGIC) {
        if available < HEADER_MAGIC.len() {
            return Err(source.corruption(file_bytes, "the file is too short for an sstable"));
        }
        return Err(other_kind("this is not an sstable of Bolide"));
    }
    if available < HEADER_BYTES {
        return Err(source.corruption(file_bytes, "the file ends inside its header"));
    }
    let fields = FooterFields(&header);
    let identity = FileIdentity { file_number: fields.u64(32), tag: fields.u64(24) };
    let (covered, _) = header.split_at(HEADER_BYTES - 8);
    if identity.checksum(0, covered) != fields.u64(HEADER_BYTES - 8) {
        return Err(source.corruption(0, "the checksum of the header does not match"));
    }
    check_version(source, fields.u32(8), fields.u32(12), fields.u64(16))?;
    Ok(identity)
}

fn check_version(source: &FileSource, version: u32, zero: u32, features: u64) -> Result<()> {
    if version != TABLE_FORMAT_VERSION || zero != 0 {
        let what = format!("format version {version}; this program reads {TABLE_FORMAT_VERSION}");
        return Err(Error::unsupported(source.name(), what));
    }
    let unknown = features & !KNOWN_FEATURES;
    if unknown != 0 {
        let what = format!("the file needs features {unknown:#x}, which this program does not support");
        return Err(Error::unsupported(source.name(), what));
    }
    Ok(())
}

/// Checks that the file is the sstable `expected` and is complete. Returns its footer.
pub(crate) fn read_footer(source: &FileSource, expected: &FileIdentity) -> Result<Footer> {
    // The manifest names the file, so other bytes are damage and not a foreign file.
    let identity = identity_of(source, |what| source.corruption(0, what))?;
    check_identity(source, 24, &identity, expected)?;
    let (_, footer) = read_end(source, source.len()?, Some(expected))?;
    Ok(footer)
}

/// The footer of a file of `file_bytes` bytes, without a check of its header. Without `expected` the identity in the footer
/// is used.
pub(crate) fn read_end(
    source: &FileSource,
    file_bytes: u64,
    expected: Option<&FileIdentity>,
) -> Result<(FileIdentity, Footer)> {
    if file_bytes < (HEADER_BYTES + FOOTER_BYTES) as u64 {
        return Err(source.corruption(file_bytes, "the file is cut off: it has no footer"));
    }
    let at = file_bytes - FOOTER_BYTES as u64;
    let mut footer = [0; FOOTER_BYTES];
    source.read_exact_at(at, &mut footer)?;
    if !footer.ends_with(FOOTER_MAGIC) {
        return Err(source.corruption(at, "the file is cut off or its end is damaged: it has no footer"));
    }
    let (covered, _) = footer.split_at(FOOTER_BYTES - 16);
    let fields = FooterFields(&footer);
    let claimed = FileIdentity { file_number: fields.u64(104), tag: fields.u64(96) };
    let expected = expected.unwrap_or(&claimed);
    if expected.checksum(at, covered) != fields.u64(FOOTER_BYTES - 16) {
        return Err(source.corruption(at, "the checksum of the footer does not match"));
    }
    check_version(source, fields.u32(80), fields.u32(84), fields.u64(88))?;
    check_identity(source, at + 96, &claimed, expected)?;
    let footer =
        footer_of(&fields, at, file_bytes).map_err(|(offset, what)| source.corruption(offset, what))?;
    Ok((*expected, footer))
}

fn check_identity(
    source: &FileSource,
    offset: u64,
    found: &FileIdentity,
    expected: &FileIdentity,
) -> Result<()> {
    check_tag(source.name(), offset, found.tag, expected.tag)?;
    if found.file_number == expected.file_number {
        return Ok(());
    }
    let (is, wanted) = (found.file_number, expected.file_number);
    let what =
        format!("the file is not the one that the database refers to: its number is {is}, not {wanted}");
    Err(source.corruption(offset + 8, what))
}

/// Reads the fields of the footer at the end of `file`, without a check of its checksum or identity.
/// `None` if it is too short or its handles point outside of the file.
pub(crate) fn parse_footer(file: &[u8]) -> Option<Footer> {
    let (_, footer) = file.split_last_chunk::<FOOTER_BYTES>()?;
    let file_bytes = file.len() as u64;
    footer_of(&FooterFields(footer), file_bytes - FOOTER_BYTES as u64, file_bytes).ok()
}

/// Corrects magic, identification, length and checksum of the footer at the end of `file`.
pub(crate) fn rewrite_footer(file: &mut [u8], identity: &FileIdentity) {
    let file_bytes = file.len() as u64;
    let Some((_, footer)) = file.split_last_chunk_mut::<FOOTER_BYTES>() else {
        return;
    };
    let at = file_bytes - FOOTER_BYTES as u64;
    let mut end = Vec::new();
    put_u64(&mut end, file_bytes);
    put_identification(&mut end, identity);
    let (fields, rest) = footer.split_at_mut(FOOTER_BYTES - 16 - end.len());
    let (identification, rest) = rest.split_at_mut(end.len());
    identification.copy_from_slice(&end);
    let covered = [&*fields, &*identification].concat();
    let checksum = identity.checksum(at, &covered);
    rest.copy_from_slice(&[&checksum.to_le_bytes()[..], FOOTER_MAGIC].concat());
}

/// Reads the fields of a footer at offset `at`. An error contains the offset of the defect and a description.
fn footer_of(
    fields: &FooterFields<'_>,
    at: u64,
    file_bytes: u64,
) -> std::result::Result<Footer, (u64, String)> {
    let none = BlockHandle::default();
    let index = fields.handle(36);
    let footer = Footer {
        properties: fields.handle(0),
        meta_index: fields.handle(12),
        filter: Some(fields.handle(24)).filter(|filter| *filter != none),
        index: match (fields.u32(48), index == none) {
            (0, true) => None,
            (1, false) => Some((index, IndexLevelCount::One)),
            (2, false) => Some((index, IndexLevelCount::Two)),
            _ => return Err((at + 48, "the footer has an impossible index".to_owned())),
        },
        data_end: fields.u64(56),
        file_bytes: fields.u64(72),
    };
    if footer.file_bytes != file_bytes {
        return Err((at + 72, format!("the file has {file_bytes} bytes instead of {}", footer.file_bytes)));
    }
    let handles =
        [Some(footer.properties), Some(footer.meta_index), footer.filter, footer.index.map(|i| i.0)];
    let outside = |handle: &BlockHandle| handle.offset < footer.data_end || handle.end() > at;
    if footer.data_end < HEADER_BYTES as u64 || handles.iter().flatten().any(outside) {
        return Err((at, "the footer points outside the file".to_owned()));
    }
    if fields.u32(52) != 0 || fields.u64(64) != 0 {
        return Err((at + 52, "reserved fields of the footer are not zero".to_owned()));
    }
    Ok(footer)
}
