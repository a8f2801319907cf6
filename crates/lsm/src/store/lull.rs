//! Pauses in the writes to a tree, and the work that can wait for one: sorted views are renewed, kept trees are tidied.

use bolide_base::SequenceNumber;

use super::StoreInner;
use super::scheduler::{Job, Work};
use super::tree::Tree;

/// A pause counts once it has lasted so long.
const PAUSE_MICROS: u64 = 200_000;
/// Writes to a kept tree that do not end a pause: a few each millisecond.
const FEW_WRITES: u64 = 1_000;

/// A tree that is watched until nothing is written to it for a while.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lull {
    /// The last sequence number that was written to it when the watch began.
    sequence: SequenceNumber,
    /// When that was; 0 before the first look.
    since_micros: u64,
}

impl Lull {
    /// Whether writes to a tree, the newest of which is `newest`, pause at `now_micros`: for a while its numbers have not moved
    /// on by more than `few`.
    pub(super) fn has_lasted(&mut self, newest: SequenceNumber, few: u64, now_micros: u64) -> bool {
        if self.since_micros == 0 || newest.abs_diff(self.sequence) > few {
            *self = Self { sequence: newest, since_micros: now_micros.max(1) };
        }
        now_micros.saturating_sub(self.since_micros) >= PAUSE_MICROS
    }
}

/// Whether the views of `tree` are to be renewed now.
fn renews_now(tree: &Tree, lull: &mut Lull, now_micros: u64) -> bool {
    let state = tree.state_guard();
    let newest = state.memtables().filter_map(|logged| logged.memtable.largest_sequence()).max();
    lull.has_lasted(newest.unwrap_or(0), 0, now_micros) || state.views.are_wanted()
}

impl StoreInner {
    /// A tree whose sorted views are behind, once somebody wants them or it is quiet.
    pub(super) fn pick_renewal(&self, work: &mut Work) -> Option<Job> {
        let behind = self.views_behind(&mut work.view_failures_seen);
        work.views_are_due(behind);
        let trees = self.trees.load();
        work.views_due.retain(|tree, _| trees.contains_key(tree));
        let now = self.runtime.now_micros();
        let at_once = self.options.background_threads == 0;
        let due = work.views_due.iter_mut().filter_map(|(tree, seen)| Some((trees.get(tree)?, seen)));
        let mut ready =
            due.filter_map(|(tree, seen)| (at_once || renews_now(tree, seen, now)).then_some(tree));
        let tree = ready.next()?;
        Some(Job::Renew(tree.clone()))
    }

    /// A kept tree with garbage, once writes to it pause or somebody waits.
    pub(super) fn pick_tidying(&self, work: &mut Work) -> Option<Job> {
        let now = self.runtime.now_micros();
        let trees = self.trees.load();
        let Work { untidy, flushing, waiting, .. } = work;
        untidy.retain(|tree, _| trees.contains_key(tree));
        let kept = trees.values().filter_map(|tree| Some((tree, tree.keeper.get()?)));
        for (tree, keeper) in kept.filter(|(tree, _)| !flushing.contains(&tree.id)) {
            let Some(newest) = keeper.untidy_through(&|| self.snapshots.oldest()) else {
                untidy.remove(&tree.id);
                continue;
            };
            let lull = untidy.entry(tree.id).or_default();
            if lull.has_lasted(newest, FEW_WRITES, now) || *waiting > 0 {
                return Some(Job::Tidy(tree.clone()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_to_last_and_begins_anew_with_writes() {
        let mut lull = Lull::default();
        assert!(!lull.has_lasted(5, 0, 1_000));
        assert!(!lull.has_lasted(5, 0, PAUSE_MICROS));
        assert!(!lull.has_lasted(6, 0, 1_000 + PAUSE_MICROS));
        assert!(!lull.has_lasted(6, 0, 999 + 2 * PAUSE_MICROS));
        assert!(lull.has_lasted(6, 0, 1_000 + 2 * PAUSE_MICROS));
        assert!(!lull.has_lasted(7, 0, 2_000 + 2 * PAUSE_MICROS));
    }

    #[test]
    fn a_few_writes_are_a_pause_too() {
        let mut lull = Lull::default();
        assert!(!lull.has_lasted(5, 10, 1_000));
        assert!(lull.has_lasted(15, 10, 1_000 + PAUSE_MICROS));
        assert!(!lull.has_lasted(16, 10, 2_000 + PAUSE_MICROS));
    }
}
