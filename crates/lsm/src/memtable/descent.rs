//! A search that goes down one level at a time, so that several, in several trees, wait for memory together.
//!
//! Each step reads a node that the step before asked for, and asks for the one below. The versions are those of `tree`'s
//! descent, read in its order. Where a writer came between, the descent is lost; whoever began it searches anew.

use super::node::NodeRef;
use super::tree::Tree;

/// Where such a search is.
#[derive(Clone, Copy)]
pub(super) enum Descent<'a> {
    /// Nowhere: it was not begun, or a writer came between.
    Lost,
    /// On its way to `node`, which is asked for; `parent`, at this version, led there.
    Below { node: NodeRef<'a>, parent: NodeRef<'a>, parent_version: u64 },
    /// In the leaf for the key, at a version at which that covers the key; its slots are asked for.
    Leaf { leaf: NodeRef<'a>, version: u64 },
    /// There as well, and the entry is asked for.
    Entry { leaf: NodeRef<'a>, version: u64 },
}

impl Tree {
    /// The first step of a descent to `key`.
    #[inline]
    pub(super) fn begin_descent(&self, key: &[u8]) -> Descent<'_> {
        let (root, version) = self.root();
        below(root, version, key)
    }
}

impl Descent<'_> {
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

/// Goes on from `node`, which covers `key` at this version.
#[inline]
fn below<'a>(node: NodeRef<'a>, version: u64, key: &[u8]) -> Descent<'a> {
    let Some(children) = node.children() else {
        node.prefetch_entries();
        return Descent::Leaf { leaf: node, version };
    };
    let found = node.search(key);
    match children.child(found.position + usize::from(found.entry.is_some())) {
        Some(child) => {
            child.prefetch();
            Descent::Below { node: child, parent: node, parent_version: version }
        }
        None => Descent::Lost,
    }
}
