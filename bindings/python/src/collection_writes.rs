//! Writes of a collection.

use std::ops::ControlFlow;

use bolide::{BulkChange, BulkOptions, BulkProgress, Collection, RecordKind, WriteBatch};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyMapping};

use crate::batch::write_options;
use crate::collection::{PyCollection, record_object};
use crate::errors::{self, attached, detached};
use crate::import;
use crate::json_writer::with_record;
use crate::keys::{key_object, with_key};
use crate::query::plain_query;
use crate::records::key_range;
use crate::reports::PyBulkProgress;

/// Bytes of a batch of `put_many`, about.
const BATCH_BYTES: usize = 4 << 20;

/// What the function of `update_where` returns to delete a record.
#[pyclass(frozen, name = "Delete", module = "bolide")]
pub(crate) struct PyDelete;

#[pymethods]
impl PyDelete {
    fn __repr__(&self) -> &'static str {
        "bolide.DELETE"
    }
}

#[pymethods]
impl PyCollection {
    /// Puts ``record`` under ``key`` and replaces an existing record.
    ///
    /// A record of JSON is a ``dict``, or ``bytes`` or ``str`` of JSON text. ``sync`` is as for ``Db.batch``.
    ///
    /// >>> orders.put("o4", {"state": "open", "total": 7})
    /// >>> orders.put("o5", b'{"state":"open"}', sync="always")
    #[pyo3(signature = (key, record, *, sync=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        record: &Bound<'_, PyAny>,
        sync: Option<&str>,
    ) -> PyResult<()> {
        let used = self.read()?;
        let collection: &Collection = &used;
        with_key(key, collection.key_format(), |key| {
            with_record(record, collection.records(), |record| {
                if sync.is_none() {
                    return detached(py, || collection.put(key, record));
                }
                let options = write_options(sync)?;
                let mut batch = WriteBatch::new();
                attached(|| batch.put(collection, key, record))?;
                let db = self.session().db()?;
                let db: &bolide::Db = &db;
                detached(py, || db.write_with(batch, &options).map(drop))
            })
        })
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(py, key, record, None)
    }

    /// Puts all pairs of key and record of ``pairs``, an iterable or a mapping, in batches of 4 MiB. Returns their number.
    /// Each batch takes effect as a whole; after an error, those before it stay.
    ///
    /// >>> orders.put_many((f"n{number}", {"total": number}) for number in range(3))
    /// 3
    #[pyo3(signature = (pairs, *, sync=None))]
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>, sync: Option<&str>) -> PyResult<u64> {
        let options = write_options(sync)?;
        let pairs = match pairs.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => pairs.clone(),
        };
        let mut batch = WriteBatch::new();
        let mut count = 0;
        let commit = |batch: &mut WriteBatch| {
            let batch = std::mem::take(batch);
            {
                let db = self.session().db()?;
                let db: &bolide::Db = &db;
                detached(py, || db.write_with(batch, &options).map(drop))?;
            }
            py.check_signals()
        };
        for pair in pairs.try_iter()? {
            let pair = pair?;
            let (key, record): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair
                .extract()
                .map_err(|_| PyTypeError::new_err(format!("element {count} is no pair of key and record")))?;
            {
                let used = self.read()?;
                with_key(&key, used.key_format(), |key| {
                    with_record(&record, used.records(), |record| attached(|| batch.put(&used, key, record)))
                })?;
            }
            count += 1;
            if batch.len_bytes() >= BATCH_BYTES {
                commit(&mut batch)?;
            }
        }
        if !batch.is_empty() {
            commit(&mut batch)?;
        }
        Ok(count)
    }

    /// Deletes the record under ``key``. A missing record is no error, and is not looked up.
    #[pyo3(signature = (key, *, sync=None))]
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>, sync: Option<&str>) -> PyResult<()> {
        let used = self.read()?;
        let collection: &Collection = &used;
        let options = write_options(sync)?;
        with_key(key, collection.key_format(), |key| {
            let mut batch = WriteBatch::new();
            attached(|| batch.delete(collection, key))?;
            let db = self.session().db()?;
            let db: &bolide::Db = &db;
            detached(py, || db.write_with(batch, &options).map(drop))
        })
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.__contains__(py, key)? {
            return Err(errors::not_found(&format!("there is no record under the key {}", key.repr()?)));
        }
        self.delete(py, key, None)
    }

    /// Deletes the records with keys from ``start`` to ``end``, without ``end``, or with ``prefix``, in constant time.
    ///
    /// >>> orders.delete_range("o1", "o3")
    /// >>> list(orders)
    /// ['o3']
    #[pyo3(signature = (start=None, end=None, *, prefix=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let range = key_range(self.read()?.key_format(), prefix, start, end)?;
        self.run(py, |collection| collection.delete_range((range.lower, range.upper)))
    }

    /// Deletes the records that satisfy a filter and all equalities, in atomic batches of ``batch`` records.
    ///
    /// ``progress`` is called with a ``BulkProgress`` after each batch, and stops the operation by returning ``False``. Its
    /// ``position`` is a text with which ``resume`` continues, with the same filter, also in another process. ``dry_run``
    /// counts without deleting.
    ///
    /// >>> first = orders.delete_where("total >= 0", batch=2, progress=lambda done: False)
    /// >>> first.changed, orders.delete_where("total >= 0", resume=first.position).changed
    /// (2, 1)
    #[pyo3(signature = (filter=None, /, *, batch=1000, resume=None, dry_run=false, progress=None, **equal))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn delete_where(
        &self,
        py: Python<'_>,
        filter: Option<&Bound<'_, PyAny>>,
        batch: usize,
        resume: Option<&str>,
        dry_run: bool,
        progress: Option<Py<PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyBulkProgress> {
        let query = plain_query(filter, equal)?;
        let options = bulk_options(batch, resume, dry_run)?;
        let mut failure = None;
        let done = self.run_reading(py, |collection| {
            collection.delete_where(&query, &options, |done| report(done, progress.as_ref(), &mut failure))
        });
        match failure {
            Some(error) => Err(error),
            None => done.map(PyBulkProgress),
        }
    }

    /// Changes the records that satisfy a filter and all equalities, in atomic batches of ``batch`` records.
    ///
    /// ``function`` is called with key and record, and returns the new record, ``None`` to leave it unchanged, or
    /// ``bolide.DELETE``. Records that another thread writes meanwhile are skipped. ``resume``, ``dry_run`` and ``progress``
    /// are as for :meth:`delete_where`.
    ///
    /// >>> orders.update_where(lambda key, record: {**record, "state": "late"}, "total < 15").changed
    /// 2
    #[pyo3(signature = (function, filter=None, /, *, batch=1000, resume=None, dry_run=false, progress=None, **equal))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn update_where(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        filter: Option<&Bound<'_, PyAny>>,
        batch: usize,
        resume: Option<&str>,
        dry_run: bool,
        progress: Option<Py<PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyBulkProgress> {
        let query = plain_query(filter, equal)?;
        let options = bulk_options(batch, resume, dry_run)?;
        let (mut failure, mut interrupt) = (None, None);
        let done = self.run_reading(py, |collection| {
            let (format, kind) = (collection.key_format(), collection.records());
            let change = |key: &[u8], record: &[u8]| {
                Python::attach(|py| {
                    let changed = key_object(py, key, format)
                        .and_then(|key| {
                            function.bind(py).call1((key, record_object(py, record, kind, false)?))
                        })
                        .and_then(|changed| change_of(&changed, kind));
                    changed.map_err(|error| {
                        let reported = errors::into_engine(&error);
                        failure = Some(error);
                        reported
                    })
                })
            };
            let progress = |done: &BulkProgress| report(done, progress.as_ref(), &mut interrupt);
            collection.update_where(&query, &options, change, progress)
        });
        match failure.or(interrupt) {
            Some(error) => Err(error),
            None => done.map(PyBulkProgress),
        }
    }

    /// Puts the rows of ``data``, any object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pandas, polars, pyarrow,
    /// duckdb), as records whose keys are in the column ``key``, in batches of 4 MiB. Returns the number of rows.
    ///
    /// A NULL is no field. The columns ``_key`` and ``_sequence`` are not fields of the records. Dates and times become ISO
    /// text.
    ///
    /// >>> import pyarrow
    /// >>> orders.import_arrow(pyarrow.table({"id": ["p1", "p2"], "total": [1, None]}), key="id")
    /// 2
    /// >>> orders["p1"], orders["p2"]
    /// ({'id': 'p1', 'total': 1}, {'id': 'p2'})
    #[pyo3(signature = (data, *, key, sync=None))]
    fn import_arrow(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        key: &str,
        sync: Option<&str>,
    ) -> PyResult<u64> {
        import::import(py, &self.handle(), data, key, &write_options(sync)?)
    }
}

