//! The directory of the index blocks of one index in one sstable: their key ranges and sequence numbers.
//!
//! ```text
//! meta block `next/ID`
//! format       u8       1
//! data blocks  varint   of the sstable
//! blocks       varint   n index blocks; number k lies in the meta block `next/ID/k`
//!              n × {
//!     state        u8       0 has ranges, 1 has opaque records
//!     smallest     varint   smallest sequence number of its entries
//!     span         varint   largest minus smallest
//!     keys         varint   distinct secondary keys, at least one
//!     more         varint   entries, less the keys
//!     ranges       varint   r, with state 0
//!                  2 r × {      first and last key of each range, all ascending
//!         shared       varint   bytes shared with the previous bound
//!         rest         bytes    length varint, then the bytes
//!     }
//! }
//! ```
//!
//! ID is the number of the index. A database never reuses it, so blocks of a dropped index are never read as those of
//! another. Bounds are truncated as in [`zone`](crate::in_sstable::zone_bounds). The ranges of a block do not overlap, and
//! those of the next block start at the end of its last one or after it. A key with very many entries is in several blocks.
//!
//! Opaque records, those whose attributes cannot be extracted, have entries under the empty key, which no value has, in
//! blocks of their own. Every query reads these blocks.

use std::sync::Arc;

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::{MAX_SEQUENCE, SequenceNumber, TreeId};
use bolide_lsm::attachments::Attachment;

use super::key_block::KeyBlockBuilder;
use super::key_filter::KeyFilter;
use super::split;
use crate::in_sstable::zone_bounds::{MAX_BOUND_BYTES, lower_bound, upper_bound};
use crate::space::Rect;
use crate::space::rect_directory::{self, RectBlockInfo, RectDirectory};

const FORMAT: u8 = 1;
/// The formats of directories of keys, and of points and rectangles.
pub(super) const FORMATS: [u8; 2] = [FORMAT, rect_directory::FORMAT];
const RANGES: u8 = 0;
const OPAQUE: u8 = 1;
const NAME_PREFIX: &str = "next/";
const FILTER: &str = "filter";

/// The name of the directory of index `id`.
pub(crate) fn name(id: TreeId) -> String {
    format!("{NAME_PREFIX}{id}")
}

/// The name of index block `number` of index `id`.
pub(crate) fn block_name(id: TreeId, number: usize) -> String {
    format!("{NAME_PREFIX}{id}/{number}")
}

/// The name of the filter of index `id`; see [`key_filter`](super::key_filter).
pub(crate) fn filter_name(id: TreeId) -> String {
    format!("{NAME_PREFIX}{id}/{FILTER}")
}

/// The index whose filter is the meta block `name`; `None` for other names.
pub(crate) fn parse_filter_name(name: &str) -> Option<TreeId> {
    let (id, rest) = name.strip_prefix(NAME_PREFIX)?.split_once('/')?;
    id.parse().ok().filter(|_| rest == FILTER)
}

/// The index of the meta block `name`, and the number of the index block; without a number it is the directory.
pub(crate) fn parse_name(name: &str) -> Option<(TreeId, Option<u32>)> {
    let rest = name.strip_prefix(NAME_PREFIX)?;
    match rest.split_once('/') {
        Some((id, number)) => Some((id.parse().ok()?, Some(number.parse().ok()?))),
        None => Some((rest.parse().ok()?, None)),
    }
}

/// Writes a directory.
#[derive(Debug, Default)]
pub(crate) struct DirectoryBuilder {
    blocks: u64,
    body: Vec<u8>,
    /// The last bound of the current block.
    previous: Vec<u8>,
}

