//! Answers of a query inside a transaction: those of its snapshot, merged with its own writes.
//!
//! The lookup driver answers at the snapshot, in the order of the query. Answers whose keys the transaction has written are
//! skipped. The own records that satisfy the query are sorted in its order, by their provisional sequence numbers, and
//! inserted at their places.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_index::{CursorToken, Projection, Query, RecordQuery};

use super::flaw::TransactionFlaw;
use super::own_writes::OwnWrites;
use crate::answer_cursor::AnswerCursor;
use crate::find::{Answer, AnswerRef, Outcome};
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::index_set::IndexSet;

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

/// The position of a transaction, for its queries.
#[derive(Clone, Copy)]
pub(super) struct QueryContext {
    /// The number of the transaction.
    pub(super) transaction: u64,
    /// The sequence number of its snapshot.
    pub(super) snapshot: SequenceNumber,
    pub(super) flaw: Option<TransactionFlaw>,
}

/// The answers to a query inside a transaction, one by one in the query's order; made by
/// [`Transaction::answers`](crate::Transaction::answers).
///
/// They are those of the transaction at the time of that call: later writes of the transaction are not included.
pub struct TransactionAnswers<'t> {
    query: Arc<Query>,
    context: QueryContext,
    set: Arc<IndexSet>,
    own: Arc<OwnWrites>,
    snapshot_answers: AnswerCursor,
    /// The next answer of the snapshot.
    pending: Option<RankedAnswer>,
    /// Own records that satisfy the query, the next one last.
    own_answers: Vec<RankedAnswer>,
    /// Answers of each value, for a limit per value.
    per_value: HashMap<Vec<u8>, usize>,
    current: Option<Answer>,
    /// The position of the last answer.
    last: Option<(Vec<u8>, SequenceNumber)>,
    count: u64,
    state: AnswerState,
    /// The transaction cannot commit while its answers are read.
    transaction: PhantomData<&'t ()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    /// The transaction has no writes to the collection: the answers are those of the snapshot.
    Unchanged,
    Merging,
    /// The limit ended the answers.
    Limited,
    /// No further answers exist, or an error ended them.
    Ended,
}

impl TransactionAnswers<'_> {
    /// Opens `query` with the own writes of the transaction to the collection. `options` have its snapshot.
    pub(super) fn open(
        collection: &Collection,
        query: &Query,
        options: &FindOptions,
        own: Arc<OwnWrites>,
        context: QueryContext,
    ) -> Result<Self> {
        if let Some(token) = query.token()
            && token.transaction() != Some(context.transaction)
        {
            return Err(Error::new(
                ErrorKind::Expired,
                "the cursor token is not one of this transaction: start the query again",
            ));
        }
        let set = collection.state.indexes();
        let mut own_answers = Vec::new();
        let (state, at_snapshot) = if own.is_empty() {
            (AnswerState::Unchanged, continued(query, context))
        } else {
            let mut on_records = RecordQuery::new(query, set.extractor().ok())?;
            own_answers = self::own_answers(&own, query, &mut on_records)?;
            (AnswerState::Merging, at_snapshot(query, &own, &on_records, context))
        };
        Ok(Self {
            query: Arc::new(query.clone()),
            context,
            set,
            own,
            snapshot_answers: collection.answers(&at_snapshot, options)?,
            pending: None,
            own_answers,
            per_value: HashMap::new(),
            current: None,
            last: None,
            count: 0,
            state,
            transaction: PhantomData,
        })
    }

    /// The next answer, lent until the following call; `None` if there are no more. The sequence number of a record that
    /// the transaction put is provisional.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading.
    #[allow(clippy::should_implement_trait)] // It lends the answer, which no `Iterator` can.
    pub fn next(&mut self) -> Result<Option<AnswerRef<'_>>> {
        if self.state == AnswerState::Unchanged {
            return self.snapshot_answers.next();
        }
        self.advance()?;
        Ok(self.current.as_ref().map(|answer| AnswerRef {
            key: &answer.key,
            sequence: answer.sequence,
            record: answer.record.as_deref(),
            values: &answer.values,
        }))
    }

    /// The statistics so far: the number of answers, the plan at the snapshot and its cost, and the cursor token that
    /// continues after the last answer in the same transaction. A query that only counts has no answers; its count is
    /// [`Outcome::count`] at the end.
    pub fn outcome(&mut self) -> Outcome {
        let mut explain = self.snapshot_answers.outcome().into_explain();
        if self.state == AnswerState::Unchanged {
            explain.next = explain.next.map(|token| token.in_transaction(self.context.transaction));
            return explain.into();
        }
        explain.answers = self.count;
        explain.next = self.token();
        explain.into()
    }

    fn token(&self) -> Option<CursorToken> {
        let (value, sequence) = self.last.as_ref().filter(|_| self.state != AnswerState::Ended)?;
        // The query was valid when it was opened.
        let on_records = RecordQuery::new(&self.query, self.set.extractor().ok()).ok()?;
        Some(on_records.token(self.context.transaction, (value, *sequence)))
    }

    /// Moves to the next answer of a merge; `current` is `None` at the end.
    fn advance(&mut self) -> Result<()> {
        self.current = None;
        if self.state != AnswerState::Merging {
            return Ok(());
        }
        let advanced = self.find_next();
        if advanced.is_err() {
            self.state = AnswerState::Ended;
        }
        advanced
    }

    fn find_next(&mut self) -> Result<()> {
        let limit = self.query.answer_limit().unwrap_or(usize::MAX) as u64;
        let (query, set) = (self.query.clone(), self.set.clone());
        let mut on_records = RecordQuery::new(&query, set.extractor().ok())?;
        while self.count < limit {
            self.fill_pending(&mut on_records)?;
            let Some(mut next) = self.take_first(&on_records) else {
                self.state = AnswerState::Ended;
                return Ok(());
            };
            if !self.count_value(&next) || !on_records.is_after_token(next.rank()) {
                continue;
            }
            self.count += 1;
            if query.projection() == Projection::Count {
                continue;
            }
            project(query.projection(), &mut next.answer, &mut on_records)?;
            self.last = Some((next.value, next.answer.sequence));
            self.current = Some(next.answer);
            return Ok(());
        }
        self.state = AnswerState::Limited;
        Ok(())
    }

    /// Reads the next answer of the snapshot that the transaction has not written.
    fn fill_pending(&mut self, on_records: &mut RecordQuery<'_>) -> Result<()> {
        let masks = self.context.flaw != Some(TransactionFlaw::StaleOwnWrites);
        while self.pending.is_none() {
            let Some(answer) = self.snapshot_answers.next()? else { return Ok(()) };
            if masks && self.own.masks(answer.key) {
                continue;
            }
            let mut value = Vec::new();
            if on_records.is_ranked_by_record()
                && let Some(record) = answer.record
                && on_records.evaluate(record)?
            {
                value.extend_from_slice(on_records.value());
            }
            self.pending = Some(RankedAnswer { answer: answer.to_answer(), value });
        }
        Ok(())
    }

    /// Takes the first of the next answer of the snapshot and the next own record.
    fn take_first(&mut self, on_records: &RecordQuery<'_>) -> Option<RankedAnswer> {
        let own_is_first = match (self.own_answers.last(), &self.pending) {
            (Some(own), Some(pending)) => on_records.compare(own.rank(), pending.rank()) == Ordering::Less,
            (own, _) => own.is_some(),
        };
        if own_is_first { self.own_answers.pop() } else { self.pending.take() }
    }

    /// Counts an answer under its value. False if the limit of the value is reached.
    fn count_value(&mut self, answer: &RankedAnswer) -> bool {
        let Some(limit) = self.query.answer_limit_per_value() else { return true };
        let count = self.per_value.entry(answer.value.clone()).or_insert(0);
        *count += 1;
        *count <= limit
    }
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
        Projection::Keys | Projection::Count => answer.record = None,
    }
    Ok(())
}

