//! Rewrites sstables that are older than an index in sstables, to add its blocks, if the kind requests that: `next` does
//! (NEXT §5).
//!
//! Such an index answers at once, because queries read sstables without its blocks completely. To make queries fast
//! these are rewritten, one by one, the oldest data first, at the rate of the build; compactions rewrite the others.
//! The manifest shows which sstables are left, so the work continues after a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use bolide_base::Result;
use bolide_lsm::store::RewriteOutcome;
use bolide_lsm::version::TableMeta;

use super::pace::Pace;
use super::{Job, check_wanted};
use crate::catalog::BuildPosition;
use crate::handle::Engine;
use crate::index_set::Index;
use crate::schema::OpenCollection;

/// The wait for compactions that already rewrite all sstables that are left.
const COMPACTION_WAIT: Duration = Duration::from_millis(20);

/// The numbers of the sstables that lack the blocks of the index; none for an index whose kind does not request rewrites.
pub(super) fn without_blocks(engine: &Engine, job: &Job) -> Result<BTreeSet<u64>> {
    let mut without = BTreeSet::new();
    if job.index.hooks.rewrites_sstables() && !job.options.leaves_old_sstables {
        engine.store.visit_tables(job.collection.tree, |meta, _| {
            if !job.index.hooks.is_carried_by(meta) {
                without.insert(meta.number);
            }
        })?;
    }
    Ok(without)
}

/// Notes in the progress of such an index the share of the collection's sstables with its blocks, according
/// to the manifest: also those that compactions rewrote.
///
/// # Errors
/// `NotFound` if the collection was dropped.
pub(crate) fn note_carried(engine: &Engine, collection: &OpenCollection, index: &Index) -> Result<()> {
    if !index.hooks.rewrites_sstables() {
        return Ok(());
    }
    let (mut carried, mut all) = (0, 0);
    engine.store.visit_tables(collection.tree, |meta, _| {
        all += meta.file_bytes;
        carried += if index.hooks.is_carried_by(meta) { meta.file_bytes } else { 0 };
    })?;
    index.progress.carry(carried, all);
    Ok(())
}

/// Rewrites the sstables that lack the blocks of the index.
///
/// # Errors
/// Those of [`Store::rewrite_one`](bolide_lsm::Store::rewrite_one); `Conflict` if the index was dropped meanwhile.
pub(super) fn old_sstables(engine: &Engine, job: &Job) -> Result<()> {
    let Job { collection, index, options } = job;
    // New sstables have blocks, unless they cannot have any.
    let old = without_blocks(engine, job)?;
    let runtime = &*engine.components.runtime;
    let mut pace = Pace::new(options, runtime);
    let wanted = |meta: &TableMeta| old.contains(&meta.number) && !index.hooks.is_carried_by(meta);
    note_carried(engine, collection, index)?;
    while !old.is_empty() {
        check_wanted(engine, collection, index)?;
        match engine.store.rewrite_one(collection.tree, wanted)? {
            RewriteOutcome::One { bytes, entries } => {
                note_carried(engine, collection, index)?;
                let done = BuildPosition { bytes, records: entries, ..BuildPosition::default() };
                pace.wait(done, runtime, || check_wanted(engine, collection, index))?;
            }
            RewriteOutcome::Busy => runtime.sleep(COMPACTION_WAIT),
            RewriteOutcome::Nothing => break,
        }
    }
    note_carried(engine, collection, index)
}
