//! Compaction in memory: what is still visible of full memtables becomes one memtable, and nothing is written.
//!
//! Where records are written again and again, most of a full memtable are versions that a newer one hides. A flush drops these,
//! but writes the newest of each, which the next flush or compaction writes again. Here they stay in memory until they are many or old.
//! Accordion (Bortnikov et al., VLDB 2018) does so for HBase.
//!
//! ```text
//! full memtables      [writers, newest] [writers] [compacted]  [kept back]      of one tree, by age
//! becomes             [compacted                            ]  [kept back]
//! ```
//!
//! # When
//! As soon as a memtable is full, if at least [`HIDDEN_PERCENT`] of what writers put into it since are versions that newer
//! ones of their key stand before, and what is left of all is expected to take no more than one full memtable. It is a guess, by
//! numbers of keys: views that are open keep more, and keys that several memtables have are fewer than their sum.
//! What comes out larger is flushed at once, with all else that waits.
//!
//! # Why nothing is lost
//! The log is not touched: what is put together goes on to need every segment that its inputs need. After a crash
//! all versions come back, hidden as they were. It is flushed like any full memtable, with the next ones or once it
//! holds back too many segments (see `log`), so recovery has no more to replay than a quiet memtable may cause.
//!
//! # Why readers see the same
//! The rules are those of a flush (see [`retention`](crate::compaction::Retention)): of each key the newest version of each stripe stays, decided by the numbers in
//! use before. A reader has the state from before, or registered its number by then, or reads at a later one.
//! Sstables do not change, so cached rows do not either.
//!
//! # What is left out
//! Memtables with operands of merges, since these do not hide each other; trees with a keeper, which have other ways to do this; and trees with
//! collectors, since what an index says of a memtable would have to be made anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, Trailer};

