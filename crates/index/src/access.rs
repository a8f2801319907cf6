//! The access of an index for a query: the range of keys to read, and the predicates that it covers.

use bolide_base::SequenceNumber;

use crate::attribute;
use crate::compiled_query::CompiledQuery;
use crate::path::AttributePath;
use crate::query::Order;
use crate::space::Rect;
use crate::space::nearness::{NearestQuery, Nearness};
use crate::spec::IndexSpec;

/// The part of an index over certain attributes that contains all matches of a query.
///
/// The keys of an index start with the encoded values of its attributes, concatenated. Equalities on its first attributes
/// fix a prefix; a range on the next attribute bounds the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// First key to read.
    pub(crate) low: Vec<u8>,
    /// End of the keys to read, exclusive; the range is empty unless it is above `low`.
    pub(crate) end: Vec<u8>,
    /// Whether every attribute is fixed: there is one secondary key, and it is `low`.
    pub(crate) point: bool,
    /// The predicates that every entry within the bounds satisfies, ascending.
    pub(crate) covered: Vec<usize>,
    /// Number of fixed attributes.
    pub(crate) fixed: usize,
    /// The attribute of the index that determines value orders, if its range bounds the access.
    pub(crate) order_attribute: Option<usize>,
    /// Length of the common prefix of `low` and `end` that the fixed attributes determine, in bytes.
    pub(crate) prefix_len: usize,
    /// Whether candidates contain the attributes of the key, before those that the entries include: the query selects some
    /// of them.
    pub(crate) includes_key_attributes: bool,
    /// Predicates on attributes that the entries include, each with its position among the attributes of candidates.
    pub(crate) included: Vec<(usize, usize)>,
    /// The included attribute that determines value orders.
    pub(crate) order_included: Option<usize>,
    /// Restricts rectangles in `low..end` to those that intersect this one.
    pub(crate) window: Option<Rect>,
    /// The point of a nearest query: candidates come by distance, with their distances as their values.
    pub(crate) near: Option<NearestQuery>,
    /// Maximum number of answers, which may be enough candidates.
    pub(crate) limit: usize,
    /// The answers start after the candidate with this sequence number: candidates before it in the order may be
    /// skipped. Only for an access to one secondary key in an order of recency.
    pub(crate) resume: Option<SequenceNumber>,
}

impl Access {
    /// The first secondary key to read and the exclusive end. Empty unless the end is larger.
    pub fn bounds(&self) -> (&[u8], &[u8]) {
        (&self.low, &self.end)
    }

    /// Whether every attribute of the index is fixed: the access is to one secondary key, the first of its bounds.
    pub fn is_point(&self) -> bool {
        self.point
    }

