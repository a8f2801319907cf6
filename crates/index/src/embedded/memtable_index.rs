//! The secondary keys of the records in one memtable, for all embedded indexes of a collection together
//! (LevelDB++ §3 keeps a B-tree for the same purpose).
//!
//! Writers do not maintain it. The first question walks over the memtable once; from then on the memtable
//! notes what is inserted (see [`Memtable::take_journal`]), and each question takes in what is new. So a
//! memtable nobody asks about costs nothing, and a question costs what was written since the last one.
//!
//! ```text
//! entry    secondary key, inverted sequence number (8 bytes), primary key  ->  has the write other entries?
//! ```
//!
//! Entries of one secondary key stand newest first. All versions of a key have entries; a record that cannot be
//! looked into stands in a list of its own, and is looked at with every question.
//!
//! # Concurrency
//! One lock guards everything, so that what is new is taken in once and by one thread. Every write that a view
//! sees was inserted before the view was made, and so is found by each question of the view, in the walk or in
//! the journal; entries that are too new for a view are passed over. Taking in an entry twice changes
//! nothing.

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
use super::{EmbeddedIndex, slots_in};
use crate::attribute_plan::{AttributePlan, AttributeValues, Slot};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;

/// The number of this attachment of a memtable. Indexes have smaller ones.
pub(super) const ATTACHMENT: u64 = u64::MAX;

/// Memory that an entry takes besides its bytes, about.
const ENTRY_BYTES: usize = 48;

/// Bytes of an inverted sequence number.
pub(super) const SEQUENCE_BYTES: usize = 8;

/// The index of one memtable; see the [module](self).
#[derive(Default)]
pub(super) struct MemtableIndex {
    state: Mutex<State>,
    memory_bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The memtable notes what is inserted.
    follows: bool,
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
    slots: Vec<Slot>,
    entries: BTreeMap<Box<[u8]>, bool>,
    /// Inverted sequence numbers and primary keys of records that could not be looked into.
    opaque: BTreeMap<Box<[u8]>, ()>,
}

impl MemtableIndex {
    /// Takes in what is new in `memtable`, which this is the index of, and calls `visit` with the entries of
    /// `index` from `low` on, behind `after` and below `end`, until it answers false: the entry's key and
    /// whether its write has others.
    pub(super) fn visit(
        &self,
        memtable: &Arc<Memtable>,
        index: &EmbeddedIndex,
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
            for (key, repeated) in member.entries.range::<[u8], _>((start, Bound::Excluded(end))) {
                if !visit(key, *repeated) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sequence numbers and primary keys of the records that could not be looked into when they were taken
    /// in, up to `sequence`.
    pub(super) fn opaque(
        &self,
        index: &EmbeddedIndex,
        sequence: SequenceNumber,
    ) -> Vec<(SequenceNumber, Vec<u8>)> {
        let state = self.state.lock();
        let member = state.members.iter().find(|member| member.id == index.id);
        let Some(member) = member else { return Vec::new() };
        let from = (!sequence).to_be_bytes();
        let split = |key: &[u8]| {
            let (inverted, primary_key) = key.split_first_chunk::<SEQUENCE_BYTES>()?;
            Some((!u64::from_be_bytes(*inverted), primary_key.to_vec()))
        };
        let range = (Bound::Included(from.as_slice()), Bound::Unbounded);
        member.opaque.range::<[u8], _>(range).filter_map(|(key, ())| split(key)).collect()
    }
}

impl State {
    /// Brings everything up to date. Answers the position of the member for `index`.
    fn follow(
        &mut self,
        memtable: &Arc<Memtable>,
        index: &EmbeddedIndex,
        extractor: &dyn AttributeExtractor,
    ) -> Result<usize> {
        if !self.follows {
            memtable.start_journal();
            self.follows = true;
        }
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
        Ok(known)
    }

    /// Makes `index` a member without entries.
    fn join(&mut self, index: &EmbeddedIndex) {
        self.members.push(Member {
            id: index.id,
            attributes: index.spec.attributes().to_vec(),
            slots: Vec::new(),
            entries: BTreeMap::new(),
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
                if member.entries.insert(self.key.as_slice().into(), count > 1).is_none() {
                    self.bytes += self.key.len() + ENTRY_BYTES;
                }
            }
        }
    }
}

impl Attachment for MemtableIndex {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.memory_bytes.load(Ordering::Relaxed)
    }
}
