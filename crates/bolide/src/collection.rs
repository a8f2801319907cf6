//! Operations of a collection: single writes, reads, iteration, indexes.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_index::IndexSpec;
use bolide_index::figures::Figures;
use bolide_lsm::{Bounds, ReadView};
use bolide_table::ValueRef;

use crate::catalog::{IndexState, RecordKind};
use crate::check::{self, CheckReport};
use crate::handle::Collection;
use crate::index_build;
use crate::index_build::options::{BuildOptions, IndexBuild};
use crate::index_set::{Index, IndexSet};
use crate::iterator::{Cursor, Iter};
use crate::key::KeyFormat;
use crate::key_range::KeyRange;
use crate::options::IterOptions;
use crate::progress::BuildProgress;
use crate::schema::find_index;
use crate::snapshot::Snapshot;
use crate::stale_share;
use crate::write_batch::{WriteBatch, check_key};

/// The number of keys that [`Collection::multi_get`] reads at once.
const KEYS_AT_ONCE: usize = 256;

impl Collection {
    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The type of its records.
    pub fn records(&self) -> RecordKind {
        self.state.records
    }

    /// The text format of its keys.
    pub fn key_format(&self) -> KeyFormat {
        self.state.keys
    }

    /// Puts `record` under `key` and replaces an existing record.
    ///
    /// # Errors
    /// `LimitExceeded` for a key over 65,535 bytes, a record over 64 MiB or an attribute over its limit;
    /// `InvalidInput` for a record that is not one valid JSON object in a collection of JSON; else as
    /// [`Db::write`](crate::Db::write). Valid JSON has no invalid UTF-8, no lone surrogates, no numbers that are not
    /// finite as `f64`, no name twice in one object, and at most
    /// [`MAX_JSON_DEPTH`](crate::limits::MAX_JSON_DEPTH) levels.
    pub fn put(&self, key: &[u8], record: &[u8]) -> Result<()> {
        check_key(key)?;
        if self.handle.engine.put_alone(&self.state, key, record)?.is_some() {
            return Ok(());
        }
        let mut batch = WriteBatch::with_room(key.len() + record.len());
        batch.put(self, key, record)?;
        self.handle.engine.write(batch, None).map(drop)
    }

