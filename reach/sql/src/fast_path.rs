//! Simple queries as scans, without the planner of DataFusion, whose work exceeds that of the scan for few rows.
//!
//! ```text
//! SELECT * | column, … FROM table [WHERE comparison AND …] [ORDER BY column [ASC | DESC] [NULLS FIRST | LAST]] [LIMIT n]
//! comparison   column (= | < | <= | > | >=) literal | column [NOT] BETWEEN … | column IN (literal, …)
//! ```
//!
//! Every other form, and a comparison whose literal has not the type of the column, is left to DataFusion. Both paths make the
//! same scan, so they have the same rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::arrow::compute::SortOptions;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, col, lit};
use datafusion::physical_expr::expressions::col as physical_column;
use datafusion::physical_expr::{PhysicalSortExpr, create_physical_expr};
use datafusion::physical_plan::{ExecutionPlan, SortOrderPushdownResult};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as ParsedExpr, GroupByExpr, LimitClause, OrderBy, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, Value,
};

use crate::identifiers::{plain_ident, plain_name};
use crate::scan::ScanSource;
use crate::table::BolideTable;

/// A query of the simple form.
#[derive(Debug)]
pub(crate) struct SimpleQuery<'q> {
    pub(crate) table: String,
    select: &'q Select,
    order: Option<&'q OrderBy>,
    limit: Option<usize>,
}

impl<'q> SimpleQuery<'q> {
    /// The query, if its clauses are those of the simple form.
    pub(crate) fn of(query: &'q Query) -> Option<Self> {
        let plain = query.with.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty()
            && query.for_clause.is_none()
            && query.settings.is_none()
            && query.format_clause.is_none()
            && query.pipe_operators.is_empty();
        let SetExpr::Select(select) = &*query.body else { return None };
        let no_groups = matches!(&select.group_by, GroupByExpr::Expressions(groups, rest)
            if groups.is_empty() && rest.is_empty());
        let plain_select = select.distinct.is_none()
            && select.top.is_none()
            && select.exclude.is_none()
            && select.into.is_none()
            && select.lateral_views.is_empty()
            && select.prewhere.is_none()
            && select.connect_by.is_empty()
            && select.cluster_by.is_empty()
            && select.distribute_by.is_empty()
            && select.sort_by.is_empty()
            && select.having.is_none()
            && select.named_window.is_empty()
            && select.qualify.is_none()
            && select.value_table_mode.is_none();
        let [from] = &select.from[..] else { return None };
        let TableFactor::Table { name, alias: None, args: None, version: None, sample: None, .. } =
            &from.relation
        else {
            return None;
        };
        if !plain || !no_groups || !plain_select || !from.joins.is_empty() || name.0.len() != 1 {
            return None;
        }
        Some(Self {
            table: plain_name(name).ok()?,
            select,
            order: query.order_by.as_ref(),
            limit: match &query.limit_clause {
                None => None,
                Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by })
                    if limit_by.is_empty() =>
                {
                    Some(number(limit)?)
                }
                Some(_) => return None,
            },
        })
    }

    /// The scan of the query; `None` if it is not of the simple form. Blocks.
    pub(crate) fn scan(&self, source: ScanSource) -> Option<Arc<dyn ExecutionPlan>> {
        let schema = source.schema.arrow().clone();
        let projection = self.projection(&schema)?;
        let mut filters = Vec::new();
        if let Some(selection) = &self.select.selection {
            comparisons(selection, &schema, &mut filters)?;
        }
        let order = match self.order {
            Some(order) => Some(sort_of(order, &schema)?),
            None => None,
        };
        let table = BolideTable::new(source);
        if !filters.iter().all(|filter| table.is_pushed(filter)) {
            return None;
        }
        let columns = table.columns(Some(&projection), &filters).ok()?;
        let predicate = match conjunction(filters.clone()) {
            Some(predicate) => {
                let decoded = DFSchema::try_from(schema.project(&columns.decoded).ok()?).ok()?;
                Some(
                    create_physical_expr(
                        &predicate,
                        &decoded,
                        &ExecutionProps::new(),
                        &PhysicalPlanningContext::default(),
                    )
                    .ok()?,
                )
            }
            None => None,
        };
        // The order decides which rows are within the limit.
        let fetch = self.limit.filter(|_| order.is_none());
        let scan: Arc<dyn ExecutionPlan> = Arc::new(table.plan(&filters, columns, predicate, fetch, 1).ok()?);
        let Some((name, options)) = order else { return Some(scan) };
        let sort = PhysicalSortExpr::new(physical_column(&name, &scan.schema()).ok()?, options);
        match scan.try_pushdown_sort(&[sort]).ok()? {
            SortOrderPushdownResult::Exact { inner } if self.limit.is_some() => inner.with_fetch(self.limit),
            _ => None,
        }
    }

    fn projection(&self, schema: &Schema) -> Option<Vec<usize>> {
        if let [SelectItem::Wildcard(options)] = &self.select.projection[..] {
            return (options.to_string().is_empty()).then(|| (0..schema.fields().len()).collect());
        }
        let mut places = Vec::new();
        for item in &self.select.projection {
            let SelectItem::UnnamedExpr(ParsedExpr::Identifier(name)) = item else { return None };
            let place = schema.index_of(&plain_ident(name)).ok()?;
            if places.contains(&place) {
                return None;
            }
            places.push(place);
        }
        Some(places)
    }
}

