//! Cursors: the entries of a key or of a range of keys, in an order.
//!
//! * One key: its chain, newest first; reading stops where the caller stops. Oldest first, the chain is collected.
//! * A range by value: key after key, each newest first.
//! * A range by age: newest first by a merge of the chains of all its keys, which first reads one entry of each key;
//!   oldest first, all entries of the range are collected.
//!
//! A cursor pins the region. It reads each key in a state not older than the cursor, and skips entries that are newer than
//! its snapshot or flagged as obsolete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Pin, Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainEntry, ChainReader};
use super::pkey::content::{INLINE_OBSOLETE, KeyContent};
use super::pkey::entry::OBSOLETE;
use super::pkey::group;
use super::pkey::page;
use super::pkey::pointer::EntryPlace;
use super::skey::{Direction, ScanStart, record};
use crate::query::Order;

/// The secondary keys that a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsBounds<'b> {
    /// One key.
    One(&'b [u8]),
    /// Keys at or above `low` and below `end`; `None` for no end.
    Range {
        /// The lowest key.
        low: &'b [u8],
        /// The exclusive end.
        end: Option<&'b [u8]>,
    },
}

/// The entry at the position of a cursor.
/// The primary key of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PsEntry<'c> {
    /// The secondary key.
    pub secondary_key: &'c [u8],
    /// The record's key.
    pub primary_key: &'c [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// The covering value; empty for none.
    pub covering: &'c [u8],
    /// The place of the entry, for [`PsCursor::flag_obsolete`].
    pub place: EntryPlace,
}

/// Counts of what a cursor has read, for explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PsReadStats {
    /// Secondary keys.
    pub keys: u64,
    /// Groups.
    pub groups: u64,
    /// Pages, counted per key.
    pub pages: u64,
    /// Entries, skipped ones included.
    pub entries: u64,
}

/// The outcome of flagging an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsFlag {
    /// The entry was flagged by this call.
    Flagged,
    /// The entry was flagged before.
    AlreadyFlagged,
    /// The entry is being moved, or a checkpoint of the region begins. A later reader will flag it.
    Busy,
}

/// Iterates over the entries of a key or of a range of keys; returned by [`PsTree::cursor`].
///
/// It pins the region while it lives, reads each key in a state not older than the cursor, and skips entries that are newer
/// than its snapshot or flagged as obsolete. By value, and newest first for one key, the cost is that of the entries read.
/// Newest first over a range reads one entry of each key first; oldest first collects all entries within the bounds.
pub struct PsCursor<'t> {
    tree: &'t PsTree,
    _pin: Pin<'t>,
    snapshot: SequenceNumber,
    bound: SequenceNumber,
    walk: CursorWalk<'t>,
    key: Vec<u8>,
    body: Vec<u8>,
    read_stats: PsReadStats,
}

impl fmt::Debug for PsCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsCursor")
            .field("snapshot", &self.snapshot)
            .field("read_stats", &self.read_stats)
            .finish()
    }
}

