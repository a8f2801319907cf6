//! The validation of a transaction: whether what it read is unchanged at its commit.
//!
//! # Algorithm
//! 1. Before the commit enters the pipeline, the commits in `(snapshot, min(last recorded, last published)]` are validated.
//! 2. Inside the commit, under the lock of the log, those from there up to the last applied one are.
//! 3. A commit is validated write by write against the keys and ranges that were read. Written keys of a collection with
//!    queries are collected, and each is evaluated once: its record now, then its record at the snapshot.
//!
//! Each of the parts finds all conflicts with its commits: a key that satisfied a predicate neither at the snapshot nor at
//! the end of the commits in which it was written does not change the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::RecordQuery;
use bolide_lsm::{Bounds, CommitState, ReadView, RecentCommit, RecentWrite, StoreBatch, TransactionView};

use super::flaw::TransactionFlaw;
use super::options::Isolation;
use super::own_writes::OwnWrites;
use super::read_set::{CollectionReads, ReadSet};
use crate::expectation::place_of;
use crate::handle::Handle;
use crate::schema::OpenCollection;
use crate::write_batch::BatchCheck;

/// The records of a deleted range that are compared with predicates; a longer range conflicts.
const MAX_COMPARED_RECORDS: usize = 1_000;

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
    pub(super) flaw: Option<TransactionFlaw>,
}

/// Keys that were written in collections with queries.
type ChangedKeys<'c> = BTreeMap<TreeId, BTreeSet<&'c [u8]>>;

impl BatchCheck for Validation {
    fn check(&self, state: &CommitState<'_>, _: &StoreBatch) -> Result<()> {
        let published = || self.handle.engine.store.published_sequence();
        let (after, through) = match self.flaw {
            Some(TransactionFlaw::ValidatesPublished) => (self.validated(), published()),
            Some(TransactionFlaw::OnlyCommitGroup) => (published(), state.view.sequence()),
            _ => (self.validated(), state.view.sequence()),
        };
        self.validate(after, through, state.view)
    }
}

impl Validation {
    fn validated(&self) -> SequenceNumber {
        self.validated.load(Ordering::Relaxed)
    }

