//! Recovery: replay of the log into memtables.
//!
//! # Algorithm
//! 1. Sequence numbers continue above the highest one in manifest, sstables and log.
//! 2. Every record at or above the log floor is read in the order of the writes. An operation is inserted unless its
//!    tree was flushed beyond its segment, or was dropped. (Each tree has its own floor: replaying a flushed write into
//!    a memtable would put an old version above newer ones.) Retained entries are inserted if the manifest names their
//!    record, whatever the floor; see `retained`. All bytes that the manifest names must be there.
//! 3. If the replayed memtables exceed their limit, they are flushed at the end of a segment. On a full disk they stay
//!    in memory, which then contains as much as the log: an opening must not need space, since only an open database
//!    can free some.
//! 4. A torn tail that was cut off must not reappear: the last segment is made durable through its end, and one
//!    manifest edit stores that end, records the tail, and names the next segment.
//!
//! A crash at any point restarts recovery. Redo is idempotent: entries are identified by key and sequence number.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use crate::batch::{BatchReader, PlacedOperation};
use crate::file_name::FileName;
use crate::store::StoreInner;
use crate::store::commit::segments::start_segment;
use crate::store::files::StoreFiles;
use crate::store::jobs::flush::flush_to_first_level;
use crate::store::jobs::obsolete_files::retire;
use crate::store::jobs::retained::check_retained;
use crate::version::{RetainedLog, VersionEdit};
use crate::wal::replay::{WalSegments, replay};

/// Replays the log. Afterwards the store can be read.
pub(in crate::store) fn recover(store: &StoreInner) -> Result<()> {
    let (floor, segments, marks, is_manifest_marked, last_sequence) = {
        let versions = store.files.versions.lock();
        let segments = versions.wal_segments().clone();
        let (marks, is_manifest_marked) = (versions.marks(), versions.is_manifest_marked());
        (versions.wal_floor(), segments, marks, is_manifest_marked, versions.last_sequence())
    };
    store.snapshots.publish(last_sequence);
    store.log.lock().applied = last_sequence;
    let (vfs, dir) = (&*store.files.vfs, &*store.options.dir);
    let wal =
        WalSegments { vfs, dir, floor, segments: &segments, marks, is_manifest_marked, boot: store.boot };
    let mut replayed = Vec::new();
    let tail = replay(&wal, |number, name, record| {
        if replayed.last() != Some(&number) {
            begin_segment(store, &mut replayed, number)?;
        }
        let location = RetainedLog { segment: number, start: record.offset, end: record.end };
        replay_record(store, location, record.payload)
            .map_err(|error| error.context(format!("{name}: the record at byte {}", record.offset)))
    })?;
    for tree in store.trees.load().values() {
        check_retained(&store.files, tree, tree.replayed_retained.load(Ordering::Relaxed))?;
    }
    store.active_bytes.set(store.trees.active_bytes());
    *store.log.finished.lock() = segments.range(floor..).map(|(&number, _)| number).collect();
    let mut log = store.log.lock();
    log.unmarked = tail.unmarked;
    log.tail = Some(tail);
    Ok(())
}

/// Begins the replay of a segment. If memory exceeds its limit, flushes the entries of earlier segments, all of
/// which were synced before this one was started.
fn begin_segment(store: &StoreInner, replayed: &mut Vec<u64>, number: u64) -> Result<()> {
    replayed.push(number);
    store.log.current.store(number, Ordering::Release);
    store.active_bytes.set(store.trees.active_bytes());
    if store.options.read_only || store.active_bytes.get() <= 2 * store.options.memtable_bytes {
        return Ok(());
    }
    let trees: Vec<_> = store.trees.load().values().cloned().collect();
    for tree in trees {
        // The log may have newer writes before the record of retained entries, which are older.
        let may_flush =
            store.files.versions.lock().retained(tree.id).is_none_or(|retained| retained.segment < number);
        if may_flush && tree.state_guard().active.first_log().is_some() {
            tree.replace_state(|state| state.rotated(store.options.memtable_bytes));
            match flush_to_first_level(&store.flush_environment(), &tree) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                flushed => flushed?,
            }
        }
    }
    Ok(())
}

