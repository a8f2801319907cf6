//! Figures 14 and 15: seeks after a sequential load, and scans after one in random order (§5.2).

use super::report;
use super::stores::{
    LAYOUTS, LEVELED, PARTITIONED, Pattern, Records, Store, Subject, TIERED, TIERED_MERGED, scan, subjects,
};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;

/// Rounds in which the compared ones take turns; the least of them counts.
const PASSES: usize = 15;
/// Operations of a round for each of `--queries`.
const OPERATIONS_FACTOR: u64 = 3;
const ENOUGH: u64 = 50_000;

/// CPU microseconds of an operation: `[subject][pattern]`.
type Took = Vec<Vec<f64>>;

/// Scans all `stores` of `length` by each of `patterns`; they take turns.
fn rounds(
    scale: &Scale,
    stores: &[Store],
    records: &Records,
    patterns: &[Pattern],
    length: usize,
) -> Result<Took> {
    let operations = (scale.queries * OPERATIONS_FACTOR) as usize;
    let mut connections = stores.iter().map(Store::connect).collect::<Result<Vec<_>>>()?;
    let mut least = vec![vec![f64::MAX; patterns.len()]; stores.len()];
    // Round 0 fills the caches.
    for round in 0..=PASSES {
        for (at, pattern) in patterns.iter().enumerate() {
            for (connection, least) in connections.iter_mut().zip(&mut least) {
                // The same records for all.
                let mut random = Random::new(scale.seed + (round * 100 + at) as u64);
                let mut pattern = match pattern {
                    Pattern::Sequential(_) => Pattern::Sequential(random.below(records.count)),
                    other => other.clone(),
                };
                let queried = (operations, length);
                let took = scan(&mut **connection, records, &mut pattern, &mut random, queried)?;
                if round > 0 {
                    least[at] = least[at].min(took);
                }
            }
        }
    }
    Ok(least)
}

fn of(stores: &[Subject], took: &Took, subject: Subject, pattern: usize) -> f64 {
    let at = stores.iter().position(|other| *other == subject);
    at.and_then(|at| took.get(at)?.get(pattern)).copied().unwrap_or(f64::NAN)
}

fn summary(stores: &[Subject], took: &Took, pattern: usize) -> String {
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
    let mut all: Vec<Took> = Vec::new();
    for value_bytes in VALUES {
        eprintln!("  values of {value_bytes} bytes");
        let records = Records { count, value_bytes };
        let mut stores = Vec::new();
        for subject in &subjects {
            let store = Store::create(scale, *subject, &records, cache_bytes)?;
            store.put_all(&records, count, 0..count, 1)?;
            stores.push(store);
        }
        let patterns = [Pattern::Sequential(0), Pattern::zipf(&records), Pattern::Uniform];
        all.push(rounds(scale, &stores, &records, &patterns, 1)?);
    }
    let cells = || (0..VALUES.len()).flat_map(|value| (0..PATTERNS.len()).map(move |at| (value, at)));
    let cost = |value: usize, subject, at| of(&subjects, &all[value], subject, at);
    let summary_of_all = |at: usize| {
        let each = VALUES
            .iter()
            .zip(&all)
            .map(|(value, took)| format!("{value} B: {}", summary(&subjects, took, at)));
        each.collect::<Vec<_>>().join("; ")
    };
    report.claim(
        "§5.2: after a sequential load the partitioned layout seeks no more slowly than any other of ours (within a quarter)",
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
        "§5.2: a merging cursor pays for each sorted run, overlapping or not: where the blocks are in the cache (sequential seeks), \
         tiered is slower without its view",
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
            let store = Store::create(scale, *subject, &records, cache_bytes)?;
            store.put_all(&records, count, records.shuffled(scale.seed).into_iter(), 1)?;
            stores.push(store);
        }
        let zipf = Pattern::zipf(&records);
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

fn claims_of_scans(report: &mut FigureReport, subjects: &[Subject], all: &[Vec<Vec<f64>>]) {
    let cost = |size: usize, length: usize, subject: Subject| {
        let at = subjects.iter().position(|other| *other == subject);
        at.map_or(f64::NAN, |at| all[size][length][at])
    };
    let summary = |size: usize, length: usize| {
        listed(subjects.iter().zip(&all[size][length]).map(|(subject, took)| (subject.name, *took)))
    };
    let everywhere = || (0..all.len()).flat_map(|size| (0..3).map(move |length| (size, length)));
    report.claim(
        "§5.2: where the blocks are in the cache, the partitioned layout scans faster through its views than a tiered store is merged (10 \
         records)",
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
        "there, LevelDB has four or five levels. Here one large level and at most three sorted runs above it hold such stores, and a \
         scan goes through the blocks of those, where it goes through one of each of up to ten runs of a partition.",
    );
    let gain = |size, length| cost(size, length, TIERED_MERGED) / cost(size, length, TIERED);
    report.claim(
        "§5.2: a sorted view makes scans of a tiered store faster (10 and 50 records)",
        everywhere().filter(|(_, length)| *length < 2).all(|(size, length)| gain(size, length) > 1.0),
        format!(
            "times as fast, 50 records: {}",
            listed([("smallest", gain(0, 1)), ("middle", gain(1, 1)), ("largest", gain(2, 1))])
        ),
    );
    let last = all.len() - 1;
    report.departs(
        "with scans of 200 records the view gains about as much as with those of 10 (within a half)",
        (0.66..1.5).contains(&(gain(0, 2) / gain(0, 0))),
        format!("times as fast: {}", listed([("10", gain(0, 0)), ("50", gain(0, 1)), ("200", gain(0, 2))])),
        "there, the longer the scan, the less the stores differ. Here a step through a view waits for no run: those that come up \
         are prefetched together.",
    );
    report.claim(
        "§5.2: scans get slower where the store outgrows the block cache (by a fifth at least)",
        [PARTITIONED, TIERED, LEVELED].iter().all(|one| cost(last, 0, *one) > 1.2 * cost(0, 0, *one)),
        format!("10 records, CPU µs, smallest: {}; largest: {}", summary(0, 0), summary(last, 0)),
    );
}
