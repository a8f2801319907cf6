use bolide_base::ErrorKind;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::attribute::Value;
use crate::model::expected_values;
use crate::path::AttributePath;

fn extract(record: &[u8], paths: &[&str]) -> Result<Vec<Vec<Value>>> {
    let plan = AttributePlan::new(paths.iter().map(|path| path.parse().unwrap()));
    let mut values = AttributeValues::new();
    JsonExtractor.extract(record, &plan, &mut values)?;
    Ok((0..paths.len())
        .map(|slot| values.values(slot).map(|bytes| Value::decode(bytes).unwrap().0).collect())
        .collect())
}

fn one(record: &str, path: &str) -> Vec<Value> {
    extract(record.as_bytes(), &[path]).unwrap().remove(0)
}

#[test]
fn scalars_of_every_type_are_found() {
    let record = r#"{"n":null,"t":true,"i":-5,"u":18446744073709551615,"f":2.5,"s":"a\u0000\"é","e":1e2}"#;
    let found = extract(record.as_bytes(), &["n", "t", "i", "u", "f", "s", "e", "absent"]).unwrap();
    let expected = [
        vec![Value::Null],
        vec![Value::Bool(true)],
        vec![Value::Int(-5)],
        vec![Value::Uint(u64::MAX)],
        vec![Value::Float(2.5)],
        vec![Value::from("a\0\"é")],
        vec![Value::Int(100)],
        vec![],
    ];
    assert_eq!(found, expected);
}

#[test]
fn arrays_have_the_distinct_values_of_their_elements() {
    let record = r#"{"tags":["b","a","b",null,1,1.0],"empty":[],"nested":[[1,2],[2,3],4]}"#;
    let tags = vec![Value::Null, Value::Int(1), Value::from("a"), Value::from("b")];
    assert_eq!(one(record, "tags"), tags);
    assert_eq!(one(record, "tags[*]"), tags);
    assert_eq!(extract(record.as_bytes(), &["tags", "tags[*]"]).unwrap(), [tags.clone(), tags]);
    assert!(one(record, "empty[*]").is_empty());
    assert_eq!(one(record, "nested"), [Value::Int(4)]);
    assert_eq!(one(record, "nested[*][*]"), [Value::Int(1), Value::Int(2), Value::Int(3)]);
}

#[test]
fn paths_reach_objects_in_arrays_and_arrays_in_objects() {
    let record =
        r#"{"items":[{"price":3,"by":{"id":"x"}},7,{"price":1},{"price":[2,3]}],"a":{"b":{"c":[true]}}}"#;
    assert_eq!(one(record, "items[*].price"), [Value::Int(1), Value::Int(2), Value::Int(3)]);
    assert_eq!(one(record, "items[*].by.id"), [Value::from("x")]);
    assert_eq!(one(record, "items[*]"), [Value::Int(7)]);
    assert_eq!(one(record, "a.b.c"), [Value::Bool(true)]);
}

#[test]
fn paths_that_do_not_match_the_record_yield_nothing() {
    let record = r#"{"a":1,"o":{"x":1},"l":[{"x":1}],"s":"text"}"#;
    for path in ["a.b", "a[*]", "o", "o[*]", "l", "l.x", "l[*].y", "s.length", "o.x.y", "none.x"] {
        assert!(one(record, path).is_empty(), "{path}");
    }
}

/// Asserts that the record is rejected with and without a path, and by both ways of validation.
fn assert_rejected(record: &[u8], reason: &str) {
    let printed = String::from_utf8_lossy(&record[..record.len().min(80)]).into_owned();
    let outcomes = [
        extract(record, &["a"]).map(drop),
        extract(record, &["a.b[*]", "rect(a)", "point(x,y)"]).map(drop),
        extract(record, &[]).map(drop),
        JsonExtractor.validate(record),
    ];
    for outcome in outcomes {
        let error = outcome.expect_err(&printed);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{printed}");
        assert!(error.to_string().contains(reason), "{printed}: {error}");
    }
    assert!(JsonExtractor.accepts(record).ok() != Some(true), "{printed}");
}

