//! Compaction in memory: the visible versions of full memtables become one memtable, and nothing is written.
//!
//! If records are overwritten often, most entries of a full memtable are hidden by newer versions. A flush drops these,
//! but writes the newest version of each key, and the next flush or compaction writes the key again. A compaction in
//! memory retains them in memory until they are many or old. Accordion (Bortnikov et al., VLDB 2018) does the same for
//! HBase.
//!
//! ```text
//! full memtables      [writers, newest] [writers] [compacted]  [retained]      of one tree, by age
//! becomes             [compacted                            ]  [retained]
//! ```
//!
//! # Conditions
//! As soon as a memtable is full, if at least [`HIDDEN_PERCENT`] of the entries of writers since the last compaction
//! are hidden by newer versions, and the rest is expected to fit into one memtable. This is an estimate by numbers of
//! keys: open views retain more versions, and several memtables may have the same keys. If the output is larger than a
//! memtable, it is flushed at once, together with all pending memtables.
//!
//! # Durability
//! The log does not change: the output needs every segment that its inputs need. After a crash all versions come back,
//! with the same visibility. The output is flushed like any full memtable, with the next ones or once it retains too
//! many segments (see `segments`), so recovery replays no more than for a quiet memtable.
//!
//! # Visibility
//! The rules are those of a flush (see [`retention`](crate::compaction::Retention)): of each key the newest version of
//! each stripe remains, for the sequence numbers in use before. A reader has the old state, or has registered its
//! number by then, or reads at a later one. Sstables do not change, so cached rows do not either.
//!
//! # Exclusions
//! Memtables with merge operands, since these do not hide each other; trees with an external tree, which compacts by
//! itself; and trees with collectors, since the memtable indexes would have to be rebuilt.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, Trailer};

use crate::compaction::{EntrySink, MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::drop_listener::DropCollector;
use crate::memtable::Memtable;
use crate::options::StoreOptions;
use crate::store::jobs::environment::{MergeEnvironment, TableEnvironment};
use crate::store::jobs::job::{BackgroundJob, JobReport, PickedJob};
use crate::store::jobs::work::WorkState;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::{Tree, TreeState};

/// Minimum percentage of hidden entries in memtables filled by writers.
const HIDDEN_PERCENT: usize = 25;

/// Number of entries between two checks whether the work was abandoned.
const CHECK_INTERVAL: u64 = 1 << 12;

/// The output of a compaction in memory.
struct MemtableOutput {
    memtable: Memtable,
    /// Receives the dropped versions; `None` without a listener.
    drops: Option<Box<dyn DropCollector>>,
}

impl EntrySink for MemtableOutput {
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.memtable.insert(key, trailer, value);
        Ok(())
    }

    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        if let Some(drops) = &mut self.drops {
            drops.dropped(key, trailer, value);
        }
    }
}

/// The full memtables of `state` to be compacted in memory instead of flushed; empty if there are none. They are the
/// newest ones, down to the last output.
fn inputs(state: &TreeState, memtable_bytes: usize) -> &[Arc<LoggedMemtable>] {
    let (mut inputs, mut written, mut keys, mut left_bytes) = (0, 0, 0, 0);
    for (position, logged) in state.immutables.iter().enumerate() {
        let memtable = &logged.memtable;
        left_bytes += memtable.memory_bytes() / memtable.entries().max(1) * memtable.keys();
        if logged.is_retained() || memtable.has_operands() || left_bytes > memtable_bytes {
            break;
        }
        if logged.is_from_writers() {
            written += memtable.entries();
            keys += memtable.keys();
        }
        let hidden = written.saturating_sub(keys);
        if hidden > 0 && hidden >= written / 100 * HIDDEN_PERCENT {
            inputs = position + 1;
        }
    }
    let (inputs, others) = state.immutables.split_at(inputs);
    // Two outputs would exceed the memory of one memtable.
    if others.iter().any(|logged| logged.is_compacted()) { &[] } else { inputs }
}

/// A compaction of the full memtables of a tree.
struct MemoryCompactionJob<'s> {
    env: TableEnvironment<'s>,
    tree: Arc<Tree>,
}

