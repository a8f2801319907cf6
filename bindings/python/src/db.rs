//! Databases.

use std::path::PathBuf;
use std::sync::Arc;

use bolide::{CollectionOptions, Components, Db, ErrorKind, Options, RepairOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::{PyBatch, write_options};
use crate::collection::PyCollection;
use crate::errors::{detached, from_engine, invalid_input, not_found};
use crate::index::spec_of;
use crate::reports::{PyCheckReport, stats_object};
use crate::session::{OpenDatabase, Released, Session, Shared};
use crate::settings;
use crate::signals::interruptible;
use crate::snapshot::PySnapshot;
use crate::transaction::{self, options_of};

/// The path of a database in memory.
const MEMORY: &str = ":memory:";

/// An open database; made by :func:`bolide.open`.
///
/// All methods may be called from many threads. In a ``with`` statement it is closed at the end.
#[pyclass(frozen, name = "Db", module = "bolide", weakref)]
pub(crate) struct PyDb {
    session: Released<Arc<Session>>,
    path: String,
    read_only: bool,
}

impl PyDb {
    fn collection_of(&self, name: &str) -> PyResult<PyCollection> {
        let db = self.session.db()?;
        let collection = db.collection(name).map_err(|error| from_engine(&error))?;
        Ok(PyCollection::new(Shared::new(&self.session, collection)?))
    }
}

#[pymethods]
impl PyDb {
    /// The collection of this name.
    ///
    /// >>> db.collection("orders").name
    /// 'orders'
    fn collection(&self, name: &str) -> PyResult<PyCollection> {
        self.collection_of(name)
    }

    /// As :meth:`collection`.
    fn __getitem__(&self, name: &str) -> PyResult<PyCollection> {
        self.collection_of(name)
    }

    /// Whether there is a collection of this name.
    fn __contains__(&self, name: &str) -> PyResult<bool> {
        Ok(self.session.db()?.collection(name).is_ok())
    }

    /// The names of all collections, in order.
    ///
    /// >>> db.collections
    /// ['orders']
    #[getter]
    fn collections(&self) -> PyResult<Vec<String>> {
        Ok(self.session.db()?.collections())
    }

    /// Creates a collection with indexes.
    ///
    /// ``keys`` is ``"typed"`` (``str`` and ``int``, which sort as numbers) or ``"bytes"``, ``records`` is ``"json"`` or
    /// ``"bytes"``, ``layout`` is ``"leveled"``, ``"tiered"``, ``"fragmented"`` or ``"partitioned"``, ``compression`` is
    /// ``"lz4"``, ``"zstd"`` or ``"none"``. With ``exist_ok`` an existing collection is returned as it is.
    ///
    /// >>> posts = db.create_collection("posts", indexes=["user", "tags[*]"], exist_ok=True)
    /// >>> [index.name for index in posts.indexes]
    /// ['user', 'tags[*]']
    #[pyo3(signature = (
        name, *, indexes=None, keys="typed", records="json", layout="leveled", compression="lz4", exist_ok=false
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn create_collection(
        &self,
        py: Python<'_>,
        name: &str,
        indexes: Option<Vec<String>>,
        keys: &str,
        records: &str,
        layout: &str,
        compression: &str,
        exist_ok: bool,
    ) -> PyResult<PyCollection> {
        let mut options = match settings::record_kind(records)? {
            bolide::RecordKind::Bytes => CollectionOptions::bytes(),
            _ => CollectionOptions::json(),
        };
        options = options.keys(settings::key_format(keys)?).layout(settings::layout(layout)?);
        options = options.compression(settings::compression(compression)?);
        for index in indexes.into_iter().flatten() {
            options = options.index(spec_of(&index)?);
        }
        let db = self.session.db()?;
        let db: &Db = &db;
        let created = detached(py, || match db.create_collection(name, options) {
            Err(error) if exist_ok && error.kind() == ErrorKind::Conflict => db.collection(name),
            other => other,
        })?;
        Ok(PyCollection::new(Shared::new(&self.session, created)?))
    }

    /// Drops a collection with its records and indexes.
    ///
    /// >>> db.drop_collection("orders")
    /// >>> db.collections
    /// []
    fn drop_collection(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.session.db()?;
        let db: &Db = &db;
        detached(py, || db.drop_collection(name))
    }

    /// An empty batch of writes. ``sync`` is ``"always"``, ``"batch"`` or ``"none"``; without it, that of the database.
    #[pyo3(signature = (*, sync=None))]
    fn batch(&self, sync: Option<&str>) -> PyResult<PyBatch> {
        self.session.check()?;
        Ok(PyBatch::new(&self.session, write_options(sync)?))
    }

    /// Without ``function``, a new transaction, for a ``with`` statement. Otherwise the result of ``function``, which is
    /// called with a transaction that is committed afterwards; after a conflict it is called again in a new one, at most
    /// ``retries`` times.
    ///
    /// >>> def pay(tx):
    /// ...     order = tx.get(orders, "o1")
    /// ...     tx.put(orders, "o1", {**order, "state": "paid"})
    /// ...     return order["total"]
    /// >>> db.transaction(pay)
    /// 12.5
    #[pyo3(signature = (function=None, *, isolation="serializable", sync=None, max_bytes=None, retries=100))]
    fn transaction<'py>(
        &self,
        py: Python<'py>,
        function: Option<&Bound<'py, PyAny>>,
        isolation: &str,
        sync: Option<&str>,
        max_bytes: Option<usize>,
        retries: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = options_of(isolation, sync, max_bytes)?.retries(retries);
        match function {
            Some(function) => transaction::repeat(py, &self.session, &options, function),
            None => Ok(Bound::new(py, transaction::begin(py, &self.session, &options)?)?.into_any()),
        }
    }

    /// A snapshot of all collections as they are now.
    fn snapshot(&self) -> PyResult<PySnapshot> {
        let db = self.session.db()?;
        let snapshot = db.snapshot();
        Ok(PySnapshot { snapshot: Released::new(Shared::new(&self.session, snapshot)?) })
    }

    /// Syncs all writes so far: a power cut cannot lose them.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.session.db()?;
        let db: &Db = &db;
        detached(py, || db.sync())
    }

    /// Writes all memtables to sstables.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.session.run_in_background(py, Db::flush)
    }

    /// Merges all sorted runs of all collections and indexes. After an interrupt, as by Ctrl-C, the merge goes on in the
    /// background, as do ``flush``, ``checkpoint`` and the others that only wait for the work of the engine.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.session.run_in_background(py, Db::compact)
    }

    /// Waits until no flush or compaction is due.
    fn wait_until_settled(&self, py: Python<'_>) -> PyResult<()> {
        self.session.run_in_background(py, Db::wait_until_settled)
    }

    /// Copies the database as it is now to a new directory.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.session.run_in_background(py, move |db| db.checkpoint(path))
    }

    /// Reads all files and verifies their checksums; with ``deep`` also compares all indexes with their records.
    #[pyo3(signature = (*, deep=false))]
    fn check(&self, py: Python<'_>, deep: bool) -> PyResult<PyCheckReport> {
        let db = self.session.db()?;
        let db: &Db = &db;
        interruptible(py, || db.check(deep)).map(PyCheckReport)
    }

    /// Sizes and counters, as a ``dict``.
    ///
    /// >>> db.stats()["collections"][0]["name"]
    /// 'orders'
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let db = self.session.db()?;
        let db: &Db = &db;
        stats_object(py, &detached(py, || Ok(db.stats()))?)
    }

    /// The path with which it was opened.
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// Whether it was opened for reading only.
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Closes the database, after calls of other threads have ended. Its collections, iterators, snapshots and transactions
    /// raise ``Closed`` from now on. Does nothing the second time. Inside a call of this thread, in the function of
    /// ``update_where`` or in a signal handler, it raises ``Conflict`` and closes nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.session.close(py)
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.session.is_closed() { " closed" } else { "" };
        format!("<bolide.Db {:?}{state}>", self.path)
    }
}

