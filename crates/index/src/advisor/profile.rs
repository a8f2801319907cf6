//! The profile of an attribute, measured in one pass over records in key order and in bounded memory.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use bolide_base::SequenceNumber;

/// Maximum number of sampled records; a full sample is reduced to half.
const SAMPLE: usize = 1 << 15;
/// Maximum number of stored zones; above it every second one is dropped.
const ZONES: usize = 1 << 12;
/// Bytes of records in one zone: a data block.
const ZONE_BYTES: usize = 4096;
/// Number of smallest hashes from which the number of distinct values is estimated.
const SMALLEST: usize = 4096;
/// Number of sampled values that are compared with the zones.
const PROBES: usize = 1_000;
/// Bits of Bloom filter per value of an embedded index.
const FILTER_BITS: f64 = 10.0;
/// Bytes of an entry in addition to its key: sequence number, trailer, lengths.
const ENTRY_OVERHEAD: f64 = 20.0;

/// The measurements of an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct AttributeProfile {
    /// Records seen.
    pub records: u64,
    /// Records that have the attribute.
    pub with_attribute: u64,
    /// Values seen; more than records for arrays.
    pub values: u64,
    /// Distinct values, estimated from the smallest of their hashes (within about 2 %).
    pub distinct_values: f64,
    /// Mean number of values that equal that of a random record: popular values are weighted by their frequency.
    /// Estimated from a sample.
    pub popularity: f64,
    /// Spearman's rank correlation of the values with the order in which their records were written, -1 to
    /// 1. From a sample.
    pub order_correlation: f64,
    /// Share of blocks (4 KiB of neighbouring records) whose range from the smallest to the largest value contains the
    /// value of a random record. From a sample.
    pub zone_share: f64,
    /// Mean bytes of a record with its key.
    pub record_bytes: f64,
    /// Mean bytes of a primary key.
    pub key_bytes: f64,
    /// Mean bytes of an encoded value.
    pub value_bytes: f64,
}

impl AttributeProfile {
    /// Records that a lookup by the value of a random record finds; at least 1.
    pub fn records_per_value(&self) -> f64 {
        self.popularity.max(1.0)
    }

    /// Bytes of a tree of entries for each byte of records, before compression.
    pub fn entry_share(&self) -> f64 {
        ratio(self.entry_bytes(), self.record_bytes * self.records as f64)
    }

    /// Bytes of an entry for each value.
    pub fn entry_bytes(&self) -> f64 {
        (self.value_bytes + self.key_bytes + ENTRY_OVERHEAD) * self.values as f64
    }

