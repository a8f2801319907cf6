//! `repair=primary-compaction`: the versions that a flush or a compaction of the records drops identify stale index
//! entries, and these are deleted: the deferred maintenance of DELI.
//!
//! ```text
//! flush, compaction of the table --(version no view can see)--> entries that it has --> Repairs
//! Repairs --> batches of them, ordinary commits --> SecondaryIndex::retract --> tree of the index
//! ```
//!
//! A blind write cannot detect which entry it makes stale; the compaction that merges the two versions of a record has
//! both, and reads nothing more. So stale entries are deleted without a lookup, neither in writes nor in compactions of
//! the index, which do not search them under this option.
//!
//! The deletion depends on the kind: a delete of a composite entry, a removal in a lazy list, and for an eager list a
//! rewrite of the piece without the posting.
//!
//! # Why nothing visible is lost
//! * A deleted entry is named by secondary key and sequence number, which one write of one record has, and which only
//!   that write has. That version is hidden from every view, current and future.
//! * If several writes share an entry (`order=primary-key`) or a piece, the commit checks its current state, and
//!   nothing is written between that check and the commit.
//! * The deletion is committed after the compaction is durable, and so are the writes that hide the version: the log is
//!   synced before. Later parts of the log cannot survive without them.
//!
//! # Remaining stale entries
//! Pending deletions are in memory only, at most [`MAX_WAITING_BYTES`] of them. A crash, or a burst above that limit,
//! leaves stale entries that nothing deletes later: they cost space and a validation, never an answer, and a rebuild of
//! the index removes them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bolide_base::{EntryKind, Result, Trailer, TreeId};
use bolide_index::{
    AttributeExtractor, AttributePlan, AttributeValues, IndexSpec, IndexedRecord, RepairStrategy,
    SecondaryIndex, StaleEntry, ValueSlot, slots_of,
};
use bolide_lsm::{DropCollector, DropListener, ReadView, Store};
use parking_lot::{Condvar, Mutex};

/// The maximum number of bytes of pending deletions, and of those of one flush or compaction.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// The approximate memory of one deletion besides its bytes.
const ENTRY_BYTES: usize = 48;
/// Deletions in one batch.
const BATCH_ENTRIES: usize = 512;
/// An entry to delete, and the tree of its index.
pub(crate) type Stale = (TreeId, StaleEntry);

/// Pending deletions of all indexes of a database.
#[derive(Default)]
pub(crate) struct Repairs {
    waiting: Mutex<VecDeque<Stale>>,
    arrived: Condvar,
    bytes: AtomicUsize,
    /// Held during a commit, so that no thread finds the queue empty while another still commits.
    pub(crate) committing: Mutex<()>,
    /// Whether a thread commits them.
    pub(crate) has_thread: AtomicBool,
}

impl fmt::Debug for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repairs").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

fn bytes_of(stale: &Stale) -> usize {
    stale.1.key.len() + ENTRY_BYTES
}

impl Repairs {
    /// Adds as many as the limit allows.
    pub(crate) fn add(&self, found: Vec<Stale>) {
        let mut waiting = self.waiting.lock();
        for stale in found {
            if self.bytes.load(Ordering::Relaxed) + bytes_of(&stale) > MAX_WAITING_BYTES {
                break;
            }
            self.bytes.fetch_add(bytes_of(&stale), Ordering::Relaxed);
            waiting.push_back(stale);
        }
        self.arrived.notify_all();
    }

    /// Takes the deletions of one batch.
    pub(crate) fn take(&self) -> Vec<Stale> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH_ENTRIES);
        let batch: Vec<Stale> = waiting.drain(..count).collect();
        self.bytes.fetch_sub(batch.iter().map(bytes_of).sum(), Ordering::Relaxed);
        batch
    }

    /// Whether a deletion is pending.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// Waits until a deletion is added, or for `limit`; with `pause` even if one is pending already.
    pub(crate) fn wait(&self, pause: bool, limit: Duration) {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() || pause {
            self.arrived.wait_for(&mut waiting, limit);
        }
    }

    /// Wakes the thread, so that it checks whether to end.
    pub(crate) fn wake(&self) {
        self.arrived.notify_all();
    }
}

