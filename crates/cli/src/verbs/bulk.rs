//! `update`, and `delete --where`: changes of all records that satisfy a filter.

use std::ops::ControlFlow;

use bolide::{BulkChange, BulkOptions, BulkProgress, Db, Error, Filter, Query};
use serde_json::Value;

use super::database;
use crate::arguments::{BulkArguments, Delete, Update};
use crate::failure::Failure;
use crate::field_edit;
use crate::output::{Fields, Format, print_objects, report};
use crate::row::FieldPath;

/// Changes fields of records.
pub(super) fn update(arguments: &Update) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let set: Vec<(FieldPath, String)> =
        arguments.set.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?;
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let change = |key: &[u8], record: &[u8]| {
        let changed = changed_record(record, &set, &arguments.unset).map_err(|what| {
            let key = String::from_utf8_lossy(key);
            let advice = "exclude it by --where, or choose another path";
            Error::invalid_input(format!(
                "the record \"{}\" is not changed: {what}; {advice}",
                key.escape_debug()
            ))
        })?;
        Ok(changed.map_or(BulkChange::Keep, |record| BulkChange::Put(record.into_bytes())))
    };
    let done = collection.update_where(&query, &options, change, |progress| note_progress(&db, progress))?;
    drop(collection);
    database::close(db)?;
    print_counts(&done)
}

/// Deletes records.
pub(super) fn delete(arguments: &Delete) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let done = collection.delete_where(&query, &options, |progress| note_progress(&db, progress))?;
    drop(collection);
    database::close(db)?;
    print_counts(&done)
}

/// The query and the settings of the command line.
fn parse(which: &BulkArguments) -> Result<(Query, BulkOptions), Failure> {
    let wrong = |error: bolide::Error| Failure::usage(error.message());
    if which.filter.is_empty() {
        return Err(Failure::usage("--where is missing: 'true' selects all records"));
    }
    let mut query = Query::new();
    for text in &which.filter {
        query = query.filter(Filter::parse(text).map_err(wrong)?);
    }
    query.check().map_err(wrong)?;
    let mut options = BulkOptions::default().batch(which.batch);
    if let Some(text) = &which.resume {
        options = options.resume(text.parse().map_err(wrong)?);
    }
    Ok((query, options))
}

/// Reports the position after a batch, which is durable by then. After an error of the sync the next batch fails.
fn note_progress(db: &Db, progress: &BulkProgress) -> ControlFlow<()> {
    if let Some(position) = &progress.position
        && db.sync().is_ok()
    {
        report!("note: {} records changed; --resume {position} continues here", progress.changed);
    }
    ControlFlow::Continue(())
}

fn print_counts(done: &BulkProgress) -> Result<(), Failure> {
    let fields: Fields = vec![
        ("found".into(), done.found.into()),
        ("changed".into(), done.changed.into()),
        ("skipped".into(), done.skipped.into()),
    ];
    print_objects(Format::Ndjson, &[fields])
}

/// Reads `PATH=VALUE`.
fn assignment(text: &str) -> Result<(FieldPath, String), Failure> {
    let wrong = |what: &str| Failure::usage(format!("--set {text}: {what}"));
    let mut escaped = false;
    let equals = text.char_indices().find(|(_, character)| {
        let found = !escaped && *character == '=';
        escaped = !escaped && *character == '\\';
        found
    });
    let (at, _) = equals.ok_or_else(|| wrong("there is no `=`: write PATH=VALUE"))?;
    let path = FieldPath::parse(&text[..at]).map_err(|error| wrong(&error))?;
    Ok((path, value_of(&text[at + 1..]).map_err(|error| wrong(&error))?))
}

/// The JSON of a value of the command line: JSON as it is, anything else a text.
fn value_of(text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    match serde_json::from_str::<Value>(trimmed) {
        Ok(_) => Ok(trimmed.to_owned()),
        Err(error) if trimmed.starts_with(['[', '{', '"']) => {
            Err(format!("it starts like JSON, but is none: {error}"))
        }
        Err(_) if trimmed.parse::<f64>().is_ok() => {
            Err("JSON has no such number: write it in double quotes for a text".to_owned())
        }
        Err(_) => Ok(Value::from(text).to_string()),
    }
}

/// The record with the changes; `None` if they change nothing.
fn changed_record(
    record: &[u8],
    set: &[(FieldPath, String)],
    unset: &[FieldPath],
) -> Result<Option<String>, String> {
    let record = std::str::from_utf8(record).map_err(|_| "it is not JSON".to_owned())?;
    let mut changed: Option<String> = None;
    for (path, value) in set {
        let after = field_edit::set(changed.as_deref().unwrap_or(record), path.names(), value)?;
        changed = after.or(changed);
    }
    for path in unset {
        let after = field_edit::unset(changed.as_deref().unwrap_or(record), path.names())?;
        changed = after.or(changed);
    }
    Ok(changed)
}
