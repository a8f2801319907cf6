//! The candidates of one question to an embedded index (LevelDB++ algorithms 5 and 8).
//!
//! # Algorithm
//! What may hold matches is kept in a heap, the newest bound on top: memtables; sstables whose zone map in the
//! manifest does not rule them out; and, once an sstable was reached, those of its blocks that neither zone map
//! nor Bloom filter rules out. The top is taken out, its matches are read and handed on, and the bound of what
//! is left on top is the [sequence bound](CandidateCursor::sequence_bound) of the cursor. A level
//! whose sstables blend old and new records does not keep the reader from stopping early, since blocks have
//! bounds of their own; the papers stop at the ends of levels, which is not exact there.
//!
//! Blocks are judged some at a time, the newest first, so that a question which ends early does not even look at
//! the filters of the rest. Where the newest need not come first, blocks are judged and read in the order of
//! the file.
//!
//! Every match is read from its record, so filters cost reads and never answers. A match may still be
//! obsolete: the lookup driver validates. For that it is told where the record was read, and given the record.

use std::collections::BinaryHeap;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, Component, TableComponent};

use super::costs::EmbeddedCosts;
use super::filter;
use super::meta_block::{self, Answer, MetaBlock, Wanted};
use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::matches::{Found, Matches, Question};
use crate::in_sstable::memtable_read::{MemtablePart, read_memtable};
use crate::in_sstable::{SstableIndexBase, summary};
use crate::query::Order;

/// Blocks judged at a time.
const JUDGED_AT_ONCE: u64 = 32;

/// Something that may hold matches.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    /// Units with a larger rank come first: the newest sequence number that a match can have, where the
    /// newest are wanted first.
    rank: u64,
    what: What,
}

/// Positions of components are among those of the cursor.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A memtable, as far as it is not read yet.
    Memtable { component: usize, part: MemtablePart },
    /// An sstable with the index, of which no block was judged yet.
    Table { component: usize },
    /// The blocks of an sstable from this place of their order on, not judged yet.
    Blocks { component: usize, place: u64 },
    /// A block of an sstable.
    Block { component: usize, block: u64, by_filter: bool },
    /// An sstable without the index, from this block on.
    Scan { component: usize, block: u64 },
}

/// The candidates of one question; see the [module](self).
pub(super) struct EmbeddedCursor<'v> {
    question: Question<'v>,
    wanted: Wanted<'v>,
    table: TreeView,
    components: Vec<Component>,
    units: BinaryHeap<Unit>,
    /// Matches that were not handed on yet, the newest last.
    matches: Matches,
    current: Found,
    /// Blocks of the sstable that was read last.
    reader: Option<(usize, BlockReader)>,
    costs: EmbeddedCosts,
}

impl<'v> EmbeddedCursor<'v> {
    pub(super) fn new(
        index: &'v SstableIndexBase,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        order: Order,
        table: TreeView,
    ) -> Self {
        let mut cursor = Self {
            question: Question { index, extractor, access, order },
            wanted: Wanted { low: &access.low, end: &access.end, hash: wanted_hash(index, access) },
            components: table.components(),
            table,
            units: BinaryHeap::new(),
            matches: Matches::default(),
            current: Found::default(),
            reader: None,
            costs: EmbeddedCosts::default(),
        };
        cursor.start();
        cursor
    }

    /// Puts all components into the heap that the manifest does not rule out.
    fn start(&mut self) {
        let mut units = Vec::with_capacity(self.components.len());
        for (position, component) in self.components.iter().enumerate() {
            let is_too_new = component.smallest_sequence() > self.table.sequence();
            let what = match component {
                Component::Memtable(_) if is_too_new => continue,
                Component::Memtable(_) => What::Memtable { component: position, part: MemtablePart::All },
                Component::Table(table) => {
                    self.costs.sstables += 1;
                    if is_too_new {
                        self.costs.sstables_skipped_by_sequence += 1;
                        continue;
                    }
                    match summary::find(&table.meta().attachment, self.question.index.id) {
                        None => What::Scan { component: position, block: 0 },
                        Some(summary) if summary.may_match(self.wanted.low, self.wanted.end) => {
                            What::Table { component: position }
                        }
                        Some(_) => {
                            self.costs.sstables_skipped_by_zone_map += 1;
                            continue;
                        }
                    }
                }
            };
            let rank = self.rank(position, 0, component.largest_sequence());
            units.push(Unit { rank, what });
        }
        self.units = units.into();
    }

