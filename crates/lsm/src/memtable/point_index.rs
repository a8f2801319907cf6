//! Where the entry of a key lies: a hash table beside the tree, for memtables that are asked for single keys.
//!
//! A descent through half a million keys waits for memory four or five times; here it is the slot and the entry. A
//! memtable that nobody asks has no such table, and its writers pay a load for it.
//!
//! ```text
//! off ──first question of a large memtable──▶ filling ──the walk has come to the end──▶ complete
//!                                                └────────too many keys of one hash────────┴──▶ given up
//!
//! shard    one of 64, by the highest bits of the hash: a table, and a lock for whoever adds
//! table    length, slots          a longer one takes its place when it is three quarters full
//! slot     address of the entry, and 19 bits of the hash in the bits that addresses do not use; null: free
//! ```
//!
//! **Filling** goes along with questions: each that finds the table incomplete goes to the tree, and then adds the keys
//! of one more leaf. Writers add what they insert from the moment the filling begins. So no key is missed: with a
//! fence between the two steps on either side, a writer that does not see the beginning has inserted before the walk.
//!
//! **What is found is right** at any time: a key has one entry, and keeps it. What is not found is not there once the
//! table is complete: who inserts a key, or adds a version to an entry that only the tree knows, adds the entry here
//! before its sequence number is published.
//!
//! **Memory.** The table is made for as many keys as the memtable will have when it is full, as far as that is known
//! of the one before it, or if keys go on as they began: 12 bytes a key. What a longer table has replaced stays, as
//! readers may look at it, until the memtable goes.

use std::ptr::{self, NonNull};

use bolide_base::checksum::hash_key;
use parking_lot::{Mutex, MutexGuard};

use super::arena::{Arena, Place};
use super::entry::{Entry, EntryRef};
use super::node::{FANOUT, LeafCopy, NodeRef};
use super::sync::{AtomicPtr, AtomicU32, Ordering, fence, prefetch, wait};
use super::tree::Tree;

/// Shards: growing one is soon done.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;
/// Bits of the hash in a slot, below those that choose the shard.
const TAG_BITS: u32 = 19;
/// Where a slot has the address of its entry: a multiple of 8 below 2⁴⁸.
const ADDRESS: usize = 0x0000_ffff_ffff_fff8;
/// Most slots that a search looks at: only keys of one hash need so many.
const MAX_PROBES: usize = 256;
/// Slots of the first table of a shard, at least. A multiple of [`LINE_SLOTS`].
const MIN_SLOTS: usize = 16;
const LINE_SLOTS: usize = 8;
/// More slots would have the same tag.
const MAX_SLOTS: usize = 1 << (TAG_BITS - 2);
/// For so many keys that are there when the filling begins, room is made for one more at most, whatever the budget.
const MAX_GROWTH: usize = 64;

const OFF: u32 = 0;
const FILLING: u32 = 1;
const COMPLETE: u32 = 2;
const GIVEN_UP: u32 = 3;

/// Entries by the hash of their key.
pub(super) struct PointIndex {
    state: AtomicU32,
    /// Slots that a shard starts with.
    first_slots: AtomicU32,
    shards: [Shard; SHARDS],
    tables: Arena,
    walk: Mutex<Walk>,
}

/// How far the filling has come.
#[derive(Default)]
struct Walk {
    has_begun: bool,
    /// A node in the arena of the tree that the index belongs to, and only used with it.
    next: Option<NodeRef<'static>>,
}

struct Shard {
    table: AtomicPtr<Slot>,
    /// How many entries the table has. Held by whoever adds one.
    count: Mutex<usize>,
}

/// Behind the address of a table lie its length, as an address too, and then as many slots.
type Slot = AtomicPtr<Entry>;

/// A table of a shard.
#[derive(Clone, Copy)]
struct Table<'a> {
    slots: &'a [Slot],
}

/// What the index knows of a key.
pub(super) enum Known<'a> {
    Here(EntryRef<'a>),
    /// The memtable has no such key.
    Absent,
    /// The tree has to be asked.
    Unknown,
}

/// The hash of a key, for its place.
#[derive(Clone, Copy)]
struct PlaceOf {
    shard: usize,
    tag: usize,
}

