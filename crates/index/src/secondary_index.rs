//! The contract of every kind of secondary index.

use std::fmt;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::attribute_plan::{AttributePlan, AttributeValues, Slot};
use crate::candidate::CandidateCursor;
use crate::check::{CheckedTable, IndexCheck};
use crate::newest_keys::NewestKeys;
use crate::query::{CompiledQuery, Order};
use crate::source::{ReadSource, TreeSource};
use crate::spec::IndexSpec;
use crate::validation::Validator;

/// A record as an index sees it: its key, its attributes, and when it was written.
#[derive(Debug, Clone, Copy)]
pub struct IndexedRecord<'r> {
    /// The record's key.
    pub primary_key: &'r [u8],
    /// The sequence number of the write; `None` before the commit assigned it.
    pub sequence: Option<SequenceNumber>,
    /// The record's attributes.
    pub values: &'r AttributeValues,
    /// Where in `values` the attributes of the index are, then those that it includes; see [`slots_of`].
    pub slots: &'r [Slot],
}

impl<'r> IndexedRecord<'r> {
    /// Where in `values` the attributes are that `spec` sorts by, and those that it includes.
    #[inline]
    pub fn split_slots(&self, spec: &IndexSpec) -> (&'r [Slot], &'r [Slot]) {
        self.slots.split_at_checked(spec.attributes().len()).unwrap_or((self.slots, &[]))
    }
}

/// The slots of the [paths](IndexSpec::paths) of `spec` in `plan`, which has them all: of its attributes,
/// then of those that it includes.
///
/// # Errors
/// `Internal` where the plan lacks one.
pub fn slots_of(spec: &IndexSpec, plan: &AttributePlan) -> Result<Vec<Slot>> {
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

/// Takes the writes of an index into the batch of the record that caused them.
pub trait IndexWrites {
    /// Inside a commit: what follows is written at `sequence`, one of the numbers of the batch. Outside of it
    /// the number is that of the record, and this does nothing.
    fn set_sequence(&mut self, sequence: SequenceNumber);

    /// Puts an entry. With `sequence_at`, eight bytes at that offset of `key` are to become the inverted
    /// sequence number of the record's write, most significant byte first.
    ///
    /// # Errors
    /// `LimitExceeded` where a key, a value or the batch is over its limit.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()>;

    /// Adds an operand to what is to be merged under `key`, for trees with a merge operator. A key has one
    /// operand a sequence number: a second one takes its place.
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

/// What a batch does to one record, seen from inside its commit: the last of its writes of that key.
#[derive(Debug, Clone, Copy)]
pub struct StagedChange<'r> {
    /// The sequence number of the write, of a delete as well.
    pub sequence: SequenceNumber,
    /// The record that the batch replaces or deletes; `None` if there was none, or if no index of the
    /// collection [needs old records](SecondaryIndex::needs_old_records).
    pub old: Option<IndexedRecord<'r>>,
    /// The record that it puts; `None` for a delete.
    pub new: Option<IndexedRecord<'r>>,
}

/// What a batch does to the records of one collection, seen from inside its commit.
#[derive(Debug, Clone, Copy)]
pub struct StagedBatch<'b> {
    /// The tree of the records.
    pub table: TreeId,
    /// The last change of each primary key, by sequence number ascending, all with a number.
    pub changes: &'b [StagedChange<'b>],
    /// The ranges that it deletes.
    pub deleted: &'b [DeletedRange],
}

/// An entry of a version that no view sees any more, as [`SecondaryIndex::name_entries`] names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaleEntry {
    /// The key of the entry, or the secondary key of the list.
    pub key: Box<[u8]>,
    /// The sequence number of the version.
    pub sequence: SequenceNumber,
}

/// Stale entries that a commit takes out of one index.
#[derive(Debug, Clone, Copy)]
pub struct Retraction<'b> {
    /// The tree of the records.
    pub table: TreeId,
    /// The number that everything is written at.
    pub sequence: SequenceNumber,
    /// The entries, ascending, each once.
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
    /// The first key behind.
    pub end: Vec<u8>,
    /// The sequence number of the deletion.
    pub sequence: SequenceNumber,
}

impl StagedBatch<'_> {
    /// Whether a range that the batch deletes covers what was written to `primary_key` at `sequence`.
    pub fn deletes(&self, primary_key: &[u8], sequence: SequenceNumber) -> bool {
        self.deleted.iter().any(|range| {
            range.sequence > sequence && *range.start <= *primary_key && *primary_key < *range.end
        })
    }
}

