//! The merge of the answers at a snapshot with the own writes of a transaction.
//!
//! The lookup driver answers at the snapshot, in the order of the query. Answers whose keys the transaction has written are
//! skipped. The own records that satisfy the query are sorted in its order, by their provisional sequence numbers, and
//! inserted at their places.
//!
//! # Limits
//! The driver reads and sorts less if it knows how many answers are wanted. Each key that the transaction wrote may hide one
//! answer, so so many more are requested. A deleted range may hide any number: if the requested ones do not suffice, the query
//! continues after the last of them with twice the limit.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_index::{CursorToken, Explain, Projection, Query, RecordQuery};
use parking_lot::Mutex;

use super::flaw::TransactionFlaw;
use super::own_writes::OwnWrites;
use crate::answer_cursor::AnswerCursor;
use crate::find::Answer;
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::paused_execution::pause;

/// The answers at the snapshot that are requested in addition if the transaction has deleted ranges.
const DELETED_RANGE_ANSWERS: usize = 64;

/// The position of a transaction, for its queries.
#[derive(Clone, Copy)]
pub(super) struct QueryContext {
    /// The number of the transaction.
    pub(super) transaction: u64,
    /// The sequence number of its snapshot.
    pub(super) snapshot: SequenceNumber,
    pub(super) flaw: Option<TransactionFlaw>,
}

impl QueryContext {
    /// `query` at the snapshot, with its token as one of the snapshot.
    pub(super) fn continued(&self, query: &Query) -> Query {
        match query.token() {
            Some(token) => query.clone().after(token.at_snapshot(self.snapshot)),
            None => query.clone(),
        }
    }
}

/// A query inside a transaction with own writes to the collection.
pub(super) struct MergedQuery {
    pub(super) collection: Collection,
    pub(super) query: Query,
    /// With the snapshot of the transaction.
    pub(super) options: FindOptions,
    pub(super) own: Arc<OwnWrites>,
    pub(super) context: QueryContext,
}

/// What a merge and its cursor hand over.
#[derive(Default)]
pub(super) struct MergeExchange {
    pub(super) request: MergeRequest,
    pub(super) answer: Answer,
    /// For [`MergeRequest::Explain`], and at the end.
    pub(super) explain: Explain,
}

/// What a cursor requests of its merge.
#[derive(Clone, Copy, Default)]
pub(super) enum MergeRequest {
    /// To evaluate the own records and to choose a plan.
    #[default]
    Open,
    /// The next answer.
    Answer,
    /// The statistics so far.
    Explain,
}

/// Does one request after the other until the answers end. The query is compiled once.
pub(super) async fn merge(merged: MergedQuery, exchange: Arc<Mutex<MergeExchange>>) -> Result<()> {
    let set = merged.collection.state.indexes();
    let on_records = RecordQuery::new(&merged.query, set.extractor().ok())?;
    let mut merge = Merge::open(&merged, on_records)?;
    loop {
        let request = exchange.lock().request;
        match request {
            MergeRequest::Open => {}
            MergeRequest::Explain => exchange.lock().explain = merge.explain(),
            MergeRequest::Answer => match merge.next() {
                Ok(Some(answer)) => exchange.lock().answer = answer,
                ended => {
                    merge.has_failed = ended.is_err();
                    exchange.lock().explain = merge.explain();
                    return ended.map(drop);
                }
            },
        }
        pause().await;
    }
}

/// An answer with the value that determines its place.
struct RankedAnswer {
    answer: Answer,
    value: Vec<u8>,
}

impl RankedAnswer {
    fn rank(&self) -> (&[u8], SequenceNumber) {
        (&self.value, self.answer.sequence)
    }
}

