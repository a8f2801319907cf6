//! Predicates: conditions on one attribute, and their text form.
//!
//! ```text
//! equality  path "=" value
//! range     path "=" [value] ".." [value]      both ends included, one may be omitted
//! within    name "=" rectangle                 min_x,min_y,max_x,max_y
//! nearest   name "=" point                     x,y
//! ```
//!
//! A value is JSON if it parses as JSON, else a string. In a range, `..` inside a quoted string does not split, and a
//! string that contains `..` must be quoted.
//!
//! Types matter: `1` equals `1.0` and differs from `"1"`. A range contains values of the type of its ends only, numbers or
//! strings; its two ends have one type. An attribute with several values satisfies a condition if one of them does; two
//! conditions on it may be satisfied by two different values. An absent attribute satisfies none.
//!
//! A [spatial](crate::space) attribute, `rect(path)` or `point(x,y)`, has only the last two conditions. *Within* is
//! satisfied by a rectangle that shares a point with the given one, edges included; *nearest* by every rectangle, and
//! orders the answers by distance.

use std::cell::Cell;
use std::fmt;
use std::ops::{Bound, Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive};

use bolide_base::checksum::hash_key;
use bolide_base::{Error, Result};

use crate::attribute::{self, Value, ValueClass};
use crate::path::{self, AttributePath, PathShape, PathStep};
use crate::short_bytes::ShortBytes;
use crate::space::{Point, Rect};

/// Maximum memory for an encoded value that a thread retains, in bytes.
const MAX_RETAINED_BYTES: usize = 4_096;

/// A condition on the values of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// One value equals this one.
    Equal(Value),
    /// One value is between these ends, and has their type.
    Range(Bound<Value>, Bound<Value>),
    /// One value is a string that starts with this one.
    Prefix(String),
    /// The attribute has a value; null is one.
    Exists,
    /// One point or rectangle shares a point with this rectangle; touching edges count.
    Within(Rect),
    /// The attribute has a point or rectangle. Answers are ordered by the distance from this point.
    Nearest(Point),
}

/// A condition on the attribute at a path.
///
/// ```
/// use bolide_index::Predicate;
/// let equal = Predicate::parse_equal("user.id=7")?;
/// let range = Predicate::parse_range(r#"name="a..".."b""#)?;
/// assert_eq!(equal.to_string(), "user.id=7");
/// assert_eq!(range.to_string(), r#"name="a..".."b""#);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    path: AttributePath,
    condition: Condition,
    range: EncodedRange,
}

/// The encoded values in `low..end`, which satisfy a condition. Empty if `low >= end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncodedRange {
    pub(crate) low: ShortBytes,
    pub(crate) end: ShortBytes,
    /// Restricts the rectangles in the range to those that intersect this one.
    pub(crate) window: Option<Rect>,
}

impl EncodedRange {
    #[inline]
    pub(crate) fn contains(&self, encoded: &[u8]) -> bool {
        encoded >= &*self.low
            && encoded < &*self.end
            && self.window.as_ref().is_none_or(|window| intersects(window, encoded))
    }

    /// The values that equal `value`.
    ///
    /// # Errors
    /// `InvalidInput` for NaN.
    pub(crate) fn equal(value: &Value) -> Result<Self> {
        with_encoded(value, |key| {
            let low = ShortBytes::from(&**key);
            attribute::make_successor(key);
            Self { low, end: ShortBytes::from(&**key), window: None }
        })
    }

    /// All values that are no rectangles.
    fn scalars() -> Self {
        let ((first, _), (_, behind)) = (ValueClass::Null.bounds(), ValueClass::String.bounds());
        Self { low: ShortBytes::from(&[first][..]), end: ShortBytes::from(&[behind][..]), window: None }
    }

    /// All rectangles, or those that intersect `window`.
    fn spatial(window: Option<Rect>) -> Self {
        let (first, behind) = ValueClass::Rect.bounds();
        Self { low: ShortBytes::from(&[first][..]), end: ShortBytes::from(&[behind][..]), window }
    }
}

#[inline(never)]
fn intersects(window: &Rect, encoded: &[u8]) -> bool {
    attribute::decode_rect(encoded).is_some_and(|rect| rect.intersects(window))
}

/// The argument of [`Predicate::range`]: Rust's ranges with at least one end, over anything that converts to a
/// [`Value`].
pub trait ValueRange {
    /// The two ends.
    fn into_bounds(self) -> (Bound<Value>, Bound<Value>);
}

macro_rules! value_range {
    ($($range:ty: $self:ident => $low:expr, $high:expr;)*) => {$(
        impl<T: Into<Value>> ValueRange for $range {
            fn into_bounds($self) -> (Bound<Value>, Bound<Value>) {
                ($low, $high)
            }
        }
    )*};
}

