//! The interface of every kind of secondary index.

use std::fmt;

use bolide_base::{Error, Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::compiled_query::CompiledQuery;
use crate::newest_keys::NewestKeys;
use crate::query::Order;
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::validation::Validator;

/// A record as the input of an index: its key, its attributes, and its sequence number.
#[derive(Debug, Clone, Copy)]
pub struct IndexedRecord<'r> {
    /// The record's key.
    pub primary_key: &'r [u8],
    /// The sequence number of the write; `None` before the commit assigned it.
    pub sequence: Option<SequenceNumber>,
    /// The record's attributes.
    pub values: &'r AttributeValues,
    /// The slots in `values` of the attributes of the index, then of its included attributes; see [`slots_of`].
    pub slots: &'r [ValueSlot],
}

impl<'r> IndexedRecord<'r> {
    /// The slots in `values` of the attributes that `spec` sorts by, and of those that it includes.
    #[inline]
    pub fn split_slots(&self, spec: &IndexSpec) -> (&'r [ValueSlot], &'r [ValueSlot]) {
        self.slots.split_at_checked(spec.attributes().len()).unwrap_or((self.slots, &[]))
    }
}

/// The slots in `plan` of the [paths](IndexSpec::paths) of `spec`: of its attributes, then of those that it includes.
///
/// # Errors
/// `Internal` if the plan lacks one.
pub fn slots_of(spec: &IndexSpec, plan: &AttributePlan) -> Result<Vec<ValueSlot>> {
    spec.paths()
        .map(|attribute| {
            plan.slot(attribute).ok_or_else(|| {
                bolide_base::Error::internal(format!(
                    "index {}: `{attribute}` is not in the plan",
                    spec.name()
                ))
            })
        })
        .collect()
}

/// Receives the writes of an index for the batch of the record that caused them.
pub trait IndexWrites {
    /// Inside a commit: sets the sequence number of the following writes to `sequence`, one of the numbers of the batch.
    /// Outside of a commit the number is that of the record, and this does nothing.
    fn set_sequence(&mut self, sequence: SequenceNumber);

    /// Puts an entry. With `sequence_at`, the eight bytes at that offset of `key` will be replaced by the inverted
    /// sequence number of the record's write, most significant byte first.
    ///
    /// # Errors
    /// `LimitExceeded` if a key, a value or the batch is over its limit.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()>;

    /// Adds a merge operand under `key`, for trees with a merge operator. A key has one operand per sequence number: a
    /// second one replaces it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes an entry.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()>;
}

/// The change of one record by a batch, as seen inside its commit: the last write of that key.
#[derive(Debug, Clone, Copy)]
pub struct StagedChange<'r> {
    /// The sequence number of the write, also for a delete.
    pub sequence: SequenceNumber,
    /// The record that the batch replaces or deletes; `None` if there was none, or if no index of the
    /// collection [needs old records](SecondaryIndex::needs_old_records).
    pub old: Option<IndexedRecord<'r>>,
    /// The record that it puts; `None` for a delete.
    pub new: Option<IndexedRecord<'r>>,
}

/// The changes of the records of one collection by a batch, as seen inside its commit.
#[derive(Debug, Clone, Copy)]
pub struct StagedBatch<'b> {
    /// The tree of the records.
    pub table: TreeId,
    /// The last change of each primary key, ascending by sequence number. All have a number.
    pub changes: &'b [StagedChange<'b>],
    /// The ranges that it deletes.
    pub deleted: &'b [DeletedRange],
}

/// An entry of a version that no view can read any more, as named by [`SecondaryIndex::name_entries`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleEntry {
    /// The key of the entry, or the secondary key of the list.
    pub key: Box<[u8]>,
    /// The sequence number of the version.
    pub sequence: SequenceNumber,
}

/// Stale entries that a commit removes from one index.
#[derive(Debug, Clone, Copy)]
pub struct Retraction<'b> {
    /// The tree of the records.
    pub table: TreeId,
    /// The sequence number of the removal.
    pub sequence: SequenceNumber,
    /// The distinct entries, ascending.
    pub stale: &'b [StaleEntry],
}

impl<'b> Retraction<'b> {
    /// The entries of each key.
    pub(crate) fn by_key(&self) -> impl Iterator<Item = (&'b [u8], &'b [StaleEntry])> {
        let groups = self.stale.chunk_by(|left, right| left.key == right.key);
        groups.filter_map(|group| Some((&*group.first()?.key, group)))
    }
}

/// A range of primary keys that a batch deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The exclusive end.
    pub end: Vec<u8>,
    /// The sequence number of the deletion.
    pub sequence: SequenceNumber,
}

impl StagedBatch<'_> {
    /// Whether a range that the batch deletes covers the write of `primary_key` at `sequence`.
    pub fn deletes(&self, primary_key: &[u8], sequence: SequenceNumber) -> bool {
        self.deleted.iter().any(|range| {
            range.sequence > sequence && *range.start <= *primary_key && *primary_key < *range.end
        })
    }
}

