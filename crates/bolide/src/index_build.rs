//! Making and dropping indexes while the collection is in use.
//!
//! # Algorithm
//! 1. A tree for the index is made; its descriptor says *building*.
//! 2. Under the schema lock held for writing (no commit is on its way) the index joins the set that
//!    writers derive entries for, and a view is taken. From here on every write either is in the view or
//!    carries its entries itself.
//! 3. The records of the view are read in key order, and their entries committed in batches, each entry
//!    at the sequence number of its record. Writers go on meanwhile.
//! 4. The log is synced, then the descriptor says *ready, complete since S*, where S is what was
//!    published last: queries at S or later use the index, queries of older snapshots go without.
//!
//! Killed before step 4, the next open finds *building* and starts anew in a fresh tree: half of a build
//! is never taken for a whole one, and no entry is written twice under one sequence number.
//!
//! An index with `maintenance=synchronous` must not get an entry for a record that was replaced since
//! the view was taken: the writer that replaced it may have deleted the entry already, and a compaction
//! may have dropped that tombstone. So its batches look at the records again inside the commit.

use std::sync::Arc;

use bolide_base::limits::MAX_INDEXES_PER_COLLECTION;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::IndexSpec;
use bolide_lsm::{Bounds, CommitStage, Operation, ReadView, StoreBatch, SyncMode, TreeOptions};

use crate::catalog::{IndexDescriptor, IndexState, MAX_SPEC_BYTES, check_name};
use crate::handle::{Engine, Handle};
use crate::index_set::{BackFill, Index, check_available, install_filter};
use crate::progress::Progress;
use crate::schema::{CollectionState, find_index};

/// Size at which a batch of a back-fill is committed, in bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Makes an index of `collection` and fills it. Returns when queries can use it.
pub(crate) fn create(handle: &Handle, collection: &Arc<CollectionState>, spec: IndexSpec) -> Result<()> {
    let engine = &*handle.engine;
    let (index, view) = {
        let _changing = engine.changing.lock();
        engine.check_writable()?;
        collection.check_live()?;
        check_new_index(collection, &spec)?;
        let tree = new_tree(engine, collection, &spec, IndexState::Building)?;
        let index = Arc::new(Index::new(spec, tree, Progress::building())?);
        let view = join(engine, collection, &index)?;
        (index, view)
    };
    let built = fill_and_publish(engine, collection, &index, view);
    if built.is_err() && !engine.is_closing() {
        // A half-built index is of no use; where even that fails, the next open builds it anew.
        let _ = remove(engine, collection, &index);
    }
    built
}

/// Drops an index of `collection`, also one that is being built.
pub(crate) fn drop_index(handle: &Handle, collection: &Arc<CollectionState>, name: &str) -> Result<()> {
    let engine = &*handle.engine;
    engine.check_writable()?;
    collection.check_live()?;
    let index = find_index(collection, name)?;
    remove(engine, collection, &index)
}

/// An index that an earlier process was building.
pub(crate) struct Unfinished {
    pub(crate) collection: Arc<CollectionState>,
    pub(crate) index: Arc<Index>,
}

/// Builds indexes anew that an earlier process did not finish; in a thread of their own where there may
/// be threads.
pub(crate) fn resume(handle: &Arc<Handle>, unfinished: Vec<Unfinished>, in_background: bool) -> Result<()> {
    let mut jobs = Vec::with_capacity(unfinished.len());
    for Unfinished { collection, index } in unfinished {
        jobs.push(start_anew(&handle.engine, collection, &index)?);
    }
    if jobs.is_empty() {
        return Ok(());
    }
    let engine = handle.engine.clone();
    let run = move || {
        for job in jobs {
            if let Err(problem) = fill_and_publish(&engine, &job.collection, &job.index, job.view) {
                job.index.progress.fail(problem);
            }
        }
    };
    if in_background {
        let builder = handle.engine.components.runtime.spawn("bolide-index", Box::new(run))?;
        handle.builders.lock().push(builder);
    } else {
        run();
    }
    Ok(())
}