value_range! {
    Range<T>: self => Bound::Included(self.start.into()), Bound::Excluded(self.end.into());
    RangeFrom<T>: self => Bound::Included(self.start.into()), Bound::Unbounded;
    RangeTo<T>: self => Bound::Unbounded, Bound::Excluded(self.end.into());
    RangeToInclusive<T>: self => Bound::Unbounded, Bound::Included(self.end.into());
    (Bound<T>, Bound<T>): self => self.0.map(Into::into), self.1.map(Into::into);
}

impl<T: Into<Value>> ValueRange for RangeInclusive<T> {
    fn into_bounds(self) -> (Bound<Value>, Bound<Value>) {
        let (start, end) = self.into_inner();
        (Bound::Included(start.into()), Bound::Included(end.into()))
    }
}

/// Combines a hash with `part`, which is a hash itself or one of few numbers.
#[inline]
pub(crate) fn combine(hash: u64, part: u64) -> u64 {
    (hash.rotate_left(1) ^ part).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32)
}

impl Predicate {
    /// A hash of the path, the kind and the values of the predicate.
    pub(crate) fn fingerprint(&self) -> u64 {
        // The end of an equality is determined by its value.
        let end = if self.is_equal() { 0 } else { hash_key(&self.range.end) };
        let ends = [hash_key(&self.range.low), end, u64::from(self.is_equal())];
        let hash = |steps: &[PathStep], hash: u64| {
            let steps = steps.iter().map(|step| match step {
                PathStep::Field(name) => hash_key(name.as_bytes()),
                PathStep::Elements => 1,
            });
            steps.fold(hash, combine)
        };
        let plain = hash(self.path.steps(), ends.into_iter().fold(0, combine));
        let shaped = match self.path.shape() {
            PathShape::Scalar => return plain,
            PathShape::Rect => combine(plain, 2),
            PathShape::Point(second) => hash(second, combine(plain, 3)),
        };
        let numbers = match &self.condition {
            Condition::Within(rect) => rect.corners().to_vec(),
            Condition::Nearest(point) => vec![point.x(), point.y()],
            Condition::Equal(_) | Condition::Range(..) | Condition::Prefix(_) | Condition::Exists => {
                Vec::new()
            }
        };
        numbers.into_iter().map(f64::to_bits).fold(shaped, combine)
    }

    /// The attribute at `path` equals `value`.
    ///
    /// # Errors
    /// `InvalidInput` for NaN, which equals nothing.
    pub fn equal(path: AttributePath, value: impl Into<Value>) -> Result<Self> {
        Self::new(path, Condition::Equal(value.into()))
    }

