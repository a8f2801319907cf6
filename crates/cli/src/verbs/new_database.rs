//! A database that a verb creates, and that is removed if the verb fails before it stored a record.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bolide::{Collection, CollectionOptions, Db, ErrorKind};

use super::database;
use crate::failure::Failure;
use crate::output::report;

/// Runs `work` on the collection `name` of the database at `path`; creates both if they are missing, the collection
/// with `options`. `work` receives whether the collection is new. If it fails and no record was stored, everything
/// created is removed: the collection, and the files of the database. Stored records stay: they were acknowledged.
///
/// # Errors
/// Those of the store, and of `work`.
pub(super) fn with_collection<T>(
    path: &Path,
    name: &str,
    options: CollectionOptions,
    work: impl FnOnce(&Db, &Collection, bool) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = FilesBefore::list(path);
    // If the open fails half way, its files are removed, except those that another process has open.
    let mut is_new = !before.had_database;
    let outcome = database::open_or_create(path).and_then(|db| {
        // Another process may have created it meanwhile.
        is_new &= db.collections().is_empty();
        let outcome = match database::collection_or_create(&db, name, options) {
            Ok((collection, is_collection_new)) => {
                let outcome = work(&db, &collection, is_collection_new);
                drop(collection);
                let is_unused = is_collection_new && has_no_entries(&db, name);
                if outcome.is_err() && is_unused {
                    drop_collection(&db, name);
                }
                is_new &= is_unused;
                outcome
            }
            Err(failure) => Err(failure),
        };
        // The database is closed properly after a failure, too.
        let closed = database::close(db);
        outcome.and_then(|done| closed.map(|()| done))
    });
    let is_locked = matches!(&outcome, Err(Failure::Operation { kind: Some(ErrorKind::Locked), .. }));
    if outcome.is_err() && is_new && !is_locked {
        before.remove_new_files();
    }
    outcome
}

/// Whether nothing was stored in the collection, not even a record that was deleted again.
fn has_no_entries(db: &Db, name: &str) -> bool {
    let stats = db.stats();
    stats.collections.iter().any(|collection| collection.name == name && collection.table.entries == 0)
}

fn drop_collection(db: &Db, name: &str) {
    if let Err(error) = db.drop_collection(name) {
        report!("note: the new collection `{name}` could not be dropped again: {}", error.message());
    }
}

/// The content of a database's directory before the database was opened.
struct FilesBefore {
    path: PathBuf,
    had_database: bool,
    /// The directories that were missing: that of the database, then its parents.
    missing: Vec<PathBuf>,
    names: BTreeSet<OsString>,
}

impl FilesBefore {
    fn list(path: &Path) -> Self {
        let names = names_in(path);
        // A directory that cannot be listed is left unchanged.
        let had_database = match &names {
            Ok(names) => names.iter().any(is_of_database),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        Self {
            path: path.to_path_buf(),
            had_database,
            missing: missing_directories(path),
            names: names.unwrap_or_default(),
        }
    }

    /// Removes new files, unless another process has opened the database.
    fn remove_new_files(&self) {
        let lock = File::open(self.path.join("LOCK"));
        if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
            return;
        }
        let removed = names_in(&self.path).and_then(|names| {
            for name in names.difference(&self.names) {
                std::fs::remove_file(self.path.join(name))?;
            }
            self.missing.iter().try_for_each(std::fs::remove_dir)
        });
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                report!(
                    "note: the new database in {} could not be removed again: {error}",
                    self.path.display()
                );
            }
            _ => {}
        }
    }
}

/// The directories that are to be created for `path`: itself, then its parents. A component `..` is none of its own.
fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let missing = path.ancestors().take_while(|dir| is_missing(dir));
    missing.filter(|dir| dir.file_name().is_some()).map(Path::to_path_buf).collect()
}

fn is_missing(dir: &Path) -> bool {
    // The last ancestor of a relative path is the current directory.
    !dir.as_os_str().is_empty()
        && std::fs::symlink_metadata(dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn names_in(path: &Path) -> io::Result<BTreeSet<OsString>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether a file of this name makes a directory a database, even an incomplete one.
fn is_of_database(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == "CURRENT" || name.starts_with("MANIFEST-") || name.ends_with(".wal") || name.ends_with(".sst")
}
