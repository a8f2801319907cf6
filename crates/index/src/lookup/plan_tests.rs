//! Every plan, order, limit and token page returns the answers of the model.

use bolide_base::ErrorKind;
use proptest::prelude::*;

use super::plan::ForcedPlan;
use super::tests::{any_query, any_write};
use super::*;
use crate::cursor_token::CursorToken;
use crate::model::{
    ModelAnswer, ModelCollection, ModelView, ModelWrite, expected_answers, expected_selected,
};
use crate::predicate::Predicate;
use crate::query::{Order, Projection};

const SPECS: [&str; 7] = [
    "a",
    "b_sync=b:composite:maintenance=synchronous",
    "a+b",
    "tags[*]",
    "a_with=a:composite:include=b|tags",
    "b_with=b:composite:maintenance=synchronous,include=a|tags",
    "tags_with=tags[*]:composite:maintenance=synchronous,include=b",
];

/// The parameters of a test round besides its query.
#[derive(Debug, Clone)]
struct Variation {
    /// Bit i: index i may be used.
    indexes: u32,
    forced: u8,
    collect_bytes: usize,
    recheck: bool,
    page: usize,
    per_value: Option<usize>,
    is_snapshot: bool,
}

impl Variation {
    fn options(&self) -> LookupOptions<'static> {
        LookupOptions {
            collect_bytes: self.collect_bytes,
            recheck: self.recheck,
            is_snapshot: self.is_snapshot,
            forced_plan: match self.forced {
                0 => ForcedPlan::Cheapest,
                1 => ForcedPlan::Intersect { merge: true },
                _ => ForcedPlan::Intersect { merge: false },
            },
            ..LookupOptions::default()
        }
    }

    fn uses(&self) -> impl Fn(usize) -> bool + Copy {
        let indexes = self.indexes;
        move |index| indexes & (1 << index) != 0
    }
}

fn any_variation() -> impl Strategy<Value = Variation> {
    (
        prop_oneof![0..128_u32, Just(127)],
        0..3_u8,
        prop_oneof![Just(1_usize), Just(400), Just(32 << 20)],
        any::<bool>(),
        1..5_usize,
        proptest::option::of(0..3_usize),
        any::<bool>(),
    )
        .prop_map(|(indexes, forced, collect_bytes, recheck, page, per_value, is_snapshot)| Variation {
            indexes,
            forced,
            collect_bytes,
            recheck,
            page,
            per_value,
            is_snapshot,
        })
}

fn without_records(answers: &[ModelAnswer]) -> Vec<ModelAnswer> {
    answers.iter().map(|answer| ModelAnswer { record: None, ..answer.clone() }).collect()
}

/// All answers, read page by page; every token is formatted and parsed.
fn page_by_page(
    collection: &ModelCollection,
    view: &ModelView,
    query: &Query,
    variation: &Variation,
) -> std::result::Result<Vec<ModelAnswer>, TestCaseError> {
    let mut all = Vec::new();
    let mut token: Option<CursorToken> = None;
    loop {
        let mut page = query.clone().limit(variation.page);
        if let Some(token) = token {
            page = page.after(token.to_string().parse().unwrap());
        }
        let (answers, explain) =
            collection.query(view, &page, variation.options(), variation.uses()).unwrap();
        prop_assert!(answers.len() <= variation.page);
        let is_last = answers.len() < variation.page;
        all.extend(answers);
        token = explain.next;
        prop_assert_eq!(token.is_none(), is_last);
        if is_last {
            return Ok(all);
        }
    }
}

