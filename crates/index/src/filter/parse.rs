//! The parser of filters; [`Filter::parse`] has the grammar.

use std::ops::Bound;

use bolide_base::{Error, Result};

use crate::attribute::Value;
use crate::path::AttributePath;
use crate::predicate::{Condition, Predicate};

use super::token::{KEYWORDS, Scanner};
use super::{Filter, MAX_FILTER_DEPTH, MAX_FILTER_VALUES, ValueSet};

/// Parses a whole filter.
pub(super) fn parse(text: &str) -> Result<Filter> {
    let mut parser = FilterParser { scanner: Scanner::new(text), depth: 0 };
    let filter = parser.alternatives()?;
    if !parser.scanner.is_at_end() {
        let at = parser.scanner.skip_space();
        return Err(parser.scanner.error_at(at, "expected `and`, `or`, or the end"));
    }
    filter.check()?;
    Ok(filter)
}

struct FilterParser<'t> {
    scanner: Scanner<'t>,
    /// Open brackets and negations.
    depth: usize,
}

impl FilterParser<'_> {
    fn alternatives(&mut self) -> Result<Filter> {
        let mut all = vec![self.conjunction()?];
        while self.scanner.take_keyword("or") {
            all.push(self.conjunction()?);
        }
        Ok(Filter::any(all))
    }

    fn conjunction(&mut self) -> Result<Filter> {
        let mut all = vec![self.factor()?];
        while self.scanner.take_keyword("and") {
            all.push(self.factor()?);
        }
        Ok(Filter::all(all))
    }

    fn factor(&mut self) -> Result<Filter> {
        let start = self.scanner.skip_space();
        if self.scanner.take("(") {
            let inner = self.nested(start, Self::alternatives)?;
            return match self.scanner.take(")") {
                true => Ok(inner),
                false => Err(self.expected("`and`, `or`, or a bracket that closes")),
            };
        }
        let word = self.scanner.word();
        match word.to_ascii_lowercase().as_str() {
            "" => Err(self.expected("a condition")),
            "not" => Ok(!self.nested(start, Self::factor)?),
            "true" => Ok(Filter::all([])),
            "false" => Ok(Filter::any([])),
            keyword if KEYWORDS.contains(&keyword) => {
                let what =
                    format!("`{word}` is a word of the language: write `\\{word}` for a field of this name");
                Err(self.scanner.error_at(start, &what))
            }
            _ => {
                let path = word.parse().map_err(|error| self.scanner.at(start, &error))?;
                self.test(start, path)
            }
        }
    }

    /// Parses with `inner`, one level deeper.
    fn nested(&mut self, start: usize, inner: fn(&mut Self) -> Result<Filter>) -> Result<Filter> {
        // One level more than filters have: brackets around a condition add none.
        if self.depth > MAX_FILTER_DEPTH {
            return Err(self.scanner.error_at(start, &format!("more than {MAX_FILTER_DEPTH} levels")));
        }
        self.depth += 1;
        let filter = inner(self);
        self.depth -= 1;
        filter
    }

    /// The test of the attribute at `path`, whose text starts at `start`.
    fn test(&mut self, start: usize, path: AttributePath) -> Result<Filter> {
        let condition = if let Some(mark) = self.scanner.take_one_of(&["!=", "<=", ">=", "=", "<", ">"]) {
            let value = self.scanner.value()?;
            match mark {
                "!=" => return Ok(!self.filter(start, path, Condition::Equal(value))?),
                "=" => Condition::Equal(value),
                "<=" => Condition::Range(Bound::Unbounded, Bound::Included(value)),
                ">=" => Condition::Range(Bound::Included(value), Bound::Unbounded),
                "<" => Condition::Range(Bound::Unbounded, Bound::Excluded(value)),
                _ => Condition::Range(Bound::Excluded(value), Bound::Unbounded),
            }
        } else if self.scanner.take_keyword("in") {
            return self.within_values(start, path);
        } else if self.scanner.take_keyword("not") {
            self.keyword("in")?;
            return Ok(!self.within_values(start, path)?);
        } else if self.scanner.take_keyword("is") {
            let negated = self.scanner.take_keyword("not");
            let filter = if self.scanner.take_keyword("absent") {
                !Filter::from(Predicate::exists(path))
            } else {
                self.keyword("null")?;
                self.filter(start, path, Condition::Equal(Value::Null))?
            };
            return Ok(if negated { !filter } else { filter });
        } else if self.scanner.take_keyword("exists") {
            Condition::Exists
        } else if self.scanner.take_keyword("starts") {
            self.keyword("with")?;
            let at = self.scanner.skip_space();
            match self.scanner.value()? {
                Value::String(prefix) => Condition::Prefix(prefix),
                _ => return Err(self.scanner.error_at(at, "a prefix is a text in double quotes")),
            }
        } else if self.scanner.take_keyword("within") {
            let at = self.scanner.skip_space();
            let window = self.scanner.coordinates()?.parse();
            Condition::Within(window.map_err(|error| self.scanner.at(at, &error))?)
        } else if self.scanner.take_keyword("nearest") {
            let at = self.scanner.skip_space();
            let point = self.scanner.coordinates()?.parse();
            Condition::Nearest(point.map_err(|error| self.scanner.at(at, &error))?)
        } else {
            let tests = "`=`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is`, `exists`, `starts with`, `within` or `nearest`";
            return Err(self.expected(tests));
        };
        self.filter(start, path, condition)
    }

    /// A list or a range of values.
    fn within_values(&mut self, start: usize, path: AttributePath) -> Result<Filter> {
        let at = self.scanner.skip_space();
        if self.scanner.take("(") {
            let mut values = vec![self.scanner.value()?];
            while self.scanner.take(",") {
                values.push(self.scanner.value()?);
                if values.len() > MAX_FILTER_VALUES {
                    return Err(self.scanner.error_at(at, &format!("more than {MAX_FILTER_VALUES} values")));
                }
            }
            if !self.scanner.take(")") {
                return Err(self.expected("`,` or a bracket that closes the list"));
            }
            let set = ValueSet::new(path, values.into_iter());
            return Ok(Filter::of_set(set.map_err(|error| self.scanner.at(start, &error))?));
        }
        let low = self.scanner.value()?;
        let Some(mark) = self.scanner.take_one_of(&["<..<", "<..", "..<", ".."]) else {
            return Err(self.expected("`..` and the other end of a range, or a list in brackets"));
        };
        let high = self.scanner.value()?;
        let end = |excluded: bool, value: Value| {
            if excluded { Bound::Excluded(value) } else { Bound::Included(value) }
        };
        let (low, high) = (end(mark.starts_with('<'), low), end(mark.ends_with('<'), high));
        let predicate = Predicate::range(path, (low, high)).map_err(|error| self.scanner.at(at, &error))?;
        predicate.check_not_empty().map_err(|error| self.scanner.at(at, &error))?;
        Ok(predicate.into())
    }

    fn filter(&self, start: usize, path: AttributePath, condition: Condition) -> Result<Filter> {
        match Predicate::new(path, condition) {
            Ok(predicate) => Ok(predicate.into()),
            Err(error) => Err(self.scanner.at(start, &error)),
        }
    }

    fn keyword(&mut self, keyword: &str) -> Result<()> {
        match self.scanner.take_keyword(keyword) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{keyword}`"))),
        }
    }

    /// The error that `what` is missing at the present position.
    fn expected(&mut self, what: &str) -> Error {
        let at = self.scanner.skip_space();
        self.scanner.error_at(at, &format!("expected {what}"))
    }
}
