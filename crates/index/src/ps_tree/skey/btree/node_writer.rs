//! Changes of a node of the B+-tree, in stores that leave a valid node at every crash: see [`node`](super::node).

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

use super::super::node_access::{begin_change, end_change};
use super::super::ordered_stores::OrderedStores;
use super::super::record;
use super::leaf_slot::{LeafPrefix, LeafSlot};
use super::node::{
    BTreeNodeView, BTreeSlot, COUNT, FIRST_SLOT, INNER_SLOTS, LEAF_SLOTS, LEVEL, LOW, MAGIC, NO_CHILD,
    PREFIX, SIBLING, SearchTarget, VERSION, slot_at, word_at, words_of,
};
use crate::ps_tree::pkey::damage;

/// A node that the holder of its lock changes. It is not torn.
#[derive(Debug)]
pub(super) struct BTreeNodeWriter<'w, 'r> {
    pub(super) view: BTreeNodeView<'w>,
    node: Place,
    open_count: u64,
    stores: OrderedStores<'w, 'r>,
}

impl<'w, 'r> BTreeNodeWriter<'w, 'r> {
    /// Wraps a node whose lock the caller holds, and repairs it if a crash interrupted a change.
    pub(super) fn new(
        region: &'w Region,
        writer: &'w RegionWriter<'r>,
        open_count: u64,
        node: Place,
    ) -> Result<Self> {
        let words = words_of(region, node)?;
        if words[LEVEL].get() >> 32 != MAGIC {
            return Err(damage(node, "a node of the B+-tree"));
        }
        let torn = words[VERSION].get() & 1 != 0;
        let view = BTreeNodeView { region, words, torn };
        let mut this = Self { view, node, open_count, stores: OrderedStores::new(writer) };
        if torn {
            this.repair()?;
        }
        Ok(this)
    }

    /// Makes the version odd: readers wait.
    fn begin(&mut self) -> Result<()> {
        begin_change(&mut self.stores, self.node, self.view.word(VERSION), self.open_count)
    }

    fn end(&mut self, count: usize) -> Result<()> {
        self.stores.store(word_at(self.node, COUNT), count as u64)?;
        end_change(&mut self.stores, self.node, self.view.word(VERSION), self.open_count)
    }

    /// Sets the pointer of a slot of an inner node, or the whole slot of a leaf: 0, or the slot before.
    fn set_pointer(&mut self, slot: usize, pointer: u64) -> Result<()> {
        if self.view.is_leaf() {
            let same = slot.checked_sub(1).map_or(NO_CHILD / 8, |before| self.view.word(FIRST_SLOT + before));
            return self.set_leaf_slot(slot, if pointer == 0 { LeafSlot(0) } else { LeafSlot(same) });
        }
        self.stores.store(slot_at(self.node, slot) + 16, pointer)
    }

    fn set_leaf_slot(&mut self, slot: usize, to: LeafSlot) -> Result<()> {
        self.stores.store(word_at(self.node, FIRST_SLOT + slot), to.0)
    }

    fn leaf_slot(&self, slot: usize) -> LeafSlot {
        LeafSlot(self.view.word(FIRST_SLOT + slot))
    }

    fn set_head(&mut self, slot: usize, head: (u64, u64)) -> Result<()> {
        self.stores.store(slot_at(self.node, slot), head.0)?;
        self.stores.store(slot_at(self.node, slot) + 8, head.1)
    }

    /// The pointer that makes a slot invalid: the previous one.
    fn pointer_before(&self, slot: usize) -> u64 {
        slot.checked_sub(1).map_or_else(|| self.view.leftmost(), |slot| self.view.pointer(slot))
    }

    /// Inserts the record of `key` at `index` of a leaf that has room.
    pub(super) fn insert_record(&mut self, index: usize, key: &[u8], record: Place) -> Result<()> {
        let count = self.view.count();
        debug_assert!(index <= count && count < LEAF_SLOTS);
        self.begin()?;
        let prefix = if count == 0 { LeafPrefix::of(key) } else { self.view.prefix().common_with(key) };
        if prefix != self.view.prefix() {
            self.set_prefix(&prefix, count)?;
        }
        if count + 1 < LEAF_SLOTS && self.view.pointer(count + 1) != 0 {
            self.set_leaf_slot(count + 1, LeafSlot(0))?;
        }
        for from in (index..count).rev() {
            self.set_leaf_slot(from + 1, self.leaf_slot(from))?;
        }
        self.set_leaf_slot(index, LeafSlot::of_key(record, key, &prefix))?;
        self.end(count + 1)
    }

