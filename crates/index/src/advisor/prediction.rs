//! Predictions by kind, and the choice among them.

use super::Workload;
use super::trial::ScaledFigures;
use crate::spec::IndexKind;

/// The time of a read from the device that a block outside of the cache costs, in nanoseconds. An assumption.
const DEVICE_READ_NANOS: f64 = 100_000.0;
/// Costs that differ by this factor at most are equal.
pub const TIE: f64 = 1.1;

/// The memory of a database, and the size of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Surroundings {
    /// Bytes of the memory budget that no cache, memtable or index has.
    pub free_bytes: f64,
    /// Bytes of the block cache.
    pub cache_bytes: f64,
    /// Bytes of the sstables of the records.
    pub table_bytes: f64,
}

impl Surroundings {
    /// These bytes; `free_bytes` is infinite without a memory budget.
    pub fn new(free_bytes: f64, cache_bytes: f64, table_bytes: f64) -> Self {
        Self { free_bytes, cache_bytes, table_bytes }
    }

    /// As these, with `bytes` less of free memory.
    #[must_use]
    pub fn without(self, bytes: f64) -> Self {
        Self { free_bytes: self.free_bytes - bytes, ..self }
    }
}

/// The predicted figures of an index of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct KindPrediction {
    /// The kind.
    pub kind: IndexKind,
    /// Bytes in memory, without cached blocks.
    pub memory_bytes: f64,
    /// Bytes on disk.
    pub disk_bytes: f64,
    /// CPU time that the index adds to a write, in nanoseconds, flush and compaction included.
    pub write_nanos: f64,
    /// CPU time of a lookup, in nanoseconds.
    pub lookup_nanos: f64,
    /// Blocks of sstables that a lookup reads or finds in the cache.
    pub lookup_blocks: f64,
    /// The mean cost of an operation of the workload, in nanoseconds: writes, lookups, and reads from the device for blocks that
    /// do not fit into the cache, 100 µs each.
    pub cost_nanos: f64,
    /// Whether its memory fits into the free part of the memory budget.
    pub fits: bool,
}

impl KindPrediction {
    /// The prediction for `figures` under `workload`.
    pub fn new(
        kind: IndexKind,
        figures: &ScaledFigures,
        workload: &Workload,
        surroundings: &Surroundings,
    ) -> Self {
        let data = surroundings.table_bytes + figures.disk_bytes;
        let missed = if data > 0.0 { (1.0 - surroundings.cache_bytes / data).clamp(0.0, 1.0) } else { 0.0 };
        let lookup = figures.lookup_nanos + figures.lookup_blocks * missed * DEVICE_READ_NANOS;
        let lookups = (1.0 - workload.writes) * workload.lookups;
        Self {
            kind,
            memory_bytes: figures.memory_bytes,
            disk_bytes: figures.disk_bytes,
            write_nanos: figures.write_nanos,
            lookup_nanos: figures.lookup_nanos,
            lookup_blocks: figures.lookup_blocks,
            cost_nanos: workload.writes * figures.write_nanos + lookups * lookup,
            fits: figures.memory_bytes <= surroundings.free_bytes,
        }
    }

    /// Bytes in memory and on disk.
    pub fn bytes(&self) -> f64 {
        self.memory_bytes + self.disk_bytes
    }
}

/// The best kind: of those that fit, the one with the lowest cost, or with the fewest bytes if space is scarce. Among those
/// within [`TIE`] of the best, the one with the fewest bytes, or with the lowest cost if space is scarce; then the first one. If none
/// fits, the one with the fewest bytes in memory. `None` without predictions.
pub fn choose(predictions: &[KindPrediction], space_is_scarce: bool) -> Option<&KindPrediction> {
    let (cost, bytes) = (|one: &KindPrediction| one.cost_nanos, KindPrediction::bytes);
    let fitting: Vec<&KindPrediction> = predictions.iter().filter(|one| one.fits).collect();
    if fitting.is_empty() {
        return predictions.iter().min_by(|one, other| one.memory_bytes.total_cmp(&other.memory_bytes));
    }
    if space_is_scarce { best(&fitting, bytes, cost) } else { best(&fitting, cost, bytes) }
}

/// The first in the order of `second` among those that are near the minimum of `first`.
fn best<'p>(
    of: &[&'p KindPrediction],
    first: impl Fn(&KindPrediction) -> f64,
    second: impl Fn(&KindPrediction) -> f64,
) -> Option<&'p KindPrediction> {
    let minimum = of.iter().map(|one| first(one)).fold(f64::INFINITY, f64::min);
    let near = of.iter().filter(|one| first(one) <= minimum * TIE);
    near.min_by(|one, other| second(one).total_cmp(&second(other))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(kind: IndexKind, cost: f64, memory: f64, disk: f64) -> KindPrediction {
        let figures = ScaledFigures {
            disk_bytes: disk,
            memory_bytes: memory,
            write_nanos: cost,
            lookup_nanos: cost,
            lookup_blocks: 0.0,
        };
        let surroundings = Surroundings { free_bytes: 1_000.0, ..Default::default() };
        KindPrediction::new(kind, &figures, &Workload { lookups: 1.0, ..Default::default() }, &surroundings)
    }

    #[test]
    fn the_cheapest_kind_that_fits_is_chosen() {
        let chosen =
            |predictions: &[KindPrediction], scarce| choose(predictions, scarce).map(|found| found.kind);
        let fast = prediction(IndexKind::PS_TREE, 100.0, 900.0, 900.0);
        let slow = prediction(IndexKind::COMPOSITE, 300.0, 10.0, 500.0);
        let equal = prediction(IndexKind::NEXT, 109.0, 10.0, 200.0);
        let small = prediction(IndexKind::EMBEDDED, 5_000.0, 90.0, 90.0);
        assert_eq!(chosen(&[fast, slow, small], false), Some(IndexKind::PS_TREE));
        assert_eq!(chosen(&[fast, slow, equal, small], false), Some(IndexKind::NEXT), "a tie");
        assert_eq!(chosen(&[fast, slow, equal, small], true), Some(IndexKind::EMBEDDED));
        let large = prediction(IndexKind::PS_TREE, 100.0, 1_001.0, 900.0);
        assert_eq!(chosen(&[large, slow, small], false), Some(IndexKind::COMPOSITE));
        assert_eq!(chosen(&[large], false), Some(IndexKind::PS_TREE));
        assert_eq!(chosen(&[], false), None);
    }

    #[test]
    fn blocks_outside_of_the_cache_cost_reads() {
        let figures = ScaledFigures { lookup_blocks: 2.0, lookup_nanos: 1_000.0, ..Default::default() };
        let workload = Workload { writes: 0.0, lookups: 1.0, ..Default::default() };
        let cost = |cache_bytes| {
            let surroundings = Surroundings { free_bytes: 0.0, cache_bytes, table_bytes: 1_000.0 };
            KindPrediction::new(IndexKind::COMPOSITE, &figures, &workload, &surroundings).cost_nanos
        };
        assert_eq!((cost(1_000.0), cost(500.0), cost(0.0)), (1_000.0, 101_000.0, 201_000.0));
    }
}
