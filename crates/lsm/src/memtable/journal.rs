//! Which entries of a memtable are new since somebody looked.
//!
//! Whoever keeps something derived from a memtable's entries asks for the new ones instead of walking over
//! all of them. Nothing is noted before the first question, so that a memtable nobody asks about pays a
//! fence and a load for each insertion.
//!
//! No entry is missed between the walk at the beginning and the first that is noted: a writer inserts, then
//! looks whether to note; a reader says that it wants notes, then walks. With a full fence between the two
//! steps on either side, the reader sees the entry or the writer sees the wish.

use parking_lot::Mutex;

use super::entry::{EntryRef, VersionRef};
use super::sync::{AtomicU32, AtomicUsize, Ordering, fence};
use super::tree::{Inserted, Tree};

/// The entries inserted since the last question.
#[derive(Default)]
pub(super) struct Journal {
    /// 1 once somebody asked.
    wanted: AtomicU32,
    pending: Mutex<Vec<Noted>>,
    /// Room of `pending`, so that its size is known without the lock.
    room: AtomicUsize,
}

/// A version and the entry that it hangs on. Both lie in the arenas of the memtable that the journal is a
/// part of, and are only used while that is borrowed.
type Noted = (EntryRef<'static>, VersionRef<'static>);

impl Journal {
    pub(super) fn start(&self) {
        self.wanted.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Notes an insertion that is complete, if somebody wants to know. The caller has made a full fence since.
    #[inline]
    pub(super) fn note(&self, inserted: &Inserted<'_>) {
        if self.wanted.load(Ordering::Relaxed) != 0 {
            self.push(inserted);
        }
    }

    #[cold]
    fn push(&self, inserted: &Inserted<'_>) {
        // SAFETY: both places lie in the memtable's arenas, which outlive the journal's use of them: `take`
        // hands them out for no longer than the tree that owns the arenas is borrowed.
        let noted: Noted = unsafe {
            let entry = EntryRef::new(inserted.entry.address().cast());
            (entry, VersionRef::new(inserted.version.address().cast()))
        };
        let mut pending = self.pending.lock();
        pending.push(noted);
        self.room.store(pending.capacity(), Ordering::Relaxed);
    }

    /// Takes everything noted so far. `_tree` is the tree of the memtable that this is the journal of.
    pub(super) fn take<'a>(
        &self,
        _tree: &'a Tree,
    ) -> impl Iterator<Item = (EntryRef<'a>, VersionRef<'a>)> + use<'a> {
        let pending = std::mem::take(&mut *self.pending.lock());
        self.room.store(0, Ordering::Relaxed);
        pending.into_iter()
    }

    /// Bytes that the notes take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.room.load(Ordering::Relaxed) * size_of::<Noted>()
    }
}
