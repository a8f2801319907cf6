//! A node of the B+-tree.
//!
//! ```text
//! inner node (1 KiB) := header slot[40]
//! leaf (1 KiB)       := header slot[120]
//!
//! header  offset size
//!              0    8  version: bits 32..64 open count of the tree, bits 0..32 count of changes,
//!                      odd while a writer changes the node
//!              8    8  magic (4 bytes, high) and level (low), 0 for leaves
//!             16    8  slots in use
//!             24    8  sibling: the next node of the level, 0 for none
//!             32    8  low: record of the separator that the keys of the node are at or above, 0 for none
//!             40    8  leftmost: the child with the keys below the first slot; 8 in leaves
//!             48    1  leaves: length of the prefix that all keys of the leaf have
//!             49   15  the prefix, padded with zeros
//!
//! slot of an inner node    head of the key (16)  pointer (8)
//! slot of a leaf           bits  0..40  place of the record / 8
//!                          bits 40..64  digest: the 3 bytes of the key after the prefix, as a big-endian number
//! ```
//!
//! The head is the first 16 bytes of the key, as two numbers that compare like them. In inner nodes, the pointer is the child
//! with the keys from the slot's key on, and the `low` of the child is the full separator. In leaves it is the record of
//! the key. Keys with equal heads or digests are compared by their records. So most search steps read one node only.
//!
//! The prefix of a leaf is as long as its keys allow: an insert of a key without it, and a split, write all digests again.
//!
//! # Changes (FAST&FAIR §3)
//! Slots are ascending and end at the first pointer that is 0. A slot whose pointer equals that of the previous slot
//! (or `leftmost`, for the first) is invalid. A slot is inserted or removed by shifting the others with stores of 8 bytes,
//! each of which preserves the set of keys; [`OrderedStores`] makes them durable in that order. The count and an even
//! version come last ([`node_writer`](super::node_writer)). An odd version with another open count means that a crash interrupted a change: readers then apply
//! the rules above and read no digests, and the next writer repairs the node first.

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter, Word};

use super::super::node_access::read_unchanged;
use super::super::record;
use super::leaf_slot::{LeafPrefix, LeafSlot};
use crate::ps_tree::pkey::damage;

/// Bytes of a node.
pub(super) const NODE_BYTES: usize = 1024;
/// Slots of an inner node, and of a leaf.
pub(super) const INNER_SLOTS: usize = (NODE_BYTES / 8 - FIRST_SLOT) / SLOT_WORDS;
pub(super) const LEAF_SLOTS: usize = NODE_BYTES / 8 - FIRST_SLOT;

pub(super) const FIRST_SLOT: usize = 8;
/// Words of a slot of an inner node.
pub(super) const SLOT_WORDS: usize = 3;
pub(super) const MAGIC: u64 = 0x4254_5245;
/// The value of `leftmost` in leaves: no record lies there.
pub(super) const NO_CHILD: u64 = 8;

pub(super) const VERSION: usize = 0;
pub(super) const LEVEL: usize = 1;
pub(super) const COUNT: usize = 2;
pub(super) const SIBLING: usize = 3;
pub(super) const LOW: usize = 4;
pub(super) const LEFTMOST: usize = 5;
pub(super) const PREFIX: usize = 6;

pub(super) fn word_at(node: Place, word: usize) -> Place {
    node.wrapping_add(8 * word as Place)
}

pub(super) fn slot_at(node: Place, slot: usize) -> Place {
    word_at(node, FIRST_SLOT + SLOT_WORDS * slot)
}

/// Slots of a node of `level`.
pub(super) fn slots_of(level: u32) -> usize {
    if level == 0 { LEAF_SLOTS } else { INNER_SLOTS }
}

/// One slot: head and pointer; in a leaf, the digest in place of the head.
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
    pub(super) fn is_before(&self, ordering: Ordering) -> bool {
        if self.below { ordering == Ordering::Less } else { ordering != Ordering::Greater }
    }
}

/// The words of a node.
pub(super) type NodeWords = [Word; NODE_BYTES / 8];

/// A view of a node, valid if its version is unchanged afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct BTreeNodeView<'r> {
    pub(super) region: &'r Region,
    pub(super) words: &'r NodeWords,
    /// A crash interrupted a change of the node.
    pub(super) torn: bool,
}

/// The words of the node at `node`.
#[inline]
pub(super) fn words_of(region: &Region, node: Place) -> Result<&NodeWords> {
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
    let found =
        read_unchanged(&words[VERSION], open_count, |torn| look(&BTreeNodeView { region, words, torn }));
    if words[LEVEL].get() >> 32 != MAGIC {
        return Err(damage(node, "a node of the B+-tree"));
    }
    found
}

