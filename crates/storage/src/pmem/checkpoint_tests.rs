//! Tests of checkpoints against a model: the restored region has the state at the start of the checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::ErrorKind;

use super::*;
use crate::SimRng;

/// Pages of checkpoints by number.
type Pages = BTreeMap<u64, Vec<u8>>;

fn read_pages(checkpoint: &mut RegionCheckpoint<&Region>, pages: &mut Pages) {
    while let Some((page, bytes)) = checkpoint.next_page() {
        pages.insert(page, bytes.to_vec());
    }
}

fn restore(pages: &Pages) -> Region {
    let restore = RegionRestore::new(RegionOptions::new());
    pages.iter().for_each(|(&page, bytes)| restore.put_page(page, bytes).unwrap());
    restore.finish().unwrap()
}

/// All live blocks with their bytes.
type Blocks = BTreeMap<Place, Vec<u8>>;

fn change(rng: &mut SimRng, region: &Region, blocks: &mut Blocks) {
    let writer = region.writer();
    match rng.below(4) {
        0 if !blocks.is_empty() => {
            let index = rng.below(blocks.len() as u64) as usize;
            let (&at, bytes) = blocks.iter().nth(index).unwrap();
            writer.free(at, bytes.len());
            blocks.remove(&at);
        }
        1 | 2 if !blocks.is_empty() => {
            let index = rng.below(blocks.len() as u64) as usize;
            let (&at, bytes) = blocks.iter_mut().nth(index).unwrap();
            let word = rng.below(bytes.len() as u64 / 8) as usize * 8;
            let value = rng.next_u64();
            writer.store(at + word as Place, value).unwrap();
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        _ => {
            let len = (rng.below(if cfg!(miri) { 700 } else { 6_000 }) as usize + 1).next_multiple_of(8);
            let at = writer.allocate(len).unwrap();
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
            writer.write(at, &bytes).unwrap();
            blocks.insert(at, bytes);
        }
    }
}

fn assert_holds(region: &Region, blocks: &Blocks, what: &str) {
    let mut out = Vec::new();
    for (&at, bytes) in blocks {
        out.clear();
        region.read(at, bytes.len(), &mut out).unwrap();
        assert!(&out == bytes, "{what}: block {at}");
    }
    let expected: usize = blocks.values().map(|bytes| bytes.len().next_multiple_of(GRANULE_BYTES)).sum();
    assert_eq!(region.stats().allocated_bytes, expected as u64, "{what}");
}

#[test]
fn a_checkpoint_is_not_affected_by_later_writes() {
    let rounds = if cfg!(miri) { 3 } else { 60 };
    for seed in 0..if cfg!(miri) { 1 } else { 10 } {
        let mut rng = SimRng::new(seed);
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let (mut blocks, mut pages) = (Blocks::new(), Pages::new());
        for round in 0..rounds {
            for _ in 0..rng.below(40) {
                change(&mut rng, &region, &mut blocks);
            }
            let then = blocks.clone();
            let mut checkpoint = region.checkpoint().unwrap();
            let mut written = pages.clone();
            for _ in 0..rng.below(60) {
                change(&mut rng, &region, &mut blocks);
                let early = rng.one_in(2).then(|| checkpoint.next_page()).flatten();
                if let Some((page, bytes)) = early {
                    written.insert(page, bytes.to_vec());
                }
            }
            let what = format!("seed {seed}, round {round}");
            if rng.one_in(3) {
                // A cancelled checkpoint has no effect, and its pages belong to the next one.
                checkpoint.abandon();
                continue;
            }
            read_pages(&mut checkpoint, &mut written);
            checkpoint.finish().unwrap();
            pages = written;
            let restored = restore(&pages);
            assert_holds(&restored, &then, &what);
        }
        let mut checkpoint = region.checkpoint().unwrap();
        read_pages(&mut checkpoint, &mut pages);
        checkpoint.finish().unwrap();
        let restored = restore(&pages);
        assert_holds(&restored, &blocks, "the end");
        // A restored region stays usable: no used space is allocated.
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            change(&mut rng, &restored, &mut blocks);
        }
        assert_holds(&restored, &blocks, "after restoring");
    }
}

