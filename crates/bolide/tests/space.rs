//! Windows and distances against brute force, on hostile rectangles and on real ones.
//!
//! The real ones are read from a directory `shared/data` beside the repository (areas of England and Wales, buses of
//! Austin); without it those tests print a note and pass.

use std::cmp::Ordering;
use std::path::Path;

use bolide::{Collection, CollectionOptions, Components, Db, NextFigures, Options, Point, Query, Rect};
use serde_json::Value;

/// The corners of the rectangles of a record, extracted without the library.
type Corners = fn(&Value) -> Vec<[f64; 4]>;

struct Place {
    db: Db,
    collection: Collection,
    /// Key, corners and record of each row, in the order of writing.
    rows: Vec<(Vec<u8>, Vec<[f64; 4]>, Value)>,
    path: &'static str,
    /// The index that has to answer.
    index: Option<&'static str>,
}

impl Place {
    fn new(
        lines: impl Iterator<Item = String>,
        path: &'static str,
        corners: Corners,
        specs: &[&str],
    ) -> Self {
        let mut options = CollectionOptions::default();
        for spec in specs {
            options = options.index(spec.parse().unwrap());
        }
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let collection = db.create_collection("c", options).unwrap();
        let mut rows = Vec::new();
        for (number, line) in lines.enumerate() {
            let key = format!("{number:07}").into_bytes();
            collection.put(&key, line.as_bytes()).unwrap();
            let record: Value = serde_json::from_str(&line).unwrap();
            rows.push((key, corners(&record), record));
            if number % 700 == 699 {
                db.flush().unwrap();
            }
        }
        let index = specs.contains(&path).then_some(path);
        Self { db, collection, rows, path, index }
    }

    /// The query, to be answered by the index that has to.
    fn by_index(&self, query: Query) -> Query {
        self.index.map_or(query.clone(), |index| query.using_index(index))
    }

    fn keys(&self, query: &Query) -> Vec<Vec<u8>> {
        self.collection.find(query).unwrap().into_iter().map(|answer| answer.key).collect()
    }

    /// The rows that intersect a window, newest first.
    fn within(&self, window: [f64; 4], also: impl Fn(&Value) -> bool) -> Vec<Vec<u8>> {
        let apart = |one: &[f64; 4]| {
            one[2] < window[0] || window[2] < one[0] || one[3] < window[1] || window[3] < one[1]
        };
        let rows = self.rows.iter().rev();
        let found = rows.filter(|(_, corners, record)| !corners.iter().all(apart) && also(record));
        found.map(|(key, ..)| key.clone()).collect()
    }

    /// The rows by their distance, equal ones newest first.
    fn nearest(&self, x: f64, y: f64) -> Vec<Vec<u8>> {
        let away = |low: f64, at: f64, high: f64| if at < low { low - at } else { (at - high).max(0.0) };
        let distance = |one: &[f64; 4]| {
            let (over, up) = (away(one[0], x, one[2]), away(one[1], y, one[3]));
            over * over + up * up
        };
        let mut found: Vec<(f64, &[u8])> = Vec::new();
        for (key, corners, _) in self.rows.iter().rev() {
            found.extend(corners.iter().map(distance).min_by(f64::total_cmp).map(|min| (min, &key[..])));
        }
        found.sort_by(|left, right| left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal));
        found.into_iter().map(|(_, key)| key.to_vec()).collect()
    }

    /// Queries the window in every form and compares.
    fn check_window(&self, window: [f64; 4]) -> usize {
        let [a, b, c, d] = window;
        let query = self.by_index(Query::new().within(self.path, Rect::new(a, b, c, d).unwrap()));
        let wanted = self.within(window, |_| true);
        assert_eq!(self.keys(&query), wanted, "{window:?}");
        assert_eq!(self.collection.find(&query.clone().count()).unwrap().count(), wanted.len() as u64);
        let few = self.keys(&query.clone().limit(5).keys_only());
        assert_eq!(few[..], wanted[..wanted.len().min(5)], "{window:?}");
        let oldest: Vec<_> = wanted.iter().rev().cloned().collect();
        assert_eq!(self.keys(&query.clone().order(bolide::Order::Oldest)), oldest, "{window:?}");
        assert_eq!(self.pages(&query, wanted.len() / 3 + 1), wanted, "{window:?}");
        wanted.len()
    }

    fn check_nearest(&self, x: f64, y: f64) {
        let query = self.by_index(Query::new().nearest(self.path, Point::new(x, y).unwrap()));
        let wanted = self.nearest(x, y);
        for limit in [1, 10, 100] {
            let found = self.keys(&query.clone().limit(limit));
            assert_eq!(found[..], wanted[..wanted.len().min(limit)], "{limit} nearest to {x},{y}");
        }
        assert_eq!(self.pages(&query.clone().keys_only(), wanted.len() / 3 + 1), wanted, "{x},{y}");
    }

    /// Checks that the database is sound; returns the bytes of index blocks for each byte of its sstables.
    fn check_share(&self) -> f64 {
        let report = self.db.check(true).unwrap();
        assert!(report.problems().is_empty(), "{:?}", report.problems());
        let stats = self.db.stats();
        let index = stats.collections[0].indexes.iter().find(|index| Some(&*index.name) == self.index);
        let figures = index.unwrap().figures_of::<NextFigures>().copied().unwrap();
        assert!(figures.global_bytes * 100 <= figures.table_bytes as usize, "{figures:?}");
        figures.disk_bytes as f64 / figures.table_bytes as f64
    }

    fn pages(&self, query: &Query, page: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut next = Some(query.clone().limit(page));
        while let Some(query) = next {
            let answers = self.collection.find(&query).unwrap();
            next = answers.next_token().map(|token| query.clone().after(token.clone()));
            found.extend(answers.into_iter().map(|answer| answer.key));
        }
        found
    }
}

