//! The components of a database: file system, runtime, block cache, extractors.
//!
//! Settings are data and are in [`Options`](crate::Options); components have behaviour, and tests replace them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bolide_base::TreeId;
use bolide_index::{AttributeExtractor, SecondaryIndex};
use bolide_lsm::ReadView;
use bolide_storage::{DiskVfs, MemVfs, Runtime, SystemRuntime, Vfs};
use bolide_table::BlockCache;

use crate::catch_panic::CaughtExtractor;
use crate::index_set::Index;
use crate::transaction::TransactionFlaw;

/// Replaces an index over the records in a tree.
#[doc(hidden)]
pub type IndexWrapper =
    Arc<dyn Fn(Arc<dyn SecondaryIndex<ReadView>>, TreeId) -> Arc<dyn SecondaryIndex<ReadView>> + Send + Sync>;

/// The components of a database, for [`Db::open_with`](crate::Db::open_with).
///
/// ```
/// use bolide::{Components, Db, Options};
/// // A database in memory, gone with its components.
/// let components = Components::in_memory();
/// let db = Db::open_with("db", Options::default(), components.clone())?;
/// db.create_collection("notes", Default::default())?.put(b"1", br#"{"text":"hello"}"#)?;
/// drop(db);
/// let db = Db::open_with("db", Options::default(), components)?;
/// assert!(db.collection("notes")?.get(b"1")?.is_some());
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Components {
    /// The file system. Default: the disk.
    pub vfs: Arc<dyn Vfs>,
    /// Clock, random numbers and threads. Default: the machine's.
    pub runtime: Arc<dyn Runtime>,
    /// The cache of data blocks; `None` creates one of [`Options::cache_bytes`](crate::Options::cache_bytes).
    pub cache: Option<Arc<BlockCache>>,
    /// The extractors of collections of bytes, by the collection's name.
    pub(crate) extractors: BTreeMap<String, Arc<dyn AttributeExtractor>>,
    /// Wraps the indexes; tests inject errors with it.
    index_wrapper: Option<IndexWrapper>,
    /// A mistake of transactions; only tests plant one.
    pub(crate) transaction_flaw: Option<TransactionFlaw>,
}

impl Components {
    /// The disk and the threads of the machine.
    ///
    /// ```
    /// let components = bolide::Components::system();
    /// assert!(components.cache.is_none());
    /// ```
    pub fn system() -> Self {
        Self {
            vfs: Arc::new(DiskVfs::new()),
            runtime: Arc::new(SystemRuntime::new()),
            cache: None,
            extractors: BTreeMap::new(),
            index_wrapper: None,
            transaction_flaw: None,
        }
    }

    /// A file system in memory, which exists as long as the components and their clones.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert!(db.collections().is_empty());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn in_memory() -> Self {
        Self { vfs: Arc::new(MemVfs::new()), ..Self::system() }
    }

    /// Uses the file system `vfs`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bolide::Components;
    /// let components = Components::system().vfs(Arc::new(bolide::storage::MemVfs::new()));
    /// # let _ = components;
    /// ```
    #[must_use]
    pub fn vfs(mut self, vfs: Arc<dyn Vfs>) -> Self {
        self.vfs = vfs;
        self
    }

    /// Uses clock, random numbers and threads of `runtime`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bolide::Components;
    /// let components = Components::in_memory().runtime(Arc::new(bolide::storage::SystemRuntime::new()));
    /// # let _ = components;
    /// ```
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// Shares `cache`, for example among several databases.
    ///
    /// ```
    /// use bolide::{BlockCache, Components, Db, Options};
    /// let cache = BlockCache::new(8 << 20);
    /// let components = Components::in_memory().cache(cache);
    /// let one = Db::open_with("one", Options::default(), components.clone())?;
    /// let two = Db::open_with("two", Options::default(), components)?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn cache(mut self, cache: Arc<BlockCache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Extracts the attributes of the records of the bytes collection named `collection` with `extractor`.
    ///
    /// An extractor is code, so the database cannot store it: pass the same one at every open. It must be a pure
    /// function of the record: a deep check reports entries that it no longer finds as damage. A panic in it is an
    /// error of kind `Internal` of the call that needs it: a put is refused, a query or the build of an index fails.
    /// See [`RecordKind::Bytes`](crate::RecordKind::Bytes) for an example.
    #[must_use]
    pub fn extractor(mut self, collection: &str, extractor: Arc<dyn AttributeExtractor>) -> Self {
        let extractor = CaughtExtractor::new(collection, extractor);
        self.extractors.insert(collection.to_owned(), Arc::new(extractor));
        self
    }

    /// Reads and writes every index through `wrapper`. For tests that inject errors into an index: the changes of the
    /// wrapper can falsify answers and stored entries.
    #[doc(hidden)]
    #[must_use]
    pub fn index_wrapper(mut self, wrapper: IndexWrapper) -> Self {
        self.index_wrapper = Some(wrapper);
        self
    }

    /// Plants a mistake in all transactions, for the tests of the test kit.
    #[doc(hidden)]
    #[must_use]
    pub fn transaction_flaw(mut self, flaw: Option<TransactionFlaw>) -> Self {
        self.transaction_flaw = flaw;
        self
    }

    /// `index`, of the collection in `table`, with the wrapper.
    pub(crate) fn wrap(&self, mut index: Index, table: TreeId) -> Index {
        if let Some(wrapper) = &self.index_wrapper {
            index.structure = wrapper(index.structure, table);
        }
        index
    }
}

impl Default for Components {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Components")
            .field("vfs", &self.vfs)
            .field("runtime", &self.runtime)
            .field("shared_cache", &self.cache.is_some())
            .field("extractors", &self.extractors.keys())
            .finish_non_exhaustive()
    }
}
