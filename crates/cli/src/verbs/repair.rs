//! `repair`: copies what is left of a damaged database to a new one.

use std::path::{Path, PathBuf};

use bolide::key::{KeyFormat, PrimaryKey};
use bolide::{Components, ErrorKind, Loss, RepairOptions, RepairReport};
use serde_json::Value;

use super::database;
use crate::arguments::Repair;
use crate::failure::Failure;
use crate::output::{Fields, print_objects, report};

/// Prints an object for each collection, each index and each loss on standard output, and each loss as a line of text on
/// standard error.
pub(super) fn run(arguments: &Repair) -> Result<(), Failure> {
    let from = &arguments.db;
    let to = match &arguments.to {
        Some(to) => to.clone(),
        None => beside(from)?,
    };
    check_directories(from, &to)?;
    let options = RepairOptions::default().options(database::options());
    let report = bolide::repair(from, &to, options, Components::system()).map_err(refused)?;
    print_objects(arguments.output.form(), &objects(&report))?;
    for note in &report.notes {
        report!("note: {note}");
    }
    for loss in &report.losses {
        report!("lost: {}", with_readable_keys(&report, loss));
    }
    report!("note: the new database is {}; {} is unchanged", to.display(), from.display());
    if report.is_complete() {
        return Ok(());
    }
    Err(Failure::operation(
        format!(
            "{} is damaged: {} may lack what the {} lines above name",
            from.display(),
            to.display(),
            report.losses.len()
        ),
        format!(
            "compare the records of the named keys with a backup; `bolide check {} --deep` checks the new database",
            to.display()
        ),
    ))
}

/// The new database beside the damaged one.
fn beside(from: &Path) -> Result<PathBuf, Failure> {
    let named = |path: &Path| {
        let mut name = path.file_name()?.to_owned();
        name.push("-repaired");
        Some(path.with_file_name(name))
    };
    let absolute = || std::fs::canonicalize(from).ok().and_then(|path| named(&path));
    named(from)
        .or_else(absolute)
        .ok_or_else(|| Failure::usage(format!("{}: name the new database with --to NEW", from.display())))
}

/// Refuses directories that the repair would refuse later or with less detail.
fn check_directories(from: &Path, to: &Path) -> Result<(), Failure> {
    if from.is_file() {
        let what = format!("{} is a file: name the directory of the database", from.display());
        return Err(Failure::usage(what));
    }
    if to.is_file() {
        let what = format!("--to {}: it is a file: name a directory that does not exist", to.display());
        return Err(Failure::usage(what));
    }
    if to.is_symlink() && !to.exists() {
        let what = format!("--to {}: it is a link to nothing", to.display());
        return Err(Failure::usage(what));
    }
    // Links may hide that the new database would be inside the damaged one.
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(from), Ok(parent)) = (std::fs::canonicalize(from), std::fs::canonicalize(parent)) else {
        return Ok(());
    };
    if parent.starts_with(&from) || std::fs::canonicalize(to).is_ok_and(|to| to == from) {
        let what = format!("--to {}: it is inside the damaged database, which must not change", to.display());
        return Err(Failure::usage(what));
    }
    Ok(())
}

fn refused(error: bolide::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::Conflict => "choose another directory with --to NEW, or remove the one that is named",
        ErrorKind::NotFound => "check the path",
        _ => error.advice(),
    };
    Failure::operation(error.message(), advice)
}

fn objects(report: &RepairReport) -> Vec<Fields> {
    let mut objects: Vec<Fields> = Vec::new();
    for collection in &report.collections {
        objects.push(vec![
            ("repaired".into(), "collection".into()),
            ("collection".into(), collection.name.as_str().into()),
            ("records".into(), collection.records.into()),
            ("malformed_records".into(), collection.malformed.into()),
        ]);
    }
    for index in &report.rebuilt {
        objects.push(vec![
            ("repaired".into(), "index".into()),
            ("collection".into(), index.collection.as_str().into()),
            ("index".into(), index.index.as_str().into()),
        ]);
    }
    objects.extend(report.losses.iter().map(|loss| loss_object(report, loss)));
    objects
}

/// Whether the keys of the collection of a loss are typed.
fn has_typed_keys(report: &RepairReport, loss: &Loss) -> bool {
    let is_its = |name: &str| Some(name) == loss.collection.as_deref();
    report.collections.iter().any(|found| is_its(&found.name) && found.keys == KeyFormat::Typed)
}

/// The loss with its keys as they are written on the command line.
fn with_readable_keys(report: &RepairReport, loss: &Loss) -> Loss {
    let mut loss = loss.clone();
    if has_typed_keys(report, &loss)
        && let Some(keys) = &mut loss.keys
    {
        for key in [&mut keys.first, &mut keys.last].into_iter().flatten() {
            *key = KeyFormat::Typed.show(key).into_bytes();
        }
    }
    loss
}

fn loss_object(report: &RepairReport, loss: &Loss) -> Fields {
    let collection = loss.collection.as_deref();
    let typed = has_typed_keys(report, loss);
    let key = |key: Option<&Vec<u8>>| match key {
        None => Value::Null,
        Some(key) if typed => PrimaryKey::decode(key).to_json(),
        Some(key) => KeyFormat::Bytes.show(key).into(),
    };
    let last_sequence = loss.sequences.as_ref().map(|sequences| *sequences.end());
    let last_sequence = last_sequence.filter(|&last| last < bolide::MAX_SEQUENCE);
    let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
    vec![
        ("lost".into(), loss.kind.name().into()),
        ("file".into(), loss.file.as_str().into()),
        ("from_byte".into(), number(loss.bytes.as_ref().map(|bytes| bytes.start))),
        ("to_byte".into(), number(loss.bytes.as_ref().map(|bytes| bytes.end))),
        ("collection".into(), collection.map_or(Value::Null, Value::from)),
        ("first_key".into(), key(loss.keys.as_ref().and_then(|keys| keys.first.as_ref()))),
        ("last_key".into(), key(loss.keys.as_ref().and_then(|keys| keys.last.as_ref()))),
        ("first_sequence".into(), number(loss.sequences.as_ref().map(|sequences| *sequences.start()))),
        ("last_sequence".into(), number(last_sequence)),
        ("entries".into(), number(loss.entries)),
        ("cause".into(), loss.what.as_str().into()),
    ]
}
