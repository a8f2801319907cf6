//! An I/O error at every call: once, and at all later calls.
//!
//! A clean run of a history counts the calls that each kind of fault can hit. The history then runs again for each of these
//! calls. The rules are:
//!
//! 1. nothing panics, and no answer is wrong, before or after the error;
//! 2. a failed step is applied in full or not at all, for readers and after a reopen;
//! 3. an I/O error is not reported as corruption or as a bug;
//! 4. the handle still reads after the error, and a reopen after a power cut finds every synced step.

use std::sync::Arc;

use bolide::{ErrorKind, Layout};
use bolide_storage::{CrashMode, Fault, FaultPlan, SimRng, SimVfs};

use crate::failure::StepFailure;
use crate::history::{Change, HistoryOptions, HistoryStep, history};
use crate::kinds::KindChoice;
use crate::model::Model;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::{Subject, apply_step};
use crate::verify::{match_state, verify};

/// Options of a fault run.
#[derive(Debug, Clone, Copy)]
pub struct FaultOptions {
    /// Number of steps of the history.
    pub steps: usize,
    /// One of this many calls fails; 1 fails each in turn.
    pub stride: u64,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of the collections; `None` to choose by the seed.
    pub layout: Option<Layout>,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self { steps: 30, stride: 1, kinds: KindChoice::default(), layout: None }
    }
}

/// Runs the history of `seed` with each fault at each call.
pub fn check(seed: u64, options: FaultOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let setup = Setup::random(&mut rng).with_layout(options.layout);
    let FaultOptions { steps, kinds, .. } = options;
    let steps = history(seed, HistoryOptions { steps, keys: 30, reads: true, reopens: true, kinds });
    // Odd seeds write the log through a memory mapping.
    let disk = || {
        let disk = SimVfs::new(seed);
        if seed % 2 == 1 {
            disk.map_logs();
        }
        disk
    };
    let clean = disk();
    let mut counts = Counts::default();
    FaultRun::new(seed, setup, &clean)
        .run_history(&steps, None, &mut counts)
        .map_err(|what| format!("{setup}: {what}"))?;
    let first = rng.below(options.stride.max(1));
    for fault in Fault::EACH {
        let calls = clean.eligible_calls(fault);
        for sticky in [false, true] {
            for at in (1 + first..=calls).step_by(options.stride.max(1) as usize) {
                let plan = FaultPlan { fault, at, sticky };
                let vfs = disk();
                vfs.set_fault(Some(plan));
                FaultRun::new(seed, setup, &vfs)
                    .run_history(&steps, Some(plan), &mut counts)
                    .map_err(|what| format!("{setup}: {plan:?}: {what}"))?;
                counts.add("faults");
                if fault == Fault::MappedAccess {
                    counts.add("faults of mapped logs");
                }
            }
        }
    }
    counts.add("histories");
    Ok(counts)
}

/// A run of a history with one planned fault.
struct FaultRun<'a> {
    seed: u64,
    setup: Setup,
    vfs: &'a SimVfs,
    /// The possible states after a power cut, oldest first. The first one is durable.
    states: Vec<Model>,
    /// The states after failed steps without a later successful write.
    uncertain: Vec<Model>,
    /// The failed steps, for messages.
    failed: Vec<String>,
}

impl<'a> FaultRun<'a> {
    fn new(seed: u64, setup: Setup, vfs: &'a SimVfs) -> Self {
        Self { seed, setup, vfs, states: vec![Model::default()], uncertain: Vec::new(), failed: Vec::new() }
    }

    fn run_history(mut self, steps: &[HistoryStep], plan: Option<FaultPlan>, counts: &mut Counts) -> Outcome {
        let opened = Subject::open(Arc::new(self.vfs.clone()), self.setup, self.seed, Model::default());
        let mut subject = match opened {
            Ok(subject) => subject,
            Err(error) => {
                check_kind(&error, plan).map_err(|what| format!("create: {what}"))?;
                counts.add("failed opens");
                self.vfs.set_fault(None);
                return self.check_reopen();
            }
        };
        let mut after_error = 0;
        for (i, step) in steps.iter().enumerate() {
            // The run ends a few steps after the first error.
            if after_error > 6 {
                break;
            }
            after_error += usize::from(after_error > 0);
            let context = |what: String| format!("step {i}, {step}: {what}");
            match subject.step(step) {
                Ok(()) => {
                    if matches!(step, HistoryStep::Reopen) {
                        self.resolve_uncertain(&mut subject).map_err(context)?;
                    }
                    self.record_success(step, &subject);
                }
                Err(StepFailure::Wrong(what)) => return Err(context(what)),
                Err(StepFailure::Refused(error)) => {
                    check_kind(&error, plan).map_err(context)?;
                    counts.add("failed steps");
                    self.failed.push(format!("step {i}, {step}: {error:?}"));
                    after_error += usize::from(after_error == 0);
                    self.resolve_failure(&mut subject, step, plan)
                        .map_err(|what| context(format!("{error:?}, then {what}")))?;
                }
            }
        }
        drop(subject);
        // A clean run has no plan, and its call counts are read later.
        if plan.is_some() {
            self.vfs.set_fault(None);
        }
        self.check_reopen()
    }

