//! Predicates of SQL as conditions on attributes.
//!
//! A translated predicate holds for every record that satisfies the SQL one, and perhaps for more: an index proposes
//! candidates, and the scan checks the predicate again on the decoded rows. What cannot be translated stays in the plan.

use std::ops::Bound;

use bolide::{Filter, Query, Value};
use bolide_arrow::{ColumnType, ScalarType};
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::{InList, Like, ScalarFunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use crate::column_value::{
    Comparison, ValueBounds, class_range, equal_filter, intersect, range_of, text_of, value_of,
};
use crate::table_schema::{DeclaredColumn, TableSchema};

/// Maximum number of values of an IN list that is pushed down.
pub(crate) const MAX_IN_LIST: usize = 10_000;
/// Maximum nesting of AND and OR that is translated.
const MAX_DEPTH: usize = 32;

/// A condition on attributes, and whether it holds for no other records than the predicate of SQL.
#[derive(Debug, Clone)]
pub(crate) struct AttributeCondition {
    part: ConditionPart,
    pub(crate) is_exact: bool,
}

#[derive(Debug, Clone)]
enum ConditionPart {
    /// A range of a column with one value a record.
    Range(String, ValueBounds),
    Other(Filter),
}

impl AttributeCondition {
    fn range(column: &DeclaredColumn, bounds: ValueBounds, is_exact: bool) -> Self {
        Self { part: ConditionPart::Range(column.path.to_string(), bounds), is_exact }
    }

    fn other((filter, is_exact): (Filter, bool)) -> Option<Self> {
        filter.check().is_ok().then_some(Self { part: ConditionPart::Other(filter), is_exact })
    }

    fn into_filter(self) -> Filter {
        match self.part {
            ConditionPart::Range(path, bounds) => Filter::range(&path, bounds),
            ConditionPart::Other(filter) => filter,
        }
    }
}

/// The conjunction of the conditions of a scan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    /// At most one range of each path.
    ranges: Vec<(String, ValueBounds)>,
    filters: Vec<Filter>,
    is_inexact: bool,
}

impl Conditions {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.filters.is_empty()
    }

    /// Whether the records that satisfy the conditions are those that satisfy the predicates of SQL.
    pub(crate) fn is_exact(&self) -> bool {
        !self.is_inexact
    }

    /// Marks that a predicate is not among the conditions.
    pub(crate) fn note_missing(&mut self) {
        self.is_inexact = true;
    }

    pub(crate) fn add(&mut self, condition: AttributeCondition) {
        self.is_inexact |= !condition.is_exact;
        match condition.part {
            ConditionPart::Range(path, bounds) => self.add_range(&path, bounds),
            ConditionPart::Other(filter) => self.filters.push(filter),
        }
    }

    pub(crate) fn add_filter(&mut self, filter: Filter) {
        self.filters.push(filter);
    }

    fn add_range(&mut self, path: &str, bounds: ValueBounds) {
        match self.ranges.iter_mut().find(|(known, _)| known == path) {
            Some((_, known)) => {
                let narrower = std::mem::replace(known, (Bound::Unbounded, Bound::Unbounded));
                *known = intersect(narrower, bounds);
            }
            None => self.ranges.push((path.to_owned(), bounds)),
        }
    }

    pub(crate) fn has_range(&self, path: &str) -> bool {
        self.ranges.iter().any(|(known, _)| known == path)
    }

    /// The path of the only range, if there is no other condition.
    pub(crate) fn only_range(&self) -> Option<&str> {
        match (&self.ranges[..], self.filters.is_empty()) {
            ([(path, _)], true) => Some(path),
            _ => None,
        }
    }

    /// The query of the conditions. The range of `first`, which orders by value, comes first; if there is none, that of all
    /// values of the type.
    pub(crate) fn query(&self, first: Option<(&str, ScalarType)>) -> Query {
        let mut query = Query::new();
        let first_path = first.map(|(path, _)| path);
        if let Some((path, scalar)) = first {
            let known = self.ranges.iter().find(|(known, _)| known == path);
            query =
                query.range(path, known.map_or_else(|| class_range(scalar), |(_, bounds)| bounds.clone()));
        }
        for (path, bounds) in self.ranges.iter().filter(|(path, _)| Some(path.as_str()) != first_path) {
            query = query.range(path, bounds.clone());
        }
        self.filters.iter().cloned().fold(query, Query::filter)
    }
}

/// Translates predicates on the declared columns of a table.
#[derive(Clone, Copy)]
pub(crate) struct Translator<'s> {
    schema: &'s TableSchema,
}

impl<'s> Translator<'s> {
    pub(crate) fn new(schema: &'s TableSchema) -> Self {
        Self { schema }
    }

    /// The condition of `predicate`; `None` if it restricts no attribute.
    pub(crate) fn translate(self, predicate: &Expr) -> Option<AttributeCondition> {
        self.translate_at(predicate, 0)
    }

