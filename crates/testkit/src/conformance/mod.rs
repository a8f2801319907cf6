//! The conformance suite of index kinds.
//!
//! [`check`] takes a kind with its options and declares indexes of it on a scalar, on the elements of an array, on two
//! attributes, and on spatial attributes if the kind supports them. It runs a table of [`cases`] with these indexes.
//!
//! Each case runs with indexes created before, amid and after the data, and with nothing, a flush, a compaction or a reopen
//! after each write. At the end of a case all of these follow in turn. At each stage every index must answer [`queries`]
//! exactly as the model, at the latest state and at every snapshot, and the deep check must find no problem. A third of the
//! queries is due at a stage, another third at the next ([`QueryShare`]); the program of the test kit runs all.
//! The pull cursor must return the same answers, also if it is dropped and continued. At the very end cursors stay open
//! while every record is changed, the changes are flushed and compacted, and the indexes are dropped: their answers must not
//! change.

use std::fmt;
use std::sync::Arc;

use bolide::{Compression, Layout};
use bolide_storage::MemVfs;

use crate::failure::StepFailure;
use crate::flawed::{Flaw, QueryFlaw};
use crate::history::{Durability, HistoryStep};
use crate::kinds::{can_be_on, is_available};
use crate::model::Model;
use crate::model_query::ModelQuery;
use crate::pulled_query::{PulledQuery, changes_of_all, check_cursor};
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;
use crate::subject::Subject;
use crate::verify::QueryTarget;

pub mod cases;
pub mod queries;
mod truth_table;

use cases::{COLLECTION, Case, CaseStep};
use truth_table::TruthTable;

/// One in this number of queries is also read by cursors.
const CURSOR_SHARE: usize = 10;

/// The attributes of the indexes.
const ATTRIBUTES: [&str; 5] = ["v", "tags[*]", "v+w", "rect(areas)", "point(x,y)"];

/// When the indexes are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexCreation {
    /// With the collection.
    Before,
    /// Between the writes.
    Midway,
    /// After the last write.
    After,
}

/// The operation after each write of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterWrite {
    /// Nothing: all writes stay in memory.
    Nothing,
    /// A flush: each write has its own sstable.
    Flush,
    /// A compaction.
    Compaction,
    /// A close and an open. Snapshots do not survive it.
    Reopen,
}

/// One way to run a case.
#[derive(Debug, Clone, Copy)]
struct RunVariant {
    creation: IndexCreation,
    after_write: AfterWrite,
    layout: Layout,
    fetch_threads: usize,
    fetch_by_sequence: bool,
}

impl RunVariant {
    /// All variants. The ways to fetch records vary by turn, and so do the layouts unless `layout` is set.
    fn all(turn: usize, layout: Option<Layout>) -> Vec<Self> {
        let mut variants = Vec::new();
        for creation in [IndexCreation::Before, IndexCreation::Midway, IndexCreation::After] {
            for after_write in
                [AfterWrite::Nothing, AfterWrite::Flush, AfterWrite::Compaction, AfterWrite::Reopen]
            {
                let layout = layout.unwrap_or(Layout::ALL[(turn + variants.len() + variants.len() / 4) % 4]);
                let fetch = (turn / 2 + variants.len()) % 4;
                variants.push(Self {
                    creation,
                    after_write,
                    layout,
                    fetch_threads: if fetch.is_multiple_of(2) { 1 } else { 3 },
                    fetch_by_sequence: fetch < 2,
                });
            }
        }
        variants
    }

    /// Small blocks and files, and a memtable that only a flush of the run empties.
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
        let creation = match self.creation {
            IndexCreation::Before => "before",
            IndexCreation::Midway => "amid",
            IndexCreation::After => "after",
        };
        let (layout, after_write) = (self.layout, self.after_write);
        write!(f, "{layout:?}, index created {creation} the data, {after_write:?} after each write")?;
        let by = if self.fetch_by_sequence { "sequence" } else { "key" };
        write!(f, ", records fetched by {by} in {} thread(s)", self.fetch_threads)
    }
}

