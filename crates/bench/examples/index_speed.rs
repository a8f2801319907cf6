//! The cost of a composite index on a store on disk, without the layers above: CPU time of the calling thread per operation.
//!
//! `cargo run --release -p bolide-bench --example index_speed -- [records] [directory]`
//!
//! JSON records of 300 bytes, 25 for each secondary key; a quarter of them is updated to another secondary key. Each kind of
//! maintenance has a separate store. Medians of 5 rounds.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_index::{
    AttributeExtractor, AttributePlan, AttributeValues, CompositeIndex, IndexWrites, IndexedRecord,
    JsonExtractor, Lookup, LookupOptions, Query, SecondaryIndex, StagedBatch, StagedChange,
};
use bolide_lsm::{
    CommitStage, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{DiskVfs, Runtime, SystemRuntime};
use bolide_table::BlockCache;

struct DerivedWrites<'b>(&'b mut StoreBatch);

impl IndexWrites for DerivedWrites<'_> {
    fn set_sequence(&mut self, _sequence: u64) {}

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.merge_derived(tree, key, value)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        self.0.put_derived(tree, key, value, sequence_at)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.0.delete_derived(tree, key)
    }
}

struct StagedWrites<'b>(&'b mut StoreBatch, SequenceNumber);

impl IndexWrites for StagedWrites<'_> {
    fn set_sequence(&mut self, sequence: u64) {
        self.1 = sequence;
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.merge_at(tree, key, value, self.1)
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], _: Option<usize>) -> Result<()> {
        self.0.put_at(tree, key, value, self.1)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.0.delete_at(tree, key, self.1)
    }
}

/// Passes the old record to the index.
struct OldRecordStage {
    table: TreeId,
    index: Arc<CompositeIndex>,
    plan: Arc<AttributePlan>,
    key: [u8; 8],
}

impl CommitStage for OldRecordStage {
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        let Some((sequence, record)) = view.get(self.table, &self.key)? else {
            return Ok(());
        };
        let mut values = AttributeValues::new();
        JsonExtractor.extract(&record, &self.plan, &mut values)?;
        let old =
            IndexedRecord { primary_key: &self.key, sequence: Some(sequence), values: &values, slots: &[0] };
        let own = batch.first_sequence();
        let change = StagedChange { sequence: own, old: Some(old), new: None };
        let staged = StagedBatch { table: self.table, changes: &[change], deleted: &[] };
        self.index.stage(&staged, view, &mut Vec::new(), &mut StagedWrites(batch, own))
    }
}

fn scramble(number: u64) -> u64 {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 3
}

struct SpeedWorkload {
    store: Store,
    table: TreeId,
    index: Arc<CompositeIndex>,
    plan: Arc<AttributePlan>,
    runtime: Arc<SystemRuntime>,
    users: u64,
    synchronous: bool,
}

impl SpeedWorkload {
    fn open(dir: &str, records: u64, synchronous: bool) -> Result<Self> {
        let _ = std::fs::remove_dir_all(dir);
        let runtime = Arc::new(SystemRuntime::default());
        let components = StoreComponents {
            vfs: Arc::new(DiskVfs::default()),
            runtime: runtime.clone(),
            cache: BlockCache::new(1 << 30),
        };
        let store = Store::open(StoreOptions::new(dir), components)?;
        let table = store.create_tree(TreeOptions::default(), b"")?;
        let tree = store.create_tree(TreeOptions::default(), b"")?;
        let maintenance = if synchronous { "synchronous" } else { "validation" };
        let spec = format!("user:composite:maintenance={maintenance}").parse()?;
        let index = Arc::new(CompositeIndex::new(spec, tree));
        let plan = Arc::new(AttributePlan::new(["user".parse()?]));
        Ok(Self { store, table, index, plan, runtime, users: records / 25, synchronous })
    }

