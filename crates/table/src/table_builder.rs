//! Writes an sstable in one pass. Memory: one block, the index and the hashes of the filter.
//!
//! ```text
//! header          48 bytes                    footer.rs
//! data blocks     each with its frame         block.rs, stored_block.rs
//! meta blocks     caller-defined, framed      meta_collector.rs
//! filter          framed, never compressed    bloom.rs
//! index           partitions, then the top    index_block.rs
//! meta index      framed                      meta_collector.rs
//! properties      framed                      properties.rs
//! footer          128 bytes                   footer.rs
//! ```
//!
//! Blocks are adjacent, so that every byte of the file is covered by a checksum.

use std::cmp::Ordering;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::limits::{MAX_NAME_BYTES, MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};
use bolide_base::{Error, FileIdentity, MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use bolide_storage::File;

use crate::block_builder::{BlockBuilder, shared_prefix_len};
use crate::bloom::BloomFilter;
use crate::footer::{FOOTER_BYTES, Footer, HEADER_BYTES, IndexLevelCount, encode_header};
use crate::index_block::{IndexBlockBuilder, IndexLevel, Separator};
use crate::key_counts::KeyCountCollector;
use crate::meta_collector::{MetaCollector, MetaIndex, encode_meta_index};
use crate::options::{Compression, MAX_META_BLOCK_BYTES, TableOptions};
use crate::owner::TableOwner;
use crate::properties::TableProperties;
use crate::stored_block::{BlockFramer, BlockHandle};

/// Minimum size of an append to the file, in bytes.
const APPEND_BYTES: usize = 128 << 10;

/// Writes one sstable.
///
/// ```
/// use std::path::Path;
/// use bolide_base::{EntryKind, FileIdentity, Trailer};
/// use bolide_storage::{MemVfs, Vfs};
/// use bolide_table::{BlockCache, FileSource, TableBuilder, TableOptions, TableReader};
///
/// let vfs = MemVfs::new();
/// let identity = FileIdentity { file_number: 7, tag: 1 };
/// let file = vfs.create(Path::new("000007.sst"))?;
/// let mut builder = TableBuilder::new(file, identity, &TableOptions::default(), Vec::new())?;
/// builder.add(b"apple", Trailer::new(2, EntryKind::Put), b"red")?;
/// builder.add(b"apple", Trailer::new(1, EntryKind::Put), b"green")?;
/// assert_eq!(builder.finish()?.entries, 2);
///
/// let source = FileSource::direct("000007.sst", vfs.open(Path::new("000007.sst"))?);
/// let table = TableReader::open(source, identity, BlockCache::new(1 << 20))?;
/// let (trailer, value) = table.get(b"apple", 9)?.expect("it was just written");
/// assert_eq!((trailer.sequence(), &*value), (2, &b"red"[..]));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub struct TableBuilder {
    file: Arc<dyn File>,
    identity: FileIdentity,
    options: TableOptions,
    collectors: Vec<Box<dyn MetaCollector>>,
    block: BlockBuilder,
    payload: Vec<u8>,
    framer: BlockFramer,
    /// Framed bytes that were not appended yet; the first one lies at `appended_bytes` of the file.
    pending: Vec<u8>,
    appended_bytes: u64,
    index: IndexBuilder,
    hashes: Vec<u64>,
    last_sequence: SequenceNumber,
    properties: TableProperties,
    /// Attachments of the collectors for the manifest.
    attachment: Vec<u8>,
}

impl TableBuilder {
    /// Starts an sstable in `file`, which must be empty. Writes nothing yet.
    pub fn new(
        file: Arc<dyn File>,
        identity: FileIdentity,
        options: &TableOptions,
        mut collectors: Vec<Box<dyn MetaCollector>>,
    ) -> Result<Self> {
        let options = options.clamped();
        if options.key_counts {
            collectors.push(Box::new(KeyCountCollector::default()));
        }
        let properties = TableProperties {
            compression: options.compression,
            bloom_bits_per_key: options.bloom_bits_per_key,
            ..TableProperties::default()
        };
        Ok(Self {
            file,
            identity,
            framer: BlockFramer::new(options.compression)?,
            index: IndexBuilder::new(options.index_partition_bytes),
            options,
            collectors,
            block: BlockBuilder::default(),
            payload: Vec::new(),
            pending: encode_header(&identity),
            appended_bytes: 0,
            hashes: Vec::new(),
            last_sequence: 0,
            properties,
            attachment: Vec::new(),
        })
    }

