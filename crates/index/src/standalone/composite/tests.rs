use bolide_base::ErrorKind;
use bolide_base::limits::MAX_SECONDARY_KEY_BYTES;

use super::*;

use crate::attribute::Value;
use crate::model::{ModelCollection, ModelView, ModelWrite, ModelWrites, TABLE, keys};
use crate::query::Query;
use crate::{AttributeExtractor, AttributePlan, AttributeValues, JsonExtractor, LookupOptions};

const BLIND: &str = "a";
const SYNC: &str = "s=a:composite:maintenance=synchronous";

/// A collection with a blind and a synchronous index over `a`.
fn both() -> ModelCollection {
    ModelCollection::new(&[BLIND, SYNC])
}

/// Entries in the blind and in the synchronous index.
fn entries(collection: &ModelCollection) -> (usize, usize) {
    (collection.view().count(TABLE + 1), collection.view().count(TABLE + 2))
}

/// The keys that both indexes return for `a` = `value`, which must be equal.
fn find(collection: &ModelCollection, value: impl Into<Value> + Clone) -> Vec<String> {
    let run = |only: usize| {
        let query = Query::new().eq("a", value.clone()).keys_only();
        let (answers, _) = collection
            .query(&collection.view(), &query, LookupOptions::default(), |index| index == only)
            .unwrap();
        answers.into_iter().map(|answer| answer.key).collect::<Vec<_>>()
    };
    let found = run(0);
    assert_eq!(found, run(1));
    for index in 0..2 {
        let report = collection.check(index);
        assert!(report.is_sound(), "{report:?}");
    }
    found
}

