//! Batches of writes.

use bolide::{Expected, WriteBatch, WriteOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::collection::PyCollection;
use crate::errors::{self, attached, detached};
use crate::json_writer::with_record;
use crate::keys::with_key;
use crate::records::key_range;
use crate::session::{Released, Session};
use crate::settings;
use std::sync::Arc;

/// Writes over any collections of one database that take effect together or not at all.
///
/// In a ``with`` statement it is committed at the end, and discarded after an exception.
///
/// >>> with db.batch(sync="always") as batch:
/// ...     batch.put(orders, "o4", {"state": "open"})
/// ...     batch.delete(orders, "o1")
/// >>> "o4" in orders, "o1" in orders
/// (True, False)
#[pyclass(frozen, name = "Batch", module = "bolide")]
pub(crate) struct PyBatch {
    session: Released<Arc<Session>>,
    options: WriteOptions,
    batch: Mutex<WriteBatch>,
}

impl PyBatch {
    pub(crate) fn new(session: &Arc<Session>, options: WriteOptions) -> Self {
        Self { session: Released::new(session.clone()), options, batch: Mutex::default() }
    }
}

#[pymethods]
impl PyBatch {
    /// Puts ``record`` under ``key`` of ``collection``.
    fn put(
        &self,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        record: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let collection = collection.get().read()?;
        with_key(key, collection.key_format(), |key| {
            with_record(record, collection.records(), |record| {
                attached(|| self.batch.lock().put(&collection, key, record))
            })
        })
    }

    /// Deletes the record under ``key`` of ``collection``, if there is one.
    fn delete(&self, collection: &Bound<'_, PyCollection>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let collection = collection.get().read()?;
        with_key(key, collection.key_format(), |key| attached(|| self.batch.lock().delete(&collection, key)))
    }

    /// Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``.
    #[pyo3(signature = (collection, start=None, end=None, *, prefix=None))]
    fn delete_range(
        &self,
        collection: &Bound<'_, PyCollection>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let collection = collection.get().read()?;
        let range = key_range(collection.key_format(), prefix, start, end)?;
        attached(|| self.batch.lock().delete_range(&collection, (range.lower, range.upper)))
    }

    /// Makes the commit depend on the record under ``key``: that there is one (``present=True``), none
    /// (``present=False``), or that of the write with this ``sequence``. Otherwise the commit fails with ``Conflict``.
    ///
    /// >>> batch = db.batch()
    /// >>> batch.expect(orders, "o1", present=False)
    /// >>> batch.commit()
    /// Traceback (most recent call last):
    /// ...
    /// bolide._errors.Conflict: ...
    #[pyo3(signature = (collection, key, *, present=None, sequence=None))]
    fn expect(
        &self,
        collection: &Bound<'_, PyCollection>,
        key: &Bound<'_, PyAny>,
        present: Option<bool>,
        sequence: Option<u64>,
    ) -> PyResult<()> {
        let expected = match (present, sequence) {
            (Some(true), None) => Expected::Present,
            (Some(false), None) => Expected::Absent,
            (None, Some(sequence)) => Expected::Sequence(sequence),
            _ => return Err(errors::invalid_input("expect takes either present or sequence")),
        };
        let collection = collection.get().read()?;
        with_key(key, collection.key_format(), |key| {
            attached(|| self.batch.lock().expect(&collection, key, expected))
        })
    }

    /// Commits all writes; the batch is empty afterwards. Returns the sequence number of the last one.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let db = self.session.db()?;
        let batch = std::mem::take(&mut *self.batch.lock());
        let db: &bolide::Db = &db;
        detached(py, || db.write_with(batch, &self.options))
    }

    /// Discards all writes.
    fn clear(&self) {
        self.batch.lock().clear();
    }

    /// The number of writes.
    fn __len__(&self) -> usize {
        self.batch.lock().len()
    }

    fn __bool__(&self) -> bool {
        true
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
        if kind.is_none() {
            self.commit(py)?;
        } else {
            self.clear();
        }
        Ok(())
    }
}

/// The options of a write.
pub(crate) fn write_options(sync: Option<&str>) -> PyResult<WriteOptions> {
    let options = WriteOptions::default();
    Ok(match settings::optional_sync_mode(sync)? {
        Some(sync) => options.sync(sync),
        None => options,
    })
}
