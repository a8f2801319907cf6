//! The memtables that batches write to, at hand for whoever writes.
//!
//! Looking a tree and its writable memtable up takes two guards and two counted references. Most batches write to the trees that
//! the one before wrote to, so these are kept.
//!
//! # Invariants
//! * A target's memtable is the writable one of its tree. Who gives a tree another one, or drops a tree, has the lock of the log, and
//!   [clears](Targets::clear) the targets before giving it back.
//! * What a target has counted of its memtable's bytes is part of the bytes of all writable memtables.

use std::sync::Arc;

use bolide_base::{Result, TreeId};

use super::StoreInner;
use super::logged_memtable::LoggedMemtable;
use super::tree::Tree;

/// Most trees that are kept at hand.
const MOST: usize = 16;

/// The trees that were written to of late.
#[derive(Debug, Default)]
pub(super) struct Targets {
    known: Vec<Target>,
    /// The one that was asked for last.
    last: usize,
}

/// A tree that is written to.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) tree: Arc<Tree>,
    /// Its writable memtable.
    pub(super) logged: Arc<LoggedMemtable>,
    /// Bytes of the memtable as they were counted last.
    counted: usize,
    /// Set while a batch writes to it.
    is_written: bool,
}

impl Targets {
    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    #[inline]
    fn position(&mut self, tree: TreeId) -> Option<usize> {
        let is_it = |target: &Target| target.tree.id == tree;
        if !self.known.get(self.last).is_some_and(is_it) {
            self.last = self.known.iter().position(is_it)?;
        }
        Some(self.last)
    }

    fn add(&mut self, target: Target) -> &mut Target {
        // One that is being written to has not told its bytes yet.
        if self.known.len() >= MOST
            && let Some(position) = self.known.iter().position(|one| !one.is_written)
        {
            self.known.swap_remove(position);
        }
        self.last = self.known.len();
        self.known.push(target);
        &mut self.known[self.last]
    }
}

impl Target {
    /// Bytes that the memtable has grown by since this was asked last.
    #[inline]
    fn growth(&mut self) -> usize {
        let bytes = self.logged.memtable.memory_bytes();
        let grown = bytes.saturating_sub(self.counted);
        self.counted = bytes;
        grown
    }
}

impl StoreInner {
    /// The tree `id` and its writable memtable.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    #[inline]
    pub(super) fn target<'t>(&self, targets: &'t mut Targets, id: TreeId) -> Result<&'t mut Target> {
        match targets.position(id) {
            Some(position) => Ok(&mut targets.known[position]),
            None => self.new_target(targets, id),
        }
    }

    #[cold]
    fn new_target<'t>(&self, targets: &'t mut Targets, id: TreeId) -> Result<&'t mut Target> {
        let tree = self.tree(id)?;
        let logged = tree.state_guard().active.clone();
        let counted = logged.memtable.memory_bytes();
        Ok(targets.add(Target { tree, logged, counted, is_written: false }))
    }

    /// The same for a batch that is in segment number `log` and is about to write to it.
    #[inline]
    pub(super) fn written_target<'t>(
        &self,
        targets: &'t mut Targets,
        log: u64,
        id: TreeId,
    ) -> Result<&'t mut Target> {
        let target = self.target(targets, id)?;
        if !target.is_written {
            target.is_written = true;
            target.logged.note_log(log, self.counters.log_bytes());
        }
        Ok(target)
    }

    /// Counts what the memtables have grown by that were written to since this was called last.
    #[inline]
    pub(super) fn count_growth(&self, targets: &mut Targets) {
        for target in targets.known.iter_mut().filter(|target| target.is_written) {
            target.is_written = false;
            self.add_active_bytes(target.growth());
        }
        // A batch may have written to more.
        targets.known.truncate(MOST);
    }
}
