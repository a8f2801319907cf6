//! Comparison of a database with a model: every record, every index, and the deep check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use bolide::{
    Answer, Answers, Collection, Db, ErrorKind, Filter, IterOptions, Order, Point, Query, Rect, Snapshot,
    SortDirection, Value,
};
use bolide_storage::SimRng;
use serde_json::json;

use crate::failure::StepFailure;
use crate::flawed::queries::{altered_answers, evaluated};
use crate::model::{CollectionModel, Model};
use crate::model_query::ModelFilter;
use crate::model_query::{AnswerContents, AnswerOrder, ModelQuery, QueryCondition, SortedBy};
use crate::rows::ModelRow;
use crate::rule::{Rule, broken_by_answers};
use crate::seeds::Outcome;
use crate::value::{answer_values_at, compare as compare_values, is_spatial, part_at, same_type};

/// The contents of a database, read by full scans.
#[derive(Debug)]
pub struct Observation {
    collections: BTreeMap<String, Contents>,
}

#[derive(Debug)]
struct Contents {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    indexes: BTreeSet<String>,
}

/// Reads the contents of `db`.
pub fn observe(db: &Db) -> bolide::Result<Observation> {
    let mut collections = BTreeMap::new();
    for name in db.collections() {
        let collection = db.collection(&name)?;
        let rows = collection.iter_with(&IterOptions::default())?.collect::<bolide::Result<_>>()?;
        let indexes = collection.indexes().iter().map(|index| index.name().to_owned()).collect();
        collections.insert(name, Contents { rows, indexes });
    }
    Ok(Observation { collections })
}

impl Observation {
    /// Fails with the first difference from `model`.
    pub fn compare(&self, model: &Model) -> Outcome {
        let (found, wanted): (Vec<_>, Vec<_>) =
            (self.collections.keys().collect(), model.collections.keys().collect());
        if found != wanted {
            return Err(format!("collections {found:?}, want {wanted:?}"));
        }
        for (name, contents) in &self.collections {
            let Some(model) = model.collections.get(name) else { continue };
            if contents.indexes != model.indexes {
                return Err(format!("{name} has indexes {:?}, want {:?}", contents.indexes, model.indexes));
            }
            let same = contents.rows.len() == model.rows.len()
                && contents.rows.iter().zip(&*model.rows).all(|((key, record), (wanted_key, row))| {
                    key[..] == **wanted_key && *record == row.record
                });
            if !same {
                let wanted: Vec<_> =
                    model.rows.iter().map(|(key, row)| (key.to_vec(), row.record.clone())).collect();
                same_rows(name, &contents.rows, &wanted)?;
            }
        }
        Ok(())
    }
}

/// Fails with the first difference between two lists of rows.
pub fn same_rows(what: &str, found: &[(Vec<u8>, Vec<u8>)], wanted: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
    for i in 0..found.len().max(wanted.len()) {
        let (found, wanted) = (found.get(i), wanted.get(i));
        if found != wanted {
            let text = |row: Option<&(Vec<u8>, Vec<u8>)>| match row {
                Some((key, record)) => format!("{} = {}", key.escape_ascii(), record_text(Some(record))),
                None => "the end".to_owned(),
            };
            return Err(format!("{what}: row {i} is {}, want {}", text(found), text(wanted)));
        }
    }
    Ok(())
}

/// The text of a record, truncated to 120 bytes.
pub fn record_text(record: Option<&[u8]>) -> String {
    match record {
        None => "nothing".to_owned(),
        Some(record) if record.len() <= 120 => record.escape_ascii().to_string(),
        Some(record) => format!("{}… ({} bytes)", record[..120].escape_ascii(), record.len()),
    }
}

/// Runs the deep check of `db` and compares the answers of each index with the model. The records must have been compared
/// before.
pub fn verify(db: &Db, model: &Model, rng: &mut SimRng) -> Result<(), StepFailure> {
    let report = db.check(true)?;
    if !report.problems().is_empty() {
        return Err(StepFailure::Wrong(format!("check: {:?}", report.problems())));
    }
    for (name, contents) in &model.collections {
        let collection = db.collection(name)?;
        for index in collection.indexes() {
            let Some(path) = index.spec().attributes().first().map(ToString::to_string) else { continue };
            let target = QueryTarget { collection: &collection, snapshot: None, index: Some(index.name()) };
            for model_query in whole_index(&path, rng) {
                target.check_answer(contents, &model_query)?;
            }
        }
        for _ in 0..4 {
            QueryTarget { collection: &collection, snapshot: None, index: None }
                .check_answer(contents, &ModelQuery::random(rng))?;
        }
    }
    Ok(())
}

