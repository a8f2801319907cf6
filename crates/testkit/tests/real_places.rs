//! Window and nearest-neighbour queries against brute force on all areas of England and Wales and all bus positions of Austin.
//!
//! The tests read `shared/data` beside the repository; without it they print a message and pass.

use std::cmp::Ordering;
use std::path::Path;

use bolide::storage::SimRng;
use bolide::{
    Collection, CollectionOptions, Components, Db, Layout, NextCosts, NextFigures, Options, Order, Point,
    Query, Rect, SyncMode,
};
use serde_json::Value;

/// A record of the model: its key, its corners if it exists, and the number of its last write.
struct SpatialRecord {
    key: Vec<u8>,
    corners: Option<[f64; 4]>,
    written: u64,
}

/// A loaded collection with its model, newest records first.
struct SpatialCollection {
    db: Db,
    collection: Collection,
    rows: Vec<SpatialRecord>,
    path: &'static str,
}

/// The lines of a file of real data, if the file exists.
#[allow(clippy::disallowed_methods)] // The data are not files of the database.
fn lines(name: &str) -> Option<Vec<String>> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")?;
    let path = Path::new(&package).join("../../../shared/data").join(name);
    let compressed = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            eprintln!("skipped: {}: {error}", path.display());
            return None;
        }
    };
    let text = String::from_utf8(zstd::decode_all(&compressed[..]).unwrap()).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

fn corners(record: &Value) -> Option<[f64; 4]> {
    if let (Some(lon), Some(lat)) = (record["lon"].as_f64(), record["lat"].as_f64()) {
        return Some([lon, lat, lon, lat]);
    }
    let numbers: Option<Vec<f64>> = record["bbox"].as_array()?.iter().map(Value::as_f64).collect();
    <[f64; 4]>::try_from(numbers?).ok().filter(|[a, b, c, d]| a <= c && b <= d)
}

/// The squared distance from a point to a rectangle.
fn distance([a, b, c, d]: [f64; 4], x: f64, y: f64) -> f64 {
    let away = |low: f64, at: f64, high: f64| if at < low { low - at } else { (at - high).max(0.0) };
    let (over, up) = (away(a, x, c), away(b, y, d));
    over * over + up * up
}

