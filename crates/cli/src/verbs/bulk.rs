//! `update`, and `delete --where`: changes of all records that satisfy a filter.

use std::ops::ControlFlow;

use bolide::{BulkChange, BulkOptions, BulkProgress, Filter, Query};
use serde_json::{Map, Value};

use super::database;
use crate::arguments::{BulkArguments, Delete, Update};
use crate::failure::Failure;
use crate::output::{Fields, Format, print_objects, report};
use crate::row::FieldPath;

/// Changes fields of records.
pub(super) fn update(arguments: &Update) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let set: Vec<(FieldPath, Value)> =
        arguments.set.iter().map(|text| assignment(text)).collect::<Result<_, _>>()?;
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let change = |_: &[u8], record: &[u8]| {
        let Ok(Value::Object(before)) = serde_json::from_slice::<Value>(record) else {
            return Ok(BulkChange::Keep);
        };
        let mut after = before.clone();
        set.iter().for_each(|(path, value)| set_field(&mut after, path.names(), value));
        arguments.unset.iter().for_each(|path| unset_field(&mut after, path.names()));
        let is_same = after == before;
        Ok(if is_same {
            BulkChange::Keep
        } else {
            BulkChange::Put(Value::Object(after).to_string().into_bytes())
        })
    };
    let done = collection.update_where(&query, &options, change, note_progress)?;
    drop(collection);
    database::close(db)?;
    print_counts(&done)
}

/// Deletes records.
pub(super) fn delete(arguments: &Delete) -> Result<(), Failure> {
    let (query, options) = parse(&arguments.which)?;
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let done = collection.delete_where(&query, &options, note_progress)?;
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

fn note_progress(progress: &BulkProgress) -> ControlFlow<()> {
    if let Some(position) = &progress.position {
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
fn assignment(text: &str) -> Result<(FieldPath, Value), Failure> {
    let wrong = |what: &str| Failure::usage(format!("--set {text}: {what}"));
    let mut escaped = false;
    let equals = text.char_indices().find(|(_, character)| {
        let found = !escaped && *character == '=';
        escaped = !escaped && *character == '\\';
        found
    });
    let (at, _) = equals.ok_or_else(|| wrong("there is no `=`: write PATH=VALUE"))?;
    let path = FieldPath::parse(&text[..at]).map_err(|error| wrong(&error))?;
    let value = &text[at + 1..];
    let json = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((path, json))
}

/// Sets the field at the end of `names`. What is no object on the way is replaced by one.
fn set_field(object: &mut Map<String, Value>, names: &[String], value: &Value) {
    match names {
        [] => {}
        [last] => drop(object.insert(last.clone(), value.clone())),
        [first, rest @ ..] => {
            let inner = object.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Value::Object(inner) = inner {
                set_field(inner, rest, value);
            }
        }
    }
}

fn unset_field(object: &mut Map<String, Value>, names: &[String]) {
    match names {
        [] => {}
        [last] => drop(object.remove(last)),
        [first, rest @ ..] => {
            if let Some(Value::Object(inner)) = object.get_mut(first) {
                unset_field(inner, rest);
            }
        }
    }
}
