//! Questions on an attribute, and how the model answers them: by looking at every record.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use bolide_storage::SimRng;
use serde_json::{Value, json};

use crate::rows::{Row, Rows};
use crate::value::{compare, rects_at, same_type, values_at};

/// One condition; several are joined by AND.
#[derive(Debug, Clone)]
pub enum Condition {
    /// Some value at the path equals this one.
    Equals(String, Value),
    /// Some value at the path is of the ends' type and lies between them, both included.
    Within(String, Value, Value),
    /// Some rectangle at the path shares a point with this one: least coordinates first, then largest ones.
    Intersects(String, [f64; 4]),
    /// There is a rectangle at the path. Answers can come by its distance from this point.
    Near(String, [f64; 2]),
}

/// In which order answers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Last written first.
    Newest,
    /// First written first.
    Oldest,
    /// By the smallest value that the first range found, smallest first; without a range as `Newest`.
    Value,
    /// By the largest value that the first range found, largest first; without a range as `Newest`.
    ValueDescending,
    /// By the distance from the point of the one [`Condition::Near`], the nearest first.
    Nearest,
}

/// Conditions, an order, and how many answers are wanted.
#[derive(Debug, Clone)]
pub struct Question {
    /// What a record must meet. Never empty.
    pub conditions: Vec<Condition>,
    /// The order of the answers.
    pub arrangement: Arrangement,
    /// Most answers; `None` for all.
    pub limit: Option<usize>,
    /// Most answers of each value that the first range found, before `limit` cuts; `None` for all. Only with a range.
    pub limit_per_value: Option<usize>,
    /// What an answer holds.
    pub shown: Shown,
    /// Chooses which of the indexes that can serve the question is made to answer it as well, beside the
    /// one that the database chooses.
    pub pick: u64,
}

/// What an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The record.
    Records,
    /// The key alone.
    Keys,
    /// Nothing: the answers are counted.
    Count,
    /// The values at the path of the first condition, and at `pad`.
    Values,
}

impl Shown {
    /// All of them.
    pub const EACH: [Self; 4] = [Self::Records, Self::Keys, Self::Count, Self::Values];
}

impl Condition {
    /// The attribute that it looks at.
    pub fn path(&self) -> &str {
        match self {
            Self::Equals(path, _) | Self::Within(path, ..) => path,
            Self::Intersects(path, _) | Self::Near(path, _) => path,
        }
    }

    /// Whether it bounds values rather than naming one.
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
            Self::Intersects(..) | Self::Near(..) => false,
        }
    }

    /// Whether the record meets a condition on places.
    fn meets(&self, row: &Row) -> bool {
        let rects = rects_at(&row.parsed, self.path());
        match self {
            Self::Equals(..) | Self::Within(..) => false,
            Self::Near(..) => !rects.is_empty(),
            Self::Intersects(_, [low_x, low_y, high_x, high_y]) => rects.iter().any(|[a, b, c, d]| {
                let apart = c < low_x || high_x < a || d < low_y || high_y < b;
                !apart
            }),
        }
    }

    /// Whether it is about places.
    pub fn is_spatial(&self) -> bool {
        matches!(self, Self::Intersects(..) | Self::Near(..))
    }

    /// The square of the distance of the record's nearest rectangle.
    fn distance(&self, row: &Row) -> Option<f64> {
        let Self::Near(path, [x, y]) = self else { return None };
        let along = |low: f64, at: f64, high: f64| if at < low { low - at } else { (at - high).max(0.0) };
        let squares = rects_at(&row.parsed, path).into_iter().map(|[a, b, c, d]| {
            let (over, up) = (along(a, *x, c), along(b, *y, d));
            over * over + up * up
        });
        squares.min_by(f64::total_cmp)
    }

    /// The values of the record that meet the condition.
    fn hits<'a>(&self, row: &'a Row) -> Vec<&'a Value> {
        values_at(&row.parsed, self.path()).into_iter().filter(|value| self.accepts(value)).collect()
    }
}

impl Question {
    /// All records in which the path has a value of the type of `low`, in order of writing.
    pub fn every(path: &str, low: Value, high: Value) -> Self {
        Self {
            conditions: vec![Condition::Within(path.to_owned(), low, high)],
            arrangement: Arrangement::Newest,
            limit: None,
            limit_per_value: None,
            shown: Shown::Records,
            pick: 0,
        }
    }

    /// A question that hits some of the records of [`record`](crate::record::record).
    pub fn random(rng: &mut SimRng) -> Self {
        let mut conditions = vec![random_condition(rng)];
        if rng.one_in(5) {
            conditions.push(random_condition(rng));
        }
        let arrangement = match rng.below(6) {
            0 => Arrangement::Oldest,
            1 => Arrangement::Value,
            2 => Arrangement::ValueDescending,
            _ => Arrangement::Newest,
        };
        let limit = match rng.below(5) {
            0 => None,
            1 => Some(1),
            2 => Some(100),
            _ => Some(1 + rng.below(12) as usize),
        };
        let has_range = conditions.iter().any(Condition::is_range);
        let limit_per_value = (has_range && rng.one_in(3)).then(|| rng.below(4) as usize);
        let (mut arrangement, mut limit_per_value) = (arrangement, limit_per_value);
        if rng.one_in(12) {
            let point = [(); 2].map(|()| crate::record::coordinate(rng));
            conditions.push(Condition::Near(crate::record::spatial_path(rng).to_owned(), point));
            (arrangement, limit_per_value) = (Arrangement::Nearest, None);
        }
        let shown = match rng.below(7) {
            0..=1 => Shown::Keys,
            2 => Shown::Count,
            3 => Shown::Values,
            _ => Shown::Records,
        };
        Self { conditions, arrangement, limit, limit_per_value, shown, pick: rng.next_u64() }
    }

