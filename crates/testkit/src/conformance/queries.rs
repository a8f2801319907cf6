//! The queries of the suite: all that the records of a case can distinguish.

use serde_json::{Value, json};

use crate::model_query::ModelFilter;
use crate::model_query::{AnswerContents, AnswerOrder, ModelQuery, QueryCondition, SortedBy};
use crate::value::{compare, is_spatial, rects_at, same_type, values_at};

/// The maximum number of values per path for points and ranges.
const VALUES: usize = 9;

/// Orders by attributes. An index on the attribute has the first two, if it must exist.
const SORTS: [AnswerOrder; 3] = [
    AnswerOrder::By(&[("v", SortedBy::Smallest)]),
    AnswerOrder::By(&[("tags[*]", SortedBy::Largest)]),
    AnswerOrder::By(&[("w", SortedBy::Largest), ("v", SortedBy::Smallest)]),
];

/// The queries for an index on these attributes, on current and former records. The queries of all turns together cover
/// all forms.
pub fn all(attributes: &str, records: &[Value], turn: usize) -> Vec<ModelQuery> {
    let paths: Vec<&str> = attributes.split('+').collect();
    let conditions: Vec<Vec<QueryCondition>> = match paths[..] {
        [path] if is_spatial(path) => of_space(path, records).into_iter().chain(areas(path)).collect(),
        [first, second] => of_two(first, second, records),
        _ => of_one(attributes, records)
            .into_iter()
            .chain(with_included(attributes, records))
            .chain(with_filters(attributes, records, turn))
            .collect(),
    };
    // All limits above the number of records are equivalent.
    let limits: Vec<usize> = [1, 2, 10, 100].into_iter().filter(|limit| *limit < records.len()).collect();
    let numbered = conditions.iter().enumerate();
    numbered.flat_map(|(position, conditions)| forms(conditions, &limits, turn + position)).collect()
}

/// A few queries whose index the database chooses.
pub fn few(records: &[Value]) -> Vec<ModelQuery> {
    let newest = |conditions| ModelQuery {
        conditions,
        order: AnswerOrder::Newest,
        limit: Some(10),
        limit_per_value: None,
        contents: AnswerContents::Records,
        pick: 0,
    };
    let paths = ["v", "tags[*]"];
    let conditions =
        paths.iter().flat_map(|path| of_one(path, records).into_iter().chain(of_absence(path, records)));
    // Without a condition: the newest records.
    conditions.chain([Vec::new()]).map(newest).collect()
}

/// The queries whose answers are read page by page.
pub fn paged(attributes: &str, records: &[Value]) -> Vec<ModelQuery> {
    let path = attributes.split('+').next().unwrap_or(attributes);
    if is_spatial(path) {
        let of_space = of_space(path, records).into_iter().step_by(2);
        return of_space.flat_map(|conditions| forms(&conditions, &[], 0).into_iter().take(2)).collect();
    }
    let of_one = of_one(path, records).into_iter().step_by(2);
    let orders = [AnswerOrder::Newest, AnswerOrder::Oldest, AnswerOrder::Value, AnswerOrder::ValueDescending];
    let is_range = |conditions: &[QueryCondition]| conditions.iter().any(QueryCondition::is_range);
    let query = |(conditions, order): (Vec<QueryCondition>, _)| ModelQuery {
        // The limit for each value spans pages.
        limit_per_value: is_range(&conditions).then_some(3),
        conditions,
        order,
        limit: None,
        contents: AnswerContents::Keys,
        pick: 0,
    };
    let of_each_value = of_one.zip(orders.into_iter().cycle()).map(query);
    let of_all = |query: ModelQuery| ModelQuery { limit_per_value: None, ..query };
    of_each_value
        .flat_map(|one| [one.limit_per_value.map(|_| of_all(one.clone())), Some(one)])
        .flatten()
        .collect()
}

/// Negations, absence, null and lists, which the database answers by a scan or by a union.
fn of_absence(path: &str, records: &[Value]) -> Vec<Vec<QueryCondition>> {
    let absent = || ModelFilter::negated(ModelFilter::Exists(path.to_owned()));
    let null = || ModelFilter::equals(path, Value::Null);
    let values = values(path, records);
    let first = ModelFilter::equals(path, values.first().cloned().unwrap_or_default());
    let last = ModelFilter::equals(path, values.last().cloned().unwrap_or_default());
    let filters = [
        absent(),
        null(),
        ModelFilter::negated(null()),
        ModelFilter::negated(first.clone()),
        ModelFilter::Any(vec![first, last]),
        ModelFilter::Any(vec![absent(), null()]),
        ModelFilter::OneOf(path.to_owned(), values),
    ];
    filters.into_iter().map(|filter| vec![QueryCondition::Filter(Box::new(filter))]).collect()
}

