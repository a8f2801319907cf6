//! Updates and deletes of all records that satisfy a query, batch by batch.
//!
//! # Records of an operation
//! An operation begins at a sequence number: it changes the records that satisfy the query there, at a snapshot. A record that
//! was written since is skipped: its writer may have seen the operation running. So no record is changed twice, also after a
//! resumption, which reads only writes up to the sequence number at which the operation began, after the last batch. The
//! `reader` chooses the order: that of an index, or that of the keys, so that each record is read once.
//!
//! # Concurrent writes
//! The commit of a batch expects each of its records unchanged, by its sequence number. If one was written meanwhile, the rest
//! of the batch is committed without it.

mod position;
mod reader;

use std::ops::ControlFlow;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_index::{Order, Predicate, Projection, Query, RecordQuery};
use bolide_lsm::SyncMode;

pub use self::position::BulkPosition;
use self::reader::{FoundRecords, KeyScan, OrderedAnswers};
use crate::expectation::Expected;
use crate::handle::Collection;
use crate::snapshot::Snapshot;
use crate::write_batch::WriteBatch;

/// A batch ends after the record that reaches these bytes of keys and records.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Settings of [`Collection::update_where`] and [`Collection::delete_where`].
///
/// ```
/// assert_eq!(bolide::BulkOptions::default().batch(50).batch, 50);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BulkOptions {
    /// See [`batch`](Self::batch()).
    pub batch: usize,
    /// See [`sync`](Self::sync()).
    pub sync: Option<SyncMode>,
    /// See [`resume`](Self::resume()).
    pub resume: Option<BulkPosition>,
    /// See [`dry_run`](Self::dry_run()).
    pub dry_run: bool,
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self { batch: 1_000, sync: None, resume: None, dry_run: false }
    }
}

impl BulkOptions {
    /// Maximum records of one batch, which is atomic. Default: 1,000. A batch also ends after the record with which its keys
    /// and records reach 4 MiB; of a delete only keys count. Larger batches cost less and delay other writers longer.
    #[must_use]
    pub fn batch(mut self, records: usize) -> Self {
        self.batch = records.max(1);
        self
    }

    /// The durability of each batch. Default: that of the database.
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = Some(sync);
        self
    }

    /// Continues an operation on the same collection with the same query after the batch with this position, also in
    /// another process. What a position covers is synced before `progress` receives it, in every
    /// [`SyncMode`](crate::SyncMode): a stored position loses no change in a power cut.
    ///
    /// If the operation read an index that was dropped since, it reads the other indexes or the whole collection, and sorts
    /// the records, in passes over them.
    #[must_use]
    pub fn resume(mut self, position: BulkPosition) -> Self {
        self.resume = Some(position);
        self
    }

    /// Counts the changes without writing them; the database may be open read-only. Default: off.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{BulkOptions, Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"score":3}"#)?;
    /// let options = BulkOptions::default().dry_run(true);
    /// let done = posts.delete_where(&Query::new().eq("score", 3), &options, |_| ControlFlow::Continue(()))?;
    /// assert_eq!((done.changed, posts.iter()?.count()), (1, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The progress of an operation after a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkProgress {
    /// Records that satisfied the query.
    pub found: u64,
    /// Records that were put or deleted; in a [dry run](BulkOptions::dry_run()) those that would be.
    pub changed: u64,
    /// Records that were written or deleted by others since the operation began, and therefore skipped.
    pub skipped: u64,
    /// Where [`BulkOptions::resume()`] continues. `None` if the operation is complete.
    pub position: Option<BulkPosition>,
}

/// The change of one record by [`Collection::update_where`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkChange {
    /// The record stays.
    Keep,
    /// This record replaces it.
    Put(Vec<u8>),
    /// The record is deleted.
    Delete,
}

