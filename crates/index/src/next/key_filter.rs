//! A Bloom filter over the distinct secondary keys of one sstable, in memory with its directory.
//!
//! Ranges of index blocks exclude little if keys are spread evenly over all sstables: nearly every sstable then has a block
//! whose range contains any key, and a query for one key reads a block of each, mostly without a match (the ε of NEXT §3.4;
//! the paper splits ranges, which helps only if there are gaps). The filter excludes most sstables without the key, at one
//! cache line each. A key of an sstable is usually in one block, so one filter for all blocks is as good as one for each.
//!
//! ```text
//! meta block `next/ID/filter`
//! format       u8       1
//! filter       bytes    as the filter over the sstable's own keys, over the hashes of the secondary keys
//! ```
//!
//! There is no filter for points and rectangles, without a global index (`global=off`), and
//! if there are so many keys that the filter would exclude little. A query then uses the ranges alone.

use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_memory::MemoryPool;
use bolide_table::BloomFilter;

const FORMAT: u8 = 1;
/// Maximum bits for each key: the false-positive rate is about 1 %.
const MAX_BITS: u64 = 10;
/// Minimum bits for each key: with fewer the false-positive rate exceeds 25 %.
const MIN_BITS: u64 = 3;
/// The filter takes at most 1/128 of the stored bytes of the data blocks: the memory of an index stays below a hundredth of
/// the table.
const SHARE: u64 = 128;

/// Collects the distinct keys of an sstable.
#[derive(Debug, Default)]
pub(super) struct FilterBuilder {
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// Adds a key that was not added before. Ignores the empty key, that of opaque records.
    pub(super) fn add(&mut self, key: &[u8]) {
        if !key.is_empty() {
            self.hashes.push(hash_key(key));
        }
    }

    /// The meta block for an sstable with `data_bytes` bytes of data blocks; `None` if a filter would exclude too little.
    pub(super) fn finish(self, data_bytes: u64) -> Option<Vec<u8>> {
        let keys = self.hashes.len() as u64;
        // Filters consist of whole cache lines.
        let max_bits = data_bytes / SHARE / 64 * 64 * 8;
        let bits = max_bits.checked_div(keys)?.min(MAX_BITS);
        let filter = BloomFilter::build(&self.hashes, bits as u32).filter(|_| bits >= MIN_BITS)?;
        Some([&[FORMAT], &*filter.encode()].concat())
    }
}

/// The filter of one sstable.
#[derive(Debug)]
pub(crate) struct KeyFilter(BloomFilter);

impl KeyFilter {
    /// Decodes the output of [`FilterBuilder::finish`]; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, filter) = bytes.split_first()?;
        BloomFilter::decode(filter).filter(|_| *format == FORMAT).map(Self)
    }

    /// The same filter in the memory of `pool`.
    pub(super) fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        Self(self.0.moved_to(pool))
    }

    /// False if no record of the sstable has the key with this hash.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.0.may_contain(hash)
    }

    /// Prefetches the memory that [`may_contain`](Self::may_contain) reads.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.0.prefetch(hash);
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(keys: u64, data_bytes: u64) -> Option<Vec<u8>> {
        let mut builder = FilterBuilder::default();
        builder.add(b"");
        (0..keys).for_each(|number| builder.add(&number.to_be_bytes()));
        builder.finish(data_bytes)
    }

    #[test]
    fn keys_pass_with_few_false_positives_within_the_memory_share() {
        for (keys, data_bytes, rate) in [(1, 1 << 14, 0.02), (5_000, 1 << 20, 0.02), (50_000, 1 << 22, 0.16)]
        {
            let bytes = built(keys, data_bytes).unwrap();
            let filter = KeyFilter::decode(&bytes).unwrap();
            assert!(filter.memory_bytes() as u64 <= data_bytes / SHARE);
            let passes = |number: u64| filter.may_contain(hash_key(&number.to_be_bytes()));
            assert!((0..keys).all(passes));
            let passed = (1 << 40..(1 << 40) + 20_000).filter(|&number| passes(number)).count();
            assert!((passed as f64) < 20_000.0 * rate, "{keys}: {passed} of 20000");
        }
        assert!(built(0, 1 << 30).is_none() && built(1_000, 10_000).is_none() && built(1, 0).is_none());
    }

    #[test]
    fn malformed_filters_are_rejected() {
        let good = built(100, 1 << 20).unwrap();
        for len in 0..good.len() {
            assert!(KeyFilter::decode(&good[..len]).is_none() || (len - 9) % 64 == 0 && len > 9, "{len}");
        }
        let mut other = good;
        other[0] = 2;
        assert!(KeyFilter::decode(&other).is_none() && KeyFilter::decode(&[]).is_none());
    }
}
