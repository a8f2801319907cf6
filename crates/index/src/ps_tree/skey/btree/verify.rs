//! Walk and check of the whole B+-tree.

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region};

use super::super::record;
use super::super::{SkeyStats, record::head_of};
use super::BTree;
use super::leaf_slot::LeafPrefix;
use super::node::{BTreeSlot, NODE_BYTES};
use crate::ps_tree::pkey::damage;

/// A copy of the parts of a node.
struct NodeCopy {
    slots: Vec<BTreeSlot>,
    sibling: Option<Place>,
    low: Place,
    level: u32,
    leftmost: Place,
    prefix: LeafPrefix,
    /// Digests of a torn leaf are not valid.
    is_torn: bool,
}

fn copy(tree: &BTree, region: &Region, node: Place) -> Result<NodeCopy> {
    let mut copied = tree.read(region, node, |view| {
        Ok(NodeCopy {
            slots: view.slots(),
            sibling: view.sibling(),
            low: view.low(),
            level: view.level(),
            leftmost: view.leftmost(),
            prefix: view.prefix(),
            is_torn: view.is_torn(),
        })
    })?;
    // An interrupted split leaves the slots of the sibling until the next writer repairs the node.
    if let Some(sibling) = copied.sibling {
        let mut low = Vec::new();
        record::read_key(region, tree.read(region, sibling, |view| Ok(view.low()))?, &mut low)?;
        while let Some(&last) = copied.slots.last() {
            let key = tree.read(region, node, |view| view.key_record(last))?;
            if record::compare_key(region, key, &low)? == Ordering::Less {
                break;
            }
            copied.slots.pop();
        }
    }
    Ok(copied)
}

pub(super) fn walk(
    tree: &BTree,
    region: &Region,
    visit: &mut dyn FnMut(Place, usize) -> Result<()>,
) -> Result<SkeyStats> {
    let levels = tree.levels(region)?;
    let limit = region.stats().high_water_bytes / NODE_BYTES as u64;
    let mut stats = SkeyStats { height: levels.len() as u64, ..SkeyStats::default() };
    for first in levels {
        let mut next = Some(first);
        while let Some(node) = next {
            let copied = copy(tree, region, node)?;
            visit(node, NODE_BYTES)?;
            stats.nodes += 1;
            check_count(limit, node, stats.nodes)?;
            stats.node_bytes += NODE_BYTES as u64;
            let mut record = |record: Place| -> Result<()> {
                let bytes = record::bytes_of(region, record)?;
                stats.record_bytes += bytes as u64;
                visit(record, bytes)
            };
            // Inner nodes share the separators of leaves.
            if copied.low != 0 && copied.level == 0 {
                record(copied.low)?;
            }
            if copied.level == 0 {
                copied.slots.iter().try_for_each(|slot| record(slot.pointer))?;
                stats.keys += copied.slots.len() as u64;
            }
            next = copied.sibling;
        }
    }
    Ok(stats)
}

pub(super) fn check(tree: &BTree, region: &Region, report: &mut dyn FnMut(String)) -> Result<()> {
    let levels = tree.levels(region)?;
    let limit = region.stats().high_water_bytes / NODE_BYTES as u64;
    let mut scratch = Vec::new();
    for &first in &levels {
        let mut next = Some(first);
        let mut last: Option<Vec<u8>> = None;
        let mut nodes = 0;
        while let Some(node) = next {
            let copied = copy(tree, region, node)?;
            nodes += 1;
            check_count(limit, node, nodes)?;
            if first != node {
                let mut low = Vec::new();
                record::read_key(region, copied.low, &mut low)?;
                if last.as_ref().is_some_and(|last| copied.level == 0 && *last >= low) {
                    report(format!("node {node}: its separator is not above the keys before"));
                }
                if copied.level > 0 {
                    last = last.max(Some(low));
                } else {
                    // The keys of a leaf are at or above its separator.
                    check_lowest(region, node, &copied, &low, report)?;
                }
            } else if copied.low != 0 {
                report(format!("node {node}: the first of its level has a separator"));
            }
            for slot in &copied.slots {
                let key_record = tree.read(region, node, |view| view.key_record(*slot))?;
                record::verify(region, key_record, &mut scratch)?;
                let head = match copied.level {
                    0 if copied.is_torn => Some(slot.head),
                    0 => copied.prefix.locate(&scratch).map(|digest| (digest, 0)).ok(),
                    _ => Some(head_of(&scratch)),
                };
                if Some(slot.head) != head {
                    report(format!("node {node}: a head is not that of its key"));
                }
                if last.as_ref().is_some_and(|last| *last >= scratch) {
                    report(format!("node {node}: keys do not ascend"));
                }
                last = Some(scratch.clone());
                if copied.level > 0 {
                    check_child(tree, region, node, &copied, slot.pointer, report)?;
                }
            }
            if copied.level > 0 {
                check_child(tree, region, node, &copied, copied.leftmost, report)?;
            }
            next = copied.sibling;
        }
    }
    Ok(())
}

/// Bounds the nodes of a level by the size of the region: damaged links may form a cycle.
fn check_count(limit: u64, node: Place, nodes: u64) -> Result<()> {
    if nodes > limit {
        return Err(damage(node, "the siblings of the B+-tree"));
    }
    Ok(())
}

fn check_lowest(
    region: &Region,
    node: Place,
    copied: &NodeCopy,
    low: &[u8],
    report: &mut dyn FnMut(String),
) -> Result<()> {
    if let Some(slot) = copied.slots.first()
        && record::compare_key(region, slot.pointer, low)? == Ordering::Less
    {
        report(format!("node {node}: a key is below the separator"));
    }
    Ok(())
}

fn check_child(
    tree: &BTree,
    region: &Region,
    node: Place,
    copied: &NodeCopy,
    child: Place,
    report: &mut dyn FnMut(String),
) -> Result<()> {
    if copy(tree, region, child)?.level + 1 != copied.level {
        report(format!("node {node}: child {child} is of a wrong level"));
    }
    Ok(())
}
