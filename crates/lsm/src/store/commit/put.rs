//! The fast path of a single put: straight into the log and the memtable.
//!
//! Most writes are single puts, and most find the log free. They need no queue, no leader and no encoded batch: the log
//! receives the parts of the record, and the memtable receives key and value. The bytes in the log are the same on both
//! paths.

use bolide_base::technique::Technique;
use bolide_base::{Result, SequenceNumber, TreeId};

use super::log::LogState;
use super::pipeline::{CommitEnv, CommitPipeline, check_sequences};
use super::writes::SinglePut;
use crate::options::SyncMode;
use crate::record_log::SingleOperation;

impl<E: CommitEnv> CommitPipeline<'_, E> {
    /// Commits one put if no other writer is active. Returns `None` if it has to enqueue, or needs more than a memtable
    /// entry. A put that waits for background work or requires a sync always enqueues, so that other batches share the
    /// sync.
    #[inline]
    pub(super) fn put_alone(
        &self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        sync: SyncMode,
    ) -> Result<Option<SequenceNumber>> {
        let Some(operation) = SingleOperation::of_put(0, tree, key, value) else { return Ok(None) };
        let put = SinglePut { tree, operation };
        if sync == SyncMode::Always || self.env.pressure().throttles() {
            return Ok(None);
        }
        if self.env.works_inline() {
            return self.put_as_leader(put, sync);
        }
        match self.env.log().try_lock() {
            Some(mut log) => self.put_into(&mut log, put, sync),
            None => Ok(None),
        }
    }

    /// The same for inline maintenance: the writer leads until it has done the maintenance it caused, even if the put
    /// fails.
    #[cold]
    fn put_as_leader(&self, put: SinglePut<'_>, sync: SyncMode) -> Result<Option<SequenceNumber>> {
        let Some(_leader) = self.queue.try_lead(self.env.health()) else { return Ok(None) };
        let result = self.put_into(&mut self.env.log().lock(), put, sync);
        self.env.work();
        result
    }

    /// Commits one put and assigns its sequence number.
    #[inline]
    fn put_into(
        &self,
        log: &mut LogState,
        mut put: SinglePut<'_>,
        sync: SyncMode,
    ) -> Result<Option<SequenceNumber>> {
        self.env.health().check()?;
        let target = log.targets.get(put.tree, |id| self.env.tree(id))?;
        if !target.tree.backend().is_lsm() {
            return Ok(None);
        }
        // Overlaps with the write of the log.
        if Technique::PutPrefetch.is_on() {
            target.logged.memtable.prefetch_key(put.operation.key);
        }
        self.env.make_room(log, put.operation.payload_bytes())?;
        let sequence = log.applied + 1;
        check_sequences(sequence, 1)?;
        put.operation.number = sequence;
        self.write(log, &put, sequence, false)?;
        self.publish(log, sequence, std::iter::once(sync))?;
        self.record(&put, sequence)?;
        Ok(Some(sequence))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bolide_base::MAX_SEQUENCE;
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::*;
    use crate::batch::StoreBatch;
    use crate::options::{StoreOptions, TreeOptions};
    use crate::store::Store;
    use crate::store::StoreComponents;

    fn open(threads: usize) -> (Store, TreeId) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = threads;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        (store, tree)
    }

    #[test]
    fn puts_that_wait_use_the_queue() {
        let (store, tree) = open(0);
        let alone = |sync| store.inner.pipeline().put_alone(tree, b"key", b"value", sync).unwrap();
        assert_eq!((alone(SyncMode::None), alone(SyncMode::Batch)), (Some(1), Some(2)));
        assert_eq!(alone(SyncMode::Always), None, "other batches share a sync");
        let leader = store.inner.commits.try_lead(&store.inner.health);
        assert_eq!(alone(SyncMode::None), None, "another writer leads, and may do the maintenance");
        drop(leader);
        assert_eq!(store.put(tree, b"key", b"value", SyncMode::Always).unwrap(), 3);
        assert_eq!(store.published_sequence(), 3);
        let (store, tree) = open(1);
        assert_eq!(
            store.inner.pipeline().put_alone(tree, b"key", b"value", SyncMode::None).unwrap(),
            Some(1)
        );
        let log = store.inner.log.lock();
        let alone = store.inner.pipeline().put_alone(tree, b"key", b"value", SyncMode::None);
        assert_eq!(alone.unwrap(), None, "another writer holds the log");
        drop(log);
        store.close().unwrap();
    }

    #[test]
    fn the_last_sequence_number_is_the_same_for_puts_and_batches() {
        let last = |in_batch: bool| {
            let (store, tree) = open(0);
            store.inner.log.lock().applied = MAX_SEQUENCE - 1;
            let committed = if in_batch {
                let mut batch = StoreBatch::new();
                batch.put(tree, b"key", b"value").unwrap();
                store.commit(batch, None, SyncMode::None)
            } else {
                store.put(tree, b"key", b"value", SyncMode::None)
            };
            committed.unwrap_err().to_string()
        };
        assert_eq!(last(true), last(false));
    }

    #[test]
    fn the_target_cache_shrinks_after_a_batch_over_many_trees() {
        let (store, _) = open(0);
        let trees: Vec<_> =
            (0..60).map(|_| store.create_tree(TreeOptions::default(), b"").unwrap()).collect();
        let mut batch = StoreBatch::new();
        for tree in &trees[..20] {
            batch.put(*tree, b"key", b"value").unwrap();
        }
        store.commit(batch, None, SyncMode::None).unwrap();
        for tree in &trees {
            store.put(*tree, b"key", b"value", SyncMode::None).unwrap();
        }
        assert_eq!(store.inner.log.lock().targets.len(), 16);
    }

    #[test]
    fn bytes_of_writable_memtables_are_counted_as_they_grow() {
        let (store, tree) = open(0);
        let other = store.create_tree(TreeOptions::default(), b"").unwrap();
        let counted = || {
            let bytes =
                |tree| store.inner.trees.get(tree).unwrap().state_guard().active.memtable.memory_bytes();
            (store.inner.active_bytes.get(), bytes(tree) + bytes(other))
        };
        let empty = counted();
        for number in 0..20_000_u64 {
            let key = number.to_be_bytes();
            store.put(tree, &key, &[7; 50], SyncMode::None).unwrap();
            if number % 3 == 0 {
                let mut batch = StoreBatch::new();
                batch.put(tree, &key, b"again").unwrap();
                batch.put(other, &key, b"other").unwrap();
                store.commit(batch, None, SyncMode::None).unwrap();
            }
            let (active, bytes) = counted();
            assert_eq!(active - empty.0, bytes - empty.1, "after {number}");
        }
    }
}
