//! The candidates of one query on an embedded index (LevelDB++ algorithms 5 and 8).
//!
//! # Algorithm
//! A heap contains the units that may have matches, newest bound on top: memtables; sstables whose zone map in the manifest
//! does not exclude them; and, once an sstable is reached, those of its blocks that neither zone map nor Bloom filter
//! excludes. The cursor takes the top unit and returns its matches. The bound of the next unit is the
//! [sequence bound](CandidateCursor::sequence_bound) of the cursor. A level whose sstables mix old and new records does not
//! prevent the reader from stopping early, since blocks have their own bounds. The papers stop at the ends of levels,
//! which is not exact in this case.
//!
//! Blocks are filtered in batches, newest first, so a query that ends early does not read the filters of the rest. If the
//! newest need not come first, blocks are filtered and read in file order.
//!
//! Every match is verified with its record, so false positives of filters cost reads and never affect results. A match may
//! still be obsolete: the lookup driver validates it, with the place where the record was read and the record.

use std::collections::BinaryHeap;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, Component, TableComponent};

use super::costs::EmbeddedCosts;
use super::filter;
use super::meta_block::{self, FilterResult, MetaBlock, MetaBlockQuery};
use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor};
use crate::costs::IndexCosts;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::in_sstable::matches::{IndexMatch, IndexQuery, Matches};
use crate::in_sstable::memtable_read::{MemtablePart, read_memtable};
use crate::in_sstable::{SstableIndexBase, check_format, summary};
use crate::query::Order;

/// Number of blocks filtered per batch.
const FILTER_BATCH_BLOCKS: u64 = 32;

/// A unit of reading that may have matches.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReadUnit {
    /// Units with a larger rank come first: the upper bound of the sequence numbers of its matches, in the order `Newest`.
    rank: u64,
    kind: UnitKind,
}

/// Components are positions among those of the cursor.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnitKind {
    /// The unread part of a memtable.
    Memtable { component: usize, part: MemtablePart },
    /// An sstable with the index, none of whose blocks are filtered yet.
    Table { component: usize },
    /// Unfiltered blocks of an sstable, from this position of their order on.
    Blocks { component: usize, place: u64 },
    /// A block of an sstable.
    Block { component: usize, block: u64, by_filter: bool },
    /// An unread sstable without the index, from this block on.
    Scan { component: usize, block: u64 },
}

