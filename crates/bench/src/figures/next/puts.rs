//! Figures 6 and 7: the cost of an index for puts and space (§6.2.2).

use std::sync::{Mutex, PoisonError};

use super::dataset::DataSource;
use super::{EAGER, EMBEDDED, NEXT, OnDisk, PutTime, STANDALONE, global_index, half, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::FigureReport;
use crate::next_baselines::Contender;

const CASES: [(DataSource, bool); 4] = [
    (DataSource::Areas, true),
    (DataSource::Areas, false),
    (DataSource::Vehicles, true),
    (DataSource::Posts, false),
];
const GROUPS: [&str; 4] = ["areas, space", "areas, numbers", "vehicles, space", "posts, numbers"];
const CONTENDERS: [Contender; 4] = [EAGER, EMBEDDED, STANDALONE, NEXT];
const NONE: &str = "no index";

/// The put times and the sizes of a table with one index, or without one.
#[derive(Debug, Clone, Copy, Default)]
struct IndexFootprint {
    put_time: PutTime,
    /// MB on disk of the table, index blocks in sstables included, and of an index in sstables of its own.
    table: f64,
    index: f64,
    /// MB of the index in memory.
    memory: f64,
}

impl IndexFootprint {
    fn disk(self) -> f64 {
        self.table + self.index
    }
}

/// `footprints[case][contender]`; the last one has no index.
type Footprints = Vec<Vec<IndexFootprint>>;

fn measured(scale: &Scale) -> Result<Footprints> {
    static ONCE: Mutex<Option<Footprints>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all) = &*once {
        return Ok(all.clone());
    }
    let mut all = Vec::new();
    for ((source, is_spatial), name) in CASES.into_iter().zip(GROUPS) {
        eprintln!("  {name}");
        let data = source.rows(scale, half(scale))?;
        let attribute = data.attribute(is_spatial);
        let mut row = Vec::new();
        for contender in CONTENDERS.map(Some).into_iter().chain([None]) {
            let (disk, put_time) = match &contender {
                Some(one) => OnDisk::loaded(scale, std::slice::from_ref(one), &[attribute], &data)?,
                None => OnDisk::loaded(scale, &[], &[], &data)?,
            };
            // The first query builds the global index.
            if let (Some(NEXT), Some(first)) = (contender, data.rows.first()) {
                let selection = match is_spatial {
                    true => crate::next_baselines::Selection::Window(first.rect),
                    false => crate::next_baselines::Selection::Equal(first.value),
                };
                super::query_sets::count(&disk.table, NEXT, 0, selection)?;
            }
            let stats = disk.table.db().stats();
            let mb = |bytes: u64| bytes as f64 / 1e6;
            let table: u64 = stats.collections.iter().map(|of| of.table.disk_bytes).sum();
            let indexes = stats.collections.iter().flat_map(|of| &of.indexes);
            let index = indexes.map(|index| index.tree.disk_bytes).sum::<u64>();
            let memory = disk.table.in_memory().0 as f64 / 1e6 + global_index(&disk.table).0 / 1024.0;
            row.push(IndexFootprint { put_time, table: mb(table), index: mb(index), memory });
        }
        all.push(row);
    }
    *once = Some(all.clone());
    Ok(all)
}

/// The position of a contender in a row.
fn at(contender: Contender) -> usize {
    CONTENDERS.iter().position(|other| *other == contender).unwrap_or(CONTENDERS.len())
}

fn series(all: &Footprints, figure: impl Fn(IndexFootprint) -> f64) -> Vec<(&'static str, Vec<f64>)> {
    let names = CONTENDERS.map(|contender| contender.name).into_iter().chain([NONE]);
    names.enumerate().map(|(at, name)| (name, all.iter().map(|row| figure(row[at])).collect())).collect()
}

fn summary(all: &Footprints, figure: impl Fn(IndexFootprint) -> f64 + Copy) -> String {
    let each = GROUPS.iter().zip(all).map(|(name, row)| {
        let names = CONTENDERS.map(|contender| contender.name).into_iter().chain([NONE]);
        format!("{name}: {}", listed(names.zip(row.iter().map(|footprint| figure(*footprint)))))
    });
    each.collect::<Vec<_>>().join("; ")
}

