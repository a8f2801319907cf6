//! Versions that entries name, read and validated together.
//!
//! Entries say which data block a version is in and which of its entries it is, so nothing is searched for. A batch sorts them by place:
//! each data block is taken from the cache, or read, once (NEXT §4, the read history of a question), and the loads of many
//! places wait for memory together. Where hardly two versions are in one block that is worth nothing: they are read in the order of their
//! turns then, some hundreds at once. What is newer than the place of a version tells whether it is current; it is asked for many at once, and what
//! is not current is not proposed at all. Small records, and those of blocks that had to be read, are copied side by side; the
//! others stay in their blocks until their turn comes, as long as few enough blocks are held.

use std::ops::Range;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{FoundInRun, VersionAt, VersionPlace, VersionRead, VersionReads, VersionValue};
use bolide_table::ValueRef;

use super::costs::NextCosts;
use super::global_index::GlobalIndex;
use super::index_block::Entry;
use crate::candidate::{Candidate, CandidateOrigin};
use crate::in_sstable::matches::{MAX_IN_HAND_BYTES, Question, order_value};

/// Versions that are read, then validated, at once: what they need stays in the nearer caches.
const READ_AT_ONCE: usize = 256;
/// Bytes that a key takes, about.
const KEY_ROOM: usize = 24;
/// Bytes of blocks that are held at most. Records of further blocks are copied.
const MAX_HELD_BYTES: usize = 16 << 20;
/// Bytes of copied records at most. Further ones are left to the driver.
const MAX_COPIED_BYTES: usize = 16 << 20;

/// A version of a record that an entry names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    pub(super) member: u32,
    pub(super) entry: Entry,
    /// Its record could not be looked into.
    pub(super) is_opaque: bool,
    /// The number of its key among those kept; [`NO_KEY`] for none.
    pub(super) key: u32,
}

impl Version {
    /// Its member and its data block, as a number.
    #[inline]
    pub(super) fn place(&self) -> u64 {
        u64::from(self.member) << u32::BITS | u64::from(self.entry.block)
    }
}

/// No key was kept.
pub(super) const NO_KEY: u32 = u32::MAX;

/// What may be an answer, by its number among those of its sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A match that was found.
    Found(u32),
    /// A version that an entry names.
    Version(u32),
}

/// What the turn of an item brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The match with this number.
    Found(u32),
    /// The version with this number has yet to be looked into.
    Opaque(u32),
    /// The current version that is at this place of the batch.
    Held(usize),
}

/// What became of a version that was read.
#[derive(Debug, Clone, Copy)]
struct Fate {
    is_current: bool,
    repeated: bool,
    /// There was no room for its value.
    is_left: bool,
}

/// What became of a value that keeps its block in memory.
enum Kept {
    Pinned,
    /// Among the copied values.
    Copied(Range<usize>),
    Not,
}

/// The blocks that values keep in memory.
#[derive(Debug, Default)]
struct HeldBlocks {
    /// Their bytes.
    bytes: usize,
    /// The last one.
    last: Option<u64>,
}

impl HeldBlocks {
    /// Keeps a value of the block at `place`, pinned or copied behind `values`.
    fn keep(&mut self, place: u64, value: &ValueRef, values: &mut Vec<u8>) -> Kept {
        let more = if self.last == Some(place) { 0 } else { value.pinned_bytes() };
        if self.bytes + more <= MAX_HELD_BYTES {
            self.bytes += more;
            self.last = Some(place);
            return Kept::Pinned;
        }
        let start = values.len();
        if value.len() > MAX_IN_HAND_BYTES || start + value.len() > MAX_COPIED_BYTES {
            return Kept::Not;
        }
        values.extend_from_slice(value);
        Kept::Copied(start..values.len())
    }
}

