//! The pull cursor of a query.
//!
//! # An owned cursor over borrowed parts
//! The driver's cursor borrows from its plan, which borrows from the indexes and the read view. [`execute`] owns all of
//! them as a [paused execution](crate::paused_execution). At each pause it has done what its cursor requested, and left the
//! result in the [`Exchange`]. So candidates are read from where the last answer left off, and nothing is read twice.

use std::fmt;
use std::mem::swap;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_index::{Explain, Lookup, Query, Row, RowRecord, RowSource, Value};
use bolide_lsm::ReadView;
use bolide_table::{ReadCounters, ValueRef};
use parking_lot::Mutex;

use crate::find::{Answer, AnswerRef, Outcome, usable_indexes};
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::index_set::IndexSet;
use crate::paused_execution::{PausedExecution, pause};

/// The answers to a query, one by one in its order; made by [`Collection::answers`].
///
/// The answers are those of one sequence number. As long as the cursor exists, it holds a view at that number, as a
/// [`Snapshot`](crate::Snapshot) does, and keeps the database open: drop it when done. On an index of kind `ps-tree` it
/// also delays the reuse of freed memory. Answers are computed when they are pulled. Memory is that of a window of
/// candidates, and of [`FindOptions::collect_bytes`] if the index does not yield the order of the query. With their number
/// grow only the set of answered writes, if an index may return a write several times, and the counts of a limit per value.
/// Writes and other queries may go on between two answers, also in the same thread.
///
/// After an error the cursor returns no further answers; [`outcome`](Self::outcome) still has the token to continue with,
/// if there was an answer before it.
pub struct AnswerCursor {
    execution: PausedExecution,
    exchange: Arc<Mutex<Exchange>>,
    /// The last answer.
    current: PulledAnswer,
    reads: ReadCounters,
}

/// What an execution and its cursor hand over.
#[derive(Default)]
struct Exchange {
    request: Request,
    answer: PulledAnswer,
    /// For [`Request::Explain`], and at the end.
    explain: Explain,
}

/// What a cursor requests from its execution.
#[derive(Clone, Copy, Default)]
enum Request {
    /// To choose a plan.
    #[default]
    Plan,
    /// The next answer.
    Answer,
    /// The statistics so far.
    Explain,
}

/// An answer whose memory is reused.
#[derive(Default)]
struct PulledAnswer {
    key: Vec<u8>,
    sequence: SequenceNumber,
    record: PulledRecord,
    /// A record that was in a buffer of the index.
    copied: Vec<u8>,
    values: Vec<Vec<Value>>,
}

#[derive(Default)]
enum PulledRecord {
    #[default]
    None,
    Fetched(ValueRef),
    Copied,
}

impl PulledAnswer {
    fn set(&mut self, row: Row<'_, ValueRef>) {
        self.key.clear();
        self.key.extend_from_slice(row.primary_key);
        self.sequence = row.sequence;
        self.record = match row.record {
            None => PulledRecord::None,
            Some(RowRecord::Fetched(record)) => PulledRecord::Fetched(record),
            Some(RowRecord::Borrowed(record)) => {
                self.copied.clear();
                self.copied.extend_from_slice(record);
                PulledRecord::Copied
            }
        };
        row.values.clone_into(&mut self.values);
    }

    fn as_ref(&self) -> AnswerRef<'_> {
        let record = match &self.record {
            PulledRecord::None => None,
            PulledRecord::Fetched(record) => Some(&**record),
            PulledRecord::Copied => Some(&self.copied[..]),
        };
        AnswerRef { key: &self.key, sequence: self.sequence, record, values: &self.values }
    }
}

impl AnswerCursor {
    fn open(collection: &Collection, query: &Query, options: &FindOptions) -> Result<Self> {
        collection.state.check_live()?;
        collection.state.count(|traffic| traffic.note_query(query));
        let view = match &options.snapshot {
            Some(snapshot) => snapshot.view_of(&collection.handle)?.clone(),
            None => Arc::new(collection.handle.engine.read_view()),
        };
        let exchange = Arc::<Mutex<Exchange>>::default();
        let execution = execute(collection.clone(), view, query.clone(), options.clone(), exchange.clone());
        let (execution, (current, reads)) = (PausedExecution::new(execution), Default::default());
        let mut cursor = Self { execution, exchange, current, reads };
        cursor.resume(Request::Plan)?;
        Ok(cursor)
    }

    /// The next answer, lent until the following call; `None` if there are no more. A counting query has no answers; its
    /// count is [`Outcome::count`] at the end.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading.
    #[allow(clippy::should_implement_trait)] // It lends the answer, which no `Iterator` can.
    pub fn next(&mut self) -> Result<Option<AnswerRef<'_>>> {
        // A record may pin its block.
        self.current.record = PulledRecord::None;
        if !self.resume(Request::Answer)? {
            return Ok(None);
        }
        swap(&mut self.current, &mut self.exchange.lock().answer);
        Ok(Some(self.current.as_ref()))
    }

    /// The statistics so far: the number of answers, the plan and its cost, and the cursor token that continues after the
    /// last answer. There is no token if no further answers exist; see [`Answers::next_token`](crate::Answers::next_token)
    /// for the state that it continues at.
    ///
    /// ```
    /// use bolide::{Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// for key in [b"1", b"2", b"3"] {
    ///     posts.put(key, br#"{"score":3}"#)?;
    /// }
    /// let query = Query::new().eq("score", 3);
    /// let mut answers = posts.answers(&query, &FindOptions::default())?;
    /// answers.next()?;
    /// let token = answers.outcome().next_token().cloned().expect("two more");
    /// drop(answers);
    /// let rest = posts.answers(&query.after(token), &FindOptions::default())?;
    /// let keys: Vec<Vec<u8>> = rest.into_iter().map(|answer| Ok(answer?.key)).collect::<bolide::Result<_>>()?;
    /// assert_eq!(keys, [b"2", b"1"]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn outcome(&mut self) -> Outcome {
        // This request reads nothing and cannot fail. After the end, the last statistics remain.
        let _ = self.resume(Request::Explain);
        let mut explain = self.exchange.lock().explain.clone();
        explain.reads = self.reads;
        explain.into()
    }

    /// Continues the execution until it has done what is requested. False if it has ended.
    fn resume(&mut self, request: Request) -> Result<bool> {
        self.exchange.lock().request = request;
        let before = ReadCounters::of_this_thread();
        let resumed = self.execution.resume();
        self.reads += ReadCounters::of_this_thread() - before;
        resumed
    }
}

