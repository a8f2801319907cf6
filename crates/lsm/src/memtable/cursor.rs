//! The cursor over a memtable.
//!
//! It copies the slots of one leaf at a time, at most 64 pointers, verifies that the leaf did not change meanwhile, and
//! then iterates over its copy without reading the tree. It moves forward by the leaf's right link, and backward by a
//! descent to the keys below the leaf. It prefetches entries ahead of a scan, so that steps do not wait for memory.

use std::fmt;
use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_memory::{CACHE_LINE_BYTES, prefetch_lines};
use bolide_table::InternalCursor;

use super::Memtable;
use super::descent::StagedDescent;
use super::entry::{EntryRef, VersionRef};
use super::node::LeafCopy;
use super::tree::MemtableTree;
use crate::cursor::PreparedKey;

/// The number of entries that a scan prefetches ahead.
const PREFETCH_DISTANCE: usize = 6;
/// The number of entries that a seek prefetches, and by which each step extends the prefetch up to the full distance.
/// Short scans need no more.
const PREFETCH_STEP: usize = 2;
/// The cache lines prefetched of an entry: its key, its first version, and the start of the value.
const ENTRY_LINES: usize = 2;
/// The maximum number of cache lines prefetched of a value, once its length is known.
const MAX_VALUE_LINES: usize = 8;

/// The versions that a [`MemtableCursor`] yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Of each key only the newest version with a sequence number of at most this one, including tombstones. Skips keys
    /// without such a version.
    At(SequenceNumber),
    /// All versions.
    All,
}

/// A cursor over a [`Memtable`], which it pins. It never fails.
///
/// Under [`Visibility::At`] it yields at least all visible versions that were inserted before it was positioned. Under
/// [`Visibility::All`] it may or may not yield concurrent insertions.
pub struct MemtableCursor {
    // The `'static` references below point into this memtable's arenas.
    memtable: Arc<Memtable>,
    visibility: Visibility,
    leaf: Box<LeafCopy<'static>>,
    /// The slot of the current entry.
    slot: usize,
    /// The end of the prefetched slots.
    prefetched: usize,
    current: Option<CursorEntry>,
    /// The descent to `prepared_key`.
    prepared: StagedDescent<'static>,
    prepared_key: PreparedKey,
}

#[derive(Clone, Copy)]
struct CursorEntry {
    entry: EntryRef<'static>,
    version: VersionRef<'static>,
}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>, visibility: Visibility) -> Self {
        Self {
            memtable,
            visibility,
            leaf: Box::default(),
            slot: 0,
            prefetched: 0,
            current: None,
            prepared: StagedDescent::Lost,
            prepared_key: PreparedKey::default(),
        }
    }

    /// The newest version of `entry` that the cursor yields.
    #[inline]
    fn newest_visible(&self, entry: EntryRef<'static>) -> Option<VersionRef<'static>> {
        match self.visibility {
            Visibility::At(sequence) => entry.newest(sequence),
            Visibility::All => Some(entry.head()),
        }
    }

    /// The oldest version of `entry` that the cursor yields: the last one in tree order.
    fn oldest_visible(&self, entry: EntryRef<'static>) -> Option<VersionRef<'static>> {
        match self.visibility {
            Visibility::At(sequence) => entry.newest(sequence),
            Visibility::All => entry.newest(0).or_else(|| entry.oldest_above(0)),
        }
    }

    /// The tree, to copy a leaf from.
    fn tree(&self) -> &'static MemtableTree {
        // SAFETY: the tree's results are stored in `self.leaf` and `self.current`, beside the `Arc` that pins the memtable,
        // and returned for no longer than `self` is borrowed.
        unsafe { &(*Arc::as_ptr(&self.memtable)).tree }
    }

    #[inline]
    fn prefetch(&self, slot: usize) {
        if let Some(entry) = self.leaf.entry(slot) {
            prefetch_lines(entry.address().as_ptr(), ENTRY_LINES);
        }
    }

    /// Prefetches the entries of slots before `until`.
    #[inline]
    fn prefetch_until(&mut self, until: usize) {
        if !Technique::MemtableScanPrefetch.is_on() {
            return;
        }
        for slot in self.prefetched..until {
            self.prefetch(slot);
        }
        self.prefetched = self.prefetched.max(until);
    }

    /// Makes the entry of `slot` the current one, and prefetches its value and the next entries.
    #[inline]
    fn set_current(&mut self, slot: usize, current: CursorEntry) {
        prefetch_value(current.version);
        self.prefetch_until(
            (self.prefetched + PREFETCH_STEP).clamp(slot + PREFETCH_STEP, slot + PREFETCH_DISTANCE),
        );
        self.slot = slot;
        self.current = Some(current);
    }

    /// Moves to the first visible entry from slot `slot` on.
    #[inline]
    fn forward_from(&mut self, mut slot: usize) {
        loop {
            while let Some(entry) = self.leaf.entry(slot) {
                if let Some(version) = self.newest_visible(entry) {
                    return self.set_current(slot, CursorEntry { entry, version });
                }
                slot += 1;
                self.prefetch_until(slot + PREFETCH_DISTANCE);
            }
            let Some(right) = self.leaf.right else {
                self.current = None;
                return;
            };
            self.tree().copy_leaf(right, &mut self.leaf);
            slot = 0;
            self.prefetched = 0;
            self.prefetch_until(PREFETCH_DISTANCE);
            if let Some(right) = self.leaf.right {
                right.prefetch_entries();
            }
        }
    }

    /// Starts prefetching for a scan from `slot` on.
    #[inline]
    fn prefetch_from(&mut self, slot: usize) {
        self.prefetched = slot;
        self.prefetch_until(slot + PREFETCH_STEP);
    }

    /// Moves to the last visible entry before slot `slot`.
    fn backward_from(&mut self, mut slot: usize) {
        loop {
            while slot > 0 {
                slot -= 1;
                let Some(entry) = self.leaf.entry(slot) else { continue };
                self.prefetch(slot.wrapping_sub(PREFETCH_DISTANCE));
                if let Some(version) = self.oldest_visible(entry) {
                    (self.slot, self.prefetched) = (slot, slot + 1);
                    self.current = Some(CursorEntry { entry, version });
                    return;
                }
            }
            let Some(low) = self.leaf.low else {
                self.current = None;
                return;
            };
            slot = self.tree().copy_before(low.key(), &mut self.leaf);
        }
    }
}

