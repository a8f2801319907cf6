//! The micro-benchmarks (§5.2.1 to §5.2.3): every compared index under every workload, measured once for figures 6
//! to 8.

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
    Candidates, LsmIndex, LsmKind, PmIndex, PmKind, PmSettings, Put, Stages, primary_key, secondary_key,
};

/// The limits of index-only queries.
pub const LIMITS: [usize; 2] = [10, 200];
/// Secondary keys of a range, and records of each.
pub const RANGE: (u64, usize) = (20, 5);
/// Records for each of `--records`: entries are small.
const RECORDS_FACTOR: u64 = 4;
/// Puts whose stages are timed together.
const STAGED: usize = 128;
const PASSES: usize = 3;
/// How often everything is done again; the least of each figure counts.
const ROUNDS: usize = 2;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Its name in figures.
    pub name: &'static str,
    pub(super) make: Make,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    Pm(PmKind, SkeyKind),
    /// An index of a database: its declaration, and whether its files lie in memory.
    Lsm(&'static str, bool),
}

const fn pm(name: &'static str, kind: PmKind, skey: SkeyKind) -> Subject {
    Subject { name, make: Make::Pm(kind, skey) }
}

/// The PS-Tree over a B+-tree.
pub const PS_BTREE: Subject = pm("PS-Tree (B+-tree)", PmKind::PsTree, SkeyKind::BTree);
/// Composite keys in a B+-tree.
pub const COMPOSITE_BTREE: Subject = pm("composite (B+-tree)", PmKind::Composite, SkeyKind::BTree);
/// Log-structured values below a B+-tree.
pub const LOG_BTREE: Subject = pm("log (B+-tree)", PmKind::Log, SkeyKind::BTree);
/// The PS-Tree over a trie.
pub const PS_TRIE: Subject = pm("PS-Tree (trie)", PmKind::PsTree, SkeyKind::Trie);
/// Composite keys in a trie.
pub const COMPOSITE_TRIE: Subject = pm("composite (trie)", PmKind::Composite, SkeyKind::Trie);
/// Log-structured values below a trie.
pub const LOG_TRIE: Subject = pm("log (trie)", PmKind::Log, SkeyKind::Trie);
/// Composite keys in LSM trees, validated by a tree of primary keys.
pub const LSM: Subject = Subject { name: "LSM", make: Make::Lsm(KEY_INDEX, false) };
/// The same with all files in memory.
pub const LSM_MEMORY: Subject = Subject { name: "LSM (files in memory)", make: Make::Lsm(KEY_INDEX, true) };
/// The PS-Tree as an index of a database: with driver, log and table.
pub const PS_DATABASE: Subject = Subject { name: "PS-Tree in a database", make: Make::Lsm("ps-tree", false) };

const KEY_INDEX: &str = "composite:validation=key-index";

/// Those in a region.
pub const IN_REGIONS: [Subject; 6] =
    [PS_BTREE, COMPOSITE_BTREE, LOG_BTREE, PS_TRIE, COMPOSITE_TRIE, LOG_TRIE];
/// All.
pub const SUBJECTS: [Subject; 9] =
    [PS_BTREE, COMPOSITE_BTREE, LOG_BTREE, PS_TRIE, COMPOSITE_TRIE, LOG_TRIE, LSM, LSM_MEMORY, PS_DATABASE];

/// What one index took under one workload. Times are CPU microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// A put. Of an index of a database what it adds to a put of the record, background threads included.
    pub put: f64,
    /// Of that, noting the write for validation.
    pub put_validation: f64,
    /// A query, for each limit.
    pub newest: [f64; 2],
    /// Of that, validating candidates.
    pub validation: [f64; 2],
    /// Answers of a query.
    pub rows: [f64; 2],
    /// A range query.
    pub range: f64,
    /// Bytes for a live record: of entries, and of what validates them; 0 where it is unknown.
    pub bytes: f64,
}

impl Took {
    /// The lesser time of each kind of work; what is a part of it, from the same round.
    fn or_less(self, other: Self) -> Self {
        let mut least = self;
        if other.put < least.put {
            (least.put, least.put_validation) = (other.put, other.put_validation);
        }
        for position in 0..LIMITS.len() {
            if other.newest[position] < least.newest[position] {
                least.newest[position] = other.newest[position];
                least.validation[position] = other.validation[position];
            }
        }
        least.range = least.range.min(other.range);
        least
    }
}

/// All that was measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    took: Vec<(Workload, &'static str, Took)>,
    /// The load average when it was measured.
    pub load: String,
    /// A put without an index, files on disk.
    bare: Vec<(Workload, f64)>,
    /// Under delays of the memory, uniform upserts.
    modelled: Vec<(&'static str, Took)>,
}

