//! Figure 12 and table 1: mixed workloads of writes, reads and queries (§5.3).

use std::sync::{Arc, Mutex, PoisonError};

use bolide_index::ps_tree::SkeyKind;

use super::records::FetchMode;
use super::workload::{Draws, Workload};
use super::{RECORD_BYTES, bars, lines, listed, load_average, mean, report, table};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;
use crate::measure::{process_cpu_nanos, settle, thread_cpu_nanos};
use crate::pm_baselines::{
    EntrySource, LsmIndex, LsmKind, PmIndex, PmKind, PmSettings, primary_key, with_substitute_index,
};

const STEPS: u64 = 10;
const LIMIT: usize = 10;
const OPERATIONS: [&str; 4] = ["upsert", "get", "index-only", "records"];

/// Shares of the operations in percent (table 1), in the order of [`OPERATIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mix {
    name: &'static str,
    shares: [u64; 4],
}

const MIXES: [Mix; 3] = [
    Mix { name: "write heavy", shares: [70, 10, 10, 10] },
    Mix { name: "balanced", shares: [45, 10, 25, 20] },
    Mix { name: "read heavy", shares: [20, 20, 40, 20] },
];

const PS: &str = "PS-Tree (trie)";
const COMPOSITE: &str = "composite (trie)";
const LSM: &str = "LSM";
const SUBJECTS: [&str; 3] = [PS, COMPOSITE, LSM];

/// The costs of one subject under one mix.
#[derive(Debug, Clone, Default)]
struct MixCosts {
    /// CPU microseconds of an operation in each tenth, background threads included.
    micros: Vec<f64>,
    /// Operations, and CPU nanoseconds of the calling thread, of each kind.
    counts: [u64; 4],
    nanos: [u64; 4],
}

/// The costs of all subjects, and the load average at the time of the measurement.
#[derive(Debug, Clone, Default)]
struct AllMixCosts {
    load: String,
    all: Vec<(Mix, &'static str, MixCosts)>,
}

/// Runs all mixes once: figure and table share the runs.
fn measured(scale: &Scale) -> Result<AllMixCosts> {
    static ONCE: Mutex<Option<AllMixCosts>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all_costs) = &*once {
        return Ok(all_costs.clone());
    }
    let mut all_costs = AllMixCosts { load: load_average(), ..AllMixCosts::default() };
    for mix in MIXES {
        for subject in SUBJECTS {
            eprintln!("  {}, {subject}", mix.name);
            all_costs.all.push((mix, subject, run(scale, mix, subject)?));
        }
    }
    *once = Some(all_costs.clone());
    Ok(all_costs)
}

fn costs<'c>(all_costs: &'c AllMixCosts, mix: Mix, subject: &str) -> &'c MixCosts {
    static NONE: MixCosts = MixCosts { micros: Vec::new(), counts: [0; 4], nanos: [0; 4] };
    all_costs
        .all
        .iter()
        .find(|(of, name, _)| *of == mix && *name == subject)
        .map_or(&NONE, |(.., costs)| costs)
}

fn report_of(name: &str, what: &str, scale: &Scale, load: &str) -> FigureReport {
    let mut report = report(name, what, scale, scale.records, load);
    report.set("operations", scale.records);
    report.set("bytes of a record", RECORD_BYTES);
    report.set("limit", LIMIT);
    report
}

pub(super) fn figure_12(scale: &Scale) -> Result<FigureReport> {
    let all_costs = measured(scale)?;
    let mut report = report_of("perseid-12", "Figure 12", scale, &all_costs.load);
    let micros = |mix, subject| mean(&costs(&all_costs, mix, subject).micros);
    let summary = |mix: Mix| {
        format!("{}: {}", mix.name, listed(SUBJECTS.map(|subject| (subject, micros(mix, subject)))))
    };
    report.claim(
        "§5.3: under each mix, operations cost less with a PS-Tree than with an LSM index",
        MIXES.iter().all(|mix| micros(*mix, PS) < micros(*mix, LSM)),
        MIXES.map(summary).join("; "),
    );
    let query = |subject| {
        let costs = costs(&all_costs, MIXES[2], subject);
        costs.nanos[2] as f64 / 1000.0 / costs.counts[2].max(1) as f64
    };
    report.claim(
        "§5.3: index-only queries are at least three times as fast with a PS-Tree as with an LSM index",
        3.0 * query(PS) < query(LSM),
        listed(SUBJECTS.map(|subject| (subject, query(subject)))),
    );
    report.claim(
        "§5.3: operations with a PS-Tree and with composite keys in a trie cost about the same (within a \
         half), since the table dominates",
        MIXES.iter().all(|mix| {
            let (ps, composite) = (micros(*mix, PS), micros(*mix, COMPOSITE));
            ps < 1.5 * composite && composite < 1.5 * ps
        }),
        MIXES.map(summary).join("; "),
    );
    for mix in MIXES {
        let step = scale.records as f64 / STEPS as f64 / 1000.0;
        report.panels.push(lines(
            &format!("Operations, {}", mix.name),
            ("thousand operations", "CPU µs an operation, whole process"),
            false,
            (1..=STEPS).map(|position| position as f64 * step).collect(),
            SUBJECTS.map(|subject| (subject, costs(&all_costs, mix, subject).micros.clone())),
        ));
    }
    Ok(report)
}