impl BackgroundJob for MemoryCompactionJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.insert(self.tree.id);
    }

    fn run(&self) -> Result<()> {
        compact_memory(&self.env, &self.tree)
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.tree.id);
    }

    fn report(&self) -> JobReport {
        // A success does not prove that a full disk has space again.
        JobReport::Failure
    }
}

/// Picks a compaction in memory of a tree, if one is worth it.
pub(in crate::store) fn pick_memory_compaction<'s>(
    env: TableEnvironment<'s>,
    trees: &TreeDirectory,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let options = env.merge.options;
    if !options.memory_compaction {
        return None;
    }
    let trees = trees.load();
    let is_due = |tree: &&Arc<Tree>| !work.flushing.contains(&tree.id) && compacts_in_memory(options, tree);
    let tree = trees.values().find(is_due)?;
    Some(Box::new(MemoryCompactionJob { env, tree: tree.clone() }))
}

fn compacts_in_memory(options: &StoreOptions, tree: &Tree) -> bool {
    let state = tree.state_guard();
    state.pending_flushes() > 0
        && !tree.flush_all.load(Ordering::Acquire)
        && tree.backend().is_lsm()
        && !tree.attaches_at_flush()
        && tree.collectors.read().is_none()
        // With a limit of one full memtable, there is no memory for an output and the next full memtable.
        && options.max_immutable_memtables > 1
        && !inputs(&state, options.memtable_bytes).is_empty()
}

/// Compacts full memtables of `tree` into one with their visible versions.
fn compact_memory(env: &TableEnvironment<'_>, tree: &Arc<Tree>) -> Result<()> {
    let memtable_bytes = env.merge.options.memtable_bytes;
    let state = tree.state();
    let inputs = inputs(&state, memtable_bytes);
    let MemtableOutput { memtable, drops } = merge_visible(env.merge, tree, inputs)?;
    memtable.index_points_as(inputs.iter().map(|logged| &*logged.memtable));
    let entries: usize = inputs.iter().map(|logged| logged.memtable.entries()).sum();
    let dropped_entries = entries.saturating_sub(memtable.entries());
    let is_large = memtable.memory_bytes() > memtable_bytes;
    if !tree.compact_immutables(inputs, LoggedMemtable::compacted(memtable, inputs)) {
        return Ok(());
    }
    if is_large {
        tree.flush_all.store(true, Ordering::Release);
    }
    env.counters.memory_compactions.fetch_add(1, Ordering::Relaxed);
    env.counters.entries_dropped_in_memory.fetch_add(dropped_entries as u64, Ordering::Relaxed);
    let Some(drops) = drops else { return Ok(()) };
    // The writes that hide them may only be in the log: they must be durable before the listener relies on them.
    env.install.log.sync(env.install.health)?;
    drops.installed();
    Ok(())
}

