//! In-place writes on the machine's file system: markers, and rewrites of existing bytes.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::Result;

use crate::io_error::describe;
use crate::vfs::Marker;

/// The unit of a rewrite, in bytes.
const REWRITE_BYTES: u64 = 1 << 20;

struct DiskMarker {
    file: fs::File,
    path: PathBuf,
}

impl Marker for DiskMarker {
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| describe("write", &self.path, error))
    }
}

impl fmt::Debug for DiskMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// Opens a marker file, creating it with `mode` if it is missing.
pub(crate) fn open_marker(path: &Path, mode: u32) -> Result<Arc<dyn Marker>> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(mode)
        .open(path)
        .map_err(|error| describe("open", path, error))?;
    Ok(Arc::new(DiskMarker { file, path: path.to_path_buf() }))
}

/// Writes the bytes `from..to` again and syncs the file; see [`Vfs::rewrite`](crate::Vfs::rewrite).
pub(crate) fn rewrite(path: &Path, from: u64, to: u64) -> Result<()> {
    let failed = |error| describe("write again", path, error);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut buffer = vec![0; to.saturating_sub(from).min(REWRITE_BYTES) as usize];
    let mut offset = from;
    while offset < to {
        let piece = &mut buffer[..(to - offset).min(REWRITE_BYTES) as usize];
        file.read_exact_at(piece, offset).map_err(failed)?;
        file.write_all_at(piece, offset).map_err(failed)?;
        offset += piece.len() as u64;
    }
    file.sync_data().map_err(failed)
}

/// The id of the mount that contains `path`, unique until the next boot (`STATX_MNT_ID_UNIQUE`, Linux 6.8 and later).
#[cfg(target_os = "linux")]
pub(crate) fn mount_id(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    /// From `linux/stat.h`.
    const MNT_ID_UNIQUE: u32 = 0x4000;
    let wanted = StatxFlags::from_bits_retain(MNT_ID_UNIQUE);
    let found = statx(CWD, path, AtFlags::empty(), wanted).ok()?;
    (found.stx_mask & MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id)
}

/// The id of the mount that contains `path`: not available on this operating system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn mount_id(_path: &Path) -> Option<u64> {
    None
}
