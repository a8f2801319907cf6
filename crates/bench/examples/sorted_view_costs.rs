//! The costs of seeks and scans through a sorted view and through a merging cursor, of the build of a view, and of its
//! rebuild with a new run with every tenth key: CPU time of the calling thread. With 0 rounds no clock is read, to count
//! instructions under
//! `valgrind --tool=callgrind`: of scans with `--toggle-collect='*scan_view*'`, of the rebuild with
//! `--toggle-collect='*Remix>::rebuild*'`.
//!
//! `cargo run --release -p bolide-bench --example sorted_view_costs -- [runs] [MiB of a run] [scans] [rounds]`

use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, MAX_SEQUENCE, Result, Trailer};
use bolide_lsm::cursor::{Bounds, VisibleCursor};
use bolide_lsm::range_tombstones::RangeTombstones;
use bolide_lsm::remix::{Remix, RemixOptions, SortedView, ViewRun};
use bolide_storage::{MemVfs, Runtime, SystemRuntime, Vfs};
use bolide_table::{
    BlockCache, Compression, FileSource, InternalCursor, TableBuilder, TableCursor, TableOptions, TableReader,
};

/// Entries that a scan reads after the first.
const SCAN: usize = 50;
/// The new run has one of so many keys.
const NEW_RUN_STEP: u64 = 10;
const VALUE: [u8; 100] = [b'v'; 100];

