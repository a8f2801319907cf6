//! The novelty filter: which primary keys were ever written. It grows by layers.
//!
//! ```text
//! filter  := layer*                        the first for 32 Ki keys, each four times as large as the previous one
//! layer   := piece*                        as many pieces of 64 KiB as its keys need
//! piece   := block × 1024                  of 64 bytes: one bit in each of eight words for each key
//! ```
//!
//! A key that the filter excludes is new. A key that it contains was written before, except for one in some thousands.
//! For such a false positive the version table stores a key without need, until the next sweep.

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

/// Bytes of a piece. (The model checker's regions have small extents.)
pub(super) const PIECE_BYTES: usize = if cfg!(bolide_shuttle) { 4 << 10 } else { 64 << 10 };
const BLOCK_BYTES: usize = 64;
const BLOCKS: u64 = (PIECE_BYTES / BLOCK_BYTES) as u64;
/// Keys per piece: 16 bits each.
const PIECE_KEYS: u64 = (PIECE_BYTES * 8 / 16) as u64;
/// Maximum number of layers: room for 2^40 keys.
pub(super) const LAYERS: usize = 13;

/// Pieces of the layer `layer`.
fn pieces_of(layer: usize) -> u64 {
    1 << (2 * layer)
}

/// Keys that the layers below `layer` hold together.
fn keys_below(layer: usize) -> u64 {
    (0..layer).map(|layer| pieces_of(layer) * PIECE_KEYS).sum()
}

/// The layer of the next key, when the filter holds `keys` keys.
pub(super) fn layer_of(keys: u64) -> usize {
    (0..LAYERS).rfind(|&layer| keys >= keys_below(layer)).unwrap_or(0)
}

/// The number of the first piece of `layer` among all pieces, and the number of its pieces.
pub(super) fn pieces(layer: usize) -> (u64, u64) {
    ((0..layer).map(pieces_of).sum(), pieces_of(layer))
}

/// The position of the bits of a key in a layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBits {
    /// The piece, within its layer.
    pub(super) piece: u64,
    /// Bytes from its start.
    at: Place,
    bits: [u64; 8],
}

impl KeyBits {
    /// The bits of the key with `hash` in `layer`.
    pub(super) fn of(hash: u128, layer: usize) -> Self {
        // The half that does not select the bucket of the version table.
        let high = (hash >> 64) as u64;
        let block = ((u128::from(high) * u128::from(pieces_of(layer) * BLOCKS)) >> 64) as u64;
        let low = hash as u64;
        let bits = std::array::from_fn(|word| 1 << (low >> (6 * word) & 63));
        Self { piece: block / BLOCKS, at: block % BLOCKS * BLOCK_BYTES as Place, bits }
    }

    /// Whether all bits are set in the piece at `piece`.
    pub(super) fn are_set(&self, region: &Region, piece: Place) -> Result<bool> {
        let words = region.words(piece + self.at, BLOCK_BYTES)?;
        Ok(words.iter().zip(self.bits).all(|(word, bit)| word.get() & bit != 0))
    }

    /// Prefetches the block in the piece at `piece`.
    pub(super) fn prefetch(&self, region: &Region, piece: Place) {
        region.prefetch(piece + self.at, 1);
    }

    /// Sets all bits in the piece at `piece`.
    pub(super) fn set(&self, writer: &RegionWriter<'_>, piece: Place) -> Result<()> {
        for (word, bit) in self.bits.iter().enumerate() {
            let at = piece + self.at + 8 * word as Place;
            let before = writer.region().load(at)?;
            if before & bit == 0 {
                writer.store(at, before | bit)?;
            }
        }
        writer.persist(piece + self.at, BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_contiguous() {
        assert_eq!(layer_of(0), 0);
        for layer in 1..LAYERS {
            assert_eq!(layer_of(keys_below(layer) - 1), layer - 1);
            assert_eq!(layer_of(keys_below(layer)), layer);
            let (first, count) = pieces(layer - 1);
            assert_eq!(pieces(layer).0, first + count);
        }
    }
}
