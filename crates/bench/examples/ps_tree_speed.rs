//! The speed and the size of a PS-Tree alone, without a log and records (Perseid §5.2): inserts without and with a version
//! table, updates, which need a version table, and a sweep after them.
//!
//! ```text
//! cargo run --release -p bolide-bench --example ps_tree_speed -- [primary keys] [secondary keys] [page bytes] [btree|trie]
//! ```
//!
//! Prints CPU time of the calling thread for an operation, in microseconds.

use std::sync::{Arc, Mutex};

use bolide_base::{Result, SequenceNumber};
use bolide_index::Order;
use bolide_index::Verdict;
use bolide_index::ps_tree::{Obsolescence, PsBounds, PsTree, PsTreeOptions, RetainAll, SkeyKind};
use bolide_index::version_table::{VersionTable, VersionTableOptions};
use bolide_storage::pmem::{Region, RegionOptions, RegionWriter};
use bolide_storage::{Runtime, SystemRuntime};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The Zipf distribution over ranks, after Gray et al.
struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let all = zeta(count);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / all);
        Self { count: count as f64, theta, zeta: all, eta }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let uniform = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        (self.count * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta))) as u64
    }
}

/// A version table with the calls of an index.
struct Versions {
    table: VersionTable,
    /// Primary keys of entries that were removed without a flag.
    removed: Mutex<Vec<Vec<u8>>>,
}

impl Versions {
    fn new(region: &Arc<Region>) -> Result<Self> {
        let options = VersionTableOptions { seed: 7, ..VersionTableOptions::default() };
        Ok(Self { table: VersionTable::create(region, options)?, removed: Mutex::default() })
    }

    /// Adds a write to the version table, after the entries that its insert removed.
    fn note(&self, writer: &RegionWriter<'_>, primary_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.apply_removals(writer)?;
        self.table.note_entry(writer, primary_key, sequence)
    }

    /// Passes the removed entries to the version table.
    fn apply_removals(&self, writer: &RegionWriter<'_>) -> Result<()> {
        let removed = std::mem::take(&mut *self.removed.lock().expect("no panic"));
        removed.iter().try_for_each(|key| self.table.note_flagged(writer, key))
    }

    fn print(&self, live: u64) {
        let stats = self.table.stats();
        println!(
            "  version table: {} keys, {:.1} bytes a live record, its filter {:.1}",
            stats.keys,
            stats.table_bytes as f64 / live as f64,
            stats.filter_bytes as f64 / live as f64
        );
    }
}

impl Obsolescence for Versions {
    fn verdict(
        &self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        oldest_in_use: SequenceNumber,
    ) -> Verdict {
        self.table.verdict(primary_key, sequence, oldest_in_use).unwrap_or(Verdict::Unknown)
    }

    fn prefetch(&self, primary_key: &[u8]) {
        self.table.prefetch(primary_key);
    }

    fn may_have_obsolete(&self) -> bool {
        self.table.stats().keys > 0
    }

    fn removed(&self, primary_key: &[u8], _: SequenceNumber, flagged: bool) {
        if !flagged {
            self.removed.lock().expect("no panic").push(primary_key.to_vec());
        }
    }
}

/// A secondary key: eight bytes, scattered over the whole key space.
fn secondary_key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// A primary key, scattered over the whole key space in another order.
fn primary_key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()
}

/// Chooses a secondary key.
type Draw<'d> = &'d dyn Fn(&mut Random) -> u64;

struct Run {
    clock: SystemRuntime,
    region: Arc<Region>,
    tree: PsTree,
    secondary: u64,
}

impl Run {
    fn time(&self, label: &str, operations: u64, mut operation: impl FnMut(u64) -> u64) {
        let start = self.clock.thread_cpu_micros();
        let rows: u64 = (0..operations).map(&mut operation).sum();
        let micros = self.clock.thread_cpu_micros() - start;
        println!(
            "  {label:<28} {:>8.3} us   {:>7.1} rows",
            micros as f64 / operations as f64,
            rows as f64 / operations as f64
        );
    }

