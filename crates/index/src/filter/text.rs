//! The text form of a filter; [`Filter::parse`] reads it.

use std::fmt::{self, Write as _};
use std::ops::Bound;

use crate::attribute::Value;
use crate::predicate::{Condition, Predicate};

use super::token::KEYWORDS;
use super::{Filter, FilterNode, ValueSet};

/// Values of a list that are printed in explanations.
const MAX_PRINTED_VALUES: usize = 8;

/// How tightly a node binds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Binding {
    Or,
    And,
    Not,
}

/// As text that [`parse`](Filter::parse) reads.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.write(f, Binding::Or, usize::MAX)
    }
}

impl FilterNode {
    /// The text with shortened lists, for explanations.
    pub(crate) fn summary(&self) -> String {
        struct Summary<'n>(&'n FilterNode);
        impl fmt::Display for Summary<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, Binding::Or, MAX_PRINTED_VALUES)
            }
        }
        Summary(self).to_string()
    }

    /// The whole text.
    pub(crate) fn full_text(&self) -> String {
        struct Full<'n>(&'n FilterNode);
        impl fmt::Display for Full<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, Binding::Or, usize::MAX)
            }
        }
        Full(self).to_string()
    }

    /// Writes the node, in parentheses if it binds less than `outer`.
    fn write(&self, f: &mut fmt::Formatter<'_>, outer: Binding, max_values: usize) -> fmt::Result {
        let (nodes, own, word) = match self {
            Self::All(nodes) if nodes.is_empty() => return f.write_str("true"),
            Self::Any(nodes) if nodes.is_empty() => return f.write_str("false"),
            Self::All(nodes) => (nodes, Binding::And, " and "),
            Self::Any(nodes) => (nodes, Binding::Or, " or "),
            Self::Not(node) => {
                f.write_str("not ")?;
                return node.write(f, Binding::Not, max_values);
            }
            Self::Test(predicate) => return write_test(f, predicate),
            Self::In(set) => return write_set(f, set, max_values),
        };
        let in_parentheses = own < outer;
        if in_parentheses {
            f.write_char('(')?;
        }
        for (position, node) in nodes.iter().enumerate() {
            if position > 0 {
                f.write_str(word)?;
            }
            let inner = if own == Binding::Or { Binding::And } else { Binding::Not };
            node.write(f, inner, max_values)?;
        }
        if in_parentheses { f.write_char(')') } else { Ok(()) }
    }
}

fn write_test(f: &mut fmt::Formatter<'_>, predicate: &Predicate) -> fmt::Result {
    write_path(f, &predicate.path().to_string())?;
    match predicate.condition() {
        Condition::Equal(value) => write!(f, " = {value}"),
        Condition::Prefix(prefix) => write!(f, " starts with {}", Value::from(prefix.as_str())),
        Condition::Exists => f.write_str(" exists"),
        Condition::Within(window) => write!(f, " within ({window})"),
        Condition::Nearest(point) => write!(f, " nearest ({point})"),
        Condition::Range(Bound::Unbounded, Bound::Included(high)) => write!(f, " <= {high}"),
        Condition::Range(Bound::Unbounded, Bound::Excluded(high)) => write!(f, " < {high}"),
        Condition::Range(Bound::Included(low), Bound::Unbounded) => write!(f, " >= {low}"),
        Condition::Range(Bound::Excluded(low), Bound::Unbounded) => write!(f, " > {low}"),
        Condition::Range(low, high) => {
            f.write_str(" in ")?;
            match low {
                Bound::Included(low) => write!(f, "{low}..")?,
                Bound::Excluded(low) => write!(f, "{low}<..")?,
                Bound::Unbounded => f.write_str("..")?,
            }
            match high {
                Bound::Included(high) => write!(f, "{high}"),
                Bound::Excluded(high) => write!(f, "<{high}"),
                Bound::Unbounded => Ok(()),
            }
        }
    }
}

fn write_set(f: &mut fmt::Formatter<'_>, set: &ValueSet, max_values: usize) -> fmt::Result {
    write_path(f, &set.path().to_string())?;
    f.write_str(" in (")?;
    for (position, (value, _)) in set.values().iter().take(max_values).enumerate() {
        let comma = if position == 0 { "" } else { ", " };
        write!(f, "{comma}{value}")?;
    }
    if set.len() > max_values {
        write!(f, ", … {} values", set.len())?;
    }
    f.write_char(')')
}

/// Writes a path. What the text of a path does not escape, but a filter needs, is escaped here.
fn write_path(f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
    if KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(path)) {
        return write!(f, "\\{path}");
    }
    let mut escaped = false;
    for character in path.chars() {
        if !escaped && (character.is_whitespace() || matches!(character, '"' | '!' | '<' | '>' | '=')) {
            f.write_char('\\')?;
        }
        escaped = !escaped && character == '\\';
        f.write_char(character)?;
    }
    Ok(())
}
