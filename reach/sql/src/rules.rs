//! Rules of the physical optimizer: counts, and the smallest and largest values, by an index.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::scan::{BolideScan, CountExec};

/// Replaces `count(*)` over a scan whose conditions an index decides by the count of the engine.
#[derive(Debug, Default)]
pub(crate) struct CountByIndex;

/// Reads one row for `min(c)` and `max(c)` where an index has the order of the column.
#[derive(Debug, Default)]
pub(crate) struct ExtremeByIndex;

impl PhysicalOptimizerRule for CountByIndex {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| match counted(&node) {
            Some(count) => Ok(Transformed::yes(count)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "CountByIndex"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for ExtremeByIndex {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| match extreme(&node)? {
            Some(scan) => Ok(Transformed::yes({
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                node.replace_children(vec![scan], options)?
            })),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "ExtremeByIndex"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The only aggregate of a node without groups.
fn only_aggregate(aggregate: &AggregateExec) -> Option<&AggregateFunctionExpr> {
    let is_plain = aggregate.group_expr().is_empty() && aggregate.filter_expr().iter().all(Option::is_none);
    match (is_plain, aggregate.aggr_expr()) {
        (true, [only]) => Some(only.as_ref()),
        _ => None,
    }
}

/// The scan below, if all its rows arrive.
fn scan_below(input: &Arc<dyn ExecutionPlan>) -> Option<&BolideScan> {
    if let Some(scan) = input.downcast_ref::<BolideScan>() {
        return scan.is_unlimited().then_some(scan);
    }
    if let Some(coalesce) = input.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| scan_below(coalesce.input())).flatten();
    }
    let repartition = input.downcast_ref::<RepartitionExec>()?;
    scan_below(repartition.input())
}

fn counted(node: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    if matches!(aggregate.mode(), AggregateMode::Partial) || !is_count_of_rows(only_aggregate(aggregate)?) {
        return None;
    }
    let scan = match aggregate.mode() {
        AggregateMode::Final | AggregateMode::FinalPartitioned => partial_below(aggregate.input())?,
        _ => scan_below(aggregate.input())?,
    };
    if !scan.predicates().are_exact() {
        return None;
    }
    let schema = node.schema();
    let is_integer = schema.fields().len() == 1 && schema.field(0).data_type() == &DataType::Int64;
    is_integer.then(|| {
        Arc::new(CountExec::new(scan.source().clone(), scan.predicates().clone(), &schema))
            as Arc<dyn ExecutionPlan>
    })
}

/// The scan below the first stage of an aggregate.
fn partial_below(input: &Arc<dyn ExecutionPlan>) -> Option<&BolideScan> {
    if let Some(coalesce) = input.downcast_ref::<CoalescePartitionsExec>() {
        return coalesce.fetch().is_none().then(|| partial_below(coalesce.input())).flatten();
    }
    let partial = input.downcast_ref::<AggregateExec>()?;
    let is_count =
        matches!(partial.mode(), AggregateMode::Partial) && is_count_of_rows(only_aggregate(partial)?);
    is_count.then(|| scan_below(partial.input())).flatten()
}

fn is_count_of_rows(aggregate: &AggregateFunctionExpr) -> bool {
    let is_constant = |argument: &Arc<dyn PhysicalExpr>| {
        argument.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null())
    };
    aggregate.fun().name() == "count"
        && !aggregate.is_distinct()
        && aggregate.expressions().iter().all(is_constant)
}

fn extreme(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    if matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned) {
        return Ok(None);
    }
    let Some(only) = only_aggregate(aggregate) else { return Ok(None) };
    let is_largest = match only.fun().name() {
        "min" => false,
        "max" => true,
        _ => return Ok(None),
    };
    let arguments = only.expressions();
    let [argument] = &arguments[..] else { return Ok(None) };
    let (Some(column), Some(scan)) = (argument.downcast_ref::<Column>(), scan_below(aggregate.input()))
    else {
        return Ok(None);
    };
    let scan = scan.extreme(column.index(), is_largest)?;
    Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>))
}
