//! Tests of mapped logs and their preallocated extents.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bolide_memory::{LargePagePreallocator, ManualPreallocator};
use rustix::fs::{FallocateFlags, fallocate};

use super::*;
use crate::SimRng;

const EXTENT: usize = EXTENT_BYTES as usize;

/// The behaviour of a disk at an allocation of space.
pub(super) struct Disk {
    /// The disk has no space behind this offset of the file.
    full_at: AtomicU64,
    /// The duration of an allocation.
    micros: AtomicU64,
}

impl Default for Disk {
    fn default() -> Self {
        Self { full_at: NEVER.into(), micros: 0.into() }
    }
}

impl Disk {
    pub(super) fn allocate(&self, file: &fs::File, start: u64, end: u64) -> io::Result<()> {
        let half = Duration::from_micros(self.micros.load(Ordering::Relaxed) / 2);
        thread::sleep(half);
        if end > self.full_at.load(Ordering::Relaxed) {
            fallocate(file, FallocateFlags::empty(), start, (end - start) / 2)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        fallocate(file, FallocateFlags::empty(), start, end - start)?;
        thread::sleep(half);
        Ok(())
    }
}

fn create(path: &Path) -> MappedLog {
    let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    MappedLog::new(file, path).unwrap()
}

/// A log and its expected content.
struct CheckedLog {
    log: MappedLog,
    path: PathBuf,
    expected: Vec<u8>,
}

impl CheckedLog {
    fn new(path: PathBuf) -> Self {
        Self { log: create(&path), path, expected: Vec::new() }
    }

    /// A log that requests its extents from the preallocator of `pool`.
    fn with_pool(path: PathBuf, pool: &Arc<PagePool>) -> Self {
        let log = Self::new(path);
        log.log.preallocate_with(pool);
        log
    }

    /// Appends `count` bytes that depend on their offset, none of them zero.
    fn append(&mut self, count: usize) -> Result<()> {
        let start = self.expected.len();
        let bytes: Vec<u8> = (start..start + count).map(|at| (at / 7 % 251 + 1) as u8).collect();
        self.log.append(&bytes)?;
        self.expected.extend_from_slice(&bytes);
        Ok(())
    }

    /// Appends until the log has `len` bytes.
    fn fill(&mut self, len: usize) {
        self.append(len - self.expected.len()).unwrap();
    }

    fn file_len(&self) -> u64 {
        fs::metadata(&self.path).unwrap().len()
    }

    /// Checks the invariants while no preallocation runs.
    fn check(&self, what: &str) {
        let shared = &*self.log.shared;
        let _preallocating = shared.preallocating.lock();
        let state = shared.state.lock();
        assert_eq!(state.len, self.expected.len() as u64, "{what}");
        assert!(state.len <= state.reserved, "{what}");
        assert_eq!(self.file_len(), state.reserved, "{what}: the length of the file");
        if let Some(next) = &state.next {
            assert_eq!((next.start(), next.end()), (state.window.end(), state.reserved), "{what}");
            assert!(state.window.is_large() && !state.stale, "{what}");
        }
        let has_request = state.next.is_some() || state.requested.is_some();
        assert!(!has_request || !state.synced, "{what}: a synced log has no preallocated extent");
    }

    /// Compares the content by reads of the log and of the file.
    fn check_content(&self, what: &str) {
        let mut read = vec![0; self.expected.len() + 1];
        assert_eq!(self.log.read_at(0, &mut read).unwrap(), self.expected.len(), "{what}");
        assert!(read[..self.expected.len()] == self.expected[..], "{what}");
        let seen = fs::read(&self.path).unwrap();
        assert!(seen[..self.expected.len()] == self.expected[..], "{what}");
        assert!(seen[self.expected.len()..].iter().all(|&byte| byte == 0), "{what}: zeros behind the log");
    }

    /// Drops the log. The file contains exactly the appended bytes.
    fn close(self, what: &str) {
        let Self { log, path, expected } = self;
        drop(log);
        assert!(fs::read(&path).unwrap() == expected, "{what}");
    }
}

#[test]
fn appends_across_extents_are_readable() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CheckedLog::new(dir.path().join("log"));
    for _ in 0..40 {
        log.append(300_000).unwrap();
    }
    // One append over several extents.
    log.append(3 * EXTENT).unwrap();
    log.log.sync().unwrap();
    log.check("at the end");
    log.check_content("at the end");
    let end = log.expected.len() as u64;
    assert_eq!(log.log.read_at(end, &mut [0; 8]).unwrap(), 0);
    log.close("closed");
}

