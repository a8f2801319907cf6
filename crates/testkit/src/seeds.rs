//! Runs of a check over many seeds, on several threads, with counts and repeatable failures.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A result whose error is the text of a failure.
pub type Outcome<T = ()> = Result<T, String>;

/// Event counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// Adds one to the count of `what`.
    pub fn add(&mut self, what: &'static str) {
        self.add_many(what, 1);
    }

    /// Adds `count` to the count of `what`.
    pub fn add_many(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// The count of `what`.
    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            self.add_many(what, *count);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (what, count)) in self.0.iter().enumerate() {
            write!(f, "{}{count} {what}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A run of a check over a range of seeds.
#[derive(Debug, Clone)]
pub struct SeedRun {
    /// The subcommand of `bolide-testkit` that repeats one seed, with its options.
    pub command: String,
    /// The seeds.
    pub seeds: Range<u64>,
    /// Number of threads that share the seeds.
    pub threads: usize,
    /// Whether to print progress on standard error.
    pub progress: bool,
}

impl SeedRun {
    /// A run for a test: two threads, no progress output.
    pub fn of_test(command: &str, seeds: Range<u64>) -> Self {
        Self { command: command.to_owned(), seeds, threads: 2, progress: false }
    }

    /// Runs `check` on each seed until the first failure. A panic is a failure.
    ///
    /// # Errors
    /// The error has the seed, the failure, and the command that repeats it.
    pub fn run(&self, check: impl Fn(u64) -> Outcome<Counts> + Sync) -> Outcome<Counts> {
        let next = AtomicU64::new(self.seeds.start);
        let stop = AtomicBool::new(false);
        let total = Mutex::new(Ok(Counts::default()));
        let started = Instant::now();
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end {
                    return;
                }
                let result = catch_unwind(AssertUnwindSafe(|| check(seed)))
                    .unwrap_or_else(|panic| Err(panic_text(&*panic)));
                let mut total = total.lock().unwrap_or_else(|poison| poison.into_inner());
                match (result, &mut *total) {
                    (Ok(counts), Ok(sum)) => {
                        sum.merge(&counts);
                        self.report(seed, sum, started);
                    }
                    (Err(failure), Ok(_)) => {
                        stop.store(true, Ordering::Relaxed);
                        *total = Err(self.describe(seed, &failure));
                    }
                    (_, Err(_)) => {}
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        total.into_inner().unwrap_or_else(|poison| poison.into_inner())
    }

    fn describe(&self, seed: u64, failure: &str) -> String {
        let command = &self.command;
        let next = seed + 1;
        format!(
            "seed {seed}: {failure}\nrepeat: cargo run --release -p bolide-testkit -- {command} --seeds {seed}..{next}"
        )
    }

    fn report(&self, seed: u64, counts: &Counts, started: Instant) {
        let every = ((self.seeds.end - self.seeds.start) / 50).max(1);
        if self.progress && (seed - self.seeds.start).is_multiple_of(every) {
            eprintln!("[{:>6.1} s] seed {seed}: {counts}", started.elapsed().as_secs_f64());
        }
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}

/// Parses `A..B` or a single seed.
pub fn parse_seeds(text: &str) -> Option<Range<u64>> {
    match text.split_once("..") {
        Some((start, end)) => Some(start.parse().ok()?..end.parse().ok()?),
        None => text.parse().ok().map(|seed: u64| seed..seed + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_seed_and_the_command() {
        let run = SeedRun::of_test("crashes --steps 5", 0..100);
        let error = run
            .run(|seed| if seed == 42 { Err("lost write".to_owned()) } else { Ok(Counts::default()) })
            .unwrap_err();
        assert!(error.contains("seed 42: lost write"), "{error}");
        assert!(error.contains("-- crashes --steps 5 --seeds 42..43"), "{error}");
    }

    #[test]
    fn counts_add_up_over_threads() {
        let counts = SeedRun::of_test("x", 5..105).run(|seed| {
            let mut counts = Counts::default();
            counts.add_many("sum", seed);
            Ok(counts)
        });
        assert_eq!(counts.unwrap().get("sum"), (5..105).sum::<u64>());
    }

    #[test]
    fn seed_ranges_are_parsed() {
        assert_eq!(parse_seeds("3..9"), Some(3..9));
        assert_eq!(parse_seeds("7"), Some(7..8));
        assert_eq!(parse_seeds("7..x"), None);
    }
}
