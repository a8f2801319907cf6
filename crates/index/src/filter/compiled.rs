//! Terms of a query, compiled for evaluation and planning.

use crate::attribute_plan::{AttributeValues, ValueSlot};
use crate::path::AttributePath;
use crate::predicate::{Condition, EncodedRange, Predicate};
use crate::space::Point;

use super::{FilterNode, ValueSet};

/// A term in [normal form](super::normal), with the slots of its attributes.
#[derive(Debug, Clone)]
pub(crate) enum CompiledTerm<'q> {
    All(Vec<CompiledTerm<'q>>),
    Any(Vec<CompiledTerm<'q>>),
    Not(Box<CompiledTerm<'q>>),
    Test(CompiledPredicate<'q>),
    In(ValueSlot, &'q ValueSet),
}

/// A condition with one range of encoded values.
#[derive(Debug, Clone)]
pub(crate) struct CompiledPredicate<'q> {
    pub(crate) path: &'q AttributePath,
    /// The slot of the path in the query's plan.
    pub(crate) slot: ValueSlot,
    pub(crate) is_equal: bool,
    /// Where distances are measured from.
    pub(crate) nearest: Option<Point>,
    pub(crate) range: &'q EncodedRange,
}

impl<'q> CompiledPredicate<'q> {
    pub(crate) fn new(predicate: &'q Predicate, slot: ValueSlot) -> Self {
        let nearest = match predicate.condition() {
            Condition::Nearest(point) => Some(*point),
            _ => None,
        };
        let (path, is_equal, range) = (predicate.path(), predicate.is_equal(), predicate.encoded_range());
        Self { path, slot, is_equal, nearest, range }
    }

    /// Whether a value of a record satisfies the condition.
    #[inline]
    pub(crate) fn matches(&self, values: &AttributeValues) -> bool {
        values.values(self.slot).any(|value| self.range.contains(value))
    }
}

/// An alternative of a term: a conjunction.
#[derive(Debug)]
pub(crate) struct Disjunct<'q> {
    /// The conditions that an index may serve.
    pub(crate) tests: Vec<CompiledPredicate<'q>>,
    /// Whether these are all conditions.
    pub(crate) is_whole: bool,
}

impl<'q> CompiledTerm<'q> {
    /// Compiles `node`; `slot` returns the slots of paths.
    pub(crate) fn new(node: &'q FilterNode, slot: &mut impl FnMut(&'q AttributePath) -> ValueSlot) -> Self {
        match node {
            FilterNode::All(nodes) => Self::All(nodes.iter().map(|node| Self::new(node, slot)).collect()),
            FilterNode::Any(nodes) => Self::Any(nodes.iter().map(|node| Self::new(node, slot)).collect()),
            FilterNode::Not(node) => Self::Not(Box::new(Self::new(node, slot))),
            FilterNode::Test(predicate) => {
                Self::Test(CompiledPredicate::new(predicate, slot(predicate.path())))
            }
            FilterNode::In(set) => Self::In(slot(set.path()), set),
        }
    }

    /// Whether the values of a record make the term true.
    pub(crate) fn matches(&self, values: &AttributeValues) -> bool {
        match self {
            Self::All(terms) => terms.iter().all(|term| term.matches(values)),
            Self::Any(terms) => terms.iter().any(|term| term.matches(values)),
            Self::Not(term) => !term.matches(values),
            Self::Test(predicate) => predicate.matches(values),
            Self::In(slot, set) => values.values(*slot).any(|value| set.contains(value)),
        }
    }

    /// The alternatives of which one must hold; `None` for a term that no union of accesses serves: a negation, or an
    /// alternative without a condition on values.
    pub(crate) fn alternatives(&self) -> Option<Vec<Disjunct<'q>>> {
        match self {
            Self::Any(terms) => {
                let mut all = Vec::with_capacity(terms.len());
                for term in terms {
                    match term {
                        Self::In(..) => all.extend(term.alternatives()?),
                        _ => all.push(term.conjunction()?),
                    }
                }
                Some(all)
            }
            Self::In(slot, set) => {
                let (path, slot) = (set.path(), *slot);
                let test = |range| CompiledPredicate { path, slot, is_equal: true, nearest: None, range };
                let ranges = set.values().iter().map(|(_, range)| range);
                Some(ranges.map(|range| Disjunct { tests: vec![test(range)], is_whole: true }).collect())
            }
            Self::All(_) | Self::Not(_) | Self::Test(_) => None,
        }
    }

    fn conjunction(&self) -> Option<Disjunct<'q>> {
        let tests: Vec<CompiledPredicate<'q>> = match self {
            Self::Test(predicate) => vec![predicate.clone()],
            Self::All(terms) => terms.iter().filter_map(Self::as_test).cloned().collect(),
            Self::Any(_) | Self::Not(_) | Self::In(..) => Vec::new(),
        };
        let terms = if let Self::All(terms) = self { terms.len() } else { 1 };
        let is_whole = tests.len() == terms;
        (!tests.is_empty()).then_some(Disjunct { tests, is_whole })
    }

    fn as_test(&self) -> Option<&CompiledPredicate<'q>> {
        match self {
            Self::Test(predicate) => Some(predicate),
            _ => None,
        }
    }

    /// Whether a condition is on the attribute at `path`.
    pub(crate) fn is_on(&self, path: &AttributePath) -> bool {
        match self {
            Self::All(terms) | Self::Any(terms) => terms.iter().any(|term| term.is_on(path)),
            Self::Not(term) => term.is_on(path),
            Self::Test(predicate) => predicate.path == path,
            Self::In(_, set) => set.path() == path,
        }
    }

    /// The guessed share of records that satisfy the term, from the shares of an equality and of a range.
    pub(crate) fn guessed_share(&self, equal: f64, range: f64) -> f64 {
        let share = |term: &Self| term.guessed_share(equal, range);
        let sum = match self {
            Self::All(terms) => terms.iter().map(share).product(),
            Self::Any(terms) => terms.iter().map(share).sum(),
            Self::Not(term) => 1.0 - share(term),
            Self::Test(predicate) if predicate.is_equal => equal,
            Self::Test(_) => range,
            Self::In(_, set) => equal * set.len() as f64,
        };
        sum.clamp(0.0, 1.0)
    }
}
