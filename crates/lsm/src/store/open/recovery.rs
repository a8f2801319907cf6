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
use crate::store::commit::log::LogState;
use crate::version::{RetainedLog, VersionEdit};
use crate::wal::WalWriter;
use crate::wal::replay::{WalSegments, replay};

impl StoreInner {
    /// Replays the log. Afterwards the store can be read.
    pub(in crate::store) fn recover(&self) -> Result<()> {
        let (floor, segments, marks, is_manifest_marked, last_sequence) = {
            let versions = self.versions.lock();
            let segments = versions.wal_segments().clone();
            let (marks, is_manifest_marked) = (versions.marks(), versions.is_manifest_marked());
            (versions.wal_floor(), segments, marks, is_manifest_marked, versions.last_sequence())
        };
        self.snapshots.publish(last_sequence);
        self.log.lock().applied = last_sequence;
        let (vfs, dir) = (&*self.vfs, &*self.options.dir);
        let wal = WalSegments {
            vfs,
            dir,
            floor,
            segments: &segments,
            marks,
            is_manifest_marked,
            boot: self.boot(),
        };
        let mut replayed = Vec::new();
        let tail = replay(&wal, |number, name, record| {
            if replayed.last() != Some(&number) {
                self.begin_segment(&mut replayed, number)?;
            }
            let location = RetainedLog { segment: number, start: record.offset, end: record.end };
            self.replay_record(location, record.payload)
                .map_err(|error| error.context(format!("{name}: the record at byte {}", record.offset)))
        })?;
        for tree in self.trees.load().values() {
            self.check_retained(tree, tree.replayed_retained.load(Ordering::Relaxed))?;
        }
        self.reset_active_bytes();
        *self.old_logs.lock() = segments.range(floor..).map(|(&number, _)| number).collect();
        let mut log = self.log.lock();
        log.unmarked = tail.unmarked;
        log.tail = Some(tail);
        Ok(())
    }

    /// Begins the replay of a segment. If memory exceeds its limit, flushes the entries of earlier segments, all of
    /// which were synced before this one was started.
    fn begin_segment(&self, replayed: &mut Vec<u64>, number: u64) -> Result<()> {
        replayed.push(number);
        self.current_log.store(number, Ordering::Release);
        self.reset_active_bytes();
        if self.options.read_only || self.active_bytes.get() <= 2 * self.options.memtable_bytes {
            return Ok(());
        }
        let trees: Vec<_> = self.trees.load().values().cloned().collect();
        for tree in trees {
            // The log may have newer writes before the record of retained entries, which are older.
            let may_flush =
                self.versions.lock().retained(tree.id).is_none_or(|retained| retained.segment < number);
            if may_flush && tree.state_guard().active.first_log().is_some() {
                tree.replace_state(|state| state.rotated(self.options.memtable_bytes));
                match self.flush_tree(&tree) {
                    Err(error) if error.kind() == ErrorKind::NoSpace => {}
                    flushed => flushed?,
                }
            }
        }
        Ok(())
    }

    /// Replays the operations of the record at `location`.
    fn replay_record(&self, location: RetainedLog, payload: &[u8]) -> Result<()> {
        let mut operations = BatchReader::new(payload)?;
        let mut retained = None;
        for placed in &mut operations {
            let placed = placed?;
            if placed.retained {
                retained = Some(placed.tree);
            }
            self.replay_operation(location, placed)?;
        }
        if let Some(tree) = retained
            && self.is_named_retained(tree, location)
            && let Ok(tree) = self.tree(tree)
        {
            tree.replayed_retained.fetch_add(location.end - location.start, Ordering::Relaxed);
        }
        let last = operations.next_sequence() - 1;
        let mut log = self.log.lock();
        log.applied = log.applied.max(last);
        self.snapshots.publish(log.applied);
        Ok(())
    }

    /// True if the manifest names `location` as a part of the retained entries of `tree`.
    fn is_named_retained(&self, tree: TreeId, location: RetainedLog) -> bool {
        self.versions.lock().retained(tree).is_some_and(|log| {
            log.segment == location.segment && log.start <= location.start && location.end <= log.end
        })
    }

