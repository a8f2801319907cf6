//! Counting without records: `count(*)` by an index, or over the keys.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics};
use futures::TryStreamExt;

use super::source::{ScanPredicates, ScanSource};
use crate::sample::all_keys;

/// The number of rows of a table that satisfy exact conditions: one row with one column.
#[derive(Debug, Clone)]
pub(crate) struct CountExec {
    source: Arc<ScanSource>,
    predicates: ScanPredicates,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl CountExec {
    /// Counts the rows. `schema` has one column of 64-bit integers. The conditions are exact.
    pub(crate) fn new(source: Arc<ScanSource>, predicates: ScanPredicates, schema: &SchemaRef) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Self { source, predicates, properties, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Blocks. `None` if `is_cancelled` returned true.
    fn count(&self, is_cancelled: &dyn Fn() -> bool) -> crate::error::Result<Option<u64>> {
        let ScanSource { collection, point, .. } = &*self.source;
        if !self.predicates.attributes.is_empty() {
            return point.count(collection, &self.predicates.attributes.query(None)).map(Some);
        }
        let (mut rows, mut is_ended) = (0_u64, false);
        point.scan(collection, &all_keys(), false, &mut |_| {
            rows += 1;
            is_ended = rows.is_multiple_of(4_096) && is_cancelled();
            Ok(if is_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok((!is_ended).then_some(rows))
    }
}

impl DisplayAs for CountExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.predicates.attributes.is_empty() { "keys" } else { "query" };
        write!(f, "BolideCount: {}, {what}", self.source.table)
    }
}

impl ExecutionPlan for CountExec {
    fn name(&self) -> &'static str {
        "BolideCount"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (count, schema) = (self.clone(), self.schema());
        let open = async move {
            let schema = count.schema();
            let mut builder = RecordBatchReceiverStream::builder(schema.clone(), 1);
            let sender = builder.tx();
            builder.spawn_blocking(move || {
                let Some(rows) = count.count(&|| sender.is_closed())? else { return Ok(()) };
                let counted = MetricBuilder::new(&count.metrics).counter("counted", partition);
                counted.add(usize::try_from(rows).unwrap_or(usize::MAX));
                let rows = i64::try_from(rows).unwrap_or(i64::MAX);
                let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![rows]))])?;
                // The consumer may be gone.
                let _ = sender.blocking_send(Ok(batch));
                Ok(())
            });
            Ok::<_, DataFusionError>(builder.build())
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(open).try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Exact(1);
        Ok(Arc::new(statistics))
    }
}