fn corners_of(value: &Value) -> Option<[f64; 4]> {
    let numbers: Option<Vec<f64>> = value.as_array()?.iter().map(Value::as_f64).collect();
    let [a, b, c, d] = <[f64; 4]>::try_from(numbers?).ok()?;
    (a <= c && b <= d).then_some([a, b, c, d])
}

fn box_of(record: &Value) -> Vec<[f64; 4]> {
    let value = &record["bbox"];
    let elements = value.as_array().into_iter().flatten();
    [value].into_iter().chain(elements).filter_map(corners_of).collect()
}

fn place_of(record: &Value) -> Vec<[f64; 4]> {
    let (lon, lat) = (record["lon"].as_f64(), record["lat"].as_f64());
    lon.zip(lat).map(|(lon, lat)| [lon, lat, lon, lat]).into_iter().collect()
}

/// The lines of a sample of real data, if it exists.
#[allow(clippy::disallowed_methods)] // The data are files of the machine, not of the database.
fn sample(name: &str) -> Option<Vec<String>> {
    // The current directory of the crate, not that of the build in a shared target directory.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")?;
    let path = Path::new(&package).join("../../../shared/data/sample").join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text.lines().map(str::to_owned).collect()),
        Err(error) => {
            eprintln!("skipped: {}: {error}", path.display());
            None
        }
    }
}

#[test]
fn hostile_rectangles_are_found_by_scan_as_by_brute_force() {
    hostile_rectangles(&[]);
}

#[test]
fn hostile_rectangles_are_found_by_index_as_by_brute_force() {
    hostile_rectangles(&["rect(bbox)"]);
}

