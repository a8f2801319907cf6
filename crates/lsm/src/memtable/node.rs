//! A node of the tree: its fields, how they are read without a lock, and how a lock holder changes them.
//!
//! ```text
//! node   version   8   bit 0 locked, bit 1 changing, bits 2.. count of changes
//!        right     8   link to the next node of this level
//!        low       8   link to the entry whose key is the smallest this node may hold (null: none)
//!        high      8   link to the entry whose key is the smallest beyond it (null: none)
//!        children  8   link to the array of children (null: a leaf)
//!        skip      4   bytes that every key of this node shares
//!        count     4   slots in use
//!        prefixes  8 x FANOUT   bytes skip .. skip + 8 of each slot's key, big-endian, padded with 0
//!        entries   8 x FANOUT   link to the entry of each slot
//! ```
//!
//! **Slots** are in key order. In a leaf they are its entries; in an inner node slot `i` is the smallest
//! key below child `i + 1`. Keys differ in a prefix almost always, so that a search stays inside the node;
//! only a tie goes to the entries.
//!
//! **Skip.** Every key that this node can ever hold lies between its fences `low` and `high` and so
//! starts with what these have in common. Prefixes begin behind that: long common beginnings, such as the
//! secondary key of a composite index, cost nothing. The first and the last node of a level, the root
//! among them, lack a fence. There `skip` is what the slots' keys have in common at the moment: a search
//! compares that part with the first slot's key first, and an insertion may shorten it.
//!
//! **Reading** takes no lock: note the version, read, and check that the version is the same (a sequence
//! lock). All that changes is atomic, so a reader that overlaps a writer reads a mixture, which is not
//! undefined and is thrown away. A link is never wild: even a mixture points to true entries and nodes.
//!
//! **Writing** takes the lock by raising bit 0 of exactly the version that the writer has read before, so
//! that whatever it found there still holds. Readers go on until bit 1 says that fields are changing.
//!
//! `low` and `children` never change. The keys of a node never become more than its fences allow; a split
//! takes the upper half away and lowers `high`.

use super::arena::{Arena, Link, Place};
use super::entry::{Entry, EntryRef};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence, prefetch, wait};

/// Slots of a node; a power of two. With 64, half a million keys make four levels and a search reads at
/// most six prefixes a node; with 32 it was five levels, and reads were a tenth slower.
#[cfg(not(bolide_shuttle))]
pub(super) const FANOUT: usize = 64;
/// Slots of a node: few, so that short runs of the model checker split nodes on three levels.
#[cfg(bolide_shuttle)]
pub(super) const FANOUT: usize = 4;

const LOCKED: u64 = 1;
const CHANGING: u64 = 2;
const ONE_CHANGE: u64 = 4;

/// A node of the tree.
#[repr(C, align(64))]
pub(super) struct Node {
    version: AtomicU64,
    right: Link<Node>,
    low: Link<Entry>,
    high: Link<Entry>,
    children: Link<Children>,
    skip: AtomicU32,
    count: AtomicU32,
    prefixes: [AtomicU64; FANOUT],
    entries: [Link<Entry>; FANOUT],
}

/// The children of an inner node, one more than its slots.
pub(super) struct Children([Link<Node>; FANOUT + 1]);

/// A reference to a node.
pub(super) type NodeRef<'a> = Place<'a, Node>;

/// Where a key is, or belongs, among the slots of a node.
pub(super) struct Found<'a> {
    /// How many slots have a smaller key.
    pub(super) position: usize,
    /// The slot's entry, where its key is the sought one.
    pub(super) entry: Option<EntryRef<'a>>,
}

/// A copy of a leaf's slots.
pub(super) struct LeafCopy<'a> {
    entries: [Option<EntryRef<'a>>; FANOUT],
    pub(super) count: usize,
    pub(super) low: Option<EntryRef<'a>>,
    pub(super) right: Option<NodeRef<'a>>,
}

impl<'a> LeafCopy<'a> {
    /// The entry of slot `index`; `None` behind the last one.
    #[inline]
    pub(super) fn entry(&self, index: usize) -> Option<EntryRef<'a>> {
        self.entries[..self.count.min(FANOUT)].get(index).copied().flatten()
    }
}

