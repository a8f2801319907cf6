//! Values of attributes, their total order, and their order-preserving encoding.
//!
//! ```text
//! null     10
//! false    20
//! true     21
//! number   30  f64 of the number, order-preserving, big-endian (8)  difference + 8000h, big-endian (2)
//! string   40  UTF-8 bytes, 00 written as 00 FF  00 01
//! rect     50  the four coordinates, order-preserving, big-endian (32)
//! ```
//!
//! A number is the nearest `f64` and the exact difference between the number and that `f64`: 0 for
//! every float and for integers up to 2^53, at most 1024 either way for the rest of `i64` and `u64`.
//! So integers and floats compare by value and without loss, and `1` and `1.0` have the same bytes.
//!
//! Invariants: the encodings of two values compare like the values. No encoding is a prefix of another, so that the
//! concatenation of several values sorts attribute by attribute. Equal values have equal encodings (`-0.0` is `0`); NaN has
//! none.
//!
//! The order of types is null, bool, number, string, rectangle. Strings sort by code point, rectangles
//! lexicographically by their coordinates.

use std::cmp::Ordering;
use std::fmt;

use bolide_base::{Error, Result};

use crate::space::Rect;

/// Represents an absent attribute inside a key of several attributes; sorts before every value.
pub(crate) const TAG_ABSENT: u8 = 0x08;
const TAG_NULL: u8 = 0x10;
const TAG_FALSE: u8 = 0x20;
const TAG_TRUE: u8 = 0x21;
const TAG_NUMBER: u8 = 0x30;
const TAG_STRING: u8 = 0x40;
const TAG_RECT: u8 = 0x50;

/// Bytes of an encoded number.
const NUMBER_BYTES: usize = 11;
/// Bytes of an encoded rectangle.
const RECT_BYTES: usize = 1 + Rect::ENCODED_BYTES;
const SIGN_BIT: u64 = 1 << 63;
/// Bias of the difference between an integer and its `f64`, so that it sorts as an unsigned number.
const DIFFERENCE_BIAS: i128 = 0x8000;
/// Largest difference between an integer of 64 bits and the `f64` nearest to it.
const MAX_DIFFERENCE: i128 = 1024;
/// All integers up to here, and their negatives, are exact as `f64`.
const EXACT_INTEGERS: u64 = 1 << 53;

/// The value of an attribute.
///
/// The total order is null < false < true < numbers < strings < rectangles. Numbers compare by value across the
/// three number variants, so `Int(1)`, `Uint(1)` and `Float(1.0)` are equal. NaN compares as greater than all
/// numbers, but no key can contain it.
///
/// ```
/// use bolide_index::Value;
/// assert_eq!(Value::Int(1), Value::Float(1.0));
/// assert_ne!(Value::Int(1), Value::from("1"));
/// assert!(Value::Uint(u64::MAX) < Value::Float(18446744073709551616.0));
/// ```
#[derive(Debug, Clone)]
pub enum Value {
    /// JSON's `null`. An absent attribute is not null: it has no value.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// Any other number.
    Float(f64),
    /// Text.
    String(String),
    /// A rectangle or a point: the value of a [spatial](crate::space) attribute.
    Rect(Rect),
}

/// The type of a value, for order and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ValueClass {
    Null,
    Bool,
    Number,
    String,
    Rect,
}

impl ValueClass {
    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Rect => "a rectangle",
        }
    }

    /// The first byte of the encodings of this class, and the exclusive end.
    pub(crate) fn bounds(self) -> (u8, u8) {
        match self {
            Self::Null => (TAG_NULL, TAG_NULL + 1),
            Self::Bool => (TAG_FALSE, TAG_TRUE + 1),
            Self::Number => (TAG_NUMBER, TAG_NUMBER + 1),
            Self::String => (TAG_STRING, TAG_STRING + 1),
            Self::Rect => (TAG_RECT, TAG_RECT + 1),
        }
    }
}

