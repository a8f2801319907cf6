//! The immutable sorted runs of one tree.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{SequenceNumber, TreeId};

use super::LEVELS;
use super::boundaries::{self, Boundaries};
use super::catalogue::TreeEntry;
use super::sorted_run::SortedRun;
use super::table_handle::TableHandle;
use crate::attachments::Attachments;
use crate::range_tombstones::{RangeTombstone, RangeTombstones};

/// The state of a tree on disk at one moment: sorted runs and deleted ranges.
///
/// A version never changes. Its sstables remain readable while a reference to it exists.
///
/// # Invariants
/// * Runs are ordered by age, newest first: levels ascending, within a level ids descending. For one
///   key, every version in an earlier run is newer than every version in a later one.
/// * No sstable crosses a boundary of its level.
/// * A file number occurs once.
#[derive(Debug)]
pub struct Version {
    tree: TreeId,
    runs: Vec<Arc<SortedRun>>,
    range_tombstones: Arc<RangeTombstones>,
    /// The layer above's data about all sstables together.
    attachments: Attachments,
    boundaries: [Arc<Boundaries>; LEVELS],
}

impl Version {
    /// The version that `entry` describes. Runs that are the same in `before` are shared with it.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub(super) fn of(tree: TreeId, entry: &TreeEntry, before: Option<&Self>) -> Result<Self, String> {
        let mut grouped: BTreeMap<(usize, Reverse<u64>), Vec<Arc<TableHandle>>> = BTreeMap::new();
        for placed in entry.tables.values() {
            let place = (placed.level, Reverse(placed.run));
            grouped.entry(place).or_default().push(Arc::clone(&placed.handle));
        }
        let mut runs = Vec::with_capacity(grouped.len());
        for ((level, Reverse(id)), tables) in grouped {
            if level >= LEVELS {
                return Err(format!("tree {tree} has a level {level}"));
            }
            let run = match before.and_then(|before| before.same_run(level, id, &tables)) {
                Some(run) => run,
                None => {
                    let run = SortedRun::new(level, id, tables);
                    Arc::new(run.map_err(|what| format!("tree {tree}: {what}"))?)
                }
            };
            runs.push(run);
        }
        let range_tombstones = Arc::clone(&entry.range_tombstones);
        let (attachments, boundaries) = (Attachments::default(), entry.boundaries.clone());
        let version = Self { tree, runs, range_tombstones, attachments, boundaries };
        version.check_runs()?;
        Ok(version)
    }

    /// A version of `runs`, for tests of shapes that otherwise require a large tree.
    #[cfg(test)]
    pub(crate) fn of_runs(tree: TreeId, runs: Vec<SortedRun>) -> Result<Self, String> {
        let runs = runs.into_iter().map(Arc::new).collect();
        let (range_tombstones, attachments, boundaries) = Default::default();
        let version = Self { tree, runs, range_tombstones, attachments, boundaries };
        version.check()?;
        Ok(version)
    }

    /// The run of this version that consists of exactly `tables`, in any order.
    fn same_run(&self, level: usize, id: u64, tables: &[Arc<TableHandle>]) -> Option<Arc<SortedRun>> {
        let run = self.run(level, id)?;
        let mut old: Vec<_> = run.tables().iter().map(Arc::as_ptr).collect();
        let mut new: Vec<_> = tables.iter().map(Arc::as_ptr).collect();
        old.sort_unstable();
        new.sort_unstable();
        (old == new).then(|| Arc::clone(run))
    }

    /// Checks the invariants between runs.
    fn check_runs(&self) -> Result<(), String> {
        let tree = self.tree;
        for pair in self.runs.windows(2) {
            let [newer, older] = pair else { continue };
            if (newer.level(), Reverse(newer.id())) >= (older.level(), Reverse(older.id())) {
                return Err(format!("the runs of tree {tree} are out of order"));
            }
        }
        for run in &self.runs {
            let keys = self.boundaries(run.level());
            let mut metas = run.tables().iter().map(|table| table.meta());
            if let Some(meta) = metas.find(|meta| boundaries::crossed(keys, meta).is_some()) {
                let (number, level) = (meta.number, run.level());
                return Err(format!("sstable {number} reaches across a boundary of level {level}"));
            }
        }
        Ok(())
    }

    /// Checks the invariants, as far as metas determine them. Linear in the sstables.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn check(&self) -> Result<(), String> {
        self.check_runs()?;
        let mut numbers: Vec<_> = self.tables().map(|table| table.meta().number).collect();
        numbers.sort_unstable();
        if let Some([number, _]) = numbers.windows(2).find(|pair| matches!(pair, [one, two] if one == two)) {
            return Err(format!("sstable {number} is in tree {} twice", self.tree));
        }
        self.runs.iter().try_for_each(|run| run.check())?;
        let mut metas = self.tables().map(|table| table.meta());
        let broken = metas.find_map(|meta| meta.check().err().map(|what| (meta.number, what)));
        broken.map_or(Ok(()), |(number, what)| Err(format!("sstable {number}: {what}")))
    }

    /// The tree.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// The layer above's data about the version, for the life of the version.
    #[inline]
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// All runs, newest first: the order in which a lookup searches them.
    #[inline]
    pub fn runs(&self) -> &[Arc<SortedRun>] {
        &self.runs
    }

    /// The runs of one level, newest first.
    pub fn level(&self, level: usize) -> &[Arc<SortedRun>] {
        let start = self.runs.partition_point(|run| run.level() < level);
        let rest = self.runs.get(start..).unwrap_or_default();
        let count = rest.partition_point(|run| run.level() == level);
        rest.get(..count).unwrap_or_default()
    }

    /// The boundaries of `level`; see [`partitions`](Self::partitions).
    pub fn boundaries(&self, level: usize) -> &Boundaries {
        static NONE: Boundaries = Boundaries::new();
        self.boundaries.get(level).map_or(&NONE, |boundaries| boundaries)
    }

    /// All levels, the first on disk first, each with its runs, newest first.
    pub fn levels(&self) -> [&[Arc<SortedRun>]; LEVELS] {
        std::array::from_fn(|level| self.level(level))
    }

    /// The number of runs of the first level: flushes add runs, compactions remove them.
    pub fn first_level_runs(&self) -> usize {
        self.level(0).len()
    }

    /// The run with this id in this level.
    pub fn run(&self, level: usize, id: u64) -> Option<&Arc<SortedRun>> {
        self.level(level).iter().find(|run| run.id() == id)
    }

    /// All sstables, in the order of the runs.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs.iter().flat_map(|run| run.tables())
    }

    /// The sstable with this number. Linear.
    pub fn table(&self, number: u64) -> Option<&Arc<TableHandle>> {
        self.tables().find(|table| table.meta().number == number)
    }

    /// The deleted ranges whose writes are flushed.
    #[inline]
    pub fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        &self.range_tombstones
    }

    /// The length of all sstables in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.file_bytes()).sum()
    }

    /// The entries of all sstables, tombstones and old versions included.
    pub fn entries(&self) -> u64 {
        self.tables().map(|table| table.meta().entries).sum()
    }

    /// The range tombstones that hide nothing any more and may be removed from the ledger.
    ///
    /// A tombstone is spent if it is at or below `oldest`, the oldest sequence number of any reader, and at or below `flushed`,
    /// through which all writes of the tree are in sstables; and if every sstable in its range is newer or was written without
    /// the entries it hides. The caller checks whether an index still needs it. Cost: tombstones × sstables.
    pub fn spent_range_tombstones(
        &self,
        oldest: SequenceNumber,
        flushed: SequenceNumber,
    ) -> Vec<RangeTombstone> {
        let limit = oldest.min(flushed);
        let hides_something = |tombstone: &RangeTombstone| {
            self.tables().map(|table| table.meta()).any(|meta| {
                meta.smallest_sequence < tombstone.sequence
                    && meta.filtered_through < tombstone.sequence
                    && tombstone.overlaps(&meta.smallest_key, &meta.largest_key)
            })
        };
        let all = self.range_tombstones.iter();
        all.filter(|one| one.sequence <= limit && !hides_something(one)).cloned().collect()
    }
}
