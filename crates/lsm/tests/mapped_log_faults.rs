//! A failed access to a mapped log poisons the store and loses no acknowledged write. Without `map_logs` there is no writable
//! mapping.
#![cfg(not(bolide_shuttle))]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, TreeId};
use bolide_lsm::record_log::format::HEADER_BYTES;
use bolide_lsm::{Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{CrashMode, Fault, FaultPlan, SimRuntime, SimVfs};
use bolide_table::BlockCache;

const WRITES: u64 = 30;

fn open(vfs: &SimVfs) -> (Store, TreeId) {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 4 << 10;
    options.background_threads = 0;
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 16),
    };
    let store = Store::open(options, components).unwrap();
    let tree = match store.trees().first() {
        Some(tree) => tree.id,
        None => store.create_tree(TreeOptions::default(), b"").unwrap(),
    };
    (store, tree)
}

/// Puts a value of several hundred bytes under the key `number`, every other time in a batch.
fn write(store: &Store, tree: TreeId, number: u64, sync: SyncMode) -> bolide_base::Result<u64> {
    let (key, value) = (number.to_be_bytes(), vec![number as u8; 100 + 37 * number as usize % 500]);
    if number.is_multiple_of(2) {
        return store.put(tree, &key, &value, sync);
    }
    let mut batch = StoreBatch::new();
    batch.put(tree, &key, &value)?;
    store.commit(batch, None, sync)
}

#[test]
fn a_failed_access_poisons_the_store_and_retains_acknowledged_writes() {
    let (mut hit, mut poisoned) = (0, 0);
    for at in 1.. {
        let vfs = SimVfs::new(at);
        vfs.map_logs();
        let (store, tree) = open(&vfs);
        vfs.set_fault(Some(FaultPlan { fault: Fault::MappedAccess, at, sticky: false }));
        let (mut acknowledged, mut synced) = (BTreeSet::new(), BTreeSet::new());
        let (mut failed, mut in_doubt) = (None, None);
        for number in 0..WRITES {
            let sync = if number % 5 == 4 { SyncMode::Always } else { SyncMode::None };
            let Err(error) = write(&store, tree, number, sync).map(|_| acknowledged.insert(number)) else {
                if sync == SyncMode::Always {
                    synced.clone_from(&acknowledged);
                }
                continue;
            };
            let Some((path, has_records)) = &failed else {
                assert_eq!(error.kind(), ErrorKind::Io, "access {at}: {error:?}");
                let path = path_of(&error);
                // A segment with only a header is replaced by another one.
                let has_records = vfs.contents(&path).is_ok_and(|bytes| bytes.len() > HEADER_BYTES);
                (failed, in_doubt) = (Some((path, has_records)), Some(number));
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::Poisoned, "access {at}, {path:?}, {has_records}: {error:?}");
        }
        let Some((path, has_records)) = failed else {
            assert_eq!(vfs.counters().faults, 0);
            break;
        };
        hit += 1;
        let is_writable = store.put(tree, b"~", b"", SyncMode::None).is_ok();
        assert!(!(is_writable && has_records), "access {at}: {path:?} is still written");
        poisoned += u64::from(!is_writable);
        // A poisoned store writes nothing any more, also to other files.
        let created = store.create_tree(TreeOptions::default(), b"");
        match created {
            Ok(_) => assert!(is_writable, "access {at}: a tree is created after {path:?} failed"),
            Err(error) => {
                assert!(!is_writable && error.kind() == ErrorKind::Poisoned, "access {at}: {error:?}")
            }
        }
        let get = |store: &Store, number: u64| store.get_latest(tree, &number.to_be_bytes()).unwrap();
        acknowledged
            .iter()
            .for_each(|&number| assert!(get(&store, number).is_some(), "access {at}: {number}"));
        // A kill retains acknowledged writes, a power cut synced ones.
        let copies = [
            (vfs.clone_disk(), &acknowledged),
            (vfs.crash(CrashMode::None), &synced),
            (vfs.crash(CrashMode::Random), &synced),
        ];
        for (copy, retained) in copies {
            let (store, _) = open(&copy);
            for &number in retained {
                let value = get(&store, number).unwrap_or_else(|| panic!("access {at}: {number} is lost"));
                assert_eq!(value.1[0], number as u8);
            }
            let may_be = |number: &u64| acknowledged.contains(number) || in_doubt == Some(*number);
            assert!((0..WRITES).filter(|number| !may_be(number)).all(|number| get(&store, number).is_none()));
            write(&store, tree, WRITES, SyncMode::Always).unwrap();
        }
    }
    assert!(hit >= WRITES && poisoned >= WRITES, "{hit} accesses, {poisoned} poisoned stores");
}

/// The file of `append to PATH: ...`.
fn path_of(error: &Error) -> PathBuf {
    let (_, rest) = error.message().split_once("append to ").unwrap();
    PathBuf::from(rest.split_once(':').unwrap().0)
}

#[test]
fn a_store_has_no_writable_mapping_by_default() {
    let vfs = SimVfs::new(1);
    let (store, tree) = open(&vfs);
    (0..WRITES).for_each(|number| _ = write(&store, tree, number, SyncMode::None).unwrap());
    store.flush().unwrap();
    store.compact(tree).unwrap();
    drop(store);
    drop(open(&vfs));
    let counters = vfs.counters();
    assert_eq!((counters.writable_mappings, counters.mapped_appends), (0, 0));
    vfs.map_logs();
    drop(open(&vfs));
    assert!(vfs.counters().writable_mappings > 0);
}
