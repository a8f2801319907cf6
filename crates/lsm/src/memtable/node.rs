//! A node of the tree: its fields, lock-free reads, and changes under the lock.
//!
//! ```text
//! node   version   8   bit 0 locked, bit 1 changing, bits 2.. count of changes
//!        right     8   link to the next node of this level
//!        low       8   link to the entry with the lower bound of this node's keys (null: none)
//!        high      8   link to the entry with the exclusive upper bound (null: none)
//!        children  8   link to the array of children (null: a leaf)
//!        skip      4   bytes that every key of this node shares
//!        count     4   slots in use
//!        prefixes  8 x FANOUT   bytes skip .. skip + 8 of each slot's key, big-endian, padded with 0
//!        entries   8 x FANOUT   link to the entry of each slot
//! ```
//!
//! **Slots** are in key order. In a leaf they are its entries; in an inner node slot `i` is the smallest key in child
//! `i + 1`. Prefixes of keys almost always differ, so that a search stays inside the node; only ties compare the
//! entries' keys.
//!
//! **Skip.** Every key of this node is between its fences `low` and `high`, and so starts with their common prefix. The
//! prefixes of slots begin after it: long common prefixes, such as the secondary key of a composite index, cost
//! nothing. The first and the last node of a level, including the root, lack a fence. There `skip` is the length of the
//! common prefix of the current keys: a search first compares this part with the first slot's key, and an insertion may
//! shorten it.
//!
//! **Reads** take no lock: load the version, read, and verify that the version is unchanged (a sequence lock). All
//! mutable fields are atomic, so a reader that overlaps a writer reads a mixture of two states, which is defined
//! behaviour, and discards it. Links are always valid: even a mixture points to initialized entries and nodes.
//!
//! **Writes** take the lock by setting bit 0 of exactly the version that the writer has read before, so that its search
//! result is still valid. Readers proceed until bit 1 is set, while fields are changing.
//!
//! `low` and `children` never change. The key range of a node never grows; a split removes the upper half and lowers
//! `high`.

use bolide_memory::{Arena, prefetch_line, prefetch_lines};

use super::arena_ref::{ArenaRef, Link};
use super::entry::{EntryRef, KeyEntry};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence, wait};

/// The slots of a node; a power of two. With 64, half a million keys make four levels, and a search reads at most six
/// prefixes of a node; with 32 there are five levels, and reads are 10 % slower.
#[cfg(not(bolide_shuttle))]
pub(super) const FANOUT: usize = 64;
/// The slots of a node: few, so that short runs of the model checker split nodes on three levels.
#[cfg(bolide_shuttle)]
pub(super) const FANOUT: usize = 4;

const LOCKED: u64 = 1;
const CHANGING: u64 = 2;
const ONE_CHANGE: u64 = 4;

/// A node of the tree.
#[repr(C, align(64))]
pub(super) struct TreeNode {
    version: AtomicU64,
    right: Link<TreeNode>,
    low: Link<KeyEntry>,
    high: Link<KeyEntry>,
    children: Link<Children>,
    skip: AtomicU32,
    count: AtomicU32,
    prefixes: [AtomicU64; FANOUT],
    entries: [Link<KeyEntry>; FANOUT],
}

/// The children of an inner node, one more than its slots.
pub(super) struct Children([Link<TreeNode>; FANOUT + 1]);

/// A reference to a node.
pub(super) type NodeRef<'a> = ArenaRef<'a, TreeNode>;

/// The result of a search in a node.
pub(super) struct NodeMatch<'a> {
    /// The number of slots with a smaller key.
    pub(super) position: usize,
    /// The entry of the key, if it is in the node.
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
    /// The entry of slot `index`; `None` after the last one.
    #[inline]
    pub(super) fn entry(&self, index: usize) -> Option<EntryRef<'a>> {
        self.entries[..self.count.min(FANOUT)].get(index).copied().flatten()
    }
}

impl Default for LeafCopy<'_> {
    fn default() -> Self {
        // One slot without an entry is equivalent to none. An all-zero value would take the slow path of the allocator for
        // zeroed memory.
        Self { entries: [None; FANOUT], count: 1, low: None, right: None }
    }
}

