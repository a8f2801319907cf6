use proptest::prelude::*;

use super::*;

fn error(text: &str) -> String {
    Filter::parse(text).map(|filter| filter.to_string()).expect_err(text).message().to_owned()
}

#[test]
fn filters_are_parsed_and_printed() {
    for (text, printed) in [
        (
            r#"state = "open" and (total > 10 or tags[*] in ("a","b"))"#,
            r#"state = "open" and (total > 10 or tags[*] in ("a", "b"))"#,
        ),
        ("a=1", "a = 1"),
        ("a = 1 AND b = 2 Or c = 3", "a = 1 and b = 2 or c = 3"),
        ("not (a = 1 or b = 2)", "not (a = 1 or b = 2)"),
        ("not not a exists", "not not a exists"),
        ("a is null and b is not null and c is absent", "a = null and not b = null and not c exists"),
        ("a is not absent", "not not a exists"),
        ("a != 1", "not a = 1"),
        ("a not in (1, 2)", "not a in (1, 2)"),
        ("a in (2, 1, 2.0)", "a in (1, 2)"),
        ("a in -1.5..2e3", "a in -1.5..2000.0"),
        ("a in 1<..2 and a in 1 ..< 2 and a in 1<..<2", "a in 1<..2 and a in 1..<2 and a in 1<..<2"),
        (r#"a in "x..".."y""#, r#"a in "x..".."y""#),
        (r#"a starts with "x""#, r#"a starts with "x""#),
        (r#"a <= "x" and a >= "b" and a < 5"#, r#"a <= "x" and a >= "b" and a < 5"#),
        ("rect(b.x) within (0, 1, 2, 3)", "rect(b.x) within (0,1,2,3)"),
        ("rect(b) exists", "rect(b) exists"),
        ("point(x,y) nearest (1, 2.5)", "point(x,y) nearest (1,2.5)"),
        ("point( x, y ) nearest (1,2)", "point(x,y) nearest (1,2)"),
        (r"\and = 1 and in.b = 2", r"\and = 1 and in.b = 2"),
        (r"a\ b\=c = 1", r"a\ b\=c = 1"),
        ("((((a = 1))))", "a = 1"),
        ("(a = 1 and b = 2) and c = 3", "a = 1 and b = 2 and c = 3"),
        ("true", "true"),
        ("false or a = 1", "a = 1"),
        ("ü = \"é\"", "ü = \"é\""),
    ] {
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.to_string(), printed, "{text}");
        assert_eq!(Filter::parse(printed).unwrap(), filter, "{text}");
    }
}

#[test]
fn errors_have_a_position() {
    for (text, position, what) in [
        ("", 1, "a condition"),
        ("a", 2, "expected `=`"),
        ("a = ", 5, "missing"),
        ("a = open", 5, "double quotes"),
        ("a = 1 b = 2", 7, "expected `and`"),
        ("a = 1 and", 10, "a condition"),
        ("(a = 1", 7, "closes"),
        ("a = 1)", 6, "expected `and`"),
        ("a in (1, 2", 11, "closes"),
        ("a in ()", 7, "no value"),
        ("a in 10..5", 6, "contains nothing"),
        ("a in 5<..5", 6, "contains nothing"),
        ("a in 1..\"b\"", 6, "one type"),
        ("a in true..false", 6, "numbers or strings"),
        ("a > null", 1, "numbers or strings"),
        ("a = \"x", 5, "not closed"),
        ("a = [1]", 5, "no value"),
        ("a = 1e999", 5, "out of range"),
        ("ü = \"é\" and a..b = 1", 13, "a..b"),
        ("a is 5", 6, "expected `null`"),
        ("a starts \"b\"", 10, "expected `with`"),
        ("a starts with 5", 15, "double quotes"),
        ("and = 1", 1, "word of the language"),
        ("b within (0,0,1,1)", 1, "not spatial"),
        ("rect(b) within (0,0,1)", 16, "not 4 numbers"),
        ("rect(b) = 1", 1, "spatial"),
        ("point(x, y nearest (1,2)", 1, "not closed"),
        ("rect(b) in (1)", 1, "spatial"),
    ] {
        let message = error(text);
        assert!(message.contains(&format!("position {position}:")), "{text}: {message}");
        assert!(message.contains(what), "{text}: {message}");
    }
    assert!(error(&"(".repeat(10_000)).contains("levels"));
    assert!(error(&"not ".repeat(10_000)).contains("levels"));
}

#[test]
fn limits_are_exact() {
    let nested = |depth: usize| (1..depth).fold(Filter::eq("a", 1), |inner, _| !inner);
    assert!(nested(MAX_FILTER_DEPTH).check().is_ok());
    assert!(nested(MAX_FILTER_DEPTH + 1).check().is_err());
    assert_eq!(Filter::parse(&nested(MAX_FILTER_DEPTH).to_string()).unwrap(), nested(MAX_FILTER_DEPTH));
    let wide = |count| Filter::any((0..count).map(|at| Filter::eq("a", at)));
    assert!(wide(MAX_FILTER_CONDITIONS as i64).check().is_ok());
    assert!(wide(MAX_FILTER_CONDITIONS as i64 + 1).check().is_err());
    let list = |count| Filter::one_of("a", 0..count);
    assert!(list(MAX_FILTER_VALUES as i64).check().is_ok());
    assert!(list(MAX_FILTER_VALUES as i64 + 1).check().is_err());
    assert!(list(6_000).and(list(6_000)).check().is_err());
}

/// Random filters.
pub(super) fn any_filter() -> impl Strategy<Value = Filter> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-4..6_i64).prop_map(Value::Int),
        any::<f64>().prop_filter("a number", |value| value.is_finite()).prop_map(Value::Float),
        "[a-c\"\\\\é.]{0,3}".prop_map(Value::from),
    ];
    let path = prop_oneof![
        Just("a"),
        Just("b.c"),
        Just("tags[*]"),
        Just(r"x\ y"),
        Just("not_"),
        Just(r"\in"),
        Just(r"q\.\=\<")
    ];
    let numbers = (-5..5_i64, 0..9_i64);
    let test = prop_oneof![
        (path.clone(), value.clone()).prop_map(|(path, value)| Filter::eq(path, value)),
        (path.clone(), numbers.clone()).prop_map(|(path, (low, len))| Filter::range(path, low..=low + len)),
        (path.clone(), numbers.clone())
            .prop_map(|(path, (low, len))| Filter::range(path, low..low + len + 1)),
        (path.clone(), -5..5_i64).prop_map(|(path, end)| Filter::range(path, ..end)),
        (path.clone(), -5..5_i64).prop_map(|(path, end)| Filter::range(path, end..)),
        (path.clone(), "[a-c]{0,2}").prop_map(|(path, prefix)| Filter::prefix(path, prefix)),
        (path.clone(), proptest::collection::vec(value, 1..4))
            .prop_map(|(path, values)| Filter::one_of(path, values)),
        path.clone().prop_map(Filter::exists),
        path.clone().prop_map(Filter::absent),
        path.prop_map(Filter::is_null),
    ];
    test.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Filter::all),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Filter::any),
            inner.prop_map(|filter| !filter),
        ]
    })
}

proptest! {
    #[test]
    fn every_filter_parses_from_its_text(filter in any_filter()) {
        let text = filter.to_string();
        let again = Filter::parse(&text);
        prop_assert!(again.is_ok(), "{}: {:?}", text, again);
        prop_assert_eq!(&again.unwrap(), &filter, "{}", text);
    }

    #[test]
    fn no_text_panics(text in r#"[ab01"\\()<>=!., andortinsx\[\]*-]{0,40}"#) {
        if let Ok(filter) = Filter::parse(&text) {
            prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
        }
    }
}
