//! One suite that every file system passes: the disk, the memory and the simulated one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::ErrorKind;
use bolide_storage::{DiskVfs, File, MemVfs, SimVfs, Vfs};

/// A file system, and an empty directory of it to work in.
struct Place {
    vfs: Arc<dyn Vfs>,
    root: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Arc<dyn File> {
        let file = self.vfs.create(&self.path(name)).unwrap();
        file.append(bytes).unwrap();
        file
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let file = self.vfs.open(&self.path(name)).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        bytes
    }
}

fn places() -> Vec<Place> {
    let dir = tempfile::tempdir().unwrap();
    let mem = MemVfs::new();
    let sim = SimVfs::new(1);
    mem.create_dir_all(Path::new("/data/db")).unwrap();
    sim.create_dir_all(Path::new("/data/db")).unwrap();
    vec![
        Place { vfs: Arc::new(DiskVfs::new()), root: dir.path().to_path_buf(), _guard: Some(dir) },
        Place { vfs: Arc::new(mem), root: PathBuf::from("/data/db"), _guard: None },
        Place { vfs: Arc::new(sim), root: PathBuf::from("/data/db"), _guard: None },
    ]
}

fn kind<T>(result: bolide_base::Result<T>) -> ErrorKind {
    result.err().expect("the call succeeded").kind()
}

#[test]
fn appended_bytes_are_read_back() {
    for place in places() {
        let file = place.write("a", b"hello ");
        file.append(b"").unwrap();
        file.append(b"world").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 11);
        assert!(!file.is_empty().unwrap());
        assert_eq!(place.read("a"), b"hello world");

        let mut buf = [0; 5];
        assert_eq!(file.read_at(6, &mut buf).unwrap(), 5);
        assert_eq!(&buf, b"world");
        assert_eq!(file.read_at(9, &mut buf).unwrap(), 2);
        assert_eq!(file.read_at(11, &mut buf).unwrap(), 0);
        assert_eq!(file.read_at(1 << 40, &mut buf).unwrap(), 0);
        assert_eq!(file.read_at(0, &mut []).unwrap(), 0);
    }
}

