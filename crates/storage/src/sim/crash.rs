//! The state of a simulated disk after a power cut.
//!
//! 1. The synced bytes of each file survive. Of the unsynced bytes none, all, or some by the seed survive: the file is truncated
//!    anywhere, and each 512-byte sector of the unsynced part contains its bytes, zeros, random bytes, or a prefix of its bytes
//!    and then zeros. A sector retains its synced bytes.
//! 2. The names of a directory's last sync survive. Of the changes since then none, all, a prefix (a truncated journal), or any
//!    subset survive, by the seed.
//! 3. Bytes that a failed sync dropped never survive.
//! 4. The zeros of the reserved space follow the bytes of a log with an open handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::disk::{DirectoryNode, DiskNode, FileNode, NodeId, SimDisk};
use super::rng::SimRng;

/// The unit of a disk write, in bytes.
const SECTOR_BYTES: usize = 512;

/// The unsynced data that survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashMode {
    /// Nothing: the disk has the state of the last syncs.
    None,
    /// Some bytes and some names, by the seed.
    Random,
    /// All writes.
    All,
}

impl CrashMode {
    /// All modes.
    pub const EACH: [Self; 3] = [Self::None, Self::Random, Self::All];
}

/// The disk at the next boot.
pub(super) fn after_power_cut(disk: &SimDisk, mode: CrashMode, rng: &mut SimRng) -> SimDisk {
    // Nodes retain their numbers, so names stay valid. The bytes of nodes without a name are dropped below.
    let mut nodes: Vec<DiskNode> = disk.nodes.iter().map(|node| surviving_node(node, mode, rng)).collect();
    drop_nameless(&mut nodes);
    SimDisk { nodes }
}

fn surviving_node(node: &DiskNode, mode: CrashMode, rng: &mut SimRng) -> DiskNode {
    match node {
        DiskNode::File(file) => DiskNode::File(surviving_file(file, mode, rng)),
        DiskNode::Directory(directory) => {
            let names = surviving_names(directory, mode, rng);
            DiskNode::Directory(DirectoryNode { current: names.clone(), durable: names, pending: Vec::new() })
        }
    }
}

fn surviving_names(directory: &DirectoryNode, mode: CrashMode, rng: &mut SimRng) -> BTreeMap<String, NodeId> {
    let mut names = directory.durable.clone();
    let pending = &directory.pending;
    match mode {
        CrashMode::None => {}
        CrashMode::All => pending.iter().for_each(|change| change.apply(&mut names)),
        CrashMode::Random => match rng.below(4) {
            0 => {
                let count = rng.below(pending.len() as u64 + 1) as usize;
                pending.iter().take(count).for_each(|change| change.apply(&mut names));
            }
            _ => {
                for change in pending {
                    if rng.one_in(2) {
                        change.apply(&mut names);
                    }
                }
            }
        },
    }
    names
}

fn surviving_file(file: &FileNode, mode: CrashMode, rng: &mut SimRng) -> FileNode {
    let untouched = file.synced_bytes == file.content.len() && file.lost_end == 0 && !file.reserves;
    let content =
        if untouched { Arc::clone(&file.content) } else { Arc::new(surviving_bytes(file, mode, rng)) };
    let region = file.region.after_power_cut(&mut |contents| match mode {
        CrashMode::None => 0,
        CrashMode::All => contents - 1,
        CrashMode::Random => rng.below(contents as u64) as usize,
    });
    FileNode { synced_bytes: content.len(), content, region, ..FileNode::default() }
}

fn surviving_bytes(file: &FileNode, mode: CrashMode, rng: &mut SimRng) -> Vec<u8> {
    let (synced, written) = (file.synced_bytes, file.content.len());
    let end = match mode {
        CrashMode::None => synced,
        CrashMode::All => written,
        CrashMode::Random => match rng.below(8) {
            0 => synced,
            1..=3 => written,
            _ => synced + rng.below((written - synced) as u64 + 1) as usize,
        },
    };
    let mut bytes = file.content[..end].to_vec();
    if mode == CrashMode::Random && !rng.one_in(3) {
        let mut start = synced;
        while start < end {
            let sector_end = ((start / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            spoil_sector(&mut bytes[start..sector_end], rng);
            start = sector_end;
        }
    }
    if file.lost_end > file.lost_start {
        let lost = file.lost_start.min(end)..file.lost_end.min(end);
        bytes[lost].fill(0);
    }
    // The reservation is a metadata change of the file: without any sync it may be lost as well.
    let keeps_space = mode == CrashMode::All || (mode == CrashMode::Random && rng.one_in(2)) || synced > 0;
    if file.reserves && keeps_space {
        bytes.resize(file.reserved_bytes(), 0);
    }
    bytes
}

/// Damages the unsynced part of one sector with a probability of 3/8.
fn spoil_sector(sector: &mut [u8], rng: &mut SimRng) {
    match rng.below(8) {
        0 => sector.fill(0),
        1 => rng.fill(sector),
        2 => {
            let prefix = rng.below(sector.len() as u64) as usize;
            sector[prefix..].fill(0);
        }
        _ => {}
    }
}

/// Frees the bytes of files without a name.
fn drop_nameless(nodes: &mut [DiskNode]) {
    let mut named = vec![false; nodes.len()];
    let mut open: Vec<NodeId> = vec![0];
    while let Some(id) = open.pop() {
        let Some(seen) = named.get_mut(id) else { continue };
        if std::mem::replace(seen, true) {
            continue;
        }
        if let Some(DiskNode::Directory(directory)) = nodes.get(id) {
            open.extend(directory.current.values());
        }
    }
    for (node, _) in nodes.iter_mut().zip(named).filter(|(_, named)| !named) {
        *node = DiskNode::File(FileNode::default());
    }
}
