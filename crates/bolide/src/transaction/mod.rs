//! Optimistic transactions: reads at one snapshot, writes in memory, one check at the commit.
//!
//! | file | concept |
//! |---|---|
//! | [`options`], [`retries`] | settings; transactions that run again after a conflict |
//! | [`own_writes`], [`key_ranges`] | the writes of a transaction, as it reads them |
//! | [`answers`], [`merge`], [`prepared`], [`cursor`] | the snapshot merged with own writes: queries, iteration |
//! | [`read_set`], [`validation`] | what was read, and the check at the commit |
//! | [`flaw`] | planted mistakes |

mod answers;
mod cursor;
mod flaw;
mod key_ranges;
mod merge;
mod options;
mod own_writes;
mod prepared;
mod read_set;
mod retries;
mod validation;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber, TreeId};
use bolide_index::Query;
use bolide_lsm::{SyncMode, TransactionView};
use parking_lot::Mutex;

pub use self::answers::{TransactionAnswerIter, TransactionAnswers};
pub use self::cursor::{TransactionCursor, TransactionIter};
pub use self::flaw::TransactionFlaw;
pub use self::options::{Isolation, TransactionOptions};

use self::cursor::CursorBounds;
use self::merge::QueryContext;
use self::own_writes::{MAX_WRITES, OwnWrite, OwnWrites, provisional};
use self::read_set::ReadSet;
use self::validation::{CollectionWrites, Validation};
use crate::find::Answers;
use crate::find_options::FindOptions;
use crate::handle::{Collection, Handle};
use crate::key_range::KeyRange;
use crate::options::IterOptions;
use crate::schema::OpenCollection;
use crate::snapshot::Snapshot;
use crate::write_batch::{BatchPosition, OwnOperation, WriteBatch, check_key, half_open};

/// Memory of a write or a read beside keys and records, in bytes, without the entries of indexes.
const WRITE_BYTES: usize = 256;
/// Memory of an open cursor beside its bounds and the blocks that it reads, in bytes.
const CURSOR_BYTES: usize = 512;

/// Reads and writes over any collections of one database that take effect together, or not at all; made by
/// [`Db::begin`](crate::Db::begin) and [`Db::transaction`](crate::Db::transaction).
///
/// Reads return the state when the transaction began and its own writes, through every index. Writes are collected in
/// memory until [`commit`](Self::commit), which fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if another
/// commit has changed what this one depends on; see [`Isolation`]. No lock is held before, so nothing waits for a
/// transaction, and there are no deadlocks. A transaction that is dropped without a commit has no effect.
///
/// As long as it exists, compactions retain the versions of its snapshot, and each commit of other writers also records
/// its keys.
///
/// ```
/// use bolide::{Components, Db, Options, TransactionOptions};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let accounts = db.create_collection("accounts", Default::default())?;
/// accounts.put(b"ann", br#"{"balance":90}"#)?;
/// let tx = db.begin(TransactionOptions::default())?;
/// assert!(tx.get(&accounts, b"ann")?.is_some());
/// tx.put(&accounts, b"ann", br#"{"balance":80}"#)?;
/// // Another writer is faster.
/// accounts.put(b"ann", br#"{"balance":0}"#)?;
/// let error = tx.commit().unwrap_err();
/// assert_eq!(error.kind(), bolide::ErrorKind::Conflict);
/// assert!(error.message().contains("\"accounts\", key ann"), "{error}");
/// # Ok::<(), bolide::Error>(())
/// ```
pub struct Transaction {
    handle: Arc<Handle>,
    view: Arc<TransactionView>,
    /// For queries and cursors. A transaction of gets and puts does without.
    snapshot: OnceLock<Snapshot>,
    options: TransactionOptions,
    /// Unique among the transactions of the process; for tokens and savepoints.
    number: OnceLock<u64>,
    state: Mutex<TransactionState>,
}

#[derive(Default)]
struct TransactionState {
    /// All writes, in their order.
    batch: WriteBatch,
    /// The last writes, by collection.
    own: BTreeMap<TreeId, CollectionWrites>,
    reads: ReadSet,
    /// Live savepoints, in their order.
    savepoints: Vec<u64>,
    /// Savepoints and cursors so far.
    numbers: u64,
    /// Cursors that are open, by their numbers.
    cursors: HashMap<u64, OpenCursor>,
    /// Memory of the open cursors, in bytes.
    cursor_bytes: usize,
}

