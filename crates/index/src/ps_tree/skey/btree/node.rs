//! A node of the B+-tree.
//!
//! ```text
//! node (1 KiB) := header slot[40]
//!
//! header  offset size
//!              0    8  version: bits 32..64 open count of the tree, bits 0..32 count of changes,
//!                      odd while a writer changes the node
//!              8    8  magic (4 bytes, high) and level (low), 0 for leaves
//!             16    8  slots in use
//!             24    8  sibling: the next node of the level, 0 for none
//!             32    8  low: record of the separator that the keys of the node are at or above, 0 for none
//!             40    8  leftmost: the child with the keys below the first slot; 1 in leaves
//!             48   16  zero
//! slot    head of the key (16)  pointer (8)
//! ```
//!
//! The head is the first 16 bytes of the key, as two numbers that compare like them. In leaves, the pointer is the record of
//! the key. In inner nodes, it is the child with the keys from the slot's key on, and the `low` of the child is the full
//! separator. So most search steps read one node only.
//!
//! # Changes (FAST&FAIR §3)
//! Slots are ascending and end at the first pointer that is 0. A slot whose pointer equals that of the previous slot
//! (or `leftmost`, for the first) is invalid. A slot is inserted or removed by shifting the others with stores of 8 bytes,
//! each of which preserves the set of keys; [`OrderedStores`] makes them durable in that order. The count and an even
//! version come last. An odd version with another open count means that a crash interrupted a change: readers then apply
//! the rules above, and the next writer repairs the node first.

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter, Word};

use super::super::ordered_stores::OrderedStores;
use super::super::record;
use crate::ps_tree::pkey::damage;
use crate::ps_tree::sync::{self, fence};

/// Bytes of a node.
pub(super) const NODE_BYTES: usize = 1024;
/// Slots of a node.
pub(super) const SLOTS: usize = (NODE_BYTES / 8 - FIRST_SLOT) / SLOT_WORDS;

const FIRST_SLOT: usize = 8;
const SLOT_WORDS: usize = 3;
const MAGIC: u64 = 0x4254_5245;
/// The value of `leftmost` in leaves.
const NO_CHILD: u64 = 1;

const VERSION: usize = 0;
const LEVEL: usize = 1;
const COUNT: usize = 2;
const SIBLING: usize = 3;
const LOW: usize = 4;
const LEFTMOST: usize = 5;

fn word_at(node: Place, word: usize) -> Place {
    node.wrapping_add(8 * word as Place)
}

fn slot_at(node: Place, slot: usize) -> Place {
    word_at(node, FIRST_SLOT + SLOT_WORDS * slot)
}

/// One slot: head and pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BTreeSlot {
    pub(super) head: (u64, u64),
    pub(super) pointer: u64,
}

/// The target of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchTarget<'k> {
    pub(super) key: &'k [u8],
    head: (u64, u64),
    /// The position just below the key, instead of the key itself.
    below: bool,
}

impl<'k> SearchTarget<'k> {
    /// The key itself.
    pub(super) fn at(key: &'k [u8]) -> Self {
        Self { key, head: record::head_of(key), below: false }
    }

    /// The position just below the key.
    pub(super) fn below(key: &'k [u8]) -> Self {
        Self { below: true, ..Self::at(key) }
    }

    /// Whether keys that compare as `ordering` with [`key`](Self::key) are before the target.
    fn is_before(&self, ordering: Ordering) -> bool {
        if self.below { ordering == Ordering::Less } else { ordering != Ordering::Greater }
    }
}

/// The words of a node.
type NodeWords = [Word; NODE_BYTES / 8];

/// A view of a node, valid if its version is unchanged afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct BTreeNodeView<'r> {
    region: &'r Region,
    words: &'r NodeWords,
    /// A crash interrupted a change of the node.
    torn: bool,
}

/// The words of the node at `node`.
#[inline]
fn words_of(region: &Region, node: Place) -> Result<&NodeWords> {
    region.words(node, NODE_BYTES)?.first_chunk().ok_or_else(|| damage(node, "a node of the B+-tree"))
}

/// The result of a lookup in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeLookup {
    /// The leaf contains the key: its record.
    Found(Place),
    /// The key is absent; this leaf would contain it.
    Absent,
    /// The key is below this child.
    Down(Place),
    /// The key is in the sibling, or to its right.
    Right(Place),
}

