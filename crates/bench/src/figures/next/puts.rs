//! Figures 6 and 7: what an index adds to a put, and to the size (§6.2.2).

use std::sync::{Mutex, PoisonError};

use super::dataset::Source;
use super::{EAGER, EMBEDDED, NEXT, OnDisk, STANDALONE, Took, global_index, half, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::FigureReport;
use crate::next_baselines::Contender;

const PLACES: [(Source, bool); 4] =
    [(Source::Areas, true), (Source::Areas, false), (Source::Vehicles, true), (Source::Posts, false)];
const GROUPS: [&str; 4] = ["areas, space", "areas, numbers", "vehicles, space", "posts, numbers"];
const CONTENDERS: [Contender; 4] = [EAGER, EMBEDDED, STANDALONE, NEXT];
const NONE: &str = "no index";

/// One table with one index, or none.
#[derive(Debug, Clone, Copy, Default)]
struct Made {
    took: Took,
    /// MB of the table with what its sstables carry, and of an index beside it.
    table: f64,
    beside: f64,
    /// MB that the index takes in memory.
    memory: f64,
}

impl Made {
    fn disk(self) -> f64 {
        self.table + self.beside
    }
}

/// `made[place][contender]`; the last one has no index.
type All = Vec<Vec<Made>>;

fn measured(scale: &Scale) -> Result<All> {
    static ONCE: Mutex<Option<All>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(all) = &*once {
        return Ok(all.clone());
    }
    let mut all = Vec::new();
    for ((source, is_spatial), name) in PLACES.into_iter().zip(GROUPS) {
        eprintln!("  {name}");
        let data = source.rows(scale, half(scale))?;
        let attribute = data.attribute(is_spatial);
        let mut row = Vec::new();
        for contender in CONTENDERS.map(Some).into_iter().chain([None]) {
            let (disk, took) = match &contender {
                Some(one) => OnDisk::loaded(scale, std::slice::from_ref(one), &[attribute], &data)?,
                None => OnDisk::loaded(scale, &[], &[], &data)?,
            };
            // The global index is made by the first query.
            if let (Some(NEXT), Some(first)) = (contender, data.rows.first()) {
                let queried = match is_spatial {
                    true => crate::next_baselines::QueryFigures::Window(first.rect),
                    false => crate::next_baselines::QueryFigures::Equal(first.value),
                };
                super::windows::count(&disk.table, NEXT, 0, queried)?;
            }
            let stats = disk.table.db().stats();
            let mb = |bytes: u64| bytes as f64 / 1e6;
            let table: u64 = stats.collections.iter().map(|of| of.table.disk_bytes).sum();
            let indexes = stats.collections.iter().flat_map(|of| &of.indexes);
            let beside = indexes.map(|index| index.tree.disk_bytes).sum::<u64>();
            let memory = disk.table.in_memory().0 as f64 / 1e6 + global_index(&disk.table).0 / 1024.0;
            row.push(Made { took, table: mb(table), beside: mb(beside), memory });
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

fn series(all: &All, what: impl Fn(Made) -> f64) -> Vec<(&'static str, Vec<f64>)> {
    let names = CONTENDERS.map(|contender| contender.name).into_iter().chain([NONE]);
    names.enumerate().map(|(at, name)| (name, all.iter().map(|row| what(row[at])).collect())).collect()
}

fn summary(all: &All, what: impl Fn(Made) -> f64 + Copy) -> String {
    let each = GROUPS.iter().zip(all).map(|(name, row)| {
        let names = CONTENDERS.map(|contender| contender.name).into_iter().chain([NONE]);
        format!("{name}: {}", listed(names.zip(row.iter().map(|made| what(*made)))))
    });
    each.collect::<Vec<_>>().join("; ")
}

pub(super) fn figure_6(scale: &Scale) -> Result<FigureReport> {
    let all = measured(scale)?;
    let mut report = report("next-6", "Figure 6", scale, half(scale));
    report.set("records of each data set", half(scale));
    let whole = |made: Made| made.took.whole;
    let calling = |made: Made| made.took.calling;
    let last = CONTENDERS.len();
    report.departs(
        "a put costs no more with NEXT than with a composite index, background threads included (within a half)",
        all.iter().all(|row| whole(row[at(NEXT)]) < 1.5 * whole(row[at(STANDALONE)])),
        summary(&all, whole),
        "in the paper, NEXT costs less but for rectangles. Here compactions of a composite index move little, since entries \
         are short and compressed by prefixes, while those of the table sort the entries of NEXT anew.",
    );
    report.claim(
        "§6.2.2: in the calling thread NEXT adds little to a put (a third at most): what it builds is built by \
         flushes and compactions",
        all.iter().all(|row| calling(row[at(NEXT)]) < 1.34 * calling(row[last])),
        summary(&all, calling),
    );
    report.departs(
        "in the calling thread a put costs more with an eager index than with NEXT (a tenth at least)",
        all.iter().all(|row| calling(row[at(EAGER)]) > 1.1 * calling(row[at(NEXT)])),
        summary(&all, calling),
        "in the paper, records are only inserted, and the tree in memory is all there is to do. Here it is maintained as an \
         index has to be: each put reads the record that it replaces, to take its value out of the tree.",
    );
    report.claim(
        "§6.2.2: index blocks cost as much without a global index as with it (within a half)",
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
    let share = |row: &[Made], contender| 100.0 * (row[at(contender)].disk() / row[last].disk() - 1.0);
    let shares = |contender: Contender| {
        listed(GROUPS.iter().zip(&all).map(|(name, row)| (*name, share(row, contender))))
    };
    report.claim(
        "§6.2.2: the index blocks of NEXT take no more of the disk than a composite index",
        all.iter().all(|row| row[at(NEXT)].disk() < row[at(STANDALONE)].disk()),
        format!("% of the table: next {}; composite {}", shares(NEXT), shares(STANDALONE)),
    );
    report.departs(
        "index blocks of numbers take less than 15 % of the table",
        [1, 3].iter().all(|place| share(&all[*place], NEXT) < 15.0),
        shares(NEXT),
        "in the paper, 20.65 % of the table: each entry has its value and the place of its block in full. Here \
         entries share prefixes, and places are differences.",
    );
    let memory = |row: &[Made]| 100.0 * row[at(NEXT)].memory / row[last].table;
    report.claim(
        "§3.2: what NEXT keeps in memory is less than 1 % of the table, for numbers and for space",
        all.iter().all(|row| memory(row) < 1.0),
        listed(GROUPS.iter().zip(&all).map(|(name, row)| (*name, memory(row)))),
    );
    report.panels.push(bars("Size on disk", "MB", false, &GROUPS, series(&all, Made::disk)));
    let in_memory = [EAGER, NEXT].map(|one| (one.name, all.iter().map(|row| row[at(one)].memory).collect()));
    report.panels.push(bars("Memory of the index", "MB", true, &GROUPS, in_memory));
    Ok(judged(report, scale))
}
