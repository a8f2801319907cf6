//! Queries of a collection.

use std::sync::OnceLock;

use bolide_base::checksum::hash_key;
use bolide_base::{Error, Result};

use crate::attribute::{self, Value};
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::cursor_token::CursorToken;
use crate::path::AttributePath;
use crate::predicate::{Condition, EncodedRange, Predicate, ValueRange, combine};
use crate::space::nearness::DistanceBytes;
use crate::space::{Point, Rect};

/// Maximum number of predicates of one query.
pub const MAX_PREDICATES: usize = 100;

/// The order of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Order {
    /// The most recently written record first.
    #[default]
    Newest,
    /// The smallest recently written record first.
    Oldest,
    /// By the value of the attribute of the query's first range, ascending; equal values newest first. A record with
    /// several values in the range is at the smallest. Without a range all values are equal, so this is `Newest`.
    Value,
    /// As `Value`, but descending: a record with several values in the range is at the largest. Equal values are still
    /// newest first.
    ValueDescending,
    /// By the distance of the attribute of [`Query::nearest`], the smallest first; equal distances newest first. A record
    /// with several rectangles is at the nearest.
    Nearest,
}

impl Order {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Value => "value",
            Self::ValueDescending => "value-desc",
            Self::Nearest => "nearest",
        }
    }

    /// The order with this name. `nearest` is not among them, since it needs a [point](Query::nearest).
    ///
    /// # Errors
    /// `InvalidInput` for another name.
    pub fn parse(name: &str) -> Result<Self> {
        [Self::Newest, Self::Oldest, Self::Value, Self::ValueDescending]
            .into_iter()
            .find(|order| order.name() == name)
            .ok_or_else(|| {
                Error::invalid_input(format!(
                    "order `{name}`: the orders are newest, oldest, value and value-desc"
                ))
            })
    }
}

/// The contents of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Projection {
    /// Primary key, sequence number and record.
    #[default]
    Records,
    /// Primary key and sequence number. The table is not read if an index suffices.
    Keys,
    /// Nothing: the answers are counted.
    Count,
    /// Primary key, sequence number and the values of some attributes; see [`Query::select`].
    Values,
}

/// A conjunction of predicates, with order, limit and projection.
///
/// An invalid predicate (a malformed path, a range with ends of two types) is reported when the query is executed, so that
/// queries can be built in one chain.
///
/// ```
/// use bolide_index::{Order, Query};
/// let query = Query::new().eq("subreddit", "rust").range("score", 10..=20).limit(10).order(Order::Newest);
/// assert_eq!(query.predicates().len(), 2);
/// assert!(query.check().is_ok());
/// assert!(Query::new().eq("a..b", 1).check().is_err());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Query {
    predicates: Vec<Predicate>,
    order: Order,
    limit: Option<usize>,
    projection: Projection,
    index: Option<String>,
    limit_per_value: Option<usize>,
    after: Option<CursorToken>,
    select: Vec<AttributePath>,
    problem: Option<Error>,
}

impl Query {
    /// All records, newest first.
    pub fn new() -> Self {
        Self::default()
    }

    /// The attribute at `path` equals `value`.
    #[must_use]
    pub fn eq(self, path: &str, value: impl Into<Value>) -> Self {
        self.and(path.parse().and_then(|path| Predicate::equal(path, value)))
    }

    /// The attribute at `path` lies in `range`.
    #[must_use]
    pub fn range(self, path: &str, range: impl ValueRange) -> Self {
        self.and(path.parse().and_then(|path| Predicate::range(path, range)))
    }

