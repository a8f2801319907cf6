//! What a transaction has read, for the validation of its commit.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bolide_base::TreeId;
use bolide_index::Query;

use super::key_ranges::KeyRanges;
use crate::schema::OpenCollection;

/// Memory of a key beside its bytes, in bytes.
const KEY_BYTES: usize = 64;
/// Estimated memory of a query beside the text of its predicates, in bytes.
const QUERY_BYTES: usize = 512;

/// What was read from one collection.
#[derive(Debug)]
pub(super) struct CollectionReads {
    pub(super) collection: Arc<OpenCollection>,
    /// Single keys, with true for those that had a record.
    pub(super) keys: BTreeMap<Vec<u8>, bool>,
    /// Ranges that were scanned in key order.
    pub(super) ranges: KeyRanges,
    /// Queries whose answers were read.
    pub(super) queries: Vec<Query>,
}

impl CollectionReads {
    /// Single keys in `start..end`.
    pub(super) fn keys_within<'r>(
        &'r self,
        start: &'r [u8],
        end: &'r [u8],
    ) -> impl Iterator<Item = (&'r [u8], bool)> {
        let range =
            (start < end).then(|| self.keys.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))));
        range.into_iter().flatten().map(|(key, had_record)| (&key[..], *had_record))
    }
}

/// What a transaction has read, by collection.
#[derive(Debug, Default)]
pub(super) struct ReadSet {
    collections: BTreeMap<TreeId, CollectionReads>,
    /// Memory of keys and queries, in bytes.
    bytes: usize,
}

impl ReadSet {
    fn of(&mut self, collection: &Arc<OpenCollection>) -> &mut CollectionReads {
        self.collections.entry(collection.tree).or_insert_with(|| CollectionReads {
            collection: collection.clone(),
            keys: BTreeMap::new(),
            ranges: KeyRanges::default(),
            queries: Vec::new(),
        })
    }

    /// Adds a key, which had a record or not.
    pub(super) fn add_key(&mut self, collection: &Arc<OpenCollection>, key: &[u8], had_record: bool) {
        let keys = &mut self.of(collection).keys;
        if keys.contains_key(key) {
            return;
        }
        keys.insert(key.to_vec(), had_record);
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

    /// Adds the predicates of `query`.
    pub(super) fn add_query(&mut self, collection: &Arc<OpenCollection>, query: &Query) {
        let text: usize = query.predicates().iter().map(|predicate| predicate.to_string().len()).sum();
        self.of(collection).queries.push(query.clone().from_start());
        self.bytes += QUERY_BYTES + 4 * text;
    }

    /// What was read from the collection in `tree`.
    pub(super) fn get(&self, tree: TreeId) -> Option<&CollectionReads> {
        self.collections.get(&tree)
    }

    /// The memory of the set, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
