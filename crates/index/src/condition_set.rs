//! The conditions of several queries, as one: for the validation of transactions.
//!
//! A record concerns a set of queries if it satisfies the conjunction of one of them, whatever their orders, limits and
//! selections. So equal conjunctions are stored once (the pages of one query, or a query that is repeated), and all are
//! evaluated together: the attributes of a record are extracted once. Queries that are one equality each, as a prepared
//! query for many values, become lists of values, which are searched by bisection.

use std::collections::HashMap;

use bolide_base::Result;
use bolide_base::checksum::hash_key;

use crate::attribute::Value;
use crate::extractor::AttributeExtractor;
use crate::filter::{FilterNode, ValueSet};
use crate::path::{AttributePath, PathShape, PathStep};
use crate::predicate::{Condition, EncodedRange, Predicate, combine};
use crate::query::Query;
use crate::record_query::RecordQuery;

/// Memory of an entry of the map of a set, in bytes.
const ENTRY_BYTES: usize = 48;

/// The values of a list of equalities. More begin a further list, so that an insertion moves few.
const LIST_VALUES: usize = 1_024;

/// The conditions of queries, of which a record may satisfy one or more.
///
/// ```
/// use bolide_index::{ConditionSet, JsonExtractor, Query};
/// let mut set = ConditionSet::default();
/// set.insert(&Query::new().eq("a", 1).limit(3));
/// set.insert(&Query::new().eq("a", 1).limit(9));
/// set.insert(&Query::new().range("b", 5..));
/// assert_eq!(set.len(), 2);
/// let mut compiled = set.compile(Some(&JsonExtractor))?;
/// assert!(compiled.evaluate(br#"{"a":1}"#)? && compiled.evaluate(br#"{"b":7}"#)?);
/// assert!(!compiled.evaluate(br#"{"a":2,"b":4}"#)?);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConditionSet {
    /// One alternative for each conjunction, or list of equalities.
    union: Query,
    /// The number of the last alternative with each hash.
    by_hash: HashMap<u64, usize>,
    /// The number of the last list of equalities of each attribute. The other alternatives are conjunctions.
    lists: HashMap<AttributePath, usize>,
    /// Whether a query without conditions is in the set: every record concerns it, so `union` is empty.
    has_all: bool,
    bytes: usize,
    /// The nodes of all alternatives.
    nodes: usize,
}

impl ConditionSet {
    /// Adds the conditions of `query`, which is valid, unless the set has them.
    pub fn insert(&mut self, query: &Query) {
        if self.contains(query) {
            return;
        }
        let alternative = conjunction_of(query);
        if matches!(&alternative, FilterNode::All(nodes) if nodes.is_empty()) {
            *self = Self { has_all: true, ..Self::default() };
            return;
        }
        self.bytes += ENTRY_BYTES;
        let at = match equality_of(query) {
            Some(equality) => self.insert_equality(equality),
            None => self.push(alternative),
        };
        self.by_hash.insert(fingerprint(query), at);
    }

    /// Adds an alternative, and returns its number.
    fn push(&mut self, alternative: FilterNode) -> usize {
        self.bytes += node_bytes(&alternative);
        self.nodes += node_count(&alternative);
        let terms = self.union.term_nodes_mut();
        match terms.first_mut() {
            Some(FilterNode::Any(alternatives)) => alternatives.push(alternative),
            _ => *terms = vec![FilterNode::Any(vec![alternative])],
        }
        self.alternatives().len() - 1
    }

    /// Adds an equality to the last list of its attribute, and returns the number of the list.
    fn insert_equality(&mut self, equality: &Predicate) -> usize {
        let last = self.lists.get(equality.path()).copied();
        if let (Some(at), [FilterNode::Any(alternatives)]) = (last, &mut self.union.term_nodes_mut()[..])
            && let Some(FilterNode::In(list)) = alternatives.get_mut(at)
            && list.len() < LIST_VALUES
        {
            if list.insert(equality) {
                self.bytes += predicate_bytes(equality);
            }
            return at;
        }
        let list = ValueSet::of_equality(equality).map(FilterNode::In);
        let at = self.push(list.unwrap_or_else(|| FilterNode::Test(equality.clone())));
        self.bytes += path_bytes(equality.path());
        self.lists.insert(equality.path().clone(), at);
        at
    }

