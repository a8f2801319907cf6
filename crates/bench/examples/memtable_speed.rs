//! The speed of the memtable: CPU time of each operation, by one and by two threads.
//!
//! `cargo run --release -p bolide-bench --example memtable_speed [-- ENTRIES]`

#![allow(clippy::disallowed_methods, reason = "the threads of a measurement are its own")]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;

use bolide_base::{EntryKind, Trailer};
use bolide_lsm::memtable::{Memtable, Visibility};
use bolide_storage::{Runtime, SystemRuntime};
use bolide_table::InternalCursor;

const VALUE: [u8; 100] = [7; 100];
const NEWEST: u64 = u64::MAX >> 8;
const ROUNDS: usize = 3;

fn mix(number: u64) -> u64 {
    let word = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<_> = (0..count).collect();
    numbers.sort_by_key(|&number| mix(number + 1));
    numbers
}

/// Runs `work` on `threads` threads, each with its share of `keys`. `work` returns the number of operations. Returns the
/// mean CPU time of an operation.
fn measure(threads: usize, keys: &[Vec<u8>], work: impl Fn(usize, &[Vec<u8>]) -> usize + Sync) -> f64 {
    thread::scope(|scope| {
        let share = keys.len().div_ceil(threads);
        let running: Vec<_> = keys
            .chunks(share)
            .enumerate()
            .map(|(index, keys)| {
                let work = &work;
                scope.spawn(move || {
                    let runtime = SystemRuntime::new();
                    let start = runtime.thread_cpu_micros();
                    let count = work(index * share, keys);
                    (runtime.thread_cpu_micros() - start, count)
                })
            })
            .collect();
        let done: Vec<_> = running.into_iter().filter_map(|thread| thread.join().ok()).collect();
        1e3 * done.iter().map(|done| done.0 as f64).sum::<f64>()
            / done.iter().map(|done| done.1 as f64).sum::<f64>()
    })
}

/// Nanoseconds of insert, get, seek + 10 next, and per entry of a whole scan; bytes per entry.
fn round(threads: usize, insert: &[Vec<u8>], read: &[Vec<u8>]) -> [f64; 5] {
    let memtable = Arc::new(Memtable::new());
    let inserts = measure(threads, insert, |first, keys| {
        for (index, key) in keys.iter().enumerate() {
            memtable.insert(key, Trailer::new((first + index + 1) as u64, EntryKind::Put), &VALUE);
        }
        keys.len()
    });
    let gets = measure(threads, read, |_, keys| {
        for key in keys {
            black_box(memtable.get(key, NEWEST).map(|(_, value)| value[0]));
        }
        keys.len()
    });
    let seeks = measure(threads, read, |_, keys| {
        let mut cursor = memtable.cursor(Visibility::At(NEWEST));
        for key in &keys[..keys.len() / 4] {
            let _ = cursor.seek(key, NEWEST);
            for _ in 0..10 {
                black_box((cursor.key(), cursor.value().first()));
                let _ = cursor.next();
            }
        }
        keys.len() / 4
    });
    let scans = measure(threads, read, |_, _| {
        let mut cursor = memtable.cursor(Visibility::At(NEWEST));
        let mut count = 0;
        let _ = cursor.seek_to_first();
        while cursor.valid() {
            black_box((cursor.key(), cursor.trailer(), cursor.value()));
            count += 1;
            let _ = cursor.next();
        }
        count
    });
    let bytes = memtable.memory_bytes() as f64 / memtable.entries() as f64;
    [inserts, gets, seeks, scans, bytes]
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500_000);
    let binary = |number: u64| [mix(number).to_be_bytes(), mix(!number).to_be_bytes()].concat();
    let user = |number: u64| format!("user{number:012}").into_bytes();
    let order = shuffled(count);
    let workloads: [(&str, Vec<Vec<u8>>); 3] = [
        ("random 16 B", order.iter().map(|&number| binary(number)).collect()),
        ("userN, shuffled", order.iter().map(|&number| user(number)).collect()),
        ("userN, ascending", (0..count).map(user).collect()),
    ];
    println!("{count} entries, values of 100 B, median of {ROUNDS}, CPU ns");
    println!("{:18} threads  insert     get  seek+10  scan/entry  bytes/entry", "keys");
    for (name, keys) in &workloads {
        let mut read = keys.clone();
        read.sort_by_key(|key| mix(u64::from_be_bytes(key[8..16].try_into().unwrap_or_default()) ^ 5));
        for threads in [1, 2] {
            let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(threads, keys, &read)).collect();
            let mut column = |index: usize| {
                rounds.sort_by(|left, right| left[index].total_cmp(&right[index]));
                rounds[ROUNDS / 2][index]
            };
            println!(
                "{name:18} {threads:7} {:7.0} {:7.0} {:8.0} {:11.1} {:12.0}",
                column(0),
                column(1),
                column(2),
                column(3),
                column(4)
            );
        }
    }
}
