//! Queries for the newest records without a condition: they read the newest memtables and sstables only, in every layout.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bolide::storage::SimRng;
use bolide::{
    Answers, Collection, CollectionOptions, Components, Db, FindOptions, IterOptions, Layout, Options, Query,
    Snapshot, TransactionOptions,
};

fn options(layout: Layout) -> CollectionOptions {
    CollectionOptions::default().layout(layout).block_bytes(512).target_file_bytes(16 << 10)
}

fn keys(answers: &[bolide::Answer]) -> Vec<Vec<u8>> {
    answers.iter().map(|answer| answer.key.clone()).collect()
}

/// The keys of a model, which has the order of the last write of each key, newest first.
fn newest(model: &BTreeMap<Vec<u8>, u64>) -> Vec<Vec<u8>> {
    let mut records: Vec<(u64, &Vec<u8>)> = model.iter().map(|(key, order)| (*order, key)).collect();
    records.sort_unstable_by(|left, right| right.cmp(left));
    records.into_iter().map(|(_, key)| key.clone()).collect()
}

/// All keys, newest first, by pages of `limit`.
fn pages(limit: usize, find: impl Fn(&Query) -> Answers) -> Vec<Vec<u8>> {
    let (mut found, mut query) = (Vec::new(), Query::new().limit(limit));
    loop {
        let answers = find(&query);
        found.extend(keys(&answers));
        let Some(token) = answers.next_token() else { return found };
        query = Query::new().limit(limit).after(token.clone());
    }
}

/// Blocks that a query uses, from files or from the cache.
fn blocks(collection: &Collection, query: &Query) -> u64 {
    let reads = collection.find_with(query, &FindOptions::default()).unwrap().explain().reads;
    reads.blocks_read + reads.blocks_cached
}

