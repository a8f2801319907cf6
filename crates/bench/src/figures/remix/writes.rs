//! Figures 16 and 17: what loads in random order and updates cost (§5.2).

use super::report;
use super::stores::{
    FRAGMENTED, LAYOUTS, LEVELED, PARTITIONED, Pattern, Records, Store, Subject, TIERED, Wrote, subjects,
};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::{FigureReport, number};

/// Loads of each store; the one that took the least CPU time counts.
const PASSES: usize = 2;
/// Records for each of `--records`.
const RECORDS_FACTOR: u64 = 4;
const ENOUGH: u64 = 50_000;

fn records(scale: &Scale) -> Records {
    Records { count: scale.records * RECORDS_FACTOR, value_bytes: 120 }
}

/// The block cache beside the data: 4 GB beside 256 GB in the paper.
fn cache_bytes(records: &Records) -> u64 {
    records.bytes() / 64
}

fn settings(report: &mut FigureReport, records: &Records) {
    report.set("records", records.count);
    report.set("values", format!("{} bytes", records.value_bytes));
    report.set("block cache", format!("{} KiB", cache_bytes(records) >> 10));
}

fn summary(all: &[(Subject, Wrote)], what: impl Fn(&Wrote) -> f64) -> String {
    listed(all.iter().map(|(subject, wrote)| (subject.name, what(wrote))))
}

fn of(all: &[(Subject, Wrote)], subject: Subject) -> Wrote {
    all.iter().find(|(other, _)| *other == subject).map(|(_, wrote)| *wrote).unwrap_or_default()
}

