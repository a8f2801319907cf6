//! The rules of a database, each with a mark in the messages of its failures.
//!
//! A proof must detect a planted bug by the rule that the bug breaks. So each failure message contains the mark of its rule,
//! and `expected.rs` lists the rules that each planted bug may break.

use std::fmt;

/// A rule that a database must fulfil.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The database opens.
    Opens,
    /// All contents are readable.
    Readable,
    /// The database is in one of the possible states: no acknowledged write is lost, and no write is visible in part.
    State,
    /// The deep check finds no problem.
    Sound,
    /// Each matching record is among the answers.
    Complete,
    /// Each answer is a matching record.
    Exact,
    /// No record is among the answers twice.
    Once,
    /// The answers are in the order of the query.
    Ordered,
    /// The answers have the contents or the values of their records.
    Contents,
    /// An index answers as a scan of the records.
    Agrees,
    /// Each call returns.
    Returns,
    /// No two writes have the same sequence number.
    Numbers,
    /// Transactions are isolated from each other.
    Isolated,
    /// No size from a file or a caller causes an oversized allocation.
    Memory,
    /// The memory of a database is within its budget, and what it counts is what it has.
    Budget,
}

impl Rule {
    /// The mark in the messages of failures of this rule.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Opens => "[opens]",
            Self::Readable => "[readable]",
            Self::State => "[state]",
            // The proofs about damage recognize a failed check by this prefix.
            Self::Sound => "check: [",
            Self::Complete => "[complete]",
            Self::Exact => "[exact]",
            Self::Once => "[once]",
            Self::Ordered => "[ordered]",
            Self::Contents => "[contents]",
            Self::Agrees => "[agrees]",
            Self::Returns => "[returns]",
            Self::Numbers => "[numbers]",
            Self::Isolated => "[isolated]",
            Self::Memory => "[memory]",
            Self::Budget => "[budget]",
        }
    }

    /// Whether `failure` is a failure of this rule.
    pub fn is_broken_by(self, failure: &str) -> bool {
        failure.contains(self.mark())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mark())
    }
}

/// The marks of the rules that the answers `found` break, if `wanted` is correct.
pub(crate) fn broken_by_answers(found: &[&[u8]], wanted: &[&[u8]]) -> String {
    let count = |keys: &[&[u8]], key: &[u8]| keys.iter().filter(|other| **other == key).count();
    let mut broken = Vec::new();
    if found.iter().any(|key| count(found, key) > count(wanted, key).max(1)) {
        broken.push(Rule::Once);
    }
    if wanted.iter().any(|key| count(found, key) == 0) {
        broken.push(Rule::Complete);
    }
    if found.iter().any(|key| count(wanted, key) == 0) {
        broken.push(Rule::Exact);
    }
    if broken.is_empty() {
        broken.push(Rule::Ordered);
    }
    broken.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_name_the_rules_that_they_break() {
        let broken = |found: &[&str], wanted: &[&str]| {
            let keys = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
            let (found, wanted) = (keys(found), keys(wanted));
            let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
            let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
            broken_by_answers(&found, &wanted)
        };
        assert_eq!(broken(&["a"], &["a", "b"]), "[complete]");
        assert_eq!(broken(&["a", "b"], &["a"]), "[exact]");
        assert_eq!(broken(&["a", "a"], &["a"]), "[once]");
        assert_eq!(broken(&["b", "a"], &["a", "b"]), "[ordered]");
        assert_eq!(broken(&["a", "c"], &["a", "b"]), "[complete] [exact]");
    }
}
