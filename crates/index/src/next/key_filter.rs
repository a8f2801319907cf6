//! A filter over the distinct secondary keys of one sstable, in memory beside its directory.
//!
//! The ranges of index blocks say little where keys are spread over all sstables alike: then nearly every sstable has a block whose range
//! holds any key, and a question for one key reads a block of each, most of them in vain (the ε of NEXT §3.4; the paper splits
//! ranges, which helps only where there are gaps). The filter says of most sstables that they lack the key, at one line of memory each. Keys of
//! one sstable lie in one block each, as a rule, so one filter for all blocks is as good as one for each.
//!
//! ```text
//! meta block `next/ID/filter`
//! format       u8       1
//! filter       bytes    as that of the sstable's own keys, over the hashes of the secondary keys
//! ```
//!
//! Not there: in sstables of before, where there are so many keys that a filter would be poor, for points and rectangles, and
//! without a global index (`global=off`). A question then goes by the ranges alone.

use bolide_base::checksum::hash_key;
use bolide_table::BloomFilter;

const FORMAT: u8 = 1;
/// Bits for each key: about one absent key in a hundred passes.
const MAX_BITS: u64 = 10;
/// With fewer, one in four passes.
const MIN_BITS: u64 = 3;
/// The filter takes no more than one part in so many of the data blocks as they are stored: all that an index keeps in memory is to stay
/// below a hundredth of the table.
const SHARE: u64 = 128;

/// Collects the distinct keys of an sstable.
#[derive(Debug, Default)]
pub(super) struct FilterBuilder {
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// Adds a key, one that was not added before. The empty key, which no value has, counts for nothing.
    pub(super) fn add(&mut self, key: &[u8]) {
        if !key.is_empty() {
            self.hashes.push(hash_key(key));
        }
    }

    /// The meta block, for data blocks of so many bytes; `None` where none is worth it.
    pub(super) fn finish(self, data_bytes: u64) -> Option<Vec<u8>> {
        let keys = self.hashes.len() as u64;
        // Filters are whole lines.
        let most = data_bytes / SHARE / 64 * 64 * 8;
        let bits = most.checked_div(keys)?.min(MAX_BITS);
        let filter = BloomFilter::build(&self.hashes, bits as u32).filter(|_| bits >= MIN_BITS)?;
        Some([&[FORMAT], &*filter.encode()].concat())
    }
}

/// The filter of one sstable.
#[derive(Debug)]
pub(crate) struct KeyFilter(BloomFilter);

impl KeyFilter {
    /// Reads what [`FilterBuilder::finish`] wrote; `None` where the bytes are anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, filter) = bytes.split_first()?;
        BloomFilter::decode(filter).filter(|_| *format == FORMAT).map(Self)
    }

    /// False if no record of the sstable has the key with this hash.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.0.may_contain(hash)
    }

    /// Asks the processor for what [`may_contain`](Self::may_contain) looks at.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.0.prefetch(hash);
    }

    /// The bytes that it takes in memory.
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
    fn keys_pass_and_few_others_within_the_share_of_the_table() {
        for (keys, data_bytes, most) in [(1, 1 << 14, 0.02), (5_000, 1 << 20, 0.02), (50_000, 1 << 22, 0.16)]
        {
            let bytes = built(keys, data_bytes).unwrap();
            let filter = KeyFilter::decode(&bytes).unwrap();
            assert!(filter.memory_bytes() as u64 <= data_bytes / SHARE);
            let passes = |number: u64| filter.may_contain(hash_key(&number.to_be_bytes()));
            assert!((0..keys).all(passes));
            let passed = (1 << 40..(1 << 40) + 20_000).filter(|&number| passes(number)).count();
            assert!((passed as f64) < 20_000.0 * most, "{keys}: {passed} of 20000");
        }
        assert!(built(0, 1 << 30).is_none() && built(1_000, 10_000).is_none() && built(1, 0).is_none());
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused() {
        let good = built(100, 1 << 20).unwrap();
        for len in 0..good.len() {
            assert!(KeyFilter::decode(&good[..len]).is_none() || (len - 9) % 64 == 0 && len > 9, "{len}");
        }
        let mut other = good;
        other[0] = 2;
        assert!(KeyFilter::decode(&other).is_none() && KeyFilter::decode(&[]).is_none());
    }
}
