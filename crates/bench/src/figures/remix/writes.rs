//! Figures 16 and 17: the costs of loads in random order and of updates (§5.2).

use super::report;
use super::stores::{
    AccessPattern, FRAGMENTED, LAYOUTS, LEVELED, PARTITIONED, Records, StoreSubject, SubjectStore, TIERED,
    WriteCosts, subjects,
};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::{FigureReport, number};

/// Loads of each store; the one with the minimum CPU time counts.
const PASSES: usize = 2;
/// Records for each of `--records`.
const RECORDS_FACTOR: u64 = 4;
const ENOUGH: u64 = 50_000;

fn records(scale: &Scale) -> Records {
    Records { count: scale.records * RECORDS_FACTOR, value_bytes: 120 }
}

/// Bytes of the block cache, in the proportion of the paper: 4 GB for 256 GB of data.
fn cache_bytes(records: &Records) -> u64 {
    records.bytes() / 64
}

fn settings(report: &mut FigureReport, records: &Records) {
    report.set("records", records.count);
    report.set("values", format!("{} bytes", records.value_bytes));
    report.set("block cache", format!("{} KiB", cache_bytes(records) >> 10));
}

fn summary(all: &[(StoreSubject, WriteCosts)], figure: impl Fn(&WriteCosts) -> f64) -> String {
    listed(all.iter().map(|(subject, costs)| (subject.name, figure(costs))))
}

fn costs_of(all: &[(StoreSubject, WriteCosts)], subject: StoreSubject) -> WriteCosts {
    all.iter().find(|(other, _)| *other == subject).map(|(_, costs)| *costs).unwrap_or_default()
}

