//! The compared stores, their records and the operations on them (§5.2).
//!
//! Memtables, sstables and the block cache have the proportion to the data of the paper: a store has many partitions, and
//! most records are in files.

use std::time::{Duration, Instant};

use crate::data::keys::{KEY_BYTES, hexadecimal};
use crate::data::random::{Random, mix};
use crate::data::zipf::Zipf;
use crate::engine::{Access, Arrangement, Connection, Engine, Layout, Session, StoreSettings, Views};
use crate::engines;
use crate::error::Result;
use crate::figures::Scale;
use crate::measure::{process_cpu_nanos, read_bytes, settle, thread_cpu_nanos, written_bytes};

/// Operations of a batch, which is one transaction in a transactional store.
const BATCH: usize = 100;

/// A compared store and its arrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSubject {
    /// Its name in figures.
    pub name: &'static str,
    engine: &'static str,
    arrangement: Arrangement,
}

const fn bolide_subject(name: &'static str, layout: Layout, views: Views) -> StoreSubject {
    let arrangement = Arrangement { layout, views, view_tags: false, view_delay_percent: 0 };
    StoreSubject { name, engine: "bolide", arrangement }
}

/// The layout of the paper.
const PARTITIONS: Arrangement = PARTITIONED.arrangement;

/// One sorted run per level.
pub const LEVELED: StoreSubject = bolide_subject("leveled", Layout::Leveled, Views::Always);
/// Runs of similar size, which each reader merges.
pub const TIERED_MERGED: StoreSubject = bolide_subject("tiered, no view", Layout::Tiered, Views::Never);
/// Runs of similar size with a sorted view.
pub const TIERED: StoreSubject = bolide_subject("tiered", Layout::Tiered, Views::Always);
/// Levels of partitions.
pub const FRAGMENTED: StoreSubject = bolide_subject("fragmented", Layout::Fragmented, Views::Always);
/// One level of partitions: the layout of the paper.
pub const PARTITIONED: StoreSubject = bolide_subject("partitioned", Layout::Partitioned, Views::Always);

/// [`PARTITIONED`] with gets through views with tags, without Bloom filters.
pub const PARTITIONED_TAGS: StoreSubject = StoreSubject {
    name: "partitioned, tags",
    engine: "bolide",
    arrangement: Arrangement { view_tags: true, ..PARTITIONS },
};
/// [`PARTITIONED`] with deferred views: a view is rebuilt when a fifth of its data was rewritten.
pub const PARTITIONED_DELAYED: StoreSubject = StoreSubject {
    name: "partitioned, views delayed",
    engine: "bolide",
    arrangement: Arrangement { view_delay_percent: 20, ..PARTITIONS },
};

/// The subjects of Bolide.
pub const LAYOUTS: [StoreSubject; 7] =
    [PARTITIONED, PARTITIONED_TAGS, PARTITIONED_DELAYED, FRAGMENTED, TIERED, TIERED_MERGED, LEVELED];

/// The subjects of Bolide, and the other stores in a build with peers.
pub fn subjects() -> Vec<StoreSubject> {
    let peers = engines::store_names(true).into_iter().filter(|name| *name != "bolide");
    let arrangement = Arrangement::of(Layout::Leveled);
    LAYOUTS
        .into_iter()
        .chain(peers.map(|engine| StoreSubject { name: engine, engine, arrangement }))
        .collect()
}

/// Records numbered by the order of their keys.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// Their number.
    pub count: u64,
    /// Bytes of a value, at least 16.
    pub value_bytes: usize,
}

impl Records {
    /// The key of record `rank`.
    pub fn key(&self, rank: u64) -> [u8; KEY_BYTES] {
        hexadecimal(rank * (u64::MAX / self.count.max(1)))
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.count * (KEY_BYTES + self.value_bytes) as u64
    }

    /// All ranks in random order.
    pub fn shuffled(&self, seed: u64) -> Vec<u64> {
        let (mut ranks, mut random) = ((0..self.count).collect::<Vec<_>>(), Random::new(seed));
        for at in (1..ranks.len()).rev() {
            ranks.swap(at, random.below(at as u64 + 1) as usize);
        }
        ranks
    }

    fn value(&self, rank: u64, version: u64) -> Vec<u8> {
        let mut value: Vec<u8> = (0..self.value_bytes as u64).map(|at| mix(at) as u8).collect();
        write_head(&mut value, rank, version);
        value
    }
}

