//! Creating and dropping tables and indexes, and the maintenance of both. All calls block.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use bolide::advisor::Workload;
use bolide::key::KeyFormat;
use bolide::{BuildOptions, CollectionOptions, ErrorKind, IndexSpec, Layout, RecordKind};
use bolide_arrow::{ColumnPath, ColumnType, KEY_COLUMN, RECORD_COLUMN, SEQUENCE_COLUMN, ScalarType};

use crate::commands::{ColumnDefinition, Command, IndexDefinition, TableDefinition, key_type};
use crate::declarations::{DECLARATIONS, declaration, declare, undeclare};
use crate::error::{Result, SqlError, SqlState};
use crate::record_key::KeyType;
use crate::row_encoder::undefined_column;
use crate::sample::analyze;
use crate::session_state::SessionShared;
use crate::sql_rows::{SqlResult, SqlRows};
use crate::table_schema::{DeclaredColumn, TableSchema, default_key_name};

/// Runs a command on tables and indexes.
///
/// # Errors
/// Those of the engine.
pub(crate) fn run(shared: &SessionShared, command: &Command) -> Result<SqlResult> {
    match command {
        Command::DropTable { table, if_exists } => drop_table(shared, table, *if_exists),
        Command::CreateIndex(index) => create_index(shared, index),
        Command::DropIndex { table, index, if_exists } => drop_index(shared, table, index, *if_exists),
        Command::Analyze { table } => run_analyze(shared, table),
        Command::CheckTable { table } => {
            let report = shared.collection(table)?.check_indexes()?;
            Ok(lines("check", &report.to_string()))
        }
        Command::CheckDatabase => Ok(lines("check", &shared.db.check(true)?.to_string())),
        Command::Advise { table, column } => {
            let (collection, schema) = shared.table(table)?;
            let path = attribute(&schema, column)?;
            let advice = collection.advise(&path.parse()?, &Workload::default())?;
            Ok(lines("advice", &advice.to_string()))
        }
        Command::Reindex { table, index } => {
            shared.collection(table)?.rebuild_index(index, &BuildOptions::default())?;
            Ok(SqlResult::Done("REINDEX".to_owned()))
        }
        other => Err(SqlError::internal(format!("{other:?} is no command on a table"))),
    }
}

/// Creates a table, unless it exists and that is permitted: then false. `of_query` are the columns of its query.
///
/// # Errors
/// For an invalid definition; if the table exists.
pub(crate) fn create_table(
    shared: &SessionShared,
    table: &TableDefinition,
    of_query: Option<&Schema>,
) -> Result<bool> {
    let name = &table.name;
    if name == DECLARATIONS {
        return Err(SqlError::syntax(format!(
            "the table \"{DECLARATIONS}\" has the declarations of the others"
        )));
    }
    if shared.db.collections().contains(name) {
        if table.if_not_exists {
            return Ok(false);
        }
        return Err(SqlError::new(SqlState::DuplicateTable, format!("the table \"{name}\" exists")));
    }
    let mut columns = table.columns.clone();
    if let Some(schema) = of_query.filter(|_| columns.is_empty()) {
        for field in schema.fields() {
            let column_type = type_of(field.name(), field.data_type())?;
            columns.push(ColumnDefinition { name: field.name().clone(), column_type, is_required: false });
        }
    }
    let (options, units) = options_of(table)?;
    let schema = schema_of(table, columns, &units)?;
    shared.db.create_collection(name, options)?;
    declare(&shared.db, name, &schema)?;
    shared.schemas.forget(name);
    Ok(true)
}