impl<'a> ArenaRef<'a, TreeNode> {
    /// An empty node for the keys from `low` to before `high`.
    pub(super) fn create(
        arena: &'a Arena,
        low: Option<EntryRef<'a>>,
        high: Option<EntryRef<'a>>,
        leaf: bool,
    ) -> Self {
        let children =
            (!leaf).then(|| ArenaRef::of_value(arena, Children(std::array::from_fn(|_| Link::new(None)))));
        ArenaRef::of_value(
            arena,
            TreeNode {
                version: AtomicU64::new(0),
                right: Link::new(None),
                low: Link::new(low),
                high: Link::new(high),
                children: Link::new(children),
                skip: AtomicU32::new(0),
                count: AtomicU32::new(0),
                prefixes: std::array::from_fn(|_| AtomicU64::new(0)),
                entries: std::array::from_fn(|_| Link::new(None)),
            },
        )
    }

    /// Starts a read: waits while fields are changing and returns the version to verify afterwards.
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

    /// Whether the node is unchanged since [`begin`](Self::begin) returned `version`.
    #[inline]
    pub(super) fn unchanged(self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.get().version.load(Ordering::Relaxed) & !LOCKED == version
    }

    /// Takes the write lock, if the node is unchanged since `version` and not locked.
    pub(super) fn try_lock(self, version: u64) -> bool {
        // The fence orders the reads before the exchange: if it succeeds, they read the state of `version`.
        fence(Ordering::Acquire);
        let locked = version | LOCKED;
        self.get().version.compare_exchange(version, locked, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock without a change.
    pub(super) fn unlock(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store(version & !(LOCKED | CHANGING), Ordering::Release);
    }

    /// Blocks readers. The caller holds the lock and is about to change fields.
    pub(super) fn begin_change(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store(version | CHANGING, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change and releases the lock.
    pub(super) fn end_change(self) {
        let version = self.get().version.load(Ordering::Relaxed);
        self.get().version.store((version & !(LOCKED | CHANGING)) + ONE_CHANGE, Ordering::Release);
    }

    /// The children; `None` in a leaf.
    #[inline]
    pub(super) fn children(self) -> Option<ArenaRef<'a, Children>> {
        self.get().children.load()
    }

    /// Slots in use, at most [`FANOUT`].
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.get().count.load(Ordering::Relaxed) as usize).min(FANOUT)
    }

    /// Whether this is the last node of its level.
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
        // The mask has no effect but removes the bounds check.
        self.get().prefixes[index & (FANOUT - 1)].load(Ordering::Relaxed)
    }

