//! Figures 10 and 11: queries for whole records, with sequence ranges and parallel fetches (§4.4, §5.2.5).
//!
//! One table has all indexes, so that all fetch the same records from the same files: a PS-Tree and an LSM index of the
//! database, and composite keys and a log that substitute a third index.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bolide::{Components, FindOptions};
use bolide_index::ps_tree::SkeyKind;

use super::workload::{Draws, Workload};
use super::{RECORD_BYTES, bars, listed, load_average, report, table};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{FigureReport, Panel};
use crate::measure::{settle, thread_cpu_nanos};
use crate::pm_baselines::{
    EntrySource, LsmIndex, LsmKind, PmIndex, PmKind, PmSettings, primary_key, with_substitute_index,
};

/// Threads of a parallel fetch, as in the paper.
pub(super) const FETCH_THREADS: usize = 4;
const LIMITS: [usize; 2] = [10, 200];
const PASSES: usize = 5;
/// Bytes of a block cache that caches nearly no records.
const UNCACHED_BYTES: usize = 64 << 10;

/// The fetch of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchMode {
    /// By a lookup of the primary key.
    Plain,
    /// From the memtables and files with the sequence number of the entry alone.
    BySequence,
    /// By sequence, in parallel.
    Parallel,
}

impl FetchMode {
    const ALL: [Self; 3] = [Self::Plain, Self::BySequence, Self::Parallel];
    const NAMES: [&'static str; 3] = ["plain", "+SEQ", "+SEQ +PAR"];

    /// The options of queries.
    pub(super) fn options(self) -> FindOptions {
        let threads = if self == Self::Parallel { FETCH_THREADS } else { 1 };
        FindOptions::default().fetch_by_sequence(self != Self::Plain).fetch_threads(threads)
    }
}

/// A compared index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RecordSubject {
    name: &'static str,
    index: &'static str,
    entries: Option<PmKind>,
}

const PS: RecordSubject = RecordSubject { name: "PS-Tree (trie)", index: "ps", entries: None };
const COMPOSITE: RecordSubject =
    RecordSubject { name: "composite (trie)", index: SUBSTITUTED, entries: Some(PmKind::Composite) };
const LOG: RecordSubject =
    RecordSubject { name: "log (trie)", index: SUBSTITUTED, entries: Some(PmKind::Log) };
const LSM: RecordSubject = RecordSubject { name: "LSM", index: "lsm", entries: None };
const SUBJECTS: [RecordSubject; 4] = [PS, COMPOSITE, LOG, LSM];
/// The name of the substituted index.
const SUBSTITUTED: &str = "pm";

/// Microseconds of a query.
#[derive(Debug, Clone, Copy, Default)]
struct QueryTime {
    /// Wall time.
    all: f64,
    /// Wall time of the fetch.
    fetch: f64,
    /// CPU time of the calling thread.
    cpu: f64,
}

/// The times of queries over one table: `query_time[limit][subject][fetch]`.
struct FetchTimes {
    workload: Workload,
    query_time: [[[QueryTime; 3]; 4]; 2],
}

impl FetchTimes {
    fn of(&self, subject: RecordSubject, limit: usize, fetch: FetchMode) -> QueryTime {
        let position = SUBJECTS.iter().position(|other| *other == subject).unwrap_or_default();
        self.query_time[limit][position][fetch as usize]
    }

    /// The gain of sequence ranges for queries to `subject`, as a factor of CPU time.
    fn gain(&self, subject: RecordSubject, limit: usize) -> f64 {
        self.of(subject, limit, FetchMode::Plain).cpu / self.of(subject, limit, FetchMode::BySequence).cpu
    }

    /// The gain of parallel fetches, as a factor of wall time.
    fn parallel_gain(&self, subject: RecordSubject, limit: usize) -> f64 {
        self.of(subject, limit, FetchMode::BySequence).all / self.of(subject, limit, FetchMode::Parallel).all
    }

    fn summary(&self, limit: usize, fetch: FetchMode) -> String {
        listed(SUBJECTS.map(|subject| (subject.name, self.of(subject, limit, fetch).cpu)))
    }

    fn gains(&self, limit: usize) -> String {
        listed(SUBJECTS.map(|subject| (subject.name, self.gain(subject, limit))))
    }

    /// The CPU time of a query to a PS-Tree, divided by that of one to an LSM index.
    fn against_lsm(&self, limit: usize, fetch: FetchMode) -> f64 {
        self.of(PS, limit, fetch).cpu / self.of(LSM, limit, fetch).cpu
    }

