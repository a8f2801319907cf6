//! A panic at every call of an application's extractor, of the file system, of the runtime and of an index, in any thread:
//! a writer, a query, a flush or a compaction with its drop listeners and filters, a build.
//!
//! A clean run of a history counts the calls. The history then runs again for each of these calls, or for a sample of them,
//! with and without background threads, in all layouts, with indexes of all kinds. The rules are:
//!
//! 1. nothing hangs: each run has a time limit;
//! 2. each index answers as a scan of the records or returns an error; after the panic a ready index answers;
//! 3. acknowledged writes are present; failed writes are present or absent;
//! 4. the next open succeeds; then every ready index answers as a scan, and no two writes have the same sequence number.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bolide::{
    BuildOptions, Collection, CollectionOptions, Components, Db, IndexSpec, IndexState, Layout, Query, Result,
};
use bolide_storage::{SimRng, SimVfs};

use crate::kinds::{self, KindChoice};
use crate::panicking::{PanickingExtractor, PanickingVfs, PlantedPanic, Site, Switch};
use crate::panicking_index;
use crate::panicking_runtime::PanickingRuntime;
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};
use crate::setup::{DATABASE, Setup};

pub(crate) const COLLECTION: &str = "docs";
/// The number of values of the attribute `a`.
const VALUES: u64 = 5;
const KEYS: u64 = 40;

/// Options of a run with panics.
#[derive(Debug, Clone, Copy)]
pub struct PanicOptions {
    /// Number of steps of the history.
    pub steps: usize,
    /// One of this many calls panics; 1 makes each panic in turn.
    pub stride: u64,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of the collection; `None` to choose by the seed.
    pub layout: Option<Layout>,
    /// The time limit of a run; a longer run counts as a hang.
    pub limit: Duration,
    /// A planted bug instead of the panic.
    pub planted: Option<PlantedPanic>,
}

impl Default for PanicOptions {
    fn default() -> Self {
        let (kinds, limit) = (KindChoice::default(), Duration::from_secs(120));
        Self { steps: 60, stride: 7, kinds, layout: None, limit, planted: None }
    }
}

/// One step of a history on one collection.
#[derive(Debug, Clone)]
pub(crate) enum DocStep {
    Put(u64, u64),
    Delete(u64),
    DeleteRange(u64, u64),
    Flush,
    Compact,
    Query,
    Create(usize),
    Rebuild(usize),
    Drop(usize),
}

/// A random history.
pub(crate) fn history(rng: &mut SimRng, steps: usize) -> Vec<DocStep> {
    let step = |rng: &mut SimRng| match rng.below(40) {
        0 | 1 => DocStep::Flush,
        2 => DocStep::Compact,
        3..=6 => DocStep::Query,
        7 => DocStep::Create(rng.below(3) as usize),
        8 => DocStep::Rebuild(rng.below(3) as usize),
        9 if rng.one_in(3) => DocStep::Drop(rng.below(3) as usize),
        10..=12 => DocStep::Delete(rng.below(KEYS)),
        13 => {
            let start = rng.below(KEYS);
            DocStep::DeleteRange(start, start + 1 + rng.below(6))
        }
        _ => DocStep::Put(rng.below(KEYS), rng.below(VALUES)),
    };
    (0..steps).map(|_| step(rng)).collect()
}

/// Three specifications of indexes on the attribute `a`, of random kinds.
pub(crate) fn specs(rng: &mut SimRng, choice: KindChoice) -> Vec<Arc<str>> {
    kinds::random_specs(rng, choice, 3)
        .iter()
        .filter_map(|spec| spec.split_once(':'))
        .zip(0..)
        .map(|((_, kind), number)| Arc::from(format!("ix{number}=a:{kind}")))
        .collect()
}

/// Runs the history of `seed` with a panic at each call of each site.
pub fn check(seed: u64, options: PanicOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let mut setup = Setup::random(&mut rng).with_layout(options.layout);
    setup.threads = if rng.one_in(2) { 2 } else { 0 };
    setup.fetch_threads = if rng.one_in(2) { 3 } else { 1 };
    let specs = specs(&mut rng, options.kinds);
    let steps = history(&mut rng, options.steps);
    let mut counts = Counts::default();
    for site in Site::EACH {
        let plan =
            PanicRun { seed, setup, site, at: u64::MAX, specs: specs.clone(), steps: steps.clone(), options };
        let context =
            |plan: &PanicRun, what: String| format!("{setup}, {specs:?}, {site:?} at {}: {what}", plan.at);
        let calls = plan.clone().run_in_time(&mut counts).map_err(|what| context(&plan, what))?;
        let first = 1 + rng.below(options.stride.max(1));
        for at in (first..=calls).step_by(options.stride.max(1) as usize) {
            let plan = PanicRun { at, ..plan.clone() };
            plan.clone().run_in_time(&mut counts).map_err(|what| context(&plan, what))?;
        }
    }
    counts.add("histories");
    Ok(counts)
}

/// One run of a history with one panic.
#[derive(Debug, Clone)]
struct PanicRun {
    seed: u64,
    setup: Setup,
    site: Site,
    /// The call that panics.
    at: u64,
    specs: Vec<Arc<str>>,
    steps: Vec<DocStep>,
    options: PanicOptions,
}

