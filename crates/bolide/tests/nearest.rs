//! The nearest K: against brute force through random lives of a collection, and by the reads of its queries.

mod support;

use std::collections::BTreeMap;

use bolide::storage::SimRng;
use bolide::{BuildOptions, Collection, Db, Layout, NextCosts, Point, Query, Snapshot};
use support::{components, seed, tiny, tiny_collection};

const LAYOUTS: [Layout; 4] = [Layout::Leveled, Layout::Tiered, Layout::Partitioned, Layout::Fragmented];

/// The index that has to answer, and its attribute.
const BOXES: &str = "rect(box)";
const PLACES: &str = "point(x,y)";

/// The content of a record: the number of its write, its point if it has one, and its rectangles.
#[derive(Debug, Clone)]
struct Row {
    written: u64,
    point: Option<[f64; 2]>,
    boxes: Vec<[f64; 4]>,
}

type Model = BTreeMap<Vec<u8>, Row>;

impl Row {
    fn random(rng: &mut SimRng, written: u64) -> Self {
        let point = (!rng.one_in(6)).then(|| [coordinate(rng), coordinate(rng)]);
        let count = [1, 1, 1, 0, 2, 5][rng.below(6) as usize];
        let boxes = (0..count).map(|_| random_box(rng)).collect();
        Self { written, point, boxes }
    }