use super::StoreInner;
use super::logged_memtable::LoggedMemtable;
use super::scheduler::{BackgroundJob, WorkState};
use super::tree::{Tree, TreeState};
use crate::compaction::{EntrySink, MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::drop_listener::DropCollector;
use crate::memtable::Memtable;

/// Percent of the entries of memtables that writers filled which have to be hidden.
const HIDDEN_PERCENT: usize = 25;

/// After so many entries it is looked whether the work is still wanted.
const LOOK_EVERY: u64 = 1 << 12;

/// Takes what is kept.
struct MemtableOutput {
    memtable: Memtable,
    /// Is told what is left out, if anybody wants to know.
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

/// The full memtables of `state` that had better be put together than flushed; empty if there are none. They are the newest ones
/// down to what was put together last.
fn inputs(state: &TreeState, memtable_bytes: usize) -> &[Arc<LoggedMemtable>] {
    let (mut inputs, mut written, mut keys, mut left_bytes) = (0, 0, 0, 0);
    for (position, logged) in state.immutables.iter().enumerate() {
        let memtable = &logged.memtable;
        left_bytes += memtable.memory_bytes() / memtable.entries().max(1) * memtable.keys();
        if logged.is_retained() || memtable.has_operands() || left_bytes > memtable_bytes {
            break;
        }
        if logged.is_of_writers() {
            written += memtable.entries();
            keys += memtable.keys();
        }
        let hidden = written.saturating_sub(keys);
        if hidden > 0 && hidden >= written / 100 * HIDDEN_PERCENT {
            inputs = position + 1;
        }
    }
    let (inputs, others) = state.immutables.split_at(inputs);
    // Two that were put together would take more memory than one may.
    if others.iter().any(|logged| logged.is_compacted()) { &[] } else { inputs }
}

impl StoreInner {
    /// A tree whose full memtables had better be compacted in memory than flushed.
    pub(super) fn pick_memory_compaction(&self, work: &WorkState) -> Option<BackgroundJob> {
        if !self.options.memory_compaction {
            return None;
        }
        let trees = self.trees.load();
        let due = |tree: &&Arc<Tree>| !work.flushing.contains(&tree.id) && self.compacts_in_memory(tree);
        trees.values().find(due).map(|tree| BackgroundJob::CompactMemory(tree.clone()))
    }

    fn compacts_in_memory(&self, tree: &Tree) -> bool {
        let state = tree.state_guard();
        state.pending_flushes() > 0
            && !tree.flush_all.load(Ordering::Acquire)
            && tree.external_tree.get().is_none()
            && tree.collectors.read().is_none()
            // Who allows for one full memtable has no memory for what is left of it and the next one.
            && self.options.max_immutable_memtables > 1
            && !inputs(&state, self.options.memtable_bytes).is_empty()
    }

    /// Puts together what is visible of the full memtables of `tree`.
    pub(super) fn compact_memory(&self, tree: &Arc<Tree>) -> Result<()> {
        let state = tree.state();
        let inputs = inputs(&state, self.options.memtable_bytes);
        let MemtableOutput { memtable, drops } = self.visible_in(tree, inputs)?;
        memtable.index_points_as(inputs.iter().map(|logged| &*logged.memtable));
        let entries: usize = inputs.iter().map(|logged| logged.memtable.entries()).sum();
        let left_out = entries.saturating_sub(memtable.entries());
        let is_large = memtable.memory_bytes() > self.options.memtable_bytes;
        if !tree.compact_immutables(inputs, LoggedMemtable::compacted(memtable, inputs)) {
            return Ok(());
        }
        if is_large {
            tree.flush_all.store(true, Ordering::Release);
        }
        self.counters.memory_compactions.fetch_add(1, Ordering::Relaxed);
        self.counters.entries_dropped_in_memory.fetch_add(left_out as u64, Ordering::Relaxed);
        let Some(drops) = drops else { return Ok(()) };
        // What hides them may be in the log alone: it has to be safe before anybody relies on it.
        self.sync_log()?;
        drops.installed();
        Ok(())
    }

    /// What some view may see of `inputs`.
    fn visible_in(&self, tree: &Arc<Tree>, inputs: &[Arc<LoggedMemtable>]) -> Result<MemtableOutput> {
        let drops = tree.drop_listener.read().as_ref().map(|listener| listener.begin());
        // In this order: no range tombstone at or below the first number in use is missing then.
        let in_use = self.snapshots.in_use();
        let ranges = tree.state().merged_range_tombstones()?;
        let shown = tree.shown(inputs, &in_use);
        let mut output =
            MemtableOutput { memtable: Memtable::with_budget(self.options.memtable_bytes), drops };
        let mut retention = MergingRetention::new(Retention::new(in_use, ranges, false), None, true);
        let mut cursor =
            MergingCursor::new(inputs.iter().map(|logged| logged.memtable.cursor(shown)).collect());
        cursor.seek_to_first()?;
        for entry in 0_u64.. {
            if entry.is_multiple_of(LOOK_EVERY) && self.is_abandoned(tree) {
                return Err(Error::new(ErrorKind::Closed, "the memtables are not wanted any more"));
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
}

#[cfg(test)]
mod tests {
    use bolide_base::EntryKind;

    use super::*;
    use crate::version::{RetainedLog, Version};

    #[test]
    fn what_was_compacted_takes_the_place_of_its_inputs_or_none() {
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

    /// What was kept back lies in a part of the log that the manifest names, in a segment that newer writes may be in as well.
    #[test]
    fn what_was_kept_back_is_no_input() {
        let filled = |mut logged: LoggedMemtable, is_kept_back: bool| {
            for sequence in 1..=10 {
                logged.memtable.insert(b"key", Trailer::new(sequence, EntryKind::Put), b"value");
            }
            if is_kept_back {
                logged.note_retained(RetainedLog { segment: 3, start: 64, end: 100 });
            }
            Arc::new(logged)
        };
        let [newest, older] = [(); 2].map(|()| filled(LoggedMemtable::default(), false));
        let kept_back = filled(LoggedMemtable::retained(), true);
        let compacted = filled(LoggedMemtable::compacted(Memtable::new(), &[]), false);
        let count = |immutables: &[&Arc<LoggedMemtable>]| {
            let immutables = immutables.iter().map(|&logged| logged.clone()).collect();
            let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
            let views = Default::default();
            inputs(&TreeState { active: Arc::default(), immutables, version, views }, 1 << 20).len()
        };
        assert_eq!(count(&[&newest, &older, &kept_back]), 2);
        assert_eq!(count(&[&newest, &compacted, &kept_back]), 2);
        assert_eq!((count(&[&kept_back]), count(&[&compacted]), count(&[])), (0, 0, 0));
    }

    /// Recovery needs all that its inputs need, and their numbers tell what a flush of it has.
    #[test]
    fn what_was_compacted_needs_the_log_of_all_inputs() {
        let of_segments = |first: u64, last: u64| {
            let logged = LoggedMemtable::default();
            logged.note_log(first, 100 * first);
            logged.note_log(last, 100 * last);
            Arc::new(logged)
        };
        let inputs = [of_segments(6, 7), Arc::default(), of_segments(2, 5), of_segments(3, 3)];
        let compacted = LoggedMemtable::compacted(Memtable::new(), &inputs);
        assert_eq!((compacted.first_log(), compacted.last_log()), (Some(2), 7));
        assert_eq!(compacted.log_bytes_held(1_000), Some(800));
        assert!(compacted.is_compacted() && !compacted.is_of_writers() && !compacted.is_retained());
        assert_eq!(LoggedMemtable::compacted(Memtable::new(), &inputs[1..2]).first_log(), None);
    }
}
