//! Queries of a collection: glue between a collection and the lookup driver.

use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::sync::{Arc, OnceLock};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_index::{
    CursorToken, Explain, Lookup, LookupOptions, NewestStatistics, Query, Row, SecondaryIndex, Value,
};
use bolide_lsm::ReadView;

use crate::catalog::IndexState;
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::index_set::IndexSet;
use crate::snapshot::Snapshot;

/// A record that satisfies a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The record's key.
    pub key: Vec<u8>,
    /// The sequence number of the write that put the record: larger ones are newer.
    pub sequence: SequenceNumber,
    /// The record; `None` for [`Query::keys_only`] and [`Query::select`].
    pub record: Option<Vec<u8>>,
    /// The values at the paths of [`Query::select`], path by path: none for an absent attribute, several for an
    /// array. Empty for other queries.
    pub values: Vec<Vec<Value>>,
}

/// A record that satisfies a query, lent without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerRef<'a> {
    /// The record's key.
    pub key: &'a [u8],
    /// The sequence number of the write that put the record: larger ones are newer.
    pub sequence: SequenceNumber,
    /// The record; `None` for [`Query::keys_only`] and [`Query::select`].
    pub record: Option<&'a [u8]>,
    /// As in [`Answer::values`].
    pub values: &'a [Vec<Value>],
}

impl<'a> AnswerRef<'a> {
    #[inline]
    pub(crate) fn of<V: Deref<Target = [u8]>>(row: &'a Row<'_, V>) -> Self {
        let record = row.record.as_deref();
        Self { key: row.primary_key, sequence: row.sequence, record, values: row.values }
    }

    pub(crate) fn of_answer(answer: &'a Answer) -> Self {
        let Answer { key, sequence, record, values } = answer;
        Self { key, sequence: *sequence, record: record.as_deref(), values }
    }

    /// An owned copy.
    pub fn to_answer(&self) -> Answer {
        Answer {
            key: self.key.to_vec(),
            sequence: self.sequence,
            record: self.record.map(<[u8]>::to_vec),
            values: self.values.to_vec(),
        }
    }
}

/// The answers to a query, in its order, with what they cost. Derefs to a slice of [`Answer`].
///
/// ```
/// use bolide::{CollectionOptions, Components, Db, Options, Query};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", CollectionOptions::default().index("subreddit".parse()?))?;
/// posts.put(b"1", br#"{"subreddit":"rust"}"#)?;
/// posts.put(b"2", br#"{"subreddit":"rust"}"#)?;
/// let answers = posts.find(&Query::new().eq("subreddit", "rust").keys_only())?;
/// assert_eq!(answers.explain().index.as_deref(), Some("subreddit"));
/// let keys: Vec<Vec<u8>> = answers.into_iter().map(|answer| answer.key).collect();
/// assert_eq!(keys, [b"2", b"1"]);
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Answers {
    answers: Vec<Answer>,
    outcome: Outcome,
}

/// The statistics of the answers to a query: their number, their cost, and the cursor token of the next page.
#[derive(Debug, Clone)]
pub struct Outcome(AnswerSource);

impl From<NewestStatistics> for Outcome {
    fn from(statistics: NewestStatistics) -> Self {
        Self(AnswerSource::Index(statistics, OnceLock::new()))
    }
}

impl From<Explain> for Outcome {
    fn from(explain: Explain) -> Self {
        Self(AnswerSource::Driver(Box::new(explain)))
    }
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a box would cost the shortest queries an allocation")]
enum AnswerSource {
    Driver(Box<Explain>),
    /// Answered by a single index; the explanation is built on demand.
    Index(NewestStatistics, OnceLock<Box<Explain>>),
}

impl Answers {
    pub(crate) fn new(answers: Vec<Answer>, outcome: Outcome) -> Self {
        Self { answers, outcome }
    }

    /// How many records satisfy the query, up to its limit; also for [`Query::count`], which returns no answers.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// assert_eq!(posts.find(&Query::new().range("score", 1..10).count())?.count(), 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn count(&self) -> u64 {
        self.outcome.count()
    }

    /// The plan and what it cost. Times are measured only with [`FindOptions::measure`].
    pub fn explain(&self) -> &Explain {
        self.outcome.explain()
    }

