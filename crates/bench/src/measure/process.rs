//! Bytes: handed to the operating system, on disk, resident.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Resident memory of this process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// The maximum so far (`VmHWM`). Includes mapped file pages, through which LMDB reads.
    pub peak: u64,
    /// Anonymous memory at this moment (`RssAnon`): heap and stacks, without mapped files.
    pub anonymous: u64,
}

/// Bytes this process has handed to `write` calls so far (`wchar` of `/proc/self/io`); 0 where the
/// system does not report it. Rewrites of a dirty page in the page cache count each time, so this
/// is the volume of the writes, not that of the disk.
pub fn written_bytes() -> u64 {
    field("/proc/self/io", "wchar:")
}

/// Resident memory; zeros if the system does not report it.
pub fn memory() -> Memory {
    const STATUS: &str = "/proc/self/status";
    Memory { peak: field(STATUS, "VmHWM:") * 1024, anonymous: field(STATUS, "RssAnon:") * 1024 }
}

/// Bytes that `read` calls of this process returned so far (`rchar` of `/proc/self/io`), in the page cache or not; 0 where the
/// system does not report it. What is read through mappings is not counted.
pub fn read_bytes() -> u64 {
    field("/proc/self/io", "rchar:")
}

/// Bytes that this process made the device read so far (`read_bytes` of `/proc/self/io`), through mappings too; 0 where the system
/// does not report it.
pub fn device_read_bytes() -> u64 {
    field("/proc/self/io", "read_bytes:")
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes the files below `directory` occupy on disk (allocated blocks, so holes do not count).
pub fn disk_bytes(directory: &Path) -> std::io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        // A compaction may remove a file between the listing and the read.
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        total += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(total)
}
