//! Describes an entry of a stand-alone index as text, for programs that print files.

use std::fmt::Write;

use bolide_base::{EntryKind, Trailer};

use super::composite::EntryLayout;
use super::eager::split_piece_key;
use super::posting_list::decode_fragment;
use crate::attribute::{self, TAG_ABSENT, Value};
use crate::spec::{IndexKind, IndexSpec};

/// Postings of one entry that are printed.
const MAX_PRINTED_POSTINGS: usize = 20;

/// Describes the entry `key`, `value` of the index that `spec` declares: its secondary key, and its writes as
/// `#SEQUENCE of "PRIMARY KEY"`. `None` if it is malformed, or the index has no tree. The format may change.
///
/// ```
/// use bolide_base::{EntryKind, Trailer};
/// use bolide_index::{Value, standalone::describe_entry};
/// let mut key = Vec::new();
/// Value::from("red").encode(&mut key)?;
/// let written = Trailer::new(7, EntryKind::Merge);
/// let text = describe_entry(&"color:lazy".parse()?, &key, written, &[0, 1, b'k']);
/// assert_eq!(text.as_deref(), Some(r#""red": #7 of "k""#));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn describe_entry(spec: &IndexSpec, key: &[u8], trailer: Trailer, value: &[u8]) -> Option<String> {
    let is_tombstone = trailer.kind() == Some(EntryKind::Delete);
    let mut text = String::new();
    match spec.kind() {
        IndexKind::Composite => {
            let entry = EntryLayout::of(spec).parse(key, trailer.sequence())?;
            put_values(&mut text, entry.secondary_key)?;
            put_write(&mut text, ":", entry.sequence, entry.primary_key);
        }
        IndexKind::Lazy => put_values(&mut text, key)?,
        IndexKind::Eager => {
            let (list, from) = split_piece_key(key)?;
            put_values(&mut text, list)?;
            // Writing to a string cannot fail.
            let _ = write!(text, " from #{from}");
        }
        _ => return None,
    }
    if spec.kind() != IndexKind::Composite && !is_tombstone {
        let postings = decode_fragment(value, trailer.sequence(), spec.included().len()).ok()?;
        for (number, posting) in postings.iter().take(MAX_PRINTED_POSTINGS).enumerate() {
            let separator = if number == 0 { ":" } else { "," };
            if posting.removal {
                let _ = write!(text, "{separator} without #{}", posting.sequence);
            } else {
                put_write(&mut text, separator, posting.sequence, posting.primary_key);
            }
        }
        if postings.len() > MAX_PRINTED_POSTINGS {
            let _ = write!(text, ", … {} in all", postings.len());
        }
    }
    Some(text)
}

/// Appends the values of a secondary key; `None` if it is malformed.
fn put_values(text: &mut String, secondary_key: &[u8]) -> Option<()> {
    let mut rest = secondary_key;
    while !rest.is_empty() {
        if rest.len() < secondary_key.len() {
            text.push_str(" + ");
        }
        let len = attribute::encoded_len(rest).filter(|len| *len > 0)?;
        let (value, remaining) = rest.split_at_checked(len)?;
        match value {
            [TAG_ABSENT] => text.push_str("absent"),
            value => text.push_str(&Value::decode(value)?.0.to_string()),
        }
        rest = remaining;
    }
    Some(())
}

fn put_write(text: &mut String, separator: &str, sequence: u64, primary_key: &[u8]) {
    let _ = write!(text, "{separator} #{sequence} of \"{}\"", primary_key.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(spec: &str, key: &[u8], kind: EntryKind, value: &[u8]) -> Option<String> {
        describe_entry(&spec.parse().unwrap(), key, Trailer::new(9, kind), value)
    }

    #[test]
    fn entries_of_every_kind_are_described() {
        let mut key = Vec::new();
        Value::Int(5).encode(&mut key).unwrap();
        let list = key.clone();
        key.push(TAG_ABSENT);
        key.extend((!7_u64).to_be_bytes());
        key.push(b'k');
        let put = EntryKind::Put;
        assert_eq!(text("a+b:composite", &key, put, &[]).unwrap(), r#"5 + absent: #7 of "k""#);
        let keyed = [&list[..], b"k"].concat();
        assert_eq!(text("a:composite:order=primary-key", &keyed, put, &[]).unwrap(), r#"5: #9 of "k""#);
        let fragment = [0, 1, b'k', 4 << 2 | 1];
        assert_eq!(
            text("a:lazy", &list, EntryKind::Merge, &fragment).unwrap(),
            r#"5: #9 of "k", without #5"#
        );
        let piece = [&list[..], &(!3_u64).to_be_bytes()].concat();
        assert_eq!(
            text("a:eager", &piece, put, &[0, 1, b'k', 3 << 2, 1, b'l']).unwrap(),
            r#"5 from #3: #9 of "k", #6 of "l""#
        );
        assert_eq!(text("a:eager", &piece, EntryKind::Delete, &[]).unwrap(), "5 from #3");
        assert_eq!(text("a:eager", b"short", put, &[]), None);
        assert_eq!(text("a:embedded", &key, put, &[]), None);
        assert_eq!(text("a", &key[..3], put, &[]), None);
    }
}
