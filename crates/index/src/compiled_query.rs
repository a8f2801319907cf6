//! Queries, compiled for planning and for evaluation on records.

use std::sync::OnceLock;

use bolide_base::Result;

use crate::attribute::{self, TAG_ABSENT};
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::cursor_token::CursorToken;
use crate::filter::{CompiledPredicate, CompiledTerm};
use crate::path::AttributePath;
use crate::predicate::{Condition, Predicate};
use crate::query::{Order, Projection, Query, SortDirection};
use crate::space::nearness::DistanceBytes;

/// A query compiled for execution.
///
/// Its conjunction consists of predicates, then terms; the *number* of a part is its position in this sequence.
#[derive(Debug, Clone)]
pub struct CompiledQuery<'q> {
    pub(crate) predicates: Vec<CompiledPredicate<'q>>,
    pub(crate) terms: Vec<CompiledTerm<'q>>,
    /// The paths of all parts of the query, by slot.
    paths: Vec<&'q AttributePath>,
    /// The paths, compiled when the first record is read.
    plan: OnceLock<AttributePlan>,
    pub(crate) order: Order,
    pub(crate) limit: usize,
    pub(crate) projection: Projection,
    /// The predicate whose values determine value orders, and are counted for a limit per value.
    pub(crate) order_predicate: Option<usize>,
    /// The attributes of [`Order::Attributes`].
    sort: Vec<(ValueSlot, SortDirection)>,
    pub(crate) limit_per_value: usize,
    pub(crate) after: Option<&'q CursorToken>,
    /// Slots of the selected attributes.
    pub(crate) select: Vec<ValueSlot>,
    selected: &'q [AttributePath],
    /// The paths whose parts replace the records of answers.
    pub(crate) selected_parts: Option<&'q [AttributePath]>,
}

/// A buffer for the order value of one record.
#[derive(Debug, Default)]
pub(crate) struct OrderValueBuffer {
    distance: DistanceBytes,
    sorted: Vec<u8>,
}

