//! The manifest, as far as it can be read.
//!
//! 1. `CURRENT` names the manifest, its tag, and how much of it was durable. Without it the newest manifest of the directory
//!    is taken; it counts as whole if it is the only one and the marker agrees with its length.
//! 2. Damaged records are skipped. The edits behind them are applied as far as they fit.
//! 3. The manifest is *intact* if no edit is missing that was acknowledged. Then its state is exact.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use bolide_base::{Error, ErrorKind, FileIdentity, Result};
use bolide_storage::Vfs;

use super::loss::{Loss, LossKind};
use super::state::SalvagedState;
use crate::file_name::FileName;
use crate::record_log::{Boot, LogHeader, LogReader, LogRole, Stop};
use crate::sync_marker::Marks;
use crate::version::{CurrentFile, VersionEdit};

/// What may be wrong with state of which edits are missing.
const CONSEQUENCE: &str = "replaced and deleted records, dropped collections and dropped indexes may be there again; \
                           collections and indexes may be missing";

/// What a manifest leads to.
#[derive(Debug, Default)]
pub(super) struct SalvagedManifest {
    pub(super) state: SalvagedState,
    /// True if no acknowledged edit is missing.
    pub(super) intact: bool,
    /// True if the marker belongs to this manifest.
    pub(super) marked: bool,
    /// `CURRENT` may be of another format version.
    pub(super) unsupported: Option<Error>,
}

/// Reads the manifest of the database in `dir`, in which the manifests `numbers` lie, ascending.
pub(super) fn read(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: &[u64],
    marks: &Marks,
    losses: &mut Vec<Loss>,
    notes: &mut Vec<String>,
) -> SalvagedManifest {
    let current = CurrentFile::read_file(vfs, &FileName::Current.path(dir));
    match current {
        Ok(current) => {
            let durable = Durable { at_least: current.len, is_end: current.closed };
            read_one(vfs, dir, current.manifest, durable, marks, losses)
        }
        Err(error) => {
            let cause = if error.kind() == ErrorKind::NotFound { "it is missing" } else { error.message() };
            let mut manifest = read_newest(vfs, dir, numbers, cause, marks, losses, notes);
            manifest.unsupported = (error.kind() == ErrorKind::Unsupported).then_some(error);
            manifest
        }
    }
}

/// Reads the newest manifest of which an edit can be read, because `CURRENT` cannot.
fn read_newest(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: &[u64],
    cause: &str,
    marks: &Marks,
    losses: &mut Vec<Loss>,
    notes: &mut Vec<String>,
) -> SalvagedManifest {
    let durable = Durable { at_least: 0, is_end: false };
    for &number in numbers.iter().rev() {
        let Some(identity) = presumed_identity(vfs, &FileName::Manifest(number).path(dir), number) else {
            continue;
        };
        let mut found = Vec::new();
        let mut manifest = read_one(vfs, dir, identity, durable, marks, &mut found);
        if manifest.state.trees.is_empty() && manifest.state.segments.is_empty() && !manifest.intact {
            continue;
        }
        losses.append(&mut found);
        if manifest.intact && !(manifest.marked && numbers.len() == 1) {
            manifest.intact = false;
            let what = format!(
                "{cause}; {} is taken, which need not be the one that was in use, or not to its end: {CONSEQUENCE}",
                FileName::Manifest(number)
            );
            losses.push(Loss::new(LossKind::Manifest, FileName::Current.to_string(), what));
        } else {
            notes.push(format!("CURRENT: {cause}; {} is taken", FileName::Manifest(number)));
        }
        return manifest;
    }
    let what = format!("{cause}, and no manifest can be read: {CONSEQUENCE}");
    losses.push(Loss::new(LossKind::Manifest, FileName::Current.to_string(), what));
    SalvagedManifest::default()
}

