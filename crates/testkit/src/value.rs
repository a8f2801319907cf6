//! Attribute values as the model sees them: straight from parsed JSON, sharing no code with the indexes.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// The values at `path` of a record: every scalar that the path reaches, `name[*]` being each element of
/// an array. An array at the end of a path stands for its elements.
pub fn values_at<'a>(record: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![record];
    for step in path.split('.') {
        let (field, elements) = match step.strip_suffix("[*]") {
            Some(field) => (field, true),
            None => (step, false),
        };
        found = found.into_iter().filter_map(|value| value.as_object()?.get(field)).collect();
        if elements {
            found = found.into_iter().filter_map(Value::as_array).flatten().collect();
        }
    }
    let elements = |value: &'a Value| match value {
        Value::Array(elements) => elements.iter().collect(),
        scalar => vec![scalar],
    };
    let mut values: Vec<&Value> = found.into_iter().flat_map(elements).collect();
    values.retain(|value| !value.is_array() && !value.is_object());
    values
}

/// The order of values: null, then booleans, then numbers, then strings. Numbers compare by value.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => rank(left).cmp(&rank(right)),
    }
}

/// Values of one rank are of one type.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) | Value::Object(_) => 4,
    }
}

/// Whether two values are of one type; all numbers are.
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

/// Exact: no integer of 65 bits is rounded.
fn compare_to_float(integer: i128, float: f64) -> Ordering {
    if float >= 2f64.powi(100) {
        return Ordering::Less;
    }
    if float <= -2f64.powi(100) {
        return Ordering::Greater;
    }
    // Exact: below 2^100 the whole part fits.
    let whole = float.trunc() as i128;
    integer.cmp(&whole).then_with(|| 0f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
