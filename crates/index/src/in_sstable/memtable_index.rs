//! The secondary keys of the records in one memtable, for all indexes of a collection that have no tree of their own, together
//! (LevelDB++ §3 keeps a B-tree for the same purpose).
//!
//! Writers do not maintain it. The first question walks over the memtable once; from then on the memtable
//! notes what is inserted (see [`Memtable::take_journal`]), and each question takes in what is new. So a
//! memtable nobody asks about costs nothing, and a question costs what was written since the last one.
//!
//! ```text
//! entry    secondary key, inverted sequence number (8 bytes), primary key  ->  sequence number; has the write other entries?
//! ```
//!
//! Entries of one secondary key stand newest first. Beside, all entries stand in a list by sequence number: the
//! newest few of a wide range are found by walking back along it, which meets them in order and can stop; the first bytes of
//! their keys stand close together for that, so that a step costs about a nanosecond. All versions of a key have entries; a record that cannot be
//! looked into stands in a list of its own, and is looked at with every question.
//!
//! # Concurrency
//! One lock guards everything, so that what is new is taken in once and by one thread. Every write that a view
//! sees was inserted before the view was made, and so is found by each question of the view, in the walk or in
//! the journal; entries that are too new for a view are passed over. Taking in an entry twice changes
//! nothing.
//!
//! # Panics of an extractor
//! The journal is empty once it is taken, so a panic amid its entries would lose the rest of them. The state is then marked
//! incomplete, and the next reader takes in the whole memtable again. (`share` and `visit_all` read what is there.)

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::attachments::Attachment;
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::memtable::{Memtable, Visibility};
use parking_lot::Mutex;

use super::secondary_keys::SecondaryKeys;
use super::{SstableIndexBase, slots_in};
use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;

/// The number of this attachment of a memtable. Indexes have smaller ones.
pub(crate) const ATTACHMENT: u64 = u64::MAX;

/// Memory that an entry takes besides its bytes, about: a place in the tree, one in the list, the counters.
const ENTRY_BYTES: usize = 120;

/// Places of the list by sequence number from which a sample is taken.
const SAMPLED_PLACES: usize = 16;
/// Entries that are looked at from each of them on.
const SAMPLED_IN_A_ROW: usize = 32;

/// Bytes of an inverted sequence number.
pub(crate) const SEQUENCE_BYTES: usize = 8;

/// The index of one memtable; see the [module](self).
#[derive(Default)]
pub(crate) struct MemtableIndex {
    state: Mutex<State>,
    memory_bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The memtable notes what is inserted.
    follows: bool,
    /// An extractor panicked, or a read failed, amid what was taken in: the members may lack entries.
    incomplete: bool,
    /// The attributes of all members.
    plan: AttributePlan,
    members: Vec<Member>,
    values: AttributeValues,
    key: Vec<u8>,
    /// Bytes of all entries.
    bytes: usize,
}

/// One index.
struct Member {
    id: TreeId,
    attributes: Vec<AttributePath>,
    slots: Vec<ValueSlot>,
    entries: BTreeMap<Arc<[u8]>, Noted>,
    /// The entries by sequence number ascending; the last of them, from `sorted` on, are not sorted yet.
    by_age: Vec<Aged>,
    sorted: usize,
    /// The first bytes of the keys of the sorted entries, as numbers that order like them.
    heads: Vec<u64>,
    /// Inverted sequence numbers and primary keys of records that could not be looked into.
    opaque: BTreeMap<Box<[u8]>, ()>,
}

/// What is known of an entry without a look at its key.
#[derive(Debug, Clone, Copy)]
struct Noted {
    sequence: SequenceNumber,
    repeated: bool,
}

/// An entry in the list by sequence number.
struct Aged {
    sequence: SequenceNumber,
    key: Arc<[u8]>,
    repeated: bool,
}

/// The first 8 bytes as a number that orders like them.
fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; size_of::<u64>()];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// Entries to be visited from the newest on.
pub(crate) struct Newest<'q> {
    /// Secondary keys from this on.
    pub(crate) low: &'q [u8],
    /// Secondary keys below this.
    pub(crate) end: &'q [u8],
    /// Entries older than this.
    pub(crate) below: SequenceNumber,
    /// Entries of the list to look at.
    pub(crate) steps: usize,
}