/// Queries that together cover all numbers and all strings of an index.
fn whole_index(path: &str, rng: &mut SimRng) -> [ModelQuery; 2] {
    let orders = [AnswerOrder::Newest, AnswerOrder::Oldest, AnswerOrder::Value, AnswerOrder::ValueDescending];
    let ends = [(json!(-1e308), json!(1e308)), (json!(""), json!("\u{10ffff}\u{10ffff}"))];
    if is_spatial(path) {
        let everywhere = QueryCondition::Intersects(path.to_owned(), [-1e308, -1e308, 1e308, 1e308]);
        let all = ModelQuery { conditions: vec![everywhere], ..ModelQuery::every(path, json!(0), json!(0)) };
        let near = vec![QueryCondition::Near(path.to_owned(), [0.0, 1.0])];
        return [all.clone(), ModelQuery { conditions: near, order: AnswerOrder::Nearest, ..all }];
    }
    ends.map(|(low, high)| ModelQuery {
        order: rng.pick(&orders).copied().unwrap_or(AnswerOrder::Newest),
        contents: rng.pick(&AnswerContents::EACH).copied().unwrap_or(AnswerContents::Records),
        ..ModelQuery::every(path, low, high)
    })
}

/// The index that `model_query` picks among those that can serve it.
pub fn pick_index(collection: &Collection, model_query: &ModelQuery) -> Option<String> {
    let serves = |path: &str| model_query.conditions.iter().any(|condition| condition.path() == path);
    let mut names: Vec<String> = Vec::new();
    for index in collection.indexes() {
        if index.spec().attributes().first().is_some_and(|path| serves(&path.to_string())) {
            names.push(index.name().to_owned());
        }
    }
    names.sort_unstable();
    let position = model_query.pick.checked_rem(names.len() as u64)?;
    names.into_iter().nth(position as usize)
}

/// The target of a query: a collection, a snapshot and an index.
#[derive(Debug, Clone, Copy)]
pub struct QueryTarget<'a> {
    /// The collection.
    pub collection: &'a Collection,
    /// `None` for the latest state.
    pub snapshot: Option<&'a Snapshot>,
    /// The index that must serve the query; `None` to let the database choose.
    pub index: Option<&'a str>,
}