fn check_query(
    collection: &ModelCollection,
    view: &ModelView,
    query: &Query,
    variation: &Variation,
) -> std::result::Result<(), TestCaseError> {
    let by_distance = query.answer_order() == Order::Nearest;
    let by_attributes = query.answer_order() == Order::Attributes;
    let ranges = !by_distance && !by_attributes && query.predicates().iter().any(Predicate::is_range);
    let query = match variation.per_value {
        Some(limit) if ranges => query.clone().limit_per_value(limit),
        _ => query.clone(),
    };
    let expected = expected_answers(view, &query);
    let run = |query: &Query| collection.query(view, query, variation.options(), variation.uses()).unwrap();
    let (answers, explain) = run(&query);
    prop_assert_eq!(&answers, &expected, "{}", explain);
    let (answers, explain) = run(&query.clone().keys_only());
    prop_assert_eq!(&answers, &without_records(&expected), "{}", explain);
    let (_, explain) = run(&query.clone().count());
    prop_assert_eq!(explain.answers, expected.len() as u64, "{}", explain);

    let mut with_values = Vec::new();
    let mut select = query.clone();
    for paths in [&["a"][..], &["b", "a"], &["b", "tags"], &["rect(area)", "a"]] {
        select = query.clone().select(paths.iter().copied());
        let (answers, explain) = run(&select);
        with_values = expected
            .iter()
            .map(|answer| ModelAnswer {
                values: expected_selected(answer.record.as_deref().unwrap(), &select),
                record: None,
                ..answer.clone()
            })
            .collect();
        prop_assert_eq!(&answers, &with_values, "{}", explain);
    }

    if query.answer_limit().is_none() {
        prop_assert_eq!(page_by_page(collection, view, &query, variation)?, expected);
        let keys = page_by_page(collection, view, &query.clone().keys_only(), variation)?;
        prop_assert_eq!(keys, without_records(&expected_answers(view, &query)));
        prop_assert_eq!(page_by_page(collection, view, &select, variation)?, with_values);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_plan_returns_the_answers_of_the_model(
        history in proptest::collection::vec(proptest::collection::vec(any_write(), 1..5), 0..25),
        queries in proptest::collection::vec((any_query(), any_variation(), 0.0..=1.0_f64), 1..8),
    ) {
        let mut collection = ModelCollection::new(&SPECS);
        let mut boundaries = vec![0];
        for batch in &history {
            collection.write(batch).unwrap();
            boundaries.push(boundaries.last().unwrap() + batch.len() as u64);
        }
        for (query, variation, when) in &queries {
            let at = boundaries[(when * (boundaries.len() - 1) as f64) as usize];
            check_query(&collection, &collection.view().at(at), query, variation)?;
        }
        for index in 0..SPECS.len() {
            let report = collection.check(index);
            prop_assert!(report.is_sound(), "{:?}", report);
        }
    }
}

/// `n` records: `rare` has 1,000 values, `common` two, `tags` two of ten.
fn mixed(n: usize, specs: &[&str]) -> ModelCollection {
    let mut collection = ModelCollection::new(specs);
    for number in 0..n {
        let (rare, common, tag) = (number % 1000, number % 2, number % 10);
        let record = format!(
            r#"{{"rare":{rare},"common":{common},"fifth":{},"tags":[{tag},{}],"n":{number}}}"#,
            number % 5,
            (tag + 3) % 10
        );
        collection.put(&format!("k{number:06}"), &record);
    }
    collection
}

fn run_checked(collection: &ModelCollection, query: &Query) -> (Vec<ModelAnswer>, Explain) {
    let clock = || 0;
    let options = LookupOptions { clock: Some(&clock), ..LookupOptions::default() };
    let view = collection.view();
    let (answers, explain) = collection.query(&view, query, options, |_| true).unwrap();
    let expected = expected_answers(&view, query);
    match query.projection() {
        Projection::Records => assert_eq!(answers, expected, "{explain}"),
        _ => assert_eq!(explain.answers, expected.len() as u64, "{explain}"),
    }
    (answers, explain)
}

#[test]
fn the_cheapest_plan_is_chosen() {
    let collection = mixed(4000, &["rare", "common", "fifth", "tags"]);
    let plan = |query: &Query| {
        let (_, explain) = run_checked(&collection, query);
        let chosen = explain.alternatives.iter().filter(|one| one.chosen).count();
        assert_eq!(chosen, usize::from(query.forced_index().is_none()), "{explain}");
        (explain.index.unwrap_or_default(), explain.intersected)
    };
    let alone = |name: &str| (name.to_owned(), Vec::new());
    // Four records against two thousand.
    assert_eq!(plan(&Query::new().eq("common", 1).eq("rare", 7)), alone("rare"));
    // Intersecting two moderately selective indexes is cheaper than fetching the matches of either.
    let both = plan(&Query::new().eq("common", 1).eq("fifth", 3));
    assert_eq!(both.1.len(), 1, "{both:?}");
    let three = plan(&Query::new().eq("common", 1).eq("fifth", 3).eq("tags", 6).eq("tags", 3));
    assert!(three.1.len() >= 2, "{three:?}");
    // A scan counts all records at a lower cost than validating each.
    assert_eq!(plan(&Query::new().range("common", 0..9).count()), alone(""));
    // The newest few of one value stream from its index.
    assert_eq!(plan(&Query::new().eq("common", 1).limit(5)), alone("common"));
    // A named index is used regardless of its cost.
    assert_eq!(plan(&Query::new().eq("common", 1).eq("rare", 7).using_index("common")), alone("common"));
}

#[test]
fn an_intersection_fetches_no_needless_records() {
    let collection = mixed(4000, &["common", "fifth:composite:maintenance=synchronous"]);
    let query = Query::new().eq("common", 1).eq("fifth", 3).count();
    let (_, explain) = run_checked(&collection, &query);
    assert_eq!(
        (explain.answers, explain.records_fetched, explain.intersected.len()),
        (400, 0, 1),
        "{explain}"
    );
    // One of the two needs no validation, so neither does their intersection.
    assert_eq!(explain.validation, "synchronous");
    // The newest few end the merge early.
    let (_, explain) = run_checked(&collection, &query.keys_only().limit(5));
    assert!(explain.candidates < 100, "{explain}");
}

#[test]
fn included_attributes_make_fetches_unnecessary() {
    let collection = mixed(500, &["rare:composite:maintenance=synchronous,include=common|n"]);
    let query = Query::new().range("rare", 100..300).eq("common", 1).select(["n", "common"]);
    for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
        let (answers, explain) = run_checked(&collection, &query.clone().order(order).limit(20));
        assert_eq!((explain.records_fetched, explain.answers), (0, 20), "{explain}");
        assert_eq!(explain.included, ["common=1"]);
        assert_eq!(answers[0].values.len(), 2);
    }
    // An included attribute provides the order too.
    let by_n = Query::new().eq("rare", 7).range("n", 0..).order(Order::ValueDescending).keys_only();
    assert_eq!(run_checked(&collection, &by_n).1.records_fetched, 0);
    // Other attributes are read from the record.
    let (_, explain) = run_checked(&collection, &query.select(["fifth"]));
    assert!(explain.records_fetched > 0, "{explain}");
}

