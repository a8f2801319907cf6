//! Indexes of kind `next`: their addition to old sstables, and the reads of their queries.

mod support;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bolide::storage::{CrashMode, Fault, FaultPlan, RecordImages, Runtime, SimRng, SimRuntime, SimVfs, Vfs};
use bolide::{
    BuildOptions, Collection, Components, Compression, Db, ErrorKind, IndexState, Layout, NextCosts,
    NextFigures, Options, Order, Query,
};
use support::{tiny, tiny_collection};

const RECORDS: u64 = 600;

fn open(vfs: &SimVfs, options: Options) -> Db {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Db::open_with("db", options, Components::system().vfs(vfs).runtime(Arc::new(SimRuntime::new(1)))).unwrap()
}

/// A collection of many sstables, each key written twice.
fn filled(db: &Db) -> Collection {
    filled_as(db, Layout::Leveled)
}

fn filled_as(db: &Db, layout: Layout) -> Collection {
    let one = db.create_collection("one", tiny_collection().layout(layout)).unwrap();
    for round in 0..2 {
        for number in 0..RECORDS {
            let record = format!(r#"{{"a":{},"pad":"{:0>60}"}}"#, (number + round) % 50, number);
            one.put(format!("{number:04}").as_bytes(), record.as_bytes()).unwrap();
        }
    }
    db.flush().unwrap();
    one
}

fn figures(db: &Db) -> NextFigures {
    db.stats().collections[0].indexes[0].figures_of::<NextFigures>().copied().unwrap()
}

/// The keys with this value, ascending, by the index.
fn keys_of(one: &Collection, value: u64) -> Vec<Vec<u8>> {
    let query = Query::new().eq("a", value).using_index("a").keys_only().order(Order::Oldest);
    let mut keys: Vec<_> = one.find(&query).unwrap().into_iter().map(|answer| answer.key).collect();
    keys.sort();
    keys
}

fn expected(value: u64) -> Vec<Vec<u8>> {
    (0..RECORDS)
        .filter(|number| (number + 1) % 50 == value)
        .map(|number| format!("{number:04}").into())
        .collect()
}

#[test]
fn old_sstables_are_rewritten_when_an_index_is_created() {
    for layout in [Layout::Leveled, Layout::Tiered, Layout::Partitioned, Layout::Fragmented] {
        write_again(layout);
    }
}

fn write_again(layout: Layout) {
    println!("{layout:?}");
    let vfs = SimVfs::new(1);
    let db = open(&vfs, tiny());
    let one = filled_as(&db, layout);
    let sstables = db.stats().collections[0].table.sstables();
    assert!(sstables > 2, "{sstables}");
    let snapshot = db.snapshot();
    one.create_index("a:next:block_bytes=64".parse().unwrap()).unwrap();
    let found = figures(&db);
    assert_eq!((found.sstables_without, found.bytes_without), (0, 0), "{found:?}");
    assert!(found.sstables > 2 && found.disk_bytes > 1_000, "{found:?}");
    assert_eq!(keys_of(&one, 7), expected(7));
    // The view is older than the index.
    let query = Query::new().eq("a", 7).using_index("a").keys_only();
    assert_eq!(one.find_at(&snapshot, &query).unwrap().len(), expected(7).len());
    assert!(db.check(true).unwrap().is_sound());
    let found = figures(&db);
    assert!(found.global_bytes > 0 && found.directory_bytes > 0 && found.index_blocks >= found.sstables);
    assert!(found.ranges >= found.index_blocks, "{found:?}");
}

#[test]
fn old_sstables_can_be_left_to_compactions() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs, tiny());
    let one = filled(&db);
    let lazily = BuildOptions::default().leaves_old_sstables(true);
    one.create_index_with("a:next".parse().unwrap(), &lazily).unwrap();
    assert_eq!(figures(&db).sstables, 0);
    let query = Query::new().eq("a", 7).using_index("a").limit(3);
    let answers = one.find(&query).unwrap();
    assert!(answers.explain().costs_of::<NextCosts>().sstables_without_index > 5, "{}", answers.explain());
    assert_eq!(keys_of(&one, 7), expected(7));
    drop((one, answers, db));
    // The same after a reopen.
    let db = open(&vfs, tiny());
    assert_eq!(figures(&db).sstables, 0);
    db.compact().unwrap();
    let found = figures(&db);
    assert!(found.sstables > 0 && found.sstables_without == 0, "{found:?}");
    let one = db.collection("one").unwrap();
    assert_eq!(one.find(&query).unwrap().explain().costs_of::<NextCosts>().sstables_without_index, 0);
    assert_eq!(keys_of(&one, 7), expected(7));
    // Compactions remove the blocks of a dropped index again.
    one.drop_index("a").unwrap();
    let with = db.stats().collections[0].table.disk_bytes;
    db.compact().unwrap();
    assert!(db.stats().collections[0].table.disk_bytes < with);
}

