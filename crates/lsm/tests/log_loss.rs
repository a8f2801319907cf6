//! No unexplained loss: after damage, every write below the last acknowledged sync exists, or the damage is reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::file_name::FileName;
use bolide_lsm::version::WriterEnd;
use bolide_lsm::{Bounds, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{CrashMode, SimRng, SimRuntime, SimVfs, Vfs};
use bolide_table::BlockCache;

fn dir() -> &'static Path {
    Path::new("/db")
}

fn new_disk(seed: u64) -> SimVfs {
    let vfs = SimVfs::new(seed);
    vfs.sync_dir(Path::new("/")).unwrap();
    vfs
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 64 << 10;
    options.background_threads = 0;
    options
}

fn open_with(vfs: &SimVfs, options: StoreOptions) -> Result<Store> {
    let vfs = Arc::new(vfs.clone());
    let runtime = Arc::new(SimRuntime::new(vfs.counters().calls));
    Store::open(options, StoreComponents { vfs, runtime, cache: BlockCache::new(1 << 16) })
}

fn open(vfs: &SimVfs) -> Result<Store> {
    open_with(vfs, options())
}

fn put(store: &Store, tree: TreeId, number: u64, sync: SyncMode) {
    let mut batch = StoreBatch::new();
    let key = format!("key{number:06}");
    batch.put(tree, key.as_bytes(), key.repeat(3).as_bytes()).unwrap();
    store.commit(batch, None, sync).unwrap();
}

/// The existing numbers; each value must be its own.
fn numbers(store: &Store, tree: TreeId) -> Result<Vec<u64>> {
    let view = store.read_view();
    let mut cursor = view.cursor(tree, Bounds::all())?;
    cursor.seek_to_first()?;
    let mut numbers = Vec::new();
    while cursor.valid() {
        let key = String::from_utf8(cursor.key().to_vec()).unwrap();
        assert_eq!(cursor.value(), key.repeat(3).as_bytes());
        numbers.push(key[3..].parse().unwrap());
        cursor.next()?;
    }
    Ok(numbers)
}

/// A database that was killed: the first `synced` of `all` puts were acknowledged as synced.
fn killed(synced: u64, all: u64) -> (SimVfs, TreeId) {
    let vfs = new_disk(7);
    let store = open(&vfs).unwrap();
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    for number in 0..all {
        put(&store, tree, number, if number + 1 == synced { SyncMode::Always } else { SyncMode::None });
    }
    let killed = vfs.clone_disk();
    drop(store);
    (killed, tree)
}

/// The newest log with a record.
fn newest_log(vfs: &SimVfs) -> u64 {
    let names = vfs.list(dir()).unwrap();
    let logs = names.iter().filter_map(|name| match FileName::parse(name) {
        Some(FileName::Wal(number)) => Some(number),
        _ => None,
    });
    let has_records = |number: &u64| {
        let file = vfs.open(&FileName::Wal(*number).path(dir())).unwrap();
        file.len().unwrap() > 64
    };
    logs.filter(has_records).max().unwrap()
}

type Damage<'a> = &'a dyn Fn(&SimVfs);

