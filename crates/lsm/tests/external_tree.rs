//! External trees: after any event they have the same content as an ordinary tree with the same writes.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTreeStats, ExternalWrite,
};
use bolide_lsm::{
    Bounds, ExternalTree, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{
    CrashMode, DiskImage, Fault, FaultPlan, RecordImages, SimRng, SimRuntime, SimVfs, SystemRuntime, Vfs,
};
use bolide_table::BlockCache;
use parking_lot::Mutex;

type Versions = BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, Option<Vec<u8>>>>;

/// Stores all versions in memory, and writes all of them with each checkpoint.
#[derive(Debug, Default)]
struct VersionMap {
    versions: Mutex<Versions>,
    /// The position of the last write in the log.
    last: Mutex<(SequenceNumber, Vec<u8>)>,
    /// The reserved writes that may still be applied.
    reserved: Mutex<usize>,
    installed: Arc<Mutex<Vec<SequenceNumber>>>,
    /// The number of applied writes.
    applied: Mutex<usize>,
    eager: bool,
    /// Runs when the next write arrives, before it is applied.
    before_write: BeforeWrite,
}

#[derive(Default)]
struct BeforeWrite(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for BeforeWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeWrite")
    }
}

impl VersionMap {
    /// The state that `root` names, or an empty one.
    fn open(vfs: &dyn Vfs, store: &Store, tree: TreeId, eager: bool) -> Result<Self> {
        let mut versions = Versions::new();
        if let Some(root) = store.external_root(tree) {
            let path = store.external_file_path(root.files[0]);
            let file = vfs.open(&path)?;
            let mut bytes = vec![0; u64::from_le_bytes(root.root[..8].try_into().unwrap()) as usize];
            file.read_exact_at(0, &mut bytes)?;
            let hash = u64::from_le_bytes(root.root[8..].try_into().unwrap());
            assert_eq!(bolide_base::checksum::hash_key(&bytes), hash, "a torn root");
            let mut at = 0;
            let mut take = |len: usize| {
                at += len;
                &bytes[at - len..at]
            };
            let count = u64::from_le_bytes(take(8).try_into().unwrap());
            for _ in 0..count {
                let sequence = u64::from_le_bytes(take(8).try_into().unwrap());
                let (key_len, value_len) = (take(1)[0] as usize, take(1)[0] as usize);
                let key = take(key_len).to_vec();
                let value = (value_len < 255).then(|| take(value_len).to_vec());
                versions.entry(key).or_default().insert(sequence, value);
            }
        }
        Ok(Self { versions: Mutex::new(versions), eager, ..Self::default() })
    }

    fn visible(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let newest = |(key, versions): (&Vec<u8>, &BTreeMap<_, Option<Vec<u8>>>)| {
            Some((key.clone(), versions.last_key_value()?.1.clone()?))
        };
        self.versions.lock().iter().filter_map(newest).collect()
    }
}

impl ExternalTree for VersionMap {
    fn reserve(&self, writes: usize, bytes: usize) -> Result<bool> {
        assert!(bytes > 0);
        *self.reserved.lock() += writes;
        Ok(false)
    }

    fn apply(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let before_write = self.before_write.0.lock().take();
        before_write.into_iter().for_each(|act| act());
        let mut reserved = self.reserved.lock();
        *reserved =
            reserved.checked_sub(1).ok_or_else(|| Error::internal("a write that was not reserved"))?;
        assert!(oldest_in_use() < write.trailer.sequence() || oldest_in_use() > 0);
        *self.applied.lock() += 1;
        let place = (write.trailer.sequence(), write.key.to_vec());
        let before = std::mem::replace(&mut *self.last.lock(), place.clone());
        assert!(before <= place, "in the order of the log: {before:?}, {place:?}");
        let value = (!write.trailer.is_delete()).then(|| write.value.to_vec());
        let mut versions = self.versions.lock();
        let before =
            versions.entry(write.key.to_vec()).or_default().insert(write.trailer.sequence(), value.clone());
        assert!(before.is_none_or(|before| before == value), "a redo writes the same value");
        Ok(())
    }

    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        let versions = self.versions.lock().clone();
        let newest =
            versions.values().filter_map(|versions| versions.last_key_value()).map(|(&at, _)| at).max();
        assert!(newest.unwrap_or(0) <= sequence, "no write behind the checkpoint");
        Ok(Box::new(VersionMapCheckpoint { versions, sequence, installed: self.installed.clone() }))
    }

    fn is_checkpoint_due(&self, logged: u64) -> bool {
        self.eager || logged > 6_000
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        self.eager
    }

    fn collect_garbage(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        assert!(oldest_in_use() < SequenceNumber::MAX);
        Ok(())
    }

    fn clear_through(&self) -> SequenceNumber {
        0
    }

    fn stats(&self) -> ExternalTreeStats {
        let entries = self.versions.lock().values().map(|versions| versions.len() as u64).sum();
        ExternalTreeStats { entries, ..ExternalTreeStats::default() }
    }
}