fn change_of(changed: &Bound<'_, PyAny>, kind: RecordKind) -> PyResult<BulkChange> {
    if changed.is_none() {
        return Ok(BulkChange::Keep);
    }
    if changed.is_instance_of::<PyDelete>() {
        return Ok(BulkChange::Delete);
    }
    with_record(changed, kind, |record| Ok(BulkChange::Put(record.to_vec())))
}

fn bulk_options(batch: usize, resume: Option<&str>, dry_run: bool) -> PyResult<BulkOptions> {
    let options = BulkOptions::default().batch(batch).dry_run(dry_run);
    Ok(match resume {
        Some(position) => options.resume(attached(|| position.parse())?),
        None => options,
    })
}

/// Reports a batch to the caller. Ends the operation if the caller wants no more, and after a signal.
fn report(done: &BulkProgress, progress: Option<&Py<PyAny>>, failure: &mut Option<PyErr>) -> ControlFlow<()> {
    let goes_on = Python::attach(|py| {
        py.check_signals()?;
        let Some(progress) = progress else { return Ok(true) };
        let answer = progress.bind(py).call1((PyBulkProgress(done.clone()),))?;
        Ok(!answer.cast::<PyBool>().is_ok_and(|answer| !answer.is_true()))
    });
    match goes_on {
        Ok(true) => ControlFlow::Continue(()),
        Ok(false) => ControlFlow::Break(()),
        Err(error) => {
            *failure = Some(error);
            ControlFlow::Break(())
        }
    }
}