#[test]
fn an_early_end_of_file_says_where() {
    for place in places() {
        let file = place.write("a", b"12345");
        let error = file.read_exact_at(3, &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let message = error.to_string();
        assert!(message.contains("2 of 4 bytes at offset 3"), "{message}");
        assert!(message.contains('a'), "{message}");
    }
}

#[test]
fn a_reader_sees_what_another_handle_appends() {
    for place in places() {
        let writer = place.write("a", b"one");
        let reader = place.vfs.open(&place.path("a")).unwrap();
        writer.append(b"two").unwrap();
        assert_eq!(reader.len().unwrap(), 6);
        let mut buf = [0; 3];
        reader.read_exact_at(3, &mut buf).unwrap();
        assert_eq!(&buf, b"two");
        reader.sync().unwrap();
        assert_eq!(kind(reader.append(b"three")), ErrorKind::ReadOnly);
        assert_eq!(reader.len().unwrap(), 6);
    }
}

#[test]
fn creating_is_exclusive_and_needs_the_directory() {
    for place in places() {
        place.write("a", b"first");
        assert_eq!(kind(place.vfs.create(&place.path("a"))), ErrorKind::Conflict);
        assert_eq!(place.read("a"), b"first");
        assert_eq!(kind(place.vfs.create(&place.path("missing/a"))), ErrorKind::NotFound);
        place.vfs.create_dir_all(&place.path("dir")).unwrap();
        assert_eq!(kind(place.vfs.create(&place.path("dir"))), ErrorKind::Conflict);
    }
}

#[test]
fn what_is_missing_is_not_found() {
    for place in places() {
        assert_eq!(kind(place.vfs.open(&place.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.remove(&place.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.rename(&place.path("x"), &place.path("y"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.hard_link(&place.path("x"), &place.path("y"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.list(&place.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.sync_dir(&place.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.remove_dir(&place.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(place.vfs.lock(&place.path("x/lock"))), ErrorKind::NotFound);
        assert!(!place.vfs.exists(&place.path("x")).unwrap());
        assert!(place.vfs.list(&place.root).unwrap().is_empty());
    }
}

#[test]
fn a_directory_is_not_a_file() {
    for place in places() {
        place.vfs.create_dir_all(&place.path("dir")).unwrap();
        place.vfs.open(&place.path("dir")).unwrap_err();
        place.vfs.remove(&place.path("dir")).unwrap_err();
        place.write("a", b"file");
        place.vfs.rename(&place.path("a"), &place.path("dir")).unwrap_err();
        place.vfs.create_dir_all(&place.path("a/b")).unwrap_err();
        assert_eq!(place.vfs.list(&place.root).unwrap(), ["a", "dir"]);
    }
}

#[test]
fn a_rename_replaces_its_target() {
    for place in places() {
        let old = place.write("CURRENT", b"old");
        place.write("CURRENT.tmp", b"new");
        place.vfs.rename(&place.path("CURRENT.tmp"), &place.path("CURRENT")).unwrap();
        place.vfs.sync_dir(&place.root).unwrap();
        assert_eq!(place.read("CURRENT"), b"new");
        assert_eq!(place.vfs.list(&place.root).unwrap(), ["CURRENT"]);
        let mut buf = [0; 3];
        old.read_exact_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"old");
    }
}

#[test]
fn a_directory_is_renamed_with_what_it_holds() {
    for place in places() {
        place.vfs.create_dir_all(&place.path("copy.tmp/sub")).unwrap();
        place.write("copy.tmp/a", b"1");
        place.write("copy.tmp/sub/b", b"2");
        place.write("copy.tmpx", b"a name with the same start");
        place.vfs.rename(&place.path("copy.tmp"), &place.path("copy")).unwrap();
        assert_eq!(place.read("copy/a"), b"1");
        assert_eq!(place.read("copy/sub/b"), b"2");
        assert_eq!(place.vfs.list(&place.root).unwrap(), ["copy", "copy.tmpx"]);
        place.vfs.rename(&place.path("copy"), &place.path("copy/inside")).unwrap_err();
        assert_eq!(place.read("copy/a"), b"1");
    }
}

#[test]
fn a_hard_link_is_a_second_name() {
    for place in places() {
        let file = place.write("a", b"12");
        place.vfs.hard_link(&place.path("a"), &place.path("b")).unwrap();
        assert_eq!(kind(place.vfs.hard_link(&place.path("a"), &place.path("b"))), ErrorKind::Conflict);
        file.append(b"34").unwrap();
        place.vfs.remove(&place.path("a")).unwrap();
        assert_eq!(place.read("b"), b"1234");
        assert_eq!(place.vfs.list(&place.root).unwrap(), ["b"]);
    }
}

#[test]
fn a_removed_file_stays_readable_where_it_is_open() {
    for place in places() {
        let file = place.write("a", b"still here");
        let reader = place.vfs.open(&place.path("a")).unwrap();
        place.vfs.remove(&place.path("a")).unwrap();
        place.write("a", b"another");
        let mut buf = [0; 10];
        reader.read_exact_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"still here");
        assert_eq!(file.len().unwrap(), 10);
        assert_eq!(place.read("a"), b"another");
    }
}

#[test]
fn directories_are_made_listed_and_removed() {
    for place in places() {
        place.vfs.create_dir_all(&place.path("x/y/z")).unwrap();
        place.vfs.create_dir_all(&place.path("x/y")).unwrap();
        place.write("x/y/2", b"");
        place.write("x/y/1", b"");
        assert!(place.vfs.exists(&place.path("x/y")).unwrap());
        assert_eq!(place.vfs.list(&place.path("x/y")).unwrap(), ["1", "2", "z"]);
        place.vfs.remove_dir(&place.path("x/y")).unwrap_err();
        for name in ["1", "2"] {
            place.vfs.remove(&place.path("x/y").join(name)).unwrap();
        }
        place.vfs.remove_dir(&place.path("x/y/z")).unwrap();
        place.vfs.remove_dir(&place.path("x/y")).unwrap();
        place.vfs.sync_dir(&place.path("x")).unwrap();
        assert!(place.vfs.list(&place.path("x")).unwrap().is_empty());
    }
}

#[test]
fn a_lock_is_exclusive_until_it_is_dropped() {
    for place in places() {
        let guard = place.vfs.lock(&place.path("LOCK")).unwrap();
        assert!(place.vfs.exists(&place.path("LOCK")).unwrap());
        assert_eq!(kind(place.vfs.lock(&place.path("LOCK"))), ErrorKind::Locked);
        assert!(place.vfs.is_locked(&place.path("LOCK")).unwrap());
        assert!(!place.vfs.is_locked(&place.path("NONE")).unwrap());
        assert!(!place.vfs.exists(&place.path("NONE")).unwrap(), "looking makes no file");
        let other = place.vfs.lock(&place.path("LOCK2")).unwrap();
        drop(guard);
        assert!(!place.vfs.is_locked(&place.path("LOCK")).unwrap());
        drop(place.vfs.lock(&place.path("LOCK")).unwrap());
        drop(other);
    }
}

#[test]
fn appends_of_many_threads_do_not_mix() {
    const THREADS: u8 = 4;
    const APPENDS: usize = 200;
    const BYTES: usize = 37;
    for place in places() {
        let file = place.write("a", b"");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..APPENDS {
                        file.append(&[thread; BYTES]).unwrap();
                    }
                });
            }
        });
        let bytes = place.read("a");
        assert_eq!(bytes.len(), usize::from(THREADS) * APPENDS * BYTES);
        for piece in bytes.chunks(BYTES) {
            assert!(piece.iter().all(|byte| *byte == piece[0]));
        }
    }
}
