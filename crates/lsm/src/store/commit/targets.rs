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
use std::sync::atomic::{AtomicUsize, Ordering};

use bolide_base::{Result, TreeId};

use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;

/// Maximum number of cached trees.
const MAX_TARGETS: usize = 16;

/// Bytes of all writable memtables together. Updated under the lock of the log.
#[derive(Debug, Default)]
pub(in crate::store) struct ActiveBytes(AtomicUsize);

impl ActiveBytes {
    #[inline]
    pub(in crate::store) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds bytes. The caller holds the lock of the log.
    #[inline]
    fn add(&self, bytes: usize) {
        self.0.store(self.get() + bytes, Ordering::Relaxed);
    }

    /// Replaces the number. The caller holds the lock of the log.
    pub(in crate::store) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

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
    /// The tree `id`, which `find` returns if it is not cached, and its writable memtable.
    ///
    /// # Errors
    /// Those of `find`.
    #[inline]
    pub(super) fn get(
        &mut self,
        id: TreeId,
        find: impl FnOnce(TreeId) -> Result<Arc<Tree>>,
    ) -> Result<&mut CommitTarget> {
        match self.position(id) {
            Some(position) => Ok(&mut self.cached[position]),
            None => self.add_tree(find(id)?),
        }
    }

    #[cold]
    fn add_tree(&mut self, tree: Arc<Tree>) -> Result<&mut CommitTarget> {
        let logged = tree.state_guard().active.clone();
        let counted_bytes = logged.memtable.memory_bytes();
        Ok(self.add(CommitTarget { tree, logged, counted_bytes, is_written: false }))
    }

    /// As [`get`](Self::get), for writes in segment number `log` that are about to be applied; `log_bytes` are the bytes
    /// of the log up to their end.
    #[inline]
    pub(super) fn written(
        &mut self,
        id: TreeId,
        log: u64,
        log_bytes: u64,
        find: impl FnOnce(TreeId) -> Result<Arc<Tree>>,
    ) -> Result<&mut CommitTarget> {
        let target = self.get(id, find)?;
        if !target.is_written {
            target.is_written = true;
            target.logged.note_log(log, log_bytes);
        }
        Ok(target)
    }

    /// Counts the growth of all memtables written to since the last call.
    #[inline]
    pub(super) fn count_growth(&mut self, active_bytes: &ActiveBytes) {
        for target in self.cached.iter_mut().filter(|target| target.is_written) {
            target.is_written = false;
            active_bytes.add(target.growth());
        }
        // One batch may write to more trees than are cached.
        self.cached.truncate(MAX_TARGETS);
    }

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
