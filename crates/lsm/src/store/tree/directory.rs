//! The trees of a store, by number.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bolide_base::{Error, ErrorKind, Result, TreeId};

use super::Tree;

/// The trees by number, at one moment.
pub(in crate::store) type TreeMap = BTreeMap<TreeId, Arc<Tree>>;

/// The current trees of a store. Readers take no lock.
pub(in crate::store) struct TreeDirectory {
    trees: ArcSwap<TreeMap>,
}

impl TreeDirectory {
    pub(in crate::store) fn new(trees: TreeMap) -> Self {
        Self { trees: ArcSwap::from_pointee(trees) }
    }

    /// The current trees, for short use.
    #[inline]
    pub(in crate::store) fn load(&self) -> arc_swap::Guard<Arc<TreeMap>> {
        self.trees.load()
    }

    /// The current trees, with a counted reference.
    pub(in crate::store) fn load_full(&self) -> Arc<TreeMap> {
        self.trees.load_full()
    }

    /// The tree `id`.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(in crate::store) fn get(&self, id: TreeId) -> Result<Arc<Tree>> {
        let found = self.load().get(&id).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no tree {id} (any more)")))
    }

    /// Adds trees. Cost: a copy of the directory.
    pub(in crate::store) fn insert(&self, new: &[Arc<Tree>]) {
        self.trees.rcu(|trees| {
            let mut trees = TreeMap::clone(trees);
            trees.extend(new.iter().map(|tree| (tree.id, tree.clone())));
            trees
        });
    }

    /// Removes a tree.
    pub(in crate::store) fn remove(&self, id: TreeId) {
        self.trees.rcu(|trees| {
            let mut trees = TreeMap::clone(trees);
            trees.remove(&id);
            trees
        });
    }

    /// Bytes of the writable memtables.
    pub(in crate::store) fn active_bytes(&self) -> usize {
        self.load().values().map(|tree| tree.state_guard().active.memtable.memory_bytes()).sum()
    }
}
