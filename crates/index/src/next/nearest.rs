//! The candidates of a question for the nearest places, by their distance (an extra beside NEXT).
//!
//! One walk through everything, the most promising first (Hjaltason & Samet, Distance Browsing in Spatial Databases): in one
//! heap wait nodes of the global index's R-trees, index blocks, memtables, and entries of index blocks and memtables that were
//! opened, each by its bound: no candidate from it comes before. So an entry on top of the heap is the nearest of
//! all that is left, and is handed on; what lies behind the last answer is never opened. The lookup driver validates as ever, and stops
//! when it has K answers.
//!
//! ```text
//! node           distance of its rectangle, as if newest of all
//! index block    distance of the nearest of its ranges, newest sequence number of its entries
//! memtable       distance 0, newest sequence number
//! entry          its distance, its sequence number
//! ```
//!
//! Equal distances come newest first. A record with several places is proposed at each of them, its nearest first, and marked as
//! such; the driver answers it once. Behind a cursor token, entries up to the token's place are passed over, and nodes and blocks that
//! lie before it as a whole.
//!
//! # Memory
//! Of an opened block or memtable only the nearest entries wait, twice as many as are wanted at first; the rest of it
//! waits as a whole, and is read again if its turn comes, with four times as many. An entry takes some fifty bytes.
//! Records are read when an entry is handed on. Questions for very many answers, and sstables without the index, are
//! [left](NearestCursor::serves) to a cursor that goes by place, whose candidates the driver sorts within its own bounds.

use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, MemtableComponent, VersionAt};

use super::batch::lost;
use super::costs::NextCosts;
use super::global_index::{BlockPlace, GlobalIndex, Met};
use super::opened_block::{OpenedBlock, sstable_of};
use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::matches::{MAX_IN_HAND_BYTES, Matches, Question};
use crate::in_sstable::memtable_read::{look_up_opaque, visit_entries};
use crate::query::Order;
use crate::space::nearness::{DistanceBytes, Near, Nearness, Selection};
use crate::space::packed_tree::Node;
use crate::space::rect_block::{self, RectEntry};

/// Questions for more answers are not walked for.
const MAX_NEAREST: usize = 4096;
/// Entries that are taken of a block at first, at least.
const FIRST_TAKEN: usize = 16;

/// What waits in the heap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    /// Nothing of it comes before.
    rank: Nearness,
    what: What,
}

/// Of two with one rank, the larger comes first: what is not opened yet.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A write in a memtable, by its primary key.
    Unflushed { primary_key: Box<[u8]>, repeated: bool },
    /// A write that an entry of an index block names.
    Version(Version),
    /// The entries of a memtable that do not come before the unit's rank, so many at first.
    Memtable { number: u32, is_first: bool, take: u32 },
    /// The same of an index block.
    Block { at: BlockPlace, is_first: bool, take: u32 },
    /// What is below a node.
    Node { in_delta: bool, node: Node },
}

/// Where the version of a record is; the unit's rank has its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    member: u32,
    block: u32,
    entry: u32,
    repeated: bool,
}

/// The candidate that is handed on.
#[derive(Debug, Default)]
struct Shown {
    primary_key: Vec<u8>,
    distance: DistanceBytes,
    sequence: SequenceNumber,
    repeated: bool,
    newer_runs: Option<u32>,
    record: Vec<u8>,
    has_record: bool,
}

/// The candidates of one question; see the [module](self).
pub(super) struct NearestCursor<'v> {
    question: Question<'v>,
    near: Near,
    table: TreeView,
    global: Arc<GlobalIndex>,
    has_begun: bool,
    memtables: Vec<MemtableComponent>,
    waiting: BinaryHeap<Unit>,
    /// Blocks that were opened: a block may wait with each of its ranges.
    opened: HashSet<BlockPlace>,
    /// The last write handed on, with its distance.
    given: Option<Nearness>,
    /// Readers of the members' data blocks, and the block that each read last.
    readers: Vec<Option<(BlockReader, Option<u64>)>>,
    matches: Matches,
    shown: Shown,
    costs: NextCosts,
}

impl<'v> NearestCursor<'v> {
    /// Whether it is the cursor for a question.
    pub(super) fn serves(access: &Access, order: Order, global: &GlobalIndex) -> bool {
        // How far away the records of an sstable without the index are, only a look at all of them tells.
        order == Order::Nearest && access.limit <= MAX_NEAREST && global.without().is_empty()
    }