#[test]
fn repeated_names_are_rejected_at_every_position() {
    for record in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"b":2,"a":{}}"#,
        r#"{"o":{"x":1,"y":2},"z":5,"o":{"y":[3]}}"#,
        r#"{"l":[{"x":1},{"x":2,"x":3},{"x":4}]}"#,
        r#"{"\u0061":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"\u0061":{"\n":1},"b":{"\n":{},"\u000a":2}}"#,
        r#"{"":1,"":2}"#,
        r#"{"é":1,"\u00e9":2}"#,
    ] {
        assert_rejected(record.as_bytes(), "twice");
    }
    for record in [
        r#"{"a":{"a":{"a":1},"b":1},"b":[{"a":1},{"a":2}]}"#,
        r#"{"\u0061":1,"b":{"\u0061":2},"\u0062a":3}"#,
        r#"{"":1,"a":{"":2}}"#,
        r#"{"ab":1,"ba":2,"abb":3,"aab":4}"#,
    ] {
        assert!(JsonExtractor.validate(record.as_bytes()).is_ok(), "{record}");
    }
}

#[test]
fn repeated_names_of_large_objects_are_detected_at_any_distance() {
    let object = |names: &[String]| {
        let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\":{{\"x\":1}}")).collect();
        format!("{{\"a\":{{{}}}}}", fields.join(","))
    };
    for count in [2, 31, 32, 33, 34, 70, 1000] {
        let names: Vec<String> = (0..count).map(|number| format!("name {number}")).collect();
        assert!(JsonExtractor.validate(object(&names).as_bytes()).is_ok(), "{count}");
        for (first, second) in [(0, count - 1), (count - 2, count - 1), (0, 1), (count / 2, count - 1)] {
            let mut names = names.clone();
            names[second] = names[first].clone();
            let wanted = first == second;
            let outcome = JsonExtractor.validate(object(&names).as_bytes());
            assert_eq!(outcome.is_ok(), wanted, "{count}: {first} and {second}");
        }
    }
}

/// Pairwise comparison of the names would take 2·10¹⁰ steps.
#[test]
fn many_names_do_not_take_quadratic_time() {
    let fields: Vec<String> = (0..200_000).map(|number| format!("\"{number:08}\":0")).collect();
    assert!(JsonExtractor.validate(format!("{{{}}}", fields.join(",")).as_bytes()).is_ok());
    assert_rejected(format!("{{{},\"00000000\":1}}", fields.join(",")).as_bytes(), "twice");
}

#[test]
fn more_than_64_fields_are_found() {
    let paths: Vec<String> = (0..70).map(|number| format!("f{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let fields: Vec<String> = (0..70).map(|number| format!("\"f{number}\":{number}")).collect();
    let found = extract(format!("{{{}}}", fields.join(",")).as_bytes(), &paths).unwrap();
    for (number, values) in found.iter().enumerate() {
        assert_eq!(*values, [Value::Int(number as i64)]);
    }
}

