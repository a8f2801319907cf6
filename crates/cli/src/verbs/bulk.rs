//! `update`, and `delete --where`: changes of all records that satisfy a filter.

use std::ops::ControlFlow;

use std::path::Path;

use bolide::{BulkChange, BulkOptions, BulkProgress, Collection, Db, Error, Filter, Query};
use serde_json::Value;

use super::database::{self, LineMaker};
use crate::arguments::{BulkArguments, Delete, Update};
use crate::failure::Failure;
use crate::field_edit;
use crate::output::{Fields, Format, print_objects, report};
use crate::row::FieldPath;

/// Keys that a dry run prints.
const MAX_PRINTED_KEYS: usize = 5;

/// Changes fields of records.
pub(super) fn update(arguments: &Update) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let set: Vec<(FieldPath, String)> =
        arguments.set.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?;
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
    let target = (&*arguments.db, &*arguments.collection);
    if arguments.which.dry_run {
        return dry_run(target, &query, &options, change);
    }
    change_all(target, &query, |db, collection| {
        collection.update_where(&query, &options, change, |progress| note_progress(db, progress))
    })
}

/// Deletes records.
pub(super) fn delete(arguments: &Delete) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let target = (&*arguments.db, &*arguments.collection);
    if arguments.which.dry_run {
        return dry_run(target, &query, &options, |_, _| Ok(BulkChange::Delete));
    }
    change_all(target, &query, |db, collection| {
        collection.delete_where(&query, &options, |progress| note_progress(db, progress))
    })
}

/// Runs `change` on the collection at `target`, and prints the counts.
fn change_all(
    (path, name): (&Path, &str),
    query: &Query,
    change: impl FnOnce(&Db, &Collection) -> bolide::Result<BulkProgress>,
) -> Result<(), Failure> {
    let db = database::open_to_write(path)?;
    let collection = database::collection(&db, name)?;
    warn_of_missing(&collection, query)?;
    let done = change(&db, &collection)?;
    drop(collection);
    database::close(db)?;
    print_objects(Format::Ndjson, &[counts(&done)])
}

/// Prints what `change` would do at `target`: the counts, and the first keys.
fn dry_run(
    (path, name): (&Path, &str),
    query: &Query,
    options: &BulkOptions,
    mut change: impl FnMut(&[u8], &[u8]) -> bolide::Result<BulkChange>,
) -> Result<(), Failure> {
    let db = database::open_to_read(path)?;
    let collection = database::collection(&db, name)?;
    warn_of_missing(&collection, query)?;
    let lines = LineMaker::new(&collection);
    let mut keys = Vec::new();
    let noted = |key: &[u8], record: &[u8]| {
        let changed = change(key, record)?;
        if changed != BulkChange::Keep && keys.len() < MAX_PRINTED_KEYS {
            keys.push(lines.key(key));
        }
        Ok(changed)
    };
    let options = options.clone().dry_run(true);
    let done = collection.update_where(query, &options, noted, |_| ControlFlow::Continue(()))?;
    let mut fields = counts(&done);
    fields.push(("dry_run".into(), true.into()));
    fields.push(("first_keys".into(), Value::Array(keys)));
    print_objects(Format::Ndjson, &[fields])
}

/// Warns of fields in negated conditions that no record has: the conditions hold for every record.
fn warn_of_missing(collection: &Collection, query: &Query) -> Result<(), Failure> {
    for path in collection.without_values(&query.negated_attributes())? {
        report!(
            "warning: no record has a value at `{path}`, so a negated condition on it holds for every record: check the name"
        );
    }
    Ok(())
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

fn counts(done: &BulkProgress) -> Fields {
    vec![
        ("found".into(), done.found.into()),
        ("changed".into(), done.changed.into()),
        ("skipped".into(), done.skipped.into()),
    ]
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
