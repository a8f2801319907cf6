//! Figures 12 to 15: workloads in which records arrive while queries run (Table 7b).

use super::dataset::{Tweet, Tweets};
use super::indexed_database::{
    COMPOSITE, COMPOSITE_NEWEST, EMBEDDED, IndexVariant, IndexedDatabase, LAZY, NONE,
};
use super::queries::{QueryCase, Values};
use super::{USER, listed, location, named, of, ratio, report, seed_set};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{Content, FigureReport, Panel};
use crate::measure::{Cause, process_cpu_nanos};

/// The kinds without *eager*, as in the paper.
const KINDS: [IndexVariant; 5] = [NONE, EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST];
const INDEXED: [IndexVariant; 4] = [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST];
const STEPS: u64 = 10;
const LIMIT: usize = 10;

/// Shares of the operations in percent; the rest are lookups.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    /// Puts of new records.
    put: u64,
    /// Puts of existing records.
    update: u64,
    get: u64,
}

impl Workload {
    /// The share of lookups in percent.
    fn lookups(self) -> u64 {
        100 - self.put - self.update - self.get
    }
}

const WRITE_HEAVY: Workload = Workload { name: "write heavy", put: 80, update: 0, get: 15 };
const READ_HEAVY: Workload = Workload { name: "read heavy", put: 20, update: 0, get: 70 };
const UPDATE_HEAVY: Workload = Workload { name: "update heavy", put: 40, update: 40, get: 15 };

/// The costs after each tenth of the operations.
#[derive(Default)]
struct WorkloadTrace {
    /// CPU microseconds for an operation, background threads included.
    micros: Vec<f64>,
    /// Thousand file accesses so far, by cause.
    compaction: Vec<f64>,
    get: Vec<f64>,
    lookup: Vec<f64>,
}

/// Runs `workload` over a fresh database.
fn run(scale: &Scale, kind: IndexVariant, workload: Workload, mut tweets: Tweets) -> Result<WorkloadTrace> {
    let subject = IndexedDatabase::open(&location(scale), kind, &[USER], true)?;
    let mut random = Random::new(scale.seed ^ 12);
    // Reads need initial records.
    let mut rows: Vec<Tweet> = (0..scale.records / 10).map(|_| tweets.generate()).collect();
    super::load(&subject, &rows)?;
    let base = [Cause::Compaction, Cause::Get, Cause::Lookup].map(|cause| subject.io().of(cause));
    let mut trace = WorkloadTrace::default();
    for _ in 0..STEPS {
        let values = Values::new(USER, &tweets, &rows);
        let before = process_cpu_nanos();
        for _ in 0..scale.records / STEPS {
            let dice = random.below(100);
            if dice < workload.put {
                rows.push(tweets.generate());
                subject.put(&rows[rows.len() - 1])?;
            } else if dice < workload.put + workload.update {
                let row = tweets.version_of(random.below(rows.len() as u64));
                subject.put(&row)?;
            } else if dice < workload.put + workload.update + workload.get {
                subject.get(random.below(rows.len() as u64))?;
            } else if kind != NONE {
                values.run_query(&subject, &mut random, QueryCase::Lookup, Some(LIMIT))?;
            }
        }
        subject.settle();
        trace.micros.push((process_cpu_nanos() - before) as f64 / 1000.0 / (scale.records / STEPS) as f64);
        let calls = |cause, base: crate::measure::IoCount| {
            let count = subject.io().of(cause).since(base);
            // Pages for bulk accesses, calls for single blocks.
            if cause == Cause::Compaction {
                (count.read_bytes + count.written_bytes) as f64 / 4096.0 / 1000.0
            } else {
                count.calls() as f64 / 1000.0
            }
        };
        trace.compaction.push(calls(Cause::Compaction, base[0]));
        trace.get.push(calls(Cause::Get, base[1]));
        trace.lookup.push(calls(Cause::Lookup, base[2]));
    }
    Ok(trace)
}

fn run_all(scale: &Scale, workload: Workload, tweets: &Tweets) -> Result<Vec<(IndexVariant, WorkloadTrace)>> {
    KINDS.iter().map(|kind| Ok((*kind, run(scale, *kind, workload, tweets.clone())?))).collect()
}

