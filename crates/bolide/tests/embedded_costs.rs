//! Reads and skips of queries by an embedded index, on records that are laid out for it: zone maps, Bloom filters and
//! sequence bounds skip the expected parts, and queries for the newest K end early.

mod support;

use bolide::{Collection, Db, EmbeddedCosts, FindOptions, Layout, Options, Query, Snapshot};
use support::{components, find_keys, tiny, tiny_collection};

/// Records in each sstable.
const RECORDS: u64 = 200;
/// A lower bound for the number of their data blocks.
const MANY_BLOCKS: u64 = 30;

/// A database with an embedded index `n` over `sstables` sstables, in the order of their age. Record `i` of sstable `t`
/// has the value `value(t, i)`; keys rise with `t` and `i`, and so do sequence numbers.
fn filled(sstables: u64, spec: &str, value: impl Fn(u64, u64) -> u64) -> (Db, Collection) {
    let options: Options = tiny().memtable_bytes(4 << 20);
    let db = Db::open_with("db", options, components(1)).unwrap();
    // So large that nothing is compacted on its own.
    let collection = tiny_collection().layout(Layout::Tiered).target_file_bytes(64 << 20);
    let collection = db.create_collection("c", collection.index(spec.parse().unwrap())).unwrap();
    for sstable in 0..sstables {
        fill(&collection, sstable, &value);
        db.flush().unwrap();
    }
    let found = db.stats().collections[0].table.sstables();
    assert_eq!(found as u64, sstables, "each flush makes one sstable and nothing merges them");
    (db, collection)
}

