//! Indexes and their builds.

use std::time::{Duration, Instant};

use bolide::{BuildOptions, BuildProgress, IndexBuild, IndexInfo};
use pyo3::prelude::*;

use crate::errors::{detached, from_engine};
use crate::session::{Released, Shared};

/// The longest time without a look at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

/// An index of a collection, as it was when it was read.
///
/// >>> index = orders.index("state")
/// >>> index.name, index.state, index.progress.share
/// ('state', 'ready', 1.0)
#[pyclass(frozen, name = "Index", module = "bolide")]
pub(crate) struct PyIndex(pub(crate) IndexInfo);

#[pymethods]
impl PyIndex {
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The declaration, as ``create_index`` takes it.
    #[getter]
    fn spec(&self) -> String {
        self.0.spec().to_string()
    }

    /// The kind.
    #[getter]
    fn kind(&self) -> String {
        self.0.spec().kind().name().to_owned()
    }

    /// The paths of the attributes.
    #[getter]
    fn attributes(&self) -> Vec<String> {
        self.0.spec().attributes().iter().map(ToString::to_string).collect()
    }

    /// Whether queries use it: ``"ready"``, or what it waits for.
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state().name()
    }

    /// The progress of its build.
    #[getter]
    fn progress(&self) -> PyBuildProgress {
        PyBuildProgress(*self.0.progress())
    }

    /// The progress of the index that will replace it; ``None`` without one.
    #[getter]
    fn rebuild(&self) -> Option<PyBuildProgress> {
        self.0.rebuild().copied().map(PyBuildProgress)
    }

    /// Why its build failed; ``None`` if it did not.
    #[getter]
    fn problem(&self) -> Option<String> {
        self.0.problem().map(ToString::to_string)
    }

    /// Its damage; ``None`` if there is none.
    #[getter]
    fn damage(&self) -> Option<String> {
        self.0.damage().map(ToString::to_string)
    }

    fn __repr__(&self) -> String {
        format!("<bolide.Index {} {}>", self.0.spec(), self.0.state().name())
    }
}

/// The progress of an index build.
#[pyclass(frozen, name = "BuildProgress", module = "bolide")]
pub(crate) struct PyBuildProgress(BuildProgress);

#[pymethods]
impl PyBuildProgress {
    /// The completed share, from 0 to 1.
    #[getter]
    fn share(&self) -> f64 {
        self.0.share()
    }

    /// Records whose entries are in the index.
    #[getter]
    fn records(&self) -> u64 {
        self.0.records
    }

    /// The estimated number of records to read.
    #[getter]
    fn expected_records(&self) -> u64 {
        self.0.expected_records
    }

    /// Entries that were added.
    #[getter]
    fn entries(&self) -> u64 {
        self.0.entries
    }

    /// Malformed records that were skipped.
    #[getter]
    fn malformed(&self) -> u64 {
        self.0.malformed
    }

    /// Seconds since the start, or the duration.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.0.elapsed.as_secs_f64()
    }

    /// Records that are read per second.
    #[getter]
    fn records_per_second(&self) -> f64 {
        self.0.records_per_second()
    }

    /// Whether queries use the index: ``"ready"``, or what it waits for.
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state.name()
    }

    fn __repr__(&self) -> String {
        format!("<bolide.BuildProgress {:.0} %, {} records>", self.0.share() * 100.0, self.0.records)
    }
}

/// An index that is built in the background.
///
/// >>> build = orders.create_index("customer:composite", background=True)
/// >>> build.wait()
/// True
/// >>> build.progress.share
/// 1.0
#[pyclass(frozen, name = "IndexBuild", module = "bolide")]
pub(crate) struct PyIndexBuild {
    pub(crate) build: Released<Shared<IndexBuild>>,
}

#[pymethods]
impl PyIndexBuild {
    /// The name of the index.
    #[getter]
    pub(crate) fn name(&self) -> PyResult<String> {
        Ok(self.build.read()?.name().to_owned())
    }

    /// The progress.
    #[getter]
    fn progress(&self) -> PyResult<PyBuildProgress> {
        Ok(PyBuildProgress(self.build.read()?.progress()))
    }

    /// Whether the build has ended, successfully or not.
    #[getter]
    fn is_finished(&self) -> PyResult<bool> {
        Ok(self.build.read()?.is_finished())
    }

    /// Waits until queries can use the index, at most ``timeout`` seconds. Returns whether they can. Raises the error of the
    /// build.
    #[pyo3(signature = (timeout=None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pause = Duration::from_micros(200);
        loop {
            // Not held between two looks, so that the database can be closed.
            let used = self.build.read()?;
            if used.is_finished() {
                let build: &IndexBuild = &used;
                return detached(py, || build.wait()).map(|()| true);
            }
            drop(used);
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
            py.detach(|| std::thread::sleep(pause));
            pause = (2 * pause).min(SIGNAL_INTERVAL);
            py.check_signals()?;
        }
    }
}

/// The options of a build.
pub(crate) fn build_options(records_per_second: Option<u64>, bytes_per_second: Option<u64>) -> BuildOptions {
    let mut options = BuildOptions::default();
    if let Some(records) = records_per_second {
        options = options.records_per_second(records);
    }
    if let Some(bytes) = bytes_per_second {
        options = options.bytes_per_second(bytes);
    }
    options
}

/// A declaration of an index.
pub(crate) fn spec_of(text: &str) -> PyResult<bolide::IndexSpec> {
    text.parse().map_err(|error| from_engine(&error))
}
