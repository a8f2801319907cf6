//! The indexes of one collection, and the index writes that a write of a record causes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::technique::Technique;
use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_index::hooks::IndexHooks;
use bolide_index::method::{IndexMethod, IndexParts, NewIndex};
use bolide_index::{
    AttributeExtractor, AttributePath, AttributePlan, AttributeValues, DeletedRange, IndexSpec,
    IndexedRecord, JsonExtractor, KeyIndex, SecondaryIndex, StagedBatch, StagedChange, ValidationStrategy,
    ValueSlot, slots_of,
};
use bolide_lsm::{Operation, PlacedOperation, ReadView, Store, StoreBatch};

use crate::catalog::RecordKind;
use crate::index_writes::{DerivedWrites, StagedWrites};
use crate::owner::{Owner, install_collectors};
use crate::progress::Progress;
use crate::stale_deletions::{self, Repairs};

/// One index of an open database.
pub(crate) struct Index {
    pub(crate) name: String,
    /// The name, for query statistics.
    pub(crate) public_name: Arc<str>,
    pub(crate) tree: TreeId,
    pub(crate) structure: Arc<dyn SecondaryIndex<ReadView>>,
    pub(crate) progress: Arc<Progress>,
    /// The tree of the index of the same name that this one replaces once it is ready. Until then only writers use it.
    pub(crate) replaces: Option<TreeId>,
    /// Whether it is the key index of its collection.
    pub(crate) is_key_index: bool,
    /// Its work on the store.
    pub(crate) hooks: Arc<dyn IndexHooks>,
}

/// Refuses what this version does not support, before anything is created for it.
///
/// # Errors
/// `Unsupported` for a kind or a setting that this version does not have, `InvalidInput` for a kind that its attributes
/// cannot have.
pub(crate) fn check_available(spec: &IndexSpec) -> Result<()> {
    spec.check_kind()?;
    (IndexMethod::find(spec.kind())?.check)(spec)
}

impl Index {
    /// The index of `owner` that `spec` declares, with its entries in `tree`. (An index in sstables has no entries
    /// there: the tree is its entry in the catalogue.) `keys` is the key index of the collection, if it has one.
    ///
    /// # Errors
    /// `Unsupported` for a kind that this version does not have.
    pub(crate) fn new(
        spec: IndexSpec,
        tree: TreeId,
        progress: Progress,
        owner: &Owner,
        keys: Option<&Self>,
    ) -> Result<Self> {
        let name = spec.name().to_owned();
        let new = NewIndex {
            spec: spec.clone(),
            tree,
            table: owner.table,
            extractor: owner.extractor.clone(),
            key_index: keys.map(|keys| keys.tree),
        };
        let parts = (IndexMethod::find(spec.kind())?.create)(new)?;
        Ok(Self::of(name, tree, parts, progress))
    }

    fn of(name: String, tree: TreeId, parts: IndexParts, progress: Progress) -> Self {
        Self {
            public_name: name.as_str().into(),
            name,
            tree,
            structure: parts.index,
            hooks: parts.hooks,
            progress: Arc::new(progress),
            replaces: None,
            is_key_index: false,
        }
    }

    /// The key index of a collection, in `tree`.
    ///
    /// # Errors
    /// Never, as long as its built-in declaration is valid.
    pub(crate) fn of_keys(tree: TreeId, progress: Progress) -> Result<Self> {
        let parts = IndexParts::of(KeyIndex::new(tree)?);
        let name = parts.index.spec().name().to_owned();
        Ok(Self { is_key_index: true, ..Self::of(name, tree, parts, progress) })
    }

    /// The same index after it has replaced its predecessor.
    pub(crate) fn in_place(&self) -> Self {
        Self {
            name: self.name.clone(),
            public_name: self.public_name.clone(),
            tree: self.tree,
            structure: self.structure.clone(),
            progress: self.progress.clone(),
            replaces: None,
            is_key_index: self.is_key_index,
            hooks: self.hooks.clone(),
        }
    }

    pub(crate) fn spec(&self) -> &IndexSpec {
        self.structure.spec()
    }

    /// Whether it is in the sstables of the records, and has no tree of its own.
    pub(crate) fn is_in_sstables(&self) -> bool {
        !self.spec().kind().has_tree()
    }

