//! Typed primary keys: integers that sort as numbers, strings that sort as strings.
//!
//! A collection accepts any bytes as keys. Programs that need keys with a type, as the `bolide` command does, encode
//! them here. The encoding preserves the order and is the same for equal values only:
//!
//! ```text
//! integer   [0x10 + n][n bytes]        value > 0: its n = 1..8 significant bytes, big-endian
//!           [0x10]                     zero
//!           [0x10 - n][n bytes]        value < 0: the n low bytes of (256^n - 1 - |value|), big-endian
//! string    [0x1c][bytes of the UTF-8 text]
//! ```
//!
//! Integers sort before strings, as they do among attributes. Both first bytes are control
//! characters, so a key that starts with a letter or a digit is never mistaken for a typed one.

use std::fmt;
use std::str::FromStr;

use bolide_base::{Error, Result};

/// First byte of zero; integers of `n` bytes are `n` above or below.
const INTEGER_ZERO: u8 = 0x10;
/// The maximum number of bytes of an integer.
const INTEGER_BYTES: usize = 8;
/// First byte of a string.
const STRING: u8 = 0x1c;

/// The text format of the keys of a collection.
///
/// The store compares keys as bytes with either format; the `bolide` command and [`KeyFormat::parse`] use it. A
/// collection stores it in its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Any bytes, shown as text if they are UTF-8, otherwise as hexadecimal digits.
    #[default]
    Bytes,
    /// Integers and strings in the encoding of this module.
    Typed,
}

impl KeyFormat {
    /// The key of a collection of this format with the text form `text`.
    ///
    /// `0x` and an even number of hexadecimal digits denote those bytes. Otherwise, with [`KeyFormat::Typed`], an
    /// integer is an integer and everything else a string (as it is, or quoted as in JSON); with [`KeyFormat::Bytes`]
    /// the text denotes its own bytes.
    ///
    /// ```
    /// use bolide::key::{self, KeyFormat};
    /// assert_eq!(KeyFormat::Typed.parse("42"), key::encode_int(42));
    /// assert_eq!(KeyFormat::Typed.parse("\"42\""), key::encode_string("42"));
    /// assert_eq!(KeyFormat::Bytes.parse("42"), b"42");
    /// assert_eq!(KeyFormat::Bytes.parse("0xff00"), [0xff, 0]);
    /// ```
    pub fn parse(self, text: &str) -> Vec<u8> {
        match self {
            Self::Typed => PrimaryKey::parse(text).encode(),
            Self::Bytes => hex_literal(text).unwrap_or_else(|| text.as_bytes().to_vec()),
        }
    }

    /// The key as [`KeyFormat::parse`] reads it.
    ///
    /// ```
    /// use bolide::key::{self, KeyFormat};
    /// assert_eq!(KeyFormat::Typed.show(&key::encode_int(-7)), "-7");
    /// assert_eq!(KeyFormat::Bytes.show(b"user:7"), "user:7");
    /// assert_eq!(KeyFormat::Bytes.show(&[0xff]), "0xff");
    /// ```
    pub fn show(self, key: &[u8]) -> String {
        match self {
            Self::Typed => decode(key).to_string(),
            Self::Bytes => match std::str::from_utf8(key) {
                Ok(text) if hex_literal(text).is_none() => text.to_owned(),
                _ => hex(key),
            },
        }
    }
}

/// A primary key with its type.
///
/// Its text form is an integer, a string (quoted as in JSON only if it would be read as another type), or `0x` and
/// hexadecimal digits for bytes that are no typed key. [`PrimaryKey::parse`] reads back what [`Display`](fmt::Display)
/// wrote.
///
/// ```
/// use bolide::key::PrimaryKey;
/// let keys = ["-5", "7", "40", "\"7\"", "seven"].map(PrimaryKey::parse);
/// let mut encoded = keys.clone().map(|key| key.encode());
/// encoded.sort();
/// let texts = encoded.map(|key| PrimaryKey::decode(&key).to_string());
/// assert_eq!(texts, ["-5", "7", "40", "\"7\"", "seven"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PrimaryKey {
    /// An integer of the range of `i64`.
    Int(i64),
    /// An integer above the range of `i64`. Smaller values are written and compared as
    /// [`PrimaryKey::Int`] would be, and decode to it.
    Uint(u64),
    /// A text.
    String(String),
    /// Bytes that are no typed key; they encode to themselves.
    Bytes(Vec<u8>),
}

impl PrimaryKey {
    /// The key with the text form `text`: see the type. Never fails: text of no other form is a string.
    pub fn parse(text: &str) -> Self {
        if let Some(key) = integer_literal(text) {
            return key;
        }
        if let Some(bytes) = hex_literal(text) {
            return Self::Bytes(bytes);
        }
        match serde_json::from_str::<String>(text) {
            Ok(unquoted) if text.starts_with('"') => Self::String(unquoted),
            _ => Self::String(text.to_owned()),
        }
    }

