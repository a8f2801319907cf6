//! The form of some fields of an execution report as JSON.

use std::fmt::Display;

use bolide_table::ReadCounters;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::costs::IndexCosts;

impl Serialize for IndexCosts {
    /// An object with the counters under their names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

/// An object with a member for each kind.
pub(crate) fn costs_by_kind<S: Serializer>(costs: &[IndexCosts], serializer: S) -> Result<S::Ok, S::Error> {
    let mut kinds = serializer.serialize_map(Some(costs.len()))?;
    for of_kind in costs {
        kinds.serialize_entry(of_kind.kind(), of_kind)?;
    }
    kinds.end()
}

/// The text of a value, or null.
pub(crate) fn optional_text<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// The fields of the counters of another crate.
#[derive(Serialize)]
#[serde(remote = "ReadCounters")]
#[allow(dead_code, reason = "the type of the other crate is serialized in its place")]
pub(crate) struct ReadCounterFields {
    blocks_cached: u64,
    blocks_read: u64,
    bytes_read: u64,
    bloom_checks: u64,
    bloom_negatives: u64,
    zone_checks: u64,
    zone_negatives: u64,
    tables_skipped: u64,
    memtables_skipped: u64,
    filters_skipped: u64,
}
