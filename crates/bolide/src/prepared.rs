//! Prepared query: prepared once, run for many values.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_index::{AttributePath, NewestKeys, NewestQuery, Query, Value};

use crate::find::{AnswerRef, Outcome};
use crate::find_newest::{DeliveredAnswers, IndexNames};
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::index_set::{Index, IndexSet};
use crate::schema::WatchedIndexes;
use crate::snapshot::Snapshot;

/// A prepared query: runs repeatedly, each time for another value of its first [`eq`](Query::eq). Made by
/// [`Collection::prepare`].
///
/// Building a query, choosing its index and building its statistics cost about as much as ten keys from an index in
/// memory. A prepared query does the first two once and the last on demand, and reuses its memory. The newest few
/// records or keys of a value from an index of kind `ps-tree` allocate nothing, except to fetch the records. Any other
/// query can be prepared too; it runs as in [`Collection::visit`].
///
/// One thread uses it at a time; each thread prepares its own. It keeps the database open, and the indexes of the last
/// run pinned. Drop it after the last run.
///
/// ```
/// use std::ops::ControlFlow;
/// use bolide::{CollectionOptions, Components, Db, FindOptions, Options, Query};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", CollectionOptions::default().index("author:ps-tree".parse()?))?;
/// for (key, author) in [("1", 7), ("2", 8), ("3", 7)] {
///     posts.put(key.as_bytes(), format!(r#"{{"author":{author}}}"#).as_bytes())?;
/// }
/// let newest = Query::new().eq("author", 0).limit(10).keys_only();
/// let mut newest = posts.prepare(newest, FindOptions::default())?;
/// let mut keys = Vec::new();
/// for author in [7, 8, 9] {
///     newest.visit(&author.into(), |answer| {
///         keys.push((author, answer.key.to_vec()));
///         Ok(ControlFlow::Continue(()))
///     })?;
/// }
/// assert_eq!(keys, [(7, b"3".to_vec()), (7, b"1".to_vec()), (8, b"2".to_vec())]);
/// # Ok::<(), bolide::Error>(())
/// ```
pub struct PreparedQuery {
    collection: Collection,
    options: FindOptions,
    /// With the value of the last run of the driver or the last call of [`outcome`](Self::outcome).
    query: Query,
    /// The query for a single index, if one index may answer it alone.
    single: Option<SingleIndexQuery>,
    indexes: WatchedIndexes,
    /// The index set of the last resolution, and the position of the index that answers.
    resolved: Option<(Arc<IndexSet>, Option<usize>)>,
    found: NewestKeys,
    /// The encoded value of the last run.
    value: Vec<u8>,
    last: LastRun,
    /// The number of the transaction of the last run.
    transaction: Option<u64>,
}

/// A query for the newest few records of any one value.
struct SingleIndexQuery {
    path: AttributePath,
    limit: usize,
    records: bool,
}

/// Gives a prepared query its own snapshot back, also if `each` panics.
struct RestoredSnapshot<'p> {
    prepared: &'p mut PreparedQuery,
    before: Option<Snapshot>,
}

impl Drop for RestoredSnapshot<'_> {
    fn drop(&mut self) {
        self.prepared.options.snapshot = self.before.take();
    }
}

/// The result of the last run.
#[expect(clippy::large_enum_variant, reason = "a box would cost the shortest queries an allocation")]
enum LastRun {
    None,
    Index(DeliveredAnswers),
    Driver(Outcome),
}

impl Collection {
    /// Prepares `query` to run for many values: the value of its first [`eq`](Query::eq) is replaced each time.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for one without such a predicate, and for one that continues after a
    /// cursor token.
    ///
    /// ```
    /// use bolide::{Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// assert!(posts.prepare(Query::new().eq("author", 0).limit(10), FindOptions::default()).is_ok());
    /// assert!(posts.prepare(Query::new().limit(10), FindOptions::default()).is_err());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn prepare(&self, query: Query, options: FindOptions) -> Result<PreparedQuery> {
        query.check()?;
        if query.token().is_some() {
            return Err(Error::invalid_input(
                "a prepared query starts with its first answer: it takes no token",
            ));
        }
        // Fails if there is no value to replace.
        query.clone().set_equal(0)?;
        let single = query.newest_query().filter(|_| !options.measure).map(|newest| SingleIndexQuery {
            path: newest.path.clone(),
            limit: newest.limit,
            records: newest.records,
        });
        Ok(PreparedQuery {
            collection: self.clone(),
            options,
            query,
            single,
            indexes: self.state.indexes_watched(),
            resolved: None,
            found: NewestKeys::new(),
            value: Vec::new(),
            last: LastRun::None,
            transaction: None,
        })
    }
}

impl PreparedQuery {
    /// Runs the query for `value`: passes the answers to `each`, one by one in the query's order and without a copy,
    /// until it breaks or fails. Returns their number; [`outcome`](Self::outcome) returns the other statistics.
    ///
    /// # Errors
    /// As [`Collection::find`], and what `each` returns; `InvalidInput` for NaN.
    pub fn visit(
        &mut self,
        value: &Value,
        mut each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        self.forget_last();
        self.value.clear();
        value.encode(&mut self.value)?;
        // Otherwise `visit` counts it.
        if self.single.is_some() {
            self.collection.state.count(|traffic| traffic.note_query(&self.query));
        }
        if let Some(delivered) = self.query_index_alone(&mut each)? {
            let answers = delivered.progress.answers();
            self.last = LastRun::Index(delivered);
            return Ok(answers);
        }
        self.query.set_equal(value.clone())?;
        let outcome = match self.single {
            Some(_) => self.collection.find_by_driver(&self.query, &self.options, &mut each)?,
            None => self.collection.visit(&self.query, &self.options, each)?,
        };
        let answers = outcome.count();
        self.last = LastRun::Driver(outcome);
        Ok(answers)
    }