    /// The attribute at `path` lies in `range`.
    ///
    /// # Errors
    /// `InvalidInput` if the range has no end, ends of two types, or ends that are neither numbers
    /// nor strings. A range whose low end is above its high end is valid and empty.
    ///
    /// ```
    /// use bolide_index::Predicate;
    /// assert!(Predicate::range("score".parse()?, 10..=20).is_ok());
    /// assert!(Predicate::range("score".parse()?, 1.5..).is_ok());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn range(path: AttributePath, range: impl ValueRange) -> Result<Self> {
        let (low, high) = range.into_bounds();
        Self::new(path, Condition::Range(low, high))
    }

    /// The attribute at `path` has a point or rectangle that intersects `window`; touching edges count.
    ///
    /// # Errors
    /// `InvalidInput` if the path is not [spatial](crate::space).
    ///
    /// ```
    /// use bolide_index::{Predicate, Rect};
    /// let window = Rect::new(-0.1, 51.5, 0.1, 51.6)?;
    /// assert!(Predicate::within("rect(bbox)".parse()?, window).is_ok());
    /// assert!(Predicate::within("bbox".parse()?, window).is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn within(path: AttributePath, window: Rect) -> Result<Self> {
        Self::new(path, Condition::Within(window))
    }

    /// The attribute at `path` has a point or rectangle; the query can be ordered by its distance from `point`.
    ///
    /// # Errors
    /// As [`within`](Self::within).
    pub fn nearest(path: AttributePath, point: Point) -> Result<Self> {
        Self::new(path, Condition::Nearest(point))
    }

    /// One value of the attribute at `path` is a string that starts with `prefix`; every string starts with the empty one.
    ///
    /// # Errors
    /// `InvalidInput` if the path is [spatial](crate::space).
    ///
    /// ```
    /// use bolide_index::Predicate;
    /// assert_eq!(Predicate::prefix("name".parse()?, "ab")?.to_string(), r#"name="ab"*"#);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn prefix(path: AttributePath, prefix: impl Into<String>) -> Result<Self> {
        Self::new(path, Condition::Prefix(prefix.into()))
    }

    /// The attribute at `path` has a value; null is one. A spatial attribute has a point or rectangle.
    ///
    /// ```
    /// use bolide_index::Predicate;
    /// assert_eq!(Predicate::exists("name".parse()?).to_string(), "name exists");
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn exists(path: AttributePath) -> Self {
        // Without an error: it has no value.
        let range = if path.is_spatial() { EncodedRange::spatial(None) } else { EncodedRange::scalars() };
        Self { path, condition: Condition::Exists, range }
    }

    pub(crate) fn new(path: AttributePath, condition: Condition) -> Result<Self> {
        let spatial = match condition {
            Condition::Within(_) | Condition::Nearest(_) => true,
            Condition::Exists => path.is_spatial(),
            Condition::Equal(_) | Condition::Range(..) | Condition::Prefix(_) => false,
        };
        if spatial != path.is_spatial() {
            return Err(Error::invalid_input(if spatial {
                format!("`{path}` is not spatial: write rect({path}), or point(X,Y) with two paths")
            } else {
                format!("`{path}` is spatial, where values have no order: use a predicate within a rectangle")
            }));
        }
        let range = match condition {
            Condition::Exists if path.is_spatial() => EncodedRange::spatial(None),
            _ => encode_condition(&condition)?,
        };
        Ok(Self { path, condition, range })
    }

    /// Parses `PATH=VALUE`.
    ///
    /// # Errors
    /// `InvalidInput` for text of another form, and for a value that is an array or an object.
    pub fn parse_equal(text: &str) -> Result<Self> {
        let (path, value) = split_path(text, "PATH=VALUE")?;
        let with_context = |error: Error| error.context(format_args!("predicate `{text}`"));
        Self::equal(path, parse_value(value).map_err(with_context)?).map_err(with_context)
    }

    /// Parses `PATH=A..B`, where `A` or `B` may be omitted.
    ///
    /// # Errors
    /// `InvalidInput` for text of another form, for a range that contains nothing, such as `10..5`, and as
    /// [`range`](Self::range).
    pub fn parse_range(text: &str) -> Result<Self> {
        let (path, range) = split_path(text, "PATH=A..B")?;
        let with_context = |error: Error| error.context(format_args!("predicate `{text}`"));
        let (low, high) = split_range(range).map_err(with_context)?;
        let end = |text: &str| match text {
            "" => Ok(Bound::Unbounded),
            _ => parse_value(text).map(Bound::Included),
        };
        let ends = (end(low).map_err(with_context)?, end(high).map_err(with_context)?);
        // Two ends of different types: often a number that is no JSON, such as `007` or `1_000`.
        let is_bare = |text: &str, end: &Bound<Value>| {
            matches!(end, Bound::Included(Value::String(_))) && !text.trim_start().starts_with('"')
        };
        let bare = match &ends {
            (Bound::Included(first), Bound::Included(second)) if first.class() != second.class() => {
                [(low, &ends.0), (high, &ends.1)].into_iter().find(|(text, end)| is_bare(text, end))
            }
            _ => None,
        };
        let bare = bare.map(|(text, _)| format!("`{text}` is no JSON, so it is a text"));
        let predicate = Self::new(path, Condition::Range(ends.0, ends.1)).map_err(|error| match &bare {
            Some(bare) => with_context(error).context(bare),
            None => with_context(error),
        })?;
        predicate.check_not_empty().map_err(with_context)?;
        Ok(predicate)
    }

    /// Parses `NAME=MIN_X,MIN_Y,MAX_X,MAX_Y`. NAME is `rect(PATH)`, `point(X,Y)`, or a name that `named` resolves.
    ///
    /// # Errors
    /// `InvalidInput` for text of another form, for an unknown name, and for an invalid [rectangle](Rect::new).
    ///
    /// ```
    /// use bolide_index::Predicate;
    /// let within = Predicate::parse_within("rect(bbox)=0,0,1,2.5", |_| None)?;
    /// assert_eq!(within.to_string(), "rect(bbox)=0,0,1,2.5");
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn parse_within(text: &str, named: impl Fn(&str) -> Option<AttributePath>) -> Result<Self> {
        let (name, window) = split_name(text, "NAME=MIN_X,MIN_Y,MAX_X,MAX_Y")?;
        let with_context = |error: Error| error.context(format_args!("predicate `{text}`"));
        let path = resolve(name, named).map_err(with_context)?;
        Self::within(path, window.parse().map_err(with_context)?).map_err(with_context)
    }

    /// Parses `NAME=X,Y`; see [`parse_within`](Self::parse_within).
    ///
    /// # Errors
    /// As [`parse_within`](Self::parse_within).
    pub fn parse_nearest(text: &str, named: impl Fn(&str) -> Option<AttributePath>) -> Result<Self> {
        let (name, point) = split_name(text, "NAME=X,Y")?;
        let with_context = |error: Error| error.context(format_args!("predicate `{text}`"));
        let path = resolve(name, named).map_err(with_context)?;
        Self::nearest(path, point.parse().map_err(with_context)?).map_err(with_context)
    }

    /// The attribute.
    pub fn path(&self) -> &AttributePath {
        &self.path
    }

    /// The condition.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// True for an equality.
    pub fn is_equal(&self) -> bool {
        matches!(self.condition, Condition::Equal(_))
    }

    /// Whether it holds for every record with a rectangle and measures distances from a point: it orders the answers, and
    /// selects little.
    pub fn is_nearest(&self) -> bool {
        matches!(self.condition, Condition::Nearest(_))
    }

    /// Whether it is a range or a prefix, whose values can order the answers.
    pub fn is_range(&self) -> bool {
        matches!(self.condition, Condition::Range(..) | Condition::Prefix(_))
    }

    /// Refuses a range that no value satisfies.
    ///
    /// # Errors
    /// `InvalidInput` if the low end is above the high end, or equal to it without being included.
    pub(crate) fn check_not_empty(&self) -> Result<()> {
        if self.range.low < self.range.end {
            return Ok(());
        }
        Err(Error::invalid_input("this range contains nothing: its low end is not below its high end"))
    }

    /// The encoded values that satisfy the predicate.
    pub(crate) fn encoded_range(&self) -> &EncodedRange {
        &self.range
    }
}

