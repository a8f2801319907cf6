//! Figure 12: memory while records are written, and how long writers wait at paced rates (§6.7).

use std::time::{Duration, Instant};

use bolide::{DbStats, TreeFigures};

use super::dataset::{Data, Source};
use super::windows::count;
use super::{NEXT, OnDisk, STANDALONE, global_index, half, judged, report, setting};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, lines, listed};
use crate::figures::report::FigureReport;
use crate::measure::settle;
use crate::next_baselines::{Contender, QueryFigures};

const STEPS: usize = 10;
/// Puts a second, beside those as fast as can be.
const RATES: [(&str, f64); 3] =
    [("60,000 a second", 60e3), ("30,000 a second", 30e3), ("15,000 a second", 15e3)];
const AT_ONCE: &str = "as fast as can be";
/// A put that takes longer was made to wait.
const A_WAIT: Duration = Duration::from_millis(1);
/// Records between two looks at the clock.
const BURST: usize = 32;

/// What memory was in use after each tenth.
#[derive(Debug, Clone, Default)]
struct Course {
    /// MB that the database reports: the process has the memory of the databases before it, too.
    database: Vec<f64>,
    /// KiB of the global index.
    global: Vec<f64>,
    /// Milliseconds that writers were made to wait by the database.
    throttled: f64,
    /// Puts of a thousand that took longer than [`A_WAIT`].
    waits: f64,
    /// Puts a second.
    rate: f64,
}

/// MB of memtables, of open sstables with what belongs to them, and of the caches.
fn in_memory(stats: &DbStats) -> f64 {
    let of = |tree: &TreeFigures| tree.memtable_bytes + tree.resident_bytes;
    let trees = stats.collections.iter().map(|collection| {
        of(&collection.table) + collection.indexes.iter().map(|index| of(&index.tree)).sum::<usize>()
    });
    (trees.sum::<usize>() as f64 + (stats.cache.used_bytes + stats.rows.used_bytes) as f64) / 1e6
}

/// Writes all records, at `rate` a second if one is given.
fn write(scale: &Scale, data: &Data, contenders: &[Contender], rate: Option<f64>) -> Result<Course> {
    settle(Duration::from_secs(5));
    let attributes: Vec<_> = contenders.iter().map(|_| data.source.space()).collect();
    let disk = OnDisk::create(scale, contenders, &attributes, data.rows.len())?;
    let rows: Vec<_> = data.in_writing_order().collect();
    let mut course = Course::default();
    let (started, mut waits, mut written) = (Instant::now(), 0u32, 0usize);
    for part in rows.chunks(rows.len().div_ceil(STEPS)) {
        for burst in part.chunks(BURST) {
            for row in burst {
                let put = Instant::now();
                disk.table.insert(&row.key, &row.json)?;
                waits += u32::from(put.elapsed() > A_WAIT);
            }
            written += burst.len();
            if let Some(rate) = rate {
                let due = Duration::from_secs_f64(written as f64 / rate);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
        }
        course.database.push(in_memory(&disk.table.db().stats()) + global_index(&disk.table).0 / 1024.0);
        if contenders == [NEXT] {
            // The global index is made by a query.
            count(&disk.table, NEXT, 0, QueryFigures::Window(part[0].rect))?;
            course.global.push(global_index(&disk.table).0);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    course.rate = written as f64 / seconds.max(1e-9);
    course.waits = 1000.0 * f64::from(waits) / written.max(1) as f64;
    course.throttled = disk.table.db().stats().writes.throttled_micros as f64 / 1000.0;
    Ok(course)
}

pub(super) fn figure_12(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("next-12", "Figure 12", scale, half(scale));
    let data = Source::Vehicles.rows(scale, half(scale))?;
    report.set("data", &data.summary);
    let subjects: [(&str, &[Contender]); 3] =
        [("no index", &[]), (STANDALONE.name, &[STANDALONE]), (NEXT.name, &[NEXT])];
    let mut courses = Vec::new();
    for (name, contenders) in subjects {
        eprintln!("  {name}");
        courses.push((name, write(scale, &data, contenders, None)?));
    }
    let mut paced = vec![(AT_ONCE, courses[2].1.clone())];
    for (name, rate) in RATES {
        eprintln!("  {name}");
        paced.push((name, write(scale, &data, &[NEXT], Some(rate))?));
    }
    claims(&mut report, &data, &courses, &paced);
    let step = data.rows.len() as f64 / STEPS as f64 / 1000.0;
    let x: Vec<f64> = (1..=courses[2].1.database.len()).map(|position| position as f64 * step).collect();
    let labels = ("thousand records", "MB");
    let of = |all: &[(&'static str, Course)]| -> Vec<(&'static str, Vec<f64>)> {
        all.iter().map(|(name, course)| (*name, course.database.clone())).collect()
    };
    report.panels.push(lines("Memory of the database", labels, false, x.clone(), of(&courses)));
    let global = paced.iter().map(|(name, course)| (*name, course.global.clone()));
    report.panels.push(lines("Memory of NEXT", ("thousand records", "KiB"), false, x.clone(), global));
    report.panels.push(lines("Memory of the database by rate", labels, false, x, of(&paced)));
    let names: Vec<&str> = paced.iter().map(|(name, _)| *name).collect();
    let waits = [
        ("ms that writers were made to wait", paced.iter().map(|(_, one)| one.throttled).collect()),
        ("of 1,000 puts took over 1 ms", paced.iter().map(|(_, one)| one.waits).collect()),
    ];
    report.panels.push(bars("Waiting", "milliseconds, puts", false, &names, waits));
    Ok(judged(report, scale))
}

fn claims(
    report: &mut FigureReport,
    data: &Data,
    courses: &[(&'static str, Course)],
    paced: &[(&'static str, Course)],
) {
    let last = |values: &Vec<f64>| values.last().copied().unwrap_or(0.0);
    let table: f64 = data.rows.iter().map(|row| row.json.len() as f64).sum();
    let next = &courses[2].1;
    let kib = last(&next.global);
    report.claim(
        "§6.7: the global index takes a small part of the memory: less than 1 % of what the records take",
        kib * 1024.0 < 0.01 * table,
        listed([("KiB", kib), ("KiB of records", table / 1024.0)]),
    );
    let most = |course: &Course| course.database.iter().copied().fold(0.0, f64::max);
    let setting = setting(data.rows.len());
    let buffers = (setting.memtable_bytes * 4 + setting.cache_bytes) as f64 / 1e6;
    report.claim(
        "§6.7: memory with NEXT is like that with a composite index and without any (within a half, and what memtables and \
         cache may take)",
        courses.iter().all(|(_, other)| most(other) > 0.0 && most(next) < 1.5 * most(other) + buffers),
        format!("MB at most: {}", listed(courses.iter().map(|(name, course)| (*name, most(course))))),
    );
    let summary = listed(paced.iter().map(|(name, course)| (*name, course.throttled)));
    let rates = listed(paced.iter().map(|(name, course)| (*name, course.rate)));
    report.departs(
        "the slower records come, the less writers are made to wait: at the lowest rate no more than as fast as can be",
        paced.last().is_some_and(|(_, slow)| slow.throttled <= paced[0].1.throttled + 5.0),
        format!("ms: {summary}; puts a second: {rates}"),
        "in the paper, writers wait more at lower rates, which the paper lays to batches of writes of several threads \
         that RocksDB then cannot fill. Here one thread writes, and waits for flushes and compactions alone.",
    );
}