    /// Sets the prefix and the digests of the first `count` slots of a leaf. A crash meanwhile leaves a torn node, whose
    /// digests are not read.
    fn set_prefix(&mut self, prefix: &LeafPrefix, count: usize) -> Result<()> {
        let [first, second] = prefix.words();
        self.stores.store(word_at(self.node, PREFIX), first)?;
        self.stores.store(word_at(self.node, PREFIX + 1), second)?;
        for slot in 0..count {
            let new = LeafSlot::new(self.view.region, self.view.pointer(slot), prefix)?;
            self.set_leaf_slot(slot, new)?;
        }
        Ok(())
    }

    /// Makes the prefix of a leaf with `count` slots as long as its keys allow; `always` writes all digests again.
    fn lengthen_prefix(&mut self, count: usize, always: bool) -> Result<()> {
        if !self.view.is_leaf() || count == 0 {
            return Ok(());
        }
        let ends = [self.view.pointer(0), self.view.pointer(count - 1)];
        let prefix = LeafPrefix::of_records(self.view.region, &ends)?;
        if always || prefix != self.view.prefix() {
            self.set_prefix(&prefix, count)?;
        }
        Ok(())
    }

    /// Inserts a slot at `index` of an inner node that has room.
    pub(super) fn insert(&mut self, index: usize, slot: BTreeSlot) -> Result<()> {
        let count = self.view.count();
        debug_assert!(index <= count && count < INNER_SLOTS);
        self.begin()?;
        if count + 1 < INNER_SLOTS && self.view.pointer(count + 1) != 0 {
            self.set_pointer(count + 1, 0)?;
        }
        for from in (index..count).rev() {
            self.set_pointer(from + 1, self.view.pointer(from))?;
            self.set_head(from + 1, self.view.head(from))?;
        }
        if count > index {
            self.set_pointer(index, self.pointer_before(index))?;
        }
        self.set_head(index, slot.head)?;
        self.set_pointer(index, slot.pointer)?;
        self.end(count + 1)
    }

    /// Points the slot at `index` of a leaf to another record of the same key.
    pub(super) fn replace(&mut self, index: usize, record: Place) -> Result<()> {
        self.begin()?;
        self.set_leaf_slot(index, self.leaf_slot(index).with_record(record))?;
        self.end(self.view.count())
    }

    /// Removes the slot at `index`.
    pub(super) fn remove(&mut self, index: usize) -> Result<()> {
        let count = self.view.count();
        debug_assert!(index < count);
        self.begin()?;
        self.set_pointer(index, self.pointer_before(index))?;
        self.close_gap(index, count)?;
        self.end(count - 1)
    }

    /// Shifts the slots after `index`, which is invalid, over it.
    fn close_gap(&mut self, index: usize, extent: usize) -> Result<()> {
        for to in index..extent - 1 {
            if self.view.is_leaf() {
                self.set_leaf_slot(to, self.leaf_slot(to + 1))?;
                continue;
            }
            self.set_head(to, self.view.head(to + 1))?;
            self.set_pointer(to, self.view.pointer(to + 1))?;
        }
        self.set_pointer(extent - 1, 0)
    }

    /// Links `sibling`, which holds the slots from `count` on, and drops these.
    pub(super) fn truncate(&mut self, count: usize, sibling: Place) -> Result<()> {
        self.begin()?;
        self.stores.store(word_at(self.node, SIBLING), sibling)?;
        self.set_pointer(count, 0)?;
        self.lengthen_prefix(count, false)?;
        self.end(count)
    }

    /// Completes a change that a crash interrupted.
    fn repair(&mut self) -> Result<()> {
        self.begin()?;
        let mut slot = 0;
        let mut extent = self.view.extent();
        while slot < extent {
            if self.view.pointer(slot) == self.pointer_before(slot) {
                self.close_gap(slot, extent)?;
                extent -= 1;
            } else {
                slot += 1;
            }
        }
        if let Some(sibling) = self.view.sibling() {
            let mut low = Vec::new();
            record::read_key(self.view.region, self.view.region.load(word_at(sibling, LOW))?, &mut low)?;
            let target = SearchTarget::below(&low);
            let mut remaining = extent;
            while let Some(last) = remaining.checked_sub(1) {
                let slot = BTreeSlot { head: self.view.head(last), pointer: self.view.pointer(last) };
                if target.is_before(self.view.compare(slot, &target)?) {
                    break;
                }
                remaining = last;
            }
            if remaining < extent {
                self.set_pointer(remaining, 0)?;
                extent = remaining;
            }
        }
        self.lengthen_prefix(extent, true)?;
        self.end(extent)?;
        self.view.torn = false;
        Ok(())
    }
}
