//! The statements of a text, and their first words.

/// The statements of `text`, without the semicolons between them and without empty ones. Semicolons in quotes, in comments and
/// in dollar quotes separate nothing.
///
/// ```
/// let text = "SELECT ';' -- ; \n; SELECT $a$ ; $a$;";
/// assert_eq!(bolide_sql::split_statements(text), ["SELECT ';' -- ; ", "SELECT $a$ ; $a$"]);
/// ```
pub fn split_statements(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let mut start = 0;
    for end in separators(text).0 {
        statements.extend(statement(text.get(start..end).unwrap_or_default()));
        start = end + 1;
    }
    statements.extend(statement(text.get(start..).unwrap_or_default()));
    statements
}

/// Whether `text` ends with a whole statement: after its last semicolon are only spaces and comments.
///
/// ```
/// assert!(bolide_sql::is_complete("SELECT 1; -- done"));
/// assert!(!bolide_sql::is_complete("SELECT ';"));
/// ```
pub fn is_complete(text: &str) -> bool {
    let (separators, is_open) = separators(text);
    let start = separators.last().map_or(0, |last| last + 1);
    let rest = text.get(start..).unwrap_or_default();
    !is_open && statement(rest).is_none()
}

/// Whether a statement writes, as its first word states: then the database has to be open for writing.
///
/// ```
/// assert!(bolide_sql::is_write("/* a */ insert INTO t VALUES (1)"));
/// assert!(!bolide_sql::is_write("SELECT 1"));
/// ```
pub fn is_write(statement: &str) -> bool {
    const WRITES: [&str; 14] = [
        "INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER", "TRUNCATE", "REINDEX", "ANALYZE",
        "BEGIN", "START", "COPY", "MERGE",
    ];
    let first = words(statement).into_iter().next().unwrap_or_default().to_ascii_uppercase();
    WRITES.contains(&first.as_str())
}

/// The trimmed statement, if it is not empty.
fn statement(text: &str) -> Option<&str> {
    let trimmed = text.trim_start();
    let trimmed = trimmed.strip_suffix(['\n', '\r', '\t']).unwrap_or(trimmed);
    (!skip_comments(trimmed).is_empty()).then_some(trimmed)
}

/// `text` after the spaces and comments at its start.
pub(crate) fn skip_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = if rest.starts_with("--") {
            rest.split_once('\n').map_or("", |(_, rest)| rest)
        } else if rest.starts_with("/*") {
            rest.get(comment_end(rest.as_bytes(), 0).0..).unwrap_or_default()
        } else {
            return rest;
        }
        .trim_start();
    }
}

/// The first words of a statement, up to the first other character that is no space.
pub(crate) fn words(statement: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = skip_comments(statement);
    while words.len() < 8 {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let Some((word, after)) = rest.split_at_checked(end).filter(|(word, _)| !word.is_empty()) else {
            break;
        };
        words.push(word);
        rest = skip_comments(after);
    }
    words
}

/// The places of the semicolons between statements, and whether a quote or a comment is open at the end.
fn separators(text: &str) -> (Vec<usize>, bool) {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let (end, is_closed) = match byte {
            b';' => {
                found.push(at);
                (at + 1, true)
            }
            b'\'' if has_escapes(bytes, at) => escaped_end(bytes, at),
            b'\'' | b'"' => quote_end(bytes, at),
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                let line = bytes.iter().skip(at).position(|byte| *byte == b'\n');
                (line.map_or(bytes.len(), |line| at + line + 1), true)
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'$' => dollar_end(text, at),
            _ => (at + 1, true),
        };
        if !is_closed {
            return (found, true);
        }
        at = end;
    }
    (found, false)
}

/// The end of a quoted text; a doubled quote is a part of it.
fn quote_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let quote = bytes.get(start);
    let mut at = start + 1;
    while at < bytes.len() {
        if bytes.get(at) == quote {
            if bytes.get(at + 1) != quote {
                return (at + 1, true);
            }
            at += 1;
        }
        at += 1;
    }
    (bytes.len(), false)
}

/// Whether the quote at `at` follows an `E` that is a word of its own: then a backslash escapes the next character.
fn has_escapes(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).and_then(|at| bytes.get(at));
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii();
    matches!(before(1), Some(b'E' | b'e')) && !before(2).is_some_and(is_name)
}

/// The end of a quoted text with backslashes before characters that are escaped.
fn escaped_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let mut at = start + 1;
    while at < bytes.len() {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'\\'), _) | (Some(b'\''), Some(b'\'')) => at += 2,
            (Some(b'\''), _) => return (at + 1, true),
            _ => at += 1,
        }
    }
    (bytes.len(), false)
}

/// The end of a comment, in which others may be nested.
fn comment_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut depth, mut at) = (0_usize, start);
    while at < bytes.len() {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b'/'), Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (Some(b'*'), Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return (at, true);
                }
            }
            _ => at += 1,
        }
    }
    (bytes.len(), false)
}

/// The end of a text in dollar quotes: `$$…$$` or `$tag$…$tag$`.
fn dollar_end(text: &str, start: usize) -> (usize, bool) {
    let rest = text.get(start + 1..).unwrap_or_default();
    let tag_end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let tag = tag_end.and_then(|end| rest.get(..end));
    match (tag, tag_end.and_then(|end| rest.as_bytes().get(end))) {
        (Some(tag), Some(b'$')) if !tag.starts_with(|c: char| c.is_ascii_digit()) => {
            let quote = format!("${tag}$");
            let inner = start + quote.len();
            match text.get(inner..).and_then(|rest| rest.find(&quote)) {
                Some(end) => (inner + end + quote.len(), true),
                None => (text.len(), false),
            }
        }
        _ => (start + 1, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_separate_nothing() {
        let text = "SELECT 'a;''b'; /* ; /* ; */ ; */ SELECT \"x;\"; -- ;\nSELECT $1; ;; $q$;";
        assert_eq!(
            split_statements(text),
            ["SELECT 'a;''b'", "/* ; /* ; */ ; */ SELECT \"x;\"", "-- ;\nSELECT $1", "$q$;"]
        );
        assert_eq!(split_statements(" ; -- a\n ; /* b */ "), Vec::<&str>::new());
    }

    #[test]
    fn a_backslash_escapes_a_quote_after_e_alone() {
        let text = r"SELECT E'it\'s; x', e'a''b\\'; SELECT 'c\'; SELECT type'd\'; SELECT 1";
        assert_eq!(
            split_statements(text),
            [r"SELECT E'it\'s; x', e'a''b\\'", r"SELECT 'c\'", r"SELECT type'd\'", "SELECT 1"]
        );
        assert!(!is_complete(r"SELECT E'a\';"));
    }

    #[test]
    fn open_quotes_are_incomplete() {
        for text in ["SELECT 'a;", "SELECT 1; /* ;", "SELECT $a$;", "SELECT 1", "SELECT \";"] {
            assert!(!is_complete(text), "{text}");
        }
        for text in ["", "SELECT 1;", "SELECT 1; SELECT ';';", "SELECT $1;\n-- x"] {
            assert!(is_complete(text), "{text}");
        }
    }

    #[test]
    fn any_text_is_split() {
        for text in ["'", "\"", "$", "$$", "$a", "/*", "--", "*/", "ä;ö'ü;", "$ä$;$ä$;", ";"] {
            let _ = (split_statements(text), is_complete(text), is_write(text));
        }
    }
}
