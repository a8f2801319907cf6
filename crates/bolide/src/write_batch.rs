//! Atomic batches of writes to one or several collections.

use std::ops::Bound;
use std::sync::Arc;

use bolide_base::limits::{MAX_BATCH_BYTES, MAX_KEY_BYTES};
use bolide_base::{EntryKind, Error, Result, TreeId};
use bolide_lsm::{BatchMark, CommitState, Operation, StoreBatch};

use crate::check::of_record;
use crate::expectation::{self, Expectation, Expected};
use crate::handle::Collection;
use crate::index_set::IndexSet;
use crate::key_range::KeyRange;
use crate::schema::OpenCollection;

/// Writes to one or several collections, committed together by [`Db::write`](crate::Db::write): after a crash, and for
/// a reader, all of them are visible or none.
///
/// The writes apply in order, each with its own sequence number, so a later one to the same key overrides an earlier
/// one. A batch including all its index entries may take up to [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES).
///
/// ```
/// use bolide::{Components, Db, Options, WriteBatch};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let accounts = db.create_collection("accounts", Default::default())?;
/// let transfers = db.create_collection("transfers", Default::default())?;
/// let mut batch = WriteBatch::new();
/// batch.put(&accounts, b"ann", br#"{"balance":90}"#)?;
/// batch.put(&accounts, b"bob", br#"{"balance":110}"#)?;
/// batch.put(&transfers, b"1", br#"{"from":"ann","to":"bob","amount":10}"#)?;
/// db.write(batch)?;
/// assert!(transfers.get(b"1")?.is_some());
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    pub(crate) store: StoreBatch,
    /// The collections of its writes, each once, with the indexes that its entries were derived for.
    pub(crate) parts: Vec<BatchPart>,
    /// Number of writes of the user; index entries are not counted.
    writes: usize,
    /// In the order of the calls.
    expectations: Vec<Expectation>,
    /// Memory of the expectations.
    expectation_bytes: usize,
    /// A check inside the commit.
    check: Option<Arc<dyn BatchCheck>>,
}

/// A write of the user in a batch, with its collection.
pub(crate) enum OwnOperation<'b> {
    /// Key and record.
    Put(&'b Arc<OpenCollection>, &'b [u8], &'b [u8]),
    /// The key.
    Delete(&'b Arc<OpenCollection>, &'b [u8]),
    /// The first key, and the first key behind the range.
    DeleteRange(&'b Arc<OpenCollection>, &'b [u8], &'b [u8]),
}

impl<'b> OwnOperation<'b> {
    pub(crate) fn collection(&self) -> &'b Arc<OpenCollection> {
        match self {
            Self::Put(collection, ..) | Self::Delete(collection, _) | Self::DeleteRange(collection, ..) => {
                collection
            }
        }
    }
}

/// A check of a batch inside its commit.
pub(crate) trait BatchCheck: std::fmt::Debug + Send + Sync {
    /// Checks `batch` against the state at its commit.
    ///
    /// # Errors
    /// An error fails the batch: nothing of it is written.
    fn check(&self, state: &CommitState<'_>, batch: &StoreBatch) -> Result<()>;

    /// Receives the writes that were refused, with their collections. Other writers wait for it.
    fn refused(&self, batch: StoreBatch, parts: Vec<BatchPart>) {
        drop((batch, parts));
    }
}

/// The checks of a batch inside its commit, without the batch.
#[derive(Debug)]
pub(crate) struct BatchChecks {
    expectations: Vec<Expectation>,
    check: Option<Arc<dyn BatchCheck>>,
}

impl BatchChecks {
    pub(crate) fn is_empty(&self) -> bool {
        self.expectations.is_empty() && self.check.is_none()
    }

    /// Removes the expectations: a planted mistake.
    pub(crate) fn skip_expectations(&mut self) {
        self.expectations.clear();
    }

    /// Checks `batch`, which writes to the collections of `parts`.
    ///
    /// # Errors
    /// `Conflict`; `Corruption` or `Io` from reading.
    pub(crate) fn run(&self, state: &CommitState<'_>, batch: &StoreBatch, parts: &[BatchPart]) -> Result<()> {
        if !self.expectations.is_empty() {
            let collection_of = |tree| {
                let part = parts.iter().find(|part| part.collection.tree == tree);
                part.map(|part| &*part.collection)
            };
            expectation::check(&self.expectations, collection_of, state, batch)?;
        }
        self.check.as_ref().map_or(Ok(()), |check| check.check(state, batch))
    }

