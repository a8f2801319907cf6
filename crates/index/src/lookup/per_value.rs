//! The limit of answers per value.

use std::collections::HashMap;

/// Counters of the answers of each value. In value orders the answers of one value are consecutive, so one counter is
/// enough. In other orders each value has a counter, so memory grows with the number of values.
#[derive(Debug)]
pub(super) struct PerValue {
    limit: usize,
    by_value: bool,
    /// The current value in a value order.
    current: Vec<u8>,
    count: usize,
    counts: HashMap<Vec<u8>, usize>,
}

impl PerValue {
    /// A limit of `limit` answers per value. `by_value`: answers come in value order.
    pub(super) fn new(limit: usize, by_value: bool) -> Self {
        Self { limit, by_value, current: Vec::new(), count: 0, counts: HashMap::new() }
    }

    /// True if `value` has reached the limit.
    pub(super) fn is_full(&self, value: &[u8]) -> bool {
        let count = if self.by_value {
            if self.current == value { self.count } else { 0 }
        } else {
            self.counts.get(value).copied().unwrap_or(0)
        };
        count >= self.limit
    }

    /// Counts an answer of `value`; false if the limit is reached.
    pub(super) fn try_count(&mut self, value: &[u8]) -> bool {
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
            let counted: Vec<bool> =
                [b"a", b"a", b"a", b"b", b"b", b"b"].map(|value| counts.try_count(value)).into();
            assert_eq!(counted, [true, true, false, true, true, false]);
            assert!(counts.is_full(b"b") && !counts.is_full(b"c"));
        }
        assert!(!PerValue::new(0, false).try_count(b"a"));
    }
}
