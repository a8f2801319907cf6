//! A question that is made ready once and asked about many values.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_index::{AttributePath, CursorToken, NewestKeys, NewestQuestion, Query, Value};

use crate::find::{AnswerRef, FindOptions, Outcome};
use crate::find_newest::{Given, Names};
use crate::handle::Collection;
use crate::index_set::{Index, IndexSet};
use crate::schema::WatchedIndexes;
use crate::snapshot::Snapshot;

/// A query that is asked again and again, each time for another value of its first [`eq`](Query::eq); made by
/// [`Collection::prepare`].
///
/// Building a query, finding the index for it and telling of its answers cost about as much as ten keys from an index in
/// memory. Here the first two are done once, the last on demand, and memory is used again: for the newest few records of a
/// value, or their keys, from an index of kind `ps-tree` a question takes none, but for what fetching the records needs.
/// Any other query can be prepared too; it is answered as [`Collection::visit`] answers it.
///
/// One thread asks at a time; each thread prepares its own. It keeps the database open, and the indexes that the last
/// question saw. Drop it when it is not asked any more.
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
    /// With the value of the last question that the driver answered, or was told of.
    query: Query,
    /// What it asks, if an index may answer it alone.
    plain: Option<Plain>,
    indexes: WatchedIndexes,
    /// The indexes that were looked through, and which of them is asked.
    resolved: Option<(Arc<IndexSet>, Option<usize>)>,
    found: NewestKeys,
    /// The value of the last question, encoded.
    value: Vec<u8>,
    last: Last,
}

/// A question for the newest few records of one value, whichever that is.
struct Plain {
    path: AttributePath,
    limit: usize,
    records: bool,
}

/// What is known of the last question.
enum Last {
    Unasked,
    Index(Given),
    Driver(Outcome),
}

impl Collection {
    /// Makes `query` ready to be asked about many values: that of its first [`eq`](Query::eq) is replaced each time.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for one without such a predicate, and for one that goes on behind a cursor
    /// token.
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
                "a prepared query begins with its first answer: it takes no token",
            ));
        }
        // Fails where there is no value to be replaced.
        query.clone().set_equal(0)?;
        let plain = query.newest_of_value().filter(|_| !options.measure).map(|question| Plain {
            path: question.path.clone(),
            limit: question.limit,
            records: question.records,
        });
        Ok(PreparedQuery {
            collection: self.clone(),
            options,
            query,
            plain,
            indexes: self.state.indexes_watched(),
            resolved: None,
            found: NewestKeys::new(),
            value: Vec::new(),
            last: Last::Unasked,
        })
    }
}

impl PreparedQuery {
    /// Asks about `value`: hands the answers to `each`, one by one in the query's order and where they lie, until it
    /// breaks or fails. Returns how many there were; [`outcome`](Self::outcome) tells the rest.
    ///
    /// # Errors
    /// As [`Collection::find`], and what `each` returns; `InvalidInput` for NaN.
    pub fn visit(
        &mut self,
        value: &Value,
        mut each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        self.last = Last::Unasked;
        self.value.clear();
        value.encode(&mut self.value)?;
        let mut answered = false;
        let given = self.prefetch_index_alone(|answer| {
            answered = true;
            each(answer)
        });
        if let Some(given) = self.collection.without_damaged(given, answered)? {
            let answers = given.answers;
            self.last = Last::Index(given);
            return Ok(answers);
        }
        self.query.set_equal(value.clone())?;
        let outcome = match self.plain {
            Some(_) => self.collection.find_by_driver(&self.query, &self.options, &mut each)?,
            None => self.collection.visit(&self.query, &self.options, each)?,
        };
        let answers = outcome.count();
        self.last = Last::Driver(outcome);
        Ok(answers)
    }

    #[inline]
    fn prefetch_index_alone(
        &mut self,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Given>> {
        let Self { collection, options, query, plain, indexes, resolved, found, value, .. } = self;
        let Some(Plain { path, limit, records }) = plain else { return Ok(None) };
        let ask = &mut |question: &NewestQuestion<'_>, at: SequenceNumber, found: &mut NewestKeys| {
            // Later than the number: writes up to it are in every index that is still here.
            let Some(index) = index_now(indexes, resolved, query, question.path) else { return Ok(false) };
            Ok(index.progress.serves(at) && collection.prefetch_index(index, question, at, found)?)
        };
        let question = NewestQuestion { path, value, limit: *limit, records: *records };
        found.shrink();
        collection.answer_newest(question, options, found, ask, each)
    }

    /// Asks as of `snapshot` from now on, or as of the moment of each question.
    pub fn set_snapshot(&mut self, snapshot: Option<&Snapshot>) {
        self.options.snapshot = snapshot.cloned();
    }

    /// The number of answers to the last question, what they cost, and where a further query goes on; `None` before the
    /// first one, and after one that failed. Cost: what [`visit`](Self::visit) saves.
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
    /// let outcome = newest.outcome().expect("it was asked");
    /// assert_eq!(outcome.explain().index.as_deref(), Some("author"));
    /// let rest = Query::new().eq("author", "ann").limit(2).after(outcome.next_token().cloned().expect("a third"));
    /// assert_eq!(posts.find(&rest)?[0].key, [1]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn outcome(&mut self) -> Option<Outcome> {
        let given = match &self.last {
            Last::Unasked => return None,
            Last::Driver(outcome) => return Some(outcome.clone()),
            Last::Index(given) => given.clone(),
        };
        let (set, index) = self.resolved.as_ref()?;
        let index = set.all().get((*index)?)?;
        let (value, _) = Value::decode(&self.value)?;
        self.query.set_equal(value).ok()?;
        let snapshot = self.options.snapshot.as_ref().map(Snapshot::sequence);
        let next = given.last.map(|last| CursorToken::behind(&self.query, snapshot, last));
        Some(Names::of(index).told(given, &self.found, next).into())
    }
}

/// The one index on `path` that may answer `query` alone, if there is one now.
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

/// Which of the indexes of a set is the only one on `path`, and of nothing else. Where it is still being built there may be
/// no answer from it yet; where there are several, the driver chooses.
#[cold]
fn resolve(set: &IndexSet, query: &Query, path: &AttributePath) -> Option<usize> {
    let of_path = |index: &Index| index.replaces.is_none() && index.spec().attributes().first() == Some(path);
    let mut on_path = set.all().iter().enumerate().filter(|(_, index)| of_path(index));
    let (at, index) = on_path.next().filter(|(_, index)| index.spec().attributes().len() == 1)?;
    let is_wanted = query.forced_index().is_none_or(|name| name == index.name);
    (on_path.next().is_none() && is_wanted && set.extractor().is_ok()).then_some(at)
}

impl fmt::Debug for PreparedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQuery")
            .field("collection", &self.collection)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}
