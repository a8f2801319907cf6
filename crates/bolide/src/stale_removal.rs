//! Removes stale index entries that compactions of the records report (see [`crate::stale_deletions`]), with ordinary
//! commits: of a thread, or, without background threads, of writers before they write.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bolide_base::{ErrorKind, Result, TreeId};
use bolide_index::{Retraction, SecondaryIndex, StaleEntry};
use bolide_lsm::{CommitStage, ReadView, StoreBatch, SyncMode};

use crate::handle::{Engine, Handle};
use crate::index_writes::StagedWrites;
use crate::schema::OpenCollection;
use crate::stale_deletions::{Stale, repairs};

/// The interval at which the thread checks whether the database is being closed.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Engine {
    /// Removes all pending stale entries. The caller must not hold the schema lock.
    ///
    /// # Errors
    /// As any commit; deletions that were not committed stay pending.
    pub(crate) fn commit_repairs(&self) -> Result<()> {
        let _committing = self.repairs.committing.lock();
        while self.repairs.is_due() {
            // Held until the commit is done: no tree is dropped meanwhile.
            let schema = self.schema.read();
            let stale = self.repairs.take();
            let mut indexes = HashMap::new();
            for collection in schema.values() {
                // Deletions of a damaged index are dropped: its rebuild has no stale entries.
                let set = collection.indexes();
                for index in set.all().iter().filter(|index| index.progress.damage().is_none()) {
                    indexes.insert(index.tree, (index.structure.clone(), collection.tree));
                }
            }
            if let Err(error) = self.commit_stale(&stale, &indexes) {
                self.repairs.add(stale);
                let collections: Vec<_> = schema.values().cloned().collect();
                drop(schema);
                let isolate = |collection| self.isolate_damaged(collection, &error);
                // The next attempt skips the index.
                collections.iter().for_each(|collection| _ = isolate(collection));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes `stale` from its indexes. If pieces of lists are too long to be rewritten together, they are rewritten
    /// in several commits; a piece that is too long alone retains its stale postings.
    fn commit_stale(&self, stale: &[Stale], indexes: &Indexes) -> Result<()> {
        let stage = RemovalStage::new(stale, indexes);
        let Some(tree) = stage.of_indexes.first().map(|(index, ..)| index.trees()).and_then(<[_]>::first)
        else {
            return Ok(());
        };
        let mut batch = StoreBatch::new();
        // No entry has this key: the delete only takes the sequence number of all writes of the batch.
        batch.delete(*tree, &[])?;
        match self.store.commit(batch, Some(Box::new(stage)), SyncMode::None) {
            Err(error) if error.kind() == ErrorKind::LimitExceeded => {
                let (first, second) = stale.split_at(stale.len() / 2);
                if first.is_empty() {
                    return Ok(());
                }
                self.commit_stale(first, indexes)?;
                self.commit_stale(second, indexes)
            }
            committed => committed.map(drop),
        }
    }
}

type IndexStructure = Arc<dyn SecondaryIndex<ReadView>>;

/// The indexes of a database by their trees, with the trees of the records.
type Indexes = HashMap<TreeId, (IndexStructure, TreeId)>;

/// Removes stale entries from their indexes, inside a commit.
struct RemovalStage {
    /// Each index with the tree of its records and its entries.
    of_indexes: Vec<(IndexStructure, TreeId, Vec<StaleEntry>)>,
}

impl RemovalStage {
    /// Entries of dropped indexes are skipped.
    fn new(stale: &[Stale], indexes: &Indexes) -> Self {
        let mut by_tree: BTreeMap<TreeId, Vec<StaleEntry>> = BTreeMap::new();
        for (tree, entry) in stale {
            by_tree.entry(*tree).or_default().push(entry.clone());
        }
        let of_indexes = by_tree.into_iter().filter_map(|(tree, mut entries)| {
            let (index, table) = indexes.get(&tree)?;
            entries.sort_unstable();
            entries.dedup();
            Some((index.clone(), *table, entries))
        });
        Self { of_indexes: of_indexes.collect() }
    }
}

impl CommitStage for RemovalStage {
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        let sequence = batch.first_sequence();
        for (index, table, stale) in &self.of_indexes {
            let mut out = StagedWrites { batch, sequence, key: Vec::new() };
            index.retract(&Retraction { table: *table, sequence, stale }, view, &mut out)?;
        }
        Ok(())
    }
}

/// Starts the thread that removes stale entries, if an index of the database needs it and it is not running. Without
/// background threads writers remove them before they write.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn start(handle: &Handle) -> Result<()> {
    let engine = &handle.engine;
    if engine.read_only || !engine.builds_in_background {
        return Ok(());
    }
    let wanted = engine.schema.read().values().any(|collection| has_repairs(collection));
    if !wanted || engine.repairs.has_thread.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let engine = engine.clone();
    let runtime = engine.components.runtime.clone();
    let thread = runtime.spawn("bolide-repair", Box::new(move || run(&engine)))?;
    handle.builders.lock().push(thread);
    Ok(())
}