struct Merge<'m> {
    merged: &'m MergedQuery,
    on_records: RecordQuery<'m>,
    at_snapshot: SnapshotAnswers,
    /// The next answer of the snapshot.
    pending: Option<RankedAnswer>,
    /// Own records that satisfy the query, the next one last.
    own_answers: Vec<RankedAnswer>,
    /// Answers of each value, for a limit per value.
    per_value: HashMap<Vec<u8>, usize>,
    /// The position of the last answer.
    last: Option<(Vec<u8>, SequenceNumber)>,
    count: u64,
    /// No further answers exist, whatever the limit.
    is_complete: bool,
    has_failed: bool,
}

impl<'m> Merge<'m> {
    fn open(merged: &'m MergedQuery, mut on_records: RecordQuery<'m>) -> Result<Self> {
        let own_answers = self::own_answers(merged, &mut on_records)?;
        Ok(Self {
            merged,
            at_snapshot: SnapshotAnswers::open(merged, &on_records)?,
            on_records,
            pending: None,
            own_answers,
            per_value: HashMap::new(),
            last: None,
            count: 0,
            is_complete: false,
            has_failed: false,
        })
    }

    /// The next answer. A counting query has none: the first call counts.
    fn next(&mut self) -> Result<Option<Answer>> {
        let query = &self.merged.query;
        let limit = query.answer_limit().unwrap_or(usize::MAX) as u64;
        while self.count < limit {
            self.fill_pending()?;
            let Some(mut next) = self.take_first() else {
                self.is_complete = true;
                return Ok(None);
            };
            if !self.count_value(&next) || !self.on_records.is_after_token(next.rank()) {
                continue;
            }
            self.count += 1;
            if query.projection() == Projection::Count {
                continue;
            }
            project(query.projection(), &mut next.answer, &mut self.on_records)?;
            self.last = Some((next.value, next.answer.sequence));
            return Ok(Some(next.answer));
        }
        Ok(None)
    }

    /// Reads the next answer of the snapshot if there is none.
    fn fill_pending(&mut self) -> Result<()> {
        if self.pending.is_some() {
            return Ok(());
        }
        let Some(answer) = self.at_snapshot.next(self.merged)? else { return Ok(()) };
        let mut value = Vec::new();
        if self.on_records.is_ranked_by_record()
            && let Some(record) = &answer.record
            && self.on_records.evaluate(record)?
        {
            value.extend_from_slice(self.on_records.value());
        }
        self.pending = Some(RankedAnswer { answer, value });
        Ok(())
    }

    /// Takes the first of the next answer of the snapshot and the next own record.
    fn take_first(&mut self) -> Option<RankedAnswer> {
        let own_is_first = match (self.own_answers.last(), &self.pending) {
            (Some(own), Some(pending)) => {
                self.on_records.compare(own.rank(), pending.rank()) == Ordering::Less
            }
            (own, _) => own.is_some(),
        };
        if own_is_first { self.own_answers.pop() } else { self.pending.take() }
    }

    /// Counts an answer under its value. False if the limit of the value is reached.
    fn count_value(&mut self, answer: &RankedAnswer) -> bool {
        let Some(limit) = self.merged.query.answer_limit_per_value() else { return true };
        let count = self.per_value.entry(answer.value.clone()).or_insert(0);
        *count += 1;
        *count <= limit
    }

    fn explain(&mut self) -> Explain {
        let mut explain = self.at_snapshot.explain();
        explain.answers = self.count;
        explain.next = self.token();
        explain
    }

    /// The token after the last answer, if further ones may exist.
    fn token(&self) -> Option<CursorToken> {
        let (value, sequence) = self.last.as_ref().filter(|_| !self.is_complete && !self.has_failed)?;
        Some(self.on_records.token(self.merged.context.transaction, (value, *sequence)))
    }
}

/// The answers at the snapshot, page by page.
struct SnapshotAnswers {
    /// The query of the page.
    query: Query,
    cursor: AnswerCursor,
    /// The costs of the earlier pages.
    earlier: Option<Explain>,
}

