//! Indexes in the sstables of the records, against an ordered map: random histories with tiny blocks and memtables,
//! every order and limit, snapshots, reopens, indexes created and dropped in between. Every query names its index, so
//! that no other one answers; its reads and skips are checked too.

mod support;

use bolide::storage::SimRng;
use bolide::{
    BuildOptions, Collection, CollectionOptions, Components, Compression, Db, EmbeddedCosts, Layout,
    NextCosts, Order, Query, Snapshot,
};
use support::{Model, Row, components, keys_where, tiny, tiny_collection, tiny_db};

/// Name and specification of each index.
type Specs = [(&'static str, &'static str); 5];

const EMBEDDED: Specs = [
    ("group", "group:embedded"),
    ("number", "number=in.number:embedded:bloom_bits=1"),
    ("tags", "tags=tags[*]:embedded:bloom_bits=20"),
    ("both", "both=group+in.number:embedded"),
    ("tagged", "tagged=tags[*]+group:embedded:bloom_bits=100"),
];

/// With such small blocks that an sstable has several of them.
const NEXT: Specs = [
    ("group", "group:next:block_bytes=64"),
    ("number", "number=in.number:next:block_bytes=64,delta=2"),
    ("tags", "tags=tags[*]:next:block_bytes=100"),
    ("both", "both=group+in.number:next:block_bytes=200"),
    ("tagged", "tagged=tags[*]+group:next"),
];

type Condition = Box<dyn Fn(&Row) -> bool>;

