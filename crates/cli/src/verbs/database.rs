//! Opening databases and collections for a verb.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bolide::key::{KeyFormat, PrimaryKey};
use bolide::{
    Collection, CollectionOptions, Components, Db, ErrorKind, IndexSpec, IndexState, Options, RecordKind,
};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{OutputLine, report};

/// The directory of persistent memory, for any database that the program opens.
static DAX_DIR: OnceLock<PathBuf> = OnceLock::new();

/// The memory budget, for any database that the program opens.
static MEMORY_BYTES: OnceLock<usize> = OnceLock::new();

/// Sets the directory of persistent memory: once, before a database is opened.
///
/// # Errors
/// A relative path is wrong usage: the database stores the location of an index's region.
pub(crate) fn set_dax_dir(dir: Option<PathBuf>) -> Result<(), Failure> {
    let Some(dir) = dir else { return Ok(()) };
    if !dir.is_absolute() {
        return Err(Failure::usage(format!("--dax-dir {}: it must be an absolute path", dir.display())));
    }
    DAX_DIR.get_or_init(|| dir);
    Ok(())
}

/// Sets the memory budget of every database that the program opens.
pub(crate) fn set_memory(bytes: Option<usize>) {
    if let Some(bytes) = bytes {
        MEMORY_BYTES.get_or_init(|| bytes);
    }
}

/// The settings for opening databases.
pub(super) fn options() -> Options {
    let mut options = Options::default();
    if let Some(dir) = DAX_DIR.get() {
        options = options.dax_dir(dir);
    }
    if let Some(&bytes) = MEMORY_BYTES.get() {
        options = options.memory_bytes(bytes);
    }
    options
}

/// Opens a database for reading; no byte of it changes.
///
/// # Errors
/// Those of the store; for a missing database the message has its path.
pub(crate) fn open_to_read(path: &Path) -> Result<Db, Failure> {
    let db = Db::open_read_only(path, options()).map_err(|error| missing_database(path, error))?;
    note_damaged_indexes(&db);
    Ok(db)
}

/// Whether another process has the database open for writing.
pub(crate) fn has_writer(path: &Path) -> bool {
    Db::has_writer(path, &Components::system()).unwrap_or(false)
}

/// Notes if another process has the database open for writing: files may be removed while they are read.
pub(crate) fn note_writer(path: &Path) {
    if has_writer(path) {
        report!(
            "note: another process has {} open for writing, and replaces files while they are read: try again, or after it \
             has closed, or read a checkpoint",
            path.display()
        );
    }
}

/// Opens an existing database for writing.
///
/// # Errors
/// As [`open_to_read`], and if another process has it open.
pub(crate) fn open_to_write(path: &Path) -> Result<Db, Failure> {
    let db =
        Db::open(path, options().create_if_missing(false)).map_err(|error| missing_database(path, error))?;
    note_log_ends(&db);
    note_damaged_indexes(&db);
    Ok(db)
}

/// Notes on standard error which ends of the log recoveries cut off, and whether the synced length of its last segment
/// is unknown.
pub(crate) fn note_log_ends(db: &Db) {
    let stats = db.stats();
    for tail in stats.cut_tails {
        report!("note: {tail}");
    }
    if let Some(segment) = stats.unmarked_log {
        report!(
            "note: the marker SYNCED is missing or invalid, so how much of the log segment {segment:06}.wal was synced is not \
             known: writes at its end that were acknowledged as synced may be missing, which nothing else would indicate"
        );
    }
}

/// Notes on standard error which indexes are damaged, and which of them are being built again.
fn note_damaged_indexes(db: &Db) {
    for collection in db.stats().collections {
        for index in collection.indexes {
            let Some(damage) = index.damage else { continue };
            let name = &collection.name;
            if index.state == IndexState::Damaged {
                report!("note: collection `{name}`: {damage}; queries do not use the index");
            } else {
                report!(
                    "note: collection `{name}`: {damage}; it is being built again while the database is open for writing, and \
                     queries do not use it until then; `bolide check DB --repair` waits for it"
                );
            }
        }
    }
}

/// The names of the indexes of `collection` that are damaged.
pub(super) fn damaged_indexes(collection: &Collection) -> Vec<String> {
    let infos = collection.indexes();
    let damaged = infos.iter().filter(|info| info.damage().is_some());
    damaged.map(|info| info.name().to_owned()).collect()
}

