//! Sorted views against merging iterators, on sstables alone (REMIX §5.1, Figures 11 to 13).
//!
//! Some runs of one sstable each, keys of 16 bytes and values of 100, uncompressed, all blocks in the cache. With
//! weak locality each key lies in a random run, with strong locality 64 neighbours lie in one. Every answer is
//! checked. The figures are million operations per second of CPU time of the calling thread.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, MAX_SEQUENCE, Trailer};
use bolide_lsm::cursor::{Bounds, VisibleCursor};
use bolide_lsm::range_tombstones::RangeTombstones;
use bolide_lsm::remix::{Remix, RemixOptions, SortedView, ViewRun};
use bolide_storage::{DiskVfs, Vfs};
use bolide_table::{
    BlockCache, Compression, FileSource, TableBuilder, TableCursor, TableOptions, TableReader,
};

use crate::data::keys::{KEY_BYTES, hexadecimal};
use crate::data::random::mix;
use crate::error::Result;
use crate::measure::thread_cpu_nanos;

/// What is measured.
#[derive(Debug, Clone)]
pub struct SortedViewPlan {
    /// Numbers of runs, one after the other.
    pub runs: Vec<usize>,
    /// MiB of keys and values in each run.
    pub run_mib: u64,
    /// Operations of each kind.
    pub operations: u64,
    /// D.
    pub segment_entries: usize,
    /// 64 neighbours in one run instead of one.
    pub strong: bool,
    /// Each figure is the median of this many measurements.
    pub repeats: usize,
    /// Rows to measure: all if none.
    pub rows: Vec<String>,
}

const VALUE_BYTES: usize = 100;
const SCAN: usize = 50;
const DATABASE: u64 = 1;

/// The keys: evenly spread over all 64-bit numbers, each moved a little at random.
#[derive(Clone, Copy)]
struct Keys {
    count: u64,
    runs: u64,
    neighbours: u64,
}

impl Keys {
    fn key(&self, rank: u64) -> [u8; KEY_BYTES] {
        let gap = u64::MAX / self.count;
        hexadecimal(rank * gap + mix(rank) % gap)
    }

    fn run(&self, rank: u64) -> usize {
        (mix((rank / self.neighbours) ^ 0x5eed) % self.runs) as usize
    }

    /// Rank number `operation` of a row: uniform.
    fn rank(&self, operation: u64) -> u64 {
        mix(operation.wrapping_mul(0x9e37_79b9) ^ 0xabcd) % self.count
    }
}

/// The runs of one measurement, and their view with and without tags.
struct Bed {
    keys: Keys,
    tables: Vec<Arc<TableReader>>,
    plain: Arc<SortedView>,
    tagged: Arc<SortedView>,
}

