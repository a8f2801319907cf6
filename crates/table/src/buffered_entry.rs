//! An entry with a buffered key, for readers that move from entry to entry in several blocks.

use bolide_base::Trailer;

use crate::block::{Block, BlockEntry, SHORT_KEY};
use crate::internal_cursor::key_head;
use crate::pinned_block::PinnedBlock;
use crate::value_ref::ValueRef;

/// An entry of a data block with its whole key in an own buffer.
///
/// The reader may pin several blocks, so it passes the block of the entry to each call. The block stays in memory as long
/// as the reader pins it, independently of the cache.
#[derive(Debug)]
pub struct BufferedEntry {
    entry: BlockEntry,
    /// The key if it is short, followed by surplus bytes of fixed-size copies.
    short: [u8; SHORT_KEY],
    key_len: usize,
    /// The key if it is long.
    long: Vec<u8>,
    is_long: bool,
}

impl Default for BufferedEntry {
    fn default() -> Self {
        Self {
            entry: BlockEntry::none(),
            short: [0; SHORT_KEY],
            key_len: 0,
            long: Vec::new(),
            is_long: false,
        }
    }
}

impl BufferedEntry {
    /// Moves to entry number `index` of `block`. Returns false, without a change, if there is no such entry or the block is
    /// inconsistent.
    ///
    /// Always inlined: for the calls per entry of a scan. Other callers use [`go_to`](Self::go_to).
    #[inline(always)]
    pub fn step_to(&mut self, block: &PinnedBlock, index: usize) -> bool {
        let block = block.inner();
        let Some(entry) = block.decode_inline(index) else { return false };
        match block.put_short_key(&entry, &mut self.short) {
            Some(len) => (self.key_len, self.is_long) = (len, false),
            None => self.is_long = true,
        }
        self.entry = entry;
        if self.is_long {
            self.put_long_key(block);
        }
        true
    }

    /// As [`step_to`](Self::step_to), never inlined.
    #[inline(never)]
    pub fn go_to(&mut self, block: &PinnedBlock, index: usize) -> bool {
        self.step_to(block, index)
    }

    #[inline(never)]
    fn put_long_key(&mut self, block: &Block) {
        self.long.clear();
        block.append_key(&self.entry, &mut self.long);
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.is_long { &self.long } else { self.short.get(..self.key_len).unwrap_or_default() }
    }

    /// The first bytes of the key; see [`key_head`].
    #[inline]
    pub fn key_head(&self) -> u128 {
        match self.short.first_chunk() {
            Some(head) if !self.is_long && self.key_len >= 16 => u128::from_be_bytes(*head),
            _ => key_head(self.key()),
        }
    }

    /// The sequence number and the kind.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.entry.trailer
    }

    /// The value in `block`, the block of the entry.
    #[inline]
    pub fn value<'b>(&self, block: &'b PinnedBlock) -> &'b [u8] {
        block.inner().bytes().get(self.entry.value()).unwrap_or_default()
    }

    /// The value, with a reference that pins `block`, the block of the entry.
    #[inline]
    pub fn value_ref(&self, block: &PinnedBlock) -> ValueRef {
        ValueRef::pinned(block.inner().bytes().clone(), self.entry.value())
    }

    /// Prefetches the entry after this one, assuming the same length. `block` is the block of both.
    #[inline]
    pub fn prefetch_next(&self, block: &PinnedBlock) {
        block.inner().prefetch_next_entry(&self.entry);
    }
}