impl Default for LeafCopy<'_> {
    fn default() -> Self {
        // One slot without an entry, which is the same as none: memory that is to be all zeros comes on the allocator's slow
        // way.
        Self { entries: [None; FANOUT], count: 1, low: None, right: None }
    }
}

impl<'a> Place<'a, Node> {
    /// An empty node for the keys from `low` to before `high`.
    pub(super) fn create(
        arena: &'a Arena,
        low: Option<EntryRef<'a>>,
        high: Option<EntryRef<'a>>,
        leaf: bool,
    ) -> Self {
        let children = (!leaf).then(|| arena.place(Children(std::array::from_fn(|_| Link::new(None)))));
        arena.place(Node {
            version: AtomicU64::new(0),
            right: Link::new(None),
            low: Link::new(low),
            high: Link::new(high),
            children: Link::new(children),
            skip: AtomicU32::new(0),
            count: AtomicU32::new(0),
            prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
            entries: std::array::from_fn(|_| Link::new(None)),
        })
    }

    /// Starts reading: waits while fields are changing and returns the version to check afterwards.
    #[inline]
    pub(super) fn begin(self) -> u64 {
        let mut turns = 0;
        loop {
            let version = self.get().version.load(Ordering::Acquire);
            if version & CHANGING == 0 {
                return version & !LOCKED;
            }
            wait(&mut turns);
        }
    }

    /// True where nothing has changed since [`begin`](Self::begin) returned `version`.
    #[inline]
    pub(super) fn unchanged(self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.get().version.load(Ordering::Relaxed) & !LOCKED == version
    }

    /// Takes the writers' lock, if nothing has changed since `version` and nobody has it.
    pub(super) fn try_lock(self, version: u64) -> bool {
        // The fence: what was read before came from `version`, if the exchange still finds that.
        fence(Ordering::Acquire);
        let locked = version | LOCKED;
        self.get().version.compare_exchange(version, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back; nothing was changed.
    pub(super) fn unlock(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store(version & !(LOCKED | CHANGING), Ordering::Release);
    }

    /// Makes readers wait. The caller holds the lock and is about to change fields.
    pub(super) fn begin_change(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store(version | CHANGING, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change and gives the lock back.
    pub(super) fn end_change(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store((version & !(LOCKED | CHANGING)) + ONE_CHANGE, Ordering::Release);
    }

    /// The children; `None` in a leaf.
    #[inline]
    pub(super) fn children(self) -> Option<Place<'a, Children>> {
        self.get().children.load()
    }

    /// Slots in use, at most [`FANOUT`].
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.get().count.load(Ordering::Relaxed) as usize).min(FANOUT)
    }

    /// True for the last node of its level.
    pub(super) fn is_last(self) -> bool {
        self.get().high.load().is_none()
    }

    /// The entry of slot `index`.
    #[inline]
    pub(super) fn entry(self, index: usize) -> Option<EntryRef<'a>> {
        self.get().entries.get(index)?.load()
    }

    #[inline]
    fn prefix(self, index: usize) -> u64 {
        // The mask changes nothing, and spares the check of the bound.
        self.get().prefixes[index & (FANOUT - 1)].load(Ordering::Relaxed)
    }

