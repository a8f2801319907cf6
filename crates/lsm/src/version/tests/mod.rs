//! Shared parts of the tests of the version set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{ErrorKind, Result, TreeId};
use bolide_storage::{CrashMode, Fault, FaultPlan, SimRng, SimRuntime, SimVfs, Vfs};
use bolide_table::{BlockCache, FilePool};

use super::table_meta::tests::meta;
use super::*;
use crate::file_name::FileName;
use crate::wal::LogEnd;

mod crashes;
mod damage;
mod edits;

/// Small enough that histories replace their manifest several times.
const MANIFEST_BYTES: u64 = 400;

fn dir() -> &'static Path {
    Path::new("/db")
}

fn new_disk(seed: u64) -> SimVfs {
    let vfs = SimVfs::new(seed);
    vfs.create_dir_all(dir()).unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    vfs
}

fn open(vfs: &SimVfs, mode: OpenMode) -> Result<VersionSet> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    VersionSet::open(VersionSetOptions {
        pool: FilePool::new(Arc::clone(&vfs), dir(), 8),
        vfs,
        dir: dir().to_path_buf(),
        runtime: Arc::new(SimRuntime::new(7)),
        max_manifest_bytes: MANIFEST_BYTES,
        mode,
        cache: BlockCache::new(1 << 16),
        reset_tree: None,
    })
}

/// The durable state of a set as text.
fn state_of(set: &VersionSet) -> String {
    let mut out = format!("floor {} segments {:?} ", set.wal_floor(), set.wal_segments());
    writeln!(out, "tails {:?} next tree {}", set.cut_tails(), set.next_tree_id()).unwrap();
    for tree in set.trees() {
        let (id, version) = (tree.id, &tree.version);
        version.check().unwrap();
        let floor = set.tree_log_floor(id);
        writeln!(out, "tree {id} {:?} {:?} floor {floor}", tree.options, tree.descriptor).unwrap();
        for table in version.runs().iter().flat_map(|run| run.tables()) {
            writeln!(out, "  {:?}", table.meta()).unwrap();
        }
        for run in version.runs() {
            let numbers: Vec<_> = run.tables().iter().map(|table| table.meta().number).collect();
            writeln!(out, "  level {} run {}: {numbers:?}", run.level(), run.id()).unwrap();
        }
        let mut tombstones: Vec<_> = version.range_tombstones().iter().collect();
        tombstones.sort();
        writeln!(out, "  {tombstones:?}").unwrap();
        let boundaries: Vec<_> = (0..LEVELS).map(|level| version.boundaries(level)).collect();
        writeln!(out, "  {boundaries:?} {:?}", set.retained(id)).unwrap();
    }
    out
}

/// Writes a file that stands for an sstable: the set itself never opens it.
fn write_table(vfs: &SimVfs, number: u64) -> Result<()> {
    let file = vfs.create(&FileName::Table(number).path(dir()))?;
    file.append(b"sstable")?;
    file.sync()?;
    vfs.sync_dir(dir())
}

/// A small database and its states before and after the last edit: two trees, some sstables, a deleted range.
fn small_database(close: bool) -> (SimVfs, String, String) {
    let vfs = new_disk(7);
    let mut set = open(&vfs, OpenMode::CreateIfMissing).unwrap();
    let mut before = String::new();
    for tree in 1..=2 {
        let number = set.new_file_number();
        write_table(&vfs, number).unwrap();
        let mut edit = VersionEdit::new();
        edit.create_tree(tree, vec![1], b"collection".to_vec());
        edit.add_tables(tree, 0, number, vec![meta(number, "apple", "pear")]);
        let tombstone = RangeTombstone { start: b"b".to_vec(), end: b"c".to_vec(), sequence: 3 };
        edit.add_range_tombstone(tree, tombstone);
        before = state_of(&set);
        set.apply(edit).unwrap();
    }
    let after = state_of(&set);
    if close {
        set.close(None).unwrap();
        assert_eq!(set.apply(VersionEdit::new()).unwrap_err().kind(), ErrorKind::Closed);
    }
    (vfs, before, after)
}

fn metadata_files(vfs: &SimVfs) -> Vec<std::path::PathBuf> {
    let is_metadata = |path: &std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
        matches!(name, Some(FileName::Current | FileName::Manifest(_)))
    };
    vfs.files().into_iter().filter(is_metadata).collect()
}