/// How many of the queries a check of the answers runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueryShare {
    /// One third, and another third at the next check. A run has up to six checks, and a case twelve runs.
    #[default]
    Third,
    /// All.
    All,
}

impl QueryShare {
    /// Whether check number `check` of a run has query number `query`.
    fn has(self, query: usize, check: usize) -> bool {
        self == Self::All || (query + check).is_multiple_of(3)
    }
}

/// The settings of the suite.
#[derive(Debug, Clone, Copy, Default)]
pub struct SuiteOptions {
    /// The layout of all collections; `None` for all layouts by turns.
    pub layout: Option<Layout>,
    /// The share of the queries.
    pub share: QueryShare,
}

/// Runs the suite with indexes of `kind`. Counts only `refused` if the library reports the kind as not available in this
/// version.
pub fn check(kind: &str, options: SuiteOptions) -> Outcome<Counts> {
    check_with(kind, None, options, None)
}

/// Runs the suite with indexes of `kind` that have this flaw, until the first failure.
pub fn check_flawed(kind: &str, flaw: Option<Flaw>) -> Outcome<Counts> {
    check_with(kind, flaw, SuiteOptions::default(), flaw.and_then(Flaw::likely_case))
}

/// Runs the suite with indexes of `kind` and with this flaw in its queries, until the first failure.
pub fn check_flawed_queries(kind: &str, flaw: QueryFlaw) -> Outcome<Counts> {
    let _planted = flaw.plant();
    check_with(kind, None, SuiteOptions::default(), flaw.likely_case())
}

/// Runs the suite; the case with the name `first` comes first.
fn check_with(kind: &str, flaw: Option<Flaw>, options: SuiteOptions, first: Option<&str>) -> Outcome<Counts> {
    let mut counts = Counts::default();
    if !is_available(&format!("i=v:{kind}")) {
        counts.add("refused");
        return Ok(counts);
    }
    let mut cases: Vec<(usize, Case)> = cases::all().into_iter().enumerate().collect();
    // The case in which a flaw is likely to show.
    cases.sort_by_key(|(_, case)| first.is_some_and(|first| first != case.name));
    for (turn, case) in &cases {
        for variant in RunVariant::all(*turn, options.layout) {
            let context = |what| format!("{kind}: {} ({variant}): {what}", case.name);
            let mut run = CaseRun::new(kind, case, variant, flaw).map_err(context)?;
            (run.share, run.checks) = (options.share, *turn);
            run.run_steps().map_err(context)?;
            run.counts.add("runs");
            counts.merge(&run.counts);
        }
        counts.add("cases");
    }
    if flaw.is_none() {
        counts.merge(&check_truth_table(kind, options.layout)?);
    }
    counts.add("kinds");
    Ok(counts)
}

/// Checks the documented truth table in `layout`, or in each.
fn check_truth_table(kind: &str, layout: Option<Layout>) -> Outcome<Counts> {
    let table = TruthTable::read()?;
    let case = table.case();
    let mut counts = Counts::default();
    let layouts = layout.map_or(Layout::ALL.to_vec(), |layout| vec![layout]);
    for layout in layouts {
        // An index before the data without a flush, amid flushes, after compactions.
        for variant in RunVariant::all(0, Some(layout)).into_iter().step_by(5) {
            let context = |what| format!("{kind}: {} ({variant}): {what}", case.name);
            let mut run = CaseRun::new(kind, &case, variant, None).map_err(context)?;
            counts.add_many("truth table queries", run.check_table(&table).map_err(context)?);
        }
    }
    Ok(counts)
}

/// The indexes of `kind` that the suite declares.
fn specs_of(kind: &str) -> Vec<Arc<str>> {
    ATTRIBUTES
        .iter()
        .enumerate()
        .filter(|(_, attributes)| can_be_on(kind, attributes))
        .map(|(i, attributes)| Arc::from(format!("ix{i}={attributes}:{kind}")))
        .filter(|spec: &Arc<str>| is_available(spec))
        .collect()
}

/// A run of one case.
struct CaseRun<'c> {
    subject: Subject,
    case: &'c Case,
    variant: RunVariant,
    /// The indexes.
    specs: Vec<Arc<str>>,
    /// Selects the queries that vary by turn.
    turn: usize,
    share: QueryShare,
    /// The number of the current check of the answers, from a number of the case on.
    checks: usize,
    counts: Counts,
}

