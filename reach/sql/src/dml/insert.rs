//! New rows, and the ones whose key exists already.

use std::collections::HashSet;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, Expr, Insert, OnConflictAction, OnInsert, SelectItem, Statement,
};

use super::WrittenRows;
use super::change::change_rows;
use super::returning::returned_rows;
use super::template::{Assignments, named, qualified, select_of};
use crate::blocking;
use crate::error::{Result, SqlError, SqlState};
use crate::identifiers::{plain_ident, quoted};
use crate::planner::{Planner, parse};
use crate::read_point::{SharedTransaction, with_transaction};
use crate::row_encoder::{RowEncoder, WrittenRow};
use crate::scan::ScanSource;
use crate::session_state::EXCLUDED;

/// What happens to a new row whose key exists.
#[derive(Debug, Clone)]
pub(super) enum OnExisting {
    Fail,
    Skip,
    /// REPLACE INTO: the new row takes its place.
    Replace,
    Update {
        assignments: Assignments,
        selection: Option<Box<Expr>>,
    },
}

impl OnExisting {
    /// What an INSERT into `table` states.
    ///
    /// # Errors
    /// For a clause that is not supported.
    pub(super) fn of(insert: &Insert, table: &str) -> Result<Self> {
        let conflict = match &insert.on {
            None if insert.replace_into => return Ok(Self::Replace),
            None => return Ok(Self::Fail),
            Some(OnInsert::OnConflict(conflict)) => conflict,
            Some(other) => return Err(SqlError::unsupported(format!("{other} is not supported"))),
        };
        match &conflict.conflict_target {
            Some(ConflictTarget::OnConstraint(_)) => {
                return Err(SqlError::unsupported("ON CONSTRAINT is not supported: the key alone is unique"));
            }
            Some(ConflictTarget::Columns(columns)) if columns.len() != 1 => {
                return Err(SqlError::unsupported("ON CONFLICT of several columns: the key alone is unique"));
            }
            _ => {}
        }
        match &conflict.action {
            OnConflictAction::DoNothing => Ok(Self::Skip),
            OnConflictAction::DoUpdate(update) => Ok(Self::Update {
                assignments: Assignments::of(&update.assignments, &quoted(table))?,
                selection: update.selection.clone().map(Box::new),
            }),
        }
    }
}

/// The column that ON CONFLICT names.
pub(super) fn conflict_column(insert: &Insert) -> Option<String> {
    match &insert.on {
        Some(OnInsert::OnConflict(conflict)) => match &conflict.conflict_target {
            Some(ConflictTarget::Columns(columns)) => columns.first().map(plain_ident),
            _ => None,
        },
        _ => None,
    }
}

/// The query of the new rows.
///
/// # Errors
/// For INSERT without rows.
pub(super) fn source_of(insert: &Insert) -> Result<ParsedStatement> {
    match &insert.source {
        Some(query) => Ok(ParsedStatement::Statement(Box::new(Statement::Query(query.clone())))),
        None => Err(SqlError::unsupported("INSERT without VALUES or a query is not supported")),
    }
}

/// An INSERT that is ready to run.
pub(super) struct NewRows<'i> {
    pub(super) columns: &'i [String],
    pub(super) query: ParsedStatement,
    pub(super) on_existing: &'i OnExisting,
    pub(super) conflict_column: Option<&'i str>,
    pub(super) returning: Option<&'i [SelectItem]>,
}

/// What the first pass over the new rows has done.
#[derive(Default)]
struct FirstPass {
    /// The keys that were written.
    written: Vec<Vec<u8>>,
    /// The rows whose keys exist, and the keys.
    existing: Vec<RecordBatch>,
}

pub(super) async fn apply(
    planner: &Planner,
    transaction: &SharedTransaction,
    source: ScanSource,
    new: NewRows<'_>,
) -> Result<WrittenRows> {
    if let Some(name) = new.conflict_column.filter(|name| !source.schema.is_key(name)) {
        let key = &source.schema.key_name;
        let message = format!("ON CONFLICT ({name}) is not supported: the key \"{key}\" alone is unique");
        return Err(SqlError::unsupported(message).with_hint(format!("write ON CONFLICT (\"{key}\")")));
    }
    let names = match new.columns {
        [] => source.schema.writable_names(),
        columns => columns.to_vec(),
    };
    let encoder = RowEncoder::new(&source.schema, source.collection.key_format(), &names)?;
    encoder.check_complete()?;
    let batches = planner.collected(new.query).await?;
    let (shared, target, on_existing) = (transaction.clone(), source.clone(), new.on_existing.clone());
    let rows = encoder.clone();
    let pass = blocking(move || first_pass(&shared, &target, &rows, &batches, &on_existing)).await??;
    let mut keys = pass.written;
    if let OnExisting::Update { assignments, selection } = new.on_existing
        && !pass.existing.is_empty()
    {
        let existing = concat_batches(&pass.existing[0].schema(), &pass.existing)?;
        let existing = encoder.typed(&existing)?;
        keys.extend(
            update_existing(planner, transaction, &source, assignments, selection.as_deref(), existing)
                .await?,
        );
    }
    let count = keys.len() as u64;
    let returned = match new.returning {
        Some(items) => Some(returned_rows(planner, &source, items, &keys).await?),
        None => None,
    };
    Ok(WrittenRows { command: "INSERT 0", count, returned })
}

