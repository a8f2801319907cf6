//! Reads of memtable indexes for a query.
//!
//! Usually the entries in the range of the query are read in key order. For the newest entries of a range, the entries of
//! the memtable are read newest first instead: for a range with a share s of all entries, K matches are found among about
//! K/s entries. A range with few of the newest entries, and few in all, is read in key order: its entries are counted and
//! the newest of them selected. The walk ends after a part of the memtable, and the rest of the range is read in key order;
//! so a query without a limit loses little.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::MemtableComponent;

use super::SstableIndexBase;
use super::matches::{IndexQuery, Matches};
use super::memtable_index::{
    ATTACHMENT, MemtableIndex, NewestRange, SEQUENCE_BYTES, SmallRange, WalkProgress,
};
use crate::attribute;
use crate::query::Order;

/// Entries read from a memtable index per batch.
const MEMTABLE_BATCH: usize = 256;
/// Entries of the first batch: enough for the newest few of one value.
const FIRST_BATCH: usize = 24;
/// Length of the first walk from the newest entry on; each further walk is twice as long.
const WALK_STEPS: usize = 1024;
/// Length of the walk that determines whether the range is small.
const FIRST_WALK_STEPS: usize = 512;
/// This many matches in the first walk show that the range is not small.
const MIN_WALK_MATCHES: usize = 2;
/// A range of fewer entries is read in key order: an entry costs about as much as ten steps of a walk.
const MAX_SMALL_RANGE: usize = 128;
/// Approximate bytes of an entry.
const ENTRY_BYTES: usize = 16;

/// The unread part of a memtable.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemtablePart {
    /// The whole memtable.
    All,
    /// Index entries after this key that are older than `below`.
    Entries { after: Option<Vec<u8>>, below: SequenceNumber },
    /// Index entries older than `below`; `steps` newer ones were read.
    Walk { below: SequenceNumber, steps: usize },
}

/// The unread rest of a memtable, with a rank: an upper bound of the sequence numbers of its matches.
pub(crate) type MemtableRest = Option<(u64, MemtablePart)>;

/// Reads a memtable and its index.
struct MemtableReader<'r> {
    query: &'r IndexQuery<'r>,
    table: &'r TreeView,
    component: &'r MemtableComponent,
    index: Arc<MemtableIndex>,
    out: &'r mut Matches,
}

/// Reads matches of `part` of a memtable into `out`, in the order `Newest` about the newest first. `rank` is an upper bound
/// of the sequence numbers of its matches. Returns the rest.
///
/// # Errors
/// Those of extracting a current record; `Corruption` or `Io` from validating such records.
pub(crate) fn read_memtable(
    query: &IndexQuery<'_>,
    table: &TreeView,
    component: &MemtableComponent,
    (rank, part): (u64, MemtablePart),
    out: &mut Matches,
) -> Result<MemtableRest> {
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let mut reader = MemtableReader { query, table, component, index, out };
    match part {
        MemtablePart::All => reader.enter(rank),
        MemtablePart::Entries { after, below } => reader.read_entries(rank, after, below),
        MemtablePart::Walk { below, steps } => reader.walk(below, steps),
    }
}

