//! Slots of the leaves of the B+-tree, and the prefix of their keys.
//!
//! ```text
//! prefix   length (1) bytes (15), padded with zeros
//! slot     bits  0..40  place of the record / 8
//!          bits 40..64  digest: the 3 bytes of the key after the prefix, padded with zeros, as a big-endian number
//! ```
//!
//! Of two keys with the prefix, the one with the smaller digest is the smaller one.

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region};

use super::super::record;

const RECORD_MASK: u64 = (1 << 40) - 1;
/// The longest prefix, in bytes.
const MAX_PREFIX_BYTES: usize = 15;
const DIGEST_BYTES: usize = 3;

/// A slot of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeafSlot(pub(super) u64);

impl LeafSlot {
    /// The slot of a record whose key has the prefix.
    pub(super) fn new(region: &Region, record: Place, prefix: &LeafPrefix) -> Result<Self> {
        let mut key = Vec::new();
        record::read_key(region, record, &mut key)?;
        Ok(Self::of_key(record, &key, prefix))
    }

    /// The slot of the record of `key`, which has the prefix.
    pub(super) fn of_key(record: Place, key: &[u8], prefix: &LeafPrefix) -> Self {
        Self(digest_of(key.get(prefix.len()..).unwrap_or_default()) << 40 | (record / 8) & RECORD_MASK)
    }

    /// The slot with another record of the same key.
    pub(super) fn with_record(self, record: Place) -> Self {
        Self(self.0 & !RECORD_MASK | (record / 8) & RECORD_MASK)
    }

    /// The record; 0 for none.
    #[inline]
    pub(super) fn record(self) -> Place {
        (self.0 & RECORD_MASK) * 8
    }

    #[inline]
    pub(super) fn digest(self) -> u64 {
        self.0 >> 40
    }
}

#[inline]
fn digest_of(rest: &[u8]) -> u64 {
    match rest {
        [] => 0,
        &[first] => u64::from(first) << 16,
        &[first, second] => u64::from(first) << 16 | u64::from(second) << 8,
        &[first, second, third, ..] => u64::from(first) << 16 | u64::from(second) << 8 | u64::from(third),
    }
}

/// Bytes with which all keys of a leaf begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeafPrefix([u8; MAX_PREFIX_BYTES + 1]);

impl LeafPrefix {
    /// The longest prefix of `key`.
    pub(super) fn of(key: &[u8]) -> Self {
        let mut bytes = [0; MAX_PREFIX_BYTES + 1];
        let len = key.len().min(MAX_PREFIX_BYTES);
        bytes[0] = len as u8;
        bytes[1..].iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }

    /// The longest common prefix of the keys of ascending records.
    pub(super) fn of_records(region: &Region, records: &[Place]) -> Result<Self> {
        let (Some(&first), Some(&last)) = (records.first(), records.last()) else { return Ok(Self::of(b"")) };
        let mut key = Vec::new();
        record::read_key(region, first, &mut key)?;
        let prefix = Self::of(&key);
        key.clear();
        record::read_key(region, last, &mut key)?;
        Ok(prefix.common_with(&key))
    }

    /// The longest prefix that `key` has too.
    pub(super) fn common_with(&self, key: &[u8]) -> Self {
        let common = self.bytes().iter().zip(key).take_while(|(left, right)| left == right).count();
        Self::of(self.bytes().get(..common).unwrap_or_default())
    }

    #[inline]
    pub(super) fn from_words([first, second]: [u64; 2]) -> Self {
        Self((u128::from(second) << 64 | u128::from(first)).to_le_bytes())
    }

    pub(super) fn words(&self) -> [u64; 2] {
        let all = u128::from_le_bytes(self.0);
        [all as u64, (all >> 64) as u64]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.0[0]).min(MAX_PREFIX_BYTES)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.get(1..=self.len()).unwrap_or_default()
    }

    /// The digest of `key` if it has the prefix, else how it compares with all keys that have it.
    #[inline]
    pub(super) fn locate(&self, key: &[u8]) -> std::result::Result<u64, Ordering> {
        let prefix = self.bytes();
        match key.split_at_checked(prefix.len()) {
            Some((start, rest)) if start == prefix => Ok(digest_of(rest)),
            Some((start, _)) => Err(start.cmp(prefix)),
            None if key.cmp(prefix) == Ordering::Less => Err(Ordering::Less),
            None => Err(Ordering::Greater),
        }
    }
}

const _: () = assert!(DIGEST_BYTES * 8 + 40 == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_prefixes_order_keys() {
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], b"a common prefix of 15 bytes".to_vec()];
        for number in 0..400_u64 {
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            keys.push(spread.to_be_bytes()[..(number % 9) as usize].to_vec());
            keys.push([b"common ", &spread.to_be_bytes()[..]].concat());
        }
        keys.sort();
        keys.dedup();
        for pair in keys.windows(2) {
            let prefix = LeafPrefix::of(&pair[0]).common_with(&pair[1]);
            assert_eq!(LeafPrefix::from_words(prefix.words()), prefix);
            let (left, right) = (prefix.locate(&pair[0]).unwrap(), prefix.locate(&pair[1]).unwrap());
            assert!(left <= right, "{pair:?}");
            for key in &keys {
                match prefix.locate(key) {
                    Ok(_) => assert!(key.starts_with(prefix.bytes())),
                    Err(Ordering::Less) => assert!(*key < pair[0], "{key:?} {pair:?}"),
                    Err(_) => assert!(*key > pair[1], "{key:?} {pair:?}"),
                }
            }
        }
        let slot = LeafSlot::of_key(4096, b"abcdef", &LeafPrefix::of(b"ab"));
        assert_eq!((slot.record(), slot.digest()), (4096, 0x63_64_65));
        assert_eq!((slot.with_record(8).record(), slot.with_record(8).digest()), (8, 0x63_64_65));
    }
}
