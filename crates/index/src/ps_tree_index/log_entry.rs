//! Log entries of an index of kind `ps-tree`; see the format in [`super`].

use bolide_base::SequenceNumber;

/// The first byte of a mark: no encoded value begins with it.
const MARK: u8 = 0;
const MARK_HEAD_BYTES: usize = 9;

/// Sets `key` to the mark of a write without entries. Returns the offset of the sequence number in it.
pub(super) fn put_mark(
    key: &mut Vec<u8>,
    primary_key: &[u8],
    sequence: Option<SequenceNumber>,
) -> Option<usize> {
    key.clear();
    key.push(MARK);
    key.extend_from_slice(&(!sequence.unwrap_or(0)).to_be_bytes());
    key.extend_from_slice(primary_key);
    Some(1)
}

/// The primary key of a mark; `None` for anything else.
pub(super) fn marked_key(key: &[u8]) -> Option<&[u8]> {
    let (head, primary_key) = key.split_at_checked(MARK_HEAD_BYTES)?;
    (head.first() == Some(&MARK)).then_some(primary_key)
}
