//! One put where nobody else writes: the shortest way into the log and the memtable.
//!
//! Most writes are single puts, and most find the log free. They need no queue, no leader and no batch that is put together and
//! taken apart again: what a batch of the put would be goes to the log in its parts, and the memtable takes key and value as
//! they are. The log gets the same bytes either way.

use bolide_base::{EntryKind, Error, MAX_SEQUENCE, Result, SequenceNumber, Trailer, TreeId};

use super::log::LogState;
use super::{Store, StoreInner};
use crate::batch::StoreBatch;
use crate::options::SyncMode;
use crate::record_log::Shaped;

impl Store {
    /// Commits a batch that puts `value` under `key` of `tree`, and returns its sequence number.
    ///
    /// # Errors
    /// `LimitExceeded` for a key or a value over its limit; else as [`commit`](Self::commit).
    pub fn put(&self, tree: TreeId, key: &[u8], value: &[u8], sync: SyncMode) -> Result<SequenceNumber> {
        if let Some(sequence) = self.inner.put_alone(tree, key, value, sync)? {
            return Ok(sequence);
        }
        let mut batch = StoreBatch::with_capacity(key.len() + value.len() + 32);
        batch.put(tree, key, value)?;
        self.inner.commit(batch, None, sync)
    }
}

impl StoreInner {
    /// Commits one put if nobody else writes at the moment; `None` where it has to queue up, or needs more than its entry in a
    /// memtable. Who is to wait, for the disk or for background work, always queues up: others go
    /// along.
    #[inline]
    fn put_alone(
        &self,
        tree: TreeId,
        key: &[u8],
        value: &[u8],
        sync: SyncMode,
    ) -> Result<Option<SequenceNumber>> {
        let Some(mut shaped) = Shaped::of_put(0, tree, key, value) else { return Ok(None) };
        if sync == SyncMode::Always || self.throttles() {
            return Ok(None);
        }
        let bytes = shaped.payload_bytes();
        let Some(mut log) = self.log.try_lock() else { return Ok(None) };
        self.check_writable()?;
        if self.target(&mut log.targets, tree)?.tree.keeper.get().is_some() {
            return Ok(None);
        }
        self.make_room(&mut log, bytes)?;
        let sequence = log.applied + 1;
        if sequence > MAX_SEQUENCE {
            return Err(Error::limit_exceeded("the sequence number", sequence, MAX_SEQUENCE));
        }
        shaped.number = sequence;
        self.log_and_insert(&mut log, tree, &shaped, bytes)?;
        log.applied = sequence;
        self.end_commit(&mut log, sequence, std::iter::once(sync))?;
        drop(log);
        if self.options.background_threads == 0 {
            self.run_pending_work();
        }
        Ok(Some(sequence))
    }

    /// Appends a put, whose batch has so many bytes, to the log, and inserts it into its memtable.
    #[inline]
    fn log_and_insert(
        &self,
        log: &mut LogState,
        tree: TreeId,
        shaped: &Shaped<'_>,
        bytes: usize,
    ) -> Result<()> {
        let log_bytes = log.len();
        log.append_shaped(shaped).inspect_err(|error| self.poison_after_append(error))?;
        self.counters.add_log_bytes(log.len() - log_bytes);
        self.counters.add_batch_bytes(bytes as u64);
        let number = log.number();
        let memtable = &self.written_target(&mut log.targets, number, tree)?.logged.memtable;
        memtable.insert(shaped.key, Trailer::new(shaped.number, EntryKind::Put), shaped.value);
        self.count_growth(&mut log.targets);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bolide_storage::{MemVfs, SimRuntime};
    use bolide_table::BlockCache;

    use super::super::StoreComponents;
    use super::*;
    use crate::options::{StoreOptions, TreeOptions};

    fn open(threads: usize) -> (Store, TreeId) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = threads;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SimRuntime::new(1)),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        (store, tree)
    }

    #[test]
    fn who_has_to_wait_queues_up() {
        let (store, tree) = open(0);
        let alone = |sync| store.inner.put_alone(tree, b"key", b"value", sync).unwrap();
        assert_eq!((alone(SyncMode::None), alone(SyncMode::Batch)), (Some(1), Some(2)));
        assert_eq!(alone(SyncMode::Always), None, "others may go along with a sync");
        let log = store.inner.log.lock();
        assert_eq!(alone(SyncMode::None), None, "somebody else writes");
        drop(log);
        assert_eq!(store.put(tree, b"key", b"value", SyncMode::Always).unwrap(), 3);
        assert_eq!(store.published_sequence(), 3);
    }

    #[test]
    fn bytes_of_writable_memtables_are_counted_as_they_grow() {
        let (store, tree) = open(0);
        let other = store.create_tree(TreeOptions::default(), b"").unwrap();
        let counted = || {
            let bytes = |tree| store.inner.tree(tree).unwrap().state_guard().active.memtable.memory_bytes();
            (store.inner.active_bytes(), bytes(tree) + bytes(other))
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
