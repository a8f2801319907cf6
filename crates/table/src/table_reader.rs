//! Reads an sstable: point reads here, ordered reads through its cursor.

use std::fmt;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::limits::MAX_TREE_KEY_BYTES;
use bolide_base::{FileIdentity, Result, SequenceNumber, Trailer};

use crate::block::{Block, BlockEntry, BlockLookup, MalformedBlock};
use crate::block_cache::{BlockCache, CachedBlock, TableBlocks};
use crate::bloom::BloomFilter;
use crate::file_pool::FileSource;
use crate::footer::{Footer, IndexLevelCount, read_footer};
use crate::index_block::{IndexBlock, IndexLevel};
use crate::meta_collector::{MetaIndex, decode_meta_index};
use crate::options::{MAX_BLOCK_BYTES, MAX_META_BLOCK_BYTES};
use crate::owner::MAX_OWNER_BYTES;
use crate::properties::TableProperties;
use crate::read_counters::ReadCounters;
use crate::stored_block::{BlockHandle, FRAME_BYTES, Payload, read_block};
use crate::value_ref::ValueRef;

/// Maximum size of the properties: two keys, the two fields of the owner and some numbers.
pub(crate) const MAX_PROPERTIES_BYTES: usize = 2 * MAX_TREE_KEY_BYTES + 2 * MAX_OWNER_BYTES + 4096;

/// An open sstable.
///
/// The filter and the index (only its top block if it is large) stay in memory. Data blocks and index partitions are read
/// through the [`BlockCache`]. Safe to share between threads, and immutable like its file.
pub struct TableReader {
    source: FileSource,
    identity: FileIdentity,
    /// Data blocks by number, followed by index partitions, then meta blocks.
    blocks: TableBlocks,
    /// The number of the first meta block in `blocks`.
    first_meta: u64,
    footer: Footer,
    properties: TableProperties,
    filter: Option<BloomFilter>,
    /// `None` for a table without entries.
    index: Option<TopIndex>,
    meta_index: MetaIndex,
}

/// The resident part of the index.
#[derive(Debug)]
pub(crate) struct TopIndex {
    pub(crate) block: Arc<IndexBlock>,
    pub(crate) levels: IndexLevelCount,
}

impl TableReader {
    /// Opens the sstable `identity`. Reads header, footer, properties, index and filter.
    ///
    /// Fails with [`ErrorKind::Unsupported`](bolide_base::ErrorKind::Unsupported) for a newer format, with
    /// [`ErrorKind::Corruption`](bolide_base::ErrorKind::Corruption) for a truncated or damaged file, for another kind of file
    /// and for a file of another database or number, and with the errors of reading.
    pub fn open(source: FileSource, identity: FileIdentity, cache: Arc<BlockCache>) -> Result<Self> {
        let footer = read_footer(&source, &identity)?;
        let mut reader = Self {
            source,
            identity,
            blocks: TableBlocks::new(Arc::clone(&cache), 0),
            first_meta: 0,
            footer,
            properties: TableProperties::default(),
            filter: None,
            index: None,
            meta_index: MetaIndex::new(),
        };
        let payload = reader.read_raw(footer.properties, MAX_PROPERTIES_BYTES)?;
        reader.properties = TableProperties::decode(payload.as_slice(), footer.file_bytes)
            .map_err(|malformed| reader.damaged(footer.properties.offset, malformed))?;
        let payload = reader.read_raw(footer.meta_index, MAX_META_BLOCK_BYTES)?;
        reader.meta_index = decode_meta_index(payload.as_slice(), footer.data_end, footer.file_bytes)
            .map_err(|malformed| reader.damaged(footer.meta_index.offset, malformed))?;
        reader.filter = reader.read_filter()?;
        reader.index = reader.read_top_index()?;
        if let Some(top) = &reader.index {
            let partitions = if top.levels == IndexLevelCount::Two { top.block.len() as u64 } else { 0 };
            reader.first_meta = top.block.end_ordinal() + partitions;
            reader.blocks = TableBlocks::new(cache, reader.first_meta + reader.meta_index.len() as u64);
        }
        Ok(reader)
    }

    fn read_filter(&self) -> Result<Option<BloomFilter>> {
        let Some(handle) = self.footer.filter else {
            return Ok(None);
        };
        let payload = self.read_raw(handle, usize::try_from(self.footer.file_bytes).unwrap_or(usize::MAX))?;
        match BloomFilter::decode(payload.as_slice()) {
            Some(filter) => Ok(Some(filter.moved_to(self.cache().memory_pool()))),
            None => Err(self.source.corruption(handle.offset, "the filter does not decode")),
        }
    }

