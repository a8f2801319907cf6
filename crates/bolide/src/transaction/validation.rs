//! The validation of a transaction: whether what it read is unchanged at its commit.
//!
//! # Algorithm
//! 1. Before the commit enters the pipeline, the commits in `(snapshot, min(last recorded, last published)]` are validated,
//!    in rounds: until few are left that were published meanwhile.
//! 2. Inside the commit, under the lock of the log, those from there up to the last applied one are.
//! 3. A commit is validated write by write against the keys that were read, and its keys against scanned ranges. Written keys
//!    of a collection with queries are collected, and each is evaluated once for all queries: its record now, then its record
//!    at the snapshot. Deleted ranges are collected too, so that the records of overlapping ones are read once.
//!
//! # Bound
//! Other writers wait for step 2, so its [`Work`] is bounded. A commit that would need more writes nothing and starts again at
//! step 1, where that work is done without a lock, with twice the bound; after [`MAX_ATTEMPTS`] it fails with `Conflict`. Only comparisons with
//! records need the bound: else a write of another commit costs two lookups in memory, less than the write itself.
//!
//! Each of the parts finds all conflicts with its commits: a key that satisfied a predicate neither at the snapshot nor at
//! the end of the commits in which it was written does not change the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::RecordQuery;
use bolide_lsm::{
    Bounds, BudgetedCursor, CommitState, ReadView, RecentCommit, RecentWrite, StepBudget, StoreBatch,
    SyncMode, TransactionView, VisibleCursor,
};
use parking_lot::Mutex;

use super::flaw::TransactionFlaw;
use super::options::Isolation;
use super::own_writes::OwnWrites;
use super::read_set::{CollectionReads, ReadSet};
use super::written::{RangesDeletedByOthers, WrittenByOthers};
use crate::expectation::place_of;
use crate::handle::Handle;
use crate::index_set::IndexSet;
use crate::schema::OpenCollection;
use crate::write_batch::{BatchCheck, BatchPart, WriteBatch};

/// Attempts of a commit whose validation inside the pipeline needs too much work.
const MAX_ATTEMPTS: usize = 8;
/// Rounds of the validation ahead of one attempt.
const MAX_ROUNDS: usize = 8;
/// Maximum number of writes that are left to the validation inside the commit.
const MAX_WRITES_LEFT: u64 = 64;

/// The work of a validation under the lock of the log at the first attempt.
const LOCKED_WORK: u64 = 20_000;
/// The work of a recorded write.
const WRITE_WORK: u64 = 1;
/// The work of reading one record, or of a seek.
const READ_WORK: u64 = 40;
/// The work of evaluating one condition on one record, or of compiling it.
const EVALUATION_WORK: u64 = 1;
/// So many bytes of a record that is evaluated are one unit of work.
const WORK_BYTES: u64 = 64;

/// The work of the validation under the lock of the log.
#[derive(Debug)]
pub(super) struct LockedWork {
    limit: AtomicU64,
    /// Whether the last validation needed more.
    exhausted: AtomicBool,
}

impl Default for LockedWork {
    fn default() -> Self {
        Self { limit: AtomicU64::new(LOCKED_WORK), exhausted: AtomicBool::new(false) }
    }
}

impl LockedWork {
    fn start(&self, is_limited: bool) -> Work {
        let limit = self.limit.load(Ordering::Relaxed);
        if is_limited { Work(StepBudget::new(limit)) } else { Work::unlimited() }
    }

    fn end(&self, work: &Work) {
        self.exhausted.store(work.0.is_exhausted(), Ordering::Relaxed);
    }

