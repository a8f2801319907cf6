//! External trees that are opened when they are needed: whatever happens before, they have every write once they are open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTreeStats, ExternalWrite,
};
use bolide_lsm::store::{DeferredExternalTree, ExternalTreeOpener};
use bolide_lsm::{ExternalTree, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_memory::{MemoryBudget, MemoryHolder, MemoryPool, MemoryUse};
use bolide_storage::{
    CrashMode, DiskImage, Fault, FaultPlan, RecordImages, SimRng, SimRuntime, SimVfs, SystemRuntime, Vfs,
};
use bolide_table::BlockCache;
use parking_lot::Mutex;

const RECORDS: TreeId = 1;
const EXTERNAL: TreeId = 2;

type Writes = BTreeMap<Vec<u8>, SequenceNumber>;

/// Stores every write in memory, and writes all of them with each checkpoint: 8 bytes a key.
#[derive(Debug, Default)]
struct WriteSet {
    writes: Mutex<Writes>,
    opened_at: SequenceNumber,
}

impl ExternalTree for WriteSet {
    fn reserve(&self, _writes: usize, _bytes: usize) -> Result<bool> {
        Ok(false)
    }

    fn apply(&self, write: ExternalWrite<'_>, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        if sequence > self.opened_at {
            let before = self.writes.lock().insert(write.key.to_vec(), sequence);
            assert!(before.is_none(), "a write was applied twice");
        }
        Ok(())
    }

    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        let mut bytes = sequence.to_le_bytes().to_vec();
        for (key, sequence) in &*self.writes.lock() {
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&sequence.to_le_bytes());
        }
        Ok(Box::new(WholeSet(bytes)))
    }

    fn is_checkpoint_due(&self, _logged: u64) -> bool {
        true
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        false
    }

    fn collect_garbage(&self, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        Ok(())
    }

    fn clear_through(&self) -> SequenceNumber {
        0
    }

    fn stats(&self) -> ExternalTreeStats {
        ExternalTreeStats::default()
    }
}

struct WholeSet(Vec<u8>);

impl ExternalCheckpoint for WholeSet {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let (identity, path) = files.new_file();
        let file = files.vfs().create(&path)?;
        file.append(&self.0)?;
        file.sync()?;
        files.vfs().sync_dir(files.dir())?;
        let root = [self.0.len() as u64, bolide_base::checksum::hash_key(&self.0)];
        let root = root.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(ExternalRoot { files: vec![identity.file_number], root })
    }

    fn written_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn installed(self: Box<Self>) {}
}

/// Opens sets of writes, or fails.
#[derive(Debug)]
struct Opener {
    vfs: Arc<dyn Vfs>,
    opened: Mutex<Option<Arc<WriteSet>>>,
    calls: AtomicUsize,
    lacks_memory: AtomicBool,
    /// Requested at each opening.
    memory: MemoryHolder,
    needed_bytes: AtomicU64,
    /// An opening waits twice for it at its end, if there is one.
    pause: Mutex<Option<Arc<Barrier>>>,
}

impl Opener {
    fn read(&self, root: &ExternalRoot) -> Result<Vec<u8>> {
        let word = |at: usize| u64::from_le_bytes(root.root[at..at + 8].try_into().unwrap());
        let path = PathBuf::from(format!("/db/{:06}.region", root.files[0]));
        let mut bytes = vec![0; word(0) as usize];
        self.vfs.open(&path)?.read_exact_at(0, &mut bytes)?;
        match bolide_base::checksum::hash_key(&bytes) == word(8) {
            true => Ok(bytes),
            false => Err(Error::corruption(path.display(), 0, "another checksum")),
        }
    }
}

impl ExternalTreeOpener for Opener {
    fn open(&self, root: Option<&ExternalRoot>) -> Result<Arc<dyn ExternalTree>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.lacks_memory.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "no memory"));
        }
        self.memory.set(0);
        self.memory.request(self.needed_bytes.load(Ordering::Relaxed))?;
        let bytes = root.map(|root| self.read(root)).transpose()?.unwrap_or_else(|| vec![0; 8]);
        let (opened_at, entries) = bytes.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let entry = |entry: &[u8]| (entry[..8].to_vec(), number(&entry[8..]));
        let set = Arc::new(WriteSet {
            writes: Mutex::new(entries.chunks_exact(16).map(entry).collect()),
            opened_at: number(opened_at),
        });
        *self.opened.lock() = Some(set.clone());
        if let Some(pause) = self.pause.lock().take() {
            pause.wait();
            pause.wait();
        }
        Ok(set)
    }

    fn verify(&self, root: &ExternalRoot) -> Result<(u64, u64)> {
        self.read(root).map(|bytes| (1, bytes.len() as u64))
    }

    fn stats(&self, root: &ExternalRoot) -> Result<ExternalTreeStats> {
        let disk_bytes = u64::from_le_bytes(root.root[..8].try_into().unwrap());
        Ok(ExternalTreeStats { disk_bytes, ..ExternalTreeStats::default() })
    }
}

