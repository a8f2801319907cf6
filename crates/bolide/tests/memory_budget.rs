//! The memory budget of a database, and regions that are opened when they are needed.

use std::sync::Arc;

use bolide::storage::{CrashMode, SimVfs};
use bolide::{CollectionOptions, Components, Db, ErrorKind, MemoryUse, Options, Query, SyncMode, UsedMemory};

fn key(number: u64) -> Vec<u8> {
    format!("key{number:07}").into_bytes()
}

fn record(group: u64, number: u64) -> Vec<u8> {
    format!(r#"{{"group":"g{group:05}","number":{number}}}"#).into_bytes()
}

fn options() -> Options {
    Options::default()
        .memtable_bytes(64 << 10)
        .cache_bytes(1 << 20)
        .background_threads(0)
        .sync(SyncMode::None)
}

fn fill(db: &Db, records: std::ops::Range<u64>) -> bolide::Result<()> {
    let c = db.collection("c")?;
    records.into_iter().try_for_each(|number| c.put(&key(number), &record(number % 50, number)).map(drop))
}

fn found(db: &Db, group: u64) -> bolide::Result<Vec<Vec<u8>>> {
    let query = Query::new().eq("group", format!("g{group:05}").as_str()).limit(10).keys_only();
    Ok(db.collection("c")?.find(&query)?.into_vec().into_iter().map(|row| row.key.to_vec()).collect())
}

fn memory_of(db: &Db, memory_use: MemoryUse, name: Option<&str>) -> u64 {
    let is_it = |user: &&UsedMemory| user.memory_use == memory_use && user.name.as_deref() == name;
    db.stats().memory.users.iter().find(is_it).map_or(0, |user| user.size.reserved)
}

fn region_bytes(db: &Db) -> u64 {
    memory_of(db, MemoryUse::IndexRegions, None)
}

/// A database with a `ps-tree` index `c.group`.
fn create(components: Components, options: Options) -> Db {
    let db = Db::open_with("db", options, components).unwrap();
    db.create_collection("c", CollectionOptions::json().index("group".parse().unwrap())).unwrap();
    db
}

#[test]
fn an_opening_and_reads_by_key_and_writes_read_no_region() {
    let components = Components::in_memory();
    let db = create(components.clone(), options());
    fill(&db, 0..5_000).unwrap();
    let (whole, bytes) = (found(&db, 3).unwrap(), region_bytes(&db));
    assert!(bytes > 100_000, "{bytes}");
    db.close().unwrap();

    let db = Db::open_with("db", options(), components.clone()).unwrap();
    let c = db.collection("c").unwrap();
    assert!(c.get(&key(17)).unwrap().is_some());
    c.put(&key(5_003), &record(3, 5_003)).unwrap();
    assert_eq!(region_bytes(&db), 0);
    let on_disk = db.stats().collections[0].indexes[0].tree.disk_bytes;
    assert!(on_disk > 100_000, "the size on disk is known: {on_disk}");
    // The first query opens it, with the write since the opening.
    assert_eq!(found(&db, 3).unwrap()[0], key(5_003));
    assert_eq!(found(&db, 3).unwrap()[1..], whole[..9]);
    assert!(region_bytes(&db) >= bytes / 2 && memory_of(&db, MemoryUse::IndexRegions, Some("c.group")) > 0);
    assert!(db.check(true).unwrap().is_sound());
    drop(c);
    db.close().unwrap();
    let db = Db::open_read_only_with("db", options(), components).unwrap();
    assert_eq!(region_bytes(&db), 0);
    assert_eq!(found(&db, 3).unwrap()[0], key(5_003));
}

#[test]
fn the_first_flush_opens_a_region_in_place_of_an_sstable() {
    let components = Components::in_memory();
    let db = create(components.clone(), options());
    fill(&db, 0..2_000).unwrap();
    db.close().unwrap();
    let db = Db::open_with("db", options(), components).unwrap();
    fill(&db, 2_000..2_010).unwrap();
    assert_eq!(region_bytes(&db), 0);
    db.flush().unwrap();
    assert!(region_bytes(&db) > 0);
    let index = &db.stats().collections[0].indexes[0].tree;
    assert_eq!((index.sstables(), index.memtable_entries), (0, 0));
    assert_eq!(found(&db, 9).unwrap()[0], key(2_009));
    assert!(db.check(true).unwrap().is_sound());
}

/// After a crash the replayed writes wait in memtables until the region is opened.
#[test]
fn after_a_crash_the_first_query_transfers_the_replayed_writes() {
    for seed in 0..6 {
        let vfs = SimVfs::new(seed);
        let components = |vfs: &SimVfs| Components::system().vfs(Arc::new(vfs.clone()));
        let with_sync = || options().sync(SyncMode::Always);
        let db = create(components(&vfs), with_sync());
        fill(&db, 0..300).unwrap();
        db.flush().unwrap();
        fill(&db, 300..600).unwrap();
        db.collection("c").unwrap().delete_range("key0000100".."key0000200").unwrap();
        let wanted: Vec<_> = (0..50).map(|group| found(&db, group).unwrap()).collect();
        let after = vfs.crash(CrashMode::None);
        drop(db);
        let db = Db::open_with("db", with_sync(), components(&after)).unwrap();
        assert_eq!(region_bytes(&db), 0, "seed {seed}");
        // A second crash before the region was opened.
        let db = match seed % 2 {
            0 => db,
            _ => {
                fill(&db, 600..650).unwrap();
                let again = after.crash(CrashMode::None);
                drop(db);
                let db = Db::open_with("db", with_sync(), components(&again)).unwrap();
                let newest: Vec<_> = (0..50).map(|group| found(&db, group).unwrap()[0].clone()).collect();
                assert_eq!(newest, (600..650).map(key).collect::<Vec<_>>(), "seed {seed}");
                let c = db.collection("c").unwrap();
                (600..650).for_each(|number| c.delete(&key(number)).unwrap());
                db
            }
        };
        let got: Vec<_> = (0..50).map(|group| found(&db, group).unwrap()).collect();
        assert_eq!(got, wanted, "seed {seed}");
        assert!(db.check(true).unwrap().is_sound(), "seed {seed}");
    }
}

#[test]
fn an_index_that_does_not_fit_is_named_and_records_stay_readable() {
    let components = Components::in_memory();
    let small = || options().memory_bytes(3 << 20);
    let db = create(components.clone(), small());
    let error = fill(&db, 0..1_000_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let words = ["c.group", "memory_bytes", "composite"];
    assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
    let memory = db.stats().memory;
    assert!(memory.reserved_bytes() <= (3 << 20) + (1 << 20), "{memory:?}");
    assert!(memory.refused_requests > 0);
    // What was written is complete: the refused batch had no effect.
    let answers: Vec<_> = (0..50).map(|group| found(&db, group).unwrap()).collect();
    assert!(db.check(true).unwrap().is_sound());
    // Other collections are not affected.
    db.create_collection("plain", CollectionOptions::json()).unwrap().put(b"1", b"{}").unwrap();
    db.close().unwrap();

    // A smaller budget: the region is not opened, writes go on, a query names the index.
    let db = Db::open_with("db", options().cache_bytes(64 << 10).memory_bytes(1 << 20), components.clone())
        .unwrap();
    db.collection("c").unwrap().put(&key(77), &record(7, 77)).unwrap();
    db.flush().unwrap();
    let error = found(&db, 7).unwrap_err();
    assert!(error.kind() == ErrorKind::NoSpace && error.message().contains("c.group"), "{error}");
    assert!(db.collection("c").unwrap().get(&key(77)).unwrap().is_some());
    db.close().unwrap();

    // A larger budget: everything is there.
    let db = Db::open_with("db", options().memory_bytes(16 << 20), components).unwrap();
    let again: Vec<_> =
        (0..50).filter(|&group| group != 7 && group != 27).map(|group| found(&db, group).unwrap()).collect();
    let before: Vec<_> = (0..50)
        .filter(|&group| group != 7 && group != 27)
        .map(|group| answers[group as usize].clone())
        .collect();
    assert_eq!(again, before);
    assert_eq!(found(&db, 7).unwrap()[0], key(77));
    assert!(db.check(true).unwrap().is_sound());
}

/// The memory that the budget counts for an index is not less than what its region has allocated.
#[test]
fn an_index_reports_what_it_has() {
    let db = create(Components::in_memory(), options());
    for until in [10, 1_000, 20_000] {
        fill(&db, 0..until).unwrap();
        let stats = db.stats();
        let figures = stats.collections[0].indexes[0].figures_of::<bolide::PsTreeFigures>().unwrap();
        let counted = memory_of(&db, MemoryUse::IndexRegions, Some("c.group"));
        let allocated = figures.allocated_bytes;
        assert!(counted >= allocated, "{counted} counted, {allocated} allocated");
        // Free space within the region counts too.
        assert!(counted <= 2 * allocated + (128 << 10), "{counted} counted, {allocated} allocated");
    }
}

#[test]
fn an_empty_index_takes_64_kib() {
    let db = create(Components::in_memory(), options());
    assert_eq!(memory_of(&db, MemoryUse::IndexRegions, Some("c.group")), 64 << 10);
}

#[test]
fn caches_and_memtables_shrink_for_an_index() {
    let roomy = Options::default().background_threads(0).sync(SyncMode::None).memory_bytes(4 << 20);
    let db = create(Components::in_memory(), roomy);
    let capacity = memory_of(&db, MemoryUse::BlockCache, None);
    fill(&db, 0..60_000).unwrap();
    assert!(memory_of(&db, MemoryUse::BlockCache, None) < capacity);
    let memory = db.stats().memory;
    assert!(memory.reserved_bytes() <= 5 << 20, "{memory:?}");
    db.collection("c").unwrap().drop_index("group").unwrap();
    db.flush().unwrap();
    assert_eq!(memory_of(&db, MemoryUse::IndexRegions, None), 0);
    assert_eq!(memory_of(&db, MemoryUse::BlockCache, None), capacity);
}

#[test]
fn many_collections_with_an_index_take_little_memory() {
    const COLLECTIONS: u64 = 100;
    let components = Components::in_memory();
    let open = || Db::open_with("db", options().memory_bytes(256 << 20), components.clone()).unwrap();
    let names: Vec<String> = (0..COLLECTIONS).map(|number| format!("c{number}")).collect();
    let db = open();
    for name in &names {
        let c =
            db.create_collection(name, CollectionOptions::json().index("group".parse().unwrap())).unwrap();
        c.put(&key(1), &record(1, 1)).unwrap();
    }
    db.flush().unwrap();
    let counted = region_bytes(&db);
    assert!(((COLLECTIONS << 16)..=(COLLECTIONS << 18)).contains(&counted), "{counted} bytes");
    db.close().unwrap();
    let db = open();
    assert_eq!(region_bytes(&db), 0);
    for name in &names {
        let c = db.collection(name).unwrap();
        c.put(&key(2), &record(2, 2)).unwrap();
        assert_eq!(c.get(&key(1)).unwrap().as_deref(), Some(&record(1, 1)[..]));
    }
}
