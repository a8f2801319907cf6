//! One suite that every kind of index passes.
//!
//! [`check`] takes a kind with its options, as a specification has them behind its attributes, declares indexes
//! of it on a scalar, on the elements of an array, on two attributes, and where it keeps places on these, and runs a table of [`cases`] with
//! them. Each case runs with the index made before the data, in their midst and after them, and with nothing,
//! a flush, a compaction or a reopen after each of its writes; at its end all of these follow in turn. Each
//! time the index itself must answer all [`queries`], at the latest state and at every snapshot of the case,
//! exactly as the model does, which looks at every record; and the deep check must find nothing.

use std::fmt;
use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::MemVfs;

use crate::failure::StepFailure;
use crate::flawed::Flaw;
use crate::history::{Durability, Step};
use crate::kinds::{can_be_on, is_available};
use crate::model::Model;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::QueryTarget;

pub mod cases;
pub mod queries;

use cases::{CaseStep, COLLECTION, Case};

/// What the indexes of the suite are on.
const ATTRIBUTES: [&str; 5] = ["v", "tags[*]", "v+w", "rect(areas)", "point(x,y)"];

/// When the indexes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexCreation {
    /// With the collection.
    Before,
    /// AfterWrite the writes.
    Midway,
    /// After the last write.
    After,
}

/// What follows each write of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterWrite {
    /// Nothing: all of it is in memory at the end.
    Nothing,
    /// A flush: each write is in an sstable of its own.
    Flush,
    /// A compaction.
    Compaction,
    /// A close and an open. Snapshots do not outlive it.
    Reopen,
}

/// One variant to run a case.
#[derive(Debug, Clone, Copy)]
struct RunVariant {
    made: IndexCreation,
    after_write: AfterWrite,
    layout: Layout,
    fetch_threads: usize,
    fetch_by_sequence: bool,
}

impl RunVariant {
    /// All variants; the layouts take turns, beginning with any, unless one is given, and so do the variants to fetch records.
    fn all(turn: usize, layout: Option<Layout>) -> Vec<Self> {
        let mut variants = Vec::new();
        for made in [IndexCreation::Before, IndexCreation::Midway, IndexCreation::After] {
            for after_write in [AfterWrite::Nothing, AfterWrite::Flush, AfterWrite::Compaction, AfterWrite::Reopen] {
                let layout = layout.unwrap_or(Layout::ALL[(turn + variants.len() + variants.len() / 4) % 4]);
                let fetch = (turn / 2 + variants.len()) % 4;
                variants.push(Self {
                    made,
                    after_write,
                    layout,
                    fetch_threads: if fetch.is_multiple_of(2) { 1 } else { 3 },
                    fetch_by_sequence: fetch < 2,
                });
            }
        }
        variants
    }

    /// Little blocks and files, and a memtable that is full when the run requires it.
    fn setup(self) -> Setup {
        Setup {
            layout: self.layout,
            compression: Compression::Lz4,
            block_bytes: 512,
            bloom_bits_per_key: 10,
            target_file_bytes: 16 << 10,
            memtable_bytes: 8 << 20,
            manifest_bytes: 64 << 10,
            cache_bytes: 1 << 20,
            max_open_files: 64,
            threads: 0,
            build_batch_records: 0,
            fetch_threads: self.fetch_threads,
            fetch_by_sequence: self.fetch_by_sequence,
            sorted_views: self.after_write == AfterWrite::Flush || self.after_write == AfterWrite::Compaction,
        }
    }
}

impl fmt::Display for RunVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = match self.made {
            IndexCreation::Before => "before",
            IndexCreation::Midway => "amid",
            IndexCreation::After => "after",
        };
        write!(f, "{:?}, index made {made} the data, {:?} after_write writes", self.layout, self.after_write)?;
        let by = if self.fetch_by_sequence { "sequence" } else { "key" };
        write!(f, ", records fetched by {by} in {} thread(s)", self.fetch_threads)
    }
}

/// Runs the whole suite with indexes of `kind`. Counts `refused` alone where the library reports that it is not
/// available in this version.
pub fn check(kind: &str) -> Outcome<Counts> {
    check_with(kind, None, None)
}

/// The same with all collections in `layout`.
pub fn check_in(kind: &str, layout: Layout) -> Outcome<Counts> {
    check_with(kind, None, Some(layout))
}

/// Runs the suite, until it fails, with indexes of `kind` that have this flaw.
pub fn check_flawed(kind: &str, flaw: Option<Flaw>) -> Outcome<Counts> {
    check_with(kind, flaw, None)
}

fn check_with(kind: &str, flaw: Option<Flaw>, layout: Option<Layout>) -> Outcome<Counts> {
    let mut counts = Counts::default();
    if !is_available(&format!("i=v:{kind}")) {
        counts.add("refused");
        return Ok(counts);
    }
    let mut cases: Vec<(usize, Case)> = cases::all().into_iter().enumerate().collect();
    // Where a flaw is sought, its likely place comes first.
    cases.sort_by_key(|(_, case)| flaw.is_some_and(|flaw| flaw.likely_case() != Some(case.name)));
    for (turn, case) in &cases {
        for variant in RunVariant::all(*turn, layout) {
            let context = |what| format!("{kind}: {} ({variant}): {what}", case.name);
            counts.merge(&run(kind, case, variant, flaw).map_err(context)?);
        }
        counts.add("cases");
    }
    counts.add("kinds");
    Ok(counts)
}