#[inline]
fn prefetch_value(version: VersionRef<'static>) {
    if !Technique::MemtableScanPrefetch.is_on() {
        return;
    }
    let value = version.value();
    let end = value.as_ptr().addr() % CACHE_LINE_BYTES + value.len();
    prefetch_lines(value.as_ptr(), end.div_ceil(CACHE_LINE_BYTES).min(MAX_VALUE_LINES));
}

impl InternalCursor for MemtableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.map_or(&[], |current| current.entry.key())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.current.map_or(Trailer::from_bits(0), |current| current.version.trailer())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.map_or(&[], |current| current.version.value())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        let slot = self.tree().copy_at(&[], &mut self.leaf);
        self.prefetch_from(slot);
        self.forward_from(slot);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.tree().copy_last(&mut self.leaf);
        self.backward_from(self.leaf.count);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let tree = self.tree();
        let prepared = match std::mem::replace(&mut self.prepared, StagedDescent::Lost) {
            StagedDescent::Leaf { leaf, version } | StagedDescent::Entry { leaf, version }
                if self.prepared_key.is(key, sequence) =>
            {
                tree.copy_if_unchanged((leaf, version), key, &mut self.leaf)
            }
            _ => None,
        };
        let slot = prepared.unwrap_or_else(|| tree.copy_at(key, &mut self.leaf));
        self.prefetch_from(slot);
        if let Some(entry) = self.leaf.entry(slot)
            && entry.key() == key
        {
            let version = match self.visibility {
                Visibility::At(at) => entry.newest(at).filter(|version| version.sequence() <= sequence),
                Visibility::All => entry.newest(sequence),
            };
            if let Some(version) = version {
                prefetch_value(version);
                self.slot = slot;
                self.current = Some(CursorEntry { entry, version });
            } else {
                self.forward_from(slot + 1);
            }
            return Ok(());
        }
        self.forward_from(slot);
        Ok(())
    }

    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        self.prepared_key.set(key, sequence);
        self.prepared = self.tree().begin_descent(key);
    }

    fn prepare_next_stage(&mut self) -> bool {
        self.prepared = self.prepared.step(self.prepared_key.key());
        matches!(self.prepared, StagedDescent::Below { .. } | StagedDescent::Leaf { .. })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let slot = self.tree().copy_before(key, &mut self.leaf);
        self.backward_from(slot);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.visibility == Visibility::All
            && let Some(version) = current.version.older()
        {
            self.current = Some(CursorEntry { version, ..current });
            return Ok(());
        }
        // The entry after the next one was prefetched by an earlier step and is in the cache by now.
        if self.slot + 2 < self.prefetched
            && let Some(entry) = self.leaf.entry(self.slot + 2)
        {
            prefetch_value(entry.head());
        }
        self.forward_from(self.slot + 1);
        Ok(())
    }

    #[inline]
    fn yields_keys_once(&self) -> bool {
        self.visibility != Visibility::All
    }

    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.visibility == Visibility::All
            && let Some(version) = current.entry.oldest_above(current.version.sequence())
        {
            self.current = Some(CursorEntry { version, ..current });
            return Ok(());
        }
        self.backward_from(self.slot);
        Ok(())
    }
}

impl fmt::Debug for MemtableCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableCursor")
            .field("visibility", &self.visibility)
            .field("key", &self.key())
            .field("trailer", &self.trailer())
            .finish_non_exhaustive()
    }
}