    /// A point or rectangle of the attribute at `path`, `rect(PATH)` or `point(X,Y)`, intersects `window`; touching
    /// edges count. See [`crate::space`] for the treatment of unusual coordinates.
    ///
    /// ```
    /// use bolide_index::{Query, Rect};
    /// let query = Query::new().within("rect(bbox)", Rect::new(-0.1, 51.5, 0.1, 51.6)?);
    /// assert!(query.check().is_ok());
    /// assert!(Query::new().range("rect(bbox)", 1..).check().is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn within(self, path: &str, window: Rect) -> Self {
        self.and(path.parse().and_then(|path| Predicate::within(path, window)))
    }

    /// The records with a point or rectangle at `path`, ordered by its distance from `point`: with a [limit](Self::limit)
    /// of K the K nearest. The distance is Euclidean, to the nearest point of the rectangle, 0 inside; distances whose
    /// squares are one `f64` are equal. Sets the [order](Self::order) to [`Order::Nearest`].
    ///
    /// ```
    /// use bolide_index::{Order, Point, Query};
    /// let query = Query::new().nearest("point(lon,lat)", Point::new(-97.7, 30.3)?).limit(10);
    /// assert_eq!(query.answer_order(), Order::Nearest);
    /// assert!(query.check().is_ok());
    /// assert!(Query::new().eq("a", 1).order(Order::Nearest).check().is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn nearest(self, path: &str, point: Point) -> Self {
        self.and(path.parse().and_then(|path| Predicate::nearest(path, point))).order(Order::Nearest)
    }

    /// Adds `predicate`.
    #[must_use]
    pub fn predicate(self, predicate: Predicate) -> Self {
        self.and(Ok(predicate))
    }

    fn and(mut self, predicate: Result<Predicate>) -> Self {
        let predicate = match self.predicates.len() {
            MAX_PREDICATES => Err(Error::limit_exceeded(
                "the number of predicates of a query",
                MAX_PREDICATES as u64 + 1,
                MAX_PREDICATES as u64,
            )),
            _ => predicate,
        };
        match predicate {
            Ok(predicate) => {
                // Usually there is one.
                self.predicates.reserve_exact(usize::from(self.predicates.is_empty()));
                self.predicates.push(predicate);
            }
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self
    }

    /// Sets the order of the answers. Default: newest first.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Limits the answers to the first `limit` in the order. Default: all.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Limits the answers per value: of each value of the attribute of the query's first range the newest `limit` ones, or
    /// with [`Order::Oldest`] the oldest ones. [`limit`](Self::limit) applies in addition, to all answers together. A
    /// record with several values in the range counts for the smallest of them, with [`Order::ValueDescending`] for the
    /// largest. Default: no limit per value.
    ///
    /// ```
    /// use bolide_index::{Order, Query};
    /// let query = Query::new().range("score", 10..).order(Order::Value).limit_per_value(3).limit(100);
    /// assert!(query.check().is_ok());
    /// assert!(Query::new().eq("user", "x").limit_per_value(3).check().is_err());
    /// ```
    #[must_use]
    pub fn limit_per_value(mut self, limit: usize) -> Self {
        self.limit_per_value = Some(limit);
        self
    }

    /// Only the answers after those that were returned before: `token` is the [`next`](crate::Explain::next) of the same
    /// query, of which only the limit may differ. See [`cursor_token`](crate::cursor_token) for its guarantees.
    #[must_use]
    pub fn after(mut self, token: CursorToken) -> Self {
        self.after = Some(token);
        self
    }

    /// Returns whole records: without the effects of [`select`](Self::select), [`keys_only`](Self::keys_only) and
    /// [`count`](Self::count).
    ///
    /// ```
    /// use bolide_index::{Projection, Query};
    /// assert_eq!(Query::new().count().with_records().projection(), Projection::Records);
    /// ```
    #[must_use]
    pub fn with_records(mut self) -> Self {
        self.projection = Projection::Records;
        self.select.clear();
        self
    }

    /// Starts with the first answer: without the token of [`after`](Self::after).
    #[must_use]
    pub fn from_start(mut self) -> Self {
        self.after = None;
        self
    }

    /// Answers with the values at these paths instead of records, in [`Row::values`](crate::Row::values). If an index
    /// includes all of them and its candidates need no validation, the table is not read.
    ///
    /// The values are those of the attribute: the values at the path, numbers by value, the elements of an array distinct
    /// and ascending, none for an absent attribute. So they are equal whether they come from an index or from the
    /// record.
    ///
    /// ```
    /// use bolide_index::{Projection, Query};
    /// let query = Query::new().eq("subreddit", "rust").select(["title", "score"]);
    /// assert_eq!(query.projection(), Projection::Values);
    /// assert!(Query::new().select(["a..b"]).check().is_err());
    /// ```
    #[must_use]
    pub fn select<'p>(mut self, paths: impl IntoIterator<Item = &'p str>) -> Self {
        self.projection = Projection::Values;
        for path in paths {
            match path.parse() {
                Ok(_) if self.select.len() == MAX_PREDICATES => {
                    let problem = Error::limit_exceeded(
                        "the number of selected attributes of a query",
                        MAX_PREDICATES as u64 + 1,
                        MAX_PREDICATES as u64,
                    );
                    self.problem = self.problem.or(Some(problem));
                    break;
                }
                Ok(path) => self.select.push(path),
                Err(problem) => self.problem = self.problem.or(Some(problem)),
            }
        }
        self
    }

    /// Answers without records.
    #[must_use]
    pub fn keys_only(mut self) -> Self {
        self.projection = Projection::Keys;
        self
    }

    /// Counts the answers instead of returning them.
    #[must_use]
    pub fn count(mut self) -> Self {
        self.projection = Projection::Count;
        self
    }

    /// Restricts the plan to the index with this name.
    #[must_use]
    pub fn using_index(mut self, name: impl Into<String>) -> Self {
        self.index = Some(name.into());
        self
    }

    /// Replaces the value of the first [`eq`](Self::eq) by `value`.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such predicate, and as [`Predicate::equal`]; the query is unchanged then.
    ///
    /// ```
    /// use bolide_index::Query;
    /// let mut query = Query::new().eq("user", 1).limit(10);
    /// query.set_equal(2)?;
    /// assert_eq!(query.predicates(), Query::new().eq("user", 2).predicates());
    /// assert!(Query::new().range("user", 1..).set_equal(2).is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn set_equal(&mut self, value: impl Into<Value>) -> Result<()> {
        let predicate = self.predicates.iter_mut().find(|predicate| predicate.is_equal());
        let predicate = predicate.ok_or_else(|| {
            Error::invalid_input("the query has no predicate that an attribute equals a value")
        })?;
        *predicate = Predicate::equal(predicate.path().clone(), value)?;
        Ok(())
    }

    /// The predicates of the conjunction.
    pub fn predicates(&self) -> &[Predicate] {
        &self.predicates
    }

    /// The order.
    pub fn answer_order(&self) -> Order {
        self.order
    }

    /// The limit.
    pub fn answer_limit(&self) -> Option<usize> {
        self.limit
    }

    /// The contents of an answer.
    pub fn projection(&self) -> Projection {
        self.projection
    }

    /// The limit per value.
    pub fn answer_limit_per_value(&self) -> Option<usize> {
        self.limit_per_value
    }

    /// The token from which the query continues.
    pub fn token(&self) -> Option<&CursorToken> {
        self.after.as_ref()
    }

    /// The attributes whose values are selected.
    pub fn selected(&self) -> &[AttributePath] {
        &self.select
    }

    /// The identification of the query in a token: a hash of predicates, order and limit per value.
    pub(crate) fn fingerprint(&self) -> u64 {
        // Without text and allocation: every limited query needs it.
        let per_value = self.limit_per_value.map_or(0, |limit| (limit as u64).wrapping_add(1));
        let order = hash_key(self.order.name().as_bytes());
        self.predicates.iter().map(Predicate::fingerprint).fold(combine(order, per_value), combine)
    }

    fn nearest_predicates(&self) -> usize {
        let of_point = |one: &&Predicate| matches!(one.condition(), Condition::Nearest(_));
        self.predicates.iter().filter(of_point).count()
    }

    /// The name of the index to use.
    pub fn forced_index(&self) -> Option<&str> {
        self.index.as_deref()
    }

    /// Reports the first invalid part.
    ///
    /// # Errors
    /// `InvalidInput` as described for the type; `LimitExceeded` for more than [`MAX_PREDICATES`].
    pub fn check(&self) -> Result<()> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None if self.limit_per_value.is_some() && !self.predicates.iter().any(Predicate::is_range) => {
                Err(Error::invalid_input("a limit per value needs a range: it counts the values in it"))
            }
            None if self.order == Order::Nearest && self.limit_per_value.is_some() => {
                Err(Error::invalid_input("a limit per value counts values; the order by distance has none"))
            }
            None if self.order == Order::Nearest && self.nearest_predicates() != 1 => {
                Err(Error::invalid_input("the order by distance needs one point to measure from"))
            }
            None => match &self.after {
                Some(token) if token.query != self.fingerprint() => Err(Error::invalid_input(
                    "the cursor token belongs to another query: predicates, order and limit per value must be the \
                     same",
                )),
                _ => Ok(()),
            },
        }
    }
}