/// Whether compactions of the records report stale entries of the index that `spec` declares.
pub(crate) fn repairs(spec: &IndexSpec) -> bool {
    spec.repair() == RepairStrategy::PrimaryCompaction
}

/// Makes the flushes and compactions of `table` report which entries of `indexes` have become stale. Without an
/// extractor, or without an index with this option, no listener is installed.
///
/// # Errors
/// `NotStaleBatch` if the collection's tree does not exist.
pub(crate) fn listen(
    store: &Store,
    table: TreeId,
    indexes: Vec<Arc<dyn SecondaryIndex<ReadView>>>,
    extractor: Option<Arc<dyn AttributeExtractor>>,
    repairs_of: &Arc<Repairs>,
) -> Result<()> {
    let indexes: Vec<_> = indexes.into_iter().filter(|index| repairs(index.spec())).collect();
    let extractor = extractor.filter(|_| !indexes.is_empty());
    let Some(extractor) = extractor else { return store.set_drop_listener(table, None) };
    let plan = AttributePlan::new(indexes.iter().flat_map(|index| index.spec().paths().cloned()));
    let slots = indexes.iter().map(|index| slots_of(index.spec(), &plan)).collect::<Result<_>>()?;
    let repairs = repairs_of.clone();
    let work = Arc::new(StaleEntryExtraction { extractor, plan, indexes, slots, repairs });
    store.set_drop_listener(table, Some(Arc::new(StaleVersions(work))))
}

/// The indexes and their attributes to extract from dropped versions.
#[derive(Debug)]
struct StaleEntryExtraction {
    extractor: Arc<dyn AttributeExtractor>,
    plan: AttributePlan,
    indexes: Vec<Arc<dyn SecondaryIndex<ReadView>>>,
    slots: Vec<Vec<ValueSlot>>,
    repairs: Arc<Repairs>,
}

#[derive(Debug)]
struct StaleVersions(Arc<StaleEntryExtraction>);

impl DropListener for StaleVersions {
    fn begin(&self) -> Box<dyn DropCollector> {
        let found = StaleBatch::default();
        Box::new(StaleEntryCollector {
            work: self.0.clone(),
            values: AttributeValues::new(),
            key: Vec::new(),
            found,
        })
    }
}

/// The entries of the versions that one flush or compaction drops.
struct StaleEntryCollector {
    work: Arc<StaleEntryExtraction>,
    values: AttributeValues,
    key: Vec<u8>,
    found: StaleBatch,
}

#[derive(Default)]
struct StaleBatch {
    entries: Vec<Stale>,
    bytes: usize,
}

impl DropCollector for StaleEntryCollector {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let work = &*self.work;
        if trailer.kind() != Some(EntryKind::Put) || self.found.bytes >= MAX_WAITING_BYTES {
            return;
        }
        // A record that cannot be extracted has no entries.
        if work.extractor.extract(value, &work.plan, &mut self.values).is_err() {
            return;
        }
        for (index, slots) in work.indexes.iter().zip(&work.slots) {
            let record = IndexedRecord {
                primary_key: key,
                sequence: Some(trailer.sequence()),
                values: &self.values,
                slots,
            };
            let found = &mut self.found;
            let tree = index.trees().first().copied().unwrap_or_default();
            // A key over a limit was refused, and has no entry either.
            let _ = index.name_entries(&record, &mut self.key, &mut |entry| {
                found.add((tree, StaleEntry { key: entry.into(), sequence: trailer.sequence() }));
                Ok(())
            });
        }
    }

    fn installed(self: Box<Self>) {
        if !self.found.entries.is_empty() {
            self.work.repairs.add(self.found.entries);
        }
    }
}

impl StaleBatch {
    fn add(&mut self, stale: Stale) {
        self.bytes += bytes_of(&stale);
        self.entries.push(stale);
    }
}
