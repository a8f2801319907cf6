//! Collects the meta blocks of all embedded indexes of a collection while one of its sstables is written
//! (LevelDB++ §3).
//!
//! Each record is looked into once, whatever the number of indexes. Nothing that a record holds makes the
//! sstable fail: where its attributes cannot be found, or are too many, its block is marked as one that has to
//! be read for every question.

use std::sync::Arc;

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::CollectorFactory;
use bolide_table::{BlockHandle, MAX_META_BLOCK_BYTES, MetaCollector};

use super::EmbeddedIndex;
use super::meta_block::{self, PartBuilder};
use super::secondary_keys::SecondaryKeys;
use super::summary::SummaryWriter;
use super::{filter, slots_in};
use crate::attribute_plan::{AttributePlan, AttributeValues, Slot};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;

/// Longest filter of one block and of one sstable, in bytes.
const MAX_FILTER_BYTES: usize = 16 << 20;

/// Makes the collectors of a collection's sstables.
#[derive(Debug)]
pub struct EmbeddedCollectors {
    plan: Arc<Plan>,
}

/// What to collect.
#[derive(Debug)]
struct Plan {
    extractor: Arc<dyn AttributeExtractor>,
    /// The attributes of all indexes.
    attributes: AttributePlan,
    members: Vec<Member>,
}

/// One index.
#[derive(Debug)]
struct Member {
    id: TreeId,
    bits: u32,
    slots: Vec<Slot>,
}

impl EmbeddedCollectors {
    /// Collectors for `indexes`, whose records `extractor` looks into.
    pub fn new<'i>(
        extractor: Arc<dyn AttributeExtractor>,
        indexes: impl IntoIterator<Item = &'i EmbeddedIndex>,
    ) -> Self {
        let indexes: Vec<(TreeId, u32, &[AttributePath])> = indexes
            .into_iter()
            .map(|index| (index.id, index.spec.bloom_bits(), index.spec.attributes()))
            .collect();
        Self::of(extractor, &indexes)
    }

    /// Collectors for indexes given by their number, bits of filter and attributes.
    pub(super) fn of(
        extractor: Arc<dyn AttributeExtractor>,
        indexes: &[(TreeId, u32, &[AttributePath])],
    ) -> Self {
        let paths = indexes.iter().flat_map(|(_, _, attributes)| attributes.iter().cloned());
        let attributes = AttributePlan::new(paths);
        let members = indexes
            .iter()
            .map(|&(id, bits, paths)| Member { id, bits, slots: slots_in(&attributes, paths) })
            .collect();
        Self { plan: Arc::new(Plan { extractor, attributes, members }) }
    }

    /// A collector for one sstable.
    pub(super) fn collector(&self) -> EmbeddedCollector {
        EmbeddedCollector {
            collected: self.plan.members.iter().map(|_| Collected::default()).collect(),
            plan: self.plan.clone(),
            values: AttributeValues::new(),
            key: Vec::new(),
            largest: Vec::new(),
            summaries: SummaryWriter::default(),
        }
    }
}

impl CollectorFactory for EmbeddedCollectors {
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>> {
        vec![Box::new(self.collector())]
    }
}

/// What was collected for one index.
#[derive(Default)]
struct Collected {
    whole: PartBuilder,
    current: PartBuilder,
    /// The encoded parts of the blocks that are complete.
    parts: Vec<u8>,
    blocks: u64,
}

/// Collects for one sstable.
pub(super) struct EmbeddedCollector {
    plan: Arc<Plan>,
    collected: Vec<Collected>,
    values: AttributeValues,
    /// Scratch memory.
    key: Vec<u8>,
    largest: Vec<u8>,
    summaries: SummaryWriter,
}

impl EmbeddedCollector {
    fn add_record(&mut self, sequence: SequenceNumber, record: &[u8]) {
        let plan = &*self.plan;
        let found = plan.extractor.extract(record, &plan.attributes, &mut self.values);
        for (member, collected) in plan.members.iter().zip(&mut self.collected) {
            let keys = SecondaryKeys { values: &self.values, slots: &member.slots };
            let count = keys.count();
            if found.is_err() || count > MAX_INDEXED_ELEMENTS {
                collected.current.add_opaque(sequence);
                continue;
            }
            if count == 0 {
                continue;
            }
            keys.write_smallest(&mut self.key);
            keys.write_largest(&mut self.largest);
            collected.current.add_record(sequence, &self.key, &self.largest);
            for ordinal in 0..count {
                keys.write(ordinal, &mut self.key);
                collected.current.add_hash(filter::hash(&self.key));
            }
            if member.slots.len() > 1 {
                for value in keys.first_values() {
                    collected.current.add_hash(filter::hash(value));
                }
            }
        }
    }
}

impl MetaCollector for EmbeddedCollector {
    fn add(&mut self, _key: &[u8], trailer: Trailer, value: &[u8], _block: u64) {
        match trailer.kind() {
            Some(EntryKind::Put) => self.add_record(trailer.sequence(), value),
            Some(EntryKind::Delete) => {}
            // What merging would make of it is not known here.
            _ => {
                for collected in &mut self.collected {
                    collected.current.add_opaque(trailer.sequence());
                }
            }
        }
    }

    fn finish_block(&mut self, _handle: BlockHandle) {
        for (member, collected) in self.plan.members.iter().zip(&mut self.collected) {
            collected.whole.merge(&collected.current);
            collected.current.finish(member.bits, MAX_FILTER_BYTES, &mut collected.parts);
            collected.blocks += 1;
        }
    }

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut blocks = Vec::new();
        for (member, collected) in self.plan.members.iter().zip(&mut self.collected) {
            let (zone, is_empty) = (collected.whole.zone_to_keep(), collected.whole.is_empty());
            let mut whole = Vec::new();
            collected.whole.finish(member.bits, MAX_FILTER_BYTES, &mut whole);
            let bytes = meta_block::encode(member.bits, collected.blocks, &whole, &collected.parts);
            // One that is too large is left out: the sstable is then read as one without the index.
            if bytes.len() <= MAX_META_BLOCK_BYTES {
                self.summaries.add(member.id, bytes.len(), zone, is_empty);
                blocks.push((meta_block::name(member.id), bytes));
            }
        }
        Ok(blocks)
    }

    fn attachment(&mut self) -> Vec<u8> {
        self.summaries.finish()
    }
}
