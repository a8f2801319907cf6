//! The candidates of a nearest-neighbour query, by distance (an extension of NEXT).
//!
//! The cursor is a best-first search (Hjaltason & Samet, Distance Browsing in Spatial Databases). One heap holds nodes of the
//! R-trees of the global index, index blocks, memtables, and the entries of opened index blocks and memtables. Each is ranked
//! by a bound: none of its candidates comes before it. So an entry on top of the heap is the nearest remaining candidate and
//! is returned; sources beyond the last result are never opened. The lookup driver validates the candidates, and stops
//! after K results.
//!
//! ```text
//! node           distance of its rectangle, largest sequence number
//! index block    distance of the nearest of its ranges, newest sequence number of its entries
//! memtable       distance 0, newest sequence number
//! entry          its distance, its sequence number
//! ```
//!
//! Equal distances come newest first. A record with several rectangles is a candidate for each of them, the nearest first,
//! with the flag `repeated`; the driver returns it once. With a cursor token, the cursor skips entries up to the position of
//! the token, and nodes and blocks that lie entirely before it.
//!
//! # Memory
//! Of an opened block or memtable only the nearest entries are pushed, at first twice the limit. The rest goes back to the
//! heap as one element, and is read again if it reaches the top, with four times as many entries. An entry takes some fifty
//! bytes. Records are read when their entry is returned. Queries with a very large limit, and sets with sstables without the
//! index, [use](NearestCursor::serves) the cursor by location, whose candidates the driver sorts in bounded memory.

use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, MemtableComponent, VersionAt};

use super::batch::dangling;
use super::costs::NextCosts;
use super::global_index::{GlobalIndex, IndexBlockId, SpatialChild};
use super::opened_block::{OpenedBlock, sstable_of};
use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::matches::{IndexQuery, MAX_COPIED_RECORD_BYTES, Matches};
use crate::in_sstable::memtable_read::{read_opaque_records, visit_memtable_entries};
use crate::query::Order;
use crate::space::nearness::{DistanceBytes, NearestQuery, NearestSelection, Nearness};
use crate::space::packed_tree::RTreeNode;
use crate::space::rect_block::{self, RectEntry};

/// Largest limit of a query for a best-first search.
const MAX_NEAREST_LIMIT: usize = 4096;
/// Minimum entries of the first read of a block.
const MIN_FIRST_ENTRIES: usize = 16;

/// An element of the heap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NearestEntry {
    /// Bound of its candidates: none comes before it.
    rank: Nearness,
    source: NearestSource,
}

/// At equal rank the larger comes first: unopened sources.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NearestSource {
    /// A write in a memtable, by its primary key.
    Unflushed { primary_key: Box<[u8]>, repeated: bool },
    /// A write that an entry of an index block points to.
    Version(MemberVersion),
    /// The entries of a memtable that do not come before the rank; the next read takes the nearest `take` of them.
    Memtable { number: u32, is_first: bool, take: u32 },
    /// The same for an index block.
    Block { at: IndexBlockId, is_first: bool, take: u32 },
    /// The children of a node.
    Node { in_delta: bool, node: RTreeNode },
}

/// The location of a record version; its sequence number is in the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MemberVersion {
    member: u32,
    block: u32,
    entry: u32,
    repeated: bool,
}

/// The current candidate.
#[derive(Debug, Default)]
struct NearestCandidate {
    primary_key: Vec<u8>,
    distance: DistanceBytes,
    sequence: SequenceNumber,
    repeated: bool,
    newer_runs: Option<u32>,
    record: Vec<u8>,
    has_record: bool,
}

/// The candidates of one query; see the [module](self).
pub(super) struct NearestCursor<'v> {
    query: IndexQuery<'v>,
    near: NearestQuery,
    table: TreeView,
    global: Arc<GlobalIndex>,
    has_begun: bool,
    memtables: Vec<MemtableComponent>,
    heap: BinaryHeap<NearestEntry>,
    /// Blocks that were opened: a block may be in the heap for each of its ranges.
    opened: HashSet<IndexBlockId>,
    /// Rank of the last candidate returned.
    last_rank: Option<Nearness>,
    /// Readers of the members' data blocks, each with the number of the last block it read.
    readers: Vec<Option<(BlockReader, Option<u64>)>>,
    matches: Matches,
    current: NearestCandidate,
    costs: NextCosts,
}

