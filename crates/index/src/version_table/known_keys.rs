//! The keys that were ever written: reads and updates of the [novelty filter](super::novelty_filter), in two generations.
//!
//! An index that spills needs only the keys with entries above its cut: older entries are never current by the absence of their
//! key. So the filter is divided when the first spill ends:
//!
//! ```text
//! older      keys of writes through a sequence number; cleared as a whole once the cut has reached that number
//! active     keys of later writes, those in the older generation and those in the table included
//! ```
//!
//! Then the older one is empty, and the active one becomes the older one. Both together have at most about twice as many keys as
//! there are entries in memory. Without a spill there is one generation.
//!
//! ```text
//! root slot 31      bit 0 active generation, bit 1 divided, bits 2..64 newest write of the older generation, 0 if that is empty
//! root slots 20, 25 number of keys of a generation
//! root slots 23, 26 list of its pieces
//! ```

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use super::novelty_filter::{self, KeyBits, PIECE_BYTES};
use super::place_list::PlaceList;
use crate::sync::{AtomicU64, Ordering};

/// Root slots of the numbers of keys, and of the lists of pieces.
const KNOWN_SLOTS: [usize; 2] = [20, 25];
const PIECES_SLOTS: [usize; 2] = [23, 26];
/// Root slot of the state of both generations.
const STATE_SLOT: usize = 31;

const ACTIVE: u64 = 1;
const DIVIDED: u64 = 2;
const SEALED_SHIFT: u32 = 2;

/// The keys of some writes.
#[derive(Debug)]
struct Generation {
    number: usize,
    pieces: PlaceList,
    keys: AtomicU64,
}

impl Generation {
    fn open(region: &Region, number: usize) -> Result<Self> {
        let pieces = PlaceList::open(region, PIECES_SLOTS[number])?;
        Ok(Self { number, pieces, keys: AtomicU64::new(region.root(KNOWN_SLOTS[number])?) })
    }

