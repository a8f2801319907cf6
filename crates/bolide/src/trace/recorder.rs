//! Counts the operations of a database for its trace.
//!
//! Operations by key add to atomic counters. A query adds to the counter of its form, under a mutex of its collection. The number
//! of forms and collections, and the bytes of their names, are limited; further ones are counted without their form.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bolide_index::{Order, Predicate, Projection, Query};
use parking_lot::Mutex;

use super::{CollectionTrace, Trace, TracedAnswers, TracedCondition, TracedOrder, TracedQuery};

/// The maximum number of forms of queries, of all collections.
const MAX_FORMS: usize = 1_024;
/// The maximum bytes of the attributes of all forms.
const MAX_FORM_BYTES: usize = 1 << 20;
/// The maximum number of collections, dropped ones included.
const MAX_COLLECTIONS: usize = 4_096;

/// The counters of a database.
#[derive(Debug, Default)]
pub(crate) struct TraceRecorder {
    collections: Mutex<BTreeMap<String, Arc<CollectionTraffic>>>,
    room: Arc<FormRoom>,
}

/// The forms that the trace has, in number and bytes.
#[derive(Debug, Default)]
struct FormRoom {
    forms: AtomicUsize,
    bytes: AtomicUsize,
}

impl FormRoom {
    /// Whether a form of `bytes` bytes may be added; counts it.
    fn take(&self, bytes: usize) -> bool {
        let grow = |counter: &AtomicUsize, by: usize, max: usize| {
            let grown = |now: usize| Some(now + by).filter(|sum| *sum <= max);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
        };
        // A form that does not fit must not use up a slot: its query comes again.
        grow(&self.bytes, bytes, MAX_FORM_BYTES) && grow(&self.forms, 1, MAX_FORMS)
    }
}

/// The counters of a collection.
#[derive(Debug, Default)]
pub(crate) struct CollectionTraffic {
    puts: AtomicU64,
    deletes: AtomicU64,
    range_deletes: AtomicU64,
    gets: AtomicU64,
    scans: AtomicU64,
    other_queries: AtomicU64,
    queries: Mutex<BTreeMap<QueryForm, QueryCount>>,
    room: Arc<FormRoom>,
}

/// What distinguishes queries.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueryForm {
    attributes: Vec<String>,
    condition: TracedCondition,
    order: TracedOrder,
    answers: TracedAnswers,
    /// Binary digits of the limit.
    limit_digits: Option<u32>,
}

#[derive(Debug, Default)]
struct QueryCount {
    queries: u64,
    limits: u64,
}

impl TraceRecorder {
    /// The counters of the collection with this name; `None` beyond the limit.
    pub(crate) fn collection(&self, name: &str) -> Option<Arc<CollectionTraffic>> {
        let mut collections = self.collections.lock();
        if let Some(known) = collections.get(name) {
            return Some(known.clone());
        }
        if collections.len() >= MAX_COLLECTIONS {
            return None;
        }
        let traffic = Arc::new(CollectionTraffic { room: self.room.clone(), ..Default::default() });
        collections.insert(name.to_owned(), traffic.clone());
        Some(traffic)
    }

    /// The counts of now.
    pub(crate) fn trace(&self) -> Trace {
        let collections = self.collections.lock();
        Trace { collections: collections.iter().map(|(name, traffic)| traffic.trace(name)).collect() }
    }
}

impl CollectionTraffic {
    pub(crate) fn note_put(&self) {
        self.puts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_gets(&self, keys: usize) {
        self.gets.fetch_add(keys as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_scan(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_delete(&self) {
        self.deletes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_range_delete(&self) {
        self.range_deletes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_query(&self, query: &Query) {
        let form = QueryForm::of(query);
        let mut queries = self.queries.lock();
        if !queries.contains_key(&form) && !self.room.take(form.bytes()) {
            self.other_queries.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let count = queries.entry(form).or_default();
        count.queries += 1;
        count.limits = count.limits.saturating_add(query.answer_limit().unwrap_or(0) as u64);
    }

    fn trace(&self, name: &str) -> CollectionTrace {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queries = self.queries.lock();
        CollectionTrace {
            name: name.to_owned(),
            puts: load(&self.puts),
            deletes: load(&self.deletes),
            range_deletes: load(&self.range_deletes),
            gets: load(&self.gets),
            scans: load(&self.scans),
            queries: queries.iter().map(|(form, count)| form.traced(count)).collect(),
            other_queries: load(&self.other_queries),
        }
    }
}

impl QueryForm {
    fn of(query: &Query) -> Self {
        let predicates = query.predicates();
        let mut attributes: Vec<String> = predicates.iter().map(|found| found.path().to_string()).collect();
        attributes.sort_unstable();
        attributes.dedup();
        Self {
            attributes,
            condition: condition_of(predicates),
            order: order_of(query),
            answers: match query.projection() {
                Projection::Records | Projection::Values | Projection::Parts => TracedAnswers::Records,
                Projection::Keys => TracedAnswers::Keys,
                Projection::Count => TracedAnswers::Count,
            },
            limit_digits: query.answer_limit().map(|limit| limit.checked_ilog2().map_or(0, |log| log + 1)),
        }
    }

    /// Bytes of its text.
    fn bytes(&self) -> usize {
        self.attributes.iter().map(String::len).sum()
    }

    fn traced(&self, count: &QueryCount) -> TracedQuery {
        let mean = count.limits / count.queries.max(1);
        TracedQuery {
            attributes: self.attributes.clone(),
            condition: self.condition,
            order: self.order,
            answers: self.answers,
            limit: self.limit_digits.map(|_| mean),
            count: count.queries,
        }
    }
}

fn condition_of(predicates: &[Predicate]) -> TracedCondition {
    if !predicates.is_empty() && predicates.iter().all(Predicate::is_equal) {
        TracedCondition::Equal
    } else if !predicates.is_empty() && predicates.iter().all(|found| found.is_equal() || found.is_range()) {
        TracedCondition::Range
    } else {
        TracedCondition::Other
    }
}

fn order_of(query: &Query) -> TracedOrder {
    match query.answer_order() {
        Order::Newest => TracedOrder::Newest,
        Order::Oldest => TracedOrder::Oldest,
        _ => TracedOrder::Value,
    }
}
