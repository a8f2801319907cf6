//! How an index can serve a query: which part of its keys to read, and what that settles.

use bolide_base::SequenceNumber;

use crate::attribute;
use crate::path::AttributePath;
use crate::query::{CompiledQuery, Order};
use crate::space::Rect;
use crate::space::nearness::{Near, Nearness};
use crate::spec::IndexSpec;

/// The part of an index over certain attributes that holds all matches of a query.
///
/// The keys of an index start with the encoded values of its attributes, one after the other. Equalities
/// on its first attributes fix a prefix; a range on the next attribute bounds what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// First key to read.
    pub(crate) low: Vec<u8>,
    /// First key behind; nothing is to be read where it is not above `low`.
    pub(crate) end: Vec<u8>,
    /// True if every attribute is fixed: there is one secondary key, and it is `low`.
    pub(crate) point: bool,
    /// The predicates that every entry within the bounds satisfies, ascending.
    pub(crate) covered: Vec<usize>,
    /// How many attributes are fixed.
    pub(crate) fixed: usize,
    /// Which attribute of the index is the one that value orders go by, if its range bounds the access.
    pub(crate) order_attribute: Option<usize>,
    /// Bytes of `low` and `end` that the fixed attributes take.
    pub(crate) prefix_len: usize,
    /// Candidates are to bring the attributes of the key too, in front of those that the entries include: the query
    /// selects some of them.
    pub(crate) brings_keys: bool,
    /// Predicates on attributes that the entries include, each with its place among what candidates bring.
    pub(crate) included: Vec<(usize, usize)>,
    /// The included attribute that value orders go by.
    pub(crate) order_included: Option<usize>,
    /// Of the rectangles from `low` on and below `end`, those that intersect this one.
    pub(crate) window: Option<Rect>,
    /// The question is for the nearest, in the order of their distances: candidates bring these as their values.
    pub(crate) near: Option<Near>,
    /// Answers that are wanted, at most: so many candidates may be enough.
    pub(crate) limit: usize,
    /// The answers start behind the candidate with this sequence number: those that come before it in the
    /// order need not be proposed. Only for an access to one secondary key in an order of recency.
    pub(crate) resume: Option<SequenceNumber>,
}

impl Access {
    /// The first key to read and the first key behind, as an index over the attributes alone would have them.
    #[doc(hidden)]
    pub fn bounds(&self) -> (&[u8], &[u8]) {
        (&self.low, &self.end)
    }

    /// How an index over `attributes` serves `query`; `None` if it does not, because no predicate is on
    /// its first attribute.
    pub fn plan(attributes: &[AttributePath], query: &CompiledQuery<'_>) -> Option<Self> {
        let mut access = Self {
            low: Vec::new(),
            end: Vec::new(),
            point: false,
            covered: Vec::new(),
            fixed: 0,
            order_attribute: None,
            prefix_len: 0,
            brings_keys: false,
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
            // The order goes by the query's first range, so it is this one or on another attribute.
            // Keys do not tell distances.
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
                    access.near = from.map(|from| Near { from, behind: None });
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

    /// Whether the question wants `secondary_key`, one from `low` on and below `end`.
    #[inline]
    pub(crate) fn wants(&self, secondary_key: &[u8]) -> bool {
        let Some(window) = &self.window else { return true };
        attribute::decode_rect(secondary_key).is_some_and(|rect| rect.intersects(window))
    }

    /// Notes what the entries of the index that `spec` declares have for `query` beyond the predicates that the key
    /// settles: selected attributes, and further predicates.
    pub(crate) fn add_included(&mut self, spec: &IndexSpec, query: &CompiledQuery<'_>) {
        // Others have no entries of their own, and read the record anyway.
        self.brings_keys = spec.kind().is_standalone()
            && query.selected().iter().any(|path| spec.attributes().contains(path))
            && query.selected().iter().all(|path| spec.paths().any(|known| known == path));
        for (number, predicate) in query.predicates.iter().enumerate() {
            if self.covered.contains(&number) {
                continue;
            }
            if let Some(position) = spec.included().iter().position(|path| path == predicate.path) {
                let position = position + self.keys_brought(spec);
                self.included.push((number, position));
                if query.order_predicate == Some(number) && self.order_attribute.is_none() {
                    self.order_included = Some(position);
                }
            }
        }
    }

    /// How many attributes of the key candidates bring in front of the included ones.
    pub(crate) fn keys_brought(&self, spec: &IndexSpec) -> usize {
        if self.brings_keys { spec.attributes().len() } else { 0 }
    }

    /// The place of an attribute among what candidates bring.
    pub(crate) fn place_of(&self, path: &AttributePath, spec: &IndexSpec) -> Option<usize> {
        let left_out = spec.attributes().len() - self.keys_brought(spec);
        spec.paths().skip(left_out).position(|known| known == path)
    }

    /// True if the key or the entry settles predicate number `predicate`.
    pub(crate) fn settles(&self, predicate: usize) -> bool {
        self.covered.contains(&predicate) || self.included.iter().any(|(number, _)| *number == predicate)
    }

    /// True if candidates bring the value that the order of the query goes by.
    pub(crate) fn knows_order_value(&self) -> bool {
        self.order_attribute.is_some() || self.order_included.is_some() || self.near.is_some()
    }

    /// Leaves out what comes before `value` and `sequence` in `order`, where the keys tell.
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
                    near.behind = Nearness::from_bytes(value, sequence);
                }
            }
            _ => {}
        }
    }

    /// Sorts plans by how much they narrow: equalities first, then a range, then neither.
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
