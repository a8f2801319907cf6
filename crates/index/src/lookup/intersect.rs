//! Intersection of the candidates of several indexes.
//!
//! Every write has a unique sequence number, which its index entries contain. So a write satisfies the predicates that two
//! indexes cover if and only if both return its sequence number. Two predicates on one array are two accesses, of one index
//! or two, because different elements may satisfy them.
//!
//! * **Merge.** If all cursors return candidates newest first, they advance together: a cursor on a larger number than
//!   another cannot match and advances. This needs no memory, and a query for the newest K ends early.
//! * **Set.** Else the numbers of all cursors except the driving one are collected in a set, the smallest first; the
//!   following ones only shrink it. The set then filters the driving cursor, whose order is preserved. A set that exceeds
//!   its memory is dropped, and the predicates of its index are checked on the records.
//!
//! No candidate of an intersection is newer than the smallest bound of its cursors, so a query ends as early as the
//! strictest cursor allows.

use std::collections::HashSet;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber};

use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::query::Order;

/// Bytes of a number in a set, including unused capacity.
const SET_ENTRY_BYTES: usize = 40;

/// Sequence numbers that all filtering indexes return.
#[derive(Debug, Default)]
pub(super) struct SequenceSet {
    numbers: HashSet<SequenceNumber>,
    /// The largest number in the set.
    bound: SequenceNumber,
}

/// What was read to collect sets.
#[derive(Debug, Default)]
pub(super) struct SetReads {
    /// Candidates.
    pub(super) candidates: u64,
    /// The costs of their indexes.
    pub(super) costs: Vec<IndexCosts>,
}

impl SequenceSet {
    /// The numbers that `cursor` returns and that are in `within`, if that is given; `None` if they take more than about
    /// `bytes`. Adds what was read to `reads`.
    pub(super) fn collect(
        cursor: &mut dyn CandidateCursor,
        within: Option<&Self>,
        bytes: usize,
        reads: &mut SetReads,
    ) -> Result<Option<Self>> {
        let max_numbers = bytes / SET_ENTRY_BYTES;
        let (mut set, mut steps) = (Self::default(), InterruptionSteps::default());
        while let Some(candidate) = cursor.next()? {
            steps.step()?;
            reads.candidates += 1;
            let sequence = candidate.sequence;
            if within.is_some_and(|within| !within.numbers.contains(&sequence)) {
                continue;
            }
            if set.numbers.insert(sequence) && set.numbers.len() > max_numbers {
                reads.costs.extend(costs_of(cursor));
                return Ok(None);
            }
            set.bound = set.bound.max(sequence);
        }
        reads.costs.extend(costs_of(cursor));
        Ok(Some(set))
    }

    /// True if no candidate can match.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// The candidates of one index that are in a set.
pub(super) struct FilteredCursor<'c> {
    driving: Box<dyn CandidateCursor + 'c>,
    set: &'c SequenceSet,
    current: CandidateBuffer,
    steps: InterruptionSteps,
}

impl<'c> FilteredCursor<'c> {
    pub(super) fn new(driving: Box<dyn CandidateCursor + 'c>, set: &'c SequenceSet) -> Self {
        Self { driving, set, current: CandidateBuffer::default(), steps: InterruptionSteps::default() }
    }
}

impl CandidateCursor for FilteredCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        while let Some(candidate) = self.driving.next()? {
            self.steps.step()?;
            if self.set.numbers.contains(&candidate.sequence) {
                self.current.copy(&candidate);
                return Ok(Some(self.current.candidate()));
            }
        }
        Ok(None)
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.driving.sequence_bound().min(self.set.bound)
    }

    fn order(&self) -> Option<Order> {
        self.driving.order()
    }

    fn components_id(&self) -> Option<usize> {
        self.driving.components_id()
    }

    fn report(&self, explain: &mut Explain) {
        self.driving.report(explain);
    }
}

/// The common candidates of several cursors that all return newest first. It returns those of the driving cursor.
pub(super) struct MergeCursor<'c> {
    driving: Box<dyn CandidateCursor + 'c>,
    /// The filtering cursors, each with the sequence number of its current candidate.
    filtering: Vec<(Box<dyn CandidateCursor + 'c>, Option<SequenceNumber>)>,
    started: bool,
    current: CandidateBuffer,
    ended: bool,
    steps: InterruptionSteps,
}