/// The possible values of each key: exactly one if its last write was acknowledged.
pub(crate) type Allowed = BTreeMap<u64, BTreeSet<Option<u64>>>;

impl PanicRun {
    /// Runs [`run`](Self::run) in its own thread with the time limit. A hanging thread is leaked.
    fn run_in_time(self, counts: &mut Counts) -> Outcome<u64> {
        let limit = self.options.limit;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut counts = Counts::default();
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run(&mut counts)))
                .unwrap_or_else(|panic| Err(crate::seeds::panic_text(&*panic)));
            drop(sender.send((outcome, counts)));
        });
        match receiver.recv_timeout(limit) {
            Ok((outcome, more)) => {
                counts.merge(&more);
                outcome
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("{} the run hangs: not finished after {limit:?}", Rule::Returns))
            }
            Err(RecvTimeoutError::Disconnected) => Err("the run ended without a result".to_owned()),
        }
    }

    fn components(&self, disk: &SimVfs, setup: Setup, switch: &Arc<Switch>) -> Components {
        let vfs = PanickingVfs::new(disk.clone(), switch.clone());
        let extractor = Arc::new(PanickingExtractor(switch.clone()));
        let components = setup.components(Arc::new(vfs), self.seed).extractor(COLLECTION, extractor);
        let inner = components.runtime.clone();
        let components = components.runtime(Arc::new(PanickingRuntime { inner, switch: switch.clone() }));
        if self.site == Site::Index {
            return components.index_wrapper(panicking_index::wrapper(switch));
        }
        components
    }

    fn run(&self, counts: &mut Counts) -> Outcome<u64> {
        let error_text = |error: bolide::Error| format!("{error:?}");
        let switch = Switch::new(self.site, self.options.planted);
        let disk = SimVfs::new(self.seed);
        let db = Db::open_with(DATABASE, self.setup.options(), self.components(&disk, self.setup, &switch));
        let db = db.map_err(error_text)?;
        let mut options = configured(&self.setup, CollectionOptions::bytes());
        for spec in self.specs.iter().take(2) {
            options = options.index(spec.parse().map_err(error_text)?);
        }
        let docs = db.create_collection(COLLECTION, options).map_err(error_text)?;
        switch.arm(self.at);
        let mut allowed = Allowed::new();
        let mut after = 0;
        for (number, step) in self.steps.iter().enumerate() {
            let context = |what: String| format!("step {number}, {step:?}: {what}");
            let done = catch_unwind(AssertUnwindSafe(|| run_step(&db, &docs, &self.specs, step)));
            let is_done = matches!(done, Ok(Ok(())));
            if !is_done && !switch.has_fired() {
                return Err(context(format!("failed before any panic: {done:?}")));
            }
            counts.add(match done {
                Ok(Ok(())) => "steps",
                Ok(Err(_)) => "failed steps",
                Err(_) => "steps that panicked",
            });
            update_allowed(&mut allowed, step, is_done);
            after += usize::from(switch.has_fired());
            // Compares right after the panic, seven steps later, and at each query step.
            if after == 1 || after == 8 || matches!(step, DocStep::Query) {
                compare(&docs, &allowed, &switch, counts).map_err(context)?;
            }
        }
        let calls = switch.calls();
        counts.add(if switch.has_fired() { "panics" } else { "runs without a panic" });
        drop(docs);
        // After or during a panic the close may fail, but must return.
        let _ = catch_unwind(AssertUnwindSafe(|| db.close()));
        switch.disarm();
        let context = |what: String| format!("opened again: {what}");
        let setup = Setup { threads: 0, ..self.setup };
        let db = Db::open_with(DATABASE, setup.options(), self.components(&disk, setup, &switch));
        let db = db.map_err(|error| context(format!("{} {error:?}", Rule::Opens)))?;
        let docs = db.collection(COLLECTION).map_err(|error| context(error_text(error)))?;
        compare(&docs, &allowed, &switch, counts).map_err(context)?;
        let report = db.check(true).map_err(|error| context(error_text(error)))?;
        if !report.problems().is_empty() {
            return Err(context(format!("check: {:?}", report.problems())));
        }
        docs.put(&key(KEYS), &record(0)).map_err(|error| context(format!("a put: {error:?}")))?;
        Ok(calls)
    }
}

/// `options` with the layout, the compression and the sizes of `setup`.
pub(crate) fn configured(setup: &Setup, options: CollectionOptions) -> CollectionOptions {
    options
        .layout(setup.layout)
        .compression(setup.compression)
        .block_bytes(setup.block_bytes)
        .target_file_bytes(setup.target_file_bytes)
}

