//! The plain-store workload: one engine, all rows, each measured.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::rows::{Popularity, Ranks, Row};
use super::worker::{RowContext, Worker};
use crate::engine::{Access, Arrangement, Engine, StoreSettings};
use crate::engines;
use crate::error::Result;
use crate::measure::{self, ColdRun};
use crate::report::RowFigures;

/// The workload of one child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StorePlan {
    /// Engine name.
    pub engine: String,
    /// Records to load.
    pub records: u64,
    /// Threads of every row.
    pub threads: u64,
    /// Names of the rows to run, besides the load.
    pub rows: Vec<String>,
    /// Bolide's arrangement.
    pub arrangement: Arrangement,
    /// The ranks of the YCSB rows.
    pub ranks: Ranks,
    /// Seed of all random choices.
    pub seed: u64,
    /// The time limit of a row in seconds; a row ends early at it.
    pub row_limit_seconds: u64,
    /// The limit of the memory of the process after the load, in MiB, page cache included. The store is then opened again with
    /// caches of a quarter of that.
    pub cold_mib: Option<u64>,
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &StorePlan, path: &Path) -> Result<Vec<RowFigures>> {
    let cold = plan.cold_mib.map(ColdRun::prepare).transpose()?;
    let mut engine = engines::open_store(&plan.engine, path, &StoreSettings::of(plan.arrangement))?;
    let mut population = plan.records;
    let mut figures = Vec::new();
    let mut warm = false;
    for row in Row::ALL {
        if row != Row::Load && !plan.rows.iter().any(|name| name == row.name()) {
            continue;
        }
        if row != Row::Load && !warm {
            // Reads start with a warm cache.
            let context =
                RowContext::new(Row::Get(Popularity::Uniform), population, plan.threads, plan.ranks);
            drive(&*engine, &context, plan, context.row.operations(population))?;
            warm = true;
        }
        let context = RowContext::new(row, population, plan.threads, plan.ranks);
        let (row_figures, inserted) = measure_row(&*engine, &context, plan, path)?;
        figures.push(row_figures);
        if row != Row::Load {
            population += inserted;
        } else if let Some(cold) = &cold {
            drop(engine);
            cold.begin(path)?;
            engine = engines::open_store(
                &plan.engine,
                path,
                &StoreSettings::of_cold_run(plan.arrangement, plan.cold_mib),
            )?;
        }
    }
    Ok(figures)
}

/// Measures one row. Returns its figures and the number of inserted records.
fn measure_row(
    engine: &dyn Engine,
    context: &RowContext,
    plan: &StorePlan,
    path: &Path,
) -> Result<(RowFigures, u64)> {
    let operations = context.row.operations(plan.records);
    let (cpu_before, written_before) = (measure::process_cpu_nanos(), written_bytes_of(engine));
    let read_before = measure::device_read_bytes();
    let totals = drive(engine, context, plan, operations)?;
    let settled = match context.row {
        Row::Load => measure::settle(Duration::from_secs(120)),
        _ => Duration::ZERO,
    };
    let process_cpu = (measure::process_cpu_nanos() - cpu_before).saturating_sub(totals.drawing_cpu);
    let written = written_bytes_of(engine) - written_before;
    let memory = measure::memory();
    let per_operation = |nanos: u64| nanos as f64 / 1_000.0 / totals.operations.max(1) as f64;
    let figures = RowFigures {
        row: context.row.name().to_owned(),
        threads: plan.threads,
        operations: totals.operations,
        thread_micros: per_operation(totals.thread_cpu),
        process_micros: per_operation(process_cpu),
        wall_micros: totals.wall.as_secs_f64() * 1e6 / totals.operations.max(1) as f64,
        settle_seconds: settled.as_secs_f64(),
        written_bytes: written,
        device_read_bytes: measure::device_read_bytes() - read_before,
        user_bytes: if context.row.access() == Access::Write { totals.user_bytes } else { 0 },
        disk_bytes: measure::disk_bytes(path)?,
        peak_rss_bytes: memory.peak,
        anonymous_bytes: memory.anonymous,
        index_share: None,
        checksum: (plan.threads == 1 && totals.operations == operations).then_some(totals.checksum),
    };
    Ok((figures, totals.inserted_by_all))
}

fn written_bytes_of(engine: &dyn Engine) -> u64 {
    measure::written_bytes() + engine.mapped_bytes()
}

#[derive(Debug, Default)]
struct ThreadTotals {
    operations: u64,
    thread_cpu: u64,
    /// CPU time of drawing operations, which no figure includes.
    drawing_cpu: u64,
    /// The maximum of all threads.
    wall: Duration,
    checksum: u64,
    /// Records that all threads have inserted: the growth of the population.
    inserted_by_all: u64,
    user_bytes: u64,
}

/// Runs `operations` operations of a row over its threads.
fn drive(
    engine: &dyn Engine,
    context: &RowContext,
    plan: &StorePlan,
    operations: u64,
) -> Result<ThreadTotals> {
    // A load has no limit, since other rows need all records.
    let limit = match context.row {
        Row::Load => Duration::MAX,
        _ => Duration::from_secs(plan.row_limit_seconds),
    };
    let barrier = Barrier::new(context.threads as usize);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..context.threads)
            .map(|thread| {
                let share = operations / context.threads + u64::from(thread < operations % context.threads);
                let barrier = &barrier;
                scope.spawn(move || run_thread(engine, context, plan.seed, thread, share, limit, barrier))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")).collect::<Vec<_>>()
    });
    let mut totals = ThreadTotals { inserted_by_all: u64::MAX, ..ThreadTotals::default() };
    for result in results {
        let one = result??;
        totals.operations += one.operations;
        totals.thread_cpu += one.thread_cpu;
        totals.drawing_cpu += one.drawing_cpu;
        totals.wall = totals.wall.max(one.wall);
        totals.checksum ^= one.checksum;
        totals.user_bytes += one.user_bytes;
        totals.inserted_by_all = totals.inserted_by_all.min(one.inserted_by_all * context.threads);
    }
    Ok(totals)
}

fn run_thread(
    engine: &dyn Engine,
    context: &RowContext,
    seed: u64,
    thread: u64,
    operations: u64,
    limit: Duration,
    barrier: &Barrier,
) -> Result<ThreadTotals> {
    let connection = engine.connect();
    let mut worker = Worker::new(context, thread, seed);
    barrier.wait();
    let mut connection = connection?;
    let (started, cpu_before) = (Instant::now(), measure::thread_cpu_nanos());
    let (mut done, mut thread_cpu, mut wall) = (0, 0, Duration::ZERO);
    while done < operations && started.elapsed() < limit {
        let drawn = context.row.drawn().min(operations - done);
        worker.draw(drawn);
        let (at, cpu_at) = (Instant::now(), measure::thread_cpu_nanos());
        while !worker.is_done() {
            let batch = context.row.batch();
            connection.batch(context.row.access(), &mut |session| worker.run(session, batch))?;
        }
        thread_cpu += measure::thread_cpu_nanos() - cpu_at;
        wall += at.elapsed();
        done += drawn;
    }
    Ok(ThreadTotals {
        operations: done,
        thread_cpu,
        drawing_cpu: (measure::thread_cpu_nanos() - cpu_before).saturating_sub(thread_cpu),
        wall,
        checksum: worker.checksum(),
        inserted_by_all: worker.inserted(),
        user_bytes: worker.user_bytes(),
    })
}