#[test]
fn a_sync_within_large_pages_truncates_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CheckedLog::new(dir.path().join("log"));
    log.append(EXTENT - 3).unwrap();
    // No sync in the first extent: the second one is in large pages.
    log.append(17).unwrap();
    assert!(log.log.shared.state.lock().window.is_large());
    log.log.sync().unwrap();
    assert_eq!(log.file_len(), log.expected.len() as u64);
    for number in 0..88 {
        log.append(100_000).unwrap();
        if number % 16 == 5 {
            log.log.sync().unwrap();
            let state = log.log.shared.state.lock();
            assert!(!state.window.is_large() || state.stale);
        }
    }
    // Exactly at the end of an extent.
    log.fill(log.expected.len().next_multiple_of(EXTENT));
    log.log.sync().unwrap();
    log.append(3).unwrap();
    log.check_content("at the end");
    log.close("closed");
}

#[test]
fn a_sync_of_the_head_does_not_prevent_large_pages() {
    let dir = tempfile::tempdir().unwrap();
    for (synced_at, is_large) in [(64, true), (HEAD_BYTES as usize, true), (HEAD_BYTES as usize + 1, false)] {
        let mut log = CheckedLog::new(dir.path().join(format!("{synced_at}")));
        log.append(synced_at).unwrap();
        log.log.sync().unwrap();
        log.fill(EXTENT / 2 - 1);
        assert!(!log.log.shared.state.lock().window.is_large());
        log.append(1).unwrap();
        assert_eq!(log.log.shared.state.lock().window.is_large(), is_large, "synced at {synced_at}");
        log.fill(EXTENT + 1);
        assert_eq!(log.log.shared.state.lock().window.is_large(), is_large, "synced at {synced_at}");
        log.close("closed");
    }
}

/// Whether all of the memory is resident: bit 63 of each entry of `pagemap`.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_resident(address: usize, bytes: usize) -> bool {
    let small = rustix::param::page_size();
    let mut entries = vec![0; bytes / small * 8];
    let map = fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (address / small * 8) as u64).unwrap();
    entries.as_chunks::<8>().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 63 == 1)
}

#[test]
fn an_append_continues_in_the_preallocated_extent() {
    let pool = PagePool::new();
    let requests = ManualPreallocator::new(pool.clone());
    let dir = tempfile::tempdir().unwrap();
    let mut log = CheckedLog::with_pool(dir.path().join("log"), &pool);
    log.fill(EXTENT / 2 - 1);
    assert_eq!(requests.requests(), 0);
    for number in 1..6 {
        log.append(1).unwrap();
        assert_eq!(requests.serve(), 1, "requested extent {number}");
        let address = log.log.shared.state.lock().next.as_ref().unwrap().address();
        #[cfg(all(target_os = "linux", not(miri)))]
        assert!(is_resident(address, EXTENT), "extent {number}");
        log.check("preallocated");
        log.fill(number * EXTENT);
        assert_eq!(requests.requests(), 0, "once for each extent");
        log.append(1).unwrap();
        let state = log.log.shared.state.lock();
        assert_eq!(state.window.address(), address, "extent {number} is the preallocated one");
        assert!(state.next.is_none() && state.retired.is_some());
        drop(state);
        log.check_content("continued");
    }
    // A request that is served after the log was dropped.
    assert_eq!(requests.requests(), 1);
    log.close("closed with a request");
    assert_eq!(requests.serve(), 0);
}

