//! Benchmarks of Bolide against its peers.
//!
//! ```text
//! cargo run --release -p bolide-bench -- store [--n 5000000] [--peers] [--threads 1,2]
//! cargo run --release -p bolide-bench -- index [--n 1000000] [--updates 250000] [--peers]
//! cargo run --release -p bolide-bench -- index --beyond 10 [--n 1000000]
//! cargo run --release -p bolide-bench -- kinds [--n 300000] [--updates 75000]
//! cargo run --release -p bolide-bench -- next [--n 1000000] [--updates 250000] [--rows windows]
//! cargo run --release -p bolide-bench -- transactions [--n 1000000] [--peers] [--threads 1,2]
//! cargo run --release -p bolide-bench -- advisor [--n 300000]
//! cargo run --release -p bolide-bench -- opening [--n 10000000]
//! cargo run --release -p bolide-bench -- sorted-view [--runs 1,2,4,8,16] [--strong]
//! cargo run --release -p bolide-bench -- pairs --against OTHER_BUILD -- store --n 1000000 --threads 1
//! cargo run --release -p bolide-bench --features switches -- pairs --without point-index -- store --n 1000000 --threads 1
//! cargo run --release -p bolide-bench -- figure list
//! cargo run --release -p bolide-bench -- figure leveldbpp-8 [--records 100000] [--out figures]
//! cargo run --release -p bolide-bench -- figure perseid-all
//! ```
//!
//! `--peers` needs the feature `peers` (see `engines` for the stores and their configuration).
//! Each engine runs in a separate child process, so that its memory and CPU time are isolated. The child prints its figures as
//! JSON, and the parent computes medians over `--runs`.

// A program has no external interface: `pub` marks the items that a module offers to the program.
#![allow(unreachable_pub)]

mod child;
mod data;
mod engine;
mod engines;
mod error;
mod figures;
mod measure;
mod next_baselines;
mod pairs;
mod pm_baselines;
mod report;
mod transaction_engine;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use bolide_base::technique::Technique;
use clap::{Args, Parser, Subcommand, ValueEnum};

use engine::{Arrangement, Layout, Views, layouts};
use error::Result;
use pairs::Side;
use workloads::beyond::BeyondPlan;
use workloads::index::IndexPlan;
use workloads::kinds::{KindsPlan, SUBJECTS};
use workloads::next::{self, NextPlan};
use workloads::opening::{self, OpeningPlan, OpeningStep};
use workloads::rows::Ranks;
use workloads::rows::Row;
use workloads::sorted_view::SortedViewPlan;
use workloads::store::StorePlan;
use workloads::transactions::TransactionsPlan;