/// A range that is read as it is if it has few entries.
pub(crate) struct Few<'q> {
    /// Secondary keys from this on.
    pub(crate) low: &'q [u8],
    /// Secondary keys below this.
    pub(crate) end: &'q [u8],
    /// Entries older than this.
    pub(crate) below: SequenceNumber,
    /// So many entries are too many.
    pub(crate) few: usize,
    /// Entries to visit, about.
    pub(crate) newest: usize,
}

/// How far a walk from the newest entry on has come.
pub(crate) struct Walked {
    /// All entries down to this sequence number were visited; 0 for all.
    pub(crate) down_to: SequenceNumber,
    /// Entries of the index in this memtable.
    pub(crate) entries: usize,
}

impl MemtableIndex {
    /// About which part of the entries of `index` lies from `low` on and below `end`, and how many entries there
    /// are; `None` if nobody has asked so far. Takes in nothing new. Counts up to `most` entries; of more it takes a sample.
    pub(crate) fn share(&self, index: &SstableIndexBase, low: &[u8], end: &[u8], most: usize) -> Option<(f64, usize)> {
        let mut state = self.state.lock();
        let member = state.members.iter_mut().find(|member| member.id == index.id)?;
        if low >= end {
            return Some((0.0, member.entries.len()));
        }
        let range = (Bound::Included(low), Bound::Excluded(end));
        let within = member.entries.range::<[u8], _>(range).take(most).count();
        let entries = member.entries.len();
        if within < most {
            return Some((within as f64 / entries.max(1) as f64, entries));
        }
        // Very many: those of a sample tell, some in a row at each of a few places; a short list is looked at whole.
        member.sort_by_age();
        let (low_head, end_head) = (head_of(low), head_of(end));
        let (mut looked_at, mut hits) = (0, 0);
        for place in 0..SAMPLED_PLACES {
            let start = place * member.heads.len() / SAMPLED_PLACES;
            let next = (place + 1) * member.heads.len() / SAMPLED_PLACES;
            let heads = member.heads.get(start..next).unwrap_or_default();
            let aged = member.by_age.get(start..).unwrap_or_default();
            for (&head, aged) in heads.iter().zip(aged).take(SAMPLED_IN_A_ROW) {
                looked_at += 1;
                let is_within = low_head < head && head < end_head;
                let is_unclear = head == low_head || head == end_head;
                hits += usize::from(is_within || is_unclear && low <= &*aged.key && &*aged.key < end);
            }
        }
        let share = hits as f64 / f64::from(looked_at.max(1));
        Some((share.max(most as f64 / entries.max(1) as f64), entries))
    }

