//! A cache of the trees and memtables that batches write to.
//!
//! Looking up a tree and its writable memtable takes two guards and two counted references. Most batches write to the
//! same trees as the batch before.
//!
//! # Invariants
//! * The memtable of a target is the writable one of its tree. A thread that replaces it, or drops the tree, holds the
//!   lock of the log and [clears](CommitTargets::clear) the targets before it releases the lock.
//! * The counted bytes of a target are part of the total of all writable memtables.

use std::sync::Arc;

use bolide_base::{Result, TreeId};

use crate::store::StoreInner;
use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;

/// Maximum number of cached trees.
const MAX_TARGETS: usize = 16;

/// The trees with recent writes.
#[derive(Debug, Default)]
pub(in crate::store) struct CommitTargets {
    cached: Vec<CommitTarget>,
    /// The position of the last lookup.
    last: usize,
}

/// A tree with recent writes.
#[derive(Debug)]
pub(in crate::store) struct CommitTarget {
    pub(in crate::store) tree: Arc<Tree>,
    /// The writable memtable of the tree.
    pub(in crate::store) logged: Arc<LoggedMemtable>,
    /// Bytes of the memtable that are counted so far.
    counted_bytes: usize,
    /// True while a batch writes to it.
    is_written: bool,
}

impl CommitTargets {
    /// Removes all targets.
    pub(in crate::store) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The number of targets.
    #[cfg(test)]
    pub(in crate::store) fn len(&self) -> usize {
        self.cached.len()
    }

    #[inline]
    fn position(&mut self, tree: TreeId) -> Option<usize> {
        let is_target = |target: &CommitTarget| target.tree.id == tree;
        if !self.cached.get(self.last).is_some_and(is_target) {
            self.last = self.cached.iter().position(is_target)?;
        }
        Some(self.last)
    }

    fn add(&mut self, target: CommitTarget) -> &mut CommitTarget {
        // The growth of a target with a running write is not counted yet.
        if self.cached.len() >= MAX_TARGETS
            && let Some(position) = self.cached.iter().position(|one| !one.is_written)
        {
            self.cached.swap_remove(position);
        }
        self.last = self.cached.len();
        self.cached.push(target);
        &mut self.cached[self.last]
    }
}

impl CommitTarget {
    /// Bytes by which the memtable has grown since the last call.
    #[inline]
    fn growth(&mut self) -> usize {
        let bytes = self.logged.memtable.memory_bytes();
        let grown = bytes.saturating_sub(self.counted_bytes);
        self.counted_bytes = bytes;
        grown
    }
}

impl StoreInner {
    /// The tree `id` and its writable memtable.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    #[inline]
    pub(in crate::store) fn target<'t>(
        &self,
        targets: &'t mut CommitTargets,
        id: TreeId,
    ) -> Result<&'t mut CommitTarget> {
        match targets.position(id) {
            Some(position) => Ok(&mut targets.cached[position]),
            None => self.new_target(targets, id),
        }
    }

    #[cold]
    fn new_target<'t>(&self, targets: &'t mut CommitTargets, id: TreeId) -> Result<&'t mut CommitTarget> {
        let tree = self.tree(id)?;
        let logged = tree.state_guard().active.clone();
        let counted_bytes = logged.memtable.memory_bytes();
        Ok(targets.add(CommitTarget { tree, logged, counted_bytes, is_written: false }))
    }

    /// The target for a batch in segment number `log`, which is about to write to it.
    #[inline]
    pub(in crate::store) fn written_target<'t>(
        &self,
        targets: &'t mut CommitTargets,
        log: u64,
        id: TreeId,
    ) -> Result<&'t mut CommitTarget> {
        let target = self.target(targets, id)?;
        if !target.is_written {
            target.is_written = true;
            target.logged.note_log(log, self.counters.log_bytes());
        }
        Ok(target)
    }

    /// Counts the growth of all memtables written to since the last call.
    #[inline]
    pub(in crate::store) fn count_growth(&self, targets: &mut CommitTargets) {
        for target in targets.cached.iter_mut().filter(|target| target.is_written) {
            target.is_written = false;
            self.add_active_bytes(target.growth());
        }
        // One batch may write to more trees than are cached.
        targets.cached.truncate(MAX_TARGETS);
    }
}