/// Whether compactions of `collection` report stale entries of an index.
pub(crate) fn has_repairs(collection: &OpenCollection) -> bool {
    collection.indexes_guard().all().iter().any(|index| repairs(index.spec()))
}

fn run(engine: &Engine) {
    while !engine.is_closing() {
        // Failed deletions stay pending. After a panic the stale entries stay in the index.
        let committed =
            engine.background_errors.watch("removing stale index entries", || engine.commit_repairs());
        let failed = committed.is_none();
        if !engine.is_closing() {
            engine.repairs.wait(failed, CHECK_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::{Error, limits::MAX_BATCH_BYTES};
    use bolide_index::candidate::CandidateCursor;
    use bolide_index::check::{CheckedTable, IndexCheck};
    use bolide_index::validation::{PrimaryValidator, Validator};
    use bolide_index::{Access, IndexSpec, IndexWrites, IndexedRecord, Order};
    use bolide_lsm::TreeView;
    use parking_lot::Mutex;

    use super::*;
    use crate::{CollectionOptions, Components, Db, Options};

    /// Removes entries in batches of at most two, and never the entry of the write 3.
    #[derive(Debug)]
    struct SmallBatches {
        spec: IndexSpec,
        tree: [TreeId; 1],
        removed: Mutex<Vec<u64>>,
    }

    impl SecondaryIndex<ReadView> for SmallBatches {
        fn spec(&self) -> &IndexSpec {
            &self.spec
        }

        fn trees(&self) -> &[TreeId] {
            &self.tree
        }

        fn derive(&self, _: &IndexedRecord<'_>, _: &mut Vec<u8>, _: &mut dyn IndexWrites) -> Result<()> {
            Ok(())
        }

        fn retract(&self, batch: &Retraction<'_>, _: &ReadView, _: &mut dyn IndexWrites) -> Result<()> {
            if batch.stale.len() > 2 || batch.stale.iter().any(|entry| entry.sequence == 3) {
                return Err(Error::limit_exceeded("a batch in bytes", u64::MAX, MAX_BATCH_BYTES as u64));
            }
            self.removed.lock().extend(batch.stale.iter().map(|entry| entry.sequence));
            Ok(())
        }

        fn candidates<'v>(
            &'v self,
            _: &'v Access,
            _: Order,
            _: &'v ReadView,
        ) -> Result<Box<dyn CandidateCursor + 'v>> {
            Err(Error::internal("no query is expected"))
        }

        fn validator(&self) -> &dyn Validator<TreeView> {
            &PrimaryValidator
        }

        fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_removal_too_large_for_one_commit_is_split() -> Result<()> {
        let options = Options::default().background_threads(0);
        let db = Db::open_with("db", options, Components::in_memory())?;
        db.create_collection("c", CollectionOptions::json().index("a".parse()?))?;
        let engine = &db.handle.engine;
        let (table, tree) = {
            let schema = engine.schema.read();
            let collection = schema.values().next().ok_or_else(|| Error::internal("no collection"))?;
            (collection.tree, collection.indexes().all()[0].tree)
        };
        let index = Arc::new(SmallBatches { spec: "a".parse()?, tree: [tree], removed: Mutex::default() });
        let indexes = Indexes::from([(tree, (index.clone() as IndexStructure, table))]);
        let stale = |sequence| (tree, StaleEntry { key: b"list"[..].into(), sequence });
        engine.commit_stale(&(0..7).map(stale).collect::<Vec<_>>(), &indexes)?;
        let mut removed = index.removed.lock().clone();
        removed.sort_unstable();
        assert_eq!(removed, [0, 1, 2, 4, 5, 6]);
        Ok(())
    }
}
