//! Attribute values of the model: taken from parsed JSON, without code shared with the indexes.

use std::cmp::Ordering;

use serde_json::{Number, Value, json};

/// The values at `path` of a record: all scalars that the path reaches. `name[*]` selects each element of an array. An array
/// at the end of a path represents its elements.
pub fn values_at<'a>(record: &'a Value, path: &str) -> Vec<&'a Value> {
    let nodes = nodes_at(record, path);
    let elements = |value: &'a Value| match value {
        Value::Array(elements) => elements.iter().collect(),
        scalar => vec![scalar],
    };
    let mut values: Vec<&Value> = nodes.into_iter().flat_map(elements).collect();
    values.retain(|value| !value.is_array() && !value.is_object());
    values
}

/// The JSON nodes at `path`, of any type.
fn nodes_at<'a>(record: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut nodes = vec![record];
    for step in path.split('.') {
        let (field, elements) = match step.strip_suffix("[*]") {
            Some(field) => (field, true),
            None => (step, false),
        };
        nodes = nodes.into_iter().filter_map(|value| value.as_object()?.get(field)).collect();
        if elements {
            nodes = nodes.into_iter().filter_map(Value::as_array).flatten().collect();
        }
    }
    nodes
}

/// The part of a record at `path`: the node, for a path through `[*]` the array of all nodes, for a point that of both.
pub fn part_at(record: &Value, path: &str) -> Option<Value> {
    let inside = |shape: &str| path.strip_prefix(shape).and_then(|rest| rest.strip_suffix(')'));
    if let Some((x, y)) = inside("point(").and_then(|inner| inner.split_once(',')) {
        let first = |path: &str| nodes_at(record, path).first().copied().cloned();
        return first(x).zip(first(y)).map(|(x, y)| json!([x, y]));
    }
    let path = inside("rect(").unwrap_or(path);
    let nodes = nodes_at(record, path);
    let first = nodes.first().copied().cloned();
    if path.contains("[*]") { first.map(|_| json!(nodes)) } else { first }
}

/// The values at `path` of a record as in an answer: for `rect(path)` and `point(x,y)`, rectangles as arrays of four numbers.
pub fn answer_values_at(record: &Value, path: &str) -> Vec<Value> {
    if is_spatial(path) {
        return rects_at(record, path).into_iter().map(|corners| json!(corners)).collect();
    }
    values_at(record, path).into_iter().cloned().collect()
}

/// Whether the values at `path` are rectangles.
pub fn is_spatial(path: &str) -> bool {
    path.starts_with("rect(") || path.starts_with("point(")
}

/// The rectangles at `path` of a record, also for points: minimum coordinates first, then maximum coordinates.
pub fn rects_at(record: &Value, path: &str) -> Vec<[f64; 4]> {
    let inside = |shape: &str| path.strip_prefix(shape).and_then(|rest| rest.strip_suffix(')'));
    if let Some((x, y)) = inside("point(").and_then(|inner| inner.split_once(',')) {
        let number = |path: &str| nodes_at(record, path).first().and_then(|node| node.as_f64());
        let both = number(x).zip(number(y));
        return both.map(|(x, y)| [x, y, x, y]).into_iter().collect();
    }
    let nodes = inside("rect(").map(|inner| nodes_at(record, inner)).unwrap_or_default();
    let arrays = |node: &'_ Value| -> Vec<Vec<Value>> {
        let Some(elements) = node.as_array() else { return Vec::new() };
        let inner = elements.iter().filter_map(Value::as_array).cloned();
        inner.chain([elements.clone()]).collect()
    };
    let corners = |array: Vec<Value>| -> Option<[f64; 4]> {
        let numbers: Option<Vec<f64>> = array.iter().map(Value::as_f64).collect();
        let [a, b, c, d] = <[f64; 4]>::try_from(numbers?).ok()?;
        (a <= c && b <= d).then_some([a, b, c, d])
    };
    nodes.into_iter().flat_map(arrays).filter_map(corners).collect()
}

/// The order of values: null, then booleans, then numbers, then strings. Numbers compare by value.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| compare(left, right));
            pairs.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

/// The rank of the type of a value.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    }
}

/// Whether two values have the same type. All numbers have one type.
pub fn same_type(left: &Value, right: &Value) -> bool {
    rank(left) == rank(right)
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_to_float(left, float(right)),
        (None, Some(right)) => compare_to_float(right, float(left)).reverse(),
        (None, None) => float(left).partial_cmp(&float(right)).unwrap_or(Ordering::Equal),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

/// Exact comparison: no integer of up to 65 bits is rounded.
fn compare_to_float(integer: i128, float: f64) -> Ordering {
    if float >= 2f64.powi(100) {
        return Ordering::Less;
    }
    if float <= -2f64.powi(100) {
        return Ordering::Greater;
    }
    // Exact: below 2^100 the integer part fits.
    let whole = float.trunc() as i128;
    integer.cmp(&whole).then_with(|| 0f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_types_have_one_order() {
        let ascending = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(0.5),
            json!(1),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            json!(u64::MAX),
            json!(1.9e19),
            json!(""),
            json!("a"),
            json!("aa"),
            json!("b"),
        ];
        for (i, left) in ascending.iter().enumerate() {
            for (j, right) in ascending.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} and {right}");
            }
        }
        assert_eq!(compare(&json!(1), &json!(1.0)), Ordering::Equal);
        assert_eq!(compare(&json!(-0.0), &json!(0)), Ordering::Equal);
    }

    #[test]
    fn rectangles_are_arrays_of_four_numbers_and_points_two_numbers() {
        let record =
            json!({"a": [0, 1, 2, 3], "b": [[0, 0, 1, 1], [2, 0, 1, 1], [5, 5, 5, 5]], "x": 1, "y": 2.5});
        assert_eq!(rects_at(&record, "rect(a)"), [[0.0, 1.0, 2.0, 3.0]]);
        assert_eq!(rects_at(&record, "rect(b)"), [[0.0, 0.0, 1.0, 1.0], [5.0; 4]]);
        assert_eq!(rects_at(&record, "rect(b[*])"), rects_at(&record, "rect(b)"));
        assert_eq!(rects_at(&record, "point(x,y)"), [[1.0, 2.5, 1.0, 2.5]]);
        assert!(rects_at(&record, "point(x,a)").is_empty() && rects_at(&record, "rect(x)").is_empty());
        assert_eq!(answer_values_at(&record, "rect(a)"), [json!([0.0, 1.0, 2.0, 3.0])]);
        assert_eq!(compare(&json!([0, 1]), &json!([0, 2])), Ordering::Less);
    }

    #[test]
    fn paths_reach_scalars_only() {
        let record = json!({"a": {"b": 1}, "t": ["x", {"z": 2}, null], "o": {}});
        assert_eq!(values_at(&record, "a.b"), [&json!(1)]);
        assert_eq!(values_at(&record, "t[*]"), [&json!("x"), &json!(null)]);
        assert_eq!(values_at(&record, "t[*].z"), [&json!(2)]);
        assert_eq!(values_at(&record, "t"), [&json!("x"), &json!(null)]);
        for path in ["a", "o", "missing", "a.b.c", "a[*]", "o[*]"] {
            assert!(values_at(&record, path).is_empty(), "{path}");
        }
    }
}
