//! The candidate cursor of an index of kind `next` (NEXT §3.3, §4).
//!
//! The global index returns the index blocks that may contain keys of the query; their entries point to data blocks and
//! writes. The cursor has three read strategies:
//!
//! * **Newest first**, for queries with a limit. A heap holds memtables, index blocks and the entries of index blocks that
//!   were read, each ranked by its newest possible sequence number. An entry on top is the newest remaining match. So
//!   candidates come in order, and blocks with only older matches are never read. The first read of an index block takes
//!   only its newest entries; the rest goes back to the heap as one element.
//! * **Sorted**, for queries by recency without a limit, or for the oldest. Entries contain sequence numbers, so all of them
//!   are sorted before any data block is read.
//! * **By location**, for all other queries, and if there are too many entries to sort: memtables, then each sstable.
//!
//! All strategies read [batches](super::batch) of versions, as many as results are wanted. A batch reads a shared data block
//! once and skips stale versions. Sstables without index blocks are scanned, by location.
//!
//! An entry is built from the version of the record that it points to, in the same file, so its record is not checked again.

use std::collections::BinaryHeap;
use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_base::{Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, MemtableComponent, TablePlace, VersionAt};

use super::batch::{
    BatchItem, BatchOutput, BatchStatistics, IndexedVersion, NO_KEY, VersionBatch, dangling, is_sparse,
    misplaced,
};
use super::costs::NextCosts;
use super::global_index::{GlobalIndex, IndexBlockId};
use super::opened_block::sstable_of;
use super::ranked_item::{MAX_SORTED, RankedItem};
use crate::access::Access;
use crate::candidate::{Candidate, CandidateCursor};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::matches::{IndexMatch, IndexQuery, Matches};
use crate::in_sstable::memtable_read::{MemtablePart, read_memtable};
use crate::query::Order;
use crate::space::rect_block_reader::WindowCodes;

/// Versions of a batch that share no blocks: few enough that their data stays in the inner CPU caches.
const SPARSE_BATCH_VERSIONS: usize = 256;
/// Largest limit of a query that is read newest first.
const MAX_HEAP_LIMIT: usize = 4096;
/// Versions of a batch read by location, and maximum of one read newest first.
const BATCH_VERSIONS: usize = 512;
/// Versions of a batch after as many versions were returned as the limit allows.
const FOLLOW_UP_BATCH_VERSIONS: usize = 16;
/// Index blocks whose memory is prefetched at once, and bytes of each.
const MAX_PREFETCHED_BLOCKS: usize = 32;
const PREFETCHED_BYTES: usize = 256;
/// Minimum entries of the first read of an index block.
const MIN_FIRST_ENTRIES: usize = 16;

/// How a query is read; see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadStrategy {
    NewestFirst,
    Sorted,
    ByLocation,
}

/// An element of the heap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeapEntry {
    /// Upper bound of the sequence numbers of its matches.
    rank: SequenceNumber,
    source: HeapSource,
}

/// At equal rank the larger comes first: unread sources, so that entries of the same write follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HeapSource {
    /// A match, or a version that an index entry points to.
    Item(BatchItem),
    /// A part of a memtable, by its number.
    Memtable(u32),
    /// The entries of an index block that are older than `below`; the next read takes the newest `take` of them.
    IndexBlock { at: IndexBlockId, below: SequenceNumber, take: u32 },
}

/// A unit of reading by location.
#[derive(Debug)]
enum ReadStep {
    Memtable {
        number: usize,
        part: MemtablePart,
    },
    /// An sstable without the index, from `block` on, of `blocks`.
    Scan {
        place: TablePlace,
        block: u64,
        blocks: u64,
    },
    /// The index blocks of one sstable.
    Sstable {
        blocks: Vec<IndexBlockId>,
    },
}

/// The current candidate.
#[derive(Debug)]
enum CurrentCandidate {
    Match(IndexMatch),
    /// A version, by its position in the batch.
    Version(usize),
}

