//! Regions under the model checker `shuttle`, which interleaves the accesses of threads to words. Pages have 512 bytes and
//! extents 32 KiB, so that runs stay short.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-storage --test region_model
//! ```
//!
//! `BOLIDE_MODEL_RUNS` is the number of schedules per test. A failure prints a schedule to replay.
#![cfg(bolide_shuttle)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_storage::pmem::{PAGE_BYTES, Place, Region, RegionOptions, RegionRestore};
use shuttle::thread;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let runs = std::env::var("BOLIDE_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1_000);
    shuttle::check_random(model.clone(), runs);
    shuttle::check_pct(model, runs, 3);
}

fn small() -> RegionOptions {
    RegionOptions::new().limit_bytes(64 << 10)
}

/// Each writer keeps two words on different pages equal; they are equal in every checkpoint.
#[test]
fn checkpoints_beside_writers_are_consistent() {
    check(|| {
        let region = Arc::new(Region::in_memory(small()).unwrap());
        let at = region.writer().allocate(2 * PAGE_BYTES).unwrap();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let region = region.clone();
                thread::spawn(move || {
                    for value in 1..=2 {
                        let gate = region.writer();
                        gate.store(at + 8 * writer, value).unwrap();
                        gate.store(at + 8 * writer + PAGE_BYTES as Place, value).unwrap();
                    }
                })
            })
            .collect();
        let mut pages = BTreeMap::new();
        for round in 0..3 {
            let mut checkpoint = region.checkpoint().unwrap();
            let mut contents = pages.clone();
            while let Some((page, bytes)) = checkpoint.next_page() {
                contents.insert(page, bytes.to_vec());
            }
            if round == 1 {
                // Cancelled: the next one contains its pages, too.
                checkpoint.abandon();
                continue;
            }
            checkpoint.finish().unwrap();
            pages = contents;
            assert_equal(&restore(&pages), at);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        let mut last = region.checkpoint().unwrap();
        while let Some((page, bytes)) = last.next_page() {
            pages.insert(page, bytes.to_vec());
        }
        last.finish().unwrap();
        let restored = restore(&pages);
        (0..2).for_each(|writer| assert_eq!(restored.load(at + 8 * writer).unwrap(), 2));
    });
}

fn assert_equal(region: &Region, at: Place) {
    for writer in 0..2 {
        let first = region.load(at + 8 * writer).unwrap();
        assert_eq!(first, region.load(at + 8 * writer + PAGE_BYTES as Place).unwrap());
    }
}

fn restore(pages: &BTreeMap<u64, Vec<u8>>) -> Region {
    let restore = RegionRestore::new(small());
    pages.iter().for_each(|(&page, bytes)| restore.put_page(page, bytes).unwrap());
    restore.finish().unwrap()
}

/// A block is not reused while a pinned reader accesses it. Three readers share two slots for pins, so that overflow pins occur.
#[test]
fn pinned_blocks_are_not_reused() {
    check(|| {
        let region = Arc::new(Region::in_memory(small()).unwrap());
        let replace = |region: &Region, value: u64| {
            let writer = region.writer();
            let new = writer.allocate(256).unwrap();
            writer.store(new, value).unwrap();
            writer.store(new + 8, value).unwrap();
            let old = region.root(0).unwrap();
            writer.set_root(0, new).unwrap();
            if old != 0 {
                writer.free(old, 256);
            }
        };
        replace(&region, 1);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let region = region.clone();
                thread::spawn(move || {
                    let pin = region.pin();
                    let at = region.root(0).unwrap();
                    let first = region.load(at).unwrap();
                    assert_ne!(first, 0);
                    assert_eq!(region.load(at + 8).unwrap(), first);
                    drop(pin);
                })
            })
            .collect();
        (2..=4).for_each(|value| replace(&region, value));
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(region.stats().allocated_bytes, 256);
    });
}

/// A walk marks the linked block while a writer replaces it: used space is not freed, lost space is.
#[test]
fn a_reclamation_beside_a_writer_frees_only_lost_space() {
    check(|| {
        let region = Arc::new(Region::in_memory(small()).unwrap());
        let link = |region: &Region, value: u64| {
            let writer = region.writer();
            let new = writer.allocate(256).unwrap();
            writer.store(new, value).unwrap();
            let old = region.root(0).unwrap();
            writer.set_root(0, new).unwrap();
            if old != 0 {
                writer.free(old, 256);
            }
        };
        link(&region, 1);
        region.writer().allocate(512).unwrap();
        let writer = {
            let region = region.clone();
            thread::spawn(move || (2..=3).for_each(|value| link(&region, value)))
        };
        let freed = region
            .reclaim(|reached| {
                let _pin = region.pin();
                reached.mark(region.root(0)?, 256).map(|_| ())
            })
            .unwrap();
        writer.join().unwrap();
        assert_eq!(freed, 512);
        assert_eq!(region.load(region.root(0).unwrap()).unwrap(), 3);
        let stats = region.stats();
        assert_eq!((stats.allocated_bytes, stats.refused_frees), (256, 0));
    });
}