enum CursorWalk<'t> {
    Chain(Option<ChainReader<'t>>),
    Keys(Box<KeyWalk<'t>>),
    Newest(Box<ChainMerge<'t>>),
    Collected(Box<CollectedEntries>),
}

/// Reads key after key within bounds.
struct KeyWalk<'t> {
    direction: Direction,
    low: Vec<u8>,
    end: Option<Vec<u8>>,
    /// False before the first batch, which starts at the bound.
    started: bool,
    finished: bool,
    batch: Vec<Place>,
    next: usize,
    last: Vec<u8>,
    chain: Option<ChainReader<'t>>,
}

/// The chains of all keys of a range, ordered by their newest unread entries.
#[derive(Default)]
struct ChainMerge<'t> {
    chains: Vec<(Place, ChainReader<'t>, ChainEntry)>,
    heap: BinaryHeap<(SequenceNumber, Reverse<usize>)>,
}

/// Collected entries in reverse order of iteration.
#[derive(Default)]
struct CollectedEntries {
    entries: Vec<(SequenceNumber, Place, ChainEntry)>,
}

impl PsTree {
    /// The entries within `bounds` at or below `snapshot`, in `order`.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn cursor(
        &self,
        bounds: PsBounds<'_>,
        order: Order,
        snapshot: SequenceNumber,
    ) -> Result<PsCursor<'_>> {
        let mut cursor = PsCursor {
            tree: self,
            _pin: self.region.pin(),
            snapshot,
            bound: snapshot,
            walk: CursorWalk::Chain(None),
            key: Vec::new(),
            body: Vec::new(),
            read_stats: PsReadStats::default(),
        };
        match bounds {
            PsBounds::One(key) => {
                cursor.key.extend_from_slice(key);
                cursor.start_chain(order)?;
            }
            PsBounds::Range { low, end } => cursor.start_range(low, end, order)?,
        }
        Ok(cursor)
    }

    /// Flags an entry as obsolete: readers skip it from now on, and the next rewrite of its page removes it. Precondition:
    /// every reader sees the write that replaced the entry. `pin` is held since the entry's place was read.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn flag_obsolete(&self, pin: &Pin<'_>, place: EntryPlace) -> Result<PsFlag> {
        match self.region.try_writer() {
            Some(writer) => self.flag_obsolete_by(&writer, pin, place),
            None => Ok(PsFlag::Busy),
        }
    }

    /// [`flag_obsolete`](Self::flag_obsolete) for a thread that holds a writer.
    pub(super) fn flag_obsolete_by(
        &self,
        writer: &RegionWriter<'_>,
        _pin: &Pin<'_>,
        place: EntryPlace,
    ) -> Result<PsFlag> {
        if place.is_inline() {
            return self.flag_inline(writer, place);
        }
        let Some(_shared) = self.locks.try_share(place.page()) else { return Ok(PsFlag::Busy) };
        if page::read_header(&self.region, place.page())?.retired {
            return Ok(PsFlag::Busy);
        }
        if writer.fetch_or(place.at(), OBSOLETE)? & OBSOLETE != 0 {
            return Ok(PsFlag::AlreadyFlagged);
        }
        writer.persist(place.at(), 8)?;
        if group::is_long(self.region.load(place.group())?) {
            let counts = place.group() + 8;
            let mut word = self.region.load(counts)?;
            while let Err(now) =
                writer.compare_exchange(counts, word, word.wrapping_add(group::ONE_OBSOLETE))?
            {
                word = now;
            }
            writer.persist(counts, 8)?;
        }
        Ok(PsFlag::Flagged)
    }

    /// Flags the entry in a record.
    fn flag_inline(&self, writer: &RegionWriter<'_>, place: EntryPlace) -> Result<PsFlag> {
        let mut word = record::value(&self.region, place.at())?;
        loop {
            match KeyContent::parse(word) {
                Some(KeyContent::Inline(header)) if header.is_obsolete() => {
                    return Ok(PsFlag::AlreadyFlagged);
                }
                Some(KeyContent::Inline(_)) => {}
                // The entry was moved to a page, or removed.
                _ => return Ok(PsFlag::Busy),
            }
            match writer.compare_exchange(place.at(), word, word | INLINE_OBSOLETE)? {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        writer.persist(place.at(), 8)?;
        Ok(PsFlag::Flagged)
    }
}

impl<'t> PsCursor<'t> {
    fn chain_of(&mut self, found: Place) -> Result<Option<ChainReader<'t>>> {
        let chain = ChainReader::of(&self.tree.region, found)?;
        self.read_stats.keys += u64::from(chain.is_some());
        Ok(chain)
    }

    fn start_chain(&mut self, order: Order) -> Result<()> {
        let Some(found) = self.tree.record_of(&self.key)? else { return Ok(()) };
        if order == Order::Oldest {
            let mut collected = CollectedEntries::default();
            self.collect(found, &mut collected)?;
            self.walk = CursorWalk::Collected(Box::new(collected));
        } else {
            self.walk = CursorWalk::Chain(self.chain_of(found)?);
        }
        Ok(())
    }

    fn start_range(&mut self, low: &[u8], end: Option<&[u8]>, order: Order) -> Result<()> {
        let direction = if order == Order::ValueDescending { Direction::Down } else { Direction::Up };
        let mut keys = Box::new(KeyWalk {
            direction,
            low: low.to_vec(),
            end: end.map(<[u8]>::to_vec),
            started: false,
            finished: end.is_some_and(|end| end <= low),
            batch: Vec::new(),
            next: 0,
            last: Vec::new(),
            chain: None,
        });
        match order {
            // A tree has no distances and one attribute: for these orders it returns the cheapest one.
            Order::Value | Order::ValueDescending | Order::Nearest | Order::Attributes => {
                self.walk = CursorWalk::Keys(keys);
            }
            Order::Newest => {
                let mut merge = Box::<ChainMerge>::default();
                while let Some(found) = keys.next_key(self.tree, &mut self.key)? {
                    let Some(mut chain) = self.chain_of(found)? else { continue };
                    match next_visible(&mut chain, self.snapshot, &mut self.read_stats)? {
                        Some(entry) => {
                            merge.heap.push((entry.header.sequence(), Reverse(merge.chains.len())));
                            merge.chains.push((found, chain, entry));
                        }
                        None => self.read_stats.add(&chain),
                    }
                }
                self.walk = CursorWalk::Newest(merge);
            }
            Order::Oldest => {
                let mut collected = Box::<CollectedEntries>::default();
                while let Some(found) = keys.next_key(self.tree, &mut self.key)? {
                    self.collect(found, &mut collected)?;
                }
                // A stable sort, read from the end: of equal numbers the lower key comes first.
                collected.entries.reverse();
                collected.entries.sort_by_key(|(sequence, ..)| Reverse(*sequence));
                self.walk = CursorWalk::Collected(collected);
            }
        }
        Ok(())
    }

    fn collect(&mut self, found: Place, collected: &mut CollectedEntries) -> Result<()> {
        let Some(mut chain) = self.chain_of(found)? else { return Ok(()) };
        while let Some(entry) = next_visible(&mut chain, self.snapshot, &mut self.read_stats)? {
            collected.entries.push((entry.header.sequence(), found, entry));
        }
        self.read_stats.add(&chain);
        Ok(())
    }

    /// The next entry.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn next_entry(&mut self) -> Result<Option<PsEntry<'_>>> {
        let Some(found) = self.advance()? else { return Ok(None) };
        let body = chain::read_body(&self.tree.region, &found, &mut self.body)?;
        Ok(Some(PsEntry {
            secondary_key: &self.key,
            primary_key: body.primary_key,
            sequence: found.header.sequence(),
            covering: body.covering,
            place: found.place,
        }))
    }

    /// Advances to the next visible entry, and sets `key` to its key.
    fn advance(&mut self) -> Result<Option<ChainEntry>> {
        let tree = self.tree;
        match &mut self.walk {
            CursorWalk::Chain(chain) => {
                let Some(reader) = chain else { return Ok(None) };
                let found = next_visible(reader, self.snapshot, &mut self.read_stats)?;
                match &found {
                    Some(found) => self.bound = found.header.sequence(),
                    None => {
                        self.read_stats.add(reader);
                        *chain = None;
                    }
                }
                Ok(found)
            }
            CursorWalk::Keys(keys) => loop {
                if let Some(reader) = &mut keys.chain {
                    if let Some(found) = next_visible(reader, self.snapshot, &mut self.read_stats)? {
                        return Ok(Some(found));
                    }
                    self.read_stats.add(reader);
                    keys.chain = None;
                }
                let Some(found) = keys.next_key(tree, &mut self.key)? else { return Ok(None) };
                keys.chain = ChainReader::of(&tree.region, found)?;
                self.read_stats.keys += u64::from(keys.chain.is_some());
            },
            CursorWalk::Newest(merge) => {
                let Some((sequence, Reverse(index))) = merge.heap.pop() else { return Ok(None) };
                let Some((key, chain, entry)) = merge.chains.get_mut(index) else { return Ok(None) };
                let found = *entry;
                match next_visible(chain, self.snapshot, &mut self.read_stats)? {
                    Some(next) => {
                        *entry = next;
                        merge.heap.push((next.header.sequence(), Reverse(index)));
                    }
                    None => self.read_stats.add(chain),
                }
                self.bound = sequence;
                self.key.clear();
                record::read_key(&tree.region, *key, &mut self.key)?;
                Ok(Some(found))
            }
            CursorWalk::Collected(collected) => {
                let Some((_, key, found)) = collected.entries.pop() else { return Ok(None) };
                self.key.clear();
                record::read_key(&tree.region, key, &mut self.key)?;
                Ok(Some(found))
            }
        }
    }

    /// Skips the remaining entries of the current key. Has an effect only in the orders by value. For measurements.
    #[cfg(feature = "paper")]
    pub fn skip_key(&mut self) {
        if let CursorWalk::Keys(keys) = &mut self.walk
            && let Some(chain) = keys.chain.take()
        {
            self.read_stats.add(&chain);
        }
    }

    /// Upper bound of the sequence numbers of the remaining entries.
    pub fn sequence_bound(&self) -> SequenceNumber {
        self.bound
    }

    /// Counts of what was read so far; of unfinished keys, only their entries.
    pub fn read_stats(&self) -> PsReadStats {
        self.read_stats
    }

    /// [`PsTree::is_present`] for an entry of this cursor.
    pub(crate) fn is_present(&self, place: EntryPlace) -> Result<Option<bool>> {
        self.tree.is_present(&self._pin, place)
    }

    /// [`PsTree::flag_obsolete`] for an entry of this cursor.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn flag_obsolete(&self, place: EntryPlace) -> Result<PsFlag> {
        self.tree.flag_obsolete(&self._pin, place)
    }
}