    fn lookups(&self, draw: Draw<'_>) {
        for limit in [10, 200] {
            let mut random = Random(99);
            self.time(&format!("newest {limit}"), 200_000, |_| {
                let key = secondary_key(draw(&mut random));
                let mut cursor =
                    self.tree.cursor(PsBounds::One(&key), Order::Newest, u64::MAX).expect("a cursor");
                let mut rows = 0;
                while rows < limit && cursor.next_entry().expect("an entry").is_some() {
                    rows += 1;
                }
                rows
            });
        }
        let mut random = Random(98);
        self.time("range of 20 keys x 5", 100_000, |_| {
            let low = secondary_key(random.below(self.secondary));
            let range = PsBounds::Range { low: &low, end: None };
            let mut cursor = self.tree.cursor(range, Order::Value, u64::MAX).expect("a cursor");
            let mut rows = 0;
            for _ in 0..20 {
                for _ in 0..5 {
                    rows += u64::from(cursor.next_entry().expect("an entry").is_some());
                }
                cursor.skip_key();
            }
            rows
        });
    }

    /// The sweep of an idle index.
    fn sweep(&self, versions: &Versions, newest: SequenceNumber) {
        let mut position = Vec::new();
        self.time("idle sweep, per write", newest, |index| {
            if index == 0 || !position.is_empty() {
                let writer = self.region.writer();
                self.tree.sweep(&writer, &mut position, 512, versions, newest).expect("a sweep");
                versions.apply_removals(&writer).expect("a note");
            }
            0
        });
    }

    fn space(&self, live: u64) {
        let stats = self.tree.stats().expect("statistics");
        let region = self.region.stats();
        println!(
            "  {} keys, {} entries, {} rewrites; head pages {} MB, {:.1} % filled, sealed {} MB in {}, nodes {} MB, \
             records {} MB, garbage {} MB",
            stats.skey.keys,
            stats.entries,
            stats.rewrites,
            stats.head_page_bytes >> 20,
            stats.filled_bytes as f64 * 100.0 / (stats.head_page_bytes + stats.sealed_page_bytes) as f64,
            stats.sealed_page_bytes >> 20,
            stats.sealed_pages,
            stats.skey.node_bytes >> 20,
            stats.skey.record_bytes >> 20,
            stats.garbage_bytes() >> 20,
        );
        println!(
            "  {:.1} bytes a live record ({:.1} allocated, height {})",
            stats.total_bytes() as f64 / live as f64,
            region.allocated_bytes as f64 / live as f64,
            stats.skey.height
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (primary, secondary, page_bytes) = (number(5_000_000), number(200_000), number(2048) as usize);
    let skey = match std::env::args().nth(4).as_deref() {
        Some("trie") => SkeyKind::Trie,
        _ => SkeyKind::BTree,
    };
    let zipf = Zipf::new(secondary, 0.99);
    let uniform = |random: &mut Random| random.below(secondary);
    let skewed = |random: &mut Random| zipf.draw(random);
    let workloads: [(&str, bool, bool, Draw<'_>); 4] = [
        ("inserts only, without a version table", false, false, &uniform),
        ("inserts only", false, true, &uniform),
        ("uniform upserts", true, true, &uniform),
        ("skewed secondary keys", true, true, &skewed),
    ];
    for (name, upserts, has_versions, draw) in workloads {
        println!(
            "{name}: {primary} primary keys, {secondary} secondary keys, {skey:?}, pages of {page_bytes}"
        );
        let options = RegionOptions::new().name("speed").limit_bytes(16 << 30);
        let region = Arc::new(Region::in_memory(options).expect("a region"));
        let tree =
            PsTree::create(Arc::clone(&region), PsTreeOptions::new().skey(skey).page_bytes(page_bytes))
                .expect("a tree");
        let versions = has_versions.then(|| Versions::new(&region).expect("a version table"));
        let run = Run { clock: SystemRuntime::new(), region, tree, secondary };
        let mut random = Random(7);
        let writes = if upserts { 2 * primary } else { primary };
        let mut is_live = vec![!upserts; primary as usize];
        run.time("put", writes, |index| {
            let key = secondary_key(draw(&mut random));
            let record = if upserts { random.below(primary) } else { index };
            is_live[record as usize] = true;
            let (primary_key, sequence) = (primary_key(record), index + 1);
            let obsolescence: &dyn Obsolescence = match &versions {
                Some(versions) => versions,
                None => &RetainAll,
            };
            let writer = run.region.writer();
            run.tree
                .insert(&writer, &key, &primary_key, sequence, b"", obsolescence, sequence)
                .expect("an insert");
            if let Some(versions) = &versions {
                versions.note(&writer, &primary_key, sequence).expect("a note");
            }
            0
        });
        run.lookups(draw);
        let live = is_live.iter().filter(|live| **live).count() as u64;
        run.space(live);
        if let Some(versions) = &versions {
            versions.print(live);
            if upserts {
                run.sweep(versions, writes);
                run.space(live);
                versions.print(live);
                run.lookups(draw);
            }
        }
    }
}
