//! Queries.

use std::ffi::c_char;
use std::ops::Bound;

use bolide::{
    AttributePath, CursorToken, Filter, FindOptions, Order, Predicate, Query, Snapshot, SortDirection, Value,
};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::code::bolide_code;
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::guard::call;
use crate::handle::{self, object};
use crate::input::{choice, size, text};
use crate::output;
use crate::value::{self, bolide_value};

/// Which records a query selects, their order and number, and what is returned of them. After its setters have returned, many
/// threads may use it.
pub struct bolide_query {
    _opaque: [u8; 0],
}

object!(bolide_query, SharedQuery, "the query", of_process = false);

/// The order of the answers.
pub type bolide_order = i32;

/// The most recently written record first.
pub const BOLIDE_ORDER_NEWEST: bolide_order = 0;
/// The least recently written record first.
pub const BOLIDE_ORDER_OLDEST: bolide_order = 1;
/// By the value of the attribute of the first range, the smallest first.
pub const BOLIDE_ORDER_VALUE: bolide_order = 2;
/// By the value of the attribute of the first range, the largest first.
pub const BOLIDE_ORDER_VALUE_DESCENDING: bolide_order = 3;

/// What [`bolide_query`] has.
pub(crate) struct SharedQuery(RwLock<QuerySettings>);

/// A query, and whether its times are measured.
#[derive(Clone)]
pub(crate) struct QuerySettings {
    pub(crate) query: Query,
    measure: bool,
}

impl QuerySettings {
    pub(crate) fn find_options(&self, snapshot: Option<&Snapshot>) -> FindOptions {
        let options = FindOptions::default().measure(self.measure);
        match snapshot {
            Some(snapshot) => options.snapshot(snapshot),
            None => options,
        }
    }
}

impl SharedQuery {
    pub(crate) fn read(&self) -> Result<RwLockReadGuard<'_, QuerySettings>, Failure> {
        self.0.try_read().ok_or_else(in_use)
    }

    /// Replaces the query. After an error it is as before.
    fn change(&self, change: impl FnOnce(Query) -> Result<Query, Failure>) -> Result<(), Failure> {
        let mut settings = self.0.try_write().ok_or_else(in_use)?;
        settings.query = change(settings.query.clone())?;
        Ok(())
    }
}

fn in_use() -> Failure {
    Failure::in_use("another thread uses the query now", "call the setters before other threads use it")
}

/// A path of an attribute.
unsafe fn path<'a>(path: *const c_char, path_size: usize) -> Result<(&'a str, AttributePath), Failure> {
    let text = text(path, path_size, "the path")?;
    Ok((text, text.parse()?))
}

/// A new query for the records that satisfy a filter, newest first: `state = "open" and (total > 10 or tags[*] in ("a", "b"))`. An
/// empty text is for all records. The caller frees it.
///
/// The tests are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (…)`, `in A..B`, `starts with`, `exists`, `is null`, `is absent`,
/// `within(…)`, `nearest(…)`, joined by `and`, `or`, `not`. For values from elsewhere, use `bolide_query_equal` and
/// `bolide_query_between`, which need no quotes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_new(
    filter: *const c_char,
    filter_size: usize,
    query: *mut *mut bolide_query,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(query, "query")?;
        let filter = text(filter, filter_size, "the filter")?;
        let mut query = Query::new();
        if !filter.trim().is_empty() {
            query = query.filter(Filter::parse(filter)?);
            query.check()?;
        }
        let settings = QuerySettings { query, measure: false };
        out.set(handle::into_pointer(SharedQuery(RwLock::new(settings))));
        Ok(())
    })
}

/// Adds the condition that an attribute equals a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_equal(
    query: *mut bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    value: *const bolide_value,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (_, path) = path(attribute, attribute_size)?;
        let value = value::optional(value)?.ok_or_else(|| Failure::invalid("the value is NULL"))?;
        let predicate = Predicate::equal(path, value)?;
        handle::borrow(query)?.change(|query| Ok(query.predicate(predicate)))
    })
}