    fn json(&self) -> Vec<u8> {
        let point = self.point.map_or(String::new(), |[x, y]| format!(r#""x":{x:?},"y":{y:?},"#));
        let boxes: Vec<String> = self.boxes.iter().map(|one| format!("{one:?}")).collect();
        // One rectangle is written without a list around it, or with one.
        let boxes = match &boxes[..] {
            [only] if self.written.is_multiple_of(2) => only.clone(),
            all => format!("[{}]", all.join(",")),
        };
        format!(r#"{{{point}"box":{boxes},"pad":"{:0>40}"}}"#, self.written).into_bytes()
    }

    /// The square of the distance of the nearest geometry, if there is any.
    fn distance(&self, path: &str, [x, y]: [f64; 2]) -> Option<f64> {
        let away = |low: f64, at: f64, high: f64| {
            if at < low {
                low - at
            } else if at > high {
                at - high
            } else {
                0.0
            }
        };
        let distance = |[a, b, c, d]: [f64; 4]| away(a, x, c).powi(2) + away(b, y, d).powi(2);
        match path {
            BOXES => self.boxes.iter().copied().map(distance).min_by(f64::total_cmp),
            _ => self.point.map(|[a, b]| distance([a, b, a, b])),
        }
    }
}

/// Few whole numbers, so that many distances are equal; occasionally an extreme value.
fn coordinate(rng: &mut SimRng) -> f64 {
    match rng.below(20) {
        0 => [f64::MAX, f64::MIN, -0.0, 5e-324, 180.0, -180.0, 1.0 + f64::EPSILON][rng.below(7) as usize],
        1..4 => (rng.below(1 << 20) as f64 - 524_288.0) / 7.0,
        _ => rng.below(12) as f64 - 4.0,
    }
}

fn random_box(rng: &mut SimRng) -> [f64; 4] {
    let [a, b, c, d] = [coordinate(rng), coordinate(rng), coordinate(rng), coordinate(rng)];
    // Most are small, some have no extent.
    let (c, d) = match rng.below(4) {
        0 => (c, d),
        1 => (a, b),
        _ => (a + 1.0, b + rng.below(3) as f64),
    };
    [a.min(c), b.min(d), a.max(c), b.max(d)]
}

/// The keys by distance, equal ones newest first.
fn nearest_keys(model: &Model, path: &str, at: [f64; 2]) -> Vec<Vec<u8>> {
    let mut found: Vec<(f64, u64, &Vec<u8>)> = Vec::new();
    for (key, row) in model {
        found.extend(row.distance(path, at).map(|distance| (distance, row.written, key)));
    }
    found.sort_by(|left, right| left.0.total_cmp(&right.0).then(right.1.cmp(&left.1)));
    found.into_iter().map(|(_, _, key)| key.clone()).collect()
}

struct Life {
    collection: Collection,
    model: Model,
    writes: u64,
    snapshots: Vec<(Snapshot, Model)>,
    /// Queries that were answered by a walk.
    walks: u64,
}

impl Life {
    fn put(&mut self, key: Vec<u8>, rng: &mut SimRng) {
        self.writes += 1;
        let row = Row::random(rng, self.writes);
        self.collection.put(&key, &row.json()).unwrap();
        self.model.insert(key, row);
    }

    /// Queries the nearest to a point in several ways, now and at each snapshot.
    fn check(&mut self, rng: &mut SimRng) {
        for path in [BOXES, PLACES] {
            let at = [coordinate(rng), coordinate(rng)];
            let point = Point::new(at[0], at[1]).unwrap();
            let query = Query::new().nearest(path, point).using_index(path);
            let all = nearest_keys(&self.model, path, at);
            for limit in [1, 7, 50, 5_000] {
                let query = query.clone().limit(limit);
                let query = if rng.one_in(2) { query.keys_only() } else { query };
                let answers = self.collection.find(&query).unwrap();
                self.walks += u64::from(answers.explain().streamed);
                let found: Vec<_> = answers.into_iter().map(|answer| answer.key).collect();
                assert_eq!(found[..], all[..all.len().min(limit)], "{limit} of {path} nearest to {at:?}");
            }
            let count = self.collection.find(&query.clone().count()).unwrap().count();
            assert_eq!(count, all.len() as u64);
            self.check_pages(&query.clone().limit(1 + rng.below(9) as usize), &all);
            for (snapshot, model) in &self.snapshots {
                let found = self.collection.find_at(snapshot, &query.clone().limit(9)).unwrap();
                let found: Vec<_> = found.into_iter().map(|answer| answer.key).collect();
                let then = nearest_keys(model, path, at);
                assert_eq!(found[..], then[..then.len().min(9)], "{path} nearest to {at:?} at a snapshot");
            }
        }
    }

    fn check_pages(&self, query: &Query, all: &[Vec<u8>]) {
        let mut found = Vec::new();
        let mut next = Some(query.clone());
        while let Some(page) = next {
            let answers = self.collection.find(&page).unwrap();
            next = answers.next_token().map(|token| query.clone().after(token.clone()));
            found.extend(answers.into_iter().map(|answer| answer.key));
        }
        assert_eq!(found, all, "pages of {query:?}");
    }
}

/// A life of writes that move records, deletes, flushes and compactions, with queries throughout.
fn live(layout: Layout, seed: u64, has_flushes: bool) -> Life {
    println!("{layout:?}, seed {seed}, flushes: {has_flushes}");
    let options = if has_flushes { tiny() } else { tiny().memtable_bytes(8 << 20) };
    let db = Db::open_with("db", options, components(seed)).unwrap();
    let mut declared = tiny_collection().layout(layout);
    let made_later = has_flushes && seed.is_multiple_of(2);
    let specs = ["rect(box):next:block_bytes=128", "point(x,y):next:block_bytes=128"];
    if !made_later {
        declared = specs.iter().fold(declared, |all, spec| all.index(spec.parse().unwrap()));
    }
    let collection = db.create_collection("c", declared).unwrap();
    let mut life = Life { collection, model: Model::new(), writes: 0, snapshots: Vec::new(), walks: 0 };
    let mut rng = SimRng::new(seed);
    for step in 0..1_200 {
        let key = format!("{:03}", rng.below(300)).into_bytes();
        match rng.below(100) {
            0..80 => life.put(key, &mut rng),
            80..94 => {
                life.collection.delete(&key).unwrap();
                life.model.remove(&key);
            }
            94..96 => {
                let mut end = key.clone();
                end.push(b'~');
                let end = [&end[..2], b"~"].concat();
                life.collection.delete_range(&key[..]..&end[..]).unwrap();
                life.model.retain(|one, _| !(*one >= key && *one < end));
            }
            96 if has_flushes => db.flush().unwrap(),
            97 if has_flushes && rng.one_in(4) => db.compact().unwrap(),
            98 if life.snapshots.len() < 2 => life.snapshots.push((db.snapshot(), life.model.clone())),
            99 if rng.one_in(2) => drop(life.snapshots.pop()),
            _ => {}
        }
        if made_later && step == 500 {
            // One index is added to all old sstables, the other is not: both paths are queried.
            let lazily = BuildOptions::default().leaves_old_sstables(true);
            life.collection.create_index(specs[0].parse().unwrap()).unwrap();
            life.collection.create_index_with(specs[1].parse().unwrap(), &lazily).unwrap();
        }
        if step % 40 == 39 && !(made_later && step < 500) {
            life.check(&mut rng);
        }
    }
    assert!(db.check(true).unwrap().is_sound());
    life
}

#[test]
fn the_nearest_are_those_of_brute_force_in_all_layouts() {
    let seed = seed();
    for (number, layout) in (0..).zip(LAYOUTS) {
        for seed in [2 * seed, 2 * seed + 1] {
            let life = live(layout, seed + 100 * number, true);
            assert!(life.walks > 20, "{}", life.walks);
        }
    }
}

#[test]
fn the_nearest_of_unflushed_records_are_those_of_brute_force() {
    let life = live(Layout::Leveled, seed(), false);
    assert!(life.walks > 100, "{}", life.walks);
}

/// Records on a grid of `side` by `side`.
fn grid(side: u64, moved: bool) -> (Db, Collection) {
    let db = Db::open_with("db", tiny(), components(1)).unwrap();
    let spec = "point(x,y):next:block_bytes=256".parse().unwrap();
    // Keys are independent of coordinates, so each sstable has records everywhere: few sstables, many blocks in each.
    let declared = tiny_collection().target_file_bytes(1 << 20).index(spec);
    let collection = db.create_collection("c", declared).unwrap();
    let put = |number: u64, [x, y]: [u64; 2]| {
        let record = format!(r#"{{"x":{x},"y":{y},"pad":"{number:0>40}"}}"#);
        collection.put(format!("{number:06}").as_bytes(), record.as_bytes()).unwrap();
    };
    let place = |number: u64| number * 7_919 % (side * side);
    (0..side * side).for_each(|number| put(number, [place(number) % side, place(number) / side]));
    if moved {
        db.compact().unwrap();
        let near = (0..side * side).filter(|number| place(*number) % side < 10 && place(*number) / side < 10);
        near.for_each(|number| put(number, [side * 2, side * 2]));
    }
    (db, collection)
}

#[test]
fn the_nearest_few_read_few_blocks() {
    let (db, collection) = grid(60, false);
    db.compact().unwrap();
    for (x, y, limit) in [(0.0, 0.0, 1), (30.2, 30.3, 10), (59.0, 2.0, 40), (-500.0, 30.0, 10)] {
        let query = Query::new().nearest(PLACES, Point::new(x, y).unwrap()).limit(limit);
        let answers = collection.find(&query).unwrap();
        assert_eq!(answers.len(), limit);
        let cost = answers.explain().costs_of::<NextCosts>();
        println!("{limit} nearest to {x},{y}: {cost:?}");
        assert!(cost.index_blocks > 60, "{cost:?}");
        assert!(cost.index_blocks_read <= 6 + limit as u64 / 4, "{cost:?}");
        assert!(cost.data_blocks_read <= limit as u64, "{cost:?}");
        assert_eq!(answers.explain().candidates, limit as u64);
        // The next page reads no more than the first.
        let token = answers.next_token().unwrap().clone();
        let next = collection.find(&query.after(token)).unwrap();
        let next = next.explain().costs_of::<NextCosts>();
        assert!(next.index_blocks_read <= 12 + limit as u64 / 2, "{next:?}");
        assert!(next.data_blocks_read <= limit as u64, "{next:?}");
    }
}

#[test]
fn moved_records_are_skipped() {
    let (db, collection) = grid(40, true);
    let query = Query::new().nearest(PLACES, Point::new(0.0, 0.0).unwrap()).limit(4);
    let mut obsolete = 0;
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
        }
        let answers = collection.find(&query).unwrap();
        let explain = answers.explain();
        obsolete += explain.obsolete;
        assert!(
            explain.costs_of::<NextCosts>().index_blocks_read * 3
                < explain.costs_of::<NextCosts>().index_blocks,
            "{explain}"
        );
        // 10,0 and 0,10, the one written later first; then 1,10 and 10,1.
        for answer in answers {
            let record: serde_json::Value = serde_json::from_slice(&answer.record.unwrap()).unwrap();
            let (x, y) = (record["x"].as_u64().unwrap(), record["y"].as_u64().unwrap());
            assert!(x.max(y) == 10 && x.min(y) <= 1, "{x},{y}");
        }
    }
    assert!(obsolete > 0);
}
