//! Queries on attributes, and their answers from the model by a full scan.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bolide_storage::SimRng;
use serde_json::{Value, json};

use crate::rows::{ModelRow, ModelRows};
use crate::value::{compare, is_spatial, rects_at, same_type, values_at};

/// One condition; several are joined by AND.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryCondition {
    /// Some value at the path equals this one.
    Equals(String, Value),
    /// Some value at the path has the type of the bounds and lies between them, both inclusive.
    Within(String, Value, Value),
    /// Some rectangle at the path intersects this one, given by its minimum and maximum coordinates.
    Intersects(String, [f64; 4]),
    /// The path has a rectangle. Answers can be ordered by its distance from this point.
    Near(String, [f64; 2]),
    /// A tree of conditions holds.
    Filter(Box<ModelFilter>),
}

/// The order of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerOrder {
    /// Last written first.
    Newest,
    /// First written first.
    Oldest,
    /// By the smallest value in the first range, ascending; as `Newest` without a range.
    Value,
    /// By the largest value in the first range, descending; as `Newest` without a range.
    ValueDescending,
    /// By the distance from the point of the only [`QueryCondition::Near`], ascending.
    Nearest,
    /// By the smallest value at each of these paths, or descending by the largest. A path without a value sorts first,
    /// descending last.
    By(&'static [(&'static str, SortedBy)]),
}

/// The direction of a path of [`AnswerOrder::By`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortedBy {
    /// The smallest values first.
    Smallest,
    /// The largest values first.
    Largest,
}

/// Orders by attributes, for random queries.
const SORTS: [AnswerOrder; 4] = [
    AnswerOrder::By(&[("n.x", SortedBy::Smallest)]),
    AnswerOrder::By(&[("a", SortedBy::Largest)]),
    AnswerOrder::By(&[("tags[*]", SortedBy::Largest), ("s", SortedBy::Smallest)]),
    AnswerOrder::By(&[("s", SortedBy::Smallest), ("tags[*]", SortedBy::Smallest), ("a", SortedBy::Largest)]),
];

/// A query that the model can answer: conditions, an order, limits and the contents of the answers.
#[derive(Debug, Clone)]
pub struct ModelQuery {
    /// The conditions of a record; without any, all records match.
    pub conditions: Vec<QueryCondition>,
    /// The order of the answers.
    pub order: AnswerOrder,
    /// The maximum number of answers; `None` for all.
    pub limit: Option<usize>,
    /// The maximum number of answers for each value in the first range, applied before `limit`; `None` for all. Only with a
    /// range.
    pub limit_per_value: Option<usize>,
    /// The contents of an answer.
    pub contents: AnswerContents,
    /// Picks one of the indexes that can serve the query. The query runs with this index and with the one that the database
    /// chooses.
    pub pick: u64,
}

/// The contents of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerContents {
    /// The record.
    Records,
    /// The key alone.
    Keys,
    /// No contents: the answers are counted.
    Count,
    /// The values at the path of the first condition, and at `pad`.
    Values,
    /// The parts of the record at the path of the first condition, at its field, and at `pad`.
    Parts,
}

impl AnswerContents {
    /// All contents.
    pub const EACH: [Self; 5] = [Self::Records, Self::Keys, Self::Count, Self::Values, Self::Parts];
}

impl QueryCondition {
    /// The attribute of the condition; empty for a tree.
    pub fn path(&self) -> &str {
        match self {
            Self::Filter(_) => "",
            Self::Equals(path, _) | Self::Within(path, ..) => path,
            Self::Intersects(path, _) | Self::Near(path, _) => path,
        }
    }

    /// Whether this is a range of values.
    pub fn is_range(&self) -> bool {
        matches!(self, Self::Within(..))
    }

    fn accepts(&self, value: &Value) -> bool {
        match self {
            Self::Equals(_, wanted) => same_type(value, wanted) && compare(value, wanted) == Ordering::Equal,
            Self::Within(_, low, high) => {
                same_type(value, low)
                    && same_type(value, high)
                    && compare(value, low) != Ordering::Less
                    && compare(value, high) != Ordering::Greater
            }
            Self::Intersects(..) | Self::Near(..) | Self::Filter(_) => false,
        }
    }

    /// Whether the record meets the condition.
    pub(crate) fn holds(&self, row: &ModelRow) -> bool {
        match self {
            Self::Filter(filter) => filter.accepts(row),
            spatial if spatial.is_spatial() => spatial.meets(row),
            scalar => !scalar.hits(row).is_empty(),
        }
    }

