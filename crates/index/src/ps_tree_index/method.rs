//! The method of the kind `ps-tree`.
//!
//! Such an index has a tree like every other. During the build its entries go there, by the rules of every build. When the
//! build is complete, an external tree is attached, which receives all later writes of the tree. An opening creates the
//! external tree from what the manifest names, before anything is written.

use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_lsm::Store;
use bolide_lsm::store::TreeReader;

use super::compaction_filter::SpilledEntryFilter;
use super::deferred::{DeferredBackend, PsTreeOpener};
use super::region_location::{RegionMemory, is_in_place};
use super::{DeletedRanges, PsTreeBackend, PsTreeIndex, RegionLocation, file_in_place, is_file_in_place};
use crate::figures::Figures;
use crate::hooks::{DatabaseLocation, IndexHooks};
use crate::method::{IndexMethod, IndexParts, OwnFiles};
use crate::secondary_index::SecondaryIndex;
use crate::spec::{IndexSpec, KindProperties, RegionPlace};
use crate::standalone::composite::stale_entry_filter;

/// The kind `ps-tree`.
pub(crate) static PS_TREE: IndexMethod = IndexMethod {
    own_files: Some(OwnFiles { of_root: file_in_place, is_own: is_file_in_place }),
    ..IndexMethod::new(PROPERTIES, |new| Ok(IndexParts::of(PsTreeIndex::new(new.spec, new.tree))))
};

const PROPERTIES: KindProperties = KindProperties {
    covers_key: true,
    validation: Some("version-table"),
    ..KindProperties::with_tree("ps-tree", &["include", "skey", "region", "page_bytes", "memory"])
};

/// The deleted ranges of a collection.
#[derive(Debug)]
struct RangesOf {
    records: TreeReader,
}

impl DeletedRanges for RangesOf {
    fn newest(&self, primary_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        self.records.newest_range_tombstone_at(primary_key, at)
    }

    fn newest_of_all(&self) -> SequenceNumber {
        self.records.newest_range_tombstone_of_all()
    }

    fn are_there(&self) -> bool {
        self.records.has_range_tombstones()
    }
}

impl PsTreeIndex {
    fn region_location(
        &self,
        store: &Store,
        table: TreeId,
        location: DatabaseLocation<'_>,
    ) -> Result<RegionLocation> {
        let DatabaseLocation { vfs, runtime, dir, dax_dir, collection } = location;
        let name = format!("{collection}.{}", self.declaration().name());
        let memory = RegionMemory { budget: store.memory_budget().clone(), name: name.into() };
        Ok(RegionLocation {
            vfs: vfs.clone(),
            runtime: runtime.clone(),
            dir: dir.to_owned(),
            dax_dir: dax_dir.map(ToOwned::to_owned),
            database_id: store.database_id(),
            seed: runtime.random_u64(),
            tag: runtime.random_u64().max(1),
            read_only: store.options().read_only,
            deleted: Arc::new(RangesOf { records: store.tree_reader(table)? }),
            memory,
            durable: self.durable.clone(),
        })
    }

    fn declaration(&self) -> &IndexSpec {
        SecondaryIndex::<bolide_lsm::ReadView>::spec(self)
    }
}

impl IndexHooks for PsTreeIndex {
    /// The external tree collects garbage itself; tombstones of deleted ranges wait for that.
    fn install(&self, store: &Store, table: TreeId) -> Result<()> {
        if self.declaration().region() != RegionPlace::Dax {
            // Only saves space: spilled entries are validated at the records.
            let entries = stale_entry_filter(self.declaration(), store.tree_reader(table)?);
            let filter = SpilledEntryFilter { entries, durable: self.durable.clone() };
            store.set_compaction_filter(self.tree, Arc::new(filter))?;
        }
        store.add_dependent(table, self.tree)
    }

    fn attach(&self, store: &Store, table: TreeId, location: DatabaseLocation<'_>) -> Result<()> {
        if self.backend().is_some() {
            return Ok(());
        }
        let location = self.region_location(store, table, location)?;
        let root = store.external_root(self.tree);
        let name_root = |root| store.name_external_root(self.tree, root);
        let backend =
            PsTreeBackend::open(self.declaration(), self.tree, root.as_deref(), &location, &name_root)?;
        let backend = Arc::new(backend);
        store.set_external_tree(self.tree, backend.clone())?;
        self.attach_backend(backend)
    }

    /// A region on persistent memory is attached at once: it is mapped, and may have to be reclaimed.
    fn attach_when_needed(
        &self,
        store: &Store,
        table: TreeId,
        location: DatabaseLocation<'_>,
    ) -> Result<bool> {
        let is_in_place = store.external_root(self.tree).is_some_and(|root| is_in_place(&root));
        if is_in_place || self.declaration().region() == RegionPlace::Dax {
            return Ok(false);
        }
        let location = self.region_location(store, table, location)?;
        let opener = Arc::new(PsTreeOpener::new(self.declaration().clone(), self.tree, location));
        let external_tree = store.defer_external_tree(self.tree, opener.clone())?;
        let deferred = DeferredBackend { opener, external_tree };
        let attached_twice = |_| Error::internal("an index of kind ps-tree was attached twice");
        self.deferred.set(deferred).map_err(attached_twice)?;
        Ok(true)
    }

    fn needs_reclaim(&self) -> bool {
        self.backend().is_some_and(|backend| backend.needs_reclaim())
    }

    fn reclaim(&self) -> Result<()> {
        self.backend().map_or(Ok(()), |backend| backend.reclaim().map(drop))
    }

    /// Nothing has to be sampled: the keys with obsolete entries are counted.
    fn stale_share(&self) -> Option<Option<f64>> {
        let backend = self.backend()?;
        let (entries, obsolete) = (backend.tree().counts().1, backend.versions().stats().keys);
        Some((entries > 0).then(|| (obsolete as f64 / entries as f64).min(1.0)))
    }

    fn figures(&self, _store: &Store, _table: TreeId) -> Option<Figures> {
        self.backend().map(|backend| Figures::new(backend.figures()))
    }

    fn space(&self) -> Result<Option<Figures>> {
        self.backend().map(|backend| backend.tree().stats().map(Figures::new)).transpose()
    }
}
