//! Figure 8: index-only queries for the newest five records of each of 20 neighbouring secondary keys (§5.2.3).

use super::index_only::{
    COMPOSITE_BTREE, COMPOSITE_TRIE, IN_REGIONS, IndexSubject, LOG_BTREE, LOG_TRIE, LSM, LSM_MEMORY,
    PS_BTREE, PS_DATABASE, PS_TRIE, RANGE, SUBJECTS, latency, measured, records,
};
use super::workload::Workload;
use super::{bars, listed, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;

pub(super) fn figure_8(scale: &Scale) -> Result<FigureReport> {
    let measured = measured(scale)?;
    let mut report = report("perseid-8", "Figure 8", scale, records(scale), &measured.load);
    report.set("secondary keys of a range", RANGE.0);
    report.set("records of each", RANGE.1);
    let range = |subject, workload| measured.of(subject, workload).range;
    let summary = |workload| listed(SUBJECTS.map(|subject| (subject.name, range(subject, workload))));
    let gains = |of: &[(IndexSubject, IndexSubject)]| {
        listed(of.iter().map(|(ps, other)| {
            (other.name, range(*other, Workload::SkewedSecondary) / range(*ps, Workload::SkewedSecondary))
        }))
    };
    let lsm = [(PS_BTREE, LSM_MEMORY), (PS_TRIE, LSM)];
    report.claim(
        "§5.2.3: range queries are at least ten times as fast with a PS-Tree as with LSM trees, with files \
         on disk or in memory",
        Workload::ALL.iter().all(|workload| {
            [LSM, LSM_MEMORY].iter().all(|lsm| {
                [PS_BTREE, PS_TRIE].iter().all(|ps| range(*lsm, *workload) > 10.0 * range(*ps, *workload))
            })
        }),
        format!("uniform: {}; times as fast, skewed-sec: {}", summary(Workload::Uniform), gains(&lsm)),
    );
    let composite = [(PS_BTREE, COMPOSITE_BTREE), (PS_TRIE, COMPOSITE_TRIE)];
    report.claim(
        "§5.2.3: range queries are faster with a PS-Tree than with composite keys, under every distribution \
         of keys",
        composite.iter().all(|(ps, other)| {
            Workload::ALL.iter().all(|workload| range(*other, *workload) > range(*ps, *workload))
        }),
        format!("skewed-sec: {}; times as fast: {}", summary(Workload::SkewedSecondary), gains(&composite)),
    );
    let log = [(PS_BTREE, LOG_BTREE), (PS_TRIE, LOG_TRIE)];
    let against_log = |workload: Workload, factor: f64| {
        log.iter().all(|(ps, other)| range(*ps, workload) < factor * range(*other, workload))
    };
    let log_summary =
        format!("skewed-sec: {}; times as fast: {}", summary(Workload::SkewedSecondary), gains(&log));
    report.claim(
        "§5.2.3: after upserts, range queries are faster with a PS-Tree than with a log, which stores \
         entries of neighbouring keys at distant offsets",
        Workload::ALL.iter().all(|workload| *workload == Workload::Insert || against_log(*workload, 1.0)),
        log_summary,
    );
    report.departs(
        "after inserts alone, range queries with a PS-Tree are as fast as with a log or faster (within a half)",
        against_log(Workload::Insert, 1.5),
        format!("insert: {}", summary(Workload::Insert)),
        "in the paper, they are faster here too. In memory without delays, entries at distant offsets cost \
         little more than neighbours; the panel with delays shows the difference.",
    );
    report.claim(
        "as an index of a database, range queries with a PS-Tree are at least three times as fast as with \
         LSM trees",
        Workload::ALL.iter().all(|workload| range(LSM, *workload) > 3.0 * range(PS_DATABASE, *workload)),
        listed(
            Workload::ALL
                .map(|workload| (workload.name(), range(LSM, workload) / range(PS_DATABASE, workload))),
        ),
    );
    report.panels.push(bars(
        "The newest five of each of 20 secondary keys",
        "CPU µs a query",
        true,
        &Workload::ALL.map(Workload::name),
        SUBJECTS
            .map(|subject| (subject.name, Workload::ALL.map(|workload| range(subject, workload)).to_vec())),
    ));
    if let Some(model) = latency(scale) {
        report.set("delays of modelled memory", format!("{} / {} ns", model.read_nanos, model.write_nanos));
        let of = |subject| vec![measured.with_delays(subject).map_or(0.0, |costs| costs.range)];
        report.panels.push(bars(
            "With a delay of reading 256 bytes",
            "CPU µs a query",
            true,
            &["uniform"],
            IN_REGIONS.map(|subject| (subject.name, of(subject))),
        ));
    }
    Ok(report)
}
