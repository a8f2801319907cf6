//! Table 1: counted file accesses, compared with the formulas (§3.4).
//!
//! The formulas count data blocks: with NEXT one access for each answer of a query, and ε accesses to index blocks without a
//! match. Index blocks with a match are counted separately. The block cache is small, so nearly each block is a file access.

use super::dataset::DataSource;
use super::query_sets::{AnswerCounter, QuerySet, QuerySize, around_records};
use super::{NEXT, NEXT_WHOLE, OnDisk, STANDALONE, half, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::FigureReport;
use crate::measure::{Cause, with_cause};
use crate::next_baselines::{Contender, Selection};

/// Mean counts of a query of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct AccessCounts {
    /// Reads of files.
    reads: f64,
    answers: f64,
    /// Data blocks that NEXT reads.
    data_blocks: f64,
    /// Index blocks that NEXT reads, and those of them without a match.
    index_blocks: f64,
    useless: f64,
}

impl AccessCounts {
    /// The value of the formula: a block for each answer, and index blocks without a match.
    fn expected(self) -> f64 {
        self.answers + self.useless
    }
}

fn count(disk: &OnDisk, contender: Contender, selections: &[Selection]) -> Result<AccessCounts> {
    let options = bolide::FindOptions::default().fetch_threads(1);
    // The first access to a file reads its filters and its index: not counted.
    for one in selections {
        disk.table.run_query(contender, 0, *one, &options, |_, _| {})?;
    }
    let before = disk.io.of(Cause::Lookup);
    let mut counted = AccessCounts::default();
    for one in selections {
        let explain =
            with_cause(Cause::Lookup, || disk.table.run_query(contender, 0, *one, &options, |_, _| {}))?;
        counted.answers += explain.answers as f64;
        counted.data_blocks += explain.costs_of::<bolide::NextCosts>().data_blocks_read as f64;
        counted.index_blocks += explain.costs_of::<bolide::NextCosts>().index_blocks_read as f64;
        counted.useless += explain.costs_of::<bolide::NextCosts>().false_positives as f64;
    }
    counted.reads = disk.io.of(Cause::Lookup).since(before).reads as f64;
    let each = |sum: f64| sum / selections.len().max(1) as f64;
    Ok(AccessCounts {
        reads: each(counted.reads),
        answers: each(counted.answers),
        data_blocks: each(counted.data_blocks),
        index_blocks: each(counted.index_blocks),
        useless: each(counted.useless),
    })
}

pub(super) fn table_1(scale: &Scale) -> Result<FigureReport> {
    const CONTENDERS: [Contender; 3] = [STANDALONE, NEXT, NEXT_WHOLE];
    let mut report = report("next-table1", "Table 1", scale, half(scale));
    let data = DataSource::Posts.rows(scale, half(scale))?;
    report.set("data", &data.summary);
    report.set("queries", scale.queries);
    let (disk, _) = OnDisk::loaded(scale, &CONTENDERS, &[data.source.number()], &data)?;
    let queries = scale.queries as usize;
    let of = |answers: f64| around_records(&data, false, answers, queries, scale.seed);
    let points = of(1.0);
    let counter = AnswerCounter::new(&data, false);
    // The middle of each range is the value of a record.
    let middle = |selection: &Selection| match *selection {
        Selection::Between(low, high) => Selection::Equal(((low + high) / 2.0).round()),
        other => other,
    };
    let selections: Vec<Selection> = points.selections.iter().map(middle).collect();
    let answers = selections.iter().map(|one| counter.count(*one)).sum::<usize>() as f64
        / selections.len().max(1) as f64;
    let points = QuerySet { selections, answers, ..points };
    let kinds = [
        ("point", points),
        ("range, small", of(QuerySize::Small.answers(data.rows.len()))),
        ("range, medium", of(QuerySize::Medium.answers(data.rows.len()))),
    ];
    let mut all = Vec::new();
    for (name, set) in &kinds {
        let mut row = Vec::new();
        for contender in CONTENDERS {
            let counted = count(&disk, contender, &set.selections)?;
            if (counted.answers - set.answers).abs() > 1e-6 {
                let (found, expected) = (counted.answers, set.answers);
                return Err(format!("{}: {found} answers instead of {expected}", contender.name).into());
            }
            row.push(counted);
        }
        all.push((*name, row));
    }
    claims(&mut report, &all);
    let groups: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let column =
        |at: usize, what: fn(AccessCounts) -> f64| all.iter().map(|(_, row)| what(row[at])).collect();
    report.panels.push(bars(
        "Reads of files",
        "a query",
        true,
        &groups,
        [
            ("composite, memo", column(0, |one| one.reads)),
            ("next", column(1, |one| one.reads)),
            ("next, by the formula", column(1, AccessCounts::expected)),
            ("next, not split", column(2, |one| one.reads)),
        ],
    ));
    report.panels.push(bars(
        "Blocks of NEXT",
        "a query",
        true,
        &groups,
        [
            ("answers", column(1, |one| one.answers)),
            ("data blocks", column(1, |one| one.data_blocks)),
            ("index blocks", column(1, |one| one.index_blocks)),
            ("index blocks without a match (ε)", column(1, |one| one.useless)),
            ("without a match, not split", column(2, |one| one.useless)),
        ],
    ));
    Ok(judged(report, scale))
}

fn claims(report: &mut FigureReport, all: &[(&str, Vec<AccessCounts>)]) {
    let summary = |what: fn(AccessCounts) -> f64, at: usize| {
        listed(all.iter().map(|(name, row)| (*name, what(row[at]))))
    };
    report.claim(
        "table 1: NEXT reads at most one data block for each answer",
        all.iter().all(|(_, row)| row[1].data_blocks <= row[1].answers + 1e-9),
        format!(
            "data blocks: {}; answers: {}",
            summary(|one| one.data_blocks, 1),
            summary(|one| one.answers, 1)
        ),
    );
    report.claim(
        "table 1: the reads of NEXT are those of data blocks and index blocks (and one in ten more); the \
         formula omits index blocks with matches",
        all.iter().all(|(_, row)| row[1].reads <= 1.1 * (row[1].data_blocks + row[1].index_blocks) + 0.5),
        format!(
            "reads: {}; index blocks: {}",
            summary(|one| one.reads, 1),
            summary(|one| one.index_blocks, 1)
        ),
    );
    report.departs(
        "table 1: for ranges, composite keys read a block for more than half of the answers, and NEXT reads \
         at most as many data blocks (within a tenth)",
        all.iter().skip(1).all(|(_, row)| {
            row[0].reads > 0.5 * row[0].answers && row[1].data_blocks < 1.1 * row[0].reads + 0.5
        }),
        format!(
            "composite, reads: {}; next, data blocks: {}",
            summary(|one| one.reads, 0),
            summary(|one| one.data_blocks, 1)
        ),
        "in the paper, NEXT reads fewer blocks, by the number of records of a block. That requires \
         neighbouring answers in the table. Here users are not correlated with the primary key, and lookups \
         of composite keys are sorted.",
    );
    report.claim(
        "§4: with split ranges, queries read at most as many index blocks without a match (and one in ten \
         more)",
        all.iter().all(|(_, row)| row[1].useless <= 1.1 * row[2].useless + 0.5),
        format!("split {}; whole {}", summary(|one| one.useless, 1), summary(|one| one.useless, 2)),
    );
}
