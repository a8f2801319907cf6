//! Reading: the entries of a key or of a range of keys, in an order.
//!
//! * One key: its chain, newest first, stops wherever the caller does. Oldest first, the chain is collected.
//! * A range by value: key after key, each newest first.
//! * A range by age: newest first by a merge of the chains of all its keys, which costs a look at each key first;
//!   oldest first, all entries of the range are collected.
//!
//! A cursor pins the region. It sees each key as it was at some moment since the cursor was made, and leaves out what
//! is newer than its snapshot and what is flagged as obsolete.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use bolide_base::{Result, SequenceNumber};
use bolide_storage::pmem::{Pin, Place, RegionWriter};

use super::PsTree;
use super::pkey::chain::{self, ChainReader, Found};
use super::pkey::entry::OBSOLETE;
use super::pkey::group;
use super::pkey::page;
use super::pkey::pointer::EntryPlace;
use super::skey::{Direction, From, record};
use crate::query::Order;

/// Which secondary keys a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsBounds<'b> {
    /// This one.
    One(&'b [u8]),
    /// Those at or above `low` and below `end`; `None` for no end.
    Range {
        /// The lowest key.
        low: &'b [u8],
        /// The first key behind.
        end: Option<&'b [u8]>,
    },
}

/// An entry that a cursor stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PsEntry<'c> {
    /// The secondary key.
    pub secondary_key: &'c [u8],
    /// The record's key.
    pub primary_key: &'c [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
    /// What the entry carries besides; empty for nothing.
    pub covering: &'c [u8],
    /// For [`PsCursor::flag_obsolete`].
    pub place: EntryPlace,
}

/// What a cursor has read so far, for explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PsTouched {
    /// Secondary keys.
    pub keys: u64,
    /// Groups.
    pub groups: u64,
    /// Pages, counted again for each key.
    pub pages: u64,
    /// Entries, those left out included.
    pub entries: u64,
}

/// What became of a wish to flag an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsFlag {
    /// The entry is flagged, by this call.
    Won,
    /// It was flagged before.
    Already,
    /// Not now: the entry is being moved, or the region is about to be cut. A later reader will do it.
    Refused,
}

/// Streams the entries of a key or of a range of keys; made by [`PsTree::cursor`].
///
/// It pins the region while it lives, sees each key as it was at some moment since it was made, and leaves out what is
/// newer than its snapshot and what is flagged as obsolete. By value, and newest first for one key, it costs what
/// is read of it. Newest first over a range looks at each key of the range at once; oldest first collects all
/// entries within the bounds.
pub struct PsCursor<'t> {
    tree: &'t PsTree,
    _pin: Pin<'t>,
    snapshot: SequenceNumber,
    bound: SequenceNumber,
    walk: Walk<'t>,
    key: Vec<u8>,
    body: Vec<u8>,
    touched: PsTouched,
}

impl fmt::Debug for PsCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsCursor").field("snapshot", &self.snapshot).field("touched", &self.touched).finish()
    }
}

