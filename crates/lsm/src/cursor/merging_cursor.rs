//! Several sources as one, in tree order.
//!
//! The source with the current entry stands apart; the others are in a heap, the next one on top. So while
//! entries come from one source in a row, which compaction makes the usual case, each costs one comparison
//! with the top. The first sixteen bytes of each source's key are kept as one number: most comparisons
//! look at nothing else.
//!
//! Entries that are equal in key and sequence number come in the order of their sources.

use std::cmp::Ordering;

use bolide_base::internal_key::compare_entries;
use bolide_base::{Error, Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor, key_head};

/// A cursor over all entries of its sources. With one source it costs next to nothing on top of it.
#[derive(Debug)]
pub struct MergingCursor<S> {
    sources: Vec<S>,
    /// The start of each valid source's key.
    heads: Vec<u128>,
    /// The other valid sources; each before its children at 2i + 1 and 2i + 2.
    heap: Vec<usize>,
    current: Option<usize>,
    direction: Direction,
    /// Forward: the head of the key of the source that comes next, or the largest one if there is none. Backward: zero.
    /// Before a key with a smaller head than that comes no other.
    limit: u128,
    /// The source of the current entry can have the next one in hand.
    in_hand: bool,
}

/// Where the sources stand. Forward: each on its first entry that is not before the current one.
/// Backward: each on its last entry that is not behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<S: InternalCursor> MergingCursor<S> {
    /// A cursor over `sources`, not positioned yet.
    pub fn new(sources: Vec<S>) -> Self {
        let count = sources.len();
        Self {
            sources,
            // Not zeros, for which the allocator would be asked on its slow way.
            heads: vec![u128::MAX; count],
            heap: Vec::with_capacity(count),
            current: None,
            direction: Direction::Forward,
            limit: 0,
            in_hand: false,
        }
    }

    /// The number of the source that the current entry is in; `None` while the cursor is invalid.
    #[inline]
    pub fn current_source(&self) -> Option<usize> {
        self.current
    }

    /// As [`seek`](InternalCursor::seek) for a position behind the current one, but it leaves the sources
    /// alone that are there already. On an invalid cursor it does nothing.
    ///
    /// # Errors
    /// Those of the sources.
    pub fn seek_forward(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.direction == Direction::Backward {
            return if self.current.is_some() { self.seek(key, sequence) } else { Ok(()) };
        }
        while let Some(current) = self.current {
            let source = &mut self.sources[current];
            if compare_entries(source.key(), source.trailer().sequence(), key, sequence).is_ge() {
                break;
            }
            let step = source.seek(key, sequence);
            self.stepped(current, step)?;
        }
        Ok(())
    }

    /// Positions all sources and finds the current one.
    fn position(
        &mut self,
        direction: Direction,
        mut go: impl FnMut(usize, &mut S) -> Result<()>,
    ) -> Result<()> {
        self.direction = direction;
        self.current = None;
        self.heap.clear();
        for index in 0..self.sources.len() {
            if let Err(error) = go(index, &mut self.sources[index]) {
                return Err(self.fail(error));
            }
            if self.sources[index].valid() {
                self.heads[index] = key_head(self.sources[index].key());
                self.heap.push(index);
            }
        }
        for slot in (0..self.heap.len() / 2).rev() {
            self.sift_down(slot);
        }
        self.current = self.pop();
        self.note_limit();
        Ok(())
    }

    /// Notes how far the source of the current entry goes alone, when it has become that.
    #[inline]
    fn note_limit(&mut self) {
        self.in_hand = self.current.is_some_and(|current| self.sources[current].can_have_next_in_hand());
        self.limit = match (self.direction, self.heap.first()) {
            (Direction::Backward, _) => 0,
            (Direction::Forward, Some(&second)) => self.heads[second],
            (Direction::Forward, None) => u128::MAX,
        };
    }

    /// Turns around: the others go one entry over the current one, and it one entry back.
    fn turn(&mut self, current: usize, direction: Direction) -> Result<()> {
        self.position(direction, |index, source| match direction {
            // An invalid source has nothing on this side, so all it has is on the other.
            Direction::Forward if index != current && !source.valid() => source.seek_to_first(),
            Direction::Backward if index != current && !source.valid() => source.seek_to_last(),
            Direction::Forward => source.next(),
            Direction::Backward => source.prev(),
        })
    }

    /// Finds the current source after `source`, which was it, has moved by `step`. True if it still is.
    #[inline]
    fn stepped(&mut self, source: usize, step: Result<()>) -> Result<bool> {
        if let Err(error) = step {
            return Err(self.fail(error));
        }
        let moved = &self.sources[source];
        let head = moved.valid().then(|| key_head(moved.key()));
        Ok(self.settle(source, head))
    }

    /// As [`stepped`](Self::stepped), where the head of the key that the source has moved to is known; `None` where it
    /// is behind its last entry.
    #[inline]
    fn settle(&mut self, source: usize, head: Option<u128>) -> bool {
        let Some(head) = head else {
            self.current = self.pop();
            self.note_limit();
            return false;
        };
        self.heads[source] = head;
        if head < self.limit {
            return true;
        }
        match self.heap.first() {
            Some(&second) if self.is_before(second, source) => {
                self.heap[0] = source;
                self.current = Some(second);
                self.sift_down(0);
                self.note_limit();
                false
            }
            _ => true,
        }
    }

    fn head_of_current(&self) -> Option<EntryHead> {
        let current = self.current?;
        Some(EntryHead { key_head: self.heads[current], trailer: self.sources[current].trailer() })
    }

    /// True where the next entry surely has another key than the current one.
    #[inline]
    pub fn leaves_key(&self) -> bool {
        let Some(current) = self.current else { return true };
        self.sources[current].shows_keys_once()
            && self.direction == Direction::Forward
            && self.heap.first().is_none_or(|&second| self.heads[second] != self.heads[current])
    }

    fn pop(&mut self) -> Option<usize> {
        let last = self.heap.pop()?;
        let Some(top) = self.heap.first_mut() else { return Some(last) };
        let top = std::mem::replace(top, last);
        self.sift_down(0);
        Some(top)
    }

    fn sift_down(&mut self, mut slot: usize) {
        let length = self.heap.len();
        loop {
            let mut child = 2 * slot + 1;
            if child >= length {
                return;
            }
            if child + 1 < length && self.is_before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.is_before(self.heap[child], self.heap[slot]) {
                return;
            }
            self.heap.swap(slot, child);
            slot = child;
        }
    }

    /// True where source `left` comes before source `right` in the direction of the cursor.
    #[inline]
    fn is_before(&self, left: usize, right: usize) -> bool {
        let order = self.heads[left].cmp(&self.heads[right]).then_with(|| self.compare_fully(left, right));
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    fn compare_fully(&self, left: usize, right: usize) -> Ordering {
        let (left_source, right_source) = (&self.sources[left], &self.sources[right]);
        compare_entries(
            left_source.key(),
            left_source.trailer().sequence(),
            right_source.key(),
            right_source.trailer().sequence(),
        )
        .then(left.cmp(&right))
    }

    fn fail(&mut self, error: Error) -> Error {
        self.current = None;
        self.heap.clear();
        error
    }
}

