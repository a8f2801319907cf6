//! Tests of the block cache.

use std::thread;

use bolide_memory::{CACHE_LINE_BYTES, SHARED_HEADER_BYTES};

use super::*;
use crate::block_builder::BlockBuilder;
use crate::stored_block::{PADDING, Payload};

/// A block of about `bytes` bytes whose only key is `number`.
fn block(number: u64, bytes: usize) -> CachedBlock {
    let mut builder = BlockBuilder::default();
    builder.add(&number.to_be_bytes(), bolide_base::Trailer::from_bits(0x101), &vec![0; bytes]);
    let mut payload = Vec::new();
    builder.finish(&mut payload);
    let len = payload.len();
    payload.resize(len + PADDING, 0);
    CachedBlock::Data(Block::new(Payload { bytes: payload.into(), len }).unwrap())
}

fn is_block(found: Option<CachedBlock>, number: u64) -> bool {
    match found {
        Some(CachedBlock::Data(found)) => {
            let key = number.to_be_bytes();
            assert_eq!(found.prefix(), key, "another block");
            true
        }
        Some(CachedBlock::Index(_) | CachedBlock::Meta(_)) => panic!("an index block that was not inserted"),
        None => false,
    }
}

#[test]
fn a_slot_is_one_cache_line() {
    assert_eq!(size_of::<CacheSlot>(), 64);
}

#[test]
fn slots_are_found_by_their_numbers() {
    let (slots, pool) = (Slots::default(), MemoryPool::new());
    for number in [0, 1, 255, 256, 767, 768, 1_000_000] {
        slots.get_or_make(number, &pool).unwrap().key.store(number.into(), Ordering::Relaxed);
    }
    for number in [0, 1, 255, 256, 767, 768, 1_000_000] {
        assert_eq!(slots.get(number).unwrap().key.load(Ordering::Relaxed), u64::from(number));
    }
    assert_eq!(Slots::place(MAX_SLOTS - 1).0, CHUNKS - 1);
    assert_eq!(Slots::place(MAX_SLOTS).0, CHUNKS);
    assert!(slots.get(MAX_SLOTS).is_none());
}

#[test]
fn hints_contain_the_addresses_of_blocks() {
    // The second cache has its blocks in slabs, one after the other.
    for capacity in [1 << 20, 32 << 20] {
        let cache = BlockCache::new(capacity);
        let table = TableBlocks::new(Arc::clone(&cache), 100);
        for number in 0..100 {
            let CachedBlock::Data(found) = block(number, 3000) else { continue };
            let mut bytes = table.cache().block_memory().zeroed(found.bytes().len());
            bytes.get_mut().unwrap().copy_from_slice(found.bytes());
            let len = found.bytes().len() - PADDING;
            let block_in_slab = Block::new(Payload { bytes, len }).unwrap();
            let (address, directory_at) = (block_in_slab.bytes().address(), block_in_slab.first_start());
            table.insert(number, CachedBlock::Data(block_in_slab));
            let [start, listed] = table.addresses(table.hint(number).unwrap(), 0);
            assert_eq!(start, address as u64 / CACHE_LINE_BYTES as u64 * CACHE_LINE_BYTES as u64);
            // The directory has one entry, and the end.
            let expected = address + size_of::<[u64; 2]>() + directory_at - 8;
            assert!((expected as u64 - listed) < CACHE_LINE_BYTES as u64, "{expected} {listed}");
            table.prefetch_directory_entry(number, 0);
            assert!(is_block(table.data_block(number, 0, true).map(CachedBlock::Data), number));
        }
        table.prefetch_directory_entry(100, 0);
    }
}

#[test]
fn entry_positions_are_predicted_if_lengths_are_equal() {
    let cache = BlockCache::new(32 << 20);
    let table = TableBlocks::new(Arc::clone(&cache), 100);
    let block = |number: u64, value_len: &dyn Fn(u64) -> usize| {
        let mut builder = BlockBuilder::default();
        for entry in 0..30_u64 {
            let (key, trailer) =
                ((number << 8 | entry).to_be_bytes(), bolide_base::Trailer::from_bits(0x101));
            builder.add(&key, trailer, &vec![0; value_len(entry)]);
        }
        let mut payload = Vec::new();
        builder.finish(&mut payload);
        let mut bytes = table.cache().block_memory().zeroed(payload.len() + PADDING);
        bytes.get_mut().unwrap()[..payload.len()].copy_from_slice(&payload);
        Block::new(Payload { bytes, len: payload.len() }).unwrap()
    };
    let predicted = |number, index| {
        let [start, _] = table.addresses(table.hint(number).unwrap(), index);
        table.predicted(start, index)
    };
    for (number, len) in [(0, 100), (1, 100), (2, 7), (3, 3000)] {
        let block_in_slab = block(number, &|_| len);
        let address = block_in_slab.bytes().address() as u64 + SHARED_HEADER_BYTES;
        table.insert(number, CachedBlock::Data(block_in_slab.clone()));
        for index in 0..30 {
            let entry = address + block_in_slab.entry_start(index).unwrap() as u64;
            let (start, prefetched) = predicted(number, index);
            assert!(entry.abs_diff(start) < CACHE_LINE_BYTES as u64, "{number} {index}: {entry} {start}");
            assert!((len as u64).min(128) <= prefetched && prefetched <= 128);
            let found = table.data_block(number, index, true).unwrap();
            assert_eq!(found.entry_start(index), block_in_slab.entry_start(index));
        }
    }
    table.insert(4, CachedBlock::Data(block(4, &|entry| (entry * entry) as usize)));
    assert_eq!(predicted(4, 7).1, 0, "no prefetch without a known layout");
    table.insert(5, CachedBlock::Data(block(5, &|entry| 100 + entry as usize % 5)));
    assert!(predicted(5, 7).1 > 0, "a difference of a few bytes is tolerated");
}