enum Walk<'t> {
    Chain(Option<ChainReader<'t>>),
    Keys(Box<KeyWalk<'t>>),
    Newest(Box<Merge<'t>>),
    Collected(Box<Collected>),
}

/// Key after key within bounds.
struct KeyWalk<'t> {
    direction: Direction,
    low: Vec<u8>,
    end: Option<Vec<u8>>,
    /// False before the first batch: the next one then starts at the bound.
    started: bool,
    finished: bool,
    batch: Vec<Place>,
    next: usize,
    last: Vec<u8>,
    chain: Option<ChainReader<'t>>,
}

/// The chains of all keys of a range, by their newest unread entries.
#[derive(Default)]
struct Merge<'t> {
    chains: Vec<(Place, ChainReader<'t>, Found)>,
    heap: BinaryHeap<(SequenceNumber, Reverse<usize>)>,
}

/// Entries in the order in which they are to be given, the next one last.
#[derive(Default)]
struct Collected {
    entries: Vec<(SequenceNumber, Place, Found)>,
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
            walk: Walk::Chain(None),
            key: Vec::new(),
            body: Vec::new(),
            touched: PsTouched::default(),
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

    /// Flags an entry as obsolete: readers leave it out from now on, and the next rewrite of its page removes it. For
    /// who knows that the write that replaced it is seen by every reader. `_pin` has been held since the entry's place
    /// was read.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn flag_obsolete(&self, pin: &Pin<'_>, place: EntryPlace) -> Result<PsFlag> {
        match self.region.try_writer() {
            Some(writer) => self.flag_obsolete_by(&writer, pin, place),
            None => Ok(PsFlag::Refused),
        }
    }

    /// The same by who writes already.
    pub(super) fn flag_obsolete_by(
        &self,
        writer: &RegionWriter<'_>,
        _pin: &Pin<'_>,
        place: EntryPlace,
    ) -> Result<PsFlag> {
        let Some(_shared) = self.locks.try_share(place.page()) else { return Ok(PsFlag::Refused) };
        if page::read_header(&self.region, place.page())?.retired {
            return Ok(PsFlag::Refused);
        }
        if writer.fetch_or(place.at(), OBSOLETE)? & OBSOLETE != 0 {
            return Ok(PsFlag::Already);
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
        Ok(PsFlag::Won)
    }
}

impl<'t> PsCursor<'t> {
    fn chain_of(&mut self, found: Place) -> Result<Option<ChainReader<'t>>> {
        let Some(newest) = self.tree.newest_group(found)? else { return Ok(None) };
        self.touched.keys += 1;
        ChainReader::new(&self.tree.region, newest, self.tree.sizes.page_bytes).map(Some)
    }

    fn start_chain(&mut self, order: Order) -> Result<()> {
        let Some(found) = self.tree.record_of(&self.key)? else { return Ok(()) };
        if order == Order::Oldest {
            let mut collected = Collected::default();
            self.collect(found, &mut collected)?;
            self.walk = Walk::Collected(Box::new(collected));
        } else {
            self.walk = Walk::Chain(self.chain_of(found)?);
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
            // A tree knows no distances: in that order it gives what costs least.
            Order::Value | Order::ValueDescending | Order::Nearest => self.walk = Walk::Keys(keys),
            Order::Newest => {
                let mut merge = Box::<Merge>::default();
                while let Some(found) = keys.next_key(self.tree, &mut self.key)? {
                    let Some(mut chain) = self.chain_of(found)? else { continue };
                    match next_visible(&mut chain, self.snapshot, &mut self.touched)? {
                        Some(entry) => {
                            merge.heap.push((entry.header.sequence(), Reverse(merge.chains.len())));
                            merge.chains.push((found, chain, entry));
                        }
                        None => self.touched.add(&chain),
                    }
                }
                self.walk = Walk::Newest(merge);
            }
            Order::Oldest => {
                let mut collected = Box::<Collected>::default();
                while let Some(found) = keys.next_key(self.tree, &mut self.key)? {
                    self.collect(found, &mut collected)?;
                }
                // Stable, and given from the end: of equal numbers the lower key comes first.
                collected.entries.reverse();
                collected.entries.sort_by_key(|(sequence, ..)| Reverse(*sequence));
                self.walk = Walk::Collected(collected);
            }
        }
        Ok(())
    }

    fn collect(&mut self, found: Place, collected: &mut Collected) -> Result<()> {
        let Some(mut chain) = self.chain_of(found)? else { return Ok(()) };
        while let Some(entry) = next_visible(&mut chain, self.snapshot, &mut self.touched)? {
            collected.entries.push((entry.header.sequence(), found, entry));
        }
        self.touched.add(&chain);
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

    /// Goes to the next visible entry, and sees to it that `key` holds its key.
    fn advance(&mut self) -> Result<Option<Found>> {
        let tree = self.tree;
        match &mut self.walk {
            Walk::Chain(chain) => {
                let Some(reader) = chain else { return Ok(None) };
                let found = next_visible(reader, self.snapshot, &mut self.touched)?;
                match &found {
                    Some(found) => self.bound = found.header.sequence(),
                    None => {
                        self.touched.add(reader);
                        *chain = None;
                    }
                }
                Ok(found)
            }
            Walk::Keys(keys) => loop {
                if let Some(reader) = &mut keys.chain {
                    if let Some(found) = next_visible(reader, self.snapshot, &mut self.touched)? {
                        return Ok(Some(found));
                    }
                    self.touched.add(reader);
                    keys.chain = None;
                }
                let Some(found) = keys.next_key(tree, &mut self.key)? else { return Ok(None) };
                if let Some(newest) = tree.newest_group(found)? {
                    self.touched.keys += 1;
                    keys.chain = Some(ChainReader::new(&tree.region, newest, tree.sizes.page_bytes)?);
                }
            },
            Walk::Newest(merge) => {
                let Some((sequence, Reverse(index))) = merge.heap.pop() else { return Ok(None) };
                let Some((key, chain, entry)) = merge.chains.get_mut(index) else { return Ok(None) };
                let found = *entry;
                match next_visible(chain, self.snapshot, &mut self.touched)? {
                    Some(next) => {
                        *entry = next;
                        merge.heap.push((next.header.sequence(), Reverse(index)));
                    }
                    None => self.touched.add(chain),
                }
                self.bound = sequence;
                self.key.clear();
                record::read_key(&tree.region, *key, &mut self.key)?;
                Ok(Some(found))
            }
            Walk::Collected(collected) => {
                let Some((_, key, found)) = collected.entries.pop() else { return Ok(None) };
                self.key.clear();
                record::read_key(&tree.region, key, &mut self.key)?;
                Ok(Some(found))
            }
        }
    }

    /// Leaves out the entries of the key it stands on that are still to come. Only in the orders by value does that
    /// do anything.
    pub fn skip_key(&mut self) {
        if let Walk::Keys(keys) = &mut self.walk
            && let Some(chain) = keys.chain.take()
        {
            self.touched.add(&chain);
        }
    }

    /// No entry still to come is newer.
    pub fn sequence_bound(&self) -> SequenceNumber {
        self.bound
    }

    /// What was read so far; of keys that are not finished, their entries alone.
    pub fn touched(&self) -> PsTouched {
        self.touched
    }

    /// [`PsTree::stands`] for an entry that this cursor gave.
    pub(crate) fn stands(&self, place: EntryPlace) -> Result<Option<bool>> {
        self.tree.stands(&self._pin, place)
    }

    /// [`PsTree::flag_obsolete`] for an entry that this cursor gave.
    ///
    /// # Errors
    /// `Corruption` from the region.
    pub fn flag_obsolete(&self, place: EntryPlace) -> Result<PsFlag> {
        self.tree.flag_obsolete(&self._pin, place)
    }
}

/// The next entry of a chain that the snapshot sees and that is not flagged.
#[inline]
fn next_visible(
    chain: &mut ChainReader<'_>,
    snapshot: SequenceNumber,
    touched: &mut PsTouched,
) -> Result<Option<Found>> {
    while let Some(found) = chain.next()? {
        touched.entries += 1;
        if found.header.sequence() <= snapshot && !found.header.is_obsolete() {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl PsTouched {
    fn add(&mut self, chain: &ChainReader<'_>) {
        let (groups, pages) = chain.touched();
        self.groups += u64::from(groups);
        self.pages += u64::from(pages);
    }
}

impl KeyWalk<'_> {
    /// The record of the next key within the bounds; its key goes to `key`.
    fn next_key(&mut self, tree: &PsTree, key: &mut Vec<u8>) -> Result<Option<Place>> {
        if self.finished {
            return Ok(None);
        }
        if self.next >= self.batch.len() {
            self.batch.clear();
            self.next = 0;
            let from = match (self.started, self.direction, &self.end) {
                (true, ..) => From::Behind(&self.last),
                (false, Direction::Up, _) => From::At(&self.low),
                (false, Direction::Down, Some(end)) => From::Behind(end),
                (false, Direction::Down, None) => From::Start,
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
