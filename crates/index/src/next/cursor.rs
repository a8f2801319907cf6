//! The candidates of one question to an index of kind `next` (NEXT §3.3, §4).
//!
//! The global index names the index blocks that may have keys of the question; they name the data blocks, and the writes. There are
//! three ways to go about it:
//!
//! * **Newest first**, for questions with a limit. What may hold matches waits in a heap by the newest sequence number
//!   that it can have: memtables, index blocks, and the entries of index blocks that were read. An entry on top is the newest
//!   match that is left. So candidates come in order, and blocks that have only
//!   older ones are never read. Of an index block only the newest entries are taken at first; the rest waits as
//!   a whole.
//! * **Sorted**, for questions by recency that want all, or the oldest: entries say which write they are, so all of them are sorted before any
//!   data block is read.
//! * **By place**, for the others, and where there are too many entries to sort: memtables first, then sstable by sstable.
//!
//! All of them read [batches](super::batch) of versions, as many as answers are wanted: of each batch each data block once, where
//! versions share blocks, and what is not current is left out. Sstables without index blocks are read whole, by place.
//!
//! An entry was made from the very version of the record that it names, in the same file; so its record is not looked into again.

use std::collections::BinaryHeap;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, MemtableComponent, TablePlace, VersionAt};

use super::batch::{Batch, Item, NO_KEY, Told, Turn, Version, is_sparse, lost, misplaced};
use super::costs::NextCosts;
use super::global_index::{BlockPlace, GlobalIndex};
use super::opened_block::sstable_of;
use super::ranked::{MAX_SORTED, Ranked};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::matches::{Found, Matches, Question};
use crate::in_sstable::memtable_read::{MemtablePart, read_memtable};
use crate::query::Order;
use crate::space::rect_block_reader::WindowCodes;

/// Versions of a batch where each is in a data block of its own: what was read of them is still in the nearer caches when they
/// are proposed.
const SPARSE_BATCH: usize = 256;
/// Questions for more answers do not go by a heap.
const MAX_NEWEST: usize = 4096;
/// Versions of a batch that goes by place, and at most of one that goes by a heap.
const BATCH: usize = 512;
/// Versions of a batch when as many were proposed as are wanted.
const FURTHER_BATCH: usize = 16;
/// Index blocks that the processor is asked for at once, and how much of each.
const MAX_ASKED_FOR: usize = 32;
const HEAD_BYTES: usize = 256;
/// Entries that are taken of an index block at first, at least.
const FIRST_TAKEN: usize = 16;

/// The way that a question takes; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Newest,
    Sorted,
    ByPlace,
}

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
    /// A match that was found, or a version that an entry names.
    Item(Item),
    /// A part of a memtable, by its number.
    Memtable(u32),
    /// The entries of an index block that are older than `below`, so many at first.
    IndexBlock { at: BlockPlace, below: SequenceNumber, take: u32 },
}

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

/// What is proposed.
#[derive(Debug)]
enum Current {
    Found(Found),
    /// The version whose turn it is in the batch.
    Held(usize),
}

/// The candidates of one question; see the [module](self).
pub(super) struct NextCursor<'v> {
    pub(super) question: Question<'v>,
    pub(super) table: TreeView,
    pub(super) global: Arc<GlobalIndex>,
    way: Way,
    memtables: Vec<MemtableComponent>,

    /// Newest first: what waits.
    units: BinaryHeap<Unit>,
    parts: Vec<Option<(usize, MemtablePart)>>,
    /// The last write in a batch: an array may have several keys in the range.
    given: Option<SequenceNumber>,

    /// Sorted: what is left, the next one last.
    sorted: Vec<Ranked>,
    /// Hardly two of them are in one data block.
    is_sparse: bool,

    /// By place: steps with the newest write that each can have, the next one last.
    steps: Vec<(SequenceNumber, Step)>,
    /// How many of the versions of the present step were put into batches.
    batched: usize,
    /// No match of the present step is newer.
    present: SequenceNumber,

    batch: Batch,
    /// Current versions that were proposed.
    proposed: usize,
    pub(super) versions: Vec<Version>,
    /// What the question wants of index blocks of space.
    pub(super) window: Option<WindowCodes>,
    matches: Matches,
    current: Current,
    /// Keys of versions, where the order goes by them.
    pub(super) keys: Vec<u8>,
    pub(super) key_ends: Vec<usize>,
    scan: Option<(TablePlace, BlockReader)>,
    pub(super) scratch: Vec<u8>,
    pub(super) told: Told,
}