    /// Whether the record meets a spatial condition.
    fn meets(&self, row: &ModelRow) -> bool {
        let rects = rects_at(&row.parsed, self.path());
        match self {
            Self::Equals(..) | Self::Within(..) | Self::Filter(_) => false,
            Self::Near(..) => !rects.is_empty(),
            Self::Intersects(_, [low_x, low_y, high_x, high_y]) => rects.iter().any(|[a, b, c, d]| {
                let apart = c < low_x || high_x < a || d < low_y || high_y < b;
                !apart
            }),
        }
    }

    /// Whether this is a spatial condition.
    pub fn is_spatial(&self) -> bool {
        matches!(self, Self::Intersects(..) | Self::Near(..))
    }

    /// The squared distance of the nearest rectangle of the record.
    fn distance(&self, row: &ModelRow) -> Option<f64> {
        let Self::Near(path, [x, y]) = self else { return None };
        let along = |low: f64, at: f64, high: f64| if at < low { low - at } else { (at - high).max(0.0) };
        let squares = rects_at(&row.parsed, path).into_iter().map(|[a, b, c, d]| {
            let (over, up) = (along(a, *x, c), along(b, *y, d));
            over * over + up * up
        });
        squares.min_by(f64::total_cmp)
    }

    /// The values of the record that meet the condition.
    fn hits<'a>(&self, row: &'a ModelRow) -> Vec<&'a Value> {
        values_at(&row.parsed, self.path()).into_iter().filter(|value| self.accepts(value)).collect()
    }
}

impl ModelQuery {
    /// All records with a value from `low` to `high` at the path, newest first.
    pub fn every(path: &str, low: Value, high: Value) -> Self {
        Self {
            conditions: vec![QueryCondition::Within(path.to_owned(), low, high)],
            order: AnswerOrder::Newest,
            limit: None,
            limit_per_value: None,
            contents: AnswerContents::Records,
            pick: 0,
        }
    }

    /// A random query that matches some of the records of [`record`](crate::record::record).
    pub fn random(rng: &mut SimRng) -> Self {
        let mut conditions = vec![random_condition(rng)];
        if rng.one_in(5) {
            conditions.push(random_condition(rng));
        }
        let order = match rng.below(6) {
            0 => AnswerOrder::Oldest,
            1 => AnswerOrder::Value,
            2 => AnswerOrder::ValueDescending,
            _ => AnswerOrder::Newest,
        };
        let limit = match rng.below(5) {
            0 => None,
            1 => Some(1),
            2 => Some(100),
            _ => Some(1 + rng.below(12) as usize),
        };
        let has_range = conditions.iter().any(QueryCondition::is_range);
        let limit_per_value = (has_range && rng.one_in(3)).then(|| rng.below(4) as usize);
        let (mut order, mut limit_per_value) = (order, limit_per_value);
        if rng.one_in(12) {
            let point = [(); 2].map(|()| crate::record::coordinate(rng));
            conditions.push(QueryCondition::Near(crate::record::spatial_path(rng).to_owned(), point));
            (order, limit_per_value) = (AnswerOrder::Nearest, None);
        } else if rng.one_in(8) {
            (order, limit_per_value) = (*rng.pick(&SORTS).unwrap_or(&AnswerOrder::Newest), None);
        }
        if rng.one_in(3) {
            conditions.push(QueryCondition::Filter(Box::new(ModelFilter::random(rng))));
        }
        // Without other conditions, a union of indexes or a scan answers.
        if rng.one_in(8) && limit_per_value.is_none() && order != AnswerOrder::Nearest {
            conditions.retain(|condition| matches!(condition, QueryCondition::Filter(_)));
        }
        let contents = match rng.below(8) {
            0..=1 => AnswerContents::Keys,
            2 => AnswerContents::Count,
            3 => AnswerContents::Values,
            4 => AnswerContents::Parts,
            _ => AnswerContents::Records,
        };
        Self { conditions, order, limit, limit_per_value, contents, pick: rng.next_u64() }
    }

    /// The selected paths; empty unless the answers hold values.
    pub fn selected(&self) -> Vec<&str> {
        let mut paths = self.conditions.iter().map(QueryCondition::path).filter(|path| !path.is_empty());
        let first = paths.next().unwrap_or("s");
        if self.contents == AnswerContents::Values { vec![first, "pad"] } else { Vec::new() }
    }

    /// The paths of the selected parts; empty unless the answers hold parts.
    pub fn parts(&self) -> Vec<&str> {
        if self.contents != AnswerContents::Parts {
            return Vec::new();
        }
        let mut paths = self.conditions.iter().map(QueryCondition::path).filter(|path| !path.is_empty());
        let first = paths.next().unwrap_or("s");
        let field = first.split(['.', '[', '(']).next().unwrap_or(first);
        let mut parts = vec![first, "pad", "nowhere"];
        if field != first {
            parts.push(field);
        }
        parts
    }

