//! Several sources as one, in tree order.
//!
//! The source with the current entry is separate; the others are in a heap, the next one on top. While consecutive entries
//! are from one source, the usual case after compactions, each costs one comparison with the top. The first sixteen bytes of
//! each source's key are stored as one number: most comparisons read only these.
//!
//! Entries with equal key and sequence number are in the order of their sources.

use std::cmp::Ordering;

use bolide_base::internal_key::compare_entries;
use bolide_base::technique::Technique;
use bolide_base::{Error, Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor, key_head};

/// A cursor over all entries of its sources. With a single source its overhead is negligible.
#[derive(Debug)]
pub struct MergingCursor<S> {
    sources: Vec<S>,
    /// The start of each valid source's key.
    heads: Vec<u128>,
    /// The other valid sources; each before its children at 2i + 1 and 2i + 2.
    heap: Vec<usize>,
    current: Option<usize>,
    direction: ScanDirection,
    /// Forward: the head of the key of the next source, or the maximum if there is none. Backward: zero. A key with a
    /// smaller head precedes the keys of all other sources.
    limit: u128,
    /// The current source supports [`try_next_distinct`](InternalCursor::try_next_distinct).
    supports_distinct: bool,
}

/// The positions of the sources. Forward: each on its first entry at or behind the current one. Backward: each on its last
/// entry at or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanDirection {
    Forward,
    Backward,
}

impl<S: InternalCursor> MergingCursor<S> {
    /// A cursor over `sources`, not positioned yet.
    pub fn new(sources: Vec<S>) -> Self {
        let count = sources.len();
        Self {
            sources,
            // Not zeros, whose allocation is slower.
            heads: vec![u128::MAX; count],
            heap: Vec::with_capacity(count),
            current: None,
            direction: ScanDirection::Forward,
            limit: 0,
            supports_distinct: false,
        }
    }

    /// The number of the source of the current entry; `None` while the cursor is invalid.
    #[inline]
    pub fn current_source(&self) -> Option<usize> {
        self.current
    }

    /// As [`seek`](InternalCursor::seek) for a position behind the current one, but without moving sources that are there
    /// already. On an invalid cursor it does nothing.
    ///
    /// # Errors
    /// Those of the sources.
    pub fn seek_forward(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.direction == ScanDirection::Backward {
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

    /// Positions all sources and determines the current one.
    fn position(
        &mut self,
        direction: ScanDirection,
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
        self.set_limit();
        Ok(())
    }

    /// Sets the limit below which the new current source needs no comparison.
    #[inline]
    fn set_limit(&mut self) {
        let supports = |current: usize| self.sources[current].supports_try_next_distinct();
        self.supports_distinct = Technique::SingleSourceSteps.is_on() && self.current.is_some_and(supports);
        self.limit = match (self.direction, self.heap.first()) {
            (ScanDirection::Backward, _) => 0,
            (ScanDirection::Forward, Some(&second)) => self.heads[second],
            (ScanDirection::Forward, None) => u128::MAX,
        };
    }

    /// Reverses the direction: the other sources move over the current entry, and its source one entry back.
    fn reverse(&mut self, current: usize, direction: ScanDirection) -> Result<()> {
        self.position(direction, |index, source| match direction {
            // An invalid source has no entries on this side, so all of its entries are on the other.
            ScanDirection::Forward if index != current && !source.valid() => source.seek_to_first(),
            ScanDirection::Backward if index != current && !source.valid() => source.seek_to_last(),
            ScanDirection::Forward => source.next(),
            ScanDirection::Backward => source.prev(),
        })
    }

    /// Determines the current source after `source`, the previous one, has moved by `step`. True if it is the same.
    #[inline]
    fn stepped(&mut self, source: usize, step: Result<()>) -> Result<bool> {
        if let Err(error) = step {
            return Err(self.fail(error));
        }
        let moved = &self.sources[source];
        let head = moved.valid().then(|| key_head(moved.key()));
        Ok(self.update_current(source, head))
    }

    /// As [`stepped`](Self::stepped) with the head of the source's new key; `None` behind its last entry.
    #[inline]
    fn update_current(&mut self, source: usize, head: Option<u128>) -> bool {
        let Some(head) = head else {
            self.current = self.pop();
            self.set_limit();
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
                self.set_limit();
                false
            }
            _ => true,
        }
    }

    fn head_of_current(&self) -> Option<EntryHead> {
        let current = self.current?;
        Some(EntryHead { key_head: self.heads[current], trailer: self.sources[current].trailer() })
    }

    /// True if the next entry certainly has another key than the current one.
    #[inline]
    pub fn leaves_key(&self) -> bool {
        let Some(current) = self.current else { return true };
        self.sources[current].yields_keys_once()
            && self.direction == ScanDirection::Forward
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

    /// True if source `left` precedes source `right` in the direction of the cursor.
    #[inline]
    fn is_before(&self, left: usize, right: usize) -> bool {
        let order = self.heads[left].cmp(&self.heads[right]).then_with(|| self.compare_fully(left, right));
        match self.direction {
            ScanDirection::Forward => order == Ordering::Less,
            ScanDirection::Backward => order == Ordering::Greater,
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
    /// Succeeds if the source of the current entry can step without a read, and no other source has an entry with one of the
    /// two keys.
    #[inline]
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        if !self.supports_distinct {
            return None;
        }
        let current = self.current?;
        if self.heads[current] >= self.limit {
            return None;
        }
        let entry = self.sources[current].try_next_distinct()?;
        self.heads[current] = entry.key_head;
        if entry.key_head < self.limit {
            return Some(entry);
        }
        self.update_current(current, Some(entry.key_head));
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
        self.position(ScanDirection::Forward, |_, source| source.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position(ScanDirection::Backward, |_, source| source.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.sources.len() > 1 && Technique::StagedSeeks.is_on() {
            self.sources.iter_mut().for_each(|source| source.prepare_seek(key, sequence));
            // All sources complete one stage before any starts the next.
            while self.sources.iter_mut().fold(false, |more, source| source.prepare_next_stage() | more) {}
        }
        self.position(ScanDirection::Forward, |_, source| source.seek(key, sequence))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position(ScanDirection::Backward, |_, source| source.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.direction == ScanDirection::Backward {
            return self.reverse(current, ScanDirection::Forward);
        }
        let step = self.sources[current].next();
        self.stepped(current, step).map(drop)
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        let Some(current) = self.current else { return Ok(None) };
        if self.direction == ScanDirection::Backward {
            self.reverse(current, ScanDirection::Forward)?;
            return Ok(self.head_of_current());
        }
        match self.sources[current].next_entry() {
            Ok(entry) if self.update_current(current, entry.map(|entry| entry.key_head)) => Ok(entry),
            Ok(_) => Ok(self.head_of_current()),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.direction == ScanDirection::Forward {
            return self.reverse(current, ScanDirection::Backward);
        }
        let step = self.sources[current].prev();
        self.stepped(current, step).map(drop)
    }
}
