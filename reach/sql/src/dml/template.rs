//! Queries from parts of statements.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Ident, Select, SelectItem, SetExpr, Statement, TableWithJoins,
    visit_expressions_mut,
};

use crate::error::{Result, SqlError};
use crate::identifiers::{plain_ident, quoted};
use crate::planner::parse;
use crate::table_schema::TableSchema;

/// The query of the rows that are changed: their keys and sequence numbers, and further values.
#[derive(Debug, Clone)]
pub(super) struct RowQuery {
    /// The name that the columns of the changed table are qualified with.
    qualifier: Expr,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
}

impl RowQuery {
    pub(super) fn new(
        qualifier: Expr,
        table: TableWithJoins,
        others: Vec<TableWithJoins>,
        selection: Option<Expr>,
    ) -> Self {
        let from = std::iter::once(table).chain(others).collect();
        Self { qualifier, from, selection }
    }

    /// The query with the columns `_key`, `_sequence` and those of `values`.
    ///
    /// # Errors
    /// None is expected.
    pub(super) fn statement(&self, schema: &TableSchema, values: &[Expr]) -> Result<ParsedStatement> {
        let own = |name: &str| match &self.qualifier {
            Expr::Identifier(table) => Expr::CompoundIdentifier(vec![table.clone(), quoted(name)]),
            other => other.clone(),
        };
        let mut projection = vec![
            named(own(&schema.key_name), "changed_key".to_owned()),
            named(own(bolide_arrow::SEQUENCE_COLUMN), "changed_sequence".to_owned()),
        ];
        for (at, value) in values.iter().enumerate() {
            projection.push(named(value.clone(), format!("value_{at}")));
        }
        select(|select| {
            select.projection = projection;
            select.from.clone_from(&self.from);
            select.selection.clone_from(&self.selection);
        })
    }
}

pub(super) fn named(expr: Expr, alias: String) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: quoted(&alias) }
}

/// A SELECT that `fill` changes.
///
/// # Errors
/// None is expected.
pub(super) fn select(fill: impl FnOnce(&mut Select)) -> Result<ParsedStatement> {
    let mut statement = parse("SELECT 1 FROM t")?;
    fill(select_of(&mut statement)?);
    Ok(statement)
}

/// The SELECT of a query.
///
/// # Errors
/// For another statement.
pub(super) fn select_of(statement: &mut ParsedStatement) -> Result<&mut Select> {
    if let ParsedStatement::Statement(parsed) = statement
        && let Statement::Query(query) = &mut **parsed
        && let SetExpr::Select(select) = &mut *query.body
    {
        return Ok(select);
    }
    Err(SqlError::internal("the template of a query is none"))
}

/// The columns that are set, and their values.
#[derive(Debug, Clone)]
pub(super) struct Assignments {
    names: Vec<String>,
    values: Vec<Expr>,
}

impl Assignments {
    /// Assignments to columns, which may stand after the name `table`.
    ///
    /// # Errors
    /// For an assignment to several columns at once, and to a part of a value.
    pub(super) fn of(assignments: &[Assignment], table: &Ident) -> Result<Self> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for assignment in assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(SqlError::unsupported(
                    "an assignment to several columns at once is not supported",
                ));
            };
            let parts: Option<Vec<String>> =
                name.0.iter().map(|part| part.as_ident().map(plain_ident)).collect();
            match parts.as_deref() {
                Some([column]) => names.push(column.clone()),
                Some([before, column]) if *before == plain_ident(table) => names.push(column.clone()),
                Some(parts) => {
                    return Err(SqlError::unsupported(format!("{name} is no column that can be set"))
                        .with_hint(format!("a column of a nested field is \"{}\"", parts.join("."))));
                }
                None => return Err(SqlError::syntax(format!("{name} is no column"))),
            }
            values.push(assignment.value.clone());
        }
        Ok(Self { names, values })
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn values(&self) -> &[Expr] {
        &self.values
    }

    /// The values with the columns that have no qualifier qualified by `table`.
    pub(super) fn qualified(&self, table: &str) -> Self {
        let values = self.values.iter().map(|value| qualified(value, table)).collect();
        Self { names: self.names.clone(), values }
    }
}

/// `expression` with the columns that have no qualifier qualified by `table`.
pub(super) fn qualified(expression: &Expr, table: &str) -> Expr {
    let mut expression = expression.clone();
    let _ = visit_expressions_mut(&mut expression, |part| {
        if let Expr::Identifier(name) = part {
            *part = Expr::CompoundIdentifier(vec![quoted(table), name.clone()]);
        }
        ControlFlow::<()>::Continue(())
    });
    expression
}