    fn alternatives(&self) -> &[FilterNode] {
        if let [FilterNode::Any(alternatives)] = self.union.term_nodes() { alternatives } else { &[] }
    }

    /// Whether it has the conditions of `query`, or those of a query without conditions.
    pub fn contains(&self, query: &Query) -> bool {
        let same = || {
            let at = self.by_hash.get(&fingerprint(query))?;
            self.alternatives().get(*at)
        };
        let has = |known: &FilterNode| match (known, equality_of(query)) {
            (FilterNode::In(list), Some(equality)) => {
                list.path() == equality.path() && list.contains(&equality.encoded_range().low)
            }
            _ => *known == conjunction_of(query),
        };
        self.has_all || same().is_some_and(has)
    }

    /// The number of different conjunctions; up to 1,024 queries of one equality of the same attribute are one.
    pub fn len(&self) -> usize {
        usize::from(self.has_all) + self.alternatives().len()
    }

    /// Whether it has no conditions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A measure of the work to evaluate all conjunctions on one record: the number of their conditions, and of the
    /// negations and alternatives among them. A list of values is one condition.
    pub fn size(&self) -> usize {
        usize::from(self.has_all) + self.nodes
    }

    /// Its memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that [`insert`](Self::insert) would add for `query`, in bytes.
    pub fn added_bytes(&self, query: &Query) -> usize {
        if self.contains(query) { 0 } else { ENTRY_BYTES + query.memory_bytes() }
    }

    /// The query that a record satisfies if it satisfies one of the conjunctions. The set is not empty. Costs a few allocations for each of them.
    ///
    /// # Errors
    /// As [`RecordQuery::new`].
    pub fn compile<'s>(&'s self, extractor: Option<&'s dyn AttributeExtractor>) -> Result<RecordQuery<'s>> {
        RecordQuery::new(&self.union, extractor)
    }
}

impl Query {
    /// Its memory, in bytes.
    ///
    /// ```
    /// use bolide_index::{Filter, Query};
    /// let few = Query::new().filter(Filter::one_of("a", 0..10)).memory_bytes();
    /// let many = Query::new().filter(Filter::one_of("a", 0..1_000)).memory_bytes();
    /// assert!(many > few + 990 * 100);
    /// ```
    pub fn memory_bytes(&self) -> usize {
        let predicates: usize = self.predicates().iter().map(predicate_bytes).sum();
        let terms: usize = self.term_nodes().iter().map(node_bytes).sum();
        let sort: usize = self.sort_attributes().iter().map(|(path, _)| path_bytes(path)).sum();
        let select: usize = self.selected().iter().map(path_bytes).sum();
        let name = self.forced_index().map_or(0, str::len);
        let token = self.token().map_or(0, |token| token.position().0.len());
        size_of::<Self>() + predicates + terms + sort + select + name + token
    }
}

/// The conditions of `query` as one node.
fn conjunction_of(query: &Query) -> FilterNode {
    let tests = query.predicates().iter().cloned().map(FilterNode::Test);
    FilterNode::All(tests.chain(query.term_nodes().iter().cloned()).collect())
}

/// The condition of `query` if it has no other one and is an equality.
fn equality_of(query: &Query) -> Option<&Predicate> {
    match (query.predicates(), query.term_nodes()) {
        ([only], []) | ([], [FilterNode::Test(only)]) => only.is_equal().then_some(only),
        _ => None,
    }
}

/// A hash of the conditions of `query`.
fn fingerprint(query: &Query) -> u64 {
    let predicates = query.predicates().iter().map(Predicate::fingerprint).fold(0, combine);
    query.term_nodes().iter().map(node_fingerprint).fold(predicates, combine)
}

