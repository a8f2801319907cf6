//! The target of a prepared seek.

use bolide_base::SequenceNumber;

/// A position in tree order, stored to check whether the next seek is the prepared one. Short keys are stored without an
/// allocation.
#[derive(Debug)]
pub(crate) struct PreparedKey {
    sequence: SequenceNumber,
    short: [u8; SHORT_BYTES],
    /// The length of the key in bytes.
    len: usize,
    /// The key if it is not short.
    long: Vec<u8>,
}

const SHORT_BYTES: usize = 32;

impl Default for PreparedKey {
    fn default() -> Self {
        Self { sequence: 0, short: [0; SHORT_BYTES], len: 0, long: Vec::new() }
    }
}

impl PreparedKey {
    /// Sets the position to `(key, sequence)`.
    #[inline]
    pub(crate) fn set(&mut self, key: &[u8], sequence: SequenceNumber) {
        (self.len, self.sequence) = (key.len(), sequence);
        match self.short.get_mut(..key.len()) {
            Some(short) => short.copy_from_slice(key),
            None => {
                self.long.clear();
                self.long.extend_from_slice(key);
            }
        }
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }

    /// The sequence number.
    #[inline]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// True if the position is `(key, sequence)`.
    #[inline]
    pub(crate) fn is(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.sequence == sequence && self.key() == key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_are_distinguished() {
        let mut prepared = PreparedKey::default();
        assert!(prepared.is(b"", 0));
        let long = [7; 2 * SHORT_BYTES];
        for len in [0, 1, SHORT_BYTES - 1, SHORT_BYTES, SHORT_BYTES + 1, long.len(), 3] {
            let key = &long[..len];
            prepared.set(key, 9);
            assert_eq!((prepared.key(), prepared.sequence()), (key, 9));
            assert!(prepared.is(key, 9) && !prepared.is(key, 8));
            assert!(!prepared.is(&[key, b"x"].concat(), 9));
            assert!(len == 0 || !prepared.is(&key[1..], 9));
        }
    }
}
