//! Reports: checks, advice, estimates, summaries, statistics.

use bolide::advisor::Advice;
use bolide::{AttributeSummary, BulkProgress, CheckReport, DbStats, QueryEstimate};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::filter::value_object;

/// The result of a check.
///
/// >>> report = db.check(deep=True)
/// >>> report.is_sound, report.problems
/// (True, [])
#[pyclass(frozen, name = "CheckReport", module = "bolide")]
pub(crate) struct PyCheckReport(pub(crate) CheckReport);

#[pymethods]
impl PyCheckReport {
    /// Whether there is no problem.
    #[getter]
    fn is_sound(&self) -> bool {
        self.0.is_sound()
    }

    /// All problems, as text.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems().to_vec()
    }

    /// Records that are malformed: an older version stored them without validation.
    #[getter]
    fn malformed_records(&self) -> u64 {
        self.0.malformed_records
    }

    /// Collection and index of each index that was compared with its records.
    #[getter]
    fn indexes(&self) -> Vec<(String, String)> {
        self.0.indexes.iter().map(|checked| (checked.collection.clone(), checked.index.clone())).collect()
    }

    fn __bool__(&self) -> bool {
        self.0.is_sound()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<bolide.CheckReport {} problems>", self.0.problems().len())
    }
}

/// Advice on an index for an attribute.
///
/// >>> advice = orders.advise("customer")
/// >>> _ = orders.create_index(advice.spec)
#[pyclass(frozen, name = "Advice", module = "bolide")]
pub(crate) struct PyAdvice(pub(crate) Advice);

#[pymethods]
impl PyAdvice {
    /// A declaration for ``create_index``.
    #[getter]
    fn spec(&self) -> &str {
        &self.0.spec
    }

    /// The advised kind.
    #[getter]
    fn kind(&self) -> String {
        self.0.kind.name().to_owned()
    }

    /// The reasons, the decisive one first.
    #[getter]
    fn reasons(&self) -> Vec<String> {
        self.0.reasons.clone()
    }

    /// The other kinds, with the reasons against them.
    #[getter]
    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let others = PyDict::new(py);
        for (kind, reason) in &self.0.others {
            others.set_item(kind.name(), reason)?;
        }
        Ok(others)
    }

    fn __repr__(&self) -> String {
        format!("<bolide.Advice {}>", self.0.spec)
    }
}

/// What a query would cost: the planner's estimate, without reading data.
#[pyclass(frozen, name = "Estimate", module = "bolide")]
pub(crate) struct PyEstimate(pub(crate) QueryEstimate);

#[pymethods]
impl PyEstimate {
    /// The number of answers.
    #[getter]
    fn records(&self) -> u64 {
        self.0.records
    }

    /// Whether the number is exact.
    #[getter]
    fn is_exact(&self) -> bool {
        self.0.is_exact
    }

    /// The time, in microseconds, with all blocks cached.
    #[getter]
    fn micros(&self) -> f64 {
        self.0.nanos as f64 / 1_000.0
    }

    /// The indexes of the plan; none for a scan.
    #[getter]
    fn indexes(&self) -> Vec<String> {
        self.0.indexes.clone()
    }

    fn __repr__(&self) -> String {
        format!("<bolide.Estimate {} records, indexes {:?}>", self.0.records, self.0.indexes)
    }
}

/// The values of an attribute over the answers to a query.
///
/// >>> summary = orders.summarize("total")
/// >>> summary.records, summary.sum, summary.min, summary.max
/// (3, 42.5, 10, 20)
#[pyclass(frozen, name = "Summary", module = "bolide")]
pub(crate) struct PySummary(pub(crate) AttributeSummary);

#[pymethods]
impl PySummary {
    /// The records that satisfy the query.
    #[getter]
    fn records(&self) -> u64 {
        self.0.records
    }

    /// The values, equal ones of a record once.
    #[getter]
    fn values(&self) -> u64 {
        self.0.values
    }

    /// The numbers among the values.
    #[getter]
    fn numbers(&self) -> u64 {
        self.0.numbers
    }

    /// The sum of the numbers: an ``int``, which is exact, if all are integers.
    #[getter]
    fn sum<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.0.integer_sum.and_then(|sum| i64::try_from(sum).ok()) {
            Some(sum) => sum.into_pyobject(py)?.into_any(),
            None => self.0.sum.into_pyobject(py)?.into_any(),
        })
    }

    /// The mean of the numbers; ``None`` without any.
    #[getter]
    fn mean(&self) -> Option<f64> {
        self.0.mean()
    }

    /// The smallest value; ``None`` without any.
    #[getter]
    fn min<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.min.as_ref().map(|value| value_object(py, value)).transpose()
    }

    /// The largest value; ``None`` without any.
    #[getter]
    fn max<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.max.as_ref().map(|value| value_object(py, value)).transpose()
    }
}

/// The result of an update or delete of all answers.
#[pyclass(frozen, name = "BulkProgress", module = "bolide")]
pub(crate) struct PyBulkProgress(pub(crate) BulkProgress);

#[pymethods]
impl PyBulkProgress {
    /// Records that satisfied the query.
    #[getter]
    fn found(&self) -> u64 {
        self.0.found
    }

    /// Records that were changed; in a dry run those that would be.
    #[getter]
    fn changed(&self) -> u64 {
        self.0.changed
    }

    /// Records that were skipped, because another thread wrote them meanwhile.
    #[getter]
    fn skipped(&self) -> u64 {
        self.0.skipped
    }

    /// A text with which ``resume`` continues the operation; ``None`` if it is complete.
    #[getter]
    fn position(&self) -> Option<String> {
        self.0.position.as_ref().map(ToString::to_string)
    }

    fn __repr__(&self) -> String {
        format!(
            "<bolide.BulkProgress found={} changed={} skipped={}>",
            self.0.found, self.0.changed, self.0.skipped
        )
    }
}

/// The statistics of a database as a `dict`.
pub(crate) fn stats_object<'py>(py: Python<'py>, stats: &DbStats) -> PyResult<Bound<'py, PyDict>> {
    let object = PyDict::new(py);
    object.set_item("sequence", stats.sequence)?;
    object.set_item("views", stats.views)?;
    object.set_item("disk_bytes", stats.disk_bytes())?;
    object.set_item("log_segment_bytes", stats.log_segment_bytes)?;
    object.set_item("write_amplification", stats.write_amplification())?;
    object.set_item("memory_limit_bytes", stats.memory.limit_bytes)?;
    object.set_item("memory_used_bytes", stats.memory.used_bytes())?;
    object.set_item(
        "background_errors",
        stats.background_errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
    )?;
    let collections = PyList::empty(py);
    for collection in &stats.collections {
        let found = PyDict::new(py);
        found.set_item("name", &collection.name)?;
        found.set_item("entries", collection.table.entries + collection.table.memtable_entries as u64)?;
        found.set_item("disk_bytes", collection.table.disk_bytes)?;
        found.set_item("malformed", collection.malformed)?;
        let indexes = PyList::empty(py);
        for index in &collection.indexes {
            let of_index = PyDict::new(py);
            of_index.set_item("name", &index.name)?;
            of_index.set_item("spec", &index.spec)?;
            of_index.set_item("state", index.state.name())?;
            of_index.set_item("disk_bytes", index.tree.disk_bytes)?;
            indexes.append(of_index)?;
        }
        found.set_item("indexes", indexes)?;
        collections.append(found)?;
    }
    object.set_item("collections", collections)?;
    Ok(object)
}
