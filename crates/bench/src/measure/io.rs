//! Counts the file accesses of a store by their cause.
//!
//! [`CountingVfs`] wraps the file system of a database. A thread sets its cause with [`with_cause`]; threads that never do
//! so are the background threads of the store, which flush and compact.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide::Result;
use bolide::storage::{File, FileLock, Marker, Vfs};
use serde::{Deserialize, Serialize};

/// The cause of a file access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Flushes and compactions, in threads of the store.
    Compaction,
    /// A write.
    Put,
    /// A read by primary key.
    Get,
    /// A read by secondary key or a range of them.
    Lookup,
}

const CAUSES: usize = 4;

thread_local! {
    static CAUSE: Cell<Cause> = const { Cell::new(Cause::Compaction) };
}

/// Runs `work` and counts the file accesses of this thread under `cause`.
pub fn with_cause<T>(cause: Cause, work: impl FnOnce() -> T) -> T {
    let before = CAUSE.replace(cause);
    let done = work();
    CAUSE.set(before);
    done
}

/// Calls and bytes of one cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCount {
    /// Calls that read.
    pub reads: u64,
    /// Bytes that they returned.
    pub read_bytes: u64,
    /// Calls that appended. The log is appended to through a mapping, without a call.
    pub writes: u64,
    /// Bytes that they appended.
    pub written_bytes: u64,
}

impl IoCount {
    /// The difference to `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
        }
    }

    /// Calls of both kinds.
    pub fn calls(self) -> u64 {
        self.reads + self.writes
    }
}

#[derive(Debug, Default)]
struct Counter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The counts of all causes.
#[derive(Debug, Default)]
pub struct IoCounters {
    counters: [Counter; CAUSES],
}

impl IoCounters {
    /// The counts of `cause` so far.
    pub fn of(&self, cause: Cause) -> IoCount {
        let counter = &self.counters[cause as usize];
        IoCount {
            reads: counter.reads.load(Ordering::Relaxed),
            read_bytes: counter.read_bytes.load(Ordering::Relaxed),
            writes: counter.writes.load(Ordering::Relaxed),
            written_bytes: counter.written_bytes.load(Ordering::Relaxed),
        }
    }

    fn current(&self) -> &Counter {
        &self.counters[CAUSE.get() as usize]
    }
}

/// A file system that counts accesses and forwards them to another.
#[derive(Debug)]
pub struct CountingVfs {
    below: Arc<dyn Vfs>,
    counters: Arc<IoCounters>,
}

impl CountingVfs {
    /// Wraps `below`.
    pub fn new(below: Arc<dyn Vfs>) -> Self {
        Self { below, counters: Arc::default() }
    }

    /// The counts.
    pub fn counters(&self) -> Arc<IoCounters> {
        self.counters.clone()
    }

    fn counted(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(CountingFile { below: file, counters: self.counters.clone() })
    }
}

impl Vfs for CountingVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.counted(self.below.create(path)?))
    }

    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.below.create_log(path)
    }

    fn create_reserved(&self, path: &Path, bytes: u64) -> Result<()> {
        self.below.create_reserved(path, bytes)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.counted(self.below.open(path)?))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.below.remove(path)
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        self.below.rewrite(path, from, to)
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        self.below.open_marker(path)
    }

    fn mount_id(&self, path: &Path) -> Option<u64> {
        self.below.mount_id(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.hard_link(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.below.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.below.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.below.sync_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.below.remove_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.below.lock(path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.below.is_locked(path)
    }
}

#[derive(Debug)]
struct CountingFile {
    below: Arc<dyn File>,
    counters: Arc<IoCounters>,
}

impl File for CountingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = self.below.read_at(offset, buf)?;
        let counter = self.counters.current();
        counter.reads.fetch_add(1, Ordering::Relaxed);
        counter.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn read_ahead(&self, offset: u64, bytes: u64) {
        self.below.read_ahead(offset, bytes);
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.below.append(bytes)?;
        let counter = self.counters.current();
        counter.writes.fetch_add(1, Ordering::Relaxed);
        counter.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.below.sync()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }
}

#[cfg(test)]
mod tests {
    use bolide::storage::MemVfs;

    use super::*;

    #[test]
    fn calls_are_counted_by_their_cause() {
        let vfs = CountingVfs::new(Arc::new(MemVfs::new()));
        let counters = vfs.counters();
        vfs.create_dir_all(Path::new("d")).unwrap();
        let file = vfs.create(Path::new("d/f")).unwrap();
        with_cause(Cause::Put, || file.append(b"four").unwrap());
        file.append(b"own").unwrap();
        let mut two = [0; 2];
        with_cause(Cause::Lookup, || file.read_exact_at(1, &mut two).unwrap());
        assert_eq!(&two, b"ou");
        assert_eq!(counters.of(Cause::Put), IoCount { writes: 1, written_bytes: 4, ..IoCount::default() });
        assert_eq!(counters.of(Cause::Compaction).written_bytes, 3);
        let lookup = counters.of(Cause::Lookup);
        assert_eq!((lookup.reads, lookup.read_bytes, lookup.calls()), (1, 2, 1));
        assert_eq!(lookup.since(lookup), IoCount::default());
        assert_eq!(counters.of(Cause::Get), IoCount::default());
    }
}