    pub(super) fn new(
        index: &'v SstableIndexBase,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        near: Near,
        table: TreeView,
        global: Arc<GlobalIndex>,
    ) -> Self {
        Self {
            question: Question { index, extractor, access, order: Order::Nearest },
            near,
            table,
            global,
            has_begun: false,
            memtables: Vec::new(),
            waiting: BinaryHeap::new(),
            opened: HashSet::new(),
            given: None,
            readers: Vec::new(),
            matches: Matches::default(),
            shown: Shown::default(),
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
            self.waiting.push(Unit { rank, what: What::Memtable { number, is_first: true, take } });
        }
        self.expand(None);
    }

    fn first_take(&self) -> u32 {
        self.question.access.limit.saturating_mul(2).max(FIRST_TAKEN) as u32
    }

    /// Puts what is below a node on the heap.
    fn expand(&mut self, node: Option<(bool, Node)>) {
        let (near, view, take) = (self.near, self.table.sequence(), self.first_take());
        let Self { global, waiting, .. } = self;
        global.visit_below(node, |below, rect| {
            if rect.is_some_and(|rect| !near.may_want_within(rect)) {
                return;
            }
            let bound = match rect {
                Some(rect) => Nearness::bound(rect, &near.from),
                None => Nearness { distance: 0, sequence: SequenceNumber::MAX },
            };
            match below {
                Met::Node { in_delta, node } => {
                    waiting.push(Unit { rank: bound, what: What::Node { in_delta, node } });
                }
                Met::Block(at) => {
                    let Some(info) = global.info(at).filter(|info| info.smallest <= view) else { return };
                    let rank = Nearness { sequence: info.largest.min(view), ..bound };
                    waiting.push(Unit { rank, what: What::Block { at, is_first: true, take } });
                }
            }
        });
    }