fn encode_condition(condition: &Condition) -> Result<EncodedRange> {
    match condition {
        Condition::Equal(value) => EncodedRange::equal(value),
        Condition::Range(low, high) => encode_range(low, high),
        Condition::Prefix(prefix) => Ok(encode_prefix(prefix)),
        Condition::Exists => Ok(EncodedRange::scalars()),
        Condition::Within(window) => Ok(EncodedRange::spatial(Some(*window))),
        Condition::Nearest(_) => Ok(EncodedRange::spatial(None)),
    }
}

thread_local! {
    /// A buffer for encoded values.
    static ENCODED: Cell<Vec<u8>> = Cell::default();
}

/// Calls `then` with the encoded `value`, which it may modify.
fn with_encoded<T>(value: &Value, then: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
    let mut key = ENCODED.take();
    key.clear();
    let done = value.encode(&mut key).map(|()| then(&mut key));
    if key.capacity() <= MAX_RETAINED_BYTES {
        ENCODED.set(key);
    }
    done
}

/// The strings that start with `prefix`.
fn encode_prefix(prefix: &str) -> EncodedRange {
    let mut key = Vec::with_capacity(prefix.len() + 3);
    attribute::encode_str(&mut key, prefix);
    // Without the end of the string, which is two bytes.
    key.truncate(key.len() - 2);
    let low = ShortBytes::from(&*key);
    attribute::make_successor(&mut key);
    EncodedRange { low, end: ShortBytes::from(&*key), window: None }
}

fn encode(value: &Value) -> Result<ShortBytes> {
    with_encoded(value, |key| ShortBytes::from(&**key))
}

fn encode_range(low: &Bound<Value>, high: &Bound<Value>) -> Result<EncodedRange> {
    let class = match (range_class(low)?, range_class(high)?) {
        (Some(low), Some(high)) if low != high => {
            return Err(Error::invalid_input(format!(
                "the ends of a range must have one type; these are {} and {}",
                low.name(),
                high.name()
            )));
        }
        (Some(class), _) | (None, Some(class)) => class,
        (None, None) => return Err(Error::invalid_input("a range needs at least one end")),
    };
    let (first, behind) = class.bounds();
    // A key with the value continues after it, so the end of this value is after all extensions.
    let after_all = |value: &Value| {
        with_encoded(value, |key| {
            attribute::make_successor(key);
            ShortBytes::from(&**key)
        })
    };
    Ok(EncodedRange {
        low: match low {
            Bound::Included(value) => encode(value)?,
            Bound::Excluded(value) => after_all(value)?,
            Bound::Unbounded => ShortBytes::from(&[first][..]),
        },
        end: match high {
            Bound::Included(value) => after_all(value)?,
            Bound::Excluded(value) => encode(value)?,
            Bound::Unbounded => ShortBytes::from(&[behind][..]),
        },
        window: None,
    })
}

