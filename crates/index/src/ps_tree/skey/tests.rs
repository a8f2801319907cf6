//! Both layers through power cuts amid a split: what goes afterwards stays away.

use std::sync::{Arc, Mutex};

use bolide_storage::pmem::{Crash, Region, RegionOptions};

use super::btree::BTree;
use super::record::{self, KeyHeap};
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
    assert_eq!(layer.insert(region, &writer, key, new).unwrap(), SkeyInserted::New);
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

/// Takes `victim` out of what a power cut left, and then, through the node that its removal left alone, reads all. With
/// `beyond`, a key above all came first, and went through the new node.
fn verify_removal(
    crash: &Crash,
    kind: SkeyKind,
    there: &[Vec<u8>],
    going_on: &[u8],
    (victim, beyond): (&[u8], bool),
) {
    let region = crash.reopen().unwrap();
    let layer = open(&region, kind);
    let mut there = there.to_vec();
    if beyond {
        there.push(vec![b'z']);
        add(&region, &*layer, &KeyHeap::new(), b"z");
    }
    let found = layer.find(&region, victim).unwrap().expect("a key that was there");
    assert!(layer.remove(&region, &region.writer(), victim, found).unwrap());
    let expected = |key: &Vec<u8>| key != victim && key != going_on;
    for direction in [Direction::Up, Direction::Down] {
        let mut keys = keys(&region, &*layer, direction);
        if direction == Direction::Down {
            keys.reverse();
        }
        keys.retain(|key| key != going_on);
        let left: Vec<Vec<u8>> = there.iter().filter(|key| expected(key)).cloned().collect();
        assert_eq!(keys, left, "{direction:?}, without {victim:?}");
    }
    assert_eq!(layer.find(&region, victim).unwrap(), None);
    let mut problems = Vec::new();
    layer.check(&region, &mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, Vec::<String>::new(), "without {victim:?}");
}

/// One node is full, and the power is cut at each fence of the insert that splits it. Then each of its keys goes in turn.
fn keys_that_go_after_a_split_was_cut_off_stay_away(kind: SkeyKind, full: u8) {
    let region = Arc::new(Region::simulated(RegionOptions::new().name("split")).unwrap());
    let writer = region.writer();
    match kind {
        SkeyKind::BTree => drop(BTree::create(&region, &writer, SLOT).unwrap()),
        SkeyKind::Trie => drop(Trie::create(&region, &writer, SLOT).unwrap()),
    }
    drop(writer);
    let layer = open(&region, kind);
    let heap = KeyHeap::new();
    let there: Vec<Vec<u8>> = (0..full).map(|number| vec![b'k', 2 * number]).collect();
    there.iter().for_each(|key| add(&region, &*layer, &heap, key));
    let going_on = vec![b'k', full / 2 * 2 + 1];
    let seen = Arc::new(Mutex::new(0_u64));
    let hook = {
        let (region, there, going_on, seen) =
            (Arc::downgrade(&region), there.clone(), going_on.clone(), Arc::clone(&seen));
        move || {
            let region = region.upgrade().unwrap();
            for (number, crash) in region.crashes(7).take(24).enumerate() {
                // Those that moved last, and some others.
                for victim in there.iter().rev().step_by(if number < 8 { 1 } else { 6 }) {
                    let beyond = number % 2 == 1;
                    verify_removal(&crash, kind, &there, &going_on, (victim, beyond));
                    *seen.lock().unwrap() += 1;
                }
            }
        }
    };
    region.set_fence_hook(Some(Arc::new(hook)));
    add(&region, &*layer, &heap, &going_on);
    region.set_fence_hook(None);
    assert!(*seen.lock().unwrap() > 500);
}

#[test]
fn keys_that_go_after_a_split_was_cut_off_stay_away_in_a_btree() {
    keys_that_go_after_a_split_was_cut_off_stay_away(SkeyKind::BTree, 40);
}

#[test]
fn keys_that_go_after_a_split_was_cut_off_stay_away_in_a_trie() {
    keys_that_go_after_a_split_was_cut_off_stay_away(SkeyKind::Trie, 13);
}
