//! Figure 7: index-only queries for the newest 10 and 200 records of a secondary key (§5.2.2).

use super::index_only::{
    COMPOSITE_BTREE, COMPOSITE_TRIE, IN_REGIONS, LIMITS, LOG_BTREE, LOG_TRIE, LSM, LSM_MEMORY, Measured,
    PS_BTREE, PS_DATABASE, PS_TRIE, SUBJECTS, Subject, latency, measured, records,
};
use super::workload::Workload;
use super::{bars, listed, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::{FigureReport, number};

const TEN: usize = 0;
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
        let took = measured.of(subject, Workload::Uniform);
        (subject.name, vec![took.newest[ALL] - took.validation[ALL], took.validation[ALL]])
    });
    report.panels.push(bars(
        "The newest 200 by stage, uniform upserts (a PS-Tree in a database validates while it reads)",
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
        let of = |subject| measured.modelled(subject).map_or(vec![0.0; 2], |took| took.newest.to_vec());
        report.panels.push(bars(
            "Where reading 256 bytes has a delay, uniform upserts",
            "CPU µs a query",
            true,
            &["newest 10", "newest 200"],
            IN_REGIONS.map(|subject| (subject.name, of(subject))),
        ));
    }
    Ok(report)
}

fn against_lsm(report: &mut FigureReport, measured: &Measured) {
    let newest = |subject, workload, position: usize| measured.of(subject, workload).newest[position];
    let summary = |workload, position| {
        listed(SUBJECTS.map(|subject| (subject.name, newest(subject, workload, position))))
    };
    let every = |holds: &dyn Fn(Workload, usize) -> bool| {
        Workload::ALL.iter().all(|workload| [TEN, ALL].iter().all(|position| holds(*workload, *position)))
    };
    report.claim(
        "§5.2.2: every structure in memory answers faster than LSM trees",
        every(&|workload, position| {
            IN_REGIONS
                .iter()
                .all(|subject| newest(*subject, workload, position) < newest(LSM, workload, position))
        }),
        format!("newest 10, uniform: {}", summary(Workload::Uniform, TEN)),
    );
    let least = |ps: Subject| {
        let gains = Workload::ALL.map(|w| [TEN, ALL].map(|at| newest(LSM, w, at) / newest(ps, w, at)));
        gains.into_iter().flatten().fold(f64::MAX, f64::min)
    };
    report.departs(
        "a PS-Tree at least four times as fast",
        least(PS_BTREE) > 4.0 && least(PS_TRIE) > 4.0,
        format!("least: {}", listed([PS_BTREE, PS_TRIE].map(|ps| (ps.name, least(ps))))),
        "in the paper, it is about two orders of magnitude: each candidate is looked up in a tree of primary keys \
         alone, and these are a thousand times as many. Here the driver reads that tree for all \
         candidates of a query together, in a few small files.",
    );
    let average =
        |subject, position| super::mean(&Workload::ALL.map(|workload| newest(subject, workload, position)));
    report.claim(
        "§5.2.2: an LSM index gains little from having its files in memory (less than a half, over all \
         workloads)",
        [TEN, ALL].iter().all(|at| average(LSM, *at) < 1.5 * average(LSM_MEMORY, *at)),
        listed([
            ("newest 10", average(LSM, TEN)),
            ("in memory", average(LSM_MEMORY, TEN)),
            ("newest 200", average(LSM, ALL)),
            ("in memory", average(LSM_MEMORY, ALL)),
        ]),
    );
    report.claim(
        "as an index of a database, with the driver of all queries, a PS-Tree is at least three times as \
         fast as LSM trees",
        every(&|workload, position| {
            3.0 * newest(PS_DATABASE, workload, position) < newest(LSM, workload, position)
        }),
        Workload::ALL
            .map(|workload| {
                let of = |subject: Subject| number(newest(subject, workload, TEN));
                format!("newest 10, {}: {} against {}", workload.name(), of(PS_DATABASE), of(LSM))
            })
            .join("; "),
    );
}