impl Measured {
    /// What `subject` took under `workload`.
    pub fn of(&self, subject: Subject, workload: Workload) -> Took {
        let found = self.took.iter().find(|(of, name, _)| *of == workload && *name == subject.name);
        found.map(|(.., took)| *took).unwrap_or_default()
    }

    /// CPU microseconds of a put without an index: log and table, background threads included.
    pub fn bare(&self, workload: Workload) -> f64 {
        self.bare.iter().find(|(of, _)| *of == workload).map_or(0.0, |(_, micros)| *micros)
    }

    /// What `subject` took under delays of the memory; `None` if that was not measured.
    pub fn modelled(&self, subject: Subject) -> Option<Took> {
        self.modelled.iter().find(|(name, _)| *name == subject.name).map(|(_, took)| *took)
    }
}

/// Records of the micro-benchmarks.
pub fn records(scale: &Scale) -> u64 {
    scale.records * RECORDS_FACTOR
}

/// The delays of memory that is modelled; `None` to leave that out.
pub fn latency(scale: &Scale) -> Option<LatencyModel> {
    let model = LatencyModel { read_nanos: scale.pm_read_nanos, write_nanos: scale.pm_write_nanos };
    (model.read_nanos + model.write_nanos > 0).then_some(model)
}

/// Measures everything, the first time; several figures show parts of it.
pub fn measured(scale: &Scale) -> Result<Measured> {
    static ONCE: Mutex<Option<Measured>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(measured) = &*once {
        return Ok(measured.clone());
    }
    let mut measured = Measured { load: super::load_average(), ..Measured::default() };
    for workload in Workload::ALL {
        let run = Run { scale, draws: Draws::new(workload, records(scale), scale.seed) };
        run.rounds(workload, &mut measured)?;
        if let (Workload::Uniform, Some(model)) = (workload, latency(scale)) {
            let writes = run.draws.writes();
            for subject in IN_REGIONS {
                let Make::Pm(kind, skey) = subject.make else { continue };
                let took = run.pm(PmSettings { kind, skey, latency: Some(model) }, &writes)?;
                measured.modelled.push((subject.name, took));
            }
        }
    }
    *once = Some(measured.clone());
    Ok(measured)
}

/// How the databases of the micro-benchmarks are made: as much larger than cache and memtables as in the paper.
pub fn lsm_kind(index: Option<&'static str>, in_memory: bool) -> LsmKind {
    LsmKind { index, in_memory, cache_bytes: 4 << 20, memtable_bytes: 1 << 20, tiered: true }
}

/// One workload.
struct Run<'s> {
    scale: &'s Scale,
    draws: Draws,
}

