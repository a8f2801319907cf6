//! Transactions.

use std::sync::Arc;
use std::time::Duration;

use bolide::{ErrorKind, Savepoint, Transaction, TransactionOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::answers::PyAnswers;
use crate::collection::PyCollection;
use crate::errors::{self, attached, detached};
use crate::json_reader::read_record;
use crate::json_writer::with_record;
use crate::keys::{key_bytes, with_key};
use crate::query::{QuerySettings, plain_query, query_of};
use crate::records::{PyRecords, RecordPart, key_range};
use crate::session::{Released, Session, Shared};
use crate::settings;
use crate::signals::interruptible;

/// The longest pause before a repetition, in microseconds.
const MAX_PAUSE_MICROS: u64 = 10_000;

/// Reads at one state and writes that are committed together, if what they depend on is unchanged.
///
/// In a ``with`` statement it is committed at the end, and discarded after an exception. ``Db.transaction(function)`` also
/// repeats it after a conflict.
///
/// >>> with db.transaction() as tx:
/// ...     order = tx.get(orders, "o1")
/// ...     tx.put(orders, "o1", {**order, "state": "paid"})
/// >>> orders["o1"]["state"]
/// 'paid'
#[pyclass(frozen, name = "Transaction", module = "bolide")]
pub(crate) struct PyTransaction {
    transaction: Released<Shared<Transaction>>,
}

/// A position among the writes of a transaction.
#[pyclass(frozen, name = "Savepoint", module = "bolide")]
pub(crate) struct PySavepoint(Savepoint);

/// The settings of a transaction.
pub(crate) fn options_of(
    isolation: &str,
    sync: Option<&str>,
    max_bytes: Option<usize>,
) -> PyResult<TransactionOptions> {
    let mut options = TransactionOptions::default().isolation(settings::isolation(isolation)?);
    if let Some(sync) = settings::optional_sync_mode(sync)? {
        options = options.sync(sync);
    }
    Ok(match max_bytes {
        Some(bytes) => options.max_bytes(bytes),
        None => options,
    })
}

/// Begins a transaction.
pub(crate) fn begin(
    py: Python<'_>,
    session: &Arc<Session>,
    options: &TransactionOptions,
) -> PyResult<PyTransaction> {
    let db = session.db()?;
    let db: &bolide::Db = &db;
    let transaction = detached(py, || db.begin(options.clone()))?;
    Ok(PyTransaction { transaction: Released::new(Shared::new(session, transaction)?) })
}

/// Runs `work` in a transaction and commits it; after a conflict, again in a new one.
pub(crate) fn repeat<'py>(
    py: Python<'py>,
    session: &Arc<Session>,
    options: &TransactionOptions,
    work: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut repetitions = 0;
    loop {
        let transaction = Bound::new(py, begin(py, session, options)?)?;
        let result = match work.call1((&transaction,)) {
            Ok(result) => result,
            Err(error) => {
                transaction.get().rollback(py)?;
                return Err(error);
            }
        };
        // The function may have committed or discarded it.
        let Some(taken) = transaction.get().transaction.take(py)? else { return Ok(result) };
        // Closing waits for the commit, but not for the pause.
        let committed = detached(py, || match taken.end(Transaction::commit) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
            Err(error) if repetitions >= options.retries => {
                Err(error.context(format_args!("after {} attempts", u64::from(repetitions) + 1)))
            }
            Err(_) => {
                std::thread::sleep(pause(repetitions));
                Ok(false)
            }
        })?;
        if committed {
            return Ok(result);
        }
        py.check_signals()?;
        repetitions += 1;
    }
}

/// A pause of random length, so that transactions do not meet again.
fn pause(repetitions: u32) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let longest = (50 << repetitions.min(16)).min(MAX_PAUSE_MICROS);
    Duration::from_micros(RandomState::new().hash_one(repetitions) % longest + 1)
}

impl PyTransaction {
    fn read<'py>(
        &self,
        py: Python<'py>,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        raw: bool,
        read: impl Fn(&Transaction, &bolide::Collection, &[u8]) -> bolide::Result<Option<Vec<u8>>> + Sync,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        let (transaction, collection): (&Transaction, &bolide::Collection) = (&transaction, &collection);
        let key = key_bytes(key, collection.key_format())?;
        let found = detached(py, || read(transaction, collection, &key))?;
        found
            .map(|record| match collection.records() {
                bolide::RecordKind::Json if !raw => read_record(py, &record),
                _ => Ok(PyBytes::new(py, &record).into_any()),
            })
            .transpose()
    }
}

