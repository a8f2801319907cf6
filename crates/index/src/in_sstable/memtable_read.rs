//! Reading the entries of a memtable's index for a question.
//!
//! Of a memtable the index hands on what it has in the range. Where the newest of a range are wanted, its entries are
//! looked at from the newest on instead: of a range that holds a share s of all, K matches are met among about
//! K/s entries. A range that has few of the first ones, and few in all, is read as it is: its entries are counted, and
//! the newest of them taken. The walk ends after a part of the memtable; the rest is taken from the range: a question
//! without a limit loses little by the attempt.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::TreeView;
use bolide_lsm::store::MemtableComponent;

use super::SstableIndexBase;
use super::matches::{Matches, Question};
use super::memtable_index::{ATTACHMENT, Few, MemtableIndex, Newest, SEQUENCE_BYTES, Walked};
use crate::attribute;
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

/// What is still to be read of a memtable.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MemtablePart {
    /// All of it.
    All,
    /// The entries of its index behind this key, as far as they are older than `below`.
    Entries { after: Option<Vec<u8>>, below: SequenceNumber },
    /// The entries of its index older than `below`, after so many newer ones.
    Walk { below: SequenceNumber, steps: usize },
}

/// A part of a memtable that is to be read later, behind matches that are not older than its rank.
pub(crate) type Rest = Option<(u64, MemtablePart)>;

/// A memtable and its index.
struct Reader<'r> {
    question: &'r Question<'r>,
    table: &'r TreeView,
    component: &'r MemtableComponent,
    index: Arc<MemtableIndex>,
    out: &'r mut Matches,
}

/// Reads matches of `part` of a memtable into `out`: about the newest where the newest come first. `rank` is that of the part, at
/// least as large as the sequence numbers of its matches. Answers what is left of it.
///
/// # Errors
/// Where a current record cannot be looked into; `Corruption` or `Io` from validating such records.
pub(crate) fn read_memtable(
    question: &Question<'_>,
    table: &TreeView,
    component: &MemtableComponent,
    (rank, part): (u64, MemtablePart),
    out: &mut Matches,
) -> Result<Rest> {
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let mut reader = Reader { question, table, component, index, out };
    match part {
        MemtablePart::All => reader.enter(rank),
        MemtablePart::Entries { after, below } => reader.read_entries(rank, after, below),
        MemtablePart::Walk { below, steps } => reader.walk(below, steps),
    }
}

