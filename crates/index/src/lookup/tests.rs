use bolide_base::ErrorKind;
use proptest::prelude::*;

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::attribute::Value;
use crate::filter::Filter;
use crate::model::{ModelAnswer, ModelCollection, ModelWrite, expected_answers};
use crate::query::{Order, SortDirection};
use crate::space::{Point, Rect};

const SPECS: [&str; 8] = [
    "a",
    "a_lite=a:composite:validation=get-lite",
    "tags_lite=tags[*]:composite:validation=get-lite",
    "a_sync=a:composite:maintenance=synchronous",
    "a+b",
    "b+a:composite:maintenance=synchronous",
    "tags[*]",
    "tags_sync=tags[*]+b:composite:maintenance=synchronous",
];

fn any_scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..4_i32).prop_map(|value| value.to_string()),
        1 => Just("1.5".to_owned()),
        1 => Just("\"1\"".to_owned()),
        1 => Just("\"x\"".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("true".to_owned()),
    ]
}

fn any_field() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some("{\"x\":1}".to_owned())),
        6 => any_scalar().prop_map(Some),
        3 => proptest::collection::vec(any_scalar(), 0..4).prop_map(|all| Some(format!("[{}]", all.join(",")))),
    ]
}

/// Rectangles that touch and repeat, and invalid ones.
fn any_area() -> impl Strategy<Value = Option<String>> {
    let corners = || [0..4_i32, 0..4_i32, 1..5_i32, 2..5_i32].prop_map(|corners| format!("{corners:?}"));
    prop_oneof![
        1 => Just(None),
        1 => Just(Some("[1,2,3]".to_owned())),
        6 => corners().prop_map(Some),
        3 => proptest::collection::vec(corners(), 0..4).prop_map(|all| Some(format!("[{}]", all.join(",")))),
    ]
}

fn any_record() -> impl Strategy<Value = String> {
    (any_field(), any_field(), any_field(), any_area()).prop_map(|(a, b, tags, area)| {
        let field = |name: &str, value: Option<String>| value.map(|value| format!("\"{name}\":{value}"));
        let all = [field("a", a), field("b", b), field("tags", tags), field("area", area)];
        let fields: Vec<String> = all.into_iter().flatten().collect();
        format!("{{{}}}", fields.join(","))
    })
}

fn any_key() -> impl Strategy<Value = String> {
    (0..12_u8).prop_map(|key| format!("k{key:02}"))
}

pub(super) fn any_write() -> impl Strategy<Value = ModelWrite> {
    prop_oneof![
        10 => (any_key(), any_record()).prop_map(|(key, record)| ModelWrite::Put(key, record)),
        3 => any_key().prop_map(ModelWrite::Delete),
        1 => (any_key(), any_key()).prop_map(|(start, end)| ModelWrite::DeleteRange(start, end)),
    ]
}

/// A spatial attribute, and two coordinates with two lengths.
fn any_window() -> impl Strategy<Value = (&'static str, [f64; 4])> {
    let coordinate = || (-1..10_i32).prop_map(|half| f64::from(half) / 2.0);
    let length = || (0..5_i32).prop_map(|half| f64::from(half) / 2.0);
    (
        prop_oneof![Just("rect(area)"), Just("rect(area[*])"), Just("point(a,b)")],
        (coordinate(), coordinate(), length(), length()).prop_map(|(x, y, w, h)| [x, y, w, h]),
    )
}

fn any_predicate() -> impl Strategy<Value = crate::Predicate> {
    let path = prop_oneof![Just("a"), Just("b"), Just("tags[*]"), Just("tags")];
    let ends = prop_oneof![Just("0..2"), Just("1.."), Just("..2"), Just("\"1\"..\"x\""), Just("..z")];
    prop_oneof![
        any_window().prop_map(|(path, [x, y, w, h])| {
            let window = Rect::new(x, y, x + w, y + h).unwrap();
            crate::Predicate::within(path.parse().unwrap(), window).unwrap()
        }),
        (path.clone(), any_scalar())
            .prop_map(|(path, value)| crate::Predicate::parse_equal(&format!("{path}={value}")).unwrap()),
        (path, ends)
            .prop_map(|(path, ends)| crate::Predicate::parse_range(&format!("{path}={ends}")).unwrap()),
    ]
}