struct Opened {
    store: Store,
    opener: Arc<Opener>,
    external_tree: DeferredExternalTree,
}

impl Opened {
    fn new(vfs: &SimVfs) -> Self {
        Self::with_budget(vfs, &MemoryBudget::unlimited())
    }

    fn with_budget(vfs: &SimVfs, budget: &Arc<MemoryBudget>) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let mut options = StoreOptions::new("/db");
        options.memtable_bytes = 4 << 10;
        options.hand_over_bytes = 2 << 10;
        options.background_threads = 0;
        options.start_paused = true;
        let runtime = Arc::new(SimRuntime::new(1));
        let cache = BlockCache::with_memory(1 << 20, MemoryPool::with_budget(budget.clone()));
        let components = StoreComponents { vfs: vfs.clone(), runtime, cache };
        let store = Store::open(options, components).unwrap();
        for (tree, name) in [(RECORDS, &b"records"[..]), (EXTERNAL, b"external")] {
            if store.trees().len() < tree as usize {
                assert_eq!(store.create_tree(TreeOptions::default(), name).unwrap(), tree);
            }
        }
        let opener = Arc::new(Opener {
            vfs,
            opened: Mutex::default(),
            calls: AtomicUsize::new(0),
            lacks_memory: AtomicBool::new(false),
            memory: budget.holder(MemoryUse::IndexRegions, Some("external".into())),
            needed_bytes: AtomicU64::new(0),
            pause: Mutex::default(),
        });
        let external_tree = store.defer_external_tree(EXTERNAL, opener.clone()).unwrap();
        store.start();
        Self { store, opener, external_tree }
    }

    /// Writes `number` to both trees.
    fn write(&self, number: u64) {
        let mut batch = StoreBatch::new();
        batch.put(RECORDS, &number.to_be_bytes(), &[7; 60]).unwrap();
        batch.put(EXTERNAL, &number.to_be_bytes(), &[]).unwrap();
        self.store.commit(batch, None, SyncMode::Always).unwrap();
    }

    /// Checks that the external tree has the keys of the records.
    fn check(&self, context: &str) {
        self.external_tree.attach().unwrap_or_else(|error| panic!("{context}: {error}"));
        let view = self.store.read_view();
        let mut records = view.cursor(RECORDS, bolide_lsm::Bounds::all()).unwrap();
        let mut wanted = Vec::new();
        records.seek_to_first().unwrap();
        while records.valid() {
            wanted.push(records.key().to_vec());
            records.next().unwrap();
        }
        let opened = self.opener.opened.lock().clone().unwrap();
        let found: Vec<_> = opened.writes.lock().keys().cloned().collect();
        assert_eq!(found, wanted, "{context}");
    }
}

#[test]
fn no_event_before_the_first_use_loses_or_repeats_a_write() {
    for seed in 0..4 {
        let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
        vfs.record_images(RecordImages::SyncPoints);
        let mut opened = Opened::new(&vfs);
        let mut attached = 0;
        for step in 0..120_u64 {
            let context = format!("seed {seed}, step {step}");
            match rng.below(16) {
                0 => opened.store.flush().unwrap(),
                1 => {
                    opened.opener.lacks_memory.store(false, Ordering::Relaxed);
                    opened.check(&context);
                }
                2 | 3 => {
                    attached += usize::from(opened.external_tree.is_attached());
                    opened.store.close().unwrap();
                    opened = Opened::new(&vfs);
                    assert_eq!(opened.opener.calls.load(Ordering::Relaxed), 0, "{context}");
                }
                4 => opened.opener.lacks_memory.store(rng.one_in(2), Ordering::Relaxed),
                _ => opened.write(step),
            }
            for DiskImage { vfs: image, before, call } in vfs.take_images() {
                let disk = image.crash_with_seed(CrashMode::Random, rng.next_u64());
                let context = format!("{context}, before {before} (call {call})");
                let recovered = Opened::new(&disk);
                if rng.one_in(2) {
                    recovered.write(1_000);
                }
                if rng.one_in(3) {
                    recovered.store.flush().unwrap();
                }
                recovered.check(&context);
            }
        }
        opened.opener.lacks_memory.store(false, Ordering::Relaxed);
        opened.check(&format!("seed {seed}, the end"));
        assert!(attached > 0, "seed {seed}");
    }
}

