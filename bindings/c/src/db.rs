//! Databases.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use bolide::{CollectionOptions, Components, Db, ErrorKind};

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::fork::OpenDatabase;
use crate::guard::call;
use crate::handle;
use crate::input::text;
use crate::options::{bolide_collection_options, bolide_options};
use crate::output::{self, Out, bolide_bytes};
use crate::report;
use crate::session::{Member, Session, bolide_db};

/// The path of a database in memory.
const MEMORY: &str = ":memory:";

/// Opens the database in a directory, or a new one in memory for the path ":memory:". `options` may be NULL for the defaults.
///
/// `BOLIDE_LOCKED` if it is open elsewhere; `BOLIDE_NOT_FOUND` if it is missing and is not to be created; `BOLIDE_FORKED` in a child
/// process whose parent had a database open at the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_open(
    path: *const c_char,
    path_size: usize,
    options: *const bolide_options,
    db: *mut *mut bolide_db,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(db, "db")?;
        let path = text(path, path_size, "the path")?;
        let (options, is_read_only) = match handle::borrow_optional(options)? {
            Some(settings) => {
                let settings = settings.lock("the options")?;
                (settings.options.clone(), settings.is_read_only)
            }
            None => Default::default(),
        };
        if path.is_empty() || path.contains('\0') {
            return Err(Failure::invalid("the path is empty, or contains NUL"));
        }
        let counted = OpenDatabase::count()?;
        let db = if path == MEMORY {
            Db::open_with("db", options, Components::in_memory())?
        } else if is_read_only {
            Db::open_read_only(path, options)?
        } else {
            Db::open(path, options)?
        };
        out.set(handle::into_pointer(Arc::new(Session { db, counted })));
        Ok(())
    })
}

/// Closes a database and frees its handle. Syncs what was written.
///
/// `BOLIDE_IN_USE` if other objects of it exist (collections, snapshots, batches, transactions, cursors, answers, index builds,
/// Arrow streams): the handle stays valid then. So it does after `BOLIDE_FORKED`, and `BOLIDE_INVALID_INPUT` for a pointer to
/// something else. It is freed after all other errors. No other thread may use the handle. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_close(db: *mut bolide_db, error: *mut *mut bolide_error) -> bolide_code {
    call(error, || {
        if db.is_null() {
            return Ok(());
        }
        let others = Arc::strong_count(handle::borrow(db)?) - 1;
        if others > 0 {
            return Err(Failure::in_use(
                format!("{others} objects of the database still exist"),
                "free them before, or call bolide_db_free, which closes the database with the last of them",
            ));
        }
        // Without other objects, no other thread can have made one meanwhile.
        match handle::take(db).and_then(Arc::into_inner) {
            Some(Session { db, counted }) => {
                let closed = db.close();
                drop(counted);
                Ok(closed?)
            }
            None => Ok(()),
        }
    })
}

/// Frees the handle of a database. The database is closed now, or as soon as its last object is freed; errors of closing are
/// not reported. For languages that free objects in any order. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_db_free(db: *mut bolide_db) {
    handle::free(db);
}

/// Stores in `has_writer` whether a database is open for writing now, in this process or another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_has_writer(
    path: *const c_char,
    path_size: usize,
    has_writer: *mut bool,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::new(has_writer, "has_writer", false)?;
        out.set(Db::has_writer(text(path, path_size, "the path")?, &Components::system())?);
        Ok(())
    })
}

/// Copies what is intact in a damaged database to a new one in the directory `target`. `report` receives a report as text,
/// which the caller frees; it may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_repair(
    source: *const c_char,
    source_size: usize,
    target: *const c_char,
    target_size: usize,
    report: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::optional(report, bolide_bytes::NONE);
        let source = Path::new(text(source, source_size, "the path of the source")?);
        let target = Path::new(text(target, target_size, "the path of the target")?);
        if !source.is_dir() {
            let what = format!("there is no directory {}", source.display());
            return Err(bolide::Error::new(ErrorKind::NotFound, what).into());
        }
        let _counted = OpenDatabase::count()?;
        let report = bolide::repair(source, target, Default::default(), Components::system())?;
        if let Some(out) = out {
            out.set(bolide_bytes::of_text(report.to_string()));
        }
        Ok(())
    })
}

