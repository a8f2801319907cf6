//! The micro-benchmarks of figures 6 to 8 (§5.2.1 to §5.2.3): every compared index under every workload, measured once.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bolide::FindOptions;
use bolide_index::ps_tree::SkeyKind;
use bolide_storage::pmem::LatencyModel;

use super::workload::{Draws, Workload, Write};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::measure::{process_cpu_nanos, settle, thread_cpu_nanos};
use crate::pm_baselines::{
    Candidates, LsmIndex, LsmKind, PmIndex, PmKind, PmSettings, StageTimes, StagedPut, primary_key,
    secondary_key,
};

/// The limits of index-only queries.
pub const LIMITS: [usize; 2] = [10, 200];
/// The number of secondary keys of a range, and the limit of records of each.
pub const RANGE: (u64, usize) = (20, 5);
/// Records for each of `--records`, since entries are small.
const RECORDS_FACTOR: u64 = 4;
/// Puts of a timed stage.
const PUTS_PER_STAGE: usize = 128;
const PASSES: usize = 3;
/// Repetitions of all measurements; the minimum of each counts.
const ROUNDS: usize = 2;

/// A compared index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSubject {
    /// Its name in figures.
    pub name: &'static str,
    pub(super) kind: SubjectKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectKind {
    Pm(PmKind, SkeyKind),
    /// An index of a database: its declaration, and whether its files are in memory.
    Lsm(&'static str, bool),
}

const fn pm(name: &'static str, kind: PmKind, skey: SkeyKind) -> IndexSubject {
    IndexSubject { name, kind: SubjectKind::Pm(kind, skey) }
}

/// The PS-Tree over a B+-tree.
pub const PS_BTREE: IndexSubject = pm("PS-Tree (B+-tree)", PmKind::PsTree, SkeyKind::BTree);
/// Composite keys in a B+-tree.
pub const COMPOSITE_BTREE: IndexSubject = pm("composite (B+-tree)", PmKind::Composite, SkeyKind::BTree);
/// Log-structured values below a B+-tree.
pub const LOG_BTREE: IndexSubject = pm("log (B+-tree)", PmKind::Log, SkeyKind::BTree);
/// The PS-Tree over a trie.
pub const PS_TRIE: IndexSubject = pm("PS-Tree (trie)", PmKind::PsTree, SkeyKind::Trie);
/// Composite keys in a trie.
pub const COMPOSITE_TRIE: IndexSubject = pm("composite (trie)", PmKind::Composite, SkeyKind::Trie);
/// Log-structured values below a trie.
pub const LOG_TRIE: IndexSubject = pm("log (trie)", PmKind::Log, SkeyKind::Trie);
/// Composite keys in LSM trees, validated by a tree of primary keys.
pub const LSM: IndexSubject = IndexSubject { name: "LSM", kind: SubjectKind::Lsm(KEY_INDEX, false) };
/// [`LSM`] with all files in memory.
pub const LSM_MEMORY: IndexSubject =
    IndexSubject { name: "LSM (files in memory)", kind: SubjectKind::Lsm(KEY_INDEX, true) };
/// The PS-Tree as an index of a database, with lookup driver, log and table.
pub const PS_DATABASE: IndexSubject =
    IndexSubject { name: "PS-Tree in a database", kind: SubjectKind::Lsm("ps-tree", false) };

const KEY_INDEX: &str = "composite:validation=key-index";

/// The subjects in a region.
pub const IN_REGIONS: [IndexSubject; 6] =
    [PS_BTREE, COMPOSITE_BTREE, LOG_BTREE, PS_TRIE, COMPOSITE_TRIE, LOG_TRIE];
/// All subjects.
pub const SUBJECTS: [IndexSubject; 9] =
    [PS_BTREE, COMPOSITE_BTREE, LOG_BTREE, PS_TRIE, COMPOSITE_TRIE, LOG_TRIE, LSM, LSM_MEMORY, PS_DATABASE];

/// The costs of one index under one workload. Times are CPU microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubjectCosts {
    /// A put. For an index of a database, the difference to a put without an index, background threads included.
    pub put: f64,
    /// The part of the put that updates the version table.
    pub put_validation: f64,
    /// A query, for each limit.
    pub newest: [f64; 2],
    /// The part of the query that validates candidates.
    pub validation: [f64; 2],
    /// Answers of a query.
    pub rows: [f64; 2],
    /// A range query.
    pub range: f64,
    /// Bytes for each live record, of entries and version table; 0 if unknown.
    pub bytes: f64,
}

