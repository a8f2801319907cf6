//! Availability after the loss of derived files.
//!
//! A file is *derived* if it can be rebuilt from the records: sstables of index trees, page segments, sorted views. With any
//! or all derived files damaged in any way:
//! 1. the database opens, and every record is present;
//! 2. writes and flushes succeed;
//! 3. after the next open every index answers as the model, and the deep check finds no problem.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_lsm::version::owner_of_table;
use bolide_storage::{SimRng, SimVfs};

use crate::history::{Change, Durability, HistoryStep};
use crate::model::Model;
use crate::record::record;
use crate::seeds::Outcome;
use crate::setup::{DATABASE, Setup};
use crate::subject::Subject;
use crate::verify::{observe, verify};

/// The derived files of the database on `disk`.
pub fn derived_files(disk: &SimVfs) -> Outcome<Vec<PathBuf>> {
    let mut derived = Vec::new();
    for path in disk.files() {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default().to_owned();
        let is_derived = match end.as_str() {
            "region" | "remix" => true,
            "sst" => is_of_index(disk, &path)?,
            _ => false,
        };
        if is_derived {
            derived.push(path);
        }
    }
    Ok(derived)
}

/// Whether the sstable belongs to an index tree, according to the manifest.
fn is_of_index(disk: &SimVfs, path: &Path) -> Outcome<bool> {
    let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    let Some(number) = number else { return Ok(false) };
    let owner = owner_of_table(disk, Path::new(DATABASE), number).map_err(|error| format!("{error:?}"))?;
    let Some((_, descriptor)) = owner else { return Ok(false) };
    let text = bolide::describe_descriptor(&descriptor).map_err(|error| format!("{error:?}"))?;
    Ok(!text.starts_with("collection"))
}

/// Checks the three guarantees on `disk`, where only derived files are damaged and the database was in the state `model`.
pub fn check(disk: &SimVfs, setup: Setup, seed: u64, model: &Model) -> Outcome {
    let vfs = Arc::new(disk.clone());
    let mut subject = Subject::open(vfs, setup, seed, model.clone())
        .map_err(failed("the open fails with derived files damaged"))?;
    let compare = |subject: &Subject, what: &'static str| {
        let seen = subject.db().and_then(observe).map_err(failed(what))?;
        seen.compare(&subject.model).map_err(|difference| format!("{what}: {difference}"))
    };
    compare(&subject, "records with derived files damaged")?;
    let mut rng = SimRng::new(seed);
    for step in writes(&mut rng) {
        subject
            .step(&step)
            .map_err(|failure| format!("with derived files damaged, {step} fails: {failure}"))?;
    }
    // The check reads files that no other call has read.
    subject.db().and_then(|db| db.check(false)).map_err(failed("check"))?;
    for step in writes(&mut rng) {
        subject
            .step(&step)
            .map_err(|failure| format!("with derived files damaged, {step} after a check: {failure}"))?;
    }
    compare(&subject, "records written with derived files damaged")?;
    subject.step(&HistoryStep::Reopen).map_err(|failure| format!("the next open: {failure}"))?;
    compare(&subject, "records after the next open")?;
    let db = subject.db().map_err(failed("the next open"))?;
    verify(db, &subject.model, &mut rng).map_err(|failure| format!("rebuilt indexes: {failure}"))
}

fn failed(what: &'static str) -> impl Fn(bolide::Error) -> String {
    move |error| format!("{what}: {error:?}")
}

/// Puts, replacements and deletes of present and absent records, and a flush.
fn writes(rng: &mut SimRng) -> Vec<HistoryStep> {
    let mut steps = Vec::new();
    for number in [0, 2, 3, 5, 20] {
        let key = format!("k{number:04}").into_bytes();
        let put = Change::Put { collection: "posts", key: key.clone(), record: record(rng) };
        let other = match rng.one_in(3) {
            true => Change::Delete { collection: "notes", key },
            false => Change::Put { collection: "notes", key, record: record(rng) },
        };
        steps.push(HistoryStep::Write { changes: vec![put, other], durability: Durability::Always });
    }
    steps.push(HistoryStep::Flush);
    steps
}
