//! Intersection of the candidates of several indexes.
//!
//! Every write has a sequence number of its own, and an index entry carries that of the write it stems from. So
//! one write satisfies what two indexes settle if and only if both propose its sequence number. Two
//! predicates on one array are two accesses, of one index or two: each may be satisfied by another element.
//!
//! * **Merge.** Where every cursor delivers newest first, they advance together: whoever stands on a larger
//!   number than another cannot match and moves on. Nothing is kept in memory, and the newest K end
//!   early.
//! * **Set.** Else the numbers of all cursors but the one that leads go into a set, the smallest first; it only
//!   shrinks from there. The leading cursor is then filtered by it, and keeps its order. A set that would
//!   not fit the memory is given up: the predicates of its index are checked on the records instead.
//!
//! No candidate of an intersection is newer than the least of the bounds of its parts, so a query ends as
//! early as the strictest part allows.

use std::collections::HashSet;

use bolide_base::{Result, SequenceNumber};

use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;

/// Bytes that one number takes in a set, with room for the set's growth.
const SET_ENTRY_BYTES: usize = 40;

/// Sequence numbers that all but the leading index propose.
#[derive(Debug, Default)]
pub(super) struct SequenceSet {
    numbers: HashSet<SequenceNumber>,
    /// The largest number in it.
    bound: SequenceNumber,
}

impl SequenceSet {
    /// All numbers that `cursor` proposes, and that are in `within` if it is given; `None` where they take more
    /// than about `bytes`. `read` counts the candidates.
    pub(super) fn collect(
        cursor: &mut dyn CandidateCursor,
        within: Option<&Self>,
        bytes: usize,
        read: &mut u64,
    ) -> Result<Option<Self>> {
        let most = bytes / SET_ENTRY_BYTES;
        let mut set = Self::default();
        while let Some(candidate) = cursor.next()? {
            *read += 1;
            let sequence = candidate.sequence;
            if within.is_some_and(|within| !within.numbers.contains(&sequence)) {
                continue;
            }
            if set.numbers.insert(sequence) && set.numbers.len() > most {
                return Ok(None);
            }
            set.bound = set.bound.max(sequence);
        }
        Ok(Some(set))
    }

    /// True if nothing can match.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// The candidates of one index that are in a set.
pub(super) struct FilteredCursor<'c> {
    lead: Box<dyn CandidateCursor + 'c>,
    set: &'c SequenceSet,
    held: Held,
}

impl<'c> FilteredCursor<'c> {
    pub(super) fn new(lead: Box<dyn CandidateCursor + 'c>, set: &'c SequenceSet) -> Self {
        Self { lead, set, held: Held::default() }
    }
}

impl CandidateCursor for FilteredCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        while let Some(candidate) = self.lead.next()? {
            if self.set.numbers.contains(&candidate.sequence) {
                self.held.take(&candidate);
                return Ok(Some(self.held.candidate()));
            }
        }
        Ok(None)
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.lead.sequence_bound().min(self.set.bound)
    }

    fn order(&self) -> Option<Order> {
        self.lead.order()
    }

    fn components_id(&self) -> Option<usize> {
        self.lead.components_id()
    }
}

/// The candidates that several cursors share which all deliver newest first. Those of the first are shown.
pub(super) struct MergeCursor<'c> {
    lead: Box<dyn CandidateCursor + 'c>,
    /// The others, each with the number that it stands on.
    others: Vec<(Box<dyn CandidateCursor + 'c>, Option<SequenceNumber>)>,
    started: bool,
    held: Held,
    ended: bool,
}

impl<'c> MergeCursor<'c> {
    pub(super) fn new(
        lead: Box<dyn CandidateCursor + 'c>,
        others: impl IntoIterator<Item = Box<dyn CandidateCursor + 'c>>,
    ) -> Self {
        let others = others.into_iter().map(|cursor| (cursor, None)).collect();
        Self { lead, others, started: false, held: Held::default(), ended: false }
    }

    /// The largest number at or below `wanted` that all others may share; `None` at the end of one.
    fn others_at(&mut self, wanted: SequenceNumber) -> Result<Option<SequenceNumber>> {
        let mut least = wanted;
        for (cursor, at) in &mut self.others {
            while at.is_none_or(|at| at > least) {
                let Some(candidate) = cursor.next()? else {
                    return Ok(None);
                };
                *at = Some(candidate.sequence);
            }
            least = at.unwrap_or(0);
        }
        Ok(Some(least))
    }
}

impl CandidateCursor for MergeCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        while !self.ended {
            let last = self.started.then_some(self.held.sequence);
            let Some(candidate) = self.lead.next()? else {
                break;
            };
            // A write that the lead proposes again was shown before.
            if last == Some(candidate.sequence) {
                continue;
            }
            self.held.take(&candidate);
            self.started = true;
            match self.others_at(self.held.sequence)? {
                Some(shared) if shared == self.held.sequence => {
                    return Ok(Some(self.held.candidate()));
                }
                Some(_) => {}
                None => break,
            }
        }
        self.ended = true;
        Ok(None)
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.ended {
            return 0;
        }
        let of_others = self.others.iter().map(|(cursor, at)| at.unwrap_or_else(|| cursor.sequence_bound()));
        of_others.fold(self.lead.sequence_bound(), SequenceNumber::min)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::Newest)
    }
}

