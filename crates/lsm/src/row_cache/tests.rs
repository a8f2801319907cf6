//! The row cache compared with a map; admission and eviction.

use std::collections::HashMap;

use bolide_base::checksum::hash_key;
use bolide_memory::MemoryPool;

use super::{HashedKey, RowCache, RowLookup};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }
}

fn of(owner: u32, key: &[u8]) -> HashedKey<'_> {
    HashedKey { owner, key, hash: hash_key(key) }
}

fn row(rows: &RowCache, key: &[u8]) -> Option<(u64, Vec<u8>)> {
    match rows.get(of(1, key), u64::MAX) {
        RowLookup::Hit(sequence, value) => Some((sequence, value)),
        RowLookup::Miss { .. } => None,
    }
}

#[test]
fn a_key_is_a_ghost_until_too_many_other_requests() {
    let (bytes, requests) = if cfg!(miri) { (4 << 10, 2_000) } else { (64 << 10, 100_000) };
    let rows = RowCache::new(bytes, MemoryPool::new());
    assert!(rows.is_untouched());
    assert_eq!(rows.get(of(1, b"a"), 9), RowLookup::Miss { is_ghost: false });
    assert_eq!(rows.get(of(1, b"a"), 9), RowLookup::Miss { is_ghost: true });
    assert!(!rows.is_untouched());
    // Requests served by a memtable count too.
    rows.record_request(hash_key(b"b"));
    assert_eq!(rows.get(of(1, b"b"), 9), RowLookup::Miss { is_ghost: true });
    // Many requests for other keys evict the ghost.
    for number in 0..requests as u32 {
        rows.get(of(1, &number.to_le_bytes()), 9);
    }
    assert_eq!(rows.get(of(1, b"a"), 9), RowLookup::Miss { is_ghost: false });
}

#[test]
fn a_lookup_hits_rows_up_to_its_sequence_number() {
    let rows = RowCache::new(64 << 10, MemoryPool::new());
    rows.get(of(1, b"a"), 9);
    rows.put(of(1, b"a"), 7, b"seven", || true);
    assert_eq!(rows.get(of(1, b"a"), 7), RowLookup::Hit(7, b"seven".to_vec()));
    assert_eq!(rows.get(of(1, b"a"), 6), RowLookup::Miss { is_ghost: false });
    assert_eq!(rows.get(of(2, b"a"), 9), RowLookup::Miss { is_ghost: false }, "of another owner");
    rows.put(of(1, b"a"), 8, b"stale", || false);
    rows.put(of(1, b"a"), 6, b"older", || true);
    assert_eq!(row(&rows, b"a"), Some((7, b"seven".to_vec())));
    rows.put(of(1, b"a"), 8, b"eight", || true);
    assert_eq!(row(&rows, b"a"), Some((8, b"eight".to_vec())), "in place");
    rows.put(of(1, b"a"), 9, b"of another length", || true);
    assert_eq!(row(&rows, b"a"), Some((9, b"of another length".to_vec())));
    assert_eq!(rows.stats().rows, 1);
}

#[test]
fn a_flush_updates_rows_and_inserts_requested_keys() {
    let rows = RowCache::new(64 << 10, MemoryPool::new());
    rows.renew(of(1, b"early"), 1, Some(b"before any request"));
    rows.get(of(1, b"requested"), 9);
    rows.renew(of(1, b"requested"), 3, Some(b"three"));
    rows.renew(of(1, b"not requested"), 4, Some(b"four"));
    assert_eq!(row(&rows, b"requested"), Some((3, b"three".to_vec())));
    assert_eq!((row(&rows, b"early"), row(&rows, b"not requested")), (None, None));
    rows.renew(of(1, b"requested"), 2, None);
    assert!(row(&rows, b"requested").is_some(), "an older deletion");
    rows.renew(of(1, b"requested"), 5, None);
    assert_eq!(row(&rows, b"requested"), None);
}