    fn panels(&self) -> Vec<Panel> {
        let mut panels = Vec::new();
        for (position, limit) in LIMITS.iter().enumerate() {
            let of = |subject| FetchMode::ALL.map(|fetch| self.of(subject, position, fetch).all).to_vec();
            panels.push(bars(
                &format!("The newest {limit} records, {}", self.workload.name()),
                "µs a query, wall time",
                false,
                &FetchMode::NAMES,
                SUBJECTS.map(|subject| (subject.name, of(subject))),
            ));
            let of = |subject| {
                FetchMode::ALL[..2].iter().map(|fetch| self.of(subject, position, *fetch).cpu).collect()
            };
            panels.push(bars(
                &format!("The newest {limit} records, {}", self.workload.name()),
                "CPU µs a query, calling thread",
                false,
                &FetchMode::NAMES[..2],
                SUBJECTS.map(|subject| (subject.name, of(subject))),
            ));
        }
        let stages = SUBJECTS.map(|subject| {
            let of = |fetch| self.of(subject, 1, fetch);
            let parts = FetchMode::ALL.map(|fetch| [of(fetch).all - of(fetch).fetch, of(fetch).fetch]);
            (subject.name, parts.into_iter().flatten().collect())
        });
        panels.push(bars(
            &format!("The newest 200 by stage, {}", self.workload.name()),
            "µs a query, wall time",
            false,
            &["index", "fetch", "+SEQ: index", "fetch", "+PAR: index", "fetch"],
            stages,
        ));
        panels
    }
}

