//! Indexes whose files are damaged or missing.
//!
//! Only records are irreplaceable: an index can be built again from them. So damage of an index's own files never fails
//! an open, a read or a write of records.
//!
//! # Life of a damaged index
//! 1. **Detection.** An open finds that a file is missing, or that a region does not load; a query, a commit, a build,
//!    a check or a compaction reads a damaged sstable of the index's tree.
//! 2. **Isolation.** The state becomes [`IndexState::Damaged`], in memory and, if the database is open for writing, in
//!    its descriptor. Queries choose another plan. Once the descriptor is durable, commits that would read the index
//!    skip it.
//! 3. **Emptying.** The next opening empties its tree before the log is replayed ([`reset_tree`]): no sstable, no root,
//!    and no earlier write of the log. The tree is that of an index that was just created.
//! 4. **Build.** An opening for writing builds it as an interrupted build; see [`crate::index_build`]. An explicit
//!    rebuild creates a new tree instead.
//!
//! # Why replay does not make it look complete
//! The log contains index entries. Those from before the emptying are not replayed into the tree; those after it are
//! the writes to an index under construction. Its descriptor has the state *damaged* or *building* until the build is
//! published.
//!
//! # Key index
//! Indexes with `validation=key-index` depend on a shared tree. If that is damaged they are not used either: they are
//! built again after it, in trees that retain their entries, which a build writes again at the same keys and sequence
//! numbers.
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_lsm::Store;

use crate::catalog::{Descriptor, IndexLife, IndexState};
use crate::handle::{Collection, Engine};
use crate::index_build::options::BuildOptions;
use crate::index_build::{Job, encode_life};
use crate::index_set::Index;
use crate::schema::OpenCollection;

/// Advice for the user about a damaged index.
const ADVICE: &str = "open the database for writing, or rebuild the index from the records (`bolide index rebuild`, \
                      `Collection::rebuild_index`)";

/// Decides which trees are emptied: those of indexes with missing files, and of indexes whose descriptor is damaged.
/// See [`bolide_lsm::ResetTree`].
pub(crate) fn reset_tree(descriptor: &[u8], missing: Option<&Error>) -> Option<Vec<u8>> {
    match Descriptor::decode(0, descriptor).ok()? {
        Descriptor::Collection(_) => None,
        Descriptor::Index(mut found) => {
            found.life = emptied(found.life, &format!("the index {:?}", found.name), missing)?;
            Some(found.encode())
        }
        Descriptor::KeyIndex(mut found) => {
            found.life = emptied(found.life, "the key index", missing)?;
            Some(found.encode())
        }
    }
}

/// The life of an index whose tree is emptied; `None` if the tree stays.
fn emptied(life: IndexLife, name: &str, missing: Option<&Error>) -> Option<IndexLife> {
    let begins = |state| IndexLife {
        replaces: life.replaces,
        limits: life.limits,
        problem: life.problem.clone(),
        ..IndexLife::begins(state)
    };
    match (life.state, missing) {
        (IndexState::Damaged, _) => Some(begins(IndexState::Damaged)),
        (_, None) => None,
        (IndexState::Ready, Some(missing)) => {
            let problem = format!("{name} is damaged: {missing}; {ADVICE}");
            Some(IndexLife { problem, ..begins(IndexState::Damaged) })
        }
        (state @ (IndexState::Building | IndexState::Failed), Some(_)) => Some(begins(state)),
    }
}

/// Prepares the indexes of a collection that was just opened: those that are damaged, or depend on an incomplete key
/// index, are built again; with `read_only`, they are not used.
pub(crate) fn prepare(indexes: &[Arc<Index>], key_index: Option<&Index>, read_only: bool) {
    let unfinished_keys = key_index.filter(|keys| keys.progress.state() != IndexState::Ready);
    for index in indexes {
        let state = index.progress.state();
        let lacks_keys = unfinished_keys.is_some() && index.needs_key_index() && state == IndexState::Ready;
        match (state == IndexState::Damaged, lacks_keys) {
            (true, _) | (_, true) if !read_only => index.progress.build_again(),
            (_, true) => index.progress.isolate(lack_of_keys(index)),
            _ => {}
        }
    }
    if let Some(keys) = unfinished_keys.filter(|keys| !read_only && keys.progress.damage().is_some()) {
        keys.progress.build_again();
    }
}

fn lack_of_keys(index: &Index) -> Error {
    let what = format!("the index {:?} depends on the key index, which is damaged or incomplete", index.name);
    Error::new(ErrorKind::Corruption, format!("{what}: {ADVICE}"))
}

