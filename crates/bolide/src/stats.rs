//! Statistics of an open database.

use std::sync::atomic::Ordering;

use bolide_base::{Error, SequenceNumber};
use bolide_index::FetchPoolStats;
use bolide_index::figures::{Figures, IndexFigures};
use bolide_index::ps_tree_index::PsTreeFigures;
use bolide_lsm::store::{LevelStats, StoreStats, TreeStats, WriteCounters};
use bolide_lsm::version::CutTail;
use bolide_lsm::{Layout, RowCacheStats};
use bolide_memory::UsedMemory;
use bolide_table::BlockCacheStats;

use crate::catalog::{IndexState, RecordKind};
use crate::handle::Engine;

/// A database at one moment: returned by [`Db::stats`](crate::Db::stats).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DbStats {
    /// Its collections, by name.
    pub collections: Vec<CollectionStats>,
    /// Writes since the database was opened.
    pub writes: WriteCounters,
    /// The cache of data blocks, which other databases may share.
    pub cache: BlockCacheStats,
    /// The cache of records that were read by their keys more than once.
    pub rows: RowCacheStats,
    /// The memory budget, and the memory of its users.
    pub memory: MemoryStats,
    /// The sequence number of the last visible write.
    pub sequence: SequenceNumber,
    /// The oldest sequence number that a snapshot, cursor or query reads.
    pub oldest_view: SequenceNumber,
    /// The number of open snapshots, cursors, iterators and queries.
    pub views: usize,
    /// Length of the log segment in use, in bytes.
    pub log_segment_bytes: u64,
    /// The number of finished log segments that a memtable still needs.
    pub old_log_segments: usize,
    /// Ends of log segments that recoveries cut off, oldest first, as long as the files that contain them exist. Each
    /// is after everything that is known to have been synced.
    pub cut_tails: Vec<CutTail>,
    /// The log segment that the opening read last, if its synced length was not known: the marker `SYNCED` was missing
    /// or invalid, although machine and mount are the same since the segment was written. Writes at its end that were
    /// acknowledged as synced may be missing, which nothing else would indicate.
    pub unmarked_log: Option<u64>,
    /// Statistics of the threads that help queries to fetch records.
    pub fetch: FetchPoolStats,
    /// Errors and panics of background work that no call returns, since the database was opened: the first sixteen.
    /// They affect no answer and no write. For index builds see [`IndexInfo::problem`](crate::IndexInfo::problem).
    pub background_errors: Vec<Error>,
    /// The number of errors after [`background_errors`](Self::background_errors).
    pub further_background_errors: u64,
}

impl DbStats {
    /// Bytes of all sstables of collections and indexes, and of the regions of indexes.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert_eq!(db.stats().disk_bytes(), 0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn disk_bytes(&self) -> u64 {
        let of = |collection: &CollectionStats| {
            collection.table.disk_bytes
                + collection.indexes.iter().map(|index| index.tree.disk_bytes).sum::<u64>()
                + collection.key_index.as_ref().map_or(0, |keys| keys.disk_bytes)
        };
        self.collections.iter().map(of).sum()
    }

    /// Bytes written to sstables for each byte of a write, since the database was opened; the log is
    /// not counted. 0 before the first write.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert_eq!(db.stats().write_amplification(), 0.0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn write_amplification(&self) -> f64 {
        self.writes.write_amplification()
    }
}

/// The memory budget of a database, which databases that share a cache share too.
///
/// ```
/// use bolide::{Components, Db, MemoryUse, Options};
/// let db = Db::open_with("db", Options::default().memory_bytes(64 << 20), Components::in_memory())?;
/// let memory = db.stats().memory;
/// let cache = memory.users.iter().find(|user| user.memory_use == MemoryUse::BlockCache).unwrap();
/// assert_eq!((cache.size.used, cache.size.reserved), (0, 15 << 20));
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget in bytes: [`Options::memory_bytes`](crate::Options::memory_bytes()). `u64::MAX` if there is no limit.
    pub limit_bytes: u64,
    /// The users of memory: the sums by use, each followed by its users with names, which are indexes.
    pub users: Vec<UsedMemory>,
    /// Requests for memory that were refused since the database was opened.
    pub refused_requests: u64,
}