    /// Takes in what is new. Where fewer than `few` entries of `index` lie from `low` on and below `end`, calls `visit`
    /// with about the `newest` newest of them that are older than `below`, the oldest first, and answers with the
    /// sequence number down to which all were visited, 0 for all. Else answers `None`, and visits none.
    ///
    /// Costs a step in the tree for each entry of the range; only the keys of those that are visited are looked at.
    pub(crate) fn visit_few(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        wanted: &Few<'_>,
        mut visit: impl FnMut(&[u8], bool),
    ) -> Result<Option<SequenceNumber>> {
        let mut state = self.state.lock();
        let member = state.follow(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let Some(member) = state.members.get(member).filter(|_| wanted.low < wanted.end) else {
            return Ok(Some(0));
        };
        let range = (Bound::Included(wanted.low), Bound::Excluded(wanted.end));
        let mut met: Vec<(Noted, &[u8])> = Vec::with_capacity(wanted.few);
        met.extend(
            member.entries.range::<[u8], _>(range).take(wanted.few).map(|(key, noted)| (*noted, &**key)),
        );
        if met.len() == wanted.few {
            return Ok(None);
        }
        met.retain(|(noted, _)| noted.sequence < wanted.below);
        let mut down_to = 0;
        if met.len() > 2 * wanted.newest {
            let last = met.select_nth_unstable_by_key(wanted.newest, |(noted, _)| !noted.sequence).1;
            down_to = last.0.sequence;
            // Entries of one write stay together.
            met.retain(|(noted, _)| noted.sequence >= down_to);
        }
        met.sort_unstable_by_key(|(noted, _)| noted.sequence);
        met.iter().for_each(|(noted, key)| visit(key, noted.repeated));
        Ok(Some(down_to))
    }

    /// Takes in what is new, and calls `visit` with entries of `index` in `wanted`, the newest first: the entry's
    /// key and whether its write has others.
    pub(crate) fn visit_newest(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        wanted: &Newest<'_>,
        mut visit: impl FnMut(&[u8], bool),
    ) -> Result<Walked> {
        let mut state = self.state.lock();
        let member = state.follow(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let Some(member) = state.members.get_mut(member) else {
            return Ok(Walked { down_to: 0, entries: 0 });
        };
        member.sort_by_age();
        let (low, end) = (head_of(wanted.low), head_of(wanted.end));
        let behind = member.by_age.partition_point(|aged| aged.sequence < wanted.below);
        let older = member.by_age.get(..behind).unwrap_or_default();
        let mut first = older.len().saturating_sub(wanted.steps);
        let sequence = |at: usize| older.get(at).map_or(0, |aged| aged.sequence);
        // Entries of one write stay together.
        while first > 0 && sequence(first) == sequence(first - 1) {
            first -= 1;
        }
        let heads = member.heads.get(first..behind).unwrap_or_default();
        for (&head, aged) in heads.iter().zip(older.iter().skip(first)).rev() {
            let may_be_in = low <= head && head <= end;
            if may_be_in && wanted.low <= &*aged.key && &*aged.key < wanted.end {
                visit(&aged.key, aged.repeated);
            }
        }
        let down_to = if first == 0 { 0 } else { sequence(first) };
        Ok(Walked { down_to, entries: member.by_age.len() })
    }

    /// Puts an entry in that no record has, or takes it out.
    #[cfg(test)]
    pub(crate) fn plant(&self, index: &SstableIndexBase, key: &[u8], there: bool) {
        let mut state = self.state.lock();
        let member = state.members.iter_mut().find(|member| member.id == index.id).unwrap();
        match there {
            true => {
                assert!(member.entries.insert(key.into(), Noted { sequence: 1, repeated: false }).is_none())
            }
            false => assert!(member.entries.remove(key).is_some()),
        }
    }

    /// Calls `visit` with all entries of `index` as far as they were taken in.
    pub(crate) fn visit_all(&self, index: &SstableIndexBase, mut visit: impl FnMut(&[u8])) {
        let state = self.state.lock();
        if let Some(member) = state.members.iter().find(|member| member.id == index.id) {
            member.entries.keys().for_each(|key| visit(key));
        }
    }

    /// Takes in what is new in `memtable`, which this is the index of, and calls `visit` with the entries of
    /// `index` from `low` on, behind `after` and below `end`, until it answers false: the entry's key and
    /// whether its write has others.
    pub(crate) fn visit(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        range: (&[u8], Option<&[u8]>, &[u8]),
        mut visit: impl FnMut(&[u8], bool) -> bool,
    ) -> Result<()> {
        let (low, after, end) = range;
        let mut state = self.state.lock();
        let member = state.follow(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let start = after.map_or(Bound::Included(low), Bound::Excluded);
        let Some(member) = state.members.get(member) else { return Ok(()) };
        if after.unwrap_or(low) < end {
            for (key, noted) in member.entries.range::<[u8], _>((start, Bound::Excluded(end))) {
                if !visit(key, noted.repeated) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sequence numbers and primary keys of the records that could not be looked into when they were taken
    /// in, up to `sequence`.
    ///
    /// # Errors
    /// As [`visit`](Self::visit): another reader may have failed amid what it took in.
    pub(crate) fn opaque(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        sequence: SequenceNumber,
    ) -> Result<Vec<(SequenceNumber, Vec<u8>)>> {
        let mut state = self.state.lock();
        let member = state.follow(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let Some(member) = state.members.get(member) else { return Ok(Vec::new()) };
        let from = (!sequence).to_be_bytes();
        let split = |key: &[u8]| {
            let (inverted, primary_key) = key.split_first_chunk::<SEQUENCE_BYTES>()?;
            Some((!u64::from_be_bytes(*inverted), primary_key.to_vec()))
        };
        let range = (Bound::Included(from.as_slice()), Bound::Unbounded);
        Ok(member.opaque.range::<[u8], _>(range).filter_map(|(key, ())| split(key)).collect())
    }
}

impl State {
    /// Brings everything up to date. Answers the position of the member for `index`.
    fn follow(
        &mut self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
    ) -> Result<usize> {
        if !self.follows {
            memtable.start_journal();
            self.follows = true;
        }
        if self.incomplete {
            self.start_over();
        }
        // The journal is read once. Whatever ends the following lines early, the next reader starts over.
        self.incomplete = true;
        let position = self.take_in_new(memtable, index, extractor)?;
        self.incomplete = false;
        Ok(position)
    }

    /// Forgets all members: each joins again, with all entries of the memtable, when it is read.
    fn start_over(&mut self) {
        self.members.clear();
        self.plan = AttributePlan::default();
        self.values = AttributeValues::default();
        self.bytes = 0;
    }

    /// Takes in what the journal has, for all members; makes `index` a member where it is none.
    fn take_in_new(
        &mut self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
    ) -> Result<usize> {
        let known = self.members.len();
        memtable.take_journal(|key, trailer, value| self.take_in(0, key, trailer, value, extractor));
        if let Some(position) = self.members.iter().position(|member| member.id == index.id) {
            return Ok(position);
        }
        self.join(index);
        let mut cursor = memtable.cursor(Visibility::All);
        cursor.seek_to_first()?;
        while cursor.valid() {
            self.take_in(known, cursor.key(), cursor.trailer(), cursor.value(), extractor);
            cursor.next()?;
        }
        if let Some(member) = self.members.get_mut(known) {
            // Part of the first question's work, not of the first one that walks.
            member.sort_by_age();
        }
        Ok(known)
    }

    /// Makes `index` a member without entries.
    fn join(&mut self, index: &SstableIndexBase) {
        self.members.push(Member {
            id: index.id,
            attributes: index.spec.attributes().to_vec(),
            slots: Vec::new(),
            entries: BTreeMap::new(),
            by_age: Vec::new(),
            sorted: 0,
            heads: Vec::new(),
            opaque: BTreeMap::new(),
        });
        let paths = self.members.iter().flat_map(|member| member.attributes.iter().cloned());
        self.plan = AttributePlan::new(paths);
        for member in &mut self.members {
            member.slots = slots_in(&self.plan, &member.attributes);
        }
    }

    /// Adds the entries of a version for the members from position `from` on.
    fn take_in(
        &mut self,
        from: usize,
        primary_key: &[u8],
        trailer: Trailer,
        record: &[u8],
        extractor: &dyn AttributeExtractor,
    ) {
        if trailer.kind() != Some(EntryKind::Put) {
            return;
        }
        let found = extractor.extract(record, &self.plan, &mut self.values);
        let inverted = (!trailer.sequence()).to_be_bytes();
        for member in self.members.iter_mut().skip(from) {
            let keys = SecondaryKeys { values: &self.values, slots: &member.slots };
            let count = keys.count();
            if found.is_err() || count > MAX_INDEXED_ELEMENTS {
                let key = [&inverted, primary_key].concat().into_boxed_slice();
                self.bytes += key.len() + ENTRY_BYTES;
                member.opaque.insert(key, ());
                continue;
            }
            for ordinal in 0..count {
                keys.write(ordinal, &mut self.key);
                self.key.extend_from_slice(&inverted);
                self.key.extend_from_slice(primary_key);
                let key: Arc<[u8]> = self.key.as_slice().into();
                let sequence = trailer.sequence();
                let noted = Noted { sequence, repeated: count > 1 };
                if member.entries.insert(Arc::clone(&key), noted).is_none() {
                    self.bytes += key.len() + ENTRY_BYTES;
                    member.by_age.push(Aged { sequence, key, repeated: count > 1 });
                }
            }
        }
    }
}

impl Member {
    /// Sorts what was added to the list. Entries come about in order, so little has to be moved.
    fn sort_by_age(&mut self) {
        let (old, new) = self.by_age.split_at_mut(self.sorted);
        new.sort_by_key(|aged| aged.sequence);
        let Some(first) = new.first().map(|aged| aged.sequence) else { return };
        let from = old.partition_point(|aged| aged.sequence <= first);
        if from < old.len() {
            self.by_age[from..].sort_by_key(|aged| aged.sequence);
        }
        self.heads.truncate(from);
        self.heads.extend(self.by_age.iter().skip(from).map(|aged| head_of(&aged.key)));
        self.sorted = self.by_age.len();
    }
}

impl Attachment for MemtableIndex {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.memory_bytes.load(Ordering::Relaxed)
    }
}
