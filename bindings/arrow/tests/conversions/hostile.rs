//! Input that is no valid record: no panic, bounded work, rows that stay in step.

use super::random::Random;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use bolide_arrow::{BatchLimits, Column, InferenceLimits, RecordDecoder, RecordKey, SchemaInference};

fn decoder() -> RecordDecoder {
    let columns = [
        ("_key", "binary"),
        ("a", "int64"),
        ("b", "string"),
        ("user.id", "float64"),
        ("user", "json"),
        ("l", "list<string>"),
        ("t", "timestamp"),
        ("d", "date"),
        ("j", "list<json>"),
        ("x", "bool"),
    ];
    let columns = columns.map(|(name, of)| Column::parse(name, of).unwrap()).to_vec();
    RecordDecoder::new(columns, BatchLimits::default()).unwrap()
}

fn check(records: &[Vec<u8>]) {
    let mut decoder = decoder();
    let mut inference = SchemaInference::new(InferenceLimits::default());
    for record in records {
        decoder.push(RecordKey::Bytes(b"k"), 1, record).unwrap();
        inference.add(record);
    }
    let batch = decoder.finish().unwrap();
    assert_eq!(batch.num_rows(), records.len());
    assert!(batch.columns().iter().all(|column| column.len() == records.len()));
    inference.finish();
}

#[test]
fn parts_of_records_in_any_order_are_decoded_or_refused() {
    let mut random = Random::seeded("parts");
    let parts: [&[u8]; 34] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\"a\":",
        b"\"b\":",
        b"\"user\":",
        b"\"id\":",
        b"\"l\":",
        b"\"t\":",
        b"\"d\":",
        b"\"j\":",
        b"\"x\":",
        b"1",
        b"-",
        b"1.5e3",
        b"true",
        b"null",
        b"fals",
        b"\"text\"",
        b"\"\\u00",
        b"\\ud800",
        b"\xff",
        b"\xc3",
        b" ",
        b"\"2026-01-01\"",
        b"{\"a\":1,",
        b"\"l\":[\"a\",",
        b"\"user\":{\"id\":",
        b"\0",
    ];
    for _ in 0..20_000 {
        let record = |random: &mut Random| {
            let mut record = if random.below(4) == 0 { Vec::new() } else { b"{".to_vec() };
            for _ in 0..random.below(12) {
                record.extend_from_slice(parts[random.below(parts.len())]);
            }
            record
        };
        let records: Vec<Vec<u8>> = (0..4).map(|_| record(&mut random)).collect();
        check(&records);
    }
}

#[test]
fn changed_and_truncated_records_are_decoded_or_refused() {
    let mut random = Random::seeded("changes");
    let whole = br#"{"a":12,"b":"t\"ext","user":{"id":1.5,"n":[1,{"x":2}]},"l":["a",null,"b"],"t":"2026-01-02T03:04:05Z","d":"2026-01-02","j":[1,{}],"x":true}"#;
    for end in 0..whole.len() {
        check(&[whole[..end].to_vec(), whole.to_vec()]);
    }
    for _ in 0..20_000 {
        let mut record = whole.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(record.len());
            record[at] = random.next() as u8;
        }
        check(&[record, whole.to_vec()]);
    }
}

#[test]
fn a_malformed_record_leaves_no_value_behind() {
    let mut decoder = decoder();
    decoder.push(RecordKey::Bytes(b"k"), 1, br#"{"a":1,"b":"x","l":["p","q"],"j":[1,"#).unwrap();
    decoder.push(RecordKey::Bytes(b"k"), 1, br#"{"a":2,"l":["r"],"j":[2]}"#).unwrap();
    assert_eq!(decoder.malformed(), 1);
    let batch = decoder.finish().unwrap();
    for column in &batch.columns()[1..] {
        assert!(column.is_null(0), "{column:?}");
    }
    assert!(batch.column(1).is_valid(1));
    for (column, expected) in [(5, "r"), (8, "2")] {
        let list = batch.column(column).as_list::<i32>().value(1);
        assert_eq!(list.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn of_fields_with_one_name_the_first_counts() {
    let record = br#"{"a":1,"user":{"id":2},"a":3,"l":["p"],"user":{"id":4,"id":5},"l":["q","r"],"b":"s","b":6,"z":0}"#;
    let mut decoder = decoder();
    for _ in 0..2 {
        decoder.push(RecordKey::Bytes(b"k"), 1, record).unwrap();
    }
    assert_eq!(decoder.malformed(), 0);
    let batch = decoder.finish().unwrap();
    let alone = {
        let mut decoder = super::hostile::decoder();
        for _ in 0..2 {
            let record = br#"{"a":1,"user":{"id":2},"l":["p"],"b":"s"}"#;
            decoder.push(RecordKey::Bytes(b"k"), 1, record).unwrap();
        }
        decoder.finish().unwrap()
    };
    assert_eq!(batch, alone);
}

#[test]
fn deep_and_wide_records_take_bounded_stack_and_time() {
    for open in [b"[".as_slice(), br#"{"a":"#, br#"{"user":"#] {
        let mut record = br#"{"z":"#.to_vec();
        record.extend(open.repeat(1_000_000));
        check(&[record.clone()]);
        record[2] = b'j';
        check(&[record]);
    }
    let wide: String = (0..50_000).map(|at| format!("\"field{at}\":{at},")).collect();
    check(&[format!("{{{wide}\"a\":1}}").into_bytes()]);
    let mut inference = SchemaInference::new(InferenceLimits::default());
    inference.add(format!("{{{wide}\"a\":1}}").as_bytes());
    assert!(inference.is_incomplete());
    assert_eq!(inference.finish().len(), InferenceLimits::default().columns);
}
