//! Filters: conditions on attributes, joined by operators.

use std::ops::Bound as RangeEnd;

use bolide::{Filter, Point, Rect, Value};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use crate::errors::{self, attached};
use crate::keys::text_of;

/// The value of an object.
pub(crate) fn value_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::from(text_of(text)?));
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        if let Ok(int) = object.extract::<i64>() {
            return Ok(Value::Int(int));
        }
        return object
            .extract::<u64>()
            .map(Value::Uint)
            .map_err(|_| errors::invalid_input(format!("the integer {object} has more than 64 bits")));
    }
    if let Ok(float) = object.cast::<PyFloat>() {
        return Ok(Value::Float(float.value()));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    Err(PyTypeError::new_err(format!(
        "a value is str, int, float, bool or None, not {}",
        object.get_type().name()?
    )))
}

/// The object of a value; rectangles are lists of their four coordinates.
pub(crate) fn value_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint(value) => value.into_pyobject(py)?.into_any(),
        Value::Float(value) => PyFloat::new(py, *value).into_any(),
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Rect(rect) => rect.corners().to_vec().into_pyobject(py)?.into_any(),
    })
}

/// A condition on records; joined with others by ``&``, ``|`` and ``~``.
///
/// >>> filter = bolide.eq("state", "open") & ~bolide.eq("customer", "ada")
/// >>> str(filter)
/// 'state = "open" and not customer = "ada"'
/// >>> [answer.key for answer in orders.find(filter)]
/// ['o3']
#[pyclass(frozen, name = "Filter", module = "bolide")]
pub(crate) struct PyFilter(pub(crate) Filter);

impl PyFilter {
    fn checked(filter: Filter) -> PyResult<Self> {
        attached(|| filter.check())?;
        Ok(Self(filter))
    }
}

#[pymethods]
impl PyFilter {
    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::checked(self.0.clone().and(filter_of(other)?))
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::checked(self.0.clone().or(filter_of(other)?))
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::checked(filter_of(other)?.and(self.0.clone()))
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::checked(filter_of(other)?.or(self.0.clone()))
    }

    fn __invert__(&self) -> PyResult<Self> {
        Self::checked(Filter::not(self.0.clone()))
    }

    fn __bool__(&self) -> PyResult<bool> {
        Err(PyTypeError::new_err(
            "a filter has no truth value: join filters by &, | and ~, not by and, or and not",
        ))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<bolide.Filter {}>", self.0)
    }
}

/// The filter of a `Filter` object or of its text form.
pub(crate) fn filter_of(object: &Bound<'_, PyAny>) -> PyResult<Filter> {
    if let Ok(filter) = object.cast::<PyFilter>() {
        return Ok(filter.get().0.clone());
    }
    if let Ok(text) = object.cast::<PyString>() {
        let text = text_of(text)?;
        return attached(|| Filter::parse(text));
    }
    Err(PyTypeError::new_err(format!("a filter is a Filter or its text, not {}", object.get_type().name()?)))
}

/// An attribute, which comparisons turn into filters.
///
/// >>> total = bolide.attribute("total")
/// >>> str((total > 10) & (total <= 20))
/// 'total > 10 and total <= 20'
#[pyclass(frozen, name = "Attribute", module = "bolide")]
pub(crate) struct PyAttribute {
    path: String,
}

#[pymethods]
impl PyAttribute {
    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operator: CompareOp) -> PyResult<PyFilter> {
        match operator {
            CompareOp::Eq => eq(&self.path, other),
            CompareOp::Ne => ne(&self.path, other),
            CompareOp::Lt => lt(&self.path, other),
            CompareOp::Le => le(&self.path, other),
            CompareOp::Gt => gt(&self.path, other),
            CompareOp::Ge => ge(&self.path, other),
        }
    }

    fn __hash__(&self) -> PyResult<isize> {
        Err(PyTypeError::new_err("an attribute has no hash: == makes a filter"))
    }

    fn __repr__(&self) -> String {
        format!("bolide.attribute({:?})", self.path)
    }

    /// The path.
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }
}

/// The attribute at ``path``, for comparisons: ``attribute("total") > 10``.
#[pyfunction]
fn attribute(path: String) -> PyResult<PyAttribute> {
    PyFilter::checked(Filter::exists(&path))?;
    Ok(PyAttribute { path })
}

/// A value of the attribute equals ``value``.
#[pyfunction]
fn eq(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::eq(path, value_of(value)?))
}

/// No value of the attribute equals ``value``; true for an absent attribute.
#[pyfunction]
fn ne(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::not(Filter::eq(path, value_of(value)?)))
}

fn range(path: &str, low: RangeEnd<Value>, high: RangeEnd<Value>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::range(path, (low, high)))
}

/// A value of the attribute is less than ``value``.
#[pyfunction]
fn lt(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    range(path, RangeEnd::Unbounded, RangeEnd::Excluded(value_of(value)?))
}

/// A value of the attribute is at most ``value``.
#[pyfunction]
fn le(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    range(path, RangeEnd::Unbounded, RangeEnd::Included(value_of(value)?))
}

/// A value of the attribute is greater than ``value``.
#[pyfunction]
fn gt(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    range(path, RangeEnd::Excluded(value_of(value)?), RangeEnd::Unbounded)
}