impl SpatialCollection {
    /// Puts all rows in the order of the file. Then 5 % of the rows move to the coordinates of another row, and 5 % are
    /// deleted. The last writes are not flushed.
    fn new(lines: &[String], path: &'static str, layout: Layout) -> Self {
        let options = Options::default().sync(SyncMode::None).memtable_bytes(4 << 20).background_threads(0);
        let db = Db::open_with("db", options, Components::in_memory()).unwrap();
        let declared = CollectionOptions::json().layout(layout).index(path.parse().unwrap());
        let collection = db.create_collection("c", declared).unwrap();
        let mut rows: Vec<SpatialRecord> = Vec::with_capacity(lines.len());
        for (line, written) in lines.iter().zip(0..) {
            let record: Value = serde_json::from_str(line).unwrap();
            let key = record["id"].to_string().into_bytes();
            collection.put(&key, line.as_bytes()).unwrap();
            rows.push(SpatialRecord { key, corners: corners(&record), written });
        }
        db.compact().unwrap();
        let (share, bytes) = share(&db);
        println!("{path}, {layout:?}, as loaded: {share:.4} of the records, {bytes:.2} bytes an entry");
        assert!(share < 0.152, "{share}");
        let (mut rng, mut written) = (SimRng::new(7), rows.len() as u64);
        for _ in 0..rows.len() / 20 {
            let [moved, target, deleted] = [0; 3].map(|_| rng.below(lines.len() as u64) as usize);
            written += 1;
            collection.put(&rows[moved].key, lines[target].as_bytes()).unwrap();
            let corners = corners(&serde_json::from_str(&lines[target]).unwrap());
            (rows[moved].corners, rows[moved].written) = (corners, written);
            collection.delete(&rows[deleted].key).unwrap();
            rows[deleted].corners = None;
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.written));
        Self { db, collection, rows, path }
    }

    fn keys(&self, query: Query) -> Vec<Vec<u8>> {
        let answers = self.collection.find(&query.using_index(self.path).keys_only()).unwrap();
        answers.into_iter().map(|answer| answer.key).collect()
    }

    /// Checks a window query and returns the number of its records.
    fn check_window(&self, window: [f64; 4]) -> usize {
        let [a, b, c, d] = window;
        let meets = |one: &[f64; 4]| one[0] <= c && a <= one[2] && one[1] <= d && b <= one[3];
        let found = self.rows.iter().filter(|row| row.corners.as_ref().is_some_and(meets));
        let wanted: Vec<&Vec<u8>> = found.map(|row| &row.key).collect();
        let query = Query::new().within(self.path, Rect::new(a, b, c, d).unwrap());
        assert!(self.keys(query.clone()).iter().eq(wanted.iter().copied()), "{window:?}");
        let newest = self.keys(query.clone().limit(10));
        assert!(newest.iter().eq(wanted.iter().copied().take(10)), "the newest 10 of {window:?}");
        let oldest = self.keys(query.order(Order::Oldest).limit(10));
        assert!(oldest.iter().eq(wanted.iter().rev().copied().take(10)), "the oldest 10 of {window:?}");
        wanted.len()
    }

    /// Checks nearest-neighbour queries with limits and page by page.
    fn check_nearest(&self, x: f64, y: f64) {
        let mut wanted: Vec<(f64, &Vec<u8>)> = Vec::new();
        wanted.extend(self.rows.iter().filter_map(|row| Some((distance(row.corners?, x, y), &row.key))));
        // A stable sort: equal distances stay newest first.
        wanted.sort_by(|left, right| left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal));
        let query = Query::new().nearest(self.path, Point::new(x, y).unwrap());
        for limit in [1, 10, 300] {
            let found = self.keys(query.clone().limit(limit));
            assert!(
                found.iter().eq(wanted.iter().map(|one| one.1).take(limit)),
                "{limit} nearest to {x},{y}"
            );
        }
        let page = query.keys_only().limit(40).using_index(self.path);
        let mut found = Vec::new();
        let mut next = Some(page.clone());
        while let Some(query) = next.take_if(|_| found.len() < 200) {
            let answers = self.collection.find(&query).unwrap();
            let cost = answers.explain().costs_of::<NextCosts>();
            assert!(cost.index_blocks_read * 2 < cost.index_blocks, "{cost:?}");
            next = answers.next_token().map(|token| page.clone().after(token.clone()));
            found.extend(answers.into_iter().map(|answer| answer.key));
        }
        assert!(found.iter().eq(wanted.iter().map(|one| one.1).take(200)), "pages of the nearest to {x},{y}");
    }

    fn check_all(&self) {
        let mut rng = SimRng::new(11);
        let mut found = [0; 3];
        for _ in 0..25 {
            let row = &self.rows[rng.below(self.rows.len() as u64) as usize];
            let Some([x, y, ..]) = row.corners else { continue };
            for (found, size) in found.iter_mut().zip([0.001, 0.01, 0.1]) {
                *found += self.check_window([x - size, y - size, x + size, y + size]);
            }
            self.check_nearest(x + 0.0003, y - 0.0001);
        }
        self.check_window([f64::MIN, f64::MIN, f64::MAX, f64::MAX]);
        for (x, y) in [(0.0, 0.0), (-180.0, 90.0), (1e300, -1e300)] {
            self.check_nearest(x, y);
        }
        println!("small, medium and large windows found {found:?}");
        assert!(found[0] > 20 && found[1] > found[0] * 5 && found[2] > found[1] * 5, "{found:?}");
    }
}

/// The ratio of index block bytes to the remaining bytes of the sstables, and index block bytes per entry.
fn share(db: &Db) -> (f64, f64) {
    let stats = db.stats();
    let figures = stats.collections[0].indexes[0].figures_of::<NextFigures>().copied().unwrap();
    let entries = stats.collections[0].table.entries as f64;
    assert!(figures.global_bytes * 100 <= figures.table_bytes as usize, "{figures:?}");
    let (index, records) = (figures.disk_bytes as f64, (figures.table_bytes - figures.disk_bytes) as f64);
    (index / records, index / entries)
}

fn check(name: &str, path: &'static str, layout: Layout) {
    let Some(lines) = lines(name) else { return };
    let loaded = SpatialCollection::new(&lines, path, layout);
    loaded.check_all();
    loaded.db.compact().unwrap();
    loaded.check_all();
    // Updates make the sequence numbers irregular.
    let (share, bytes) = share(&loaded.db);
    println!("{name}, {layout:?}, after updates: {share:.4} of the records, {bytes:.2} bytes an entry");
    assert!(share < 0.17, "{share}");
}

#[test]
fn area_queries_match_brute_force() {
    check("areas.ndjson.zst", "rect(bbox)", Layout::Leveled);
    check("areas.ndjson.zst", "rect(bbox)", Layout::Partitioned);
}

#[test]
fn vehicle_queries_match_brute_force() {
    check("vehicles.ndjson.zst", "point(lon,lat)", Layout::Tiered);
}
