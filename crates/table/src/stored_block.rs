//! The frame of a block on disk: its stored bytes, compression type and checksum.
//!
//! ```text
//! stored bytes            handle.bytes of them
//!   type 0 (none)           the payload
//!   type 1 (lz4)            u32 payload length, then an LZ4 block
//!   type 2 (zstd)           u32 payload length, then a Zstandard frame
//! type              u8
//! checksum         u64    FileIdentity::checksum(offset, stored bytes ++ type)
//! ```
//!
//! The checksum covers the location of the block (database, file number, offset) and, since it is computed over exactly
//! `handle.bytes + 1` bytes, its length. It is verified before anything is decoded. The length of the payload is checked
//! against a limit, which depends on the kind of the block, before memory is allocated for it.
//!
//! A payload in memory is followed by [`PADDING`] bytes, so that eight bytes can be loaded at any position in it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result};
use bolide_memory::{CacheMemory, SharedBytes};
use lz4_flex::block::CompressTable;

use crate::file_pool::FileSource;
use crate::options::Compression;
use crate::read_counters::ReadCounters;

/// The frame after the stored bytes: type and checksum.
pub(crate) const FRAME_BYTES: usize = 9;
/// Readable bytes after each payload in memory.
pub(crate) const PADDING: usize = 8;
/// The payload length before compressed bytes.
const LENGTH_BYTES: usize = 4;

const TYPE_NONE: u8 = 0;
const TYPE_LZ4: u8 = 1;
const TYPE_ZSTD: u8 = 2;

/// The location of a block in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Byte offset of the block in its file.
    pub offset: u64,
    /// Stored bytes, without the following frame of nine bytes.
    pub bytes: u32,
}

impl BlockHandle {
    /// The offset after the block and its frame.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes)).saturating_add(FRAME_BYTES as u64)
    }
}

/// A verified, decompressed payload followed by [`PADDING`] readable bytes.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    /// The payload and at least [`PADDING`] further bytes.
    pub(crate) bytes: SharedBytes,
    /// The number of payload bytes.
    pub(crate) len: usize,
}