pub(super) fn figure_10(scale: &Scale) -> Result<FigureReport> {
    let mut report = report_of("perseid-10", "Figure 10", scale);
    let all =
        [measure(scale, Workload::SkewedPrimary, true)?, measure(scale, Workload::SkewedSecondary, true)?];
    let each = |summary: &dyn Fn(&FetchTimes) -> String| {
        all.iter()
            .map(|times| format!("{}: {}", times.workload.name(), summary(times)))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let every = |holds: &dyn Fn(&FetchTimes, usize) -> bool| {
        all.iter().all(|times| (0..2).all(|at| holds(times, at)))
    };
    claim_against_lsm(&mut report, &all);
    report.claim(
        "§4.4: with a PS-Tree, the fetch of records takes more than half of the time of the newest 200",
        all.iter().all(|times| {
            times.of(PS, 1, FetchMode::Plain).fetch > 0.5 * times.of(PS, 1, FetchMode::Plain).all
        }),
        each(&|times| {
            let query_time = times.of(PS, 1, FetchMode::Plain);
            listed([("all", query_time.all), ("fetch", query_time.fetch)])
        }),
    );
    report.claim(
        "§5.2.5: queries to a PS-Tree over a tiered table are faster with sequence ranges",
        every(&|times, limit| times.gain(PS, limit) > 1.0),
        each(&|times| {
            format!("times as fast, newest 10: {}; newest 200: {}", times.gains(0), times.gains(1))
        }),
    );
    report.claim(
        "§5.2.5: an LSM index gains less from sequence ranges than a PS-Tree, for the newest 200",
        all.iter().all(|times| times.gain(LSM, 1) < times.gain(PS, 1)),
        each(&|times| times.gains(1)),
    );
    let files = uncached_times(scale, Workload::SkewedSecondary)?;
    report.claim(
        "§5.2.5: with records in files, parallel fetches make the newest 200 of popular secondary keys \
         still faster",
        files[0] > files[1],
        listed([("one thread", files[0]), ("+PAR", files[1])]),
    );
    let gain = |times: &FetchTimes| times.parallel_gain(PS, 1);
    report.departs(
        "with records in the cache, parallel fetches make no difference (within a third)",
        all.iter().all(|times| gain(times) > 0.75 && gain(times) < 1.34),
        listed(all.iter().map(|times| (times.workload.name(), gain(times)))),
        "in the paper, threads share every query. Here one thread fetches cached records, since several \
         threads on two processors with shared caches are slower.",
    );
    report.panels = all.iter().flat_map(FetchTimes::panels).collect();
    Ok(report)
}

fn claim_against_lsm(report: &mut FigureReport, all: &[FetchTimes]) {
    let every =
        |fetch, factor| all.iter().all(|times| (0..2).all(|limit| times.against_lsm(limit, fetch) < factor));
    let summary = |fetch| {
        let each = all.iter().map(|times| {
            let (ten, more) = (times.summary(0, fetch), times.summary(1, fetch));
            format!("{}, newest 10: {ten}; newest 200: {more}", times.workload.name())
        });
        each.collect::<Vec<_>>().join("; ")
    };
    report.claim(
        "§5.2.5: with sequence ranges, queries for records of a tiered table are faster with a PS-Tree than \
         with an LSM index",
        every(FetchMode::BySequence, 1.0),
        summary(FetchMode::BySequence),
    );
    report.departs(
        "without sequence ranges, queries for records of a tiered table are as fast with a PS-Tree as with \
         an LSM index or faster (within a quarter)",
        every(FetchMode::Plain, 1.25),
        summary(FetchMode::Plain),
        "in the paper, they are faster by up to 62 %: an LSM index validates every candidate in another \
         tree before the fetch. Here it fetches at once, since the record shows whether its entry is \
         current.",
    );
}

pub(super) fn figure_11(scale: &Scale) -> Result<FigureReport> {
    let mut report = report_of("perseid-11", "Figure 11", scale);
    let leveled = measure(scale, Workload::SkewedSecondary, false)?;
    let tiered = measure(scale, Workload::SkewedSecondary, true)?;
    let gain = |times: &FetchTimes, limit| times.gain(PS, limit);
    let summary = listed([
        ("leveled, newest 10", gain(&leveled, 0)),
        ("leveled, newest 200", gain(&leveled, 1)),
        ("tiered, newest 10", gain(&tiered, 0)),
        ("tiered, newest 200", gain(&tiered, 1)),
    ]);
    report.claim(
        "§5.2.5: for the newest 200, sequence ranges gain at most as much over a leveled table as over a \
         tiered one (within a twentieth)",
        gain(&leveled, 1) < 1.05 * gain(&tiered, 1),
        summary.clone(),
    );
    report.claim(
        "§5.2.5: over a leveled table, sequence ranges do not slow down the newest 10 (within a tenth)",
        gain(&leveled, 0) > 0.9,
        summary,
    );
    report.departs(
        "over a leveled table, queries for records are as fast with a PS-Tree as with an LSM index or \
         faster (within a third)",
        (0..2).all(|limit| {
            [FetchMode::Plain, FetchMode::BySequence]
                .iter()
                .all(|fetch| leveled.against_lsm(limit, *fetch) < 1.34)
        }),
        format!(
            "plain {}; +SEQ {}",
            leveled.summary(1, FetchMode::Plain),
            leveled.summary(1, FetchMode::BySequence)
        ),
        "in the paper, an LSM index validates every candidate in another tree before the fetch. Here it \
         fetches at once, since the record shows whether its entry is current. Compactions of its tree \
         dropped most stale entries, and the fetch takes most of the time.",
    );
    report.panels = leveled.panels();
    Ok(report)
}

fn report_of(name: &str, what: &str, scale: &Scale) -> FigureReport {
    let mut report = report(name, what, scale, scale.records, &load_average());
    report.set("bytes of a record", RECORD_BYTES);
    report.set("queries", scale.queries);
    report.set("threads of a parallel fetch", FETCH_THREADS);
    report.set("processors", std::thread::available_parallelism().map_or(0, usize::from));
    report
}

fn measure(scale: &Scale, workload: Workload, tiered: bool) -> Result<FetchTimes> {
    eprintln!("  {}, {}", workload.name(), if tiered { "tiered" } else { "leveled" });
    let folder = match &scale.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let source = EntrySource::default();
    let attribute = LsmIndex::ATTRIBUTE;
    let declared = [
        format!("{}={attribute}:ps-tree:skey=trie", PS.index),
        format!("{}={attribute}:composite:validation=key-index", LSM.index),
        format!("{SUBSTITUTED}={attribute}:composite"),
    ];
    let components = with_substitute_index(SUBSTITUTED, &source);
    let database = LsmIndex::create_with(table(tiered), &folder.path().join("db"), components, &declared)?;
    let substitutes = [PmKind::Composite, PmKind::Log].map(|kind| {
        PmIndex::create(PmSettings { kind, skey: SkeyKind::Trie, latency: None })
            .map(|index| (kind, Arc::new(index)))
    });
    let substitutes = substitutes.into_iter().collect::<Result<Vec<_>>>()?;
    let draws = Draws::new(workload, scale.records, scale.seed);
    let filler = vec![b'r'; RECORD_BYTES - 8];
    for write in draws.writes() {
        database.put(write.secondary, write.record, &filler)?;
        let key = primary_key(write.record);
        let sequence = database.records().get_pinned(&key)?.map_or(0, |(sequence, _)| sequence);
        let secondary_key = LsmIndex::index_key(write.secondary)?;
        substitutes.iter().try_for_each(|(_, index)| index.put_at(&secondary_key, &key, sequence))?;
    }
    settle(std::time::Duration::from_secs(60));
    let mut times = FetchTimes { workload, query_time: Default::default() };
    for (query_time, limit) in times.query_time.iter_mut().zip(LIMITS) {
        let queries = scale.queries as usize;
        let mut minimum = SUBJECTS.map(|_| FetchMode::ALL.map(|_| MinimumTimes::new(queries)));
        let query_of = |subject: RecordSubject| {
            if let Some((_, entries)) = substitutes.iter().find(|(kind, _)| Some(*kind) == subject.entries) {
                source.set_entries(entries, limit);
            }
            RecordQuery { database: &database, subject, limit, draws: &draws, scale }
        };
        // The subjects run in turn, so that a disturbance by other programs affects all of them.
        for _ in 0..PASSES {
            for (subject, minimum) in SUBJECTS.into_iter().zip(&mut minimum) {
                let query = query_of(subject);
                for (fetch, minimum) in FetchMode::ALL.into_iter().zip(minimum) {
                    query.time(fetch, minimum)?;
                }
            }
        }
        for ((subject, minimum), query_time) in SUBJECTS.into_iter().zip(&minimum).zip(query_time) {
            let query = query_of(subject);
            for ((fetch, minimum), query_time) in FetchMode::ALL.into_iter().zip(minimum).zip(query_time) {
                let all = super::mean(&minimum.all);
                *query_time = QueryTime {
                    all,
                    fetch: all * query.share_of_fetching(fetch)?,
                    cpu: super::mean(&minimum.cpu),
                };
            }
        }
    }
    Ok(times)
}

/// Wall time in microseconds of the newest 200 records of a PS-Tree that are read from files, fetched by one thread and by
/// several.
fn uncached_times(scale: &Scale, workload: Workload) -> Result<[f64; 2]> {
    eprintln!("  {}, from files", workload.name());
    let folder = match &scale.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let declared = [format!("{}={}:ps-tree:skey=trie", PS.index, LsmIndex::ATTRIBUTE)];
    let kind = LsmKind { cache_bytes: UNCACHED_BYTES, ..table(true) };
    let database = LsmIndex::create_with(kind, &folder.path().join("db"), Components::system(), &declared)?;
    let draws = Draws::new(workload, scale.records, scale.seed);
    let filler = vec![b'r'; RECORD_BYTES - 8];
    for write in draws.writes() {
        database.put(write.secondary, write.record, &filler)?;
    }
    settle(std::time::Duration::from_secs(60));
    let query = RecordQuery { database: &database, subject: PS, limit: LIMITS[1], draws: &draws, scale };
    let modes = [FetchMode::BySequence, FetchMode::Parallel];
    let mut minimum = modes.map(|_| MinimumTimes::new(scale.queries as usize));
    for _ in 0..PASSES {
        for (fetch, minimum) in modes.into_iter().zip(&mut minimum) {
            query.time(fetch, minimum)?;
        }
    }
    Ok(minimum.map(|minimum| super::mean(&minimum.all)))
}

/// The minimum microseconds of each query over all passes.
struct MinimumTimes {
    /// Wall time.
    all: Vec<f64>,
    /// CPU time of the calling thread.
    cpu: Vec<f64>,
}

impl MinimumTimes {
    fn new(queries: usize) -> Self {
        Self { all: vec![f64::MAX; queries], cpu: vec![f64::MAX; queries] }
    }
}

/// Queries to one index for the newest records of secondary keys.
struct RecordQuery<'q> {
    database: &'q LsmIndex,
    subject: RecordSubject,
    limit: usize,
    draws: &'q Draws,
    scale: &'q Scale,
}

