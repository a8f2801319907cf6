//! The tokens of a statement, one after the other.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, SqlState};

/// Operators in a row in one expression: each is a level of its tree.
const MAX_CHAIN: usize = 100;

/// Words that the parser reads in a loop, each of which is a level of the tree around what is before it.
const CHAIN_WORDS: &[&str] = &[
    "AND",
    "OR",
    "XOR",
    "NOT",
    "IS",
    "ISNULL",
    "NOTNULL",
    "IN",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "RLIKE",
    "REGEXP",
    "SIMILAR",
    "MATCH",
    "MEMBER",
    "OVERLAPS",
    "OPERATOR",
    "DIV",
    "COLLATE",
    "AT",
    "CASE",
    "WHEN",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "MINUS",
    "JOIN",
    "STRAIGHT_JOIN",
    "APPLY",
    "PIVOT",
    "UNPIVOT",
    "MATCH_RECOGNIZE",
];
/// Words after which commas join tables or queries, each of which is a level of the plan.
const NESTING_LISTS: &[&str] = &["FROM", "USING", "WITH"];
/// Words that end such a list.
const LIST_ENDS: &[&str] =
    &["SELECT", "SET", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "VALUES", "RETURNING"];

/// The operators between two parentheses.
#[derive(Default)]
struct ChainLevel {
    /// Levels of the tree since the last comma.
    current: usize,
    /// Levels of the deepest part between commas.
    deepest: usize,
    /// Whether commas join, too.
    is_nesting_list: bool,
    /// Whether the last word is DISTINCT: the FROM after it is no list.
    is_distinct: bool,
    /// Names in a row with periods between them.
    names: usize,
}

impl ChainLevel {
    fn word(&mut self, word: &str) {
        let is_in = |words: &[&str]| words.iter().any(|one| word.eq_ignore_ascii_case(one));
        self.current += usize::from(is_in(CHAIN_WORDS));
        let is_list = is_in(NESTING_LISTS) && !self.is_distinct;
        self.is_nesting_list = is_list || (self.is_nesting_list && !is_in(LIST_ENDS));
        self.is_distinct = word.eq_ignore_ascii_case("DISTINCT");
    }

    fn comma(&mut self) {
        if self.is_nesting_list {
            self.current += 1;
        } else {
            self.deepest = self.deepest.max(self.current);
            self.current = 0;
        }
    }

    /// Takes what stood in parentheses or brackets; a bracket is an operator itself.
    fn close(&mut self, inner: &Self, is_bracket: bool) {
        let inner = inner.deepest.max(inner.current);
        self.current = self.current.max(inner + usize::from(inner > 0)) + usize::from(is_bracket);
    }
}

/// Fails for an expression with too many operators in a row.
///
/// # Errors
/// For such an expression, and text that has no tokens.
pub(crate) fn check_chains(text: &str) -> Result<()> {
    // Shorter text has no longer chain.
    if text.len() < 2 * MAX_CHAIN {
        return Ok(());
    }
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize();
    let mut outer: Vec<ChainLevel> = Vec::new();
    let mut level = ChainLevel::default();
    for token in tokens.map_err(|error| SqlError::syntax(error.to_string()))? {
        let is_name = matches!(&token, Token::Word(_) | Token::Whitespace(_) | Token::Period);
        level.names = if is_name { level.names + usize::from(token == Token::Period) } else { 0 };
        match &token {
            Token::LParen | Token::LBracket | Token::LBrace => outer.push(std::mem::take(&mut level)),
            Token::RParen | Token::RBracket | Token::RBrace => {
                let inner = std::mem::replace(&mut level, outer.pop().unwrap_or_default());
                level.close(&inner, token == Token::RBracket);
            }
            Token::Comma => level.comma(),
            Token::SemiColon => level = ChainLevel::default(),
            // Neither names, values nor spaces.
            Token::Word(word) if word.quote_style.is_some() => {}
            Token::Word(word) => level.word(&word.value),
            Token::Whitespace(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Period => {}
            _ => level.current += 1,
        }
        if level.current.max(level.names) > MAX_CHAIN {
            let message = format!("an expression has more than {MAX_CHAIN} operators in a row");
            return Err(SqlError::new(SqlState::LimitExceeded, message)
                .with_hint("write IN (…) for many values of one column, or join a table of them"));
        }
    }
    Ok(())
}

/// A position among the tokens of a statement.
pub(crate) struct TokenCursor<'t> {
    text: &'t str,
    tokens: Vec<TokenWithSpan>,
    at: usize,
}