/// Items in the order of their turns, and the versions among them as they were read; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<(SequenceNumber, Item)>,
    /// The next turn.
    next: usize,
    /// Of each item that is a version to be read, its place in `reads` and `fates`.
    read_at: Vec<u32>,
    reads: Vec<VersionRead>,
    fates: Vec<Fate>,
    /// The keys of `reads`, and the values that are copied.
    taken: VersionReads,
    held: HeldBlocks,
    /// The data block that was read last, with its member.
    last_block: Option<(u32, u32)>,
    order: Vec<Ordered>,
    places: Vec<VersionPlace>,
    current: Vec<bool>,
}

/// An item that is a version to be read.
#[derive(Debug, Clone, Copy)]
struct Ordered {
    /// Member and block.
    place: u64,
    /// The number of the version.
    version: u32,
    /// That of the item.
    item: u32,
}

impl Batch {
    /// Forgets all items.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.next = 0;
        self.read_at.clear();
        self.reads.clear();
        self.fates.clear();
        self.taken.keys.clear();
        self.taken.values.clear();
        self.held = HeldBlocks::default();
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Makes room for so many more items.
    pub(super) fn reserve(&mut self, items: usize) {
        self.items.reserve(items);
    }

    /// Adds an item of this rank behind all others.
    pub(super) fn push(&mut self, rank: SequenceNumber, item: Item) {
        self.items.push((rank, item));
    }

    /// The rank of the item whose turn is next.
    pub(super) fn next_rank(&self) -> Option<SequenceNumber> {
        self.items.get(self.next).map(|(rank, _)| *rank)
    }

    /// Reads and validates what `versions` have of the items. Counts what that costs. Without `by_place` they are read in the
    /// order of their turns.
    ///
    /// # Errors
    /// `Corruption` where a version is not where its entry says, and from reading; `Io`.
    pub(super) fn read(
        &mut self,
        versions: &[Version],
        by_place: bool,
        global: &GlobalIndex,
        table: &TreeView,
        told: &mut Told,
    ) -> Result<()> {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for (number, (_, item)) in (0..).zip(&self.items) {
            if let Item::Version(at) = *item
                && let Some(version) = versions.get(at as usize).filter(|version| !version.is_opaque)
            {
                order.push(Ordered { place: version.place(), version: at, item: number });
            }
        }
        if by_place {
            order.sort_unstable_by_key(|ordered| ordered.place);
        }
        self.read_at.resize(self.items.len(), u32::MAX);
        self.reads.reserve(order.len());
        self.fates.reserve(order.len());
        self.taken.keys.reserve(order.len() * KEY_ROOM);
        for some in order.chunks(READ_AT_ONCE) {
            self.read_some(some, versions, (global, table), told)?;
        }
        self.order = order;
        Ok(())
    }

