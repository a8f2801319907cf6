//! The figures and tables of LevelDB++ (Qader, Cheng and Hristidis, SIGMOD 2018), repeated.

mod basics;
mod bloom;
mod costs;
mod dataset;
mod growth;
mod indexed_database;
mod mixed;
mod queries;
mod threads;

use std::sync::Arc;

use dataset::{SeedSet, Tweet, Tweets};
use indexed_database::{DatabaseLocation, IndexVariant, IndexedDatabase};

use super::report::{Content, FigureReport, Panel, Series};
use super::{Figure, Scale};
use crate::error::Result;
use crate::measure::process_cpu_nanos;

/// The attribute that is not correlated with time.
const USER: &str = "user";
/// The attribute that is.
const TIME: &str = "time";

/// All figures of this paper.
pub const FIGURES: &[Figure] = &[
    Figure { name: "leveldbpp-8", title: "Basic operations: size, PUT, GET", run: basics::figure_8 },
    Figure { name: "leveldbpp-9", title: "PUT in a growing database", run: growth::figure_9 },
    Figure { name: "leveldbpp-10", title: "LOOKUP and RANGELOOKUP by user", run: queries::figure_10 },
    Figure {
        name: "leveldbpp-11",
        title: "LOOKUP and RANGELOOKUP by creation time",
        run: queries::figure_11,
    },
    Figure { name: "leveldbpp-12", title: "Mixed workloads, mean time", run: mixed::figure_12 },
    Figure { name: "leveldbpp-13", title: "Write heavy workload, I/O", run: mixed::figure_13 },
    Figure { name: "leveldbpp-14", title: "Read heavy workload, I/O", run: mixed::figure_14 },
    Figure { name: "leveldbpp-15", title: "Update heavy workload, I/O", run: mixed::figure_15 },
    Figure { name: "leveldbpp-18", title: "Queries with and without compression", run: queries::figure_18 },
    Figure { name: "leveldbpp-19", title: "PUT with and without compression", run: growth::figure_19 },
    Figure { name: "leveldbpp-20", title: "Queries from several threads", run: threads::figure_20 },
    Figure { name: "leveldbpp-table3", title: "I/O of the embedded index", run: costs::table_3 },
    Figure { name: "leveldbpp-table5", title: "I/O of stand-alone indexes", run: costs::table_5 },
    Figure { name: "leveldbpp-table8", title: "Length of the embedded Bloom filters", run: bloom::table_8 },
];

const PAPER: &str = "LevelDB++ (SIGMOD 2018)";

/// A report with the settings that all figures share.
fn report(name: &str, what: &str, scale: &Scale, seed_set: &SeedSet) -> FigureReport {
    let title = FIGURES.iter().find(|figure| figure.name == name).map_or("", |figure| figure.title);
    let mut report = FigureReport::new(name, title, &format!("{PAPER}, {what}"));
    let (posts, users) = seed_set.size();
    report.set("records", scale.records);
    report.set("seed set", format!("{posts} posts, {users} users"));
    report.set("seed", scale.seed);
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    report.set("memtables", kib(indexed_database::MEMTABLE_BYTES));
    report.set("sstables", kib(indexed_database::FILE_BYTES as usize));
    report.set("block cache", kib(indexed_database::CACHE_BYTES));
    report
}

/// The location of the databases of a figure.
fn location(scale: &Scale) -> DatabaseLocation {
    DatabaseLocation { directory: scale.directory.clone() }
}

fn seed_set(scale: &Scale) -> Result<Arc<SeedSet>> {
    Ok(Arc::new(SeedSet::open(scale.seed_set.as_deref())?))
}

/// All records of a static workload, in memory.
fn tweets(scale: &Scale, seed_set: &Arc<SeedSet>) -> (Tweets, Vec<Tweet>) {
    let mut tweets = Tweets::new(seed_set.clone(), scale.seed);
    let rows = (0..scale.records).map(|_| tweets.generate()).collect();
    (tweets, rows)
}

/// Loads `rows` and waits for the background work. Returns CPU microseconds of a record, background threads included.
fn load(subject: &IndexedDatabase, rows: &[Tweet]) -> Result<f64> {
    let before = process_cpu_nanos();
    for row in rows {
        subject.put(row)?;
    }
    subject.settle();
    Ok((process_cpu_nanos() - before) as f64 / 1000.0 / rows.len().max(1) as f64)
}

/// A panel with one bar for each kind and group.
fn bars(
    title: &str,
    y_label: &str,
    log: bool,
    groups: &[&str],
    series: Vec<(IndexVariant, Vec<f64>)>,
) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        log,
        content: Content::Bars {
            groups: groups.iter().map(ToString::to_string).collect(),
            series: named(series),
        },
    }
}

fn named<T>(series: Vec<(IndexVariant, Vec<T>)>) -> Vec<Series<T>> {
    series.into_iter().map(|(kind, values)| Series { name: kind.name.to_owned(), values }).collect()
}

/// The figures of `kind` in `all`.
fn of<T: Clone>(all: &[(IndexVariant, Vec<T>)], kind: IndexVariant) -> Vec<T> {
    all.iter().find(|(other, _)| *other == kind).map(|(_, values)| values.clone()).unwrap_or_default()
}

/// Named figures, such as `name 1.2, name 3.4`, for the text of a claim.
fn listed(values: &[(&str, f64)]) -> String {
    let parts: Vec<String> =
        values.iter().map(|(name, value)| format!("{name} {}", super::report::number(*value))).collect();
    parts.join(", ")
}

/// The larger of two figures divided by the smaller.
fn ratio(left: f64, right: f64) -> f64 {
    (left / right).max(right / left)
}
