//! Creation, rebuild and drop of indexes while the collection is in use.
//!
//! # Algorithm
//! 1. **Hook.** A tree for the index is created; its descriptor has the state *building*. Then the index joins, under
//!    the schema lock held for writing (no commit is in progress), the set for which writers derive entries.
//! 2. **Back-fill.** The records are read in key order through a view that is created after that, and their entries are
//!    committed in small batches, each entry at the sequence number of its record. After each *section* (some
//!    megabytes, or two seconds) the log is synced, the descriptor records the last primary key and the number of the
//!    view, and the next section starts with a fresh view after that key.
//! 3. **Barrier.** One more write, which changes nothing, takes a sequence number. The log is synced, then the
//!    descriptor gets the state *ready, complete since S*, where S is the number published last: queries at S or later
//!    use the index, queries of older snapshots do not. Entries of the back-fill take no numbers of their own, so
//!    without that write a view could have the number S and miss the entries, or the tree itself.
//!
//! After a crash, the next open hooks the index in before the first write, and continues after the key in the
//! descriptor, with a view of its own. So a section of a running build and an attempt of a resumed one are the same.
//!
//! # Why nothing is lost, though every section reads another view
//! Let the sections read the key ranges `R1, R2, …` at views `V1 ≤ V2 ≤ …`, all created after the hook, and let a query
//! read at `Q ≥ S`. Let record `r` be visible at `Q` under a key of `Ri`, written at sequence `s`.
//! * `s ≤ Vi`: the key's newest write at `Q` is not newer than `Vi`, so it is its newest at `Vi` too. The section read
//!   it and committed its entry at `s`, before S was published; so the entry is visible at `Q`.
//! * `s > Vi`: `Vi` was created after the hook, so the batch of the write of `r` contains its entry.
//!
//! A crash loses a suffix of the log, and a write and its entry are one record of it. The descriptor covers only what
//! was synced before, and the log contains records up to `Vi` before the entries of section `i`; so the proof holds for
//! the recovered state. (A descriptor whose view is newer than the end of the log violates this order; the build then
//! starts over.) Commits after the last descriptor are repeated: at the same key and sequence number, which replaces
//! the entry.
//!
//! # Why no stale entry returns
//! An entry of a record that was replaced or deleted since its view was created is *stale*. Blind kinds tolerate that:
//! validation reads the newest write of the primary key, and compactions drop the entry. Three kinds do not, and check
//! each record again inside the commit (see [`fill`]), which excludes concurrent writes:
//! * `maintenance=synchronous`: the writer that replaced the record has deleted the entry already, and a
//!   compaction may have dropped that tombstone;
//! * kinds whose keys contain no sequence number (`order=primary-key`, the key index): an old version would be above a
//!   newer one in the tree;
//! * kinds that read their lists before they write them.
//!
//! If the commit finds the record current, then no newer write of its key was ever committed, so none has changed the
//! index either; a later write finds the entry and handles it as usual.
//!
//! # Rebuild
//! A second index of the same name, in a tree of its own, is built beside the old one and hidden from queries; its
//! descriptor names the tree that it *replaces*. Writers maintain both. The edit to *ready* decides: before it an open
//! continues the build, after it an open drops the old tree.
//!
//! # Indexes in sstables
//! An index of kind `embedded` or `next` needs no back-fill: it is published at once, and queries read sstables without
//! its blocks completely. For `next` they are then rewritten; see [`rewrite`].
//!
//! # The key index
//! Indexes with `validation=key-index` share one tree of primary keys for each collection. The first of them creates
//! it: it joins together with the index and is filled first, under the same rules. It is dropped with the last one.
//!
//! # Locks
//! A build holds none while it reads or sleeps. Joining and leaving hold the schema lock for a swap of pointers:
//! writers wait only for the commits in progress. A batch holds the log for well under a millisecond.

pub(crate) mod options;

