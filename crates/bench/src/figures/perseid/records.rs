//! Figures 10 and 11: queries for whole records, with the two ways to fetch them faster (§4.4, §5.2.5).
//!
//! One table has all indexes, so that all fetch the same records from the same files: a PS-Tree and an LSM index of
//! the database, and composite keys and a log that stand in for a third one.

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
    LsmIndex, LsmKind, PmIndex, PmKind, PmSettings, Stand, primary_key, queried_by_driver,
};

/// Threads of a parallel fetch, as in the paper.
pub(super) const FETCH_THREADS: usize = 4;
const LIMITS: [usize; 2] = [10, 200];
const PASSES: usize = 5;
/// A cache that holds next to none of the records, in bytes.
const UNCACHED_BYTES: usize = 64 << 10;

/// How records are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetch {
    /// As any record is found.
    Plain,
    /// From what can hold the known write alone.
    BySequence,
    /// The same, in parallel.
    Parallel,
}

impl Fetch {
    const ALL: [Self; 3] = [Self::Plain, Self::BySequence, Self::Parallel];
    const NAMES: [&'static str; 3] = ["plain", "+SEQ", "+SEQ +PAR"];

    /// The settings of queries.
    pub(super) fn options(self) -> FindOptions {
        let threads = if self == Self::Parallel { FETCH_THREADS } else { 1 };
        FindOptions::default().fetch_by_sequence(self != Self::Plain).fetch_threads(threads)
    }
}

/// What is compared: its name, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Subject {
    name: &'static str,
    index: &'static str,
    entries: Option<PmKind>,
}

const PS: Subject = Subject { name: "PS-Tree (trie)", index: "ps", entries: None };
const COMPOSITE: Subject =
    Subject { name: "composite (trie)", index: STOOD_FOR, entries: Some(PmKind::Composite) };
const LOG: Subject = Subject { name: "log (trie)", index: STOOD_FOR, entries: Some(PmKind::Log) };
const LSM: Subject = Subject { name: "LSM", index: "lsm", entries: None };
const SUBJECTS: [Subject; 4] = [PS, COMPOSITE, LOG, LSM];
/// The index that others answer for.
const STOOD_FOR: &str = "pm";

/// Microseconds of a timed.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    /// By the clock.
    all: f64,
    /// Of that, fetching records.
    fetch: f64,
    /// CPU time of the calling thread.
    cpu: f64,
}

/// What queries took over one table: `took[limit][subject][fetch]`.
struct QueryFigures {
    workload: Workload,
    took: [[[Took; 3]; 4]; 2],
}

impl QueryFigures {
    fn of(&self, subject: Subject, limit: usize, fetch: Fetch) -> Took {
        let position = SUBJECTS.iter().position(|other| *other == subject).unwrap_or_default();
        self.took[limit][position][fetch as usize]
    }

    /// How many times as fast sequence ranges make queries to `subject`, by CPU time.
    fn gain(&self, subject: Subject, limit: usize) -> f64 {
        self.of(subject, limit, Fetch::Plain).cpu / self.of(subject, limit, Fetch::BySequence).cpu
    }

    /// How many times as fast further threads make them, by the clock.
    fn parallel_gain(&self, subject: Subject, limit: usize) -> f64 {
        self.of(subject, limit, Fetch::BySequence).all / self.of(subject, limit, Fetch::Parallel).all
    }

    fn summary(&self, limit: usize, fetch: Fetch) -> String {
        listed(SUBJECTS.map(|subject| (subject.name, self.of(subject, limit, fetch).cpu)))
    }

    fn gains(&self, limit: usize) -> String {
        listed(SUBJECTS.map(|subject| (subject.name, self.gain(subject, limit))))
    }

    /// The CPU time of a query to a PS-Tree, where one to an LSM index takes 1.
    fn against_lsm(&self, limit: usize, fetch: Fetch) -> f64 {
        self.of(PS, limit, fetch).cpu / self.of(LSM, limit, fetch).cpu
    }