    /// The matching rows in order. Equal values come newest first in both orders by value.
    pub fn answer<'a>(&self, rows: &'a Arc<ModelRows>) -> Vec<(&'a [u8], &'a Arc<ModelRow>)> {
        let matching = MatchingRows::of(rows, self);
        let mut found = matching.hits(rows);
        let newest_first = |left: &Hit<'_, '_>, right: &Hit<'_, '_>| right.row.order.cmp(&left.row.order);
        found.sort_by(|left, right| match self.order {
            AnswerOrder::Newest => newest_first(left, right),
            AnswerOrder::Oldest => newest_first(right, left),
            AnswerOrder::Value => compare_some(left.smallest, right.smallest).then(newest_first(left, right)),
            AnswerOrder::ValueDescending => {
                compare_some(right.largest, left.largest).then(newest_first(left, right))
            }
            AnswerOrder::By(paths) => {
                let each = paths.iter().map(|(path, by)| compare_at(path, *by, left.row, right.row));
                each.fold(Ordering::Equal, Ordering::then).then(newest_first(left, right))
            }
            AnswerOrder::Nearest => {
                let by_distance = left.distance.partial_cmp(&right.distance);
                by_distance.unwrap_or(Ordering::Equal).then(newest_first(left, right))
            }
        });
        if let Some(limit) = self.limit_per_value {
            self.limit_each_value(&mut found, limit);
        }
        found.truncate(self.limit.unwrap_or(usize::MAX));
        found.into_iter().map(|hit| (hit.key, hit.row)).collect()
    }

    /// Retains the first `limit` hits of each value. A record counts for one of its values: the largest in the descending
    /// order by value, else the smallest.
    fn limit_each_value(&self, found: &mut Vec<Hit<'_, '_>>, limit: usize) {
        let mut counts: Vec<(Option<&Value>, usize)> = Vec::new();
        found.retain(|hit| {
            let value = match self.order {
                AnswerOrder::ValueDescending => hit.largest,
                _ => hit.smallest,
            };
            let known = counts.iter().position(|(known, _)| compare_some(*known, value).is_eq());
            let slot = known.unwrap_or_else(|| {
                counts.push((value, 0));
                counts.len() - 1
            });
            counts[slot].1 += 1;
            counts[slot].1 <= limit
        });
    }

    /// The row if it meets all conditions.
    fn hit<'a>(&self, key: &'a [u8], row: &'a Arc<ModelRow>) -> Option<Hit<'a, 'a>> {
        let mut hit = Hit { key, row, smallest: None, largest: None, distance: None };
        let mut ranges = 0;
        for condition in &self.conditions {
            if let QueryCondition::Filter(filter) = condition {
                if !filter.accepts(row) {
                    return None;
                }
                continue;
            }
            if condition.is_spatial() {
                if !condition.meets(row) {
                    return None;
                }
                hit.distance = hit.distance.or(condition.distance(row));
                continue;
            }
            let values = condition.hits(row);
            if values.is_empty() {
                return None;
            }
            ranges += u32::from(condition.is_range());
            if ranges == 1 && hit.smallest.is_none() {
                hit.smallest = values.iter().copied().min_by(|left, right| compare(left, right));
                hit.largest = values.iter().copied().max_by(|left, right| compare(left, right));
            }
        }
        Some(hit)
    }
}

/// A row that meets all conditions, with its smallest and largest values in the first range.
struct Hit<'a, 'v> {
    key: &'a [u8],
    row: &'a Arc<ModelRow>,
    smallest: Option<&'v Value>,
    largest: Option<&'v Value>,
    /// The squared distance for [`AnswerOrder::Nearest`].
    distance: Option<f64>,
}

/// The rows that meet some conditions. A suite queries them in many orders and with many limits, one after the other.
struct MatchingRows {
    rows: Arc<ModelRows>,
    conditions: Vec<QueryCondition>,
    matches: Vec<Match>,
}

/// A matching row; see [`Hit`].
struct Match {
    key: Arc<[u8]>,
    smallest: Option<Value>,
    largest: Option<Value>,
    distance: Option<f64>,
}

thread_local! {
    /// The last result of [`MatchingRows::of`].
    static LAST: RefCell<Option<Rc<MatchingRows>>> = const { RefCell::new(None) };
}