impl<'v> NextCursor<'v> {
    /// A cursor that has read what tells it the way: for some, index blocks.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading.
    pub(super) fn open(
        index: &'v SstableIndexBase,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        order: Order,
        table: TreeView,
        global: Arc<GlobalIndex>,
    ) -> Result<Self> {
        let mut cursor = Self {
            question: Question { index, extractor, access, order },
            table,
            global,
            way: Way::ByPlace,
            memtables: Vec::new(),
            units: BinaryHeap::new(),
            parts: Vec::new(),
            given: None,
            sorted: Vec::new(),
            is_sparse: false,
            steps: Vec::new(),
            batched: 0,
            present: 0,
            batch: Batch::default(),
            proposed: 0,
            versions: Vec::new(),
            window: access.window.map(WindowCodes::new),
            matches: Matches::default(),
            current: Current::Held(usize::MAX),
            keys: Vec::new(),
            key_ends: Vec::new(),
            scan: None,
            scratch: Vec::new(),
            told: Told::default(),
        };
        cursor.begin()?;
        Ok(cursor)
    }

    /// Finds out what may have matches, and chooses the way.
    fn begin(&mut self) -> Result<()> {
        let view = self.table.sequence();
        let is_old_enough = |memtable: &MemtableComponent| memtable.smallest_sequence() <= view;
        self.memtables = self.table.memtable_components().filter(is_old_enough).collect();
        let access = self.question.access;
        let mut blocks = self.global.find(&access.low, &access.end, access.window.as_ref());
        self.told.costs.index_blocks = self.global.blocks() as u64;
        blocks.retain(|&at| self.global.info(at).is_some_and(|info| info.smallest <= view));
        self.told.costs.index_blocks_met = blocks.len() as u64;
        if access.point {
            self.global.pass_filters(&mut blocks, &access.low);
            self.told.costs.index_blocks_filtered = self.told.costs.index_blocks_met - blocks.len() as u64;
        }
        self.prefetch_for(&blocks);
        let is_indexed = self.global.without().is_empty();
        match self.question.order {
            Order::Newest if is_indexed && access.limit <= MAX_NEWEST => {
                self.way = Way::Newest;
                self.begin_newest(&blocks);
                Ok(())
            }
            Order::Newest | Order::Oldest if is_indexed => {
                let before = self.told;
                if self.sort(&blocks)? {
                    self.way = Way::Sorted;
                    return Ok(());
                }
                self.told = before;
                self.versions.clear();
                self.matches.clear();
                self.begin_by_place(&blocks)
            }
            _ => self.begin_by_place(&blocks),
        }
    }

    /// Asks the processor for the first ones of these index blocks, which are read soon: they wait for memory together.
    fn prefetch_for(&self, blocks: &[BlockPlace]) {
        let soon = blocks.iter().take(MAX_ASKED_FOR);
        let meta_blocks =
            soon.filter_map(|&at| Some((self.global.place(at.member)?, self.global.info(at)?.meta_block)));
        self.table.prefetch_meta_blocks(meta_blocks, HEAD_BYTES);
    }

    fn begin_newest(&mut self, blocks: &[BlockPlace]) {
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
    }

