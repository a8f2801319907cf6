//! A bucket of the version table: up to fifteen keys, and a chain of overflow buckets.
//!
//! ```text
//! word   0     header: lock version << 16 | occupied slots, one bit each (15); an odd lock version means locked
//!        1, 2  one byte of the hash of each slot: fifteen tags, and one unused byte
//!        3     place of the next bucket of the chain; 0 for none
//!        4..64 fifteen slots of four words:
//!              hash, low half | hash, high half | flags << 48 | latest sequence | obsolete << 32 | entries of latest
//! ```
//!
//! The header of the first bucket of a chain guards the whole chain (a sequence lock): a writer makes the lock version odd
//! and then even again, and a reader that finds another version afterwards reads again.
//!
//! Header, tags and the next place lie in one cache line: an absent key usually costs no other.

use std::cell::Cell;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionWriter, Word};

use super::presence;
use crate::sync::{AtomicU64, Ordering, fence};

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = 512;
const BUCKET_WORDS: usize = BUCKET_BYTES / 8;
/// Slots of a bucket.
pub(super) const SLOTS: usize = 15;

const HEADER: usize = 0;
const TAGS: usize = 1;
const NEXT: usize = 3;
const FIRST_SLOT: usize = 4;
const SLOT_WORDS: usize = 4;
const OCCUPIED: u64 = (1 << SLOTS) - 1;
const LOCK_STEP: u64 = 1 << 16;
const SEQUENCE: u64 = (1 << 47) - 1;
const INEXACT: u64 = 1 << 48;
/// A count that reached this value stays: counts are never too low.
const MAX_COUNT: u32 = u32::MAX;

/// The state of a primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyState {
    /// The newest write of the key.
    pub(super) latest: SequenceNumber,
    /// Number of entries of that write.
    pub(super) entries: u32,
    /// Upper bound of the entries of older writes that are not flagged as obsolete.
    pub(super) obsolete: u32,
    /// Whether there may be more obsolete entries than `obsolete`.
    pub(super) inexact: bool,
}

impl KeyState {
    /// Notes `entries` further entries of a write at `sequence`, in the order of the log.
    pub(super) fn note_write(&mut self, sequence: SequenceNumber, entries: u32) {
        if sequence > self.latest {
            self.obsolete = self.obsolete.saturating_add(self.entries);
            (self.latest, self.entries) = (sequence, entries);
        } else if sequence == self.latest {
            self.entries = self.entries.saturating_add(entries);
        } else {
            self.obsolete = self.obsolete.saturating_add(entries);
        }
    }

    /// Notes that one obsolete entry was flagged or removed.
    pub(super) fn decrement_obsolete(&mut self) {
        if self.obsolete != MAX_COUNT {
            self.obsolete = self.obsolete.saturating_sub(1);
        }
    }

    /// Whether every entry of the key that is not flagged is current, so that the key can be removed.
    pub(super) fn is_clean(&self) -> bool {
        self.obsolete == 0 && !self.inexact
    }

    fn words(self) -> [u64; 2] {
        let flags = if self.inexact { INEXACT } else { 0 };
        [self.latest & SEQUENCE | flags, u64::from(self.obsolete) << 32 | u64::from(self.entries)]
    }

    fn of(words: [u64; 2]) -> Self {
        let [first, second] = words;
        let (entries, obsolete) = (second as u32, (second >> 32) as u32);
        Self { latest: first & SEQUENCE, entries, obsolete, inexact: first & INEXACT != 0 }
    }
}

/// The position of a slot of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotPlace {
    bucket: Place,
    slot: usize,
}

fn slot_at(slot: usize) -> usize {
    FIRST_SLOT + slot * SLOT_WORDS
}

fn word_at(bucket: Place, word: usize) -> Place {
    bucket + 8 * word as Place
}

#[cold]
fn endless_chain(bucket: Place) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("version table: the chain of the bucket at {bucket} does not end"),
    )
}

/// Walks the chain from `first` on: calls `visit` with each bucket until it returns `Some`.
fn each_bucket<T>(
    region: &Region,
    first: Place,
    mut visit: impl FnMut(Place, &[Word]) -> Option<T>,
) -> Result<Option<T>> {
    let mut bucket = first;
    for _ in 0..1 << 16 {
        let words = region.words(bucket, BUCKET_BYTES)?;
        if let Some(found) = visit(bucket, words) {
            return Ok(Some(found));
        }
        bucket = words[NEXT].get();
        if bucket == 0 {
            return Ok(None);
        }
    }
    Err(endless_chain(first))
}

fn occupied(words: &[Word]) -> impl Iterator<Item = usize> {
    let bits = words[HEADER].get() & OCCUPIED;
    (0..SLOTS).filter(move |slot| bits & 1 << slot != 0)
}