impl<S: InternalCursor> InternalCursor for MergingCursor<S> {
    /// Where the source of the current entry has the next one at hand, and neither of the two has the key of another
    /// source's entry.
    #[inline]
    fn next_in_hand(&mut self) -> Option<EntryHead> {
        if !self.in_hand {
            return None;
        }
        let current = self.current?;
        if self.heads[current] >= self.limit {
            return None;
        }
        let entry = self.sources[current].next_in_hand()?;
        self.heads[current] = entry.key_head;
        if entry.key_head < self.limit {
            return Some(entry);
        }
        self.settle(current, Some(entry.key_head));
        self.head_of_current()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.map_or(&[], |current| self.sources[current].key())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.current.map_or(Trailer::from_bits(0), |current| self.sources[current].trailer())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.map_or(&[], |current| self.sources[current].value())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.position(Direction::Forward, |_, source| source.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position(Direction::Backward, |_, source| source.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.sources.len() > 1 {
            self.sources.iter_mut().for_each(|source| source.prepare_seek(key, sequence));
            // All go on by one stage before one goes on by the next.
            while self.sources.iter_mut().fold(false, |more, source| source.prepare_further() | more) {}
        }
        self.position(Direction::Forward, |_, source| source.seek(key, sequence))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position(Direction::Backward, |_, source| source.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.direction == Direction::Backward {
            return self.turn(current, Direction::Forward);
        }
        let step = self.sources[current].next();
        self.stepped(current, step).map(drop)
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        let Some(current) = self.current else { return Ok(None) };
        if self.direction == Direction::Backward {
            self.turn(current, Direction::Forward)?;
            return Ok(self.head_of_current());
        }
        match self.sources[current].next_entry() {
            Ok(entry) if self.settle(current, entry.map(|entry| entry.key_head)) => Ok(entry),
            Ok(_) => Ok(self.head_of_current()),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.direction == Direction::Forward {
            return self.turn(current, Direction::Backward);
        }
        let step = self.sources[current].prev();
        self.stepped(current, step).map(drop)
    }
}
