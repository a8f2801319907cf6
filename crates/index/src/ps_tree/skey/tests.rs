//! Both layers after power cuts during a split: removed keys do not reappear.

use std::sync::{Arc, Mutex};

use bolide_storage::pmem::{CrashOutcome, Region, RegionOptions};

use super::btree::BTree;
use super::heap::KeyHeap;
use super::record;
use super::trie::Trie;
use super::{Direction, ScanStart, SkeyInserted, SkeyLayer};
use crate::ps_tree::SkeyKind;

const SLOT: usize = 0;

fn open(region: &Region, kind: SkeyKind) -> Box<dyn SkeyLayer> {
    match kind {
        SkeyKind::BTree => Box::new(BTree::open(region, SLOT)),
        SkeyKind::Trie => Box::new(Trie::open(region, SLOT)),
    }
}

fn add(region: &Region, layer: &dyn SkeyLayer, heap: &KeyHeap, key: &[u8]) {
    let writer = region.writer();
    let new = heap.put(&writer, region, key, 8).unwrap();
    writer.fence();
    assert_eq!(layer.insert(region, &writer, key, new, true).unwrap(), SkeyInserted::New);
}

fn keys(region: &Region, layer: &dyn SkeyLayer, direction: Direction) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let from = keys.last().map_or(ScanStart::First, |last| ScanStart::After(last));
        layer.scan(region, from, direction, &mut batch).unwrap();
        if batch.is_empty() {
            return keys;
        }
        for &found in &batch {
            let mut key = Vec::new();
            record::read_key(region, found, &mut key).unwrap();
            keys.push(key);
        }
    }
}

/// Removes `victim` after a power cut and then reads all keys through the affected node. With `beyond`, a key above all
/// others was inserted first, through the new node.
fn verify_removal(
    crash: &CrashOutcome,
    kind: SkeyKind,
    present: &[Vec<u8>],
    in_progress: &[u8],
    (victim, beyond): (&[u8], bool),
) {
    let region = crash.reopen().unwrap();
    let layer = open(&region, kind);
    let mut present = present.to_vec();
    if beyond {
        present.push(vec![b'z']);
        add(&region, &*layer, &KeyHeap::new(), b"z");
    }
    let found = layer.find(&region, victim).unwrap().expect("a key that was present");
    assert!(layer.remove(&region, &region.writer(), victim, found).unwrap());
    let expected = |key: &Vec<u8>| key != victim && key != in_progress;
    for direction in [Direction::Up, Direction::Down] {
        let mut keys = keys(&region, &*layer, direction);
        if direction == Direction::Down {
            keys.reverse();
        }
        keys.retain(|key| key != in_progress);
        let left: Vec<Vec<u8>> = present.iter().filter(|key| expected(key)).cloned().collect();
        assert_eq!(keys, left, "{direction:?}, without {victim:?}");
    }
    assert_eq!(layer.find(&region, victim).unwrap(), None);
    let mut problems = Vec::new();
    layer.check(&region, &mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, Vec::<String>::new(), "without {victim:?}");
}

/// A node is full, and the power is cut at each fence of the insert that splits it. Then each of its keys is removed.
fn removed_keys_do_not_reappear_after_an_interrupted_split(kind: SkeyKind, full: u8) {
    let region = Arc::new(Region::simulated(RegionOptions::new().name("split")).unwrap());
    let writer = region.writer();
    match kind {
        SkeyKind::BTree => drop(BTree::create(&region, &writer, SLOT).unwrap()),
        SkeyKind::Trie => drop(Trie::create(&region, &writer, SLOT).unwrap()),
    }
    drop(writer);
    let layer = open(&region, kind);
    let heap = KeyHeap::new();
    let present: Vec<Vec<u8>> = (0..full).map(|number| vec![b'k', 2 * number]).collect();
    present.iter().for_each(|key| add(&region, &*layer, &heap, key));
    let in_progress = vec![b'k', full / 2 * 2 + 1];
    let seen = Arc::new(Mutex::new(0_u64));
    let hook = {
        let (region, present, in_progress, seen) =
            (Arc::downgrade(&region), present.clone(), in_progress.clone(), Arc::clone(&seen));
        move || {
            let region = region.upgrade().unwrap();
            for (number, crash) in region.crash_outcomes(7).take(24).enumerate() {
                // The last moved keys, and some others.
                for victim in present.iter().rev().step_by(if number < 8 { 1 } else { 6 }) {
                    let beyond = number % 2 == 1;
                    verify_removal(&crash, kind, &present, &in_progress, (victim, beyond));
                    *seen.lock().unwrap() += 1;
                }
            }
        }
    };
    region.set_fence_hook(Some(Arc::new(hook)));
    add(&region, &*layer, &heap, &in_progress);
    region.set_fence_hook(None);
    assert!(*seen.lock().unwrap() > 500);
}

#[test]
fn removed_keys_do_not_reappear_after_an_interrupted_split_in_a_btree() {
    removed_keys_do_not_reappear_after_an_interrupted_split(SkeyKind::BTree, 40);
}

#[test]
fn removed_keys_do_not_reappear_after_an_interrupted_split_in_a_trie() {
    removed_keys_do_not_reappear_after_an_interrupted_split(SkeyKind::Trie, 13);
}
