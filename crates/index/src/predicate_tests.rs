use std::ops::RangeBounds;

use bolide_base::ErrorKind;

use proptest::prelude::*;

use super::*;

fn equal(text: &str) -> Value {
    match Predicate::parse_equal(text).unwrap().condition {
        Condition::Equal(value) => value,
        other => panic!("{other:?}"),
    }
}

fn range(text: &str) -> (Bound<Value>, Bound<Value>) {
    match Predicate::parse_range(text).unwrap().condition {
        Condition::Range(low, high) => (low, high),
        other => panic!("{other:?}"),
    }
}

fn satisfied(predicate: &Predicate, value: impl Into<Value>) -> bool {
    predicate.encoded_range().contains(&encode(&value.into()).unwrap())
}

#[test]
fn values_are_json_if_they_parse_and_strings_otherwise() {
    assert_eq!(equal("a=1"), Value::Int(1));
    assert_eq!(equal("a=1.0"), Value::Int(1));
    assert_eq!(equal("a=\"1\""), Value::from("1"));
    assert_eq!(equal("a=true"), Value::Bool(true));
    assert_eq!(equal("a=null"), Value::Null);
    assert_eq!(equal("a="), Value::from(""));
    assert_eq!(equal("a=rust"), Value::from("rust"));
    assert_eq!(equal("a=b=c"), Value::from("b=c"));
    assert_eq!(equal("a=i.imgur.com"), Value::from("i.imgur.com"));
    assert_eq!(equal("a=NaN"), Value::from("NaN"));
    assert_eq!(equal("a=inf"), Value::from("inf"));
    assert_eq!(equal("a=[not json"), Value::from("[not json"));
    assert_eq!(equal("a=18446744073709551615"), Value::Uint(u64::MAX));
    assert_eq!(Predicate::parse_equal(r"a\=b=c").unwrap().path, AttributePath::field("a=b"));
    assert_eq!(equal(&format!("a={}", "[".repeat(1_000_000))), Value::from("[".repeat(1_000_000)));
}

#[test]
fn ranges_are_split_outside_of_quotes() {
    let ends = |low: Value, high: Value| (Bound::Included(low), Bound::Included(high));
    assert_eq!(range("a=1..5"), ends(Value::Int(1), Value::Int(5)));
    assert_eq!(range("a=-1.5..2e3"), ends(Value::Float(-1.5), Value::Int(2000)));
    assert_eq!(range("a=b..c"), ends("b".into(), "c".into()));
    assert_eq!(range(r#"a="x..y".."z..""#), ends("x..y".into(), "z..".into()));
    assert_eq!(range(r#"a="\"..".."z""#), ends("\"..".into(), "z".into()));
    assert_eq!(range("a=5.."), (Bound::Included(Value::Int(5)), Bound::Unbounded));
    assert_eq!(range("a=..b"), (Bound::Unbounded, Bound::Included("b".into())));
    assert_eq!(range(r#"a=.."..""#), (Bound::Unbounded, Bound::Included("..".into())));
    assert_eq!(range("a=\"\".."), (Bound::Included("".into()), Bound::Unbounded));
    assert_eq!(range("a=5\"..6\""), ends("5\"".into(), "6\"".into()));
}

#[test]
fn errors_of_malformed_predicates_have_their_kind() {
    for text in ["", "a", "=1", "a..b=1", "a=[1]", "a={\"b\":1}", "a=1e999", "a=-1e999"] {
        let error = Predicate::parse_equal(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
    }
    for text in [
        "a",
        "a=",
        "a=1",
        "a=..",
        "a=1..b",
        "a=\"1\"..2",
        "a=1...5",
        "a=a..b..c",
        "a=true..",
        "a=null..",
        "a=[1]..",
        "a=\"x..y",
        "a=\"x\"y..z",
        "=1..2",
        "a=1e999..",
    ] {
        let error = Predicate::parse_range(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
    }
    assert!(Predicate::equal(AttributePath::field("a"), f64::NAN).is_err());
}

#[test]
fn types_matter() {
    let one = Predicate::parse_equal("a=1").unwrap();
    assert!(satisfied(&one, 1));
    assert!(satisfied(&one, 1.0));
    assert!(!satisfied(&one, "1"));
    assert!(!satisfied(&one, true));
    let from_one = Predicate::parse_range("a=1..").unwrap();
    assert!(satisfied(&from_one, u64::MAX));
    assert!(satisfied(&from_one, f64::INFINITY));
    assert!(!satisfied(&from_one, "2"));
    assert!(!satisfied(&from_one, 0.5));
    let to_b = Predicate::parse_range("a=..b").unwrap();
    assert!(satisfied(&to_b, ""));
    assert!(satisfied(&to_b, "b"));
    assert!(!satisfied(&to_b, "b\0"));
    assert!(!satisfied(&to_b, 1));
    assert!(!satisfied(&to_b, false));
}

#[test]
fn ranges_of_the_interface_may_exclude_their_ends() {
    let predicate = Predicate::range(AttributePath::field("a"), 1..3).unwrap();
    assert!(satisfied(&predicate, 1) && satisfied(&predicate, 2.999) && !satisfied(&predicate, 3));
    let above = (Bound::Excluded("b"), Bound::Unbounded);
    let predicate = Predicate::range(AttributePath::field("a"), above).unwrap();
    assert!(!satisfied(&predicate, "b") && satisfied(&predicate, "b\0") && satisfied(&predicate, "c"));
    let no_end: (Bound<i64>, Bound<i64>) = (Bound::Unbounded, Bound::Unbounded);
    assert!(Predicate::range(AttributePath::field("a"), no_end).is_err());
    let words = Predicate::range(AttributePath::field("a"), "a".."c").unwrap();
    assert!(satisfied(&words, "b") && !satisfied(&words, "c"));
    assert!(Predicate::parse_range("a=9..1").unwrap_err().message().contains("contains nothing"));
    let empty = Predicate::range("a".parse().unwrap(), (Bound::Included(9), Bound::Included(1))).unwrap();
    assert!(!satisfied(&empty, 5) && !satisfied(&empty, 9) && !satisfied(&empty, 1));
}

proptest! {
    #[test]
    fn ranges_agree_with_comparing_values(
        low in -5..5_i32, high in -5..5_i32, value in -6.0..6.0_f64, shape in 0..9_u8,
    ) {
        let bound = |shape: u8, end: i32| match shape {
            0 => Bound::Included(end),
            1 => Bound::Excluded(end),
            _ => Bound::Unbounded,
        };
        let range = (bound(shape / 3, low), bound(shape % 3, high));
        for value in [value, value.round()] {
            match Predicate::range(AttributePath::field("a"), range) {
                Ok(predicate) => {
                    let ends: (Bound<f64>, Bound<f64>) = (range.0.map(f64::from), range.1.map(f64::from));
                    prop_assert_eq!(satisfied(&predicate, value), ends.contains(&value));
                }
                Err(_) => prop_assert_eq!(range, (Bound::Unbounded, Bound::Unbounded)),
            }
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "a=.{0,20}") {
        if let Ok(predicate) = Predicate::parse_equal(&text) {
            prop_assert_eq!(&Predicate::parse_equal(&predicate.to_string()).unwrap(), &predicate);
        }
        if let Ok(predicate) = Predicate::parse_range(&text) {
            prop_assert_eq!(&Predicate::parse_range(&predicate.to_string()).unwrap(), &predicate);
        }
    }
}