impl MemoryStats {
    /// Bytes of all uses that count against the budget, the capacities of caches included.
    pub fn reserved_bytes(&self) -> u64 {
        self.sums().map(|user| user.size.reserved).sum()
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.sums().map(|user| user.size.used).sum()
    }

    fn sums(&self) -> impl Iterator<Item = &UsedMemory> {
        self.users.iter().filter(|user| user.name.is_none())
    }
}

/// One collection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CollectionStats {
    /// Its name.
    pub name: String,
    /// The type of its records.
    pub records: RecordKind,
    /// The tree of its records.
    pub table: TreeFigures,
    /// Malformed records that builds and writes of indexes skipped since the database was opened. One record
    /// counts each time it is met; [`Db::check`](crate::Db::check) names them.
    pub malformed: u64,
    /// Its indexes.
    pub indexes: Vec<IndexStats>,
    /// The tree of primary keys that indexes with `validation=key-index` share; `None` without one.
    pub key_index: Option<TreeFigures>,
}

/// One index.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Its declaration.
    pub spec: String,
    /// Whether queries use it.
    pub state: IndexState,
    /// The damage of its files because of which it is [damaged](IndexState::Damaged) or is being built again.
    pub damage: Option<Error>,
    /// The tree of its entries; empty for an index that lies in the sstables of the records.
    pub tree: TreeFigures,
    /// Its size outside of its tree, in a type of its kind: [`EmbeddedFigures`](crate::EmbeddedFigures),
    /// [`NextFigures`](crate::NextFigures), [`PsTreeFigures`](crate::PsTreeFigures). `None` for kinds with nothing else,
    /// and before the end of the build of a `ps-tree`.
    pub figures: Option<Figures>,
}

impl IndexStats {
    /// Bytes on disk: of its tree, or of its blocks in the sstables of the records.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score:composite".parse()?))?;
    /// posts.put(b"1", br#"{"score":1}"#)?;
    /// db.flush()?;
    /// let stats = db.stats();
    /// assert!(stats.collections[0].indexes[0].disk_bytes() > 0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn disk_bytes(&self) -> u64 {
        self.tree.disk_bytes.max(self.figures.as_ref().map_or(0, Figures::disk_bytes))
    }

    /// Bytes in memory, without memtables and cached blocks: filters and block indexes of its open sstables, or the pages of its
    /// region that are or were in use.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score:ps-tree".parse()?))?;
    /// posts.put(b"1", br#"{"score":1}"#)?;
    /// let stats = db.stats();
    /// assert!(stats.collections[0].indexes[0].memory_bytes() > 0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn memory_bytes(&self) -> u64 {
        match (self.figures_of::<PsTreeFigures>(), &self.figures) {
            (Some(region), _) => region.allocated_bytes + region.free_bytes,
            (None, Some(figures)) => figures.memory_bytes(),
            (None, None) => self.tree.resident_bytes as u64,
        }
    }

    /// The figures of its kind.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, NextFigures, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.create_collection("posts", CollectionOptions::default().index("score:next".parse()?))?;
    /// let stats = db.stats();
    /// assert_eq!(stats.collections[0].indexes[0].figures_of::<NextFigures>().unwrap().sstables, 0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn figures_of<T: IndexFigures>(&self) -> Option<&T> {
        self.figures.as_ref()?.get()
    }
}

