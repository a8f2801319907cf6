//! Power cuts at every sync point, also inside recovery, and repeatedly.
//!
//! One run of a history has all its crash points. The simulated disk records an image of itself before each sync. Each
//! image loses power and is recovered before the run continues. After a crash during step `i` these rules hold:
//!
//! 1. the database is in the state after some step `j`: every acknowledged write up to `j` is complete, and no later
//!    write is visible in part, because the log has one order;
//! 2. `j` is at least the last step acknowledged as synced, and at most `i`;
//! 3. all acknowledged changes of collections and indexes are present;
//! 4. each index answers as a scan;
//! 5. the rules also hold after a crash inside or right after the recovery.

use std::sync::Arc;

use bolide::Layout;
use bolide_storage::{CrashMode, DiskImage, RecordImages, SimRng, SimVfs, Vfs};

use crate::failure::StepFailure;
use crate::history::{Durability, HistoryOptions, HistoryStep, history};
use crate::kinds::KindChoice;
use crate::model::Model;
use crate::planted::{Planted, PlantedVfs};
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::{match_state, verify};

/// Options of a crash run.
#[derive(Debug, Clone, Copy)]
pub struct CrashOptions {
    /// Number of steps of the history.
    pub steps: usize,
    /// One of this many recoveries loses power at each of its own sync points.
    pub nested_one_in: u64,
    /// A planted bug that the run must find.
    pub planted: Option<Planted>,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of the collections; `None` to choose by the seed.
    pub layout: Option<Layout>,
}

impl Default for CrashOptions {
    fn default() -> Self {
        Self { steps: 60, nested_one_in: 25, planted: None, kinds: KindChoice::default(), layout: None }
    }
}

/// The history of `seed`.
pub fn steps(seed: u64, steps: usize, kinds: KindChoice) -> Vec<HistoryStep> {
    let keys = [6, 40, 150][(seed % 3) as usize];
    history(seed, HistoryOptions { steps, keys, reads: true, reopens: true, kinds })
}

/// Runs the history of `seed` and crashes it at every sync point.
pub fn check(seed: u64, options: CrashOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let setup = Setup::random(&mut rng).with_layout(options.layout);
    let vfs = SimVfs::new(seed);
    // Every seventh history loses power before every write, not only before syncs.
    vfs.record_images(if seed % 7 == 3 { RecordImages::Writes } else { RecordImages::SyncPoints });
    let mut runner = CrashRunner::new(seed, setup, options, rng);
    let context = |step: &str, what: String| format!("{setup}: {step}: {what}");

    let files: Arc<dyn Vfs> = match options.planted {
        Some(planted) => Arc::new(PlantedVfs::new(vfs.clone(), planted)),
        None => Arc::new(vfs.clone()),
    };
    let opened = Subject::open(files, setup, seed, Model::default());
    let mut subject = opened.map_err(|error| context("create", format!("{error:?}")))?;
    runner.crash_at(vfs.take_images(), &[Model::default()]).map_err(|what| context("create", what))?;
    let history = steps(seed, options.steps, options.kinds);
    for (i, step) in history.iter().enumerate() {
        let name = format!("step {i}, {step}");
        subject.step(step).map_err(|failure| context(&name, failure.to_string()))?;
        let candidates = runner.after_step(step, &subject.model);
        let crashes = runner.counts.get("crashes");
        runner.crash_at(vfs.take_images(), &candidates).map_err(|what| context(&name, what))?;
        if matches!(step, HistoryStep::ToggleIndex(..) | HistoryStep::RebuildIndex(..)) {
            let crashes = runner.counts.get("crashes") - crashes;
            runner.counts.add_many("crashes amid builds and drops", crashes);
        }
    }
    // Power cuts at the end of the run without a close, and during the close.
    let end = DiskImage { vfs: vfs.clone_disk(), before: "the end".to_owned(), call: 0 };
    let candidates = runner.states.clone();
    runner.crash_at(vec![end], &candidates).map_err(|what| context("end", what))?;
    subject.close();
    runner.crash_at(vfs.take_images(), &candidates).map_err(|what| context("close", what))?;
    runner.counts.add("histories");
    runner.counts.add_many("steps", history.len() as u64);
    Ok(runner.counts)
}

/// A run with power cuts and the states that are possible after each.
pub(crate) struct CrashRunner {
    seed: u64,
    setup: Setup,
    options: CrashOptions,
    rng: SimRng,
    /// The possible states after a power cut after the last step, the durable one first.
    states: Vec<Model>,
    counts: Counts,
}

impl CrashRunner {
    /// A run on an empty database. `seed` is the seed of its opens; `rng` determines the surviving writes of power cuts.
    pub(crate) fn new(seed: u64, setup: Setup, options: CrashOptions, rng: SimRng) -> Self {
        Self { seed, setup, options, rng, states: vec![Model::default()], counts: Counts::default() }
    }

    /// The possible states after a power cut after the last step.
    pub(crate) fn states(&self) -> &[Model] {
        &self.states
    }

    /// The counts of the run.
    pub(crate) fn into_counts(self) -> Counts {
        self.counts
    }

