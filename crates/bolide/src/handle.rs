//! The state that all handles of an open database share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, TreeId};
use bolide_lsm::{ReadView, Store, SyncMode};
use bolide_storage::JoinHandle;
use bolide_table::BlockCache;
use parking_lot::{Mutex, RwLock};

use crate::background_errors::BackgroundErrors;
use crate::components::Components;
use crate::fetching::Fetching;
use crate::index_files;
use crate::index_set::Index;
use crate::schema::{OpenCollection, Schema};
use crate::stale_deletions::Repairs;
use crate::trace::TraceRecorder;

/// Databases opened so far by this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The store with its collections. Background threads that build indexes share it too.
pub(crate) struct Engine {
    /// Before the store: its threads end before the store closes.
    pub(crate) fetching: Fetching,
    pub(crate) store: Store,
    /// Unique among the databases of the process.
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    /// The directory of persistent memory, if it is another one.
    pub(crate) dax_dir: Option<PathBuf>,
    pub(crate) read_only: bool,
    /// The sync mode of writes that do not choose one.
    pub(crate) sync: SyncMode,
    pub(crate) components: Components,
    /// The cache of data blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// The schema lock: see [`crate::schema`].
    pub(crate) schema: RwLock<Schema>,
    /// Serialises changes of the schema. Taken before the schema lock.
    pub(crate) changing: Mutex<()>,
    /// Deletions of stale index entries that wait for their commit.
    pub(crate) repairs: Arc<Repairs>,
    /// Errors and panics of threads that no call waits for.
    pub(crate) background_errors: Arc<BackgroundErrors>,
    /// Set when the last handle is dropped: builders stop.
    pub(crate) closing: AtomicBool,
    /// Whether indexes may be built in background threads.
    pub(crate) builds_in_background: bool,
    /// Bytes of the writable memtables before they are flushed.
    pub(crate) memtable_bytes: usize,
    /// Counts operations, if that is switched on.
    pub(crate) trace: Option<Arc<TraceRecorder>>,
}

impl Engine {
    pub(crate) fn next_id() -> u64 {
        OPENED.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The collection of this name.
    pub(crate) fn collection(&self, name: &str) -> Result<Arc<OpenCollection>> {
        self.schema
            .read()
            .get(name)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no collection {name:?}")))
    }

    /// Attaches the external tree of `index`, over the records of `collection`, if its kind has one.
    pub(crate) fn attach_external_tree(&self, collection: &OpenCollection, index: &Index) -> Result<()> {
        let dax_dir = self.dax_dir.as_deref();
        let location = index_files::location(&self.components, &self.path, dax_dir, &collection.name);
        index.hooks.attach(&self.store, collection.tree, location)
    }

    /// Drops a tree with all its files.
    pub(crate) fn drop_tree(&self, tree: TreeId) -> Result<()> {
        index_files::drop_tree(&self.store, &self.components, self.dax_dir.as_deref(), tree, None)
    }

    /// Drops a tree with all its files, and gives the tree `replacement` this descriptor; or does neither.
    pub(crate) fn drop_tree_for(&self, tree: TreeId, replacement: TreeId, descriptor: &[u8]) -> Result<()> {
        let replacement = Some((replacement, descriptor));
        index_files::drop_tree(&self.store, &self.components, self.dax_dir.as_deref(), tree, replacement)
    }

    /// Fails on a database that was opened read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open read-only"));
        }
        Ok(())
    }

    pub(crate) fn read_view(&self) -> ReadView {
        self.store.read_view()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("path", &self.path)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// The engine as the user's handles own it. When the last of them is dropped, it stops the builders, waits for them,
/// and closes the store.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Threads that build indexes.
    pub(crate) builders: Mutex<Vec<Box<dyn JoinHandle>>>,
}

impl Handle {
    /// Stops the threads that build indexes and waits for them. The next open continues their work.
    pub(crate) fn stop_builders(&self) {
        self.engine.closing.store(true, Ordering::Release);
        self.engine.repairs.wake();
        for builder in std::mem::take(&mut *self.builders.lock()) {
            // A builder that panicked left its index unpublished; the next open continues.
            let _ = builder.join();
        }
        // Repairs that cannot be committed any more leave stale entries, which change no answer.
        let _ = self.engine.commit_repairs();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop_builders();
    }
}

/// A collection: records under primary keys, in the order of the keys as bytes, with its indexes.
///
/// Cheap to clone, and keeps the database open. All methods may be called from many threads; each write is atomic,
/// together with its index entries.
///
/// ```
/// use bolide::{CollectionOptions, Components, Db, Options, Query};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
/// posts.put(b"1", br#"{"author":"ann","title":"Hello"}"#)?;
/// posts.put(b"2", br#"{"author":"bob","title":"Hi"}"#)?;
/// assert_eq!(posts.find(&Query::new().eq("author", "bob"))?.len(), 1);
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Clone)]
pub struct Collection {
    pub(crate) handle: Arc<Handle>,
    pub(crate) state: Arc<OpenCollection>,
}
