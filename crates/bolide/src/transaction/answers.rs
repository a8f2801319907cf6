//! Answers of a query inside a transaction: those of its snapshot, [merged](super::merge) with its own writes.

use std::fmt;
use std::marker::PhantomData;
use std::mem::swap;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_index::Query;
use parking_lot::Mutex;

use super::merge::{MergeExchange, MergeRequest, MergedQuery, QueryContext, merge};
use super::own_writes::OwnWrites;
use crate::answer_cursor::AnswerCursor;
use crate::find::{Answer, AnswerRef, Outcome};
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::paused_execution::PausedExecution;

/// The answers to a query inside a transaction, one by one in the query's order; made by
/// [`Transaction::answers`](crate::Transaction::answers).
///
/// They are those of the transaction at the time of that call: later writes of the transaction are not included.
pub struct TransactionAnswers<'t> {
    source: AnswersOfTransaction,
    /// The number of the transaction.
    number: u64,
    /// The transaction cannot commit while its answers are read.
    transaction: PhantomData<&'t ()>,
}

enum AnswersOfTransaction {
    /// The transaction has no writes to the collection: the answers are those of the snapshot.
    AtSnapshot(AnswerCursor),
    Merged {
        execution: PausedExecution,
        exchange: Arc<Mutex<MergeExchange>>,
        current: Answer,
    },
}

impl TransactionAnswers<'_> {
    /// Opens `query` with the own writes of the transaction to the collection. `options` have its snapshot.
    pub(super) fn open(
        collection: &Collection,
        query: &Query,
        options: FindOptions,
        own: Arc<OwnWrites>,
        context: QueryContext,
    ) -> Result<Self> {
        let number = context.transaction;
        if let Some(token) = query.token()
            && token.transaction() != Some(number)
        {
            return Err(Error::new(
                ErrorKind::Expired,
                "the cursor token is not one of this transaction: start the query again",
            ));
        }
        let transaction = PhantomData;
        if own.is_empty() {
            let cursor = collection.answers(&context.continued(query), &options)?;
            return Ok(Self { source: AnswersOfTransaction::AtSnapshot(cursor), number, transaction });
        }
        let (collection, query) = (collection.clone(), query.clone());
        let merged = MergedQuery { collection, query, options, own, context };
        let exchange = Arc::<Mutex<MergeExchange>>::default();
        let mut execution = PausedExecution::new(merge(merged, exchange.clone()));
        execution.resume()?;
        let source = AnswersOfTransaction::Merged { execution, exchange, current: Answer::default() };
        Ok(Self { source, number, transaction })
    }

    /// The next answer, lent until the following call; `None` if there are no more. The sequence number of a record that
    /// the transaction put is provisional.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading.
    #[allow(clippy::should_implement_trait)] // It lends the answer, which no `Iterator` can.
    pub fn next(&mut self) -> Result<Option<AnswerRef<'_>>> {
        match &mut self.source {
            AnswersOfTransaction::AtSnapshot(cursor) => cursor.next(),
            AnswersOfTransaction::Merged { execution, exchange, current } => {
                exchange.lock().request = MergeRequest::Answer;
                if !execution.resume()? {
                    return Ok(None);
                }
                swap(current, &mut exchange.lock().answer);
                Ok(Some(AnswerRef::of_answer(current)))
            }
        }
    }

    /// The statistics so far: the number of answers, the plan at the snapshot and its cost, and the cursor token that
    /// continues after the last answer in the same transaction. A query that only counts has no answers; its count is
    /// [`Outcome::count`] at the end.
    pub fn outcome(&mut self) -> Outcome {
        match &mut self.source {
            AnswersOfTransaction::AtSnapshot(cursor) => cursor.outcome().in_transaction(self.number),
            AnswersOfTransaction::Merged { execution, exchange, .. } => {
                exchange.lock().request = MergeRequest::Explain;
                // This request reads nothing and cannot fail. After the end, the last statistics remain.
                let _ = execution.resume();
                exchange.lock().explain.clone().into()
            }
        }
    }
}

impl fmt::Debug for TransactionAnswers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_merged = matches!(self.source, AnswersOfTransaction::Merged { .. });
        f.debug_struct("TransactionAnswers").field("is_merged", &is_merged).finish_non_exhaustive()
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
