//! Collects the index blocks of an sstable while it is written (NEXT, Algorithm 1).
//!
//! The secondary keys of all versions are buffered. After the last data block they are sorted and packed into index blocks,
//! including the last, partial one, which the paper's algorithm omits.

use bolide_base::TreeId;
use bolide_table::{BlockHandle, MAX_META_BLOCK_BYTES};

use super::directory::{self, DirectoryBuilder};
use super::key_block::{KeyBlockBuilder, VersionEntry};
use super::key_filter::FilterBuilder;
use super::secondary_key_sort::BufferedKeys;
use crate::attribute;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::collector::{RecordVersion, SstableCollector, SstableIndex, Summaries, VersionKeys};
use crate::in_sstable::secondary_keys::SecondaryKeys;
use crate::in_sstable::zone_bounds::{lower_bound, upper_bound};
use crate::path::AttributePath;
use crate::space::packer;
use crate::space::rect_block::RectEntry;
use crate::spec::GlobalIndexUse;

/// The settings of an index that the writing of sstables needs.
#[derive(Debug)]
pub(super) struct NextTableIndex {
    id: TreeId,
    delta: Option<f64>,
    block_bytes: usize,
    attributes: Vec<AttributePath>,
    /// Sstables get a filter over the keys.
    has_filter: bool,
}

impl NextTableIndex {
    pub(super) fn new(index: &SstableIndexBase) -> Self {
        let spec = &index.spec;
        let (delta, block_bytes) = (spec.delta(), spec.block_bytes() as usize);
        let has_filter = spec.global() != GlobalIndexUse::Off;
        Self { id: index.id, delta, block_bytes, attributes: spec.attributes().to_vec(), has_filter }
    }
}

impl SstableIndex for NextTableIndex {
    fn attributes(&self) -> &[AttributePath] {
        &self.attributes
    }

    fn collector(&self) -> Box<dyn SstableCollector> {
        Box::new(NextCollector {
            id: self.id,
            delta: self.delta,
            block_bytes: self.block_bytes,
            is_spatial: self.attributes.first().is_some_and(AttributePath::is_spatial),
            keys: BufferedKeys::default(),
            data_blocks: 0,
            data_bytes: self.has_filter.then_some(0),
            is_abandoned: false,
            key: Vec::new(),
        })
    }
}

/// Collects the secondary keys of one sstable.
struct NextCollector {
    id: TreeId,
    delta: Option<f64>,
    block_bytes: usize,
    /// Keys are rectangles.
    is_spatial: bool,
    keys: BufferedKeys,
    data_blocks: u64,
    /// Bytes of the data blocks in the file; `None` if there is no filter.
    data_bytes: Option<u64>,
    /// The sstable gets no index blocks: queries scan it.
    is_abandoned: bool,
    /// Scratch memory.
    key: Vec<u8>,
}

impl NextCollector {
    fn add_key(&mut self, key: &[u8], entry: VersionEntry) {
        if !self.keys.add(key, entry) {
            self.abandon();
        }
    }

    fn add_keys(&mut self, keys: &SecondaryKeys<'_>, entry: VersionEntry) {
        let count = keys.count();
        let mut key = std::mem::take(&mut self.key);
        for ordinal in 0..count {
            keys.write(ordinal, &mut key);
            self.add_key(&key, VersionEntry { repeated: count > 1, ..entry });
        }
        self.key = key;
    }

    /// Packs rectangles.
    fn finish_rects(
        &self,
        keys: &BufferedKeys,
        blocks: &mut Vec<(String, Vec<u8>)>,
        summaries: &mut Summaries,
    ) {
        let (mut entries, mut opaque) = (Vec::with_capacity(keys.len()), Vec::new());
        for (key, VersionEntry { sequence, block, entry, repeated }) in keys.iter() {
            let rect = attribute::decode_rect(key);
            let target = if rect.is_some() { &mut entries } else { &mut opaque };
            target.push(RectEntry { rect: rect.unwrap_or_default(), sequence, block, entry, repeated });
        }
        let packed = packer::pack(entries, opaque, self.block_bytes, self.delta, self.data_blocks);
        let named =
            (0..).zip(packed.blocks).map(|(number, bytes)| (directory::block_name(self.id, number), bytes));
        let written: Vec<_> = named.chain([(directory::name(self.id), packed.directory)]).collect();
        if written.iter().all(|(_, bytes)| bytes.len() <= MAX_META_BLOCK_BYTES) {
            let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
            summaries.0.add(self.id, bytes, None, keys.len() == 0);
            blocks.extend(written);
        }
    }

    /// Stops collecting and frees the buffered keys.
    fn abandon(&mut self) {
        self.is_abandoned = true;
        self.keys = BufferedKeys::default();
    }
}