impl PlaceOf {
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

/// The bits of a slot that are not the address.
#[inline]
fn bits_of(tag: usize) -> usize {
    (tag >> 3) << 48 | tag & 7
}

#[inline]
fn tag_of(slot: *mut Entry) -> usize {
    (slot.addr() >> 48) << 3 | slot.addr() & 7
}

impl<'a> Table<'a> {
    /// The table at `address`.
    ///
    /// # Safety
    /// [`PointIndex::create_table`] has made it, in an arena that outlives `'a`.
    #[inline]
    unsafe fn of(address: NonNull<Slot>) -> Self {
        // SAFETY: by the caller's promise the length stands there, and as many slots behind it.
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

    /// Up to [`MAX_PROBES`] slots from that of `tag` on, round the end.
    #[inline]
    fn probed(self, tag: usize) -> impl Iterator<Item = &'a Slot> {
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

    /// Puts an entry, with its tag, where it belongs: true if it was not there. `None` where there is no room.
    fn put(self, raw: *mut Entry) -> Option<bool> {
        for slot in self.probed(tag_of(raw)) {
            let there = slot.load(Ordering::Relaxed);
            if there.is_null() {
                slot.store(raw, Ordering::Release);
                return Some(true);
            }
            if there == raw {
                return Some(false);
            }
        }
        None
    }
}

/// The entry that a slot leads to.
#[inline]
fn entry_at<'a>(slot: *mut Entry) -> Option<EntryRef<'a>> {
    let entry = NonNull::new(slot.map_addr(|address| address & ADDRESS))?;
    // SAFETY: what is put into a slot is the address of an entry of the memtable that the index is a part of; the
    // slot is reached by a reference to the index, so the memtable is there.
    Some(unsafe { Place::new(entry) })
}

impl PointIndex {
    pub(super) fn new(largest_chunk_bytes: usize) -> Self {
        Self {
            state: AtomicU32::new(OFF),
            first_slots: AtomicU32::new(MIN_SLOTS as u32),
            shards: std::array::from_fn(|_| Shard {
                table: AtomicPtr::new(ptr::null_mut()),
                count: Mutex::new(0),
            }),
            tables: Arena::new(64, 4 << 10, largest_chunk_bytes),
            walk: Mutex::default(),
        }
    }

    /// Bytes taken from the allocator.
    pub(super) fn memory_bytes(&self) -> usize {
        self.tables.reserved_bytes()
    }

    /// What is known of `key`, with the hash that `hash` tells.
    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: impl FnOnce() -> u64) -> Known<'_> {
        let state = self.state.load(Ordering::Acquire);
        if state != COMPLETE && state != FILLING {
            return Known::Unknown;
        }
        let PlaceOf { shard, tag } = PlaceOf::hash(hash());
        match self.table(shard).and_then(|table| table.find(tag, key)) {
            Some(entry) => Known::Here(entry),
            None if state == COMPLETE => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// True once it knows of every key whether it is there.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) == COMPLETE
    }

    /// Asks for the slots where a key with this hash is looked for. Purely a hint.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let PlaceOf { shard, tag } = PlaceOf::hash(hash);
        if let Some(table) = self.table(shard)
            && let Some(slot) = table.slots.get(table.home(tag))
        {
            prefetch(slot, 1);
        }
    }