    /// The rank of what lies in a component from `block` on and has no newer write than `largest`.
    fn rank(&self, component: usize, block: u64, largest: SequenceNumber) -> u64 {
        match self.question.order {
            Order::Newest => largest.min(self.table.sequence()),
            // Component by component, each in the order of its blocks.
            _ => !((component as u64) << 40 | block.min((1 << 40) - 1)),
        }
    }

    /// Reads the matches of the unit that is on top.
    fn expand(&mut self, unit: Unit) -> Result<()> {
        self.matches.clear();
        match unit.what {
            What::Memtable { component, part } => self.read_memtable(unit.rank, component, part)?,
            What::Table { component } => {
                let table = self.table_component(component)?;
                self.judge_table(&table, component)?;
            }
            What::Blocks { component, place } => {
                let table = self.table_component(component)?;
                let filters = load(&table, self.question.index)?;
                self.judge_blocks(&filters, component, place);
            }
            What::Block { component, block, by_filter } => {
                let before = self.matches.found.len();
                self.read_block(component, block)?;
                self.costs.bloom_false_positives +=
                    u64::from(by_filter && self.matches.found.len() == before);
            }
            What::Scan { component, block } => {
                self.costs.sstables_without_index += u64::from(block == 0);
                let blocks = self.table_component(component)?.data_blocks()?;
                self.read_block(component, block)?;
                if block + 1 < blocks {
                    let rank = if self.question.order == Order::Newest { unit.rank } else { unit.rank - 1 };
                    self.units.push(Unit { rank, what: What::Scan { component, block: block + 1 } });
                }
            }
        }
        self.matches.found.sort_unstable_by_key(|found| found.sequence);
        Ok(())
    }

    /// How many data blocks the meta block of an sstable describes, if it is in memory.
    fn blocks_of(&self, component: usize) -> u64 {
        let Some(Component::Table(table)) = self.components.get(component) else { return 0 };
        let filters = table.attachments().get::<MetaBlock>(self.question.index.id.into());
        filters.map_or(0, |filters| filters.blocks())
    }

    fn table_component(&self, component: usize) -> Result<TableComponent> {
        match self.components.get(component) {
            Some(Component::Table(table)) => Ok(table.clone()),
            _ => Err(no_component()),
        }
    }

    /// Has the blocks of an sstable judged unless its meta block rules all of them out.
    fn judge_table(&mut self, table: &TableComponent, component: usize) -> Result<()> {
        let (view, costs) = (self.table.sequence(), &mut self.costs);
        let filters = load(table, self.question.index)?;
        match filters.match_table(&self.wanted, view) {
            Answer::Maybe { .. } => {}
            Answer::TooNew => {
                costs.sstables_skipped_by_sequence += 1;
                return Ok(());
            }
            Answer::OutOfZone => {
                costs.sstables_skipped_by_zone_map += 1;
                return Ok(());
            }
            Answer::NotInFilter => {
                costs.sstables_skipped_by_bloom += 1;
                return Ok(());
            }
        }
        self.judge_blocks(&filters, component, 0);
        Ok(())
    }

    /// Puts those of the next blocks of an sstable into the heap that its meta block does not rule out.
    fn judge_blocks(&mut self, filters: &MetaBlock, component: usize, place: u64) {
        let view = self.table.sequence();
        let at = |place: u64| match self.question.order {
            Order::Newest => filters.by_age(place),
            _ => (place < filters.blocks()).then_some((place, 0)),
        };
        let mut units = Vec::new();
        for (block, _) in (place..place + JUDGED_AT_ONCE).map_while(at) {
            match filters.match_block(block, &self.wanted, view) {
                Answer::Maybe { largest, filtered } => {
                    self.costs.bloom_hits += u64::from(filtered);
                    let rank = self.rank(component, block, largest);
                    units.push(Unit { rank, what: What::Block { component, block, by_filter: filtered } });
                }
                Answer::TooNew => self.costs.blocks_skipped_by_sequence += 1,
                Answer::OutOfZone => self.costs.blocks_skipped_by_zone_map += 1,
                Answer::NotInFilter => self.costs.blocks_skipped_by_bloom += 1,
            }
        }
        let place = place + JUDGED_AT_ONCE;
        if let Some((block, largest)) = at(place) {
            let rank = self.rank(component, block, largest);
            units.push(Unit { rank, what: What::Blocks { component, place } });
        }
        self.units.extend(units);
    }

