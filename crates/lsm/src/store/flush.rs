//! Flush: full memtables become one sorted run of the first level.
//!
//! All memtables of a tree that wait are merged into one run, so a backlog makes fewer runs. Entries that
//! no view can see are dropped on the way. The edit that adds the run also says from which log segment
//! on recovery must replay this tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result};

use super::StoreInner;
use super::table_output::{Finished, TableOutput};
use super::tree::{LoggedMemtable, Tree};
use crate::compaction::{MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::memtable::Visibility;
use crate::version::VersionEdit;

impl StoreInner {
    /// Writes the full memtables of `tree` to an sstable and installs it; has its keeper make them durable, if it has
    /// one.
    pub(super) fn flush_tree(&self, tree: &Arc<Tree>) -> Result<()> {
        if let Some(keeper) = tree.keeper.get() {
            return self.flush_kept(tree, keeper);
        }
        let state = tree.state();
        let flushed = state.immutables.clone();
        if flushed.is_empty() {
            return Ok(());
        }
        self.check_writable()?;
        let Finished { tables, drops } = self.write_memtables(tree, &flushed)?;
        let written: Vec<u64> = tables.iter().map(|table| table.number).collect();
        let mut edit = VersionEdit::new();
        for logged in flushed.iter().rev() {
            for tombstone in logged.memtable.range_tombstones() {
                edit.add_range_tombstone(tree.id, tombstone);
            }
        }
        let bytes = tables.iter().map(|table| table.file_bytes).sum();
        // Runs are numbered by their first file, so that newer ones have larger numbers.
        if let Some(run) = tables.first().map(|table| table.number) {
            edit.add_tables(tree.id, 0, run, tables);
        }
        edit.note_written(tree.id, bytes);
        let last_log = flushed.iter().map(|logged| logged.last_log()).max().unwrap_or(0);
        edit.set_tree_log_floor(tree.id, last_log + 1);
        edit.set_wal_floor(self.log_floor_without(tree, &flushed));
        self.install_outputs(tree, edit, &flushed, &written)?;
        if let Some(drops) = drops {
            drops.installed();
        }
        self.counters.flushed(bytes);
        tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn write_memtables(&self, tree: &Arc<Tree>, flushed: &[Arc<LoggedMemtable>]) -> Result<Finished> {
        let cursors = flushed.iter().map(|logged| logged.memtable.cursor(Visibility::All)).collect();
        let mut cursor = MergingCursor::new(cursors);
        // In this order: no range tombstone at or below the first number in use is missing then.
        let in_use = self.snapshots.in_use();
        let ranges = tree.state().merged_range_tombstones()?;
        let operator = tree.merge_operator.read().clone();
        // What the layer above would drop is dropped by compactions only. While the log is replayed it is not
        // known yet whether the tree has a filter.
        let replays = !self.log.lock().is_open();
        let is_filtered = replays || tree.filter.read().is_some() || operator.is_some();
        let mut retention = MergingRetention::new(Retention::new(in_use, ranges, false), operator, true);
        let filtered_through = if is_filtered { 0 } else { retention.filtered_through() };
        let mut output = TableOutput::new(self, tree, u64::MAX, filtered_through);
        cursor.seek_to_first()?;
        while cursor.valid() {
            retention.take(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
            cursor.next()?;
        }
        retention.finish(&mut output)?;
        output.finish()
    }

    /// Installs new sstables; see [`install`](Self::install). If the edit was certainly not written, the
    /// files are given up.
    ///
    /// What was left out of them may have been hidden by a write that is in the log alone (a deleted
    /// range, or a newer record that an index filter looked at), so the log is synced first: a power cut
    /// must not take that write and leave the gap.
    pub(super) fn install_outputs(
        &self,
        tree: &Arc<Tree>,
        edit: VersionEdit,
        flushed: &[Arc<LoggedMemtable>],
        written: &[u64],
    ) -> Result<()> {
        let installed = self.sync_log().and_then(|()| self.install(tree, edit, flushed));
        installed.inspect_err(|error| {
            let is_certain = [ErrorKind::NoSpace, ErrorKind::LimitExceeded, ErrorKind::Closed];
            if is_certain.contains(&error.kind()) {
                for number in written {
                    self.table_files.obsolete.push(FileName::Table(*number));
                }
            }
        })
    }

    /// Makes an edit durable and swaps the tree to the version that it makes.
    pub(super) fn install(
        &self,
        tree: &Arc<Tree>,
        mut edit: VersionEdit,
        flushed: &[Arc<LoggedMemtable>],
    ) -> Result<()> {
        let mut versions = self.versions.lock();
        let dropped = || Error::new(ErrorKind::Closed, format!("tree {} was dropped", tree.id));
        versions.current(tree.id).ok_or_else(dropped)?;
        edit.set_last_sequence(self.snapshots.published());
        self.apply_edit(&mut versions, edit)?;
        let version = versions.current(tree.id).ok_or_else(dropped)?;
        tree.replace_state(|state| state.installed(version.clone(), flushed));
        Ok(())
    }
}