#[derive(Parser)]
#[command(about = "Benchmarks of Bolide against its peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load, gets, seeks, scans and YCSB A to F on a plain store
    Store {
        /// Records to load
        #[arg(long, default_value_t = 5_000_000)]
        n: u64,
        /// Numbers of threads, each on a store of its own
        #[arg(long, value_delimiter = ',', default_value = "1,2")]
        threads: Vec<u64>,
        /// Rows to run after the load (default: all)
        #[arg(long, value_delimiter = ',')]
        rows: Vec<String>,
        /// The layouts of Bolide with sorted views
        #[arg(long, value_enum, default_value = "partitions")]
        sorted_views: Views,
        /// Use sorted views with tags instead of Bloom filters for Bolide's gets
        #[arg(long)]
        view_tags: bool,
        /// Data written to a partition before the rebuild of its view, in percent of the data of the view
        #[arg(long, default_value_t = 0)]
        view_delay_percent: u32,
        /// The number of ranks of the YCSB rows
        #[arg(long, value_enum, default_value = "ycsb")]
        ranks: Ranks,
        /// Limit the memory of each engine after its load to this many MiB, page cache included (needs root). The engine is opened
        /// again with caches of a quarter of that, memtables of an eighth at most
        #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
        cold: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Inserts, updates and lookups with an index on one attribute
    Index {
        /// Records to insert
        #[arg(long, default_value_t = 1_000_000)]
        n: u64,
        /// Updates after that, each of a random record
        #[arg(long, default_value_t = 250_000)]
        updates: u64,
        /// Limit the memory of each engine for the lookups to this many MiB, page cache included (needs root). The engine is opened
        /// again with caches of a quarter of that, memtables of an eighth at most
        #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..))]
        cold: Option<u64>,
        /// Measure an index that is so many times as large as the bound of its memory, beside one that fits and `composite`, instead
        #[arg(long, value_name = "FACTOR", conflicts_with = "cold", value_parser = clap::value_parser!(u64).range(1..))]
        beyond: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// JSON records with an index of each kind: inserts, updates, lookups and ranges
    Kinds {
        /// Records to insert
        #[arg(long, default_value_t = 300_000)]
        n: u64,
        /// Updates after that, each of a random record
        #[arg(long, default_value_t = 75_000)]
        updates: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Index blocks in sstables against the other kinds: puts, the newest few of a value, ranges, windows, all with records
    Next {
        /// Records to insert
        #[arg(long, default_value_t = 1_000_000)]
        n: u64,
        /// Updates after that, each of a random record
        #[arg(long, default_value_t = 250_000)]
        updates: u64,
        /// Rows to measure. Numbers and windows have separate tables; with `all` the figures of windows are written to
        /// FILE.windows.json
        #[arg(long, value_enum, default_value = "all")]
        rows: NextRows,
        /// The directory of the data set of positions, vehicles.ndjson.zst (default: the shared data directory, else the
        /// bundled part)
        #[arg(long)]
        data: Option<PathBuf>,
        #[command(flatten)]
        common: Common,
    },
    /// Transactions: transfers, read-modify-write, insert-if-absent, a query each; each row verifies its result
    Transactions {
        /// Accounts to load, at least 1,000; a tenth as many tasks
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
        n: u64,
        /// Transactions of each row
        #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(2..))]
        transactions: u64,
        /// Numbers of threads on one store
        #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u64).range(1..=64))]
        threads: Vec<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// The predictions of the index advisor beside measured indexes of each kind, for fourteen workloads
    Advisor {
        /// Records of each collection
        #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
        n: u64,
        /// Seed of all random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The directory of the databases (default: the system's temporary one)
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// The time and the memory of an opening and of the first operation after it, with and without indexes
    Opening {
        /// Records of each database
        #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
        n: u64,
        /// Records that are updated before each crash
        #[arg(long, default_value_t = 200_000)]
        unclosed: u64,
        /// Measurements of each step to take the median of
        #[arg(long, default_value_t = 3)]
        runs: usize,
        /// The kind of the two indexes
        #[arg(long, default_value = "ps-tree")]
        kind: String,
        /// Parent directory of the databases (default: the system's directory for temporary files)
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Runs one step of `opening` in a process of its own; used by the bench
    #[command(hide = true)]
    OpeningStep {
        #[arg(value_enum)]
        step: OpeningStep,
        path: PathBuf,
        #[arg(long)]
        records: u64,
        #[arg(long)]
        unclosed: u64,
        #[arg(long)]
        kind: Option<String>,
    },
    /// Sorted views against merging iterators, on sstables alone
    SortedView {
        /// Numbers of sorted runs
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
        runs: Vec<usize>,
        /// MiB of keys and values in each run
        #[arg(long, default_value_t = 64)]
        mib: u64,
        /// Operations of each row
        #[arg(long, default_value_t = 200_000)]
        operations: u64,
        /// Entries of a segment: 16, 32 or 64
        #[arg(long, default_value_t = 32)]
        segment: usize,
        /// 64 neighbouring keys in one run instead of one
        #[arg(long)]
        strong: bool,
        /// Measurements to take the median of
        #[arg(long, default_value_t = 3)]
        repeats: usize,
        /// Rows to measure (default: all)
        #[arg(long, value_delimiter = ',')]
        rows: Vec<String>,
    },
    /// Runs a workload on two sides in turn and prints the ratios of CPU times with their intervals
    ///
    /// With `--against` the first side is that program and the second is this one: below 1, this one is faster. Else the first
    /// is this program, and the second is the same without a technique: above 1, the technique gains.
    ///
    /// Example: `bolide-bench pairs --without point-index -- store --n 1000000 --threads 1 --rows ycsb-b --engines bolide`
    Pairs {
        /// Another build of this benchmark, for the first side
        #[arg(long)]
        against: Option<PathBuf>,
        /// Techniques that the second side switches off (needs the feature `switches`)
        #[arg(long, value_delimiter = ',')]
        without: Vec<String>,
        /// Pairs of runs
        #[arg(long, default_value_t = 15)]
        pairs: usize,
        /// The workload: a subcommand with its arguments
        #[arg(required = true, last = true)]
        workload: Vec<String>,
    },
    /// Repeats figures and tables of the papers and checks claims about them
    ///
    /// Example: `bolide-bench figure leveldbpp-8 leveldbpp-10 --out figures`
    Figure {
        /// Names of figures; `list` prints them, `all` measures all of them, `perseid-all` those of one paper, `pages` writes
        /// the Markdown pages of figures measured before
        #[arg(required = true)]
        names: Vec<String>,
        /// Output directory of NAME.svg, NAME.json and NAME.md
        #[arg(long, default_value = "target/figures")]
        out: PathBuf,
        #[command(flatten)]
        scale: figures::Scale,
    },
    /// Runs one plan and prints its figures; used by the bench for its child processes
    #[command(hide = true)]
    Child {
        /// The plan as JSON
        plan: String,
        /// The directory to make the store in
        directory: PathBuf,
    },
}

/// The rows of `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NextRows {
    All,
    Numbers,
    Windows,
}

#[derive(Args, Clone)]
struct Common {
    /// Run the other stores too (needs the feature `peers`)
    #[arg(long)]
    peers: bool,
    /// Run these engines only
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// Runs to take the median of
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The layout of Bolide's sorted runs
    #[arg(long, value_parser = layouts(), default_value = "leveled")]
    layout: Layout,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time limit of a row in seconds
    #[arg(long, default_value_t = 60)]
    row_limit: u64,
    /// Parent directory of the stores (default: the system's directory for temporary files)
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Write all figures to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Switches off the techniques that the environment names.
///
/// # Errors
/// Names an unknown technique, and fails in a build that cannot switch any.
fn switch_off_techniques() -> Result<()> {
    let names = std::env::var(pairs::WITHOUT).unwrap_or_default();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let technique = Technique::ALL.into_iter().find(|technique| technique.name() == name);
        let known = || Technique::ALL.map(Technique::name).join(", ");
        let technique = technique.ok_or_else(|| format!("no technique `{name}`; there are {}", known()))?;
        if !technique.switch_off() {
            return Err(format!("this build cannot switch off {name}; add `--features switches`").into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match switch_off_techniques().and_then(|()| run(Arguments::parse().command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bolide-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Child { plan, directory } => child::serve(&plan, &directory),
        Command::Store {
            n,
            threads,
            rows,
            sorted_views,
            view_tags,
            view_delay_percent,
            ranks,
            cold,
            common,
        } => {
            let layout = common.layout;
            let arrangement = Arrangement { layout, views: sorted_views, view_tags, view_delay_percent };
            store(n, &threads, rows, (arrangement, ranks, cold), &common)
        }
        Command::Index { n, beyond: Some(factor), common, .. } => {
            let plan = BeyondPlan { records: n, factor, seed: common.seed };
            workloads::beyond::run(plan, common.directory.as_deref())
        }
        Command::Index { n, updates, cold, beyond: None, common } => index(n, updates, cold, &common),
        Command::Kinds { n, updates, common } => kinds(n, updates, &common),
        Command::Next { n, updates, rows, data, common } => next(n, updates, rows, data, &common),
        Command::Transactions { n, transactions, threads, common } => {
            let mut jobs = Vec::new();
            for threads in threads {
                for engine in common.engines(engines::transaction_names)? {
                    let plan = TransactionsPlan {
                        engine: engine.clone(),
                        accounts: n,
                        transactions,
                        threads,
                        seed: common.seed,
                        row_limit_seconds: common.row_limit,
                    };
                    jobs.push((engine, threads, child::Plan::Transactions(plan)));
                }
            }
            measure_all("transactions", n, &jobs, &common)
        }
        Command::Advisor { n, seed, directory } => workloads::advisor::run(n, seed, directory.as_deref()),
        Command::Opening { n: records, unclosed, runs, kind, directory } => {
            opening::run(&OpeningPlan { records, unclosed, runs, kind, directory })
        }
        Command::OpeningStep { step, path, records, unclosed, kind } => {
            opening::serve(step, &path, records, unclosed, kind.as_deref())
        }
        Command::SortedView { runs, mib, operations, segment, strong, repeats, rows } => {
            if mib == 0 || operations == 0 || runs.contains(&0) {
                return Err("--runs, --mib and --operations must be at least 1".into());
            }
            let (run_mib, segment_entries) = (mib, segment);
            let plan = SortedViewPlan { runs, run_mib, operations, segment_entries, strong, repeats, rows };
            workloads::sorted_view::run(&plan, tempfile::tempdir()?.path())
        }
        Command::Pairs { against, without, pairs, workload } => {
            let this = std::env::current_exe()?;
            let first = Side { program: against.unwrap_or_else(|| this.clone()), without: Vec::new() };
            let second = Side { program: this, without };
            pairs::run(&first, &second, pairs, &workload)
        }
        Command::Figure { names, .. } if names == ["list"] => {
            figures::list();
            Ok(())
        }
        Command::Figure { names, out, .. } if names == ["pages"] => figures::write_pages(&out),
        Command::Figure { names, out, scale } => figures::run(&names, &scale, &out),
    }
}

fn store(
    n: u64,
    threads: &[u64],
    rows: Vec<String>,
    (arrangement, ranks, cold_mib): (Arrangement, Ranks, Option<u64>),
    common: &Common,
) -> Result<()> {
    if n == 0 || threads.contains(&0) {
        return Err("--n and --threads must be at least 1".into());
    }
    if let Some(unknown) = rows.iter().find(|name| Row::named(name).is_none()) {
        let known: Vec<_> = Row::ALL.iter().map(|row| row.name()).collect();
        return Err(format!("no row `{unknown}`; there are {}", known.join(", ")).into());
    }
    let all = || Row::ALL.iter().map(|row| row.name().to_owned()).collect();
    let rows: Vec<String> = if rows.is_empty() { all() } else { rows };
    let mut jobs = Vec::new();
    for threads in threads {
        for engine in common.engines(engines::store_names)? {
            let plan = StorePlan {
                engine: engine.clone(),
                records: n,
                threads: *threads,
                rows: rows.clone(),
                arrangement,
                ranks,
                seed: common.seed,
                row_limit_seconds: common.row_limit,
                cold_mib,
            };
            jobs.push((engine, *threads, child::Plan::Store(plan)));
        }
    }
    measure_all("store", n, &jobs, common)
}

fn index(n: u64, updates: u64, cold_mib: Option<u64>, common: &Common) -> Result<()> {
    if n == 0 || n > u64::from(u32::MAX) || updates > u64::from(u32::MAX / 2) {
        return Err("--n and --updates must be between 1 and two billion".into());
    }
    let mut jobs = Vec::new();
    for engine in common.engines(engines::index_names)? {
        let plan = IndexPlan {
            engine: engine.clone(),
            records: n,
            updates,
            layout: common.layout,
            seed: common.seed,
            cold_mib,
        };
        jobs.push((engine, 1, child::Plan::Index(plan)));
    }
    measure_all("index", n, &jobs, common)
}

fn kinds(n: u64, updates: u64, common: &Common) -> Result<()> {
    if n == 0 || n > u64::from(u32::MAX / 2) || updates > u64::from(u32::MAX / 2) {
        return Err("--n must be between 1 and two billion, --updates at most two billion".into());
    }
    let names = |_peers: bool| SUBJECTS.iter().map(|(name, _)| *name).collect();
    let mut jobs = Vec::new();
    for engine in common.engines(names)? {
        let plan = KindsPlan {
            engine: engine.clone(),
            records: n,
            updates,
            layout: common.layout,
            seed: common.seed,
        };
        jobs.push((engine, 1, child::Plan::Kinds(plan)));
    }
    measure_all("kinds", n, &jobs, common)
}

fn next(n: u64, updates: u64, rows: NextRows, data: Option<PathBuf>, common: &Common) -> Result<()> {
    if n == 0 || n > u64::from(u32::MAX / 2) || updates > u64::from(u32::MAX / 2) {
        return Err("--n must be between 1 and two billion, --updates at most two billion".into());
    }
    let names = |_peers: bool| next::SUBJECTS.iter().map(|(name, _)| *name).collect();
    let (mut numbers, mut windows) = (Vec::new(), Vec::new());
    for engine in common.engines(names)? {
        let plan = NextPlan {
            engine: engine.clone(),
            records: n,
            updates,
            tiered: common.layout == Layout::Tiered,
            seed: common.seed,
            data: data.clone(),
        };
        numbers.push((engine.clone(), 1, child::Plan::Next(plan.clone())));
        windows.push((engine, 1, child::Plan::NextWindows(plan)));
    }
    if rows != NextRows::Windows {
        measure_all("next", n, &numbers, common)?;
    }
    if rows != NextRows::Numbers {
        let json = common.json.as_ref().map(|file| match rows {
            NextRows::All => file.with_extension("windows.json"),
            _ => file.clone(),
        });
        measure_all("next-windows", n, &windows, &Common { json, ..common.clone() })?;
    }
    Ok(())
}

impl Common {
    fn engines(&self, known: fn(bool) -> Vec<&'static str>) -> Result<Vec<String>> {
        if self.peers && !cfg!(feature = "peers") {
            return Err("this build has no peers; add `--features peers`".into());
        }
        if let Some(unknown) = self.engines.iter().find(|name| !known(true).contains(&name.as_str())) {
            return Err(format!("no engine `{unknown}`; there are {}", known(true).join(", ")).into());
        }
        if self.engines.is_empty() {
            return Ok(known(self.peers).into_iter().map(str::to_owned).collect());
        }
        Ok(self.engines.clone())
    }
}

/// Runs every job `runs` times. The engines run in turn within each run, so that a disturbance affects all of them.
fn measure_all(workload: &str, n: u64, jobs: &[Job], common: &Common) -> Result<()> {
    let runs = common.runs.max(1);
    let mut results = vec![Vec::new(); jobs.len()];
    for run in 1..=runs {
        for (job, (engine, threads, plan)) in jobs.iter().enumerate() {
            eprintln!("run {run} of {runs}: {engine}, {threads} thread(s)");
            results[job].push(child::spawn(plan, common.directory.as_deref())?);
            // Saved after each job, so that a later failure does not lose measurements.
            save(&summarise(workload, n, jobs, &results, common), common)?;
        }
    }
    let report = summarise(workload, n, jobs, &results, common);
    report::print_tables(&report);
    report.check_answers()
}

type Job = (String, u64, child::Plan);

fn summarise(
    workload: &str,
    n: u64,
    jobs: &[Job],
    results: &[Vec<Vec<report::RowFigures>>],
    common: &Common,
) -> report::Report {
    let measured = jobs.iter().zip(results).filter(|(_, runs)| !runs.is_empty());
    report::Report {
        workload: workload.to_owned(),
        records: n,
        runs: results.iter().map(Vec::len).max().unwrap_or(0),
        layout: common.layout.name().to_owned(),
        cold_mib: jobs.iter().find_map(|(_, _, plan)| plan.cold_mib()),
        machine: report::machine(),
        engines: measured
            .map(|((engine, threads, _), runs)| report::median_of_runs(engine, *threads, runs))
            .collect(),
    }
}

fn save(report: &report::Report, common: &Common) -> Result<()> {
    if let Some(file) = &common.json {
        std::fs::write(file, serde_json::to_vec_pretty(report)?)?;
    }
    Ok(())
}