fn number(expression: &ParsedExpr) -> Option<usize> {
    match expression {
        ParsedExpr::Value(value) => match &value.value {
            Value::Number(digits, false) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn sort_of(order: &OrderBy, schema: &Schema) -> Option<(String, SortOptions)> {
    let OrderByKind::Expressions(expressions) = &order.kind else { return None };
    let ([only], None) = (&expressions[..], &order.interpolate) else { return None };
    let (ParsedExpr::Identifier(name), None) = (&only.expr, &only.with_fill) else { return None };
    let name = plain_ident(name);
    schema.index_of(&name).ok()?;
    let descending = only.options.asc == Some(false);
    // As in PostgreSQL, NULL is larger than every value.
    let nulls_first = only.options.nulls_first.unwrap_or(descending);
    Some((name, SortOptions { descending, nulls_first }))
}

/// Appends the comparisons of a conjunction.
fn comparisons(selection: &ParsedExpr, schema: &Schema, found: &mut Vec<Expr>) -> Option<()> {
    match selection {
        ParsedExpr::Nested(inner) => comparisons(inner, schema, found),
        ParsedExpr::BinaryOp { left, op: BinaryOperator::And, right } => {
            comparisons(left, schema, found)?;
            comparisons(right, schema, found)
        }
        ParsedExpr::BinaryOp { left, op, right } => {
            let op = match op {
                BinaryOperator::Eq => Operator::Eq,
                BinaryOperator::Lt => Operator::Lt,
                BinaryOperator::LtEq => Operator::LtEq,
                BinaryOperator::Gt => Operator::Gt,
                BinaryOperator::GtEq => Operator::GtEq,
                _ => return None,
            };
            let (column, data_type) = column(left, schema)?;
            let value = literal(right, &data_type)?;
            found.push(Expr::BinaryExpr(BinaryExpr::new(Box::new(column), op, Box::new(value))));
            Some(())
        }
        ParsedExpr::Between { expr, negated: false, low, high } => {
            let (column, data_type) = column(expr, schema)?;
            found.push(column.clone().between(literal(low, &data_type)?, literal(high, &data_type)?));
            Some(())
        }
        ParsedExpr::InList { expr, list, negated: false } => {
            let (column, data_type) = column(expr, schema)?;
            // DataFusion evaluates short lists as comparisons, which differ for -0.0.
            if data_type == DataType::Float64 {
                return None;
            }
            let values = list.iter().map(|value| literal(value, &data_type)).collect::<Option<Vec<_>>>()?;
            found.push(column.in_list(values, false));
            Some(())
        }
        _ => None,
    }
}

fn column(expression: &ParsedExpr, schema: &Schema) -> Option<(Expr, DataType)> {
    let ParsedExpr::Identifier(name) = expression else { return None };
    let name = plain_ident(name);
    let field = schema.field_with_name(&name).ok()?;
    Some((col(Column::new_unqualified(name)), field.data_type().clone()))
}

/// The literal, if it has the type of the column.
fn literal(expression: &ParsedExpr, data_type: &DataType) -> Option<Expr> {
    use datafusion::sql::sqlparser::ast::UnaryOperator;

    let (value, is_negative) = match expression {
        ParsedExpr::Value(value) => (&value.value, false),
        ParsedExpr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            ParsedExpr::Value(value) => (&value.value, true),
            _ => return None,
        },
        _ => return None,
    };
    match (value, data_type) {
        (Value::Number(digits, false), DataType::Int64) => {
            let value: i64 = digits.parse().ok()?;
            Some(lit(if is_negative { -value } else { value }))
        }
        (Value::Number(digits, false), DataType::Float64) => {
            let value: f64 = digits.parse().ok().filter(|value: &f64| value.is_finite())?;
            Some(lit(if is_negative { -value } else { value }))
        }
        (Value::SingleQuotedString(text), DataType::Utf8) if !is_negative => Some(lit(text.clone())),
        (Value::Boolean(value), DataType::Boolean) if !is_negative => Some(lit(*value)),
        _ => None,
    }
}
