//! Layouts: the arrangements of the sorted runs of a tree.
//!
//! A layout is a `LayoutStrategy` in a file of its own, registered in [`Layout`]. Other files use the strategy of a tree and
//! name no layout. A strategy decides:
//!
//! | decision | type |
//! |---|---|
//! | where flushes write | `FlushTarget` |
//! | which sstables are compacted | [`CompactionPolicy`] |
//! | which levels have sorted views | `ViewRule` |
//! | whether the last level has partitions | `LayoutStrategy::partition_tables` |
//!
//! [`policy`] has the input and the output of policies, [`flush_plan`] the actions of a flush on each partition.

pub mod flush_plan;
pub mod fragmented;
pub mod leveled;
pub mod partitioned;
pub mod policy;
pub mod tiered;

use self::policy::CompactionPolicy;

/// The arrangement and compaction of the sorted runs of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// One sorted run per level, each about ten times the one above: fast reads.
    #[default]
    Leveled,
    /// Runs of similar size are merged together: fewer bytes written, more runs to read.
    Tiered,
    /// Levels of partitions. A compaction adds a level's entries to the partitions of the next one, which are not rewritten
    /// except in the last level (PebblesDB's guards).
    Fragmented,
    /// One level of partitions that full memtables are flushed into: the fewest bytes written for writes with locality
    /// (REMIX §4.2).
    Partitioned,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 4] = [Self::Leveled, Self::Tiered, Self::Fragmented, Self::Partitioned];

    /// The name used in options and on the command line.
    pub fn name(self) -> &'static str {
        self.strategy().name()
    }

    /// The strategy of the layout: the registration.
    pub(crate) fn strategy(self) -> &'static dyn LayoutStrategy {
        match self {
            Self::Leveled => &leveled::LeveledLayout,
            Self::Tiered => &tiered::TieredLayout,
            Self::Fragmented => &fragmented::FragmentedLayout,
            Self::Partitioned => &partitioned::PartitionedLayout,
        }
    }

    /// The layout with this code; `None` if there is none.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.strategy().code() == code)
    }
}

/// Where full memtables are flushed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushTarget {
    /// The first level on disk, as a run of its own.
    FirstLevel,
    /// The partitions of the last level, several memtables together.
    Partitions,
}

/// The levels with sorted views, unless views are switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewRule {
    /// No level: one run is read at most.
    NoLevel,
    /// From this level on, if views are wanted for all trees.
    IfWantedFrom(usize),
    /// From this level on.
    From(usize),
}

/// The rules of a layout.
pub(crate) trait LayoutStrategy: Sync {
    /// The name used in options and on the command line.
    fn name(&self) -> &'static str;

    /// The code in the manifest, which never changes.
    fn code(&self) -> u8;

    /// The target of flushes.
    fn flush_target(&self) -> FlushTarget {
        FlushTarget::FirstLevel
    }

    /// The levels with sorted views.
    fn view_rule(&self) -> ViewRule;

    /// The number of sstables of a partition that is cut out of a sorted run; `None` if the last level has no partitions.
    fn partition_tables(&self) -> Option<usize> {
        None
    }

    /// The policy of compactions. A new sstable starts at `target_file_bytes`; a partition has at most `max_runs` sorted runs.
    fn policy(&self, target_file_bytes: u64, max_runs: usize) -> Box<dyn CompactionPolicy>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_found_by_their_codes() {
        for layout in Layout::ALL {
            assert_eq!(Layout::of_code(layout.strategy().code()), Some(layout));
            assert_eq!(Layout::ALL.iter().filter(|other| other.name() == layout.name()).count(), 1);
        }
        assert_eq!(Layout::of_code(Layout::ALL.len() as u8), None);
    }
}
