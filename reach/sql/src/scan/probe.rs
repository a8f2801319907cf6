//! The keys of the build side of a join, as an access to the probe side: an index lookup for each.
//!
//! The hash join passes a predicate down whose values it sets when its build side is complete: a list of the keys, if there are
//! not too many. The predicate only avoids work. The join decides which rows match, so any access that returns all rows with
//! these keys is right, and an unknown form of the predicate leads to a scan.

use std::sync::Arc;

use bolide::Order;
use bolide_arrow::{ColumnSource, ColumnType};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, Literal,
};
use datafusion::scalar::ScalarValue;

use super::access::Access;
use super::source::{ScanPredicates, ScanSource};
use crate::key_condition::{KeyCondition, KeyTranslator, both};
use crate::pushdown::{MAX_IN_LIST, one_of};
use crate::sample::has_index;

/// Maximum nesting of a predicate that is read.
const MAX_DEPTH: usize = 16;

/// An access by the keys of a join.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub(crate) access: Access,
    pub(crate) keys: usize,
}

/// The access by the keys in `predicate`; `None` if it has none, or no index has their column.
pub(super) fn probe_of(
    predicate: &Arc<dyn PhysicalExpr>,
    outputs: &[Option<usize>],
    source: &ScanSource,
    predicates: &ScanPredicates,
) -> Option<Probe> {
    let mut lists = Vec::new();
    collect_lists(predicate, 0, &mut lists);
    lists.into_iter().find_map(|(column, values)| {
        let place = outputs.get(column).copied().flatten()?;
        access_of(place, &values, source, predicates)
    })
}

fn access_of(
    place: usize,
    values: &[ScalarValue],
    source: &ScanSource,
    predicates: &ScanPredicates,
) -> Option<Probe> {
    let keys = values.len();
    if place == source.schema.key_place {
        let translator = KeyTranslator::new(&source.schema, source.collection.key_format(), false);
        let mut found = Vec::with_capacity(keys);
        for value in values.iter().filter(|value| !value.is_null()) {
            found.extend(translator.keys_of(value)?);
        }
        found.sort_unstable();
        found.dedup();
        let points = KeyCondition::Points(found);
        let condition = match &predicates.key {
            Some(known) => both(points, known.clone()),
            None => points,
        };
        let KeyCondition::Points(found) = condition else { return None };
        return Some(Probe { access: Access::Points(Arc::new(found)), keys });
    }
    let ColumnSource::Path(path, ColumnType::Scalar(scalar)) = source.schema.all().get(place)?.source()
    else {
        return None;
    };
    let path = path.to_string();
    // A condition on keys is more selective.
    if predicates.key.is_some() || !has_index(&source.collection, &path) {
        return None;
    }
    let (filter, _) = one_of(&path, *scalar, values.iter().collect())?;
    let mut attributes = predicates.attributes.clone();
    attributes.add_filter(filter);
    let query = attributes.query(None).order(Order::Newest);
    query.check().ok()?;
    let estimate = source.collection.estimate(&query).ok()?;
    if estimate.indexes.is_empty() {
        return None;
    }
    Some(Probe { access: Access::Query(Box::new(query), estimate.indexes), keys })
}

/// The lists of literals in a conjunction, each with the column that is compared with them.
fn collect_lists(
    predicate: &Arc<dyn PhysicalExpr>,
    depth: usize,
    lists: &mut Vec<(usize, Vec<ScalarValue>)>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(dynamic) = predicate.downcast_ref::<DynamicFilterPhysicalExpr>() {
        if let Ok(current) = dynamic.current() {
            collect_lists(&current, depth + 1, lists);
        }
    } else if let Some(binary) = predicate.downcast_ref::<BinaryExpr>() {
        if *binary.op() == Operator::And {
            collect_lists(binary.left(), depth + 1, lists);
            collect_lists(binary.right(), depth + 1, lists);
        }
    } else if let Some(list) = predicate.downcast_ref::<InListExpr>() {
        let Some(column) = list.expr().downcast_ref::<Column>() else { return };
        if list.negated() || list.list().len() > MAX_IN_LIST {
            return;
        }
        let values =
            list.list().iter().map(|value| value.downcast_ref::<Literal>().map(|one| one.value().clone()));
        if let Some(values) = values.collect() {
            lists.push((column.index(), values));
        }
    }
}
