//! The newest records of one secondary key, from an index alone.
//!
//! If a query needs only the index, the [driver](crate::lookup) costs more than the index read itself. An index may provide
//! a fast path, [`SecondaryIndex::newest_keys`], which either returns the same result as the driver or declines.
//!
//! [`SecondaryIndex::newest_keys`]: crate::SecondaryIndex::newest_keys

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_table::ReadCounters;

use crate::costs::IndexCosts;
use crate::cursor_token::CursorToken;
use crate::explain::Explain;
use crate::fetch::FetchCosts;
use crate::path::AttributePath;
use crate::query::{Order, Projection, Query};
pub use crate::short_bytes::InlineKey;

/// Maximum memory for long keys that is retained for the next query, in bytes.
const MAX_RETAINED_BYTES: usize = 16 << 10;
/// Maximum capacity for records that is retained for the next query.
const MAX_RETAINED_FOUND: usize = 256;

/// The newest current records of one secondary key. Its memory is reused.
#[derive(Debug, Default)]
pub struct NewestKeys {
    /// The bytes of long keys.
    pub(crate) bytes: Vec<u8>,
    pub(crate) found: Vec<FoundKey>,
    costs: Option<IndexCosts>,
    /// Memory of the kind that answered last.
    scratch: Option<Box<dyn KindScratch>>,
}

/// Memory that a kind of index reuses from one query to the next.
pub trait KindScratch: Any + fmt::Debug + Send + Sync {
    /// Its approximate size in bytes. Memory beyond a limit is freed before the next query.
    fn memory_bytes(&self) -> usize;
}

/// A found record.
#[derive(Debug, Clone, Copy)]
pub struct FoundKey {
    /// The sequence number of the write; 0 after the record turned out to be obsolete: no write has this number.
    pub sequence: SequenceNumber,
    /// A number of the kind: the location of the entry.
    pub place: u64,
    /// The primary key.
    pub key: InlineKey,
}

impl NewestKeys {
    /// An empty result.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Sequence number and key of each record, newest first.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SequenceNumber, &[u8])> {
        self.found.iter().map(|found| (found.sequence, found.key.of(&self.bytes)))
    }

    /// What the query read, if the kind counts it.
    pub fn costs(&self) -> Option<IndexCosts> {
        self.costs
    }

    /// Sets what the query read.
    pub fn set_costs(&mut self, costs: IndexCosts) {
        self.costs = Some(costs);
    }

    /// Adds a record; they come newest first.
    pub fn push(&mut self, sequence: SequenceNumber, primary_key: &[u8]) {
        let key = InlineKey::new(primary_key, &mut self.bytes);
        self.found.push(FoundKey { sequence, place: 0, key });
    }

    /// Removes all records. Every answer of an index begins with this.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.found.clear();
        self.costs = None;
    }

    /// Takes the scratch memory of type `T` that the last answer [left](Self::leave_scratch); new memory if another kind
    /// answered.
    pub fn take_scratch<T: KindScratch + Default>(&mut self) -> Box<T> {
        let scratch: Option<Box<dyn Any>> = self.scratch.take().map(|scratch| scratch as Box<dyn Any>);
        scratch.and_then(|scratch| scratch.downcast().ok()).unwrap_or_default()
    }

    /// Leaves scratch memory for the next query.
    pub fn leave_scratch(&mut self, scratch: Box<impl KindScratch>) {
        self.scratch = Some(scratch);
    }

    /// Frees memory above the retained maximum: a thread retains at most about 50 KiB.
    #[inline]
    pub fn shrink(&mut self) {
        let scratch = self.scratch.as_ref().map_or(0, |scratch| scratch.memory_bytes());
        if self.bytes.capacity() > MAX_RETAINED_BYTES
            || self.found.capacity() > MAX_RETAINED_FOUND
            || scratch > MAX_RETAINED_BYTES
        {
            *self = Self::default();
        }
    }
}

/// Maximum number of records of the fast path, which holds them in memory.
const MAX_RECORDS: usize = 1_024;

/// A query that [`SecondaryIndex::newest_keys`](crate::SecondaryIndex::newest_keys) may answer.
#[derive(Debug, Clone, Copy)]
pub struct NewestQuery<'q> {
    /// The attribute.
    pub path: &'q AttributePath,
    /// The encoded value: the secondary key of an index over this attribute only.
    pub value: &'q [u8],
    /// Maximum number of records, at least one.
    pub limit: usize,
    /// Whether the records are selected, and not only their keys.
    pub records: bool,
}

