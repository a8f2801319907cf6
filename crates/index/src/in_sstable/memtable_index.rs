//! Memtable index: the secondary keys of the records in one memtable, for all indexes of a collection without a tree of
//! their own (LevelDB++ §3 has a B-tree for the same purpose).
//!
//! Writers do not maintain it. The first query reads the whole memtable; from then on the memtable records its inserts in a
//! journal (see [`Memtable::take_journal`]), and each query applies the journal. So a memtable without queries costs
//! nothing, and a query costs what was written since the last one.
//!
//! ```text
//! entry    secondary key, inverted sequence number (8 bytes), primary key  ->  sequence number; has the write other entries?
//! ```
//!
//! Entries of one secondary key are sorted newest first. In addition, a list holds all entries by sequence number. The
//! newest few of a wide range are found by a walk back along the list, which meets them in order and can stop. The first
//! bytes of their keys are stored contiguously for that, so a step costs about a nanosecond. All versions of a key have
//! entries. Records whose attributes cannot be extracted are in a separate list, which every query reads.
//!
//! # Concurrency
//! One lock guards everything, so one thread applies the journal, once. A write that a view sees was inserted before the
//! view was created: each query of the view finds it, in the memtable or in the journal. Entries that are too new for a
//! view are skipped. Applying an entry twice changes nothing.
//!
//! # Panics of an extractor
//! Taking the journal empties it, so a panic while it is applied would lose its rest. The state is then marked as
//! incomplete, and the next reader indexes the whole memtable again. (`share` and `visit_all` read the present entries.)

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

/// The number of this attachment of a memtable. Indexes have smaller numbers.
pub(crate) const ATTACHMENT: u64 = u64::MAX;

/// Approximate memory of an entry besides its bytes: in the tree, in the list, and counters.
const ENTRY_BYTES: usize = 120;

/// Number of positions in the list by sequence number at which a sample is taken.
const SAMPLE_POSITIONS: usize = 16;
/// Consecutive entries of the sample per position.
const SAMPLE_RUN_ENTRIES: usize = 32;

/// Bytes of an inverted sequence number.
pub(crate) const SEQUENCE_BYTES: usize = 8;

/// The index of one memtable; see the [module](self).
#[derive(Default)]
pub(crate) struct MemtableIndex {
    state: Mutex<MemtableIndexState>,
    memory_bytes: AtomicUsize,
}

#[derive(Default)]
struct MemtableIndexState {
    /// The memtable records its inserts.
    journal_started: bool,
    /// An extractor panicked, or a read failed, during an update: entries may be missing.
    incomplete: bool,
    /// The attributes of all members.
    plan: AttributePlan,
    members: Vec<MemberIndex>,
    values: AttributeValues,
    key: Vec<u8>,
    /// Bytes of all entries.
    bytes: usize,
}

/// One index.
struct MemberIndex {
    id: TreeId,
    attributes: Vec<AttributePath>,
    slots: Vec<ValueSlot>,
    entries: BTreeMap<Arc<[u8]>, EntryInfo>,
    /// The entries by sequence number ascending; those from `sorted` on are not sorted yet.
    by_age: Vec<EntryByAge>,
    sorted: usize,
    /// The first bytes of the keys of the sorted entries, as numbers with the same order.
    heads: Vec<u64>,
    /// Inverted sequence numbers and primary keys of records whose attributes could not be extracted.
    opaque: BTreeMap<Box<[u8]>, ()>,
}

/// The parts of an entry that are stored besides its key.
#[derive(Debug, Clone, Copy)]
struct EntryInfo {
    sequence: SequenceNumber,
    repeated: bool,
}

/// An entry in the list by sequence number.
struct EntryByAge {
    sequence: SequenceNumber,
    key: Arc<[u8]>,
    repeated: bool,
}

/// The first 8 bytes as a number with the same order.
fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; size_of::<u64>()];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

/// A walk over entries from the newest on.
pub(crate) struct NewestRange<'q> {
    /// Lower bound of the secondary keys.
    pub(crate) low: &'q [u8],
    /// Exclusive upper bound of the secondary keys.
    pub(crate) end: &'q [u8],
    /// Exclusive upper bound of the sequence numbers.
    pub(crate) below: SequenceNumber,
    /// Number of entries to read.
    pub(crate) steps: usize,
}

/// A range that is read in key order if it is small.
pub(crate) struct SmallRange<'q> {
    /// Lower bound of the secondary keys.
    pub(crate) low: &'q [u8],
    /// Exclusive upper bound of the secondary keys.
    pub(crate) end: &'q [u8],
    /// Exclusive upper bound of the sequence numbers.
    pub(crate) below: SequenceNumber,
    /// A range with this many entries is not small.
    pub(crate) max_entries: usize,
    /// Approximate number of entries to visit.
    pub(crate) newest: usize,
}