/// A query compiled for execution.
#[derive(Debug, Clone)]
pub struct CompiledQuery<'q> {
    pub(crate) predicates: Vec<CompiledPredicate<'q>>,
    /// The paths of the predicates and selected attributes, compiled when the first record is read.
    plan: OnceLock<AttributePlan>,
    pub(crate) order: Order,
    pub(crate) limit: usize,
    pub(crate) projection: Projection,
    /// The predicate whose values determine value orders, and are counted for a limit per value.
    pub(crate) order_predicate: Option<usize>,
    pub(crate) limit_per_value: usize,
    pub(crate) after: Option<&'q CursorToken>,
    /// Slots of the selected attributes.
    pub(crate) select: Vec<ValueSlot>,
    selected: &'q [AttributePath],
}

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

impl<'q> CompiledQuery<'q> {
    /// Compiles `query`.
    ///
    /// # Errors
    /// As [`Query::check`].
    pub fn new(query: &'q Query) -> Result<Self> {
        query.check()?;
        let mut predicates: Vec<CompiledPredicate<'q>> = Vec::with_capacity(query.predicates.len());
        let mut slots = 0;
        for predicate in &query.predicates {
            let path = predicate.path();
            // A plan numbers distinct paths in their order.
            let slot = predicates.iter().find(|known| known.path == path).map_or(slots, |known| known.slot);
            slots = slots.max(slot + 1);
            let (is_equal, range) = (predicate.is_equal(), predicate.encoded_range());
            let nearest = match predicate.condition() {
                Condition::Nearest(point) => Some(*point),
                _ => None,
            };
            predicates.push(CompiledPredicate { path, slot, is_equal, nearest, range });
        }
        let mut paths: Vec<&AttributePath> = Vec::new();
        for path in predicates.iter().map(|predicate| predicate.path).chain(&query.select) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let slot = |path: &AttributePath| paths.iter().position(|known| *known == path).unwrap_or_default();
        let select = query.select.iter().map(slot).collect();
        let first_range = || query.predicates.iter().position(Predicate::is_range);
        let order_predicate = match query.order {
            Order::Value | Order::ValueDescending => first_range(),
            Order::Newest | Order::Oldest => query.limit_per_value.and_then(|_| first_range()),
            Order::Nearest => predicates.iter().position(|one| one.nearest.is_some()),
        };
        // With equal values, the order is by recency.
        let order = match (query.order, order_predicate) {
            (Order::Value | Order::ValueDescending, None) => Order::Newest,
            (order, _) => order,
        };
        Ok(Self {
            predicates,
            plan: OnceLock::new(),
            order,
            limit: query.limit.unwrap_or(usize::MAX),
            projection: query.projection,
            order_predicate,
            limit_per_value: query.limit_per_value.unwrap_or(usize::MAX),
            after: query.after.as_ref(),
            select,
            selected: &query.select,
        })
    }

