//! Collects the meta block of an embedded index while an sstable is written (LevelDB++ §3).
//!
//! If the attributes of a record cannot be extracted, or there are too many, its block is marked as one that every query
//! reads.

use bolide_base::TreeId;
use bolide_table::{BlockHandle, MAX_META_BLOCK_BYTES};

use super::filter;
use super::meta_block::{self, PartBuilder};
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::collector::{RecordVersion, SstableCollector, SstableIndex, Summaries, VersionKeys};
use crate::path::AttributePath;

/// Maximum bytes of the filter of a block and of an sstable.
const MAX_FILTER_BYTES: usize = 16 << 20;

/// The part of an embedded index that sstables store.
#[derive(Debug)]
pub(super) struct EmbeddedSstableIndex {
    id: TreeId,
    bits: u32,
    attributes: Vec<AttributePath>,
}

impl EmbeddedSstableIndex {
    /// The part of `index` as declared.
    pub(super) fn new(index: &SstableIndexBase) -> Self {
        Self::with_bits(index, index.spec.bloom_bits())
    }

    /// The part of `index` with this number of filter bits per value.
    pub(super) fn with_bits(index: &SstableIndexBase, bits: u32) -> Self {
        Self { id: index.id, bits, attributes: index.spec.attributes().to_vec() }
    }
}

impl SstableIndex for EmbeddedSstableIndex {
    fn attributes(&self) -> &[AttributePath] {
        &self.attributes
    }

    fn collector(&self) -> Box<dyn SstableCollector> {
        Box::new(EmbeddedCollector {
            id: self.id,
            bits: self.bits,
            whole: PartBuilder::default(),
            current: PartBuilder::default(),
            parts: Vec::new(),
            blocks: 0,
            key: Vec::new(),
            largest: Vec::new(),
        })
    }
}

/// Collects the parts of one sstable.
struct EmbeddedCollector {
    id: TreeId,
    bits: u32,
    whole: PartBuilder,
    current: PartBuilder,
    /// The encoded parts of the completed blocks.
    parts: Vec<u8>,
    blocks: u64,
    /// Scratch buffers.
    key: Vec<u8>,
    largest: Vec<u8>,
}

impl SstableCollector for EmbeddedCollector {
    fn add(&mut self, version: &RecordVersion<'_>) {
        let sequence = version.sequence;
        let VersionKeys::Known(keys) = &version.keys else { return self.current.add_opaque(sequence) };
        let count = keys.count();
        if count == 0 {
            return;
        }
        keys.write_smallest(&mut self.key);
        keys.write_largest(&mut self.largest);
        self.current.add_record(sequence, &self.key, &self.largest);
        for ordinal in 0..count {
            keys.write(ordinal, &mut self.key);
            self.current.add_hash(filter::hash(&self.key));
        }
        if keys.slots.len() > 1 {
            for value in keys.first_values() {
                self.current.add_hash(filter::hash(value));
            }
        }
    }

    fn finish_block(&mut self, _handle: BlockHandle) {
        self.whole.merge(&self.current);
        self.current.finish(self.bits, MAX_FILTER_BYTES, &mut self.parts);
        self.blocks += 1;
    }

    fn finish(&mut self, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries) {
        let (zone, is_empty) = (self.whole.owned_zone(), self.whole.is_empty());
        let mut whole = Vec::new();
        self.whole.finish(self.bits, MAX_FILTER_BYTES, &mut whole);
        let bytes = meta_block::encode(self.bits, self.blocks, &whole, &self.parts);
        // Without a block that is too large, the sstable is read as one without the index.
        if bytes.len() <= MAX_META_BLOCK_BYTES {
            summaries.0.add(self.id, bytes.len(), zone, is_empty);
            blocks.push((meta_block::name(self.id), bytes));
        }
    }
}
