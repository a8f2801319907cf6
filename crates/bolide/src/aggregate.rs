//! Aggregates of an attribute over the answers to a query.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bolide_base::{Error, Result};
use bolide_index::{AttributePath, Filter, Predicate, Query, RecordQuery, SortDirection, Value};

use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::options::IterOptions;

/// The values of an attribute in the answers to a query.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct AttributeSummary {
    /// Records that satisfy the query.
    pub records: u64,
    /// Values of the attribute in them, null included; equal values of one record count once.
    pub values: u64,
    /// Numbers among the values.
    pub numbers: u64,
    /// The sum of the numbers: the exact sum of the integers, rounded once, plus that of the others, rounded at each step.
    pub sum: f64,
    /// The exact sum, if all numbers are integers.
    pub integer_sum: Option<i128>,
    /// The smallest value, in the order of values of all types.
    pub min: Option<Value>,
    /// The largest value.
    pub max: Option<Value>,
}

impl AttributeSummary {
    /// The mean of the numbers; `None` without any.
    ///
    /// ```
    /// assert_eq!(bolide::AttributeSummary::default().mean(), None);
    /// ```
    pub fn mean(&self) -> Option<f64> {
        (self.numbers > 0).then(|| self.sum / self.numbers as f64)
    }

    fn add(&mut self, value: &Value) {
        self.values += 1;
        if self.min.as_ref().is_none_or(|min| value < min) {
            self.min = Some(value.clone());
        }
        if self.max.as_ref().is_none_or(|max| value > max) {
            self.max = Some(value.clone());
        }
    }
}

/// The sum of numbers.
#[derive(Debug, Default)]
struct NumberSum {
    numbers: u64,
    /// Exact: below 2^127 for 2^63 integers of 64 bits.
    integers: i128,
    floats: Option<f64>,
}

impl NumberSum {
    fn add(&mut self, value: &Value) {
        match value {
            Value::Int(value) => self.integers += i128::from(*value),
            Value::Uint(value) => self.integers += i128::from(*value),
            Value::Float(value) => self.floats = Some(self.floats.unwrap_or_default() + value),
            _ => return,
        }
        self.numbers += 1;
    }
}

