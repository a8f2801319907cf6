//! Indexes and maintenance of a collection.

use bolide::advisor::Workload;
use bolide::{Collection, IndexBuild, IndexInfo};
use pyo3::prelude::*;

use crate::collection::PyCollection;
use crate::errors::{detached, from_engine};
use crate::index::{PyIndex, PyIndexBuild, build_options, spec_of};
use crate::reports::{PyAdvice, PyCheckReport};
use crate::session::{Released, Shared};
use crate::settings;

#[pymethods]
impl PyCollection {
    /// The indexes, in the order of their creation.
    #[getter]
    fn indexes(&self) -> PyResult<Vec<PyIndex>> {
        Ok(self.read()?.indexes().into_iter().map(PyIndex).collect())
    }

    /// The index of this name.
    fn index(&self, name: &str) -> PyResult<PyIndex> {
        let found: bolide::Result<IndexInfo> = self.read()?.index(name);
        found.map(PyIndex).map_err(|error| from_engine(&error))
    }

    /// Creates an index, as ``"state"``, ``"total:composite"`` or ``"tags[*]:next"``, and fills it. Other threads read and write
    /// meanwhile. With ``background`` it returns at once, with an ``IndexBuild`` that reports the progress; otherwise when queries
    /// can use the index.
    ///
    /// >>> orders.create_index("customer").name
    /// 'customer'
    #[pyo3(signature = (spec, *, background=false, records_per_second=None, bytes_per_second=None))]
    fn create_index<'py>(
        &self,
        py: Python<'py>,
        spec: &str,
        background: bool,
        records_per_second: Option<u64>,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (spec, options) = (spec_of(spec)?, build_options(records_per_second, bytes_per_second));
        let build = self.begin_build(py, |collection| collection.create_index_background(spec, &options))?;
        self.wait_for(py, build, background)
    }

    /// Builds an index again from the records, and replaces the one of this name, which queries use until then. After an
    /// interrupt the build goes on in the background.
    #[pyo3(signature = (name, *, background=false, records_per_second=None, bytes_per_second=None))]
    fn rebuild_index<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        background: bool,
        records_per_second: Option<u64>,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = build_options(records_per_second, bytes_per_second);
        let build = self.begin_build(py, |collection| collection.rebuild_index_background(name, &options))?;
        if background {
            return Ok(Bound::new(py, build)?.into_any());
        }
        build.wait(py, None)?;
        Ok(Bound::new(py, self.index(name)?)?.into_any())
    }

    /// Drops an index.
    fn drop_index(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |collection| collection.drop_index(name))
    }

    /// Advises an index for the attribute at ``path``, with the reasons. Reads all records.
    ///
    /// ``writes`` is the expected share of writes among all operations, ``lookups`` that of lookups by the attribute among
    /// reads, ``limit`` the number of answers of a lookup (0 for all).
    #[pyo3(signature = (path, *, writes=0.5, lookups=0.5, limit=10, space_is_scarce=false, keys_only=false))]
    #[allow(clippy::too_many_arguments, reason = "they are the keywords of Python")]
    fn advise(
        &self,
        py: Python<'_>,
        path: &str,
        writes: f64,
        lookups: f64,
        limit: usize,
        space_is_scarce: bool,
        keys_only: bool,
    ) -> PyResult<PyAdvice> {
        let attribute: bolide::AttributePath = path.parse().map_err(|error| from_engine(&error))?;
        let mut workload = Workload::default();
        workload.writes = writes;
        workload.lookups = lookups;
        workload.limit = (limit > 0).then_some(limit);
        workload.space_is_scarce = space_is_scarce;
        workload.keys_only = keys_only;
        self.run_reading(py, |collection| collection.advise(&attribute, &workload)).map(PyAdvice)
    }

    /// Compares all indexes with the records.
    fn check_indexes(&self, py: Python<'_>) -> PyResult<PyCheckReport> {
        self.run_reading(py, Collection::check_indexes).map(PyCheckReport)
    }

    /// Merges all sorted runs of the collection and its indexes.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.handle().run_in_background(py, Collection::compact)
    }

    /// Changes the layout, by compactions in the background.
    fn set_layout(&self, py: Python<'_>, layout: &str) -> PyResult<()> {
        let layout = settings::layout(layout)?;
        self.handle().run_in_background(py, move |collection| collection.set_layout(layout))
    }
}

impl PyCollection {
    fn begin_build(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&Collection) -> bolide::Result<IndexBuild> + Send,
    ) -> PyResult<PyIndexBuild> {
        let used = self.read()?;
        let collection: &Collection = &used;
        let build = detached(py, || begin(collection))?;
        Ok(PyIndexBuild { build: Released::new(Shared::new(self.session(), build)?) })
    }

    /// The build itself, or its index after it has ended.
    fn wait_for<'py>(
        &self,
        py: Python<'py>,
        build: PyIndexBuild,
        background: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if background {
            return Ok(Bound::new(py, build)?.into_any());
        }
        let name = build.name()?;
        match build.wait(py, None) {
            Ok(_) => Ok(Bound::new(py, self.index(&name)?)?.into_any()),
            Err(error) => {
                // As without a background: after an error there is no index.
                let _ = self.drop_index(py, &name);
                Err(error)
            }
        }
    }
}