mod conditions;
mod fill;
mod pace;
pub(crate) mod rewrite;

use std::sync::Arc;

use bolide_base::limits::MAX_INDEXES_PER_COLLECTION;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::{IndexSpec, ValidationStrategy};
use bolide_lsm::{StoreBatch, SyncMode, TreeOptions};

use self::conditions::{check_in_use, check_wanted};
use self::fill::{Fill, caught};
use self::options::BuildOptions;
use crate::catalog::{
    IndexLife, IndexState, KeyIndexDescriptor, MAX_SPEC_BYTES, check_name, index_descriptor, index_tree,
    key_index_descriptor,
};
use crate::handle::{Engine, Handle};
use crate::index_set::{Index, IndexSet, check_available};
use crate::progress::{Progress, is_about_records};
use crate::schema::{OpenCollection, find_index};

/// A build that is about to start, of an index that writers maintain already.
pub(crate) struct Job {
    pub(crate) collection: Arc<OpenCollection>,
    pub(crate) index: Arc<Index>,
    pub(crate) options: BuildOptions,
}

/// Creates an index of `collection` and fills it. Returns when queries can use it.
pub(crate) fn create(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    spec: IndexSpec,
    options: &BuildOptions,
) -> Result<()> {
    let job = add(handle, collection, spec, options)?;
    crate::stale_removal::start(handle)?;
    run_or_remove(&handle.engine, &job)
}

/// Creates an index of `collection` that is filled in the background.
pub(crate) fn create_in_background(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    spec: IndexSpec,
    options: &BuildOptions,
) -> Result<Arc<Index>> {
    let job = add(handle, collection, spec, options)?;
    crate::stale_removal::start(handle)?;
    let index = job.index.clone();
    start(handle, vec![job])?;
    Ok(index)
}

/// Builds an index again beside the existing one, and replaces that.
pub(crate) fn rebuild(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    name: &str,
    options: &BuildOptions,
) -> Result<()> {
    handle.engine.check_key_index(collection, name)?;
    let job = add_beside(handle, collection, name, options)?;
    run_or_remove(&handle.engine, &job)
}

/// As [`rebuild`], in the background.
pub(crate) fn rebuild_in_background(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    name: &str,
    options: &BuildOptions,
) -> Result<Arc<Index>> {
    handle.engine.check_key_index(collection, name)?;
    let job = add_beside(handle, collection, name, options)?;
    let index = job.index.clone();
    start(handle, vec![job])?;
    Ok(index)
}

/// Drops an index of `collection`, also one that is being built or rebuilt.
pub(crate) fn drop_index(handle: &Handle, collection: &Arc<OpenCollection>, name: &str) -> Result<()> {
    let engine = &*handle.engine;
    engine.check_writable()?;
    let _changing = engine.changing.lock();
    collection.check_live()?;
    find_index(collection, name)?;
    leave(engine, collection, |index| index.name == name)
}

/// Continues the builds of an earlier process; in a thread of its own if background threads are allowed.
pub(crate) fn resume(handle: &Handle, jobs: Vec<Job>, in_background: bool) -> Result<()> {
    for job in jobs {
        if job.index.progress.state() == IndexState::Ready
            && rewrite::without_blocks(&handle.engine, &job)?.is_empty()
        {
            continue;
        }
        if job.index.needs_key_index() && job.collection.indexes().key_index().is_none() {
            let _changing = handle.engine.changing.lock();
            let key_index = new_key_index(&handle.engine, &job.collection, IndexState::Building)?;
            join(&handle.engine, &job.collection, None, Some(key_index))?;
        }
        if in_background {
            start(handle, vec![job])?;
        } else {
            // The progress contains the result.
            let _ = run(&handle.engine, &job);
        }
    }
    Ok(())
}