/// An open cursor: as long as it exists, all keys within its bounds count as read.
struct OpenCursor {
    collection: Arc<OpenCollection>,
    bounds: CursorBounds,
}

impl OpenCursor {
    fn memory_bytes(&self) -> usize {
        CURSOR_BYTES + self.bounds.0.len() + self.bounds.1.len()
    }
}

impl TransactionState {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn own(&self, tree: TreeId) -> Arc<OwnWrites> {
        self.own.get(&tree).map_or_else(Arc::default, |writes| writes.own.clone())
    }

    fn own_mut(&mut self, collection: &Arc<OpenCollection>) -> &mut OwnWrites {
        let writes = self.own.entry(collection.tree);
        let writes = writes
            .or_insert_with(|| CollectionWrites { collection: collection.clone(), own: Arc::default() });
        // Copied only while answers or a cursor read the writes before.
        Arc::make_mut(&mut writes.own)
    }

    fn memory_bytes(&self) -> usize {
        let own: usize = self.own.values().map(|writes| writes.own.memory_bytes()).sum();
        self.batch.len_bytes() + own + self.reads.memory_bytes() + self.cursor_bytes
    }
}

/// A position among the writes of a transaction; made by [`Transaction::savepoint`].
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    transaction: u64,
    number: u64,
    position: BatchPosition,
}

impl Transaction {
    fn begin(handle: Arc<Handle>, options: TransactionOptions) -> Result<Self> {
        let view = Arc::new(handle.engine.store.transaction_view());
        let sequence = view.view().sequence();
        if sequence >= provisional(0) {
            let limit = MAX_SEQUENCE - MAX_WRITES;
            return Err(Error::limit_exceeded("the sequence number before a transaction", sequence, limit));
        }
        let (snapshot, number, state) = Default::default();
        Ok(Self { handle, view, snapshot, options, number, state })
    }

    fn snapshot(&self) -> &Snapshot {
        self.snapshot.get_or_init(|| Snapshot::of_view(self.view.view().clone(), self.handle.clone()))
    }

    /// Random, so that tokens of another process are not taken for own ones; below 2^62.
    fn number(&self) -> u64 {
        *self.number.get_or_init(|| self.handle.engine.components.runtime.random_u64() >> 2)
    }

