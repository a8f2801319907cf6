//! Parts of the descriptions of entries as text: their secondary keys as values, and their writes as
//! `#SEQUENCE of "PRIMARY KEY"`.

use std::fmt::Write;

use bolide_base::{EntryKind, Trailer};

use super::posting_list::decode_fragment;
use crate::attribute::{self, TAG_ABSENT, Value};
use crate::spec::IndexSpec;

/// Postings of one entry that are printed.
const MAX_PRINTED_POSTINGS: usize = 20;

/// Appends the postings of a fragment or a piece; `None` if it is malformed. A tombstone has none.
pub(super) fn put_postings(
    text: &mut String,
    spec: &IndexSpec,
    trailer: Trailer,
    value: &[u8],
) -> Option<()> {
    if trailer.kind() == Some(EntryKind::Delete) {
        return Some(());
    }
    let postings = decode_fragment(value, trailer.sequence(), spec.included().len()).ok()?;
    for (number, posting) in postings.iter().take(MAX_PRINTED_POSTINGS).enumerate() {
        let separator = if number == 0 { ":" } else { "," };
        if posting.removal {
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator} without #{}", posting.sequence);
        } else {
            put_write(text, separator, posting.sequence, posting.primary_key);
        }
    }
    if postings.len() > MAX_PRINTED_POSTINGS {
        let _ = write!(text, ", … {} in all", postings.len());
    }
    Some(())
}

/// Appends the values of a secondary key; `None` if it is malformed.
pub(super) fn put_values(text: &mut String, secondary_key: &[u8]) -> Option<()> {
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

pub(super) fn put_write(text: &mut String, separator: &str, sequence: u64, primary_key: &[u8]) {
    let _ = write!(text, "{separator} #{sequence} of \"{}\"", primary_key.escape_ascii());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::describe_entry;

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
