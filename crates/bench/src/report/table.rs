//! Tables for the terminal; they are Markdown, so they go into `docs/performance/results.md` as they are.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{EngineFigures, Report, RowFigures};

/// Prints, for each number of threads, the times of every row with their ratios to Bolide's, and
/// then space and memory.
pub fn print_tables(report: &Report) {
    println!(
        "{} workload, {} records, median of {}, {}",
        report.workload, report.records, report.runs, report.machine
    );
    if let Some(mib) = report.cold_mib {
        println!(
            "memory limited to {mib} MiB after the load, page cache included, a quarter of it the caches of the stores"
        );
    }
    let mut threads: Vec<u64> = report.engines.iter().map(|engine| engine.threads).collect();
    threads.dedup();
    for threads in threads {
        let engines: Vec<&EngineFigures> =
            report.engines.iter().filter(|engine| engine.threads == threads).collect();
        let plural = if threads == 1 { "" } else { "s" };
        for (title, figure) in TIMES {
            println!("\n{title}, µs per operation, {threads} thread{plural} (× Bolide)\n");
            println!("{}", times(&engines, figure));
        }
        if report.cold_mib.is_some() {
            println!("\nRead from the device, KiB per operation, {threads} thread{plural} (× Bolide)\n");
            println!("{}", times(&engines, DEVICE_READS));
        }
        println!("\nSpace and memory, {threads} thread{plural}\n");
        println!("{}", space(&engines));
    }
}

type Figure = fn(&RowFigures) -> f64;

const TIMES: [(&str, Figure); 3] = [
    ("CPU time of the calling thread", |row| row.thread_micros),
    ("CPU time of the process", |row| row.process_micros),
    ("Wall time", |row| row.wall_micros),
];

const DEVICE_READS: Figure = |row| row.device_read_bytes as f64 / 1024.0 / row.operations.max(1) as f64;

fn new_table(first: &str, engines: &[&EngineFigures]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let names = engines.iter().map(|engine| Cell::new(&engine.engine));
    table.set_header([Cell::new(first)].into_iter().chain(names));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn times(engines: &[&EngineFigures], figure: Figure) -> Table {
    let mut table = new_table("row", engines);
    let Some(base) = engines.first() else { return table };
    let Some(longest) = engines.iter().max_by_key(|engine| engine.rows.len()) else { return table };
    let find =
        |engine: &EngineFigures, name: &str| engine.rows.iter().find(|row| row.row == name).map(figure);
    for row in &longest.rows {
        let own = find(base, &row.row).filter(|own| *own > 0.0);
        let cells = engines.iter().map(|engine| match (find(engine, &row.row), own) {
            (None, _) => "-".to_owned(),
            (Some(time), Some(own)) if engine.engine != base.engine => {
                format!("{} ({:.2})", short(time), time / own)
            }
            (Some(time), _) => short(time),
        });
        table.add_row([row.row.clone()].into_iter().chain(cells));
    }
    table
}

fn space(engines: &[&EngineFigures]) -> Table {
    let mut table = new_table("figure", engines);
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    let Some(base) = engines.first() else { return table };
    let writing = base.rows.iter().filter(|row| row.user_bytes > 0).map(|row| row.row.as_str());
    for name in writing.filter(|name| !name.starts_with("ycsb")) {
        let find = |engine: &&EngineFigures| engine.rows.iter().find(|row| row.row == name).cloned();
        let mut line = |title: String, figure: &dyn Fn(&RowFigures) -> String| {
            let cells = engines.iter().map(|engine| find(engine).map_or("-".to_owned(), |row| figure(&row)));
            table.add_row([title].into_iter().chain(cells));
        };
        line(format!("{name}: write amplification"), &|row| {
            row.write_amplification().map_or("-".to_owned(), |factor| format!("{factor:.2}"))
        });
        line(format!("{name}: MB on disk after"), &|row| megabytes(row.disk_bytes));
        line(format!("{name}: background work after, s"), &|row| format!("{:.1}", row.settle_seconds));
        line(format!("{name}: peak RSS, MB"), &|row| megabytes(row.peak_rss_bytes));
    }
    if engines.iter().any(|engine| share_of(engine).is_some()) {
        let cells = engines
            .iter()
            .map(|engine| share_of(engine).map_or("-".to_owned(), |share| format!("{:.2}", 100.0 * share)));
        table.add_row(["index in memory, % of the table".to_owned()].into_iter().chain(cells));
    }
    let mut last = |title: &str, figure: fn(&RowFigures) -> u64| {
        let cells = engines
            .iter()
            .map(|engine| engine.rows.last().map_or("-".to_owned(), |row| megabytes(figure(row))));
        table.add_row([title.to_owned()].into_iter().chain(cells));
    };
    last("MB on disk at the end", |row| row.disk_bytes);
    last("peak RSS at the end, MB", |row| row.peak_rss_bytes);
    last("anonymous memory at the end, MB", |row| row.anonymous_bytes);
    table
}

/// The memory share of the index of an engine at the end.
fn share_of(engine: &EngineFigures) -> Option<f64> {
    engine.rows.last().and_then(|row| row.index_share)
}

/// Three significant digits.
fn short(number: f64) -> String {
    match number {
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}
