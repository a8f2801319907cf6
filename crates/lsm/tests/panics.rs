//! A panic in any thread results in an error: of the call, or of every later write. No thread waits forever, and no sequence
//! number is used twice.
#![allow(clippy::disallowed_methods, reason = "a watchdog is a thread of the test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bolide_base::{ErrorKind, Result, TreeId};
use bolide_lsm::{Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{File, FileLock, Marker, MemVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;

/// The call that panics, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// After an append to the log.
    Append,
    /// After a sync of the log.
    Sync,
    /// When an sstable is created.
    Table,
}

#[derive(Debug, Clone)]
struct PanickingVfs {
    inner: Arc<MemVfs>,
    at: At,
    armed: Arc<AtomicBool>,
}

impl PanickingVfs {
    fn new(at: At) -> Self {
        Self { inner: Arc::new(MemVfs::new()), at, armed: Arc::default() }
    }

    fn reach(&self, at: At) {
        if self.at == at && self.armed.swap(false, Ordering::AcqRel) {
            panic!("the file system panics at {at:?}");
        }
    }

    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        let is_log = path.extension().is_some_and(|extension| extension == "wal");
        if is_log { Arc::new(PanickingFile { file, vfs: self.clone() }) } else { file }
    }
}

impl Vfs for PanickingVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        if path.extension().is_some_and(|extension| extension == "sst") {
            self.reach(At::Table);
        }
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.inner.open(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        self.inner.rewrite(path, from, to)
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        self.inner.open_marker(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.hard_link(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.inner.remove_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.inner.is_locked(path)
    }
}

#[derive(Debug)]
struct PanickingFile {
    file: Arc<dyn File>,
    vfs: PanickingVfs,
}

impl File for PanickingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)?;
        self.vfs.reach(At::Append);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()?;
        self.vfs.reach(At::Sync);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }
}

fn open(vfs: &PanickingVfs, threads: usize) -> (Store, TreeId) {
    let mut options = StoreOptions::new(PathBuf::from("/db"));
    options.background_threads = threads;
    options.sync_interval = Duration::from_millis(5);
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let tree = match store.trees().first() {
        Some(tree) => tree.id,
        None => store.create_tree(TreeOptions::default(), b"").unwrap(),
    };
    (store, tree)
}

/// Fails if `work` takes very long.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || drop(sender.send(work())));
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => panic!("{:?}", thread.join().err()),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

fn put_in_batch(store: &Store, tree: TreeId, key: &[u8], sync: SyncMode) -> Result<u64> {
    let mut batch = StoreBatch::new();
    batch.put(tree, key, b"in a batch")?;
    store.commit(batch, None, sync)
}

#[test]
fn a_sequence_number_of_a_panicked_append_is_not_used_again() {
    let ways = [(At::Append, SyncMode::None), (At::Append, SyncMode::Always), (At::Sync, SyncMode::Always)];
    for (at, sync) in ways {
        for (threads, in_batch) in [(0, false), (0, true), (1, false), (1, true)] {
            in_time(move || {
                let vfs = PanickingVfs::new(at);
                let (store, tree) = open(&vfs, threads);
                store.put(tree, b"before", b"1", SyncMode::None).unwrap();
                vfs.armed.store(true, Ordering::Release);
                let written = catch_unwind(AssertUnwindSafe(|| match in_batch {
                    true => put_in_batch(&store, tree, b"amid", sync),
                    false => store.put(tree, b"amid", b"2", sync),
                }));
                assert!(written.is_err(), "{at:?}, {sync:?}: no panic");
                for _ in 0..2 {
                    let after = store.put(tree, b"after", b"3", SyncMode::None).unwrap_err();
                    assert_eq!(after.kind(), ErrorKind::Poisoned, "{at:?}, {sync:?}: {after:?}");
                    let after = put_in_batch(&store, tree, b"after", SyncMode::None).unwrap_err();
                    assert_eq!(after.kind(), ErrorKind::Poisoned, "{at:?}, {sync:?}: {after:?}");
                }
                let get = |store: &Store, key| store.read_view().tree(tree).unwrap().get(key).unwrap();
                assert!(get(&store, b"before").is_some() && get(&store, b"amid").is_none());
                assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Poisoned);
                let (store, tree) = open(&vfs, threads);
                assert_eq!(store.published_sequence(), 2, "the log has both");
                assert!(get(&store, b"amid").is_some());
                assert_eq!(store.put(tree, b"after", b"3", SyncMode::None).unwrap(), 3);
                store.close().unwrap();
            });
        }
    }
}

#[test]
fn a_panic_in_a_background_job_is_an_error_of_its_waiters() {
    for threads in [0, 1, 3] {
        in_time(move || {
            let vfs = PanickingVfs::new(At::Table);
            let (store, tree) = open(&vfs, threads);
            store.put(tree, b"key", b"1", SyncMode::None).unwrap();
            vfs.armed.store(true, Ordering::Release);
            let error = store.flush().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{error:?}");
            assert!(error.message().contains("the file system panics at Table"), "{error:?}");
            assert!(store.put(tree, b"key", b"2", SyncMode::None).is_err());
            assert!(store.wait_until_settled().is_err());
            assert!(store.close().is_err());
            let (store, tree) = open(&vfs, threads);
            store.flush().unwrap();
            assert!(store.read_view().tree(tree).unwrap().get(b"key").unwrap().is_some());
            store.close().unwrap();
        });
    }
}

#[test]
fn a_panic_between_two_background_jobs_is_an_error_of_later_writes() {
    // The writer itself may sync: then the test retries.
    let by_the_thread = in_time(|| (0..100).any(|_| the_thread_panics()));
    assert!(by_the_thread, "the thread has never synced the log");
}

/// True if the background thread panicked, and not the writer.
fn the_thread_panics() -> bool {
    let vfs = PanickingVfs::new(At::Sync);
    let (store, tree) = open(&vfs, 1);
    vfs.armed.store(true, Ordering::Release);
    let put = |sync| catch_unwind(AssertUnwindSafe(|| store.put(tree, b"key", b"1", sync)));
    let mut outcome = put(SyncMode::Batch);
    while matches!(outcome, Ok(Ok(_))) {
        // The thread syncs it at the end of its interval.
        std::thread::sleep(Duration::from_millis(2));
        outcome = put(SyncMode::None);
    }
    let Ok(outcome) = outcome else { return false };
    let error = outcome.unwrap_err();
    assert!(error.message().contains("the file system panics at Sync"), "{error:?}");
    assert_eq!(store.flush().unwrap_err().kind(), ErrorKind::Poisoned);
    true
}

#[test]
fn a_panic_in_a_manual_compaction_leaves_no_tree_reserved() {
    for threads in [0, 1] {
        in_time(move || {
            let vfs = PanickingVfs::new(At::Table);
            let (store, tree) = open(&vfs, threads);
            for value in [b"1", b"2"] {
                store.put(tree, b"key", value, SyncMode::None).unwrap();
                store.flush().unwrap();
            }
            vfs.armed.store(true, Ordering::Release);
            assert!(catch_unwind(AssertUnwindSafe(|| store.compact(tree))).is_err(), "no panic");
            assert_eq!(store.compact(tree).unwrap_err().kind(), ErrorKind::Poisoned);
            drop(store);
            let (store, tree) = open(&vfs, threads);
            store.compact(tree).unwrap();
            store.close().unwrap();
        });
    }
}
