//! Splits the keys of an index block into the ranges that it covers, without the wide gaps between them (NEXT §4).
//!
//! The global index maps these ranges to the index block. One range from the first to the last key would match queries for
//! all keys between them, so a range ends before a wide gap. The paper splits a range if it grows by more than a threshold,
//! a parameter of the user. Without a threshold, this module splits at the widest gaps: while a gap is wider than a
//! sixteenth of the covered width, into at most eight ranges. So a block of dense keys has one range, and an outlier adds
//! one.
//!
//! If all keys are numbers, widths are differences of their values. Of other keys, eight bytes after the common prefix are
//! interpreted as a number.

use super::key_block::KeyBlockBuilder;
use crate::attribute::Value;

/// Maximum ranges of a block.
pub(crate) const MAX_RANGES: usize = 8;
/// A split removes at least this fraction of the covered width: 1/16.
const MIN_GAP_DIVISOR: f64 = 16.0;
/// Maximum ranges of a block with a threshold.
const MAX_RANGES_BY_THRESHOLD: usize = 1 << 12;

/// The numbers of the first and the last key of each range of a block, ascending. `delta` is the paper's threshold: keys
/// that are further apart are in different ranges.
pub(crate) fn ranges(block: &KeyBlockBuilder, delta: Option<f64>) -> Vec<(usize, usize)> {
    let Some(last) = block.keys().checked_sub(1) else { return Vec::new() };
    let positions = positions(block);
    let gap = |number: usize| match positions.get(number..number + 2) {
        Some([left, right]) => right - left,
        _ => 0.0,
    };
    // The numbers of the last keys of the ranges.
    let mut ends: Vec<usize> = match delta {
        Some(delta) => {
            (0..last).filter(|&number| gap(number) > delta).take(MAX_RANGES_BY_THRESHOLD - 1).collect()
        }
        None => widest_gaps(last, gap),
    };
    ends.sort_unstable();
    ends.push(last);
    let mut first = 0;
    ends.into_iter().map(|end| (std::mem::replace(&mut first, end + 1), end)).collect()
}

/// The numbers of the keys before the gaps that are wide enough for a split.
fn widest_gaps(last: usize, gap: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut found: Vec<(f64, usize)> = Vec::with_capacity(MAX_RANGES);
    let mut covered = 0.0;
    for number in 0..last {
        let width = gap(number);
        covered += width;
        let position = found.partition_point(|(other, _)| *other >= width);
        if position < MAX_RANGES - 1 {
            found.insert(position, (width, number));
            found.truncate(MAX_RANGES - 1);
        }
    }
    let mut is_wide_enough = |(width, _): &(f64, usize)| {
        let splits = *width > covered / MIN_GAP_DIVISOR;
        covered -= if splits { *width } else { 0.0 };
        splits
    };
    found.into_iter().take_while(|gap| is_wide_enough(gap)).map(|(_, number)| number).collect()
}

/// A number for each key, in the same order.
fn positions(block: &KeyBlockBuilder) -> Vec<f64> {
    let keys = || (0..block.keys()).map(|number| block.key(number));
    let number = |key: &[u8]| match Value::decode(key) {
        Some((Value::Int(number), len)) if len == key.len() => Some(number as f64),
        Some((Value::Uint(number), len)) if len == key.len() => Some(number as f64),
        Some((Value::Float(number), len)) if len == key.len() => Some(number),
        _ => None,
    };
    if let Some(numbers) = keys().map(number).collect() {
        return numbers;
    }
    let (first, last) = (block.key(0), block.key(block.keys().saturating_sub(1)));
    let shared = first.iter().zip(last).take_while(|(first, last)| first == last).count();
    let bytes = |key: &[u8]| {
        let mut bytes = [0; size_of::<u64>()];
        for (to, from) in bytes.iter_mut().zip(key.get(shared..).unwrap_or_default()) {
            *to = *from;
        }
        u64::from_be_bytes(bytes) as f64
    };
    keys().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next::key_block::VersionEntry;

    fn block(keys: &[Vec<u8>]) -> KeyBlockBuilder {
        let mut block = KeyBlockBuilder::default();
        keys.iter().for_each(|key| block.add(key, VersionEntry::default()));
        block
    }

    fn numbers(of: impl IntoIterator<Item = i64>) -> KeyBlockBuilder {
        let key = |number| {
            let mut key = Vec::new();
            Value::Int(number).encode(&mut key).unwrap();
            key
        };
        block(&of.into_iter().map(key).collect::<Vec<_>>())
    }

    #[test]
    fn dense_keys_have_one_range_and_outliers_have_their_own() {
        assert_eq!(ranges(&numbers(0..100), None), [(0, 99)]);
        assert_eq!(ranges(&numbers((0..100).chain([1_000_000])), None), [(0, 99), (100, 100)]);
        let spread = (0..100).chain([10_000]).chain(20_000..20_100);
        assert_eq!(ranges(&numbers(spread), None), [(0, 99), (100, 100), (101, 200)]);
        assert_eq!(ranges(&numbers([5]), None), [(0, 0)]);
        assert!(ranges(&KeyBlockBuilder::default(), None).is_empty());
    }

    #[test]
    fn a_block_has_up_to_eight_ranges_without_a_threshold() {
        let clusters = || (0..30).flat_map(|cluster| (0..3).map(move |key| cluster * 1_000 + key));
        let found = ranges(&numbers(clusters()), None);
        assert!(found.len() <= MAX_RANGES, "{found:?}");
        assert_eq!(ranges(&numbers(clusters()), Some(900.0)).len(), 30);
        assert_eq!(ranges(&numbers(clusters()), Some(0.5)).len(), 90);
        assert_eq!(ranges(&numbers(clusters()), Some(1e9)).len(), 1);
        // Each gap is a large part of the covered width, so all of them are splits.
        let halving = [0, 1 << 40, 1 << 39, 1 << 38, 1 << 37].map(|key: i64| key);
        let mut halving = halving.to_vec();
        halving.sort_unstable();
        assert_eq!(ranges(&numbers(halving), None).len(), 5);
    }

    #[test]
    fn strings_and_mixed_keys_are_measured_by_their_bytes() {
        let text = |text: String| {
            let mut key = Vec::new();
            Value::from(text.as_str()).encode(&mut key).unwrap();
            key
        };
        let mut keys: Vec<Vec<u8>> = (b'a'..=b'z').map(|last| text(format!("Fa{}", last as char))).collect();
        assert_eq!(ranges(&block(&keys), None), [(0, 25)]);
        keys.push(text("Fzz".to_owned()));
        assert_eq!(ranges(&block(&keys), None), [(0, 25), (26, 26)]);
        let mut mixed = Vec::new();
        for value in (0..40).map(Value::Int) {
            let mut key = Vec::new();
            value.encode(&mut key).unwrap();
            mixed.push(key);
        }
        mixed.append(&mut keys);
        let found = ranges(&block(&mixed), None);
        assert!(found.iter().any(|(_, last)| *last == 39), "{found:?}");
    }
}
