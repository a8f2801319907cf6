//! Building, resuming, rebuilding and dropping indexes beside readers and writers.
#![allow(clippy::disallowed_methods)] // Real threads and real time.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bolide::storage::{CrashMode, RecordImages, SimRng, SimRuntime, SimVfs};
use bolide::{
    BuildOptions, Collection, Components, Db, ErrorKind, IndexState, Options, Query, SyncMode, WriteBatch,
};
use support::{seed, threaded, tiny, tiny_collection};

/// Specifications whose builds differ.
const SPECS: [&str; 11] = [
    "i=a:composite",
    "i=a:composite:maintenance=synchronous",
    "i=tags[*]+a:composite",
    "i=a:composite:validation=key-index",
    "i=a:lazy",
    "i=a:lazy:maintenance=synchronous",
    "i=a:composite:order=primary-key",
    "i=a:eager",
    "i=a:eager:split=off,maintenance=synchronous",
    "i=a:eager:validation=key-index",
    "i=a:composite:order=primary-key,maintenance=synchronous",
];

fn record(rng: &mut SimRng) -> Vec<u8> {
    let tags: Vec<String> = (0..rng.below(3)).map(|_| format!("\"t{}\"", rng.below(4))).collect();
    format!(r#"{{"a":{},"tags":[{}],"pad":"{:-<40}"}}"#, rng.below(7), tags.join(","), "").into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

/// A query that the index `i` of `spec` serves must answer as the scan does.
fn assert_answers_as_a_scan(collection: &Collection, spec: &str) {
    for value in 0..7 {
        let scan = Query::new().eq("a", value);
        let query = match spec.starts_with("i=tags") {
            true => Query::new().eq("tags[*]", "t1").eq("a", value),
            false => scan,
        };
        let mut by_scan: Vec<(Vec<u8>, u64)> = Vec::new();
        let all = collection.find(&Query::new()).unwrap();
        for answer in all {
            let json: serde_json::Value = serde_json::from_slice(answer.record.as_deref().unwrap()).unwrap();
            let has_tag = json["tags"].as_array().unwrap().iter().any(|tag| tag == "t1");
            if json["a"] == value && (has_tag || !spec.starts_with("i=tags")) {
                by_scan.push((answer.key, answer.sequence));
            }
        }
        for query in [query.clone().using_index("i"), query.using_index("i").keys_only()] {
            let found = collection.find(&query).unwrap();
            let found: Vec<(Vec<u8>, u64)> = found.into_iter().map(|one| (one.key, one.sequence)).collect();
            assert_eq!(found, by_scan, "{spec}, a = {value}");
        }
    }
}

fn assert_sound(db: &Db) {
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems());
}

/// One more random write to `collection`.
fn write(collection: &Collection, db: &Db, rng: &mut SimRng, keys: u64) -> bolide::Result<()> {
    match rng.below(12) {
        0 => collection.delete(&key(rng.below(keys))),
        1 => {
            let start = rng.below(keys);
            collection.delete_range(key(start)..key(start + 4))
        }
        2 => {
            let mut batch = WriteBatch::new();
            for _ in 0..3 {
                batch.put(collection, &key(rng.below(keys)), &record(rng))?;
            }
            batch.delete(collection, &key(rng.below(keys)))?;
            db.write(batch).map(drop)
        }
        _ => collection.put(&key(rng.below(keys)), &record(rng)),
    }
}

#[test]
fn writers_continue_while_an_index_is_built_rebuilt_and_dropped() {
    let seed = seed();
    for spec in SPECS {
        let options = Options::default().memtable_bytes(64 << 10).sync(SyncMode::None);
        let db = Db::open_with("db", options, threaded()).unwrap();
        let one = db.create_collection("one", tiny_collection()).unwrap();
        let mut rng = SimRng::new(seed);
        for number in 0..2_000 {
            one.put(&key(number), &record(&mut rng)).unwrap();
        }
        let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (db, one, stop, writes) = (db.clone(), one.clone(), stop.clone(), writes.clone());
                std::thread::spawn(move || {
                    let mut rng = SimRng::new(seed + writer);
                    while !stop.load(Ordering::Relaxed) {
                        write(&one, &db, &mut rng, 2_000).expect("a write beside builds and drops");
                        writes.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let slowly = BuildOptions::default().checkpoint_bytes(16 << 10);
        for round in 0..6 {
            one.create_index_with(spec.parse().unwrap(), &slowly).unwrap();
            if round % 2 == 0 {
                one.rebuild_index("i", &slowly).unwrap();
            }
            assert_sound(&db);
            one.drop_index("i").unwrap();
            let build = one.create_index_background(spec.parse().unwrap(), &slowly.clone()).unwrap();
            one.drop_index("i").unwrap();
            if let Err(error) = build.wait() {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            }
        }
        one.create_index(spec.parse().unwrap()).unwrap();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(writes.load(Ordering::Relaxed) > 0);
        assert_sound(&db);
        assert_answers_as_a_scan(&one, spec);
    }
}

#[test]
fn a_background_build_reports_its_progress_and_stays_within_its_limit() {
    let db = Db::open_with("db", Options::default().background_threads(1), threaded()).unwrap();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    let mut rng = SimRng::new(1);
    for number in 0..20_000 {
        one.put(&key(number), &record(&mut rng)).unwrap();
    }
    // About 1.6 MB of records.
    let slowly = BuildOptions::default().bytes_per_second(4 << 20);
    let build = one.create_index_background("a".parse().unwrap(), &slowly).unwrap();
    assert_eq!(build.name(), "a");
    assert_eq!(one.index("a").unwrap().state(), IndexState::Building);
    let query = Query::new().eq("a", 1);
    assert!(one.find(&query).unwrap().explain().is_full_scan());
    assert_eq!(one.find(&query.clone().using_index("a")).unwrap_err().kind(), ErrorKind::Conflict);
    let mut last = 0;
    while build.progress().state == IndexState::Building {
        let progress = build.progress();
        assert!(progress.records >= last && progress.share() <= 1.0);
        last = progress.records;
        std::thread::sleep(Duration::from_millis(5));
    }
    build.wait().unwrap();
    let progress = build.progress();
    assert_eq!((progress.records, progress.expected_records, progress.share()), (20_000, 20_000, 1.0));
    assert!(progress.elapsed >= Duration::from_millis(250), "{:?}", progress.elapsed);
    assert!(progress.bytes_per_second() < 6e6, "{}", progress.bytes_per_second());
    assert!(!one.find(&query).unwrap().explain().is_full_scan());
    assert_sound(&db);
}

#[test]
fn a_build_that_fails_at_a_bad_record_is_reported_and_can_be_rebuilt() {
    let components = Components::in_memory();
    let db = Db::open_with("db", Options::default(), components.clone()).unwrap();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    one.put(b"good", br#"{"a":1}"#).unwrap();
    one.put(b"bad", format!(r#"{{"a":"{}"}}"#, "x".repeat(70_000)).as_bytes()).unwrap();
    // A caller that waits gets the error, and nothing is left.
    assert_eq!(one.create_index("a".parse().unwrap()).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert!(one.indexes().is_empty());
    let build = one.create_index_background("a".parse().unwrap(), &BuildOptions::default()).unwrap();
    assert_eq!(build.wait().unwrap_err().kind(), ErrorKind::LimitExceeded);
    drop((one, db, build));
    let db = Db::open_with("db", Options::default(), components).unwrap();
    let one = db.collection("one").unwrap();
    let info = one.index("a").unwrap();
    assert_eq!(info.state(), IndexState::Failed);
    assert!(info.problem().unwrap().to_string().contains("bad"), "{:?}", info.problem());
    assert_eq!(one.find(&Query::new().eq("a", 1).using_index("a")).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(one.rebuild_index("a", &BuildOptions::default()).is_err());
    one.delete(b"bad").unwrap();
    one.rebuild_index("a", &BuildOptions::default()).unwrap();
    assert_eq!(one.index("a").unwrap().state(), IndexState::Ready);
    assert_eq!(one.find(&Query::new().eq("a", 1).using_index("a")).unwrap().len(), 1);
    assert_sound(&db);
}

#[test]
fn closing_stops_a_build_and_the_next_open_continues_it() {
    let components = threaded();
    let db = Db::open_with("db", Options::default(), components.clone()).unwrap();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    let mut rng = SimRng::new(1);
    for number in 0..4_000 {
        one.put(&key(number), &record(&mut rng)).unwrap();
    }
    // The whole build would take two hundred seconds.
    let slowly = BuildOptions::default().records_per_second(20).checkpoint_bytes(1);
    let build = one.create_index_background("i=a".parse().unwrap(), &slowly).unwrap();
    let other = one.create_index_background("tags[*]".parse().unwrap(), &slowly).unwrap();
    while build.progress().records == 0 || other.progress().records == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(one);
    db.close().unwrap();
    assert_eq!(build.wait().unwrap_err().kind(), ErrorKind::Closed);
    let db = Db::open_with("db", Options::default(), components).unwrap();
    let one = db.collection("one").unwrap();
    let info = one.index("i").unwrap();
    assert_eq!(info.state(), IndexState::Building);
    assert!(info.progress().records > 0 && info.progress().records < 4_000, "{info:?}");
    // Dropping ends a build that sleeps.
    one.drop_index("i").unwrap();
    one.drop_index("tags[*]").unwrap();
    one.create_index("i=a".parse().unwrap()).unwrap();
    assert_answers_as_a_scan(&one, "i=a");
}

/// Writes, builds, rebuilds and drops, with a power cut before every sync. After each, complete indexes answer as a
/// scan does, and the open completes interrupted builds.
#[test]
fn a_power_cut_at_any_sync_of_a_build_loses_nothing() {
    let seed = seed();
    for (round, spec) in SPECS.into_iter().enumerate() {
        let vfs = SimVfs::new(seed + round as u64);
        vfs.record_images(RecordImages::SyncPoints);
        let open = |vfs: &SimVfs| {
            let components =
                Components::system().vfs(Arc::new(vfs.clone())).runtime(Arc::new(SimRuntime::new(seed)));
            Db::open_with("db", tiny(), components)
        };
        let mut rng = SimRng::new(seed + round as u64);
        let db = open(&vfs).unwrap();
        let one = db.create_collection("one", tiny_collection()).unwrap();
        for _ in 0..300 {
            write(&one, &db, &mut rng, 240).unwrap();
        }
        db.sync().unwrap();
        let options = BuildOptions::default().checkpoint_bytes(1_500);
        vfs.take_images();
        one.create_index_with(spec.parse().unwrap(), &options).unwrap();
        let mut images = vec![("create", vfs.take_images())];
        for _ in 0..40 {
            write(&one, &db, &mut rng, 120).unwrap();
        }
        db.sync().unwrap();
        vfs.take_images();
        one.rebuild_index("i", &options).unwrap();
        images.push(("rebuild", vfs.take_images()));
        one.drop_index("i").unwrap();
        images.push(("drop", vfs.take_images()));
        let records = one.iter().unwrap().count();
        vfs.record_images(RecordImages::Never);
        let (mut resumed, mut cuts) = (0, 0);
        for (step, image) in
            images.into_iter().flat_map(|(step, images)| images.into_iter().map(move |image| (step, image)))
        {
            for mode in CrashMode::EACH {
                let disk = image.vfs.crash_with_seed(mode, rng.next_u64());
                cuts += 1;
                let db = open(&disk).unwrap();
                let one = db.collection("one").unwrap();
                if step != "create" {
                    assert_eq!(one.iter().unwrap().count(), records, "{step}, before {}", image.before);
                }
                if let Some(info) = one.indexes().first() {
                    assert_eq!(info.state(), IndexState::Ready, "{:?}", info.problem());
                    assert!(info.rebuild().is_none());
                    assert_answers_as_a_scan(&one, spec);
                    resumed += usize::from(info.progress().records_before > 0);
                } else {
                    assert_ne!(step, "rebuild", "before {}", image.before);
                }
                for _ in 0..10 {
                    write(&one, &db, &mut rng, 120).unwrap();
                }
                assert_sound(&db);
                assert!(db.stats().collections[0].indexes.len() <= 1);
            }
        }
        assert!(cuts > 30 && resumed > 2, "{spec}: {cuts} power cuts, {resumed} builds resumed");
    }
}

/// Running queries use an index to their end.
#[test]
fn an_index_can_be_dropped_from_within_a_query_that_uses_it() {
    let db = Db::open_with("db", tiny(), support::components(1)).unwrap();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    one.put(b"1", br#"{"a":1}"#).unwrap();
    one.put(b"2", br#"{"a":1}"#).unwrap();
    one.create_index("i=a".parse().unwrap()).unwrap();
    let query = Query::new().eq("a", 1).using_index("i").keys_only();
    let mut dropped = false;
    let explain = one
        .find_each(&query, &Default::default(), |_| {
            if !dropped {
                one.drop_index("i")?;
                dropped = true;
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!(explain.answers, 2);
}