/// Calls `look` with the node at `node` until no writer changed it meanwhile.
#[inline]
pub(super) fn read<T>(
    region: &Region,
    open_count: u64,
    node: Place,
    look: impl Fn(&BTreeNodeView<'_>) -> Result<T>,
) -> Result<T> {
    let words = words_of(region, node)?;
    // Fetches all cache lines of the node at once, not one after the other.
    Region::prefetch_words(words);
    let mut spins = 0;
    loop {
        let version = words[VERSION].acquire();
        if version & 1 != 0 && version >> 32 == open_count {
            sync::wait(&mut spins);
            continue;
        }
        let found = look(&BTreeNodeView { region, words, torn: version & 1 != 0 });
        fence(sync::Ordering::Acquire);
        if words[VERSION].get() == version {
            if words[LEVEL].get() >> 32 != MAGIC {
                return Err(damage(node, "a node of the B+-tree"));
            }
            return found;
        }
    }
}

impl<'r> BTreeNodeView<'r> {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, Word::get)
    }

    pub(super) fn level(&self) -> u32 {
        self.word(LEVEL) as u32
    }

    pub(super) fn sibling(&self) -> Option<Place> {
        Some(self.word(SIBLING)).filter(|&sibling| sibling != 0)
    }

    /// The record of the separator at or below the node's keys; 0 for none.
    pub(super) fn low(&self) -> Place {
        self.word(LOW)
    }

    pub(super) fn leftmost(&self) -> Place {
        self.word(LEFTMOST)
    }

    #[inline]
    fn pointer(&self, slot: usize) -> u64 {
        self.word(FIRST_SLOT + SLOT_WORDS * slot + 2)
    }

    #[inline]
    fn head(&self, slot: usize) -> (u64, u64) {
        let at = FIRST_SLOT + SLOT_WORDS * slot;
        (self.word(at), self.word(at + 1))
    }

    /// Number of slots up to the first without a pointer, invalid ones included.
    fn extent(&self) -> usize {
        (0..SLOTS).find(|&slot| self.pointer(slot) == 0).unwrap_or(SLOTS)
    }

    /// The valid slots.
    pub(super) fn slots(&self) -> Vec<BTreeSlot> {
        let end = if self.torn { self.extent() } else { self.count() };
        let mut before = self.leftmost();
        let mut slots = Vec::with_capacity(end);
        for slot in 0..end {
            let pointer = self.pointer(slot);
            if pointer != before {
                slots.push(BTreeSlot { head: self.head(slot), pointer });
            }
            before = pointer;
        }
        slots
    }

    /// Number of slots of a node that is not torn.
    #[inline]
    pub(super) fn count(&self) -> usize {
        (self.word(COUNT) as usize).min(SLOTS)
    }

    /// Compares the key of a slot with `target`'s.
    #[inline]
    fn compare(&self, slot: BTreeSlot, target: &SearchTarget<'_>) -> Result<Ordering> {
        match slot.head.cmp(&target.head) {
            Ordering::Equal => record::compare_key(self.region, self.key_record(slot)?, target.key),
            unequal => Ok(unequal),
        }
    }

    /// The record with the full key of a slot.
    pub(super) fn key_record(&self, slot: BTreeSlot) -> Result<Place> {
        if self.level() == 0 { Ok(slot.pointer) } else { self.region.load(word_at(slot.pointer, LOW)) }
    }

    /// Number of slots before `target`; counted in [`slots`](Self::slots) if the node is torn.
    pub(super) fn slots_before(&self, target: &SearchTarget<'_>) -> Result<usize> {
        if self.torn {
            let mut before = 0;
            for slot in self.slots() {
                before += usize::from(target.is_before(self.compare(slot, target)?));
            }
            return Ok(before);
        }
        let mut before = self.heads_below(target.head);
        while before < self.count() && self.head(before) == target.head {
            let slot = BTreeSlot { head: target.head, pointer: self.pointer(before) };
            if !target.is_before(self.compare(slot, target)?) {
                break;
            }
            before += 1;
        }
        Ok(before)
    }

    /// Number of slots with a head below `head`, in a node that is not torn.
    #[inline]
    fn heads_below(&self, head: (u64, u64)) -> usize {
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let head = wide(head.0, head.1);
        let slots = self.words.get(FIRST_SLOT..).unwrap_or_default().as_chunks::<SLOT_WORDS>().0;
        let (mut from, mut left) = (0, self.count());
        while left > 0 {
            let half = left / 2;
            let Some([high, low, _]) = slots.get(from + half) else { break };
            let is_below = wide(high.get(), low.get()) < head;
            from = if is_below { from + half + 1 } else { from };
            left = if is_below { left - half - 1 } else { half };
        }
        from
    }

    /// Looks up the key of `target` in this node.
    #[inline]
    pub(super) fn look_up(&self, target: &SearchTarget<'_>) -> Result<NodeLookup> {
        let is_leaf = self.level() == 0;
        if self.torn {
            return self.look_up_torn(target);
        }
        let (count, mut before) = (self.count(), self.heads_below(target.head));
        while before < count && self.head(before) == target.head {
            let slot = BTreeSlot { head: target.head, pointer: self.pointer(before) };
            match self.compare(slot, target)? {
                Ordering::Less => {}
                // No node to the right contains it.
                Ordering::Equal if is_leaf => return Ok(NodeLookup::Found(slot.pointer)),
                Ordering::Equal => {}
                Ordering::Greater => break,
            }
            before += 1;
        }
        if before == count
            && let Some(sibling) = self.moved_right(target)?
        {
            return Ok(NodeLookup::Right(sibling));
        }
        Ok(if is_leaf { NodeLookup::Absent } else { NodeLookup::Down(self.child(before)) })
    }

    #[cold]
    fn look_up_torn(&self, target: &SearchTarget<'_>) -> Result<NodeLookup> {
        let before = self.slots_before(target)?;
        if before == self.len()
            && let Some(sibling) = self.moved_right(target)?
        {
            return Ok(NodeLookup::Right(sibling));
        }
        if self.level() > 0 {
            return Ok(NodeLookup::Down(self.child(before)));
        }
        Ok(self.record_at(target, before)?.map_or(NodeLookup::Absent, NodeLookup::Found))
    }

    /// The valid slot number `slot`.
    pub(super) fn slot(&self, slot: usize) -> Option<BTreeSlot> {
        if self.torn {
            return self.slots().get(slot).copied();
        }
        (slot < self.count()).then(|| BTreeSlot { head: self.head(slot), pointer: self.pointer(slot) })
    }

    /// Number of valid slots.
    pub(super) fn len(&self) -> usize {
        if self.torn { self.slots().len() } else { self.count() }
    }

    /// The record of `target` if the leaf contains it; `before` is the number of slots before it.
    pub(super) fn record_at(&self, target: &SearchTarget<'_>, before: usize) -> Result<Option<Place>> {
        let Some(slot) = before.checked_sub(1).and_then(|slot| self.slot(slot)) else { return Ok(None) };
        if slot.head != target.head || self.compare(slot, target)? != Ordering::Equal {
            return Ok(None);
        }
        Ok(Some(slot.pointer))
    }

    /// The sibling, if the target is in it or to its right.
    pub(super) fn moved_right(&self, target: &SearchTarget<'_>) -> Result<Option<Place>> {
        let Some(sibling) = self.sibling() else { return Ok(None) };
        let low = self.region.load(word_at(sibling, LOW))?;
        let ordering = record::compare_key(self.region, low, target.key)?;
        Ok(target.is_before(ordering).then_some(sibling))
    }

    /// The child for a target with `before` slots before it.
    pub(super) fn child(&self, before: usize) -> Place {
        match before.checked_sub(1).and_then(|slot| self.slot(slot)) {
            Some(slot) => slot.pointer,
            None => self.leftmost(),
        }
    }
}