#[test]
fn a_loss_of_the_newest_log_is_reported() {
    for closed in [false, true] {
        let (vfs, _) = killed(50, 50);
        if closed {
            open(&vfs).unwrap().close().unwrap();
        }
        let number = newest_log(&vfs);
        let path = FileName::Wal(number).path(dir());
        let damages: [(&str, Damage<'_>); 4] = [
            ("removed", &|vfs| vfs.remove(&path).unwrap()),
            ("truncated to its header", &|vfs| vfs.damage(&path, |bytes| bytes.truncate(64)).unwrap()),
            ("zeroed", &|vfs| vfs.damage(&path, |bytes| bytes.fill(0)).unwrap()),
            ("zeroed behind its header", &|vfs| vfs.damage(&path, |bytes| bytes[64..].fill(0)).unwrap()),
        ];
        for (what, damage) in damages {
            let damaged = vfs.clone_disk();
            damage(&damaged);
            let error = open(&damaged).err().unwrap_or_else(|| panic!("{what}, closed: {closed}: it opens"));
            assert!(error.message().contains(&path.file_name().unwrap().to_string_lossy()[..]), "{error}");
        }
    }
}

/// A marker that does not name the last segment: its synced length is unknown, and this is reported.
#[test]
fn an_invalid_or_older_marker_is_reported_after_the_end_of_a_process() {
    let (vfs, tree) = killed(50, 50);
    let number = newest_log(&vfs);
    let log = FileName::Wal(number).path(dir());
    let marker = FileName::Marker.path(dir());
    assert_eq!(open(&vfs.clone_disk()).unwrap().stats().unmarked_log, None);
    for bit in (0..32 * 8).chain(64 * 8..96 * 8) {
        let damaged = vfs.clone_disk();
        damaged.damage(&marker, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)).unwrap();
        // Truncated between two records. If the length of the log is known, that is rejected.
        if bit < 32 * 8 {
            damaged.damage(&log, |bytes| bytes.truncate(64)).unwrap();
        }
        let store = open(&damaged).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert_eq!(store.stats().unmarked_log, Some(number), "bit {bit}");
        drop(store);
        assert_eq!(open(&damaged).unwrap().stats().unmarked_log, None, "bit {bit}, opened again");
    }
    // Both slots are from before the last opening.
    let older = vfs.clone_disk();
    open(&older).unwrap().close().unwrap();
    let store = open(&older).unwrap();
    put(&store, tree, 50, SyncMode::Always);
    let killed = older.clone_disk();
    drop(store);
    let mut before = Vec::new();
    vfs.damage(&marker, |bytes| before.clone_from(bytes)).unwrap();
    killed.damage(&marker, |bytes| bytes.clone_from(&before)).unwrap();
    killed.damage(&FileName::Wal(newest_log(&killed)).path(dir()), |bytes| bytes.truncate(64)).unwrap();
    assert!(open(&killed).unwrap().stats().unmarked_log.is_some());
}

#[test]
fn after_a_power_cut_a_missing_newest_log_is_reported() {
    let (vfs, tree) = killed(50, 60);
    let vfs = vfs.crash(CrashMode::None);
    assert_eq!(numbers(&open(&vfs.clone_disk()).unwrap(), tree).unwrap().len(), 50);
    vfs.remove(&FileName::Wal(newest_log(&vfs)).path(dir())).unwrap();
    assert!(open(&vfs).unwrap_err().is_corruption());
}

#[test]
fn a_cut_tail_is_stored_and_reported_until_it_is_removed() {
    let (vfs, tree) = killed(20, 200);
    let number = newest_log(&vfs);
    let log = FileName::Wal(number).path(dir());
    let whole = vfs.contents(&log).unwrap();
    let middle = whole.len() / 2;
    vfs.damage(&log, |bytes| bytes[middle] ^= 1).unwrap();
    let damaged = vfs.contents(&log).unwrap();

    let mut reading = options();
    reading.read_only = true;
    assert_eq!(open_with(&vfs, reading).unwrap().stats().cut_tails.len(), 1);
    let store = open(&vfs).unwrap();
    let left = numbers(&store, tree).unwrap();
    assert!((20..200).contains(&left.len()), "{}", left.len());
    assert_eq!(left, (0..left.len() as u64).collect::<Vec<_>>());
    let cut = store.stats().cut_tails[0];
    assert_eq!((cut.segment, cut.end, cut.ended_by), (number, damaged.len() as u64, WriterEnd::Process));
    assert!(cut.to_string().contains(&format!("{number:06}.wal")), "{cut}");
    put(&store, tree, 500, SyncMode::Always);
    store.flush().unwrap();
    put(&store, tree, 501, SyncMode::Always);
    store.close().unwrap();

    // The segment is not needed any more, but its bytes still exist.
    let tail = FileName::Tail(number).path(dir());
    let store = open(&vfs).unwrap();
    assert!(!vfs.exists(&log).unwrap());
    assert_eq!(vfs.contents(&tail).unwrap(), damaged);
    assert_eq!(store.stats().cut_tails, [cut]);
    assert_eq!(numbers(&store, tree).unwrap().len(), left.len() + 2);
    store.close().unwrap();
    vfs.remove(&tail).unwrap();
    let store = open(&vfs).unwrap();
    assert_eq!(store.stats().cut_tails, []);
    assert_eq!(numbers(&store, tree).unwrap().len(), left.len() + 2);
}

