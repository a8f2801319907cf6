//! Counts the answers of each value, for a limit per value.

use std::collections::HashMap;

/// How many answers each value has had. In value orders the answers of one value follow each other, so that
/// one counter is enough; else each value that was met has one, so memory grows with their number.
#[derive(Debug)]
pub(super) struct PerValue {
    limit: usize,
    by_value: bool,
    /// The value that is counted in a value order.
    current: Vec<u8>,
    count: usize,
    counts: HashMap<Vec<u8>, usize>,
}

impl PerValue {
    /// At most `limit` answers a value. `by_value`: they come in the order of their values.
    pub(super) fn new(limit: usize, by_value: bool) -> Self {
        Self { limit, by_value, current: Vec::new(), count: 0, counts: HashMap::new() }
    }

    /// True if `value` has had all its answers.
    pub(super) fn is_full(&self, value: &[u8]) -> bool {
        let count = if self.by_value {
            if self.current == value { self.count } else { 0 }
        } else {
            self.counts.get(value).copied().unwrap_or(0)
        };
        count >= self.limit
    }

    /// Counts an answer of `value`; false if it is one too many.
    pub(super) fn take(&mut self, value: &[u8]) -> bool {
        if self.is_full(value) {
            return false;
        }
        if !self.by_value {
            match self.counts.get_mut(value) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(value.to_vec(), 1)),
            }
        } else if self.current == value {
            self.count += 1;
        } else {
            self.current.clear();
            self.current.extend_from_slice(value);
            self.count = 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_own_count() {
        for by_value in [false, true] {
            let mut counts = PerValue::new(2, by_value);
            let taken: Vec<bool> =
                [b"a", b"a", b"a", b"b", b"b", b"b"].map(|value| counts.take(value)).into();
            assert_eq!(taken, [true, true, false, true, true, false]);
            assert!(counts.is_full(b"b") && !counts.is_full(b"c"));
        }
        assert!(!PerValue::new(0, false).take(b"a"));
    }
}
