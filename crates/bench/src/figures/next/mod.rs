//! The figures of NEXT (Shi, Yang, Cong and Li, SIGMOD 2025), repeated.
//!
//! ```text
//! dataset     the records: areas, vehicles, posts, synthetic numbers (§6.1, §6.5)
//! query_sets  the queries: ranges and windows of three sizes, and their times
//! costs       table 1: counted I/O, compared with the formulas (§3.4)
//! queries     tables 3 and 4, figure 5 (§6.2.1)
//! puts        figures 6 and 7 (§6.2.2)
//! mixed       figures 8 and 9 (§6.3)
//! delta       figure 10 (§6.4)
//! skew        figure 11 (§6.5)
//! two_indexes table 5 (§6.6)
//! memory      figure 12 (§6.7)
//! ```

mod costs;
mod dataset;
mod delta;
mod memory;
mod mixed;
mod puts;
mod queries;
mod query_sets;
mod skew;
mod two_indexes;

use std::sync::Arc;

use bolide::storage::DiskVfs;
use bolide::{Components, NextFigures};

use super::perseid::load_average;
use super::report::FigureReport;
use super::{Figure, Scale};
use crate::error::Result;
use crate::measure::{CountingVfs, IoCounters, process_cpu_nanos, settle, thread_cpu_nanos};
use crate::next_baselines::{Attribute, Contender, ContenderKind, Table, TableSettings};
use dataset::{DataRecord, DataSet};

/// All figures of this paper.
pub const FIGURES: &[Figure] = &[
    Figure { name: "next-table1", title: "I/O compared with the formulas", run: costs::table_1 },
    Figure { name: "next-table3", title: "Queries to areas", run: queries::table_3 },
    Figure { name: "next-table4", title: "Queries to vehicles and posts", run: queries::table_4 },
    Figure { name: "next-5", title: "Queries by the number of answers", run: queries::figure_5 },
    Figure { name: "next-6", title: "PUT", run: puts::figure_6 },
    Figure { name: "next-7", title: "Size", run: puts::figure_7 },
    Figure { name: "next-8", title: "Mixed workloads, points", run: mixed::figure_8 },
    Figure { name: "next-9", title: "Mixed workloads, numbers", run: mixed::figure_9 },
    Figure { name: "next-table5", title: "Two indexes of a table", run: two_indexes::table_5 },
    Figure { name: "next-10", title: "The threshold of the split", run: delta::figure_10 },
    Figure { name: "next-11", title: "Skewed numbers", run: skew::figure_11 },
    Figure { name: "next-12", title: "Memory and write stalls", run: memory::figure_12 },
];

const PAPER: &str = "NEXT (SIGMOD 2025)";

/// A tree in memory.
const EAGER: Contender = Contender { name: "eager", kind: ContenderKind::Eager };
/// Index blocks in the sstables, without a global index.
const EMBEDDED: Contender =
    Contender { name: "in sstables, no global index", kind: ContenderKind::InSstables("next:global=off") };
/// Composite keys in an LSM tree, with an update memo.
const STANDALONE: Contender = Contender { name: "composite, memo", kind: ContenderKind::Composite };
/// NEXT with default options.
const NEXT: Contender = Contender { name: "next", kind: ContenderKind::InSstables("next") };
/// NEXT without split ranges of index blocks: no gap exceeds the threshold.
const NEXT_WHOLE: Contender =
    Contender { name: "next, not split", kind: ContenderKind::InSstables("next:delta=1e300") };
/// The contenders of the paper.
const CONTENDERS: [Contender; 4] = [EAGER, EMBEDDED, STANDALONE, NEXT];

/// Memtables and cache in the proportion of the paper (64 MB for 13 and 26 GB of data), so that nearly all data is in files.
/// Any number of records makes some twenty sstables, each with several index blocks.
fn setting(records: usize) -> TableSettings {
    let file_bytes = (records as u64 * 12).max(32 << 10);
    TableSettings { cache_bytes: file_bytes as usize / 4, memtable_bytes: file_bytes as usize, file_bytes }
}