    /// Validates the commits that are recorded and published, without a lock.
    ///
    /// # Errors
    /// `Conflict`; `Corruption` or `Io` from reading.
    pub(super) fn validate_ahead(&self) -> Result<()> {
        let now = self.handle.engine.read_view();
        let through = self.snapshot.recent().through().min(now.sequence());
        if self.flaw != Some(TransactionFlaw::OnlyCommitGroup) && through > self.validated() {
            self.validate(self.validated(), through, &now)?;
            self.validated.store(through, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Validates the commits in `(after, through]`; `now` sees all of them.
    fn validate(&self, after: SequenceNumber, through: SequenceNumber, now: &ReadView) -> Result<()> {
        let commits = match self.snapshot.recent().between(after, through) {
            Err(_) if self.flaw == Some(TransactionFlaw::IgnoresRemoved) => return Ok(()),
            commits => commits?,
        };
        let mut changed = ChangedKeys::new();
        for commit in &commits {
            self.validate_commit(commit, &mut changed)?;
        }
        if self.flaw == Some(TransactionFlaw::SkipsPredicates) {
            return Ok(());
        }
        for (tree, keys) in changed {
            if let Some(reads) = self.reads.get(tree) {
                self.validate_queries(reads, &keys, now)?;
            }
        }
        Ok(())
    }

    fn validate_commit<'c>(&self, commit: &'c RecentCommit, changed: &mut ChangedKeys<'c>) -> Result<()> {
        if self.flaw == Some(TransactionFlaw::SkipsSingleWrites) && commit.writes().count() == 1 {
            return Ok(());
        }
        for write in commit.writes() {
            match write {
                RecentWrite::Key { tree, key } => self.validate_key(tree, key, commit.last(), changed)?,
                RecentWrite::Range { tree, start, end } => {
                    self.validate_range(tree, start, end, commit.last())?;
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
        changed: &mut ChangedKeys<'c>,
    ) -> Result<()> {
        if let Some(reads) = self.reads.get(tree) {
            let was_read = self.flaw != Some(TransactionFlaw::SkipsKeys) && reads.keys.contains_key(key);
            let was_scanned = self.flaw != Some(TransactionFlaw::SkipsRanges) && reads.ranges.contains(key);
            if was_read || was_scanned {
                return Err(conflict(&reads.collection, key, sequence));
            }
            if !reads.queries.is_empty() {
                changed.entry(tree).or_default().insert(key);
            }
        }
        match self.first_committer_wins(tree) {
            Some(writes) if writes.own.masks(key) => Err(conflict(&writes.collection, key, sequence)),
            _ => Ok(()),
        }
    }

    /// Validates the delete of the keys in `start..end`.
    fn validate_range(&self, tree: TreeId, start: &[u8], end: &[u8], sequence: SequenceNumber) -> Result<()> {
        if let Some(reads) = self.reads.get(tree) {
            if self.flaw != Some(TransactionFlaw::SkipsKeys)
                && let Some((key, _)) = reads.keys_within(start, end).find(|(_, had_record)| *had_record)
            {
                return Err(conflict(&reads.collection, key, sequence));
            }
            if self.flaw != Some(TransactionFlaw::SkipsRanges) {
                for (start, end) in reads.ranges.common(start, end) {
                    if let Some(key) = self.first_at_snapshot(tree, start, end)? {
                        return Err(conflict(&reads.collection, &key, sequence));
                    }
                }
            }
            if self.flaw != Some(TransactionFlaw::SkipsPredicates) {
                self.validate_queries_in_range(reads, start, end, sequence)?;
            }
        }
        let Some(writes) = self.first_committer_wins(tree) else { return Ok(()) };
        let written = writes.own.written(start, end).next().map(|(key, _)| key);
        let common = || writes.own.deleted().common(start, end).next().map(|(start, _)| start);
        match written.or_else(common) {
            Some(key) => Err(conflict(&writes.collection, key, sequence)),
            None => Ok(()),
        }
    }

    fn validate_drop(&self, tree: TreeId) -> Result<()> {
        let read = self.reads.get(tree).map(|reads| &reads.collection);
        match read.or_else(|| self.writes.get(&tree).map(|writes| &writes.collection)) {
            Some(collection) => Err(dropped(collection)),
            None => Ok(()),
        }
    }

    /// The own writes that a concurrent write must not meet.
    fn first_committer_wins(&self, tree: TreeId) -> Option<&CollectionWrites> {
        self.writes.get(&tree).filter(|_| self.isolation == Isolation::Snapshot)
    }

    /// The first key in `start..end` with a record at the snapshot.
    fn first_at_snapshot(&self, tree: TreeId, start: &[u8], end: &[u8]) -> Result<Option<Vec<u8>>> {
        let bounds = Bounds::of((Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec())));
        let mut records = self.snapshot.view().cursor(tree, bounds)?;
        records.seek_to_first()?;
        Ok(records.valid().then(|| records.key().to_vec()))
    }

    /// Validates the queries of a collection against the written `keys`.
    fn validate_queries(
        &self,
        reads: &CollectionReads,
        keys: &BTreeSet<&[u8]>,
        now: &ReadView,
    ) -> Result<()> {
        let set = reads.collection.indexes();
        let extractor = set.extractor().ok();
        let queries = reads.queries.iter().map(|query| RecordQuery::new(query, extractor));
        let mut queries: Vec<RecordQuery<'_>> = queries.collect::<Result<_>>()?;
        let tree = reads.collection.tree;
        let gone = |error: Error| match error.kind() {
            ErrorKind::NotFound => dropped(&reads.collection),
            _ => error,
        };
        for key in keys {
            // The old record is read only if the new one decides nothing.
            for view in [now, self.snapshot.view()] {
                let Some((sequence, record)) = view.get(tree, key).map_err(gone)? else { continue };
                for query in &mut queries {
                    if query.evaluate(&record)? {
                        let by =
                            format!("its record of write {sequence} satisfies a query of the transaction");
                        return Err(conflict_by(&reads.collection, key, &by));
                    }
                }
            }
        }
        Ok(())
    }

    /// Validates the queries of a collection against the records of the snapshot in a deleted range.
    fn validate_queries_in_range(
        &self,
        reads: &CollectionReads,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        if reads.queries.is_empty() {
            return Ok(());
        }
        let set = reads.collection.indexes();
        let extractor = set.extractor().ok();
        let queries = reads.queries.iter().map(|query| RecordQuery::new(query, extractor));
        let mut queries: Vec<RecordQuery<'_>> = queries.collect::<Result<_>>()?;
        let bounds = Bounds::of((Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec())));
        let mut records = self.snapshot.view().cursor(reads.collection.tree, bounds)?;
        records.seek_to_first()?;
        let mut compared = 0;
        while records.valid() {
            compared += 1;
            let mut satisfies = compared > MAX_COMPARED_RECORDS;
            for query in &mut queries {
                satisfies |= query.evaluate(records.value())?;
            }
            if satisfies {
                return Err(conflict(&reads.collection, records.key(), sequence));
            }
            records.next()?;
        }
        Ok(())
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