/// The tag of a key: bits of its hash that do not select the bucket.
#[inline]
pub(super) fn tag_of(hash: u128) -> u8 {
    (hash >> 120) as u8
}

/// The tag of a slot in use.
fn tag_in(words: &[Word], slot: usize) -> u8 {
    (words[TAGS + slot / 8].get() >> (8 * (slot % 8))) as u8
}

/// The slots whose tag is that of `hash`, one bit each: all slots with that hash, and few others.
#[inline]
fn tagged(words: &[Word], hash: u128) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let wanted = ONES * u64::from(tag_of(hash));
    let differing = |half: usize| words[TAGS + half].get() ^ wanted;
    // The highest bit of each byte that is zero (and rarely of the byte above one).
    let zeros = |differing: u64| differing.wrapping_sub(ONES) & !differing & HIGHS;
    let (low, high) = (zeros(differing(0)), zeros(differing(1)));
    // Most keys that are looked up are absent.
    if low | high == 0 {
        return 0;
    }
    // One bit of each byte, collected in the highest byte.
    let gathered = |zeros: u64| (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    gathered(low) | gathered(high) << 8
}

/// The slot of `hash`.
#[inline]
fn slot_of(words: &[Word], hash: u128) -> Option<usize> {
    let mut left = tagged(words, hash) & words[HEADER].get() & OCCUPIED;
    while left != 0 {
        let slot = left.trailing_zeros() as usize;
        if hash_of(words, slot) == hash {
            return Some(slot);
        }
        left &= left - 1;
    }
    None
}

#[inline]
fn hash_of(words: &[Word], slot: usize) -> u128 {
    let at = slot_at(slot);
    u128::from(words[at].get()) | u128::from(words[at + 1].get()) << 64
}

#[inline]
fn state_of(words: &[Word], slot: usize) -> KeyState {
    let at = slot_at(slot);
    KeyState::of([words[at + 2].get(), words[at + 3].get()])
}

/// Prefetches the slot that [`latest`] will read, if the first bucket has one with the tag of `hash`.
#[inline]
pub(super) fn prefetch_slot(region: &Region, first: Place, hash: u128) {
    let Ok(words) = region.words_uncounted(first, BUCKET_BYTES) else { return };
    let slots = tagged(words, hash) & words[HEADER].get() & OCCUPIED;
    if slots != 0 {
        let at = slot_at(slots.trailing_zeros() as usize);
        Region::prefetch_words(words.get(at..at + SLOT_WORDS).unwrap_or_default());
    }
}

/// Result of [`latest`] for an absent key. No write has this number.
pub(super) const ABSENT: SequenceNumber = 0;
/// Result of [`latest`] while a writer changes the chain. No write has this number.
pub(super) const BUSY: SequenceNumber = SequenceNumber::MAX;

/// The newest write of the key with `hash` in the chain from `first` on; [`ABSENT`] or [`BUSY`] without a result.
#[inline(always)]
pub(super) fn latest(region: &Region, first: Place, hash: u128) -> Result<SequenceNumber> {
    let words: &[Word; BUCKET_WORDS] =
        region.words(first, BUCKET_BYTES)?.first_chunk().ok_or_else(|| endless_chain(first))?;
    let before = words[HEADER].acquire();
    let mut left = tagged(words, hash) & before & OCCUPIED;
    let mut found = Ok(ABSENT);
    while left != 0 {
        let slot = left.trailing_zeros() as usize;
        if hash_of(words, slot) == hash {
            found = Ok(words[slot_at(slot) + 2].get() & SEQUENCE);
            break;
        }
        left &= left - 1;
    }
    let next = words[NEXT].get();
    if left == 0 && next != 0 {
        found = latest_in_overflow(region, next, hash);
    }
    fence(Ordering::Acquire);
    let is_unchanged = before & LOCK_STEP == 0 && words[HEADER].get() == before;
    if is_unchanged { found } else { Ok(BUSY) }
}

/// The newest write in the buckets from `next` on; most buckets have no overflow. A result read while the chain changes
/// does not matter: `latest` returns [`BUSY`].
#[cold]
fn latest_in_overflow(region: &Region, next: Place, hash: u128) -> Result<SequenceNumber> {
    let found = each_bucket(region, next, |_, words| slot_of(words, hash).map(|slot| state_of(words, slot)));
    found.map(|found| found.map_or(ABSENT, |state| state.latest))
}

/// A chain that is locked against other writers.
#[derive(Debug)]
pub(super) struct LockedChain<'w, 'r> {
    writer: &'w RegionWriter<'r>,
    first: Place,
    /// The presence word of the chain; see [`super::presence`].
    presence: &'w AtomicU64,
    /// A key was removed, so the presence word has to be computed again.
    has_removed: Cell<bool>,
}