impl<'c> MergeCursor<'c> {
    pub(super) fn new(
        driving: Box<dyn CandidateCursor + 'c>,
        filtering: impl IntoIterator<Item = Box<dyn CandidateCursor + 'c>>,
    ) -> Self {
        let filtering = filtering.into_iter().map(|cursor| (cursor, None)).collect();
        let (current, steps) = Default::default();
        Self { driving, filtering, started: false, current, ended: false, steps }
    }

    /// Advances the filtering cursors to `target` or below. Returns the largest number that all of them may share; `None` at
    /// the end of one.
    fn advance_filtering(&mut self, target: SequenceNumber) -> Result<Option<SequenceNumber>> {
        let mut smallest = target;
        for (cursor, at) in &mut self.filtering {
            while at.is_none_or(|at| at > smallest) {
                self.steps.step()?;
                let Some(candidate) = cursor.next()? else {
                    return Ok(None);
                };
                *at = Some(candidate.sequence);
            }
            smallest = at.unwrap_or(0);
        }
        Ok(Some(smallest))
    }
}

impl CandidateCursor for MergeCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        while !self.ended {
            let last = self.started.then_some(self.current.sequence);
            let Some(candidate) = self.driving.next()? else {
                break;
            };
            // The driving cursor may return a write several times.
            if last == Some(candidate.sequence) {
                continue;
            }
            self.current.copy(&candidate);
            self.started = true;
            match self.advance_filtering(self.current.sequence)? {
                Some(shared) if shared == self.current.sequence => {
                    return Ok(Some(self.current.candidate()));
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
        let bounds = self.filtering.iter().map(|(cursor, at)| at.unwrap_or_else(|| cursor.sequence_bound()));
        bounds.fold(self.driving.sequence_bound(), SequenceNumber::min)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::Newest)
    }

    fn report(&self, explain: &mut Explain) {
        self.driving.report(explain);
        let costs = self.filtering.iter().flat_map(|(cursor, _)| costs_of(&**cursor));
        costs.for_each(|costs| explain.add_costs(costs));
    }
}

/// The costs of an index whose candidates are not those of the query.
pub(super) fn costs_of(cursor: &dyn CandidateCursor) -> Vec<IndexCosts> {
    let mut explain = Explain::default();
    cursor.report(&mut explain);
    explain.index_costs
}

/// A copy of a candidate that outlives further calls of its cursor.
#[derive(Debug, Default)]
pub(super) struct CandidateBuffer {
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

impl CandidateBuffer {
    pub(super) fn copy(&mut self, candidate: &Candidate<'_>) {
        for (target, source) in [
            (&mut self.primary_key, candidate.primary_key),
            (&mut self.order_value, candidate.order_value),
            (&mut self.included, candidate.included),
        ] {
            target.clear();
            target.extend_from_slice(source);
        }
        (self.sequence, self.repeated) = (candidate.sequence, candidate.repeated);
        let CandidateOrigin { newer_runs, checked, validated, .. } = candidate.origin;
        (self.newer_runs, self.checked, self.validated) = (newer_runs, checked, validated);
        match candidate.origin.record {
            None => self.record = None,
            Some(record) => {
                let buffer = self.record.get_or_insert_default();
                buffer.clear();
                buffer.extend_from_slice(record);
            }
        }
    }

    pub(super) fn candidate(&self) -> Candidate<'_> {
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
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the numbers of a list.
    pub(crate) struct Listed(pub(crate) Vec<SequenceNumber>, pub(crate) usize, pub(crate) Option<Order>);

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
        fn merge_and_set_return_the_intersection(
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
            let mut reads = SetReads::default();
            for list in &lists[1..] {
                let mut cursor = Listed(list.clone(), 0, None);
                let next = SequenceSet::collect(&mut cursor, set.as_ref(), 1 << 20, &mut reads).unwrap();
                set = Some(next.unwrap());
            }
            let set = set.unwrap();
            let driving = Box::new(Listed(lists[0].clone(), 0, None));
            let mut found = drain(FilteredCursor::new(driving, &set));
            found.sort_unstable_by(|left, right| right.cmp(left));
            found.dedup();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_set_that_does_not_fit_is_dropped() {
        let numbers: Vec<u64> = (0..100).collect();
        for (entries, fits) in [(99, false), (100, true)] {
            let mut cursor = Listed(numbers.clone(), 0, None);
            let set =
                SequenceSet::collect(&mut cursor, None, entries * SET_ENTRY_BYTES, &mut SetReads::default())
                    .unwrap();
            assert_eq!(set.is_some(), fits);
        }
    }
}