impl Query {
    /// The short form of this query, if it only selects the newest few records with one value of one attribute, or their
    /// keys.
    pub fn newest_query(&self) -> Option<NewestQuery<'_>> {
        let [predicate] = self.predicates() else { return None };
        if !self.term_nodes().is_empty() {
            return None;
        }
        let limit = self.answer_limit().filter(|limit| (1..=MAX_RECORDS).contains(limit))?;
        // With equal values, the order is by recency.
        let is_plain = predicate.is_equal()
            && matches!(self.projection(), Projection::Keys | Projection::Records)
            && !matches!(self.answer_order(), Order::Oldest | Order::Attributes)
            && self.token().is_none()
            && self.check().is_ok();
        let value = &predicate.encoded_range().low;
        let records = self.projection() == Projection::Records;
        is_plain.then_some(NewestQuery { path: predicate.path(), value, limit, records })
    }
}

/// The statistics of a query that an index answered alone.
#[derive(Debug, Clone)]
pub struct NewestStatistics {
    /// The name of the index.
    pub index: Arc<str>,
    /// The kind of the index.
    pub access: &'static str,
    /// The validation strategy of the index.
    pub validation: &'static str,
    /// Entries that the index found current.
    pub current: u64,
    /// Records that were returned.
    pub answers: u64,
    /// What the index read, if its kind counts it.
    pub costs: Option<IndexCosts>,
    /// The costs of fetching the records, if they were fetched.
    pub fetched: Option<Box<FetchStatistics>>,
    /// The token for a further query.
    pub next: Option<CursorToken>,
}

/// The statistics of fetching the records of a query that an index answered alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct FetchStatistics {
    /// Number of records.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Reads from sstables for the records.
    pub reads: ReadCounters,
}

impl NewestStatistics {
    /// The report that the driver would return.
    pub fn explain(&self) -> Explain {
        let fetched = self.fetched.as_deref().copied().unwrap_or_default();
        Explain {
            index: Some(self.index.as_ref().to_owned()),
            access: self.access,
            validation: self.validation,
            streams: 1,
            streamed: true,
            passes: 1,
            candidates: self.current,
            current: self.current,
            answers: self.answers,
            records_fetched: fetched.records,
            record_bytes: fetched.bytes,
            fetch: FetchCosts {
                by_sequence: self.fetched.is_some(),
                exact: fetched.records,
                ..FetchCosts::default()
            },
            reads: fetched.reads,
            index_costs: self.costs.into_iter().collect(),
            next: self.next.clone(),
            ..Explain::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Numbers(Vec<u64>);

    impl KindScratch for Numbers {
        fn memory_bytes(&self) -> usize {
            self.0.capacity() * size_of::<u64>()
        }
    }

    #[derive(Debug, Default)]
    struct OtherScratch;

    impl KindScratch for OtherScratch {
        fn memory_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn keys_of_any_length_are_returned_and_scratch_belongs_to_its_kind() {
        let mut found = NewestKeys::new();
        let keys: Vec<Vec<u8>> = [0, 1, 31, 32, 33, 5_000].map(|len| vec![len as u8; len]).to_vec();
        for (sequence, key) in keys.iter().enumerate() {
            found.push(sequence as u64, key);
        }
        let returned = found.iter().map(|(sequence, key)| (sequence as usize, key.to_vec()));
        assert_eq!(returned.collect::<Vec<_>>(), keys.iter().cloned().enumerate().collect::<Vec<_>>());

        let mut numbers = found.take_scratch::<Numbers>();
        numbers.0.push(7);
        found.leave_scratch(numbers);
        assert_eq!(found.take_scratch::<Numbers>().0, [7]);
        assert!(found.take_scratch::<Numbers>().0.is_empty(), "it was taken");
        found.leave_scratch(Box::new(OtherScratch));
        assert!(found.take_scratch::<Numbers>().0.is_empty(), "another kind answered meanwhile");

        found.leave_scratch(Box::new(Numbers(Vec::with_capacity(MAX_RETAINED_BYTES))));
        found.shrink();
        assert_eq!((found.len(), found.take_scratch::<Numbers>().0.capacity()), (0, 0));
    }
}