    /// Passes on writes that were refused.
    pub(crate) fn refused(&self, batch: StoreBatch, parts: Vec<BatchPart>) {
        if let Some(check) = &self.check {
            check.refused(batch, parts);
        }
    }
}

/// A position among the writes of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPosition {
    mark: BatchMark,
    writes: usize,
    parts: usize,
}

/// A collection that a batch writes to.
#[derive(Debug, Clone)]
pub(crate) struct BatchPart {
    pub(crate) collection: Arc<OpenCollection>,
    pub(crate) indexes: Arc<IndexSet>,
}

impl WriteBatch {
    /// An empty batch.
    ///
    /// ```
    /// assert!(bolide::WriteBatch::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `record` under `key`.
    ///
    /// # Errors
    /// `LimitExceeded` for a key, a record or a batch over its limit; `InvalidInput` for a record that
    /// is not a valid JSON object in a collection of JSON (see [`Collection::put`]), or that the extractor
    /// refuses. The batch is then as it was before.
    pub fn put(&mut self, collection: &Collection, key: &[u8], record: &[u8]) -> Result<()> {
        self.put_in(&collection.state, key, record, true)
    }

    /// Deletes the record under `key`, if there is one.
    ///
    /// # Errors
    /// `LimitExceeded` for a key or a batch over its limit.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, WriteBatch};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"old", b"{}")?;
    /// let mut batch = WriteBatch::new();
    /// batch.delete(&notes, b"old")?;
    /// batch.put(&notes, b"new", b"{}")?;
    /// db.write(batch)?;
    /// assert_eq!(notes.get(b"old")?, None);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn delete(&mut self, collection: &Collection, key: &[u8]) -> Result<()> {
        self.delete_in(&collection.state, key)
    }

    /// Deletes all records whose keys lie in `range`, in constant time and space. An empty range
    /// deletes nothing.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    ///
    /// ```
    /// use bolide::{Components, Db, Options, WriteBatch};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// for key in [b"a", b"b", b"c"] {
    ///     notes.put(key, b"{}")?;
    /// }
    /// let mut batch = WriteBatch::new();
    /// batch.delete_range(&notes, "a".."c")?;
    /// db.write(batch)?;
    /// assert_eq!(notes.iter()?.count(), 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn delete_range(&mut self, collection: &Collection, range: impl KeyRange) -> Result<()> {
        let Some((start, end)) = half_open(range)? else { return Ok(()) };
        self.delete_range_in(&collection.state, &start, &end)
    }

    /// Makes the commit depend on the state of the record under `key`: if it is not as expected, nothing of the batch is
    /// written, and the commit fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    ///
    /// The check is part of the commit: no write of another thread comes between the check and the writes. It includes the
    /// effects of the earlier writes of this batch, and of all commits before it. It costs the lookup of one key, while
    /// other writers wait. A batch without writes is only checked.
    ///
    /// # Errors
    /// `LimitExceeded` for a key over its limit, and if the expectations of the batch take more than
    /// [`MAX_BATCH_BYTES`](crate::limits::MAX_BATCH_BYTES).
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Expected, Options, WriteBatch};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let users = db.create_collection("users", Default::default())?;
    /// let insert = |record: &[u8]| {
    ///     let mut batch = WriteBatch::new();
    ///     batch.expect(&users, b"ann", Expected::Absent)?;
    ///     batch.put(&users, b"ann", record)?;
    ///     db.write(batch)
    /// };
    /// let first = insert(br#"{"visits":1}"#)?;
    /// assert_eq!(insert(br#"{"visits":7}"#).unwrap_err().kind(), ErrorKind::Conflict);
    /// // Replaces exactly the record that was read.
    /// let mut batch = WriteBatch::new();
    /// batch.expect(&users, b"ann", Expected::Sequence(first))?;
    /// batch.put(&users, b"ann", br#"{"visits":2}"#)?;
    /// db.write(batch)?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn expect(&mut self, collection: &Collection, key: &[u8], expected: Expected) -> Result<()> {
        check_key(key)?;
        let tree = collection.state.tree;
        let expectation = Expectation { tree, key: key.to_vec(), expected, writes_before: self.writes };
        let bytes = self.expectation_bytes + expectation.memory_bytes();
        if bytes > MAX_BATCH_BYTES {
            let subject = "the expectations of a write batch in bytes";
            return Err(Error::limit_exceeded(subject, bytes as u64, MAX_BATCH_BYTES as u64));
        }
        self.part(&collection.state);
        self.expectation_bytes = bytes;
        self.expectations.push(expectation);
        Ok(())
    }

    /// The number of writes. Expectations are not counted.
    ///
    /// ```
    /// assert_eq!(bolide::WriteBatch::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.writes
    }

    /// Whether it has no writes.
    ///
    /// ```
    /// assert!(bolide::WriteBatch::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.writes == 0
    }

    /// Its size in the log, including all its index entries, in bytes. Loads use it to limit their batches.
    ///
    /// ```
    /// assert!(bolide::WriteBatch::new().len_bytes() < 100);
    /// ```
    pub fn len_bytes(&self) -> usize {
        self.store.len_bytes()
    }

    /// Removes all writes and expectations and retains the memory.
    ///
    /// ```
    /// let mut batch = bolide::WriteBatch::new();
    /// batch.clear();
    /// ```
    pub fn clear(&mut self) {
        self.store.clear();
        self.parts.clear();
        self.expectations.clear();
        self.expectation_bytes = 0;
        self.check = None;
        self.writes = 0;
    }

    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { store: StoreBatch::with_capacity(bytes + 64), ..Self::default() }
    }

    /// Deletes the keys of `collection` from `start` to `end`, exclusive.
    pub(crate) fn delete_half_open(
        &mut self,
        collection: &Collection,
        start: &[u8],
        end: &[u8],
    ) -> Result<()> {
        self.delete_range_in(&collection.state, start, end)
    }

    /// The present end of the batch, for [`truncate`](Self::truncate).
    pub(crate) fn position(&self) -> BatchPosition {
        BatchPosition { mark: self.store.mark(), writes: self.writes, parts: self.parts.len() }
    }

    /// Removes the writes after a [`position`](Self::position) of this batch, which has had no expectations since, and the
    /// collections to which only they wrote.
    pub(crate) fn truncate(&mut self, position: BatchPosition) {
        self.store.truncate(position.mark);
        self.writes = position.writes;
        self.parts.truncate(position.parts);
    }

    /// The writes of the user in their order.
    pub(crate) fn own_operations(&self) -> impl Iterator<Item = OwnOperation<'_>> {
        self.store.operations().filter(|placed| !placed.derived).filter_map(|placed| {
            let collection = self.collection_of(placed.tree).ok()?;
            Some(match placed.operation {
                Operation::Entry { kind: EntryKind::Put, key, value } => {
                    OwnOperation::Put(collection, key, value)
                }
                Operation::Entry { key, .. } => OwnOperation::Delete(collection, key),
                Operation::RangeDelete { start, end } => OwnOperation::DeleteRange(collection, start, end),
            })
        })
    }

    /// The batch with these writes to the collections of `parts`, without checks.
    pub(crate) fn of_parts(store: StoreBatch, parts: Vec<BatchPart>) -> Self {
        let writes = store.operations().filter(|placed| !placed.derived).count();
        Self { store, parts, writes, ..Self::default() }
    }

    /// Adds a check inside the commit, in place of an earlier one.
    pub(crate) fn set_check(&mut self, check: Arc<dyn BatchCheck>) {
        self.check = Some(check);
    }

    /// True if the commit checks the batch.
    pub(crate) fn is_checked(&self) -> bool {
        !self.expectations.is_empty() || self.check.is_some()
    }

    /// Removes the checks, for the commit.
    pub(crate) fn take_checks(&mut self) -> BatchChecks {
        BatchChecks { expectations: std::mem::take(&mut self.expectations), check: self.check.take() }
    }

    fn put_in(
        &mut self,
        collection: &Arc<OpenCollection>,
        key: &[u8],
        record: &[u8],
        derives: bool,
    ) -> Result<()> {
        check_key(key)?;
        self.add(collection, |batch, position| {
            batch.store.put(collection.tree, key, record)?;
            if derives && let Some(part) = batch.parts.get(position) {
                let derived = part.indexes.derive(key, record, &mut batch.store);
                derived.map_err(|error| of_record(error, collection, key))?;
            }
            match batch.key_tree(position) {
                Some(tree) => batch.store.put_derived(tree, key, &[], None),
                None => Ok(()),
            }
        })
    }

    fn delete_in(&mut self, collection: &Arc<OpenCollection>, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.add(collection, |batch, position| {
            batch.store.delete(collection.tree, key)?;
            if let Some(part) = batch.parts.get(position) {
                part.indexes.derive_delete(key, &mut batch.store)?;
            }
            match batch.key_tree(position) {
                Some(tree) => batch.store.delete_derived(tree, key),
                None => Ok(()),
            }
        })
    }

    fn delete_range_in(&mut self, collection: &Arc<OpenCollection>, start: &[u8], end: &[u8]) -> Result<()> {
        self.add(collection, |batch, position| {
            batch.store.delete_range(collection.tree, start, end)?;
            match batch.key_tree(position) {
                Some(tree) => batch.store.delete_range_derived(tree, start, end),
                None => Ok(()),
            }
        })
    }

    /// Adds one write to `collection`, whose position among the parts is passed to `write`. A write that fails has no effect.
    #[inline]
    fn add(
        &mut self,
        collection: &Arc<OpenCollection>,
        write: impl FnOnce(&mut Self, usize) -> Result<()>,
    ) -> Result<()> {
        let before = self.position();
        let part = self.part(collection);
        match write(self, part) {
            Ok(()) => {
                self.writes += 1;
                Ok(())
            }
            Err(error) => {
                self.truncate(before);
                Err(error)
            }
        }
    }

    /// The key index that the entries of this part are derived for, which has an entry for every write.
    #[inline]
    fn key_tree(&self, position: usize) -> Option<TreeId> {
        self.parts.get(position)?.indexes.key_tree()
    }

    /// The position of the collection among the parts; adds a new one.
    fn part(&mut self, collection: &Arc<OpenCollection>) -> usize {
        let known = self.parts.iter().rposition(|part| Arc::ptr_eq(&part.collection, collection));
        known.unwrap_or_else(|| {
            self.parts.push(BatchPart { collection: collection.clone(), indexes: collection.indexes() });
            self.parts.len() - 1
        })
    }

    /// The same writes with entries of the current indexes of the collections. Entries are derived only from puts at
    /// the positions for which `derives` returns true.
    pub(crate) fn rederived(&self, derives: impl Fn(usize) -> bool) -> Result<Self> {
        let mut rederived = Self {
            store: StoreBatch::with_capacity(self.len_bytes()),
            expectations: self.expectations.clone(),
            expectation_bytes: self.expectation_bytes,
            check: self.check.clone(),
            ..Self::default()
        };
        for part in &self.parts {
            // A collection with expectations alone is a part too.
            rederived.part(&part.collection);
        }
        let writes = self.store.operations().filter(|placed| !placed.derived);
        for (position, placed) in writes.enumerate() {
            let collection = self.collection_of(placed.tree)?;
            match placed.operation {
                Operation::Entry { kind: EntryKind::Put, key, value } => {
                    rederived.put_in(collection, key, value, derives(position))?;
                }
                Operation::Entry { kind: EntryKind::Delete, key, .. } => {
                    rederived.delete_in(collection, key)?
                }
                Operation::RangeDelete { start, end } => rederived.delete_range_in(collection, start, end)?,
                Operation::Entry { kind: EntryKind::Merge, .. } => {
                    return Err(Error::internal("a write batch contains a merge"));
                }
            }
        }
        Ok(rederived)
    }

    fn collection_of(&self, tree: TreeId) -> Result<&Arc<OpenCollection>> {
        let part = self.parts.iter().find(|part| part.collection.tree == tree);
        let part = part.ok_or_else(|| Error::internal("a write batch lacks one of its collections"))?;
        Ok(&part.collection)
    }
}

/// Checks the length of a primary key.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES {
        return Err(Error::limit_exceeded(
            "the length in bytes of a primary key",
            key.len() as u64,
            MAX_KEY_BYTES as u64,
        ));
    }
    Ok(())
}

/// A range as its first key and the first key after it; `None` if it is empty.
pub(crate) fn half_open(range: impl KeyRange) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let behind = |mut key: Vec<u8>| {
        key.push(0);
        key
    };
    let (lower, upper) = range.into_bounds();
    for key in [&lower, &upper] {
        if let Bound::Included(key) | Bound::Excluded(key) = key {
            check_key(key)?;
        }
    }
    let start = match lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key,
        Bound::Excluded(key) => behind(key),
    };
    let end = match upper {
        // After every primary key: longer than the longest, and nothing sorts above its bytes.
        Bound::Unbounded => vec![0xff; MAX_KEY_BYTES + 1],
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => key,
    };
    Ok((start < end).then_some((start, end)))
}