    /// Stores the tree that the file is written for.
    #[must_use]
    pub fn owner(mut self, owner: TableOwner) -> Self {
        self.properties.owner = Some(owner);
        self
    }

    /// Adds an entry. Entries are added in tree order: user keys ascend, and the sequence numbers of one key
    /// descend.
    ///
    /// Fails with [`ErrorKind::Internal`](bolide_base::ErrorKind::Internal) if the order is violated
    /// and with [`ErrorKind::LimitExceeded`](bolide_base::ErrorKind::LimitExceeded) if the key or the
    /// value is too long; the builder is unchanged then. After an error of the file it is unusable.
    #[inline]
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let first = self.properties.entries == 0;
        let new_key = first || self.check_order(key, trailer)?;
        if key.len() > MAX_TREE_KEY_BYTES || value.len() > MAX_VALUE_BYTES || trailer.kind().is_none() {
            return Err(over_limit(key, trailer, value));
        }
        if trailer.sequence() > MAX_SEQUENCE {
            return Err(Error::limit_exceeded("a sequence number", trailer.sequence(), MAX_SEQUENCE));
        }
        if !self.block.is_empty() && self.block.would_exceed(self.options.block_bytes, key, value.len()) {
            let separator_len = shared_prefix_len(self.block.last_key(), key) + 1;
            self.finish_block()?;
            self.index.start_child(match key.get(..separator_len) {
                Some(shortest) => Separator { key: shortest, sequence: None },
                None => Separator { key, sequence: Some(trailer.sequence()) },
            });
        }
        if new_key && self.options.bloom_bits_per_key > 0 {
            self.hashes.push(hash_key(key));
        }
        for collector in &mut self.collectors {
            collector.add(key, trailer, value, self.properties.data_blocks);
        }
        self.block.add(key, trailer, value);
        self.last_sequence = trailer.sequence();
        self.properties.count(key, trailer, value, new_key);
        Ok(())
    }

    /// Whether `key` differs from the last key; an error if the entry does not sort after the last one. The current block
    /// is never empty here: it is emptied only by an entry that is added to the next block.
    #[inline]
    fn check_order(&self, key: &[u8], trailer: Trailer) -> Result<bool> {
        match self.block.last_key().cmp(key) {
            Ordering::Less => Ok(true),
            Ordering::Equal if trailer.sequence() < self.last_sequence => Ok(false),
            _ => Err(Error::internal(format!(
                "sstable {}: entry \"{}\" {trailer:?} was added out of order",
                self.identity.file_number,
                key.escape_ascii()
            ))),
        }
    }

    /// The estimated length of the file if it were finished now, in bytes.
    pub fn estimated_bytes(&self) -> u64 {
        let filter = self.hashes.len() as u64 * u64::from(self.options.bloom_bits_per_key) / 8;
        self.offset()
            + self.block.staged_bytes() as u64
            + filter
            + self.index.estimated_bytes() as u64
            + FOOTER_BYTES as u64
    }

    /// The number of entries added.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The last added user key; empty before the first.
    pub fn last_key(&self) -> &[u8] {
        self.block.last_key()
    }

    /// Approximate memory of the builder, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.pending.capacity()
            + self.payload.capacity()
            + self.block.staged_bytes()
            + 8 * self.hashes.capacity()
            + self.index.estimated_bytes()
    }

    /// The offset of the next framed byte.
    fn offset(&self) -> u64 {
        self.appended_bytes + self.pending.len() as u64
    }

    fn finish_block(&mut self) -> Result<()> {
        self.block.finish(&mut self.payload);
        let offset = self.offset();
        let handle = self.framer.frame(&self.identity, offset, &self.payload, &mut self.pending)?;
        self.index.finish_child(handle);
        self.properties.data_blocks += 1;
        for collector in &mut self.collectors {
            collector.finish_block(handle);
        }
        if self.pending.len() >= APPEND_BYTES { self.append() } else { Ok(()) }
    }

    fn append(&mut self) -> Result<()> {
        self.file.append(&self.pending)?;
        self.appended_bytes += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes one block that is not a data block.
    fn write_block(&mut self, payload: &[u8], framer: Option<&mut BlockFramer>) -> Result<BlockHandle> {
        let offset = self.offset();
        let framer = framer.unwrap_or(&mut self.framer);
        let handle = framer.frame(&self.identity, offset, payload, &mut self.pending)?;
        if self.pending.len() >= APPEND_BYTES {
            self.append()?;
        }
        Ok(handle)
    }

    /// Writes the rest of the file and syncs it. The caller syncs the directory.
    ///
    /// A table without entries is valid. After an error the file must be removed.
    pub fn finish(self) -> Result<TableProperties> {
        self.finish_attached().map(|(properties, _)| properties)
    }

    /// As [`finish`](Self::finish). Also returns the concatenated [attachments](MetaCollector::attachment) of the
    /// collectors.
    pub fn finish_attached(mut self) -> Result<(TableProperties, Vec<u8>)> {
        self.properties.largest_key = self.block.last_key().to_vec();
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        let data_end = self.offset();
        self.properties.data_bytes = data_end - HEADER_BYTES as u64;
        let meta_index = self.write_meta_blocks()?;
        self.properties.meta_bytes = self.offset() - data_end;
        let filter = self.write_filter()?;
        let index = self.write_index()?;
        let meta_index = self.write_block(&encode_meta_index(&meta_index), None)?;
        let properties = self.write_block(&self.properties.encode(), None)?;
        let file_bytes = self.offset() + FOOTER_BYTES as u64;
        self.properties.file_bytes = file_bytes;
        let footer = Footer { properties, meta_index, filter, index, data_end, file_bytes };
        self.pending.extend_from_slice(&footer.encode(&self.identity));
        self.append()?;
        self.file.sync()?;
        Ok((self.properties, self.attachment))
    }

    fn write_meta_blocks(&mut self) -> Result<MetaIndex> {
        let mut index = MetaIndex::new();
        for mut collector in std::mem::take(&mut self.collectors) {
            for (name, bytes) in collector.finish()? {
                if name.len() > MAX_NAME_BYTES {
                    let limit = MAX_NAME_BYTES as u64;
                    return Err(Error::limit_exceeded("the name of a meta block", name.len() as u64, limit));
                }
                if bytes.len() > MAX_META_BLOCK_BYTES {
                    let (len, limit) = (bytes.len() as u64, MAX_META_BLOCK_BYTES as u64);
                    return Err(Error::limit_exceeded(format!("meta block \"{name}\""), len, limit));
                }
                let handle = self.write_block(&bytes, None)?;
                index.push((name, handle));
            }
            self.attachment.append(&mut collector.attachment());
        }
        index.sort_by(|left, right| left.0.cmp(&right.0));
        match index.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(Error::internal(format!("two meta blocks are named \"{}\"", pair[0].0))),
            None => Ok(index),
        }
    }

    fn write_filter(&mut self) -> Result<Option<BlockHandle>> {
        let hashes = std::mem::take(&mut self.hashes);
        let Some(filter) = BloomFilter::build(&hashes, self.options.bloom_bits_per_key) else {
            return Ok(None);
        };
        drop(hashes);
        // The bits are close to random, so compression would not reduce them.
        let mut uncompressed = BlockFramer::new(Compression::None)?;
        let start = self.offset();
        let handle = self.write_block(&filter.encode(), Some(&mut uncompressed))?;
        self.properties.filter_bytes = self.offset() - start;
        Ok(Some(handle))
    }

    fn write_index(&mut self) -> Result<Option<(BlockHandle, IndexLevelCount)>> {
        let start = self.offset();
        let (partitions, last) = self.index.take();
        if partitions.is_empty() && last.is_empty() {
            return Ok(None);
        }
        let index = if partitions.is_empty() {
            (self.write_block(&last.finish(), None)?, IndexLevelCount::One)
        } else {
            let mut top = IndexBlockBuilder::new(IndexLevel::Top, 0);
            for partition in &partitions {
                let handle = self.write_block(&partition.payload, None)?;
                top.add(partition.separator(), handle, partition.data_blocks);
            }
            self.properties.index_partitions = partitions.len() as u64;
            (self.write_block(&top.finish(), None)?, IndexLevelCount::Two)
        };
        self.properties.index_bytes = self.offset() - start;
        Ok(Some(index))
    }
}

