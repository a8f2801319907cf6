//! Figure 12: memory during writes, and write stalls at paced rates (§6.7).

use std::time::{Duration, Instant};

use bolide::{DbStats, TreeFigures};

use super::dataset::{DataSet, DataSource};
use super::query_sets::count;
use super::{NEXT, OnDisk, STANDALONE, global_index, half, judged, report, setting};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;
use crate::measure::settle;
use crate::next_baselines::{Contender, Selection};

const STEPS: usize = 10;
/// The paced rates, in puts a second.
const RATES: [(&str, f64); 3] =
    [("60,000 a second", 60e3), ("30,000 a second", 30e3), ("15,000 a second", 15e3)];
const UNPACED: &str = "unpaced";
/// A put that takes longer counts as stalled.
const STALL: Duration = Duration::from_millis(1);
/// Records between two reads of the clock.
const BURST: usize = 32;

/// Memory after each tenth of the writes, and the stalls of all.
#[derive(Debug, Clone, Default)]
struct MemoryTrace {
    /// MB that the database reports. Memory of the process would include that of earlier databases.
    database: Vec<f64>,
    /// KiB of the global index.
    global: Vec<f64>,
    /// Milliseconds that the database stalled writers.
    throttled: f64,
    /// Puts of a thousand that took longer than [`STALL`].
    stalls: f64,
    /// Puts a second.
    rate: f64,
}

/// MB of memtables, of the resident parts of sstables, and of the caches.
fn in_memory(stats: &DbStats) -> f64 {
    let of = |tree: &TreeFigures| tree.memtable_bytes + tree.resident_bytes;
    let trees = stats.collections.iter().map(|collection| {
        of(&collection.table) + collection.indexes.iter().map(|index| of(&index.tree)).sum::<usize>()
    });
    (trees.sum::<usize>() as f64 + (stats.cache.used_bytes + stats.rows.used_bytes) as f64) / 1e6
}

/// Writes all records, at `rate` records a second, or unpaced for `None`.
fn write(scale: &Scale, data: &DataSet, contenders: &[Contender], rate: Option<f64>) -> Result<MemoryTrace> {
    settle(Duration::from_secs(5));
    let attributes: Vec<_> = contenders.iter().map(|_| data.source.space()).collect();
    let disk = OnDisk::create(scale, contenders, &attributes, data.rows.len())?;
    let rows: Vec<_> = data.in_write_order().collect();
    let mut trace = MemoryTrace::default();
    let (started, mut stalls, mut written) = (Instant::now(), 0u32, 0usize);
    for part in rows.chunks(rows.len().div_ceil(STEPS)) {
        for burst in part.chunks(BURST) {
            for row in burst {
                let put = Instant::now();
                disk.table.insert(&row.key, &row.json)?;
                stalls += u32::from(put.elapsed() > STALL);
            }
            written += burst.len();
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(written as f64 / rate);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        }
        trace.database.push(in_memory(&disk.table.db().stats()) + global_index(&disk.table).0 / 1024.0);
        if contenders == [NEXT] {
            // A query builds the global index.
            count(&disk.table, NEXT, 0, Selection::Window(part[0].rect))?;
            trace.global.push(global_index(&disk.table).0);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    trace.rate = written as f64 / seconds.max(1e-9);
    trace.stalls = 1000.0 * f64::from(stalls) / written.max(1) as f64;
    trace.throttled = disk.table.db().stats().writes.throttled_micros as f64 / 1000.0;
    Ok(trace)
}

pub(super) fn figure_12(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("next-12", "Figure 12", scale, half(scale));
    let data = DataSource::Vehicles.rows(scale, half(scale))?;
    report.set("data", &data.summary);
    let subjects: [(&str, &[Contender]); 3] =
        [("no index", &[]), (STANDALONE.name, &[STANDALONE]), (NEXT.name, &[NEXT])];
    let mut traces = Vec::new();
    for (name, contenders) in subjects {
        eprintln!("  {name}");
        traces.push((name, write(scale, &data, contenders, None)?));
    }
    let mut paced = vec![(UNPACED, traces[2].1.clone())];
    for (name, rate) in RATES {
        eprintln!("  {name}");
        paced.push((name, write(scale, &data, &[NEXT], Some(rate))?));
    }
    claims(&mut report, &data, &traces, &paced);
    let step = data.rows.len() as f64 / STEPS as f64 / 1000.0;
    let x: Vec<f64> = (1..=traces[2].1.database.len()).map(|position| position as f64 * step).collect();
    let labels = ("thousand records", "MB");
    let of = |all: &[(&'static str, MemoryTrace)]| -> Vec<(&'static str, Vec<f64>)> {
        all.iter().map(|(name, trace)| (*name, trace.database.clone())).collect()
    };
    report.panels.push(lines("Memory of the database", labels, false, x.clone(), of(&traces)));
    let global = paced.iter().map(|(name, trace)| (*name, trace.global.clone()));
    report.panels.push(lines("Memory of NEXT", ("thousand records", "KiB"), false, x.clone(), global));
    report.panels.push(lines("Memory of the database by rate", labels, false, x, of(&paced)));
    let names: Vec<&str> = paced.iter().map(|(name, _)| *name).collect();
    let stalls = [
        ("ms that the database stalled writers", paced.iter().map(|(_, one)| one.throttled).collect()),
        ("puts of 1,000 over 1 ms", paced.iter().map(|(_, one)| one.stalls).collect()),
    ];
    report.panels.push(bars("Write stalls", "milliseconds, puts", false, &names, stalls));
    Ok(judged(report, scale))
}

fn claims(
    report: &mut FigureReport,
    data: &DataSet,
    traces: &[(&'static str, MemoryTrace)],
    paced: &[(&'static str, MemoryTrace)],
) {
    let last = |values: &Vec<f64>| values.last().copied().unwrap_or(0.0);
    let table: f64 = data.rows.iter().map(|row| row.json.len() as f64).sum();
    let next = &traces[2].1;
    let kib = last(&next.global);
    report.claim(
        "§6.7: the global index takes less than 1 % of the size of the records in memory",
        kib * 1024.0 < 0.01 * table,
        listed([("KiB", kib), ("KiB of records", table / 1024.0)]),
    );
    let peak = |trace: &MemoryTrace| trace.database.iter().copied().fold(0.0, f64::max);
    let setting = setting(data.rows.len());
    let buffers = (setting.memtable_bytes * 4 + setting.cache_bytes) as f64 / 1e6;
    report.claim(
        "§6.7: memory with NEXT is about that with a composite index and without an index (within a half, \
         plus memtables and cache)",
        traces.iter().all(|(_, other)| peak(other) > 0.0 && peak(next) < 1.5 * peak(other) + buffers),
        format!("MB at most: {}", listed(traces.iter().map(|(name, trace)| (*name, peak(trace))))),
    );
    let summary = listed(paced.iter().map(|(name, trace)| (*name, trace.throttled)));
    let rates = listed(paced.iter().map(|(name, trace)| (*name, trace.rate)));
    report.departs(
        "writers stall less at lower rates: at the lowest rate no longer than unpaced",
        paced.last().is_some_and(|(_, slow)| slow.throttled <= paced[0].1.throttled + 5.0),
        format!("ms: {summary}; puts a second: {rates}"),
        "in the paper, writers stall more at lower rates: RocksDB then forms smaller batches of the writes \
         of several threads. Here one thread writes, and stalls for flushes and compactions alone.",
    );
}
