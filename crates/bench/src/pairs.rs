//! Two ways to run one workload, in turn: another program, or this one without a technique.
//!
//! A pair runs both, the second pair in the opposite order, and so on. Each row of the workload gives one ratio a pair, of the
//! CPU times of an operation: second over first. The report has the median of the ratios and an interval that contains the true
//! median with a probability of at least 95 %, whatever the distribution is (order statistics of the binomial distribution).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::report::Report;

/// The variable that names the techniques to switch off, separated by commas.
pub const WITHOUT: &str = "BOLIDE_BENCH_WITHOUT";

/// The fewest pairs for which an interval of 95 % exists.
const MIN_PAIRS: usize = 6;

/// One of the two ways.
#[derive(Debug, Clone)]
pub struct Side {
    /// The program: a build of this benchmark.
    pub program: PathBuf,
    /// Techniques that it switches off.
    pub without: Vec<String>,
}

/// The CPU microseconds of an operation, by row: of the calling threads, and of the process where it is known.
type Times = BTreeMap<String, (f64, Option<f64>)>;

/// The ratios of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Interval {
    low: f64,
    median: f64,
    high: f64,
}

/// Runs `workload`, the arguments of a subcommand, `pairs` times on each side, and prints the ratios.
pub fn run(first: &Side, second: &Side, pairs: usize, workload: &[String]) -> Result<()> {
    if pairs < MIN_PAIRS {
        return Err(format!("--pairs must be at least {MIN_PAIRS}").into());
    }
    if let Some(option) =
        workload.iter().find(|one| ["--runs", "--json", "--repeats"].contains(&one.as_str()))
        && workload.first().is_some_and(|name| name != "sorted-view")
    {
        return Err(format!("{option} is set by `pairs`: leave it out").into());
    }
    let mut all: Vec<[Times; 2]> = Vec::new();
    for pair in 0..pairs {
        eprintln!("pair {} of {pairs}", pair + 1);
        let (one, other) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        let (one, other) = (one.times(workload)?, other.times(workload)?);
        all.push(if pair % 2 == 0 { [one, other] } else { [other, one] });
    }
    println!("{:<44} {:>9} {:>9}  second over first, of {pairs} pairs", "row", "first", "second");
    let Some([rows, _]) = all.first() else { return Ok(()) };
    for row in rows.keys() {
        let threads = |times: &(f64, Option<f64>)| Some(times.0);
        print(row, "thread", &pairs_of(&all, row, threads));
        print(row, "process", &pairs_of(&all, row, |times| times.1));
    }
    Ok(())
}

/// The times of a row in each pair whose two sides have it.
fn pairs_of(
    all: &[[Times; 2]],
    row: &str,
    of: impl Fn(&(f64, Option<f64>)) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let pair = |[first, second]: &[Times; 2]| Some((of(first.get(row)?)?, of(second.get(row)?)?));
    all.iter().filter_map(pair).collect()
}

fn print(row: &str, what: &str, pairs: &[(f64, f64)]) {
    let side = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).collect::<Vec<f64>>();
    let ratio = interval(&side(|(first, second)| second / first));
    if let (Some(ratio), Some(first), Some(second)) = (ratio, median(&side(|p| p.0)), median(&side(|p| p.1)))
    {
        let Interval { low, median, high } = ratio;
        let row = format!("{row}, {what}");
        println!("{row:<44} {first:>9.3} {second:>9.3}  {median:.3} ({low:.3} to {high:.3})");
    }
}

impl Side {
    /// Runs the workload once.
    fn times(&self, workload: &[String]) -> Result<Times> {
        let directory = tempfile::tempdir()?;
        let json = directory.path().join("report.json");
        let mut command = Command::new(&self.program);
        command.args(workload).env(WITHOUT, self.without.join(","));
        let prints_rows = workload.first().is_some_and(|name| name == "sorted-view");
        if !prints_rows {
            command.args(["--runs", "1", "--json"]).arg(&json);
        }
        let output = command.stderr(Stdio::null()).output()?;
        if !output.status.success() {
            let (program, arguments) = (self.program.display(), workload.join(" "));
            return Err(format!("`{program} {arguments}` failed: run it alone to see why").into());
        }
        if prints_rows {
            return Ok(rates_of(&String::from_utf8_lossy(&output.stdout)));
        }
        times_of(&json)
    }
}

fn times_of(json: &Path) -> Result<Times> {
    let report: Report = serde_json::from_slice(&std::fs::read(json)?)?;
    let rows = report.engines.iter().flat_map(|engine| {
        engine.rows.iter().map(move |row| {
            let name = format!("{} {} ({})", engine.engine, row.row, row.threads);
            (name, (row.thread_micros, Some(row.process_micros)))
        })
    });
    Ok(rows.collect())
}

/// The times of the rows that `sorted-view` prints: the number of runs, a name, and million operations a CPU second.
fn rates_of(printed: &str) -> Times {
    let row = |line: &str| {
        let (runs, rest) = line.trim().split_once(' ')?;
        let (name, rate) = rest.trim().rsplit_once(' ')?;
        runs.parse::<u32>().ok()?;
        let rate: f64 = rate.parse().ok().filter(|rate| *rate > 0.0)?;
        Some((format!("{} runs {}", runs, name.trim()), (1.0 / rate, None)))
    };
    printed.lines().filter_map(row).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// The median of `values` and its interval; `None` for too few.
fn interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outside = values_outside(sorted.len())?;
    let (low, high) = (*sorted.get(outside)?, *sorted.get(sorted.len() - 1 - outside)?);
    Some(Interval { low, median: median(values)?, high })
}

/// How many of `count` sorted values to leave out at each end, so that the rest contains the median with at least 95 %.
fn values_outside(count: usize) -> Option<usize> {
    if count < MIN_PAIRS {
        return None;
    }
    // The probability that at most `outside` values are below the median, and the term of the sum.
    let (mut below, mut term) = (0.0, 0.5_f64.powi(count as i32));
    let mut outside = 0_usize;
    loop {
        below += term;
        if 2.0 * below > 0.05 {
            return outside.checked_sub(1);
        }
        term *= (count - outside) as f64 / (outside + 1) as f64;
        outside += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        // From tables of the sign test: the number of values outside for a confidence of 95 %.
        for (count, outside) in [(6, 0), (9, 1), (12, 2), (15, 3), (20, 5), (25, 7)] {
            assert_eq!(values_outside(count), Some(outside), "{count}");
        }
        assert_eq!(values_outside(5), None);
        let ratios: Vec<f64> = (0..15).rev().map(|number| 1.0 + f64::from(number) / 100.0).collect();
        assert_eq!(interval(&ratios), Some(Interval { low: 1.03, median: 1.07, high: 1.11 }));
    }

    #[test]
    fn rows_of_sorted_views_are_parsed() {
        let printed = "runs  row                M/s CPU\n   8  build       3.10 M keys/s, 2.00 bytes a key\n   8  seek view             0.500\n";
        let times = rates_of(printed);
        assert_eq!(times.get("8 runs seek view"), Some(&(2.0, None)));
        assert_eq!(times.len(), 1);
    }
}