    fn panels(&self) -> Vec<Panel> {
        let mut panels = Vec::new();
        for (position, limit) in LIMITS.iter().enumerate() {
            let of = |subject| Fetch::ALL.map(|fetch| self.of(subject, position, fetch).all).to_vec();
            panels.push(bars(
                &format!("The newest {limit} records, {}", self.workload.name()),
                "µs a query, by the clock",
                false,
                &Fetch::NAMES,
                SUBJECTS.map(|subject| (subject.name, of(subject))),
            ));
            let of = |subject| {
                Fetch::ALL[..2].iter().map(|fetch| self.of(subject, position, *fetch).cpu).collect()
            };
            panels.push(bars(
                &format!("The newest {limit} records, {}", self.workload.name()),
                "CPU µs a query, calling thread",
                false,
                &Fetch::NAMES[..2],
                SUBJECTS.map(|subject| (subject.name, of(subject))),
            ));
        }
        let stages = SUBJECTS.map(|subject| {
            let of = |fetch| self.of(subject, 1, fetch);
            let parts = Fetch::ALL.map(|fetch| [of(fetch).all - of(fetch).fetch, of(fetch).fetch]);
            (subject.name, parts.into_iter().flatten().collect())
        });
        panels.push(bars(
            &format!("The newest 200 by stage, {}", self.workload.name()),
            "µs a query, by the clock",
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
    let each = |summary: &dyn Fn(&QueryFigures) -> String| {
        all.iter()
            .map(|queried| format!("{}: {}", queried.workload.name(), summary(queried)))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let every = |holds: &dyn Fn(&QueryFigures, usize) -> bool| {
        all.iter().all(|queried| (0..2).all(|at| holds(queried, at)))
    };
    claim_against_lsm(&mut report, &all);
    report.claim(
        "§4.4: with a PS-Tree most of the time of the newest 200 is the table's",
        all.iter()
            .all(|queried| queried.of(PS, 1, Fetch::Plain).fetch > 0.5 * queried.of(PS, 1, Fetch::Plain).all),
        each(&|queried| {
            let took = queried.of(PS, 1, Fetch::Plain);
            listed([("all", took.all), ("fetch", took.fetch)])
        }),
    );
    report.claim(
        "§5.2.5: sequence ranges make queries to a PS-Tree over a tiered table faster",
        every(&|queried, limit| queried.gain(PS, limit) > 1.0),
        each(&|queried| {
            format!("times as fast, newest 10: {}; newest 200: {}", queried.gains(0), queried.gains(1))
        }),
    );
    report.claim(
        "§5.2.5: an LSM index gains less from sequence ranges than a PS-Tree, for the newest 200",
        all.iter().all(|queried| queried.gain(LSM, 1) < queried.gain(PS, 1)),
        each(&|queried| queried.gains(1)),
    );
    let files = from_files(scale, Workload::SkewedSecondary)?;
    report.claim(
        "§5.2.5: fetching in parallel makes the newest 200 of popular secondary keys faster still, where records are \
         read from files",
        files[0] > files[1],
        listed([("one thread", files[0]), ("+PAR", files[1])]),
    );
    let gain = |queried: &QueryFigures| queried.parallel_gain(PS, 1);
    report.departs(
        "that of records in the cache makes no difference (within a third)",
        all.iter().all(|queried| gain(queried) > 0.75 && gain(queried) < 1.34),
        listed(all.iter().map(|queried| (queried.workload.name(), gain(queried)))),
        "in the paper, threads share every timed. Here one thread fetches what needs no file: over two processors that \
         share their caches, several took longer.",
    );
    report.panels = all.iter().flat_map(QueryFigures::panels).collect();
    Ok(report)
}

fn claim_against_lsm(report: &mut FigureReport, all: &[QueryFigures]) {
    let every =
        |fetch, most| all.iter().all(|queried| (0..2).all(|limit| queried.against_lsm(limit, fetch) < most));
    let summary = |fetch| {
        let each = all.iter().map(|queried| {
            let (ten, more) = (queried.summary(0, fetch), queried.summary(1, fetch));
            format!("{}, newest 10: {ten}; newest 200: {more}", queried.workload.name())
        });
        each.collect::<Vec<_>>().join("; ")
    };
    report.claim(
        "§5.2.5: with sequence ranges, a PS-Tree brings records from a tiered table faster than an LSM index",
        every(Fetch::BySequence, 1.0),
        summary(Fetch::BySequence),
    );
    report.departs(
        "without them it is faster too, or about as fast (within a quarter)",
        every(Fetch::Plain, 1.25),
        summary(Fetch::Plain),
        "in the paper, it is faster by up to 62 %: an LSM index validates every candidate in another tree before \
         it fetches. Here it fetches at once, since the record itself shows whether it is current.",
    );
}

pub(super) fn figure_11(scale: &Scale) -> Result<FigureReport> {
    let mut report = report_of("perseid-11", "Figure 11", scale);
    let leveled = measure(scale, Workload::SkewedSecondary, false)?;
    let tiered = measure(scale, Workload::SkewedSecondary, true)?;
    let gain = |queried: &QueryFigures, limit| queried.gain(PS, limit);
    let summary = listed([
        ("leveled, newest 10", gain(&leveled, 0)),
        ("leveled, newest 200", gain(&leveled, 1)),
        ("tiered, newest 10", gain(&tiered, 0)),
        ("tiered, newest 200", gain(&tiered, 1)),
    ]);
    report.claim(
        "§5.2.5: sequence ranges gain no more over a leveled table than over a tiered one, for the newest \
         200 (but for one in twenty)",
        gain(&leveled, 1) < 1.05 * gain(&tiered, 1),
        summary.clone(),
    );
    report.claim(
        "§5.2.5: over a leveled table they still make the newest 10 no slower (by more than a tenth)",
        gain(&leveled, 0) > 0.9,
        summary,
    );
    report.departs(
        "over a leveled table a PS-Tree brings records about as fast as an LSM index, or faster (within a \
         third)",
        (0..2).all(|limit| {
            [Fetch::Plain, Fetch::BySequence].iter().all(|fetch| leveled.against_lsm(limit, *fetch) < 1.34)
        }),
        format!("plain {}; +SEQ {}", leveled.summary(1, Fetch::Plain), leveled.summary(1, Fetch::BySequence)),
        "in the paper, an LSM index validates every candidate in another tree before it fetches. Here it fetches \
         at once, since the record itself shows whether it is current; compactions of its tree have \
         dropped most entries that are not; and the records take most of the time.",
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

fn measure(scale: &Scale, workload: Workload, tiered: bool) -> Result<QueryFigures> {
    eprintln!("  {}, {}", workload.name(), if tiered { "tiered" } else { "leveled" });
    let folder = match &scale.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let stand = Stand::default();
    let attribute = LsmIndex::ATTRIBUTE;
    let declared = [
        format!("{}={attribute}:ps-tree:skey=trie", PS.index),
        format!("{}={attribute}:composite:validation=key-index", LSM.index),
        format!("{STOOD_FOR}={attribute}:composite"),
    ];
    let components = queried_by_driver(STOOD_FOR, &stand);
    let database = LsmIndex::create_with(table(tiered), &folder.path().join("db"), components, &declared)?;
    let stood_for = [PmKind::Composite, PmKind::Log].map(|kind| {
        PmIndex::create(PmSettings { kind, skey: SkeyKind::Trie, latency: None })
            .map(|index| (kind, Arc::new(index)))
    });
    let stood_for = stood_for.into_iter().collect::<Result<Vec<_>>>()?;
    let draws = Draws::new(workload, scale.records, scale.seed);
    let filler = vec![b'r'; RECORD_BYTES - 8];
    for write in draws.writes() {
        database.put(write.secondary, write.record, &filler)?;
        let key = primary_key(write.record);
        let sequence = database.records().get_pinned(&key)?.map_or(0, |(sequence, _)| sequence);
        let secondary_key = LsmIndex::index_key(write.secondary)?;
        stood_for.iter().try_for_each(|(_, index)| index.put_at(&secondary_key, &key, sequence))?;
    }
    settle(std::time::Duration::from_secs(60));
    let mut queried = QueryFigures { workload, took: Default::default() };
    for (took, limit) in queried.took.iter_mut().zip(LIMITS) {
        let queries = scale.queries as usize;
        let mut least = SUBJECTS.map(|_| Fetch::ALL.map(|_| Least::new(queries)));
        let answer = |subject: Subject| {
            if let Some((_, entries)) = stood_for.iter().find(|(kind, _)| Some(*kind) == subject.entries) {
                stand.answer_from(entries, limit);
            }
            RecordQuery { database: &database, subject, limit, draws: &draws, scale }
        };
        // All take turns, so that what slows the machine for a while slows all of them.
        for _ in 0..PASSES {
            for (subject, least) in SUBJECTS.into_iter().zip(&mut least) {
                let timed = answer(subject);
                for (fetch, least) in Fetch::ALL.into_iter().zip(least) {
                    timed.time(fetch, least)?;
                }
            }
        }
        for ((subject, least), took) in SUBJECTS.into_iter().zip(&least).zip(took) {
            let timed = answer(subject);
            for ((fetch, least), took) in Fetch::ALL.into_iter().zip(least).zip(took) {
                let all = super::mean(&least.all);
                *took =
                    Took { all, fetch: all * timed.share_of_fetching(fetch)?, cpu: super::mean(&least.cpu) };
            }
        }
    }
    Ok(queried)
}

/// What the newest 200 records of a PS-Tree take where nearly all are read from files, by one thread and by several:
/// microseconds by the clock.
fn from_files(scale: &Scale, workload: Workload) -> Result<[f64; 2]> {
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
    let timed = RecordQuery { database: &database, subject: PS, limit: LIMITS[1], draws: &draws, scale };
    let ways = [Fetch::BySequence, Fetch::Parallel];
    let mut least = ways.map(|_| Least::new(scale.queries as usize));
    for _ in 0..PASSES {
        for (fetch, least) in ways.into_iter().zip(&mut least) {
            timed.time(fetch, least)?;
        }
    }
    Ok(least.map(|least| super::mean(&least.all)))
}

/// The least microseconds that each query took in any pass.
struct Least {
    /// By the clock.
    all: Vec<f64>,
    /// CPU time of the calling thread.
    cpu: Vec<f64>,
}

impl Least {
    fn new(queries: usize) -> Self {
        Self { all: vec![f64::MAX; queries], cpu: vec![f64::MAX; queries] }
    }
}

/// Queries one index of a table for the newest records of secondary keys.
struct RecordQuery<'q> {
    database: &'q LsmIndex,
    subject: Subject,
    limit: usize,
    draws: &'q Draws,
    scale: &'q Scale,
}

impl RecordQuery<'_> {
    fn query(&self, secondary: u64) -> bolide::Query {
        LsmIndex::newest_of(secondary, self.limit).using_index(self.subject.index)
    }

    /// Runs all queries once.
    fn time(&self, fetch: Fetch, least: &mut Least) -> Result<()> {
        let mut draws = self.draws.reseeded(self.scale.seed ^ 10);
        for (all, cpu) in least.all.iter_mut().zip(&mut least.cpu) {
            let query = self.query(draws.secondary());
            let (started, before) = (Instant::now(), thread_cpu_nanos());
            self.database.records().find_with(&query, &fetch.options())?;
            *cpu = cpu.min((thread_cpu_nanos() - before) as f64 / 1000.0);
            *all = all.min(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(())
    }

    /// The share of fetching, of whole queries with their stages measured.
    fn share_of_fetching(&self, fetch: Fetch) -> Result<f64> {
        let (mut draws, options) = (self.draws.reseeded(self.scale.seed ^ 10), fetch.options().measure(true));
        let (mut fetching, mut query_path) = (0, 0);
        for _ in 0..self.scale.queries {
            let (query, started) = (self.query(draws.secondary()), Instant::now());
            let explain =
                self.database.records().find_each(&query, &options, |_| Ok(ControlFlow::Continue(())))?;
            query_path += started.elapsed().as_nanos() as u64;
            fetching += explain.fetch_nanos;
        }
        Ok(fetching as f64 / query_path.max(1) as f64)
    }
}