/// A reader must not take what is left of a dropped tree for its content.
#[test]
#[allow(clippy::disallowed_methods, reason = "a thread of the test")]
fn a_tree_that_is_dropped_during_its_opening_is_not_found() {
    let vfs = SimVfs::new(3);
    let opened = Opened::new(&vfs);
    (0..200).for_each(|number| opened.write(number));
    opened.store.flush().unwrap();
    opened.store.close().unwrap();
    let opened = Opened::new(&vfs);
    let pause = Arc::new(Barrier::new(2));
    *opened.opener.pause.lock() = Some(pause.clone());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| opened.external_tree.attach());
        pause.wait();
        opened.store.drop_tree(EXTERNAL).unwrap();
        pause.wait();
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    });
    assert_eq!(opened.external_tree.attach().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn damage_fails_no_write_and_is_reported_to_readers() {
    let vfs = SimVfs::new(7);
    let opened = Opened::new(&vfs);
    (0..200).for_each(|number| opened.write(number));
    opened.store.flush().unwrap();
    opened.store.close().unwrap();
    let is_region = |path: &PathBuf| path.extension().is_some_and(|end| end == "region");
    let region = vfs.files().into_iter().find(is_region).unwrap();
    vfs.damage(&region, |bytes| bytes[20] ^= 1).unwrap();
    let opened = Opened::new(&vfs);
    (200..600).for_each(|number| opened.write(number));
    opened.store.flush().unwrap();
    let error = opened.external_tree.attach().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(opened.store.damage_of(EXTERNAL, &error).is_some());
    let mut found = 0;
    opened.store.verify(|tree, _| found += usize::from(tree == EXTERNAL));
    assert_eq!(found, 1, "a check reads the files of an external tree that is not open");
    assert_eq!(opened.opener.calls.load(Ordering::Relaxed), 1, "damaged files are read once");
}

/// A store whose external tree needs 1 MiB, and a holder that leaves it half of that.
fn without_memory(vfs: &SimVfs) -> (Opened, MemoryHolder) {
    let budget = MemoryBudget::new(64 << 20);
    let opened = Opened::with_budget(vfs, &budget);
    opened.opener.needed_bytes.store(1 << 20, Ordering::Relaxed);
    opened.write(1);
    let other = budget.holder(MemoryUse::Queries, None);
    other.request(budget.grantable_bytes() - (512 << 10)).unwrap();
    let error = opened.external_tree.attach().unwrap_err();
    assert_eq!((error.kind(), error.needed_memory_bytes()), (ErrorKind::NoSpace, Some(1 << 20)), "{error}");
    (opened, other)
}

#[test]
fn a_refused_opening_is_attempted_when_its_memory_is_free() {
    let (opened, other) = without_memory(&SimVfs::new(11));
    let calls = || opened.opener.calls.load(Ordering::Relaxed);
    for _ in 0..7 {
        other.set(other.bytes() - (64 << 10));
        opened.external_tree.attach().unwrap_err();
        assert_eq!(calls(), 1, "less than it needs is free");
    }
    other.set(other.bytes() - (64 << 10));
    opened.check("the memory is free");
    assert_eq!(calls(), 2);
}

/// The budget cannot know what the next opening needs.
#[test]
fn a_refused_opening_is_attempted_after_a_number_of_calls() {
    let (opened, _other) = without_memory(&SimVfs::new(12));
    opened.opener.needed_bytes.store(256 << 10, Ordering::Relaxed);
    let attempts = (0..200).position(|_| opened.external_tree.attach().is_ok());
    assert!(attempts.is_some_and(|calls| calls > 20), "{attempts:?}");
    opened.check("it needs less");
    assert_eq!(opened.opener.calls.load(Ordering::Relaxed), 2);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "threads of the test")]
fn a_call_does_not_wait_for_another_attempt_of_a_refused_opening() {
    let (opened, _other) = without_memory(&SimVfs::new(13));
    opened.opener.needed_bytes.store(256 << 10, Ordering::Relaxed);
    let pause = Arc::new(Barrier::new(2));
    *opened.opener.pause.lock() = Some(pause.clone());
    let (external_tree, (sender, receiver)) = (&opened.external_tree, mpsc::channel());
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| (0..200).any(|_| external_tree.attach().is_ok()));
        pause.wait();
        scope.spawn(move || sender.send(external_tree.attach().map_err(|error| error.kind())));
        let answer = receiver.recv_timeout(Duration::from_secs(20));
        pause.wait();
        answer
    });
    assert_eq!(waited, Ok(Err(ErrorKind::NoSpace)));
    opened.check("at the end");
}