/// The contents of a new node.
#[derive(Debug)]
pub(super) struct NewBTreeNode<'s> {
    pub(super) level: u32,
    pub(super) sibling: Place,
    pub(super) low: Place,
    /// 0 for a leaf.
    pub(super) leftmost: Place,
    pub(super) slots: &'s [BTreeSlot],
}

impl NewBTreeNode<'_> {
    /// Writes the node durably.
    pub(super) fn write(&self, writer: &RegionWriter<'_>, open_count: u64) -> Result<Place> {
        let at = writer.allocate(NODE_BYTES)?;
        crate::ps_tree::pkey::pointer::check_place(at, NODE_BYTES)?;
        let leftmost = if self.level == 0 { NO_CHILD } else { self.leftmost };
        let level = MAGIC << 32 | u64::from(self.level);
        let header =
            [open_count << 32, level, self.slots.len() as u64, self.sibling, self.low, leftmost, 0, 0];
        let mut bytes = Vec::with_capacity(NODE_BYTES);
        let slots = self.slots.iter().flat_map(|slot| [slot.head.0, slot.head.1, slot.pointer]);
        header.into_iter().chain(slots).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        writer.write(at, &bytes)?;
        writer.persist(at, NODE_BYTES)?;
        writer.fence();
        Ok(at)
    }
}

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
        let changes = self.view.word(VERSION) as u32 | 1;
        self.stores.store(self.node, self.open_count << 32 | u64::from(changes))?;
        fence(sync::Ordering::Release);
        Ok(())
    }

    fn end(&mut self, count: usize) -> Result<()> {
        self.stores.store(word_at(self.node, COUNT), count as u64)?;
        let changes = (self.view.word(VERSION) as u32).wrapping_add(1);
        self.stores.store_release(self.node, self.open_count << 32 | u64::from(changes))?;
        self.stores.flush()
    }

    fn set_pointer(&mut self, slot: usize, pointer: u64) -> Result<()> {
        self.stores.store(slot_at(self.node, slot) + 16, pointer)
    }

    fn set_head(&mut self, slot: usize, head: (u64, u64)) -> Result<()> {
        self.stores.store(slot_at(self.node, slot), head.0)?;
        self.stores.store(slot_at(self.node, slot) + 8, head.1)
    }

    /// The pointer that makes a slot invalid: the previous one.
    fn pointer_before(&self, slot: usize) -> u64 {
        slot.checked_sub(1).map_or_else(|| self.view.leftmost(), |slot| self.view.pointer(slot))
    }

    /// Inserts a slot at `index`. The node has room.
    pub(super) fn insert(&mut self, index: usize, slot: BTreeSlot) -> Result<()> {
        let count = self.view.count();
        debug_assert!(index <= count && count < SLOTS);
        self.begin()?;
        if count + 1 < SLOTS && self.view.pointer(count + 1) != 0 {
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
        self.set_pointer(index, record)?;
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
        self.end(extent)?;
        self.view.torn = false;
        Ok(())
    }
}
