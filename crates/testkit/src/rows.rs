//! The records of a collection, as the model keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// One record.
#[derive(Debug)]
pub struct ModelRow {
    /// Its bytes as they were put.
    pub record: Vec<u8>,
    /// The same, parsed.
    pub parsed: Value,
    /// Its place in the order of all writes of the run.
    pub order: u64,
}

/// The records of a collection, by primary key.
pub type ModelRows = BTreeMap<Arc<[u8]>, Arc<ModelRow>>;