    /// Whether it validates by the key index of its collection.
    pub(crate) fn needs_key_index(&self) -> bool {
        self.spec().validation() == ValidationStrategy::KeyIndex && !self.is_key_index
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("spec", &self.spec().to_string())
            .field("tree", &self.tree)
            .field("progress", &self.progress)
            .finish()
    }
}

/// All indexes of a collection at one moment, with the extractor of their attributes. Immutable.
#[derive(Debug)]
pub(crate) struct IndexSet {
    records: RecordKind,
    /// `None` for records of bytes without an extractor of the program.
    extractor: Option<Arc<dyn AttributeExtractor>>,
    /// The attributes of all indexes, extracted in one pass.
    pub(crate) plan: AttributePlan,
    indexes: Vec<Arc<Index>>,
    /// The slots in the plan of the attributes of each index.
    slots: Vec<Vec<ValueSlot>>,
    /// Whether there are indexes, none of which derives entries from a record that is put, or combines its attributes
    /// to an unbounded number of keys.
    derives_nothing: bool,
    /// Whether some index works inside the commit.
    needs_stage: bool,
    /// Whether some index needs the records that a batch replaces.
    needs_old_records: bool,
    /// Whether some index needs deletes.
    needs_deletes: bool,
    /// The tree of primary keys and sequence numbers alone, if some index validates by it.
    key_index: Option<Arc<Index>>,
    /// Malformed records that builds and writes of indexes skipped since the database was opened.
    malformed: Arc<AtomicU64>,
}

/// Reused memory for extraction.
#[derive(Default)]
struct Scratch {
    values: AttributeValues,
    key: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs `work` with the thread's scratch memory; with fresh memory if an extractor calls back.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => work(&mut scratch),
        Err(_) => work(&mut Scratch::default()),
    })
}

impl IndexSet {
    /// The indexes of a collection whose records are `records`; `extractor` is the program's own, for
    /// records of bytes.
    pub(crate) fn new(
        records: RecordKind,
        extractor: Option<Arc<dyn AttributeExtractor>>,
        indexes: Vec<Arc<Index>>,
    ) -> Result<Self> {
        let plan = AttributePlan::new(indexes.iter().flat_map(|index| index.spec().paths().cloned()));
        let slots = indexes.iter().map(|index| slots_of(index.spec(), &plan)).collect::<Result<_>>()?;
        let is_lean = |index: &Arc<Index>| {
            let derives = !index.is_in_sstables() && index.structure.derives();
            !derives && index.spec().attributes().len() == 1
        };
        let derives_nothing = !indexes.is_empty() && indexes.iter().all(is_lean);
        let needs_stage = indexes.iter().any(|index| index.structure.needs_stage());
        let needs_old_records = indexes.iter().any(|index| index.structure.needs_old_records());
        let Owner { extractor, .. } = Owner::new(0, records, extractor);
        let needs_deletes = indexes.iter().any(|index| index.structure.needs_deletes());
        Ok(Self {
            records,
            extractor,
            plan,
            indexes,
            slots,
            derives_nothing,
            needs_stage,
            needs_old_records,
            needs_deletes,
            key_index: None,
            malformed: Arc::default(),
        })
    }

    /// The same collection with other indexes.
    pub(crate) fn with_indexes(&self, indexes: Vec<Arc<Index>>) -> Result<Self> {
        let mut set = Self::new(self.records, self.extractor.clone(), indexes)?;
        set.malformed = self.malformed.clone();
        Ok(set.with_key_index(self.key_index.clone()))
    }

    /// The same collection with this key index, or without one.
    pub(crate) fn with_key_index(mut self, key_index: Option<Arc<Index>>) -> Self {
        self.key_index = key_index;
        self
    }

    /// The key index of the collection, if it has one.
    pub(crate) fn key_index(&self) -> Option<&Arc<Index>> {
        self.key_index.as_ref()
    }

    /// The tree of the key index.
    #[inline]
    pub(crate) fn key_tree(&self) -> Option<TreeId> {
        self.key_index.as_ref().map(|index| index.tree)
    }

    /// The indexes that are visible to the user: one that is being rebuilt is listed once.
    pub(crate) fn visible(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().filter(|index| index.replaces.is_none())
    }