/// Merges the versions of `inputs` that some view may see.
fn merge_visible(
    env: MergeEnvironment<'_>,
    tree: &Arc<Tree>,
    inputs: &[Arc<LoggedMemtable>],
) -> Result<MemtableOutput> {
    let drops = tree.drop_listener.read().as_ref().map(|listener| listener.begin());
    // In this order, no range tombstone at or below the first number in use is missing.
    let in_use = env.snapshots.in_use();
    let ranges = tree.state().merged_range_tombstones()?;
    let visibility = tree.flush_visibility(inputs, &in_use);
    let mut output = MemtableOutput {
        memtable: Memtable::with_budget_in(env.options.memtable_bytes, env.files.pages()),
        drops,
    };
    let mut retention = MergingRetention::new(Retention::new(in_use, ranges, false), None, true);
    let mut cursor =
        MergingCursor::new(inputs.iter().map(|logged| logged.memtable.cursor(visibility)).collect());
    cursor.seek_to_first()?;
    for entry in 0_u64.. {
        if entry.is_multiple_of(CHECK_INTERVAL) && env.stop.is_abandoned(tree) {
            return Err(Error::new(ErrorKind::Closed, "the compaction in memory was abandoned"));
        }
        if !cursor.valid() {
            break;
        }
        retention.add(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
        cursor.next()?;
    }
    retention.finish(&mut output)?;
    for range in inputs.iter().flat_map(|logged| logged.memtable.range_tombstones()) {
        output.memtable.delete_range(&range.start, &range.end, range.sequence);
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use bolide_base::EntryKind;

    use super::*;
    use crate::version::{RetainedLog, Version};

    #[test]
    fn a_compacted_memtable_replaces_all_inputs_or_none() {
        let full = || Arc::new(LoggedMemtable::default());
        let (newest, middle, oldest) = (full(), full(), full());
        let of = |immutables: &[&Arc<LoggedMemtable>]| TreeState {
            active: Arc::default(),
            immutables: immutables.iter().map(|logged| Arc::clone(logged)).collect(),
            version: Arc::new(Version::of_runs(1, Vec::new()).unwrap()),
            views: Default::default(),
        };
        let inputs = [newest.clone(), middle.clone()];
        let compacted = full();
        let later = full();
        let next = of(&[&later, &newest, &middle, &oldest]).compacted_in_memory(&inputs, compacted.clone());
        let expected = [&later, &compacted, &oldest];
        assert!(
            next.unwrap().immutables.iter().zip(expected).all(|(found, wanted)| Arc::ptr_eq(found, wanted))
        );
        for others in [vec![], vec![&newest], vec![&middle], vec![&oldest], vec![&newest, &oldest, &middle]] {
            assert!(of(&others).compacted_in_memory(&inputs, compacted.clone()).is_none());
        }
        assert!(of(&[&newest]).compacted_in_memory(&[], compacted).is_none());
    }

    /// Retained entries are in a part of the log that the manifest names, in a segment that may contain newer writes.
    #[test]
    fn retained_entries_are_not_compacted_in_memory() {
        let filled = |mut logged: LoggedMemtable, is_retained: bool| {
            for sequence in 1..=10 {
                logged.memtable.insert(b"key", Trailer::new(sequence, EntryKind::Put), b"value");
            }
            if is_retained {
                logged.note_retained(RetainedLog { segment: 3, start: 64, end: 100 });
            }
            Arc::new(logged)
        };
        let [newest, older] = [(); 2].map(|()| filled(LoggedMemtable::default(), false));
        let retained = filled(LoggedMemtable::retained(&bolide_memory::PagePool::new()), true);
        let compacted = filled(LoggedMemtable::compacted(Memtable::new(), &[]), false);
        let count = |immutables: &[&Arc<LoggedMemtable>]| {
            let immutables = immutables.iter().map(|&logged| logged.clone()).collect();
            let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
            let views = Default::default();
            inputs(&TreeState { active: Arc::default(), immutables, version, views }, 1 << 20).len()
        };
        assert_eq!(count(&[&newest, &older, &retained]), 2);
        assert_eq!(count(&[&newest, &compacted, &retained]), 2);
        assert_eq!((count(&[&retained]), count(&[&compacted]), count(&[])), (0, 0, 0));
    }

    /// Recovery needs all segments of the inputs, and their numbers determine the floor after a flush.
    #[test]
    fn a_compacted_memtable_needs_the_log_of_all_inputs() {
        let of_segments = |first: u64, last: u64| {
            let logged = LoggedMemtable::default();
            logged.note_log(first, 100 * first);
            logged.note_log(last, 100 * last);
            Arc::new(logged)
        };
        let inputs = [of_segments(6, 7), Arc::default(), of_segments(2, 5), of_segments(3, 3)];
        let compacted = LoggedMemtable::compacted(Memtable::new(), &inputs);
        assert_eq!((compacted.first_log(), compacted.last_log()), (Some(2), 7));
        assert_eq!(compacted.log_bytes_since_first(1_000), Some(800));
        assert!(compacted.is_compacted() && !compacted.is_from_writers() && !compacted.is_retained());
        assert_eq!(LoggedMemtable::compacted(Memtable::new(), &inputs[1..2]).first_log(), None);
    }
}
