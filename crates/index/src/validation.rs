//! Tells current candidates from obsolete ones.
//!
//! A candidate is current at a view if the write it stems from is the newest write of its primary key
//! that the view sees, and no range tombstone covers it.

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

/// What a validator says about a candidate, at the sequence number of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is the newest version of its record.
    Current,
    /// The record was replaced or deleted since.
    Obsolete,
    /// The validator cannot tell at this view: the driver asks the table.
    Unknown,
}

/// A way to validate candidates of keys-only and counting queries. Queries for records validate by the
/// sequence number of the record itself, in the one lookup that fetches it.
pub trait Validator<T: TreeSource>: Send + Sync + fmt::Debug {
    /// The name shown by explain.
    fn name(&self) -> &'static str;

    /// The tree that [`verdict`](Self::verdict) is to be given; `None` for the collection's own.
    fn tree(&self) -> Option<TreeId> {
        None
    }

    /// Whether `primary_key`, as written at `sequence`, is current in `table`: the collection's tree, or
    /// [`tree`](Self::tree), at the view of the query.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn verdict(&self, table: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict>;

    /// [`verdict`](Self::verdict) for each of `keys`, as written at the sequence number in the same place of
    /// `sequences`: appended to `out` in their order. May be quicker than as many single ones.
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

    /// True if a verdict costs next to nothing, so that candidates need not wait for each other.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// The validator of an index with this specification: none where its entries are maintained, else the one that it
/// names. One that names the key index, which is a tree, has it from whoever knows that tree.
pub fn validator_for<'v, T: TreeSource + 'v>(spec: &IndexSpec) -> &'v dyn Validator<T> {
    match (spec.maintenance(), spec.validation()) {
        (Maintenance::Synchronous, _) => &MaintainedValidator,
        (_, ValidationStrategy::GetLite) => &GetLiteValidator,
        (_, ValidationStrategy::Primary | ValidationStrategy::KeyIndex) => &PrimaryValidator,
    }
}
