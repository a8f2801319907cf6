//! Changed and deleted rows.

use std::collections::HashSet;
use std::ops::ControlFlow;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::SelectItem;

use super::WrittenRows;
use super::returning::returned_rows;
use super::template::Assignments;
use crate::blocking;
use crate::error::{Result, SqlError, SqlState};
use crate::key_condition::KeyTranslator;
use crate::planner::Planner;
use crate::read_point::{SharedTransaction, with_transaction};
use crate::row_encoder::{RowEncoder, WrittenRow};
use crate::scan::ScanSource;

/// A record that is changed.
#[derive(Debug)]
struct FoundRow {
    key: Vec<u8>,
    record: String,
}

/// The records of the rows of `batch`, whose first two columns are the key and the sequence number. Reduces `room`, the memory
/// for records in bytes, by theirs. Blocks.
///
/// # Errors
/// For a row that is there twice, for records beyond `room`, and those of reading.
fn found_rows(
    source: &ScanSource,
    batch: &RecordBatch,
    seen: &mut HashSet<Vec<u8>>,
    room: &mut usize,
) -> Result<Vec<FoundRow>> {
    let translator = KeyTranslator::new(&source.schema, source.collection.key_format(), false);
    let (keys, sequences) = (batch.column(0), batch.column(1).as_primitive::<Int64Type>());
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let literal = ScalarValue::try_from_array(keys, row)?;
        let candidates = translator.keys_of(&literal).unwrap_or_default();
        let sequence = if sequences.is_null(row) { 0 } else { sequences.value(row) };
        let mut found = None;
        source.point.points(&source.collection, &candidates, &mut |stored| {
            // Two keys may have one text; the sequence numbers of records are unique.
            if i64::try_from(stored.sequence).unwrap_or(i64::MAX) == sequence {
                let record = String::from_utf8_lossy(stored.record).into_owned();
                found = Some(FoundRow { key: stored.key.to_vec(), record });
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let found =
            found.ok_or_else(|| SqlError::internal(format!("the record of the key {literal} is gone")))?;
        *room = room.checked_sub(found.record.len()).ok_or_else(too_many_bytes)?;
        if !seen.insert(found.key.clone()) {
            return Err(SqlError::data(format!(
                "the row of the key {literal} is changed twice by one statement"
            ))
            .with_hint(
                "make the condition select one row of the other tables for each row of the changed one",
            ));
        }
        rows.push(found);
    }
    Ok(rows)
}

fn too_many_bytes() -> SqlError {
    SqlError::new(
        SqlState::LimitExceeded,
        "the records that the statement changes exceed the memory of a transaction",
    )
    .with_hint("change fewer rows at a time, or set a higher bolide.transaction_bytes")
}

/// Updates the rows of `query`: its first columns are key and sequence number, then come the values.
pub(super) async fn update(
    planner: &Planner,
    transaction: &SharedTransaction,
    source: ScanSource,
    query: ParsedStatement,
    assignments: &Assignments,
    returning: Option<&[SelectItem]>,
) -> Result<WrittenRows> {
    if assignments.names().iter().any(|name| source.schema.is_key(name)) {
        return Err(SqlError::unsupported("the key of a row cannot be changed")
            .with_hint("INSERT the row under its new key, and DELETE the old one"));
    }
    let encoder = RowEncoder::new(&source.schema, source.collection.key_format(), assignments.names())?;
    // All rows before the first write: the statement reads none of its own writes.
    let batches = planner.collected(query).await?;
    let (shared, scanned) = (transaction.clone(), source.clone());
    let keys = blocking(move || change_rows(&shared, &scanned, &encoder, &batches)).await??;
    let count = keys.len() as u64;
    let returned = match returning {
        Some(items) => Some(returned_rows(planner, &source, items, &keys).await?),
        None => None,
    };
    Ok(WrittenRows { command: "UPDATE", count, returned })
}

/// Changes the rows of `batches`: key, sequence number, and the values that `encoder` encodes. Returns their keys. Blocks.
///
/// # Errors
/// As [`found_rows`], and those of writing.
pub(super) fn change_rows(
    transaction: &SharedTransaction,
    source: &ScanSource,
    encoder: &RowEncoder,
    batches: &[RecordBatch],
) -> Result<Vec<Vec<u8>>> {
    let mut seen = HashSet::new();
    let mut room = transaction.max_bytes();
    // A write gives a row another sequence number.
    let found = batches
        .iter()
        .map(|batch| found_rows(source, batch, &mut seen, &mut room))
        .collect::<Result<Vec<_>>>()?;
    let mut keys = Vec::new();
    for (batch, rows) in batches.iter().zip(found) {
        let values: Vec<usize> = (2..batch.num_columns()).collect();
        let changes = encoder.encode(&batch.project(&values)?)?;
        for (row, change) in rows.into_iter().zip(&changes) {
            write(transaction, source, &row.key, change, &row.record)?;
            keys.push(row.key);
        }
    }
    Ok(keys)
}

/// Puts a record with its changes. Blocks.
fn write(
    transaction: &SharedTransaction,
    source: &ScanSource,
    key: &[u8],
    change: &WrittenRow,
    record: &str,
) -> Result<()> {
    let base = change.record.as_deref().unwrap_or(record);
    let changed = change.applied_to(base)?;
    with_transaction(transaction, |open| Ok(open.put(&source.collection, key, changed.as_bytes())?))
}

/// Deletes the rows of `query`.
pub(super) async fn delete(
    planner: &Planner,
    transaction: &SharedTransaction,
    source: ScanSource,
    query: ParsedStatement,
    returning: Option<&[SelectItem]>,
) -> Result<WrittenRows> {
    let batches = planner.collected(query).await?;
    let scanned = source.clone();
    let keys = blocking(move || -> Result<Vec<Vec<u8>>> {
        let (mut keys, mut seen, mut unlimited) = (Vec::new(), HashSet::new(), usize::MAX);
        for batch in &batches {
            // A join may find a row several times; it is deleted once.
            for row in 0..batch.num_rows() {
                let one = batch.slice(row, 1);
                match found_rows(&scanned, &one, &mut HashSet::new(), &mut unlimited)?.pop() {
                    Some(found) if seen.insert(found.key.clone()) => keys.push(found.key),
                    _ => {}
                }
            }
        }
        Ok(keys)
    })
    .await??;
    let count = keys.len() as u64;
    let returned = match returning {
        // As long as they are there.
        Some(items) => Some(returned_rows(planner, &source, items, &keys).await?),
        None => None,
    };
    let shared = transaction.clone();
    blocking(move || -> Result<()> {
        keys.iter()
            .try_for_each(|key| with_transaction(&shared, |open| Ok(open.delete(&source.collection, key)?)))
    })
    .await??;
    Ok(WrittenRows { command: "DELETE", count, returned })
}
