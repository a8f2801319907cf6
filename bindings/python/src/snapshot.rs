//! Snapshots.

use bolide::Snapshot;
use pyo3::prelude::*;

use crate::errors;
use crate::session::{Released, Shared};

/// All collections as they were at one moment.
///
/// >>> with db.snapshot() as before:
/// ...     orders.put("o1", {"state": "done"})
/// ...     orders.get("o1", at=before)["state"], orders["o1"]["state"]
/// ('open', 'done')
#[pyclass(frozen, name = "Snapshot", module = "bolide")]
pub(crate) struct PySnapshot {
    pub(crate) snapshot: Released<Shared<Snapshot>>,
}

impl PySnapshot {
    /// The snapshot itself, for an operation that may outlive the object.
    pub(crate) fn cloned(&self) -> PyResult<Snapshot> {
        Ok(self.snapshot.read()?.clone())
    }
}

/// The snapshot of an argument.
pub(crate) fn optional(at: Option<&Bound<'_, PySnapshot>>) -> PyResult<Option<Snapshot>> {
    at.map(|at| at.get().cloned()).transpose()
}

#[pymethods]
impl PySnapshot {
    /// The sequence number of the last visible write.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.snapshot.read()?.sequence())
    }

    /// Releases the snapshot, so that compactions may drop its versions. Does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.snapshot.session().is_closed() {
            return Ok(());
        }
        let taken = self.snapshot.take(py)?;
        errors::detached(py, || {
            drop(taken);
            Ok(())
        })
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        match self.snapshot.read() {
            Ok(snapshot) => format!("<bolide.Snapshot sequence={}>", snapshot.sequence()),
            Err(_) => "<bolide.Snapshot closed>".to_owned(),
        }
    }
}