    /// Doubles the limit if the last validation needed more, and returns whether it did.
    fn double_if_exhausted(&self) -> bool {
        let is_exhausted = self.exhausted.swap(false, Ordering::Relaxed);
        if is_exhausted {
            self.limit.fetch_add(self.limit.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        is_exhausted
    }
}

/// The work that a validation may still do. One without a lock may do any.
struct Work(StepBudget);

impl Work {
    fn unlimited() -> Self {
        Self(StepBudget::new(u64::MAX))
    }

    /// # Errors
    /// `LimitExceeded` if less than `units` are left; see [`finish`](Self::finish).
    fn spend(&self, units: u64) -> Result<()> {
        self.0.spend(units)
    }

    /// The result of a validation: `Conflict` if it needed more work than it may do.
    fn finish(&self, result: Result<()>) -> Result<()> {
        if !self.0.is_exhausted() {
            return result;
        }
        Err(Error::new(
            ErrorKind::Conflict,
            "other commits arrive faster than they can be compared with the queries and scans of the transaction; run it \
             again, or read less in it",
        ))
    }
}

/// The writes of a transaction to one collection.
#[derive(Debug, Clone)]
pub(super) struct CollectionWrites {
    pub(super) collection: Arc<OpenCollection>,
    pub(super) own: Arc<OwnWrites>,
}

/// The validation of one transaction.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) handle: Arc<Handle>,
    pub(super) snapshot: Arc<TransactionView>,
    pub(super) isolation: Isolation,
    pub(super) reads: ReadSet,
    pub(super) writes: BTreeMap<TreeId, CollectionWrites>,
    /// Commits up to this number are validated.
    pub(super) validated: AtomicU64,
    pub(super) locked: LockedWork,
    /// The writes of an attempt that was refused, and their collections.
    pub(super) again: Mutex<Option<(StoreBatch, Vec<BatchPart>)>>,
    pub(super) flaw: Option<TransactionFlaw>,
}

impl BatchCheck for Validation {
    fn check(&self, state: &CommitState<'_>, _: &StoreBatch) -> Result<()> {
        let published = || self.handle.engine.store.published_sequence();
        let (after, through) = match self.flaw {
            Some(TransactionFlaw::ValidatesPublished) => (self.validated(), published()),
            Some(TransactionFlaw::OnlyCommitGroup) => (published(), state.view.sequence()),
            _ => (self.validated(), state.view.sequence()),
        };
        let work = self.locked.start(self.reads.needs_records());
        let result = self.validate(after, through, state.view, &work);
        self.locked.end(&work);
        work.finish(result)
    }

    fn refused(&self, batch: StoreBatch, parts: Vec<BatchPart>) {
        *self.again.lock() = Some((batch, parts));
    }
}

impl Validation {
    fn validated(&self) -> SequenceNumber {
        self.validated.load(Ordering::Relaxed)
    }

    /// Whether a commit of another writer can conflict.
    fn is_needed(&self) -> bool {
        self.isolation == Isolation::Snapshot || !self.reads.is_empty()
    }

    /// Commits `batch`, validated.
    ///
    /// # Errors
    /// As [`Transaction::commit`](super::Transaction::commit).
    pub(super) fn commit(self, mut batch: WriteBatch, sync: Option<SyncMode>) -> Result<SequenceNumber> {
        let engine = self.handle.engine.clone();
        if !self.is_needed() {
            return engine.write(batch, sync);
        }
        let validation = Arc::new(self);
        let attempts = if validation.reads.needs_records() { MAX_ATTEMPTS } else { 1 };
        for _ in 1..attempts {
            let result = validation.attempt(batch, sync);
            let again = validation.again.lock().take();
            match again.filter(|_| validation.locked.double_if_exhausted()) {
                Some((writes, parts)) => batch = WriteBatch::of_parts(writes, parts),
                None => return result,
            }
        }
        validation.attempt(batch, sync)
    }

    fn attempt(self: &Arc<Self>, mut batch: WriteBatch, sync: Option<SyncMode>) -> Result<SequenceNumber> {
        batch.set_check(self.clone());
        let result = self.validate_ahead().and_then(|()| self.handle.engine.write(batch, sync));
        result.map_err(|error| match (error.kind(), self.reads.dropped()) {
            (ErrorKind::NotFound, Some(collection)) => dropped(collection),
            _ => error,
        })
    }

    /// Validates the commits that are recorded and published, without a lock, until few are left.
    ///
    /// # Errors
    /// `Conflict`; `Corruption` or `Io` from reading.
    fn validate_ahead(&self) -> Result<()> {
        if self.flaw == Some(TransactionFlaw::OnlyCommitGroup) {
            return Ok(());
        }
        let mut enough = 0;
        for _ in 0..MAX_ROUNDS {
            let published = self.handle.engine.store.published_sequence();
            let through = self.snapshot.recent().through().min(published);
            if through.saturating_sub(self.validated()) <= enough {
                return Ok(());
            }
            // Made later, so it sees all of them.
            let now = self.handle.engine.read_view();
            self.validate(self.validated(), through, &now, &Work::unlimited())?;
            self.validated.store(through, Ordering::Relaxed);
            enough = MAX_WRITES_LEFT;
        }
        Ok(())
    }