/// A copy of a candidate, to be shown after its cursor was looked at again.
#[derive(Debug, Default)]
struct Held {
    primary_key: Vec<u8>,
    sequence: SequenceNumber,
    order_value: Vec<u8>,
    repeated: bool,
    included: Vec<u8>,
    newer_runs: Option<u32>,
    record: Option<Vec<u8>>,
    checked: bool,
    validated: bool,
}

impl Held {
    fn take(&mut self, candidate: &Candidate<'_>) {
        for (to, from) in [
            (&mut self.primary_key, candidate.primary_key),
            (&mut self.order_value, candidate.order_value),
            (&mut self.included, candidate.included),
        ] {
            to.clear();
            to.extend_from_slice(from);
        }
        (self.sequence, self.repeated) = (candidate.sequence, candidate.repeated);
        let CandidateOrigin { newer_runs, checked, validated, .. } = candidate.origin;
        (self.newer_runs, self.checked, self.validated) = (newer_runs, checked, validated);
        match candidate.origin.record {
            None => self.record = None,
            Some(record) => {
                let held = self.record.get_or_insert_default();
                held.clear();
                held.extend_from_slice(record);
            }
        }
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            primary_key: &self.primary_key,
            sequence: self.sequence,
            order_value: &self.order_value,
            repeated: self.repeated,
            included: &self.included,
            origin: CandidateOrigin {
                newer_runs: self.newer_runs,
                record: self.record.as_deref(),
                checked: self.checked,
                validated: self.validated,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Proposes the numbers of a list.
    struct Listed(Vec<SequenceNumber>, usize, Option<Order>);

    impl CandidateCursor for Listed {
        fn next(&mut self) -> Result<Option<Candidate<'_>>> {
            self.1 += 1;
            let found = self.0.get(self.1 - 1);
            Ok(found.map(|sequence| Candidate {
                primary_key: b"k",
                sequence: *sequence,
                order_value: &[],
                repeated: true,
                included: &[],
                origin: CandidateOrigin::default(),
            }))
        }

        fn sequence_bound(&self) -> SequenceNumber {
            match self.2 {
                Some(_) => self.0.get(self.1.saturating_sub(1)).copied().unwrap_or(0),
                None => SequenceNumber::MAX,
            }
        }

        fn order(&self) -> Option<Order> {
            self.2
        }
    }

    fn drain(mut cursor: impl CandidateCursor) -> Vec<SequenceNumber> {
        let mut found = Vec::new();
        let mut bound = cursor.sequence_bound();
        while let Some(candidate) = cursor.next().unwrap() {
            let sequence = candidate.sequence;
            assert!(sequence <= bound, "{sequence} is above the bound {bound}");
            found.push(sequence);
            bound = cursor.sequence_bound();
        }
        found
    }

    proptest! {
        #[test]
        fn both_ways_find_what_all_have(
            lists in proptest::collection::vec(proptest::collection::vec(0..30_u64, 0..40), 2..5),
        ) {
            let mut expected: Vec<u64> = lists[0].clone();
            expected.sort_unstable_by(|left, right| right.cmp(left));
            expected.dedup();
            expected.retain(|number| lists.iter().all(|list| list.contains(number)));

            let newest_first = |list: &Vec<u64>| {
                let mut list = list.clone();
                list.sort_unstable_by(|left, right| right.cmp(left));
                Box::new(Listed(list, 0, Some(Order::Newest))) as Box<dyn CandidateCursor>
            };
            let merged = MergeCursor::new(newest_first(&lists[0]), lists[1..].iter().map(newest_first));
            prop_assert_eq!(&drain(merged), &expected);

            let mut set: Option<SequenceSet> = None;
            let mut read = 0;
            for list in &lists[1..] {
                let mut cursor = Listed(list.clone(), 0, None);
                let next = SequenceSet::collect(&mut cursor, set.as_ref(), 1 << 20, &mut read).unwrap();
                set = Some(next.unwrap());
            }
            let set = set.unwrap();
            let lead = Box::new(Listed(lists[0].clone(), 0, None));
            let mut found = drain(FilteredCursor::new(lead, &set));
            found.sort_unstable_by(|left, right| right.cmp(left));
            found.dedup();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_set_that_does_not_fit_is_given_up() {
        let numbers: Vec<u64> = (0..100).collect();
        for (entries, fits) in [(99, false), (100, true)] {
            let mut cursor = Listed(numbers.clone(), 0, None);
            let set = SequenceSet::collect(&mut cursor, None, entries * SET_ENTRY_BYTES, &mut 0).unwrap();
            assert_eq!(set.is_some(), fits);
        }
    }
}
