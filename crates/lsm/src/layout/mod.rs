//! Layouts: the arrangements of the sorted runs of a tree.
//!
//! A layout is a `LayoutStrategy` in a file of its own, registered by one line of [`Layout`]. Other files use the strategy of a tree and
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

use std::fmt;
use std::str::FromStr;

use bolide_base::{Error, ErrorKind, Result};

use self::policy::CompactionPolicy;

/// Declares [`Layout`]: one line for each strategy.
macro_rules! layouts {
    ($($(#[$attribute:meta])* $layout:ident = $strategy:expr,)*) => {
        /// The arrangement and compaction of the sorted runs of a tree. As text it is its [name](Self::name).
        ///
        /// ```
        /// use bolide_lsm::Layout;
        /// assert_eq!("tiered".parse::<Layout>()?, Layout::Tiered);
        /// assert!("flat".parse::<Layout>().is_err());
        /// # Ok::<(), bolide_base::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub enum Layout {
            $($(#[$attribute])* $layout,)*
        }

        impl Layout {
            /// All layouts.
            pub const ALL: [Self; [$(Self::$layout),*].len()] = [$(Self::$layout),*];

            /// The strategy of the layout.
            pub(crate) fn strategy(self) -> &'static dyn LayoutStrategy {
                match self {
                    $(Self::$layout => &$strategy,)*
                }
            }
        }
    };
}

// The registration of the strategies.
layouts! {
    /// One sorted run per level, each about ten times the one above: fast reads.
    #[default]
    Leveled = leveled::LeveledLayout,
    /// Runs of similar size are merged together: fewer bytes written, more runs to read.
    Tiered = tiered::TieredLayout,
    /// Levels of partitions. A compaction adds a level's entries to the partitions of the next one, which are not rewritten
    /// except in the last level (PebblesDB's guards).
    Fragmented = fragmented::FragmentedLayout,
    /// One level of partitions that full memtables are flushed into: the fewest bytes written for writes with locality
    /// (REMIX §4.2).
    Partitioned = partitioned::PartitionedLayout,
}

impl Layout {
    /// The name used in options and on the command line.
    pub fn name(self) -> &'static str {
        self.strategy().name()
    }

    /// Its use in a few words, for a list of choices.
    pub fn summary(self) -> &'static str {
        self.strategy().summary()
    }

    /// The layout with this code; `None` if there is none.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.strategy().code() == code)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    /// The layout with this name.
    ///
    /// # Errors
    /// `InvalidInput` with the names of all layouts.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
            let message =
                format!("layout `{name}`: the layouts are {}", Self::ALL.map(Self::name).join(", "));
            Error::new(ErrorKind::InvalidInput, message)
        })
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

    /// Its use in a few words.
    fn summary(&self) -> &'static str;

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
            assert_eq!(layout.name().parse::<Layout>().unwrap(), layout);
        }
        assert_eq!(Layout::of_code(Layout::ALL.len() as u8), None);
        let error = "Leveled".parse::<Layout>().unwrap_err().to_string();
        assert!(error.contains("leveled, tiered, fragmented, partitioned"), "{error}");
    }
}
