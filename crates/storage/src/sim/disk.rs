//! What a simulated disk holds: files and directories, each with what was synced and what was not.
//!
//! Invariants:
//! * a file's content only grows, except through [`SimDisk::damage`]; markers alone are overwritten;
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

/// Space behind a log is reserved in pieces of this size.
const RESERVED_BYTES: usize = 4096;

/// All nodes, also those that have lost their last name: an open handle still reads them.
#[derive(Debug, Clone)]
pub(super) struct SimDisk {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    /// Shared with images of this disk until the next append, so that an image costs little.
    pub(super) content: Arc<Vec<u8>>,
    /// How many of them survive a power cut for sure.
    pub(super) synced_bytes: usize,
    /// Bytes from here to `lost_end` were dropped by a failed sync: reads show them, but no power cut
    /// leaves them.
    pub(super) lost_start: usize,
    /// End of the dropped bytes.
    pub(super) lost_end: usize,
    /// The file was created as a log and its handle is open: space is reserved behind its bytes, which
    /// the end of the process or of the power leaves as zeros.
    pub(super) reserves: bool,
    /// Space that the file takes without holding bytes.
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

/// One change of a directory that was not synced yet.
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
        Self { nodes: vec![Node::Directory(DirectoryNode::default())] }
    }

    /// The node of `path`.
    pub(super) fn find(&self, path: &Path) -> Option<NodeId> {
        path.iter().try_fold(ROOT, |node, name| match self.nodes.get(node) {
            Some(Node::Directory(directory)) => directory.current.get(name.to_str()?).copied(),
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
            Some(Node::File(_)) => Ok(node),
            _ => Err(failure(operation, path, io::ErrorKind::IsADirectory)),
        }
    }

    /// The bytes of a node that [`file_node`](Self::file_node) gave.
    pub(super) fn file(&self, node: NodeId) -> Result<&FileNode> {
        match self.nodes.get(node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(Error::internal("simulated disk: a handle names no file")),
        }
    }

    /// The same, to change it.
    pub(super) fn file_mut(&mut self, node: NodeId) -> Result<&mut FileNode> {
        match self.nodes.get_mut(node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(Error::internal("simulated disk: a handle names no file")),
        }
    }

    fn directory_mut(&mut self, operation: &str, path: &Path) -> Result<&mut DirectoryNode> {
        let node = self.node(operation, path)?;
        match self.nodes.get_mut(node) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(failure(operation, path, io::ErrorKind::NotADirectory)),
        }
    }

    /// The directory that holds `path`, and the last name of `path` in it.
    fn parent_mut(&mut self, operation: &str, path: &Path) -> Result<(&mut DirectoryNode, String)> {
        let invalid = || failure(operation, path, io::ErrorKind::InvalidInput);
        let parent = path.parent().ok_or_else(invalid)?;
        let name = path.file_name().and_then(OsStr::to_str).ok_or_else(invalid)?.to_owned();
        Ok((self.directory_mut(operation, parent)?, name))
    }

    fn add(&mut self, operation: &str, path: &Path, node: Node) -> Result<NodeId> {
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
        self.add("create", path, Node::File(FileNode { reserves, ..FileNode::default() }))
    }

    /// The process ends without closing its files.
    pub(super) fn abandon_handles(&mut self) {
        for node in &mut self.nodes {
            if let Node::File(file) = node
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
        let moves_directory = matches!(self.nodes.get(node), Some(Node::Directory(_)));
        if moves_directory && to.starts_with(from) && to != from {
            return Err(failure("rename", to, io::ErrorKind::InvalidInput));
        }
        match self.find(to).and_then(|target| self.nodes.get(target)) {
            Some(Node::Directory(target)) if !moves_directory || !target.current.is_empty() => {
                return Err(failure("rename to", to, io::ErrorKind::AlreadyExists));
            }
            Some(Node::File(_)) if moves_directory => {
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
        // Between two directories nothing ties the halves together until both are synced.
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
            Some(Node::Directory(directory)) => Ok(directory.current.keys().cloned().collect()),
            _ => Err(failure("list", path, io::ErrorKind::NotADirectory)),
        }
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        let mut prefix = PathBuf::new();
        for name in path {
            prefix.push(name);
            match self.find(&prefix).and_then(|node| self.nodes.get(node)) {
                Some(Node::Directory(_)) => {}
                Some(Node::File(_)) => {
                    return Err(failure("create directory", &prefix, io::ErrorKind::AlreadyExists));
                }
                None => {
                    self.add("create directory", &prefix, Node::Directory(DirectoryNode::default()))?;
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

    /// Changes the bytes of a file behind the store's back, as a worn disk would.
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
                Some(Node::Directory(directory)) => {
                    open.extend(directory.current.iter().map(|(name, child)| (path.join(name), *child)));
                }
                Some(Node::File(_)) => found.push(path),
                None => {}
            }
        }
        found.sort_unstable();
        found
    }
}

impl SimDisk {
    /// The space that its files take, by whole blocks.
    pub(super) fn used_bytes(&self) -> u64 {
        let space = |path: &PathBuf| {
            let file = self.find(path).and_then(|node| self.file(node).ok());
            file.map_or(0, |file| file.content.len() as u64 + file.reserved_space)
        };
        self.files().iter().map(space).map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).sum()
    }
}

/// Files take space by blocks of this size.
pub(super) const BLOCK_BYTES: u64 = 4096;

impl FileNode {
    /// Its length with the space that is reserved behind its bytes.
    pub(super) fn reserved_bytes(&self) -> usize {
        // Small, so that tests meet ends of the reserved space in the middle of records.
        (self.content.len() + 1).next_multiple_of(RESERVED_BYTES)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.content).extend_from_slice(bytes);
    }

    pub(super) fn sync(&mut self) {
        self.synced_bytes = self.content.len();
    }

    /// Puts bytes in the place of others. What was synced from there on no longer is.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        overwrite(Arc::make_mut(&mut self.content), offset, bytes);
        self.synced_bytes = self.synced_bytes.min(offset as usize);
    }

    /// The bytes `from..to` were written again and synced: a failed sync before that no longer matters to them.
    pub(super) fn rewrite(&mut self, from: usize, to: usize) {
        if self.lost_end > 0 && from <= self.lost_start {
            self.lost_start = self.lost_start.max(to);
            if self.lost_start >= self.lost_end {
                (self.lost_start, self.lost_end) = (0, 0);
            }
        }
        self.synced_bytes = self.synced_bytes.max(to);
    }

    /// A sync that failed: the bytes it was to write are marked clean without having been written.
    pub(super) fn lose_unsynced(&mut self) {
        if self.lost_end == 0 {
            self.lost_start = self.synced_bytes;
        }
        self.lost_end = self.content.len();
    }
}
