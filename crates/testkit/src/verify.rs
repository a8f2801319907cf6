//! Comparing a database with a model: every record, every index, and the database's own deep check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bolide::{Collection, Db, IterOptions, Order, Query, Snapshot, Value};
use bolide_storage::SimRng;
use serde_json::json;

use crate::failure::StepFailure;
use crate::model::{CollectionModel, Model};
use crate::question::{Arrangement, Condition, Question};
use crate::seeds::Outcome;

/// All that a database holds, read by full scans.
#[derive(Debug)]
pub struct Observation {
    collections: BTreeMap<String, Contents>,
}

#[derive(Debug)]
struct Contents {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    indexes: BTreeSet<String>,
}

/// Reads all that `db` holds.
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
    /// Says how the database differs from `model`, if it does.
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

/// Says how two lists of rows differ, if they do.
pub fn same_rows(what: &str, found: &[(Vec<u8>, Vec<u8>)], wanted: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
    for i in 0..found.len().max(wanted.len()) {
        let (found, wanted) = (found.get(i), wanted.get(i));
        if found != wanted {
            let text = |row: Option<&(Vec<u8>, Vec<u8>)>| match row {
                Some((key, record)) => format!("{} = {}", key.escape_ascii(), shown(Some(record))),
                None => "the end".to_owned(),
            };
            return Err(format!("{what}: row {i} is {}, want {}", text(found), text(wanted)));
        }
    }
    Ok(())
}

/// A record, cut to a readable length.
pub fn shown(record: Option<&[u8]>) -> String {
    match record {
        None => "nothing".to_owned(),
        Some(record) if record.len() <= 120 => record.escape_ascii().to_string(),
        Some(record) => format!("{}… ({} bytes)", record[..120].escape_ascii(), record.len()),
    }
}

/// Checks that `db` is sound in itself and that each of its indexes answers as the model does. The
/// records must have been compared before.
pub fn verify(db: &Db, model: &Model, rng: &mut SimRng) -> Result<(), StepFailure> {
    let report = db.check(true)?;
    if !report.problems().is_empty() {
        return Err(StepFailure::Wrong(format!("check: {:?}", report.problems())));
    }
    for (name, contents) in &model.collections {
        let collection = db.collection(name)?;
        for question in whole_indexes() {
            ask(&collection, None, contents, &question)?;
        }
        for _ in 0..3 {
            ask(&collection, None, contents, &Question::random(rng))?;
        }
    }
    Ok(())
}

/// Questions that between them touch every entry of every index.
fn whole_indexes() -> Vec<Question> {
    let (least, most) = (json!(-1e308), json!(1e308));
    let (first, last) = (json!(""), json!("\u{10ffff}\u{10ffff}"));
    ["a", "n.x", "tags[*]", "s"]
        .into_iter()
        .flat_map(|path| {
            [
                Question::every(path, least.clone(), most.clone()),
                Question::every(path, first.clone(), last.clone()),
            ]
        })
        .collect()
}

/// Asks `collection`, compares the answer with the model's, and gives it in words.
pub fn ask(
    collection: &Collection,
    snapshot: Option<&Snapshot>,
    model: &CollectionModel,
    question: &Question,
) -> Result<String, StepFailure> {
    let query = query(question);
    let answers = match snapshot {
        Some(snapshot) => collection.find_at(snapshot, &query)?,
        None => collection.find(&query)?,
    };
    let wanted = question.answer(&model.rows);
    let mut words = String::new();
    for answer in answers.iter() {
        let _ = write!(words, "{}@{} ", answer.key.escape_ascii(), answer.sequence);
    }
    let wrong = |what: String| {
        let odd = answers.iter().find(|answer| !wanted.iter().any(|(key, _)| *key == answer.key));
        let odd = odd.map_or_else(String::new, |answer| {
            let row = model.rows.get(answer.key.as_slice());
            format!("; not wanted: {}", shown(row.map(|row| row.record.as_slice())))
        });
        let wanted: Vec<String> = wanted.iter().map(|(key, _)| key.escape_ascii().to_string()).collect();
        let name = collection.name();
        StepFailure::Wrong(format!(
            "find {name}: {question}: {what}; got {words}; want {}{odd}",
            wanted.join(" ")
        ))
    };
    if answers.len() != wanted.len() {
        return Err(wrong(format!("{} answers, want {}", answers.len(), wanted.len())));
    }
    for (i, (answer, (key, row))) in answers.iter().zip(&wanted).enumerate() {
        if answer.key != *key {
            return Err(wrong(format!("answer {i} is another key")));
        }
        if !question.keys_only && answer.record.as_ref() != Some(&row.record) {
            return Err(wrong(format!("answer {i} has record {}", shown(answer.record.as_deref()))));
        }
    }
    let descending = answers.windows(2).all(|pair| pair[0].sequence > pair[1].sequence);
    if question.arrangement == Arrangement::Newest && !descending {
        return Err(wrong("sequence numbers do not fall".to_owned()));
    }
    Ok(words)
}

/// The question in the words of the database.
fn query(question: &Question) -> Query {
    let mut query = Query::new();
    for condition in &question.conditions {
        query = match condition {
            Condition::Equals(path, wanted) => query.eq(path, value(wanted)),
            Condition::Within(path, low, high) => query.range(path, value(low)..=value(high)),
        };
    }
    query = query.order(match question.arrangement {
        Arrangement::Newest => Order::Newest,
        Arrangement::Oldest => Order::Oldest,
        Arrangement::Value => Order::Value,
        Arrangement::ValueDescending => Order::ValueDescending,
    });
    if let Some(limit) = question.limit {
        query = query.limit(limit);
    }
    if question.keys_only { query.keys_only() } else { query }
}

/// A scalar in the words of the database. Questions hold scalars only.
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

/// The latest of `candidates` that the database agrees with, by its place; else how it differs from the
/// last of them, which is the state after the most steps.
pub fn match_state(db: &Db, candidates: &[&Model]) -> Result<usize, StepFailure> {
    let observation = observe(db)?;
    let mut first_difference = None;
    for (place, model) in candidates.iter().enumerate().rev() {
        match observation.compare(model) {
            Ok(()) => return Ok(place),
            Err(difference) => {
                first_difference.get_or_insert(difference);
            }
        }
    }
    let oldest = candidates.first().map(|model| observation.compare(model).err());
    Err(StepFailure::Wrong(format!(
        "the database is in none of the {} states that it may be in; it differs from the last in: {}; from the \
         oldest in: {}",
        candidates.len(),
        first_difference.unwrap_or_default(),
        oldest.flatten().unwrap_or_default(),
    )))
}
