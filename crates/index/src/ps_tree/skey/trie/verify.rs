//! Walk and check of the whole trie.

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region};

use super::super::record;
use super::super::{Direction, ScanStart, SkeyLayer, SkeyStats};
use super::node::{LAYER, NODE_BYTES, Slice, TrieEntry};
use super::{FIRST, Trie};

/// Calls `visit` with every node: its place, level, low end, entries and leftmost child.
fn for_each_node(
    trie: &Trie,
    region: &Region,
    mut visit: impl FnMut(Place, u8, Slice, &[TrieEntry], Place) -> Result<()>,
) -> Result<()> {
    let mut layers = vec![region.root(trie.slot)?];
    while let Some(root) = layers.pop() {
        let mut first = root;
        loop {
            let mut next = Some(first);
            let (level, leftmost) = trie.read(region, first, |view| Ok((view.level(), view.leftmost())))?;
            while let Some(node) = next {
                let (mut entries, low, leftmost, sibling) = trie.read(region, node, |view| {
                    Ok((view.entries(), view.low(), view.leftmost(), view.sibling()))
                })?;
                // An interrupted split leaves the entries of the sibling until the next writer repairs the node.
                if let Some(sibling) = sibling {
                    let end = trie.read(region, sibling, |view| Ok(view.low()))?;
                    entries.retain(|entry| entry.slice < end);
                }
                visit(node, level, low, &entries, leftmost)?;
                if level == 0 {
                    let deeper = entries.iter().filter(|entry| entry.value & LAYER != 0);
                    layers.extend(deeper.map(|entry| entry.value & !LAYER));
                }
                next = sibling;
            }
            if level == 0 {
                break;
            }
            first = leftmost;
        }
    }
    Ok(())
}

pub(super) fn walk(
    trie: &Trie,
    region: &Region,
    visit: &mut dyn FnMut(Place, usize) -> Result<()>,
) -> Result<SkeyStats> {
    let root = region.root(trie.slot)?;
    let height = trie.read(region, root, |view| Ok(view.level()))?;
    let mut stats = SkeyStats { height: u64::from(height) + 1, ..SkeyStats::default() };
    for_each_node(trie, region, |node, level, _, entries, _| {
        visit(node, NODE_BYTES)?;
        stats.nodes += 1;
        stats.node_bytes += NODE_BYTES as u64;
        if level > 0 {
            return Ok(());
        }
        for entry in entries.iter().filter(|entry| entry.value & LAYER == 0) {
            let bytes = record::bytes_of(region, entry.value)?;
            stats.keys += 1;
            stats.record_bytes += bytes as u64;
            visit(entry.value, bytes)?;
        }
        Ok(())
    })?;
    Ok(stats)
}

pub(super) fn check(trie: &Trie, region: &Region, report: &mut dyn FnMut(String)) -> Result<()> {
    let mut keys = 0_u64;
    for_each_node(trie, region, |node, level, low, entries, leftmost| {
        if !entries.windows(2).all(|pair| pair[0].slice < pair[1].slice) {
            report(format!("node {node}: slices do not ascend"));
        }
        if low != FIRST && entries.first().is_some_and(|entry| entry.slice < low) {
            report(format!("node {node}: a slice is below the low end"));
        }
        if level == 0 {
            keys += entries.iter().filter(|entry| entry.value & LAYER == 0).count() as u64;
            return Ok(());
        }
        for child in entries.iter().map(|entry| entry.value).chain([leftmost]) {
            if trie.read(region, child, |view| Ok(view.level()))? + 1 != level {
                report(format!("node {node}: child {child} is of a wrong level"));
            }
        }
        Ok(())
    })?;
    let mut batch = Vec::new();
    let (mut last, mut key) = (Vec::new(), Vec::new());
    let mut scanned = 0;
    loop {
        batch.clear();
        let from = if scanned == 0 { ScanStart::First } else { ScanStart::After(&last) };
        trie.scan(region, from, Direction::Up, &mut batch)?;
        if batch.is_empty() {
            break;
        }
        for &found in &batch {
            record::verify(region, found, &mut key)?;
            if scanned > 0 && key <= last {
                report(format!("record {found}: keys do not ascend"));
            }
            if trie.find(region, &key)? != Some(found) {
                report(format!("record {found}: a lookup of its key does not return it"));
            }
            std::mem::swap(&mut last, &mut key);
            scanned += 1;
        }
    }
    if keys != scanned {
        report(format!("{keys} keys in nodes, {scanned} in order"));
    }
    Ok(())
}