/// Puts the rows whose keys do not exist, and handles the others as far as no query is needed. Blocks.
fn first_pass(
    transaction: &SharedTransaction,
    source: &ScanSource,
    encoder: &RowEncoder,
    batches: &[RecordBatch],
    on_existing: &OnExisting,
) -> Result<FirstPass> {
    let mut pass = FirstPass::default();
    let mut seen = HashSet::new();
    for batch in batches {
        for (at, row) in encoder.encode(batch)?.iter().enumerate() {
            let is_new = seen.insert(row.key.clone());
            let exists = !is_new
                || with_transaction(transaction, |open| {
                    Ok(open.get_for_update(&source.collection, &row.key)?.is_some())
                })?;
            match (exists, on_existing) {
                (true, OnExisting::Fail) => return Err(existing_key(source, row)),
                (true, OnExisting::Skip) => {}
                (true, OnExisting::Update { .. }) => {
                    if !is_new {
                        return Err(SqlError::data("one statement inserts or updates a row twice")
                            .with_hint("make the keys of the new rows different from each other"));
                    }
                    pass.existing.push(batch.slice(at, 1));
                }
                (false, _) | (true, OnExisting::Replace) => {
                    let record = row.new_record()?;
                    with_transaction(transaction, |open| {
                        Ok(open.put(&source.collection, &row.key, record.as_bytes())?)
                    })?;
                    if is_new {
                        pass.written.push(row.key.clone());
                    }
                }
            }
        }
    }
    Ok(pass)
}

fn existing_key(source: &ScanSource, row: &WrittenRow) -> SqlError {
    let key = source.collection.key_format().show(&row.key);
    let message = format!("the table \"{}\" has a row with the key {key}", source.table);
    SqlError::new(SqlState::UniqueViolation, message)
        .with_hint("write ON CONFLICT DO NOTHING, ON CONFLICT DO UPDATE or REPLACE INTO")
}

/// Updates the rows whose keys the rows `existing` have: the assignments see these as `excluded`.
async fn update_existing(
    planner: &Planner,
    transaction: &SharedTransaction,
    source: &ScanSource,
    assignments: &Assignments,
    selection: Option<&Expr>,
    existing: RecordBatch,
) -> Result<Vec<Vec<u8>>> {
    let own = assignments.qualified(&source.table);
    if own.names().iter().any(|name| source.schema.is_key(name)) {
        return Err(SqlError::unsupported("the key of a row cannot be changed"));
    }
    let encoder = RowEncoder::new(&source.schema, source.collection.key_format(), own.names())?;
    let query = existing_query(source, &own, selection)?;
    let expected = existing.num_rows();
    planner.shared().set_excluded(Some(existing));
    let batches = planner.collected(query).await;
    planner.shared().set_excluded(None);
    let (batches, shared, target) = (batches?, transaction.clone(), source.clone());
    let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if selection.is_none() && found != expected {
        return Err(SqlError::internal(format!("{found} rows are found for {expected} keys that exist")));
    }
    blocking(move || change_rows(&shared, &target, &encoder, &batches)).await?
}

fn existing_query(
    source: &ScanSource,
    own: &Assignments,
    selection: Option<&Expr>,
) -> Result<ParsedStatement> {
    let (table, key) = (quoted(&source.table), quoted(&source.schema.key_name));
    let text = format!(
        "SELECT {table}.{key} AS changed_key, {table}.{} AS changed_sequence FROM {table} JOIN {EXCLUDED} \
         ON {table}.{key} = {EXCLUDED}.{key}",
        quoted(bolide_arrow::SEQUENCE_COLUMN)
    );
    let mut statement = parse(&text)?;
    let select = select_of(&mut statement)?;
    for (at, value) in own.values().iter().enumerate() {
        select.projection.push(named(value.clone(), format!("value_{at}")));
    }
    select.selection = selection.map(|selection| qualified(selection, &source.table));
    Ok(statement)
}