impl Collection {
    /// Count, sum, minimum and maximum of the values at `path` in the answers to `query`, in one pass. Reads no records if
    /// an index includes the attribute, or sorts by it, and decides the predicates; see [`Query::select`]. Bounded memory.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query, Value};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// posts.put(b"2", br#"{"score":[4, 5]}"#)?;
    /// posts.put(b"3", b"{}")?;
    /// let scores = posts.summarize(&Query::new(), "score")?;
    /// assert_eq!((scores.records, scores.values, scores.integer_sum), (3, 3, Some(12)));
    /// assert_eq!((scores.max, scores.sum), (Some(Value::Int(5)), 12.0));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn summarize(&self, query: &Query, path: &str) -> Result<AttributeSummary> {
        let (mut summary, mut sum) = (AttributeSummary::default(), NumberSum::default());
        self.visit(&query.clone().with_records().select([path]), &FindOptions::default(), |answer| {
            summary.records += 1;
            for value in answer.values.iter().flatten() {
                summary.add(value);
                sum.add(value);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        summary.numbers = sum.numbers;
        summary.sum = sum.integers as f64 + sum.floats.unwrap_or_default();
        summary.integer_sum = Some(sum.integers).filter(|_| sum.floats.is_none());
        Ok(summary)
    }

    /// The smallest value at `path` among all records that satisfy `query`, in the order of values of all types; `None` if
    /// none has one. An index whose order is that of the attribute, such as `composite` on it, reads its first entries
    /// only.
    ///
    /// # Errors
    /// As [`find`](Self::find); `InvalidInput` for a query with a limit or a token.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options, Query, Value};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score".parse()?))?;
    /// for (key, score) in [(b"1", 3), (b"2", 1), (b"3", 2)] {
    ///     posts.put(key, format!(r#"{{"score":{score}}}"#).as_bytes())?;
    /// }
    /// assert_eq!(posts.smallest(&Query::new(), "score")?, Some(Value::Int(1)));
    /// assert_eq!(posts.largest(&Query::new(), "score")?, Some(Value::Int(3)));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn smallest(&self, query: &Query, path: &str) -> Result<Option<Value>> {
        Ok(first_values(self, query, path, SortDirection::Ascending)?.into_iter().min())
    }

    /// The largest value at `path`; see [`smallest`](Self::smallest).
    ///
    /// # Errors
    /// As [`smallest`](Self::smallest).
    pub fn largest(&self, query: &Query, path: &str) -> Result<Option<Value>> {
        Ok(first_values(self, query, path, SortDirection::Descending)?.into_iter().max())
    }

    /// The distinct values at `path` in the answers to `query`, ascending, each with the number of records that have it.
    /// Reads as [`summarize`](Self::summarize). Memory: all values, at most `max` of them.
    ///
    /// # Errors
    /// As [`find`](Self::find); `LimitExceeded` for more than `max` values.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query, Value};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"tags":["a","b"]}"#)?;
    /// posts.put(b"2", br#"{"tags":["b"]}"#)?;
    /// let tags = posts.distinct(&Query::new(), "tags[*]", 100)?;
    /// assert_eq!(tags, [(Value::from("a"), 1), (Value::from("b"), 2)]);
    /// assert!(posts.distinct(&Query::new(), "tags[*]", 1).is_err());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn distinct(&self, query: &Query, path: &str, max: usize) -> Result<Vec<(Value, u64)>> {
        let mut counts: BTreeMap<Value, u64> = BTreeMap::new();
        self.visit(&query.clone().with_records().select([path]), &FindOptions::default(), |answer| {
            for value in answer.values.iter().flatten() {
                if let Some(count) = counts.get_mut(value) {
                    *count += 1;
                    continue;
                }
                if counts.len() >= max {
                    let what = "the number of distinct values";
                    return Err(Error::limit_exceeded(what, max as u64 + 1, max as u64));
                }
                counts.insert(value.clone(), 1);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(counts.into_iter().collect())
    }
}

impl Collection {
    /// Those of `paths` at which no record has a value: often a name that is misspelled. Reads an index with the order of the
    /// attribute, otherwise records up to the first one with a value: all of them if there is none.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// ```
    /// use bolide::{AttributePath, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// let paths: [AttributePath; 2] = ["score".parse()?, "scroe".parse()?];
    /// assert_eq!(posts.without_values(&[&paths[0], &paths[1]])?, [&paths[1]]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn without_values<'p>(&self, paths: &[&'p AttributePath]) -> Result<Vec<&'p AttributePath>> {
        let mut missing = Vec::new();
        // Without an index that decides: one pass for all.
        let mut scanned = Vec::new();
        for path in paths {
            let query = Query::new().filter(Predicate::exists((*path).clone()).into()).keys_only();
            if self.estimate(&query)?.indexes.is_empty() {
                scanned.push((*path, query));
                continue;
            }
            let mut first = self.answers(&query.limit(1), &FindOptions::default())?;
            if first.next()?.is_none() {
                missing.push(*path);
            }
        }
        let set = self.state.indexes();
        let mut tests = Vec::with_capacity(scanned.len());
        for (path, query) in &scanned {
            tests.push((*path, RecordQuery::new(query, set.extractor().ok())?));
        }
        let mut records = self.cursor(&IterOptions::default())?;
        if !tests.is_empty() {
            records.seek_to_first()?;
        }
        while records.valid() && !tests.is_empty() {
            let mut found = None;
            for (number, (_, test)) in tests.iter_mut().enumerate() {
                if test.evaluate(records.value())? {
                    found = Some(number);
                }
            }
            match found {
                Some(number) => drop(tests.remove(number)),
                None => records.next()?,
            }
        }
        missing.extend(tests.into_iter().map(|(path, _)| path));
        Ok(missing)
    }
}

/// The values of the first record in an order by `path`.
fn first_values(
    collection: &Collection,
    query: &Query,
    path: &str,
    direction: SortDirection,
) -> Result<Vec<Value>> {
    if query.answer_limit().is_some() || query.token().is_some() || !query.sort_attributes().is_empty() {
        return Err(Error::invalid_input(
            "the smallest and the largest value are those of all answers: without limit, token and order",
        ));
    }
    let query = query
        .clone()
        .with_records()
        .filter(Filter::exists(path))
        .sort_by(path, direction)
        .limit(1)
        .select([path]);
    let first = collection.find(&query)?.into_vec().into_iter().next();
    Ok(first.and_then(|answer| answer.values.into_iter().next()).unwrap_or_default())
}