/// The progress of a walk from the newest entry on.
pub(crate) struct WalkProgress {
    /// All entries down to this sequence number were visited; 0 if all were.
    pub(crate) down_to: SequenceNumber,
    /// Entries of the index in this memtable.
    pub(crate) entries: usize,
}

impl MemtableIndex {
    /// Estimates the share of the entries of `index` from `low` on and below `end`, and returns it with the number of
    /// entries; `None` before the first query. Does not update the index. Counts up to `max_count` entries, and else samples.
    pub(crate) fn share(
        &self,
        index: &SstableIndexBase,
        low: &[u8],
        end: &[u8],
        max_count: usize,
    ) -> Option<(f64, usize)> {
        let mut state = self.state.lock();
        let member = state.members.iter_mut().find(|member| member.id == index.id)?;
        if low >= end {
            return Some((0.0, member.entries.len()));
        }
        let range = (Bound::Included(low), Bound::Excluded(end));
        let within = member.entries.range::<[u8], _>(range).take(max_count).count();
        let entries = member.entries.len();
        if within < max_count {
            return Some((within as f64 / entries.max(1) as f64, entries));
        }
        // A sample for a large range: consecutive entries at several positions. It covers a short list completely.
        member.sort_by_age();
        let (low_head, end_head) = (head_of(low), head_of(end));
        let (mut sampled, mut hits) = (0, 0);
        for place in 0..SAMPLE_POSITIONS {
            let start = place * member.heads.len() / SAMPLE_POSITIONS;
            let next = (place + 1) * member.heads.len() / SAMPLE_POSITIONS;
            let heads = member.heads.get(start..next).unwrap_or_default();
            let aged = member.by_age.get(start..).unwrap_or_default();
            for (&head, aged) in heads.iter().zip(aged).take(SAMPLE_RUN_ENTRIES) {
                sampled += 1;
                let is_within = low_head < head && head < end_head;
                let is_unclear = head == low_head || head == end_head;
                hits += usize::from(is_within || is_unclear && low <= &*aged.key && &*aged.key < end);
            }
        }
        let share = hits as f64 / f64::from(sampled.max(1));
        Some((share.max(max_count as f64 / entries.max(1) as f64), entries))
    }

