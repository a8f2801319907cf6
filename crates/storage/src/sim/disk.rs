//! The content of a simulated disk: files and directories, each with its synced and unsynced state.
//!
//! Invariants:
//! * a file's content only grows, except by [`SimDisk::damage`] and by in-place writes of markers;
//! * `synced_bytes <= content.len()`: bytes below it survive every power cut;
//! * a directory's `current` names are its `durable` names with all `pending` changes applied in order.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, Result};

use crate::io_error::describe;
use crate::mem::overwrite;
use crate::pmem::RegionContent;

/// Index of a node in its disk.
pub(super) type NodeId = usize;

/// The root directory; it always exists. The current directory is the same place.
const ROOT: NodeId = 0;

/// The unit of the space reserved behind a log.
const RESERVED_BYTES: usize = 4096;

/// All nodes, including those without a name: open handles still read them.
#[derive(Debug, Clone)]
pub(super) struct SimDisk {
    pub(super) nodes: Vec<DiskNode>,
}

#[derive(Debug, Clone)]
pub(super) enum DiskNode {
    File(FileNode),
    Directory(DirectoryNode),
}

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    /// Shared with images of this disk until the next append, so that images are cheap.
    pub(super) content: Arc<Vec<u8>>,
    /// Length of the prefix that survives every power cut.
    pub(super) synced_bytes: usize,
    /// Bytes from here to `lost_end` were dropped by a failed sync: reads return them, but they never survive a power cut.
    pub(super) lost_start: usize,
    /// End of the dropped bytes.
    pub(super) lost_end: usize,
    /// The file is a log with an open handle: space is reserved behind its bytes. After the end of the process, or a power cut,
    /// this space contains zeros.
    pub(super) reserves: bool,
    /// Space of the file without content.
    pub(super) reserved_space: u64,
    /// The file is a region of persistent memory.
    pub(super) region: RegionContent,
}

/// The names of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryNode {
    pub(super) current: BTreeMap<String, NodeId>,
    pub(super) durable: BTreeMap<String, NodeId>,
    pub(super) pending: Vec<NameChange>,
}