impl SstableCollector for NextCollector {
    fn add(&mut self, version: &RecordVersion<'_>) {
        if self.is_abandoned {
            return;
        }
        let Ok(block) = u32::try_from(version.block) else { return self.abandon() };
        let entry = VersionEntry { sequence: version.sequence, block, entry: version.entry, repeated: false };
        match &version.keys {
            VersionKeys::Known(keys) => match keys.only() {
                Some(key) => self.add_key(key, entry),
                None => self.add_keys(keys, entry),
            },
            VersionKeys::Opaque => self.add_key(&[], entry),
            VersionKeys::Unmerged => self.abandon(),
        }
    }

    fn finish_block(&mut self, handle: BlockHandle) {
        self.data_blocks += 1;
        if let Some(bytes) = &mut self.data_bytes {
            *bytes += u64::from(handle.bytes);
        }
    }

    fn finish(&mut self, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries) {
        if self.is_abandoned {
            return;
        }
        let mut keys = std::mem::take(&mut self.keys);
        if self.is_spatial {
            return self.finish_rects(&keys, blocks, summaries);
        }
        let is_empty = keys.len() == 0;
        let mut packer = IndexBlockPacker::new(self.id, self.delta, self.block_bytes);
        let mut filter = FilterBuilder::default();
        let mut bounds: Option<[&[u8]; 2]> = None;
        keys.visit_sorted(|key, is_new_key, entry| {
            packer.add(key, is_new_key, entry);
            if is_new_key {
                filter.add(key);
                bounds = Some([bounds.map_or(key, |[first, _]| first), key]);
            }
        });
        // The empty key, that of opaque records, sorts first.
        let bounds = bounds.filter(|[first, _]| !first.is_empty());
        let zone = bounds.map(|[first, last]| (lower_bound(first).to_vec(), upper_bound(last)));
        let Some(mut written) = packer.finish(self.data_blocks) else { return };
        let filter = self.data_bytes.and_then(|bytes| filter.finish(bytes));
        let filter = filter.filter(|filter| filter.len() <= MAX_META_BLOCK_BYTES);
        written.extend(filter.map(|filter| (directory::filter_name(self.id), filter)));
        let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
        summaries.0.add(self.id, bytes, zone, is_empty);
        blocks.extend(written);
    }
}

/// Packs sorted entries into index blocks of keys.
struct IndexBlockPacker {
    id: TreeId,
    delta: Option<f64>,
    blocks: Vec<(String, Vec<u8>)>,
    directory: DirectoryBuilder,
    current: KeyBlockBuilder,
    /// Target length of a block.
    block_bytes: usize,
    /// Estimated bytes at which a block has that length.
    full_bytes: usize,
}

impl IndexBlockPacker {
    fn new(id: TreeId, delta: Option<f64>, block_bytes: usize) -> Self {
        let (blocks, directory) = (Vec::new(), DirectoryBuilder::default());
        let current = KeyBlockBuilder::default();
        Self { id, delta, blocks, directory, current, block_bytes, full_bytes: block_bytes }
    }

    /// Adds an entry of the previous key, or of a larger one if `is_new_key`. Opaque records get blocks of their own.
    fn add(&mut self, key: &[u8], is_new_key: bool, entry: VersionEntry) {
        let ends_opaque =
            is_new_key && self.current.keys() > 0 && self.current.key(0).is_empty() != key.is_empty();
        if ends_opaque || self.current.estimated_bytes() >= self.full_bytes {
            self.finish_block();
        }
        match is_new_key {
            true => self.current.add(key, entry),
            false => self.current.add_to_last(key, entry),
        }
    }

    fn finish_block(&mut self) {
        if self.current.keys() == 0 {
            return;
        }
        let estimated = self.current.estimated_bytes();
        self.directory.add(&self.current, self.delta);
        let bytes = self.current.finish();
        // The estimate does not include common prefixes and suffixes, which the next block is likely to share.
        let target = self.block_bytes;
        self.full_bytes = (estimated * target / bytes.len().max(1)).clamp(target / 2, 4 * target);
        self.blocks.push((directory::block_name(self.id, self.blocks.len()), bytes));
    }

    /// All meta blocks; `None` if one is too long.
    fn finish(mut self, data_blocks: u64) -> Option<Vec<(String, Vec<u8>)>> {
        self.finish_block();
        let directory = self.directory.finish(data_blocks);
        self.blocks.push((directory::name(self.id), directory));
        let fits = self.blocks.iter().all(|(_, bytes)| bytes.len() <= MAX_META_BLOCK_BYTES);
        fits.then_some(self.blocks)
    }
}
