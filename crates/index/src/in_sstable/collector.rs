//! Collects the meta blocks of all in-sstable indexes of a collection while an sstable is written.
//!
//! The attributes of each record are extracted once for all indexes. No record content makes the sstable fail: if extraction
//! fails, or yields too many values, the indexes record that.

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

/// The part of an index that sstables store.
pub trait SstableIndex: Send + Sync + fmt::Debug {
    /// Its attributes.
    fn attributes(&self) -> &[AttributePath];

    /// Creates the collector for one sstable.
    fn collector(&self) -> Box<dyn SstableCollector>;
}

/// Collects the blocks of one index of one sstable.
///
/// Calls are in the order of the file: `add` for each version with a value in a data block, `finish_block` after the block,
/// and finally `finish`.
pub trait SstableCollector: Send {
    /// Adds a version of a record.
    fn add(&mut self, version: &RecordVersion<'_>);

    /// The data block is complete and lies at `handle`.
    fn finish_block(&mut self, handle: BlockHandle);

    /// Adds the meta blocks to `blocks`, each under its name, and the index summaries to `summaries`; adds nothing to either
    /// if the sstable is to be read as one without the index.
    fn finish(&mut self, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries);
}

/// The summaries for the manifest.
#[derive(Debug, Default)]
pub struct Summaries(pub(crate) SummaryWriter);

/// A version of a record in an sstable that is being written.
pub struct RecordVersion<'r> {
    /// The sequence number of its write.
    pub(crate) sequence: SequenceNumber,
    /// Its data block, counted from 0.
    pub(crate) block: u64,
    /// Its position among the entries of the block, from 0.
    pub(crate) entry: u32,
    pub(crate) keys: VersionKeys<'r>,
}

/// The secondary keys of a version.
pub(crate) enum VersionKeys<'r> {
    /// The keys.
    Known(SecondaryKeys<'r>),
    /// The attributes cannot be extracted, or there are too many keys.
    Opaque,
    /// The version is a merge operand: its merged value is unknown.
    Unmerged,
}

/// Creates the collectors for the sstables of a collection.
#[derive(Debug)]
pub struct TableCollectors {
    plan: Arc<CollectorPlan>,
}

/// The indexes to collect for.
#[derive(Debug)]
struct CollectorPlan {
    extractor: Arc<dyn AttributeExtractor>,
    /// The attributes of all indexes.
    attributes: AttributePlan,
    indexes: Vec<CollectedIndex>,
}

/// One index.
#[derive(Debug)]
struct CollectedIndex {
    index: Arc<dyn SstableIndex>,
    slots: Vec<ValueSlot>,
}

impl TableCollectors {
    /// Collectors for `indexes`, with attributes from `extractor`.
    pub fn new(
        extractor: Arc<dyn AttributeExtractor>,
        indexes: impl IntoIterator<Item = Arc<dyn SstableIndex>>,
    ) -> Self {
        let indexes: Vec<_> = indexes.into_iter().collect();
        let attributes =
            AttributePlan::new(indexes.iter().flat_map(|index| index.attributes().iter().cloned()));
        let slots = |index: &Arc<dyn SstableIndex>| slots_in(&attributes, index.attributes());
        let indexes =
            indexes.into_iter().map(|index| CollectedIndex { slots: slots(&index), index }).collect();
        Self { plan: Arc::new(CollectorPlan { extractor, attributes, indexes }) }
    }

    /// Creates the collector for one sstable.
    pub(crate) fn collector(&self) -> TableCollector {
        TableCollector {
            collectors: self.plan.indexes.iter().map(|member| member.index.collector()).collect(),
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

/// The collector for one sstable.
pub(crate) struct TableCollector {
    plan: Arc<CollectorPlan>,
    collectors: Vec<Box<dyn SstableCollector>>,
    values: AttributeValues,
    /// Entries of the current data block so far.
    entry: u32,
    summaries: Summaries,
    /// The extractor failed: the sstable gets no blocks, and is read completely.
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
        // Not an error of the record: the same extractor may succeed the next time.
        self.failed |= matches!(found, Some(Err(error)) if error.kind() == ErrorKind::Internal);
        for (member, collector) in plan.indexes.iter().zip(&mut self.collectors) {
            let keys = SecondaryKeys { values: &self.values, slots: &member.slots };
            let keys = match (is_put, is_found) {
                (false, _) => VersionKeys::Unmerged,
                (true, true) if keys.count() <= MAX_INDEXED_ELEMENTS => VersionKeys::Known(keys),
                _ => VersionKeys::Opaque,
            };
            collector.add(&RecordVersion { sequence, block, entry, keys });
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
