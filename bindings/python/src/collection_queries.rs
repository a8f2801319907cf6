//! Queries of a collection.

use std::ops::ControlFlow;

use bolide::{Collection, FindOptions, Query, Snapshot};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::answers::PyAnswers;
use crate::collection::PyCollection;
use crate::errors::detached;
use crate::filter::value_object;
use crate::prepared::PyPreparedQuery;
use crate::query::{QuerySettings, plain_query, query_from, query_of};
use crate::reports::{PyEstimate, PySummary};
use crate::session::{Exclusive, Released, Shared};
use crate::signals::interruptible;
use crate::snapshot::{PySnapshot, optional};
use crate::table::{self, PyArrowTable, TableSettings};

/// The largest limit of a query whose answers are found at once.
const MAX_ANSWERS_AT_ONCE: usize = 1_024;

fn find_options(snapshot: Option<Snapshot>, measure: bool) -> FindOptions {
    let options = FindOptions::default().measure(measure);
    match snapshot {
        Some(snapshot) => options.snapshot(&snapshot),
        None => options,
    }
}

#[pymethods]
impl PyCollection {
    /// The records that satisfy a filter and all equalities, newest first.
    ///
    /// ``filter`` is a ``Filter`` or its text. ``order`` is ``"newest"``, ``"oldest"``, ``"value"`` or ``"value-desc"``;
    /// ``sort`` is ``"PATH"``, ``"PATH:desc"`` or a list of these. ``limit_per_value`` limits the answers for each value of
    /// the first range. ``after`` is the token of a page before. ``select`` returns values of attributes instead of records,
    /// ``parts`` the parts of records at these paths, a ``dict`` by path, ``keys_only`` neither. ``at`` reads a snapshot,
    /// ``index`` names the index to use, ``measure`` measures times for ``explain``.
    ///
    /// >>> [answer.key for answer in orders.find(state="open", limit=10)]
    /// ['o3', 'o1']
    /// >>> page = orders.find(bolide.ge("total", 10), order="value", limit=2)
    /// >>> [answer.key for answer in page]
    /// ['o2', 'o1']
    /// >>> page = orders.find(bolide.ge("total", 10), order="value", limit=2, after=page.next_token)
    /// >>> [answer["total"] for answer in page], page.next_token
    /// ([20], None)
    #[pyo3(signature = (
        filter=None, /, *, order=None, sort=None, limit=None, limit_per_value=None, after=None, index=None, select=None,
        parts=None, keys_only=false, at=None, measure=false, **equal
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn find(
        &self,
        py: Python<'_>,
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
        at: Option<&Bound<'_, PySnapshot>>,
        measure: bool,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyAnswers> {
        let (select, parts) = (select.as_deref(), parts.as_deref());
        let settings =
            QuerySettings { order, sort, limit, limit_per_value, after, index, select, parts, keys_only };
        let query = query_of(filter, equal, &settings)?;
        let used = self.read()?;
        let collection: &Collection = &used;
        let options = find_options(optional(at)?, measure);
        let shape = Self::answer_shape(collection, select, at.is_some());
        if limit.is_some_and(|limit| limit <= MAX_ANSWERS_AT_ONCE) {
            let mut found = Vec::new();
            let outcome = interruptible(py, || {
                collection.visit(&query, &options, |answer| {
                    found.push(answer.to_answer());
                    Ok(ControlFlow::Continue(()))
                })
            })?;
            return Ok(PyAnswers::complete(shape, found, outcome));
        }
        let cursor = interruptible(py, || collection.answers(&query, &options))?;
        let cursor = Exclusive::new(self.session(), cursor)?;
        // Pulling handles signals: their handlers may close the database.
        drop(used);
        PyAnswers::pulled(py, shape, cursor)
    }

    /// A query that runs for many values of the attribute at ``path``; see ``PreparedQuery``. The other arguments are those of
    /// :meth:`find`.
    ///
    /// >>> newest = orders.prepare("state", limit=1)
    /// >>> [[answer.key for answer in newest.find(state)] for state in ("open", "done", "none")]
    /// [['o3'], ['o2'], []]
    #[pyo3(signature = (
        path, filter=None, /, *, order=None, sort=None, limit=None, limit_per_value=None, index=None, select=None,
        parts=None, keys_only=false, **equal
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn prepare(
        &self,
        py: Python<'_>,
        path: &str,
        filter: Option<&Bound<'_, PyAny>>,
        order: Option<&str>,
        sort: Option<&Bound<'_, PyAny>>,
        limit: Option<usize>,
        limit_per_value: Option<usize>,
        index: Option<&str>,
        select: Option<Vec<String>>,
        parts: Option<Vec<String>>,
        keys_only: bool,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyPreparedQuery> {
        let (select, parts) = (select.as_deref(), parts.as_deref());
        let settings = QuerySettings {
            order,
            sort,
            limit,
            limit_per_value,
            after: None,
            index,
            select,
            parts,
            keys_only,
        };
        let query = query_from(Query::new().eq(path, 0), filter, equal, &settings)?;
        let used = self.read()?;
        let collection: &Collection = &used;
        let shape = Self::answer_shape(collection, select, false);
        let prepared = detached(py, || collection.prepare(query, FindOptions::default()))?;
        Ok(PyPreparedQuery::new(shape, Exclusive::new(self.session(), prepared)?))
    }

    /// How many records satisfy a filter and all equalities; without any, the number of records.
    ///
    /// >>> orders.count(), orders.count(state="open"), orders.count("total > 15")
    /// (3, 2, 1)
    #[pyo3(signature = (filter=None, /, *, at=None, index=None, **equal))]
    fn count(
        &self,
        py: Python<'_>,
        filter: Option<&Bound<'_, PyAny>>,
        at: Option<&Bound<'_, PySnapshot>>,
        index: Option<&str>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let settings = QuerySettings { index, ..QuerySettings::default() };
        let query = query_of(filter, equal, &settings)?.count();
        let _use = self.read()?;
        let options = find_options(optional(at)?, false);
        let outcome = self.run_reading(py, |collection| {
            collection.visit(&query, &options, |_| Ok(ControlFlow::Continue(())))
        })?;
        Ok(outcome.count())
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The planner's estimate for a query, without reading data.
    ///
    /// >>> orders.estimate(state="open").indexes
    /// ['state']
    #[pyo3(signature = (filter=None, /, **equal))]
    fn estimate(
        &self,
        py: Python<'_>,
        filter: Option<&Bound<'_, PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyEstimate> {
        let query = plain_query(filter, equal)?;
        self.run_reading(py, |collection| collection.estimate(&query)).map(PyEstimate)
    }

    /// Number, sum, smallest and largest value of the attribute at ``path``, over a filter and all equalities.
    #[pyo3(signature = (path, filter=None, /, **equal))]
    fn summarize(
        &self,
        py: Python<'_>,
        path: &str,
        filter: Option<&Bound<'_, PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PySummary> {
        let query = plain_query(filter, equal)?;
        self.run_reading(py, |collection| collection.summarize(&query, path)).map(PySummary)
    }

    /// The distinct values of the attribute at ``path``, each with its number of records. More than ``max`` are an error.
    ///
    /// >>> orders.distinct("state")
    /// [('done', 1), ('open', 2)]
    #[pyo3(signature = (path, filter=None, /, *, max=100_000, **equal))]
    fn distinct<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        filter: Option<&Bound<'_, PyAny>>,
        max: usize,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, u64)>> {
        let query = plain_query(filter, equal)?;
        let found = self.run_reading(py, |collection| collection.distinct(&query, path, max))?;
        found.iter().map(|(value, count)| Ok((value_object(py, value)?, *count))).collect()
    }

    /// The smallest value of the attribute at ``path``; ``None`` without any.
    #[pyo3(signature = (path, filter=None, /, **equal))]
    fn smallest<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        filter: Option<&Bound<'_, PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let query = plain_query(filter, equal)?;
        let found = self.run_reading(py, |collection| collection.smallest(&query, path))?;
        found.as_ref().map(|value| value_object(py, value)).transpose()
    }

    /// The largest value of the attribute at ``path``; ``None`` without any.
    ///
    /// >>> orders.smallest("total"), orders.largest("total", state="open")
    /// (10, 20)
    #[pyo3(signature = (path, filter=None, /, **equal))]
    fn largest<'py>(
        &self,
        py: Python<'py>,
        path: &str,
        filter: Option<&Bound<'_, PyAny>>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let query = plain_query(filter, equal)?;
        let found = self.run_reading(py, |collection| collection.largest(&query, path))?;
        found.as_ref().map(|value| value_object(py, value)).transpose()
    }

