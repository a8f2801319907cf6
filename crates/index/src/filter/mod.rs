//! Filters: trees of conditions on the attributes of a record.
//!
//! # Meaning
//! A filter is true or false for each record. A condition is true if **some** value of its attribute satisfies it, so every
//! condition on an absent attribute is false, except [`Filter::absent`]. [`Filter::not`] is the exact complement: it is true
//! if **no** value satisfies the condition, hence for absent attributes. `docs/QUERIES.md` has the truth table.
//!
//! # Execution
//! A query holds a conjunction in normal form: conditions with one range of encoded values, which any index may
//! serve, and *terms*: alternatives, lists of values, and negations. The planner serves alternatives and lists by a union of
//! index accesses. Whatever an index returns, one function evaluates the whole conjunction on the record.

mod compiled;
mod normal;
mod parse;
mod text;
mod token;
mod value_set;

#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod tests;

use std::ops::Not;

use bolide_base::{Error, Result};

use crate::attribute::Value;
use crate::predicate::{Predicate, ValueRange};
use crate::space::{Point, Rect};

pub(crate) use self::compiled::{CompiledPredicate, CompiledTerm, Disjunct};
pub(crate) use self::normal::Conjunction;
pub(crate) use self::value_set::ValueSet;

/// Maximum nesting of a filter.
pub const MAX_FILTER_DEPTH: usize = 64;
/// Maximum number of conditions of a filter. A list of values is one.
pub const MAX_FILTER_CONDITIONS: usize = 1_000;
/// Maximum number of values in the lists of a filter.
pub const MAX_FILTER_VALUES: usize = 10_000;

/// A tree of conditions on the attributes of a record, for [`Query::filter`](crate::Query::filter).
///
/// An invalid part (a malformed path, a range with ends of two types, a tree over a limit) is reported by
/// [`check`](Self::check), and when the query is executed, so that filters can be built in one expression.
///
/// ```
/// use bolide_index::{Filter, Query};
/// let filter = Filter::eq("state", "open")
///     .and(Filter::range("total", 11..).or(Filter::one_of("tags[*]", ["a", "b"])));
/// assert_eq!(filter.to_string(), r#"state = "open" and (total >= 11 or tags[*] in ("a", "b"))"#);
/// assert_eq!(Filter::parse(&filter.to_string())?, filter);
/// assert!(Query::new().filter(filter).check().is_ok());
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Filter {
    node: FilterNode,
    size: FilterSize,
    problem: Option<Error>,
}

/// A node of the tree of a filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FilterNode {
    /// True if all of these are.
    All(Vec<FilterNode>),
    /// True if one of these is.
    Any(Vec<FilterNode>),
    /// True if this is false.
    Not(Box<FilterNode>),
    /// True if a value satisfies the condition.
    Test(Predicate),
    /// True if a value is in the set.
    In(ValueSet),
}

/// What the limits of a filter count.
#[derive(Debug, Clone, Copy, Default)]
struct FilterSize {
    depth: usize,
    conditions: usize,
    values: usize,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node && self.problem.is_none() && other.problem.is_none()
    }
}

impl Filter {
    /// True if all of `filters` are; true without any.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// let filter = Filter::all([Filter::eq("a", 1), Filter::exists("b")]);
    /// assert_eq!(filter.to_string(), "a = 1 and b exists");
    /// ```
    pub fn all(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::join(filters, FilterNode::All)
    }

    /// True if one of `filters` is; false without any.
    ///
    /// An index serves it if each of the filters has a condition that an index serves.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// let filter = Filter::any([Filter::eq("a", 1), Filter::eq("b", 2)]);
    /// assert_eq!(filter.to_string(), "a = 1 or b = 2");
    /// ```
    pub fn any(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::join(filters, FilterNode::Any)
    }

    /// True if `filter` is false: no value satisfies its condition, also if there is none.
    ///
    /// Evaluated on records: no index serves it.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::not(Filter::eq("tags[*]", "a")).to_string(), r#"not tags[*] = "a""#);
    /// ```
    #[allow(clippy::should_implement_trait, reason = "the operator exists too")]
    pub fn not(filter: Self) -> Self {
        let Self { node, mut size, problem } = filter;
        size.depth += 1;
        Self { node: FilterNode::Not(Box::new(node)), size, problem }.checked()
    }

    /// A value of the attribute at `path` equals `value`.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert!(Filter::eq("a", 1).check().is_ok());
    /// assert!(Filter::eq("a..b", 1).check().is_err());
    /// ```
    pub fn eq(path: &str, value: impl Into<Value>) -> Self {
        Self::test(path.parse().and_then(|path| Predicate::equal(path, value)))
    }

