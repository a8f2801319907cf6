//! Counts, aggregates, and changes of all answers to a query.

use std::ffi::c_char;
use std::ops::ControlFlow;

use bolide::{BulkOptions, BulkProgress};

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::guard::call;
use crate::handle;
use crate::input::{bolide_sync, sync_mode, text};
use crate::output::{self, Out, bolide_bytes};
use crate::query::bolide_query;
use crate::report;
use crate::snapshot::bolide_snapshot;

/// The result of a change of all answers to a query.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct bolide_bulk_result {
    /// Records that satisfied the query.
    pub found: u64,
    /// Records that were changed.
    pub changed: u64,
    /// Records that were skipped, because another thread wrote them meanwhile.
    pub skipped: u64,
}

/// Stores the number of records that satisfy a query, up to its limit, in `count`. `snapshot` may be NULL for the latest state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_count(
    collection: *const bolide_collection,
    query: *const bolide_query,
    snapshot: *const bolide_snapshot,
    count: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::new(count, "count", 0)?;
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let snapshot = handle::borrow_optional(snapshot)?;
        let options = settings.find_options(snapshot.map(|snapshot| &**snapshot));
        let query = settings.query.clone().count();
        out.set(collection.visit(&query, &options, |_| Ok(ControlFlow::Continue(())))?.count());
        Ok(())
    })
}

/// Number, sum, mean, smallest and largest value of an attribute over the answers to a query, as a JSON object with `records`,
/// `values`, `numbers`, `sum`, `mean`, `min`, `max`. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_summarize(
    collection: *const bolide_collection,
    query: *const bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let summary = collection.summarize(&settings.query, text(attribute, attribute_size, "the path")?)?;
        out.set(bolide_bytes::of_text(report::summary_json(&summary).to_string()));
        Ok(())
    })
}

/// The distinct values of an attribute over the answers to a query, each with its number of records: a JSON array of pairs, which the
/// caller frees. More than `max` values are an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_distinct(
    collection: *const bolide_collection,
    query: *const bolide_query,
    attribute: *const c_char,
    attribute_size: usize,
    max: usize,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let found =
            collection.distinct(&settings.query, text(attribute, attribute_size, "the path")?, max)?;
        let pairs = found.iter().map(|(value, count)| serde_json::json!([value.to_json(), count]));
        out.set(bolide_bytes::of_text(serde_json::Value::from_iter(pairs).to_string()));
        Ok(())
    })
}

/// The planner's estimate for a query, without reading data: a JSON object with `records`, `exact`, `micros` and `indexes`. The
/// caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_estimate(
    collection: *const bolide_collection,
    query: *const bolide_query,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let collection = handle::borrow(collection)?;
        let estimate = collection.estimate(&handle::borrow(query)?.read()?.query)?;
        let estimate = serde_json::json!({
            "records": estimate.records,
            "exact": estimate.is_exact,
            "micros": estimate.nanos as f64 / 1_000.0,
            "indexes": estimate.indexes,
        });
        out.set(bolide_bytes::of_text(estimate.to_string()));
        Ok(())
    })
}

/// Deletes all records that satisfy a query, in batches of 1,000. `result` may be NULL. The query has no order, limit, token or
/// selection. After an error, the batches before it stay, and `result` has their counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_delete_where(
    collection: *const bolide_collection,
    query: *const bolide_query,
    sync: bolide_sync,
    result: *mut bolide_bulk_result,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::optional(result, bolide_bulk_result::default());
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let mut options = BulkOptions::default();
        if let Some(sync) = sync_mode(sync.into())? {
            options = options.sync(sync);
        }
        let note = |done: &BulkProgress| {
            if let Some(out) = &out {
                let (found, changed, skipped) = (done.found, done.changed, done.skipped);
                out.set(bolide_bulk_result { found, changed, skipped });
            }
        };
        let done = collection.delete_where(&settings.query, &options, |done| {
            note(done);
            ControlFlow::Continue(())
        })?;
        note(&done);
        Ok(())
    })
}
