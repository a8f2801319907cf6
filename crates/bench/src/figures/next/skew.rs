//! Figure 11: numbers of a uniform or a Zipf distribution, with and without the split (§6.5).

use super::dataset::{DataSet, DataSource};
use super::query_sets::{AnswerCounter, QueryTarget, times};
use super::{EMBEDDED, NEXT, NEXT_WHOLE, OnDisk, STANDALONE, half, judged, report};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed, mean};
use crate::figures::report::FigureReport;
use crate::next_baselines::{Attribute, Contender, Selection};

const CONTENDERS: [Contender; 4] = [STANDALONE, EMBEDDED, NEXT_WHOLE, NEXT];
/// Exponents of the Zipf distribution; `None` is uniform.
const DISTRIBUTIONS: [(&str, Option<f64>); 4] =
    [("uniform", None), ("zipf 0.5", Some(0.5)), ("zipf 0.8", Some(0.8)), ("zipf 1.0", Some(1.0))];
/// The field of the number.
const FIELD: Attribute = Attribute { path: "drawn" };
/// Distinct numbers for each record, as in the paper: 100 million for 33 million tweets.
const NUMBERS_PER_RECORD: u64 = 3;
/// Numbers of a range, for each 100,000 distinct numbers.
const RANGE_NUMBERS: f64 = 100.0;

/// Draws numbers from 1 to `max` by a Zipf distribution with any exponent; small numbers are the most frequent.
struct NumberDistribution {
    /// The cumulated weight up to each number; empty for the uniform distribution.
    sums: Vec<f64>,
    max: u64,
}

impl NumberDistribution {
    fn new(exponent: Option<f64>, max: u64) -> Self {
        let mut sums = Vec::new();
        if let Some(exponent) = exponent {
            let mut sum = 0.0;
            sums.extend((1..=max).map(|number| {
                sum += (number as f64).powf(-exponent);
                sum
            }));
        }
        Self { sums, max }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        match self.sums.last() {
            Some(total) => {
                let at = random.unit() * total;
                (self.sums.partition_point(|sum| *sum <= at) as u64 + 1).min(self.max)
            }
            None => random.below(self.max) + 1,
        }
    }
}

/// CPU microseconds under one distribution, by contender.
#[derive(Debug, Clone, Default)]
struct DistributionTimes {
    ranges: Vec<f64>,
    points: Vec<f64>,
    puts: Vec<f64>,
    /// Index blocks without a match that a point query reads, with and without the split.
    useless: [f64; 2],
}

fn measure(scale: &Scale, base: &DataSet, exponent: Option<f64>) -> Result<DistributionTimes> {
    let max = NUMBERS_PER_RECORD * base.rows.len() as u64;
    let distribution = NumberDistribution::new(exponent, max);
    let mut random = Random::new(scale.seed ^ 11);
    let data = base.with_number(FIELD.path, || distribution.draw(&mut random));
    let mut measured = DistributionTimes::default();
    let mut tables = Vec::new();
    for contender in CONTENDERS {
        let (disk, put_time) = OnDisk::loaded(scale, &[contender], &[FIELD], &data)?;
        measured.puts.push(put_time.whole);
        tables.push((contender, disk));
    }
    // Centres are uniform, as in the paper; points are numbers of records.
    let width = (max as f64 / 100_000.0 * RANGE_NUMBERS).max(10.0);
    let queries = scale.queries as usize;
    let range = |random: &mut Random| {
        let centre = random.below(max) as f64;
        Selection::Between(centre - width / 2.0, centre + width / 2.0)
    };
    let ranges: Vec<Selection> = (0..queries).map(|_| range(&mut random)).collect();
    let mut numbers: Vec<u64> = data.rows.iter().map(|row| row.value as u64).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut point = || Selection::Equal(numbers[random.below(numbers.len() as u64) as usize] as f64);
    let points: Vec<Selection> = (0..queries).map(|_| point()).collect();
    let targets: Vec<QueryTarget<'_>> =
        tables.iter().map(|(contender, disk)| (&disk.table, *contender, 0)).collect();
    let means = |selections: &[Selection]| -> Result<Vec<f64>> {
        Ok(times(&targets, selections)?.iter().map(|micros| mean(micros)).collect())
    };
    measured.ranges = means(&ranges)?;
    measured.points = means(&points)?;
    for (contender, useless) in [NEXT, NEXT_WHOLE].iter().zip(&mut measured.useless) {
        let Some((_, disk)) = tables.iter().find(|(of, _)| of == contender) else { continue };
        for one in &points {
            let summary =
                disk.table.run_query(*contender, 0, *one, &bolide::FindOptions::default(), |_, _| {})?;
            *useless += summary.costs_of::<bolide::NextCosts>().false_positives as f64 / queries as f64;
        }
    }
    let counter = AnswerCounter::new(&data, false);
    let found: usize = ranges.iter().map(|range| counter.count(*range)).sum();
    eprintln!("  {:.1} answers of a range", found as f64 / queries as f64);
    Ok(measured)
}

