//! The tree: descent, insertion, split.
//!
//! A B+-tree with right links on each level. Keys are never removed, so nodes only split.
//!
//! 1. **Descent.** Read a node's version, find the child, read the *child's* version, then verify that the node is
//!    unchanged; else restart at the root. A split changes the parent before and after it changes the child. So a child
//!    whose version was read under an unchanged parent covers the key, as long as its own version is unchanged.
//! 2. **Insertion.** If the key exists, add the new version to its entry without a lock. Else lock the leaf at the
//!    version of the search, and shift the slots.
//! 3. **Split.** The descent of an insertion splits a full node at once, under its own lock and its parent's, at the
//!    versions of the descent; then the insertion restarts at the root. Thus a parent always has a free slot, and two
//!    locks are sufficient. They are taken by trying, never by waiting: no deadlock.
//! 4. A split halves a node, except for an append to the last node of a level: then an eighth moves to the right, so
//!    that ascending loads fill their leaves.
//!
//! The root link changes only while the old root is locked and marked as changing.

use std::sync::Arc;

use bolide_base::Trailer;
use bolide_memory::{Arena, PagePool};

use super::arena_ref::Link;
use super::entry::{EntryRef, VersionRef};
use super::node::{FANOUT, LeafCopy, NodeMatch, NodeRef, TreeNode};
use super::sync::{LANES, wait};

/// The sorted keys with their versions.
pub(super) struct MemtableTree {
    root: Link<TreeNode>,
    nodes: Arena,
    /// One arena for each lane of writers.
    entries: [Arena; LANES],
}

/// The target leaf of a descent.
#[derive(Clone, Copy, PartialEq)]
enum LeafSearch {
    /// The leaf that covers the key.
    At,
    /// The leaf with the greatest keys before the key.
    Before,
}

/// A leaf and its parent.
struct LeafPath<'a> {
    leaf: NodeRef<'a>,
    version: u64,
    parent: Option<Parent<'a>>,
}

/// A node at a version, and the index of the child of the descent.
#[derive(Clone, Copy)]
struct Parent<'a> {
    node: NodeRef<'a>,
    version: u64,
    child: usize,
}

/// The maximum number of keys of a [`MemtableTree::get_many`].
pub(super) const BATCH_KEYS: usize = 32;

/// A descent of a batch: a node at a version, and the next child.
#[derive(Clone, Copy)]
struct BatchDescent<'a> {
    node: NodeRef<'a>,
    version: u64,
    child: Option<NodeRef<'a>>,
}

/// The result of an insertion.
pub(super) struct Insertion<'a> {
    /// Whether the key had no version with this sequence number.
    pub(super) is_new: bool,
    /// Whether the tree had no entry of the key.
    pub(super) is_new_key: bool,
    pub(super) entry: EntryRef<'a>,
    pub(super) version: VersionRef<'a>,
}

impl MemtableTree {
    /// An empty tree whose arenas grow by chunks of at most `largest_chunk_bytes`, in large pages of `pages`.
    pub(super) fn new(largest_chunk_bytes: usize, pages: &Arc<PagePool>) -> Self {
        let arena = |unit, first| Arena::new(unit, first, largest_chunk_bytes, Arc::clone(pages));
        let nodes = arena(64, 4 << 10);
        let entries = std::array::from_fn(|_| arena(8, 8 << 10));
        let root = Link::new(None);
        root.store(Some(NodeRef::create(&nodes, None, None, true)));
        Self { root, nodes, entries }
    }

    /// The pool of its large pages.
    pub(super) fn pages(&self) -> &Arc<PagePool> {
        self.nodes.pages()
    }

