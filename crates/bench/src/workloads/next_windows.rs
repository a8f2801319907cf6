//! The workload for index blocks of points: the records of [`next`](super::next), each with the position of a bus. They are
//! inserted, updated, compacted, and queried by windows with about 250 and 2,500 records.
//!
//! ```text
//! record 128 bytes   cell u64 | write u64 | number u64 | seal u64 | lon f64 | lat f64 | filler   (big-endian)
//! ```
//!
//! Indexes that do not support windows index cells: positions on a Z-curve. A query reads the few ranges of cells that
//! cover the window, all in one query, and checks the position of each record. A program without this substitution would
//! run a query for each range.
//!
//! Every answer includes its record, borrowed without a copy, and is compared with a model, as in `next`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bolide::{
    AttributeExtractor, AttributePlan, AttributeValues, Collection, CollectionOptions, Components,
    Compression, Db, FindOptions, Options, Query, Rect, SyncMode, Value,
};

use super::meter::Meter;
use super::next::{NextPlan, RECORD_BYTES, SUBJECTS, checksum_expected, checksum_of_answers, index_share};
use crate::data::indexed_record::seal;
use crate::data::keys::{self, KEY_BYTES};
use crate::data::positions::{Position, Positions};
use crate::data::random::Random;
use crate::engine::{CACHE_BYTES, MEMTABLE_BYTES};
use crate::error::Result;
use crate::measure;
use crate::next_baselines::{CELL, CellRanges, Substitution, cell_of, with_substitutions};
use crate::report::RowFigures;

const POINT: &str = "point(lon,lat)";
/// The name of the index.
const INDEX_NAME: &str = "place";
/// The offset of the coordinates in a record.
const POSITION_OFFSET: usize = 32;

/// The maximum width of a window in degrees: more than the extent of the city of the positions.
const MAX_WINDOW_DEGREES: f64 = 2.0;

/// A row of queries with about so many answers.
struct WindowRow {
    row: &'static str,
    answers: usize,
    queries: usize,
}

const WINDOW_ROWS: [WindowRow; 3] = [
    // Fills the block cache; not reported.
    WindowRow { row: WARM_UP, answers: 250, queries: 1_000 },
    WindowRow { row: "window250-records", answers: 250, queries: 1_000 },
    WindowRow { row: "window2500-records", answers: 2_500, queries: 200 },
];
const WARM_UP: &str = "warm-up";

/// Extracts the position and the cell of a record.
#[derive(Debug)]
struct PositionExtractor;

impl AttributeExtractor for PositionExtractor {
    fn extract_into(
        &self,
        record: &[u8],
        plan: &AttributePlan,
        out: &mut AttributeValues,
    ) -> bolide::Result<()> {
        for (slot, path) in plan.paths().iter().enumerate() {
            if path.is_spatial() {
                let [x, y] = position_of(record);
                out.push(slot, &Value::Rect(Rect::new(x, y, x, y)?))?;
            } else {
                out.push(slot, &Value::Uint(word_at(record, 0)))?;
            }
        }
        Ok(())
    }

    fn accepts(&self, record: &[u8]) -> bolide::Result<bool> {
        Ok(position_of(record).iter().all(|coordinate| coordinate.is_finite()))
    }
}