/// Measures all of `plan` in `directory` and prints a line for each figure.
pub fn run(plan: &SortedViewPlan, directory: &Path) -> Result<()> {
    println!("runs  row                M/s CPU");
    for &runs in &plan.runs {
        let wanted = |row: &str| plan.rows.is_empty() || plan.rows.iter().any(|wanted| wanted == row);
        let bed = prepare(plan, runs, directory)?;
        type Row = (&'static str, fn(&Bed, u64) -> Result<()>);
        let rows: [Row; 10] = [
            ("seek/view", seek_view),
            ("seek/merge", seek_merge),
            ("seek-back/view", seek_back_view),
            ("scan-50/view", scan_view),
            ("scan-50/merge", scan_merge),
            ("get/view", |bed, operations| get_view(bed, &bed.plain, operations)),
            ("get/tags", |bed, operations| get_view(bed, &bed.tagged, operations)),
            ("get/bloom", get_bloom),
            ("absent/tags", |bed, operations| absent_view(&bed.tagged, operations)),
            ("absent/bloom", absent_bloom),
        ];
        for (name, row) in rows {
            if wanted(name) {
                // The first round fills the cache.
                row(&bed, plan.operations)?;
                let nanos = median(plan.repeats, || row(&bed, plan.operations))?;
                println!("{runs:>4}  {name:<16} {:>9.3}", plan.operations as f64 * 1e3 / nanos as f64);
            }
        }
    }
    Ok(())
}

fn median(repeats: usize, mut measured: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut nanos = Vec::new();
    for _ in 0..repeats.max(1) {
        let start = thread_cpu_nanos();
        measured()?;
        nanos.push(thread_cpu_nanos() - start);
    }
    nanos.sort_unstable();
    Ok(nanos[nanos.len() / 2].max(1))
}

fn prepare(plan: &SortedViewPlan, runs: usize, directory: &Path) -> Result<Bed> {
    let count = plan.run_mib * (1 << 20) * runs as u64 / (KEY_BYTES + VALUE_BYTES) as u64;
    let keys = Keys { count, runs: runs as u64, neighbours: if plan.strong { 64 } else { 1 } };
    let vfs = DiskVfs::new();
    let cache = BlockCache::new(4 << 30);
    let options = TableOptions::default().compression(Compression::None).key_counts(true);
    let mut tables = Vec::new();
    let mut builders = Vec::new();
    for run in 0..runs {
        let identity = FileIdentity { database_id: DATABASE, file_number: run as u64 + 1 };
        let path = directory.join(format!("{:06}.sst", identity.file_number));
        drop(vfs.remove(&path));
        let builder = TableBuilder::new(vfs.create(&path)?, identity, &options, Vec::new())?;
        builders.push((builder, path, identity));
    }
    let value = [b'v'; VALUE_BYTES];
    for rank in 0..count {
        let (builder, _, _) = &mut builders[keys.run(rank)];
        builder.add(&keys.key(rank), Trailer::new(rank + 1, EntryKind::Put), &value)?;
    }
    for (builder, path, identity) in builders {
        builder.finish()?;
        let source = FileSource::direct(path.display().to_string(), vfs.open(&path)?);
        tables.push(Arc::new(TableReader::open(source, identity, cache.clone())?));
    }
    let view_runs: Vec<_> = tables
        .iter()
        .map(|table| ViewRun::new(vec![table.clone()]))
        .collect::<std::result::Result<_, _>>()?;
    let options = RemixOptions::default().segment_entries(plan.segment_entries);
    let mut bed = Vec::new();
    for tags in [false, true] {
        let options = options.clone().tags(tags);
        let start = thread_cpu_nanos();
        let remix = Remix::build(&view_runs, &options)?;
        let nanos = (thread_cpu_nanos() - start).max(1);
        let identity = FileIdentity { database_id: DATABASE, file_number: 1_000 };
        let path = directory.join("001000.remix");
        drop(vfs.remove(&path));
        let bytes = remix.write(&*vfs.create(&path)?, identity)?;
        let remix = Remix::read(&*vfs.open(&path)?, "001000.remix", identity)?;
        println!(
            "{runs:>4}  build{} {:>10.2} M keys/s, {:.2} bytes a key in the file, {:.2} in memory",
            if tags { " with tags" } else { "          " },
            count as f64 * 1e3 / nanos as f64,
            bytes as f64 / count as f64,
            remix.memory_bytes() as f64 / count as f64,
        );
        bed.push(SortedView::new(remix, view_runs.clone())?);
    }
    let tagged = bed.pop().ok_or("no view with tags")?;
    let plain = bed.pop().ok_or("no view")?;
    Ok(Bed { keys, tables, plain, tagged })
}

fn no_ranges() -> Arc<RangeTombstones> {
    Arc::new(RangeTombstones::new())
}

fn merge(bed: &Bed) -> VisibleCursor<TableCursor> {
    let sources = bed.tables.iter().map(|table| table.cursor(true)).collect();
    VisibleCursor::new(sources, MAX_SEQUENCE, no_ranges(), Bounds::all())
}

fn expect(found: &[u8], wanted: &[u8]) -> Result<()> {
    if found == wanted { Ok(()) } else { Err("a wrong key was found".into()) }
}

fn seek_view(bed: &Bed, operations: u64) -> Result<()> {
    let mut cursor = bed.plain.visible(MAX_SEQUENCE, no_ranges(), Bounds::all());
    for operation in 0..operations {
        let key = bed.keys.key(bed.keys.rank(operation));
        cursor.seek(&key)?;
        expect(cursor.key(), &key)?;
    }
    Ok(())
}

fn seek_back_view(bed: &Bed, operations: u64) -> Result<()> {
    let mut cursor = bed.plain.visible(MAX_SEQUENCE, no_ranges(), Bounds::all());
    for operation in 0..operations {
        let key = bed.keys.key(bed.keys.rank(operation));
        cursor.seek_for_prev(&key)?;
        expect(cursor.key(), &key)?;
    }
    Ok(())
}

fn seek_merge(bed: &Bed, operations: u64) -> Result<()> {
    let mut cursor = merge(bed);
    for operation in 0..operations {
        let key = bed.keys.key(bed.keys.rank(operation));
        cursor.seek(&key)?;
        expect(cursor.key(), &key)?;
    }
    Ok(())
}

/// Where a scan copies what it meets.
struct Copied(Vec<u8>);

impl Copied {
    fn new() -> Self {
        Self(Vec::with_capacity((SCAN + 1) * (KEY_BYTES + VALUE_BYTES)))
    }

    fn copy(&mut self, key: &[u8], value: &[u8]) {
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
    }

    /// True if the last of the keys after `rank` is the right one.
    fn check(&mut self, keys: &Keys, rank: u64) -> Result<()> {
        let last = (rank + SCAN as u64).min(keys.count - 1);
        let rows = (last - rank) as usize + 1;
        let at = (rows - 1) * (KEY_BYTES + VALUE_BYTES);
        expect(self.0.get(at..at + KEY_BYTES).unwrap_or_default(), &keys.key(last))?;
        self.0.clear();
        Ok(())
    }
}

fn scan_view(bed: &Bed, operations: u64) -> Result<()> {
    let mut cursor = bed.plain.visible(MAX_SEQUENCE, no_ranges(), Bounds::all());
    let mut copied = Copied::new();
    for operation in 0..operations {
        let rank = bed.keys.rank(operation);
        cursor.seek(&bed.keys.key(rank))?;
        copied.copy(cursor.key(), cursor.value());
        for _ in 0..SCAN {
            cursor.next()?;
            copied.copy(cursor.key(), cursor.value());
        }
        copied.check(&bed.keys, rank)?;
    }
    Ok(())
}

fn scan_merge(bed: &Bed, operations: u64) -> Result<()> {
    let mut cursor = merge(bed);
    let mut copied = Copied::new();
    for operation in 0..operations {
        let rank = bed.keys.rank(operation);
        cursor.seek(&bed.keys.key(rank))?;
        copied.copy(cursor.key(), cursor.value());
        for _ in 0..SCAN {
            cursor.next()?;
            copied.copy(cursor.key(), cursor.value());
        }
        copied.check(&bed.keys, rank)?;
    }
    Ok(())
}

fn get_view(bed: &Bed, view: &SortedView, operations: u64) -> Result<()> {
    for operation in 0..operations {
        let rank = bed.keys.rank(operation);
        match view.get(&bed.keys.key(rank), MAX_SEQUENCE)? {
            Some((trailer, value)) if trailer.sequence() == rank + 1 && value.len() == VALUE_BYTES => {}
            _ => return Err("a key was not found".into()),
        }
    }
    Ok(())
}

fn get_bloom(bed: &Bed, operations: u64) -> Result<()> {
    for operation in 0..operations {
        let rank = bed.keys.rank(operation);
        let key = bed.keys.key(rank);
        let mut found = None;
        for table in &bed.tables {
            found = table.get(&key, MAX_SEQUENCE)?;
            if found.is_some() {
                break;
            }
        }
        match found {
            Some((trailer, value)) if trailer.sequence() == rank + 1 && value.len() == VALUE_BYTES => {}
            _ => return Err("a key was not found".into()),
        }
    }
    Ok(())
}

fn absent_key(operation: u64) -> [u8; KEY_BYTES] {
    let mut key = hexadecimal(mix(operation ^ 0xface));
    // No key has such a digit.
    key[KEY_BYTES - 1] = b'x';
    key
}

fn absent_view(view: &SortedView, operations: u64) -> Result<()> {
    for operation in 0..operations {
        if view.get(&absent_key(operation), MAX_SEQUENCE)?.is_some() {
            return Err("an absent key was found".into());
        }
    }
    Ok(())
}

fn absent_bloom(bed: &Bed, operations: u64) -> Result<()> {
    for operation in 0..operations {
        let key = absent_key(operation);
        for table in &bed.tables {
            if table.get(&key, MAX_SEQUENCE)?.is_some() {
                return Err("an absent key was found".into());
            }
        }
    }
    Ok(())
}
