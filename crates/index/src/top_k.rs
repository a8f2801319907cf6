//! Retains the first candidates of an order within bounded memory.
//!
//! Candidates come in any order and leave in the order of the query. If they exceed the memory, the last of them are
//! dropped, which is recorded: the caller then reads the index again for the candidates after the last one that left. So
//! memory is bounded and no candidate is lost.
//!
//! Records that come with candidates are retained while they take at most half of the memory; others must be fetched
//! again.
//!
//! The memory counts against the budget of the database. If the budget refuses more, the memory stays as it is: the query takes
//! more passes.
//!
//! The rank of a candidate is its value, then its sequence number. Of candidates with equal rank one is retained, as
//! they are one write; in [`Order::Newest`] and [`Order::Oldest`] the rank is the sequence number only.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use bolide_base::SequenceNumber;

use crate::candidate::{Candidate, CandidateOrigin};
use crate::query::Order;
use crate::query_memory::{QueryMemory, UNCOUNTED_BYTES};

/// Candidates in the order of a query; see the [module](self).
pub(crate) struct TopK<'b> {
    order: Order,
    /// Number of candidates that a shrink retains. At twice as many it shrinks.
    capacity: usize,
    /// Bytes of keys and values at which it shrinks.
    capacity_bytes: usize,
    collected: Vec<RankedCandidate>,
    bytes: Vec<u8>,
    sorted: bool,
    /// The sequence numbers of the newest candidates, the smallest on top: up to `ranked` of them.
    newest: BinaryHeap<Reverse<SequenceNumber>>,
    ranked: usize,
    /// Number of candidates for which a drain pays if `ranked` is not used.
    enough: usize,
    /// The same in bytes.
    enough_bytes: usize,
    /// Only candidates after this one are accepted: the others have left.
    after: Option<(Vec<u8>, SequenceNumber)>,
    /// Candidates at or after this one are dropped.
    first_dropped_rank: Option<(Vec<u8>, SequenceNumber)>,
    memory: QueryMemory<'b>,
    /// Bytes that are counted, or need not be; `usize::MAX` once the budget refused more, and the capacities were reduced.
    granted_bytes: usize,
}

/// A candidate whose bytes are in [`TopK::bytes`]: the value, the key, the included attributes, then the record.
#[derive(Debug, Clone, Copy)]
struct RankedCandidate {
    sequence: SequenceNumber,
    start: u32,
    value_len: u32,
    key_len: u32,
    included_len: u32,
    /// [`NONE`] without a record.
    record_len: u32,
    /// [`UNKNOWN`] if unknown.
    newer_runs: u16,
    repeated: bool,
    checked: bool,
    validated: bool,
}

/// Maximum number of tracked newest candidates.
const MAX_RANKED: usize = 4096;
/// Number of candidates for the first drain of a query with a larger limit.
const FIRST_DRAIN: usize = 512;
/// Initial capacity of candidates.
const FIRST_ROOM: usize = 32;
/// Initial capacity of bytes.
const FIRST_ROOM_BYTES: usize = 1 << 10;
/// The record is not retained.
const NONE: u32 = u32::MAX;
/// The component of the candidate is unknown.
const UNKNOWN: u16 = u16::MAX;

impl RankedCandidate {
    fn value(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.value_len as usize
    }

    fn key(&self) -> Range<usize> {
        let start = self.value().end;
        start..start + self.key_len as usize
    }

    fn included(&self) -> Range<usize> {
        let start = self.key().end;
        start..start + self.included_len as usize
    }

    fn record(&self) -> Option<Range<usize>> {
        let start = self.included().end;
        (self.record_len != NONE).then(|| start..start + self.record_len as usize)
    }

    fn all(&self) -> Range<usize> {
        let behind = self.record().map_or(self.included().end, |record| record.end);
        self.start as usize..behind
    }

    fn as_candidate<'b>(&self, bytes: &'b [u8]) -> Candidate<'b> {
        let newer_runs = (self.newer_runs != UNKNOWN).then_some(u32::from(self.newer_runs));
        Candidate {
            primary_key: &bytes[self.key()],
            sequence: self.sequence,
            order_value: &bytes[self.value()],
            repeated: self.repeated,
            included: &bytes[self.included()],
            origin: CandidateOrigin {
                newer_runs,
                record: self.record().map(|record| &bytes[record]),
                checked: self.checked,
                validated: self.validated,
            },
        }
    }
}

/// Compares ranks; `Less` is earlier in the answer.
pub(crate) fn compare(
    order: Order,
    left: (&[u8], SequenceNumber),
    right: (&[u8], SequenceNumber),
) -> Ordering {
    match order {
        Order::Newest => right.1.cmp(&left.1),
        Order::Oldest => left.1.cmp(&right.1),
        Order::Value | Order::Nearest | Order::Attributes => {
            left.0.cmp(right.0).then_with(|| right.1.cmp(&left.1))
        }
        Order::ValueDescending => right.0.cmp(left.0).then_with(|| right.1.cmp(&left.1)),
    }
}

