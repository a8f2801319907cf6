//! States between the edit of a flush and its publication; limits of retained entries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::TreeId;
use bolide_storage::{SimRuntime, SimVfs};
use bolide_table::BlockCache;

use super::FlushedMemtables;
use crate::StoreBatch;
use crate::layout::Layout;
use crate::layout::flush_plan::MAX_RETAINED_PERCENT;
use crate::options::{StoreOptions, SyncMode, TreeOptions};
use crate::store::commit::log::Rotate;
use crate::store::commit::segments::rotate;
use crate::store::jobs::clean_up;
use crate::store::jobs::deferred_publication::publish_flush;
use crate::store::jobs::install::{apply_placed, install};
use crate::store::jobs::partition_flush::flush_into_partitions;
use crate::store::jobs::sorted_view::rebuild_views;
use crate::store::{Store, StoreComponents};
use crate::version::VersionEdit;

fn open(change: impl FnOnce(&mut StoreOptions)) -> (Store, TreeId) {
    let mut options = StoreOptions::new("/db");
    options.background_threads = 0;
    change(&mut options);
    let components = StoreComponents {
        vfs: Arc::new(SimVfs::new(1)),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let mut options = TreeOptions { layout: Layout::Partitioned, ..TreeOptions::default() };
    options.target_file_bytes = 64 << 10;
    let tree = store.create_tree(options, b"").unwrap();
    (store, tree)
}

fn write(store: &Store, change: impl FnOnce(&mut StoreBatch)) {
    let mut batch = StoreBatch::new();
    change(&mut batch);
    store.commit(batch, None, SyncMode::None).unwrap();
}

#[test]
fn a_range_tombstone_is_removed_once() {
    let (store, tree) = open(|_| {});
    write(&store, |batch| batch.put(tree, b"a", b"a").unwrap());
    store.flush().unwrap();
    let view = store.read_view();
    write(&store, |batch| batch.delete_range(tree, b"x", b"z").unwrap());
    store.flush().unwrap();
    let handle = store.inner.trees.get(tree).unwrap();
    let known = || handle.state().version.range_tombstones().len();
    assert_eq!(known(), 1);
    drop(view);
    // A flush has written its edit when the work of other trees ends, twice.
    handle.publication_pending.store(true, Ordering::Release);
    clean_up(&store.inner);
    clean_up(&store.inner);
    store.inner.health.check().unwrap();
    assert_eq!(known(), 1);
    handle.publication_pending.store(false, Ordering::Release);
    clean_up(&store.inner);
    store.inner.health.check().unwrap();
    assert_eq!(known(), 0);
}

#[test]
fn another_edit_does_not_publish_a_pending_flush() {
    let (store, tree) = open(|_| {});
    write(&store, |batch| batch.put(tree, b"a", b"a").unwrap());
    store.flush().unwrap();
    let inner = &store.inner;
    let handle = inner.trees.get(tree).unwrap();
    let tables = || handle.state().version.tables().count();
    assert_eq!(tables(), 1);
    let mut edit = VersionEdit::new();
    for table in handle.state().version.tables() {
        edit.remove_table(tree, table.meta().number);
    }
    apply_placed(inner.install_environment(), &mut inner.files.versions.lock(), &handle, edit, &|_, _| {})
        .unwrap();
    handle.publication_pending.store(true, Ordering::Release);
    install(inner.install_environment(), &handle, VersionEdit::new(), &[]).unwrap();
    assert_eq!(tables(), 1);
    publish_flush(&inner.flush_environment(), &handle, FlushedMemtables { memtables: &[], retained: None })
        .unwrap();
    assert_eq!(tables(), 0);
    assert!(!handle.publication_pending.load(Ordering::Acquire));
}

/// The number of views in the manifest after a rebuild. With `has_pending_flush`, an unpublished flush has removed
/// their sstables.
fn views_after_a_rebuild(has_pending_flush: bool) -> usize {
    let (store, tree) = open(|options| {
        options.background_threads = 1;
        options.start_paused = true;
    });
    let inner = &store.inner;
    let handle = inner.trees.get(tree).unwrap();
    for round in 0..3_u8 {
        for key in 0..200_u8 {
            write(&store, |batch| batch.put(tree, &[key, round], &[7; 30]).unwrap());
        }
        rotate(inner, &mut inner.log.lock(), Rotate::All).unwrap();
        flush_into_partitions(&inner.flush_environment(), &handle, true).unwrap();
    }
    assert!(inner.files.versions.lock().views(tree).is_empty(), "no reader demands views");
    if has_pending_flush {
        let mut edit = VersionEdit::new();
        for table in handle.state().version.tables() {
            edit.remove_table(tree, table.meta().number);
        }
        let mut versions = inner.files.versions.lock();
        apply_placed(inner.install_environment(), &mut versions, &handle, edit, &|_, _| {}).unwrap();
        handle.publication_pending.store(true, Ordering::Release);
    }
    rebuild_views(inner.table_environment().views(), &handle).unwrap();
    inner.health.check().unwrap();
    inner.files.versions.lock().views(tree).len()
}

#[test]
fn views_of_sstables_that_a_pending_flush_removes_are_discarded() {
    assert_eq!(views_after_a_rebuild(false), 1);
    assert_eq!(views_after_a_rebuild(true), 0);
}

#[test]
fn retained_entries_stay_within_their_limit_under_overwrites_of_one_key() {
    let memtable_bytes = 128 << 10;
    let (store, tree) = open(|options| {
        options.memtable_bytes = memtable_bytes;
        options.memory_compaction = false;
    });
    let mut max_retained = 0;
    for number in 0..40_000_u64 {
        let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        if number > 10_000 {
            key[0] &= 0x3f;
        }
        write(&store, |batch| {
            batch.put(tree, &key, &[7; 60]).unwrap();
            // Every tenth write goes to a partition with few other writes.
            if number > 10_000 && number.is_multiple_of(10) {
                batch.put(tree, &[0xff; 9], &[7; 60]).unwrap();
            }
        });
        if number.is_multiple_of(100) {
            max_retained =
                max_retained.max(store.stats().trees.iter().map(|tree| tree.retained_bytes).max().unwrap());
        }
    }
    let limit = (memtable_bytes / 100 * MAX_RETAINED_PERCENT) as u64;
    assert!(store.stats().writes.aborts > 0 && max_retained <= limit, "{max_retained} bytes of {limit}");
}

#[test]
fn a_cursor_over_recent_entries_demands_the_views() {
    let (store, tree) = open(|_| {});
    write(&store, |batch| batch.put(tree, b"a", b"a").unwrap());
    store.flush().unwrap();
    let handle = store.inner.trees.get(tree).unwrap();
    handle.state().views.begin_rebuild();
    store.read_view().tree(tree).unwrap().cursor_since(1).unwrap();
    assert!(handle.state().views.are_demanded());
}
