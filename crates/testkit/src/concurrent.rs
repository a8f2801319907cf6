//! Many threads on one database: snapshots are consistent, and reads are monotonic.
//!
//! Records form groups. A batch rewrites all records of a group, in two collections, with the number of the batch. A
//! snapshot, an iteration and an index query must see each group complete and with one number. A reader that has seen
//! number `n` in a group must never see a smaller one later.
//!
//! Meanwhile one thread flushes, compacts, and creates and drops an index. Another thread cuts the power on copies of the
//! disk. Each copy must recover complete, with all synced writes, also during an index build or drop.
//!
//! Threads are real, so a seed does not repeat a run: it only chooses the setup and the load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bolide::{Collection, Db, IterOptions, Query, SyncMode, WriteBatch, WriteOptions};
use bolide_storage::{CrashMode, SimRng, SimVfs};
use serde_json::{Value, json};

use crate::kinds;
use crate::seeds::{Counts, Outcome};
use crate::setup::Setup;

/// Options of a run with threads.
#[derive(Debug, Clone, Copy)]
pub struct ConcurrentOptions {
    /// Number of writer threads.
    pub writers: usize,
    /// Number of reader threads.
    pub readers: usize,
    /// Batches per writer.
    pub batches: u64,
    /// Power cuts during the run, each on a copy of the disk.
    pub cuts: u64,
}

impl Default for ConcurrentOptions {
    fn default() -> Self {
        Self { writers: 3, readers: 3, batches: 400, cuts: 4 }
    }
}

/// Number of groups.
const GROUPS: u64 = 8;
/// Records per group in each of the two collections.
const MEMBERS: u64 = 5;

/// The state that all threads share.
struct ConcurrentRun {
    db: Db,
    left: Collection,
    right: Collection,
    /// The number of the next batch.
    next: AtomicU64,
    /// Set after the last writer has finished.
    done: AtomicBool,
    checks: AtomicU64,
    /// One lock per group, so that the numbers of a group only grow.
    groups: [Mutex<()>; GROUPS as usize],
    /// The number of the last synced write of each group.
    synced: [AtomicU64; GROUPS as usize],
    /// The simulated disk of the database.
    disk: SimVfs,
    setup: Setup,
    cuts: AtomicU64,
    /// The kind of the index that is created and dropped.
    kind: &'static str,
}

/// Runs writers, readers, a maintenance thread and a power-cut thread concurrently.
pub fn check(seed: u64, options: ConcurrentOptions) -> Outcome<Counts> {
    let mut rng = SimRng::new(seed);
    let setup = Setup { threads: 2, ..Setup::random(&mut rng) };
    let context = |what: String| format!("{setup}: {what}");
    let run = ConcurrentRun::open(seed, setup, &mut rng).map_err(|error| context(format!("{error:?}")))?;
    let run = &run;
    let mut rngs: Vec<SimRng> = (0..options.writers + options.readers).map(|_| rng.fork()).collect();
    let mut outcomes: Vec<Outcome> = Vec::new();
    thread::scope(|scope| {
        let readers = rngs.split_off(options.writers).into_iter();
        let writers: Vec<_> =
            rngs.into_iter().map(|rng| scope.spawn(move || run.write(rng, options.batches))).collect();
        let mut workers: Vec<_> = readers.map(|rng| scope.spawn(move || run.read(rng))).collect();
        workers.push(scope.spawn(move || run.run_maintenance(SimRng::new(seed))));
        workers.push(scope.spawn(move || run.cut_power(options.cuts, SimRng::new(!seed))));
        let join = |handle: thread::ScopedJoinHandle<'_, Outcome>| {
            handle.join().unwrap_or_else(|panic| Err(crate::seeds::panic_text(&*panic)))
        };
        outcomes.extend(writers.into_iter().map(join));
        run.done.store(true, Ordering::Release);
        outcomes.extend(workers.into_iter().map(join));
    });
    outcomes.into_iter().collect::<Outcome>().map_err(context)?;
    run.check_whole().map_err(context)?;
    let mut counts = Counts::default();
    counts.add("runs");
    counts.add_many("batches", run.next.load(Ordering::Acquire) - 1);
    counts.add_many("views checked", run.checks.load(Ordering::Acquire));
    counts.add_many("power cuts", run.cuts.load(Ordering::Acquire));
    Ok(counts)
}

