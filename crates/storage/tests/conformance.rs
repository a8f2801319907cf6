//! The conformance suite of the file systems on disk, in memory, and simulated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::ErrorKind;
use bolide_storage::{DiskVfs, File, MemVfs, SimVfs, Vfs};

/// A file system with an empty directory for a test.
struct TestDirectory {
    vfs: Arc<dyn Vfs>,
    root: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl TestDirectory {
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

fn directories() -> Vec<TestDirectory> {
    let dir = tempfile::tempdir().unwrap();
    let mem = MemVfs::new();
    let sim = SimVfs::new(1);
    mem.create_dir_all(Path::new("/data/db")).unwrap();
    sim.create_dir_all(Path::new("/data/db")).unwrap();
    vec![
        TestDirectory { vfs: Arc::new(DiskVfs::new()), root: dir.path().to_path_buf(), _guard: Some(dir) },
        TestDirectory { vfs: Arc::new(mem), root: PathBuf::from("/data/db"), _guard: None },
        TestDirectory { vfs: Arc::new(sim), root: PathBuf::from("/data/db"), _guard: None },
    ]
}

fn kind<T>(result: bolide_base::Result<T>) -> ErrorKind {
    result.err().expect("the call succeeded").kind()
}

#[test]
fn appended_bytes_are_readable() {
    for directory in directories() {
        let file = directory.write("a", b"hello ");
        file.append(b"").unwrap();
        file.append(b"world").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 11);
        assert!(!file.is_empty().unwrap());
        assert_eq!(directory.read("a"), b"hello world");

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
fn an_early_end_of_file_is_an_error_with_its_offset() {
    for directory in directories() {
        let file = directory.write("a", b"12345");
        let error = file.read_exact_at(3, &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let message = error.to_string();
        assert!(message.contains("2 of 4 bytes at offset 3"), "{message}");
        assert!(message.contains('a'), "{message}");
    }
}

#[test]
fn a_reader_sees_appends_of_another_handle() {
    for directory in directories() {
        let writer = directory.write("a", b"one");
        let reader = directory.vfs.open(&directory.path("a")).unwrap();
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
    for directory in directories() {
        directory.write("a", b"first");
        assert_eq!(kind(directory.vfs.create(&directory.path("a"))), ErrorKind::Conflict);
        assert_eq!(directory.read("a"), b"first");
        assert_eq!(kind(directory.vfs.create(&directory.path("missing/a"))), ErrorKind::NotFound);
        directory.vfs.create_dir_all(&directory.path("dir")).unwrap();
        assert_eq!(kind(directory.vfs.create(&directory.path("dir"))), ErrorKind::Conflict);
    }
}

#[test]
fn missing_names_are_not_found() {
    for directory in directories() {
        assert_eq!(kind(directory.vfs.open(&directory.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(directory.vfs.remove(&directory.path("x"))), ErrorKind::NotFound);
        assert_eq!(
            kind(directory.vfs.rename(&directory.path("x"), &directory.path("y"))),
            ErrorKind::NotFound
        );
        assert_eq!(
            kind(directory.vfs.hard_link(&directory.path("x"), &directory.path("y"))),
            ErrorKind::NotFound
        );
        assert_eq!(kind(directory.vfs.list(&directory.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(directory.vfs.sync_dir(&directory.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(directory.vfs.remove_dir(&directory.path("x"))), ErrorKind::NotFound);
        assert_eq!(kind(directory.vfs.lock(&directory.path("x/lock"))), ErrorKind::NotFound);
        assert!(!directory.vfs.exists(&directory.path("x")).unwrap());
        assert!(directory.vfs.list(&directory.root).unwrap().is_empty());
    }
}

#[test]
fn a_directory_is_not_a_file() {
    for directory in directories() {
        directory.vfs.create_dir_all(&directory.path("dir")).unwrap();
        directory.vfs.open(&directory.path("dir")).unwrap_err();
        directory.vfs.remove(&directory.path("dir")).unwrap_err();
        directory.write("a", b"file");
        directory.vfs.rename(&directory.path("a"), &directory.path("dir")).unwrap_err();
        directory.vfs.create_dir_all(&directory.path("a/b")).unwrap_err();
        assert_eq!(directory.vfs.list(&directory.root).unwrap(), ["a", "dir"]);
    }
}

#[test]
fn a_rename_replaces_its_target() {
    for directory in directories() {
        let old = directory.write("CURRENT", b"old");
        directory.write("CURRENT.tmp", b"new");
        directory.vfs.rename(&directory.path("CURRENT.tmp"), &directory.path("CURRENT")).unwrap();
        directory.vfs.sync_dir(&directory.root).unwrap();
        assert_eq!(directory.read("CURRENT"), b"new");
        assert_eq!(directory.vfs.list(&directory.root).unwrap(), ["CURRENT"]);
        let mut buf = [0; 3];
        old.read_exact_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"old");
    }
}

#[test]
fn a_directory_is_renamed_with_its_content() {
    for directory in directories() {
        directory.vfs.create_dir_all(&directory.path("copy.tmp/sub")).unwrap();
        directory.write("copy.tmp/a", b"1");
        directory.write("copy.tmp/sub/b", b"2");
        directory.write("copy.tmpx", b"a name with the same start");
        directory.vfs.rename(&directory.path("copy.tmp"), &directory.path("copy")).unwrap();
        assert_eq!(directory.read("copy/a"), b"1");
        assert_eq!(directory.read("copy/sub/b"), b"2");
        assert_eq!(directory.vfs.list(&directory.root).unwrap(), ["copy", "copy.tmpx"]);
        directory.vfs.rename(&directory.path("copy"), &directory.path("copy/inside")).unwrap_err();
        assert_eq!(directory.read("copy/a"), b"1");
    }
}

#[test]
fn a_hard_link_is_a_second_name() {
    for directory in directories() {
        let file = directory.write("a", b"12");
        directory.vfs.hard_link(&directory.path("a"), &directory.path("b")).unwrap();
        assert_eq!(
            kind(directory.vfs.hard_link(&directory.path("a"), &directory.path("b"))),
            ErrorKind::Conflict
        );
        file.append(b"34").unwrap();
        directory.vfs.remove(&directory.path("a")).unwrap();
        assert_eq!(directory.read("b"), b"1234");
        assert_eq!(directory.vfs.list(&directory.root).unwrap(), ["b"]);
    }
}

#[test]
fn a_removed_file_stays_readable_by_open_handles() {
    for directory in directories() {
        let file = directory.write("a", b"still here");
        let reader = directory.vfs.open(&directory.path("a")).unwrap();
        directory.vfs.remove(&directory.path("a")).unwrap();
        directory.write("a", b"another");
        let mut buf = [0; 10];
        reader.read_exact_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"still here");
        assert_eq!(file.len().unwrap(), 10);
        assert_eq!(directory.read("a"), b"another");
    }
}

#[test]
fn directories_are_created_listed_and_removed() {
    for directory in directories() {
        directory.vfs.create_dir_all(&directory.path("x/y/z")).unwrap();
        directory.vfs.create_dir_all(&directory.path("x/y")).unwrap();
        directory.write("x/y/2", b"");
        directory.write("x/y/1", b"");
        assert!(directory.vfs.exists(&directory.path("x/y")).unwrap());
        assert_eq!(directory.vfs.list(&directory.path("x/y")).unwrap(), ["1", "2", "z"]);
        directory.vfs.remove_dir(&directory.path("x/y")).unwrap_err();
        for name in ["1", "2"] {
            directory.vfs.remove(&directory.path("x/y").join(name)).unwrap();
        }
        directory.vfs.remove_dir(&directory.path("x/y/z")).unwrap();
        directory.vfs.remove_dir(&directory.path("x/y")).unwrap();
        directory.vfs.sync_dir(&directory.path("x")).unwrap();
        assert!(directory.vfs.list(&directory.path("x")).unwrap().is_empty());
    }
}

#[test]
fn a_lock_is_exclusive_until_it_is_dropped() {
    for directory in directories() {
        let guard = directory.vfs.lock(&directory.path("LOCK")).unwrap();
        assert!(directory.vfs.exists(&directory.path("LOCK")).unwrap());
        assert_eq!(kind(directory.vfs.lock(&directory.path("LOCK"))), ErrorKind::Locked);
        assert!(directory.vfs.is_locked(&directory.path("LOCK")).unwrap());
        assert!(!directory.vfs.is_locked(&directory.path("NONE")).unwrap());
        assert!(!directory.vfs.exists(&directory.path("NONE")).unwrap(), "the query creates no file");
        let other = directory.vfs.lock(&directory.path("LOCK2")).unwrap();
        drop(guard);
        assert!(!directory.vfs.is_locked(&directory.path("LOCK")).unwrap());
        drop(directory.vfs.lock(&directory.path("LOCK")).unwrap());
        drop(other);
    }
}

#[test]
fn appends_of_many_threads_do_not_mix() {
    const THREADS: u8 = 4;
    const APPENDS: usize = 200;
    const BYTES: usize = 37;
    for directory in directories() {
        let file = directory.write("a", b"");
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
        let bytes = directory.read("a");
        assert_eq!(bytes.len(), usize::from(THREADS) * APPENDS * BYTES);
        for piece in bytes.chunks(BYTES) {
            assert!(piece.iter().all(|byte| *byte == piece[0]));
        }
    }
}
