//! Versions that entries name, read and validated together.
//!
//! Entries say which data block a version is in and which of its entries it is, so nothing is searched for. A batch sorts them by place:
//! each data block is taken from the cache, or read, once (NEXT §4, the read history of a question), and the loads of many
//! places wait for memory together. What is newer than the place of a version tells whether it is current; it is asked for many at once, and what
//! is not current is not proposed at all. The records of cached blocks stay there until their turn comes, so they are lent to the
//! driver and never copied, as long as few enough blocks are held; those of larger batches, and of blocks that had to be read, are
//! copied side by side.

use std::ops::Range;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{FoundInRun, VersionAt, VersionPlace, VersionRead, VersionReads, VersionValue};
use bolide_table::ValueRef;

use super::costs::NextCosts;
use super::global_index::GlobalIndex;
use super::index_block::Entry;
use crate::candidate::{Candidate, Origin};
use crate::in_table::matches::{MAX_IN_HAND_BYTES, Question, order_value};

/// Versions that are read, then validated, at once: what they need stays in the nearer caches.
const READ_AT_ONCE: usize = 256;
/// Bytes that a key takes, about.
const KEY_ROOM: usize = 24;
/// Bytes of blocks that are held at most. Records of further blocks are copied.
const MOST_HELD_BYTES: usize = 16 << 20;
/// Bytes of copied records at most. Further ones are left to the driver.
const MOST_COPIED_BYTES: usize = 16 << 20;

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

/// A version that was read.
#[derive(Debug)]
struct Held {
    key_end: usize,
    is_current: bool,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Pinned(ValueRef),
    /// Among the copied values of [`Batch::taken`].
    Copied(Range<usize>),
    /// There was no room for it.
    Left,
}

/// Items in the order of their turns, and the versions among them by place; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<(SequenceNumber, Item)>,
    /// The next turn.
    next: usize,
    /// Of each item that is a version to be read, its place in `held`.
    held_at: Vec<u32>,
    held: Vec<Held>,
    /// The keys of `held`, and the values that are copied.
    taken: VersionReads,
    /// Bytes of the blocks that `held` keeps in memory, and the block that it kept last.
    held_bytes: usize,
    held_block: Option<u64>,
    /// The data block that was read last, with its member.
    last_block: Option<(u32, u32)>,
    places: Vec<VersionPlace>,
    reads: Vec<VersionRead>,
    current: Vec<bool>,
}

impl Batch {
    /// Forgets all items.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.next = 0;
        self.held_at.clear();
        self.held.clear();
        self.taken.keys.clear();
        self.taken.values.clear();
        (self.held_bytes, self.held_block) = (0, None);
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

    /// Reads and validates what `versions` have of the items. Counts what that costs.
    ///
    /// # Errors
    /// `Corruption` where a version is not where its entry says, and from reading; `Io`.
    pub(super) fn read(
        &mut self,
        versions: &[Version],
        global: &GlobalIndex,
        table: &TreeView,
        told: &mut Told,
    ) -> Result<()> {
        // By place: member and block, then the number of the item.
        let mut order: Vec<(u64, u32, u32)> = Vec::with_capacity(self.items.len());
        for (number, (_, item)) in (0..).zip(&self.items) {
            if let Item::Version(at) = item
                && let Some(version) = versions.get(*at as usize).filter(|version| !version.is_opaque)
            {
                let place = u64::from(version.member) << 32 | u64::from(version.entry.block);
                order.push((place, *at, number));
            }
        }
        order.sort_unstable_by_key(|(place, ..)| *place);
        self.held_at.resize(self.items.len(), u32::MAX);
        self.held.reserve(order.len());
        self.taken.keys.reserve(order.len() * KEY_ROOM);
        for some in order.chunks(READ_AT_ONCE) {
            self.read_some(some, versions, (global, table), told)?;
        }
        Ok(())
    }

