//! Bounds of zone maps: secondary keys of at most [`MAX_BOUND_BYTES`].
//!
//! A longer smallest key is truncated, which makes it smaller. A longer largest key is truncated and replaced by the first
//! byte string after all with this prefix. So the stored range contains the exact one.

use crate::attribute;

/// Maximum length of a bound in bytes.
pub(crate) const MAX_BOUND_BYTES: usize = 64;

/// The stored bound for the smallest key `key`.
pub(crate) fn lower_bound(key: &[u8]) -> &[u8] {
    key.get(..MAX_BOUND_BYTES).unwrap_or(key)
}

/// The stored bound for the largest key `key`.
pub(crate) fn upper_bound(key: &[u8]) -> Vec<u8> {
    match key.get(..MAX_BOUND_BYTES) {
        Some(prefix) if prefix.len() < key.len() => {
            let mut bound = prefix.to_vec();
            attribute::make_successor(&mut bound);
            bound
        }
        _ => key.to_vec(),
    }
}
