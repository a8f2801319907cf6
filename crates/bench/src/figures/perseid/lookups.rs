//! Figure 7: index-only queries for the newest 10 and 200 records of a secondary key (§5.2.2).

use super::index_only::{
    COMPOSITE_BTREE, COMPOSITE_TRIE, IN_REGIONS, IndexSubject, LIMITS, LOG_BTREE, LOG_TRIE, LSM, LSM_MEMORY,
    MicroBenchmarks, PS_BTREE, PS_DATABASE, PS_TRIE, SUBJECTS, latency, measured, records,
};
use super::workload::Workload;
use super::{bars, listed, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{FigureReport, number};

const NEWEST_10: usize = 0;
const ALL: usize = 1;

pub(super) fn figure_7(scale: &Scale) -> Result<FigureReport> {
    let measured = measured(scale)?;
    let mut report = report("perseid-7", "Figure 7", scale, records(scale), &measured.load);
    let rows = |workload| number(measured.of(PS_BTREE, workload).rows[ALL]);
    let rows = Workload::ALL.map(|workload| format!("{} {}", workload.name(), rows(workload)));
    report.set("answers for limit 200", rows.join(", "));
    against_lsm(&mut report, &measured);
    against_structures(&mut report, &measured);
    stages(&mut report, &measured);
    let groups = Workload::ALL.map(Workload::name);
    for (position, limit) in LIMITS.iter().enumerate() {
        let of =
            |subject| Workload::ALL.map(|workload| measured.of(subject, workload).newest[position]).to_vec();
        report.panels.push(bars(
            &format!("The newest {limit}"),
            "CPU µs a query",
            true,
            &groups,
            SUBJECTS.map(|subject| (subject.name, of(subject))),
        ));
    }
    let shares = SUBJECTS.map(|subject| {
        let costs = measured.of(subject, Workload::Uniform);
        (subject.name, vec![costs.newest[ALL] - costs.validation[ALL], costs.validation[ALL]])
    });
    report.panels.push(bars(
        "The newest 200 by stage, uniform upserts (a PS-Tree in a database validates during the read)",
        "CPU µs a query",
        true,
        &["index", "validation"],
        shares,
    ));
    let bytes = |subject| Workload::ALL.map(|workload| measured.of(subject, workload).bytes).to_vec();
    report.panels.push(bars(
        "Space, version table included",
        "bytes a live record",
        false,
        &groups,
        IN_REGIONS.map(|subject| (subject.name, bytes(subject))),
    ));
    if let Some(model) = latency(scale) {
        report.set("delays of modelled memory", format!("{} / {} ns", model.read_nanos, model.write_nanos));
        let of = |subject| measured.with_delays(subject).map_or(vec![0.0; 2], |costs| costs.newest.to_vec());
        report.panels.push(bars(
            "With a delay of reading 256 bytes, uniform upserts",
            "CPU µs a query",
            true,
            &["newest 10", "newest 200"],
            IN_REGIONS.map(|subject| (subject.name, of(subject))),
        ));
    }
    Ok(report)
}

fn against_lsm(report: &mut FigureReport, measured: &MicroBenchmarks) {
    let newest = |subject, workload, position: usize| measured.of(subject, workload).newest[position];
    let summary = |workload, position| {
        listed(SUBJECTS.map(|subject| (subject.name, newest(subject, workload, position))))
    };
    let every = |holds: &dyn Fn(Workload, usize) -> bool| {
        Workload::ALL
            .iter()
            .all(|workload| [NEWEST_10, ALL].iter().all(|position| holds(*workload, *position)))
    };
    report.claim(
        "§5.2.2: queries to every structure in memory are faster than to LSM trees",
        every(&|workload, position| {
            IN_REGIONS
                .iter()
                .all(|subject| newest(*subject, workload, position) < newest(LSM, workload, position))
        }),
        format!("newest 10, uniform: {}", summary(Workload::Uniform, NEWEST_10)),
    );
    let min_gain = |ps: IndexSubject| {
        let gains = Workload::ALL.map(|w| [NEWEST_10, ALL].map(|at| newest(LSM, w, at) / newest(ps, w, at)));
        gains.into_iter().flatten().fold(f64::MAX, f64::min)
    };
    report.departs(
        "queries to a PS-Tree are at least four times as fast as to LSM trees",
        min_gain(PS_BTREE) > 4.0 && min_gain(PS_TRIE) > 4.0,
        format!("minimum: {}", listed([PS_BTREE, PS_TRIE].map(|ps| (ps.name, min_gain(ps))))),
        "in the paper, about two orders of magnitude: each candidate is a separate lookup in a tree of \
         primary keys with a thousand times as many keys. Here the driver looks up all candidates of a \
         query together, in a few small files.",
    );
    let average =
        |subject, position| super::mean(&Workload::ALL.map(|workload| newest(subject, workload, position)));
    report.claim(
        "§5.2.2: queries to an LSM index gain less than a half from files in memory, over all workloads",
        [NEWEST_10, ALL].iter().all(|at| average(LSM, *at) < 1.5 * average(LSM_MEMORY, *at)),
        listed([
            ("newest 10", average(LSM, NEWEST_10)),
            ("in memory", average(LSM_MEMORY, NEWEST_10)),
            ("newest 200", average(LSM, ALL)),
            ("in memory", average(LSM_MEMORY, ALL)),
        ]),
    );
    report.claim(
        "as an index of a database, with the lookup driver, a PS-Tree is at least three times as fast as \
         LSM trees",
        every(&|workload, position| {
            3.0 * newest(PS_DATABASE, workload, position) < newest(LSM, workload, position)
        }),
        Workload::ALL
            .map(|workload| {
                let of = |subject: IndexSubject| number(newest(subject, workload, NEWEST_10));
                format!("newest 10, {}: {} against {}", workload.name(), of(PS_DATABASE), of(LSM))
            })
            .join("; "),
    );
}

fn against_structures(report: &mut FigureReport, measured: &MicroBenchmarks) {
    let newest = |subject, workload, position: usize| measured.of(subject, workload).newest[position];
    let summary = |workload, position| {
        listed(IN_REGIONS.map(|subject| (subject.name, newest(subject, workload, position))))
    };
    let gain =
        |ps, other, workload, position| newest(other, workload, position) / newest(ps, workload, position);
    let max_gain = |ps, other| {
        let gains = Workload::ALL.map(|workload| [NEWEST_10, ALL].map(|at| gain(ps, other, workload, at)));
        gains.into_iter().flatten().fold(0.0, f64::max)
    };
    let pairs =
        [(PS_BTREE, COMPOSITE_BTREE), (PS_TRIE, COMPOSITE_TRIE), (PS_BTREE, LOG_BTREE), (PS_TRIE, LOG_TRIE)];
    report.claim(
        "§5.2.2: queries for the newest 200 are faster with a PS-Tree than with composite keys and with a \
         log, under every distribution of keys",
        pairs
            .iter()
            .all(|(ps, other)| Workload::ALL.iter().all(|workload| gain(*ps, *other, *workload, ALL) > 1.0)),
        format!(
            "uniform: {}; maximum gain: {}",
            summary(Workload::Uniform, ALL),
            listed(pairs.map(|(ps, other)| (other.name, max_gain(ps, other))))
        ),
    );
    report.claim(
        "§5.2.2: the gain over composite keys grows with the number of answers: it is larger for the newest \
         200 than for the newest 10 of popular secondary keys",
        [(PS_BTREE, COMPOSITE_BTREE), (PS_TRIE, COMPOSITE_TRIE)].iter().all(|(ps, composite)| {
            gain(*ps, *composite, Workload::SkewedSecondary, ALL)
                > gain(*ps, *composite, Workload::SkewedSecondary, NEWEST_10)
        }),
        format!(
            "newest 10: {}; newest 200: {}",
            summary(Workload::SkewedSecondary, NEWEST_10),
            summary(Workload::SkewedSecondary, ALL)
        ),
    );
    let bytes = |subject| measured.of(subject, Workload::Uniform).bytes;
    report.claim(
        "§5.2.2: composite keys take at least twice the space of a PS-Tree after upserts",
        bytes(COMPOSITE_BTREE) > 2.0 * bytes(PS_BTREE) && bytes(COMPOSITE_TRIE) > 2.0 * bytes(PS_TRIE),
        listed(IN_REGIONS.map(|subject| (subject.name, bytes(subject)))),
    );
    report.claim(
        "§5.2.2: queries for the newest 10 are faster with popular secondary keys than with random ones, \
         since their entries are cached",
        [PS_BTREE, PS_TRIE].iter().all(|ps| {
            newest(*ps, Workload::SkewedSecondary, NEWEST_10) < newest(*ps, Workload::Uniform, NEWEST_10)
        }),
        format!(
            "uniform: {}; skewed-sec: {}",
            summary(Workload::Uniform, NEWEST_10),
            summary(Workload::SkewedSecondary, NEWEST_10)
        ),
    );
    let trie =
        newest(COMPOSITE_TRIE, Workload::Uniform, ALL) / newest(COMPOSITE_BTREE, Workload::Uniform, ALL);
    report.departs(
        "scans of composite keys are about as fast in a trie as in a B+-tree (within a third)",
        (0.75..1.34).contains(&trie),
        summary(Workload::Uniform, ALL),
        "in the paper, a trie is slower. Here its nodes store the distinguishing bytes of neighbouring \
         keys, as those of the B+-tree do, and the keys of one secondary key have nodes of their own.",
    );
}

fn stages(report: &mut FigureReport, measured: &MicroBenchmarks) {
    let share = |subject, workload| {
        let costs = measured.of(subject, workload);
        costs.validation[ALL] / costs.newest[ALL]
    };
    let summary = |workload| {
        listed([PS_BTREE, PS_TRIE, LSM].map(|subject: IndexSubject| (subject.name, share(subject, workload))))
    };
    let upserts = [Workload::Uniform, Workload::SkewedPrimary, Workload::SkewedSecondary];
    let shares =
        upserts.map(|workload| format!("share, {}: {}", workload.name(), summary(workload))).join("; ");
    let max_share = |workload| share(PS_BTREE, workload).max(share(PS_TRIE, workload));
    report.claim(
        "§5.2.2: validation by the version table takes less than half of a query to a PS-Tree with uniform \
         secondary keys",
        upserts[..2].iter().all(|workload| max_share(*workload) < 0.5),
        shares.clone(),
    );
    report.departs(
        "validation by the version table takes less than two thirds of a query to a PS-Tree with skewed \
         secondary keys",
        max_share(upserts[2]) < 0.67,
        shares,
        "in the paper, less than half here too. Here the entries of a popular key are read in sequence from \
         few pages, in less time for each than its lookup in the version table.",
    );
    let validation = |subject| measured.of(subject, Workload::Uniform).validation[ALL];
    report.claim(
        "§5.2.2: validation by a tree of primary keys (LSM) takes at least five times as long as by the \
         version table (PS-Tree)",
        validation(LSM) > 5.0 * validation(PS_BTREE) && validation(LSM) > 5.0 * validation(PS_TRIE),
        listed([PS_BTREE, PS_TRIE, LSM].map(|subject: IndexSubject| (subject.name, validation(subject)))),
    );
    let lsm = |workload| measured.of(LSM, workload).newest[ALL];
    let (uniform, skewed) = (lsm(Workload::Uniform), lsm(Workload::SkewedPrimary));
    report.departs(
        "queries to an LSM index are about as fast with skewed as with uniform primary keys (within a half)",
        skewed < 1.5 * uniform && uniform < 1.5 * skewed,
        listed(upserts.map(|workload| (workload.name(), lsm(workload)))),
        "in the paper, they are faster with skewed keys, which are cached in the tree of primary keys. Here \
         that tree is small, and the number of runs of the trees has an equal effect.",
    );
}