/// Opens the database in the directory ``path``, or an empty one in memory for ``":memory:"``.
///
/// Without ``create`` a missing database is an error. With ``read_only`` no byte is changed and no lock is taken: there must
/// be no writer. A database in memory cannot be read-only. ``sync`` is ``"batch"`` (one sync serves many writes; a power cut
/// may lose the last moments), ``"always"`` or ``"none"``. Sizes are in bytes; their defaults follow the memory of the machine.
///
/// >>> with bolide.open(":memory:") as db:
/// ...     db.create_collection("notes").name
/// 'notes'
#[pyfunction]
#[pyo3(signature = (
    path, *, create=true, read_only=false, sync="batch", memory_bytes=None, cache_bytes=None, row_cache_bytes=None,
    memtable_bytes=None, background_threads=None, max_open_files=None
))]
#[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
fn open(
    py: Python<'_>,
    path: PathBuf,
    create: bool,
    read_only: bool,
    sync: &str,
    memory_bytes: Option<usize>,
    cache_bytes: Option<usize>,
    row_cache_bytes: Option<usize>,
    memtable_bytes: Option<usize>,
    background_threads: Option<usize>,
    max_open_files: Option<usize>,
) -> PyResult<PyDb> {
    let mut options =
        Options::default().create_if_missing(create && !read_only).sync(settings::sync_mode(sync)?);
    let set = |options: Options, value: Option<usize>, with: fn(Options, usize) -> Options| match value {
        Some(value) => with(options, value),
        None => options,
    };
    options = set(options, memory_bytes, Options::memory_bytes);
    options = set(options, cache_bytes, Options::cache_bytes);
    options = set(options, row_cache_bytes, Options::row_cache_bytes);
    options = set(options, memtable_bytes, Options::memtable_bytes);
    options = set(options, background_threads, Options::background_threads);
    options = set(options, max_open_files, Options::max_open_files);
    if read_only && path.as_os_str() == MEMORY {
        return Err(invalid_input(
            "a database in memory is new and empty: it cannot be opened with read_only=True",
        ));
    }
    let open = OpenDatabase::count()?;
    let db = detached(py, || {
        if path.as_os_str() == MEMORY {
            Db::open_with("db", options, Components::in_memory())
        } else if read_only {
            Db::open_read_only(&path, options)
        } else {
            Db::open(&path, options)
        }
    })?;
    let session = Released::new(Session::new(db, open));
    Ok(PyDb { session, path: path.to_string_lossy().into_owned(), read_only })
}

/// Whether a database is open for writing now, in this process or another one.
#[pyfunction]
fn has_writer(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    detached(py, || Db::has_writer(&path, &Components::system()))
}

/// Copies what is intact in a damaged database to a new one in the directory ``target``. Returns a report as text.
#[pyfunction]
fn repair(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<String> {
    if !source.is_dir() {
        return Err(not_found(&format!("there is no directory {}", source.display())));
    }
    let _open = OpenDatabase::count()?;
    let report =
        detached(py, || bolide::repair(&source, &target, RepairOptions::default(), Components::system()))?;
    Ok(report.to_string())
}

pub(crate) fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(has_writer, module)?)?;
    module.add_function(wrap_pyfunction!(repair, module)?)
}
