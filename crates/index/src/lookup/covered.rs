//! What the entries of an index say of a record: its included attributes, and where the query selects them those of
//! the key.

use crate::access::Access;
use crate::attribute::Value;
use crate::predicate::EncodedRange;
use crate::query::{CompiledQuery, Order, Projection};
use crate::spec::IndexSpec;
use crate::standalone::covering::covered_values;

/// What a query takes from the included attributes of the entries.
#[derive(Debug, Default)]
pub(super) struct Covered<'q> {
    /// Predicates with the places of their attributes.
    checks: Vec<(&'q EncodedRange, usize)>,
    /// The attribute of the value order: its range and its place.
    order: Option<(&'q EncodedRange, usize)>,
    largest: bool,
    /// The places of the selected attributes, if the entries have all of them.
    select: Option<Vec<usize>>,
}

/// What an entry says of its record's predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySays {
    /// The predicates on included attributes hold.
    Holds,
    /// One does not.
    Fails,
    /// It does not have what is needed: the record has to be read.
    Nothing,
}

impl<'q> Covered<'q> {
    /// What `query` takes from the entries of the index that `spec` declares, read through `access`.
    pub(super) fn new(query: &CompiledQuery<'q>, access: &Access, spec: &IndexSpec) -> Self {
        let range = |number: &usize| query.predicates.get(*number).map(|predicate| predicate.range);
        let checks = access
            .included
            .iter()
            .filter_map(|(number, place)| range(number).map(|range| (range, *place)))
            .collect();
        let order = access.order_included.and_then(|place| {
            let number = query.order_predicate?;
            range(&number).map(|range| (range, place))
        });
        let select = (query.projection == Projection::Values)
            .then(|| {
                let place = |path| access.position_of(path, spec);
                query.selected().iter().map(place).collect::<Option<Vec<usize>>>()
            })
            .flatten();
        Self { checks, order, largest: query.order() == Order::ValueDescending, select }
    }

    /// True if entries are looked into at all.
    pub(super) fn is_used(&self) -> bool {
        !self.checks.is_empty() || self.order.is_some() || self.select.is_some()
    }

    /// True if the entries have all selected values.
    pub(super) fn selects(&self) -> bool {
        self.select.is_some()
    }

    /// Checks the predicates on the covering of an entry.
    pub(super) fn check(&self, covering: &[u8]) -> EntrySays {
        for (range, place) in &self.checks {
            match covered_values(covering, *place) {
                None => return EntrySays::Nothing,
                Some(mut values) => {
                    if !values.any(|value| range.contains(value)) {
                        return EntrySays::Fails;
                    }
                }
            }
        }
        let selected = self.select.iter().flatten();
        let mut needed = selected.chain(self.order.as_ref().map(|(_, place)| place));
        if needed.any(|place| covered_values(covering, *place).is_none()) {
            return EntrySays::Nothing;
        }
        EntrySays::Holds
    }

    /// The value of a value order, where it is an included attribute's.
    pub(super) fn order_value<'c>(&self, covering: &'c [u8]) -> Option<&'c [u8]> {
        let (range, place) = self.order?;
        let mut within = covered_values(covering, place)?.filter(|value| range.contains(value));
        if self.largest { within.last() } else { within.next() }
    }

    /// Reads the selected values of an entry that [`check`](Self::check) found to hold.
    pub(super) fn read_selected(&self, covering: &[u8], out: &mut Vec<Vec<Value>>) {
        out.clear();
        for place in self.select.iter().flatten() {
            let values = covered_values(covering, *place).into_iter().flatten();
            out.push(values.filter_map(|value| Value::decode(value).map(|(value, _)| value)).collect());
        }
    }
}
