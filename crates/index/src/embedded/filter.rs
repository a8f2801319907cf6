//! A Bloom filter of any size, for the few values of one block or the many of an sstable.
//!
//! ```text
//! filter   n bytes      8 × n bits; bit b of byte a is position 8 × a + b
//! ```
//!
//! The filter of primary keys in sstables uses whole cache lines, too much for the values of one block; this filter uses
//! exactly the configured bits. A value sets [`probes`] positions by double hashing (Kirsch and Mitzenmacher 2006). A filter
//! without bytes admits everything.

use bolide_base::checksum::hash_key;

/// Maximum number of probes, above the optimum for the largest number of bits per value.
pub(super) const MAX_PROBES: u8 = 30;

/// The number of positions that a value sets; bits · ln 2 is optimal.
pub(super) fn probes(bits: u32) -> u8 {
    (f64::from(bits) * std::f64::consts::LN_2).round().clamp(1.0, f64::from(MAX_PROBES)) as u8
}

/// The hash of a value in filters.
pub(super) fn hash(value: &[u8]) -> u64 {
    hash_key(value)
}

fn positions(hash: u64, probes: u8, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let bits = bytes as u64 * 8;
    let mut state = hash;
    (0..probes).map(move |_| {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        let position = ((state >> 32) * bits) >> 32;
        ((position >> 3) as usize, 1 << (position & 7))
    })
}

/// Appends the filter of `hashes`, with `bits` bits each and at max_rate `max_bytes` bytes in total.
pub(super) fn build(hashes: &[u64], bits: u32, max_bytes: usize, out: &mut Vec<u8>) {
    let bytes = (hashes.len().saturating_mul(bits as usize)).div_ceil(8).min(max_bytes);
    let start = out.len();
    out.resize(start + bytes, 0);
    let probes = probes(bits);
    let filter = out.get_mut(start..).unwrap_or_default();
    for &hash in hashes {
        for (at, mask) in positions(hash, probes, bytes) {
            if let Some(byte) = filter.get_mut(at) {
                *byte |= mask;
            }
        }
    }
}

/// False if no value with this hash was added.
#[inline]
pub(super) fn may_contain(filter: &[u8], probes: u8, hash: u64) -> bool {
    filter.is_empty()
        || positions(hash, probes, filter.len())
            .all(|(at, mask)| filter.get(at).is_none_or(|byte| byte & mask != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|number| hash(&number.to_be_bytes())).collect()
    }

    #[test]
    fn added_values_pass_and_few_others_do() {
        for (bits, max_rate) in [(1, 0.66), (4, 0.17), (10, 0.013), (20, 0.0005)] {
            for count in [1, 2, 3, 12, 40, 5_000] {
                let mut filter = Vec::new();
                build(&hashes(0, count), bits, 1 << 20, &mut filter);
                assert_eq!(filter.len(), (count as usize * bits as usize).div_ceil(8));
                let passes = |hash: &u64| may_contain(&filter, probes(bits), *hash);
                assert!(hashes(0, count).iter().all(passes));
                let passed = hashes(1 << 40, 100_000).iter().filter(|hash| passes(hash)).count();
                let rate = passed as f64 / 1e5;
                assert!(rate < max_rate * 1.6 + 0.004, "{bits} bits, {count} values: {rate}");
            }
        }
    }

    #[test]
    fn a_filter_without_bytes_admits_everything() {
        let mut filter = Vec::new();
        build(&[], 10, 100, &mut filter);
        assert!(filter.is_empty() && may_contain(&filter, 7, 4711));
        build(&hashes(0, 100), 10, 5, &mut filter);
        assert_eq!(filter.len(), 5);
        assert!(hashes(0, 100).iter().all(|&hash| may_contain(&filter, probes(10), hash)));
    }
}
