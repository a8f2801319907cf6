//! Candidates: the records that an index proposes for a query.

use bolide_base::{Result, SequenceNumber};

use crate::explain::Explain;
use crate::query::Order;

/// A record that an index proposes, in the version of one sequence number.
///
/// Borrows from its cursor: nothing is copied for obsolete candidates.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Candidate<'c> {
    /// The record's key.
    pub primary_key: &'c [u8],
    /// The sequence number of the write that produced the index entry.
    pub sequence: SequenceNumber,
    /// The encoded value for a value order; empty if the cursor does not have it.
    pub order_value: &'c [u8],
    /// Whether the same write may be proposed again, with another value.
    pub repeated: bool,
    /// The included attributes of the entry in the format of [`covering`](crate::standalone::covering); empty if the
    /// index includes none. If the query selects attributes of the key, these precede them.
    pub included: &'c [u8],
    /// Further results of the cursor, if it read the record itself.
    pub origin: CandidateOrigin<'c>,
}

/// Properties of a candidate beyond its key and write. All are unknown by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct CandidateOrigin<'c> {
    /// The candidate is the newest version in its sstable that the view contains, and only this number of newest sorted
    /// runs of the table may contain a newer one: see [`FoundInRun`](bolide_lsm::store::FoundInRun).
    pub newer_runs: Option<u32>,
    /// The index validated that it is the newest write of its key in the view, except for deleted ranges.
    pub validated: bool,
    /// The record of this write.
    pub record: Option<&'c [u8]>,
    /// The index evaluated its covered predicates on this version of the record, so that they need no evaluation on the
    /// record.
    pub checked: bool,
}

impl<'c> Candidate<'c> {
    /// A candidate without further properties.
    pub fn new(primary_key: &'c [u8], sequence: SequenceNumber) -> Self {
        let origin = CandidateOrigin::default();
        Self { primary_key, sequence, order_value: &[], repeated: false, included: &[], origin }
    }
}

impl CandidateOrigin<'_> {
    /// The properties that stay valid if the components of the table change.
    pub(crate) fn moved(self) -> Self {
        // The record of a current candidate is the same in all components.
        Self { newer_runs: None, record: self.record.filter(|_| self.validated), ..self }
    }
}

/// A stream of the candidates of one query. It holds no lock between two calls: writes and other queries go on.
pub trait CandidateCursor: Send {
    /// The next candidate.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn next(&mut self) -> Result<Option<Candidate<'_>>>;

    /// Upper bound of the sequence numbers of further candidates. Allows the driver to stop early without loss.
    fn sequence_bound(&self) -> SequenceNumber;

    /// The order of the candidates, if they have one. The driver then streams them; else it collects and sorts.
    fn order(&self) -> Option<Order>;

    /// The [`components_id`](crate::source::TreeSource::components_id) of the table that the origins of the candidates
    /// refer to. Without it, or if it differs from that of the driver, the driver ignores them.
    fn components_id(&self) -> Option<usize> {
        None
    }

    /// Adds the costs of the candidates read so far to `explain`.
    fn report(&self, explain: &mut Explain) {
        let _ = explain;
    }
}
