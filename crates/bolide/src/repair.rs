//! Commits the deletions of stale index entries that compactions of the records told of (see
//! [`crate::repairs`]): by a thread, or, without background threads, by writers before they write.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bolide_base::{Result, TreeId};
use bolide_lsm::{StoreBatch, SyncMode};

use crate::handle::{Engine, Handle};
use crate::repairs::repairs;

/// How often the thread looks whether the database is being closed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Engine {
    /// Commits all deletions that wait. To be called without the schema lock.
    ///
    /// # Errors
    /// As any commit; what was not committed goes on waiting.
    pub(crate) fn commit_repairs(&self) -> Result<()> {
        let _committing = self.repairs.committing.lock();
        while self.repairs.is_due() {
            // Held until the commit is done: no tree goes meanwhile.
            let schema = self.schema.read();
            let taken = self.repairs.take();
            let trees: HashSet<TreeId> = schema
                .values()
                .flat_map(|collection| {
                    collection.indexes().all().iter().map(|index| index.tree).collect::<Vec<_>>()
                })
                .collect();
            let mut batch = StoreBatch::new();
            for (tree, key) in taken.iter().filter(|(tree, _)| trees.contains(tree)) {
                batch.delete(*tree, key)?;
            }
            if batch.is_empty() {
                continue;
            }
            if let Err(error) = self.store.commit(batch, None, SyncMode::None) {
                self.repairs.add(taken);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Starts the thread that commits deletions, if an index of the database needs one and there is none. Without
/// background threads writers do it before they write.
///
/// # Errors
/// Those of starting a thread.
pub(crate) fn start(handle: &Handle) -> Result<()> {
    let engine = &handle.engine;
    if engine.read_only || !engine.builds_in_background {
        return Ok(());
    }
    let wanted = engine
        .schema
        .read()
        .values()
        .any(|collection| collection.indexes().all().iter().any(|index| repairs(index.spec())));
    if !wanted || engine.repairs.has_thread.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let engine = engine.clone();
    let runtime = engine.components.runtime.clone();
    let thread = runtime.spawn("bolide-repair", Box::new(move || run(&engine)))?;
    handle.builders.lock().push(thread);
    Ok(())
}

fn run(engine: &Engine) {
    while !engine.is_closing() {
        // What failed goes on waiting; whoever writes next is told why.
        let failed = engine.commit_repairs().is_err();
        if !engine.is_closing() {
            engine.repairs.wait(failed, LOOK_EVERY);
        }
    }
}
