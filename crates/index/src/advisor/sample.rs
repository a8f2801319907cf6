//! Bounded samples of a collection for trial indexes, taken in one pass over records in key order.
//!
//! Two samples, because two things determine the size of an index:
//!
//! * **By value**: the records that have a value whose hash is below a threshold, which is halved when the sample is full. A value
//!   in the sample has all its records, so the number of records per value is that of the collection. A sample of random records
//!   would make most values rare. For indexes with a tree of their own.
//! * **By group**: runs of neighbouring records, every n-th run, with n doubled when the sample is full. Blocks of sstables then have
//!   the content that they have in the collection. For indexes in the sstables of the records.
//!
//! Records with several values each are sampled by group alone, and their values merged ([`MergedSample`]).
//!
//! A value with more than 1,024 records in the sample loses the rest: each further record adds the same to an index.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};

use super::profile::hash;
use crate::attribute_plan::{AttributePlan, AttributeValues};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;

/// The maximum number of records in a sample.
pub const MAX_SAMPLE_RECORDS: usize = 16_384;
/// The maximum bytes of keys and records in a sample.
pub const MAX_SAMPLE_BYTES: usize = 8 << 20;
/// The maximum number of records of one value in a sample by value.
const MAX_RECORDS_OF_VALUE: u32 = 1_024;
/// Bytes of neighbouring records in a group: several blocks.
const GROUP_BYTES: usize = 32 << 10;

/// A record in a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledRecord {
    /// The primary key.
    pub key: Vec<u8>,
    /// The stored record.
    pub record: Vec<u8>,
    /// The number of its write.
    pub sequence: SequenceNumber,
    /// The encoded value by which it was selected, or its first one; empty without one.
    pub value: Vec<u8>,
    /// The hash of the value that selected it, or 0.
    selected_by: u64,
}

impl SampledRecord {
    fn bytes(&self) -> usize {
        self.key.len() + self.record.len() + self.value.len()
    }
}

/// The samples of a collection, in key order.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Records of some values.
    pub by_value: Vec<SampledRecord>,
    /// Groups of neighbouring records.
    pub by_group: Vec<SampledRecord>,
}

/// A sample of records with several values each, in which values are merged so that each has as many records as a value of the
/// collection. A record has all of its values, so no selection of records has all records of some values and few others.
#[derive(Debug)]
pub struct MergedSample {
    /// The records, in the order of the sample, with the merged value of each.
    pub records: Vec<SampledRecord>,
    /// Extracts merged values.
    pub extractor: Arc<dyn AttributeExtractor>,
}

impl MergedSample {
    /// Merges the values that `extractor` finds at `attribute` in `sample` to `distinct` ones, neighbours by hash. Records without a value
    /// are left out.
    ///
    /// # Errors
    /// Those of the extractor, except for malformed records.
    pub fn new(
        sample: &[SampledRecord],
        extractor: Arc<dyn AttributeExtractor>,
        attribute: &AttributePath,
        distinct: usize,
    ) -> Result<Self> {
        let (plan, mut values) = (AttributePlan::new([attribute.clone()]), AttributeValues::new());
        let mut by_hash = BTreeMap::<u64, Arc<[u8]>>::new();
        for record in sample {
            extractor.extract_stored(&record.record, &plan, &mut values)?;
            for value in values.values(0) {
                by_hash.entry(hash(value)).or_insert_with(|| value.into());
            }
        }
        let found = by_hash.len().max(1);
        let distinct = distinct.clamp(1, found);
        let mut merged = HashMap::with_capacity(by_hash.len());
        let mut current: Option<(usize, Arc<[u8]>)> = None;
        for (rank, (hash, value)) in by_hash.into_iter().enumerate() {
            let bucket = rank * distinct / found;
            let value = match &current {
                Some((open, first)) if *open == bucket => first.clone(),
                _ => value,
            };
            current = Some((bucket, value.clone()));
            merged.insert(hash, value);
        }
        let with_value = sample.iter().filter(|record| !record.value.is_empty());
        let of_merged = |record: &SampledRecord| {
            let value =
                merged.get(&hash(&record.value)).map_or_else(|| record.value.clone(), |value| value.to_vec());
            SampledRecord { value, ..record.clone() }
        };
        let records = with_value.map(of_merged).collect();
        Ok(Self { records, extractor: Arc::new(MergedValues { extractor, merged }) })
    }
}

/// An extractor of merged values.
#[derive(Debug)]
struct MergedValues {
    extractor: Arc<dyn AttributeExtractor>,
    /// By the hash of a value, the value in its place.
    merged: HashMap<u64, Arc<[u8]>>,
}

