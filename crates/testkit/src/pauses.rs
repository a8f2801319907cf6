//! Write latency during index builds.
//!
//! A writer puts records at a constant rate on a real disk, first without a build and then during the build of an index over
//! the existing records. Index builds should not pause writers. The remaining pauses are the registration and the publication
//! of the index, the commits of the build, and the sync of the log after each section.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bolide::{BuildOptions, Collection, CollectionOptions, Db, Options, SyncMode};
use bolide_storage::SimRng;
use serde_json::json;

use crate::seeds::Outcome;

/// The kinds that are built during the writes: one for each way to build an index.
pub const KINDS: [&str; 10] = [
    "composite",
    "composite:maintenance=synchronous",
    "composite:validation=key-index",
    "composite:order=primary-key",
    "lazy",
    "lazy:maintenance=synchronous",
    "eager",
    "eager:maintenance=synchronous",
    "embedded",
    "next",
];

/// Options of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct PauseOptions {
    /// Number of records before the measurement.
    pub records: u64,
    /// Puts per second.
    pub rate: u64,
    /// Seconds of the measurement without a build.
    pub seconds: u64,
}

impl Default for PauseOptions {
    fn default() -> Self {
        Self { records: 300_000, rate: 2_000, seconds: 5 }
    }
}

/// Latencies of puts in microseconds.
#[derive(Debug, Default)]
struct Latencies {
    /// The latency of each call.
    calls: Vec<u64>,
    /// The maximum time from the due time of a put to its end.
    max_delay: u64,
}

impl Latencies {
    fn table_row(mut self) -> String {
        self.calls.sort_unstable();
        let at = |share: f64| {
            let position = (self.calls.len() as f64 * share) as usize;
            self.calls.get(position.min(self.calls.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        let (count, max_delay) = (self.calls.len(), self.max_delay);
        format!("{count} | {} | {} | {} | {max_delay}", at(0.5), at(0.999), at(1.0))
    }
}

/// Measures a writer without a build and during a build of each kind, with databases in new directories in `directory`.
/// Prints a table.
///
/// # Errors
/// Fails with the error of the database.
pub fn measure(directory: &Path, options: PauseOptions) -> Outcome {
    let error_text = |error: bolide::Error| format!("{error:?}");
    println!("| index | build s | puts | p50 µs | p99.9 µs | longest µs | max delay µs |");
    println!("|---|---|---|---|---|---|---|");
    for (number, kind) in KINDS.into_iter().enumerate() {
        let database = directory.join(format!("pauses{number}"));
        measure_kind(&database, kind, options).map_err(error_text)?;
        let _ = std::fs::remove_dir_all(database);
    }
    Ok(())
}

fn measure_kind(directory: &Path, kind: &str, options: PauseOptions) -> bolide::Result<()> {
    let db = Db::open(directory, Options::default().sync(SyncMode::None))?;
    let posts = db.create_collection("posts", CollectionOptions::default())?;
    let mut writer = Writer { rng: SimRng::new(1), posts: posts.clone(), records: options.records };
    for number in 0..options.records {
        writer.put(number)?;
    }
    db.flush()?;
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let without = writer.pace(options.rate, || Instant::now() < end)?;
    let started = Instant::now();
    let mut build = None;
    // The build starts in its own thread, so that the measurement includes the registration of the index.
    let (with, built) = thread::scope(|scope| {
        let builder = scope.spawn(|| {
            let build =
                posts.create_index_background(format!("user:{kind}").parse()?, &BuildOptions::default())?;
            build.wait()?;
            Ok::<Duration, bolide::Error>(started.elapsed())
        });
        let with = writer.pace(options.rate, || !builder.is_finished());
        (with, builder.join())
    });
    if let Ok(built) = built {
        build = Some(built?);
    }
    let seconds = build.unwrap_or_default().as_secs_f64();
    println!("| none | | {} |", without.table_row());
    println!("| `{kind}` | {seconds:.1} | {} |", with?.table_row());
    Ok(())
}

/// A writer of new records and new versions of existing records.
struct Writer {
    rng: SimRng,
    posts: Collection,
    records: u64,
}

impl Writer {
    fn put(&mut self, number: u64) -> bolide::Result<()> {
        // A few users have many records, many have few.
        let user = (0..2).fold(20_000, |users, _| 1 + self.rng.below(users));
        let text = format!("{:0>180}", self.rng.next_u64());
        let record = json!({"user": format!("user{user}"), "score": self.rng.below(1_000), "text": text});
        self.posts.put(format!("{number:012}").as_bytes(), record.to_string().as_bytes()).map(drop)
    }

    /// Puts `rate` records per second while `continues` returns true.
    fn pace(&mut self, rate: u64, continues: impl Fn() -> bool) -> bolide::Result<Latencies> {
        let mut latencies = Latencies::default();
        let started = Instant::now();
        for turn in 0.. {
            if !continues() {
                break;
            }
            let due = started + Duration::from_micros(turn * 1_000_000 / rate.max(1));
            while let Some(early) = due.checked_duration_since(Instant::now()) {
                // A sleep takes longer than requested, so the last part of the wait spins.
                if early > Duration::from_micros(200) {
                    thread::sleep(early - Duration::from_micros(150));
                } else {
                    std::hint::spin_loop();
                }
            }
            // Every other put replaces a record.
            let number = if turn % 2 == 0 { self.rng.below(self.records) } else { self.records + turn };
            let begun = Instant::now();
            self.put(number)?;
            latencies.calls.push(begun.elapsed().as_micros() as u64);
            latencies.max_delay = latencies.max_delay.max(due.elapsed().as_micros() as u64);
        }
        Ok(latencies)
    }
}
