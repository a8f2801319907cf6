//! Decoding compared with arrow-json, and with the rules applied to values of serde_json; encoding read back.
//!
//! The seed is printed; `BOLIDE_SEED` repeats it.

use std::sync::Arc;

use super::random::Random;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;
use bolide_arrow::{
    BatchLimits, Column, ColumnSource, ColumnType, ConversionError, EncodedKey, InferenceLimits,
    RecordDecoder, RecordEncoder, RecordKey, ScalarType, SchemaInference,
};
use serde_json::Value;

const TYPES: [&str; 13] = [
    "bool",
    "int64",
    "float64",
    "string",
    "date",
    "timestamp",
    "timestamp[s]",
    "timestamp[ms]",
    "list<int64>",
    "list<string>",
    "list<bool>",
    "list<float64>",
    "list<date>",
];

fn columns(random: &mut Random) -> Vec<Column> {
    let names =
        ["a", "b", "a_longer_name", "user.id", "user.name", "user.address.city", "é", r"dot\.ted", "z"];
    let mut columns = Vec::new();
    for name in names {
        if random.below(3) > 0 {
            columns.push(Column::parse(name, TYPES[random.below(TYPES.len())]).unwrap());
        }
    }
    columns
}

fn path(column: &Column) -> (&[String], ColumnType) {
    match column.source() {
        ColumnSource::Path(path, column_type) => (path.fields(), *column_type),
        other => panic!("{other:?}"),
    }
}

/// A record with values of the types of the columns, mostly.
fn record(random: &mut Random, columns: &[Column], is_mixed: bool) -> Value {
    let mut record = Value::Object(serde_json::Map::new());
    for column in columns {
        let (fields, column_type) = path(column);
        if random.below(8) == 0 {
            continue;
        }
        let value = match random.below(if is_mixed { 3 } else { 12 }) {
            0 => Value::Null,
            1 if is_mixed => random.json(3),
            _ => random.value_of(column_type),
        };
        let mut place = &mut record;
        for field in fields {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            place = &mut place[field.as_str()];
        }
        *place = value;
    }
    // Fields that are not projected.
    for name in ["x", "yy", "a_longer_nam"] {
        if random.below(2) == 0 {
            record[name] = random.json(3);
        }
    }
    record
}

fn decode(columns: &[Column], records: &[String]) -> RecordBatch {
    let mut decoder = RecordDecoder::new(columns.to_vec(), BatchLimits::default()).unwrap();
    for record in records {
        decoder.push(RecordKey::Int(1), 1, record.as_bytes()).unwrap();
    }
    assert_eq!(decoder.malformed(), 0);
    decoder.finish().unwrap()
}

/// The same JSON with other notation: spaces, escapes, order of fields.
fn notation(random: &mut Random, value: &Value) -> String {
    match random.below(3) {
        0 => value.to_string(),
        1 => serde_json::to_string_pretty(value).unwrap(),
        _ => value.to_string().replace("\"a\":", "\"\\u0061\" :").replace("\"user\":", " \"u\\u0073er\": "),
    }
}

#[test]
fn records_of_the_declared_types_decode_as_by_arrow_json() {
    let mut random = Random::seeded("oracle");
    for _ in 0..300 {
        // Arrow's decoder has nested structs instead of paths.
        let columns: Vec<Column> =
            columns(&mut random).into_iter().filter(|one| path(one).0.len() == 1).collect();
        let records: Vec<Value> =
            (0..random.below(40)).map(|_| record(&mut random, &columns, false)).collect();
        let texts: Vec<String> = records.iter().map(|record| notation(&mut random, record)).collect();
        let batch = decode(&columns, &texts);
        let names = columns.iter().map(|column| column.field().with_name(path(column).0[0].clone()));
        let schema = Arc::new(Schema::new(names.collect::<Vec<_>>()));
        let mut reader = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().unwrap();
        for text in &texts {
            assert_eq!(reader.decode(text.as_bytes()).unwrap(), text.len(), "{text}");
        }
        let Some(expected) = reader.flush().unwrap() else { continue };
        for (at, column) in columns.iter().enumerate() {
            assert_eq!(batch.column(at), expected.column(at), "{column:?}\n{}", texts.join("\n"));
        }
    }
}

/// What a value is in a column, by the rules; JSON null for NULL.
fn by_the_rules(value: &Value, scalar: ScalarType) -> Value {
    let read = match (scalar, value) {
        (ScalarType::Bool, Value::Bool(_)) | (ScalarType::String, Value::String(_)) => Some(value.clone()),
        (ScalarType::Float64, Value::Number(number)) => number.as_f64().map(Value::from),
        (ScalarType::Int64 | ScalarType::Timestamp(_), Value::Number(number)) => {
            let whole = |float: f64| {
                (float.fract() == 0.0 && (-9.3e18..9.3e18).contains(&float))
                    .then_some(float as i128)
                    .and_then(|whole| i64::try_from(whole).ok())
            };
            let int = number
                .as_i64()
                .or_else(|| number.is_f64().then(|| number.as_f64().and_then(whole)).flatten());
            int.map(Value::from)
        }
        _ => None,
    };
    read.unwrap_or(Value::Null)
}