    /// The paths whose values it asks for; none unless it shows values.
    pub fn selected(&self) -> Vec<&str> {
        let first = self.conditions.first().map_or("s", Condition::path);
        if self.shown == Shown::Values { vec![first, "pad"] } else { Vec::new() }
    }

    /// The rows that answer it, in order.
    ///
    /// Equal values come newest first, in both orders by value.
    pub fn answer<'a>(&self, rows: &'a Rows) -> Vec<(&'a [u8], &'a Arc<Row>)> {
        let mut found: Vec<Hit<'a>> = rows.iter().filter_map(|(key, row)| self.hit(key, row)).collect();
        let newest_first = |left: &Hit<'_>, right: &Hit<'_>| right.row.order.cmp(&left.row.order);
        found.sort_by(|left, right| match self.arrangement {
            Arrangement::Newest => newest_first(left, right),
            Arrangement::Oldest => newest_first(right, left),
            Arrangement::Value => compare_some(left.least, right.least).then(newest_first(left, right)),
            Arrangement::ValueDescending => {
                compare_some(right.most, left.most).then(newest_first(left, right))
            }
            Arrangement::Nearest => {
                let by_distance = left.distance.partial_cmp(&right.distance);
                by_distance.unwrap_or(Ordering::Equal).then(newest_first(left, right))
            }
        });
        if let Some(limit) = self.limit_per_value {
            self.keep_of_each_value(&mut found, limit);
        }
        found.truncate(self.limit.unwrap_or(usize::MAX));
        found.into_iter().map(|hit| (hit.key, hit.row)).collect()
    }

    /// Leaves the first `limit` hits of each value, which are in order. A record stands at one of its values: the
    /// largest in the order by value descending, else the smallest.
    fn keep_of_each_value(&self, found: &mut Vec<Hit<'_>>, limit: usize) {
        let mut counts: Vec<(Option<&Value>, usize)> = Vec::new();
        found.retain(|hit| {
            let value = match self.arrangement {
                Arrangement::ValueDescending => hit.most,
                _ => hit.least,
            };
            let known = counts.iter().position(|(known, _)| compare_some(*known, value).is_eq());
            let place = known.unwrap_or_else(|| {
                counts.push((value, 0));
                counts.len() - 1
            });
            counts[place].1 += 1;
            counts[place].1 <= limit
        });
    }

    /// The row, if it meets all conditions.
    fn hit<'a>(&self, key: &'a [u8], row: &'a Arc<Row>) -> Option<Hit<'a>> {
        let mut hit = Hit { key, row, least: None, most: None, distance: None };
        let mut ranges = 0;
        for condition in &self.conditions {
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
            if ranges == 1 && hit.least.is_none() {
                hit.least = values.iter().copied().min_by(|left, right| compare(left, right));
                hit.most = values.iter().copied().max_by(|left, right| compare(left, right));
            }
        }
        Some(hit)
    }
}

/// A row that meets all conditions, with the values that the first range found.
struct Hit<'a> {
    key: &'a [u8],
    row: &'a Arc<Row>,
    least: Option<&'a Value>,
    most: Option<&'a Value>,
    /// The square of the distance that the order goes by.
    distance: Option<f64>,
}

fn compare_some(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) => compare(left, right),
        _ => Ordering::Equal,
    }
}

fn random_condition(rng: &mut SimRng) -> Condition {
    if rng.one_in(6) {
        let corner = [(); 2].map(|()| crate::record::coordinate(rng));
        let size = [(); 2].map(|()| f64::from(rng.below(5) as u32) / 2.0);
        let window = [corner[0], corner[1], corner[0] + size[0], corner[1] + size[1]];
        return Condition::Intersects(crate::record::spatial_path(rng).to_owned(), window);
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
        return Condition::Equals(path.to_owned(), one);
    }
    // Both ends of one type; null and booleans have no ranges worth asking for.
    let mut other = scalar(rng);
    for _ in 0..8 {
        if same_type(&one, &other) {
            break;
        }
        other = scalar(rng);
    }
    if !same_type(&one, &other) || one.is_null() || one.is_boolean() {
        return Condition::Equals(path.to_owned(), one);
    }
    let (low, high) = if compare(&one, &other) == Ordering::Greater { (other, one) } else { (one, other) };
    Condition::Within(path.to_owned(), low, high)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(path, value) => write!(f, "{path} = {value}"),
            Self::Within(path, low, high) => write!(f, "{path} in {low}..{high}"),
            Self::Intersects(path, window) => write!(f, "{path} meets {window:?}"),
            Self::Near(path, point) => write!(f, "{path} near {point:?}"),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, condition) in self.conditions.iter().enumerate() {
            write!(f, "{}{condition}", if i == 0 { "" } else { " and " })?;
        }
        write!(f, ", {:?}", self.arrangement)?;
        if let Some(limit) = self.limit {
            write!(f, ", at most {limit}")?;
        }
        if let Some(limit) = self.limit_per_value {
            write!(f, ", at most {limit} of each value")?;
        }
        write!(f, ", {:?}", self.shown)
    }
}
