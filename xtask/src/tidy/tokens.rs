//! A small lexer of Rust: enough to separate code from comments and literals, and to find identifiers.

/// `text` with every comment and the inside of every string and character literal replaced by
/// spaces. Line breaks stay, so line numbers do too.
pub(crate) fn blank_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => end_of_block_comment(bytes, at),
            b'"' => end_of_string(bytes, at),
            b'r' | b'b' | b'c' if !follows_identifier(bytes, at) => match raw_string_hashes(bytes, at) {
                Some((quote, hashes)) => end_of_raw_string(bytes, quote, hashes),
                None => at,
            },
            b'\'' => end_of_character(bytes, at),
            _ => at,
        };
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    // Only whole bytes of one kind are replaced by ASCII, outside of literals nothing changes.
    String::from_utf8_lossy(&out).into_owned()
}

fn follows_identifier(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |length| at + length)
}

fn end_of_block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Where the quote stands and how many `#` precede it, if a raw string starts at `at`.
fn raw_string_hashes(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut quote = at;
    if bytes[quote] != b'r' {
        quote += 1;
    }
    if bytes.get(quote) != Some(&b'r') {
        return None;
    }
    quote += 1;
    let hashes = bytes[quote..].iter().take_while(|&&b| b == b'#').count();
    (bytes.get(quote + hashes) == Some(&b'"')).then_some((quote + hashes, hashes))
}

fn end_of_raw_string(bytes: &[u8], quote: usize, hashes: usize) -> usize {
    let mut at = quote + 1;
    while at < bytes.len() {
        if bytes[at] == b'"' && bytes[at + 1..].iter().take(hashes).filter(|&&b| b == b'#').count() == hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    bytes.len()
}

/// The end of a character literal, or `start` where the quote opens a lifetime or a label.
fn end_of_character(bytes: &[u8], start: usize) -> usize {
    if bytes.get(start + 1) == Some(&b'\\') {
        let close = bytes[(start + 3).min(bytes.len())..].iter().position(|&b| b == b'\'');
        return close.map_or(bytes.len(), |length| start + 3 + length + 1);
    }
    // One character of one to four bytes, then the closing quote.
    let close = (start + 2..(start + 6).min(bytes.len())).find(|&at| bytes[at] == b'\'');
    match close {
        Some(at) if std::str::from_utf8(&bytes[start + 1..at]).is_ok_and(|c| c.chars().count() == 1) => {
            at + 1
        }
        _ => start,
    }
}

/// `code` (already without comments and literals) with every item under `#[cfg(test)]` blanked.
pub(crate) fn blank_tests(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(start) = find_test_attribute(&bytes, from) {
        let end = end_of_item(&bytes, start);
        for byte in &mut bytes[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end.max(start + 1);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find_test_attribute(bytes: &[u8], from: usize) -> Option<usize> {
    let markers: [&[u8]; 3] = [b"#[cfg(test)]", b"#[cfg(all(test", b"#[test]"];
    (from..bytes.len()).find(|&at| markers.iter().any(|marker| bytes[at..].starts_with(marker)))
}

/// The end of the item whose attributes start at `start`: its `;` or its closing brace.
fn end_of_item(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_i64;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth -= 1;
                if depth == 0 && byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// A token of code: an identifier or a punctuation character, with its line from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// The identifier, or one punctuation character (`::` is one token).
    pub(crate) text: &'a str,
    /// Line number from 1.
    pub(crate) line: usize,
}

/// The tokens of `code`, which has no comments and literals any more. Numbers count as identifiers.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let bytes = code.as_bytes();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        if byte == b'\n' {
            line += 1;
        }
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                at += 1;
            }
        } else if bytes[at..].starts_with(b"::") {
            at += 2;
        } else {
            at += 1;
        }
        if !byte.is_ascii_whitespace()
            && let Some(text) = code.get(start..at)
        {
            out.push(Token { text, line });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        let text = "a // b\n/* c /* d */ e */ f \"g\\\"h\" r#\"i\"j\"# 'k' '\\'' 'l: loop b\"m\" br\"n\" o";
        let code = blank_comments_and_strings(text);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "f", "'l:", "loop", "b", "o"]);
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn unclosed_input_ends() {
        for text in ["/* a", "\"a", "r#\"a", "'\\", "'", "b'", "r#", "#[cfg(test)] mod {"] {
            let code = blank_comments_and_strings(text);
            assert!(tokens(&blank_tests(&code)).len() <= text.len());
        }
    }

    #[test]
    fn test_items_are_blank() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c(); } }\n#[cfg(test)] mod d;\nfn e() {}";
        let product = blank_tests(code);
        assert!(product.contains("fn a") && product.contains("fn e"));
        assert!(!product.contains("fn b") && !product.contains("mod d"));
    }

    #[test]
    fn tokens_know_their_lines() {
        let found = tokens("use a::b;\nfn c()");
        assert_eq!(found[2], Token { text: "::", line: 1 });
        assert_eq!(found[5], Token { text: "fn", line: 2 });
    }
}
