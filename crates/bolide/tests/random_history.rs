//! Random histories against an ordered map: records, iterators, snapshots, every index and every order of queries,
//! through flushes, compactions, reopens, and indexes created and dropped in between.

mod support;

use bolide::storage::SimRng;
use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, IterOptions, Layout, Order, Query, Result,
    Snapshot, WriteBatch,
};
use support::{Model, Row, components, keys_where, tiny, tiny_collection};

/// Index specifications that the histories create and drop.
const SPECS: [&str; 12] = [
    "group",
    "sync=group:composite:maintenance=synchronous",
    "in.number",
    "tags[*]:composite:maintenance=synchronous",
    "both=group+in.number",
    "lazy=group:lazy",
    "lists=tags[*]:lazy:maintenance=synchronous",
    "eager=group:eager",
    "pieces=tags[*]:eager:maintenance=synchronous",
    "whole=in.number:eager:split=off,validation=get-lite",
    "keyed=group:composite:order=primary-key",
    "keyed-sync=tags[*]:composite:order=primary-key,maintenance=synchronous",
];

const KEYS: u64 = 60;

fn key(rng: &mut SimRng) -> Vec<u8> {
    format!("k{:02}", rng.below(KEYS)).into_bytes()
}

/// Whether a row satisfies the query.
type Condition = Box<dyn Fn(&Row) -> bool>;

struct Run {
    rng: SimRng,
    components: Components,
    db: Option<Db>,
    collection: Option<Collection>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let components = components(seed);
        let db = Db::open_with("db", tiny(), components.clone()).unwrap();
        let mut options: CollectionOptions = tiny_collection();
        options = options.layout(*rng.pick(&Layout::ALL).unwrap());
        options = options.compression(if rng.one_in(2) { Compression::None } else { Compression::Lz4 });
        for spec in SPECS.iter().take(rng.below(3) as usize) {
            options = options.index(spec.parse().unwrap());
        }
        let collection = db.create_collection("c", options).unwrap();
        let (db, collection) = (Some(db), Some(collection));
        Self { rng, components, db, collection, model: Model::new(), snapshots: Vec::new() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn collection(&self) -> &Collection {
        self.collection.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..70 => self.write(),
            70..74 => self.db().flush().unwrap(),
            74..76 => self.db().compact().unwrap(),
            76..79 => self.reopen(),
            79 if self.rng.one_in(2) => {
                let layout = *self.rng.pick(&Layout::ALL).unwrap();
                self.collection().set_layout(layout).unwrap();
            }
            79..84 => self.toggle_index(),
            84..89 => self.toggle_snapshot(),
            _ => self.query(),
        }
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        let mut changed = self.model.clone();
        let mut writes = Vec::new();
        for position in 0..=self.rng.below(4) {
            if self.rng.one_in(5) {
                let key = key(&mut self.rng);
                batch.delete(self.collection(), &key).unwrap();
                changed.remove(&key);
            } else if self.rng.one_in(12) {
                let (mut start, mut end) = (key(&mut self.rng), key(&mut self.rng));
                if start > end {
                    std::mem::swap(&mut start, &mut end);
                }
                end.push(b'x');
                batch.delete_range(self.collection(), &start..&end).unwrap();
                changed.retain(|key, _| *key < start || *key >= end);
            } else {
                let (key, row) = (key(&mut self.rng), Row::random(&mut self.rng));
                batch.put(self.collection(), &key, &row.json()).unwrap();
                changed.insert(key.clone(), row);
                writes.push((position, key));
            }
        }
        let count = batch.len() as u64;
        let last = self.db().write(batch).unwrap();
        for (position, key) in writes {
            if let Some(row) = changed.get_mut(&key) {
                row.sequence = last - count + 1 + position;
            }
        }
        self.model = changed;
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.collection = None;
        self.db.take().unwrap().close().unwrap();
        let db = Db::open_with("db", tiny(), self.components.clone()).unwrap();
        self.collection = Some(db.collection("c").unwrap());
        self.db = Some(db);
    }

    fn toggle_index(&mut self) {
        let spec: bolide::IndexSpec = self.rng.pick(&SPECS).unwrap().parse().unwrap();
        match self.collection().index(spec.name()) {
            Ok(_) => self.collection().drop_index(spec.name()).unwrap(),
            Err(_) => self.collection().create_index(spec).unwrap(),
        }
    }

    fn toggle_snapshot(&mut self) {
        if self.snapshots.len() > 2 {
            self.snapshots.remove(0);
        } else {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        }
    }