pub(super) fn figure_6(scale: &Scale) -> Result<FigureReport> {
    let all = measured(scale)?;
    let mut report = report("next-6", "Figure 6", scale, half(scale));
    report.set("records of each data set", half(scale));
    let whole = |footprint: IndexFootprint| footprint.put_time.whole;
    let calling = |footprint: IndexFootprint| footprint.put_time.calling;
    let last = CONTENDERS.len();
    report.departs(
        "a put costs at most as much with NEXT as with a composite index, background threads included \
         (within a half)",
        all.iter().all(|row| whole(row[at(NEXT)]) < 1.5 * whole(row[at(STANDALONE)])),
        summary(&all, whole),
        "in the paper, NEXT costs less except for rectangles. Here compactions of a composite index write \
         few bytes, since entries are short and prefix-compressed; compactions of the table sort the \
         entries of NEXT again.",
    );
    report.claim(
        "§6.2.2: in the calling thread, NEXT adds at most a third to a put: flushes and compactions build \
         its index blocks",
        all.iter().all(|row| calling(row[at(NEXT)]) < 1.34 * calling(row[last])),
        summary(&all, calling),
    );
    report.departs(
        "in the calling thread, a put costs more with an eager index than with NEXT (by a tenth at least)",
        all.iter().all(|row| calling(row[at(EAGER)]) > 1.1 * calling(row[at(NEXT)])),
        summary(&all, calling),
        "in the paper, records are only inserted, so a put changes the tree in memory alone. Here each put \
         also reads the record that it replaces, to remove its value from the tree.",
    );
    report.claim(
        "§6.2.2: a put with index blocks costs as much without a global index as with it (within a half)",
        all.iter().all(|row| {
            let (with, without) = (whole(row[at(NEXT)]), whole(row[at(EMBEDDED)]));
            with < 1.5 * without && without < 1.5 * with
        }),
        summary(&all, whole),
    );
    report.panels.push(bars("PUT", "CPU µs, whole process", false, &GROUPS, series(&all, whole)));
    report.panels.push(bars("PUT", "CPU µs, calling thread", false, &GROUPS, series(&all, calling)));
    Ok(judged(report, scale))
}

pub(super) fn figure_7(scale: &Scale) -> Result<FigureReport> {
    let all = measured(scale)?;
    let mut report = report("next-7", "Figure 7", scale, half(scale));
    report.set("records of each data set", half(scale));
    let last = CONTENDERS.len();
    let share =
        |row: &[IndexFootprint], contender| 100.0 * (row[at(contender)].disk() / row[last].disk() - 1.0);
    let shares = |contender: Contender| {
        listed(GROUPS.iter().zip(&all).map(|(name, row)| (*name, share(row, contender))))
    };
    report.claim(
        "§6.2.2: the index blocks of NEXT take less space on disk than a composite index",
        all.iter().all(|row| row[at(NEXT)].disk() < row[at(STANDALONE)].disk()),
        format!("% of the table: next {}; composite {}", shares(NEXT), shares(STANDALONE)),
    );
    report.departs(
        "index blocks of numbers take less than 15 % of the table",
        [1, 3].iter().all(|case| share(&all[*case], NEXT) < 15.0),
        shares(NEXT),
        "in the paper, 20.65 % of the table: each entry has its full value and block offset. Here entries \
         are prefix-compressed, and offsets are delta-encoded.",
    );
    let memory = |row: &[IndexFootprint]| 100.0 * row[at(NEXT)].memory / row[last].table;
    report.claim(
        "§3.2: NEXT takes less than 1 % of the size of the table in memory, for numbers and for space",
        all.iter().all(|row| memory(row) < 1.0),
        listed(GROUPS.iter().zip(&all).map(|(name, row)| (*name, memory(row)))),
    );
    report.panels.push(bars("Size on disk", "MB", false, &GROUPS, series(&all, IndexFootprint::disk)));
    let in_memory = [EAGER, NEXT].map(|one| (one.name, all.iter().map(|row| row[at(one)].memory).collect()));
    report.panels.push(bars("Memory of the index", "MB", true, &GROUPS, in_memory));
    Ok(judged(report, scale))
}