fn against_structures(report: &mut FigureReport, measured: &Measured) {
    let newest = |subject, workload, position: usize| measured.of(subject, workload).newest[position];
    let summary = |workload, position| {
        listed(IN_REGIONS.map(|subject| (subject.name, newest(subject, workload, position))))
    };
    let gain =
        |ps, other, workload, position| newest(other, workload, position) / newest(ps, workload, position);
    let most = |ps, other| {
        let gains = Workload::ALL.map(|workload| [TEN, ALL].map(|at| gain(ps, other, workload, at)));
        gains.into_iter().flatten().fold(0.0, f64::max)
    };
    let pairs =
        [(PS_BTREE, COMPOSITE_BTREE), (PS_TRIE, COMPOSITE_TRIE), (PS_BTREE, LOG_BTREE), (PS_TRIE, LOG_TRIE)];
    report.claim(
        "§5.2.2: a PS-Tree answers the newest 200 faster than composite keys and than a log, however keys \
         are distributed",
        pairs
            .iter()
            .all(|(ps, other)| Workload::ALL.iter().all(|workload| gain(*ps, *other, *workload, ALL) > 1.0)),
        format!(
            "uniform: {}; most gained: {}",
            summary(Workload::Uniform, ALL),
            listed(pairs.map(|(ps, other)| (other.name, most(ps, other))))
        ),
    );
    report.claim(
        "§5.2.2: composite keys fall behind most where a query has many answers: more for the newest \
         200 than for the newest 10 of popular secondary keys",
        [(PS_BTREE, COMPOSITE_BTREE), (PS_TRIE, COMPOSITE_TRIE)].iter().all(|(ps, composite)| {
            gain(*ps, *composite, Workload::SkewedSecondary, ALL)
                > gain(*ps, *composite, Workload::SkewedSecondary, TEN)
        }),
        format!(
            "newest 10: {}; newest 200: {}",
            summary(Workload::SkewedSecondary, TEN),
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
        "§5.2.2: the newest 10 of popular secondary keys are found faster than of random ones: they are in \
         the cache",
        [PS_BTREE, PS_TRIE]
            .iter()
            .all(|ps| newest(*ps, Workload::SkewedSecondary, TEN) < newest(*ps, Workload::Uniform, TEN)),
        format!(
            "uniform: {}; skewed-sec: {}",
            summary(Workload::Uniform, TEN),
            summary(Workload::SkewedSecondary, TEN)
        ),
    );
    let trie =
        newest(COMPOSITE_TRIE, Workload::Uniform, ALL) / newest(COMPOSITE_BTREE, Workload::Uniform, ALL);
    report.departs(
        "composite keys are read through in a trie about as fast as in a B+-tree (within a third)",
        (0.75..1.34).contains(&trie),
        summary(Workload::Uniform, ALL),
        "in the paper, a trie is slower. Here its nodes hold what distinguishes neighbouring keys beside the way to each of them, as \
         those of the B+-tree do, and the keys of one secondary key lie in nodes of their own.",
    );
}

fn stages(report: &mut FigureReport, measured: &Measured) {
    let share = |subject, workload| {
        let took = measured.of(subject, workload);
        took.validation[ALL] / took.newest[ALL]
    };
    let summary = |workload| {
        listed([PS_BTREE, PS_TRIE, LSM].map(|subject: Subject| (subject.name, share(subject, workload))))
    };
    let upserts = [Workload::Uniform, Workload::SkewedPrimary, Workload::SkewedSecondary];
    let shares =
        upserts.map(|workload| format!("share, {}: {}", workload.name(), summary(workload))).join("; ");
    let most = |workload| share(PS_BTREE, workload).max(share(PS_TRIE, workload));
    report.claim(
        "§5.2.2: validating by the version table takes less than half of a query to a PS-Tree where \
         secondary keys are uniform",
        upserts[..2].iter().all(|workload| most(*workload) < 0.5),
        shares.clone(),
    );
    report.departs(
        "and no more than two thirds where they are skewed",
        most(upserts[2]) < 0.67,
        shares,
        "in the paper, it is less than half here too. Here the many entries of a popular key are read one after \
         the other from a few pages, each in less time than it takes to look it up.",
    );
    let validation = |subject| measured.of(subject, Workload::Uniform).validation[ALL];
    report.claim(
        "§5.2.2: validating by a tree of primary keys takes an LSM index at least five times as long as \
         the version table takes a PS-Tree",
        validation(LSM) > 5.0 * validation(PS_BTREE) && validation(LSM) > 5.0 * validation(PS_TRIE),
        listed([PS_BTREE, PS_TRIE, LSM].map(|subject: Subject| (subject.name, validation(subject)))),
    );
    let lsm = |workload| measured.of(LSM, workload).newest[ALL];
    let (uniform, skewed) = (lsm(Workload::Uniform), lsm(Workload::SkewedPrimary));
    report.departs(
        "an LSM index answers about as fast where primary keys are skewed as where they are uniform \
         (within a half)",
        skewed < 1.5 * uniform && uniform < 1.5 * skewed,
        listed(upserts.map(|workload| (workload.name(), lsm(workload)))),
        "in the paper, it is faster with skewed keys, which the tree of primary keys finds in the cache. Here \
         that tree is small, and how many runs the trees happen to have weighs as much.",
    );
}
