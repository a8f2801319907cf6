//! A node of one layer of the trie.
//!
//! ```text
//! node (256 B) := header slice[13] value[13]
//!
//! header  offset size
//!              0    8  version: bits 32..64 open count of the tree, bits 0..32 count of changes,
//!                      odd while a writer changes the node
//!              8    8  permutation: bits 0..52 the entries in use, in order, 4 bits each; bits 52..56 how many;
//!                      bits 56..64 magic
//!             16    8  bits 0..52 class of each entry, 4 bits; bits 52..56 class of the low end; bits 56..64 level,
//!                      0 for border nodes
//!             24    8  sibling: the next node of the level, 0 for none
//!             32    8  slice of the low end; the first node of a level has none
//!             40    8  leftmost: the child below the first entry; 0 in border nodes
//!             48  104  slices, as numbers that compare like the bytes
//!            152  104  values
//! ```
//!
//! The class of an entry is the number of bytes of its slice if the key ends there (0 to 8), or 9 if it continues. A value is
//! a record, or with bit 0 set the root of the next layer (class 9 only); in inner nodes, a child.
//!
//! # Changes (P-Masstree: Masstree's nodes with RECIPE's order of stores)
//! A new entry is written to a position outside of the permutation, made durable, and added by one store of the permutation.
//! So every intermediate state is valid. An odd version left by a crash only means that a split may have linked its sibling
//! without dropping the moved entries; the next writer drops them.

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter, Word};

use super::super::node_access::{begin_change, end_change, read_unchanged};
use super::super::ordered_stores::OrderedStores;
use crate::ps_tree::pkey::damage;

/// Bytes of a node.
pub(super) const NODE_BYTES: usize = 256;
/// Entries of a node.
pub(super) const ENTRIES: usize = 13;
/// The class of keys that continue after their slice.
pub(super) const LONGER: u8 = 9;
/// Bit of a value: the value is the root of a layer.
pub(super) const LAYER: u64 = 1;

const VERSION: usize = 0;
const PERMUTATION: usize = 1;
const CLASSES: usize = 2;
const SIBLING: usize = 3;
const LOW: usize = 4;
const LEFTMOST: usize = 5;
const SLICES: usize = 6;
const VALUES: usize = SLICES + ENTRIES;

const MAGIC: u64 = 0x7e << 56;
const MAGIC_MASK: u64 = 0xff << 56;
const LOW_CLASS_SHIFT: u32 = 52;
const LEVEL_SHIFT: u32 = 56;
const COUNT_SHIFT: u32 = 52;

/// Eight bytes of a key, and whether the key continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slice {
    pub(super) bytes: u64,
    pub(super) class: u8,
}

impl Slice {
    /// The first slice of the rest of a key.
    #[inline]
    pub(super) fn of(rest: &[u8]) -> Self {
        match rest.split_first_chunk::<8>() {
            Some((bytes, more)) => {
                let class = if more.is_empty() { 8 } else { LONGER };
                Self { bytes: u64::from_be_bytes(*bytes), class }
            }
            None => {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                Self { bytes: u64::from_be_bytes(bytes), class: rest.len() as u8 }
            }
        }
    }
}

/// An entry of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrieEntry {
    pub(super) slice: Slice,
    pub(super) value: u64,
}

fn word_at(node: Place, word: usize) -> Place {
    node + 8 * word as Place
}

/// A view of a node, valid if its version is unchanged afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrieNodeView<'r> {
    region: &'r Region,
    words: &'r [Word],
    permutation: u64,
    classes: u64,
}