impl Collection {
    /// Deletes the records that satisfy `query` in atomic batches. Calls `progress` after each batch, the last one included, and
    /// stops if it breaks; [`BulkProgress::position`] then continues the operation later. It is `None` at the end.
    ///
    /// The order of the records is that of an index, or of the keys without one: each record is read once, for any number of
    /// them. An index that yields no order reads its entries again for each 32 MiB of candidates.
    ///
    /// A record that is written after the operation began stays. Reads the keys of the records alone where an index can
    /// answer alone. Holds a snapshot until the end, so that compactions retain what it reads.
    ///
    /// # Errors
    /// As [`find`](Self::find) and [`delete`](Self::delete); `InvalidInput` for a query with an order, a limit, a limit per
    /// value, a token, a projection or a nearest point, and for a position of another collection or query. The batches
    /// before the error stay.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{BulkOptions, Components, Db, Filter, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// for score in 0..10 {
    ///     posts.put(&[score], format!(r#"{{"score":{score}}}"#).as_bytes())?;
    /// }
    /// let low = Query::new().filter(Filter::parse("score < 3 or score = 9")?);
    /// let done = posts.delete_where(&low, &BulkOptions::default(), |_| ControlFlow::Continue(()))?;
    /// assert_eq!((done.changed, done.position), (4, None));
    /// assert_eq!(posts.iter()?.count(), 6);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn delete_where(
        &self,
        query: &Query,
        options: &BulkOptions,
        progress: impl FnMut(&BulkProgress) -> ControlFlow<()>,
    ) -> Result<BulkProgress> {
        run_bulk(self, query.clone().keys_only(), query, options, |_, _| Ok(BulkChange::Delete), progress)
    }

    /// Changes the records that satisfy `query` in atomic batches: `change` is called with key and record,
    /// and returns the new record. See [`delete_where`](Self::delete_where) for progress and concurrent writes.
    ///
    /// No record is changed twice, even if the new one satisfies the query again, and even if the operation is resumed.
    ///
    /// # Errors
    /// As [`delete_where`](Self::delete_where) and [`put`](Self::put), and those of `change`.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use bolide::{BulkChange, BulkOptions, Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"state":"draft"}"#)?;
    /// posts.put(b"2", br#"{"state":"final"}"#)?;
    /// let publish = |_: &[u8], _: &[u8]| Ok(BulkChange::Put(br#"{"state":"public"}"#.to_vec()));
    /// let query = Query::new().eq("state", "final");
    /// let done = posts.update_where(&query, &BulkOptions::default(), publish, |_| ControlFlow::Continue(()))?;
    /// assert_eq!(done.changed, 1);
    /// assert_eq!(posts.find(&Query::new().eq("state", "public"))?[0].key, b"2");
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn update_where(
        &self,
        query: &Query,
        options: &BulkOptions,
        change: impl FnMut(&[u8], &[u8]) -> Result<BulkChange>,
        progress: impl FnMut(&BulkProgress) -> ControlFlow<()>,
    ) -> Result<BulkProgress> {
        run_bulk(self, query.clone(), query, options, change, progress)
    }
}

/// Runs an operation on the answers to `reads`, a form of `query`.
fn run_bulk(
    collection: &Collection,
    reads: Query,
    query: &Query,
    options: &BulkOptions,
    mut change: impl FnMut(&[u8], &[u8]) -> Result<BulkChange>,
    mut progress: impl FnMut(&BulkProgress) -> ControlFlow<()>,
) -> Result<BulkProgress> {
    check_plain(query)?;
    if let Some(position) = &options.resume {
        position.check(collection, query)?;
    }
    let snapshot = Snapshot::new(collection.handle.clone());
    let (until, last_record) = match options.resume.clone() {
        Some(position) => (position.until, Some(position.last_record)),
        None => (snapshot.sequence(), None),
    };
    let set;
    let mut found: Box<dyn FoundRecords + '_> =
        match OrderedAnswers::open(collection, &reads, &snapshot, until, last_record.clone())? {
            Some(answers) => Box::new(answers),
            None => {
                set = collection.state.indexes();
                let on_records = RecordQuery::new(&reads, set.extractor().ok())?;
                let last_record = last_record.as_ref();
                Box::new(KeyScan::open(collection, &reads, on_records, &snapshot, until, last_record)?)
            }
        };
    let mut done = BulkProgress { found: 0, changed: 0, skipped: 0, position: options.resume.clone() };
    loop {
        let batch = FoundBatch::read(&mut *found, options.batch.max(1))?;
        let next = found.last_record().filter(|_| !batch.is_last);
        change_batch(collection, &batch, options, &mut change, &mut done)?;
        if next.is_some() && !options.dry_run {
            // A position that outlives the changes before it would leave them out of the resumed operation.
            collection.handle.engine.store.sync()?;
        }
        done.position = next.map(|last_record| BulkPosition::new(collection, query, until, last_record));
        if progress(&done).is_break() || done.position.is_none() {
            return Ok(done);
        }
    }
}

