//! The estimate of a query without its execution.

use bolide_base::{Error, Result};

use crate::compiled_query::CompiledQuery;
use crate::query::Query;
use crate::source::{ReadSource, TreeSource};

use super::Lookup;

/// What the planner expects of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryEstimate {
    /// Number of answers.
    pub records: u64,
    /// Whether `records` is exact. It is only if it follows without reading: from a limit of 0, a filter that is never true,
    /// or an empty collection.
    pub is_exact: bool,
    /// Cost in nanoseconds, with all blocks cached, as far as the constants of the planner fit the machine.
    pub nanos: u64,
    /// The indexes of the plan: none for a scan.
    pub indexes: Vec<String>,
}

impl<S: ReadSource> Lookup<'_, S> {
    /// Estimates `query`: the number of answers, the cost and the indexes of its plan. Reads no data block.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn estimate(&self, query: &Query) -> Result<QueryEstimate> {
        let compiled = CompiledQuery::new(query)?;
        if self.extractor.is_none() && compiled.needs_attributes() {
            return Err(Error::invalid_input(
                "the records of this collection have no attributes: it needs an extractor",
            ));
        }
        let is_empty = self.view.tree(self.table)?.estimate(&[], None)? == 0;
        if compiled.limit == 0 || compiled.is_never_true() || is_empty {
            return Ok(QueryEstimate { is_exact: true, ..QueryEstimate::default() });
        }
        let (plan, matches) = self.estimated_plan(query, &compiled)?;
        let chosen = plan.alternatives.iter().find(|one| one.chosen);
        Ok(QueryEstimate {
            records: (matches.round() as u64).min(compiled.limit as u64),
            is_exact: false,
            nanos: chosen.map_or(0, |one| one.estimated_nanos),
            indexes: chosen.map(|one| one.indexes.clone()).unwrap_or_default(),
        })
    }
}