    fn read_some(
        &mut self,
        order: &[(u64, u32, u32)],
        versions: &[Version],
        (global, table): (&GlobalIndex, &TreeView),
        told: &mut Told,
    ) -> Result<()> {
        let of = |at: u32| versions.get(at as usize);
        self.places.clear();
        for version in order.iter().filter_map(|&(_, at, _)| of(at)) {
            let Entry { sequence, block, entry, .. } = version.entry;
            let place = global.place(version.member).ok_or_else(|| lost("an sstable"))?;
            self.places.push(VersionPlace { table: place, block: block.into(), entry, sequence });
            let is_had = self.last_block.replace((version.member, block)) == Some((version.member, block));
            told.costs.data_blocks_read += u64::from(!is_had);
            told.costs.data_blocks_spared += u64::from(is_had);
        }
        let first_key = self.taken.keys.len();
        self.reads.clear();
        table.read_versions(&self.places, &mut self.taken, &mut self.reads)?;
        self.validate(first_key, table, told)?;
        let (mut reads, currents) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.current));
        let mut current = currents.iter();
        for (read, &(block, at, number)) in reads.drain(..).zip(order) {
            let is_current = match read.at {
                VersionAt::Newest => current.next().copied().unwrap_or(false),
                VersionAt::Replaced => false,
                VersionAt::Other => {
                    return Err(of(at).map_or_else(|| lost("a version"), |it| misplaced(it, global, table)));
                }
            };
            told.costs.replaced += u64::from(read.at == VersionAt::Replaced);
            told.obsolete += u64::from(read.at == VersionAt::Newest && !is_current);
            let value = if is_current { self.hold(block, read.value) } else { Value::Left };
            if let Some(slot) = self.held_at.get_mut(number as usize) {
                *slot = self.held.len() as u32;
            }
            self.held.push(Held { key_end: read.key_end, is_current, value });
        }
        (self.reads, self.current) = (reads, currents);
        Ok(())
    }

    /// Keeps a value of `block`, pinned or copied.
    fn hold(&mut self, block: u64, value: VersionValue) -> Value {
        let value = match value {
            VersionValue::Pinned(value) => value,
            VersionValue::Copied(at) => return Value::Copied(at),
        };
        let more = if self.held_block == Some(block) { 0 } else { value.held_bytes() };
        if self.held_bytes + more <= MOST_HELD_BYTES {
            self.held_bytes += more;
            self.held_block = Some(block);
            return Value::Pinned(value);
        }
        let copied = &mut self.taken.values;
        let start = copied.len();
        if value.len() > MAX_IN_HAND_BYTES || start + value.len() > MOST_COPIED_BYTES {
            return Value::Left;
        }
        copied.extend_from_slice(&value);
        Value::Copied(start..copied.len())
    }

    /// Finds out which of the versions that were just read are current, but for those that a neighbour has replaced.
    fn validate(&mut self, first_key: usize, table: &TreeView, told: &mut Told) -> Result<()> {
        let mut start = first_key;
        let mut found = Vec::with_capacity(self.reads.len());
        for (read, place) in self.reads.iter().zip(&self.places) {
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
    pub(super) fn advance(&mut self, versions: &[Version]) -> Option<Turn> {
        while let Some((_, item)) = self.items.get(self.next) {
            let held = self.held_at.get(self.next).copied().unwrap_or(u32::MAX);
            let turn = self.next;
            self.next += 1;
            match *item {
                Item::Found(number) => return Some(Turn::Found(number)),
                Item::Version(number) if versions.get(number as usize).is_some_and(|it| it.is_opaque) => {
                    return Some(Turn::Opaque(number));
                }
                Item::Version(_) if self.held.get(held as usize).is_some_and(|held| held.is_current) => {
                    return Some(Turn::Held(turn));
                }
                Item::Version(_) => {}
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
        versions: &[Version],
        secondary_key: &'b [u8],
    ) -> Option<Candidate<'b>> {
        let &(sequence, Item::Version(number)) = self.items.get(turn)? else { return None };
        let at = *self.held_at.get(turn)? as usize;
        let held = self.held.get(at)?;
        let start =
            at.checked_sub(1).and_then(|before| self.held.get(before)).map_or(0, |before| before.key_end);
        let repeated = versions.get(number as usize)?.entry.repeated;
        Some(Candidate {
            primary_key: self.taken.keys.get(start..held.key_end)?,
            sequence,
            order_value: match question.access.near {
                // To a question for the nearest the key is the distance.
                Some(_) => secondary_key,
                None => order_value(question.access, question.order, secondary_key),
            },
            repeated: repeated && !question.access.point,
            included: &[],
            origin: Origin {
                newer_runs: None,
                validated: true,
                record: match &held.value {
                    Value::Pinned(value) => Some(value),
                    Value::Copied(place) => self.taken.values.get(place.clone()),
                    Value::Left => None,
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