impl<'v> NearestCursor<'v> {
    /// Whether this cursor serves a query.
    pub(super) fn serves(access: &Access, order: Order, global: &GlobalIndex) -> bool {
        // An sstable without the index has no bounds of distances.
        order == Order::Nearest && access.limit <= MAX_NEAREST_LIMIT && global.unindexed().is_empty()
    }

    pub(super) fn new(
        index: &'v SstableIndexBase,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        near: NearestQuery,
        table: TreeView,
        global: Arc<GlobalIndex>,
    ) -> Self {
        Self {
            query: IndexQuery { index, extractor, access, order: Order::Nearest },
            near,
            table,
            global,
            has_begun: false,
            memtables: Vec::new(),
            heap: BinaryHeap::new(),
            opened: HashSet::new(),
            last_rank: None,
            readers: Vec::new(),
            matches: Matches::default(),
            current: NearestCandidate::default(),
            costs: NextCosts::default(),
        }
    }

    fn begin(&mut self) {
        self.has_begun = true;
        let view = self.table.sequence();
        let is_old_enough = |memtable: &MemtableComponent| memtable.smallest_sequence() <= view;
        self.memtables = self.table.memtable_components().filter(is_old_enough).collect();
        self.costs.index_blocks = self.global.blocks() as u64;
        let take = self.first_take();
        for (number, memtable) in (0..).zip(&self.memtables) {
            let rank = Nearness { distance: 0, sequence: memtable.largest_sequence().min(view) };
            let source = NearestSource::Memtable { number, is_first: true, take };
            self.heap.push(NearestEntry { rank, source });
        }
        self.expand(None);
    }

    fn first_take(&self) -> u32 {
        self.query.access.limit.saturating_mul(2).max(MIN_FIRST_ENTRIES) as u32
    }

    /// Pushes the children of a node.
    fn expand(&mut self, node: Option<(bool, RTreeNode)>) {
        let (near, view, take) = (self.near, self.table.sequence(), self.first_take());
        let Self { global, heap, .. } = self;
        global.visit_children(node, |child, rect| {
            if rect.is_some_and(|rect| !near.may_include_within(rect)) {
                return;
            }
            let bound = match rect {
                Some(rect) => Nearness::bound(rect, &near.from),
                None => Nearness { distance: 0, sequence: SequenceNumber::MAX },
            };
            match child {
                SpatialChild::Node { in_delta, node } => {
                    heap.push(NearestEntry { rank: bound, source: NearestSource::Node { in_delta, node } });
                }
                SpatialChild::Block(at) => {
                    let Some(info) = global.info(at).filter(|info| info.smallest <= view) else { return };
                    let rank = Nearness { sequence: info.largest.min(view), ..bound };
                    let source = NearestSource::Block { at, is_first: true, take };
                    heap.push(NearestEntry { rank, source });
                }
            }
        });
    }