/// Each value, an absent value, and ranges over some and over all values of a type.
fn of_one(path: &str, records: &[Value]) -> Vec<Vec<QueryCondition>> {
    let values = values(path, records);
    let equal = |value: &Value| vec![QueryCondition::Equals(path.to_owned(), value.clone())];
    let within = |low: Value, high: Value| vec![QueryCondition::Within(path.to_owned(), low, high)];
    let mut conditions: Vec<Vec<QueryCondition>> = values.iter().map(equal).collect();
    conditions.push(equal(&json!("nowhere")));
    conditions.push(within(json!(-1e308), json!(1e308)));
    conditions.push(within(json!(""), json!("\u{10ffff}")));
    let ordered = |value: &&Value| value.is_number() || value.is_string();
    let ends: Vec<&Value> = values.iter().filter(ordered).collect();
    for pair in ends.windows(2) {
        if let [low, high] = pair
            && same_type(low, high)
        {
            conditions.push(within((*low).clone(), (*high).clone()));
        }
    }
    conditions
}

/// Windows equal to each rectangle and touching it, the whole plane, an empty window, two windows on one attribute, a window
/// with a value, and distances.
fn of_space(path: &str, records: &[Value]) -> Vec<Vec<QueryCondition>> {
    let mut rects: Vec<[f64; 4]> = records.iter().flat_map(|record| rects_at(record, path)).collect();
    rects.sort_by(|left, right| left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal));
    rects.dedup();
    let every = rects.len().div_ceil(VALUES / 2).max(1);
    let meets = |window: [f64; 4]| QueryCondition::Intersects(path.to_owned(), window);
    let near = |x: f64, y: f64| QueryCondition::Near(path.to_owned(), [x, y]);
    let everything = meets([-1e308, -1e308, 1e308, 1e308]);
    let mut conditions =
        vec![vec![everything.clone()], vec![meets([-7e5, 7e5, -7e5, 8e5])], vec![near(0.5, 0.25)]];
    for [a, b, c, d] in rects.into_iter().step_by(every) {
        conditions.push(vec![meets([a, b, c, d])]);
        conditions.push(vec![meets([c, d, c + 0.25, d + 0.25])]);
        conditions.push(vec![meets([a, b, a, b]), QueryCondition::Equals("v".to_owned(), json!(1))]);
        conditions.push(vec![everything.clone(), meets([c, b, c, d])]);
        conditions.push(vec![near(c, d), meets([a - 1.0, b - 1.0, c, d])]);
    }
    conditions
}

/// Conditions on one attribute and on `pad`, which covering indexes include.
fn with_included(path: &str, records: &[Value]) -> Vec<Vec<QueryCondition>> {
    let text = |from: &str, to: &str| QueryCondition::Within("pad".to_owned(), json!(from), json!(to));
    let each = values(path, records).into_iter().take(2);
    let mut conditions: Vec<Vec<QueryCondition>> =
        each.map(|value| vec![QueryCondition::Equals(path.to_owned(), value), text("", "c")]).collect();
    let pads = values("pad", records).into_iter().take(2);
    let equal = |pad| QueryCondition::Equals("pad".to_owned(), pad);
    conditions.extend(pads.map(|pad| vec![equal(pad), every_number(path)]));
    conditions.push(vec![text("", "z"), every_number(path)]);
    conditions
}

/// Conditions on the first attribute alone, and on both with all combinations of equality and range.
fn of_two(first: &str, second: &str, records: &[Value]) -> Vec<Vec<QueryCondition>> {
    let mut conditions = Vec::new();
    let seconds = values(second, records);
    for value in values(first, records).into_iter().take(3) {
        let equal = QueryCondition::Equals(first.to_owned(), value);
        conditions.push(vec![equal.clone()]);
        conditions.push(vec![equal.clone(), every_number(second)]);
        if let Some(other) = seconds.first() {
            conditions.push(vec![QueryCondition::Equals(second.to_owned(), other.clone()), equal]);
        }
    }
    let wanted = values(first, records).into_iter().chain([json!("nowhere")]).collect();
    let list = ModelFilter::OneOf(first.to_owned(), wanted);
    conditions.push(vec![QueryCondition::Filter(Box::new(list)), every_number(second)]);
    conditions.push(vec![every_number(first), every_number(second)]);
    if let Some(other) = seconds.last() {
        conditions.push(vec![every_number(first), QueryCondition::Equals(second.to_owned(), other.clone())]);
    }
    conditions
}

