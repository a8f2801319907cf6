//! Figure 6: what a put costs the index (§5.2.1).

use super::index_only::{
    COMPOSITE_BTREE, COMPOSITE_TRIE, IN_REGIONS, LOG_BTREE, LOG_TRIE, LSM, LSM_MEMORY, Measured, PS_BTREE,
    PS_DATABASE, PS_TRIE, SUBJECTS, Subject, latency, measured, records,
};
use super::workload::Workload;
use super::{bars, listed, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;

const PAIRS: [(Subject, Subject, Subject); 2] =
    [(PS_BTREE, COMPOSITE_BTREE, LOG_BTREE), (PS_TRIE, COMPOSITE_TRIE, LOG_TRIE)];

pub(super) fn figure_6(scale: &Scale) -> Result<FigureReport> {
    let measured = measured(scale)?;
    let mut report = report("perseid-6", "Figure 6", scale, records(scale), &measured.load);
    claims(&mut report, &measured);
    let groups = Workload::ALL.map(Workload::name);
    let put = |subject| Workload::ALL.map(|workload| measured.of(subject, workload).put).to_vec();
    report.panels.push(bars(
        "A put: entry and version table; of an index of a database, what it adds to a put",
        "CPU µs",
        true,
        &groups,
        SUBJECTS.map(|subject| (subject.name, put(subject))),
    ));
    let stages = IN_REGIONS.map(|subject| {
        let took = measured.of(subject, Workload::Uniform);
        let bare = measured.bare(Workload::Uniform);
        (subject.name, vec![took.put - took.put_validation, took.put_validation, bare])
    });
    report.panels.push(bars(
        "A put by stage, uniform upserts; log and table of a record that has nothing else",
        "CPU µs",
        false,
        &["index", "version table", "log and table"],
        stages,
    ));
    if let Some(model) = latency(scale) {
        report.set("delays of modelled memory", format!("{} / {} ns", model.read_nanos, model.write_nanos));
        let put = |subject| vec![measured.modelled(subject).map_or(0.0, |took| took.put)];
        report.panels.push(bars(
            "A put where reading and persisting 256 bytes has delays",
            "CPU µs",
            false,
            &["uniform"],
            IN_REGIONS.map(|subject| (subject.name, put(subject))),
        ));
    }
    Ok(report)
}

fn claims(report: &mut FigureReport, measured: &Measured) {
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
    let ratio = |pair: &(Subject, Subject, Subject), workload| put(pair.0, workload) / put(pair.1, workload);
    report.claim(
        "§5.2.1: where secondary keys are uniform, an upsert into a PS-Tree is cheaper than one into \
         composite keys in a B+-tree, and no dearer in a trie (by more than a tenth)",
        upserts[..2].iter().all(|w| ratio(&PAIRS[0], *w) < 1.0 && ratio(&PAIRS[1], *w) < 1.1),
        all_summary.clone(),
    );
    report.departs(
        "where they are skewed it costs about as much (within a third), or less",
        PAIRS.iter().all(|pair| ratio(pair, upserts[2]) < 1.34),
        all_summary,
        "in the paper, composite keys are dearer here too. In memory without delays, what a PS-Tree spends on \
         regrouping the many entries of popular keys is about what it saves by not adding a key for each.",
    );
    report.claim(
        "§5.2.1: a log that is never collected is cheaper to insert into than a PS-Tree, which splits \
         pages, but not by more than half of it",
        PAIRS.iter().all(|(ps, _, log)| {
            put(*log, insert) < put(*ps, insert) && put(*log, insert) > 0.5 * put(*ps, insert)
        }),
        summary(insert),
    );
    report.claim(
        "§5.2.1: upserts make composite keys dearer, since their tree grows",
        PAIRS.iter().all(|(_, composite, _)| put(*composite, Workload::Uniform) > put(*composite, insert)),
        format!("insert: {}; uniform: {}", summary(insert), summary(Workload::Uniform)),
    );
    let lsm = |subject| put(subject, Workload::Uniform);
    report.claim(
        "§5.2.1: keeping the files of an LSM index in memory changes what it adds to a put by less than a \
         factor of two",
        lsm(LSM) < 2.0 * lsm(LSM_MEMORY) && lsm(LSM_MEMORY) < 2.0 * lsm(LSM),
        listed([(LSM.name, lsm(LSM)), (LSM_MEMORY.name, lsm(LSM_MEMORY))]),
    );
    report.claim(
        "as an index of a database, a PS-Tree adds less to a put than an LSM index that is validated by \
         primary keys",
        put(PS_DATABASE, Workload::Uniform) < lsm(LSM),
        listed([(PS_DATABASE.name, put(PS_DATABASE, Workload::Uniform)), (LSM.name, lsm(LSM))]),
    );
}
