//! Whole stores that are compared, what they hold and the operations on them (§5.2).
//!
//! Memtables, sstables and the block cache are as small beside the data as in the paper, so that a store has many
//! partitions and most of it lies in files.

use std::time::{Duration, Instant};

use crate::data::keys::{KEY_BYTES, hexadecimal};
use crate::data::random::{Random, mix};
use crate::data::zipf::Zipf;
use crate::engine::{Access, Arrangement, Connection, Engine, Layout, Session, Setting, Views};
use crate::engines;
use crate::error::Result;
use crate::figures::Scale;
use crate::measure::{process_cpu_nanos, read_bytes, settle, thread_cpu_nanos, written_bytes};

/// Operations in one transaction of the stores that work by transactions.
const BATCH: usize = 100;

/// One of those that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Its name in figures.
    pub name: &'static str,
    engine: &'static str,
    arrangement: Arrangement,
}

const fn of_bolide(name: &'static str, layout: Layout, views: Views) -> Subject {
    let arrangement = Arrangement { layout, views, view_tags: false, view_delay_percent: 0 };
    Subject { name, engine: "bolide", arrangement }
}

/// The layout of the paper.
const PARTITIONS: Arrangement = PARTITIONED.arrangement;

/// One run a level.
pub const LEVELED: Subject = of_bolide("leveled", Layout::Leveled, Views::Always);
/// Runs of similar size, merged by each reader.
pub const TIERED_MERGED: Subject = of_bolide("tiered, no view", Layout::Tiered, Views::Never);
/// The same, read through a sorted view.
pub const TIERED: Subject = of_bolide("tiered", Layout::Tiered, Views::Always);
/// Levels of partitions.
pub const FRAGMENTED: Subject = of_bolide("fragmented", Layout::Fragmented, Views::Always);
/// One level of partitions: the layout of the paper.
pub const PARTITIONED: Subject = of_bolide("partitioned", Layout::Partitioned, Views::Always);

/// The same, gets through views with tags.
pub const PARTITIONED_TAGS: Subject = Subject {
    name: "partitioned, tags",
    engine: "bolide",
    arrangement: Arrangement { view_tags: true, ..PARTITIONS },
};
/// The same as [`PARTITIONED`], its views renewed when a fifth of what they have was written.
pub const PARTITIONED_DELAYED: Subject = Subject {
    name: "partitioned, views delayed",
    engine: "bolide",
    arrangement: Arrangement { view_delay_percent: 20, ..PARTITIONS },
};

/// Those of Bolide.
pub const LAYOUTS: [Subject; 7] =
    [PARTITIONED, PARTITIONED_TAGS, PARTITIONED_DELAYED, FRAGMENTED, TIERED, TIERED_MERGED, LEVELED];

/// Those of Bolide, and other stores where this build has them.
pub fn subjects() -> Vec<Subject> {
    let peers = engines::store_names(true).into_iter().filter(|name| *name != "bolide");
    let arrangement = Arrangement::of(Layout::Leveled);
    LAYOUTS.into_iter().chain(peers.map(|engine| Subject { name: engine, engine, arrangement })).collect()
}

/// Records numbered by the order of their keys.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// How many there are.
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

/// The records that are read or written, one after the other.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// In key order, beginning somewhere.
    Sequential(u64),
    /// All alike.
    Uniform,
    /// By popularity, exponent 0.99, scattered over all keys.
    Zipf(Zipf),
    /// Groups of this many neighbours by popularity, each of their records alike: Zipf-composite.
    Composite(Zipf, u64),
}

/// Neighbours that share the popular part of their key: as many, beside a partition, as in the paper.
const GROUP: u64 = 128;

impl Pattern {
    /// By popularity among `records`.
    pub fn zipf(records: &Records) -> Self {
        Self::Zipf(Zipf::new(records.count))
    }

    /// By popularity of groups of neighbours.
    pub fn composite(records: &Records) -> Self {
        Self::Composite(Zipf::new((records.count / GROUP).max(1)), GROUP)
    }

    /// The next record.
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

/// What writing cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wrote {
    /// CPU microseconds of a put, calling thread.
    pub calling: f64,
    /// The same of the process, with the background work that was left behind.
    pub whole: f64,
    /// Puts a second by the clock, until that work had ended.
    pub rate: f64,
    /// Bytes written for each byte put, the log included.
    pub written: f64,
    /// Bytes read for each byte put.
    pub read: f64,
}

/// A store, open.
pub struct Store {
    // Before the folder, which goes when it is dropped.
    engine: Box<dyn Engine>,
    _folder: tempfile::TempDir,
}

/// How much smaller than the data memtables are, and sstables than these.
const MEMTABLE_PART: u64 = 32;
const FILE_PART: u64 = 4;

impl Store {
    /// An empty one, for `records` and with `cache_bytes` of cache.
    pub fn create(scale: &Scale, subject: Subject, records: &Records, cache_bytes: u64) -> Result<Self> {
        let folder = super::folder(scale)?;
        let memtable_bytes = (records.bytes() / MEMTABLE_PART).max(64 << 10);
        let setting = Setting {
            arrangement: subject.arrangement,
            cache_bytes: cache_bytes as usize,
            memtable_bytes: memtable_bytes as usize,
            file_bytes: Some(memtable_bytes / FILE_PART),
        };
        let engine = engines::open_store(subject.engine, folder.path(), &setting)?;
        Ok(Self { engine, _folder: folder })
    }