    fn contains(&self, region: &Region, hash: u128) -> Result<bool> {
        for layer in 0..=novelty_filter::layer_of(self.keys.load(Ordering::Acquire)) {
            let bits = KeyBits::of(hash, layer);
            let index = (novelty_filter::pieces(layer).0 + bits.piece) as usize;
            if index < self.pieces.len() && bits.are_set(region, self.pieces.get(index))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn prefetch(&self, region: &Region, hash: u128) {
        for layer in 0..=novelty_filter::layer_of(self.keys.load(Ordering::Acquire)) {
            let bits = KeyBits::of(hash, layer);
            let index = (novelty_filter::pieces(layer).0 + bits.piece) as usize;
            if index < self.pieces.len() {
                bits.prefetch(region, self.pieces.get(index));
            }
        }
    }

    fn add(&self, writer: &RegionWriter<'_>, hash: u128) -> Result<()> {
        let keys = self.keys.load(Ordering::Acquire);
        let layer = novelty_filter::layer_of(keys);
        let (first, count) = novelty_filter::pieces(layer);
        while (self.pieces.len() as u64) < first + count {
            self.pieces.push(writer, writer.allocate(PIECE_BYTES)?)?;
        }
        let bits = KeyBits::of(hash, layer);
        bits.set(writer, self.pieces.get((first + bits.piece) as usize))?;
        self.set_keys(writer, keys + 1)
    }

    fn set_keys(&self, writer: &RegionWriter<'_>, keys: u64) -> Result<()> {
        writer.set_root(KNOWN_SLOTS[self.number], keys)?;
        self.keys.store(keys, Ordering::Release);
        Ok(())
    }

    /// Removes all keys. `keep` pieces stay for the next ones: free space is rarely contiguous for long.
    fn clear(&self, writer: &RegionWriter<'_>, keep: usize) -> Result<()> {
        self.set_keys(writer, 0)?;
        while self.pieces.len() > keep
            && let Some(piece) = self.pieces.pop(writer)?
        {
            writer.free(piece, PIECE_BYTES);
        }
        let zeros = vec![0; PIECE_BYTES];
        for index in 0..self.pieces.len() {
            writer.write(self.pieces.get(index), &zeros)?;
            writer.persist(self.pieces.get(index), PIECE_BYTES)?;
        }
        Ok(())
    }
}

/// See the [module](self). One thread at a time adds keys; the generations change while no writer of the region is active.
#[derive(Debug)]
pub(super) struct KnownKeys {
    generations: [Generation; 2],
    /// As in the root slot.
    state: AtomicU64,
}

impl KnownKeys {
    pub(super) fn open(region: &Region) -> Result<Self> {
        let generations = [Generation::open(region, 0)?, Generation::open(region, 1)?];
        Ok(Self { generations, state: AtomicU64::new(region.root(STATE_SLOT)?) })
    }

    /// The active generation, and the older one unless it is empty.
    #[inline]
    fn generations(&self) -> (&Generation, Option<&Generation>) {
        let [first, second] = &self.generations;
        let state = self.state.load(Ordering::Acquire);
        let (active, older) = if state & ACTIVE == 0 { (first, second) } else { (second, first) };
        (active, (state >> SEALED_SHIFT != 0).then_some(older))
    }

    /// Whether all written keys are added, those in the table included.
    #[inline]
    pub(super) fn is_divided(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DIVIDED != 0
    }

    /// Whether the key may have been added.
    pub(super) fn contains(&self, region: &Region, hash: u128) -> Result<bool> {
        let (active, older) = self.generations();
        Ok(active.contains(region, hash)? || older.map_or(Ok(false), |older| older.contains(region, hash))?)
    }

    /// Prefetches the bits of a key.
    pub(super) fn prefetch(&self, region: &Region, hash: u128) {
        let (active, older) = self.generations();
        active.prefetch(region, hash);
        if let Some(older) = older {
            older.prefetch(region, hash);
        }
    }

    /// Adds a key; false if the filter contained it, or seemed to.
    pub(super) fn add(&self, writer: &RegionWriter<'_>, hash: u128) -> Result<bool> {
        let (active, older) = self.generations();
        if active.contains(writer.region(), hash)? {
            return Ok(false);
        }
        active.add(writer, hash)?;
        older.map_or(Ok(true), |older| Ok(!older.contains(writer.region(), hash)?))
    }

    /// Clears the older generation if it has no key of a write above `cut`. If it is empty, the active one becomes the older one;
    /// `through` is the newest write. `writer` is the only one.
    pub(super) fn divide(
        &self,
        writer: &RegionWriter<'_>,
        cut: SequenceNumber,
        through: SequenceNumber,
    ) -> Result<()> {
        let mut state = self.state.load(Ordering::Acquire) | DIVIDED;
        if let (active, Some(older)) = self.generations()
            && state >> SEALED_SHIFT <= cut
        {
            older.clear(writer, active.pieces.len())?;
            state &= ACTIVE | DIVIDED;
        }
        if state >> SEALED_SHIFT == 0 && through > 0 {
            state = (state ^ ACTIVE) | through << SEALED_SHIFT;
        }
        writer.set_root(STATE_SLOT, state)?;
        self.state.store(state, Ordering::Release);
        Ok(())
    }

    /// The number of added keys; a key of both generations counts twice.
    pub(super) fn keys(&self) -> u64 {
        self.generations.iter().map(|generation| generation.keys.load(Ordering::Acquire)).sum()
    }

    /// Bytes of the pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.generations.iter().map(|generation| (generation.pieces.len() * PIECE_BYTES) as u64).sum()
    }

    /// Calls `visit` with place and size in bytes of every allocation.
    pub(super) fn visit_allocations(&self, visit: &mut dyn FnMut(Place, usize)) {
        for Generation { pieces, .. } in &self.generations {
            pieces.visit_allocations(visit);
            (0..pieces.len()).for_each(|index| visit(pieces.get(index), PIECE_BYTES));
        }
    }
}
