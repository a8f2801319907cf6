//! The workload for index blocks of points: the records of [`next`](super::next) with the position of a bus each, inserted, moved,
//! compacted, and queried by windows that hold about 250 and 2,500 of them.
//!
//! ```text
//! record 128 bytes   cell u64 | write u64 | number u64 | seal u64 | lon f64 | lat f64 | filler   (big-endian)
//! ```
//!
//! An index without windows has the cells: the position of the point on a Z-curve. A query reads the few ranges of cells that cover
//! the window, all in one query, and each record that it brings is looked into. So it is spared what a program would have to do
//! that reads one range after the other.
//!
//! Every answer has its record, lent where it lies, and is compared, as there, with a model.

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
use crate::next_baselines::{CELL, CellQueries, StandIn, cell_of, standing_in};
use crate::report::RowFigures;

const POINT: &str = "point(lon,lat)";
/// The name of the index.
const PLACE: &str = "place";
/// Where the coordinates stand in a record.
const POSITION_AT: usize = 32;

/// No window is wider, in degrees: this is more than the city that the positions are in.
const WIDEST: f64 = 2.0;

/// A row of queries: so many answers, about.
struct QueryRow {
    row: &'static str,
    answers: usize,
    queries: usize,
}

const QUERY_ROWS: [QueryRow; 3] = [
    // Brings blocks into the cache: not shown.
    QueryRow { row: WARM_UP, answers: 250, queries: 1_000 },
    QueryRow { row: "window250-records", answers: 250, queries: 1_000 },
    QueryRow { row: "window2500-records", answers: 2_500, queries: 200 },
];
const WARM_UP: &str = "warm-up";

/// The position and the cell that are written.
#[derive(Debug)]
struct Placed;

impl AttributeExtractor for Placed {
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
    [POSITION_AT, POSITION_AT + 8].map(|at| f64::from_bits(word_at(record, at)))
}

/// A write that is still to be made: of which record, with which position and cell.
type Write = (u64, Position, u64);

/// Which record is where, and when it was written.
struct Model {
    /// Of each record its position and the number of its last write.
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

/// The records in the order of their longitudes, to count and to find those within windows.
struct ByLongitude(Vec<Point>);

impl ByLongitude {
    fn within(&self, [west, south, east, north]: [f64; 4]) -> impl Iterator<Item = &Point> {
        let first = self.0.partition_point(|point| point.position[0] < west);
        let rest = self.0[first..].iter().take_while(move |point| point.position[0] <= east);
        rest.filter(move |point| (south..=north).contains(&point.position[1]))
    }

    /// Windows around random records, with so many records each, or little more. A few positions of the source lie nowhere near the
    /// others; no query is around these.
    fn windows(&self, count: usize, answers: usize, random: &mut Random) -> Vec<[f64; 4]> {
        let mut around = || self.0[random.below(self.0.len() as u64) as usize].position;
        let windows = std::iter::repeat_with(|| self.window(around(), answers));
        windows.filter(|[west, _, east, _]| east - west < WIDEST).take(count).collect()
    }

    /// The smallest square around a position that has so many records, or little more than that.
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

/// How the compared subject is queried.
#[derive(Debug, Clone)]
enum QueryPath {
    /// Without an index there are no queries: it would read everything.
    Nothing,
    /// For windows.
    Windows,
    /// For the cells of windows.
    Cells(Arc<CellQueries>),
}

/// How the subject `name` is queried, and its index.
fn subject(name: &str) -> Result<(QueryPath, String)> {
    let known = SUBJECTS.iter().find(|(known, _)| *known == name);
    let (_, kind) = known.ok_or_else(|| format!("there is no kind `{name}`"))?;
    Ok(match *kind {
        "" => (QueryPath::Nothing, String::new()),
        "next" => (QueryPath::Windows, format!("{PLACE}={POINT}:{kind}")),
        _ => (QueryPath::Cells(Arc::new(CellQueries::of_points())), format!("{PLACE}={CELL}:{kind}")),
    })
}

fn open(plan: &NextPlan, path: &Path) -> Result<(Db, Collection, QueryPath)> {
    let (query_path, index) = subject(&plan.engine)?;
    let mut components = Components::system().extractor("records", Arc::new(Placed));
    if let QueryPath::Cells(cells) = &query_path {
        let stand_in = StandIn::Ranges(cells.clone());
        components = standing_in(components, [(PLACE.to_owned(), stand_in)].into());
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
    Ok((db, records, query_path))
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &NextPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let (db, records, query_path) = open(plan, path)?;
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
    let query_rows = if matches!(query_path, QueryPath::Nothing) { &[][..] } else { &QUERY_ROWS[..] };
    for query_row in query_rows {
        let row = measure_row(&records, query_row, &query_path, &model, &mut random, path, &mapped)?;
        if query_row.row != WARM_UP {
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
    let stopped = meter.stop();
    let settled = measure::settle(Duration::from_secs(120));
    meter.figures(row, &stopped, writes.len(), settled, writes.len() * (KEY_BYTES + RECORD_BYTES))
}

fn measure_row(
    records: &Collection,
    query_row: &QueryRow,
    query_path: &QueryPath,
    model: &ByLongitude,
    random: &mut Random,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let windows = model.windows(query_row.queries, query_row.answers, random);
    let options = FindOptions::default();
    let mut answers = Vec::with_capacity(windows.len());
    let meter = Meter::start(path, mapped);
    for window in &windows {
        let [west, south, east, north] = *window;
        let query = Query::new().within(POINT, Rect::new(west, south, east, north)?);
        let query = match query_path {
            QueryPath::Cells(cells) => {
                cells.run_query(*window);
                query.range(CELL, 0_u64..).using_index(PLACE)
            }
            QueryPath::Windows | QueryPath::Nothing => query,
        };
        answers.push(checksum_of_answers(records, &query, &options)?);
    }
    let stopped = meter.stop();
    for (window, answer) in windows.iter().zip(answers) {
        let expected = model.within(*window).map(|point| (point.write, point.number)).collect();
        if checksum_expected(expected, usize::MAX) != answer {
            return Err(format!("{}: a wrong answer for window {window:?}", query_row.row).into());
        }
    }
    meter.figures(query_row.row, &stopped, windows.len(), Duration::ZERO, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(engine: &str, tiered: bool) -> NextPlan {
        NextPlan { engine: engine.to_owned(), records: 5_000, updates: 1_500, tiered, seed: 1, data: None }
    }

    #[test]
    fn all_subjects_answer_as_the_model_does() {
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
    fn a_wrong_answer_is_noticed_and_windows_have_the_requested_size() {
        for engine in ["next", "ps-tree"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path();
            let (_db, records, query_path) = open(&plan(engine, false), path).unwrap();
            let mut model = Model::new();
            for number in 0..500 {
                let [x, y] = [(number % 25) as f64 * 0.01 - 97.8, (number / 25) as f64 * 0.01 + 30.2];
                model.put(&records, (number, [x, y], cell_of([x, y, x, y]))).unwrap();
            }
            let model = model.by_longitude();
            let window = model.window(model.0[250].position, 40);
            assert!((40..60).contains(&model.within(window).count()));
            let query_row = QueryRow { row: "all", answers: 500, queries: 1 };
            let mut random = Random::new(1);
            let mut row = || measure_row(&records, &query_row, &query_path, &model, &mut random, path, &|| 0);
            row().unwrap();
            records.delete(&keys::key(7)).unwrap();
            assert!(row().is_err());
        }
    }
}