fn hostile_rectangles(specs: &[&str]) {
    let max = f64::MAX;
    let boxes = [
        "[0,0,1,1]",
        "[1,1,2,2]",
        "[1,0,1,1]",
        "[-0.0,-0.0,0,0]",
        "[1.0000000000000002,0,2,0.9999999999999999]",
        "[5e-324,0,5e-324,0]",
        "[-5e-324,-5e-324,-5e-324,-5e-324]",
        "[-1.7976931348623157e308,-1.7976931348623157e308,1.7976931348623157e308,1.7976931348623157e308]",
        "[1.7976931348623157e308,0,1.7976931348623157e308,0]",
        "[9007199254740993,9007199254740993,9007199254740993,9007199254740993]",
        "[179.5,-1,180,1]",
        "[[179.5,2,180,3],[-180,2,-179.5,3]]",
        "[[0,0,1,1],[0,0,1,1],[5,5,4,4],[7,7,8,8]]",
        "[179,0,-179,1]",
        "[0,5,1,4]",
        "[0,0,1]",
        "[0,0,1,1,1]",
        "[0,0,1,\"1\"]",
        "null",
        "\"0,0,1,1\"",
        "{\"min_x\":0}",
        "[]",
        "[[]]",
    ];
    let lines = || {
        let odd = boxes.iter().map(|one| format!(r#"{{"bbox":{one}}}"#)).chain(["{}".to_owned()]);
        // The same again, so that some are in sstables and some are not.
        let filler = (0..700).map(|n| format!(r#"{{"bbox":[{n},{n},{n},{}]}}"#, n + 1));
        odd.clone().chain(filler).chain(odd).collect::<Vec<_>>()
    };
    let place = Place::new(lines().into_iter(), "rect(bbox)", box_of, specs);
    let corners = [-max, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.0000000000000002, 2.0, 180.0, max];
    let mut found = 0;
    for low in corners {
        for high in corners.into_iter().filter(|high| low <= *high) {
            for (bottom, top) in [(low, high), (0.0, 1.0), (1.0, 1.0), (-max, max)] {
                found += place.check_window([low, bottom, high, top]);
            }
        }
        for y in [-max, 0.0, 2.5] {
            place.check_nearest(low, y);
        }
    }
    assert!(found > 10_000, "{found}");
}

#[test]
fn areas_are_found_by_scan_as_by_brute_force() {
    areas(&["lad", "perimeter_m:composite"]);
}

#[test]
fn areas_are_found_by_index_as_by_brute_force() {
    areas(&["lad", "perimeter_m:composite", "rect(bbox)"]);
    areas(&[
        "lad",
        "perimeter_m:composite",
        "rect(bbox)",
        "small=rect(bbox):next:block_bytes=64,delta=0.001",
    ]);
}

fn areas(specs: &[&str]) {
    let Some(lines) = sample("areas.ndjson") else { return };
    let place = Place::new(lines.into_iter(), "rect(bbox)", box_of, specs);
    let all: Vec<[f64; 4]> = place.rows.iter().flat_map(|(_, corners, _)| corners.clone()).collect();
    let mut found = 0;
    for [a, b, c, d] in all.iter().copied().step_by(97) {
        for size in [0.0, 0.001, 0.01, 0.1] {
            found += place.check_window([a - size, b - size, a + size, b + size]);
        }
        // Windows that only touch.
        found += place.check_window([c, d, c + 0.01, d + 0.01]);
        found += place.check_window([a, b, c, d]);
        place.check_nearest(a, d);
        // As a filter of another index, and beside one.
        let window = [a - 0.05, b - 0.05, a + 0.05, b + 0.05];
        let query =
            Query::new().within("rect(bbox)", Rect::new(window[0], window[1], window[2], window[3]).unwrap());
        let lad = |record: &Value| record["lad"] == "E09000002";
        let wanted = place.within(window, lad);
        let of_lad = query.clone().eq("lad", "E09000002");
        assert_eq!(place.keys(&of_lad), wanted);
        assert_eq!(place.keys(&of_lad.using_index("lad")), wanted);
        let short = |record: &Value| record["perimeter_m"].as_f64().is_some_and(|metres| metres <= 900.0);
        assert_eq!(place.keys(&query.range("perimeter_m", ..=900.0)), place.within(window, short));
    }
    assert!(found > 1_000, "{found}");
    if place.index.is_some() {
        let share = place.check_share();
        assert!(share < 0.15, "{share}");
    }
}

#[test]
fn vehicles_are_found_by_scan_as_by_brute_force() {
    vehicles(&["route"]);
}

#[test]
fn vehicles_are_found_by_index_as_by_brute_force() {
    vehicles(&["route", "point(lon,lat)"]);
}

fn vehicles(specs: &[&str]) {
    let Some(lines) = sample("vehicles.ndjson") else { return };
    let place = Place::new(lines.into_iter(), "point(lon,lat)", place_of, specs);
    let all: Vec<[f64; 4]> = place.rows.iter().flat_map(|(_, corners, _)| corners.clone()).collect();
    let mut found = 0;
    for [x, y, ..] in all.iter().copied().step_by(97) {
        for size in [0.0, 0.001, 0.01, 0.1] {
            found += place.check_window([x - size, y - size, x + size, y + size]);
        }
        place.check_nearest(x + 0.002, y);
    }
    assert!(found > 1_000, "{found}");
    if place.index.is_some() {
        let share = place.check_share();
        assert!(share < 0.15, "{share}");
    }
}