impl AttributeExtractor for MergedValues {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        let mut values = AttributeValues::new();
        self.extractor.extract(record, plan, &mut values)?;
        for slot in 0..plan.paths().len() {
            for value in values.values(slot) {
                let merged = self.merged.get(&hash(value)).map_or(value, |merged| &**merged);
                out.push_encoded(slot, |bytes| bytes.extend_from_slice(merged));
            }
        }
        Ok(())
    }
}

/// Takes both samples; see [the module](self). Uses at most twice [`MAX_SAMPLE_BYTES`], and about a hundred bytes for each record.
#[derive(Debug, Default)]
pub struct Sampler {
    by_value: ByValue,
    by_group: ByGroup,
}

impl Sampler {
    /// A sampler without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next record in key order, with its encoded values at the attribute.
    pub fn add<'v>(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        record: &[u8],
        values: impl Iterator<Item = &'v [u8]> + Clone,
    ) {
        let sampled = |value: &[u8], selected_by| SampledRecord {
            key: key.to_vec(),
            record: record.to_vec(),
            sequence,
            value: value.to_vec(),
            selected_by,
        };
        if let Some((hash, value)) = self.by_value.selects(values.clone()) {
            self.by_value.add(sampled(value, hash));
        }
        if self.by_group.selects(key.len() + record.len()) {
            self.by_group.add(sampled(values.clone().next().unwrap_or(&[]), 0));
        }
    }

    /// The samples.
    pub fn finish(self) -> Samples {
        Samples { by_value: self.by_value.sample.records, by_group: self.by_group.sample.records }
    }
}

/// Records within the limits.
#[derive(Debug, Default)]
struct Bounded {
    records: Vec<SampledRecord>,
    bytes: usize,
}

impl Bounded {
    fn push(&mut self, record: SampledRecord) {
        self.bytes += record.bytes();
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.records.len() > MAX_SAMPLE_RECORDS || self.bytes > MAX_SAMPLE_BYTES
    }

    fn retain(&mut self, keeps: impl FnMut(&SampledRecord) -> bool) {
        self.records.retain(keeps);
        self.bytes = self.records.iter().map(SampledRecord::bytes).sum();
    }
}

#[derive(Debug)]
struct ByValue {
    sample: Bounded,
    below: u64,
    /// Records in the sample by the hash of the value that selected them.
    counts: HashMap<u64, u32>,
}

impl Default for ByValue {
    fn default() -> Self {
        Self { sample: Bounded::default(), below: u64::MAX, counts: HashMap::new() }
    }
}

impl ByValue {
    /// The value because of which the record is sampled, with its hash.
    fn selects<'v>(&self, values: impl Iterator<Item = &'v [u8]>) -> Option<(u64, &'v [u8])> {
        let smallest = values.map(|value| (hash(value), value)).min();
        let smallest = smallest.filter(|(hash, _)| *hash <= self.below)?;
        let has_room = |count: &u32| *count < MAX_RECORDS_OF_VALUE;
        self.counts.get(&smallest.0).is_none_or(has_room).then_some(smallest)
    }

    fn add(&mut self, record: SampledRecord) {
        *self.counts.entry(record.selected_by).or_default() += 1;
        self.sample.push(record);
        // One value has at most a part of a full sample, unless its records are large.
        while self.sample.is_full() && self.counts.len() > 1 {
            self.below /= 2;
            let below = self.below;
            self.counts.retain(|hash, _| *hash <= below);
            self.sample.retain(|record| record.selected_by <= below);
        }
        if self.sample.is_full() {
            self.sample.retain(thin());
            self.counts.values_mut().for_each(|count| *count = MAX_RECORDS_OF_VALUE);
        }
    }
}

/// Keeps every second record.
fn thin() -> impl FnMut(&SampledRecord) -> bool {
    let mut position = 0_u64;
    move |_| {
        position += 1;
        position % 2 == 1
    }
}

#[derive(Debug, Default)]
struct ByGroup {
    sample: Bounded,
    /// The group of each record of the sample.
    groups: Vec<u64>,
    /// The number of the group that is read, and its bytes so far.
    group: u64,
    group_bytes: usize,
    /// Groups with a number that this power of two divides are sampled.
    stride_log: u32,
}

impl ByGroup {
    fn selects(&mut self, bytes: usize) -> bool {
        if self.group_bytes >= GROUP_BYTES {
            self.group += 1;
            self.group_bytes = 0;
        }
        self.group_bytes += bytes;
        is_sampled(self.group, self.stride_log)
    }

    fn add(&mut self, record: SampledRecord) {
        self.sample.push(record);
        self.groups.push(self.group);
        while self.sample.is_full() {
            self.stride_log += 1;
            let stride_log = self.stride_log;
            let mut groups = self.groups.iter();
            self.sample.retain(|_| groups.next().is_some_and(|group| is_sampled(*group, stride_log)));
            self.groups.retain(|group| is_sampled(*group, stride_log));
            if self.groups.last() == self.groups.first() {
                break;
            }
        }
    }
}

