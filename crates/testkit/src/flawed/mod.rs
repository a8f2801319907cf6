//! Planted bugs of indexes: a layer over every index of a database, which the [conformance suite](crate::conformance) must
//! detect.
//!
//! Each [`Flaw`] is a possible bug of an index. The test `crates/testkit/tests/flaws.rs` requires that the suite fails with
//! each flaw in every kind in which it is observable. The deep check of a flawed index reports no problem, so only the
//! answers can reveal the flaw.

mod candidates;
mod index;
pub(crate) mod queries;

use std::cell::Cell;
use std::sync::Arc;

use bolide::{IndexKind, IndexSpec, IndexWrapper, Maintenance};
use bolide_index::EntryOrder;

use crate::rule::Rule;
use index::FlawedIndex;
pub use queries::QueryFlaw;

thread_local! {
    /// Pauses of the readers of this thread so far.
    static PAUSES: Cell<u64> = const { Cell::new(0) };
}

/// Marks a pause of all readers of this thread, for [`Flaw::EndsAtPause`].
pub(crate) fn pause() {
    PAUSES.set(PAUSES.get() + 1);
}

/// A planted bug of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The first candidate of each query is dropped.
    DropsFirst,
    /// The last candidate of each query is dropped.
    DropsLast,
    /// Candidates with primary keys that end with `b` are dropped.
    DropsKey,
    /// Each candidate is returned twice, as two candidates.
    Repeats,
    /// Neighbouring candidates in ordered output are swapped.
    SwapsNeighbours,
    /// The cursor claims the order of the query, independent of the actual order.
    ClaimsOrder,
    /// The sequence bound of the remaining candidates is 0.
    BoundTooLow,
    /// Candidates have their sequence number minus one.
    WrongSequence,
    /// Obsolete candidates have the sequence number of the newest write of their record.
    Resurrects,
    /// Each candidate has the value of the previous one.
    WrongValue,
    /// Each candidate has the included attributes of the previous one.
    WrongIncluded,
    /// The validator accepts every candidate as current.
    TrustsAll,
    /// The validator rejects every candidate as obsolete.
    TrustsNone,
    /// The last of several entries of a write is not written.
    ForgetsLastEntry,
    /// A build writes no entries for existing records.
    ForgetsBackFill,
    /// Deletes do not remove the entries of the record.
    IgnoresDeletes,
    /// Updates do not remove the entries of the replaced record.
    IgnoresReplaced,
    /// The commit stages only the last change of a batch.
    ForgetsBatchMates,
    /// The candidates end once their reader has paused.
    EndsAtPause,
}

impl Flaw {
    /// All flaws.
    pub const EACH: [Self; 19] = [
        Self::DropsFirst,
        Self::DropsLast,
        Self::DropsKey,
        Self::Repeats,
        Self::SwapsNeighbours,
        Self::ClaimsOrder,
        Self::BoundTooLow,
        Self::WrongSequence,
        Self::Resurrects,
        Self::WrongValue,
        Self::WrongIncluded,
        Self::TrustsAll,
        Self::TrustsNone,
        Self::ForgetsLastEntry,
        Self::ForgetsBackFill,
        Self::IgnoresDeletes,
        Self::IgnoresReplaced,
        Self::ForgetsBatchMates,
        Self::EndsAtPause,
    ];

    /// Whether the flaw can change an answer of an index with this specification.
    pub fn is_observable(self, spec: &IndexSpec) -> bool {
        let kind = spec.kind();
        let synchronous = spec.maintenance() == Maintenance::Synchronous;
        let writes_entries = kind.has_tree();
        match self {
            // Without a promised order the lookup sorts.
            Self::SwapsNeighbours => kind != IndexKind::EMBEDDED && spec.entry_order() == EntryOrder::Newest,
            // These kinds return all candidates in order, so the bound is not used.
            Self::BoundTooLow => ![IndexKind::PS_TREE, IndexKind::NEXT].contains(&kind),
            Self::WrongIncluded => !spec.included().is_empty(),
            Self::ForgetsLastEntry | Self::ForgetsBackFill => writes_entries,
            // Blind writes leave obsolete entries by design.
            Self::IgnoresDeletes | Self::IgnoresReplaced => writes_entries && synchronous,
            Self::ForgetsBatchMates => kind == IndexKind::EAGER || (writes_entries && synchronous),
            // The others return all candidates of a case before the first answer.
            Self::EndsAtPause => kind != IndexKind::EMBEDDED && spec.entry_order() == EntryOrder::Newest,
            _ => true,
        }
    }

    /// The rules of which the flaw breaks at least one. Under a limit another record replaces a missing one.
    pub fn breaks(self) -> &'static [Rule] {
        match self {
            Self::DropsFirst
            | Self::DropsLast
            | Self::DropsKey
            | Self::WrongSequence
            | Self::TrustsNone
            | Self::ForgetsLastEntry
            | Self::ForgetsBackFill
            | Self::EndsAtPause => &[Rule::Complete],
            Self::Repeats => &[Rule::Once, Rule::Exact],
            // A union recognizes a record that several of its accesses find by their order.
            Self::SwapsNeighbours | Self::ClaimsOrder | Self::BoundTooLow => {
                &[Rule::Ordered, Rule::Complete, Rule::Once]
            }
            Self::Resurrects | Self::TrustsAll | Self::IgnoresReplaced => &[Rule::Exact, Rule::Once],
            Self::IgnoresDeletes => &[Rule::Exact],
            // In a wrong order, a limit excludes other records.
            Self::WrongValue | Self::WrongIncluded => &[Rule::Contents, Rule::Ordered, Rule::Complete],
            Self::ForgetsBatchMates => &[Rule::Exact, Rule::Complete],
        }
    }

    /// The case of the suite that is likely to detect the flaw, if not the first.
    pub(crate) fn likely_case(self) -> Option<&'static str> {
        match self {
            Self::BoundTooLow | Self::Resurrects | Self::TrustsAll => Some("range deletes"),
            Self::IgnoresDeletes | Self::ForgetsBatchMates => Some("snapshot before and after"),
            Self::EndsAtPause => Some("a long posting list"),
            _ => None,
        }
    }

    /// The wrapper that adds the flaw to every index of a database.
    pub fn wrapper(self) -> IndexWrapper {
        Arc::new(move |index, table| Arc::new(FlawedIndex::new(index, table, self)))
    }
}
