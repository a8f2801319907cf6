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
//! Of a memtable the index hands on what it has in the range. Where the newest of a range are wanted, its entries are
//! looked at from the newest on instead: of a range that holds a share s of all, K matches are met among about
//! K/s entries. A range that has few of the first ones, and few in all, is read as it is: its entries are counted, and
//! the newest of them taken. The walk ends after a part of the memtable; the rest is taken from the range: a question
//! without a limit loses little by the attempt.
//!
//! Every match is read from its record, so filters cost reads and never answers. A match may still be
//! obsolete: the lookup driver validates. For that it is told where the record was read, and given the record.

use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::{BlockReader, Component, MemtableComponent, TableComponent};

use super::EmbeddedIndex;
use super::costs::EmbeddedCosts;
use super::memtable_index::{ATTACHMENT, Few, MemtableIndex, Newest, SEQUENCE_BYTES, Walked};
use super::meta_block::{self, Answer, MetaBlock, Wanted};
use super::secondary_keys::SecondaryKeys;
use super::{filter, summary};
use crate::access::Access;
use crate::attribute;
use crate::attribute_plan::AttributeValues;
use crate::candidate::{Candidate, CandidateCursor, Origin};
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::Order;

/// Entries taken from a memtable index at a time.
const MEMTABLE_BATCH: usize = 256;
/// The same, the first time: enough for the newest few of one value.
const FIRST_BATCH: usize = 24;
/// Entries of a memtable to look at from the newest on, at first; each further walk is twice as long.
const WALK: usize = 1024;
/// The same, to find out whether the range is small.
const FIRST_WALK: usize = 512;
/// So many of these in the range tell that it is not.
const PROMISING: usize = 2;
/// A range of fewer entries is read as it is: each of them costs about as much as ten steps of a walk.
const FEW: usize = 128;
/// Bytes that an entry takes, about.
const ENTRY_ROOM: usize = 16;
/// Blocks judged at a time.
const JUDGED_AT_ONCE: u64 = 32;
/// Longest record that is handed on with its match; longer ones are fetched again if they are wanted.
const MAX_IN_HAND_BYTES: usize = 4 << 10;

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
    /// A memtable of which nothing was read yet.
    Memtable { component: usize },
    /// The entries of a memtable's index behind this key, as far as they are older than `below`.
    Entries { component: usize, after: Option<Vec<u8>>, below: SequenceNumber },
    /// The entries of a memtable's index older than `below`, after so many newer ones.
    Walk { component: usize, below: SequenceNumber, steps: usize },
    /// An sstable with the index, of which no block was judged yet.
    Table { component: usize },
    /// The blocks of an sstable from this place of their order on, not judged yet.
    Blocks { component: usize, place: u64 },
    /// A block of an sstable.
    Block { component: usize, block: u64, by_filter: bool },
    /// An sstable without the index, from this block on.
    Scan { component: usize, block: u64 },
}

/// A match.
#[derive(Debug, Clone, Default)]
struct Found {
    sequence: SequenceNumber,
    /// Places in the cursor's bytes.
    primary_key: Range<usize>,
    order_value: Range<usize>,
    repeated: bool,
    /// Where the record was read: how many sorted runs may have a newer version.
    newer_runs: Option<u32>,
    record: Option<Range<usize>>,
}

/// The candidates of one question; see the [module](self).
pub(super) struct EmbeddedCursor<'v> {
    index: &'v EmbeddedIndex,
    extractor: &'v dyn AttributeExtractor,
    access: &'v Access,
    wanted: Wanted<'v>,
    order: Order,
    table: TreeView,
    components: Vec<Component>,
    units: BinaryHeap<Unit>,
    /// Matches that were not handed on yet, the newest last.
    found: Vec<Found>,
    current: Found,
    bytes: Vec<u8>,
    /// Blocks of the sstable that was read last.
    reader: Option<(usize, BlockReader)>,
    values: AttributeValues,
    key: Vec<u8>,
    costs: EmbeddedCosts,
}

