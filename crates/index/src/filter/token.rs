//! The words, values and marks in the text of a filter.

use bolide_base::{Error, Result};

use crate::attribute::Value;

/// The words of the grammar. A field with such a name is written with a backslash before it.
pub(super) const KEYWORDS: [&str; 14] = [
    "and", "or", "not", "in", "is", "exists", "starts", "with", "within", "nearest", "null", "absent",
    "true", "false",
];

/// Reads a text from its front.
#[derive(Debug)]
pub(super) struct Scanner<'t> {
    text: &'t str,
    /// Bytes that were read.
    at: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips white space. Returns the offset of what follows.
    pub(super) fn skip_space(&mut self) -> usize {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.at
    }

    /// Whether only white space follows.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space() == self.text.len()
    }

    /// Takes `mark`, if it follows.
    pub(super) fn take(&mut self, mark: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(mark);
        self.at += if found { mark.len() } else { 0 };
        found
    }

    /// Takes the first of `marks` that follows. A mark stands before those that it starts with.
    pub(super) fn take_one_of<'m>(&mut self, marks: &[&'m str]) -> Option<&'m str> {
        marks.iter().copied().find(|mark| self.take(mark))
    }

    /// Takes the word `keyword`, in any case, if it follows as a whole word.
    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let start = self.skip_space();
        let found = self.word().eq_ignore_ascii_case(keyword);
        if !found {
            self.at = start;
        }
        found
    }

    /// The next word: a path or a keyword, with its backslashes. Empty if a mark follows. A bracket after `rect` or `point`
    /// belongs to the word.
    pub(super) fn word(&mut self) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let (mut escaped, mut open, mut end) = (false, false, rest.len());
        for (at, character) in rest.char_indices() {
            let ends = match character {
                _ if escaped => false,
                ')' if open => {
                    end = at + 1;
                    break;
                }
                '(' if !open && matches!(rest.get(..at), Some("rect" | "point")) => {
                    open = true;
                    false
                }
                ',' if open => false,
                space if open && space.is_whitespace() => false,
                '=' | '!' | '<' | '>' | '(' | ')' | ',' | '"' => true,
                other => other.is_whitespace(),
            };
            if ends {
                end = at;
                break;
            }
            escaped = !escaped && character == '\\';
        }
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// The next value: a JSON scalar.
    pub(super) fn value(&mut self) -> Result<Value> {
        let start = self.skip_space();
        let rest = self.rest();
        let text = match rest.chars().next() {
            Some('"') => {
                string_at_front(rest).ok_or_else(|| self.error_at(start, "a double quote is not closed"))?
            }
            Some('-' | '0'..='9') => number_at_front(rest),
            None => return Err(self.error_at(start, "a value is missing at the end")),
            Some(_) => {
                let word = self.word();
                self.at = start;
                // Two dots separate the ends of a range.
                word.split("..").next().unwrap_or_default()
            }
        };
        let value = serde_json::from_str::<serde_json::Value>(text).ok();
        let Some(value) = value.as_ref().and_then(Value::from_json) else {
            return Err(self.no_value(start, text));
        };
        self.at = start + text.len();
        Ok(value)
    }

    /// The error for `text`, which is no value.
    fn no_value(&self, start: usize, text: &str) -> Error {
        if text.parse::<f64>().is_ok_and(f64::is_infinite)
            && text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        {
            return self.error_at(start, &format!("the number {text} is out of range"));
        }
        let found = if text.is_empty() { self.rest().chars().take(1).collect() } else { text.to_owned() };
        self.error_at(
            start,
            &format!(
                "`{found}` is no value: a value is a number, true, false, null, or a text in double quotes"
            ),
        )
    }

    /// Coordinates in brackets, as text.
    pub(super) fn coordinates(&mut self) -> Result<&'t str> {
        let start = self.skip_space();
        if !self.take("(") {
            return Err(self.error_at(start, "coordinates in brackets are missing here"));
        }
        let rest = self.rest();
        let Some(inner) = rest.find(')').and_then(|end| rest.get(..end)) else {
            return Err(self.error_at(start, "a bracket is not closed"));
        };
        self.at += inner.len() + 1;
        Ok(inner)
    }

    /// An error at the byte offset `at`.
    pub(super) fn error_at(&self, at: usize, what: &str) -> Error {
        let position = self.text.get(..at).map_or(0, |before| before.chars().count()) + 1;
        Error::invalid_input(format!("filter, position {position}: {what}"))
    }

    /// As [`error_at`](Self::error_at), for an error of a part that starts there.
    pub(super) fn at(&self, at: usize, error: &Error) -> Error {
        self.error_at(at, error.message())
    }
}

/// The JSON string at the front of `text`, which starts with a quote; `None` without its end.
fn string_at_front(text: &str) -> Option<&str> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, character)| {
        let closes = !escaped && *character == '"';
        escaped = !escaped && *character == '\\';
        closes
    });
    end.and_then(|(at, _)| text.get(..=at))
}

/// The characters at the front of `text` that may belong to a number; two dots end it.
fn number_at_front(text: &str) -> &str {
    let bytes = text.as_bytes();
    let ends = |at: &usize| {
        let is_numeric =
            matches!(bytes[*at], b'0'..=b'9' | b'+' | b'-' | b'.' | b'a'..=b'z' | b'A'..=b'Z' | b'_');
        !is_numeric || bytes[*at..].starts_with(b"..")
    };
    let end = (0..bytes.len()).find(ends).unwrap_or(bytes.len());
    text.get(..end).unwrap_or_default()
}
