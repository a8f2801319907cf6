//! An extractor and a file system that panic at a planned call.

use std::fmt;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use bolide::{AttributeExtractor, AttributePlan, AttributeValues, Error, ErrorKind, JsonExtractor, Result};
use bolide_storage::pmem::{Region, RegionOptions};
use bolide_storage::{File, FileLock, Marker, Vfs};

/// The prefix of the messages of planned panics.
const MESSAGE: &str = "a planned panic";

/// The component that panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The extractor of the records.
    Extractor,
    /// The file system: alternately before and after the work of the call.
    Files,
    /// The runtime: clock, random numbers, sleep and thread start.
    Runtime,
    /// The indexes, called by writers, commits, flushes, compactions, builds and queries.
    Index,
}

impl Site {
    /// All sites.
    pub const EACH: [Self; 4] = [Self::Extractor, Self::Files, Self::Runtime, Self::Index];

    /// The name for messages.
    fn name(self) -> &'static str {
        match self {
            Self::Extractor => "the extractor",
            Self::Files => "the file system",
            Self::Runtime => "the runtime",
            Self::Index => "an index",
        }
    }
}

/// A planted bug instead of the panic, which the proof must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedPanic {
    /// The extractor returns no values, as if the panic had lost the entry of the record.
    LosesEntry,
    /// The call never returns, as if a panic had ended a thread that other threads wait for.
    Hangs,
    /// An append to a log writes everything but returns an error, so that the next append reuses its sequence number.
    AppendsAgain,
}

/// Counts calls and panics at one of them.
#[derive(Debug)]
pub struct Switch {
    site: Site,
    planted: Option<PlantedPanic>,
    /// The number of calls while the switch is armed.
    calls: AtomicU64,
    /// The number of the call that panics, counted from 1; 0 if disarmed.
    at: AtomicU64,
    fired: AtomicU64,
}

impl Switch {
    /// Creates a disarmed switch.
    pub fn new(site: Site, planted: Option<PlantedPanic>) -> Arc<Self> {
        silence();
        Arc::new(Self {
            site,
            planted,
            calls: AtomicU64::new(0),
            at: AtomicU64::new(0),
            fired: AtomicU64::new(0),
        })
    }

    /// Makes the `at`-th call after this one panic.
    pub fn arm(&self, at: u64) {
        self.calls.store(0, Ordering::Release);
        self.at.store(at, Ordering::Release);
    }

    /// Makes no further call panic.
    pub fn disarm(&self) {
        self.at.store(0, Ordering::Release);
    }

    /// The number of calls since [`arm`](Self::arm).
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Acquire)
    }

    /// Whether a call has panicked.
    pub fn has_fired(&self) -> bool {
        self.fired.load(Ordering::Acquire) > 0
    }

    /// Counts a call of `site`. Returns whether it is the planned one.
    fn is_hit(&self, site: Site) -> bool {
        let at = self.at.load(Ordering::Acquire);
        if site != self.site || at == 0 || self.calls.fetch_add(1, Ordering::AcqRel) + 1 != at {
            return false;
        }
        self.fired.fetch_add(1, Ordering::AcqRel);
        if self.planted == Some(PlantedPanic::Hangs) {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        true
    }

    /// Counts a call of `site` and panics if it is the planned one.
    pub(crate) fn reach(&self, site: Site) {
        if self.is_hit(site) {
            panic!("{MESSAGE} of {}", site.name());
        }
    }

    /// Runs one call of the file system, with a panic if it is the planned one.
    fn call<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.is_hit(Site::Files) {
            return work();
        }
        if self.at.load(Ordering::Acquire).is_multiple_of(2) {
            let _ = work();
        }
        panic!("{MESSAGE} of {}", Site::Files.name());
    }

    fn append(&self, file: &dyn File, bytes: &[u8]) -> Result<()> {
        let is_log = format!("{file:?}").ends_with(".wal");
        if !is_log || self.planted != Some(PlantedPanic::AppendsAgain) {
            return self.call(|| file.append(bytes));
        }
        if !self.is_hit(Site::Files) {
            return file.append(bytes);
        }
        file.append(bytes)?;
        Err(Error::new(ErrorKind::NoSpace, "a planted report of a full disk"))
    }
}

/// Suppresses the messages of planned panics on standard error.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<String>();
            if !text.is_some_and(|text| text.starts_with(MESSAGE)) {
                before(info);
            }
        }));
    });
}

/// A JSON extractor that may panic.
#[derive(Debug)]
pub struct PanickingExtractor(pub Arc<Switch>);

impl AttributeExtractor for PanickingExtractor {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        if self.0.is_hit(Site::Extractor) {
            if self.0.planted == Some(PlantedPanic::LosesEntry) {
                return Ok(());
            }
            panic!("{MESSAGE} of {}", Site::Extractor.name());
        }
        JsonExtractor.extract_into(record, plan, out)
    }
}

/// A file system whose calls may panic.
#[derive(Debug)]
pub struct PanickingVfs<V> {
    inner: V,
    switch: Arc<Switch>,
}

impl<V: Vfs> PanickingVfs<V> {
    /// Wraps `inner`.
    pub fn new(inner: V, switch: Arc<Switch>) -> Self {
        Self { inner, switch }
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PanickingFile { file, switch: self.switch.clone() })
    }
}

impl<V: Vfs> Vfs for PanickingVfs<V> {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.switch.call(|| self.inner.create(path))?))
    }

    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.switch.call(|| self.inner.create_log(path))?))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.switch.call(|| self.inner.open(path))?))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.switch.call(|| self.inner.remove(path))
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        self.switch.call(|| self.inner.rewrite(path, from, to))
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        self.switch.call(|| self.inner.open_marker(path))
    }

    fn mount_id(&self, path: &Path) -> Option<u64> {
        self.inner.mount_id(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.switch.call(|| self.inner.rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.switch.call(|| self.inner.hard_link(from, to))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.switch.call(|| self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.switch.call(|| self.inner.exists(path))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.switch.call(|| self.inner.create_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.switch.call(|| self.inner.sync_dir(dir))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.switch.call(|| self.inner.remove_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.inner.is_locked(path)
    }

    fn create_region(&self, path: &Path, options: RegionOptions) -> Result<Arc<Region>> {
        self.switch.call(|| self.inner.create_region(path, options))
    }

    fn open_region(&self, path: &Path, options: RegionOptions, private: bool) -> Result<Arc<Region>> {
        self.switch.call(|| self.inner.open_region(path, options, private))
    }
}

struct PanickingFile {
    file: Arc<dyn File>,
    switch: Arc<Switch>,
}

impl fmt::Debug for PanickingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl File for PanickingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.switch.call(|| self.file.read_at(offset, buf))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.switch.append(&*self.file, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.switch.call(|| self.file.sync())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }
}
