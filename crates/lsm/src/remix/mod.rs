//! REMIX: a persistent sorted view over many runs.
//!
//! Sorted runs are immutable, so their merge order is too. A [`Remix`] stores that order: about one byte for each
//! entry, which names its run, and for every 16 to 64 entries an anchor key and a position in each run. A
//! [`SortedView`] reads runs through it: it seeks with one binary search over all of them, and steps without
//! key comparisons (REMIX §3).
//!
//! ```text
//! anchors      apple               grape               peach          first key of each segment
//! segments     0 2 1 2 2' 0 ...    1 1 0 2 ...         2 0 ...        runs of the entries, ' same key as before
//! offsets      0,0 0,0 0,0         0,9 1,3 2,0         ...            block and entry number in each run
//! runs         000012.sst          000013.sst          000015.sst
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `selectors` | the run selector of each entry; counting by bit masks |
//! | `forks` | the bits in which neighbouring keys first differ; the search by them |
//! | `descent` | that search with SSE2 |
//! | `segments` | selectors, forks, tags and cursor offsets |
//! | `anchors` | the first keys of all segments, searched first |
//! | `run` | a sorted run with its entries by position |
//! | `segmenter` | cuts a sequence of entries into segments |
//! | `build` | a REMIX from runs |
//! | `rebuild` | a REMIX from an older one and new runs |
//! | `new_runs` | the entries of the new runs in a rebuild |
//! | `retained_runs` | the runs of the older REMIX in a rebuild |
//! | `format` | the file format; also in `docs/formats/remix.md` |
//! | `describe` | a text description of a file |
//! | `view` | a REMIX with its runs; point reads |
//! | `search` | the binary search in a segment |
//! | `cursor` | a cursor over all versions, in both directions |
//! | `run_position` | the position of a cursor in one run |
//! | `read_ahead` | reading ahead of scans whose blocks are not in the cache |
//! | `run_prefetch` | prefetching of the runs of the next entries |
//! | `staged_seek` | a seek in stages that overlaps memory latency with other seeks |
//! | `linear_search` | a seek without a search in the segment (feature `paper`) |
//! | `visible` | a cursor over the versions visible at one sequence number |
//! | `level` | a level of a tree with a view for each partition |
//! | `level_cursor` | a cursor over the partitions of a level |

mod anchors;
mod build;
mod cursor;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod descent;
mod describe;
mod forks;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod level;
mod level_cursor;
#[cfg(any(test, feature = "paper"))]
mod linear_search;
mod new_runs;
mod read_ahead;
mod rebuild;
mod retained_runs;
mod run;
mod run_position;
mod run_prefetch;
mod search;
mod segmenter;
mod segments;
mod selectors;
mod staged_seek;
#[cfg(test)]
mod tests;
mod view;
mod visible;

use std::fmt;
use std::sync::Arc;

use anchors::Anchors;
use bolide_memory::MemoryPool;
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

/// Options for building a [`Remix`].
///
/// ```
/// use bolide_lsm::remix::RemixOptions;
/// let options = RemixOptions::default().segment_entries(64).tags(true);
/// assert_eq!((options.segment_entries, options.tags), (64, true));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemixOptions {
    /// D, the maximum number of entries of a segment: 16, 32 or 64; other values are rounded up. At least the number
    /// of runs. Default 32. Larger segments need less space for anchors and offsets and slightly more search time
    /// (REMIX §3.4, Figure 13).
    pub segment_entries: usize,
    /// Whether each entry has a tag, one byte of the hash of its key. Default false. With tags, point reads read no
    /// entry for most absent keys; without forks, they read one entry for a present key instead of searching the
    /// segment. Costs one byte for each entry.
    pub tags: bool,
    /// Whether each entry has a fork: a byte with the first bit in which its key differs from the previous key.
    /// Default true. A search in a segment then usually reads one entry, where a binary search reads one entry of
    /// each run that it compares with (REMIX §3.2). Costs one byte for each entry.
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

    /// The number of selectors of a segment over `runs` runs.
    fn width_for(&self, runs: usize) -> usize {
        match self.segment_entries.max(runs) {
            0..=16 => 16,
            17..=32 => 32,
            _ => 64,
        }
    }
}

/// The identity and size of an sstable, as stored in a REMIX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TableName {
    file_number: u64,
    blocks: u64,
    entries: u64,
}

/// The merge order of all entries of some sorted runs. Does not hold the runs: [`SortedView`] has both.
///
/// Runs are numbered from 0. Of two entries with equal key and sequence number, the one of the run with the
/// smaller number comes first.
pub struct Remix {
    /// The sstables of each run, in key order.
    tables: Vec<Vec<TableName>>,
    segments: Segments,
    anchors: Anchors,
    entries: u64,
}

impl Remix {
    /// The same REMIX in the memory of `pool`.
    #[must_use]
    fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        Self { segments: self.segments.moved_to(pool), anchors: self.anchors.moved_to(pool), ..self }
    }

    /// The number of runs.
    pub fn runs(&self) -> usize {
        self.tables.len()
    }

    /// The number of entries, including old versions and tombstones.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.segments.count()
    }

    /// Whether entries have tags.
    pub fn has_tags(&self) -> bool {
        self.segments.layout.tags
    }

    /// Whether entries have forks.
    pub fn has_forks(&self) -> bool {
        self.segments.layout.forks
    }

    /// The file numbers of the sstables of run number `run`, in key order.
    pub fn table_numbers(&self, run: usize) -> impl Iterator<Item = u64> {
        self.tables.get(run).into_iter().flatten().map(|table| table.file_number)
    }

    /// The memory use in bytes.
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

/// The error for an inconsistent REMIX.
#[cold]
fn contradiction() -> bolide_base::Error {
    bolide_base::Error::new(bolide_base::ErrorKind::Corruption, "the REMIX is inconsistent")
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
