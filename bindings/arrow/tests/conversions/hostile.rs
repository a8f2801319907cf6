//! Input that is no valid record: no panic, bounded work, rows that stay in step.

use super::random::Random;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, NullArray, PrimitiveArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use bolide_arrow::{
    BatchLimits, Column, ConversionError, InferenceLimits, RecordDecoder, RecordEncoder, RecordKey,
    SchemaInference,
};

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

fn encoded(batch: &RecordBatch, key: &str) -> Result<Vec<String>, ConversionError> {
    let mut records = Vec::new();
    RecordEncoder::new(batch.schema(), key)?.encode(batch, |_, record| {
        records.push(String::from_utf8_lossy(record).into_owned());
        Ok::<(), ConversionError>(())
    })?;
    Ok(records)
}

#[test]
fn the_rows_of_a_dictionary_without_values_are_null() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let no_texts: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
    let keys = PrimitiveArray::<Int32Type>::from(vec![None, None]);
    let texts: ArrayRef = Arc::new(DictionaryArray::new(keys, no_texts));
    let no_numbers: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
    let keys = PrimitiveArray::<Int8Type>::from(vec![None, None]);
    let numbers: ArrayRef = Arc::new(DictionaryArray::new(keys, no_numbers));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts), ("number", numbers)]).unwrap();
    assert_eq!(encoded(&batch, "id").unwrap(), [r#"{"id":1}"#, r#"{"id":2}"#]);
    for key in ["text", "number"] {
        let error = encoded(&batch, key).unwrap_err().to_string();
        assert!(error.contains("row 0") && error.contains("NULL"), "{error}");
    }
    // Without rows too.
    assert_eq!(encoded(&batch.slice(0, 0), "text").unwrap(), Vec::<String>::new());
}

#[test]
fn a_record_of_very_many_elements_is_refused_in_bounded_memory() {
    const ELEMENTS: i32 = 1 << 30;
    let nulls = || Arc::new(NullArray::new(ELEMENTS as usize));
    let element = Arc::new(Field::new("element", DataType::Null, true));
    let offsets = OffsetBuffer::new(vec![0, 0, ELEMENTS].into());
    let list = ListArray::new(element.clone(), offsets, nulls(), None);
    let fixed = FixedSizeListArray::new(element, ELEMENTS / 2, nulls(), None);
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("in", list.data_type().clone(), true)),
        Arc::new(list.clone()) as ArrayRef,
    )]);
    let lists: [(ArrayRef, usize); 3] = [(Arc::new(list), 1), (Arc::new(fixed), 0), (Arc::new(nested), 1)];
    for (lists, row) in lists {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("id", ids), ("list", lists)]).unwrap();
        let error = encoded(&batch, "id").unwrap_err();
        let text = error.to_string();
        assert!(error.is_limit() && text.starts_with(&format!("row {row}: column \"list\": ")), "{text}");
    }
}

#[test]
fn the_limit_of_a_record_is_exact() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100)]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("t", texts)]).unwrap();
    let len = encoded(&batch, "id").unwrap()[0].len();
    for (max_bytes, is_refused) in [(len, false), (len - 1, true)] {
        let encoder = RecordEncoder::new(batch.schema(), "id").unwrap();
        let outcome =
            encoder.max_record_bytes(max_bytes).encode(&batch, |_, _| Ok::<(), ConversionError>(()));
        assert_eq!(outcome.is_err_and(|error| error.is_limit()), is_refused, "{max_bytes}");
    }
}

#[test]
fn names_with_nul_are_no_columns() {
    let mut inference = SchemaInference::new(InferenceLimits::default());
    assert!(inference.add(br#"{"a\u0000b":1,"c":2,"d":{"\u0000":3,"e":4}}"#));
    assert!(inference.is_incomplete());
    let columns = inference.finish();
    let names: Vec<&str> = columns.iter().map(Column::name).collect();
    assert_eq!(names, ["c", "d.e"]);
    let error = Column::parse("a\0b", "int64").unwrap_err();
    assert!(error.to_string().contains("NUL"), "{error}");
}
