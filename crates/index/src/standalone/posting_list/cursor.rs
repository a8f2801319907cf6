//! The candidates of one query, from whatever reads posting lists.

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use super::{FragmentPosition, Malformed, Posting};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;
use crate::spec::IndexSpec;
use crate::standalone::{covering, secondary_key};

/// What a step over posting lists came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// On a posting that was not taken back.
    Posting,
    /// The posting before stands in the list once more; that was passed over.
    Duplicate,
    /// A fragment cannot be read; what is left of it was passed over.
    Malformed,
    /// There is no more.
    End,
}

/// Walks over posting lists: by secondary key ascending, the postings of each newest first.
pub(crate) trait ListReader {
    /// Goes to the next posting.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn step(&mut self) -> Result<Step>;

    /// The posting it is on. Only after [`Step::Posting`].
    fn posting(&self) -> Posting<'_>;

    /// The secondary key of that posting.
    fn secondary_key(&self) -> &[u8];
}

/// A fragment that is being read, on one of its postings.
#[derive(Debug, Default)]
pub(crate) struct OpenFragment {
    bytes: Vec<u8>,
    /// Behind the posting it is on.
    position: FragmentPosition,
    /// Where that posting starts.
    start: FragmentPosition,
    /// Its sequence number, and whether it is a removal.
    pub(crate) sequence: SequenceNumber,
    pub(crate) removal: bool,
    included: usize,
}

impl OpenFragment {
    /// Takes a fragment of the entry `sequence`; true if it is on the first posting, false if there is none.
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

    /// Goes to the next posting; false where there is none.
    pub(crate) fn advance(&mut self) -> std::result::Result<bool, Malformed> {
        self.start = self.position;
        let Some(posting) = self.position.read(&self.bytes, self.included)? else { return Ok(false) };
        (self.sequence, self.removal) = (posting.sequence, posting.removal);
        Ok(true)
    }

    /// The posting it is on.
    pub(crate) fn posting(&self) -> Posting<'_> {
        let mut position = self.start;
        // It was read before, so it can be read again.
        position
            .read(&self.bytes, self.included)
            .ok()
            .flatten()
            .unwrap_or_else(|| Posting::removal(self.sequence))
    }
}

/// The candidates that a [`ListReader`] has within an access.
pub(crate) struct ListCursor<'v, R> {
    lists: R,
    access: &'v Access,
    spec: &'v IndexSpec,
    /// No posting of the list still to come is newer.
    bound: SequenceNumber,
    /// What the candidate brings, where that is more than its posting has.
    brought: Vec<u8>,
}

impl<'v, R: ListReader> ListCursor<'v, R> {
    /// The postings of `lists`, which has those within `access`, read at `view_sequence`.
    pub(crate) fn new(
        lists: R,
        access: &'v Access,
        spec: &'v IndexSpec,
        view_sequence: SequenceNumber,
    ) -> Self {
        Self { lists, access, spec, bound: view_sequence, brought: Vec::new() }
    }
}

impl<R: ListReader> CandidateCursor for ListCursor<'_, R> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            match self.lists.step()? {
                Step::Posting => break,
                Step::Duplicate => {}
                Step::Malformed => {
                    let what = format!("index {}: a posting list is malformed", self.spec.name());
                    return Err(Error::new(ErrorKind::Corruption, what));
                }
                Step::End => {
                    self.bound = 0;
                    return Ok(None);
                }
            }
        }
        let posting = self.lists.posting();
        self.bound = posting.sequence.saturating_sub(1);
        let order_value = match self.access.order_attribute {
            Some(position) => secondary_key::component(self.lists.secondary_key(), position),
            None => &[],
        };
        let mut included = posting.covering;
        if self.access.includes_key_attributes {
            self.brought.clear();
            covering::put_key(self.spec, self.lists.secondary_key(), !posting.repeated, &mut self.brought);
            self.brought.extend_from_slice(included);
            included = &self.brought;
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