impl QueryTarget<'_> {
    /// Runs the query, compares the answers with those of the model, and returns them as text. Nothing is compared if the
    /// index is newer than the snapshot or still being built.
    ///
    /// # Errors
    /// Fails on wrong answers and on errors of the database.
    pub fn check_answer(
        &self,
        model: &CollectionModel,
        model_query: &ModelQuery,
    ) -> Result<String, StepFailure> {
        let Some(answers) = self.find(&self.query(model_query)?)? else { return Ok(String::new()) };
        if self.index.is_some() && answers.explain().index.as_deref() != self.index {
            return Err(self.wrong(model_query, &format!("{:?} answered", answers.explain().index)));
        }
        let (all, mut count) = (&*answers, answers.count());
        let altered = altered_answers(all, model_query, model);
        if let Some(altered) = &altered {
            count = count.saturating_add_signed(altered.len() as i64 - all.len() as i64);
        }
        compare(altered.as_deref().unwrap_or(all), count, model_query, model)
            .map_err(|what| self.wrong(model_query, &what))
    }

    /// Reads all answers page by page and compares them with those of the model.
    ///
    /// # Errors
    /// As [`check_answer`](Self::check_answer).
    pub fn check_pages(
        &self,
        model: &CollectionModel,
        model_query: &ModelQuery,
        page: usize,
    ) -> Result<(), StepFailure> {
        let model_query =
            ModelQuery { limit: Some(page), contents: AnswerContents::Keys, ..model_query.clone() };
        let all = ModelQuery { limit: None, ..model_query.clone() };
        let wanted: Vec<&[u8]> = all.answer(&model.rows).into_iter().map(|(key, _)| key).collect();
        let mut found: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(self.query(&model_query)?);
        while let Some(page) = next {
            let Some(answers) = self.find(&page)? else { return Ok(()) };
            found.extend(answers.iter().map(|answer| answer.key.clone()));
            let token = answers.next_token().filter(|_| found.len() <= wanted.len());
            next = token
                .map(|token| self.query(&model_query).map(|query| query.after(token.clone())))
                .transpose()?;
        }
        if found != wanted {
            let key_list =
                |keys: &[&[u8]]| keys.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>();
            let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
            let broken = broken_by_answers(&found, &wanted);
            let what =
                format!("{broken} pages of {page} give {:?}; want {:?}", key_list(&found), key_list(&wanted));
            return Err(self.wrong(&model_query, &what));
        }
        Ok(())
    }

    /// The query of the database, with the index that must serve it.
    pub(crate) fn query(&self, model_query: &ModelQuery) -> bolide::Result<Query> {
        let query = to_query(model_query)?;
        Ok(match self.index {
            Some(index) => query.using_index(index),
            None => query,
        })
    }

    /// The answers; `None` if the index is newer than the snapshot or still being built.
    pub(crate) fn find(&self, query: &Query) -> Result<Option<Answers>, StepFailure> {
        let answers = match self.snapshot {
            Some(snapshot) => self.collection.find_at(snapshot, query),
            None => self.collection.find(query),
        };
        match answers {
            Err(error) if self.index.is_some() && is_not_ready(&error) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    fn wrong(&self, model_query: &ModelQuery, what: &str) -> StepFailure {
        let (name, index) = (self.collection.name(), self.index);
        let read_point = if self.snapshot.is_some() { "a snapshot" } else { "the latest state" };
        let info = self.collection.indexes().into_iter().find(|info| Some(info.name()) == index);
        let by = info.map_or_else(|| "any index".to_owned(), |info| info.spec().to_string());
        StepFailure::Wrong(format!("find {name}: {model_query}, by {by}, at {read_point}: {what}"))
    }
}

/// Whether the index is newer than the snapshot or still being built.
fn is_not_ready(error: &bolide::Error) -> bool {
    error.kind() == ErrorKind::Conflict || error.message().contains("is older than the index")
}

/// Compares the answers with those of the model and returns them as text.
fn compare(
    answers: &[Answer],
    count: u64,
    model_query: &ModelQuery,
    model: &CollectionModel,
) -> Outcome<String> {
    let wanted = model_query.answer(&model.rows);
    if model_query.contents == AnswerContents::Count && count != wanted.len() as u64 {
        let broken = if count < wanted.len() as u64 { Rule::Complete } else { Rule::Exact };
        return Err(format!("{broken} counted {}, want {}", count, wanted.len()));
    }
    if count != wanted.len() as u64 {
        return Err(format!("{} answers: {}", count, difference(answers, &wanted, model)));
    }
    if model_query.contents == AnswerContents::Count {
        return Ok(count.to_string());
    }
    if answers.len() != wanted.len() {
        return Err(format!("{} answers: {}", answers.len(), difference(answers, &wanted, model)));
    }
    for (i, (answer, (key, row))) in answers.iter().zip(&wanted).enumerate() {
        if answer.key != *key {
            let difference = difference(answers, &wanted, model);
            return Err(format!("answer {i} is another key: {difference}"));
        }
        if model_query.contents == AnswerContents::Parts {
            same_parts(answer, &model_query.parts(), row)?;
            continue;
        }
        let record = (model_query.contents == AnswerContents::Records).then_some(&row.record);
        if answer.record.as_ref() != record {
            let record = record_text(answer.record.as_deref());
            return Err(format!("{} answer {i} has record {record}", Rule::Contents));
        }
        same_values(&answer.values, &model_query.selected(), row)
            .map_err(|what| format!("answer {i}, {}: {what}", key.escape_ascii()))?;
    }
    let descending = |pair: &[Answer]| pair[0].sequence > pair[1].sequence;
    let ascending = |pair: &[Answer]| pair[0].sequence < pair[1].sequence;
    let in_order = match model_query.order {
        AnswerOrder::Newest => answers.windows(2).all(descending),
        AnswerOrder::Oldest => answers.windows(2).all(ascending),
        AnswerOrder::Value | AnswerOrder::ValueDescending | AnswerOrder::Nearest | AnswerOrder::By(_) => true,
    };
    if !in_order {
        let text = answers_text(answers);
        return Err(format!("{} the sequence numbers are out of order: {text}", Rule::Ordered));
    }
    Ok(answers_text(answers))
}

/// Checks that an answer has the parts of its record at each path.
fn same_parts(answer: &Answer, paths: &[&str], row: &ModelRow) -> Outcome {
    let mut wanted = serde_json::Map::new();
    for path in paths {
        if let Some(part) = part_at(&row.parsed, path) {
            wanted.insert((*path).to_owned(), part);
        }
    }
    let found = answer.record.as_deref().and_then(|record| serde_json::from_slice(record).ok());
    if found.as_ref() == Some(&serde_json::Value::Object(wanted.clone())) {
        return Ok(());
    }
    let (rule, found) = (Rule::Contents, record_text(answer.record.as_deref()));
    Err(format!("{rule} {} has parts {found}, want {wanted:?}", answer.key.escape_ascii()))
}

/// Checks that an answer has the values of its record at each path, distinct and ascending.
fn same_values(found: &[Vec<Value>], paths: &[&str], row: &ModelRow) -> Outcome {
    let wanted: Vec<Vec<serde_json::Value>> = paths
        .iter()
        .map(|path| {
            let mut values = answer_values_at(&row.parsed, path);
            values.sort_by(compare_values);
            values.dedup_by(|left, right| compare_values(left, right).is_eq());
            values
        })
        .collect();
    let found: Vec<Vec<serde_json::Value>> =
        found.iter().map(|values| values.iter().map(Value::to_json).collect()).collect();
    let same = |found: &Vec<serde_json::Value>, wanted: &Vec<serde_json::Value>| {
        let equal = |(left, right): (&serde_json::Value, &serde_json::Value)| {
            same_type(left, right) && compare_values(left, right).is_eq()
        };
        found.len() == wanted.len() && found.iter().zip(wanted).all(equal)
    };
    if found.len() == wanted.len() && found.iter().zip(&wanted).all(|(found, wanted)| same(found, wanted)) {
        return Ok(());
    }
    Err(format!("{} values {found:?} at {paths:?}, want {wanted:?}", Rule::Contents))
}

fn answers_text(answers: &[Answer]) -> String {
    let mut text = String::new();
    for answer in answers {
        let _ = write!(text, "{}@{} ", answer.key.escape_ascii(), answer.sequence);
    }
    text
}

fn difference(answers: &[Answer], wanted: &[(&[u8], &Arc<ModelRow>)], model: &CollectionModel) -> String {
    let unwanted = answers.iter().find(|answer| !wanted.iter().any(|(key, _)| *key == answer.key));
    let unwanted = unwanted.map_or_else(String::new, |answer| {
        let row = model.rows.get(answer.key.as_slice());
        format!("; not wanted: {}", record_text(row.map(|row| row.record.as_slice())))
    });
    let found: Vec<&[u8]> = answers.iter().map(|answer| answer.key.as_slice()).collect();
    let keys: Vec<&[u8]> = wanted.iter().map(|(key, _)| *key).collect();
    let broken = broken_by_answers(&found, &keys);
    let wanted: Vec<String> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
    format!("{broken} got {}; want {}{unwanted}", answers_text(answers), wanted.join(" "))
}

/// Converts the query to a query of the database.
fn to_query(model_query: &ModelQuery) -> bolide::Result<Query> {
    let mut query = Query::new();
    for condition in &model_query.conditions {
        query = match condition {
            QueryCondition::Equals(path, wanted) => query.eq(path, value(wanted)),
            QueryCondition::Within(path, low, high) => query.range(path, value(low)..=value(high)),
            QueryCondition::Intersects(path, [a, b, c, d]) => query.within(path, Rect::new(*a, *b, *c, *d)?),
            QueryCondition::Near(path, [x, y]) => query.nearest(path, Point::new(*x, *y)?),
            QueryCondition::Filter(filter) => query.filter(to_filter(&evaluated(filter))?),
        };
    }
    if let AnswerOrder::By(paths) = model_query.order {
        query = paths.iter().fold(query, |query, (path, by)| {
            let direction = match by {
                SortedBy::Smallest => SortDirection::Ascending,
                SortedBy::Largest => SortDirection::Descending,
            };
            query.sort_by(path, direction)
        });
    }
    query = query.order(match model_query.order {
        AnswerOrder::By(_) => Order::Attributes,
        AnswerOrder::Newest => Order::Newest,
        AnswerOrder::Oldest => Order::Oldest,
        AnswerOrder::Value => Order::Value,
        AnswerOrder::ValueDescending => Order::ValueDescending,
        AnswerOrder::Nearest => Order::Nearest,
    });
    if let Some(limit) = model_query.limit {
        query = query.limit(limit);
    }
    if let Some(limit) = model_query.limit_per_value {
        query = query.limit_per_value(limit);
    }
    Ok(match model_query.contents {
        AnswerContents::Records => query,
        AnswerContents::Keys => query.keys_only(),
        AnswerContents::Count => query.count(),
        AnswerContents::Values => query.select(model_query.selected()),
        AnswerContents::Parts => query.select_parts(model_query.parts()),
    })
}

/// Converts the filter to a filter of the database. Every second one takes the way through its text.
fn to_filter(filter: &ModelFilter) -> bolide::Result<Filter> {
    let all = |filters: &[ModelFilter]| filters.iter().map(to_filter).collect::<bolide::Result<Vec<_>>>();
    let filter = match filter {
        ModelFilter::All(filters) => Filter::all(all(filters)?),
        ModelFilter::Any(filters) => Filter::any(all(filters)?),
        ModelFilter::Not(filter) => !to_filter(filter)?,
        ModelFilter::OneOf(path, values) => Filter::one_of(path, values.iter().map(value)),
        ModelFilter::Prefix(path, prefix) => Filter::prefix(path, prefix.as_str()),
        ModelFilter::Exists(path) => Filter::exists(path),
        ModelFilter::Condition(condition) => match condition {
            QueryCondition::Equals(path, wanted) => Filter::eq(path, value(wanted)),
            QueryCondition::Within(path, low, high) => Filter::range(path, value(low)..=value(high)),
            QueryCondition::Intersects(path, [a, b, c, d]) => {
                Filter::within(path, Rect::new(*a, *b, *c, *d)?)
            }
            QueryCondition::Near(path, [x, y]) => Filter::nearest(path, Point::new(*x, *y)?),
            QueryCondition::Filter(filter) => to_filter(filter)?,
        },
    };
    let text = filter.to_string();
    if text.len().is_multiple_of(2) { Filter::parse(&text) } else { Ok(filter) }
}

/// Converts a scalar to a value of the database. Queries hold scalars only.
fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::Int(int),
            (None, Some(uint)) => Value::Uint(uint),
            (None, None) => Value::Float(number.as_f64().unwrap_or(0.0)),
        },
        _ => Value::Null,
    }
}

/// The position of the last of `candidates` that equals the database.
///
/// # Errors
/// Fails with the difference from the last candidate, the state after the most steps, if none is equal.
pub fn match_state(db: &Db, candidates: &[&Model]) -> Result<usize, StepFailure> {
    let observation = observe(db)?;
    let mut first_difference = None;
    for (position, model) in candidates.iter().enumerate().rev() {
        match observation.compare(model) {
            Ok(()) => return Ok(position),
            Err(difference) => {
                first_difference.get_or_insert(difference);
            }
        }
    }
    let oldest = candidates.first().map(|model| observation.compare(model).err());
    Err(StepFailure::Wrong(format!(
        "{} the database is in none of the {} states that it may be in; it differs from the last in: {}; from the \
         oldest in: {}",
        Rule::State,
        candidates.len(),
        first_difference.unwrap_or_default(),
        oldest.flatten().unwrap_or_default(),
    )))
}