impl<'b> TopK<'b> {
    /// Retains about `capacity` candidates in `order`, and uses at most about `capacity_bytes` of `memory`.
    pub(crate) fn new(order: Order, capacity: usize, capacity_bytes: usize, memory: QueryMemory<'b>) -> Self {
        let max_candidates = capacity_bytes / (2 * size_of::<RankedCandidate>());
        Self {
            order,
            capacity: capacity.min(max_candidates).max(1),
            // Offsets have 32 bits.
            capacity_bytes: capacity_bytes.clamp(1, 1 << 30),
            collected: Vec::with_capacity(FIRST_ROOM.min(max_candidates)),
            bytes: Vec::with_capacity(FIRST_ROOM_BYTES.min(capacity_bytes)),
            sorted: true,
            newest: BinaryHeap::new(),
            ranked: 0,
            enough: FIRST_DRAIN,
            enough_bytes: capacity_bytes / 2,
            after: None,
            first_dropped_rank: None,
            memory,
            granted_bytes: UNCOUNTED_BYTES,
        }
    }

    /// Rejects all candidates up to this rank, as if they had left.
    pub(crate) fn start_after(&mut self, value: &[u8], sequence: SequenceNumber) {
        self.after = Some((value.to_vec(), sequence));
    }

    /// Adds `candidate`, unless it has left before or is in the dropped range.
    #[inline]
    pub(crate) fn push(&mut self, candidate: &Candidate<'_>) {
        let rank = (candidate.order_value, candidate.sequence);
        if let Some((value, sequence)) = &self.after
            && compare(self.order, rank, (value, *sequence)) != Ordering::Greater
        {
            return;
        }
        if let Some((value, sequence)) = &self.first_dropped_rank
            && compare(self.order, rank, (value, *sequence)) != Ordering::Less
        {
            return;
        }
        let room = (self.capacity_bytes / 2).saturating_sub(self.bytes.len());
        let record = candidate.origin.record.filter(|record| record.len() <= room);
        let newer_runs = candidate.origin.newer_runs.and_then(|runs| u16::try_from(runs).ok());
        self.collected.push(RankedCandidate {
            sequence: candidate.sequence,
            start: self.bytes.len() as u32,
            value_len: candidate.order_value.len() as u32,
            key_len: candidate.primary_key.len() as u32,
            included_len: candidate.included.len() as u32,
            record_len: record.map_or(NONE, |record| record.len() as u32),
            newer_runs: newer_runs.unwrap_or(UNKNOWN),
            repeated: candidate.repeated,
            checked: candidate.origin.checked,
            validated: candidate.origin.validated,
        });
        self.bytes.extend_from_slice(candidate.order_value);
        self.bytes.extend_from_slice(candidate.primary_key);
        self.bytes.extend_from_slice(candidate.included);
        self.bytes.extend_from_slice(record.unwrap_or_default());
        self.note_newest(candidate.sequence);
        self.sorted = false;
        if self.memory_bytes() > self.granted_bytes {
            self.request_memory();
        }
        if self.collected.len() >= 2 * self.capacity || self.bytes.len() > self.capacity_bytes {
            self.shrink();
        }
    }