fn node_fingerprint(node: &FilterNode) -> u64 {
    let all = |kind: u64, nodes: &[FilterNode]| nodes.iter().map(node_fingerprint).fold(kind, combine);
    match node {
        FilterNode::All(nodes) => all(1, nodes),
        FilterNode::Any(nodes) => all(2, nodes),
        FilterNode::Not(node) => combine(3, node_fingerprint(node)),
        FilterNode::Test(predicate) => combine(4, predicate.fingerprint()),
        FilterNode::In(set) => set.values().iter().map(|(_, range)| hash_key(&range.low)).fold(5, combine),
    }
}

/// The number of nodes that evaluating `node` visits at most. The list of a node of conditions is none itself.
fn node_count(node: &FilterNode) -> usize {
    match node {
        FilterNode::All(nodes) => nodes.iter().map(node_count).sum::<usize>().max(1),
        FilterNode::Any(nodes) => 1 + nodes.iter().map(node_count).sum::<usize>(),
        FilterNode::Not(node) => 1 + node_count(node),
        // The set is searched by bisection.
        FilterNode::Test(_) | FilterNode::In(_) => 1,
    }
}

fn node_bytes(node: &FilterNode) -> usize {
    let all = |nodes: &[FilterNode]| nodes.iter().map(node_bytes).sum::<usize>();
    let inside = match node {
        FilterNode::All(nodes) | FilterNode::Any(nodes) => all(nodes),
        FilterNode::Not(node) => node_bytes(node),
        FilterNode::Test(predicate) => predicate_bytes(predicate) - size_of::<Predicate>(),
        FilterNode::In(set) => set_bytes(set),
    };
    size_of::<FilterNode>() + inside
}

fn set_bytes(set: &ValueSet) -> usize {
    let one = |(value, range): &(Value, EncodedRange)| {
        size_of::<(Value, EncodedRange)>() + value_bytes(value) + range_bytes(range)
    };
    path_bytes(set.path()) + set.values().iter().map(one).sum::<usize>()
}

fn predicate_bytes(predicate: &Predicate) -> usize {
    let condition = match predicate.condition() {
        Condition::Equal(value) => value_bytes(value),
        Condition::Range(low, high) => [low, high].into_iter().map(bound_bytes).sum(),
        Condition::Prefix(prefix) => prefix.len(),
        Condition::Exists | Condition::Within(_) | Condition::Nearest(_) => 0,
    };
    let range = range_bytes(predicate.encoded_range());
    size_of::<Predicate>() + path_bytes(predicate.path()) + condition + range
}

fn bound_bytes(bound: &std::ops::Bound<Value>) -> usize {
    match bound {
        std::ops::Bound::Included(value) | std::ops::Bound::Excluded(value) => value_bytes(value),
        std::ops::Bound::Unbounded => 0,
    }
}

fn value_bytes(value: &Value) -> usize {
    if let Value::String(text) = value { text.len() } else { 0 }
}

fn range_bytes(range: &EncodedRange) -> usize {
    range.low.heap_bytes() + range.end.heap_bytes()
}

fn path_bytes(path: &AttributePath) -> usize {
    let steps = |steps: &[PathStep]| steps.iter().map(step_bytes).sum::<usize>();
    let second = if let PathShape::Point(second) = path.shape() { steps(second) } else { 0 };
    steps(path.steps()) + second
}

fn step_bytes(step: &PathStep) -> usize {
    // The text of a long name.
    let name = if let PathStep::Field(name) = step { name.len() } else { 0 };
    size_of::<PathStep>() + name
}

#[cfg(test)]
mod tests {
    use crate::filter::Filter;
    use crate::json::JsonExtractor;
    use crate::query::{Order, SortDirection};

    use super::*;