#[test]
fn a_power_cut_is_not_reported_as_the_end_of_the_process() {
    let (vfs, _) = killed(20, 200);
    let number = newest_log(&vfs);
    let vfs = vfs.crash(CrashMode::All);
    vfs.damage(&FileName::Wal(number).path(dir()), |bytes| *bytes.last_mut().unwrap() = 1).unwrap();
    vfs.damage(&FileName::Wal(number).path(dir()), |bytes| bytes.push(1)).unwrap();
    let cuts = open(&vfs).unwrap().stats().cut_tails;
    assert!(cuts.iter().all(|cut| cut.ended_by == WriterEnd::Machine), "{cuts:?}");
    assert_eq!(cuts.len(), 1);
}

#[test]
fn opening_writes_no_copy_of_the_log() {
    let vfs = new_disk(3);
    let mut large = options();
    large.memtable_bytes = 16 << 20;
    let store = open_with(&vfs, large.clone()).unwrap();
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    for number in 0..20_000 {
        put(&store, tree, number, SyncMode::None);
    }
    let vfs = vfs.clone_disk();
    let log_bytes = vfs.contents(&FileName::Wal(newest_log(&vfs)).path(dir())).unwrap().len();
    assert!(log_bytes > 500_000);
    let before = vfs.counters().append_bytes;
    let store = open_with(&vfs, large).unwrap();
    let appended = vfs.counters().append_bytes - before;
    assert!(appended < 4096, "opening appended {appended} bytes");
    assert_eq!(numbers(&store, tree).unwrap().len(), 20_000);
}

/// Puts in random sync modes with flushes and clean reopenings, then a kill.
struct KilledHistory {
    vfs: SimVfs,
    tree: TreeId,
    /// All numbers that were put, and whether they were acknowledged as synced.
    puts: BTreeMap<u64, bool>,
}

impl KilledHistory {
    fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let vfs = new_disk(seed);
        let mut store = open(&vfs).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        let mut puts = BTreeMap::new();
        for number in 0..20 + rng.below(100) {
            let sync = if rng.one_in(6) { SyncMode::Always } else { SyncMode::None };
            put(&store, tree, number, sync);
            puts.insert(number, false);
            if sync == SyncMode::Always {
                puts.values_mut().for_each(|synced| *synced = true);
            }
            if rng.one_in(25) {
                store.flush().unwrap();
                puts.values_mut().for_each(|synced| *synced = true);
            }
            if rng.one_in(40) {
                store.close().unwrap();
                puts.values_mut().for_each(|synced| *synced = true);
                store = open(&vfs).unwrap();
            }
        }
        let killed = vfs.clone_disk();
        drop(store);
        Self { vfs: killed, tree, puts }
    }

    /// True if no synced write is missing, or an error names the damage.
    fn holds(&self, damaged: &SimVfs) -> bool {
        let Ok(store) = open(damaged) else { return true };
        let Ok(found) = numbers(&store, self.tree) else { return true };
        let missing = self.puts.iter().any(|(number, &synced)| synced && !found.contains(number));
        !missing && found.iter().all(|number| self.puts.contains_key(number))
    }
}

/// After a kill, any one file may be removed, truncated, zeroed or have a bit flipped. The marker is an exception: it is
/// optional, and damage of both it and a log is indistinguishable from a torn tail.
#[test]
fn no_synced_write_is_lost_unreported_after_damage_of_one_file() {
    let first = std::env::var("BOLIDE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let lives = std::env::var("BOLIDE_LIVES").map_or(30, |lives| lives.parse().unwrap());
    for seed in first..first + lives {
        let history = KilledHistory::new(seed);
        assert!(history.holds(&history.vfs.clone_disk()), "seed {seed}: healthy");
        let mut rng = SimRng::new(seed ^ 0x5eed);
        for path in history.vfs.files() {
            let len = history.vfs.contents(&path).unwrap().len() as u64;
            for round in 0..6 {
                let damaged = history.vfs.clone_disk();
                let at = rng.below(len.max(1)) as usize;
                match round {
                    0 => damaged.remove(&path).unwrap(),
                    1 => damaged.damage(&path, |bytes| bytes.fill(0)).unwrap(),
                    2 => damaged.damage(&path, |bytes| bytes.truncate(at)).unwrap(),
                    3 => damaged.damage(&path, |bytes| bytes[at..].fill(0)).unwrap(),
                    _ if len == 0 => continue,
                    _ => damaged.damage(&path, |bytes| bytes[at] ^= 1 << (at % 8)).unwrap(),
                }
                assert!(history.holds(&damaged), "seed {seed}: {}, round {round}, byte {at}", path.display());
            }
        }
    }
}
