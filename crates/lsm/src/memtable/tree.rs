//! The tree: descent, insertion, split.
//!
//! It is a B+-tree whose levels are linked to the right. Nothing is ever removed, so nodes only split.
//!
//! 1. **Descent.** Read a node's version, find the child, read the *child's* version, then check that the
//!    node is unchanged; else start again at the root. A split changes the parent before and after it
//!    changes the child, so a child whose version was read under an unchanged parent covers the key, and
//!    goes on to cover it for as long as its own version stays the same.
//! 2. **Insertion.** If the key is there, its entry takes the new version without any lock. Else lock the
//!    leaf at the version of the search, and shift the slots.
//! 3. **Split.** A full node met on the way down by an insertion is split at once, under its own lock and
//!    its parent's, at the versions of the descent; then the insertion starts again at the root. Thus a
//!    parent always has a free slot, two locks are enough, and they are taken by trying, never by
//!    waiting: no deadlock.
//! 4. A split halves a node, except the last one of its level when it is appended to: then an eighth goes
//!    to the right, so that ascending loads fill their leaves.
//!
//! The root link changes only while the old root is locked and marked as changing.

use bolide_base::Trailer;

use super::arena::{Arena, Link};
use super::entry::{EntryRef, VersionRef};
use super::node::{FANOUT, Found, LeafCopy, Node, NodeRef};
use super::sync::{LANES, wait};

/// Keys with their versions, in order.
pub(super) struct Tree {
    root: Link<Node>,
    nodes: Arena,
    /// One for each lane of writers.
    entries: [Arena; LANES],
}

/// Which leaf a descent looks for.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// The one that holds the key, or would.
    At,
    /// The one that holds the greatest keys before the key.
    Before,
}

/// A leaf and how it was reached.
struct Reached<'a> {
    leaf: NodeRef<'a>,
    version: u64,
    parent: Option<Parent<'a>>,
}

/// A node at a version, and which of its children was taken.
#[derive(Clone, Copy)]
struct Parent<'a> {
    node: NodeRef<'a>,
    version: u64,
    child: usize,
}

/// Most keys that [`Tree::get_many`] looks for at once.
pub(super) const TOGETHER: usize = 32;

/// One of several descents: a node at a version, and the child to go to next.
#[derive(Clone, Copy)]
struct Descent<'a> {
    node: NodeRef<'a>,
    version: u64,
    child: Option<NodeRef<'a>>,
}

/// What an insertion did.
pub(super) struct Inserted<'a> {
    /// False where the version replaced one with the same key and sequence number.
    pub(super) is_new: bool,
    /// True where the tree had no entry of the key.
    pub(super) is_new_key: bool,
    pub(super) entry: EntryRef<'a>,
    pub(super) version: VersionRef<'a>,
}

impl Tree {
    /// An empty tree whose arenas grow by chunks of at most `largest_chunk_bytes`.
    pub(super) fn new(largest_chunk_bytes: usize) -> Self {
        let nodes = Arena::new(64, 4 << 10, largest_chunk_bytes);
        let entries = std::array::from_fn(|_| Arena::new(8, 8 << 10, largest_chunk_bytes));
        let root = Link::new(None);
        root.store(Some(NodeRef::create(&nodes, None, None, true)));
        Self { root, nodes, entries }
    }

