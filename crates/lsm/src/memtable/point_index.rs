//! A hash index from keys to entries beside the tree, for memtables with point reads.
//!
//! A descent through half a million keys waits for memory four or five times; a lookup in the index waits for the slot
//! and the entry. A memtable without point reads has no index, and its writers pay one load for it.
//!
//! ```text
//! off ──first point read of a large memtable──▶ filling ──end of the walk──▶ complete
//!                                                  └──too many keys of one hash──┴──▶ given up
//!
//! shard    one of 64, by the highest bits of the hash: a table, and a lock for additions
//! table    length, slots          replaced by a longer one when three quarters full
//! slot     address of the entry, and 19 bits of the hash in the unused bits of the address; null: free
//! ```
//!
//! **Filling.** Each point read that finds the index incomplete searches the tree, and then adds the keys of the next
//! leaf. Writers add their insertions from the start of the filling on. So no key is missed: with a fence between the
//! two steps on either side, a writer that does not see the start has inserted before the walk.
//!
//! **Correctness.** A found entry is always valid: the entry of a key never changes. A key that is not found in a
//! complete index is absent: a writer adds an entry to the index before its sequence number is published.
//!
//! **Memory.** The table is sized for the final number of keys of the memtable, estimated from the previous memtable or
//! by extrapolation: 12 bytes for each key. Replaced tables stay until the memtable is dropped, as readers may use them.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::technique::Technique;
use bolide_memory::{Arena, PagePool, prefetch_line};
use parking_lot::{Mutex, MutexGuard};

use super::arena_ref::ArenaRef;
use super::entry::{EntryRef, KeyEntry};
use super::node::{FANOUT, LeafCopy, NodeRef};
use super::sync::{AtomicPtr, AtomicU32, Ordering, fence, wait};
use super::tree::MemtableTree;

/// The number of shards: small tables grow fast.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;
/// Bits of the hash in a slot, below those that choose the shard.
const TAG_BITS: u32 = 19;
/// The bits of a slot with the address of its entry: a multiple of 8 below 2⁴⁸.
const ADDRESS: usize = 0x0000_ffff_ffff_fff8;
/// The maximum number of slots that a search reads. Only keys with equal hashes need that many.
const MAX_PROBES: usize = 256;
/// The minimum number of slots of the first table of a shard. A multiple of [`LINE_SLOTS`].
const MIN_SLOTS: usize = 16;
const LINE_SLOTS: usize = 8;
/// The maximum number of slots of a table: more would have equal tags.
const MAX_SLOTS: usize = 1 << (TAG_BITS - 2);
/// The maximum ratio of the expected final number of keys to the number at the start of the filling.
const MAX_GROWTH: usize = 64;

const OFF: u32 = 0;
const FILLING: u32 = 1;
const COMPLETE: u32 = 2;
const GIVEN_UP: u32 = 3;

/// Entries by the hash of their key.
pub(super) struct PointIndex {
    state: AtomicU32,
    /// The slots of the first table of a shard.
    first_slots: AtomicU32,
    shards: [PointShard; SHARDS],
    tables: Arena,
    walk: Mutex<FillProgress>,
}

/// The progress of the filling.
#[derive(Default)]
struct FillProgress {
    has_begun: bool,
    /// A node in the arena of the index's tree, and only used with that.
    next: Option<NodeRef<'static>>,
}

struct PointShard {
    table: AtomicPtr<PointSlot>,
    /// The number of entries of the table. Its lock protects additions.
    count: Mutex<usize>,
}

/// A slot. At the address of a table are its length, stored as an address, and then its slots.
type PointSlot = AtomicPtr<KeyEntry>;

/// A table of a shard.
#[derive(Clone, Copy)]
struct PointTable<'a> {
    slots: &'a [PointSlot],
}

/// The result of a lookup in the index.
pub(super) enum IndexLookup<'a> {
    Found(EntryRef<'a>),
    /// The memtable does not contain the key.
    Absent,
    /// The index does not cover the key: the caller searches the tree.
    Unknown,
}

/// The parts of the hash of a key that select its shard and slot.
#[derive(Clone, Copy)]
struct HashParts {
    shard: usize,
    tag: usize,
}

impl HashParts {
    #[inline]
    fn key(key: &[u8]) -> Self {
        Self::hash(hash_key(key))
    }

    #[inline]
    fn hash(hash: u64) -> Self {
        let tag = hash >> (u64::BITS - SHARD_BITS - TAG_BITS);
        Self { shard: (hash >> (u64::BITS - SHARD_BITS)) as usize, tag: tag as usize & ((1 << TAG_BITS) - 1) }
    }
}