    /// A value of the attribute at `path` equals one of `values`, at most [`MAX_FILTER_VALUES`].
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::one_of("a", [2, 1, 2]).to_string(), "a in (1, 2)");
    /// assert!(Filter::one_of("a", 0..10_001).check().is_err());
    /// ```
    pub fn one_of<V: Into<Value>>(path: &str, values: impl IntoIterator<Item = V>) -> Self {
        let values = values.into_iter().take(MAX_FILTER_VALUES + 1).map(Into::into);
        let set = path.parse().and_then(|path| ValueSet::new(path, values));
        match set {
            Ok(set) => Self::of_set(set),
            Err(problem) => Self::invalid(problem),
        }
    }

    /// A value of the attribute at `path` lies in `range`.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::range("a", 1..=5).to_string(), "a in 1..5");
    /// assert_eq!(Filter::range("a", ..5).to_string(), "a < 5");
    /// ```
    pub fn range(path: &str, range: impl ValueRange) -> Self {
        Self::test(path.parse().and_then(|path| Predicate::range(path, range)))
    }

    /// A value of the attribute at `path` is a string that starts with `prefix`.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::prefix("a", "x").to_string(), r#"a starts with "x""#);
    /// ```
    pub fn prefix(path: &str, prefix: impl Into<String>) -> Self {
        Self::test(path.parse().and_then(|path| Predicate::prefix(path, prefix)))
    }

    /// The attribute at `path` has a value. Null is one; an object and an empty array are none.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::exists("a").to_string(), "a exists");
    /// ```
    pub fn exists(path: &str) -> Self {
        Self::test(path.parse().map(Predicate::exists))
    }

    /// The attribute at `path` has no value: the complement of [`exists`](Self::exists). Null is a value.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::absent("a").to_string(), "not a exists");
    /// ```
    pub fn absent(path: &str) -> Self {
        Self::not(Self::exists(path))
    }

    /// A value of the attribute at `path` is null. Other values of an array do not matter.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// assert_eq!(Filter::is_null("a").to_string(), "a = null");
    /// ```
    pub fn is_null(path: &str) -> Self {
        Self::eq(path, Value::Null)
    }

    /// A point or rectangle of the attribute at `path`, `rect(PATH)` or `point(X,Y)`, intersects `window`.
    ///
    /// ```
    /// use bolide_index::{Filter, Rect};
    /// let within = Filter::within("rect(bbox)", Rect::new(0.0, 0.0, 1.0, 2.0)?);
    /// assert_eq!(within.to_string(), "rect(bbox) within (0,0,1,2)");
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn within(path: &str, window: Rect) -> Self {
        Self::test(path.parse().and_then(|path| Predicate::within(path, window)))
    }

    /// The attribute at `path` has a point or rectangle, and [`Order::Nearest`](crate::Order::Nearest) orders by its distance
    /// from `point`. Only as a part of the top-level conjunction.
    ///
    /// ```
    /// use bolide_index::{Filter, Order, Point, Query};
    /// let near = Filter::nearest("point(x,y)", Point::new(1.0, 2.0)?);
    /// assert!(Query::new().filter(near.clone()).order(Order::Nearest).check().is_ok());
    /// assert!(Query::new().filter(!near).check().is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn nearest(path: &str, point: Point) -> Self {
        Self::test(path.parse().and_then(|path| Predicate::nearest(path, point)))
    }

    /// True if this filter and `other` are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::all([self, other])
    }

    /// True if this filter or `other` is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::any([self, other])
    }

    /// Parses the text form:
    ///
    /// ```text
    /// filter     conjunction ("or" conjunction)*
    /// conjunction factor ("and" factor)*
    /// factor     "not" factor | "(" filter ")" | "true" | "false" | PATH test
    /// test       ("=" | "!=" | "<" | "<=" | ">" | ">=") VALUE
    ///            | ["not"] "in" "(" VALUE ("," VALUE)* ")"
    ///            | ["not"] "in" VALUE (".." | "<.." | "..<" | "<..<") VALUE
    ///            | "starts" "with" STRING | "exists" | "is" ["not"] ("null" | "absent")
    ///            | "within" "(" MIN_X "," MIN_Y "," MAX_X "," MAX_Y ")"
    ///            | "nearest" "(" X "," Y ")"
    /// ```
    ///
    /// VALUE is a JSON string, number, true, false or null: text stands in double quotes. PATH is an
    /// [`AttributePath`](crate::AttributePath); a backslash escapes a character of the syntax, and the first letter of a
    /// field that is named like a keyword. Keywords are not case-sensitive. In a range both ends are included, except
    /// one beside `<`.
    ///
    /// # Errors
    /// `InvalidInput` with the position in the text, in characters from 1; `LimitExceeded` for a filter over a limit.
    ///
    /// ```
    /// use bolide_index::Filter;
    /// let filter = Filter::parse(r#"state = "open" and (total > 10 or tags[*] in ("a", "b"))"#)?;
    /// assert_eq!(
    ///     filter,
    ///     Filter::eq("state", "open").and(
    ///         Filter::range("total", (std::ops::Bound::Excluded(10), std::ops::Bound::Unbounded))
    ///             .or(Filter::one_of("tags[*]", ["a", "b"]))
    ///     )
    /// );
    /// let error = Filter::parse("a = 1 and b =").unwrap_err();
    /// assert!(error.message().contains("position 14"), "{}", error.message());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        parse::parse(text)
    }

    /// Reports the first invalid part.
    ///
    /// # Errors
    /// `InvalidInput` as described for the type; `LimitExceeded` for a filter over [`MAX_FILTER_DEPTH`],
    /// [`MAX_FILTER_CONDITIONS`] or [`MAX_FILTER_VALUES`].
    pub fn check(&self) -> Result<()> {
        self.problem.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn into_node(self) -> Result<FilterNode> {
        self.problem.map_or(Ok(self.node), Err)
    }

    fn join(filters: impl IntoIterator<Item = Self>, make: fn(Vec<FilterNode>) -> FilterNode) -> Self {
        let (mut nodes, mut size, mut problem) = (Vec::new(), FilterSize::default(), None);
        let mut inner_depth = 0;
        for filter in filters {
            problem = problem.or(filter.problem);
            size.conditions += filter.size.conditions;
            size.values += filter.size.values;
            // Nodes of one kind in each other have one level.
            let same = matches!(
                (make(Vec::new()), &filter.node),
                (FilterNode::All(_), FilterNode::All(_)) | (FilterNode::Any(_), FilterNode::Any(_))
            );
            inner_depth = inner_depth.max(filter.size.depth);
            size.depth = size.depth.max(filter.size.depth + usize::from(!same));
            match filter.node {
                FilterNode::All(inner) | FilterNode::Any(inner) if same => nodes.extend(inner),
                node => nodes.push(node),
            }
            // A longer list is refused anyway.
            if size.conditions > MAX_FILTER_CONDITIONS || size.values > MAX_FILTER_VALUES {
                break;
            }
        }
        let node = match (nodes.len(), nodes.pop()) {
            (1, Some(only)) => {
                size.depth = inner_depth;
                only
            }
            (_, last) => {
                nodes.extend(last);
                make(nodes)
            }
        };
        Self { node, size, problem }.checked()
    }

    fn test(predicate: Result<Predicate>) -> Self {
        match predicate {
            Ok(predicate) => Self {
                node: FilterNode::Test(predicate),
                size: FilterSize { depth: 1, conditions: 1, values: 0 },
                problem: None,
            },
            Err(problem) => Self::invalid(problem),
        }
    }

    fn of_set(set: ValueSet) -> Self {
        let size = FilterSize { depth: 1, conditions: 1, values: set.len() };
        Self { node: FilterNode::In(set), size, problem: None }.checked()
    }

    fn invalid(problem: Error) -> Self {
        Self { node: FilterNode::Any(Vec::new()), size: FilterSize::default(), problem: Some(problem) }
    }

    /// Replaces a filter over a limit by its problem.
    fn checked(self) -> Self {
        let limits = [
            ("the nesting of a filter", self.size.depth, MAX_FILTER_DEPTH),
            ("the number of conditions of a filter", self.size.conditions, MAX_FILTER_CONDITIONS),
            ("the number of values in the lists of a filter", self.size.values, MAX_FILTER_VALUES),
        ];
        match limits.into_iter().find(|(_, size, max)| size > max) {
            Some((what, size, max)) if self.problem.is_none() => {
                Self::invalid(Error::limit_exceeded(what, size as u64, max as u64))
            }
            _ => self,
        }
    }
}

/// As [`Filter::not`].
impl Not for Filter {
    type Output = Self;

    fn not(self) -> Self {
        Self::not(self)
    }
}

impl From<Predicate> for Filter {
    fn from(predicate: Predicate) -> Self {
        Self::test(Ok(predicate))
    }
}