impl Value {
    pub(crate) fn class(&self) -> ValueClass {
        match self {
            Self::Null => ValueClass::Null,
            Self::Bool(_) => ValueClass::Bool,
            Self::Int(_) | Self::Uint(_) | Self::Float(_) => ValueClass::Number,
            Self::String(_) => ValueClass::String,
            Self::Rect(_) => ValueClass::Rect,
        }
    }

    /// Appends the encoding, which sorts like this value.
    ///
    /// ```
    /// use bolide_index::Value;
    /// let key = |value: Value| {
    ///     let mut out = Vec::new();
    ///     value.encode(&mut out).map(|()| out)
    /// };
    /// assert!(key(Value::Int(2))? < key(Value::Float(2.5))?);
    /// assert!(key(Value::Int(i64::MAX))? < key(Value::from(""))?);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for NaN.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Null => encode_null(out),
            Self::Bool(value) => encode_bool(out, *value),
            Self::Int(value) => encode_i64(out, *value),
            Self::Uint(value) => encode_u64(out, *value),
            Self::Float(value) => encode_f64(out, *value)?,
            Self::String(value) => encode_str(out, value),
            Self::Rect(value) => encode_rect(out, value),
        }
        Ok(())
    }

    /// Decodes one value at the front of `input`. Returns it with the length of its encoding.
    ///
    /// Numbers become `Int` if they are integers in its range, else `Uint` if possible, else `Float`.
    /// `None` for bytes that [`encode`](Self::encode) does not write.
    ///
    /// ```
    /// use bolide_index::Value;
    /// let mut key = Vec::new();
    /// Value::from("red").encode(&mut key)?;
    /// assert_eq!(Value::decode(&key), Some((Value::from("red"), key.len())));
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn decode(input: &[u8]) -> Option<(Self, usize)> {
        match *input.first()? {
            TAG_NULL => Some((Self::Null, 1)),
            TAG_FALSE => Some((Self::Bool(false), 1)),
            TAG_TRUE => Some((Self::Bool(true), 1)),
            TAG_NUMBER => Some((decode_number(input)?, NUMBER_BYTES)),
            TAG_STRING => {
                let len = encoded_len(input)?;
                Some((decode_string(input.get(1..len - 2)?)?, len))
            }
            TAG_RECT => Some((Self::Rect(Rect::decode(input.get(1..)?)?), RECT_BYTES)),
            _ => None,
        }
    }

    /// The value of a JSON scalar; `None` for an array or an object.
    ///
    /// ```
    /// use bolide_index::Value;
    /// assert_eq!(Value::from_json(&serde_json::json!(2.0)), Some(Value::Int(2)));
    /// assert_eq!(Value::from_json(&serde_json::json!([2])), None);
    /// ```
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        Some(match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Self::Int(value),
                (None, Some(value)) => Self::Uint(value),
                (None, None) => Self::Float(number.as_f64()?),
            },
            serde_json::Value::String(value) => Self::String(value.clone()),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => return None,
        })
    }

    /// The value as JSON. Floats that JSON does not support become null, a rectangle the array of its coordinates.
    ///
    /// ```
    /// assert_eq!(bolide_index::Value::from("a").to_json(), serde_json::json!("a"));
    /// ```
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::String(value) => value.as_str().into(),
            Self::Rect(value) => value.corners().as_slice().into(),
        }
    }
}

/// Prints the value as JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => left.cmp(right),
            (Self::String(left), Self::String(right)) => left.cmp(right),
            (Self::Rect(left), Self::Rect(right)) => compare_rects(left, right),
            (left, right) if left.class() == ValueClass::Number && right.class() == ValueClass::Number => {
                compare_numbers(left, right)
            }
            (left, right) => left.class().cmp(&right.class()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

macro_rules! value_from {
    ($($source:ty => $make:expr),* $(,)?) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                $make(value)
            }
        }
    )*};
}