    /// Validates the commits in `(after, through]`; `now` sees all of them.
    fn validate(
        &self,
        after: SequenceNumber,
        through: SequenceNumber,
        now: &ReadView,
        work: &Work,
    ) -> Result<()> {
        let commits = match self.snapshot.recent().between(after, through) {
            Err(_) if self.flaw == Some(TransactionFlaw::IgnoresRemoved) => return Ok(()),
            commits => commits?,
        };
        let mut written = WrittenByOthers::default();
        for commit in &commits {
            self.validate_commit(commit, &mut written, work)?;
        }
        for (tree, deleted) in &written.deleted {
            if let Some(reads) = self.reads.get(*tree) {
                self.validate_deleted(reads, deleted, work)?;
            }
        }
        if self.flaw == Some(TransactionFlaw::SkipsPredicates) {
            return Ok(());
        }
        for (tree, keys) in written.keys {
            if let Some(reads) = self.reads.get(tree) {
                self.validate_queries(reads, &keys, now, work)?;
            }
        }
        Ok(())
    }

    fn validate_commit<'c>(
        &self,
        commit: &'c RecentCommit,
        written: &mut WrittenByOthers<'c>,
        work: &Work,
    ) -> Result<()> {
        if self.flaw == Some(TransactionFlaw::SkipsSingleWrites) && commit.writes().count() == 1 {
            return Ok(());
        }
        for write in commit.writes() {
            work.spend(WRITE_WORK)?;
            match write {
                RecentWrite::Key { tree, key } => self.validate_key(tree, key, commit.last(), written)?,
                RecentWrite::Range { tree, start, end } => {
                    self.validate_range((tree, start, end), commit.last(), written)?;
                }
                RecentWrite::Tree { tree } => self.validate_drop(tree)?,
            }
        }
        Ok(())
    }

