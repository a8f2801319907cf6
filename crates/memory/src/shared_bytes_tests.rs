//! Tests of shared bytes.

use std::thread;

use super::*;
use crate::test_random::TestRandom;

const LARGE_CACHE: u64 = 1 << 30;

/// Fills `bytes` with a pattern of block number `number`.
fn fill(bytes: &mut SharedBytes, number: u64) {
    assert!(bytes.iter().all(|&byte| byte == 0), "new bytes are zeros");
    let writable = bytes.get_mut().expect("new bytes are not shared");
    writable.fill(number as u8);
    writable.iter_mut().zip(number.to_le_bytes()).for_each(|(writable, byte)| *writable = byte);
}

fn check(bytes: &SharedBytes, number: u64) {
    let (first, rest) = bytes.split_first_chunk().expect("a block has eight bytes");
    assert_eq!(u64::from_le_bytes(*first), number, "another block");
    assert!(rest.iter().all(|&byte| byte == number as u8), "block {number} was overwritten");
}

#[test]
fn bytes_are_a_pointer_and_a_length() {
    assert_eq!(size_of::<Option<SharedBytes>>(), 16);
    assert_eq!(size_of::<Header>(), 16);
}

#[test]
fn shared_bytes_do_not_change() {
    let memory = CacheMemory::new(LARGE_CACHE, PagePool::new());
    for mut bytes in [SharedBytes::zeroed(4_000), memory.zeroed(4_000), memory.zeroed(0), Vec::new().into()] {
        let len = bytes.len();
        bytes.get_mut().expect("the bytes are not shared").fill(7);
        let copy = bytes.clone();
        assert!(bytes.get_mut().is_none() && len == copy.len());
        drop(bytes);
        let mut copy = copy;
        assert!(copy.iter().all(|&byte| byte == 7));
        assert!(copy.get_mut().is_some());
    }
    assert_eq!(&*SharedBytes::from(b"bytes".to_vec()), b"bytes");
}

#[test]
fn blocks_keep_their_bytes_and_slabs_stay_full() {
    // Miri is slow: few and small blocks.
    let rounds = if cfg!(miri) { 12 } else { 6_000 };
    for seed in 0..if cfg!(miri) { 1 } else { 4 } {
        let memory = CacheMemory::new(LARGE_CACHE, PagePool::new());
        let mut rng = TestRandom::new(seed);
        let (smallest, spread) =
            [(4_096, 1), (4_096, 140), (1_024, 8_000), (500, 200_000)][seed as usize % 4];
        let wanted = [2_000, 3_000, 1_000, 100][seed as usize % 4];
        let mut live: Vec<(u64, SharedBytes)> = Vec::new();
        let (mut now, mut peak) = (0, 0);
        for number in 0..rounds {
            if live.len() as u64 >= wanted || (!live.is_empty() && rng.below(4) == 0) {
                let (number, bytes) = live.swap_remove(rng.below(live.len() as u64) as usize);
                check(&bytes, number);
                now -= bytes.memory_bytes();
            }
            let mut bytes = memory.zeroed((smallest + rng.below(spread)) as usize);
            assert!(bytes.memory_bytes() >= bytes.len());
            fill(&mut bytes, number);
            now += bytes.memory_bytes();
            peak = peak.max(now);
            live.push((number, bytes));
            // Peak memory of the blocks, an eighth more, and one or two slabs.
            assert!(memory.slab_bytes() <= peak / 7 * 8 + 2 * LARGE_PAGE_BYTES, "seed {seed}");
        }
        live.iter().for_each(|(number, bytes)| check(bytes, *number));
        // A block outlives the cache and keeps only its slab alive.
        live.truncate(1);
        assert!(memory.slab_bytes() <= 2 * LARGE_PAGE_BYTES, "seed {seed}");
        drop(memory);
        live.iter().for_each(|(number, bytes)| check(bytes, *number));
    }
}

#[test]
fn small_caches_and_large_blocks_use_no_slabs() {
    let (small, large) = (
        CacheMemory::new(SMALLEST_CACHE - 1, PagePool::new()),
        CacheMemory::new(LARGE_CACHE, PagePool::new()),
    );
    let blocks = [small.zeroed(4_096), large.zeroed(SIZES.start - 1), large.zeroed(SIZES.end)];
    assert_eq!((small.slab_bytes(), large.slab_bytes()), (0, 0));
    assert!(blocks.iter().all(|bytes| bytes.memory_bytes() == bytes.len()));
}

#[test]
fn threads_share_the_memory() {
    let memory = CacheMemory::new(LARGE_CACHE, PagePool::new());
    let rounds = if cfg!(miri) { 3 } else { 5_000 };
    let (sender, receiver) = std::sync::mpsc::channel::<(u64, SharedBytes)>();
    thread::scope(|scope| {
        for thread in 0..3 {
            let (memory, sender) = (&memory, sender.clone());
            scope.spawn(move || {
                for round in 0..rounds {
                    let number = thread * rounds + round;
                    let mut bytes = memory.zeroed(1_200 + (number % 4_000) as usize);
                    fill(&mut bytes, number);
                    sender.send((number, bytes.clone())).expect("the receiver lives");
                    check(&bytes, number);
                }
            });
        }
        drop(sender);
        // Freed by another thread than the one that allocated it.
        for (number, bytes) in receiver {
            check(&bytes, number);
        }
    });
    assert!(memory.slab_bytes() <= LARGE_PAGE_BYTES);
}