/// An unsynced change of a directory.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Bind { name: String, node: NodeId },
    Unbind { name: String },
    Rename { from: String, to: String, node: NodeId },
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut BTreeMap<String, NodeId>) {
        match self {
            Self::Bind { name, node } => {
                names.insert(name.clone(), *node);
            }
            Self::Unbind { name } => {
                names.remove(name);
            }
            Self::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl DirectoryNode {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.pending.clear();
    }
}

fn failure(operation: &str, path: &Path, kind: io::ErrorKind) -> Error {
    describe(operation, path, io::Error::from(kind))
}

impl SimDisk {
    pub(super) fn new() -> Self {
        Self { nodes: vec![DiskNode::Directory(DirectoryNode::default())] }
    }

    /// The node of `path`.
    pub(super) fn find(&self, path: &Path) -> Option<NodeId> {
        path.iter().try_fold(ROOT, |node, name| match self.nodes.get(node) {
            Some(DiskNode::Directory(directory)) => directory.current.get(name.to_str()?).copied(),
            _ => None,
        })
    }

    fn node(&self, operation: &str, path: &Path) -> Result<NodeId> {
        self.find(path).ok_or_else(|| failure(operation, path, io::ErrorKind::NotFound))
    }

    /// The node of a file; a directory is an error.
    pub(super) fn file_node(&self, operation: &str, path: &Path) -> Result<NodeId> {
        let node = self.node(operation, path)?;
        match self.nodes.get(node) {
            Some(DiskNode::File(_)) => Ok(node),
            _ => Err(failure(operation, path, io::ErrorKind::IsADirectory)),
        }
    }

    /// The file of a node from [`file_node`](Self::file_node).
    pub(super) fn file(&self, node: NodeId) -> Result<&FileNode> {
        match self.nodes.get(node) {
            Some(DiskNode::File(file)) => Ok(file),
            _ => Err(Error::internal("simulated disk: a handle names no file")),
        }
    }

    /// As [`file`](Self::file), mutable.
    pub(super) fn file_mut(&mut self, node: NodeId) -> Result<&mut FileNode> {
        match self.nodes.get_mut(node) {
            Some(DiskNode::File(file)) => Ok(file),
            _ => Err(Error::internal("simulated disk: a handle names no file")),
        }
    }

    fn directory_mut(&mut self, operation: &str, path: &Path) -> Result<&mut DirectoryNode> {
        let node = self.node(operation, path)?;
        match self.nodes.get_mut(node) {
            Some(DiskNode::Directory(directory)) => Ok(directory),
            _ => Err(failure(operation, path, io::ErrorKind::NotADirectory)),
        }
    }

    /// The parent directory of `path`, and the last name of `path`.
    fn parent_mut(&mut self, operation: &str, path: &Path) -> Result<(&mut DirectoryNode, String)> {
        let invalid = || failure(operation, path, io::ErrorKind::InvalidInput);
        let parent = path.parent().ok_or_else(invalid)?;
        let name = path.file_name().and_then(OsStr::to_str).ok_or_else(invalid)?.to_owned();
        Ok((self.directory_mut(operation, parent)?, name))
    }

    fn add(&mut self, operation: &str, path: &Path, node: DiskNode) -> Result<NodeId> {
        let id = self.nodes.len();
        let (directory, name) = self.parent_mut(operation, path)?;
        if directory.current.contains_key(&name) {
            return Err(failure(operation, path, io::ErrorKind::AlreadyExists));
        }
        directory.change(NameChange::Bind { name, node: id });
        self.nodes.push(node);
        Ok(id)
    }

    pub(super) fn create(&mut self, path: &Path, reserves: bool) -> Result<NodeId> {
        self.add("create", path, DiskNode::File(FileNode { reserves, ..FileNode::default() }))
    }

    /// The process ends without closing its files.
    pub(super) fn abandon_handles(&mut self) {
        for node in &mut self.nodes {
            if let DiskNode::File(file) = node
                && std::mem::take(&mut file.reserves)
            {
                let bytes = file.reserved_bytes();
                Arc::make_mut(&mut file.content).resize(bytes, 0);
            }
        }
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        self.file_node("remove", path)?;
        let (directory, name) = self.parent_mut("remove", path)?;
        directory.change(NameChange::Unbind { name });
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let node = self.node("rename", from)?;
        let moves_directory = matches!(self.nodes.get(node), Some(DiskNode::Directory(_)));
        if moves_directory && to.starts_with(from) && to != from {
            return Err(failure("rename", to, io::ErrorKind::InvalidInput));
        }
        match self.find(to).and_then(|target| self.nodes.get(target)) {
            Some(DiskNode::Directory(target)) if !moves_directory || !target.current.is_empty() => {
                return Err(failure("rename to", to, io::ErrorKind::AlreadyExists));
            }
            Some(DiskNode::File(_)) if moves_directory => {
                return Err(failure("rename to", to, io::ErrorKind::AlreadyExists));
            }
            _ => {}
        }
        let (_, to_name) = self.parent_mut("rename to", to)?;
        let (from_directory, from_name) = self.parent_mut("rename", from)?;
        if from.parent() == to.parent() {
            from_directory.change(NameChange::Rename { from: from_name, to: to_name, node });
            return Ok(());
        }
        // A rename between directories is not atomic before both are synced.
        from_directory.change(NameChange::Unbind { name: from_name });
        let (to_directory, to_name) = self.parent_mut("rename to", to)?;
        to_directory.change(NameChange::Bind { name: to_name, node });
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> Result<()> {
        let node = self.file_node("link", from)?;
        let (directory, name) = self.parent_mut("link to", to)?;
        if directory.current.contains_key(&name) {
            return Err(failure("link to", to, io::ErrorKind::AlreadyExists));
        }
        directory.change(NameChange::Bind { name, node });
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<String>> {
        match self.nodes.get(self.node("list", path)?) {
            Some(DiskNode::Directory(directory)) => Ok(directory.current.keys().cloned().collect()),
            _ => Err(failure("list", path, io::ErrorKind::NotADirectory)),
        }
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        let mut prefix = PathBuf::new();
        for name in path {
            prefix.push(name);
            match self.find(&prefix).and_then(|node| self.nodes.get(node)) {
                Some(DiskNode::Directory(_)) => {}
                Some(DiskNode::File(_)) => {
                    return Err(failure("create directory", &prefix, io::ErrorKind::AlreadyExists));
                }
                None => {
                    self.add("create directory", &prefix, DiskNode::Directory(DirectoryNode::default()))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        self.directory_mut("sync directory", path)?.sync();
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<()> {
        if !self.directory_mut("remove directory", path)?.current.is_empty() {
            return Err(failure("remove directory", path, io::ErrorKind::DirectoryNotEmpty));
        }
        let (directory, name) = self.parent_mut("remove directory", path)?;
        directory.change(NameChange::Unbind { name });
        Ok(())
    }

    /// Changes the bytes of a file as a failing disk does, without a call of the store.
    pub(super) fn damage(&mut self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let node = self.file_node("damage", path)?;
        let file = self.file_mut(node)?;
        let mut bytes = file.content.to_vec();
        change(&mut bytes);
        *file = FileNode { synced_bytes: bytes.len(), content: Arc::new(bytes), ..FileNode::default() };
        Ok(())
    }

    /// The paths of all files, by directory.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![(PathBuf::new(), ROOT)];
        while let Some((path, node)) = open.pop() {
            match self.nodes.get(node) {
                Some(DiskNode::Directory(directory)) => {
                    open.extend(directory.current.iter().map(|(name, child)| (path.join(name), *child)));
                }
                Some(DiskNode::File(_)) => found.push(path),
                None => {}
            }
        }
        found.sort_unstable();
        found
    }
}

impl SimDisk {
    /// The space of all files, rounded up to whole blocks.
    pub(super) fn used_bytes(&self) -> u64 {
        let space = |path: &PathBuf| {
            let file = self.find(path).and_then(|node| self.file(node).ok());
            file.map_or(0, |file| file.content.len() as u64 + file.reserved_space)
        };
        self.files().iter().map(space).map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    }
}

/// The block size of the disk, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

impl FileNode {
    /// The length of the file with the reserved space.
    pub(super) fn reserved_bytes(&self) -> usize {
        // Small, so that in tests the reserved space ends in the middle of records.
        (self.content.len() + 1).next_multiple_of(RESERVED_BYTES)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.content).extend_from_slice(bytes);
    }

    pub(super) fn sync(&mut self) {
        self.synced_bytes = self.content.len();
    }

    /// Overwrites bytes. The synced prefix ends at `offset` then.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        overwrite(Arc::make_mut(&mut self.content), offset, bytes);
        self.synced_bytes = self.synced_bytes.min(offset as usize);
    }

    /// Records that the bytes `from..to` were rewritten and synced: an earlier failed sync no longer affects them.
    pub(super) fn rewrite(&mut self, from: usize, to: usize) {
        if self.lost_end > 0 && from <= self.lost_start {
            self.lost_start = self.lost_start.max(to);
            if self.lost_start >= self.lost_end {
                (self.lost_start, self.lost_end) = (0, 0);
            }
        }
        self.synced_bytes = self.synced_bytes.max(to);
    }

    /// Records a failed sync: the unsynced bytes are marked clean without being written.
    pub(super) fn lose_unsynced(&mut self) {
        if self.lost_end == 0 {
            self.lost_start = self.synced_bytes;
        }
        self.lost_end = self.content.len();
    }
}
