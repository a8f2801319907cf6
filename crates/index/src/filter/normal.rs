//! The normal form of a filter: a conjunction without negations of compound nodes.
//!
//! Negations move inward (De Morgan), nested nodes of one kind are merged, and a list of one value becomes an equality. The
//! result is equivalent for every record, since a filter has two truth values.

use bolide_base::{Error, Result};

use crate::path::AttributePath;
use crate::predicate::{Condition, Predicate};

use super::FilterNode;

/// The parts of a conjunction.
#[derive(Debug, Default)]
pub(crate) struct Conjunction {
    /// Conditions with one range of values.
    pub(crate) predicates: Vec<Predicate>,
    /// Alternatives, lists, and negated conditions.
    pub(crate) terms: Vec<FilterNode>,
}

impl Conjunction {
    /// The parts of `node`.
    ///
    /// # Errors
    /// `InvalidInput` if a part other than a condition of the conjunction itself is [`Condition::Nearest`].
    pub(crate) fn of(node: FilterNode) -> Result<Self> {
        let mut parts = Self::default();
        parts.add(node, false);
        let is_nearest = |one: &Predicate| matches!(one.condition(), Condition::Nearest(_));
        match parts.terms.iter().any(|term| term.any_test(&is_nearest)) {
            true => Err(Error::invalid_input(
                "`nearest` orders the answers: it cannot be negated or be one of several alternatives",
            )),
            false => Ok(parts),
        }
    }

    fn add(&mut self, node: FilterNode, negated: bool) {
        match (node, negated) {
            (FilterNode::Not(inner), _) => self.add(*inner, !negated),
            (FilterNode::All(nodes), false) | (FilterNode::Any(nodes), true) => {
                nodes.into_iter().for_each(|node| self.add(node, negated));
            }
            (FilterNode::Test(predicate), false) => self.predicates.push(predicate),
            (FilterNode::In(set), false) => match set.only() {
                Some(predicate) => self.predicates.push(predicate),
                // No value is in an empty list.
                None if set.values().is_empty() => self.terms.push(FilterNode::Any(Vec::new())),
                None => self.terms.push(FilterNode::In(set)),
            },
            (node, _) => match simplify(node, negated) {
                // One alternative is none.
                FilterNode::Any(mut nodes) if nodes.len() == 1 => {
                    nodes.pop().into_iter().for_each(|node| self.add(node, false));
                }
                node => self.terms.push(node),
            },
        }
    }
}

/// The equivalent of `node`, or of its negation, in which only conditions are negated.
fn simplify(node: FilterNode, negated: bool) -> FilterNode {
    let all = |nodes: Vec<FilterNode>, any: bool| {
        let mut merged = Vec::with_capacity(nodes.len());
        for node in nodes {
            match (simplify(node, negated), any) {
                (FilterNode::Any(inner), true) | (FilterNode::All(inner), false) => merged.extend(inner),
                (node, _) => merged.push(node),
            }
        }
        if any { FilterNode::Any(merged) } else { FilterNode::All(merged) }
    };
    match node {
        FilterNode::Not(inner) => simplify(*inner, !negated),
        FilterNode::All(nodes) => all(nodes, negated),
        FilterNode::Any(nodes) => all(nodes, !negated),
        leaf if negated => FilterNode::Not(Box::new(leaf)),
        leaf => leaf,
    }
}

impl FilterNode {
    /// Adds the attributes of negated conditions of a tree in normal form to `paths`, each once.
    pub(crate) fn add_negated<'n>(&'n self, paths: &mut Vec<&'n AttributePath>) {
        let leaf = match self {
            Self::All(nodes) | Self::Any(nodes) => {
                nodes.iter().for_each(|node| node.add_negated(paths));
                return;
            }
            Self::Not(leaf) => &**leaf,
            Self::Test(_) | Self::In(_) => return,
        };
        let path = match leaf {
            Self::Test(predicate) => predicate.path(),
            Self::In(set) => set.path(),
            _ => return,
        };
        if !paths.contains(&path) {
            paths.push(path);
        }
    }

    /// Whether `test` accepts a condition of the tree.
    fn any_test(&self, test: &impl Fn(&Predicate) -> bool) -> bool {
        match self {
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().any(|node| node.any_test(test)),
            Self::Not(node) => node.any_test(test),
            Self::Test(predicate) => test(predicate),
            Self::In(_) => false,
        }
    }
}
