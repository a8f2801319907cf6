//! Advice on which index an attribute should have.
//!
//! One pass over the records measures the attribute and takes two bounded samples. Trial indexes of each kind over the samples
//! are built in databases in memory ([`trial`]), and their figures scaled to the collection.

#[cfg(test)]
mod tests;
mod trial;

use std::collections::{HashMap, HashSet};

use bolide_base::Result;
use bolide_base::interruption::InterruptionSteps;
use bolide_index::advisor::prediction::{KindPrediction, Surroundings};
use bolide_index::advisor::sample::{SampledRecord, Sampler, Samples};
use bolide_index::advisor::trial::{GroupTrials, ScaledFigures, TreeTrials, WholeFigures};
use bolide_index::advisor::{Advice, AttributeProfile, AttributeProfiler, Measurements, Workload, advise};
use bolide_index::{AttributePath, AttributePlan, AttributeValues, IndexKind};
use bolide_lsm::Bounds;
use bolide_memory::MemoryUse;

use crate::collection_options::CollectionOptions;
use crate::handle::Collection;
use crate::index_build;

use trial::TrialSetup;

impl Collection {
    /// Measures an attribute: how many records have it, how many values there are, how often they recur,
    /// and how they follow the order of writes. Reads the whole collection once, in bounded memory.
    ///
    /// # Errors
    /// `InvalidInput` for a collection of bytes without an extractor; `Corruption` or `Io` from reading.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"user":"ann"}"#)?;
    /// posts.put(b"2", br#"{"text":"no user"}"#)?;
    /// let profile = posts.profile(&"user".parse()?)?;
    /// assert_eq!((profile.records, profile.with_attribute), (2, 1));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn profile(&self, attribute: &AttributePath) -> Result<AttributeProfile> {
        let mut profiler = AttributeProfiler::new();
        Measurement { collection: self, attribute }.read(|record, values| {
            profiler.add(record.key, record.sequence, record.bytes.len(), values.values(0));
        })?;
        Ok(profiler.finish())
    }

    /// Advises an index for `attribute` under `workload`: the kind with the lowest predicted cost that fits into the free part of
    /// the memory budget, with predictions for each kind, the reasons, and the choice of the decision tree of LevelDB++ (Figure 2).
    ///
    /// Reads the whole collection once. Builds trial indexes of each kind over two samples, of at most
    /// [`MAX_SAMPLE_RECORDS`](bolide_index::advisor::sample::MAX_SAMPLE_RECORDS) records and
    /// [`MAX_SAMPLE_BYTES`](bolide_index::advisor::sample::MAX_SAMPLE_BYTES) bytes each, in memory: a few seconds, at most about 64
    /// MiB beyond the budget. Times are CPU times, so they depend on the machine; sizes do not.
    ///
    /// # Errors
    /// As [`profile`](Self::profile); `LimitExceeded` for a value that no index can store.
    ///
    /// ```
    /// use bolide::advisor::Workload;
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// posts.put(b"1", br#"{"user":"ann"}"#)?;
    /// let advice = posts.advise(&"user".parse()?, &Workload::default())?;
    /// assert_eq!(advice.measurements.predictions.len(), 6);
    /// posts.create_index(advice.spec.parse()?)?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn advise(&self, attribute: &AttributePath, workload: &Workload) -> Result<Advice> {
        let (mut profiler, mut sampler) = (AttributeProfiler::new(), Sampler::new());
        let measurement = Measurement { collection: self, attribute };
        measurement.read(|record, values| {
            profiler.add(record.key, record.sequence, record.bytes.len(), values.values(0));
            sampler.add(record.key, record.sequence, record.bytes, values.values(0));
        })?;
        let (profile, samples) = (profiler.finish(), sampler.finish());
        let measurements = measurement.predict(workload, &profile, &samples)?;
        Ok(advise(attribute, &profile, workload, measurements))
    }
}

/// The measurement of an attribute of a collection.
struct Measurement<'c> {
    collection: &'c Collection,
    attribute: &'c AttributePath,
}

