//! Any version edits with valid checksums: the database opens, or the open reports corruption.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use bolide_base::ErrorKind;
use bolide_lsm::file_name::FileName;
use bolide_lsm::record_log::format::put_record;
use bolide_lsm::record_log::{LogReader, LogRole};
use bolide_lsm::version::{OpenMode, VersionEdit, VersionSet, VersionSetOptions, describe_manifest};
use bolide_storage::{MemVfs, SimRuntime, Vfs};
use bolide_table::{BlockCache, FilePool};

fn open(vfs: &Arc<dyn Vfs>, mode: OpenMode) -> bolide_base::Result<VersionSet> {
    let dir = Path::new("/db");
    VersionSet::open(VersionSetOptions {
        vfs: Arc::clone(vfs),
        dir: dir.to_path_buf(),
        runtime: Arc::new(SimRuntime::new(1)),
        max_manifest_bytes: 1 << 20,
        mode,
        pool: FilePool::new(Arc::clone(vfs), dir, 4),
        cache: BlockCache::new(1 << 16),
        reset_tree: None,
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let decoded = VersionEdit::decode(input);
    if let Some(edit) = &decoded {
        assert_eq!(VersionEdit::decode(&edit.encode()).as_ref(), Some(edit));
    }
    let dir = Path::new("/db");
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    vfs.create_dir_all(dir).unwrap();
    let set = open(&vfs, OpenMode::CreateIfMissing).unwrap();
    let path = FileName::Manifest(set.manifest_number()).path(dir);
    drop(set);
    let file = vfs.open(&path).unwrap();
    let reader = LogReader::open(Arc::clone(&file), "manifest", LogRole::Manifest, None).unwrap();
    let identity = reader.header().identity;
    // Sstables that edits may refer to.
    for number in 1..16 {
        vfs.create(&FileName::Table(number).path(dir)).unwrap();
    }
    // The input is split into edits at each byte 0xfe, so that edits may depend on earlier ones.
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    for payload in input.split(|&byte| byte == 0xfe) {
        let offset = bytes.len() as u64;
        put_record(&mut bytes, offset, identity, offset, payload);
    }
    vfs.remove(&path).unwrap();
    vfs.create(&path).unwrap().append(&bytes).unwrap();
    match open(&vfs, OpenMode::ReadOnly) {
        Ok(set) => set.trees().iter().for_each(|tree| tree.version.check().unwrap()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error}"),
    }
    let mut text = String::new();
    describe_manifest(&*vfs, &path, &mut text).unwrap();
});
