//! A memtable of a tree together with what is known of the log that has its entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attachments::Attachments;
use crate::memtable::Memtable;
use crate::version::RetainedLog;

/// A memtable and the log segments that its entries are in.
#[derive(Debug, Default)]
pub(super) struct LoggedMemtable {
    pub(super) memtable: Arc<Memtable>,
    /// The oldest segment with an entry of it; 0 while it is empty.
    first_log: AtomicU64,
    /// The newest segment with an entry of it.
    last_log: AtomicU64,
    /// Bytes of log that had been written by the store before the first entry of it.
    logged_before: AtomicU64,
    /// What the layer above made of its entries.
    pub(super) attachments: Attachments,
    origin: Origin,
}

/// How a memtable came to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Origin {
    /// Writers fill it, or did.
    #[default]
    Writers,
    /// It has what is still visible of full ones.
    MemoryCompaction,
    /// A flush kept its entries back. So many bytes of the log have them.
    KeptBack(u64),
}

impl LoggedMemtable {
    /// An empty one that may take `budget_bytes`.
    pub(super) fn with_budget(budget_bytes: usize) -> Self {
        Self { memtable: Arc::new(Memtable::with_budget(budget_bytes)), ..Self::default() }
    }

    /// An empty one that may take `budget_bytes` and will have about as many entries in the end as `before`.
    pub(super) fn following(before: &Memtable, budget_bytes: usize) -> Self {
        let memtable = Memtable::with_budget(budget_bytes).expecting(before.entries());
        Self { memtable: Arc::new(memtable), ..Self::default() }
    }

    /// An empty one for entries that a flush keeps back.
    pub(super) fn retained() -> Self {
        Self { origin: Origin::KeptBack(0), ..Self::default() }
    }

    /// An empty one that needs the segments of the log that `others` need.
    pub(super) fn requiring_logs_of<'m>(others: impl Iterator<Item = &'m Arc<Self>> + Clone) -> Self {
        let noted = |of: fn(&Self) -> &AtomicU64| {
            let with_entries = others.clone().filter(|other| other.first_log().is_some());
            with_entries.map(move |other| of(other).load(Ordering::Acquire))
        };
        Self {
            first_log: AtomicU64::new(noted(|other| &other.first_log).min().unwrap_or(0)),
            last_log: AtomicU64::new(noted(|other| &other.last_log).max().unwrap_or(0)),
            logged_before: AtomicU64::new(noted(|other| &other.logged_before).min().unwrap_or(0)),
            ..Self::default()
        }
    }

    /// `memtable`, with what is still visible of `inputs`.
    pub(super) fn compacted(memtable: Memtable, inputs: &[Arc<Self>]) -> Self {
        let origin = Origin::MemoryCompaction;
        Self { memtable: Arc::new(memtable), origin, ..Self::requiring_logs_of(inputs.iter()) }
    }

    /// Notes where its entries are, all of which were kept back.
    pub(super) fn note_retained(&mut self, log: RetainedLog) {
        self.origin = Origin::KeptBack(log.end - log.start);
        self.first_log.store(log.segment, Ordering::Release);
        self.last_log.store(log.segment, Ordering::Release);
    }

    /// Bytes of the log with its entries, if a flush kept them back.
    pub(super) fn retained_bytes(&self) -> u64 {
        if let Origin::KeptBack(bytes) = self.origin { bytes } else { 0 }
    }

    /// True if its entries were kept back by a flush.
    pub(super) fn is_retained(&self) -> bool {
        matches!(self.origin, Origin::KeptBack(_))
    }

    /// True for one that was filled by writers: once full, it waits to be flushed.
    pub(super) fn is_from_writers(&self) -> bool {
        self.origin == Origin::Writers
    }

    /// True for one that others were put together to in memory.
    pub(super) fn is_compacted(&self) -> bool {
        self.origin == Origin::MemoryCompaction
    }

    /// Notes that entries of segment `number` are about to be inserted, after `logged` bytes that the store has
    /// written to the log. Only who has the lock of the log calls this.
    #[inline]
    pub(super) fn note_log(&self, number: u64, logged: u64) {
        if self.first_log.load(Ordering::Relaxed) == 0 {
            self.logged_before.store(logged, Ordering::Relaxed);
            self.first_log.store(number, Ordering::Release);
        }
        self.last_log.store(number, Ordering::Release);
    }

    /// The oldest segment that recovery would need for it; `None` while it is empty.
    pub(super) fn first_log(&self) -> Option<u64> {
        Some(self.first_log.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    /// Bytes of log since its first entry, of `logged` that the store has written; `None` while it is empty.
    pub(super) fn log_bytes_since_first(&self, logged: u64) -> Option<u64> {
        self.first_log().map(|_| logged.saturating_sub(self.logged_before.load(Ordering::Relaxed)))
    }

    /// The newest segment with an entry of it; 0 while it is empty.
    pub(super) fn last_log(&self) -> u64 {
        self.last_log.load(Ordering::Acquire)
    }
}
