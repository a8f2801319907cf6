//! Figures 14 and 15: seeks after a sequential load, and scans after one in random order (§5.2).

use super::report;
use super::stores::{
    AccessPattern, LAYOUTS, LEVELED, PARTITIONED, Records, StoreSubject, SubjectStore, TIERED, TIERED_MERGED,
    scan, subjects,
};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;

/// Rounds in which the subjects run in turn; the minimum counts.
const PASSES: usize = 15;
/// Operations of a round for each of `--queries`.
const OPERATIONS_FACTOR: u64 = 3;
const ENOUGH: u64 = 50_000;

/// CPU microseconds of an operation: `[subject][pattern]`.
type ScanTimes = Vec<Vec<f64>>;

/// Scans of `length` records in all `stores` by each of `patterns`. The stores run in turn.
fn rounds(
    scale: &Scale,
    stores: &[SubjectStore],
    records: &Records,
    patterns: &[AccessPattern],
    length: usize,
) -> Result<ScanTimes> {
    let operations = (scale.queries * OPERATIONS_FACTOR) as usize;
    let mut connections = stores.iter().map(SubjectStore::connect).collect::<Result<Vec<_>>>()?;
    let mut minimum = vec![vec![f64::MAX; patterns.len()]; stores.len()];
    // Round 0 fills the caches.
    for round in 0..=PASSES {
        for (at, pattern) in patterns.iter().enumerate() {
            for (connection, minimum) in connections.iter_mut().zip(&mut minimum) {
                // Each store reads the same records.
                let mut random = Random::new(scale.seed + (round * 100 + at) as u64);
                let mut pattern = match pattern {
                    AccessPattern::Sequential(_) => AccessPattern::Sequential(random.below(records.count)),
                    other => other.clone(),
                };
                let size = (operations, length);
                let took = scan(&mut **connection, records, &mut pattern, &mut random, size)?;
                if round > 0 {
                    minimum[at] = minimum[at].min(took);
                }
            }
        }
    }
    Ok(minimum)
}

fn time_of(stores: &[StoreSubject], took: &ScanTimes, subject: StoreSubject, pattern: usize) -> f64 {
    let at = stores.iter().position(|other| *other == subject);
    at.and_then(|at| took.get(at)?.get(pattern)).copied().unwrap_or(f64::NAN)
}

fn summary(stores: &[StoreSubject], took: &ScanTimes, pattern: usize) -> String {
    listed(stores.iter().zip(took).map(|(subject, took)| (subject.name, took[pattern])))
}

pub(super) fn figure_14(scale: &Scale) -> Result<FigureReport> {
    const VALUES: [usize; 3] = [40, 120, 400];
    const PATTERNS: [&str; 3] = ["sequential", "Zipf", "uniform"];
    let mut report = report("remix-14", "Figure 14", scale);
    let count = scale.records * 2;
    let cache_bytes = Records { count, value_bytes: VALUES[1] }.bytes() * 3 / 10;
    report.set("records", count);
    report.set("block cache", format!("{} KiB", cache_bytes >> 10));
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    let subjects = subjects();
    let mut all: Vec<ScanTimes> = Vec::new();
    for value_bytes in VALUES {
        eprintln!("  values of {value_bytes} bytes");
        let records = Records { count, value_bytes };
        let mut stores = Vec::new();
        for subject in &subjects {
            let store = SubjectStore::create(scale, *subject, &records, cache_bytes)?;
            store.put_all(&records, count, 0..count, 1)?;
            stores.push(store);
        }
        let patterns = [AccessPattern::Sequential(0), AccessPattern::zipf(&records), AccessPattern::Uniform];
        all.push(rounds(scale, &stores, &records, &patterns, 1)?);
    }
    let cells = || (0..VALUES.len()).flat_map(|value| (0..PATTERNS.len()).map(move |at| (value, at)));
    let cost = |value: usize, subject, at| time_of(&subjects, &all[value], subject, at);
    let summary_of_all = |at: usize| {
        let each = VALUES
            .iter()
            .zip(&all)
            .map(|(value, took)| format!("{value} B: {}", summary(&subjects, took, at)));
        each.collect::<Vec<_>>().join("; ")
    };
    report.claim(
        "§5.2: after a sequential load, seeks in the partitioned layout are as fast as in any other layout \
         of Bolide (within a quarter)",
        cells().all(|(value, at)| {
            LAYOUTS.iter().all(|other| cost(value, PARTITIONED, at) < 1.25 * cost(value, *other, at))
        }),
        format!("uniform, CPU µs: {}", summary_of_all(2)),
    );
    report.claim(
        "§5.2: uniform seeks are slower than sequential ones, under every layout",
        (0..VALUES.len())
            .all(|value| LAYOUTS.iter().all(|one| cost(value, *one, 2) > 1.1 * cost(value, *one, 0))),
        format!("sequential, CPU µs: {}", summary_of_all(0)),
    );
    report.claim(
        "§5.2: a merging cursor searches each sorted run, overlapping or not: with cached blocks \
         (sequential seeks), tiered is slower without its view",
        (0..VALUES.len()).all(|value| cost(value, TIERED_MERGED, 0) > 1.1 * cost(value, TIERED, 0)),
        format!("sequential, CPU µs: {}", summary_of_all(0)),
    );
    let label = "million seeks a second of CPU time";
    for (value, took) in VALUES.iter().zip(&all) {
        let series = subjects.iter().zip(took).map(|(subject, took)| (subject.name, rates(took)));
        report.panels.push(bars(&format!("Values of {value} bytes"), label, false, &PATTERNS, series));
    }
    Ok(super::judged(report, scale, ENOUGH))
}

