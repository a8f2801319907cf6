//! Indexes and their builds.

use std::ffi::c_char;
use std::time::{Duration, Instant};

use bolide::advisor::Workload;
use bolide::{AttributePath, BuildOptions, BuildProgress, IndexBuild, IndexSpec, IndexState};

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::guard::{Presence, call, find};
use crate::handle::{self, object};
use crate::input::text;
use crate::output::{self, Out, bolide_bytes};
use crate::report;
use crate::session::Member;

/// An index that is built in the background. May be used by many threads. The build goes on without it.
pub struct bolide_index_build {
    _opaque: [u8; 0],
}

object!(bolide_index_build, Member<IndexBuild>, "the index build");

/// The progress of an index build.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct bolide_build_progress {
    /// The completed share, from 0 to 1.
    pub share: f64,
    /// Records whose entries are in the index.
    pub records: u64,
    /// The estimated number of records to read.
    pub expected_records: u64,
    /// Entries that were added.
    pub entries: u64,
    /// Malformed records that were skipped.
    pub malformed: u64,
    /// Seconds since the start, or the duration.
    pub elapsed_seconds: f64,
    /// Whether queries use the index.
    pub is_ready: bool,
}

impl bolide_build_progress {
    fn of(progress: &BuildProgress) -> Self {
        Self {
            share: progress.share(),
            records: progress.records,
            expected_records: progress.expected_records,
            entries: progress.entries,
            malformed: progress.malformed,
            elapsed_seconds: progress.elapsed.as_secs_f64(),
            is_ready: progress.state == IndexState::Ready,
        }
    }
}

/// The longest time between two looks at a build.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// Waits for the end of a build, at most until `end`. Returns whether it has ended.
fn wait_until(build: &IndexBuild, end: Option<Instant>) -> bool {
    let mut pause = Duration::from_micros(200);
    while !build.is_finished() {
        let rest = match end.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(rest) if rest.is_zero() => return false,
            Some(rest) => rest,
            None => MAX_PAUSE,
        };
        std::thread::sleep(pause.min(rest));
        pause = (2 * pause).min(MAX_PAUSE);
    }
    true
}

/// Creates an index from a declaration, as "state", "customer+total" or "tags[*]:next", fills it, and waits for it. Writers go on
/// meanwhile. `BOLIDE_CONFLICT` if there is one of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_create(
    collection: *const bolide_collection,
    spec: *const c_char,
    spec_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let spec: IndexSpec = text(spec, spec_size, "the index")?.parse()?;
        Ok(handle::borrow(collection)?.create_index(spec)?)
    })
}

/// As `bolide_index_create`, without waiting. `records_per_second` limits the speed; 0 for no limit. The caller frees `build`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_create_background(
    collection: *const bolide_collection,
    spec: *const c_char,
    spec_size: usize,
    records_per_second: u64,
    build: *mut *mut bolide_index_build,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(build, "build")?;
        let spec: IndexSpec = text(spec, spec_size, "the index")?.parse()?;
        let collection = handle::borrow(collection)?;
        let mut options = BuildOptions::default();
        if records_per_second > 0 {
            options = options.records_per_second(records_per_second);
        }
        let begun = collection.create_index_background(spec, &options)?;
        out.set(handle::into_pointer(Member::new(collection.session(), begun)));
        Ok(())
    })
}

/// Stores the progress of a build in `progress`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_build_progress(
    build: *const bolide_index_build,
    progress: *mut bolide_build_progress,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::new(progress, "progress", bolide_build_progress::default())?;
        out.set(bolide_build_progress::of(&handle::borrow(build)?.progress()));
        Ok(())
    })
}

/// Waits for the end of a build, at most `timeout_millis` milliseconds; `UINT64_MAX` for no limit. `BOLIDE_ABSENT` if it goes on;
/// otherwise `BOLIDE_OK` or the error of the build.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_build_wait(
    build: *const bolide_index_build,
    timeout_millis: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || {
        let build = handle::borrow(build)?;
        // No limit also for a time that no clock can have.
        let end = Instant::now().checked_add(Duration::from_millis(timeout_millis));
        if !wait_until(build, end.filter(|_| timeout_millis != u64::MAX)) {
            return Ok(Presence::Absent);
        }
        build.wait()?;
        Ok(Presence::Found)
    })
}

/// Frees the handle of a build, which goes on. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_build_free(build: *mut bolide_index_build) {
    handle::free(build);
}

/// Fills an index again, and waits for it. Queries use the old one meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_rebuild(
    collection: *const bolide_collection,
    name: *const c_char,
    name_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let name = text(name, name_size, "the name of the index")?;
        Ok(handle::borrow(collection)?.rebuild_index(name, &BuildOptions::default())?)
    })
}

/// Drops an index. `BOLIDE_NOT_FOUND` if there is none of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_index_drop(
    collection: *const bolide_collection,
    name: *const c_char,
    name_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        Ok(handle::borrow(collection)?.drop_index(text(name, name_size, "the name of the index")?)?)
    })
}

/// The indexes of a collection, as a JSON array of objects with `name`, `spec`, `kind`, `attributes`, `state`, `progress`, `rebuild`,
/// `problem` and `damage`. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_indexes(
    collection: *const bolide_collection,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let indexes = handle::borrow(collection)?.indexes();
        let json = serde_json::Value::from_iter(indexes.iter().map(report::index_json));
        out.set(bolide_bytes::of_text(json.to_string()));
        Ok(())
    })
}

/// Advises an index for an attribute: a JSON object with `spec`, `kind` and `reasons`, which the caller frees. Reads the whole
/// collection, and builds trial indexes over a sample in memory: takes seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_advise(
    collection: *const bolide_collection,
    attribute: *const c_char,
    attribute_size: usize,
    json: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(json, "json")?;
        let path: AttributePath = text(attribute, attribute_size, "the path")?.parse()?;
        let advice = handle::borrow(collection)?.advise(&path, &Workload::default())?;
        let json = serde_json::json!({
            "spec": advice.spec,
            "kind": advice.kind.name(),
            "reasons": advice.reasons,
        });
        out.set(bolide_bytes::of_text(json.to_string()));
        Ok(())
    })
}