#[test]
fn the_next_open_continues_a_rewrite_that_a_full_disk_stopped() {
    for at in [1, 20, 60] {
        let vfs = SimVfs::new(1);
        let db = open(&vfs, tiny());
        let one = filled(&db);
        db.create_collection("other", tiny_collection()).unwrap();
        let lazily = BuildOptions::default().leaves_old_sstables(true);
        one.create_index_with("b:next".parse().unwrap(), &lazily).unwrap();
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at, sticky: true }));
        let made = one.create_index("a:next".parse().unwrap());
        vfs.set_fault(None);
        if made.is_err() {
            // Not even its entry in the catalogue could be written.
            assert!(one.indexes().iter().all(|index| index.name() != "a"));
            continue;
        }
        let stats = db.stats();
        let found = stats.collections[0].indexes.iter().find(|index| index.name == "a").unwrap();
        assert_eq!(found.state, IndexState::Ready);
        assert!(found.figures_of::<NextFigures>().unwrap().sstables_without > 0, "{found:?}");
        assert_eq!(keys_of(&one, 7), expected(7));
        drop((one, db));
        let db = open(&vfs, tiny());
        let stats = db.stats();
        let found = stats.collections[0].indexes.iter().find(|index| index.name == "a").unwrap();
        assert_eq!(found.figures_of::<NextFigures>().unwrap().sstables_without, 0, "{found:?}");
        assert_eq!(keys_of(&db.collection("one").unwrap(), 7), expected(7));
        assert!(db.check(true).unwrap().is_sound());
    }
}

#[test]
fn queries_read_only_the_blocks_they_need_and_each_once() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs, tiny());
    let one = db.create_collection("one", tiny_collection().index("a:next:block_bytes=64".parse().unwrap()));
    let one = one.unwrap();
    for number in 0..RECORDS {
        let record = format!(r#"{{"a":{},"pad":"{:0>60}"}}"#, number % 50, number);
        one.put(format!("{number:04}").as_bytes(), record.as_bytes()).unwrap();
    }
    db.compact().unwrap();
    let cost = |query: &Query, answers: usize| {
        let found = one.find(query).unwrap();
        assert_eq!(found.len(), answers);
        found.explain().costs_of::<NextCosts>()
    };
    let all = cost(&Query::new().range("a", 0..50).using_index("a"), RECORDS as usize);
    let blocks = all.data_blocks_read;
    assert_eq!(all.index_blocks_read, all.index_blocks, "{all:?}");
    assert_eq!((all.entries, all.data_blocks_spared), (RECORDS, RECORDS - blocks), "{all:?}");
    let narrow = cost(&Query::new().range("a", 10..13).using_index("a"), 36);
    assert!(narrow.index_blocks_read < all.index_blocks_read / 4, "{narrow:?}");
    assert!(narrow.data_blocks_read <= 36 && narrow.entries == 36, "{narrow:?}");
    // The newest two, and no other record.
    let newest = cost(&Query::new().eq("a", 10).using_index("a").limit(2), 2);
    assert!(newest.data_blocks_read == 2 && newest.index_blocks_read <= 4, "{newest:?}");
    let nothing = cost(&Query::new().eq("a", 10.5).using_index("a"), 0);
    assert_eq!((nothing.data_blocks_read, nothing.entries), (0, 0), "{nothing:?}");
}

