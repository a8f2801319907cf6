//! The table of cases: the effects of writes on index entries.

use serde_json::{Value, json};

use crate::history::Change;

/// The collection of all cases.
pub const COLLECTION: &str = "records";

/// One step of a case.
#[derive(Debug, Clone)]
pub enum CaseStep {
    /// Applies changes in one batch.
    Write(Vec<Change>),
    /// Takes a snapshot that is queried at the end; a case takes at most
    /// [`SNAPSHOTS`](crate::history::SNAPSHOTS).
    Snapshot,
}

/// A named history.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the case.
    pub name: &'static str,
    /// The steps in order.
    pub steps: Vec<CaseStep>,
}

impl Case {
    /// All records that the case puts.
    pub fn records(&self) -> Vec<Value> {
        let changes = self.steps.iter().flat_map(|step| match step {
            CaseStep::Write(changes) => changes.as_slice(),
            CaseStep::Snapshot => &[],
        });
        let record = |change: &Change| match change {
            Change::Put { record, .. } => serde_json::from_slice(record).ok(),
            _ => None,
        };
        changes.filter_map(record).collect()
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut cases = updates();
    cases.extend(deletes());
    cases.extend(arrays());
    cases.extend(batches());
    cases.extend(values());
    cases.extend(crowds());
    cases
}

fn case(name: &'static str, steps: impl IntoIterator<Item = CaseStep>) -> Case {
    Case { name, steps: steps.into_iter().collect() }
}

fn put_record(key: &str, record: &Value) -> Change {
    Change::Put { collection: COLLECTION, key: key.into(), record: record.to_string().into_bytes() }
}

/// Puts a record with this value as a scalar and as an array element, a second attribute, and a unique attribute to
/// include.
fn put(key: &str, value: impl Into<Value>) -> Change {
    let value = value.into();
    let mut record =
        json!({"v": value, "tags": [value, "all"], "w": key.len() % 3, "pad": format!("{key} with {value}")});
    let [x, y, ..] = area(&value);
    (record["areas"], record["x"], record["y"]) = (json!(area(&value)), json!(x), json!(y));
    put_record(key, &record)
}

/// The rectangle of a value. The rectangles of neighbouring numbers touch.
fn area(value: &Value) -> [f64; 4] {
    let number = value.as_f64().filter(|number| number.abs() < 1e6);
    let x = number.unwrap_or_else(|| f64::from(value.to_string().len() as u32) * 0.1);
    [x, -x, x + 1.0, -x + 0.5]
}

/// Puts a record without the indexed attributes.
fn bare(key: &str) -> Change {
    put_record(key, &json!({"w": 1, "pad": "bare"}))
}

fn tagged(key: &str, tags: Value) -> Change {
    let areas: Vec<_> = tags.as_array().into_iter().flatten().map(area).collect();
    put_record(key, &json!({"v": key, "w": 0, "areas": areas, "x": areas.len(), "y": tags, "tags": tags}))
}

fn delete(key: &str) -> Change {
    Change::Delete { collection: COLLECTION, key: key.into() }
}

fn delete_range(start: &str, end: &str) -> Change {
    Change::DeleteRange { collection: COLLECTION, start: start.into(), end: end.into() }
}

fn one(change: Change) -> CaseStep {
    CaseStep::Write(vec![change])
}

fn batch(changes: impl IntoIterator<Item = Change>) -> CaseStep {
    CaseStep::Write(changes.into_iter().collect())
}

use CaseStep::Snapshot;

fn updates() -> Vec<Case> {
    vec![
        case(
            "update to the same value",
            [one(put("a", 1)), one(put("b", 1)), Snapshot, one(put("a", 1)), Snapshot, one(put("a", 1))],
        ),
        case(
            "update to another value and back",
            [
                one(put("a", 1)),
                one(put("b", 2)),
                Snapshot,
                one(put("a", 2)),
                Snapshot,
                one(put("a", 1)),
                Snapshot,
                one(put("b", 1)),
            ],
        ),
        case(
            "update to absent and from absent",
            [
                one(put("a", 1)),
                one(bare("b")),
                Snapshot,
                one(bare("a")),
                one(put("b", 1)),
                Snapshot,
                one(put("a", 1)),
                one(bare("b")),
            ],
        ),
        case(
            "snapshot before and after",
            [
                Snapshot,
                batch([put("a", 1), put("b", 2), put("c", 3)]),
                Snapshot,
                batch([put("a", 3), delete("b"), put("d", 2)]),
                Snapshot,
                one(put("c", 2)),
                one(delete("a")),
            ],
        ),
    ]
}

fn deletes() -> Vec<Case> {
    vec![
        case(
            "delete",
            [
                batch([put("a", 1), put("b", 1), put("c", 2)]),
                Snapshot,
                one(delete("a")),
                Snapshot,
                one(delete("c")),
            ],
        ),
        case(
            "delete and insert again",
            [
                one(put("a", 1)),
                one(put("b", 1)),
                Snapshot,
                one(delete("a")),
                Snapshot,
                one(put("a", 1)),
                Snapshot,
                one(delete("b")),
                one(put("b", 2)),
                one(delete("a")),
                one(put("a", 2)),
            ],
        ),
        case(
            "delete of an absent key",
            [
                one(delete("a")),
                one(put("b", 1)),
                one(delete("a")),
                Snapshot,
                one(put("a", 1)),
                batch([delete("ghost"), delete("a"), delete("a")]),
                one(delete("a")),
            ],
        ),
        case(
            "range deletes",
            [
                batch("abcdefgh".chars().map(|key| put(&key.to_string(), 1))),
                Snapshot,
                one(delete_range("b", "d")),
                one(put("c", 1)),
                Snapshot,
                one(delete_range("c", "f")),
                one(put("e", 2)),
                one(put("a", 2)),
                Snapshot,
                one(delete_range("h", "z")),
                one(put("h", 2)),
            ],
        ),
        case(
            "range deletes of nothing and of all",
            [
                one(delete_range("a", "z")),
                batch([put("a", 1), put("b", 2), put("c", 1)]),
                one(delete_range("aa", "ab")),
                Snapshot,
                one(delete_range("a", "z")),
                Snapshot,
                batch([put("b", 1), put("d", 1)]),
            ],
        ),
        case(
            "range deletes inside batches",
            [
                batch([put("a", 1), put("b", 1), delete_range("a", "b"), put("c", 1)]),
                Snapshot,
                batch([delete_range("a", "d"), put("a", 1), put("c", 2)]),
                Snapshot,
                batch([put("b", 1), delete_range("b", "c"), put("b", 2), delete_range("c", "d")]),
                batch([put("d", 1), delete_range("a", "z")]),
                one(put("c", 1)),
            ],
        ),
    ]
}

fn arrays() -> Vec<Case> {
    vec![
        case(
            "an array grows and shrinks",
            [
                one(tagged("a", json!(["x"]))),
                one(tagged("b", json!(["x", "y"]))),
                one(tagged("a", json!(["x", "y"]))),
                Snapshot,
                one(tagged("a", json!(["x", "y", "z", "x", "y"]))),
                Snapshot,
                one(tagged("a", json!(["z"]))),
                one(tagged("b", json!([]))),
                Snapshot,
                one(bare("a")),
                one(tagged("b", json!(["y", "x"]))),
            ],
        ),
        case(
            "an array repeats, mixes and becomes a scalar",
            [
                one(tagged("a", json!(["x", "x", "x"]))),
                one(tagged("b", json!([1, "1", 1.0, null, true, [2], {"z": 3}]))),
                Snapshot,
                one(tagged("a", json!("x"))),
                one(tagged("b", json!(null))),
                one(tagged("c", json!({"x": 1}))),
                Snapshot,
                one(tagged("b", json!(["x", 1]))),
                one(tagged("a", json!(["x", "x"]))),
            ],
        ),
        case(
            "an array keeps some elements",
            [
                one(tagged("a", json!([1, 2, 3, 4, 5]))),
                one(tagged("b", json!([2, 3]))),
                Snapshot,
                one(tagged("a", json!([2, 4, 6]))),
                Snapshot,
                one(delete("a")),
                one(tagged("a", json!([6, 5, 2]))),
            ],
        ),
    ]
}

fn batches() -> Vec<Case> {
    vec![
        case(
            "a batch with the same key twice",
            [
                batch([put("a", 1), put("a", 2)]),
                batch([put("b", 1), put("b", 1)]),
                Snapshot,
                batch([put("c", 1), delete("c")]),
                batch([delete("b"), put("b", 2)]),
                Snapshot,
                batch([put("a", 1), put("a", 3), put("a", 2), put("a", 1)]),
                batch([delete("b"), put("b", 1), delete("b")]),
            ],
        ),
        case(
            "two records with the same secondary key in one batch",
            [
                batch([put("a", 1), put("b", 1), put("c", 1)]),
                Snapshot,
                batch([put("a", 2), put("b", 2)]),
                Snapshot,
                batch([put("c", 2), put("a", 1), put("d", 1)]),
            ],
        ),
        case(
            "a batch that moves records of one secondary key",
            [
                batch([put("a", 1), put("b", 1), put("c", 2)]),
                Snapshot,
                batch([delete("a"), put("d", 1), put("b", 2), put("c", 1)]),
                Snapshot,
                batch([put("a", 1), put("a", 2), delete("d"), put("b", 1), put("b", 1)]),
                batch([bare("c"), put("d", 2)]),
            ],
        ),
    ]
}

fn values() -> Vec<Case> {
    vec![
        case(
            "one key takes values of all types",
            [
                one(put("a", 1)),
                one(put("a", Value::Null)),
                Snapshot,
                one(put("a", "1")),
                one(put("a", true)),
                one(put("b", false)),
                Snapshot,
                one(put("a", 1.5)),
                one(put("b", u64::MAX)),
                Snapshot,
                one(put("a", i64::MIN)),
                one(put("b", Value::Null)),
            ],
        ),
        case(
            "equal numbers of different types",
            [
                one(put("a", 1)),
                one(put("b", 1.0)),
                one(put("c", -0.0)),
                Snapshot,
                one(put("a", 1.0)),
                one(put("d", 0)),
                one(put("c", 0)),
            ],
        ),
        case(
            "values and keys that are prefixes of others",
            [
                batch([put("k", ""), put("k0", "a"), put("k\u{0}", "a\u{0}")]),
                batch([put("k00", "ab"), put("\u{0}", "a\u{0}b"), put("\u{10ffff}", "é")]),
                Snapshot,
                batch([put("k", "a"), put("k0", ""), delete("k\u{0}")]),
                one(put("k00", "a\u{0}")),
            ],
        ),
    ]
}

/// Many records, so that a limit applies among ties and posting lists grow long.
fn crowds() -> Vec<Case> {
    let key = |number: usize| format!("key{number:03}");
    // More than 4 KiB of keys under one value.
    let long_key = |number: usize| format!("{number:03}{}", "-long".repeat(12));
    vec![
        case(
            "a limit at ties",
            [
                batch((0..6).map(|n| put(&key(n), 1))),
                batch((6..12).map(|n| put(&key(n), 2))),
                batch((0..12).step_by(3).map(|n| put(&key(n), 2))),
                Snapshot,
                batch((1..12).step_by(3).map(|n| put(&key(n), 1))),
                batch([delete(&key(11)), put(&key(3), 3)]),
            ],
        ),
        case(
            "more records than the largest limit",
            [
                batch((0..60).map(|n| put(&key(n), (n % 3) as u64))),
                batch((60..120).map(|n| put(&key(n), 1))),
                batch((0..120).step_by(7).map(|n| put(&key(n), 2))),
                Snapshot,
                batch((0..120).step_by(5).map(|n| delete(&key(n)))),
                one(delete_range(&key(90), &key(95))),
                batch((0..120).step_by(10).map(|n| put(&key(n), 1))),
            ],
        ),
        case(
            "a long posting list",
            [
                batch((0..130).map(|n| put(&long_key(n), "popular"))),
                batch((130..150).map(|n| put(&long_key(n), "rare"))),
                Snapshot,
                batch((0..150).step_by(2).map(|n| put(&long_key(n), "popular"))),
                one(put(&long_key(77), "rare")),
                Snapshot,
                one(put(&long_key(77), "popular")),
                batch((20..60).map(|n| delete(&long_key(n)))),
                one(put(&long_key(33), "popular")),
            ],
        ),
    ]
}