impl<'w, 'r> LockedChain<'w, 'r> {
    /// Locks the chain from `first` on, whose word is `presence`; `None` while another thread holds the lock.
    pub(super) fn lock(
        writer: &'w RegionWriter<'r>,
        first: Place,
        presence: &'w AtomicU64,
    ) -> Result<Option<Self>> {
        let header = writer.region().load(first)?;
        if header & LOCK_STEP != 0 || writer.compare_exchange(first, header, header + LOCK_STEP)?.is_err() {
            return Ok(None);
        }
        Ok(Some(Self { writer, first, presence, has_removed: Cell::new(false) }))
    }

    /// Releases the lock of the chain from `first` on that a power cut left.
    pub(super) fn break_lock(writer: &RegionWriter<'_>, first: Place) -> Result<()> {
        let header = writer.region().load(first)?;
        if header & LOCK_STEP != 0 {
            writer.store_release(first, header.wrapping_add(LOCK_STEP))?;
            writer.persist(first, 8)?;
        }
        Ok(())
    }

    /// The slot of `hash`, and its state.
    pub(super) fn find(&self, hash: u128) -> Result<Option<(SlotPlace, KeyState)>> {
        each_bucket(self.writer.region(), self.first, |bucket, words| {
            let slot = slot_of(words, hash)?;
            Some((SlotPlace { bucket, slot }, state_of(words, slot)))
        })
    }

    /// All slots of the chain.
    pub(super) fn all(&self) -> Result<Vec<(SlotPlace, u128, KeyState)>> {
        let mut all = Vec::new();
        each_bucket(self.writer.region(), self.first, |bucket, words| {
            let slot = |slot| (SlotPlace { bucket, slot }, hash_of(words, slot), state_of(words, slot));
            all.extend(occupied(words).map(slot));
            None::<()>
        })?;
        Ok(all)
    }

    /// Stores the state of a slot.
    pub(super) fn set(&self, place: SlotPlace, state: KeyState) -> Result<()> {
        let at = slot_at(place.slot);
        let [first, second] = state.words();
        // Counts first: a power cut between the two leaves them too high, never too low.
        self.writer.store(word_at(place.bucket, at + 3), second)?;
        self.writer.store(word_at(place.bucket, at + 2), first)?;
        self.writer.persist(word_at(place.bucket, at + 2), 16)
    }

    /// Inserts an absent key.
    pub(super) fn insert(&self, hash: u128, state: KeyState) -> Result<()> {
        let region = self.writer.region();
        let free = each_bucket(region, self.first, |bucket, words| {
            let bits = words[HEADER].get();
            (0..SLOTS).find(|slot| bits & 1 << slot == 0).map(|slot| SlotPlace { bucket, slot })
        })?;
        let place = match free {
            Some(place) => place,
            None => {
                // Directly after the first bucket: no walk to the end of the chain.
                let bucket = self.writer.allocate(BUCKET_BYTES)?;
                self.writer.store(word_at(bucket, NEXT), region.load(word_at(self.first, NEXT))?)?;
                self.writer.persist(bucket, BUCKET_BYTES)?;
                self.writer.fence();
                // Durable by the fence before the slot is marked as occupied.
                self.set_next(bucket)?;
                SlotPlace { bucket, slot: 0 }
            }
        };
        self.fill(place, hash, state)
    }

    /// Fills a free slot.
    fn fill(&self, place: SlotPlace, hash: u128, state: KeyState) -> Result<()> {
        // Before the key is inserted, so that no reader takes it for absent.
        self.presence.fetch_or(presence::bit_of(tag_of(hash)), Ordering::AcqRel);
        let at = slot_at(place.slot);
        self.writer.store(word_at(place.bucket, at), hash as u64)?;
        self.writer.store(word_at(place.bucket, at + 1), (hash >> 64) as u64)?;
        self.set(place, state)?;
        self.set_tag(place, tag_of(hash))?;
        self.writer.persist(word_at(place.bucket, at), 32)?;
        self.writer.fence();
        self.change_occupied(place, |bits| bits | 1 << place.slot)
    }

    fn set_next(&self, next: u64) -> Result<()> {
        self.writer.store_release(word_at(self.first, NEXT), next)?;
        self.writer.persist(word_at(self.first, NEXT), 8)
    }

    /// Moves keys from overflow buckets to free slots of the first bucket. Frees the overflow buckets if they are empty then.
    /// A power cut may leave a key in both places; the one in the first bucket counts.
    pub(super) fn compact(&self) -> Result<()> {
        let next = self.writer.region().load(word_at(self.first, NEXT))?;
        if next == 0 {
            return Ok(());
        }
        let all = self.all()?;
        let mut overflow = all.iter().filter(|(place, ..)| place.bucket != self.first);
        let used = self.writer.region().load(self.first)? & OCCUPIED;
        for slot in (0..SLOTS).filter(|slot| used & 1 << slot == 0) {
            let Some((place, hash, state)) = overflow.next() else { break };
            self.fill(SlotPlace { bucket: self.first, slot }, *hash, *state)?;
            self.writer.fence();
            self.remove(*place)?;
        }
        if overflow.next().is_some() {
            return Ok(());
        }
        self.writer.fence();
        self.set_next(0)?;
        self.free_from(next)
    }

