//! Data blocks by number, for readers that store the positions of entries, such as sorted views.

use std::cmp::Ordering;

use bolide_base::{Error, Result, SequenceNumber, Trailer};

use crate::block::{Block, BlockEntry, KeyDifference, MalformedBlock, SHORT_KEY};
use crate::footer::IndexLevelCount;
use crate::index_block::IndexBlock;
use crate::stored_block::BlockHandle;
use crate::table_reader::{TableReader, TopIndex};
use crate::value_ref::ValueRef;

/// A pinned data block. It stays in memory as long as this exists, independently of the cache.
#[derive(Debug, Clone)]
pub struct PinnedBlock(Block);

/// An entry of a [`PinnedBlock`] as positions, without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct PinnedEntry {
    entry: BlockEntry,
    newer: Option<SequenceNumber>,
}

impl PinnedEntry {
    /// The sequence number and the kind.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.entry.trailer
    }

    /// The sequence number of the previous entry, if it is in the same block and has the same key: the next newer version.
    #[inline]
    pub fn newer_in_block(&self) -> Option<SequenceNumber> {
        self.newer
    }
}

/// The data blocks of a table by number, from 0 on, for readers that store the positions of entries.
#[derive(Debug, Clone, Copy)]
pub struct NumberedBlocks<'t> {
    table: &'t TableReader,
}

impl PinnedBlock {
    pub(crate) fn new(block: Block) -> Self {
        Self(block)
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Block {
        &self.0
    }

    /// Compares the key of entry number `index` with `key`. `None` if there is no such entry or the block is inconsistent.
    #[inline]
    pub fn difference(&self, index: usize, key: &[u8]) -> Option<KeyDifference> {
        self.0.difference(index, key).ok()
    }

    /// Entry number `index`. `None` if there is no such entry or the block is inconsistent.
    #[inline]
    pub fn entry(&self, index: usize) -> Option<PinnedEntry> {
        let entry = self.0.decode_inline(index)?;
        let newer = self.0.newer_version(index, &entry).ok()?;
        Some(PinnedEntry { entry, newer })
    }

    /// Appends the key of `entry`, an entry of this block, to `out`.
    #[inline]
    pub fn write_key(&self, entry: &PinnedEntry, out: &mut Vec<u8>) {
        // Most keys are short: a copy of fixed length needs no call.
        let start = out.len();
        out.extend_from_slice(&[0; SHORT_KEY]);
        let written = out.last_chunk_mut().and_then(|room| self.0.put_short_key(&entry.entry, room));
        out.truncate(start + written.unwrap_or(0));
        if written.is_none() {
            self.0.append_key(&entry.entry, out);
        }
    }

    /// The value of `entry`, an entry of this block.
    #[inline]
    pub fn value(&self, entry: &PinnedEntry) -> &[u8] {
        self.0.bytes().get(entry.entry.value()).unwrap_or_default()
    }

    /// The same value with a reference that pins the block. Copies nothing.
    #[inline]
    pub fn value_ref(&self, entry: &PinnedEntry) -> ValueRef {
        ValueRef::pinned(self.0.bytes().clone(), entry.entry.value())
    }

    /// The number of entries, at least one.
    #[inline]
    pub fn entries(&self) -> usize {
        self.0.count()
    }

    /// The first of the entries `low..high` at or after `(key, sequence)` in tree order; `high` if there is none. `None` if
    /// the block is inconsistent.
    #[inline]
    pub fn lower_bound_between(
        &self,
        low: usize,
        high: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<usize> {
        self.0.lower_bound_between(low, high, key, sequence).ok()
    }

    /// The trailer and the value of entry number `index` if its key is `key`; `Some(None)` for another key.
    /// `None` if there is no such entry or the block is inconsistent.
    #[inline]
    pub fn entry_of_key(&self, index: usize, key: &[u8]) -> Option<Option<(Trailer, ValueRef)>> {
        let entry = self.0.entry(index).ok()?;
        if self.0.compare_key(&entry, key) != Ordering::Equal {
            return Some(None);
        }
        Some(Some((entry.trailer, ValueRef::pinned(self.0.bytes().clone(), entry.value()))))
    }

    /// Memory of the block, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.bytes().memory_bytes()
    }

    /// The key and the trailer of entry number `index`. Allocates the key.
    pub fn key(&self, index: usize) -> Option<(Vec<u8>, Trailer)> {
        let entry = self.0.entry(index).ok()?;
        let mut key = self.0.prefix().to_vec();
        self.0.complete_key(&entry, &mut key);
        Some((key, entry.trailer))
    }

    /// Prefetches the memory for a forward scan from entry number `index`.
    #[inline]
    pub fn prefetch_from(&self, index: usize) {
        self.0.prefetch_from(index);
    }

    /// Prefetches the memory that a comparison with entry number `index` reads.
    #[inline]
    pub fn prefetch_entry(&self, index: usize, value: bool) {
        self.0.prefetch_entry(index, value);
    }
}

impl TableReader {
    /// The data blocks by number.
    #[inline]
    pub fn numbered_blocks(&self) -> NumberedBlocks<'_> {
        NumberedBlocks { table: self }
    }
}

