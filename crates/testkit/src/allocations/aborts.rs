//! Process aborts at the n-th allocation: a reopened database has every acknowledged step.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bolide::{Collection, CollectionOptions, Db};
use bolide_storage::{DiskVfs, SimRng};

use super::{AllocationOptions, Child, PlantedAllocation, Scratch, plan};
use crate::kinds::KindChoice;
use crate::panicking::{Site, Switch};
use crate::panics::{
    Allowed, COLLECTION, DocStep, compare, configured, history, run_step, specs, update_allowed,
};
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;

/// The signal of `abort`.
const SIGABRT: i32 = 6;

/// The history of a child process.
struct ChildHistory {
    seed: u64,
    setup: Setup,
    specs: Vec<Arc<str>>,
    steps: Vec<DocStep>,
}

impl ChildHistory {
    fn new(seed: u64, steps: usize) -> Self {
        let mut rng = SimRng::new(seed);
        let mut setup = Setup::random(&mut rng);
        setup.threads = if seed % 2 == 1 { 2 } else { 0 };
        let specs = specs(&mut rng, KindChoice::default());
        let steps = history(&mut rng, steps);
        Self { seed, setup, specs, steps }
    }

    fn open(&self, dir: &Path) -> bolide::Result<Db> {
        let components = self.setup.components(Arc::new(DiskVfs::new()), self.seed);
        Db::open_with(dir.join("db"), self.setup.options(), components)
    }

    /// Opens the database and creates the collection if it is missing.
    fn start(&self, dir: &Path) -> bolide::Result<(Db, Collection)> {
        let db = self.open(dir)?;
        let docs = match db.collection(COLLECTION) {
            Ok(docs) => docs,
            Err(_) => {
                let mut options: CollectionOptions = configured(&self.setup, CollectionOptions::json());
                for spec in self.specs.iter().take(2) {
                    options = options.index(spec.parse()?);
                }
                db.create_collection(COLLECTION, options)?
            }
        };
        Ok((db, docs))
    }
}

/// The byte that a child writes for a successful step before the next step.
const DONE: u8 = b'+';
/// The byte that a child writes for a failed step.
const FAILED: u8 = b'-';

/// Runs the history in a child process and records each completed step.
pub(super) fn child(seed: u64, steps: usize, at: u64, early: bool, dir: &Path) -> Outcome {
    let plan = ChildHistory::new(seed, steps);
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut acknowledged = fs::File::create(dir.join("steps")).map_err(failed)?;
    plan::fail_at(at);
    // An error of an open or a close ends the run.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let (db, docs) = plan.start(dir)?;
        for step in &plan.steps {
            if early {
                let _ = acknowledged.write_all(&[DONE]);
            }
            let done = run_step(&db, &docs, &plan.specs, step);
            if !early {
                let _ = acknowledged.write_all(&[if done.is_ok() { DONE } else { FAILED }]);
            }
        }
        drop(docs);
        db.close()
    }));
    let count = plan::count();
    plan::fail_at(0);
    fs::write(dir.join("count"), count.to_string()).map_err(failed)?;
    match outcome {
        Ok(Err(error)) if at == u64::MAX => Err(format!("{error:?}")),
        _ => Ok(()),
    }
}

/// Runs the history of `seed` once without a failure, then once for each of a sample of its allocations, which fails.
pub(super) fn check(seed: u64, options: AllocationOptions, child: &Child) -> Outcome<Counts> {
    let plan = ChildHistory::new(seed, options.steps);
    let context =
        |at: u64, what: String| format!("{}, {:?}, allocation {at}: {what}", plan.setup, plan.specs);
    let mut counts = Counts::default();
    let total = run(&plan, options, child, u64::MAX, &mut counts).map_err(|what| context(0, what))?;
    let mut rng = SimRng::new(seed);
    let stride = (total / options.failures.max(1)).max(1);
    let mut at = 1 + rng.below(stride);
    while at <= total {
        run(&plan, options, child, at, &mut counts).map_err(|what| context(at, what))?;
        at += 1 + rng.below(2 * stride - 1);
    }
    counts.add("histories");
    Ok(counts)
}

/// Runs one child process and returns the number of its allocations.
fn run(
    plan: &ChildHistory,
    options: AllocationOptions,
    child: &Child,
    at: u64,
    counts: &mut Counts,
) -> Outcome<u64> {
    let scratch = Scratch::new(plan.seed, "aborts")?;
    let dir = &scratch.0;
    let early = options.planted == Some(PlantedAllocation::AcknowledgesEarly);
    let task = format!("aborts {} {} {at} {early} {}", plan.seed, options.steps, dir.display());
    let (status, stderr) = child.run(&task)?;
    match (status.code(), status.signal()) {
        (Some(0), _) => counts.add("runs to the end"),
        (_, Some(SIGABRT)) if stderr.contains("memory allocation of") => counts.add("ended processes"),
        _ => return Err(format!("{status}: {stderr}")),
    }
    let acknowledged = fs::read(dir.join("steps")).unwrap_or_default();
    let mut allowed = Allowed::new();
    for (number, step) in plan.steps.iter().enumerate().take(acknowledged.len() + 1) {
        // The step after the last completed one was in progress.
        let is_done = acknowledged.get(number) == Some(&DONE);
        update_allowed(&mut allowed, step, is_done);
        counts.add(if is_done { "acknowledged steps" } else { "steps under way" });
    }
    let setup = Setup { threads: 0, ..plan.setup };
    let again = ChildHistory { setup, seed: plan.seed, specs: plan.specs.clone(), steps: Vec::new() };
    let (db, docs) =
        again.start(dir).map_err(|error| format!("{} the database does not open: {error:?}", Rule::Opens))?;
    let switch = Switch::new(Site::Files, None);
    compare(&docs, &allowed, &switch, counts)?;
    let report = db.check(true).map_err(|error| format!("{error:?}"))?;
    if !report.problems().is_empty() {
        return Err(format!("check: {:?}", report.problems()));
    }
    let count = fs::read_to_string(dir.join("count")).unwrap_or_default();
    Ok(count.parse().unwrap_or(0))
}