impl SnapshotAnswers {
    fn open(merged: &MergedQuery, on_records: &RecordQuery<'_>) -> Result<Self> {
        let query = first_page(merged, on_records);
        let cursor = merged.collection.answers(&query, &merged.options)?;
        Ok(Self { query, cursor, earlier: None })
    }

    /// The next answer that the transaction has not written.
    fn next(&mut self, merged: &MergedQuery) -> Result<Option<Answer>> {
        let masks = merged.context.flaw != Some(TransactionFlaw::StaleOwnWrites);
        loop {
            while let Some(answer) = self.cursor.next()? {
                if !(masks && merged.own.masks(answer.key)) {
                    return Ok(Some(answer.to_answer()));
                }
            }
            let costs = self.explain();
            let (Some(limit), Some(token)) = (self.query.answer_limit(), costs.next.clone()) else {
                return Ok(None);
            };
            self.query = take(&mut self.query).limit(limit.saturating_mul(2)).after(token);
            self.cursor = merged.collection.answers(&self.query, &merged.options)?;
            self.earlier = Some(costs);
        }
    }

    fn explain(&mut self) -> Explain {
        let mut explain = self.cursor.outcome().into_explain();
        self.earlier.iter().for_each(|earlier| explain.add_page(earlier));
        explain
    }
}

/// The query for the answers at the snapshot: as many more as own writes may hide, and with the records if their attributes
/// determine the order.
fn first_page(merged: &MergedQuery, on_records: &RecordQuery<'_>) -> Query {
    let (query, own) = (&merged.query, &merged.own);
    let in_ranges = if own.deleted().is_empty() { 0 } else { DELETED_RANGE_ANSWERS };
    let more = |limit: usize| limit.saturating_add(own.keys()).saturating_add(in_ranges);
    let mut page = match query.answer_limit_per_value() {
        // The answers before the token count for their values, and the limit counts those that are left.
        Some(limit) => {
            let per_value = if in_ranges > 0 { usize::MAX } else { more(limit) };
            query.clone().from_start().limit_per_value(per_value).limit(usize::MAX)
        }
        None => merged.context.continued(query),
    };
    if let (Some(limit), None) = (query.answer_limit(), query.answer_limit_per_value()) {
        page = page.limit(more(limit));
    }
    match query.projection() {
        Projection::Records => page,
        _ if on_records.is_ranked_by_record() => page.with_records(),
        Projection::Values => page,
        Projection::Parts => page.with_records(),
        Projection::Keys | Projection::Count => page.keys_only(),
    }
}

/// The own records that satisfy the query, the first one last.
fn own_answers(merged: &MergedQuery, on_records: &mut RecordQuery<'_>) -> Result<Vec<RankedAnswer>> {
    let mut answers = Vec::new();
    if merged.query.answer_limit() == Some(0) {
        return Ok(answers);
    }
    let needs_record = !matches!(merged.query.projection(), Projection::Keys | Projection::Count);
    for (key, put) in merged.own.records() {
        if on_records.evaluate(&put.record)? {
            let record = needs_record.then(|| put.record.to_vec());
            let answer = Answer { key: key.to_vec(), sequence: put.sequence, record, values: Vec::new() };
            answers.push(RankedAnswer { answer, value: on_records.value().to_vec() });
        }
    }
    answers.sort_by(|left, right| on_records.compare(right.rank(), left.rank()));
    Ok(answers)
}

/// Leaves in an answer what a query with this projection returns.
fn project(projection: Projection, answer: &mut Answer, on_records: &mut RecordQuery<'_>) -> Result<()> {
    match projection {
        Projection::Records => {}
        Projection::Values => {
            // Without a record, the driver has returned the values.
            if let Some(record) = answer.record.take()
                && on_records.evaluate(&record)?
            {
                answer.values = on_records.selected();
            }
        }
        Projection::Parts => {
            answer.record = answer.record.take().and_then(|record| on_records.parts(&record));
        }
        Projection::Keys | Projection::Count => answer.record = None,
    }
    Ok(())
}
