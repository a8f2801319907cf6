//! The workloads of Perseid (§5.1): random 64-bit keys, 25 records a secondary key, uniform or by a Zipf distribution with
//! exponent 0.99.

use std::sync::Arc;

use crate::data::random::{Random, mix};
use crate::data::zipf::Zipf;

/// Records of one secondary key, on average.
pub const RECORDS_PER_KEY: u64 = 25;

/// The writes before the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each record once.
    Insert,
    /// As many updates as inserts, shuffled; both keys uniform.
    Uniform,
    /// As [`Uniform`](Self::Uniform), with primary keys by a Zipf distribution.
    SkewedPrimary,
    /// As [`Uniform`](Self::Uniform), with secondary keys by a Zipf distribution.
    SkewedSecondary,
}

impl Workload {
    /// All workloads, in the order of the paper's panels.
    pub const ALL: [Self; 4] = [Self::Insert, Self::Uniform, Self::SkewedPrimary, Self::SkewedSecondary];

    /// The name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Uniform => "uniform",
            Self::SkewedPrimary => "skewed-pri",
            Self::SkewedSecondary => "skewed-sec",
        }
    }
}

/// A put of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The number of the record.
    pub record: u64,
    /// The number of the secondary key.
    pub secondary: u64,
}

/// Draws writes and queries, which depend on the seed alone.
#[derive(Debug, Clone)]
pub struct Draws {
    workload: Workload,
    records: u64,
    secondaries: u64,
    /// The distribution of the skewed keys; `None` if both are uniform.
    zipf: Option<Arc<Zipf>>,
    random: Random,
}

impl Draws {
    /// Draws over so many records.
    pub fn new(workload: Workload, records: u64, seed: u64) -> Self {
        let secondaries = (records / RECORDS_PER_KEY).max(1);
        let ranks = match workload {
            Workload::SkewedPrimary => Some(records),
            Workload::SkewedSecondary => Some(secondaries),
            _ => None,
        };
        let zipf = ranks.map(|ranks| Arc::new(Zipf::new(ranks)));
        Self { workload, records, secondaries, zipf, random: Random::new(seed) }
    }

    /// The same distributions with another seed.
    pub fn reseeded(&self, seed: u64) -> Self {
        Self { random: Random::new(seed), ..self.clone() }
    }

    /// The number of secondary keys.
    pub fn secondaries(&self) -> u64 {
        self.secondaries
    }

    /// A number below `limit` by the Zipf distribution, scattered over all numbers.
    fn skewed(&mut self, limit: u64) -> u64 {
        match &self.zipf {
            Some(zipf) => mix(zipf.rank(&mut self.random)) % limit,
            None => self.random.below(limit),
        }
    }

    /// Draws the number of a record.
    pub fn record(&mut self) -> u64 {
        match self.workload {
            Workload::SkewedPrimary => self.skewed(self.records),
            _ => self.random.below(self.records),
        }
    }

    /// Draws the number of a secondary key; queries have the distribution of the data.
    pub fn secondary(&mut self) -> u64 {
        match self.workload {
            Workload::SkewedSecondary => self.skewed(self.secondaries),
            _ => self.random.below(self.secondaries),
        }
    }

    /// A random number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    /// A put of a random record.
    pub fn write(&mut self) -> Write {
        Write { record: self.record(), secondary: self.secondary() }
    }

    /// All writes of the workload, shuffled: each record once, and for upserts an equal number of drawn ones.
    pub fn writes(&self) -> Vec<Write> {
        let mut draws = self.clone();
        let mut records: Vec<u64> = (0..self.records).collect();
        if self.workload != Workload::Insert {
            records.extend((0..self.records).map(|_| draws.record()));
        }
        for position in (1..records.len()).rev() {
            records.swap(position, draws.below(position as u64 + 1) as usize);
        }
        records.into_iter().map(|record| Write { record, secondary: draws.secondary() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn max_frequency(numbers: impl Iterator<Item = u64>) -> usize {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        numbers.for_each(|number| *counts.entry(number).or_default() += 1);
        counts.values().copied().max().unwrap_or(0)
    }

    #[test]
    fn each_workload_is_skewed_in_its_attribute() {
        for workload in Workload::ALL {
            let draws = Draws::new(workload, 20_000, 5);
            let writes = draws.writes();
            assert_eq!(writes, draws.writes());
            assert!(writes.iter().all(|write| write.record < 20_000 && write.secondary < 800));
            let records = max_frequency(writes.iter().map(|write| write.record));
            let secondaries = max_frequency(writes.iter().map(|write| write.secondary));
            match workload {
                Workload::Insert => assert_eq!((writes.len(), records), (20_000, 1)),
                Workload::Uniform => assert!(records < 20 && secondaries < 150, "{records} {secondaries}"),
                Workload::SkewedPrimary => assert!(records > 1_000 && secondaries < 150),
                Workload::SkewedSecondary => assert!(records < 20 && secondaries > 3_000),
            }
        }
    }
}