    /// The records that satisfy a filter and all equalities as an Arrow stream: an object with ``__arrow_c_stream__``, which
    /// pandas, polars, pyarrow and duckdb read. It is lazy: each stream is a new query, in bounded batches. All records of a
    /// collection are read by ``threads`` threads, by default as many as there are cores, up to 8; their order is that of the
    /// keys.
    ///
    /// ``columns`` maps names to types: ``int64``, ``float64``, ``string``, ``bool``, ``date``, ``timestamp`` (ISO text),
    /// ``timestamp[ms]`` (integers), ``json``, ``list<…>`` of these; a name is a path as ``user.id``, or ``_key``,
    /// ``_sequence``, ``_record`` (the whole record). A list of names, or ``None`` for all, infers the types from a sample. A
    /// value of another type than that of its column is NULL.
    ///
    /// >>> table = orders.arrow(state="open", columns={"_key": "string", "total": "float64"})
    /// >>> table.columns
    /// {'_key': 'string', 'total': 'float64'}
    /// >>> import pyarrow
    /// >>> pyarrow.table(table).to_pydict()
    /// {'_key': ['o3', 'o1'], 'total': [20.0, 12.5]}
    #[pyo3(signature = (
        filter=None, /, *, columns=None, order=None, sort=None, limit=None, index=None, at=None, batch_rows=8192, threads=None,
        **equal
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn arrow(
        &self,
        py: Python<'_>,
        filter: Option<&Bound<'_, PyAny>>,
        columns: Option<&Bound<'_, PyAny>>,
        order: Option<&str>,
        sort: Option<&Bound<'_, PyAny>>,
        limit: Option<usize>,
        index: Option<&str>,
        at: Option<&Bound<'_, PySnapshot>>,
        batch_rows: usize,
        threads: Option<usize>,
        equal: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyArrowTable> {
        let settings = QuerySettings { order, sort, limit, index, ..QuerySettings::default() };
        let query = query_of(filter, equal, &settings)?;
        let is_whole = query.predicates().is_empty()
            && query.terms().is_empty()
            && order.is_none()
            && sort.is_none()
            && limit.is_none()
            && index.is_none();
        let used = self.read()?;
        let columns = table::columns_of(py, &used, columns, optional(at)?)?;
        let snapshot = at.map(|at| Released::new(Shared::clone(&at.get().snapshot)));
        let threads =
            threads.map_or_else(table::default_threads, |threads| threads.clamp(1, table::MAX_THREADS));
        let settings = TableSettings { query, is_whole, snapshot, batch_rows, threads };
        Ok(PyArrowTable::new(self.handle(), columns, settings))
    }
}