/// One tree: the records of a collection, or the entries of an index.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TreeFigures {
    /// The layout of its sorted runs.
    pub layout: Layout,
    /// Levels on disk that are not empty.
    pub levels: Vec<LevelStats>,
    /// Entries on disk and in memtables, with replaced versions and tombstones that no compaction
    /// dropped yet.
    pub entries: u64,
    /// Bytes of its sstables.
    pub disk_bytes: u64,
    /// Bytes of its memtables, in memory.
    pub memtable_bytes: usize,
    /// Entries in its memtables.
    pub memtable_entries: usize,
    /// Full memtables that wait to be flushed.
    pub immutable_memtables: usize,
    /// Bytes of the log with entries that the last flush retained, in the partitioned layout.
    pub retained_bytes: u64,
    /// Bytes of memory of the filters and block indexes of its open sstables, and of its sorted views.
    pub resident_bytes: usize,
    /// Bytes of its sorted views in memory, part of [`resident_bytes`](Self::resident_bytes); a view is loaded when its
    /// partition is first read.
    pub sorted_view_bytes: usize,
    /// Bytes of the files of its sorted views; not part of [`disk_bytes`](Self::disk_bytes).
    pub sorted_view_file_bytes: u64,
    /// The number of range tombstones.
    pub range_tombstones: usize,
    /// Bytes of files that flushes and compactions wrote for it since its creation, across all opens of the database;
    /// the log is not counted.
    pub written_bytes: u64,
}

impl TreeFigures {
    /// The number of sstables.
    ///
    /// ```
    /// assert_eq!(bolide::TreeFigures::default().sstables(), 0);
    /// ```
    pub fn sstables(&self) -> usize {
        self.levels.iter().map(|level| level.tables).sum()
    }

    /// The maximum number of sorted runs on disk that a read searches.
    ///
    /// ```
    /// assert_eq!(bolide::TreeFigures::default().runs(), 0);
    /// ```
    pub fn runs(&self) -> usize {
        self.levels.iter().map(|level| level.runs).sum()
    }

    fn of(stats: &StoreStats, tree: bolide_base::TreeId) -> Self {
        stats.trees.iter().find(|found| found.tree == tree).map(Self::from).unwrap_or_default()
    }
}

impl From<&TreeStats> for TreeFigures {
    fn from(tree: &TreeStats) -> Self {
        Self {
            layout: tree.layout,
            levels: tree.levels.clone(),
            entries: tree.entries(),
            disk_bytes: tree.disk_bytes(),
            memtable_bytes: tree.memtable_bytes,
            memtable_entries: tree.memtable_entries,
            immutable_memtables: tree.immutable_memtables,
            retained_bytes: tree.retained_bytes,
            resident_bytes: tree.resident_bytes,
            sorted_view_bytes: tree.sorted_view_bytes,
            sorted_view_file_bytes: tree.sorted_view_file_bytes,
            range_tombstones: tree.range_tombstones,
            written_bytes: tree.written_bytes,
        }
    }
}

pub(crate) fn of(engine: &Engine) -> DbStats {
    let store = engine.store.stats();
    let schema = engine.schema.read();
    let collections = schema.values().map(|collection| CollectionStats {
        name: collection.name.clone(),
        records: collection.records,
        table: TreeFigures::of(&store, collection.tree),
        malformed: collection.indexes_guard().malformed().load(Ordering::Relaxed),
        key_index: collection.indexes_guard().key_tree().map(|tree| TreeFigures::of(&store, tree)),
        indexes: collection
            .indexes_guard()
            .visible()
            .map(|index| IndexStats {
                name: index.name.clone(),
                spec: index.spec().to_string(),
                state: index.progress.state(),
                damage: index.progress.damage_or_cause(),
                tree: TreeFigures::of(&store, index.tree),
                figures: index.hooks.figures(&engine.store, collection.tree),
            })
            .collect(),
    });
    let budget = engine.cache.memory_pool().budget();
    let memory = MemoryStats {
        limit_bytes: budget.limit_bytes(),
        users: budget.report(),
        refused_requests: budget.refused_requests(),
    };
    let (background_errors, further_background_errors) = engine.background_errors.all();
    DbStats {
        collections: collections.collect(),
        writes: store.writes,
        cache: engine.cache.stats(),
        rows: store.rows,
        memory,
        sequence: store.sequence,
        oldest_view: store.oldest_view,
        views: store.views,
        log_segment_bytes: store.log_segment_bytes,
        cut_tails: store.cut_tails.clone(),
        unmarked_log: store.unmarked_log,
        old_log_segments: store.old_log_segments,
        fetch: engine.fetching.stats(),
        background_errors,
        further_background_errors,
    }
}