    fn set_tag(&self, place: SlotPlace, tag: u8) -> Result<()> {
        let at = word_at(place.bucket, TAGS + place.slot / 8);
        let shift = 8 * (place.slot % 8);
        let others = self.writer.region().load(at)? & !(0xff << shift);
        self.writer.store(at, others | u64::from(tag) << shift)
    }

    /// Removes a key.
    pub(super) fn remove(&self, place: SlotPlace) -> Result<()> {
        self.has_removed.set(true);
        self.change_occupied(place, |bits| bits & !(1 << place.slot))
    }

    fn change_occupied(&self, place: SlotPlace, change: impl Fn(u64) -> u64) -> Result<()> {
        let header = self.writer.region().load(place.bucket)?;
        self.writer.store(place.bucket, header & !OCCUPIED | change(header) & OCCUPIED)?;
        self.writer.persist(place.bucket, 8)
    }

    /// Frees all overflow buckets, which must be empty, and empties the first bucket.
    pub(super) fn clear(&self) -> Result<()> {
        self.has_removed.set(true);
        let next = self.writer.region().load(word_at(self.first, NEXT))?;
        self.change_occupied(SlotPlace { bucket: self.first, slot: 0 }, |_| 0)?;
        self.writer.store(word_at(self.first, NEXT), 0)?;
        self.free_from(next)
    }

    /// Frees the buckets from `next` on.
    fn free_from(&self, mut next: Place) -> Result<()> {
        let region = self.writer.region();
        for _ in 0..1 << 16 {
            if next == 0 {
                return Ok(());
            }
            let bucket = next;
            next = region.load(word_at(bucket, NEXT))?;
            self.writer.free(bucket, BUCKET_BYTES);
        }
        Err(endless_chain(self.first))
    }
}

impl Drop for LockedChain<'_, '_> {
    fn drop(&mut self) {
        if self.has_removed.get() {
            self.presence.store(presence_of(self.writer.region(), self.first), Ordering::Release);
        }
        if let Ok(header) = self.writer.region().load(self.first) {
            let _ = self.writer.store_release(self.first, header.wrapping_add(LOCK_STEP));
        }
    }
}

/// The bits of all keys of the chain from `first` on, which does not change meanwhile; all bits if it cannot be read.
pub(super) fn presence_of(region: &Region, first: Place) -> u64 {
    let mut bits = 0;
    let read = each_bucket(region, first, |_, words| {
        occupied(words).for_each(|slot| bits |= presence::bit_of(tag_in(words, slot)));
        None::<()>
    });
    if read.is_ok() { bits } else { u64::MAX }
}

/// Calls `visit` with the place of each overflow bucket in the chain of `first`.
pub(super) fn each_chained(region: &Region, first: Place, mut visit: impl FnMut(Place)) -> Result<()> {
    each_bucket(region, first, |bucket, _| {
        if bucket != first {
            visit(bucket);
        }
        None::<()>
    })
    .map(drop)
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use bolide_storage::SimRng;
    use bolide_storage::pmem::RegionOptions;

    use super::*;

    #[test]
    fn tags_miss_no_slot() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let writer = region.writer();
        let mut rng = SimRng::new(3);
        for _ in 0..200 {
            let bucket = writer.allocate(BUCKET_BYTES).unwrap();
            let presence = AtomicU64::new(0);
            let chain = LockedChain::lock(&writer, bucket, &presence).unwrap().unwrap();
            // Few tags, so that slots share them; zero and its neighbours among them.
            let tags = [0_u128, 1, 0x7f, 0x80, 0xff];
            let hash = |rng: &mut SimRng| u128::from(rng.next_u64()) | tags[rng.below(5) as usize] << 120;
            let hashes: Vec<u128> = (0..SLOTS).map(|_| hash(&mut rng)).collect();
            let state = KeyState { latest: 1, entries: 1, obsolete: 1, inexact: false };
            hashes.iter().for_each(|&hash| chain.insert(hash, state).unwrap());
            let words = region.words(bucket, BUCKET_BYTES).unwrap();
            for (slot, &hash) in hashes.iter().enumerate() {
                assert_eq!(slot_of(words, hash), Some(slot), "{hashes:x?}");
                assert_eq!(tag_in(words, slot), tag_of(hash));
            }
            for _ in 0..20 {
                assert_eq!(slot_of(words, hash(&mut rng)), None);
            }
        }
    }
}