    /// The cursor token of the next page: with it, [`Query::after`] returns the answers after the last of these. `None`
    /// if there are no more.
    ///
    /// The token of a query at a [`Snapshot`] continues at that snapshot, which must be passed again; all pages
    /// together are exactly one answer. Without the snapshot the token has expired ([`ErrorKind::Expired`]). The token
    /// of a query at the latest state continues at the latest state of its next use, also after a reopen, after the
    /// same position: a record that was written in between has another position in the order.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// for key in [b"1", b"2", b"3"] {
    ///     posts.put(key, br#"{"score":3}"#)?;
    /// }
    /// let snapshot = db.snapshot();
    /// let query = Query::new().eq("score", 3).limit(2);
    /// let first = posts.find_at(&snapshot, &query)?;
    /// let token = first.next_token().cloned().expect("there is a third");
    /// posts.delete(b"1")?;
    /// let text = token.to_string();
    /// let rest = posts.find_at(&snapshot, &query.after(text.parse()?))?;
    /// assert_eq!((rest[0].key.as_slice(), rest.next_token()), (&b"1"[..], None));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn next_token(&self) -> Option<&CursorToken> {
        self.outcome.next_token()
    }

    /// The answers without the statistics.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// assert!(posts.find(&Query::new())?.into_vec().is_empty());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn into_vec(self) -> Vec<Answer> {
        self.answers
    }
}

impl Outcome {
    /// How many records satisfy the query, up to its limit.
    pub fn count(&self) -> u64 {
        match &self.0 {
            AnswerSource::Driver(explain) => explain.answers,
            AnswerSource::Index(statistics, _) => statistics.answers,
        }
    }

    /// The plan and what it cost. Times are measured only with [`FindOptions::measure`].
    pub fn explain(&self) -> &Explain {
        match &self.0 {
            AnswerSource::Driver(explain) => explain,
            AnswerSource::Index(statistics, explain) => {
                explain.get_or_init(|| Box::new(statistics.explain()))
            }
        }
    }

    /// With the token as one of the transaction with this number.
    pub(crate) fn in_transaction(mut self, number: u64) -> Self {
        let next = match &mut self.0 {
            AnswerSource::Driver(explain) => &mut explain.next,
            AnswerSource::Index(statistics, explain) => {
                explain.take();
                &mut statistics.next
            }
        };
        *next = next.take().map(|token| token.in_transaction(number));
        self
    }

    /// As [`explain`](Self::explain), owned.
    pub fn into_explain(self) -> Explain {
        match self.0 {
            AnswerSource::Driver(explain) => *explain,
            AnswerSource::Index(statistics, _) => statistics.explain(),
        }
    }

    /// The cursor token of the next page; see [`Answers::next_token`].
    pub fn next_token(&self) -> Option<&CursorToken> {
        match &self.0 {
            AnswerSource::Driver(explain) => explain.next.as_ref(),
            AnswerSource::Index(statistics, _) => statistics.next.as_ref(),
        }
    }
}

impl Deref for Answers {
    type Target = [Answer];

    fn deref(&self) -> &[Answer] {
        &self.answers
    }
}

impl IntoIterator for Answers {
    type Item = Answer;
    type IntoIter = std::vec::IntoIter<Answer>;

    fn into_iter(self) -> Self::IntoIter {
        self.answers.into_iter()
    }
}

impl<'a> IntoIterator for &'a Answers {
    type Item = &'a Answer;
    type IntoIter = std::slice::Iter<'a, Answer>;

    fn into_iter(self) -> Self::IntoIter {
        self.answers.iter()
    }
}