fn word_at(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

fn position_of(record: &[u8]) -> Position {
    [POSITION_OFFSET, POSITION_OFFSET + 8].map(|at| f64::from_bits(word_at(record, at)))
}

/// A pending write: number of the record, position and cell.
type Write = (u64, Position, u64);

/// The position and the last write of every record.
struct Model {
    /// For each record its position and the number of its last write.
    state: Vec<(Position, u32)>,
    writes: u32,
    record: [u8; RECORD_BYTES],
}

impl Model {
    fn new() -> Self {
        Self { state: Vec::new(), writes: 0, record: [b'x'; RECORD_BYTES] }
    }

    fn put(&mut self, records: &Collection, (number, position, cell): Write) -> Result<()> {
        self.writes += 1;
        let [lon, lat] = position.map(f64::to_bits);
        let words = [cell, u64::from(self.writes), number, seal(number, self.writes), lon, lat];
        for (place, word) in self.record.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        match self.state.get_mut(number as usize) {
            Some(old) => *old = (position, self.writes),
            None => self.state.push((position, self.writes)),
        }
        Ok(records.put(&keys::key(number), &self.record)?)
    }

    fn by_longitude(&self) -> ByLongitude {
        let records = (0..).zip(&self.state);
        let mut all: Vec<Point> =
            records.map(|(number, &(position, write))| Point { position, write, number }).collect();
        all.sort_unstable_by(|left, right| left.position[0].total_cmp(&right.position[0]));
        ByLongitude(all)
    }
}

/// A record of the model.
#[derive(Debug, Clone, Copy)]
struct Point {
    position: Position,
    write: u32,
    number: u32,
}

/// The records sorted by longitude, to count and to find those within windows.
struct ByLongitude(Vec<Point>);

impl ByLongitude {
    fn within(&self, [west, south, east, north]: [f64; 4]) -> impl Iterator<Item = &Point> {
        let first = self.0.partition_point(|point| point.position[0] < west);
        let rest = self.0[first..].iter().take_while(move |point| point.position[0] <= east);
        rest.filter(move |point| (south..=north).contains(&point.position[1]))
    }

    /// Windows around random records, with `answers` records each or slightly more. Windows around outliers, wider than
    /// [`MAX_WINDOW_DEGREES`], are excluded.
    fn windows(&self, count: usize, answers: usize, random: &mut Random) -> Vec<[f64; 4]> {
        let mut around = || self.0[random.below(self.0.len() as u64) as usize].position;
        let windows = std::iter::repeat_with(|| self.window(around(), answers));
        windows.filter(|[west, _, east, _]| east - west < MAX_WINDOW_DEGREES).take(count).collect()
    }

    /// The smallest square around a position with `answers` records or slightly more.
    fn window(&self, position: Position, answers: usize) -> [f64; 4] {
        let around = |half: f64| {
            let [x, y] = position;
            [x - half, y - half, x + half, y + half]
        };
        let answers = answers.min(self.0.len());
        let is_enough = |half: f64| self.within(around(half)).take(answers).count() == answers;
        let mut high = 1e-6;
        while !is_enough(high) {
            high *= 2.0;
        }
        let mut low = high / 2.0;
        while high - low > high / 1000.0 {
            let middle = (low + high) / 2.0;
            if is_enough(middle) { high = middle } else { low = middle }
        }
        around(high)
    }
}

/// The form of the queries to a subject.
#[derive(Debug, Clone)]
enum WindowQueries {
    /// No queries: without an index each would scan the table.
    Unindexed,
    /// Windows.
    Windows,
    /// The cells of windows.
    Cells(Arc<CellRanges>),
}

/// The form of the queries to the subject `name`, and the specification of its index.
fn subject(name: &str) -> Result<(WindowQueries, String)> {
    let known = SUBJECTS.iter().find(|(known, _)| *known == name);
    let (_, kind) = known.ok_or_else(|| format!("there is no kind `{name}`"))?;
    Ok(match *kind {
        "" => (WindowQueries::Unindexed, String::new()),
        "next" => (WindowQueries::Windows, format!("{INDEX_NAME}={POINT}:{kind}")),
        _ => (WindowQueries::Cells(Arc::new(CellRanges::of_points())), format!("{INDEX_NAME}={CELL}:{kind}")),
    })
}

fn open(plan: &NextPlan, path: &Path) -> Result<(Db, Collection, WindowQueries)> {
    let (window_queries, index) = subject(&plan.engine)?;
    let mut components = Components::system().extractor("records", Arc::new(PositionExtractor));
    if let WindowQueries::Cells(cells) = &window_queries {
        let substitution = Substitution::Cells(cells.clone());
        components = with_substitutions(components, [(INDEX_NAME.to_owned(), substitution)].into());
    }
    let options =
        Options::default().cache_bytes(CACHE_BYTES).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
    let db = Db::open_with(path, options, components)?;
    let layout = if plan.tiered { bolide::Layout::Tiered } else { bolide::Layout::Leveled };
    let mut collection = CollectionOptions::bytes().layout(layout).compression(Compression::None);
    if !index.is_empty() {
        collection = collection.index(index.parse()?);
    }
    let records = db.create_collection("records", collection)?;
    Ok((db, records, window_queries))
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &NextPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let (db, records, window_queries) = open(plan, path)?;
    let mut positions = Positions::load(plan.data.as_deref(), plan.records as usize, plan.seed)?;
    eprintln!("  positions of {} lines", positions.lines());
    let mut random = Random::new(plan.seed);
    let mapped = || db.stats().writes.log_bytes;
    let mut model = Model::new();
    let write = |number, position: Position| -> Write {
        let [x, y] = position;
        (number, position, cell_of([x, y, x, y]))
    };
    let inserts: Vec<Write> = (0..plan.records).map(|number| write(number, positions.next())).collect();
    let mut figures = vec![write_row(&records, "insert", inserts, &mut model, path, &mapped)?];
    let updates: Vec<Write> =
        (0..plan.updates).map(|_| write(random.below(plan.records), positions.any())).collect();
    figures.push(write_row(&records, "update", updates, &mut model, path, &mapped)?);
    db.compact()?;
    measure::settle(Duration::from_secs(120));
    let model = model.by_longitude();
    let query_rows =
        if matches!(window_queries, WindowQueries::Unindexed) { &[][..] } else { &WINDOW_ROWS[..] };
    for row_spec in query_rows {
        let row = measure_row(&records, row_spec, &window_queries, &model, &mut random, path, &mapped)?;
        if row_spec.row != WARM_UP {
            figures.push(row);
        }
    }
    if let (Some(share), Some(last)) = (index_share(&db)?, figures.last_mut()) {
        last.index_share = Some(share);
    }
    Ok(figures)
}

fn write_row(
    records: &Collection,
    row: &str,
    writes: Vec<Write>,
    model: &mut Model,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    model.state.reserve(writes.len());
    let meter = Meter::start(path, mapped);
    for write in &writes {
        model.put(records, *write)?;
    }
    let reading = meter.stop();
    let settled = measure::settle(Duration::from_secs(120));
    meter.figures(row, &reading, writes.len(), settled, writes.len() * (KEY_BYTES + RECORD_BYTES))
}

fn measure_row(
    records: &Collection,
    row_spec: &WindowRow,
    window_queries: &WindowQueries,
    model: &ByLongitude,
    random: &mut Random,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let windows = model.windows(row_spec.queries, row_spec.answers, random);
    let options = FindOptions::default();
    let mut answers = Vec::with_capacity(windows.len());
    let meter = Meter::start(path, mapped);
    for window in &windows {
        let [west, south, east, north] = *window;
        let query = Query::new().within(POINT, Rect::new(west, south, east, north)?);
        let query = match window_queries {
            WindowQueries::Cells(cells) => {
                cells.set_window(*window);
                query.range(CELL, 0_u64..).using_index(INDEX_NAME)
            }
            WindowQueries::Windows | WindowQueries::Unindexed => query,
        };
        answers.push(checksum_of_answers(records, &query, &options)?);
    }
    let reading = meter.stop();
    for (window, answer) in windows.iter().zip(answers) {
        let expected = model.within(*window).map(|point| (point.write, point.number)).collect();
        if checksum_expected(expected, usize::MAX) != answer {
            return Err(format!("{}: a wrong answer for window {window:?}", row_spec.row).into());
        }
    }
    meter.figures(row_spec.row, &reading, windows.len(), Duration::ZERO, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(engine: &str, tiered: bool) -> NextPlan {
        NextPlan { engine: engine.to_owned(), records: 5_000, updates: 1_500, tiered, seed: 1, data: None }
    }

    #[test]
    fn all_subjects_match_the_model() {
        for (engine, spec) in SUBJECTS {
            let folder = tempfile::tempdir().unwrap();
            let figures = run(&plan(engine, *engine == "next"), folder.path()).unwrap();
            let rows: Vec<&str> = figures.iter().map(|row| row.row.as_str()).collect();
            let queried =
                if spec.is_empty() { &[][..] } else { &["window250-records", "window2500-records"] };
            assert_eq!(rows, [&["insert", "update"], queried].concat());
        }
    }

    #[test]
    fn a_wrong_answer_is_an_error_and_windows_have_the_requested_size() {
        for engine in ["next", "ps-tree"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path();
            let (_db, records, window_queries) = open(&plan(engine, false), path).unwrap();
            let mut model = Model::new();
            for number in 0..500 {
                let [x, y] = [(number % 25) as f64 * 0.01 - 97.8, (number / 25) as f64 * 0.01 + 30.2];
                model.put(&records, (number, [x, y], cell_of([x, y, x, y]))).unwrap();
            }
            let model = model.by_longitude();
            let window = model.window(model.0[250].position, 40);
            assert!((40..60).contains(&model.within(window).count()));
            let row_spec = WindowRow { row: "all", answers: 500, queries: 1 };
            let mut random = Random::new(1);
            let mut row =
                || measure_row(&records, &row_spec, &window_queries, &model, &mut random, path, &|| 0);
            row().unwrap();
            records.delete(&keys::key(7)).unwrap();
            assert!(row().is_err());
        }
    }
}
