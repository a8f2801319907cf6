//! An entry in hand: for readers that go through the entries of a block one after the other.

use bolide_base::Trailer;

use crate::block::Entry;
use crate::pinned_block::PinnedBlock;
use crate::value_ref::ValueRef;

/// A data block in hand and one of its entries, with the whole key of that in a buffer of its own.
///
/// The block stays in memory as long as it is held, whatever the cache does. As the prefix that all keys of the block
/// start with stays in the buffer, a step copies what is behind it alone.
#[derive(Debug)]
pub struct HeldEntry {
    block: Option<PinnedBlock>,
    entry: Entry,
    /// The prefix of the block, the rest of the key, and as many bytes behind as a step may write too much.
    key: Vec<u8>,
    key_len: usize,
}

impl Default for HeldEntry {
    fn default() -> Self {
        Self { block: None, entry: Entry::none(), key: Vec::new(), key_len: 0 }
    }
}

impl HeldEntry {
    /// Makes `block` the one in hand. No entry is, until [`go_to`](Self::go_to) says so.
    #[inline]
    pub fn hold(&mut self, block: PinnedBlock) {
        block.inner().start_key(&mut self.key);
        self.entry = Entry::none();
        self.key_len = 0;
        self.block = Some(block);
    }

    /// Lets go of the block.
    pub fn release(&mut self) {
        self.block = None;
        self.entry = Entry::none();
        self.key_len = 0;
    }

    /// The block in hand.
    #[inline]
    pub fn block(&self) -> Option<&PinnedBlock> {
        self.block.as_ref()
    }

    /// Goes to entry number `index` of the block. False, and the entry stays what it is, where there is no such entry or
    /// the block contradicts itself.
    #[inline]
    pub fn go_to(&mut self, index: usize) -> bool {
        let Some(block) = self.block.as_ref().map(PinnedBlock::inner) else { return false };
        let Some(entry) = block.decode(index) else { return false };
        self.key_len = block.put_key(&entry, &mut self.key);
        self.entry = entry;
        true
    }

    /// The key of the entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.get(..self.key_len).unwrap_or_default()
    }

    /// Its sequence number and kind.
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.entry.trailer
    }

    /// Its value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let bytes = self.block.as_ref().map(|block| &**block.inner().bytes());
        bytes.and_then(|bytes| bytes.get(self.entry.value())).unwrap_or_default()
    }

    /// Its value, with a hold on the block.
    #[inline]
    pub fn value_ref(&self) -> ValueRef {
        match &self.block {
            Some(block) => ValueRef::pinned(block.inner().bytes().clone(), self.entry.value()),
            None => ValueRef::from(Vec::new()),
        }
    }

    /// Asks the processor for the entry behind this one, which is probably about as long.
    #[inline]
    pub fn prefetch_next(&self) {
        if let Some(block) = &self.block {
            block.inner().prefetch_behind(&self.entry);
        }
    }
}