impl Collection {
    /// The records that satisfy `query`, newest first unless it sets another order, all at one sequence number.
    ///
    /// The plan is chosen by its estimated cost: one index, several intersected, or a scan of the collection, also if
    /// no index serves; [`Explain`] reports it. All answers are in memory at a time; use [`answers`](Self::answers) or
    /// [`find_each`](Self::find_each) for queries without a limit.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for a cursor token of another query, for predicates on bytes without an
    /// extractor, or if the index that the query names cannot serve it; `NotFound` if there is no such index or the
    /// collection was dropped; `Expired` for a cursor token of a snapshot that is not passed; `Conflict` while the
    /// index is being built; `Corruption` or `Io` from reading.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options, Order, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let options = CollectionOptions::default().index("subreddit".parse()?).index("score".parse()?);
    /// let posts = db.create_collection("posts", options)?;
    /// for (key, score) in [("a", 5), ("b", 15), ("c", 12), ("d", 50)] {
    ///     posts.put(key.as_bytes(), format!(r#"{{"subreddit":"rust","score":{score}}}"#).as_bytes())?;
    /// }
    /// let query = Query::new().eq("subreddit", "rust").range("score", 10..=20).limit(10);
    /// let keys = |query: &Query| -> bolide::Result<Vec<_>> {
    ///     Ok(posts.find(query)?.into_iter().map(|answer| answer.key).collect())
    /// };
    /// assert_eq!(keys(&query)?, [b"c", b"b"]);
    /// assert_eq!(keys(&query.order(Order::ValueDescending))?, [b"b", b"c"]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn find(&self, query: &Query) -> Result<Answers> {
        self.find_with(query, &FindOptions::default())
    }

    /// The records that satisfied `query` when `snapshot` was taken; see [`find`](Self::find).
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// let before = db.snapshot();
    /// posts.delete(b"1")?;
    /// assert_eq!(posts.find_at(&before, &Query::new().eq("score", 3))?.len(), 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn find_at(&self, snapshot: &Snapshot, query: &Query) -> Result<Answers> {
        self.find_with(query, &FindOptions::default().snapshot(snapshot))
    }

    /// The records that satisfy `query`, with settings; see [`find`](Self::find).
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_with(&self, query: &Query, options: &FindOptions) -> Result<Answers> {
        let mut answers = Vec::with_capacity(query.answer_limit().unwrap_or(0).min(64));
        let outcome = self.visit(query, options, |answer| {
            answers.push(answer.to_answer());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Answers { answers, outcome })
    }

    /// Passes the records that satisfy `query` to `each`, one by one in the query's order, until it breaks or fails.
    /// Memory is bounded for any number of records. Returns the plan and its cost.
    ///
    /// # Errors
    /// As [`find`](Self::find), and the errors of `each`.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// let mut bytes = 0;
    /// let explain = posts.find_each(&Query::new(), &FindOptions::default(), |answer| {
    ///     bytes += answer.record.map_or(0, |record| record.len());
    ///     Ok(ControlFlow::Continue(()))
    /// })?;
    /// assert_eq!((bytes, explain.answers), (11, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn find_each(
        &self,
        query: &Query,
        options: &FindOptions,
        mut each: impl FnMut(Answer) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        self.visit(query, options, |answer| each(answer.to_answer())).map(Outcome::into_explain)
    }

    /// As [`find_each`](Self::find_each), but keys and records are lent instead of copied: the cheapest way to query.
    /// Returns the statistics.
    ///
    /// # Errors
    /// As [`find_each`](Self::find_each).
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{CollectionOptions, Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
    /// posts.put(b"1", br#"{"author":"ann"}"#)?;
    /// posts.put(b"2", br#"{"author":"ann"}"#)?;
    /// let mut keys = Vec::new();
    /// let query = Query::new().eq("author", "ann").limit(10).keys_only();
    /// let outcome = posts.visit(&query, &FindOptions::default(), |answer| {
    ///     keys.extend_from_slice(answer.key);
    ///     Ok(ControlFlow::Continue(()))
    /// })?;
    /// assert_eq!((keys.as_slice(), outcome.count()), (&b"21"[..], 2));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn visit(
        &self,
        query: &Query,
        options: &FindOptions,
        mut each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Outcome> {
        self.state.count(|traffic| traffic.note_query(query));
        match self.find_newest(query, options, &mut each)? {
            Some(statistics) => Ok(statistics.into()),
            None => self.find_by_driver(query, options, &mut each),
        }
    }

    /// Runs `query` with the lookup driver.
    pub(crate) fn find_by_driver(
        &self,
        query: &Query,
        options: &FindOptions,
        each: &mut dyn FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Outcome> {
        loop {
            self.state.check_live()?;
            let latest;
            let view = match &options.snapshot {
                Some(snapshot) => &**snapshot.view_of(&self.handle)?,
                None => {
                    latest = self.handle.engine.read_view();
                    &latest
                }
            };
            // Loaded after the view: the writes that it contains are in every index of the set.
            let set = self.state.indexes();
            let mut answered = false;
            let found = self.find_among(&set, view, query, options, &mut |answer| {
                answered = true;
                each(answer)
            });
            match found {
                Err(error) if self.may_choose_again(&set, &error, answered) => {}
                other => return other.map(Outcome::from),
            }
        }
    }

    /// Whether a query that failed with `error` among the indexes of `set` may choose another plan: before its first
    /// answer.
    pub(crate) fn may_choose_again(&self, set: &Arc<IndexSet>, error: &Error, answered: bool) -> bool {
        // An index was dropped between its choice and its first read.
        let was_dropped = error.kind() == ErrorKind::NotFound
            && !answered
            && !Arc::ptr_eq(set, &self.state.indexes_guard());
        // Another plan avoids the index whose file is damaged.
        was_dropped || self.handle.engine.isolate_damaged(&self.state, error) && !answered
    }

    fn find_among(
        &self,
        set: &IndexSet,
        view: &ReadView,
        query: &Query,
        options: &FindOptions,
        each: &mut dyn FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let usable = usable_indexes(set, query, view.sequence())?;
        let clock = self.query_clock();
        let lookup = Lookup {
            view,
            table: self.state.tree,
            extractor: set.extractor().ok(),
            indexes: &usable,
            options: self.lookup_options(options, &clock),
        };
        lookup.run(query, |row| each(AnswerRef::of(&row)))
    }

    /// A clock in nanoseconds.
    pub(crate) fn query_clock(&self) -> impl Fn() -> u64 + Sync + '_ {
        let runtime = &self.handle.engine.components.runtime;
        || runtime.now_micros().saturating_mul(1_000)
    }

    /// The settings of the lookup driver for a query with `options`; stages are measured with `clock`.
    pub(crate) fn lookup_options<'o>(
        &'o self,
        options: &FindOptions,
        clock: &'o (dyn Fn() -> u64 + Sync),
    ) -> LookupOptions<'o> {
        let mut lookup_options = LookupOptions::default();
        lookup_options.collect_bytes = options.collect_bytes;
        lookup_options.is_snapshot = options.snapshot.is_some();
        lookup_options.fetch = self.handle.engine.fetching.options(options.fetch_settings());
        lookup_options.memory = Some(self.handle.engine.store.memory_budget());
        lookup_options.clock = options.measure.then_some(clock);
        lookup_options
    }
}

