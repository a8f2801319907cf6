//! Prepared queries.

use std::ops::ControlFlow;
use std::sync::Arc;

use bolide::PreparedQuery;
use pyo3::prelude::*;

use crate::answers::{AnswerShape, PyAnswer, PyExplain};
use crate::filter::value_of;
use crate::session::{Exclusive, Released};
use crate::snapshot::{PySnapshot, optional};

/// A query that is prepared once and runs for many values of an attribute; made by ``Collection.prepare``.
///
/// It saves the choice of the index and the memory of a run. One thread runs it at a time: threads that run it together
/// prepare one each. Close it after the last run, or use it in a ``with`` statement.
///
/// >>> with orders.prepare("customer", keys_only=True) as by_customer:
/// ...     [answer.key for answer in by_customer.find("bob")]
/// ['o3', 'o2']
#[pyclass(frozen, name = "PreparedQuery", module = "bolide")]
pub(crate) struct PyPreparedQuery {
    shape: Arc<AnswerShape>,
    prepared: Released<Exclusive<PreparedQuery>>,
}

impl PyPreparedQuery {
    pub(crate) fn new(shape: AnswerShape, prepared: Exclusive<PreparedQuery>) -> Self {
        Self { shape: Arc::new(shape), prepared: Released::new(prepared) }
    }
}

#[pymethods]
impl PyPreparedQuery {
    /// The answers for ``value``, at a snapshot with ``at``.
    #[pyo3(signature = (value, *, at=None))]
    fn find(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        at: Option<&Bound<'_, PySnapshot>>,
    ) -> PyResult<Vec<PyAnswer>> {
        let (value, snapshot) = (value_of(value)?, optional(at)?);
        let found = self.prepared.with(py, |prepared| {
            let mut found = Vec::new();
            prepared.set_snapshot(snapshot.as_ref());
            let run = prepared.visit(&value, |answer| {
                found.push(answer.to_answer());
                Ok(ControlFlow::Continue(()))
            });
            // The snapshot ends with the run.
            prepared.set_snapshot(None);
            run.map(|_| found)
        })?;
        Ok(found.into_iter().map(|answer| PyAnswer::new(self.shape.clone(), answer)).collect())
    }

    /// The report of the last run; ``None`` before the first one and after one that failed.
    #[getter]
    fn explain(&self, py: Python<'_>) -> PyResult<Option<PyExplain>> {
        let outcome = self.prepared.with(py, |prepared| Ok(prepared.outcome()))?;
        Ok(outcome.map(|outcome| PyExplain(outcome.into_explain())))
    }

    /// Releases the indexes that it has pinned. Does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.prepared.close(py)
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.close(py)
    }
}
