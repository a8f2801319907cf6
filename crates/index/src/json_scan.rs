//! A fast check that accepts most valid JSON records.
//!
//! The scan accepts a subset of the records that the full pass of [`crate::json`] accepts, and collects nothing. The full
//! pass decides on all other records and produces the error. So the scan omits rare syntax: names with escapes, surrogates,
//! long numbers, large exponents. Strings are searched sixteen bytes at a time for bytes that end them or need a decision,
//! and digits are counted eight at a time: a loop over bytes costs a misprediction at each end.

use bolide_base::limits::MAX_JSON_DEPTH;
use serde::de::value::Error;

use crate::json_names::NameStack;

/// Maximum number of digits of a number before its exponent: with [`MAX_EXPONENT_DIGITS`] it is finite as `f64`.
const MAX_DIGITS: usize = 200;
/// Maximum number of digits of an exponent.
const MAX_EXPONENT_DIGITS: usize = 2;

/// Whether `text` is one JSON object that the full pass accepts. If false, the full pass decides.
pub(crate) fn is_plain_object(text: &str) -> bool {
    let mut scan = PlainScan { text, bytes: text.as_bytes(), names: NameStack::new(text) };
    scan.record() == Some(text.len())
}

/// The scan of a record. Its methods take the start of an element and return its end; `None`: the scan does not
/// accept the record. The position is passed by value, which keeps it in a register.
struct PlainScan<'t> {
    text: &'t str,
    bytes: &'t [u8],
    names: NameStack<'t>,
}

