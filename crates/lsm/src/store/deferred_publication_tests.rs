//! What happens between the edit of a flush and the moment when readers see it; and what such a flush keeps back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::TreeId;
use bolide_storage::{SimRuntime, SimVfs};
use bolide_table::BlockCache;

use super::super::log::Rotate;
use super::super::{Store, StoreComponents};
use super::Flushed;
use crate::StoreBatch;
use crate::compaction::partitioned::MAX_KEPT_BACK_PERCENT;
use crate::options::{Layout, StoreOptions, SyncMode, TreeOptions};
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
fn a_deleted_range_is_forgotten_once() {
    let (store, tree) = open(|_| {});
    write(&store, |batch| batch.put(tree, b"a", b"a").unwrap());
    store.flush().unwrap();
    let view = store.read_view();
    write(&store, |batch| batch.delete_range(tree, b"x", b"z").unwrap());
    store.flush().unwrap();
    let handle = store.inner.tree(tree).unwrap();
    let known = || handle.state().version.range_tombstones().len();
    assert_eq!(known(), 1);
    drop(view);
    // A flush has written its edit when the work of other trees ends, twice.
    handle.unshown.store(true, Ordering::Release);
    store.inner.forget_spent_ranges();
    store.inner.forget_spent_ranges();
    store.inner.check_writable().unwrap();
    assert_eq!(known(), 1);
    handle.unshown.store(false, Ordering::Release);
    store.inner.forget_spent_ranges();
    store.inner.check_writable().unwrap();
    assert_eq!(known(), 0);
}

#[test]
fn another_edit_does_not_show_what_a_flush_brought() {
    let (store, tree) = open(|_| {});
    write(&store, |batch| batch.put(tree, b"a", b"a").unwrap());
    store.flush().unwrap();
    let inner = &store.inner;
    let handle = inner.tree(tree).unwrap();
    let tables = || handle.state().version.tables().count();
    assert_eq!(tables(), 1);
    let mut edit = VersionEdit::new();
    for table in handle.state().version.tables() {
        edit.remove_table(tree, table.meta().number);
    }
    inner.apply_placed(&mut inner.versions.lock(), &handle, edit, &|_, _| {}).unwrap();
    handle.unshown.store(true, Ordering::Release);
    inner.install(&handle, VersionEdit::new(), &[]).unwrap();
    assert_eq!(tables(), 1);
    inner.show_flushed(&handle, Flushed { memtables: &[], retained: None }).unwrap();
    assert_eq!(tables(), 0);
    assert!(!handle.unshown.load(Ordering::Acquire));
}

/// How many views the manifest names after they were renewed; `meanwhile` a flush has taken out their sstables and is not shown yet.
fn views_after_a_renewal(meanwhile: bool) -> usize {
    let (store, tree) = open(|options| {
        options.background_threads = 1;
        options.start_paused = true;
    });
    let inner = &store.inner;
    let handle = inner.tree(tree).unwrap();
    for round in 0..3_u8 {
        for key in 0..200_u8 {
            write(&store, |batch| batch.put(tree, &[key, round], &[7; 30]).unwrap());
        }
        inner.rotate(&mut inner.log.lock(), Rotate::Everything).unwrap();
        inner.flush_into_partitions(&handle, true).unwrap();
    }
    assert!(inner.versions.lock().views(tree).is_empty(), "nobody has read");
    if meanwhile {
        let mut edit = VersionEdit::new();
        for table in handle.state().version.tables() {
            edit.remove_table(tree, table.meta().number);
        }
        let mut versions = inner.versions.lock();
        inner.apply_placed(&mut versions, &handle, edit, &|_, _| {}).unwrap();
        handle.unshown.store(true, Ordering::Release);
    }
    inner.renew_views(&handle).unwrap();
    inner.check_writable().unwrap();
    inner.versions.lock().views(tree).len()
}

#[test]
fn views_of_sstables_that_a_flush_took_out_meanwhile_are_given_up() {
    assert_eq!(views_after_a_renewal(false), 1);
    assert_eq!(views_after_a_renewal(true), 0);
}

#[test]
fn what_is_kept_back_stays_within_its_limit_where_one_key_is_written_again_and_again() {
    let memtable_bytes = 128 << 10;
    let (store, tree) = open(|options| {
        options.memtable_bytes = memtable_bytes;
        options.memory_compaction = false;
    });
    let mut most = 0;
    for number in 0..40_000_u64 {
        let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        if number > 10_000 {
            key[0] &= 0x3f;
        }
        write(&store, |batch| {
            batch.put(tree, &key, &[7; 60]).unwrap();
            // One in a partition to which little else is written.
            if number > 10_000 && number.is_multiple_of(10) {
                batch.put(tree, &[0xff; 9], &[7; 60]).unwrap();
            }
        });
        if number.is_multiple_of(100) {
            most = most.max(store.stats().trees.iter().map(|tree| tree.retained_bytes).max().unwrap());
        }
    }
    let limit = (memtable_bytes / 100 * MAX_KEPT_BACK_PERCENT) as u64;
    assert!(store.stats().writes.aborts > 0 && most <= limit, "{most} bytes of {limit}");
}