impl Payload {
    /// The payload without the padding.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Compresses and frames blocks into one output buffer. Reuses its tables between blocks.
pub(crate) struct BlockFramer {
    compression: Compression,
    lz4: CompressTable,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl BlockFramer {
    pub(crate) fn new(compression: Compression) -> Result<Self> {
        let zstd = match compression {
            Compression::Zstd(level) => Some(
                zstd::bulk::Compressor::new(level).map_err(|e| Error::io("start a zstd compressor", e))?,
            ),
            _ => None,
        };
        Ok(Self { compression, lz4: CompressTable::default(), zstd, scratch: Vec::new() })
    }

    /// Appends the framed `payload`, which will lie at `offset` of the file, to `out`.
    pub(crate) fn frame(
        &mut self,
        identity: &FileIdentity,
        offset: u64,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<BlockHandle> {
        let start = out.len();
        let block_type = self.compress(payload)?;
        if block_type == TYPE_NONE {
            out.extend_from_slice(payload);
        } else {
            out.extend_from_slice(&self.scratch);
        }
        let bytes = u32::try_from(out.len() - start)
            .map_err(|_| Error::limit_exceeded("a block", payload.len() as u64, u32::MAX.into()))?;
        out.push(block_type);
        let checksum = identity.checksum(offset, out.get(start..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
        Ok(BlockHandle { offset, bytes })
    }

    /// Compresses `payload` into the scratch buffer. Returns [`TYPE_NONE`] if the reduction is too small.
    fn compress(&mut self, payload: &[u8]) -> Result<u8> {
        if self.compression == Compression::None || u32::try_from(payload.len()).is_err() {
            return Ok(TYPE_NONE);
        }
        let worst = match self.compression {
            Compression::Lz4 => lz4_flex::block::get_maximum_output_size(payload.len()),
            _ => zstd::zstd_safe::compress_bound(payload.len()),
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.scratch.resize(LENGTH_BYTES + worst, 0);
        let target = self.scratch.get_mut(LENGTH_BYTES..).unwrap_or_default();
        let (block_type, written) = match &mut self.zstd {
            None => (
                TYPE_LZ4,
                lz4_flex::block::compress_into_with_table(payload, target, &mut self.lz4)
                    .map_err(|e| Error::internal(format!("lz4 compression failed: {e}")))?,
            ),
            Some(zstd) => (
                TYPE_ZSTD,
                zstd.compress_to_buffer(payload, target).map_err(|e| Error::io("compress with zstd", e))?,
            ),
        };
        self.scratch.truncate(LENGTH_BYTES + written);
        let pays = self.scratch.len() <= payload.len() - payload.len() / 8;
        Ok(if pays { block_type } else { TYPE_NONE })
    }
}

/// Reads the block at `handle`, verifies it and decompresses it. Accepts at most `limit` bytes of payload. `file_bytes` is
/// the length of the file. A block for the cache is placed in `memory`.
pub(crate) fn read_block(
    source: &FileSource,
    identity: &FileIdentity,
    file_bytes: u64,
    handle: BlockHandle,
    limit: usize,
    memory: Option<&Arc<CacheMemory>>,
) -> Result<Payload> {
    if handle.end() > file_bytes {
        return Err(source.corruption(handle.offset, "a block reaches past the end of the file"));
    }
    let mut bytes = zeroed(handle.bytes as usize + FRAME_BYTES, memory);
    // The buffer was created above, so it is not shared.
    if let Some(buffer) = bytes.get_mut() {
        source.read_exact_at(handle.offset, buffer)?;
    }
    let (stored, block_type) = verify_frame(source, identity, handle, &bytes)?;
    if block_type == TYPE_NONE {
        let len = stored.len();
        check_length(source, handle, len, limit)?;
        return Ok(Payload { bytes, len });
    }
    decompress(source, handle, stored, block_type, limit, memory)
}

/// As [`read_block`], from bytes that were read before: `framed` starts at the block's offset and is at
/// least as long as the block and its frame.
pub(crate) fn decode_block(
    source: &FileSource,
    identity: &FileIdentity,
    handle: BlockHandle,
    framed: &[u8],
    limit: usize,
    memory: Option<&Arc<CacheMemory>>,
) -> Result<Payload> {
    let framed = framed
        .get(..handle.bytes as usize + FRAME_BYTES)
        .ok_or_else(|| source.corruption(handle.offset, "a block reaches past the end of the file"))?;
    let (stored, block_type) = verify_frame(source, identity, handle, framed)?;
    if block_type == TYPE_NONE {
        check_length(source, handle, stored.len(), limit)?;
        let mut bytes = zeroed(framed.len(), memory);
        bytes.get_mut().unwrap_or_default().copy_from_slice(framed);
        return Ok(Payload { bytes, len: stored.len() });
    }
    decompress(source, handle, stored, block_type, limit, memory)
}

/// Verifies the checksum of a framed block. Returns its stored bytes and type.
fn verify_frame<'a>(
    source: &FileSource,
    identity: &FileIdentity,
    handle: BlockHandle,
    framed: &'a [u8],
) -> Result<(&'a [u8], u8)> {
    ReadCounters::count(|counters| {
        counters.blocks_read += 1;
        counters.bytes_read += u64::from(handle.bytes) + FRAME_BYTES as u64;
    });
    let short = || source.corruption(handle.offset, "a block has no frame");
    let (covered, checksum) = framed.split_last_chunk::<8>().ok_or_else(short)?;
    let (&block_type, stored) = covered.split_last().ok_or_else(short)?;
    if identity.checksum(handle.offset, covered) != u64::from_le_bytes(*checksum) {
        return Err(source.corruption(handle.offset, "the checksum of a block does not match"));
    }
    Ok((stored, block_type))
}

fn check_length(source: &FileSource, handle: BlockHandle, len: usize, limit: usize) -> Result<()> {
    if len > limit {
        let what = format!("a block of {len} bytes is over its limit of {limit}");
        return Err(source.corruption(handle.offset, what));
    }
    Ok(())
}

fn decompress(
    source: &FileSource,
    handle: BlockHandle,
    stored: &[u8],
    block_type: u8,
    limit: usize,
    memory: Option<&Arc<CacheMemory>>,
) -> Result<Payload> {
    let damaged = |what: &str| source.corruption(handle.offset, what);
    let (len, compressed) = stored
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| damaged("a compressed block is too short"))?;
    let len = u32::from_le_bytes(*len) as usize;
    check_length(source, handle, len, limit)?;
    if len > largest_expansion(block_type, compressed.len()) {
        return Err(damaged("the stored length of a compressed block is impossible"));
    }
    let mut bytes = zeroed(len + PADDING, memory);
    let target = bytes.get_mut().and_then(|bytes| bytes.get_mut(..len)).unwrap_or_default();
    let written = match block_type {
        TYPE_LZ4 => lz4_flex::block::decompress_into(compressed, target)
            .map_err(|e| damaged(&format!("an lz4 block does not decompress: {e}")))?,
        TYPE_ZSTD => zstd_decompress(compressed, target)
            .map_err(|e| damaged(&format!("a zstd block does not decompress: {e}")))?,
        other => {
            let what = format!("a block at byte {} has compression {other}, which is unknown", handle.offset);
            return Err(Error::unsupported(source.name(), what));
        }
    };
    if written != len {
        return Err(damaged("the stored length of a compressed block is wrong"));
    }
    Ok(Payload { bytes, len })
}

/// Maximum decoded size of `compressed` bytes. Without this limit a file of a few bytes could claim
/// blocks of many megabytes.
fn largest_expansion(block_type: u8, compressed: usize) -> usize {
    match block_type {
        // A byte of an LZ4 length adds at most 255 bytes of output.
        TYPE_LZ4 => compressed.saturating_mul(255),
        // A Zstandard block of four bytes repeats one byte at most 128 KiB times.
        _ => compressed.saturating_mul(32 << 10),
    }
}

/// `len` zero bytes in `memory`, if any.
fn zeroed(len: usize, memory: Option<&Arc<CacheMemory>>) -> SharedBytes {
    memory.map_or_else(|| SharedBytes::zeroed(len), |memory| memory.zeroed(len))
}

thread_local! {
    /// Creating a decompression context costs more than decompressing a block.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn zstd_decompress(compressed: &[u8], target: &mut [u8]) -> io::Result<usize> {
    ZSTD.with_borrow_mut(|context| {
        if context.is_none() {
            *context = Some(zstd::bulk::Decompressor::new()?);
        }
        match context {
            Some(context) => context.decompress_to_buffer(compressed, target),
            None => Err(io::Error::other("no decompression context")),
        }
    })
}
