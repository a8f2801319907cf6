//! Planted bugs of indexes: every index of a database behind a layer that breaks it in one way, to show that the
//! [conformance suite](crate::conformance) notices.
//!
//! A suite that cannot fail proves nothing. Each [`Flaw`] is a mistake that an index could have; the test
//! `crates/testkit/tests/flaws.rs` demands of every kind that the suite fails with each flaw that can show in it.
//! The deep check of a broken index finds nothing, whatever is wrong, so that it is the answers that give it away.

mod candidates;
mod index;

use std::sync::Arc;

use bolide::{IndexKind, IndexSpec, IndexWrapper, Maintenance};
use bolide_index::EntryOrder;

use crate::rule::Rule;
use index::FlawedIndex;

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The first candidate of each question is not proposed.
    DropsFirst,
    /// The last candidate of each question is not proposed.
    DropsLast,
    /// The records of one primary key, `b`, are never proposed.
    DropsKey,
    /// Each candidate comes twice, as if it were two.
    Repeats,
    /// Candidates that come in order change places with their neighbours.
    SwapsNeighbours,
    /// Candidates claim the order of the query, in whatever order they come.
    ClaimsOrder,
    /// Reports that nothing newer comes after the first candidate.
    BoundTooLow,
    /// Candidates have the sequence number before their own.
    WrongSequence,
    /// An obsolete candidate is proposed under the number of the newest write of its record.
    Resurrects,
    /// Each candidate has the value of the one before it.
    WrongValue,
    /// Each candidate has the included attributes of the one before it.
    WrongIncluded,
    /// Every candidate is called current.
    TrustsAll,
    /// Every candidate is called obsolete.
    TrustsNone,
    /// Of several entries that a write has, the last is not written.
    ForgetsLastEntry,
    /// A build writes no entries for the records that are there.
    ForgetsBackFill,
    /// Deletes leave the entries of the record.
    IgnoresDeletes,
    /// Updates leave the entries of the record that they replace.
    IgnoresReplaced,
    /// Of a batch with several records, the last alone is looked at inside the commit.
    ForgetsBatchMates,
}

impl Flaw {
    /// All of them.
    pub const EACH: [Self; 18] = [
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
    ];

    /// Whether an index of this declaration with the flaw can answer otherwise than one without.
    pub fn can_show(self, spec: &IndexSpec) -> bool {
        let kind = spec.kind();
        let synchronous = spec.maintenance() == Maintenance::Synchronous;
        let writes_entries = kind.is_standalone();
        match self {
            // Where no order is promised the lookup sorts.
            Self::SwapsNeighbours => kind != IndexKind::Embedded && spec.entry_order() == EntryOrder::Newest,
            // Every request is answered in order, so that the bound is not used.
            Self::BoundTooLow => !matches!(kind, IndexKind::PsTree | IndexKind::Next),
            Self::WrongIncluded => !spec.included().is_empty(),
            Self::ForgetsLastEntry | Self::ForgetsBackFill => writes_entries,
            // Blind writes leave entries behind by design.
            Self::IgnoresDeletes | Self::IgnoresReplaced => writes_entries && synchronous,
            Self::ForgetsBatchMates => kind == IndexKind::Eager || (writes_entries && synchronous),
            _ => true,
        }
    }

    /// The rules of which it breaks at least one. Where a limit cuts, a record that is missing has another in its place.
    pub fn breaks(self) -> &'static [Rule] {
        match self {
            Self::DropsFirst
            | Self::DropsLast
            | Self::DropsKey
            | Self::WrongSequence
            | Self::TrustsNone
            | Self::ForgetsLastEntry
            | Self::ForgetsBackFill => &[Rule::Complete],
            Self::Repeats => &[Rule::Once, Rule::Exact],
            Self::SwapsNeighbours | Self::ClaimsOrder | Self::BoundTooLow => &[Rule::Ordered, Rule::Complete],
            Self::Resurrects | Self::TrustsAll | Self::IgnoresReplaced => &[Rule::Exact, Rule::Once],
            Self::IgnoresDeletes => &[Rule::Exact],
            // With a limit for each value, others are left out.
            Self::WrongValue => &[Rule::Contents, Rule::Ordered, Rule::Complete],
            Self::WrongIncluded => &[Rule::Contents, Rule::Ordered],
            Self::ForgetsBatchMates => &[Rule::Exact, Rule::Complete],
        }
    }

    /// The case of the suite in which it is likely to show, if not in the first.
    pub(crate) fn likely_case(self) -> Option<&'static str> {
        match self {
            Self::BoundTooLow | Self::Resurrects | Self::TrustsAll => Some("range deletes"),
            Self::IgnoresDeletes | Self::ForgetsBatchMates => Some("snapshot before and after"),
            _ => None,
        }
    }

    /// What breaks every index of a database in this way.
    pub fn wrapper(self) -> IndexWrapper {
        Arc::new(move |index, table| Arc::new(FlawedIndex::new(index, table, self)))
    }
}
