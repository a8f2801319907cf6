//! The simulated file system: names, faults, power.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, Result};
use parking_lot::Mutex;

use super::crash::{CrashMode, after_power_cut};
use super::disk::SimDisk;
use super::fault::{Call, Fault, FaultPlan, IoCounters};
use super::file::SimFile;
use super::machine::{DiskCopy, Machine, RecordImages, broken, full};
use super::rng::SimRng;
use crate::io_error::describe;
use crate::lock::{locked, lost};
use crate::mem::normal;
use crate::pmem::{Region, RegionContent, RegionOptions};
use crate::vfs::{File, FileLock, Marker, Vfs};

/// The file system of a simulated machine. Clones share the disk; [`clone_disk`](Self::clone_disk) copies it.
///
/// ```
/// use std::path::Path;
/// use bolide_storage::{CrashMode, SimVfs, Vfs};
/// let vfs = SimVfs::new(1);
/// let file = vfs.create(Path::new("log"))?;
/// vfs.sync_dir(Path::new(""))?;
/// file.append(b"safe")?;
/// file.sync()?;
/// file.append(b" not safe")?;
/// let after = vfs.crash(CrashMode::None);
/// assert_eq!(after.open(Path::new("log"))?.len()?, 4);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Clone)]
pub struct SimVfs {
    machine: Arc<Mutex<Machine>>,
}

/// The state of the disk before a call.
#[derive(Debug, Clone)]
pub struct DiskImage {
    /// A separate machine with a copy of the disk, including unsynced bytes and names.
    pub vfs: SimVfs,
    /// The next call, for messages.
    pub before: String,
    /// The number of that call, counted from 1 over all calls.
    pub call: u64,
}

impl SimVfs {
    /// An empty disk. `seed` decides what survives a power cut and how calls fail.
    pub fn new(seed: u64) -> Self {
        Self::with_disk(SimDisk::new(), SimRng::new(seed), 0)
    }

    fn with_disk(disk: SimDisk, rng: SimRng, boot: u64) -> Self {
        Self { machine: Arc::new(Mutex::new(Machine::new(disk, rng, boot))) }
    }

    /// The disk at the next boot after a power cut now. This machine continues.
    ///
    /// [`CrashMode::Random`] draws from this machine's seed, so a second call returns another outcome.
    pub fn crash(&self, mode: CrashMode) -> Self {
        let mut machine = self.machine.lock();
        let mut rng = machine.rng.fork();
        let disk = after_power_cut(&machine.disk, mode, &mut rng);
        Self::with_disk(disk, rng, machine.boot + 1)
    }

    /// As [`crash`](Self::crash) with a separate seed, independent of earlier draws.
    pub fn crash_with_seed(&self, mode: CrashMode, seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let machine = self.machine.lock();
        let disk = after_power_cut(&machine.disk, mode, &mut rng);
        Self::with_disk(disk, rng, machine.boot + 1)
    }

    /// A copy of the disk in another machine, in its state after the end of the process: with unsynced bytes and names, without
    /// locks and faults.
    pub fn clone_disk(&self) -> Self {
        let mut machine = self.machine.lock();
        let rng = machine.rng.fork();
        let mut disk = machine.disk.clone();
        disk.abandon_handles();
        Self::with_disk(disk, rng, machine.boot)
    }

