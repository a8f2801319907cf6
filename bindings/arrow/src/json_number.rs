//! Numbers of JSON records.

use crate::json_scan::JsonScan;

/// 2^63, the first `f64` above the range of `i64`.
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// The value of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum JsonNumber {
    Int(i64),
    /// A number with a fraction or an exponent, or an integer outside of `i64`.
    Float(f64),
}

impl JsonNumber {
    /// The value, if it is an integer of 64 bits.
    #[inline]
    pub(crate) fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Float(value) if value.trunc() == value && (-TWO_POW_63..TWO_POW_63).contains(&value) => {
                Some(value as i64)
            }
            Self::Float(_) => None,
        }
    }

    /// The nearest `f64`.
    #[inline]
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// The number that starts at `at`, and its end. `None` for anything that is not one finite number of JSON.
#[inline]
pub(crate) fn parse(scan: JsonScan<'_>, at: usize) -> Option<(JsonNumber, usize)> {
    let is_negative = scan.peek(at) == b'-';
    let start = at + usize::from(is_negative);
    let mut end = start;
    let mut magnitude = 0_u64;
    loop {
        let digit = scan.peek(end).wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        // May overflow after 19 digits; the value is then not used.
        magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
        end += 1;
    }
    let digits = end - start;
    if digits == 0 || (digits > 1 && scan.peek(start) == b'0') {
        return None;
    }
    if digits > 18 || matches!(scan.peek(end), b'.' | b'e' | b'E') {
        return parse_slowly(scan, at);
    }
    let value = magnitude as i64;
    if is_negative && value == 0 {
        return Some((JsonNumber::Float(-0.0), end));
    }
    Some((JsonNumber::Int(if is_negative { -value } else { value }), end))
}

#[inline(never)]
fn parse_slowly(scan: JsonScan<'_>, at: usize) -> Option<(JsonNumber, usize)> {
    let end = number_end(scan, at)?;
    let text = std::str::from_utf8(scan.slice(at, end)).ok()?;
    if let Ok(value) = text.parse::<i64>() {
        return Some((JsonNumber::Int(value), end));
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some((JsonNumber::Float(value), end))
}

/// The end of a number by the grammar of JSON, whose integer part was checked.
fn number_end(scan: JsonScan<'_>, at: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        while scan.peek(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut end = digits(at + usize::from(scan.peek(at) == b'-'));
    if scan.peek(end) == b'.' {
        let fraction = end + 1;
        end = digits(fraction);
        if end == fraction {
            return None;
        }
    }
    if matches!(scan.peek(end), b'e' | b'E') {
        let exponent = end + 1 + usize::from(matches!(scan.peek(end + 1), b'+' | b'-'));
        end = digits(exponent);
        if end == exponent {
            return None;
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Option<JsonNumber> {
        let (number, end) = parse(JsonScan::new(text.as_bytes()), 0)?;
        assert_eq!(end, text.len(), "{text}");
        Some(number)
    }

    #[test]
    fn integers_are_exact() {
        for value in [0, 1, -1, 10, 999_999_999_999_999_999, i64::MAX, i64::MIN, i64::MAX - 1] {
            assert_eq!(number(&value.to_string()), Some(JsonNumber::Int(value)));
        }
        assert_eq!(number("9223372036854775808"), Some(JsonNumber::Float(TWO_POW_63)));
        assert_eq!(number("9223372036854775808").unwrap().as_i64(), None);
        assert_eq!(number("-9223372036854775808.0").unwrap().as_i64(), Some(i64::MIN));
        assert_eq!(number("1e3").unwrap().as_i64(), Some(1_000));
        assert_eq!(number("1.5").unwrap().as_i64(), None);
        assert_eq!(number("-0").unwrap().as_i64(), Some(0));
        assert!(number("-0").unwrap().as_f64().is_sign_negative());
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in ["-", "01", "1.", "1e", "1e+", "1e999", "+1", ".5", "-01"] {
            assert_eq!(parse(JsonScan::new(text.as_bytes()), 0), None, "{text}");
        }
    }
}
