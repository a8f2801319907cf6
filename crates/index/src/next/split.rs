//! Which ranges of secondary keys an index block covers: its keys without the wide gaps between them (NEXT §4).
//!
//! The global index directs a question to an index block by these ranges. One range from the first to the last key would
//! draw in questions for everything in between; so a range ends where a wide gap follows. The paper cuts where the range grows by
//! more than a threshold that its users have to find. Here, if none is given, the widest gaps are cut out: as long as
//! a cut takes more than a sixteenth of what is covered, and into at most eight ranges. So blocks of dense keys keep one range, and
//! outliers cost one range each.
//!
//! Widths are those of numbers where all keys are numbers; of other keys some bytes behind what they share are
//! taken for a number.

use super::index_block::IndexBlockBuilder;
use crate::attribute::Value;

/// Most ranges of a block.
pub(crate) const MAX_RANGES: usize = 8;
/// A cut takes out more than one part in so many.
const WORTH: f64 = 16.0;
/// Most ranges of a block with a threshold given.
const MAX_RANGES_BY_THRESHOLD: usize = 1 << 12;

/// The first and the last key of each range of a block, as numbers of its keys, ascending. `delta` is the paper's
/// threshold: keys that are further apart are in ranges of their own.
pub(crate) fn ranges(block: &IndexBlockBuilder, delta: Option<f64>) -> Vec<(usize, usize)> {
    let Some(last) = block.keys().checked_sub(1) else { return Vec::new() };
    let positions = positions(block);
    let gap = |number: usize| match positions.get(number..number + 2) {
        Some([left, right]) => right - left,
        _ => 0.0,
    };
    // The numbers of the keys behind which a range ends.
    let mut cuts: Vec<usize> = match delta {
        Some(delta) => {
            (0..last).filter(|&number| gap(number) > delta).take(MAX_RANGES_BY_THRESHOLD - 1).collect()
        }
        None => widest(last, gap),
    };
    cuts.sort_unstable();
    cuts.push(last);
    let mut first = 0;
    cuts.into_iter().map(|cut| (std::mem::replace(&mut first, cut + 1), cut)).collect()
}

/// The places of the gaps that are worth a cut.
fn widest(last: usize, gap: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut found: Vec<(f64, usize)> = Vec::with_capacity(MAX_RANGES);
    let mut covered = 0.0;
    for number in 0..last {
        let width = gap(number);
        covered += width;
        let place = found.partition_point(|(other, _)| *other >= width);
        if place < MAX_RANGES - 1 {
            found.insert(place, (width, number));
            found.truncate(MAX_RANGES - 1);
        }
    }
    let is_worth = |(width, _): &(f64, usize)| {
        let pays = *width > covered / WORTH;
        covered -= if pays { *width } else { 0.0 };
        pays
    };
    let mut worth = is_worth;
    found.into_iter().take_while(|gap| worth(gap)).map(|(_, number)| number).collect()
}

/// A number for each key, ascending like these.
fn positions(block: &IndexBlockBuilder) -> Vec<f64> {
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
    use crate::next::index_block::Entry;

    fn block(keys: &[Vec<u8>]) -> IndexBlockBuilder {
        let mut block = IndexBlockBuilder::default();
        keys.iter().for_each(|key| block.add(key, Entry::default()));
        block
    }

    fn numbers(of: impl IntoIterator<Item = i64>) -> IndexBlockBuilder {
        let key = |number| {
            let mut key = Vec::new();
            Value::Int(number).encode(&mut key).unwrap();
            key
        };
        block(&of.into_iter().map(key).collect::<Vec<_>>())
    }

    #[test]
    fn dense_keys_are_one_range_and_outliers_have_their_own() {
        assert_eq!(ranges(&numbers(0..100), None), [(0, 99)]);
        assert_eq!(ranges(&numbers((0..100).chain([1_000_000])), None), [(0, 99), (100, 100)]);
        let spread = (0..100).chain([10_000]).chain(20_000..20_100);
        assert_eq!(ranges(&numbers(spread), None), [(0, 99), (100, 100), (101, 200)]);
        assert_eq!(ranges(&numbers([5]), None), [(0, 0)]);
        assert!(ranges(&IndexBlockBuilder::default(), None).is_empty());
    }

    #[test]
    fn there_are_never_more_than_eight_but_as_many_as_a_threshold_says() {
        let clusters = || (0..30).flat_map(|cluster| (0..3).map(move |key| cluster * 1_000 + key));
        let found = ranges(&numbers(clusters()), None);
        assert!(found.len() <= MAX_RANGES, "{found:?}");
        assert_eq!(ranges(&numbers(clusters()), Some(900.0)).len(), 30);
        assert_eq!(ranges(&numbers(clusters()), Some(0.5)).len(), 90);
        assert_eq!(ranges(&numbers(clusters()), Some(1e9)).len(), 1);
        // A block whose keys are cut by their widest gaps: each cut takes out a large part.
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
