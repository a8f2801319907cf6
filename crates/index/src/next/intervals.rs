//! Intervals of byte strings, packed, and a search for those that a question meets: the structure of a global index over index
//! blocks of one dimension (NEXT §3.2 leaves it open).
//!
//! ```text
//! first     n × u64      the first bytes of the start of each interval; intervals are sorted by start
//! last      n × u64      the first bytes of its end
//! owners    n × (u32, u32)   whose it is, and its number there: where its bounds lie in full
//! largest   n/16, n/256, … × u64   the largest of `last` in each group of 16, 256, … intervals
//! ```
//!
//! A question for keys from `low` on and below `end` meets the intervals that start below `end` and end at or behind `low`. The
//! first are a prefix; in it, groups whose largest end is below `low` are passed over, the largest first. Bytes are
//! compared as numbers, in dense arrays; only where these tie the bounds in full are looked at.
//!
//! Cost: a binary search, and for each interval that is met at most one group at each level. 24 bytes an interval.

/// Intervals of a group, and groups of a larger one.
const GROUP: usize = 16;

/// Who knows the bounds of intervals in full.
pub(crate) trait Bounds {
    /// The start and the end of interval `number` of `owner`; both belong to it.
    fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]);
}

/// The first bytes of a key as a number that orders like them.
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
    /// Packs the intervals of `owners`, in any order, whose bounds `bounds` knows.
    pub(crate) fn new(mut owners: Vec<(u32, u32)>, bounds: &impl Bounds) -> Self {
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups: usize = self.largest.iter().map(Vec::len).sum();
        (self.first.len() + self.last.len() + self.owners.len() + groups) * size_of::<u64>()
    }

    /// Calls `visit` with whose each interval is that has keys from `low` on and below `end`.
    pub(crate) fn visit(
        &self,
        low: &[u8],
        end: &[u8],
        bounds: &impl Bounds,
        mut visit: impl FnMut(u32, u32),
    ) {
        if low >= end {
            return;
        }
        let (low_head, end_head) = (head_of(low), head_of(end));
        let surely = self.first.partition_point(|&first| first < end_head);
        let perhaps =
            surely + self.first.get(surely..).unwrap_or_default().partition_point(|&first| first == end_head);
        let ties = self.owners.get(surely..perhaps).unwrap_or_default();
        let behind = surely + ties.partition_point(|&(owner, number)| bounds.bounds(owner, number).0 < end);
        let mut meets = |at: usize| {
            let (Some(&last), Some(&(owner, number))) = (self.last.get(at), self.owners.get(at)) else {
                return;
            };
            if last > low_head || last == low_head && bounds.bounds(owner, number).1 >= low {
                visit(owner, number);
            }
        };
        self.visit_groups(self.largest.len(), 0, behind, low_head, &mut meets);
    }

    /// Calls `meets` with the intervals below number `behind` of the group that begins at `at` of `level`, whose groups are
    /// passed over where their ends say so. Level 0 is that of the intervals; above the last one there is one group.
    fn visit_groups(&self, level: usize, at: usize, behind: usize, low: u64, meets: &mut impl FnMut(usize)) {
        let Some(below) = level.checked_sub(1) else {
            (at..(at + GROUP).min(behind)).for_each(meets);
            return;
        };
        let Some(groups) = self.largest.get(below) else { return };
        // How many intervals a group of this level has.
        let Some(size) = u32::try_from(level).ok().and_then(|level| GROUP.checked_pow(level)) else { return };
        for (number, &largest) in groups.iter().enumerate().skip(at).take(GROUP) {
            if number * size >= behind {
                return;
            }
            if largest >= low {
                self.visit_groups(below, number * GROUP, behind, low, meets);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    struct Listed(Vec<(Vec<u8>, Vec<u8>)>);

    impl Bounds for Listed {
        fn bounds(&self, owner: u32, number: u32) -> (&[u8], &[u8]) {
            assert_eq!(owner, 7);
            let (first, last) = &self.0[number as usize];
            (first, last)
        }
    }

    #[test]
    fn what_is_met_is_what_a_walk_over_all_meets() {
        let mut rng = SimRng::new(11);
        for round in 0..300 {
            let count = [0, 1, 15, 16, 17, 255, 256, 257, 4097][round % 9];
            let width = [3, 40, 4_000][round % 3];
            // Keys whose first eight bytes tell little, or all.
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
                let mut met = Vec::new();
                intervals.visit(&low, &end, &listed, |_, number| met.push(number));
                met.sort_unstable();
                let expected: Vec<u32> = (0..count as u32)
                    .filter(|&number| {
                        let (first, last) = &listed.0[number as usize];
                        low < end && *first < end && *last >= low
                    })
                    .collect();
                assert_eq!(met, expected, "round {round}");
            }
        }
    }
}
