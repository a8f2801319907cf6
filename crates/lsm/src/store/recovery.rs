//! Recovery: the log is replayed into memtables.
//!
//! # Algorithm
//! 1. The sequence numbers go on above the highest of manifest, sstables and log.
//! 2. Every record at or above the log floor is read in the order in which it was written. An operation
//!    is inserted unless its tree was flushed past its segment, or was dropped. (Each tree has a floor of
//!    its own: replaying a flushed write into a memtable would put an old version above newer ones.)
//!    Entries that a flush kept back are inserted where the manifest names their record, whatever the floor; see
//!    `retained`. What it names must be there.
//! 3. If the replayed memtables grow over their limit, they are flushed where a segment ends. On a full disk they stay in
//!    memory, which then holds as much as the log does: an open must not need space, since only an open can free some.
//! 4. What was cut off as torn stays cut: the last segment is made durable through its end, and one manifest edit
//!    stores that end, notes what was cut off, and names the next segment.
//!
//! All of it may be cut off by another crash and starts over. Redo is idempotent: entries are identified
//! by key and sequence number.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use super::StoreInner;
use super::log::LogState;
use crate::batch::{BatchReader, PlacedOperation};
use crate::file_name::FileName;
use crate::version::{RetainedLog, VersionEdit};
use crate::wal::WalWriter;
use crate::wal::replay::{WalSegments, replay};

impl StoreInner {
    /// Replays the log. Afterwards the store can be read.
    pub(super) fn recover(&self) -> Result<()> {
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
            let place = RetainedLog { segment: number, start: record.offset, end: record.end };
            self.replay_record(place, record.payload)
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

    /// Notes a segment whose records follow; if memory runs short, flushes those of the segments before,
    /// all of which were synced before this one was started.
    fn begin_segment(&self, replayed: &mut Vec<u64>, number: u64) -> Result<()> {
        replayed.push(number);
        self.current_log.store(number, Ordering::Release);
        self.reset_active_bytes();
        if self.options.read_only || self.active_bytes() <= 2 * self.options.memtable_bytes {
            return Ok(());
        }
        let trees: Vec<_> = self.trees.load().values().cloned().collect();
        for tree in trees {
            // Before what was kept back, and is older, newer writes may lie in the log.
            let is_whole =
                self.versions.lock().retained(tree.id).is_none_or(|retained| retained.segment < number);
            if is_whole && tree.state_guard().active.first_log().is_some() {
                tree.replace_state(|state| state.rotated(self.options.memtable_bytes));
                match self.flush_tree(&tree) {
                    Err(error) if error.kind() == ErrorKind::NoSpace => {}
                    flushed => flushed?,
                }
            }
        }
        Ok(())
    }

    /// Does the operations again that lie at `place`.
    fn replay_record(&self, place: RetainedLog, payload: &[u8]) -> Result<()> {
        let mut operations = BatchReader::new(payload)?;
        let mut retained = None;
        for placed in &mut operations {
            let placed = placed?;
            if placed.retained {
                retained = Some(placed.tree);
            }
            self.replay_operation(place, placed)?;
        }
        if let Some(tree) = retained
            && self.names_retained(tree, place)
            && let Ok(tree) = self.tree(tree)
        {
            tree.replayed_retained.fetch_add(place.end - place.start, Ordering::Relaxed);
        }
        let last = operations.next_sequence() - 1;
        let mut log = self.log.lock();
        log.applied = log.applied.max(last);
        self.snapshots.publish(log.applied);
        Ok(())
    }

    /// True if the manifest says that entries of `tree` that were kept back lie at `place`.
    fn names_retained(&self, tree: TreeId, place: RetainedLog) -> bool {
        self.versions.lock().retained(tree).is_some_and(|log| {
            log.segment == place.segment && log.start <= place.start && place.end <= log.end
        })
    }

    fn replay_operation(&self, place: RetainedLog, placed: PlacedOperation<'_>) -> Result<()> {
        let trees = self.trees.load();
        let Some(tree) = trees.get(&placed.tree) else {
            // Numbers of trees are never reused: one that was handed out and is not there was dropped.
            return if placed.tree < self.versions.lock().next_tree_id() {
                Ok(())
            } else {
                Err(Error::new(
                    ErrorKind::Corruption,
                    format!("a write to tree {}, which never existed", placed.tree),
                ))
            };
        };
        let counts = match placed.retained {
            true => self.names_retained(placed.tree, place),
            false => place.segment >= self.versions.lock().tree_log_floor(placed.tree),
        };
        if !counts {
            return Ok(());
        }
        let state = tree.state_guard();
        state.active.note_log(place.segment, 0);
        placed.operation.insert_into(&state.active.memtable, placed.sequence);
        Ok(())
    }

    /// Stores the end of what was replayed and starts a new segment.
    pub(super) fn start_log(&self) -> Result<()> {
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

    /// Creates a segment, makes `edit` durable together with its name, and has the log go on there.
    ///
    /// On an error before the edit is durable nothing has changed.
    pub(super) fn start_segment(&self, log: &mut LogState, mut edit: VersionEdit) -> Result<()> {
        let mut versions = self.versions.lock();
        let identity = self.new_identity(versions.new_file_number());
        let number = identity.file_number;
        let writer = self.with_reserve(|| {
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
        // Only now: until then the marker has the length of the segment before, whose end the edit stores.
        writer.note_in_use();
        log.start_segment(writer);
        self.current_log.store(number, Ordering::Release);
        Ok(())
    }

    /// Adds to `edit` that the files of cut tails are gone which were removed by hand.
    fn forget_removed_tails(&self, edit: &mut VersionEdit) -> Result<()> {
        let noted: Vec<u64> = self.versions.lock().cut_tails().keys().copied().collect();
        for number in noted {
            let is_there = |name: FileName| self.vfs.exists(&name.path(&self.options.dir));
            if !is_there(FileName::Wal(number))? && !is_there(FileName::Tail(number))? {
                edit.forget_cut_tail(number);
            }
        }
        Ok(())
    }

    /// Removes files that neither the manifest nor the log needs: what an interrupted flush, compaction
    /// or manifest switch left behind. Files that are not Bolide's are left alone.
    pub(super) fn remove_unknown_files(&self) -> Result<()> {
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
                    // A directory of this name is not Bolide's.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }
}