    /// Asks for the lines that a search reads first.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch(self.address().as_ptr(), 1 + FANOUT / 8);
    }

    /// Asks for the lines that [`copy_to`](Self::copy_to) reads.
    #[inline]
    pub(super) fn prefetch_entries(self) {
        prefetch(self.address().as_ptr(), 1);
        prefetch(&raw const self.get().entries, FANOUT / 8);
    }

    /// Asks for the entry of `key`, or the one behind it, as far as prefixes tell. Purely a hint.
    pub(super) fn prefetch_entry_of(self, key: &[u8]) {
        let skip = self.get().skip.load(Ordering::Relaxed) as usize;
        let position = self.first_at_least(prefix_at(key, skip), 0, self.count());
        if let Some(entry) = self.entry(position) {
            prefetch(entry.address().as_ptr(), 2);
        }
    }

    /// Finds `key` among the slots. The answer holds if the node is unchanged afterwards; a found entry
    /// is right in any case, because a key has one entry and keeps it.
    #[inline]
    pub(super) fn search(self, key: &[u8]) -> Found<'a> {
        let skip = self.get().skip.load(Ordering::Relaxed) as usize;
        let count = self.count();
        if skip > 0
            && !self.has_fences()
            && let Some(position) = self.outside_shared(key, skip, count)
        {
            return Found { position, entry: None };
        }
        let prefix = prefix_at(key, skip);
        let start = self.first_at_least(prefix, 0, count);
        if start == count || self.prefix(start) != prefix {
            return Found { position: start, entry: None };
        }
        if start + 1 == count || self.prefix(start + 1) != prefix {
            return self.search_ties(key, start, start + 1);
        }
        let end = match prefix.checked_add(1) {
            Some(after) => self.first_at_least(after, start + 1, count),
            None => count,
        };
        self.search_ties(key, start, end)
    }

    /// True where `skip` comes from the fences, and so holds for every key that may come.
    #[inline]
    fn has_fences(self) -> bool {
        self.get().low.load().is_some() && self.get().high.load().is_some()
    }

    /// Where `key` belongs if it does not start with the `skip` bytes that all slots share.
    #[inline]
    fn outside_shared(self, key: &[u8], skip: usize, count: usize) -> Option<usize> {
        let shared = self.entry(0)?.key().get(..skip)?;
        match key.get(..skip).unwrap_or(key).cmp(shared) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(count),
        }
    }

    /// The first of the slots `start .. end` whose prefix is at least `prefix`, else `end`.
    #[inline]
    fn first_at_least(self, prefix: u64, start: usize, end: usize) -> usize {
        let mut base = start;
        let mut length = end - start;
        while length > 1 {
            let half = length / 2;
            // A branch on purpose: the processor runs ahead along its guess and so fetches the lines of the
            // steps to come. Without a branch, ascending loads took half as long again, and nothing gained.
            if self.prefix(base + half - 1) < prefix {
                base += half;
            }
            length -= half;
        }
        base + usize::from(length == 1 && self.prefix(base) < prefix)
    }

    /// Finds `key` among the slots `start .. end`, by whole keys.
    fn search_ties(self, key: &[u8], mut start: usize, mut end: usize) -> Found<'a> {
        while start < end {
            let middle = (start + end) / 2;
            // No entry: a mixture of two states, which the caller throws away.
            let Some(entry) = self.entry(middle) else { break };
            match entry.key().cmp(key) {
                std::cmp::Ordering::Less => start = middle + 1,
                std::cmp::Ordering::Equal => return Found { position: middle, entry: Some(entry) },
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        Found { position: start, entry: None }
    }

    /// Copies a leaf's slots. The copy holds if the leaf is unchanged afterwards.
    pub(super) fn copy_to(self, copy: &mut LeafCopy<'a>) {
        copy.count = self.count();
        for (index, entry) in copy.entries.iter_mut().enumerate().take(copy.count) {
            *entry = self.entry(index);
        }
        copy.low = self.get().low.load();
        copy.right = self.get().right.load();
    }

    /// Puts `entry` into a new slot at `position`, and `child` behind it. The caller has announced the
    /// change, and the node is not full.
    pub(super) fn insert(self, position: usize, entry: EntryRef<'a>, child: Option<NodeRef<'a>>) {
        let node = self.get();
        let count = self.count();
        debug_assert!(count < FANOUT && position <= count);
        if !self.has_fences() {
            self.shorten_skip(entry);
        }
        for index in (position..count).rev() {
            node.prefixes[index + 1].store(self.prefix(index), Ordering::Relaxed);
            node.entries[index + 1].store(self.entry(index));
        }
        self.set(position, entry);
        if let (Some(children), Some(child)) = (self.children(), child) {
            for index in (position + 1..=count).rev() {
                children.get().0[index + 1].store(children.child(index));
            }
            children.get().0[position + 1].store(Some(child));
        }
        node.count.store(count as u32 + 1, Ordering::Relaxed);
    }

    fn set(self, position: usize, entry: EntryRef<'a>) {
        let skip = self.get().skip.load(Ordering::Relaxed) as usize;
        self.get().prefixes[position].store(prefix_at(entry.key(), skip), Ordering::Relaxed);
        self.get().entries[position].store(Some(entry));
    }

    /// Makes `skip` of a node without fences hold for the key of `entry` too.
    fn shorten_skip(self, entry: EntryRef<'a>) {
        let skip = match self.entry(0) {
            Some(first) if self.count() > 0 => shared_bytes(first, entry),
            _ => entry.key().len() as u32,
        };
        if self.count() == 0 || skip < self.get().skip.load(Ordering::Relaxed) {
            self.set_skip(skip);
        }
    }

    /// What all keys that may come have in common at their start, or, without fences, all that are there.
    fn longest_skip(self) -> u32 {
        let node = self.get();
        let ends = match (node.low.load(), node.high.load()) {
            (Some(low), Some(high)) => (Some(low), Some(high)),
            _ => (self.entry(0), self.count().checked_sub(1).and_then(|last| self.entry(last))),
        };
        match ends {
            (Some(first), Some(last)) => shared_bytes(first, last),
            _ => 0,
        }
    }

    fn set_skip(self, skip: u32) {
        self.get().skip.store(skip, Ordering::Relaxed);
        for index in 0..self.count() {
            if let Some(entry) = self.entry(index) {
                self.set(index, entry);
            }
        }
    }

    /// Builds the right half of a split at slot `middle`, whose key becomes the fence between the halves.
    /// The caller holds the lock; nothing changes here yet.
    pub(super) fn upper_half(self, arena: &'a Arena, middle: usize) -> Option<(EntryRef<'a>, NodeRef<'a>)> {
        let fence = self.entry(middle)?;
        let right = Self::create(arena, Some(fence), self.get().high.load(), self.children().is_none());
        right.get().right.store(self.get().right.load());
        // An inner node's middle key goes up; it stays in neither half.
        let first = middle + usize::from(self.children().is_some());
        for index in first..self.count() {
            right.get().entries[index - first].store(Some(self.entry(index)?));
        }
        right.get().count.store((self.count() - first) as u32, Ordering::Relaxed);
        right.set_skip(right.longest_skip());
        if let (Some(from), Some(to)) = (self.children(), right.children()) {
            for index in first..=self.count() {
                to.get().0[index - first].store(from.child(index));
            }
        }
        Some((fence, right))
    }

    /// Gives up what [`upper_half`](Self::upper_half) took over. The caller has announced the change.
    pub(super) fn truncate(self, middle: usize, fence: EntryRef<'a>, right: NodeRef<'a>) {
        let node = self.get();
        node.count.store(middle as u32, Ordering::Relaxed);
        node.high.store(Some(fence));
        node.right.store(Some(right));
        let skip = self.longest_skip();
        if skip != node.skip.load(Ordering::Relaxed) {
            self.set_skip(skip);
        }
    }

    /// Makes `child` the first child of a fresh inner node.
    pub(super) fn set_first_child(self, child: NodeRef<'a>) {
        if let Some(children) = self.children() {
            children.get().0[0].store(Some(child));
        }
    }
}