/// Runs `query` at `view`, and does one request after the other until the answers end.
async fn execute(
    collection: Collection,
    view: Arc<ReadView>,
    query: Query,
    options: FindOptions,
    exchange: Arc<Mutex<Exchange>>,
) -> Result<()> {
    let mut answered = false;
    loop {
        // Loaded after the view: the writes that it contains are in every index of the set.
        let set = collection.state.indexes();
        let run = execute_among(&collection, &set, &view, &query, &options, &exchange, &mut answered);
        match run.await {
            Err(error) if collection.may_choose_again(&set, &error, answered) => {}
            other => return other,
        }
    }
}

async fn execute_among(
    collection: &Collection,
    set: &IndexSet,
    view: &ReadView,
    query: &Query,
    options: &FindOptions,
    exchange: &Mutex<Exchange>,
    answered: &mut bool,
) -> Result<()> {
    let usable = usable_indexes(set, query, view.sequence())?;
    let clock = collection.query_clock();
    let lookup = Lookup {
        view,
        table: collection.state.tree,
        extractor: set.extractor().ok(),
        indexes: &usable,
        options: collection.lookup_options(options, &clock),
    };
    let planned = lookup.plan(query)?;
    let mut rows = planned.rows()?;
    loop {
        let request = exchange.lock().request;
        match request {
            Request::Plan => {}
            Request::Explain => exchange.lock().explain = rows.explain(),
            Request::Answer => match rows.next_with(|row| exchange.lock().answer.set(row)) {
                Ok(Some(())) => *answered = true,
                Ok(None) => {
                    exchange.lock().explain = rows.finish();
                    return Ok(());
                }
                Err(error) => {
                    exchange.lock().explain = rows.finish();
                    return Err(error);
                }
            },
        }
        pause().await;
    }
}

impl fmt::Debug for AnswerCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerCursor").field("ended", &self.execution.has_ended()).finish_non_exhaustive()
    }
}

impl IntoIterator for AnswerCursor {
    type Item = Result<Answer>;
    type IntoIter = AnswerIter;

    fn into_iter(self) -> AnswerIter {
        AnswerIter { cursor: self }
    }
}

/// The answers to a query as an iterator of owned answers; made by [`AnswerCursor::into_iter`]. It ends after an error.
#[derive(Debug)]
pub struct AnswerIter {
    cursor: AnswerCursor,
}

impl AnswerIter {
    /// As [`AnswerCursor::outcome`].
    pub fn outcome(&mut self) -> Outcome {
        self.cursor.outcome()
    }
}

impl Iterator for AnswerIter {
    type Item = Result<Answer>;

    fn next(&mut self) -> Option<Result<Answer>> {
        self.cursor.next().map(|answer| answer.map(|answer| answer.to_answer())).transpose()
    }
}

impl std::iter::FusedIterator for AnswerIter {}

impl Collection {
    /// A cursor over the records that satisfy `query`, in its order: the same answers as those of [`find`](Self::find),
    /// pulled one by one in bounded memory. It is owned, may be sent to another thread, and may be dropped at any time.
    ///
    /// [`visit`](Self::visit) is somewhat cheaper for a query that is read to its end at once.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
    /// for key in [b"1", b"2", b"3"] {
    ///     posts.put(key, br#"{"author":"ann"}"#)?;
    /// }
    /// let mut answers = posts.answers(&Query::new().eq("author", "ann"), &FindOptions::default())?;
    /// while let Some(answer) = answers.next()? {
    ///     // A write between two answers is not seen: they are those of one moment.
    ///     posts.put(answer.key, br#"{"author":"bob"}"#)?;
    /// }
    /// assert_eq!(answers.outcome().count(), 3);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn answers(&self, query: &Query, options: &FindOptions) -> Result<AnswerCursor> {
        AnswerCursor::open(self, query, options)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use bolide_base::ErrorKind;

    use super::*;
    use crate::{Components, Db, Options};

    #[test]
    fn a_cursor_whose_query_panicked_does_not_look_complete() -> Result<()> {
        let db = Db::open_with("db", Options::default(), Components::in_memory())?;
        let c = db.create_collection("c", Default::default())?;
        c.put(b"1", br#"{"a":1}"#)?;
        let mut cursor = c.answers(&Query::new().eq("a", 1), &FindOptions::default())?;
        cursor.execution = PausedExecution::new(async { panic!("a fault of an index") });
        assert!(catch_unwind(AssertUnwindSafe(|| cursor.next().is_ok())).is_err());
        for _ in 0..2 {
            assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Internal);
        }
        drop(c);
        drop(cursor);
        db.close()
    }
}
