//! A collection as a table of DataFusion.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::blocking;
use crate::key_condition::{KeyTranslator, both};
use crate::pushdown::{Translator, is_deterministic};
use crate::record_key::TEXT_KEY;
use crate::scan::{BolideScan, ScanColumns, ScanPredicates, ScanSource};

/// A table: the records of a collection as one statement sees them.
#[derive(Debug)]
pub(crate) struct BolideTable {
    source: Arc<ScanSource>,
    /// Whether all keys are texts, once a predicate needs it.
    only_texts: OnceLock<bool>,
}

impl BolideTable {
    pub(crate) fn new(source: ScanSource) -> Self {
        Self { source: Arc::new(source), only_texts: OnceLock::new() }
    }

    fn keys(&self) -> KeyTranslator<'_> {
        let source = &self.source;
        let only_texts = *self.only_texts.get_or_init(|| {
            // A failure leads to a scan, which reports it.
            source.point.all_keys_begin_with(&source.collection, TEXT_KEY).unwrap_or(false)
        });
        KeyTranslator::new(&source.schema, source.collection.key_format(), only_texts)
    }

    fn names_key(&self, predicate: &Expr) -> bool {
        predicate.column_refs().iter().any(|column| self.source.schema.is_key(&column.name))
    }

    /// Whether a scan checks `predicate`.
    pub(crate) fn is_pushed(&self, predicate: &Expr) -> bool {
        is_deterministic(predicate)
            && (Translator::new(&self.source.schema).translate(predicate).is_some()
                || (self.names_key(predicate) && self.keys().translate(predicate).is_some()))
    }

    fn predicates(&self, filters: &[Expr]) -> ScanPredicates {
        let mut predicates = ScanPredicates::default();
        for filter in filters {
            let key = self.names_key(filter).then(|| self.keys().translate(filter)).flatten();
            if let Some(key) = key {
                predicates.key = Some(match predicates.key.take() {
                    Some(known) => both(known, key),
                    None => key,
                });
                continue;
            }
            match Translator::new(&self.source.schema).translate(filter) {
                Some(condition) => predicates.attributes.add(condition),
                None => predicates.attributes.note_missing(),
            }
        }
        predicates
    }

    /// The columns of a scan.
    pub(crate) fn columns(&self, projection: Option<&Vec<usize>>, filters: &[Expr]) -> Result<ScanColumns> {
        ScanColumns::new(self.source.schema.arrow(), projection, &self.places(filters))
    }

    /// The scan with these predicates, which `predicate` checks on the decoded columns. Blocks.
    pub(crate) fn plan(
        &self,
        filters: &[Expr],
        columns: ScanColumns,
        predicate: Option<Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<BolideScan> {
        BolideScan::new(self.source.clone(), self.predicates(filters), columns, predicate, limit, partitions)
    }

    /// The places in the table of the columns in `filters`.
    fn places(&self, filters: &[Expr]) -> Vec<usize> {
        let schema = self.source.schema.arrow();
        let names = filters.iter().flat_map(Expr::column_refs);
        names.filter_map(|column| schema.index_of(&column.name).ok()).collect()
    }
}

#[async_trait]
impl TableProvider for BolideTable {
    fn schema(&self) -> SchemaRef {
        self.source.schema.arrow().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Exact, since the scan checks the rows again. The result for a filter does not depend on the others.
        let support = |filter: &&Expr| match self.is_pushed(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = self.columns(projection, filters)?;
        let predicate = match conjunction(filters.to_vec()) {
            Some(predicate) => {
                let decoded = self.source.schema.arrow().project(&columns.decoded)?;
                Some(state.create_physical_expr(predicate, &DFSchema::try_from(decoded)?)?)
            }
            None => None,
        };
        let predicates = self.predicates(filters);
        let (source, partitions) = (self.source.clone(), state.config().target_partitions());
        let scan =
            blocking(move || BolideScan::new(source, predicates, columns, predicate, limit, partitions))
                .await
                .map_err(DataFusionError::from)??;
        Ok(Arc::new(scan))
    }
}
