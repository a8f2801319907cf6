//! The figures of REMIX (Zhong, Chen, Wu and Jiang, FAST 2021), repeated.
//!
//! ```text
//! sizes       table 1: bytes of a view for each key (§3.4)
//! tables      figures 11 to 13: sorted views over sstables alone (§5.1)
//! stores      the compared stores, their records and operations (§5.2)
//! ranges      figures 14 and 15: seeks and scans
//! writes      figures 16 and 17: loads and updates
//! ycsb        figure 18
//! ```

mod ranges;
mod sizes;
mod stores;
mod tables;
mod writes;
mod ycsb;

use super::perseid::load_average;
use super::report::{FigureReport, number};
use super::{Figure, Scale};
use crate::error::Result;

/// All figures of this paper.
pub const FIGURES: &[Figure] = &[
    Figure { name: "remix-table1", title: "Bytes for each key", run: sizes::table_1 },
    Figure { name: "remix-11", title: "Sstables, weak locality", run: tables::figure_11 },
    Figure { name: "remix-12", title: "Sstables, strong locality", run: tables::figure_12 },
    Figure { name: "remix-13", title: "Segment sizes", run: tables::figure_13 },
    Figure { name: "remix-14", title: "Seeks by value size and pattern", run: ranges::figure_14 },
    Figure { name: "remix-15", title: "Scans by length and store size", run: ranges::figure_15 },
    Figure { name: "remix-16", title: "Loading in random order", run: writes::figure_16 },
    Figure { name: "remix-17", title: "Updates by pattern", run: writes::figure_17 },
    Figure { name: "remix-18", title: "YCSB", run: ycsb::figure_18 },
];

const PAPER: &str = "REMIX (FAST 2021)";

/// A report with the settings that all figures share.
fn report(name: &str, what: &str, scale: &Scale) -> FigureReport {
    let title = FIGURES.iter().find(|figure| figure.name == name).map_or("", |figure| figure.title);
    let mut report = FigureReport::new(name, title, &format!("{PAPER}, {what}"));
    report.set("seed", scale.seed);
    report.set("load average", load_average());
    report
}

/// `report`, without its claims if `--records` is below `enough`.
fn judged(mut report: FigureReport, scale: &Scale, enough: u64) -> FigureReport {
    if scale.records < enough {
        report.set("claims", format!("not judged with fewer than {enough} records"));
        report.shapes.clear();
    }
    report
}

/// A temporary folder, removed at its drop.
fn folder(scale: &Scale) -> Result<tempfile::TempDir> {
    Ok(match &scale.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    })
}

/// Figures by the number of runs, such as `8: 2.1, 16: 3.2`.
fn run_summary(figures: impl IntoIterator<Item = (usize, f64)>) -> String {
    let parts: Vec<String> =
        figures.into_iter().map(|(runs, figure)| format!("{runs}: {}", number(figure))).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::report::Content;

    fn scale() -> Scale {
        Scale {
            records: 1_000,
            queries: 5,
            seed: 1,
            pm_read_nanos: 0,
            pm_write_nanos: 0,
            seed_set: None,
            data: None,
            directory: None,
        }
    }

    /// Runs a figure and checks its panels for gaps. Claims need more records.
    fn run_figure(name: &str) {
        let figure = FIGURES.iter().find(|figure| figure.name == name).unwrap();
        let report = (figure.run)(&scale()).unwrap();
        assert_eq!(report.name, name);
        assert!(!report.panels.is_empty());
        for panel in &report.panels {
            let (columns, series) = match &panel.content {
                Content::Bars { groups, series } => (groups.len(), series),
                Content::Lines { x, series } => (x.len(), series),
                Content::Boxes { .. } => panic!("no boxes here"),
            };
            for one in series {
                assert_eq!(one.values.len(), columns, "{name}, {}, {}", panel.title, one.name);
                assert!(one.values.iter().all(|value| value.is_finite()), "{name}, {}", one.name);
            }
        }
        assert_eq!(report.broken().count(), 0, "{}", report.markdown());
    }

    #[test]
    fn views_over_sstables_are_measured() {
        run_figure("remix-11");
        run_figure("remix-12");
        run_figure("remix-13");
    }

    #[test]
    fn sizes_are_measured() {
        run_figure("remix-table1");
    }

    #[test]
    fn ranges_of_stores_are_measured() {
        run_figure("remix-14");
        run_figure("remix-15");
    }

    #[test]
    fn writes_are_measured() {
        run_figure("remix-16");
        run_figure("remix-17");
    }

    #[test]
    fn mixed_workloads_are_measured() {
        run_figure("remix-18");
    }
}