    /// Sets the capacity of the disk in bytes, used in blocks of 4 KiB; `None`, the default, is unlimited. Appends and reserved
    /// files beyond it fail with `NoSpace`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.lock().capacity = bytes;
    }

    /// Makes new logs use mappings, as [`DiskVfs::map_logs`](crate::DiskVfs::map_logs) does. Off by default, and on disks of a
    /// crash or a copy.
    pub fn map_logs(&self) {
        self.machine.lock().maps_logs = true;
    }

    /// The space of the files on the disk in bytes, by blocks of 4 KiB.
    pub fn used_bytes(&self) -> u64 {
        self.machine.lock().disk.used_bytes()
    }

    /// Sets or clears the planned fault. Its count starts now.
    pub fn set_fault(&self, plan: Option<FaultPlan>) {
        self.machine.lock().faults.set_plan(plan);
    }

    /// The number of calls that `fault` could have hit since the last [`set_fault`](Self::set_fault).
    pub fn eligible_calls(&self, fault: Fault) -> u64 {
        self.machine.lock().faults.eligible_calls(fault)
    }

    /// Counts of the calls since the disk was created.
    pub fn counters(&self) -> IoCounters {
        self.machine.lock().faults.counters
    }

    /// Turns the power off after `count` more sync points: every later call fails, and [`crash`](Self::crash) returns the
    /// surviving disk.
    pub fn power_off_after_syncs(&self, count: u64) {
        self.machine.lock().power_off_after_syncs(count);
    }

    /// Turns the power off now: every later call fails.
    pub fn power_off(&self) {
        self.power_off_after_syncs(0);
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.machine.lock().is_off()
    }

    /// Records images of the disk before these calls from now on; see [`take_images`](Self::take_images).
    pub fn record_images(&self, record: RecordImages) {
        self.machine.lock().record = record;
    }

    /// The images since the last call of this method, in order.
    pub fn take_images(&self) -> Vec<DiskImage> {
        let copies = std::mem::take(&mut self.machine.lock().copies);
        let image = |copy: DiskCopy| DiskImage {
            vfs: Self::with_disk(copy.disk, copy.rng, copy.boot),
            before: copy.before,
            call: copy.call,
        };
        copies.into_iter().map(image).collect()
    }

    /// The paths of all files on the disk, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.machine.lock().disk.files()
    }

    /// All bytes of a file, without counting as a call.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        let machine = self.machine.lock();
        let node = machine.disk.file_node("read", &normal(path))?;
        Ok(machine.disk.file(node)?.content.to_vec())
    }

    /// Changes the bytes of a file without a call of the store; the result counts as synced.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.machine.lock().disk.damage(&normal(path), change)
    }

    fn create_file(&self, path: &Path, reserves: bool) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.new_file(path, reserves)?))
    }

    fn new_file(&self, path: &Path, reserves: bool) -> Result<SimFile> {
        let path = normal(path);
        let node =
            self.call(Call::Create, "create", &path, |machine| machine.disk.create(&path, reserves))?;
        Ok(SimFile::new(Arc::clone(&self.machine), node, path, true))
    }

    /// Counts a call on names, and runs `act` unless the call has a fault.
    fn call<T>(
        &self,
        call: Call,
        operation: &str,
        path: &Path,
        act: impl FnOnce(&mut Machine) -> Result<T>,
    ) -> Result<T> {
        let mut machine = self.machine.lock();
        match machine.begin(call, operation, path)? {
            None => {
                let result = act(&mut machine);
                machine.end(call);
                result
            }
            Some(Fault::NoSpace) => Err(full(operation, path)),
            Some(_) => {
                // A failed call may have its effect. A guard from `act` must not be dropped while the machine is locked.
                let done = call.writes() && machine.rng.one_in(2);
                let result = done.then(|| act(&mut machine));
                drop(machine);
                drop(result);
                Err(broken(operation, path))
            }
        }
    }
}

