//! The order of answers to a question for the nearest: by distance, and of equal distances the newest first.

use std::cmp::Ordering;

use bolide_base::SequenceNumber;

use super::{Point, Rect};

/// Bytes that stand for a distance, and sort like it.
pub(crate) type DistanceBytes = [u8; 8];

/// Where a rectangle of a write stands among the answers. The greater one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nearness {
    /// The bits of the square of the distance, which sort like it since it is not negative.
    pub(crate) distance: u64,
    pub(crate) sequence: SequenceNumber,
}

impl Nearness {
    /// That of a rectangle which a write has.
    #[inline]
    pub(crate) fn new(rect: &Rect, from: &Point, sequence: SequenceNumber) -> Self {
        Self { distance: rect.distance_squared(from).to_bits(), sequence }
    }

    /// What is as far away and as new as can be: nothing in the rectangle comes before it.
    pub(crate) fn bound(rect: &Rect, from: &Point) -> Self {
        Self::new(rect, from, SequenceNumber::MAX)
    }

    /// The distance for orders of answers.
    pub(crate) fn bytes(self) -> DistanceBytes {
        self.distance.to_be_bytes()
    }

    /// The nearness whose distance has these [`bytes`](Self::bytes).
    pub(crate) fn from_bytes(bytes: &[u8], sequence: SequenceNumber) -> Option<Self> {
        let (distance, rest) = bytes.split_first_chunk()?;
        rest.is_empty().then(|| Self { distance: u64::from_be_bytes(*distance), sequence })
    }
}

impl Ord for Nearness {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance.cmp(&self.distance).then(self.sequence.cmp(&other.sequence))
    }
}

impl PartialOrd for Nearness {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A question for the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Near {
    /// Where distances are measured from.
    pub(crate) from: Point,
    /// The answers wanted start behind this one.
    pub(crate) behind: Option<Nearness>,
}

impl Near {
    /// True if a rectangle of a write is not among the answers that were given before.
    #[inline]
    pub(crate) fn wants(&self, at: Nearness) -> bool {
        self.behind.is_none_or(|behind| at < behind)
    }

    /// True if something within `rect` may be wanted.
    pub(crate) fn may_want_within(&self, rect: &Rect) -> bool {
        self.behind.is_none_or(|behind| rect.farthest_squared(&self.from).to_bits() >= behind.distance)
    }
}

/// The nearest of many, in memory for twice as many as are to be taken.
#[derive(Debug)]
pub(crate) struct Selection<T> {
    most: usize,
    taken: Vec<(Nearness, T)>,
    /// Where the nearest of those stands that were left out.
    rest: Option<Nearness>,
}

impl<T> Selection<T> {
    /// Takes `most` at most, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), taken: Vec::new(), rest: None }
    }

    /// Takes the one that `make` makes, if it is among the nearest so far.
    #[inline]
    pub(crate) fn push(&mut self, at: Nearness, make: impl FnOnce() -> T) {
        if self.rest.is_some_and(|rest| at <= rest) {
            return;
        }
        self.taken.push((at, make()));
        if self.taken.len() >= 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.taken.len() > self.most {
            let (_, first, _) =
                self.taken.select_nth_unstable_by(self.most, |left, right| right.0.cmp(&left.0));
            self.rest = Some(first.0);
            self.taken.truncate(self.most);
        }
    }

    /// Those that were taken, in any order, and where the nearest of the others stands.
    pub(crate) fn finish(mut self) -> (Vec<(Nearness, T)>, Option<Nearness>) {
        self.cut();
        (self.taken, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_selection_takes_the_nearest(
            all in proptest::collection::vec((0..9_u64, 0..9_u64), 0..80),
            most in 0..30_usize,
        ) {
            let mut selection = Selection::new(most);
            let mut sorted: Vec<Nearness> = Vec::new();
            for &(distance, sequence) in &all {
                let at = Nearness { distance, sequence };
                selection.push(at, || at);
                sorted.push(at);
            }
            sorted.sort_by(|left, right| right.cmp(left));
            let (mut taken, rest) = selection.finish();
            taken.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            prop_assert!(taken.iter().all(|(at, one)| at == one));
            let taken: Vec<Nearness> = taken.into_iter().map(|(at, _)| at).collect();
            let split = most.max(1).min(sorted.len());
            prop_assert_eq!(&taken[..], &sorted[..split]);
            prop_assert_eq!(rest, sorted.get(split).copied());
        }
    }

    #[test]
    fn the_nearest_come_first_and_of_equals_the_newest() {
        let from = Point::new(1.0, 1.0).unwrap();
        let at = |x: f64, sequence| Nearness::new(&Point::new(x, 1.0).unwrap().into(), &from, sequence);
        let mut all = [at(5.0, 1), at(1.0, 3), at(f64::MAX, 9), at(0.0, 2), at(2.0, 8), at(1.0, 4)];
        all.sort_by(|left, right| right.cmp(left));
        assert_eq!(all.map(|one| one.sequence), [4, 3, 8, 2, 1, 9]);
        assert_eq!(all[5].distance, f64::INFINITY.to_bits());
        for pair in all.windows(2) {
            assert!(pair[0].bytes() <= pair[1].bytes());
        }
        assert_eq!(Nearness::from_bytes(&all[3].bytes(), 2), Some(all[3]));
        assert!(Nearness::from_bytes(&[0; 7], 2).is_none() && Nearness::from_bytes(&[0; 9], 2).is_none());
        let near = Near { from, behind: Some(all[2]) };
        assert_eq!(all.map(|one| near.wants(one)), [false, false, false, true, true, true]);
        let within = |low: f64, high: f64| near.may_want_within(&Rect::new(low, 1.0, high, 1.0).unwrap());
        assert!(!within(0.5, 1.5) && within(0.0, 1.5) && within(0.5, 2.0));
    }
}