/// The settings of the collection, and the units of timestamps.
fn options_of(table: &TableDefinition) -> Result<(CollectionOptions, Vec<(String, TimeUnit)>)> {
    let mut options = CollectionOptions::json().keys(KeyFormat::Typed);
    let mut units = Vec::new();
    for (name, value) in &table.options {
        if let Some(column) = table.columns.iter().find(|column| column.name == *name) {
            if column.column_type != ColumnType::Scalar(ScalarType::IsoTimestamp) {
                return Err(SqlError::syntax(format!(
                    "the column \"{name}\" is no TIMESTAMP, so it has no unit"
                )));
            }
            let unit = match value.as_str() {
                "s" => TimeUnit::Second,
                "ms" => TimeUnit::Millisecond,
                "us" | "µs" => TimeUnit::Microsecond,
                "ns" => TimeUnit::Nanosecond,
                "iso" => continue,
                _ => {
                    return Err(SqlError::syntax(format!(
                        "the unit `{value}` of the column \"{name}\" is none of s, ms, us, \
                                                         ns (integers) and iso (text)"
                    )));
                }
            };
            units.push((name.clone(), unit));
        } else if name == "layout" {
            let layouts = [Layout::Leveled, Layout::Tiered, Layout::Fragmented, Layout::Partitioned];
            let layout = layouts.into_iter().find(|layout| layout.name() == value);
            let layout = layout.ok_or_else(|| {
                SqlError::syntax(format!("there is no layout `{value}`"))
                    .with_hint("the layouts are leveled, tiered, fragmented and partitioned")
            })?;
            options = options.layout(layout);
        } else {
            return Err(SqlError::syntax(format!("there is no option `{name}` of a table")).with_hint(
                "the options are layout, and the names of columns of timestamps with their units",
            ));
        }
    }
    Ok((options, units))
}

fn schema_of(
    table: &TableDefinition,
    columns: Vec<ColumnDefinition>,
    units: &[(String, TimeUnit)],
) -> Result<TableSchema> {
    let mut key = (0, default_key_name(), KeyType::Text);
    let mut declared = Vec::with_capacity(columns.len());
    let key_name = match &table.primary_key {
        Some(name) if !columns.iter().any(|column| column.name == *name) => {
            return Err(SqlError::new(
                SqlState::UndefinedColumn,
                format!("the primary key \"{name}\" is no column"),
            ));
        }
        Some(name) => name.clone(),
        None => default_key_name(),
    };
    for column in columns {
        if column.name == key_name {
            key = (declared.len(), column.name.clone(), key_type(&column)?);
            continue;
        }
        if [KEY_COLUMN, RECORD_COLUMN, SEQUENCE_COLUMN].contains(&column.name.as_str()) {
            return Err(SqlError::syntax(format!("the name \"{}\" is reserved", column.name)));
        }
        let unit = units.iter().find(|(name, _)| *name == column.name);
        let column_type = unit.map_or(column.column_type, |(_, unit)| ScalarType::Timestamp(*unit).into());
        let path: ColumnPath = column.name.parse()?;
        declared.push(DeclaredColumn {
            name: column.name,
            path,
            column_type,
            is_required: column.is_required,
        });
    }
    let mut schema = TableSchema::with_key_at(key.0, key.1, key.2, declared)?;
    schema.is_explicit = true;
    Ok(schema)
}

/// The type of a column for values of a query.
fn type_of(name: &str, data_type: &DataType) -> Result<ColumnType> {
    let scalar = |data_type: &DataType| {
        Some(match data_type {
            DataType::Boolean => ScalarType::Bool,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => ScalarType::Float64,
            other if other.is_integer() => ScalarType::Int64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ScalarType::String,
            DataType::Date32 | DataType::Date64 => ScalarType::Date,
            DataType::Timestamp(unit, None) => ScalarType::Timestamp(*unit),
            DataType::Null => ScalarType::Json,
            _ => return None,
        })
    };
    let found = match data_type {
        DataType::List(element) | DataType::LargeList(element) => {
            scalar(element.data_type()).map(ColumnType::List)
        }
        other => scalar(other).map(ColumnType::Scalar),
    };
    found.ok_or_else(|| {
        SqlError::unsupported(format!("the type {data_type} of the column \"{name}\" cannot be stored"))
            .with_hint("convert the column in the query: CAST(… AS TEXT)")
    })
}

fn drop_table(shared: &SessionShared, table: &str, if_exists: bool) -> Result<SqlResult> {
    if let Err(error) = shared.collection(table) {
        let is_absent = error.state() == SqlState::UndefinedTable;
        return if if_exists && is_absent {
            Ok(SqlResult::Done("DROP TABLE".to_owned()))
        } else {
            Err(error)
        };
    }
    shared.db.drop_collection(table)?;
    undeclare(&shared.db, table)?;
    shared.schemas.forget(table);
    Ok(SqlResult::Done("DROP TABLE".to_owned()))
}