/// Calls `look` with the node at `node` until no writer changed it meanwhile.
pub(super) fn read<T>(
    region: &Region,
    open_count: u64,
    node: Place,
    look: impl Fn(&TrieNodeView<'_>) -> Result<T>,
) -> Result<T> {
    let words = region.words(node, NODE_BYTES)?;
    // Fetches the four cache lines at once.
    std::hint::black_box(words.iter().step_by(8).fold(0, |all, word| all ^ word.get()));
    let (view, found) = read_unchanged(&words[VERSION], open_count, |_| {
        let view = TrieNodeView::new(region, words);
        (view, look(&view))
    });
    view.verify(node)?;
    found
}

impl<'r> TrieNodeView<'r> {
    fn new(region: &'r Region, words: &'r [Word]) -> Self {
        let word = |index: usize| words.get(index).map_or(0, Word::get);
        Self { region, words, permutation: word(PERMUTATION), classes: word(CLASSES) }
    }

    fn verify(&self, node: Place) -> Result<()> {
        if self.permutation & MAGIC_MASK != MAGIC || self.len() > ENTRIES {
            return Err(damage(node, "a node of the trie"));
        }
        Ok(())
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, Word::get)
    }

    /// Number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.permutation >> COUNT_SHIFT & 0xf) as usize
    }

    /// The position of entry number `index` in key order.
    #[inline]
    fn position(&self, index: usize) -> usize {
        ((self.permutation >> (4 * index)) & 0xf).min(ENTRIES as u64 - 1) as usize
    }

    #[inline]
    fn slice_at(&self, position: usize) -> Slice {
        let class = (self.classes >> (4 * position) & 0xf) as u8;
        Slice { bytes: self.word(SLICES + position), class }
    }

    /// Entry number `index` in key order.
    #[inline]
    pub(super) fn entry(&self, index: usize) -> Option<TrieEntry> {
        let position = self.position(index);
        (index < self.len())
            .then(|| TrieEntry { slice: self.slice_at(position), value: self.word(VALUES + position) })
    }

    /// All entries in key order.
    pub(super) fn entries(&self) -> Vec<TrieEntry> {
        (0..self.len()).filter_map(|index| self.entry(index)).collect()
    }

    pub(super) fn level(&self) -> u8 {
        (self.classes >> LEVEL_SHIFT) as u8
    }

    pub(super) fn sibling(&self) -> Option<Place> {
        Some(self.word(SIBLING)).filter(|&sibling| sibling != 0)
    }

    pub(super) fn leftmost(&self) -> Place {
        self.word(LEFTMOST)
    }

    /// The low end of a node that is not the first of its level.
    pub(super) fn low(&self) -> Slice {
        Slice { bytes: self.word(LOW), class: (self.classes >> LOW_CLASS_SHIFT & 0xf) as u8 }
    }

    /// Number of entries below `slice`, and whether the next one equals it.
    #[inline]
    pub(super) fn search(&self, slice: Slice) -> (usize, bool) {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.slice_at(self.position(middle)).cmp(&slice) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return (middle, true),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The sibling, if `slice` is at or above its low end.
    pub(super) fn moved_right(&self, slice: Slice) -> Result<Option<Place>> {
        let Some(sibling) = self.sibling() else { return Ok(None) };
        let words = self.region.words(sibling, NODE_BYTES)?;
        Ok((TrieNodeView::new(self.region, words).low() <= slice).then_some(sibling))
    }

    /// The sibling, if its low end is below `slice`.
    pub(super) fn moved_right_below(&self, slice: Slice) -> Result<Option<Place>> {
        let Some(sibling) = self.sibling() else { return Ok(None) };
        let words = self.region.words(sibling, NODE_BYTES)?;
        Ok((TrieNodeView::new(self.region, words).low() < slice).then_some(sibling))
    }

    /// The child for `slice`.
    pub(super) fn child(&self, slice: Slice) -> Place {
        let (below, equal) = self.search(slice);
        let at_or_below = below + usize::from(equal);
        at_or_below
            .checked_sub(1)
            .and_then(|index| self.entry(index))
            .map_or(self.leftmost(), |entry| entry.value)
    }
}

/// The contents of a new node.
#[derive(Debug)]
pub(super) struct NewTrieNode<'e> {
    pub(super) level: u8,
    pub(super) sibling: Place,
    pub(super) low: Slice,
    pub(super) leftmost: Place,
    pub(super) entries: &'e [TrieEntry],
}

impl NewTrieNode<'_> {
    /// Writes the node durably.
    pub(super) fn write(&self, writer: &RegionWriter<'_>, open_count: u64) -> Result<Place> {
        let at = writer.allocate(NODE_BYTES)?;
        crate::ps_tree::pkey::pointer::check_place(at, NODE_BYTES)?;
        let mut words = [0_u64; NODE_BYTES / 8];
        words[VERSION] = open_count << 32;
        words[PERMUTATION] = MAGIC | (self.entries.len() as u64) << COUNT_SHIFT;
        words[CLASSES] = u64::from(self.level) << LEVEL_SHIFT | u64::from(self.low.class) << LOW_CLASS_SHIFT;
        words[SIBLING] = self.sibling;
        words[LOW] = self.low.bytes;
        words[LEFTMOST] = self.leftmost;
        for (position, entry) in self.entries.iter().enumerate().take(ENTRIES) {
            words[PERMUTATION] |= (position as u64) << (4 * position);
            words[CLASSES] |= u64::from(entry.slice.class) << (4 * position);
            words[SLICES + position] = entry.slice.bytes;
            words[VALUES + position] = entry.value;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        writer.write(at, &bytes)?;
        writer.persist(at, NODE_BYTES)?;
        writer.fence();
        Ok(at)
    }
}