/// Replays the operations of the record at `location`.
fn replay_record(store: &StoreInner, location: RetainedLog, payload: &[u8]) -> Result<()> {
    let mut operations = BatchReader::new(payload)?;
    let mut retained = None;
    for placed in &mut operations {
        let placed = placed?;
        if placed.retained {
            retained = Some(placed.tree);
        }
        replay_operation(store, location, placed)?;
    }
    if let Some(tree) = retained
        && is_named_retained(&store.files, tree, location)
        && let Ok(tree) = store.trees.get(tree)
    {
        tree.replayed_retained.fetch_add(location.end - location.start, Ordering::Relaxed);
    }
    let last = operations.next_sequence() - 1;
    let mut log = store.log.lock();
    log.applied = log.applied.max(last);
    store.snapshots.publish(log.applied);
    Ok(())
}

/// True if the manifest names `location` as a part of the retained entries of `tree`.
fn is_named_retained(files: &StoreFiles, tree: TreeId, location: RetainedLog) -> bool {
    files.versions.lock().retained(tree).is_some_and(|log| {
        log.segment == location.segment && log.start <= location.start && location.end <= log.end
    })
}

fn replay_operation(store: &StoreInner, location: RetainedLog, placed: PlacedOperation<'_>) -> Result<()> {
    let trees = store.trees.load();
    let Some(tree) = trees.get(&placed.tree) else {
        // Tree numbers are never reused: a tree with an allocated number that is not there was dropped.
        return if placed.tree < store.files.versions.lock().next_tree_id() {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::Corruption,
                format!("a write to tree {}, which never existed", placed.tree),
            ))
        };
    };
    let is_included = match placed.retained {
        true => is_named_retained(&store.files, placed.tree, location),
        false => location.segment >= store.files.versions.lock().tree_log_floor(placed.tree),
    };
    if !is_included {
        return Ok(());
    }
    let state = tree.state_guard();
    state.active.note_log(location.segment, 0);
    placed.operation.insert_into(&state.active.memtable, placed.sequence);
    Ok(())
}

/// Stores the end of the replayed log and starts a new segment.
pub(in crate::store) fn start_log(store: &StoreInner) -> Result<()> {
    let mut log = store.log.lock();
    let mut edit = VersionEdit::new();
    if let Some(tail) = log.tail.take() {
        tail.make_durable(&*store.files.vfs, &store.options.dir)?;
        if let Some(end) = tail.last.filter(|_| !tail.sealed) {
            edit.seal_wal(end.number, end.len);
            edit.set_last_sequence(log.applied);
        }
        if let Some(cut) = tail.cut_tail {
            edit.note_cut_tail(cut);
        }
    }
    forget_removed_tails(&store.files, &mut edit)?;
    start_segment(store, &mut log, edit)
}

/// Adds the removal of notes about cut tails to `edit`, for tails whose files were removed manually.
fn forget_removed_tails(files: &StoreFiles, edit: &mut VersionEdit) -> Result<()> {
    let noted: Vec<u64> = files.versions.lock().cut_tails().keys().copied().collect();
    for number in noted {
        let exists = |name: FileName| files.vfs.exists(&files.path(name));
        if !exists(FileName::Wal(number))? && !exists(FileName::Tail(number))? {
            edit.forget_cut_tail(number);
        }
    }
    Ok(())
}

/// Removes files that neither the manifest nor the log needs: remains of an interrupted flush, compaction or
/// manifest switch. Files of other programs are not touched.
pub(in crate::store) fn remove_unknown_files(store: &StoreInner) -> Result<()> {
    let mut live: BTreeSet<u64> = store.log.finished.lock().iter().copied().collect();
    live.insert(store.log.current.load(Ordering::Acquire));
    for tree in store.trees.load().values() {
        live.extend(tree.state_guard().version.tables().map(|table| table.meta().number));
    }
    {
        let versions = store.files.versions.lock();
        live.extend(versions.external_files());
        live.extend(versions.live_views());
        live.insert(versions.manifest_number());
    }
    for name in store.files.vfs.list(&store.options.dir)? {
        if let Some(file) = FileName::parse(&name)
            && !matches!(file, FileName::Tail(_))
            && file.number().is_some_and(|number| !live.contains(&number))
        {
            match retire(&store.files, file) {
                // A directory with this name was not created by Bolide.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}
