//! A panic in a program's extractor, or in a thread that builds an index, is an error: never a wrong answer, never a hang.
#![allow(clippy::disallowed_methods, reason = "a watchdog is a thread of the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bolide::storage::{JoinHandle, MemVfs, Runtime, SystemRuntime};
use bolide::{
    AttributeExtractor, AttributePlan, AttributeValues, BuildOptions, Collection, CollectionOptions,
    Components, Db, ErrorKind, JsonExtractor, Options, Query, Result,
};

const KINDS: [&str; 6] =
    ["composite", "lazy", "eager", "embedded", "next", "composite:maintenance=synchronous"];
const RECORDS: u64 = 200;

/// Reads JSON, and panics at one of its calls.
#[derive(Debug, Default)]
struct Panicking {
    /// The calls until it panics; 0 for never.
    left: AtomicU64,
}

impl AttributeExtractor for Panicking {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        let count = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, count) == Ok(1) {
            panic!("the extractor meets a record that it was not made for");
        }
        JsonExtractor.extract_into(record, plan, out)
    }
}

/// The machine's runtime, whose clock panics once in a thread that builds an index.
#[derive(Debug, Default)]
struct PanickingClock {
    runtime: SystemRuntime,
    armed: AtomicBool,
}

impl Runtime for PanickingClock {
    fn now_micros(&self) -> u64 {
        let builds = std::thread::current().name() == Some("bolide-index");
        if builds && self.armed.swap(false, Ordering::AcqRel) {
            panic!("the clock is out of order");
        }
        self.runtime.now_micros()
    }

    fn random_u64(&self) -> u64 {
        self.runtime.random_u64()
    }

    fn sleep(&self, duration: Duration) {
        self.runtime.sleep(duration);
    }

    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.runtime.spawn(name, task)
    }

    fn thread_cpu_micros(&self) -> u64 {
        self.runtime.thread_cpu_micros()
    }

    fn process_cpu_micros(&self) -> u64 {
        self.runtime.process_cpu_micros()
    }
}

/// Fails if `work` exceeds a time limit.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = sender.send(());
    });
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the work exceeds the time limit"),
        _ => thread.join().unwrap(),
    }
}

fn open(vfs: &Arc<MemVfs>, extractor: &Arc<Panicking>, threads: usize) -> Db {
    let components = Components::system().vfs(vfs.clone()).extractor("docs", extractor.clone());
    Db::open_with("db", Options::default().background_threads(threads), components).unwrap()
}

fn fill(docs: &Collection) {
    for number in 0..RECORDS {
        docs.put(&number.to_be_bytes(), format!("{{\"a\":{}}}", number % 4).as_bytes()).unwrap();
    }
}

/// The number of rows that the index `name` returns, over all values.
fn rows(docs: &Collection, name: &str) -> Result<u64> {
    (0..4).map(|value| Ok(docs.find(&Query::new().eq("a", value).using_index(name))?.len() as u64)).sum()
}

#[test]
fn a_panic_in_an_extractor_is_an_error_of_the_call_and_no_wrong_answer() {
    for kind in KINDS {
        for at in [1, 2, 77, 200] {
            in_time(move || {
                let (vfs, extractor) = (Arc::new(MemVfs::new()), Arc::new(Panicking::default()));
                let db = open(&vfs, &extractor, 0);
                let spec = format!("ix=a:{kind}").parse().unwrap();
                let docs = db.create_collection("docs", CollectionOptions::bytes().index(spec)).unwrap();
                fill(&docs);
                extractor.left.store(at, Ordering::Release);
                // An error, or the right answer.
                match rows(&docs, "ix") {
                    Ok(found) => assert_eq!(found, RECORDS, "{kind}, panic at {at}"),
                    Err(error) => assert!(error.message().contains("not made for"), "{error:?}"),
                }
                extractor.left.store(0, Ordering::Release);
                assert_eq!(rows(&docs, "ix").unwrap(), RECORDS, "{kind}, after a panic at {at}");
                extractor.left.store(1, Ordering::Release);
                let error = docs.put(b"new", br#"{"a":1}"#).unwrap_err();
                let wanted = "the extractor of collection \"docs\" panicked: the extractor meets a record";
                assert!(error.kind() == ErrorKind::Internal && error.message().contains(wanted), "{error:?}");
                assert_eq!(docs.get(b"new").unwrap(), None);
                extractor.left.store(at, Ordering::Release);
                db.flush().unwrap();
                extractor.left.store(0, Ordering::Release);
                assert_eq!(rows(&docs, "ix").unwrap(), RECORDS, "{kind}, after a panic in a flush");
                drop(docs);
                db.close().unwrap();
                let docs = open(&vfs, &extractor, 0).collection("docs").unwrap();
                assert_eq!(rows(&docs, "ix").unwrap(), RECORDS, "{kind}, opened again");
            });
        }
    }
}

#[test]
fn a_panic_in_a_build_is_its_error_and_the_next_open_builds_the_index() {
    for (kind, threads, rebuilds) in
        [("composite", 2, false), ("eager", 2, false), ("composite", 0, false), ("lazy", 2, true)]
    {
        in_time(move || {
            let (vfs, extractor) = (Arc::new(MemVfs::new()), Arc::new(Panicking::default()));
            let db = open(&vfs, &extractor, threads);
            let docs = db.create_collection("docs", CollectionOptions::bytes()).unwrap();
            let spec: bolide::IndexSpec = format!("ix=a:{kind}").parse().unwrap();
            fill(&docs);
            if rebuilds {
                docs.create_index(spec.clone()).unwrap();
            }
            extractor.left.store(50, Ordering::Release);
            let options = BuildOptions::default();
            let build = match rebuilds {
                true => docs.rebuild_index_background("ix", &options),
                false => docs.create_index_background(spec, &options),
            };
            let error = build.unwrap().wait().unwrap_err();
            assert!(error.message().contains("not made for"), "{error:?}");
            if rebuilds {
                assert_eq!(rows(&docs, "ix").unwrap(), RECORDS);
            }
            drop(docs);
            db.close().unwrap();
            let db = open(&vfs, &extractor, 0);
            let docs = db.collection("docs").unwrap();
            assert_eq!(rows(&docs, "ix").unwrap(), RECORDS, "{kind}");
        });
    }
}

#[test]
fn a_panic_in_the_thread_of_a_build_wakes_its_waiters() {
    for kind in KINDS {
        in_time(move || {
            let (vfs, clock) = (Arc::new(MemVfs::new()), Arc::new(PanickingClock::default()));
            let components = Components::system().vfs(vfs).runtime(clock.clone());
            let db = Db::open_with("db", Options::default(), components.clone()).unwrap();
            let docs = db.create_collection("docs", CollectionOptions::json()).unwrap();
            fill(&docs);
            clock.armed.store(true, Ordering::Release);
            let spec = format!("ix=a:{kind}").parse().unwrap();
            let build = docs.create_index_background(spec, &BuildOptions::default()).unwrap();
            let error = build.wait().unwrap_err();
            let wanted = "the build of index \"ix\" panicked: the clock is out of order";
            assert!(error.message().contains(wanted), "{error:?}");
            drop((docs, build));
            db.close().unwrap();
            let db = Db::open_with("db", Options::default(), components).unwrap();
            let docs = db.collection("docs").unwrap();
            while rows(&docs, "ix").is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(rows(&docs, "ix").unwrap(), RECORDS, "{kind}");
            db.check(true).unwrap();
        });
    }
}