/// The next entry of a chain that is visible at the snapshot and not flagged.
#[inline]
fn next_visible(
    chain: &mut ChainReader<'_>,
    snapshot: SequenceNumber,
    read_stats: &mut PsReadStats,
) -> Result<Option<ChainEntry>> {
    while let Some(found) = chain.next()? {
        read_stats.entries += 1;
        if found.header.sequence() <= snapshot && !found.header.is_obsolete() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl PsReadStats {
    fn add(&mut self, chain: &ChainReader<'_>) {
        let (groups, pages) = chain.read_stats();
        self.groups += u64::from(groups);
        self.pages += u64::from(pages);
    }
}

impl KeyWalk<'_> {
    /// The record of the next key within the bounds; `key` is set to its key.
    fn next_key(&mut self, tree: &PsTree, key: &mut Vec<u8>) -> Result<Option<Place>> {
        if self.finished {
            return Ok(None);
        }
        if self.next >= self.batch.len() {
            self.batch.clear();
            self.next = 0;
            let from = match (self.started, self.direction, &self.end) {
                (true, ..) => ScanStart::After(&self.last),
                (false, Direction::Up, _) => ScanStart::At(&self.low),
                (false, Direction::Down, Some(end)) => ScanStart::After(end),
                (false, Direction::Down, None) => ScanStart::First,
            };
            tree.skeys.scan(&tree.region, from, self.direction, &mut self.batch)?;
            self.started = true;
            if let Some(&last) = self.batch.last() {
                self.last.clear();
                record::read_key(&tree.region, last, &mut self.last)?;
            }
        }
        let Some(&found) = self.batch.get(self.next) else {
            self.finished = true;
            return Ok(None);
        };
        self.next += 1;
        key.clear();
        record::read_key(&tree.region, found, key)?;
        let behind = match self.direction {
            Direction::Up => self.end.as_ref().is_some_and(|end| *key >= *end),
            Direction::Down => *key < self.low,
        };
        self.finished = behind;
        Ok((!behind).then_some(found))
    }
}