    fn put(
        &self,
        number: u64,
        version: u64,
        values: &mut AttributeValues,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let key = scramble(number).to_be_bytes();
        let user = scramble(number * 7 + version) % self.users;
        let record = format!(
            "{{\"id\":{number},\"user\":\"u{user:08}\",\"version\":{version},\"title\":\"{}\",\"score\":{},\"over_18\":false}}",
            "What a title of this length looks like, and so on; ".repeat(4),
            number % 1000
        );
        let mut batch = StoreBatch::with_capacity(record.len() + 100);
        batch.put(self.table, &key, record.as_bytes())?;
        JsonExtractor.extract(record.as_bytes(), &self.plan, values)?;
        let indexed = IndexedRecord { primary_key: &key, sequence: None, values, slots: &[0] };
        SecondaryIndex::<ReadView>::derive(&*self.index, &indexed, scratch, &mut DerivedWrites(&mut batch))?;
        let stage = self.synchronous.then(|| {
            let (index, plan) = (self.index.clone(), self.plan.clone());
            Box::new(OldRecordStage { table: self.table, index, plan, key }) as Box<dyn CommitStage>
        });
        self.store.commit(batch, stage, SyncMode::None).map(drop)
    }

    fn run_query(&self, round: u64, query: impl Fn(Query) -> Query) -> Result<u64> {
        let user = format!("u{:08}", scramble(round) % self.users);
        let query = query(Query::new().eq("user", user));
        let view = self.store.read_view();
        let lookup = Lookup {
            view: &view,
            table: self.table,
            extractor: Some(&JsonExtractor),
            indexes: &[&*self.index],
            options: LookupOptions::default(),
        };
        let explain = lookup.run(&query, |row| {
            black_box((row.primary_key, row.record.as_deref()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(explain.answers)
    }

    fn measure(&self, records: u64) -> Result<()> {
        let report =
            |name: &str, nanos: f64, note: &str| println!("  {name:28} {:8.2} µs  {note}", nanos / 1000.0);
        let (mut values, mut scratch) = (AttributeValues::new(), Vec::new());
        let started = self.runtime.thread_cpu_micros();
        for number in 0..records {
            self.put(number, 0, &mut values, &mut scratch)?;
        }
        let inserted = self.runtime.thread_cpu_micros();
        report(
            "insert",
            (inserted - started) as f64 * 1000.0 / records as f64,
            "including generation of the record",
        );
        for number in 0..records / 4 {
            self.put(number * 4, 1, &mut values, &mut scratch)?;
        }
        let updated = self.runtime.thread_cpu_micros();
        report("update", (updated - inserted) as f64 * 4000.0 / records as f64, "");
        self.store.wait_until_settled()?;
        type Make = fn(Query) -> Query;
        let queries: [(&str, Make); 4] = [
            ("newest 10, keys only", |query| query.limit(10).keys_only()),
            ("all, keys only", Query::keys_only),
            ("newest 10, records", |query| query.limit(10)),
            ("all, records", |query| query),
        ];
        for (name, make) in queries {
            let count = 10_000;
            let mut rounds: Vec<(f64, u64)> = Vec::new();
            for _ in 0..5 {
                let started = self.runtime.thread_cpu_micros();
                let mut answers = 0;
                for round in 0..count {
                    answers += self.run_query(round, make)?;
                }
                let nanos = (self.runtime.thread_cpu_micros() - started) as f64 * 1000.0 / count as f64;
                rounds.push((nanos, answers));
            }
            rounds.sort_by(|left, right| left.0.total_cmp(&right.0));
            let (nanos, answers) = rounds[rounds.len() / 2];
            report(name, nanos, &format!("{:.1} answers", answers as f64 / count as f64));
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let dir = arguments.next().unwrap_or_else(|| "/tmp/bolide-index-speed".into());
    for synchronous in [false, true] {
        println!("maintenance={}", if synchronous { "synchronous" } else { "validation" });
        SpeedWorkload::open(&dir, records.max(100), synchronous)?.measure(records.max(100))?;
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
