//! The directory of the index blocks of points or rectangles in one sstable.
//!
//! ```text
//! format         u8       3 (directories of index blocks of keys have another)
//! data blocks    varint   of the sstable
//! blocks         varint   n index blocks
//! n x {
//!     sort       u8       0 rectangles; 1 opaque records
//!     smallest   varint   sequence number of its entries
//!     span       varint   the largest, less the smallest
//!     entries    varint   m, at least one
//!     ranges     varint   r, at least one; only of sort 0
//!     r x {
//!         corners    4 x f64  min x, min y, max x, max y, little-endian
//!     }
//! }
//! ```
//!
//! The ranges of a block are rectangles that together contain all of its entries. One range around all of them would match
//! queries for the gaps between them. So a range ends, in the packing order of the block, if the next rectangle would extend
//! it by more than a threshold (NEXT §4, where it is a threshold of values): `delta=N`, or a quarter of the extent of the
//! whole block, width plus height.

use bolide_base::coding::{Decoder, put_varint};
use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::Rect;
use super::rect_block::RectEntry;

pub(crate) const FORMAT: u8 = 3;
const RECTS: u8 = 0;
const OPAQUE: u8 = 1;
/// Maximum ranges of a block.
const MAX_RANGES: usize = 8;
/// Maximum ranges of a block with a threshold.
const MAX_RANGES_BY_THRESHOLD: usize = 1 << 12;
/// The default threshold is the extent of the block divided by this.
const THRESHOLD_DIVISOR: f64 = 4.0;

/// The directory entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RectBlockInfo {
    /// The smallest and the largest sequence number of its entries.
    pub(crate) smallest: SequenceNumber,
    pub(crate) largest: SequenceNumber,
    pub(crate) entries: u32,
    /// Number of its ranges.
    pub(crate) ranges: u32,
    /// Its entries are those of opaque records.
    pub(crate) is_opaque: bool,
}

/// Writes a directory.
#[derive(Debug, Default)]
pub(crate) struct RectDirectoryBuilder {
    blocks: u64,
    body: Vec<u8>,
}

impl RectDirectoryBuilder {
    /// Appends the index block of these entries.
    pub(crate) fn add(&mut self, entries: &[RectEntry], is_opaque: bool, delta: Option<f64>) {
        let sequences = || entries.iter().map(|entry| entry.sequence);
        let (smallest, largest) = (sequences().min().unwrap_or(0), sequences().max().unwrap_or(0));
        self.blocks += 1;
        self.body.push(if is_opaque { OPAQUE } else { RECTS });
        put_varint(&mut self.body, smallest);
        put_varint(&mut self.body, largest - smallest);
        put_varint(&mut self.body, entries.len() as u64);
        if is_opaque {
            return;
        }
        let ranges = ranges(entries, delta);
        put_varint(&mut self.body, ranges.len() as u64);
        for corner in ranges.iter().flat_map(Rect::corners) {
            self.body.extend_from_slice(&corner.to_le_bytes());
        }
    }

    /// The directory of a file with `data_blocks` data blocks.
    pub(crate) fn finish(self, data_blocks: u64) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, data_blocks);
        put_varint(&mut out, self.blocks);
        out.extend_from_slice(&self.body);
        out
    }
}

/// The ranges of a block; see the [module](self).
fn ranges(entries: &[RectEntry], delta: Option<f64>) -> Vec<Rect> {
    let extent = |rect: &Rect| (rect.max_x() - rect.min_x()) + (rect.max_y() - rect.min_y());
    let all = entries.iter().map(|entry| entry.rect).reduce(|all, one| all.union(&one));
    let (max, growth) = match delta {
        Some(delta) => (MAX_RANGES_BY_THRESHOLD, delta),
        None => (MAX_RANGES, all.map_or(0.0, |all| extent(&all)) / THRESHOLD_DIVISOR),
    };
    let mut ranges: Vec<Rect> = Vec::new();
    for entry in entries {
        let count = ranges.len();
        match ranges.last_mut() {
            Some(last) if count == max || extent(&last.union(&entry.rect)) - extent(last) <= growth => {
                *last = last.union(&entry.rect);
            }
            // A growth from infinity to infinity is NaN; a new range is always correct.
            _ => ranges.push(entry.rect),
        }
    }
    ranges
}

/// A decoded directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RectDirectory {
    pub(crate) data_blocks: u64,
    pub(crate) blocks: Vec<RectBlockInfo>,
    /// The ranges, each with the number of its block, sorted by it.
    pub(crate) ranges: Vec<(u32, Rect)>,
}