struct VersionMapCheckpoint {
    versions: Versions,
    sequence: SequenceNumber,
    installed: Arc<Mutex<Vec<SequenceNumber>>>,
}

impl ExternalCheckpoint for VersionMapCheckpoint {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let count: u64 = self.versions.values().map(|versions| versions.len() as u64).sum();
        let mut bytes = count.to_le_bytes().to_vec();
        for (key, versions) in &self.versions {
            for (sequence, value) in versions {
                bytes.extend(sequence.to_le_bytes());
                bytes.push(key.len() as u8);
                bytes.push(value.as_ref().map_or(255, |value| value.len() as u8));
                bytes.extend(key);
                bytes.extend(value.as_deref().unwrap_or_default());
            }
        }
        let (identity, path) = files.new_file();
        let file = files.vfs().create(&path)?;
        file.append(&bytes)?;
        file.sync()?;
        files.vfs().sync_dir(path.parent().unwrap())?;
        let mut root = (bytes.len() as u64).to_le_bytes().to_vec();
        root.extend(bolide_base::checksum::hash_key(&bytes).to_le_bytes());
        Ok(ExternalRoot { files: vec![identity.file_number], root })
    }

    fn written_bytes(&self) -> u64 {
        self.versions.len() as u64
    }

    fn installed(self: Box<Self>) {
        self.installed.lock().push(self.sequence);
    }
}

const PLAIN: TreeId = 1;
const EXTERNAL: TreeId = 2;

fn options(threads: usize) -> StoreOptions {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 4 << 10;
    // So small that the move to the external tree takes several passes.
    options.hand_over_bytes = 2 << 10;
    options.background_threads = threads;
    options.start_paused = true;
    options
}

fn open(vfs: Arc<dyn Vfs>, threads: usize, eager: bool) -> Result<(Store, Arc<VersionMap>)> {
    let runtime: Arc<dyn bolide_storage::Runtime> =
        if threads == 0 { Arc::new(SimRuntime::new(1)) } else { Arc::new(SystemRuntime::default()) };
    let components = StoreComponents { vfs: vfs.clone(), runtime, cache: BlockCache::new(1 << 20) };
    let store = Store::open(options(threads), components)?;
    if store.trees().is_empty() {
        assert_eq!(store.create_tree(TreeOptions::default(), b"plain")?, PLAIN);
    }
    if store.trees().len() == 1 {
        assert_eq!(store.create_tree(TreeOptions::default(), b"external")?, EXTERNAL);
    }
    let map = Arc::new(VersionMap::open(&*vfs, &store, EXTERNAL, eager)?);
    store.set_external_tree(EXTERNAL, map.clone())?;
    store.start();
    Ok((store, map))
}

fn write(store: &Store, rng: &mut SimRng) -> Result<()> {
    let mut batch = StoreBatch::new();
    for _ in 0..=rng.below(4) {
        let key = format!("key-{:03}", rng.below(60)).into_bytes();
        if rng.one_in(5) {
            batch.delete(PLAIN, &key)?;
            batch.delete(EXTERNAL, &key)?;
        } else {
            let value = vec![b'a' + rng.below(26) as u8; rng.below(120) as usize];
            batch.put(PLAIN, &key, &value)?;
            batch.put(EXTERNAL, &key, &value)?;
        }
    }
    let sync = *rng.pick(&[SyncMode::None, SyncMode::None, SyncMode::Always]).unwrap();
    store.commit(batch, None, sync).map(drop)
}