value_from! {
    bool => Self::Bool,
    i64 => Self::Int,
    i32 => |value: i32| Self::Int(value.into()),
    u32 => |value: u32| Self::Int(value.into()),
    u64 => Self::Uint,
    f64 => Self::Float,
    Rect => Self::Rect,
    String => Self::String,
    &str => |value: &str| Self::String(value.to_owned()),
}

fn compare_numbers(left: &Value, right: &Value) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_integer_float(left, float(right)),
        (None, Some(right)) => compare_integer_float(right, float(left)).reverse(),
        (None, None) => compare_floats(float(left), float(right)),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some((*value).into()),
        Value::Uint(value) => Some((*value).into()),
        _ => None,
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        _ => f64::NAN,
    }
}

fn compare_rects(left: &Rect, right: &Rect) -> Ordering {
    // Rectangles contain no NaN, so every comparison has a result.
    left.corners().partial_cmp(&right.corners()).unwrap_or(Ordering::Equal)
}

fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

fn compare_integer_float(integer: i128, float: f64) -> Ordering {
    if float.is_nan() || float >= u64::MAX as f64 {
        return Ordering::Less;
    }
    if float < i64::MIN as f64 {
        return Ordering::Greater;
    }
    // In this range truncation to i128 loses only the fraction.
    integer.cmp(&(float.trunc() as i128)).then_with(|| compare_floats(0.0, float.fract()))
}

#[inline]
pub(crate) fn encode_null(out: &mut Vec<u8>) {
    out.push(TAG_NULL);
}

#[inline]
pub(crate) fn encode_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { TAG_TRUE } else { TAG_FALSE });
}

#[inline]
pub(crate) fn encode_i64(out: &mut Vec<u8>, value: i64) {
    if value.unsigned_abs() <= EXACT_INTEGERS {
        put_number(out, value as f64, 0);
    } else {
        encode_wide(out, value.into(), value as f64);
    }
}

#[inline]
pub(crate) fn encode_u64(out: &mut Vec<u8>, value: u64) {
    if value <= EXACT_INTEGERS {
        put_number(out, value as f64, 0);
    } else {
        encode_wide(out, value.into(), value as f64);
    }
}

#[inline]
pub(crate) fn encode_f64(out: &mut Vec<u8>, value: f64) -> Result<()> {
    if value.is_nan() {
        return Err(Error::invalid_input("NaN cannot be ordered"));
    }
    encode_finite_f64(out, value);
    Ok(())
}

/// As [`encode_f64`] for a `value` that is not NaN.
#[inline]
pub(crate) fn encode_finite_f64(out: &mut Vec<u8>, value: f64) {
    debug_assert!(!value.is_nan());
    put_number(out, value, 0);
}

#[inline]
pub(crate) fn encode_str(out: &mut Vec<u8>, value: &str) {
    out.reserve(value.len() + 3);
    out.push(TAG_STRING);
    let mut rest = value.as_bytes();
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        let (head, tail) = rest.split_at(zero + 1);
        out.extend_from_slice(head);
        out.push(0xff);
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
}

#[inline]
pub(crate) fn encode_rect(out: &mut Vec<u8>, value: &Rect) {
    out.reserve(RECT_BYTES);
    out.push(TAG_RECT);
    value.encode(out);
}

/// The rectangle of an encoded value; `None` for a value of another type.
#[inline]
pub(crate) fn decode_rect(encoded: &[u8]) -> Option<Rect> {
    match encoded.split_first()? {
        (&TAG_RECT, coordinates) => Rect::decode(coordinates),
        _ => None,
    }
}

#[cold]
fn encode_wide(out: &mut Vec<u8>, value: i128, nearest: f64) {
    put_number(out, nearest, value - nearest as i128);
}