fn write_head(value: &mut [u8], rank: u64, version: u64) {
    value[..8].copy_from_slice(&rank.to_le_bytes());
    value[8..16].copy_from_slice(&version.to_le_bytes());
}

/// The order of the records that are read or written.
#[derive(Debug, Clone)]
pub enum AccessPattern {
    /// In key order from this rank on.
    Sequential(u64),
    /// All with the same probability.
    Uniform,
    /// By a Zipf distribution with exponent 0.99, scattered over the key space.
    Zipf(Zipf),
    /// Groups of so many neighbours by a Zipf distribution, uniform within a group: Zipf-composite.
    Composite(Zipf, u64),
}

/// Records of a group, in the proportion to a partition of the paper.
const GROUP_RECORDS: u64 = 128;

impl AccessPattern {
    /// The Zipf pattern over `records`.
    pub fn zipf(records: &Records) -> Self {
        Self::Zipf(Zipf::new(records.count))
    }

    /// The Zipf-composite pattern over `records`.
    pub fn composite(records: &Records) -> Self {
        Self::Composite(Zipf::new((records.count / GROUP_RECORDS).max(1)), GROUP_RECORDS)
    }

    /// The rank of the next record.
    pub fn next(&mut self, records: &Records, random: &mut Random) -> u64 {
        match self {
            Self::Sequential(at) => {
                *at += 1;
                (*at - 1) % records.count
            }
            Self::Uniform => random.below(records.count),
            Self::Zipf(zipf) => zipf.scattered(random, records.count),
            Self::Composite(zipf, group) => {
                let groups = (records.count / *group).max(1);
                let first = zipf.scattered(random, groups) * *group;
                (first + random.below(*group)) % records.count
            }
        }
    }
}

/// The costs of writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteCosts {
    /// CPU microseconds of a put, calling thread.
    pub calling: f64,
    /// CPU microseconds of a put, whole process, including the background work that follows.
    pub whole: f64,
    /// Puts a second of wall time, until the background work ended.
    pub rate: f64,
    /// Bytes written for each byte put, the log included.
    pub written: f64,
    /// Bytes read for each byte put.
    pub read: f64,
}

/// An open store.
pub struct SubjectStore {
    // Declared before the folder, which is removed at its drop.
    engine: Box<dyn Engine>,
    _folder: tempfile::TempDir,
}

/// Bytes of the data for each byte of the memtable, and of the memtable for each byte of an sstable.
const DATA_PER_MEMTABLE: u64 = 32;
const MEMTABLE_PER_FILE: u64 = 4;

impl SubjectStore {
    /// An empty store sized for `records`, with `cache_bytes` of cache.
    pub fn create(scale: &Scale, subject: StoreSubject, records: &Records, cache_bytes: u64) -> Result<Self> {
        let folder = super::folder(scale)?;
        let memtable_bytes = (records.bytes() / DATA_PER_MEMTABLE).max(64 << 10);
        let settings = StoreSettings {
            arrangement: subject.arrangement,
            cache_bytes: cache_bytes as usize,
            memtable_bytes: memtable_bytes as usize,
            file_bytes: Some(memtable_bytes / MEMTABLE_PER_FILE),
        };
        let engine = engines::open_store(subject.engine, folder.path(), &settings)?;
        Ok(Self { engine, _folder: folder })
    }