#[pymethods]
impl PyTransaction {
    /// The sequence number of the snapshot.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.transaction.read()?.sequence())
    }

    /// The memory for its writes and for the record of its reads, in bytes.
    #[getter]
    fn memory_bytes(&self) -> PyResult<usize> {
        Ok(self.transaction.read()?.memory_bytes())
    }

    /// The record under ``key``; ``None`` if there is none.
    #[pyo3(signature = (collection, key, *, raw=false))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        raw: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.read(py, collection, key, raw, Transaction::get)
    }

    /// As ``get``; the commit also fails under ``isolation="snapshot"`` if another commit has changed the record.
    #[pyo3(signature = (collection, key, *, raw=false))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        raw: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.read(py, collection, key, raw, Transaction::get_for_update)
    }

    /// Puts ``record`` under ``key`` at the commit. Reads of this transaction see it at once.
    fn put(
        &self,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        record: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        with_key(key, collection.key_format(), |key| {
            with_record(record, collection.records(), |record| {
                attached(|| transaction.put(&collection, key, record))
            })
        })
    }

    /// Deletes the record under ``key`` at the commit, if there is one.
    fn delete(&self, collection: &Bound<'_, PyCollection>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        with_key(key, collection.key_format(), |key| attached(|| transaction.delete(&collection, key)))
    }

    /// Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``, at the commit.
    #[pyo3(signature = (collection, start=None, end=None, *, prefix=None))]
    fn delete_range(
        &self,
        collection: &Bound<'_, PyCollection>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        let range = key_range(collection.key_format(), prefix, start, end)?;
        attached(|| transaction.delete_range(&collection, (range.lower, range.upper)))
    }

    /// The records that satisfy a filter and all equalities, with the writes of this transaction; see ``Collection.find``.
    #[pyo3(signature = (
        collection, filter=None, /, *, order=None, sort=None, limit=None, limit_per_value=None, after=None, index=None,
        select=None, parts=None, keys_only=false, **equal
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn find(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyCollection>,
        filter: Option<&Bound<'_, PyAny>>,
        order: Option<&str>,
        sort: Option<&Bound<'_, PyAny>>,
        limit: Option<usize>,
        limit_per_value: Option<usize>,
        after: Option<&str>,
        index: Option<&str>,
        select: Option<Vec<String>>,
        parts: Option<Vec<String>>,
        keys_only: bool,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyAnswers> {
        let (select, parts) = (select.as_deref(), parts.as_deref());
        let settings =
            QuerySettings { order, sort, limit, limit_per_value, after, index, select, parts, keys_only };
        let query = query_of(filter, equal, &settings)?;
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        let shape = PyCollection::answer_shape(&collection, select, true);
        let (transaction, collection): (&Transaction, &bolide::Collection) = (&transaction, &collection);
        let (answers, outcome) = interruptible(py, || {
            let mut cursor = transaction.answers(collection, &query, &bolide::FindOptions::default())?;
            let mut answers = Vec::new();
            while let Some(answer) = cursor.next()? {
                answers.push(answer.to_answer());
            }
            Ok((answers, cursor.outcome()))
        })?;
        Ok(PyAnswers::complete(shape, answers, outcome))
    }

    /// How many records satisfy a filter and all equalities.
    #[pyo3(signature = (collection, filter=None, /, **equal))]
    fn count(
        &self,
        py: Python<'_>,
        collection: &Bound<'_, PyCollection>,
        filter: Option<&Bound<'_, PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let query = plain_query(filter, equal)?;
        let (transaction, collection) = (self.transaction.read()?, collection.get().read()?);
        let (transaction, collection): (&Transaction, &bolide::Collection) = (&transaction, &collection);
        interruptible(py, || transaction.count(collection, &query))
    }

    /// Keys and records in key order, with the writes of this transaction; see ``Collection.items``.
    #[pyo3(signature = (collection, *, prefix=None, start=None, end=None, reverse=false, raw=false))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn items(
        &self,
        collection: &Bound<'_, PyCollection>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        raw: bool,
    ) -> PyResult<PyRecords> {
        let handle = collection.get().handle();
        let used = handle.read()?;
        let range = key_range(used.key_format(), prefix, start, end)?;
        let shape = PyCollection::record_shape(&used, raw, RecordPart::Items);
        drop(used);
        Ok(PyRecords::of_transaction(Shared::clone(&self.transaction), handle, shape, range, reverse))
    }

    /// The present position among the writes.
    fn savepoint(&self) -> PyResult<PySavepoint> {
        let transaction = self.transaction.read()?;
        attached(|| Ok(PySavepoint(transaction.savepoint())))
    }

    /// Discards the writes after ``savepoint``.
    fn rollback_to(&self, savepoint: &Bound<'_, PySavepoint>) -> PyResult<()> {
        let transaction = self.transaction.read()?;
        attached(|| transaction.rollback_to(&savepoint.get().0))
    }

    /// Commits all writes. Returns the sequence number of the last one.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let transaction = self.transaction.take(py)?.ok_or_else(errors::closed_error)?;
        detached(py, || transaction.end(Transaction::commit))
    }

    /// Discards all writes. Does nothing after the end of the transaction.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(transaction) = self.transaction.take(py)? {
            detached(py, || {
                transaction.end(Transaction::rollback);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !kind.is_none() {
            return self.rollback(py);
        }
        // It may have been committed or discarded already.
        match self.transaction.take(py)? {
            Some(transaction) => detached(py, || transaction.end(Transaction::commit).map(drop)),
            None => Ok(()),
        }
    }
}
