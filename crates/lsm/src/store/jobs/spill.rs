//! Spill: the oldest entries of an external tree become a sorted run of its tree.
//!
//! The run has the entries between two cuts; see [`crate::external_tree`]. Runs are ordered by sequence number, like those of
//! flushes. Compactions merge them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, Result};

use crate::compaction::EntrySink;
use crate::external_tree::{SpillReaders, SpillingTree};
use crate::store::jobs::environment::TableEnvironment;
use crate::store::jobs::install::{install, install_outputs};
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::sorted_view::refresh_views;
use crate::store::jobs::table_output::TableOutput;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::version::VersionEdit;

/// A spill of the external tree of a tree.
struct SpillJob<'s> {
    env: TableEnvironment<'s>,
    tree: Arc<Tree>,
}

impl BackgroundJob for SpillJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.insert(self.tree.id);
    }

    fn run(&self) -> Result<()> {
        // A checkpoint may have been installed since the job was picked; then no spill may be due any more.
        let spilling = self.tree.backend().due_spill(&self.tree.state().version);
        spilling.map_or(Ok(()), |spilling| spill(&self.env, &self.tree, spilling))
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.tree.id);
    }
}

/// Writes the oldest entries of an external tree to an sstable of level 0 of its tree, and has it remove them.
fn spill(env: &TableEnvironment<'_>, tree: &Arc<Tree>, spilling: &dyn SpillingTree) -> Result<()> {
    env.install.health.check()?;
    // In this order: readers that register later read at or above the published number.
    let oldest_in_use = env.merge.snapshots.oldest();
    let readers = SpillReaders { published: env.merge.snapshots.published(), oldest_in_use };
    let before = spilling.spilled_through();
    let mut output = TableOutput::new(env.merge.files, env.merge.options, tree, u64::MAX, 0);
    let cut =
        spilling.write_spill(readers, &mut |write| output.add(write.key, write.trailer, write.value))?;
    if cut < before || cut > readers.published {
        return Err(Error::internal(format!("a spill through {cut}, after one through {before}")));
    }
    let tables = output.finish()?.tables;
    if let Some(run) = tables.first().map(|table| table.number) {
        let written: Vec<u64> = tables.iter().map(|table| table.number).collect();
        let bytes = tables.iter().map(|table| table.file_bytes).sum();
        let mut edit = VersionEdit::new();
        edit.add_tables(tree.id, 0, run, tables);
        edit.note_written(tree.id, bytes);
        // The log is synced first: a power cut must not lose a write that an sstable has.
        install_outputs(env.install, &written, || install(env.install, tree, edit, &[]))?;
        tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    if cut > before {
        spilling.finish_spill(cut)?;
    }
    refresh_views(env.views(), tree)
}

/// Picks a tree with an external tree that has to spill.
pub(in crate::store) fn pick_spill<'s>(
    env: TableEnvironment<'s>,
    trees: &TreeDirectory,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let trees = trees.load();
    let is_due = |tree: &&Arc<Tree>| {
        !work.flushing.contains(&tree.id) && tree.backend().due_spill(&tree.state_guard().version).is_some()
    };
    let tree = trees.values().find(is_due)?;
    Some(Box::new(SpillJob { env, tree: tree.clone() }))
}
