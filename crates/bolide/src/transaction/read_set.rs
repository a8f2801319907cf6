//! What a transaction has read, for the validation of its commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bolide_base::TreeId;
use bolide_index::{ConditionSet, Query};

use super::key_ranges::KeyRanges;
use crate::schema::OpenCollection;

/// Memory of a key beside its bytes, in bytes.
const KEY_BYTES: usize = 64;

/// What was read from one collection.
#[derive(Debug)]
pub(super) struct CollectionReads {
    pub(super) collection: Arc<OpenCollection>,
    /// Single keys that had a record.
    present: BTreeSet<Vec<u8>>,
    /// Single keys without a record.
    absent: BTreeSet<Vec<u8>>,
    /// Ranges that were scanned in key order.
    pub(super) ranges: KeyRanges,
    /// The conditions of the queries whose answers were read.
    pub(super) conditions: ConditionSet,
}

impl CollectionReads {
    /// Whether `key` was read alone.
    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        self.present.contains(key) || self.absent.contains(key)
    }

    /// The first single key in `start..end` that had a record.
    pub(super) fn first_present(&self, start: &[u8], end: &[u8]) -> Option<&[u8]> {
        let keys = || self.present.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        (start < end).then(keys)?.next().map(|key| &key[..])
    }

    /// Whether a write of another commit may have to be compared with records, not only with keys.
    pub(super) fn needs_records(&self) -> bool {
        !(self.conditions.is_empty() && self.ranges.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
            && self.absent.is_empty()
            && self.ranges.is_empty()
            && self.conditions.is_empty()
    }
}

/// What a transaction has read, by collection.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    collections: BTreeMap<TreeId, CollectionReads>,
    /// Its memory, in bytes.
    bytes: usize,
}

impl ReadSet {
    fn of(&mut self, collection: &Arc<OpenCollection>) -> &mut CollectionReads {
        self.collections.entry(collection.tree).or_insert_with(|| CollectionReads {
            collection: collection.clone(),
            present: BTreeSet::new(),
            absent: BTreeSet::new(),
            ranges: KeyRanges::default(),
            conditions: ConditionSet::default(),
        })
    }

    /// Adds a key, which had a record or not. A key in a scanned range has no effect.
    pub(super) fn add_key(&mut self, collection: &Arc<OpenCollection>, key: &[u8], had_record: bool) {
        let reads = self.of(collection);
        if reads.has_key(key) || reads.ranges.contains(key) {
            return;
        }
        let keys = if had_record { &mut reads.present } else { &mut reads.absent };
        keys.insert(key.to_vec());
        self.bytes += KEY_BYTES + key.len();
    }

    /// Adds the keys from `start` to `end`, exclusive.
    pub(super) fn add_range(&mut self, collection: &Arc<OpenCollection>, start: &[u8], end: &[u8]) {
        let reads = self.of(collection);
        let before = reads.ranges.memory_bytes();
        reads.ranges.insert(start, end);
        let after = reads.ranges.memory_bytes();
        self.bytes = self.bytes + after - before;
    }

    /// Adds the conditions of `query`, which is valid.
    pub(super) fn add_query(&mut self, collection: &Arc<OpenCollection>, query: &Query) {
        let conditions = &mut self.of(collection).conditions;
        let before = conditions.memory_bytes();
        conditions.insert(query);
        let after = conditions.memory_bytes();
        self.bytes = self.bytes + after - before;
    }

    /// The memory that the conditions of `query` would add, in bytes.
    pub(super) fn query_bytes(&self, tree: TreeId, query: &Query) -> usize {
        let known = self.collections.get(&tree);
        known.map_or_else(|| query.memory_bytes(), |reads| reads.conditions.added_bytes(query))
    }

    /// What was read from the collection in `tree`.
    pub(super) fn get(&self, tree: TreeId) -> Option<&CollectionReads> {
        self.collections.get(&tree)
    }

    /// Whether nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.collections.values().all(CollectionReads::is_empty)
    }

    /// Whether a write of another commit may have to be compared with records, not only with keys.
    pub(super) fn needs_records(&self) -> bool {
        self.collections.values().any(CollectionReads::needs_records)
    }

    /// A collection that was read and is dropped.
    pub(super) fn dropped(&self) -> Option<&OpenCollection> {
        let mut read = self.collections.values().filter(|reads| !reads.is_empty());
        read.find(|reads| reads.collection.check_live().is_err()).map(|reads| &*reads.collection)
    }

    /// The memory of the set, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
