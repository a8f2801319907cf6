//! A limit on the memory of this process, page cache included: a control group of its own.
//!
//! Version 1 groups are below `/sys/fs/cgroup/memory`, version 2 groups below `/sys/fs/cgroup`. Both need the right to create
//! groups there, which is usually root's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;

/// The control group of one process. The process leaves it and removes it when this is dropped.
#[derive(Debug)]
pub struct ControlGroup {
    root: PathBuf,
    path: PathBuf,
    limit: &'static str,
}

/// The roots of the hierarchies of version 1 and 2, with the names of their limits.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Attempts to lower the limit: each makes the kernel reclaim pages of the group.
const ATTEMPTS: u32 = 20;

fn group_path(root: &str, pid: u32) -> PathBuf {
    Path::new(root).join(format!("bolide-bench-{pid}"))
}

impl ControlGroup {
    /// Creates a group without a limit and moves this process into it.
    ///
    /// # Errors
    /// If this machine has no memory control groups or this user may not create one.
    pub fn join() -> Result<Self> {
        let pid = std::process::id();
        let mut reasons = Vec::new();
        for (root, limit) in HIERARCHIES {
            let path = group_path(root, pid);
            let joined = fs::create_dir(&path).and_then(|()| {
                // Without the memory controller the group has no such file.
                fs::metadata(path.join(limit))?;
                fs::write(path.join("cgroup.procs"), pid.to_string())
            });
            match joined {
                Ok(()) => return Ok(Self { root: root.into(), path, limit }),
                Err(error) => reasons.push(format!("{}: {error}", path.display())),
            }
            // Its absence is fine.
            let _ = fs::remove_dir(&path);
        }
        let reasons = reasons.join("; ");
        Err(format!("a cold run needs a memory control group, which only root can create ({reasons})").into())
    }

    /// Removes the group of a process that has ended, if it is there.
    pub fn remove_of(pid: u32) {
        for (root, _) in HIERARCHIES {
            let _ = fs::remove_dir(group_path(root, pid));
        }
    }

    /// Limits the memory of the group to `bytes`. Cached pages of files are dropped until it fits.
    ///
    /// # Errors
    /// If the process itself uses more.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        let file = self.path.join(self.limit);
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            last = fs::write(&file, bytes.to_string());
            if last.is_ok() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        last.map_err(|error| format!("limit the memory to {bytes} bytes, {}: {error}", file.display()).into())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.root.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

/// A run whose memory is limited after its load.
#[derive(Debug)]
pub struct ColdRun {
    group: ControlGroup,
    bytes: u64,
}

impl ColdRun {
    /// Moves this process into a group, without a limit yet.
    ///
    /// # Errors
    /// As [`ControlGroup::join`].
    pub fn prepare(mib: u64) -> Result<Self> {
        Ok(Self { group: ControlGroup::join()?, bytes: mib << 20 })
    }

    /// Drops the cached pages of the store below `directory`, which is closed, and limits the memory.
    ///
    /// # Errors
    /// As [`drop_cached_pages`] and [`ControlGroup::limit`].
    pub fn begin(&self, directory: &Path) -> Result<()> {
        drop_cached_pages(directory)?;
        self.group.limit(self.bytes)
    }
}

/// Drops the cached pages of all files below `directory`, after they were written.
///
/// # Errors
/// Of the file system.
fn drop_cached_pages(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_cached_pages(&path)?;
            continue;
        }
        // A compaction may remove a file between the listing and the opening.
        let Ok(file) = fs::File::open(&path) else { continue };
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
