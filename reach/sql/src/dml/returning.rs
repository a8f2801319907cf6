//! The rows of RETURNING: a query of the written rows by their keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bolide_arrow::SEQUENCE_COLUMN;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, SelectItem, Value, visit_expressions, visit_expressions_mut,
};

use super::template::{named, select_of};
use crate::error::{Result, SqlError};
use crate::identifiers::{plain_ident, quoted};
use crate::planner::{Planner, parse};
use crate::pushdown::MAX_IN_LIST;
use crate::row_encoder::key_literal;
use crate::scan::ScanSource;

/// The values of `items` for the written rows, as the transaction sees them now.
///
/// # Errors
/// For the column of sequence numbers, which are assigned at the commit; those of the query.
pub(super) async fn returned_rows(
    planner: &Planner,
    source: &ScanSource,
    items: &[SelectItem],
    keys: &[Vec<u8>],
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    check_windows(items)?;
    let items = expanded(source, items)?;
    let (mut schema, mut batches) = (None, Vec::new());
    let chunks: Vec<&[Vec<u8>]> =
        if keys.is_empty() { vec![&[]] } else { keys.chunks(MAX_IN_LIST / 4).collect() };
    for keys in chunks {
        let statement = query(source, &items, keys)?;
        let mut found = planner.rows_of(statement).await?;
        // Without the key, the last column.
        let columns: Vec<usize> = (0..found.schema().fields().len().saturating_sub(1)).collect();
        if schema.is_none() {
            schema = Some(Arc::new(found.schema().project(&columns)?));
        }
        while let Some(batch) = found.next().await? {
            batches.push(batch.project(&columns)?);
        }
    }
    let schema = schema.ok_or_else(|| SqlError::internal("RETURNING has no columns"))?;
    Ok((schema, batches))
}

/// The items with the name of the table in place of its alias.
pub(super) fn of_table(items: &[SelectItem], alias: &Ident, table: &str) -> Vec<SelectItem> {
    let mut items = items.to_vec();
    let _ = visit_expressions_mut(&mut items, |part| {
        if let Expr::CompoundIdentifier(names) = part
            && let Some(first) = names.first_mut().filter(|first| plain_ident(first) == plain_ident(alias))
        {
            *first = quoted(table);
        }
        ControlFlow::<()>::Continue(())
    });
    items
}

/// Fails for items whose value for a row depends on other rows, in part of which they are evaluated.
fn check_windows(items: &[SelectItem]) -> Result<()> {
    let found = visit_expressions(&items.to_vec(), |part| match part {
        Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(()) => {
            Err(SqlError::unsupported("window functions in RETURNING are not supported"))
        }
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The items, with the columns of the table in place of `*`.
fn expanded(source: &ScanSource, items: &[SelectItem]) -> Result<Vec<SelectItem>> {
    let mut expanded = Vec::new();
    for item in items {
        match item {
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                let names = source.schema.writable_names();
                expanded.extend(names.iter().map(|name| named(Expr::Identifier(quoted(name)), name.clone())));
            }
            other if reads_sequence(other) => {
                return Err(SqlError::unsupported(
                    "RETURNING has no sequence numbers: they are assigned at the commit",
                ));
            }
            other => expanded.push(other.clone()),
        }
    }
    Ok(expanded)
}

/// Whether the column of sequence numbers is in an item.
fn reads_sequence(item: &SelectItem) -> bool {
    let is_sequence = |name: &Ident| plain_ident(name) == SEQUENCE_COLUMN;
    visit_expressions(&vec![item.clone()], |part| match part {
        Expr::Identifier(name) if is_sequence(name) => ControlFlow::Break(()),
        Expr::CompoundIdentifier(names) if names.last().is_some_and(is_sequence) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

fn query(source: &ScanSource, items: &[SelectItem], keys: &[Vec<u8>]) -> Result<ParsedStatement> {
    let (key_type, format) = (source.schema.key_type, source.collection.key_format());
    let mut list = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match key_literal(key, key_type, format) {
            ScalarValue::Int64(Some(value)) => Value::Number(value.to_string(), false),
            ScalarValue::Utf8(Some(text)) => Value::SingleQuotedString(text),
            ScalarValue::Binary(Some(bytes)) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Value::HexStringLiteral(digits)
            }
            other => return Err(SqlError::internal(format!("the key {other} has no literal"))),
        };
        list.push(Expr::Value(value.into()));
    }
    let key = Expr::Identifier(quoted(&source.schema.key_name));
    // With this column an aggregate, of a part of the rows, is refused.
    let own_key = named(key.clone(), "changed_key".to_owned());
    let selection = match list.is_empty() {
        true => Expr::Value(Value::Boolean(false).into()),
        false => Expr::InList { expr: Box::new(key), list, negated: false },
    };
    let mut statement = parse(&format!("SELECT 1 FROM {}", quoted(&source.table)))?;
    let select = select_of(&mut statement)?;
    select.projection = items.to_vec();
    select.projection.push(own_key);
    select.selection = Some(selection);
    Ok(statement)
}
