//! Tests of properties of the real disk: file modes, locks between processes, limits.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bolide_base::ErrorKind;
use bolide_storage::pmem::RegionOptions;
use bolide_storage::{DiskVfs, File, Vfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The environment variable with the lock file for the child process of `a_lock_holds_between_processes`.
const LOCK_VARIABLE: &str = "BOLIDE_TEST_LOCK_PATH";

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_and_directories_are_private_to_their_owner() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = DiskVfs::new();
    vfs.create_dir_all(&dir.path().join("x/y")).unwrap();
    vfs.create(&dir.path().join("x/file")).unwrap();
    let _lock = vfs.lock(&dir.path().join("x/LOCK")).unwrap();
    assert_eq!(mode(&dir.path().join("x")), 0o700);
    assert_eq!(mode(&dir.path().join("x/y")), 0o700);
    assert_eq!(mode(&dir.path().join("x/file")), 0o600);
    assert_eq!(mode(&dir.path().join("x/LOCK")), 0o600);
}

#[test]
fn a_lock_holds_between_processes() {
    if let Some(path) = std::env::var_os(LOCK_VARIABLE) {
        // The child: its exit status reports whether the lock was refused.
        let refused = DiskVfs::new().lock(Path::new(&path)).is_err_and(|e| e.kind() == ErrorKind::Locked);
        assert!(refused, "the child got the lock");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let child = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_lock_holds_between_processes"])
            .env(LOCK_VARIABLE, &path)
            .output()
            .unwrap()
            .status
            .success()
    };
    let guard = DiskVfs::new().lock(&path).unwrap();
    assert!(child(), "another process got a lock that is held");
    drop(guard);
    assert!(!child(), "another process was refused a lock that is free");
}

#[test]
fn a_second_path_to_the_lock_file_is_the_same_lock() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = DiskVfs::new();
    let guard = vfs.lock(&dir.path().join("LOCK")).unwrap();
    vfs.hard_link(&dir.path().join("LOCK"), &dir.path().join("ALIAS")).unwrap();
    assert_eq!(vfs.lock(&dir.path().join("ALIAS")).unwrap_err().kind(), ErrorKind::Locked);
    drop(guard);
    vfs.lock(&dir.path().join("ALIAS")).unwrap();
}

#[test]
fn the_current_directory_is_listed_and_synced_by_the_empty_path() {
    let vfs = DiskVfs::new();
    assert!(vfs.list(Path::new("")).unwrap().contains(&"Cargo.toml".to_owned()));
    vfs.sync_dir(Path::new("")).unwrap();
    assert!(vfs.exists(Path::new("")).unwrap());
}

#[test]
fn a_lock_detects_the_replacement_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = DiskVfs::new();
    let path = dir.path().join("db");
    vfs.create_dir_all(&path).unwrap();
    let guard = vfs.lock(&path.join("LOCK")).unwrap();
    guard.check().unwrap();
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Io);
    vfs.create_dir_all(&path).unwrap();
    let _other = vfs.lock(&path.join("LOCK")).unwrap();
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_log_is_mapped_only_with_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let is_mapped = |path: &Path| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.ends_with(path.to_str().unwrap()))
    };
    let path = dir.path().join("1.wal");
    let log = DiskVfs::new().create_log(&path).unwrap();
    log.append(b"record").unwrap();
    assert!(!is_mapped(&path));
    // A mapping would end this process by SIGBUS here.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    for _ in 0..100 {
        log.append(&[1; 4096]).unwrap();
    }
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type as u64;
    let path = dir.path().join("2.wal");
    let log = DiskVfs::new().map_logs().create_log(&path).unwrap();
    log.append(b"record").unwrap();
    assert_eq!(is_mapped(&path), [0xEF53, 0x0102_1994].contains(&kind), "on the file system {kind:#x}");
}

#[test]
fn an_append_is_one_write() {
    let writes = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse().ok())
    };
    let dir = tempfile::tempdir().unwrap();
    let log = DiskVfs::new().create_log(&dir.path().join("1.wal")).unwrap();
    for count in [1, 100, 1 << 20] {
        let Some(before) = writes() else { return };
        log.append(&vec![7; count]).unwrap();
        assert_eq!(writes(), Some(before + 1), "{count} bytes");
    }
}

/// Set in the child process of the test below.
const LIMIT_VARIABLE: &str = "BOLIDE_TEST_FILE_SIZE_LIMIT";

#[test]
fn the_file_size_limit_is_an_error_and_no_signal() {
    const LIMIT: u64 = 300_000;
    let name = "the_file_size_limit_is_an_error_and_no_signal";
    if std::env::var_os(LIMIT_VARIABLE).is_none() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(LIMIT_VARIABLE, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stdout));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = |file: &Arc<dyn File>, bytes: usize| {
        let mut appended = 0;
        let error = loop {
            match file.append(&vec![5; bytes]) {
                Ok(()) => appended += bytes as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(file.len().unwrap(), appended);
        assert!(appended <= LIMIT && appended + bytes as u64 > LIMIT, "{appended} by {bytes}");
        file.sync().unwrap();
    };
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    limit(Some(LIMIT));
    for (number, bytes) in [1_000, 4_096, 70_000, 299_999, 300_000, 300_001].into_iter().enumerate() {
        let plain = DiskVfs::new().create(&dir.path().join(format!("{number}.sst"))).unwrap();
        full(&plain, bytes);
        let log = DiskVfs::new().create_log(&dir.path().join(format!("{number}.wal"))).unwrap();
        full(&log, bytes);
        // An extent exceeds the limit, so this log is written by system calls, too.
        let mapped = DiskVfs::new().map_logs().create_log(&dir.path().join(format!("{number}.log"))).unwrap();
        full(&mapped, bytes);
        limit(None);
        mapped.append(&vec![6; bytes]).unwrap();
        plain.append(&vec![6; bytes]).unwrap();
        limit(Some(LIMIT));
    }
    let region =
        DiskVfs::new().assume_durable().create_region(&dir.path().join("r"), RegionOptions::default());
    assert_eq!(region.unwrap_err().kind(), ErrorKind::NoSpace);
}
