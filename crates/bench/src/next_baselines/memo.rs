//! The update memo: in memory, which keys were written more than once, and when last (NEXT §3.3, §6.1).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bolide_base::SequenceNumber;
use bolide_index::Verdict;

/// What is known of a key that was updated or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Updated {
    /// The last write.
    latest: SequenceNumber,
    /// Entries of older writes that an index may still have, at most.
    obsolete: u32,
}

/// The keys that were updated or deleted since the database was opened.
#[derive(Debug, Default)]
pub struct UpdateMemo {
    updated: RwLock<HashMap<Box<[u8]>, Updated>>,
}

/// The memo while a query reads it.
pub struct MemoReader<'m> {
    updated: RwLockReadGuard<'m, HashMap<Box<[u8]>, Updated>>,
    view: SequenceNumber,
}

impl UpdateMemo {
    /// Notes that a key that was there was written again, or deleted.
    pub fn note(&self, primary_key: &[u8], sequence: SequenceNumber) {
        let mut updated = self.updated.write().unwrap_or_else(PoisonError::into_inner);
        match updated.get_mut(primary_key) {
            Some(known) => {
                known.latest = sequence;
                known.obsolete += 1;
            }
            None => {
                updated.insert(primary_key.into(), Updated { latest: sequence, obsolete: 1 });
            }
        }
    }

    /// For a query at `view`.
    pub fn reader(&self, view: SequenceNumber) -> MemoReader<'_> {
        MemoReader { updated: self.updated.read().unwrap_or_else(PoisonError::into_inner), view }
    }

    /// Keys that it has, and the obsolete entries that they stand for.
    pub fn size(&self) -> (usize, u64) {
        let updated = self.updated.read().unwrap_or_else(PoisonError::into_inner);
        (updated.len(), updated.values().map(|known| u64::from(known.obsolete)).sum())
    }
}

impl MemoReader<'_> {
    /// Whether `primary_key`, as written at `sequence`, is current.
    pub fn verdict(&self, primary_key: &[u8], sequence: SequenceNumber) -> Verdict {
        match self.updated.get(primary_key) {
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
    fn the_last_write_is_current_and_older_views_are_in_doubt() {
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
