//! Switches of hand-tuned techniques, so that their gain can be measured again.
//!
//! A technique is code that is faster than its plain counterpart and has the same result. Without the feature `switches` every
//! technique is on, at compile time. With the feature a benchmark turns techniques off for its process. The gains,
//! and the command that measures one, are in `docs/performance/techniques.md`.

#[cfg(feature = "switches")]
use std::sync::atomic::{AtomicU64, Ordering};

/// A technique that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Technique {
    /// One version in sixteen of a key stores a jump to an older one.
    VersionJumps,
    /// Keys of a memtable are found by their hash.
    PointIndex,
    /// A scan of a memtable prefetches entries and values ahead.
    MemtableScanPrefetch,
    /// A JSON record is scanned instead of parsed where no attribute is extracted.
    JsonScan,
    /// A put without derived entries bypasses the batch.
    PutWithoutBatch,
    /// The secondary keys of an sstable are sorted by their differing bits.
    KeySortByBits,
    /// The entry of a block is prefetched where entries of other blocks are.
    EntryPrefetch,
    /// A merge lets one source step alone up to the next key of another one.
    SingleSourceSteps,
    /// All sources of a merge seek by stages together.
    StagedSeeks,
    /// A seek prefetches the runs of a scan where the predictor expects one.
    ScanPrediction,
    /// Samples of anchors are sampled again.
    AnchorSamples,
    /// Sixteen forks of a segment are compared at once.
    ForkGroups,
    /// A step of a view that finds the next block pinned takes a short path.
    PinnedSteps,
    /// The blocks of the next entries of a view are pinned ahead.
    BlocksPinnedAhead,
    /// A view skips old versions by their selectors.
    VersionSkips,
    /// Presence words exclude keys without obsolete entries from the version table.
    PresenceWords,
    /// The newest keys of a value come from the index alone, without the lookup driver.
    NewestKeys,
    /// Records found through index blocks are read by hundreds.
    ReadsByLocation,
    /// A put without another writer commits without a queue and a batch.
    SinglePuts,
    /// The hash slot of a put's key is prefetched while its log record is written.
    PutPrefetch,
    /// What a write of a `ps-tree` index reads is prefetched while the write is logged.
    IndexWritePrefetch,
    /// Memory is advised to consist of large pages.
    LargePages,
    /// Large pages are touched ahead of the writer.
    PagesAhead,
    /// A sorted view is rebuilt from the previous one.
    ViewRebuilds,
    /// Sorted views are rebuilt for readers or in idle time.
    DelayedViews,
    /// The sstables of a flush are published with the views over them.
    DeferredPublication,
}

/// The techniques that are off, a bit for each.
#[cfg(feature = "switches")]
static OFF: AtomicU64 = AtomicU64::new(0);

impl Technique {
    /// All techniques.
    pub const ALL: [Self; 26] = [
        Self::VersionJumps,
        Self::PointIndex,
        Self::MemtableScanPrefetch,
        Self::JsonScan,
        Self::PutWithoutBatch,
        Self::KeySortByBits,
        Self::EntryPrefetch,
        Self::SingleSourceSteps,
        Self::StagedSeeks,
        Self::ScanPrediction,
        Self::AnchorSamples,
        Self::ForkGroups,
        Self::PinnedSteps,
        Self::BlocksPinnedAhead,
        Self::VersionSkips,
        Self::PresenceWords,
        Self::NewestKeys,
        Self::ReadsByLocation,
        Self::SinglePuts,
        Self::PutPrefetch,
        Self::IndexWritePrefetch,
        Self::LargePages,
        Self::PagesAhead,
        Self::ViewRebuilds,
        Self::DelayedViews,
        Self::DeferredPublication,
    ];

    /// Its name on the command line.
    ///
    /// ```
    /// use bolide_base::technique::Technique;
    /// assert_eq!(Technique::PointIndex.name(), "point-index");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::VersionJumps => "version-jumps",
            Self::PointIndex => "point-index",
            Self::MemtableScanPrefetch => "memtable-scan-prefetch",
            Self::JsonScan => "json-scan",
            Self::PutWithoutBatch => "put-without-batch",
            Self::KeySortByBits => "key-sort-by-bits",
            Self::EntryPrefetch => "entry-prefetch",
            Self::SingleSourceSteps => "single-source-steps",
            Self::StagedSeeks => "staged-seeks",
            Self::ScanPrediction => "scan-prediction",
            Self::AnchorSamples => "anchor-samples",
            Self::ForkGroups => "fork-groups",
            Self::PinnedSteps => "pinned-steps",
            Self::BlocksPinnedAhead => "blocks-pinned-ahead",
            Self::VersionSkips => "version-skips",
            Self::PresenceWords => "presence-words",
            Self::NewestKeys => "newest-keys",
            Self::ReadsByLocation => "reads-by-location",
            Self::SinglePuts => "single-puts",
            Self::PutPrefetch => "put-prefetch",
            Self::IndexWritePrefetch => "index-write-prefetch",
            Self::LargePages => "large-pages",
            Self::PagesAhead => "pages-ahead",
            Self::ViewRebuilds => "view-rebuilds",
            Self::DelayedViews => "delayed-views",
            Self::DeferredPublication => "deferred-publication",
        }
    }

    /// Whether it is used. Always true without the feature `switches`.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        #[cfg(feature = "switches")]
        return OFF.load(Ordering::Relaxed) & (1 << self as u64) == 0;
        #[cfg(not(feature = "switches"))]
        true
    }

    /// Switches it off for this process, before anything uses it: some structures are built with or without it. False
    /// without the feature `switches`.
    pub fn switch_off(self) -> bool {
        #[cfg(feature = "switches")]
        OFF.fetch_or(1 << self as u64, Ordering::Relaxed);
        !self.is_on()
    }
}