pub(super) fn figure_16(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("remix-16", "Figure 16", scale);
    let records = records(scale);
    settings(&mut report, &records);
    let ranks = records.shuffled(scale.seed);
    let subjects = subjects();
    let mut all: Vec<(Subject, Wrote)> = Vec::new();
    for round in 0..PASSES {
        for subject in &subjects {
            eprintln!("  {}, round {}", subject.name, round + 1);
            let store = Store::create(scale, *subject, &records, cache_bytes(&records))?;
            let wrote = store.put_all(&records, records.count, ranks.iter().copied(), 1)?;
            match all.iter_mut().find(|(other, _)| other == subject) {
                Some((_, least)) if least.whole > wrote.whole => *least = wrote,
                Some(_) => {}
                None => all.push((*subject, wrote)),
            }
        }
    }
    claims_of_loads(&mut report, &all);
    let names: Vec<&str> = all.iter().map(|(subject, _)| subject.name).collect();
    let column = |what: fn(&Wrote) -> f64| -> Vec<f64> { all.iter().map(|(_, wrote)| what(wrote)).collect() };
    let times = [("process", column(|one| one.whole)), ("calling thread", column(|one| one.calling))];
    report.panels.push(bars("Put", "CPU µs", false, &names, times));
    let io = [("written", column(|one| one.written)), ("read", column(|one| one.read))];
    report.panels.push(bars("Bytes for each byte put", "bytes", false, &names, io));
    let rate = [("by the clock", column(|one| one.rate / 1000.0))];
    report.panels.push(bars("Throughput", "thousand puts a second", false, &names, rate));
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims_of_loads(report: &mut FigureReport, all: &[(Subject, Wrote)]) {
    let written = |subject| of(all, subject).written;
    report.claim(
        "§5.2: leveled writes the most bytes of all layouts, half as many again as partitioned at least",
        LAYOUTS.iter().all(|one| written(*one) <= written(LEVELED))
            && written(LEVELED) > 1.5 * written(PARTITIONED),
        format!("bytes written for each byte put: {}", summary(all, |one| one.written)),
    );
    report.claim(
        "§5.2: partitioned writes no more than fragmented (within a tenth)",
        written(PARTITIONED) < 1.1 * written(FRAGMENTED),
        format!("bytes written for each byte put: {}", summary(all, |one| one.written)),
    );
    report.claim(
        "§5.2: keeping sorted views reads what was written: tiered with them reads more than without",
        of(all, TIERED).read > of(all, super::stores::TIERED_MERGED).read,
        format!("bytes read for each byte put: {}", summary(all, |one| one.read)),
    );
    report.departs(
        "background threads included, a put into a store with views costs up to three times as much as into one without \
         (partitioned beside leveled)",
        of(all, PARTITIONED).whole < 3.0 * of(all, LEVELED).whole,
        format!("CPU µs: {}", summary(all, |one| one.whole)),
        "there, RemixDB loads the fastest, with 4 GB of memtable beside 64 MB of LevelDB. Here all have the same memtable; a flush \
         in random order adds to every partition, each view is made anew, and with a key to merge for nearly each of its blocks all \
         of them are read.",
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
    let mut all: Vec<Vec<(Subject, Wrote)>> = Vec::new();
    for (at, name) in PATTERNS.into_iter().enumerate() {
        eprintln!("  {name}");
        let mut row = Vec::new();
        for subject in compared {
            let store = Store::create(scale, subject, &records, cache_bytes(&records))?;
            store.put_all(&records, records.count, ranks.iter().copied(), 1)?;
            let mut random = Random::new(scale.seed + 17);
            let mut pattern = match at {
                0 => Pattern::Sequential(0),
                1 => Pattern::composite(&records),
                _ => Pattern::zipf(&records),
            };
            let updates = std::iter::repeat_with(|| pattern.next(&records, &mut random));
            row.push((subject, store.put_all(&records, records.count, updates, 2)?));
        }
        all.push(row);
    }
    claims_of_updates(&mut report, &all);
    type Printed = (&'static str, &'static str, fn(&Wrote) -> f64);
    let panels: [Printed; 4] = [
        ("Put", "CPU µs, whole process", |one| one.whole),
        ("Throughput", "thousand puts a second, by the clock", |one| one.rate / 1000.0),
        ("Written", "bytes for each byte put", |one| one.written),
        ("Read", "bytes for each byte put", |one| one.read),
    ];
    for (title, label, what) in panels {
        let series = compared
            .into_iter()
            .map(|subject| (subject.name, all.iter().map(|row| what(&of(row, subject))).collect()));
        report.panels.push(bars(title, label, false, &PATTERNS, series));
    }
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims_of_updates(report: &mut FigureReport, all: &[Vec<(Subject, Wrote)>]) {
    let figure = |pattern: usize, subject| of(&all[pattern], subject);
    let partitioned_summary = |what: fn(&Wrote) -> f64| {
        listed(PATTERNS.into_iter().enumerate().map(|(at, name)| (name, what(&figure(at, PARTITIONED)))))
    };
    report.claim(
        "§5.2: sequential updates write about twice what was put under the partitioned layout, and the log (1.27 for each byte of such \
         records)",
        figure(0, PARTITIONED).written < 3.4,
        format!("bytes for each byte put: {}", partitioned_summary(|one| one.written)),
    );
    report.claim(
        "§5.2: they are the cheapest, since each flush goes to a few partitions: four fifths of the CPU time at most",
        (1..PATTERNS.len()).all(|other| figure(0, PARTITIONED).whole < 0.8 * figure(other, PARTITIONED).whole),
        format!("CPU µs: {}", partitioned_summary(|one| one.whole)),
    );
    report.departs(
        "Zipf-composite and Zipf write about as much as sequential updates (within a half)",
        (1..PATTERNS.len()).all(|other| {
            let times = figure(other, PARTITIONED).written / figure(0, PARTITIONED).written;
            times < 1.5 && times > 0.67
        }),
        format!("bytes for each byte put: {}", partitioned_summary(|one| one.written)),
        "there, both write much less than sequential updates and Zipf the least, as the memtable overwrites in place. Here \
         a memtable keeps the versions of a key, which snapshots may read, until it is flushed: overwrites \
         fill it like other writes.",
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