impl DirectoryBuilder {
    /// Appends an index block, which is not finished yet. `delta`: see [`split::ranges`].
    pub(crate) fn add(&mut self, block: &KeyBlockBuilder, delta: Option<f64>) {
        let is_opaque = block.key(0).is_empty();
        self.body.push(if is_opaque { OPAQUE } else { RANGES });
        let sequences = || block.entries().iter().map(|entry| entry.sequence);
        let (smallest, largest) = (sequences().min().unwrap_or(0), sequences().max().unwrap_or(0));
        put_varint(&mut self.body, smallest);
        put_varint(&mut self.body, largest - smallest);
        put_varint(&mut self.body, block.keys() as u64);
        put_varint(&mut self.body, (block.entries().len() - block.keys()) as u64);
        self.blocks += 1;
        if is_opaque {
            return;
        }
        let ranges = split::ranges(block, delta);
        put_varint(&mut self.body, ranges.len() as u64);
        self.previous.clear();
        for (first, last) in ranges {
            self.add_bound(lower_bound(block.key(first)));
            self.add_bound(&upper_bound(block.key(last)));
        }
    }

    fn add_bound(&mut self, bound: &[u8]) {
        let shared = self.previous.iter().zip(bound).take_while(|(previous, now)| previous == now).count();
        put_varint(&mut self.body, shared as u64);
        put_bytes(&mut self.body, bound.get(shared..).unwrap_or_default());
        self.previous.clear();
        self.previous.extend_from_slice(bound);
    }

    /// The directory of a file with `data_blocks` data blocks.
    pub(crate) fn finish(&mut self, data_blocks: u64) -> Vec<u8> {
        let mut out = vec![FORMAT];
        put_varint(&mut out, data_blocks);
        put_varint(&mut out, self.blocks);
        out.append(&mut self.body);
        self.blocks = 0;
        out
    }
}

/// The directory entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexBlockInfo {
    /// The smallest and the largest sequence number of its entries.
    pub(crate) smallest: SequenceNumber,
    pub(crate) largest: SequenceNumber,
    /// Distinct keys, and entries.
    pub(crate) keys: u32,
    pub(crate) entries: u32,
    /// Its number among the meta blocks of the sstable.
    pub(crate) meta_block: u32,
    /// Number of its ranges.
    pub(crate) ranges: u32,
    /// Its entries are those of opaque records.
    pub(crate) is_opaque: bool,
}

/// A range of keys that an index block covers; its bounds are stored in [`Directory::bytes`].
#[derive(Debug, Clone, Copy)]
struct BlockKeyRange {
    at: u32,
    block: u32,
    low_bytes: u8,
    high_bytes: u8,
}

/// A decoded directory, attached to its sstable in memory.
#[derive(Debug)]
pub(crate) struct Directory {
    data_blocks: u64,
    blocks: Box<[IndexBlockInfo]>,
    ranges: Box<[BlockKeyRange]>,
    bytes: Box<[u8]>,
    /// In a spatial index: the ranges of its index blocks, each with the number of its block.
    rects: Box<[(u32, Rect)]>,
    /// Excludes keys that are in none of the blocks.
    filter: Option<KeyFilter>,
}

impl Directory {
    /// Decodes the output of [`DirectoryBuilder::finish`]; `None` for other bytes. `meta_block` returns the number of the
    /// meta block of an index block, which must exist. Memory: at most some 100 times the length of `payload`.
    pub(crate) fn decode(payload: &[u8], mut meta_block: impl FnMut(usize) -> Option<u32>) -> Option<Self> {
        let mut input = Decoder::new(payload);
        match input.u8()? {
            FORMAT => {}
            rect_directory::FORMAT => return Self::of_rects(RectDirectory::decode(payload)?, meta_block),
            _ => return None,
        }
        let data_blocks = input.varint()?;
        let count = input.length(payload.len())?;
        let (mut blocks, mut ranges, mut bytes) = (Vec::with_capacity(count), Vec::new(), Vec::new());
        for number in 0..count {
            let state = input.u8()?;
            let smallest = input.varint()?;
            let largest = smallest.checked_add(input.varint()?).filter(|&largest| largest <= MAX_SEQUENCE)?;
            let keys = u32::try_from(input.varint()?).ok().filter(|&keys| keys > 0)?;
            let entries = u32::try_from(input.varint()?).ok().and_then(|more| keys.checked_add(more))?;
            let is_opaque = match state {
                OPAQUE => true,
                RANGES => false,
                _ => return None,
            };
            let meta_block = meta_block(number)?;
            let before = ranges.len();
            if !is_opaque {
                decode_ranges(&mut input, number as u32, &mut ranges, &mut bytes)?;
            }
            let own = (ranges.len() - before) as u32;
            blocks.push(IndexBlockInfo {
                smallest,
                largest,
                keys,
                entries,
                meta_block,
                ranges: own,
                is_opaque,
            });
        }
        let is_whole = input.is_empty();
        is_whole.then(|| Self {
            data_blocks,
            blocks: blocks.into(),
            ranges: ranges.into(),
            bytes: bytes.into(),
            rects: Box::default(),
            filter: None,
        })
    }