/// Adds a new index to its collection.
fn add(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    spec: IndexSpec,
    options: &BuildOptions,
) -> Result<Job> {
    let engine = &*handle.engine;
    let _changing = engine.changing.lock();
    engine.check_writable()?;
    collection.check_live()?;
    check_new_index(collection, &spec)?;
    add_tree(engine, collection, spec, None, options)
}

/// Adds an index to its collection that replaces the one of this name once it is ready.
fn add_beside(
    handle: &Handle,
    collection: &Arc<OpenCollection>,
    name: &str,
    options: &BuildOptions,
) -> Result<Job> {
    let engine = &*handle.engine;
    let _changing = engine.changing.lock();
    engine.check_writable()?;
    collection.check_live()?;
    let old = find_index(collection, name)?;
    let set = collection.indexes();
    set.extractor()?;
    if set.all().iter().any(|index| index.replaces.is_some() && index.name == name) {
        let what = format!("the index {name:?} is being rebuilt already");
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    if old.progress.state() != IndexState::Ready {
        // No query reads it; its builder has ended.
        old.progress.cancel();
    }
    add_tree(engine, collection, old.spec().clone(), Some(old.tree), options)
}

fn add_tree(
    engine: &Engine,
    collection: &Arc<OpenCollection>,
    spec: IndexSpec,
    replaces: Option<TreeId>,
    options: &BuildOptions,
) -> Result<Job> {
    // The key index is added first and dropped last: an index is never found without it.
    let mut key_index = None;
    if spec.validation() == ValidationStrategy::KeyIndex && collection.indexes().key_index().is_none() {
        key_index = Some(new_key_index(engine, collection, IndexState::Building)?);
    }
    let life = IndexLife { replaces, limits: options.limits(), ..IndexLife::begins(IndexState::Building) };
    let made = new_tree(engine, collection, &spec, life).and_then(|tree| {
        let keys = key_index.clone().or_else(|| collection.indexes().key_index().cloned());
        let owner = collection.indexes_guard().owner(collection.tree);
        let index = Index::new(spec, tree, Progress::building(), &owner, keys.as_deref())?;
        let mut index = engine.components.wrap(index, collection.tree);
        index.replaces = replaces;
        Ok(Arc::new(index))
    });
    let joined = made.and_then(|index| {
        join(engine, collection, Some(index.clone()), key_index.clone())?;
        Ok(index)
    });
    match joined {
        Ok(index) => Ok(Job { collection: collection.clone(), index, options: options.clone() }),
        Err(error) => {
            if let Some(key_index) = key_index {
                let _ = engine.drop_tree(key_index.tree);
            }
            Err(error)
        }
    }
}

/// Runs a build to its end in this thread. An index that could not be built is removed.
fn run_or_remove(engine: &Engine, job: &Job) -> Result<()> {
    let outcome = run(engine, job);
    if outcome.is_err() && !engine.is_closing() {
        // If that fails too, the next open continues the build.
        let _changing = engine.changing.lock();
        let _ = leave(engine, &job.collection, |index| index.tree == job.index.tree);
    }
    outcome
}

/// Runs builds in a thread of their own; in this one without background threads.
fn start(handle: &Handle, jobs: Vec<Job>) -> Result<()> {
    let engine = handle.engine.clone();
    let run = move || {
        for job in jobs {
            // The progress contains the result.
            let _ = run(&engine, &job);
        }
    };
    if !handle.engine.builds_in_background {
        run();
        return Ok(());
    }
    let builder = handle.engine.components.runtime.spawn("bolide-index", Box::new(run))?;
    let mut builders = handle.builders.lock();
    builders.retain(|builder| !builder.is_finished());
    builders.push(builder);
    Ok(())
}

/// Runs a build to its end and notes its result.
fn run(engine: &Engine, job: &Job) -> Result<()> {
    let runtime = &engine.components.runtime;
    let outcome = match job.index.progress.state() {
        IndexState::Ready => {
            job.index.progress.begin(runtime.now_micros(), 0);
            Ok(())
        }
        _ => caught(job, || fill_and_publish(engine, job)).map_err(|error| fill::name_end(engine, error)),
    };
    if let Err(problem) = &outcome {
        engine.isolate_damaged(&job.collection, problem);
        // After a panic here the next open builds the index again, or fails in the same way.
        let _ = caught(job, || {
            give_up(engine, job, problem);
            Ok(())
        });
    }
    // The index answers already: an error that stops the rewriting of old sstables does not affect it.
    let rewritten = if outcome.is_ok() { caught(job, || rewrite::old_sstables(engine, job)) } else { Ok(()) };
    job.index.progress.end(runtime.now_micros(), &outcome);
    let ends_early = |problem: &Error| matches!(problem.kind(), ErrorKind::Closed | ErrorKind::Conflict);
    if let Some(problem) = rewritten.err().filter(|problem| !ends_early(problem)) {
        job.index.progress.note_problem(problem);
    }
    outcome
}

fn fill_and_publish(engine: &Engine, job: &Job) -> Result<()> {
    let Job { collection, index, options } = job;
    let now = engine.components.runtime.now_micros();
    index.progress.begin(now, expected_records(engine, collection.tree));
    if index.needs_key_index() {
        fill_key_index(engine, job)?;
    }
    match (index.is_in_sstables(), index.replaces) {
        (false, _) => Fill::new(engine, collection, index, index, options).run()?,
        // Queries read sstables without its blocks completely, so there is nothing to wait for.
        (true, None) => {}
        // A rebuild is requested for new blocks, which a full compaction writes.
        (true, Some(_)) => engine.store.compact(collection.tree)?,
    }
    publish(engine, job, index)
}

/// Fills the key index of the collection, unless it is complete.
fn fill_key_index(engine: &Engine, job: &Job) -> Result<()> {
    let Job { collection, index, options } = job;
    // Of two builds that need it the second waits for the first, or continues if the first stopped.
    let _filling = collection.filling_keys.lock();
    // Even if the database is closing: each opening completes at least one batch.
    check_in_use(collection, index)?;
    let set = collection.indexes();
    let keys = set.key_index().ok_or_else(|| Error::internal("an index lacks the key index it needs"))?;
    if keys.progress.state() == IndexState::Ready {
        return Ok(());
    }
    if let Some(damage) = keys.progress.damage() {
        return Err(damage.context("the key index is damaged; the next opening for writing rebuilds it"));
    }
    Fill::new(engine, collection, index, keys, options).run()?;
    publish(engine, job, keys)
}

/// Lets queries use `index`, and removes the one that it replaces.
fn publish(engine: &Engine, job: &Job, index: &Arc<Index>) -> Result<()> {
    let Job { collection, index: wanted, options } = job;
    let _changing = engine.changing.lock();
    // Even if the database is closing, which waits for this.
    check_in_use(collection, wanted)?;
    check_in_use(collection, index)?;
    engine.attach_external_tree(collection, index)?;
    // A write of its own, of a key that no entry has: views that were created during the back-fill must not have the
    // number that the index is complete since. (A key index may have that key: a record may.)
    let mut barrier = StoreBatch::new();
    barrier.delete(wanted.tree, b"")?;
    engine.store.commit(barrier, None, SyncMode::None)?;
    // The descriptor must not become durable before the entries that it covers.
    engine.store.sync()?;
    // An index in the sstables finds every existing record, however old.
    let since = if index.is_in_sstables() { 0 } else { engine.store.published_sequence() };
    let done = index.progress.done();
    // Some sstables may still be without its blocks.
    let limits = if index.hooks.rewrites_sstables() { options.limits() } else { (0, 0) };
    let life = IndexLife { since, done, limits, ..IndexLife::begins(IndexState::Ready) };
    let descriptor = encode_life(collection, index, life);
    match index.replaces {
        Some(old) => replace_old(engine, collection, index, old, &descriptor, since),
        None => {
            engine.store.set_descriptor(index.tree, &descriptor)?;
            index.progress.publish(since);
            Ok(())
        }
    }
}

/// Replaces the index in the tree `old` by `index`, in memory and in the manifest, or in neither.
fn replace_old(
    engine: &Engine,
    collection: &OpenCollection,
    index: &Arc<Index>,
    old: TreeId,
    descriptor: &[u8],
    since: SequenceNumber,
) -> Result<()> {
    let swap = |other: &Arc<Index>| match other.tree {
        tree if tree == old => None,
        tree if tree == index.tree => Some(Arc::new(other.in_place())),
        _ => Some(other.clone()),
    };
    let replace = |indexes: Vec<Arc<Index>>| {
        let set = collection.indexes().with_indexes(indexes)?;
        put_in_use(engine, collection, set)
    };
    // Held to the end: if the manifest cannot be written, the old index is restored and must not have missed a write.
    let _schema = engine.schema.write();
    let before = collection.indexes();
    index.progress.publish(since);
    replace(before.all().iter().filter_map(swap).collect())?;
    // From here on no commit in progress has an entry for the old tree: see `crate::schema`. One edit: with two, a
    // crash in between would leave both, the old one without the writes since.
    if let Err(error) = engine.drop_tree_for(old, index.tree, descriptor) {
        replace(before.all().to_vec())?;
        return Err(error);
    }
    engine.store.remove_attachments(collection.tree, old.into())
}

/// Notes durably that a build failed for good; the next open resumes other builds.
fn give_up(engine: &Engine, job: &Job, problem: &Error) {
    let Job { collection, index, .. } = job;
    let _changing = engine.changing.lock();
    if check_wanted(engine, collection, index).is_err() {
        return;
    }
    if let Some(old) = index.replaces {
        // The old index stays in use; it reports the failure.
        let set = collection.indexes();
        if let Some(old) = set.all().iter().find(|other| other.tree == old) {
            old.progress.note_problem(problem.clone());
        }
        if is_about_records(problem) {
            let _ = leave(engine, collection, |other| other.tree == index.tree);
        }
        return;
    }
    if is_about_records(problem) {
        let life = IndexLife {
            done: index.progress.done(),
            problem: problem.to_string(),
            ..IndexLife::begins(IndexState::Failed)
        };
        // If that fails too, the next open tries again.
        let _ = engine.store.set_descriptor(index.tree, &encode_life(collection, index, life));
    }
}

/// The estimated number of records of `table`: deleted and replaced ones count until they are compacted away.
fn expected_records(engine: &Engine, table: TreeId) -> u64 {
    let stats = engine.store.stats();
    let Some(tree) = stats.trees.iter().find(|tree| tree.tree == table) else { return 0 };
    let tombstones: u64 = tree.levels.iter().map(|level| level.tombstones).sum();
    tree.entries().saturating_sub(tombstones)
}

/// Checks that this index can be added to `collection`.
pub(crate) fn check_new_index(collection: &OpenCollection, spec: &IndexSpec) -> Result<()> {
    let indexes = collection.indexes_guard();
    check_spec(spec)?;
    indexes.extractor()?;
    if indexes.all().iter().any(|index| index.name == spec.name()) {
        let what = format!("the collection {:?} has an index {:?} already", collection.name, spec.name());
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    check_count(indexes.all().len() + 1)
}

/// Checks the number of indexes of a collection.
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

/// Creates the tree of an index.
pub(crate) fn new_tree(
    engine: &Engine,
    collection: &OpenCollection,
    spec: &IndexSpec,
    life: IndexLife,
) -> Result<TreeId> {
    let (options, descriptor) = index_tree(table_options(engine, collection)?, collection.tree, spec, life);
    engine.store.create_tree(options, &descriptor)
}

/// Creates the tree of a key index.
pub(crate) fn new_key_index(
    engine: &Engine,
    collection: &OpenCollection,
    state: IndexState,
) -> Result<Arc<Index>> {
    let descriptor = key_index_descriptor(collection.tree, state);
    let tree = engine.store.create_tree(table_options(engine, collection)?, &descriptor)?;
    Index::of_keys(tree, Progress::of(&IndexLife::begins(state))).map(Arc::new)
}

/// The options of index trees: layout and compression of their table.
pub(crate) fn table_options(engine: &Engine, collection: &OpenCollection) -> Result<TreeOptions> {
    engine.store.tree_options(collection.tree).map_err(|_| Error::internal("a collection has no tree"))
}

/// The descriptor of `index`, or of the key index, in this state.
pub(crate) fn encode_life(collection: &OpenCollection, index: &Index, life: IndexLife) -> Vec<u8> {
    if index.is_key_index {
        return KeyIndexDescriptor { owner: collection.tree, life }.encode();
    }
    index_descriptor(collection.tree, index.spec(), life)
}

/// Lets writers derive entries for `index`, and for its key index if that is new.
fn join(
    engine: &Engine,
    collection: &OpenCollection,
    index: Option<Arc<Index>>,
    key_index: Option<Arc<Index>>,
) -> Result<()> {
    if let Some(index) = &index {
        index.hooks.install(&engine.store, collection.tree)?;
    }
    let _schema = engine.schema.write();
    let set = collection.indexes();
    let all = set.all().iter().cloned().chain(index).collect();
    let set = set.with_indexes(all)?;
    let key_index = key_index.or_else(|| set.key_index().cloned());
    put_in_use(engine, collection, set.with_key_index(key_index))
}

/// Lets writers and queries use `set`. The caller holds the schema lock.
fn put_in_use(engine: &Engine, collection: &OpenCollection, set: IndexSet) -> Result<()> {
    set.install_collectors(&engine.store, collection.tree, &engine.repairs)?;
    collection.replace_indexes(set);
    Ok(())
}

/// Removes the indexes selected by `leaves` from their collection and drops their trees. The caller holds the lock for
/// changes of the schema.
fn leave(engine: &Engine, collection: &OpenCollection, leaves: impl Fn(&Index) -> bool) -> Result<()> {
    // Held to the end: if a tree cannot be dropped, its index is restored and must not have missed a write.
    let _schema = engine.schema.write();
    let set = collection.indexes();
    let (mut gone, staying): (Vec<_>, Vec<_>) = set.all().iter().cloned().partition(|index| leaves(index));
    gone.iter().for_each(|index| index.progress.cancel());
    // A rebuilt index is dropped before the one it was to replace: a crash in between then restores the old state.
    gone.sort_by_key(|index| index.replaces.is_none());
    let keys_stay = staying.iter().any(|index| index.needs_key_index());
    let key_index = set.key_index().filter(|_| !keys_stay).cloned();
    let replace = |indexes: Vec<Arc<Index>>, key_index: Option<Arc<Index>>| {
        let set: IndexSet = set.with_indexes(indexes)?;
        put_in_use(engine, collection, set.with_key_index(key_index))
    };
    replace(staying, if keys_stay { set.key_index().cloned() } else { None })?;
    // From here on no commit in progress has an entry for these trees: see `crate::schema`.
    let mut dropped = Vec::new();
    for index in gone.iter().chain(&key_index) {
        index.progress.cancel();
        let outcome = engine
            .store
            .remove_attachments(collection.tree, index.tree.into())
            .and_then(|()| engine.drop_tree(index.tree));
        if let Err(error) = outcome {
            let is_there = |index: &&Arc<Index>| !dropped.contains(&index.tree);
            replace(set.all().iter().filter(is_there).cloned().collect(), set.key_index().cloned())?;
            return Err(error);
        }
        dropped.push(index.tree);
    }
    Ok(())
}
