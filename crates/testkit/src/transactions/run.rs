//! Threads that run random transactions on one database and record them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bolide::{
    Collection, Db, ErrorKind, Isolation, Query, SyncMode, Transaction, TransactionOptions, WriteBatch,
    WriteOptions,
};
use bolide_storage::{CrashMode, SimRng, SimVfs};

use super::recorded::{
    Content, Contents, Read, RecordedHistory, RecordedTransaction, Recovered, TransactionStep, Written,
};
use crate::seeds::{Outcome, panic_text};
use crate::setup::Setup;

/// Records that all transactions read and write.
const SHARED: u64 = 6;
/// Records that single writes put, and range deletes delete.
const SINGLE: u64 = 6;
/// Groups of records.
const GROUPS: u64 = 3;
/// Maximum number of steps of a transaction.
const STEPS: u64 = 5;

/// The state that all threads share.
pub(super) struct TransactionRun {
    pub(super) db: Db,
    pub(super) records: Collection,
    pub(super) disk: SimVfs,
    pub(super) setup: Setup,
    pub(super) isolation: Isolation,
    pub(super) clock: AtomicU64,
    /// Writes so far: the number of each.
    pub(super) writes: AtomicU64,
    /// The largest sequence number of a synced commit.
    pub(super) synced: AtomicU64,
    pub(super) done: AtomicBool,
    pub(super) history: Mutex<RecordedHistory>,
}