/// The own records that satisfy `query`, the first one last.
fn own_answers(
    own: &OwnWrites,
    query: &Query,
    on_records: &mut RecordQuery<'_>,
) -> Result<Vec<RankedAnswer>> {
    let mut answers = Vec::new();
    if query.answer_limit() == Some(0) {
        return Ok(answers);
    }
    for (key, put) in own.records() {
        if on_records.evaluate(&put.record)? {
            let record = Some(put.record.to_vec());
            let answer = Answer { key: key.to_vec(), sequence: put.sequence, record, values: Vec::new() };
            answers.push(RankedAnswer { answer, value: on_records.value().to_vec() });
        }
    }
    answers.sort_by(|left, right| on_records.compare(right.rank(), left.rank()));
    Ok(answers)
}

/// `query` at the snapshot, with its token as one of the snapshot.
fn continued(query: &Query, context: QueryContext) -> Query {
    match query.token() {
        Some(token) => query.clone().after(token.at_snapshot(context.snapshot)),
        None => query.clone(),
    }
}

/// The query for the answers of the snapshot that a merge needs: as many more as may be skipped, and with the records if
/// their attributes determine the order.
fn at_snapshot(query: &Query, own: &OwnWrites, on_records: &RecordQuery<'_>, context: QueryContext) -> Query {
    let skipped = if own.deleted().is_empty() { own.keys() } else { usize::MAX };
    let more = |limit: usize| limit.saturating_add(skipped);
    let mut at_snapshot = match query.answer_limit_per_value() {
        // The answers before the token count for their values, and the limit counts those that are left.
        Some(limit) => query.clone().from_start().limit_per_value(more(limit)).limit(usize::MAX),
        None => continued(query, context),
    };
    if let (Some(limit), None) = (query.answer_limit(), query.answer_limit_per_value()) {
        at_snapshot = at_snapshot.limit(more(limit));
    }
    match query.projection() {
        Projection::Records => at_snapshot,
        _ if on_records.is_ranked_by_record() => at_snapshot.with_records(),
        Projection::Values => at_snapshot,
        Projection::Keys | Projection::Count => at_snapshot.keys_only(),
    }
}

impl fmt::Debug for TransactionAnswers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionAnswers")
            .field("count", &self.count)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The answers of a query inside a transaction as an iterator of owned answers. It ends after an error.
#[derive(Debug)]
pub struct TransactionAnswerIter<'t> {
    answers: TransactionAnswers<'t>,
}

impl TransactionAnswerIter<'_> {
    /// As [`TransactionAnswers::outcome`].
    pub fn outcome(&mut self) -> Outcome {
        self.answers.outcome()
    }
}

impl<'t> IntoIterator for TransactionAnswers<'t> {
    type Item = Result<Answer>;
    type IntoIter = TransactionAnswerIter<'t>;

    fn into_iter(self) -> TransactionAnswerIter<'t> {
        TransactionAnswerIter { answers: self }
    }
}

impl Iterator for TransactionAnswerIter<'_> {
    type Item = Result<Answer>;

    fn next(&mut self) -> Option<Result<Answer>> {
        self.answers.next().map(|answer| answer.map(|answer| answer.to_answer())).transpose()
    }
}

impl std::iter::FusedIterator for TransactionAnswerIter<'_> {}
