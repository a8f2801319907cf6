//! Flush: full memtables become one sorted run of the first level.
//!
//! All full memtables of a tree are merged into one run, so a backlog makes fewer runs. Entries that no view can see
//! are dropped. The edit that adds the run also sets the log segment from which recovery must replay this tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result};

use crate::compaction::{MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::layout::FlushTarget;
use crate::store::StoreInner;
use crate::store::backend::Backend;
use crate::store::jobs::deferred_publication::{FlushedMemtables, publish_state};
use crate::store::jobs::table_output::{FinishedOutput, TableOutput};
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::{Version, VersionEdit, VersionSet};

impl StoreInner {
    /// Writes the full memtables of `tree` to `target`, and installs the sstables. If it has an external tree, writes a
    /// checkpoint of that.
    pub(in crate::store) fn flush(&self, tree: &Arc<Tree>, target: FlushTarget) -> Result<()> {
        let flush_all = tree.flush_all.swap(false, Ordering::AcqRel);
        let flushed = match (target, tree.backend()) {
            (FlushTarget::Partitions, Backend::Lsm) => self.flush_into_partitions(tree, flush_all),
            (FlushTarget::FirstLevel, _) | (_, Backend::External(_)) => self.flush_tree(tree),
        };
        flushed.inspect_err(|_| {
            tree.flush_all.fetch_or(flush_all, Ordering::AcqRel);
        })
    }

    /// Writes the full memtables of `tree` to an sstable of level 0 and installs it. If it has an external tree, writes
    /// a checkpoint of that.
    pub(in crate::store) fn flush_tree(&self, tree: &Arc<Tree>) -> Result<()> {
        if let Backend::External(external_tree) = tree.backend() {
            return self.flush_external(tree, external_tree);
        }
        let state = tree.state();
        let flushed = state.immutables.clone();
        if flushed.is_empty() {
            return Ok(());
        }
        self.health.check()?;
        let FinishedOutput { tables, drops } = self.write_memtables(tree, &flushed)?;
        let written: Vec<u64> = tables.iter().map(|table| table.number).collect();
        let mut edit = VersionEdit::new();
        let bytes = tables.iter().map(|table| table.file_bytes).sum();
        // The number of a run is that of its first file, so newer runs have larger numbers.
        if let Some(run) = tables.first().map(|table| table.number) {
            edit.add_tables(tree.id, 0, run, tables);
        }
        edit.note_written(tree.id, bytes);
        self.note_flushed(tree, &flushed, None, &mut edit);
        self.install_outputs(&written, || self.install(tree, edit, &flushed))?;
        if let Some(drops) = drops {
            drops.installed();
        }
        self.counters.flushed(bytes);
        tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.refresh_views(tree)
    }

    fn write_memtables(&self, tree: &Arc<Tree>, flushed: &[Arc<LoggedMemtable>]) -> Result<FinishedOutput> {
        // In this order, no range tombstone at or below the first number in use is missing.
        let in_use = self.snapshots.in_use();
        let ranges = tree.state().merged_range_tombstones()?;
        let operator = tree.merge_operator.read().clone();
        let visibility = tree.flush_visibility(flushed, &in_use);
        let cursors = flushed.iter().map(|logged| logged.memtable.cursor(visibility)).collect();
        let mut cursor = MergingCursor::new(cursors);
        // Entries that the filter of the layer above drops are dropped by compactions only. During replay it is not
        // known yet whether the tree has a filter.
        let is_replay = !self.log.lock().is_open();
        let is_filtered = is_replay || tree.filter.read().is_some() || operator.is_some();
        let mut retention = MergingRetention::new(Retention::new(in_use, ranges, false), operator, true);
        let filtered_through = if is_filtered { 0 } else { retention.filtered_through() };
        let mut output = TableOutput::new(self, tree, u64::MAX, filtered_through);
        cursor.seek_to_first()?;
        while cursor.valid() {
            retention.add(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
            cursor.next()?;
        }
        retention.finish(&mut output)?;
        output.finish()
    }

    /// Installs the new sstables `written` by `install`. If their edit was certainly not written, the files are
    /// removed.
    ///
    /// A version may have been dropped because of a write that is only in the log (a range delete, or a newer record
    /// that an index filter read). So the log is synced first: a power cut must not lose that write after the version
    /// is gone.
    pub(in crate::store) fn install_outputs(
        &self,
        written: &[u64],
        install: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.log.sync(&self.health).and_then(|()| install()).inspect_err(|error| {
            let not_written = [ErrorKind::NoSpace, ErrorKind::LimitExceeded, ErrorKind::Closed];
            if not_written.contains(&error.kind()) {
                for number in written {
                    self.table_files.obsolete.push(FileName::Table(*number));
                }
            }
        })
    }

    /// Makes an edit durable and replaces the version of the tree, without the memtables in `flushed`.
    pub(in crate::store) fn install(
        &self,
        tree: &Tree,
        edit: VersionEdit,
        flushed: &[Arc<LoggedMemtable>],
    ) -> Result<()> {
        self.install_with(tree, edit, flushed, &|_, _| {})
    }

    /// Makes an edit durable and replaces the version of the tree. `place` adds the operations that depend on the
    /// version to which the edit is applied.
    pub(in crate::store) fn install_placed(
        &self,
        tree: &Tree,
        edit: VersionEdit,
        place: &dyn Fn(&Version, &mut VersionEdit),
    ) -> Result<()> {
        self.install_with(tree, edit, &[], place)
    }

    fn install_with(
        &self,
        tree: &Tree,
        edit: VersionEdit,
        flushed: &[Arc<LoggedMemtable>],
        place: &dyn Fn(&Version, &mut VersionEdit),
    ) -> Result<()> {
        let _row_update = update_rows(&self.rows, tree, flushed);
        let mut versions = self.versions.lock();
        self.apply_placed(&mut versions, tree, edit, place)?;
        // A pending flush into partitions publishes its version itself, together with the removal of its memtables.
        if !tree.publication_pending.load(Ordering::Acquire) {
            publish_state(
                tree,
                &versions,
                Some(FlushedMemtables { memtables: flushed, retained: None }),
                |next| next,
            );
        }
        Ok(())
    }

    /// Makes an edit durable; `place` adds the operations that depend on the version to which it is applied. Readers
    /// continue with the old state.
    pub(in crate::store) fn apply_placed(
        &self,
        versions: &mut VersionSet,
        tree: &Tree,
        mut edit: VersionEdit,
        place: &dyn Fn(&Version, &mut VersionEdit),
    ) -> Result<()> {
        let dropped = || Error::new(ErrorKind::Closed, format!("tree {} was dropped", tree.id));
        let before = versions.current(tree.id).ok_or_else(dropped)?;
        place(&before, &mut edit);
        edit.set_last_sequence(self.snapshots.published());
        self.apply_edit(versions, edit)
    }
}