#[test]
fn rows_that_are_too_large_are_not_cached() {
    let rows = RowCache::new(64 << 10, MemoryPool::new());
    for (key, value) in [(vec![1; 100], vec![2; 20_000]), (vec![1; 70_000], Vec::new())] {
        rows.get(of(1, &key), 9);
        rows.put(of(1, &key), 1, &value, || true);
        assert_eq!(row(&rows, &key), None);
    }
    let off = RowCache::new(1_000, MemoryPool::new());
    assert!(off.is_off() && off.is_untouched());
    off.record_request(1);
    off.put(of(1, b"a"), 1, b"a", || true);
    off.renew(of(1, b"a"), 1, Some(b"a"));
    assert_eq!(row(&off, b"a"), None);
    assert_eq!(off.stats().capacity_bytes, 1_000);
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of lookups")]
fn requested_rows_outlive_other_rows() {
    let rows = RowCache::new(256 << 10, MemoryPool::new());
    let hot: Vec<Vec<u8>> = (0..100_u32).map(|number| format!("hot{number}").into_bytes()).collect();
    rows.get(of(1, b"x"), 9);
    for shard in 0..64_u64 {
        // Every shard has buckets.
        rows.get(HashedKey { owner: 1, key: b"y", hash: shard << 58 }, 9);
    }
    for key in &hot {
        rows.put(of(1, key), 1, &[7; 100], || true);
    }
    for number in 0..20_000_u32 {
        rows.put(of(1, &number.to_le_bytes()), 1, &[8; 100], || true);
        if number % 10 == 0 {
            hot.iter().for_each(|key| drop(row(&rows, key)));
        }
    }
    let left = hot.iter().filter(|key| row(&rows, key).is_some()).count();
    assert!(left * 10 >= hot.len() * 7, "{left} of {} are left", hot.len());
    let stats = rows.stats();
    assert!(stats.used_bytes <= stats.capacity_bytes, "{stats:?}");
    assert!((1_000..2_500).contains(&stats.rows), "{stats:?}");
}

/// Random insertions, updates, removals and evictions: each row is the last one inserted for its key.
#[test]
fn rows_equal_those_of_a_map_or_are_evicted() {
    let steps = if cfg!(miri) { 2_000 } else { 300_000 };
    for (seed, bytes) in [(1, 4 << 10), (2, 20 << 10), (3, 256 << 10), (4, 6 << 20)] {
        if cfg!(miri) && bytes > 64 << 10 {
            continue;
        }
        println!("seed {seed}, {bytes} bytes");
        let mut random = Random(seed);
        let rows = RowCache::new(bytes, MemoryPool::new());
        assert!(!rows.is_off());
        let mut model: HashMap<Vec<u8>, (u64, Vec<u8>)> = HashMap::new();
        let mut found = 0;
        for step in 1..=steps {
            // Skewed: some keys far more often.
            let limit = [20, 200, 20_000][random.below(3)];
            let mut key = format!("{}", random.below(limit)).into_bytes();
            key.resize(key.len() + random.below(3) * 7, b'.');
            let value = vec![random.below(256) as u8; random.below(300)];
            match random.below(10) {
                0..=3 => {
                    rows.put(of(1, &key), step, &value, || true);
                    model.insert(key, (step, value));
                }
                4 => {
                    rows.renew(of(1, &key), step, Some(&value));
                    model.insert(key, (step, value));
                }
                5 if random.below(3) == 0 => {
                    rows.renew(of(1, &key), step, None);
                    model.remove(&key);
                }
                _ => {
                    if let Some(row) = row(&rows, &key) {
                        assert_eq!(Some(&row), model.get(&key), "step {step}");
                        found += 1;
                    }
                }
            }
        }
        assert!(found > steps / 100, "{found} found");
        let stats = rows.stats();
        assert!(stats.used_bytes <= stats.capacity_bytes && stats.rows > 0, "{stats:?}");
    }
}