    /// The sequence number of the snapshot: the last commit that the transaction sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.view.view().sequence()
    }

    /// The memory of the transaction for its writes and for the record of its reads, in bytes. At most about
    /// [`TransactionOptions::max_bytes`].
    pub fn memory_bytes(&self) -> usize {
        self.state.lock().memory_bytes()
    }

    /// Puts `record` under `key` of `collection` at the commit. Reads of this transaction see it at once.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `LimitExceeded` if the transaction would take more than
    /// [`TransactionOptions::max_bytes`]. The transaction is then as it was before.
    pub fn put(&self, collection: &Collection, key: &[u8], record: &[u8]) -> Result<()> {
        self.check_own(collection)?;
        let mut state = self.state.lock();
        self.check_room(&state, WRITE_BYTES + 2 * (key.len() + record.len()))?;
        let sequence = next_sequence(&state)?;
        state.batch.put(collection, key, record)?;
        state.own_mut(&collection.state).put(key, record, sequence);
        Ok(())
    }

    /// Deletes the record under `key` of `collection`, if there is one, at the commit.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, collection: &Collection, key: &[u8]) -> Result<()> {
        self.check_own(collection)?;
        let mut state = self.state.lock();
        self.check_room(&state, WRITE_BYTES + 2 * key.len())?;
        next_sequence(&state)?;
        state.batch.delete(collection, key)?;
        state.own_mut(&collection.state).delete(key);
        Ok(())
    }

    /// Deletes all records whose keys lie in `range` at the commit, also records that other commits put there in the
    /// meantime. An empty range deletes nothing.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range(&self, collection: &Collection, range: impl KeyRange) -> Result<()> {
        self.check_own(collection)?;
        let Some((start, end)) = half_open(range)? else { return Ok(()) };
        let mut state = self.state.lock();
        self.check_room(&state, WRITE_BYTES + 2 * (start.len() + end.len()))?;
        next_sequence(&state)?;
        state.batch.delete_half_open(collection, &start, &end)?;
        state.own_mut(&collection.state).delete_range(&start, &end);
        Ok(())
    }

    /// The record under `key` of `collection`.
    ///
    /// # Errors
    /// `NotFound` if the collection was dropped; `LimitExceeded` if the transaction has read and written too much;
    /// `Corruption` or `Io` from reading.
    pub fn get(&self, collection: &Collection, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(collection, key, self.options.isolation == Isolation::Serializable)
    }

    /// As [`get`](Self::get); the commit also fails under [`Isolation::Snapshot`] if another commit has changed the record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use bolide::{Components, Db, Isolation, Options, TransactionOptions};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let duty = db.create_collection("duty", Default::default())?;
    /// duty.put(b"ann", br#"{"on":true}"#)?;
    /// let tx = db.begin(TransactionOptions::default().isolation(Isolation::Snapshot))?;
    /// // Bob may leave only as long as Ann stays.
    /// assert!(tx.get_for_update(&duty, b"ann")?.is_some());
    /// tx.put(&duty, b"bob", br#"{"on":false}"#)?;
    /// duty.put(b"ann", br#"{"on":false}"#)?;
    /// assert!(tx.commit().is_err());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn get_for_update(&self, collection: &Collection, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(collection, key, true)
    }

    fn read(&self, collection: &Collection, key: &[u8], is_validated: bool) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        self.check_readable(collection)?;
        match self.state.lock().own(collection.state.tree).get(key) {
            OwnWrite::Put(put) => return Ok(Some(put.record.to_vec())),
            OwnWrite::Deleted => return Ok(None),
            OwnWrite::None => {}
        }
        collection.state.count(|traffic| traffic.note_gets(1));
        let found = self.view.view().get(collection.state.tree, key)?;
        if is_validated {
            let mut state = self.state.lock();
            self.check_room(&state, WRITE_BYTES + key.len())?;
            state.reads.add_key(&collection.state, key, found.is_some());
        }
        Ok(found.map(|(_, record)| record.to_vec()))
    }

    /// The records of `collection` that satisfy `query`, in its order; see [`Collection::find`]. All answers are in memory
    /// at a time.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`Collection::find`]; `Expired` for a cursor token that is not of this transaction.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options, Query, TransactionOptions};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
    /// posts.put(b"1", br#"{"author":"ann"}"#)?;
    /// let tx = db.begin(TransactionOptions::default())?;
    /// tx.put(&posts, b"2", br#"{"author":"ann"}"#)?;
    /// tx.put(&posts, b"1", br#"{"author":"bob"}"#)?;
    /// let keys = |author: &str| -> bolide::Result<Vec<Vec<u8>>> {
    ///     Ok(tx.find(&posts, &Query::new().eq("author", author))?.into_iter().map(|answer| answer.key).collect())
    /// };
    /// assert_eq!((keys("ann")?, keys("bob")?), (vec![b"2".to_vec()], vec![b"1".to_vec()]));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn find(&self, collection: &Collection, query: &Query) -> Result<Answers> {
        let mut cursor = self.answers(collection, query, &FindOptions::default())?;
        let mut answers = Vec::new();
        while let Some(answer) = cursor.next()? {
            answers.push(answer.to_answer());
        }
        Ok(Answers::new(answers, cursor.outcome()))
    }

    /// A cursor over the records of `collection` that satisfy `query`, in its order. Memory is that of a query outside of
    /// a transaction, and of the own records that satisfy it. `options` have no snapshot.
    ///
    /// # Errors
    /// As [`find`](Self::find); `InvalidInput` for options with a snapshot.
    pub fn answers(
        &self,
        collection: &Collection,
        query: &Query,
        options: &FindOptions,
    ) -> Result<TransactionAnswers<'_>> {
        self.check_readable(collection)?;
        if options.snapshot.is_some() {
            return Err(Error::invalid_input("a transaction reads its own snapshot: pass no other one"));
        }
        let own = self.own_for_query(collection, query)?;
        let options = options.clone().snapshot(self.snapshot());
        let answers = TransactionAnswers::open(collection, query, options, own, self.query_context())?;
        // A query that failed has read nothing, and could not be evaluated by the validation either.
        self.note_query(collection, query);
        Ok(answers)
    }

    fn query_context(&self) -> QueryContext {
        let flaw = self.handle.engine.components.transaction_flaw;
        QueryContext { transaction: self.number(), snapshot: self.sequence(), flaw }
    }

    /// The own writes to `collection`, if there is room for reading `query`.
    fn own_for_query(&self, collection: &Collection, query: &Query) -> Result<Arc<OwnWrites>> {
        let state = self.state.lock();
        let bytes = match self.options.isolation {
            Isolation::Serializable => state.reads.query_bytes(collection.state.tree, query),
            Isolation::Snapshot => 0,
        };
        self.check_room(&state, bytes)?;
        Ok(state.own(collection.state.tree))
    }

    /// Adds a valid query to what the commit validates.
    fn note_query(&self, collection: &Collection, query: &Query) {
        if self.options.isolation == Isolation::Serializable {
            self.state.lock().reads.add_query(&collection.state, query);
        }
    }

    /// How many records of `collection` satisfy `query`, up to its limit.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn count(&self, collection: &Collection, query: &Query) -> Result<u64> {
        Ok(self.find(collection, &query.clone().count())?.count())
    }

    /// All records of `collection` in key order, from both ends.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn iter(&self, collection: &Collection) -> Result<TransactionIter<'_>> {
        self.range(collection, ..)
    }

    /// The records of `collection` whose keys lie in `range`, in key order, from both ends. Only the keys up to which it
    /// is read count as read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn range(&self, collection: &Collection, range: impl KeyRange) -> Result<TransactionIter<'_>> {
        let options = IterOptions::default().range(range);
        Ok(TransactionIter::new(self.cursor(collection, &options)?, self.cursor(collection, &options)?))
    }

    /// A cursor over the records of `collection` in key order. `options` have no snapshot.
    ///
    /// # Errors
    /// As [`get`](Self::get); `InvalidInput` for options with a snapshot.
    pub fn cursor(&self, collection: &Collection, options: &IterOptions) -> Result<TransactionCursor<'_>> {
        self.check_readable(collection)?;
        if options.snapshot.is_some() {
            return Err(Error::invalid_input("a transaction reads its own snapshot: pass no other one"));
        }
        let bounds = half_open((options.lower.clone(), options.upper.clone()))?.unwrap_or_default();
        let bounds: CursorBounds = Arc::new(bounds);
        let snapshot = collection.cursor(&options.clone().snapshot(self.snapshot()))?;
        let collection = collection.state.clone();
        let open = OpenCursor { collection: collection.clone(), bounds: bounds.clone() };
        let mut state = self.state.lock();
        self.check_room(&state, open.memory_bytes())?;
        let number = state.next_number();
        let own = state.own(collection.tree);
        state.cursor_bytes += open.memory_bytes();
        state.cursors.insert(number, open);
        Ok(TransactionCursor::new(self, collection, own, snapshot, bounds, number))
    }

    /// Adds scanned keys to what the commit validates.
    ///
    /// # Errors
    /// `LimitExceeded` if the transaction has read and written too much. The keys count as read nevertheless.
    fn note_scanned(&self, collection: &Arc<OpenCollection>, start: &[u8], end: &[u8]) -> Result<()> {
        if self.options.isolation == Isolation::Snapshot {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.reads.add_range(collection, start, end);
        self.check_room(&state, 0)
    }

    /// Ends the cursor with this number: from now on only the keys that it scanned count as read.
    fn close_cursor(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(closed) = state.cursors.remove(&number) {
            state.cursor_bytes -= closed.memory_bytes();
        }
    }

    /// The present position among the writes, for [`rollback_to`](Self::rollback_to). Costs nothing.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, TransactionOptions};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// let tx = db.begin(TransactionOptions::default())?;
    /// tx.put(&notes, b"1", br#"{"v":1}"#)?;
    /// let savepoint = tx.savepoint();
    /// tx.put(&notes, b"1", br#"{"v":2}"#)?;
    /// tx.rollback_to(&savepoint)?;
    /// tx.commit()?;
    /// assert_eq!(notes.get(b"1")?.as_deref(), Some(&br#"{"v":1}"#[..]));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        let mut state = self.state.lock();
        let number = state.next_number();
        state.savepoints.push(number);
        Savepoint { transaction: self.number(), number, position: state.batch.position() }
    }

    /// Removes the writes after `savepoint`, and the savepoints after it. What was read is validated nevertheless. Costs
    /// a pass over the writes that are left.
    ///
    /// # Errors
    /// `InvalidInput` for a savepoint of another transaction, or one that an earlier rollback has removed.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        let mut state = self.state.lock();
        let position = state.savepoints.iter().position(|number| *number == savepoint.number);
        let position = position.filter(|_| savepoint.transaction == self.number());
        let Some(position) = position else {
            return Err(Error::invalid_input(
                "the savepoint belongs to another transaction, or a rollback to an earlier one has removed it",
            ));
        };
        state.savepoints.truncate(position + 1);
        state.batch.truncate(savepoint.position);
        self.rebuild_own(&mut state)
    }

    /// Derives the own writes from the batch.
    fn rebuild_own(&self, state: &mut TransactionState) -> Result<()> {
        let mut own = BTreeMap::new();
        for (position, operation) in state.batch.own_operations().enumerate() {
            let collection = operation.collection();
            let writes =
                own.entry(collection.tree).or_insert_with(|| (collection.clone(), OwnWrites::default()));
            match operation {
                OwnOperation::Put(_, key, record) => {
                    writes.1.put(key, record, provisional(position as u64 + 1));
                }
                OwnOperation::Delete(_, key) => writes.1.delete(key),
                OwnOperation::DeleteRange(_, start, end) => writes.1.delete_range(start, end),
            }
        }
        let writes_of = |(collection, own)| CollectionWrites { collection, own: Arc::new(own) };
        state.own = own.into_iter().map(|(tree, writes)| (tree, writes_of(writes))).collect();
        Ok(())
    }

    /// Makes all writes durable and visible at once, and returns the sequence number of the last one. Without writes it
    /// does nothing, and returns the number of the snapshot.
    ///
    /// # Errors
    /// `Conflict` if another commit has changed what this one depends on (see [`Isolation`]), or has dropped a collection
    /// that was read, and if other commits arrive faster than they can be validated; `NotFound` if a collection that it only
    /// writes to was dropped; those of [`Db::write`](crate::Db::write). Nothing is written then.
    pub fn commit(self) -> Result<SequenceNumber> {
        if self.state.lock().batch.is_empty() {
            return Ok(self.sequence());
        }
        let (validation, batch, sync) = self.into_validation();
        validation.commit(batch, sync)
    }

    /// What the commit validates, and its writes.
    fn into_validation(self) -> (Validation, WriteBatch, Option<SyncMode>) {
        let Self { handle, view, options, state, .. } = self;
        let mut state = state.into_inner();
        if options.isolation == Isolation::Serializable {
            // Cursors that were leaked.
            for (_, cursor) in state.cursors.drain() {
                state.reads.add_range(&cursor.collection, &cursor.bounds.0, &cursor.bounds.1);
            }
        }
        let validation = Validation {
            isolation: options.isolation,
            reads: state.reads,
            writes: state.own,
            validated: AtomicU64::new(view.view().sequence()),
            locked: Default::default(),
            again: Mutex::default(),
            flaw: handle.engine.components.transaction_flaw,
            snapshot: view,
            handle,
        };
        (validation, state.batch, options.sync)
    }

    /// Ends the transaction without an effect, as dropping it does.
    pub fn rollback(self) {}

    fn check_own(&self, collection: &Collection) -> Result<()> {
        if Arc::ptr_eq(&collection.handle.engine, &self.handle.engine) {
            return Ok(());
        }
        let name = collection.name();
        Err(Error::invalid_input(format!(
            "the collection {name:?} is of another database than the transaction"
        )))
    }

    fn check_readable(&self, collection: &Collection) -> Result<()> {
        self.check_own(collection)?;
        collection.state.check_live()
    }

    /// Fails if `bytes` more would exceed the memory of the transaction.
    fn check_room(&self, state: &TransactionState, bytes: usize) -> Result<()> {
        let total = state.memory_bytes().saturating_add(bytes);
        if total > self.options.max_bytes {
            let limit = self.options.max_bytes as u64;
            return Err(Error::limit_exceeded(
                "the memory of a transaction for its reads and writes in bytes (TransactionOptions::max_bytes)",
                total as u64,
                limit,
            ));
        }
        Ok(())
    }
}

/// The provisional sequence number of the next write.
fn next_sequence(state: &TransactionState) -> Result<SequenceNumber> {
    let position = state.batch.len() as u64 + 1;
    if position >= MAX_WRITES {
        return Err(Error::limit_exceeded("the number of writes of a transaction", position, MAX_WRITES - 1));
    }
    Ok(provisional(position))
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
