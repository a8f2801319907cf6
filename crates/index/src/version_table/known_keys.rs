//! Reads and updates of the novelty_filter filter.

use bolide_base::Result;
use bolide_storage::pmem::RegionWriter;

use super::novelty_filter::{self, KeyBits, PIECE_BYTES};
use super::{KNOWN_SLOT, VersionTable};
use crate::sync::Ordering;

/// The novelty_filter filter.
impl VersionTable {
    /// Whether the key may have been written before.
    pub(super) fn is_known(&self, hash: u128) -> Result<bool> {
        if self.options.every_key {
            return Ok(false);
        }
        for layer in 0..=novelty_filter::layer_of(self.known_keys.load(Ordering::Acquire)) {
            let bits = KeyBits::of(hash, layer);
            let piece = self.pieces.get((novelty_filter::pieces(layer).0 + bits.piece) as usize);
            if piece != 0 && bits.are_set(&self.region, piece)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prefetches the bits of the key.
    pub(super) fn prefetch_known(&self, hash: u128) {
        if self.options.every_key {
            return;
        }
        for layer in 0..=novelty_filter::layer_of(self.known_keys.load(Ordering::Acquire)) {
            let bits = KeyBits::of(hash, layer);
            let piece = self.pieces.get((novelty_filter::pieces(layer).0 + bits.piece) as usize);
            if piece != 0 {
                bits.prefetch(&self.region, piece);
            }
        }
    }

    /// Adds a key to the filter; false if the filter contained it, or seemed to.
    pub(super) fn add_known(&self, writer: &RegionWriter<'_>, hash: u128) -> Result<bool> {
        if self.options.every_key {
            return Ok(true);
        }
        if self.is_known(hash)? {
            return Ok(false);
        }
        let known_keys = self.known_keys.load(Ordering::Acquire);
        let layer = novelty_filter::layer_of(known_keys);
        let (first, count) = novelty_filter::pieces(layer);
        while (self.pieces.len() as u64) < first + count {
            self.pieces.push(writer, writer.allocate(PIECE_BYTES)?)?;
        }
        let bits = KeyBits::of(hash, layer);
        bits.set(writer, self.pieces.get((first + bits.piece) as usize))?;
        writer.set_root(KNOWN_SLOT, known_keys + 1)?;
        self.known_keys.store(known_keys + 1, Ordering::Release);
        Ok(true)
    }
}
