//! Validation by a tree of primary keys.
//!
//! ```text
//! key      primary key
//! value    empty: only the entry's own sequence number is used
//! ```
//!
//! The primary key index of Luo and Carey, to which Perseid §2.2 compares its validation: a tree beside the table with the
//! keys and the sequence numbers of its writes, without their records. So it is small and its blocks stay in memory. It
//! costs one more small write per record.
//!
//! Every write to the table has a counterpart in this tree, in the same batch and under the same sequence number: a put an
//! empty put, a delete a delete, a deleted range a deleted range. So at every view the tree has the same keys at the same
//! sequence numbers as the table, and needs no rules of its own for deletes, snapshots or crashes.

use bolide_base::{Result, SequenceNumber, TreeId};

use super::{PrimaryValidator, Validator, Verdict};
use crate::access::Access;
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::compiled_query::CompiledQuery;
use crate::hooks::{BackFillMode, IndexHooks};
use crate::query::Order;
use crate::secondary_index::{IndexWrites, IndexedRecord, SecondaryIndex};
use crate::source::{ForwardCursor, ReadSource, TreeSource};
use crate::spec::{IndexSpec, ValidationStrategy};

/// Compares with the newest sequence number of the primary key in a [`KeyIndex`].
#[derive(Debug, Clone, Copy)]
pub struct KeyIndexValidator {
    tree: TreeId,
}

impl KeyIndexValidator {
    /// A validator that reads the key index in `tree`.
    pub fn new(tree: TreeId) -> Self {
        Self { tree }
    }

    /// The validator of `spec` with the key index in `keys`; `None` unless `spec` has `validation=key-index`.
    pub(crate) fn of_spec(spec: &IndexSpec, keys: Option<TreeId>) -> Option<Self> {
        keys.filter(|_| spec.validation() == ValidationStrategy::KeyIndex).map(Self::new)
    }
}

impl<T: TreeSource> Validator<T> for KeyIndexValidator {
    fn name(&self) -> &'static str {
        "key-index"
    }

    fn tree(&self) -> Option<TreeId> {
        Some(self.tree)
    }

    // The tree has the sequence numbers of the table, so it is read in the same way.

    fn verdict(&self, keys: &T, primary_key: &[u8], sequence: SequenceNumber) -> Result<Verdict> {
        PrimaryValidator.verdict(keys, primary_key, sequence)
    }

    fn verdicts(
        &self,
        keys: &T,
        primary_keys: &[&[u8]],
        sequences: &[SequenceNumber],
        out: &mut Vec<Verdict>,
    ) -> Result<()> {
        PrimaryValidator.verdicts(keys, primary_keys, sequences, out)
    }
}

/// The tree of primary keys of a collection, which is filled, checked and dropped like an index. No
/// query uses it as an index.
#[derive(Debug)]
pub struct KeyIndex {
    spec: IndexSpec,
    tree: [TreeId; 1],
    validator: PrimaryValidator,
}

impl KeyIndex {
    /// The key index in `tree`.
    ///
    /// # Errors
    /// None, as its own name parses as a specification.
    pub fn new(tree: TreeId) -> Result<Self> {
        // The attribute is never extracted: the name is for messages.
        let spec = "(keys)=key".parse()?;
        Ok(Self { spec, tree: [tree], validator: PrimaryValidator })
    }

    /// Compares in one direction: calls `found` with each key of `left`, and whether `right` has it at the same sequence
    /// number.
    fn count_missing<T: TreeSource>(left: &T, right: &T, mut found: impl FnMut(&[u8], bool)) -> Result<()> {
        let mut entries = left.cursor(&[], None)?;
        entries.seek_to_first()?;
        while entries.valid() {
            let is_there = right.newest_sequence(entries.key())? == Some(entries.sequence());
            found(entries.key(), is_there);
            entries.next()?;
        }
        Ok(())
    }
}

/// It needs no filter: it has the tombstones and the deleted ranges of the records.
impl IndexHooks for KeyIndex {
    /// Keys contain no sequence number: an old version would be above a newer one.
    fn back_fill(&self) -> BackFillMode {
        BackFillMode::Checked
    }
}

impl<S: ReadSource> SecondaryIndex<S> for KeyIndex {
    fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    fn trees(&self) -> &[TreeId] {
        &self.tree
    }

    fn derive(&self, record: &IndexedRecord<'_>, _: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        out.put(self.tree[0], record.primary_key, &[], None)
    }

    fn access(&self, _: &CompiledQuery<'_>) -> Option<Access> {
        None
    }

    fn candidates<'v>(&'v self, _: &'v Access, _: Order, _: &'v S) -> Result<Box<dyn CandidateCursor + 'v>> {
        Err(bolide_base::Error::internal("a key index serves no query"))
    }

    fn validator(&self) -> &dyn Validator<S::Tree> {
        &self.validator
    }

    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        let (table, keys) = (view.tree(table.tree)?, view.tree(self.tree[0])?);
        Self::count_missing(&table, &keys, |key, is_there| {
            report.records += 1;
            if !is_there {
                report.missing += 1;
                report.describe(|| format!("the key index lacks the key {}", key.escape_ascii()));
            }
        })?;
        Self::count_missing(&keys, &table, |key, is_there| {
            report.entries += 1;
            if !is_there {
                report.wrong += 1;
                let key = key.escape_ascii();
                report.describe(|| format!("the key index has an old sequence number of the key {key}"));
            }
        })
    }
}
