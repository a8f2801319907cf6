//! `import`: rows of a file into a collection.

use std::sync::atomic::{AtomicU64, Ordering};

use bolide::{Collection, CollectionOptions, IndexInfo, IndexSpec, Layout, SyncMode};

use super::database;
use super::load::{LoadOptions, Tally, load};
use super::new_database::with_collection;
use crate::arguments::{Import, SyncName};
use crate::failure::Failure;
use crate::input::{InputOptions, Source};
use crate::output::{Fields, Format, figures, print_objects, report};
use crate::row::RowShape;

/// Loads a file and prints a summary as one line of JSON.
pub(super) fn run(arguments: &Import) -> Result<(), Failure> {
    let mut options = database::json_collection();
    if let Some(layout) = arguments.layout {
        options = options.layout(layout);
    }
    let specs =
        arguments.indexes.iter().map(|text| database::parse_spec(text)).collect::<Result<Vec<_>, _>>()?;
    let input = InputOptions {
        format: arguments.format,
        separator: arguments.separator,
        types: arguments.types.clone(),
    };
    let source = Source::open(&arguments.file, &input)?;
    let name = &arguments.collection;
    let options = specs.iter().cloned().fold(options, CollectionOptions::index);
    let tally = with_collection(&arguments.db, name, options, |db, collection, is_new| {
        let committed = AtomicU64::new(0);
        let added = if is_new { Vec::new() } else { prepare(collection, specs, arguments.layout)? };
        let loaded = load(db, collection, source, &load_options(arguments), &committed);
        if loaded.is_err() && committed.load(Ordering::Relaxed) == 0 {
            added.iter().for_each(|index| drop_index(collection, index));
        }
        loaded
    })?;
    print_summary(&tally)
}

fn load_options(arguments: &Import) -> LoadOptions {
    LoadOptions {
        shape: RowShape::new(arguments.key.clone(), arguments.op_field.clone()),
        sync: sync_of(arguments.sync),
        bad_rows: arguments.bad_rows,
        acknowledge: arguments.acknowledge,
    }
}

/// Adds the missing ones of `specs` as indexes, and returns their names. If one cannot be added, none is.
fn prepare(
    collection: &Collection,
    specs: Vec<IndexSpec>,
    layout: Option<Layout>,
) -> Result<Vec<String>, Failure> {
    let name = collection.name();
    if layout.is_some() {
        report!("note: the collection `{name}` exists: it keeps its layout (`bolide layout` changes it)");
    }
    let existing = collection.indexes();
    let differs =
        |index: &&IndexInfo| specs.iter().any(|spec| spec.name() == index.name() && spec != index.spec());
    if let Some(index) = existing.iter().find(differs) {
        return Err(Failure::operation(
            format!("the collection `{name}` has another index of this name: {}", index.spec()),
            "drop it first, or give the new one a name: NAME=ATTRIBUTE",
        ));
    }
    let mut added: Vec<String> = Vec::new();
    for spec in specs {
        if existing.iter().any(|index| index.name() == spec.name()) {
            continue;
        }
        let index = spec.name().to_owned();
        if let Err(error) = collection.create_index(spec) {
            added.iter().for_each(|index| drop_index(collection, index));
            return Err(error.into());
        }
        added.push(index);
    }
    Ok(added)
}

/// Drops an index that the import added.
fn drop_index(collection: &Collection, index: &str) {
    if let Err(error) = collection.drop_index(index) {
        report!("note: the new index `{index}` could not be dropped again: {}", error.message());
    }
}

fn sync_of(name: SyncName) -> SyncMode {
    match name {
        SyncName::None => SyncMode::None,
        SyncName::Batch => SyncMode::Batch,
        SyncName::Always => SyncMode::Always,
    }
}

fn print_summary(tally: &Tally) -> Result<(), Failure> {
    let seconds = (tally.duration.as_secs_f64() * 1_000.0).round() / 1_000.0;
    let rows_per_second = figures::per_second(tally.rows, tally.duration);
    let fields: Fields = vec![
        ("rows".into(), tally.rows.into()),
        ("bad_rows".into(), tally.bad_rows.into()),
        ("seconds".into(), seconds.into()),
        ("rows_per_second".into(), rows_per_second.into()),
    ];
    print_objects(Format::Ndjson, &[fields])
}