    /// Access for this thread.
    pub fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        self.engine.connect()
    }

    /// Runs `body`, which puts `user_bytes` in `puts` puts, and waits for what it leaves behind.
    pub fn measure_writes(
        &self,
        puts: u64,
        user_bytes: u64,
        body: impl FnOnce(&mut dyn Connection) -> Result<()>,
    ) -> Result<Wrote> {
        let mut connection = self.connect()?;
        let written = || written_bytes() + self.engine.mapped_bytes();
        let (before_written, before_read) = (written(), read_bytes());
        let (whole, calling, clock) = (process_cpu_nanos(), thread_cpu_nanos(), Instant::now());
        body(&mut *connection)?;
        let calling = thread_cpu_nanos() - calling;
        // Far more than the work behind puts takes.
        let limit = Duration::from_micros(100 * puts).max(Duration::from_millis(100));
        let settled = settle(limit);
        let seconds = clock.elapsed().as_secs_f64() - if settled < limit { QUIET } else { 0.0 };
        let each = |nanos: u64| nanos as f64 / 1000.0 / puts.max(1) as f64;
        let amplified = |bytes: u64| bytes as f64 / user_bytes.max(1) as f64;
        Ok(Wrote {
            calling: each(calling),
            whole: each(process_cpu_nanos() - whole),
            rate: puts as f64 / seconds.max(1e-6),
            written: amplified(written() - before_written),
            read: amplified(read_bytes() - before_read),
        })
    }

    /// Puts the records with the next `puts` of `ranks`.
    pub fn put_all(
        &self,
        records: &Records,
        puts: u64,
        ranks: impl Iterator<Item = u64>,
        version: u64,
    ) -> Result<Wrote> {
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

/// Seconds that it takes to see that a process rests.
const QUIET: f64 = 0.36;

/// Seeks to records by `pattern` and reads `length` records from each. CPU microseconds of one, of the calling thread.
///
/// # Errors
/// Those of the store; a wrong answer is an error.
pub fn scan(
    connection: &mut dyn Connection,
    records: &Records,
    pattern: &mut Pattern,
    random: &mut Random,
    (operations, length): (usize, usize),
) -> Result<f64> {
    let mut copied = Vec::with_capacity(length * (KEY_BYTES + records.value_bytes));
    let started = thread_cpu_nanos();
    let mut left = operations;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        connection.batch(Access::Read, &mut |session| {
            for _ in 0..batch {
                let rank = pattern.next(records, random);
                scan_from(session, records, rank, length, &mut copied)?;
            }
            Ok(())
        })?;
    }
    Ok((thread_cpu_nanos() - started) as f64 / 1000.0 / operations.max(1) as f64)
}

/// Reads `length` records from record `rank` on and copies them. They must be all that there are, the first that
/// record and the last the right one.
fn scan_from(
    session: &mut dyn Session,
    records: &Records,
    rank: u64,
    length: usize,
    copied: &mut Vec<u8>,
) -> Result<()> {
    copied.clear();
    let count = session.scan(&records.key(rank), length, &mut |key, value| {
        copied.extend_from_slice(key);
        copied.extend_from_slice(value);
    })?;
    let expected = (records.count - rank).min(length as u64);
    let each = KEY_BYTES + records.value_bytes;
    let is_right = |number: u64| {
        let at = number as usize * each;
        let bytes = copied.get(at..at + each).unwrap_or_default();
        let rank = rank + number;
        bytes.get(..KEY_BYTES) == Some(&records.key(rank)[..])
            && bytes.get(KEY_BYTES..KEY_BYTES + 8) == Some(&rank.to_le_bytes()[..])
    };
    if count as u64 != expected || !is_right(0) || !is_right(expected - 1) {
        return Err(format!("a scan of {length} from record {rank} brought {count} that do not fit").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_among_the_records_and_are_as_skewed_as_declared() {
        let records = Records { count: 10_000, value_bytes: 16 };
        let mut random = Random::new(3);
        let mut counted = |mut pattern: Pattern| {
            let mut counts = vec![0u32; 10_000];
            for _ in 0..20_000 {
                counts[pattern.next(&records, &mut random) as usize] += 1;
            }
            counts.sort_unstable();
            counts.last().copied().unwrap_or_default()
        };
        assert_eq!(counted(Pattern::Sequential(7)), 2);
        let (uniform, zipf) = (counted(Pattern::Uniform), counted(Pattern::zipf(&records)));
        let composite = counted(Pattern::composite(&records));
        assert!(uniform < 20 && zipf > 1000, "{uniform}, {zipf}");
        assert!(composite > uniform && composite < zipf / 4, "{composite}");
    }

    #[test]
    fn keys_rise_with_the_rank_and_all_ranks_are_shuffled() {
        let records = Records { count: 1000, value_bytes: 16 };
        assert!((1..1000).all(|rank| records.key(rank - 1) < records.key(rank)));
        let mut ranks = records.shuffled(5);
        assert_ne!(ranks, (0..1000).collect::<Vec<_>>());
        ranks.sort_unstable();
        assert_eq!(ranks, (0..1000).collect::<Vec<_>>());
    }
}