    /// Bytes taken from the allocator.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.nodes.reserved_bytes() + self.entries.iter().map(Arena::reserved_bytes).sum::<usize>()
    }

    /// Bytes that nodes have taken from the allocator.
    #[inline]
    pub(super) fn node_bytes(&self) -> usize {
        self.nodes.reserved_bytes()
    }

    /// The entry of `key`.
    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        loop {
            let Reached { leaf, version, .. } = self.reach::<false>(key, Side::At);
            if let Some(entry) = leaf.search(key).entry {
                return Some(entry);
            }
            if leaf.unchanged(version) {
                return None;
            }
        }
    }

    /// As [`get`](Self::get) for up to [`TOGETHER`] keys, into the same places of `found`. All descents go down one
    /// level before any goes down the next, so that they wait for memory together.
    pub(super) fn get_many<'a>(&'a self, keys: &[&[u8]], found: &mut [Option<EntryRef<'a>>]) {
        let (root, version) = self.root();
        // `None` where the tree changed under a descent: the plain search answers then.
        let mut descents = [Some(Descent { node: root, version, child: None }); TOGETHER];
        let mut leaves = false;
        while !leaves {
            leaves = true;
            for (key, descent) in keys.iter().zip(&mut descents) {
                let Some(Descent { node, child, .. }) = descent else { continue };
                let Some(children) = node.children() else { continue };
                leaves = false;
                let found = node.search(key);
                *child = children.child(found.position + usize::from(found.entry.is_some()));
                match child {
                    Some(child) => child.prefetch(),
                    None => *descent = None,
                }
            }
            for descent in &mut descents[..keys.len().min(TOGETHER)] {
                let Some(Descent { node, version, child: Some(child) }) = *descent else { continue };
                let child_version = child.begin();
                let next = Descent { node: child, version: child_version, child: None };
                *descent = node.unchanged(version).then_some(next);
            }
        }
        for (key, descent) in keys.iter().zip(descents) {
            if let Some(Descent { node, .. }) = descent {
                node.prefetch_entry_of(key);
            }
        }
        for ((key, descent), found) in keys.iter().zip(descents).zip(found) {
            *found = match descent {
                Some(Descent { node, version, .. }) => match node.search(key).entry {
                    None if !node.unchanged(version) => self.get(key),
                    entry => entry,
                },
                None => self.get(key),
            };
        }
    }

    /// Adds a version, with memory of this lane.
    pub(super) fn insert(&self, lane: usize, key: &[u8], trailer: Trailer, value: &[u8]) -> Inserted<'_> {
        let arena = &self.entries[lane % LANES];
        let mut fresh: Option<EntryRef<'_>> = None;
        let mut turns = 0;
        loop {
            let Reached { leaf, version, parent } = self.reach::<true>(key, Side::At);
            let Found { position, entry } = leaf.search(key);
            if let Some(entry) = entry {
                // Another thread may have brought the key while this one prepared to.
                let version = match fresh {
                    Some(fresh) => fresh.first(),
                    None => VersionRef::create(arena, trailer, value),
                };
                return Inserted { is_new: entry.add(version), is_new_key: false, entry, version };
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
                return Inserted { is_new: true, is_new_key: true, entry, version: entry.first() };
            }
            wait(&mut turns);
        }
    }

    /// Adds a version to an entry, with memory of this lane.
    pub(super) fn add_version<'a>(
        &'a self,
        lane: usize,
        entry: EntryRef<'a>,
        trailer: Trailer,
        value: &[u8],
    ) -> Inserted<'a> {
        let version = VersionRef::create(&self.entries[lane % LANES], trailer, value);
        Inserted { is_new: entry.add(version), is_new_key: false, entry, version }
    }

    /// About which share of all keys lies below `key`. It does not mind writers: what it reads of a node that
    /// is changing may be a mixture, which makes the answer less exact and nothing else.
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

    /// Copies the leaf for `key`; answers how many of its slots have a smaller key.
    pub(super) fn copy_at<'a>(&'a self, key: &[u8], copy: &mut LeafCopy<'a>) -> usize {
        self.copy_reached(key, Side::At, copy)
    }

    /// Copies the leaf with the greatest keys before `key`; answers how many of its slots are before it.
    /// Only the first leaf can have none.
    pub(super) fn copy_before<'a>(&'a self, key: &[u8], copy: &mut LeafCopy<'a>) -> usize {
        self.copy_reached(key, Side::Before, copy)
    }

    /// As [`copy_at`](Self::copy_at) where the leaf for `key` is known, with a version at which it covers the key; `None`
    /// where it has changed since.
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
    fn copy_reached<'a>(&'a self, key: &[u8], side: Side, copy: &mut LeafCopy<'a>) -> usize {
        loop {
            let Reached { leaf, version, .. } = self.reach::<false>(key, side);
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

    /// Copies `leaf`, which came from another copy's `right`.
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
    fn reach<const INSERT: bool>(&self, key: &[u8], side: Side) -> Reached<'_> {
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
                // Slot i is the smallest key of child i + 1: an equal key is in there, not before.
                let equal = side == Side::At && found.entry.is_some();
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
            return Reached { leaf: node, version, parent };
        }
    }

    /// Splits the full `node`, if it and its parent still are at these versions and not locked; else does
    /// nothing and answers false. `append`: the next key goes behind the last slot.
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
                // The parent first, the node within: see step 1.
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