fn fill(collection: &Collection, sstable: u64, value: impl Fn(u64, u64) -> u64) {
    for i in 0..RECORDS {
        let record = format!(r#"{{"n":{},"pad":"{:x>80}"}}"#, value(sstable, i), "");
        collection.put(&key(sstable, i), record.as_bytes()).unwrap();
    }
}

fn key(sstable: u64, i: u64) -> Vec<u8> {
    format!("{sstable}-{i:04}").into_bytes()
}

/// The cost of `query`, which must return `expected` answers.
fn costs(collection: &Collection, query: &Query, expected: usize) -> EmbeddedCosts {
    let answers = collection.find(query).unwrap();
    assert_eq!(answers.explain().answers, expected as u64, "{query:?}");
    answers.explain().costs_of::<EmbeddedCosts>()
}

/// The same at a snapshot.
fn costs_at(collection: &Collection, at: &Snapshot, query: &Query, expected: usize) -> EmbeddedCosts {
    let answers = collection.find_at(at, query).unwrap();
    assert_eq!(answers.explain().answers, expected as u64, "{query:?}");
    answers.explain().costs_of::<EmbeddedCosts>()
}

#[test]
fn zone_maps_skip_sstables_and_blocks() {
    let (_db, collection) = filled(3, "n:embedded", |sstable, i| sstable * 1000 + i);
    let cost = costs(&collection, &Query::new().range("n", 1050..=1059), 10);
    assert_eq!((cost.sstables, cost.sstables_skipped_by_zone_map), (3, 2));
    assert!((1..=4).contains(&cost.blocks_read), "{cost:?}");
    assert!(cost.blocks_skipped_by_zone_map > MANY_BLOCKS, "{cost:?}");
    assert_eq!((cost.bloom_hits, cost.sstables_without_index), (0, 0));

    let outside = costs(&collection, &Query::new().range("n", 500..=900), 0);
    assert_eq!((outside.sstables_skipped_by_zone_map, outside.blocks_read), (3, 0));
}

#[test]
fn bloom_filters_skip_sstables_and_blocks_that_zone_maps_do_not_exclude() {
    // Nearly every block has values below and above the queried one, so zone maps help little. Values of sstable t are
    // t modulo 3.
    let spread = |sstable, i| 3 * (i * 7919 % 10_007) + sstable;
    let (_db, collection) = filled(3, "n:embedded:bloom_bits=20", spread);
    let middle = (0..RECORDS).map(|i| spread(1, i)).min_by_key(|value| value.abs_diff(15_000)).unwrap();
    let cost = costs(&collection, &Query::new().eq("n", middle), 1);
    assert_eq!((cost.sstables, cost.sstables_skipped_by_bloom), (3, 2), "{cost:?}");
    assert_eq!((cost.blocks_read, cost.bloom_hits, cost.bloom_false_positives), (1, 1, 0), "{cost:?}");
    assert!(cost.blocks_skipped_by_bloom + cost.blocks_skipped_by_zone_map > MANY_BLOCKS, "{cost:?}");
    assert!(cost.blocks_skipped_by_bloom > 2 * cost.blocks_skipped_by_zone_map, "{cost:?}");
}

#[test]
fn poor_filters_cost_reads_that_are_counted() {
    let spread = |sstable, i| 3 * (i * 7919 % 10_007) + sstable;
    let (_db, collection) = filled(3, "n:embedded:bloom_bits=1", spread);
    let cost = costs(&collection, &Query::new().eq("n", spread(1, 77)), 1);
    assert!(cost.bloom_false_positives > 5, "{cost:?}");
    assert_eq!(cost.bloom_hits, cost.blocks_read);
    assert_eq!(cost.bloom_false_positives + 1, cost.blocks_read);
}

#[test]
fn data_newer_than_the_view_is_skipped() {
    let (db, collection) = filled(1, "n:embedded", |_, _| 7);
    let snapshot = db.snapshot();
    for sstable in 1..3 {
        fill(&collection, sstable, |_, _| 7);
        db.flush().unwrap();
    }
    let query = Query::new().eq("n", 7);
    let cost = costs_at(&collection, &snapshot, &query, RECORDS as usize);
    assert_eq!((cost.sstables, cost.sstables_skipped_by_sequence), (3, 2), "{cost:?}");
    let blocks_of_one = cost.blocks_read;

    db.compact().unwrap();
    let cost = costs_at(&collection, &snapshot, &query, RECORDS as usize);
    assert_eq!((cost.sstables, cost.sstables_skipped_by_sequence), (1, 0), "{cost:?}");
    assert!(cost.blocks_skipped_by_sequence > MANY_BLOCKS, "{cost:?}");
    assert!(cost.blocks_read <= blocks_of_one + 1, "{cost:?}");
}

#[test]
fn a_query_for_the_newest_records_ends_early() {
    let (db, collection) = filled(3, "n:embedded", |_, _| 7);
    let query = Query::new().eq("n", 7).limit(5);
    let newest = |sstable| (RECORDS - 5..RECORDS).rev().map(move |i| key(sstable, i)).collect::<Vec<_>>();
    assert_eq!(find_keys(&collection, &query).unwrap(), newest(2));
    let cost = costs(&collection, &query, 5);
    assert_eq!((cost.sstables, cost.sstables_not_reached), (3, 2), "{cost:?}");
    assert!((1..=2).contains(&cost.blocks_read), "{cost:?}");
    assert!(cost.blocks_not_reached > MANY_BLOCKS, "{cost:?}");

    // Block bounds identify the newest records of one sstable that mixes all of them.
    db.compact().unwrap();
    assert_eq!(find_keys(&collection, &query).unwrap(), newest(2));
    let cost = costs(&collection, &query, 5);
    assert_eq!((cost.sstables, cost.sstables_not_reached), (1, 0), "{cost:?}");
    assert!((1..=2).contains(&cost.blocks_read), "{cost:?}");
    assert!(cost.blocks_not_reached > 3 * MANY_BLOCKS, "{cost:?}");

    // Records that a memtable returns are not searched in sstables.
    fill(&collection, 3, |_, _| 7);
    assert_eq!(find_keys(&collection, &query).unwrap(), newest(3));
    let cost = costs(&collection, &query, 5);
    assert_eq!((cost.sstables_not_reached, cost.blocks_read), (1, 0), "{cost:?}");
    assert!((5..=RECORDS).contains(&cost.memtable_entries), "{cost:?}");
}

#[test]
fn a_range_between_the_blocks_that_the_planner_samples_is_not_estimated_as_empty() {
    let (db, collection) = filled(0, "n:embedded", |_, _| 0);
    for i in 0..6_000_u64 {
        let record = format!(r#"{{"n":{i},"pad":"{:x>80}"}}"#, "");
        collection.put(&i.to_be_bytes(), record.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    // Hundreds of blocks, of which the planner samples 64.
    let cost = costs(&collection, &Query::new().range("n", 3000..3001), 1);
    assert!(cost.blocks_skipped_by_zone_map > 300, "{cost:?}");
    for low in (0..5_900).step_by(331) {
        let estimated = estimated(&collection, &Query::new().range("n", low..low + 10));
        assert!((3..=100).contains(&estimated), "{low}: {estimated}");
    }
}

/// The planner's estimate of the candidates of index `n` for `query`.
fn estimated(collection: &Collection, query: &Query) -> u64 {
    let answers = collection.find_with(query, &FindOptions::default().measure(true)).unwrap();
    let of_index = answers.explain().alternatives.iter().find(|plan| plan.indexes == ["n"]);
    of_index.expect("the index was considered").candidates
}

#[test]
fn the_planner_estimates_the_number_of_matching_records() {
    let in_order = |sstable, i| sstable * 1000 + i;
    let spread = |sstable, i| 3 * (i * 7919 % 10_007) + sstable;
    let (_db, collection) = filled(3, "n:embedded", in_order);
    let near = |query: Query, min: u64, max: u64| {
        let estimated = estimated(&collection, &query);
        assert!((min..=max).contains(&estimated), "{query:?}: {estimated}");
    };
    near(Query::new().eq("n", 1077), 1, 3);
    near(Query::new().eq("n", 77_777), 0, 0);
    near(Query::new().range("n", 1050..1150), 60, 160);
    near(Query::new().range("n", 0..5000), 600, 600);
    near(Query::new().range("n", 300..900), 0, 0);
    // Zone maps of blocks that span all values: a part of each block.
    let (db, collection) = filled(3, "n:embedded", spread);
    let near = |query: Query, min: u64, max: u64| {
        let estimated = estimated(&collection, &query);
        assert!((min..=max).contains(&estimated), "{query:?}: {estimated}");
    };
    near(Query::new().eq("n", spread(1, 50)), 1, 4);
    near(Query::new().range("n", 0..15_000), 150, 450);
    near(Query::new().range("n", 0..40_000), 600, 600);
    // A memtable that was never queried is estimated like the rest; then its index has the count.
    fill(&collection, 3, |_, i| 100_000 + i);
    near(Query::new().range("n", 0..40_000), 600, 800);
    near(Query::new().range("n", 0..40_000), 600, 600);
    near(Query::new().range("n", 100_000..100_100), 100, 100);
    drop(db);
}
