//! The scan as a node of the physical plan.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use bolide_arrow::{Column as TableColumn, ScalarType};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr, IsNullExpr};
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SortOrderPushdownResult, Statistics,
};
use futures::{StreamExt, TryStreamExt};

use super::access::{Access, ScanOrder, has_value_order};
use super::probe::{Probe, probe_of};
use super::run::{ScanCosts, ScanRun};
use super::source::{ScanPredicates, ScanSource};
use crate::key_condition::KeyTranslator;
use crate::shared_transaction::ended;

/// Rows from which an ordered scan of all rows sorts them instead of reading records one by one in the order of an index.
const MAX_ORDERED_ROWS: u64 = 10_000;
/// Batches that wait between the thread of a scan and its consumer.
const BATCHES_AHEAD: usize = 2;

/// The columns of a scan.
#[derive(Debug, Clone)]
pub(crate) struct ScanColumns {
    /// The places in the table of the columns that are decoded: ascending.
    pub(crate) decoded: Vec<usize>,
    /// The places in `decoded` of the columns that are returned.
    pub(crate) output: Vec<usize>,
    pub(crate) schema: SchemaRef,
}

impl ScanColumns {
    /// Returns the columns `projection`, and decodes those of the predicate, `filtered`, too.
    pub(crate) fn new(table: &Schema, projection: Option<&Vec<usize>>, filtered: &[usize]) -> Result<Self> {
        let returned: Vec<usize> = match projection {
            Some(projection) => projection.clone(),
            None => (0..table.fields().len()).collect(),
        };
        let mut decoded: Vec<usize> = returned.iter().chain(filtered).copied().collect();
        decoded.sort_unstable();
        decoded.dedup();
        let output = returned.iter().filter_map(|place| decoded.binary_search(place).ok()).collect();
        Ok(Self { decoded, output, schema: Arc::new(table.project(&returned)?) })
    }

    fn place_of_output(&self, at: usize) -> Option<usize> {
        self.decoded.get(*self.output.get(at)?).copied()
    }
}