impl PlainScan<'_> {
    fn record(&mut self) -> Option<usize> {
        let at = self.expect(self.skip_space(0), b'{')?;
        self.object(at, 1).map(|end| self.skip_space(end))
    }

    /// The byte at `at`; at the end 0, which no valid record contains.
    #[inline]
    fn peek(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn expect(&self, at: usize, byte: u8) -> Option<usize> {
        (self.peek(at) == byte).then_some(at + 1)
    }

    #[inline]
    fn skip_space(&self, mut at: usize) -> usize {
        while matches!(self.peek(at), b' ' | b'\n' | b'\t' | b'\r') {
            at += 1;
        }
        at
    }

    /// The rest of an object after its opening brace.
    fn object(&mut self, at: usize, depth: usize) -> Option<usize> {
        if depth > MAX_JSON_DEPTH {
            return None;
        }
        let mut object = self.names.begin();
        let mut at = self.skip_space(at);
        if self.peek(at) != b'}' {
            loop {
                let start = self.expect(at, b'"')?;
                let end = self.skip_plain(start)?;
                let behind = self.expect(end, b'"')?;
                let name = self.text.get(start..end)?;
                self.names.add::<Error>(&mut object, name).ok()?;
                let colon = self.expect(self.skip_space(behind), b':')?;
                at = self.value(colon, depth)?;
                match self.peek(at) {
                    b',' => at = self.skip_space(at + 1),
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        self.names.end::<Error>(&object).ok().map(|()| at + 1)
    }

    /// The rest of an array after its opening bracket.
    fn array(&mut self, at: usize, depth: usize) -> Option<usize> {
        if depth > MAX_JSON_DEPTH {
            return None;
        }
        let mut at = self.skip_space(at);
        if self.peek(at) == b']' {
            return Some(at + 1);
        }
        loop {
            at = self.value(at, depth)?;
            match self.peek(at) {
                b',' => at += 1,
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// A value in an object or array of this depth, with surrounding whitespace.
    #[inline]
    fn value(&mut self, at: usize, depth: usize) -> Option<usize> {
        let at = self.skip_space(at);
        let end = match self.peek(at) {
            b'"' => self.string(at + 1)?,
            b'-' | b'0'..=b'9' => self.number(at)?,
            b'{' => self.object(at + 1, depth + 1)?,
            b'[' => self.array(at + 1, depth + 1)?,
            b't' => self.literal(at, b"true")?,
            b'f' => self.literal(at, b"false")?,
            b'n' => self.literal(at, b"null")?,
            _ => return None,
        };
        Some(self.skip_space(end))
    }

    #[inline]
    fn literal(&self, at: usize, word: &[u8]) -> Option<usize> {
        self.bytes.get(at..)?.starts_with(word).then_some(at + word.len())
    }

    /// A string after its opening quote.
    #[inline]
    fn string(&self, mut at: usize) -> Option<usize> {
        loop {
            at = self.skip_plain(at)?;
            match self.peek(at) {
                b'"' => return Some(at + 1),
                b'\\' => at = self.escape(at + 1)?,
                _ => return None,
            }
        }
    }

    /// The position of the next quote, backslash or control character; `None` if there is none.
    #[inline]
    fn skip_plain(&self, mut at: usize) -> Option<usize> {
        while let Some(chunk) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
            let word = u128::from_le_bytes(*chunk);
            let special =
                u128::from(specials(word as u64)) | (u128::from(specials((word >> 64) as u64)) << 64);
            if special != 0 {
                return Some(at + special.trailing_zeros() as usize / 8);
            }
            at += 16;
        }
        let is_special = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
        self.bytes.get(at..)?.iter().position(is_special).map(|found| at + found)
    }

    /// An escape after its backslash.
    fn escape(&self, at: usize) -> Option<usize> {
        let rest = self.bytes.get(at..)?;
        match rest.first()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
            b'u' => {
                let digits = rest.get(1..5)?;
                let is_surrogate =
                    matches!(digits, [b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..]);
                (!is_surrogate && digits.iter().all(u8::is_ascii_hexdigit)).then_some(at + 5)
            }
            _ => None,
        }
    }

    #[inline]
    fn number(&self, at: usize) -> Option<usize> {
        let whole = at + usize::from(self.peek(at) == b'-');
        let mut end = self.digits(whole);
        if end == whole || end - whole > MAX_DIGITS || (self.peek(whole) == b'0' && end - whole > 1) {
            return None;
        }
        if self.peek(end) == b'.' {
            let fraction = end + 1;
            end = self.digits(fraction);
            if end == fraction {
                return None;
            }
        }
        if matches!(self.peek(end), b'e' | b'E') {
            let exponent = end + 1 + usize::from(matches!(self.peek(end + 1), b'+' | b'-'));
            end = self.digits(exponent);
            if !(1..=MAX_EXPONENT_DIGITS).contains(&(end - exponent)) {
                return None;
            }
        }
        Some(end)
    }

    /// The end of the digits that start at `at`.
    #[inline]
    fn digits(&self, mut at: usize) -> usize {
        while let Some(chunk) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let count = leading_digits(u64::from_le_bytes(*chunk));
            at += count;
            if count < 8 {
                return at;
            }
        }
        while self.peek(at).is_ascii_digit() {
            at += 1;
        }
        at
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

/// The number of leading bytes of `word`, in memory order, that are digits.
#[inline]
fn leading_digits(word: u64) -> usize {
    let above_zero = word ^ (ONES * u64::from(b'0'));
    let others = (((above_zero & !HIGH) + ONES * 0x76) | above_zero) & HIGH;
    others.trailing_zeros() as usize / 8
}

/// The high bit of the first byte of `word`, in memory order, that is a quote, a backslash or a control character, and
/// possibly bits of later bytes; 0 if there is none.
#[inline]
fn specials(word: u64) -> u64 {
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, b' ') | equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attribute_plan::{AttributePlan, AttributeValues};
    use crate::extractor::AttributeExtractor;
    use crate::json::JsonExtractor;

    /// The decision of the full pass.
    fn is_valid(record: &str) -> bool {
        let plan = AttributePlan::new(["no.such.path".parse().unwrap()]);
        JsonExtractor.extract(record.as_bytes(), &plan, &mut AttributeValues::new()).is_ok()
    }

    #[test]
    fn ordinary_records_are_accepted() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(MAX_JSON_DEPTH - 1), "]".repeat(MAX_JSON_DEPTH - 1));
        for record in [
            "{}",
            " { } \n",
            r#"{"id":1,"text":"a \"quoted\" \\ line\n","u":"\u00e9é","empty":"","list":[1,-2.5,1e9,[],{}]}"#,
            r#"{ "a" : true , "b" : [ false , null ] , "c" : { "a" : 0 , "b" : -0.0e-7 } }"#,
            &deep,
        ] {
            assert!(is_plain_object(record) && is_valid(record), "{record}");
        }
    }

    #[test]
    fn invalid_and_rare_records_are_not_accepted() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(MAX_JSON_DEPTH), "]".repeat(MAX_JSON_DEPTH));
        for record in [
            "",
            "[]",
            "1",
            "{",
            "{}x",
            r#"{"a":1,}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":-}"#,
            r#"{"a":1e}"#,
            r#"{"a":1e999}"#,
            r#"{"a":+1}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u00g0"}"#,
            "{\"a\":\"line\nbreak, in a long enough string\"}",
            "{\"a\":\"\u{1}\"}",
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"a":1,"\u0061":3}"#,
            r#"{"a" 1}"#,
            r#"{a:1}"#,
            r#"{"a":"open"#,
            &deep,
        ] {
            assert!(!is_plain_object(record), "{record}");
        }
    }

    #[test]
    fn every_special_byte_is_found_at_every_position() {
        for special in [b'"', b'\\', 0, 1, 31, 10] {
            for at in 0..8 {
                for around in [b'a', b' ', b'!', b'#', 0x7f, 0x80, 0xff, b'[', b']'] {
                    let mut bytes = [around; 8];
                    bytes[at] = special;
                    let found = specials(u64::from_le_bytes(bytes));
                    assert_eq!(found.trailing_zeros() as usize / 8, at, "{special} among {around}");
                    assert_eq!(specials(u64::from_le_bytes([around; 8])), 0, "{around}");
                }
            }
        }
    }

    #[test]
    fn digits_are_counted_up_to_the_first_other_byte() {
        for other in (0..=255).filter(|byte: &u8| !byte.is_ascii_digit()) {
            for at in 0..8 {
                for digit in b'0'..=b'9' {
                    let mut bytes = [digit; 8];
                    bytes[at] = other;
                    assert_eq!(leading_digits(u64::from_le_bytes(bytes)), at, "{other} among {digit}");
                    assert_eq!(leading_digits(u64::from_le_bytes([digit; 8])), 8);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Random concatenations of parts of records.
        #[test]
        fn records_accepted_by_the_scan_are_accepted_by_the_full_pass(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\"", "\"a\":", "\"b\":", "\"\":", "1", "-", "0", ".5", "e7",
                    "E+30", "1e99", "1e400", "true", "null", "false", " ", "\n", "\\", "\\u", "00e9", "\\n", "d83d", "\\ude00",
                    "é", "\u{7f}", "\u{1}", "text of some length",
                ]),
                0..24,
            ),
            wrapped in any::<bool>(),
        ) {
            let mut record = parts.concat();
            if wrapped {
                record = format!("{{\"w\":{record}}}");
            }
            prop_assert!(!is_plain_object(&record) || is_valid(&record), "{}", record);
        }

        #[test]
        fn both_agree_on_records_with_one_changed_byte(at in 0..120usize, byte in 0..128u8) {
            let mut bytes = br#"{"id":17,"tags":["x","y\n"],"at":{"lat":-3.25e1,"ok":true,"none":null},"text":"plain words of a record"}"#.to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let record = String::from_utf8(bytes).unwrap();
            let plain = is_plain_object(&record);
            prop_assert!(!plain || is_valid(&record), "{}", record);
            // The only rare syntax in this record is a name with an escape.
            prop_assert!(plain || !is_valid(&record) || byte == b'\\', "{}", record);
        }
    }
}
