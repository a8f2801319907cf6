//! A descent one level at a time, so that descents in several trees overlap their memory latencies.
//!
//! Each step reads a node that the previous step prefetched, and prefetches a child. The descent reads versions in the
//! order of `tree`'s descent. If a concurrent writer changes a node, the descent is lost and the caller searches again.

use super::node::NodeRef;
use super::tree::MemtableTree;

/// The state of a staged descent.
#[derive(Clone, Copy)]
pub(super) enum StagedDescent<'a> {
    /// It was not started, or a writer has changed a node.
    Lost,
    /// The next node is `node`, which is prefetched; `parent` links to it at this version.
    Below { node: NodeRef<'a>, parent: NodeRef<'a>, parent_version: u64 },
    /// At the leaf for the key, at a version at which the leaf covers the key; its slots are prefetched.
    Leaf { leaf: NodeRef<'a>, version: u64 },
    /// At the leaf, and the entry is prefetched.
    Entry { leaf: NodeRef<'a>, version: u64 },
}

impl MemtableTree {
    /// The first step of a descent to `key`.
    #[inline]
    pub(super) fn begin_descent(&self, key: &[u8]) -> StagedDescent<'_> {
        let (root, version) = self.root();
        below(root, version, key)
    }
}

impl StagedDescent<'_> {
    /// The next step of a descent to `key`.
    #[inline]
    pub(super) fn step(self, key: &[u8]) -> Self {
        match self {
            Self::Below { node, parent, parent_version } => {
                let version = node.begin();
                if parent.unchanged(parent_version) { below(node, version, key) } else { Self::Lost }
            }
            Self::Leaf { leaf, version } => {
                leaf.prefetch_entry_of(key);
                Self::Entry { leaf, version }
            }
            Self::Lost | Self::Entry { .. } => self,
        }
    }
}

/// The state after `node`, which covers `key` at this version.
#[inline]
fn below<'a>(node: NodeRef<'a>, version: u64, key: &[u8]) -> StagedDescent<'a> {
    let Some(children) = node.children() else {
        node.prefetch_entries();
        return StagedDescent::Leaf { leaf: node, version };
    };
    let found = node.search(key);
    match children.child(found.position + usize::from(found.entry.is_some())) {
        Some(child) => {
            child.prefetch();
            StagedDescent::Below { node: child, parent: node, parent_version: version }
        }
        None => StagedDescent::Lost,
    }
}
