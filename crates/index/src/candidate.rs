//! What an index proposes: records that may satisfy a query.

use bolide_base::{Result, SequenceNumber};

use crate::explain::Explain;
use crate::query::Order;

/// A record that an index proposes, as it was written at one sequence number.
///
/// It borrows from its cursor: nothing is copied for candidates that turn out obsolete.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Candidate<'c> {
    /// The record's key.
    pub primary_key: &'c [u8],
    /// The sequence number of the write that the index entry stems from.
    pub sequence: SequenceNumber,
    /// The value for a value order, encoded; empty where the cursor does not know it.
    pub order_value: &'c [u8],
    /// True if the same write may be proposed again, under another value.
    pub repeated: bool,
    /// What the entry stores of the attributes that its index includes, as
    /// [`covering`](crate::standalone::covering) writes it; empty where it stores nothing. Where the query
    /// selects attributes of the key, parts of these stand in front.
    pub included: &'c [u8],
    /// What the cursor knows beside, where it read the record itself.
    pub origin: Origin<'c>,
}

/// What a cursor knows of a candidate, beside what it proposes. Nothing is known by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin<'c> {
    /// It is the newest version in its sstable that the view sees, and so many sorted runs of the table, the
    /// newest first, may hold a newer one: see [`FoundInRun`](bolide_lsm::store::FoundInRun).
    pub newer_runs: Option<u32>,
    /// The index knows it to be the newest write of its key that the view sees, but for deleted ranges.
    pub validated: bool,
    /// The record as it was written.
    pub record: Option<&'c [u8]>,
    /// What the index settles, it read from this very version of the record, so that the record need not be looked
    /// into again for that.
    pub checked: bool,
}

impl<'c> Candidate<'c> {
    /// A candidate of which nothing more is known than its key and its write.
    pub fn new(primary_key: &'c [u8], sequence: SequenceNumber) -> Self {
        let origin = Origin::default();
        Self { primary_key, sequence, order_value: &[], repeated: false, included: &[], origin }
    }
}

impl Origin<'_> {
    /// What is still known where the components of the table are others.
    pub(crate) fn moved(self) -> Self {
        // Of one that is known to be current the record is the same wherever it lies.
        Self { newer_runs: None, record: self.record.filter(|_| self.validated), ..self }
    }
}

/// Streams the candidates of one query.
pub trait CandidateCursor {
    /// The next candidate.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn next(&mut self) -> Result<Option<Candidate<'_>>>;

    /// No candidate still to come is newer than this. Lets the driver stop early and stay exact.
    fn sequence_bound(&self) -> SequenceNumber;

    /// The order in which all candidates come, if they come in one. The driver then passes them on as they
    /// come; else it collects and sorts.
    fn order(&self) -> Option<Order>;

    /// Which components of the table the places of the candidates are in, as
    /// [`components_id`](crate::source::TreeSource::components_id) tells; without it, or with another one than that of
    /// the driver, their places are not used.
    fn components_id(&self) -> Option<usize> {
        None
    }

    /// Adds to `explain` what reading the candidates cost so far. Called once, when no more are wanted.
    fn report(&self, explain: &mut Explain) {
        let _ = explain;
    }
}
