//! Validation: distinguishes current candidates from obsolete ones.
//!
//! A candidate is current at a view if its write is the newest write of its primary key in the view, and no range tombstone
//! covers it.

mod get_lite;
mod key_index;
mod maintained;
mod primary;

use std::fmt;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::source::TreeSource;
use crate::spec::{IndexSpec, Maintenance, ValidationStrategy};

pub use get_lite::GetLiteValidator;
pub use key_index::{KeyIndex, KeyIndexValidator};
pub use maintained::MaintainedValidator;
pub use primary::PrimaryValidator;

/// The result of a validation, at the sequence number of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is the newest version of its record.
    Current,
    /// The record was replaced or deleted since.
    Obsolete,
    /// The validator cannot decide at this view: the driver reads the table.
    Unknown,
}

/// A validation strategy for candidates of keys-only and counting queries. Queries for records validate by the
/// sequence number of the record itself, in the lookup that fetches it.
pub trait Validator<T: TreeSource>: Send + Sync + fmt::Debug {
    /// The name in the execution report.
    fn name(&self) -> &'static str;

    /// The tree argument of [`verdict`](Self::verdict); `None` for the tree of the collection.
    fn tree(&self) -> Option<TreeId> {
        None
    }

    /// Whether the write of `primary_key` at `sequence` is current in `table`: the collection's tree, or
    /// [`tree`](Self::tree), at the view of the query.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict>;

    /// [`verdict`](Self::verdict) for each of `keys`, with the sequence number at the same position of `sequences`.
    /// Appended to `out` in their order. May be faster than as many single ones.
    ///
    /// # Errors
    /// As [`verdict`](Self::verdict); `out` then has fewer verdicts than there are keys.
    fn verdicts(
        &self,
        table: &T,
        keys: &[&[u8]],
        sequences: &[SequenceNumber],
        out: &mut Vec<Verdict>,
    ) -> Result<()> {
        for (key, &sequence) in keys.iter().zip(sequences) {
            out.push(self.verdict(table, key, sequence)?);
        }
        Ok(())
    }

    /// Whether verdicts are so cheap that candidates need no batching.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// The validator of an index with this specification: that of synchronous maintenance, else the one that it names. A
/// validator with a key index, which is a tree, is created where that tree is known.
pub fn validator_for<'v, T: TreeSource + 'v>(spec: &IndexSpec) -> &'v dyn Validator<T> {
    match (spec.maintenance(), spec.validation()) {
        (Maintenance::Synchronous, _) => &MaintainedValidator,
        (_, ValidationStrategy::GetLite) => &GetLiteValidator,
        (_, ValidationStrategy::Primary | ValidationStrategy::KeyIndex) => &PrimaryValidator,
    }
}
