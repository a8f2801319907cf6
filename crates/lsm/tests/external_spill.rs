//! Spills of external trees: after any event, the external tree and the sstables of its tree together have the content of an
//! ordinary tree with the same writes.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTreeStats, ExternalWrite, SpillReaders,
    SpillingTree,
};
use bolide_lsm::{
    Bounds, ExternalTree, Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{
    CrashMode, DiskImage, Fault, FaultPlan, RecordImages, Runtime, SimRng, SimRuntime, SimVfs, SystemRuntime,
    Vfs,
};
use bolide_table::BlockCache;
use parking_lot::Mutex;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The root of a checkpoint has no cut.
    CutNotInRoot,
    /// The entries leave memory before their sstables are installed.
    RemovedTooEarly,
    /// The new cut is above the entries that were written.
    CutTooHigh,
    /// The writes through the cut are ignored when the tree is set, not those of the root alone.
    ContainsTooMuch,
}

/// Spills from this number of entries on.
const MAX_ENTRIES: usize = 12;

/// Entries with keys of their own, as those of an index.
type Entries = BTreeMap<Vec<u8>, (SequenceNumber, Vec<u8>)>;

#[derive(Debug)]
struct SpillingMap {
    entries: Arc<Mutex<Entries>>,
    cut: AtomicU64,
    contains_through: SequenceNumber,
    applied: AtomicU64,
    /// Begun spills.
    begun: AtomicUsize,
    /// Complete ones.
    spills: AtomicUsize,
    flaw: Flaw,
}

impl SpillingMap {
    fn open(vfs: &dyn Vfs, store: &Store, flaw: Flaw) -> Result<Self> {
        let (mut entries, mut cut, mut contains_through) = (Entries::new(), 0, 0);
        if let Some(root) = store.external_root(EXTERNAL) {
            let number = |at: usize| u64::from_le_bytes(root.root[at..at + 8].try_into().unwrap());
            (cut, contains_through) = (number(8), number(16));
            let mut bytes = vec![0; number(0) as usize];
            vfs.open(&store.external_file_path(root.files[0]))?.read_exact_at(0, &mut bytes)?;
            let mut rest = &bytes[..];
            while let Some((sequence, tail)) = rest.split_first_chunk::<8>() {
                let (lengths, tail) = tail.split_at(2);
                let (key, tail) = tail.split_at(lengths[0] as usize);
                let (value, tail) = tail.split_at(lengths[1] as usize);
                entries.insert(key.to_vec(), (u64::from_le_bytes(*sequence), value.to_vec()));
                rest = tail;
            }
        }
        let contains_through = if flaw == Flaw::ContainsTooMuch && contains_through > 0 {
            contains_through + 3
        } else {
            contains_through
        };
        Ok(Self {
            entries: Arc::new(Mutex::new(entries)),
            cut: AtomicU64::new(cut),
            contains_through,
            applied: AtomicU64::new(contains_through),
            begun: AtomicUsize::new(0),
            spills: AtomicUsize::new(0),
            flaw,
        })
    }

    /// The entries above the cut, and those of the sstables at or below it.
    fn visible(&self, store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let view = store.read_view();
        let above = |(_, (sequence, _)): &(&Vec<u8>, &(SequenceNumber, Vec<u8>)), cut| *sequence > cut;
        let entries = self.entries.lock();
        let cut = self.cut.load(Ordering::Acquire);
        let mut all: BTreeMap<_, _> = entries
            .iter()
            .filter(|entry| above(entry, cut))
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect();
        drop(entries);
        // After the memory.
        let mut cursor = view.cursor(EXTERNAL, Bounds::all()).unwrap();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            if cursor.sequence() <= cut {
                assert!(
                    all.insert(cursor.key().to_vec(), cursor.value().to_vec()).is_none(),
                    "an entry twice"
                );
            }
            cursor.next().unwrap();
        }
        all
    }
}