#[cold]
fn over_limit(key: &[u8], trailer: Trailer, value: &[u8]) -> Error {
    if key.len() > MAX_TREE_KEY_BYTES {
        Error::limit_exceeded("the length of a key", key.len() as u64, MAX_TREE_KEY_BYTES as u64)
    } else if value.len() > MAX_VALUE_BYTES {
        Error::limit_exceeded("the length of a value", value.len() as u64, MAX_VALUE_BYTES as u64)
    } else {
        Error::internal(format!("an entry has the unknown kind {trailer:?}"))
    }
}

/// Collects the index; full partitions are encoded immediately.
struct IndexBuilder {
    partition_bytes: usize,
    partitions: Vec<FinishedPartition>,
    current: IndexBlockBuilder,
    /// The separator before the current data block.
    separator_key: Vec<u8>,
    separator_sequence: Option<SequenceNumber>,
    /// The separator before the current partition.
    partition_separator: (Vec<u8>, Option<SequenceNumber>),
    data_blocks: u64,
    finished_bytes: usize,
}

struct FinishedPartition {
    separator: (Vec<u8>, Option<SequenceNumber>),
    payload: Vec<u8>,
    data_blocks: u64,
}

impl FinishedPartition {
    fn separator(&self) -> Separator<'_> {
        Separator { key: &self.separator.0, sequence: self.separator.1 }
    }
}

