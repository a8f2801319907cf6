//! `stats`: the parts of a database and their sizes.

use std::collections::BTreeSet;

use bolide::{
    Collection, CollectionStats, Db, FigureValue, Figures, IndexState, IterOptions, MemorySize, MemoryStats,
    TreeFigures,
};
use serde_json::Value;

use super::database;
use crate::arguments::Stats;
use crate::failure::Failure;
use crate::output::{Fields, Format, print_objects};

/// Prints a row for the memtables and for each level of each tree, and one with the sums of the tree.
///
/// For a named collection, the records are read too, to count live records, stale index entries, and the bytes on disk
/// per live byte.
///
/// The row of an index of kind `ps-tree` has the size of its region and of its version table, and the lag of its files:
/// the bytes of the next checkpoint, and the sequence numbers since the last. For a named collection, also the space of
/// its pages.
///
/// The memory budget has a row with the sum, and one for each use that is not empty: the bytes in use, and those that
/// count against the budget, which for a cache is its capacity.
///
/// An embedded index has no levels: its row has the number of sstables of the records with and without it, the bytes of
/// its meta blocks there, and the bytes of these that this program decoded. So does that of an index of kind `next`,
/// with the bytes of its directories and of its global index in memory, which the first query loads.
pub(super) fn run(arguments: &Stats) -> Result<(), Failure> {
    let db = database::open_to_read(&arguments.db)?;
    let stats = db.stats();
    let mut objects = Vec::new();
    let chosen = match &arguments.collection {
        Some(name) => Some(database::collection(&db, name)?),
        None => None,
    };
    for collection in &stats.collections {
        match &chosen {
            None => objects.extend(rows_of(collection, &Live::default())),
            Some(chosen) if chosen.name() == collection.name => {
                objects.extend(rows_of(collection, &Live::read(&db, chosen)?));
            }
            Some(_) => {}
        }
    }
    if chosen.is_none() {
        objects.push(vec![
            ("collection".into(), Value::Null),
            ("tree".into(), "log".into()),
            ("bytes".into(), stats.log_segment_bytes.into()),
            ("sequence".into(), stats.sequence.into()),
        ]);
        objects.extend(memory_rows(&stats.memory));
        for tail in &stats.cut_tails {
            objects.push(vec![
                ("collection".into(), Value::Null),
                ("tree".into(), format!("cut tail of log segment {}", tail.segment).into()),
                ("bytes".into(), tail.bytes().into()),
                ("from_byte".into(), tail.start.into()),
            ]);
        }
        if let Some(segment) = stats.unmarked_log {
            objects.push(vec![
                ("collection".into(), Value::Null),
                ("tree".into(), format!("log segment {segment} of unknown synced length").into()),
                ("problem".into(), "the marker SYNCED is missing or invalid".into()),
            ]);
        }
        for error in &stats.background_errors {
            objects.push(vec![
                ("collection".into(), Value::Null),
                ("tree".into(), "background error".into()),
                ("problem".into(), error.to_string().into()),
            ]);
        }
    }
    let form = arguments.output.form();
    if form == Format::Table {
        omit_empty_columns(&mut objects);
    }
    print_objects(form, &objects)
}

/// A row for the memory budget, one for each use of memory, and one for each index with memory of its own.
fn memory_rows(memory: &MemoryStats) -> Vec<Fields> {
    let row = |what: String, size: MemorySize| -> Fields {
        vec![
            ("collection".into(), Value::Null),
            ("tree".into(), what.into()),
            ("memory_bytes".into(), size.used.into()),
            ("reserved_bytes".into(), size.reserved.into()),
        ]
    };
    let all = MemorySize { used: memory.used_bytes(), reserved: memory.reserved_bytes() };
    let mut budget = row("memory budget".into(), all);
    budget.push(("budget_bytes".into(), memory.limit_bytes.into()));
    if memory.refused_requests > 0 {
        budget.push(("refused_requests".into(), memory.refused_requests.into()));
    }
    let users = memory.users.iter().filter(|user| user.size.reserved > 0).map(|user| {
        let name = user.name.as_ref().map_or(String::new(), |name| format!(": {name}"));
        row(format!("memory of {}{name}", user.memory_use.name()), user.size)
    });
    std::iter::once(budget).chain(users).collect()
}

/// Omits columns of a table that contain nothing but zeros.
fn omit_empty_columns(rows: &mut [Fields]) {
    let is_used = |value: &Value| !value.is_null() && value.as_f64() != Some(0.0);
    let used: BTreeSet<String> =
        rows.iter().flatten().filter(|(_, value)| is_used(value)).map(|(name, _)| name.clone()).collect();
    for row in rows {
        row.retain(|(name, _)| used.contains(name));
    }
}

/// Statistics that need a read of the records.
#[derive(Default)]
struct Live {
    records: Option<u64>,
    bytes: u64,
    /// Stale entries by index name.
    stale: Vec<(String, u64)>,
    /// The use of their space by indexes that report it, by index name.
    spaces: Vec<(String, Figures)>,
}

