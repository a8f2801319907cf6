//! Union of the candidates of several accesses: of the alternatives of a term, or the values of a list.
//!
//! * **Merge.** If all cursors return candidates in the order of the query, a heap merges them. The order is kept, so a query
//!   with a limit ends early.
//! * **By bound.** Else, if the cursors are few, the next candidate is that of the cursor with the largest sequence bound. So
//!   the bound of the union falls as fast as possible, and a query for the newest K ends early.
//! * **Concatenation.** Many cursors that cannot be merged are opened one after the other.
//!
//! A write may be a candidate of several cursors. In an order of recency these candidates follow each other, and the union
//! returns one. Otherwise all are marked as repeated, and the driver answers the first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use bolide_base::{Result, SequenceNumber};

use crate::candidate::{Candidate, CandidateCursor};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::query::Order;
use crate::top_k::compare;

use super::intersect::{CandidateBuffer, costs_of};

/// Maximum number of cursors that are merged. Each holds a position in every sorted run of its index.
pub(super) const MAX_MERGED: usize = 1_000;
/// Maximum number of cursors that are read by their bounds.
const MAX_BY_BOUND: usize = 64;

/// Opens the cursor of the alternative with this number.
pub(super) type OpenMember<'c> = Box<dyn Fn(usize) -> Result<Box<dyn CandidateCursor + 'c>> + Send + 'c>;

/// The candidates of all alternatives.
pub(super) struct UnionCursor<'c> {
    open: OpenMember<'c>,
    /// Number of alternatives.
    count: usize,
    members: Vec<UnionMember<'c>>,
    mode: UnionMode,
    /// The next alternative to open in a concatenation.
    next: usize,
    /// Costs of closed cursors.
    closed: Vec<IndexCosts>,
    /// Whether only the driver can distinguish candidates of one write.
    repeats: bool,
    components: Option<usize>,
    /// The last candidate in a merge: value and sequence number.
    last: Option<(Vec<u8>, SequenceNumber)>,
}

/// How the cursors are read.
enum UnionMode {
    /// In this order. The heap has the members that have a candidate, except the `current` one.
    Merge { order: Order, heap: BinaryHeap<Reverse<MergeHead>>, current: Option<usize>, started: bool },
    /// Of the member at `current`, until its bound falls below `other`, the largest of the others.
    ByBound { current: usize, other: SequenceNumber },
    /// One after the other.
    Concatenation,
}

struct UnionMember<'c> {
    cursor: Box<dyn CandidateCursor + 'c>,
    buffer: CandidateBuffer,
    ended: bool,
}

/// A candidate at the head of a member.
struct MergeHead {
    order: Order,
    value: Vec<u8>,
    sequence: SequenceNumber,
    member: usize,
}

impl MergeHead {
    fn rank(&self) -> (&[u8], SequenceNumber) {
        (&self.value, self.sequence)
    }
}

impl Ord for MergeHead {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.order, self.rank(), other.rank()).then(self.member.cmp(&other.member))
    }
}

impl PartialOrd for MergeHead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MergeHead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for MergeHead {}

impl<'c> UnionCursor<'c> {
    /// The union of `count` cursors for a query in `order`. With `counts_values` the driver needs the values of records, so
    /// that candidates of one write stay marked as repeated.
    pub(super) fn new(count: usize, order: Order, counts_values: bool, open: OpenMember<'c>) -> Result<Self> {
        let mut union = Self {
            open,
            count,
            members: Vec::new(),
            mode: UnionMode::Concatenation,
            next: 0,
            closed: Vec::new(),
            repeats: true,
            components: None,
            last: None,
        };
        if count > MAX_MERGED {
            return Ok(union);
        }
        let mut in_order = true;
        for member in 0..count {
            let cursor = (union.open)(member)?;
            in_order &= cursor.order() == Some(order);
            union.members.push(UnionMember { cursor, buffer: CandidateBuffer::default(), ended: false });
            if !in_order && count > MAX_BY_BOUND {
                union.members.clear();
                return Ok(union);
            }
        }
        let components = union.members.first().and_then(|member| member.cursor.components_id());
        union.components = components
            .filter(|id| union.members.iter().all(|member| member.cursor.components_id() == Some(*id)));
        union.next = count;
        if in_order {
            let by_recency = matches!(order, Order::Newest | Order::Oldest);
            union.repeats = !by_recency || counts_values;
            let heap = BinaryHeap::with_capacity(count);
            union.mode = UnionMode::Merge { order, heap, current: None, started: false };
        } else {
            union.mode = UnionMode::ByBound { current: 0, other: SequenceNumber::MAX };
        }
        Ok(union)
    }