/// Runs a step. `specs` are the specifications of its indexes.
pub(crate) fn run_step(db: &Db, docs: &Collection, specs: &[Arc<str>], step: &DocStep) -> Result<()> {
    match *step {
        DocStep::Put(number, value) => docs.put(&key(number), &record(value)),
        DocStep::Delete(number) => docs.delete(&key(number)),
        DocStep::DeleteRange(start, end) => docs.delete_range(key(start)..key(end)),
        DocStep::Flush => db.flush(),
        DocStep::Compact => db.compact(),
        DocStep::Query => Ok(()),
        DocStep::Create(which) => {
            let Some(spec) = specs.get(which).filter(|_| existing_index(docs, specs, which).is_none()) else {
                return Ok(());
            };
            docs.create_index_background(spec.parse::<IndexSpec>()?, &BuildOptions::default())?.wait()
        }
        DocStep::Rebuild(which) => match existing_index(docs, specs, which) {
            Some(name) => docs.rebuild_index_background(&name, &BuildOptions::default())?.wait(),
            None => Ok(()),
        },
        DocStep::Drop(which) => match existing_index(docs, specs, which) {
            Some(name) => docs.drop_index(&name),
            None => Ok(()),
        },
    }
}

/// The name of the index of this specification, if it exists.
fn existing_index(docs: &Collection, specs: &[Arc<str>], which: usize) -> Option<String> {
    let name = crate::history::index_name(specs.get(which)?);
    docs.indexes().iter().any(|index| index.name() == name).then(|| name.to_owned())
}

fn key(number: u64) -> Vec<u8> {
    format!("k{number:04}").into_bytes()
}

fn record(value: u64) -> Vec<u8> {
    format!("{{\"a\":{value},\"pad\":\"{}\"}}", "x".repeat(7 * value as usize)).into_bytes()
}

/// Updates the possible values of keys after a step.
pub(crate) fn update_allowed(allowed: &mut Allowed, step: &DocStep, is_done: bool) {
    let (keys, value) = match *step {
        DocStep::Put(number, value) => (number..number + 1, Some(value)),
        DocStep::Delete(number) => (number..number + 1, None),
        DocStep::DeleteRange(start, end) => (start..end, None),
        _ => return,
    };
    for number in keys {
        let values = allowed.entry(number).or_insert_with(|| BTreeSet::from([None]));
        if is_done {
            values.clear();
        }
        values.insert(value);
    }
}

/// Returns the result of `read`, with one retry if the planned panic may have caused the failure.
fn retry_read<T>(switch: &Switch, counts: &mut Counts, read: impl Fn() -> Result<T>) -> Outcome<T> {
    let read_caught = || match catch_unwind(AssertUnwindSafe(&read)) {
        Ok(result) => result.map_err(|error| format!("{error:?}")),
        Err(panic) => Err(crate::seeds::panic_text(&*panic)),
    };
    read_caught().or_else(|failure| {
        if !switch.has_fired() {
            return Err(failure);
        }
        counts.add("failed reads");
        read_caught()
    })
}

/// Compares the records with their possible values, and each index with the records.
pub(crate) fn compare(docs: &Collection, allowed: &Allowed, switch: &Switch, counts: &mut Counts) -> Outcome {
    let records = retry_read(switch, counts, || docs.iter()?.collect::<Result<Vec<_>>>())
        .map_err(|error| format!("the records cannot be read: {error}"))?;
    let mut found: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut sequences = BTreeSet::new();
    for (key, value) in records {
        let parsed: serde_json::Value =
            serde_json::from_slice(&value).map_err(|error| format!("a record: {error}"))?;
        let sequence =
            retry_read(switch, counts, || Ok(docs.get_pinned(&key)?.map(|(sequence, _)| sequence)))?;
        if !sequences.insert(sequence) {
            return Err(format!("{} two records have the sequence number {sequence:?}", Rule::Numbers));
        }
        found.insert(key, parsed["a"].as_u64().unwrap_or(u64::MAX));
    }
    for (number, values) in allowed {
        let value = found.get(&key(*number)).copied();
        if !values.contains(&value) {
            let what = format!("key {number} has the value {value:?}, want one of {values:?}");
            return Err(format!("{} {what}", Rule::State));
        }
    }
    for index in retry_read(switch, counts, || Ok(docs.indexes()))? {
        for value in 0..VALUES {
            let query = Query::new().eq("a", value as i64).using_index(index.name());
            let rows = match retry_read(switch, counts, || docs.find(&query)) {
                Ok(rows) => rows.into_vec(),
                Err(_) if docs.index(index.name()).is_ok_and(|now| now.state() != IndexState::Ready) => {
                    counts.add("queries of indexes that are not ready");
                    continue;
                }
                Err(error) => {
                    return Err(format!(
                        "{} index {} fails for {value}: {error}",
                        Rule::Agrees,
                        index.spec()
                    ));
                }
            };
            let mut rows: Vec<Vec<u8>> = rows.into_iter().map(|row| row.key).collect();
            rows.sort_unstable();
            let wanted: Vec<Vec<u8>> =
                found.iter().filter(|(_, has)| **has == value).map(|(key, _)| key.clone()).collect();
            if rows != wanted {
                let (got, want) = (rows.len(), wanted.len());
                let what = format!("index {} has {got} rows of {value}, a scan {want}", index.spec());
                return Err(format!("{} {what}", Rule::Agrees));
            }
            counts.add("answers");
        }
    }
    Ok(())
}