    /// Prefetches the lines that a search reads first.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch_lines(self.address().as_ptr(), 1 + FANOUT / 8);
    }

    /// Prefetches the lines that [`copy_to`](Self::copy_to) reads.
    #[inline]
    pub(super) fn prefetch_entries(self) {
        prefetch_line(self.address().as_ptr());
        prefetch_lines(&raw const self.get().entries, FANOUT / 8);
    }

    /// Prefetches the entry of `key`, or the next one, as determined by the prefixes. No effect on results.
    pub(super) fn prefetch_entry_of(self, key: &[u8]) {
        let skip = self.get().skip.load(Ordering::Relaxed) as usize;
        let position = self.lower_bound(prefix_at(key, skip), 0, self.count());
        if let Some(entry) = self.entry(position) {
            prefetch_lines(entry.address().as_ptr(), 2);
        }
    }

    /// Searches `key` among the slots. The position is valid if the node is unchanged afterwards. A found entry is always
    /// valid, because the entry of a key never changes.
    #[inline]
    pub(super) fn search(self, key: &[u8]) -> NodeMatch<'a> {
        let skip = self.get().skip.load(Ordering::Relaxed) as usize;
        let count = self.count();
        if skip > 0
            && !self.has_fences()
            && let Some(position) = self.outside_shared(key, skip, count)
        {
            return NodeMatch { position, entry: None };
        }
        let prefix = prefix_at(key, skip);
        let start = self.lower_bound(prefix, 0, count);
        if start == count || self.prefix(start) != prefix {
            return NodeMatch { position: start, entry: None };
        }
        if start + 1 == count || self.prefix(start + 1) != prefix {
            return self.search_ties(key, start, start + 1);
        }
        let end = match prefix.checked_add(1) {
            Some(after) => self.lower_bound(after, start + 1, count),
            None => count,
        };
        self.search_ties(key, start, end)
    }

    /// Whether `skip` is derived from the fences, and so is valid for every future key.
    #[inline]
    fn has_fences(self) -> bool {
        self.get().low.load().is_some() && self.get().high.load().is_some()
    }

    /// The position of `key` if it does not start with the `skip` bytes that all slots share.
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
    fn lower_bound(self, prefix: u64, start: usize, end: usize) -> usize {
        let mut base = start;
        let mut length = end - start;
        while length > 1 {
            let half = length / 2;
            // A branch on purpose: speculative execution prefetches the lines of the next steps. Without a branch,
            // ascending loads take 50 % longer, and nothing is faster.
            if self.prefix(base + half - 1) < prefix {
                base += half;
            }
            length -= half;
        }
        base + usize::from(length == 1 && self.prefix(base) < prefix)
    }

    /// Searches `key` among the slots `start .. end`, by whole keys.
    fn search_ties(self, key: &[u8], mut start: usize, mut end: usize) -> NodeMatch<'a> {
        while start < end {
            let middle = (start + end) / 2;
            // No entry: a mixture of two states, which the caller discards.
            let Some(entry) = self.entry(middle) else { break };
            match entry.key().cmp(key) {
                std::cmp::Ordering::Less => start = middle + 1,
                std::cmp::Ordering::Equal => return NodeMatch { position: middle, entry: Some(entry) },
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        NodeMatch { position: start, entry: None }
    }

    /// Copies a leaf's slots. The copy is valid if the leaf is unchanged afterwards.
    pub(super) fn copy_to(self, copy: &mut LeafCopy<'a>) {
        copy.count = self.count();
        for (index, entry) in copy.entries.iter_mut().enumerate().take(copy.count) {
            *entry = self.entry(index);
        }
        copy.low = self.get().low.load();
        copy.right = self.get().right.load();
    }

    /// Inserts `entry` as a new slot at `position`, and `child` after it. The caller has called
    /// [`begin_change`](Self::begin_change), and the node is not full.
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

    /// Shortens the `skip` of a node without fences to be valid for the key of `entry` too.
    fn shorten_skip(self, entry: EntryRef<'a>) {
        let skip = match self.entry(0) {
            Some(first) if self.count() > 0 => shared_bytes(first, entry),
            _ => entry.key().len() as u32,
        };
        if self.count() == 0 || skip < self.get().skip.load(Ordering::Relaxed) {
            self.set_skip(skip);
        }
    }

    /// The length of the common prefix of all possible keys, or, without fences, of the current keys.
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

    /// Builds the right half of a split at slot `middle`, whose key becomes the fence between the halves. The caller holds
    /// the lock. Does not change this node.
    pub(super) fn upper_half(self, arena: &'a Arena, middle: usize) -> Option<(EntryRef<'a>, NodeRef<'a>)> {
        let fence = self.entry(middle)?;
        let right = Self::create(arena, Some(fence), self.get().high.load(), self.children().is_none());
        right.get().right.store(self.get().right.load());
        // The middle key of an inner node moves up to the parent; it is in neither half.
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

    /// Removes the slots that [`upper_half`](Self::upper_half) copied. The caller has called
    /// [`begin_change`](Self::begin_change).
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

    /// Sets the first child of a new inner node.
    pub(super) fn set_first_child(self, child: NodeRef<'a>) {
        if let Some(children) = self.children() {
            children.get().0[0].store(Some(child));
        }
    }
}

impl<'a> ArenaRef<'a, Children> {
    /// Child `index`; `None` only in a mixture of two states.
    #[inline]
    pub(super) fn child(self, index: usize) -> Option<NodeRef<'a>> {
        self.get().0.get(index)?.load()
    }
}

/// The length of the common prefix of two keys, and so of all keys between them.
fn shared_bytes(left: EntryRef<'_>, right: EntryRef<'_>) -> u32 {
    left.key().iter().zip(right.key()).take_while(|(left, right)| left == right).count() as u32
}

/// Eight bytes of `key` from `skip` on, padded with zeros. Different prefixes are ordered as their keys.
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
        assert_eq!(size_of::<TreeNode>(), 64 + 16 * FANOUT);
    }
}