    /// Records a step. Returns the possible states after a power cut during the step.
    pub(crate) fn after_step(&mut self, step: &HistoryStep, after: &Model) -> Vec<Model> {
        let mut during = self.states.clone();
        if step.changes_schema() {
            // Unsynced earlier writes may be lost, but the schema change may survive.
            let changed: Vec<Model> = self.states.iter().map(|state| state.under_schema_of(after)).collect();
            during.extend(changed.iter().cloned());
            self.states = changed;
        } else if matches!(step, HistoryStep::Write { .. }) {
            during.push(after.clone());
            self.states.push(after.clone());
        }
        if step.makes_durable() {
            // Earlier states are possible only while the step runs.
            self.states = vec![after.clone()];
        }
        during
    }

    /// Cuts the power at each image in each mode. The recovered database must equal one of the candidates.
    pub(crate) fn crash_at(&mut self, images: Vec<DiskImage>, candidates: &[Model]) -> Outcome {
        for image in images {
            for mode in CrashMode::EACH {
                let seed = self.rng.next_u64();
                let disk = image.vfs.crash_with_seed(mode, seed);
                let position =
                    format!("power cut ({mode:?}, {seed}) at call {}, before {}", image.call, image.before);
                self.recover(&disk, candidates).map_err(|what| format!("{position}: {what}"))?;
            }
        }
        Ok(())
    }

    /// Recovers `disk` and compares the database with the candidates.
    fn recover(&mut self, disk: &SimVfs, candidates: &[Model]) -> Outcome {
        self.counts.add("crashes");
        let nested = self.options.nested_one_in > 0 && self.rng.one_in(self.options.nested_one_in);
        if nested {
            disk.record_images(RecordImages::SyncPoints);
        }
        let state = self.reopen(disk, candidates)?;
        if !nested {
            return Ok(());
        }
        disk.record_images(RecordImages::Never);
        for image in disk.take_images() {
            self.crash_again(&image, &state)?;
        }
        self.continue_after_recovery(disk, state)
    }

    /// Cuts the power a second time inside the first recovery, and a third time inside the second recovery.
    fn crash_again(&mut self, image: &DiskImage, state: &Model) -> Outcome {
        let context = |what| format!("second power cut, before {}: {what}", image.before);
        let disk = image.vfs.crash_with_seed(CrashMode::Random, self.rng.next_u64());
        self.counts.add("crashes");
        self.counts.add("crashes inside recovery");
        disk.record_images(RecordImages::SyncPoints);
        self.reopen(&disk, std::slice::from_ref(state)).map_err(context)?;
        disk.record_images(RecordImages::Never);
        let images = disk.take_images();
        let Some(third) = self.rng.pick(&images) else { return Ok(()) };
        let disk = third.vfs.crash_with_seed(CrashMode::Random, self.rng.next_u64());
        self.counts.add("crashes");
        self.counts.add("crashes inside recovery");
        let before = &third.before;
        self.reopen(&disk, std::slice::from_ref(state))
            .map_err(|what| context(format!("third, before {before}: {what}")))
            .map(drop)
    }

    /// Opens the database on `disk`, which must be in one of these states.
    fn reopen(&mut self, disk: &SimVfs, candidates: &[Model]) -> Outcome<Model> {
        let files = disk.files();
        let db = self.setup.open(Arc::new(disk.clone()), self.seed).map_err(|error| {
            format!("{} the database does not open: {error:?}; files: {files:?}", Rule::Opens)
        })?;
        let candidates: Vec<&Model> = candidates.iter().collect();
        let position = match_state(&db, &candidates).map_err(failure_text)?;
        let mut rng = self.rng.fork();
        verify(&db, candidates[position], &mut rng).map_err(failure_text)?;
        Ok(candidates[position].clone())
    }

    /// Writes after a recovery and cuts the power again: no old data may reappear.
    fn continue_after_recovery(&mut self, disk: &SimVfs, model: Model) -> Outcome {
        let context = |what: String| format!("after recovery: {what}");
        let disk = disk.clone_disk();
        let mut subject = Subject::open(Arc::new(disk.clone()), self.setup, self.seed, model)
            .map_err(|error| context(format!("{error:?}")))?;
        let options =
            HistoryOptions { steps: 6, keys: 40, reads: true, reopens: false, kinds: self.options.kinds };
        // The first two steps of a history create collections; here they would drop them.
        for step in history(self.rng.next_u64(), options).iter().skip(2) {
            subject.step(step).map_err(|failure| context(format!("{step}: {failure}")))?;
        }
        let sync = HistoryStep::Write { changes: Vec::new(), durability: Durability::Always };
        subject.step(&sync).map_err(|failure| context(failure.to_string()))?;
        subject.step(&HistoryStep::Flush).map_err(|failure| context(failure.to_string()))?;
        let after = disk.crash_with_seed(CrashMode::Random, self.rng.next_u64());
        let model = subject.model.clone();
        drop(subject);
        self.counts.add("crashes");
        let db =
            self.setup.open(Arc::new(after), self.seed).map_err(|error| context(format!("{error:?}")))?;
        match_state(&db, &[&model]).map_err(|failure| context(failure.to_string()))?;
        verify(&db, &model, &mut self.rng.fork()).map_err(|failure| context(failure.to_string()))
    }
}

/// The text of a failure. No read may fail after a power cut.
fn failure_text(failure: StepFailure) -> String {
    match failure {
        StepFailure::Refused(error) => format!("{} {error:?}", Rule::Readable),
        StepFailure::Wrong(what) => what,
    }
}