fn range_class(end: &Bound<Value>) -> Result<Option<ValueClass>> {
    let (Bound::Included(value) | Bound::Excluded(value)) = end else {
        return Ok(None);
    };
    match value.class() {
        class @ (ValueClass::Number | ValueClass::String) => Ok(Some(class)),
        class => Err(Error::invalid_input(format!(
            "a range has numbers or strings as its ends; its end {value} is {}",
            class.name()
        ))),
    }
}

fn split_path<'t>(text: &'t str, form: &str) -> Result<(AttributePath, &'t str)> {
    let (path, value) = split_name(text, form)?;
    Ok((path.parse()?, value))
}

fn split_name<'t>(text: &'t str, form: &str) -> Result<(&'t str, &'t str)> {
    path::split_once_unescaped(text, '=')
        .ok_or_else(|| Error::invalid_input(format!("predicate `{text}` has no `=`: write {form}")))
}

/// The spatial attribute with the text or the name `name`.
fn resolve(name: &str, named: impl Fn(&str) -> Option<AttributePath>) -> Result<AttributePath> {
    match name.parse::<AttributePath>() {
        Ok(path) if path.is_spatial() => Ok(path),
        parsed => named(name).map_or(parsed, Ok),
    }
}

/// Parses a value: JSON if it parses as JSON, else a string.
///
/// # Errors
/// `InvalidInput` for an array, an object, or a number that exceeds the range of floats.
///
/// ```
/// use bolide_index::{Value, predicate::parse_value};
/// assert_eq!(parse_value("7")?, Value::Int(7));
/// assert_eq!(parse_value("\"7\"")?, Value::from("7"));
/// assert_eq!(parse_value("seven")?, Value::from("seven"));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn parse_value(text: &str) -> Result<Value> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(json) => Value::from_json(&json).ok_or_else(|| {
            Error::invalid_input(
                "a value is null, true, false, a number or a string, not an array or an object",
            )
        }),
        Err(_)
            if text.parse::<f64>().is_ok_and(f64::is_infinite)
                && text.contains(|c: char| c.is_ascii_digit()) =>
        {
            Err(Error::invalid_input(format!("the number {text} is out of range")))
        }
        Err(_) => Ok(Value::from(text)),
    }
}

/// Splits a range at the `..` outside of quoted strings.
fn split_range(text: &str) -> Result<(&str, &str)> {
    let (low, rest) = take_end(text)?;
    let high = rest
        .strip_prefix("..")
        .ok_or_else(|| Error::invalid_input("a range has the form A..B, A.. or ..B"))?;
    match take_end(high)? {
        (_, "") => Ok((low, high)),
        _ => Err(Error::invalid_input("a range has one `..`; put strings with dots in double quotes")),
    }
}

/// Takes one end of a range from the front of `text`; the rest is empty or starts with `..`.
fn take_end(text: &str) -> Result<(&str, &str)> {
    let Some(quoted) = text.trim_start().strip_prefix('"') else {
        return Ok(text.split_at(text.find("..").unwrap_or(text.len())));
    };
    let mut escaped = false;
    let close = quoted.find(|character| {
        let closes = !escaped && character == '"';
        escaped = !escaped && character == '\\';
        closes
    });
    let rest = match close {
        Some(close) => quoted[close + 1..].trim_start(),
        None => return Err(Error::invalid_input("a double quote is not closed")),
    };
    if !rest.is_empty() && !rest.starts_with("..") {
        return Err(Error::invalid_input("only `..` may follow a quoted string in a range"));
    }
    Ok((&text[..text.len() - rest.len()], rest))
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.condition == Condition::Exists {
            return write!(f, "{} exists", self.path);
        }
        write!(f, "{}=", self.path)?;
        match &self.condition {
            Condition::Exists => Ok(()),
            Condition::Prefix(prefix) => write!(f, "{}*", Value::from(prefix.as_str())),
            Condition::Equal(value) => write!(f, "{value}"),
            Condition::Within(window) => write!(f, "{window}"),
            Condition::Nearest(point) => write!(f, "{point}"),
            Condition::Range(low, high) => {
                match low {
                    Bound::Included(value) => write!(f, "{value}..")?,
                    Bound::Excluded(value) => write!(f, "{value}<..")?,
                    Bound::Unbounded => f.write_str("..")?,
                }
                match high {
                    Bound::Included(value) => write!(f, "{value}"),
                    Bound::Excluded(value) => write!(f, "<{value}"),
                    Bound::Unbounded => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "predicate_tests.rs"]
mod tests;