    /// The encoded value of an entry under `secondary_key` that determines the order of the query: the
    /// [`order_value`](crate::Candidate::order_value) of its candidate. Empty if the order is not by an attribute of the
    /// index.
    pub fn order_value<'k>(&self, secondary_key: &'k [u8]) -> &'k [u8] {
        self.order_attribute.map_or(&[], |position| attribute::component(secondary_key, position))
    }

    /// The access of an index over `attributes` for `query`; `None` if no predicate is on its first attribute.
    pub fn plan(attributes: &[AttributePath], query: &CompiledQuery<'_>) -> Option<Self> {
        let mut access = Self {
            low: Vec::new(),
            end: Vec::new(),
            point: false,
            covered: Vec::new(),
            fixed: 0,
            order_attribute: None,
            prefix_len: 0,
            includes_key_attributes: false,
            included: Vec::new(),
            order_included: None,
            window: None,
            near: None,
            limit: query.limit,
            resume: None,
        };
        let mut range = None;
        for (position, attribute) in attributes.iter().enumerate() {
            let on_attribute = |is_equal: bool| {
                query
                    .predicates
                    .iter()
                    .position(|predicate| predicate.is_equal == is_equal && predicate.path == attribute)
            };
            if let Some(equal) = on_attribute(true) {
                access.low.extend_from_slice(&query.predicates[equal].range.low);
                access.covered.push(equal);
                access.fixed += 1;
                continue;
            }
            range = on_attribute(false);
            // The order is by the query's first range: this range or one on another attribute. Keys contain no distances.
            if range.is_some() && range == query.order_predicate && query.order != Order::Nearest {
                access.order_attribute = Some(position);
            }
            break;
        }
        access.prefix_len = access.low.len();
        access.end.clone_from(&access.low);
        match range {
            Some(range) => {
                access.low.extend_from_slice(&query.predicates[range].range.low);
                access.end.extend_from_slice(&query.predicates[range].range.end);
                access.window = query.predicates[range].range.window;
                if query.order == Order::Nearest && query.order_predicate == Some(range) {
                    let from = query.predicates[range].nearest;
                    access.near = from.map(|from| NearestQuery { from, after: None });
                }
                access.covered.push(range);
                access.covered.sort_unstable();
            }
            None if access.fixed == 0 => return None,
            None => attribute::make_successor(&mut access.end),
        }
        access.point = access.fixed == attributes.len();
        Some(access)
    }

    /// Whether `secondary_key`, a key in `low..end`, matches the window of the query.
    #[inline]
    pub(crate) fn matches_window(&self, secondary_key: &[u8]) -> bool {
        let Some(window) = &self.window else { return true };
        attribute::decode_rect(secondary_key).is_some_and(|rect| rect.intersects(window))
    }

    /// Determines what the entries of the index with declaration `spec` contain for `query` beyond the covered predicates:
    /// selected attributes, and attributes of further predicates.
    pub(crate) fn add_included(&mut self, spec: &IndexSpec, query: &CompiledQuery<'_>) {
        self.includes_key_attributes = spec.kind().properties().covers_key
            && query.selected().iter().any(|path| spec.attributes().contains(path))
            && query.selected().iter().all(|path| spec.paths().any(|known| known == path));
        for (number, predicate) in query.predicates.iter().enumerate() {
            if self.covered.contains(&number) {
                continue;
            }
            if let Some(position) = spec.included().iter().position(|path| path == predicate.path) {
                let position = position + self.key_attributes(spec);
                self.included.push((number, position));
                if query.order_predicate == Some(number) && self.order_attribute.is_none() {
                    self.order_included = Some(position);
                }
            }
        }
    }

    /// Number of attributes of the key that candidates contain before the included ones.
    pub(crate) fn key_attributes(&self, spec: &IndexSpec) -> usize {
        if self.includes_key_attributes { spec.attributes().len() } else { 0 }
    }

    /// The position of an attribute among the attributes of candidates.
    pub(crate) fn position_of(&self, path: &AttributePath, spec: &IndexSpec) -> Option<usize> {
        let skipped = spec.attributes().len() - self.key_attributes(spec);
        spec.paths().skip(skipped).position(|known| known == path)
    }

    /// Whether the key or the entry covers predicate number `predicate`.
    pub(crate) fn covers_predicate(&self, predicate: usize) -> bool {
        self.covered.contains(&predicate) || self.included.iter().any(|(number, _)| *number == predicate)
    }

    /// Whether candidates contain the value that determines the order of the query.
    pub(crate) fn has_order_value(&self) -> bool {
        self.order_attribute.is_some() || self.order_included.is_some() || self.near.is_some()
    }

    /// Skips candidates before `value` and `sequence` in `order`, as far as the keys determine it.
    pub(crate) fn resume_at(&mut self, order: Order, value: &[u8], sequence: SequenceNumber) {
        match order {
            Order::Newest | Order::Oldest if self.point => self.resume = Some(sequence),
            Order::Value | Order::ValueDescending if self.order_attribute.is_some() => {
                let mut at = self.low.get(..self.prefix_len).unwrap_or_default().to_vec();
                at.extend_from_slice(value);
                if order == Order::Value {
                    self.low = at.max(std::mem::take(&mut self.low));
                } else {
                    attribute::make_successor(&mut at);
                    self.end = at.min(std::mem::take(&mut self.end));
                }
            }
            Order::Nearest => {
                if let Some(near) = &mut self.near {
                    near.after = Nearness::from_bytes(value, sequence);
                }
            }
            _ => {}
        }
    }

    /// A sort key of plans by selectivity: equalities first, then a range, then neither.
    pub(crate) fn rank(&self) -> (bool, usize, usize) {
        (self.point, self.fixed, self.covered.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn plan(attributes: &[&str], query: Query) -> Option<Access> {
        let attributes: Vec<AttributePath> = attributes.iter().map(|path| path.parse().unwrap()).collect();
        Access::plan(&attributes, &CompiledQuery::new(&query).unwrap())
    }

    #[test]
    fn equalities_fix_a_prefix_and_a_range_bounds_the_rest() {
        let query = Query::new().range("b", 1..5).eq("a", "x").eq("d", 1).order(Order::Value);
        let access = plan(&["a", "b", "d"], query.clone()).unwrap();
        assert_eq!((access.point, access.fixed, &access.covered[..]), (false, 1, &[0, 1][..]));
        assert_eq!(access.order_attribute, Some(1));
        assert!(access.low < access.end);
        assert!(plan(&["c", "a"], query.clone()).is_none());
        let access = plan(&["a"], query.clone()).unwrap();
        assert!(access.point && access.covered == [1] && access.order_attribute.is_none());
        let access = plan(&["d", "c"], query.clone()).unwrap();
        assert!(!access.point && access.fixed == 1);
        assert!(plan(&["a"], query.clone()).unwrap().rank() > plan(&["b"], query).unwrap().rank());
    }

    #[test]
    fn the_range_of_the_order_is_preferred() {
        let query = Query::new().range("a", 1..5).range("a", 2..9).order(Order::Value);
        assert_eq!(plan(&["a"], query).unwrap().covered, [0]);
    }
}