impl Measurement<'_> {
    /// Passes each record with its values at the attribute to `each`, in key order.
    fn read(&self, mut each: impl FnMut(PassedRecord<'_>, &AttributeValues)) -> Result<()> {
        self.collection.state.check_live()?;
        let indexes = self.collection.state.indexes();
        let extractor = indexes.extractor()?;
        let plan = AttributePlan::new([self.attribute.clone()]);
        let view = self.collection.handle.engine.read_view();
        let mut records = view.cursor(self.collection.state.tree, Bounds::all())?;
        let mut values = AttributeValues::new();
        let mut steps = InterruptionSteps::default();
        records.seek_to_first()?;
        while records.valid() {
            steps.step()?;
            // A malformed record has no values.
            extractor.extract_stored(records.value(), &plan, &mut values)?;
            let record =
                PassedRecord { key: records.key(), sequence: records.sequence(), bytes: records.value() };
            each(record, &values);
            records.next()?;
        }
        Ok(())
    }

    /// Predictions for each kind from trials on `samples`.
    fn predict(
        &self,
        workload: &Workload,
        profile: &AttributeProfile,
        samples: &Samples,
    ) -> Result<Measurements> {
        let surroundings = self.surroundings();
        let mut measurements = Measurements::default();
        measurements.free_bytes = surroundings.free_bytes;
        if samples.by_value.is_empty() {
            return Ok(measurements);
        }
        let options = index_build::table_options(&self.collection.handle.engine, &self.collection.state)?;
        let components = &self.collection.handle.engine.components;
        let setup = TrialSetup {
            attribute: self.attribute,
            workload,
            options: CollectionOptions::of_tree(
                self.collection.state.records,
                self.collection.state.keys,
                options,
            ),
            extractor: components.extractors.get(&self.collection.state.name).cloned(),
            runtime: &components.runtime,
            others: &samples.by_value,
        };
        let whole = whole_figures(profile, workload);
        let merged = match profile.values > profile.with_attribute && !self.attribute.is_spatial() {
            true => Some(setup.merged(&samples.by_group, profile)?),
            false => None,
        };
        let by_value = match &merged {
            Some((setup, records)) if !records.is_empty() => SampleTrials::new(setup, records)?,
            _ => SampleTrials::new(&setup, &samples.by_value)?,
        };
        let by_group = SampleTrials::new(&setup, &samples.by_group)?;
        measurements.records_by_value = by_value.records.len() as u64;
        measurements.records_by_group = by_group.records.len() as u64;
        let supports = |kind: &IndexKind| !self.attribute.is_spatial() || *kind == IndexKind::NEXT;
        for kind in IndexKind::BUILT_IN.into_iter().filter(supports) {
            let figures = if kind.has_tree() {
                by_value.of_tree(kind, &whole)?
            } else if kind == IndexKind::NEXT && !self.attribute.is_spatial() {
                // Its blocks are sorted by value within an sstable, which has the values of many groups.
                by_group.of_groups(kind, &whole)?.with_sizes_of(&by_value.of_tree(kind, &whole)?)
            } else {
                by_group.of_groups(kind, &whole)?
            };
            let growth = if kind == IndexKind::PS_TREE { trial::REGION_GROWTH_BYTES } else { 0.0 };
            let prediction = KindPrediction::new(kind, &figures, workload, &surroundings.without(growth));
            measurements.predictions.push(prediction);
        }
        Ok(measurements)
    }

    /// The memory that is free after caches, memtables and indexes, and the sizes that determine reads from the device.
    fn surroundings(&self) -> Surroundings {
        let engine = &self.collection.handle.engine;
        let budget = engine.cache.memory_pool().budget();
        let report = budget.report();
        let of = |memory_use| {
            let sum = report.iter().find(|user| user.memory_use == memory_use && user.name.is_none());
            sum.map_or(0, |user| user.size.reserved)
        };
        // One set of memtables is filled while another one is flushed.
        let memtables = (2 * engine.memtable_bytes as u64).saturating_sub(of(MemoryUse::Memtables));
        let free = match budget.limit_bytes() {
            u64::MAX => f64::INFINITY,
            _ => budget.free_bytes().saturating_sub(memtables) as f64,
        };
        let trees = engine.store.stats().trees;
        let table = trees.iter().find(|tree| tree.tree == self.collection.state.tree);
        let table_bytes = table.map_or(0, |tree| tree.disk_bytes());
        Surroundings::new(free, of(MemoryUse::BlockCache) as f64, table_bytes as f64)
    }
}