#[test]
fn a_sync_discards_the_preallocated_extent_and_truncates_the_file() {
    let pool = PagePool::new();
    let requests = ManualPreallocator::new(pool.clone());
    let dir = tempfile::tempdir().unwrap();
    // Synced in the middle of an extent and at its end, with the next extent preallocated and requested.
    for (number, (end, is_preallocated)) in
        [(EXTENT + 100, true), (2 * EXTENT, true), (EXTENT + 100, false), (2 * EXTENT, false)]
            .into_iter()
            .enumerate()
    {
        let what = format!("synced at {end}, {}", if is_preallocated { "preallocated" } else { "requested" });
        let mut log = CheckedLog::with_pool(dir.path().join(format!("{number}")), &pool);
        log.fill(EXTENT + 1);
        assert_eq!(requests.requests(), 1, "{what}");
        assert!(!is_preallocated || requests.serve() == 1, "{what}");
        log.fill(end);
        log.log.sync().unwrap();
        assert_eq!(log.file_len(), end as u64, "{what}");
        requests.serve();
        log.check(&what);
        assert_eq!(log.file_len(), end as u64, "{what}");
        // The rest of the extent is synced, so the next one is in small pages, without a request.
        log.append(10).unwrap();
        log.log.sync().unwrap();
        log.fill(2 * EXTENT + EXTENT / 2 + 1);
        log.log.sync().unwrap();
        log.fill(3 * EXTENT + 1);
        assert_eq!(requests.requests(), 0, "{what}");
        log.check_content(&what);
        log.close(&what);
    }
}

#[test]
fn a_log_grows_without_a_preallocator() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = CheckedLog::new(dir.path().join("alone"));
    log.fill(5 * EXTENT + 1);
    let state = log.log.shared.state.lock();
    assert!(state.requested.is_none() && state.retired.is_none() && state.next.is_none());
    drop(state);
    log.check("alone");
    log.close("alone");

    let pool = PagePool::new();
    let requests = ManualPreallocator::new(pool.clone());
    let mut log = CheckedLog::with_pool(dir.path().join("late"), &pool);
    for number in 1..4 {
        // Byte by byte over the boundary, so that each extent has a request.
        log.fill(number * EXTENT - 1);
        log.append(1).unwrap();
        log.append(1).unwrap();
        assert_eq!(requests.requests(), 1);
    }
    log.check("late");
    // A late service serves the newest request.
    requests.serve();
    assert_eq!(log.log.shared.state.lock().next.as_ref().unwrap().start(), 4 * EXTENT_BYTES);
    log.check("late");
    log.fill(6 * EXTENT);
    log.close("late");
}

#[test]
fn a_full_disk_fails_the_append_that_needs_the_space() {
    let pool = PagePool::new();
    let requests = ManualPreallocator::new(pool.clone());
    let dir = tempfile::tempdir().unwrap();
    let mut log = CheckedLog::with_pool(dir.path().join("log"), &pool);
    let full_at = |log: &CheckedLog, bytes| log.log.shared.disk.full_at.store(bytes, Ordering::Relaxed);
    full_at(&log, 3 * EXTENT_BYTES);
    log.fill(EXTENT + 1);
    assert_eq!(requests.serve(), 1);
    // The last extent that fits was preallocated; appends use it.
    assert!(log.log.shared.state.lock().next.is_some());
    assert_eq!(log.append(2 * EXTENT).unwrap_err().kind(), ErrorKind::NoSpace);
    log.check("refused");
    log.fill(2 * EXTENT + 1);
    // No space is left for another extent: the log fills the disk.
    assert_eq!(requests.serve(), 1);
    assert!(log.log.shared.state.lock().next.is_none());
    log.check("no preallocation");
    log.fill(3 * EXTENT);
    for _ in 0..2 {
        assert_eq!(log.append(1).unwrap_err().kind(), ErrorKind::NoSpace);
        log.check("full");
        log.check_content("full");
    }
    full_at(&log, NEVER);
    log.fill(4 * EXTENT + 1);
    assert_eq!(requests.serve(), 1);
    log.check("space again");
    assert!(log.log.shared.state.lock().next.is_some());
    // An append without space cancels the request: it may have truncated the extent in preparation.
    log.fill(5 * EXTENT + 1);
    full_at(&log, 7 * EXTENT_BYTES);
    assert_eq!(log.append(3 * EXTENT).unwrap_err().kind(), ErrorKind::NoSpace);
    requests.serve();
    assert!(log.log.shared.state.lock().next.is_none());
    log.check("cancelled");
    log.close("closed");
}