impl ConcurrentRun {
    fn open(seed: u64, setup: Setup, rng: &mut SimRng) -> bolide::Result<Self> {
        let disk = SimVfs::new(seed);
        let db = setup.open(Arc::new(disk.clone()), seed)?;
        let mut create = |name: &str| -> bolide::Result<Collection> {
            let spec = format!("group=g:{}", kinds::any(rng)).parse()?;
            db.create_collection(name, setup.collection_options().index(spec))
        };
        let (left, right) = (create("left")?, create("right")?);
        let run = Self {
            db,
            left,
            right,
            next: AtomicU64::new(1),
            done: AtomicBool::new(false),
            checks: AtomicU64::new(0),
            groups: Default::default(),
            synced: Default::default(),
            disk,
            setup,
            cuts: AtomicU64::new(0),
            kind: kinds::any(rng),
        };
        (0..GROUPS).try_for_each(|group| run.rewrite(group, SyncMode::Always))?;
        Ok(run)
    }

    /// Rewrites all records of the group with a new number.
    fn rewrite(&self, group: u64, sync: SyncMode) -> bolide::Result<()> {
        let number = self.next.fetch_add(1, Ordering::AcqRel);
        let record = json!({"g": group, "v": number, "pad": "x".repeat((number % 60) as usize)}).to_string();
        let mut batch = WriteBatch::new();
        if number.is_multiple_of(7) {
            // A range delete in the same batch must not be visible by itself.
            batch.delete_range(&self.left, key(group, 0)..key(group, MEMBERS))?;
        }
        for member in 0..MEMBERS {
            batch.put(&self.left, &key(group, member), record.as_bytes())?;
            batch.put(&self.right, &key(group, member), record.as_bytes())?;
        }
        self.db.write_with(batch, &WriteOptions::default().sync(sync))?;
        if sync == SyncMode::Always {
            self.synced[group as usize].fetch_max(number, Ordering::AcqRel);
        }
        Ok(())
    }

    fn write(&self, mut rng: SimRng, batches: u64) -> Outcome {
        let own = rng.below(GROUPS);
        for _ in 0..batches {
            let group = (own + rng.below(3)) % GROUPS;
            let sync = if rng.one_in(20) { SyncMode::Always } else { SyncMode::None };
            let _alone = self.groups[group as usize].lock().unwrap_or_else(|poison| poison.into_inner());
            self.rewrite(group, sync).map_err(|error| format!("write: {error:?}"))?;
        }
        Ok(())
    }

