//! The expected contents of a tree: a map in memory, and random histories from a seed.

use std::collections::{BTreeMap, HashMap, HashSet};

use bolide_base::SequenceNumber;

use super::obsolescence::Obsolescence;
use super::sync::Mutex;
use crate::validation::Verdict;

/// A random number generator that is seeded with its whole state.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn chance(&mut self, in_hundred: u64) -> bool {
        self.below(100) < in_hundred
    }
}

/// Primary key and covering of an entry.
pub(super) type Body = (Vec<u8>, Vec<u8>);

/// All entries by secondary key and sequence number, and the newest write of each primary key.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    pub(super) entries: BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, Body>>,
    pub(super) newest: HashMap<Vec<u8>, SequenceNumber>,
}

impl Oracle {
    pub(super) fn insert(&mut self, skey: &[u8], pkey: &[u8], sequence: SequenceNumber, covering: &[u8]) {
        self.entries.entry(skey.to_vec()).or_default().insert(sequence, (pkey.to_vec(), covering.to_vec()));
        let newest = self.newest.entry(pkey.to_vec()).or_default();
        *newest = sequence.max(*newest);
    }
}

/// The version table of an oracle: stores the newest write of each primary key, and records removals.
#[derive(Debug, Default)]
pub(super) struct Versions {
    pub(super) newest: Mutex<HashMap<Vec<u8>, SequenceNumber>>,
    pub(super) removed: Mutex<HashSet<(Vec<u8>, SequenceNumber)>>,
    pub(super) removed_flagged: Mutex<u64>,
}

impl Versions {
    pub(super) fn write(&self, pkey: &[u8], sequence: SequenceNumber) {
        let mut newest = self.newest.lock();
        let newest = newest.entry(pkey.to_vec()).or_default();
        *newest = sequence.max(*newest);
    }
}

impl Obsolescence for Versions {
    fn verdict(&self, pkey: &[u8], sequence: SequenceNumber, oldest_in_use: SequenceNumber) -> Verdict {
        match self.newest.lock().get(pkey) {
            Some(&newest) if newest > sequence && newest <= oldest_in_use => Verdict::Obsolete,
            Some(&newest) if newest == sequence => Verdict::Current,
            _ => Verdict::Unknown,
        }
    }

    fn removed(&self, pkey: &[u8], sequence: SequenceNumber, flagged: bool) {
        let again = !self.removed.lock().insert((pkey.to_vec(), sequence));
        assert!(!again, "an entry is removed once");
        *self.removed_flagged.lock() += u64::from(flagged);
    }
}