    /// Bytes of the candidates.
    fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.collected.len() * size_of::<RankedCandidate>()
    }

    /// Doubles the counted memory. If the budget refuses it, the present candidates remain the most.
    #[cold]
    fn request_memory(&mut self) {
        let wanted = 2 * self.memory_bytes();
        if self.memory.request(wanted) {
            self.granted_bytes = wanted;
            return;
        }
        self.granted_bytes = usize::MAX;
        // Half for bytes, half for candidates.
        self.capacity_bytes = (self.memory_bytes() / 2).clamp(1, self.capacity_bytes);
        self.capacity = (self.collected.len() / 2).clamp(1, self.capacity);
    }

    /// Whether enough candidates at or above `bound` are present for a drain: all `wanted` in [`Order::Newest`], and for a
    /// very large limit enough to keep the sorting cheap. Constant time.
    pub(crate) fn is_worth_draining(&mut self, bound: SequenceNumber, wanted: usize) -> bool {
        if wanted > MAX_RANKED {
            return self.collected.len() >= self.enough || self.bytes.len() >= self.enough_bytes;
        }
        if wanted != self.ranked {
            self.ranked = wanted;
            self.newest.reserve(wanted.min(FIRST_ROOM));
            self.rank_newest();
        }
        self.newest.len() >= wanted && self.newest.peek().is_none_or(|smallest| smallest.0 >= bound)
    }

    /// Recomputes the newest candidates.
    fn rank_newest(&mut self) {
        self.newest.clear();
        for at in 0..self.collected.len() {
            self.note_newest(self.collected[at].sequence);
        }
    }

    fn note_newest(&mut self, sequence: SequenceNumber) {
        if self.newest.len() < self.ranked {
            self.newest.push(Reverse(sequence));
        } else if let Some(mut smallest) = self.newest.peek_mut()
            && smallest.0 < sequence
        {
            *smallest = Reverse(sequence);
        }
    }

    /// Whether candidates were dropped since the last [`restart`](Self::restart).
    pub(crate) fn dropped(&self) -> bool {
        self.first_dropped_rank.is_some()
    }

    /// Prepares for reading all candidates again, with four times the capacity.
    pub(crate) fn restart(&mut self) {
        self.first_dropped_rank = None;
        let max_candidates = self.capacity_bytes / (2 * size_of::<RankedCandidate>());
        self.capacity = self.capacity.saturating_mul(4).min(max_candidates).max(1);
    }

    /// Starts a drain: returns the number of candidates that leave, which [`candidate`](Self::candidate) then returns in
    /// order: all of them, or in [`Order::Newest`] those at or above `bound`.
    pub(crate) fn begin_drain(&mut self, bound: SequenceNumber) -> usize {
        self.sort();
        match self.order {
            Order::Newest => self.collected.partition_point(|candidate| candidate.sequence >= bound),
            _ => self.collected.len(),
        }
    }

    /// The candidate at `position` of a drain.
    #[inline]
    pub(crate) fn candidate(&self, position: usize) -> Option<Candidate<'_>> {
        self.collected.get(position).map(|candidate| candidate.as_candidate(&self.bytes))
    }

    /// Ends a drain: removes the first `count` candidates, which have left.
    pub(crate) fn end_drain(&mut self, count: usize) {
        if let Some(last) = count.checked_sub(1).map(|last| self.collected[last]) {
            self.after = Some((self.bytes[last.value()].to_vec(), last.sequence));
        }
        self.collected.drain(..count);
        self.rank_newest();
        self.repack();
        // As many again, but at most half of the remaining capacity: dropping costs another pass.
        let (count, bytes) = (self.collected.len(), self.bytes.len());
        let room = (2 * self.capacity).saturating_sub(count) / 2;
        self.enough = count + room.min(count.max(FIRST_DRAIN));
        self.enough_bytes = bytes + self.capacity_bytes.saturating_sub(bytes) / 2;
    }

    fn sort(&mut self) {
        if self.sorted {
            return;
        }
        let (order, bytes) = (self.order, &self.bytes);
        let rank = |candidate: &RankedCandidate| (&bytes[candidate.value()], candidate.sequence);
        // Mostly a sorted run and a few more: a stable sort merges them.
        self.collected.sort_by(|left, right| compare(order, rank(left), rank(right)));
        self.collected
            .dedup_by(|later, retained| compare(order, rank(later), rank(retained)) == Ordering::Equal);
        self.sorted = true;
    }

    /// Sorts, and drops the last candidates above the capacity.
    #[cold]
    fn shrink(&mut self) {
        self.sort();
        let mut retained_count = self.collected.len().min(self.capacity);
        if self.bytes.len() > self.capacity_bytes {
            retained_count = retained_count.min((self.collected.len() / 2).max(1));
        }
        if let Some(first_dropped) = self.collected.get(retained_count) {
            self.first_dropped_rank =
                Some((self.bytes[first_dropped.value()].to_vec(), first_dropped.sequence));
            self.collected.truncate(retained_count);
        }
        self.repack();
    }

    /// Frees the bytes of removed candidates.
    fn repack(&mut self) {
        if self.collected.is_empty() {
            self.bytes.clear();
            return;
        }
        let live: usize = self.collected.iter().map(|candidate| candidate.all().len()).sum();
        if live * 2 > self.bytes.len() {
            return;
        }
        let mut packed = Vec::with_capacity(live);
        for candidate in &mut self.collected {
            let bytes = candidate.all();
            candidate.start = packed.len() as u32;
            packed.extend_from_slice(&self.bytes[bytes]);
        }
        self.bytes = packed;
    }
}

#[cfg(test)]
mod tests {
    use bolide_memory::MemoryBudget;
    use proptest::prelude::*;

    use super::*;

    /// Repeats passes over `input` until `limit` candidates have left.
    fn run(order: Order, capacity: usize, bytes: usize, limit: usize, input: &[(u8, u64)]) -> Vec<(u8, u64)> {
        run_within(TopK::new(order, capacity, bytes, QueryMemory::default()), limit, input)
    }

