//! Table 1: file accesses counted, beside the formulas (§3.4).
//!
//! The formulas count data blocks. Of NEXT each of a query is one access, and ε are the index blocks that the global index
//! leads to in vain; the index blocks that it does read are counted beside. The block cache is too small to
//! keep much, so nearly each block is an access to a file.

use super::dataset::Source;
use super::windows::{Counter, Size, Windows, around_records};
use super::{NEXT, NEXT_WHOLE, OnDisk, STANDALONE, half, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::FigureReport;
use crate::measure::{Cause, because};
use crate::next_baselines::{Contender, QueryFigures};

/// What was counted for one kind of query, on average.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Reads of files.
    reads: f64,
    answers: f64,
    /// Data blocks that NEXT read.
    data_blocks: f64,
    /// Index blocks that it read, and those without a match among them.
    index_blocks: f64,
    vain: f64,
}

impl Counted {
    /// What the formula makes of it: each answer in a block of its own, and those read in vain.
    fn expected(self) -> f64 {
        self.answers + self.vain
    }
}

fn count(disk: &OnDisk, contender: Contender, queried: &[QueryFigures]) -> Result<Counted> {
    let options = bolide::FindOptions::default().fetch_threads(1);
    // The first to look into a file reads its filters and its index: not counted.
    for one in queried {
        disk.table.run_query(contender, 0, *one, &options, |_, _| {})?;
    }
    let before = disk.io.of(Cause::Lookup);
    let mut counted = Counted::default();
    for one in queried {
        let explain =
            because(Cause::Lookup, || disk.table.run_query(contender, 0, *one, &options, |_, _| {}))?;
        counted.answers += explain.answers as f64;
        counted.data_blocks += explain.next_costs.data_blocks_read as f64;
        counted.index_blocks += explain.next_costs.index_blocks_read as f64;
        counted.vain += explain.next_costs.false_positives as f64;
    }
    counted.reads = disk.io.of(Cause::Lookup).since(before).reads as f64;
    let each = |sum: f64| sum / queried.len().max(1) as f64;
    Ok(Counted {
        reads: each(counted.reads),
        answers: each(counted.answers),
        data_blocks: each(counted.data_blocks),
        index_blocks: each(counted.index_blocks),
        vain: each(counted.vain),
    })
}

pub(super) fn table_1(scale: &Scale) -> Result<FigureReport> {
    const CONTENDERS: [Contender; 3] = [STANDALONE, NEXT, NEXT_WHOLE];
    let mut report = report("next-table1", "Table 1", scale, half(scale));
    let data = Source::Posts.rows(scale, half(scale))?;
    report.set("data", &data.summary);
    report.set("queries", scale.queries);
    let (disk, _) = OnDisk::loaded(scale, &CONTENDERS, &[data.source.number()], &data)?;
    let queries = scale.queries as usize;
    let of = |answers: f64| around_records(&data, false, answers, queries, scale.seed);
    let points = of(1.0);
    let counter = Counter::new(&data, false);
    // The value in the middle of each range is that of a record.
    let middle = |queried: &QueryFigures| match *queried {
        QueryFigures::Between(low, high) => QueryFigures::Equal(((low + high) / 2.0).round()),
        other => other,
    };
    let queried: Vec<QueryFigures> = points.queried.iter().map(middle).collect();
    let answers =
        queried.iter().map(|one| counter.count(*one)).sum::<usize>() as f64 / queried.len().max(1) as f64;
    let points = Windows { queried, answers, ..points };
    let kinds = [
        ("point", points),
        ("range, small", of(Size::Small.answers(data.rows.len()))),
        ("range, medium", of(Size::Medium.answers(data.rows.len()))),
    ];
    let mut all = Vec::new();
    for (name, windows) in &kinds {
        let mut row = Vec::new();
        for contender in CONTENDERS {
            let counted = count(&disk, contender, &windows.queried)?;
            if (counted.answers - windows.answers).abs() > 1e-6 {
                let (found, meant) = (counted.answers, windows.answers);
                return Err(format!("{}: {found} answers instead of {meant}", contender.name).into());
            }
            row.push(counted);
        }
        all.push((*name, row));
    }
    claims(&mut report, &all);
    let groups: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let column = |at: usize, what: fn(Counted) -> f64| all.iter().map(|(_, row)| what(row[at])).collect();
    report.panels.push(bars(
        "Reads of files",
        "a query",
        true,
        &groups,
        [
            ("composite, memo", column(0, |one| one.reads)),
            ("next", column(1, |one| one.reads)),
            ("next, by the formula", column(1, Counted::expected)),
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
            ("in vain (ε)", column(1, |one| one.vain)),
            ("in vain, not split", column(2, |one| one.vain)),
        ],
    ));
    Ok(judged(report, scale))
}

fn claims(report: &mut FigureReport, all: &[(&str, Vec<Counted>)]) {
    let summary =
        |what: fn(Counted) -> f64, at: usize| listed(all.iter().map(|(name, row)| (*name, what(row[at]))));
    report.claim(
        "table 1: NEXT reads no more data blocks than there are answers, and each once",
        all.iter().all(|(_, row)| row[1].data_blocks <= row[1].answers + 1e-9),
        format!(
            "data blocks: {}; answers: {}",
            summary(|one| one.data_blocks, 1),
            summary(|one| one.answers, 1)
        ),
    );
    report.claim(
        "table 1: of all it reads, what the formula leaves out are index blocks with matches (and one in ten more)",
        all.iter().all(|(_, row)| row[1].reads <= 1.1 * (row[1].data_blocks + row[1].index_blocks) + 0.5),
        format!("reads: {}; index blocks: {}", summary(|one| one.reads, 1), summary(|one| one.index_blocks, 1)),
    );
    report.departs(
        "table 1: a range makes composite keys read a block for nearly each answer, and NEXT reads no more data blocks than \
         these (within a tenth)",
        all.iter().skip(1).all(|(_, row)| {
            row[0].reads > 0.5 * row[0].answers && row[1].data_blocks < 1.1 * row[0].reads + 0.5
        }),
        format!(
            "composite, reads: {}; next, data blocks: {}",
            summary(|one| one.reads, 0),
            summary(|one| one.data_blocks, 1)
        ),
        "in the paper, NEXT reads fewer by as many records as a block has. That takes answers side by side in the \
         table; users are not correlated with the primary key, and the look-ups of composite keys are made in order.",
    );
    report.claim(
        "§4: with the ranges of index blocks split, no more of them are read in vain (but for one in ten)",
        all.iter().all(|(_, row)| row[1].vain <= 1.1 * row[2].vain + 0.5),
        format!("split {}; whole {}", summary(|one| one.vain, 1), summary(|one| one.vain, 2)),
    );
}