/// The candidates of one query; see the [module](self).
pub(super) struct NextCursor<'v> {
    pub(super) query: IndexQuery<'v>,
    pub(super) table: TreeView,
    pub(super) global: Arc<GlobalIndex>,
    strategy: ReadStrategy,
    memtables: Vec<MemtableComponent>,

    /// Newest first: the unread sources and the entries.
    heap: BinaryHeap<HeapEntry>,
    memtable_parts: Vec<Option<(usize, MemtablePart)>>,
    /// The last write added to a batch: a record with an array may have several keys in the range.
    last_rank: Option<SequenceNumber>,

    /// Sorted: the remaining items, in reverse order.
    sorted: Vec<RankedItem>,
    /// Few versions share a data block.
    is_sparse: bool,

    /// By location: the remaining steps in reverse order, each with an upper bound of its sequence numbers.
    steps: Vec<(SequenceNumber, ReadStep)>,
    /// Number of versions of the current step that were added to batches.
    batched: usize,
    /// Upper bound of the sequence numbers of the current step.
    step_bound: SequenceNumber,

    batch: VersionBatch,
    /// Number of current versions returned.
    returned: usize,
    pub(super) versions: Vec<IndexedVersion>,
    /// The window of the query, coded for index blocks of rectangles.
    pub(super) window: Option<WindowCodes>,
    matches: Matches,
    current: CurrentCandidate,
    /// Secondary keys of versions, stored if the order depends on them.
    pub(super) keys: Vec<u8>,
    pub(super) key_ends: Vec<usize>,
    scan: Option<(TablePlace, BlockReader)>,
    pub(super) scratch: Vec<u8>,
    pub(super) statistics: BatchStatistics,
}