    fn read(&self, mut rng: SimRng) -> Outcome {
        let mut seen = [0; GROUPS as usize];
        while !self.done.load(Ordering::Acquire) {
            let group = rng.below(GROUPS);
            let number = match rng.below(4) {
                0 => self.read_snapshot(group)?,
                1 => self.read_iteration(group, rng.one_in(2))?,
                2 => self.query_group(&self.left, group)?,
                _ => self.query_group(&self.right, group)?,
            };
            let last = &mut seen[group as usize];
            if number < *last {
                return Err(format!("group {group} went back from {last} to {number}"));
            }
            *last = number;
            self.checks.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads a group of both collections by gets at one snapshot.
    fn read_snapshot(&self, group: u64) -> Outcome<u64> {
        let snapshot = self.db.snapshot();
        let mut records = Vec::new();
        for collection in [&self.left, &self.right] {
            for member in 0..MEMBERS {
                let record =
                    collection.get_at(&snapshot, &key(group, member)).map_err(|e| format!("get: {e:?}"))?;
                records.extend(record);
            }
        }
        one_number(&format!("a snapshot of group {group}"), &records, 2 * MEMBERS)
    }

    fn read_iteration(&self, group: u64, reverse: bool) -> Outcome<u64> {
        let options = IterOptions::default().range(key(group, 0)..key(group, MEMBERS));
        let failed = |error| format!("iterate: {error:?}");
        let iter = self.left.iter_with(&options).map_err(failed)?;
        let rows: bolide::Result<Vec<(Vec<u8>, Vec<u8>)>> =
            if reverse { iter.rev().collect() } else { iter.collect() };
        let records: Vec<Vec<u8>> = rows.map_err(failed)?.into_iter().map(|(_, record)| record).collect();
        one_number(&format!("an iteration over group {group}"), &records, MEMBERS)
    }

    fn query_group(&self, collection: &Collection, group: u64) -> Outcome<u64> {
        let name = collection.name();
        let failed = |error| format!("find in {name}: {error:?}");
        let answers = collection.find(&Query::new().eq("g", group)).map_err(failed)?;
        let records: Vec<Vec<u8>> =
            answers.into_vec().into_iter().filter_map(|answer| answer.record).collect();
        one_number(&format!("an answer for group {group} of {name}"), &records, MEMBERS)
    }

    /// Flushes, compacts, and creates and drops an index under load.
    fn run_maintenance(&self, mut rng: SimRng) -> Outcome {
        let mut has_index = false;
        while !self.done.load(Ordering::Acquire) {
            match rng.below(6) {
                0 => self.db.compact(),
                1 if has_index => self.left.drop_index("number").map(|()| has_index = false),
                1 => format!("number=v:{}", self.kind)
                    .parse()
                    .and_then(|spec| self.left.create_index(spec))
                    .map(|()| has_index = true),
                _ => self.db.flush(),
            }
            .map_err(|error| format!("flush, compact, index: {error:?}"))?;
            thread::yield_now();
        }
        Ok(())
    }

    /// Cuts the power at random times, on copies of the disk. Each group must be complete and at least as new as its last
    /// synced write. All indexes must agree, including one that was being built or dropped.
    fn cut_power(&self, cuts: u64, mut rng: SimRng) -> Outcome {
        for _ in 0..cuts {
            let wait = rng.below(40);
            let due = self.next.load(Ordering::Acquire) + wait;
            while self.next.load(Ordering::Acquire) < due && !self.done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let synced = self.synced.each_ref().map(|number| number.load(Ordering::Acquire));
            let disk = self.disk.clone_disk();
            let mode = rng.pick(&CrashMode::EACH).copied().unwrap_or(CrashMode::Random);
            let context = |what: String| format!("after a power cut ({mode:?}): {what}");
            self.recover(&disk.crash_with_seed(mode, rng.next_u64()), synced, rng.next_u64())
                .map_err(context)?;
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn recover(&self, disk: &SimVfs, synced: [u64; GROUPS as usize], seed: u64) -> Outcome {
        let failed = |error: bolide::Error| format!("{error:?}");
        let setup = Setup { threads: 0, ..self.setup };
        let db = setup.open(Arc::new(disk.clone()), seed).map_err(failed)?;
        let report = db.check(true).map_err(failed)?;
        if !report.problems().is_empty() {
            return Err(format!("check: {:?}", report.problems()));
        }
        let (left, right) = (db.collection("left"), db.collection("right"));
        let (left, right) = (left.map_err(failed)?, right.map_err(failed)?);
        for group in 0..GROUPS {
            let number = self.query_group(&left, group)?;
            if self.query_group(&right, group)? != number || number < synced[group as usize] {
                return Err(format!("group {group} has {number}, {} was synced", synced[group as usize]));
            }
            if !left.indexes().iter().any(|index| index.name() == "number") {
                continue;
            }
            let found = left.find(&Query::new().eq("v", number).using_index("number")).map_err(failed)?;
            if found.len() as u64 != MEMBERS {
                return Err(format!("the built index has {} records of {number}", found.len()));
            }
        }
        Ok(())
    }

    fn check_whole(&self) -> Outcome {
        let report = self.db.check(true).map_err(|error| format!("check: {error:?}"))?;
        if !report.problems().is_empty() {
            return Err(format!("check: {:?}", report.problems()));
        }
        for group in 0..GROUPS {
            let numbers = [
                self.read_snapshot(group)?,
                self.query_group(&self.left, group)?,
                self.query_group(&self.right, group)?,
            ];
            if numbers.iter().any(|number| *number != numbers[0]) {
                return Err(format!("group {group} has the numbers {numbers:?} at the end"));
            }
        }
        Ok(())
    }
}

fn key(group: u64, member: u64) -> Vec<u8> {
    format!("{group:03}/{member:03}").into_bytes()
}

/// The common number of `records`, of which there must be `count`.
fn one_number(what: &str, records: &[Vec<u8>], count: u64) -> Outcome<u64> {
    let numbers: Vec<Option<u64>> = records
        .iter()
        .map(|record| serde_json::from_slice::<Value>(record).ok()?.get("v")?.as_u64())
        .collect();
    match numbers.first() {
        Some(Some(first))
            if numbers.len() as u64 == count && numbers.iter().all(|number| *number == Some(*first)) =>
        {
            Ok(*first)
        }
        _ => Err(format!("{what} has the numbers {numbers:?}, want {count} equal ones")),
    }
}