impl<'q> CompiledQuery<'q> {
    /// Compiles `query`.
    ///
    /// # Errors
    /// As [`Query::check`].
    pub fn new(query: &'q Query) -> Result<Self> {
        query.check()?;
        let mut paths: Vec<&'q AttributePath> = Vec::new();
        // A plan numbers distinct paths in their order.
        let mut slot = |path: &'q AttributePath| {
            paths.iter().position(|known| *known == path).unwrap_or_else(|| {
                paths.push(path);
                paths.len() - 1
            })
        };
        let mut predicates = Vec::with_capacity(query.predicates().len());
        for predicate in query.predicates() {
            predicates.push(CompiledPredicate::new(predicate, slot(predicate.path())));
        }
        let terms = query.term_nodes().iter().map(|term| CompiledTerm::new(term, &mut slot)).collect();
        let mut sort = Vec::new();
        let mut order = query.answer_order();
        let order_predicate;
        // A counting query needs no order unless it continues after a position.
        if order == Order::Attributes && query.projection() == Projection::Count && query.token().is_none() {
            order = Order::Newest;
        }
        if order == Order::Attributes {
            (order, order_predicate) = order_of_index(query).unwrap_or((order, None));
            if order == Order::Attributes {
                let attributes = query.sort_attributes().iter();
                sort = attributes.map(|(path, direction)| (slot(path), *direction)).collect();
            }
        } else {
            let first_range = || query.predicates().iter().position(Predicate::is_range);
            order_predicate = match order {
                Order::Value | Order::ValueDescending => first_range(),
                Order::Newest | Order::Oldest => query.answer_limit_per_value().and_then(|_| first_range()),
                Order::Nearest => predicates.iter().position(|one| one.nearest.is_some()),
                Order::Attributes => None,
            };
            // With equal values, the order is by recency.
            if matches!(order, Order::Value | Order::ValueDescending) && order_predicate.is_none() {
                order = Order::Newest;
            }
        }
        // For parts, the whole records are read.
        let has_parts = query.projection() == Projection::Parts;
        let selected = if has_parts { &[] } else { query.selected() };
        let select = selected.iter().map(&mut slot).collect();
        Ok(Self {
            predicates,
            terms,
            paths,
            plan: OnceLock::new(),
            order,
            limit: query.answer_limit().unwrap_or(usize::MAX),
            projection: if has_parts { Projection::Records } else { query.projection() },
            order_predicate,
            sort,
            limit_per_value: query.answer_limit_per_value().unwrap_or(usize::MAX),
            after: query.token(),
            select,
            selected,
            selected_parts: has_parts.then(|| query.selected()),
        })
    }

    /// The order of the answers, simplified if all values are equal, and for one sort attribute that must exist.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The order to request of an index. None has the order by several attributes.
    pub(crate) fn index_order(&self) -> Order {
        if self.order == Order::Attributes { Order::Newest } else { self.order }
    }

    /// The attributes to extract from a record for its evaluation.
    pub(crate) fn plan(&self) -> &AttributePlan {
        self.plan.get_or_init(|| AttributePlan::new(self.paths.iter().copied().cloned()))
    }

    /// The selected attributes.
    pub(crate) fn selected(&self) -> &'q [AttributePath] {
        self.selected
    }

    /// The number of parts of the conjunction.
    pub(crate) fn parts(&self) -> usize {
        self.predicates.len() + self.terms.len()
    }

    /// Whether a term without alternatives excludes all records.
    pub(crate) fn is_never_true(&self) -> bool {
        self.terms.iter().any(|term| matches!(term, CompiledTerm::Any(terms) if terms.is_empty()))
    }

    /// Whether records have to be evaluated if no index is used.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.parts() > 0 || !self.sort.is_empty()
    }

    /// Whether answers are ordered by their values.
    pub(crate) fn by_value(&self) -> bool {
        matches!(self.order, Order::Value | Order::ValueDescending | Order::Nearest | Order::Attributes)
    }

    /// Whether the value of an answer is needed for its position or for a limit per value.
    pub(crate) fn has_order_values(&self) -> bool {
        self.order_predicate.is_some() || !self.sort.is_empty()
    }

    /// Whether the value of a candidate matters beyond its position in the order.
    pub(crate) fn needs_order_values(&self) -> bool {
        self.limit_per_value < usize::MAX
    }

    /// The same query without the predicates whose number `omit` accepts, and the numbers of the remaining ones.
    pub(crate) fn without(&self, omit: impl Fn(usize) -> bool) -> (Self, Vec<usize>) {
        let remaining: Vec<usize> = (0..self.predicates.len()).filter(|number| !omit(*number)).collect();
        let mut rest = self.clone();
        rest.predicates =
            remaining.iter().filter_map(|number| self.predicates.get(*number).cloned()).collect();
        rest.order_predicate =
            self.order_predicate.and_then(|number| remaining.iter().position(|stays| *stays == number));
        (rest, remaining)
    }

    /// The same query with `tests` before its predicates, and without terms: for the access of an index to an alternative.
    pub(crate) fn with_tests(&self, tests: &[CompiledPredicate<'q>]) -> Self {
        let mut with = self.clone();
        with.terms.clear();
        with.predicates.splice(0..0, tests.iter().cloned());
        with.order_predicate = self.order_predicate.map(|number| number + tests.len());
        with
    }

    /// Whether the values of a record satisfy the whole conjunction.
    #[inline]
    pub(crate) fn matches(&self, values: &AttributeValues) -> bool {
        self.predicates.iter().all(|predicate| predicate.matches(values))
            && self.terms.iter().all(|term| term.matches(values))
    }

    /// The value that determines the position of a record in a value order, or that a limit per value counts; empty if the
    /// query has neither. It may be in `buffer`.
    pub(crate) fn order_value<'v>(
        &self,
        values: &'v AttributeValues,
        buffer: &'v mut OrderValueBuffer,
    ) -> &'v [u8] {
        if !self.sort.is_empty() {
            self.sort_key(values, &mut buffer.sorted);
            return &buffer.sorted;
        }
        let Some(predicate) = self.order_predicate.and_then(|at| self.predicates.get(at)) else {
            return &[];
        };
        if let Some(point) = predicate.nearest.as_ref().filter(|_| self.order == Order::Nearest) {
            let rects = values.values(predicate.slot).filter_map(attribute::decode_rect);
            let smallest = rects.map(|rect| rect.distance_squared(point)).fold(f64::INFINITY, f64::min);
            // The bits of a float that is not negative sort like the float.
            buffer.distance = smallest.to_bits().to_be_bytes();
            return &buffer.distance;
        }
        // Values come in ascending order.
        let mut within = values.values(predicate.slot).filter(|value| predicate.range.contains(value));
        let value = if self.order == Order::ValueDescending { within.last() } else { within.next() };
        value.unwrap_or_default()
    }

    /// Writes the concatenated keys of the sort attributes to `out`. Encodings are prefix-free, and so are their complements,
    /// which sort in the opposite direction.
    fn sort_key(&self, values: &AttributeValues, out: &mut Vec<u8>) {
        out.clear();
        for (slot, direction) in &self.sort {
            let mut all = values.values(*slot);
            let absent = &[TAG_ABSENT][..];
            match direction {
                SortDirection::Ascending => out.extend_from_slice(all.next().unwrap_or(absent)),
                SortDirection::Descending => {
                    let largest = all.last().unwrap_or(absent);
                    out.extend(largest.iter().map(|byte| !byte));
                }
            }
        }
    }
}

/// The order by value that equals the order by the attributes of `query`, with the number of its predicate: for one attribute
/// with the predicate that it exists, which all of its values satisfy.
fn order_of_index(query: &Query) -> Option<(Order, Option<usize>)> {
    let [(path, direction)] = query.sort_attributes() else { return None };
    let exists = |one: &Predicate| *one.condition() == Condition::Exists && one.path() == path;
    let number = query.predicates().iter().position(exists)?;
    let order = match direction {
        SortDirection::Ascending => Order::Value,
        SortDirection::Descending => Order::ValueDescending,
    };
    Some((order, Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::Value;

    #[test]
    fn value_orders_go_by_the_first_range() {
        let query = Query::new().eq("a", 1).range("b", 1..9).range("c", 1..9);
        let query = query.order(Order::ValueDescending);
        let compiled = CompiledQuery::new(&query).unwrap();
        assert_eq!((compiled.order_predicate, compiled.order), (Some(1), Order::ValueDescending));
        let mut values = AttributeValues::new();
        for value in [3, 5, 11] {
            values.push(1, &Value::Int(value)).unwrap();
        }
        values.finish();
        assert_eq!(
            Value::decode(compiled.order_value(&values, &mut OrderValueBuffer::default())).unwrap().0,
            Value::Int(5)
        );
        let query = Query::new().eq("a", 1).order(Order::Value);
        let equal = CompiledQuery::new(&query).unwrap();
        assert_eq!(equal.order, Order::Newest);
        assert!(equal.order_value(&values, &mut OrderValueBuffer::default()).is_empty());
    }
}