/// Calls `visit` with all entries in the range of the question that the index of a memtable has, also those that are too
/// new for its view; the second argument tells whether the write has others. The index is locked meanwhile.
///
/// # Errors
/// `Corruption` or `Io` from taking in what is new.
pub(crate) fn visit_entries(
    question: &Question<'_>,
    component: &MemtableComponent,
    mut visit: impl FnMut(&Entry<'_>, bool),
) -> Result<()> {
    let (access, attributes) = (question.access, question.index.spec.attributes().len());
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let range = (access.low.as_slice(), None, access.end.as_slice());
    index.visit(component.memtable(), question.index, question.extractor, range, |key, repeated| {
        if let Some(entry) = split_entry(key, attributes) {
            visit(&entry, repeated);
        }
        true
    })
}

/// Notes the matches among the records of a memtable that could not be looked into when they were taken in.
///
/// # Errors
/// `Corruption` or `Io` from validating such records.
pub(crate) fn look_up_opaque(
    question: &Question<'_>,
    table: &TreeView,
    component: &MemtableComponent,
    out: &mut Matches,
) -> Result<()> {
    let index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let memtable = component.memtable();
    let opaque = index.opaque(memtable, question.index, question.extractor, table.sequence())?;
    for (sequence, primary_key) in opaque {
        out.look_up(question, table, &primary_key, sequence)?;
    }
    Ok(())
}

impl Reader<'_> {
    /// Begins with a memtable.
    fn enter(&mut self, rank: u64) -> Result<Rest> {
        let rest = if self.question.order == Order::Newest && !self.question.access.point {
            self.out.found.reserve(FIRST_BATCH);
            self.out.bytes.reserve(FIRST_BATCH * ENTRY_ROOM);
            self.enter_range()?
        } else {
            self.read_entries(rank, None, SequenceNumber::MAX)?
        };
        look_up_opaque(self.question, self.table, self.component, self.out)?;
        Ok(rest)
    }

    /// Begins with a memtable of which the newest entries of a range are wanted: looks at its newest entries, and where
    /// these tell of a small range, at the range.
    fn enter_range(&mut self) -> Result<Rest> {
        let below = self.table.sequence().saturating_add(1);
        let before = self.out.found.len();
        let walked = self.look_at_newest(below, FIRST_WALK)?;
        if walked.down_to == 0 {
            return Ok(None);
        }
        if self.out.found.len() - before < PROMISING
            && let Some(rest) = self.read_few(walked.down_to)?
        {
            return Ok(rest);
        }
        Ok(go_on_walking(&walked, FIRST_WALK))
    }

    /// Takes the newest entries in the range that are older than `below`, if the range has few. `None` if it has many.
    fn read_few(&mut self, below: SequenceNumber) -> Result<Option<Rest>> {
        let Self { question, component, index, out, .. } = self;
        let (access, attributes) = (question.access, question.index.spec.attributes().len());
        let wanted = Few { low: &access.low, end: &access.end, below, few: FEW, newest: FIRST_BATCH };
        let memtable = component.memtable();
        let visit = |key: &[u8], repeated| {
            out.memtable_entries += 1;
            note_entry(out, question, key, attributes, repeated);
        };
        let down_to = index.visit_few(memtable, question.index, question.extractor, &wanted, visit)?;
        Ok(down_to.map(|down_to| {
            (down_to > 0).then(|| (down_to - 1, MemtablePart::Entries { after: None, below: down_to }))
        }))
    }

    /// Takes the newest entries that are older than `below`, after `steps` others.
    fn walk(&mut self, below: SequenceNumber, steps: usize) -> Result<Rest> {
        let walk = WALK.max(steps);
        let walked = self.look_at_newest(below, walk)?;
        Ok(go_on_walking(&walked, steps + walk))
    }

    /// Takes those in the range of the `steps` newest entries that are older than `below`.
    fn look_at_newest(&mut self, below: SequenceNumber, steps: usize) -> Result<Walked> {
        let Self { question, component, index, out, .. } = self;
        let (access, attributes) = (question.access, question.index.spec.attributes().len());
        let wanted = Newest { low: &access.low, end: &access.end, below, steps };
        let memtable = component.memtable();
        let visit = |key: &[u8], repeated| note_entry(out, question, key, attributes, repeated);
        let walked = index.visit_newest(memtable, question.index, question.extractor, &wanted, visit)?;
        out.memtable_entries += steps.min(walked.entries) as u64;
        Ok(walked)
    }

    /// Takes the next entries in their order.
    fn read_entries(&mut self, rank: u64, after: Option<Vec<u8>>, below: SequenceNumber) -> Result<Rest> {
        let most = self.table.sequence().min(below.saturating_sub(1));
        let Self { question, component, index, out, .. } = self;
        let (access, attributes) = (question.access, question.index.spec.attributes().len());
        let of_point = access.point && question.order == Order::Newest;
        let batch = if of_point && after.is_none() { FIRST_BATCH } else { MEMTABLE_BATCH };
        let batch = out.found.len() + batch;
        let mut last = None;
        let range = (access.low.as_slice(), after.as_deref(), access.end.as_slice());
        index.visit(component.memtable(), question.index, question.extractor, range, |key, repeated| {
            out.memtable_entries += 1;
            let Some(entry) = split_entry(key, attributes) else { return true };
            if entry.sequence <= most {
                out.note_entry(question, entry.primary_key, entry.sequence, entry.secondary_key, repeated);
            }
            if out.found.len() == batch {
                last = Some((key.to_vec(), entry.sequence));
            }
            last.is_none()
        })?;
        Ok(last.map(|(key, sequence)| {
            // Within one secondary key the newest stand first.
            let rank = if of_point { sequence.saturating_sub(1) } else { rank };
            (rank, MemtablePart::Entries { after: Some(key), below })
        }))
    }
}

/// What `walked` left of a memtable, after `steps` entries.
fn go_on_walking(walked: &Walked, steps: usize) -> Rest {
    let below = walked.down_to;
    (below > 0).then(|| {
        // A question without a limit is to lose little.
        let goes_on = steps < walked.entries / 16;
        let part = match goes_on {
            true => MemtablePart::Walk { below, steps },
            false => MemtablePart::Entries { after: None, below },
        };
        (below - 1, part)
    })
}

fn note_entry(out: &mut Matches, question: &Question<'_>, key: &[u8], attributes: usize, repeated: bool) {
    if let Some(entry) = split_entry(key, attributes) {
        out.note_entry(question, entry.primary_key, entry.sequence, entry.secondary_key, repeated);
    }
}

/// An entry of a memtable index.
pub(crate) struct Entry<'k> {
    pub(crate) secondary_key: &'k [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) primary_key: &'k [u8],
}

/// The sequence number of the write that the entry `key` of a memtable index of `index` stems from.
pub(crate) fn entry_sequence(index: &SstableIndexBase, key: &[u8]) -> Option<SequenceNumber> {
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
