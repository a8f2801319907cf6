//! The candidates of one question to an index of kind `next` (NEXT §3.3, §4).
//!
//! The global index names the index blocks that may have keys of the question; they name the data blocks, and the writes. There are
//! two ways to go about it:
//!
//! * **Newest first**, for questions with a limit. What may hold matches waits in a heap by the newest sequence number
//!   that it can have: memtables, index blocks, and the entries of index blocks that were read. An entry on top is the newest
//!   match that is left: its record is read and handed on. So candidates come in order, and blocks that have only
//!   older ones are never read. Of an index block only the newest entries are taken at first; the rest waits as
//!   a whole.
//! * **By place**, for the others: memtables first, then sstable by sstable. The entries of all index blocks of one sstable are sorted by
//!   place, so that each data block is read once.
//!
//! Sstables without index blocks are read whole, by place.
//!
//! An entry was made from the very version of the record that it names, in the same file; so its record is not looked into again. Whether
//! the version is current is for the driver to say, by what is newer than its place.

use std::collections::BinaryHeap;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, MemtableComponent, TablePlace, VersionAt};

use super::costs::NextCosts;
use super::global_index::{BlockPlace, GlobalIndex};
use super::index_block::{Entry, IndexBlock};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_table::InTable;
use crate::in_table::matches::{Found, Matches, Question};
use crate::in_table::memtable_read::{MemtablePart, read_memtable};
use crate::query::Order;
use crate::space::nearness::Nearness;
use crate::space::rect_block::{self, RectEntry};

/// Questions for more answers go by place.
const MOST_NEWEST: usize = 4096;
/// Entries that are taken of an index block at first, at least.
const FIRST_TAKEN: usize = 16;

/// What waits in the heap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    /// No match of it is newer.
    rank: SequenceNumber,
    what: What,
}

/// Of two with one rank, the larger comes first: what is not read yet, so that equal writes come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A match that was found, by its number.
    Found(u32),
    /// A version that an entry names, by its number.
    Version(u32),
    /// A part of a memtable, by its number.
    Memtable(u32),
    /// The entries of an index block that are older than `below`, so many at first.
    IndexBlock { at: BlockPlace, below: SequenceNumber, take: u32 },
}

/// A version of a record that an entry names.
#[derive(Debug, Clone, Copy)]
struct Version {
    member: u32,
    entry: Entry,
    /// Its record could not be looked into.
    is_opaque: bool,
    /// The number of its key among those kept; [`NO_KEY`] for none.
    key: u32,
}

/// No key was kept.
const NO_KEY: u32 = u32::MAX;

/// What is read one after the other, by place.
#[derive(Debug)]
enum Step {
    Memtable {
        number: usize,
        part: MemtablePart,
    },
    /// An sstable without the index, from this block on.
    Scan {
        place: TablePlace,
        block: u64,
        of: u64,
    },
    /// The index blocks of a member.
    Member {
        blocks: Vec<BlockPlace>,
    },
}

/// The candidates of one question; see the [module](self).
pub(super) struct NextCursor<'v> {
    question: Question<'v>,
    table: TreeView,
    global: Arc<GlobalIndex>,
    /// Newest first, not by place.
    is_newest: bool,
    has_begun: bool,
    memtables: Vec<MemtableComponent>,

    /// Newest first: what waits.
    units: BinaryHeap<Unit>,
    parts: Vec<Option<(usize, MemtablePart)>>,
    /// The last write handed on: an array may have several keys in the range.
    given: Option<SequenceNumber>,

    /// By place: steps with the newest write that each can have, the next one last.
    steps: Vec<(SequenceNumber, Step)>,
    /// What is left of the versions of the present step, the next one last.
    left: Vec<Version>,
    /// No match of the present step is newer.
    present: SequenceNumber,

    versions: Vec<Version>,
    matches: Matches,
    current: Found,
    /// Keys of versions, where the order goes by them.
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    /// Readers of the members' data blocks, and the block that each read last.
    readers: Vec<Option<(BlockReader, Option<u64>)>>,
    scan: Option<(TablePlace, BlockReader)>,
    scratch: Vec<u8>,
    costs: NextCosts,
}