impl RectDirectory {
    /// Decodes the output of [`RectDirectoryBuilder::finish`]; `None` for other bytes. Memory: at most some thirty times the
    /// length of `payload`.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut input = Decoder::new(payload);
        if input.u8()? != FORMAT {
            return None;
        }
        let data_blocks = input.varint()?;
        let count = input.length(payload.len())?;
        let (mut blocks, mut ranges) = (Vec::with_capacity(count), Vec::new());
        for number in 0..count {
            let is_opaque = match input.u8()? {
                RECTS => false,
                OPAQUE => true,
                _ => return None,
            };
            let smallest = input.varint()?;
            let largest = smallest.checked_add(input.varint()?).filter(|largest| *largest <= MAX_SEQUENCE)?;
            let entries = u32::try_from(input.varint()?).ok().filter(|entries| *entries > 0)?;
            blocks.push(RectBlockInfo { smallest, largest, entries, ranges: 0, is_opaque });
            if is_opaque {
                continue;
            }
            let of_block = input.length(payload.len()).filter(|of_block| *of_block > 0)?;
            blocks.last_mut()?.ranges = u32::try_from(of_block).ok()?;
            for _ in 0..of_block {
                let mut corners = [0.0; 4];
                for corner in &mut corners {
                    *corner = f64::from_bits(input.u64()?);
                }
                ranges.push((number as u32, Rect::valid(corners)?));
            }
        }
        input.is_empty().then_some(Self { data_blocks, blocks, ranges })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(x: f64, y: f64, sequence: u64) -> RectEntry {
        let rect = Rect::new(x, y, x + 1.0, y + 1.0).unwrap();
        RectEntry { rect, sequence, block: 0, entry: 0, repeated: false }
    }

    fn of(blocks: &[(Vec<RectEntry>, bool)], delta: Option<f64>) -> Vec<u8> {
        let mut builder = RectDirectoryBuilder::default();
        blocks.iter().for_each(|(entries, is_opaque)| builder.add(entries, *is_opaque, delta));
        builder.finish(17)
    }

    #[test]
    fn outliers_have_ranges_of_their_own() {
        let dense: Vec<RectEntry> =
            (0..50).map(|at| entry(f64::from(at % 7), f64::from(at / 7), 1)).collect();
        assert_eq!(ranges(&dense, None).len(), 1);
        let mut with_outlier = dense.clone();
        with_outlier.push(entry(1000.0, 1000.0, 1));
        let found = ranges(&with_outlier, None);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], with_outlier[50].rect);
        assert_eq!(ranges(&with_outlier, Some(1e9)).len(), 1);
        assert_eq!(ranges(&dense, Some(0.0)).len(), 50);
        let far: Vec<RectEntry> = (0..30).map(|at| entry(f64::from(at * 100), 0.0, 1)).collect();
        assert_eq!(ranges(&far, Some(50.0)).len(), 30);
        assert!(ranges(&far, None).len() <= MAX_RANGES);
        let huge =
            [-f64::MAX, f64::MAX].map(|x| RectEntry { rect: Rect::new(x, x, x, x).unwrap(), ..dense[0] });
        let found = ranges(&huge, None);
        assert!(huge.iter().all(|one| found.iter().any(|range| range.contains(&one.rect))), "{found:?}");
    }

    proptest! {
        #[test]
        fn directories_round_trip_and_contain_all(
            blocks in proptest::collection::vec(
                (proptest::collection::vec((-50..50_i32, -50..50_i32, 0..MAX_SEQUENCE), 1..30), any::<bool>()),
                0..6,
            ),
            delta in proptest::option::of(0.0..60.0_f64),
            cut in any::<prop::sample::Index>(),
            damage in any::<(prop::sample::Index, u8)>(),
        ) {
            let blocks: Vec<(Vec<RectEntry>, bool)> = blocks
                .into_iter()
                .map(|(all, is_opaque)| {
                    (all.into_iter().map(|(x, y, at)| entry(x.into(), y.into(), at)).collect(), is_opaque)
                })
                .collect();
            let mut bytes = of(&blocks, delta);
            let read = RectDirectory::decode(&bytes).unwrap();
            prop_assert_eq!((read.data_blocks, read.blocks.len()), (17, blocks.len()));
            for (number, ((entries, is_opaque), info)) in blocks.iter().zip(&read.blocks).enumerate() {
                prop_assert_eq!((info.entries as usize, info.is_opaque), (entries.len(), *is_opaque));
                for entry in entries {
                    prop_assert!(info.smallest <= entry.sequence && entry.sequence <= info.largest);
                    let mut own = read.ranges.iter().filter(|(block, _)| *block as usize == number);
                    prop_assert!(*is_opaque || own.any(|(_, range)| range.contains(&entry.rect)));
                }
            }
            prop_assert!(RectDirectory::decode(&bytes[..cut.index(bytes.len())]).is_none());
            let at = damage.0.index(bytes.len());
            bytes[at] = damage.1;
            let _ = RectDirectory::decode(&bytes);
        }
    }
}