/// Notes on standard error which indexes are damaged and not in `known`.
pub(super) fn note_damage_since(collection: &Collection, name: &str, known: &[String]) {
    for info in collection.indexes() {
        if let Some(damage) = info.damage().filter(|_| !known.iter().any(|known| known == info.name())) {
            report!("note: collection `{name}`: {damage}; queries do not use the index");
        }
    }
}

/// Opens a database for writing, and creates it if it does not exist. [`NewDatabase`](super::new_database::NewDatabase)
/// removes it again.
///
/// # Errors
/// Those of the store.
pub(super) fn open_or_create(path: &Path) -> Result<Db, Failure> {
    let db = Db::open(path, options())?;
    note_log_ends(&db);
    note_damaged_indexes(&db);
    Ok(db)
}

fn missing_database(path: &Path, error: bolide::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        let message = format!("there is no database in {}", path.display());
        return Failure::operation(
            message,
            "check the path, or create one with `bolide import` or `bolide put --create`",
        );
    }
    error.into()
}

/// The collection of this name.
///
/// # Errors
/// A collection that does not exist; the message lists the existing ones.
pub(crate) fn collection(db: &Db, name: &str) -> Result<Collection, Failure> {
    db.collection(name).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return error.into();
        }
        let names = db.collections();
        let existing = if names.is_empty() {
            "the database has none yet".to_owned()
        } else {
            format!("the database has {}", names.join(", "))
        };
        Failure::operation(format!("there is no collection `{name}`: {existing}"), "check the name")
    })
}

/// The collection of this name, created with `options` if it does not exist; true if it was created.
///
/// # Errors
/// Those of the store.
pub(crate) fn collection_or_create(
    db: &Db,
    name: &str,
    options: CollectionOptions,
) -> Result<(Collection, bool), Failure> {
    match db.collection(name) {
        Ok(collection) => Ok((collection, false)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((db.create_collection(name, options)?, true)),
        Err(error) => Err(error.into()),
    }
}

/// Closes a database: all its writes are durable when this returns.
///
/// # Errors
/// Those of the last sync.
pub(crate) fn close(db: Db) -> Result<(), Failure> {
    if !db.is_read_only() {
        db.sync()?;
    }
    drop(db);
    Ok(())
}

/// The settings of a collection that the program creates: JSON records under typed keys.
pub(crate) fn json_collection() -> CollectionOptions {
    CollectionOptions::json().keys(KeyFormat::Typed)
}

/// Reads an index specification of the command line.
///
/// # Errors
/// A malformed one is wrong usage.
pub(crate) fn parse_spec(text: &str) -> Result<IndexSpec, Failure> {
    text.parse().map_err(|error: bolide::Error| Failure::usage(error.message()))
}

/// Turns stored keys and records into lines of output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineMaker {
    keys: KeyFormat,
    records: RecordKind,
}

impl LineMaker {
    /// For the records of `collection`.
    pub(crate) fn new(collection: &Collection) -> Self {
        Self { keys: collection.key_format(), records: collection.records() }
    }

    /// The key as JSON.
    pub(crate) fn key(&self, key: &[u8]) -> Value {
        match self.keys {
            KeyFormat::Typed => PrimaryKey::decode(key).to_json(),
            _ => Value::from(self.keys.show(key)),
        }
    }

    /// Passes the line of a record to `use_line`. Records that are no JSON are printed as text if they are UTF-8,
    /// otherwise as hexadecimal digits.
    pub(crate) fn with_line<T>(
        &self,
        key: &[u8],
        sequence: Option<u64>,
        record: Option<&[u8]>,
        use_line: impl FnOnce(&OutputLine<'_>) -> T,
    ) -> T {
        let as_text;
        let record = match record {
            None => None,
            Some(bytes) => match (std::str::from_utf8(bytes), self.records) {
                (Ok(json), RecordKind::Json) => Some(json),
                (Ok(text), _) => {
                    as_text = Value::from(text).to_string();
                    Some(as_text.as_str())
                }
                (Err(_), _) => {
                    as_text = PrimaryKey::Bytes(bytes.to_vec()).to_json().to_string();
                    Some(as_text.as_str())
                }
            },
        };
        use_line(&OutputLine { key: self.key(key), sequence, record })
    }
}
