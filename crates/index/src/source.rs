//! What indexes and the lookup driver read from: a small view of the trees below.
//!
//! The traits are implemented by the read view of the store, and by a model in memory for tests. They
//! are used as type parameters, so the calls cost nothing.

use std::ops::Deref;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::store::{FoundInRun, KnownWrite, Lite};

/// All trees at one sequence number.
pub trait ReadSource: Send + Sync {
    /// One of its trees. Threads that help to fetch records get clones of it.
    type Tree: TreeSource + Clone + Send + Sync + 'static;

    /// The tree with this id, for many reads in a row.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    fn tree(&self, tree: TreeId) -> Result<Self::Tree>;

    /// Writes up to this number are seen, later ones are not.
    fn sequence(&self) -> SequenceNumber;

    /// The oldest number at which somebody reads, or may read from now on.
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

    /// [`get`](Self::get) for each of `keys`: the answers are appended to `out` in their order. May be
    /// quicker than as many single reads.
    ///
    /// # Errors
    /// See the trait; `out` then has fewer answers than there are keys.
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

    /// What each of `writes` put, if it is the newest write of its key here; `None` where it was replaced or deleted.
    /// Appended to `out` in their order. May leave out whatever can hold neither the write nor a newer one.
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

    /// As [`get_current_many`](Self::get_current_many), for writes that the caller knows to be the newest ones but for
    /// deleted ranges: what could hold newer ones need not be looked at.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn get_exact_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<Self::Value>>) -> Result<()> {
        self.get_current_many(writes, out)
    }

    /// Whether the write of `key` at `written` is current, as far as memory says: no I/O.
    fn get_lite(&self, key: &[u8], written: SequenceNumber) -> Lite;

    /// Tells the files and memtables that this tree reads from those that it reads at other times.
    fn components_id(&self) -> usize {
        0
    }

    /// Whether each of `found`, read where this tree reads, is current: appended to `out` in their order. Asks only what is newer than the
    /// sstables that they were found in. Returns how many could not be settled in memory.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    fn are_current(&self, found: &[FoundInRun<'_>], out: &mut Vec<bool>) -> Result<u64> {
        for found in found {
            out.push(self.newest_sequence(found.key)? == Some(found.sequence));
        }
        Ok(found.len() as u64)
    }

    /// True if a range tombstone covers `key` as written at `sequence`. No I/O.
    fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool;

    /// About how many entries lie from `low` on and below `end`, old versions and tombstones included. Reads
    /// no data.
    ///
    /// # Errors
    /// See the trait.
    fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64>;

    /// About how many postings the lists from `low` on and below `end` have, of a tree that is watched by
    /// [`PostingCounts`](crate::standalone::posting_list::PostingCounts): as [`estimate`](Self::estimate), by the
    /// average of each sstable.
    ///
    /// # Errors
    /// See the trait.
    fn estimate_postings(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        self.estimate(low, end)
    }

    /// A cursor over the entries from `low` on and below `end`; `None` for no end. Not positioned yet.
    ///
    /// # Errors
    /// See the trait.
    fn cursor(&self, low: &[u8], end: Option<&[u8]>) -> Result<Self::Cursor>;

    /// A cursor over the operands that were merged into the keys from `low` on and below `end`; `None` for
    /// no end. Not positioned yet.
    ///
    /// # Errors
    /// See the trait.
    fn versions(&self, low: &[u8], end: Option<&[u8]>) -> Result<Self::Versions>;
}

/// Walks forward over what is visible within bounds: keys ascending, and where a key has several operands
/// the newest first.
pub trait ForwardCursor {
    /// True while it stands on an entry or operand.
    fn valid(&self) -> bool;

    /// The key of what it stands on.
    fn key(&self) -> &[u8];

    /// The value, or the operand, that it stands on.
    fn value(&self) -> &[u8];

    /// The sequence number of what it stands on.
    fn sequence(&self) -> SequenceNumber;

    /// Goes to the first entry, or to the newest operand of the first key.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; so for the other moves.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Goes to the next entry or operand. Only while valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    fn next(&mut self) -> Result<()>;
}

/// Walks over the visible entries of a tree within bounds, in key order, in both directions.
pub trait EntryCursor: ForwardCursor {
    /// Goes to the last entry.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn seek_to_last(&mut self) -> Result<()>;

    /// Goes to the first entry at or behind `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Goes to the entry before. Only while valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](ForwardCursor::seek_to_first).
    fn prev(&mut self) -> Result<()>;
}