/// Answers that are each in a data block of their own are read in order, some hundreds at once; those that share blocks
/// all at once, by block. Both return the answers of a model, in its order.
#[test]
fn many_answers_are_in_order_with_and_without_shared_blocks() {
    const MANY: u64 = 12_000;
    let vfs = SimVfs::new(1);
    let options = tiny().cache_bytes(64 << 20).memtable_bytes(2 << 20);
    let db = open(&vfs, options);
    let collection = tiny_collection().target_file_bytes(1 << 20).index("a:next".parse().unwrap());
    let one = db.create_collection("one", collection).unwrap();
    let mut rng = SimRng::new(3);
    // For each key the number of its write, its value and its record.
    let mut model = BTreeMap::new();
    for write in 0..MANY + MANY / 4 {
        // Short ones are copied when they are read, long ones lent.
        let (width, value) = ([10, 400, 900][write as usize % 3], rng.below(100));
        let record = format!(r#"{{"a":{value},"pad":"{write:0>width$}"}}"#);
        let key = format!("{:08}", write * 7_919 % MANY);
        one.put(key.as_bytes(), record.as_bytes()).unwrap();
        model.insert(key, (write, value, record));
        if write + 1 == MANY {
            db.compact().unwrap();
        }
    }
    for number in (0..MANY).step_by(9) {
        let key = format!("{number:08}");
        one.delete(key.as_bytes()).unwrap();
        model.remove(&key);
    }
    let cost = |values: Range<u64>, order: Order, limit: usize| {
        let query = Query::new().range("a", values.clone()).order(order).limit(limit).using_index("a");
        let found = one.find(&query).unwrap();
        let mut expected: Vec<_> = model.iter().filter(|(_, (_, value, _))| values.contains(value)).collect();
        expected.sort_by_key(|(_, (write, ..))| *write);
        if order == Order::Newest {
            expected.reverse();
        }
        expected.truncate(limit);
        assert_eq!(found.len(), expected.len(), "{values:?}, {order:?}");
        for (answer, (key, (.., record))) in found.iter().zip(expected) {
            assert_eq!(answer.key, key.as_bytes(), "{values:?}, {order:?}");
            assert_eq!(answer.record.as_deref(), Some(record.as_bytes()), "{values:?}, {order:?}");
        }
        let costs = found.explain().costs_of::<NextCosts>();
        (found.len(), costs.data_blocks_spared as f64 / costs.entries as f64)
    };
    for order in [Order::Newest, Order::Oldest] {
        let (answers, spared) = cost(10..17, order, usize::MAX);
        assert!(answers > 600 && spared < 0.01, "{order:?}: {answers}, {spared}");
        let (answers, spared) = cost(3..97, order, usize::MAX);
        assert!(answers > 8_000 && spared > 0.1, "{order:?}: {answers}, {spared}");
        for limit in [1, 255, 256, 257, 300, 5_000] {
            cost(10..90, order, limit);
        }
    }
}

/// Rate limits of builds, and whether the limit is one of records.
const PACES: [(u64, bool); 2] = [(2_000, false), (100, true)];

#[test]
fn old_sstables_are_rewritten_within_the_rate_limit() {
    for (pace, of_records) in PACES {
        let vfs = SimVfs::new(1);
        let runtime = Arc::new(SimRuntime::new(1));
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let components = Components::system().vfs(shared).runtime(runtime.clone());
        let db = Db::open_with("db", tiny(), components).unwrap();
        let one = filled(&db);
        let table = db.stats().collections[0].table.clone();
        let amount = if of_records { table.entries } else { table.disk_bytes };
        let options = match of_records {
            true => BuildOptions::default().records_per_second(pace),
            false => BuildOptions::default().bytes_per_second(pace),
        };
        let before = runtime.now_micros();
        one.create_index_with("a:next".parse().unwrap(), &options).unwrap();
        let seconds = (runtime.now_micros() - before) / 1_000_000;
        let wanted = amount / pace;
        assert!(wanted > 5, "{amount} at {pace}");
        assert!((wanted..wanted * 2).contains(&seconds), "{amount} at {pace}: {seconds} s");
        assert_eq!(one.indexes()[0].progress().share(), 1.0);
    }
}

#[test]
fn a_power_cut_during_the_rewrite_loses_no_reported_progress() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs, tiny());
    let one = filled(&db);
    one.create_index("of_another_kind=a:composite".parse().unwrap()).unwrap();
    db.flush().unwrap();
    vfs.record_images(RecordImages::SyncPoints);
    one.create_index("a:next:block_bytes=64".parse().unwrap()).unwrap();
    vfs.record_images(RecordImages::Never);
    let shares = |db: &Db| {
        let one = db.collection("one").unwrap();
        let of = |name: &str| one.indexes().iter().find(|one| one.name() == name).cloned();
        assert_eq!(of("of_another_kind").unwrap().progress().share(), 1.0);
        of("a").map(|info| (info.state(), *info.progress()))
    };
    let (state, progress) = shares(&db).unwrap();
    assert_eq!((state, progress.share(), progress.at_work), (IndexState::Ready, 1.0, false));
    assert!(progress.sstable_bytes > 0 && progress.carried_bytes == progress.sstable_bytes);
    let (mut partly, mut last) = (0, 0.0);
    for image in vfs.take_images() {
        let disk = image.vfs.crash(CrashMode::None);
        // The state without further work of the builder.
        let components = Components::system().vfs(Arc::new(disk.clone()));
        let before = shares(&Db::open_read_only_with("db", tiny(), components).unwrap());
        let db = open(&disk, tiny());
        let Some((state, before)) = before else { continue };
        assert!(state == IndexState::Building || before.share() >= last, "{before:?} after {last}");
        if state == IndexState::Ready {
            last = before.share();
            partly += u32::from(0.0 < last && last < 1.0);
        }
        let (state, after) = shares(&db).unwrap();
        assert_eq!((state, after.share(), after.at_work), (IndexState::Ready, 1.0, false), "{after:?}");
        assert_eq!(keys_of(&db.collection("one").unwrap(), 7), expected(7));
    }
    assert!(partly >= 3, "{partly}");
}

