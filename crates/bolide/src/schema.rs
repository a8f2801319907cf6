//! The collections and indexes of an open database.
//!
//! # How writers and builders agree on the indexes
//!
//! The indexes of a collection are one immutable [`IndexSet`], swapped as a whole. A writer derives the index entries
//! of its batch for the current set, and commits while it holds the schema lock for reading, after it has checked that
//! the set is still the same (otherwise it derives again). A thread that adds or drops an index swaps the set while it
//! holds the lock for writing. So no commit is in progress at a swap: every write before it is in the snapshot that a
//! back-fill reads, and every write after it contains the entries of the new index. None does both or neither.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Cache};
use bolide_base::{Error, ErrorKind, Result, TreeId};
use parking_lot::Mutex;

use crate::catalog::{CollectionDescriptor, RecordKind};
use crate::index_set::{Index, IndexSet};
use crate::key::KeyFormat;
use crate::trace::{CollectionTraffic, TraceRecorder};

/// All collections by name. Guarded by the schema lock.
pub(crate) type Schema = BTreeMap<String, Arc<OpenCollection>>;

/// A collection of an open database.
pub(crate) struct OpenCollection {
    /// The database of the collection: unique among those of the process.
    pub(crate) owner: u64,
    pub(crate) tree: TreeId,
    pub(crate) name: String,
    pub(crate) records: RecordKind,
    pub(crate) keys: KeyFormat,
    /// Swapped only under the schema lock held for writing.
    indexes: ArcSwap<IndexSet>,
    dropped: AtomicBool,
    /// Held by the build that fills the key index.
    pub(crate) filling_keys: Mutex<()>,
    /// Counts operations, if that is switched on.
    traffic: Option<Arc<CollectionTraffic>>,
}

impl OpenCollection {
    pub(crate) fn new(
        owner: u64,
        tree: TreeId,
        from: CollectionDescriptor,
        indexes: IndexSet,
        trace: Option<&TraceRecorder>,
    ) -> Self {
        Self {
            traffic: trace.and_then(|trace| trace.collection(&from.name)),
            owner,
            tree,
            name: from.name,
            records: from.records,
            keys: from.keys,
            indexes: ArcSwap::from_pointee(indexes),
            dropped: AtomicBool::new(false),
            filling_keys: Mutex::new(()),
        }
    }

    /// The indexes, shared.
    pub(crate) fn indexes(&self) -> Arc<IndexSet> {
        self.indexes.load_full()
    }

    /// The indexes, for a short use.
    #[inline]
    pub(crate) fn indexes_guard(&self) -> arc_swap::Guard<Arc<IndexSet>> {
        self.indexes.load()
    }

    /// The indexes, for repeated reads: as long as they are the same, a read compares two pointers.
    pub(crate) fn indexes_watched(self: &Arc<Self>) -> WatchedIndexes {
        Cache::new(IndexesOf(self.clone()))
    }

    /// Swaps the indexes. The caller holds the schema lock for writing.
    pub(crate) fn replace_indexes(&self, indexes: IndexSet) {
        self.indexes.store(Arc::new(indexes));
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Fails if the collection was dropped after the caller got its handle.
    #[inline]
    pub(crate) fn check_live(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) { Err(self.gone()) } else { Ok(()) }
    }

    /// Counts an operation for the trace, if that is switched on.
    #[inline]
    pub(crate) fn count(&self, note: impl FnOnce(&CollectionTraffic)) {
        if let Some(traffic) = &self.traffic {
            note(traffic);
        }
    }

    /// The error for a use of a dropped collection.
    #[cold]
    pub(crate) fn gone(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("the collection {:?} was dropped", self.name))
    }
}

impl fmt::Debug for OpenCollection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collection")
            .field("name", &self.name)
            .field("tree", &self.tree)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// See [`OpenCollection::indexes_watched`].
pub(crate) type WatchedIndexes = Cache<IndexesOf, Arc<IndexSet>>;

/// The indexes of a collection.
#[derive(Debug, Clone)]
pub(crate) struct IndexesOf(Arc<OpenCollection>);

impl Deref for IndexesOf {
    type Target = ArcSwap<IndexSet>;

    fn deref(&self) -> &ArcSwap<IndexSet> {
        &self.0.indexes
    }
}

/// The index of this name, or an error that lists the existing ones.
pub(crate) fn find_index(collection: &OpenCollection, name: &str) -> Result<Arc<Index>> {
    let indexes = collection.indexes_guard();
    indexes.visible().find(|index| index.name == name).cloned().ok_or_else(|| {
        let names: Vec<&str> = indexes.visible().map(|index| index.name.as_str()).collect();
        let existing = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let what = format!("the collection {:?} has no index {name:?}; it has: {existing}", collection.name);
        Error::new(ErrorKind::NotFound, what)
    })
}
