//! The newest records of one secondary key, told by an index alone.
//!
//! Where nothing but the index has to be asked, the way of a candidate through the [driver](crate::lookup) costs more
//! than finding it. An index that can offers a short cut, [`SecondaryIndex::newest_keys`]; it gives what the driver would
//! give, or declines.
//!
//! [`SecondaryIndex::newest_keys`]: crate::SecondaryIndex::newest_keys

use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_table::ReadCounters;

use crate::cursor_token::CursorToken;
use crate::explain::Explain;
use crate::fetch::FetchCosts;
use crate::path::AttributePath;
use crate::perseid::PsCosts;
use crate::ps_tree::{EntryKey, EntryPlace};
use crate::query::{Order, Projection, Query};
use crate::version_table::ExpectedKey;

/// Memory for long keys that is kept for the next question, in bytes.
const KEPT_BYTES: usize = 16 << 10;
/// Room for records that is kept for the next question.
const KEPT_FOUND: usize = 256;

/// The newest current records of one secondary key, with memory that is used again.
#[derive(Debug, Default)]
pub struct NewestKeys {
    /// The long keys.
    pub(crate) bytes: Vec<u8>,
    pub(crate) found: Vec<FoundKey>,
    /// Those that wait for their verdicts.
    pub(crate) suspects: Vec<Suspect>,
    /// Those that were passed over.
    pub(crate) passed: Vec<Passed>,
    pub(crate) costs: PsCosts,
}

/// A record that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundKey {
    /// 0 once it turned out to be obsolete: no write has this number.
    pub(crate) sequence: SequenceNumber,
    pub(crate) place: EntryPlace,
    pub(crate) key: EntryKey,
}

/// A record that may be obsolete: its place among those found, and what its key is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suspect {
    pub(crate) at: usize,
    pub(crate) expected: ExpectedKey,
}

/// An entry that is obsolete: where it is, what its key is known by, and a write of the key that made it obsolete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) place: EntryPlace,
    pub(crate) expected: ExpectedKey,
    pub(crate) newer: SequenceNumber,
}

impl NewestKeys {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Sequence number and key of each, newest first.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SequenceNumber, &[u8])> {
        self.found.iter().map(|found| (found.sequence, found.key.of(&self.bytes)))
    }

    /// What they cost.
    pub fn costs(&self) -> PsCosts {
        self.costs
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.found.clear();
        self.suspects.clear();
        self.passed.clear();
        self.costs = PsCosts::default();
    }

    /// Lets go of memory that few questions need: what a thread keeps stays below some 50 KiB.
    #[inline]
    pub fn shrink(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES
            || self.found.capacity() > KEPT_FOUND
            || self.passed.capacity() > KEPT_FOUND
        {
            *self = Self::default();
        }
    }
}

/// The most records that a short cut is taken for: they are held in memory.
const MOST: usize = 1_024;

/// A question that [`SecondaryIndex::newest_keys`](crate::SecondaryIndex::newest_keys) may answer.
#[derive(Debug, Clone, Copy)]
pub struct NewestQuestion<'q> {
    /// The attribute.
    pub path: &'q AttributePath,
    /// Its value, encoded: the secondary key of an index over this attribute alone.
    pub value: &'q [u8],
    /// How many records are wanted; at least one.
    pub limit: usize,
    /// Whether the records themselves are wanted, and not their keys alone.
    pub records: bool,
}

impl Query {
    /// What it asks, if that is nothing but the newest few records with one value of one attribute, or their keys.
    pub fn newest_of_value(&self) -> Option<NewestQuestion<'_>> {
        let [predicate] = self.predicates() else { return None };
        let limit = self.answer_limit().filter(|limit| (1..=MOST).contains(limit))?;
        // Where all values are equal, only recency is left to order by.
        let is_plain = predicate.is_equal()
            && matches!(self.projection(), Projection::Keys | Projection::Records)
            && self.answer_order() != Order::Oldest
            && self.token().is_none()
            && self.check().is_ok();
        let value = &predicate.encoded_range().low;
        let records = self.projection() == Projection::Records;
        is_plain.then_some(NewestQuestion { path: predicate.path(), value, limit, records })
    }
}

/// What is told of a question that an index answered alone.
#[derive(Debug, Clone)]
pub struct NewestTold {
    /// The name of the index.
    pub index: Arc<str>,
    /// Its kind.
    pub access: &'static str,
    /// How it validates.
    pub validation: &'static str,
    /// Entries that it found current.
    pub current: u64,
    /// Records that were given.
    pub answers: u64,
    /// What it read.
    pub costs: PsCosts,
    /// What fetching the records cost, if they were.
    pub fetched: Option<Box<FetchedTold>>,
    /// Where a further query goes on.
    pub next: Option<CursorToken>,
}

/// What is told of records that were fetched for a question that an index answered alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct FetchedTold {
    /// How many.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was read from sstables for them.
    pub reads: ReadCounters,
}

impl NewestTold {
    /// What the driver would say.
    pub fn explain(&self) -> Explain {
        let fetched = self.fetched.as_deref().copied().unwrap_or_default();
        Explain {
            index: Some(self.index.as_ref().to_owned()),
            access: self.access,
            validation: self.validation,
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
            ps_tree: self.costs,
            next: self.next.clone(),
            ..Explain::default()
        }
    }
}

impl CursorToken {
    /// Goes on behind the record written at `sequence`, of a query in the order of recency; at the `snapshot`, if the
    /// query was asked at one.
    pub fn behind(query: &Query, snapshot: Option<SequenceNumber>, sequence: SequenceNumber) -> Self {
        Self { query: query.fingerprint(), snapshot, sequence, value: Vec::new() }
    }
}