fn visible(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let view = store.read_view();
    let mut cursor = view.cursor(PLAIN, Bounds::all()).unwrap();
    let mut entries = BTreeMap::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    entries
}

/// Checks that the external tree has the content of the ordinary one.
fn same(map: &VersionMap, store: &Store, context: &str) {
    let (external, plain) = (map.visible(), visible(store));
    let differ = |key: &&Vec<u8>| external.get(*key) != plain.get(*key);
    let first = external.keys().chain(plain.keys()).find(differ);
    assert!(first.is_none(), "{context}: {} of {} keys, first {first:?}", external.len(), plain.len());
}

/// Checks that the external tree has the content of the ordinary one, and that no file remains.
fn verify(vfs: &SimVfs, eager: bool, context: &str) {
    let (store, map) =
        open(Arc::new(vfs.clone()), 0, eager).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    same(&map, &store, context);
    let files = store.external_root(EXTERNAL).map(|root| root.files.clone()).unwrap_or_default();
    let name = |path: &PathBuf| path.file_name().unwrap().to_owned();
    let named: BTreeSet<_> = files.iter().map(|&file| name(&store.external_file_path(file))).collect();
    let is_region = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "region");
    let found: BTreeSet<_> = vfs.files().iter().filter(is_region).map(name).collect();
    assert_eq!(found, named, "{context}: files of external trees");
}

#[test]
fn an_external_tree_survives_every_power_cut_like_an_ordinary_one() {
    for seed in [0, 1, 3, 4] {
        let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
        let eager = seed % 2 == 0;
        vfs.record_images(if seed == 3 { RecordImages::Writes } else { RecordImages::SyncPoints });
        let (mut store, mut map) = open(Arc::new(vfs.clone()), 0, eager).unwrap();
        let mut checkpoints = 0;
        for step in 0..90 {
            match rng.below(20) {
                0 => store.flush().unwrap(),
                1 => store.compact(EXTERNAL).unwrap(),
                2 => {
                    checkpoints += map.installed.lock().len();
                    drop(map);
                    store.close().unwrap();
                    (store, map) = open(Arc::new(vfs.clone()), 0, eager).unwrap();
                }
                _ => write(&store, &mut rng).unwrap(),
            }
            same(&map, &store, &format!("seed {seed}, step {step}"));
            for DiskImage { vfs: image, before, call } in vfs.take_images() {
                for mode in CrashMode::EACH {
                    let disk = image.crash_with_seed(mode, rng.next_u64());
                    let context =
                        format!("seed {seed}, step {step}, before {before} (call {call}), {mode:?}");
                    verify(&disk, eager, &context);
                    // The recovered state survives the next power cut.
                    verify(&disk.crash_with_seed(mode, rng.next_u64()), eager, &context);
                }
            }
        }
        checkpoints += map.installed.lock().len();
        assert!(checkpoints > 2, "seed {seed}: only {checkpoints} checkpoints were installed");
    }
}

#[test]
fn earlier_writes_are_moved_to_the_external_tree_with_their_sstables() {
    let vfs = SimVfs::new(9);
    let mut rng = SimRng::new(9);
    let runtime = Arc::new(SimRuntime::new(1));
    let components = StoreComponents { vfs: Arc::new(vfs.clone()), runtime, cache: BlockCache::new(1 << 20) };
    let store = Store::open(options(0), components).unwrap();
    store.create_tree(TreeOptions::default(), b"plain").unwrap();
    store.create_tree(TreeOptions::default(), b"external").unwrap();
    store.start();
    for _ in 0..150 {
        write(&store, &mut rng).unwrap();
    }
    let tables =
        |store: &Store| store.stats().trees[1].levels.iter().map(|level| level.tables).sum::<usize>();
    assert!(tables(&store) > 0, "the test requires sstables");
    let map = Arc::new(VersionMap::open(&vfs, &store, EXTERNAL, false).unwrap());
    store.set_external_tree(EXTERNAL, map.clone()).unwrap();
    same(&map, &store, "");
    let again = store.set_external_tree(EXTERNAL, Arc::new(VersionMap::default()));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    for _ in 0..40 {
        write(&store, &mut rng).unwrap();
    }
    store.flush().unwrap();
    assert_eq!(tables(&store), 0, "the first checkpoint frees the sstables");
    assert_eq!(store.stats().trees[1].memtable_entries, 0);
    drop(store);
    verify(&vfs, false, "after the move");
}

