//! Background work that a caller requests and waits for.

use std::sync::atomic::Ordering;

use bolide_base::{Result, TreeId};

use crate::compaction::VersionShape;
use crate::store::commit::log::Rotate;
use crate::store::commit::segments::rotate;
use crate::store::jobs::clean_up;
use crate::store::jobs::compact::compact_tree;
use crate::store::{Store, StoreInner};

impl Store {
    /// Writes all memtables to sstables and waits until it is done.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`.
    pub fn flush(&self) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        rotate_all(inner)?;
        inner.wait_for_flushes()
    }

    /// Flushes `tree` and merges all its sorted runs into one, without the versions that no view needs. Cost: reads and
    /// writes the whole tree.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); `NotFound`.
    pub fn compact(&self, tree: TreeId) -> Result<()> {
        self.flush()?;
        let inner = &*self.inner;
        let tree = inner.trees.get(tree)?;
        inner.with_reserved(tree.id, || {
            // Checked only now: an external tree may have been set during the wait.
            let state = tree.state();
            if !tree.backend().merges_sstables(&state.version) {
                return Ok(());
            }
            let shape = VersionShape::of(&state.version);
            match tree.compaction_policy(inner.options.partition_tables).full(&shape) {
                Some(plan) => inner.reserve.with(|| compact_tree(&inner.table_environment(), &tree, &plan)),
                None => Ok(()),
            }
        })?;
        clean_up(inner);
        inner.reserve.allocate(&inner.health);
        Ok(())
    }

    /// Waits until all due flushes and compactions are done, and external trees have collected their garbage as in idle
    /// time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        self.inner.health.check()?;
        self.inner.drain_work()
    }
}

/// Makes all writable memtables full, and all full memtables due.
fn rotate_all(store: &StoreInner) -> Result<()> {
    let mut log = store.log.lock();
    if store.trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some()) {
        rotate(store, &mut log, Rotate::All)?;
    }
    for tree in store.trees.load().values() {
        // Retained entries and memtables that wait for more are flushed too, and nothing is retained. Set only now:
        // a flush that began before the last rotation does not include that memtable.
        tree.flush_all.store(!tree.state_guard().immutables.is_empty(), Ordering::Release);
    }
    store.backlog().changed();
    Ok(())
}