/// The candidates of one query; see the [module](self).
pub(super) struct EmbeddedCursor<'v> {
    query: IndexQuery<'v>,
    wanted: MetaBlockQuery<'v>,
    table: TreeView,
    components: Vec<Component>,
    units: BinaryHeap<ReadUnit>,
    /// Matches that are not returned yet, the newest last.
    matches: Matches,
    current: IndexMatch,
    /// A reader of the blocks of the last read sstable.
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
            query: IndexQuery { index, extractor, access, order },
            wanted: MetaBlockQuery { low: &access.low, end: &access.end, hash: query_hash(index, access) },
            components: table.components(),
            table,
            units: BinaryHeap::new(),
            matches: Matches::default(),
            current: IndexMatch::default(),
            reader: None,
            costs: EmbeddedCosts::default(),
        };
        cursor.start();
        cursor
    }

    /// Adds all components to the heap that the manifest does not exclude.
    fn start(&mut self) {
        let mut units = Vec::with_capacity(self.components.len());
        for (position, component) in self.components.iter().enumerate() {
            let is_too_new = component.smallest_sequence() > self.table.sequence();
            let kind = match component {
                Component::Memtable(_) if is_too_new => continue,
                Component::Memtable(_) => UnitKind::Memtable { component: position, part: MemtablePart::All },
                Component::Table(table) => {
                    self.costs.sstables += 1;
                    if is_too_new {
                        self.costs.sstables_skipped_by_sequence += 1;
                        continue;
                    }
                    match summary::find(&table.meta().attachment, self.query.index.id) {
                        None => UnitKind::Scan { component: position, block: 0 },
                        Some(summary) if summary.may_match(self.wanted.low, self.wanted.end) => {
                            UnitKind::Table { component: position }
                        }
                        Some(_) => {
                            self.costs.sstables_skipped_by_zone_map += 1;
                            continue;
                        }
                    }
                }
            };
            let rank = self.rank(position, 0, component.largest_sequence());
            units.push(ReadUnit { rank, kind });
        }
        self.units = units.into();
    }

    /// The rank of the part of a component from `block` on without a newer write than `largest`.
    fn rank(&self, component: usize, block: u64, largest: SequenceNumber) -> u64 {
        match self.query.order {
            Order::Newest => largest.min(self.table.sequence()),
            // Components one after the other, each in the order of its blocks.
            _ => !((component as u64) << 40 | block.min((1 << 40) - 1)),
        }
    }

    /// Reads the matches of the top unit.
    fn expand(&mut self, unit: ReadUnit) -> Result<()> {
        self.matches.clear();
        match unit.kind {
            UnitKind::Memtable { component, part } => self.read_memtable(unit.rank, component, part)?,
            UnitKind::Table { component } => {
                let table = self.table_component(component)?;
                self.filter_table(&table, component)?;
            }
            UnitKind::Blocks { component, place } => {
                let table = self.table_component(component)?;
                let filters = load(&table, self.query.index)?;
                self.filter_blocks(&filters, component, place);
            }
            UnitKind::Block { component, block, by_filter } => {
                let before = self.matches.found.len();
                self.read_block(component, block)?;
                self.costs.bloom_false_positives +=
                    u64::from(by_filter && self.matches.found.len() == before);
            }
            UnitKind::Scan { component, block } => {
                self.costs.sstables_without_index += u64::from(block == 0);
                let blocks = self.table_component(component)?.data_blocks()?;
                self.read_block(component, block)?;
                if block + 1 < blocks {
                    let rank = if self.query.order == Order::Newest { unit.rank } else { unit.rank - 1 };
                    self.units.push(ReadUnit { rank, kind: UnitKind::Scan { component, block: block + 1 } });
                }
            }
        }
        self.matches.found.sort_unstable_by_key(|found| found.sequence);
        Ok(())
    }

    /// Number of data blocks that the meta block of an sstable describes; 0 if it is not in memory.
    fn blocks_of(&self, component: usize) -> u64 {
        let Some(Component::Table(table)) = self.components.get(component) else { return 0 };
        let filters = table.attachments().get::<MetaBlock>(self.query.index.id.into());
        filters.map_or(0, |filters| filters.blocks())
    }

    fn table_component(&self, component: usize) -> Result<TableComponent> {
        match self.components.get(component) {
            Some(Component::Table(table)) => Ok(table.clone()),
            _ => Err(no_component()),
        }
    }

    /// Filters the blocks of an sstable unless its meta block excludes the whole sstable.
    fn filter_table(&mut self, table: &TableComponent, component: usize) -> Result<()> {
        let (view, costs) = (self.table.sequence(), &mut self.costs);
        let filters = load(table, self.query.index)?;
        match filters.match_table(&self.wanted, view) {
            FilterResult::MayMatch { .. } => {}
            FilterResult::TooNew => {
                costs.sstables_skipped_by_sequence += 1;
                return Ok(());
            }
            FilterResult::OutOfZone => {
                costs.sstables_skipped_by_zone_map += 1;
                return Ok(());
            }
            FilterResult::NotInFilter => {
                costs.sstables_skipped_by_bloom += 1;
                return Ok(());
            }
        }
        self.filter_blocks(&filters, component, 0);
        Ok(())
    }

    /// Adds those of the next blocks of an sstable to the heap that its meta block does not exclude.
    fn filter_blocks(&mut self, filters: &MetaBlock, component: usize, place: u64) {
        let view = self.table.sequence();
        let at = |place: u64| match self.query.order {
            Order::Newest => filters.by_age(place),
            _ => (place < filters.blocks()).then_some((place, 0)),
        };
        let mut units = Vec::new();
        for (block, _) in (place..place + FILTER_BATCH_BLOCKS).map_while(at) {
            match filters.match_block(block, &self.wanted, view) {
                FilterResult::MayMatch { largest, filtered } => {
                    self.costs.bloom_hits += u64::from(filtered);
                    let rank = self.rank(component, block, largest);
                    units.push(ReadUnit {
                        rank,
                        kind: UnitKind::Block { component, block, by_filter: filtered },
                    });
                }
                FilterResult::TooNew => self.costs.blocks_skipped_by_sequence += 1,
                FilterResult::OutOfZone => self.costs.blocks_skipped_by_zone_map += 1,
                FilterResult::NotInFilter => self.costs.blocks_skipped_by_bloom += 1,
            }
        }
        let place = place + FILTER_BATCH_BLOCKS;
        if let Some((block, largest)) = at(place) {
            let rank = self.rank(component, block, largest);
            units.push(ReadUnit { rank, kind: UnitKind::Blocks { component, place } });
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
            self.matches.add_record(&self.query, &self.table, &reader)?;
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
        let rest = read_memtable(&self.query, &self.table, memtable, (rank, part), &mut self.matches)?;
        if let Some((rank, part)) = rest {
            self.units.push(ReadUnit { rank, kind: UnitKind::Memtable { component, part } });
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
        if self.query.order != Order::Newest {
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
            match unit.kind {
                UnitKind::Table { .. } | UnitKind::Scan { block: 0, .. } => costs.sstables_not_reached += 1,
                UnitKind::Block { .. } | UnitKind::Scan { .. } => costs.blocks_not_reached += 1,
                UnitKind::Blocks { component, place } => {
                    costs.blocks_not_reached += self.blocks_of(component).saturating_sub(place);
                }
                UnitKind::Memtable { .. } => {}
            }
        }
        explain.add_costs(IndexCosts::of(&costs));
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
        let name = meta_block::name(index.id);
        let payload = table.meta_block(&name)?.ok_or_else(|| damaged("is missing"))?;
        check_format(table.meta().number, &name, &payload, &[meta_block::FORMAT])?;
        let block = MetaBlock::decode(payload).ok_or_else(|| damaged("does not decode"))?;
        if block.blocks() != table.data_blocks()? {
            return Err(damaged("has another number of data blocks"));
        }
        Ok(block)
    })
}

/// The hash that the filters must contain for a match: that of the secondary key of a point query, else of the value of the
/// first attribute if that is fixed.
pub(super) fn query_hash(index: &SstableIndexBase, access: &Access) -> Option<u64> {
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
