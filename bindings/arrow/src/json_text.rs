//! Strings of JSON: escapes, resolved and written.

/// Appends the content of a string with its escapes resolved. `None` if an escape is invalid; `out` then has a part of it.
pub(crate) fn unescape(content: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(rest.get(..at)?);
        let escape = *rest.get(at + 1)?;
        rest = rest.get(at + 2..)?;
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, behind) = unicode(rest)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = behind;
                continue;
            }
            _ => return None,
        };
        out.push(plain);
    }
    out.extend_from_slice(rest);
    Some(())
}

/// The character of an escape after `\u`, which may be a pair, and what follows.
fn unicode(rest: &[u8]) -> Option<(char, &[u8])> {
    let (first, rest) = hex(rest)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, rest));
    }
    let (second, rest) = hex(rest.strip_prefix(b"\\u")?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)?, rest))
}

fn hex(rest: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = rest.split_at_checked(4)?;
    let mut value = 0;
    for digit in digits {
        value = value * 16 + char::from(*digit).to_digit(16)?;
    }
    Some((value, rest))
}

/// Appends `text` as a string of JSON, with its quotes.
///
/// ```
/// let mut json = Vec::new();
/// bolide_arrow::write_json_string("a\n", &mut json);
/// assert_eq!(json, br#""a\n""#);
/// ```
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(bytes.get(start..at).unwrap_or(&[]));
        start = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble & 15)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(control >> 4), digit(control)]);
            }
        }
    }
    out.extend_from_slice(bytes.get(start..).unwrap_or(&[]));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_were_written() {
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"\\/\n\r\t\u{8}\u{c}\0", "é😀\u{ffff}", &all] {
            let mut written = Vec::new();
            write_string(text, &mut written);
            assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), text);
            let mut read = Vec::new();
            unescape(&written[1..written.len() - 1], &mut read).unwrap();
            assert_eq!(read, text.as_bytes());
        }
        let mut read = Vec::new();
        unescape(br"\ud83d\ude00\u00E9\b\f\/", &mut read).unwrap();
        assert_eq!(read, "😀é\u{8}\u{c}/".as_bytes());
    }

    #[test]
    fn invalid_escapes_are_refused() {
        for text in
            [r"\", r"\x", r"\u", r"\u12", r"\u00g0", r"\ud800", r"\ud800\n", r"\ud800\u0041", r"\udc00"]
        {
            assert_eq!(unescape(text.as_bytes(), &mut Vec::new()), None, "{text}");
        }
    }
}