/// A secondary index of a collection: it turns writes into entries, and queries into candidates. The
/// [lookup driver](crate::lookup) decides which candidates are answers.
///
/// A write has two steps. [`derive`](Self::derive) runs in the writer's thread before the commit, has only the new record,
/// and reads nothing. [`stage`](Self::stage) runs inside the commit, for kinds that need the old record or the present
/// contents of the index; its writes join the same batch. Both must be pure functions of their arguments: the log contains
/// their writes, and recovery never calls them.
pub trait SecondaryIndex<S: ReadSource>: Send + Sync + fmt::Debug {
    /// The declaration.
    fn spec(&self) -> &IndexSpec;

    /// The trees of the entries.
    fn trees(&self) -> &[TreeId];

    /// Writes the entries of a record before its commit. With a sequence number in `record` (a
    /// back-fill) the entries contain it; else the commit fills it in. `key` is scratch memory.
    ///
    /// # Errors
    /// `LimitExceeded` for an attribute over its limit; the write is rejected then.
    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()>;

    /// Writes the entries of a delete of `primary_key`, for kinds that need them. Like [`derive`](Self::derive), it runs
    /// before the commit and reads nothing.
    ///
    /// # Errors
    /// `LimitExceeded` if a key or the batch is over its limit; the delete is rejected then.
    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        let _ = (primary_key, key, out);
        Ok(())
    }

    /// Whether [`derive_delete`](Self::derive_delete) must be called.
    fn needs_deletes(&self) -> bool {
        false
    }

    /// False if [`derive`](Self::derive) only rejects records over a limit, and writes nothing. It may be skipped for a
    /// record that [`AttributeExtractor::accepts`](crate::AttributeExtractor::accepts).
    fn derives(&self) -> bool {
        true
    }

    /// Whether [`stage`](Self::stage) must be called.
    fn needs_stage(&self) -> bool {
        false
    }

    /// Whether the commit must read the records that it replaces, for [`stage`](Self::stage).
    fn needs_old_records(&self) -> bool {
        self.needs_stage()
    }

    /// Writes entries that depend on the state before the commit, which is in `view`. Called once per batch.
    /// `key` is scratch memory.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; `LimitExceeded` as [`derive`](Self::derive).
    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        view: &S,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        let _ = (batch, view, key, out);
        Ok(())
    }

    /// Calls `visit` with the name of each entry of a version of a record: the key of the entry, or the secondary key of the
    /// list with its posting. Together with the sequence number of the version it identifies the entry for
    /// [`retract`](Self::retract). Required of indexes with `repair=primary-compaction` only. `record` has its sequence
    /// number. Reads nothing. `key` is scratch memory.
    ///
    /// # Errors
    /// `LimitExceeded` for an attribute over its limit: such a version has no entries. Those of `visit`.
    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let _ = (record, key, visit);
        Ok(())
    }

    /// Removes entries of versions that no view can read any more, inside a commit whose previous state is in `view`.
    /// Entries that do not exist are skipped.
    ///
    /// # Errors
    /// As [`stage`](Self::stage).
    fn retract(&self, batch: &Retraction<'_>, view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        let _ = (batch, view, out);
        Ok(())
    }

    /// Makes the index readable. Returns why it cannot be read now although it is intact: its memory exceeds the budget. A query
    /// that does not name the index then uses another plan.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn refusal(&self) -> Result<Option<Error>> {
        Ok(None)
    }

    /// The access for `query`; `None` if the index cannot serve it.
    fn access(&self, query: &CompiledQuery<'_>) -> Option<Access> {
        Access::plan(self.spec().attributes(), query)
    }

    /// The candidates within `access`, in `order` if the index can provide it. They contain every record that matches the
    /// covered predicates at `view`, and possibly others.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>>;

    /// A fast path for the newest `limit` records under one secondary key, without their contents. Writes exactly the
    /// records to `out` that the driver would return through [`candidates`](Self::candidates) at `at`. False if the index
    /// does not support this, or would have to read other structures; the caller then uses the driver.
    ///
    /// Either a reader is registered at `at`, or the caller checks afterwards that no write was published since.
    /// `oldest_in_use` returns the oldest number with a registered reader.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        let _ = (secondary_key, limit, at, oldest_in_use, out);
        Ok(false)
    }

    /// The estimated number of candidates within `access` at `view`; `None` if the index cannot estimate it without
    /// reading data. The planner compares plans by it and tolerates a factor of two.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn estimate(&self, access: &Access, view: &S) -> Result<Option<u64>> {
        let mut entries = None;
        for tree in self.trees() {
            let within = view.tree(*tree)?.estimate(&access.low, Some(&access.end))?;
            entries = Some(entries.unwrap_or(0) + within);
        }
        Ok(entries)
    }

    /// Distinguishes current candidates from obsolete ones if the record is not fetched.
    fn validator(&self) -> &dyn Validator<S::Tree>;

    /// Calls `visit` with the sequence number and the primary key of each write that produced the entry `key`, `value` of
    /// its tree, written at `sequence`, for the detection of stale entries. False if the index does not support this.
    ///
    /// # Errors
    /// Those of `visit`.
    fn origins(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let _ = (key, sequence, value, visit);
        Ok(false)
    }

    /// Compares its entries with the table, in both directions, and adds the results to `report`.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading. Differences are reported and not an error.
    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()>;
}
