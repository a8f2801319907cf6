//! Salvage of the manifest.
//!
//! 1. `CURRENT` names the manifest, its tag, and its durable length. Without it the newest manifest of the directory is used;
//!    it is considered whole if it is the only one and the marker agrees with its length.
//! 2. Damaged records are skipped. Later edits are applied as far as they fit.
//! 3. The manifest is *intact* if no acknowledged edit is missing. Then its state is exact.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;

use bolide_base::{Error, ErrorKind, FileIdentity, Result};
use bolide_storage::Vfs;

use super::loss::{Loss, LossKind};
use super::state::SalvagedState;
use crate::file_name::FileName;
use crate::record_log::{Boot, LogHeader, LogReader, LogRole, LogStop};
use crate::sync_marker::Marks;
use crate::version::{CurrentFile, VersionEdit};

/// The possible errors of a state with missing edits.
const CONSEQUENCE: &str = "replaced and deleted records, dropped collections and dropped indexes may reappear; \
                           collections and indexes may be missing";

/// The state that results from a manifest.
#[derive(Debug, Default)]
pub(super) struct SalvagedManifest {
    pub(super) state: SalvagedState,
    /// True if no acknowledged edit is missing.
    pub(super) intact: bool,
    /// True if the marker belongs to this manifest.
    pub(super) marked: bool,
    /// The error if `CURRENT` may be of another format version.
    pub(super) unsupported: Option<Error>,
}

/// Reads the manifest of the database in `dir`, whose manifests are `numbers`, ascending.
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
            let durable = DurableLength { min_len: current.len, is_end: current.closed };
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

/// Reads the newest manifest with a readable edit, because `CURRENT` is unreadable.
fn read_newest(
    vfs: &dyn Vfs,
    dir: &Path,
    numbers: &[u64],
    cause: &str,
    marks: &Marks,
    losses: &mut Vec<Loss>,
    notes: &mut Vec<String>,
) -> SalvagedManifest {
    let durable = DurableLength { min_len: 0, is_end: false };
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
                "{cause}; {} is used, which may be another one than the one in force, or incomplete: {CONSEQUENCE}",
                FileName::Manifest(number)
            );
            losses.push(Loss::new(LossKind::Manifest, FileName::Current.to_string(), what));
        } else {
            notes.push(format!("CURRENT: {cause}; {} is used", FileName::Manifest(number)));
        }
        return manifest;
    }
    let what = format!("{cause}, and no manifest can be read: {CONSEQUENCE}");
    losses.push(Loss::new(LossKind::Manifest, FileName::Current.to_string(), what));
    SalvagedManifest::default()
}

/// The acknowledged length of a manifest.
#[derive(Debug, Clone, Copy)]
struct DurableLength {
    /// The minimum length in bytes.
    min_len: u64,
    /// True if the manifest ends there.
    is_end: bool,
}

fn read_one(
    vfs: &dyn Vfs,
    dir: &Path,
    identity: FileIdentity,
    durable: DurableLength,
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

/// Applies the readable edits of a manifest to `state`. `marked`: the synced length in the marker.
fn read_edits(
    vfs: &dyn Vfs,
    dir: &Path,
    identity: FileIdentity,
    durable: DurableLength,
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
        reader.end_at(durable.min_len);
    }
    let durable_len = durable.min_len.max(marked);
    loop {
        let position = reader.position();
        let cause = match reader.next_record() {
            Ok(Some(record)) => {
                let bytes = position..record.end;
                match VersionEdit::decode(record.payload).map(|edit| state.apply(&edit)) {
                    None => lose(Some(bytes), "a version edit cannot be decoded"),
                    // Edits behind a lost one may not fit either.
                    Some(misfits) if misfits > 0 && !any_lost.get() => {
                        let what = format!("{misfits} operations of an edit do not fit what precedes it");
                        lose(Some(bytes), &what);
                    }
                    Some(_) => {}
                }
                continue;
            }
            Ok(None) => match reader.stop() {
                Some(LogStop::Invalid(what)) => what.to_owned(),
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
            // Behind the acknowledged length: a torn last edit, which nothing depends on.
            Ok(None) if position >= durable_len => return,
            Ok(None) => return lose(Some(position..reader.limit().max(durable_len)), &cause),
            Err(error) => return lose(Some(position..reader.limit()), error.message()),
        }
    }
}

/// The identity of the record log at `path`: the number in its name, and the tag in its header, damaged or not. `None` if the
/// file cannot be read up to the tag.
pub(super) fn presumed_identity(vfs: &dyn Vfs, path: &Path, number: u64) -> Option<FileIdentity> {
    const TAG_OFFSET: u64 = 16;
    let mut tag = [0; 8];
    let read = |tag: &mut [u8; 8]| -> Result<()> { vfs.open(path)?.read_exact_at(TAG_OFFSET, tag) };
    read(&mut tag).ok()?;
    Some(FileIdentity { file_number: number, tag: u64::from_le_bytes(tag) })
}