/// The bits of a slot besides the address.
#[inline]
fn bits_of(tag: usize) -> usize {
    (tag >> 3) << 48 | tag & 7
}

#[inline]
fn tag_of(slot: *mut KeyEntry) -> usize {
    (slot.addr() >> 48) << 3 | slot.addr() & 7
}

impl<'a> PointTable<'a> {
    /// The table at `address`.
    ///
    /// # Safety
    /// It was created by [`PointIndex::create_table`], in an arena that outlives `'a`.
    #[inline]
    unsafe fn of(address: NonNull<PointSlot>) -> Self {
        // SAFETY: by the contract of this function, the length is there, followed by that many slots.
        let slots = unsafe {
            let length = address.as_ref().load(Ordering::Relaxed).addr();
            NonNull::slice_from_raw_parts(address.add(1), length).as_ref()
        };
        Self { slots }
    }

    #[inline]
    fn home(self, tag: usize) -> usize {
        (tag * self.slots.len()) >> TAG_BITS
    }

    /// Up to [`MAX_PROBES`] slots from the home slot of `tag` on, with wraparound.
    #[inline]
    fn probed(self, tag: usize) -> impl Iterator<Item = &'a PointSlot> {
        let (before, from) = self.slots.split_at(self.home(tag).min(self.slots.len()));
        from.iter().chain(before).take(MAX_PROBES)
    }

    #[inline]
    fn find(self, tag: usize, key: &[u8]) -> Option<EntryRef<'a>> {
        for slot in self.probed(tag) {
            let raw = slot.load(Ordering::Acquire);
            if raw.is_null() {
                return None;
            }
            if tag_of(raw) == tag
                && let Some(entry) = entry_at(raw)
                && entry.key() == key
            {
                return Some(entry);
            }
        }
        None
    }

    /// Inserts an entry with its tag. Returns whether it is new; `None` if there is no room.
    fn insert(self, raw: *mut KeyEntry) -> Option<bool> {
        for slot in self.probed(tag_of(raw)) {
            let current = slot.load(Ordering::Relaxed);
            if current.is_null() {
                slot.store(raw, Ordering::Release);
                return Some(true);
            }
            if current == raw {
                return Some(false);
            }
        }
        None
    }
}

/// The entry of a slot.
#[inline]
fn entry_at<'a>(slot: *mut KeyEntry) -> Option<EntryRef<'a>> {
    let entry = NonNull::new(slot.map_addr(|address| address & ADDRESS))?;
    // SAFETY: slots only contain addresses of entries of the index's memtable; the slot was read through a reference to
    // the index, so the memtable is alive.
    Some(unsafe { ArenaRef::new(entry) })
}

impl PointIndex {
    /// An index that grows by chunks of at most `largest_chunk_bytes`, in large pages of `pages`.
    pub(super) fn new(largest_chunk_bytes: usize, pages: Arc<PagePool>) -> Self {
        Self {
            state: AtomicU32::new(OFF),
            first_slots: AtomicU32::new(MIN_SLOTS as u32),
            shards: std::array::from_fn(|_| PointShard {
                table: AtomicPtr::new(ptr::null_mut()),
                count: Mutex::new(0),
            }),
            tables: Arena::new(64, 4 << 10, largest_chunk_bytes, pages),
            walk: Mutex::default(),
        }
    }