pub(super) fn figure_11(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("next-11", "Figure 11", scale, half(scale));
    let base = DataSource::Posts.rows(scale, half(scale))?;
    report.set("data", &base.summary);
    report.set("queries", scale.queries);
    let mut all = Vec::new();
    for (name, exponent) in DISTRIBUTIONS {
        eprintln!("  {name}");
        all.push((name, measure(scale, &base, exponent)?));
    }
    let at = |contender| CONTENDERS.iter().position(|other| *other == contender).unwrap_or_default();
    let summary = |what: fn(&DistributionTimes) -> &Vec<f64>| {
        let each = all.iter().map(|(name, measured)| {
            let of = CONTENDERS.iter().zip(what(measured)).map(|(one, micros)| (one.name, *micros));
            format!("{name}: {}", listed(of))
        });
        each.collect::<Vec<_>>().join("; ")
    };
    let next = [NEXT, NEXT_WHOLE];
    report.claim(
        "§6.5: range queries take less with NEXT than with index blocks without a global index, with and \
         without the split",
        all.iter().all(|(_, one)| next.iter().all(|next| one.ranges[at(*next)] < one.ranges[at(EMBEDDED)])),
        summary(|one| &one.ranges),
    );
    report.departs(
        "range queries take at most three times as long with NEXT as with a composite index",
        all.iter().all(|(_, one)| one.ranges[at(NEXT)] < 3.0 * one.ranges[at(STANDALONE)]),
        summary(|one| &one.ranges),
        "in the paper, they take less. Here the numbers are not correlated with the primary key, so each \
         range has entries in index blocks of every sstable, and the records of composite keys are fetched \
         in order.",
    );
    report.claim(
        "§6.5: with the split, point queries take less with NEXT than with index blocks without a global index",
        all.iter().all(|(_, one)| one.points[at(NEXT)] < one.points[at(EMBEDDED)]),
        summary(|one| &one.points),
    );
    let useless = all.iter().map(|(name, one)| {
        format!("{name}: {}", listed([("split", one.useless[0]), ("whole", one.useless[1])]))
    });
    report.claim(
        "§6.5: with the split, a point query reads at most as many index blocks without a match (within a \
         quarter, since the sstables have different boundaries)",
        all.iter().all(|(_, one)| one.useless[0] <= 1.25 * one.useless[1] + 1.0),
        useless.collect::<Vec<_>>().join("; "),
    );
    report.claim(
        "§6.5: the cost of a put is the same with and without the split, for every distribution (within a \
         half)",
        all.iter().all(|(_, one)| {
            let (split, whole) = (one.puts[at(NEXT)], one.puts[at(NEXT_WHOLE)]);
            split < 1.5 * whole && whole < 1.5 * split
        }),
        summary(|one| &one.puts),
    );
    let groups = DISTRIBUTIONS.map(|(name, _)| name);
    let series = |what: fn(&DistributionTimes) -> &Vec<f64>| {
        let of = |contender| all.iter().map(|(_, one)| what(one)[at(contender)]).collect();
        CONTENDERS.map(|contender| (contender.name, of(contender)))
    };
    let query = "CPU µs a query, calling thread";
    report.panels = vec![
        bars("Ranges", query, true, &groups, series(|one| &one.ranges)),
        bars("Points", query, true, &groups, series(|one| &one.points)),
        bars("PUT", "CPU µs, whole process", false, &groups, series(|one| &one.puts)),
    ];
    Ok(judged(report, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_distribution() {
        let mut random = Random::new(3);
        for (name, exponent) in DISTRIBUTIONS {
            let distribution = NumberDistribution::new(exponent, 1_000);
            let mut counts = vec![0u32; 1_001];
            for _ in 0..200_000 {
                counts[distribution.draw(&mut random) as usize] += 1;
            }
            assert_eq!(counts[0], 0);
            let exponent = exponent.unwrap_or(0.0);
            let total: f64 = (1..=1_000).map(|number| f64::from(number).powf(-exponent)).sum();
            for number in [1usize, 2, 10, 300] {
                let expected = 2e5 / total * (number as f64).powf(-exponent);
                let off = f64::from(counts[number]) - expected;
                assert!(off.abs() < 5.0 * expected.sqrt(), "{name}, {number}: {off} off {expected}");
            }
        }
    }
}