impl<'t> TokenCursor<'t> {
    /// The first token of `text`. Spaces and comments are no tokens.
    ///
    /// # Errors
    /// For text that has no tokens, such as an open quote.
    pub(crate) fn new(text: &'t str) -> Result<Self> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
        let mut tokens = tokens.map_err(|error| SqlError::syntax(error.to_string()))?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        Ok(Self { text, tokens, at: 0 })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.peek(), None | Some(Token::EOF))
    }

    /// Whether the next tokens are these words, which are then taken.
    pub(crate) fn take_words(&mut self, words: &[&str]) -> bool {
        let is_word = |(offset, word): (usize, &&str)| {
            let token = self.tokens.get(self.at + offset).map(|token| &token.token);
            matches!(token, Some(Token::Word(found)) if found.quote_style.is_none()
                && found.value.eq_ignore_ascii_case(word))
        };
        let found = words.iter().enumerate().all(is_word);
        if found {
            self.at += words.len();
        }
        found
    }

    /// Whether the next token is `token`, which is then taken.
    pub(crate) fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Takes `token`.
    ///
    /// # Errors
    /// For another one.
    pub(crate) fn expect(&mut self, token: &Token) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// Takes words.
    ///
    /// # Errors
    /// For other ones.
    pub(crate) fn expect_words(&mut self, words: &[&str]) -> Result<()> {
        if self.take_words(words) { Ok(()) } else { Err(self.unexpected(&words.join(" "))) }
    }

    /// Takes a name: in lower case, unless it stands in double quotes.
    ///
    /// # Errors
    /// For another token; `what` names it.
    pub(crate) fn name(&mut self, what: &str) -> Result<String> {
        let name = match self.peek() {
            Some(Token::Word(word)) if word.quote_style.is_some() => word.value.clone(),
            Some(Token::Word(word)) => word.value.to_lowercase(),
            _ => return Err(self.unexpected(what)),
        };
        self.at += 1;
        Ok(name)
    }

    /// Takes a value: a word, a number or a text in single quotes.
    ///
    /// # Errors
    /// For another token.
    pub(crate) fn value(&mut self) -> Result<String> {
        let value = match self.peek() {
            Some(Token::Word(word)) => word.value.to_lowercase(),
            Some(Token::Number(digits, _)) => digits.clone(),
            Some(Token::SingleQuotedString(text)) => text.clone(),
            _ => return Err(self.unexpected("a value")),
        };
        self.at += 1;
        Ok(value)
    }

    /// Takes names in parentheses, with commas between them.
    ///
    /// # Errors
    /// For another form.
    pub(crate) fn names(&mut self, what: &str) -> Result<Vec<String>> {
        self.expect(&Token::LParen)?;
        let mut names = vec![self.name(what)?];
        while self.take(&Token::Comma) {
            names.push(self.name(what)?);
        }
        self.expect(&Token::RParen)?;
        Ok(names)
    }

    /// Takes `(name = value, …)`.
    ///
    /// # Errors
    /// For another form.
    pub(crate) fn options(&mut self) -> Result<Vec<(String, String)>> {
        self.expect(&Token::LParen)?;
        let mut options = Vec::new();
        loop {
            let name = self.name("the name of an option")?;
            self.expect(&Token::Eq)?;
            options.push((name, self.value()?));
            if !self.take(&Token::Comma) {
                break;
            }
        }
        self.expect(&Token::RParen)?;
        Ok(options)
    }

    /// The text from the next token on.
    pub(crate) fn rest(&self) -> &'t str {
        let Some(token) = self.tokens.get(self.at) else { return "" };
        let start = token.span.start;
        let line = usize::try_from(start.line).unwrap_or(1).saturating_sub(1);
        let column = usize::try_from(start.column).unwrap_or(1).saturating_sub(1);
        let before: usize = self.text.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = self.text.get(before..).unwrap_or_default();
        let skipped = rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
        rest.get(skipped..).unwrap_or_default()
    }

    /// Fails if tokens are left.
    ///
    /// # Errors
    /// For tokens that are left.
    pub(crate) fn end(&self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { Err(self.unexpected("the end of the statement")) }
    }

    /// The error that the next token is not what is expected.
    pub(crate) fn unexpected(&self, expected: &str) -> SqlError {
        match self.tokens.get(self.at).filter(|_| !self.is_at_end()) {
            Some(token) => SqlError::syntax(format!(
                "expected {expected} instead of `{}` in line {}, column {}",
                token.token, token.span.start.line, token.span.start.column
            )),
            None => SqlError::syntax(format!("expected {expected} at the end of the statement")),
        }
    }
}