impl<'r> BTreeNodeView<'r> {
    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, Word::get)
    }

    /// Whether a crash interrupted a change of the node, and no writer has repaired it since.
    pub(super) fn is_torn(&self) -> bool {
        self.torn
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
    pub(super) fn is_leaf(&self) -> bool {
        self.level() == 0
    }

    /// The prefix of the keys of a leaf.
    #[inline]
    pub(super) fn prefix(&self) -> LeafPrefix {
        LeafPrefix::from_words([self.word(PREFIX), self.word(PREFIX + 1)])
    }

    #[inline]
    pub(super) fn pointer(&self, slot: usize) -> u64 {
        if self.is_leaf() {
            return LeafSlot(self.word(FIRST_SLOT + slot)).record();
        }
        self.word(FIRST_SLOT + SLOT_WORDS * slot + 2)
    }

    #[inline]
    pub(super) fn head(&self, slot: usize) -> (u64, u64) {
        if self.is_leaf() {
            return (LeafSlot(self.word(FIRST_SLOT + slot)).digest(), 0);
        }
        let at = FIRST_SLOT + SLOT_WORDS * slot;
        (self.word(at), self.word(at + 1))
    }

    /// Number of slots up to the first without a pointer, invalid ones included.
    pub(super) fn extent(&self) -> usize {
        let slots = slots_of(self.level());
        (0..slots).find(|&slot| self.pointer(slot) == 0).unwrap_or(slots)
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
        (self.word(COUNT) as usize).min(slots_of(self.level()))
    }

    /// Compares the key of a slot with `target`'s.
    #[inline]
    pub(super) fn compare(&self, slot: BTreeSlot, target: &SearchTarget<'_>) -> Result<Ordering> {
        if self.is_leaf() {
            return record::compare_key(self.region, slot.pointer, target.key);
        }
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
        if self.is_leaf() {
            return Ok(self.leaf_position(target)?.0);
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

    /// Number of slots of a leaf before `target`, and the record of its key. The leaf is not torn.
    #[inline]
    fn leaf_position(&self, target: &SearchTarget<'_>) -> Result<(usize, Option<Place>)> {
        let (prefix, count) = (self.prefix(), self.count());
        let digest = match prefix.locate(target.key) {
            Ok(digest) => digest,
            Err(Ordering::Less) => return Ok((0, None)),
            Err(_) => return Ok((count, None)),
        };
        let slots = self.words.get(FIRST_SLOT..FIRST_SLOT + count).unwrap_or_default();
        let mut from = slots.partition_point(|slot| LeafSlot(slot.get()).digest() < digest);
        let equal = slots.get(from..).unwrap_or_default();
        let mut end = from + equal.partition_point(|slot| LeafSlot(slot.get()).digest() == digest);
        while from < end {
            let middle = from.midpoint(end);
            let place = self.pointer(middle);
            match record::compare_key(self.region, place, target.key)? {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => end = middle,
                Ordering::Equal => return Ok((middle + usize::from(!target.below), Some(place))),
            }
        }
        Ok((from, None))
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
        if is_leaf {
            let (before, found) = self.leaf_position(target)?;
            if let Some(record) = found {
                // No node to the right contains it.
                return Ok(NodeLookup::Found(record));
            }
            let moved = if before == self.count() { self.moved_right(target)? } else { None };
            return Ok(moved.map_or(NodeLookup::Absent, NodeLookup::Right));
        }
        let (count, mut before) = (self.count(), self.heads_below(target.head));
        while before < count && self.head(before) == target.head {
            let slot = BTreeSlot { head: target.head, pointer: self.pointer(before) };
            match self.compare(slot, target)? {
                Ordering::Less | Ordering::Equal => {}
                Ordering::Greater => break,
            }
            before += 1;
        }
        if before == count
            && let Some(sibling) = self.moved_right(target)?
        {
            return Ok(NodeLookup::Right(sibling));
        }
        Ok(NodeLookup::Down(self.child(before)))
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
        let is_equal = record::compare_key(self.region, slot.pointer, target.key)? == Ordering::Equal;
        Ok(is_equal.then_some(slot.pointer))
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
    pub(super) fn write(&self, region: &Region, writer: &RegionWriter<'_>, open_count: u64) -> Result<Place> {
        let at = writer.allocate(NODE_BYTES)?;
        crate::ps_tree::pkey::pointer::check_place(at, NODE_BYTES)?;
        let leftmost = if self.level == 0 { NO_CHILD } else { self.leftmost };
        let level = MAGIC << 32 | u64::from(self.level);
        let mut words =
            vec![open_count << 32, level, self.slots.len() as u64, self.sibling, self.low, leftmost];
        if self.level == 0 {
            let records: Vec<Place> = self.slots.iter().map(|slot| slot.pointer).collect();
            let prefix = LeafPrefix::of_records(region, &records)?;
            words.extend(prefix.words());
            for record in records {
                words.push(LeafSlot::new(region, record, &prefix)?.0);
            }
        } else {
            words.extend([0, 0]);
            words.extend(self.slots.iter().flat_map(|slot| [slot.head.0, slot.head.1, slot.pointer]));
        }
        words.resize(NODE_BYTES / 8, 0);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        writer.write(at, &bytes)?;
        writer.persist(at, NODE_BYTES)?;
        writer.fence();
        Ok(at)
    }
}