/// A value of the attribute is at least ``value``.
#[pyfunction]
fn ge(path: &str, value: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    range(path, RangeEnd::Included(value_of(value)?), RangeEnd::Unbounded)
}

/// One value of the attribute is from ``low`` to ``high``. ``include`` names the ends that belong to it: ``"both"``,
/// ``"low"``, ``"high"`` or ``"neither"``.
///
/// >>> orders.count(bolide.between("total", 10, 20, include="low"))
/// 2
#[pyfunction]
#[pyo3(signature = (path, low, high, *, include="both"))]
fn between(path: &str, low: &Bound<'_, PyAny>, high: &Bound<'_, PyAny>, include: &str) -> PyResult<PyFilter> {
    let (has_low, has_high) = match include {
        "both" => (true, true),
        "low" => (true, false),
        "high" => (false, true),
        "neither" => (false, false),
        other => {
            return Err(errors::invalid_input(format!(
                "include {other:?}: the values are both, low, high, neither"
            )));
        }
    };
    let end = |value: Value, is_included| {
        if is_included { RangeEnd::Included(value) } else { RangeEnd::Excluded(value) }
    };
    range(path, end(value_of(low)?, has_low), end(value_of(high)?, has_high))
}

/// A value of the attribute equals one of ``values``, at most 10,000.
#[pyfunction]
fn one_of(path: &str, values: &Bound<'_, PyAny>) -> PyResult<PyFilter> {
    let values = values.try_iter()?.map(|value| value_of(&value?)).collect::<PyResult<Vec<Value>>>()?;
    PyFilter::checked(Filter::one_of(path, values))
}

/// A string of the attribute starts with ``text``.
#[pyfunction]
fn prefix(path: &str, text: &Bound<'_, PyString>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::prefix(path, text_of(text)?))
}

/// The attribute has a value, which may be null.
#[pyfunction]
fn exists(path: &str) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::exists(path))
}

/// The attribute has no value.
#[pyfunction]
fn absent(path: &str) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::absent(path))
}

/// The attribute has the value null.
#[pyfunction]
fn is_null(path: &str) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::is_null(path))
}

/// A point or rectangle of the attribute, ``rect(PATH)`` or ``point(X,Y)``, intersects this rectangle.
///
/// >>> orders.count(bolide.within("point(at.x,at.y)", 0, 50, 1, 52))
/// 1
#[pyfunction]
fn within(path: &str, min_x: f64, min_y: f64, max_x: f64, max_y: f64) -> PyResult<PyFilter> {
    let window = attached(|| Rect::new(min_x, min_y, max_x, max_y))?;
    PyFilter::checked(Filter::within(path, window))
}

/// Records with a point or rectangle at the attribute, the nearest to this point first.
///
/// >>> orders.find(bolide.nearest("point(at.x,at.y)", 0, 51), limit=1).all()[0].key
/// 'o1'
#[pyfunction]
fn nearest(path: &str, x: f64, y: f64) -> PyResult<PyFilter> {
    let point = attached(|| Point::new(x, y))?;
    PyFilter::checked(Filter::nearest(path, point))
}

/// The filter of a text: ``where('state = "open" and total > 10')``.
///
/// >>> [answer.key for answer in orders.find(bolide.where('state = "open" or total > 100'))]
/// ['o3', 'o1']
#[pyfunction]
#[pyo3(name = "where")]
fn parse(text: &Bound<'_, PyString>) -> PyResult<PyFilter> {
    Ok(PyFilter(filter_of(text)?))
}

/// True if all of ``filters`` are; true without any.
#[pyfunction]
#[pyo3(signature = (*filters))]
fn all_of(filters: Vec<Bound<'_, PyAny>>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::all(filters.iter().map(filter_of).collect::<PyResult<Vec<_>>>()?))
}

/// True if one of ``filters`` is; false without any.
#[pyfunction]
#[pyo3(signature = (*filters))]
fn any_of(filters: Vec<Bound<'_, PyAny>>) -> PyResult<PyFilter> {
    PyFilter::checked(Filter::any(filters.iter().map(filter_of).collect::<PyResult<Vec<_>>>()?))
}

pub(crate) fn add_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(attribute, module)?)?;
    module.add_function(wrap_pyfunction!(eq, module)?)?;
    module.add_function(wrap_pyfunction!(ne, module)?)?;
    module.add_function(wrap_pyfunction!(lt, module)?)?;
    module.add_function(wrap_pyfunction!(le, module)?)?;
    module.add_function(wrap_pyfunction!(gt, module)?)?;
    module.add_function(wrap_pyfunction!(ge, module)?)?;
    module.add_function(wrap_pyfunction!(between, module)?)?;
    module.add_function(wrap_pyfunction!(one_of, module)?)?;
    module.add_function(wrap_pyfunction!(prefix, module)?)?;
    module.add_function(wrap_pyfunction!(exists, module)?)?;
    module.add_function(wrap_pyfunction!(absent, module)?)?;
    module.add_function(wrap_pyfunction!(is_null, module)?)?;
    module.add_function(wrap_pyfunction!(within, module)?)?;
    module.add_function(wrap_pyfunction!(nearest, module)?)?;
    module.add_function(wrap_pyfunction!(parse, module)?)?;
    module.add_function(wrap_pyfunction!(all_of, module)?)?;
    module.add_function(wrap_pyfunction!(any_of, module)?)
}
