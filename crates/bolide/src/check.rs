//! Detection of damage, and of indexes that differ from their records.

use std::fmt;
use std::sync::Arc;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Error, ErrorKind, Result};
use bolide_index::{CheckedTable, IndexCheck, JsonExtractor};
use bolide_lsm::Bounds;
use bolide_lsm::store::StoreVerification;

use crate::catalog::RecordKind;
use crate::handle::Engine;
use crate::schema::OpenCollection;

/// The maximum number of malformed records of a collection that a report names; all are counted.
const MAX_NAMED_RECORDS: u64 = 10;

/// The result of [`Db::check`](crate::Db::check) or [`Collection::check_indexes`](crate::Collection::check_indexes).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// What was read.
    pub files: StoreVerification,
    /// The comparison of each index with its collection; empty unless the check was deep.
    pub indexes: Vec<CheckedIndex>,
    /// Records of collections of JSON that are malformed: an older version stored them without validation.
    pub malformed_records: u64,
    problems: Vec<String>,
}

/// The comparison of one index with its collection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckedIndex {
    /// The collection.
    pub collection: String,
    /// The index.
    pub index: String,
    /// The result of the comparison.
    pub found: IndexCheck,
}

impl CheckReport {
    /// All problems, as text; empty for a sound database.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert!(db.check(false)?.problems().is_empty());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether there is no problem.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for CheckReport {
    /// One fact a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = &self.files;
        writeln!(
            f,
            "{} sstables, {} bytes, {} entries read",
            files.tables, files.table_bytes, files.entries
        )?;
        if files.views > 0 {
            writeln!(f, "{} sorted views, {} bytes read", files.views, files.view_bytes)?;
        }
        if files.external_files > 0 {
            writeln!(f, "{} page segments, {} bytes read", files.external_files, files.external_file_bytes)?;
        }
        for CheckedIndex { collection, index, found } in &self.indexes {
            writeln!(
                f,
                "index {index} of {collection}: {} entries, {} stale, for {} records",
                found.entries, found.stale, found.records
            )?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        if self.problems.is_empty() { writeln!(f, "no problem found") } else { Ok(()) }
    }
}

/// Checks the files and, if `deep`, the indexes.
pub(crate) fn run(engine: &Engine, deep: bool) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut problems = Vec::new();
    let mut damages = Vec::new();
    report.files = engine.store.verify(|_, error| {
        problems.push(error.to_string());
        damages.push(error);
    });
    if let Some(interrupted) = damages.iter().find(|error| error.kind() == ErrorKind::Interrupted) {
        return Err(interrupted.clone());
    }
    report.problems = problems;
    let collections: Vec<Arc<OpenCollection>> = engine.schema.read().values().cloned().collect();
    for collection in &collections {
        for damage in &damages {
            engine.isolate_damaged(collection, damage);
        }
        let indexes = collection.indexes();
        let damage = indexes.all().iter().filter_map(|index| index.progress.damage());
        report.problems.extend(damage.map(|damage| damage.to_string()));
    }
    collections.iter().try_for_each(|collection| check_records(engine, collection, &mut report))?;
    if deep {
        collections.iter().try_for_each(|collection| check_indexes(engine, collection, &mut report))?;
    }
    Ok(report)
}

/// Validates the records of a collection of JSON, and names the keys of those that are malformed.
fn check_records(engine: &Engine, collection: &OpenCollection, report: &mut CheckReport) -> Result<()> {
    if collection.records != RecordKind::Json {
        return Ok(());
    }
    match find_malformed(engine, collection, report) {
        // The check of the files reports damaged files; a dropped collection has no records.
        Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => Ok(()),
        other => other,
    }
}

fn find_malformed(engine: &Engine, collection: &OpenCollection, report: &mut CheckReport) -> Result<()> {
    let mut records = engine.read_view().cursor(collection.tree, Bounds::all())?;
    let (mut found, mut steps) = (0, InterruptionSteps::default());
    records.seek_to_first()?;
    while records.valid() {
        steps.step()?;
        if let Err(error) = JsonExtractor.validate(records.value()) {
            found += 1;
            if found <= MAX_NAMED_RECORDS {
                let problem = of_record(error, collection, records.key());
                report.problems.push(format!("{:?}: {problem}", collection.name));
            }
        }
        records.next()?;
    }
    if found > MAX_NAMED_RECORDS {
        let further = found - MAX_NAMED_RECORDS;
        report.problems.push(format!("{:?}: {further} further records are malformed", collection.name));
    }
    report.malformed_records += found;
    Ok(())
}

/// `error` with the key of its record.
pub(crate) fn of_record(error: Error, collection: &OpenCollection, key: &[u8]) -> Error {
    error.context(format_args!("the record under key {}", collection.keys.show(key)))
}

pub(crate) fn check_indexes(
    engine: &Engine,
    collection: &OpenCollection,
    report: &mut CheckReport,
) -> Result<()> {
    let view = engine.read_view();
    let set = collection.indexes();
    let extractor = match set.extractor() {
        Ok(extractor) => extractor,
        Err(_) if set.is_empty() => return Ok(()),
        Err(error) => {
            report.problems.push(format!("the indexes of {:?} were not compared: {error}", collection.name));
            return Ok(());
        }
    };
    let table = CheckedTable { tree: collection.tree, extractor };
    for index in set.all().iter().chain(set.key_index()) {
        if index.replaces.is_some() || !index.progress.serves(view.sequence()) {
            continue;
        }
        let mut found = IndexCheck::default();
        match index.structure.check(&view, &table, &mut found) {
            Ok(()) => {}
            // Dropped meanwhile, or unreadable: the latter is a problem in the report, not a failure of the check.
            Err(_) if index.progress.is_cancelled() => continue,
            Err(error) if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::InvalidInput) => {
                let what = format!("index {:?} of {:?}: {error}", index.name, collection.name);
                report.problems.push(what);
            }
            // The other indexes may fit into the memory budget.
            Err(error) if error.needed_memory_bytes().is_some() => {
                let what =
                    format!("index {:?} of {:?} was not compared: {error}", index.name, collection.name);
                report.problems.push(what);
                continue;
            }
            Err(error) => return Err(error),
        }
        report.problems.extend(found.examples.iter().map(|what| format!("{:?}: {what}", collection.name)));
        if !found.is_sound() && found.examples.is_empty() {
            let what = format!("index {:?} of {:?} disagrees with its table", index.name, collection.name);
            report.problems.push(what);
        }
        report.indexes.push(CheckedIndex {
            collection: collection.name.clone(),
            index: index.name.clone(),
            found,
        });
    }
    Ok(())
}
