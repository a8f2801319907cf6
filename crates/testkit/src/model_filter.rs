//! Filters of the model: trees of conditions, evaluated on parsed records.

use std::fmt;

use bolide_storage::SimRng;
use serde_json::Value;

use crate::model_query::{QueryCondition, random_condition};
use crate::rows::ModelRow;
use crate::value::{compare, is_spatial, rects_at, same_type, values_at};

/// A tree of conditions. A condition holds if some value of the record meets it; its negation, if none does.
#[derive(Debug, Clone)]
pub enum ModelFilter {
    /// All of these hold.
    All(Vec<ModelFilter>),
    /// One of these holds.
    Any(Vec<ModelFilter>),
    /// This does not hold.
    Not(Box<ModelFilter>),
    /// The condition holds.
    Condition(QueryCondition),
    /// Some value at the path is one of these.
    OneOf(String, Vec<Value>),
    /// Some string at the path starts with this one.
    Prefix(String, String),
    /// The path has a value, which may be null.
    Exists(String),
}

impl ModelFilter {
    /// Some value at the path equals this one.
    pub fn equals(path: &str, value: Value) -> Self {
        Self::Condition(QueryCondition::Equals(path.to_owned(), value))
    }

    /// The negation of `filter`.
    pub fn not(filter: Self) -> Self {
        Self::Not(Box::new(filter))
    }

    /// A random tree. At the top it is none that a query would take apart: neither a conjunction nor a single condition.
    pub fn random(rng: &mut SimRng) -> Self {
        match rng.below(6) {
            0 => Self::not(Self::leaf(rng)),
            1..=2 => Self::list(rng),
            _ => Self::Any((0..2 + rng.below(3)).map(|_| Self::tree(rng, 2)).collect()),
        }
    }

    fn tree(rng: &mut SimRng, depth: u32) -> Self {
        let children = |rng: &mut SimRng| (0..1 + rng.below(3)).map(|_| Self::tree(rng, depth - 1)).collect();
        match rng.below(8) {
            0..=1 if depth > 0 => Self::All(children(rng)),
            2 if depth > 0 => Self::Any(children(rng)),
            3 if depth > 0 => Self::not(Self::tree(rng, depth - 1)),
            _ => Self::leaf(rng),
        }
    }

    fn leaf(rng: &mut SimRng) -> Self {
        let path = *rng.pick(&["a", "n.x", "tags[*]", "s"]).unwrap_or(&"a");
        match rng.below(8) {
            0 => Self::list(rng),
            1 => Self::Exists(path.to_owned()),
            2 => Self::equals(path, Value::Null),
            3 => {
                let prefix = *rng.pick(&["", "w", "w1", "gr", "é"]).unwrap_or(&"w");
                Self::Prefix(path.to_owned(), prefix.to_owned())
            }
            _ => Self::Condition(random_condition(rng)),
        }
    }

    fn list(rng: &mut SimRng) -> Self {
        let path = *rng.pick(&["a", "n.x", "tags[*]", "s"]).unwrap_or(&"a");
        // At least two distinct values: a list of one is an equality.
        let values = (0..2 + rng.below(6)).map(|_| crate::record::scalar(rng));
        let texts = ["red", "w1", "w7", "green"].map(Value::from);
        Self::OneOf(path.to_owned(), values.chain(texts).collect())
    }

    /// Whether the filter holds for the record.
    pub fn accepts(&self, row: &ModelRow) -> bool {
        match self {
            Self::All(filters) => filters.iter().all(|filter| filter.accepts(row)),
            Self::Any(filters) => filters.iter().any(|filter| filter.accepts(row)),
            Self::Not(filter) => !filter.accepts(row),
            Self::Condition(condition) => condition.holds(row),
            Self::OneOf(path, wanted) => values_at(&row.parsed, path)
                .into_iter()
                .any(|value| wanted.iter().any(|one| same_type(value, one) && compare(value, one).is_eq())),
            Self::Prefix(path, prefix) => {
                let mut texts = values_at(&row.parsed, path).into_iter().filter_map(Value::as_str);
                texts.any(|text| text.starts_with(prefix.as_str()))
            }
            Self::Exists(path) if is_spatial(path) => !rects_at(&row.parsed, path).is_empty(),
            Self::Exists(path) => !values_at(&row.parsed, path).is_empty(),
        }
    }
}

impl fmt::Display for ModelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, filters: &[Self], word: &str| {
            f.write_str("(")?;
            for (position, filter) in filters.iter().enumerate() {
                write!(f, "{}{filter}", if position == 0 { "" } else { word })?;
            }
            f.write_str(")")
        };
        match self {
            Self::All(filters) => list(f, filters, " and "),
            Self::Any(filters) => list(f, filters, " or "),
            Self::Not(filter) => write!(f, "not {filter}"),
            Self::Condition(condition) => condition.fmt(f),
            Self::OneOf(path, values) => write!(f, "{path} in {}", Value::from(values.clone())),
            Self::Prefix(path, prefix) => write!(f, "{path} starts with {prefix:?}"),
            Self::Exists(path) => write!(f, "{path} exists"),
        }
    }
}
