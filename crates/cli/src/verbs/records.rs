//! `put`, `delete` and `get`: single records.

use bolide::key::KeyFormat;
use bolide::{Collection, JsonExtractor};

use super::database::{self, LineMaker};
use super::new_database::with_collection;
use crate::arguments::{Delete, Get, Put};
use crate::failure::Failure;
use crate::output::{Printer, report};

/// Puts one record.
pub(super) fn put(arguments: &Put) -> Result<(), Failure> {
    // Before anything is opened.
    JsonExtractor.validate(arguments.json.as_bytes())?;
    let put = |collection: &Collection| {
        let key = collection.key_format().parse(&arguments.key);
        Ok(collection.put(&key, arguments.json.as_bytes())?)
    };
    let (name, options) = (&arguments.collection, database::json_collection());
    if arguments.create {
        return with_collection(&arguments.db, name, options, |_, collection, _| put(collection));
    }
    let db = database::open_to_write(&arguments.db)?;
    let (collection, _) = database::collection_or_create(&db, name, options)?;
    put(&collection)?;
    drop(collection);
    database::close(db)
}

/// Deletes one record.
pub(super) fn delete(arguments: &Delete, key: &str) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let key = collection.key_format().parse(key);
    collection.delete(&key)?;
    drop(collection);
    database::close(db)
}

/// Prints records by key, in the order of the arguments.
pub(super) fn get(arguments: &Get) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let lines = LineMaker::new(&collection);
    let keys: Vec<Vec<u8>> = arguments.keys.iter().map(|text| collection.key_format().parse(text)).collect();
    let records = collection.multi_get(&keys)?;
    let mut printer = Printer::new(arguments.output.form());
    let mut missing = false;
    for ((text, key), record) in arguments.keys.iter().zip(&keys).zip(records) {
        match record {
            Some(record) => lines.with_line(key, None, Some(&record), |line| printer.line(line))?,
            None => {
                missing = true;
                report!("no record under {}{}", lines.key(key), hint(text, collection.key_format()));
            }
        }
    }
    printer.finish()?;
    if missing { Err(Failure::Reported) } else { Ok(()) }
}

/// A hint at the other meaning of a key of digits.
fn hint(text: &str, format: KeyFormat) -> String {
    if format == KeyFormat::Typed && text.parse::<i128>().is_ok() {
        format!("; for the text of these digits write '\"{text}\"'")
    } else {
        String::new()
    }
}
