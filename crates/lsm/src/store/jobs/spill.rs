//! Spill: the oldest entries of an external tree become a sorted run of its tree.
//!
//! The run has the entries between two cuts; see [`crate::external_tree`]. Runs are ordered by sequence number, like those of
//! flushes. Compactions merge them.
//!
//! A spill that fails is tried again after a [delay](crate::store::tree::spill_failures), so that other work goes on meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, Result, SequenceNumber};
use bolide_storage::Runtime;

use crate::compaction::EntrySink;
use crate::external_tree::{ExternalWrite, SpillingTree};
use crate::store::jobs::environment::TableEnvironment;
use crate::store::jobs::install::{install, install_outputs};
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::sorted_view::refresh_views;
use crate::store::jobs::table_output::TableOutput;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::version::{TableMeta, VersionEdit};

/// A spill of the external tree of a tree.
struct SpillJob<'s> {
    env: TableEnvironment<'s>,
    runtime: &'s dyn Runtime,
    tree: Arc<Tree>,
}

impl BackgroundJob for SpillJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.insert(self.tree.id);
    }

    fn run(&self) -> Result<()> {
        // A checkpoint may have been installed since the job was picked; then no spill may be due any more.
        let state = self.tree.state();
        let Some(spilling) = self.tree.backend().due_spill(&state.version) else { return Ok(()) };
        drop(state);
        let spilled = spill(&self.env, &self.tree, spilling);
        self.tree.spill_failures.note(&spilled, self.runtime.now_micros());
        spilled
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.tree.id);
    }
}

/// Writes the oldest entries of an external tree to an sstable of level 0 of its tree, and has it remove them.
fn spill(env: &TableEnvironment<'_>, tree: &Arc<Tree>, spilling: &dyn SpillingTree) -> Result<()> {
    env.install.health.check()?;
    let before = spilling.spilled_through();
    let published = env.merge.snapshots.published();
    let cut = spilling.choose_cut(published)?;
    if cut < before || cut > published {
        return Err(Error::internal(format!("a spill through {cut}, after one through {before}")));
    }
    if cut == before {
        return Ok(());
    }
    let tables = write_spill(env, tree, spilling, cut)?;
    install_spilled(env, tree, [tables])?;
    spilling.finish_spill(cut)?;
    refresh_views(env.views(), tree)
}

/// Writes the entries of an external tree through `cut` to sstables.
pub(in crate::store) fn write_spill(
    env: &TableEnvironment<'_>,
    tree: &Tree,
    spilling: &dyn SpillingTree,
    cut: SequenceNumber,
) -> Result<Vec<TableMeta>> {
    // Readers that register later read at or above the published number, which is at or above this one.
    let oldest_in_use = env.merge.snapshots.oldest();
    let mut output = TableOutput::new(env.merge.files, env.merge.options, tree, u64::MAX, 0);
    let add = &mut |write: ExternalWrite<'_>| output.add(write.key, write.trailer, write.value);
    spilling.write_spill(cut, oldest_in_use, add)?;
    output.finish().map(|finished| finished.tables)
}

/// Adds sorted runs of spilled entries to level 0 of `tree`, in one edit.
pub(in crate::store) fn install_spilled<const RUNS: usize>(
    env: &TableEnvironment<'_>,
    tree: &Arc<Tree>,
    runs: [Vec<TableMeta>; RUNS],
) -> Result<()> {
    let (mut edit, mut written, mut bytes) = (VersionEdit::new(), Vec::new(), 0);
    for tables in runs {
        let Some(run) = tables.first().map(|table| table.number) else { continue };
        written.extend(tables.iter().map(|table| table.number));
        bytes += tables.iter().map(|table| table.file_bytes).sum::<u64>();
        edit.add_tables(tree.id, 0, run, tables);
    }
    if written.is_empty() {
        return Ok(());
    }
    edit.note_written(tree.id, bytes);
    // The log is synced first: a power cut must not lose a write that an sstable has.
    install_outputs(env.install, &written, || install(env.install, tree, edit, &[]))?;
    tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

/// Picks a tree with an external tree that has to spill. Callers that wait for all work get the error of a failed spill, and do not
/// wait for its delay.
pub(in crate::store) fn pick_spill<'s>(
    env: TableEnvironment<'s>,
    runtime: &'s dyn Runtime,
    trees: &TreeDirectory,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let (trees, now) = (trees.load(), runtime.now_micros());
    let is_due = |tree: &&Arc<Tree>| {
        !work.flushing.contains(&tree.id)
            && (work.waiting > 0 || !tree.spill_failures.delay_at(now))
            && tree.backend().due_spill(&tree.state_guard().version).is_some()
    };
    let tree = trees.values().find(is_due)?;
    Some(Box::new(SpillJob { env, runtime, tree: tree.clone() }))
}
