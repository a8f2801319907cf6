//! An in-memory store for tests, a collection on top of it, and the expected answers by a scan.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, RwLock};

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::store::LiteVerdict;

use crate::attribute::Value;
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::check::{CheckedTable, IndexCheck};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::json::JsonExtractor;
use crate::lookup::{Lookup, LookupOptions};
use crate::query::Query;
use crate::secondary_index::{
    IndexWrites, IndexedRecord, SecondaryIndex, StagedBatch, StagedChange, slots_of,
};
use crate::source::{EntryCursor, ForwardCursor, ReadSource, TreeSource};
use crate::standalone::composite::CompositeIndex;

mod expected;

pub(crate) use self::expected::{expected_answers, expected_selected, expected_values, holds, keys};

/// The tree of the records in [`ModelCollection`].
pub(crate) const TABLE: TreeId = 1;

type ModelVersions = Vec<(SequenceNumber, Option<Vec<u8>>)>;

#[derive(Debug, Default)]
struct Data {
    trees: BTreeMap<(TreeId, Vec<u8>), ModelVersions>,
    ranges: Vec<(TreeId, Vec<u8>, Vec<u8>, SequenceNumber)>,
}

/// All versions of all keys of all trees, at one sequence number.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelView {
    data: Arc<RwLock<Data>>,
    sequence: SequenceNumber,
}

#[derive(Debug, Clone)]
pub(crate) struct ModelTree {
    view: ModelView,
    tree: TreeId,
}

impl ModelView {
    pub(crate) fn at(&self, sequence: SequenceNumber) -> Self {
        Self { data: self.data.clone(), sequence }
    }

    pub(crate) fn write(&self, tree: TreeId, key: &[u8], value: Option<&[u8]>, sequence: SequenceNumber) {
        let mut data = self.data.write().unwrap();
        let versions = data.trees.entry((tree, key.to_vec())).or_default();
        assert!(versions.iter().all(|(known, _)| *known != sequence), "one write of a key per number");
        versions.push((sequence, value.map(<[u8]>::to_vec)));
        versions.sort_by_key(|(sequence, _)| *sequence);
    }

    pub(crate) fn write_range(&self, tree: TreeId, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        self.data.write().unwrap().ranges.push((tree, start.to_vec(), end.to_vec(), sequence));
    }

    /// The number of visible keys of `tree`.
    pub(crate) fn count(&self, tree: TreeId) -> usize {
        self.tree(tree).unwrap().visible(&[], None).len()
    }
}

impl ReadSource for ModelView {
    type Tree = ModelTree;

    fn tree(&self, tree: TreeId) -> Result<ModelTree> {
        Ok(ModelTree { view: self.clone(), tree })
    }

    fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    fn oldest_in_use(&self) -> SequenceNumber {
        self.sequence
    }
}

impl ModelTree {
    /// The number of views, trees and cursors that share the data.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.view.data)
    }

    fn visible(&self, low: &[u8], end: Option<&[u8]>) -> Vec<(Vec<u8>, SequenceNumber, Vec<u8>)> {
        let data = self.view.data.read().unwrap();
        data.trees
            .range((Bound::Included((self.tree, low.to_vec())), Bound::Excluded((self.tree + 1, Vec::new()))))
            .take_while(|((_, key), _)| end.is_none_or(|end| key.as_slice() < end))
            .filter_map(|((_, key), versions)| {
                let (sequence, value) =
                    versions.iter().rev().find(|(sequence, _)| *sequence <= self.view.sequence)?;
                let covered = covered(&data, self.tree, key, *sequence, self.view.sequence);
                let value = value.clone().filter(|_| !covered)?;
                Some((key.clone(), *sequence, value))
            })
            .collect()
    }
}

fn covered(data: &Data, tree: TreeId, key: &[u8], written: SequenceNumber, view: SequenceNumber) -> bool {
    data.ranges.iter().any(|(of, start, end, sequence)| {
        *of == tree
            && start.as_slice() <= key
            && key < end.as_slice()
            && *sequence > written
            && *sequence <= view
    })
}

impl TreeSource for ModelTree {
    type Value = Vec<u8>;
    type Cursor = ModelCursor;
    type Versions = ModelCursor;

    fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, Vec<u8>)>> {
        let mut behind = key.to_vec();
        behind.push(0);
        Ok(self.visible(key, Some(&behind)).pop().map(|(_, sequence, value)| (sequence, value)))
    }

    fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>> {
        Ok(self.get(key)?.map(|(sequence, _)| sequence))
    }

    /// Decides half of all writes, as if the others were in sstables.
    fn get_lite(&self, key: &[u8], written: SequenceNumber) -> LiteVerdict {
        match self.newest_sequence(key) {
            _ if written % 2 == 1 => LiteVerdict::Unknown,
            Ok(Some(newest)) if newest == written => LiteVerdict::Current,
            _ => LiteVerdict::Obsolete,
        }
    }

    fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        covered(&self.view.data.read().unwrap(), self.tree, key, sequence, self.view.sequence)
    }

    fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        Ok(self.visible(low, end).len() as u64)
    }

    fn cursor(&self, low: &[u8], end: Option<&[u8]>) -> Result<ModelCursor> {
        Ok(ModelCursor { entries: self.visible(low, end), position: None })
    }

    fn versions(&self, low: &[u8], end: Option<&[u8]>) -> Result<ModelCursor> {
        let data = self.view.data.read().unwrap();
        let keys = data
            .trees
            .range((Bound::Included((self.tree, low.to_vec())), Bound::Excluded((self.tree + 1, Vec::new()))))
            .take_while(|((_, key), _)| end.is_none_or(|end| key.as_slice() < end));
        let mut entries = Vec::new();
        for ((_, key), versions) in keys {
            let visible = versions.iter().rev().filter(|(sequence, _)| *sequence <= self.view.sequence);
            entries.extend(visible.map(|(sequence, value)| (key.clone(), *sequence, value.clone().unwrap())));
        }
        Ok(ModelCursor { entries, position: None })
    }
}

#[derive(Debug)]
pub(crate) struct ModelCursor {
    entries: Vec<(Vec<u8>, SequenceNumber, Vec<u8>)>,
    position: Option<usize>,
}

impl ModelCursor {
    fn entry(&self) -> &(Vec<u8>, SequenceNumber, Vec<u8>) {
        &self.entries[self.position.expect("the cursor is valid")]
    }

    fn go(&mut self, position: usize) -> Result<()> {
        self.position = Some(position).filter(|position| *position < self.entries.len());
        Ok(())
    }
}

impl ForwardCursor for ModelCursor {
    fn valid(&self) -> bool {
        self.position.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.entry().0
    }

    fn value(&self) -> &[u8] {
        &self.entry().2
    }

    fn sequence(&self) -> SequenceNumber {
        self.entry().1
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.go(0)
    }

    fn next(&mut self) -> Result<()> {
        self.go(self.position.expect("the cursor is valid") + 1)
    }
}

impl EntryCursor for ModelCursor {
    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().wrapping_sub(1))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.entries.partition_point(|(entry, ..)| entry.as_slice() < key))
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.position.expect("the cursor is valid").wrapping_sub(1))
    }
}

/// A write to a [`ModelCollection`].
#[derive(Debug, Clone)]
pub(crate) enum ModelWrite {
    Put(String, String),
    Delete(String),
    DeleteRange(String, String),
}

/// Writes index entries to the model under one sequence number.
pub(crate) struct ModelWrites<'m> {
    pub(crate) view: &'m ModelView,
    pub(crate) sequence: SequenceNumber,
}

impl IndexWrites for ModelWrites<'_> {
    fn set_sequence(&mut self, sequence: SequenceNumber) {
        self.sequence = sequence;
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        let mut key = key.to_vec();
        if let Some(at) = sequence_at {
            key[at..at + 8].copy_from_slice(&(!self.sequence).to_be_bytes());
        }
        self.view.write(tree, &key, Some(value), self.sequence);
        Ok(())
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.view.write(tree, key, Some(value), self.sequence);
        Ok(())
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.view.write(tree, key, None, self.sequence);
        Ok(())
    }
}

/// A collection of JSON records with indexes, with the write path of the facade.
#[derive(Debug, Default)]
pub(crate) struct ModelCollection {
    view: ModelView,
    pub(crate) last: SequenceNumber,
    pub(crate) indexes: Vec<CompositeIndex>,
}

impl ModelCollection {
    pub(crate) fn new(specs: &[&str]) -> Self {
        let indexes = specs
            .iter()
            .enumerate()
            .map(|(position, spec)| {
                CompositeIndex::new(spec.parse().unwrap(), TABLE + 1 + position as TreeId)
            })
            .collect();
        Self { indexes, ..Self::default() }
    }

    pub(crate) fn view(&self) -> ModelView {
        self.view.at(self.last)
    }