/// The path of the attribute of a column.
fn attribute(schema: &TableSchema, name: &str) -> Result<String> {
    let column = schema.declared(name).ok_or_else(|| match schema.is_key(name) {
        true => SqlError::unsupported(format!("the key \"{name}\" needs no index: records are sorted by it")),
        false => undefined_column(schema, name),
    })?;
    Ok(match column.column_type {
        ColumnType::List(_) => format!("{}[*]", column.path),
        ColumnType::Scalar(_) => column.path.to_string(),
    })
}

/// A name with backslashes before the characters of the syntax of index declarations.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '\\' | ':' | '=' | '+' | '|' | ',' | '(' | ')' | '[' | ']' | '.') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn create_index(shared: &SessionShared, index: &IndexDefinition) -> Result<SqlResult> {
    let (collection, schema) = shared.table(&index.table)?;
    let attributes = |names: &[String], separator: &str| -> Result<String> {
        Ok(names.iter().map(|name| attribute(&schema, name)).collect::<Result<Vec<_>>>()?.join(separator))
    };
    let mut text = attributes(&index.columns, "+")?;
    let mut options: Vec<String> = index
        .options
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value).replace("\\-", "-")))
        .collect();
    if !index.included.is_empty() {
        options.push(format!("include={}", attributes(&index.included, "|")?));
    }
    match (&index.kind, options.is_empty()) {
        (Some(kind), true) => text += &format!(":{kind}"),
        (Some(kind), false) => text += &format!(":{kind}:{}", options.join(",")),
        (None, true) => {}
        (None, false) => text += &format!(":ps-tree:{}", options.join(",")),
    }
    let mut spec: IndexSpec = text.parse()?;
    if let Some(name) = &index.name {
        spec = spec.with_name(name)?;
    }
    if collection.indexes().iter().any(|known| known.name() == spec.name()) {
        if index.if_not_exists {
            return Ok(SqlResult::Done("CREATE INDEX".to_owned()));
        }
        let message = format!("the table \"{}\" has an index \"{}\"", index.table, spec.name());
        return Err(SqlError::new(SqlState::DuplicateObject, message));
    }
    if index.is_concurrent {
        // The build goes on without its handle; system.indexes reports its state.
        drop(collection.create_index_background(spec, &BuildOptions::default())?);
    } else {
        collection.create_index(spec)?;
    }
    Ok(SqlResult::Done("CREATE INDEX".to_owned()))
}

fn drop_index(shared: &SessionShared, table: &str, index: &str, if_exists: bool) -> Result<SqlResult> {
    let collection = shared.collection(table)?;
    match collection.drop_index(index) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound && if_exists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let known: Vec<String> =
                collection.indexes().iter().map(|index| format!("\"{}\"", index.name())).collect();
            return Err(SqlError::new(
                SqlState::UndefinedObject,
                format!("the table \"{table}\" has no index \"{index}\""),
            )
            .with_hint(format!("its indexes are {}", known.join(", "))));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(SqlResult::Done("DROP INDEX".to_owned()))
}

fn run_analyze(shared: &SessionShared, table: &str) -> Result<SqlResult> {
    let collection = shared.collection(table)?;
    if collection.records() != RecordKind::Json {
        return Err(SqlError::unsupported(format!("the records of the collection `{table}` are no JSON")));
    }
    // Columns that CREATE TABLE declared remain; those that ANALYZE inferred are inferred again.
    let declared = match declaration(&shared.db, table)? {
        Some(record) => Some(TableSchema::of_record(table, &record)?),
        None => None,
    };
    let explicit = declared.filter(|declared| declared.is_explicit);
    let schema = analyze(&collection, &shared.point(), explicit)?;
    declare(&shared.db, table, &schema)?;
    shared.schemas.forget(table);
    Ok(SqlResult::Done(format!("ANALYZE {}", schema.columns.len())))
}

/// Lines of text as rows.
fn lines(column: &str, text: &str) -> SqlResult {
    let rows: ArrayRef = Arc::new(text.trim_end().lines().map(Some).collect::<StringArray>());
    match RecordBatch::try_from_iter([(column, rows)]) {
        Ok(batch) => SqlResult::Rows(SqlRows::of_batches(batch.schema(), vec![batch])),
        Err(_) => SqlResult::Done(text.to_owned()),
    }
}