/// A sample on which indexes of all kinds are tried.
struct SampleTrials<'s> {
    setup: &'s TrialSetup<'s>,
    sample: &'s [SampledRecord],
    /// The sample in the order of its writes.
    records: Vec<&'s SampledRecord>,
    /// The CPU time of a write without an index, in nanoseconds.
    alone: f64,
}

impl<'s> SampleTrials<'s> {
    fn new(setup: &'s TrialSetup<'s>, sample: &'s [SampledRecord]) -> Result<Self> {
        let records = in_write_order(sample);
        let alone = setup.write_nanos_alone(&records)?;
        Ok(Self { setup, sample, records, alone })
    }

    /// The figures of an index that is sorted by value.
    fn of_tree(&self, kind: IndexKind, whole: &WholeFigures) -> Result<ScaledFigures> {
        let run = |records: &[&SampledRecord]| self.setup.run(kind, records, self.alone);
        let one = self.records.get(..1).unwrap_or(&self.records);
        let trials = TreeTrials::new(run(one)?, run(&frequent_values(self.sample))?, run(&self.records)?);
        Ok(trials.scaled(whole))
    }

    /// The figures of an index in the sstables of the records.
    fn of_groups(&self, kind: IndexKind, whole: &WholeFigures) -> Result<ScaledFigures> {
        let run = |records: &[&SampledRecord]| self.setup.run(kind, records, self.alone);
        let quarter = self.sample.get(..self.sample.len().div_ceil(4)).unwrap_or(self.sample);
        Ok(GroupTrials::new(run(&in_write_order(quarter))?, run(&self.records)?).scaled(whole))
    }
}

/// A record of a pass over the collection.
struct PassedRecord<'r> {
    key: &'r [u8],
    sequence: bolide_base::SequenceNumber,
    bytes: &'r [u8],
}

/// What the trials are scaled to.
fn whole_figures(profile: &AttributeProfile, workload: &Workload) -> WholeFigures {
    let matches = profile.records_per_value();
    let answers = workload.limit.map_or(matches, |limit| matches.min(limit as f64));
    WholeFigures::new(profile, answers, (answers / matches).min(1.0))
}

fn in_write_order(sample: &[SampledRecord]) -> Vec<&SampledRecord> {
    let mut sample: Vec<&SampledRecord> = sample.iter().collect();
    sample.sort_unstable_by_key(|record| record.sequence);
    sample
}

/// The records of the most frequent values, which have half of the sample, in the order of their writes.
fn frequent_values(sample: &[SampledRecord]) -> Vec<&SampledRecord> {
    let mut counts = HashMap::<&[u8], usize>::new();
    for record in sample {
        *counts.entry(&record.value).or_default() += 1;
    }
    let mut by_count: Vec<(usize, &[u8])> = counts.into_iter().map(|(value, count)| (count, value)).collect();
    by_count.sort_unstable_by(|one, other| other.cmp(one));
    let mut records = 0;
    let is_in_half = |(count, _): &&(usize, &[u8])| {
        let is_in_half = 2 * records < sample.len();
        records += count;
        is_in_half
    };
    let frequent: HashSet<&[u8]> = by_count.iter().take_while(is_in_half).map(|(_, value)| *value).collect();
    let mut records = in_write_order(sample);
    records.retain(|record| frequent.contains(&record.value[..]));
    records
}