pub(super) fn table_1(scale: &Scale) -> Result<FigureReport> {
    let all_costs = measured(scale)?;
    let mut report = report_of("perseid-table1", "Table 1", scale, &all_costs.load);
    let share = |mix, kind: usize| {
        let counts = costs(&all_costs, mix, PS).counts;
        100.0 * counts[kind] as f64 / counts.iter().sum::<u64>().max(1) as f64
    };
    report.claim(
        "table 1: the shares of the operations are those of the paper (within one percent of all operations)",
        MIXES.iter().all(|mix| {
            (0..OPERATIONS.len()).all(|kind| (share(*mix, kind) - mix.shares[kind] as f64).abs() < 1.0)
        }),
        MIXES
            .map(|mix| {
                let shares = (0..OPERATIONS.len()).map(|kind| (OPERATIONS[kind], share(mix, kind)));
                format!("{}: {}", mix.name, listed(shares))
            })
            .join("; "),
    );
    report.panels.push(bars(
        "Shares of the operations",
        "percent",
        false,
        &OPERATIONS,
        MIXES.map(|mix| (mix.name, (0..OPERATIONS.len()).map(|kind| share(mix, kind)).collect())),
    ));
    for mix in MIXES {
        let each = |subject| {
            let costs = costs(&all_costs, mix, subject);
            let micros = |kind: usize| costs.nanos[kind] as f64 / 1000.0 / costs.counts[kind].max(1) as f64;
            (0..OPERATIONS.len()).map(micros).collect()
        };
        report.panels.push(bars(
            &format!("Each kind of operation, {}", mix.name),
            "CPU µs, calling thread",
            true,
            &OPERATIONS,
            SUBJECTS.map(|subject| (subject, each(subject))),
        ));
    }
    Ok(report)
}

/// A database, and the entries of its substituted index for the subject of composite keys.
struct MixedStore {
    database: LsmIndex,
    entries: Option<Arc<PmIndex>>,
    filler: Vec<u8>,
}

impl MixedStore {
    fn open(scale: &Scale, subject: &str) -> Result<Self> {
        let kind = |index| LsmKind { index: Some(index), ..table(true) };
        let directory = scale.directory.as_deref();
        let filler = vec![b'm'; RECORD_BYTES - 8];
        if subject == COMPOSITE {
            let settings = PmSettings { kind: PmKind::Composite, skey: SkeyKind::Trie, latency: None };
            let (entries, source) = (Arc::new(PmIndex::create(settings)?), EntrySource::default());
            source.set_entries(&entries, LIMIT);
            let components = with_substitute_index(LsmIndex::ATTRIBUTE, &source);
            let database = LsmIndex::create(kind("composite"), directory, components)?;
            return Ok(Self { database, entries: Some(entries), filler });
        }
        let index = if subject == PS { "ps-tree:skey=trie" } else { "composite:validation=key-index" };
        let database = LsmIndex::create(kind(index), directory, bolide::Components::system())?;
        Ok(Self { database, entries: None, filler })
    }

    fn put(&self, secondary: u64, record: u64) -> Result<()> {
        let sequence = self.database.put_numbered(secondary, record, &self.filler)?;
        match &self.entries {
            Some(entries) => entries.put_at(&LsmIndex::index_key(secondary)?, &primary_key(record), sequence),
            None => Ok(()),
        }
    }

    /// Runs an operation of this kind.
    fn run(&self, kind: usize, draws: &mut Draws) -> Result<()> {
        match kind {
            0 => {
                let write = draws.write();
                self.put(write.secondary, write.record)
            }
            1 => match self.database.records().get_pinned(&primary_key(draws.record()))? {
                Some(_) => Ok(()),
                None => Err("a record is missing".into()),
            },
            2 => self.database.keys(LsmIndex::newest_of(draws.secondary(), LIMIT), &mut |_| {}),
            _ => {
                let query = LsmIndex::newest_of(draws.secondary(), LIMIT);
                self.database.records().find_with(&query, &FetchMode::Parallel.options())?;
                Ok(())
            }
        }
    }
}

fn run(scale: &Scale, mix: Mix, subject: &str) -> Result<MixCosts> {
    let store = MixedStore::open(scale, subject)?;
    // Operations alternate between skewed primary keys and skewed secondary keys.
    let mut draws = [Workload::SkewedPrimary, Workload::SkewedSecondary]
        .map(|workload| Draws::new(workload, scale.records, scale.seed ^ 12));
    for write in Draws::new(Workload::Insert, scale.records, scale.seed).writes() {
        store.put(write.secondary, write.record)?;
    }
    settle(std::time::Duration::from_secs(60));
    let mut costs = MixCosts::default();
    for _ in 0..STEPS {
        let operations = scale.records / STEPS;
        let before = process_cpu_nanos();
        for number in 0..operations {
            let draws = &mut draws[(number % 2) as usize];
            let mut dice = draws.below(100);
            let kind = mix.shares.iter().position(|share| {
                let is_chosen = dice < *share;
                dice = dice.wrapping_sub(*share);
                is_chosen
            });
            let kind = kind.unwrap_or_default();
            let started = thread_cpu_nanos();
            store.run(kind, draws)?;
            costs.nanos[kind] += thread_cpu_nanos() - started;
            costs.counts[kind] += 1;
        }
        settle(std::time::Duration::from_secs(20));
        costs.micros.push((process_cpu_nanos() - before) as f64 / 1000.0 / operations as f64);
    }
    Ok(costs)
}
