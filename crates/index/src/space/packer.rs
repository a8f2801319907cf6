//! Packs the points or rectangles of an sstable into index blocks (NEXT, Algorithm 1). They are sorted by their centres along
//! a Hilbert curve through this sstable, so that the rectangles of a block lie close together.

use super::Rect;
use super::hilbert::Curve;
use super::rect_block::{self, MAX_ENTRIES, RectEntry};
use super::rect_directory::RectDirectoryBuilder;

/// Estimated bytes of an entry of the first block.
const ENTRY_BYTES: usize = 16;

/// Index blocks with their directory.
#[derive(Debug, Default)]
pub(crate) struct PackedBlocks {
    /// The index blocks, in the order of the directory.
    pub(crate) blocks: Vec<Vec<u8>>,
    pub(crate) directory: Vec<u8>,
}

/// Packs `entries`, and in blocks of their own `opaque`, the entries of opaque records; both in any order. `block_bytes` is
/// the target length of a block; `delta`: see [`rect_directory`](super::rect_directory).
pub(crate) fn pack(
    mut entries: Vec<RectEntry>,
    mut opaque: Vec<RectEntry>,
    block_bytes: usize,
    delta: Option<f64>,
    data_blocks: u64,
) -> PackedBlocks {
    let mut packed = PackedBlocks::default();
    let mut directory = RectDirectoryBuilder::default();
    if let Some(curve) = Curve::around(entries.iter().map(|entry| entry.rect)) {
        let bits = |rect: &Rect| rect.corners().map(f64::to_bits);
        // A total order: the result does not depend on the order of the input.
        entries.sort_by_cached_key(|one| (curve.position(&one.rect), one.sequence, bits(&one.rect)));
    }
    opaque.sort_unstable_by_key(|entry| entry.sequence);
    // The blocks that every query reads come first.
    for (all, is_opaque) in [(opaque, true), (entries, false)] {
        let mut rest = &all[..];
        let mut count = block_bytes / ENTRY_BYTES;
        while !rest.is_empty() {
            let first = |count: usize| rest.split_at(count.clamp(1, MAX_ENTRIES).min(rest.len()));
            let (mut block, mut remaining) = first(count);
            let mut bytes = rect_block::write(block);
            count = block_bytes * block.len() / bytes.len().max(1);
            // These entries may be far longer than those of the previous block.
            if bytes.len() > block_bytes + block_bytes / 2 && block.len() > 1 {
                (block, remaining) = first(count);
                bytes = rect_block::write(block);
            }
            rest = remaining;
            directory.add(block, is_opaque, delta);
            packed.blocks.push(bytes);
        }
    }
    packed.directory = directory.finish(data_blocks);
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::rect_directory::RectDirectory;

    fn entry(number: u32) -> RectEntry {
        let (x, y) = (f64::from(number * 37 % 101) / 10.0, f64::from(number * 53 % 97) / 10.0);
        let rect = Rect::new(x, y, x + 0.1, y + 0.1).unwrap();
        RectEntry {
            rect,
            sequence: u64::from(number) + 1,
            block: number / 20,
            entry: number % 20,
            repeated: false,
        }
    }

    #[test]
    fn packing_is_independent_of_the_input_order_and_groups_neighbours() {
        let forward: Vec<RectEntry> = (0..3_000).map(entry).collect();
        let backward: Vec<RectEntry> = forward.iter().rev().copied().collect();
        let opaque = vec![RectEntry { sequence: 7_000, ..entry(0) }];
        let packed = pack(forward.clone(), opaque.clone(), 4096, None, 150);
        let again = pack(backward, opaque, 4096, None, 150);
        assert_eq!((&packed.blocks, &packed.directory), (&again.blocks, &again.directory));
        let directory = RectDirectory::decode(&packed.directory).unwrap();
        assert_eq!(directory.blocks.len(), packed.blocks.len());
        let mut found = Vec::new();
        for (bytes, info) in packed.blocks.iter().zip(&directory.blocks) {
            assert!(bytes.len() <= 4096 * 3 / 2, "{}", bytes.len());
            let count = rect_block::visit(bytes, None, |entry| {
                found.extend((!info.is_opaque).then_some(*entry));
            });
            assert_eq!(count, Some(info.entries));
        }
        found.sort_by_key(|one| one.sequence);
        assert_eq!(found, forward);
        assert!(directory.blocks[0].is_opaque && !directory.blocks[1].is_opaque);
        // The total area of the ranges is little more than that of the extent.
        let area = |rect: &Rect| (rect.max_x() - rect.min_x()) * (rect.max_y() - rect.min_y());
        let covered: f64 = directory.ranges.iter().map(|(_, range)| area(range)).sum();
        assert!(covered < 2.0 * 10.1 * 9.7, "{covered}");
    }

    #[test]
    fn an_sstable_without_entries_has_a_directory_without_blocks() {
        let packed = pack(Vec::new(), Vec::new(), 4096, None, 3);
        assert!(packed.blocks.is_empty());
        assert_eq!(RectDirectory::decode(&packed.directory).unwrap().data_blocks, 3);
    }
}
