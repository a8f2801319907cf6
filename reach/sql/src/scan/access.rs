//! The access path of a scan.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bolide::{Order, Query};
use bolide_arrow::ScalarType;

use super::source::{ScanPredicates, ScanSource};
use crate::error::Result;
use crate::key_condition::KeyCondition;
use crate::read_point::KeyBounds;
use crate::sample::{all_keys, has_index};

/// Records from which a scan without an order is split into partitions.
const MIN_SPLIT_RECORDS: u64 = 50_000;

/// The order of the rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScanOrder {
    Any,
    Key {
        is_reverse: bool,
    },
    Sequence {
        is_newest_first: bool,
    },
    /// By the value of a column; equal values newest first.
    Value {
        /// The place of the column in the table.
        column: usize,
        path: String,
        scalar: ScalarType,
        is_descending: bool,
        /// Whether rows without a value follow. Otherwise a predicate excludes them.
        with_nulls_last: bool,
    },
}

impl fmt::Display for ScanOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Key { is_reverse: false } => f.write_str("key"),
            Self::Key { is_reverse: true } => f.write_str("key descending"),
            Self::Sequence { is_newest_first: true } => f.write_str("newest"),
            Self::Sequence { is_newest_first: false } => f.write_str("oldest"),
            Self::Value { path, is_descending, .. } => {
                write!(f, "{path}{}", if *is_descending { " descending" } else { "" })
            }
        }
    }
}

/// How the records are found.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// The records under these keys, ascending.
    Points(Arc<Vec<Vec<u8>>>),
    /// The records of ranges of keys: one for each partition.
    Keys(Arc<Vec<KeyBounds>>, bool),
    /// A query of the engine, and the indexes of its plan.
    Query(Box<Query>, Vec<String>),
}

impl Access {
    /// The access path with the lowest estimated cost, and the estimated number of rows.
    pub(crate) fn choose(
        source: &ScanSource,
        predicates: &ScanPredicates,
        order: &ScanOrder,
        partitions: usize,
    ) -> Result<(Self, u64)> {
        let keeps_keys = matches!(order, ScanOrder::Any | ScanOrder::Key { .. });
        if let Some(KeyCondition::Points(keys)) = predicates.key.as_ref().filter(|_| keeps_keys) {
            let rows = keys.len() as u64;
            return Ok((Self::Points(Arc::new(keys.clone())), rows));
        }
        let query = ordered_query(predicates, order);
        let estimate = source.collection.estimate(&query)?;
        let is_by_query = match order {
            ScanOrder::Sequence { .. } | ScanOrder::Value { .. } => true,
            ScanOrder::Key { .. } => false,
            ScanOrder::Any => !predicates.attributes.is_empty() && !estimate.indexes.is_empty(),
        };
        if is_by_query {
            return Ok((Self::Query(Box::new(query), estimate.indexes), estimate.records));
        }
        let is_reverse = matches!(order, ScanOrder::Key { is_reverse: true });
        let bounds = match &predicates.key {
            Some(KeyCondition::Range(bounds)) => bounds.clone(),
            _ => all_keys(),
        };
        let is_split = *order == ScanOrder::Any
            && partitions > 1
            && matches!(bounds, (Bound::Unbounded, Bound::Unbounded))
            && source.collection.estimate(&Query::new())?.records >= MIN_SPLIT_RECORDS;
        let parts = if is_split { source.collection.split(partitions)? } else { vec![bounds] };
        Ok((Self::Keys(Arc::new(parts), is_reverse), estimate.records))
    }

    /// The number of partitions.
    pub(crate) fn partitions(&self) -> usize {
        match self {
            Self::Keys(parts, _) => parts.len().max(1),
            _ => 1,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Points(keys) => write!(f, "keys={}", keys.len()),
            Self::Keys(parts, _) => match &parts[..] {
                [(Bound::Unbounded, Bound::Unbounded)] | [_, _, ..] => f.write_str("scan"),
                _ => f.write_str("range of keys"),
            },
            Self::Query(_, indexes) if indexes.is_empty() => f.write_str("query without an index"),
            Self::Query(_, indexes) => write!(f, "index={}", indexes.join("+")),
        }
    }
}

/// The query of the attributes in this order.
fn ordered_query(predicates: &ScanPredicates, order: &ScanOrder) -> Query {
    let conditions = &predicates.attributes;
    match order {
        ScanOrder::Sequence { is_newest_first } => {
            conditions.query(None).order(if *is_newest_first { Order::Newest } else { Order::Oldest })
        }
        ScanOrder::Value { path, scalar, is_descending, .. } => conditions
            .query(Some((path, *scalar)))
            .order(if *is_descending { Order::ValueDescending } else { Order::Value }),
        // A range is read in the order of its index, without collecting.
        ScanOrder::Any if conditions.only_range().is_some() => conditions.query(None).order(Order::Value),
        ScanOrder::Any | ScanOrder::Key { .. } => conditions.query(None),
    }
}

/// Whether an index provides the order by the value at `path`.
pub(crate) fn has_value_order(source: &ScanSource, path: &str) -> bool {
    has_index(&source.collection, path)
}