    /// Access for this thread.
    pub fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        self.engine.connect()
    }

    /// Runs `body`, which puts `user_bytes` in `puts` puts, and waits for the background work that follows.
    pub fn measure_writes(
        &self,
        puts: u64,
        user_bytes: u64,
        body: impl FnOnce(&mut dyn Connection) -> Result<()>,
    ) -> Result<WriteCosts> {
        let mut connection = self.connect()?;
        let written = || written_bytes() + self.engine.mapped_bytes();
        let (before_written, before_read) = (written(), read_bytes());
        let (whole, calling, clock) = (process_cpu_nanos(), thread_cpu_nanos(), Instant::now());
        body(&mut *connection)?;
        let calling = thread_cpu_nanos() - calling;
        // Far above the duration of the background work.
        let limit = Duration::from_micros(100 * puts).max(Duration::from_millis(100));
        let settled = settle(limit);
        let seconds = clock.elapsed().as_secs_f64() - if settled < limit { IDLE_SECONDS } else { 0.0 };
        let each = |nanos: u64| nanos as f64 / 1000.0 / puts.max(1) as f64;
        let amplified = |bytes: u64| bytes as f64 / user_bytes.max(1) as f64;
        Ok(WriteCosts {
            calling: each(calling),
            whole: each(process_cpu_nanos() - whole),
            rate: puts as f64 / seconds.max(1e-6),
            written: amplified(written() - before_written),
            read: amplified(read_bytes() - before_read),
        })
    }

    /// Puts the records of the next `puts` ranks.
    pub fn put_all(
        &self,
        records: &Records,
        puts: u64,
        ranks: impl Iterator<Item = u64>,
        version: u64,
    ) -> Result<WriteCosts> {
        let mut value = records.value(0, 0);
        let mut ranks = ranks.take(puts as usize).peekable();
        let user_bytes = puts * (KEY_BYTES + records.value_bytes) as u64;
        self.measure_writes(puts, user_bytes, |connection| {
            while ranks.peek().is_some() {
                connection.batch(Access::Write, &mut |session| {
                    for rank in ranks.by_ref().take(BATCH) {
                        write_head(&mut value, rank, version);
                        session.put(&records.key(rank), &value)?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })
    }
}

/// Seconds that `settle` needs to detect an idle process.
const IDLE_SECONDS: f64 = 0.36;

/// Seeks to records by `pattern` and reads `length` records from each. Returns CPU microseconds of an operation, calling
/// thread.
///
/// # Errors
/// Those of the store, and a wrong answer.
pub fn scan(
    connection: &mut dyn Connection,
    records: &Records,
    pattern: &mut AccessPattern,
    random: &mut Random,
    (operations, length): (usize, usize),
) -> Result<f64> {
    let mut buffer = Vec::with_capacity(length * (KEY_BYTES + records.value_bytes));
    let started = thread_cpu_nanos();
    let mut left = operations;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        connection.batch(Access::Read, &mut |session| {
            for _ in 0..batch {
                let rank = pattern.next(records, random);
                scan_from(session, records, rank, length, &mut buffer)?;
            }
            Ok(())
        })?;
    }
    Ok((thread_cpu_nanos() - started) as f64 / 1000.0 / operations.max(1) as f64)
}

/// Reads `length` records from record `rank` on, copies them, and checks their number and the first and last record.
fn scan_from(
    session: &mut dyn Session,
    records: &Records,
    rank: u64,
    length: usize,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    buffer.clear();
    let count = session.scan(&records.key(rank), length, &mut |key, value| {
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
    })?;
    let expected = (records.count - rank).min(length as u64);
    let each = KEY_BYTES + records.value_bytes;
    let is_right = |number: u64| {
        let at = number as usize * each;
        let bytes = buffer.get(at..at + each).unwrap_or_default();
        let rank = rank + number;
        bytes.get(..KEY_BYTES) == Some(&records.key(rank)[..])
            && bytes.get(KEY_BYTES..KEY_BYTES + 8) == Some(&rank.to_le_bytes()[..])
    };
    if count as u64 != expected || !is_right(0) || !is_right(expected - 1) {
        return Err(
            format!("a scan of {length} from record {rank} returned {count} records, or wrong ones").into()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_within_the_records_and_have_their_skew() {
        let records = Records { count: 10_000, value_bytes: 16 };
        let mut random = Random::new(3);
        let mut counted = |mut pattern: AccessPattern| {
            let mut counts = vec![0u32; 10_000];
            for _ in 0..20_000 {
                counts[pattern.next(&records, &mut random) as usize] += 1;
            }
            counts.sort_unstable();
            counts.last().copied().unwrap_or_default()
        };
        assert_eq!(counted(AccessPattern::Sequential(7)), 2);
        let (uniform, zipf) = (counted(AccessPattern::Uniform), counted(AccessPattern::zipf(&records)));
        let composite = counted(AccessPattern::composite(&records));
        assert!(uniform < 20 && zipf > 1000, "{uniform}, {zipf}");
        assert!(composite > uniform && composite < zipf / 4, "{composite}");
    }

    #[test]
    fn keys_ascend_with_the_rank_and_shuffled_contains_every_rank() {
        let records = Records { count: 1000, value_bytes: 16 };
        assert!((1..1000).all(|rank| records.key(rank - 1) < records.key(rank)));
        let mut ranks = records.shuffled(5);
        assert_ne!(ranks, (0..1000).collect::<Vec<_>>());
        ranks.sort_unstable();
        assert_eq!(ranks, (0..1000).collect::<Vec<_>>());
    }
}