impl<'t> NumberedBlocks<'t> {
    /// Data block number `block`, through the cache; inserted there only with `fill_cache`. `None` after the last block.
    /// Costs at most two reads.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading the block.
    #[inline]
    pub fn pin(self, block: u64, fill_cache: bool) -> Result<Option<PinnedBlock>> {
        let cached =
            if fill_cache { self.table.cached_data_block(block) } else { self.table.peek_data_block(block) };
        match cached {
            Some(cached) => Ok(Some(PinnedBlock(cached))),
            None => Ok(self.read(block, fill_cache)?.map(PinnedBlock)),
        }
    }

    /// Puts data block number `block` into `pinned`, through the cache. Returns whether the block was read from the file;
    /// it is inserted into the cache only with `fill_cache`. `None` after the last block. Costs at most two reads.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    #[inline]
    pub fn pin_or_read(self, block: u64, fill_cache: bool, pinned: &mut Option<PinnedBlock>) -> Result<bool> {
        if self.table.blocks().with_data_block(block, |cached| *pinned = Some(PinnedBlock(cached.clone()))) {
            return Ok(false);
        }
        *pinned = self.read(block, fill_cache)?.map(PinnedBlock);
        Ok(pinned.is_some())
    }

    /// Data block number `block` if it is cached, for an access to entry number `index`, whose memory is prefetched. Counts
    /// as a use with `use_it`. No I/O.
    #[inline]
    pub fn pin_cached(self, block: u64, index: usize, use_it: bool) -> Option<PinnedBlock> {
        self.table.blocks().data_block(block, index, use_it).map(PinnedBlock)
    }

    /// Prefetches the memory that [`prefetch_slot`](Self::prefetch_slot) reads.
    #[inline]
    pub fn prefetch_hint(self, block: u64) {
        self.table.blocks().prefetch_hint(block);
    }

    /// Prefetches the cache slot of block number `block`.
    #[inline]
    pub fn prefetch_slot(self, block: u64) {
        self.table.blocks().prefetch_slot(block);
    }

    /// Prefetches the memory that [`pin_cached`](Self::pin_cached) reads, and the directory entry of entry number
    /// `index` of the block.
    #[inline]
    pub fn prefetch_directory(self, block: u64, index: usize) {
        self.table.blocks().prefetch_directory_entry(block, index);
    }

    /// As [`prefetch_directory`](Self::prefetch_directory), and prefetches the entry at its predicted address: if
    /// entries have equal lengths, their positions are the same in all blocks. Reads only the hint.
    #[inline]
    pub fn prefetch_predicted(self, block: u64, index: usize) {
        self.table.blocks().prefetch_predicted(block, index);
    }

