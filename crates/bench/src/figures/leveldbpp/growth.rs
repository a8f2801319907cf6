//! Figure 9: PUT in a growing database; figure 19: PUT with and without compression.

use super::indexed_database::{
    COMPOSITE, COMPOSITE_NEWEST, EAGER, EAGER_SPLIT, EMBEDDED, IndexVariant, IndexedDatabase, LAZY,
};
use super::{TIME, USER, listed, location, named, of, report, seed_set, tweets};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::leveldbpp::dataset::Tweet;
use crate::figures::report::{Content, FigureReport, Panel};
use crate::measure::{Cause, process_cpu_nanos};

const KINDS: [IndexVariant; 6] = [EMBEDDED, EAGER, EAGER_SPLIT, LAZY, COMPOSITE, COMPOSITE_NEWEST];
const STEPS: usize = 10;
const PAGE: f64 = 4096.0;

/// The costs of each tenth of the records.
struct Growth {
    /// CPU microseconds of a record, background threads included.
    micros: Vec<f64>,
    /// Pages read and written by flushes and compactions so far, in thousands.
    compaction_pages: Vec<f64>,
}

fn grow(
    scale: &Scale,
    kind: IndexVariant,
    attribute: &str,
    rows: &[Tweet],
    compressed: bool,
) -> Result<Growth> {
    let subject = IndexedDatabase::open(&location(scale), kind, &[attribute], compressed)?;
    let mut growth = Growth { micros: Vec::new(), compaction_pages: Vec::new() };
    for step in rows.chunks(rows.len().div_ceil(STEPS)) {
        growth.micros.push({
            let before = process_cpu_nanos();
            for row in step {
                subject.put(row)?;
            }
            subject.settle();
            (process_cpu_nanos() - before) as f64 / 1000.0 / step.len() as f64
        });
        let io = subject.io().of(Cause::Compaction);
        growth.compaction_pages.push((io.read_bytes + io.written_bytes) as f64 / PAGE / 1000.0);
    }
    Ok(growth)
}

fn lines(title: &str, y_label: &str, scale: &Scale, series: Vec<(IndexVariant, Vec<f64>)>) -> Panel {
    let step = scale.records as f64 / STEPS as f64 / 1000.0;
    Panel {
        title: title.to_owned(),
        x_label: "thousand records".to_owned(),
        y_label: y_label.to_owned(),
        log: true,
        content: Content::Lines {
            x: (1..=STEPS).map(|position| position as f64 * step).collect(),
            series: named(series),
        },
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn figure_9(scale: &Scale) -> Result<FigureReport> {
    const MICROS: &str = "CPU µs for a record, whole process";
    let seed_set = seed_set(scale)?;
    let (_, rows) = tweets(scale, &seed_set);
    let mut report = report("leveldbpp-9", "Figure 9", scale, &seed_set);
    let (mut user, mut time, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    for kind in KINDS {
        let by_user = grow(scale, kind, USER, &rows, true)?;
        user.push((kind, by_user.micros));
        pages.push((kind, by_user.compaction_pages));
        time.push((kind, grow(scale, kind, TIME, &rows, true)?.micros));
    }
    let of_user = |kind| of(&user, kind);
    let summary =
        |all: &[(IndexVariant, Vec<f64>)]| listed(&KINDS.map(|kind| (kind.name, mean(&of(all, kind)))));
    let last = |kind| of(&pages, kind).last().copied().unwrap_or(0.0);
    let (begin, end) = (mean(&of_user(EAGER)[..2]), mean(&of_user(EAGER)[STEPS - 2..]));
    report.claim(
        "the cost of a PUT with an unsplit eager index on the user grows with the database",
        end > 1.3 * begin,
        listed(&[("first fifth", begin), ("last fifth", end)]),
    );
    let steady =
        |kind: IndexVariant| mean(&of_user(kind)[STEPS / 2..]) < 2.0 * mean(&of_user(kind)[..STEPS / 2]);
    report.claim(
        "the cost of a PUT with the other kinds is constant (within a factor of two)",
        [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST].iter().all(|kind| steady(*kind)),
        summary(&user),
    );
    report.claim(
        "compactions of the unsplit eager index on the user read and write the most pages",
        [EMBEDDED, LAZY, COMPOSITE].iter().all(|kind| last(EAGER) > 1.5 * last(*kind)),
        listed(&KINDS.map(|kind| (kind.name, last(kind)))),
    );
    report.claim(
        "the unsplit eager index costs less on time than on users, since its lists are written once",
        mean(&of(&time, EAGER)) < mean(&of(&user, EAGER)),
        summary(&time),
    );
    report.panels = vec![
        lines("PUT, index on user", MICROS, scale, user),
        lines("PUT, index on time", MICROS, scale, time),
        lines("I/O of compactions, index on user", "thousand pages of 4 KiB, cumulated", scale, pages),
    ];
    Ok(report)
}

pub(super) fn figure_19(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let (_, rows) = tweets(scale, &seed_set);
    let mut report = report("leveldbpp-19", "Figure 19", scale, &seed_set);
    let mut all = Vec::new();
    for kind in KINDS {
        let with = mean(&grow(scale, kind, USER, &rows, true)?.micros);
        let without = mean(&grow(scale, kind, USER, &rows, false)?.micros);
        all.push((kind, vec![with, without]));
    }
    let cost = |kind, column: usize| of(&all, kind).get(column).copied().unwrap_or(0.0);
    let summary = |column| listed(&KINDS.map(|kind| (kind.name, cost(kind, column))));
    report.claim(
        "the unsplit eager index costs more than embedded, lazy and composite ones, with and without \
         compression",
        [EMBEDDED, LAZY, COMPOSITE, COMPOSITE_NEWEST]
            .iter()
            .all(|kind| (0..2).all(|column| cost(EAGER, column) > cost(*kind, column))),
        format!("compressed: {}; not: {}", summary(0), summary(1)),
    );
    let change = all
        .iter()
        .map(|(_, values)| values[0] / values[1])
        .fold(0.0f64, |maximum, ratio| maximum.max(ratio.max(1.0 / ratio)));
    report.claim(
        "compression changes the cost of every kind by less than a half",
        change < 1.5,
        listed(&[("maximum", change)]),
    );
    report.panels = vec![super::bars(
        "PUT, index on user",
        "CPU µs for a record, whole process",
        true,
        &["lz4", "not compressed"],
        all,
    )];
    Ok(report)
}