    /// Determines after a reopen whether the failed steps were applied.
    fn resolve_uncertain(&self, subject: &mut Subject) -> Outcome {
        if self.uncertain.is_empty() {
            return Ok(());
        }
        let db = subject.db().map_err(|error| format!("{error:?}"))?;
        let candidates: Vec<&Model> = std::iter::once(&subject.model).chain(&self.uncertain).collect();
        let position = match_state(db, &candidates).map_err(|failure| failure.to_string())?;
        let found = candidates[position].clone();
        subject.model = found;
        Ok(())
    }

    /// Updates the possible states after a successful step.
    fn record_success(&mut self, step: &HistoryStep, subject: &Subject) {
        if let HistoryStep::Write { changes, .. } = step {
            let known = |change: &Change| subject.model.collections.contains_key(change.collection());
            if !changes.iter().any(known) {
                // Nothing was written, so the step does not make earlier steps durable.
                return;
            }
        }
        if let HistoryStep::ToggleIndex(collection, _) = step
            && !subject.model.collections.contains_key(*collection)
        {
            return;
        }
        if matches!(step, HistoryStep::Flush | HistoryStep::Compact) && subject.model.collections.is_empty() {
            // Nothing was written, so a failed collection creation stays uncertain.
            return;
        }
        if step.changes_schema() {
            self.states = self.states.iter().map(|state| state.under_schema_of(&subject.model)).collect();
            self.uncertain.clear();
        }
        if step.makes_durable() {
            self.states.clear();
        }
        if step.makes_durable() || matches!(step, HistoryStep::Write { .. }) {
            self.uncertain.clear();
            self.states.push(subject.model.clone());
        }
    }

    /// Checks after an error that the handle still reads and that the step is applied in full or not at all.
    fn resolve_failure(
        &mut self,
        subject: &mut Subject,
        step: &HistoryStep,
        plan: Option<FaultPlan>,
    ) -> Outcome {
        self.vfs.set_fault(None);
        let mut after = subject.model.clone();
        apply_step(&mut after, step);
        if subject.db().is_err() {
            subject
                .step(&HistoryStep::Reopen)
                .map_err(|failure| format!("a second try to open failed: {failure}"))?;
        }
        let db = subject.db().map_err(|error| format!("{error:?}"))?;
        let mut candidates = vec![&subject.model, &after];
        candidates.extend(&self.uncertain);
        let position = match_state(db, &candidates).map_err(|failure| failure.to_string())?;
        let found = candidates[position].clone();
        if step.changes_schema() {
            let confirmed = self.states.iter().map(|state| state.under_schema_of(&found)).collect();
            let possible: Vec<Model> =
                self.states.iter().map(|state| state.under_schema_of(&after)).collect();
            self.uncertain.extend(possible);
            self.uncertain.append(&mut self.states);
            self.states = confirmed;
        }
        self.states.push(found.clone());
        self.uncertain.push(after);
        subject.model = found;
        if let Some(plan) = plan.filter(|plan| plan.sticky) {
            self.vfs.set_fault(Some(FaultPlan { at: 1, ..plan }));
        }
        Ok(())
    }

    /// Reopens the database without the fault, as after a killed process and as after power cuts.
    fn check_reopen(&self) -> Outcome {
        let mut rng = SimRng::new(self.seed);
        let candidates: Vec<&Model> = self.states.iter().chain(&self.uncertain).collect();
        let disks = [
            ("kill", self.vfs.clone_disk()),
            ("power cut", self.vfs.crash_with_seed(CrashMode::Random, self.seed)),
            ("power cut", self.vfs.crash_with_seed(CrashMode::None, self.seed)),
        ];
        for (what, disk) in disks {
            let context = |failure: String| format!("{:?}: reopen after a {what}: {failure}", self.failed);
            let db =
                self.setup.open(Arc::new(disk), self.seed).map_err(|error| context(format!("{error:?}")))?;
            let position = match_state(&db, &candidates).map_err(|failure| context(failure.to_string()))?;
            verify(&db, candidates[position], &mut rng).map_err(|failure| context(failure.to_string()))?;
        }
        Ok(())
    }
}

/// An error caused by a fault must report an I/O problem, not corruption or a bug.
fn check_kind(error: &bolide::Error, plan: Option<FaultPlan>) -> Outcome {
    let allowed = [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::Poisoned, ErrorKind::Closed];
    if plan.is_some() && allowed.contains(&error.kind()) {
        return Ok(());
    }
    Err(format!("unexpected error {error:?}"))
}