/// The scan of a table.
#[derive(Debug, Clone)]
pub(crate) struct BolideScan {
    source: Arc<ScanSource>,
    predicates: ScanPredicates,
    columns: ScanColumns,
    /// The predicate on the decoded columns.
    predicate: Option<Arc<dyn PhysicalExpr>>,
    order: ScanOrder,
    /// The order in the terms of the plan.
    ordering: Option<LexOrdering>,
    fetch: Option<usize>,
    access: Access,
    rows: u64,
    /// Predicates of joins above, whose values are known when the first row is requested.
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    /// The access by the keys of a join, decided once for all partitions.
    probe: Arc<OnceLock<Option<Probe>>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl BolideScan {
    pub(crate) fn new(
        source: Arc<ScanSource>,
        predicates: ScanPredicates,
        columns: ScanColumns,
        predicate: Option<Arc<dyn PhysicalExpr>>,
        fetch: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let order = ScanOrder::Any;
        let (access, rows) = Access::choose(&source, &predicates, &order, partitions)?;
        let properties = properties_of(&columns.schema, None, access.partitions());
        Ok(Self {
            source,
            predicates,
            columns,
            predicate,
            order,
            ordering: None,
            fetch,
            access,
            rows,
            dynamic: Vec::new(),
            probe: Arc::default(),
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    pub(crate) fn source(&self) -> &Arc<ScanSource> {
        &self.source
    }

    pub(crate) fn predicates(&self) -> &ScanPredicates {
        &self.predicates
    }

    /// The place in the table of a column of the plan.
    pub(crate) fn place_of_output(&self, at: usize) -> Option<usize> {
        self.columns.place_of_output(at)
    }

    /// Whether the scan has no limit. Predicates of joins never pass an aggregate without groups.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.fetch.is_none()
    }

    /// The scan for the row with the smallest or the largest value of the column `at`; `None` if no index has the order.
    pub(crate) fn extreme(&self, at: usize, is_largest: bool) -> Result<Option<Self>> {
        // Such keys are read in their own order.
        if self.is_points() || self.predicates.key.is_some() {
            return Ok(None);
        }
        let Some(ScanOrder::Value { column, path, scalar, .. }) = self.value_order(at, is_largest) else {
            return Ok(None);
        };
        let order =
            ScanOrder::Value { column, path, scalar, is_descending: is_largest, with_nulls_last: false };
        let mut scan = self.ordered(order, None)?;
        // Without the rows without a value, which an aggregate ignores.
        let not_null = scan.null_test(column, false)?;
        scan.predicate = Some(and(scan.predicate.take(), not_null));
        scan.predicates.attributes.note_missing();
        // That of the aggregate, which needs one row.
        scan.dynamic.clear();
        scan.fetch = Some(1);
        Ok(Some(scan))
    }

    fn value_order(&self, at: usize, is_descending: bool) -> Option<ScanOrder> {
        use bolide_arrow::{ColumnSource, ColumnType};

        let column = self.place_of_output(at)?;
        let ColumnSource::Path(path, ColumnType::Scalar(scalar)) =
            self.source.schema.all().get(column)?.source()
        else {
            return None;
        };
        let path = path.to_string();
        // Texts of times do not sort as the times do, JSON text is no value of an index, and there are no ranges of booleans.
        let is_ordered = !matches!(scalar, ScalarType::Json | ScalarType::IsoTimestamp | ScalarType::Bool);
        (is_ordered && has_value_order(&self.source, &path)).then_some(ScanOrder::Value {
            column,
            path,
            scalar: *scalar,
            is_descending,
            with_nulls_last: false,
        })
    }

    fn ordered(&self, order: ScanOrder, ordering: Option<LexOrdering>) -> Result<Self> {
        let mut scan = self.clone();
        (scan.access, scan.rows) = Access::choose(&scan.source, &scan.predicates, &order, 1)?;
        scan.properties = properties_of(&scan.columns.schema, ordering.clone(), 1);
        scan.order = order;
        scan.ordering = ordering;
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan.probe = Arc::default();
        Ok(scan)
    }

    /// The order of the scan that is `order` of the plan.
    fn order_of(&self, order: &[PhysicalSortExpr]) -> Option<ScanOrder> {
        let place = |at: usize| {
            let sort: &PhysicalSortExpr = order.get(at)?;
            let column = sort.expr.downcast_ref::<Column>()?;
            Some((column.index(), self.place_of_output(column.index())?, sort.options))
        };
        let last = self.source.schema.all().len() - 1;
        let (at, column, options) = place(0)?;
        // Keys and sequence numbers are unique and never NULL: what follows decides nothing.
        if column == self.source.schema.key_place {
            let by_key = KeyTranslator::new(
                &self.source.schema,
                self.source.collection.key_format(),
                self.only_texts().unwrap_or(false),
            );
            let reads_keys = matches!(self.access, Access::Keys(..) | Access::Points(_));
            return (by_key.orders_by_key() && reads_keys && !(options.descending && self.is_points()))
                .then_some(ScanOrder::Key { is_reverse: options.descending });
        }
        if self.is_points() || self.predicates.key.is_some() {
            return None;
        }
        if column == last {
            return Some(ScanOrder::Sequence { is_newest_first: options.descending });
        }
        // Equal values are newest first.
        match order.len() {
            1 => {}
            2 if place(1).is_some_and(|(_, column, options)| column == last && options.descending) => {}
            _ => return None,
        }
        let mut found = self.value_order(at, options.descending)?;
        // Integers beyond 2^53 that are different in the index are equal in the column.
        if order.len() > 1
            && matches!(&found, ScanOrder::Value { scalar, .. } if scalar == &ScalarType::Float64)
        {
            return None;
        }
        if let ScanOrder::Value { path, with_nulls_last, .. } = &mut found
            && !self.predicates.attributes.has_range(path)
        {
            // The rows without a value come in the order of the keys.
            if options.nulls_first || order.len() > 1 {
                return None;
            }
            *with_nulls_last = true;
        }
        Some(found)
    }

    fn is_points(&self) -> bool {
        matches!(self.access, Access::Points(_))
    }

    fn only_texts(&self) -> Result<bool> {
        let source = &self.source;
        Ok(source.point.all_keys_begin_with(&source.collection, crate::record_key::TEXT_KEY)?)
    }

    /// A test of a column of the table for NULL, on the decoded columns.
    fn null_test(&self, column: usize, is_null: bool) -> Result<Arc<dyn PhysicalExpr>> {
        let place = self.columns.decoded.binary_search(&column).ok();
        let name = self.source.schema.all().get(column).map(TableColumn::name);
        let (Some(place), Some(name)) = (place, name) else {
            return Err(DataFusionError::Internal("the column of the order is not decoded".to_owned()));
        };
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, place));
        Ok(if is_null { Arc::new(IsNullExpr::new(column)) } else { Arc::new(IsNotNullExpr::new(column)) })
    }

    /// The run of one partition.
    fn run(&self, partition: usize, batch_rows: usize) -> Result<ScanRun> {
        let mut predicate = self.predicate.clone();
        let mut null_predicate = None;
        let mut is_exact = self.predicates.are_exact();
        if let ScanOrder::Value { column, with_nulls_last: true, .. } = &self.order {
            null_predicate = Some(and(predicate.clone(), self.null_test(*column, true)?));
            predicate = Some(and(predicate, self.null_test(*column, false)?));
            is_exact = false;
        }
        let columns = self.columns.decoded.iter().filter_map(|place| self.source.schema.all().get(*place));
        Ok(ScanRun {
            source: self.source.clone(),
            access: self.access.clone(),
            partition,
            columns: columns.cloned().collect(),
            predicate,
            null_predicate,
            output: self.columns.output.clone(),
            schema: self.columns.schema.clone(),
            fetch: self.fetch,
            batch_rows,
            is_exact,
        })
    }

    /// The access by the keys of a join, and whether this partition has rows of it.
    fn apply_probe(&self, run: &mut ScanRun) -> bool {
        if self.dynamic.is_empty() || self.order != ScanOrder::Any {
            return true;
        }
        let probe = self.probe.get_or_init(|| {
            let outputs: Vec<Option<usize>> =
                (0..self.columns.output.len()).map(|at| self.columns.place_of_output(at)).collect();
            self.dynamic
                .iter()
                .find_map(|predicate| probe_of(predicate, &outputs, &self.source, &self.predicates))
        });
        let Some(probe) = probe else { return true };
        run.access = probe.access.clone();
        run.is_exact = false;
        MetricBuilder::new(&self.metrics).counter("join_keys", run.partition).add(probe.keys);
        run.partition == 0
    }

    fn stream(&self, partition: usize, batch_rows: usize) -> Result<SendableRecordBatchStream> {
        let (scan, schema) = (self.clone(), self.columns.schema.clone());
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        // Not before the first row is requested: then the build side of a join is complete.
        let open = async move {
            let mut run = scan.run(partition, batch_rows)?;
            let has_rows = scan.apply_probe(&mut run);
            let mut builder = RecordBatchReceiverStream::builder(scan.columns.schema.clone(), BATCHES_AHEAD);
            let (sender, metrics) = (builder.tx(), scan.metrics.clone());
            builder.spawn_blocking(move || {
                if !has_rows {
                    return Ok(());
                }
                let (receiver, point) = (sender.clone(), &run.source.point);
                let is_cut = Cell::new(false);
                let costs = run.run(
                    &mut |batch| {
                        let is_sent = point.send(&sender, batch);
                        is_cut.set(!is_sent && point.is_ended());
                        is_sent
                    },
                    &|| {
                        is_cut.set(is_cut.get() || point.is_ended());
                        is_cut.get() || receiver.is_closed()
                    },
                )?;
                note_costs(&metrics, partition, &costs);
                // Part of the rows must not pass for all of them. A consumer that is gone sees no error.
                if is_cut.get() { Err(ended().into()) } else { Ok(()) }
            });
            Ok::<_, DataFusionError>(builder.build())
        };
        let rows = futures::stream::once(open).try_flatten().map(move |batch| {
            if let Ok(batch) = &batch {
                baseline.record_output(batch.num_rows());
            }
            batch
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

fn and(left: Option<Arc<dyn PhysicalExpr>>, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    match left {
        Some(left) => Arc::new(BinaryExpr::new(left, Operator::And, right)),
        None => right,
    }
}

fn properties_of(
    schema: &SchemaRef,
    ordering: Option<LexOrdering>,
    partitions: usize,
) -> Arc<PlanProperties> {
    let equivalences = match ordering {
        Some(ordering) => EquivalenceProperties::new_with_orderings(schema.clone(), [ordering]),
        None => EquivalenceProperties::new(schema.clone()),
    };
    Arc::new(PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}

fn note_costs(metrics: &ExecutionPlanMetricsSet, partition: usize, costs: &ScanCosts) {
    let note = |name: &'static str, value: u64| {
        let value = usize::try_from(value).unwrap_or(usize::MAX);
        MetricBuilder::new(metrics).counter(name, partition).add(value);
    };
    note("rows_decoded", costs.decoded);
    note("rows_dropped", costs.dropped);
    if let Some(explain) = &costs.explain {
        note("candidates", explain.candidates);
        note("current", explain.current);
        note("obsolete", explain.obsolete);
        note("mismatched", explain.mismatched);
        note("records_fetched", explain.records_fetched);
        note("record_bytes", explain.record_bytes);
        note("passes", explain.passes);
        note("blocks_cached", explain.reads.blocks_cached);
        note("blocks_read", explain.reads.blocks_read);
        note("bytes_read", explain.reads.bytes_read);
        note("bloom_checks", explain.reads.bloom_checks);
        note("bloom_negatives", explain.reads.bloom_negatives);
    }
}

impl DisplayAs for BolideScan {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if matches!(form, DisplayFormatType::TreeRender) { "\n" } else { ", " };
        if !matches!(form, DisplayFormatType::TreeRender) {
            f.write_str("BolideScan: ")?;
        }
        write!(f, "{}{separator}{}", self.source.table, self.access)?;
        if self.order != ScanOrder::Any {
            write!(f, "{separator}order={}", self.order)?;
        }
        if let Some(fetch) = self.fetch {
            write!(f, "{separator}fetch={fetch}")?;
        }
        if let Some(predicate) = &self.predicate {
            write!(f, "{separator}filter={predicate}")?;
        }
        if !self.dynamic.is_empty() {
            f.write_str(separator)?;
            f.write_str("join keys")?;
        }
        write!(f, "{separator}rows≈{}", self.rows)
    }
}

impl ExecutionPlan for BolideScan {
    fn name(&self) -> &'static str {
        "BolideScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expression in self.predicate.iter().chain(&self.dynamic) {
            if visit(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut scan = Self::clone(&self);
        scan.probe = Arc::default();
        scan.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(scan))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if let (Some(ordering), None) = (&self.ordering, self.fetch)
            && self.rows > MAX_ORDERED_ROWS
            && matches!(self.order, ScanOrder::Sequence { .. } | ScanOrder::Value { .. })
        {
            let unordered = self.ordered(ScanOrder::Any, None)?;
            return SortExec::new(ordering.clone(), Arc::new(unordered)).execute(0, context);
        }
        self.stream(partition, context.session_config().batch_size())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.columns.schema);
        let parts = if partition.is_some() { self.access.partitions() as u64 } else { 1 };
        let rows = self.fetch.map_or(self.rows, |fetch| self.rows.min(fetch as u64)) / parts;
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        statistics.num_rows = Precision::Inexact(rows);
        let width: usize = self.columns.schema.fields().iter().map(|field| width_of(field.data_type())).sum();
        statistics.total_byte_size = Precision::Inexact(rows.saturating_mul(width));
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut scan = self.clone();
        scan.fetch = limit;
        scan.metrics = ExecutionPlanMetricsSet::new();
        Some(Arc::new(scan))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters: Vec<_> = result.parent_filters.into_iter().map(|parent| parent.filter).collect();
        // The operators above check them too.
        let pushed =
            FilterPushdownPropagation::with_parent_pushdown_result(vec![PushedDown::No; filters.len()]);
        // A limited scan would return other rows.
        if !matches!(phase, FilterPushdownPhase::Post) || filters.is_empty() || self.fetch.is_some() {
            return Ok(pushed);
        }
        let mut scan = self.clone();
        scan.dynamic.extend(filters);
        scan.probe = Arc::default();
        Ok(pushed.with_updated_node(Arc::new(scan)))
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        // The limit of a scan without an order is for any rows.
        if self.fetch.is_some() {
            return Ok(SortOrderPushdownResult::Unsupported);
        }
        let ordering = LexOrdering::new(order.iter().cloned());
        match (self.order_of(order), ordering) {
            (Some(found), Some(ordering)) => {
                Ok(SortOrderPushdownResult::Exact { inner: Arc::new(self.ordered(found, Some(ordering))?) })
            }
            _ => Ok(SortOrderPushdownResult::Unsupported),
        }
    }
}

/// The mean width of a value, as far as its type determines it.
fn width_of(data_type: &arrow::datatypes::DataType) -> usize {
    data_type.primitive_width().unwrap_or(32)
}
