//! Tests of the line model, and of the recovery of a persistent list after a power cut.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{ErrorKind, Result};

use super::*;
use crate::SimRng;

const NODE_BYTES: usize = 320;

fn simulated() -> Region {
    Region::simulated(RegionOptions::new().id(4)).unwrap()
}

/// All possible contents of the words at `at` and `other` after a power cut now.
fn outcomes(region: &Region, at: Place, other: Place) -> BTreeSet<(u64, u64)> {
    let contents = region.crash_outcomes(3).map(|crash| {
        let after = crash.reopen().unwrap();
        (after.load(at).unwrap(), after.load(other).unwrap())
    });
    contents.collect()
}

#[test]
fn lines_survive_in_any_subset_and_at_any_state() {
    let region = simulated();
    let writer = region.writer();
    let at = writer.allocate(256).unwrap();
    let other = at + 64;
    assert_eq!(outcomes(&region, at, other), [(0, 0)].into());
    writer.store(at, 1).unwrap();
    writer.store(other, 1).unwrap();
    assert_eq!(outcomes(&region, at, other), [(0, 0), (0, 1), (1, 0), (1, 1)].into());
    writer.persist(at, 1).unwrap();
    assert_eq!(outcomes(&region, at, other).len(), 4, "nothing is durable without a fence");
    // After the persist: not covered by it.
    writer.store(at, 2).unwrap();
    writer.fence();
    assert_eq!(outcomes(&region, at, other), [(1, 0), (1, 1), (2, 0), (2, 1)].into());
    writer.store(at, 3).unwrap();
    let any = outcomes(&region, at, other);
    assert!(any.contains(&(2, 0)) && any.contains(&(2, 1)), "written back meanwhile: {any:?}");
    // Two words of one line go together; the state between them may have been written back.
    writer.persist(at, 128).unwrap();
    writer.fence();
    writer.store(at, 8).unwrap();
    writer.store(at + 8, 8).unwrap();
    assert_eq!(outcomes(&region, at, at + 8), [(3, 0), (8, 0), (8, 8)].into());
    // A fence of another thread waits for that thread's persists.
    writer.persist(at, 16).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| region.writer().fence());
    });
    assert_eq!(outcomes(&region, at, at + 8).len(), 3);
    writer.fence();
    assert_eq!(outcomes(&region, at, at + 8), [(8, 8)].into());
    assert_eq!(region.crash_outcomes(1).lines(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of regions")]
fn many_lines_are_sampled() {
    let region = simulated();
    let writer = region.writer();
    let at = writer.allocate(40 * 64).unwrap();
    writer.write(at, &[255; 40 * 64]).unwrap();
    let crash_outcomes = region.crash_outcomes(1);
    assert_eq!(crash_outcomes.lines(), 40);
    let mut survivors: Vec<usize> = Vec::new();
    for crash in crash_outcomes.take(200) {
        let after = crash.reopen().unwrap();
        let whole = (0..40).filter(|line| after.load(at + line * 64).unwrap() != 0).count();
        survivors.push(whole);
    }
    let is_spread = survivors.iter().any(|&count| count < 10) && survivors.iter().any(|&count| count > 30);
    assert!(is_spread, "{survivors:?}");
    assert!(Region::in_memory(RegionOptions::new()).unwrap().crash_outcomes(1).next().is_none());
}

/// Prepends a node: its value in the first and the last word, the next node in the second.
fn push(region: &Region, value: u64, persists: bool) -> Result<()> {
    let writer = region.writer();
    let node = writer.allocate(NODE_BYTES)?;
    writer.store(node, value)?;
    writer.store(node + 8, region.root(0)?)?;
    writer.store(node + NODE_BYTES as Place - 8, value)?;
    if persists {
        writer.persist(node, NODE_BYTES)?;
    }
    writer.fence();
    writer.set_root(0, node)?;
    writer.fence();
    Ok(())
}

fn pop(region: &Region) -> Result<()> {
    let writer = region.writer();
    let node = region.root(0)?;
    if node != 0 {
        writer.set_root(0, region.load(node + 8)?)?;
        writer.fence();
        writer.free(node, NODE_BYTES);
    }
    Ok(())
}

/// The values from the front, if every node is whole.
fn values(region: &Region) -> Result<Vec<u64>> {
    let mut values = Vec::new();
    let mut node = region.root(0)?;
    while node != 0 {
        let value = region.load(node)?;
        if region.load(node + NODE_BYTES as Place - 8)? != value {
            return Err(bolide_base::Error::internal("a node is torn"));
        }
        values.push(value);
        node = region.load(node + 8)?;
    }
    Ok(values)
}

fn reclaim(region: &Region) -> Result<u64> {
    region.reclaim(|reached| {
        let mut node = region.root(0)?;
        while node != 0 && reached.mark(node, NODE_BYTES)? {
            node = region.load(node + 8)?;
        }
        Ok(())
    })
}

/// Checks that every outcome now is the list before or after the current change, and that it stays usable.
fn check_crashes(region: &Region, allowed: &[Vec<u64>], seed: u64, found: &AtomicBool) {
    for crash in region.crash_outcomes(seed) {
        let after = crash.reopen().unwrap();
        assert_eq!(after.open_count(), region.open_count() + 1);
        let Ok(left) = values(&after) else {
            found.store(true, Ordering::Relaxed);
            continue;
        };
        if !allowed.contains(&left) {
            found.store(true, Ordering::Relaxed);
            continue;
        }
        let before = after.stats();
        let freed = reclaim(&after).unwrap();
        let stats = after.stats();
        let in_use = left.len() as u64 * (NODE_BYTES as u64).next_multiple_of(GRANULE_BYTES as u64);
        assert_eq!((stats.allocated_bytes, before.allocated_bytes), (in_use, in_use + freed), "{crash:?}");
        push(&after, 77, true).unwrap();
        let mut expected = vec![77];
        expected.extend(&left);
        assert_eq!(values(&after).unwrap(), expected);
    }
}

/// Runs pushes and pops, checks every outcome at every fence, and returns whether one was wrong.
fn run(seed: u64, rounds: u64, persists: bool) -> bool {
    let region = Arc::new(simulated());
    let mut rng = SimRng::new(seed);
    let mut list: Vec<u64> = Vec::new();
    let found = Arc::new(AtomicBool::new(false));
    let fences = Arc::new(AtomicU64::new(0));
    for round in 1..=rounds {
        let before = list.clone();
        let pops = rng.one_in(3);
        match pops {
            true => drop(list.drain(..list.len().min(1))),
            false => list.insert(0, round),
        }
        let allowed = vec![before, list.clone()];
        let (weak, found, fences) = (Arc::downgrade(&region), Arc::clone(&found), Arc::clone(&fences));
        region.set_fence_hook(Some(Arc::new(move || {
            fences.fetch_add(1, Ordering::Relaxed);
            if let Some(region) = weak.upgrade() {
                check_crashes(&region, &allowed, round, &found);
            }
        })));
        let done = if pops { pop(&region) } else { push(&region, round, persists) };
        done.unwrap();
        region.set_fence_hook(None);
        assert_eq!(values(&region).unwrap(), list);
    }
    assert!(fences.load(Ordering::Relaxed) >= rounds);
    found.load(Ordering::Relaxed)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of regions")]
fn a_list_with_persists_survives_every_power_cut() {
    for seed in 0..4 {
        assert!(!run(seed, 25, true), "seed {seed}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of regions")]
fn a_missing_persist_is_detected() {
    assert!(run(1, 10, false));
}

#[test]
fn saved_free_space_is_valid_for_one_opening() {
    let region = simulated();
    (0..20).for_each(|value| push(&region, value, true).unwrap());
    (0..15).for_each(|_| pop(&region).unwrap());
    region.save_free_space().unwrap();
    let stats = region.stats();
    let again = region.crash_outcomes(1).next().unwrap().reopen().unwrap();
    let after = again.stats();
    assert_eq!(after.allocated_bytes, 5 * 512);
    assert_eq!(after.free_bytes, stats.free_bytes + stats.deferred_bytes);
    push(&again, 99, true).unwrap();
    assert_eq!(again.stats().high_water_bytes, stats.high_water_bytes);
    // Not saved again: the next opening must not use the saved free space.
    let third = again.crash_outcomes(1).next().unwrap().reopen().unwrap();
    assert!(third.stats().free_bytes < after.free_bytes);
    assert_eq!(values(&third).unwrap().len(), 6);
    let freed = reclaim(&third).unwrap();
    assert_eq!(third.stats().allocated_bytes, 6 * 512);
    assert!(freed > 0);
}

#[test]
fn a_walk_that_fails_frees_nothing() {
    let region = simulated();
    push(&region, 1, true).unwrap();
    let before = region.stats();
    let error = region.reclaim(|reached| reached.mark(8, 256).map(|_| ())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    let nested = region.reclaim(|_| region.reclaim(|_| Ok(())).map(|_| ())).unwrap_err();
    assert_eq!(nested.kind(), ErrorKind::Conflict);
    assert_eq!(region.stats(), before);
}

#[test]
fn a_walk_that_panics_ends_its_reclamation() {
    let region = simulated();
    push(&region, 1, true).unwrap();
    let before = region.stats();
    let walk = || region.reclaim(|_| panic!("the walk is lost"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk)).is_err());
    assert_eq!(region.stats(), before);
    // Later allocations are not recorded for the ended walk, and another reclamation may begin.
    push(&region, 2, true).unwrap();
    assert_eq!(reclaim(&region).unwrap(), 0);
    assert_eq!(values(&region).unwrap(), [2, 1]);
}

/// Writers replace blocks in slots beside repeated reclamations: no used space is freed.
#[test]
fn reclamations_beside_writers_free_no_used_space() {
    const SLOTS: u64 = 200;
    let region = Region::in_memory(RegionOptions::new()).unwrap();
    let table = region.writer().allocate(SLOTS as usize * 8).unwrap();
    region.writer().set_root(0, table).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut rng = SimRng::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    // Slots of its own.
                    let slot = table + 8 * (2 * rng.below(SLOTS / 2) + thread);
                    let writer = region.writer();
                    let old = region.load(slot).unwrap();
                    let size = 256 * (1 + rng.below(8) as usize);
                    let new = writer.allocate(size).unwrap();
                    writer.write(new, &slot.to_le_bytes().repeat(size / 8)).unwrap();
                    writer.store(new, size as u64).unwrap();
                    writer.store_release(slot, new).unwrap();
                    if old != 0 {
                        let size = region.load(old).unwrap() as usize;
                        let expected = slot.to_le_bytes().repeat(size / 8 - 1);
                        assert!(region.compare(old + 8, size - 8, &expected).unwrap().is_eq());
                        writer.free(old, size);
                    }
                    if rng.one_in(50) {
                        // A leak: it is never freed.
                        writer.allocate(1024).unwrap();
                    }
                }
            });
        }
        let walk = |reached: &mut ReachableSet<'_>| {
            let _pin = region.pin();
            reached.mark(table, SLOTS as usize * 8)?;
            for slot in 0..SLOTS {
                let block = region.load_acquire(table + 8 * slot)?;
                if block != 0 {
                    reached.mark(block, region.load(block)? as usize)?;
                }
            }
            Ok(())
        };
        for _ in 0..if cfg!(miri) { 2 } else { 300 } {
            region.reclaim(walk).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    region
        .reclaim(|reached| {
            reached.mark(table, SLOTS as usize * 8)?;
            (0..SLOTS).try_for_each(|slot| {
                let block = region.load(table + 8 * slot)?;
                if block != 0 {
                    reached.mark(block, region.load(block)? as usize)?;
                }
                Ok(())
            })
        })
        .unwrap();
    let in_use: u64 = (0..SLOTS)
        .map(|slot| region.load(table + 8 * slot).unwrap())
        .filter(|&block| block != 0)
        .map(|block| region.load(block).unwrap())
        .sum();
    let stats = region.stats();
    assert_eq!(stats.allocated_bytes, in_use + (SLOTS * 8).next_multiple_of(256));
    assert_eq!(stats.refused_frees, 0);
}