    fn read_top_index(&self) -> Result<Option<TopIndex>> {
        let Some((handle, levels)) = self.footer.index else {
            if self.properties.entries == 0 && self.properties.data_blocks == 0 {
                return Ok(None);
            }
            return Err(self.source.corruption(self.footer.file_bytes, "a table with entries has no index"));
        };
        let block = self.read_index_block(handle, levels.highest())?;
        let blocks = block.end_ordinal() - block.ordinal(0);
        if block.ordinal(0) != 0 || blocks != self.properties.data_blocks {
            return Err(self.source.corruption(handle.offset, "the index has a wrong number of data blocks"));
        }
        if blocks > self.footer.data_end / FRAME_BYTES as u64 {
            return Err(self
                .source
                .corruption(handle.offset, "the index has more data blocks than fit the file"));
        }
        Ok(Some(TopIndex { block: Arc::new(block), levels }))
    }

    fn read_index_block(&self, handle: BlockHandle, level: IndexLevel) -> Result<IndexBlock> {
        let payload = self.read_raw(handle, MAX_META_BLOCK_BYTES)?;
        // Data blocks end at the end of the data; index blocks may lie anywhere after it.
        let end = match level {
            IndexLevel::Leaf => self.footer.data_end,
            IndexLevel::Top => self.footer.file_bytes,
        };
        IndexBlock::decode(payload.as_slice(), level, end)
            .map_err(|malformed| self.damaged(handle.offset, malformed))
    }

    /// Reads and verifies a block without the cache.
    pub(crate) fn read_raw(&self, handle: BlockHandle, limit: usize) -> Result<Payload> {
        read_block(&self.source, &self.identity, self.footer.file_bytes, handle, limit, None)
    }

    /// Reads and verifies a data block without the cache. `stays` is whether the caller will insert it into the cache.
    pub(crate) fn read_data_block(&self, handle: BlockHandle, stays: bool) -> Result<Block> {
        let memory = stays.then(|| self.cache().block_memory());
        let file_bytes = self.footer.file_bytes;
        let payload = read_block(&self.source, &self.identity, file_bytes, handle, MAX_BLOCK_BYTES, memory)?;
        self.parse_data_block(handle, payload)
    }

