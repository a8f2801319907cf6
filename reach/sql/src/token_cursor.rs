//! The tokens of a statement, one after the other.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, SqlState};

/// Operators in a row in one expression: each is a level of its tree.
const MAX_CHAIN: usize = 100;

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
    let mut open = vec![0_usize];
    for token in tokens.map_err(|error| SqlError::syntax(error.to_string()))? {
        match &token {
            Token::LParen | Token::LBracket | Token::LBrace => open.push(0),
            Token::RParen | Token::RBracket | Token::RBrace => drop(open.pop()),
            Token::Comma | Token::SemiColon => {
                open.iter_mut().last().into_iter().for_each(|chain| *chain = 0)
            }
            // Neither names, values nor spaces.
            Token::Word(word) if word.quote_style.is_some() => {}
            Token::Word(word) => {
                let is_operator =
                    ["AND", "OR", "NOT", "UNION", "EXCEPT", "INTERSECT", "JOIN", "CASE", "WHEN"]
                        .iter()
                        .any(|operator| word.value.eq_ignore_ascii_case(operator));
                open.iter_mut().last().into_iter().for_each(|chain| *chain += usize::from(is_operator));
            }
            Token::Whitespace(_) | Token::Number(..) | Token::SingleQuotedString(_) | Token::Period => {}
            _ => open.iter_mut().last().into_iter().for_each(|chain| *chain += 1),
        }
        if open.last().is_some_and(|chain| *chain > MAX_CHAIN) {
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