fn failed(error: bolide::Error) -> String {
    format!("{error:?}")
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

impl TransactionRun {
    /// Runs threads of `transactions` each, single writes beside them, and power cuts on copies of the disk.
    pub(super) fn run(&self, threads: usize, transactions: u64, cuts: u64, rng: &mut SimRng) -> Outcome {
        let rngs: Vec<SimRng> = (0..threads).map(|_| rng.fork()).collect();
        let (single, power, queries) = (rng.fork(), rng.fork(), rng.fork());
        let outcomes: Vec<Outcome> = thread::scope(|scope| {
            let workers: Vec<_> = rngs
                .into_iter()
                .enumerate()
                .map(|(thread, rng)| scope.spawn(move || self.transact(thread, transactions, rng)))
                .collect();
            let others = [
                scope.spawn(|| self.write_single(threads, single)),
                scope.spawn(|| self.cut_power(cuts, power)),
                scope.spawn(|| self.observe(threads + 1, queries)),
            ];
            let join = |handle: thread::ScopedJoinHandle<'_, Outcome>| {
                handle.join().unwrap_or_else(|panic| Err(panic_text(&*panic)))
            };
            let mut outcomes: Vec<Outcome> = workers.into_iter().map(join).collect();
            self.done.store(true, Ordering::Release);
            outcomes.extend(others.into_iter().map(join));
            outcomes
        });
        outcomes.into_iter().collect::<Outcome>()?;
        self.lock().end = dump(&self.records)?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RecordedHistory> {
        self.history.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn next_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn transact(&self, thread: usize, transactions: u64, mut rng: SimRng) -> Outcome {
        for _ in 0..transactions {
            let start = self.tick();
            let sync = if rng.one_in(4) { SyncMode::Always } else { SyncMode::None };
            let options = TransactionOptions::default().isolation(self.isolation).sync(sync);
            let tx = self.db.begin(options).map_err(failed)?;
            let snapshot = tx.sequence();
            let mut steps = Vec::new();
            for _ in 0..=rng.below(STEPS) {
                self.step(&tx, &mut steps, &mut rng)?;
                if rng.one_in(3) {
                    thread::yield_now();
                }
            }
            let writes = steps.iter().any(|step| matches!(step, TransactionStep::Write(_)));
            if writes {
                // So that no transaction has one write alone.
                let content = Content { group: GROUPS, writes: vec![self.next_write()] };
                self.put(&tx, &mut steps, format!("t{thread}"), content)?;
            }
            let commit = if rng.one_in(10) {
                tx.rollback();
                None
            } else {
                match tx.commit() {
                    Ok(commit) => Some(commit),
                    Err(error) if error.kind() == ErrorKind::Conflict => None,
                    Err(error) => return Err(format!("commit: {error:?}")),
                }
            };
            if let (Some(commit), SyncMode::Always, true) = (commit, sync, writes) {
                self.synced.fetch_max(commit, Ordering::SeqCst);
            }
            let end = self.tick();
            let recorded = RecordedTransaction { thread, start, end, snapshot, commit, steps };
            self.lock().transactions.push(recorded);
        }
        Ok(())
    }

    /// One random step of a transaction.
    fn step(&self, tx: &Transaction, steps: &mut Vec<TransactionStep>, rng: &mut SimRng) -> Outcome {
        match rng.below(10) {
            0 | 1 => self.read_key(tx, steps, any_key(rng)).map(drop),
            2 => self.read_range(tx, steps, rng),
            3 | 4 => self.read_group(tx, steps, rng.below(GROUPS)),
            5 | 6 => {
                // Without a read of the record.
                let (key, group) = (format!("b{}", rng.below(SHARED)), rng.below(GROUPS));
                let content = Content { group, writes: vec![self.next_write()] };
                self.put(tx, steps, key, content)
            }
            7 => self.roll_back_writes(tx, rng),
            _ => {
                let key = format!("a{}", rng.below(SHARED));
                let mut writes =
                    self.read_key(tx, steps, key.clone())?.map_or(Vec::new(), |content| content.writes);
                writes.push(self.next_write());
                self.put(tx, steps, key, Content { group: rng.below(GROUPS), writes })
            }
        }
    }

    fn put(
        &self,
        tx: &Transaction,
        steps: &mut Vec<TransactionStep>,
        key: String,
        content: Content,
    ) -> Outcome {
        tx.put(&self.records, key.as_bytes(), &content.json()).map_err(failed)?;
        steps.push(TransactionStep::Write(Written { key, content: Some(content) }));
        Ok(())
    }

    /// Writes that are removed again, with a number that no read may return.
    fn roll_back_writes(&self, tx: &Transaction, rng: &mut SimRng) -> Outcome {
        let savepoint = tx.savepoint();
        let content = Content { group: rng.below(GROUPS), writes: vec![self.next_write()] };
        tx.put(&self.records, any_key(rng).as_bytes(), &content.json()).map_err(failed)?;
        tx.delete_range(&self.records, "b0".."b9").map_err(failed)?;
        tx.rollback_to(&savepoint).map_err(failed)
    }

    fn read_key(
        &self,
        tx: &Transaction,
        steps: &mut Vec<TransactionStep>,
        key: String,
    ) -> Outcome<Option<Content>> {
        let found = tx.get(&self.records, key.as_bytes()).map_err(failed)?;
        let found = found.map(|record| Content::parse(&record)).transpose()?;
        steps.push(TransactionStep::Read(Read::Key { key, found: found.clone() }));
        Ok(found)
    }

    /// Reads a range of keys, from one end up to a random number of records.
    fn read_range(&self, tx: &Transaction, steps: &mut Vec<TransactionStep>, rng: &mut SimRng) -> Outcome {
        let (one, two) = (any_key(rng), any_key(rng));
        let (mut from, mut to) = if one < two { (one, two) } else { (two, one) };
        let (limit, backward) = (rng.below(8) as usize, rng.one_in(2));
        let mut found = Contents::new();
        let mut records = tx.range(&self.records, from.as_bytes()..to.as_bytes()).map_err(failed)?;
        while found.len() < limit {
            let Some(record) = (if backward { records.next_back() } else { records.next() }) else { break };
            let (key, record) = record.map_err(failed)?;
            found.insert(text(&key), Content::parse(&record)?);
        }
        if found.len() == limit {
            match (found.first_key_value(), found.last_key_value()) {
                (Some((first, _)), _) if backward => from.clone_from(first),
                (_, Some((last, _))) => to = format!("{last}\0"),
                _ => to.clone_from(&from),
            }
        }
        steps.push(TransactionStep::Read(Read::Range { from, to, found }));
        Ok(())
    }

    fn read_group(&self, tx: &Transaction, steps: &mut Vec<TransactionStep>, group: u64) -> Outcome {
        let query = Query::new().eq("g", group);
        let answers = tx.find(&self.records, &query).map_err(failed)?;
        let (count, length) = (tx.count(&self.records, &query).map_err(failed)?, answers.len() as u64);
        if count != length {
            return Err(format!("a query has {length} answers and counts {count}"));
        }
        let mut found = Contents::new();
        for answer in answers {
            let record = answer.record.ok_or("an answer has no record")?;
            found.insert(text(&answer.key), Content::parse(&record)?);
        }
        if found.len() as u64 != length {
            return Err(format!("{} a query returns a key twice: {found:?}", crate::rule::Rule::Isolated));
        }
        steps.push(TransactionStep::Read(Read::Group { group, found }));
        Ok(())
    }

    /// Writes outside of transactions to records that no other thread writes: puts and range deletes.
    fn write_single(&self, thread: usize, mut rng: SimRng) -> Outcome {
        let mut present: BTreeMap<String, Content> = BTreeMap::new();
        while !self.done.load(Ordering::Acquire) {
            let (start, snapshot) = (self.tick(), self.db.snapshot().sequence());
            let number = rng.below(SINGLE);
            let (commit, writes) = if rng.one_in(4) {
                let (from, to) = (format!("p{number}"), format!("p{}", number + 2));
                let mut batch = WriteBatch::new();
                batch.delete_range(&self.records, from.as_bytes()..to.as_bytes()).map_err(failed)?;
                let options = WriteOptions::default().sync(SyncMode::None);
                let commit = self.db.write_with(batch, &options).map_err(failed)?;
                let deleted: Vec<String> = present.range(from..to).map(|(key, _)| key.clone()).collect();
                deleted.iter().for_each(|key| drop(present.remove(key)));
                (commit, deleted.into_iter().map(|key| Written { key, content: None }).collect::<Vec<_>>())
            } else {
                let key = format!("p{number}");
                let content = Content { group: rng.below(GROUPS), writes: vec![self.next_write()] };
                self.records.put(key.as_bytes(), &content.json()).map_err(failed)?;
                let (commit, _) =
                    self.records.get_pinned(key.as_bytes()).map_err(failed)?.ok_or("a put is lost")?;
                present.insert(key.clone(), content.clone());
                (commit, vec![Written { key, content: Some(content) }])
            };
            let (end, commit) = (self.tick(), Some(commit));
            let steps = writes.into_iter().map(TransactionStep::Write).collect();
            self.lock().transactions.push(RecordedTransaction {
                thread,
                start,
                end,
                snapshot,
                commit,
                steps,
            });
            for _ in 0..rng.below(20) {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Transactions that read everything, and flushes.
    fn observe(&self, thread: usize, mut rng: SimRng) -> Outcome {
        while !self.done.load(Ordering::Acquire) {
            if rng.one_in(8) {
                self.db.flush().map_err(failed)?;
            }
            let start = self.tick();
            let tx = self.db.begin(TransactionOptions::default()).map_err(failed)?;
            let snapshot = tx.sequence();
            let mut found = Contents::new();
            for record in tx.iter(&self.records).map_err(failed)? {
                let (key, record) = record.map_err(failed)?;
                found.insert(text(&key), Content::parse(&record)?);
            }
            let commit = Some(tx.commit().map_err(failed)?);
            let end = self.tick();
            let read = Read::Range { from: String::new(), to: "~".to_owned(), found };
            let steps = vec![TransactionStep::Read(read)];
            self.lock().transactions.push(RecordedTransaction {
                thread,
                start,
                end,
                snapshot,
                commit,
                steps,
            });
            thread::yield_now();
        }
        Ok(())
    }

    /// Recovers copies of the disk after power cuts.
    fn cut_power(&self, cuts: u64, mut rng: SimRng) -> Outcome {
        for _ in 0..cuts {
            let due = self.clock.load(Ordering::Acquire) + rng.below(60);
            while self.clock.load(Ordering::Acquire) < due && !self.done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let synced = self.synced.load(Ordering::SeqCst);
            let disk = self.disk.clone_disk();
            let mode = rng.pick(&CrashMode::EACH).copied().unwrap_or(CrashMode::Random);
            let disk = disk.crash_with_seed(mode, rng.next_u64());
            let setup = Setup { threads: 0, ..self.setup };
            let db = setup.open(std::sync::Arc::new(disk), rng.next_u64()).map_err(failed)?;
            let report = db.check(true).map_err(failed)?;
            if !report.problems().is_empty() {
                return Err(format!("check: {:?}", report.problems()));
            }
            let found = dump(&db.collection("records").map_err(failed)?)?;
            self.lock().recovered.push(Recovered { synced, found });
        }
        Ok(())
    }
}

/// A key that some thread writes.
fn any_key(rng: &mut SimRng) -> String {
    let number = rng.below(SHARED);
    let family = rng.pick(&['a', 'a', 'b', 'p']).copied().unwrap_or('a');
    format!("{family}{number}")
}

fn dump(records: &Collection) -> Outcome<Contents> {
    let mut found = Contents::new();
    for record in records.iter().map_err(failed)? {
        let (key, record) = record.map_err(failed)?;
        found.insert(text(&key), Content::parse(&record)?);
    }
    Ok(found)
}