/// How much of a manifest was acknowledged.
#[derive(Debug, Clone, Copy)]
struct Durable {
    /// At least so many bytes.
    at_least: u64,
    /// The manifest ends there.
    is_end: bool,
}

fn read_one(
    vfs: &dyn Vfs,
    dir: &Path,
    identity: FileIdentity,
    durable: Durable,
    marks: &Marks,
    losses: &mut Vec<Loss>,
) -> SalvagedManifest {
    let marked = marks.synced_through(LogRole::Manifest, identity);
    let mut manifest = SalvagedManifest { marked: marked > 0, intact: true, ..SalvagedManifest::default() };
    let before = losses.len();
    read_edits(vfs, dir, identity, durable, marked, &mut manifest.state, losses);
    manifest.intact = losses.len() == before;
    manifest
}

/// Applies the readable edits of a manifest to `state`. `marked`: it was synced through this byte, by the marker.
fn read_edits(
    vfs: &dyn Vfs,
    dir: &Path,
    identity: FileIdentity,
    durable: Durable,
    marked: u64,
    state: &mut SalvagedState,
    losses: &mut Vec<Loss>,
) {
    let name = FileName::Manifest(identity.file_number);
    let any_lost = Cell::new(false);
    let mut lose = |bytes: Option<Range<u64>>, cause: &str| {
        any_lost.set(true);
        let mut loss = Loss::new(LossKind::Manifest, name.to_string(), format!("{cause}: {CONSEQUENCE}"));
        loss.bytes = bytes;
        losses.push(loss);
    };
    let header = LogHeader { role: LogRole::Manifest, identity, boot: Boot::default() };
    let opened =
        vfs.open(&name.path(dir)).and_then(|file| LogReader::open_as(file, name.to_string(), header));
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return lose(None, error.message()),
    };
    if durable.is_end {
        reader.end_at(durable.at_least);
    }
    let durable_len = durable.at_least.max(marked);
    loop {
        let position = reader.position();
        let cause = match reader.next_record() {
            Ok(Some(record)) => {
                let bytes = position..record.end;
                match VersionEdit::decode(record.payload).map(|edit| state.apply(&edit)) {
                    None => lose(Some(bytes), "a version edit cannot be decoded"),
                    // What follows an edit that is lost may not fit either.
                    Some(misfits) if misfits > 0 && !any_lost.get() => {
                        let what = format!("{misfits} operations of an edit do not fit what precedes it");
                        lose(Some(bytes), &what);
                    }
                    Some(_) => {}
                }
                continue;
            }
            Ok(None) => match reader.stop() {
                Some(Stop::Invalid(what)) => what.to_owned(),
                _ if position < durable_len => {
                    let what = format!(
                        "the manifest ends at byte {position}, but was durable through byte {durable_len}"
                    );
                    return lose(Some(position..durable_len), &what);
                }
                _ => return,
            },
            Err(error) => error.message().to_owned(),
        };
        match reader.resynchronize() {
            Ok(Some(next)) => lose(Some(position..next), &cause),
            // Behind what was acknowledged: a torn last edit, on which nothing was based.
            Ok(None) if position >= durable_len => return,
            Ok(None) => return lose(Some(position..reader.limit().max(durable_len)), &cause),
            Err(error) => return lose(Some(position..reader.limit()), error.message()),
        }
    }
}

/// The identity of the record log at `path`: its number as in its name, its tag as in its header, damaged or not. `None` if the
/// file cannot be read that far.
pub(super) fn presumed_identity(vfs: &dyn Vfs, path: &Path, number: u64) -> Option<FileIdentity> {
    const TAG_OFFSET: u64 = 16;
    let mut tag = [0; 8];
    let read = |tag: &mut [u8; 8]| -> Result<()> { vfs.open(path)?.read_exact_at(TAG_OFFSET, tag) };
    read(&mut tag).ok()?;
    Some(FileIdentity { file_number: number, tag: u64::from_le_bytes(tag) })
}