    /// Reads the next candidate of a member into its buffer. False at its end.
    fn advance(&mut self, member: usize) -> Result<bool> {
        let Some(member) = self.members.get_mut(member).filter(|member| !member.ended) else {
            return Ok(false);
        };
        match member.cursor.next()? {
            Some(candidate) => {
                member.buffer.copy(&candidate);
                Ok(true)
            }
            None => {
                member.ended = true;
                Ok(false)
            }
        }
    }

    /// Adds the head of a member to the heap of a merge. `value` is a buffer for its value.
    fn push_head(&mut self, member: usize, mut value: Vec<u8>) -> Result<()> {
        if !self.advance(member)? {
            return Ok(());
        }
        let (UnionMode::Merge { order, heap, .. }, Some(at)) = (&mut self.mode, self.members.get(member))
        else {
            return Ok(());
        };
        let candidate = at.buffer.candidate();
        let by_value = !matches!(order, Order::Newest | Order::Oldest);
        value.clear();
        value.extend_from_slice(if by_value { candidate.order_value } else { &[] });
        heap.push(Reverse(MergeHead { order: *order, value, sequence: candidate.sequence, member }));
        Ok(())
    }

    /// The member with the next candidate of a merge.
    fn next_merged(&mut self) -> Result<Option<usize>> {
        loop {
            let UnionMode::Merge { current, started, .. } = &mut self.mode else { return Ok(None) };
            let (current, started) = (current.take(), std::mem::replace(started, true));
            if !started {
                for member in 0..self.members.len() {
                    self.push_head(member, Vec::new())?;
                }
            }
            if let Some(current) = current {
                self.push_head(current, Vec::new())?;
            }
            let UnionMode::Merge { heap, current, .. } = &mut self.mode else { return Ok(None) };
            let Some(Reverse(head)) = heap.pop() else { return Ok(None) };
            *current = Some(head.member);
            let is_same = |(value, sequence): &(Vec<u8>, SequenceNumber)| {
                *sequence == head.sequence && *value == head.value
            };
            if self.last.as_ref().is_some_and(is_same) {
                continue;
            }
            self.last = Some((head.value, head.sequence));
            return Ok(Some(head.member));
        }
    }

    /// The member with the next candidate by bound.
    fn next_by_bound(&mut self) -> Result<Option<usize>> {
        loop {
            let UnionMode::ByBound { current, other } = self.mode else { return Ok(None) };
            if self.bound_of(current) < other || self.members.get(current).is_none_or(|member| member.ended) {
                let bounds = (0..self.members.len()).filter(|at| !self.members[*at].ended);
                let mut bounds: Vec<(SequenceNumber, usize)> =
                    bounds.map(|at| (self.bound_of(at), at)).collect();
                bounds.sort_unstable_by(|left, right| right.cmp(left));
                let Some((_, current)) = bounds.first().copied() else { return Ok(None) };
                let other = bounds.get(1).map_or(0, |(bound, _)| *bound);
                self.mode = UnionMode::ByBound { current, other };
                if self.advance(current)? {
                    return Ok(Some(current));
                }
            } else if self.advance(current)? {
                return Ok(Some(current));
            }
        }
    }

    fn bound_of(&self, member: usize) -> SequenceNumber {
        let open = self.members.get(member).filter(|member| !member.ended);
        open.map_or(0, |member| member.cursor.sequence_bound())
    }

