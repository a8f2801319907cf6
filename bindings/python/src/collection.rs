//! Collections.

use std::sync::Arc;

use bolide::{CachedGet, Collection, RecordKind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::answers::AnswerShape;
use crate::errors::{self, attached, detached};
use crate::json_reader::read_record;
use crate::keys::{key_bytes, with_key};
use crate::records::{PyRecords, RecordPart, RecordShape, key_range};
use crate::session::{Released, Session, Shared, SharedUse};
use crate::signals::interruptible;
use crate::snapshot::{PySnapshot, optional};

/// A collection of records under keys, with indexes; made by ``Db.create_collection`` and ``Db.collection``.
///
/// It is used like a ``dict``. Records of JSON are ``dict`` objects; records of bytes are ``bytes``.
///
/// >>> orders["o4"] = {"state": "open"}
/// >>> orders["o4"]
/// {'state': 'open'}
/// >>> del orders["o4"]
/// >>> "o4" in orders
/// False
#[pyclass(frozen, name = "Collection", module = "bolide")]
pub(crate) struct PyCollection {
    collection: Released<Shared<Collection>>,
}

impl PyCollection {
    pub(crate) fn new(collection: Shared<Collection>) -> Self {
        Self { collection: Released::new(collection) }
    }

    pub(crate) fn read(&self) -> PyResult<SharedUse<'_, Collection>> {
        self.collection.read()
    }

    pub(crate) fn handle(&self) -> Shared<Collection> {
        Shared::clone(&self.collection)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.collection.session()
    }

    pub(crate) fn answer_shape(
        collection: &Collection,
        select: Option<&[String]>,
        has_snapshot: bool,
    ) -> AnswerShape {
        AnswerShape {
            keys: collection.key_format(),
            records: collection.records(),
            select: select.unwrap_or_default().to_vec(),
            has_snapshot,
        }
    }

    pub(crate) fn record_shape(collection: &Collection, is_raw: bool, part: RecordPart) -> RecordShape {
        RecordShape { keys: collection.key_format(), records: collection.records(), is_raw, part }
    }

    /// Runs `work` on the collection without the lock of the interpreter.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Collection) -> bolide::Result<T> + Send,
    ) -> PyResult<T> {
        let collection = self.read()?;
        let collection: &Collection = &collection;
        detached(py, || work(collection))
    }

    /// As [`run`](Self::run), for a read that signals end.
    pub(crate) fn run_reading<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Collection) -> bolide::Result<T> + Send,
    ) -> PyResult<T> {
        let collection = self.read()?;
        let collection: &Collection = &collection;
        interruptible(py, || work(collection))
    }

    /// Calls `then` with the record under a key.
    pub(crate) fn with_found<T>(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        at: Option<&Bound<'_, PySnapshot>>,
        then: impl FnOnce(Option<&[u8]>, RecordKind) -> PyResult<T>,
    ) -> PyResult<T> {
        let used = self.read()?;
        let collection: &Collection = &used;
        let kind = collection.records();
        with_key(key, collection.key_format(), |key| {
            if let Some(at) = at {
                let snapshot = at.get().cloned()?;
                let found = detached(py, || collection.get_at(&snapshot, key))?;
                return then(found.as_deref(), kind);
            }
            // Memory decides most reads: they need no release of the lock of the interpreter.
            match attached(|| collection.try_get_cached(key))? {
                CachedGet::Found(_, record) => then(Some(&record), kind),
                CachedGet::Absent => then(None, kind),
                CachedGet::NotCached => {
                    let found = detached(py, || collection.get_pinned(key))?;
                    then(found.as_ref().map(|(_, record)| &**record), kind)
                }
            }
        })
    }

    fn records(
        &self,
        py: Python<'_>,
        part: RecordPart,
        range: &RangeArguments<'_, '_>,
        is_raw: bool,
    ) -> PyResult<PyRecords> {
        let used = self.read()?;
        let collection: &Collection = &used;
        let mut options = key_range(collection.key_format(), range.prefix, range.start, range.end)?;
        if let Some(snapshot) = optional(range.at)? {
            options = options.snapshot(&snapshot);
        }
        let shape = Self::record_shape(collection, is_raw, part);
        let cursor = detached(py, || collection.cursor(&options))?;
        PyRecords::of_cursor(py, self.collection.session(), shape, cursor, range.is_reverse)
    }
}