/// Opens a collection. `BOLIDE_NOT_FOUND` if there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_open(
    db: *const bolide_db,
    name: *const c_char,
    name_size: usize,
    collection: *mut *mut bolide_collection,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(collection, "collection")?;
        let session = handle::borrow(db)?;
        let found = session.db.collection(text(name, name_size, "the name of the collection")?)?;
        out.set(handle::into_pointer(Member::new(session, found)));
        Ok(())
    })
}

/// Creates a collection with its indexes. `options` may be NULL for the defaults. `BOLIDE_CONFLICT` if there is one of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_create(
    db: *const bolide_db,
    name: *const c_char,
    name_size: usize,
    options: *const bolide_collection_options,
    collection: *mut *mut bolide_collection,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(collection, "collection")?;
        let session = handle::borrow(db)?;
        let name = text(name, name_size, "the name of the collection")?;
        let options = match handle::borrow_optional(options)? {
            Some(options) => options.lock("the options of the collection")?.clone(),
            None => CollectionOptions::default(),
        };
        let created = session.db.create_collection(name, options)?;
        out.set(handle::into_pointer(Member::new(session, created)));
        Ok(())
    })
}

/// Drops a collection with its records and indexes. Its handles return `BOLIDE_NOT_FOUND` afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_drop(
    db: *const bolide_db,
    name: *const c_char,
    name_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let session = handle::borrow(db)?;
        Ok(session.db.drop_collection(text(name, name_size, "the name of the collection")?)?)
    })
}

/// The names of all collections, as a JSON array of texts, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collections(
    db: *const bolide_db,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let names = handle::borrow(db)?.db.collections();
        out.set(bolide_bytes::of_text(serde_json::Value::from(names).to_string()));
        Ok(())
    })
}

/// Syncs all writes so far: a power cut cannot lose them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_sync_log(db: *const bolide_db, error: *mut *mut bolide_error) -> bolide_code {
    call(error, || Ok(handle::borrow(db)?.db.sync()?))
}

/// Writes all memtables to sstables, and waits for it. Not needed for durability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_flush(db: *const bolide_db, error: *mut *mut bolide_error) -> bolide_code {
    call(error, || Ok(handle::borrow(db)?.db.flush()?))
}

/// Merges all sorted runs of all collections and indexes, and waits for it. Not needed in normal use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_compact(db: *const bolide_db, error: *mut *mut bolide_error) -> bolide_code {
    call(error, || Ok(handle::borrow(db)?.db.compact()?))
}

/// Waits until no flush or compaction is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_wait_until_settled(
    db: *const bolide_db,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(db)?.db.wait_until_settled()?))
}

/// Copies the database as it is now to a new directory. Writers go on meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_checkpoint(
    db: *const bolide_db,
    path: *const c_char,
    path_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(db)?.db.checkpoint(text(path, path_size, "the path")?)?))
}

/// Reads all files and verifies their checksums; with `deep` also compares all indexes with their records. Stores in `is_sound`
/// whether there is no problem, and in `json` a report, which the caller frees; either may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_check(
    db: *const bolide_db,
    deep: bool,
    is_sound: *mut bool,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (sound, text) = (Out::optional(is_sound, false), Out::optional(json, bolide_bytes::NONE));
        let report = handle::borrow(db)?.db.check(deep)?;
        if let Some(out) = sound {
            out.set(report.is_sound());
        }
        if let Some(out) = text {
            out.set(bolide_bytes::of_text(report::check_json(&report).to_string()));
        }
        Ok(())
    })
}

/// Sizes and counters of the database, its collections and indexes, as a JSON object, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_stats(
    db: *const bolide_db,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let stats = handle::borrow(db)?.db.stats();
        out.set(bolide_bytes::of_text(report::stats_json(&stats).to_string()));
        Ok(())
    })
}