impl ExternalTree for SpillingMap {
    fn reserve(&self, _writes: usize, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn apply(&self, write: ExternalWrite<'_>, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        let sequence = write.trailer.sequence();
        if sequence > self.contains_through {
            self.entries.lock().insert(write.key.to_vec(), (sequence, write.value.to_vec()));
            self.applied.store(sequence, Ordering::Release);
        }
        Ok(())
    }

    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        let cut = if self.flaw == Flaw::CutNotInRoot { 0 } else { self.cut.load(Ordering::Acquire) };
        Ok(Box::new(MapCheckpoint { entries: self.entries.lock().clone(), cut, sequence }))
    }

    fn is_checkpoint_due(&self, logged: u64) -> bool {
        logged > 3_000
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        self.applied.load(Ordering::Acquire).is_multiple_of(2)
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

    fn contains_through(&self) -> SequenceNumber {
        self.contains_through
    }

    fn spilling(&self) -> Option<&dyn SpillingTree> {
        Some(self)
    }
}

impl SpillingTree for SpillingMap {
    fn spilled_through(&self) -> SequenceNumber {
        self.cut.load(Ordering::Acquire)
    }

    fn is_spill_due(&self) -> bool {
        self.entries.lock().len() > MAX_ENTRIES
    }

    fn write_spill(
        &self,
        readers: SpillReaders,
        out: &mut dyn FnMut(ExternalWrite<'_>) -> Result<()>,
    ) -> Result<SequenceNumber> {
        assert!(readers.oldest_in_use <= readers.published);
        self.begun.fetch_add(1, Ordering::Relaxed);
        let before = self.spilled_through();
        let entries = self.entries.lock().clone();
        let mut numbers: Vec<_> = entries.values().map(|(sequence, _)| *sequence).collect();
        numbers.sort_unstable();
        let complete = self.applied.load(Ordering::Acquire).saturating_sub(1).min(readers.published);
        let cut = numbers[numbers.len() / 2].min(complete);
        for (key, (sequence, value)) in &entries {
            if before < *sequence && *sequence <= cut {
                out(ExternalWrite { key, trailer: Trailer::new(*sequence, EntryKind::Put), value })?;
            }
        }
        if self.flaw == Flaw::RemovedTooEarly {
            self.entries.lock().retain(|_, (sequence, _)| *sequence > cut);
        }
        Ok(if self.flaw == Flaw::CutTooHigh { (cut + 2).min(readers.published) } else { cut })
    }

    fn finish_spill(&self, cut: SequenceNumber) -> Result<()> {
        let mut entries = self.entries.lock();
        self.cut.store(cut, Ordering::Release);
        entries.retain(|_, (sequence, _)| *sequence > cut);
        self.spills.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct MapCheckpoint {
    entries: Entries,
    cut: SequenceNumber,
    sequence: SequenceNumber,
}

impl ExternalCheckpoint for MapCheckpoint {
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        let mut bytes = Vec::new();
        for (key, (sequence, value)) in &self.entries {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend([key.len() as u8, value.len() as u8]);
            bytes.extend(key);
            bytes.extend(value);
        }
        let (identity, path) = files.new_file();
        let file = files.vfs().create(&path)?;
        file.append(&bytes)?;
        file.sync()?;
        files.vfs().sync_dir(path.parent().unwrap())?;
        let numbers = [bytes.len() as u64, self.cut, self.sequence];
        let root = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(ExternalRoot { files: vec![identity.file_number], root })
    }

    fn written_bytes(&self) -> u64 {
        self.entries.len() as u64
    }

    fn installed(self: Box<Self>) {}
}

const PLAIN: TreeId = 1;
const EXTERNAL: TreeId = 2;

fn components(vfs: &Arc<dyn Vfs>, threads: usize) -> StoreComponents {
    let runtime: Arc<dyn Runtime> =
        if threads == 0 { Arc::new(SimRuntime::new(1)) } else { Arc::new(SystemRuntime::default()) };
    StoreComponents { vfs: vfs.clone(), runtime, cache: BlockCache::new(1 << 20) }
}

fn options(dir: &str, threads: usize) -> StoreOptions {
    let mut options = StoreOptions::new(dir);
    options.memtable_bytes = 4 << 10;
    options.hand_over_bytes = 2 << 10;
    options.background_threads = threads;
    options.start_paused = true;
    options
}

fn open(
    vfs: Arc<dyn Vfs>,
    dir: &str,
    threads: usize,
    layout: Layout,
    flaw: Flaw,
) -> Result<(Store, Arc<SpillingMap>)> {
    let store = Store::open(options(dir, threads), components(&vfs, threads))?;
    while store.trees().len() < 2 {
        let mut options = TreeOptions::default();
        options.layout = layout;
        // So small that spilled runs of several spills are divided into files.
        options.target_file_bytes = 600;
        store.create_tree(options, b"")?;
    }
    let map = Arc::new(SpillingMap::open(&*vfs, &store, flaw)?);
    store.set_external_tree(EXTERNAL, map.clone())?;
    store.start();
    Ok((store, map))
}

/// Writes entries with new keys, in random order.
fn write(store: &Store, rng: &mut SimRng) -> Result<()> {
    let mut batch = StoreBatch::new();
    for _ in 0..=rng.below(4) {
        let key = rng.next_u64().to_be_bytes();
        let value = vec![b'a' + rng.below(26) as u8; rng.below(60) as usize];
        batch.put(PLAIN, &key, &value)?;
        batch.put(EXTERNAL, &key, &value)?;
    }
    let sync = *rng.pick(&[SyncMode::None, SyncMode::None, SyncMode::Always]).unwrap();
    store.commit(batch, None, sync).map(drop)
}

fn plain(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
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

fn same(map: &SpillingMap, store: &Store) -> std::result::Result<(), String> {
    let (external, plain) = (map.visible(store), plain(store));
    match external == plain {
        true => Ok(()),
        false => Err(format!(
            "{} entries instead of {}, cut {}",
            external.len(),
            plain.len(),
            map.spilled_through()
        )),
    }
}

fn reopened(vfs: &SimVfs, layout: Layout, flaw: Flaw) -> std::result::Result<(), String> {
    let (store, map) =
        open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).map_err(|error| error.to_string())?;
    same(&map, &store)
}

/// A random history with power cuts at all sync points. Returns the number of spills, and that of compactions.
fn history(seed: u64, layout: Layout, flaw: Flaw) -> std::result::Result<(usize, u64), String> {
    let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
    vfs.record_images(RecordImages::SyncPoints);
    let (mut store, mut map) = open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).unwrap();
    let (mut spills, mut compactions) = (0, 0);
    let mut reader = None;
    for step in 0..110 {
        match rng.below(20) {
            0 => store.flush().unwrap(),
            1 => store.compact(EXTERNAL).unwrap(),
            2 => store.wait_until_settled().unwrap(),
            3 => reader = Some((store.read_view(), plain(&store))).filter(|_| rng.one_in(2)),
            4 => {
                spills += map.spills.load(Ordering::Relaxed);
                compactions += store.stats().writes.compactions;
                drop((map, reader.take()));
                store.close().unwrap();
                (store, map) = open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).unwrap();
            }
            _ => write(&store, &mut rng).unwrap(),
        }
        let context = |what| format!("seed {seed}, {layout:?}, step {step}: {what}");
        same(&map, &store).map_err(context)?;
        for DiskImage { vfs: image, before, call } in vfs.take_images() {
            let mode = *rng.pick(&CrashMode::EACH).unwrap();
            let disk = image.crash_with_seed(mode, rng.next_u64());
            let context = |what| {
                format!(
                    "seed {seed}, {layout:?}, step {step}, before {before} (call {call}), {mode:?}: {what}"
                )
            };
            reopened(&disk, layout, flaw).map_err(context)?;
            // The recovered state survives the next power cut.
            reopened(&disk.crash_with_seed(mode, rng.next_u64()), layout, flaw).map_err(context)?;
        }
    }
    spills += map.spills.load(Ordering::Relaxed);
    compactions += store.stats().writes.compactions;
    Ok((spills, compactions))
}

#[test]
fn a_tree_that_spills_survives_every_power_cut_like_an_ordinary_one() {
    for (seed, layout) in (0..).zip(Layout::ALL) {
        let (spills, compactions) = history(seed, layout, Flaw::None).unwrap_or_else(|what| panic!("{what}"));
        assert!(spills > 3, "seed {seed}: only {spills} spills");
        assert!(compactions > 0, "seed {seed}: no compaction");
    }
}

/// Spills on a disk that is full at each call in turn. Returns the number of failed spills.
fn failing_spills(flaw: Flaw) -> std::result::Result<usize, String> {
    let mut failed = 0;
    for nth in 1..70 {
        let (vfs, mut rng) = (SimVfs::new(nth), SimRng::new(nth));
        let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), flaw).unwrap();
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: nth, sticky: false }));
        for _ in 0..40 {
            // A failed write has no effect.
            let _ = write(&store, &mut rng);
        }
        let _ = store.wait_until_settled();
        vfs.set_fault(None);
        store.wait_until_settled().unwrap();
        let (begun, done) = (map.begun.load(Ordering::Relaxed), map.spills.load(Ordering::Relaxed));
        assert!(done > 0, "call {nth}");
        failed += begun - done;
        same(&map, &store).map_err(|what| format!("call {nth}: {what}"))?;
        drop((store, map));
        reopened(&vfs, Layout::default(), flaw).map_err(|what| format!("call {nth}: {what}"))?;
    }
    Ok(failed)
}