    /// Goes to the next candidate; false where there is none.
    fn advance(&mut self) -> Result<bool> {
        while let Some(Unit { rank, what }) = self.waiting.pop() {
            match what {
                What::Node { in_delta, node } => self.expand(Some((in_delta, node))),
                What::Block { at, is_first, take } => {
                    // Its other ranges are farther away.
                    if !is_first || self.opened.insert(at) {
                        self.open_block(at, (!is_first).then_some(rank), take)?;
                    }
                }
                What::Memtable { number, is_first, take } => {
                    self.open_memtable(number, (!is_first).then_some(rank), take)?;
                }
                // Several places of a write that are equally near.
                What::Unflushed { .. } | What::Version(_) if self.given == Some(rank) => {}
                What::Unflushed { primary_key, repeated } => {
                    self.given = Some(rank);
                    self.shown.show(&primary_key, rank, repeated);
                    return Ok(true);
                }
                What::Version(version) => {
                    if self.read(version, rank.sequence)? {
                        self.given = Some(rank);
                        self.show_read(version, rank)?;
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Takes the nearest entries of an index block that do not come before `from`.
    fn open_block(&mut self, at: BlockPlace, from: Option<Nearness>, take: u32) -> Result<()> {
        let (near, view) = (self.near, self.table.sequence());
        let opened = OpenedBlock::read(&self.global, &self.table, self.question.index.id, at)?;
        let mut nearest = Selection::new(take as usize);
        let mut opaque: Vec<(Version, SequenceNumber)> = Vec::new();
        let mut entries = 0;
        let visited = rect_block::visit(&opened.bytes, None, |found| {
            let RectEntry { ref rect, sequence, block, entry, repeated } = *found;
            let version = Version { member: at.member, block, entry, repeated };
            let rank = Nearness::new(rect, &near.from, sequence);
            if opened.info.is_opaque {
                opaque.extend((sequence <= view).then_some((version, sequence)));
            } else if sequence <= view && from.is_none_or(|from| rank <= from) && near.wants(rank) {
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
            self.look_into(version, sequence)?;
        }
        let (nearest, rest) = nearest.finish();
        self.waiting.extend(nearest.into_iter().map(|(rank, one)| Unit { rank, what: What::Version(one) }));
        // More of it each time, so that it is not read too often.
        let take = take.saturating_mul(4);
        let rest = rest.map(|rank| Unit { rank, what: What::Block { at, is_first: false, take } });
        self.waiting.extend(rest);
        Ok(())
    }

    /// The same of a memtable.
    fn open_memtable(&mut self, number: u32, from: Option<Nearness>, take: u32) -> Result<()> {
        let (near, view) = (self.near, self.table.sequence());
        let component = self.memtables.get(number as usize).ok_or_else(|| lost("a memtable"))?;
        let mut nearest = Selection::new(take as usize);
        let mut entries = 0;
        visit_entries(&self.question, component, |entry, repeated| {
            entries += 1;
            let Some(rect) = attribute::decode_rect(entry.secondary_key) else { return };
            let rank = Nearness::new(&rect, &near.from, entry.sequence);
            if entry.sequence <= view && from.is_none_or(|from| rank <= from) && near.wants(rank) {
                nearest.push(rank, || (entry.primary_key.into(), repeated));
            }
        })?;
        self.matches.memtable_entries += entries;
        if from.is_none() {
            self.matches.clear();
            look_up_opaque(&self.question, &self.table, component, &mut self.matches)?;
            for found in &self.matches.found {
                let Candidate { primary_key, order_value, sequence, repeated, .. } =
                    self.matches.candidate(found);
                let rank = Nearness::from_bytes(order_value, sequence).filter(|rank| near.wants(*rank));
                let what = What::Unflushed { primary_key: primary_key.into(), repeated };
                self.waiting.extend(rank.map(|rank| Unit { rank, what }));
            }
        }
        let (nearest, rest) = nearest.finish();
        self.waiting.extend(nearest.into_iter().map(|(rank, (primary_key, repeated))| Unit {
            rank,
            what: What::Unflushed { primary_key, repeated },
        }));
        let take = take.saturating_mul(4);
        let rest = rest.map(|rank| Unit { rank, what: What::Memtable { number, is_first: false, take } });
        self.waiting.extend(rest);
        Ok(())
    }

    /// Looks into a record that could not be looked into when it was written. If it can be now, it waits as others do.
    fn look_into(&mut self, version: Version, sequence: SequenceNumber) -> Result<()> {
        if !self.read(version, sequence)? {
            return Ok(());
        }
        let reader = reader_of(&self.readers, version.member)?;
        self.matches.clear();
        self.matches.look_into(&self.question, &self.table, reader)?;
        for found in &self.matches.found {
            let Candidate { order_value, repeated, .. } = self.matches.candidate(found);
            let rank = Nearness::from_bytes(order_value, sequence).filter(|rank| self.near.wants(*rank));
            let what = What::Version(Version { repeated, ..version });
            self.waiting.extend(rank.map(|rank| Unit { rank, what }));
        }
        Ok(())
    }

    /// Has a reader go to a version; false where a newer one of its block has replaced it.
    fn read(&mut self, version: Version, sequence: SequenceNumber) -> Result<bool> {
        let Version { member, block, entry, .. } = version;
        let number = member as usize;
        if self.readers.len() <= number {
            self.readers.resize_with(number + 1, || None);
        }
        let slot = self.readers.get_mut(number).ok_or_else(|| lost("a reader"))?;
        let (reader, last) = match slot {
            Some(reader) => reader,
            None => {
                let sstable = sstable_of(&self.global, &self.table, member)?;
                slot.insert((sstable.blocks(self.table.sequence())?, None))
            }
        };
        let is_had = last.replace(block.into()) == Some(block.into());
        self.costs.data_blocks_read += u64::from(!is_had);
        self.costs.data_blocks_spared += u64::from(is_had);
        match reader.enter_version(block.into(), entry, sequence)? {
            VersionAt::Newest => Ok(true),
            VersionAt::Replaced => {
                self.costs.replaced += 1;
                Ok(false)
            }
            VersionAt::Other => {
                let file = sstable_of(&self.global, &self.table, member)?.meta().number;
                let what = format!(
                    "sstable {file:06}.sst: an index block says that write {sequence} is entry {entry} of data block \
                     {block}, which it is not"
                );
                Err(Error::new(ErrorKind::Corruption, what))
            }
        }
    }

    /// Shows the version that was just read.
    fn show_read(&mut self, version: Version, rank: Nearness) -> Result<()> {
        let reader = reader_of(&self.readers, version.member)?;
        self.shown.show(reader.key(), rank, version.repeated);
        self.shown.newer_runs = Some(reader.newer_runs());
        if reader.value().len() <= MAX_IN_HAND_BYTES {
            self.shown.has_record = true;
            self.shown.record.extend_from_slice(reader.value());
        }
        Ok(())
    }
}

impl Shown {
    /// Shows a write of which no more than this is known.
    fn show(&mut self, primary_key: &[u8], rank: Nearness, repeated: bool) {
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
        Ok(self.advance()?.then(|| self.shown.candidate()))
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
        explain.next_costs.add(&NextCosts { memtable_entries: self.matches.memtable_entries, ..self.costs });
        explain.malformed += self.matches.malformed;
    }
}

/// The reader that last went to a version of a member.
fn reader_of(readers: &[Option<(BlockReader, Option<u64>)>], member: u32) -> Result<&BlockReader> {
    let reader = readers.get(member as usize).and_then(Option::as_ref);
    reader.map(|(reader, _)| reader).ok_or_else(|| lost("a reader"))
}
