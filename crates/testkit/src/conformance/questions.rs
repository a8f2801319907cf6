//! What the suite asks an index: everything that its records can tell apart.

use serde_json::{Value, json};

use crate::question::{Arrangement, Condition, Question, Shown};
use crate::value::{compare, same_type, values_at};

/// Most values of one path that points and ranges are made of.
const VALUES: usize = 9;

/// All questions for an index on these attributes, about records that are or were there.
pub fn all(attributes: &str, records: &[Value]) -> Vec<Question> {
    let paths: Vec<&str> = attributes.split('+').collect();
    let conditions = match paths[..] {
        [first, second] => of_two(first, second, records),
        _ => of_one(attributes, records),
    };
    // Beyond the number of records all limits are one.
    let limits: Vec<Option<usize>> =
        [1, 2, 10, 100].into_iter().filter(|limit| *limit < records.len()).map(Some).chain([None]).collect();
    conditions.into_iter().flat_map(|conditions| forms(conditions, &limits)).collect()
}

/// A few questions for whatever the database chooses to answer them.
pub fn few(records: &[Value]) -> Vec<Question> {
    let newest = |conditions| Question {
        conditions,
        arrangement: Arrangement::Newest,
        limit: Some(10),
        shown: Shown::Records,
        pick: 0,
    };
    ["v", "tags[*]"].into_iter().flat_map(|path| of_one(path, records)).map(newest).collect()
}

/// Questions whose answers are asked for page by page.
pub fn paged(attributes: &str, records: &[Value]) -> Vec<Question> {
    let path = attributes.split('+').next().unwrap_or(attributes);
    let of_one = of_one(path, records).into_iter().step_by(2);
    let arrangements =
        [Arrangement::Newest, Arrangement::Oldest, Arrangement::Value, Arrangement::ValueDescending];
    let question = |(conditions, arrangement)| Question {
        conditions,
        arrangement,
        limit: None,
        shown: Shown::Keys,
        pick: 0,
    };
    of_one.zip(arrangements.into_iter().cycle()).map(question).collect()
}

/// Each value, one that is not there, and ranges over some and over all values of a type.
fn of_one(path: &str, records: &[Value]) -> Vec<Vec<Condition>> {
    let values = values(path, records);
    let equal = |value: &Value| vec![Condition::Equals(path.to_owned(), value.clone())];
    let within = |low: Value, high: Value| vec![Condition::Within(path.to_owned(), low, high)];
    let mut conditions: Vec<Vec<Condition>> = values.iter().map(equal).collect();
    conditions.push(equal(&json!("nowhere")));
    conditions.push(within(json!(-1e308), json!(1e308)));
    conditions.push(within(json!(""), json!("\u{10ffff}")));
    let ordered = |value: &&Value| value.is_number() || value.is_string();
    let ends: Vec<&Value> = values.iter().filter(ordered).collect();
    for pair in ends.windows(2) {
        if let [low, high] = pair
            && same_type(low, high)
        {
            conditions.push(within((*low).clone(), (*high).clone()));
        }
    }
    conditions
}

/// The first attribute alone, and both with equality and range in all ways.
fn of_two(first: &str, second: &str, records: &[Value]) -> Vec<Vec<Condition>> {
    let mut conditions = Vec::new();
    let seconds = values(second, records);
    for value in values(first, records).into_iter().take(3) {
        let equal = Condition::Equals(first.to_owned(), value);
        conditions.push(vec![equal.clone()]);
        conditions.push(vec![equal.clone(), every_number(second)]);
        if let Some(other) = seconds.first() {
            conditions.push(vec![Condition::Equals(second.to_owned(), other.clone()), equal]);
        }
    }
    conditions.push(vec![every_number(first), every_number(second)]);
    if let Some(other) = seconds.last() {
        conditions.push(vec![every_number(first), Condition::Equals(second.to_owned(), other.clone())]);
    }
    conditions
}

fn every_number(path: &str) -> Condition {
    Condition::Within(path.to_owned(), json!(-1e308), json!(1e308))
}

/// The distinct values at `path`, ascending; some of them where there are many.
fn values(path: &str, records: &[Value]) -> Vec<Value> {
    let mut values: Vec<&Value> = records.iter().flat_map(|record| values_at(record, path)).collect();
    values.sort_by(|left, right| compare(left, right));
    values.dedup_by(|left, right| compare(left, right).is_eq());
    let every = values.len().div_ceil(VALUES).max(1);
    values.into_iter().step_by(every).cloned().collect()
}

/// The conditions in all orders with all limits, as records; in some of them as keys and as a count.
fn forms(conditions: Vec<Condition>, limits: &[Option<usize>]) -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |arrangement, limit, shown| {
        questions.push(Question { conditions: conditions.clone(), arrangement, limit, shown, pick: 0 });
    };
    for arrangement in
        [Arrangement::Newest, Arrangement::Oldest, Arrangement::Value, Arrangement::ValueDescending]
    {
        limits.iter().for_each(|limit| ask(arrangement, *limit, Shown::Records));
    }
    [Some(1), Some(10), None].into_iter().for_each(|limit| ask(Arrangement::Newest, limit, Shown::Keys));
    [Some(2), None].into_iter().for_each(|limit| ask(Arrangement::Value, limit, Shown::Keys));
    [Some(2), None].into_iter().for_each(|limit| ask(Arrangement::Newest, limit, Shown::Count));
    questions
}
