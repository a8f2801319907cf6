//! Repair of databases with one to three damaged files.
//!
//! Two of three seeds build the database by a random history; the rest are [samples](crate::sample). In half of the killed
//! samples no write after the last flush is synced; in all other databases every write is synced.
//!
//! Damage is a flipped bit, a truncation, a zeroed part or a removal. It hits any files, sstables of records only, log
//! segments only, derived files only, or no file. After the repair into a new database:
//!
//! 1. The damaged directory is unchanged, byte for byte.
//! 2. If no file or only derived files are damaged, the new database equals the model, and no loss is reported.
//! 3. Each record of the new database is a version that was written under its key in its collection.
//! 4. A reported loss covers each difference from the model. The exception is an unsynced record in a truncated log or a
//!    log with a zeroed end. If only sstables of records are damaged, the losses name the collection and the keys, and all
//!    other keys are exact. If only the manifest is damaged, no record is missing.
//! 5. The new database passes the deep check, and each index answers as a scan.
//!
//! A planted bug makes the check fail; see [`PlantedRepair`].

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide::{Compression, Db, Layout, Loss, LossKind, RecordKind, RepairOptions, RepairReport};
use bolide_base::FileIdentity;
use bolide_storage::{SimRng, SimVfs, Vfs as _};
use bolide_table::{FileSource, fuzzing, read_identity};
use serde_json::Value;

use crate::availability;
use crate::crash;
use crate::damage::Damage;
use crate::history::{Change, Durability, HistoryStep};
use crate::kinds::KindChoice;
use crate::model::{CollectionModel, Model};
use crate::rows::ModelRow;
use crate::sample::{Sample, SampleOptions, steps};
use crate::seeds::{Counts, Outcome, panic_text};
use crate::setup::{DATABASE, Setup};
use crate::verify::{observe, record_text, verify};

/// The directory of the new database.
const REPAIRED: &str = "data/new";

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct RepairProof {
    /// Number of damages per database, each with its own repair.
    pub damages: u64,
    /// Number of records of a sample, or of steps of a random history.
    pub steps: usize,
    /// The kinds of the indexes.
    pub kinds: KindChoice,
    /// The layout of all collections; `None` to choose by the seed.
    pub layout: Option<Layout>,
    /// A planted bug that the check must find.
    pub planted: Option<PlantedRepair>,
}

impl Default for RepairProof {
    fn default() -> Self {
        Self { damages: 24, steps: 40, kinds: KindChoice::default(), layout: None, planted: None }
    }
}

/// A planted bug of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedRepair {
    /// A skipped block is not reported.
    UnreportedBlock,
    /// A damaged block is served because its checksum is valid.
    ServedDamage,
    /// Range tombstones hide nothing.
    IgnoredRangeTombstones,
}

impl PlantedRepair {
    /// All planted bugs.
    pub const EACH: [Self; 3] = [Self::UnreportedBlock, Self::ServedDamage, Self::IgnoredRangeTombstones];
}

/// The files that a damage hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DamageTarget {
    Nothing,
    Derived,
    RecordTables,
    Log,
    Any,
}