impl RecordQuery<'_> {
    fn query(&self, secondary: u64) -> bolide::Query {
        LsmIndex::newest_of(secondary, self.limit).using_index(self.subject.index)
    }

    /// Runs all queries once.
    fn time(&self, fetch: FetchMode, minimum: &mut MinimumTimes) -> Result<()> {
        let mut draws = self.draws.reseeded(self.scale.seed ^ 10);
        for (all, cpu) in minimum.all.iter_mut().zip(&mut minimum.cpu) {
            let query = self.query(draws.secondary());
            let (started, before) = (Instant::now(), thread_cpu_nanos());
            self.database.records().find_with(&query, &fetch.options())?;
            *cpu = cpu.min((thread_cpu_nanos() - before) as f64 / 1000.0);
            *all = all.min(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(())
    }

    /// The share of the fetch in the wall time of queries, by their measured stages.
    fn share_of_fetching(&self, fetch: FetchMode) -> Result<f64> {
        let (mut draws, options) = (self.draws.reseeded(self.scale.seed ^ 10), fetch.options().measure(true));
        let (mut fetching, mut total) = (0, 0);
        for _ in 0..self.scale.queries {
            let (query, started) = (self.query(draws.secondary()), Instant::now());
            let explain =
                self.database.records().find_each(&query, &options, |_| Ok(ControlFlow::Continue(())))?;
            total += started.elapsed().as_nanos() as u64;
            fetching += explain.fetch_nanos;
        }
        Ok(fetching as f64 / total.max(1) as f64)
    }
}
