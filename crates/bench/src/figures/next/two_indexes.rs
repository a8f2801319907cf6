//! Table 5: two indexes of a table, one on space and one on numbers (§6.6).

use super::dataset::{DataSet, DataSource};
use super::query_sets::{QuerySize, QueryTarget, around_records, times};
use super::{NEXT, OnDisk, PutTime, STANDALONE, global_index, half, judged, report};
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed, mean};
use crate::figures::report::FigureReport;
use crate::next_baselines::Contender;

const CONTENDERS: [Contender; 2] = [STANDALONE, NEXT];
const SOURCES: [DataSource; 2] = [DataSource::Vehicles, DataSource::Areas];
/// The indexed attributes: space, then numbers.
const ATTRIBUTES: [(&str, bool); 2] = [("space", true), ("numbers", false)];

/// The costs of one contender with two indexes.
#[derive(Debug, Clone, Default)]
struct TwoIndexes {
    put_time: PutTime,
    disk: f64,
    memory: f64,
    /// CPU microseconds of a query: small, medium and large of space, then of numbers.
    micros: Vec<f64>,
    /// CPU microseconds of a query with one index alone.
    alone: Vec<f64>,
}

fn measure(scale: &Scale, data: &DataSet) -> Result<Vec<TwoIndexes>> {
    let attributes = ATTRIBUTES.map(|(_, is_spatial)| data.attribute(is_spatial));
    let mut all = Vec::new();
    let mut tables = Vec::new();
    for contender in CONTENDERS {
        eprintln!("  {}, {}", data.source.name(), contender.name);
        let (both, put_time) = OnDisk::loaded(scale, &[contender], &attributes, data)?;
        let mut alone = Vec::new();
        for attribute in attributes {
            alone.push(OnDisk::loaded(scale, &[contender], &[attribute], data)?.0);
        }
        let disk = both.table.db().stats().disk_bytes() as f64 / 1e6;
        all.push(TwoIndexes { put_time, disk, ..TwoIndexes::default() });
        tables.push((contender, both, alone));
    }
    for (at, (_, is_spatial)) in ATTRIBUTES.iter().enumerate() {
        for size in QuerySize::ALL {
            let (answers, queries) = (size.answers(data.rows.len()), size.queries(scale.queries));
            let selections = around_records(data, *is_spatial, answers, queries, scale.seed).selections;
            let mut targets: Vec<QueryTarget<'_>> = Vec::new();
            for (contender, both, alone) in &tables {
                targets.extend([(&both.table, *contender, at), (&alone[at].table, *contender, 0)]);
            }
            for (both, micros) in all.iter_mut().zip(times(&targets, &selections)?.chunks_exact(2)) {
                both.micros.push(mean(&micros[0]));
                both.alone.push(mean(&micros[1]));
            }
        }
    }
    for (both, (_, disk, _)) in all.iter_mut().zip(&tables) {
        both.memory = global_index(&disk.table).0;
    }
    Ok(all)
}

pub(super) fn table_5(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("next-table5", "Table 5", scale, half(scale));
    let mut all = Vec::new();
    for source in SOURCES {
        let data = source.rows(scale, half(scale))?;
        report.set(source.name(), &data.summary);
        all.push((source, measure(scale, &data)?));
    }
    let summary = |what: &dyn Fn(&TwoIndexes) -> f64| {
        let each = all.iter().map(|(source, both)| {
            let of = CONTENDERS.iter().zip(both).map(|(one, both)| (one.name, what(both)));
            format!("{}: {}", source.name(), listed(of))
        });
        each.collect::<Vec<_>>().join("; ")
    };
    report.claim(
        "§6.6: with two indexes, a put costs at most as much with NEXT as with composite indexes (within a \
         half)",
        all.iter().all(|(_, both)| both[1].put_time.whole < 1.5 * both[0].put_time.whole),
        summary(&|both| both.put_time.whole),
    );
    report.claim(
        "§6.6: with two indexes, the database with NEXT is smaller than with composite indexes",
        all.iter().all(|(_, both)| both[1].disk < both[0].disk),
        summary(&|both| both.disk),
    );
    report.claim(
        "§6.6: with two indexes, queries with many answers take less with NEXT for space, and at most as \
         long for numbers (within a third)",
        all.iter().all(|(_, both)| {
            let [composite, next] = [0, 1].map(|at| &both[at].micros);
            next[2] < composite[2] && next[5] < 1.34 * composite[5]
        }),
        format!("space: {}; numbers: {}", summary(&|both| both.micros[2]), summary(&|both| both.micros[5])),
    );
    report.claim(
        "§6.6: a query with NEXT takes about as long with two indexes as with one (within a half)",
        all.iter().all(|(_, both)| mean(&both[1].micros) < 1.5 * mean(&both[1].alone)),
        format!(
            "both: {}; alone: {}",
            summary(&|both| mean(&both.micros)),
            summary(&|both| mean(&both.alone))
        ),
    );
    let groups = ["2D small", "medium", "large", "1D small", "medium", "large"];
    for (source, both) in &all {
        let of = |what: &dyn Fn(&TwoIndexes) -> Vec<f64>| -> Vec<(&'static str, Vec<f64>)> {
            CONTENDERS.iter().zip(both).map(|(one, both)| (one.name, what(both))).collect()
        };
        let name = source.name();
        report.panels.push(bars(
            &format!("Queries, {name}"),
            "CPU µs, calling thread",
            true,
            &groups,
            of(&|both| both.micros.clone()),
        ));
        report.panels.push(bars(
            &format!("PUT and size, {name}"),
            "CPU µs, MB, KiB",
            true,
            &["PUT, calling thread", "whole process", "MB on disk", "KiB in memory"],
            of(&|both| vec![both.put_time.calling, both.put_time.whole, both.disk, both.memory]),
        ));
    }
    Ok(judged(report, scale))
}