/// All written versions, by collection and key.
type Written = BTreeMap<(&'static str, Vec<u8>), BTreeSet<Vec<u8>>>;

/// A database before the damage, with its written versions and its contents.
struct RepairCase {
    sample: Sample,
    written: Written,
    derived: BTreeSet<PathBuf>,
    /// The contents of the database, in order of sequence numbers.
    contents: Model,
}

/// Builds the database of `seed`; damages and repairs copies of it.
pub fn check(seed: u64, options: RepairProof) -> Outcome<Counts> {
    let case = build(seed, options)?;
    let mut rng = SimRng::new(seed ^ 0x5eed);
    let mut counts = Counts::default();
    counts.add("databases");
    for number in 0..options.damages {
        let target = match number {
            0 => DamageTarget::Nothing,
            _ => [DamageTarget::Derived, DamageTarget::RecordTables, DamageTarget::Any, DamageTarget::Log]
                [(number % 4) as usize],
        };
        let damages = case.choose_damages(target, &mut rng);
        let repair = || case.repair(target, &damages, options.planted, &mut counts);
        catch_unwind(AssertUnwindSafe(repair))
            .map_err(|panic| panic_text(&*panic))
            .and_then(|done| done)
            .map_err(|what| format!("{}: {target:?}: {damages:?}: {what}", case.sample.setup))?;
    }
    Ok(counts)
}

fn build(seed: u64, options: RepairProof) -> Outcome<RepairCase> {
    let mut rng = SimRng::new(seed);
    let (setup, mut steps) = if seed.is_multiple_of(3) {
        let of_sample = SampleOptions {
            records: options.steps,
            kinds: options.kinds,
            layout: options.layout,
            mode: Durability::Always,
        };
        let compression = [Compression::None, Compression::Lz4][(seed % 2) as usize];
        (crate::sample::setup(seed, options.layout, compression), steps(of_sample, &mut rng))
    } else {
        let setup = Setup::random(&mut rng).with_layout(options.layout);
        (setup, crash::steps(seed, 2 * options.steps, options.kinds))
    };
    let is_unsynced = seed % 12 == 3;
    let last_flush = steps.iter().rposition(|step| matches!(step, HistoryStep::Flush)).unwrap_or(0);
    for (position, step) in steps.iter_mut().enumerate() {
        if let HistoryStep::Write { durability, .. } = step {
            // A truncated log may have no trace of unsynced writes.
            let stays_unsynced = is_unsynced && position > last_flush;
            *durability = if stays_unsynced { Durability::None } else { Durability::Always };
        }
    }
    let mut written = Written::new();
    for step in &steps {
        let HistoryStep::Write { changes, .. } = step else { continue };
        for change in changes {
            if let Change::Put { collection, key, record } = change {
                written.entry((collection, key.clone())).or_default().insert(record.clone());
            }
        }
    }
    let sample = Sample::run(seed, setup, &steps)?;
    let derived = availability::derived_files(&sample.disk)?.into_iter().collect();
    let undamaged = sample.setup.open(Arc::new(sample.disk.clone_disk()), seed ^ 9 << 40);
    let contents = undamaged.and_then(|db| contents(&db)).map_err(|error| format!("{error:?}"))?;
    Ok(RepairCase { sample, written, derived, contents })
}

/// The files of the directory `dir` with their contents.
fn files_in(disk: &SimVfs, dir: &str) -> Outcome<BTreeMap<PathBuf, Vec<u8>>> {
    let paths = disk.files().into_iter().filter(|path| path.starts_with(dir));
    paths
        .map(|path| Ok((path.clone(), disk.contents(&path).map_err(|error| format!("{error:?}"))?)))
        .collect()
}

impl RepairCase {
    /// Chooses one to three damages of files of this kind.
    fn choose_damages(&self, target: DamageTarget, rng: &mut SimRng) -> Vec<(PathBuf, Damage)> {
        let is_table = |path: &PathBuf| path.extension().is_some_and(|end| end == "sst");
        let mut files: Vec<PathBuf> = self.sample.disk.files();
        files.retain(|path| match target {
            DamageTarget::Nothing => false,
            DamageTarget::Derived => self.derived.contains(path),
            DamageTarget::RecordTables => is_table(path) && !self.derived.contains(path),
            DamageTarget::Log => path.extension().is_some_and(|end| end == "wal"),
            DamageTarget::Any => !path.ends_with("LOCK"),
        });
        let mut chosen = Vec::new();
        for _ in 0..1 + rng.below(3) {
            if files.is_empty() {
                break;
            }
            let path = files.swap_remove(rng.below(files.len() as u64) as usize);
            let length = self.sample.disk.contents(&path).map_or(0, |bytes| bytes.len());
            chosen.push((path, random_damage(length, rng)));
        }
        chosen
    }

    fn repair(
        &self,
        target: DamageTarget,
        damages: &[(PathBuf, Damage)],
        planted: Option<PlantedRepair>,
        counts: &mut Counts,
    ) -> Outcome {
        let disk = self.sample.disk.clone_disk();
        for (path, damage) in damages {
            damage.apply(&disk, path).map_err(|error| format!("{error:?}"))?;
            if planted == Some(PlantedRepair::ServedDamage) {
                self.forge(&disk, path, damage)?;
            }
        }
        let before = files_in(&disk, DATABASE)?;
        let components = self.sample.setup.components(Arc::new(disk.clone()), self.sample.seed ^ 7 << 40);
        let mut options = RepairOptions::default().options(self.sample.setup.options());
        if planted == Some(PlantedRepair::IgnoredRangeTombstones) {
            options = options.ignoring_range_tombstones();
        }
        let repaired = bolide::repair(DATABASE, REPAIRED, options, components.clone());
        let mut report = repaired.map_err(|error| format!("the repair failed: {error:?}"))?;
        if planted == Some(PlantedRepair::UnreportedBlock) {
            report.losses.retain(|loss| loss.kind != LossKind::Block);
        }
        if files_in(&disk, DATABASE)? != before {
            return Err("the repair changed the damaged database".to_owned());
        }
        let db = Db::open_with(REPAIRED, self.sample.setup.options(), components)
            .map_err(|error| format!("the new database does not open: {error:?}"))?;
        counts.add("repairs");
        counts.add_many("losses", report.losses.len() as u64);
        for loss in &report.losses {
            counts.add(loss.kind.name());
        }
        self.check_repaired(&db, &report, target, damages, counts).map_err(|what| format!("{what}\n{report}"))
    }

    fn check_repaired(
        &self,
        db: &Db,
        report: &RepairReport,
        target: DamageTarget,
        damages: &[(PathBuf, Damage)],
        counts: &mut Counts,
    ) -> Outcome {
        let model = self.sample.states.last().ok_or("there is no state")?;
        let mut rng = SimRng::new(self.sample.seed);
        if matches!(target, DamageTarget::Nothing | DamageTarget::Derived) {
            if !report.is_complete() {
                return Err("a loss is reported, but nothing is lost".to_owned());
            }
            observe(db).map_err(|error| format!("{error:?}"))?.compare(model)?;
            counts.add("exact repairs");
            return verify(db, model, &mut rng).map_err(|failure| failure.to_string());
        }
        let found = contents(db).map_err(|error| format!("{error:?}"))?;
        self.check_versions(db, &found, report)?;
        verify(db, &found, &mut rng).map_err(|failure| failure.to_string())?;
        if target == DamageTarget::RecordTables
            && let Some(loss) = report.losses.iter().find(|loss| !names_keys(loss))
        {
            return Err(format!("only sstables are damaged, but a loss does not name its keys: {loss}"));
        }
        let is_marker = |(path, _): &(PathBuf, Damage)| path.ends_with("SYNCED");
        if !self.sample.closed && damages.iter().any(is_marker) && damages.len() > 1 {
            // Without the marker a log that ends too early is not detectable.
            counts.add("undetectable log ends");
            return Ok(());
        }
        for (name, wanted) in &model.collections {
            self.check_covered(name, wanted, &found, report, damages, counts)?;
        }
        let spares_records = |(path, _): &(PathBuf, Damage)| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name == "CURRENT" || name.starts_with("MANIFEST") || self.derived.contains(path)
        };
        let has_names = report.losses.iter().all(|loss| loss.kind != LossKind::Name);
        if damages.iter().all(spares_records) && has_names {
            counts.add("manifests alone");
            check_nothing_missing(model, &found)?;
        }
        for name in found.collections.keys().filter(|name| !model.collections.contains_key(*name)) {
            if !report.losses.iter().any(|loss| matches!(loss.kind, LossKind::Manifest | LossKind::Name)) {
                return Err(format!("there is a collection {name:?}, without a loss that explains it"));
            }
        }
        Ok(())
    }

    /// Checks that each record was written under its key in its collection, or in any collection if the name is lost. Entries
    /// of an unknown tree are skipped if the report declares them as possible index entries.
    fn check_versions(&self, db: &Db, found: &Model, report: &RepairReport) -> Outcome {
        let may_be_index = |name: &str| {
            let is_unknown_tree =
                |loss: &Loss| loss.kind == LossKind::Name && loss.what.contains("may be entries of an index");
            report.losses.iter().any(|loss| is_unknown_tree(loss) && loss.collection.as_deref() == Some(name))
        };
        for name in db.collections() {
            if may_be_index(&name) {
                continue;
            }
            let collection = db.collection(&name).map_err(|error| format!("{error:?}"))?;
            let is_named = found.collections.contains_key(&name);
            for row in collection.iter().map_err(|error| format!("{error:?}"))? {
                let (key, record) = row.map_err(|error| format!("{error:?}"))?;
                let mut versions = self.written.iter().filter(|((in_collection, of_key), _)| {
                    *of_key == key && (!is_named || *in_collection == name)
                });
                if !versions.any(|(_, records)| records.contains(&record)) {
                    let (key, record) = (key.escape_ascii(), record_text(Some(&record)));
                    return Err(format!("{name}: {key} = {record} was never written"));
                }
            }
        }
        Ok(())
    }

    /// Checks that a loss covers each difference of a collection from the model.
    fn check_covered(
        &self,
        name: &str,
        wanted: &CollectionModel,
        found: &Model,
        report: &RepairReport,
        damages: &[(PathBuf, Damage)],
        counts: &mut Counts,
    ) -> Outcome {
        let ends_early = damages.iter().any(|(path, damage)| ends_log_early(path, damage));
        let has_schema_loss =
            report.losses.iter().any(|loss| matches!(loss.kind, LossKind::Manifest | LossKind::Name));
        let Some(found) = found.collections.get(name) else {
            return if has_schema_loss { Ok(()) } else { Err(format!("{name} is missing without a report")) };
        };
        if found.indexes != wanted.indexes && !has_schema_loss {
            return Err(format!("{name} has indexes {:?}, want {:?}", found.indexes, wanted.indexes));
        }
        let keys: BTreeSet<&Arc<[u8]>> = wanted.rows.keys().chain(found.rows.keys()).collect();
        for key in keys {
            let record = |model: &CollectionModel| model.rows.get(&**key).map(|row| row.record.clone());
            if record(wanted) == record(found) {
                continue;
            }
            counts.add("differences");
            if ends_early && self.was_durable(name, key, record(found)) {
                counts.add("unsynced records");
                continue;
            }
            let original = self.contents.collections.get(name).and_then(|original| original.rows.get(&**key));
            let sequence = original.map(|row| row.order);
            if !report.losses.iter().any(|loss| covers(loss, name, key, sequence)) {
                let (is, want) = (record(found), record(wanted));
                let (is, want) = (record_text(is.as_deref()), record_text(want.as_deref()));
                let key = key.escape_ascii();
                return Err(format!("{name}: {key} is {is}, want {want}, and no loss covers it"));
            }
        }
        Ok(())
    }

    /// Whether `record` was the record of `key` in a state at or after the last acknowledged sync.
    fn was_durable(&self, name: &str, key: &[u8], record: Option<Vec<u8>>) -> bool {
        let later = self.sample.states.iter().skip(self.sample.durable);
        later
            .filter_map(|state| state.collections.get(name))
            .any(|state| state.rows.get(key).map(|row| &row.record) == record.as_ref())
    }

    /// Forges valid checksums for a damaged sstable.
    fn forge(&self, disk: &SimVfs, path: &Path, damage: &Damage) -> Outcome {
        let is_table = path.extension().is_some_and(|end| end == "sst");
        if !is_table || !matches!(damage, Damage::Flip { .. } | Damage::Zero { .. }) {
            return Ok(());
        }
        let file = self.sample.disk.open(path).map_err(|error| format!("{error:?}"))?;
        let identity: FileIdentity =
            read_identity(&FileSource::direct("", file)).map_err(|error| format!("{error:?}"))?;
        disk.damage(path, |bytes| fuzzing::forge_checksums(bytes, &identity))
            .map_err(|error| format!("{error:?}"))
    }
}

