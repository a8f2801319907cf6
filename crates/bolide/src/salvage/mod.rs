//! Repair: creates a new database from the remains of a damaged one.
//!
//! [`bolide_lsm::salvage`] reads the damaged database, without opening it and without changes. The result is written to
//! a new database the usual way, so that no invariant of a layout has to be restored:
//! 1. each collection is created with its name, key format, kind of records and settings, without indexes;
//! 2. the newest version of each record is written in the order of keys, **under its old sequence number**, so that the
//!    order `newest first` stays the same. Malformed JSON that an older version stored is copied without validation;
//! 3. the indexes are built from the records;
//! 4. the new database is closed.
//!
//! It is written to a directory of another name, `NEW.incomplete`, and renamed at the end: an interrupted repair leaves
//! no database that looks complete.

mod plan;
mod report;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bolide_base::{Error, ErrorKind, Result};
use bolide_index::JsonExtractor;
use bolide_lsm::salvage::Salvage;
use bolide_lsm::{Store, StoreBatch, SyncMode};
use bolide_storage::Vfs;

use self::plan::{PlannedCollection, SalvagePlan, lost_index, without_records};
pub use self::report::{RebuiltIndex, RepairReport, RepairedCollection};
use crate::catalog::RecordKind;
use crate::components::Components;
use crate::db::Db;
use crate::options::Options;

/// The approximate size of the batches of records, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Settings of a [`repair`](repair()).
///
/// ```
/// use bolide::{Options, RepairOptions};
/// let options = RepairOptions::default().options(Options::default().cache_bytes(8 << 20));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairOptions {
    options: Options,
    ignores_range_tombstones: bool,
}

impl RepairOptions {
    /// The settings with which the new database is opened while it is written. Default: [`Options::default`].
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// An injected error, for tests of the proof: range tombstones delete nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn ignoring_range_tombstones(mut self) -> Self {
        self.ignores_range_tombstones = true;
        self
    }
}

/// Writes all data of the damaged database `from` whose checksums are valid into a new database `to`, and reports the
/// losses. No byte of `from` is changed, and no file is created there.
///
/// Cost: reads all sstables and log segments, writes all records, and builds all indexes. Memory does not depend on the
/// number of records, but contains all range tombstones and losses.
///
/// # Errors
/// `Locked` if `from` is open for writing; `NotFound` if it contains no file of a database; `Conflict` if `to` exists
/// and is not empty, or `to.incomplete` does; `InvalidInput` if `to` is inside `from`, `from` is `to.incomplete`, `to`
/// is a link, or its parent does not exist. For errors of the new database `Io`, `NoSpace`, `LimitExceeded`: then the
/// written files are removed, as far as possible. Damage is no error.
///
/// ```
/// use std::path::Path;
/// use bolide::{CollectionOptions, Components, Db, Options, RepairOptions, repair};
/// let components = Components::in_memory();
/// let db = Db::open_with("db", Options::default(), components.clone())?;
/// let notes = db.create_collection("notes", CollectionOptions::default().index("tag".parse()?))?;
/// notes.put(b"1", br#"{"tag":"x"}"#)?;
/// drop((notes, db));
/// components.vfs.remove(Path::new("db/CURRENT"))?;
/// assert!(Db::open_with("db", Options::default(), components.clone()).is_err());
///
/// let report = repair("db", "new", RepairOptions::default(), components.clone())?;
/// assert!(report.is_complete(), "{report}");
/// let db = Db::open_with("new", Options::default(), components)?;
/// assert!(db.collection("notes")?.get(b"1")?.is_some());
/// assert!(db.check(true)?.is_sound());
/// # Ok::<(), bolide::Error>(())
/// ```
pub fn repair(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: RepairOptions,
    components: Components,
) -> Result<RepairReport> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let vfs = components.vfs.clone();
    let work = work_directory(to)?;
    check_directories(&*vfs, from, to, &work)?;
    let salvage = Salvage::open(vfs.clone(), from, &work.join("scratch"))?
        .ignoring_range_tombstones(options.ignores_range_tombstones);
    let written = write(salvage, &work, options, components).and_then(|report| {
        if vfs.exists(to)? {
            vfs.remove_dir(to)?;
        }
        vfs.rename(&work, to)?;
        vfs.sync_dir(to.parent().unwrap_or(Path::new("")))?;
        Ok(report)
    });
    written.inspect_err(|_| remove_work(&*vfs, &work))
}

/// The directory to which the new database is written until it is complete.
fn work_directory(to: &Path) -> Result<PathBuf> {
    let Some(name) = to.file_name() else {
        return Err(Error::invalid_input(format!("{} names no directory to create", to.display())));
    };
    let mut name = OsString::from(name);
    name.push(".incomplete");
    Ok(to.with_file_name(name))
}

fn check_directories(vfs: &dyn Vfs, from: &Path, to: &Path, work: &Path) -> Result<()> {
    if !vfs.exists(from)? {
        return Err(Error::new(ErrorKind::NotFound, format!("{} does not exist", from.display())));
    }
    check_outside(vfs, from, to, work)?;
    if Store::has_writer(vfs, from)? {
        let what = format!("{} is open for writing: close it before it is repaired", from.display());
        return Err(Error::new(ErrorKind::Locked, what));
    }
    for (place, cause) in
        [(to, "choose a new directory"), (work, "an earlier repair was interrupted: remove it")]
    {
        if vfs.exists(place)? && !vfs.list(place).is_ok_and(|names| names.is_empty()) {
            let what = format!("{} exists and is not empty: {cause}", place.display());
            return Err(Error::new(ErrorKind::Conflict, what));
        }
    }
    Ok(())
}