    /// The next candidate of a concatenation is that of the only open member.
    fn next_concatenated(&mut self) -> Result<Option<usize>> {
        loop {
            if !self.members.is_empty() {
                if self.advance(0)? {
                    return Ok(Some(0));
                }
                for member in self.members.drain(..) {
                    self.closed.extend(costs_of(&*member.cursor));
                }
            }
            if self.next >= self.count {
                return Ok(None);
            }
            let cursor = (self.open)(self.next)?;
            self.next += 1;
            self.members.push(UnionMember { cursor, buffer: CandidateBuffer::default(), ended: false });
        }
    }
}

impl CandidateCursor for UnionCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let member = match self.mode {
            UnionMode::Merge { .. } => self.next_merged()?,
            UnionMode::ByBound { .. } => self.next_by_bound()?,
            UnionMode::Concatenation => self.next_concatenated()?,
        };
        let Some(member) = member.and_then(|member| self.members.get(member)) else { return Ok(None) };
        let mut candidate = member.buffer.candidate();
        if self.components.is_none() {
            candidate.origin = candidate.origin.moved();
        }
        // The positions of included attributes differ among indexes. Each index checked its own alternative.
        candidate.included = &[];
        candidate.origin.checked = false;
        candidate.repeated = self.repeats;
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        match &self.mode {
            UnionMode::ByBound { .. } => {
                (0..self.members.len()).map(|at| self.bound_of(at)).max().unwrap_or(0)
            }
            UnionMode::Merge { order: Order::Newest, heap, current, started: true } => {
                let heads = heap.peek().map_or(0, |Reverse(head)| head.sequence);
                heads.max(current.map_or(0, |current| self.bound_of(current)))
            }
            UnionMode::Merge { .. } | UnionMode::Concatenation => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        match &self.mode {
            UnionMode::Merge { order, .. } => Some(*order),
            UnionMode::ByBound { .. } | UnionMode::Concatenation => None,
        }
    }

    fn components_id(&self) -> Option<usize> {
        self.components
    }

    fn report(&self, explain: &mut Explain) {
        self.closed.iter().for_each(|costs| explain.add_costs(*costs));
        for member in &self.members {
            costs_of(&*member.cursor).into_iter().for_each(|costs| explain.add_costs(costs));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lookup::intersect::tests::Listed;

    /// The sequence numbers that a union of `lists` returns, and whether it is a merge.
    fn drain(lists: &[Vec<u64>], order: Order, member_order: Option<Order>) -> (Vec<u64>, bool) {
        let owned = lists.to_vec();
        let open: OpenMember<'_> = Box::new(move |at| {
            Ok(Box::new(Listed(owned[at].clone(), 0, member_order)) as Box<dyn CandidateCursor>)
        });
        let mut union = UnionCursor::new(lists.len(), order, false, open).unwrap();
        let mut found = Vec::new();
        let mut bound = union.sequence_bound();
        while let Some(candidate) = union.next().unwrap() {
            let sequence = candidate.sequence;
            assert!(sequence <= bound, "{sequence} is above the bound {bound}");
            found.push(sequence);
            bound = union.sequence_bound();
        }
        (found, union.order().is_some())
    }

    proptest! {
        #[test]
        fn a_union_has_the_candidates_of_all(
            lists in proptest::collection::vec(proptest::collection::vec(0..30_u64, 0..20), 0..5),
            newest in any::<bool>(),
            extra in prop_oneof![Just(0), Just(70_usize), Just(1_001)],
        ) {
            let mut lists = lists;
            let order = if newest { Order::Newest } else { Order::Oldest };
            for list in &mut lists {
                list.sort_unstable();
                if newest {
                    list.reverse();
                }
            }
            let mut expected: Vec<u64> = lists.iter().flatten().copied().collect();
            expected.sort_unstable();
            expected.dedup();
            lists.extend((0..extra).map(|_| Vec::new()));
            if newest {
                let (found, merged) = drain(&lists, order, Some(order));
                prop_assert_eq!(merged, lists.len() <= MAX_MERGED);
                if merged {
                    prop_assert_eq!(found.iter().rev().copied().collect::<Vec<_>>(), expected.clone());
                }
            }
            let (mut found, merged) = drain(&lists, order, None);
            prop_assert!(!merged || lists.is_empty());
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found, expected);
        }
    }
}
