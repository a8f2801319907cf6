use std::sync::Arc;

use bolide_storage::{SimRuntime, SimVfs};
use bolide_table::BlockCache;

use super::*;
use crate::batch::StoreBatch;
use crate::layout::Layout;
use crate::options::{StoreOptions, SyncMode, TreeOptions};
use crate::store::StoreComponents;
use crate::store::jobs::flush::pick_flush;

/// A tree whose flushes take as long as it takes to fill its next memtables always has some that wait.
#[test]
fn a_tree_with_a_permanent_backlog_does_not_starve_the_flushes_of_other_trees() {
    let mut options = StoreOptions::new("/db");
    options.background_threads = 0;
    options.memtable_bytes = 64 << 10;
    // Memtables wait without a running thread.
    options.start_paused = true;
    let components = StoreComponents {
        vfs: Arc::new(SimVfs::new(1)),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let tree_of = |layout| {
        let options = TreeOptions { layout, ..TreeOptions::default() };
        store.create_tree(options, b"").unwrap()
    };
    let (busy, quiet) = (tree_of(Layout::Partitioned), tree_of(Layout::Leveled));
    let put = |tree, key: &[u8]| {
        let mut batch = StoreBatch::new();
        batch.put(tree, key, &[7; 2_000]).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap();
    };
    put(quiet, b"key");
    let inner = &store.inner;
    let waiting = |tree| inner.trees.get(tree).unwrap().state_guard().pending_flushes();
    let (mut flushes, mut quiet_flushes, mut max_segments) = (0, 0, 0);
    for number in 0..4_000_u32 {
        put(busy, &number.to_be_bytes());
        // As if the only idle thread finished a flush just when the next two memtables are full.
        if waiting(busy) < 2 {
            continue;
        }
        let job = pick_flush(inner.flush_environment(), &mut inner.work.lock()).unwrap();
        flushes += 1;
        quiet_flushes += u64::from(job.merged_tree().is_some_and(|tree| tree.id == quiet));
        inner.run_job(&*job);
        max_segments = max_segments.max(store.stats().old_log_segments);
    }
    assert!(flushes > 30 && quiet_flushes == 1, "{quiet_flushes} of {flushes}");
    assert!(max_segments <= 8, "{max_segments}");
}