#[test]
fn a_spill_that_fails_is_retried_and_loses_nothing() {
    let failed = failing_spills(Flaw::None).unwrap_or_else(|what| panic!("{what}"));
    assert!(failed > 2, "only {failed} spills failed");
}

#[test]
fn every_planted_bug_of_a_spill_is_found() {
    for flaw in [Flaw::CutNotInRoot, Flaw::CutTooHigh, Flaw::ContainsTooMuch] {
        let found = (0..12).any(|seed| history(seed, Layout::ALL[seed as usize % 4], flaw).is_err());
        assert!(found, "{flaw:?} is not found");
    }
    assert!(failing_spills(Flaw::RemovedTooEarly).is_err());
}

#[test]
fn writers_readers_and_spills_run_concurrently() {
    let vfs = SimVfs::new(6);
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 2, Layout::default(), Flaw::None).unwrap();
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
    assert!(map.spills.load(Ordering::Relaxed) > 0);
    same(&map, &store).unwrap();
    drop(map);
    store.close().unwrap();
    reopened(&vfs, Layout::default(), Flaw::None).unwrap();
}

/// The copy has the sstables that belong to its root.
#[test]
fn a_checkpoint_of_the_store_has_the_spilled_entries() {
    let (vfs, mut rng) = (SimVfs::new(5), SimRng::new(5));
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), Flaw::None).unwrap();
    for number in 0..9 {
        for _ in 0..12 {
            write(&store, &mut rng).unwrap();
        }
        match number % 3 {
            0 => store.wait_until_settled().unwrap(),
            1 => store.flush().unwrap(),
            _ => {}
        }
        let copy = format!("/copy-{number}");
        store.checkpoint(Path::new(&copy)).unwrap();
        let (copied, of_copy) = open(Arc::new(vfs.clone()), &copy, 0, Layout::default(), Flaw::None).unwrap();
        same(&of_copy, &copied).unwrap_or_else(|what| panic!("{copy}: {what}"));
        assert_eq!(plain(&copied), plain(&store));
    }
    same(&map, &store).unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 2);
}

/// A dropped tree leaves no file.
#[test]
fn dropping_a_tree_that_spilled_removes_its_files() {
    let (vfs, mut rng) = (SimVfs::new(4), SimRng::new(4));
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), Flaw::None).unwrap();
    for _ in 0..60 {
        write(&store, &mut rng).unwrap();
    }
    store.wait_until_settled().unwrap();
    store.flush().unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 0);
    store.drop_tree(EXTERNAL).unwrap();
    store.drop_tree(PLAIN).unwrap();
    drop((store, map));
    let ends = |extension| {
        vfs.files().iter().filter(|path| path.extension().is_some_and(|end| end == extension)).count()
    };
    assert_eq!((ends("region"), ends("sst")), (0, 0));
}
