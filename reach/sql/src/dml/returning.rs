//! The rows of RETURNING: a query of the written rows by their keys.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bolide_arrow::SEQUENCE_COLUMN;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{Expr, SelectItem, Value};

use super::template::{named, select_of};
use crate::error::{Result, SqlError};
use crate::identifiers::quoted;
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
    let items = expanded(source, items)?;
    let (mut schema, mut batches) = (None, Vec::new());
    let chunks: Vec<&[Vec<u8>]> =
        if keys.is_empty() { vec![&[]] } else { keys.chunks(MAX_IN_LIST / 4).collect() };
    for keys in chunks {
        let statement = query(source, &items, keys)?;
        let mut found = planner.rows_of(statement).await?;
        schema.get_or_insert_with(|| found.schema().clone());
        while let Some(batch) = found.next().await? {
            batches.push(batch);
        }
    }
    let schema = schema.ok_or_else(|| SqlError::internal("RETURNING has no columns"))?;
    Ok((schema, batches))
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
            other if other.to_string().to_lowercase().contains(SEQUENCE_COLUMN) => {
                return Err(SqlError::unsupported(
                    "RETURNING has no sequence numbers: they are assigned at the commit",
                ));
            }
            other => expanded.push(other.clone()),
        }
    }
    Ok(expanded)
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
    let selection = match list.is_empty() {
        true => Expr::Value(Value::Boolean(false).into()),
        false => Expr::InList { expr: Box::new(key), list, negated: false },
    };
    let mut statement = parse(&format!("SELECT 1 FROM {}", quoted(&source.table)))?;
    let select = select_of(&mut statement)?;
    select.projection = items.to_vec();
    select.selection = Some(selection);
    Ok(statement)
}