fn lines(
    title: &str,
    y_label: &str,
    scale: &Scale,
    traces: &[(IndexVariant, WorkloadTrace)],
    values: impl Fn(&WorkloadTrace) -> &Vec<f64>,
) -> Panel {
    let step = scale.records as f64 / STEPS as f64 / 1000.0;
    Panel {
        title: title.to_owned(),
        x_label: "thousand operations".to_owned(),
        y_label: y_label.to_owned(),
        log: false,
        content: Content::Lines {
            x: (1..=STEPS).map(|position| position as f64 * step).collect(),
            series: named(traces.iter().map(|(kind, trace)| (*kind, values(trace).clone())).collect()),
        },
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn figure_12(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let tweets = Tweets::new(seed_set.clone(), scale.seed);
    let mut report = report("leveldbpp-12", "Figure 12", scale, &seed_set);
    report.set("operations", scale.records);
    for workload in [WRITE_HEAVY, READ_HEAVY, UPDATE_HEAVY] {
        let traces = run_all(scale, workload, &tweets)?;
        let micros: Vec<(IndexVariant, Vec<f64>)> =
            traces.iter().map(|(kind, trace)| (*kind, trace.micros.clone())).collect();
        mean_claims(&mut report, workload, &micros);
        let title = format!("{}, lookups of the newest {LIMIT}", workload.name);
        report.panels.push(lines(&title, "CPU µs an operation, whole process", scale, &traces, |trace| {
            &trace.micros
        }));
    }
    Ok(report)
}

/// Adds the claims about the CPU time of an operation under `workload`, after each tenth of them.
fn mean_claims(report: &mut FigureReport, workload: Workload, micros: &[(IndexVariant, Vec<f64>)]) {
    let cost = |kind| mean(&of(micros, kind));
    let summary = listed(&KINDS.map(|kind| (kind.name, cost(kind))));
    let name = workload.name;
    if workload.update > 0 {
        report.claim(
            &format!(
                "{name}: operations cost less with composite keys in the paper's order than with lazy \
             lists"
            ),
            cost(COMPOSITE) < cost(LAZY),
            summary.clone(),
        );
        let growth = |kind| {
            let steps = of(micros, kind);
            let fifth = steps.len() / 5;
            mean(&steps[steps.len() - fifth..]) / mean(&steps[..fifth])
        };
        report.claim(
            &format!(
                "{name}: the cost of the embedded index grows faster with the number of updates than \
             that of lazy lists"
            ),
            growth(EMBEDDED) > growth(LAZY),
            format!("last fifth by first fifth: {}", listed(&INDEXED.map(|kind| (kind.name, growth(kind))))),
        );
    } else {
        report.departs(
            &format!(
                "{name}: operations cost about the same with lazy lists and composite keys in the paper's \
                 order (within a third)"
            ),
            ratio(cost(LAZY), cost(COMPOSITE)) < 1.34,
            summary.clone(),
            "in the paper, lazy lists cost less, since lookups with composite keys fetch the record of \
             every candidate to find the newest. Here their entries have sequence numbers, and only the \
             newest are fetched.",
        );
    }
    if workload.lookups() < 10 {
        report.departs(
            &format!(
                "{name}: operations cost at most a third more with the embedded index than with lazy \
             lists"
            ),
            cost(EMBEDDED) < 1.34 * cost(LAZY),
            summary,
            "in the paper, lazy lists cost less. A lookup in the embedded index reads the filters of all \
             blocks, so its cost grows with their number: millions in the paper, some thousand here. For \
             few lookups and many writes, the paper also recommends the embedded index (its Figure 2).",
        );
    } else {
        report.claim(
            &format!(
                "{name}: operations cost less with lazy lists than with the embedded index, whose \
             attribute is not time-correlated"
            ),
            cost(LAZY) < cost(EMBEDDED),
            summary,
        );
    }
}

fn io_figure(scale: &Scale, name: &str, what: &str, workload: Workload) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let tweets = Tweets::new(seed_set.clone(), scale.seed);
    let mut report = report(name, what, scale, &seed_set);
    report.set("operations", scale.records);
    let traces = run_all(scale, workload, &tweets)?;
    let last = |kind: IndexVariant, values: fn(&WorkloadTrace) -> &Vec<f64>| {
        traces
            .iter()
            .find(|(other, _)| *other == kind)
            .and_then(|(_, trace)| values(trace).last().copied())
            .unwrap_or(0.0)
    };
    let lookup = |kind| last(kind, |trace| &trace.lookup);
    let get = |kind| last(kind, |trace| &trace.get);
    let compaction = |kind| last(kind, |trace| &trace.compaction);
    let summary = |of: &dyn Fn(IndexVariant) -> f64| listed(&INDEXED.map(|kind| (kind.name, of(kind))));
    if workload.put > 50 {
        report.claim(
            "lookups read less with lazy lists than with composite keys in the paper's order",
            lookup(LAZY) < lookup(COMPOSITE),
            summary(&lookup),
        );
    } else {
        report.departs(
            "lookups read about the same with lazy lists and composite keys in the paper's order (within a \
             fifth)",
            ratio(lookup(LAZY), lookup(COMPOSITE)) < 1.2,
            summary(&lookup),
            "in the paper, lazy lists read less, since lookups with composite keys fetch the record of \
             every candidate to find the newest. Here their entries have sequence numbers, and only the \
             newest are fetched. The remaining reads are those of index blocks and of stale entries before \
             their compaction.",
        );
    }
    let embedded_moves_fewest =
        [LAZY, COMPOSITE, COMPOSITE_NEWEST].iter().all(|kind| compaction(EMBEDDED) < compaction(*kind));
    if workload.update > 0 {
        report.claim(
            "lookups read less with lazy lists than with the embedded index",
            lookup(LAZY) < lookup(EMBEDDED),
            summary(&lookup),
        );
        report.claim(
            "compactions read and write more pages with lazy lists than with composite keys",
            compaction(LAZY) > compaction(COMPOSITE),
            summary(&compaction),
        );
        report.departs(
            "compactions read and write fewer pages with the embedded index than with stand-alone ones",
            embedded_moves_fewest,
            summary(&compaction),
            "in the paper, updates cause more compactions with the embedded index. Here its filters add \
             little to the compactions of the records, and compactions of stand-alone indexes look up stale \
             entries.",
        );
    } else {
        report.departs(
            "lookups read less with the embedded index than with lazy lists",
            lookup(EMBEDDED) < lookup(LAZY),
            summary(&lookup),
            "by tables 3 and 5 of the paper, the embedded index reads the blocks of answers and of false \
             positives, lazy lists those of answers and of their levels. In the paper, filters of millions \
             of blocks have more false positives; here those of some thousand blocks have few. The filters \
             cost CPU time: see leveldbpp-12.",
        );
        report.claim(
            "compactions read and write fewer pages with the embedded index than with stand-alone ones",
            embedded_moves_fewest,
            summary(&compaction),
        );
    }
    let gets = KINDS.map(get);
    let (low, high) =
        gets.iter().fold((f64::MAX, 0.0f64), |(low, high), get| (low.min(*get), high.max(*get)));
    report.claim(
        "GETs read about the same with every kind (within a third)",
        high <= 1.34 * low,
        listed(&[("minimum", low), ("maximum", high)]),
    );
    const CALLS: &str = "thousand file accesses, cumulated";
    report.panels = vec![
        lines("Compactions", "thousand pages of 4 KiB, cumulated", scale, &traces, |trace| &trace.compaction),
        lines("GET", CALLS, scale, &traces, |trace| &trace.get),
        lines("LOOKUP", CALLS, scale, &traces, |trace| &trace.lookup),
    ];
    Ok(report)
}

pub(super) fn figure_13(scale: &Scale) -> Result<FigureReport> {
    io_figure(scale, "leveldbpp-13", "Figure 13", WRITE_HEAVY)
}

pub(super) fn figure_14(scale: &Scale) -> Result<FigureReport> {
    io_figure(scale, "leveldbpp-14", "Figure 14", READ_HEAVY)
}

pub(super) fn figure_15(scale: &Scale) -> Result<FigureReport> {
    io_figure(scale, "leveldbpp-15", "Figure 15", UPDATE_HEAVY)
}