/// Fails if the new database would be inside the damaged one, or overwrite it, by whatever path.
fn check_outside(vfs: &dyn Vfs, from: &Path, to: &Path, work: &Path) -> Result<()> {
    let parent = to.parent().unwrap_or(Path::new(""));
    if !parent.as_os_str().is_empty() && !vfs.exists(parent)? {
        let what = format!("{} does not exist: create it first, for {}", parent.display(), to.display());
        return Err(Error::invalid_input(what));
    }
    let (resolved_from, parent) = (vfs.resolve(from)?, vfs.resolve(parent)?);
    let resolved = |path: &Path| parent.join(path.file_name().unwrap_or_default());
    if resolved(to).starts_with(&resolved_from) {
        let what = format!("{} lies in {}, of which nothing may be changed", to.display(), from.display());
        return Err(Error::invalid_input(what));
    }
    if resolved(work) == resolved_from {
        let what = format!(
            "{} is where the new database would be written before it is renamed to {}: choose another directory",
            work.display(),
            to.display()
        );
        return Err(Error::invalid_input(what));
    }
    if vfs.exists(to)? && vfs.resolve(to)? != resolved(to) {
        return Err(Error::invalid_input(format!("{} is a link: name its target", to.display())));
    }
    Ok(())
}

/// Removes the files of a failed repair, as far as possible.
fn remove_work(vfs: &dyn Vfs, work: &Path) {
    for dir in [work.join("scratch"), work.to_owned()] {
        for name in vfs.list(&dir).unwrap_or_default() {
            let _ = vfs.remove(&dir.join(name));
        }
        let _ = vfs.remove_dir(&dir);
    }
}

/// Writes the new database to the directory `work` and closes it.
fn write(
    mut salvage: Salvage,
    work: &Path,
    options: RepairOptions,
    components: Components,
) -> Result<RepairReport> {
    let intact = salvage.is_intact();
    let skipped = without_records(&salvage.trees(), intact);
    salvage.read_logs(&|tree| !skipped.contains(&tree))?;
    let plan = SalvagePlan::of(&salvage.trees(), intact);
    let mut report = RepairReport::default();
    let db = Db::open_with(work, options.options.sync(SyncMode::None), components)?;
    db.handle.engine.store.reserve_sequences(salvage.last_sequence())?;
    for planned in &plan.collections {
        copy(&db, planned, &mut salvage, &mut report)?;
    }
    report.losses = salvage.losses().to_vec();
    report.losses.extend(plan.losses);
    for planned in &plan.collections {
        build_indexes(&db, planned, &mut report)?;
    }
    for loss in report.losses.iter_mut().filter(|loss| loss.collection.is_none()) {
        let planned = plan.collections.iter().find(|planned| Some(planned.tree) == loss.tree);
        loss.collection = planned.map(|planned| planned.name.clone());
    }
    report.notes = salvage.notes().to_vec();
    salvage.remove_scratch()?;
    db.flush()?;
    db.close()?;
    Ok(report)
}

/// Writes the records of a collection.
fn copy(
    db: &Db,
    planned: &PlannedCollection,
    salvage: &mut Salvage,
    report: &mut RepairReport,
) -> Result<()> {
    let collection = db.create_collection(&planned.name, planned.options.clone())?;
    let (tree, store) = (collection.state.tree, &db.handle.engine.store);
    let validates = planned.options.records == RecordKind::Json;
    let (mut records, mut malformed) = (0, 0);
    let mut batch = StoreBatch::with_capacity(BATCH_BYTES);
    salvage.visit_newest(planned.tree, &mut |key, sequence, record| {
        if !batch.is_empty() && batch.len_bytes() + key.len() + record.len() > BATCH_BYTES {
            let full = std::mem::replace(&mut batch, StoreBatch::with_capacity(BATCH_BYTES));
            store.commit(full, None, SyncMode::None)?;
        }
        malformed += u64::from(validates && JsonExtractor.validate(record).is_err());
        records += 1;
        batch.put_at(tree, key, record, sequence)
    })?;
    store.commit(batch, None, SyncMode::None)?;
    report.collections.push(RepairedCollection {
        name: planned.name.clone(),
        keys: planned.options.keys,
        records,
        malformed,
    });
    Ok(())
}

/// Builds the indexes of a collection from its records. One that cannot be built is a loss.
fn build_indexes(db: &Db, planned: &PlannedCollection, report: &mut RepairReport) -> Result<()> {
    let collection = db.collection(&planned.name)?;
    for (name, spec) in &planned.indexes {
        match spec.clone().and_then(|spec| collection.create_index(spec)) {
            Ok(()) => {
                report.rebuilt.push(RebuiltIndex { collection: planned.name.clone(), index: name.clone() })
            }
            // The new database accepts no more writes.
            Err(error)
                if matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Poisoned) =>
            {
                return Err(error);
            }
            Err(error) => report.losses.push(lost_index(planned.tree, &planned.name, name, &error)),
        }
    }
    Ok(())
}