/// Alternatives, lists, negations and trees of them.
fn any_filter() -> impl Strategy<Value = Filter> {
    let path = || prop_oneof![Just("a"), Just("b"), Just("tags[*]"), Just("tags")];
    let value = || any_scalar().prop_map(|text| crate::predicate::parse_value(&text).unwrap());
    let list = prop_oneof![
        20 => proptest::collection::vec(value(), 0..6),
        // More than are merged, and more than are read by their bounds.
        1 => value().prop_map(|one| (2_000..3_100).map(Value::Int).chain([one]).collect()),
        1 => value().prop_map(|one| (2_000..2_100).map(Value::Int).chain([one]).collect()),
    ];
    let leaf = prop_oneof![
        3 => any_predicate().prop_map(Filter::from),
        3 => (path(), list).prop_map(|(path, values)| Filter::one_of(path, values)),
        1 => (path(), "[x-z1]{0,1}").prop_map(|(path, prefix)| Filter::prefix(path, prefix)),
        1 => path().prop_map(Filter::exists),
        1 => path().prop_map(Filter::absent),
        1 => path().prop_map(Filter::is_null),
        1 => Just(Filter::range("a", (Bound::Included(3), Bound::Included(1)))),
    ];
    leaf.prop_recursive(3, 10, 4, |inner| {
        prop_oneof![
            2 => proptest::collection::vec(inner.clone(), 1..4).prop_map(Filter::all),
            4 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Filter::any),
            1 => inner.prop_map(|filter| !filter),
        ]
    })
}

pub(super) fn any_query() -> impl Strategy<Value = Query> {
    (any_plain_query(), proptest::collection::vec(any_filter(), 0..3), any::<bool>()).prop_map(
        |(query, filters, first)| match first {
            true => filters.into_iter().fold(query, Query::filter),
            // Every second query has predicates only.
            false => query,
        },
    )
}

fn any_plain_query() -> impl Strategy<Value = Query> {
    (
        proptest::collection::vec(any_predicate(), 0..4),
        0..8_usize,
        any_window(),
        prop_oneof![Just(None), (0..6_usize).prop_map(Some)],
    )
        .prop_map(|(predicates, order, (path, [x, y, ..]), limit)| {
            let query = match order {
                0 => Query::new(),
                1 => Query::new().order(Order::Oldest),
                2 => Query::new().order(Order::Value),
                3 => Query::new().order(Order::ValueDescending),
                4 => Query::new().sort_by("a", SortDirection::Descending),
                5 => Query::new().sort_by("tags", SortDirection::Ascending).filter(Filter::exists("tags")),
                6 => {
                    let query = Query::new().sort_by("b", SortDirection::Ascending);
                    query.sort_by("tags[*]", SortDirection::Descending).sort_by("a", SortDirection::Ascending)
                }
                _ => Query::new().nearest(path, Point::new(x, y).unwrap()),
            };
            let query = predicates.into_iter().fold(query, Query::predicate);
            match limit {
                Some(limit) => query.limit(limit),
                None => query,
            }
        })
}