    /// Moves to the next candidate; false at the end.
    fn advance(&mut self) -> Result<bool> {
        while let Some(NearestEntry { rank, source }) = self.heap.pop() {
            match source {
                NearestSource::Node { in_delta, node } => self.expand(Some((in_delta, node))),
                NearestSource::Block { at, is_first, take } => {
                    // The first element of a block is that of its nearest range; the others are skipped.
                    if !is_first || self.opened.insert(at) {
                        self.open_block(at, (!is_first).then_some(rank), take)?;
                    }
                }
                NearestSource::Memtable { number, is_first, take } => {
                    self.open_memtable(number, (!is_first).then_some(rank), take)?;
                }
                // Another rectangle of the same write at the same distance.
                NearestSource::Unflushed { .. } | NearestSource::Version(_)
                    if self.last_rank == Some(rank) => {}
                NearestSource::Unflushed { primary_key, repeated } => {
                    self.last_rank = Some(rank);
                    self.current.set(&primary_key, rank, repeated);
                    return Ok(true);
                }
                NearestSource::Version(version) => {
                    if self.read(version, rank.sequence)? {
                        self.last_rank = Some(rank);
                        self.set_current(version, rank)?;
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Pushes the nearest `take` entries of an index block that do not come before `from`.
    fn open_block(&mut self, at: IndexBlockId, from: Option<Nearness>, take: u32) -> Result<()> {
        let (near, view) = (self.near, self.table.sequence());
        let opened = OpenedBlock::read(&self.global, &self.table, self.query.index.id, at)?;
        let mut nearest = NearestSelection::new(take as usize);
        let mut opaque: Vec<(MemberVersion, SequenceNumber)> = Vec::new();
        let mut entries = 0;
        let visited = rect_block::visit(&opened.bytes, None, |found| {
            let RectEntry { ref rect, sequence, block, entry, repeated } = *found;
            let version = MemberVersion { member: at.member, block, entry, repeated };
            let rank = Nearness::new(rect, &near.from, sequence);
            if opened.info.is_opaque {
                opaque.extend((sequence <= view).then_some((version, sequence)));
            } else if sequence <= view && from.is_none_or(|from| rank <= from) && near.includes(rank) {
                entries += 1;
                nearest.push(rank, || version);
            }
        });
        visited.ok_or_else(|| opened.damaged())?;
        if from.is_none() {
            self.costs.index_blocks_met += 1;
            self.costs.index_blocks_read += 1;
            self.costs.entries += entries + opaque.len() as u64;
        }
        for (version, sequence) in opaque {
            self.match_opaque(version, sequence)?;
        }
        let (nearest, rest) = nearest.finish();
        let versions = nearest.into_iter().map(|(rank, version)| (rank, NearestSource::Version(version)));
        self.heap.extend(versions.map(|(rank, source)| NearestEntry { rank, source }));
        // Each read takes four times as many entries, which bounds the number of reads.
        let source = NearestSource::Block { at, is_first: false, take: take.saturating_mul(4) };
        self.heap.extend(rest.map(|rank| NearestEntry { rank, source }));
        Ok(())
    }

    /// As [`open_block`](Self::open_block), for a memtable.
    fn open_memtable(&mut self, number: u32, from: Option<Nearness>, take: u32) -> Result<()> {
        let (near, view) = (self.near, self.table.sequence());
        let component = self.memtables.get(number as usize).ok_or_else(|| dangling("a memtable"))?;
        let mut nearest = NearestSelection::new(take as usize);
        let mut entries = 0;
        visit_memtable_entries(&self.query, component, |entry, repeated| {
            entries += 1;
            let Some(rect) = attribute::decode_rect(entry.secondary_key) else { return };
            let rank = Nearness::new(&rect, &near.from, entry.sequence);
            if entry.sequence <= view && from.is_none_or(|from| rank <= from) && near.includes(rank) {
                nearest.push(rank, || (entry.primary_key.into(), repeated));
            }
        })?;
        self.matches.memtable_entries += entries;
        if from.is_none() {
            self.matches.clear();
            read_opaque_records(&self.query, &self.table, component, &mut self.matches)?;
            for found in &self.matches.found {
                let Candidate { primary_key, order_value, sequence, repeated, .. } =
                    self.matches.candidate(found);
                let rank = Nearness::from_bytes(order_value, sequence).filter(|rank| near.includes(*rank));
                let source = NearestSource::Unflushed { primary_key: primary_key.into(), repeated };
                self.heap.extend(rank.map(|rank| NearestEntry { rank, source }));
            }
        }
        let (nearest, rest) = nearest.finish();
        self.heap.extend(nearest.into_iter().map(|(rank, (primary_key, repeated))| NearestEntry {
            rank,
            source: NearestSource::Unflushed { primary_key, repeated },
        }));
        let source = NearestSource::Memtable { number, is_first: false, take: take.saturating_mul(4) };
        self.heap.extend(rest.map(|rank| NearestEntry { rank, source }));
        Ok(())
    }

    /// Extracts the rectangles of an opaque record, and pushes those that match.
    fn match_opaque(&mut self, version: MemberVersion, sequence: SequenceNumber) -> Result<()> {
        if !self.read(version, sequence)? {
            return Ok(());
        }
        let reader = reader_of(&self.readers, version.member)?;
        self.matches.clear();
        self.matches.add_record(&self.query, &self.table, reader)?;
        for found in &self.matches.found {
            let Candidate { order_value, repeated, .. } = self.matches.candidate(found);
            let rank = Nearness::from_bytes(order_value, sequence).filter(|rank| self.near.includes(*rank));
            let source = NearestSource::Version(MemberVersion { repeated, ..version });
            self.heap.extend(rank.map(|rank| NearestEntry { rank, source }));
        }
        Ok(())
    }

    /// Moves the reader of the member to a version; false if a newer version in the same block replaces it.
    fn read(&mut self, version: MemberVersion, sequence: SequenceNumber) -> Result<bool> {
        let MemberVersion { member, block, entry, .. } = version;
        let number = member as usize;
        if self.readers.len() <= number {
            self.readers.resize_with(number + 1, || None);
        }
        let slot = self.readers.get_mut(number).ok_or_else(|| dangling("a reader"))?;
        let (reader, last) = match slot {
            Some(reader) => reader,
            None => {
                let sstable = sstable_of(&self.global, &self.table, member)?;
                slot.insert((sstable.blocks(self.table.sequence())?, None))
            }
        };
        let same_block = last.replace(block.into()) == Some(block.into());
        self.costs.data_blocks_read += u64::from(!same_block);
        self.costs.data_blocks_spared += u64::from(same_block);
        match reader.enter_version(block.into(), entry, sequence)? {
            VersionAt::Newest => Ok(true),
            VersionAt::Replaced => {
                self.costs.replaced += 1;
                Ok(false)
            }
            VersionAt::Other => {
                let file = sstable_of(&self.global, &self.table, member)?.meta().number;
                let what = format!(
                    "sstable {file:06}.sst: an index block points to write {sequence} at entry {entry} of data block \
                     {block}, which holds another write"
                );
                Err(Error::new(ErrorKind::Corruption, what))
            }
        }
    }

    /// Makes the version that was just read the current candidate.
    fn set_current(&mut self, version: MemberVersion, rank: Nearness) -> Result<()> {
        let reader = reader_of(&self.readers, version.member)?;
        self.current.set(reader.key(), rank, version.repeated);
        self.current.newer_runs = Some(reader.newer_runs());
        if reader.value().len() <= MAX_COPIED_RECORD_BYTES {
            self.current.has_record = true;
            self.current.record.extend_from_slice(reader.value());
        }
        Ok(())
    }
}

impl NearestCandidate {
    /// Sets a candidate without its record.
    fn set(&mut self, primary_key: &[u8], rank: Nearness, repeated: bool) {
        self.primary_key.clear();
        self.primary_key.extend_from_slice(primary_key);
        (self.distance, self.sequence, self.repeated) = (rank.bytes(), rank.sequence, repeated);
        (self.newer_runs, self.has_record) = (None, false);
        self.record.clear();
    }

    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            primary_key: &self.primary_key,
            sequence: self.sequence,
            order_value: &self.distance,
            repeated: self.repeated,
            included: &[],
            origin: CandidateOrigin {
                newer_runs: self.newer_runs,
                record: self.has_record.then_some(&self.record),
                checked: true,
                ..CandidateOrigin::default()
            },
        }
    }
}

impl CandidateCursor for NearestCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        if !self.has_begun {
            self.begin();
        }
        Ok(self.advance()?.then(|| self.current.candidate()))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        SequenceNumber::MAX
    }

    fn order(&self) -> Option<Order> {
        Some(Order::Nearest)
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        let costs = NextCosts { memtable_entries: self.matches.memtable_entries, ..self.costs };
        explain.add_costs(IndexCosts::of(&costs));
        explain.malformed += self.matches.malformed;
    }
}

/// The reader of a member's data blocks.
fn reader_of(readers: &[Option<(BlockReader, Option<u64>)>], member: u32) -> Result<&BlockReader> {
    let reader = readers.get(member as usize).and_then(Option::as_ref);
    reader.map(|(reader, _)| reader).ok_or_else(|| dangling("a reader"))
}
