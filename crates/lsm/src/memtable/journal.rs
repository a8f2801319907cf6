//! The journal: the entries inserted into a memtable since the last read of the journal.
//!
//! A data structure derived from a memtable's entries reads the new entries from the journal instead of walking over
//! all of them. Recording starts with [`Journal::start`]; before that, an insertion costs a fence and a load.
//!
//! No entry is missed between the initial walk and the first recorded entry: a writer inserts and then checks whether
//! recording has started; a reader starts recording and then walks. With a full fence between the two steps on either
//! side, the reader sees the entry or the writer sees the started journal.

use parking_lot::Mutex;

use super::entry::{EntryRef, VersionRef};
use super::sync::{AtomicU32, AtomicUsize, Ordering, fence};
use super::tree::{Insertion, MemtableTree};

/// The entries inserted since the last [`take`](Self::take).
#[derive(Default)]
pub(super) struct Journal {
    /// 1 once recording has started.
    is_started: AtomicU32,
    pending: Mutex<Vec<JournalEntry>>,
    /// The capacity of `pending`, readable without the lock.
    capacity: AtomicUsize,
}

/// An entry and the inserted version. Both are in the arenas of the journal's memtable, and are only used while the
/// memtable is borrowed.
type JournalEntry = (EntryRef<'static>, VersionRef<'static>);

impl Journal {
    pub(super) fn start(&self) {
        self.is_started.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Records a complete insertion, if recording has started. The caller has executed a full fence after the insertion.
    #[inline]
    pub(super) fn record(&self, inserted: &Insertion<'_>) {
        if self.is_started.load(Ordering::Relaxed) != 0 {
            self.push(inserted);
        }
    }

    #[cold]
    fn push(&self, inserted: &Insertion<'_>) {
        // SAFETY: both references point into the memtable's arenas, which outlive their use by the journal: `take` returns
        // them for no longer than the tree that owns the arenas is borrowed.
        let recorded: JournalEntry = unsafe {
            let entry = EntryRef::new(inserted.entry.address().cast());
            (entry, VersionRef::new(inserted.version.address().cast()))
        };
        let mut pending = self.pending.lock();
        pending.push(recorded);
        self.capacity.store(pending.capacity(), Ordering::Relaxed);
    }

    /// Removes and returns all recorded entries. `_tree` must be the tree of the journal's memtable.
    pub(super) fn take<'a>(
        &self,
        _tree: &'a MemtableTree,
    ) -> impl Iterator<Item = (EntryRef<'a>, VersionRef<'a>)> + use<'a> {
        let pending = std::mem::take(&mut *self.pending.lock());
        self.capacity.store(0, Ordering::Relaxed);
        pending.into_iter()
    }

    /// The memory use of the recorded entries in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.capacity.load(Ordering::Relaxed) * size_of::<JournalEntry>()
    }
}