    /// The allocated bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.tables.reserved_bytes()
    }

    /// Looks up `key`; `hash` returns its hash.
    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: impl FnOnce() -> u64) -> IndexLookup<'_> {
        let state = self.state.load(Ordering::Acquire);
        if state != COMPLETE && state != FILLING {
            return IndexLookup::Unknown;
        }
        let HashParts { shard, tag } = HashParts::hash(hash());
        match self.table(shard).and_then(|table| table.find(tag, key)) {
            Some(entry) => IndexLookup::Found(entry),
            None if state == COMPLETE => IndexLookup::Absent,
            None => IndexLookup::Unknown,
        }
    }

    /// Whether the index covers all keys.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Prefetches the home slot of a hash. No effect on results.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let HashParts { shard, tag } = HashParts::hash(hash);
        if let Some(table) = self.table(shard)
            && let Some(slot) = table.slots.get(table.home(tag))
        {
            prefetch_line(slot);
        }
    }

    #[inline]
    fn table(&self, shard: usize) -> Option<PointTable<'_>> {
        let address = NonNull::new(self.shards[shard % SHARDS].table.load(Ordering::Acquire))?;
        // SAFETY: `create_table` created it, in the arena of the index.
        Some(unsafe { PointTable::of(address) })
    }

    /// An empty table of `slots` slots.
    fn create_table(&self, slots: usize) -> *mut PointSlot {
        let address = self.tables.allocate((1 + slots) * size_of::<PointSlot>()).cast::<PointSlot>();
        // SAFETY: the memory has room for the length and the slots, and is not published yet.
        unsafe {
            address.write(AtomicPtr::new(ptr::without_provenance_mut(slots)));
            for index in 1..=slots {
                address.add(index).write(AtomicPtr::new(ptr::null_mut()));
            }
        }
        address.as_ptr()
    }

    /// Adds an entry with an inserted version, if the index is in use. The caller has executed a fence after the insertion
    /// into the tree.
    #[inline]
    pub(super) fn record(&self, entry: EntryRef<'_>) {
        if self.is_in_use() {
            self.add(entry);
        }
    }

    fn add(&self, entry: EntryRef<'_>) {
        let HashParts { shard, tag } = HashParts::key(entry.key());
        let address = entry.address().as_ptr().cast::<KeyEntry>();
        if address.addr() & !ADDRESS != 0
            || self.add_to(shard, address.map_addr(|at| at | bits_of(tag))).is_none()
        {
            self.state.store(GIVEN_UP, Ordering::Release);
        }
    }

    /// Adds an entry with its tag to a shard. `None` if too many keys have its hash.
    fn add_to(&self, number: usize, raw: *mut KeyEntry) -> Option<()> {
        let shard = &self.shards[number % SHARDS];
        let mut count = lock(&shard.count);
        loop {
            let table = self.table(number);
            let length = table.map_or(0, |table| table.slots.len());
            let has_room = *count < length / 4 * 3;
            if let Some(table) = table.filter(|_| has_room)
                && let Some(is_new) = table.insert(raw)
            {
                *count += usize::from(is_new);
                return Some(());
            }
            // So many occupied neighbours in a table with room are keys of one hash.
            if length >= MAX_SLOTS || (has_room && *count < length / 8) {
                return None;
            }
            let first_slots = self.first_slots.load(Ordering::Relaxed) as usize;
            let longer = self.create_table((2 * length).max(first_slots));
            // SAFETY: it was created just now.
            let slots = unsafe { NonNull::new(longer).map(|longer| PointTable::of(longer)) }?;
            for slot in table.iter().flat_map(|table| table.slots) {
                let raw = slot.load(Ordering::Relaxed);
                if !raw.is_null() {
                    slots.insert(raw)?;
                }
            }
            shard.table.store(longer, Ordering::Release);
        }
    }

    /// Starts the filling, for a memtable with `keys` keys and an expected final number of `expected`.
    #[cold]
    pub(super) fn begin(&self, keys: usize, expected: usize) {
        if !Technique::PointIndex.is_on() {
            return;
        }
        let expected = expected.clamp(keys, keys.saturating_mul(MAX_GROWTH));
        // At the end, two thirds of the slots are used.
        let slots = (expected / SHARDS * 3 / 2).clamp(MIN_SLOTS, MAX_SLOTS / 4);
        self.first_slots.store(slots.next_multiple_of(LINE_SLOTS) as u32, Ordering::Relaxed);
        let _ = self.state.compare_exchange(OFF, FILLING, Ordering::SeqCst, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether writers add entries to the index.
    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), FILLING | COMPLETE)
    }

    /// Whether the filling has not started.
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OFF
    }

    /// Whether the filling has started and not ended.
    pub(super) fn is_filling(&self) -> bool {
        self.state.load(Ordering::Acquire) == FILLING
    }

    /// Adds the keys of the next leaf of `tree`, the index's tree, unless another thread does so.
    pub(super) fn fill(&self, tree: &MemtableTree) {
        if self.state.load(Ordering::Acquire) != FILLING {
            return;
        }
        let Some(mut walk) = self.walk.try_lock() else { return };
        let mut leaf = LeafCopy::default();
        match walk.next {
            Some(next) => tree.copy_leaf(next, &mut leaf),
            None if walk.has_begun => return,
            None => {
                // Splits move keys only to the right: the walk does not miss keys that exist now.
                tree.copy_at(&[], &mut leaf);
            }
        }
        walk.has_begun = true;
        (0..FANOUT)
            .map_while(|slot| leaf.entry(slot))
            .for_each(|entry| prefetch_line(entry.address().as_ptr()));
        (0..FANOUT).map_while(|slot| leaf.entry(slot)).for_each(|entry| self.add(entry));
        // SAFETY: the node is in the arena of the memtable's tree, which is alive whenever this is used.
        walk.next = leaf.right.map(|right| unsafe { ArenaRef::new(right.address().cast()) });
        if walk.next.is_none() {
            let _ = self.state.compare_exchange(FILLING, COMPLETE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Takes a lock with a critical section of a few dozen instructions, or the growth of a table.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut turns = 0;
    loop {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        wait(&mut turns);
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use bolide_base::{EntryKind, Trailer};

    use super::*;

    fn inserted<'t>(tree: &'t MemtableTree, key: &[u8]) -> EntryRef<'t> {
        tree.insert(0, key, Trailer::new(1, EntryKind::Put), b"value").entry
    }

    fn is_known(index: &PointIndex, key: &[u8]) -> Option<bool> {
        match index.find(key, || hash_key(key)) {
            IndexLookup::Found(entry) => Some(entry.key() == key),
            IndexLookup::Absent => Some(false),
            IndexLookup::Unknown => None,
        }
    }

    #[test]
    fn slots_store_address_and_tag() {
        let tree = MemtableTree::new(1 << 20, &PagePool::new());
        let entry = inserted(&tree, b"comet");
        let address = entry.address().as_ptr().cast::<KeyEntry>();
        for tag in [0, 1, 7, 8, 12_345, (1 << TAG_BITS) - 1] {
            let slot = address.map_addr(|at| at | bits_of(tag));
            assert_eq!(tag_of(slot), tag);
            assert!(entry_at(slot) == Some(entry));
        }
    }

    #[test]
    fn the_index_is_filled_leaf_by_leaf_and_then_reports_absent_keys() {
        let (tree, index) =
            (MemtableTree::new(1 << 20, &PagePool::new()), PointIndex::new(1 << 20, PagePool::new()));
        // Small under Miri, which is some hundred times slower.
        let (few, many) = if cfg!(miri) { (300, 2_000) } else { (5_000, 60_000) };
        let keys: Vec<_> = (0..few).map(|number: u32| (number * 7_919 % few).to_be_bytes()).collect();
        for key in &keys {
            inserted(&tree, key);
        }
        index.fill(&tree);
        assert!(index.is_off() && is_known(&index, &keys[0]).is_none());
        index.begin(keys.len(), 2 * keys.len());
        let mut steps = 0;
        while !index.is_complete() {
            assert_eq!(is_known(&index, b"absent"), None, "after {steps} leaves");
            index.fill(&tree);
            steps += 1;
        }
        assert!(steps >= keys.len() / FANOUT, "{steps} leaves");
        assert!(keys.iter().all(|key| is_known(&index, key) == Some(true)));
        assert_eq!(is_known(&index, b"absent"), Some(false));
        // Far more keys than expected, each recorded twice.
        for number in few..many {
            let entry = inserted(&tree, &number.to_be_bytes());
            index.record(entry);
            index.record(entry);
        }
        assert!((0..many).all(|number| is_known(&index, &number.to_be_bytes()) == Some(true)));
        assert_eq!(index.shards.iter().map(|shard| *shard.count.lock()).sum::<usize>(), many as usize);
        assert!(index.memory_bytes() < 64 << 10 | (many as usize * 40), "{} bytes", index.memory_bytes());
    }

    #[test]
    fn too_many_keys_of_one_hash_make_the_index_give_up() {
        let (tree, index) =
            (MemtableTree::new(1 << 20, &PagePool::new()), PointIndex::new(1 << 20, PagePool::new()));
        index.begin(0, 0);
        index.fill(&tree);
        let entries: Vec<_> = (0..1_000_u32).map(|number| inserted(&tree, &number.to_be_bytes())).collect();
        let with_tag = |entry: &EntryRef<'_>| {
            entry.address().as_ptr().cast::<KeyEntry>().map_addr(|at| at | bits_of(77))
        };
        let added = entries.iter().take_while(|entry| index.add_to(5, with_tag(entry)).is_some()).count();
        assert!((32..=MAX_PROBES).contains(&added), "{added} keys of one hash");
        // Until then, all recorded keys are found.
        index.record(entries[0]);
        assert_eq!(is_known(&index, entries[0].key()), Some(true));
        index.state.store(GIVEN_UP, Ordering::Release);
        assert_eq!(is_known(&index, entries[0].key()), None);
        index.record(entries[1]);
        index.fill(&tree);
        assert!(!index.is_complete() && !index.is_off());
    }
}
