//! REMIX: a sorted view over many runs, kept instead of computed.
//!
//! Sorted runs never change, so neither does the order in which their entries merge. A [`Remix`] keeps that order:
//! about one byte for each entry, which names its run, and every 16 to 64 entries a key and a place in each run. A
//! [`SortedView`] reads runs through it: it seeks with one binary search for all of them, and steps without
//! comparing keys (REMIX §3).
//!
//! ```text
//! anchors      apple               grape               peach          first key of each segment
//! segments     0 2 1 2 2' 0 ...    1 1 0 2 ...         2 0 ...        runs of the entries, ' same key as before
//! offsets      0,0 0,0 0,0         0,9 1,3 2,0         ...            block and entry in each run
//! runs         000012.sst          000013.sst          000015.sst
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `selectors` | the byte for each entry, and how they are counted |
//! | `forks` | the bits where keys part, and the search by them |
//! | `segments` | selectors, forks, tags and cursor offsets |
//! | `anchors` | the keys that a search looks through |
//! | `run` | a sorted run, its entries by place |
//! | `segmenter` | cuts a sequence of entries into segments |
//! | `build` | a REMIX from runs |
//! | `rebuild` | a REMIX from an older one and further runs |
//! | `format` | the file; its bytes are told there and in `docs/formats/remix.md` |
//! | `describe` | the file in words |
//! | `view` | a REMIX with its runs; point reads |
//! | `search` | the binary search in a segment |
//! | `cursor` | all versions in both directions |
//! | `run_place` | where a cursor is in one run |
//! | `coming` | the runs that come up behind a place |
//! | `prepare` | seeks that wait for memory together with others |
//! | `by_steps` | seeks without a search in the segment |
//! | `visible` | what a reader sees at one sequence number |
//! | `level` | a level of a tree, a view for each partition |
//! | `level_cursor` | partition after partition |

mod anchors;
mod build;
mod linear_search;
mod run_prefetch;
mod cursor;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod descent;
mod describe;
mod forks;
mod format;
mod new_runs;
#[doc(hidden)]
pub mod fuzzing;
mod retained_runs;
mod level;
mod level_cursor;
mod staged_seek;
mod rebuild;
mod run;
mod run_position;
mod search;
mod segmenter;
mod segments;
mod selectors;
#[cfg(test)]
mod tests;
mod view;
mod visible;

use std::fmt;
use std::sync::Arc;

use anchors::Anchors;
use segments::Segments;

pub use cursor::SortedViewCursor;
pub use describe::describe_remix;
pub use format::REMIX_FORMAT_VERSION;
pub use level::{ViewedLevel, ViewedPartition};
pub use level_cursor::{PartitionCursor, PartitionRun, PartitionSource};
pub use rebuild::RebuildCost;
pub use run::ViewRun;
pub use selectors::MAX_RUNS;
pub use view::SortedView;
pub use visible::VisibleViewCursor;

/// How a [`Remix`] is built.
///
/// ```
/// use bolide_lsm::remix::RemixOptions;
/// let options = RemixOptions::default().segment_entries(64).tags(true);
/// assert_eq!((options.segment_entries, options.tags), (64, true));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemixOptions {
    /// D, the most entries of a segment: 16, 32 or 64, other values are rounded up. At least as many as there are
    /// runs. Default 32. Larger segments take less space for anchors and offsets and a little more time to search
    /// (REMIX §3.4, Figure 13).
    pub segment_entries: usize,
    /// Whether each entry has a byte of the hash of its key: then point reads look at no entry for most absent
    /// keys, and without forks at one for others instead of searching the segment. Default false. Costs a byte for each
    /// entry.
    pub tags: bool,
    /// Whether each entry has a byte that says at which bit its key parts from the one before. Default true. A search
    /// in a segment then reads one entry, as a rule, where a binary search reads one of each run that it meets
    /// (REMIX §3.2), and point reads need no tags to read one entry alone. Costs a byte for each entry.
    pub forks: bool,
}

impl Default for RemixOptions {
    fn default() -> Self {
        Self { segment_entries: 32, tags: false, forks: true }
    }
}

impl RemixOptions {
    /// Sets [`segment_entries`](Self::segment_entries).
    #[must_use]
    pub fn segment_entries(mut self, entries: usize) -> Self {
        self.segment_entries = entries;
        self
    }

    /// Sets [`tags`](Self::tags).
    #[must_use]
    pub fn tags(mut self, written: bool) -> Self {
        self.tags = written;
        self
    }

    /// Sets [`forks`](Self::forks).
    #[must_use]
    pub fn forks(mut self, written: bool) -> Self {
        self.forks = written;
        self
    }

    /// The selectors of a segment over this many runs.
    fn width_for(&self, runs: usize) -> usize {
        match self.segment_entries.max(runs) {
            0..=16 => 16,
            17..=32 => 32,
            _ => 64,
        }
    }
}

/// An sstable as a REMIX names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TableName {
    file_number: u64,
    blocks: u64,
    entries: u64,
}

/// The order of all entries of some sorted runs. Says nothing without the runs: [`SortedView`] has both.
///
/// Runs are numbered from 0; where two entries are equal in key and sequence number, that of the run with the
/// smaller number comes first.
pub struct Remix {
    /// The sstables of each run, in key order.
    tables: Vec<Vec<TableName>>,
    segments: Segments,
    anchors: Anchors,
    entries: u64,
}

impl Remix {
    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.tables.len()
    }

    /// How many entries, old versions and tombstones included.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many segments.
    pub fn segments(&self) -> usize {
        self.segments.count()
    }

    /// Whether entries have tags.
    pub fn has_tags(&self) -> bool {
        self.segments.shape.tags
    }

    /// Whether entries have forks.
    pub fn has_forks(&self) -> bool {
        self.segments.shape.forks
    }

    /// The file numbers of the sstables of run number `run`, in key order.
    pub fn table_numbers(&self, run: usize) -> impl Iterator<Item = u64> {
        self.tables.get(run).into_iter().flatten().map(|table| table.file_number)
    }

    /// The bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.tables.iter().map(|tables| size_of_val(&**tables)).sum();
        self.segments.memory_bytes() + self.anchors.memory_bytes() + names
    }
}

impl fmt::Debug for Remix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remix")
            .field("runs", &self.runs())
            .field("entries", &self.entries)
            .field("segments", &self.segments())
            .finish_non_exhaustive()
    }
}

/// The error for a REMIX that contradicts itself.
#[cold]
fn contradiction() -> bolide_base::Error {
    bolide_base::Error::new(bolide_base::ErrorKind::Corruption, "a REMIX contradicts itself")
}

/// The names of the sstables of `run`.
fn tables_of(run: &Arc<ViewRun>) -> Vec<TableName> {
    let name = |reader: &Arc<bolide_table::TableReader>| TableName {
        file_number: reader.identity().file_number,
        blocks: reader.properties().data_blocks,
        entries: reader.properties().entries,
    };
    run.readers().map(name).collect()
}