impl<'a> Place<'a, Children> {
    /// Child `index`; `None` only in a mixture of two states.
    #[inline]
    pub(super) fn child(self, index: usize) -> Option<NodeRef<'a>> {
        self.get().0.get(index)?.load()
    }
}

/// How many bytes two keys, and all keys between them, have in common at their start.
fn shared_bytes(left: EntryRef<'_>, right: EntryRef<'_>) -> u32 {
    left.key().iter().zip(right.key()).take_while(|(left, right)| left == right).count() as u32
}

/// Eight bytes of `key` from `skip` on, padded with zeros. Prefixes that differ are ordered as their keys.
#[inline]
fn prefix_at(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut padded = [0; 8];
    padded[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_ordered_as_their_keys() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"abcdefghij"];
        for pair in keys.windows(2) {
            assert!(prefix_at(pair[0], 0) <= prefix_at(pair[1], 0));
        }
        assert_eq!(prefix_at(b"xxabc", 2), prefix_at(b"abc", 0));
        assert_eq!(prefix_at(b"x", 2), 0);
    }

    #[test]
    #[cfg(not(bolide_shuttle))]
    fn a_node_fills_whole_cache_lines() {
        assert_eq!(size_of::<Node>(), 64 + 16 * FANOUT);
    }
}
