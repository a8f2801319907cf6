//! With default components no file of a database is mapped for writing: no access of the store can end the process.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "the test reads the mappings of the process")]

use std::path::Path;
use std::sync::Arc;

use bolide::storage::DiskVfs;
use bolide::{CollectionOptions, Components, Db, Options, Query, SyncMode};

/// The lines of `/proc/self/maps` of writable shared mappings of files in `dir`.
fn writable_mappings(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // Address, permissions, offset, device, inode, path.
    let is_writable = |line: &&str| {
        let permissions = line.split_whitespace().nth(1).unwrap_or_default();
        line.contains(dir) && permissions.contains('w') && permissions.contains('s')
    };
    maps.lines().filter(is_writable).map(str::to_owned).collect()
}

/// Fills a database with indexes of all kinds, and reads the mappings repeatedly.
fn work(dir: &Path, components: Components) -> Vec<String> {
    let mut found = Vec::new();
    let options = || Options::default().memtable_bytes(64 << 10).sync(SyncMode::None);
    let db = Db::open_with(dir, options(), components.clone()).unwrap();
    let mut declared = CollectionOptions::json();
    for (number, kind) in ["composite", "lazy", "eager", "embedded", "next", "ps-tree"].iter().enumerate() {
        declared = declared.index(format!("ix{number}=a:{kind}").parse().unwrap());
    }
    let docs = db.create_collection("docs", declared).unwrap();
    found.extend(writable_mappings(dir));
    for number in 0..2_000_u64 {
        let record = format!("{{\"a\":{},\"pad\":\"{:100}\"}}", number % 7, number);
        docs.put(&number.to_be_bytes(), record.as_bytes()).unwrap();
        if number.is_multiple_of(500) {
            found.extend(writable_mappings(dir));
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    assert!(!docs.find(&Query::new().eq("a", 3)).unwrap().is_empty());
    found.extend(writable_mappings(dir));
    drop(docs);
    db.close().unwrap();
    let db = Db::open_with(dir, options(), components).unwrap();
    found.extend(writable_mappings(dir));
    db.close().unwrap();
    found
}

#[test]
fn default_components_map_no_file_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let found = work(&dir.path().join("db"), Components::system());
    assert!(found.is_empty(), "{found:?}");
}

/// The same check detects mappings of logs if the program enables them, on a file system that supports them.
#[test]
fn mapped_logs_are_found() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: there is no directory /dev/shm");
        return;
    };
    let components = Components::system().vfs(Arc::new(DiskVfs::new().map_logs()));
    let found = work(&dir.path().join("db"), components);
    assert!(found.iter().any(|line| line.contains(".wal")), "{found:?}");
    assert!(found.iter().all(|line| line.contains(".wal")), "{found:?}");
}
