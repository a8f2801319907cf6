//! Recovery (§5.4): the time to open a database after a crash and after a close.
//!
//! A crash is a copy of all files of the open database between two writes, which equals the state after a killed process.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bolide::{Components, Db, Options, Query, SyncMode};

use super::index_only::records as micro_records;
use super::workload::{Draws, Workload};
use super::{bars, listed, load_average, report};
use crate::engines::SecondaryKey;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;
use crate::measure::{process_cpu_nanos, settle};
use crate::pm_baselines::{LsmIndex, LsmKind};

/// The index of a database.
const KINDS: [(&str, Option<&str>); 5] = [
    ("no index", None),
    ("PS-Tree (B+-tree)", Some("ps-tree")),
    ("PS-Tree (trie)", Some("ps-tree:skey=trie")),
    ("LSM", Some("composite")),
    ("LSM with primary-key index", Some("composite:validation=key-index")),
];
const ROUNDS: usize = 3;
/// The memtable size of the paper.
const MEMTABLE_BYTES: usize = 64 << 20;

/// Milliseconds to open, and CPU milliseconds.
#[derive(Clone, Copy)]
struct OpenTimes {
    crashed: f64,
    crashed_cpu: f64,
    closed: f64,
    closed_cpu: f64,
}

pub(super) fn figure(scale: &Scale) -> Result<FigureReport> {
    let records = micro_records(scale);
    let mut report = report("perseid-recovery", "§5.4", scale, records, &load_average());
    report.set("upserts", 2 * records);
    report.set("upserts since the last flush", writes_after_flush(records));
    report.set("memtables", format!("{} MiB", MEMTABLE_BYTES >> 20));
    let mut all = Vec::new();
    for (name, index) in KINDS {
        eprintln!("  {name}");
        all.push((name, measure(scale, index, records)?));
    }
    let of = |name: &str, value: fn(&OpenTimes) -> f64| {
        all.iter().find(|(of, _)| *of == name).map_or(0.0, |(_, open_times)| value(open_times))
    };
    let summary = |value: fn(&OpenTimes) -> f64| {
        listed(all.iter().map(|(name, open_times)| (*name, value(open_times))))
    };
    let each = |milliseconds: f64| milliseconds * 1e3 / records as f64;
    let trees = [KINDS[1].0, KINDS[2].0];
    report.departs(
        "a database with a PS-Tree opens in less than two microseconds of CPU time for each record, after a \
         crash and after a close",
        trees
            .iter()
            .all(|name| each(of(name, |o| o.crashed_cpu)) < 2.0 && each(of(name, |o| o.closed_cpu)) < 2.0),
        format!("crash: {}; close: {}", summary(|o| o.crashed_cpu), summary(|o| o.closed_cpu)),
        "in the paper, it opens about as fast as LSM trees, 13 ns for each upsert: the tree stays in \
         persistent memory, and only the durable table is read. Here the whole region is read from disk and \
         verified; files of LSM trees are opened without reading them.",
    );
    report.departs(
        "opening a database with a PS-Tree takes at most as long after a close as after a crash (within a \
         fifth)",
        trees.iter().all(|name| of(name, |o| o.closed_cpu) < 1.2 * of(name, |o| o.crashed_cpu)),
        format!("crash: {}; close: {}", summary(|o| o.crashed_cpu), summary(|o| o.closed_cpu)),
        "in the paper, the volatile table is built from the durable one after a close too. Here the region \
         contains it beside the entries, and an opening reads both.",
    );
    report.panels.push(bars(
        "Opening, wall time",
        "ms",
        false,
        &["after a crash", "after a close"],
        all.iter().map(|(name, open_times)| (*name, vec![open_times.crashed, open_times.closed])),
    ));
    report.panels.push(bars(
        "Opening, CPU time",
        "CPU ms, whole process",
        false,
        &["after a crash", "after a close"],
        all.iter().map(|(name, open_times)| (*name, vec![open_times.crashed_cpu, open_times.closed_cpu])),
    ));
    Ok(report)
}

/// Writes since the last flush.
fn writes_after_flush(records: u64) -> u64 {
    records / 4
}

fn measure(scale: &Scale, index: Option<&'static str>, records: u64) -> Result<OpenTimes> {
    let folder = match &scale.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let (live, copy) = (folder.path().join("live"), folder.path().join("copy"));
    let kind = LsmKind {
        index,
        in_memory: false,
        cache_bytes: 64 << 20,
        memtable_bytes: MEMTABLE_BYTES,
        tiered: false,
    };
    let database = LsmIndex::create_in(kind, &live, Components::system())?;
    let draws = Draws::new(Workload::SkewedPrimary, records, scale.seed);
    for write in draws.writes() {
        database.put(write.secondary, write.record, b"")?;
    }
    settle(std::time::Duration::from_secs(60));
    // The replay after a crash: the same writes with each index.
    database.db().flush()?;
    for write in draws.reseeded(scale.seed ^ 5).writes().iter().take(writes_after_flush(records) as usize) {
        database.put(write.secondary, write.record, b"")?;
    }
    let expected = query_keys(database.records(), &draws)?;
    let mut open_times =
        OpenTimes { crashed: f64::MAX, crashed_cpu: f64::MAX, closed: f64::MAX, closed_cpu: f64::MAX };
    for _ in 0..ROUNDS {
        copy_files(&live, &copy)?;
        let (wall, cpu) = open(&copy, &draws, &expected)?;
        open_times.crashed = open_times.crashed.min(wall);
        open_times.crashed_cpu = open_times.crashed_cpu.min(cpu);
        std::fs::remove_dir_all(&copy)?;
    }
    database.close()?;
    for _ in 0..ROUNDS {
        let (wall, cpu) = open(&live, &draws, &expected)?;
        open_times.closed = open_times.closed.min(wall);
        open_times.closed_cpu = open_times.closed_cpu.min(cpu);
    }
    Ok(open_times)
}

/// The keys of the answers to some queries.
fn query_keys(records: &bolide::Collection, draws: &Draws) -> Result<Vec<Vec<u8>>> {
    let mut draws = draws.reseeded(3);
    let mut keys = Vec::new();
    for _ in 0..100 {
        let query: Query = LsmIndex::newest_of(draws.secondary(), 10).keys_only();
        // Without an index a query would scan all records.
        if records.indexes().is_empty() {
            break;
        }
        keys.extend(records.find(&query)?.into_iter().map(|answer| answer.key));
    }
    Ok(keys)
}

/// Opens the database in `path` and checks its answers. Returns wall and CPU milliseconds of the opening.
fn open(path: &Path, draws: &Draws, expected: &[Vec<u8>]) -> Result<(f64, f64)> {
    let components = Components::system().extractor(LsmIndex::RECORDS, Arc::new(SecondaryKey));
    let options =
        Options::default().cache_bytes(64 << 20).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
    let (started, before) = (Instant::now(), process_cpu_nanos());
    let db = Db::open_with(path, options, components)?;
    let records = db.collection(LsmIndex::RECORDS)?;
    let took = (started.elapsed().as_secs_f64() * 1e3, (process_cpu_nanos() - before) as f64 / 1e6);
    if query_keys(&records, draws)? != expected {
        return Err("a reopened database returns different answers".into());
    }
    drop(records);
    db.close()?;
    Ok(took)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