pub(super) fn figure_16(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("remix-16", "Figure 16", scale);
    let records = records(scale);
    settings(&mut report, &records);
    let ranks = records.shuffled(scale.seed);
    let subjects = subjects();
    let mut all: Vec<(StoreSubject, WriteCosts)> = Vec::new();
    for round in 0..PASSES {
        for subject in &subjects {
            eprintln!("  {}, round {}", subject.name, round + 1);
            let store = SubjectStore::create(scale, *subject, &records, cache_bytes(&records))?;
            let costs = store.put_all(&records, records.count, ranks.iter().copied(), 1)?;
            match all.iter_mut().find(|(other, _)| other == subject) {
                Some((_, best)) if best.whole > costs.whole => *best = costs,
                Some(_) => {}
                None => all.push((*subject, costs)),
            }
        }
    }
    claims_of_loads(&mut report, &all);
    let names: Vec<&str> = all.iter().map(|(subject, _)| subject.name).collect();
    let column =
        |figure: fn(&WriteCosts) -> f64| -> Vec<f64> { all.iter().map(|(_, costs)| figure(costs)).collect() };
    let times = [("process", column(|one| one.whole)), ("calling thread", column(|one| one.calling))];
    report.panels.push(bars("Put", "CPU µs", false, &names, times));
    let io = [("written", column(|one| one.written)), ("read", column(|one| one.read))];
    report.panels.push(bars("Bytes for each byte put", "bytes", false, &names, io));
    let rate = [("wall time", column(|one| one.rate / 1000.0))];
    report.panels.push(bars("Throughput", "thousand puts a second", false, &names, rate));
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims_of_loads(report: &mut FigureReport, all: &[(StoreSubject, WriteCosts)]) {
    let written = |subject| costs_of(all, subject).written;
    report.claim(
        "§5.2: leveled writes the most bytes of all layouts, at least one and a half times those of \
         partitioned",
        LAYOUTS.iter().all(|one| written(*one) <= written(LEVELED))
            && written(LEVELED) > 1.5 * written(PARTITIONED),
        format!("bytes written for each byte put: {}", summary(all, |one| one.written)),
    );
    report.claim(
        "§5.2: partitioned writes at most as much as fragmented (within a tenth)",
        written(PARTITIONED) < 1.1 * written(FRAGMENTED),
        format!("bytes written for each byte put: {}", summary(all, |one| one.written)),
    );
    report.claim(
        "§5.2: the builds of sorted views read data: tiered with views reads more than without",
        costs_of(all, TIERED).read > costs_of(all, super::stores::TIERED_MERGED).read,
        format!("bytes read for each byte put: {}", summary(all, |one| one.read)),
    );
    report.departs(
        "a put into the partitioned layout, with views, costs up to three times as much as into the leveled \
         layout, background threads included",
        costs_of(all, PARTITIONED).whole < 3.0 * costs_of(all, LEVELED).whole,
        format!("CPU µs: {}", summary(all, |one| one.whole)),
        "in the paper, RemixDB loads the fastest, with a memtable of 4 GB against 64 MB of LevelDB. Here \
         all have the same memtable. A flush of random keys adds to every partition, so each view is \
         rebuilt, and the rebuild reads nearly all blocks since nearly each has a key to merge.",
    );
}

/// The patterns of figure 17.
const PATTERNS: [&str; 3] = ["sequential", "Zipf-composite", "Zipf"];

pub(super) fn figure_17(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("remix-17", "Figure 17", scale);
    let records = records(scale);
    settings(&mut report, &records);
    report.set("updates", records.count);
    let compared = [PARTITIONED, FRAGMENTED, TIERED, LEVELED];
    let ranks = records.shuffled(scale.seed);
    let mut all: Vec<Vec<(StoreSubject, WriteCosts)>> = Vec::new();
    for (at, name) in PATTERNS.into_iter().enumerate() {
        eprintln!("  {name}");
        let mut row = Vec::new();
        for subject in compared {
            let store = SubjectStore::create(scale, subject, &records, cache_bytes(&records))?;
            store.put_all(&records, records.count, ranks.iter().copied(), 1)?;
            let mut random = Random::new(scale.seed + 17);
            let mut pattern = match at {
                0 => AccessPattern::Sequential(0),
                1 => AccessPattern::composite(&records),
                _ => AccessPattern::zipf(&records),
            };
            let updates = std::iter::repeat_with(|| pattern.next(&records, &mut random));
            row.push((subject, store.put_all(&records, records.count, updates, 2)?));
        }
        all.push(row);
    }
    claims_of_updates(&mut report, &all);
    type PanelColumn = (&'static str, &'static str, fn(&WriteCosts) -> f64);
    let panels: [PanelColumn; 4] = [
        ("Put", "CPU µs, whole process", |one| one.whole),
        ("Throughput", "thousand puts a second, wall time", |one| one.rate / 1000.0),
        ("Written", "bytes for each byte put", |one| one.written),
        ("Read", "bytes for each byte put", |one| one.read),
    ];
    for (title, label, figure) in panels {
        let series = compared
            .into_iter()
            .map(|subject| (subject.name, all.iter().map(|row| figure(&costs_of(row, subject))).collect()));
        report.panels.push(bars(title, label, false, &PATTERNS, series));
    }
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims_of_updates(report: &mut FigureReport, all: &[Vec<(StoreSubject, WriteCosts)>]) {
    let figure = |pattern: usize, subject| costs_of(&all[pattern], subject);
    let partitioned_summary = |column: fn(&WriteCosts) -> f64| {
        listed(PATTERNS.into_iter().enumerate().map(|(at, name)| (name, column(&figure(at, PARTITIONED)))))
    };
    report.claim(
        "§5.2: under the partitioned layout, sequential updates write about twice the bytes put, plus the \
         log (1.27 bytes for each byte put)",
        figure(0, PARTITIONED).written < 3.4,
        format!("bytes for each byte put: {}", partitioned_summary(|one| one.written)),
    );
    report.claim(
        "§5.2: sequential updates cost the least CPU time, since each flush changes few partitions: four \
         fifths of the other patterns at most",
        (1..PATTERNS.len())
            .all(|other| figure(0, PARTITIONED).whole < 0.8 * figure(other, PARTITIONED).whole),
        format!("CPU µs: {}", partitioned_summary(|one| one.whole)),
    );
    report.departs(
        "Zipf-composite and Zipf updates write about as much as sequential updates (within a half)",
        (1..PATTERNS.len()).all(|other| {
            let times = figure(other, PARTITIONED).written / figure(0, PARTITIONED).written;
            times < 1.5 && times > 0.67
        }),
        format!("bytes for each byte put: {}", partitioned_summary(|one| one.written)),
        "in the paper, both write much less than sequential updates, and Zipf the least, since the memtable \
         overwrites in place. Here a memtable stores all versions of a key for snapshots until its flush: \
         overwrites fill it like other writes.",
    );
    let each =
        || (0..PATTERNS.len()).map(|at| (figure(at, PARTITIONED).written, figure(at, LEVELED).written));
    report.claim(
        "§5.2: under each pattern the partitioned layout writes less than the leveled one",
        each().all(|(partitioned, leveled)| partitioned < leveled),
        PATTERNS
            .into_iter()
            .zip(each())
            .map(|(name, (partitioned, leveled))| {
                format!("{name}: {} and {}", number(partitioned), number(leveled))
            })
            .collect::<Vec<_>>()
            .join("; "),
    );
}