fn is_sampled(group: u64, stride_log: u32) -> bool {
    group.trailing_zeros() >= stride_log
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(records: u64, bytes: usize, values: impl Fn(u64) -> Vec<u64>) -> Samples {
        let mut sampler = Sampler::new();
        let record = vec![b'x'; bytes];
        for number in 0..records {
            let values: Vec<[u8; 8]> = values(number).into_iter().map(u64::to_be_bytes).collect();
            sampler.add(&number.to_be_bytes(), number, &record, values.iter().map(|value| &value[..]));
        }
        sampler.finish()
    }

    fn number(record: &SampledRecord) -> u64 {
        u64::from_be_bytes(record.key[..].try_into().unwrap())
    }

    fn assert_bounded(sample: &[SampledRecord]) {
        let bytes: usize = sample.iter().map(SampledRecord::bytes).sum();
        assert!(
            sample.len() <= MAX_SAMPLE_RECORDS && bytes <= MAX_SAMPLE_BYTES + (1 << 20),
            "{}",
            sample.len()
        );
        assert!(sample.is_sorted_by(|one, other| one.key < other.key));
    }

    #[test]
    fn small_collections_are_sampled_whole() {
        let samples = samples(5_000, 100, |number| vec![number % 100]);
        assert_eq!((samples.by_value.len(), samples.by_group.len()), (5_000, 5_000));
    }

    #[test]
    fn a_value_has_all_its_records_and_groups_have_neighbours() {
        let samples = samples(200_000, 100, |number| vec![number % 8_000]);
        assert_bounded(&samples.by_value);
        assert_bounded(&samples.by_group);
        assert!(samples.by_value.len() > 4_000 && samples.by_group.len() > 4_000);
        let mut counts: HashMap<u64, u64> = HashMap::new();
        samples.by_value.iter().for_each(|record| *counts.entry(number(record) % 8_000).or_default() += 1);
        assert!(counts.values().all(|count| *count == 25));
        let neighbours = |pair: &&[SampledRecord]| number(&pair[0]) + 1 == number(&pair[1]);
        let together = samples.by_group.windows(2).filter(neighbours).count();
        assert!(together * 100 > samples.by_group.len() * 99);
        assert!(number(samples.by_group.last().unwrap()) > 150_000);
    }

    #[test]
    fn merged_values_have_as_many_records_as_those_of_the_collection() {
        let mut sampler = Sampler::new();
        let extractor = Arc::new(crate::JsonExtractor);
        let plan = AttributePlan::new(["v[*]".parse().unwrap()]);
        let mut values = AttributeValues::new();
        for number in 0..60_000_u64 {
            let of = |place: u64| (number * 3 + place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let (one, two, three) = (of(0) % 6_000, of(1) % 6_000, of(2) % 6_000);
            let record = format!(r#"{{"v":[{one},{two},{three}]}}"#);
            extractor.extract(record.as_bytes(), &plan, &mut values).unwrap();
            sampler.add(&number.to_be_bytes(), number, record.as_bytes(), values.values(0));
        }
        let sample = sampler.finish().by_group;
        let distinct = 6_000 * sample.len() / 60_000;
        let merged = MergedSample::new(&sample, extractor, &plan.paths()[0], distinct).unwrap();
        assert_eq!(merged.records.len(), sample.len());
        let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
        for record in &merged.records {
            merged.extractor.extract(&record.record, &plan, &mut values).unwrap();
            assert!(values.values(0).len() >= 2 && values.values(0).any(|value| value == record.value));
            values.values(0).for_each(|value| *counts.entry(value.to_vec()).or_default() += 1);
        }
        assert_eq!(counts.len(), distinct);
        let mean = counts.values().sum::<u64>() as f64 / counts.len() as f64;
        assert!((28.0..32.0).contains(&mean), "{mean}");
    }

    #[test]
    fn every_distribution_is_bounded() {
        for value in [|_| 1, |number| number, |number| number % 3] as [fn(u64) -> u64; 3] {
            for (records, bytes) in [(100_000, 50), (2_000, 100_000), (5, 20 << 20)] {
                let samples = samples(records, bytes, |number| vec![value(number), 7]);
                for sample in [&samples.by_value, &samples.by_group] {
                    let total: usize = sample.iter().map(SampledRecord::bytes).sum();
                    assert!(sample.len() <= MAX_SAMPLE_RECORDS && total <= MAX_SAMPLE_BYTES + bytes + 8);
                    assert!(!sample.is_empty());
                }
            }
        }
    }
}