    fn query(&mut self) {
        let chosen = self.rng.below(self.snapshots.len() as u64 + 1) as usize;
        let (snapshot, model) = match self.snapshots.get(chosen) {
            Some((snapshot, model)) => (Some(snapshot.clone()), model.clone()),
            None => (None, self.model.clone()),
        };
        let mut options = IterOptions::default();
        if let Some(snapshot) = &snapshot {
            options = options.snapshot(snapshot);
        }
        self.check_iteration(options, &model);
        for _ in 0..4 {
            self.check_find(snapshot.as_ref(), &model);
        }
    }

    fn check_iteration(&mut self, options: IterOptions, model: &Model) {
        let (mut low, mut high) = (key(&mut self.rng), key(&mut self.rng));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let wanted: Vec<Vec<u8>> =
            model.range(low.clone()..=high.clone()).map(|(key, _)| key.clone()).collect();
        let mut iter = self.collection().iter_with(&options.range(low..=high)).unwrap();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let forward = self.rng.one_in(2);
            let next = if forward { iter.next() } else { iter.next_back() };
            let Some(record) = next else { break };
            let (key, record) = record.unwrap();
            assert_eq!(record, model[&key].json());
            if forward { front.push(key) } else { back.push(key) }
        }
        front.extend(back.into_iter().rev());
        assert_eq!(front, wanted);
    }

    fn check_find(&mut self, snapshot: Option<&Snapshot>, model: &Model) {
        let orders = [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending];
        let mut order = *self.rng.pick(&orders).unwrap();
        let (group, tag) = (self.rng.below(4), self.rng.below(5));
        let (low, high) = (self.rng.below(50) as i64 - 25, self.rng.below(50) as i64 - 25);
        let query = Query::new();
        let (query, wanted): (Query, Condition) = match self.rng.below(4) {
            0 => {
                (query.eq("group", format!("g{group}")), Box::new(move |row: &Row| row.group == Some(group)))
            }
            1 => (query.eq("tags[*]", format!("t{tag}")), Box::new(move |row: &Row| row.tags.contains(&tag))),
            2 => (
                query.range("in.number", low.min(high)..=low.max(high)),
                Box::new(move |row: &Row| (low.min(high)..=low.max(high)).contains(&row.number)),
            ),
            _ => (
                query.eq("group", format!("g{group}")).range("in.number", low..),
                Box::new(move |row: &Row| row.group == Some(group) && row.number >= low),
            ),
        };
        if !query.predicates().iter().any(|predicate| predicate.to_string().contains("number"))
            && matches!(order, Order::Value | Order::ValueDescending)
        {
            order = Order::Newest;
        }
        let mut expected = keys_where(model, order, wanted);
        let limit = self.rng.below(30) as usize + 1;
        expected.truncate(limit);
        let query = query.order(order).limit(limit);
        let find = |query: &Query| match snapshot {
            Some(snapshot) => self.collection().find_at(snapshot, query),
            None => self.collection().find(query),
        };
        let records = find(&query).unwrap();
        let found: Vec<Vec<u8>> = records.iter().map(|answer| answer.key.clone()).collect();
        assert_eq!(found, expected, "{query:?} {}", records.explain());
        for answer in &records {
            let row = &model[&answer.key];
            assert_eq!((answer.sequence, &answer.record), (row.sequence, &Some(row.json())));
        }
        let keys = find(&query.clone().keys_only()).unwrap();
        let found: Vec<Vec<u8>> = keys.iter().map(|answer| answer.key.clone()).collect();
        assert_eq!(found, expected, "keys only: {query:?} {}", keys.explain());
        assert_eq!(find(&query.count()).unwrap().count(), expected.len() as u64);
    }

    fn check_all(&self) -> Result<()> {
        let found: Vec<(Vec<u8>, Vec<u8>)> = self.collection().iter()?.collect::<Result<_>>()?;
        let wanted: Vec<(Vec<u8>, Vec<u8>)> =
            self.model.iter().map(|(key, row)| (key.clone(), row.json())).collect();
        assert_eq!(found, wanted);
        for (key, row) in &self.model {
            let (sequence, record) = self.collection().get_pinned(key)?.unwrap();
            assert_eq!((sequence, &*record), (row.sequence, &row.json()[..]));
        }
        let report = self.db().check(true)?;
        assert!(report.is_sound(), "{report}");
        Ok(())
    }
}

#[test]
fn random_histories_agree_with_an_ordered_map() {
    let first = support::seed();
    for seed in first..first + 60 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..120 {
            run.step();
        }
        run.check_all().unwrap();
    }
}
