//! An entry in hand: for readers that go from entry to entry, now in this block and now in that one.

use bolide_base::Trailer;

use crate::block::{Block, Entry, SHORT_KEY};
use crate::internal_cursor::key_head;
use crate::pinned_block::PinnedBlock;
use crate::value_ref::ValueRef;

/// An entry of a data block, with its whole key in a buffer of its own.
///
/// Where the block lies is left to the reader, who may have several: it says each time which one the entry is of, and
/// that block stays in memory as long as the reader has it, whatever the cache does.
#[derive(Debug)]
pub struct HeldEntry {
    entry: Entry,
    /// The key, if it is short, and what was copied too much.
    short: [u8; SHORT_KEY],
    key_len: usize,
    /// The key, if it is not short.
    long: Vec<u8>,
    is_long: bool,
}

impl Default for HeldEntry {
    fn default() -> Self {
        Self { entry: Entry::none(), short: [0; SHORT_KEY], key_len: 0, long: Vec::new(), is_long: false }
    }
}

impl HeldEntry {
    /// Makes entry number `index` of `block` the one in hand. False, and the entry stays what it is, where there is no
    /// such entry or the block contradicts itself.
    ///
    /// Always inlined: where it is called once for each entry of a scan. Elsewhere there is [`go_to`](Self::go_to).
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

    /// As [`step_to`](Self::step_to), as a call.
    #[inline(never)]
    pub fn go_to(&mut self, block: &PinnedBlock, index: usize) -> bool {
        self.step_to(block, index)
    }

    #[inline(never)]
    fn put_long_key(&mut self, block: &Block) {
        self.long.clear();
        block.append_key(&self.entry, &mut self.long);
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.is_long { &self.long } else { self.short.get(..self.key_len).unwrap_or_default() }
    }

    /// See [`key_head`].
    #[inline]
    pub fn key_head(&self) -> u128 {
        match self.short.first_chunk() {
            Some(head) if !self.is_long && self.key_len >= 16 => u128::from_be_bytes(*head),
            _ => key_head(self.key()),
        }
    }

    /// Its sequence number and kind.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.entry.trailer
    }

    /// Its value, given the block that it is of.
    #[inline]
    pub fn value<'b>(&self, block: &'b PinnedBlock) -> &'b [u8] {
        block.inner().bytes().get(self.entry.value()).unwrap_or_default()
    }

    /// Its value with a hold on the block that it is of.
    #[inline]
    pub fn value_ref(&self, block: &PinnedBlock) -> ValueRef {
        ValueRef::pinned(block.inner().bytes().clone(), self.entry.value())
    }

    /// Asks the processor for the entry behind this one, which is probably about as long, given the block that both
    /// are of.
    #[inline]
    pub fn prefetch_next(&self, block: &PinnedBlock) {
        block.inner().prefetch_behind(&self.entry);
    }
}
