//! The read interface of indexes and of the lookup driver: a small view of the trees below.
//!
//! The read view of the store and an in-memory model for tests implement the traits. They are used as type parameters, so
//! the calls have no overhead.

use std::ops::Deref;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::store::{FoundInRun, KnownWrite, LiteVerdict};

/// All trees at one sequence number.
pub trait ReadSource: Send + Sync {
    /// The type of a tree. Threads that fetch records get clones of it.
    type Tree: TreeSource + Clone + Send + Sync + 'static;

    /// The tree with this id, for repeated reads.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    fn tree(&self, tree: TreeId) -> Result<Self::Tree>;

    /// The sequence number of the view: it contains the writes up to this number.
    fn sequence(&self) -> SequenceNumber;

    /// The oldest sequence number with a present or future reader.
    fn oldest_in_use(&self) -> SequenceNumber;
}

/// One tree at one sequence number.
///
/// All methods may fail with `Corruption` or `Io` from the files below.
pub trait TreeSource {
    /// A value, pinned rather than copied.
    type Value: Deref<Target = [u8]> + for<'b> From<&'b [u8]> + Send;
    /// Walks over the entries.
    type Cursor: EntryCursor + Send;
    /// Walks over the operands of merges.
    type Versions: ForwardCursor + Send;

    /// The value of `key` and the sequence number of the write that set it.
    ///
    /// # Errors
    /// See the trait.
    fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, Self::Value)>>;

    /// The sequence number of the write that set `key`; `None` if the key is absent or deleted. Reads no
    /// value.
    ///
    /// # Errors
    /// See the trait.
    fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>>;

    /// [`get`](Self::get) for each of `keys`: the results are appended to `out` in their order. May be
    /// faster than as many single reads.
    ///
    /// # Errors
    /// See the trait; `out` then has fewer results than there are keys.
    fn get_many(&self, keys: &[&[u8]], out: &mut Vec<Option<(SequenceNumber, Self::Value)>>) -> Result<()> {
        for key in keys {
            out.push(self.get(key)?);
        }
        Ok(())
    }

    /// [`newest_sequence`](Self::newest_sequence) for each of `keys`, as [`get_many`](Self::get_many).
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn newest_sequences(&self, keys: &[&[u8]], out: &mut Vec<Option<SequenceNumber>>) -> Result<()> {
        for key in keys {
            out.push(self.newest_sequence(key)?);
        }
        Ok(())
    }

    /// The value of each of `writes` if it is the newest write of its key; `None` if it was replaced or deleted. Appended
    /// to `out` in their order. May skip components that can contain neither the write nor a newer one.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn get_current_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<Self::Value>>) -> Result<()> {
        for write in writes {
            let newest = self.get(write.key)?;
            out.push(newest.filter(|(sequence, _)| *sequence == write.sequence).map(|(_, value)| value));
        }
        Ok(())
    }

    /// As [`get_current_many`](Self::get_current_many), for writes that are known to be the newest ones except for deleted
    /// ranges: components with newer writes may be skipped.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn get_exact_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<Self::Value>>) -> Result<()> {
        self.get_current_many(writes, out)
    }

    /// Whether the write of `key` at `written` is current, as far as memory determines it. No I/O.
    fn get_lite(&self, key: &[u8], written: SequenceNumber) -> LiteVerdict;

    /// Identifies the set of files and memtables that this tree reads.
    fn components_id(&self) -> usize {
        0
    }

    /// Whether each of `found`, which this tree read, is current. Appended to `out` in their order. Reads only what is newer
    /// than the sstables of `found`. Returns how many were not decided in memory.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn are_current(&self, found: &[FoundInRun<'_>], out: &mut Vec<bool>) -> Result<u64> {
        for found in found {
            out.push(self.newest_sequence(found.key)? == Some(found.sequence));
        }
        Ok(found.len() as u64)
    }

    /// Whether a range tombstone covers the write of `key` at `sequence`. No I/O.
    fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool;

    /// The estimated number of entries in `low..end`, old versions and tombstones included. Reads no data.
    ///
    /// # Errors
    /// See the trait.
    fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64>;

    /// The estimated number of postings of the lists in `low..end`, for a tree with
    /// [`PostingCounts`](crate::standalone::posting_list::PostingCounts): as [`estimate`](Self::estimate), with the average
    /// of each sstable.
    ///
    /// # Errors
    /// See the trait.
    fn estimate_postings(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        self.estimate(low, end)
    }

    /// A cursor over the entries in `low..end`, unbounded if `end` is `None`. Not positioned yet.
    ///
    /// # Errors
    /// See the trait.
    fn cursor(&self, low: &[u8], end: Option<&[u8]>) -> Result<Self::Cursor>;

    /// The largest sequence number and the number of entries of each component, the newest first; empty if they are not
    /// known. No I/O.
    fn recency(&self) -> Vec<(SequenceNumber, u64)> {
        Vec::new()
    }

    /// A cursor over all visible entries at or above `since`, and over some entries below it, which need not be visible.
    /// Reads only components with an entry at or above `since`. Not positioned yet.
    ///
    /// # Errors
    /// See the trait.
    fn cursor_since(&self, since: SequenceNumber) -> Result<Self::Cursor> {
        let _ = since;
        self.cursor(&[], None)
    }

    /// A cursor over the merge operands of the keys in `low..end`, unbounded if `end` is `None`. Not positioned yet.
    ///
    /// # Errors
    /// See the trait.
    fn versions(&self, low: &[u8], end: Option<&[u8]>) -> Result<Self::Versions>;
}

/// A forward cursor over the visible entries or operands within bounds: keys ascending, the operands of a key newest
/// first.
pub trait ForwardCursor {
    /// Whether the cursor has a current entry or operand.
    fn valid(&self) -> bool;

    /// The key of the current entry or operand.
    fn key(&self) -> &[u8];

    /// The current value or operand.
    fn value(&self) -> &[u8];

    /// The sequence number of the current entry or operand.
    fn sequence(&self) -> SequenceNumber;

    /// Moves to the first entry, or to the newest operand of the first key.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; so for the other moves.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Moves to the next entry or operand. Requires a valid cursor.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    fn next(&mut self) -> Result<()>;
}

/// A cursor over the visible entries of a tree within bounds, in key order, in both directions.
pub trait EntryCursor: ForwardCursor {
    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn seek_to_last(&mut self) -> Result<()>;

    /// Moves to the first entry at or after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the previous entry. Requires a valid cursor.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn prev(&mut self) -> Result<()>;
}
