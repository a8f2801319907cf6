//! The update memo: the keys that were written more than once, with their last write, in memory (NEXT §3.3, §6.1).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use bolide_base::SequenceNumber;
use bolide_index::Verdict;

/// The writes of an updated or deleted key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyUpdates {
    /// The last write.
    latest: SequenceNumber,
    /// The maximum number of entries of older writes in an index.
    obsolete: u32,
}

/// The keys that were updated or deleted since the database was opened.
#[derive(Debug, Default)]
pub struct UpdateMemo {
    updated: RwLock<HashMap<Box<[u8]>, KeyUpdates>>,
}

/// A reader of the memo for one query. It locks the memo for each verdict: a cursor holds no lock between two candidates.
pub struct MemoReader<'m> {
    memo: &'m UpdateMemo,
    view: SequenceNumber,
}

impl UpdateMemo {
    /// Adds an update or a deletion of an existing key.
    pub fn note(&self, primary_key: &[u8], sequence: SequenceNumber) {
        let mut updated = self.updated.write().unwrap_or_else(PoisonError::into_inner);
        match updated.get_mut(primary_key) {
            Some(known) => {
                known.latest = sequence;
                known.obsolete += 1;
            }
            None => {
                updated.insert(primary_key.into(), KeyUpdates { latest: sequence, obsolete: 1 });
            }
        }
    }

    /// A reader for a query at `view`.
    pub fn reader(&self, view: SequenceNumber) -> MemoReader<'_> {
        MemoReader { memo: self, view }
    }

    /// The numbers of keys and of obsolete entries.
    pub fn size(&self) -> (usize, u64) {
        let updated = self.updated.read().unwrap_or_else(PoisonError::into_inner);
        (updated.len(), updated.values().map(|known| u64::from(known.obsolete)).sum())
    }
}

impl MemoReader<'_> {
    /// The verdict on the version `sequence` of `primary_key`.
    pub fn verdict(&self, primary_key: &[u8], sequence: SequenceNumber) -> Verdict {
        let updated = self.memo.updated.read().unwrap_or_else(PoisonError::into_inner);
        match updated.get(primary_key) {
            None => Verdict::Current,
            Some(known) if known.latest > self.view => Verdict::Unknown,
            Some(known) if known.latest == sequence => Verdict::Current,
            Some(_) => Verdict::Obsolete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_is_current_and_unknown_to_older_views() {
        let memo = UpdateMemo::default();
        assert_eq!(memo.reader(9).verdict(b"a", 1), Verdict::Current);
        memo.note(b"a", 5);
        memo.note(b"a", 7);
        assert_eq!(memo.reader(9).verdict(b"a", 5), Verdict::Obsolete);
        assert_eq!(memo.reader(9).verdict(b"a", 7), Verdict::Current);
        assert_eq!(memo.reader(6).verdict(b"a", 5), Verdict::Unknown);
        assert_eq!(memo.reader(9).verdict(b"b", 2), Verdict::Current);
        assert_eq!(memo.size(), (1, 2));
    }
}