    /// Deletes the record under `key`. A missing record is no error and is not looked up.
    ///
    /// # Errors
    /// `LimitExceeded` for a key over 65,535 bytes; else as [`Db::write`](crate::Db::write).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// notes.delete(b"1")?;
    /// assert_eq!(notes.get(b"1")?, None);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::with_room(key.len());
        batch.delete(self, key)?;
        self.handle.engine.write(batch, None).map(drop)
    }

    /// Deletes all records whose keys lie in `range`, in constant time and space.
    ///
    /// # Errors
    /// As [`delete`](Self::delete); `LimitExceeded` if too many ranges were deleted since the last compaction.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// for key in ["a/1", "a/2", "b/1"] {
    ///     notes.put(key.as_bytes(), b"{}")?;
    /// }
    /// notes.delete_range("a/".."a0")?;
    /// assert_eq!(notes.iter()?.count(), 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(self, range)?;
        self.handle.engine.write(batch, None).map(drop)
    }

    /// The record under `key`, if there is one. See [`get_pinned`](Self::get_pinned) to save the copy.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable; `NotFound` if the collection was dropped.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// assert_eq!(notes.get(b"1")?.as_deref(), Some(&b"{}"[..]));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_pinned(key)?.map(|(_, record)| record.to_vec()))
    }

    /// The record under `key`, lent from memory, with the sequence number of the write that put it. The cheapest way to
    /// read one record: no lock and, from an sstable, no copy.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// let (sequence, record) = notes.get_pinned(b"1")?.expect("it was put");
    /// assert_eq!((sequence, &*record), (db.snapshot().sequence(), &b"{}"[..]));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[inline]
    pub fn get_pinned(&self, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        self.state.check_live()?;
        self.state.count(|traffic| traffic.note_gets(1));
        self.handle.engine.store.get_latest(self.state.tree, key)
    }

    /// The record that was under `key` when `snapshot` was taken.
    ///
    /// # Errors
    /// As [`get`](Self::get); `InvalidInput` for a snapshot of another database.
    pub fn get_at(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.state.check_live()?;
        self.state.count(|traffic| traffic.note_gets(1));
        let found = snapshot.view_of(&self.handle)?.get(self.state.tree, key)?;
        Ok(found.map(|(_, record)| record.to_vec()))
    }

    /// The records under `keys`, in their order, all at one sequence number. The reads overlap their memory latencies,
    /// so many keys cost less than as many calls of [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"2", b"{}")?;
    /// let found = notes.multi_get(["1", "2"])?;
    /// assert!(found[0].is_none() && found[1].is_some());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.state.check_live()?;
        let table = self.handle.engine.read_view().tree(self.state.tree)?;
        let keys: Vec<K> = keys.into_iter().collect();
        self.state.count(|traffic| traffic.note_gets(keys.len()));
        let mut records = Vec::with_capacity(keys.len());
        let mut found = Vec::new();
        // In parts: each found record pins its block.
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            table.get_many(&keys, &mut found)?;
            records.extend(found.drain(..).map(|found| found.map(|(_, record)| record.to_vec())));
        }
        Ok(records)
    }

    /// All records; the iterator is double-ended.
    ///
    /// # Errors
    /// `NotFound` if the collection was dropped.
    pub fn iter(&self) -> Result<Iter> {
        self.iter_with(&IterOptions::default())
    }

    /// The records whose keys lie in `range`; the iterator is double-ended.
    ///
    /// # Errors
    /// `NotFound` if the collection was dropped.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// for key in [b"a", b"b", b"c", b"d"] {
    ///     notes.put(key, b"{}")?;
    /// }
    /// let keys: Vec<_> = notes.range("b"..)?.rev().map(|record| record.map(|(key, _)| key)).collect::<Result<_, _>>()?;
    /// assert_eq!(keys, [b"d", b"c", b"b"]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        self.iter_with(&IterOptions::default().range(range))
    }

    /// The records that `options` selects; the iterator is double-ended. See [`IterOptions`].
    ///
    /// # Errors
    /// `NotFound` if the collection was dropped; `InvalidInput` for a snapshot of another database.
    pub fn iter_with(&self, options: &IterOptions) -> Result<Iter> {
        let view = self.view(options.snapshot.as_ref())?;
        Ok(Iter::new(view, self.state.tree, bounds(options)))
    }

    /// A cursor over the records that `options` selects. It lends records instead of copying them.
    ///
    /// # Errors
    /// As [`iter_with`](Self::iter_with); `Corruption` or `Io` from opening an sstable.
    pub fn cursor(&self, options: &IterOptions) -> Result<Cursor> {
        let view = self.view(options.snapshot.as_ref())?;
        Cursor::new(&view, self.state.tree, bounds(options))
    }

    /// Creates an index and fills it from the existing records. Returns when queries can use it; other threads read and
    /// write meanwhile.
    ///
    /// After a crash the next open continues the build: in background threads if there are any, otherwise before it
    /// returns.
    ///
    /// # Errors
    /// `Conflict` if the name is taken, or the index was dropped while it was being built;
    /// `LimitExceeded` for more than 64 indexes, or for a record whose attribute is over its limit;
    /// `InvalidInput` for a collection of bytes without an extractor; `NoSpace`, `Io`, `ReadOnly`,
    /// `Poisoned`. After an error there is no index.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"tags":["a","b"]}"#)?;
    /// posts.create_index("tags[*]".parse()?)?;
    /// let answers = posts.find(&Query::new().eq("tags[*]", "b"))?;
    /// assert_eq!((answers.len(), answers.explain().is_full_scan()), (1, false));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn create_index(&self, spec: IndexSpec) -> Result<()> {
        self.create_index_with(spec, &BuildOptions::default())
    }

    /// Creates an index with settings of its own; see [`create_index`](Self::create_index) and [`BuildOptions`].
    ///
    /// # Errors
    /// As [`create_index`](Self::create_index).
    pub fn create_index_with(&self, spec: IndexSpec, options: &BuildOptions) -> Result<()> {
        index_build::create(&self.handle, &self.state, spec, options)
    }

    /// Creates an index that is filled in the background, and returns at once; [`IndexBuild`] reports the progress.
    /// Without background threads the index is filled before this returns.
    ///
    /// Writes maintain the index from now on; queries do not use it until it is filled.
    ///
    /// # Errors
    /// As [`create_index`](Self::create_index), except for errors of the records: [`IndexBuild::wait`] and
    /// [`IndexInfo::problem`] report these, and the index stays until it is dropped or rebuilt.
    pub fn create_index_background(&self, spec: IndexSpec, options: &BuildOptions) -> Result<IndexBuild> {
        let index = index_build::create_in_background(&self.handle, &self.state, spec, options)?;
        Ok(self.build_of(index))
    }

    /// Builds an index again from the records and replaces the one of this name, which queries use until then. Takes
    /// the space of both meanwhile. Queries of snapshots that are older than its completion do not use the index.
    ///
    /// For an index that is damaged, failed, or full of stale entries that compactions have not dropped yet.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Conflict` if it is being rebuilt already, or was dropped meanwhile;
    /// `Corruption` if it needs a key index that is damaged; otherwise as [`create_index`](Self::create_index). An
    /// error changes nothing.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.create_index("score".parse()?)?;
    /// for score in 0..3 {
    ///     posts.put(b"1", format!(r#"{{"score":{score}}}"#).as_bytes())?;
    /// }
    /// assert_eq!(posts.check_indexes()?.indexes[0].found.stale, 2);
    /// posts.rebuild_index("score", &Default::default())?;
    /// assert_eq!(posts.check_indexes()?.indexes[0].found.stale, 0);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn rebuild_index(&self, name: &str, options: &BuildOptions) -> Result<()> {
        index_build::rebuild(&self.handle, &self.state, name, options)
    }

    /// As [`rebuild_index`](Self::rebuild_index), in the background; see
    /// [`create_index_background`](Self::create_index_background).
    ///
    /// # Errors
    /// As [`rebuild_index`](Self::rebuild_index), except for errors of the records.
    pub fn rebuild_index_background(&self, name: &str, options: &BuildOptions) -> Result<IndexBuild> {
        let index = index_build::rebuild_in_background(&self.handle, &self.state, name, options)?;
        Ok(self.build_of(index))
    }

    fn build_of(&self, index: Arc<Index>) -> IndexBuild {
        IndexBuild { index, runtime: self.handle.engine.components.runtime.clone() }
    }

    /// Drops an index. Running queries that use it complete.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Io`, `ReadOnly`, `Poisoned`.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.create_index("score".parse()?)?;
    /// posts.drop_index("score")?;
    /// assert!(posts.indexes().is_empty());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn drop_index(&self, name: &str) -> Result<()> {
        index_build::drop_index(&self.handle, &self.state, name)
    }

    /// The indexes, in the order of their creation.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, IndexState, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score".parse()?))?;
    /// let index = &posts.indexes()[0];
    /// assert_eq!((index.name(), index.state()), ("score", IndexState::Ready));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn indexes(&self) -> Vec<IndexInfo> {
        let set = self.state.indexes_guard();
        set.visible().map(|index| self.info_of(&set, index)).collect()
    }

    /// The use of the space of an index in detail, if its kind reports it: of kind `ps-tree` an
    /// [`IndexSpace`](crate::IndexSpace) with keys, pages and their fill, garbage. `None` during a build. Cost: may read
    /// the whole index, in memory.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Corruption`.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, IndexSpace, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score:ps-tree".parse()?))?;
    /// posts.put(b"1", br#"{"score":1}"#)?;
    /// let figures = posts.index_space("score")?.unwrap();
    /// let space = figures.get::<IndexSpace>().unwrap();
    /// assert_eq!((space.entries, space.inline_entries), (1, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn index_space(&self, name: &str) -> Result<Option<Figures>> {
        find_index(&self.state, name)?.hooks.space()
    }

    /// The index of this name.
    ///
    /// # Errors
    /// `NotFound` if there is none; the message lists the existing ones.
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// assert_eq!(posts.index("score").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn index(&self, name: &str) -> Result<IndexInfo> {
        let index = find_index(&self.state, name)?;
        Ok(self.info_of(&self.state.indexes_guard(), &index))
    }

    /// The estimated share of stale entries of an index, from 0 to 1: those of records that were replaced or deleted,
    /// before a compaction drops them. Estimated from about `sample` entries, each of which costs a lookup in the
    /// table; [`check_indexes`](Self::check_indexes) counts all. `None` for an index without entries, and for kinds
    /// without an estimate.
    ///
    /// # Errors
    /// `NotFound` if there is no such index; `Corruption` or `Io` from reading.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score".parse()?))?;
    /// posts.put(b"1", br#"{"score":1}"#)?;
    /// posts.put(b"1", br#"{"score":2}"#)?;
    /// assert_eq!(posts.stale_share("score", 100)?, Some(0.5));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn stale_share(&self, name: &str, sample: u64) -> Result<Option<f64>> {
        self.state.check_live()?;
        let index = find_index(&self.state, name)?;
        stale_share::share(&self.handle.engine.read_view(), &self.state, &index, sample)
    }

    /// Compacts the collection and its indexes down to one sorted run each, and waits for it; see
    /// [`Db::compact`](crate::Db::compact).
    ///
    /// # Errors
    /// As [`Db::compact`](crate::Db::compact).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// notes.compact()?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn compact(&self) -> Result<()> {
        self.state.check_live()?;
        let store = &self.handle.engine.store;
        // The records first: compactions of indexes drop entries that are stale there.
        store.compact(self.state.tree)?;
        self.handle.engine.commit_repairs()?;
        let set = self.state.indexes();
        let whole = |index: &&Arc<Index>| index.progress.damage().is_none();
        for index in set.all().iter().chain(set.key_index()).filter(whole) {
            match store.compact(index.tree) {
                // A damaged index is rebuilt instead.
                Err(error) if self.handle.engine.isolate_damaged(&self.state, &error) => {}
                // The index was dropped meanwhile.
                Err(error) if error.kind() == bolide_base::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Changes the layout of the sorted runs of the records and of all indexes; see
    /// [`CollectionOptions::layout`](crate::CollectionOptions::layout()). Reads and writes continue. The change is
    /// durable when this returns; background threads rewrite data for it, at most everything once.
    ///
    /// # Errors
    /// `NotFound` if the collection was dropped; `Io` or `NoSpace` from the manifest: then some trees may have the
    /// new layout and some the old one, which changes no answer.
    ///
    /// ```
    /// use bolide::{Components, Db, Layout, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.set_layout(Layout::Partitioned)?;
    /// assert_eq!(db.stats().collections[0].table.layout, Layout::Partitioned);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn set_layout(&self, layout: bolide_lsm::Layout) -> Result<()> {
        self.state.check_live()?;
        let store = &self.handle.engine.store;
        // The records first: indexes that are created meanwhile inherit their layout.
        store.set_layout(self.state.tree, layout)?;
        let set = self.state.indexes();
        for index in set.all().iter().chain(set.key_index()) {
            match store.set_layout(index.tree, layout) {
                // The index was dropped meanwhile.
                Err(error) if error.kind() == bolide_base::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Compares every index with the records, in both directions, and counts entries, also stale ones; see
    /// [`Db::check`](crate::Db::check). Reads the whole collection.
    ///
    /// # Errors
    /// `Io` if the check itself cannot continue; `NotFound` if the collection was dropped.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score".parse()?))?;
    /// posts.put(b"1", br#"{"score":1}"#)?;
    /// posts.put(b"1", br#"{"score":2}"#)?;
    /// let report = posts.check_indexes()?;
    /// assert_eq!((report.indexes[0].found.entries, report.indexes[0].found.stale), (2, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn check_indexes(&self) -> Result<CheckReport> {
        self.state.check_live()?;
        let mut report = CheckReport::default();
        check::check_indexes(&self.handle.engine, &self.state, &mut report)?;
        Ok(report)
    }

    fn info_of(&self, set: &IndexSet, index: &Index) -> IndexInfo {
        let now = self.handle.engine.components.runtime.now_micros();
        let successor = set.successor(index.tree);
        for index in successor.map(|index| &**index).into_iter().chain([index]) {
            // Fails for a dropped collection, which has no carried indexes.
            let _ = index_build::rewrite::note_carried(&self.handle.engine, &self.state, index);
        }
        IndexInfo {
            spec: index.spec().clone(),
            progress: index.progress.figures(now),
            rebuild: successor.map(|successor| successor.progress.figures(now)),
            problem: index.progress.problem(),
            damage: index.progress.damage_or_cause(),
        }
    }

    /// A view for an iteration.
    fn view(&self, snapshot: Option<&Snapshot>) -> Result<ReadView> {
        self.state.check_live()?;
        self.state.count(|traffic| traffic.note_scan());
        Ok(match snapshot {
            Some(snapshot) => ReadView::clone(snapshot.view_of(&self.handle)?),
            None => self.handle.engine.read_view(),
        })
    }
}

fn bounds(options: &IterOptions) -> Bounds {
    Bounds::of((options.lower.clone(), options.upper.clone()))
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collection").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The state of an index when [`Collection::indexes`] was called.
#[derive(Debug, Clone)]
pub struct IndexInfo {
    spec: IndexSpec,
    progress: BuildProgress,
    rebuild: Option<BuildProgress>,
    problem: Option<bolide_base::Error>,
    damage: Option<bolide_base::Error>,
}

impl IndexInfo {
    /// The name, unique in its collection.
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// Its declaration. Its `Display` is the text form.
    pub fn spec(&self) -> &IndexSpec {
        &self.spec
    }

    /// Whether queries use it.
    pub fn state(&self) -> IndexState {
        self.progress.state
    }

    /// The progress of its build, or what the build read.
    pub fn progress(&self) -> &BuildProgress {
        &self.progress
    }

    /// The progress of the replacement index; `None` if none is being built.
    pub fn rebuild(&self) -> Option<&BuildProgress> {
        self.rebuild.as_ref()
    }

    /// Why its last build or rebuild failed. The next open of the database continues a build that failed for lack of
    /// space or by an error of the disk.
    pub fn problem(&self) -> Option<&bolide_base::Error> {
        self.problem.as_ref()
    }

    /// The damage of its files because of which it is [damaged](IndexState::Damaged), or is being built again.
    pub fn damage(&self) -> Option<&bolide_base::Error> {
        self.damage.as_ref()
    }
}