    /// Updates the index. If fewer than `max_entries` entries of `index` are from `low` on and below `end`, calls `visit`
    /// with about the `newest` newest of them that are older than `below`, oldest first, and returns the sequence number
    /// down to which all were visited, 0 for all. Otherwise returns `None` and visits none.
    ///
    /// Cost: a step in the tree per entry of the range; only the keys of visited entries are read.
    pub(crate) fn visit_small_range(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        wanted: &SmallRange<'_>,
        mut visit: impl FnMut(&[u8], bool),
    ) -> Result<Option<SequenceNumber>> {
        let mut state = self.state.lock();
        let member = state.update(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let Some(member) = state.members.get(member).filter(|_| wanted.low < wanted.end) else {
            return Ok(Some(0));
        };
        let range = (Bound::Included(wanted.low), Bound::Excluded(wanted.end));
        let mut in_range: Vec<(EntryInfo, &[u8])> = Vec::with_capacity(wanted.max_entries);
        in_range.extend(
            member
                .entries
                .range::<[u8], _>(range)
                .take(wanted.max_entries)
                .map(|(key, info)| (*info, &**key)),
        );
        if in_range.len() == wanted.max_entries {
            return Ok(None);
        }
        in_range.retain(|(info, _)| info.sequence < wanted.below);
        let mut down_to = 0;
        if in_range.len() > 2 * wanted.newest {
            let last = in_range.select_nth_unstable_by_key(wanted.newest, |(info, _)| !info.sequence).1;
            down_to = last.0.sequence;
            // Entries of one write stay together.
            in_range.retain(|(info, _)| info.sequence >= down_to);
        }
        in_range.sort_unstable_by_key(|(info, _)| info.sequence);
        in_range.iter().for_each(|(info, key)| visit(key, info.repeated));
        Ok(Some(down_to))
    }

    /// Updates the index, and calls `visit` with entries of `index` in `wanted`, newest first: the key, and whether the
    /// write has other entries.
    pub(crate) fn visit_newest(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        wanted: &NewestRange<'_>,
        mut visit: impl FnMut(&[u8], bool),
    ) -> Result<WalkProgress> {
        let mut state = self.state.lock();
        let member = state.update(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let Some(member) = state.members.get_mut(member) else {
            return Ok(WalkProgress { down_to: 0, entries: 0 });
        };
        member.sort_by_age();
        let (low, end) = (head_of(wanted.low), head_of(wanted.end));
        let older_count = member.by_age.partition_point(|aged| aged.sequence < wanted.below);
        let older = member.by_age.get(..older_count).unwrap_or_default();
        let mut first = older.len().saturating_sub(wanted.steps);
        let sequence = |at: usize| older.get(at).map_or(0, |aged| aged.sequence);
        // Entries of one write stay together.
        while first > 0 && sequence(first) == sequence(first - 1) {
            first -= 1;
        }
        let heads = member.heads.get(first..older_count).unwrap_or_default();
        for (&head, aged) in heads.iter().zip(older.iter().skip(first)).rev() {
            let may_be_in = low <= head && head <= end;
            if may_be_in && wanted.low <= &*aged.key && &*aged.key < wanted.end {
                visit(&aged.key, aged.repeated);
            }
        }
        let down_to = if first == 0 { 0 } else { sequence(first) };
        Ok(WalkProgress { down_to, entries: member.by_age.len() })
    }

    /// Adds an entry without a record, or removes an entry.
    #[cfg(test)]
    pub(crate) fn set_entry(&self, index: &SstableIndexBase, key: &[u8], there: bool) {
        let mut state = self.state.lock();
        let member = state.members.iter_mut().find(|member| member.id == index.id).unwrap();
        match there {
            true => {
                assert!(
                    member.entries.insert(key.into(), EntryInfo { sequence: 1, repeated: false }).is_none()
                )
            }
            false => assert!(member.entries.remove(key).is_some()),
        }
    }

    /// Calls `visit` with all present entries of `index`, without an update.
    pub(crate) fn visit_all(&self, index: &SstableIndexBase, mut visit: impl FnMut(&[u8])) {
        let state = self.state.lock();
        if let Some(member) = state.members.iter().find(|member| member.id == index.id) {
            member.entries.keys().for_each(|key| visit(key));
        }
    }

    /// Updates the index of `memtable`, and calls `visit` with the entries of `index` from `low` on, after `after` and below
    /// `end`, until it returns false: the key, and whether the write has other entries.
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
        let member = state.update(memtable, index, extractor)?;
        self.memory_bytes.store(state.bytes, Ordering::Relaxed);
        let start = after.map_or(Bound::Included(low), Bound::Excluded);
        let Some(member) = state.members.get(member) else { return Ok(()) };
        if after.unwrap_or(low) < end {
            for (key, info) in member.entries.range::<[u8], _>((start, Bound::Excluded(end))) {
                if !visit(key, info.repeated) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sequence numbers and primary keys, up to `sequence`, of the records whose attributes could not be extracted.
    ///
    /// # Errors
    /// As [`visit`](Self::visit): another reader may have failed during an update.
    pub(crate) fn opaque(
        &self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
        sequence: SequenceNumber,
    ) -> Result<Vec<(SequenceNumber, Vec<u8>)>> {
        let mut state = self.state.lock();
        let member = state.update(memtable, index, extractor)?;
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

impl MemtableIndexState {
    /// Applies all inserts of the memtable. Returns the position of the member for `index`.
    fn update(
        &mut self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
    ) -> Result<usize> {
        if !self.journal_started {
            memtable.start_journal();
            self.journal_started = true;
        }
        if self.incomplete {
            self.reset();
        }
        // The journal is read once. After any failure in the following lines, the next reader resets the state.
        self.incomplete = true;
        let position = self.apply_journal(memtable, index, extractor)?;
        self.incomplete = false;
        Ok(position)
    }

    /// Removes all members: each is added again, with all entries of the memtable, when it is read.
    fn reset(&mut self) {
        self.members.clear();
        self.plan = AttributePlan::default();
        self.values = AttributeValues::default();
        self.bytes = 0;
    }

    /// Applies the journal to all members, and adds `index` as a member if it is none.
    fn apply_journal(
        &mut self,
        memtable: &Arc<Memtable>,
        index: &SstableIndexBase,
        extractor: &dyn AttributeExtractor,
    ) -> Result<usize> {
        let position = self.members.len();
        memtable.take_journal(|key, trailer, value| self.add_version(0, key, trailer, value, extractor));
        if let Some(position) = self.members.iter().position(|member| member.id == index.id) {
            return Ok(position);
        }
        self.add_member(index);
        let mut cursor = memtable.cursor(Visibility::All);
        cursor.seek_to_first()?;
        while cursor.valid() {
            self.add_version(position, cursor.key(), cursor.trailer(), cursor.value(), extractor);
            cursor.next()?;
        }
        if let Some(member) = self.members.get_mut(position) {
            // Sorting belongs to the first query, not to the first walk.
            member.sort_by_age();
        }
        Ok(position)
    }

    /// Adds `index` as a member without entries.
    fn add_member(&mut self, index: &SstableIndexBase) {
        self.members.push(MemberIndex {
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

    /// Adds the entries of a version to the members from position `from` on.
    fn add_version(
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
                let info = EntryInfo { sequence, repeated: count > 1 };
                if member.entries.insert(Arc::clone(&key), info).is_none() {
                    self.bytes += key.len() + ENTRY_BYTES;
                    member.by_age.push(EntryByAge { sequence, key, repeated: count > 1 });
                }
            }
        }
    }
}

impl MemberIndex {
    /// Sorts the added entries of the list. Entries are almost in order, so few are moved.
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