/// Checks that no record is missing or older. Without edits of the manifest, deleted records may reappear.
fn check_nothing_missing(model: &Model, found: &Model) -> Outcome {
    for (name, wanted) in &model.collections {
        let Some(found) = found.collections.get(name) else { continue };
        for (key, row) in &*wanted.rows {
            let is = found.rows.get(key).map(|row| row.record.as_slice());
            if is != Some(row.record.as_slice()) {
                let (key, is, want) = (key.escape_ascii(), record_text(is), record_text(Some(&row.record)));
                return Err(format!("{name}: only the manifest is damaged, but {key} is {is}, want {want}"));
            }
        }
    }
    Ok(())
}

/// Whether the damage may remove the last writes of a log without a trace. Damage of the header is detected.
fn ends_log_early(path: &Path, damage: &Damage) -> bool {
    const HEADER_BYTES: usize = 64;
    let is_log = path.extension().is_some_and(|end| end == "wal");
    is_log
        && match damage {
            Damage::Truncate { length } => *length >= HEADER_BYTES,
            Damage::Zero { offset, .. } => *offset >= HEADER_BYTES,
            _ => false,
        }
}

/// Whether a loss names the collection and the keys that it may affect.
fn names_keys(loss: &Loss) -> bool {
    let known_kind = matches!(loss.kind, LossKind::Block | LossKind::Table);
    known_kind && loss.collection.is_some() && loss.keys.is_some()
}

