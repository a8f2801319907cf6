//! The candidate cursor of posting lists.

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use super::{FragmentPosition, Malformed, Posting};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;
use crate::spec::IndexSpec;
use crate::standalone::covering;

/// The result of a step over posting lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListStep {
    /// The reader is on a posting without a removal.
    Posting,
    /// A duplicate of the last posting was skipped.
    Duplicate,
    /// The rest of a malformed fragment was skipped.
    Malformed,
    /// The end of the lists.
    End,
}

/// Iterates over posting lists by ascending secondary key, the postings of each newest first.
pub(crate) trait ListReader {
    /// Moves to the next posting.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading.
    fn step(&mut self) -> Result<ListStep>;

    /// The current posting. Only after [`ListStep::Posting`].
    fn posting(&self) -> Posting<'_>;

    /// The secondary key of that posting.
    fn secondary_key(&self) -> &[u8];
}

/// A reader of one fragment.
#[derive(Debug, Default)]
pub(crate) struct OpenFragment {
    bytes: Vec<u8>,
    /// The end of the current posting.
    position: FragmentPosition,
    /// The start of the current posting.
    start: FragmentPosition,
    /// Sequence number of the current posting, and whether it is a removal.
    pub(crate) sequence: SequenceNumber,
    pub(crate) removal: bool,
    included: usize,
}

impl OpenFragment {
    /// Opens a fragment of the entry `sequence` on its first posting; false if it is empty.
    pub(crate) fn open(
        &mut self,
        fragment: &[u8],
        sequence: SequenceNumber,
        included: usize,
    ) -> std::result::Result<bool, Malformed> {
        self.bytes.clear();
        self.bytes.extend_from_slice(fragment);
        self.position = FragmentPosition::start(sequence);
        self.included = included;
        self.advance()
    }

    /// Moves to the next posting; false at the end.
    pub(crate) fn advance(&mut self) -> std::result::Result<bool, Malformed> {
        self.start = self.position;
        let Some(posting) = self.position.read(&self.bytes, self.included)? else { return Ok(false) };
        (self.sequence, self.removal) = (posting.sequence, posting.removal);
        Ok(true)
    }

    /// The current posting.
    pub(crate) fn posting(&self) -> Posting<'_> {
        let mut position = self.start;
        // The posting was read before, so this read cannot fail.
        position
            .read(&self.bytes, self.included)
            .ok()
            .flatten()
            .unwrap_or_else(|| Posting::removal(self.sequence))
    }
}

/// The candidates of a [`ListReader`] within an access.
pub(crate) struct ListCursor<'v, R> {
    lists: R,
    access: &'v Access,
    spec: &'v IndexSpec,
    /// Upper bound of the sequence numbers of the remaining postings of the list.
    bound: SequenceNumber,
    /// The covering of the candidate with the attributes of its key, if these are needed.
    with_key: Vec<u8>,
}

impl<'v, R: ListReader> ListCursor<'v, R> {
    /// The postings of `lists`, a reader of those within `access` at `view_sequence`.
    pub(crate) fn new(
        lists: R,
        access: &'v Access,
        spec: &'v IndexSpec,
        view_sequence: SequenceNumber,
    ) -> Self {
        Self { lists, access, spec, bound: view_sequence, with_key: Vec::new() }
    }
}

impl<R: ListReader + Send> CandidateCursor for ListCursor<'_, R> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            match self.lists.step()? {
                ListStep::Posting => break,
                ListStep::Duplicate => {}
                ListStep::Malformed => {
                    let what = format!("index {}: a posting list is malformed", self.spec.name());
                    return Err(Error::new(ErrorKind::Corruption, what));
                }
                ListStep::End => {
                    self.bound = 0;
                    return Ok(None);
                }
            }
        }
        let posting = self.lists.posting();
        self.bound = posting.sequence.saturating_sub(1);
        let order_value = self.access.order_value(self.lists.secondary_key());
        let mut included = posting.covering;
        if self.access.includes_key_attributes {
            self.with_key.clear();
            covering::put_key(self.spec, self.lists.secondary_key(), !posting.repeated, &mut self.with_key);
            self.with_key.extend_from_slice(included);
            included = &self.with_key;
        }
        Ok(Some(Candidate {
            primary_key: posting.primary_key,
            sequence: posting.sequence,
            order_value,
            // A list has one posting of a write.
            repeated: !self.access.point && posting.repeated,
            included,
            origin: CandidateOrigin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.access.point { self.bound } else { SequenceNumber::MAX }
    }

    fn order(&self) -> Option<Order> {
        let by_value = self.access.order_attribute.is_some_and(|at| at + 1 == self.spec.attributes().len());
        match (self.access.point, by_value) {
            (true, _) => Some(Order::Newest),
            (false, true) => Some(Order::Value),
            (false, false) => None,
        }
    }
}
