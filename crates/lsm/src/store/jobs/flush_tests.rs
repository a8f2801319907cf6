use std::sync::atomic::AtomicUsize;

use bolide_base::SequenceNumber;
use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::BlockCache;

use super::*;
use crate::external_tree::{
    ExternalCheckpoint, ExternalFiles, ExternalRoot, ExternalTree, ExternalTreeStats, ExternalWrite,
};
use crate::options::{SyncMode, TreeOptions};
use crate::store::{Store, StoreComponents};

/// Counts its entries and its checkpoints.
#[derive(Debug, Default)]
struct Counting {
    entries: AtomicUsize,
    checkpoints: AtomicUsize,
}

impl ExternalTree for Counting {
    fn reserve(&self, _writes: usize, _bytes: usize) -> Result<bool> {
        Ok(false)
    }

    fn apply(&self, _write: ExternalWrite<'_>, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        self.entries.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn checkpoint(&self, _sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(EmptyRoot))
    }

    fn is_checkpoint_due(&self, _logged: u64) -> bool {
        true
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        false
    }

    fn collect_garbage(&self, _oldest: &dyn Fn() -> SequenceNumber) -> Result<()> {
        Ok(())
    }

    fn clear_through(&self) -> SequenceNumber {
        0
    }

    fn stats(&self) -> ExternalTreeStats {
        ExternalTreeStats::default()
    }
}

struct EmptyRoot;

impl ExternalCheckpoint for EmptyRoot {
    fn write(&mut self, _files: &ExternalFiles<'_>) -> Result<ExternalRoot> {
        Ok(ExternalRoot { files: Vec::new(), root: Vec::new() })
    }

    fn written_bytes(&self) -> u64 {
        0
    }

    fn installed(self: Box<Self>) {}
}

/// Otherwise the flush would release the log of entries that only the memory of the external tree has.
#[test]
fn a_flush_to_the_first_level_of_a_tree_that_became_external_is_its_checkpoint() {
    let mut options = StoreOptions::new("/db");
    options.background_threads = 0;
    options.start_paused = true;
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let id = store.create_tree(TreeOptions::default(), b"").unwrap();
    let tree = store.inner.trees.get(id).unwrap();
    store.put(id, b"a", b"", SyncMode::Always).unwrap();
    // A flush of the tree is picked here, and runs after the next lines.
    let external_tree = Arc::new(Counting::default());
    store.set_external_tree(id, external_tree.clone()).unwrap();
    assert_eq!(external_tree.entries.load(Ordering::Relaxed), 1);
    assert!(!tree.state().immutables.is_empty(), "its checkpoint is due");
    flush_to_first_level(&store.inner.flush_environment(), &tree).unwrap();
    assert_eq!(external_tree.checkpoints.load(Ordering::Relaxed), 1);
    assert!(tree.state().immutables.is_empty());
}

/// A tree that is dropped while its files are written does not keep the flushes of other trees out of the manifest.
#[test]
fn a_dropped_tree_leaves_a_shared_installation() {
    let mut options = StoreOptions::new("/db");
    options.background_threads = 0;
    options.start_paused = true;
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let ids = [(); 3].map(|()| store.create_tree(TreeOptions::default(), b"").unwrap());
    for id in ids {
        store.put(id, b"key", b"value", SyncMode::Always).unwrap();
    }
    let trees = ids.map(|id| store.inner.trees.get(id).unwrap());
    trees.iter().for_each(|tree| tree.replace_state(|state| state.rotated(1 << 20)));
    let written: Vec<_> = trees
        .iter()
        .map(|tree| write_first_level(&store.inner.flush_environment(), tree).unwrap().unwrap())
        .collect();
    let files: Vec<_> = written.iter().map(|flush| flush.files[0]).collect();
    store.drop_tree(ids[1]).unwrap();
    let error = install_flushes(&store.inner.flush_environment(), written).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(store.inner.files.tables.obsolete.take(), [files[1]]);
    for tree in &trees {
        let is_dropped = tree.id == ids[1];
        assert_eq!(tree.state().version.tables().count(), usize::from(!is_dropped));
        assert_eq!(tree.state().immutables.is_empty(), !is_dropped);
    }
}
