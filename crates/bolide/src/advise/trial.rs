//! Trial indexes: a sample in a database of its own, in memory, with an index of one kind.
//!
//! Flushes and compactions run inside the calls, so the CPU time of the calling thread includes them. The time of the same writes
//! without an index is subtracted.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{ErrorKind, Result};
use bolide_index::advisor::sample::{MergedSample, SampledRecord};
use bolide_index::advisor::trial::{LookupFigures, TrialFigures};
use bolide_index::advisor::{AttributeProfile, Workload};
use bolide_index::{
    AttributeExtractor, AttributePath, AttributePlan, AttributeValues, EmbeddedCosts, Explain, IndexKind,
    IndexSpec, JsonExtractor, NextCosts, Predicate, Query, Value,
};
use bolide_lsm::SyncMode;
use bolide_storage::Runtime;

use crate::catalog::RecordKind;
use crate::collection_options::CollectionOptions;
use crate::components::Components;
use crate::db::Db;
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::options::Options;

/// The memory budget of a trial.
const TRIAL_MEMORY_BYTES: usize = 32 << 20;
/// The name of the collection of a trial.
const NAME: &str = "sample";
/// The maximum number of lookups.
const LOOKUPS: usize = 64;
/// The maximum number of answers that one pass over the lookups reads.
const MAX_ANSWERS: u64 = 16_384;
/// Lookups are repeated until this CPU time has passed, or this often.
const LOOKUP_MICROS: u64 = 20_000;
const MAX_PASSES: u32 = 8;
/// A region grows by extents of 4 MiB, and is copied in part while a checkpoint is written.
pub(super) const REGION_GROWTH_BYTES: f64 = (8 << 20) as f64;

/// What the trials of an attribute have in common.
#[derive(Clone)]
pub(super) struct TrialSetup<'c> {
    pub(super) attribute: &'c AttributePath,
    pub(super) workload: &'c Workload,
    pub(super) options: CollectionOptions,
    pub(super) extractor: Option<Arc<dyn AttributeExtractor>>,
    pub(super) runtime: &'c Arc<dyn Runtime>,
    /// Records with values for lookups on a sample without any.
    pub(super) others: &'c [SampledRecord],
}

