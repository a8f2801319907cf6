//! Queries of a collection.

use bolide_base::checksum::hash_key;
use bolide_base::{Error, Result};

use crate::attribute::Value;
use crate::cursor_token::CursorToken;
use crate::filter::{Conjunction, Filter, FilterNode};
use crate::path::AttributePath;
use crate::predicate::{Predicate, ValueRange, combine};
use crate::space::{Point, Rect};

/// Maximum number of predicates of one query.
pub const MAX_PREDICATES: usize = 100;
/// Maximum number of attributes that sort the answers.
pub const MAX_SORT_ATTRIBUTES: usize = 16;

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
    /// By the attributes of [`Query::sort_by`], the first one first; equal values newest first.
    Attributes,
}

/// The direction of a sort attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SortDirection {
    /// The smallest value first, and before it records without a value.
    #[default]
    Ascending,
    /// The largest value first, and at the end records without a value.
    Descending,
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
            Self::Attributes => "attributes",
        }
    }

    /// The order with this name. `nearest` and `attributes` are not among them, since they need a [point](Query::nearest)
    /// or [attributes](Query::sort_by).
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
    /// Primary key, sequence number and the parts of the record at some paths; see [`Query::select_parts`].
    Parts,
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
    /// The rest of the conjunction.
    terms: Vec<FilterNode>,
    sort: Vec<(AttributePath, SortDirection)>,
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

    /// The records for which `filter` is true. Joined with everything else by AND.
    ///
    /// A point to measure from sets the order, as [`nearest`](Self::nearest) does.
    ///
    /// The conditions of a conjunction become [`predicates`](Self::predicates) of the query, from left to right: the same
    /// query as with [`eq`](Self::eq), [`range`](Self::range) and so on.
    ///
    /// ```
    /// use bolide_index::{Filter, Query};
    /// let query = Query::new().eq("a", 1).filter(Filter::parse("b > 2 and (c = 3 or d = 4)")?);
    /// assert_eq!(query.predicates().len(), 2);
    /// assert_eq!(query.terms(), ["c = 3 or d = 4"]);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        let parts = filter.into_node().and_then(Conjunction::of);
        match parts {
            Ok(Conjunction { predicates, terms }) => {
                if self.terms.len() + terms.len() > MAX_PREDICATES {
                    let problem = Error::limit_exceeded(
                        "the number of alternatives, lists and negations of a query",
                        (self.terms.len() + terms.len()) as u64,
                        MAX_PREDICATES as u64,
                    );
                    self.problem = self.problem.or(Some(problem));
                } else {
                    self.terms.extend(terms);
                }
                let is_nearest = predicates.iter().any(Predicate::is_nearest);
                let query = predicates.into_iter().fold(self, Self::predicate);
                if is_nearest { query.order(Order::Nearest) } else { query }
            }
            Err(problem) => {
                self.problem = self.problem.or(Some(problem));
                self
            }
        }
    }

    /// Sorts the answers by the attribute at `path`; a further call adds an attribute that sorts equal values of those
    /// before it. Equal values of all are newest first. Sets the [order](Self::order) to [`Order::Attributes`].
    ///
    /// A record with several values of an attribute sorts by the smallest, descending by the largest. Values of different
    /// types sort as in an index; a record without a value sorts before all.
    ///
    /// An index provides the order if there is one attribute and the filter requires that it
    /// [exists](Filter::exists). Else the answers are read, and sorted in bounded memory: with a limit of K only about
    /// 2 K are held.
    ///
    /// ```
    /// use bolide_index::{Order, Query, SortDirection};
    /// let query = Query::new().sort_by("state", SortDirection::Ascending).sort_by("total", SortDirection::Descending);
    /// assert_eq!((query.answer_order(), query.check().is_ok()), (Order::Attributes, true));
    /// assert!(Query::new().sort_by("rect(area)", SortDirection::Ascending).check().is_err());
    /// ```
    #[must_use]
    pub fn sort_by(mut self, path: &str, direction: SortDirection) -> Self {
        let path = path.parse::<AttributePath>().and_then(|path| match path.is_spatial() {
            true => Err(Error::invalid_input(format!("`{path}` is spatial, where values have no order"))),
            false => Ok(path),
        });
        match path {
            Ok(_) if self.sort.len() == MAX_SORT_ATTRIBUTES => {
                let max = MAX_SORT_ATTRIBUTES as u64;
                let problem = Error::limit_exceeded("the number of sort attributes of a query", max + 1, max);
                self.problem = self.problem.or(Some(problem));
            }
            Ok(path) => self.sort.push((path, direction)),
            Err(problem) => self.problem = self.problem.or(Some(problem)),
        }
        self.order(Order::Attributes)
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
    /// record. A second call adds its paths, and replaces those of [`select_parts`](Self::select_parts).
    ///
    /// ```
    /// use bolide_index::{Projection, Query};
    /// let query = Query::new().eq("subreddit", "rust").select(["title", "score"]);
    /// assert_eq!(query.projection(), Projection::Values);
    /// assert!(Query::new().select(["a..b"]).check().is_err());
    /// ```
    #[must_use]
    pub fn select<'p>(mut self, paths: impl IntoIterator<Item = &'p str>) -> Self {
        self.add_selected(Projection::Values, paths);
        self
    }

    /// Answers with the parts of records at these paths, in place of whole ones: [`Row::record`](crate::Row::record) is
    /// a JSON object with the objects, arrays and scalars at the paths, as they are stored; see
    /// [`record_parts`](crate::record_parts). Reads the records. A path counts once; a second call adds its paths, and
    /// replaces those of [`select`](Self::select).
    ///
    /// ```
    /// use bolide_index::{Projection, Query};
    /// let query = Query::new().eq("subreddit", "rust").select_parts(["user", "tags", "user"]);
    /// assert_eq!(query.selected().len(), 2);
    /// assert_eq!(query.projection(), Projection::Parts);
    /// assert_eq!(Query::new().select(["a"]).select_parts(["b"]).selected(), ["b".parse()?]);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn select_parts<'p>(mut self, paths: impl IntoIterator<Item = &'p str>) -> Self {
        self.add_selected(Projection::Parts, paths);
        self
    }

    /// Adds the paths, for parts those that are not selected yet. A selection of the other kind is replaced.
    fn add_selected<'p>(&mut self, projection: Projection, paths: impl IntoIterator<Item = &'p str>) {
        if std::mem::replace(&mut self.projection, projection) != projection {
            self.select.clear();
        }
        for path in paths {
            match path.parse() {
                // Parts become one object; values are returned by position, so each path has its own.
                Ok(path) if projection == Projection::Parts && self.select.contains(&path) => {}
                Ok(_) if self.select.len() == MAX_PREDICATES => {
                    let problem = Error::limit_exceeded(
                        "the number of selected attributes of a query",
                        MAX_PREDICATES as u64 + 1,
                        MAX_PREDICATES as u64,
                    );
                    self.problem.get_or_insert(problem);
                    break;
                }
                Ok(path) => self.select.push(path),
                Err(problem) => drop(self.problem.get_or_insert(problem)),
            }
        }
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

    /// The conditions of the conjunction that have one range of values.
    pub fn predicates(&self) -> &[Predicate] {
        &self.predicates
    }

    /// The other parts of the conjunction, as text: alternatives, lists of values, and negations.
    pub fn terms(&self) -> Vec<String> {
        self.terms.iter().map(FilterNode::full_text).collect()
    }

    /// The attributes of negated conditions, each once. Such a condition holds for every record if the attribute does not
    /// exist, for example because its name is misspelled.
    ///
    /// ```
    /// use bolide_index::{Filter, Query};
    /// let query = Query::new().filter(Filter::parse("a = 1 and not (b = 2 and c exists) and a != 3")?);
    /// assert_eq!(query.negated_attributes().iter().map(|path| path.to_string()).collect::<Vec<_>>(), ["b", "c", "a"]);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn negated_attributes(&self) -> Vec<&AttributePath> {
        let mut paths = Vec::new();
        self.terms.iter().for_each(|term| term.add_negated(&mut paths));
        paths
    }

    pub(crate) fn term_nodes(&self) -> &[FilterNode] {
        &self.terms
    }

    /// As [`term_nodes`](Self::term_nodes), to change them. The limits of filters do not apply.
    pub(crate) fn term_nodes_mut(&mut self) -> &mut Vec<FilterNode> {
        &mut self.terms
    }

    /// The attributes that sort the answers in [`Order::Attributes`].
    pub fn sort_attributes(&self) -> &[(AttributePath, SortDirection)] {
        &self.sort
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

    /// The identification of the query in a token, the same in every process: a hash of predicates, terms, order and limit
    /// per value. Another version of the library may compute another one: tokens and positions of earlier versions are then
    /// refused as those of another query.
    pub fn fingerprint(&self) -> u64 {
        // Without text and allocation: every limited query needs it.
        let per_value = self.limit_per_value.map_or(0, |limit| (limit as u64).wrapping_add(1));
        let order = hash_key(self.order.name().as_bytes());
        let plain =
            self.predicates.iter().map(Predicate::fingerprint).fold(combine(order, per_value), combine);
        let hash = |text: String| hash_key(text.as_bytes());
        let terms = self.terms.iter().map(|term| hash(term.full_text())).fold(plain, combine);
        self.sort.iter().map(|(path, direction)| hash(format!("{direction:?} {path}"))).fold(terms, combine)
    }

    fn nearest_predicates(&self) -> usize {
        self.predicates.iter().filter(|one| one.is_nearest()).count()
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
            None if (self.order == Order::Attributes) == self.sort.is_empty() => {
                Err(Error::invalid_input("the order by attributes and the sort attributes need each other"))
            }
            None if self.order == Order::Attributes && self.limit_per_value.is_some() => Err(
                Error::invalid_input("a limit per value has an order by value or recency, not by attributes"),
            ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiled_query::CompiledQuery;

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
}