/// A node that the holder of its lock changes.
#[derive(Debug)]
pub(super) struct TrieNodeWriter<'w, 'r> {
    region: &'w Region,
    words: &'w [Word],
    node: Place,
    open_count: u64,
    stores: OrderedStores<'w, 'r>,
}

impl<'w, 'r> TrieNodeWriter<'w, 'r> {
    /// Wraps a node whose lock the caller holds, and completes a split that a crash interrupted.
    pub(super) fn new(
        region: &'w Region,
        writer: &'w RegionWriter<'r>,
        open_count: u64,
        node: Place,
    ) -> Result<Self> {
        let words = region.words(node, NODE_BYTES)?;
        let mut this = Self { region, words, node, open_count, stores: OrderedStores::new(writer) };
        this.view().verify(node)?;
        if words[VERSION].get() & 1 != 0 {
            this.repair()?;
        }
        Ok(this)
    }

    /// The present state of the node.
    pub(super) fn view(&self) -> TrieNodeView<'w> {
        TrieNodeView::new(self.region, self.words)
    }

    fn repair(&mut self) -> Result<()> {
        let view = self.view();
        let mut remaining = view.len();
        if let Some(sibling) = view.sibling() {
            let low = TrieNodeView::new(self.region, self.region.words(sibling, NODE_BYTES)?).low();
            remaining = view.search(low).0;
        }
        self.begin()?;
        self.set_count(remaining)?;
        self.end()
    }

    fn version(&self) -> u64 {
        self.words.first().map_or(0, Word::get)
    }

    fn begin(&mut self) -> Result<()> {
        let version = self.version();
        begin_change(&mut self.stores, self.node, version, self.open_count)
    }

    fn end(&mut self) -> Result<()> {
        let version = self.version();
        end_change(&mut self.stores, self.node, version, self.open_count)
    }

    fn set_count(&mut self, count: usize) -> Result<()> {
        let permutation = self.view().permutation & !(0xf << COUNT_SHIFT) | (count as u64) << COUNT_SHIFT;
        self.stores.store(word_at(self.node, PERMUTATION), permutation)
    }

    /// Inserts an entry as number `index`. The node has room.
    pub(super) fn insert(&mut self, index: usize, entry: TrieEntry) -> Result<()> {
        let view = self.view();
        let count = view.len();
        debug_assert!(index <= count && count < ENTRIES);
        let used: u64 = (0..count).map(|index| 1 << view.position(index)).sum();
        let free = (!used).trailing_zeros() as usize;
        self.begin()?;
        self.stores.store(word_at(self.node, SLICES + free), entry.slice.bytes)?;
        self.stores.store(word_at(self.node, VALUES + free), entry.value)?;
        let class = u64::from(entry.slice.class) << (4 * free);
        let classes = view.classes & !(0xf << (4 * free)) | class;
        self.stores.store(word_at(self.node, CLASSES), classes)?;
        let mut order: Vec<usize> = (0..count).map(|index| view.position(index)).collect();
        order.insert(index, free);
        self.set_order(&order)?;
        self.end()
    }

    /// Removes entry number `index`.
    pub(super) fn remove(&mut self, index: usize) -> Result<()> {
        let view = self.view();
        let mut order: Vec<usize> = (0..view.len()).map(|index| view.position(index)).collect();
        order.remove(index);
        self.begin()?;
        self.set_order(&order)?;
        self.end()
    }

    fn set_order(&mut self, order: &[usize]) -> Result<()> {
        let positions: u64 =
            order.iter().enumerate().map(|(index, &position)| (position as u64) << (4 * index)).sum();
        let permutation = MAGIC | (order.len() as u64) << COUNT_SHIFT | positions;
        self.stores.store(word_at(self.node, PERMUTATION), permutation)
    }

    /// Replaces the value of entry number `index` by one store.
    pub(super) fn set_value(&mut self, index: usize, value: u64) -> Result<()> {
        let position = self.view().position(index);
        self.begin()?;
        self.stores.store(word_at(self.node, VALUES + position), value)?;
        self.end()
    }

    /// Links `sibling`, which holds the entries from number `count` on, and drops these.
    pub(super) fn truncate(&mut self, count: usize, sibling: Place) -> Result<()> {
        self.begin()?;
        self.stores.store(word_at(self.node, SIBLING), sibling)?;
        self.set_count(count)?;
        self.end()
    }
}