/// Trees of conditions, of which an index on `path` serves one part at least.
fn with_filters(path: &str, records: &[Value], turn: usize) -> Vec<Vec<QueryCondition>> {
    let values = values(path, records);
    let filter = |filter: ModelFilter| QueryCondition::Filter(Box::new(filter));
    let list = ModelFilter::OneOf(
        path.to_owned(),
        values.iter().cloned().chain([json!("nowhere"), json!(-7)]).collect(),
    );
    let equals =
        |at: usize| ModelFilter::equals(path, values.iter().cycle().nth(at).cloned().unwrap_or_default());
    let numbers = ModelFilter::Condition(every_number(path));
    let pad = ModelFilter::Prefix("pad".to_owned(), "a".to_owned());
    // Overlapping alternatives, one with a condition that the index does not have.
    let any =
        ModelFilter::Any(vec![equals(turn), numbers, ModelFilter::All(vec![equals(turn + 1), pad.clone()])]);
    let exists = ModelFilter::Exists(path.to_owned());
    let neither =
        ModelFilter::negated(ModelFilter::Any(vec![equals(turn), ModelFilter::equals(path, Value::Null)]));
    let all = [
        vec![filter(list.clone())],
        vec![filter(any)],
        vec![filter(exists.clone()), filter(neither)],
        vec![every_number(path), filter(ModelFilter::negated(equals(turn)))],
        vec![filter(list), filter(ModelFilter::negated(pad))],
        vec![filter(exists)],
    ];
    // Each turn has half of them.
    all.into_iter().skip(turn % 2).step_by(2).collect()
}

/// Trees of conditions on rectangles.
fn areas(path: &str) -> Vec<Vec<QueryCondition>> {
    let meets = |window| ModelFilter::Condition(QueryCondition::Intersects(path.to_owned(), window));
    let any = ModelFilter::Any(vec![meets([0.0, -2.0, 1.0, 0.0]), meets([1.0, -4.0, 3.0, 0.0])]);
    let exists = ModelFilter::Exists(path.to_owned());
    let all = [any, ModelFilter::All(vec![exists, ModelFilter::negated(meets([0.0, -1.0, 1.0, 0.0]))])];
    all.into_iter().map(|filter| vec![QueryCondition::Filter(Box::new(filter))]).collect()
}

fn every_number(path: &str) -> QueryCondition {
    QueryCondition::Within(path.to_owned(), json!(-1e308), json!(1e308))
}

/// The distinct values at `path`, ascending; an evenly spaced sample if there are many.
fn values(path: &str, records: &[Value]) -> Vec<Value> {
    let mut values: Vec<&Value> = records.iter().flat_map(|record| values_at(record, path)).collect();
    values.sort_by(|left, right| compare(left, right));
    values.dedup_by(|left, right| compare(left, right).is_eq());
    let every = values.len().div_ceil(VALUES).max(1);
    values.into_iter().step_by(every).cloned().collect()
}

/// The conditions in all orders as records, with and without a limit, and once each as keys, as a count and as values.
/// Conditions with a range also get a limit for each value. Limits and rarer forms vary by turn, so that a run covers all of
/// them.
fn forms(conditions: &[QueryCondition], limits: &[usize], turn: usize) -> Vec<ModelQuery> {
    use AnswerOrder::{Nearest, Newest, Oldest, Value, ValueDescending};
    let mut queries = Vec::new();
    let mut add = |(order, limit, limit_per_value, contents)| {
        let conditions = conditions.to_vec();
        queries.push(ModelQuery { conditions, order, limit, limit_per_value, contents, pick: 0 });
    };
    if conditions.iter().any(|condition| matches!(condition, QueryCondition::Near(..))) {
        add((Nearest, None, None, AnswerContents::Records));
        add((Nearest, [Some(1), Some(10)][turn % 2], None, AnswerContents::Keys));
        let contents = [AnswerContents::Values, AnswerContents::Count, AnswerContents::Parts][turn / 2 % 3];
        add((Nearest, [Some(2), None][turn % 2], None, contents));
        return queries;
    }
    for (position, order) in [Newest, Oldest, Value, ValueDescending].into_iter().enumerate() {
        add((order, None, None, AnswerContents::Records));
        let limit = limits.iter().cycle().nth(turn + position);
        limit.into_iter().for_each(|limit| add((order, Some(*limit), None, AnswerContents::Records)));
    }
    add((SORTS[turn % 3], [Some(2), None][turn % 2], None, AnswerContents::Records));
    add((Newest, [Some(1), Some(10), None][turn % 3], None, AnswerContents::Keys));
    add((Value, [Some(2), None][turn % 2], None, AnswerContents::Keys));
    add((Newest, [None, Some(2)][turn % 2], None, AnswerContents::Count));
    let contents = [AnswerContents::Values, AnswerContents::Parts][turn / 2 % 2];
    add(([Newest, Value][turn % 2], [None, Some(10)][turn % 2], None, contents));
    if conditions.iter().any(QueryCondition::is_range) {
        let of_each_value = [
            (Newest, Some(10), Some(1), AnswerContents::Records),
            (Oldest, None, Some(2), AnswerContents::Keys),
            (Value, None, Some(1), AnswerContents::Records),
            (ValueDescending, Some(10), Some(2), AnswerContents::Keys),
            (Newest, None, Some(3), AnswerContents::Count),
        ];
        of_each_value.into_iter().cycle().skip(turn).step_by(2).take(2).for_each(add);
    }
    queries
}