impl SubjectCosts {
    /// The minimum of each operation; the parts of an operation are those of the same round.
    fn minimum(self, other: Self) -> Self {
        let mut minimum = self;
        if other.put < minimum.put {
            (minimum.put, minimum.put_validation) = (other.put, other.put_validation);
        }
        for position in 0..LIMITS.len() {
            if other.newest[position] < minimum.newest[position] {
                minimum.newest[position] = other.newest[position];
                minimum.validation[position] = other.validation[position];
            }
        }
        minimum.range = minimum.range.min(other.range);
        minimum
    }
}

/// The measurements of all workloads.
#[derive(Debug, Clone, Default)]
pub struct MicroBenchmarks {
    costs: Vec<(Workload, &'static str, SubjectCosts)>,
    /// The load average at the time of the measurement.
    pub load: String,
    /// CPU microseconds of a put without an index, files on disk.
    unindexed: Vec<(Workload, f64)>,
    /// Costs with delays of the memory, uniform upserts.
    with_delays: Vec<(&'static str, SubjectCosts)>,
}

impl MicroBenchmarks {
    /// The costs of `subject` under `workload`.
    pub fn of(&self, subject: IndexSubject, workload: Workload) -> SubjectCosts {
        let found = self.costs.iter().find(|(of, name, _)| *of == workload && *name == subject.name);
        found.map(|(.., costs)| *costs).unwrap_or_default()
    }

    /// CPU microseconds of a put without an index: log and table, background threads included.
    pub fn unindexed(&self, workload: Workload) -> f64 {
        self.unindexed.iter().find(|(of, _)| *of == workload).map_or(0.0, |(_, micros)| *micros)
    }

    /// The costs of `subject` with delays of the memory; `None` if not measured.
    pub fn with_delays(&self, subject: IndexSubject) -> Option<SubjectCosts> {
        self.with_delays.iter().find(|(name, _)| *name == subject.name).map(|(_, costs)| *costs)
    }
}

/// The number of records of the micro-benchmarks.
pub fn records(scale: &Scale) -> u64 {
    scale.records * RECORDS_FACTOR
}

/// The delays of the modelled memory; `None` for no measurement with delays.
pub fn latency(scale: &Scale) -> Option<LatencyModel> {
    let model = LatencyModel { read_nanos: scale.pm_read_nanos, write_nanos: scale.pm_write_nanos };
    (model.read_nanos + model.write_nanos > 0).then_some(model)
}

/// Measures all workloads once: several figures share the measurements.
pub fn measured(scale: &Scale) -> Result<MicroBenchmarks> {
    static ONCE: Mutex<Option<MicroBenchmarks>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(measured) = &*once {
        return Ok(measured.clone());
    }
    let mut measured = MicroBenchmarks { load: super::load_average(), ..MicroBenchmarks::default() };
    for workload in Workload::ALL {
        let run = WorkloadRun { scale, draws: Draws::new(workload, records(scale), scale.seed) };
        run.rounds(workload, &mut measured)?;
        if let (Workload::Uniform, Some(model)) = (workload, latency(scale)) {
            let writes = run.draws.writes();
            for subject in IN_REGIONS {
                let SubjectKind::Pm(kind, skey) = subject.kind else { continue };
                let costs = run.pm(PmSettings { kind, skey, latency: Some(model) }, &writes)?;
                measured.with_delays.push((subject.name, costs));
            }
        }
    }
    *once = Some(measured.clone());
    Ok(measured)
}

/// The databases of the micro-benchmarks, with cache and memtables in the proportion of the paper.
pub fn lsm_kind(index: Option<&'static str>, in_memory: bool) -> LsmKind {
    LsmKind { index, in_memory, cache_bytes: 4 << 20, memtable_bytes: 1 << 20, tiered: true }
}

/// A run of one workload.
struct WorkloadRun<'s> {
    scale: &'s Scale,
    draws: Draws,
}

impl WorkloadRun<'_> {
    /// Measures all subjects in turn, in several rounds: a disturbance by other programs affects one round of a subject.
    fn rounds(&self, workload: Workload, measured: &mut MicroBenchmarks) -> Result<()> {
        let writes = self.draws.writes();
        let mut unindexed = [f64::MAX; 2];
        let mut minimum: [Option<SubjectCosts>; SUBJECTS.len()] = [None; SUBJECTS.len()];
        for round in 1..=ROUNDS {
            for (unindexed, in_memory) in unindexed.iter_mut().zip([false, true]) {
                *unindexed = unindexed.min(self.unindexed_put(&writes, in_memory)?);
            }
            for (subject, minimum) in SUBJECTS.iter().zip(&mut minimum) {
                eprintln!("  {}, {}, round {round} of {ROUNDS}", workload.name(), subject.name);
                let costs = match subject.kind {
                    SubjectKind::Pm(kind, skey) => {
                        self.pm(PmSettings { kind, skey, latency: None }, &writes)?
                    }
                    SubjectKind::Lsm(index, in_memory) => self.lsm(index, in_memory, &writes)?,
                };
                *minimum = Some(minimum.map_or(costs, |minimum| minimum.minimum(costs)));
            }
        }
        measured.unindexed.push((workload, unindexed[0]));
        for (subject, minimum) in SUBJECTS.iter().zip(minimum) {
            let mut costs = minimum.unwrap_or_default();
            if let SubjectKind::Lsm(_, in_memory) = subject.kind {
                costs.put = (costs.put - unindexed[usize::from(in_memory)]).max(0.0);
            }
            measured.costs.push((workload, subject.name, costs));
        }
        Ok(())
    }

