//! What readers see while a flush into partitions builds the views over what it has written.
#![cfg(not(bolide_shuttle))]

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::{Bounds, Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{File, FileLock, Marker, MemVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;
use parking_lot::{Condvar, Mutex};

/// A file system on which nobody gets to create the file of a view while it is shut.
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

    /// Waits until somebody stands before it.
    fn wait_for_somebody(&self) {
        let mut gate = self.gate.lock();
        while gate.waiting == 0 {
            self.moved.wait(&mut gate);
        }
    }

    /// Lets them through; or has their files fail.
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

/// The same one for the store and the test.
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

/// A tree of keys that are each written once, so that memtables and sstables together have as many entries as keys.
struct Life {
    vfs: Gated,
    store: Store,
    tree: TreeId,
    keys: u64,
}

impl Life {
    fn new() -> Self {
        let vfs = Gated::default();
        let store = open(&vfs);
        let mut options = TreeOptions::default();
        options.layout = Layout::Partitioned;
        options.target_file_bytes = 32 << 10;
        options.block_bytes = 512;
        let tree = store.create_tree(options, b"").unwrap();
        let mut life = Self { vfs, store, tree, keys: 0 };
        // Runs that are worth a view, and a reader who wants it.
        for _ in 0..3 {
            life.put(500);
            life.store.flush().unwrap();
            life.check();
        }
        life.store.wait_until_settled().unwrap();
        life.check();
        life
    }

    fn put(&mut self, count: u64) {
        for number in self.keys..self.keys + count {
            let mut batch = StoreBatch::new();
            batch.put(self.tree, &key(number), &value(number)).unwrap();
            self.store.commit(batch, None, SyncMode::None).unwrap();
        }
        self.keys += count;
    }

    /// Writes until a flush has come to its views.
    fn flush_up_to_the_views(&mut self) {
        self.vfs.0.shut();
        let from = self.keys;
        while self.stats().immutable_memtables < 2 {
            self.put(1);
            assert!(self.keys < from + 10_000, "nothing is flushed");
        }
        self.vfs.0.wait_for_somebody();
        self.check();
    }

    fn stats(&self) -> bolide_lsm::store::TreeStats {
        let stats = self.store.stats();
        stats.trees.into_iter().find(|stats| stats.tree == self.tree).unwrap()
    }

    /// All keys are there once, for cursors and for gets of the newest.
    fn check(&self) {
        let stats = self.stats();
        let in_tables: u64 = stats.levels.iter().map(|level| level.entries).sum();
        assert_eq!(stats.memtable_entries as u64 + in_tables, self.keys, "every entry is shown once");
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

/// Neighbours are written far apart, so that every flush goes to all partitions.
fn key(number: u64) -> Vec<u8> {
    format!("key{:010}", number.wrapping_mul(0x9e37_79b9) % 0xffff_fffb).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number:060}").into_bytes()
}

#[test]
fn sstables_and_views_are_shown_together() {
    let mut life = Life::new();
    let view = life.store.read_view();
    let before = (life.keys, life.stats().levels);
    life.flush_up_to_the_views();
    // On the disk it is there, and readers go on with the memtables.
    assert_eq!(life.stats().levels, before.1);
    assert!(life.stats().immutable_memtables >= 2);
    let after_a_crash = Gated::default();
    for name in life.vfs.list(Path::new("/db")).unwrap() {
        if name == "LOCK" {
            continue;
        }
        let path = Path::new("/db").join(name);
        let from = life.vfs.0.disk.open(&path).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_exact_at(0, &mut bytes).unwrap();
        after_a_crash.0.disk.create_dir_all(Path::new("/db")).unwrap();
        after_a_crash.0.disk.create(&path).unwrap().append(&bytes).unwrap();
    }
    let crashed = Life { store: open(&after_a_crash), vfs: after_a_crash, tree: life.tree, keys: life.keys };
    assert_ne!(crashed.stats().levels, before.1, "the manifest has the sstables");
    crashed.check();
    // Writers go on.
    life.put(100);
    life.check();
    life.vfs.0.open_up(false);
    life.store.wait_until_settled().unwrap();
    assert_ne!(life.stats().levels, before.1);
    assert!(life.stats().immutable_memtables < 2, "one may wait for a second");
    life.check();
    let mut old = view.cursor(life.tree, Bounds::all()).unwrap();
    old.seek_to_first().unwrap();
    let mut count = 0;
    while old.valid() {
        count += 1;
        old.next().unwrap();
    }
    assert_eq!(count, before.0, "a view from before sees what there was");
}

#[test]
fn a_deleted_range_that_is_forgotten_meanwhile_shows_nothing_by_itself() {
    let mut life = Life::new();
    let other = life.store.create_tree(TreeOptions::default(), b"").unwrap();
    // It stays known as long as somebody reads from before.
    let view = life.store.read_view();
    let mut batch = StoreBatch::new();
    batch.delete_range(life.tree, b"zzz", b"zzzz").unwrap();
    life.store.commit(batch, None, SyncMode::None).unwrap();
    life.store.flush().unwrap();
    life.store.wait_until_settled().unwrap();
    assert_eq!(life.stats().range_tombstones, 1);
    life.flush_up_to_the_views();
    drop(view);
    // Whoever ends a piece of work forgets it in the manifest.
    let flushes = life.store.stats().writes.flushes;
    for number in 0_u64.. {
        let mut batch = StoreBatch::new();
        batch.put(other, &number.to_be_bytes(), &[7; 1_000]).unwrap();
        life.store.commit(batch, None, SyncMode::None).unwrap();
        // The first one may have been counted before its work ended.
        if life.store.stats().writes.flushes >= flushes + 2 {
            break;
        }
    }
    life.check();
    life.vfs.0.open_up(false);
    life.store.wait_until_settled().unwrap();
    assert_eq!(life.stats().range_tombstones, 0);
    assert!(life.stats().immutable_memtables < 2, "one may wait for a second");
    life.check();
    // What is installed from then on is shown at once.
    life.put(2_000);
    life.store.flush().unwrap();
    assert_eq!(life.stats().immutable_memtables, 0);
    life.check();
}

#[test]
fn a_view_that_cannot_be_written_keeps_nothing_back() {
    let mut life = Life::new();
    life.flush_up_to_the_views();
    life.vfs.0.open_up(true);
    life.store.wait_until_settled().unwrap();
    assert!(life.stats().immutable_memtables < 2, "one may wait for a second");
    assert!(life.stats().sorted_view_bytes > 0, "views are in memory");
    life.check();
}

#[test]
fn a_store_that_is_closed_meanwhile_has_everything_when_it_is_opened_again() {
    let mut life = Life::new();
    life.flush_up_to_the_views();
    life.vfs.0.open_up(false);
    life.store.close().unwrap();
    life.store = open(&life.vfs);
    life.check();
}
