//! Bolide for Python: the native module `bolide._bolide`. The package `bolide` exports it.
//!
//! | file | concept |
//! |---|---|
//! | [`session`] | an open database and the engine objects that close with it; forks |
//! | [`errors`] | errors of the engine as exceptions; work without the lock of the interpreter |
//! | [`signals`] | signals during long calls |
//! | [`keys`], [`json_writer`], [`json_reader`], [`name_cache`] | keys and records as objects of Python |
//! | [`filter`], [`query`] | filters and queries |
//! | [`db`], [`collection`], [`batch`], [`snapshot`], [`transaction`] | the objects of the same names |
//! | [`collection_writes`], [`collection_queries`], [`collection_indexes`] | the methods of a collection |
//! | [`answers`], [`records`], [`prepared`] | iterators over answers and records; prepared queries |
//! | [`index`], [`reports`] | indexes; checks, advice and statistics |
//! | [`table`], [`table_scan`], [`import`], [`arrow_errors`], [`capsules`] | Arrow streams out and in, their errors and capsules |
//!
//! # Locks
//! An engine object is in a slot with a lock of its own, so that closing the database can take it. No thread waits for one of
//! these while it holds the lock of the interpreter: so a thread that holds one may request that of the interpreter, to
//! run handlers of signals. The exception are Arrow streams, which are read with or without the lock of the interpreter:
//! their threads never request it.
//!
//! A callback or a signal handler may run while its thread uses an object. To close it there, or to use one that is used by
//! one thread at a time, would wait for the own thread: [`session`] notes the uses of each thread, and refuses it.

#![deny(unsafe_code)]

mod answers;
mod arrow_errors;
mod batch;
mod capsules;
mod collection;
mod collection_indexes;
mod collection_queries;
mod collection_writes;
mod db;
mod errors;
mod filter;
mod import;
mod index;
mod json_reader;
mod json_writer;
mod keys;
mod name_cache;
mod prepared;
mod query;
mod records;
mod reports;
mod session;
mod settings;
mod signals;
mod snapshot;
mod table;
mod table_scan;
mod transaction;

use pyo3::prelude::*;

/// The native module. Without a global lock its objects have locks of their own.
#[pymodule(gil_used = false)]
fn _bolide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<db::PyDb>()?;
    module.add_class::<collection::PyCollection>()?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<snapshot::PySnapshot>()?;
    module.add_class::<transaction::PyTransaction>()?;
    module.add_class::<transaction::PySavepoint>()?;
    module.add_class::<filter::PyFilter>()?;
    module.add_class::<filter::PyAttribute>()?;
    module.add_class::<answers::PyAnswer>()?;
    module.add_class::<answers::PyAnswers>()?;
    module.add_class::<answers::PyExplain>()?;
    module.add_class::<prepared::PyPreparedQuery>()?;
    module.add_class::<records::PyRecords>()?;
    module.add_class::<index::PyIndex>()?;
    module.add_class::<index::PyIndexBuild>()?;
    module.add_class::<index::PyBuildProgress>()?;
    module.add_class::<reports::PyCheckReport>()?;
    module.add_class::<reports::PyAdvice>()?;
    module.add_class::<reports::PyEstimate>()?;
    module.add_class::<reports::PySummary>()?;
    module.add_class::<reports::PyBulkProgress>()?;
    module.add_class::<table::PyArrowTable>()?;
    module.add_class::<collection_writes::PyDelete>()?;
    module.add("DELETE", Py::new(module.py(), collection_writes::PyDelete)?)?;
    db::add_functions(module)?;
    filter::add_functions(module)?;
    module.add_function(wrap_pyfunction!(session::note_fork, module)?)?;
    module.add_function(wrap_pyfunction!(arrow_errors::error_of, module)?)?;
    Ok(())
}
