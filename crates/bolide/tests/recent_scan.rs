//! Queries for the newest records without a condition: they read the newest memtables and sstables only, in every layout.

use std::collections::BTreeMap;

use bolide::storage::SimRng;
use bolide::{Collection, CollectionOptions, Components, Db, FindOptions, Layout, Options, Query};

fn options(layout: Layout) -> CollectionOptions {
    CollectionOptions::default().layout(layout).block_bytes(512).target_file_bytes(16 << 10)
}

fn keys(answers: &[bolide::Answer]) -> Vec<Vec<u8>> {
    answers.iter().map(|answer| answer.key.clone()).collect()
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
                    let mut wanted: Vec<(u64, Vec<u8>)> =
                        model.iter().map(|(key, order)| (*order, key.clone())).collect();
                    wanted.sort_unstable_by(|left, right| right.cmp(left));
                    let wanted: Vec<Vec<u8>> = wanted.into_iter().map(|(_, key)| key).collect();
                    let limit = 1 + rng.below(20) as usize;
                    let (mut found, mut query) = (Vec::new(), Query::new().limit(limit));
                    loop {
                        let answers = c.find(&query).unwrap();
                        found.extend(keys(&answers));
                        let Some(token) = answers.next_token() else { break };
                        query = Query::new().limit(limit).after(token.clone());
                    }
                    assert_eq!(found, wanted, "seed {seed}, step {step}, limit {limit}");
                }
            }
        }
    }
}