impl Run<'_> {
    /// Measures all subjects, one after the other, several times over: whatever else the machine does for a while
    /// is then in one round of a subject and not in the next.
    fn rounds(&self, workload: Workload, measured: &mut Measured) -> Result<()> {
        let writes = self.draws.writes();
        let mut bare = [f64::MAX; 2];
        let mut least: [Option<Took>; SUBJECTS.len()] = [None; SUBJECTS.len()];
        for round in 1..=ROUNDS {
            for (bare, in_memory) in bare.iter_mut().zip([false, true]) {
                *bare = bare.min(self.bare_put(&writes, in_memory)?);
            }
            for (subject, least) in SUBJECTS.iter().zip(&mut least) {
                eprintln!("  {}, {}, round {round} of {ROUNDS}", workload.name(), subject.name);
                let took = match subject.make {
                    Make::Pm(kind, skey) => self.pm(PmSettings { kind, skey, latency: None }, &writes)?,
                    Make::Lsm(index, in_memory) => self.lsm(index, in_memory, &writes)?,
                };
                *least = Some(least.map_or(took, |least| least.or_less(took)));
            }
        }
        measured.bare.push((workload, bare[0]));
        for (subject, least) in SUBJECTS.iter().zip(least) {
            let mut took = least.unwrap_or_default();
            if let Make::Lsm(_, in_memory) = subject.make {
                took.put = (took.put - bare[usize::from(in_memory)]).max(0.0);
            }
            measured.took.push((workload, subject.name, took));
        }
        Ok(())
    }

    fn pm(&self, settings: PmSettings, writes: &[Write]) -> Result<Took> {
        let index = PmIndex::create(settings)?;
        let mut stages = Stages::default();
        let mut puts = Vec::with_capacity(STAGED);
        for some in writes.chunks(STAGED) {
            puts.clear();
            puts.extend(some.iter().map(|write| Put {
                secondary_key: secondary_key(write.secondary),
                primary_key: primary_key(write.record),
            }));
            let took = index.put_in_stages(&puts)?;
            stages.index += took.index;
            stages.versions += took.versions;
        }
        let each = |nanos: u64| nanos as f64 / 1000.0 / writes.len() as f64;
        let mut took = Took {
            put: each(stages.index + stages.versions),
            put_validation: each(stages.versions),
            ..Took::default()
        };
        let (entries, versions) = index.bytes();
        took.bytes = (entries + versions) as f64 / records(self.scale) as f64;
        let queries = self.scale.queries * 15;
        for (position, limit) in LIMITS.into_iter().enumerate() {
            let (micros, rows) = self.newest(queries, position, |secondary| {
                let mut rows = 0;
                index.newest(&secondary_key(secondary), limit, &mut |_, _| rows += 1)?;
                Ok(rows)
            })?;
            (took.newest[position], took.rows[position]) = (micros, rows);
            took.validation[position] = self.validation(&index, limit)?;
        }
        let (width, each) = RANGE;
        took.range = self.range(queries / 5, |first| {
            let mut rows = 0;
            index.range(&secondary_key(first), &secondary_key(first + width), each, &mut |_, _| rows += 1)?;
            Ok(rows)
        })?;
        Ok(took)
    }

    /// What validating the candidates of a query takes: they are validated again, alone.
    fn validation(&self, index: &PmIndex, limit: usize) -> Result<f64> {
        let queries = self.scale.queries * 5;
        let mut draws = self.draws.reseeded(self.scale.seed ^ 77);
        let mut candidates = Candidates::default();
        for _ in 0..queries {
            index.candidates(&secondary_key(draws.secondary()), limit, &mut candidates)?;
        }
        let mut least = f64::MAX;
        for _ in 0..PASSES {
            let before = thread_cpu_nanos();
            index.validate(&candidates)?;
            least = least.min((thread_cpu_nanos() - before) as f64);
        }
        Ok(least / 1000.0 / queries as f64)
    }

    /// CPU microseconds of a put of a record without an index.
    fn bare_put(&self, writes: &[Write], in_memory: bool) -> Result<f64> {
        self.load(None, in_memory, writes).map(|(_, micros)| micros)
    }

    /// Puts records into a new database, and waits for what follows.
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

    /// The put is a whole one here, of the record and the index.
    fn lsm(&self, index: &'static str, in_memory: bool, writes: &[Write]) -> Result<Took> {
        let (database, put) = self.load(Some(index), in_memory, writes)?;
        let mut took = Took { put, ..Took::default() };
        let queries = self.scale.queries * 3;
        for (position, limit) in LIMITS.into_iter().enumerate() {
            let (micros, rows) = self.newest(queries, position, |secondary| {
                let mut rows = 0;
                database.keys(LsmIndex::newest_of(secondary, limit), &mut |_| rows += 1)?;
                Ok(rows)
            })?;
            (took.newest[position], took.rows[position]) = (micros, rows);
            took.validation[position] = micros * self.lsm_validation(&database, limit)?;
        }
        let (width, each) = RANGE;
        took.range = self.range(self.scale.queries, |first| {
            let mut rows = 0;
            database.keys(LsmIndex::newest_of_each(first, width, each), &mut |_| rows += 1)?;
            Ok(rows)
        })?;
        Ok(took)
    }

    /// The share of a query that the driver spends on validating, in wall time, as it reports. Of
    /// each query the least of several times counts, of all of it and of validating.
    fn lsm_validation(&self, database: &LsmIndex, limit: usize) -> Result<f64> {
        let options = FindOptions::default().measure(true);
        let mut least = vec![(u64::MAX, u64::MAX); self.scale.queries as usize];
        for _ in 0..PASSES {
            let mut draws = self.draws.reseeded(self.scale.seed ^ 77);
            for (all, validation) in &mut least {
                let query = LsmIndex::newest_of(draws.secondary(), limit).keys_only();
                let started = Instant::now();
                let explain =
                    database.records().find_each(&query, &options, |_| Ok(ControlFlow::Continue(())))?;
                *all = started.elapsed().as_nanos().min(u128::from(*all)) as u64;
                *validation = explain.validate_nanos.min(*validation);
            }
        }
        let all: u64 = least.iter().map(|(all, _)| all).sum();
        let validation: u64 = least.iter().map(|(_, validation)| validation).sum();
        Ok(validation as f64 / all.max(1) as f64)
    }

    /// CPU microseconds and answers of a query: the least of passes with different queries.
    fn newest(
        &self,
        queries: u64,
        position: usize,
        mut query_row: impl FnMut(u64) -> Result<usize>,
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
        Ok(least(passes))
    }

    fn range(&self, queries: u64, mut query_row: impl FnMut(u64) -> Result<usize>) -> Result<f64> {
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
        Ok(least(passes).0)
    }
}

fn least(passes: Vec<(f64, f64)>) -> (f64, f64) {
    passes.into_iter().min_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or_default()
}
