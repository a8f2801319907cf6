//! Closing a store.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::backend::external::checkpoint_before_close;
use crate::store::tree::Tree;
use crate::store::{Store, StoreInner};

/// Bytes of log that a close leaves to the replay of the next opening, which takes some milliseconds; once more for each
/// [`TREES_OF_ONE_STEP`] trees with writes in it, since their flushes take longer.
const MAX_REPLAYED_BYTES: u64 = 4 << 20;
const TREES_OF_ONE_STEP: u64 = 16;

/// Whether the memtables are flushed before a close. Not if that would open external trees that nothing needed so far.
fn is_flush_due(store: &StoreInner) -> bool {
    let can_flush = !store.options.read_only
        && store.options.background_threads > 0
        && !store.work.lock().paused
        && store.health.check().is_ok();
    let is_unopened = |of: &Arc<Tree>| of.attaches_at_flush() && of.state_guard().needs_log();
    let trees = store.trees.load();
    let written = trees.values().filter(|tree| tree.state_guard().needs_log()).count() as u64;
    let limit = MAX_REPLAYED_BYTES * (1 + written / TREES_OF_ONE_STEP);
    can_flush && replayed_bytes(store) > limit && !trees.values().any(is_unopened)
}

/// Bytes of log that an opening would read now.
fn replayed_bytes(store: &StoreInner) -> u64 {
    // In this order of the locks.
    let current = store.log.lock().len();
    let versions = store.files.versions.lock();
    let finished = versions.wal_segments().range(versions.wal_floor()..);
    current + finished.filter_map(|(_, segment)| segment.end).sum::<u64>()
}

impl std::ops::Drop for Store {
    fn drop(&mut self) {
        // Waiting callers received the errors; recovery replays the log.
        let _ = self.close_files();
    }
}

impl Store {
    /// Syncs the log, stops the background threads and marks the log as closed, so that the next opening can
    /// distinguish damage in the last record from a torn write. Memtables are only flushed if their replay would delay the next
    /// opening: the log contains them. External trees write a checkpoint; if it fails, the log contains their writes too.
    ///
    /// # Errors
    /// `Io` or `Poisoned`: then the next opening recovers as after a crash. If only an external tree failed, it replays
    /// the log.
    pub fn close(mut self) -> Result<()> {
        self.close_files()
    }

    fn close_files(&mut self) -> Result<()> {
        if is_flush_due(&self.inner) {
            // After a failure the log contains the writes.
            let _ = self.flush();
        }
        self.workers.stop();
        let inner = &*self.inner;
        if inner.options.read_only {
            return Ok(());
        }
        if !inner.log.lock().is_open() {
            return Ok(());
        }
        let checkpointed = checkpoint_before_close(&inner.flush_environment());
        let mut log = inner.log.lock();
        inner.health.check()?;
        inner.log.sync_and_check(&mut log, &inner.health)?;
        let end = log.close();
        inner.files.versions.lock().close(end).and(checkpointed)
    }
}