fn mix(number: u64) -> u64 {
    let word = (number ^ number >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (word ^ word >> 27).wrapping_mul(0x81da_def4_bc2d_d44d)
}

/// Key number `rank` of `count`: sixteen hexadecimal digits, evenly distributed.
fn key(rank: u64, count: u64) -> [u8; 16] {
    let number = rank * (u64::MAX / count);
    std::array::from_fn(|digit| {
        let digit = (number >> (60 - 4 * digit)) as u8 & 15;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    })
}

/// Runs with disjoint keys, and a run with newer versions of some keys.
fn tables(runs: u64, count: u64) -> Result<Vec<Arc<TableReader>>> {
    let (vfs, cache) = (MemVfs::new(), BlockCache::new(8 << 30));
    let options = TableOptions::default().compression(Compression::None).key_counts(true);
    let mut builders = Vec::new();
    for run in 0..=runs {
        let identity = FileIdentity { file_number: run + 1, tag: 1 };
        let path = std::path::PathBuf::from(format!("{:06}.sst", run + 1));
        builders.push((
            TableBuilder::new(vfs.create(&path)?, identity, &options, Vec::new())?,
            path,
            identity,
        ));
    }
    for rank in 0..count {
        let key = key(rank, count);
        let builder = &mut builders[(mix(rank) % runs) as usize].0;
        builder.add(&key, Trailer::new(rank + 1, EntryKind::Put), &VALUE)?;
        if (mix(rank) / runs).is_multiple_of(NEW_RUN_STEP) {
            builders[runs as usize].0.add(&key, Trailer::new(count + rank, EntryKind::Put), &VALUE)?;
        }
    }
    let mut tables = Vec::new();
    for (builder, path, identity) in builders {
        builder.finish()?;
        let source = FileSource::direct(path.display().to_string(), vfs.open(&path)?);
        tables.push(Arc::new(TableReader::open(source, identity, Arc::clone(&cache))?));
    }
    Ok(tables)
}

/// Seeks `scans` keys and reads `more` entries from each. Returns a checksum.
#[inline(never)]
fn scan_view(view: &Arc<SortedView>, scans: u64, more: usize, count: u64) -> Result<u64> {
    let ranges = Arc::new(RangeTombstones::new());
    let mut cursor = view.visible(MAX_SEQUENCE, ranges, Bounds::all());
    let mut sum = 0;
    for scan in 0..scans {
        cursor.seek(&key(mix(scan) % count, count))?;
        for _ in 0..more {
            cursor.next()?;
            sum += last_bytes(cursor.key(), cursor.value());
        }
    }
    Ok(sum)
}

#[inline(never)]
fn scan_merge(tables: &[Arc<TableReader>], scans: u64, more: usize, count: u64) -> Result<u64> {
    let ranges = Arc::new(RangeTombstones::new());
    let sources: Vec<TableCursor> = tables.iter().map(|table| table.cursor(true)).collect();
    let mut cursor = VisibleCursor::new(sources, MAX_SEQUENCE, ranges, Bounds::all());
    let mut sum = 0;
    for scan in 0..scans {
        cursor.seek(&key(mix(scan) % count, count))?;
        for _ in 0..more {
            cursor.next()?;
            sum += last_bytes(cursor.key(), cursor.value());
        }
    }
    Ok(sum)
}

/// Reads the last byte of key and value, so that both are loaded.
#[inline]
fn last_bytes(key: &[u8], value: &[u8]) -> u64 {
    u64::from(key.last().copied().unwrap_or(0)) + u64::from(value.last().copied().unwrap_or(0))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let runs = arguments.next().unwrap_or(8);
    let mib = arguments.next().unwrap_or(64);
    let scans = arguments.next().unwrap_or(50_000);
    let rounds = arguments.next().unwrap_or(5);
    let count = runs * (mib << 20) / 116;
    let tables = tables(runs, count)?;
    let view_runs: Result<Vec<_>> =
        tables.iter().map(|table| ViewRun::new(vec![Arc::clone(table)])).collect();
    let mut view_runs = view_runs?;
    // The newest run is the first.
    view_runs.rotate_right(1);
    let options = RemixOptions::default().tags(true);
    let view = SortedView::build(view_runs[1..].to_vec(), &options)?;
    let tables = &tables[..runs as usize];
    let mut whole = view.cursor(true);
    whole.seek_to_first()?;
    while whole.valid() {
        whole.next()?;
    }
    if rounds == 0 {
        // For counting instructions, without reading a clock.
        println!("{}", scan_view(&view, scans, SCAN, count)?);
        let (_, cost) = Remix::rebuild(&view, &view_runs, &options)?;
        println!("{cost:?}");
        return Ok(());
    }
    let runtime = SystemRuntime::default();
    let clock = || runtime.thread_cpu_micros();
    let mut fastest = [f64::MAX; 4];
    for _ in 0..rounds {
        for (fastest, more, merged) in fastest
            .iter_mut()
            .zip([0, SCAN, 0, SCAN])
            .zip([false, false, true, true])
            .map(|((l, m), g)| (l, m, g))
        {
            let started = clock();
            let sum = match merged {
                false => scan_view(&view, scans, more, count)?,
                true => scan_merge(tables, scans / 4, more, count)?,
            };
            std::hint::black_box(sum);
            let scans = if merged { scans / 4 } else { scans };
            *fastest = fastest.min((clock() - started) as f64 * 1000.0 / scans.max(1) as f64);
        }
    }
    let [mut build, mut rebuild] = [f64::MAX; 2];
    let mut keys = (0, 0);
    for _ in 0..rounds {
        let started = clock();
        let built = Remix::build(&view_runs[1..], &options)?;
        let between = clock();
        let (rebuilt, cost) = Remix::rebuild(&view, &view_runs, &options)?;
        build = build.min((between - started) as f64);
        rebuild = rebuild.min((clock() - between) as f64);
        keys = (built.entries(), cost.merge_points);
        assert_eq!(rebuilt.entries(), keys.0 + keys.1);
    }
    let [seek, scan, merged_seek, merged_scan] = fastest;
    let step = |scan: f64, seek: f64| (scan - seek) / SCAN as f64;
    println!("{runs} runs, ns    seek   seek + next {SCAN}   a step");
    println!("view        {seek:8.0} {scan:10.0} {:10.1}", step(scan, seek));
    println!("merging     {merged_seek:8.0} {merged_scan:10.0} {:10.1}", step(merged_scan, merged_seek));
    let of_each = |micros: f64, entries: u64| micros * 1000.0 / entries as f64;
    println!("build       {:8.1} ns a key of {}", of_each(build, keys.0), keys.0);
    println!(
        "rebuild     {:8.1} ns a key of {}, {} of them new",
        of_each(rebuild, keys.0 + keys.1),
        keys.0 + keys.1,
        keys.1
    );
    Ok(())
}