#[test]
fn lone_surrogates_are_rejected_at_every_position() {
    for text in [r"\ud800", r"\udc00", r"x\ud83dx", r"\ud83d\u0041", r"\ud83d\n"] {
        for record in [
            format!("{{\"a\":\"{text}\"}}"),
            format!("{{\"id\":1,\"b\":[{{\"c\":\"{text}\"}}]}}"),
            format!("{{\"{text}\":1}}"),
        ] {
            assert_rejected(record.as_bytes(), "not a valid JSON object");
        }
    }
    assert_eq!(one(r#"{"a":"\ud83d\ude00"}"#, "a"), [Value::from("😀")]);
}

#[test]
fn numbers_that_are_not_finite_are_rejected_at_every_position() {
    for number in ["1e999", "-1e999", "1e309", &"9".repeat(400), "1.8e308", "NaN", "Infinity", "-Infinity"] {
        for record in [
            format!("{{\"a\":{number}}}"),
            format!("{{\"a\":1,\"b\":[0,{{\"c\":{number}}}]}}"),
            format!("{{\"a\":[1,2,3,{number}]}}"),
        ] {
            assert_rejected(record.as_bytes(), "not a valid JSON object");
        }
    }
    for number in ["1.7976931348623157e308", "-1e308", "1e-999", "0e999999999999", &"9".repeat(300)] {
        assert!(JsonExtractor.validate(format!("{{\"a\":{number}}}").as_bytes()).is_ok(), "{number}");
    }
}

#[test]
fn stored_malformed_records_have_no_values() {
    let plan = AttributePlan::new(["a".parse().unwrap()]);
    let mut values = AttributeValues::new();
    let mut stored = |record: &str| {
        let is_read = JsonExtractor.extract_stored(record.as_bytes(), &plan, &mut values).unwrap();
        (is_read, values.values(0).len())
    };
    assert_eq!(stored(r#"{"a":1}"#), (true, 1));
    assert_eq!(stored(r#"{"a":1,"b":1e999}"#), (false, 0));
    assert_eq!(stored(&format!("{{\"a\":1,\"b\":{}", "[".repeat(500))), (false, 0));
    assert_eq!(stored(r#"{"a":1}"#), (true, 1));
}

#[test]
fn records_other_than_one_json_object_are_rejected() {
    let records: [&[u8]; 15] = [
        b"",
        b"  ",
        b"7",
        b"null",
        b"[]",
        b"\"text\"",
        b"{",
        b"{\"a\":1",
        b"{\"a\":1}}",
        b"{\"a\":1} x",
        b"{\"a\":}",
        b"{a:1}",
        b"{\"a\":1,}",
        b"{\"a\":NaN}",
        b"{\"b\":\"\xff\"}",
    ];
    for record in records {
        let error = extract(record, &["a"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{}", String::from_utf8_lossy(record));
        // The whole record is validated, also without any path.
        assert!(extract(record, &[]).is_err(), "{}", String::from_utf8_lossy(record));
    }
}

#[test]
fn numbers_are_exact() {
    assert_eq!(one(r#"{"a":-1.1373628116180075}"#, "a"), [Value::Float(-1.1373628116180075)]);
    assert_eq!(one(r#"{"a":18446744073709551616}"#, "a"), [Value::Float(18446744073709551616.0)]);
}

#[test]
fn nesting_is_limited_at_its_edge_at_every_position() {
    for path in ["x", "a", "a[*][*]"] {
        for over in [0, 1] {
            // The record itself is the first level.
            let levels = MAX_JSON_DEPTH - 1 + over;
            let record = format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
            let outcome = extract(record.as_bytes(), &[path]);
            match outcome {
                Ok(_) => assert_eq!(over, 0),
                Err(error) => assert_eq!((over, error.kind()), (1, ErrorKind::LimitExceeded)),
            }
        }
        for open in ["[", "{\"a\":"] {
            let record = format!("{{\"a\":{}", open.repeat(1_000_000));
            assert_eq!(extract(record.as_bytes(), &[path]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        }
    }
}

#[test]
fn brackets_in_strings_do_not_nest() {
    let text = format!(r#"{{"a":"{}\"[","b":[{}1]}}"#, "[{".repeat(300), "[],".repeat(300));
    assert_eq!(one(&text, "b"), [Value::Int(1)]);
}

#[test]
fn only_short_records_are_accepted_without_values() {
    let accepts = |text: &str| JsonExtractor.accepts(text.as_bytes()).ok();
    assert_eq!(accepts(r#" {"a":[1,-2.5,"hélène"],"b":{"c":null}}"#), Some(true));
    assert_eq!(accepts(r#"{"a":1.5E3,"b":"\n"}"#), Some(true));
    assert_eq!(accepts(&format!("{{\"a\":\"{}\"}}", "x".repeat(300))), Some(false));
    for text in [r#"{"a":1e999}"#, r#"{"a":"\ud800"}"#, r#"{"a":1,"a":2}"#, r#"{"a":}"#, "[1]", "7"] {
        assert_eq!(accepts(text), None, "{text}");
    }
}

#[test]
fn long_strings_are_extracted_completely() {
    let long = "x".repeat(1 << 20);
    assert_eq!(one(&format!("{{\"a\":\"{long}\"}}"), "a"), [Value::from(long)]);
}

fn rects(corners: &[[f64; 4]]) -> Vec<Value> {
    corners.iter().map(|&[a, b, c, d]| Value::Rect(Rect::new(a, b, c, d).unwrap())).collect()
}

#[test]
fn rectangles_are_arrays_of_four_numbers() {
    for (record, wanted) in [
        (r#"{"r":[1,2,3,4.5]}"#, rects(&[[1.0, 2.0, 3.0, 4.5]])),
        (r#"{"r":[[3,2,3,4],[1,2,3,4],[3,2,3,4]]}"#, rects(&[[1.0, 2.0, 3.0, 4.0], [3.0, 2.0, 3.0, 4.0]])),
        (r#"{"r":[[1,2,3,4],[3,2,1,4],[1,2,3],7,null,[5,5,5,5]]}"#, rects(&[[1.0, 2.0, 3.0, 4.0], [5.0; 4]])),
        (r#"{"r":[0,-0.0,0,0]}"#, rects(&[[0.0; 4]])),
        (r#"{"r":[1,2,3]}"#, vec![]),
        (r#"{"r":[1,2,3,4,5]}"#, vec![]),
        (r#"{"r":[1,2,3,"4"]}"#, vec![]),
        (r#"{"r":[1,2,null,4]}"#, vec![]),
        (r#"{"r":[179,1,-179,2]}"#, vec![]),
        (r#"{"r":[1,9,2,8]}"#, vec![]),
        (r#"{"r":[[[1,2,3,4]]]}"#, vec![]),
        (r#"{"r":{"x":1}}"#, vec![]),
        (r#"{"r":"1,2,3,4"}"#, vec![]),
        (r#"{"r":[]}"#, vec![]),
    ] {
        assert_eq!(one(record, "rect(r)"), wanted, "{record}");
    }
    assert_eq!(one(r#"{"r":[{"b":[1,1,2,2]},{"b":[0,0,1,1]}]}"#, "rect(r[*].b)").len(), 2);
    assert_eq!(one(r#"{"r":[[1,1,2,2],[0,0,1,1]]}"#, "rect(r[*])").len(), 2);
    assert!(extract(br#"{"r":[1,2,3,1e999]}"#, &["rect(r)"]).is_err());
    let both = extract(br#"{"r":[1,2,3,4]}"#, &["rect(r)", "r", "r[*]"]).unwrap();
    assert_eq!(both.iter().map(Vec::len).collect::<Vec<_>>(), [1, 4, 4]);
}

#[test]
fn points_consist_of_two_numbers() {
    let point = |x, y| rects(&[[x, y, x, y]]);
    for (record, wanted) in [
        (r#"{"lat":30.25,"at":{"lon":-97}}"#, point(-97.0, 30.25)),
        (r#"{"at":{"lon":0,"lat":1},"lat":-0.0}"#, point(0.0, 0.0)),
        (r#"{"lat":1,"at":{}}"#, vec![]),
        (r#"{"lat":1}"#, vec![]),
        (r#"{"lat":null,"at":{"lon":5}}"#, vec![]),
        (r#"{"lat":"1","at":{"lon":5}}"#, vec![]),
        (r#"{"lat":[1],"at":{"lon":5}}"#, vec![]),
        (r#"{"lat":1,"at":[{"lon":5}]}"#, vec![]),
    ] {
        assert_eq!(one(record, "point(at.lon,lat)"), wanted, "{record}");
    }
    assert_eq!(one(r#"{"a":3}"#, "point(a,a)"), point(3.0, 3.0));
    let all = extract(br#"{"x":1,"y":2,"z":3}"#, &["point(x,y)", "y", "point(y,z)", "point(z,w)"]).unwrap();
    assert_eq!(all[0], point(1.0, 2.0));
    assert_eq!((&all[1][..], &all[2], &all[3]), (&[Value::Int(2)][..], &point(2.0, 3.0), &vec![]));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        (-3..3_i64).prop_map(|value| json!(value)),
        (-2.0..2.0_f64).prop_map(|value| json!(value)),
        proptest::collection::vec(-2..3_i64, 3..6).prop_map(|corners| json!(corners)),
        [-3.0..1.0_f64, -3.0..1.0_f64, 0.0..2.0_f64, 0.0..2.0_f64].prop_map(|corners| json!(corners)),
        "[ab\"\\\\\0é]{0,3}".prop_map(|value| json!(value)),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::Array),
            proptest::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|fields| serde_json::Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn one_pass_extracts_the_values_of_the_parsed_tree(
        fields in proptest::collection::btree_map("[ab]", any_json(), 0..3),
        paths in proptest::collection::vec("[ab](\\[\\*\\]){0,2}(\\.[ab](\\[\\*\\])?){0,2}", 1..6),
    ) {
        let record = serde_json::Value::Object(fields.into_iter().collect());
        let mut paths: Vec<AttributePath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let point = |two: &[AttributePath]| AttributePath::point(two[0].clone(), two[1].clone()).ok();
        let points = paths.windows(2).filter_map(point);
        let rects = paths.iter().map(|path| AttributePath::rect(path.clone()).unwrap());
        paths = rects.chain(points).chain(paths.iter().cloned()).collect();
        paths.sort();
        paths.dedup();
        let plan = AttributePlan::new(paths.iter().cloned());
        let mut values = AttributeValues::new();
        JsonExtractor.extract(record.to_string().as_bytes(), &plan, &mut values).unwrap();
        for (slot, path) in paths.iter().enumerate() {
            let mut expected = expected_values(&record, path);
            expected.sort();
            expected.dedup();
            let found: Vec<Value> =
                values.values(slot).map(|bytes| Value::decode(bytes).unwrap().0).collect();
            prop_assert_eq!(found, expected, "{} of {}", path, record);
        }
    }

    #[test]
    fn validated_records_are_accepted_by_extraction(
        parts in proptest::collection::vec(
            "[{}\\[\\],:\" ]|\"a\"|\"a\":|[0-9]{1,3}|[0-9.eE+-]{1,4}|null|true|\\\\u[dD][89cC]00|1e999|é",
            0..14,
        ),
        wrapped in any::<bool>(),
    ) {
        let text = parts.concat();
        let text = if wrapped { format!("{{\"a\":[{text}]}}") } else { text };
        let plan = AttributePlan::new(["a".parse().unwrap()]);
        let extracted = JsonExtractor.extract(text.as_bytes(), &plan, &mut AttributeValues::new());
        prop_assert_eq!(JsonExtractor.validate(text.as_bytes()).is_ok(), extracted.is_ok(), "{}", text);
        // What is valid for another parser is rejected only for a name that occurs twice.
        let parsed = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text).is_ok();
        match &extracted {
            Ok(()) => prop_assert!(parsed, "{}", text),
            Err(error) => prop_assert!(!parsed || error.to_string().contains("twice"), "{}: {}", text, error),
        }
        match JsonExtractor.accepts(text.as_bytes()) {
            Ok(true) => prop_assert!(extracted.is_ok(), "{}: {:?}", text, extracted),
            Ok(false) => {}
            Err(_) => prop_assert!(extracted.is_err(), "{}", text),
        }
    }

    #[test]
    fn any_bytes_are_extracted_or_rejected(record in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = extract(&record, &["a", "a[*].b"]);
    }
}