    /// Bytes of Bloom filters for each byte of records, one for each value in each block at most.
    pub fn filter_share(&self) -> f64 {
        ratio(FILTER_BITS / 8.0 * self.values as f64, self.record_bytes * self.records as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A sampled record: its sequence number, and its value truncated to 16 bytes, which preserves the order.
#[derive(Debug, Clone, Copy)]
struct Sampled {
    place: u64,
    sequence: SequenceNumber,
    prefix: u128,
    value: u64,
}

/// The smallest and the largest value of some neighbouring records.
#[derive(Debug, Clone, Copy)]
struct Zone {
    low: u128,
    high: u128,
}

/// Measures an attribute; see [`AttributeProfile`]. Uses about a megabyte of memory.
#[derive(Debug)]
pub struct AttributeProfiler {
    profile: AttributeProfile,
    record_bytes: u64,
    key_bytes: u64,
    value_bytes: u64,
    /// Records whose key hashes below `sample_below`.
    sample: Vec<Sampled>,
    sample_below: u64,
    smallest: BTreeSet<u64>,
    zones: Vec<Zone>,
    /// One zone in this many is stored.
    stride: u64,
    zones_seen: u64,
    zone: Option<Zone>,
    zone_bytes: usize,
}

impl Default for AttributeProfiler {
    fn default() -> Self {
        Self::new()
    }
}

impl AttributeProfiler {
    /// A profiler without records.
    pub fn new() -> Self {
        Self {
            profile: AttributeProfile::default(),
            record_bytes: 0,
            key_bytes: 0,
            value_bytes: 0,
            sample: Vec::new(),
            sample_below: u64::MAX,
            smallest: BTreeSet::new(),
            zones: Vec::new(),
            stride: 1,
            zones_seen: 0,
            zone: None,
            zone_bytes: 0,
        }
    }

    /// Adds the next record in key order: its key, its sequence number, its length and its encoded values at the attribute.
    pub fn add<'v>(
        &mut self,
        primary_key: &[u8],
        sequence: SequenceNumber,
        record_bytes: usize,
        values: impl Iterator<Item = &'v [u8]>,
    ) {
        self.profile.records += 1;
        self.record_bytes += (primary_key.len() + record_bytes) as u64;
        self.key_bytes += primary_key.len() as u64;
        let mut first = None;
        for value in values {
            self.profile.values += 1;
            self.value_bytes += value.len() as u64;
            let (prefix, hash) = (prefix(value), hash(value));
            first.get_or_insert((prefix, hash));
            self.note_distinct(hash);
            let zone = self.zone.get_or_insert(Zone { low: prefix, high: prefix });
            zone.low = zone.low.min(prefix);
            zone.high = zone.high.max(prefix);
        }
        if let Some((prefix, value)) = first {
            self.profile.with_attribute += 1;
            self.note_sample(Sampled { place: hash(primary_key), sequence, prefix, value });
        }
        self.zone_bytes += primary_key.len() + record_bytes;
        if self.zone_bytes >= ZONE_BYTES {
            self.end_zone();
        }
    }

    /// The measurements.
    pub fn finish(mut self) -> AttributeProfile {
        self.end_zone();
        let mean = |bytes: u64, count: u64| ratio(bytes as f64, count as f64);
        AttributeProfile {
            distinct_values: self.distinct(),
            popularity: self.popularity(),
            order_correlation: self.order_correlation(),
            zone_share: self.zone_share(),
            record_bytes: mean(self.record_bytes, self.profile.records),
            key_bytes: mean(self.key_bytes, self.profile.records),
            value_bytes: mean(self.value_bytes, self.profile.values),
            ..self.profile
        }
    }

    fn note_distinct(&mut self, hash: u64) {
        let full = self.smallest.len() >= SMALLEST;
        if full && self.smallest.last().is_some_and(|largest| hash >= *largest) {
            return;
        }
        if self.smallest.insert(hash) && full {
            self.smallest.pop_last();
        }
    }

    fn note_sample(&mut self, sampled: Sampled) {
        if sampled.place > self.sample_below {
            return;
        }
        self.sample.push(sampled);
        if self.sample.len() > SAMPLE {
            self.sample_below /= 2;
            let below = self.sample_below;
            self.sample.retain(|sampled| sampled.place <= below);
        }
    }

    fn end_zone(&mut self) {
        self.zone_bytes = 0;
        let Some(zone) = self.zone.take() else { return };
        if self.zones_seen.is_multiple_of(self.stride) {
            self.zones.push(zone);
        }
        self.zones_seen += 1;
        if self.zones.len() > ZONES {
            let mut position = 0;
            self.zones.retain(|_| {
                position += 1;
                position % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// The k-th smallest of uniform hashes is at about k / distinct of their range.
    fn distinct(&self) -> f64 {
        match self.smallest.last() {
            Some(largest) if self.smallest.len() >= SMALLEST => {
                (SMALLEST - 1) as f64 / (*largest as f64 / u64::MAX as f64)
            }
            _ => self.smallest.len() as f64,
        }
    }

    /// The probability that two records of the sample have equal values, times the number of records.
    fn popularity(&self) -> f64 {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for sampled in &self.sample {
            *counts.entry(sampled.value).or_default() += 1;
        }
        let pairs: f64 = counts.values().map(|count| (*count * (count - 1)) as f64).sum();
        let size = self.sample.len() as f64;
        ratio(pairs, size * (size - 1.0)) * self.profile.with_attribute as f64
    }

    fn order_correlation(&self) -> f64 {
        let written = ranks(self.sample.iter().map(|sampled| u128::from(sampled.sequence)));
        let valued = ranks(self.sample.iter().map(|sampled| sampled.prefix));
        let mean = (self.sample.len() as f64 - 1.0) / 2.0;
        let (mut both, mut left, mut right) = (0.0, 0.0, 0.0);
        for (one, other) in written.iter().zip(&valued) {
            both += (one - mean) * (other - mean);
            left += (one - mean).powi(2);
            right += (other - mean).powi(2);
        }
        ratio(both, (left * right).sqrt())
    }

    fn zone_share(&self) -> f64 {
        let step = (self.sample.len() / PROBES).max(1);
        let probes = self.sample.iter().step_by(step);
        let (mut admitted, mut checked) = (0_u64, 0_u64);
        for probe in probes {
            checked += self.zones.len() as u64;
            let holds = |zone: &&Zone| (zone.low..=zone.high).contains(&probe.prefix);
            admitted += self.zones.iter().filter(holds).count() as u64;
        }
        ratio(admitted as f64, checked as f64)
    }
}

/// The rank of each of `values`; equal ones share the mean of theirs.
fn ranks(values: impl Iterator<Item = u128>) -> Vec<f64> {
    let mut sorted: Vec<(u128, usize)> = values.enumerate().map(|(place, value)| (value, place)).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0.0; sorted.len()];
    let mut start = 0;
    for group in sorted.chunk_by(|left, right| left.0 == right.0) {
        let rank = start as f64 + (group.len() as f64 - 1.0) / 2.0;
        for (_, place) in group {
            ranks[*place] = rank;
        }
        start += group.len();
    }
    ranks
}

/// The first 16 bytes as a number: preserves the order, and is equal for values that differ later.
fn prefix(value: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let known = value.len().min(16);
    bytes[..known].copy_from_slice(&value[..known]);
    u128::from_be_bytes(bytes)
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(records: u64, values: impl Fn(u64) -> Vec<u64>) -> AttributeProfile {
        let mut profiler = AttributeProfiler::new();
        for number in 0..records {
            let values: Vec<[u8; 8]> = values(number).into_iter().map(u64::to_be_bytes).collect();
            let borrowed = values.iter().map(|value| &value[..]);
            profiler.add(&number.to_be_bytes(), number, 92, borrowed);
        }
        profiler.finish()
    }

    fn scattered(number: u64) -> u64 {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
    }

    #[test]
    fn correlation_and_zones_distinguish_order_from_chance() {
        let rising = measured(10_000, |number| vec![number / 10]);
        assert!(rising.order_correlation > 0.999, "{rising:?}");
        assert!(rising.zone_share < 0.01, "{rising:?}");
        let falling = measured(10_000, |number| vec![u64::MAX - number]);
        assert!(falling.order_correlation < -0.999 && falling.zone_share < 0.01, "{falling:?}");
        let chance = measured(10_000, |number| vec![scattered(number) % 1000]);
        assert!(chance.order_correlation.abs() < 0.05 && chance.zone_share > 0.9, "{chance:?}");
    }

    #[test]
    fn counts_are_exact_and_estimates_close() {
        let some = measured(300_000, |number| {
            if number % 3 == 0 { Vec::new() } else { vec![scattered(number) % 20_000, 1 << 40] }
        });
        assert_eq!((some.records, some.with_attribute, some.values), (300_000, 200_000, 400_000));
        assert!((some.distinct_values / 20_001.0 - 1.0).abs() < 0.06, "{some:?}");
        assert!((some.popularity / 10.0 - 1.0).abs() < 0.3, "{some:?}");
        assert_eq!((some.key_bytes, some.record_bytes, some.value_bytes), (8.0, 100.0, 8.0));
        assert!(some.entry_share() > some.filter_share());
        let few = measured(100, |number| vec![number % 4]);
        assert_eq!(few.distinct_values, 4.0);
        assert!((few.popularity - 24.2).abs() < 0.1, "{few:?}");
    }

    #[test]
    fn an_empty_profile_is_zero() {
        let profile = AttributeProfiler::new().finish();
        assert_eq!(profile, AttributeProfile::default());
        assert_eq!((profile.entry_share(), profile.records_per_value()), (0.0, 1.0));
    }
}
