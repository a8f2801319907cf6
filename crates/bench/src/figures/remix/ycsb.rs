//! Figure 18: YCSB over every layout (§5.2, table 2).

use super::report;
use super::stores::{
    LAYOUTS, LEVELED, PARTITIONED, Records, StoreSubject, SubjectStore, TIERED_MERGED, subjects,
};
use crate::data::keys::{KEY_BYTES, VALUE_BYTES};
use crate::engine::Connection;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::perseid::{bars, listed};
use crate::figures::report::FigureReport;
use crate::measure::thread_cpu_nanos;
use crate::workloads::rows::{Ranks, Row, Ycsb};
use crate::workloads::worker::{RowContext, Worker};

/// Rounds in which the stores run in turn; the minimum counts.
const PASSES: u64 = 5;
/// Operations of a round for each of `--queries`; a tenth of that for scans.
const OPERATIONS_FACTOR: u64 = 40;
/// Records for each of `--records`.
const RECORDS_FACTOR: u64 = 4;
const ENOUGH: u64 = 50_000;

const WORKLOADS: [(Ycsb, &str); 6] =
    [(Ycsb::A, "A"), (Ycsb::B, "B"), (Ycsb::C, "C"), (Ycsb::D, "D"), (Ycsb::E, "E"), (Ycsb::F, "F")];

/// Runs `operations` operations of a row. Returns CPU microseconds of an operation, calling thread, and the number of inserted
/// records.
fn drive(
    connection: &mut dyn Connection,
    context: &RowContext,
    seed: u64,
    operations: u64,
) -> Result<(f64, u64)> {
    let mut worker = Worker::new(context, 0, seed);
    let (mut nanos, mut left) = (0, operations);
    while left > 0 {
        let drawn = left.min(context.row.drawn());
        left -= drawn;
        worker.draw(drawn);
        let started = thread_cpu_nanos();
        while !worker.is_done() {
            let batch = context.row.batch();
            connection.batch(context.row.access(), &mut |session| worker.run(session, batch))?;
        }
        nanos += thread_cpu_nanos() - started;
    }
    Ok((nanos as f64 / 1000.0 / operations.max(1) as f64, worker.inserted()))
}

pub(super) fn figure_18(scale: &Scale) -> Result<FigureReport> {
    let mut report = report("remix-18", "Figure 18", scale);
    let records = Records { count: scale.records * RECORDS_FACTOR, value_bytes: VALUE_BYTES };
    let cache_bytes = records.bytes() / 64;
    report.set("records", records.count);
    report.set("block cache", format!("{} KiB", cache_bytes >> 10));
    report.set("operations of a round", scale.queries * OPERATIONS_FACTOR);
    report.set("scans of workload E", "1 to 100 records");
    let subjects = subjects();
    let mut stores = Vec::new();
    for subject in &subjects {
        eprintln!("  {}: load", subject.name);
        let store = SubjectStore::create(scale, *subject, &records, cache_bytes)?;
        let context = RowContext::new(Row::Load, records.count, 1, Ranks::Ycsb);
        let bytes = records.count * (KEY_BYTES + VALUE_BYTES) as u64;
        store.measure_writes(records.count, bytes, |connection| {
            drive(connection, &context, scale.seed, records.count).map(drop)
        })?;
        stores.push(store);
    }
    let mut population = records.count;
    let mut all: Vec<Vec<f64>> = Vec::new();
    for (workload, name) in WORKLOADS {
        eprintln!("  workload {name}");
        let mut connections = stores.iter().map(SubjectStore::connect).collect::<Result<Vec<_>>>()?;
        let factor = if workload == Ycsb::E { OPERATIONS_FACTOR / 10 } else { OPERATIONS_FACTOR };
        let mut minimum = vec![f64::MAX; stores.len()];
        for round in 0..=PASSES {
            let context = RowContext::new(Row::Ycsb(workload), population, 1, Ranks::Ycsb);
            let seed = scale.seed + (round << 20);
            let mut inserted = 0;
            for (connection, minimum) in connections.iter_mut().zip(&mut minimum) {
                let (micros, more) = drive(&mut **connection, &context, seed, scale.queries * factor)?;
                // Each store runs the same operations.
                inserted = more;
                if round > 0 {
                    *minimum = minimum.min(micros);
                }
            }
            population += inserted;
        }
        all.push(minimum);
    }
    claims(&mut report, &subjects, &all);
    let names = WORKLOADS.map(|(_, name)| name);
    let rates = subjects
        .iter()
        .enumerate()
        .map(|(at, subject)| (subject.name, all.iter().map(|took| 1.0 / took[at]).collect()));
    let label = "million operations a second of CPU time";
    report.panels.push(bars("YCSB", label, true, &names, rates));
    let micros = subjects
        .iter()
        .enumerate()
        .map(|(at, subject)| (subject.name, all.iter().map(|took| took[at]).collect()));
    report.panels.push(bars("YCSB", "CPU µs, calling thread", true, &names, micros));
    Ok(super::judged(report, scale, ENOUGH))
}

fn claims(report: &mut FigureReport, subjects: &[StoreSubject], all: &[Vec<f64>]) {
    let cost = |workload: usize, subject: StoreSubject| {
        let at = subjects.iter().position(|other| *other == subject);
        at.and_then(|at| all.get(workload)?.get(at)).copied().unwrap_or(f64::NAN)
    };
    let summary = |workloads: &[usize]| {
        let each = workloads.iter().map(|&workload| {
            let name = WORKLOADS[workload].1;
            format!(
                "{name}: {}",
                listed(subjects.iter().map(|one| one.name).zip(all[workload].iter().copied()))
            )
        });
        each.collect::<Vec<_>>().join("; ")
    };
    report.departs(
        "the leveled layout is as fast as the partitioned one or faster, by up to two times (A, B, C, D and F)",
        [0, 1, 2, 3, 5].iter().all(|at| {
            let times = cost(*at, PARTITIONED) / cost(*at, LEVELED);
            times > 0.75 && times < 2.0
        }),
        format!("CPU µs: {}", summary(&[0, 1, 2, 3, 5])),
        "in the paper, RemixDB is faster except in D: LevelDB has five levels and many sstables in the \
         first. Here such a store has one large level and at most three sorted runs above it; a partition \
         has up to ten runs, each with a Bloom filter to read.",
    );
    report.claim(
        "§5.2: in E, the views of the partitioned layout are faster than merging scans of a tiered store",
        cost(4, PARTITIONED) < cost(4, TIERED_MERGED),
        format!("CPU µs: {}", summary(&[4])),
    );
    report.departs(
        "in E, the leveled layout is as fast as the partitioned one or faster, by up to three times",
        cost(4, PARTITIONED) < 3.0 * cost(4, LEVELED) && cost(4, PARTITIONED) > 0.75 * cost(4, LEVELED),
        format!("CPU µs: {}", summary(&[4])),
        "as in remix-15: a scan reads a block of each of up to ten runs, and most blocks are not in the cache.",
    );
    report.claim(
        "§5.2: D reads the newest records, which are in memtables under every layout: the layouts differ \
         less than in C, or by less than a half",
        {
            let spread = |workload| {
                let costs = LAYOUTS.map(|one| cost(workload, one));
                costs.into_iter().fold(0.0, f64::max) / costs.into_iter().fold(f64::MAX, f64::min)
            };
            spread(3) < spread(2) || spread(3) < 1.5
        },
        format!("CPU µs: {}", summary(&[2, 3])),
    );
}
