//! Reads while a flush into partitions builds the views over its new sstables.
#![cfg(not(bolide_shuttle))]

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::{Bounds, Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{File, FileLock, Marker, MemVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;
use parking_lot::{Condvar, Mutex};

/// A file system that blocks the creation of view files while its gate is shut.
#[derive(Debug, Default)]
struct GatedVfs {
    disk: MemVfs,
    gate: Mutex<Gate>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    is_shut: bool,
    waiting: usize,
    fails: bool,
}

impl GatedVfs {
    fn shut(&self) {
        self.gate.lock().is_shut = true;
    }

    /// Waits until a thread is blocked.
    fn wait_for_a_thread(&self) {
        let mut gate = self.gate.lock();
        while gate.waiting == 0 {
            self.moved.wait(&mut gate);
        }
    }

    /// Lets blocked threads continue, or makes their files fail.
    fn open_up(&self, fails: bool) {
        let mut gate = self.gate.lock();
        (gate.is_shut, gate.fails) = (false, fails);
        self.moved.notify_all();
    }

    fn pass(&self, path: &Path) -> Result<()> {
        let mut gate = self.gate.lock();
        if path.extension().is_none_or(|extension| extension != "remix") {
            return Ok(());
        }
        gate.waiting += 1;
        self.moved.notify_all();
        while gate.is_shut {
            self.moved.wait(&mut gate);
        }
        gate.waiting -= 1;
        match gate.fails {
            true => Err(bolide_base::Error::new(bolide_base::ErrorKind::NoSpace, "the gate fails")),
            false => Ok(()),
        }
    }
}

/// The same file system for the store and the test.
#[derive(Debug, Clone, Default)]
struct Gated(Arc<GatedVfs>);

impl Vfs for Gated {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.0.pass(path)?;
        self.0.disk.create(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.0.disk.open(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.disk.remove(path)
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        self.0.disk.rewrite(path, from, to)
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        self.0.disk.open_marker(path)
    }

    fn mount_id(&self, path: &Path) -> Option<u64> {
        self.0.disk.mount_id(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.disk.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.disk.hard_link(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.0.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.disk.sync_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.0.disk.remove_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.0.disk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.0.disk.is_locked(path)
    }
}

const MEMTABLE_BYTES: usize = 64 << 10;

/// A tree of keys that are written once each, so that memtables and sstables together have as many entries as keys.
struct Fixture {
    vfs: Gated,
    store: Store,
    tree: TreeId,
    keys: u64,
}

impl Fixture {
    fn new() -> Self {
        let vfs = Gated::default();
        let store = open(&vfs);
        let mut options = TreeOptions::default();
        options.layout = Layout::Partitioned;
        options.target_file_bytes = 32 << 10;
        options.block_bytes = 512;
        let tree = store.create_tree(options, b"").unwrap();
        let mut fixture = Self { vfs, store, tree, keys: 0 };
        // Enough runs for a view, and a reader that needs it.
        for _ in 0..3 {
            fixture.put(500);
            fixture.store.flush().unwrap();
            fixture.check();
        }
        fixture.store.wait_until_settled().unwrap();
        fixture.check();
        fixture
    }

    fn put(&mut self, count: u64) {
        for number in self.keys..self.keys + count {
            let mut batch = StoreBatch::new();
            batch.put(self.tree, &key(number), &value(number)).unwrap();
            self.store.commit(batch, None, SyncMode::None).unwrap();
        }
        self.keys += count;
    }

    /// Writes until a flush builds its views.
    fn flush_until_the_views(&mut self) {
        self.vfs.0.shut();
        let from = self.keys;
        while self.stats().immutable_memtables < 2 {
            self.put(1);
            assert!(self.keys < from + 10_000, "nothing is flushed");
        }
        self.vfs.0.wait_for_a_thread();
        self.check();
    }

    fn stats(&self) -> bolide_lsm::store::TreeStats {
        let stats = self.store.stats();
        stats.trees.into_iter().find(|stats| stats.tree == self.tree).unwrap()
    }

    /// Every key exists once, for cursors and for reads of the newest version.
    fn check(&self) {
        let stats = self.stats();
        let in_tables: u64 = stats.levels.iter().map(|level| level.entries).sum();
        assert_eq!(stats.memtable_entries as u64 + in_tables, self.keys, "every entry is published once");
        let view = self.store.read_view();
        let mut cursor = view.cursor(self.tree, Bounds::all()).unwrap();
        cursor.seek_to_first().unwrap();
        let mut seen = Vec::new();
        while cursor.valid() {
            seen.push((cursor.key().to_vec(), cursor.value().to_vec()));
            cursor.next().unwrap();
        }
        let mut wanted: Vec<_> = (0..self.keys).map(|number| (key(number), value(number))).collect();
        wanted.sort();
        assert!(seen == wanted, "{} entries of {}", seen.len(), wanted.len());
        for number in (0..self.keys).step_by(7) {
            let found = self.store.get_latest(self.tree, &key(number)).unwrap();
            assert_eq!(found.map(|(_, found)| found.to_vec()), Some(value(number)));
        }
    }
}

fn open(vfs: &Gated) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = MEMTABLE_BYTES;
    options.background_threads = 2;
    options.row_cache_bytes = 64 << 10;
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(8 << 20),
    };
    Store::open(options, components).unwrap()
}

/// Consecutive keys are far apart, so that every flush writes to all partitions.
fn key(number: u64) -> Vec<u8> {
    format!("key{:010}", number.wrapping_mul(0x9e37_79b9) % 0xffff_fffb).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number:060}").into_bytes()
}

#[test]
fn a_flush_publishes_its_views_with_its_sstables() {
    let mut fixture = Fixture::new();
    let view = fixture.store.read_view();
    let before = (fixture.keys, fixture.stats().levels);
    fixture.flush_until_the_views();
    // The flush is on the disk, and readers continue to use the memtables.
    assert_eq!(fixture.stats().levels, before.1);
    assert!(fixture.stats().immutable_memtables >= 2);
    let after_a_crash = Gated::default();
    for name in fixture.vfs.list(Path::new("/db")).unwrap() {
        if name == "LOCK" {
            continue;
        }
        let path = Path::new("/db").join(name);
        let from = fixture.vfs.0.disk.open(&path).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_exact_at(0, &mut bytes).unwrap();
        after_a_crash.0.disk.create_dir_all(Path::new("/db")).unwrap();
        after_a_crash.0.disk.create(&path).unwrap().append(&bytes).unwrap();
    }
    let crashed =
        Fixture { store: open(&after_a_crash), vfs: after_a_crash, tree: fixture.tree, keys: fixture.keys };
    assert_ne!(crashed.stats().levels, before.1, "the manifest has the sstables");
    crashed.check();
    // Writers continue.
    fixture.put(100);
    fixture.check();
    fixture.vfs.0.open_up(false);
    fixture.store.wait_until_settled().unwrap();
    assert_ne!(fixture.stats().levels, before.1);
    assert!(fixture.stats().immutable_memtables < 2, "one may wait for a second");
    fixture.check();
    let mut old = view.cursor(fixture.tree, Bounds::all()).unwrap();
    old.seek_to_first().unwrap();
    let mut count = 0;
    while old.valid() {
        count += 1;
        old.next().unwrap();
    }
    assert_eq!(count, before.0, "an earlier view sees its own state");
}

#[test]
fn a_range_tombstone_that_is_removed_meanwhile_exposes_nothing() {
    let mut fixture = Fixture::new();
    let other = fixture.store.create_tree(TreeOptions::default(), b"").unwrap();
    // It remains while an earlier view is pinned.
    let view = fixture.store.read_view();
    let mut batch = StoreBatch::new();
    batch.delete_range(fixture.tree, b"zzz", b"zzzz").unwrap();
    fixture.store.commit(batch, None, SyncMode::None).unwrap();
    fixture.store.flush().unwrap();
    fixture.store.wait_until_settled().unwrap();
    assert_eq!(fixture.stats().range_tombstones, 1);
    fixture.flush_until_the_views();
    drop(view);
    // The end of a task removes it from the manifest.
    let flushes = fixture.store.stats().writes.flushes;
    for number in 0_u64.. {
        let mut batch = StoreBatch::new();
        batch.put(other, &number.to_be_bytes(), &[7; 1_000]).unwrap();
        fixture.store.commit(batch, None, SyncMode::None).unwrap();
        // The first one may have been counted before its task ended.
        if fixture.store.stats().writes.flushes >= flushes + 2 {
            break;
        }
    }
    fixture.check();
    fixture.vfs.0.open_up(false);
    fixture.store.wait_until_settled().unwrap();
    assert_eq!(fixture.stats().range_tombstones, 0);
    assert!(fixture.stats().immutable_memtables < 2, "one may wait for a second");
    fixture.check();
    // Later versions are published at once.
    fixture.put(2_000);
    fixture.store.flush().unwrap();
    assert_eq!(fixture.stats().immutable_memtables, 0);
    fixture.check();
}

#[test]
fn a_view_that_cannot_be_written_defers_no_publication() {
    let mut fixture = Fixture::new();
    fixture.flush_until_the_views();
    fixture.vfs.0.open_up(true);
    fixture.store.wait_until_settled().unwrap();
    assert!(fixture.stats().immutable_memtables < 2, "one may wait for a second");
    assert!(fixture.stats().sorted_view_bytes > 0, "views are in memory");
    fixture.check();
}

#[test]
fn a_store_closed_meanwhile_has_every_key_after_the_next_opening() {
    let mut fixture = Fixture::new();
    fixture.flush_until_the_views();
    fixture.vfs.0.open_up(false);
    fixture.store.close().unwrap();
    fixture.store = open(&fixture.vfs);
    fixture.check();
}