    /// Reads the matches of a block.
    fn read_block(&mut self, component: usize, block: u64) -> Result<()> {
        self.costs.blocks_read += 1;
        let mut reader = match self.reader.take() {
            Some((of, reader)) if of == component => reader,
            _ => self.table_component(component)?.blocks(self.table.sequence())?,
        };
        reader.enter(block)?;
        while reader.valid() {
            self.matches.look_into(&self.question, &self.table, &reader)?;
            reader.advance()?;
        }
        self.reader = Some((component, reader));
        Ok(())
    }

    /// Reads the next matches of a memtable.
    fn read_memtable(&mut self, rank: u64, component: usize, part: MemtablePart) -> Result<()> {
        let Some(Component::Memtable(memtable)) = self.components.get(component) else {
            return Err(no_component());
        };
        let rest = read_memtable(&self.question, &self.table, memtable, (rank, part), &mut self.matches)?;
        if let Some((rank, part)) = rest {
            self.units.push(Unit { rank, what: What::Memtable { component, part } });
        }
        Ok(())
    }
}

impl CandidateCursor for EmbeddedCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            if let Some(found) = self.matches.found.pop() {
                self.current = found;
                break;
            }
            match self.units.pop() {
                Some(unit) => self.expand(unit)?,
                None => return Ok(None),
            }
        }
        Ok(Some(self.matches.candidate(&self.current)))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.question.order != Order::Newest {
            return SequenceNumber::MAX;
        }
        let unread = self.units.peek().map_or(0, |unit| unit.rank);
        self.matches.found.last().map_or(0, |found| found.sequence).max(unread)
    }

    fn order(&self) -> Option<Order> {
        None
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        let mut costs = EmbeddedCosts { memtable_entries: self.matches.memtable_entries, ..self.costs };
        for unit in &self.units {
            match unit.what {
                What::Table { .. } | What::Scan { block: 0, .. } => costs.sstables_not_reached += 1,
                What::Block { .. } | What::Scan { .. } => costs.blocks_not_reached += 1,
                What::Blocks { component, place } => {
                    costs.blocks_not_reached += self.blocks_of(component).saturating_sub(place);
                }
                What::Memtable { .. } => {}
            }
        }
        explain.embedded.add(&costs);
        explain.malformed += self.matches.malformed;
    }
}

/// The decoded meta block of `index` in an sstable that has one.
pub(super) fn load(table: &TableComponent, index: &SstableIndexBase) -> Result<Arc<MetaBlock>> {
    table.attachments().get_or_make(index.id.into(), || {
        let damaged = |what: &str| {
            let (file, name) = (table.meta().number, meta_block::name(index.id));
            Error::new(ErrorKind::Corruption, format!("sstable {file:06}.sst: meta block \"{name}\" {what}"))
        };
        let payload = table.meta_block(&meta_block::name(index.id))?.ok_or_else(|| damaged("is missing"))?;
        let block = MetaBlock::decode(payload).ok_or_else(|| damaged("does not decode"))?;
        if block.blocks() != table.data_blocks()? {
            return Err(damaged("has another number of data blocks"));
        }
        Ok(block)
    })
}

/// What the filters have to hold for a match: the secondary key where there is one, the value of the first
/// attribute where that is fixed at least.
pub(super) fn wanted_hash(index: &SstableIndexBase, access: &Access) -> Option<u64> {
    if access.point {
        return Some(filter::hash(&access.low));
    }
    if access.fixed == 0 || index.spec.attributes().len() < 2 {
        return None;
    }
    let first = attribute::encoded_len(&access.low).and_then(|len| access.low.get(..len))?;
    Some(filter::hash(first))
}

#[cold]
fn no_component() -> Error {
    Error::internal("a cursor of an embedded index lost a component")
}
