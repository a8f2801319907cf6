//! Asking and telling the filter of novelty.

use bolide_base::Result;
use bolide_storage::pmem::RegionWriter;

use super::novelty::{self, KeyBits, PIECE_BYTES};
use super::{KNOWN_SLOT, VersionTable};
use crate::sync::Ordering;

/// The filter of novelty.
impl VersionTable {
    /// Whether the key may have been written before.
    pub(super) fn is_known(&self, hash: u128) -> Result<bool> {
        if self.options.every_key {
            return Ok(false);
        }
        for layer in 0..=novelty::layer_of(self.known.load(Ordering::Acquire)) {
            let bits = KeyBits::of(hash, layer);
            let piece = self.pieces.get((novelty::pieces(layer).0 + bits.piece) as usize);
            if piece != 0 && bits.are_set(&self.region, piece)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells the filter of a key; false if it may have known it.
    pub(super) fn learn(&self, writer: &RegionWriter<'_>, hash: u128) -> Result<bool> {
        if self.options.every_key {
            return Ok(true);
        }
        if self.is_known(hash)? {
            return Ok(false);
        }
        let known = self.known.load(Ordering::Acquire);
        let layer = novelty::layer_of(known);
        let (first, count) = novelty::pieces(layer);
        while (self.pieces.len() as u64) < first + count {
            self.pieces.push(writer, writer.allocate(PIECE_BYTES)?)?;
        }
        let bits = KeyBits::of(hash, layer);
        bits.set(writer, self.pieces.get((first + bits.piece) as usize))?;
        writer.set_root(KNOWN_SLOT, known + 1)?;
        self.known.store(known + 1, Ordering::Release);
        Ok(true)
    }
}