fn run(kind: &str, case: &Case, variant: RunVariant, flaw: Option<Flaw>) -> Outcome<Counts> {
    let specs: Vec<Arc<str>> = ATTRIBUTES
        .iter()
        .enumerate()
        .filter(|(_, attributes)| can_be_on(kind, attributes))
        .map(|(i, attributes)| Arc::from(format!("ix{i}={attributes}:{kind}")))
        .filter(|spec: &Arc<str>| is_available(spec))
        .collect();
    let subject = Subject::open_flawed(Arc::new(MemVfs::new()), variant.setup(), 1, Model::default(), flaw)
        .map_err(|error| format!("{error:?}"))?;
    let mut run = CaseRun { subject, case, variant, turn: variant.made as usize, counts: Counts::default() };
    run.play(specs)?;
    run.counts.add("runs");
    Ok(run.counts)
}

/// A case on its variant.
struct CaseRun<'c> {
    subject: Subject,
    case: &'c Case,
    variant: RunVariant,
    /// Which of the queries that take turns run.
    turn: usize,
    counts: Counts,
}

impl CaseRun<'_> {
    fn play(&mut self, specs: Vec<Arc<str>>) -> Outcome {
        let first = if self.variant.made == IndexCreation::Before { specs.clone() } else { Vec::new() };
        self.step(&Step::ToggleCollection(COLLECTION, first))?;
        let midway = self.case.steps.len() / 2;
        let mut snapshots = 0;
        for (i, step) in self.case.steps.iter().enumerate() {
            if self.variant.made == IndexCreation::Midway && i == midway {
                self.create_indexes(&specs)?;
            }
            match step {
                CaseStep::Write(changes) => {
                    self.step(&Step::Write { changes: changes.clone(), durability: Durability::None })?;
                    self.run_after_write()?;
                }
                CaseStep::Snapshot if self.variant.after_write != AfterWrite::Reopen => {
                    self.step(&Step::ToggleSnapshot(snapshots))?;
                    snapshots += 1;
                }
                CaseStep::Snapshot => {}
            }
        }
        if self.variant.made == IndexCreation::After {
            self.create_indexes(&specs)?;
        }
        self.check_answers("at the end of the writes")?;
        if self.variant.after_write == AfterWrite::Nothing {
            self.step(&Step::Flush)?;
            self.check_answers("flushed")?;
            self.step(&Step::Compact)?;
            self.check_answers("compacted")?;
            for slot in 0..snapshots {
                self.step(&Step::ToggleSnapshot(slot))?;
            }
            self.step(&Step::Compact)?;
            self.check_answers("compacted without snapshots")?;
        }
        self.step(&Step::Reopen)?;
        self.check_answers("reopened")
    }

    fn create_indexes(&mut self, specs: &[Arc<str>]) -> Outcome {
        specs.iter().try_for_each(|spec| self.step(&Step::ToggleIndex(COLLECTION, Arc::clone(spec))))
    }

    fn run_after_write(&mut self) -> Outcome {
        match self.variant.after_write {
            AfterWrite::Nothing => Ok(()),
            AfterWrite::Flush => self.step(&Step::Flush),
            AfterWrite::Compaction => self.step(&Step::Compact),
            AfterWrite::Reopen => self.step(&Step::Reopen),
        }
    }

    fn step(&mut self, step: &Step) -> Outcome {
        self.subject.step(step).map_err(|failure| format!("{step}: {failure}"))
    }

    /// Checks every answer of every index, now and at every snapshot.
    fn check_answers(&mut self, stage: &str) -> Outcome {
        let count = self.check_all_answers().map_err(|failure| format!("{stage}: {failure}"))?;
        self.counts.add_many("answers", count);
        Ok(())
    }

    fn check_all_answers(&mut self) -> Result<u64, StepFailure> {
        let db = self.subject.db()?;
        let report = db.check(true)?;
        if !report.problems().is_empty() {
            return Err(StepFailure::Wrong(format!("check: {:?}", report.problems())));
        }
        let collection = db.collection(COLLECTION)?;
        let (mut count, records) = (0, self.case.records());
        // A handful of pages, however many records.
        let page = (records.len() / 8).max(4);
        for (snapshot, model) in self.subject.read_points() {
            let Some(model) = model.collections.get(COLLECTION) else { continue };
            self.turn += 1;
            for index in collection.indexes() {
                let index_name = Some(index.name());
                let target = QueryTarget { collection: &collection, snapshot, index: index_name };
                for model_query in queries::paged(&index.spec().attributes_text(), &records) {
                    target.check_pages(model, &model_query, page)?;
                    count += 1;
                }
                for model_query in queries::all(&index.spec().attributes_text(), &records, self.turn) {
                    target.check_answer(model, &model_query)?;
                    count += 1;
                }
            }
            for model_query in queries::few(&records) {
                QueryTarget { collection: &collection, snapshot, index: None }
                    .check_answer(model, &model_query)?;
                count += 1;
            }
        }
        Ok(count)
    }
}