/// The external tree has every write when it is set, so a failure behind that does not undo it.
#[test]
fn a_full_disk_at_the_first_checkpoint_leaves_the_external_tree_usable() {
    let mut failed = 0;
    for nth in 1..20 {
        let vfs = SimVfs::new(nth);
        let opened = Opened::new(&vfs);
        opened.opener.lacks_memory.store(true, Ordering::Relaxed);
        (0..200).for_each(|number| opened.write(number));
        // To sstables, which the first checkpoint removes.
        opened.store.flush().unwrap();
        opened.external_tree.attach().unwrap_err();
        opened.opener.lacks_memory.store(false, Ordering::Relaxed);
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: nth, sticky: true }));
        let attached = opened.external_tree.attach();
        vfs.set_fault(None);
        let context = format!("call {nth}: {attached:?}");
        if attached.is_err_and(|error| error.kind() == ErrorKind::Poisoned) {
            continue;
        }
        failed += 1;
        opened.check(&context);
        (200..400).for_each(|number| opened.write(number));
        opened.store.flush().unwrap();
        opened.check(&context);
        let levels = &opened.store.stats().trees[EXTERNAL as usize - 1].levels;
        assert!(
            levels.iter().all(|level| level.tables == 0),
            "{context}: a later checkpoint removes the sstables"
        );
    }
    assert!(failed > 2, "{failed}");
}

/// Counts openings, and how many run at once. Each takes until two run, or a time has passed.
#[derive(Debug, Default)]
struct SlowOpener {
    calls: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    /// An opening waits for it, if there is one.
    pause: Mutex<Option<Arc<Barrier>>>,
}

impl ExternalTreeOpener for SlowOpener {
    #[allow(clippy::disallowed_methods, reason = "a pause of the test")]
    fn open(&self, _root: Option<&ExternalRoot>) -> Result<Arc<dyn ExternalTree>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let pause = self.pause.lock().take();
        if let Some(pause) = pause {
            pause.wait();
            pause.wait();
        } else {
            for _ in 0..100 {
                if self.most.load(Ordering::SeqCst) < 2 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Arc::new(WriteSet::default()))
    }

    fn verify(&self, _root: &ExternalRoot) -> Result<(u64, u64)> {
        Ok((0, 0))
    }

    fn stats(&self, _root: &ExternalRoot) -> Result<ExternalTreeStats> {
        Ok(ExternalTreeStats::default())
    }
}

/// A store with trees whose openings are due.
fn with_due_openings(threads: usize, opener: &Arc<SlowOpener>) -> Store {
    let mut options = StoreOptions::new("/db");
    options.background_threads = threads;
    options.memtable_bytes = 16 << 10;
    options.start_paused = true;
    let (vfs, runtime) = (Arc::new(SimVfs::new(1)), Arc::new(SystemRuntime::default()));
    let components = StoreComponents { vfs, runtime, cache: BlockCache::new(1 << 20) };
    let store = Store::open(options, components).unwrap();
    for _ in 0..8 {
        let tree = store.create_tree(TreeOptions::default(), b"external").unwrap();
        store.defer_external_tree(tree, opener.clone()).unwrap();
    }
    store.start();
    // The second batch finds full memtables.
    for key in [b"one", b"two"] {
        let mut batch = StoreBatch::new();
        store.trees().iter().for_each(|tree| batch.put(tree.id, key, &[7; 4_000]).unwrap());
        store.commit(batch, None, SyncMode::None).unwrap();
    }
    store
}

#[test]
fn threads_share_the_openings_at_a_flush() {
    let opener = Arc::new(SlowOpener::default());
    let store = with_due_openings(2, &opener);
    store.flush().unwrap();
    assert_eq!(opener.calls.load(Ordering::SeqCst), 8);
    assert!(opener.most.load(Ordering::SeqCst) > 1, "one after the other");
    store.close().unwrap();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "threads of the test")]
fn no_opening_begins_while_the_store_closes() {
    let opener = Arc::new(SlowOpener::default());
    let pause = Arc::new(Barrier::new(2));
    *opener.pause.lock() = Some(pause.clone());
    let store = with_due_openings(1, &opener);
    std::thread::scope(|scope| {
        pause.wait();
        let close = scope.spawn(move || store.close());
        std::thread::sleep(Duration::from_millis(200));
        pause.wait();
        close.join().unwrap().unwrap();
    });
    assert_eq!(opener.calls.load(Ordering::SeqCst), 1);
}
