//! The row cache against a map, and what comes in and leaves.

use std::collections::HashMap;

use bolide_base::checksum::hash_key;

use super::{Answer, KeyOf, RowCache};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }
}

fn of(owner: u32, key: &[u8]) -> KeyOf<'_> {
    KeyOf { owner, key, hash: hash_key(key) }
}

fn row(rows: &RowCache, key: &[u8]) -> Option<(u64, Vec<u8>)> {
    match rows.ask(of(1, key), u64::MAX) {
        Answer::Row(sequence, value) => Some((sequence, value)),
        Answer::No { .. } => None,
    }
}

#[test]
fn the_second_question_in_a_row_is_noted() {
    let (bytes, others) = if cfg!(miri) { (4 << 10, 2_000) } else { (64 << 10, 100_000) };
    let rows = RowCache::new(bytes);
    assert!(rows.is_untouched());
    assert_eq!(rows.ask(of(1, b"a"), 9), Answer::No { is_noted: false });
    assert_eq!(rows.ask(of(1, b"a"), 9), Answer::No { is_noted: true });
    assert!(!rows.is_untouched());
    // Where a memtable answered, too.
    rows.note(hash_key(b"b"));
    assert_eq!(rows.ask(of(1, b"b"), 9), Answer::No { is_noted: true });
    // Many questions for others wear a note away.
    for number in 0..others as u32 {
        rows.ask(of(1, &number.to_le_bytes()), 9);
    }
    assert_eq!(rows.ask(of(1, b"a"), 9), Answer::No { is_noted: false });
}

#[test]
fn a_row_is_shown_to_those_who_see_its_number() {
    let rows = RowCache::new(64 << 10);
    rows.ask(of(1, b"a"), 9);
    rows.put(of(1, b"a"), 7, b"seven", || true);
    assert_eq!(rows.ask(of(1, b"a"), 7), Answer::Row(7, b"seven".to_vec()));
    assert_eq!(rows.ask(of(1, b"a"), 6), Answer::No { is_noted: false });
    assert_eq!(rows.ask(of(2, b"a"), 9), Answer::No { is_noted: false }, "of another owner");
    rows.put(of(1, b"a"), 8, b"no longer right", || false);
    rows.put(of(1, b"a"), 6, b"older", || true);
    assert_eq!(row(&rows, b"a"), Some((7, b"seven".to_vec())));
    rows.put(of(1, b"a"), 8, b"eight", || true);
    assert_eq!(row(&rows, b"a"), Some((8, b"eight".to_vec())), "in place");
    rows.put(of(1, b"a"), 9, b"of another length", || true);
    assert_eq!(row(&rows, b"a"), Some((9, b"of another length".to_vec())));
    assert_eq!(rows.stats().rows, 1);
}

#[test]
fn a_flush_renews_what_is_there_or_was_asked_for() {
    let rows = RowCache::new(64 << 10);
    rows.renew(of(1, b"early"), 1, Some(b"nobody asked yet"));
    rows.ask(of(1, b"asked"), 9);
    rows.renew(of(1, b"asked"), 3, Some(b"three"));
    rows.renew(of(1, b"not asked"), 4, Some(b"four"));
    assert_eq!(row(&rows, b"asked"), Some((3, b"three".to_vec())));
    assert_eq!((row(&rows, b"early"), row(&rows, b"not asked")), (None, None));
    rows.renew(of(1, b"asked"), 2, None);
    assert!(row(&rows, b"asked").is_some(), "an older deletion");
    rows.renew(of(1, b"asked"), 5, None);
    assert_eq!(row(&rows, b"asked"), None);
}

#[test]
fn what_is_too_large_or_has_no_room_is_not_kept() {
    let rows = RowCache::new(64 << 10);
    for (key, value) in [(vec![1; 100], vec![2; 20_000]), (vec![1; 70_000], Vec::new())] {
        rows.ask(of(1, &key), 9);
        rows.put(of(1, &key), 1, &value, || true);
        assert_eq!(row(&rows, &key), None);
    }
    let off = RowCache::new(1_000);
    assert!(off.is_off() && off.is_untouched());
    off.note(1);
    off.put(of(1, b"a"), 1, b"a", || true);
    off.renew(of(1, b"a"), 1, Some(b"a"));
    assert_eq!(row(&off, b"a"), None);
    assert_eq!(off.stats().capacity_bytes, 1_000);
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of questions")]
fn rows_that_are_asked_for_outlive_those_that_are_not() {
    let rows = RowCache::new(256 << 10);
    let hot: Vec<Vec<u8>> = (0..100_u32).map(|number| format!("hot{number}").into_bytes()).collect();
    rows.ask(of(1, b"x"), 9);
    for shard in 0..64_u64 {
        // Every shard has buckets.
        rows.ask(KeyOf { owner: 1, key: b"y", hash: shard << 58 }, 9);
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

/// Rows of random lengths come, grow, shrink, go and are pushed out; whatever is there is what was put last.
#[test]
fn rows_are_those_of_a_map_or_gone() {
    let steps = if cfg!(miri) { 2_000 } else { 300_000 };
    for (seed, bytes) in [(1, 4 << 10), (2, 20 << 10), (3, 256 << 10), (4, 6 << 20)] {
        if cfg!(miri) && bytes > 64 << 10 {
            continue;
        }
        println!("seed {seed}, {bytes} bytes");
        let mut random = Random(seed);
        let rows = RowCache::new(bytes);
        assert!(!rows.is_off());
        let mut model: HashMap<Vec<u8>, (u64, Vec<u8>)> = HashMap::new();
        let mut found = 0;
        for step in 1..=steps {
            // Some far more often than others.
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
