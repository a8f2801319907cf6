//! Reading the entries of a memtable's index for the cursor of a question; see the [module above](super) for the
//! algorithm.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::store::{Component, MemtableComponent};

use super::{EmbeddedCursor, Found, Unit, What, no_component, order_value};
use crate::access::Access;
use crate::attribute;
use crate::embedded::EmbeddedIndex;
use crate::embedded::memtable_index::{ATTACHMENT, Few, MemtableIndex, Newest, SEQUENCE_BYTES, Walked};
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
impl EmbeddedCursor<'_> {
    fn memtable(&self, component: usize) -> Result<(MemtableComponent, Arc<MemtableIndex>)> {
        let Some(Component::Memtable(memtable)) = self.components.get(component) else {
            return Err(no_component());
        };
        let index = memtable.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
        Ok((memtable.clone(), index))
    }

    /// Begins with a memtable.
    pub(super) fn enter_memtable(&mut self, rank: u64, component: usize) -> Result<()> {
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
    pub(super) fn walk(&mut self, component: usize, below: SequenceNumber, steps: usize) -> Result<()> {
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
    pub(super) fn read_entries(
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
pub(in crate::embedded) fn entry_sequence(index: &EmbeddedIndex, key: &[u8]) -> Option<SequenceNumber> {
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
