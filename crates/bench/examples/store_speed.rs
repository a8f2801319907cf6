//! The cost of a store without the layers above it: CPU time of the calling thread per operation, or instructions under
//! `valgrind --tool=callgrind --toggle-collect='*scan_all*'`.
//!
//! `cargo run --release -p bolide-bench --example store_speed -- [entries] [directory] [layout] [MiB of a memtable] [scans]`
//!
//! The environment variable `MAP_LOG` maps the log. With 0 scans only the load is measured.

use std::sync::Arc;

use bolide_base::{Error, Result, TreeId};
use bolide_lsm::{Bounds, Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{DiskVfs, Runtime, SystemRuntime};
use bolide_table::{BlockCache, Compression};

fn scrambled(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[..8].copy_from_slice(&(word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let entries: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let dir = arguments.next().unwrap_or_else(|| "/tmp/bolide-store-speed".into());
    let _ = std::fs::remove_dir_all(&dir);
    let maps_log = std::env::var_os("MAP_LOG").is_some();
    let runtime = Arc::new(SystemRuntime::default());
    let components = StoreComponents {
        vfs: Arc::new(if maps_log { DiskVfs::new().map_logs() } else { DiskVfs::new() }),
        runtime: runtime.clone(),
        cache: BlockCache::new(1 << 30),
    };
    let mut tree_options = TreeOptions::default();
    tree_options.compression = Compression::None;
    tree_options.layout = match arguments.next().as_deref() {
        None | Some("leveled") => Layout::Leveled,
        Some("partitioned") => Layout::Partitioned,
        Some("tiered") => Layout::Tiered,
        Some(other) => return Err(Error::invalid_input(format!("no layout {other}"))),
    };
    tree_options.view_tags = tree_options.layout == Layout::Partitioned;
    let mut options = StoreOptions::new(&dir);
    if let Some(megabytes) = arguments.next().and_then(|text| text.parse::<usize>().ok()) {
        options.memtable_bytes = megabytes << 20;
    }
    let reads: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(500_000);
    options.sync = SyncMode::None;
    let store = Store::open(options, components)?;
    let tree = store.create_tree(tree_options, b"")?;
    let value = [7; 120];
    // The clock does not work under valgrind.
    let counted = std::env::var_os("LD_PRELOAD").is_some();
    let clock = || if counted { 0 } else { runtime.thread_cpu_micros() };
    let report = |name: &str, started: u64, count: u64| {
        println!("{name:12} {:7.0} ns", (clock() - started) as f64 * 1000.0 / count as f64);
    };

    let (wall, whole) = (runtime.now_micros(), runtime.process_cpu_micros());
    let started = clock();
    for number in 0..entries {
        let mut batch = StoreBatch::with_capacity(160);
        batch.put(tree, &scrambled(number), &value)?;
        store.commit(batch, None, SyncMode::None)?;
    }
    report("load", started, entries);
    let each = |micros: u64| micros as f64 * 1000.0 / entries as f64;
    println!("load wall    {:7.0} ns", each(runtime.now_micros() - wall));
    store.wait_until_settled()?;
    println!("load process {:7.0} ns", each(runtime.process_cpu_micros() - whole));
    if reads == 0 {
        return Ok(());
    }
    let stats = store.stats();
    for level in &stats.trees[0].levels {
        println!("  level {} runs {} tables {} bytes {}", level.level, level.runs, level.tables, level.bytes);
    }
    println!("  write amplification {:.2}", stats.writes.write_amplification());

    let pick = |round: u64| scrambled(round.wrapping_mul(0x2545_f491_4f6c_dd1d) % entries);
    for name in ["get cold", "get"] {
        let started = clock();
        for round in 0..reads {
            assert!(store.get_latest(tree, &pick(round))?.is_some());
        }
        report(name, started, reads);
    }
    let started = clock();
    for round in 0..reads {
        assert!(store.get_latest(tree, &scrambled(entries + round))?.is_none());
    }
    report("get missing", started, reads);
    let started = clock();
    seek_all(&store, tree, (0..reads / 5).map(pick))?;
    report("seek", started, reads / 5);
    let started = clock();
    scan_all(&store, tree, (0..reads / 5).map(pick))?;
    report("scan 50", started, reads / 5);
    store.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

#[inline(never)]
fn seek_all(store: &Store, tree: TreeId, keys: impl Iterator<Item = [u8; 16]>) -> Result<()> {
    for key in keys {
        let mut cursor = store.read_view().cursor(tree, Bounds::all())?;
        cursor.seek(&key)?;
        assert_eq!(cursor.key(), key);
        std::hint::black_box(cursor.value());
    }
    Ok(())
}

#[inline(never)]
fn scan_all(store: &Store, tree: TreeId, keys: impl Iterator<Item = [u8; 16]>) -> Result<()> {
    for key in keys {
        let mut cursor = store.read_view().cursor(tree, Bounds::all())?;
        cursor.seek(&key)?;
        let mut bytes = 0;
        for _ in 0..50 {
            if cursor.valid() {
                bytes += cursor.key().len()
                    + cursor.value().iter().step_by(32).map(|&byte| usize::from(byte)).sum::<usize>();
                cursor.next()?;
            }
        }
        std::hint::black_box(bytes);
    }
    Ok(())
}