/// A manual compaction that waits for the move leaves the sstables to the first checkpoint.
#[test]
fn a_compaction_that_waits_for_the_move_does_nothing() {
    for seed in 0..4 {
        let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
        let (runtime, cache) = (Arc::new(SystemRuntime::default()), BlockCache::new(1 << 20));
        let components = StoreComponents { vfs: Arc::new(vfs.clone()), runtime, cache };
        let store = Arc::new(Store::open(options(2), components).unwrap());
        store.create_tree(TreeOptions::default(), b"plain").unwrap();
        store.create_tree(TreeOptions::default(), b"external").unwrap();
        store.start();
        for _ in 0..150 {
            write(&store, &mut rng).unwrap();
        }
        // So that all trees but the compacted one are idle.
        store.flush().unwrap();
        store.wait_until_settled().unwrap();
        let compactions = store.stats().writes.compactions;
        let map = Arc::new(VersionMap::open(&vfs, &store, EXTERNAL, false).unwrap());
        let compaction = Arc::new(Mutex::new(None));
        let (inside, begun) = (store.clone(), compaction.clone());
        *map.before_write.0.lock() = Some(Box::new(move || {
            *begun.lock() = Some(std::thread::spawn(move || inside.compact(EXTERNAL)));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }));
        store.set_external_tree(EXTERNAL, map.clone()).unwrap();
        let compacted = compaction.lock().take().expect("the tree has writes to move").join().unwrap();
        compacted.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(store.stats().writes.compactions, compactions, "seed {seed}");
        write(&store, &mut rng).unwrap();
        same(&map, &store, &format!("seed {seed}"));
    }
}

#[test]
fn a_single_put_is_applied_to_the_external_tree() {
    let vfs = SimVfs::new(3);
    let (store, map) = open(Arc::new(vfs.clone()), 0, false).unwrap();
    for number in 0..200_u64 {
        let (key, value) = (number.to_be_bytes(), [number as u8; 100]);
        store.put(EXTERNAL, &key, &value, SyncMode::None).unwrap();
        store.put(PLAIN, &key, &value, SyncMode::None).unwrap();
        assert_eq!(*map.applied.lock() as u64, number + 1);
    }
    same(&map, &store, "");
    assert_eq!(store.stats().trees[1].memtable_entries, 0);
    drop((store, map));
    verify(&vfs, false, "opened again");
}

#[test]
fn a_checkpoint_on_a_full_disk_is_retried_and_loses_nothing() {
    for nth in 1..60 {
        let vfs = SimVfs::new(nth);
        let mut rng = SimRng::new(nth);
        let (store, map) = open(Arc::new(vfs.clone()), 0, true).unwrap();
        for _ in 0..30 {
            write(&store, &mut rng).unwrap();
        }
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: nth, sticky: false }));
        let _ = store.flush();
        vfs.set_fault(None);
        store.flush().unwrap();
        same(&map, &store, &format!("call {nth}"));
        drop((store, map));
        verify(&vfs, true, &format!("call {nth}"));
    }
}