/// Records from which on claims are judged: with fewer, sstables have one or two index blocks.
const MIN_RECORDS: u64 = 50_000;

/// `report`, without its claims if `--records` is below [`MIN_RECORDS`].
fn judged(mut report: FigureReport, scale: &Scale) -> FigureReport {
    if scale.records < MIN_RECORDS {
        report.set("claims", format!("not judged with fewer than {MIN_RECORDS} records"));
        report.shapes.clear();
    }
    report
}

const SETTLE_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// A report with the settings that all figures share, over tables of so many records.
fn report(name: &str, what: &str, scale: &Scale, records: u64) -> FigureReport {
    let title = FIGURES.iter().find(|figure| figure.name == name).map_or("", |figure| figure.title);
    let mut report = FigureReport::new(name, title, &format!("{PAPER}, {what}"));
    report.set("seed", scale.seed);
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let setting = setting(records as usize);
    report.set("memtables", kib(setting.memtable_bytes));
    report.set("sstables", kib(setting.file_bytes as usize));
    report.set("block cache", kib(setting.cache_bytes));
    report.set("load average", load_average());
    report
}

/// A table on disk in a temporary folder.
struct OnDisk {
    // Declared before the folder, which is removed at its drop.
    table: Table,
    io: Arc<IoCounters>,
    _folder: tempfile::TempDir,
}

impl OnDisk {
    /// An empty table for so many records.
    fn create(
        scale: &Scale,
        contenders: &[Contender],
        attributes: &[Attribute],
        records: usize,
    ) -> Result<Self> {
        let folder = match &scale.directory {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        let vfs = Arc::new(CountingVfs::new(Arc::new(DiskVfs::new())));
        let io = vfs.counters();
        let components = Components::system().vfs(vfs);
        let path = folder.path().join("db");
        let table = Table::create(&path, setting(records), components, contenders, attributes)?;
        Ok(Self { table, io, _folder: folder })
    }

    /// A table with all records of `data`, flushed to sstables.
    fn loaded(
        scale: &Scale,
        contenders: &[Contender],
        attributes: &[Attribute],
        data: &DataSet,
    ) -> Result<(Self, PutTime)> {
        let loaded = Self::create(scale, contenders, attributes, data.rows.len())?;
        let put_time = loaded.load(data.in_write_order())?;
        loaded.table.db().flush()?;
        settle(SETTLE_LIMIT);
        Ok((loaded, put_time))
    }

    /// Inserts rows and waits for the background work that follows.
    fn load<'r>(&self, rows: impl Iterator<Item = &'r DataRecord>) -> Result<PutTime> {
        let (whole, calling) = (process_cpu_nanos(), thread_cpu_nanos());
        let mut count = 0;
        for row in rows {
            self.table.insert(&row.key, &row.json)?;
            count += 1;
        }
        let calling = thread_cpu_nanos() - calling;
        settle(SETTLE_LIMIT);
        let each = |nanos: u64| nanos as f64 / 1000.0 / f64::from(count.max(1));
        Ok(PutTime { calling: each(calling), whole: each(process_cpu_nanos() - whole) })
    }
}

/// CPU microseconds of a put.
#[derive(Debug, Clone, Copy, Default)]
struct PutTime {
    /// Of the calling thread.
    calling: f64,
    /// Of all threads.
    whole: f64,
}

/// The memory of indexes of kind `next` in KiB, and their numbers of ranges and of index blocks.
fn global_index(table: &Table) -> (f64, f64, f64) {
    let stats = table.db().stats();
    let indexes = stats.collections.iter().flat_map(|of| &of.indexes);
    let (mut bytes, mut ranges, mut blocks) = (0, 0, 0);
    for figures in indexes.filter_map(|index| index.figures_of::<NextFigures>()) {
        bytes += figures.resident_bytes();
        ranges += figures.ranges;
        blocks += figures.index_blocks;
    }
    (bytes as f64 / 1024.0, ranges as f64, blocks.max(1) as f64)
}

/// Half the records, for figures with many databases.
fn half(scale: &Scale) -> u64 {
    (scale.records / 2).max(1000)
}