    #[inline]
    fn table(&self, shard: usize) -> Option<Table<'_>> {
        let address = NonNull::new(self.shards[shard % SHARDS].table.load(Ordering::Acquire))?;
        // SAFETY: `create_table` has made it, in an arena that goes with the index.
        Some(unsafe { Table::of(address) })
    }

    /// An empty table of `slots` slots.
    fn create_table(&self, slots: usize) -> *mut Slot {
        let address = self.tables.allocate((1 + slots) * size_of::<Slot>()).cast::<Slot>();
        // SAFETY: the memory has room for a length and the slots, and nobody else knows of it.
        unsafe {
            address.write(AtomicPtr::new(ptr::without_provenance_mut(slots)));
            for index in 1..=slots {
                address.add(index).write(AtomicPtr::new(ptr::null_mut()));
            }
        }
        address.as_ptr()
    }

    /// Takes note of an entry that is in the tree, or has a new version. The caller has inserted it and then
    /// made a fence.
    #[inline]
    pub(super) fn note(&self, entry: EntryRef<'_>) {
        if self.is_in_use() {
            self.add(entry);
        }
    }

    fn add(&self, entry: EntryRef<'_>) {
        let PlaceOf { shard, tag } = PlaceOf::key(entry.key());
        let address = entry.address().as_ptr().cast::<Entry>();
        if address.addr() & !ADDRESS != 0
            || self.add_to(shard, address.map_addr(|at| at | bits_of(tag))).is_none()
        {
            self.state.store(GIVEN_UP, Ordering::Release);
        }
    }

    /// Adds an entry with its tag to a shard. `None` where too many keys have its hash.
    fn add_to(&self, number: usize, raw: *mut Entry) -> Option<()> {
        let shard = &self.shards[number % SHARDS];
        let mut count = lock(&shard.count);
        loop {
            let table = self.table(number);
            let length = table.map_or(0, |table| table.slots.len());
            let has_room = *count < length / 4 * 3;
            if let Some(table) = table.filter(|_| has_room)
                && let Some(is_new) = table.put(raw)
            {
                *count += usize::from(is_new);
                return Some(());
            }
            // So many neighbours in a table that has room are keys of one hash.
            if length >= MAX_SLOTS || (has_room && *count < length / 8) {
                return None;
            }
            let least = self.first_slots.load(Ordering::Relaxed) as usize;
            let longer = self.create_table((2 * length).max(least));
            // SAFETY: it was just made.
            let slots = unsafe { NonNull::new(longer).map(|longer| Table::of(longer)) }?;
            for slot in table.iter().flat_map(|table| table.slots) {
                let raw = slot.load(Ordering::Relaxed);
                if !raw.is_null() {
                    slots.put(raw)?;
                }
            }
            shard.table.store(longer, Ordering::Release);
        }
    }

    /// Begins to fill the index, for a memtable that will have about `expected` keys, and has `keys`.
    #[cold]
    pub(super) fn begin(&self, keys: usize, expected: usize) {
        let expected = expected.clamp(keys, keys.saturating_mul(MAX_GROWTH));
        // Two thirds full in the end.
        let slots = (expected / SHARDS * 3 / 2).clamp(MIN_SLOTS, MAX_SLOTS / 4);
        self.first_slots.store(slots.next_multiple_of(LINE_SLOTS) as u32, Ordering::Relaxed);
        let _ = self.state.compare_exchange(OFF, FILLING, Ordering::SeqCst, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// True if keys are looked for here.
    #[inline]
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), FILLING | COMPLETE)
    }

    /// True before anybody has begun to fill it.
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OFF
    }

    /// True while there are keys that it does not know, and may come to know.
    pub(super) fn is_filling(&self) -> bool {
        self.state.load(Ordering::Acquire) == FILLING
    }

    /// Adds the keys of the next leaf of `tree`, the tree that it belongs to, unless another thread is at it.
    pub(super) fn fill(&self, tree: &Tree) {
        if self.state.load(Ordering::Acquire) != FILLING {
            return;
        }
        let Some(mut walk) = self.walk.try_lock() else { return };
        let mut leaf = LeafCopy::default();
        match walk.next {
            Some(next) => tree.copy_leaf(next, &mut leaf),
            None if walk.has_begun => return,
            None => {
                // Splits move keys to the right alone: what is there now is there, or further to the right, later.
                tree.copy_at(&[], &mut leaf);
            }
        }
        walk.has_begun = true;
        (0..FANOUT)
            .map_while(|slot| leaf.entry(slot))
            .for_each(|entry| prefetch(entry.address().as_ptr(), 1));
        (0..FANOUT).map_while(|slot| leaf.entry(slot)).for_each(|entry| self.add(entry));
        // SAFETY: the node lies in the arena of the memtable's tree, which is there whenever this is used.
        walk.next = leaf.right.map(|right| unsafe { Place::new(right.address().cast()) });
        if walk.next.is_none() {
            let _ = self.state.compare_exchange(FILLING, COMPLETE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Takes a lock that is held for a few dozen instructions, or while a table grows.
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

    fn inserted<'t>(tree: &'t Tree, key: &[u8]) -> EntryRef<'t> {
        tree.insert(0, key, Trailer::new(1, EntryKind::Put), b"value").entry
    }

    fn is_known(index: &PointIndex, key: &[u8]) -> Option<bool> {
        match index.find(key, || hash_key(key)) {
            Known::Here(entry) => Some(entry.key() == key),
            Known::Absent => Some(false),
            Known::Unknown => None,
        }
    }

    #[test]
    fn slots_keep_address_and_tag() {
        let tree = Tree::new(1 << 20);
        let entry = inserted(&tree, b"comet");
        let address = entry.address().as_ptr().cast::<Entry>();
        for tag in [0, 1, 7, 8, 12_345, (1 << TAG_BITS) - 1] {
            let slot = address.map_addr(|at| at | bits_of(tag));
            assert_eq!(tag_of(slot), tag);
            assert!(entry_at(slot) == Some(entry));
        }
    }

    #[test]
    fn it_is_filled_leaf_by_leaf_and_knows_then_what_is_absent() {
        let (tree, index) = (Tree::new(1 << 20), PointIndex::new(1 << 20));
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
        // Far more than it was made for, each told twice.
        for number in few..many {
            let entry = inserted(&tree, &number.to_be_bytes());
            index.note(entry);
            index.note(entry);
        }
        assert!((0..many).all(|number| is_known(&index, &number.to_be_bytes()) == Some(true)));
        assert_eq!(index.shards.iter().map(|shard| *shard.count.lock()).sum::<usize>(), many as usize);
        assert!(index.memory_bytes() < 64 << 10 | (many as usize * 40), "{} bytes", index.memory_bytes());
    }

    #[test]
    fn keys_of_one_hash_make_it_give_up() {
        let (tree, index) = (Tree::new(1 << 20), PointIndex::new(1 << 20));
        index.begin(0, 0);
        index.fill(&tree);
        let entries: Vec<_> = (0..1_000_u32).map(|number| inserted(&tree, &number.to_be_bytes())).collect();
        let with_tag =
            |entry: &EntryRef<'_>| entry.address().as_ptr().cast::<Entry>().map_addr(|at| at | bits_of(77));
        let added = entries.iter().take_while(|entry| index.add_to(5, with_tag(entry)).is_some()).count();
        assert!((32..=MAX_PROBES).contains(&added), "{added} keys of one hash");
        // So far all that it has is found.
        index.note(entries[0]);
        assert_eq!(is_known(&index, entries[0].key()), Some(true));
        index.state.store(GIVEN_UP, Ordering::Release);
        assert_eq!(is_known(&index, entries[0].key()), None);
        index.note(entries[1]);
        index.fill(&tree);
        assert!(!index.is_complete() && !index.is_off());
    }
}
