//! The cost of an opening: its time, that of the first operation after it, and the memory of the process.
//!
//! A database without indexes and one with two of them, of 25 records for each value, are loaded and closed. Each step then runs in
//! a process of its own, since the peak of the resident memory is that of a process:
//!
//! ```text
//! after a clean close     open | open, get | open, query | open, put
//! after a crash           the same, each after a process that writes and exits without a close
//! ```
//!
//! Files are in the page cache. The process that opens a database closes it afterwards, which is not measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use bolide::{CollectionOptions, Db, Options, Query, SyncMode, WriteBatch};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::measure;
use crate::report::machine;

/// Records of one value of an index.
const RECORDS_PER_VALUE: u64 = 25;
/// Records in one batch.
const BATCH: usize = 500;
/// The distance between the records that are updated: a prime.
const STRIDE: u64 = 7_919;
const COLLECTION: &str = "records";
/// The indexes of the second database.
const INDEXES: [&str; 2] = ["group", "owner"];

/// What a process does after the opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OpeningStep {
    /// Creates and fills the database.
    Load,
    /// Updates records and exits without a close.
    Crash,
    /// Nothing.
    Open,
    /// Reads a record by its key.
    Get,
    /// Queries the newest ten records of a value by the first index.
    Query,
    /// Puts a record.
    Put,
}

/// The steps that are measured.
const MEASURED: [OpeningStep; 4] =
    [OpeningStep::Open, OpeningStep::Get, OpeningStep::Query, OpeningStep::Put];

impl OpeningStep {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Crash => "crash",
            Self::Open => "open",
            Self::Get => "get",
            Self::Query => "query",
            Self::Put => "put",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Get => "open, get",
            Self::Query => "open, query",
            Self::Put => "open, put",
            _ => self.name(),
        }
    }
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct OpeningPlan {
    /// Records of each database.
    pub records: u64,
    /// Records that a process updates before it exits without a close.
    pub unclosed: u64,
    /// Measurements of each step, of which the median is printed.
    pub runs: usize,
    /// The kind of the indexes.
    pub kind: String,
    /// The parent of the databases.
    pub directory: Option<PathBuf>,
}

/// The figures of one process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct OpeningFigures {
    open_micros: u64,
    /// Of the operation after the opening.
    first_micros: u64,
    peak_bytes: u64,
}

/// Measures `plan` and prints a table.
///
/// # Errors
/// Those of the databases and processes.
pub fn run(plan: &OpeningPlan) -> Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("bolide-opening-");
    let parent = match &plan.directory {
        Some(directory) => builder.tempdir_in(directory)?,
        None => builder.tempdir()?,
    };
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["indexes", "after", "step", "open, ms", "first operation, ms", "peak RSS, MB"]);
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (title, kind) in [("none".to_owned(), None), (format!("two {}", plan.kind), Some(&*plan.kind))] {
        let path = parent.path().join(if kind.is_some() { "indexed" } else { "plain" });
        child(OpeningStep::Load, &path, plan, kind)?;
        for crashed in [false, true] {
            let steps = MEASURED.into_iter().filter(|step| kind.is_some() || *step != OpeningStep::Query);
            for step in steps {
                let mut figures = Vec::new();
                for _ in 0..plan.runs.max(1) {
                    if crashed {
                        child(OpeningStep::Crash, &path, plan, kind)?;
                    }
                    figures.push(child(step, &path, plan, kind)?);
                }
                let after = if crashed { "a crash" } else { "a close" };
                let cells = [title.as_str(), after, step.title()].map(Cell::new);
                table.add_row(cells.into_iter().chain(row(&figures).map(Cell::new)));
            }
        }
        // The next database needs the space.
        std::fs::remove_dir_all(&path)?;
    }
    println!(
        "opening of {} records, {} updated before each crash, median of {}, {}\n\n{table}",
        plan.records,
        plan.unclosed,
        plan.runs.max(1),
        machine()
    );
    Ok(())
}