/// Adds the condition that an attribute lies between two values, both included. Either may be NULL for no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_between(
    query: *mut bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    low: *const bolide_value,
    high: *const bolide_value,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (_, path) = path(attribute, attribute_size)?;
        let bound = |value: Option<Value>| value.map_or(Bound::Unbounded, Bound::Included);
        let range = (bound(value::optional(low)?), bound(value::optional(high)?));
        let predicate = Predicate::range(path, range)?;
        handle::borrow(query)?.change(|query| Ok(query.predicate(predicate)))
    })
}

/// Sets the order of the answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_set_order(
    query: *mut bolide_query,
    order: bolide_order,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let orders = [
            (BOLIDE_ORDER_NEWEST, "BOLIDE_ORDER_NEWEST", Order::Newest),
            (BOLIDE_ORDER_OLDEST, "BOLIDE_ORDER_OLDEST", Order::Oldest),
            (BOLIDE_ORDER_VALUE, "BOLIDE_ORDER_VALUE", Order::Value),
            (BOLIDE_ORDER_VALUE_DESCENDING, "BOLIDE_ORDER_VALUE_DESCENDING", Order::ValueDescending),
        ];
        let order = choice("order", order.into(), &orders)?;
        handle::borrow(query)?.change(|query| Ok(query.order(order)))
    })
}

/// Sorts the answers by an attribute, and by further ones of further calls where the values before are equal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_sort_by(
    query: *mut bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    descending: bool,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (attribute, _) = path(attribute, attribute_size)?;
        let direction = if descending { SortDirection::Descending } else { SortDirection::Ascending };
        handle::borrow(query)?.change(|query| {
            let sorted = query.sort_by(attribute, direction);
            sorted.check()?;
            Ok(sorted)
        })
    })
}

/// Limits the answers to the first `limit` ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_set_limit(
    query: *mut bolide_query,
    limit: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let limit = size("the limit of a query", limit)?;
        handle::borrow(query)?.change(|query| Ok(query.limit(limit)))
    })
}

/// Limits the answers for each value of the attribute of the first range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_set_limit_per_value(
    query: *mut bolide_query,
    limit: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let limit = size("the limit of a query for each value", limit)?;
        handle::borrow(query)?.change(|query| Ok(query.limit_per_value(limit)))
    })
}

/// Returns the values at a path in place of records, and those of the paths of further calls; see `bolide_row`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_select(
    query: *mut bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (attribute, _) = path(attribute, attribute_size)?;
        handle::borrow(query)?.change(|query| {
            let selected = query.select([attribute]);
            selected.check()?;
            Ok(selected)
        })
    })
}

/// Returns the part of each record at a path in place of the whole, and those of the paths of further calls: a JSON object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_select_part(
    query: *mut bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (attribute, _) = path(attribute, attribute_size)?;
        handle::borrow(query)?.change(|query| {
            let selected = query.select_parts([attribute]);
            selected.check()?;
            Ok(selected)
        })
    })
}

/// Returns keys without records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_keys_only(
    query: *mut bolide_query,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || handle::borrow(query)?.change(|query| Ok(query.keys_only())))
}

/// Uses the index with this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_use_index(
    query: *mut bolide_query,
    index: *const c_char,
    index_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let index = text(index, index_size, "the name of the index")?;
        handle::borrow(query)?.change(|query| Ok(query.using_index(index)))
    })
}

/// Continues after the answers that were returned before; `token` is that of `bolide_answers_token`. An empty token starts again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_set_token(
    query: *mut bolide_query,
    token: *const c_char,
    token_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let token = text(token, token_size, "the token")?;
        let parsed = if token.is_empty() { None } else { Some(token.parse::<CursorToken>()?) };
        handle::borrow(query)?.change(|query| {
            Ok(match parsed {
                Some(token) => query.after(token),
                None => query.from_start(),
            })
        })
    })
}

/// Measures times for `bolide_answers_explain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_measure(
    query: *mut bolide_query,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        handle::borrow(query)?.0.try_write().ok_or_else(in_use)?.measure = true;
        Ok(())
    })
}

/// Reports the first invalid part of a query, as its execution would do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_check(
    query: *const bolide_query,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(query)?.read()?.query.check()?))
}

/// Frees a query. What was opened with it stays valid. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_query_free(query: *mut bolide_query) {
    handle::free(query);
}