impl<'v> NextCursor<'v> {
    pub(super) fn new(
        index: &'v InTable,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        order: Order,
        table: TreeView,
        global: Arc<GlobalIndex>,
    ) -> Self {
        let is_newest = order == Order::Newest && access.limit <= MOST_NEWEST && global.without().is_empty();
        Self {
            question: Question { index, extractor, access, order },
            table,
            global,
            is_newest,
            has_begun: false,
            memtables: Vec::new(),
            units: BinaryHeap::new(),
            parts: Vec::new(),
            given: None,
            steps: Vec::new(),
            left: Vec::new(),
            present: 0,
            versions: Vec::new(),
            matches: Matches::default(),
            current: Found::default(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            readers: Vec::new(),
            scan: None,
            scratch: Vec::new(),
            costs: NextCosts::default(),
        }
    }

    /// Finds out what may have matches.
    fn begin(&mut self) -> Result<()> {
        self.has_begun = true;
        let view = self.table.sequence();
        let is_old_enough = |memtable: &MemtableComponent| memtable.smallest_sequence() <= view;
        self.memtables = self.table.memtable_components().filter(is_old_enough).collect();
        let (low, end) = (&self.question.access.low, &self.question.access.end);
        let mut blocks = self.global.find(low, end, self.question.access.window.as_ref());
        self.costs.index_blocks = self.global.blocks() as u64;
        blocks.retain(|&at| self.global.info(at).is_some_and(|info| info.smallest <= view));
        self.costs.index_blocks_met = blocks.len() as u64;
        if self.is_newest { self.begin_newest(&blocks) } else { self.begin_by_place(&blocks) }
    }

    fn begin_newest(&mut self, blocks: &[BlockPlace]) -> Result<()> {
        let view = self.table.sequence();
        let take = self.question.access.limit.saturating_mul(2).max(FIRST_TAKEN) as u32;
        let mut units = Vec::with_capacity(blocks.len() + self.memtables.len());
        for &at in blocks {
            let Some(info) = self.global.info(at) else { continue };
            let below = view.saturating_add(1);
            units.push(Unit { rank: info.largest.min(view), what: What::IndexBlock { at, below, take } });
        }
        for (number, memtable) in self.memtables.iter().enumerate() {
            let rank = memtable.largest_sequence().min(view);
            units.push(Unit { rank, what: What::Memtable(self.parts.len() as u32) });
            self.parts.push(Some((number, MemtablePart::All)));
        }
        self.units = units.into();
        Ok(())
    }

    fn begin_by_place(&mut self, blocks: &[BlockPlace]) -> Result<()> {
        let view = self.table.sequence();
        for blocks in blocks.chunk_by(|left, right| left.member == right.member) {
            let infos = blocks.iter().filter_map(|&at| self.global.info(at));
            let rank = infos.map(|info| info.largest).max().unwrap_or(0);
            self.steps.push((rank.min(view), Step::Member { blocks: blocks.to_vec() }));
        }
        for &place in self.global.without() {
            let Some(sstable) = self.table.table_at(place) else { continue };
            if sstable.meta().smallest_sequence <= view {
                let rank = sstable.meta().largest_sequence.min(view);
                let of = sstable.data_blocks()?;
                self.steps.push((rank, Step::Scan { place, block: 0, of }));
                self.costs.sstables_without_index += 1;
            }
        }
        for (number, memtable) in self.memtables.iter().enumerate() {
            let rank = memtable.largest_sequence().min(view);
            self.steps.push((rank, Step::Memtable { number, part: MemtablePart::All }));
        }
        self.steps.sort_by_key(|(rank, _)| *rank);
        Ok(())
    }

    /// The next match in the order of the newest; false where there is none.
    fn next_newest(&mut self) -> Result<bool> {
        while let Some(unit) = self.units.pop() {
            match unit.what {
                What::IndexBlock { at, below, take } => self.open_newest(at, below, take)?,
                What::Memtable(number) => self.open_memtable(unit.rank, number)?,
                What::Found(_) | What::Version(_) if self.given == Some(unit.rank) => {}
                What::Found(number) => {
                    let found = self.matches.found.get(number as usize);
                    self.current = found.cloned().ok_or_else(|| lost("a match"))?;
                    self.given = Some(unit.rank);
                    return Ok(true);
                }
                What::Version(number) => {
                    let version = self.versions.get(number as usize);
                    let version = *version.ok_or_else(|| lost("a version"))?;
                    let before = self.matches.found.len();
                    self.read(&version)?;
                    self.given = Some(unit.rank);
                    if let Some(found) = self.matches.found.get(before) {
                        self.current = found.clone();
                        self.matches.found.truncate(before);
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Takes the newest entries of an index block that are older than `below`.
    fn open_newest(&mut self, at: BlockPlace, below: SequenceNumber, take: u32) -> Result<()> {
        let start = self.versions.len();
        // Of one key the newest stand first: all others need not be looked at.
        let most = if self.question.access.point { take as usize } else { usize::MAX };
        self.gather(at, below, most, below > self.table.sequence())?;
        let taken = (take as usize).min(self.versions.len() - start);
        let all = self.versions.get_mut(start..).unwrap_or_default();
        let mut rest = None;
        if all.len() > taken {
            all.select_nth_unstable_by_key(taken, |version| !version.entry.sequence);
            rest = all.get(taken).map(|version| version.entry.sequence);
        } else if all.len() == most {
            rest = all.last().map(|version| version.entry.sequence - 1).filter(|&rest| rest > 0);
        }
        self.versions.truncate(start + taken);
        for (number, version) in (0..).zip(&self.versions).skip(start) {
            self.units.push(Unit { rank: version.entry.sequence, what: What::Version(number) });
        }
        if let Some(rank) = rest {
            // More of it each time, so that the block is not read too often.
            let what = What::IndexBlock { at, below: rank + 1, take: take.saturating_mul(4) };
            self.units.push(Unit { rank, what });
        }
        Ok(())
    }

    /// Reads a part of a memtable.
    fn open_memtable(&mut self, rank: SequenceNumber, number: u32) -> Result<()> {
        let part = self.parts.get_mut(number as usize).and_then(Option::take);
        let (memtable, part) = part.ok_or_else(|| lost("a part of a memtable"))?;
        let start = self.matches.found.len();
        let component = self.memtables.get(memtable).ok_or_else(|| lost("a memtable"))?;
        let rest = read_memtable(&self.question, &self.table, component, (rank, part), &mut self.matches)?;
        for (number, found) in (0..).zip(&self.matches.found).skip(start) {
            self.units.push(Unit { rank: found.sequence, what: What::Found(number) });
        }
        if let Some((rank, part)) = rest {
            self.units.push(Unit { rank, what: What::Memtable(self.parts.len() as u32) });
            self.parts.push(Some((memtable, part)));
        }
        Ok(())
    }

    /// The next match by place; false where there is none.
    fn next_by_place(&mut self) -> Result<bool> {
        loop {
            if let Some(found) = self.matches.found.pop() {
                self.current = found;
                return Ok(true);
            }
            self.matches.clear();
            if let Some(version) = self.left.pop() {
                self.read(&version)?;
                continue;
            }
            let Some((rank, step)) = self.steps.pop() else { return Ok(false) };
            self.present = rank;
            match step {
                Step::Memtable { number, part } => {
                    let component = self.memtables.get(number).ok_or_else(|| lost("a memtable"))?;
                    let rest = read_memtable(
                        &self.question,
                        &self.table,
                        component,
                        (rank, part),
                        &mut self.matches,
                    )?;
                    // Whatever is left of it comes next, lest the bound grows.
                    self.steps.extend(rest.map(|(_, part)| (rank, Step::Memtable { number, part })));
                }
                Step::Scan { place, block, of } => {
                    if block < of {
                        self.steps.push((rank, Step::Scan { place, block: block + 1, of }));
                        self.scan_block(place, block)?;
                    }
                }
                Step::Member { blocks } => self.gather_member(&blocks)?,
            }
        }
    }

    /// Takes all entries of a member, and sorts them by place.
    fn gather_member(&mut self, blocks: &[BlockPlace]) -> Result<()> {
        self.versions.clear();
        self.keys.clear();
        self.key_ends.clear();
        let below = self.table.sequence().saturating_add(1);
        for &at in blocks {
            self.gather(at, below, usize::MAX, true)?;
        }
        // One write is proposed once: under its smallest key, or its largest.
        let descending = self.question.order == Order::ValueDescending;
        let rank = |version: &Version| if descending { !version.key } else { version.key };
        let place = |version: &Version| (version.entry.block, version.entry.entry);
        self.versions.sort_unstable_by_key(|version| (place(version), rank(version)));
        // Each place of a record has its distance.
        if self.question.access.near.is_none() {
            self.versions.dedup_by_key(|version| place(version));
        }
        self.versions.reverse();
        self.left = std::mem::take(&mut self.versions);
        Ok(())
    }

    /// Adds the entries of an index block that the question wants and that are older than `below` to the versions, at most
    /// `most`.
    fn gather(&mut self, at: BlockPlace, below: SequenceNumber, most: usize, is_first: bool) -> Result<()> {
        let info = *self.global.info(at).ok_or_else(|| lost("an index block"))?;
        let damaged = || {
            let file = self.global.place(at.member).and_then(|place| self.table.table_at(place));
            let file = file.map_or(0, |sstable| sstable.meta().number);
            let (id, block) = (self.question.index.id, at.block);
            Error::new(
                ErrorKind::Corruption,
                format!("sstable {file:06}.sst: index block {block} of index {id} contradicts itself"),
            )
        };
        let place = self.global.place(at.member).ok_or_else(|| lost("an sstable"))?;
        let sstable = self.table.table_at(place).ok_or_else(|| lost("an sstable"))?;
        let bytes = sstable.cached_meta_block(info.meta_block)?.ok_or_else(damaged)?;
        let access = self.question.access;
        let start = self.versions.len();
        if bytes.first() == Some(&rect_block::FORMAT) {
            let window = access.window.as_ref().filter(|_| !info.is_opaque);
            let gathered = rect_block::visit(&bytes, window, |found| {
                if found.sequence < below {
                    let RectEntry { sequence, block, entry, repeated, .. } = *found;
                    let entry = Entry { sequence, block, entry, repeated };
                    let (member, is_opaque) = (at.member, info.is_opaque);
                    let mut key = NO_KEY;
                    if let Some(near) = access.near.filter(|_| !is_opaque) {
                        key = self.key_ends.len() as u32;
                        let distance = Nearness::new(&found.rect, &near.from, sequence).bytes();
                        self.keys.extend_from_slice(&distance);
                        self.key_ends.push(self.keys.len());
                    }
                    self.versions.push(Version { member, entry, is_opaque, key });
                }
            });
            let is_empty = gathered.ok_or_else(damaged)? == 0;
            self.count_gathered(start, is_first, is_empty);
            return Ok(());
        }
        let block = IndexBlock::parse(&bytes).ok_or_else(damaged)?;
        let (low, end): (&[u8], &[u8]) =
            if info.is_opaque { (&[], &[0]) } else { (&access.low, &access.end) };
        let keeps_keys = matches!(self.question.order, Order::Value | Order::ValueDescending);
        let mut keys = block.seek(low, std::mem::take(&mut self.scratch)).ok_or_else(damaged)?;
        let mut is_empty = true;
        while keys.next().ok_or_else(damaged)? && keys.is_below(end) {
            is_empty = false;
            let mut key = NO_KEY;
            if keeps_keys && !info.is_opaque {
                keys.write_key(&mut self.keys);
                key = self.key_ends.len() as u32;
                self.key_ends.push(self.keys.len());
            }
            for number in keys.entries() {
                let entry = block.entry(number).ok_or_else(damaged)?;
                if entry.sequence < below {
                    self.versions.push(Version { member: at.member, entry, is_opaque: info.is_opaque, key });
                    if self.versions.len() - start == most {
                        break;
                    }
                }
            }
        }
        self.scratch = keys.into_scratch();
        self.count_gathered(start, is_first, is_empty);
        Ok(())
    }

    /// Counts an index block that was read, of which the versions from number `start` on are.
    fn count_gathered(&mut self, start: usize, is_first: bool, is_empty: bool) {
        self.costs.index_blocks_read += u64::from(is_first);
        self.costs.false_positives += u64::from(is_first && is_empty);
        self.costs.entries += (self.versions.len() - start) as u64;
    }

    /// Reads the record of a version, and notes it as a match.
    fn read(&mut self, version: &Version) -> Result<()> {
        let number = version.member as usize;
        if self.readers.len() <= number {
            self.readers.resize_with(number + 1, || None);
        }
        let (global, table) = (&self.global, &self.table);
        let slot = self.readers.get_mut(number).ok_or_else(|| lost("a reader"))?;
        let (reader, last) = match slot {
            Some(reader) => reader,
            None => {
                let place = global.place(version.member).ok_or_else(|| lost("an sstable"))?;
                let sstable = table.table_at(place).ok_or_else(|| lost("an sstable"))?;
                slot.insert((sstable.blocks(table.sequence())?, None))
            }
        };
        let Entry { sequence, block, entry, repeated } = version.entry;
        let is_had = last.replace(block.into()) == Some(block.into());
        self.costs.data_blocks_read += u64::from(!is_had);
        self.costs.data_blocks_spared += u64::from(is_had);
        match reader.enter_version(block.into(), entry, sequence)? {
            VersionAt::Newest if version.is_opaque => {
                self.matches.look_into(&self.question, table, reader)?;
            }
            VersionAt::Newest => {
                let end = self.key_ends.get(version.key as usize).copied().unwrap_or(0);
                let before = (version.key as usize).checked_sub(1);
                let start = before.and_then(|before| self.key_ends.get(before)).copied().unwrap_or(0);
                let key = self.keys.get(start..end).unwrap_or_default();
                self.matches.note_read(&self.question, reader, key, repeated);
            }
            VersionAt::Replaced => self.costs.replaced += 1,
            VersionAt::Other => {
                let place = global.place(version.member).and_then(|place| table.table_at(place));
                let file = place.map_or(0, |sstable| sstable.meta().number);
                let what = format!(
                    "sstable {file:06}.sst: an index block says that write {sequence} is entry {entry} of data block \
                     {block}, which it is not"
                );
                return Err(Error::new(ErrorKind::Corruption, what));
            }
        }
        Ok(())
    }

    /// Looks into all records of a data block of an sstable without the index.
    fn scan_block(&mut self, place: TablePlace, block: u64) -> Result<()> {
        self.costs.data_blocks_read += 1;
        let mut reader = match self.scan.take() {
            Some((of, reader)) if of == place => reader,
            _ => {
                let sstable = self.table.table_at(place).ok_or_else(|| lost("an sstable"))?;
                sstable.blocks(self.table.sequence())?
            }
        };
        reader.enter(block)?;
        while reader.valid() {
            self.matches.look_into(&self.question, &self.table, &reader)?;
            reader.advance()?;
        }
        self.scan = Some((place, reader));
        Ok(())
    }
}

impl CandidateCursor for NextCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        if !self.has_begun {
            self.begin()?;
        }
        let is_there = if self.is_newest { self.next_newest()? } else { self.next_by_place()? };
        Ok(is_there.then(|| self.matches.candidate(&self.current)))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        match (self.is_newest, self.question.order) {
            _ if !self.has_begun => SequenceNumber::MAX,
            (true, _) => self.units.peek().map_or(0, |unit| unit.rank),
            (false, Order::Newest) => {
                let later = self.steps.last().map_or(0, |(rank, _)| *rank);
                let is_done = self.left.is_empty() && self.matches.found.is_empty();
                if is_done { later } else { self.present.max(later) }
            }
            _ => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        self.is_newest.then_some(Order::Newest)
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        explain.next_costs.add(&NextCosts { memtable_entries: self.matches.memtable_entries, ..self.costs });
    }
}

#[cold]
fn lost(what: &str) -> Error {
    Error::internal(format!("a cursor of an index of kind `next` lost {what}"))
}