/// Which keys an iterator visits.
struct RangeArguments<'a, 'py> {
    prefix: Option<&'a Bound<'py, PyAny>>,
    start: Option<&'a Bound<'py, PyAny>>,
    end: Option<&'a Bound<'py, PyAny>>,
    is_reverse: bool,
    at: Option<&'a Bound<'py, PySnapshot>>,
}

pub(crate) fn record_object<'py>(
    py: Python<'py>,
    record: &[u8],
    kind: RecordKind,
    raw: bool,
) -> PyResult<Bound<'py, PyAny>> {
    match kind {
        RecordKind::Json if !raw => read_record(py, record),
        _ => Ok(PyBytes::new(py, record).into_any()),
    }
}

#[pymethods]
impl PyCollection {
    /// The name.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.read()?.name().to_owned())
    }

    /// The record under ``key``, or ``default``. With ``raw`` it is returned as ``bytes``, as it is stored; with ``at`` it is
    /// that of a snapshot.
    ///
    /// >>> orders.get("o1")["total"], orders.get("o9", {}), orders.get("o2", raw=True)
    /// (12.5, {}, b'{"state":"done","customer":"bob","total":10}')
    #[pyo3(signature = (key, default=None, *, raw=false, at=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        raw: bool,
        at: Option<&Bound<'py, PySnapshot>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.with_found(py, key, at, |found, kind| match found {
            Some(record) => record_object(py, record, kind, raw).map(Some),
            None => Ok(default),
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.with_found(py, key, None, |found, kind| match found {
            Some(record) => record_object(py, record, kind, false),
            None => Err(errors::not_found(&format!("there is no record under the key {}", key.repr()?))),
        })
    }

    pub(crate) fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.with_found(py, key, None, |found, _| Ok(found.is_some()))
    }

    /// The records under ``keys``, in their order, all at one moment; ``None`` for those that do not exist.
    ///
    /// >>> [record and record["total"] for record in orders.multi_get(["o1", "o9", "o2"])]
    /// [12.5, None, 10]
    #[pyo3(signature = (keys, *, raw=false))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        raw: bool,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        let format = self.read()?.key_format();
        let kind = self.read()?.records();
        let keys = keys.try_iter()?.map(|key| key_bytes(&key?, format)).collect::<PyResult<Vec<_>>>()?;
        let found = self.run(py, |collection| collection.multi_get(&keys))?;
        found
            .iter()
            .map(|found| found.as_ref().map(|record| record_object(py, record, kind, raw)).transpose())
            .collect()
    }

    /// Keys and records in key order: with ``prefix``, from ``start``, before ``end``; from the end with ``reverse``.
    ///
    /// >>> with orders.items(start="o2", reverse=True) as items:
    /// ...     [(key, record["total"]) for key, record in items]
    /// [('o3', 20), ('o2', 10)]
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, raw=false, at=None))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        raw: bool,
        at: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<PyRecords> {
        let range = RangeArguments { prefix, start, end, is_reverse: reverse, at };
        self.records(py, RecordPart::Items, &range, raw)
    }

    /// Keys in key order; see :meth:`items`.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, at=None))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn keys(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        at: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<PyRecords> {
        let range = RangeArguments { prefix, start, end, is_reverse: reverse, at };
        self.records(py, RecordPart::Keys, &range, false)
    }

    /// Records in key order; see :meth:`items`.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, raw=false, at=None))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn values(
        &self,
        py: Python<'_>,
        prefix: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        raw: bool,
        at: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<PyRecords> {
        let range = RangeArguments { prefix, start, end, is_reverse: reverse, at };
        self.records(py, RecordPart::Values, &range, raw)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyRecords> {
        self.keys(py, None, None, None, false, None)
    }

    fn __repr__(&self) -> String {
        match self.read() {
            Ok(collection) => format!("<bolide.Collection {:?}>", collection.name()),
            Err(_) => "<bolide.Collection closed>".to_owned(),
        }
    }
}
