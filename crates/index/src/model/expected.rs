//! The expected answers to a query, by a scan.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use super::{ModelAnswer, ModelView, TABLE};
use crate::attribute::Value;
use crate::filter::FilterNode;
use crate::path::{AttributePath, PathShape, PathStep};
use crate::predicate::Condition;
use crate::query::{Order, Query, SortDirection};
use crate::source::ReadSource;
use crate::space::{Point, Rect};

/// All answers to `query` in order, by parsing every record and comparing values, without encodings or indexes.
pub(crate) fn expected_answers(view: &ModelView, query: &Query) -> Vec<ModelAnswer> {
    let mut found = Vec::new();
    for (key, sequence, record) in view.tree(TABLE).unwrap().visible(&[], None) {
        let json: serde_json::Value = serde_json::from_slice(&record).unwrap();
        let mut order_value = None;
        let mut distance = None;
        let matches = query.predicates().iter().all(|predicate| {
            let mut values = expected_values(&json, predicate.path());
            values.retain(|value| satisfies(value, predicate.condition()));
            if let Condition::Nearest(point) = predicate.condition() {
                distance = values.iter().map(|value| expected_distance(value, point)).min_by(f64::total_cmp);
            }
            if order_value.is_none() && predicate.is_range() {
                order_value = match query.answer_order() {
                    Order::ValueDescending => values.iter().max().cloned(),
                    _ => values.iter().min().cloned(),
                };
            }
            !values.is_empty()
        });
        if matches && query.term_nodes().iter().all(|term| holds(term, &json)) {
            let order_value =
                if query.answer_order() == Order::Nearest { distance.map(Value::Float) } else { order_value };
            found.push((order_value, sequence, key, record));
        }
    }
    found.sort_by(|left, right| match query.answer_order() {
        Order::Attributes => compare_attributes(&left.3, &right.3, query).then(right.1.cmp(&left.1)),
        Order::Newest => right.1.cmp(&left.1),
        Order::Oldest => left.1.cmp(&right.1),
        Order::Value | Order::Nearest => left.0.cmp(&right.0).then(right.1.cmp(&left.1)),
        Order::ValueDescending => right.0.cmp(&left.0).then(right.1.cmp(&left.1)),
    });
    if let Some(limit) = query.answer_limit_per_value() {
        // Within one value the order is by recency, so the first ones count.
        let mut counts: Vec<(Option<Value>, usize)> = Vec::new();
        found.retain(|(value, ..)| {
            let known = counts.iter().position(|(known, _)| known == value);
            let at = known.unwrap_or_else(|| {
                counts.push((value.clone(), 0));
                counts.len() - 1
            });
            counts[at].1 += 1;
            counts[at].1 <= limit
        });
    }
    found.truncate(query.answer_limit().unwrap_or(usize::MAX));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    found
        .into_iter()
        .map(|(_, sequence, key, record)| ModelAnswer {
            key: text(key),
            sequence,
            record: Some(text(record)),
            values: Vec::new(),
        })
        .collect()
}

/// Compares records by the sort attributes.
fn compare_attributes(left: &[u8], right: &[u8], query: &Query) -> Ordering {
    let parse = |record: &[u8]| serde_json::from_slice::<serde_json::Value>(record).unwrap();
    let (left, right) = (parse(left), parse(right));
    let each = query.sort_attributes().iter().map(|(path, direction)| {
        let (left, right) = (expected_values(&left, path), expected_values(&right, path));
        match direction {
            SortDirection::Ascending => left.iter().min().cmp(&right.iter().min()),
            SortDirection::Descending => right.iter().max().cmp(&left.iter().max()),
        }
    });
    each.fold(Ordering::Equal, Ordering::then)
}

/// The meaning of a filter, by recursion over its tree and by values without encodings.
pub(crate) fn holds(node: &FilterNode, record: &serde_json::Value) -> bool {
    match node {
        FilterNode::All(nodes) => nodes.iter().all(|node| holds(node, record)),
        FilterNode::Any(nodes) => nodes.iter().any(|node| holds(node, record)),
        FilterNode::Not(node) => !holds(node, record),
        FilterNode::Test(predicate) => {
            let values = expected_values(record, predicate.path());
            values.iter().any(|value| satisfies(value, predicate.condition()))
        }
        FilterNode::In(set) => {
            let values = expected_values(record, set.path());
            values.iter().any(|value| set.values().iter().any(|(wanted, _)| wanted == value))
        }
    }
}