    /// The same with a filter over its keys.
    pub(crate) fn with_filter(self, filter: Option<KeyFilter>) -> Self {
        Self { filter, ..self }
    }

    /// The filter over its keys, if there is one.
    #[inline]
    pub(crate) fn filter(&self) -> Option<&KeyFilter> {
        self.filter.as_ref()
    }

    fn of_rects(read: RectDirectory, mut meta_block: impl FnMut(usize) -> Option<u32>) -> Option<Self> {
        let block = |(number, info): (usize, &RectBlockInfo)| {
            let &RectBlockInfo { smallest, largest, entries, ranges, is_opaque } = info;
            let meta_block = meta_block(number)?;
            Some(IndexBlockInfo { smallest, largest, keys: entries, entries, ranges, meta_block, is_opaque })
        };
        Some(Self {
            data_blocks: read.data_blocks,
            blocks: read.blocks.iter().enumerate().map(block).collect::<Option<_>>()?,
            ranges: Box::default(),
            bytes: Box::default(),
            rects: read.ranges.into(),
            filter: None,
        })
    }

    /// In a spatial index, the ranges of its index blocks, each with the number of its block.
    pub(crate) fn rects(&self) -> &[(u32, Rect)] {
        &self.rects
    }

    /// Number of data blocks of its sstable.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// The index blocks, in the order of their keys.
    pub(crate) fn blocks(&self) -> &[IndexBlockInfo] {
        &self.blocks
    }

    /// Number of ranges of all index blocks.
    pub(crate) fn ranges(&self) -> usize {
        self.ranges.len() + self.rects.len()
    }

    /// Number of key ranges among these.
    pub(crate) fn key_ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The index block and the first and last key of the key range number `range`.
    pub(crate) fn range(&self, range: u32) -> Option<(u32, &[u8], &[u8])> {
        let BlockKeyRange { at, block, low_bytes, high_bytes } = *self.ranges.get(range as usize)?;
        let bounds = self.bytes.get(at as usize..)?;
        let (low, rest) = bounds.split_at_checked(low_bytes.into())?;
        Some((block, low, rest.get(..high_bytes.into())?))
    }
}

/// Reads the ranges of index block number `block`.
fn decode_ranges(
    input: &mut Decoder<'_>,
    block: u32,
    ranges: &mut Vec<BlockKeyRange>,
    bytes: &mut Vec<u8>,
) -> Option<()> {
    let count = input.length(input.rest().len())?;
    let mut before: Vec<u8> = Vec::new();
    let mut bound = |bytes: &mut Vec<u8>, input: &mut Decoder<'_>| {
        let shared = input.length(before.len())?;
        let rest = input.bytes().filter(|rest| shared + rest.len() <= MAX_BOUND_BYTES)?;
        let is_ascending = before.get(shared..)? <= rest;
        before.truncate(shared);
        before.extend_from_slice(rest);
        bytes.extend_from_slice(&before);
        is_ascending.then_some(before.len() as u8)
    };
    (count > 0).then_some(())?;
    for _ in 0..count {
        let at = u32::try_from(bytes.len()).ok()?;
        let low_bytes = bound(bytes, input)?;
        let high_bytes = bound(bytes, input)?;
        ranges.push(BlockKeyRange { at, block, low_bytes, high_bytes });
    }
    Some(())
}

impl Attachment for Directory {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.blocks)
            + size_of_val(&*self.ranges)
            + self.bytes.len()
            + size_of_val(&*self.rects)
            + self.filter.as_ref().map_or(0, KeyFilter::memory_bytes)
    }
}

/// A directory shared by an sstable and global indexes.
pub(crate) type SharedDirectory = Arc<Directory>;

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