impl<'c> CaseRun<'c> {
    fn new(kind: &str, case: &'c Case, variant: RunVariant, flaw: Option<Flaw>) -> Outcome<Self> {
        let subject =
            Subject::open_flawed(Arc::new(MemVfs::new()), variant.setup(), 1, Model::default(), flaw)
                .map_err(|error| format!("{error:?}"))?;
        let (turn, specs) = (variant.creation as usize, specs_of(kind));
        let (share, counts) = Default::default();
        Ok(Self { subject, case, variant, specs, turn, share, checks: 0, counts })
    }

    fn run_steps(&mut self) -> Outcome {
        let snapshots = self.write_steps()?;
        self.finish_steps(snapshots)
    }

    /// Checks `table` as all stages of a case are reached. Returns the number of queries.
    fn check_table(&mut self, table: &TruthTable) -> Outcome<u64> {
        self.write_steps()?;
        let mut count = self.check_table_once(table)?;
        for step in [HistoryStep::Flush, HistoryStep::Compact, HistoryStep::Reopen] {
            self.step(&step)?;
            count += self.check_table_once(table)?;
        }
        Ok(count)
    }

    fn check_table_once(&self, table: &TruthTable) -> Outcome<u64> {
        let collection = self.subject.db().and_then(|db| db.collection(COLLECTION));
        let checked = collection.map_err(StepFailure::from).and_then(|collection| table.check(&collection));
        checked.map_err(|failure| failure.to_string())
    }

    /// Writes the records of the case, and creates the indexes. Returns the number of snapshots.
    fn write_steps(&mut self) -> Outcome<usize> {
        let specs = self.specs.clone();
        let first = if self.variant.creation == IndexCreation::Before { specs.clone() } else { Vec::new() };
        self.step(&HistoryStep::ToggleCollection(COLLECTION, first))?;
        let midway = self.case.steps.len() / 2;
        let mut snapshots = 0;
        for (i, step) in self.case.steps.iter().enumerate() {
            if self.variant.creation == IndexCreation::Midway && i == midway {
                self.create_indexes(&specs)?;
            }
            match step {
                CaseStep::Write(changes) => {
                    let (changes, durability) = (changes.clone(), Durability::None);
                    self.step(&HistoryStep::Write { changes, durability })?;
                    self.run_after_write()?;
                }
                CaseStep::Snapshot if self.variant.after_write != AfterWrite::Reopen => {
                    self.step(&HistoryStep::ToggleSnapshot(snapshots))?;
                    snapshots += 1;
                }
                CaseStep::Snapshot => {}
            }
        }
        if self.variant.creation == IndexCreation::After {
            self.create_indexes(&specs)?;
        }
        Ok(snapshots)
    }

    fn finish_steps(&mut self, snapshots: usize) -> Outcome {
        self.check_answers("at the end of the writes")?;
        if self.variant.after_write == AfterWrite::Nothing {
            self.step(&HistoryStep::Flush)?;
            self.check_answers("flushed")?;
            self.step(&HistoryStep::Compact)?;
            self.check_answers("compacted")?;
            for slot in 0..snapshots {
                self.step(&HistoryStep::ToggleSnapshot(slot))?;
            }
            self.step(&HistoryStep::Compact)?;
            self.check_answers("compacted without snapshots")?;
        }
        self.step(&HistoryStep::Reopen)?;
        self.check_answers("reopened")?;
        let specs = self.specs.clone();
        self.check_open_cursors(&specs).map_err(|failure| format!("during writes: {failure}"))
    }

    fn create_indexes(&mut self, specs: &[Arc<str>]) -> Outcome {
        specs.iter().try_for_each(|spec| self.step(&HistoryStep::ToggleIndex(COLLECTION, Arc::clone(spec))))
    }

    fn run_after_write(&mut self) -> Outcome {
        match self.variant.after_write {
            AfterWrite::Nothing => Ok(()),
            AfterWrite::Flush => self.step(&HistoryStep::Flush),
            AfterWrite::Compaction => self.step(&HistoryStep::Compact),
            AfterWrite::Reopen => self.step(&HistoryStep::Reopen),
        }
    }

