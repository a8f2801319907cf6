//! Tests of a region against a simple model of memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bolide_base::ErrorKind;

use super::*;
use crate::SimRng;

fn region() -> Region {
    Region::in_memory(RegionOptions::new().name("test").id(9)).unwrap()
}

#[test]
fn bytes_are_read_at_any_alignment() {
    let region = region();
    let writer = region.writer();
    let at = writer.allocate(64).unwrap();
    let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
    writer.write(at, text).unwrap();
    for start in 0..text.len() {
        for end in start..=text.len() {
            let mut out = b"kept".to_vec();
            region.read(at + start as Place, end - start, &mut out).unwrap();
            assert_eq!(&out[4..], &text[start..end], "{start}..{end}");
        }
    }
    let mut tail = Vec::new();
    region.read(at + text.len() as Place, 28, &mut tail).unwrap();
    assert_eq!(tail, [0; 28], "the rest of the last word and of the allocation are zeros");
}

#[test]
fn comparisons_equal_those_of_slices() {
    let region = region();
    let writer = region.writer();
    let mut rng = SimRng::new(7);
    for round in 0..if cfg!(miri) { 100 } else { 3_000 } {
        let len = rng.below(40) as usize;
        let stored: Vec<u8> = (0..len).map(|_| rng.below(3) as u8 * 127).collect();
        let at = writer.allocate(64).unwrap();
        writer.write(at, &stored).unwrap();
        let from = rng.below(len as u64 + 1) as usize;
        let mut with = stored[from..].to_vec();
        match rng.below(4) {
            0 => with.truncate(rng.below(with.len() as u64 + 1) as usize),
            1 => with.push(rng.below(256) as u8),
            2 if !with.is_empty() => {
                let index = rng.below(with.len() as u64) as usize;
                with[index] = rng.below(256) as u8;
            }
            _ => {}
        }
        let order = region.compare(at + from as Place, len - from, &with).unwrap();
        assert_eq!(order, stored[from..].cmp(&with), "round {round}: {:?} {with:?}", &stored[from..]);
        writer.free(at, 64);
    }
    assert_eq!(region.stats().refused_frees, 0);
}

