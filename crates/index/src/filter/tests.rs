use proptest::prelude::*;

use super::parse_tests::any_filter;
use super::*;
use crate::extractor::AttributeExtractor;
use crate::json::JsonExtractor;
use crate::model::holds;
use crate::{AttributeValues, CompiledQuery, Query};

/// Whether `filter` accepts the record, by the normal form.
fn accepts(filter: &Filter, record: &str) -> bool {
    let query = Query::new().filter(filter.clone());
    let compiled = CompiledQuery::new(&query).unwrap_or_else(|error| panic!("{filter}: {error}"));
    let mut values = AttributeValues::new();
    JsonExtractor.extract(record.as_bytes(), compiled.plan(), &mut values).unwrap();
    compiled.matches(&values)
}

#[test]
fn the_truth_table_holds() {
    // As in docs/QUERIES.md: the content of `a`, and which filters accept it.
    let filters = [
        Filter::eq("a", 1),
        !Filter::eq("a", 1),
        Filter::exists("a"),
        Filter::absent("a"),
        Filter::is_null("a"),
        !Filter::is_null("a"),
        Filter::range("a", 1..),
        !Filter::range("a", 1..),
    ];
    for (content, wanted) in [
        ("{}", "01010101"),
        (r#"{"a":{}}"#, "01010101"),
        (r#"{"a":[]}"#, "01010101"),
        (r#"{"a":null}"#, "01101001"),
        (r#"{"a":1}"#, "10100110"),
        (r#"{"a":2}"#, "01100110"),
        (r#"{"a":"1"}"#, "01100101"),
        (r#"{"a":[1,2]}"#, "10100110"),
        (r#"{"a":[1,null]}"#, "10101010"),
        (r#"{"a":[0,{"b":1}]}"#, "01100101"),
    ] {
        let found: String =
            filters.iter().map(|filter| if accepts(filter, content) { '1' } else { '0' }).collect();
        assert_eq!(found, wanted, "{content}");
    }
}

#[test]
fn normal_forms_have_conditions_that_indexes_serve() {
    let parts = |text: &str| {
        let parts = Conjunction::of(Filter::parse(text).unwrap().into_node().unwrap()).unwrap();
        let terms: Vec<String> = parts.terms.iter().map(FilterNode::summary).collect();
        (parts.predicates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" & "), terms.join(" & "))
    };
    let wanted = |predicates: &str, terms: &str| (predicates.to_owned(), terms.to_owned());
    assert_eq!(parts("a = 1 and (b > 2 and c exists)"), wanted("a=1 & b=2<.. & c exists", ""));
    assert_eq!(parts("not (a != 1 or b = 2)"), wanted("a=1", "not b = 2"));
    assert_eq!(parts("not (a = 1 and b != 2)"), wanted("", "not a = 1 or b = 2"));
    assert_eq!(parts("a in (1) and b in (1, 2)"), wanted("a=1", "b in (1, 2)"));
    assert_eq!(parts("true and a = 1"), wanted("a=1", ""));
    assert_eq!(parts("a = 1 and false"), wanted("a=1", "false"));
    assert_eq!(parts("not (not a = 1)"), wanted("a=1", ""));
}

#[test]
fn nearest_belongs_to_the_top() {
    for (text, valid) in [
        ("point(x,y) nearest (1,2)", true),
        ("a = 1 and point(x,y) nearest (1,2)", true),
        ("a = 1 or point(x,y) nearest (1,2)", false),
        ("not point(x,y) nearest (1,2)", false),
    ] {
        assert_eq!(Query::new().filter(Filter::parse(text).unwrap()).check().is_ok(), valid, "{text}");
    }
}

fn any_record() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (-5..6_i64).prop_map(|value| value.to_string()),
        "[a-c]{0,2}".prop_map(|text| format!("\"{text}\"")),
        Just("{\"c\":1}".to_owned()),
    ];
    let array =
        proptest::collection::vec(scalar.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(",")));
    let value = proptest::option::of(prop_oneof![scalar, array]);
    let named = ["a", "b", "tags", "x y", "in"]
        .map(|name| value.clone().prop_map(move |value| value.map(|value| format!("\"{name}\":{value}"))));
    named.prop_map(|fields| format!("{{{}}}", fields.into_iter().flatten().collect::<Vec<_>>().join(",")))
}

proptest! {
    #[test]
    fn the_normal_form_means_the_same(filter in any_filter(), record in any_record()) {
        let parsed: serde_json::Value = serde_json::from_str(&record).unwrap();
        prop_assert_eq!(accepts(&filter, &record), holds(&filter.node, &parsed), "{} on {}", filter, record);
        prop_assert_eq!(accepts(&!filter.clone(), &record), !accepts(&filter, &record), "{} on {}", filter, record);
    }
}
