//! The tables of the schema `system`: figures of the database at the time of the statement.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use bolide::RecordKind;
use bolide::key::KeyFormat;
use datafusion::datasource::MemTable;

use crate::error::Result;
use crate::session_state::SessionShared;

/// The names of the tables.
pub(crate) const NAMES: [&str; 4] = ["collections", "columns", "indexes", "levels"];

/// The table `name`. Blocks.
///
/// # Errors
/// Those of reading.
pub(crate) fn table(shared: &SessionShared, name: &str) -> Result<Option<MemTable>> {
    let batch = match name {
        "collections" => collections(shared)?,
        "columns" => columns(shared)?,
        "indexes" => indexes(shared)?,
        "levels" => levels(shared)?,
        _ => return Ok(None),
    };
    Ok(Some(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
}

fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> ArrayRef {
    Arc::new(values.into_iter().map(Some).collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(values.into_iter().map(|value| i64::try_from(value).ok()).collect::<Int64Array>())
}

fn collections(shared: &SessionShared) -> Result<RecordBatch> {
    let stats = shared.db.stats().collections;
    let format = |name: &str| match shared.db.collection(name).map(|collection| collection.key_format()) {
        Ok(KeyFormat::Typed) => "typed",
        _ => "bytes",
    };
    let kind = |kind: RecordKind| if kind == RecordKind::Json { "json" } else { "bytes" };
    Ok(RecordBatch::try_from_iter([
        ("name", texts(stats.iter().map(|one| one.name.as_str()))),
        ("records", texts(stats.iter().map(|one| kind(one.records)))),
        ("keys", texts(stats.iter().map(|one| format(&one.name)))),
        ("layout", texts(stats.iter().map(|one| one.table.layout.name()))),
        ("indexes", numbers(stats.iter().map(|one| one.indexes.len() as u64))),
        ("entries", numbers(stats.iter().map(|one| one.table.entries + one.table.memtable_entries as u64))),
        ("disk_bytes", numbers(stats.iter().map(|one| one.table.disk_bytes))),
        ("memtable_bytes", numbers(stats.iter().map(|one| one.table.memtable_bytes as u64))),
        ("malformed", numbers(stats.iter().map(|one| one.malformed))),
    ])?)
}

fn columns(shared: &SessionShared) -> Result<RecordBatch> {
    let (mut collections, mut names, mut types, mut paths) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut places, mut required, mut nulls, mut distinct) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for table in shared.tables() {
        // Collections of other records are no tables.
        let Ok((_, schema)) = shared.table(&table) else { continue };
        for (place, column) in (1..).zip(schema.all()) {
            let declared = schema.declared(column.name());
            let figures = schema.statistics.as_ref().and_then(|found| found.columns.get(column.name()));
            collections.push(table.clone());
            places.push(place);
            names.push(column.name().to_owned());
            types.push(column.type_name());
            paths.push(declared.map(|one| one.path.to_string()));
            required.push(declared.is_none_or(|one| one.is_required));
            nulls.push(figures.map(|found| found.nulls));
            distinct.push(figures.and_then(|found| i64::try_from(found.distinct).ok()));
        }
    }
    Ok(RecordBatch::try_from_iter([
        ("collection", texts(collections.iter().map(String::as_str))),
        ("place", numbers(places)),
        ("name", texts(names.iter().map(String::as_str))),
        ("type", texts(types.iter().map(String::as_str))),
        ("path", Arc::new(StringArray::from(paths)) as ArrayRef),
        ("required", Arc::new(BooleanArray::from(required)) as ArrayRef),
        ("nulls", Arc::new(Float64Array::from(nulls)) as ArrayRef),
        ("distinct_values", Arc::new(Int64Array::from(distinct)) as ArrayRef),
    ])?)
}

fn indexes(shared: &SessionShared) -> Result<RecordBatch> {
    let stats = shared.db.stats().collections;
    let (mut collections, mut names, mut kinds, mut attributes) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut specs, mut states, mut entries, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut problems = Vec::new();
    for collection in &stats {
        let Ok(open) = shared.db.collection(&collection.name) else { continue };
        for info in open.indexes() {
            let figures = collection.indexes.iter().find(|index| index.name == info.name());
            collections.push(collection.name.clone());
            names.push(info.name().to_owned());
            kinds.push(info.spec().kind().name());
            attributes.push(info.spec().attributes_text());
            specs.push(info.spec().to_string());
            states.push(info.state().name());
            entries.push(figures.map_or(0, |index| index.tree.entries));
            bytes.push(figures.map_or(0, bolide::IndexStats::disk_bytes));
            problems.push(info.problem().or(info.damage()).map(ToString::to_string));
        }
    }
    Ok(RecordBatch::try_from_iter([
        ("collection", texts(collections.iter().map(String::as_str))),
        ("name", texts(names.iter().map(String::as_str))),
        ("kind", texts(kinds)),
        ("attributes", texts(attributes.iter().map(String::as_str))),
        ("declaration", texts(specs.iter().map(String::as_str))),
        ("state", texts(states)),
        ("entries", numbers(entries)),
        ("disk_bytes", numbers(bytes)),
        ("problem", Arc::new(StringArray::from(problems)) as ArrayRef),
    ])?)
}

fn levels(shared: &SessionShared) -> Result<RecordBatch> {
    let stats = shared.db.stats().collections;
    let trees = stats.iter().flat_map(|collection| {
        let own = std::iter::once((collection.name.as_str(), None, &collection.table));
        let indexes = collection.indexes.iter();
        own.chain(indexes.map(|index| (collection.name.as_str(), Some(index.name.as_str()), &index.tree)))
    });
    let rows: Vec<_> = trees
        .flat_map(|(name, index, tree)| tree.levels.iter().map(move |level| (name, index, level)))
        .collect();
    Ok(RecordBatch::try_from_iter([
        ("collection", texts(rows.iter().map(|(name, _, _)| *name))),
        ("index", Arc::new(rows.iter().map(|(_, index, _)| *index).collect::<StringArray>()) as ArrayRef),
        ("level", numbers(rows.iter().map(|(_, _, level)| level.level as u64))),
        ("runs", numbers(rows.iter().map(|(_, _, level)| level.runs as u64))),
        ("partitions", numbers(rows.iter().map(|(_, _, level)| level.partitions as u64))),
        ("sstables", numbers(rows.iter().map(|(_, _, level)| level.tables as u64))),
        ("entries", numbers(rows.iter().map(|(_, _, level)| level.entries))),
        ("tombstones", numbers(rows.iter().map(|(_, _, level)| level.tombstones))),
        ("bytes", numbers(rows.iter().map(|(_, _, level)| level.bytes))),
    ])?)
}