#[test]
fn case_put_of_an_absent_key() {
    let mut collection = both();
    collection.put("k", r#"{"a":1}"#);
    assert_eq!(entries(&collection), (1, 1));
    assert_eq!(find(&collection, 1), ["k"]);
}

#[test]
fn case_put_of_the_same_value() {
    let mut collection = both();
    collection.put("k", r#"{"a":1}"#);
    collection.put("k", r#"{"a":1.0}"#);
    assert_eq!(entries(&collection), (2, 1));
    assert_eq!(find(&collection, 1), ["k"]);
}

#[test]
fn case_put_of_another_value() {
    let mut collection = both();
    collection.put("k", r#"{"a":1}"#);
    collection.put("k", r#"{"a":2}"#);
    assert_eq!(entries(&collection), (2, 1));
    assert!(find(&collection, 1).is_empty());
    assert_eq!(find(&collection, 2), ["k"]);
    // The old value again: its first entry stays stale.
    collection.put("k", r#"{"a":1}"#);
    assert_eq!(find(&collection, 1), ["k"]);
}

#[test]
fn case_attribute_becomes_absent_or_null() {
    let mut collection = both();
    for record in ["{}", r#"{"a":{"b":1}}"#, r#"{"a":[]}"#] {
        collection.put("k", r#"{"a":1}"#);
        collection.put("k", record);
        assert_eq!(entries(&collection).1, 0, "{record}");
        assert!(find(&collection, 1).is_empty());
    }
    collection.put("k", r#"{"a":null}"#);
    assert_eq!(find(&collection, Value::Null), ["k"]);
}

#[test]
fn case_array_grows_and_shrinks() {
    let mut collection = both();
    collection.put("k", r#"{"a":[1,2,2,"x",null]}"#);
    assert_eq!(entries(&collection), (4, 4));
    assert_eq!(find(&collection, 2), ["k"]);
    collection.put("k", r#"{"a":[2,3]}"#);
    assert_eq!(entries(&collection), (6, 2));
    assert!(find(&collection, 1).is_empty());
    assert_eq!(find(&collection, 3), ["k"]);
    collection.put("k", r#"{"a":2}"#);
    assert_eq!(entries(&collection).1, 1);
    assert_eq!(find(&collection, 2), ["k"]);
}

#[test]
fn case_delete_and_insert_again() {
    let mut collection = both();
    collection.put("k", r#"{"a":1}"#);
    collection.delete("k");
    assert_eq!(entries(&collection), (1, 0));
    assert!(find(&collection, 1).is_empty());
    collection.delete("k");
    collection.delete("never");
    assert!(find(&collection, 1).is_empty());
    collection.put("k", r#"{"a":1}"#);
    assert_eq!(entries(&collection), (2, 1));
    assert_eq!(find(&collection, 1), ["k"]);
}

#[test]
fn case_same_key_twice_in_one_batch() {
    let mut collection = both();
    let put = |record: &str| ModelWrite::Put("k".to_owned(), record.to_owned());
    let delete = || ModelWrite::Delete("k".to_owned());
    collection.write(&[put(r#"{"a":1}"#), put(r#"{"a":2}"#)]).unwrap();
    assert_eq!(entries(&collection), (2, 1));
    assert!(find(&collection, 1).is_empty());
    assert_eq!(find(&collection, 2), ["k"]);
    collection.write(&[put(r#"{"a":3}"#), delete()]).unwrap();
    assert_eq!(entries(&collection).1, 0);
    assert!(find(&collection, 3).is_empty() && find(&collection, 2).is_empty());
    collection.write(&[delete(), put(r#"{"a":3}"#)]).unwrap();
    assert_eq!(find(&collection, 3), ["k"]);
}

#[test]
fn case_deleted_range() {
    let mut collection = both();
    for key in ["a", "b", "c"] {
        collection.put(key, r#"{"a":1}"#);
    }
    collection.write(&[ModelWrite::DeleteRange("b".to_owned(), "c".to_owned())]).unwrap();
    assert_eq!(entries(&collection), (3, 3));
    assert_eq!(find(&collection, 1), ["c", "a"]);
    collection.put("b", r#"{"a":1}"#);
    assert_eq!(find(&collection, 1), ["b", "c", "a"]);
    assert_eq!(collection.check(1).stale, 1);
}

#[test]
fn a_key_that_is_a_prefix_of_another_is_distinct() {
    let mut collection = both();
    for key in ["", "k", "k\0", "kk"] {
        collection.put(key, r#"{"a":"x"}"#);
    }
    collection.put("k", r#"{"a":"x\u0000"}"#);
    collection.put("kk", r#"{"a":"xy"}"#);
    assert_eq!(find(&collection, "x"), ["k\0", ""]);
    assert_eq!(find(&collection, "x\0"), ["k"]);
}

#[test]
fn only_the_first_of_several_attributes_is_required() {
    let mut collection = ModelCollection::new(&["a+b"]);
    collection.put("none", r#"{"b":1}"#);
    collection.put("first", r#"{"a":1}"#);
    collection.put("both", r#"{"a":1,"b":2}"#);
    collection.put("product", r#"{"a":[1,3],"b":[2,4]}"#);
    assert_eq!(collection.view().count(TABLE + 1), 6);
    let run = |query: Query| {
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap()
    };
    let (answers, explain) = run(Query::new().eq("a", 1));
    assert_eq!(keys(&answers).into_iter().collect::<Vec<_>>(), ["both", "first", "product"]);
    assert!(!explain.is_full_scan());
    let (answers, explain) = run(Query::new().eq("a", 1).range("b", 2..=4).keys_only());
    assert_eq!(answers.iter().map(|answer| answer.key.as_str()).collect::<Vec<_>>(), ["product", "both"]);
    assert_eq!(explain.records_fetched, 0);
    assert!(run(Query::new().eq("b", 1)).1.is_full_scan());
}

#[test]
fn limits_of_values_are_exact() {
    for over in [0, 1] {
        let mut collection = both();
        // The tag and the end of the string take three bytes.
        let text = "x".repeat(MAX_SECONDARY_KEY_BYTES - 3 + over);
        let put = |record: String| [ModelWrite::Put("k".to_owned(), record)];
        let outcome = collection.write(&put(format!(r#"{{"a":"{text}"}}"#)));
        assert_eq!(
            outcome.map_err(|error| error.kind()).err(),
            (over == 1).then_some(ErrorKind::LimitExceeded)
        );
        let mut collection = ModelCollection::new(&["a+b"]);
        let list = |len: usize| (0..len).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        let record = format!(r#"{{"a":[{}],"b":[{}]}}"#, list(100), list(100 + over));
        let outcome = collection.write(&put(record));
        assert_eq!(
            outcome.map_err(|error| error.kind()).err(),
            (over == 1).then_some(ErrorKind::LimitExceeded)
        );
    }
}

#[test]
fn a_back_fill_writes_the_same_entries_as_commits() {
    let mut collection = both();
    for number in 0..20 {
        collection.put(&format!("k{number}"), &format!("{{\"a\":[{},7]}}", number % 3));
    }
    let filled = CompositeIndex::new(BLIND.parse().unwrap(), 9);
    let plan = AttributePlan::new(["a".parse().unwrap()]);
    let mut values = AttributeValues::new();
    let view = collection.view();
    let mut records = view.tree(TABLE).unwrap().cursor(&[], None).unwrap();
    records.seek_to_first().unwrap();
    while records.valid() {
        JsonExtractor.extract(records.value(), &plan, &mut values).unwrap();
        let record = IndexedRecord {
            primary_key: records.key(),
            sequence: Some(records.sequence()),
            values: &values,
            slots: &[0],
        };
        let mut writes = ModelWrites { view: &view, sequence: records.sequence() };
        SecondaryIndex::<ModelView>::derive(&filled, &record, &mut Vec::new(), &mut writes).unwrap();
        records.next().unwrap();
    }
    let all = |tree: TreeId| {
        let mut entries = view.tree(tree).unwrap().cursor(&[], None).unwrap();
        let mut out = Vec::new();
        entries.seek_to_first().unwrap();
        while entries.valid() {
            out.push((entries.key().to_vec(), entries.sequence(), entries.value().to_vec()));
            entries.next().unwrap();
        }
        out
    };
    assert_eq!(all(9), all(TABLE + 1));
}

#[test]
fn the_check_reports_wrong_entries() {
    let mut collection = both();
    collection.put("k", r#"{"a":1}"#);
    collection.put("l", r#"{"a":2}"#);
    let view = collection.view();
    let key = |value: i64, sequence: u64, primary: &str| {
        let mut key = Vec::new();
        Value::Int(value).encode(&mut key).unwrap();
        entry_key::put_sequence(&mut key, sequence);
        key.extend_from_slice(primary.as_bytes());
        key
    };
    collection.last += 1;
    for tree in [TABLE + 1, TABLE + 2] {
        view.write(tree, &key(1, 1, "k"), None, collection.last);
        view.write(tree, &key(5, 2, "l"), Some(b""), collection.last);
        view.write(tree, &key(1, 1, "gone"), Some(b""), collection.last);
        view.write(tree, b"\xffnot a key", Some(b""), collection.last);
    }
    let blind = collection.check(0);
    assert_eq!((blind.records, blind.entries, blind.missing), (2, 4, 1));
    assert_eq!((blind.wrong, blind.stale, blind.malformed), (1, 1, 1));
    let sync = collection.check(1);
    assert_eq!((sync.wrong, sync.stale, sync.malformed), (2, 0, 1));
    assert!(!blind.is_sound() && !sync.is_sound());
    assert_eq!(blind.examples.len(), 3);
    let error = collection
        .query(&collection.view(), &Query::new().range("a", 0..9), LookupOptions::default(), |index| {
            index == 0
        })
        .map(drop);
    assert!(error.is_ok(), "the malformed entry lies outside of the range");
}

#[test]
fn malformed_entries_are_errors_and_not_answers() {
    let mut collection = ModelCollection::new(&["a"]);
    collection.put("k", r#"{"a":1}"#);
    let mut key = Vec::new();
    Value::Int(1).encode(&mut key).unwrap();
    key.push(0);
    collection.view().write(TABLE + 1, &key, Some(b""), collection.last);
    for query in [Query::new().eq("a", 1), Query::new().range("a", 0..2)] {
        for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
            let outcome = collection.query(
                &collection.view(),
                &query.clone().order(order),
                LookupOptions::default(),
                |_| true,
            );
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corruption);
        }
    }
}

#[test]
fn in_primary_key_order_a_new_entry_replaces_the_previous_one() {
    let mut collection = ModelCollection::new(&[
        "a:composite:order=primary-key",
        "a:composite:order=primary-key,maintenance=synchronous",
    ]);
    let put = |key: &str, record: &str| ModelWrite::Put(key.to_owned(), record.to_owned());
    collection.write(&[put("b", r#"{"a":1}"#), put("a", r#"{"a":[1,2]}"#), put("c", r#"{"a":1}"#)]).unwrap();
    let before = collection.view();
    assert_eq!(entries(&collection), (4, 4));
    // The result is newest first although the entries are in another order.
    assert_eq!(find(&collection, 1), ["c", "a", "b"]);
    collection.put("b", r#"{"a":1}"#);
    collection.put("a", r#"{"a":[2,3]}"#);
    assert_eq!(entries(&collection), (5, 4));
    assert_eq!(find(&collection, 1), ["b", "c"]);
    assert_eq!(find(&collection, 2), ["a"]);
    collection.write(&[ModelWrite::DeleteRange("b".to_owned(), "c".to_owned())]).unwrap();
    assert_eq!(find(&collection, 1), ["c"]);
    assert_eq!(collection.check(1).stale, 1);
    // An older view contains the old versions of the entries.
    for index in 0..2 {
        let query = Query::new().eq("a", 1).keys_only().limit(2);
        let (answers, _) =
            collection.query(&before, &query, LookupOptions::default(), |other| other == index).unwrap();
        let found: Vec<_> = answers.iter().map(|answer| (answer.key.as_str(), answer.sequence)).collect();
        assert_eq!(found, [("c", 3), ("a", 2)]);
    }
}
