//! `repair=primary-compaction`: what a flush or a compaction of the records leaves out tells which index entries
//! have become stale, and these are deleted: the deferred maintenance of DELI.
//!
//! ```text
//! flush, compaction of the table --(version no view can see)--> entries that it has --> Repairs
//! Repairs --> batches of them, ordinary commits --> SecondaryIndex::retract --> tree of the index
//! ```
//!
//! A blind write does not know which entry it makes stale; the compaction that merges the two versions of a record
//! has both in its hands, and reads nothing further. So stale entries go without a lookup, neither in writes nor
//! in compactions of the index, which do not look for them under this option.
//!
//! What a commit does depends on the kind: it deletes a composite entry, adds a removal to a lazy list, and takes
//! the posting out of its piece of an eager list, which it reads and writes again.
//!
//! # Why nothing visible is lost
//! * An entry goes that is named by secondary key and sequence number, which one write of one record has, and
//!   which that write alone has. That version is hidden from every view, those that are alive and those to come.
//! * Where several writes share an entry (`order=primary-key`) or a piece, the commit looks at it as it then is,
//!   and nothing is written between that look and the commit.
//! * The deletion is committed after the compaction is durable, and so are the writes that hide the version: the log
//!   is synced before. What is in the log behind them cannot survive without them.
//!
//! # What may be left
//! What waits is in memory alone, at most [`MAX_WAITING_BYTES`] of it. A crash, or a burst that is over that,
//! leaves stale entries behind that nothing looks for again: they cost space and a validation, never an answer,
//! and a rebuild of the index is without them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bolide_base::{EntryKind, Result, Trailer, TreeId};
use bolide_index::{
    AttributeExtractor, AttributePlan, AttributeValues, IndexSpec, IndexedRecord, Repair, SecondaryIndex,
    Slot, StaleEntry, slots_of,
};
use bolide_lsm::{DropCollector, DropListener, ReadView, Store};
use parking_lot::{Condvar, Mutex};

/// Deletions that wait take at most so many bytes, those of one flush or compaction as well.
const MAX_WAITING_BYTES: usize = 32 << 20;
/// Memory that one takes besides its bytes, about.
const ENTRY_BYTES: usize = 48;
/// Deletions in one batch.
const BATCH_ENTRIES: usize = 512;
/// An entry to take out, and the tree of its index.
pub(crate) type Stale = (TreeId, StaleEntry);

/// Deletions that wait to be committed, of all indexes of a database.
#[derive(Default)]
pub(crate) struct Repairs {
    waiting: Mutex<VecDeque<Stale>>,
    arrived: Condvar,
    bytes: AtomicUsize,
    /// Held while they are committed, so that nobody believes that all is done while another still does it.
    pub(crate) committing: Mutex<()>,
    /// A thread commits them.
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
    /// Adds as many as there is room for.
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

    /// Takes as many as go into one batch.
    pub(crate) fn take(&self) -> Vec<Stale> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH_ENTRIES);
        let taken: Vec<Stale> = waiting.drain(..count).collect();
        self.bytes.fetch_sub(taken.iter().map(bytes_of).sum(), Ordering::Relaxed);
        taken
    }

    /// True if something waits.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    /// Waits until something has arrived, or `limit` is over; with `pause` even where something waits already.
    pub(crate) fn wait(&self, pause: bool, limit: Duration) {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() || pause {
            self.arrived.wait_for(&mut waiting, limit);
        }
    }

    /// Has the thread look whether it should end.
    pub(crate) fn wake(&self) {
        self.arrived.notify_all();
    }
}

/// Whether stale entries of the index that `spec` declares are told by compactions of the records.
pub(crate) fn repairs(spec: &IndexSpec) -> bool {
    spec.repair() == Repair::PrimaryCompaction
}

/// Has the flushes and compactions of `table` tell which entries of `indexes` have become stale. Without an
/// extractor, and where no index wants it, nothing listens.
///
/// # Errors
/// `NotFound` where the collection's tree is not there.
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
    let work = Arc::new(Work { extractor, plan, indexes, slots, repairs: repairs_of.clone() });
    store.set_drop_listener(table, Some(Arc::new(StaleVersions(work))))
}

/// What is to be found in versions that are left out.
#[derive(Debug)]
struct Work {
    extractor: Arc<dyn AttributeExtractor>,
    plan: AttributePlan,
    indexes: Vec<Arc<dyn SecondaryIndex<ReadView>>>,
    slots: Vec<Vec<Slot>>,
    repairs: Arc<Repairs>,
}

#[derive(Debug)]
struct StaleVersions(Arc<Work>);

impl DropListener for StaleVersions {
    fn begin(&self) -> Box<dyn DropCollector> {
        let found = Found::default();
        Box::new(StaleEntries {
            work: self.0.clone(),
            values: AttributeValues::new(),
            key: Vec::new(),
            found,
        })
    }
}

/// The entries of the versions that one flush or compaction leaves out.
struct StaleEntries {
    work: Arc<Work>,
    values: AttributeValues,
    key: Vec<u8>,
    found: Found,
}

#[derive(Default)]
struct Found {
    entries: Vec<Stale>,
    bytes: usize,
}

impl DropCollector for StaleEntries {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let work = &*self.work;
        if trailer.kind() != Some(EntryKind::Put) || self.found.bytes >= MAX_WAITING_BYTES {
            return;
        }
        // A record that cannot be looked into has no entries.
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
            // One that is over a limit was refused, and has none either.
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

impl Found {
    fn add(&mut self, stale: Stale) {
        self.bytes += bytes_of(&stale);
        self.entries.push(stale);
    }
}