#[test]
fn no_preallocation_changes_the_file_after_a_sync_or_a_drop() {
    let pool = PagePool::new();
    let requests = Arc::new(ManualPreallocator::new(pool.clone()));
    let dir = tempfile::tempdir().unwrap();
    for syncs in [true, false] {
        let mut log = CheckedLog::with_pool(dir.path().join(format!("{syncs}")), &pool);
        let shared = log.log.shared.clone();
        log.fill(EXTENT + 1);
        // A preallocation that starts before the sync or the drop and ends after it.
        shared.disk.micros.store(50_000, Ordering::Relaxed);
        let preallocation = thread::spawn({
            let requests = requests.clone();
            move || requests.serve()
        });
        while !shared.preallocating.is_locked() {
            thread::yield_now();
        }
        let expected = log.expected.clone();
        let path = log.path.clone();
        if syncs {
            log.log.sync().unwrap();
            let mut is_done = false;
            while !is_done {
                is_done = preallocation.is_finished();
                assert_eq!(log.file_len(), expected.len() as u64);
                thread::sleep(Duration::from_micros(100));
            }
            preallocation.join().unwrap();
            log.check("synced");
            log.close("synced");
        } else {
            log.close("dropped");
            preallocation.join().unwrap();
        }
        assert!(fs::read(&path).unwrap() == expected, "the file is unchanged");
    }
}

/// Random operations of a log beside preallocators: appends of all lengths, syncs, full disks.
fn run_random_operations(rng: &mut SimRng, log: &mut CheckedLog, what: &str) {
    let syncs_one_in = *rng.pick(&[3, 20, 1_000]).unwrap();
    let fills_one_in = *rng.pick(&[10, 1_000]).unwrap();
    for step in 0..rng.below(60) {
        let what = format!("{what}, step {step}");
        let len = log.expected.len();
        let count = match rng.below(8) {
            0..4 => rng.below(400_000) as usize,
            4..6 => rng.below(EXTENT_BYTES) as usize,
            // About the end of the extent.
            6 => (len.next_multiple_of(EXTENT) - len + 2).saturating_sub(rng.below(4) as usize),
            _ => rng.below(3 * EXTENT_BYTES) as usize,
        };
        if rng.one_in(fills_one_in) {
            let more = rng.below(2 * EXTENT_BYTES);
            log.log.shared.disk.full_at.store(len as u64 + more, Ordering::Relaxed);
        }
        if let Err(error) = log.append(count) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
            log.log.shared.disk.full_at.store(NEVER, Ordering::Relaxed);
        }
        if rng.one_in(syncs_one_in) {
            log.log.sync().unwrap();
        }
        if rng.one_in(5) {
            log.check(&what);
        }
        if rng.one_in(8) {
            thread::sleep(Duration::from_micros(rng.below(3_000)));
        }
    }
}

#[test]
fn logs_beside_preallocators_contain_the_appended_bytes() {
    let seed = std::env::var("MAPPED_LOG_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let rounds = std::env::var("MAPPED_LOG_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let pool = PagePool::new();
    let preallocators = [(); 2].map(|()| Arc::new(LargePagePreallocator::new(pool.clone())));
    let threads = preallocators.clone().map(|preallocator| thread::spawn(move || preallocator.run()));
    let dir = tempfile::tempdir().unwrap();
    for seed in seed.map_or(0..rounds, |seed| seed..seed + 1) {
        let mut rng = SimRng::new(seed);
        let what = format!("seed {seed}");
        let path = dir.path().join("log");
        let mut log = CheckedLog::with_pool(path.clone(), &pool);
        run_random_operations(&mut rng, &mut log, &what);
        let expected = log.expected.clone();
        if rng.one_in(2) {
            log.check_content(&what);
        }
        log.close(&what);
        // No preallocation changes the file later.
        thread::sleep(Duration::from_millis(5));
        assert!(fs::read(&path).unwrap() == expected, "{what}: the file of a dropped log");
        fs::remove_file(&path).unwrap();
    }
    preallocators.iter().for_each(|preallocator| preallocator.stop());
    let started = Instant::now();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(60), "the preallocators stop");
    assert_eq!(ManualPreallocator::new(pool).requests(), 0);
}