impl MatchingRows {
    /// The rows that meet the conditions of `query`. Evaluates nothing if it is called for the same ones again.
    fn of(rows: &Arc<ModelRows>, query: &ModelQuery) -> Rc<Self> {
        let last = LAST.with_borrow(Clone::clone);
        let is_same = |last: &Rc<Self>| Arc::ptr_eq(&last.rows, rows) && last.conditions == query.conditions;
        if let Some(last) = last.filter(is_same) {
            return last;
        }
        let of_hit = |(key, row): (&Arc<[u8]>, _)| {
            let hit = query.hit(key, row)?;
            let (smallest, largest) = (hit.smallest.cloned(), hit.largest.cloned());
            Some(Match { key: key.clone(), smallest, largest, distance: hit.distance })
        };
        let matches = rows.iter().filter_map(of_hit).collect();
        let found = Rc::new(Self { rows: rows.clone(), conditions: query.conditions.clone(), matches });
        LAST.set(Some(found.clone()));
        found
    }

    fn hits<'a, 'v>(&'v self, rows: &'a ModelRows) -> Vec<Hit<'a, 'v>> {
        let hit = |found: &'v Match| {
            let (key, row) = rows.get_key_value(&found.key)?;
            let (smallest, largest) = (found.smallest.as_ref(), found.largest.as_ref());
            Some(Hit { key, row, smallest, largest, distance: found.distance })
        };
        self.matches.iter().filter_map(hit).collect()
    }
}

fn compare_some(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => compare(left, right),
        _ => Ordering::Equal,
    }
}

/// Compares two records by one path of [`AnswerOrder::By`].
fn compare_at(path: &str, by: SortedBy, left: &ModelRow, right: &ModelRow) -> Ordering {
    let best = |row: &'_ ModelRow| {
        let values = values_at(&row.parsed, path).into_iter().cloned();
        match by {
            SortedBy::Smallest => values.min_by(compare),
            SortedBy::Largest => values.max_by(compare),
        }
    };
    let ascending = match (best(left), best(right)) {
        (Some(left), Some(right)) => compare(&left, &right),
        (left, right) => left.is_some().cmp(&right.is_some()),
    };
    if by == SortedBy::Largest { ascending.reverse() } else { ascending }
}

fn random_condition(rng: &mut SimRng) -> QueryCondition {
    if rng.one_in(6) {
        let corner = [(); 2].map(|()| crate::record::coordinate(rng));
        let size = [(); 2].map(|()| f64::from(rng.below(5) as u32) / 2.0);
        let window = [corner[0], corner[1], corner[0] + size[0], corner[1] + size[1]];
        return QueryCondition::Intersects(crate::record::spatial_path(rng).to_owned(), window);
    }
    let path = *rng.pick(&["a", "n.x", "tags[*]", "s"]).unwrap_or(&"a");
    let scalar = |rng: &mut SimRng| match path {
        "n.x" => json!(rng.below(26) as i64 - 5),
        "s" => json!(format!("w{}", rng.below(10))),
        "tags[*]" => crate::record::tag(rng),
        _ => crate::record::scalar(rng),
    };
    let one = scalar(rng);
    if rng.one_in(2) {
        return QueryCondition::Equals(path.to_owned(), one);
    }
    // Both bounds have one type. Ranges of null and booleans are not useful.
    let mut other = scalar(rng);
    for _ in 0..8 {
        if same_type(&one, &other) {
            break;
        }
        other = scalar(rng);
    }
    if !same_type(&one, &other) || one.is_null() || one.is_boolean() {
        return QueryCondition::Equals(path.to_owned(), one);
    }
    let (low, high) = if compare(&one, &other) == Ordering::Greater { (other, one) } else { (one, other) };
    QueryCondition::Within(path.to_owned(), low, high)
}

impl fmt::Display for QueryCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(path, value) => write!(f, "{path} = {value}"),
            Self::Within(path, low, high) => write!(f, "{path} in {low}..{high}"),
            Self::Intersects(path, window) => write!(f, "{path} meets {window:?}"),
            Self::Near(path, point) => write!(f, "{path} near {point:?}"),
            Self::Filter(filter) => filter.fmt(f),
        }
    }
}

impl fmt::Display for ModelQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition}", if i == 0 { "" } else { " and " })?;
        }
        write!(f, ", {:?}", self.order)?;
        if let Some(limit) = self.limit {
            write!(f, ", at most {limit}")?;
        }
        if let Some(limit) = self.limit_per_value {
            write!(f, ", at most {limit} of each value")?;
        }
        write!(f, ", {:?}", self.contents)
    }
}