    fn translate_at(self, predicate: &Expr, depth: usize) -> Option<AttributeCondition> {
        if depth > MAX_DEPTH {
            return None;
        }
        match predicate {
            Expr::BinaryExpr(binary) => self.binary(binary, depth),
            Expr::Between(between) if !between.negated => self.between(between),
            Expr::InList(list) if !list.negated => self.in_list(list),
            Expr::Like(like) if !like.negated && !like.case_insensitive => self.like(like),
            Expr::ScalarFunction(function) => self.function(function),
            Expr::IsNotNull(inner) => {
                let (column, scalar) = self.scalar_column(inner)?;
                if scalar == ScalarType::Bool {
                    let filter = Filter::one_of(&column.path.to_string(), [false, true]);
                    return AttributeCondition::other((filter, true));
                }
                // Any JSON value is one of a column of JSON, also an object, which is no value of an attribute.
                (scalar != ScalarType::Json)
                    .then(|| AttributeCondition::range(column, class_range(scalar), false))
            }
            Expr::Column(_) => self.boolean(predicate, true),
            Expr::IsTrue(inner) => self.boolean(inner, true),
            Expr::Not(inner) | Expr::IsFalse(inner) => self.boolean(inner, false),
            Expr::Alias(alias) => self.translate_at(&alias.expr, depth + 1),
            _ => None,
        }
    }

    fn boolean(self, column: &Expr, value: bool) -> Option<AttributeCondition> {
        let (column, scalar) = self.scalar_column(column)?;
        (scalar == ScalarType::Bool).then(|| AttributeCondition {
            part: ConditionPart::Other(Filter::eq(&column.path.to_string(), value)),
            is_exact: true,
        })
    }

    fn binary(self, binary: &BinaryExpr, depth: usize) -> Option<AttributeCondition> {
        let comparison = match binary.op {
            Operator::And => return self.conjunction(binary, depth),
            Operator::Or => {
                let left = self.translate_at(&binary.left, depth + 1)?;
                let right = self.translate_at(&binary.right, depth + 1)?;
                let is_exact = left.is_exact && right.is_exact;
                return AttributeCondition::other((left.into_filter().or(right.into_filter()), is_exact));
            }
            Operator::Eq => Comparison::Equal,
            Operator::Lt => Comparison::Less,
            Operator::LtEq => Comparison::LessOrEqual,
            Operator::Gt => Comparison::Greater,
            Operator::GtEq => Comparison::GreaterOrEqual,
            _ => return None,
        };
        match (&*binary.left, &*binary.right) {
            (column, Expr::Literal(literal, _)) => self.comparison(column, comparison, literal),
            (Expr::Literal(literal, _), column) => self.comparison(column, comparison.swapped(), literal),
            _ => None,
        }
    }

    /// A part of a conjunction is a condition of the whole.
    fn conjunction(self, binary: &BinaryExpr, depth: usize) -> Option<AttributeCondition> {
        let left = self.translate_at(&binary.left, depth + 1);
        let right = self.translate_at(&binary.right, depth + 1);
        match (left, right) {
            (Some(left), Some(right)) => {
                let is_exact = left.is_exact && right.is_exact;
                AttributeCondition::other((left.into_filter().and(right.into_filter()), is_exact))
            }
            (Some(one), None) | (None, Some(one)) => Some(AttributeCondition { is_exact: false, ..one }),
            (None, None) => None,
        }
    }

    fn comparison(
        self,
        column: &Expr,
        comparison: Comparison,
        literal: &ScalarValue,
    ) -> Option<AttributeCondition> {
        let (column, scalar) = self.scalar_column(column)?;
        let value = value_of(literal, scalar)?;
        if comparison == Comparison::Equal {
            return AttributeCondition::other(equal_filter(&column.path.to_string(), value));
        }
        // There are no ranges of booleans.
        if scalar == ScalarType::Bool {
            return None;
        }
        let (bounds, is_exact) = range_of(comparison, value, scalar);
        Some(AttributeCondition::range(column, bounds, is_exact))
    }

    fn between(self, between: &Between) -> Option<AttributeCondition> {
        let (Expr::Literal(low, _), Expr::Literal(high, _)) = (&*between.low, &*between.high) else {
            return None;
        };
        let (column, scalar) = self.scalar_column(&between.expr)?;
        if scalar == ScalarType::Bool {
            return None;
        }
        let (low, low_exact) = range_of(Comparison::GreaterOrEqual, value_of(low, scalar)?, scalar);
        let (high, high_exact) = range_of(Comparison::LessOrEqual, value_of(high, scalar)?, scalar);
        Some(AttributeCondition::range(column, intersect(low, high), low_exact && high_exact))
    }