impl Vfs for SimVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.create_file(path, false)
    }

    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut machine = self.machine.lock();
        if !machine.maps_logs {
            drop(machine);
            return self.create_file(path, true);
        }
        machine.faults.counters.writable_mappings += 1;
        drop(machine);
        Ok(Arc::new(self.new_file(path, true)?.into_mapped()))
    }

    fn create_reserved(&self, path: &Path, bytes: u64) -> Result<()> {
        let path = normal(path);
        self.call(Call::Create, "create", &path, |machine| {
            if !machine.has_space(0, bytes) {
                return Err(full("create", &path));
            }
            let node = machine.disk.create(&path, false)?;
            machine.disk.file_mut(node)?.reserved_space = bytes;
            Ok(())
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let path = normal(path);
        let node =
            self.call(Call::Inspect, "open", &path, |machine| machine.disk.file_node("open", &path))?;
        Ok(Arc::new(SimFile::new(Arc::clone(&self.machine), node, path, false)))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = normal(path);
        self.call(Call::Remove, "remove", &path, |machine| machine.disk.remove(&path))
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        let path = normal(path);
        let mut machine = self.machine.lock();
        match machine.begin(Call::Sync, "write again", &path)? {
            None => {}
            // As after any failed sync, a power cut decides what survives.
            Some(_) => return Err(broken("write again", &path)),
        }
        let node = machine.disk.file_node("write again", &path)?;
        let file = machine.disk.file_mut(node)?;
        if (file.content.len() as u64) < to {
            return Err(describe("write again", &path, io::Error::from(io::ErrorKind::UnexpectedEof)));
        }
        file.rewrite(from as usize, to as usize);
        machine.end(Call::Sync);
        Ok(())
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        let path = normal(path);
        let node = self.call(Call::Create, "open", &path, |machine| match machine.disk.find(&path) {
            Some(_) => machine.disk.file_node("open", &path),
            None => machine.disk.create(&path, false),
        })?;
        Ok(Arc::new(SimFile::new(Arc::clone(&self.machine), node, path, true)))
    }

    fn mount_id(&self, _path: &Path) -> Option<u64> {
        Some(self.machine.lock().boot + 1)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.call(Call::Name, "rename to", &to, |machine| machine.disk.rename(&from, &to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.call(Call::Name, "link to", &to, |machine| machine.disk.hard_link(&from, &to))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let dir = normal(dir);
        self.call(Call::Inspect, "list", &dir, |machine| machine.disk.list(&dir))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let path = normal(path);
        self.call(Call::Inspect, "look up", &path, |machine| Ok(machine.disk.find(&path).is_some()))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        self.call(Call::Name, "create directory", &dir, |machine| machine.disk.create_dir_all(&dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        self.call(Call::SyncDirectory, "sync directory", &dir, |machine| machine.disk.sync_dir(&dir))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        self.call(Call::Remove, "remove directory", &dir, |machine| machine.disk.remove_dir(&dir))
    }

    fn create_region(&self, path: &Path, options: RegionOptions) -> Result<Arc<Region>> {
        self.create_file(path, false)?;
        let (content, region) = RegionContent::create(options)?;
        self.sync_dir(path.parent().unwrap_or(Path::new("")))?;
        let mut machine = self.machine.lock();
        let node = machine.disk.file_node("create", &normal(path))?;
        machine.disk.file_mut(node)?.region = content;
        machine.faults.counters.writable_mappings += 1;
        Ok(region)
    }

    fn open_region(&self, path: &Path, options: RegionOptions, private: bool) -> Result<Arc<Region>> {
        let path = normal(path);
        self.call(Call::Inspect, "open", &path, |machine| {
            let node = machine.disk.file_node("open", &path)?;
            machine.faults.counters.writable_mappings += u64::from(!private);
            let found = machine.disk.file_mut(node)?.region.open(&options, private)?;
            found.ok_or_else(|| Error::corruption(path.display(), 0, "the file is not a region"))
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let path = normal(path);
        self.call(Call::Inspect, "lock", &path, |machine| {
            if machine.locks.contains(&path) {
                return Err(locked(&path, "this process"));
            }
            if machine.disk.find(&path).is_none() {
                machine.disk.create(&path, false)?;
            }
            machine.locks.insert(path.clone());
            Ok(())
        })?;
        Ok(Box::new(SimLock { vfs: self.clone(), path }))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        let path = normal(path);
        self.call(Call::Inspect, "look for a lock", &path, |machine| Ok(machine.locks.contains(&path)))
    }
}

struct SimLock {
    vfs: SimVfs,
    path: PathBuf,
}

impl FileLock for SimLock {
    // Not counted as a call: it has no effect, and accompanies a sync.
    fn check(&self) -> Result<()> {
        let machine = self.vfs.machine.lock();
        if machine.is_off() || machine.disk.find(&self.path).is_some() {
            Ok(())
        } else {
            Err(lost(&self.path))
        }
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.vfs.machine.lock().locks.remove(&self.path);
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock of {}", self.path.display())
    }
}

impl fmt::Debug for SimVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimVfs").finish_non_exhaustive()
    }
}