    fn step(&mut self, step: &HistoryStep) -> Outcome {
        self.subject.step(step).map_err(|failure| format!("{step}: {failure}"))
    }

    /// Checks every answer of every index, at the latest state and at every snapshot.
    fn check_answers(&mut self, stage: &str) -> Outcome {
        let count = self.check_all_answers().map_err(|failure| format!("{stage}: {failure}"))?;
        self.checks += 1;
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
        let (share, check) = (self.share, self.checks);
        let is_due = |(number, _): &(usize, ModelQuery)| share.has(*number, check);
        // At most about eight pages.
        let page = (records.len() / 8).max(4);
        for (snapshot, model) in self.subject.read_points() {
            let Some(model) = model.collections.get(COLLECTION) else { continue };
            self.turn += 1;
            for index in collection.indexes() {
                let index_name = Some(index.name());
                let target = QueryTarget { collection: &collection, snapshot, index: index_name };
                let paged = queries::paged(&index.spec().attributes_text(), &records);
                for (_, model_query) in paged.into_iter().enumerate().filter(is_due) {
                    target.check_pages(model, &model_query, page)?;
                    count += 1;
                }
                let all = queries::all(&index.spec().attributes_text(), &records, self.turn);
                for (position, (_, model_query)) in all.into_iter().enumerate().filter(is_due).enumerate() {
                    target.check_answer(model, &model_query)?;
                    count += 1;
                    if (position + self.turn).is_multiple_of(CURSOR_SHARE) {
                        let pulled = 1 + position / CURSOR_SHARE % 4 * page / 2;
                        check_cursor(&target, &model_query, pulled)?;
                        self.counts.add("cursors");
                    }
                }
            }
            for (_, model_query) in queries::few(&records).into_iter().enumerate().filter(is_due) {
                QueryTarget { collection: &collection, snapshot, index: None }
                    .check_answer(model, &model_query)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Reads cursors while the records change: their answers are those of the moment at which they were opened.
    fn check_open_cursors(&mut self, specs: &[Arc<str>]) -> Result<(), StepFailure> {
        let collection = self.subject.db()?.collection(COLLECTION)?;
        let Some(model) = self.subject.model.collections.get(COLLECTION).cloned() else { return Ok(()) };
        let records = self.case.records();
        let mut open = Vec::new();
        for index in collection.indexes() {
            let target = QueryTarget { collection: &collection, snapshot: None, index: Some(index.name()) };
            let all = queries::all(&index.spec().attributes_text(), &records, self.turn);
            let due = all.iter().enumerate().filter(|(number, _)| self.share.has(*number, self.checks));
            for (_, model_query) in due.skip(self.turn % CURSOR_SHARE).step_by(CURSOR_SHARE) {
                open.extend(PulledQuery::open(&target, &model, model_query)?);
            }
        }
        self.counts.add_many("open cursors", open.len() as u64);
        let (changes, durability) = (changes_of_all(COLLECTION, &model), Durability::None);
        let mut steps =
            vec![HistoryStep::Write { changes, durability }, HistoryStep::Flush, HistoryStep::Compact];
        steps.extend(specs.iter().map(|spec| HistoryStep::ToggleIndex(COLLECTION, Arc::clone(spec))));
        for step in &steps {
            open.iter_mut().try_for_each(|query| query.pull(1))?;
            self.subject.step(step)?;
        }
        open.into_iter().try_for_each(PulledQuery::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likely_cases_are_cases() {
        let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
        let of_flaws = Flaw::EACH.into_iter().filter_map(Flaw::likely_case);
        let of_queries = QueryFlaw::EACH.into_iter().filter_map(QueryFlaw::likely_case);
        for name in of_flaws.chain(of_queries) {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn three_checks_have_each_query_once() {
        for query in 0..10 {
            let checks = (4..7).filter(|check| QueryShare::Third.has(query, *check));
            assert_eq!(checks.count(), 1);
            assert!(QueryShare::All.has(query, 0));
        }
    }
}