fn expected(record: &Value, column: &Column) -> Value {
    let (fields, column_type) = path(column);
    let mut value = record;
    for field in fields {
        value = match value {
            Value::Object(fields) => fields.get(field).unwrap_or(&Value::Null),
            _ => &Value::Null,
        };
    }
    match (column_type, value) {
        (ColumnType::Scalar(scalar), value) => by_the_rules(value, scalar),
        (ColumnType::List(element), Value::Array(elements)) => {
            elements.iter().map(|value| by_the_rules(value, element)).collect()
        }
        _ => Value::Null,
    }
}

fn decoded(array: &dyn Array, scalar: ScalarType, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match scalar {
        ScalarType::Bool => array.as_boolean().value(row).into(),
        ScalarType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        ScalarType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        ScalarType::Timestamp(_) => array.as_primitive::<TimestampMillisecondType>().value(row).into(),
        ScalarType::String => array.as_string::<i32>().value(row).into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_of_other_types_are_null() {
    let mut random = Random::seeded("rules");
    let types =
        ["bool", "int64", "float64", "string", "timestamp[ms]", "list<int64>", "list<string>", "list<bool>"];
    for _ in 0..300 {
        let columns: Vec<Column> = columns(&mut random)
            .iter()
            .map(|column| Column::parse(column.name(), types[random.below(types.len())]).unwrap())
            .collect();
        let records: Vec<Value> = (0..20).map(|_| record(&mut random, &columns, true)).collect();
        let texts: Vec<String> = records.iter().map(|record| notation(&mut random, record)).collect();
        let batch = decode(&columns, &texts);
        for (at, column) in columns.iter().enumerate() {
            let array = batch.column(at);
            for (row, record) in records.iter().enumerate() {
                let found = match path(column).1 {
                    ColumnType::Scalar(scalar) => decoded(array, scalar, row),
                    ColumnType::List(_) if array.is_null(row) => Value::Null,
                    ColumnType::List(element) => {
                        let list = array.as_list::<i32>().value(row);
                        (0..list.len()).map(|at| decoded(&list, element, at)).collect()
                    }
                };
                assert_eq!(found, expected(record, column), "{column:?} of {}", texts[row]);
            }
        }
    }
}

#[test]
fn special_columns_have_keys_sequences_and_records() {
    let parse = |name, of| Column::parse(name, of).unwrap();
    let columns = vec![
        parse("_key", "string"),
        parse("_sequence", "int64"),
        parse("_record", "json"),
        parse("d", "date"),
    ];
    let mut decoder = RecordDecoder::new(columns, BatchLimits::default().with_rows(3)).unwrap();
    decoder.push(RecordKey::Int(-5), 7, br#"{"d":"1970-01-02"}"#).unwrap();
    // Malformed: no values, but a row.
    decoder.push(RecordKey::Text("k"), 8, br#"{"d":"1970-01-02","#).unwrap();
    decoder.push(RecordKey::Text("l"), 9, br#"{"d":"1970-01-02"#).unwrap();
    assert!(decoder.is_full());
    let error = decoder.push(RecordKey::Bytes(b"\xff"), 9, b"{}").unwrap_err();
    assert!(error.to_string().contains("declare another type"), "{error}");
    assert_eq!(decoder.malformed(), 1);
    let batch = decoder.finish().unwrap();
    let texts = |at: usize| batch.column(at).as_string::<i32>().iter().flatten().collect::<Vec<_>>();
    assert_eq!(texts(0), ["-5", "k", "l"]);
    assert_eq!(texts(2)[0], r#"{"d":"1970-01-02"}"#);
    let days: Vec<_> = batch.column(3).as_primitive::<Date32Type>().iter().collect();
    // The pass over the second record ended before its damage.
    assert_eq!(days, [Some(1), Some(1), None]);
    assert_eq!(decoder.finish().unwrap().num_rows(), 0);
    for pair in [["a", "a"], ["a.b", r"a\.b"]] {
        let columns = pair.map(|name| Column::parse(name, "json").unwrap()).to_vec();
        assert_eq!(RecordDecoder::new(columns, BatchLimits::default()).is_ok(), pair[0] != pair[1]);
    }
}

#[test]
fn encoded_records_decode_to_the_same_batch() {
    let mut random = Random::seeded("encoder");
    for _ in 0..200 {
        let mut declared = vec![Column::parse("_key", "string").unwrap()];
        // The encoder does not take names apart, and integers are not read as timestamps by the names of units.
        declared.extend(columns(&mut random).into_iter().filter(|column| {
            let (fields, column_type) = path(column);
            fields.len() == 1
                && !matches!(
                    column_type,
                    ColumnType::Scalar(ScalarType::Timestamp(_)) | ColumnType::List(ScalarType::Date)
                )
                && column.name() == fields[0]
        }));
        let values = &declared[1..];
        let records: Vec<String> = (0..30).map(|_| record(&mut random, values, true).to_string()).collect();
        let mut decoder = RecordDecoder::new(declared.clone(), BatchLimits::default()).unwrap();
        for (row, record) in records.iter().enumerate() {
            decoder.push(RecordKey::Text(&format!("k{row}")), 0, record.as_bytes()).unwrap();
        }
        let batch = decoder.finish().unwrap();
        // A slice has offsets.
        let batch = batch.slice(3, 20);
        let mut encoder = RecordEncoder::new(batch.schema(), "_key").unwrap();
        let mut again = RecordDecoder::new(declared, BatchLimits::default()).unwrap();
        encoder
            .encode(&batch, |key, record| {
                let EncodedKey::Text(key) = key else { panic!("{key:?}") };
                serde_json::from_slice::<Value>(record).unwrap();
                again.push(RecordKey::Text(key), 0, record)
            })
            .unwrap();
        assert_eq!(again.finish().unwrap(), batch);
    }
}

#[test]
fn the_inferred_columns_hold_the_sample() {
    let mut random = Random::seeded("inference");
    for _ in 0..100 {
        let declared = columns(&mut random);
        let records: Vec<Value> = (0..30).map(|_| record(&mut random, &declared, false)).collect();
        let mut inference = SchemaInference::new(InferenceLimits::default());
        for record in &records {
            assert!(inference.add(record.to_string().as_bytes()));
        }
        assert!(!inference.is_incomplete());
        let inferred = inference.finish();
        for record in &records {
            let batch = decode(&inferred, &[record.to_string()]);
            for (at, column) in inferred.iter().enumerate() {
                let mut value = record;
                for field in path(column).0 {
                    value = &value[field.as_str()];
                }
                assert_eq!(batch.column(at).is_null(0), value.is_null(), "{column:?} of {record}");
            }
        }
    }
}

#[test]
fn errors_of_encoding_name_row_and_column() {
    let floats = Arc::new(arrow_array::Float64Array::from(vec![1.0, f64::NAN])) as _;
    let keys = Arc::new(arrow_array::Int64Array::from(vec![Some(1), None])) as _;
    let batch = RecordBatch::try_from_iter([("k", keys), ("x", floats)]).unwrap();
    let mut encoder = RecordEncoder::new(batch.schema(), "k").unwrap();
    let error = encoder.encode(&batch, |_, _| Ok::<(), ConversionError>(())).unwrap_err().to_string();
    assert!(error.contains("row 1") && error.contains("\"x\"") && error.contains("NaN"), "{error}");
    let error =
        encoder.encode(&batch.project(&[0]).unwrap(), |_, _| Ok::<(), ConversionError>(())).unwrap_err();
    assert!(error.to_string().contains("another schema"));
    let error = RecordEncoder::new(batch.schema(), "id").err().unwrap().to_string();
    assert!(error.contains("the columns are k, x"), "{error}");
    assert!(RecordEncoder::new(batch.schema(), "x").is_err());
}

#[test]
fn nested_values_are_encoded_with_their_slices() {
    use arrow_array::types::Int32Type;
    use arrow_array::{
        DictionaryArray, FixedSizeListArray, Int32Array, LargeStringArray, ListArray, StringArray,
        StructArray,
    };
    use arrow_schema::{DataType, Field};

    let numbers = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let texts = Arc::new(LargeStringArray::from(vec![None, Some("\"x\""), Some("")]));
    let field = |name: &str, of: DataType| Arc::new(Field::new(name, of, true));
    let record = StructArray::from(vec![
        (field("n", DataType::Int32), numbers as Arc<dyn Array>),
        (field("t", DataType::LargeUtf8), texts as _),
    ]);
    let lists =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        [Some(vec![Some(1), Some(2)]), None, Some(vec![Some(5), None])],
        2,
    );
    let words: DictionaryArray<Int32Type> = [Some("a"), None, Some("a")].into_iter().collect();
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(StringArray::from(vec!["x", "y", "z"])) as Arc<dyn Array>),
        ("record", Arc::new(record) as _),
        ("list", Arc::new(lists) as _),
        ("pair", Arc::new(pairs) as _),
        ("word", Arc::new(words) as _),
    ])
    .unwrap();
    let expected = [
        r#"{"id":"x","record":{"n":1},"list":[1,null],"pair":[1,2],"word":"a"}"#,
        r#"{"id":"y","record":{"t":"\"x\""}}"#,
        r#"{"id":"z","record":{"n":3,"t":""},"list":[],"pair":[5,null],"word":"a"}"#,
    ];
    for start in 0..3 {
        let slice = batch.slice(start, 3 - start);
        let mut records = Vec::new();
        let mut encoder = RecordEncoder::new(slice.schema(), "id").unwrap();
        encoder
            .encode(&slice, |_, record| {
                records.push(String::from_utf8(record.to_vec()).unwrap());
                Ok::<(), ConversionError>(())
            })
            .unwrap();
        assert_eq!(records, expected[start..]);
    }
}