    /// Validates the write of one key.
    fn validate_key<'c>(
        &self,
        tree: TreeId,
        key: &'c [u8],
        sequence: SequenceNumber,
        written: &mut WrittenByOthers<'c>,
    ) -> Result<()> {
        if let Some(reads) = self.reads.get(tree) {
            let was_read = self.flaw != Some(TransactionFlaw::SkipsKeys) && reads.has_key(key);
            let was_scanned = self.flaw != Some(TransactionFlaw::SkipsRanges) && reads.ranges.contains(key);
            if was_read || was_scanned {
                return Err(conflict(&reads.collection, key, sequence));
            }
            if !reads.conditions.is_empty() {
                written.keys.entry(tree).or_default().insert(key);
            }
        }
        match self.first_committer_wins(tree) {
            Some(writes) if writes.own.masks(key) => Err(conflict(&writes.collection, key, sequence)),
            _ => Ok(()),
        }
    }

    /// Validates the delete of the keys of a tree in `start..end` against single keys.
    fn validate_range<'c>(
        &self,
        (tree, start, end): (TreeId, &'c [u8], &'c [u8]),
        sequence: SequenceNumber,
        written: &mut WrittenByOthers<'c>,
    ) -> Result<()> {
        if let Some(reads) = self.reads.get(tree) {
            if self.flaw != Some(TransactionFlaw::SkipsKeys)
                && let Some(key) = reads.first_present(start, end)
            {
                return Err(conflict(&reads.collection, key, sequence));
            }
            if reads.needs_records() {
                written.deleted.entry(tree).or_default().insert(start, end, sequence);
            }
        }
        let Some(writes) = self.first_committer_wins(tree) else { return Ok(()) };
        let own = writes.own.written(start, end).next().map(|(key, _)| key);
        let common = || writes.own.deleted().common(start, end).next().map(|(start, _)| start);
        match own.or_else(common) {
            Some(key) => Err(conflict(&writes.collection, key, sequence)),
            None => Ok(()),
        }
    }

    /// Validates deleted ranges against scanned ranges and queries: whether records of the snapshot were deleted that one of
    /// these returned.
    fn validate_deleted(
        &self,
        reads: &CollectionReads,
        deleted: &RangesDeletedByOthers<'_>,
        work: &Work,
    ) -> Result<()> {
        let tree = reads.collection.tree;
        for (start, end) in deleted.ranges() {
            if self.flaw != Some(TransactionFlaw::SkipsRanges) {
                for (start, end) in reads.ranges.common(start, end) {
                    work.spend(READ_WORK)?;
                    if let Some(key) = self.first_at_snapshot(tree, start, end, work)? {
                        return Err(conflict(&reads.collection, &key, deleted.commit_of(&key)));
                    }
                }
            }
            if self.flaw != Some(TransactionFlaw::SkipsPredicates) {
                self.validate_queries_in_range(reads, (start, end), deleted, work)?;
            }
        }
        Ok(())
    }

    /// Validates the drop of a collection. One that is only written is not found.
    fn validate_drop(&self, tree: TreeId) -> Result<()> {
        if let Some(read) = self.reads.get(tree).filter(|reads| !reads.is_empty()) {
            return Err(dropped(&read.collection));
        }
        self.writes.get(&tree).map_or(Ok(()), |writes| Err(writes.collection.gone()))
    }

    /// The own writes that a concurrent write must not meet.
    fn first_committer_wins(&self, tree: TreeId) -> Option<&CollectionWrites> {
        self.writes.get(&tree).filter(|_| self.isolation == Isolation::Snapshot)
    }

    /// The first key in `start..end` with a record at the snapshot.
    fn first_at_snapshot(
        &self,
        tree: TreeId,
        start: &[u8],
        end: &[u8],
        work: &Work,
    ) -> Result<Option<Vec<u8>>> {
        let mut records = self.snapshot_cursor(tree, (start, end), work)?;
        records.seek_to_first()?;
        Ok(records.valid().then(|| records.key().to_vec()))
    }

    /// A cursor over the records of the snapshot in `start..end`, whose steps are part of `work`.
    fn snapshot_cursor(
        &self,
        tree: TreeId,
        (start, end): (&[u8], &[u8]),
        work: &Work,
    ) -> Result<VisibleCursor<BudgetedCursor>> {
        let bounds = Bounds::of((Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec())));
        self.snapshot.view().tree(tree)?.cursor_within(bounds, &work.0)
    }

    /// Validates the queries of a collection against the written `keys`.
    fn validate_queries(
        &self,
        reads: &CollectionReads,
        keys: &BTreeSet<&[u8]>,
        now: &ReadView,
        work: &Work,
    ) -> Result<()> {
        let set = reads.collection.indexes();
        let mut queries = reads.compiled_queries(&set, work)?;
        for key in keys {
            // The old record is read only if the new one decides nothing.
            for view in [now, self.snapshot.view()] {
                work.spend(READ_WORK)?;
                let Some((sequence, record)) = view.get(reads.collection.tree, key)? else { continue };
                if reads.satisfies(&mut queries, &record, work)? {
                    let by = format!("its record of write {sequence} satisfies a query of the transaction");
                    return Err(conflict_by(&reads.collection, key, &by));
                }
            }
        }
        Ok(())
    }

    /// Validates the queries of a collection against the records of the snapshot in a deleted range.
    fn validate_queries_in_range(
        &self,
        reads: &CollectionReads,
        (start, end): (&[u8], &[u8]),
        deleted: &RangesDeletedByOthers<'_>,
        work: &Work,
    ) -> Result<()> {
        if reads.conditions.is_empty() {
            return Ok(());
        }
        let set = reads.collection.indexes();
        let mut queries = reads.compiled_queries(&set, work)?;
        work.spend(READ_WORK)?;
        let mut records = self.snapshot_cursor(reads.collection.tree, (start, end), work)?;
        records.seek_to_first()?;
        while records.valid() {
            if reads.satisfies(&mut queries, records.value(), work)? {
                return Err(conflict(&reads.collection, records.key(), deleted.commit_of(records.key())));
            }
            records.next()?;
        }
        Ok(())
    }
}

impl CollectionReads {
    /// The queries as one; there are some.
    fn compiled_queries<'s>(&'s self, set: &'s IndexSet, work: &Work) -> Result<RecordQuery<'s>> {
        work.spend(EVALUATION_WORK * self.conditions.size() as u64)?;
        self.conditions.compile(set.extractor().ok())
    }

    fn satisfies(&self, queries: &mut RecordQuery<'_>, record: &[u8], work: &Work) -> Result<bool> {
        work.spend(EVALUATION_WORK * self.conditions.size() as u64 + record.len() as u64 / WORK_BYTES)?;
        queries.evaluate(record)
    }
}

fn conflict(collection: &OpenCollection, key: &[u8], sequence: SequenceNumber) -> Error {
    conflict_by(collection, key, &format!("commit {sequence} of another writer changed it"))
}

fn conflict_by(collection: &OpenCollection, key: &[u8], by: &str) -> Error {
    let place = place_of(collection, key);
    Error::new(ErrorKind::Conflict, format!("{place}: {by} since its snapshot; run the transaction again"))
}

fn dropped(collection: &OpenCollection) -> Error {
    let what =
        format!("the collection {:?} was dropped since the snapshot of the transaction", collection.name);
    Error::new(ErrorKind::Conflict, what)
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
