//! Closing a store.

use bolide_base::Result;

use crate::store::Store;
use crate::store::backend::external::checkpoint_before_close;

impl std::ops::Drop for Store {
    fn drop(&mut self) {
        // Waiting callers received the errors; recovery replays the log.
        let _ = self.close_files();
    }
}

impl Store {
    /// Syncs the log, stops the background threads and marks the log as closed, so that the next opening can
    /// distinguish damage in the last record from a torn write. Memtables are not flushed: the log contains them.
    /// External trees write a checkpoint; if it fails, the log contains their writes too.
    ///
    /// # Errors
    /// `Io` or `Poisoned`: then the next opening recovers as after a crash. If only an external tree failed, it replays
    /// the log.
    pub fn close(mut self) -> Result<()> {
        self.close_files()
    }

    fn close_files(&mut self) -> Result<()> {
        self.workers.stop();
        let inner = &*self.inner;
        if inner.options.read_only {
            return Ok(());
        }
        if !inner.log.lock().is_open() {
            return Ok(());
        }
        let checkpointed = checkpoint_before_close(inner.flush_environment().checkpoints());
        let mut log = inner.log.lock();
        inner.health.check()?;
        inner.log.sync_and_check(&mut log, &inner.health)?;
        let end = log.close();
        inner.files.versions.lock().close(end).and(checkpointed)
    }
}