    fn pm(&self, settings: PmSettings, writes: &[Write]) -> Result<SubjectCosts> {
        let index = PmIndex::create(settings)?;
        let mut stages = StageTimes::default();
        let mut puts = Vec::with_capacity(PUTS_PER_STAGE);
        for chunk in writes.chunks(PUTS_PER_STAGE) {
            puts.clear();
            puts.extend(chunk.iter().map(|write| StagedPut {
                secondary_key: secondary_key(write.secondary),
                primary_key: primary_key(write.record),
            }));
            let costs = index.put_in_stages(&puts)?;
            stages.index += costs.index;
            stages.versions += costs.versions;
        }
        let each = |nanos: u64| nanos as f64 / 1000.0 / writes.len() as f64;
        let mut costs = SubjectCosts {
            put: each(stages.index + stages.versions),
            put_validation: each(stages.versions),
            ..SubjectCosts::default()
        };
        let (entries, versions) = index.bytes();
        costs.bytes = (entries + versions) as f64 / records(self.scale) as f64;
        let queries = self.scale.queries * 15;
        for (position, limit) in LIMITS.into_iter().enumerate() {
            let (micros, rows) = self.newest(queries, position, |secondary| {
                let mut rows = 0;
                index.newest(&secondary_key(secondary), limit, &mut |_, _| rows += 1)?;
                Ok(rows)
            })?;
            (costs.newest[position], costs.rows[position]) = (micros, rows);
            costs.validation[position] = self.validation(&index, limit)?;
        }
        let (width, each) = RANGE;
        costs.range = self.range(queries / 5, |first| {
            let mut rows = 0;
            index.range(&secondary_key(first), &secondary_key(first + width), each, &mut |_, _| rows += 1)?;
            Ok(rows)
        })?;
        Ok(costs)
    }

    /// CPU microseconds of the validation of the candidates of a query, measured by a second validation alone.
    fn validation(&self, index: &PmIndex, limit: usize) -> Result<f64> {
        let queries = self.scale.queries * 5;
        let mut draws = self.draws.reseeded(self.scale.seed ^ 77);
        let mut candidates = Candidates::default();
        for _ in 0..queries {
            index.candidates(&secondary_key(draws.secondary()), limit, &mut candidates)?;
        }
        let mut minimum = f64::MAX;
        for _ in 0..PASSES {
            let before = thread_cpu_nanos();
            index.validate(&candidates)?;
            minimum = minimum.min((thread_cpu_nanos() - before) as f64);
        }
        Ok(minimum / 1000.0 / queries as f64)
    }

    /// CPU microseconds of a put of a record without an index.
    fn unindexed_put(&self, writes: &[Write], in_memory: bool) -> Result<f64> {
        self.load(None, in_memory, writes).map(|(_, micros)| micros)
    }