#[test]
fn the_newest_records_are_found_in_few_blocks() {
    for layout in Layout::ALL {
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let c = db.create_collection("c", options(layout)).unwrap();
        for n in 0..20_000_u32 {
            c.put(&n.to_be_bytes(), format!(r#"{{"n":{n},"text":"some text of a record"}}"#).as_bytes())
                .unwrap();
            if n % 2_000 == 1_999 {
                db.flush().unwrap();
            }
        }
        db.compact().unwrap();
        let newest = Query::new().limit(10);
        let wanted: Vec<Vec<u8>> = (0..20_000_u32).rev().take(10).map(|n| n.to_be_bytes().to_vec()).collect();
        let answers = c.find(&newest).unwrap();
        assert_eq!(keys(&answers), wanted);
        // A condition that all records satisfy reads all.
        let all = blocks(&c, &Query::new().range("n", 0..).limit(10));
        let few = blocks(&c, &newest);
        println!("{layout:?}: {few} of {all} blocks");
        assert!(few * 10 < all, "{layout:?}: {few} of {all} blocks");
        let next = newest.clone().after(answers.next_token().unwrap().clone());
        assert_eq!(c.find(&next).unwrap()[0].key, 19_989_u32.to_be_bytes());
        assert!(blocks(&c, &next) * 10 < all, "{layout:?}");
    }
}

#[test]
fn a_snapshot_is_read_from_its_newest_records_on() {
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let c = db.create_collection("c", options(Layout::Tiered)).unwrap();
    let put = |numbers: std::ops::Range<u32>| {
        for n in numbers {
            c.put(&n.to_be_bytes(), format!(r#"{{"n":{n},"text":"some text of a record"}}"#).as_bytes())
                .unwrap();
        }
        db.flush().unwrap();
    };
    put(0..2_000);
    put(2_000..2_100);
    let snapshot = db.snapshot();
    put(2_100..2_500);
    let query = Query::new().limit(5);
    let at_snapshot = c.find_with(&query, &FindOptions::default().snapshot(&snapshot)).unwrap();
    let newest: Vec<Vec<u8>> = (2_095..2_100_u32).rev().map(|n| n.to_be_bytes().to_vec()).collect();
    let reads = at_snapshot.explain().reads;
    assert_eq!(keys(&at_snapshot), newest);
    // Without a bound of the view the first band would have no answer, and then all sstables would be read.
    assert!(reads.blocks_read + reads.blocks_cached < 100, "{reads:?}");
}

#[test]
fn the_newest_records_are_exact_after_random_writes() {
    for seed in 0..24 {
        let layout = Layout::ALL[seed as usize % 4];
        let mut rng = SimRng::new(seed);
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let c = db.create_collection("c", options(layout)).unwrap();
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut order = 0;
        for step in 0..600 {
            let key = format!("key{:03}", rng.below(300)).into_bytes();
            match rng.below(40) {
                0..=27 => {
                    order += 1;
                    c.put(&key, format!(r#"{{"pad":"{}"}}"#, "x".repeat(rng.below(60) as usize)).as_bytes())
                        .unwrap();
                    model.insert(key, order);
                }
                28..=34 => {
                    c.delete(&key).unwrap();
                    model.remove(&key);
                }
                35 => {
                    let end = format!("key{:03}", rng.below(300)).into_bytes();
                    if key < end {
                        c.delete_range(key.clone()..end.clone()).unwrap();
                        let range = key..end;
                        model.retain(|known, _| !range.contains(known));
                    }
                }
                36..=37 => db.flush().unwrap(),
                38 if step % 3 == 0 => db.compact().unwrap(),
                _ => {
                    let limit = 1 + rng.below(20) as usize;
                    let found = pages(limit, |query| c.find(query).unwrap());
                    assert_eq!(found, newest(&model), "seed {seed}, step {step}, limit {limit}");
                }
            }
        }
    }
}

/// A record is replaced, deleted by its key, or deleted with a range.
fn change(rng: &mut SimRng, db: &Db, c: &Collection, model: &mut BTreeMap<Vec<u8>, u64>, order: u64) {
    let key = format!("key{:03}", rng.below(300)).into_bytes();
    match rng.below(40) {
        0..=29 => {
            c.put(&key, format!(r#"{{"pad":"{}"}}"#, "x".repeat(rng.below(60) as usize)).as_bytes()).unwrap();
            model.insert(key, order);
        }
        30..=36 => {
            c.delete(&key).unwrap();
            model.remove(&key);
        }
        37 => {
            let mut end = key.clone();
            end.push(b'0' + rng.below(10) as u8);
            c.delete_range(key.clone()..end.clone()).unwrap();
            model.retain(|known, _| !(key.clone()..end.clone()).contains(known));
        }
        38 => db.flush().unwrap(),
        _ => db.compact().unwrap(),
    }
}

#[test]
fn snapshots_and_transactions_are_exact_after_random_writes() {
    let first = support::seed();
    for seed in first..first + 16 {
        let layout = Layout::ALL[seed as usize % 4];
        let mut rng = SimRng::new(seed);
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let c = db.create_collection("c", options(layout)).unwrap();
        let mut model = BTreeMap::new();
        let mut snapshots: Vec<(Snapshot, BTreeMap<Vec<u8>, u64>)> = Vec::new();
        for order in 0..900 {
            change(&mut rng, &db, &c, &mut model, order);
            if order % 90 == 89 {
                snapshots.push((db.snapshot(), model.clone()));
            }
        }
        for (at, (snapshot, model)) in snapshots.iter().enumerate() {
            let limit = 1 + rng.below(20) as usize;
            let with = FindOptions::default().snapshot(snapshot);
            let found = pages(limit, |query| c.find_with(query, &with).unwrap());
            assert_eq!(found, newest(model), "seed {seed}, snapshot {at}, limit {limit}");
        }
        // Own writes are newer than all records of the snapshot; others write meanwhile.
        let tx = db.begin(TransactionOptions::default()).unwrap();
        let mut own = model.clone();
        for order in 900..960 {
            let key = format!("key{:03}", rng.below(300)).into_bytes();
            if rng.one_in(4) {
                tx.delete(&c, &key).unwrap();
                own.remove(&key);
            } else {
                tx.put(&c, &key, b"{}").unwrap();
                own.insert(key, order);
            }
            change(&mut rng, &db, &c, &mut model, order);
        }
        let limit = 1 + rng.below(20) as usize;
        let found = pages(limit, |query| tx.find(&c, query).unwrap());
        assert_eq!(found, newest(&own), "seed {seed}, transaction, limit {limit}");
        assert_eq!(pages(limit, |query| c.find(query).unwrap()), newest(&model), "seed {seed}");
    }
}

/// The keys of the records at `snapshot`, read in the order of keys, newest first.
fn newest_of_iteration(c: &Collection, snapshot: &Snapshot) -> Vec<Vec<u8>> {
    let mut records = c.cursor(&IterOptions::default().snapshot(snapshot)).unwrap();
    let mut model = BTreeMap::new();
    records.seek_to_first().unwrap();
    while records.valid() {
        model.insert(records.key().to_vec(), records.sequence());
        records.next().unwrap();
    }
    newest(&model)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "runs real threads")]
fn readers_beside_writers_see_one_state() {
    let first = support::seed();
    for layout in Layout::ALL {
        // Flushes and compactions run in threads.
        let settings = Options::default().memtable_bytes(16 << 10).background_threads(2);
        let db = Db::open_with("db", settings, support::threaded()).unwrap();
        let c = db.create_collection("c", options(layout)).unwrap();
        let (is_done, compared) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|number| {
                    let (db, c) = (&db, &c);
                    scope.spawn(move || {
                        let mut rng = SimRng::new(first + number);
                        for _ in 0..4_000 {
                            let key = format!("key{:03}", rng.below(400)).into_bytes();
                            match rng.below(100) {
                                0..=89 => {
                                    c.put(&key, format!(r#"{{"pad":"{}"}}"#, "x".repeat(40)).as_bytes())
                                }
                                90..=97 => c.delete(&key),
                                98 => c.delete_range(key.clone()..[&key[..], b"~"].concat()),
                                _ => db.flush(),
                            }
                            .unwrap();
                        }
                    })
                })
                .collect();
            let readers: Vec<_> = (0..2)
                .map(|number| {
                    let (db, c, is_done, compared) = (&db, &c, &is_done, &compared);
                    scope.spawn(move || {
                        let mut rng = SimRng::new(first + 100 + number);
                        while !is_done.load(Ordering::Acquire) || compared.load(Ordering::Relaxed) < 10 {
                            let snapshot = db.snapshot();
                            let limit = 1 + rng.below(150) as usize;
                            let with = FindOptions::default().snapshot(&snapshot);
                            let found = pages(limit, |query| c.find_with(query, &with).unwrap());
                            assert_eq!(found, newest_of_iteration(c, &snapshot), "{layout:?}, limit {limit}");
                            // One page of the latest state: newest first, and no key twice.
                            let answers = c.find(&Query::new().limit(limit)).unwrap();
                            let sequences: Vec<u64> = answers.iter().map(|answer| answer.sequence).collect();
                            assert!(sequences.windows(2).all(|pair| pair[0] > pair[1]), "{layout:?}");
                            compared.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_done.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            written.into_iter().for_each(|writer| writer.unwrap());
        });
        println!("{layout:?}: {} snapshots compared", compared.into_inner());
    }
}