/// The medians.
fn row(figures: &[OpeningFigures]) -> [String; 3] {
    let median = |of: fn(&OpeningFigures) -> u64| {
        let mut all: Vec<u64> = figures.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    };
    [
        format!("{:.1}", median(|one| one.open_micros) as f64 / 1e3),
        format!("{:.2}", median(|one| one.first_micros) as f64 / 1e3),
        format!("{:.1}", median(|one| one.peak_bytes) as f64 / 1e6),
    ]
}

/// Runs one step in a process of its own.
fn child(step: OpeningStep, path: &Path, plan: &OpeningPlan, kind: Option<&str>) -> Result<OpeningFigures> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["opening-step", step.name()]).arg(path);
    command.args(["--records", &plan.records.to_string(), "--unclosed", &plan.unclosed.to_string()]);
    if let Some(kind) = kind {
        command.args(["--kind", kind]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the step {} ended with {}", step.name(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs `step` on the database in `path` in this process, and prints its figures as JSON.
///
/// # Errors
/// Those of the database; a wrong answer.
pub fn serve(step: OpeningStep, path: &Path, records: u64, unclosed: u64, kind: Option<&str>) -> Result<()> {
    let started = Instant::now();
    let db = Db::open(path, Options::default().sync(SyncMode::None))?;
    let open_micros = started.elapsed().as_micros() as u64;
    let started = Instant::now();
    match step {
        OpeningStep::Load => load(&db, records, kind)?,
        OpeningStep::Crash => {
            write(&db, records, (0..unclosed).map(|number| number.wrapping_mul(STRIDE) % records))?;
            db.sync()?;
        }
        OpeningStep::Open => {}
        OpeningStep::Get => {
            let found = db.collection(COLLECTION)?.get(&key(records / 2))?;
            found.ok_or("a record is missing")?;
        }
        OpeningStep::Query => query(&db)?,
        OpeningStep::Put => {
            let number = records / 3;
            db.collection(COLLECTION)?.put(&key(number), record(number, records).as_bytes())?;
        }
    }
    let first_micros = started.elapsed().as_micros() as u64;
    let peak_bytes = measure::memory().peak;
    println!("{}", serde_json::to_string(&OpeningFigures { open_micros, first_micros, peak_bytes })?);
    if step == OpeningStep::Crash {
        // As a killed process: nothing is closed.
        std::process::exit(0);
    }
    Ok(db.close()?)
}

fn load(db: &Db, records: u64, kind: Option<&str>) -> Result<()> {
    let mut options = CollectionOptions::json();
    for attribute in kind.iter().flat_map(|_| INDEXES) {
        options = options.index(format!("{attribute}:{}", kind.unwrap_or_default()).parse()?);
    }
    db.create_collection(COLLECTION, options)?;
    write(db, records, 0..records)?;
    db.flush()?;
    db.wait_until_settled()?;
    Ok(())
}

fn write(db: &Db, records: u64, numbers: impl Iterator<Item = u64>) -> Result<()> {
    let collection = db.collection(COLLECTION)?;
    let mut batch = WriteBatch::new();
    for number in numbers {
        batch.put(&collection, &key(number), record(number, records).as_bytes())?;
        if batch.len() >= BATCH {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch)?;
    Ok(())
}

fn query(db: &Db) -> Result<()> {
    let query = Query::new().eq(INDEXES[0], 0).using_index(INDEXES[0]).limit(10);
    let found = db.collection(COLLECTION)?.find(&query)?.len();
    if found != 10 {
        return Err(format!("{found} answers instead of 10").into());
    }
    Ok(())
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:012}").into_bytes()
}

/// One of `records` records, with about 100 bytes.
fn record(number: u64, records: u64) -> String {
    let values = (records / RECORDS_PER_VALUE).max(1);
    let [group, owner] = [0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f]
        .map(|factor| (number.wrapping_mul(factor) >> 32) % values);
    format!(
        r#"{{"group":{group},"owner":{owner},"number":{number},"text":"the text of record {number:020}"}}"#
    )
}
