//! Figure 6: the cost of a put for the index (§5.2.1).

use super::index_only::{
    COMPOSITE_BTREE, COMPOSITE_TRIE, IN_REGIONS, IndexSubject, LOG_BTREE, LOG_TRIE, LSM, LSM_MEMORY,
    MicroBenchmarks, PS_BTREE, PS_DATABASE, PS_TRIE, SUBJECTS, latency, measured, records,
};
use super::workload::Workload;
use super::{bars, listed, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;

const PAIRS: [(IndexSubject, IndexSubject, IndexSubject); 2] =
    [(PS_BTREE, COMPOSITE_BTREE, LOG_BTREE), (PS_TRIE, COMPOSITE_TRIE, LOG_TRIE)];

pub(super) fn figure_6(scale: &Scale) -> Result<FigureReport> {
    let measured = measured(scale)?;
    let mut report = report("perseid-6", "Figure 6", scale, records(scale), &measured.load);
    claims(&mut report, &measured);
    let groups = Workload::ALL.map(Workload::name);
    let put = |subject| Workload::ALL.map(|workload| measured.of(subject, workload).put).to_vec();
    report.panels.push(bars(
        "Put: entry and version table; for an index of a database, the difference to a put without it",
        "CPU µs",
        true,
        &groups,
        SUBJECTS.map(|subject| (subject.name, put(subject))),
    ));
    let stages = IN_REGIONS.map(|subject| {
        let costs = measured.of(subject, Workload::Uniform);
        let unindexed = measured.unindexed(Workload::Uniform);
        (subject.name, vec![costs.put - costs.put_validation, costs.put_validation, unindexed])
    });
    report.panels.push(bars(
        "Put by stage, uniform upserts; log and table: a put without an index",
        "CPU µs",
        false,
        &["index", "version table", "log and table"],
        stages,
    ));
    if let Some(model) = latency(scale) {
        report.set("delays of modelled memory", format!("{} / {} ns", model.read_nanos, model.write_nanos));
        let put = |subject| vec![measured.with_delays(subject).map_or(0.0, |costs| costs.put)];
        report.panels.push(bars(
            "Put with delays of reading and persisting 256 bytes",
            "CPU µs",
            false,
            &["uniform"],
            IN_REGIONS.map(|subject| (subject.name, put(subject))),
        ));
    }
    Ok(report)
}

fn claims(report: &mut FigureReport, measured: &MicroBenchmarks) {
    let put = |subject, workload| measured.of(subject, workload).put;
    let summary = |workload| listed(IN_REGIONS.map(|subject| (subject.name, put(subject, workload))));
    let insert = Workload::Insert;
    report.claim(
        "§5.2.1: an insert into a PS-Tree is cheaper than one into composite keys over the same SKey layer",
        PAIRS.iter().all(|(ps, composite, _)| put(*ps, insert) < put(*composite, insert)),
        summary(insert),
    );
    let upserts = [Workload::Uniform, Workload::SkewedPrimary, Workload::SkewedSecondary];
    let all_summary =
        upserts.map(|workload| format!("{}: {}", workload.name(), summary(workload))).join("; ");
    let ratio = |pair: &(IndexSubject, IndexSubject, IndexSubject), workload| {
        put(pair.0, workload) / put(pair.1, workload)
    };
    report.claim(
        "§5.2.1: with uniform secondary keys, an upsert into a PS-Tree is cheaper than one into composite \
         keys in a B+-tree, and as cheap in a trie (within a tenth)",
        upserts[..2].iter().all(|w| ratio(&PAIRS[0], *w) < 1.0 && ratio(&PAIRS[1], *w) < 1.1),
        all_summary.clone(),
    );
    report.departs(
        "with skewed secondary keys, an upsert into a PS-Tree costs at most as much as one into composite \
         keys (within a third)",
        PAIRS.iter().all(|pair| ratio(pair, upserts[2]) < 1.34),
        all_summary,
        "in the paper, composite keys cost more here too. In memory without delays, the cost of regrouping \
         the entries of popular keys is about that of adding a composite key for each entry.",
    );
    report.claim(
        "§5.2.1: an insert into a log without garbage collection is cheaper than one into a PS-Tree, which \
         splits pages, by less than a half",
        PAIRS.iter().all(|(ps, _, log)| {
            put(*log, insert) < put(*ps, insert) && put(*log, insert) > 0.5 * put(*ps, insert)
        }),
        summary(insert),
    );
    report.claim(
        "§5.2.1: upserts of composite keys cost more than inserts, since their tree grows",
        PAIRS.iter().all(|(_, composite, _)| put(*composite, Workload::Uniform) > put(*composite, insert)),
        format!("insert: {}; uniform: {}", summary(insert), summary(Workload::Uniform)),
    );
    let lsm = |subject| put(subject, Workload::Uniform);
    report.claim(
        "§5.2.1: the cost of an LSM index for a put differs by less than a factor of two between files on \
         disk and in memory",
        lsm(LSM) < 2.0 * lsm(LSM_MEMORY) && lsm(LSM_MEMORY) < 2.0 * lsm(LSM),
        listed([(LSM.name, lsm(LSM)), (LSM_MEMORY.name, lsm(LSM_MEMORY))]),
    );
    report.claim(
        "as an index of a database, a PS-Tree adds less to a put than an LSM index with a primary-key index",
        put(PS_DATABASE, Workload::Uniform) < lsm(LSM),
        listed([(PS_DATABASE.name, put(PS_DATABASE, Workload::Uniform)), (LSM.name, lsm(LSM))]),
    );
}