    /// Prefetches the memory that a comparison with entry number `index` of block number `block` reads, if the block is
    /// cached.
    #[inline]
    pub fn prefetch_entry(self, block: u64, index: usize) {
        self.table.blocks().try_with_data_block(block, |cached| cached.prefetch_directory_entry(index));
    }

    /// Prefetches entry number `index` of block number `block` with its value, if the block is cached.
    #[inline]
    pub fn prefetch_content(self, block: u64, index: usize) {
        self.table.blocks().try_with_data_block(block, |cached| cached.prefetch_entry(index, true));
    }

    /// Whether the previous block contains versions, newer ones, of `key`, the key of the first entry of data block number
    /// `block`. Costs at most one read.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading an index partition.
    pub fn continues_before(self, block: u64, key: &[u8]) -> Result<bool> {
        let Some(top) = self.table.top_index() else { return Ok(false) };
        let Some(child) = top.block.child_of_ordinal(block) else { return Ok(false) };
        if top.levels == IndexLevelCount::One {
            return Ok(top.block.continues(child, key));
        }
        let leaf = self.table.partition(&top.block, child)?;
        Ok(match leaf.child_of_ordinal(block) {
            // The level above stores the separator before a partition.
            Some(0) => top.block.continues(child, key),
            Some(in_leaf) => leaf.continues(in_leaf, key),
            None => false,
        })
    }

    /// Announces a read of data block number `block` to the file system, unless the block is cached: announced reads overlap.
    /// Of an index partition that is not cached, announces the partition instead, which is read first. No I/O in the calling
    /// thread.
    #[cold]
    pub fn read_ahead(self, block: u64) {
        let Some(top) = self.table.top_index() else { return };
        let Some(child) = top.block.child_of_ordinal(block) else { return };
        if top.levels == IndexLevelCount::One {
            return read_child_ahead(self.table, &top.block, child);
        }
        match self.table.cached_partition(&top.block, child) {
            Some(leaf) => {
                if let Some(child) = leaf.child_of_ordinal(block) {
                    read_child_ahead(self.table, &leaf, child);
                }
            }
            None => read_partition_ahead(self.table, top, child),
        }
    }

    /// The error for data block number `block` that is inconsistent in itself or with its table.
    #[cold]
    pub fn damaged(self, block: u64) -> Error {
        let offset = self.leaf(block).ok().flatten().and_then(|(leaf, child)| leaf.handle(child));
        let malformed = MalformedBlock("a data block is inconsistent, or does not match its table");
        self.table.damaged(offset.unwrap_or_default().offset, malformed)
    }

    /// The index block above data block number `block`, and the number of the block in it.
    pub(crate) fn leaf(self, block: u64) -> Result<Option<(std::sync::Arc<IndexBlock>, usize)>> {
        let Some(top) = self.table.top_index() else { return Ok(None) };
        let Some(child) = top.block.child_of_ordinal(block) else { return Ok(None) };
        if top.levels == IndexLevelCount::One {
            return Ok(Some((top.block.clone(), child)));
        }
        let leaf = self.table.partition(&top.block, child)?;
        Ok(leaf.child_of_ordinal(block).map(|child| (leaf, child)))
    }

    #[cold]
    fn read(self, block: u64, fill_cache: bool) -> Result<Option<Block>> {
        let Some((leaf, child)) = self.leaf(block)? else { return Ok(None) };
        let handle = self.table.child_handle(&leaf, child)?;
        let read = self.table.read_data_block(handle, fill_cache)?;
        if fill_cache {
            self.table.cache_data_block(block, &read);
        }
        Ok(Some(read))
    }
}

/// Announces a read of data block number `child` of `leaf`, unless it is cached.
#[inline]
pub(crate) fn read_child_ahead(table: &TableReader, leaf: &IndexBlock, child: usize) {
    if !table.blocks().holds(leaf.ordinal(child)) {
        read_handle_ahead(table, leaf.handle(child));
    }
}