/// A tree of conditions. A condition holds if some value of the record meets it; its negation, if none does.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelFilter {
    /// All of these hold.
    All(Vec<ModelFilter>),
    /// One of these holds.
    Any(Vec<ModelFilter>),
    /// This does not hold.
    Not(Box<ModelFilter>),
    /// The condition holds.
    Condition(QueryCondition),
    /// Some value at the path is one of these.
    OneOf(String, Vec<Value>),
    /// Some string at the path starts with this one.
    Prefix(String, String),
    /// The path has a value, which may be null.
    Exists(String),
}

impl ModelFilter {
    /// Some value at the path equals this one.
    pub fn equals(path: &str, value: Value) -> Self {
        Self::Condition(QueryCondition::Equals(path.to_owned(), value))
    }

    /// The negation of `filter`.
    pub fn negated(filter: Self) -> Self {
        Self::Not(Box::new(filter))
    }

    /// A random tree. At the top it is none that a query would take apart: neither a conjunction nor a single condition.
    pub fn random(rng: &mut SimRng) -> Self {
        match rng.below(6) {
            0 => Self::negated(Self::leaf(rng)),
            1..=2 => Self::list(rng),
            _ => Self::Any((0..2 + rng.below(3)).map(|_| Self::tree(rng, 2)).collect()),
        }
    }

    fn tree(rng: &mut SimRng, depth: u32) -> Self {
        let children = |rng: &mut SimRng| (0..1 + rng.below(3)).map(|_| Self::tree(rng, depth - 1)).collect();
        match rng.below(8) {
            0..=1 if depth > 0 => Self::All(children(rng)),
            2 if depth > 0 => Self::Any(children(rng)),
            3 if depth > 0 => Self::negated(Self::tree(rng, depth - 1)),
            _ => Self::leaf(rng),
        }
    }

    fn leaf(rng: &mut SimRng) -> Self {
        let path = *rng.pick(&["a", "n.x", "tags[*]", "s"]).unwrap_or(&"a");
        match rng.below(8) {
            0 => Self::list(rng),
            1 => Self::Exists(path.to_owned()),
            2 => Self::equals(path, Value::Null),
            3 => {
                let prefix = *rng.pick(&["", "w", "w1", "gr", "é"]).unwrap_or(&"w");
                Self::Prefix(path.to_owned(), prefix.to_owned())
            }
            _ => Self::Condition(random_condition(rng)),
        }
    }

    fn list(rng: &mut SimRng) -> Self {
        let path = *rng.pick(&["a", "n.x", "tags[*]", "s"]).unwrap_or(&"a");
        // At least two distinct values: a list of one is an equality.
        let values = (0..2 + rng.below(6)).map(|_| crate::record::scalar(rng));
        let texts = ["red", "w1", "w7", "green"].map(Value::from);
        Self::OneOf(path.to_owned(), values.chain(texts).collect())
    }

    /// Whether the filter holds for the record.
    pub fn accepts(&self, row: &ModelRow) -> bool {
        match self {
            Self::All(filters) => filters.iter().all(|filter| filter.accepts(row)),
            Self::Any(filters) => filters.iter().any(|filter| filter.accepts(row)),
            Self::Not(filter) => !filter.accepts(row),
            Self::Condition(condition) => condition.holds(row),
            Self::OneOf(path, wanted) => values_at(&row.parsed, path)
                .into_iter()
                .any(|value| wanted.iter().any(|one| same_type(value, one) && compare(value, one).is_eq())),
            Self::Prefix(path, prefix) => {
                let mut texts = values_at(&row.parsed, path).into_iter().filter_map(Value::as_str);
                texts.any(|text| text.starts_with(prefix.as_str()))
            }
            Self::Exists(path) if is_spatial(path) => !rects_at(&row.parsed, path).is_empty(),
            Self::Exists(path) => !values_at(&row.parsed, path).is_empty(),
        }
    }
}

impl fmt::Display for ModelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, filters: &[Self], word: &str| {
            f.write_str("(")?;
            for (position, filter) in filters.iter().enumerate() {
                write!(f, "{}{filter}", if position == 0 { "" } else { word })?;
            }
            f.write_str(")")
        };
        match self {
            Self::All(filters) => list(f, filters, " and "),
            Self::Any(filters) => list(f, filters, " or "),
            Self::Not(filter) => write!(f, "not {filter}"),
            Self::Condition(condition) => condition.fmt(f),
            Self::OneOf(path, values) => write!(f, "{path} in {}", Value::from(values.clone())),
            Self::Prefix(path, prefix) => write!(f, "{path} starts with {prefix:?}"),
            Self::Exists(path) => write!(f, "{path} exists"),
        }
    }
}