/// A secondary index of a collection: it turns writes into entries, and queries into candidates. It
/// never decides an answer; the [lookup driver](crate::lookup) does.
///
/// A write passes through two steps. [`derive`](Self::derive) runs in the writer's thread before the
/// commit, sees the new record alone, and reads nothing. [`stage`](Self::stage) runs inside the commit, for
/// kinds that need the old record or their own present contents; everything it writes joins the same
/// batch. Both must be pure functions of what they are given: the log carries what they wrote, and
/// recovery never calls them.
pub trait SecondaryIndex<S: ReadSource>: Send + Sync + fmt::Debug {
    /// Its declaration.
    fn spec(&self) -> &IndexSpec;

    /// The trees that hold its entries.
    fn trees(&self) -> &[TreeId];

    /// Writes the entries of a record that is about to be put. With a sequence number in `record` (a
    /// back-fill) the entries carry it; else the commit fills it in. `key` is scratch memory.
    ///
    /// # Errors
    /// `LimitExceeded` for an attribute over its limit; the write is then refused.
    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()>;

    /// Writes what a delete of the record under `primary_key` leaves in the index, for kinds that have to know of it. Like
    /// [`derive`](Self::derive), before the commit and reading nothing.
    ///
    /// # Errors
    /// `LimitExceeded` where a key or the batch is over its limit; the delete is then refused.
    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        let _ = (primary_key, key, out);
        Ok(())
    }

    /// True if [`derive_delete`](Self::derive_delete) has to be called.
    fn knows_deletes(&self) -> bool {
        false
    }

    /// False if [`derive`](Self::derive) only refuses records that are over a limit, and adds nothing: it need not be
    /// called for a record that cannot be ([`AttributeExtractor::accepts`](crate::AttributeExtractor::accepts)).
    fn derives(&self) -> bool {
        true
    }

    /// True if [`stage`](Self::stage) has to be called.
    fn needs_stage(&self) -> bool {
        false
    }

    /// True if the commit has to read the records that it replaces, for [`stage`](Self::stage) to see them.
    fn needs_old_records(&self) -> bool {
        self.needs_stage()
    }

    /// Writes what depends on the state before the commit, which `view` shows. Called once for the batch.
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

    /// Calls `visit` with what names each entry that a version of a record has, together with the sequence number of
    /// that version: the key of the entry, or the secondary key of the list that has a posting of it. For
    /// [`retract`](Self::retract), of indexes with `repair=primary-compaction`; others need not name any. `record` has
    /// its sequence number. Reads nothing. `key` is scratch memory.
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

    /// Takes out entries of versions that no view sees any more, inside a commit whose state before `view` shows.
    /// Entries that are not there (any more) are passed over.
    ///
    /// # Errors
    /// As [`stage`](Self::stage).
    fn retract(&self, batch: &Retraction<'_>, view: &S, out: &mut dyn IndexWrites) -> Result<()> {
        let _ = (batch, view, out);
        Ok(())
    }

    /// How it serves `query`; `None` if it cannot.
    fn access(&self, query: &CompiledQuery<'_>) -> Option<Access> {
        Access::plan(self.spec().attributes(), query)
    }

    /// The candidates within `access`, in `order` where the index can deliver it. Every record that matches
    /// the covered predicates at `view` is among them; others may be too.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below.
    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v S,
    ) -> Result<Box<dyn CandidateCursor + 'v>>;

    /// A short cut for the newest `limit` records under one secondary key, without their contents: exactly those that the
    /// driver would give through [`candidates`](Self::candidates) at `at`, in `out`. False where the index does not do
    /// that, or cannot without asking somebody else; the driver then has to.
    ///
    /// `at` is a number at which somebody is registered to read, or the caller makes sure afterwards that no write was
    /// published since; `oldest_in_use` tells the oldest of all such numbers.
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

    /// About how many candidates lie within `access` at `view`; `None` where the index cannot tell without
    /// reading data. The planner compares plans by it, so a factor of two does no harm.
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

    /// Tells current candidates from obsolete ones where the record is not fetched.
    fn validator(&self) -> &dyn Validator<S::Tree>;

    /// Calls `visit` with the sequence number and the primary key of each write that the entry `key`, `value`
    /// of its tree, written at `sequence`, stems from, to tell stale entries. False if it cannot say.
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

    /// Compares its entries with the table, in both directions, and adds what it finds to `report`.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; what merely disagrees is reported, not an error.
    fn check(&self, view: &S, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()>;
}
