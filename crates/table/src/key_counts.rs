//! The number of entries of each data block.
//!
//! ```text
//! meta block "bolide.key-counts"
//! width    u8             1, 2 or 4: bytes per count, as few as the largest count needs
//! counts   n × width      little-endian, one for each data block in file order; none is zero
//! ```
//!
//! With the counts and the position of an entry, the k-th next entry is reached without reading the blocks in between
//! (REMIX §4.1). Written if [`TableOptions::key_counts`](crate::TableOptions::key_counts) is set.

use std::sync::Arc;

use bolide_base::{Result, Trailer};
use bolide_memory::{LargeArray, MemoryPool, prefetch};

use crate::block::MalformedBlock;
use crate::meta_collector::MetaCollector;
use crate::stored_block::BlockHandle;
use crate::table_reader::TableReader;

/// The name of the meta block.
pub(crate) const KEY_COUNTS: &str = "bolide.key-counts";

/// The number of entries of each data block of one or more sstables, in one, two or four bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCounts {
    width: u8,
    bytes: LargeArray<u8>,
}

impl KeyCounts {
    /// Encodes `counts`.
    pub fn new(counts: &[u32]) -> Self {
        let largest = counts.iter().copied().max().unwrap_or(0);
        let width = match largest {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        let little = counts.iter().map(|count| count.to_le_bytes());
        let bytes = little.flat_map(|bytes| bytes.into_iter().take(usize::from(width))).collect();
        Self { width, bytes }
    }

    /// The same counts in the memory of `pool`.
    #[must_use]
    pub fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        Self { bytes: self.bytes.moved_to(pool), ..self }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> usize {
        self.bytes.len() / usize::from(self.width)
    }

    /// The number of entries of block number `block`; `None` after the last block.
    #[inline]
    pub fn get(&self, block: usize) -> Option<u32> {
        if self.width == 1 {
            return self.bytes.get(block).map(|&count| count.into());
        }
        let at = block.checked_mul(usize::from(self.width))?;
        let bytes = self.bytes.get(at..)?;
        match self.width {
            2 => bytes.first_chunk().map(|bytes| u16::from_le_bytes(*bytes).into()),
            _ => bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)),
        }
    }

    /// Prefetches the memory that [`get`](Self::get) reads.
    #[inline]
    pub fn prefetch(&self, block: usize) {
        if let Some(count) = self.bytes.get(block.saturating_mul(self.width.into())) {
            prefetch(count, 1);
        }
    }

    /// All counts in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.blocks()).map_while(|block| self.get(block))
    }

    /// The largest count; 0 without blocks.
    pub fn largest(&self) -> u32 {
        self.iter().max().unwrap_or(0)
    }

    /// Memory of the counts, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes()
    }

    fn encode(&self) -> Vec<u8> {
        [&[self.width], &*self.bytes].concat()
    }

    fn decode(payload: &[u8]) -> std::result::Result<Self, MalformedBlock> {
        const DAMAGED: MalformedBlock = MalformedBlock("the key counts do not decode");
        let (&width, bytes) = payload.split_first().ok_or(DAMAGED)?;
        if !matches!(width, 1 | 2 | 4) || !bytes.len().is_multiple_of(width.into()) {
            return Err(DAMAGED);
        }
        let counts = Self { width, bytes: bytes.to_vec().into() };
        if counts.iter().any(|count| count == 0) { Err(DAMAGED) } else { Ok(counts) }
    }
}

/// Counts the entries of each data block while an sstable is written.
#[derive(Debug, Default)]
pub(crate) struct KeyCountCollector {
    counts: Vec<u32>,
    current: u32,
}

impl MetaCollector for KeyCountCollector {
    fn add(&mut self, _key: &[u8], _trailer: Trailer, _value: &[u8], _block: u64) {
        self.current += 1;
    }

    fn finish_block(&mut self, _handle: BlockHandle) {
        self.counts.push(std::mem::take(&mut self.current));
    }

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(vec![(KEY_COUNTS.to_owned(), KeyCounts::new(&self.counts).encode())])
    }
}

impl TableReader {
    /// The number of entries of each data block. Costs one read if the sstable has the meta block. Else reads every data
    /// block, without filling the cache.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading; `Corruption` where the counts are not those of the table.
    pub fn key_counts(&self) -> Result<KeyCounts> {
        let Some(payload) = self.meta_block(KEY_COUNTS)? else {
            return self.count_keys();
        };
        let damaged = |malformed| self.damaged(self.footer().data_end, malformed);
        let counts = KeyCounts::decode(&payload).map_err(damaged)?;
        let entries: u64 = counts.iter().map(u64::from).sum();
        let properties = self.properties();
        if counts.blocks() as u64 != properties.data_blocks || entries != properties.entries {
            return Err(damaged(MalformedBlock("the key counts do not match the table")));
        }
        Ok(counts)
    }

    fn count_keys(&self) -> Result<KeyCounts> {
        let mut counts = Vec::new();
        for block in 0..self.properties().data_blocks {
            let entries = self.numbered_blocks().pin(block, false)?.map_or(0, |pinned| pinned.entries());
            counts.push(entries as u32);
        }
        Ok(KeyCounts::new(&counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width_round_trip() {
        for largest in [1, 255, 256, 65_535, 65_536] {
            let counts = [7, largest, 1];
            let encoded = KeyCounts::new(&counts);
            assert_eq!(KeyCounts::decode(&encoded.encode()), Ok(encoded.clone()));
            assert_eq!((encoded.blocks(), encoded.largest()), (3, largest.max(7)));
            assert_eq!(encoded.iter().collect::<Vec<_>>(), counts);
            assert_eq!(encoded.get(3), None);
        }
        assert_eq!(KeyCounts::new(&[]).blocks(), 0);
    }

    #[test]
    fn damaged_counts_are_rejected() {
        for payload in [&[][..], &[0, 1], &[3, 1, 1, 1], &[2, 1], &[1, 0], &[4, 1, 0, 0, 0, 0]] {
            assert!(KeyCounts::decode(payload).is_err(), "{payload:?}");
        }
    }
}