#[inline]
fn put_number(out: &mut Vec<u8>, nearest: f64, difference: i128) {
    // Adding zero turns -0.0 into 0.0.
    let bits = (nearest + 0.0).to_bits();
    let ordered = if bits & SIGN_BIT == 0 { bits | SIGN_BIT } else { !bits };
    let mut bytes = [0; NUMBER_BYTES];
    bytes[0] = TAG_NUMBER;
    bytes[1..9].copy_from_slice(&ordered.to_be_bytes());
    bytes[9..].copy_from_slice(&((difference + DIFFERENCE_BIAS) as u16).to_be_bytes());
    out.extend_from_slice(&bytes);
}

fn decode_number(input: &[u8]) -> Option<Value> {
    let (_, input) = input.split_first()?;
    let (ordered, input) = input.split_first_chunk::<8>()?;
    let ordered = u64::from_be_bytes(*ordered);
    let bits = if ordered & SIGN_BIT == 0 { !ordered } else { ordered ^ SIGN_BIT };
    let nearest = f64::from_bits(bits);
    if nearest.is_nan() || bits == SIGN_BIT {
        return None;
    }
    let difference = i128::from(u16::from_be_bytes(*input.first_chunk::<2>()?)) - DIFFERENCE_BIAS;
    let integral = nearest.fract() == 0.0 && (i64::MIN as f64..=u64::MAX as f64).contains(&nearest);
    if !integral {
        return (difference == 0).then_some(Value::Float(nearest));
    }
    if difference.abs() > MAX_DIFFERENCE {
        return None;
    }
    let value = nearest as i128 + difference;
    // Only 2^64 itself is a float here: it fits neither integer.
    let decoded = i64::try_from(value)
        .map(Value::Int)
        .or_else(|_| u64::try_from(value).map(Value::Uint))
        .unwrap_or(Value::Float(nearest));
    let canonical = match &decoded {
        Value::Int(value) => *value as f64 == nearest,
        Value::Uint(value) => *value as f64 == nearest,
        _ => difference == 0,
    };
    canonical.then_some(decoded)
}

fn decode_string(escaped: &[u8]) -> Option<Value> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        bytes.extend_from_slice(rest.get(..=zero)?);
        if *rest.get(zero + 1)? != 0xff {
            return None;
        }
        rest = rest.get(zero + 2..)?;
    }
    bytes.extend_from_slice(rest);
    String::from_utf8(bytes).ok().map(Value::String)
}

/// The length of the first encoded value in `input`; `None` if there is none.
///
/// Searches only its end; the bytes inside of a number or a string are not checked.
#[inline]
pub(crate) fn encoded_len(input: &[u8]) -> Option<usize> {
    let len = match *input.first()? {
        TAG_ABSENT | TAG_NULL | TAG_FALSE | TAG_TRUE => 1,
        TAG_NUMBER => NUMBER_BYTES,
        TAG_RECT => RECT_BYTES,
        TAG_STRING => {
            let mut at = 1;
            loop {
                at += input.get(at..)?.iter().position(|&byte| byte == 0)? + 2;
                match *input.get(at - 1)? {
                    1 => break at,
                    0xff => {}
                    _ => return None,
                }
            }
        }
        _ => return None,
    };
    (len <= input.len()).then_some(len)
}

/// The encoded value number `position` of a valid secondary key.
pub(crate) fn component(secondary_key: &[u8], position: usize) -> &[u8] {
    let mut rest = secondary_key;
    for _ in 0..position {
        rest = encoded_len(rest).and_then(|len| rest.get(len..)).unwrap_or_default();
    }
    encoded_len(rest).and_then(|len| rest.get(..len)).unwrap_or_default()
}

/// Turns `key` into the first byte string after all that start with it.
///
/// Encoded values start with a tag below `FF`, so it always exists.
pub(crate) fn make_successor(key: &mut Vec<u8>) {
    while key.last() == Some(&0xff) {
        key.pop();
    }
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
}

#[cfg(test)]
#[path = "attribute_tests.rs"]
mod tests;