    /// The allocated bytes.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.nodes.reserved_bytes() + self.entries.iter().map(Arena::reserved_bytes).sum::<usize>()
    }

    /// The allocated bytes of the nodes.
    #[inline]
    pub(super) fn node_bytes(&self) -> usize {
        self.nodes.reserved_bytes()
    }

    /// The entry of `key`.
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        loop {
            let LeafPath { leaf, version, .. } = self.descend::<false>(key, LeafSearch::At);
            if let Some(entry) = leaf.search(key).entry {
                return Some(entry);
            }
            if leaf.unchanged(version) {
                return None;
            }
        }
    }

    /// As [`get`](Self::get) for up to [`BATCH_KEYS`] keys, with results at the same indices of `found`. All descents
    /// complete one level before the next, so that their memory latencies overlap.
    pub(super) fn get_many<'a>(&'a self, keys: &[&[u8]], found: &mut [Option<EntryRef<'a>>]) {
        let (root, version) = self.root();
        // `None` if the tree changed during a descent: then the single search takes its place.
        let mut descents = [Some(BatchDescent { node: root, version, child: None }); BATCH_KEYS];
        let mut at_leaves = false;
        while !at_leaves {
            at_leaves = true;
            for (key, descent) in keys.iter().zip(&mut descents) {
                let Some(BatchDescent { node, child, .. }) = descent else { continue };
                let Some(children) = node.children() else { continue };
                at_leaves = false;
                let found = node.search(key);
                *child = children.child(found.position + usize::from(found.entry.is_some()));
                match child {
                    Some(child) => child.prefetch(),
                    None => *descent = None,
                }
            }
            for descent in &mut descents[..keys.len().min(BATCH_KEYS)] {
                let Some(BatchDescent { node, version, child: Some(child) }) = *descent else { continue };
                let child_version = child.begin();
                let next = BatchDescent { node: child, version: child_version, child: None };
                *descent = node.unchanged(version).then_some(next);
            }
        }
        for (key, descent) in keys.iter().zip(descents) {
            if let Some(BatchDescent { node, .. }) = descent {
                node.prefetch_entry_of(key);
            }
        }
        for ((key, descent), found) in keys.iter().zip(descents).zip(found) {
            *found = match descent {
                Some(BatchDescent { node, version, .. }) => match node.search(key).entry {
                    None if !node.unchanged(version) => self.get(key),
                    entry => entry,
                },
                None => self.get(key),
            };
        }
    }

    /// Adds a version, in the arena of this lane.
    pub(super) fn insert(&self, lane: usize, key: &[u8], trailer: Trailer, value: &[u8]) -> Insertion<'_> {
        let arena = &self.entries[lane % LANES];
        let mut fresh: Option<EntryRef<'_>> = None;
        let mut turns = 0;
        loop {
            let LeafPath { leaf, version, parent } = self.descend::<true>(key, LeafSearch::At);
            let NodeMatch { position, entry } = leaf.search(key);
            if let Some(entry) = entry {
                // Another thread may have inserted the key meanwhile.
                let version = match fresh {
                    Some(fresh) => fresh.first(),
                    None => VersionRef::create(arena, trailer, value),
                };
                return Insertion { is_new: entry.add(version), is_new_key: false, entry, version };
            }
            if leaf.count() == FANOUT {
                if !self.split(parent, leaf, version, position == FANOUT) {
                    wait(&mut turns);
                }
                continue;
            }
            let entry = *fresh.get_or_insert_with(|| EntryRef::create(arena, key, trailer, value));
            if leaf.try_lock(version) {
                leaf.begin_change();
                leaf.insert(position, entry, None);
                leaf.end_change();
                return Insertion { is_new: true, is_new_key: true, entry, version: entry.first() };
            }
            wait(&mut turns);
        }
    }

    /// Adds a version to an entry, in the arena of this lane.
    pub(super) fn add_version<'a>(
        &'a self,
        lane: usize,
        entry: EntryRef<'a>,
        trailer: Trailer,
        value: &[u8],
    ) -> Insertion<'a> {
        let version = VersionRef::create(&self.entries[lane % LANES], trailer, value);
        Insertion { is_new: entry.add(version), is_new_key: false, entry, version }
    }

    /// The approximate share of the keys below `key`. Does not verify versions: a concurrent change only makes the result
    /// less exact.
    pub(super) fn share_below(&self, key: &[u8]) -> f64 {
        let (mut node, _) = self.root();
        let (mut below, mut width) = (0.0, 1.0);
        loop {
            let found = node.search(key);
            let Some(children) = node.children() else {
                return below + width * found.position as f64 / node.count().max(1) as f64;
            };
            let index = found.position + usize::from(found.entry.is_some());
            width /= (node.count() + 1) as f64;
            below += width * index as f64;
            let Some(child) = children.child(index) else {
                return below;
            };
            node = child;
        }
    }

    /// Copies the leaf for `key`. Returns the number of its slots with a smaller key.
    pub(super) fn copy_at<'a>(&'a self, key: &[u8], copy: &mut LeafCopy<'a>) -> usize {
        self.copy_checked(key, LeafSearch::At, copy)
    }

    /// Copies the leaf with the greatest keys before `key`. Returns the number of its slots before `key`; only the first
    /// leaf can have none.
    pub(super) fn copy_before<'a>(&'a self, key: &[u8], copy: &mut LeafCopy<'a>) -> usize {
        self.copy_checked(key, LeafSearch::Before, copy)
    }

    /// As [`copy_at`](Self::copy_at) from a known leaf, with a version at which it covers `key`; `None` if it has changed
    /// since.
    pub(super) fn copy_if_unchanged<'a>(
        &'a self,
        (leaf, version): (NodeRef<'a>, u64),
        key: &[u8],
        copy: &mut LeafCopy<'a>,
    ) -> Option<usize> {
        let position = leaf.search(key).position;
        leaf.copy_to(copy);
        leaf.unchanged(version).then_some(position)
    }

    #[inline]
    fn copy_checked<'a>(&'a self, key: &[u8], side: LeafSearch, copy: &mut LeafCopy<'a>) -> usize {
        loop {
            let LeafPath { leaf, version, .. } = self.descend::<false>(key, side);
            leaf.prefetch_entries();
            let position = leaf.search(key).position;
            leaf.copy_to(copy);
            if leaf.unchanged(version) {
                return position;
            }
        }
    }

    /// Copies the last leaf.
    pub(super) fn copy_last<'a>(&'a self, copy: &mut LeafCopy<'a>) {
        'restart: loop {
            let (mut node, mut version) = self.root();
            while let Some(children) = node.children() {
                let Some(child) = children.child(node.count()) else { continue 'restart };
                let child_version = child.begin();
                if !node.unchanged(version) {
                    continue 'restart;
                }
                (node, version) = (child, child_version);
            }
            node.copy_to(copy);
            if node.unchanged(version) {
                return;
            }
        }
    }

    /// Copies `leaf`, the right link of another copy.
    pub(super) fn copy_leaf<'a>(&'a self, leaf: NodeRef<'a>, copy: &mut LeafCopy<'a>) {
        loop {
            let version = leaf.begin();
            leaf.copy_to(copy);
            if leaf.unchanged(version) {
                return;
            }
        }
    }

    pub(super) fn root(&self) -> (NodeRef<'_>, u64) {
        loop {
            let Some(node) = self.root.load() else { unreachable!("a tree is created with a root") };
            let version = node.begin();
            if self.root.load() == Some(node) {
                return (node, version);
            }
        }
    }

    /// Descends to a leaf. With `INSERT`, splits full inner nodes on the way.
    #[inline]
    fn descend<const INSERT: bool>(&self, key: &[u8], side: LeafSearch) -> LeafPath<'_> {
        let mut turns = 0;
        'restart: loop {
            let (mut node, mut version) = self.root();
            let mut parent = None;
            while let Some(children) = node.children() {
                if INSERT && node.count() == FANOUT {
                    let append = node.is_last() && node.search(key).position == FANOUT;
                    if !self.split(parent, node, version, append) {
                        wait(&mut turns);
                    }
                    continue 'restart;
                }
                let found = node.search(key);
                // Slot i is the smallest key of child i + 1: an equal key is in that child.
                let equal = side == LeafSearch::At && found.entry.is_some();
                let index = found.position + usize::from(equal);
                let child = children.child(index);
                if let Some(child) = child {
                    child.prefetch();
                    let child_version = child.begin();
                    if node.unchanged(version) {
                        parent = Some(Parent { node, version, child: index });
                        (node, version) = (child, child_version);
                        continue;
                    }
                }
                wait(&mut turns);
                continue 'restart;
            }
            return LeafPath { leaf: node, version, parent };
        }
    }

    /// Splits the full `node`, if it and its parent are still at these versions and not locked; otherwise returns false
    /// without a change. `append`: the next key is after the last slot.
    fn split<'a>(
        &'a self,
        parent: Option<Parent<'a>>,
        node: NodeRef<'a>,
        version: u64,
        append: bool,
    ) -> bool {
        if parent.is_some_and(|parent| !parent.node.try_lock(parent.version)) {
            return false;
        }
        if !node.try_lock(version) {
            if let Some(parent) = parent {
                parent.node.unlock();
            }
            return false;
        }
        let middle = if append && node.is_last() { FANOUT - (FANOUT / 8).max(1) } else { FANOUT / 2 };
        let Some((fence, right)) = node.upper_half(&self.nodes, middle) else {
            unreachable!("every slot of a locked full node is set")
        };
        match parent {
            Some(parent) => {
                // The parent's change encloses the node's change: see step 1.
                parent.node.begin_change();
                node.begin_change();
                node.truncate(middle, fence, right);
                parent.node.insert(parent.child, fence, Some(right));
                node.end_change();
                parent.node.end_change();
            }
            None => {
                let root = NodeRef::create(&self.nodes, None, None, false);
                root.set_first_child(node);
                root.insert(0, fence, Some(right));
                node.begin_change();
                node.truncate(middle, fence, right);
                self.root.store(Some(root));
                node.end_change();
            }
        }
        true
    }
}
