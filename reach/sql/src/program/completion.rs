//! Completion of keywords, tables and columns in the shell.

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

const KEYWORDS: &[&str] = &[
    "ADVISE",
    "ANALYZE",
    "AND",
    "AS",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CHECK TABLE",
    "COMMIT",
    "CREATE INDEX",
    "CREATE TABLE",
    "DELETE FROM",
    "DESC",
    "DISTINCT",
    "DROP INDEX",
    "DROP TABLE",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "FROM",
    "GROUP BY",
    "HAVING",
    "IN",
    "INCLUDE",
    "INSERT INTO",
    "IS NOT NULL",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON CONFLICT",
    "OR",
    "ORDER BY",
    "REINDEX",
    "RETURNING",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "USING",
    "UPDATE",
    "VALUES",
    "WHERE",
    "WITH",
    "\\d",
    "\\di",
    "\\format",
    "\\q",
    "\\timing",
];

/// The words that the shell completes.
#[derive(Debug, Default)]
pub(crate) struct WordHelper {
    /// Names of tables and columns, as they stand in a statement.
    pub(crate) names: Vec<String>,
}

/// A name as it stands in a statement.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

impl WordHelper {
    /// The words that begin as the text before `place` ends, and where it begins.
    fn candidates(&self, line: &str, place: usize) -> (usize, Vec<String>) {
        let before = line.get(..place).unwrap_or(line);
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '"' | '\\' | '.')))
            .map_or(0, |at| {
                at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
            });
        let typed = before.get(start..).unwrap_or_default();
        if typed.is_empty() {
            return (place, Vec::new());
        }
        let upper = typed.to_uppercase();
        let names = self.names.iter().filter(|name| name.starts_with(typed)).cloned();
        let keywords = KEYWORDS.iter().filter(|word| word.starts_with(&upper) || word.starts_with(typed));
        (start, names.chain(keywords.map(|word| (*word).to_owned())).collect())
    }
}

impl Completer for WordHelper {
    type Candidate = String;

    fn complete(&self, line: &str, place: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(line, place))
    }
}

impl Hinter for WordHelper {
    type Hint = String;
}

impl Highlighter for WordHelper {}

impl Validator for WordHelper {}

impl Helper for WordHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keywords_are_completed() {
        let helper = WordHelper { names: vec!["posts".to_owned(), quoted("user.id"), quoted("Größe")] };
        assert_eq!(helper.candidates("sel", 3), (0, vec!["SELECT".to_owned()]));
        assert_eq!(helper.candidates("select * from po", 16), (14, vec!["posts".to_owned()]));
        assert_eq!(helper.candidates("where \"us", 9), (6, vec!["\"user.id\"".to_owned()]));
        assert_eq!(helper.candidates("größe(\"Gr", 11).1, vec!["\"Größe\"".to_owned()]);
        assert_eq!(helper.candidates("select ", 7).1, Vec::<String>::new());
    }
}