#[test]
fn the_budget_holds_and_counts_add_up() {
    let cache = BlockCache::new(100_000);
    let tables = [TableBlocks::new(Arc::clone(&cache), 5000), TableBlocks::new(Arc::clone(&cache), 5000)];
    let mut state = 1_u64;
    for round in 0..40_000_u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (state >> 33) % if round % 2 == 0 { 40 } else { 5000 };
        let table = &tables[round as usize % 2];
        if !is_block(table.get(number), number) {
            table.insert(number, block(number, 100 + number as usize % 900));
            assert!(is_block(table.peek(number), number), "just inserted");
        }
        assert!(cache.stats().used_bytes <= 100_000);
    }
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, 40_000);
    assert_eq!(stats.inserts, stats.misses);
    assert!(stats.hits > 15_000, "the 40 most used blocks are retained: {stats:?}");
    let [first, second] = tables;
    drop(first);
    let half = cache.stats();
    assert!(half.used_bytes < stats.used_bytes && half.blocks < stats.blocks);
    drop(second);
    assert_eq!((cache.stats().used_bytes, cache.stats().blocks), (0, 0));
}

#[test]
fn a_scan_does_not_empty_the_cache() {
    let cache = BlockCache::new(1_000_000);
    let table = TableBlocks::new(Arc::clone(&cache), 100_000);
    for _ in 0..3 {
        for number in 0..500 {
            if !is_block(table.get(number), number) {
                table.insert(number, block(number, 1000));
            }
        }
    }
    for number in 1000..50_000 {
        table.insert(number, block(number, 1000));
    }
    let retained = (0..500).filter(|&number| is_block(table.get(number), number)).count();
    assert_eq!(retained, 500, "used blocks are retained in place of unused ones");
}

#[test]
fn too_large_blocks_and_a_zero_budget_are_accepted() {
    for capacity in [0, 1, 5000] {
        let cache = BlockCache::new(capacity);
        let table = TableBlocks::new(Arc::clone(&cache), 10);
        table.insert(3, block(3, 6000));
        table.insert(11, block(11, 10));
        assert!(!is_block(table.get(3), 3) && !is_block(table.get(11), 11));
        assert_eq!(cache.stats().used_bytes, 0);
    }
}

#[test]
fn cleared_blocks_are_removed_and_can_be_inserted_again() {
    let cache = BlockCache::new(1_000_000);
    let table = TableBlocks::new(Arc::clone(&cache), 10);
    (0..10).for_each(|number| table.insert(number, block(number, 100)));
    cache.clear();
    assert_eq!((cache.stats().used_bytes, cache.stats().blocks), (0, 0));
    assert!((0..10).all(|number| !is_block(table.get(number), number)));
    (0..10).for_each(|number| table.insert(number, block(number, 100)));
    assert!((0..10).all(|number| is_block(table.get(number), number)));
    assert_eq!(cache.stats().blocks, 10);
}

#[test]
fn threads_get_the_blocks_that_they_look_up() {
    let cache = BlockCache::new(60_000);
    let shared = Arc::new(TableBlocks::new(Arc::clone(&cache), 300));
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let shared = Arc::clone(&shared);
            let cache = &cache;
            scope.spawn(move || {
                let mut state = thread;
                for round in 0..10_000_u64 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread);
                    let number = (state >> 40) % 300;
                    if !is_block(shared.get(number), number) {
                        shared.insert(number, block(number, 500));
                    }
                    if round % 2000 == 0 {
                        let own = TableBlocks::new(Arc::clone(cache), 20);
                        (0..20).for_each(|number| own.insert(number, block(number, 200)));
                    }
                }
            });
        }
    });
    assert!(cache.stats().used_bytes <= 60_000);
    drop(shared);
    assert_eq!((cache.stats().used_bytes, cache.stats().blocks), (0, 0));
}

