//! The objects that a database works with: file system, runtime, block cache, extractors.
//!
//! Settings are data and live in [`Options`](crate::Options); what lives here has behaviour, and tests
//! put their own in its place.

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

/// Puts something else in the place of an index over the records in a tree.
#[doc(hidden)]
pub type IndexWrapper =
    Arc<dyn Fn(Arc<dyn SecondaryIndex<ReadView>>, TreeId) -> Arc<dyn SecondaryIndex<ReadView>> + Send + Sync>;

/// The objects that a database works with, for [`Db::open_with`](crate::Db::open_with).
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
    /// The cache of data blocks; `None` makes one of
    /// [`Options::cache_bytes`](crate::Options::cache_bytes).
    pub cache: Option<Arc<BlockCache>>,
    /// The extractors of collections of bytes, by the collection's name.
    pub(crate) extractors: BTreeMap<String, Arc<dyn AttributeExtractor>>,
    /// What stands between the database and its indexes; tests break these on purpose.
    index_wrapper: Option<IndexWrapper>,
}

impl Components {
    /// The disk and the threads of this machine.
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
        }
    }

    /// A file system in memory, which lives as long as the components and their clones.
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

    /// Works on `vfs`.
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

    /// Takes time, random numbers and threads from `runtime`.
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

    /// Takes the attributes of the records of the bytes collection named `collection` from
    /// `extractor`.
    ///
    /// An extractor is code, so the database cannot keep it: give the same one at every open. It must
    /// be a pure function of the record: entries that it no longer finds are taken for damage by a
    /// deep check. A panic in it is an error of kind `Internal` of the call that needed it: a put is refused, a query or the
    /// build of an index fails. See [`RecordKind::Bytes`](crate::RecordKind::Bytes) for an example.
    #[must_use]
    pub fn extractor(mut self, collection: &str, extractor: Arc<dyn AttributeExtractor>) -> Self {
        let extractor = CaughtExtractor::new(collection, extractor);
        self.extractors.insert(collection.to_owned(), Arc::new(extractor));
        self
    }

    /// Asks and feeds every index through `wrapper`. For tests that break an index to see that it is noticed: what
    /// the wrapper changes can falsify answers and stored entries.
    #[doc(hidden)]
    #[must_use]
    pub fn index_wrapper(mut self, wrapper: IndexWrapper) -> Self {
        self.index_wrapper = Some(wrapper);
        self
    }

    /// `index`, of the collection in `table`, as the database is to see it.
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
