//! The key of a piece; see the layout in [`super`].

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

/// Bytes of the inverted number.
const FROM_BYTES: usize = 8;

/// Appends the smallest sequence number of a piece, inverted so that larger ones sort first.
pub(super) fn put_from(key: &mut Vec<u8>, from: SequenceNumber) {
    key.extend_from_slice(&(!from).to_be_bytes());
}

/// The key of the piece of `list` from `from` on.
pub(super) fn piece_key(list: &[u8], from: SequenceNumber) -> Vec<u8> {
    let mut key = Vec::with_capacity(list.len() + FROM_BYTES);
    key.extend_from_slice(list);
    put_from(&mut key, from);
    key
}

/// The secondary key in the key of a piece, and the smallest sequence number of the piece; `None` if it is malformed.
pub(in crate::standalone) fn split(key: &[u8]) -> Option<(&[u8], SequenceNumber)> {
    let (list, inverted) = key.split_last_chunk::<FROM_BYTES>()?;
    let from = !u64::from_be_bytes(*inverted);
    (from <= MAX_SEQUENCE).then_some((list, from))
}
