//! The records of a collection in the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// One record of the model.
#[derive(Debug)]
pub struct ModelRow {
    /// The bytes of the record.
    pub record: Vec<u8>,
    /// The parsed record.
    pub parsed: Value,
    /// The position of its write in the order of all writes of the run.
    pub order: u64,
}

/// The records of a collection, by primary key.
pub type ModelRows = BTreeMap<Arc<[u8]>, Arc<ModelRow>>;
