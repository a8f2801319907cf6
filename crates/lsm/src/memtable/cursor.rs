//! The cursor over a memtable.
//!
//! It copies the slots of one leaf at a time, which is at most 64 pointers, checks that the leaf did not change
//! meanwhile, and then walks over its copy without looking at the tree. It goes on by the leaf's link to
//! the right, and back by a descent to what is below the leaf. Entries are asked for a few ahead, so
//! that a scan does not wait for memory at each of them.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::InternalCursor;

use super::Memtable;
use super::descent::Descent;
use super::entry::{EntryRef, VersionRef};
use super::node::LeafCopy;
use super::sync::prefetch;
use super::tree::Tree;
use crate::cursor::PreparedKey;

/// How many entries ahead of a scan are asked for.
const AHEAD: usize = 6;
/// How many are behind a seek, and how many more by a step until it is all of them: a scan of few entries needs no more.
const AT_ONCE: usize = 2;
/// Cache lines of an entry that are asked for: its key, its first version, and the start of the value.
const AHEAD_LINES: usize = 2;
/// Most cache lines of a value that are asked for, once it is known how long it is.
const VALUE_LINES: usize = 8;
const LINE_BYTES: usize = 64;

/// Which versions a [`MemtableCursor`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Of each key only the newest version with a sequence number of at most this one, tombstones
    /// included. Keys without such a version are passed over.
    At(SequenceNumber),
    /// All versions.
    All,
}

/// A cursor over a [`Memtable`]. It never fails, and keeps the memtable alive.
///
/// Under [`Visibility::At`] it shows at least all that was inserted before it was positioned and is
/// visible. Under [`Visibility::All`] what is inserted meanwhile may or may not be shown.
pub struct MemtableCursor {
    // The `'static` references below point into this memtable's arenas.
    memtable: Arc<Memtable>,
    visibility: Visibility,
    leaf: Box<LeafCopy<'static>>,
    /// Slot of the current entry.
    slot: usize,
    /// The entries of slots before this one are asked for.
    asked: usize,
    current: Option<Current>,
    /// The way down to `prepared_key`.
    prepared: Descent<'static>,
    prepared_key: PreparedKey,
}

#[derive(Clone, Copy)]
struct Current {
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
            asked: 0,
            current: None,
            prepared: Descent::Lost,
            prepared_key: PreparedKey::default(),
        }
    }

    /// The newest version that is shown of `entry`.
    #[inline]
    fn shown(&self, entry: EntryRef<'static>) -> Option<VersionRef<'static>> {
        match self.visibility {
            Visibility::At(sequence) => entry.newest(sequence),
            Visibility::All => Some(entry.head()),
        }
    }

    /// The oldest version that is shown of `entry`: the last one in tree order.
    fn last_shown(&self, entry: EntryRef<'static>) -> Option<VersionRef<'static>> {
        match self.visibility {
            Visibility::At(sequence) => entry.newest(sequence),
            Visibility::All => entry.newest(0).or_else(|| entry.oldest_above(0)),
        }
    }

    /// The tree, to copy a leaf from.
    fn tree(&self) -> &'static Tree {
        // SAFETY: what the tree answers is kept in `self.leaf` and `self.current`, beside the `Arc` that
        // keeps the memtable, and handed out for no longer than `self` is borrowed.
        unsafe { &(*Arc::as_ptr(&self.memtable)).tree }
    }

    #[inline]
    fn prefetch(&self, slot: usize) {
        if let Some(entry) = self.leaf.entry(slot) {
            prefetch(entry.address().as_ptr(), AHEAD_LINES);
        }
    }

    /// Asks for the entries of slots before `until`.
    #[inline]
    fn prefetch_until(&mut self, until: usize) {
        for slot in self.asked..until {
            self.prefetch(slot);
        }
        self.asked = self.asked.max(until);
    }

    /// Makes the entry of `slot` the current one, and asks for its value and for the ones behind it.
    #[inline]
    fn show(&mut self, slot: usize, current: Current) {
        prefetch_value(current.version);
        self.prefetch_until((self.asked + AT_ONCE).clamp(slot + AT_ONCE, slot + AHEAD));
        self.slot = slot;
        self.current = Some(current);
    }

    /// Goes to the first shown entry from slot `slot` on.
    #[inline]
    fn forward_from(&mut self, mut slot: usize) {
        loop {
            while let Some(entry) = self.leaf.entry(slot) {
                if let Some(version) = self.shown(entry) {
                    return self.show(slot, Current { entry, version });
                }
                slot += 1;
                self.prefetch_until(slot + AHEAD);
            }
            let Some(right) = self.leaf.right else {
                self.current = None;
                return;
            };
            self.tree().copy_leaf(right, &mut self.leaf);
            slot = 0;
            self.asked = 0;
            self.prefetch_until(AHEAD);
            if let Some(right) = self.leaf.right {
                right.prefetch_entries();
            }
        }
    }

    /// Asks for the entries that a walk from `slot` on needs first.
    #[inline]
    fn prefetch_from(&mut self, slot: usize) {
        self.asked = slot;
        self.prefetch_until(slot + AT_ONCE);
    }

    /// Goes to the last shown entry before slot `slot`.
    fn backward_from(&mut self, mut slot: usize) {
        loop {
            while slot > 0 {
                slot -= 1;
                let Some(entry) = self.leaf.entry(slot) else { continue };
                self.prefetch(slot.wrapping_sub(AHEAD));
                if let Some(version) = self.last_shown(entry) {
                    (self.slot, self.asked) = (slot, slot + 1);
                    self.current = Some(Current { entry, version });
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
    let value = version.value();
    let end = value.as_ptr().addr() % LINE_BYTES + value.len();
    prefetch(value.as_ptr(), end.div_ceil(LINE_BYTES).min(VALUE_LINES));
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
        let prepared = match std::mem::replace(&mut self.prepared, Descent::Lost) {
            Descent::Leaf { leaf, version } | Descent::Entry { leaf, version }
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
                self.current = Some(Current { entry, version });
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

    fn prepare_further(&mut self) -> bool {
        self.prepared = self.prepared.step(self.prepared_key.key());
        matches!(self.prepared, Descent::Below { .. } | Descent::Leaf { .. })
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
            self.current = Some(Current { version, ..current });
            return Ok(());
        }
        // Those behind the next one that an earlier step has asked for are there by now.
        if self.slot + 2 < self.asked
            && let Some(entry) = self.leaf.entry(self.slot + 2)
        {
            prefetch_value(entry.head());
        }
        self.forward_from(self.slot + 1);
        Ok(())
    }

    #[inline]
    fn shows_keys_once(&self) -> bool {
        self.visibility != Visibility::All
    }

    fn prev(&mut self) -> Result<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.visibility == Visibility::All
            && let Some(version) = current.entry.oldest_above(current.version.sequence())
        {
            self.current = Some(Current { version, ..current });
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