/// Queries many single values, half of which no record has; returns the index blocks in range, those that filters
/// excluded, and those read in vain.
fn query_single_values(one: &Collection, attribute: &str) -> (u64, u64, u64) {
    let (mut met, mut filtered, mut vain) = (0, 0, 0);
    for value in (0..2 * SPREAD).step_by(111) {
        let found = one.find(&Query::new().eq(attribute, value).using_index(attribute)).unwrap();
        let keys: Vec<_> = found.iter().map(|answer| answer.key.clone()).collect();
        let expected: Vec<_> = (value % 2 == 0).then(|| spread_key(value / 2)).into_iter().collect();
        assert_eq!(keys, expected, "{value}");
        let cost = found.explain().costs_of::<NextCosts>();
        assert!(cost.index_blocks_filtered + cost.index_blocks_read <= cost.index_blocks_met, "{cost:?}");
        met += cost.index_blocks_met;
        filtered += cost.index_blocks_filtered;
        vain += cost.false_positives;
    }
    (met, filtered, vain)
}

const SPREAD: u64 = 12_000;

/// In no order of the numbers.
fn spread_key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

#[test]
fn filters_exclude_index_blocks_of_sstables_that_lack_a_value() {
    for layout in [Layout::Leveled, Layout::Tiered, Layout::Partitioned, Layout::Fragmented] {
        let vfs = SimVfs::new(1);
        let options = Options::default().memtable_bytes(64 << 10).background_threads(0);
        let db = open(&vfs, options.clone());
        let with = tiny_collection().layout(layout).target_file_bytes(64 << 10);
        let with = with.compression(Compression::None).index("a:next".parse().unwrap());
        let one = db.create_collection("one", with.index("b:next:global=off".parse().unwrap())).unwrap();
        for number in 0..SPREAD {
            let record = format!(r#"{{"a":{0},"b":{0},"pad":"{number:0>60}"}}"#, 2 * number);
            one.put(&spread_key(number), record.as_bytes()).unwrap();
        }
        db.flush().unwrap();
        let queries = 2 * SPREAD / 111;
        let (met, filtered, vain) = query_single_values(&one, "a");
        println!("{layout:?}: {met} met, {filtered} spared, {vain} in vain");
        // Most sstables have a block that spans each value.
        assert!(met > 2 * queries && filtered > (met - queries) / 10 * 8, "{met} {filtered}");
        assert!(vain < filtered / 2, "{vain} {filtered}");
        let (met, filtered, vain) = query_single_values(&one, "b");
        assert!(filtered == 0 && vain > (met - queries) / 10 * 9, "{met} {filtered} {vain}");
        assert!(db.check(true).unwrap().is_sound());
        // A range has no single value to look up in a filter.
        let range = one.find(&Query::new().range("a", 100..120).using_index("a")).unwrap();
        assert_eq!((range.len(), range.explain().costs_of::<NextCosts>().index_blocks_filtered), (10, 0));
        drop((range, one, db));
        let db = open(&vfs, options);
        let (_, again, _) = query_single_values(&db.collection("one").unwrap(), "a");
        assert!(again > 0);
        let figures = db.stats().collections[0].indexes[0].figures_of::<NextFigures>().copied().unwrap();
        assert!(figures.resident_bytes() as u64 * 50 < figures.table_bytes, "{figures:?}");
    }
}

#[test]
fn malformed_records_are_refused_before_any_entry_is_derived() {
    let vfs = SimVfs::new(7);
    let db = open(&vfs, tiny());
    let one = db.create_collection("one", tiny_collection().index("a:next".parse().unwrap())).unwrap();
    let long = format!(r#"{{"a":5,"pad":"{:0>400}"#, 0);
    for malformed in [r#"{"a":5"#, "[5]", "", r#"{"a":1e999}"#, &long] {
        let error = one.put(b"k", malformed.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{malformed}: {error}");
    }
    assert_eq!(one.get(b"k").unwrap(), None);
    // Both paths: short and plain, and not.
    for (key, record) in [("plain", r#"{"a":5}"#.to_owned()), ("long", long + "\"}")] {
        one.put(key.as_bytes(), record.as_bytes()).unwrap();
        assert_eq!(one.get(key.as_bytes()).unwrap().as_deref(), Some(record.as_bytes()));
    }
    assert_eq!(keys_of(&one, 5), [b"long".to_vec(), b"plain".to_vec()]);
    db.flush().unwrap();
    assert_eq!(keys_of(&one, 5), [b"long".to_vec(), b"plain".to_vec()]);
}