/// Changes the records of a batch that were not written since they were read. Calls `change` at most once for each.
fn change_batch(
    collection: &Collection,
    batch: &FoundBatch,
    options: &BulkOptions,
    change: &mut impl FnMut(&[u8], &[u8]) -> Result<BulkChange>,
    done: &mut BulkProgress,
) -> Result<()> {
    let engine = &collection.handle.engine;
    let keys: Vec<&[u8]> = batch.found.iter().map(|found| &found.key[..]).collect();
    let mut changes: Vec<Option<BulkChange>> = keys.iter().map(|_| None).collect();
    loop {
        let mut newest = Vec::with_capacity(keys.len());
        engine.read_view().tree(collection.state.tree)?.newest_sequences(&keys, &mut newest)?;
        let mut writes = WriteBatch::new();
        let (mut changed, mut skipped) = (0, 0);
        for ((found, newest), chosen) in batch.found.iter().zip(newest).zip(&mut changes) {
            if newest != Some(found.sequence) {
                skipped += 1;
                continue;
            }
            if chosen.is_none() {
                *chosen = Some(change(&found.key, &found.record)?);
            }
            if !matches!(chosen, Some(BulkChange::Keep)) {
                writes.expect(collection, &found.key, Expected::Sequence(found.sequence))?;
            }
            match chosen {
                None | Some(BulkChange::Keep) => continue,
                Some(BulkChange::Put(record)) => writes.put(collection, &found.key, record)?,
                Some(BulkChange::Delete) => writes.delete(collection, &found.key)?,
            }
            changed += 1;
        }
        let needs_write = !options.dry_run && !writes.is_empty();
        let result = if needs_write { engine.write(writes, options.sync).map(drop) } else { Ok(()) };
        match result {
            // One of the records was written since the comparison: the next round skips it.
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            result => {
                done.found += keys.len() as u64;
                (done.changed, done.skipped) = (done.changed + changed, done.skipped + skipped);
                return result;
            }
        }
    }
}

/// The next records of an operation.
#[derive(Default)]
struct FoundBatch {
    found: Vec<FoundRecord>,
    /// No further records follow.
    is_last: bool,
}

struct FoundRecord {
    key: Vec<u8>,
    sequence: SequenceNumber,
    record: Vec<u8>,
}

impl FoundBatch {
    /// Reads up to `records` records.
    fn read(from: &mut dyn FoundRecords, records: usize) -> Result<Self> {
        let mut batch = Self::default();
        let mut bytes = 0;
        while batch.found.len() < records && bytes < MAX_BATCH_BYTES {
            let Some(found) = from.next()? else {
                batch.is_last = true;
                break;
            };
            bytes += found.key.len() + found.record.len();
            batch.found.push(found);
        }
        Ok(batch)
    }
}

/// Refuses a query that selects more than a set of records.
fn check_plain(query: &Query) -> Result<()> {
    let is_nearest = query.predicates().iter().any(Predicate::is_nearest);
    for (is_present, part) in [
        (is_nearest, "nearest point"),
        (query.answer_order() != Order::Newest, "order"),
        (query.answer_limit().is_some(), "limit"),
        (query.answer_limit_per_value().is_some(), "limit per value"),
        (query.token().is_some(), "cursor token"),
        (query.projection() != Projection::Records, "projection"),
    ] {
        if is_present {
            return Err(Error::invalid_input(format!(
                "an update or delete of all records of a query takes no {part}: remove it from the query"
            )));
        }
    }
    query.check()
}