    /// Capacity of the block cache, which other tables share, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.blocks.capacity_bytes()
    }

    /// The block cache, whose [memory](BlockCache::memory_pool) the table uses.
    pub fn cache(&self) -> &Arc<BlockCache> {
        self.blocks.cache()
    }

    #[cold]
    pub(crate) fn damaged(&self, offset: u64, malformed: MalformedBlock) -> bolide_base::Error {
        self.source.corruption(offset, malformed.0)
    }

    /// The newest version of `key` with a sequence number of at most `sequence`, which may be a tombstone, with its value.
    ///
    /// Costs no I/O if the filter excludes the key or the block is cached, else one read. Allocates only blocks; the value
    /// pins its block.
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        self.get_hashed(key, hash_key(key), sequence)
    }

    /// As [`get`](Self::get), for a caller that reads several tables: `hash` is
    /// [`hash_key`](bolide_base::checksum::hash_key) of `key`.
    pub fn get_hashed(
        &self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Result<Option<(Trailer, ValueRef)>> {
        let found = self.find(key, hash, sequence)?;
        Ok(found.map(|(block, entry)| (entry.trailer, ValueRef::pinned(block.into_bytes(), entry.value()))))
    }

    /// The sequence number and kind of the newest version of `key` with a sequence number of at most
    /// `sequence`, which may be a tombstone. Costs the same as [`get`](Self::get).
    pub fn newest(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<Trailer>> {
        self.newest_hashed(key, hash_key(key), sequence)
    }

    /// As [`newest`](Self::newest); for `hash` see [`get_hashed`](Self::get_hashed).
    pub fn newest_hashed(&self, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<Option<Trailer>> {
        Ok(self.find(key, hash, sequence)?.map(|(_, entry)| entry.trailer))
    }

    /// False if the filter excludes all keys with this hash. No I/O.
    #[inline]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let may_contain = filter.may_contain(hash);
        ReadCounters::count(|counters| {
            counters.bloom_checks += 1;
            counters.bloom_negatives += u64::from(!may_contain);
        });
        may_contain
    }

    /// Prefetches the memory that [`may_contain_hash`](Self::may_contain_hash) reads.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    #[inline]
    fn find(&self, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<Option<(Block, BlockEntry)>> {
        let Some(top) = &self.index else {
            return Ok(None);
        };
        if !self.may_contain_hash(hash) {
            return Ok(None);
        }
        let child = top.block.find(key, sequence);
        match top.levels {
            IndexLevelCount::One => self.find_below(top, 0, &top.block, child, key, sequence),
            IndexLevelCount::Two => {
                let leaf = self.partition(&top.block, child)?;
                self.find_below(top, child, &leaf, leaf.find(key, sequence), key, sequence)
            }
        }
    }

    /// Searches data block number `child` of index partition number `partition`, which is `leaf`.
    #[inline]
    fn find_below(
        &self,
        top: &TopIndex,
        partition: usize,
        leaf: &IndexBlock,
        child: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(Block, BlockEntry)>> {
        let block = self.data_block(leaf, child)?;
        match block.find(key, sequence) {
            Ok(BlockLookup::Entry(entry)) => Ok(Some((block, entry))),
            Ok(BlockLookup::Absent) => Ok(None),
            Ok(BlockLookup::PastTheEnd) => self.find_in_next(top, partition, leaf, child, key, sequence),
            Err(malformed) => Err(self.damaged_child(leaf, child, malformed)),
        }
    }

    /// Searches the next block if its separator states that it starts with further versions of the key.
    #[cold]
    pub(crate) fn find_in_next(
        &self,
        top: &TopIndex,
        partition: usize,
        leaf: &IndexBlock,
        child: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(Block, BlockEntry)>> {
        let next_leaf;
        let (leaf, child) = if child + 1 < leaf.len() {
            if !leaf.continues(child + 1, key) {
                return Ok(None);
            }
            (leaf, child + 1)
        } else {
            let next = partition + 1;
            if top.levels == IndexLevelCount::One || !top.block.continues(next, key) {
                return Ok(None);
            }
            next_leaf = self.partition(&top.block, next)?;
            (&*next_leaf, 0)
        };
        let block = self.data_block(leaf, child)?;
        match block.find(key, sequence) {
            Ok(BlockLookup::Entry(entry)) => Ok(Some((block, entry))),
            Ok(BlockLookup::Absent | BlockLookup::PastTheEnd) => Ok(None),
            Err(malformed) => Err(self.damaged_child(leaf, child, malformed)),
        }
    }

    pub(crate) fn child_handle(&self, index: &IndexBlock, child: usize) -> Result<BlockHandle> {
        index.handle(child).ok_or_else(|| {
            self.source.corruption(index.end_offset(), "an index refers to a block after its last one")
        })
    }

    /// As [`damaged`](Self::damaged), for data block number `child` of `leaf`.
    #[cold]
    pub(crate) fn damaged_child(
        &self,
        leaf: &IndexBlock,
        child: usize,
        malformed: MalformedBlock,
    ) -> bolide_base::Error {
        self.damaged(leaf.handle(child).unwrap_or_default().offset, malformed)
    }

    /// Index partition number `partition`, through the cache.
    pub(crate) fn partition(&self, top: &IndexBlock, partition: usize) -> Result<Arc<IndexBlock>> {
        if let Some(index) = self.cached_partition(top, partition) {
            return Ok(index);
        }
        let number = top.end_ordinal() + partition as u64;
        let index = Arc::new(self.read_partition(top, partition)?);
        self.blocks.insert(number, CachedBlock::Index(Arc::clone(&index)));
        Ok(index)
    }

    /// The cached blocks of this table, by number.
    #[inline]
    pub(crate) fn blocks(&self) -> &TableBlocks {
        &self.blocks
    }

    /// Index partition number `partition`, if it is cached. Not counted as a use.
    pub(crate) fn cached_partition(&self, top: &IndexBlock, partition: usize) -> Option<Arc<IndexBlock>> {
        match self.blocks.peek(top.end_ordinal() + partition as u64) {
            Some(CachedBlock::Index(index)) => Some(index),
            _ => None,
        }
    }

    /// Index partition number `partition`, from the file.
    pub(crate) fn read_partition(&self, top: &IndexBlock, partition: usize) -> Result<IndexBlock> {
        let handle = self.child_handle(top, partition)?;
        let index = self.read_index_block(handle, IndexLevel::Leaf)?;
        let next = if partition + 1 < top.len() { top.ordinal(partition + 1) } else { top.end_ordinal() };
        if index.ordinal(0) != top.ordinal(partition) || index.end_ordinal() != next {
            return Err(self.source.corruption(handle.offset, "an index partition has other data blocks"));
        }
        Ok(index)
    }

    /// Data block number `child` of `leaf`, through the cache.
    #[inline]
    pub(crate) fn data_block(&self, leaf: &IndexBlock, child: usize) -> Result<Block> {
        match self.cached_data_block(leaf.ordinal(child)) {
            Some(block) => Ok(block),
            None => self.load_data_block(leaf, child),
        }
    }

    /// Data block number `child` of `leaf` from the file; it is inserted into the cache.
    #[cold]
    pub(crate) fn load_data_block(&self, leaf: &IndexBlock, child: usize) -> Result<Block> {
        let handle = self.child_handle(leaf, child)?;
        let block = self.read_data_block(handle, true)?;
        self.cache_data_block(leaf.ordinal(child), &block);
        Ok(block)
    }

    pub(crate) fn cache_data_block(&self, ordinal: u64, block: &Block) {
        self.blocks.insert(ordinal, CachedBlock::Data(block.clone()));
    }

    /// Data block number `ordinal` if it is cached. Counts as a use.
    #[inline]
    pub(crate) fn cached_data_block(&self, ordinal: u64) -> Option<Block> {
        match self.blocks.get(ordinal) {
            Some(CachedBlock::Data(block)) => Some(block),
            _ => None,
        }
    }

    /// As [`cached_data_block`](Self::cached_data_block), without counting a use.
    pub(crate) fn peek_data_block(&self, ordinal: u64) -> Option<Block> {
        match self.blocks.peek(ordinal) {
            Some(CachedBlock::Data(block)) => Some(block),
            _ => None,
        }
    }

    pub(crate) fn parse_data_block(&self, handle: BlockHandle, payload: Payload) -> Result<Block> {
        Block::new(payload).map_err(|malformed| self.damaged(handle.offset, malformed))
    }

    /// The properties of the table.
    pub fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// The identity of the file: database and file number.
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// The file of the table.
    pub fn source(&self) -> &FileSource {
        &self.source
    }

    /// The bytes of the caller-defined meta block `name`; `None` if there is none. One read; not cached.
    pub fn meta_block(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.meta_block_number(name) else { return Ok(None) };
        let Some((_, handle)) = self.meta_index.get(number as usize) else { return Ok(None) };
        Ok(Some(self.read_raw(*handle, MAX_META_BLOCK_BYTES)?.as_slice().to_vec()))
    }

    /// The number of the meta block `name` in the order of names; `None` if there is none. For
    /// [`cached_meta_block`](Self::cached_meta_block).
    pub fn meta_block_number(&self, name: &str) -> Option<u32> {
        let found = self.meta_index.binary_search_by(|(stored, _)| stored.as_str().cmp(name));
        u32::try_from(found.ok()?).ok()
    }

    /// The bytes of the meta block with this number, through the cache; `None` if the number is too large.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading it.
    #[inline]
    pub fn cached_meta_block(&self, number: u32) -> Result<Option<ValueRef>> {
        let pinned = |payload: Payload| ValueRef::pinned(payload.bytes, 0..payload.len);
        if let Some(CachedBlock::Meta(payload)) = self.blocks.get(self.first_meta + u64::from(number)) {
            return Ok(Some(pinned(payload)));
        }
        let Some((_, handle)) = self.meta_index.get(number as usize) else { return Ok(None) };
        let payload = self.read_raw(*handle, MAX_META_BLOCK_BYTES)?;
        self.blocks.insert(self.first_meta + u64::from(number), CachedBlock::Meta(payload.clone()));
        Ok(Some(pinned(payload)))
    }

    /// Prefetches the cache slot of the meta block with this number.
    #[inline]
    pub fn prefetch_meta_slot(&self, number: u32) {
        self.blocks.prefetch_slot(self.first_meta + u64::from(number));
    }

    /// Prefetches the first `len` bytes of the meta block with this number, if it is cached.
    #[inline]
    pub fn prefetch_meta_block(&self, number: u32, len: usize) {
        self.blocks.prefetch_meta(self.first_meta + u64::from(number), len);
    }

    /// The names of the caller-defined meta blocks, sorted.
    pub fn meta_block_names(&self) -> impl Iterator<Item = &str> {
        self.meta_index.iter().map(|(name, _)| name.as_str())
    }

    /// Memory of the open table outside of the cache, in bytes: filter, index, properties, and four bytes per block for
    /// hints.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.blocks.memory_bytes()
            + self.filter.as_ref().map_or(0, BloomFilter::memory_bytes)
            + self.index.as_ref().map_or(0, |top| top.block.memory_bytes())
            + self.properties.smallest_key.len()
            + self.properties.largest_key.len()
            + self
                .meta_index
                .iter()
                .map(|(name, _)| name.len() + size_of::<(String, BlockHandle)>())
                .sum::<usize>()
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(crate) fn filter(&self) -> Option<&BloomFilter> {
        self.filter.as_ref()
    }

    pub(crate) fn top_index(&self) -> Option<&TopIndex> {
        self.index.as_ref()
    }

    pub(crate) fn meta_index(&self) -> &MetaIndex {
        &self.meta_index
    }
}

impl fmt::Debug for TableReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableReader")
            .field("source", &self.source.name())
            .field("identity", &self.identity)
            .finish()
    }
}