    /// The one index that serves predicates on the attribute at `path` for a view at `sequence`; `None` if there are
    /// several, or if it has further attributes.
    #[inline]
    pub(crate) fn only_index_on(
        &self,
        path: &AttributePath,
        sequence: SequenceNumber,
    ) -> Option<&Arc<Index>> {
        let serves = |index: &&Arc<Index>| {
            index.replaces.is_none()
                && index.spec().attributes().first() == Some(path)
                && index.progress.serves(sequence)
        };
        let mut serving = self.indexes.iter().filter(serves);
        let only = serving.next().filter(|index| index.spec().attributes().len() == 1)?;
        (serving.next().is_none() && self.extractor.is_some()).then_some(only)
    }

    /// The index that is being built to replace the one in `tree`.
    pub(crate) fn successor(&self, tree: TreeId) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.replaces == Some(tree))
    }

    pub(crate) fn all(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// Whether writes need not read the records at all.
    #[inline]
    pub(crate) fn is_blind(&self) -> bool {
        self.indexes.is_empty() && self.records == RecordKind::Bytes
    }

    /// Whether a put of `record` writes nothing but the record: no index reads it, or it is well-formed and the indexes
    /// are built from it later, when sstables are written.
    ///
    /// # Errors
    /// As [`derive`](Self::derive).
    #[inline]
    pub(crate) fn takes_alone(&self, record: &[u8]) -> Result<bool> {
        if !Technique::PutWithoutBatch.is_on() {
            return Ok(false);
        }
        if !self.derives_nothing {
            return Ok(self.is_blind());
        }
        Ok(!self.needs_stage && self.key_index.is_none() && self.extractor()?.accepts(record)?)
    }

    /// The counter of malformed records that builds and writes of indexes skip.
    pub(crate) fn malformed(&self) -> &Arc<AtomicU64> {
        &self.malformed
    }

    /// The extractor of the attributes, shared; that of JSON if there is [none](Self::extractor).
    pub(crate) fn shared_extractor(&self) -> Arc<dyn AttributeExtractor> {
        self.extractor.clone().unwrap_or_else(|| Arc::new(JsonExtractor))
    }

    /// Whether some index works inside the commit.
    pub(crate) fn needs_stage(&self) -> bool {
        self.needs_stage
    }

    /// Installs the collectors of meta blocks for indexes in sstables, and the reports of stale entries to `repairs`
    /// for indexes with `repair=primary-compaction`. Fails if `table` does not exist any more.
    pub(crate) fn install_collectors(
        &self,
        store: &Store,
        table: TreeId,
        repairs: &Arc<Repairs>,
    ) -> Result<()> {
        let structures = self.indexes.iter().map(|index| index.structure.clone()).collect();
        stale_deletions::listen(store, table, structures, self.owner(table).extractor, repairs)?;
        let indexes = self.indexes.iter().filter_map(|index| index.hooks.in_sstables()).collect();
        install_collectors(store, self.owner(table), indexes)
    }

    /// What the indexes of the collection in `table` depend on.
    pub(crate) fn owner(&self, table: TreeId) -> Owner {
        Owner { table, extractor: self.extractor.clone() }
    }

    /// The extractor of the attributes.
    ///
    /// # Errors
    /// `InvalidInput` for a collection of bytes without an extractor of the program.
    pub(crate) fn extractor(&self) -> Result<&dyn AttributeExtractor> {
        self.extractor.as_deref().ok_or_else(|| {
            Error::invalid_input(
                "the records are bytes and no extractor was given: open the database with \
                 Components::extractor for this collection",
            )
        })
    }

    /// Checks a record that is about to be put, and adds the entries that the indexes derive from it to `batch`, after
    /// the put itself.
    ///
    /// # Errors
    /// `InvalidInput` for a record that does not fit the collection; `LimitExceeded` for an attribute or a batch over
    /// its limit.
    pub(crate) fn derive(&self, key: &[u8], record: &[u8], batch: &mut StoreBatch) -> Result<()> {
        if self.is_blind() {
            return Ok(());
        }
        if self.derives_nothing && self.extractor()?.accepts(record)? {
            return Ok(());
        }
        self.with_indexed(key, record, None, |indexed, index, scratch| {
            index.derive(indexed, scratch, &mut DerivedWrites { batch })
        })
    }

    /// Adds the index entries of a delete of the record under `key` to `batch`, after the delete itself.
    ///
    /// # Errors
    /// `LimitExceeded` for a batch over its limit.
    pub(crate) fn derive_delete(&self, key: &[u8], batch: &mut StoreBatch) -> Result<()> {
        if !self.needs_deletes {
            return Ok(());
        }
        with_scratch(|scratch| {
            let knowing = self.indexes.iter().filter(|index| index.structure.needs_deletes());
            for index in knowing {
                index.structure.derive_delete(key, &mut scratch.key, &mut DerivedWrites { batch })?;
            }
            Ok(())
        })
    }

    /// Extracts the attributes of a record and calls `visit` for each index.
    fn with_indexed(
        &self,
        key: &[u8],
        record: &[u8],
        sequence: Option<SequenceNumber>,
        mut visit: impl FnMut(&IndexedRecord<'_>, &dyn SecondaryIndex<ReadView>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let extractor = self.extractor()?;
        with_scratch(|scratch| {
            extractor.extract(record, &self.plan, &mut scratch.values)?;
            for (index, slots) in self.indexes.iter().zip(&self.slots) {
                let indexed = IndexedRecord { primary_key: key, sequence, values: &scratch.values, slots };
                visit(&indexed, &*index.structure, &mut scratch.key)?;
            }
            Ok(())
        })
    }

    /// Whether some index needs the records that a batch replaces.
    pub(crate) fn needs_old_records(&self) -> bool {
        self.needs_old_records
    }

    /// Passes the changes of a batch to every index that works inside its commit.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; `LimitExceeded` if the batch grows over its limit.
    pub(crate) fn stage(
        &self,
        table: TreeId,
        changes: &[IndexSetChange<'_>],
        view: &ReadView,
        batch: &mut StoreBatch,
    ) -> Result<()> {
        let deleted = deleted_ranges(table, batch);
        let extracted: Vec<_> =
            changes.iter().map(|change| self.extract_change(change)).collect::<Result<_>>()?;
        let mut key = Vec::new();
        let mut staged = Vec::with_capacity(changes.len());
        for (index, slots) in self.indexes.iter().zip(&self.slots) {
            if !index.structure.needs_stage() || index.progress.is_abandoned() {
                continue;
            }
            staged.clear();
            staged.extend(changes.iter().zip(&extracted).map(|(change, (old, new))| {
                let indexed = |sequence, values| IndexedRecord {
                    primary_key: change.key,
                    sequence: Some(sequence),
                    values,
                    slots,
                };
                StagedChange {
                    sequence: change.sequence,
                    old: change.old.map(|(sequence, _)| indexed(sequence, old)),
                    new: change.new.map(|_| indexed(change.sequence, new)),
                }
            }));
            let mut out = StagedWrites { batch, sequence: 0, key: Vec::new() };
            let staged = StagedBatch { table, changes: &staged, deleted: &deleted };
            index.structure.stage(&staged, view, &mut key, &mut out)?;
        }
        Ok(())
    }

    /// The attributes of the old and of the new record. A malformed old record has none.
    fn extract_change(&self, change: &IndexSetChange<'_>) -> Result<(AttributeValues, AttributeValues)> {
        let extractor = self.extractor()?;
        let (mut old, mut new) = (AttributeValues::new(), AttributeValues::new());
        if let Some((_, record)) = change.old {
            let is_read = extractor.extract_stored(record, &self.plan, &mut old)?;
            self.malformed.fetch_add(u64::from(!is_read), Ordering::Relaxed);
        }
        if let Some(record) = change.new {
            extractor.extract(record, &self.plan, &mut new)?;
        }
        Ok((old, new))
    }
}

/// The ranges of `table` that `batch` deletes.
fn deleted_ranges(table: TreeId, batch: &StoreBatch) -> Vec<DeletedRange> {
    let range = |placed: PlacedOperation<'_>| match placed.operation {
        Operation::RangeDelete { start, end } if placed.tree == table => {
            Some(DeletedRange { start: start.to_vec(), end: end.to_vec(), sequence: placed.sequence })
        }
        _ => None,
    };
    batch.operations().filter_map(range).collect()
}

/// The change of one record by a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexSetChange<'r> {
    pub(crate) key: &'r [u8],
    /// The old record, with the sequence number of its write.
    pub(crate) old: Option<(SequenceNumber, &'r [u8])>,
    /// The new record; `None` for a delete.
    pub(crate) new: Option<&'r [u8]>,
    /// The sequence number of the write.
    pub(crate) sequence: SequenceNumber,
}
