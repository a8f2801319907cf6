//! What is left on a simulated disk after the power went.
//!
//! 1. Of each file the synced bytes are left. Of the others none, all, or some by the seed: the file is
//!    cut anywhere, and each 512-byte sector of the unsynced part holds its bytes, zeros, noise, or
//!    its bytes up to some point and zeros after it. A sector that holds synced bytes keeps those.
//! 2. Of each directory the names of its last sync are left. Of the changes since then none, all, a
//!    first part (a journal cut short), or any subset, by the seed.
//! 3. Bytes that a failed sync had dropped are never left.
//! 4. Behind the bytes of a log whose handle was open lie the zeros of the space that was reserved for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::disk::{DirectoryNode, FileNode, Node, NodeId, SimDisk};
use super::rng::SimRng;

/// What a disk writes in one piece, in bytes.
const SECTOR_BYTES: usize = 512;

/// How much of what was not synced survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashMode {
    /// Nothing: the disk is as the last syncs left it.
    None,
    /// Some bytes and some names, by the seed.
    Random,
    /// Everything that was written.
    All,
}

impl CrashMode {
    /// All modes.
    pub const EACH: [Self; 3] = [Self::None, Self::Random, Self::All];
}

/// The disk that the next boot finds.
pub(super) fn after_power_cut(disk: &SimDisk, mode: CrashMode, rng: &mut SimRng) -> SimDisk {
    // Nodes keep their numbers, so names need no translation. Nodes without a name cost little: their
    // bytes are dropped below.
    let mut nodes: Vec<Node> = disk.nodes.iter().map(|node| surviving_node(node, mode, rng)).collect();
    drop_nameless(&mut nodes);
    SimDisk { nodes }
}

fn surviving_node(node: &Node, mode: CrashMode, rng: &mut SimRng) -> Node {
    match node {
        Node::File(file) => Node::File(surviving_file(file, mode, rng)),
        Node::Directory(directory) => {
            let names = surviving_names(directory, mode, rng);
            Node::Directory(DirectoryNode { current: names.clone(), durable: names, pending: Vec::new() })
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
    // The reservation is a change of the file's metadata: with nothing synced it may be lost as well.
    let keeps_space = mode == CrashMode::All || (mode == CrashMode::Random && rng.one_in(2)) || synced > 0;
    if file.reserves && keeps_space {
        bytes.resize(file.reserved_bytes(), 0);
    }
    bytes
}

/// The unsynced part of one sector: mostly as written, else damaged in one of the ways of a disk.
fn spoil_sector(sector: &mut [u8], rng: &mut SimRng) {
    match rng.below(8) {
        0 => sector.fill(0),
        1 => rng.fill(sector),
        2 => {
            let kept = rng.below(sector.len() as u64) as usize;
            sector[kept..].fill(0);
        }
        _ => {}
    }
}

/// Frees the bytes of files that no directory names any more.
fn drop_nameless(nodes: &mut [Node]) {
    let mut named = vec![false; nodes.len()];
    let mut open: Vec<NodeId> = vec![0];
    while let Some(id) = open.pop() {
        let Some(seen) = named.get_mut(id) else { continue };
        if std::mem::replace(seen, true) {
            continue;
        }
        if let Some(Node::Directory(directory)) = nodes.get(id) {
            open.extend(directory.current.values());
        }
    }
    for (node, _) in nodes.iter_mut().zip(named).filter(|(_, named)| !named) {
        *node = Node::File(FileNode::default());
    }
}
