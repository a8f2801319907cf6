//! Predicates of SQL on the key as keys and ranges of keys.

use std::ops::Bound;

use bolide::key::{self, KeyFormat};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use crate::column_value::{Comparison, integer_of, text_of};
use crate::pushdown::MAX_IN_LIST;
use crate::read_point::KeyBounds;
use crate::record_key::{KeyType, TEXT_KEY, keys_of_text};
use crate::table_schema::TableSchema;

/// The keys that a predicate admits. Like conditions on attributes, it may admit more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyCondition {
    /// These keys alone, ascending.
    Points(Vec<Vec<u8>>),
    Range(KeyBounds),
}

/// Translates predicates on the key column of a table.
#[derive(Clone, Copy)]
pub(crate) struct KeyTranslator<'s> {
    schema: &'s TableSchema,
    format: KeyFormat,
    /// Whether all keys are texts: ranges of texts are ranges of keys.
    only_texts: bool,
}

impl<'s> KeyTranslator<'s> {
    pub(crate) fn new(schema: &'s TableSchema, format: KeyFormat, only_texts: bool) -> Self {
        Self { schema, format, only_texts }
    }

    /// Whether the order of the keys is the order of the key column.
    pub(crate) fn orders_by_key(self) -> bool {
        match self.schema.key_type {
            KeyType::Text => self.format != KeyFormat::Typed || self.only_texts,
            KeyType::Int => self.format == KeyFormat::Typed,
            KeyType::Binary => true,
        }
    }

    /// The keys that `predicate` admits; `None` if it does not restrict them.
    pub(crate) fn translate(self, predicate: &Expr) -> Option<KeyCondition> {
        match predicate {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let comparison = match op {
                    Operator::Eq => Comparison::Equal,
                    Operator::Lt => Comparison::Less,
                    Operator::LtEq => Comparison::LessOrEqual,
                    Operator::Gt => Comparison::Greater,
                    Operator::GtEq => Comparison::GreaterOrEqual,
                    Operator::Or => {
                        let (left, right) = (self.translate(left)?, self.translate(right)?);
                        let (KeyCondition::Points(mut left), KeyCondition::Points(right)) = (left, right)
                        else {
                            return None;
                        };
                        left.extend(right);
                        return Some(points(left));
                    }
                    _ => return None,
                };
                match (&**left, &**right) {
                    (Expr::Column(column), Expr::Literal(literal, _)) if self.schema.is_key(&column.name) => {
                        self.comparison(comparison, literal)
                    }
                    (Expr::Literal(literal, _), Expr::Column(column)) if self.schema.is_key(&column.name) => {
                        self.comparison(comparison.swapped(), literal)
                    }
                    _ => None,
                }
            }
            Expr::InList(list) if !list.negated && list.list.len() <= MAX_IN_LIST => {
                let Expr::Column(column) = &*list.expr else { return None };
                if !self.schema.is_key(&column.name) {
                    return None;
                }
                let mut keys = Vec::with_capacity(list.list.len());
                for one in &list.list {
                    let Expr::Literal(literal, _) = one else { return None };
                    if !literal.is_null() {
                        keys.extend(self.keys_of(literal)?);
                    }
                }
                Some(points(keys))
            }
            _ => None,
        }
    }

    /// The keys with this value of the key column.
    pub(crate) fn keys_of(self, literal: &ScalarValue) -> Option<Vec<Vec<u8>>> {
        match self.schema.key_type {
            KeyType::Text => Some(keys_of_text(text_of(literal)?, self.format)),
            KeyType::Int => match integer_of(literal)? {
                bolide::Value::Int(value) if self.format == KeyFormat::Typed => {
                    Some(vec![key::encode_int(value)])
                }
                // No key reads as a larger integer.
                bolide::Value::Uint(value) if self.format == KeyFormat::Typed => {
                    Some(i64::try_from(value).map(key::encode_int).into_iter().collect())
                }
                _ => None,
            },
            KeyType::Binary => bytes_of(literal).map(|key| vec![key]),
        }
    }

    fn comparison(self, comparison: Comparison, literal: &ScalarValue) -> Option<KeyCondition> {
        let keys = self.keys_of(literal)?;
        if comparison == Comparison::Equal {
            return Some(points(keys));
        }
        if !self.orders_by_key() {
            return None;
        }
        // The first one has the type of the other keys.
        let key = keys.into_iter().next()?;
        let (low, high) = match (self.schema.key_type, self.format) {
            (KeyType::Text, KeyFormat::Typed) => {
                (Bound::Included(vec![TEXT_KEY]), Bound::Excluded(vec![TEXT_KEY + 1]))
            }
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        Some(KeyCondition::Range(match comparison {
            Comparison::Less => (low, Bound::Excluded(key)),
            Comparison::LessOrEqual => (low, Bound::Included(key)),
            Comparison::Greater => (Bound::Excluded(key), high),
            _ => (Bound::Included(key), high),
        }))
    }
}

fn points(mut keys: Vec<Vec<u8>>) -> KeyCondition {
    keys.sort_unstable();
    keys.dedup();
    KeyCondition::Points(keys)
}

fn bytes_of(literal: &ScalarValue) -> Option<Vec<u8>> {
    match literal {
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Some(bytes.clone()),
        _ => None,
    }
}

/// Both conditions together.
pub(crate) fn both(left: KeyCondition, right: KeyCondition) -> KeyCondition {
    match (left, right) {
        (KeyCondition::Points(left), KeyCondition::Points(right)) => {
            KeyCondition::Points(left.into_iter().filter(|key| right.binary_search(key).is_ok()).collect())
        }
        (KeyCondition::Points(keys), KeyCondition::Range(range))
        | (KeyCondition::Range(range), KeyCondition::Points(keys)) => {
            KeyCondition::Points(keys.into_iter().filter(|key| is_within(&range, key)).collect())
        }
        (KeyCondition::Range(left), KeyCondition::Range(right)) => {
            let low = match (left.0, right.0) {
                (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
                (first, second) => {
                    if low_end(&first) >= low_end(&second) {
                        first
                    } else {
                        second
                    }
                }
            };
            let high = match (left.1, right.1) {
                (Bound::Unbounded, other) | (other, Bound::Unbounded) => other,
                (first, second) => {
                    if high_end(&first) <= high_end(&second) {
                        first
                    } else {
                        second
                    }
                }
            };
            KeyCondition::Range((low, high))
        }
    }
}

fn is_within(range: &KeyBounds, key: &[u8]) -> bool {
    use std::ops::RangeBounds;

    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
        (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
    RangeBounds::<[u8]>::contains(&bounds, key)
}

fn low_end(bound: &Bound<Vec<u8>>) -> (&[u8], bool) {
    match bound {
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
        Bound::Unbounded => (&[], false),
    }
}

fn high_end(bound: &Bound<Vec<u8>>) -> (&[u8], bool) {
    let (key, is_open) = low_end(bound);
    (key, !is_open)
}