#[test]
fn a_checkpoint_contains_exactly_the_changed_pages() {
    const PAGES: usize = if cfg!(miri) { 5 } else { 100 };
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let at = region.writer().allocate(PAGES * PAGE_BYTES).unwrap();
    region.writer().write(at, &vec![1; PAGES * PAGE_BYTES]).unwrap();
    let mut checkpoint = region.checkpoint().unwrap();
    assert!(checkpoint.pages() >= PAGES);
    assert_eq!(region.checkpoint().unwrap_err().kind(), ErrorKind::Conflict);
    while checkpoint.next_page().is_some() {}
    checkpoint.finish().unwrap();
    assert_eq!(region.stats().dirty_pages, 0);
    assert_eq!(region.checkpoint().unwrap().pages(), 0);
    region.writer().store(at + 8, 5).unwrap();
    region.writer().store(at + 16, 5).unwrap();
    assert_eq!(region.stats().dirty_pages, 1);
    let early = region.checkpoint().unwrap();
    assert_eq!(early.pages(), 1);
    assert_eq!(early.finish().unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(region.stats().dirty_pages, 1, "a page that was not read is still dirty");
}

#[test]
fn there_is_no_optional_writer_while_a_checkpoint_starts() {
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let (checkpoint, is_blocked) = region.checkpoint_with(|| region.try_writer().is_none()).unwrap();
    assert!(is_blocked);
    assert!(region.try_writer().is_some());
    checkpoint.abandon();
}

/// Writers keep two words on different pages equal under one gate; they must be equal in every checkpoint.
#[test]
fn checkpoints_beside_writers_are_consistent() {
    const CELLS: u64 = if cfg!(miri) { 4 } else { 64 };
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let bytes = 2 * CELLS as usize * PAGE_BYTES;
    let at = region.writer().allocate(bytes).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut rng = SimRng::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    // Cells of their own, on pages that are shared.
                    let cell = rng.below(CELLS) * PAGE_BYTES as u64 + thread * 8;
                    let writer = region.writer();
                    let value = region.load(at + cell).unwrap() + 1;
                    writer.store(at + cell, value).unwrap();
                    writer.store(at + CELLS * PAGE_BYTES as u64 + cell, value).unwrap();
                }
            });
        }
        let mut pages = Pages::new();
        for _ in 0..if cfg!(miri) { 3 } else { 60 } {
            let mut checkpoint = region.checkpoint().unwrap();
            read_pages(&mut checkpoint, &mut pages);
            checkpoint.finish().unwrap();
            let restored = restore(&pages);
            for cell in (0..CELLS * PAGE_BYTES as u64).step_by(8) {
                let other = at + CELLS * PAGE_BYTES as u64 + cell;
                assert_eq!(restored.load(at + cell).unwrap(), restored.load(other).unwrap());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn contradictory_pages_are_rejected() {
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    region.writer().allocate(5_000).unwrap();
    let mut pages = Pages::new();
    let mut checkpoint = region.checkpoint().unwrap();
    read_pages(&mut checkpoint, &mut pages);
    let rejected = |change: &dyn Fn(&mut Pages)| {
        let mut pages = pages.clone();
        change(&mut pages);
        let restore = RegionRestore::new(RegionOptions::new().name("region 4"));
        let put = pages.iter().try_for_each(|(&page, bytes)| restore.put_page(page, bytes));
        let error = put.and_then(|()| restore.finish().map(|_| ())).unwrap_err();
        assert!(error.message().contains("region 4"), "{error}");
        error.kind()
    };
    let set = |pages: &mut Pages, at: usize, value: u64| {
        pages.get_mut(&0).unwrap()[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    assert_eq!(rejected(&|pages| set(pages, 0, 1)), ErrorKind::Corruption);
    assert_eq!(rejected(&|pages| set(pages, 8, 3)), ErrorKind::Unsupported);
    assert_eq!(rejected(&|pages| set(pages, 16, 2)), ErrorKind::Corruption);
    for mark in [0, 4096, 5000, 1 << 30, u64::MAX, u64::MAX - 255] {
        assert_eq!(rejected(&|pages| set(pages, 24, mark)), ErrorKind::Corruption, "{mark}");
    }
    assert_eq!(rejected(&|pages| pages.get_mut(&1).unwrap().fill(0)), ErrorKind::Corruption);
    assert_eq!(rejected(&|pages| pages.get_mut(&1).unwrap().fill(255)), ErrorKind::Corruption);
    assert_eq!(rejected(&|pages| pages.get_mut(&1).unwrap().truncate(4095)), ErrorKind::Corruption);
    assert_eq!(rejected(&|pages| pages.clear()), ErrorKind::Corruption);
    assert_eq!(rejected(&|pages| drop(pages.insert(1 << 50, vec![0; 4096]))), ErrorKind::NoSpace);
}

/// Invalid pages with valid checksums are accepted or rejected, without a panic.
#[test]
fn any_pages_are_accepted_or_rejected() {
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let allocations: Vec<Place> = (0..20).map(|_| region.writer().allocate(700).unwrap()).collect();
    allocations.iter().step_by(2).for_each(|&at| region.writer().free(at, 700));
    let mut pages = Pages::new();
    read_pages(&mut region.checkpoint().unwrap(), &mut pages);
    let (mut accepted, mut rejected) = (0, 0);
    for seed in 0..if cfg!(miri) { 3 } else { 2_000 } {
        let mut rng = SimRng::new(seed);
        let mut pages = pages.clone();
        for _ in 0..1 + rng.below(3) {
            let page = if rng.one_in(2) { 0 } else { 1 };
            let word = rng.below(if page == 0 { 9 } else { 300 }) as usize * 8;
            let value = match rng.below(4) {
                0 => rng.next_u64(),
                1 => rng.below(1 << 24) & !255,
                2 => u64::MAX << rng.below(64),
                _ => rng.below(4),
            };
            let bytes = pages.get_mut(&page).unwrap();
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
        }
        let restore = RegionRestore::new(RegionOptions::new().limit_bytes(4 * EXTENT_BYTES as u64));
        pages.iter().for_each(|(&page, bytes)| restore.put_page(page, bytes).unwrap());
        let Ok(restored) = restore.finish() else {
            rejected += 1;
            continue;
        };
        accepted += 1;
        let writer = restored.writer();
        for _ in 0..50 {
            let bytes = 1 + rng.below(10_000) as usize;
            if let Ok(at) = writer.allocate(bytes) {
                writer.write(at, &vec![1; bytes]).unwrap();
            }
        }
        allocations.iter().for_each(|&at| writer.free(at, 700));
        drop(writer);
        restored
            .reclaim(|reached| allocations.iter().try_for_each(|&at| reached.mark(at, 700).map(|_| ())))
            .unwrap();
        let _ = restored.stats();
    }
    assert!(cfg!(miri) || (accepted > 100 && rejected > 100), "{accepted} accepted, {rejected} rejected");
}