#[test]
fn a_cache_shrinks_while_the_budget_is_short_and_recovers() {
    let budget = bolide_memory::MemoryBudget::new(200_000);
    let cache = BlockCache::with_memory(160_000, MemoryPool::with_budget(budget.clone()));
    let table = TableBlocks::new(Arc::clone(&cache), 300);
    (0..300).for_each(|number| table.insert(number, block(number, 1000)));
    assert!(cache.stats().used_bytes > 150_000);
    let index = budget.holder(MemoryUse::IndexRegions, Some("posts.author".into()));
    index.request(140_000).unwrap();
    assert_eq!(cache.stats().capacity_bytes, 60_000);
    assert!(cache.stats().used_bytes <= 60_000);
    // A sixteenth remains.
    assert!(index.request(55_000).is_err());
    index.request(50_000).unwrap();
    assert_eq!(cache.stats().capacity_bytes, 10_000);
    (0..300).for_each(|number| table.insert(number, block(number, 1000)));
    assert!(cache.stats().used_bytes <= 10_000 && cache.stats().blocks > 0);
    drop(index);
    assert_eq!(budget.rebalance(0), 160_000);
    (0..300).for_each(|number| table.insert(number, block(number, 1000)));
    assert!(cache.stats().used_bytes > 150_000);
}

/// A block of 4,000 bytes in a slab of `cache`.
fn in_slab(cache: &BlockCache, number: u64) -> CachedBlock {
    let CachedBlock::Data(found) = block(number, 4_000) else { panic!("a data block") };
    let mut bytes = cache.block_memory().zeroed(found.bytes().len());
    bytes.get_mut().unwrap().copy_from_slice(found.bytes());
    let len = bytes.len() - PADDING;
    CachedBlock::Data(Block::new(Payload { bytes, len }).unwrap())
}

/// Memory that is released was allocated: the slabs shrink with the capacity.
#[test]
fn a_cache_that_releases_memory_returns_slabs() {
    const CAPACITY: u64 = 64 << 20;
    let cache = BlockCache::new(CAPACITY);
    let table = TableBlocks::new(Arc::clone(&cache), 20_000);
    let in_slab = |number: u64| in_slab(&cache, number);
    for number in 0..20_000 {
        table.insert(number, in_slab(number));
    }
    let memory = || cache.memory.slab_bytes() as u64;
    let reported = || {
        let mut reserved = 0;
        cache.report(&mut |_, size| reserved += size.reserved);
        reserved
    };
    assert!(memory() > CAPACITY / 2, "{}", memory());
    // Pinned by a reader: its slab stays, and is reported.
    let pinned = (0..20_000).rev().find_map(|number| table.get(number)).unwrap();
    let (mut released, mut step) = (0, 0);
    while reported() > 8 << 20 {
        // From a fourth of a slab to two slabs.
        let (before, bytes) = (reported(), 1 << (19 + step % 4));
        step += 1;
        let freed = cache.release(bytes);
        assert_eq!(before - reported(), freed);
        assert!(freed > 0 && memory() <= reported(), "{} of {}", memory(), reported());
        released += freed;
    }
    assert!(released >= CAPACITY - (9 << 20) && memory() <= 8 << 20, "{} bytes remain", memory());
    assert!(cache.stats().used_bytes <= 8 << 20 && cache.stats().blocks > 100, "{:?}", cache.stats());
    let found = (0..20_000).filter(|&number| is_block(table.get(number), number)).count() as u64;
    assert_eq!(found, cache.stats().blocks);
    drop(pinned);
    let lowered = cache.capacity_bytes();
    assert_eq!(cache.regain(CAPACITY), CAPACITY - lowered);
    for number in 0..20_000 {
        table.insert(number, in_slab(number));
    }
    assert!(memory() > CAPACITY / 2);
}

/// Each return of slabs visits all blocks, perhaps under the lock of the log.
#[test]
fn small_releases_seldom_visit_all_blocks() {
    const CAPACITY: u64 = 128 << 20;
    const STEP: u64 = 64 << 10;
    let cache = BlockCache::new(CAPACITY);
    let table = TableBlocks::new(Arc::clone(&cache), 40_000);
    (0..40_000).for_each(|number| table.insert(number, in_slab(&cache, number)));
    let blocks = || cache.stats().blocks;
    // Until slabs are returned for the first time.
    let full = blocks();
    while blocks() + 100 > full {
        assert!(cache.release(STEP) > 0);
    }
    let (mut visits, mut before, start) = (0, blocks(), cache.capacity_bytes());
    while cache.capacity_bytes() > start - CAPACITY / 8 {
        cache.release(STEP);
        visits += u32::from(blocks() < before);
        before = blocks();
    }
    assert!(visits <= 4, "{visits} visits while an eighth was released");
    assert!(before > 20_000, "{before} blocks remain");
}