    #[inline]
    fn forget_last(&mut self) {
        self.last = LastRun::None;
        self.transaction = None;
    }

    pub(crate) fn collection(&self) -> &Collection {
        &self.collection
    }

    pub(crate) fn options(&self) -> &FindOptions {
        &self.options
    }

    /// The query for `value`.
    pub(crate) fn query_for(&mut self, value: &Value) -> Result<&Query> {
        self.forget_last();
        self.query.set_equal(value.clone())?;
        Ok(&self.query)
    }

    /// As [`visit`](Self::visit), at the snapshot of the transaction with this number.
    pub(crate) fn visit_in_transaction(
        &mut self,
        snapshot: &Snapshot,
        number: u64,
        value: &Value,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        let before = self.options.snapshot.replace(snapshot.clone());
        let restored = RestoredSnapshot { prepared: self, before };
        let result = restored.prepared.visit(value, each);
        restored.prepared.transaction = Some(number);
        result
    }

    /// Sets the outcome of a run in a transaction.
    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        self.last = LastRun::Driver(outcome);
    }

    #[inline]
    fn query_index_alone(
        &mut self,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<DeliveredAnswers>> {
        let Self { collection, options, query, single, indexes, resolved, found, value, .. } = self;
        let Some(SingleIndexQuery { path, limit, records }) = single else { return Ok(None) };
        let run = &mut |newest: &NewestQuery<'_>, at: SequenceNumber, found: &mut NewestKeys| {
            // Loaded after the number: writes up to it are in every index of the set.
            let Some(index) = index_now(indexes, resolved, query, newest.path) else { return Ok(false) };
            Ok(index.progress.serves(at) && collection.query_index(index, newest, at, found)?)
        };
        let newest = NewestQuery { path, value, limit: *limit, records: *records };
        found.shrink();
        collection.answer_newest(newest, options, found, run, each)
    }

    /// Reads as of `snapshot` from now on; with `None`, as of the moment of each run.
    pub fn set_snapshot(&mut self, snapshot: Option<&Snapshot>) {
        self.options.snapshot = snapshot.cloned();
    }

    /// The number of answers of the last run, their cost, and the cursor token of the next page. `None` before the
    /// first run, and after one that failed. Cost: what [`visit`](Self::visit) saves.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use bolide::{CollectionOptions, Components, Db, FindOptions, Options, Query};
    /// # let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// # let posts = db.create_collection("posts", CollectionOptions::default().index("author:ps-tree".parse()?))?;
    /// # (1..=3_u8).try_for_each(|key| posts.put(&[key], br#"{"author":"ann"}"#))?;
    /// let query = Query::new().eq("author", "").limit(2);
    /// let mut newest = posts.prepare(query.clone(), FindOptions::default())?;
    /// newest.visit(&"ann".into(), |_| Ok(ControlFlow::Continue(())))?;
    /// let outcome = newest.outcome().expect("a successful run");
    /// assert_eq!(outcome.explain().index.as_deref(), Some("author"));
    /// let rest = Query::new().eq("author", "ann").limit(2).after(outcome.next_token().cloned().expect("a third"));
    /// assert_eq!(posts.find(&rest)?[0].key, [1]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn outcome(&mut self) -> Option<Outcome> {
        let delivered = match &self.last {
            LastRun::None => return None,
            LastRun::Driver(outcome) => {
                let outcome = outcome.clone();
                return Some(match self.transaction {
                    Some(number) => outcome.in_transaction(number),
                    None => outcome,
                });
            }
            LastRun::Index(delivered) => delivered.clone(),
        };
        let (set, index) = self.resolved.as_ref()?;
        let index = set.all().get((*index)?)?;
        let (value, _) = Value::decode(&self.value)?;
        self.query.set_equal(value).ok()?;
        let snapshot = self.options.snapshot.as_ref().map(Snapshot::sequence);
        let next = delivered.progress.token(&self.query, snapshot);
        let next = match self.transaction {
            Some(number) => next.map(|token| token.in_transaction(number)),
            None => next,
        };
        Some(IndexNames::of(index).statistics(delivered, &self.found, next).into())
    }
}

/// The single index on `path` that may answer `query` alone, if one exists now.
#[inline]
fn index_now<'r>(
    indexes: &mut WatchedIndexes,
    resolved: &'r mut Option<(Arc<IndexSet>, Option<usize>)>,
    query: &Query,
    path: &AttributePath,
) -> Option<&'r Index> {
    let set = indexes.load();
    if resolved.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, set)) {
        *resolved = Some((set.clone(), resolve(set, query, path)));
    }
    let (set, index) = resolved.as_ref()?;
    set.all().get((*index)?).map(|index| &**index)
}

/// The position of the index of a set that is the only one on `path`, and has no other attribute. An index that is
/// being built may not answer yet; among several indexes, the driver chooses.
#[cold]
fn resolve(set: &IndexSet, query: &Query, path: &AttributePath) -> Option<usize> {
    let of_path = |index: &Index| index.replaces.is_none() && index.spec().attributes().first() == Some(path);
    let mut on_path = set.all().iter().enumerate().filter(|(_, index)| of_path(index));
    let (at, index) = on_path.next().filter(|(_, index)| index.spec().attributes().len() == 1)?;
    let is_allowed = query.forced_index().is_none_or(|name| name == index.name);
    (on_path.next().is_none() && is_allowed && set.extractor().is_ok()).then_some(at)
}

impl fmt::Debug for PreparedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQuery")
            .field("collection", &self.collection)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}