impl Live {
    fn read(db: &Db, collection: &Collection) -> Result<Self, Failure> {
        let mut live = Self { records: Some(0), ..Self::default() };
        let mut cursor = collection.cursor(&IterOptions::default())?;
        cursor.seek_to_first()?;
        while cursor.valid() {
            live.records = live.records.map(|records| records + 1);
            live.bytes += (cursor.key().len() + cursor.value().len()) as u64;
            cursor.next()?;
        }
        let own = db.check(true)?.indexes.into_iter().filter(|index| index.collection == collection.name());
        live.stale = own.map(|index| (index.index, index.found.stale)).collect();
        for index in collection.indexes() {
            if let Some(space) = collection.index_space(index.name())? {
                live.spaces.push((index.name().to_owned(), space));
            }
        }
        Ok(live)
    }
}

fn rows_of(collection: &CollectionStats, live: &Live) -> Vec<Fields> {
    let mut rows = tree_rows(&collection.name, "records", &collection.table);
    if let (Some(sum), Some(records)) = (rows.last_mut(), live.records) {
        sum.push(("live_records".into(), records.into()));
        sum.push(("live_bytes".into(), live.bytes.into()));
        if live.bytes > 0 {
            let amplification = space_amplification(&collection.table, records, live.bytes);
            sum.push(("space_amplification".into(), ((amplification * 1000.0).round() / 1000.0).into()));
        }
    }
    for index in &collection.indexes {
        rows.extend(tree_rows(&collection.name, &format!("index {}", index.name), &index.tree));
        let space = live.spaces.iter().find(|(name, _)| *name == index.name).map(|(_, space)| space);
        if let Some(sum) = rows.last_mut() {
            sum.extend(index.figures.iter().chain(space).flat_map(named_fields));
        }
        if let Some(sum) = rows.last_mut().filter(|_| index.state != IndexState::Ready) {
            sum.push(("state".into(), index.state.name().into()));
        }
        if let (Some(sum), Some(damage)) = (rows.last_mut(), &index.damage) {
            sum.push(("problem".into(), damage.to_string().into()));
        }
        let stale = live.stale.iter().find(|(name, _)| *name == index.name);
        if let (Some(sum), Some((_, stale))) = (rows.last_mut(), stale) {
            sum.push(("stale_entries".into(), (*stale).into()));
        }
    }
    rows
}

/// Bytes on disk for each of the `live_bytes` of `records` records. Entries of memtables are in the log, which all
/// collections share: they count with the mean length of the records.
fn space_amplification(table: &TreeFigures, records: u64, live_bytes: u64) -> f64 {
    let files = (table.disk_bytes + table.sorted_view_file_bytes) as f64;
    files / live_bytes as f64 + table.memtable_entries as f64 / records.max(1) as f64
}

/// The figures of an index that are not those of its tree.
fn named_fields(figures: &Figures) -> Fields {
    let field = |(name, value): (&str, FigureValue)| match value {
        FigureValue::Number(number) => (name.to_owned(), number.into()),
        FigureValue::Text(text) => (name.to_owned(), text.into()),
    };
    figures.named().into_iter().map(field).collect()
}

/// Rows of one tree: memtables, levels from the newest to the oldest, and the sum.
fn tree_rows(collection: &str, tree: &str, figures: &TreeFigures) -> Vec<Fields> {
    let row = |level: Value, runs: usize, tables: usize, bytes: u64, entries: u64| -> Fields {
        vec![
            ("collection".into(), collection.into()),
            ("tree".into(), tree.into()),
            ("layout".into(), figures.layout.name().into()),
            ("level".into(), level),
            ("runs".into(), runs.into()),
            ("sstables".into(), tables.into()),
            ("bytes".into(), bytes.into()),
            ("entries".into(), entries.into()),
        ]
    };
    let mut rows = Vec::new();
    if figures.memtable_entries > 0 {
        let memtables = 1 + figures.immutable_memtables;
        rows.push(row("memory".into(), memtables, 0, 0, figures.memtable_entries as u64));
    }
    for level in &figures.levels {
        let mut fields = row(level.level.into(), level.runs, level.tables, level.bytes, level.entries);
        fields.push(("tombstones".into(), level.tombstones.into()));
        if level.partitions > 1 {
            fields.push(("partitions".into(), level.partitions.into()));
        }
        rows.push(fields);
    }
    let mut sum = row("all".into(), figures.runs(), figures.sstables(), figures.disk_bytes, figures.entries);
    sum.push(("resident_bytes".into(), figures.resident_bytes.into()));
    sum.push(("range_tombstones".into(), figures.range_tombstones.into()));
    if figures.sorted_view_file_bytes + figures.sorted_view_bytes as u64 > 0 {
        sum.push(("sorted_view_bytes".into(), figures.sorted_view_bytes.into()));
        sum.push(("sorted_view_file_bytes".into(), figures.sorted_view_file_bytes.into()));
    }
    if figures.retained_bytes > 0 {
        sum.push(("retained_bytes".into(), figures.retained_bytes.into()));
    }
    rows.push(sum);
    rows
}