    /// The key in a JSON record: a string or an integer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for every other type, and for
    /// numbers with a fraction or an exponent.
    ///
    /// ```
    /// use bolide::key::PrimaryKey;
    /// let record: serde_json::Value = serde_json::json!({"id": 12, "price": 1.5});
    /// assert_eq!(PrimaryKey::from_json(&record["id"]).unwrap(), PrimaryKey::Int(12));
    /// assert!(PrimaryKey::from_json(&record["price"]).is_err());
    /// ```
    pub fn from_json(value: &serde_json::Value) -> Result<Self> {
        let found = match value {
            serde_json::Value::String(text) => return Ok(Self::String(text.clone())),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => return Ok(Self::Int(int)),
                (None, Some(uint)) => return Ok(Self::Uint(uint)),
                (None, None) => "a number that is no integer of 64 bits",
            },
            serde_json::Value::Null => "null",
            serde_json::Value::Bool(_) => "a boolean",
            serde_json::Value::Array(_) => "an array",
            serde_json::Value::Object(_) => "an object",
        };
        Err(Error::invalid_input(format!("a key must be a string or an integer, not {found}")))
    }

    /// The key as JSON: a number, a string, or `{"hex": "…"}` for bytes.
    ///
    /// ```
    /// use bolide::key::PrimaryKey;
    /// assert_eq!(PrimaryKey::Int(3).to_json().to_string(), "3");
    /// assert_eq!(PrimaryKey::Bytes(vec![0xff]).to_json().to_string(), r#"{"hex":"ff"}"#);
    /// ```
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::String(text) => text.as_str().into(),
            Self::Bytes(bytes) => serde_json::json!({ "hex": &hex(bytes)[2..] }),
        }
    }

    /// The encoded key, which sorts as the key does.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Int(value) => encode_int(*value),
            Self::Uint(value) => encode_uint(*value),
            Self::String(text) => encode_string(text),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }

    /// The key that `bytes` encode; [`PrimaryKey::Bytes`] if they are no typed key.
    pub fn decode(bytes: &[u8]) -> Self {
        decode(bytes)
    }
}

impl FromStr for PrimaryKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(Self::parse(text))
    }
}

impl From<i64> for PrimaryKey {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for PrimaryKey {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Uint(value), Self::Int)
    }
}

impl From<&str> for PrimaryKey {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl fmt::Display for PrimaryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Bytes(bytes) => f.write_str(&hex(bytes)),
            Self::String(text) if Self::parse(text) == *self => f.write_str(text),
            Self::String(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
        }
    }
}

/// The key of an integer: 1 to 9 bytes.
///
/// ```
/// use bolide::key::encode_int;
/// assert!(encode_int(-300) < encode_int(-2));
/// assert!(encode_int(-2) < encode_int(9) && encode_int(9) < encode_int(10));
/// ```
pub fn encode_int(value: i64) -> Vec<u8> {
    if value >= 0 {
        return encode_uint(value.unsigned_abs());
    }
    let magnitude = value.unsigned_abs();
    let len = significant_bytes(magnitude);
    let mut key = Vec::with_capacity(1 + len);
    key.push(INTEGER_ZERO - len as u8);
    key.extend_from_slice(&(!magnitude).to_be_bytes()[INTEGER_BYTES - len..]);
    key
}

/// The key of an integer that is not negative: 1 to 9 bytes, equal to [`encode_int`] in the common range.
///
/// ```
/// use bolide::key::{encode_int, encode_uint};
/// assert_eq!(encode_uint(7), encode_int(7));
/// assert!(encode_int(i64::MAX) < encode_uint(u64::MAX));
/// ```
pub fn encode_uint(value: u64) -> Vec<u8> {
    let len = significant_bytes(value);
    let mut key = Vec::with_capacity(1 + len);
    key.push(INTEGER_ZERO + len as u8);
    key.extend_from_slice(&value.to_be_bytes()[INTEGER_BYTES - len..]);
    key
}

/// The key of a text: one byte more than the text.
///
/// ```
/// use bolide::key::{encode_int, encode_string};
/// assert!(encode_int(i64::MAX) < encode_string("") && encode_string("a") < encode_string("ab"));
/// ```
pub fn encode_string(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + text.len());
    key.push(STRING);
    key.extend_from_slice(text.as_bytes());
    key
}