    fn in_list(self, list: &InList) -> Option<AttributeCondition> {
        let (column, scalar) = self.scalar_column(&list.expr)?;
        if list.list.len() > MAX_IN_LIST {
            return None;
        }
        let literals = list.list.iter().map(|one| match one {
            Expr::Literal(literal, _) => Some(literal),
            _ => None,
        });
        let literals = literals.collect::<Option<Vec<_>>>()?;
        one_of(&column.path.to_string(), scalar, literals).and_then(AttributeCondition::other)
    }

    fn like(self, like: &Like) -> Option<AttributeCondition> {
        let Expr::Literal(pattern, _) = &*like.pattern else { return None };
        let (column, scalar) = self.scalar_column(&like.expr)?;
        let pattern =
            text_of(pattern).filter(|_| scalar == ScalarType::String && like.escape_char.is_none())?;
        let end = pattern.find(['%', '_', '\\'])?;
        let prefix = pattern.get(..end).filter(|prefix| !prefix.is_empty())?;
        let is_exact = pattern.get(end..) == Some("%");
        AttributeCondition::other((Filter::prefix(&column.path.to_string(), prefix), is_exact))
    }

    fn function(self, function: &ScalarFunction) -> Option<AttributeCondition> {
        let [column, Expr::Literal(literal, _)] = &function.args[..] else { return None };
        match function.func.name() {
            "starts_with" => {
                let (column, scalar) = self.scalar_column(column)?;
                let prefix = text_of(literal).filter(|_| scalar == ScalarType::String)?;
                AttributeCondition::other((Filter::prefix(&column.path.to_string(), prefix), true))
            }
            "array_has" => {
                let (path, element) = self.elements(column)?;
                let (filter, _) = equal_filter(&path, value_of(literal, element)?);
                AttributeCondition::other((filter, false))
            }
            "array_has_any" => {
                let (path, element) = self.elements(column)?;
                let literals = elements_of(literal)?;
                let (filter, _) = one_of(&path, element, literals.iter().collect())?;
                AttributeCondition::other((filter, false))
            }
            "array_has_all" => {
                let (path, element) = self.elements(column)?;
                let literals = elements_of(literal)?;
                let values = literals.iter().map(|literal| value_of(literal, element));
                let values = values.collect::<Option<Vec<Value>>>()?;
                let filters = values.into_iter().map(|value| equal_filter(&path, value).0);
                AttributeCondition::other((Filter::all(filters), false))
            }
            _ => None,
        }
    }

    /// The column of a scalar type that `expression` is.
    fn scalar_column(self, expression: &Expr) -> Option<(&'s DeclaredColumn, ScalarType)> {
        let column = self.column(expression)?;
        match column.column_type {
            ColumnType::Scalar(scalar) => Some((column, scalar)),
            ColumnType::List(_) => None,
        }
    }

    /// The path and the type of the elements of the column of lists that `expression` is.
    fn elements(self, expression: &Expr) -> Option<(String, ScalarType)> {
        let column = self.column(expression)?;
        match column.column_type {
            ColumnType::List(element) => Some((format!("{}[*]", column.path), element)),
            ColumnType::Scalar(_) => None,
        }
    }

    fn column(self, expression: &Expr) -> Option<&'s DeclaredColumn> {
        match expression {
            Expr::Column(column) => self.schema.declared(&column.name),
            _ => None,
        }
    }
}

/// A filter for the records whose attribute equals one of the literals.
pub(crate) fn one_of(path: &str, scalar: ScalarType, literals: Vec<&ScalarValue>) -> Option<(Filter, bool)> {
    // NULL in a list makes the predicate NULL for other values, and it is true for none.
    let literals: Vec<_> = literals.into_iter().filter(|literal| !literal.is_null()).collect();
    let values = literals.iter().map(|literal| value_of(literal, scalar)).collect::<Option<Vec<Value>>>()?;
    let mut is_exact = true;
    for value in &values {
        if let Value::Float(float) = value {
            if float.abs() >= 9_007_199_254_740_992.0 {
                return None;
            }
            is_exact &= *float != 0.0;
        }
    }
    let filter = Filter::one_of(path, values);
    filter.check().is_ok().then_some((filter, is_exact))
}

/// The elements of a literal list.
fn elements_of(literal: &ScalarValue) -> Option<Vec<ScalarValue>> {
    use arrow::array::Array;

    let ScalarValue::List(list) = literal else { return None };
    let values = (list.len() == 1 && list.is_valid(0)).then(|| list.value(0))?;
    if values.len() > MAX_IN_LIST || values.null_count() > 0 {
        return None;
    }
    (0..values.len()).map(|at| ScalarValue::try_from_array(&values, at).ok()).collect()
}

/// Whether the value of `predicate` depends on nothing but the row.
pub(crate) fn is_deterministic(predicate: &Expr) -> bool {
    let volatile = predicate.exists(|part| Ok(part.is_volatile_node()));
    matches!(volatile, Ok(false))
}
