//! Queries from the arguments of a call.

use bolide::{CursorToken, Filter, Order, Query, SortDirection};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::errors::{self, attached};
use crate::filter::{filter_of, value_of};
use crate::keys::text_of;

/// The arguments beside the filter.
#[derive(Default)]
pub(crate) struct QuerySettings<'a, 'py> {
    pub(crate) order: Option<&'a str>,
    pub(crate) sort: Option<&'a Bound<'py, PyAny>>,
    pub(crate) limit: Option<usize>,
    pub(crate) limit_per_value: Option<usize>,
    pub(crate) after: Option<&'a str>,
    pub(crate) index: Option<&'a str>,
    pub(crate) select: Option<&'a [String]>,
    pub(crate) parts: Option<&'a [String]>,
    pub(crate) keys_only: bool,
}

/// The records that `filter` and all `equal` select.
pub(crate) fn plain_query(
    filter: Option<&Bound<'_, PyAny>>,
    equal: Option<&Bound<'_, PyDict>>,
) -> PyResult<Query> {
    with_conditions(Query::new(), filter, equal)
}

fn with_conditions(
    mut query: Query,
    filter: Option<&Bound<'_, PyAny>>,
    equal: Option<&Bound<'_, PyDict>>,
) -> PyResult<Query> {
    if let Some(filter) = filter.filter(|filter| !filter.is_none()) {
        query = query.filter(filter_of(filter)?);
    }
    for (name, value) in equal.into_iter().flatten() {
        let name = name.cast::<PyString>()?;
        query = query.filter(Filter::eq(text_of(name)?, value_of(&value)?));
    }
    attached(|| query.check())?;
    Ok(query)
}

/// The query of a call.
pub(crate) fn query_of(
    filter: Option<&Bound<'_, PyAny>>,
    equal: Option<&Bound<'_, PyDict>>,
    settings: &QuerySettings<'_, '_>,
) -> PyResult<Query> {
    query_from(Query::new(), filter, equal, settings)
}

/// As [`query_of`], with the conditions of `query` before the others.
pub(crate) fn query_from(
    query: Query,
    filter: Option<&Bound<'_, PyAny>>,
    equal: Option<&Bound<'_, PyDict>>,
    settings: &QuerySettings<'_, '_>,
) -> PyResult<Query> {
    let mut query = with_conditions(query, filter, equal)?;
    if let Some(order) = settings.order {
        query = query.order(attached(|| Order::parse(order))?);
    }
    if let Some(sort) = settings.sort {
        if settings.order.is_some() {
            return Err(errors::invalid_input("order and sort exclude each other"));
        }
        for attribute in sort_attributes(sort)? {
            query = match attribute.strip_suffix(":desc") {
                Some(path) => query.sort_by(path, SortDirection::Descending),
                None => query.sort_by(&attribute, SortDirection::Ascending),
            };
        }
    }
    if let Some(limit) = settings.limit {
        query = query.limit(limit);
    }
    if let Some(limit) = settings.limit_per_value {
        query = query.limit_per_value(limit);
    }
    if let Some(token) = settings.after {
        query = query.after(attached(|| token.parse::<CursorToken>())?);
    }
    if let Some(index) = settings.index {
        query = query.using_index(index);
    }
    if let Some(paths) = settings.select {
        query = query.select(paths.iter().map(String::as_str));
    }
    if let Some(paths) = settings.parts {
        query = query.select_parts(paths.iter().map(String::as_str));
    }
    if settings.keys_only {
        query = query.keys_only();
    }
    let chosen = [settings.select.is_some(), settings.parts.is_some(), settings.keys_only];
    if chosen.iter().filter(|is_chosen| **is_chosen).count() > 1 {
        return Err(errors::invalid_input("select, parts and keys_only exclude each other"));
    }
    attached(|| query.check())?;
    Ok(query)
}

/// `"state"`, `"total:desc"`, or a list of these.
fn sort_attributes(sort: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(text) = sort.cast::<PyString>() {
        return Ok(vec![text_of(text)?.to_owned()]);
    }
    sort.extract::<Vec<String>>()
        .map_err(|_| PyTypeError::new_err("sort is \"PATH\", \"PATH:desc\", or a list of these"))
}