/// Million operations a second of CPU time.
fn rates(micros: &[f64]) -> Vec<f64> {
    micros.iter().map(|micros| 1.0 / micros).collect()
}

pub(super) fn figure_15(scale: &Scale) -> Result<FigureReport> {
    const LENGTHS: [usize; 3] = [10, 50, 200];
    let counts = [scale.records / 2, scale.records * 2, scale.records * 8];
    let mut report = report("remix-15", "Figure 15", scale);
    let smallest = Records { count: counts[0], value_bytes: 120 };
    let cache_bytes = smallest.bytes() * 5 / 4;
    report.set("block cache", format!("{} KiB", cache_bytes >> 10));
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    let subjects = subjects();
    // [store size][length][subject]
    let mut all: Vec<Vec<Vec<f64>>> = Vec::new();
    for count in counts {
        eprintln!("  {count} records");
        let records = Records { count, ..smallest };
        let mut stores = Vec::new();
        for subject in &subjects {
            let store = SubjectStore::create(scale, *subject, &records, cache_bytes)?;
            store.put_all(&records, count, records.shuffled(scale.seed).into_iter(), 1)?;
            stores.push(store);
        }
        let zipf = AccessPattern::zipf(&records);
        let mut of_lengths = Vec::new();
        for length in LENGTHS {
            let took = rounds(scale, &stores, &records, std::slice::from_ref(&zipf), length)?;
            of_lengths.push(took.into_iter().map(|of_patterns| of_patterns[0]).collect());
        }
        all.push(of_lengths);
    }
    claims_of_scans(&mut report, &subjects, &all);
    let x: Vec<f64> = counts.iter().map(|count| *count as f64 * 136.0 / 1e6).collect();
    for (at, length) in LENGTHS.iter().enumerate() {
        let series = subjects.iter().enumerate().map(|(subject, one)| {
            (one.name, all.iter().map(|of_lengths| 1.0 / of_lengths[at][subject]).collect())
        });
        let labels = ("MB of keys and values", "million scans a second of CPU time");
        report.panels.push(lines(&format!("Scans of {length}"), labels, false, x.clone(), series));
    }
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims_of_scans(report: &mut FigureReport, subjects: &[StoreSubject], all: &[Vec<Vec<f64>>]) {
    let cost = |size: usize, length: usize, subject: StoreSubject| {
        let at = subjects.iter().position(|other| *other == subject);
        at.map_or(f64::NAN, |at| all[size][length][at])
    };
    let summary = |size: usize, length: usize| {
        listed(subjects.iter().zip(&all[size][length]).map(|(subject, took)| (subject.name, *took)))
    };
    let everywhere = || (0..all.len()).flat_map(|size| (0..3).map(move |length| (size, length)));
    report.claim(
        "§5.2: with cached blocks, scans of 10 records with the views of the partitioned layout are faster \
         than merging scans of a tiered store",
        cost(0, 0, PARTITIONED) < cost(0, 0, TIERED_MERGED),
        format!("10 records, CPU µs, smallest: {}", summary(0, 0)),
    );
    report.departs(
        "the leveled layout scans as fast as the partitioned one or faster, by up to three times",
        everywhere().all(|(size, length)| {
            let times = cost(size, length, PARTITIONED) / cost(size, length, LEVELED);
            times > 0.75 && times < 3.0
        }),
        format!("10 records, CPU µs, smallest: {}; largest: {}", summary(0, 0), summary(all.len() - 1, 0)),
        "in the paper, LevelDB has four or five levels. Here such a store has one large level and at most \
         three sorted runs above it; a scan of the partitioned layout reads a block of each of up to ten \
         runs of a partition.",
    );
    let gain = |size, length| cost(size, length, TIERED_MERGED) / cost(size, length, TIERED);
    report.claim(
        "§5.2: scans of 10 and 50 records of a tiered store are faster with a sorted view",
        everywhere().filter(|(_, length)| *length < 2).all(|(size, length)| gain(size, length) > 1.0),
        format!(
            "times as fast, 50 records: {}",
            listed([("smallest", gain(0, 1)), ("middle", gain(1, 1)), ("largest", gain(2, 1))])
        ),
    );
    let last = all.len() - 1;
    report.departs(
        "the view gains about as much for scans of 200 records as for scans of 10 (within a half)",
        (0.66..1.5).contains(&(gain(0, 2) / gain(0, 0))),
        format!("times as fast: {}", listed([("10", gain(0, 0)), ("50", gain(0, 1)), ("200", gain(0, 2))])),
        "in the paper, the difference decreases with the length of the scan. Here a step through a view \
         waits for no single run: the next entries of all runs are prefetched together.",
    );
    report.claim(
        "§5.2: scans are slower if the store exceeds the block cache (by a fifth at least)",
        [PARTITIONED, TIERED, LEVELED].iter().all(|one| cost(last, 0, *one) > 1.2 * cost(0, 0, *one)),
        format!("10 records, CPU µs, smallest: {}; largest: {}", summary(0, 0), summary(last, 0)),
    );
}
