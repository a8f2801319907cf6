//! Collects the meta blocks of all indexes that lie in the sstables of a collection while one of these is written.
//!
//! Each record is looked into once, whatever the number of indexes. Nothing that a record holds makes the
//! sstable fail: where its attributes cannot be found, or are too many, the indexes are told so.

use std::fmt;
use std::sync::Arc;

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_lsm::CollectorFactory;
use bolide_table::{BlockHandle, MetaCollector};

use super::secondary_keys::SecondaryKeys;
use super::slots_in;
use super::summary::SummaryWriter;
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;

/// An index as far as sstables have to carry it.
pub trait SstableIndex: Send + Sync + fmt::Debug {
    /// Its attributes.
    fn attributes(&self) -> &[AttributePath];

    /// What collects for it while one sstable is written.
    fn collector(&self) -> Box<dyn SstableCollector>;
}

/// Collects the blocks of one index of one sstable.
///
/// Calls come in the order of the file: `add` for each version with a value of a data block, `finish_block` when that is complete,
/// once `finish`.
pub trait SstableCollector: Send {
    /// A version of a record.
    fn add(&mut self, version: &Version<'_>);

    /// The data block is complete and lies at `handle`.
    fn finish_block(&mut self, handle: BlockHandle);

    /// Adds the meta blocks to `blocks`, each under its name, and what the manifest is to say of them to `summaries`;
    /// nothing to either where the sstable is to be read as one without the index.
    fn finish(&mut self, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries);
}

/// What the manifest is to say.
#[derive(Debug, Default)]
pub struct Summaries(pub(crate) SummaryWriter);

/// A version of a record in an sstable that is being written.
pub struct Version<'r> {
    /// The number of its write.
    pub(crate) sequence: SequenceNumber,
    /// Its data block, counted from 0.
    pub(crate) block: u64,
    /// Its place among the entries of the block, from 0.
    pub(crate) entry: u32,
    pub(crate) keys: Keys<'r>,
}

/// What is known of the secondary keys of a version.
pub(crate) enum Keys<'r> {
    /// They are these.
    Known(SecondaryKeys<'r>),
    /// The record cannot be looked into, or has too many.
    Opaque,
    /// It is an operand: what merging will make of it is not known.
    Unmerged,
}

/// Makes the collectors of a collection's sstables.
#[derive(Debug)]
pub struct TableCollectors {
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
    index: Arc<dyn SstableIndex>,
    slots: Vec<ValueSlot>,
}

impl TableCollectors {
    /// Collectors for `indexes`, whose records `extractor` looks into.
    pub fn new(
        extractor: Arc<dyn AttributeExtractor>,
        indexes: impl IntoIterator<Item = Arc<dyn SstableIndex>>,
    ) -> Self {
        let indexes: Vec<_> = indexes.into_iter().collect();
        let attributes =
            AttributePlan::new(indexes.iter().flat_map(|index| index.attributes().iter().cloned()));
        let slots = |index: &Arc<dyn SstableIndex>| slots_in(&attributes, index.attributes());
        let members = indexes.into_iter().map(|index| Member { slots: slots(&index), index }).collect();
        Self { plan: Arc::new(Plan { extractor, attributes, members }) }
    }

    /// A collector for one sstable.
    pub(crate) fn collector(&self) -> TableCollector {
        TableCollector {
            collectors: self.plan.members.iter().map(|member| member.index.collector()).collect(),
            plan: self.plan.clone(),
            values: AttributeValues::new(),
            entry: 0,
            summaries: Summaries::default(),
            failed: false,
        }
    }
}

impl CollectorFactory for TableCollectors {
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>> {
        vec![Box::new(self.collector())]
    }
}

/// Collects for one sstable.
pub(crate) struct TableCollector {
    plan: Arc<Plan>,
    collectors: Vec<Box<dyn SstableCollector>>,
    values: AttributeValues,
    /// Entries of the current data block so far.
    entry: u32,
    summaries: Summaries,
    /// The extractor panicked: the sstable gets no blocks, and is read whole.
    failed: bool,
}

impl MetaCollector for TableCollector {
    fn add(&mut self, _key: &[u8], trailer: Trailer, value: &[u8], block: u64) {
        let (entry, sequence) = (self.entry, trailer.sequence());
        self.entry += 1;
        let plan = &*self.plan;
        let is_put = match trailer.kind() {
            Some(EntryKind::Delete) => return,
            kind => kind == Some(EntryKind::Put),
        };
        let found = is_put.then(|| plan.extractor.extract(value, &plan.attributes, &mut self.values));
        let is_found = matches!(found, Some(Ok(())));
        // Not for what is in the record: the same extractor may find its values the next time.
        self.failed |= matches!(found, Some(Err(error)) if error.kind() == ErrorKind::Internal);
        for (member, collector) in plan.members.iter().zip(&mut self.collectors) {
            let keys = SecondaryKeys { values: &self.values, slots: &member.slots };
            let keys = match (is_put, is_found) {
                (false, _) => Keys::Unmerged,
                (true, true) if keys.count() <= MAX_INDEXED_ELEMENTS => Keys::Known(keys),
                _ => Keys::Opaque,
            };
            collector.add(&Version { sequence, block, entry, keys });
        }
    }

    fn finish_block(&mut self, handle: BlockHandle) {
        self.entry = 0;
        self.collectors.iter_mut().for_each(|collector| collector.finish_block(handle));
    }

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut blocks = Vec::new();
        if self.failed {
            return Ok(blocks);
        }
        for collector in &mut self.collectors {
            collector.finish(&mut blocks, &mut self.summaries);
        }
        Ok(blocks)
    }

    fn attachment(&mut self) -> Vec<u8> {
        self.summaries.0.finish()
    }
}