/// Whether a loss covers a difference at `key` of the collection `name`. If the key has a record, a difference means that
/// its newest version, with the sequence number `sequence`, is lost.
fn covers(loss: &Loss, name: &str, key: &[u8], sequence: Option<u64>) -> bool {
    let has_number = || match (&loss.sequences, sequence) {
        (Some(lost), Some(sequence)) => lost.contains(&sequence),
        _ => true,
    };
    match loss.kind {
        LossKind::Manifest | LossKind::LogEnd => true,
        LossKind::Log => has_number(),
        LossKind::Block | LossKind::Table => {
            let in_collection = loss.collection.as_deref().is_none_or(|collection| collection == name);
            in_collection && loss.keys.as_ref().is_none_or(|keys| keys.contains(key)) && has_number()
        }
        _ => false,
    }
}

fn random_damage(length: usize, rng: &mut SimRng) -> Damage {
    if length == 0 {
        return Damage::Remove;
    }
    let offset = rng.below(length as u64) as usize;
    match rng.below(10) {
        0..=3 => Damage::Flip { offset, bit: rng.below(8) as u8 },
        4 => Damage::Truncate { length: offset },
        5..=6 => {
            let bytes = [8, 64, 512, 4096][rng.below(4) as usize];
            Damage::Zero { offset, bytes: bytes.min(length - offset) }
        }
        7 => Damage::Truncate { length: offset.min(rng.below(64) as usize) },
        8 => Damage::Zero { offset: 0, bytes: length },
        _ => Damage::Remove,
    }
}

/// The contents of the JSON collections of a database, in order of sequence numbers.
fn contents(db: &Db) -> bolide::Result<Model> {
    let mut model = Model::default();
    for name in db.collections() {
        let collection = db.collection(&name)?;
        if collection.records() != RecordKind::Json {
            continue;
        }
        let mut found = CollectionModel::default();
        for row in collection.iter()? {
            let (key, record) = row?;
            let order = collection.get_pinned(&key)?.map_or(0, |(sequence, _)| sequence);
            let parsed = serde_json::from_slice(&record).unwrap_or(Value::Null);
            Arc::make_mut(&mut found.rows).insert(key.into(), Arc::new(ModelRow { record, parsed, order }));
        }
        found.indexes = collection.indexes().iter().map(|index| index.name().to_owned()).collect();
        model.collections.insert(name, found);
    }
    Ok(model)
}