/// A build that is about to start.
struct Job {
    collection: Arc<CollectionState>,
    index: Arc<Index>,
    view: ReadView,
}

/// Gives an unfinished index a fresh tree.
fn start_anew(engine: &Engine, collection: Arc<CollectionState>, old: &Index) -> Result<Job> {
    let _changing = engine.changing.lock();
    let spec = old.spec().clone();
    let tree = new_tree(engine, &collection, &spec, IndexState::Building)?;
    engine.store.drop_tree(old.tree)?;
    let index = Arc::new(Index::new(spec, tree, Progress::building())?);
    let view = join(engine, &collection, &index)?;
    Ok(Job { collection, index, view })
}

/// Checks that `collection` can have one more index, this one.
pub(crate) fn check_new_index(collection: &CollectionState, spec: &IndexSpec) -> Result<()> {
    let indexes = collection.indexes_guard();
    check_spec(spec)?;
    indexes.extractor()?;
    if indexes.all().iter().any(|index| index.name == spec.name()) {
        let what = format!("the collection {:?} has an index {:?} already", collection.name, spec.name());
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    check_count(indexes.all().len() + 1)
}

/// Checks how many indexes a collection is to have.
pub(crate) fn check_count(count: usize) -> Result<()> {
    if count > MAX_INDEXES_PER_COLLECTION {
        let limit = MAX_INDEXES_PER_COLLECTION as u64;
        return Err(Error::limit_exceeded("the number of indexes of a collection", count as u64, limit));
    }
    Ok(())
}

/// Checks the name and the length of a specification.
pub(crate) fn check_spec(spec: &IndexSpec) -> Result<()> {
    check_name("an index", spec.name())?;
    check_available(spec)?;
    let length = spec.to_string().len();
    if length > MAX_SPEC_BYTES {
        let what = "the length in bytes of an index specification";
        return Err(Error::limit_exceeded(what, length as u64, MAX_SPEC_BYTES as u64));
    }
    Ok(())
}

/// Makes the tree of an index.
pub(crate) fn new_tree(
    engine: &Engine,
    collection: &CollectionState,
    spec: &IndexSpec,
    state: IndexState,
) -> Result<TreeId> {
    let trees = engine.store.trees();
    let owner = trees.iter().find(|tree| tree.id == collection.tree);
    let owner = owner.ok_or_else(|| Error::internal("a collection has no tree"))?;
    engine
        .store
        .create_tree(index_tree_options(&owner.options), &descriptor(collection, spec, state, 0).encode())
}

/// Index trees are laid out and compressed as their table. No one looks for whole keys in them, so they
/// have no Bloom filters.
fn index_tree_options(table: &TreeOptions) -> TreeOptions {
    let mut options = table.clone();
    options.bloom_bits_per_key = 0;
    options
}

fn descriptor(
    collection: &CollectionState,
    spec: &IndexSpec,
    state: IndexState,
    since: SequenceNumber,
) -> IndexDescriptor {
    let (name, text) = (spec.name().to_owned(), spec.to_string());
    IndexDescriptor { owner: collection.tree, name, spec: text, state, since }
}

/// Lets writers derive entries for `index`, in the place of one of the same name if there is one, and
/// takes the view that the others are read from.
fn join(engine: &Engine, collection: &CollectionState, index: &Arc<Index>) -> Result<ReadView> {
    install_filter(&engine.store, collection.tree, index)?;
    let _schema = engine.schema.write();
    let set = collection.indexes();
    let mut all: Vec<Arc<Index>> =
        set.all().iter().filter(|other| other.name != index.name).cloned().collect();
    all.push(index.clone());
    collection.replace_indexes(set.with_indexes(all)?);
    Ok(engine.read_view())
}

/// Takes `index` out of its collection and drops its tree.
fn remove(engine: &Engine, collection: &CollectionState, index: &Arc<Index>) -> Result<()> {
    let _changing = engine.changing.lock();
    index.progress.cancel();
    {
        let _schema = engine.schema.write();
        let set = collection.indexes();
        let others: Vec<Arc<Index>> =
            set.all().iter().filter(|other| !Arc::ptr_eq(other, index)).cloned().collect();
        if others.len() == set.all().len() {
            let what = format!("the collection {:?} has no index {:?} any more", collection.name, index.name);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        collection.replace_indexes(set.with_indexes(others)?);
    }
    engine.store.drop_tree(index.tree)
}

fn fill_and_publish(
    engine: &Engine,
    collection: &Arc<CollectionState>,
    index: &Arc<Index>,
    view: ReadView,
) -> Result<()> {
    fill(engine, collection, index, &view)?;
    drop(view);
    let _changing = engine.changing.lock();
    check_wanted(engine, collection, index)?;
    // The descriptor must not become durable before the entries that it speaks for.
    engine.store.sync()?;
    let since = engine.store.published_sequence();
    let ready = descriptor(collection, index.spec(), IndexState::Ready, since);
    engine.store.set_descriptor(index.tree, &ready.encode())?;
    index.progress.publish(since);
    Ok(())
}

/// Commits the entries of all records of `view`.
fn fill(
    engine: &Engine,
    collection: &Arc<CollectionState>,
    index: &Arc<Index>,
    view: &ReadView,
) -> Result<()> {
    let set = collection.indexes();
    let mut back_fill = BackFill::new(index, set.extractor()?)?;
    let mut records = view.cursor(collection.tree, Bounds::all())?;
    records.seek_to_first()?;
    let mut pending = Pending::default();
    while records.valid() {
        let before = pending.entries.len();
        back_fill.add(records.key(), records.value(), records.sequence(), &mut pending.entries)?;
        let entries = pending.entries.len() - before;
        if entries > 0 && index.structure.needs_stage() {
            pending.records.push(Filled {
                key: records.key().to_vec(),
                sequence: records.sequence(),
                entries,
            });
        }
        if pending.entries.len_bytes() >= BATCH_BYTES {
            check_wanted(engine, collection, index)?;
            commit(engine, collection, index, std::mem::take(&mut pending))?;
        }
        records.next()?;
    }
    commit(engine, collection, index, pending)
}

/// Fails where nobody wants the index any more.
fn check_wanted(engine: &Engine, collection: &CollectionState, index: &Index) -> Result<()> {
    if engine.is_closing() {
        return Err(Error::new(ErrorKind::Closed, "the database is closing; its next open builds the index"));
    }
    collection.check_live()?;
    if index.progress.is_cancelled() {
        let what = format!("the index {:?} was dropped while it was being built", index.name);
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    Ok(())
}

/// Entries on their way into an index.
#[derive(Default)]
struct Pending {
    entries: StoreBatch,
    /// The records that the entries are of, in order; kept for synchronous indexes alone.
    records: Vec<Filled>,
}

/// A record whose entries were added to a batch.
struct Filled {
    key: Vec<u8>,
    sequence: SequenceNumber,
    entries: usize,
}

fn commit(engine: &Engine, collection: &CollectionState, index: &Index, pending: Pending) -> Result<()> {
    if pending.entries.is_empty() {
        return Ok(());
    }
    if !index.structure.needs_stage() {
        return engine.store.commit(pending.entries, None, SyncMode::None).map(drop);
    }
    let stage = StillCurrent { table: collection.tree, pending };
    engine.store.commit(StoreBatch::new(), Some(Box::new(stage)), SyncMode::None).map(drop)
}

/// Lets the entries of those records through that were not replaced since they were read.
struct StillCurrent {
    table: TreeId,
    pending: Pending,
}

impl CommitStage for StillCurrent {
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        let table = view.tree(self.table)?;
        let mut entries = self.pending.entries.operations();
        for record in &self.pending.records {
            let is_current = table.newest_sequence(&record.key)? == Some(record.sequence);
            for placed in entries.by_ref().take(record.entries) {
                if let (true, Operation::Entry { key, value, .. }) = (is_current, placed.operation) {
                    batch.put_at(placed.tree, key, value, placed.sequence)?;
                }
            }
        }
        Ok(())
    }
}