impl<'v> NextCursor<'v> {
    /// A cursor with its read strategy chosen; the sorted strategy reads the index blocks here.
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
            query: IndexQuery { index, extractor, access, order },
            table,
            global,
            strategy: ReadStrategy::ByLocation,
            memtables: Vec::new(),
            heap: BinaryHeap::new(),
            memtable_parts: Vec::new(),
            last_rank: None,
            sorted: Vec::new(),
            is_sparse: false,
            steps: Vec::new(),
            batched: 0,
            step_bound: 0,
            batch: VersionBatch::default(),
            returned: 0,
            versions: Vec::new(),
            window: access.window.map(WindowCodes::new),
            matches: Matches::default(),
            current: CurrentCandidate::Version(usize::MAX),
            keys: Vec::new(),
            key_ends: Vec::new(),
            scan: None,
            scratch: Vec::new(),
            statistics: BatchStatistics::default(),
        };
        cursor.begin()?;
        Ok(cursor)
    }

    /// Searches the global index, and chooses the strategy.
    fn begin(&mut self) -> Result<()> {
        let view = self.table.sequence();
        let is_old_enough = |memtable: &MemtableComponent| memtable.smallest_sequence() <= view;
        self.memtables = self.table.memtable_components().filter(is_old_enough).collect();
        let access = self.query.access;
        let mut blocks = self.global.find(&access.low, &access.end, access.window.as_ref());
        self.statistics.costs.index_blocks = self.global.blocks() as u64;
        blocks.retain(|&at| self.global.info(at).is_some_and(|info| info.smallest <= view));
        self.statistics.costs.index_blocks_met = blocks.len() as u64;
        if access.point {
            self.global.apply_filters(&mut blocks, &access.low);
            let costs = &mut self.statistics.costs;
            costs.index_blocks_filtered = costs.index_blocks_met - blocks.len() as u64;
        }
        self.prefetch_blocks(&blocks);
        let is_indexed = self.global.unindexed().is_empty();
        match self.query.order {
            Order::Newest if is_indexed && access.limit <= MAX_HEAP_LIMIT => {
                self.strategy = ReadStrategy::NewestFirst;
                self.begin_newest_first(&blocks);
                Ok(())
            }
            Order::Newest | Order::Oldest if is_indexed => {
                let before = self.statistics;
                if self.sort(&blocks)? {
                    self.strategy = ReadStrategy::Sorted;
                    return Ok(());
                }
                self.statistics = before;
                self.versions.clear();
                self.matches.clear();
                self.begin_by_location(&blocks)
            }
            _ => self.begin_by_location(&blocks),
        }
    }

    /// Prefetches the memory of the first index blocks, so that their cache misses overlap.
    fn prefetch_blocks(&self, blocks: &[IndexBlockId]) {
        let first = blocks.iter().take(MAX_PREFETCHED_BLOCKS);
        let meta_blocks =
            first.filter_map(|&at| Some((self.global.place(at.member)?, self.global.info(at)?.meta_block)));
        self.table.prefetch_meta_blocks(meta_blocks, PREFETCHED_BYTES);
    }

    fn begin_newest_first(&mut self, blocks: &[IndexBlockId]) {
        let view = self.table.sequence();
        let take = self.query.access.limit.saturating_mul(2).max(MIN_FIRST_ENTRIES) as u32;
        let mut heap = Vec::with_capacity(blocks.len() + self.memtables.len());
        for &at in blocks {
            let Some(info) = self.global.info(at) else { continue };
            let source = HeapSource::IndexBlock { at, below: view.saturating_add(1), take };
            heap.push(HeapEntry { rank: info.largest.min(view), source });
        }
        for (number, memtable) in self.memtables.iter().enumerate() {
            let rank = memtable.largest_sequence().min(view);
            heap.push(HeapEntry { rank, source: HeapSource::Memtable(self.memtable_parts.len() as u32) });
            self.memtable_parts.push(Some((number, MemtablePart::All)));
        }
        self.heap = heap.into();
    }

    /// Reads all entries and sorts them. False if there are too many.
    fn sort(&mut self, blocks: &[IndexBlockId]) -> Result<bool> {
        let below = self.table.sequence().saturating_add(1);
        for &at in blocks {
            self.read_entries(at, below, usize::MAX, true)?;
            if self.versions.len() > MAX_SORTED {
                return Ok(false);
            }
        }
        for memtable in &self.memtables {
            let rank = memtable.largest_sequence().min(self.table.sequence());
            let mut part = Some((rank, MemtablePart::All));
            while let Some(next) = part {
                part = read_memtable(&self.query, &self.table, memtable, next, &mut self.matches)?;
                if self.matches.found.len() > MAX_SORTED {
                    return Ok(false);
                }
            }
        }
        self.sorted.reserve(self.versions.len() + self.matches.found.len());
        let versions = (0..).zip(&self.versions).map(|(at, it)| (it.entry.sequence, BatchItem::Version(at)));
        let found = (0..).zip(&self.matches.found).map(|(at, it)| (it.sequence, BatchItem::Match(at)));
        self.sorted.extend(versions.chain(found).map(|(rank, item)| RankedItem::new(rank, item)));
        self.sorted.sort_unstable();
        // A record with an array may have several keys in the range.
        self.sorted.dedup_by_key(|ranked| ranked.sequence());
        self.is_sparse = is_sparse(&self.versions);
        if self.query.order == Order::Oldest {
            self.sorted.reverse();
        }
        Ok(true)
    }

    fn begin_by_location(&mut self, blocks: &[IndexBlockId]) -> Result<()> {
        let view = self.table.sequence();
        for blocks in blocks.chunk_by(|left, right| left.member == right.member) {
            let infos = blocks.iter().filter_map(|&at| self.global.info(at));
            let rank = infos.map(|info| info.largest).max().unwrap_or(0);
            self.steps.push((rank.min(view), ReadStep::Sstable { blocks: blocks.to_vec() }));
        }
        for &place in self.global.unindexed() {
            let Some(sstable) = self.table.table_at(place) else { continue };
            if sstable.meta().smallest_sequence <= view {
                let rank = sstable.meta().largest_sequence.min(view);
                let blocks = sstable.data_blocks()?;
                self.steps.push((rank, ReadStep::Scan { place, block: 0, blocks }));
                self.statistics.costs.sstables_without_index += 1;
            }
        }
        for (number, memtable) in self.memtables.iter().enumerate() {
            let rank = memtable.largest_sequence().min(view);
            self.steps.push((rank, ReadStep::Memtable { number, part: MemtablePart::All }));
        }
        self.steps.sort_by_key(|(rank, _)| *rank);
        Ok(())
    }

    /// Reads the next batch. False at the end.
    fn fill(&mut self) -> Result<bool> {
        self.batch.clear();
        let mut by_location = true;
        match self.strategy {
            ReadStrategy::NewestFirst => self.fill_newest_first()?,
            ReadStrategy::Sorted => {
                by_location = !self.is_sparse;
                let wanted = self.batch_size(if by_location { usize::MAX } else { SPARSE_BATCH_VERSIONS });
                let rest = self.sorted.len().saturating_sub(wanted);
                for ranked in self.sorted.drain(rest..).rev() {
                    self.batch.push(ranked.sequence(), ranked.item());
                }
            }
            ReadStrategy::ByLocation => self.fill_by_location()?,
        }
        if self.batch.len() == 0 {
            return Ok(false);
        }
        self.batch.read(&self.versions, by_location, &self.global, &self.table, &mut self.statistics)?;
        Ok(true)
    }

    /// Number of versions of the next batch: the rest of the limit, at most `max`.
    fn batch_size(&self, max: usize) -> usize {
        let max = if Technique::ReadsByLocation.is_on() { max } else { 1 };
        match self.query.access.limit.saturating_sub(self.returned) {
            0 => FOLLOW_UP_BATCH_VERSIONS,
            wanted => wanted.min(max),
        }
    }

    /// Adds the newest remaining matches to the batch.
    fn fill_newest_first(&mut self) -> Result<()> {
        let wanted = self.batch_size(BATCH_VERSIONS);
        self.batch.reserve(wanted);
        while self.batch.len() < wanted {
            let Some(HeapEntry { rank, source }) = self.heap.pop() else { return Ok(()) };
            match source {
                HeapSource::IndexBlock { at, below, take } => self.open_newest(at, below, take)?,
                HeapSource::Memtable(number) => self.open_memtable(rank, number)?,
                HeapSource::Item(_) if self.last_rank == Some(rank) => {}
                HeapSource::Item(item) => {
                    self.last_rank = Some(rank);
                    self.batch.push(rank, item);
                }
            }
        }
        Ok(())
    }

    /// Adds the newest `take` entries of an index block that are older than `below` to the heap.
    fn open_newest(&mut self, at: IndexBlockId, below: SequenceNumber, take: u32) -> Result<()> {
        let start = self.versions.len();
        // The entries of one key are sorted newest first, so the rest need not be read.
        let max = if self.query.access.point { take as usize } else { usize::MAX };
        self.read_entries(at, below, max, below > self.table.sequence())?;
        let count = (take as usize).min(self.versions.len() - start);
        let all = self.versions.get_mut(start..).unwrap_or_default();
        let mut rest = None;
        if all.len() > count {
            all.select_nth_unstable_by_key(count, |version| !version.entry.sequence);
            rest = all.get(count).map(|version| version.entry.sequence);
        } else if all.len() == max {
            rest = all.last().map(|version| version.entry.sequence - 1).filter(|&rest| rest > 0);
        }
        self.versions.truncate(start + count);
        self.heap.reserve(count);
        for (number, version) in (0..).zip(&self.versions).skip(start) {
            let source = HeapSource::Item(BatchItem::Version(number));
            self.heap.push(HeapEntry { rank: version.entry.sequence, source });
        }
        if let Some(rank) = rest {
            // Each read takes four times as many entries, which bounds the number of reads of the block.
            let source = HeapSource::IndexBlock { at, below: rank + 1, take: take.saturating_mul(4) };
            self.heap.push(HeapEntry { rank, source });
        }
        Ok(())
    }

    /// Adds the matches of a part of a memtable to the heap.
    fn open_memtable(&mut self, rank: SequenceNumber, number: u32) -> Result<()> {
        let part = self.memtable_parts.get_mut(number as usize).and_then(Option::take);
        let (memtable, part) = part.ok_or_else(|| dangling("a part of a memtable"))?;
        let start = self.matches.found.len();
        let component = self.memtables.get(memtable).ok_or_else(|| dangling("a memtable"))?;
        let rest = read_memtable(&self.query, &self.table, component, (rank, part), &mut self.matches)?;
        for (number, found) in (0..).zip(&self.matches.found).skip(start) {
            let source = HeapSource::Item(BatchItem::Match(number));
            self.heap.push(HeapEntry { rank: found.sequence, source });
        }
        if let Some((rank, part)) = rest {
            let source = HeapSource::Memtable(self.memtable_parts.len() as u32);
            self.heap.push(HeapEntry { rank, source });
            self.memtable_parts.push(Some((memtable, part)));
        }
        Ok(())
    }

    /// Adds the next matches by location to the batch.
    fn fill_by_location(&mut self) -> Result<()> {
        self.matches.clear();
        loop {
            let next = self.versions.iter().enumerate().skip(self.batched).take(BATCH_VERSIONS);
            for (number, version) in next {
                self.batch.push(version.entry.sequence, BatchItem::Version(number as u32));
            }
            self.batched += self.batch.len();
            for (number, found) in (0..).zip(&self.matches.found) {
                self.batch.push(found.sequence, BatchItem::Match(number));
            }
            if self.batch.len() > 0 {
                return Ok(());
            }
            let Some((rank, step)) = self.steps.pop() else { return Ok(()) };
            self.step_bound = rank;
            match step {
                ReadStep::Memtable { number, part } => {
                    let component = self.memtables.get(number).ok_or_else(|| dangling("a memtable"))?;
                    let (query, table, part) = (&self.query, &self.table, (rank, part));
                    let rest = read_memtable(query, table, component, part, &mut self.matches)?;
                    // The rest of the memtable comes next, because the bound must not grow.
                    self.steps.extend(rest.map(|(_, part)| (rank, ReadStep::Memtable { number, part })));
                }
                ReadStep::Scan { place, block, blocks } => {
                    if block < blocks {
                        self.steps.push((rank, ReadStep::Scan { place, block: block + 1, blocks }));
                        self.scan_block(place, block)?;
                    }
                }
                ReadStep::Sstable { blocks } => self.read_sstable_entries(&blocks)?,
            }
        }
    }

    /// Reads all entries of the index blocks of one sstable, and sorts them by location.
    fn read_sstable_entries(&mut self, blocks: &[IndexBlockId]) -> Result<()> {
        self.versions.clear();
        self.keys.clear();
        self.key_ends.clear();
        self.batched = 0;
        let below = self.table.sequence().saturating_add(1);
        for &at in blocks {
            self.read_entries(at, below, usize::MAX, true)?;
        }
        // A write is returned once: under its smallest key, or its largest.
        let descending = self.query.order == Order::ValueDescending;
        let rank = |version: &IndexedVersion| if descending { !version.key } else { version.key };
        let location = |version: &IndexedVersion| (version.entry.block, version.entry.entry);
        self.versions.sort_unstable_by_key(|version| (location(version), rank(version)));
        // In a nearest-neighbour query each rectangle of a record has its own distance.
        if self.query.access.near.is_none() {
            self.versions.dedup_by_key(|version| location(version));
        }
        Ok(())
    }

    /// The secondary key of version `number`; empty if it is not stored.
    fn key_of(&self, number: u32) -> &[u8] {
        let key = self.versions.get(number as usize).map_or(NO_KEY, |version| version.key) as usize;
        let end = self.key_ends.get(key).copied().unwrap_or(0);
        let before = key.checked_sub(1).and_then(|before| self.key_ends.get(before));
        self.keys.get(before.copied().unwrap_or(0)..end).unwrap_or_default()
    }

    /// Matches the record of an opaque version; `None` if it does not match.
    fn match_opaque(&mut self, number: u32) -> Result<Option<IndexMatch>> {
        let version = *self.versions.get(number as usize).ok_or_else(|| dangling("a version"))?;
        let sstable = sstable_of(&self.global, &self.table, version.member)?;
        let mut reader = sstable.blocks(self.table.sequence())?;
        self.statistics.costs.data_blocks_read += 1;
        let before = self.matches.found.len();
        let entry = version.entry;
        match reader.enter_version(entry.block.into(), entry.entry, entry.sequence)? {
            VersionAt::Newest => self.matches.add_record(&self.query, &self.table, &reader)?,
            VersionAt::Replaced => self.statistics.costs.replaced += 1,
            VersionAt::Other => return Err(misplaced(&version, &self.global, &self.table)),
        }
        let found = self.matches.found.get(before).cloned();
        self.matches.found.truncate(before);
        Ok(found)
    }

    /// Matches all records of a data block of an sstable without the index.
    fn scan_block(&mut self, place: TablePlace, block: u64) -> Result<()> {
        self.statistics.costs.data_blocks_read += 1;
        let mut reader = match self.scan.take() {
            Some((last, reader)) if last == place => reader,
            _ => {
                let sstable = self.table.table_at(place).ok_or_else(|| dangling("an sstable"))?;
                sstable.blocks(self.table.sequence())?
            }
        };
        reader.enter(block)?;
        while reader.valid() {
            self.matches.add_record(&self.query, &self.table, &reader)?;
            reader.advance()?;
        }
        self.scan = Some((place, reader));
        Ok(())
    }

    /// Moves to the next candidate. False at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.batch.advance() {
                Some(BatchOutput::Version(position)) => {
                    self.current = CurrentCandidate::Version(position);
                    self.returned += 1;
                    return Ok(true);
                }
                Some(BatchOutput::Match(number)) => {
                    let found = self.matches.found.get(number as usize).cloned();
                    self.current = CurrentCandidate::Match(found.ok_or_else(|| dangling("a match"))?);
                    return Ok(true);
                }
                Some(BatchOutput::Opaque(number)) => {
                    if let Some(found) = self.match_opaque(number)? {
                        self.current = CurrentCandidate::Match(found);
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
            CurrentCandidate::Match(found) => Ok(Some(self.matches.candidate(found))),
            CurrentCandidate::Version(position) => {
                let number = self.batch.version_at(*position).filter(|_| !self.key_ends.is_empty());
                let key = number.map_or(&[][..], |number| self.key_of(number));
                let candidate = self.batch.candidate(*position, &self.query, key);
                candidate.map(Some).ok_or_else(|| dangling("a version"))
            }
        }
    }

    fn sequence_bound(&self) -> SequenceNumber {
        let batch_rank = self.batch.next_rank();
        match (self.strategy, self.query.order) {
            (ReadStrategy::NewestFirst, _) => {
                batch_rank.unwrap_or_else(|| self.heap.peek().map_or(0, |entry| entry.rank))
            }
            (ReadStrategy::Sorted, Order::Newest) => {
                batch_rank.unwrap_or_else(|| self.sorted.last().map_or(0, RankedItem::sequence))
            }
            (ReadStrategy::ByLocation, Order::Newest) => {
                let later = self.steps.last().map_or(0, |(rank, _)| *rank);
                let is_done = batch_rank.is_none() && self.batched >= self.versions.len();
                if is_done { later } else { self.step_bound.max(later) }
            }
            _ => SequenceNumber::MAX,
        }
    }

    fn order(&self) -> Option<Order> {
        (self.strategy != ReadStrategy::ByLocation).then_some(self.query.order)
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        let costs = NextCosts { memtable_entries: self.matches.memtable_entries, ..self.statistics.costs };
        explain.add_costs(IndexCosts::of(&costs));
        explain.malformed += self.matches.malformed;
        explain.candidates += self.statistics.obsolete;
        explain.obsolete += self.statistics.obsolete;
        explain.unknown += self.statistics.unknown;
    }
}
