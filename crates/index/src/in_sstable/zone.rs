//! Ends of ranges of secondary keys, as they are kept: never longer than [`MAX_BOUND_BYTES`].
//!
//! A longer smallest key is cut, which makes it smaller; a longer largest key is cut and replaced by the first byte string behind
//! all that start so. So what is kept covers what it stands for, and a little more.

use crate::attribute;

/// Longest end of a range that is kept, in bytes.
pub(crate) const MAX_BOUND_BYTES: usize = 64;

/// The end to keep for the smallest key `key`.
pub(crate) fn lower_bound(key: &[u8]) -> &[u8] {
    key.get(..MAX_BOUND_BYTES).unwrap_or(key)
}

/// The end to keep for the largest key `key`.
pub(crate) fn upper_bound(key: &[u8]) -> Vec<u8> {
    match key.get(..MAX_BOUND_BYTES) {
        Some(cut) if cut.len() < key.len() => {
            let mut bound = cut.to_vec();
            attribute::make_successor(&mut bound);
            bound
        }
        _ => key.to_vec(),
    }
}