#[test]
fn offsets_outside_are_errors_with_the_offset() {
    let region = region();
    let writer = region.writer();
    let at = writer.allocate(8).unwrap();
    let mut out = Vec::new();
    for bad in [0, 8, 4088, at + 1, EXTENT_BYTES as Place, u64::MAX, u64::MAX - 7] {
        for result in [
            region.load(bad).map(|_| ()),
            region.load_acquire(bad).map(|_| ()),
            region.words(bad, 16).map(|_| ()),
            writer.store(bad, 1),
            writer.store_release(bad, 1),
            writer.fetch_or(bad, 1).map(|_| ()),
            writer.compare_exchange(bad, 0, 1).map(|_| ()),
            writer.write(bad, b"x"),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.message().contains(&format!("test: damaged at byte {bad}")), "{error}");
        }
        if bad % 8 == 0 {
            assert!(region.read(bad, 1, &mut out).is_err());
            assert_eq!(region.compare(bad, 1, b"x").unwrap_err().kind(), ErrorKind::Corruption);
        }
    }
    let near_end = EXTENT_BYTES as Place - 8;
    assert!(region.words(near_end, 8).is_ok());
    assert!(region.words(near_end, 9).is_err());
    assert!(region.read(near_end + 1, 8, &mut out).is_err());
    assert!(region.words(near_end, usize::MAX).is_err());
    assert!(out.is_empty());
    assert_eq!(region.root(ROOT_SLOTS).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(writer.set_root(ROOT_SLOTS, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(writer.allocate(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    let too_much = writer.allocate(MAX_ALLOCATION_BYTES + 1).unwrap_err();
    assert_eq!(too_much.kind(), ErrorKind::LimitExceeded);
}

/// Freed neighbours are one run again: space of short allocations serves long ones.
#[test]
fn neighbouring_free_runs_are_joined() {
    let region = region();
    let writer = region.writer();
    let mut used = region.stats().high_water_bytes;
    for round in 0..40 {
        let bytes = if round % 2 == 0 { 256 } else { 16 << 10 };
        let places: Vec<Place> = (0..(1 << 20) / bytes).map(|_| writer.allocate(bytes).unwrap()).collect();
        if round == 1 {
            used = region.stats().high_water_bytes;
        }
        places.into_iter().for_each(|at| writer.free(at, bytes));
    }
    let stats = region.stats();
    assert_eq!((stats.high_water_bytes, stats.refused_frees), (used, 0));
}

#[test]
fn writes_change_words() {
    let region = region();
    let writer = region.writer();
    let at = writer.allocate(256).unwrap();
    writer.store(at, 1).unwrap();
    assert_eq!(region.load(at).unwrap(), 1);
    assert_eq!(writer.compare_exchange(at, 2, 3).unwrap(), Err(1));
    assert_eq!(writer.compare_exchange(at, 1, 3).unwrap(), Ok(1));
    assert_eq!(writer.fetch_or(at, 12).unwrap(), 3);
    assert_eq!(region.load_acquire(at).unwrap(), 15);
    assert_eq!(region.words(at, 9).unwrap().len(), 2);
    for slot in 0..ROOT_SLOTS {
        assert_eq!(region.root(slot).unwrap(), 0);
        writer.set_root(slot, at + slot as Place).unwrap();
        assert_eq!(region.root(slot).unwrap(), at + slot as Place);
    }
    assert_eq!((region.id(), region.open_count(), region.name()), (9, 1, "test"));
}

/// Random allocations and frees: allocations are disjoint and zeroed, and the statistics are correct.
#[test]
fn allocations_never_overlap() {
    for seed in 0..if cfg!(miri) { 2 } else { 20 } {
        let mut rng = SimRng::new(seed);
        let region = region();
        let writer = region.writer();
        let mut live: BTreeMap<Place, usize> = BTreeMap::new();
        let mut pin = None;
        let rounds = if cfg!(miri) { 40 } else { 2_000 };
        for _ in 0..rounds {
            match rng.below(10) {
                0 => pin = Some(region.pin()),
                1 => drop(pin.take()),
                2..=4 if !live.is_empty() => {
                    let index = rng.below(live.len() as u64) as usize;
                    let (&at, &bytes) = live.iter().nth(index).unwrap();
                    live.remove(&at);
                    writer.free(at, bytes);
                    writer.free(at, bytes);
                }
                _ => {
                    let bytes = match rng.below(20) {
                        _ if cfg!(miri) => rng.below(1_000) as usize + 1,
                        0 => rng.below(MAX_ALLOCATION_BYTES as u64 / 4) as usize + 1,
                        1..=3 => rng.below(70_000) as usize + 1,
                        _ => rng.below(5_000) as usize + 1,
                    };
                    let at = writer.allocate(bytes).unwrap();
                    assert_eq!(at % GRANULE_BYTES as Place, 0);
                    let words = region.words(at, bytes).unwrap();
                    assert!(words.iter().all(|word| word.get() == 0), "seed {seed}: not zeroed");
                    writer.write(at, &vec![0xab; bytes]).unwrap();
                    let before = live.range(..=at).next_back();
                    assert!(before.is_none_or(|(&other, &len)| other + len as Place <= at), "seed {seed}");
                    let after = live.range(at..).next();
                    assert!(after.is_none_or(|(&other, _)| at + bytes as Place <= other), "seed {seed}");
                    live.insert(at, bytes);
                }
            }
        }
        let stats = region.stats();
        let expected: usize = live.values().map(|bytes| bytes.next_multiple_of(GRANULE_BYTES)).sum();
        assert_eq!(stats.allocated_bytes, expected as u64, "seed {seed}");
        assert!(stats.refused_frees > 0);
    }
}

#[test]
fn freed_space_is_reused_after_its_pins() {
    let region = region();
    let writer = region.writer();
    let first = writer.allocate(1000).unwrap();
    writer.write(first, b"old").unwrap();
    let pin = region.pin();
    writer.free(first, 1000);
    assert_eq!(region.stats().deferred_bytes, 1024);
    let second = writer.allocate(1000).unwrap();
    assert_ne!(first, second, "a pinned reader may access it");
    drop(pin);
    let later = region.pin_owned();
    assert_eq!(writer.allocate(1000).unwrap(), first, "a later pin does not matter");
    assert_eq!(region.load(first).unwrap(), 0);
    drop(later);
}

#[test]
fn a_region_at_its_limit_stays_usable() {
    let region = Region::in_memory(RegionOptions::new().limit_bytes(2 * EXTENT_BYTES as u64)).unwrap();
    let writer = region.writer();
    let mut allocations = Vec::new();
    let error = loop {
        match writer.allocate(64 << 10) {
            Ok(at) => allocations.push(at),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.message().contains(&format!("limit of {} bytes", 2 * EXTENT_BYTES)), "{error}");
    assert_eq!(
        allocations.len(),
        2 * EXTENT_BYTES / (64 << 10) - 2,
        "the head of each extent is smaller than an allocation"
    );
    while let Ok(at) = writer.allocate(256) {
        allocations.push(at);
    }
    assert_eq!(region.stats().free_bytes, 0);
    writer.free(allocations[0], 64 << 10);
    assert_eq!(writer.allocate(64 << 10).unwrap(), allocations[0]);
}

#[test]
fn an_acquire_sees_the_stores_before_a_release() {
    let region = region();
    let rounds: u64 = if cfg!(miri) { 20 } else { 20_000 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                let writer = region.writer();
                let at = writer.allocate(256).unwrap();
                writer.write(at, &round.to_le_bytes().repeat(32)).unwrap();
                let old = region.root(0).unwrap();
                writer.set_root(0, at).unwrap();
                if old != 0 {
                    writer.free(old, 256);
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while last < rounds {
                    let _pin = region.pin();
                    let at = region.root(0).unwrap();
                    if at == 0 {
                        continue;
                    }
                    let first = region.load(at).unwrap();
                    assert!(first >= last);
                    let bytes = first.to_le_bytes().repeat(32);
                    assert_eq!(region.compare(at, 256, &bytes).unwrap(), Ordering::Equal);
                    last = first;
                }
            });
        }
    });
    let stats = region.stats();
    assert_eq!(stats.allocated_bytes, 256);
    assert_eq!(stats.refused_frees, 0);
    // Without readers all freed space can be allocated again, no matter how long one of them was suspended.
    let writer = region.writer();
    for _ in 0..(stats.free_bytes + stats.deferred_bytes) / 256 / 2 {
        writer.allocate(256).unwrap();
    }
    assert_eq!(region.stats().high_water_bytes, stats.high_water_bytes, "{stats:?}");
}

/// Reserved extents are used from their first offset on, for any fill of the space before.
#[test]
fn reserved_space_can_be_allocated() {
    let memory = || Region::in_memory(RegionOptions::new().limit_bytes(8 * EXTENT_BYTES as u64)).unwrap();
    let simulated = || Region::simulated(RegionOptions::new().limit_bytes(8 * EXTENT_BYTES as u64)).unwrap();
    let regions: [&dyn Fn() -> Region; 2] = [&memory, &simulated];
    for (index, make) in regions.into_iter().enumerate() {
        let region = make();
        let writer = region.writer();
        writer.reserve(2 * EXTENT_BYTES as u64).unwrap();
        let reserved = region.stats().reserved_bytes;
        assert_eq!(reserved, 3 * EXTENT_BYTES as u64);
        assert_eq!(region.stats().allocated_bytes, 0);
        let step = if index == 0 { 256 } else { 4096 };
        let mut allocated = 0;
        let mut last = 0;
        while allocated < 2 * EXTENT_BYTES as u64 {
            // Exactly to the end of the extent.
            let at = writer.allocate(step).unwrap();
            assert!(at > last, "the head of an extent is never allocated");
            writer.write(at, &vec![0xff; step]).unwrap();
            (last, allocated) = (at, allocated + step as u64);
        }
        assert_eq!(region.stats().reserved_bytes, reserved);
        assert_eq!(region.stats().allocated_bytes, allocated);
        assert_eq!(writer.reserve(8 * EXTENT_BYTES as u64).unwrap_err().kind(), ErrorKind::NoSpace);
        if index == 0 {
            drop(writer);
            let mut checkpoint = region.checkpoint().unwrap();
            let restore = RegionRestore::new(RegionOptions::new());
            while let Some((page, bytes)) = checkpoint.next_page() {
                restore.put_page(page, bytes).unwrap();
            }
            let restored = restore.finish().unwrap();
            assert_eq!(restored.stats().allocated_bytes, allocated);
            assert!(restored.writer().allocate(256).unwrap() > last);
        }
    }
}

#[test]
fn a_region_grows_into_prepared_extents() {
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let prepared = || region.growth.prepared();
    region.prepare_growth();
    assert_eq!(prepared(), 0, "a small region");
    let writer = region.writer();
    let bytes = EXTENT_BYTES / 4;
    let mut places = Vec::new();
    let mut fill = |extents: usize| {
        while region.table.len() < extents {
            places.push(writer.allocate(bytes).unwrap());
        }
        for (number, &at) in places.iter().enumerate() {
            for word in (0..bytes as u64).step_by(4096) {
                let (at, expected) = (at + word, number as u64 + 1);
                let before = region.load(at).unwrap();
                assert!(before == expected || before == 0, "{at}: {before}");
                writer.store(at, expected).unwrap();
            }
        }
    };
    fill(2);
    region.prepare_growth();
    assert_eq!(prepared(), 1);
    region.prepare_growth();
    assert_eq!(prepared(), 1);
    fill(3);
    assert_eq!(prepared(), 0);
    fill(10);
    region.prepare_growth();
    assert_eq!(prepared(), 3);
    fill(14);
    assert_eq!(prepared(), 0);
}
