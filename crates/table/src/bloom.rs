//! The filter: a blocked Bloom filter over the distinct user keys of an sstable.
//!
//! ```text
//! probes   u8           k bits per key (1..=30)
//! zero     7 bytes
//! blocks   n × 64 bytes 512 bits each, as eight little-endian u64
//! ```
//!
//! All `k` bits of a key lie in one block of 64 bytes, so that a lookup costs one cache miss (Putze,
//! Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, §3.1). The hash is
//! [`hash_key`](bolide_base::checksum::hash_key): its upper 32 bits select the block, its lower 32 the
//! bits in it.
//!
//! At 10 bits per key about 1 % of the absent keys pass. A key that was added always passes.

use std::sync::Arc;

use bolide_memory::{LargeArray, MemoryPool, prefetch};

/// Bits of a block.
const BLOCK_BITS: u64 = 512;
/// Bytes before the blocks.
const HEADER_BYTES: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = 64;
/// Maximum number of probes, above what the largest number of bits per key needs.
const MAX_PROBES: u8 = 30;

/// One block, aligned so that it never straddles two cache lines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct FilterBlock([u64; 8]);

/// A resident filter over hashes of keys.
///
/// ```
/// use bolide_table::BloomFilter;
/// let filter = BloomFilter::build(&[1 << 40, 2 << 40], 10).unwrap();
/// assert!(filter.may_contain(1 << 40) && filter.may_contain(2 << 40));
/// assert!(BloomFilter::decode(&filter.encode()).unwrap().may_contain(1 << 40));
/// ```
#[derive(Debug, Clone)]
pub struct BloomFilter {
    blocks: LargeArray<FilterBlock>,
    probes: u8,
}

/// The block of `hash` among `blocks` of them (at most 2³²).
#[inline]
fn block_of(hash: u64, blocks: usize) -> usize {
    ((hash >> 32).wrapping_mul(blocks as u64) >> 32) as usize
}

/// The bit positions of `hash` in its block: nine bits at a time from the top of a repeatedly multiplied state.
/// Consecutive positions are independent enough for the false positive rate above.
#[inline]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = (usize, u64)> {
    let mut state = hash as u32;
    (0..probes).map(move |_| {
        state = state.wrapping_mul(0x9e37_79b9);
        let bit = state >> 23;
        ((bit >> 6) as usize, 1_u64 << (bit & 63))
    })
}

impl BloomFilter {
    /// The filter of keys with these hashes, with about `bits_per_key` bits each; `None` for no keys or no bits.
    pub fn build(hashes: &[u64], bits_per_key: u32) -> Option<Self> {
        if hashes.is_empty() || bits_per_key == 0 {
            return None;
        }
        let bits = (hashes.len() as u64).saturating_mul(bits_per_key.into());
        let blocks = bits.div_ceil(BLOCK_BITS).min(u32::MAX.into()) as usize;
        // The optimum of probes is bits · ln 2; the load of blocks varies, which favours slightly fewer.
        let probes = (f64::from(bits_per_key) * 0.62).round().clamp(1.0, f64::from(MAX_PROBES)) as u8;
        let mut filter = Self { blocks: (0..blocks).map(|_| FilterBlock::default()).collect(), probes };
        for &hash in hashes {
            filter.insert(hash);
        }
        Some(filter)
    }

    /// The same filter in the memory of `pool`.
    #[must_use]
    pub fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        Self { blocks: self.blocks.moved_to(pool), ..self }
    }

    #[inline]
    fn insert(&mut self, hash: u64) {
        let index = block_of(hash, self.blocks.len());
        if let Some(FilterBlock(words)) = self.blocks.get_mut(index) {
            for (word, mask) in bits_of(hash, self.probes) {
                words[word & 7] |= mask;
            }
        }
    }

    /// False if no key with this hash was added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        match self.blocks.get(block_of(hash, self.blocks.len())) {
            Some(FilterBlock(words)) => {
                bits_of(hash, self.probes).all(|(word, mask)| words[word & 7] & mask != 0)
            }
            None => true,
        }
    }

    /// Prefetches the block of a key with this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(block) = self.blocks.get(block_of(hash, self.blocks.len())) {
            prefetch(block, BLOCK_BYTES);
        }
    }

    /// Encodes the filter in the format of the module documentation.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.blocks.len() * BLOCK_BYTES);
        out.push(self.probes);
        out.resize(HEADER_BYTES, 0);
        for FilterBlock(words) in &*self.blocks {
            for word in words {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out
    }

    /// Decodes a filter; `None` for malformed bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [probes, zeros @ ..] = *header;
        let (chunks, tail) = rest.as_chunks::<BLOCK_BYTES>();
        let fits = (1..=MAX_PROBES).contains(&probes) && zeros == [0; 7] && tail.is_empty();
        if !fits || chunks.is_empty() || u32::try_from(chunks.len()).is_err() {
            return None;
        }
        let blocks = chunks.iter().map(|chunk| {
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            FilterBlock(words)
        });
        Some(Self { blocks: blocks.collect(), probes })
    }

    /// Memory of the filter, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// The number of bits that each key sets.
    pub fn probes(&self) -> u8 {
        self.probes
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::checksum::hash_key;

    use super::*;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|number| hash_key(&number.to_be_bytes())).collect()
    }

    #[test]
    fn added_keys_pass_and_few_absent_keys_do() {
        for (bits, max_rate) in [(1, 0.75), (4, 0.17), (10, 0.0125), (16, 0.0025), (32, 0.0004)] {
            let added = hashes(0, 50_000);
            let filter = BloomFilter::build(&added, bits).unwrap();
            let filter = BloomFilter::decode(&filter.encode()).unwrap();
            assert!(added.iter().all(|&hash| filter.may_contain(hash)));
            let absent = hashes(1 << 40, 200_000);
            let passed = absent.iter().filter(|&&hash| filter.may_contain(hash)).count();
            let rate = passed as f64 / absent.len() as f64;
            assert!(rate < max_rate, "{bits} bits per key: {rate} pass");
        }
    }

    #[test]
    fn a_filter_of_one_key_works() {
        let filter = BloomFilter::build(&[u64::MAX], 10).unwrap();
        assert!(filter.may_contain(u64::MAX));
        assert_eq!(filter.memory_bytes(), 64);
        assert!(BloomFilter::build(&[], 10).is_none());
        assert!(BloomFilter::build(&[1], 0).is_none());
    }

    #[test]
    fn malformed_filters_are_rejected() {
        let good = BloomFilter::build(&hashes(0, 100), 10).unwrap().encode();
        assert!(BloomFilter::decode(&good).is_some());
        for len in [0, 7, 8, 9, good.len() - 1] {
            assert!(BloomFilter::decode(&good[..len]).is_none(), "{len}");
        }
        let mut bad = good.clone();
        bad[0] = 0;
        assert!(BloomFilter::decode(&bad).is_none());
        bad[0] = 31;
        assert!(BloomFilter::decode(&bad).is_none());
        bad[0] = 6;
        bad[3] = 1;
        assert!(BloomFilter::decode(&bad).is_none());
    }
}