    fn replay_operation(&self, location: RetainedLog, placed: PlacedOperation<'_>) -> Result<()> {
        let trees = self.trees.load();
        let Some(tree) = trees.get(&placed.tree) else {
            // Tree numbers are never reused: a tree with an allocated number that is not there was dropped.
            return if placed.tree < self.versions.lock().next_tree_id() {
                Ok(())
            } else {
                Err(Error::new(
                    ErrorKind::Corruption,
                    format!("a write to tree {}, which never existed", placed.tree),
                ))
            };
        };
        let is_included = match placed.retained {
            true => self.is_named_retained(placed.tree, location),
            false => location.segment >= self.versions.lock().tree_log_floor(placed.tree),
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
    pub(in crate::store) fn start_log(&self) -> Result<()> {
        let mut log = self.log.lock();
        let mut edit = VersionEdit::new();
        if let Some(tail) = log.tail.take() {
            tail.make_durable(&*self.vfs, &self.options.dir)?;
            if let Some(end) = tail.last.filter(|_| !tail.sealed) {
                edit.seal_wal(end.number, end.len);
                edit.set_last_sequence(log.applied);
            }
            if let Some(cut) = tail.cut_tail {
                edit.note_cut_tail(cut);
            }
        }
        self.forget_removed_tails(&mut edit)?;
        self.start_segment(&mut log, edit)
    }

    /// Creates a segment, makes `edit` durable together with its name, and directs writes to it.
    ///
    /// On an error before the edit is durable, nothing has changed.
    pub(in crate::store) fn start_segment(&self, log: &mut LogState, mut edit: VersionEdit) -> Result<()> {
        let mut versions = self.versions.lock();
        let identity = self.new_identity(versions.new_file_number());
        let number = identity.file_number;
        let writer = self.reserve.with(|| {
            WalWriter::create(&*self.vfs, &self.options.dir, identity, self.boot(), versions.marker())
                .inspect_err(|_| self.discard_segment(number))
        })?;
        edit.start_wal(number, identity.tag);
        self.apply_edit(&mut versions, edit).inspect_err(|error| {
            // After any other failure the edit may be durable, and then it names the segment.
            if error.kind() == ErrorKind::NoSpace {
                self.discard_segment(number);
            }
        })?;
        // Not earlier: until now the marker has the length of the previous segment, whose end the edit stores.
        writer.note_in_use();
        log.start_segment(writer);
        self.current_log.store(number, Ordering::Release);
        Ok(())
    }

    /// Adds the removal of notes about cut tails to `edit`, for tails whose files were removed manually.
    fn forget_removed_tails(&self, edit: &mut VersionEdit) -> Result<()> {
        let noted: Vec<u64> = self.versions.lock().cut_tails().keys().copied().collect();
        for number in noted {
            let exists = |name: FileName| self.vfs.exists(&name.path(&self.options.dir));
            if !exists(FileName::Wal(number))? && !exists(FileName::Tail(number))? {
                edit.forget_cut_tail(number);
            }
        }
        Ok(())
    }

    /// Removes files that neither the manifest nor the log needs: remains of an interrupted flush, compaction or
    /// manifest switch. Files of other programs are not touched.
    pub(in crate::store) fn remove_unknown_files(&self) -> Result<()> {
        let mut live: BTreeSet<u64> = self.old_logs.lock().iter().copied().collect();
        live.insert(self.current_log.load(Ordering::Acquire));
        for tree in self.trees.load().values() {
            live.extend(tree.state_guard().version.tables().map(|table| table.meta().number));
        }
        {
            let versions = self.versions.lock();
            live.extend(versions.external_files());
            live.extend(versions.live_views());
            live.insert(versions.manifest_number());
        }
        for name in self.vfs.list(&self.options.dir)? {
            if let Some(file) = FileName::parse(&name)
                && !matches!(file, FileName::Tail(_))
                && file.number().is_some_and(|number| !live.contains(&number))
            {
                match self.retire(file) {
                    // A directory with this name was not created by Bolide.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }
}
