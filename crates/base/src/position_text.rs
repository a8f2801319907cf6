//! Bytes as text that is passed around and read again: cursor tokens, positions of operations.
//!
//! ```text
//! text   hexadecimal digits of:
//!        version    1 byte
//!        content    n bytes
//!        checksum   4 bytes   of all preceding bytes, little-endian
//! ```
//!
//! A text that is cut off, extended or changed in one place is rejected.

use std::fmt;

use crate::checksum::hash_key;

const CHECKSUM_BYTES: usize = 4;

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (hash_key(bytes) as u32).to_le_bytes()
}

/// Writes the text of `content` in this version.
///
/// # Errors
/// Those of the output.
pub fn write(f: &mut impl fmt::Write, version: u8, content: &[u8]) -> fmt::Result {
    let mut bytes = Vec::with_capacity(1 + content.len() + CHECKSUM_BYTES);
    bytes.push(version);
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&checksum(&bytes));
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// The content of a text, without white space around it; `None` if it is damaged or of another version.
///
/// ```
/// use bolide_base::position_text::{read, write};
/// let mut text = String::new();
/// write(&mut text, 1, b"position")?;
/// assert_eq!(read(&text, 1).as_deref(), Some(&b"position"[..]));
/// assert_eq!(read(&text[2..], 1), None);
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub fn read(text: &str, version: u8) -> Option<Vec<u8>> {
    let digits = text.trim().as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = digits.chunks_exact(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    });
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let (covered, stored) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (first, content) = covered.split_first()?;
    (checksum(covered) == *stored && *first == version).then(|| content.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_damage_passes() {
        for content in [&b""[..], b"key", b"\x00\xff\x80"] {
            let mut text = String::new();
            write(&mut text, 7, content).unwrap();
            assert_eq!(read(&format!(" {text}\n"), 7).as_deref(), Some(content));
            assert_eq!(read(&text, 6), None);
            for at in 0..text.len() {
                let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
                let mut damaged = text.clone();
                damaged.replace_range(at..=at, other);
                assert_eq!(read(&damaged, 7), None, "{text} at {at}");
                assert_eq!(read(&text[..at], 7), None, "{text} up to {at}");
            }
        }
    }
}
