//! Damaged and missing files, and read-only opening.

use super::*;

/// Opens a damaged copy and returns its state; `None` if that was rejected with the name of the file.
fn open_damaged(vfs: &SimVfs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Option<String> {
    let damaged = vfs.clone_disk();
    damaged.damage(path, change).unwrap();
    match open(&damaged, OpenMode::ReadOnly) {
        Ok(set) => Some(state_of(&set)),
        Err(error) => {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(error.message().contains(name), "{error}");
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error}");
            None
        }
    }
}

#[test]
fn every_damage_to_a_closed_database_is_found() {
    let (vfs, _, _) = small_database(true);
    let files = metadata_files(&vfs);
    assert_eq!(files.len(), 2);
    for path in files {
        let len = vfs.contents(&path).unwrap().len();
        for bit in 0..len * 8 {
            assert_eq!(open_damaged(&vfs, &path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)), None);
        }
        for cut in 0..len {
            assert_eq!(open_damaged(&vfs, &path, |bytes| bytes.truncate(cut)), None, "{cut}");
            assert_eq!(open_damaged(&vfs, &path, |bytes| bytes[cut..].fill(0xee)), None);
        }
    }
}

#[test]
fn in_an_open_database_only_the_last_edit_may_be_torn() {
    let (vfs, before, after) = small_database(false);
    let manifest = metadata_files(&vfs).pop().unwrap();
    let len = vfs.contents(&manifest).unwrap().len();
    // After the end of the process the marker exists: nothing below it is torn.
    for bit in 0..len * 8 {
        assert_eq!(open_damaged(&vfs, &manifest, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)), None);
    }
    vfs.remove(&FileName::Marker.path(dir())).unwrap();
    let mut torn = BTreeSet::new();
    for bit in 0..len * 8 {
        match open_damaged(&vfs, &manifest, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)) {
            Some(state) => {
                assert_eq!(state, before);
                torn.insert(bit / 8);
            }
            None => assert!(torn.is_empty(), "the last edit alone may be torn"),
        }
    }
    let last = *torn.first().unwrap();
    assert_eq!(torn.len(), len - last);
    for cut in last..len {
        assert_eq!(open_damaged(&vfs, &manifest, |bytes| bytes.truncate(cut)), Some(before.clone()));
    }
    assert_eq!(state_of(&open(&vfs, OpenMode::ReadOnly).unwrap()), after);
}

#[test]
fn missing_files_are_named() {
    let (vfs, _, _) = small_database(true);
    // The marker is optional.
    vfs.remove(&FileName::Marker.path(dir())).unwrap();
    for path in vfs.files() {
        let copy = vfs.clone_disk();
        copy.remove(&path).unwrap();
        let error = open(&copy, OpenMode::CreateIfMissing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.message().contains(name), "{error}");
    }
    let error = open(&new_disk(1), OpenMode::Existing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(open(&new_disk(1), OpenMode::ReadOnly).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_read_only_opening_changes_nothing() {
    for close in [true, false] {
        let (vfs, _, after) = small_database(close);
        let earlier = vfs.counters();
        let mut set = open(&vfs, OpenMode::ReadOnly).unwrap();
        assert_eq!(state_of(&set), after);
        assert_eq!(set.apply(VersionEdit::new()).unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(set.close(None).unwrap_err().kind(), ErrorKind::ReadOnly);
        drop(set);
        let later = vfs.counters();
        assert_eq!((later.appends, later.sync_points), (earlier.appends, earlier.sync_points));
        assert_eq!(later.name_changes, earlier.name_changes);
    }
}

#[test]
fn descriptions_name_the_content() {
    let (vfs, _, _) = small_database(true);
    let files = metadata_files(&vfs);
    let mut text = String::new();
    describe_current(&vfs, &files[0], &mut text).unwrap();
    assert!(text.contains("closed cleanly") && text.contains("manifest 1 with tag "), "{text}");
    text.clear();
    describe_manifest(&vfs, &files[1], &mut text).unwrap();
    assert!(text.contains("\"apple\"..=\"pear\"") && text.contains("delete \"b\"..\"c\" at 3"), "{text}");
    vfs.damage(&files[1], |bytes| *bytes.last_mut().unwrap() ^= 1).unwrap();
    text.clear();
    describe_manifest(&vfs, &files[1], &mut text).unwrap();
    assert!(text.contains("torn tail"), "{text}");
}
