//! The figures of Perseid (Wang, Lu, Wang, Zhang and Shu, USENIX ATC 2023), repeated.
//!
//! ```text
//! workload     the writes and queries (§5.1)
//! index_only   the measurements of figures 6 to 8: indexes alone (§5.2.1 to §5.2.3)
//! inserts, lookups, ranges, threads   figures 6, 7, 8, 9
//! records      figures 10 and 11: queries for records (§5.2.5)
//! mixed        figure 12 and table 1 (§5.3)
//! recovery     reopening (§5.4)
//! ```

mod index_only;
mod inserts;
mod lookups;
mod mixed;
mod ranges;
mod records;
mod recovery;
mod threads;
mod workload;

use super::report::{Content, FigureReport, Panel, Series};
use super::{Figure, Scale};
use crate::pm_baselines::LsmKind;

/// All figures of this paper.
pub const FIGURES: &[Figure] = &[
    Figure { name: "perseid-6", title: "Inserts and upserts of the index alone", run: inserts::figure_6 },
    Figure { name: "perseid-7", title: "Index-only queries", run: lookups::figure_7 },
    Figure { name: "perseid-8", title: "Index-only range queries", run: ranges::figure_8 },
    Figure { name: "perseid-9", title: "Upserts and queries from several threads", run: threads::figure_9 },
    Figure {
        name: "perseid-10",
        title: "Queries for records, by sequence range and in parallel",
        run: records::figure_10,
    },
    Figure { name: "perseid-11", title: "The same over a leveled table", run: records::figure_11 },
    Figure { name: "perseid-12", title: "Mixed workloads", run: mixed::figure_12 },
    Figure { name: "perseid-table1", title: "Operations of the mixed workloads", run: mixed::table_1 },
    Figure {
        name: "perseid-recovery",
        title: "Reopening after a crash and after a close",
        run: recovery::figure,
    },
];

const PAPER: &str = "Perseid (USENIX ATC 2023)";
/// Bytes of a record, where queries return records (§5.1).
const RECORD_BYTES: usize = 1024;

/// Databases of such records, with cache and memtables in the proportion of the paper.
fn table(tiered: bool) -> LsmKind {
    LsmKind { index: None, in_memory: false, cache_bytes: 16 << 20, memtable_bytes: 2 << 20, tiered }
}

/// A report with the settings that all figures share; `load` as [`load_average`] returned before the measurement.
fn report(name: &str, what: &str, scale: &Scale, records: u64, load: &str) -> FigureReport {
    let title = FIGURES.iter().find(|figure| figure.name == name).map_or("", |figure| figure.title);
    let mut report = FigureReport::new(name, title, &format!("{PAPER}, {what}"));
    report.set("records", records);
    report.set("records a secondary key", workload::RECORDS_PER_KEY);
    report.set("seed", scale.seed);
    report.set("load average", load);
    report
}

/// The load average of the last minute; empty if the system does not report it.
pub(super) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// One bar for each subject in each group.
pub(super) fn bars(
    title: &str,
    y_label: &str,
    log: bool,
    groups: &[&str],
    series: impl IntoIterator<Item = (&'static str, Vec<f64>)>,
) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: y_label.to_owned(),
        log,
        content: Content::Bars {
            groups: groups.iter().map(ToString::to_string).collect(),
            series: named(series),
        },
    }
}

/// One line for each subject.
pub(super) fn lines(
    title: &str,
    labels: (&str, &str),
    log: bool,
    x: Vec<f64>,
    series: impl IntoIterator<Item = (&'static str, Vec<f64>)>,
) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: labels.0.to_owned(),
        y_label: labels.1.to_owned(),
        log,
        content: Content::Lines { x, series: named(series) },
    }
}

fn named(series: impl IntoIterator<Item = (&'static str, Vec<f64>)>) -> Vec<Series<f64>> {
    series.into_iter().map(|(name, values)| Series { name: name.to_owned(), values }).collect()
}

/// Named figures, such as `name 1.2, name 3.4`, for the text of a claim.
pub(super) fn listed<'n>(values: impl IntoIterator<Item = (&'n str, f64)>) -> String {
    let parts: Vec<String> =
        values.into_iter().map(|(name, value)| format!("{name} {}", super::report::number(value))).collect();
    parts.join(", ")
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