/// Announces a read of index partition number `partition`, which is not cached.
pub(crate) fn read_partition_ahead(table: &TableReader, top: &TopIndex, partition: usize) {
    read_handle_ahead(table, top.block.handle(partition));
}

#[cold]
fn read_handle_ahead(table: &TableReader, handle: Option<BlockHandle>) {
    if let Some(handle) = handle {
        table.source().read_ahead(handle.offset, handle.end() - handle.offset);
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::key_bits::first_difference;
    use bolide_base::{EntryKind, FileIdentity};
    use bolide_storage::{MemVfs, SimRng, Vfs};

    use super::*;
    use crate::{BlockCache, BufferedEntry, FileSource, TableBuilder, TableOptions, key_head};

    #[test]
    fn differences_are_those_of_the_whole_keys() -> Result<()> {
        for seed in 0..150 {
            let mut rng = SimRng::new(seed);
            let prefix = vec![b'p'; rng.below(if seed % 3 == 0 { 60 } else { 12 }) as usize];
            let mut random_key = || {
                let mut key = prefix.clone();
                key.extend((0..rng.below(14)).map(|_| rng.below(3) as u8));
                key.truncate(key.len() - rng.below(2) as usize * key.len() / 2);
                key.extend((0..rng.below(3) / 2 * rng.below(40)).map(|_| b'a' + rng.below(2) as u8));
                key
            };
            let mut keys: Vec<_> = (0..60).map(|_| random_key()).collect();
            let probes: Vec<_> = (0..60).map(|_| random_key()).chain([Vec::new(), b"q".to_vec()]).collect();
            keys.sort();
            keys.dedup();
            let (vfs, identity) = (MemVfs::new(), FileIdentity { file_number: 2, tag: 1 });
            let path = std::path::Path::new("000002.sst");
            let mut builder =
                TableBuilder::new(vfs.create(path)?, identity, &TableOptions::default(), Vec::new())?;
            for (number, key) in keys.iter().enumerate() {
                builder.add(key, Trailer::new(number as u64 + 1, EntryKind::Put), b"value")?;
            }
            builder.finish()?;
            let source = FileSource::direct("000002.sst", vfs.open(path)?);
            let reader = TableReader::open(source, identity, BlockCache::new(1 << 20))?;
            assert!(reader.numbered_blocks().pin_cached(0, 0, true).is_none());
            let read = reader.numbered_blocks().pin(0, true)?.expect("a block was written");
            let block = reader
                .numbered_blocks()
                .pin_cached(0, 0, true)
                .expect("a block that was read is in the cache");
            assert_eq!((block.entries(), read.entries()), (keys.len(), keys.len()));
            let mut buffered = BufferedEntry::default();
            assert!(buffered.key().is_empty() && buffered.value(&block).is_empty());
            for (index, key) in keys.iter().enumerate().chain(keys.iter().enumerate().rev()) {
                assert!(buffered.go_to(&block, index), "the block is sound");
                assert_eq!(
                    (buffered.key(), buffered.value(&block)),
                    (key.as_slice(), &b"value"[..]),
                    "seed {seed}"
                );
                assert_eq!(buffered.trailer().sequence(), index as u64 + 1, "seed {seed}");
                assert_eq!(buffered.key_head(), key_head(key), "seed {seed}");
                assert_eq!(&*buffered.value_ref(&block), b"value", "seed {seed}");
                for probe in probes.iter().chain(&keys) {
                    let found = block.difference(index, probe).expect("the block is sound");
                    let wanted = (key.cmp(probe), first_difference(key, probe));
                    assert_eq!((found.order, found.bit), wanted, "seed {seed}: {key:?} {probe:?}");
                    assert_eq!(found.trailer.is_some(), key == probe, "seed {seed}");
                }
            }
            assert!(!buffered.go_to(&block, keys.len()));
            assert_eq!(buffered.key(), keys.first().map_or(&[][..], Vec::as_slice), "seed {seed}");
        }
        Ok(())
    }
}
