//! What only the real disk has: modes, and other processes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bolide_base::ErrorKind;
use bolide_storage::{DiskVfs, Vfs};

/// Names the lock file for the child process of `a_lock_holds_between_processes`.
const LOCK_VARIABLE: &str = "BOLIDE_TEST_LOCK_PATH";

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_and_directories_belong_to_their_owner_alone() {
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
        // The child: its exit status says whether it was refused.
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
