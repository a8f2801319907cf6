//! Readahead of a cursor that moves forward.

use bolide_base::Result;

use crate::block::Block;
use crate::index_block::IndexBlock;
use crate::options::MAX_BLOCK_BYTES;
use crate::stored_block::{BlockHandle, decode_block};
use crate::table_reader::TableReader;

/// Number of sequential single-block reads before the first readahead.
const SINGLE_READS: u32 = 2;
/// Size of the first readahead; each later one doubles.
const FIRST_BYTES: u64 = 16 << 10;
/// Maximum size of a readahead.
const MAX_BYTES: u64 = 256 << 10;

/// The approximate memory of a cursor that reads an sstable from its beginning to its end: the readahead and a block.
pub const MAX_CURSOR_BYTES: u64 = MAX_BYTES + (64 << 10);

/// The source of a cursor's blocks: the cache, the readahead buffer, or the file.
#[derive(Debug)]
pub(crate) struct Readahead {
    fill_cache: bool,
    /// Bytes of the file from offset `start`.
    buffer: Vec<u8>,
    start: u64,
    /// The number of the block after the last requested one.
    next_block: u64,
    /// Number of consecutive blocks that were neither cached nor in the buffer.
    in_a_row: u32,
    next_bytes: u64,
}

impl Readahead {
    pub(crate) fn new(fill_cache: bool) -> Self {
        Self {
            fill_cache,
            buffer: Vec::new(),
            start: 0,
            next_block: u64::MAX,
            in_a_row: 0,
            next_bytes: FIRST_BYTES,
        }
    }

    /// Data block number `child` of `leaf`.
    pub(crate) fn block(&mut self, table: &TableReader, leaf: &IndexBlock, child: usize) -> Result<Block> {
        let ordinal = leaf.ordinal(child);
        let sequential = ordinal == self.next_block;
        self.next_block = ordinal + 1;
        let cached =
            if self.fill_cache { table.cached_data_block(ordinal) } else { table.peek_data_block(ordinal) };
        if let Some(block) = cached {
            return Ok(block);
        }
        // Blocks are adjacent. Their locations matter only here and cost a further memory access.
        let handle = table.child_handle(leaf, child)?;
        if self.holds(handle) {
            return self.decode_buffered(table, handle, ordinal);
        }
        if !sequential {
            self.in_a_row = 0;
            self.next_bytes = FIRST_BYTES;
        }
        self.in_a_row += 1;
        if self.in_a_row > SINGLE_READS && self.read_ahead(table, handle)? {
            return self.decode_buffered(table, handle, ordinal);
        }
        let block = table.read_data_block(handle, self.fill_cache)?;
        self.cache_block(table, ordinal, &block);
        Ok(block)
    }

    fn holds(&self, handle: BlockHandle) -> bool {
        handle.offset >= self.start && handle.end() <= self.start + self.buffer.len() as u64
    }

    fn decode_buffered(&self, table: &TableReader, handle: BlockHandle, ordinal: u64) -> Result<Block> {
        let framed = self.buffer.get((handle.offset - self.start) as usize..).unwrap_or_default();
        let memory = self.fill_cache.then(|| table.cache().block_memory());
        let payload =
            decode_block(table.source(), table.identity(), handle, framed, MAX_BLOCK_BYTES, memory)?;
        let block = table.parse_data_block(handle, payload)?;
        self.cache_block(table, ordinal, &block);
        Ok(block)
    }

    fn cache_block(&self, table: &TableReader, ordinal: u64, block: &Block) {
        if self.fill_cache {
            table.cache_data_block(ordinal, block);
        }
    }

    /// Fills the buffer from `handle` on. Returns false if the block is larger than the readahead, or is the last one.
    fn read_ahead(&mut self, table: &TableReader, handle: BlockHandle) -> Result<bool> {
        let bytes = self.next_bytes.min(table.footer().data_end.saturating_sub(handle.offset));
        if handle.end() > handle.offset + bytes {
            return Ok(false);
        }
        self.next_bytes = (self.next_bytes * 2).min(MAX_BYTES);
        self.buffer.resize(bytes as usize, 0);
        self.start = handle.offset;
        let read = table.source().read_exact_at(handle.offset, &mut self.buffer);
        if read.is_err() {
            self.buffer.clear();
        }
        read.map(|()| true)
    }
}