    fn plan(&self) -> (AttributePlan, Vec<Vec<ValueSlot>>) {
        let specs = self.indexes.iter().map(SecondaryIndex::<ModelView>::spec);
        let plan = AttributePlan::new(specs.clone().flat_map(|spec| spec.paths().cloned()));
        let slots = specs.map(|spec| slots_of(spec, &plan).unwrap()).collect();
        (plan, slots)
    }

    pub(crate) fn put(&mut self, key: &str, record: &str) {
        self.write(&[ModelWrite::Put(key.to_owned(), record.to_owned())]).unwrap();
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.write(&[ModelWrite::Delete(key.to_owned())]).unwrap();
    }

    /// Commits a batch: blind entries first, then entries that depend on the previous state.
    pub(crate) fn write(&mut self, batch: &[ModelWrite]) -> Result<()> {
        let before = self.view();
        let (plan, slots) = self.plan();
        let mut values = AttributeValues::new();
        let mut scratch = Vec::new();
        for (position, write) in batch.iter().enumerate() {
            self.last += 1;
            let mut writes = ModelWrites { view: &self.view, sequence: self.last };
            let (key, record) = match write {
                ModelWrite::DeleteRange(start, end) => {
                    self.view.write_range(TABLE, start.as_bytes(), end.as_bytes(), self.last);
                    continue;
                }
                ModelWrite::Put(key, record) => (key, Some(record)),
                ModelWrite::Delete(key) => (key, None),
            };
            if let Some(record) = record {
                JsonExtractor.extract(record.as_bytes(), &plan, &mut values)?;
            }
            self.view.write(TABLE, key.as_bytes(), record.map(String::as_bytes), self.last);
            let is_last = !batch[position + 1..].iter().any(|later| {
                matches!(later, ModelWrite::Put(other, _) | ModelWrite::Delete(other) if other == key)
            });
            for (index, slots) in self.indexes.iter().zip(&slots) {
                let needs_stage = SecondaryIndex::<ModelView>::needs_stage(index);
                if needs_stage && !is_last {
                    continue;
                }
                let new =
                    IndexedRecord { primary_key: key.as_bytes(), sequence: None, values: &values, slots };
                let new = record.map(|_| new);
                if let Some(new) = &new {
                    SecondaryIndex::<ModelView>::derive(index, new, &mut scratch, &mut writes)?;
                }
                if needs_stage {
                    let old = before.tree(TABLE)?.get(key.as_bytes())?;
                    let mut old_values = AttributeValues::new();
                    if let Some((_, old)) = &old {
                        JsonExtractor.extract(old, &plan, &mut old_values)?;
                    }
                    let old = old.map(|(sequence, _)| IndexedRecord {
                        primary_key: key.as_bytes(),
                        sequence: Some(sequence),
                        values: &old_values,
                        slots,
                    });
                    let change = StagedChange { sequence: self.last, old, new };
                    let staged = StagedBatch { table: TABLE, changes: &[change], deleted: &[] };
                    index.stage(&staged, &before, &mut scratch, &mut writes)?;
                }
            }
        }
        Ok(())
    }

    /// Executes a query in the driver, with the indexes whose number `use_index` accepts.
    pub(crate) fn query(
        &self,
        view: &ModelView,
        query: &Query,
        options: LookupOptions<'_>,
        use_index: impl Fn(usize) -> bool,
    ) -> Result<(Vec<ModelAnswer>, Explain)> {
        let indexes: Vec<&dyn SecondaryIndex<ModelView>> = self
            .indexes
            .iter()
            .enumerate()
            .filter(|(position, _)| use_index(*position))
            .map(|(_, index)| index as &dyn SecondaryIndex<ModelView>)
            .collect();
        let lookup =
            Lookup { view, table: TABLE, extractor: Some(&JsonExtractor), indexes: &indexes, options };
        let mut answers = Vec::new();
        let explain = lookup.run(query, |row| {
            answers.push(ModelAnswer {
                key: String::from_utf8(row.primary_key.to_vec()).unwrap(),
                sequence: row.sequence,
                record: row.record.map(|record| String::from_utf8(record.to_vec()).unwrap()),
                values: row.values.to_vec(),
            });
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok((answers, explain))
    }

    pub(crate) fn check(&self, index: usize) -> IndexCheck {
        let mut report = IndexCheck::default();
        let table = CheckedTable { tree: TABLE, extractor: &JsonExtractor };
        self.indexes[index].check(&self.view(), &table, &mut report).unwrap();
        report
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelAnswer {
    pub(crate) key: String,
    pub(crate) sequence: SequenceNumber,
    pub(crate) record: Option<String>,
    pub(crate) values: Vec<Vec<Value>>,
}