impl<'v> EmbeddedCursor<'v> {
    pub(super) fn new(
        index: &'v EmbeddedIndex,
        extractor: &'v dyn AttributeExtractor,
        access: &'v Access,
        order: Order,
        table: TreeView,
    ) -> Self {
        let mut cursor = Self {
            index,
            extractor,
            access,
            wanted: Wanted { low: &access.low, end: &access.end, hash: wanted_hash(index, access) },
            order,
            components: table.components(),
            table,
            units: BinaryHeap::new(),
            found: Vec::new(),
            current: Found::default(),
            bytes: Vec::new(),
            reader: None,
            values: AttributeValues::new(),
            key: Vec::new(),
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
                Component::Memtable(_) => What::Memtable { component: position },
                Component::Table(table) => {
                    self.costs.sstables += 1;
                    if is_too_new {
                        self.costs.sstables_skipped_by_sequence += 1;
                        continue;
                    }
                    match summary::find(&table.meta().attachment, self.index.id) {
                        None => What::Scan { component: position, block: 0 },
                        Some(summary) if summary.may_match(&self.wanted) => {
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
        match self.order {
            Order::Newest => largest.min(self.table.sequence()),
            // Component by component, each in the order of its blocks.
            _ => !((component as u64) << 40 | block.min((1 << 40) - 1)),
        }
    }

    /// Reads the matches of the unit that is on top.
    fn expand(&mut self, unit: Unit) -> Result<()> {
        self.bytes.clear();
        match unit.what {
            What::Memtable { component } => self.enter_memtable(unit.rank, component)?,
            What::Entries { component, after, below } => {
                self.read_entries(unit.rank, component, after, below)?;
            }
            What::Walk { component, below, steps } => self.walk(component, below, steps)?,
            What::Table { component } => {
                let table = self.table_component(component)?;
                self.judge_table(&table, component)?;
            }
            What::Blocks { component, place } => {
                let table = self.table_component(component)?;
                let filters = load(&table, self.index)?;
                self.judge_blocks(&filters, component, place);
            }
            What::Block { component, block, by_filter } => {
                let before = self.found.len();
                self.read_block(component, block)?;
                self.costs.bloom_false_positives += u64::from(by_filter && self.found.len() == before);
            }
            What::Scan { component, block } => {
                self.costs.sstables_without_index += u64::from(block == 0);
                let blocks = self.table_component(component)?.data_blocks()?;
                self.read_block(component, block)?;
                if block + 1 < blocks {
                    let rank = if self.order == Order::Newest { unit.rank } else { unit.rank - 1 };
                    self.units.push(Unit { rank, what: What::Scan { component, block: block + 1 } });
                }
            }
        }
        self.found.sort_unstable_by_key(|found| found.sequence);
        Ok(())
    }

    /// How many data blocks the meta block of an sstable describes, if it is in memory.
    fn blocks_of(&self, component: usize) -> u64 {
        let Some(Component::Table(table)) = self.components.get(component) else { return 0 };
        let filters = table.attachments().get::<MetaBlock>(self.index.attachment());
        filters.map_or(0, |filters| filters.blocks())
    }

    fn table_component(&self, component: usize) -> Result<TableComponent> {
        match self.components.get(component) {
            Some(Component::Table(table)) => Ok(table.clone()),
            _ => Err(no_component()),
        }
    }

    fn memtable(&self, component: usize) -> Result<(MemtableComponent, Arc<MemtableIndex>)> {
        let Some(Component::Memtable(memtable)) = self.components.get(component) else {
            return Err(no_component());
        };
        let index = memtable.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
        Ok((memtable.clone(), index))
    }

    /// Begins with a memtable.
    fn enter_memtable(&mut self, rank: u64, component: usize) -> Result<()> {
        if self.order == Order::Newest && !self.access.point {
            self.found.reserve(FIRST_BATCH);
            self.bytes.reserve(FIRST_BATCH * ENTRY_ROOM);
            self.enter_range(component)?;
        } else {
            self.read_entries(rank, component, None, SequenceNumber::MAX)?;
        }
        // Records that could not be looked into before.
        let (_, index) = self.memtable(component)?;
        for (sequence, primary_key) in index.opaque(self.index, self.table.sequence()) {
            self.look_up_opaque(&primary_key, sequence)?;
        }
        Ok(())
    }

    /// Begins with a memtable of which the newest entries of a range are wanted: looks at its newest entries, and where
    /// these tell of a small range, at the range.
    fn enter_range(&mut self, component: usize) -> Result<()> {
        let below = self.table.sequence().saturating_add(1);
        let walked = self.look_at_newest(component, below, FIRST_WALK)?;
        if walked.down_to == 0 || self.found.len() < PROMISING && self.read_few(component, walked.down_to)? {
            return Ok(());
        }
        self.go_on_walking(component, &walked, FIRST_WALK);
        Ok(())
    }

    /// Takes the newest entries of a memtable's index in the range that are older than `below`, if the range has few.
    /// False if it has many.
    fn read_few(&mut self, component: usize, below: SequenceNumber) -> Result<bool> {
        let (memtable, index) = self.memtable(component)?;
        let attributes = self.index.spec.attributes().len();
        let (access, order) = (self.access, self.order);
        let wanted = Few { low: &access.low, end: &access.end, below, few: FEW, newest: FIRST_BATCH };
        let (found, bytes, looked) = (&mut self.found, &mut self.bytes, &mut self.costs.memtable_entries);
        let memtable = memtable.memtable();
        let down_to = index.visit_few(memtable, self.index, self.extractor, &wanted, |key, repeated| {
            *looked += 1;
            if let Some(entry) = split_entry(key, attributes) {
                found.push(note_entry(&entry, access, order, repeated, bytes));
            }
        })?;
        if let Some(below) = down_to.filter(|&down_to| down_to > 0) {
            let what = What::Entries { component, after: None, below };
            self.units.push(Unit { rank: below - 1, what });
        }
        Ok(down_to.is_some())
    }

    /// Takes the newest entries of a memtable's index that are older than `below`, after `steps` others.
    fn walk(&mut self, component: usize, below: SequenceNumber, steps: usize) -> Result<()> {
        let walk = WALK.max(steps);
        let walked = self.look_at_newest(component, below, walk)?;
        self.go_on_walking(component, &walked, steps + walk);
        Ok(())
    }

    /// Takes those in the range of the `steps` newest entries of a memtable's index that are older than `below`.
    fn look_at_newest(&mut self, component: usize, below: SequenceNumber, steps: usize) -> Result<Walked> {
        let (memtable, index) = self.memtable(component)?;
        let attributes = self.index.spec.attributes().len();
        let (access, order) = (self.access, self.order);
        let wanted = Newest { low: &access.low, end: &access.end, below, steps };
        let (found, bytes) = (&mut self.found, &mut self.bytes);
        let memtable = memtable.memtable();
        let walked = index.visit_newest(memtable, self.index, self.extractor, &wanted, |key, repeated| {
            if let Some(entry) = split_entry(key, attributes) {
                found.push(note_entry(&entry, access, order, repeated, bytes));
            }
        })?;
        self.costs.memtable_entries += steps.min(walked.entries) as u64;
        Ok(walked)
    }

    /// Notes that what `walked` left of a memtable is still to be read, after `steps` entries.
    fn go_on_walking(&mut self, component: usize, walked: &Walked, steps: usize) {
        let below = walked.down_to;
        if below > 0 {
            // A question without a limit is to lose little.
            let goes_on = steps < walked.entries / 16;
            let what = match goes_on {
                true => What::Walk { component, below, steps },
                false => What::Entries { component, after: None, below },
            };
            self.units.push(Unit { rank: below - 1, what });
        }
    }

    /// Takes the next entries of a memtable's index in their order.
    fn read_entries(
        &mut self,
        rank: u64,
        component: usize,
        after: Option<Vec<u8>>,
        below: SequenceNumber,
    ) -> Result<()> {
        let (memtable, index) = self.memtable(component)?;
        let attributes = self.index.spec.attributes().len();
        let most = self.table.sequence().min(below.saturating_sub(1));
        let (access, order) = (self.access, self.order);
        let of_point = access.point && order == Order::Newest;
        let batch = if of_point && after.is_none() { FIRST_BATCH } else { MEMTABLE_BATCH };
        let (found, bytes, looked) = (&mut self.found, &mut self.bytes, &mut self.costs.memtable_entries);
        let mut last = None;
        let range = (access.low.as_slice(), after.as_deref(), access.end.as_slice());
        index.visit(memtable.memtable(), self.index, self.extractor, range, |key, repeated| {
            *looked += 1;
            let Some(entry) = split_entry(key, attributes) else { return true };
            if entry.sequence <= most {
                found.push(note_entry(&entry, access, order, repeated, bytes));
            }
            if found.len() == batch {
                last = Some((key.to_vec(), entry.sequence));
            }
            last.is_none()
        })?;
        if let Some((key, sequence)) = last {
            // Within one secondary key the newest stand first.
            let rank = if of_point { sequence.saturating_sub(1) } else { rank };
            self.units.push(Unit { rank, what: What::Entries { component, after: Some(key), below } });
        }
        Ok(())
    }

    /// Looks at the record written at `sequence`, which could not be looked into before, if it is current.
    fn look_up_opaque(&mut self, primary_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let current = self.table.get(primary_key)?;
        if let Some((_, record)) = current.filter(|(current, _)| *current == sequence) {
            self.extractor.extract(&record, &self.index.plan, &mut self.values)?;
            self.match_values(primary_key, sequence, None);
        }
        Ok(())
    }

    /// Has the blocks of an sstable judged unless its meta block rules all of them out.
    fn judge_table(&mut self, table: &TableComponent, component: usize) -> Result<()> {
        let (view, costs) = (self.table.sequence(), &mut self.costs);
        let filters = load(table, self.index)?;
        match filters.ask_whole(&self.wanted, view) {
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
        let at = |place: u64| match self.order {
            Order::Newest => filters.by_age(place),
            _ => (place < filters.blocks()).then_some((place, 0)),
        };
        let mut units = Vec::new();
        for (block, _) in (place..place + JUDGED_AT_ONCE).map_while(at) {
            match filters.ask_block(block, &self.wanted, view) {
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
            match self.extractor.extract(reader.value(), &self.index.plan, &mut self.values) {
                Ok(()) => self.match_values(reader.key(), reader.sequence(), Some(&reader)),
                // A scan of the table would stumble over it only if it is current.
                Err(error) if self.table.newest_sequence(reader.key())? == Some(reader.sequence()) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            reader.advance()?;
        }
        self.reader = Some((component, reader));
        Ok(())
    }

    /// Notes a record if the values that were extracted from it match.
    fn match_values(&mut self, primary_key: &[u8], sequence: SequenceNumber, place: Option<&BlockReader>) {
        let keys = SecondaryKeys { values: &self.values, slots: &self.index.slots };
        let descending = self.order == Order::ValueDescending;
        if !keys.find(self.wanted.low, self.wanted.end, descending, &mut self.key) {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(primary_key);
        let primary_key = start..self.bytes.len();
        self.bytes.extend_from_slice(order_value(self.access, self.order, &self.key));
        let order_value = primary_key.end..self.bytes.len();
        // Where answers go on behind a token, the range ends at the token's value: the record may have been
        // answered by another of its values before.
        let repeated = !self.access.point && keys.count() > 1;
        let record = place.map(BlockReader::value).filter(|record| record.len() <= MAX_IN_HAND_BYTES);
        self.bytes.extend_from_slice(record.unwrap_or_default());
        let record = record.map(|_| order_value.end..self.bytes.len());
        let newer_runs = place.map(BlockReader::newer_runs);
        self.found.push(Found { sequence, primary_key, order_value, repeated, newer_runs, record });
    }

    fn slice(&self, place: &Range<usize>) -> &[u8] {
        self.bytes.get(place.clone()).unwrap_or_default()
    }
}

impl CandidateCursor for EmbeddedCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            if let Some(found) = self.found.pop() {
                self.current = found;
                break;
            }
            match self.units.pop() {
                Some(unit) => self.expand(unit)?,
                None => return Ok(None),
            }
        }
        Ok(Some(Candidate {
            primary_key: self.slice(&self.current.primary_key),
            sequence: self.current.sequence,
            order_value: self.slice(&self.current.order_value),
            repeated: self.current.repeated,
            included: &[],
            origin: Origin {
                validated: false,
                newer_runs: self.current.newer_runs,
                record: self.current.record.as_ref().map(|record| self.slice(record)),
                checked: true,
            },
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.order != Order::Newest {
            return SequenceNumber::MAX;
        }
        let unread = self.units.peek().map_or(0, |unit| unit.rank);
        self.found.last().map_or(0, |found| found.sequence).max(unread)
    }

    fn order(&self) -> Option<Order> {
        None
    }

    fn components_id(&self) -> Option<usize> {
        Some(self.table.components_id())
    }

    fn report(&self, explain: &mut Explain) {
        let mut costs = self.costs;
        for unit in &self.units {
            match unit.what {
                What::Table { .. } | What::Scan { block: 0, .. } => costs.sstables_not_reached += 1,
                What::Block { .. } | What::Scan { .. } => costs.blocks_not_reached += 1,
                What::Blocks { component, place } => {
                    costs.blocks_not_reached += self.blocks_of(component).saturating_sub(place);
                }
                What::Memtable { .. } | What::Entries { .. } | What::Walk { .. } => {}
            }
        }
        explain.embedded.add(&costs);
    }
}

/// The decoded meta block of `index` in an sstable that has one.
pub(super) fn load(table: &TableComponent, index: &EmbeddedIndex) -> Result<Arc<MetaBlock>> {
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
pub(super) fn wanted_hash(index: &EmbeddedIndex, access: &Access) -> Option<u64> {
    if access.point {
        return Some(filter::hash(&access.low));
    }
    if access.fixed == 0 || index.spec.attributes().len() < 2 {
        return None;
    }
    let first = attribute::encoded_len(&access.low).and_then(|len| access.low.get(..len))?;
    Some(filter::hash(first))
}

/// Copies an entry of a memtable index.
fn note_entry(
    entry: &Entry<'_>,
    access: &Access,
    order: Order,
    repeated: bool,
    bytes: &mut Vec<u8>,
) -> Found {
    let start = bytes.len();
    bytes.extend_from_slice(entry.primary_key);
    let primary_key = start..bytes.len();
    bytes.extend_from_slice(order_value(access, order, entry.secondary_key));
    let order_value = primary_key.end..bytes.len();
    let repeated = repeated && !access.point;
    Found { sequence: entry.sequence, primary_key, order_value, repeated, newer_runs: None, record: None }
}

/// An entry of a memtable index.
struct Entry<'k> {
    secondary_key: &'k [u8],
    sequence: SequenceNumber,
    primary_key: &'k [u8],
}

/// The sequence number of the write that the entry `key` of a memtable index of `index` stems from.
pub(super) fn entry_sequence(index: &EmbeddedIndex, key: &[u8]) -> Option<SequenceNumber> {
    split_entry(key, index.spec.attributes().len()).map(|entry| entry.sequence)
}

fn split_entry(key: &[u8], attributes: usize) -> Option<Entry<'_>> {
    let mut len = 0;
    for _ in 0..attributes {
        len += attribute::encoded_len(key.get(len..)?)?;
    }
    let (secondary_key, rest) = key.split_at_checked(len)?;
    let (inverted, primary_key) = rest.split_first_chunk::<SEQUENCE_BYTES>()?;
    Some(Entry { secondary_key, sequence: !u64::from_be_bytes(*inverted), primary_key })
}

/// The encoded value in `secondary_key` by which a value order goes; nothing in other orders.
fn order_value<'k>(access: &Access, order: Order, secondary_key: &'k [u8]) -> &'k [u8] {
    let (Order::Value | Order::ValueDescending, Some(position)) = (order, access.order_attribute) else {
        return &[];
    };
    let mut rest = secondary_key;
    for _ in 0..position {
        rest = attribute::encoded_len(rest).and_then(|len| rest.get(len..)).unwrap_or_default();
    }
    attribute::encoded_len(rest).and_then(|len| rest.get(..len)).unwrap_or_default()
}

#[cold]
fn no_component() -> Error {
    Error::internal("a cursor of an embedded index lost a component")
}