    fn read_some(
        &mut self,
        order: &[Ordered],
        versions: &[Version],
        (global, table): (&GlobalIndex, &TreeView),
        told: &mut Told,
    ) -> Result<()> {
        self.places.clear();
        let (first, first_key) = (self.reads.len(), self.taken.keys.len());
        let mut spared = 0;
        for (number, ordered) in (first as u32..).zip(order) {
            let version = versions.get(ordered.version as usize).ok_or_else(|| lost("a version"))?;
            let Entry { sequence, block, entry, repeated } = version.entry;
            let place = global.place(version.member).ok_or_else(|| lost("an sstable"))?;
            self.places.push(VersionPlace { table: place, block: block.into(), entry, sequence });
            self.fates.push(Fate { is_current: false, repeated, is_left: false });
            if let Some(slot) = self.read_at.get_mut(ordered.item as usize) {
                *slot = number;
            }
            let is_had = self.last_block.replace((version.member, block)) == Some((version.member, block));
            spared += u64::from(is_had);
        }
        told.costs.data_blocks_read += order.len() as u64 - spared;
        told.costs.data_blocks_spared += spared;
        table.read_versions(&self.places, &mut self.taken, &mut self.reads)?;
        self.validate(first, first_key, table, told)?;
        let Self { reads, fates, current, held, taken, .. } = self;
        let mut current = current.iter();
        let read = reads.iter_mut().zip(fates).skip(first);
        for ((read, fate), ordered) in read.zip(order) {
            match read.at {
                VersionAt::Newest => {
                    fate.is_current = current.next().copied().unwrap_or(false);
                    told.obsolete += u64::from(!fate.is_current);
                }
                VersionAt::Replaced => told.costs.replaced += 1,
                VersionAt::Other => {
                    let version = versions.get(ordered.version as usize);
                    return Err(version.map_or_else(|| lost("a version"), |it| misplaced(it, global, table)));
                }
            }
            if let VersionValue::Pinned(value) = &read.value {
                let kept = if fate.is_current {
                    held.keep(ordered.place, value, &mut taken.values)
                } else {
                    Kept::Not
                };
                match kept {
                    Kept::Pinned => continue,
                    Kept::Copied(at) => read.value = VersionValue::Copied(at),
                    Kept::Not => {
                        read.value = VersionValue::Copied(0..0);
                        fate.is_left = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds out which of the versions read from number `first` on are current, but for those that a neighbour has replaced.
    fn validate(&mut self, first: usize, first_key: usize, table: &TreeView, told: &mut Told) -> Result<()> {
        let mut start = first_key;
        let mut found = Vec::with_capacity(self.places.len());
        for (read, place) in self.reads.iter().skip(first).zip(&self.places) {
            let key = self.taken.keys.get(start..read.key_end).unwrap_or_default();
            start = read.key_end;
            if read.at == VersionAt::Newest {
                found.push(FoundInRun { key, sequence: place.sequence, newer_runs: read.newer_runs });
            }
        }
        self.current.clear();
        told.unknown += table.are_current(&found, &mut self.current)?;
        Ok(())
    }

    /// What comes next; `None` behind the last item.
    #[inline]
    pub(super) fn advance(&mut self) -> Option<Turn> {
        while let Some((_, item)) = self.items.get(self.next) {
            let turn = self.next;
            self.next += 1;
            let number = match *item {
                Item::Found(number) => return Some(Turn::Found(number)),
                Item::Version(number) => number,
            };
            match self.read_at.get(turn).and_then(|&at| self.fates.get(at as usize)) {
                Some(fate) if fate.is_current => return Some(Turn::Held(turn)),
                Some(_) => {}
                // What was not read has yet to be looked into.
                None => return Some(Turn::Opaque(number)),
            }
        }
        None
    }

    /// The number of the version whose turn [`advance`](Self::advance) said to be that at `turn`.
    #[inline]
    pub(super) fn version_at(&self, turn: usize) -> Option<u32> {
        match self.items.get(turn)?.1 {
            Item::Version(number) => Some(number),
            Item::Found(_) => None,
        }
    }

    /// The version whose turn [`advance`](Self::advance) said to be that at `turn`, as the driver is to see it; its secondary key, if it was
    /// kept, is `secondary_key`.
    #[inline]
    pub(super) fn candidate<'b>(
        &'b self,
        turn: usize,
        question: &Question<'_>,
        secondary_key: &'b [u8],
    ) -> Option<Candidate<'b>> {
        let &(sequence, _) = self.items.get(turn)?;
        let at = *self.read_at.get(turn)? as usize;
        let (read, fate) = (self.reads.get(at)?, self.fates.get(at)?);
        let before = at.checked_sub(1).and_then(|before| self.reads.get(before));
        let start = before.map_or(0, |before| before.key_end);
        Some(Candidate {
            primary_key: self.taken.keys.get(start..read.key_end)?,
            sequence,
            order_value: match question.access.near {
                // To a question for the nearest the key is the distance.
                Some(_) => secondary_key,
                None => order_value(question.access, question.order, secondary_key),
            },
            repeated: fate.repeated && !question.access.point,
            included: &[],
            origin: CandidateOrigin {
                newer_runs: None,
                validated: true,
                record: match &read.value {
                    _ if fate.is_left => None,
                    VersionValue::Pinned(value) => Some(value),
                    VersionValue::Copied(place) => self.taken.values.get(place.clone()),
                },
                checked: true,
            },
        })
    }
}

/// What reading found out, beside the versions.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Told {
    pub(super) costs: NextCosts,
    /// Versions that newer ones have replaced elsewhere, or that were deleted.
    pub(super) obsolete: u64,
    /// Versions that memory alone could not judge.
    pub(super) unknown: u64,
}

/// The error for a version that is not where its entry says.
#[cold]
pub(super) fn misplaced(version: &Version, global: &GlobalIndex, table: &TreeView) -> Error {
    let place = global.place(version.member).and_then(|place| table.table_at(place));
    let file = place.map_or(0, |sstable| sstable.meta().number);
    let Entry { sequence, block, entry, .. } = version.entry;
    let what = format!(
        "sstable {file:06}.sst: an index block says that write {sequence} is entry {entry} of data block {block}, which \
         it is not"
    );
    Error::new(ErrorKind::Corruption, what)
}

#[cold]
pub(super) fn lost(what: &str) -> Error {
    Error::internal(format!("a cursor of an index of kind `next` lost {what}"))
}

/// Whether hardly two of `versions` are in one data block: at most one of eight is where another may be. They are dealt to the bits of a
/// table of sixteen times as many, so that some that are not together seem so.
pub(super) fn is_sparse(versions: &[Version]) -> bool {
    let words = (versions.len() / 4).next_power_of_two();
    let mut met = vec![0_u64; words];
    let shift = u64::BITS - (words * u64::BITS as usize).ilog2();
    let mut again = 0;
    for version in versions {
        let bit = version.place().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
        if let Some(word) = met.get_mut(bit as usize / 64) {
            again += usize::from(*word >> (bit % 64) & 1 == 1);
            *word |= 1 << (bit % 64);
        }
    }
    again <= versions.len() / 8
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    #[test]
    fn blocks_are_held_within_a_bound_and_small_records_copied_beyond() {
        let (mut held, mut values) = (HeldBlocks::default(), b"before".to_vec());
        let block = ValueRef::from(vec![7; 1 << 20]);
        for place in 0..(MAX_HELD_BYTES >> 20) as u64 {
            assert!(matches!(held.keep(place, &block, &mut values), Kept::Pinned));
        }
        let last = held.last;
        assert!(matches!(held.keep(last.unwrap(), &block, &mut values), Kept::Pinned), "it is held already");
        assert!(matches!(held.keep(99, &block, &mut values), Kept::Not));
        let short = ValueRef::from(b"short".to_vec());
        match held.keep(99, &short, &mut values) {
            Kept::Copied(at) => assert_eq!(values.get(at), Some(&b"short"[..])),
            _ => panic!("a short one is copied"),
        }
        assert_eq!((&values[..], held.last), (&b"beforeshort"[..], last));
        values.resize(MAX_COPIED_BYTES, 0);
        assert!(matches!(held.keep(99, &short, &mut values), Kept::Not));
    }

    #[test]
    fn what_is_sparse_is_told_from_what_shares_blocks() {
        let seed = 11;
        let mut rng = SimRng::new(seed);
        for count in [0, 1, 7, 250, 2_500, 40_000] {
            for (blocks, sparse) in [(1, false), (3, false), (count, false), (20 * count, true)] {
                let versions: Vec<Version> = (0..count)
                    .map(|number| {
                        let block = rng.below(blocks.max(1)) as u32;
                        let entry = Entry { sequence: number, block, entry: 0, repeated: false };
                        Version { member: rng.below(2) as u32, entry, is_opaque: false, key: NO_KEY }
                    })
                    .collect();
                let is_so = is_sparse(&versions);
                assert!(count < 100 || is_so == sparse, "seed {seed}: {count} in {blocks} blocks");
            }
        }
    }
}