#[test]
fn a_clean_close_leaves_nothing_to_replay() {
    for eager in [true, false] {
        let vfs = SimVfs::new(8);
        let mut rng = SimRng::new(8);
        let (store, map) = open(Arc::new(vfs.clone()), 0, eager).unwrap();
        for _ in 0..12 {
            write(&store, &mut rng).unwrap();
        }
        let checkpoints = map.installed.lock().len();
        store.close().unwrap();
        let installed = map.installed.lock().len();
        assert_eq!(installed, checkpoints + usize::from(eager), "one last checkpoint, if it is due");
        drop(map);
        let (store, map) = open(Arc::new(vfs.clone()), 0, eager).unwrap();
        assert_eq!(*map.applied.lock() == 0, eager, "{} writes were replayed", map.applied.lock());
        same(&map, &store, "after the close");
        // Nothing was written: no checkpoint begins.
        store.close().unwrap();
        assert!(map.installed.lock().is_empty() || !eager);
        verify(&vfs, eager, "after two closes");
    }
}

#[test]
fn a_failed_last_checkpoint_is_replaced_by_a_replay_of_the_log() {
    let mut failed = 0;
    let faults = [Fault::NoSpace, Fault::Io].into_iter();
    for (fault, nth) in faults.flat_map(|fault| (1..25).map(move |nth| (fault, nth))) {
        let vfs = SimVfs::new(nth);
        let mut rng = SimRng::new(nth);
        let (store, map) = open(Arc::new(vfs.clone()), 0, true).unwrap();
        for _ in 0..12 {
            write(&store, &mut rng).unwrap();
        }
        let expected = visible(&store);
        let checkpoints = map.installed.lock().len();
        vfs.set_fault(Some(FaultPlan { fault, at: nth, sticky: false }));
        let closed = store.close();
        vfs.set_fault(None);
        let has_failed = map.installed.lock().len() == checkpoints;
        assert!(
            !has_failed || fault == Fault::NoSpace || closed.is_err(),
            "call {nth}: the failed checkpoint is not reported"
        );
        failed += usize::from(has_failed);
        drop(map);
        let (store, map) = open(Arc::new(vfs.clone()), 0, true).unwrap();
        same(&map, &store, &format!("{fault:?} at call {nth}"));
        assert_eq!(visible(&store), expected);
        drop((store, map));
        verify(&vfs, true, &format!("{fault:?} at call {nth}, opened once more"));
    }
    assert!(failed > 4, "only {failed} checkpoints failed");
}

#[test]
fn dropping_an_external_tree_removes_its_files() {
    let vfs = SimVfs::new(4);
    let mut rng = SimRng::new(4);
    let (store, map) = open(Arc::new(vfs.clone()), 0, true).unwrap();
    for _ in 0..30 {
        write(&store, &mut rng).unwrap();
    }
    store.flush().unwrap();
    assert!(store.external_root(EXTERNAL).is_some());
    store.drop_tree(EXTERNAL).unwrap();
    drop((store, map));
    assert!(!vfs.files().iter().any(|path| path.extension().is_some_and(|extension| extension == "region")));
}

#[test]
fn a_checkpoint_of_the_store_has_the_files_of_external_trees() {
    let vfs = SimVfs::new(5);
    let mut rng = SimRng::new(5);
    let (store, map) = open(Arc::new(vfs.clone()), 0, true).unwrap();
    for _ in 0..60 {
        write(&store, &mut rng).unwrap();
    }
    store.flush().unwrap();
    write(&store, &mut rng).unwrap();
    store.checkpoint(std::path::Path::new("/copy")).unwrap();
    let expected = visible(&store);
    drop((store, map));
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    let mut options = options(0);
    options.dir = "/copy".into();
    let store = Store::open(options, components).unwrap();
    let map = VersionMap::open(&vfs, &store, EXTERNAL, true).unwrap();
    let map = Arc::new(map);
    store.set_external_tree(EXTERNAL, map.clone()).unwrap();
    assert_eq!(map.visible(), expected);
}

#[test]
fn writers_and_checkpoints_run_concurrently() {
    let vfs = SimVfs::new(6);
    let (store, map) = open(Arc::new(vfs.clone()), 2, true).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut rng = SimRng::new(100 + seed);
                for _ in 0..300 {
                    write(store, &mut rng).unwrap();
                }
            });
        }
    });
    store.wait_until_settled().unwrap();
    same(&map, &store, "");
    assert!(!map.installed.lock().is_empty());
    store.close().unwrap();
    verify(&vfs, true, "after the threads");
}
