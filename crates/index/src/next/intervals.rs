//! Packed intervals of byte strings with a search for intersecting ones: the structure of a global index over index blocks
//! of keys (NEXT §3.2 does not specify it).
//!
//! ```text
//! first     n × u64      the first bytes of the start of each interval; intervals are sorted by start
//! last      n × u64      the first bytes of its end
//! owners    n × (u32, u32)   its owner, and its number there: the owner stores the full bounds
//! largest   n/16, n/256, … × u64   the largest of `last` in each group of 16, 256, … intervals
//! ```
//!
//! The keys from `low` on and below `end` intersect the intervals that start below `end` and end at or above `low`. The
//! former are a prefix of the array; in it, groups whose largest end is below `low` are skipped, the largest groups first.
//! Bytes are compared as integers in dense arrays; the full bounds are read only if these are equal.
//!
//! Cost: a binary search, and for each result at most one group at each level. 24 bytes an interval.

/// Intervals in a group, and groups in a group of the next level.
const GROUP: usize = 16;

/// Provides the full bounds of intervals.
pub(crate) trait IntervalBounds {
    /// The start and the end of interval `number` of `owner`, both inclusive.
    fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]);
}

/// The first bytes of a key as an integer with the same order.
pub(crate) fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; size_of::<u64>()];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// Packed intervals; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    first: Vec<u64>,
    last: Vec<u64>,
    owners: Vec<(u32, u32)>,
    largest: Vec<Vec<u64>>,
}

impl Intervals {
    /// Packs the intervals of `owners`, given in any order. `bounds` provides their bounds.
    pub(crate) fn new(mut owners: Vec<(u32, u32)>, bounds: &impl IntervalBounds) -> Self {
        let start = |&(owner, number): &(u32, u32)| bounds.bounds(owner, number).0;
        owners.sort_unstable_by(|left, right| {
            let by_head = head_of(start(left)).cmp(&head_of(start(right)));
            by_head.then_with(|| start(left).cmp(start(right)))
        });
        owners.shrink_to_fit();
        let heads = |&(owner, number): &(u32, u32)| {
            let (first, last) = bounds.bounds(owner, number);
            (head_of(first), head_of(last))
        };
        let (first, last): (Vec<u64>, Vec<u64>) = owners.iter().map(heads).unzip();
        let mut largest: Vec<Vec<u64>> = Vec::new();
        loop {
            let below = largest.last().unwrap_or(&last);
            if below.len() <= GROUP {
                break;
            }
            let groups = below.chunks(GROUP).map(|group| group.iter().copied().max().unwrap_or(0));
            largest.push(groups.collect());
        }
        Self { first, last, owners, largest }
    }

    /// Number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups: usize = self.largest.iter().map(Vec::len).sum();
        (self.first.len() + self.last.len() + self.owners.len() + groups) * size_of::<u64>()
    }

    /// Calls `visit` with owner and number of each interval that intersects the keys from `low` on and below `end`.
    pub(crate) fn visit(
        &self,
        low: &[u8],
        end: &[u8],
        bounds: &impl IntervalBounds,
        mut visit: impl FnMut(u32, u32),
    ) {
        if low >= end {
            return;
        }
        let (low_head, end_head) = (head_of(low), head_of(end));
        let below = self.first.partition_point(|&first| first < end_head);
        let equal = self.first.get(below..).unwrap_or_default().partition_point(|&first| first == end_head);
        let ties = self.owners.get(below..below + equal).unwrap_or_default();
        let count = below + ties.partition_point(|&(owner, number)| bounds.bounds(owner, number).0 < end);
        let mut test = |at: usize| {
            let (Some(&last), Some(&(owner, number))) = (self.last.get(at), self.owners.get(at)) else {
                return;
            };
            if last > low_head || last == low_head && bounds.bounds(owner, number).1 >= low {
                visit(owner, number);
            }
        };
        self.visit_groups(self.largest.len(), 0, count, low_head, &mut test);
    }

    /// Calls `test` with the intervals below number `count` in the group that begins at `at` of `level`, except those in
    /// groups that end below `low`. Level 0 is that of the intervals; the level above the last has one group.
    fn visit_groups(&self, level: usize, at: usize, count: usize, low: u64, test: &mut impl FnMut(usize)) {
        let Some(below) = level.checked_sub(1) else {
            (at..(at + GROUP).min(count)).for_each(test);
            return;
        };
        let Some(groups) = self.largest.get(below) else { return };
        // Number of intervals in a group of this level.
        let Some(size) = u32::try_from(level).ok().and_then(|level| GROUP.checked_pow(level)) else { return };
        for (number, &largest) in groups.iter().enumerate().skip(at).take(GROUP) {
            if number * size >= count {
                return;
            }
            if largest >= low {
                self.visit_groups(below, number * GROUP, count, low, test);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    struct Listed(Vec<(Vec<u8>, Vec<u8>)>);

    impl IntervalBounds for Listed {
        fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]) {
            assert_eq!(owner, 7);
            let (first, last) = &self.0[number as usize];
            (first, last)
        }
    }

    #[test]
    fn a_search_finds_the_intervals_of_a_full_scan() {
        let mut rng = SimRng::new(11);
        for round in 0..300 {
            let count = [0, 1, 15, 16, 17, 255, 256, 257, 4097][round % 9];
            let width = [3, 40, 4_000][round % 3];
            // Keys that differ in the first eight bytes, or after them.
            let key = |number: u64| match round % 2 {
                0 => number.to_be_bytes()[5..].to_vec(),
                _ => [&b"shared prefix"[..], &number.to_be_bytes()].concat(),
            };
            let listed: Vec<_> = (0..count)
                .map(|_| {
                    let first = rng.below(5_000);
                    (key(first), key(first + rng.below(width)))
                })
                .collect();
            let listed = Listed(listed);
            let intervals = Intervals::new((0..count as u32).map(|number| (7, number)).collect(), &listed);
            assert_eq!(intervals.len(), count);
            for _ in 0..30 {
                let (low, end) = (rng.below(6_000), rng.below(6_000));
                let (low, end) = (key(low), key(end));
                let mut found = Vec::new();
                intervals.visit(&low, &end, &listed, |_, number| found.push(number));
                found.sort_unstable();
                let expected: Vec<u32> = (0..count as u32)
                    .filter(|&number| {
                        let (first, last) = &listed.0[number as usize];
                        low < end && *first < end && *last >= low
                    })
                    .collect();
                assert_eq!(found, expected, "round {round}");
            }
        }
    }
}
