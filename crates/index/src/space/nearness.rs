//! The order of the results of a nearest-neighbour query: by distance, and at equal distance newest first.

use std::cmp::Ordering;

use bolide_base::SequenceNumber;

use super::{Point, Rect};

/// A distance as bytes with the same order.
pub(crate) type DistanceBytes = [u8; 8];

/// The rank of a rectangle of a write among the results. The greater rank comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nearness {
    /// The bits of the squared distance, which have the same order because it is not negative.
    pub(crate) distance: u64,
    pub(crate) sequence: SequenceNumber,
}

impl Nearness {
    /// The rank of a rectangle of the write `sequence`.
    #[inline]
    pub(crate) fn new(rect: &Rect, from: &Point, sequence: SequenceNumber) -> Self {
        Self { distance: rect.distance_squared(from).to_bits(), sequence }
    }

    /// A bound for everything within `rect`: nothing in it comes before this rank.
    pub(crate) fn bound(rect: &Rect, from: &Point) -> Self {
        Self::new(rect, from, SequenceNumber::MAX)
    }

    /// The distance as an order value.
    pub(crate) fn bytes(self) -> DistanceBytes {
        self.distance.to_be_bytes()
    }

    /// The rank whose distance has these [`bytes`](Self::bytes).
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

/// The parameters of a nearest-neighbour query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearestQuery {
    /// The point that distances are measured from.
    pub(crate) from: Point,
    /// The results start after this rank, that of a cursor token.
    pub(crate) after: Option<Nearness>,
}

impl NearestQuery {
    /// True if a rectangle with this rank comes after the cursor token.
    #[inline]
    pub(crate) fn includes(&self, rank: Nearness) -> bool {
        self.after.is_none_or(|after| rank < after)
    }

    /// True if something within `rect` may come after the cursor token.
    pub(crate) fn may_include_within(&self, rect: &Rect) -> bool {
        self.after.is_none_or(|after| rect.farthest_squared(&self.from).to_bits() >= after.distance)
    }
}

/// Selects the nearest `limit` of many elements, with memory for twice as many.
#[derive(Debug)]
pub(crate) struct NearestSelection<T> {
    limit: usize,
    selected: Vec<(Nearness, T)>,
    /// Rank of the nearest element that was dropped.
    rest: Option<Nearness>,
}

impl<T> NearestSelection<T> {
    /// Selects up to `limit` elements, at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), selected: Vec::new(), rest: None }
    }

    /// Adds the element that `make` returns, if it is among the nearest so far.
    #[inline]
    pub(crate) fn push(&mut self, at: Nearness, make: impl FnOnce() -> T) {
        if self.rest.is_some_and(|rest| at <= rest) {
            return;
        }
        self.selected.push((at, make()));
        if self.selected.len() >= 2 * self.limit {
            self.truncate();
        }
    }

    fn truncate(&mut self) {
        if self.selected.len() > self.limit {
            let (_, first, _) =
                self.selected.select_nth_unstable_by(self.limit, |left, right| right.0.cmp(&left.0));
            self.rest = Some(first.0);
            self.selected.truncate(self.limit);
        }
    }

    /// The selected elements, in any order, and the rank of the nearest of the others.
    pub(crate) fn finish(mut self) -> (Vec<(Nearness, T)>, Option<Nearness>) {
        self.truncate();
        (self.selected, self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_selection_returns_the_nearest(
            all in proptest::collection::vec((0..9_u64, 0..9_u64), 0..80),
            limit in 0..30_usize,
        ) {
            let mut selection = NearestSelection::new(limit);
            let mut sorted: Vec<Nearness> = Vec::new();
            for &(distance, sequence) in &all {
                let at = Nearness { distance, sequence };
                selection.push(at, || at);
                sorted.push(at);
            }
            sorted.sort_by(|left, right| right.cmp(left));
            let (mut selected, rest) = selection.finish();
            selected.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            prop_assert!(selected.iter().all(|(at, one)| at == one));
            let selected: Vec<Nearness> = selected.into_iter().map(|(at, _)| at).collect();
            let split = limit.max(1).min(sorted.len());
            prop_assert_eq!(&selected[..], &sorted[..split]);
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
        let near = NearestQuery { from, after: Some(all[2]) };
        assert_eq!(all.map(|one| near.includes(one)), [false, false, false, true, true, true]);
        let within = |low: f64, high: f64| near.may_include_within(&Rect::new(low, 1.0, high, 1.0).unwrap());
        assert!(!within(0.5, 1.5) && within(0.0, 1.5) && within(0.5, 2.0));
    }
}