    #[test]
    fn equal_conditions_are_stored_once() {
        let mut set = ConditionSet::default();
        let filter = || Filter::parse("a = 1 and (b in (1, 2) or not c starts with \"x\")").unwrap();
        let query = Query::new().filter(filter());
        for query in [
            query.clone(),
            query.clone().limit(2).order(Order::Oldest),
            query.clone().sort_by("d", SortDirection::Ascending).count(),
            query.clone().select(["e"]).using_index("i"),
        ] {
            set.insert(&query);
        }
        assert_eq!(set.len(), 1);
        let bytes = set.memory_bytes();
        set.insert(&query);
        assert_eq!((set.memory_bytes(), set.added_bytes(&query)), (bytes, 0));
        set.insert(&Query::new().filter(Filter::parse("a = 1 and (b in (1, 3) or c exists)").unwrap()));
        assert_eq!(set.len(), 2);
        let mut compiled = set.compile(Some(&JsonExtractor)).unwrap();
        let mut evaluate = |record: &str| compiled.evaluate(record.as_bytes()).unwrap();
        assert!(evaluate(r#"{"a":1,"b":3,"c":"x"}"#), "the second one");
        assert!(evaluate(r#"{"a":1,"b":2,"c":"x"}"#), "the first one");
        assert!(!evaluate(r#"{"a":2,"b":2,"c":"x"}"#));
    }

    #[test]
    fn equalities_of_one_attribute_are_lists_of_values() {
        let mut set = ConditionSet::default();
        let values = 10_000_i64;
        // In an order that is not ascending.
        let nth = |at: i64| Query::new().eq("a", at * 7_919 % values * 2);
        (0..values).for_each(|at| set.insert(&nth(at).limit(3)));
        let bytes = set.memory_bytes();
        assert!((0..values).all(|at| set.contains(&nth(at)) && set.added_bytes(&nth(at)) == 0));
        (0..values).for_each(|at| set.insert(&nth(at)));
        assert_eq!((set.len(), set.size(), set.memory_bytes()), (10, 10, bytes));
        assert!(!set.contains(&Query::new().eq("a", 1)) && !set.contains(&Query::new().eq("b", 2)));
        set.insert(&Query::new().eq("b", "x"));
        set.insert(&Query::new().eq("b", "y").eq("c", 1));
        assert_eq!((set.len(), set.size()), (12, 13));
        let mut compiled = set.compile(Some(&JsonExtractor)).unwrap();
        let mut evaluate = |record: String| compiled.evaluate(record.as_bytes()).unwrap();
        for value in 0..2 * values {
            assert_eq!(evaluate(format!(r#"{{"a":{value}}}"#)), value % 2 == 0, "{value}");
        }
        assert!(evaluate(r#"{"b":"x"}"#.into()) && evaluate(r#"{"b":"y","c":1}"#.into()));
        assert!(!evaluate(r#"{"b":"y"}"#.into()) && !evaluate(r#"{"b":8}"#.into()));
    }

    #[test]
    fn a_query_without_conditions_includes_all_others() {
        let mut set = ConditionSet::default();
        set.insert(&Query::new().eq("a", 1));
        assert!(!set.compile(Some(&JsonExtractor)).unwrap().evaluate(b"{}").unwrap());
        set.insert(&Query::new().limit(3));
        set.insert(&Query::new().eq("a", 2));
        assert_eq!((set.len(), set.memory_bytes()), (1, 0));
        assert!(set.compile(None).unwrap().evaluate(b"no JSON").unwrap());
    }

    #[test]
    fn the_size_counts_conditions() {
        let mut set = ConditionSet::default();
        set.insert(&Query::new().eq("a", 1).eq("b", 2));
        assert_eq!((set.len(), set.size()), (1, 2));
        let many = (0..50).map(|at| Filter::range("c", at..at + 1));
        set.insert(&Query::new().filter(Filter::any(many)).eq("a", 1));
        assert_eq!((set.len(), set.size()), (2, 2 + 52));
        set.insert(&Query::new());
        assert_eq!((set.len(), set.size()), (1, 1));
    }

    #[test]
    fn conditions_with_one_hash_are_all_evaluated() {
        let mut set = ConditionSet::default();
        set.insert(&Query::new().eq("a", 1));
        // As if the next query had the same hash.
        let position = set.by_hash.values().copied().next().unwrap();
        set.by_hash.insert(fingerprint(&Query::new().eq("a", 2)), position);
        set.insert(&Query::new().eq("a", 2));
        let mut compiled = set.compile(Some(&JsonExtractor)).unwrap();
        for a in [1, 2] {
            assert!(compiled.evaluate(format!(r#"{{"a":{a}}}"#).as_bytes()).unwrap());
        }
    }
}