fn satisfies(value: &Value, condition: &Condition) -> bool {
    let class = |value: &Value| matches!(value, Value::String(_));
    let scalar = |value: &Value| !matches!(value, Value::Null | Value::Bool(_));
    match condition {
        Condition::Equal(wanted) => value == wanted,
        Condition::Prefix(prefix) => {
            matches!(value, Value::String(text) if text.starts_with(prefix.as_str()))
        }
        Condition::Exists => true,
        Condition::Nearest(_) => matches!(value, Value::Rect(_)),
        Condition::Within(window) => {
            let Value::Rect(rect) = value else { return false };
            let apart = rect.max_x() < window.min_x()
                || window.max_x() < rect.min_x()
                || rect.max_y() < window.min_y()
                || window.max_y() < rect.min_y();
            !apart
        }
        Condition::Range(low, high) => {
            let end = |bound: &Bound<Value>, below: fn(&Value, &Value) -> bool| match bound {
                Bound::Unbounded => true,
                Bound::Included(end) => {
                    scalar(value) && class(end) == class(value) && (below(end, value) || end == value)
                }
                Bound::Excluded(end) => scalar(value) && class(end) == class(value) && below(end, value),
            };
            end(low, |end, value| end < value) && end(high, |end, value| end > value)
        }
    }
}

/// The square of the distance to the nearest corner or edge.
fn expected_distance(value: &Value, point: &Point) -> f64 {
    let Value::Rect(rect) = value else { return f64::NAN };
    let away = |low: f64, at: f64, high: f64| match at {
        at if at < low => low - at,
        at if at > high => at - high,
        _ => 0.0,
    };
    let x = away(rect.min_x(), point.x(), rect.max_x());
    let y = away(rect.min_y(), point.y(), rect.max_y());
    x * x + y * y
}

/// The values at a path of any shape.
pub(crate) fn expected_values(json: &serde_json::Value, path: &AttributePath) -> Vec<Value> {
    let mut values = Vec::new();
    match path.shape() {
        PathShape::Scalar => find_values(json, path.steps(), &mut values),
        PathShape::Rect => {
            let mut targets = Vec::new();
            find_targets(json, path.steps(), &mut targets);
            for target in targets {
                let elements = target.as_array().into_iter().flatten();
                values.extend([target].into_iter().chain(elements).filter_map(expected_rect));
            }
        }
        PathShape::Point(second) => {
            let coordinate = |steps: &[PathStep]| {
                let mut targets = Vec::new();
                find_targets(json, steps, &mut targets);
                targets.first().and_then(|target| target.as_f64())
            };
            if let (Some(x), Some(y)) = (coordinate(path.steps()), coordinate(second)) {
                values.push(Value::Rect(Point::new(x, y).unwrap().into()));
            }
        }
    }
    values
}

fn expected_rect(json: &serde_json::Value) -> Option<Value> {
    let corners: Option<Vec<f64>> = json.as_array()?.iter().map(serde_json::Value::as_f64).collect();
    match corners?[..] {
        [min_x, min_y, max_x, max_y] => Rect::new(min_x, min_y, max_x, max_y).ok().map(Value::Rect),
        _ => None,
    }
}

/// The JSON values at the end of `steps`.
fn find_targets<'j>(json: &'j serde_json::Value, steps: &[PathStep], out: &mut Vec<&'j serde_json::Value>) {
    match steps {
        [] => out.push(json),
        [PathStep::Field(name), rest @ ..] => {
            if let Some(value) = json.as_object().and_then(|object| object.get(&**name)) {
                find_targets(value, rest, out);
            }
        }
        [PathStep::Elements, rest @ ..] => {
            for element in json.as_array().into_iter().flatten() {
                find_targets(element, rest, out);
            }
        }
    }
}

/// The values at a path in a parsed record, by the table in the documentation of [`crate::json`].
pub(crate) fn find_values(json: &serde_json::Value, steps: &[PathStep], out: &mut Vec<Value>) {
    match steps {
        [] => match json {
            serde_json::Value::Array(elements) => out.extend(elements.iter().filter_map(Value::from_json)),
            scalar => out.extend(Value::from_json(scalar)),
        },
        [PathStep::Field(name), rest @ ..] => {
            if let Some(value) = json.as_object().and_then(|object| object.get(&**name)) {
                find_values(value, rest, out);
            }
        }
        [PathStep::Elements, rest @ ..] => {
            for element in json.as_array().into_iter().flatten() {
                find_values(element, rest, out);
            }
        }
    }
}

/// The values of a record at the selected paths, distinct and ascending.
pub(crate) fn expected_selected(record: &str, query: &Query) -> Vec<Vec<Value>> {
    let json: serde_json::Value = serde_json::from_str(record).unwrap();
    let values = |path: &crate::path::AttributePath| {
        let mut values = expected_values(&json, path);
        values.sort();
        values.dedup();
        values
    };
    query.selected().iter().map(values).collect()
}

/// The distinct keys of answers.
pub(crate) fn keys(answers: &[ModelAnswer]) -> BTreeSet<&str> {
    answers.iter().map(|answer| answer.key.as_str()).collect()
}