struct Run {
    rng: SimRng,
    specs: Specs,
    components: Components,
    db: Option<Db>,
    collection: Option<Collection>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl Run {
    fn new(seed: u64, specs: Specs) -> Self {
        let mut rng = SimRng::new(seed);
        let components = components(seed);
        let db = Db::open_with("db", tiny(), components.clone()).unwrap();
        let layout = if rng.one_in(2) { Layout::Tiered } else { Layout::Leveled };
        let compression = if rng.one_in(2) { Compression::None } else { Compression::Lz4 };
        let mut options: CollectionOptions =
            tiny_collection().layout(layout).compression(compression).block_bytes(256);
        for (_, spec) in specs.iter().take(rng.below(6) as usize) {
            options = options.index(spec.parse().unwrap());
        }
        let collection = db.create_collection("c", options).unwrap();
        let (db, collection) = (Some(db), Some(collection));
        Self { rng, specs, components, db, collection, model: Model::new(), snapshots: Vec::new() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn collection(&self) -> &Collection {
        self.collection.as_ref().unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{:03}", self.rng.below(150)).into_bytes()
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..60 => self.write(),
            60..64 => self.db().flush().unwrap(),
            64..66 => self.db().compact().unwrap(),
            66..68 => self.reopen(),
            68..71 => self.toggle_index(),
            71..76 => self.toggle_snapshot(),
            _ => self.run_query(),
        }
    }

    fn write(&mut self) {
        let key = self.key();
        match self.rng.below(12) {
            0 => {
                self.collection().delete(&key).unwrap();
                self.model.remove(&key);
            }
            1 if self.rng.one_in(4) => {
                let end = format!("k{:03}", self.rng.below(150)).into_bytes();
                if key < end {
                    self.collection().delete_range(&key[..]..&end[..]).unwrap();
                    self.model.retain(|other, _| *other < key || *other >= end);
                }
            }
            _ => {
                let mut row = Row::random(&mut self.rng);
                self.collection().put(&key, &row.json()).unwrap();
                row.sequence = self.db().snapshot().sequence();
                self.model.insert(key, row);
            }
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.collection = None;
        self.db = None;
        let db = Db::open_with("db", tiny(), self.components.clone()).unwrap();
        self.collection = Some(db.collection("c").unwrap());
        self.db = Some(db);
    }

    fn toggle_index(&mut self) {
        let (name, spec) = self.specs[self.rng.below(self.specs.len() as u64) as usize];
        if self.collection().drop_index(name).is_err() {
            let options = BuildOptions::default().leaves_old_sstables(self.rng.one_in(2));
            self.collection().create_index_with(spec.parse().unwrap(), &options).unwrap();
        }
    }

    fn toggle_snapshot(&mut self) {
        if self.snapshots.len() < 3 {
            self.snapshots.push((self.db().snapshot(), self.model.clone()));
        } else {
            let at = self.rng.below(3) as usize;
            self.snapshots.remove(at);
        }
    }

    /// A query for the index `name`, and the condition of its answers.
    fn random_query(&mut self, name: &str) -> (Query, Condition) {
        let group = format!("g{}", self.rng.below(5));
        let tag = self.rng.below(6);
        let low = self.rng.below(50) as i64 - 25;
        let high = low + self.rng.below(20) as i64;
        let in_group = {
            let group = group.clone();
            move |row: &Row| row.group.is_some_and(|of| format!("g{of}") == group)
        };
        let in_range = move |row: &Row| (low..=high).contains(&row.number);
        let query = Query::new().using_index(name);
        match (name, self.rng.below(3)) {
            ("group", 0) => (query.range("group", &group[..]..), {
                Box::new(move |row: &Row| row.group.is_some_and(|of| format!("g{of}") >= group))
            }),
            ("group", _) => (query.eq("group", group), Box::new(in_group)),
            ("number", 0) => (query.eq("in.number", low), Box::new(move |row| row.number == low)),
            ("number", _) => (query.range("in.number", low..=high), Box::new(in_range)),
            ("tags", 0) => (query.range("tags[*]", format!("t{tag}").as_str()..), {
                Box::new(move |row: &Row| row.tags.iter().any(|&of| of >= tag))
            }),
            ("tags", _) => {
                (query.eq("tags[*]", format!("t{tag}")), Box::new(move |row| row.tags.contains(&tag)))
            }
            ("both", 0) => (query.eq("group", group), Box::new(in_group)),
            ("both", 1) => (query.eq("group", group).eq("in.number", low), {
                Box::new(move |row: &Row| in_group(row) && row.number == low)
            }),
            ("both", _) => (query.eq("group", group).range("in.number", low..=high), {
                Box::new(move |row: &Row| in_group(row) && in_range(row))
            }),
            (_, 0) => (query.eq("tags[*]", format!("t{tag}")), Box::new(move |row| row.tags.contains(&tag))),
            (_, _) => (query.eq("group", group).eq("tags[*]", format!("t{tag}")), {
                Box::new(move |row: &Row| in_group(row) && row.tags.contains(&tag))
            }),
        }
    }

    fn run_query(&mut self) {
        let names: Vec<String> =
            self.collection().indexes().into_iter().map(|index| index.name().to_owned()).collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let (query, wanted) = self.random_query(&name);
        let by_number = matches!(name.as_str(), "number" | "both")
            && query.predicates().iter().any(|one| one.to_string().contains(".."));
        let orders = [Order::Newest, Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending];
        let order = orders[self.rng.below(if by_number { 5 } else { 3 }) as usize];
        let limit = [1, 3, 10, usize::MAX][self.rng.below(4) as usize];
        let mut query = query.order(order);
        if limit < usize::MAX {
            query = query.limit(limit);
        }
        if self.rng.one_in(2) {
            query = query.keys_only();
        }
        let at = self.rng.below(self.snapshots.len() as u64 + 1) as usize;
        let (answers, model) = match self.snapshots.get(at) {
            Some((snapshot, model)) => (self.collection().find_at(snapshot, &query).unwrap(), model),
            None => (self.collection().find(&query).unwrap(), &self.model),
        };
        let mut expected = keys_where(model, order, wanted);
        expected.truncate(limit);
        let embedded = answers.explain().costs_of::<EmbeddedCosts>();
        assert!(embedded.bloom_false_positives <= embedded.bloom_hits, "{embedded:?}");
        let next = answers.explain().costs_of::<NextCosts>();
        assert!(next.false_positives <= next.index_blocks_read, "{next:?}");
        assert!(next.index_blocks_read <= next.index_blocks_met, "{next:?}");
        assert!(next.index_blocks_met <= next.index_blocks, "{next:?}");
        let keys: Vec<Vec<u8>> = answers.into_iter().map(|answer| answer.key).collect();
        assert_eq!(keys, expected, "{query:?}");
    }
}

#[test]
fn every_answer_of_embedded_indexes_is_that_of_a_scan() {
    run_histories(EMBEDDED);
}

#[test]
fn every_answer_of_index_blocks_is_that_of_a_scan() {
    run_histories(NEXT);
}

fn run_histories(specs: Specs) {
    let first = support::seed();
    for seed in first..first + 25 {
        println!("seed {seed}");
        let mut run = Run::new(seed, specs);
        for _ in 0..700 {
            run.step();
        }
        let report = run.db().check(true).unwrap();
        assert!(report.is_sound(), "{report}");
        run.reopen();
        let report = run.db().check(true).unwrap();
        assert!(report.is_sound(), "{report}");
    }
}

#[test]
fn pages_by_value_contain_a_record_with_several_values_once() {
    for kind in ["embedded", "next"] {
        pages_by_value(kind);
    }
}

fn pages_by_value(kind: &str) {
    let db = tiny_db();
    let spec = format!("t=tags[*]:{kind}").parse().unwrap();
    let one = db.create_collection("c", tiny_collection().index(spec)).unwrap();
    for number in 0..40_u64 {
        let (first, second) = (number % 7, number % 5);
        let record = format!(r#"{{"tags":["t{first}","t{second}","u{number:02}"]}}"#);
        one.put(format!("k{number:02}").as_bytes(), record.as_bytes()).unwrap();
    }
    // From the blocks of an sstable, not from the memtable.
    db.flush().unwrap();
    for order in [Order::Value, Order::ValueDescending] {
        let query = Query::new().range("tags[*]", "t0".."u20").using_index("t").order(order).keys_only();
        let whole: Vec<Vec<u8>> = one.find(&query).unwrap().into_iter().map(|row| row.key).collect();
        assert_eq!(whole.len(), 40);
        let mut paged = Vec::new();
        let mut page = query.limit(3);
        loop {
            let answers = one.find(&page).unwrap();
            let token = answers.next_token().cloned();
            paged.extend(answers.into_iter().map(|row| row.key));
            let Some(token) = token else { break };
            page = page.after(token);
            assert!(paged.len() <= whole.len(), "{order:?}");
        }
        assert_eq!(paged, whole, "{order:?}");
    }
}

/// The memtable is so large that ranges of it are read in every way: small ones completely, small ones by their newest
/// entries, wide ones by walks from the newest entry on.
#[test]
fn ranges_of_a_large_memtable_return_their_newest() {
    for kind in ["embedded", "next"] {
        ranges_of_a_large_memtable(kind);
    }
}

fn ranges_of_a_large_memtable(kind: &str) {
    const VALUES: u64 = 600;
    let mut rng = SimRng::new(support::seed());
    let options = tiny().memtable_bytes(16 << 20);
    let db = Db::open_with("db", options, components(1)).unwrap();
    let spec = format!("tags[*]:{kind}").parse().unwrap();
    let one = db.create_collection("c", tiny_collection().index(spec)).unwrap();
    // The current state, and the state at each of some snapshots: key -> (number of the write, its two values).
    type State = std::collections::BTreeMap<u64, (u64, [u64; 2])>;
    let mut states: Vec<(Option<Snapshot>, State)> = Vec::new();
    let mut state = State::new();
    for write in 0..12_000 {
        let (key, values) = (rng.below(9_000), [rng.below(VALUES), rng.below(VALUES)]);
        let record = format!(r#"{{"tags":[{},{}]}}"#, values[0], values[1]);
        one.put(&key.to_be_bytes(), record.as_bytes()).unwrap();
        state.insert(key, (write, values));
        if write % 3_000 == 2_999 {
            states.push((Some(db.snapshot()), state.clone()));
        }
    }
    states.push((None, state));
    for _ in 0..400 {
        let (at, state) = &states[rng.below(states.len() as u64) as usize];
        let low = rng.below(VALUES);
        let high = low + [0, 1, 2, 3, 5, 30, 200][rng.below(7) as usize];
        let limit = [1, 10, 40, usize::MAX][rng.below(4) as usize];
        let mut query = Query::new().range("tags[*]", low..=high).using_index("tags[*]").keys_only();
        if limit < usize::MAX {
            query = query.limit(limit);
        }
        let answers = match at {
            Some(snapshot) => one.find_at(snapshot, &query),
            None => one.find(&query),
        };
        let is_in = |values: &[u64; 2]| values.iter().any(|value| (low..=high).contains(value));
        let mut expected: Vec<(u64, u64)> =
            state.iter().filter(|(_, (_, values))| is_in(values)).map(|(key, of)| (of.0, *key)).collect();
        expected.sort_unstable_by(|left, right| right.cmp(left));
        expected.truncate(limit);
        let keys: Vec<Vec<u8>> = answers.unwrap().into_iter().map(|answer| answer.key).collect();
        let expected: Vec<Vec<u8>> = expected.iter().map(|(_, key)| key.to_be_bytes().to_vec()).collect();
        assert!(keys == expected, "{query:?}: {} answers, {} expected", keys.len(), expected.len());
    }
    assert_eq!(db.stats().collections[0].table.sstables(), 0, "all records must be in the memtable");
}
