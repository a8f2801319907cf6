//! Use of the attributes that index entries contain: the included attributes, and for selections those of the key.

use crate::access::Access;
use crate::attribute::Value;
use crate::compiled_query::CompiledQuery;
use crate::predicate::EncodedRange;
use crate::query::{Order, Projection};
use crate::spec::IndexSpec;
use crate::standalone::covering::covered_values;

/// The attributes that a query reads from index entries.
#[derive(Debug, Default)]
pub(super) struct CoveredAttributes<'q> {
    /// Predicates with the positions of their attributes.
    checks: Vec<(&'q EncodedRange, usize)>,
    /// The attribute of the value order: its range and its position.
    order: Option<(&'q EncodedRange, usize)>,
    largest: bool,
    /// The positions of the selected attributes, if the entries have all of them.
    select: Option<Vec<usize>>,
}

/// The result of checking predicates on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryCheck {
    /// All predicates on included attributes are satisfied.
    Match,
    /// A predicate is not satisfied.
    Mismatch,
    /// The entry lacks a needed attribute: the record has to be read.
    Unknown,
}

impl<'q> CoveredAttributes<'q> {
    /// The attributes that `query` reads from the entries of the index that `spec` declares, read through `access`.
    pub(super) fn new(query: &CompiledQuery<'q>, access: &Access, spec: &IndexSpec) -> Self {
        let range = |number: &usize| query.predicates.get(*number).map(|predicate| predicate.range);
        let checks = access
            .included
            .iter()
            .filter_map(|(number, position)| range(number).map(|range| (range, *position)))
            .collect();
        let order = access.order_included.and_then(|position| {
            let number = query.order_predicate?;
            range(&number).map(|range| (range, position))
        });
        let select = (query.projection == Projection::Values)
            .then(|| {
                let position = |path| access.position_of(path, spec);
                query.selected().iter().map(position).collect::<Option<Vec<usize>>>()
            })
            .flatten();
        Self { checks, order, largest: query.order() == Order::ValueDescending, select }
    }

    /// True if the query reads any attribute from entries.
    pub(super) fn is_used(&self) -> bool {
        !self.checks.is_empty() || self.order.is_some() || self.select.is_some()
    }

    /// True if the selected values are read from entries.
    pub(super) fn selects(&self) -> bool {
        self.select.is_some()
    }

    /// Checks the predicates on the covering of an entry.
    pub(super) fn check(&self, covering: &[u8]) -> EntryCheck {
        for (range, position) in &self.checks {
            match covered_values(covering, *position) {
                None => return EntryCheck::Unknown,
                Some(mut values) => {
                    if !values.any(|value| range.contains(value)) {
                        return EntryCheck::Mismatch;
                    }
                }
            }
        }
        let selected = self.select.iter().flatten();
        let mut needed = selected.chain(self.order.as_ref().map(|(_, position)| position));
        if needed.any(|position| covered_values(covering, *position).is_none()) {
            return EntryCheck::Unknown;
        }
        EntryCheck::Match
    }

    /// The order value, if it is that of an included attribute.
    pub(super) fn order_value<'c>(&self, covering: &'c [u8]) -> Option<&'c [u8]> {
        let (range, position) = self.order?;
        let mut within = covered_values(covering, position)?.filter(|value| range.contains(value));
        if self.largest { within.last() } else { within.next() }
    }

    /// Reads the selected values of an entry for which [`check`](Self::check) returned a match.
    pub(super) fn read_selected(&self, covering: &[u8], out: &mut Vec<Vec<Value>>) {
        out.clear();
        for position in self.select.iter().flatten() {
            let values = covered_values(covering, *position).into_iter().flatten();
            out.push(values.filter_map(|value| Value::decode(value).map(|(value, _)| value)).collect());
        }
    }
}
