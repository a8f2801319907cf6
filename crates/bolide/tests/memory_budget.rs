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

/// As [`found`], by the index in any case.
fn found_by_index(db: &Db, group: u64) -> bolide::Result<usize> {
    let query = Query::new().eq("group", format!("g{group:05}").as_str()).limit(10).keys_only();
    Ok(db.collection("c")?.find(&query.using_index("group"))?.into_vec().len())
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

/// An index that grows beyond its share of the budget moves entries to sstables; one that cannot be opened is named.
#[test]
fn an_index_that_does_not_fit_is_named_and_records_stay_readable() {
    let small = || options().memory_bytes(3 << 20);
    let db = create(Components::in_memory(), small());
    fill(&db, 0..60_000).unwrap();
    let memory = db.stats().memory;
    assert!(memory.reserved_bytes() <= 3 << 20, "{memory:?}");
    assert_eq!(memory.refused_requests, 0);
    assert_eq!(found(&db, 7).unwrap()[0], key(59_957));
    assert!(db.check(true).unwrap().is_sound());
    db.close().unwrap();

    let components = Components::in_memory();
    let db = create(components.clone(), options().memory_bytes(64 << 20));
    fill(&db, 0..60_000).unwrap();
    let answers: Vec<_> = (0..50).map(|group| found(&db, group).unwrap()).collect();
    assert!(db.check(true).unwrap().is_sound());
    // Other collections are not affected.
    db.create_collection("plain", CollectionOptions::json()).unwrap().put(b"1", b"{}").unwrap();
    db.close().unwrap();

    // A smaller budget: the region is not opened, writes go on, a query that requires the index names it.
    let db = Db::open_with("db", options().cache_bytes(64 << 10).memory_bytes(1 << 20), components.clone())
        .unwrap();
    db.collection("c").unwrap().put(&key(77), &record(7, 77)).unwrap();
    db.flush().unwrap();
    let error = found_by_index(&db, 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let words = ["c.group", "memory_bytes", "composite"];
    assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
    assert!(db.stats().memory.refused_requests > 0);
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

/// A check reports an index that does not fit, and compares the others.
#[test]
fn a_check_names_an_index_that_does_not_fit() {
    let components = Components::in_memory();
    let db = create(components.clone(), options());
    db.collection("c").unwrap().create_index("number:composite".parse().unwrap()).unwrap();
    fill(&db, 0..30_000).unwrap();
    db.close().unwrap();
    let small = options().cache_bytes(64 << 10).memory_bytes(1 << 20);
    let db = Db::open_with("db", small, components).unwrap();
    let report = db.check(true).unwrap();
    let [problem] = report.problems() else { panic!("{report}") };
    let words = ["\"group\" of \"c\" was not compared", "memory_bytes", "--memory"];
    assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
    let compared: Vec<_> = report.indexes.iter().map(|index| (&*index.index, index.found.records)).collect();
    assert_eq!(compared, [("number", 30_000)]);
    assert!(!report.is_sound() && db.collection("c").unwrap().check_indexes().unwrap().problems().len() == 1);
}

/// A query that another plan can answer does not fail, and does not read the region each time.
#[test]
fn a_query_uses_another_plan_until_the_index_fits() {
    let components = Components::in_memory();
    let db = create(components.clone(), options());
    let c = db.collection("c").unwrap();
    c.create_index("number:composite".parse().unwrap()).unwrap();
    fill(&db, 0..60_000).unwrap();
    db.create_collection("d", CollectionOptions::json().index("group".parse().unwrap())).unwrap();
    let d = db.collection("d").unwrap();
    (0..60_000).for_each(|number| d.put(&key(number), &record(number % 50, number)).unwrap());
    let region = region_bytes(&db) / 2;
    drop((c, d));
    db.close().unwrap();

    // Room for one of the two regions.
    let budget = region + region / 2 + (512 << 10);
    let small = || options().cache_bytes(256 << 10).memory_bytes(budget as usize);
    let db = Db::open_with("db", small(), components.clone()).unwrap();
    let d = db.collection("d").unwrap();
    let of_d = Query::new().eq("group", "g00003").limit(10).keys_only();
    assert_eq!(d.find(&of_d).unwrap().len(), 10);
    let opened = region_bytes(&db);
    assert!(opened > 0);
    let wanted: Vec<_> = (0..10).map(|one| key(59_953 - 50 * one)).collect();
    assert_eq!(found(&db, 3).unwrap(), wanted, "by a scan");
    let refused = db.stats().memory.refused_requests;
    assert_eq!(refused, 1);
    // By the other index; the reason is reported.
    let c = db.collection("c").unwrap();
    let both = Query::new().eq("group", "g00003").range("number", 59_000..).limit(10).keys_only();
    let answers = c.find(&both).unwrap();
    let explain = answers.explain();
    assert_eq!(explain.index.as_deref(), Some("number"), "{explain}");
    assert!(
        explain.unused.iter().any(|why| why.contains("group") && why.contains("memory budget")),
        "{explain}"
    );
    // A union needs an index for each alternative.
    let either = Query::new().filter(bolide::Filter::parse(r#"group = "g00003" or number = 7"#).unwrap());
    let answers = c.find(&either.limit(1_000)).unwrap();
    assert_eq!((answers.len(), answers.explain().index.clone()), (1_000, None));
    assert_eq!(db.stats().memory.refused_requests, refused, "the refusal is remembered");
    assert_eq!(region_bytes(&db), opened);
    // A prepared query and a cursor take the same way.
    let mut count = 0;
    let newest = Query::new().eq("group", "").limit(10).keys_only();
    let mut prepared = c.prepare(newest, bolide::FindOptions::default()).unwrap();
    prepared
        .visit(&"g00003".into(), |_| {
            count += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(count, 10);
    drop(prepared);
    // The memory of the other index is free: this one is opened.
    drop(d);
    db.drop_collection("d").unwrap();
    assert_eq!(found(&db, 3).unwrap(), wanted);
    assert!(region_bytes(&db) > 0 && memory_of(&db, MemoryUse::IndexRegions, Some("c.group")) > 0);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn a_damaged_region_gives_its_memory_back() {
    let vfs = SimVfs::new(1);
    let components = || Components::system().vfs(Arc::new(vfs.clone()));
    let db = create(components(), options());
    fill(&db, 0..5_000).unwrap();
    db.close().unwrap();
    let is_region = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "region");
    let region = vfs.files().into_iter().rfind(is_region).unwrap();
    vfs.damage(&region, |bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
    })
    .unwrap();
    let db = Db::open_read_only_with("db", options(), components()).unwrap();
    assert_eq!(found(&db, 3).unwrap().len(), 10);
    assert_eq!(region_bytes(&db), 0);
}

/// The region fits, but not with the writes since its checkpoint.
#[test]
fn an_opening_that_fails_at_its_end_gives_its_memory_back() {
    let vfs = SimVfs::new(1);
    let components = |vfs: &SimVfs| Components::system().vfs(Arc::new(vfs.clone()));
    let db = create(components(&vfs), options());
    fill(&db, 0..5_000).unwrap();
    db.close().unwrap();
    // Without a flush or a query the writes stay in memtables and in the log.
    let roomy = options().memtable_bytes(32 << 20).memory_bytes(256 << 20);
    let db = Db::open_with("db", roomy, components(&vfs)).unwrap();
    fill(&db, 0..30_000).unwrap();
    assert_eq!(region_bytes(&db), 0);
    db.close().unwrap();
    let [mut refused, mut opened] = [0; 2];
    for quarters in (4..60).step_by(4) {
        let budget = options().cache_bytes(64 << 10).memory_bytes(quarters << 18);
        let db = Db::open_with("db", budget, components(&vfs.crash(CrashMode::None))).unwrap();
        match found_by_index(&db, 3) {
            Ok(found) => {
                assert_eq!(found, 10);
                opened += 1;
            }
            Err(error) => {
                assert!(error.kind() == ErrorKind::NoSpace && error.message().contains("c.group"), "{error}");
                assert_eq!(region_bytes(&db), 0, "{quarters} quarters of a MiB");
                let requests = db.stats().memory.refused_requests;
                assert!(found_by_index(&db, 3).is_err());
                assert_eq!(db.stats().memory.refused_requests, requests, "the refusal is remembered");
                refused += 1;
            }
        }
    }
    assert!(refused > 2 && opened > 2, "{refused} refused, {opened} opened");
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
    let db = Db::open_with("db", roomy, Components::in_memory()).unwrap();
    // The budget is its bound.
    let index = "group:ps-tree:memory=1000000000".parse().unwrap();
    db.create_collection("c", CollectionOptions::json().index(index)).unwrap();
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
