//! Positions in the text of a JSON record: the ends of strings, numbers and skipped values.
//!
//! Records are validated when they are written, so the scan decides no more than where values end. For any other text it
//! returns an end within the text or `None`, in one pass, without recursion.

/// The bytes of a record. Methods take the start of an element and return its end.
#[derive(Clone, Copy)]
pub(crate) struct JsonScan<'r> {
    bytes: &'r [u8],
}

/// The content of a string, without its quotes.
#[derive(Clone, Copy)]
pub(crate) struct StringToken<'r> {
    pub(crate) content: &'r [u8],
    /// Whether it contains a backslash.
    pub(crate) has_escapes: bool,
    /// Behind the closing quote.
    pub(crate) end: usize,
}

impl<'r> JsonScan<'r> {
    pub(crate) fn new(bytes: &'r [u8]) -> Self {
        Self { bytes }
    }

    /// The byte at `at`; at the end 0, which no valid record contains.
    #[inline]
    pub(crate) fn peek(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The bytes from `at` on.
    #[inline]
    pub(crate) fn rest(&self, at: usize) -> &'r [u8] {
        self.bytes.get(at..).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'r [u8] {
        self.bytes.get(start..end).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn skip_space(&self, mut at: usize) -> usize {
        while matches!(self.peek(at), b' ' | b'\n' | b'\t' | b'\r') {
            at += 1;
        }
        at
    }

    #[inline]
    pub(crate) fn expect(&self, at: usize, byte: u8) -> Option<usize> {
        (self.peek(at) == byte).then_some(at + 1)
    }

    /// The string whose opening quote is before `start`.
    #[inline]
    pub(crate) fn string(&self, start: usize) -> Option<StringToken<'r>> {
        let mut at = self.quote_or_backslash(start)?;
        let mut has_escapes = false;
        while self.peek(at) == b'\\' {
            has_escapes = true;
            at = self.quote_or_backslash(at + 2)?;
        }
        Some(StringToken { content: self.slice(start, at), has_escapes, end: at + 1 })
    }

    /// The position of the next quote or backslash.
    #[inline]
    fn quote_or_backslash(&self, mut at: usize) -> Option<usize> {
        while let Some(chunk) = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let special = specials(u64::from_le_bytes(*chunk));
            if special != 0 {
                return Some(at + special.trailing_zeros() as usize / 8);
            }
            at += 8;
        }
        self.bytes.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|found| at + found)
    }

    /// The end of a number, a literal or other bytes without structure.
    #[inline]
    pub(crate) fn scalar_end(&self, mut at: usize) -> usize {
        while !matches!(
            self.peek(at),
            b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r' | b'"' | b'{' | b'[' | 0
        ) {
            at += 1;
        }
        at
    }

    /// The end of the value that starts at `at`, which is no space.
    #[inline]
    pub(crate) fn skip_value(&self, at: usize) -> Option<usize> {
        match self.peek(at) {
            b'"' => self.string(at + 1).map(|string| string.end),
            b'{' | b'[' => self.skip_container(at),
            _ => {
                let end = self.scalar_end(at);
                (end > at).then_some(end)
            }
        }
    }

    #[inline(never)]
    fn skip_container(&self, mut at: usize) -> Option<usize> {
        let mut depth = 0_usize;
        loop {
            match self.bytes.get(at)? {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                b'"' => {
                    at = self.string(at + 1)?.end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

/// The high bit of the first byte of `word`, in memory order, that is a quote or a backslash, and possibly bits of later
/// bytes; 0 if there is none.
#[inline]
fn specials(word: u64) -> u64 {
    let equal = |byte: u8| {
        let zeros = word ^ (ONES * u64::from(byte));
        zeros.wrapping_sub(ONES) & !zeros & HIGH
    };
    equal(b'"') | equal(b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> Option<usize> {
        JsonScan::new(text.as_bytes()).skip_value(0)
    }

    #[test]
    fn the_end_of_a_value_is_found() {
        for value in [
            "1",
            "-1.5e3",
            "true",
            "null",
            r#""""#,
            r#""a long string, longer than eight bytes""#,
            r#""\"""#,
            r#""\\""#,
            r#""a\\\"b}""#,
            "[]",
            "{}",
            r#"{"a":[1,{"b":"}]"}]}"#,
            "[[[]]]",
        ] {
            for behind in ["", ",", "}", " ]"] {
                assert_eq!(end(&format!("{value}{behind}")), Some(value.len()), "{value}{behind}");
            }
        }
    }

    #[test]
    fn a_value_without_an_end_has_none() {
        for text in ["", "\"", "\"a", "\"\\", "\"\\\"", "[", "{\"a\":", "[\"", ",", "}"] {
            assert_eq!(end(text), None, "{text}");
        }
    }

    #[test]
    fn quotes_and_backslashes_are_found_at_every_position() {
        for special in [b'"', b'\\'] {
            for at in 0..8 {
                for around in [b'a', b' ', b'!', b'#', 0, 0x7f, 0x80, 0xff, b'[', b']'] {
                    let mut bytes = [around; 8];
                    bytes[at] = special;
                    assert_eq!(specials(u64::from_le_bytes(bytes)).trailing_zeros() as usize / 8, at);
                    assert_eq!(specials(u64::from_le_bytes([around; 8])), 0, "{around}");
                }
            }
        }
    }
}
