//! Literals of SQL as values of attributes.
//!
//! A column reads a value of the record only if it has the type of the column. Each function here returns conditions that
//! hold for **every** record whose column satisfies the comparison, and perhaps for more: the scan checks the rows again.
//! `is_exact` states that there are no more.

use std::ops::Bound;

use bolide::{Filter, Value};
use bolide_arrow::ScalarType;
use datafusion::scalar::ScalarValue;

/// From here on, different integers are one `f64`.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// The bounds of a range of values.
pub(crate) type ValueBounds = (Bound<Value>, Bound<Value>);

/// The comparison of a column with a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(crate) fn swapped(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// The value of `literal` in a column of type `scalar`; `None` if an index cannot find it.
pub(crate) fn value_of(literal: &ScalarValue, scalar: ScalarType) -> Option<Value> {
    match scalar {
        ScalarType::Bool => match literal {
            ScalarValue::Boolean(Some(value)) => Some((*value).into()),
            _ => None,
        },
        ScalarType::Int64 => integer_of(literal),
        ScalarType::Float64 => {
            let value = match literal {
                ScalarValue::Float64(Some(value)) => *value,
                ScalarValue::Float32(Some(value)) => f64::from(*value),
                other => match integer_of(other)? {
                    Value::Int(value) => value as f64,
                    Value::Uint(value) => value as f64,
                    _ => return None,
                },
            };
            value.is_finite().then_some(Value::Float(value))
        }
        ScalarType::String => text_of(literal).map(Value::from),
        ScalarType::Date => match literal {
            // A text of ten characters sorts as the date does.
            ScalarValue::Date32(Some(_)) => {
                let text = literal.to_string();
                (text.len() == 10 && text.as_bytes().first()?.is_ascii_digit()).then(|| Value::from(text))
            }
            _ => None,
        },
        ScalarType::Timestamp(unit) => {
            use arrow::datatypes::TimeUnit;
            match (literal, unit) {
                (ScalarValue::TimestampSecond(Some(value), None), TimeUnit::Second)
                | (ScalarValue::TimestampMillisecond(Some(value), None), TimeUnit::Millisecond)
                | (ScalarValue::TimestampMicrosecond(Some(value), None), TimeUnit::Microsecond)
                | (ScalarValue::TimestampNanosecond(Some(value), None), TimeUnit::Nanosecond) => {
                    Some(Value::Int(*value))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The text of a literal of a text type.
pub(crate) fn text_of(literal: &ScalarValue) -> Option<&str> {
    match literal {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Some(text),
        _ => None,
    }
}

/// The integer of a literal of an integer type.
pub(crate) fn integer_of(literal: &ScalarValue) -> Option<Value> {
    Some(match literal {
        ScalarValue::Int8(Some(value)) => Value::Int((*value).into()),
        ScalarValue::Int16(Some(value)) => Value::Int((*value).into()),
        ScalarValue::Int32(Some(value)) => Value::Int((*value).into()),
        ScalarValue::Int64(Some(value)) => Value::Int(*value),
        ScalarValue::UInt8(Some(value)) => Value::Int((*value).into()),
        ScalarValue::UInt16(Some(value)) => Value::Int((*value).into()),
        ScalarValue::UInt32(Some(value)) => Value::Int((*value).into()),
        ScalarValue::UInt64(Some(value)) => Value::Uint(*value),
        _ => return None,
    })
}

/// A filter for the records whose attribute at `path` equals `value`, and whether it has no other ones.
pub(crate) fn equal_filter(path: &str, value: Value) -> (Filter, bool) {
    match value {
        // Integers beyond 2^53 are read as the nearest `f64`.
        Value::Float(value) if value.abs() >= EXACT_INTEGERS => {
            let bounds = (
                Bound::Included(Value::Float(value.next_down())),
                Bound::Included(Value::Float(value.next_up())),
            );
            (Filter::range(path, bounds), false)
        }
        // SQL distinguishes -0.0 from 0.0, and the index does not.
        Value::Float(0.0) => (Filter::eq(path, Value::Float(0.0)), false),
        value => (Filter::eq(path, value), true),
    }
}

/// The range of values of a column of type `scalar` that compare with `value` as stated, and whether it has no values that
/// the column does not read.
pub(crate) fn range_of(comparison: Comparison, value: Value, scalar: ScalarType) -> (ValueBounds, bool) {
    // Numbers with a fraction lie in the range, and are NULL in columns of integers.
    let is_exact = matches!(scalar, ScalarType::Float64 | ScalarType::String);
    let (low, high, is_exact) = match value {
        Value::Float(value) if value.abs() >= EXACT_INTEGERS => (
            Bound::Included(Value::Float(value.next_down())),
            Bound::Included(Value::Float(value.next_up())),
            false,
        ),
        Value::Float(0.0) => (Bound::Included(Value::Float(0.0)), Bound::Included(Value::Float(0.0)), false),
        value => match comparison {
            Comparison::Less | Comparison::Greater => {
                (Bound::Excluded(value.clone()), Bound::Excluded(value), is_exact)
            }
            _ => (Bound::Included(value.clone()), Bound::Included(value), is_exact),
        },
    };
    let all = class_range(scalar);
    match comparison {
        Comparison::Equal => ((low, high), is_exact),
        Comparison::Less | Comparison::LessOrEqual => ((all.0, high), is_exact),
        Comparison::Greater | Comparison::GreaterOrEqual => ((low, all.1), is_exact),
    }
}

/// The range of all values that a column of type `scalar`, which is not boolean, reads: it also has values that the column does
/// not read.
pub(crate) fn class_range(scalar: ScalarType) -> ValueBounds {
    match scalar {
        ScalarType::String | ScalarType::Json | ScalarType::Date | ScalarType::IsoTimestamp => {
            (Bound::Included("".into()), Bound::Unbounded)
        }
        _ => (Bound::Included(Value::Float(f64::MIN)), Bound::Included(Value::Float(f64::MAX))),
    }
}

/// The common part of two ranges.
pub(crate) fn intersect(left: ValueBounds, right: ValueBounds) -> ValueBounds {
    let low = match (left.0, right.0) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (first, second) => {
            let ((a, a_open), (b, b_open)) = (end_of(&first), end_of(&second));
            if (a, a_open) >= (b, b_open) { first } else { second }
        }
    };
    let high = match (left.1, right.1) {
        (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
        (first, second) => {
            let ((a, a_open), (b, b_open)) = (end_of(&first), end_of(&second));
            if (a, !a_open) <= (b, !b_open) { first } else { second }
        }
    };
    (low, high)
}

/// The value of an end, and whether it is excluded.
fn end_of(bound: &Bound<Value>) -> (&Value, bool) {
    match bound {
        Bound::Included(value) => (value, false),
        Bound::Excluded(value) => (value, true),
        Bound::Unbounded => (&Value::Null, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_intersected_at_their_narrower_ends() {
        let range =
            |low: i64, high: i64| (Bound::Included(Value::Int(low)), Bound::Included(Value::Int(high)));
        assert_eq!(intersect(range(1, 5), range(3, 9)), range(3, 5));
        let open = (Bound::Excluded(Value::Int(3)), Bound::Excluded(Value::Int(5)));
        assert_eq!(intersect(range(3, 5), open.clone()), open);
        assert_eq!(intersect(open.clone(), (Bound::Unbounded, Bound::Unbounded)), open);
    }

    #[test]
    fn large_floats_have_wider_conditions() {
        let ((low, high), is_exact) = range_of(Comparison::Less, Value::Float(1e17), ScalarType::Float64);
        assert!(!is_exact && low == Bound::Included(Value::Float(f64::MIN)));
        assert_eq!(high, Bound::Included(Value::Float(1e17_f64.next_up())));
        assert!(range_of(Comparison::Less, Value::Float(1.5), ScalarType::Float64).1);
        assert!(!range_of(Comparison::Less, Value::Float(-0.0), ScalarType::Float64).1);
        assert!(!range_of(Comparison::Less, Value::Int(5), ScalarType::Int64).1);
        assert!(equal_filter("a", Value::Int(5)).1 && !equal_filter("a", Value::Float(0.0)).1);
    }

    #[test]
    fn literals_of_other_types_have_no_value() {
        assert_eq!(value_of(&ScalarValue::Utf8(Some("1".into())), ScalarType::Int64), None);
        assert_eq!(value_of(&ScalarValue::Float64(Some(f64::NAN)), ScalarType::Float64), None);
        assert_eq!(value_of(&ScalarValue::Int64(None), ScalarType::Int64), None);
        assert_eq!(value_of(&ScalarValue::Date32(Some(0)), ScalarType::Date), Some("1970-01-01".into()));
        assert_eq!(value_of(&ScalarValue::Date32(Some(i32::MAX)), ScalarType::Date), None);
    }
}