impl IndexBuilder {
    fn new(partition_bytes: usize) -> Self {
        Self {
            partition_bytes,
            partitions: Vec::new(),
            current: IndexBlockBuilder::new(IndexLevel::Leaf, 0),
            separator_key: Vec::new(),
            separator_sequence: None,
            partition_separator: (Vec::new(), None),
            data_blocks: 0,
            finished_bytes: 0,
        }
    }

    /// Sets the separator before the next data block.
    fn start_child(&mut self, separator: Separator<'_>) {
        self.separator_key.clear();
        self.separator_key.extend_from_slice(separator.key);
        self.separator_sequence = separator.sequence;
    }

    /// Adds the completed data block.
    fn finish_child(&mut self, handle: BlockHandle) {
        if self.current.estimated_bytes() + self.separator_key.len() > self.partition_bytes
            && !self.current.is_empty()
        {
            self.finish_partition();
        }
        if self.current.is_empty() {
            self.partition_separator = (self.separator_key.clone(), self.separator_sequence);
        }
        let separator = Separator { key: &self.separator_key, sequence: self.separator_sequence };
        self.current.add(separator, handle, 1);
        self.data_blocks += 1;
    }

    fn finish_partition(&mut self) {
        let next = IndexBlockBuilder::new(IndexLevel::Leaf, self.data_blocks);
        let current = std::mem::replace(&mut self.current, next);
        let payload = current.finish();
        self.finished_bytes += payload.len();
        let separator = std::mem::take(&mut self.partition_separator);
        self.partitions.push(FinishedPartition { separator, payload, data_blocks: current.data_blocks() });
    }

    fn estimated_bytes(&self) -> usize {
        self.finished_bytes + self.current.estimated_bytes()
    }

    /// All partitions and, if there are none, the only index block.
    fn take(&mut self) -> (Vec<FinishedPartition>, IndexBlockBuilder) {
        if !self.partitions.is_empty() && !self.current.is_empty() {
            self.finish_partition();
        }
        let last = IndexBlockBuilder::new(IndexLevel::Leaf, self.data_blocks);
        (std::mem::take(&mut self.partitions), std::mem::replace(&mut self.current, last))
    }
}