/// Runs `query` at `view` in every projection, and compares with the model.
fn compare(
    collection: &ModelCollection,
    view: &crate::model::ModelView,
    query: &Query,
    options: LookupOptions<'_>,
    use_index: impl Fn(usize) -> bool + Copy,
) -> std::result::Result<(), TestCaseError> {
    let expected = expected_answers(view, query);
    let without_records =
        || expected.iter().map(|answer| ModelAnswer { record: None, ..answer.clone() }).collect::<Vec<_>>();
    let (answers, explain) = collection.query(view, query, options, use_index).unwrap();
    prop_assert_eq!(&answers, &expected, "{}", explain);
    prop_assert_eq!(explain.answers, expected.len() as u64);
    let (answers, explain) = collection.query(view, &query.clone().keys_only(), options, use_index).unwrap();
    prop_assert_eq!(&answers, &without_records(), "{}", explain);
    let (answers, explain) = collection.query(view, &query.clone().count(), options, use_index).unwrap();
    prop_assert!(answers.is_empty());
    prop_assert_eq!(explain.answers, expected.len() as u64, "{}", explain);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_index_returns_the_answers_of_the_model(
        history in proptest::collection::vec(proptest::collection::vec(any_write(), 1..5), 0..25),
        queries in proptest::collection::vec((any_query(), 0.0..=1.0_f64), 1..8),
        collect_bytes in prop_oneof![Just(1_usize), Just(200), Just(32 << 20)],
        recheck in any::<bool>(),
    ) {
        let mut collection = ModelCollection::new(&SPECS);
        for batch in &history {
            collection.write(batch).unwrap();
        }
        // No store has views between the writes of a batch, but indexes with validation must handle them.
        let mut boundaries = vec![0];
        for batch in &history {
            boundaries.push(boundaries.last().unwrap() + batch.len() as u64);
        }
        let options = LookupOptions { collect_bytes, recheck, ..LookupOptions::default() };
        for (query, when) in &queries {
            let at = boundaries[(when * (boundaries.len() - 1) as f64) as usize];
            let view = collection.view().at(at);
            compare(&collection, &view, query, options, |_| false)?;
            for only in 0..SPECS.len() {
                compare(&collection, &view, query, options, |index| index == only)?;
            }
            compare(&collection, &view, query, options, |_| true)?;
        }
        for index in 0..SPECS.len() {
            let report = collection.check(index);
            prop_assert!(report.is_sound(), "{:?}", report);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_cursor_may_be_dropped_and_continued_at_any_row(
        history in proptest::collection::vec(any_write(), 0..60),
        query in any_query(),
        collect_bytes in prop_oneof![Just(1_usize), Just(32 << 20)],
        pulled in 0..8_usize,
    ) {
        let mut collection = ModelCollection::new(&SPECS);
        collection.write(&history).unwrap();
        let view = collection.view();
        let limit = query.answer_limit().unwrap_or(usize::MAX);
        let all = expected_answers(&view, &query.clone().limit(usize::MAX));
        let options = LookupOptions { collect_bytes, ..LookupOptions::default() };
        for only in (0..=SPECS.len()).map(|only| (only < SPECS.len()).then_some(only)) {
            let indexes = collection.indexes.iter().enumerate();
            let indexes: Vec<&dyn SecondaryIndex<crate::model::ModelView>> = indexes
                .filter(|(position, _)| only.is_none_or(|only| only == *position))
                .map(|(_, index)| index as _)
                .collect();
            let (table, extractor) = (crate::model::TABLE, Some(&crate::json::JsonExtractor as _));
            let lookup = Lookup { view: &view, table, extractor, indexes: &indexes, options };
            let planned = lookup.plan(&query).unwrap();
            let mut rows = planned.rows().unwrap();
            let mut keys = Vec::new();
            while keys.len() < pulled
                && let Some(key) = rows.next_with(|row| (row.sequence, row.primary_key.to_vec())).unwrap()
            {
                keys.push(key);
                prop_assert_eq!(rows.explain().answers, keys.len() as u64);
            }
            let of = |answers: &[ModelAnswer]| -> Vec<(u64, Vec<u8>)> {
                answers.iter().map(|answer| (answer.sequence, answer.key.clone().into_bytes())).collect()
            };
            let first = &all[..all.len().min(limit).min(pulled)];
            prop_assert_eq!(&keys, &of(first));
            let token = rows.explain().next;
            prop_assert_eq!(token.clone(), rows.finish().next);
            // The end was not reached unless a further row was pulled in vain.
            prop_assert_eq!(token.is_some(), !first.is_empty() && (pulled <= all.len() || limit <= all.len()));
            if let Some(token) = token {
                let query = query.clone().after(token);
                let (rest, _) = collection.query(&view, &query, options, |index| only.is_none_or(|only| only == index)).unwrap();
                let expected = &all[first.len()..];
                prop_assert_eq!(rest, &expected[..expected.len().min(limit)]);
            }
        }
    }
}

/// 100 records with `a` = 0..10 and `n` = their number, each written twice.
fn hundred(spec: &str) -> ModelCollection {
    let mut collection = ModelCollection::new(&[spec]);
    for round in 0..2 {
        for number in 0..100 {
            collection.put(&format!("k{number:02}"), &format!("{{\"a\":{},\"n\":{round}}}", number % 10));
        }
    }
    collection
}

#[test]
fn a_query_reads_only_the_newest_entries_of_a_value() {
    let collection = hundred("a");
    let query = Query::new().eq("a", 3).limit(4).keys_only();
    let (answers, explain) =
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap();
    let found: Vec<&str> = answers.iter().map(|answer| answer.key.as_str()).collect();
    assert_eq!(found, ["k93", "k83", "k73", "k63"]);
    assert_eq!((explain.candidates, explain.current, explain.obsolete), (4, 4, 0));
    assert_eq!((explain.records_fetched, explain.streamed, explain.passes), (0, true, 1));
    // At the end of the first round the second round's entries are not there yet.
    let view = collection.view().at(100);
    let (answers, explain) = collection.query(&view, &query, LookupOptions::default(), |_| true).unwrap();
    assert_eq!(answers[0].sequence, 94);
    assert_eq!(explain.candidates, 4);
}

#[test]
fn the_limit_counts_current_rows_only() {
    let mut collection = hundred("a");
    for number in (50..100).rev() {
        collection.put(&format!("k{number:02}"), "{\"a\":77}");
    }
    let query = Query::new().eq("a", 3).limit(3);
    let (answers, explain) =
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap();
    assert_eq!(answers.iter().map(|answer| answer.key.as_str()).collect::<Vec<_>>(), ["k43", "k33", "k23"]);
    assert_eq!((explain.candidates, explain.current, explain.obsolete), (8, 3, 5));
    assert_eq!(explain.records_fetched, 3);
}

#[test]
fn synchronous_maintenance_makes_validation_unnecessary() {
    let collection = hundred("a:composite:maintenance=synchronous");
    let query = Query::new().eq("a", 3).keys_only();
    let (answers, explain) =
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap();
    assert_eq!(answers.len(), 10);
    assert_eq!((explain.candidates, explain.obsolete), (10, 0));
    assert_eq!(explain.validation, "synchronous");
}

#[test]
fn a_range_is_read_again_only_if_too_many_were_obsolete() {
    let mut collection = hundred("a");
    let query = Query::new().range("a", 2..=4).limit(5);
    let (_, explain) =
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap();
    assert_eq!((explain.passes, explain.streamed, explain.answers), (1, false, 5));
    for _ in 0..400 {
        collection.put("k02", "{\"a\":2}");
    }
    collection.put("k02", "{\"a\":9}");
    let (answers, explain) =
        collection.query(&collection.view(), &query, LookupOptions::default(), |_| true).unwrap();
    assert_eq!(answers, expected_answers(&collection.view(), &query));
    assert!(explain.passes > 1, "{explain}");
    // Only the obsolete candidates newer than the last answer are fetched.
    assert_eq!(explain.records_fetched, 5);
}

#[test]
fn an_index_is_chosen_by_equalities_first_or_by_name() {
    let mut collection = ModelCollection::new(&["score", "user", "user+score"]);
    collection.put("k", r#"{"user":"x","score":5}"#);
    let run = |query: &Query| {
        collection
            .query(&collection.view(), query, LookupOptions::default(), |_| true)
            .map(|(_, explain)| explain)
    };
    let used = |query: &Query| run(query).unwrap().index;
    let both = Query::new().range("score", 1..9).eq("user", "x");
    assert_eq!(used(&both).as_deref(), Some("user"));
    assert_eq!(used(&both.clone().using_index("user+score")).as_deref(), Some("user+score"));
    assert_eq!(used(&Query::new().eq("score", 5).eq("user", "x")).as_deref(), Some("user+score"));
    assert_eq!(used(&Query::new().range("score", 1..9)).as_deref(), Some("score"));
    assert_eq!(used(&Query::new().eq("other", 1)), None);
    assert!(run(&Query::new()).unwrap().is_full_scan());
    assert_eq!(run(&both.clone().using_index("none")).unwrap_err().kind(), ErrorKind::NotFound);
    let unserved = Query::new().eq("score", 5).using_index("user");
    assert_eq!(run(&unserved).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(run(&Query::new().eq("a..b", 5)).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn explain_measures_stages_with_a_clock() {
    let collection = hundred("a");
    let ticks = AtomicU64::new(0);
    let clock = || ticks.fetch_add(1000, Ordering::Relaxed);
    let options = LookupOptions { clock: Some(&clock), ..LookupOptions::default() };
    let query = Query::new().eq("a", 3).eq("n", 1).limit(2);
    let (_, explain) = collection.query(&collection.view(), &query, options, |_| true).unwrap();
    assert!(explain.candidates_nanos > 0 && explain.fetch_nanos > 0 && explain.check_nanos > 0);
    assert_eq!(
        (&explain.covered[..], &explain.filtered[..]),
        (&["a=3".to_owned()][..], &["n=1".to_owned()][..])
    );
    let text = explain.to_string();
    assert!(text.contains("by index      a=3") && text.contains("2 current"), "{text}");
}

#[test]
fn the_caller_can_stop_early() {
    let collection = hundred("a");
    let view = collection.view();
    let indexes: [&dyn SecondaryIndex<crate::model::ModelView>; 1] = [&collection.indexes[0]];
    let lookup = Lookup {
        view: &view,
        table: crate::model::TABLE,
        extractor: None,
        indexes: &indexes,
        options: LookupOptions::default(),
    };
    let mut seen = 0;
    let explain = lookup.run(&Query::new(), |_| {
        seen += 1;
        Ok(if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    assert_eq!((explain.unwrap().answers, seen), (3, 3));
    let result = lookup.run(&Query::new().eq("a", 1), |_| Ok(ControlFlow::Continue(())));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn windows_of_any_size_preserve_the_order() {
    // More candidates than the first windows, and more records than are buffered in memory.
    let mut collection = ModelCollection::new(&["a", "tags[*]"]);
    for number in 0..900_u32 {
        let key = format!("k{:03}", number.wrapping_mul(7919) % 900);
        collection
            .put(&key, &format!("{{\"a\":{},\"n\":{},\"tags\":[1,{number}]}}", number % 2, number % 50));
    }
    for number in (0..900).step_by(3) {
        collection.put(&format!("k{number:03}"), "{\"a\":1,\"n\":7,\"tags\":[1,2]}");
    }
    let view = collection.view();
    let of = |query: Query, limit: Option<usize>| match limit {
        Some(limit) => query.limit(limit),
        None => query,
    };
    for limit in [None, Some(1), Some(63), Some(100), Some(500)] {
        for query in [
            Query::new().eq("a", 1),
            Query::new().range("tags[*]", 1..=2),
            Query::new().range("a", 0..=1).order(Order::Oldest),
            Query::new().eq("a", 1).range("n", 1..40).order(Order::Value),
        ] {
            compare(&collection, &view, &of(query, limit), LookupOptions::default(), |_| true).unwrap();
        }
    }
}