    fn run_within(mut top: TopK<'_>, limit: usize, input: &[(u8, u64)]) -> Vec<(u8, u64)> {
        let order = top.order;
        let mut out = Vec::new();
        loop {
            for (value, sequence) in input {
                let key = sequence.to_be_bytes();
                let by_value = matches!(order, Order::Value | Order::ValueDescending);
                top.push(&Candidate {
                    primary_key: &key,
                    sequence: *sequence,
                    order_value: if by_value { std::slice::from_ref(value) } else { &[] },
                    repeated: false,
                    included: &[],
                    origin: CandidateOrigin {
                        newer_runs: Some(*sequence as u32),
                        record: Some(&key),
                        checked: true,
                        validated: true,
                    },
                });
            }
            let count = top.begin_drain(0);
            for position in 0..count {
                let candidate = top.candidate(position).unwrap();
                assert_eq!(candidate.primary_key, candidate.sequence.to_be_bytes());
                assert_eq!(candidate.origin.newer_runs, Some(candidate.sequence as u32));
                assert!(candidate.origin.record.is_none_or(|record| record == candidate.primary_key));
                out.push((candidate.order_value.first().copied().unwrap_or(0), candidate.sequence));
                if out.len() >= limit {
                    return out;
                }
            }
            top.end_drain(count);
            if !top.dropped() {
                return out;
            }
            top.restart();
        }
    }

    proptest! {
        #[test]
        fn all_candidates_leave_in_order_for_any_capacity(
            input in proptest::collection::vec((0..4_u8, 1..60_u64), 0..80),
            order in 0..4_usize,
            capacity in 1..20_usize,
            bytes in prop_oneof![1..200_usize, Just(1 << 20)],
            limit in prop_oneof![1..20_usize, Just(usize::MAX)],
        ) {
            let order = [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending][order];
            let mut expected: Vec<(u8, u64)> = input.clone();
            if order == Order::Newest || order == Order::Oldest {
                expected.iter_mut().for_each(|(value, _)| *value = 0);
            }
            expected.sort_by(|left, right| {
                compare(order, (&[left.0], left.1), (&[right.0], right.1))
            });
            expected.dedup();
            expected.truncate(limit);
            prop_assert_eq!(run(order, capacity, bytes, limit, &input), expected);
        }
    }

    #[test]
    fn a_sort_takes_more_passes_if_the_budget_refuses_memory() {
        let input: Vec<(u8, u64)> = (0..60_000_u64).map(|number| (0, number * 7_919 % 60_000 + 1)).collect();
        let budget = MemoryBudget::new(1 << 20);
        let memory = || QueryMemory::new(Some(&budget));
        let mut top = TopK::new(Order::Oldest, 60_000, 32 << 20, memory());
        let (mut largest, mut passes) = (0, 0);
        loop {
            passes += 1;
            for (_, sequence) in &input {
                top.push(&Candidate {
                    primary_key: &sequence.to_be_bytes(),
                    sequence: *sequence,
                    order_value: &[],
                    repeated: false,
                    included: &[],
                    origin: CandidateOrigin::default(),
                });
                largest = largest.max(top.memory_bytes());
            }
            let count = top.begin_drain(0);
            top.end_drain(count);
            if !top.dropped() {
                break;
            }
            top.restart();
        }
        assert!(passes > 1 && budget.refused_requests() > 0, "{passes}");
        assert!(largest <= (1 << 20) + (64 << 10) && budget.reserved_bytes() > 256 << 10, "{largest}");
        drop(top);
        assert_eq!(budget.reserved_bytes(), 0);
        let top = TopK::new(Order::Oldest, 60_000, 32 << 20, memory());
        let answers = run_within(top, usize::MAX, &input);
        assert!(answers.iter().map(|(_, sequence)| *sequence).eq(1..=60_000));
    }

    #[test]
    fn candidates_above_the_bound_leave_early() {
        let mut top = TopK::new(Order::Newest, 10, 1 << 20, QueryMemory::default());
        let push = |top: &mut TopK, sequence: u64| {
            top.push(&Candidate {
                primary_key: b"k",
                sequence,
                order_value: &[],
                repeated: false,
                included: &[],
                origin: CandidateOrigin::default(),
            });
        };
        for sequence in [4, 9, 7, 2] {
            push(&mut top, sequence);
        }
        let left = |top: &mut TopK, bound| {
            let count = top.begin_drain(bound);
            let out: Vec<u64> =
                (0..count).map(|position| top.candidate(position).unwrap().sequence).collect();
            top.end_drain(count);
            out
        };
        assert!(top.is_worth_draining(5, 2) && !top.is_worth_draining(5, 3) && !top.is_worth_draining(10, 1));
        assert_eq!(left(&mut top, 5), [9, 7]);
        push(&mut top, 7);
        push(&mut top, 3);
        assert_eq!(left(&mut top, 0), [4, 3, 2]);
    }
}