impl TrialSetup<'_> {
    /// The sample of records with several values each, with merged values, and the setup for it.
    pub(super) fn merged(
        &self,
        sample: &[SampledRecord],
        profile: &AttributeProfile,
    ) -> Result<(Self, Vec<SampledRecord>)> {
        let with_value = sample.iter().filter(|record| !record.value.is_empty()).count();
        let share = with_value as f64 / profile.with_attribute.max(1) as f64;
        let distinct = (profile.distinct_values * share).round() as usize;
        let own = self.extractor.clone().unwrap_or_else(|| Arc::new(JsonExtractor));
        let merged = MergedSample::new(sample, own, self.attribute, distinct)?;
        let mut options = self.options.clone();
        options.records = RecordKind::Bytes;
        Ok((Self { options, extractor: Some(merged.extractor), ..self.clone() }, merged.records))
    }

    /// The CPU time of a write of the sample without an index, in nanoseconds.
    pub(super) fn write_nanos_alone(&self, sample: &[&SampledRecord]) -> Result<f64> {
        let (db, collection) = self.open(None)?;
        self.load(&db, &collection, sample)
    }

    /// The figures of an index of `kind` over `sample`, which is in the order of its writes. A write without the index takes
    /// `alone` nanoseconds.
    pub(super) fn run(&self, kind: IndexKind, sample: &[&SampledRecord], alone: f64) -> Result<TrialFigures> {
        let context = |error: bolide_base::Error| {
            error.context(format_args!("a trial index of kind {} on `{}`", kind.name(), self.attribute))
        };
        self.figures(kind, sample, alone).map_err(context)
    }

    fn figures(&self, kind: IndexKind, sample: &[&SampledRecord], alone: f64) -> Result<TrialFigures> {
        let (db, collection) = self.open(Some(kind))?;
        let write_nanos = (self.load(&db, &collection, sample)? - alone).max(0.0);
        // Lookups also load what an index reads when it is needed.
        let lookup = self.lookup(&collection, sample)?;
        let mut figures = TrialFigures::default();
        figures.records = sample.len() as u64;
        (figures.values, figures.distinct) = self.count_values(sample)?;
        (figures.write_nanos, figures.lookup) = (write_nanos, lookup);
        let stats = db.stats();
        let index = stats.collections.iter().flat_map(|collection| &collection.indexes).next();
        figures.disk_bytes = index.map_or(0, |index| index.disk_bytes());
        figures.memory_bytes = index.map_or(0, |index| index.memory_bytes());
        Ok(figures)
    }

    fn open(&self, kind: Option<IndexKind>) -> Result<(Db, Collection)> {
        let mut components = Components::in_memory().runtime(self.runtime.clone());
        if let Some(extractor) = &self.extractor {
            components = components.extractor(NAME, extractor.clone());
        }
        let options = Options::default()
            .memory_bytes(TRIAL_MEMORY_BYTES)
            .reserve_bytes(0)
            .background_threads(0)
            .fetch_threads(1)
            .sync(SyncMode::None);
        let db = Db::open_with(NAME, options, components)?;
        let mut options = self.options.clone();
        if let Some(kind) = kind {
            options = options.index(IndexSpec::new([self.attribute.clone()])?.with_kind(kind));
        }
        let collection = db.create_collection(NAME, options)?;
        Ok((db, collection))
    }

    /// Writes, flushes and compacts the sample. Returns the CPU time of a write in nanoseconds.
    fn load(&self, db: &Db, collection: &Collection, sample: &[&SampledRecord]) -> Result<f64> {
        let start = self.runtime.thread_cpu_micros();
        for record in sample {
            match collection.put(&record.key, &record.record) {
                // An earlier version stored the malformed record, and no index has it.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                other => other?,
            }
        }
        db.flush()?;
        collection.compact()?;
        db.wait_until_settled()?;
        let micros = self.runtime.thread_cpu_micros().saturating_sub(start);
        Ok(micros as f64 * 1_000.0 / sample.len().max(1) as f64)
    }

    /// The number of values in the sample, and of distinct ones.
    fn count_values(&self, sample: &[&SampledRecord]) -> Result<(u64, u64)> {
        let json = JsonExtractor;
        let extractor: &dyn AttributeExtractor = match &self.extractor {
            Some(extractor) => &**extractor,
            None => &json,
        };
        let plan = AttributePlan::new([self.attribute.clone()]);
        let (mut values, mut count) = (AttributeValues::new(), 0);
        let mut distinct = HashSet::<Vec<u8>>::new();
        for record in sample {
            extractor.extract_stored(&record.record, &plan, &mut values)?;
            for value in values.values(0) {
                count += 1;
                if !distinct.contains(value) {
                    distinct.insert(value.to_vec());
                }
            }
        }
        Ok((count, distinct.len() as u64))
    }

    /// The queries of the workload for the values of records at equal distances in the sample.
    fn queries(&self, sample: &[&SampledRecord]) -> Result<Vec<Query>> {
        let mut queries = Vec::new();
        if self.attribute.is_spatial() {
            return Ok(queries);
        }
        let mut records: Vec<&SampledRecord> =
            sample.iter().copied().filter(|found| !found.value.is_empty()).collect();
        if records.is_empty() {
            records.extend(self.others);
        }
        for record in records.iter().step_by(records.len().div_ceil(LOOKUPS).max(1)) {
            let Some((value, _)) = Value::decode(&record.value) else { continue };
            let mut query = Query::new().predicate(Predicate::equal(self.attribute.clone(), value)?);
            if let Some(limit) = self.workload.limit {
                query = query.limit(limit.max(1));
            }
            if self.workload.keys_only {
                query = query.keys_only();
            }
            // The plan for a small sample may be a scan.
            queries.push(query.using_index(self.attribute.to_string()));
        }
        Ok(queries)
    }

    /// Runs the lookups: once with counters, then for the time.
    fn lookup(&self, collection: &Collection, sample: &[&SampledRecord]) -> Result<LookupFigures> {
        let queries = self.queries(sample)?;
        let options = FindOptions::default();
        let run = |query: &Query| collection.visit(query, &options, |_| Ok(ControlFlow::Continue(())));
        let mut figures = LookupFigures::default();
        let mut count = 0;
        let mut answers = 0;
        for query in &queries {
            let outcome = run(query)?;
            let explain = outcome.explain();
            answers += explain.answers;
            figures.blocks += (explain.reads.blocks_cached + explain.reads.blocks_read) as f64;
            figures.work += work(explain) as f64;
            count += 1;
            if answers > MAX_ANSWERS {
                break;
            }
        }
        let start = self.runtime.thread_cpu_micros();
        let (mut passes, mut micros) = (0_u32, 0);
        while passes < MAX_PASSES && micros < LOOKUP_MICROS {
            for query in queries.iter().take(count) {
                run(query)?;
            }
            passes += 1;
            micros = self.runtime.thread_cpu_micros().saturating_sub(start);
        }
        let lookups = count.max(1) as f64;
        figures.nanos = micros as f64 * 1_000.0 / (lookups * f64::from(passes.max(1)));
        figures.answers = answers as f64 / lookups;
        figures.blocks /= lookups;
        figures.work /= lookups;
        Ok(figures)
    }
}

/// Blocks that an index without a tree examined or skipped, and entries that it read.
fn work(explain: &Explain) -> u64 {
    let embedded: EmbeddedCosts = explain.costs_of();
    let next: NextCosts = explain.costs_of();
    embedded.blocks_skipped_by_sequence
        + embedded.blocks_skipped_by_zone_map
        + embedded.blocks_skipped_by_bloom
        + embedded.blocks_read
        + next.index_blocks_met
        + next.entries
        + next.data_blocks_read
}