#[test]
fn a_snapshot_token_expires_with_its_snapshot_and_a_latest_token_does_not() {
    let mut collection = mixed(20, &["common"]);
    let query = Query::new().eq("common", 1).limit(3);
    let first = collection.view();
    let at_snapshot = LookupOptions { is_snapshot: true, ..LookupOptions::default() };
    let latest = LookupOptions::default();
    let (_, explain) = collection.query(&first, &query, at_snapshot, |_| true).unwrap();
    let token = explain.next.unwrap();
    assert_eq!(token.snapshot(), Some(first.sequence()));
    let next = query.clone().after(token);
    collection.put("k000019", r#"{"common":1}"#);
    let now = collection.view();
    for (view, options) in [(&first, latest), (&now, at_snapshot), (&now, latest)] {
        let error = collection.query(view, &next, options, |_| true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Expired);
    }
    let (answers, _) = collection.query(&first, &next, at_snapshot, |_| true).unwrap();
    let keys = |answers: &[ModelAnswer]| answers.iter().map(|answer| answer.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&answers), ["k000013", "k000011", "k000009"]);

    // At the latest state the token is a position, and later writes after it are returned.
    let (answers, explain) = collection.query(&now, &query, latest, |_| true).unwrap();
    assert_eq!(keys(&answers), ["k000019", "k000017", "k000015"]);
    collection.write(&[ModelWrite::Delete("k000013".into())]).unwrap();
    let next = query.clone().after(explain.next.unwrap());
    let (answers, _) = collection.query(&collection.view(), &next, latest, |_| true).unwrap();
    assert_eq!(keys(&answers), ["k000011", "k000009", "k000007"]);

    // A token is valid for its own query only.
    let other = Query::new().eq("common", 0).after(next.token().cloned().unwrap());
    let error = collection.query(&now, &other, latest, |_| true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_limit_per_value_counts_a_write_with_two_entries_once() {
    // The index does not contain the limited attribute, and has the write under two values of another.
    let mut collection = ModelCollection::new(&["tags[*]"]);
    collection.put("k", r#"{"tags":[1,2],"n":5}"#);
    let query = Query::new().range("n", 1..9).range("tags[*]", 0..9).limit_per_value(1);
    for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
        let (_, explain) = run_checked(&collection, &query.clone().order(order).count());
        assert_eq!((explain.answers, explain.index.as_deref()), (1, Some("tags[*]")), "{explain}");
    }
}