    /// The order of the answers, simplified if all values are equal.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The attributes to extract from a record for its evaluation.
    pub(crate) fn plan(&self) -> &AttributePlan {
        self.plan.get_or_init(|| {
            let paths = self.predicates.iter().map(|predicate| predicate.path).chain(self.selected);
            AttributePlan::new(paths.cloned())
        })
    }

    /// The selected attributes.
    pub(crate) fn selected(&self) -> &'q [AttributePath] {
        self.selected
    }

    /// Whether answers are ordered by their values.
    pub(crate) fn by_value(&self) -> bool {
        matches!(self.order, Order::Value | Order::ValueDescending | Order::Nearest)
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

    /// Whether the values of a record satisfy all predicates.
    pub(crate) fn matches(&self, values: &AttributeValues) -> bool {
        self.predicates
            .iter()
            .all(|predicate| values.values(predicate.slot).any(|value| predicate.range.contains(value)))
    }

    /// The value that determines the position of a record in a value order, or that a limit per value counts; empty if the
    /// query has neither. A distance is written to `distance`.
    pub(crate) fn order_value<'v>(
        &self,
        values: &'v AttributeValues,
        distance: &'v mut DistanceBytes,
    ) -> &'v [u8] {
        let Some(predicate) = self.order_predicate.and_then(|at| self.predicates.get(at)) else {
            return &[];
        };
        if let Some(point) = &predicate.nearest {
            let rects = values.values(predicate.slot).filter_map(attribute::decode_rect);
            let smallest = rects.map(|rect| rect.distance_squared(point)).fold(f64::INFINITY, f64::min);
            // The bits of a float that is not negative sort like the float.
            *distance = smallest.to_bits().to_be_bytes();
            return distance;
        }
        // Values come in ascending order.
        let mut within = values.values(predicate.slot).filter(|value| predicate.range.contains(value));
        let value = if self.order == Order::ValueDescending { within.last() } else { within.next() };
        value.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_parsed_from_their_names() {
        for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
            assert_eq!(Order::parse(order.name()).unwrap(), order);
        }
        assert!(Order::parse("random").is_err());
    }

    #[test]
    fn the_first_problem_is_reported() {
        let query = Query::new().eq("a", 1).eq("b.", 1).range("c", 1..2).eq("", 1);
        assert!(query.check().unwrap_err().message().contains("`b.`"));
        assert!(CompiledQuery::new(&query).is_err());
    }

    #[test]
    fn predicates_are_limited_at_their_edge() {
        for over in [0, 1] {
            let query = (0..MAX_PREDICATES + over).fold(Query::new(), |query, _| query.eq("a", 1));
            let problem = query.check().err().map(|error| error.kind());
            assert_eq!(problem, (over == 1).then_some(bolide_base::ErrorKind::LimitExceeded));
        }
    }

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
        assert_eq!(Value::decode(compiled.order_value(&values, &mut [0; 8])).unwrap().0, Value::Int(5));
        let query = Query::new().eq("a", 1).order(Order::Value);
        let equal = CompiledQuery::new(&query).unwrap();
        assert_eq!(equal.order, Order::Newest);
        assert!(equal.order_value(&values, &mut [0; 8]).is_empty());
    }
}