    /// Takes all entries and sorts them. False where there are too many.
    fn sort(&mut self, blocks: &[BlockPlace]) -> Result<bool> {
        let below = self.table.sequence().saturating_add(1);
        for &at in blocks {
            self.gather(at, below, usize::MAX, true)?;
            if self.versions.len() > MAX_SORTED {
                return Ok(false);
            }
        }
        for memtable in &self.memtables {
            let rank = memtable.largest_sequence().min(self.table.sequence());
            let mut part = Some((rank, MemtablePart::All));
            while let Some(next) = part {
                part = read_memtable(&self.question, &self.table, memtable, next, &mut self.matches)?;
                if self.matches.found.len() > MAX_SORTED {
                    return Ok(false);
                }
            }
        }
        self.sorted.reserve(self.versions.len() + self.matches.found.len());
        let versions = (0..).zip(&self.versions);
        self.sorted.extend(versions.map(|(at, it)| Ranked::new(it.entry.sequence, Item::Version(at))));
        let found = (0..).zip(&self.matches.found);
        self.sorted.extend(found.map(|(at, it)| Ranked::new(it.sequence, Item::Found(at))));
        self.sorted.sort_unstable();
        // An array may have several keys in the range.
        self.sorted.dedup_by_key(|ranked| ranked.sequence());
        self.is_sparse = is_sparse(&self.versions);
        if self.question.order == Order::Oldest {
            self.sorted.reverse();
        }
        Ok(true)
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
                self.told.costs.sstables_without_index += 1;
            }
        }
        for (number, memtable) in self.memtables.iter().enumerate() {
            let rank = memtable.largest_sequence().min(view);
            self.steps.push((rank, Step::Memtable { number, part: MemtablePart::All }));
        }
        self.steps.sort_by_key(|(rank, _)| *rank);
        Ok(())
    }

    /// Reads the next batch. False where there is nothing left.
    fn fill(&mut self) -> Result<bool> {
        self.batch.clear();
        let mut by_place = true;
        match self.way {
            Way::Newest => self.fill_newest()?,
            Way::Sorted => {
                by_place = !self.is_sparse;
                let wanted = self.wanted(if by_place { usize::MAX } else { SPARSE_BATCH });
                let rest = self.sorted.len().saturating_sub(wanted);
                for ranked in self.sorted.drain(rest..).rev() {
                    self.batch.push(ranked.sequence(), ranked.item());
                }
            }
            Way::ByPlace => self.fill_by_place()?,
        }
        if self.batch.len() == 0 {
            return Ok(false);
        }
        self.batch.read(&self.versions, by_place, &self.global, &self.table, &mut self.told)?;
        Ok(true)
    }

    /// How many versions are worth reading together, at most `most`: as many as answers are still wanted.
    fn wanted(&self, most: usize) -> usize {
        match self.question.access.limit.saturating_sub(self.proposed) {
            0 => FURTHER_BATCH,
            wanted => wanted.min(most),
        }
    }

    /// Takes the newest matches that are left.
    fn fill_newest(&mut self) -> Result<()> {
        let wanted = self.wanted(BATCH);
        self.batch.reserve(wanted);
        while self.batch.len() < wanted {
            let Some(unit) = self.units.pop() else { return Ok(()) };
            match unit.what {
                What::IndexBlock { at, below, take } => self.open_newest(at, below, take)?,
                What::Memtable(number) => self.open_memtable(unit.rank, number)?,
                What::Item(_) if self.given == Some(unit.rank) => {}
                What::Item(item) => {
                    self.given = Some(unit.rank);
                    self.batch.push(unit.rank, item);
                }
            }
        }
        Ok(())
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
        self.units.reserve(taken);
        for (number, version) in (0..).zip(&self.versions).skip(start) {
            self.units.push(Unit { rank: version.entry.sequence, what: What::Item(Item::Version(number)) });
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
            self.units.push(Unit { rank: found.sequence, what: What::Item(Item::Found(number)) });
        }
        if let Some((rank, part)) = rest {
            self.units.push(Unit { rank, what: What::Memtable(self.parts.len() as u32) });
            self.parts.push(Some((memtable, part)));
        }
        Ok(())
    }

    /// Takes the next matches by place.
    fn fill_by_place(&mut self) -> Result<()> {
        self.matches.clear();
        loop {
            let left = self.versions.iter().enumerate().skip(self.batched).take(BATCH);
            for (number, version) in left {
                self.batch.push(version.entry.sequence, Item::Version(number as u32));
            }
            self.batched += self.batch.len();
            for (number, found) in (0..).zip(&self.matches.found) {
                self.batch.push(found.sequence, Item::Found(number));
            }
            if self.batch.len() > 0 {
                return Ok(());
            }
            let Some((rank, step)) = self.steps.pop() else { return Ok(()) };
            self.present = rank;
            match step {
                Step::Memtable { number, part } => {
                    let component = self.memtables.get(number).ok_or_else(|| lost("a memtable"))?;
                    let (question, table, part) = (&self.question, &self.table, (rank, part));
                    let rest = read_memtable(question, table, component, part, &mut self.matches)?;
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
        self.batched = 0;
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
        Ok(())
    }

    /// The key of version number `number`, if it was kept.
    fn key_of(&self, number: u32) -> &[u8] {
        let key = self.versions.get(number as usize).map_or(NO_KEY, |version| version.key) as usize;
        let end = self.key_ends.get(key).copied().unwrap_or(0);
        let before = key.checked_sub(1).and_then(|before| self.key_ends.get(before));
        self.keys.get(before.copied().unwrap_or(0)..end).unwrap_or_default()
    }

    /// Looks into the record of a version that could not be looked into before. `None` where it does not match.
    fn look_into(&mut self, number: u32) -> Result<Option<Found>> {
        let version = *self.versions.get(number as usize).ok_or_else(|| lost("a version"))?;
        let sstable = sstable_of(&self.global, &self.table, version.member)?;
        let mut reader = sstable.blocks(self.table.sequence())?;
        self.told.costs.data_blocks_read += 1;
        let before = self.matches.found.len();
        let entry = version.entry;
        match reader.enter_version(entry.block.into(), entry.entry, entry.sequence)? {
            VersionAt::Newest => self.matches.look_into(&self.question, &self.table, &reader)?,
            VersionAt::Replaced => self.told.costs.replaced += 1,
            VersionAt::Other => return Err(misplaced(&version, &self.global, &self.table)),
        }
        let found = self.matches.found.get(before).cloned();
        self.matches.found.truncate(before);
        Ok(found)
    }

    /// Looks into all records of a data block of an sstable without the index.
    fn scan_block(&mut self, place: TablePlace, block: u64) -> Result<()> {
        self.told.costs.data_blocks_read += 1;
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

    /// Goes to the next candidate. False behind the last one.
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.batch.advance() {
                Some(Turn::Held(turn)) => {
                    self.current = Current::Held(turn);
                    self.proposed += 1;
                    return Ok(true);
                }
                Some(Turn::Found(number)) => {
                    let found = self.matches.found.get(number as usize);
                    self.current = Current::Found(found.cloned().ok_or_else(|| lost("a match"))?);
                    return Ok(true);
                }
                Some(Turn::Opaque(number)) => {
                    if let Some(found) = self.look_into(number)? {
                        self.current = Current::Found(found);
                        return Ok(true);
                    }
                }
                None if !self.fill()? => return Ok(false),
                None => {}
            }
        }
    }
}

impl CandidateCursor for NextCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        match &self.current {
            Current::Found(found) => Ok(Some(self.matches.candidate(found))),
            Current::Held(turn) => {
                let number = self.batch.version_at(*turn).filter(|_| !self.key_ends.is_empty());
                let key = number.map_or(&[][..], |number| self.key_of(number));
                let held = self.batch.candidate(*turn, &self.question, key);
                held.map(Some).ok_or_else(|| lost("a version"))
            }
        }
    }

    fn sequence_bound(&self) -> SequenceNumber {
        let of_batch = self.batch.next_rank();
        match (self.way, self.question.order) {
            (Way::Newest, _) => of_batch.unwrap_or_else(|| self.units.peek().map_or(0, |unit| unit.rank)),
            (Way::Sorted, Order::Newest) => {
                of_batch.unwrap_or_else(|| self.sorted.last().map_or(0, Ranked::sequence))
            }
            (Way::ByPlace, Order::Newest) => {
                let later = self.steps.last().map_or(0, |(rank, _)| *rank);
                let is_done = of_batch.is_none() && self.batched >= self.versions.len();
                if is_done { later } else { self.present.max(later) }
            }
            _ => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        (self.way != Way::ByPlace).then_some(self.question.order)
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        let costs = NextCosts { memtable_entries: self.matches.memtable_entries, ..self.told.costs };
        explain.next_costs.add(&costs);
        explain.malformed += self.matches.malformed;
        explain.candidates += self.told.obsolete;
        explain.obsolete += self.told.obsolete;
        explain.unknown += self.told.unknown;
    }
}
