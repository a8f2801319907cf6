//! What a scan reads from, and its predicates.

use std::sync::Arc;

use bolide::Collection;

use crate::key_condition::KeyCondition;
use crate::pushdown::Conditions;
use crate::read_point::ReadPoint;
use crate::table_schema::TableSchema;

/// The collection of a table, its columns and the state that is read.
#[derive(Debug, Clone)]
pub(crate) struct ScanSource {
    pub(crate) table: String,
    pub(crate) collection: Collection,
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) point: ReadPoint,
}

/// The predicates of a scan, as conditions on keys and attributes. The rows are checked again.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanPredicates {
    pub(crate) key: Option<KeyCondition>,
    pub(crate) attributes: Conditions,
}

impl ScanPredicates {
    /// Whether the records that a query of the attributes returns are those that satisfy the predicates of SQL.
    pub(crate) fn are_exact(&self) -> bool {
        self.key.is_none() && self.attributes.is_exact()
    }
}