/// Empties the tree of an index whose region did not load, before the store is started. The caller starts its build.
///
/// # Errors
/// Those of [`Store::empty_tree`].
pub(crate) fn empty(store: &Store, collection: &OpenCollection, index: &Index, damage: Error) -> Result<()> {
    let damage = damage.context(format_args!("the index {:?} is damaged", index.name));
    store.empty_tree(index.tree, &damaged_descriptor(collection, index, &damage))?;
    index.progress.isolate(damage);
    index.progress.build_again();
    Ok(())
}

fn damaged_descriptor(collection: &OpenCollection, index: &Index, damage: &Error) -> Vec<u8> {
    let life = IndexLife {
        replaces: index.replaces,
        problem: damage.to_string(),
        ..IndexLife::begins(IndexState::Damaged)
    };
    encode_life(collection, index, life)
}

impl Job {
    /// The build of an earlier process, with its limits.
    pub(crate) fn resumed(collection: &Arc<OpenCollection>, index: &Arc<Index>, limits: (u64, u64)) -> Self {
        let options = BuildOptions::resumed(limits);
        Self { collection: collection.clone(), index: index.clone(), options }
    }
}

impl Collection {
    /// The answer of a single index; `None`, for the driver to answer, if the index is damaged.
    ///
    /// # Errors
    /// The error of the answer.
    #[inline]
    pub(crate) fn without_damaged<T>(&self, answer: Result<Option<T>>) -> Result<Option<T>> {
        match answer {
            Err(error) if self.handle.engine.isolate_damaged(&self.state, &error) => Ok(None),
            answer => answer,
        }
    }
}

impl Engine {
    /// Isolates the indexes of `collection` of which `error` names a damaged file, or for which background work found
    /// one. Returns true if one of them was in use. The caller must not hold the schema lock.
    ///
    /// Cost: reads the named sstable; nothing for other errors.
    #[cold]
    pub(crate) fn isolate_damaged(&self, collection: &OpenCollection, error: &Error) -> bool {
        // A damaged header is reported as an unknown file.
        let kinds = [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported];
        let is_damage = kinds.contains(&error.kind());
        if !is_damage || collection.check_live().is_err() {
            return false;
        }
        let set = collection.indexes();
        let own_tree = |index: &&Arc<Index>| !index.is_in_sstables() && index.progress.damage().is_none();
        let mut any = false;
        for index in set.all().iter().chain(set.key_index()).filter(own_tree) {
            let Some(damage) = self.store.damage_of(index.tree, error) else { continue };
            any |= self.isolate(collection, index, damage);
        }
        if set.key_index().is_some_and(|keys| keys.progress.damage().is_some()) {
            let depends = |index: &&Arc<Index>| index.needs_key_index() && index.progress.damage().is_none();
            set.all().iter().filter(depends).for_each(|index| index.progress.isolate(lack_of_keys(index)));
        }
        any
    }

    /// Fails if the index `name` of `collection` needs a key index whose sstables are damaged, and isolates that. The
    /// caller must not hold the schema lock.
    ///
    /// Cost: reads the key index, if the index needs one.
    pub(crate) fn check_key_index(&self, collection: &OpenCollection, name: &str) -> Result<()> {
        let set = collection.indexes();
        let needs_it = set.all().iter().any(|index| index.name == name && index.needs_key_index());
        let Some(keys) = set.key_index().filter(|_| needs_it) else { return Ok(()) };
        let Some(damage) = self.store.verify_tables(keys.tree).err() else { return Ok(()) };
        self.isolate_damaged(collection, &damage);
        let what = format_args!(
            "the index {name:?} needs the key index, which is damaged; the next opening for writing builds both again \
             (`bolide check --repair` waits for it)"
        );
        Err(damage.context(what))
    }

    /// Isolates `index`, durably if the database is open for writing. Returns false if it was isolated meanwhile.
    fn isolate(&self, collection: &OpenCollection, index: &Index, damage: Error) -> bool {
        let _changing = self.changing.lock();
        if index.progress.damage().is_some() {
            return false;
        }
        if index.progress.state() == IndexState::Building {
            // Its builder must not publish it.
            index.progress.cancel();
        }
        let damage = damage.context(format_args!("the index {:?} is damaged", index.name));
        let damage = Error::new(ErrorKind::Corruption, format!("{damage}; {ADVICE}"));
        index.progress.isolate(damage.clone());
        if !self.read_only {
            let descriptor = damaged_descriptor(collection, index, &damage);
            // If that fails, writes continue to maintain the index, and the next opening detects the damage again.
            if self.store.set_descriptor(index.tree, &descriptor).is_ok() {
                index.progress.abandon();
            }
        }
        true
    }
}
