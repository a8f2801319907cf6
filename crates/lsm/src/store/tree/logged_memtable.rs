//! A memtable of a tree with the log segments of its entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_memory::PagePool;

use crate::attachments::Attachments;
use crate::memtable::Memtable;
use crate::version::RetainedLog;

/// A memtable and the log segments of its entries.
#[derive(Debug, Default)]
pub(in crate::store) struct LoggedMemtable {
    pub(in crate::store) memtable: Arc<Memtable>,
    /// The oldest segment with an entry of the memtable; 0 while it is empty.
    first_log: AtomicU64,
    /// The newest segment with an entry of the memtable.
    last_log: AtomicU64,
    /// Bytes that the store had written to the log before the first entry of the memtable.
    logged_before: AtomicU64,
    /// Attachments of the layer above.
    pub(in crate::store) attachments: Attachments,
    origin: Origin,
}

/// The origin of the entries of a memtable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Origin {
    /// Writers.
    #[default]
    Writers,
    /// A compaction in memory.
    MemoryCompaction,
    /// Entries that a flush retained, with this number of bytes in the log.
    Retained(u64),
}

impl LoggedMemtable {
    /// An empty memtable with a budget of `budget_bytes`, in large pages of `pages`.
    pub(in crate::store) fn with_budget(budget_bytes: usize, pages: &Arc<PagePool>) -> Self {
        Self { memtable: Arc::new(Memtable::with_budget_in(budget_bytes, pages)), ..Self::default() }
    }

    /// An empty memtable with a budget of `budget_bytes`, expected to get about as many entries as `before`.
    pub(in crate::store) fn sized_like(before: &Memtable, budget_bytes: usize) -> Self {
        let memtable = Memtable::with_budget_in(budget_bytes, before.pages()).expecting(before.entries());
        Self { memtable: Arc::new(memtable), ..Self::default() }
    }

    /// An empty memtable for entries that a flush retains, in large pages of `pages`.
    pub(in crate::store) fn retained(pages: &Arc<PagePool>) -> Self {
        let memtable = Arc::new(Memtable::new_in(pages));
        Self { memtable, origin: Origin::Retained(0), ..Self::default() }
    }

    /// An empty memtable that needs the log segments of `others`.
    pub(in crate::store) fn requiring_logs_of<'m>(
        others: impl Iterator<Item = &'m Arc<Self>> + Clone,
    ) -> Self {
        let noted = |of: fn(&Self) -> &AtomicU64| {
            let with_entries = others.clone().filter(|other| other.first_log().is_some());
            with_entries.map(move |other| of(other).load(Ordering::Acquire))
        };
        let pages = others.clone().next().map(|other| other.memtable.pages());
        Self {
            memtable: Arc::new(pages.map_or_else(Memtable::new, Memtable::new_in)),
            first_log: AtomicU64::new(noted(|other| &other.first_log).min().unwrap_or(0)),
            last_log: AtomicU64::new(noted(|other| &other.last_log).max().unwrap_or(0)),
            logged_before: AtomicU64::new(noted(|other| &other.logged_before).min().unwrap_or(0)),
            ..Self::default()
        }
    }

    /// The output `memtable` of a compaction of `inputs` in memory.
    pub(in crate::store) fn compacted(memtable: Memtable, inputs: &[Arc<Self>]) -> Self {
        let origin = Origin::MemoryCompaction;
        Self { memtable: Arc::new(memtable), origin, ..Self::requiring_logs_of(inputs.iter()) }
    }

    /// Sets the location of its entries in the log, all of which are retained.
    pub(in crate::store) fn note_retained(&mut self, log: RetainedLog) {
        self.origin = Origin::Retained(log.end - log.start);
        self.first_log.store(log.segment, Ordering::Release);
        self.last_log.store(log.segment, Ordering::Release);
    }

    /// Bytes of the log with its entries, if they are retained; else 0.
    pub(in crate::store) fn retained_bytes(&self) -> u64 {
        if let Origin::Retained(bytes) = self.origin { bytes } else { 0 }
    }

    /// True if its entries were retained by a flush.
    pub(in crate::store) fn is_retained(&self) -> bool {
        matches!(self.origin, Origin::Retained(_))
    }

    /// True if writers filled it: once full, it waits for a flush.
    pub(in crate::store) fn is_from_writers(&self) -> bool {
        self.origin == Origin::Writers
    }

    /// True if it is the output of a compaction in memory.
    pub(in crate::store) fn is_compacted(&self) -> bool {
        self.origin == Origin::MemoryCompaction
    }

    /// Records that entries of segment `number` are about to be inserted, after `logged` bytes that the store has
    /// written to the log. The caller holds the lock of the log.
    #[inline]
    pub(in crate::store) fn note_log(&self, number: u64, logged: u64) {
        if self.first_log.load(Ordering::Relaxed) == 0 {
            self.logged_before.store(logged, Ordering::Relaxed);
            self.first_log.store(number, Ordering::Release);
        }
        self.last_log.store(number, Ordering::Release);
    }

    /// The oldest segment that recovery needs for it; `None` while it is empty.
    pub(in crate::store) fn first_log(&self) -> Option<u64> {
        Some(self.first_log.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// Bytes of log since its first entry, where `logged` is the total that the store has written; `None` while it is
    /// empty.
    pub(in crate::store) fn log_bytes_since_first(&self, logged: u64) -> Option<u64> {
        self.first_log().map(|_| logged.saturating_sub(self.logged_before.load(Ordering::Relaxed)))
    }

    /// The newest segment with an entry of the memtable; 0 while it is empty.
    pub(in crate::store) fn last_log(&self) -> u64 {
        self.last_log.load(Ordering::Acquire)
    }
}