/// The key that `bytes` encode; [`PrimaryKey::Bytes`] if they are not exactly the encoding of an integer or a text by
/// this module.
///
/// ```
/// use bolide::key::{PrimaryKey, decode, encode_int};
/// assert_eq!(decode(&encode_int(-1)), PrimaryKey::Int(-1));
/// assert_eq!(decode(b"plain"), PrimaryKey::Bytes(b"plain".to_vec()));
/// ```
pub fn decode(bytes: &[u8]) -> PrimaryKey {
    decode_typed(bytes).unwrap_or_else(|| PrimaryKey::Bytes(bytes.to_vec()))
}

fn decode_typed(bytes: &[u8]) -> Option<PrimaryKey> {
    let (&tag, rest) = bytes.split_first()?;
    if tag == STRING {
        return std::str::from_utf8(rest).ok().map(PrimaryKey::from);
    }
    if rest.len() > INTEGER_BYTES || tag.abs_diff(INTEGER_ZERO) as usize != rest.len() {
        return None;
    }
    let negative = tag < INTEGER_ZERO;
    let mut word = [if negative { 0xff } else { 0 }; INTEGER_BYTES];
    word[INTEGER_BYTES - rest.len()..].copy_from_slice(rest);
    let word = u64::from_be_bytes(word);
    let magnitude = if negative { !word } else { word };
    if significant_bytes(magnitude) != rest.len() {
        return None;
    }
    if !negative {
        return Some(PrimaryKey::from(magnitude));
    }
    0_i64.checked_sub_unsigned(magnitude).map(PrimaryKey::Int)
}

fn significant_bytes(value: u64) -> usize {
    INTEGER_BYTES - value.leading_zeros() as usize / 8
}

/// An integer as [`fmt::Display`] writes it: no plus sign, no leading zero, in range.
fn integer_literal(text: &str) -> Option<PrimaryKey> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let key = match text.parse::<i64>() {
        Ok(int) => PrimaryKey::Int(int),
        Err(_) => PrimaryKey::Uint(text.parse().ok()?),
    };
    (key.to_string() == text).then_some(key)
}

/// `0x` and an even number of hexadecimal digits in lower case, as [`hex`] writes them.
fn hex_literal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x")?;
    if digits.len() % 2 != 0 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::from("0x"), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_preserve_their_order_and_round_trip() {
        let mut values = vec![i128::from(i64::MIN), i128::from(u64::MAX)];
        for shift in 0..64 {
            for step in -1..=1_i128 {
                values.push((1_i128 << shift) + step);
                values.push(-(1_i128 << shift) + step);
            }
        }
        values.retain(|value| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value));
        values.sort_unstable();
        values.dedup();
        let keys: Vec<PrimaryKey> = values
            .iter()
            .map(|&value| match i64::try_from(value) {
                Ok(int) => PrimaryKey::Int(int),
                Err(_) => PrimaryKey::Uint(value as u64),
            })
            .collect();
        let encoded: Vec<Vec<u8>> = keys.iter().map(PrimaryKey::encode).collect();
        assert!(encoded.windows(2).all(|pair| pair[0] < pair[1]));
        for (key, bytes) in keys.iter().zip(&encoded) {
            assert_eq!(decode(bytes), *key);
            assert_eq!(PrimaryKey::parse(&key.to_string()), *key);
        }
    }

    #[test]
    fn the_text_form_is_parsed_to_the_same_key() {
        let texts =
            ["", "a", "42", "-1", "0", "-0", "007", "+3", "1e3", "0x", "0xff", "0xF", "\"", "\"a\"", "é\n"];
        for text in texts {
            let key = PrimaryKey::from(text);
            assert_eq!(PrimaryKey::parse(&key.to_string()), key, "{text:?}");
            assert_eq!(decode(&key.encode()), key, "{text:?}");
        }
        for bytes in [&b""[..], b"raw", &[0xff, 0xfe], &[0x11, 0], &[0x0f, 0xff], &[0x1c, 0xff]] {
            assert_eq!(decode(bytes), PrimaryKey::Bytes(bytes.to_vec()));
            assert_eq!(PrimaryKey::parse(&decode(bytes).to_string()), decode(bytes));
            assert_eq!(KeyFormat::Bytes.parse(&KeyFormat::Bytes.show(bytes)), bytes);
        }
    }

    #[test]
    fn an_overlong_or_truncated_integer_is_no_typed_key() {
        for bytes in [&[0x12, 0, 1][..], &[0x12, 1], &[0x18, 1, 2, 3], &[0x0e, 0xff, 0xfe], &[0x19; 10]] {
            assert!(matches!(decode(bytes), PrimaryKey::Bytes(_)), "{bytes:?}");
        }
        // The magnitude of i64::MIN is the largest one that a negative key may have.
        let mut below_min = encode_int(i64::MIN);
        assert_eq!(decode(&below_min), PrimaryKey::Int(i64::MIN));
        if let Some(last) = below_min.last_mut() {
            *last -= 1;
        }
        assert!(matches!(decode(&below_min), PrimaryKey::Bytes(_)));
    }
}