    /// Puts records into a new database and waits for the background work.
    fn load(
        &self,
        index: Option<&'static str>,
        in_memory: bool,
        writes: &[Write],
    ) -> Result<(LsmIndex, f64)> {
        let components = bolide::Components::system();
        let database =
            LsmIndex::create(lsm_kind(index, in_memory), self.scale.directory.as_deref(), components)?;
        let before = process_cpu_nanos();
        for write in writes {
            database.put(write.secondary, write.record, b"")?;
        }
        settle(std::time::Duration::from_secs(60));
        let nanos = process_cpu_nanos() - before;
        Ok((database, nanos as f64 / 1000.0 / writes.len() as f64))
    }

    /// Here the cost of a put includes that of the record.
    fn lsm(&self, index: &'static str, in_memory: bool, writes: &[Write]) -> Result<SubjectCosts> {
        let (database, put) = self.load(Some(index), in_memory, writes)?;
        let mut costs = SubjectCosts { put, ..SubjectCosts::default() };
        let queries = self.scale.queries * 3;
        for (position, limit) in LIMITS.into_iter().enumerate() {
            let (micros, rows) = self.newest(queries, position, |secondary| {
                let mut rows = 0;
                database.keys(LsmIndex::newest_of(secondary, limit), &mut |_| rows += 1)?;
                Ok(rows)
            })?;
            (costs.newest[position], costs.rows[position]) = (micros, rows);
            costs.validation[position] = micros * self.lsm_validation(&database, limit)?;
        }
        let (width, each) = RANGE;
        costs.range = self.range(self.scale.queries, |first| {
            let mut rows = 0;
            database.keys(LsmIndex::newest_of_each(first, width, each), &mut |_| rows += 1)?;
            Ok(rows)
        })?;
        Ok(costs)
    }

    /// The share of validation in the wall time of a query, as the driver reports it. The minimum of several runs of a query
    /// counts, of the whole query and of the validation.
    fn lsm_validation(&self, database: &LsmIndex, limit: usize) -> Result<f64> {
        let options = FindOptions::default().measure(true);
        let mut minimum = vec![(u64::MAX, u64::MAX); self.scale.queries as usize];
        for _ in 0..PASSES {
            let mut draws = self.draws.reseeded(self.scale.seed ^ 77);
            for (all, validation) in &mut minimum {
                let query = LsmIndex::newest_of(draws.secondary(), limit).keys_only();
                let started = Instant::now();
                let explain =
                    database.records().find_each(&query, &options, |_| Ok(ControlFlow::Continue(())))?;
                *all = started.elapsed().as_nanos().min(u128::from(*all)) as u64;
                *validation = explain.validate_nanos.min(*validation);
            }
        }
        let all: u64 = minimum.iter().map(|(all, _)| all).sum();
        let validation: u64 = minimum.iter().map(|(_, validation)| validation).sum();
        Ok(validation as f64 / all.max(1) as f64)
    }

    /// CPU microseconds and answers of a query: the minimum of passes with different queries.
    fn newest(
        &self,
        queries: u64,
        position: usize,
        mut run_query: impl FnMut(u64) -> Result<usize>,
    ) -> Result<(f64, f64)> {
        let mut passes = Vec::new();
        for pass in 0..PASSES {
            let mut draws = self.draws.reseeded(self.scale.seed ^ (100 + 10 * position + pass) as u64);
            let before = thread_cpu_nanos();
            let mut rows = 0;
            for _ in 0..queries {
                rows += run_query(draws.secondary())?;
            }
            let micros = (thread_cpu_nanos() - before) as f64 / 1000.0 / queries as f64;
            passes.push((micros, rows as f64 / queries as f64));
        }
        Ok(minimum(passes))
    }

    fn range(&self, queries: u64, mut run_query: impl FnMut(u64) -> Result<usize>) -> Result<f64> {
        let mut passes = Vec::new();
        for pass in 0..PASSES as u64 {
            let mut random = Random::new(self.scale.seed ^ (200 + pass));
            let last = self.draws.secondaries().saturating_sub(RANGE.0).max(1);
            let before = thread_cpu_nanos();
            let mut rows = 0;
            for _ in 0..queries {
                rows += run_query(random.below(last))?;
            }
            if rows == 0 {
                return Err("ranges of keys that are there have no answers".into());
            }
            passes.push(((thread_cpu_nanos() - before) as f64 / 1000.0 / queries as f64, 0.0));
        }
        Ok(minimum(passes).0)
    }
}

fn minimum(passes: Vec<(f64, f64)>) -> (f64, f64) {
    passes.into_iter().min_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or_default()
}