/// Calls `visit` with all entries of a memtable index in the range of the query, also those that are too new for its view.
/// The second argument is true if the write has further entries. The index is locked meanwhile.
///
/// # Errors
/// `Corruption` or `Io` from updating the index.
pub(crate) fn visit_memtable_entries(
    query: &IndexQuery<'_>,
    component: &MemtableComponent,
    mut visit: impl FnMut(&MemtableEntry<'_>, bool),
) -> Result<()> {
    let (access, attributes) = (query.access, query.index.spec.attributes().len());
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let range = (access.low.as_slice(), None, access.end.as_slice());
    index.visit(component.memtable(), query.index, query.extractor, range, |key, repeated| {
        if let Some(entry) = split_entry(key, attributes) {
            visit(&entry, repeated);
        }
        true
    })
}

/// Adds the matches among the records whose attributes could not be extracted when they were indexed.
///
/// # Errors
/// `Corruption` or `Io` from validating such records.
pub(crate) fn read_opaque_records(
    query: &IndexQuery<'_>,
    table: &TreeView,
    component: &MemtableComponent,
    out: &mut Matches,
) -> Result<()> {
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let memtable = component.memtable();
    let opaque = index.opaque(memtable, query.index, query.extractor, table.sequence())?;
    for (sequence, primary_key) in opaque {
        out.add_if_current(query, table, &primary_key, sequence)?;
    }
    Ok(())
}

impl MemtableReader<'_> {
    /// Starts reading a memtable.
    fn enter(&mut self, rank: u64) -> Result<MemtableRest> {
        let rest = if self.query.order == Order::Newest && !self.query.access.point {
            self.out.found.reserve(FIRST_BATCH);
            self.out.bytes.reserve(FIRST_BATCH * ENTRY_BYTES);
            self.enter_range()?
        } else {
            self.read_entries(rank, None, SequenceNumber::MAX)?
        };
        read_opaque_records(self.query, self.table, self.component, self.out)?;
        Ok(rest)
    }

    /// Starts reading the newest entries of a range: first the newest entries of the memtable, and then, if these indicate a
    /// small range, the range.
    fn enter_range(&mut self) -> Result<MemtableRest> {
        let below = self.table.sequence().saturating_add(1);
        let before = self.out.found.len();
        let walked = self.read_newest(below, FIRST_WALK_STEPS)?;
        if walked.down_to == 0 {
            return Ok(None);
        }
        if self.out.found.len() - before < MIN_WALK_MATCHES
            && let Some(rest) = self.read_small_range(walked.down_to)?
        {
            return Ok(rest);
        }
        Ok(rest_of_walk(&walked, FIRST_WALK_STEPS))
    }

    /// Reads the newest entries of the range that are older than `below`, if the range is small; else returns `None`.
    fn read_small_range(&mut self, below: SequenceNumber) -> Result<Option<MemtableRest>> {
        let Self { query, component, index, out, .. } = self;
        let (access, attributes) = (query.access, query.index.spec.attributes().len());
        let wanted = SmallRange {
            low: &access.low,
            end: &access.end,
            below,
            max_entries: MAX_SMALL_RANGE,
            newest: FIRST_BATCH,
        };
        let memtable = component.memtable();
        let visit = |key: &[u8], repeated| {
            out.memtable_entries += 1;
            add_entry(out, query, key, attributes, repeated);
        };
        let down_to = index.visit_small_range(memtable, query.index, query.extractor, &wanted, visit)?;
        Ok(down_to.map(|down_to| {
            (down_to > 0).then(|| (down_to - 1, MemtablePart::Entries { after: None, below: down_to }))
        }))
    }

    /// Continues a walk after `steps` entries: reads the newest entries that are older than `below`.
    fn walk(&mut self, below: SequenceNumber, steps: usize) -> Result<MemtableRest> {
        let walk = WALK_STEPS.max(steps);
        let walked = self.read_newest(below, walk)?;
        Ok(rest_of_walk(&walked, steps + walk))
    }

    /// Adds the matches among the `steps` newest entries that are older than `below`.
    fn read_newest(&mut self, below: SequenceNumber, steps: usize) -> Result<WalkProgress> {
        let Self { query, component, index, out, .. } = self;
        let (access, attributes) = (query.access, query.index.spec.attributes().len());
        let wanted = NewestRange { low: &access.low, end: &access.end, below, steps };
        let memtable = component.memtable();
        let visit = |key: &[u8], repeated| add_entry(out, query, key, attributes, repeated);
        let walked = index.visit_newest(memtable, query.index, query.extractor, &wanted, visit)?;
        out.memtable_entries += steps.min(walked.entries) as u64;
        Ok(walked)
    }

    /// Reads the next entries in key order.
    fn read_entries(
        &mut self,
        rank: u64,
        after: Option<Vec<u8>>,
        below: SequenceNumber,
    ) -> Result<MemtableRest> {
        let max_sequence = self.table.sequence().min(below.saturating_sub(1));
        let Self { query, component, index, out, .. } = self;
        let (access, attributes) = (query.access, query.index.spec.attributes().len());
        let of_point = access.point && query.order == Order::Newest;
        let batch = if of_point && after.is_none() { FIRST_BATCH } else { MEMTABLE_BATCH };
        let batch = out.found.len() + batch;
        let mut last = None;
        let range = (access.low.as_slice(), after.as_deref(), access.end.as_slice());
        index.visit(component.memtable(), query.index, query.extractor, range, |key, repeated| {
            out.memtable_entries += 1;
            let Some(entry) = split_entry(key, attributes) else { return true };
            if entry.sequence <= max_sequence {
                out.add_entry(query, entry.primary_key, entry.sequence, entry.secondary_key, repeated);
            }
            if out.found.len() == batch {
                last = Some((key.to_vec(), entry.sequence));
            }
            last.is_none()
        })?;
        Ok(last.map(|(key, sequence)| {
            // Within one secondary key, the newest entries come first.
            let rank = if of_point { sequence.saturating_sub(1) } else { rank };
            (rank, MemtablePart::Entries { after: Some(key), below })
        }))
    }
}

/// The rest of a memtable after a walk of `steps` entries in total.
fn rest_of_walk(walked: &WalkProgress, steps: usize) -> MemtableRest {
    let below = walked.down_to;
    (below > 0).then(|| {
        // Bounds the loss of a query without a limit.
        let continues = steps < walked.entries / 16;
        let part = match continues {
            true => MemtablePart::Walk { below, steps },
            false => MemtablePart::Entries { after: None, below },
        };
        (below - 1, part)
    })
}

fn add_entry(out: &mut Matches, query: &IndexQuery<'_>, key: &[u8], attributes: usize, repeated: bool) {
    if let Some(entry) = split_entry(key, attributes) {
        out.add_entry(query, entry.primary_key, entry.sequence, entry.secondary_key, repeated);
    }
}

/// An entry of a memtable index.
pub(crate) struct MemtableEntry<'k> {
    pub(crate) secondary_key: &'k [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) primary_key: &'k [u8],
}

/// The sequence number of the write of the entry `key` of a memtable index of `index`.
pub(crate) fn entry_sequence(index: &SstableIndexBase, key: &[u8]) -> Option<SequenceNumber> {
    split_entry(key, index.spec.attributes().len()).map(|entry| entry.sequence)
}

fn split_entry(key: &[u8], attributes: usize) -> Option<MemtableEntry<'_>> {
    let mut len = 0;
    for _ in 0..attributes {
        len += attribute::encoded_len(key.get(len..)?)?;
    }
    let (secondary_key, rest) = key.split_at_checked(len)?;
    let (inverted, primary_key) = rest.split_first_chunk::<SEQUENCE_BYTES>()?;
    Some(MemtableEntry { secondary_key, sequence: !u64::from_be_bytes(*inverted), primary_key })
}