/// The indexes that `query` may use at `sequence`.
///
/// # Errors
/// Why the index that the query names cannot be used, if it cannot.
pub(crate) fn usable_indexes<'s>(
    set: &'s IndexSet,
    query: &Query,
    sequence: SequenceNumber,
) -> Result<Vec<&'s dyn SecondaryIndex<ReadView>>> {
    check_forced_index(set, query, sequence)?;
    let usable = set.all().iter().filter(|index| index.replaces.is_none() && index.progress.serves(sequence));
    Ok(usable.map(|index| &*index.structure).collect())
}

/// Reports why the index that a query names cannot be used at `sequence`, if it cannot.
fn check_forced_index(set: &IndexSet, query: &Query, sequence: SequenceNumber) -> Result<()> {
    let Some(name) = query.forced_index() else { return Ok(()) };
    // The driver reports an index that does not exist.
    let Some(index) = set.visible().find(|index| index.name == name) else { return Ok(()) };
    if index.progress.serves(sequence) {
        return Ok(());
    }
    if let Some(damage) = index.progress.damage() {
        return Err(damage);
    }
    Err(match index.progress.state() {
        IndexState::Building => {
            Error::new(ErrorKind::Conflict, format!("the index {name:?} is still being built"))
        }
        IndexState::Failed => {
            let what = format!("the index {name:?} could not be built: rebuild or drop it");
            Error::new(ErrorKind::Conflict, what)
        }
        // Its damage was returned above.
        IndexState::Damaged => Error::new(ErrorKind::Corruption, format!("the index {name:?} is damaged")),
        IndexState::Ready => Error::invalid_input(format!("the snapshot is older than the index {name:?}")),
    })
}

impl fmt::Display for Answer {
    /// Key, sequence number and record, as text where they are text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", crate::key::KeyFormat::Bytes.show(&self.key), self.sequence)?;
        match &self.record {
            Some(record) => write!(f, " {}", String::from_utf8_lossy(record)),
            None => Ok(()),
        }
    }
}
